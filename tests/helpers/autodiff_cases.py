"""Data on which losses by automatic differentiation are held against those of the library."""

import numpy as np

import gradslide as gs
from gradslide.losses import autodiff
from gradslide.oracles import WithoutReplacement, WithReplacement

P, K = 4, 3


def data(kind, sizes):
    rng = np.random.default_rng(0)
    n = sum(sizes)
    features = rng.normal(size=(n, P))
    targets = {"logistic": rng.integers(2, size=n).astype(float), "softmax": rng.integers(K, size=n)}
    return features, targets.get(kind, rng.normal(size=n)), np.split(np.arange(n), np.cumsum(sizes)[:-1])


def built_in(kind, sizes, **more):
    features, targets, splits = data(kind, sizes)
    makers = {"logistic": gs.losses.Logistic, "squares": gs.losses.LeastSquares, "softmax": gs.losses.Softmax}
    if kind == "softmax":
        more = {"classes": K, **more}
    return makers[kind](features, targets, splits=splits, **more)


def identified(kind, x):
    """What the data determine of x: vectors common to all classes change no value of softmax.

    It has no curvature along them, so that rounding moves Newton's method there.
    """
    if kind != "softmax":
        return x
    classes = x.reshape(-1, K, P)
    return (classes - classes.mean(axis=1, keepdims=True)).reshape(x.shape)


def assert_same_values(loss, expected, x, close):
    """Values and gradients, together and apart."""
    value, gradient = loss.value_and_gradient(x)
    close(value, expected.value(x))
    close(gradient, expected.gradient(x))
    close(loss.value(x), value)
    close(loss.gradient(x), gradient)


def assert_same_samples(loss, expected, x, close, *, batches, drawn):
    """Of batches, and of what ways of sampling draw."""
    for batch in batches:
        streams = [np.random.default_rng(3).spawn(loss.m) for _ in range(2)]
        close(loss.sample_gradient(x, batch, streams[0]), expected.sample_gradient(x, batch, streams[1]))
    for sampling in (WithReplacement(), WithoutReplacement()):
        ours, theirs = (sampling.open(one, range(loss.m), 7) for one in (loss, expected))
        close(ours.gradient(x, ours.draw(2, drawn)), theirs.gradient(x, theirs.draw(2, drawn)))


def assert_same_hessians(loss, expected, x, close, monkeypatch):
    """At once, in pieces of agents and directions, and summed."""
    assert loss.has_hessian
    hessian = expected.hessian(x)
    value, gradient, found = loss.derivatives(x)
    for one, other in ((value, loss.value(x)), (gradient, loss.gradient(x)), (found, hessian)):
        close(one, other)
    assert found.dtype == np.float64
    for entries in (1, 40, 100):
        monkeypatch.setattr(autodiff, "_PRODUCT_ENTRIES", entries)
        close(loss.hessian(x), hessian)
    monkeypatch.setattr(autodiff, "_MOST_HESSIANS", 10)
    close(loss.derivatives(x)[2], hessian.sum(axis=0, keepdims=True))
    close(loss.take([1, 0]).hessian(x[:2]), expected.take([1, 0]).hessian(x[:2]))


def assert_newton_agrees(loss, expected):
    """Same steps as with the built-in loss."""
    stop = gs.Stop(kkt=gs.Relative(1e-9), iterations=50)
    problems = [gs.Problem(each, mu=0.1) for each in (loss, expected)]
    ours, theirs = (gs.solve(each, gs.Graph.ring(loss.m), gs.Newton(), stop=stop) for each in problems)
    assert ours.status is gs.Status.CONVERGED
    assert ours.costs.hessians == theirs.costs.hessians
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-9, atol=1e-9)
