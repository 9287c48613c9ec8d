"""Checks of what users hand to a graph."""

import operator
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.types import Array


def count(value: Any, name: str = "m", least: int = 1) -> int:
    """A whole number that is large enough."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    require(number >= least, f"{name} must be a whole number, at least {least}", repr(value), f"raise {name}")
    return number


def edge_pairs(edges: Any, m: int) -> Array:
    """Pairs (e, 2) with u < v, in range and without loops."""
    given = edges if isinstance(edges, np.ndarray) else list(edges)
    try:
        pairs = np.asarray(given) if len(given) else np.empty((0, 2), dtype=np.int64)
    except ValueError:
        pairs = np.empty(0)
    require(
        pairs.ndim == 2 and pairs.shape[1] == 2 and pairs.dtype.kind in "iu",
        "edges must be pairs of whole numbers",
        f"shape {pairs.shape} of {pairs.dtype}",
        "give one (u, v) per edge",
    )
    outside = pairs[(pairs < 0) | (pairs >= m)]
    require(
        not len(outside),
        f"agents must be numbered 0 to {m - 1}",
        outside[:1].tolist(),
        "raise m or renumber the agents",
    )
    loops = pairs[pairs[:, 0] == pairs[:, 1]]
    require(not len(loops), "an agent must not be its own neighbour", loops[:1].tolist(), "remove self-loops")
    return np.sort(pairs.astype(np.int64), axis=1)


def edge_weights(weights: Any, e: int) -> Array:
    """Positive, finite weights (e,), ones by default."""
    if weights is None:
        return np.ones(e)
    try:
        values = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("weights must be numbers", repr(weights), "give one number per edge") from None
    require(
        values.shape == (e,),
        f"weights must have one value per edge, shape ({e},)",
        values.shape,
        "match the edges",
    )
    bad = values[~(np.isfinite(values) & (values > 0))]
    require(
        not len(bad),
        "weights must be positive and finite",
        bad[:1].tolist(),
        "leave out edges without weight",
    )
    return values
