"""Compare the CPU time of an outer iteration of the gossip mode with that of NIDS.

    python benchmarks/iterations.py [--repeats 5]

Logistic regression with random data, on random networks. Both methods take one gradient per
iteration, and the times are per gradient: the difference of two solves that differ in the number of
iterations only, over the difference of their gradients. Each solve is the fastest of several, so
that setup and the last check do not count. Compiled code is loaded in advance, and one solve of
each method warms up each case. "Compiled": the compiled part of an iteration of AutoPDS alone,
which is the step before the K exchanges, these, dual, averages and inner products. "Overhead" is
what an iteration takes beside its gradient and values, this part included. "-": other programs
disturbed the solves so much that the difference is not positive. CPU time, one thread, a minute.
"""

import math
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from timing import begin, load_compiled_exchanges, parser, show

import gradslide as gs
from gradslide.graphs.chebyshev import damped_coefficients
from gradslide.kernels.mixing import DotsInput, MixingInput, MixingKernel

# Agents, rows per agent, columns, maximum degree, the set, and numbers of iterations of the two solves.
CASES = {
    "100 x 200 x 22": (100, 200, 22, 4, None, (60, 460)),
    "1,000 x 20 x 50": (1000, 20, 50, 6, None, (60, 260)),
    "1,000 x 200 x 300": (1000, 200, 300, 6, None, (10, 60)),
    "1,000 x 200 x 300, l2 ball": (1000, 200, 300, 6, gs.domains.L2Ball(1.0), (10, 60)),
}
METHODS = {"AutoPDS": gs.AutoPDS(), "NIDS": gs.NIDS(L=50.0)}


def make(m: int, rows: int, d: int, degree: int, domain: gs.domains.Domain | None) -> tuple[gs.Problem, gs.Graph]:
    """Return a logistic regression with random data, and a random network."""
    rng = np.random.default_rng(0)
    features, truth = rng.normal(size=(m * rows, d)), rng.normal(size=d) / np.sqrt(d)
    labels = np.where(features @ truth + rng.normal(size=m * rows) > 0, 1, -1)
    return gs.Problem(gs.losses.Logistic(features, labels, agents=m), domain), gs.Graph.random(m, degree, seed=1)


def cpu_seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the CPU time of the fastest call."""
    found = []
    for _ in range(repeats):
        started = time.process_time()
        call()
        found.append(time.process_time() - started)
    return min(found)


def exchanges(graph: gs.Graph, d: int, K: int, repeats: int) -> float:
    """Return seconds of K exchanges, and of what is compiled with them."""
    D, least, most = graph.degree_weights
    kernel = MixingKernel(sp.csr_array(sp.diags_array(1 / D) @ graph.laplacian), D[:, None])
    at = MixingInput(*(np.ones((graph.m, d)) for _ in MixingInput._fields))
    rounds = damped_coefficients(K, least=max(float(least), float(most) / K**2), most=float(most))
    products = DotsInput(*(np.ones((graph.m, d)) for _ in DotsInput._fields))
    found = cpu_seconds(lambda: kernel.run(at, 1.0, 0.5, rounds), repeats)
    return found + cpu_seconds(lambda: kernel.dots(products, 0.5, 1.0), repeats)


def measure(problem: gs.Problem, graph: gs.Graph, counts: tuple[int, int], repeats: int) -> dict[str, float]:
    """Return seconds per gradient of the methods, of a gradient, and of a pass for gradient and values.

    Not a number for a method whose longer solve took no longer than the shorter one.
    """

    def solve(method: gs.Method, iterations: int) -> gs.Solution:
        return gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), record_every=10**6)

    few, many = counts
    for method in METHODS.values():
        solve(method, few)
    solves: dict[tuple[str, int], list[float]] = {(name, n): [] for name in METHODS for n in counts}
    gradients: dict[tuple[str, int], int] = {}
    found: dict[str, float] = {"K": 1}
    for _ in range(repeats):
        for name, n in solves:
            started = time.process_time()
            solution = solve(METHODS[name], n)
            solves[name, n].append(time.process_time() - started)
            gradients[name, n] = solution.costs.gradients
            found["K"] = max(found["K"], int(solution.parameters.get("K", 1)))
    for name in METHODS:
        seconds = min(solves[name, many]) - min(solves[name, few])
        found[name] = seconds / (gradients[name, many] - gradients[name, few]) if seconds > 0 else math.nan
    x = np.zeros((problem.m, problem.d))
    scores = problem.loss.scores(x)
    found["gradient"] = cpu_seconds(lambda: problem.loss.gradient(x), 3 * repeats)
    found["values"] = cpu_seconds(lambda: problem.loss.extrapolation(x, scores, 0.5), 3 * repeats)
    found["exchanges"] = exchanges(graph, problem.d, int(found["K"]), 3 * repeats)
    return found


def row(name: str, repeats: int) -> list[str]:
    *sizes, counts = CASES[name]
    found = measure(*make(*sizes), counts, repeats)
    ours, theirs = found["AutoPDS"], found["NIDS"]
    figures = (found["gradient"], found["values"], found["exchanges"], theirs, ours, ours - found["values"])
    texts = [*(f"{1e3 * each:.3g}" for each in figures), f"{ours / theirs:.2f}"]
    return [name, f"{found['K']:.0f}", *("-" if text == "nan" else text for text in texts)]


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--repeats", type=int, default=5)
    chosen = begin(given, row)
    load_compiled_exchanges()
    headings = [
        "agents x rows x columns",
        "K",
        "gradient, ms",
        "with values",
        "compiled",
        "NIDS",
        "AutoPDS",
        "overhead",
        "AutoPDS / NIDS",
    ]
    show("CPU time per outer iteration and gradient", headings, [row(name, chosen.repeats) for name in CASES])


if __name__ == "__main__":
    main()
