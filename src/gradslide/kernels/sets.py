"""Domains as flat arrays, the form that compiled inner loops take."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array
from gradslide.domains import Box, Domain, Free, L1Ball, L2Ball, NonNegative, PerAgent, Simplex
from gradslide.domains.penalties import L1

# Kinds of set.
INTERVALS, L2_BALL, L1_BALL, SIMPLEX = range(4)
_KINDS: dict[type[Any], int] = {
    Free: INTERVALS,
    Box: INTERVALS,
    NonNegative: INTERVALS,
    L2Ball: L2_BALL,
    L1Ball: L1_BALL,
    Simplex: SIMPLEX,
}


@dataclass(frozen=True)
class Sets:
    """The prox step of each agent, or one for all.

    (scale center + theta)/scale is soft-thresholded by weight/scale, clipped to [lo, hi] and
    projected on the set that `kind` names.

    Attributes
    ----------
    center, weight, lo, hi, origin : Array
        Shape (1 or m, d), flat. `origin` is the centre of a ball.
    kind, radius : Array
        Shape (1 or m,).
    """

    center: Array
    weight: Array
    lo: Array
    hi: Array
    origin: Array
    kind: Array
    radius: Array

    @property
    def are_separable(self) -> bool:
        """Whether all sets are products of intervals."""
        return bool(np.all(self.kind == INTERVALS))

    @property
    def intervals(self) -> tuple[Array, ...]:
        """Center, weight, lo and hi."""
        return self.center, self.weight, self.lo, self.hi


def sets_of(domain: Domain) -> Sets | None:
    """Return a domain as arrays, or None if there is no compiled code for it or its penalty."""
    parts = domain.parts if isinstance(domain, PerAgent) else ((domain, np.arange(domain.m)),)
    if not all(_is_known(part) for part, _ in parts):
        return None
    if len(parts) == 1:
        return Sets(**{name: _flat(value) for name, value in _parameters(parts[0][0]).items()})
    whole: dict[str, Array] = {}
    for part, members in parts:
        for name, value in _parameters(part).items():
            if name not in whole:
                whole[name] = np.empty((domain.m, *value.shape[1:]), dtype=value.dtype)
            whole[name][to_numpy(members)] = value
    return Sets(**{name: _flat(value) for name, value in whole.items()})


def _is_known(part: Any) -> bool:
    return type(part) in _KINDS and type(part.penalty) in (type(None), L1) and part.weights is None


def _parameters(part: Any) -> dict[str, Array]:
    kind, row = _KINDS[type(part)], np.ones((1, part.d), dtype=part.dtype)
    radius = part.total if kind == SIMPLEX else getattr(part, "radius", row[:, :1])
    found = {
        "center": part.center,
        "weight": 0 * row if part.penalty is None else part.penalty.weight,
        "lo": getattr(part, "lo", -np.inf * row),
        "hi": getattr(part, "hi", np.inf * row),
        "origin": getattr(part, "origin", 0 * row),
        "kind": np.array([kind]),
        "radius": radius[:, 0],
    }
    return {name: to_numpy(value) for name, value in found.items()}


def _flat(value: Array) -> Array:
    """Return a flat, writable array: for a read-only one numba would compile another version."""
    return np.require(value, requirements=["C", "W"]).reshape(-1)
