"""Figure 1: three networks of the paper's kind, with spectrum and diameter."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradslide.experiments.plots import COLOURS, draw_network, pyplot, tidy
from gradslide.experiments.reproduce.instance import network_of
from gradslide.experiments.reproduce.report import Cell, Report, Table
from gradslide.experiments.reproduce.runs import Bench
from gradslide.graph import Graph

# Maximum degree and edges, by the paper's names.
_KINDS = {"G1": (4, 150), "G2": (9, 235), "G3": (20, 640)}
_SEEDS = (1, 2, 3)
_COLUMNS = ("network", "seed", "maximum degree", "edges", "mean degree", "diameter", "l2", "lmax", "chi")


def reproduce(
    bench: Bench,
    kinds: Mapping[str, tuple[int, int]] = _KINDS,
    seeds: Sequence[int] = _SEEDS,
    agents: int = 100,
) -> Report:
    """The first seed is drawn. kinds: maximum degree and edges, by name."""
    graphs = {
        (name, seed): network_of(degree, edges, seed, agents)
        for name, (degree, edges) in kinds.items()
        for seed in seeds
    }
    drawn = {name: graphs[name, seeds[0]] for name in kinds}
    return Report(
        name="figure1",
        title="Figure 1: the three networks",
        facts={
            "data": "none: networks only",
            "agents": agents,
            "networks": f"Graph.random, seeds {', '.join(map(str, seeds))}; drawn: seed {seeds[0]}",
        },
        tables=[Table("Networks", _COLUMNS, [_row(name, seed, graph) for (name, seed), graph in graphs.items()])],
        notes=[
            "The paper's networks are not published: these have as many agents and the same maximum degrees.",
            "An Erdos-Renyi network with maximum degree 4 is practically never connected; Graph.random draws a "
            "connected one whose maximum degree is exactly the wanted one.",
        ],
        found=[{"network": name, "seed": seed, **graph.describe()} for (name, seed), graph in graphs.items()],
        figures={"figure1": lambda: plot_networks(drawn)},
    )


def _row(name: str, seed: int, graph: Graph) -> tuple[Cell, ...]:
    known = (name, seed, int(graph.degrees.max()), len(graph.edges), float(graph.degrees.mean()), graph.diameter)
    return (*known, graph.algebraic_connectivity, graph.laplacian_norm, graph.condition)


def plot_networks(graphs: Mapping[str, Graph]) -> Any:
    """Each network, nodes coloured by degree, and below it the eigenvalues of its Laplacian."""
    plt = pyplot()
    from matplotlib.colors import LogNorm

    figure, axes = plt.subplots(
        2,
        len(graphs),
        figsize=(4.6 * len(graphs), 7.4),
        squeeze=False,
        layout="constrained",
        sharey="row",
        height_ratios=(1.9, 1),
    )
    most = max(int(graph.degrees.max()) for graph in graphs.values())
    nodes = None
    for (above, below), (name, graph) in zip(axes.T, graphs.items(), strict=True):
        nodes = draw_network(above, graph)
        # Of all three, and so that small degrees differ too.
        nodes.set_norm(LogNorm(1, most))
        above.set_title(f"{name}: {len(graph.edges):,} edges, diameter {graph.diameter}")
        _draw_spectrum(below, graph)
    ticks = sorted({1, 2, *(int(graph.degrees.max()) for graph in graphs.values())})
    bar = figure.colorbar(nodes, ax=axes[0, :], label="degree", shrink=0.8, ticks=ticks, format="%d")
    bar.minorticks_off()
    axes[1, 0].set_ylabel("eigenvalue of the Laplacian")
    return figure


def _draw_spectrum(axis: Any, graph: Graph) -> None:
    values = graph.spectrum()[1:]
    axis.scatter(np.arange(2, graph.m + 1), values, s=9, color=COLOURS[0])
    axis.set_yscale("log")
    low, high = graph.algebraic_connectivity, graph.laplacian_norm
    axis.set_title(
        rf"$\lambda_2$ = {low:.3g}, $\lambda_{{\max}}$ = {high:.3g}, $\chi$ = {graph.condition:.3g}", fontsize="medium"
    )
    axis.set_xlabel("index, in ascending order")
    tidy(axis)
