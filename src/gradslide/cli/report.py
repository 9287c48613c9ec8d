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
        help="Where --live serves its page; elsewhere than on loopback a page needs the token in its address.",
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

    Everything is in it, data included; nothing is fetched when it is opened. Example: `gradslide
    report gradslide-results/misfire --open`.
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
    """The address of the live page, if one is wanted: by default any free port of loopback."""
    return "127.0.0.1:0" if live and live_at is None else live_at


@contextmanager
def live_page(address: str | None, name: str, title: str, kind: str = "run") -> "Iterator[LivePage | None]":
    """Serve a live page as long as the block lasts, if there is an address; the listener of the run."""
    if address is None:
        yield None
        return
    from gradslide.report.live import LivePage
    from gradslide.report.server import served

    shown = LivePage(name, title, kind=kind)
    with served(shown, address) as url:
        note(f"live page: {url} (the run goes on without it)")
        yield shown
