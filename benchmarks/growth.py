"""Measure how the time of an exchange grows with agents, edges and dimensions, and a run with 100,000 agents.

    python benchmarks/growth.py [--repeats 3] [--most 100000] [--no-run] [--auto]

Times should grow linearly: slopes in log-log scale are near 1, smaller where call overhead
dominates, larger where arrays exceed a cache. "exchange" is a product with the Laplacian. "PDS" is
an inner iteration and a fifth of a gradient; most of it does not depend on edges. "GB/s" is the
minimal traffic of an exchange, its input and output once, over its time. Random networks, one
thread, about two minutes. --auto also runs the default method with 100,000 agents.
"""

import json
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from core import FixedPDS
from memory import problem, resident_now, resident_peak
from timing import begin, best_mean, copy_bandwidth, fresh, load_compiled, parser, show

import gradslide as gs


class Size(NamedTuple):
    m: int
    degree: int
    d: int


def sweeps(most: int) -> dict[str, list[Size]]:
    agents = [10**k for k in range(2, 1 + round(math.log10(most)))]
    return {
        "agents": [Size(m, 4, 100) for m in agents],
        "edges": [Size(1000, degree, 100) for degree in (8, 16, 32, 64, 128, 256)],
        "dimensions": [Size(1000, 4, d) for d in (10, 30, 100, 300, 1000)],
    }


def network(size: Size) -> gs.network.Local:
    """Return a random network whose degrees are near the maximum."""
    edges = round(0.48 * size.m * size.degree)
    return gs.network.Local(gs.Graph.random(size.m, size.degree, seed=0, edges=edges))


def exchange_seconds(local: gs.network.Local, d: int, repeats: int) -> float:
    v, weights = np.random.default_rng(0).normal(size=(local.m, d)), local.laplacian
    return best_mean(repeats, lambda: local.combine(v, weights))


def sliding_seconds(local: gs.network.Local, d: int, repeats: int) -> float:
    """Return the time of an inner iteration of PDS, five of which share a gradient."""
    given, numbers = problem(local.m, d, "free"), local.m * d
    # A bound on the norm is enough; the exact eigenvalue is slow for large networks.
    method = FixedPDS(L=1.0, R=0.1, norm=math.sqrt(local.graph.norm_bound))
    n = int(np.clip(2e6 / numbers, 2, 100))
    runs = (gs.solve(given, local, method, stop=gs.Stop(iterations=n), record_every=n) for _ in range(repeats))
    return min(run.costs.seconds / run.costs.rounds for run in runs)


def slope(sizes: list[float], seconds: list[float]) -> float:
    """Return the slope of a line fitted in log-log scale."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def sweep(axis: str, sizes: list[Size], repeats: int) -> list[list[str]]:
    counts: list[float] = []
    times: list[list[float]] = []
    for size in sizes:
        local = network(size)
        counts.append({"agents": local.m, "edges": len(local.graph.edges), "dimensions": size.d}[axis])
        times.append([seconds(local, size.d, repeats) for seconds in (exchange_seconds, sliding_seconds)])
    rows = [
        [
            f"{count:,}",
            f"{1e6 * alone:,.0f}",
            f"{16e-9 * size.m * size.d / alone:.2f}",
            f"{1e6 * pds:,.0f}",
            f"{pds / alone:.1f}",
        ]
        for count, size, (alone, pds) in zip(counts, sizes, times, strict=True)
    ]
    alone, pds = (slope(counts, list(column)) for column in zip(*times, strict=True))
    return [*rows, ["slope", f"{alone:.2f}", "", f"{pds:.2f}", ""]]


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def large_run(m: int, d: int, name: str, iterations: int = 10) -> dict[str, float]:
    """Return the seconds of the parts of a run, and the peak of resident memory in GiB, data included."""
    resident_now()
    rng = np.random.default_rng(0)
    graph, building = timed(lambda: gs.Graph.random(m, 6, seed=0))
    _, norm = timed(lambda: graph.laplacian_norm)
    _, connectivity = timed(lambda: graph.algebraic_connectivity)
    features, labels = rng.normal(size=(2 * m, d)), rng.choice([-1.0, 1.0], size=2 * m)
    given, stating = timed(lambda: gs.Problem(gs.losses.Logistic(features, labels, agents=m), gs.domains.L2Ball(1.0)))
    method = gs.PDS(R=10.0) if name == "PDS" else gs.AutoPDS()
    stop = gs.Stop(iterations=iterations)
    solution, solving = timed(lambda: gs.solve(given, graph, method, stop=stop, record_every=iterations))
    return {
        "graph": building,
        "largest eigenvalue": norm,
        "second eigenvalue": connectivity,
        "problem": stating,
        "solve": solving,
        "rounds": solution.costs.rounds,
        "gradients": solution.costs.gradients,
        "GiB": resident_peak() / 2**30,
    }


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--repeats", type=int, default=3)
    given.add_argument("--most", type=int, default=100_000, help="agents")
    given.add_argument("--no-run", action="store_true", help="skip the whole run")
    given.add_argument("--auto", action="store_true", help="also a whole run of the default method")
    chosen = begin(given, large_run)
    print(f"this machine copies {copy_bandwidth() / 1e9:.1f} GB/s, read and written\n")
    load_compiled("incidence", gs.domains.Free())
    for axis, sizes in sweeps(chosen.most).items():
        fixed = [f"{n:,} {name}" for name, n in zip(("agents", "links each", "dimensions"), sizes[0], strict=True)]
        del fixed[{"agents": 0, "edges": 1, "dimensions": 2}[axis]]
        headings = [axis, "exchange, us", "GB/s", "PDS, us", "x exchange"]
        show(f"{axis}; {', '.join(fixed)}", headings, sweep(axis, sizes, chosen.repeats))
    if chosen.no_run:
        return
    d, names = 100, ["PDS", *(["AutoPDS"] if chosen.auto else [])]
    found = {name: fresh(__file__, "--one", json.dumps([chosen.most, d, name])) for name in names}
    rows = [[name, *(f"{value:.3g}" for value in result.values())] for name, result in found.items()]
    show(f"{chosen.most:,} agents x {d} dimensions, 10 outer iterations; seconds", ["", *found["PDS"]], rows)


if __name__ == "__main__":
    main()
