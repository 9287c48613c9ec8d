"""Arguments that a public call does not take, or lacks: errors that suggest the right keyword."""

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from gradslide._support.errors import ArgumentError, nearest

_P = ParamSpec("_P")
_R = TypeVar("_R")
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_ANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
_ORDER = "_argument_order"


class CheckedArguments:
    """Base class: `__init__` and class methods name arguments that they do not take, or lack.

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
        else:
            _check_in_init(cls)
        return super().__new__(cls)


def checked_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function: its errors name arguments that it does not take, or lacks."""

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        _check(function.__qualname__, function, args, kwargs)
        return function(*args, **kwargs)

    return checked


def argument_order(text: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a checked function: where it lacks an argument, the error says this about their order."""

    def marked(function: Callable[_P, _R]) -> Callable[_P, _R]:
        setattr(function, _ORDER, text)
        return function

    return marked


class _Accepted(NamedTuple):
    """What a function takes.

    names: of arguments that may be given by position; the first is hidden if it is `self` or `cls`.
    takes_any_number: of arguments without names. keywords: None where any will do. required: those
    without a default.
    """

    names: tuple[str, ...]
    hidden: int
    takes_any_number: bool
    keywords: tuple[str, ...] | None
    required: tuple[str, ...]


@functools.cache
def _accepted(function: Callable[..., Any]) -> _Accepted:
    if function is object.__init__:
        return _Accepted(("self",), 1, False, (), ())
    parameters = inspect.signature(function).parameters
    kinds = {each.kind for each in parameters.values()}
    hidden = [name for name in parameters if name in ("self", "cls")]
    named = [each for each in parameters.values() if each.kind not in _ANY and each.name not in hidden]
    return _Accepted(
        names=tuple(each.name for each in parameters.values() if each.kind in _POSITIONAL),
        hidden=len(hidden),
        takes_any_number=Parameter.VAR_POSITIONAL in kinds,
        keywords=None
        if Parameter.VAR_KEYWORD in kinds
        else tuple(each.name for each in named if each.kind is not Parameter.POSITIONAL_ONLY),
        required=tuple(each.name for each in named if each.default is Parameter.empty),
    )


def _check_in_init(cls: type) -> None:
    """Let `__init__` check its arguments: copies and pickles, too, call `__new__` with none."""
    init: Callable[..., None] = cls.__init__  # type: ignore[misc]
    if hasattr(init, "__wrapped__") or not _accepted(init).required:
        return

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self).__init__ is checked:  # else it is called by the `__init__` of a subclass
            _check(type(self).__name__, init, (self, *args), kwargs)
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[misc]


def _check(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    names, hidden, takes_any_number, keywords, required = _accepted(function)
    if keywords is not None:
        for key in kwargs:
            if key not in keywords:
                close = nearest(key, keywords)
                known = f"use one of {', '.join(keywords)}" if keywords else "leave it out"
                remedy = f"did you mean {close}=?" if close else known
                raise ArgumentError(f"a keyword of {name} must be one of its parameters", f"{key}=", remedy)
    if len(args) > len(names) and not takes_any_number:
        raise _surplus(name, len(args) - hidden, len(names) - hidden, keywords)
    by_position = names[: len(args)]
    missing = [each for each in required if each not in by_position and each not in kwargs]
    if missing:
        given = [*zip(by_position[hidden:], args[hidden:], strict=False), *kwargs.items()]
        got = ", ".join(f"{type(value).__name__} as {each}" for each, value in given) or "no arguments"
        call = ", ".join(each if each in names else f"{each}=..." for each in required)
        order: str = getattr(function, _ORDER, "")
        remedy = f"{order}: {name}({call})" if order else f"call it as {name}({call})"
        *others, last = missing
        needed = f"{', '.join(others)} and {last}" if others else last
        raise ArgumentError(f"{name} needs {needed}", got, remedy)


def _surplus(name: str, given: int, most: int, keywords: tuple[str, ...] | None) -> ArgumentError:
    """The error for too many arguments without names."""
    got = "1 argument without a name" if given == 1 else f"{given} arguments without names"
    more = None if keywords is None else keywords[most:]
    which = "the others" if most else "it" if given == 1 else "them"
    remedy = f"name {which}, for example {name}({more[0]}=...)" if more else f"leave {which} out"
    if not most:
        return ArgumentError(f"{name} takes {'keywords only' if more else 'no arguments'}", got, remedy)
    counted = "1 argument without a name" if most == 1 else f"{most} arguments without names"
    return ArgumentError(f"{name} takes at most {counted}", got, remedy)
