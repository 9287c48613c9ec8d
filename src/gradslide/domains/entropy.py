"""The probability simplex with the entropy: distances are Kullback-Leibler divergences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import at_least, doubles
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.domains.base import Domain, in_dtype
from gradslide.domains.parameters import Fit, checked, unset
from gradslide.domains.simplex import project_on_simplex

# Shares of the simplex below so many times the smallest normal number are 0.
_NOTHING = 1e12


@dataclass(frozen=True, eq=False)
class EntropySimplex(Domain):
    """The probability simplex with nu(x) = sum_j x_j log(x_j / center_j), 1-strongly convex in l1.

    V is the Kullback-Leibler divergence, and the prox step is a softmax.

    Parameters
    ----------
    center : array_like, optional
        Where nu is smallest: positive, of sum 1, (d,) or (m, d); uniform by default.
    """

    center: Array | None = field(default=None, kw_only=True)
    _log_center: Array = field(init=False, repr=False, default_factory=unset)

    row_fields: ClassVar[tuple[str, ...]] = ("center", "_log_center")

    def __post_init__(self) -> None:
        if self.center is None:
            return
        center = np.atleast_1d(checked("center", self.center))
        require(
            bool(np.all(center > 0)),
            "center must be positive",
            self.center,
            "give a point inside the simplex",
        )
        sums = np.sum(center, axis=-1)
        require(bool(np.all(np.abs(sums - 1) <= 1e-6)), "center must sum to 1", f"sum {sums}", "divide by the sum")

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        center = 1 / fit.d if self.center is None else self.center
        exact = Fit(fit.m, fit.d, np.float64).vector("center", center)
        exact /= np.sum(exact, axis=-1, keepdims=True)
        return {"center": exact.astype(fit.dtype), "_log_center": np.log(exact).astype(fit.dtype)}

    @property
    def norm(self) -> int:
        return 1

    @property
    def bounded(self) -> bool:
        return True

    def nu(self, x: Array) -> Array:
        x = doubles(x)
        return array_namespace(x).vecdot(x, safe_log(x) - self._log_center)

    def grad_nu(self, x: Array) -> Array:
        return safe_log(x) - self._log_center + 1

    def V(self, a: Array, x: Array) -> Array:
        a, x = doubles(a), doubles(x)
        xp = array_namespace(x)
        terms = x * (safe_log(x) - safe_log(a)) - x + a
        return at_least(xp.sum(terms, axis=-1), 0)

    def r(self, x: Array) -> Array:
        return doubles(array_namespace(x).zeros_like(x[:, 0]))

    def prox(self, theta: Array, scale: Array | float) -> Array:
        xp = array_namespace(theta)
        exponent = theta / in_dtype(scale, theta) + self._log_center
        weight = xp.exp(exponent - xp.max(exponent, axis=-1, keepdims=True))
        # Subnormal numbers would make every product with x many times slower.
        weight = xp.where(weight < _NOTHING * float(xp.finfo(weight.dtype).smallest_normal), 0, weight)
        return weight / xp.sum(weight, axis=-1, keepdims=True)

    def linear_minimum(self, c: Array, mu: float = 0.0) -> Array:
        c, mu = doubles(c), float(mu)
        xp = array_namespace(c)
        if mu == 0:
            return xp.min(c, axis=-1)
        exponent = self._log_center - c / mu
        largest = xp.max(exponent, axis=-1, keepdims=True)
        return -mu * (largest[:, 0] + xp.log(xp.sum(xp.exp(exponent - largest), axis=-1)))

    def project(self, x: Array) -> Array:
        """Return the Euclidean projection, moved inside by a rounding error where it has zeros."""
        xp = array_namespace(x)
        nearest = project_on_simplex(x, 1)
        inside = at_least(nearest, float(xp.finfo(x.dtype).eps) / self.d)
        return inside / xp.sum(inside, axis=-1, keepdims=True)

    def start(self) -> Array:
        xp = array_namespace(self.center)
        return xp.asarray(xp.broadcast_to(self.center, (self.m, self.d)), copy=True)

    def distance_bound(self, x0: Array) -> Array:
        return -array_namespace(x0).min(safe_log(x0), axis=-1)


def safe_log(x: Array) -> Array:
    """Return log x, with x clipped at the smallest normal number, so that x = 0 gives a finite
    number.
    """
    xp = array_namespace(x)
    return xp.log(at_least(x, float(xp.finfo(x.dtype).smallest_normal)))
