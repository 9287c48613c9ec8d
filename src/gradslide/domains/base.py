"""What every method asks of a domain."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, overload

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import like
from gradslide._support.deprecation import rename_hooks
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.domains.parameters import Fit, Parameters


@dataclass(frozen=True, eq=False)
class Domain(Parameters, abc.ABC):
    """(X, nu, r): a closed convex set, a function 1-strongly convex in `norm`, and a penalty.

    x is (m, d), row i of agent i; every method works on all agents at once. `bind` comes first: the other
    methods hold for the domain that it returns.
    """

    m: int = field(init=False, repr=False, default=0)
    d: int = field(init=False, repr=False, default=0)
    dtype: Any = field(init=False, repr=False, default=None)
    weights: Array | None = field(init=False, repr=False, default=None)
    """Where coordinates are weighted: nu(x) = 1/2 sum_j weights_j (x_j - center_j)^2."""
    device: Any = field(init=False, repr=False, default=None)
    """Where its arrays are; None for NumPy's."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        rename_hooks(cls, {"_bound": "bind_fields", "_project": "project", "_linear_minimum": "minimize_linear"})

    def bind(self, m: int, d: int, dtype: Any) -> Domain:
        """The domain checked against m agents in d dimensions, its parameters arrays of a floating dtype."""
        dtype = np.dtype(dtype)
        require(dtype.kind == "f", "dtype must be floating", dtype, "use float64 or float32")
        return self.replaced(m=m, d=d, dtype=dtype, **self.bind_fields(Fit(m, d, dtype)))

    def to(self, device: Any) -> Self:
        return super().to(device).replaced(device=device)

    def take(self, agents: Sequence[int] | Array) -> Domain:
        """The domain of these agents, in this order."""
        chosen = np.asarray(agents, dtype=np.intp)
        return self.rows_of(chosen).replaced(m=len(chosen))

    @abc.abstractmethod
    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        """The parameters, brought to the problem's shapes."""

    @property
    @abc.abstractmethod
    def norm(self) -> int:
        """The norm in which nu is 1-strongly convex: 2 or 1."""

    @property
    def euclidean(self) -> bool:
        """Whether nu is half a squared Euclidean distance."""
        return self.norm == 2

    @property
    @abc.abstractmethod
    def bounded(self) -> bool:
        """Whether X is bounded, for all agents."""

    @abc.abstractmethod
    def nu(self, x: Array) -> Array:
        """nu(x_i), (m,)."""

    @abc.abstractmethod
    def grad_nu(self, x: Array) -> Array:
        """The gradient of nu, (m, d)."""

    @abc.abstractmethod
    def V(self, a: Array, x: Array) -> Array:
        """nu(x) - nu(a) - <grad_nu(a), x - a>, (m,)."""

    @abc.abstractmethod
    def r(self, x: Array) -> Array:
        """The penalty r(x_i), (m,)."""

    @abc.abstractmethod
    def prox(self, theta: Array, scale: Array | float) -> Array:
        """argmin over X of scale nu(x) + r(x) - <theta, x>, (m, d).

        scale: positive, a number or (m, 1); 0 is allowed where an elastic net makes r strongly convex.
        """

    @abc.abstractmethod
    def linear_minimum(self, c: Array, mu: float = 0.0) -> Array:
        """min over X of mu nu(x) + r(x) + <c, x>, (m,); -inf where it is unbounded below."""

    @abc.abstractmethod
    def project(self, x: Array) -> Array:
        """The point of X nearest to x in the Euclidean norm, as a new array."""

    @abc.abstractmethod
    def start(self) -> Array:
        """The minimiser of nu over X, (m, d)."""

    @abc.abstractmethod
    def distance_bound(self, x0: Array) -> Array:
        """An upper bound of max over X of V(x0, x), (m,); inf where X is unbounded."""

    def without_penalty(self) -> Domain:
        """The same set and nu, with r = 0."""
        return self

    def contains(self, x: Array, tolerance: float) -> Array:
        """Whether no coordinate of x_i is further than the tolerance from its projection on X, (m,) bool."""
        xp = array_namespace(x)
        return xp.all(xp.abs(x - self.project(x)) <= tolerance, axis=-1)


@overload
def in_dtype(scale: Array, other: Array) -> Array: ...
@overload
def in_dtype(scale: Array | float, other: Array) -> Array | float: ...
def in_dtype(scale: Array | float, other: Array) -> Array | float:
    """A number or array of weights that does not raise the precision of the other, and is where that is."""
    if isinstance(scale, int | float):
        return float(scale)
    return array_namespace(other).astype(like(scale, other), other.dtype, copy=False)
