"""Domains with nu(x) = 1/2 |x - center|^2: everything follows from projection and linear minimum."""

from __future__ import annotations

import abc
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles
from gradslide._support.errors import require
from gradslide._support.types import Array, Parameter
from gradslide.domains.base import Domain, in_dtype
from gradslide.domains.parameters import Fit, checked
from gradslide.domains.penalties import GroupL1, Penalty


@dataclass(frozen=True, eq=False)
class Euclidean(Domain):
    """A set X with nu(x) = 1/2 |x - center|^2; base class of Euclidean domains.

    A subclass overrides `project` and `minimize_linear`, and for a bounded set `bounded` and
    `distance_bound`. Parameters are dataclass fields; name those that may differ between agents in
    `row_fields`, and bring them to shape in `bind_fields`.

    Parameters
    ----------
    penalty : Penalty, optional
        The penalty r. Allowed are those whose prox, followed by the projection on X, is the prox of
        both: the class variable `penalties` names them.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).
    """

    penalty: Penalty | None = field(default=None, kw_only=True)
    center: Parameter = field(default=0.0, kw_only=True)

    row_fields: ClassVar[tuple[str, ...]] = ("penalty", "center", "weights")
    norm: ClassVar[int] = 2
    """The norm in which nu is 1-strongly convex."""
    euclidean: ClassVar[bool] = True
    """Whether nu is half a squared Euclidean distance."""
    constrained: ClassVar[bool] = True
    """Whether X is not all of R^d."""
    separable: ClassVar[bool] = False
    """Whether X is a product of intervals."""
    penalties: ClassVar[tuple[type[Penalty], ...]] = ()
    """Kinds of penalty that the set can be combined with."""

    def __post_init__(self) -> None:
        checked("center", self.center)
        name, allowed = type(self).__name__, [kind.__name__ for kind in self.penalties]
        require(
            self.penalty is None or isinstance(self.penalty, self.penalties),
            f"{name} can be combined with {', '.join(allowed) or 'no penalty'}",
            repr(self.penalty),
            "remove the penalty or choose another set",
        )

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        """Bring penalty and center to shape; subclasses add their own fields."""
        penalty = None if self.penalty is None else self.penalty.bind(fit)
        return {"penalty": penalty, "center": fit.vector("center", self.center)}

    @abc.abstractmethod
    def minimize_linear(self, c: Array) -> Array:
        """Return the minimum over X of h(x) + <c, x>. Subclasses override it.

        Parameters
        ----------
        c : ndarray, shape (m, d)
            Linear term.

        Returns
        -------
        ndarray, shape (m,)
            -inf where it is unbounded below.

        Notes
        -----
        h is the positively homogeneous part of the penalty r, 0 without one. `beyond_penalty(c)` is
        the part of c that h cannot outweigh.
        """

    def kind(self) -> Hashable:
        """Return the kind of set and penalty: agents of one kind can be stacked."""
        return type(self), None if self.penalty is None else self.penalty.kind()

    def weighted(self, weights: Array) -> Self:
        """Return the same set and penalty, with weighted coordinates in nu.

        Parameters
        ----------
        weights : array_like, shape (d,) or (m, d)
            Positive weights.

        Returns
        -------
        Euclidean
        """
        name = type(self).__name__
        separable = self.separable and not isinstance(self.penalty, GroupL1)
        rule = "coordinates can be weighted in Free, Box and NonNegative, without GroupL1"
        require(separable, rule, name, "leave the weights (the scaling) out")
        return self.replaced(weights=Fit(self.m, self.d, self.dtype).vector("weights", weights))

    def nu(self, x: Array) -> Array:
        return self.V(self.center, x)

    def grad_nu(self, x: Array) -> Array:
        offset = x - self.center
        return offset if self.weights is None else self.weights * offset

    def V(self, a: Array | float, x: Array) -> Array:
        offset = x - a
        return half_square(offset if self.weights is None else array_namespace(x).sqrt(self.weights) * offset)

    def r(self, x: Array) -> Array:
        if self.penalty is None:
            return doubles(array_namespace(x).zeros_like(x[:, 0]))
        return self.penalty.value(x)

    def prox(self, theta: Array, scale: Array | float) -> Array:
        scale = in_dtype(scale, theta)
        if self.weights is not None:
            scale = scale * self.weights
        # One division for all coordinates; compiled inner loops do the same, to the bit.
        step = 1 / (scale if self.penalty is None else scale + self.penalty.l2)
        v = (scale * self.center + theta) * step
        v = v if self.penalty is None else self.penalty.shrink(v, step)
        return self.project(v) if self.constrained else v

    def linear_minimum(self, c: Array, mu: float = 0.0) -> Array:
        mu = float(mu)
        if mu > 0 or (self.penalty is not None and self.penalty.is_strong):
            x = self.prox(-c, mu)
            return mu * self.nu(x) + self.r(x) + array_namespace(c).vecdot(doubles(c), doubles(x))
        return doubles(self.minimize_linear(c))

    def beyond_penalty(self, c: Array) -> Array:
        """Return the part of c that h cannot outweigh: 0 exactly where <c, x> + h(x) >= 0 for all
        x.
        """
        return c if self.penalty is None else self.penalty.shrink(c, 1.0)

    def without_penalty(self) -> Self:
        return self.replaced(penalty=None)

    def start(self) -> Array:
        return self.project(array_namespace(self.center).broadcast_to(self.center, (self.m, self.d)))

    @property
    def bounded(self) -> bool:
        return False

    def distance_bound(self, x0: Array) -> Array:
        return array_namespace(x0).full_like(x0[:, 0], np.inf)


def half_square(v: Array) -> Array:
    """Return 1/2 |v_i|^2 per agent, shape (m,), in double precision."""
    v = doubles(v)
    return array_namespace(v).vecdot(v, v) / 2


def length(v: Array) -> Array:
    """Return |v_i|_2 per agent, shape (m, 1)."""
    return array_namespace(v).linalg.vector_norm(v, axis=-1, keepdims=True)
