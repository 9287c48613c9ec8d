"""The user's own function that builds the loss and the domain of one agent, from a file or an
installed package.
"""

import importlib
import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple

from gradslide._support.errors import InputError, kind_of, require, unknown_name
from gradslide.domains import Domain
from gradslide.domains.penalties import not_a_domain
from gradslide.experiments.agent.spec import feature_names
from gradslide.losses import Loss

_REMEDY = 'write it as "site.py:build" or "package.module:build"'
_numbers = itertools.count(1)


class BuilderFailed(Exception):
    """The user's code raised an error; `report` is its traceback, without our own frames, `kind` its
    class.
    """

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"the builder {name} failed: {type(error).__name__}: {error}")
        self.kind = type(error).__name__
        own = _users_part(error.__traceback__)
        self.report = "".join(traceback.format_exception(type(error), error, own))


class Built(NamedTuple):
    """What a builder returned: the loss, the domain and the names of the columns, if it states them."""

    loss: Loss
    domain: Domain | None = None
    features: tuple[str, ...] | None = None


def built(name: str, folder: Path) -> Built:
    """Call the builder of that name. folder: where its file is, passed on if the builder has a
    parameter `folder`.
    """
    source, separator, wanted = name.rpartition(":")
    rule = "builder must name a file or module, and a function in it"
    require(bool(separator and source and wanted), rule, repr(name), _REMEDY)
    is_file = source.endswith(".py")
    with _importable((folder / source).parent if is_file else folder):
        module = _from_file(name, folder / source) if is_file else _from_package(name, source)
        function = _function(module, source, wanted)
        arguments = _arguments(name, function, folder)
        try:
            result = function(**arguments)
        except Exception as error:
            raise BuilderFailed(name, error) from error
    return _checked(name, result)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules beside the builder can be imported while it runs, and only then."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        if place in sys.path:
            sys.path.remove(place)


def _function(module: ModuleType, source: str, wanted: str) -> Callable[..., Any]:
    found = getattr(module, wanted, None)
    if found is None:
        own = [key for key, value in vars(module).items() if isinstance(value, FunctionType)]
        raise unknown_name(f"the function in builder, of {source},", wanted, own)
    require(callable(found), f"{source}:{wanted} must be a function", kind_of(found), _REMEDY)
    return found


def _from_file(name: str, path: Path) -> ModuleType:
    # Under a fresh name: whatever the file is called, it hides no other module.
    spec = importlib.util.spec_from_file_location(f"gradslide_builder_{next(_numbers)}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InputError("the builder's file must be there", f"{path}, which is not", "paths are relative to the spec")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise BuilderFailed(name, error) from error
    return module


def _from_package(name: str, source: str) -> ModuleType:
    rule = "the builder must be in a module that is installed or beside the spec, or in a .py file"
    require(all(part.isidentifier() for part in source.split(".")), rule, repr(source), _REMEDY)
    try:
        return importlib.import_module(source)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{source}.".startswith(f"{error.name}."):
            raise InputError(rule, f"{source}, which was not found", _REMEDY) from None
        raise BuilderFailed(name, error) from error


def _arguments(name: str, function: Callable[..., Any], folder: Path) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = {
        key
        for key, details in parameters.items()
        if details.default is details.empty and details.kind not in any_number
    }
    rule = f"the builder {name} must take no argument, or the folder"
    require(required <= {"folder"}, rule, ", ".join(sorted(required)), "write def build(folder):")
    return {"folder": folder} if "folder" in parameters else {}


def _checked(name: str, result: Any) -> Built:
    parts = result if isinstance(result, tuple) and len(result) in (2, 3) else (result,)
    loss, domain, features = (*parts, None, None)[:3]
    rule = f"the builder {name} must return a loss, or (loss, domain), or (loss, domain, features)"
    require(isinstance(loss, Loss), rule, kind_of(result), "for example gs.losses.Logistic(features, labels)")
    if not isinstance(domain, Domain | None):
        raise not_a_domain(rule, domain)
    rule = f"the builder {name} must return the loss of one agent"
    require(loss.m == 1, rule, f"{loss.m} agents", "leave out agents= and splits=")
    if features is None:
        return Built(loss, domain)
    rule = f"the builder {name} must return features as names of columns"
    require(isinstance(features, Iterable), rule, kind_of(features), "for example df.columns")
    return Built(loss, domain, feature_names(features))


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is neither ours nor the import system's."""
    ours = (__file__, importlib.__file__)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file not in ours and not file.startswith("<frozen importlib"):
            return trace
        trace = trace.tb_next
    return None
