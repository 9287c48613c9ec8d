"""Measure the time of an exchange with each fault wrapper, relative to one on a reliable network.

    python benchmarks/faults.py

One BLAS thread. CPU seconds, the best of many interleaved rounds.
"""

import time
from collections.abc import Callable

import numpy as np

import gradslide as gs

AGENTS, DIMENSIONS, EXCHANGES, ROUNDS = 1000, 20, 20, 50
GRAPHS = {
    "random, degree <= 4": gs.Graph.random(AGENTS, 4, seed=1),
    "random, degree <= 9": gs.Graph.random(AGENTS, 9, seed=1, edges=4 * AGENTS),
    "ring": gs.Graph.ring(AGENTS),
}
FAULTS: dict[str, Callable[[gs.network.Network], gs.network.Network]] = {
    "Lossy, both": lambda local: gs.network.Lossy(local, 0.1),
    "Lossy, each": lambda local: gs.network.Lossy(local, 0.1, direction="each"),
    "Lossy, each, a half": lambda local: gs.network.Lossy(local, 0.5, direction="each"),
    "Bursty, both": lambda local: gs.network.Bursty(local, 0.1),
    "Bursty, each": lambda local: gs.network.Bursty(local, 0.1, direction="each"),
    "Sleeping": lambda local: gs.network.Sleeping(local, 0.1),
    "Varying, at random": lambda local: gs.network.Varying(local, up=0.7),
    "Varying, in turn": lambda local: gs.network.Varying(
        local, graphs=[local.graph.edges[::2], local.graph.edges[1::2]]
    ),
    "Stragglers": lambda local: gs.network.Stragglers(local, 0.1),
    "Lossy around Sleeping": lambda local: gs.network.Lossy(gs.network.Sleeping(local, 0.1), 0.1),
    "Noisy": lambda local: gs.network.Noisy(local, 0.1),
    "Compressed, top 10%": lambda local: gs.network.Compressed(local, gs.compressors.TopK(share=0.1)),
    "Compressed, 16 levels": lambda local: gs.network.Compressed(local, gs.compressors.Quantization()),
}


def seconds(network: gs.network.Network, v: np.ndarray) -> float:
    weights = network.laplacian
    started = time.process_time()
    for _ in range(EXCHANGES):
        network.combine(v, weights)
    return (time.process_time() - started) / EXCHANGES


def ratios(graph: gs.Graph, dtype: type) -> tuple[float, dict[str, float]]:
    """Return the seconds of a plain exchange, and the multiples of it with each fault."""
    local = gs.network.Local(graph)
    networks = {"": local} | {name: make(local) for name, make in FAULTS.items()}
    v = np.random.default_rng(0).normal(size=(graph.m, DIMENSIONS)).astype(dtype)
    times = np.array([[seconds(network, v) for network in networks.values()] for _ in range(ROUNDS)])
    plain, *others = np.min(times, axis=0)
    return plain, dict(zip(FAULTS, np.array(others) / plain, strict=True))


def main() -> None:
    for name, graph in GRAPHS.items():
        for dtype in (np.float64, np.float32):
            plain, found = ratios(graph, dtype)
            kind = np.dtype(dtype).name
            print(f"\n{name}: m={AGENTS} d={DIMENSIONS} {kind}, {len(graph.edges)} links, {1e6 * plain:.0f} us plain")
            for fault, ratio in found.items():
                print(f"  {fault:<24}{ratio:5.1f} x")


if __name__ == "__main__":
    main()
