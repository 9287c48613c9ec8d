"""Compare the CPU time of outer iterations of the gossip mode with those of NIDS.

    python benchmarks/iterations.py [--repeats 5]

Logistic regression with random data, on random networks. The time of an iteration is the
difference of two solves that differ in the number of iterations only, each the fastest of several,
so that setup and the last check do not count; compiled code is loaded in advance. "Overhead" is
what an iteration takes beside its gradient and values. CPU time, one thread, two minutes.
"""

import time
from collections.abc import Callable

import numpy as np
from timing import begin, load_compiled_exchanges, parser, show

import gradslide as gs

# Agents, rows per agent, columns, maximum degree, and numbers of iterations of the two solves.
CASES = {
    "100 x 200 x 22": (100, 200, 22, 4, (60, 460)),
    "1,000 x 20 x 50": (1000, 20, 50, 6, (60, 260)),
    "1,000 x 200 x 300": (1000, 200, 300, 6, (10, 60)),
}
METHODS = {"AutoPDS": gs.AutoPDS(), "NIDS": gs.NIDS(L=50.0)}


def make(m: int, rows: int, d: int, degree: int) -> tuple[gs.Problem, gs.Graph]:
    """Return a logistic regression with random data, and a random network."""
    rng = np.random.default_rng(0)
    features, truth = rng.normal(size=(m * rows, d)), rng.normal(size=d) / np.sqrt(d)
    labels = np.where(features @ truth + rng.normal(size=m * rows) > 0, 1, -1)
    return gs.Problem(gs.losses.Logistic(features, labels, agents=m)), gs.Graph.random(m, degree, seed=1)


def cpu_seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the CPU time of the fastest call."""
    found = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return min(found)


def measure(problem: gs.Problem, graph: gs.Graph, counts: tuple[int, int], repeats: int) -> dict[str, float]:
    """Return seconds per iteration of the methods, of a gradient, and of a pass for gradient and values."""

    def solve(method: gs.Method, iterations: int) -> gs.Solution:
        return gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), record_every=10**6)

    solves: dict[tuple[str, int], list[float]] = {(name, n): [] for name in METHODS for n in counts}
    for _ in range(repeats):
        for (name, n), found in solves.items():
            found.append(cpu_seconds(lambda name=name, n=n: solve(METHODS[name], n), 1))
    few, many = counts
    found = {name: (min(solves[name, many]) - min(solves[name, few])) / (many - few) for name in METHODS}
    x = np.zeros((problem.m, problem.d))
    scores = problem.loss.scores(x)
    found["gradient"] = cpu_seconds(lambda: problem.loss.gradient(x), 3 * repeats)
    found["values"] = cpu_seconds(lambda: problem.loss.extrapolation(x, scores, 0.5), 3 * repeats)
    return found


def row(name: str, repeats: int) -> list[str]:
    *sizes, counts = CASES[name]
    found = measure(*make(*sizes), counts, repeats)
    ours, theirs = found["AutoPDS"], found["NIDS"]
    figures = (found["gradient"], found["values"], theirs, ours, ours - found["values"])
    return [name, *(f"{1e3 * each:.3g}" for each in figures), f"{ours / theirs:.2f}"]


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--repeats", type=int, default=5)
    chosen = begin(given, row)
    load_compiled_exchanges()
    headings = [
        "agents x rows x columns",
        "gradient, ms",
        "with values",
        "NIDS",
        "AutoPDS",
        "overhead",
        "AutoPDS / NIDS",
    ]
    show("CPU time per outer iteration", headings, [row(name, chosen.repeats) for name in CASES])


if __name__ == "__main__":
    main()
