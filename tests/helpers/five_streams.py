"""What the tests of live streams share: five agents, their samples in a fixed order, and a run over them."""

import threading
import time
from contextlib import contextmanager
from itertools import cycle

import numpy as np

import gradslide as gs

M, ROWS, D = 5, 8, 4
GRAPH = gs.Graph.random(M, 3, seed=1)
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(M, ROWS, D)) * (RNG.random((M, ROWS, D)) < 0.7)
LABELS = RNG.choice([-1, 1], size=(M, ROWS))
# The row that every sample of an agent is, however it reaches the run.
ORDER = RNG.integers(ROWS, size=(M, 1000))

N, MU, L, R, C = 10, 2.0, 6.0, 3.0, 1.3
SCHEDULE = gs.schedules.theorem_2(N=N, L=L, mu=MU, A_norm=GRAPH.laplacian_norm**0.5, R=R, c=C)
EXCHANGES, BATCHES = ([getattr(SCHEDULE.row(k), name) for k in range(1, N + 1)] for name in ("T", "c"))
SAMPLES = sum(BATCHES)
# Long enough for any machine; whoever waits so long fails.
PATIENCE = 60


def before(k):
    """Samples per agent that come before outer iteration k."""
    return sum(BATCHES[: k - 1])


def batches(i, sizes=(1,), first=0):
    """Agent i's samples from number `first` on, for ever, in batches of these sizes in turn."""
    for size in cycle(sizes):
        rows = ORDER[i, np.arange(first, first + size) % ORDER.shape[1]]
        first += size
        yield FEATURES[i, rows], LABELS[i, rows]


def spds(oracle, **settings):
    return gs.SPDS(**{"N": N, "L": L, "R": R, "c": C, "oracle": oracle, **settings})


def logistic(mu=MU, **settings):
    return gs.Problem(gs.losses.Logistic(FEATURES.reshape(-1, D), LABELS.ravel(), agents=M, **settings), mu=mu)


def run(oracle, *, mu=MU, problem=None, network=GRAPH, method=None, **settings):
    return gs.solve(problem or logistic(mu), network, spds(oracle, **(method or {})), **settings)


def traced(oracle, **settings):
    """The solution, and the output after every outer iteration."""
    seen = []
    solution = run(oracle, callback=lambda record, x: seen.append(x), **settings)
    return solution, np.array(seen)


def assert_same_run(one, other):
    (first, seen), (second, seen_too) = one, other
    np.testing.assert_array_equal(seen, seen_too)
    for name, x in first.outputs.items():
        np.testing.assert_array_equal(x, second.outputs[name])
    np.testing.assert_array_equal(first.dual, second.dual)
    assert first.status is second.status
    assert (first.costs.samples, first.costs.rounds) == (second.costs.samples, second.costs.rounds)


@contextmanager
def threads_that_end(patience=PATIENCE):
    """The threads that the block starts come to their end, if not at once."""
    known = set(threading.enumerate())
    yield
    deadline = time.monotonic() + patience
    while left := set(threading.enumerate()) - known:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)
