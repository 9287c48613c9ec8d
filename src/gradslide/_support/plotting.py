"""What all figures share (extra `plot`): matplotlib, where it is installed, colours, axes."""

from typing import Any

from gradslide._support.errors import InputError

# Okabe and Ito's palette, readable without colour vision; lines also differ in dash.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")


def pyplot() -> Any:
    """matplotlib.pyplot, with the backend that the user has: figures show in notebooks."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise InputError("plots need matplotlib", "none installed", "pip install 'gradslide[plot]'") from None
    return plt


def shown_once(figure: Any) -> Any:
    """The figure. A notebook shows what a cell gives; one that is still open it would show again when the cell ends."""
    if "inline" in pyplot().get_backend():
        pyplot().close(figure)
    return figure


def label_sparsely(scale: Any) -> None:
    """1, 2, 5, 10, 20, ...: readable where an axis spans less than a decade, too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    scale.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    scale.set_minor_formatter(NullFormatter())


def tidy(axis: Any) -> None:
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
