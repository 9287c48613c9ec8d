"""What happens to a program before it is solved: fixed variables and idle rows leave, and the rest gets its units."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array
from gradslide.programs.interior_point import Outcome
from gradslide.programs.low_rank import LowRank

# Rounds of equilibration.
_RUIZ_ITERATIONS = 10


@dataclass(frozen=True)
class Reduced:
    """A program without fixed variables, and without rows that have no end.

    Attributes
    ----------
    P, q, K, lower, upper
        What is left of the program.
    moving : ndarray of int
        The variables that are left.
    fixed : ndarray, shape (n,)
        The values of fixed variables; 0 for others.
    """

    P: Any
    q: Array
    K: Any
    lower: Array
    upper: Array
    moving: Array
    fixed: Array
    _whole: tuple[Any, Array, Any]
    _rows: Array

    @classmethod
    def of(cls, P: Any, q: Array, K: Any, lower: Array, upper: Array) -> "Reduced":
        """Reduce a program; arguments as for `minimize_qp`."""
        k = K.shape[0]
        rows = np.flatnonzero(np.isfinite(lower[:k]) | np.isfinite(upper[:k]))
        is_fixed = lower[k:] == upper[k:]
        moving, fixed = np.flatnonzero(~is_fixed), np.where(is_fixed, lower[k:], 0.0)
        chosen = np.concatenate([rows, k + moving])
        shift = np.concatenate([(K @ fixed)[rows], np.zeros(len(moving))])
        return cls(
            P.within(moving) if isinstance(P, LowRank) else indexed(P)[moving][:, moving],
            q[moving] + (P @ fixed)[moving],
            indexed(K)[rows][:, moving],
            lower[chosen] - shift,
            upper[chosen] - shift,
            moving,
            fixed,
            (P, q, K),
            rows,
        )

    def restored(
        self, x: Array, multipliers: Array, outcome: Outcome, pull: Array | None = None
    ) -> tuple[Array, Array]:
        """Return x and multipliers of the whole program.

        Parameters
        ----------
        x, multipliers : ndarray
            Of what is left.
        outcome : Outcome
            Directions and certificates leave out what is constant.
        pull : ndarray, shape (n,), optional
            What further constraints add to the gradient of the Lagrangian.

        Returns
        -------
        x : ndarray, shape (n,)
        multipliers : ndarray, shape (k + n,)
        """
        P, q, K = self._whole
        n, k = len(q), K.shape[0]
        whole = np.zeros(n) if outcome is Outcome.UNBOUNDED else self.fixed.copy()
        whole[self.moving] = x
        z = np.zeros(k + n)
        z[np.concatenate([self._rows, k + self.moving])] = multipliers
        is_fixed = np.ones(n, dtype=bool)
        is_fixed[self.moving] = False
        if is_fixed.any():
            slope = K.T @ z[:k] + (0.0 if pull is None else pull)
            if outcome is not Outcome.INFEASIBLE:
                slope = slope + P @ whole + q
            z[k:][is_fixed] = -slope[is_fixed]
        return whole, z


@dataclass(frozen=True)
class Equilibrated:
    """A program in units in which the KKT matrix has rows of size 1 (Ruiz).

    Attributes
    ----------
    P, q, K
        The program in these units.
    columns, rows : ndarray
        What variables, and rows of K, are multiplied with: x = columns times the scaled one.
    sizes : ndarray
        The largest entry of each column of P, but for the factor `cost`.
    cost : float
        What the objective is multiplied with.
    """

    P: Any
    q: Array
    K: Any
    columns: Array
    rows: Array
    sizes: Array
    cost: float = 1.0

    @property
    def of_constraints(self) -> Array:
        """The units of [K x, x]: divided by them, intervals are those of the scaled program."""
        return np.concatenate([1 / self.rows, self.columns])

    @classmethod
    def of(cls, P: Any, q: Array, K: Any, shared: Any = None) -> "Equilibrated":
        """Scale rows and columns.

        Parameters
        ----------
        P, q, K
            The program.
        shared : ndarray or sparse matrix, optional
            More rows, whose units are given.
        """
        n, k = K.shape[1], K.shape[0]
        columns, rows = np.ones(n), np.ones(k)
        low_rank = isinstance(P, LowRank)
        absolute = abs(sp.csr_array(np.abs(P.diagonal) * sp.eye_array(n))) if low_rank else abs(P)
        others = None if shared is None else abs(shared)
        for _ in range(_RUIZ_ITERATIONS):
            sizes = np.maximum(_largest(absolute, columns, columns, 0), _largest(abs(K), rows, columns, 0))
            if others is not None:
                sizes = np.maximum(sizes, _largest(others, np.ones(others.shape[0]), columns, 0))
            row_sizes = _largest(abs(K), rows, columns, 1)
            columns = columns / np.sqrt(np.where(sizes > 0, np.clip(sizes, 1e-8, 1e8), 1.0))
            rows = rows / np.sqrt(np.where(row_sizes > 0, np.clip(row_sizes, 1e-8, 1e8), 1.0))
        columns, rows = np.clip(columns, 1e-6, 1e6), np.clip(rows, 1e-6, 1e6)
        scaled_P: Any
        if low_rank:
            scaled_P = LowRank(P.diagonal * columns**2, P.factors * columns[:, None], P.weights)
        else:
            scaled_P = scaled(P, columns, columns)
        return cls(
            scaled_P, columns * q, scaled(K, rows, columns), columns, rows, _largest(absolute, columns, columns, 0)
        )

    def with_cost(self, mean: float, largest: float) -> "Equilibrated":
        """Scale the objective, too.

        Parameters
        ----------
        mean : float
            Of `sizes`, of all processes.
        largest : float
            Entry of q, of all processes.
        """
        cost = min(max(1 / max(mean, largest, 1e-12), 1e-8), 1e8)
        P = self.P.times(cost) if isinstance(self.P, LowRank) else cost * self.P
        return replace(self, P=P, q=cost * self.q, cost=cost)


def indexed(matrix: Any) -> Any:
    """A matrix whose rows and columns can be chosen."""
    return sp.csr_array(matrix) if sp.issparse(matrix) else matrix


def scaled(matrix: Any, rows: Array, columns: Array) -> Any:
    """Return diag(rows) matrix diag(columns)."""
    if sp.issparse(matrix):
        return sp.diags_array(rows) @ matrix @ sp.diags_array(columns)
    return matrix * rows[:, None] * columns


def _largest(matrix: Any, rows: Array, columns: Array, axis: int) -> Array:
    """The largest entry of each column (axis 0) or row (axis 1) of the scaled matrix; 0 where there are none."""
    if 0 in matrix.shape:
        return np.zeros(matrix.shape[1 - axis])
    sizes = scaled(matrix, rows, columns).max(axis=axis)
    return np.asarray(sizes.toarray() if sp.issparse(sizes) else sizes, dtype=np.float64).reshape(-1)
