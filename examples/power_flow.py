"""DC optimal power flow: the cheapest dispatch of a power grid, and what power is worth at every bus.

For grid operators, market designers and planners: generators of different cost, demand at every bus, lines with limited
capacity. Behind a full line, power comes from a more expensive generator, and the price of each bus shows it.
`gs.LinearlyConstrained` finds the dispatch; its multipliers are the prices. The grid is the IEEE 14 bus test case with
two line limits added. A comparison with other solvers: examples/comparisons/power_flow.py.

    python examples/power_flow.py [PICTURE.png]
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import gradslide as gs

CASE = json.loads((Path(__file__).parent / "ieee14.json").read_text(encoding="utf-8"))
LOADS = np.array(CASE["loads"])  # MW
UNITS, LINES = ({name: np.array(column) for name, column in CASE[key].items()} for key in ("generators", "lines"))
LIMITS = {(1, 2): 120.0, (5, 6): 30.0}  # MW
PAIRS, BUSES = list(zip(LINES["from"].tolist(), LINES["to"].tolist(), strict=True)), np.arange(1, len(LOADS) + 1)


def flows_per_injection():
    """MW on each line for each MW that enters at a bus and leaves at all alike, by Kirchhoff's laws."""
    ends = 1.0 * (LINES["from"][:, None] == BUSES) - (LINES["to"][:, None] == BUSES)
    by_angle = ends / (LINES["reactance"] * LINES["tap"])[:, None]
    return by_angle @ np.linalg.pinv(ends.T @ by_angle)


def dispatch(limits):
    """The solution, the price at each bus and the flow on each line. x: MW of each generator."""
    feeds, flows, rows = 1.0 * (BUSES[:, None] == UNITS["bus"]), flows_per_injection(), [PAIRS.index(p) for p in limits]
    limited, most = flows[rows], np.array(list(limits.values()))
    A = np.vstack([np.ones(feeds.shape[1]), limited @ feeds])  # what is generated, and what it sends through the lines
    lower, upper = (np.r_[LOADS.sum(), limited @ LOADS + sign * most] for sign in (-1, 1))
    cost = gs.losses.Quadratic(np.diag(2 * UNITS["square"]), UNITS["linear"])
    problem = gs.LinearlyConstrained(cost, A, lower=lower, upper=upper, domain=gs.domains.Box(0.0, UNITS["most"]))
    solution = gs.solve(problem)
    return solution, -solution.dual[0] - limited.T @ solution.dual[1:], flows @ (feeds @ solution.mean - LOADS)


def draw(prices, flows):
    figure, axis = plt.subplots(figsize=(9.0, 5.4), layout="constrained")
    graph, places = nx.Graph(PAIRS), nx.kamada_kawai_layout(nx.Graph(PAIRS))
    full = {line: f"{most:g} MW" for line, most in LIMITS.items() if abs(flows[PAIRS.index(line)]) > 0.999 * most}
    widths, colours = 1 + abs(flows) / 12, ["#0072B2" if line in full else "0.7" for line in PAIRS]
    nx.draw_networkx_edges(graph, places, PAIRS, ax=axis, width=widths, edge_color=colours)
    nx.draw_networkx_edge_labels(graph, places, full, ax=axis, font_color="#0072B2", rotate=False)
    for shape, buses in (("s", UNITS["bus"]), ("o", np.setdiff1d(BUSES, UNITS["bus"]))):
        style = {"node_shape": shape, "node_size": 1400, "edgecolors": "black", "cmap": "Wistia"}
        style |= {"node_color": prices[buses - 1], "vmin": prices.min(), "vmax": prices.max()}
        nodes = nx.draw_networkx_nodes(graph, places, buses.tolist(), ax=axis, **style)
    nx.draw_networkx_labels(graph, places, {bus: f"{bus}\n{prices[bus - 1]:.1f}" for bus in graph}, 10, ax=axis)
    figure.colorbar(nodes, ax=axis, label="price of power, $/MWh", shrink=0.8, pad=0.01)
    axis.set_title("Price at each bus: squares generate, wide lines carry much, blue lines are full")
    axis.set_axis_off()
    return figure


def main(picture: Path) -> None:
    solution, prices, flows = dispatch(LIMITS)
    print(solution)
    print(f"without the limits: {dispatch({})[0].history[-1].objective:.1f} $/h, and one price for all")
    print("MW generated at bus:", dict(zip(UNITS["bus"].tolist(), solution.mean.round(1).tolist(), strict=True)))
    paid, earned = prices @ LOADS, prices[UNITS["bus"] - 1] @ solution.mean
    print(f"loads pay {paid:.1f} $/h, generators get {earned:.1f}, the full lines the other {paid - earned:.1f}")
    draw(prices, flows).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("power_flow.png"))
