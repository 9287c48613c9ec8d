"""Measure the gain of drawing samples while the network communicates: SPDS on slow streams and a slow network.

    python benchmarks/overlap.py

Logistic regression on the built-in data, 8 agents. Every batch of 32 rows takes 5 ms, and the
agents wait simultaneously; every exchange takes 1 ms. R is chosen for about 4,000 exchanges, and c
so that sampling takes about as long in total. Wall-clock time, best of two. "alone": total times of
sampling and of communicating in the run without overlap. "at best": the ratio if the shorter of the
two were hidden entirely.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import gradslide as gs
from gradslide.network.wrapper import Wrapper

AGENTS, ROWS, BATCH_SECONDS, EXCHANGE_SECONDS = 8, 32, 5e-3, 1e-3
REPEATS, LEAST = 2, 1.6
DATA = gs.data.misfire()
GRAPH = gs.Graph.random(AGENTS, max_degree=3, seed=0)


class Clock:
    """Measures the seconds spent in a function."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, function: Callable, *arguments):
        started = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            self.seconds += time.perf_counter() - started


class ClockedNetwork(Wrapper):
    def __init__(self, network: gs.network.Network, clock: Clock) -> None:
        super().__init__(network)
        self._clock = clock

    def combine(self, v, weights, encoding=None):
        return self._clock(super().combine, v, weights, encoding)


@dataclass(frozen=True)
class ClockedOracle:
    """Draws the same samples and measures how long the method waits for them."""

    sampling: gs.oracles.Sampling
    clock: Clock

    def open(self, loss, agents, seed):
        sampler = self.sampling.open(loss, agents, seed)
        draw = sampler.draw
        sampler.draw = lambda start, count: self.clock(draw, start, count)
        return sampler


@dataclass(frozen=True)
class Run:
    seconds: float
    sampling: float
    communicating: float
    iterates: np.ndarray
    solution: gs.Solution


def stream(i: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield random rows of agent i's data, one batch every 5 ms."""
    own = len(DATA.labels) // AGENTS
    rng = np.random.default_rng(i)
    while True:
        time.sleep(BATCH_SECONDS)
        rows = rng.integers(i * own, (i + 1) * own, size=ROWS)
        yield DATA.features[rows], DATA.labels[rows]


def run(problem: gs.Problem, overlap: bool, **parameters: float) -> Run:
    draws, exchanges, iterates = Clock(), Clock(), []
    oracle = ClockedOracle(gs.oracles.Stream(stream, overlap=overlap, workers=AGENTS), draws)
    network = ClockedNetwork(gs.network.Delayed(GRAPH, EXCHANGE_SECONDS), exchanges)
    method = gs.SPDS(**parameters, oracle=oracle)
    started = time.perf_counter()
    solution = gs.solve(problem, network, method, callback=lambda _, x: iterates.append(x), record_every=method.N)
    seconds = time.perf_counter() - started
    return Run(seconds, draws.seconds, exchanges.seconds, np.array(iterates), solution)


def compare(label: str, mu_over_L: float, **parameters: float) -> float:
    loss = gs.losses.Logistic(DATA.features, DATA.labels, agents=AGENTS, reduction="mean")
    L = float(np.max(loss.smoothness()))
    problem = gs.Problem(loss, mu=mu_over_L * L)
    runs: dict[bool, list[Run]] = {False: [], True: []}
    for overlap in REPEATS * (False, True):
        # Alternate, so that other load affects both.
        runs[overlap].append(run(problem, overlap, L=L, **parameters))
    first = runs[False][0]
    for other in runs[False] + runs[True]:
        assert np.array_equal(first.iterates, other.iterates), "overlap must not change an iterate"
    serial, overlapped = (min(runs[overlap], key=lambda each: each.seconds) for overlap in (False, True))
    ratio = serial.seconds / overlapped.seconds
    best = serial.seconds / (serial.seconds - min(serial.sampling, serial.communicating))
    times = (serial.sampling, serial.communicating, serial.seconds, overlapped.seconds)
    costs = serial.solution.costs
    print(
        f"{label:<10}{parameters['N']:>4}{costs.samples:>9,}{costs.rounds:>11,}"
        + "".join(f"{seconds:>11.2f}" for seconds in times)
        + f"{ratio:>9.2f}{best:>9.2f}",
        flush=True,
    )
    return ratio


def main() -> None:
    print("python benchmarks/overlap.py")
    print(f"{AGENTS} agents; {ROWS} rows take {1e3 * BATCH_SECONDS:g} ms, an exchange {1e3 * EXCHANGE_SECONDS:g} ms")
    print("seconds:                            sampling communicat.   without       with    ratio  at best")
    print("             N  samples  exchanges     alone      alone    overlap    overlap")
    # c_k and T_k grow at the same rate for large k, so each outer iteration is balanced.
    ratio = compare("mu = L/16", 1 / 16, N=70, R=0.047, c=8.3e-5)
    # c_k grows like k^2 and T_k like k: the network takes longer at first, sampling later.
    compare("mu = 0", 0.0, N=50, R=0.26, c=0.0018)
    print("The iterates are bit-identical.")
    assert ratio >= LEAST, f"with mu > 0, overlap must gain a factor of {LEAST}; got {ratio:.2f}"


if __name__ == "__main__":
    main()
