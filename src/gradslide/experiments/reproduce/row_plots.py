"""Pictures of the paper's tables (extra `plot`)."""

from collections.abc import Mapping
from typing import Any

from gradslide._support.plotting import COLOURS, label_sparsely, pyplot, tidy
from gradslide.experiments.reproduce.paper import Published, Row
from gradslide.experiments.tables import Cell

_MARKERS = "osD^v"


def plot_rows(
    papers: Mapping[Row, Published],
    medians: Mapping[Row, Mapping[str, Mapping[str, Cell]]],
    titles: Mapping[str, str],
    work: str = "gradients",
) -> Any:
    """Gradients (or samples) and rounds of every row: the paper's and each block's, on logarithmic
    axes.
    """
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), sharey=True, layout="constrained")
    rows = list(papers)
    for axis, cost in zip(axes, (work, "rounds"), strict=True):
        published = [papers[row].work if cost == work else papers[row].rounds for row in rows]
        axis.scatter(published, range(len(rows)), marker="X", s=90, color="black", label="paper", zorder=3)
        for index, (name, title) in enumerate(titles.items()):
            points = [
                (found, y) for y, row in enumerate(rows) if (found := medians[row].get(name, {}).get(cost)) is not None
            ]
            style = {"marker": _MARKERS[index % len(_MARKERS)], "color": COLOURS[index % len(COLOURS)]}
            axis.scatter(
                *zip(*points, strict=True) if points else ([], []), s=60, alpha=0.85, **style, label=f"{name} {title}"
            )
        axis.set(xscale="log", xlabel=f"{work} per agent" if cost == work else "communication rounds")
        label_sparsely(axis.xaxis)
        tidy(axis)
    axes[0].set_yticks(range(len(rows)), [f"{network}, loss {target:g}" for network, target in rows])
    axes[0].invert_yaxis()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, fontsize="small")
    return figure
