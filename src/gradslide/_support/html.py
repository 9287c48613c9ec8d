"""HTML tables for notebooks."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_LEFT = ' style="text-align: left"'


def facts_html(title: str, facts: Mapping[str, Any]) -> str:
    """Return a table of names and values."""
    rows = (f"<tr><th{_LEFT}>{_cell(name)}</th><td{_LEFT}>{_cell(value)}</td></tr>" for name, value in facts.items())
    return _table(title, rows)


def rows_html(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a header row."""
    return _table(title, [_row("th", columns), *(_row("td", row) for row in rows)])


def _row(tag: str, cells: Sequence[Any]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in cells) + "</tr>"


def _table(title: str, rows: Iterable[str]) -> str:
    return f"<table><caption{_LEFT}>{escape(title)}</caption>{''.join(rows)}</table>"


def _cell(value: Any) -> str:
    return escape(f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value))
