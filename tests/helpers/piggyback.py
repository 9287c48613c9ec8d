"""Networks and numbers for tests of what rides on exchanges."""

import numpy as np

import gradslide as gs
from gradslide import network
from gradslide.network import Counted
from gradslide.results.costs import Costs

GRAPHS = {
    "ring 9": gs.Graph.ring(9),
    "ring 10": gs.Graph.ring(10),
    "star": gs.Graph.star(8),
    "path 7": gs.Graph.path(7),
    "path 8": gs.Graph.path(8),
    "pair": gs.Graph.path(2),
    "complete": gs.Graph.complete(6),
    "grid": gs.Graph.grid(3, 5),
    "random": gs.Graph.random(25, 4, seed=2),
    "sparse": gs.Graph.random(40, 3, seed=5),
    "alone": gs.Graph.path(1),
}
GRAPH = GRAPHS["random"]
CONDITIONS = {
    "lossy": lambda inner: network.Lossy(inner, 0.5),
    "lossy each": lambda inner: network.Lossy(inner, 0.5, direction="each"),
    "bursty": lambda inner: network.Bursty(inner, 0.3),
    "sleeping": lambda inner: network.Sleeping(inner, 0.3),
    "varying": lambda inner: network.Varying(inner, up=0.6),
    "in turn": lambda inner: network.Varying(inner, graphs=[inner.graph.edges[::2], inner.graph.edges[1::2]]),
    "stragglers": lambda inner: network.Stragglers(inner, 0.4, late=0.9),
    "noisy": lambda inner: network.Noisy(inner, 1.0),
    "compressed": lambda inner: network.Compressed(inner, gs.compressors.TopK(k=1)),
    "delayed": lambda inner: network.Delayed(inner, 0.0),
    "counted": lambda inner: Counted(inner, Costs()),
    "many": lambda inner: network.Lossy(
        network.Noisy(network.Compressed(network.Delayed(inner, 0), gs.compressors.Quantization(levels=4)), 0.1), 0.3
    ),
}


def integers(m, n=2, seed=0):
    """Numbers whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-1000, 1000, size=(m, n)).astype(float)


def exchange(net, times=1):
    for _ in range(times):
        net.combine(np.ones((net.m, 3)), net.laplacian)


def loss_of(m, d=3):
    rng = np.random.default_rng(0)
    return gs.losses.Logistic(rng.normal(size=(4 * m, d)), rng.choice([-1.0, 1.0], size=4 * m), agents=m)
