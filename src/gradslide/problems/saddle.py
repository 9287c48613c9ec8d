"""Saddle point problems min_x max_z f(x) + <A x, z> - h(z), and linear constraints."""

import copy
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from gradslide._support.arrays import on_device, to_numpy, total, vdot
from gradslide._support.errors import InputError, require, require_number, unknown_name
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array, Device
from gradslide.domains import Domain, Euclidean
from gradslide.losses import Loss
from gradslide.problems import scaling as scalings
from gradslide.problems.linear_map import LinearMap, linear_map
from gradslide.problems.operator_norm import operator_norm
from gradslide.problems.problem import Objective, checked_domain
from gradslide.problems.terms import Term, as_term, interval


class Distances(NamedTuple):
    """Bregman distances U(z_0, z) and V(x_0, x)."""

    U: float
    V: float


class Saddle(Objective):
    """Solve min over x in X, max over z in Z of f(x) + <A x, z> - h(z), with f = ft + mu nu + r.

    Parameters
    ----------
    loss : Loss
        The smooth convex ft. A loss of several agents is a sum over blocks of x, which A sees one
        after the other.
    A : array_like, sparse matrix, LinearOperator, PyLops operator, or pair of callables
        Linear map of shape (k, n); a pair is (forward, adjoint). If the loss is on a device,
        entries are moved there, and operators and functions must take and return arrays there.
    h : Term, Domain or object with prox(v, step), optional
        The dual term: one of `gs.terms` (0 by default), or a domain for its indicator function.
    domain : Domain, optional
        The set X, nu and the penalty r; the whole space by default.
    dual_domain : Domain, optional
        The set Z with the geometry of its steps; the whole space by default, where h = <b, z> means
        A x = b.
    mu : float
        Nonnegative: strong convexity of f with respect to nu.
    norm : float, optional
        ||A|| in the norms of the two domains; computed by default.
    scaling : {"rows", "columns", "both"}, optional
        Weight the coordinates of z, x or both by the entries of A. Columns only where mu = 0; they
        can increase L V.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Quadratic(np.eye(2), np.zeros(2))
    >>> gs.Saddle(loss, np.array([[1.0, 1.0]]), h=gs.terms.Linear(1.0))
    Saddle(Quadratic, Free, m=1, d=2, mu=0, A: 1 x 2, z: Linear on Free)
    """

    def __init__(
        self,
        loss: Loss,
        A: Any,
        h: Any = None,
        domain: Domain | None = None,
        dual_domain: Domain | None = None,
        mu: float = 0.0,
        *,
        norm: float | None = None,
        scaling: str | None = None,
    ) -> None:
        super().__init__(loss, domain, mu)
        self.A = linear_map(A, self.m * self.d, self.dtype, self.device)
        if isinstance(h, Domain):
            rule = "a set as h is the indicator of it: give it as h or as dual_domain"
            require(dual_domain is None, rule, "both", "leave dual_domain out")
            h, dual_domain = None, h
        dual_domain = checked_domain("dual_domain", dual_domain).bind(1, self.A.shape[0], self.dtype)
        if norm is not None:
            require_number("norm", norm, "leave it out to have it found", least=0)
        if scaling is not None:
            dual_domain = self._scale(scaling, dual_domain)
        self.duals = DualSpace(dual_domain, as_term(h)).to(self.device)
        self._norm = norm

    @checked_arguments
    def to(self, device: Device) -> Self:
        """Return the same problem with its data on a PyTorch device, for repeated solves.

        Parameters
        ----------
        device : str or torch.device
            For example "cuda".

        Returns
        -------
        Saddle or LinearlyConstrained

        Raises
        ------
        InputError
            If A is an operator that does not compute there, or the dual term cannot move.
        """
        new = super().to(device)
        vars(new).update(A=self.A.to(new.device), duals=self.duals.to(new.device))
        return new

    def _scale(self, scaling: str, dual_domain: Domain) -> Domain:
        if scaling not in scalings.KINDS:
            raise unknown_name("scaling", scaling, scalings.KINDS)
        weights = scalings.weights(self.A, scaling)
        if scaling != "rows":
            rule = "columns can be scaled where mu = 0, since mu nu is part of the problem"
            require(self.mu == 0, rule, f"mu={self.mu:g}", 'use scaling="rows", or put the ridge into the loss')
            here = _weighted("domain", self.domain.to(None), weights.x.reshape(self.m, self.d))
            self.domain = here.to(self.device)
        return dual_domain if scaling == "columns" else _weighted("dual_domain", dual_domain, weights.z)

    @cached_property
    def has_gap(self) -> bool:
        """Whether both sides of the primal-dual gap can be computed."""
        h_is_known = not np.isnan(self.duals.h(self.duals.start()))
        return self.has_lower_bound and self.maximum_is_known and bool(h_is_known)

    @cached_property
    def maximum_is_known(self) -> bool:
        """Whether max over Z of <A x, z> - h(z) can be computed."""
        start = self.duals.start()
        return not np.isnan(self.duals.conjugate(array_namespace(start).zeros_like(start)))

    def operator_norm(self, A: LinearMap | None = None) -> float:
        """Return ||A|| in the norms of nu and zeta.

        Parameters
        ----------
        A : LinearMap, optional
            The same map with counted products.

        Returns
        -------
        float
        """
        if self._norm is not None:
            return float(self._norm)
        return operator_norm(self.A if A is None else A, self.domain, self.duals.domain)

    def distances(self, x: Array, z: Array, x0: Array | None = None) -> "Distances":
        """Return U(z_0, z) and V(x_0, x), the arguments of `guarantees.saddle_R`.

        Parameters
        ----------
        x : array_like, shape (d,) or (m, d)
            Primal point.
        z : array_like, shape (k,)
            Dual point.
        x0 : array_like, optional
            Start, by default the minimizer of nu.

        Returns
        -------
        Distances
        """
        x = self.placed(np.broadcast_to(to_numpy(x), (self.m, self.d)))
        z = self.placed(to_numpy(z).reshape(1, -1))
        return Distances(self.duals.U(self.duals.start(), z), total(self.domain.V(self.start(x0), x)))

    def product(self, x: Array) -> Array:
        """Return A x as a row (1, k)."""
        return self.A.apply(x.reshape(-1))[None]

    def described(self, m: int) -> str:
        return f"{super().described(m)[:-1]}, A: {self.A.shape[0]} x {self.A.shape[1]}, z: {self.duals!r})"


class LinearlyConstrained(Saddle):
    """Minimize f(x) over x in X subject to A x = b, A x <= b or lower <= A x <= upper.

    f = ft + mu nu + r.

    Parameters
    ----------
    loss, A, domain, mu, norm, scaling
        As for `Saddle`.
    b : array_like, shape () or (k,), optional
        Right-hand side.
    sense : {"==", "<=", ">="}, optional
        Relation of A x and b; equality by default.
    lower, upper : array_like, shape () or (k,), optional
        Instead of b: bounds on A x. Either may be left out or infinite.

    Notes
    -----
    `solution.dual` holds the multipliers of f(x) + <z, A x - b>: z >= 0 where A x <= b is active,
    and -z is the sensitivity of the optimum to b.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.Quadratic(np.eye(2), np.zeros(2))
    >>> problem = gs.LinearlyConstrained(loss, np.array([[1.0, 1.0]]), b=2.0)
    >>> gs.solve(problem).mean.round(3).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        loss: Loss,
        A: Any,
        b: npt.ArrayLike | None = None,
        domain: Domain | None = None,
        mu: float = 0.0,
        *,
        sense: str | None = None,
        lower: npt.ArrayLike | None = None,
        upper: npt.ArrayLike | None = None,
        norm: float | None = None,
        scaling: str | None = None,
    ) -> None:
        super().__init__(loss, A, None, domain, mu=mu, norm=norm, scaling=scaling)
        between = interval(self.A.shape[0], b, sense, lower, upper)
        self.duals = DualSpace(self.duals.domain.to(None), between).to(self.device)


def _weighted(name: str, domain: Domain, weights: Array) -> Domain:
    if not isinstance(domain, Euclidean):
        rule = f"{name} must be Free, Box or NonNegative where it is scaled"
        raise InputError(rule, type(domain).__name__, "leave scaling out")
    return domain.weighted(weights)


class DualSpace:
    """A dual domain and a term, both bound to z as one row (1, k)."""

    def __init__(self, domain: Domain, term: Term) -> None:
        self.domain = domain
        self.term = term.bind(domain)

    def to(self, device: Device) -> "DualSpace":
        """Return the same space with its arrays on a device; None for NumPy."""
        new = copy.copy(self)
        new.domain, new.term = self.domain.to(device), self.term.to(device)
        return new

    def start(self) -> Array:
        """Return the minimizer of zeta over Z."""
        return self.domain.start()

    def ascend(self, z: Array, slope: Array, q: float) -> Array:
        """Return argmin over Z of h - <slope, .> + q U(z, .) (`eq:zkt_SPP`)."""
        return self.term.prox(self.domain, q * self.domain.grad_nu(z) + slope, q)

    def U(self, a: Array, z: Array) -> float:
        """Return the Bregman distance U(a, z)."""
        return float(self.domain.V(a, z)[0])

    def U_bound(self, z: Array) -> float:
        """Return the largest U(z, .) over Z; inf where Z is unbounded."""
        return float(self.domain.distance_bound(z)[0])

    def h(self, z: Array) -> float:
        """Return h(z), the penalty of the dual domain included."""
        return self.term.value(z) + float(self.domain.r(z)[0])

    @cached_property
    def is_constrained(self) -> bool:
        """Whether the maximum over z is the indicator function of a set for A x."""
        return self.violation(self.start()) is not None

    def conjugate(self, v: Array) -> float:
        """Return max over Z of <v, z> - h(z); 0 for constraints, which `violation` measures."""
        return 0.0 if self.is_constrained else self.term.conjugate(self.domain, v)

    def violation(self, v: Array) -> Array | None:
        """Return v minus the nearest feasible point; None where there are no constraints."""
        return self.term.violation(self.domain, v)

    def fingerprint(self) -> str:
        """Return digits that distinguish this dual space from others."""
        probe = np.random.default_rng(1).normal(size=(1, self.domain.d)).astype(self.domain.dtype)
        # Devices need not add up in the same order twice.
        digits = 3 if self.domain.device is not None and self.domain.dtype == np.float32 else 7
        probe = on_device(probe, self.domain.device)
        near, far = (self.term.prox(self.domain, size * probe, 1.0) for size in (1, 1e3))
        return f"{float(vdot(probe, near)):.{digits}e} {float(vdot(probe, far)):.{digits}e}"

    def __repr__(self) -> str:
        return f"{type(self.term).__name__} on {type(self.domain).__name__}"
