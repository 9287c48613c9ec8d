"""Pictures of how gradients, rounds and samples grow with 1/eps."""

from typing import Any

import numpy as np

from gradslide._support.plotting import COLOURS, pyplot, tidy
from gradslide._support.types import Array
from gradslide.experiments.reproduce.complexity.fits import Found, obtained
from gradslide.experiments.reproduce.complexity.problem import Setting

_MARKERS = ("o", "s", "^", "D")
_GREY = "#777777"
_COSTS = {"gradients": "gradients per agent", "rounds": "communication rounds", "samples": "samples per agent"}


def plot_exact(found: Found) -> Any:
    """Gradients and rounds of PDS to an eps-solution; mu = 0 above, mu > 0 below."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(10.4, 8.0), layout="constrained")
    for row, setting in enumerate(found.spec.settings):
        for column, count in enumerate(("gradients", "rounds")):
            _exact_panel(axes[row, column], found, setting, count)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(found.spec.nets), frameon=False)
    figure.suptitle("PDS with the schedule of Theorem 1: what an eps-solution takes")
    return figure


def plot_sampled(found: Found) -> Any:
    """Samples of SPDS against the accuracy asked for and the error obtained."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(10.4, 4.6), layout="constrained")
    for axis, setting in zip(axes, found.spec.settings, strict=True):
        _sampled_panel(axis, found, setting)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("SPDS with the batch sizes of Theorem 2")
    return figure


def _exact_panel(axis: Any, found: Found, setting: Setting, count: str) -> None:
    x = 1 / np.array(found.spec.accuracies)
    runs = found.exact_of(setting)
    for index, (network, run) in enumerate(runs.items()):
        style = {"color": COLOURS[index % len(COLOURS)], "marker": _MARKERS[index % len(_MARKERS)], "markersize": 6}
        two, one = (_column(run["counts"][kind], count) for kind in ("two-sided", "one-sided"))
        axis.plot(x, two, **style, linewidth=1.6, label=f"{network}, two-sided")
        axis.plot(x, one, **style, linestyle="none", markerfacecolor="none", label=f"{network}, one-sided")
        bound = _column(run["bounds"]["one-sided"], count)
        axis.plot(x, bound, color=style["color"], linewidth=0.8, label=f"{network}, Theorem 1, one-sided")
    axis.set_xscale("log")
    lowest = np.min([_column(run["counts"]["one-sided"], count) for run in runs.values()], axis=0)
    if setting.mu > 0 and count == "gradients":
        run = next(iter(runs.values()))
        _reference_per_decade(axis, x, lowest, run["per_decade"])
        axis.axhline(run["Delta"], color=_GREY, linestyle=":", linewidth=1)
        _say(axis, x[-1], run["Delta"], f"Delta = {run['Delta']}", above=8)
    else:
        axis.set_yscale("log")
        _reference(axis, x, lowest, 1.0 if setting.mu == 0 and count == "rounds" else 0.5)
    _finish(axis, _COSTS[count], f"{count}, {setting.name}")


def _sampled_panel(axis: Any, found: Found, setting: Setting) -> None:
    spec = found.spec
    first = found.sampled_of(setting, spec.samplers[0])
    asked, samples = 1 / np.array(list(first)), np.array([run["samples"] for run in first.values()], dtype=float)
    axis.loglog(asked, samples, color=COLOURS[0], marker="o", label="eps asked for")
    for index, sampler in enumerate(spec.samplers):
        style = {"color": COLOURS[1], "marker": "s", "markersize": 8, "markerfacecolor": "none"}
        if index > 0:
            style = {"color": COLOURS[1 + index], "marker": "x", "linestyle": "none"}
        axis.loglog(_reached(found, setting, sampler), samples, **style, label=f"error obtained, {sampler}")
    if setting.mu == 0:
        bound = [run["samples_bound"] for run in first.values()]
        axis.loglog(asked, bound, color=COLOURS[0], linewidth=0.8, label="Theorem 2, eps asked for")
    _reference(axis, _reached(found, setting, spec.samplers[0]), samples, 2.0 if setting.mu == 0 else 1.0)
    _finish(axis, _COSTS["samples"], setting.name)


def _reached(found: Found, setting: Setting, sampler: str) -> Array:
    return np.array([1 / obtained(run) for run in found.sampled_of(setting, sampler).values()])


def _column(counts: list[dict[str, int] | None], name: str) -> Array:
    """What was not reached leaves a gap."""
    return np.array([np.nan if count is None else count[name] for count in counts], dtype=float)


def _reference(axis: Any, x: Array, y: Array, slope: float) -> None:
    """A grey line of the theory's slope below the last points."""
    if (ends := _ends(y)) is not None:
        start, end = ends
        at = np.array([x[start], x[end]])
        _grey(axis, at, 0.4 * y[end] * (at / x[end]) ** slope, f"slope {slope:g}")


def _reference_per_decade(axis: Any, x: Array, y: Array, per_decade: float) -> None:
    """The same where one axis is not logarithmic."""
    if (ends := _ends(y)) is not None:
        start, end = ends
        at = np.array([x[start], x[end]])
        _grey(axis, at, 0.85 * y[end] + per_decade * np.log10(at / x[end]), f"{per_decade:.3g}\nper decade")


def _ends(y: Array) -> tuple[int, int] | None:
    """The finer half of what was reached."""
    known = np.flatnonzero(np.isfinite(y))
    return (int(known[len(known) // 2]), int(known[-1])) if len(known) > 1 else None


def _grey(axis: Any, x: Array, y: Array, text: str) -> None:
    axis.plot(x, y, color=_GREY, linestyle="--", linewidth=1.2)
    _say(axis, x[1], y[1], text)


def _say(axis: Any, x: float, y: float, text: str, above: int = 0) -> None:
    """To the right of a point, where nothing else is."""
    axis.annotate(text, (x, y), xytext=(5, above), textcoords="offset points", color=_GREY, va="center")


def _finish(axis: Any, y: str, title: str) -> None:
    # Room for what is said beside the last points.
    low, high = axis.get_xlim()
    axis.set_xlim(low, high * (high / low) ** 0.2)
    axis.set_xlabel("1/eps, relative to the optimum")
    axis.set_ylabel(y)
    axis.set_title(title)
    tidy(axis)
