"""Dispatch the generators of a power grid at the least cost, and price power at every bus: DC optimal power flow.

For grid operators and market designers: the cheapest generation so that power in = power out at every bus (rows with
lower = upper) and no line carries more than it may (lower < upper), in one `gs.LinearlyConstrained`. Its multipliers
are the locational prices: what one MWh more costs at each bus. Prints how PDS and Condat and Vu's method compare with
Clarabel's exact answer, and draws the grid.

    python examples/comparisons/power_flow.py [PICTURE.png]
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import cvxpy as cp
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import gradslide as gs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

CASE = json.loads((Path(__file__).parents[1] / "ieee14.json").read_text(encoding="utf-8"))
UNIT, LINE = CASE["generators"], CASE["lines"]
BASE, LOADS, AT, MOST = CASE["base"], np.array(CASE["loads"]), np.array(UNIT["bus"]), np.array(UNIT["most"])
SQUARE, LINEAR = np.array(UNIT["square"]), np.array(UNIT["linear"])
FROM, TO, REACTANCE, TAP = (np.array(LINE[name]) for name in ("from", "to", "reactance", "tap"))
# The case has no line limits. These are ours, so that prices differ from bus to bus: MW.
LIMITS = {(1, 2): 120.0, (5, 6): 30.0}
LINES, BUSES, UNITS = list(zip(FROM.tolist(), TO.tolist(), strict=True)), len(LOADS), len(AT)
COST_ERROR, VIOLATION_MW, PRICE_ERROR, PRODUCTS = 1e-4, 0.01, 0.05, 20_000
STAGE, RATIOS = 20, np.geomspace(3, 300, 5)


class Grid:
    """x: generation in units of BASE, then angles at buses 2, 3, ... in units of the mean reactance, so that a unit of
    either moves about a unit of power. The cost is in units of BASE $/h, so that multipliers are in $/MWh."""

    def __init__(self, limits):
        names, reactance = np.arange(1, BUSES + 1), REACTANCE * TAP
        incidence = (FROM[:, None] == names).astype(float) - (TO[:, None] == names)
        self.flows = np.hstack(
            [np.zeros((len(LINES), UNITS)), incidence[:, 1:] * (reactance.mean() / reactance)[:, None]]
        )
        feeds = np.hstack([names[:, None] == AT, np.zeros((BUSES, BUSES - 1))])
        self.A = np.vstack([feeds - incidence.T @ self.flows, self.flows[[LINES.index(line) for line in limits]]])
        most = np.array(list(limits.values()))
        self.lower, self.upper = np.r_[LOADS, -most] / BASE, np.r_[LOADS, most] / BASE
        self.Q, self.c = np.diag(np.r_[2 * BASE * SQUARE, 0 * names[1:]]), np.r_[LINEAR, 0.0 * names[1:]]

    def problem(self, scaling=None):
        free = np.full(BUSES - 1, np.inf)
        domain = gs.domains.Box(np.r_[np.zeros(UNITS), -free], np.r_[MOST / BASE, free])
        loss, bounds = gs.losses.Quadratic(self.Q, self.c), {"lower": self.lower, "upper": self.upper}
        return gs.LinearlyConstrained(loss, self.A, domain=domain, scaling=scaling, **bounds)

    def exact(self):
        """x, z and the cost by Clarabel; z as ours: cost + <z, A x - b>."""
        x = cp.Variable(len(self.c))
        cost, flows = cp.quad_form(x, self.Q) / 2 + self.c @ x, self.A[BUSES:] @ x
        rules = [self.A[:BUSES] @ x == self.lower[:BUSES], flows <= self.upper[BUSES:], flows >= self.lower[BUSES:]]
        cp.Problem(cp.Minimize(cost), [*rules, x[:UNITS] >= 0, x[:UNITS] <= MOST / BASE]).solve(solver="CLARABEL")
        balance, up, down = (rule.dual_value for rule in rules)
        return SimpleNamespace(x=x.value, z=np.r_[balance, up - down], cost=float(cost.value))

    def violation(self, x):
        """The largest, in MW."""
        return BASE * float(np.maximum(self.lower - self.A @ x, self.A @ x - self.upper).max())


def run(problem, method, optimum, stage=None):
    """Until cost and violation of the last x are right or products run out. stage: outer iterations of a new start."""
    targets = {"objective": gs.Relative(COST_ERROR, to=optimum), "residual": VIOLATION_MW / BASE}
    solution, way, spent = None, [], np.zeros(3)
    while solution is None or solution.status is gs.Status.ITERATION_LIMIT:
        stop = gs.Stop(**targets, operator_products=PRODUCTS - int(spent[1]), iterations=stage)
        every = 10 if isinstance(method, gs.CondatVu) else 1
        how = {"method": method, "warm_start": solution, "output": "last", "record_every": every}
        solution = gs.solve(problem, stop=stop, **how)
        records = [(r.gradients, r.operator_products, r.seconds, BASE * r.residual) for r in solution.history]
        way.append(records + np.r_[spent, 0])
        spent = way[-1][-1, :3]
    return SimpleNamespace(x=solution.mean, z=solution.dual, solution=solution, spent=spent, way=np.vstack(way))


def draw_grid(axis, grid, found):
    """Buses coloured by price, generators square; the darker a line, the more it carries."""
    graph, prices, flows = nx.Graph(LINES), -found.z[:BUSES], BASE * abs(grid.flows @ found.x)
    places = nx.kamada_kawai_layout(graph)
    full = {line: f"full: {most:g} MW" for line, most in LIMITS.items() if flows[LINES.index(line)] > 0.99 * most}
    nx.draw_networkx_edges(graph, places, list(full), ax=axis, width=14, edge_color=COLOURS[1])
    shades = {"edge_color": flows, "edge_cmap": plt.cm.Greys, "edge_vmin": -30}
    nx.draw_networkx_edges(graph, places, LINES, ax=axis, width=4, **shades)
    nx.draw_networkx_edge_labels(graph, places, full, ax=axis, bbox={"facecolor": "white", "edgecolor": COLOURS[1]})
    for shape, buses in (("s", AT), ("o", np.setdiff1d(range(1, BUSES + 1), AT))):
        colours = {"node_color": prices[buses - 1], "vmin": prices.min(), "vmax": prices.max(), "cmap": "Wistia"}
        nodes = nx.draw_networkx_nodes(
            graph, places, buses.tolist(), ax=axis, node_shape=shape, node_size=1300, **colours
        )
    nx.draw_networkx_labels(graph, places, {bus: f"bus {bus}\n{prices[bus - 1]:.1f}" for bus in graph}, 9, ax=axis)
    axis.figure.colorbar(nodes, ax=axis, label="price of power, $/MWh", location="bottom", shrink=0.7)
    axis.set_title("IEEE 14 bus grid: price at every bus; squares generate, dark lines carry much", fontsize=13)
    axis.set_axis_off()


def draw(grid, found, runs):
    figure, axes = plt.subplot_mosaic("aab;aac", figsize=(13.0, 7.5), layout="constrained")
    draw_grid(axes["a"], grid, found)
    for axis, column, label in (("b", 0, "gradients"), ("c", 1, "products with A and its transpose")):
        for colour, (name, found) in zip(COLOURS, runs.items(), strict=False):
            style = "-" if "PDS" in name else "--"
            axes[axis].loglog(found.way[:, column], found.way[:, 3], style, color=colour, label=name)
        axes[axis].set(xlabel=label, ylabel="violation, MW")
        axes[axis].grid(alpha=0.3)
        axes[axis].spines[["top", "right"]].set_visible(False)
    axes["c"].legend(frameon=False, fontsize=8)
    return figure


def main(picture: Path) -> None:
    grid = Grid(LIMITS)
    exact = grid.exact()
    prices, stages, everything = -exact.z[:BUSES], f"PDS, R of the theorem, stages of {STAGE}", {}
    for scaling in ("", "rows scaled"):
        problem = grid.problem(scaling[:4] or None)
        U, V = problem.distances(exact.x, exact.z)
        R = gs.guarantees.saddle_R(U=U, V=V)
        tuned = [run(problem, gs.CondatVu(ratio=ratio), exact.cost) for ratio in RATIOS]
        runs = {
            "PDS, default": run(problem, gs.PDS(), exact.cost),
            "PDS, R of the theorem": run(problem, gs.PDS(R=R), exact.cost),
            stages: run(problem, gs.PDS(R=R), exact.cost, stage=STAGE),
            "Condat-Vu, default": run(problem, gs.CondatVu(), exact.cost),
            "Condat-Vu, best ratio": min(tuned, key=lambda found: found.spent[0]),
        }
        everything |= {f"{name:38}{scaling:11}": found for name, found in runs.items()}

    print(f"Clarabel: {BASE * exact.cost:.2f} $/h, prices from {prices.min():.2f} to {prices.max():.2f} $/MWh")
    print(f"{'errors of':49}{'grads':>7}{'prods':>8}{'sec':>7}{'cost':>10}{'MW':>9}{'$/MWh':>9}")
    right = {}
    for name, found in everything.items():
        cost, price = found.solution.history[-1].objective / exact.cost - 1, abs(found.z - exact.z)[:BUSES].max()
        gradients, products, seconds = found.spent
        print(
            f"{name}{gradients:7.0f}{products:8,.0f}{seconds:7.2f}{cost:10.1e}{grid.violation(found.x):9.4f}{price:9.4f}"
            f"{'' if products < PRODUCTS else '  stopped'}"
        )
        if products < PRODUCTS and price < PRICE_ERROR:
            right[" ".join(name.split())] = found.spent
    for index, word in enumerate(("fewest gradients", "fewest products", "least time")):
        winner = min(right, key=lambda name: right[name][index])
        print(f"{word} for prices right to {PRICE_ERROR} $/MWh: {winner}")
    draw(grid, runs[stages], runs).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("power_flow.png"))
