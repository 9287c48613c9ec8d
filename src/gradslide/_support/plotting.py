"""Common parts of figures (extra `plot`): matplotlib, colors, axes."""

from typing import Any

from gradslide._support.errors import InputError

# Okabe and Ito's palette, readable without colour vision; lines also differ in dash.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")


def pyplot() -> Any:
    """Return matplotlib.pyplot with the user's backend, so that figures show in notebooks."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise InputError(
            "plots need matplotlib", "none installed", "in a checkout of gradslide: pip install '.[plot]'"
        ) from None
    return plt


def shown_once(figure: Any) -> Any:
    """Return the figure, closed, so that a notebook does not show it twice."""
    if "inline" in pyplot().get_backend():
        pyplot().close(figure)
    return figure


def label_sparsely(scale: Any) -> None:
    """Label 1, 2, 5, 10, 20, ...: readable also where an axis spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    scale.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    scale.set_minor_formatter(NullFormatter())


def tidy(axis: Any) -> None:
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
