"""The command `report`, and the options of live pages. Arguments only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradslide.cli.shared import note

if TYPE_CHECKING:
    from gradslide.report.live import LivePage

PAGE = "report.html"

Live = Annotated[bool, typer.Option("--live", help="Serve a page on this machine that shows the run as it goes on.")]
LiveAt = Annotated[
    str | None,
    typer.Option(
        "--live-at",
        metavar="HOST:PORT",
        help="Where --live serves its page; elsewhere than on loopback only who has its token sees it.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the program's."""
    app.command()(report)


def report(
    folder: Annotated[Path, typer.Argument(help="A folder of results, or a solution that was saved (.npz).")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help=f"The page. Default: {PAGE} in the folder.", show_default=False)
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Make one page of a run, a comparison or a reproduction, to look at and to pass on.

    Everything is in it, data included; nothing is fetched when it is opened. Example: `gradslide report
    gradslide-results/misfire --open`.
    """
    from gradslide._support import storage
    from gradslide.experiments.files import finite
    from gradslide.report.folder import content_of
    from gradslide.report.page import page

    content = finite(content_of(folder))
    target = out or (folder / PAGE if folder.is_dir() else folder.with_suffix(".html"))
    storage.require_writable(target.parent)
    written = storage.write_atomically(target, page(content).encode())
    print(f"written:\n  {written}")
    if open_:
        typer.launch(written.absolute().as_uri())


def live_address(live: bool, live_at: str | None) -> str | None:
    """Where a page was asked for, if one was: any free port of loopback, unless something else was said."""
    return "127.0.0.1:0" if live and live_at is None else live_at


@contextmanager
def live_page(address: str | None, name: str, title: str, kind: str = "run") -> "Iterator[LivePage | None]":
    """What a run is to tell its records to, as long as the block lasts, if a page was asked for."""
    if address is None:
        yield None
        return
    from gradslide.report.live import LivePage
    from gradslide.report.server import served

    shown = LivePage(name, title, kind=kind)
    with served(shown, address) as url:
        note(f"live page: {url} (the run goes on without it)")
        yield shown
