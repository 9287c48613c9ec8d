"""Tables as TOML: what a spec may hold, and no more."""

import json
from collections.abc import Mapping
from typing import Any


def document(top: Mapping[str, Any]) -> str:
    """Plain values first, then tables, and lists of tables."""
    plain = {key: value for key, value in top.items() if not _is_table(value) and not _is_tables(value)}
    parts = [_lines(plain)]
    for key, value in top.items():
        if _is_table(value):
            parts.append(f"[{key}]\n{_lines(value)}")
        elif _is_tables(value):
            parts += [f"[[{key}]]\n{_lines(table)}" for table in value]
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "").replace("-", "").isalnum() else _text(key)


def _text(text: str) -> str:
    # TOML reads JSON's strings, but for one character that must be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case Mapping():
            return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            raise TypeError(f"no place in a spec for {value!r}")
