"""Data on which losses by automatic differentiation are held against those of the library."""

import numpy as np

import gradslide as gs
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
