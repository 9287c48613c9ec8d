"""Time a whole solve to 1e-3: gradslide, a Python loop over the agents, and decent-bench.

    python benchmarks/whole_solve.py [--agents 100 1000] [--repeats 5] [--budget SECONDS | --full]

Logistic regression, 20 rows of 20 features per agent, random network with maximum degree 4. A run
is complete when the relative objective error at the mean and the relative disagreement are at most
1e-3. The number of iterations is determined in advance; then all implementations run that many,
without measuring. NIDS and EXTRA use the best step of a grid, PDS the best R, in all
implementations; AutoPDS has nothing to tune. "measuring the objective": the targets are those of
`Stop`, checked after every iteration; so they are for the default of `solve`, which chooses another
method here. Rounds include control rounds. "difference" compares
the iterates with ours. decent-bench runs without snapshots; of ten of its methods, tried on 100
agents with up to four steps each, none took fewer iterations than NIDS. A run of another
implementation that exceeds its budget is stopped, and its time (marked ~) is extrapolated from
gradients and exchanges. One thread, about three minutes.

decent-bench needs Python 3.13 or newer: `python3.13 -m venv V && V/bin/pip install . decent-bench`.
"""

import argparse
import contextlib
import importlib.util
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from timing import best_of, one_thread, parser, show

import gradslide as gs

ACCURACY = 1e-3
ROWS, DIMENSION = 20, 20
# Multiples of 1/L for steps, of the estimate for R.
FACTORS = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0)
MOST_ITERATIONS = 3000
NO_DECENT_BENCH = "decent-bench: skipped, cannot be imported; the docstring of this script says how to install it"


@dataclass(frozen=True)
class Case:
    """One problem, for gradslide and as one list entry per agent."""

    m: int
    seed: int = 0

    @cached_property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Features (m, rows, d) with different scales and agents, and labels (m, rows), 1 or -1."""
        rng = np.random.default_rng(self.seed)
        scales = np.geomspace(1, 0.1, DIMENSION)
        centres = 0.5 * rng.normal(size=(self.m, 1, DIMENSION))
        features = scales * (rng.normal(size=(self.m, ROWS, DIMENSION)) + centres)
        model = rng.normal(size=DIMENSION) / scales / np.sqrt(DIMENSION)
        noisy = features @ model + rng.logistic(size=(self.m, ROWS))
        return features, np.where(noisy > 0, 1, -1)

    @cached_property
    def graph(self) -> gs.Graph:
        return gs.Graph.random(self.m, 4, seed=1)

    @cached_property
    def problem(self) -> gs.Problem:
        features, labels = self.data
        rows = features.reshape(-1, DIMENSION)
        return gs.Problem(gs.losses.Logistic(rows, labels.ravel(), agents=self.m, reduction="mean"))

    @cached_property
    def optimum(self) -> float:
        return gs.reference.reference(self.problem).objective

    @cached_property
    def neighbours(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(self.m)]
        for u, v in self.graph.edges.tolist():
            found[u].append(v)
            found[v].append(u)
        return found

    @property
    def targets(self) -> dict[str, Any]:
        return {"objective": gs.Relative(ACCURACY, to=self.optimum), "disagreement": gs.Relative(ACCURACY)}

    def is_solved(self, x: np.ndarray) -> bool:
        mean = x.mean(axis=0)
        objective = float(np.sum(self.problem.objective(np.broadcast_to(mean, x.shape))))
        disagreement = np.linalg.norm(x - mean, axis=1).max()
        return objective <= self.optimum * (1 + ACCURACY) and disagreement <= ACCURACY * np.linalg.norm(mean)


@dataclass(frozen=True)
class Plan:
    """A method with its best parameters, the iterations that it needs, and the output that converges first."""

    method: Any
    iterations: int
    output: str
    rounds: int = 0

    def solve(self, case: Case, iterations: int | None = None) -> gs.Solution:
        n = iterations or self.iterations
        stop = gs.Stop(iterations=n)
        return gs.solve(case.problem, case.graph, self.method, stop=stop, record_every=n, output=self.output)


def plan(case: Case, method: Any, most_rounds: int | None = None) -> Plan | None:
    """Find the iterations that a method needs; None if it does not converge."""
    stop = gs.Stop(**case.targets, iterations=MOST_ITERATIONS, rounds=most_rounds)
    # The loops below compute the average of PDS.
    output = "average" if isinstance(method, gs.PDS) else None
    found = gs.solve(case.problem, case.graph, method, stop=stop, output=output)
    if found.status is not gs.Status.CONVERGED:
        return None
    # Final steps of a method depend on the targets; without targets it may need more iterations.
    for n in range(len(found.history), 2 * len(found.history)):
        again = Plan(method, n, found.output).solve(case)
        if case.is_solved(again.x):
            return Plan(method, n, found.output, again.costs.rounds + again.costs.control_rounds)
    return None


def best(case: Case, grid: list[Any]) -> Plan:
    """Return the plan with the fewest exchanges; these decrease with longer steps until the method diverges."""
    found: Plan | None = None
    for method in grid:
        longer = plan(case, method, found and found.rounds)
        if found is not None and longer is None:
            break
        found = longer
    assert found is not None, f"none of these converges: {grid}"
    return found


def tuned(case: Case) -> dict[str, Plan]:
    L = float(case.problem.smoothness().max())
    first = gs.solve(case.problem, case.graph, gs.PDS(), stop=gs.Stop(iterations=1)).parameters
    grids = {
        "AutoPDS": [gs.AutoPDS()],
        "PDS": [gs.PDS(L=first["L"], R=factor * first["R"]) for factor in FACTORS],
        "NIDS": [gs.NIDS(step_size=factor / L) for factor in FACTORS],
        "EXTRA": [gs.EXTRA(step_size=factor / L) for factor in FACTORS],
    }
    return {name: best(case, grid) for name, grid in grids.items()}


# A Python loop over the agents, with NumPy vectors.


def gradient(features: np.ndarray, labels: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean of log(1 + exp(-label <row, x>)) over an agent's rows."""
    return features.T @ (-labels / (1 + np.exp(labels * (features @ x)))) / len(labels)


def nids_in_loops(case: Case, ours: Plan) -> Iterator[list[np.ndarray]]:
    """Yield the iterates, one list per iteration."""
    features, labels = case.data
    a, agents, neighbours = ours.method.step_size, range(case.m), case.neighbours
    degrees = [len(each) for each in neighbours]
    weights = [{j: 1 / (1 + max(degrees[i], degrees[j])) for j in neighbours[i]} for i in agents]
    own = [1 - sum(each.values()) for each in weights]
    x_prev = [np.zeros(DIMENSION) for _ in agents]
    g_prev = [gradient(features[i], labels[i], x_prev[i]) for i in agents]
    x = [x_prev[i] - a * g_prev[i] for i in agents]
    while True:
        yield x
        g = [gradient(features[i], labels[i], x[i]) for i in agents]
        u = [2 * x[i] - x_prev[i] - a * (g[i] - g_prev[i]) for i in agents]
        x_prev, g_prev, x = x, g, []
        for i in agents:
            mixed = own[i] * u[i]
            for j in neighbours[i]:
                mixed = mixed + weights[i][j] * u[j]
            x.append((u[i] + mixed) / 2)


def pds_in_loops(case: Case, ours: Plan) -> Iterator[list[np.ndarray]]:
    """Yield the averages x_bar, one list per outer iteration."""
    features, labels = case.data
    agents, neighbours = range(case.m), case.neighbours
    L, R = ours.method.L, ours.method.R
    schedule = gs.schedules.theorem_1(L=L, R=R, mu=0.0, A_norm=float(np.sqrt(case.graph.laplacian_norm)))
    x = x_prev = x_before = x_hat = [np.zeros(DIMENSION) for _ in agents]
    x_under, x_bar, w = list(x), list(x), list(x)
    for row in schedule.rows():
        x_tilde = [x[i] + row.lam * (x_hat[i] - x_prev[i]) for i in agents]
        x_under = [(x_tilde[i] + row.tau * x_under[i]) / (1 + row.tau) for i in agents]
        y = [gradient(features[i], labels[i], x_under[i]) for i in agents]
        anchor = [row.p * x[i] - y[i] for i in agents]
        total, x_prev = [np.zeros(DIMENSION) for _ in agents], x
        for t in range(1, row.T + 1):
            u = [x[i] + row.alpha(t) * (x[i] - x_before[i]) for i in agents]
            x_before, x = x, []
            for i in agents:
                laplacian = len(neighbours[i]) * u[i]
                for j in neighbours[i]:
                    laplacian = laplacian - u[j]
                w[i] = w[i] + laplacian / row.q
                x.append((row.eta(t) * x_before[i] + anchor[i] - w[i]) / (row.eta(t) + row.p))
                total[i] = total[i] + x[i]
        x_hat = [total[i] / row.T for i in agents]
        x_bar = [x_bar[i] + row.weight * (x_hat[i] - x_bar[i]) for i in agents]
        yield x_bar


LOOPS = {"NIDS": nids_in_loops, "PDS": pds_in_loops}


class DecentBench:
    """The same problem and network in decent-bench."""

    def __init__(self, case: Case) -> None:
        import networkx as nx
        from decent_array import interoperability as iop
        from decent_bench.agents import Agent
        from decent_bench.networks import P2PNetwork

        iop.set_backend("numpy", "cpu")
        features, labels = case.data
        graph = nx.Graph()
        graph.add_nodes_from(range(case.m))
        graph.add_edges_from(case.graph.edges.tolist())
        costs = [self._cost(rows, (signs + 1) / 2) for rows, signs in zip(features, labels, strict=True)]
        self._network = P2PNetwork(graph, [Agent(cost, state_snapshot_period=MOST_ITERATIONS) for cost in costs])

    def _cost(self, rows: np.ndarray, labels: np.ndarray) -> Any:
        from decent_array import interoperability as iop
        from decent_bench.costs import LogisticRegressionCost

        pairs = zip(rows, labels[:, None], strict=True)
        return LogisticRegressionCost([(iop.from_numpy(row), iop.from_numpy(label)) for row, label in pairs])

    def run(self, name: str, ours: Plan, budget: float) -> tuple[np.ndarray, list[float]]:
        """Return the last iterate, and the seconds of each iteration."""
        from decent_array import interoperability as iop
        from decent_bench.algorithms import p2p

        marks = [time.perf_counter()]

        def note(_: int) -> None:
            marks.append(time.perf_counter())
            if marks[-1] - marks[0] > budget:
                raise OutOfBudgetError

        algorithm = getattr(p2p, name)(step_size=ours.method.step_size)
        with contextlib.suppress(OutOfBudgetError):
            algorithm.run(self._network, ours.iterations, progress_callback=note)
        return np.array([iop.to_numpy(agent.x) for agent in self._network.agents()]), np.diff(marks).tolist()


class OutOfBudgetError(Exception):
    """A run exceeded its time budget."""


def run_loops(name: str, case: Case, ours: Plan, budget: float) -> tuple[np.ndarray, list[float]]:
    """Return the last output, and the seconds of each iteration."""
    marks, iterates = [time.perf_counter()], LOOPS[name](case, ours)
    while len(marks) <= ours.iterations and marks[-1] - marks[0] <= budget:
        x = next(iterates)
        marks.append(time.perf_counter())
    return np.array(x), np.diff(marks).tolist()


def whole(seconds: list[float], rounds: list[int]) -> float:
    """Return the seconds of all iterations; if only the first were timed, fit the times of gradients and exchanges."""
    done = len(seconds)
    if done == len(rounds):
        return sum(seconds)
    work = np.column_stack([np.ones(len(rounds)), rounds])
    return float(np.sum(work @ np.linalg.lstsq(work[:done], np.array(seconds), rcond=None)[0]))


def rounds_of_each(name: str, case: Case, ours: Plan) -> list[int]:
    """Return the exchanges of each iteration."""
    if name != "PDS":
        return [1] * ours.iterations
    A_norm = float(np.sqrt(case.graph.laplacian_norm))
    schedule = gs.schedules.theorem_1(L=ours.method.L, R=ours.method.R, mu=0.0, A_norm=A_norm)
    return [schedule.row(k).T for k in range(1, ours.iterations + 1)]


def compare(case: Case, plans: dict[str, Plan], repeats: int, budget: float) -> list[list[str]]:
    """Return a table row for each implementation."""
    seconds = {name: best_of(repeats, lambda ours=ours: ours.solve(case)) for name, ours in plans.items()}
    default = seconds["AutoPDS"]
    theirs = DecentBench(case) if importlib.util.find_spec("decent_bench") else None

    def row(name: str, who: str, taken: float, note: str = "", difference: str = "") -> list[str]:
        return table_row(name, who, plans[name], seconds[name], taken, note, difference)

    def table_row(
        name: str, who: str, ours: Plan, base: float, taken: float, note: str = "", difference: str = ""
    ) -> list[str]:
        figures = [
            f"{ours.iterations:,}",
            f"{ours.rounds:,}",
            f"{note}{taken:.3g}",
            f"{1e3 * taken / ours.iterations:.3g}",
        ]
        return [f"{name}, {who}", *figures, f"{taken / base:.2f}", f"{taken / default:.2f}", difference]

    def other(name: str, who: str, result: tuple[np.ndarray, list[float]]) -> list[str]:
        x, times = result
        ours = plans[name]
        same = ours.solve(case, len(times)).x
        difference = np.abs(x - same).max() / np.abs(same).max()
        note = "" if len(times) == ours.iterations else "~"
        return row(name, who, whole(times, rounds_of_each(name, case, ours)), note, f"{difference:.0e}")

    stop = gs.Stop(**case.targets, iterations=MOST_ITERATIONS)
    rows = [row("AutoPDS", "ours", default)]
    for method in (gs.AutoPDS(), gs.Auto()):
        found = gs.solve(case.problem, case.graph, method, stop=stop)
        taken = best_of(repeats, lambda method=method: gs.solve(case.problem, case.graph, method, stop=stop))
        rounds = found.costs.rounds + found.costs.control_rounds
        reached = Plan(method, found.history[-1].iteration, found.output, rounds)
        name = found.parameters.get("method", "AutoPDS")
        rows.append(table_row(name, "ours, measuring the objective", reached, taken, taken))
    for name in [name for name in plans if name != "AutoPDS"]:
        rows.append(row(name, "ours", seconds[name]))
        if name in LOOPS:
            rows.append(other(name, "a loop over agents", run_loops(name, case, plans[name], budget)))
        if theirs is not None and name != "PDS":
            rows.append(other(name, "decent-bench", theirs.run(name, plans[name], budget)))
    return rows


def arguments() -> argparse.Namespace:
    given = parser(__doc__)
    given.add_argument("--agents", type=int, nargs="+", default=[100, 1000])
    given.add_argument("--repeats", type=int, default=5)
    given.add_argument("--budget", type=float, default=15.0, help="seconds for each run of another implementation")
    given.add_argument("--full", action="store_true", help="no time budget")
    return given.parse_args()


def main() -> None:
    chosen = arguments()
    one_thread()
    headings = ["to 1e-3", "iterations", "rounds", "seconds", "ms each", "/ ours", "/ AutoPDS", "difference"]
    for case in map(Case, chosen.agents):
        rows = compare(case, tuned(case), chosen.repeats, np.inf if chosen.full else chosen.budget)
        show(f"{case.m:,} agents", headings, rows)
    if not importlib.util.find_spec("decent_bench"):
        print(NO_DECENT_BENCH)


if __name__ == "__main__":
    main()
