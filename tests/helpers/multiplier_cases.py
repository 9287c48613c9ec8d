"""Graphs and checks that methods of multipliers share."""

import numpy as np

import gradslide as gs


def weighted(m=6):
    """Links of several weights."""
    pairs = gs.Graph.random(m, 3, seed=2).edges
    return gs.Graph.from_edges(m, pairs, weights=np.linspace(0.5, 2.0, len(pairs)))


GRAPHS = [gs.Graph.ring(6), gs.Graph.star(6), weighted(), gs.Graph.grid(2, 3)]


def errors_of(problem, graph, method, iterations, every):
    """Distances to the optimum, now and then."""
    optimum, seen = gs.reference.reference(problem).x, []

    def look(record, x):
        if record.iteration % every == 0:
            seen.append(float(np.linalg.norm(x - optimum)))

    stop = gs.Stop(iterations=iterations)
    gs.solve(problem, graph, method, stop=stop, callback=look, record_every=iterations)
    return np.array(seen)


def check_linear(errors):
    """A straight line in a logarithmic plot: no stretch of it is much flatter than all of it."""
    slopes = np.diff(np.log(errors[errors > 1e-6 * errors[0]])[::3])
    assert len(slopes) >= 1
    assert slopes.mean() < -0.5
    assert slopes.max() < 0.3 * slopes.mean()
