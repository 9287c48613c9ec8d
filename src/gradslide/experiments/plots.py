"""Pictures of runs and networks (extra `plot`)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradslide.errors import InputError, require, unknown_name
from gradslide.history import History, Record

if TYPE_CHECKING:
    from gradslide.graph import Graph

# Okabe and Ito's palette, readable without colour vision; lines also differ in dash.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DRAWABLE = 2_000
_DASHES = ("-", "--", "-.", ":")
AXES = {
    "gradients": "gradients per agent",
    "rounds": "communication rounds",
    "operator_products": "products with A and its transpose",
    "seconds": "seconds",
    "samples": "samples per agent",
    "iteration": "outer iterations",
}


METRICS = {
    "disagreement": "disagreement max |x_i - mean|",
    "residual": "residual of the constraints",
    "gap": "certified gap",
}


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


def _second_metric(histories: Iterable[History]) -> str:
    """What there is to be seen beside the objective."""
    return next((name for name in METRICS if any(_has(history, name) for history in histories)), "disagreement")


def _has(history: History, name: str) -> bool:
    return any(getattr(record, name) is not None for record in history)


def _numbers(column: Sequence[float | None]) -> list[float]:
    """What was not measured leaves a gap in a line."""
    return [math.nan if value is None else value for value in column]


def plot_histories(
    histories: Mapping[str, History],
    *,
    against: Sequence[str] = ("gradients", "rounds"),
    optimum: float | None = None,
    title: str = "",
) -> Any:
    """Objective and disagreement (or residual, or gap) against each cost. Of the objective its error, where the optimum
    is known, or else its certified gap, where there is one."""
    plt = pyplot()
    for cost in against:
        if cost not in Record.__dataclass_fields__:
            raise unknown_name("what to plot against", cost, Record.__dataclass_fields__)
    below = _second_metric(histories.values())
    bounded = optimum is None and below != "gap" and all(_has(history, "gap") for history in histories.values())
    figure, axes = plt.subplots(
        2, len(against), figsize=(5.2 * len(against), 6.4), squeeze=False, sharey="row", layout="constrained"
    )
    for index, (name, history) in enumerate(histories.items()):
        columns = history.to_dict()
        style = {
            "color": COLOURS[index % len(COLOURS)],
            "linestyle": _DASHES[index % len(_DASHES)],
            "label": name or None,
        }
        # A loss without a value has no objective.
        objective = _numbers(columns["gap" if bounded else "objective"])
        if optimum is not None:
            objective = [max(f - optimum, 1e-16 * abs(optimum)) for f in objective]
        for column, cost in enumerate(against):
            axes[0, column].plot(columns[cost], objective, **style)
            axes[1, column].plot(columns[cost], columns[below], **style)
    for column, cost in enumerate(against):
        for row in range(2):
            axis = axes[row, column]
            if row == 1 or bounded or optimum is not None:
                axis.set_yscale("log")
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


def plot_graph(graph: "Graph", values: Any = None, *, label: str = "", title: str = "") -> Any:
    """The network, nodes coloured by degree, or by one value for each."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7.2, 6.0), layout="constrained")
    nodes = draw_network(axis, graph, values)
    figure.colorbar(nodes, ax=axis, label=label or ("degree" if values is None else "value"), shrink=0.8)
    axis.set_title(title or repr(graph))
    return figure


def layout(graph: "Graph") -> tuple[Any, dict[int, Any]]:
    """The network as networkx has it, and a place in the plane for each agent, always the same."""
    rule = f"a drawing can show {DRAWABLE:,} agents"
    require(graph.m <= DRAWABLE, rule, f"{graph.m:,}", "draw a smaller network")
    import networkx as nx

    drawn = nx.Graph()
    drawn.add_nodes_from(range(graph.m))
    drawn.add_edges_from(graph.edges.tolist())
    is_cycle = graph.degrees.max(initial=0) <= 2
    return drawn, nx.circular_layout(drawn) if is_cycle else nx.spring_layout(drawn, seed=0, iterations=100)


def draw_network(axis: Any, graph: "Graph", values: Any = None) -> Any:
    """The network in one panel, nodes coloured by degree or by these values; what a colour bar is made from."""
    import networkx as nx

    drawn, positions = layout(graph)
    colours = graph.degrees if values is None else np.asarray(values)
    rule = "a drawing needs one value for each agent"
    require(np.shape(colours) == (graph.m,), rule, f"shape {np.shape(colours)}", f"give {graph.m} numbers")
    # Many edges would hide the nodes.
    is_dense = len(graph.edges) > 4 * graph.m
    nx.draw_networkx_edges(drawn, positions, ax=axis, alpha=0.15 if is_dense else 0.35, width=0.8)
    nodes = nx.draw_networkx_nodes(
        drawn,
        positions,
        ax=axis,
        node_size=max(8.0, min(120.0, 6000 / graph.m)),
        node_color=colours,
        cmap="viridis",
        edgecolors="white",
        linewidths=0.4,
    )
    axis.set_axis_off()
    return nodes


def label_sparsely(scale: Any) -> None:
    """1, 2, 5, 10, 20, ...: readable where an axis spans less than a decade, too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    scale.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
    scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    scale.set_minor_formatter(NullFormatter())


def tidy(axis: Any) -> None:
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
