"""A picture of costs against networks (extra `plot`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.plotting import COLOURS, label_sparsely, pyplot, tidy
from gradslide.experiments.reproduce.invariance.runs import ONE
from gradslide.experiments.reproduce.slopes import SlopeFit

_PALE = "#B8B8B8"
# Networks of so many agents are marked with their number.
_MANY = 2_000


@dataclass(frozen=True)
class Dot:
    """A run that reached the accuracy."""

    family: str
    rule: str
    m: int
    chi: float
    gradients: int
    rounds: int


def plot_growth(
    dots: Sequence[Dot], *, agents: int, gradients: SlopeFit | None, rounds: SlopeFit | None, title: str
) -> Any:
    """Gradients against chi, rounds against sqrt(chi). Diamonds: networks of more or fewer agents
    than `agents`.
    """
    plt = pyplot()

    figure, axes = plt.subplots(1, 2, figsize=(12, 5.8), layout="constrained")
    _draw(axes[0], dots, agents, lambda dot: (dot.chi, dot.gradients))
    _draw(axes[1], dots, agents, lambda dot: (dot.chi**0.5, dot.rounds))
    for dot in dots:
        if dot.m >= _MANY:
            place = (dot.chi**0.5, dot.rounds)
            axes[1].annotate(f"m = {dot.m:,}", place, (0, 7), textcoords="offset points", ha="center", fontsize="small")
    # One scale for both: a flat cloud in a frame of its own would look steep.
    heights = [count for dot in dots for count in (dot.gradients, dot.rounds)]
    for axis in axes:
        axis.set_ylim(min(heights, default=1) / 2, max(heights, default=1) * 3)
        label_sparsely(axis.yaxis)
    # Before the lines come: what dots are called goes below both panels, and what lines are called into each.
    handles, labels = axes[0].get_legend_handles_labels()
    _draw_line(axes[0], gradients, "all networks")
    _draw_line(axes[1], rounds, f"m = {agents:,}")
    axes[0].set(xlabel=r"$\chi = \lambda_{\max} / \lambda_2$", ylabel="gradients per agent")
    axes[1].set(xlabel=r"$\sqrt{\chi}$", ylabel="communication rounds")
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title)
    return figure


def _draw(axis: Any, dots: Sequence[Dot], agents: int, place: Callable[[Dot], tuple[float, float]]) -> None:
    def scatter(wanted: Sequence[Dot], **style: Any) -> None:
        if wanted:
            axis.scatter(*zip(*map(place, wanted), strict=True), edgecolors="white", linewidths=0.6, **style)

    axis.set(xscale="log", yscale="log")
    pale = [dot for dot in dots if dot.rule == ONE]
    scatter(pale, color=_PALE, s=30, label=f"{ONE} (m = {agents:,})", zorder=2)
    own = [dot for dot in dots if dot.rule != ONE]
    for index, family in enumerate(dict.fromkeys(dot.family for dot in own)):
        colour = COLOURS[index % len(COLOURS)]
        same = [dot for dot in own if dot.family == family and dot.m == agents]
        other = [dot for dot in own if dot.family == family and dot.m != agents]
        scatter(same, color=colour, s=55, label=family, zorder=4)
        span = f"{min(dot.m for dot in other):,} to {max(dot.m for dot in other):,}" if other else ""
        scatter(other, color=colour, s=60, marker="D", label=f"{family}, m = {span}", zorder=3)
    tidy(axis)


def _draw_line(axis: Any, line: SlopeFit | None, which: str) -> None:
    if line is None:
        return
    left, right = axis.get_xlim()
    x = np.geomspace(left, right, 100)
    label = f"{which}: slope {line.slope:z.3f}\n95 % interval {line.low:z.3f} to {line.high:z.3f}"
    (drawn,) = axis.plot(x, line.line(x), color="black", linewidth=1.4, label=label, zorder=5)
    axis.fill_between(x, *line.band(x), color="black", alpha=0.12, linewidth=0, zorder=1)
    axis.set_xlim(left, right)
    axis.legend(handles=[drawn], loc="upper left", frameon=False)
