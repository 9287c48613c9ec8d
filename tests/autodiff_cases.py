"""Data on which losses by automatic differentiation are held against those of the library."""

import numpy as np

import gradslide as gs

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
