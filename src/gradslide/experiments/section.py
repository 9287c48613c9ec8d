"""A table of a spec file, read key by key; unknown keys are errors."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gradslide._support.errors import InputError, nearest, unknown_name

T = TypeVar("T")
_MISSING = object()


class Section:
    """Keys and values of one table. `finish` raises an error for keys that were not read."""

    def __init__(self, name: str, table: Any) -> None:
        if not isinstance(table, Mapping):
            raise InputError(f"[{name}] must be a table", repr(table), "write it as key = value lines under its name")
        self.name = name
        self._table = dict(table)
        self._known: set[str] = set()

    def take(self, key: str, kind: type[T], default: Any = _MISSING) -> T:
        """The value of a key, checked to be of that kind (an int will do for a float)."""
        self._known.add(key)
        if key not in self._table:
            if default is _MISSING:
                raise InputError(f"[{self.name}] needs {key!r}", "none", self.remedy_without(key, f"add {key}"))
            return default
        value = self._table.pop(key)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InputError(f"{key} in [{self.name}] must be {_in_words(kind)}", repr(value), "correct the spec")
        return value

    def remedy_without(self, key: str, otherwise: str) -> str:
        """The misspelt name under which a missing key may be there; otherwise the other remedy."""
        close = nearest(key, (other for other in self._table if other not in self._known))
        return f"is {close!r} meant to be it?" if close else otherwise

    def optional(self, key: str, kind: type[T]) -> T | None:
        """The same, or None where the key is missing."""
        self._known.add(key)
        return self.take(key, kind) if key in self._table else None

    def peek(self, key: str) -> Any:
        return self._table.get(key)

    def take_any(self, key: str, default: Any = None) -> Any:
        self._known.add(key)
        return self._table.pop(key, default)

    def rest(self) -> dict[str, Any]:
        """The keys that were not read yet, with their values."""
        return self._table

    def section(self, key: str, default: Any = _MISSING) -> "Section":
        return Section(f"{self.name}.{key}", self.take(key, dict, default))

    def construct(self, what: str, makers: Mapping[str, Callable[..., T]], key: str = "name", **given: Any) -> T:
        """Call the maker that `key` names with the rest of the table as its arguments."""
        name = self.take(key, str)
        if name not in makers:
            raise unknown_name(f"{key} in [{self.name}], a {what},", name, makers)
        parameters = inspect.signature(makers[name]).parameters
        self._known.update(parameter for parameter in parameters if parameter not in given)
        self.finish(of=f" for {name}")
        arguments = {**given, **self._table}
        required = (parameter for parameter, details in parameters.items() if details.default is details.empty)
        missing = [parameter for parameter in required if parameter not in arguments]
        if missing:
            raise InputError(f"[{self.name}] needs {', '.join(missing)} for {name}", "none", f"add {missing[0]} = ...")
        for other in given:
            if other not in parameters:
                raise InputError(f"{name} in [{self.name}] takes no {other}", "one", "leave it out, or choose another")
        self._table = {}
        try:
            return makers[name](**arguments)
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError(
                f"[{self.name}] must hold values of the right types for {name}",
                str(error),
                "correct the spec",
            ) from error

    def finish(self, of: str = "") -> None:
        for key in self._table:
            if key not in self._known:
                raise unknown_name(f"a key of [{self.name}]{of}", key, self._known)


def _in_words(kind: type) -> str:
    return {
        str: "a string",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        dict: "a table",
        list: "a list",
    }[kind]
