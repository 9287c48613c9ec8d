"""What the tests of SPDS share: a small problem over four networks of five agents, and an oracle that remembers."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from problems import logistic

import gradslide as gs
from gradslide.oracles import Sampler

COUPLINGS = ["incidence", "laplacian"]
GRAPHS = {
    "ring": gs.Graph.ring(5),
    "star": gs.Graph.star(5),
    "complete": gs.Graph.complete(5),
    "random": gs.Graph.random(5, 3, seed=1),
}


def norm_of(graph, coupling):
    return graph.laplacian_norm ** (1.0 if coupling == "laplacian" else 0.5)


def small_problem(mu=0.0, m=5):
    return gs.Problem(logistic(np.random.default_rng(3), m, 3), gs.domains.L2Ball(1.0), mu)


@dataclass(frozen=True)
class Recorded:
    """A way of sampling that keeps what is asked for, and every gradient."""

    inner: object
    seen: list = field(default_factory=list, repr=False)

    def open(self, loss, agents, seed):
        recorder = _Recorder()
        recorder.inner, recorder.seen = self.inner.open(loss, agents, seed), self.seen
        return recorder


class _Recorder(Sampler):
    def draw(self, start, count):
        return start, count, self.inner.draw(start, count)

    def gradient(self, x, samples):
        start, count, drawn = samples
        v = self.inner.gradient(x, drawn)
        self.seen.append(SimpleNamespace(start=start, count=count, x=x.copy(), v=v.copy()))
        return v
