"""Saddle point problems whose sets and terms are polyhedral, as quadratic programs.

With a quadratic function in place of the loss, such a problem is a quadratic program in x and a few
more variables: the parts p and n of |x_j| = p + n, for example, or the value of a maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array, Sparse
from gradslide.domains import Affine, Box, Domain, EntropySimplex, Free, Halfspace, L1Ball, Polyhedron, Simplex
from gradslide.domains.euclidean import Euclidean
from gradslide.domains.penalties import L1, ElasticNet
from gradslide.problems import terms
from gradslide.problems.saddle import Saddle
from gradslide.programs.interior_point import Outcome
from gradslide.programs.low_rank import LowRank
from gradslide.programs.quadratic_program import minimize_qp

# Bounds of this size and beyond are none, as many file formats write.
NO_BOUND = 1e20
# In programs with bounds of this size, relative to the entries of their row, others are lost in rounding beside them.
_FAR = 1e14


class ProgramMinimum(NamedTuple):
    """The minimum of a quadratic function over a polyhedral problem.

    Attributes
    ----------
    outcome : Outcome
        How the search ended.
    x : ndarray, shape (n,)
        The minimizer; the direction, if the program is unbounded.
    z : ndarray, shape (k,)
        The multipliers of the rows of A; the combination that proves it, if the program is infeasible.
    residual : float
        The largest relative residual of the program.
    factorizations, products : int
        What it took.
    """

    outcome: Outcome
    x: Array
    z: Array
    residual: float
    factorizations: int
    products: int


@dataclass(frozen=True)
class Polyhedral:
    """Everything of a problem but its loss, as linear constraints on x and more variables.

        minimize  f(x) + u' diag(diagonal) u / 2 + linear' u   subject to  lower <= [K u, u] <= upper

    over u = (x, more variables).

    Attributes
    ----------
    n : int
        Entries of x, the first of u.
    k : int
        Rows of A, the first of K.
    K : ndarray or sparse matrix
        All rows.
    lower, upper : ndarray
        Intervals for K u, then for u.
    linear, diagonal : ndarray
        Of ridge, penalties and dual terms.
    """

    n: int
    k: int
    K: "Array | Sparse"
    lower: Array
    upper: Array
    linear: Array
    diagonal: Array

    def minimize(
        self,
        gradient: Array,
        hessian: "Array | Sparse | LowRank",
        damping: Array | float = 0.0,
        center: Array | None = None,
    ) -> ProgramMinimum:
        """Minimize s' (hessian + damping) s / 2 + gradient' s with s = x - center in place of f.

        Parameters
        ----------
        gradient : ndarray, shape (n,)
            Linear term.
        hessian : ndarray, sparse matrix or LowRank, shape (n, n)
            Positive semidefinite.
        damping : ndarray, shape (n,), or float
            Added to the diagonal.
        center : ndarray, shape (n,), optional
            0 by default. The solver looks for s: where it is small, x is all the more accurate.

        Returns
        -------
        ProgramMinimum
        """
        if center is not None:
            step = self.around(center).minimize(gradient, hessian, damping)
            return step if step.outcome is Outcome.UNBOUNDED else step._replace(x=center + step.x)
        n, own = self.n, np.zeros(len(self.diagonal))
        own[:n] = damping
        more = len(own) - n
        diagonal = self.diagonal + own
        P: Any
        if isinstance(hessian, LowRank):
            factors = np.vstack([hessian.factors, np.zeros((more, hessian.factors.shape[1]))])
            P = LowRank(np.concatenate([hessian.diagonal, np.zeros(more)]) + diagonal, factors, hessian.weights)
        elif sp.issparse(hessian) or more:
            P = sp.block_diag([hessian, sp.csr_array((more, more))], format="csr") + sp.diags_array(diagonal)
        else:
            P = hessian + np.diag(diagonal)
        q = self.linear.copy()
        q[:n] += gradient
        near = self.near
        found = minimize_qp(P, q, near.K, near.lower, near.upper)
        if near is not self and (found.outcome is Outcome.UNBOUNDED or self.violates_far_bounds(found.x)):
            again = minimize_qp(P, q, self.K, self.lower, self.upper, unit=self.nearest_far_bound())
            found = again.after(found)
        z = found.multipliers[: self.k]
        return ProgramMinimum(found.outcome, found.x[:n], z, found.residual, found.iterations, found.products)

    @cached_property
    def near(self) -> "Polyhedral":
        """The same without bounds that are very far away, but for equations; itself if there are none."""
        ends = _FAR * self._sizes()
        is_free = self.lower != self.upper
        no_lower, no_upper = is_free & (self.lower <= -ends), is_free & (self.upper >= ends)
        if not np.any(no_lower & np.isfinite(self.lower) | no_upper & np.isfinite(self.upper)):
            return self
        lower, upper = np.where(no_lower, -np.inf, self.lower), np.where(no_upper, np.inf, self.upper)
        return replace(self, lower=lower, upper=upper)

    def violates_far_bounds(self, u: Array) -> bool:
        """Return whether a point lies outside the bounds that `near` leaves out.

        Parameters
        ----------
        u : ndarray
            x alone, or with the other variables.

        Returns
        -------
        bool
        """
        near, u = self.near, np.concatenate([u, np.zeros(len(self.diagonal) - len(u))])
        v = np.concatenate([self.K @ u, u])
        is_below, is_above = np.isinf(near.lower) & (v < self.lower), np.isinf(near.upper) & (v > self.upper)
        return bool(np.any(is_below | is_above))

    def nearest_far_bound(self) -> float:
        """Return how far away the nearest bound is that `near` leaves out.

        Returns
        -------
        float
            Relative to the entries of its row.
        """
        sizes, no_lower, no_upper = self._sizes(), np.isinf(self.near.lower), np.isinf(self.near.upper)
        distances = np.concatenate([-(self.lower / sizes)[no_lower], (self.upper / sizes)[no_upper]])
        return float(np.min(distances[np.isfinite(distances)]))

    def widened(self, share: float) -> "Polyhedral":
        """Return the same with rows that leave room for rounding.

        Parameters
        ----------
        share : float
            Of the size of an end, and of the largest entry of its row.

        Returns
        -------
        Polyhedral
        """
        if share == 0:
            return self
        rows = self.K.shape[0]
        sizes = self._row_sizes()
        ends = [np.where(np.isfinite(each[:rows]), np.abs(each[:rows]), 0.0) for each in (self.lower, self.upper)]
        room = np.concatenate([share * np.maximum(sizes, np.maximum(*ends)), np.zeros(len(self.diagonal))])
        return replace(self, lower=self.lower - room, upper=self.upper + room)

    def _sizes(self) -> Array:
        """What bounds of rows are relative to, and those of variables: 1."""
        sizes = self._row_sizes()
        return np.concatenate([np.where(sizes > 0, sizes, 1.0), np.ones(len(self.diagonal))])

    def _row_sizes(self) -> Array:
        """The largest entry of each row of K."""
        if not self.K.shape[0]:
            return np.zeros(0)
        entries: Any = abs(self.K).max(axis=1)
        return np.asarray(entries.toarray() if sp.issparse(entries) else entries, dtype=np.float64).reshape(-1)

    def around(self, center: Array) -> "Polyhedral":
        """Return the same in terms of x - center.

        Parameters
        ----------
        center : ndarray, shape (n,)
            A point.

        Returns
        -------
        Polyhedral
        """
        whole = np.concatenate([center, np.zeros(len(self.diagonal) - self.n)])
        shift = np.concatenate([self.K @ whole, whole])
        linear = self.linear + self.diagonal * whole
        return replace(self, lower=self.lower - shift, upper=self.upper - shift, linear=linear)


def polyhedral(problem: Saddle) -> Polyhedral | None:
    """Return the problem's sets and terms as linear constraints; None if they are not polyhedral.

    Parameters
    ----------
    problem : Saddle
        The problem.

    Returns
    -------
    Polyhedral or None
        None, too, where the entries of A are not known.
    """
    entries = problem.A.entries()
    if entries is None:
        return None
    parts = _Parts(problem.m * problem.d)
    # The rows of A come first.
    if not _add_dual_term(parts, entries, problem):
        return None
    blocks = [problem.domain] if _is_box(problem.domain) else [problem.domain.take([i]) for i in range(problem.m)]
    offset = 0
    for block in blocks:
        if not _add_set(parts, offset, block.to(None), problem.mu):
            return None
        offset += block.m * block.d
    return parts.joined(len(entries) if isinstance(entries, np.ndarray) else entries.shape[0])


def polyhedral_set(domain: Domain, mu: float) -> Polyhedral | None:
    """Return X, ridge and penalty of one agent as linear constraints; None if they are not polyhedral.

    Parameters
    ----------
    domain : Domain
        Bound to one agent, on the host.
    mu : float
        The ridge.

    Returns
    -------
    Polyhedral or None
        Without rows of A: k = 0.
    """
    parts = _Parts(domain.d)
    return parts.joined(0) if _add_set(parts, 0, domain, mu) else None


def _is_box(domain: Domain) -> bool:
    return isinstance(domain, Free | Box)


@dataclass
class _Parts:
    """Variables and rows, collected one kind after the other."""

    n: int
    lower: list[Array] = field(default_factory=list)
    upper: list[Array] = field(default_factory=list)
    linear: list[Array] = field(default_factory=list)
    diagonal: list[Array] = field(default_factory=list)
    rows: list[tuple[Sequence[tuple[int, Any]], Array, Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.add(self.n, -np.inf, np.inf)
        self.linear[0], self.diagonal[0] = self.linear[0].copy(), self.diagonal[0].copy()

    def add(
        self, count: int, lower: Array | float, upper: Array | float, cost: Array | float = 0.0, square: float = 0.0
    ) -> int:
        """Add variables with bounds, cost' v + square |v|^2 / 2 in the objective; return the place of the first."""
        place = sum(map(len, self.lower))
        for known, value in (
            (self.lower, lower),
            (self.upper, upper),
            (self.linear, cost),
            (self.diagonal, square),
        ):
            known.append(np.array(np.broadcast_to(np.asarray(value, dtype=np.float64), count)))
        return place

    def bound(self, place: int, lower: Array, upper: Array) -> None:
        """Bound entries of x from a place on."""
        here = slice(place, place + len(lower))
        self.lower[0][here] = np.maximum(self.lower[0][here], lower)
        self.upper[0][here] = np.minimum(self.upper[0][here], upper)

    def constrain(self, terms: Sequence[tuple[int, Any]], lower: Array, upper: Array) -> None:
        """Add rows lower <= sum of matrix times the variables from a place on <= upper."""
        self.rows.append((terms, lower, upper))

    def joined(self, k: int) -> Polyhedral:
        linear, diagonal = np.concatenate(self.linear), np.concatenate(self.diagonal)
        count = len(linear)
        first = self.rows[0][0][0][1] if self.rows else None
        K: Any
        if not self.rows:
            K = np.zeros((0, count))
        elif len(self.rows) == 1 and count == self.n and isinstance(first, np.ndarray):
            K = np.asarray(first, dtype=np.float64)
        else:
            K = sp.vstack([_placed(terms, count) for terms, _, _ in self.rows], format="csr")
        lower, upper = (
            np.concatenate([*(each[side] for each in self.rows), *ends])
            for side, ends in ((1, self.lower), (2, self.upper))
        )
        return Polyhedral(
            self.n,
            k,
            K,
            np.where((lower <= -NO_BOUND) & (lower < upper), -np.inf, lower),
            np.where((upper >= NO_BOUND) & (lower < upper), np.inf, upper),
            linear,
            diagonal,
        )


def _placed(terms: Sequence[tuple[int, Any]], count: int) -> Sparse:
    """The rows of a few matrices at their places among all variables."""
    parts = []
    for place, matrix in terms:
        coo = sp.coo_array(matrix, dtype=np.float64)
        parts.append((coo.data, coo.coords[0], coo.coords[1] + place))
    data, rows, columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    return sp.csr_array((data, (rows, columns)), shape=(terms[0][1].shape[0], count))


def _add_set(parts: _Parts, place: int, domain: Domain, mu: float) -> bool:
    """Add X, the ridge and the penalty of some blocks of x; return whether that is possible."""
    size = domain.m * domain.d
    unit = sp.eye_array(size)
    if isinstance(domain, EntropySimplex):
        if mu > 0:
            return False
        parts.bound(place, np.zeros(size), np.full(size, np.inf))
        parts.constrain([(place, np.ones((1, size)))], np.ones(1), np.ones(1))
        return True
    if not isinstance(domain, Euclidean):
        return False
    if mu > 0:
        weights = np.ones(size) if domain.weights is None else _flat(domain.weights, domain)
        parts.diagonal[0][place : place + size] += mu * weights
        parts.linear[0][place : place + size] -= mu * weights * _flat(domain.center, domain)
    if isinstance(domain.penalty, L1 | ElasticNet):
        if isinstance(domain.penalty, L1):
            weight = _flat(domain.penalty.weight, domain)
        else:
            weight = _flat(domain.penalty.l1, domain)
            parts.diagonal[0][place : place + size] += _flat(domain.penalty.l2, domain)
        first, second = (parts.add(size, 0.0, np.inf, weight) for _ in range(2))
        parts.constrain([(place, unit), (first, -unit), (second, unit)], np.zeros(size), np.zeros(size))
    elif domain.penalty is not None:
        return False
    if isinstance(domain, Box):
        parts.bound(place, _flat(domain.lo, domain), _flat(domain.hi, domain))
    elif isinstance(domain, Simplex):
        total = _flat(domain.total, domain)[:1]
        parts.bound(place, np.zeros(size), np.full(size, np.inf))
        parts.constrain([(place, np.ones((1, size)))], total, total)
    elif isinstance(domain, L1Ball):
        origin, radius = _flat(domain.origin, domain), _flat(domain.radius, domain)[:1]
        first, second = (parts.add(size, 0.0, np.inf) for _ in range(2))
        parts.constrain([(place, unit), (first, -unit), (second, unit)], origin, origin)
        ones = np.ones((1, size))
        parts.constrain([(first, ones), (second, ones)], np.full(1, -np.inf), radius)
    elif isinstance(domain, Halfspace):
        b = np.ravel(to_numpy(domain.b)).astype(np.float64)[:1]
        parts.constrain([(place, np.asarray(domain.a, dtype=np.float64).reshape(1, size))], np.full(1, -np.inf), b)
    elif isinstance(domain, Affine):
        A, b = np.asarray(domain.A, dtype=np.float64)[0], np.asarray(domain.b, dtype=np.float64)[0]
        parts.constrain([(place, A)], b, b)
    elif isinstance(domain, Polyhedron):
        A, lower, upper = domain.of_agent(0)
        parts.bound(place, lower[len(A) :], upper[len(A) :])
        parts.constrain([(place, A)], lower[: len(A)], upper[: len(A)])
    else:
        return isinstance(domain, Free)
    return True


def _flat(value: Any, domain: Domain) -> Array:
    """A parameter of a domain, one number for each entry of x."""
    return np.array(np.broadcast_to(to_numpy(value), (domain.m, domain.d)), dtype=np.float64).reshape(-1)


def _add_dual_term(parts: _Parts, A: Any, problem: Saddle) -> bool:
    """Add the maximum over z as rows A x + ... = b and more variables; return whether that is possible."""
    duals = problem.duals.to(None)
    term, domain, k = duals.term, duals.domain, problem.A.shape[0]
    unit, infinite = sp.eye_array(k), np.full(k, np.inf)
    terms_of_rows: list[tuple[int, Any]] = [(0, A)]
    if isinstance(term, terms.Interval):
        parts.constrain(terms_of_rows, _flat(term.lower, domain), _flat(term.upper, domain))
        return True
    if not isinstance(term, terms.Linear | terms.Quadratic):
        return False
    b = _flat(term.b, domain)
    if isinstance(term, terms.Quadratic):
        # weight/2 |z|^2 is the square of a part s of A x - b = s + ...
        place = parts.add(k, -np.inf, np.inf, square=1 / float(term.weight))
        terms_of_rows.append((place, -unit))
    if isinstance(domain, Euclidean) and domain.penalty is not None:
        return False
    if isinstance(domain, Box):
        lo, hi = _flat(domain.lo, domain), _flat(domain.hi, domain)
        above = parts.add(k, 0.0, np.where(np.isinf(hi), 0.0, np.inf), np.where(np.isinf(hi), 0.0, hi))
        below = parts.add(k, 0.0, np.where(np.isinf(lo), 0.0, np.inf), -np.where(np.isinf(lo), 0.0, lo))
        # An end at infinity forbids A x - b on that side.
        parts.constrain([*terms_of_rows, (above, -unit), (below, unit)], b, b)
    elif isinstance(domain, Simplex | EntropySimplex):
        total = float(_flat(domain.total, domain)[0]) if isinstance(domain, Simplex) else 1.0
        place = parts.add(1, -np.inf, np.inf, total)
        parts.constrain([*terms_of_rows, (place, -np.ones((k, 1)))], -infinite, b)
    elif isinstance(domain, Free):
        parts.constrain(terms_of_rows, b, b)
    else:
        return False
    return True
