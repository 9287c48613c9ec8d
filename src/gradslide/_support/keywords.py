"""Arguments that a public call does not take: errors that suggest the right keyword."""

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from gradslide._support.errors import ArgumentError, nearest

_P = ParamSpec("_P")
_R = TypeVar("_R")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class CheckedArguments:
    """Base class whose subclasses refuse arguments that `__init__`, or a class method, does not take.

    A dataclass gets its `__init__` after `__init_subclass__` ran, so `__new__` checks the arguments.
    `inspect.signature`, `help` and mypy see those of `__init__`.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, member in list(vars(cls).items()):
            if isinstance(member, classmethod) and not name.startswith("_"):
                setattr(cls, name, classmethod(checked_arguments(member.__func__)))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if args or kwargs:
            _check(cls.__name__, cls.__init__, (None, *args), kwargs)
        return super().__new__(cls)


def checked_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function: it refuses arguments that it does not take, and suggests a keyword."""

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        _check(function.__qualname__, function, args, kwargs)
        return function(*args, **kwargs)

    return checked


class _Accepted(NamedTuple):
    """Keywords, and how many arguments may be given by position, of which `self` or `cls` is hidden.

    None where any will do.
    """

    keywords: tuple[str, ...] | None
    positions: int | None
    hidden: int


@functools.cache
def _accepted(function: Callable[..., Any]) -> _Accepted:
    if function is object.__init__:
        return _Accepted((), 1, 1)
    parameters = inspect.signature(function).parameters
    hidden = [name for name in parameters if name in ("self", "cls")]
    by = {
        kind: [each.name for each in parameters.values() if each.kind is kind]
        for kind in (*_POSITIONAL, Parameter.VAR_POSITIONAL, Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
    }
    keywords = [*by[Parameter.POSITIONAL_OR_KEYWORD], *by[Parameter.KEYWORD_ONLY]]
    return _Accepted(
        None if by[Parameter.VAR_KEYWORD] else tuple(name for name in keywords if name not in hidden),
        None if by[Parameter.VAR_POSITIONAL] else sum(len(by[kind]) for kind in _POSITIONAL),
        len(hidden),
    )


def _check(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    code = getattr(function, "__code__", None)
    if code is not None and len(args) <= code.co_argcount:
        known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if kwargs.keys() <= set(known):
            return  # nearly always: nothing is wrong
    keywords, positions, hidden = _accepted(function)
    if keywords is not None:
        for key in kwargs:
            if key not in keywords:
                close = nearest(key, keywords)
                known = f"use one of {', '.join(keywords)}" if keywords else "leave it out"
                remedy = f"did you mean {close}=?" if close else known
                raise ArgumentError(f"a keyword of {name} must be one of its parameters", f"{key}=", remedy)
    if positions is not None and len(args) > positions:
        most = positions - hidden
        more = None if keywords is None else keywords[most:]
        remedy = f"name the others, for example {name}({more[0]}=...)" if more else "leave the others out"
        rule = f"{name} takes at most {most} arguments without names" if most else f"{name} takes keywords only"
        raise ArgumentError(rule, f"{len(args) - hidden} arguments without names", remedy)
