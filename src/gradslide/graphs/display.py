"""Graphs as tables and drawings (drawings need the extra `plot`)."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from gradslide._support.errors import require
from gradslide._support.plotting import pyplot
from gradslide._support.types import Array

DRAWABLE = 2_000

# What `Graph.describe` has, in words.
_FACTS = {
    "m": "agents",
    "edges": "links",
    "degree_min": "least degree",
    "degree_mean": "mean degree",
    "degree_max": "largest degree",
    "diameter_bound": "diameter, at most",
    "lmax": "largest eigenvalue of the Laplacian",
    "l2": "second smallest eigenvalue",
    "condition": "their ratio",
}


class Drawable(Protocol):
    """The parts of a graph that a drawing uses."""

    @property
    def m(self) -> int: ...

    @property
    def edges(self) -> Array: ...

    @property
    def degrees(self) -> Array: ...


def in_words(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Name the facts of a graph in words; leave out a bound where the exact value is known."""
    known = facts.get("diameter") is not None
    shown = {name: value for name, value in facts.items() if not (known and name == "diameter_bound")}
    return {_FACTS.get(name, name.replace("_", " ")): value for name, value in shown.items()}


def plot_graph(graph: Drawable, values: Any = None, *, label: str = "", title: str = "") -> Any:
    """Plot the network; the color of a node is its degree, or its entry of `values`."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(7.2, 6.0), layout="constrained")
    nodes = draw_network(axis, graph, values)
    figure.colorbar(nodes, ax=axis, label=label or ("degree" if values is None else "value"), shrink=0.8)
    axis.set_title(title or repr(graph))
    return figure


def layout(graph: Drawable) -> tuple[Any, dict[int, Any]]:
    """Return the networkx graph and a fixed position for each agent."""
    rule = f"a drawing can show {DRAWABLE:,} agents"
    require(graph.m <= DRAWABLE, rule, f"{graph.m:,}", "draw a smaller network")
    import networkx as nx

    drawn = nx.Graph()
    drawn.add_nodes_from(range(graph.m))
    drawn.add_edges_from(graph.edges.tolist())
    is_cycle = graph.degrees.max(initial=0) <= 2
    return drawn, nx.circular_layout(drawn) if is_cycle else nx.spring_layout(drawn, seed=0, iterations=100)


def draw_network(axis: Any, graph: Drawable, values: Any = None) -> Any:
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
