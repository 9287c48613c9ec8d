"""Figures of runs (extra `plot`)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from gradslide._support.errors import unknown_name
from gradslide._support.plotting import COLOURS, DASHES, pyplot, tidy

AXES = {
    "gradients": "gradients per agent",
    "rounds": "communication rounds",
    "operator_products": "products with A and its transpose",
    "seconds": "seconds",
    "samples": "samples per agent",
    "iteration": "outer iterations",
}


COUNTS = set(AXES) - {"seconds"}
# Histories up to this length show their records.
_FEW = 20
METRICS = {
    "disagreement": "disagreement max |x_i - mean|",
    "residual": "residual of the constraints",
    "gap": "certified gap",
}


class Columns(Protocol):
    """What was recorded along a run, by name: for example a `History`."""

    def to_dict(self) -> dict[str, list[Any]]:
        """Return one list per column."""
        ...


def _second_metric(histories: Iterable[Mapping[str, Sequence[Any]]]) -> str:
    """The metric that is shown beside the objective."""
    return next((name for name in METRICS if any(_has(columns, name) for columns in histories)), "disagreement")


def _has(columns: Mapping[str, Sequence[Any]], name: str) -> bool:
    return any(value is not None for value in columns[name])


def _numbers(column: Sequence[float | None]) -> list[float]:
    """The column with NaN for what was not measured, which leaves a gap in a line."""
    return [math.nan if value is None else value for value in column]


def plot_histories(
    histories: Mapping[str, Columns],
    *,
    against: Sequence[str] = ("gradients", "rounds"),
    optimum: float | None = None,
    title: str = "",
) -> Any:
    """Plot objective and disagreement (or residual, or gap) against each cost.

    Of the objective its error is shown if the optimum is known, else its certified gap if there is one.

    Parameters
    ----------
    histories : mapping of str to Columns
        What was recorded, by the name in the legend.
    against : sequence of str
        The costs.
    optimum : float, optional
        The optimal value.
    title : str
        The title of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    plt = pyplot()
    curves = {name: history.to_dict() for name, history in histories.items()}
    for columns in curves.values():
        for cost in against:
            if cost not in columns:
                raise unknown_name("what to plot against", cost, columns)
    below = _second_metric(curves.values())
    bounded = optimum is None and below != "gap" and all(_has(columns, "gap") for columns in curves.values())
    figure, axes = plt.subplots(
        2, len(against), figsize=(5.2 * len(against), 6.4), squeeze=False, sharey="row", layout="constrained"
    )
    for index, (name, columns) in enumerate(curves.items()):
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "linestyle": DASHES[index % len(DASHES)],
            "label": name or None,
            "marker": "o" if len(columns["iteration"]) <= _FEW else None,
            "markersize": 4,
        }
        # A loss without a value has no objective.
        objective = _numbers(columns["gap" if bounded else "objective"])
        if optimum is not None:
            objective = [max(f - optimum, 1e-16 * abs(optimum)) for f in objective]
        for column, cost in enumerate(against):
            axes[0, column].plot(columns[cost], objective, **style)
            axes[1, column].plot(columns[cost], _numbers(columns[below]), **style)
    for column, cost in enumerate(against):
        for row in range(2):
            axis = axes[row, column]
            # Exact sums leave no disagreement.
            has_positive = any(np.nanmax(line.get_ydata(), initial=0.0) > 0 for line in axis.lines)
            if (row == 1 or bounded or optimum is not None) and has_positive:
                axis.set_yscale("log")
            if cost in COUNTS:
                axis.xaxis.get_major_locator().set_params(integer=True)
            tidy(axis)
        axes[1, column].set_xlabel(AXES.get(cost, cost))
    at = " at the mean" if below == "disagreement" else ""
    if bounded:
        axes[0, 0].set_ylabel(f"{METRICS['gap']}{at}")
    else:
        axes[0, 0].set_ylabel("objective" if optimum is None else f"objective error{at}")
    axes[1, 0].set_ylabel(METRICS[below])
    if any(histories):
        axes[0, -1].legend(frameon=False)
    if title:
        figure.suptitle(title)
    return figure
