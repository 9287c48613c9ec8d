"""Losses of every kind over every layout of rows, with naive twins."""

import numpy as np
import scipy.sparse as sp

from gradslide.losses import Huber, LeastSquares, Logistic, Poisson, SmoothedHinge, Softmax

M, N, P, K = 4, 23, 3, 3


DELTA, GAMMA = 0.7, 0.6


def naive_logistic(scores, y):
    return np.log(1 + np.exp(-y * scores[0]))


def naive_square(scores, b):
    return (scores[0] - b) ** 2 / 2


def naive_huber(scores, b):
    r = abs(scores[0] - b)
    return r**2 / 2 if r <= DELTA else DELTA * (r - DELTA / 2)


def naive_hinge(scores, y):
    z = y * scores[0]
    if z >= 1:
        return 0.0
    return (1 - z) ** 2 / (2 * GAMMA) if z > 1 - GAMMA else 1 - z - GAMMA / 2


def naive_softmax(scores, label):
    return np.log(np.exp(scores).sum()) - scores[label]


def naive_poisson(scores, count):
    """Half the deviance."""
    constant = count * np.log(count) - count if count > 0 else 0.0
    return np.exp(scores[0]) - count * scores[0] + constant


# name -> constructor, kind of targets, naive phi, curvature in norms 1 and 2 (None: not bounded)
KINDS = {
    "logistic": (Logistic, "signs", naive_logistic, {1: 0.25, 2: 0.25}),
    "squares": (LeastSquares, "numbers", naive_square, {1: 1.0, 2: 1.0}),
    "huber": (lambda *a, **k: Huber(*a, delta=DELTA, **k), "numbers", naive_huber, {1: 1.0, 2: 1.0}),
    "hinge": (
        lambda *a, **k: SmoothedHinge(*a, gamma=GAMMA, **k),
        "signs",
        naive_hinge,
        {1: 1 / GAMMA, 2: 1 / GAMMA},
    ),
    "softmax": (lambda *a, **k: Softmax(*a, classes=K, **k), "classes", naive_softmax, {1: 0.25, 2: 0.5}),
    "poisson": (Poisson, "counts", naive_poisson, None),
}
# Those with a smoothness constant on all of R^d.
SMOOTH = [kind for kind in KINDS if KINDS[kind][3] is not None]


LAYOUTS = ["equal", "two sizes", "ragged", "splits", "sparse", "sparse equal"]


def make_data(kind, n=N, seed=0):
    rng = np.random.default_rng(seed)
    targets = {
        "signs": rng.choice([-1, 1], size=n),
        "numbers": rng.standard_normal(n),
        "classes": rng.integers(K, size=n),
        "counts": rng.poisson(2.0, size=n),
    }[KINDS[kind][1]]
    return rng.standard_normal((n, P)), targets, rng.uniform(0.2, 2.0, n)


def make_splits(layout):
    """Row numbers of each agent, and the keywords that ask for them."""
    if layout in ("equal", "sparse equal"):
        rows = np.split(np.arange(20), M)
        return rows, {"splits": rows}
    if layout in ("two sizes", "sparse"):
        return np.array_split(np.arange(N), M), {"agents": M}
    if layout == "ragged":  # ten different sizes in a row: beyond what is done by dense runs
        rows = np.split(np.arange(N), np.cumsum([1, 4, 1, 3, 1, 2, 1, 3, 2]))
        return rows, {"splits": rows}
    order = np.random.default_rng(5).permutation(N)
    rows = [order[:7], order[7:9], order[5:20], order[20:]]
    return rows, {"splits": rows, "allow_overlap": True}


def make_loss(kind, layout="two sizes", *, weighted=False, reduction="sum", dtype=np.float64):
    features, targets, weights = make_data(kind)
    features = features.astype(dtype)
    rows, keywords = make_splits(layout)
    given_features = sp.csc_matrix(features) if layout.startswith("sparse") else features
    loss = KINDS[kind][0](
        given_features,
        targets,
        sample_weight=weights if weighted else None,
        reduction=reduction,
        **keywords,
    )
    factors = []
    for own in rows:
        w = weights[own] if weighted else np.ones(len(own))
        factors.append(w / w.sum() if reduction == "mean" else w)
    return loss, features, targets, rows, factors


def point(loss, seed=1, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((loss.m, loss.d)).astype(loss.dtype)


def make_quadratic(m=3, d=4, seed=0, rank=None):
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((m, rank or d, d))
    return B.swapaxes(1, 2) @ B, rng.standard_normal((m, d))
