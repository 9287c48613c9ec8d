"""What the commands share: exit codes, options, and how they print."""

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer

from gradslide._support.errors import InputError

# What was asked for was reached; a mistake of the user; stopped short of it.
OK, USER_ERROR, STOPPED_SHORT = 0, 1, 2

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where data files are. Default: $GRADSLIDE_DATA, else the user cache."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table; files and exit code only.")]


def show(renderable: Any) -> None:
    """Print a table."""
    _output().print(renderable)


def fits(renderable: Any) -> bool:
    """Whether a table is at most as wide as the terminal."""
    console = _output()
    # Without the second width, rich would cut the answer to the first.
    wide = console.options.update(max_width=10 * console.width)
    return bool(console.measure(renderable, options=wide).maximum <= console.width)


def _output() -> Any:
    from rich.console import Console

    console = Console()
    # Piped output has no width of its own: do not squeeze tables into 80 columns there.
    return console if console.is_terminal else Console(width=200)


def note(text: str) -> None:
    """Say something beside the results."""
    from rich.console import Console

    Console(stderr=True).print(text, style="dim", markup=False)


def require_peers() -> None:
    """Refuse where the extra is not installed."""
    if importlib.util.find_spec("cryptography") is None:
        remedy = "in a checkout of gradslide: pip install '.[peers]'"
        raise InputError("agents in processes of their own need the extra 'peers'", "no cryptography", remedy)
