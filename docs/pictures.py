"""Draws the pictures of docs/concepts.md into docs/img. Numbers that the page repeats are printed.

python docs/pictures.py [NAME ...]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

import gradslide as gs

# Okabe and Ito's palette, readable without colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FOLDER = Path(__file__).parent / "img"
BLUE, RED, GREEN, PINK, ORANGE, SKY, BLACK = COLOURS
GREY = "#888888"
STYLE = {"font.size": 11, "axes.titlesize": 12, "axes.titlelocation": "left"}


def panels(count: int, width: float, height: float, **options: object) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(1, count, figsize=(width, height), squeeze=False, layout="constrained", **options)
    return figure, list(axes[0])


def tidy(axis: Axes) -> None:
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def blank(axis: Axes, width: float, height: float) -> None:
    """A canvas without scales, on which a circle is round."""
    axis.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axis.set_axis_off()


def agent(axis: Axes, x: float, y: float, text: str, colour: str = BLUE, radius: float = 0.36) -> None:
    axis.add_patch(Circle((x, y), radius, facecolor="white", edgecolor=colour, linewidth=2, zorder=3))
    axis.text(x, y, text, ha="center", va="center", zorder=4)


def rows_of_data(axis: Axes, x: float, y: float) -> None:
    for row in range(3):
        corner = (x - 0.21, y - 0.17 + 0.13 * row)
        axis.add_patch(FancyBboxPatch(corner, 0.42, 0.07, boxstyle="round,pad=0.01", color=ORANGE, zorder=5))


# What a network without a centre is


def network() -> Figure:
    figure, (left, right) = panels(2, 9.6, 3.6)
    places = [(1.3, 3.3), (4.0, 3.5), (5.3, 2.0), (3.8, 0.6), (1.3, 0.9)]
    outside = [(-0.75, 0.0), (0.75, 0.0), (0.75, 0.0), (0.75, 0.0), (-0.75, 0.0)]
    for axis in (left, right):
        blank(axis, 6.5, 4.0)
    left.set_title("With a centre: everything goes to one place")
    arrow = {"arrowstyle": "->", "color": GREY, "linewidth": 1.6, "shrinkA": 17, "shrinkB": 36}
    for x, y in places:
        left.annotate("", (3.1, 2.05), (x, y), arrowprops=arrow)
        agent(left, x, y, "", GREY)
    server = FancyBboxPatch(
        (2.5, 1.6), 1.2, 0.9, boxstyle="round,pad=0.05", facecolor="white", edgecolor=GREY, linewidth=2
    )
    left.add_patch(server)
    left.text(3.1, 2.32, "server", ha="center", va="center")
    for shift in (-0.3, 0.3):
        rows_of_data(left, 3.1 + shift, 1.87)

    right.set_title("Without: rows stay, vectors go to neighbours")
    arrow = {"arrowstyle": "<->", "color": BLUE, "linewidth": 1.6, "shrinkA": 17, "shrinkB": 17}
    for a, b in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)]:
        right.annotate("", places[b], places[a], arrowprops=arrow)
    for i, ((x, y), (dx, dy)) in enumerate(zip(places, outside, strict=True), start=1):
        agent(right, x, y, f"$x_{i}$")
        rows_of_data(right, x + dx, y + dy)
    left.plot([], [], color=ORANGE, linewidth=6, label="rows of data")
    right.plot([], [], color=BLUE, linewidth=1.6, label="one vector each way, every round")
    for axis in (left, right):
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, 0.04), frameon=False)
    return figure


# Agreement as a linear constraint


def agreement() -> Figure:
    graph = gs.Graph.path(4)
    start, places = np.array([4.0, 1.0, 2.0, 0.0]), [0.7, 2.3, 3.9, 5.5]
    figure, (left, right) = panels(2, 9.6, 3.6, gridspec_kw={"width_ratios": [1.25, 1]})
    blank(left, 6.2, 4.0)
    left.set_title("In the circles x, below them Lap x")
    for height, x in ((2.9, start), (1.0, np.full(4, start.mean()))):
        left.plot([places[0], places[-1]], [height, height], color=GREY, linewidth=1.6, zorder=1)
        for place, value, difference in zip(places, x, graph.laplacian @ x, strict=True):
            agent(left, place, height, f"{value:g}")
            colour = GREEN if difference == 0 else RED
            left.text(
                place, height - 0.62, f"{difference:+g}" if difference else "0", ha="center", va="center", color=colour
            )
    left.text(3.1, 3.55, "they differ: Lap x is not 0", ha="center", color=RED)
    left.text(3.1, 1.65, "they agree: Lap x = 0", ha="center", color=GREEN)

    x, rounds = start, [start]
    for _ in range(16):
        x = x - graph.laplacian @ x / graph.laplacian_norm
        rounds.append(x)
    for i, values in enumerate(np.transpose(rounds)):
        right.plot(values, "o-", color=COLOURS[i], markersize=3.5, label=f"agent {i + 1}")
    right.set(xlabel="rounds", ylabel="value", xticks=range(0, 17, 4), title="Each round subtracts a share of Lap x")
    right.legend(frameon=False, fontsize="small", ncols=2)
    tidy(right)
    return figure


# What sliding is


def sliding() -> Figure:
    figure, (axis,) = panels(1, 9.6, 3.0)
    blank(axis, 15.2, 4.9)

    def box(x: float, y: float, width: float, colour: str, text: str, **options: object) -> float:
        """Draw it, and say where the next one begins."""
        axis.add_patch(
            FancyBboxPatch((x, y), width, 0.9, boxstyle="round,pad=0.02", facecolor=colour, edgecolor="none")
        )
        axis.text(x + width / 2, y + 0.44, text, ha="center", va="center", **options)
        return x + width + 0.12

    def gradient(x: float, y: float) -> float:
        return box(x, y, 1.1, ORANGE, "gradient", fontsize=9.5)

    def exchange(x: float, y: float) -> float:
        return box(x, y, 0.27, SKY, "round", fontsize=8, rotation=90)

    axis.text(0, 4.45, "Many methods: a new gradient for each round", fontsize=12)
    x = 0.05
    for _ in range(9):
        x = exchange(gradient(x, 3.3), 3.3)
    axis.text(x, 3.75, "...", va="center", fontsize=14)

    axis.text(0, 2.45, "Sliding: one gradient, used in every round until the next is taken", fontsize=12)
    x = 0.05
    for count in (6, 8, 10):
        first = x = gradient(x, 1.3)
        for _ in range(count):
            x = exchange(x, 1.3)
        axis.plot([first, first, x - 0.12, x - 0.12], [1.1, 0.95, 0.95, 1.1], color=GREY, linewidth=1.2)
        said = f"{count} rounds, no new gradient" if count > 6 else f"{count} rounds"
        axis.text((first + x - 0.12) / 2, 0.55, said, ha="center", va="center", fontsize=10.5)
    axis.text(x, 1.75, "...", va="center", fontsize=14)
    return figure


# Prices that make agents want the same


def prices() -> Figure:
    x = np.linspace(-2.4, 3.4, 200)
    centres, weights = (-1.0, 2.0), (1.0, 0.5)
    optimum = np.dot(weights, centres) / np.sum(weights)
    figure, (left, right) = panels(2, 9.6, 3.7, sharey=True)
    for axis, title in (
        (left, "Alone: each agent has its own minimum"),
        (right, "With prices: both want the same point"),
    ):
        for i, (centre, weight) in enumerate(zip(centres, weights, strict=True)):
            price = 0.0 if axis is left else -weight * (optimum - centre)
            curve = weight * (x - centre) ** 2 / 2 + price * (x - optimum)
            lowest = x[np.argmin(curve)]
            sign = "+" if price > 0 else "-"
            said = f"$f_{i + 1}(x)$" if axis is left else f"$f_{i + 1}(x) {sign} x$, price {price:+g}"
            axis.plot(x, curve, color=(BLUE, RED)[i], linestyle=("-", "--")[i], linewidth=2, label=said)
            axis.plot(lowest, curve.min(), "o", color=(BLUE, RED)[i], markersize=8)
        axis.axvline(optimum, color=GREY, linestyle=":", linewidth=1.5)
        axis.set(xlabel="x", ylim=(-0.4, 5), title=title)
        axis.legend(framealpha=1, edgecolor="white", loc="upper center")
        tidy(axis)
    left.text(optimum + 0.06, 3.0, "least sum", color="#555555", rotation=90, va="center")
    return figure


# Measured


def misfire(agents: int, rows: int, domain: gs.domains.Domain) -> gs.Problem:
    data = gs.data.misfire()
    return gs.Problem(gs.losses.Logistic(data.features[:rows], data.labels[:rows], agents=agents), domain=domain)


def bounds() -> Figure:
    """Theorem 1's bounds and what a run showed."""
    problem, graph = misfire(20, 2000, gs.domains.L2Ball(3.0)), gs.Graph.random(20, max_degree=4, seed=1)
    optimum = gs.reference.reference(problem)
    V, z_star = optimum.V(problem, problem.start()), optimum.multiplier(problem, graph, "incidence")
    R = gs.guarantees.theory_R(V=V, z_star=z_star)
    z_means = []

    def look(_: gs.Record, x: np.ndarray) -> None:
        z_means.append(gs.reference.multiplier_at(problem, graph, "incidence", x.mean(axis=0)))

    solution = gs.solve(problem, graph, gs.PDS(R=R), stop=gs.Stop(iterations=300), callback=look)
    found, records = solution.parameters, solution.history
    steps = [record.iteration for record in records]
    rows = gs.schedules.theorem_1(L=found["L"], mu=0.0, A_norm=found["A_norm"], R=R)
    at_mean = [
        gs.guarantees.objective_at_mean(rows.row(1), rows.row(k), V=V, z_mean=z)
        for k, z in zip(steps, z_means, strict=True)
    ]
    disagreement = [gs.guarantees.proposition_1(rows.row(1), rows.row(k), V=V, z_star=z_star).residual for k in steps]
    errors = [record.objective - optimum.objective for record in records]
    residuals = [record.residual for record in records]
    figure, (left, right) = panels(2, 9.6, 3.6)
    for axis, measured, bound, title in (
        (left, errors, at_mean, "Error of the objective at the mean"),
        (right, residuals, disagreement, "||A x||: how far from agreement"),
    ):
        axis.loglog(steps, bound, color=BLACK, linestyle="--", label="bound")
        axis.loglog(steps, measured, color=BLUE, label="measured")
        axis.set(xlabel="gradients per agent", title=title)
        axis.legend(frameon=False)
        tidy(axis)
        print(f"bounds: {title}: {measured[-1]:.2g} <= {bound[-1]:.2g} after {steps[-1]} gradients")
    return figure


def certificate() -> Figure:
    """Lower and upper bound along a run of the default method."""
    problem, graph = misfire(20, 2000, gs.domains.L2Ball(8.0)), gs.Graph.random(20, max_degree=4, seed=1)
    optimum = gs.reference.reference(problem).objective
    solution = gs.solve(problem, graph, stop=gs.Stop(gap=gs.Relative(1e-3), iterations=200))
    records = [record for record in solution.history if record.lower is not None]
    gradients, lower = [r.gradients for r in records], [r.lower for r in records]
    upper = [r.lower + r.gap for r in records]
    figure, (axis,) = panels(1, 7.6, 3.7)
    axis.fill_between(gradients, lower, upper, color=SKY, alpha=0.35, linewidth=0)
    axis.plot(gradients, upper, color=BLUE, label="upper: the objective at the mean of the agents")
    axis.plot(gradients, lower, color=RED, linestyle="--", label="lower: no point can be below")
    axis.axhline(optimum, color=BLACK, linestyle=":", label="the optimum, which no agent knows")
    axis.set(xlabel="gradients per agent", ylabel="objective", xlim=(6, 30), ylim=(0.7 * optimum, 1.45 * optimum))
    axis.legend(frameon=False)
    tidy(axis)
    last = solution.certificate
    print(
        f"certificate: {last.lower:.3f} <= {optimum:.3f} <= {last.upper:.3f} after {solution.costs.gradients} gradients"
    )
    return figure


def graphs() -> Figure:
    """What the same accuracy takes on four networks."""
    m = 24
    problem = misfire(m, 4800, gs.domains.Free())
    optimum = gs.reference.reference(problem).objective
    enough = gs.Stop(objective=gs.Relative(1e-2, to=optimum), disagreement=gs.Relative(1e-2), iterations=3000)
    networks = {
        "path": gs.Graph.path(m),
        "ring": gs.Graph.ring(m),
        "random,\ndegree 4": gs.Graph.random(m, max_degree=4, seed=1),
        "complete": gs.Graph.complete(m),
    }
    figure, (left, right) = panels(2, 9.6, 3.8)
    for shift, (method, colour, hatch) in enumerate(((gs.PDS(), BLUE, ""), (gs.AutoPDS(), ORANGE, "//"))):
        name = type(method).__name__
        costs = [gs.solve(problem, graph, method, stop=enough).costs for graph in networks.values()]
        gradients, rounds = [c.gradients for c in costs], [c.rounds + c.control_rounds for c in costs]
        print(f"graphs: {name}: gradients {gradients}, exchanges {rounds}")
        for axis, counts in ((left, gradients), (right, rounds)):
            bars = axis.bar(
                np.arange(4) + 0.4 * shift - 0.2, counts, 0.38, color=colour, hatch=hatch, edgecolor="white", label=name
            )
            axis.bar_label(bars, fontsize=9.5)
    for axis, title in ((left, "Gradients per agent"), (right, "Exchanges, those for control included")):
        axis.set_xticks(range(4), networks)
        axis.set_title(title)
        tidy(axis)
        axis.set_axisbelow(True)
        axis.grid(visible=False, axis="x")
    left.set_ylim(top=1.3 * left.get_ylim()[1])
    left.legend(frameon=False, ncols=2, loc="upper left")
    return figure


PICTURES = (network, agreement, sliding, prices, bounds, certificate, graphs)


def main(names: list[str]) -> None:
    for draw in PICTURES:
        if not names or draw.__name__ in names:
            with plt.rc_context(STYLE):
                figure = draw()
                figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
                figure.savefig(FOLDER / f"concepts_{draw.__name__}.png", dpi=130, facecolor="white")
                plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
