"""Measure the overhead of the core beside gradients: import, a small problem, a large problem.

    python benchmarks/core.py

One BLAS thread, CPU seconds.
"""

import subprocess
import sys
import time
from dataclasses import dataclass, replace

import numpy as np

import gradslide as gs


@dataclass(frozen=True)
class FiveInnerIterations(gs.schedules.Convex):
    """Theorem 1's rows with T_k = 5 throughout."""

    def _T(self, k: int) -> int:
        return 5


@dataclass(frozen=True, kw_only=True)
class FixedPDS(gs.PDS):
    def init(self, context):
        state = super().init(context)
        s = state.schedule
        return replace(state, schedule=FiveInnerIterations(L=s.L, A_norm=s.A_norm, R=s.R))


class TimedLoss(gs.losses.Logistic):
    """Measures the CPU seconds spent in gradients."""

    seconds = 0.0

    def gradient(self, x):
        started = time.process_time()
        result = super().gradient(x)
        self.seconds += time.process_time() - started
        return result


def import_seconds() -> float:
    def run(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - started

    return min(run("import gradslide") for _ in range(3))


def small_problem(domain: gs.domains.Domain) -> tuple[float, float]:
    """Return CPU seconds outside and inside of gradients: 100 agents, d = 22, 1,000 x 5 exchanges."""
    data = gs.data.misfire()
    loss = TimedLoss(data.features, data.labels, agents=100)
    problem = gs.Problem(loss, domain)
    graph = gs.Graph.random(100, 4, seed=1, edges=150)
    method = FixedPDS(L=float(np.max(problem.smoothness())), R=0.1)
    started = time.process_time()
    solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=1000), record_every=1000)
    assert solution.costs.rounds == 5000
    return time.process_time() - started - loss.seconds, loss.seconds


def large_problem() -> tuple[gs.Solution, float]:
    """10,000 agents x 100 dimensions, 20 outer iterations with estimated L and R."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(50_000, 100))
    labels = np.where(features @ rng.normal(size=100) + rng.normal(size=50_000) > 0, 1, -1)
    started = time.perf_counter()
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=10_000), gs.domains.L2Ball(1.0))
    solution = gs.solve(problem, gs.Graph.random(10_000, 6, seed=0), stop=gs.Stop(iterations=20), record_every=20)
    return solution, time.perf_counter() - started


def main() -> None:
    print(f"import gradslide: {import_seconds():.2f} s")
    for domain in (gs.domains.Free(), gs.domains.L2Ball(5.0), gs.domains.L1Ball(5.0)):
        beside, within = small_problem(domain)
        name = type(domain).__name__
        ratio = beside / within
        print(f"m=100 d=22, 1,000 x T=5, {name}: {beside:.2f} CPU s beside the gradients, {ratio:.1f} x theirs")
    solution, seconds = large_problem()
    print(f"m=10,000 d=100: {solution.costs.rounds} exchanges and 20 gradients in {seconds:.1f} s with set-up")


if __name__ == "__main__":
    main()
