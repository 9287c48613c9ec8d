"""The interface of domains."""

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
from gradslide._support.types import Array, Device, DType
from gradslide.domains.parameters import Fit, Parameters


@dataclass(frozen=True, eq=False)
class Domain(Parameters, abc.ABC):
    """A closed convex set X, a distance-generating function nu, and a penalty r, for every agent.

    nu is 1-strongly convex in `norm`. The Bregman distance is
    V(a, x) = nu(x) - nu(a) - <grad nu(a), x - a>. Arrays x have shape (m, d), row i belongs to
    agent i, and every method works on all agents at once. Except for `bind`, methods are those of
    the bound domain that `bind` returns.

    Attributes
    ----------
    m : int
        Number of agents.
    d : int
        Dimension of x_i.
    dtype : numpy.dtype
        Floating type of its arrays.
    weights : ndarray or None
        Weights of the coordinates in nu, if any: nu(x) = 1/2 sum_j weights_j (x_j - center_j)^2.
    device : object or None
        Device of its arrays; None for NumPy.
    """

    m: int = field(init=False, repr=False, default=0)
    d: int = field(init=False, repr=False, default=0)
    dtype: np.dtype[Any] = field(init=False, repr=False, default=np.dtype(np.float64))
    weights: Array | None = field(init=False, repr=False, default=None)
    """Where coordinates are weighted: nu(x) = 1/2 sum_j weights_j (x_j - center_j)^2."""
    device: Device = field(init=False, repr=False, default=None)
    """Where its arrays are; None for NumPy's."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        rename_hooks(cls, {"_bound": "bind_fields", "_project": "project", "_linear_minimum": "minimize_linear"})

    def bind(self, m: int, d: int, dtype: DType) -> Domain:
        """Check the domain against a problem and bring its parameters to shape.

        Parameters
        ----------
        m : int
            Number of agents.
        d : int
            Dimension of x_i.
        dtype : dtype_like
            Floating type: float64 or float32.

        Returns
        -------
        Domain
            The bound domain.

        Raises
        ------
        InputError
            If a parameter does not fit the problem, or dtype is not floating.
        """
        dtype = np.dtype(dtype)
        require(dtype.kind == "f", "dtype must be floating", dtype, "use float64 or float32")
        return self.replaced(m=m, d=d, dtype=dtype, **self.bind_fields(Fit(m, d, dtype)))

    def to(self, device: Device) -> Self:
        """Return the same bound domain with its arrays on a device.

        Parameters
        ----------
        device : str or device or None
            For example "cuda"; None for NumPy.

        Returns
        -------
        Domain
            A bound domain for arrays on that device.
        """
        return super().to(device).replaced(device=device)

    def take(self, agents: Sequence[int] | Array) -> Domain:
        """Return the domain of some agents.

        Parameters
        ----------
        agents : sequence of int
            Which agents, in which order.

        Returns
        -------
        Domain
            A bound domain with one row for each of them.
        """
        chosen = np.asarray(agents, dtype=np.intp)
        return self.rows_of(chosen).replaced(m=len(chosen))

    @abc.abstractmethod
    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        """Bring the parameters to the shapes of a problem. Subclasses override it.

        Parameters
        ----------
        fit : Fit
            `fit.vector(name, value)` gives shape (1, d) or (m, d), `fit.number(name, value)` gives
            (1, 1) or (m, 1).

        Returns
        -------
        dict
            New values of fields, by name. Extend the result of `super().bind_fields(fit)`.
        """

    @property
    @abc.abstractmethod
    def norm(self) -> int:
        """The norm in which nu is 1-strongly convex.

        Returns
        -------
        int
            2 for the Euclidean norm, 1 for the l1 norm.
        """

    @property
    def euclidean(self) -> bool:
        """Whether nu is half a squared Euclidean distance.

        Returns
        -------
        bool
            True where `norm` is 2.
        """
        return self.norm == 2

    @property
    @abc.abstractmethod
    def bounded(self) -> bool:
        """Whether X is bounded.

        Returns
        -------
        bool
            True if X is bounded for all agents.
        """

    @abc.abstractmethod
    def nu(self, x: Array) -> Array:
        """Return the distance-generating function nu.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            Points of X, one per agent.

        Returns
        -------
        ndarray, shape (m,)
            nu(x_i).
        """

    @abc.abstractmethod
    def grad_nu(self, x: Array) -> Array:
        """Return the gradient of nu.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            Points of X, one per agent.

        Returns
        -------
        ndarray, shape (m, d)
            The gradient of nu at x_i.
        """

    @abc.abstractmethod
    def V(self, a: Array, x: Array) -> Array:
        """Return the Bregman distance V(a, x) = nu(x) - nu(a) - <grad nu(a), x - a>.

        Parameters
        ----------
        a, x : ndarray, shape (m, d)
            Points of X, one per agent.

        Returns
        -------
        ndarray, shape (m,)
            V(a_i, x_i).
        """

    @abc.abstractmethod
    def r(self, x: Array) -> Array:
        """Return the penalty r.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m,)
            r(x_i); 0 without a penalty.
        """

    @abc.abstractmethod
    def prox(self, theta: Array, scale: Array | float) -> Array:
        """Return argmin over X of scale nu(x) + r(x) - <theta, x>.

        Parameters
        ----------
        theta : ndarray, shape (m, d)
            Linear term.
        scale : float or ndarray, shape (m, 1)
            Positive; 0 is allowed where an elastic net makes r strongly convex.

        Returns
        -------
        ndarray, shape (m, d)
            The minimizer of each agent.
        """

    @abc.abstractmethod
    def linear_minimum(self, c: Array, mu: float = 0.0) -> Array:
        """Return the minimum over X of mu nu(x) + r(x) + <c, x>.

        Parameters
        ----------
        c : ndarray, shape (m, d)
            Linear term.
        mu : float
            Weight of nu.

        Returns
        -------
        ndarray, shape (m,)
            -inf where it is unbounded below.
        """

    @abc.abstractmethod
    def project(self, x: Array) -> Array:
        """Return the point of X nearest to x in the Euclidean norm.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m, d)
            The projections, as a new array.
        """

    @abc.abstractmethod
    def start(self) -> Array:
        """Return the minimizer of nu over X.

        Returns
        -------
        ndarray, shape (m, d)
            The default starting point.
        """

    @abc.abstractmethod
    def distance_bound(self, x0: Array) -> Array:
        """Return an upper bound on V(x0, x) over all x in X.

        Parameters
        ----------
        x0 : ndarray, shape (m, d)
            Points of X, one per agent.

        Returns
        -------
        ndarray, shape (m,)
            inf where X is unbounded.
        """

    def without_penalty(self) -> Domain:
        """Return the same set and nu, with r = 0.

        Returns
        -------
        Domain
            A bound domain; the domain itself if it has no penalty.
        """
        return self

    def contains(self, x: Array, tolerance: float) -> Array:
        """Check whether each x_i is in X.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            The points.
        tolerance : float
            Largest distance of a coordinate from its projection.

        Returns
        -------
        ndarray of bool, shape (m,)
            True where x_i is in X.
        """
        xp = array_namespace(x)
        return xp.all(xp.abs(x - self.project(x)) <= tolerance, axis=-1)


@overload
def in_dtype(scale: Array, other: Array) -> Array: ...
@overload
def in_dtype(scale: Array | float, other: Array) -> Array | float: ...
def in_dtype(scale: Array | float, other: Array) -> Array | float:
    """Convert a number or weights to the precision and the device of another array."""
    if isinstance(scale, int | float):
        return float(scale)
    return array_namespace(other).astype(like(scale, other), other.dtype, copy=False)
