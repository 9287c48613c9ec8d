"""Pictures of a comparison (extra `plot`)."""

from collections.abc import Sequence
from typing import Any

from gradslide._support.plotting import COLOURS, label_sparsely, pyplot, tidy
from gradslide.experiments.compare.summary import Block, Line

_MARKERS = "osD^vP*X<>hd"
_DASHES = ("-", "--", ":")


def plot_frontier(block: Block) -> Any:
    """Gradients against rounds to each accuracy: nearer to the lower left corner is better in both."""
    plt = pyplot()
    count = len(block.accuracies)
    figure, axes = plt.subplots(1, count, figsize=(4.6 * count, 4.8), squeeze=False, layout="constrained")
    styles = _styles(block.lines)
    for index, (axis, accuracy) in enumerate(zip(axes[0], block.accuracies, strict=True)):
        for line in block.lines:
            if (spent := line.reached[index]) is None:
                continue
            colour, marker = styles[line.method]
            face = colour if line.is_best or line.is_ours else "none"
            axis.scatter(
                max(spent.work, 0.5), max(spent.rounds, 0.5), s=70, marker=marker, facecolor=face, edgecolor=colour
            )
        axis.set(xscale="log", yscale="log", xlabel="gradients per agent", title=f"to {accuracy:g}")
        for scale in (axis.xaxis, axis.yaxis):
            label_sparsely(scale)
        tidy(axis)
    axes[0, 0].set_ylabel("communication rounds")
    shown = {line.method for line in block.lines if line.accuracies_reached}
    handles = [
        plt.Line2D([], [], linestyle="", marker=marker, color=colour, label=method)
        for method, (colour, marker) in styles.items()
        if method in shown
    ]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize="small")
    figure.suptitle(f"{block.title}\nhollow: default step; filled: ours, or the best step of the grid")
    return figure


def plot_curves(block: Block) -> Any:
    """Error and disagreement against gradients and rounds, every method at its best."""
    plt = pyplot()
    shown = {line.method: line for line in block.lines if line.curve.get("error")}
    styles = _styles(block.lines)
    figure, axes = plt.subplots(2, 2, figsize=(10.4, 6.8), sharey="row", sharex="col", layout="constrained")
    for line in shown.values():
        colour, dash = styles[line.method][0], _DASHES[list(styles).index(line.method) // len(COLOURS) % len(_DASHES)]
        style = {"color": colour, "linestyle": dash, "linewidth": 2.4 if line.is_ours else 1.2, "label": line.label}
        exchanges = [sum(pair) for pair in zip(line.curve["rounds"], line.curve["control_rounds"], strict=True)]
        for column, spent in enumerate((line.curve["gradients"], exchanges)):
            # Methods that sample take no gradients.
            for row, metric in enumerate(("error", "disagreement") if any(spent) else ()):
                axes[row, column].plot(spent, [max(value, 1e-16) for value in line.curve[metric]], **style)
    for row, label in enumerate(("relative error at the mean", "disagreement / |x*|")):
        axes[row, 0].set_ylabel(label)
    for column, label in enumerate(("gradients per agent", "communication rounds")):
        axes[1, column].set_xlabel(label)
        for row in range(2):
            axes[row, column].set(yscale="log", xscale="log")
            tidy(axes[row, column])
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, fontsize="small")
    figure.suptitle(block.title)
    return figure


def _styles(lines: Sequence[Line]) -> dict[str, tuple[str, str]]:
    methods = list(dict.fromkeys(line.method for line in lines))
    return {name: (COLOURS[i % len(COLOURS)], _MARKERS[i % len(_MARKERS)]) for i, name in enumerate(methods)}
