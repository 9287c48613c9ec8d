"""Domains as flat arrays, the form that compiled inner loops take."""

from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array, Parameter
from gradslide.domains import Box, Domain, Euclidean, Free, L1Ball, L2Ball, NonNegative, PerAgent, Simplex
from gradslide.domains.penalties import L1

# Kinds of set.
INTERVALS, L2_BALL, L1_BALL, SIMPLEX = range(4)
_KINDS: dict[type[Euclidean], int] = {
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
        return self.common_kind == INTERVALS

    @property
    def common_kind(self) -> int | None:
        """The kind of all sets, or None if they differ."""
        return int(self.kind[0]) if np.all(self.kind == self.kind[0]) else None

    @property
    def intervals(self) -> tuple[Array, ...]:
        """Center, weight, lo and hi."""
        return self.center, self.weight, self.lo, self.hi


def sets_of(domain: Domain) -> Sets | None:
    """Return a domain as arrays, or None if there is no compiled code for it or its penalty."""
    parts = domain.parts if isinstance(domain, PerAgent) else ((domain, np.arange(domain.m)),)
    known = [(part, members) for part, members in parts if _is_known(part)]
    if len(known) < len(parts):
        return None
    if len(known) == 1:
        return Sets(**{name: _flat(value) for name, value in _parameters(known[0][0]).items()})
    whole: dict[str, Array] = {}
    for part, members in known:
        for name, value in _parameters(part).items():
            if name not in whole:
                whole[name] = np.empty((domain.m, *value.shape[1:]), dtype=value.dtype)
            whole[name][to_numpy(members)] = value
    return Sets(**{name: _flat(value) for name, value in whole.items()})


def _is_known(part: Domain) -> TypeGuard[Euclidean]:
    if not isinstance(part, Euclidean) or type(part) not in _KINDS:
        return False
    return type(part.penalty) in (type(None), L1) and part.weights is None


def _parameters(part: Euclidean) -> dict[str, Array]:
    row = np.ones((1, part.d), dtype=part.dtype)
    found: dict[str, Parameter] = {
        "center": part.center,
        "weight": part.penalty.weight if isinstance(part.penalty, L1) else 0 * row,
        "lo": -np.inf * row,
        "hi": np.inf * row,
        "origin": 0 * row,
        "kind": np.array([_KINDS[type(part)]]),
        "radius": row[:, :1],
    }
    if isinstance(part, Box):
        found |= {"lo": part.lo, "hi": part.hi}
    elif isinstance(part, L2Ball | L1Ball):
        found |= {"origin": part.origin, "radius": part.radius}
    elif isinstance(part, Simplex):
        found |= {"radius": part.total}
    arrays = {name: to_numpy(value) for name, value in found.items()}
    return arrays | {"radius": arrays["radius"][:, 0]}


def _flat(value: Array) -> Array:
    """Return a flat, writable array: for a read-only one numba would compile another version."""
    return np.require(value, requirements=["C", "W"]).reshape(-1)
