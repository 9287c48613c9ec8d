"""Figure 1: three networks of the paper's kind, with spectrum and diameter."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradslide._support.plotting import COLOURS, pyplot, tidy
from gradslide.experiments.reproduce.paper import networks, packaged
from gradslide.experiments.reproduce.report import Report
from gradslide.experiments.reproduce.runs import Bench
from gradslide.experiments.tables import Cell, Table, columns
from gradslide.graphs.display import draw_network
from gradslide.graphs.graph import Graph

_COLUMNS = columns("network", "seed", "maximum degree", "edges", "mean degree", "diameter", "l2", "lmax", "chi")


def reproduce(bench: Bench, spec: dict[str, Any] | None = None) -> Report:
    """The networks of Table 1; those of the first seed are drawn. spec: in the place of the
    packaged table1.toml.
    """
    spec = packaged("table1") if spec is None else spec
    seeds, agents = spec["seeds"], spec["agents"]
    graphs = {(net.name, net.seed): net.graph for net in networks(spec)}
    drawn = {name: graph for (name, seed), graph in graphs.items() if seed == seeds[0]}
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
        networks=drawn,
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
