"""The problem in scaled columns, and the way back to original units."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array
from gradslide.domains import Free
from gradslide.domains.penalties import L1
from gradslide.fitting.columns import Statistics
from gradslide.fitting.objective import Objective
from gradslide.fitting.penalized import PenalizedLoss
from gradslide.problems.problem import Problem
from gradslide.regression.design import Rows, filled


@dataclass(frozen=True)
class ScaledProblem:
    """The problem in scaled columns.

    Attributes
    ----------
    objective : Objective
    statistics : Statistics
    problem : Problem
    loss : PenalizedLoss
        That of the problem.
    sites : sequence of Rows
        Of the agents here, with scaled features, the intercept last.
    kept : ndarray of int
        The coordinates of (outputs, p + intercept), by rows, that are variables.
    """

    objective: Objective
    statistics: Statistics
    problem: Problem
    loss: PenalizedLoss
    sites: Sequence[Rows]
    kept: Array

    @property
    def names(self) -> list[str]:
        """Of the columns that the variables belong to."""
        names = [*self.objective.columns, *["intercept"] * self.objective.has_intercept]
        return [names[j % len(names)] for j in self.kept.tolist()]

    def scores(self, rows: Rows, u: Array) -> Array:
        """Return the linear predictors of scaled rows, (n, outputs)."""
        return np.asarray(rows.features @ self._blocks(u).T)

    def original(self, u: Array) -> Array:
        """Return the coefficients in original units, (reported, p + 1), the intercept first; 0 without one."""
        objective, statistics = self.objective, self.statistics
        blocks, p = self._blocks(u)[objective.outputs - objective.reported :], len(statistics.mean)
        slopes = blocks[:, :p] / statistics.scale
        intercepts = blocks[:, p:].sum(axis=1) - slopes @ statistics.centre * objective.has_intercept
        coefficients = np.column_stack([intercepts, slopes])
        if objective.reported > 1 and objective.is_penalized:
            # The mean over the classes is 0 where the penalties do not say what it is.
            is_free = np.append(objective.public is None, objective.lasso == 0)
            coefficients -= is_free * coefficients.mean(axis=0)
        return coefficients

    def way_back(self) -> Array:
        """Return the matrix from u, without penalties, to the coefficients in original units."""
        inverse = 1 / self.statistics.scale
        matrix = np.diag(inverse)
        if self.objective.has_intercept:
            p = len(inverse)
            matrix = np.block([[-self.statistics.centre * inverse, np.ones(1)], [matrix, np.zeros((p, 1))]])
        return np.kron(np.eye(self.objective.reported), matrix)

    def _blocks(self, u: Array) -> Array:
        """u as (outputs, p + intercept), zeros included."""
        whole = np.zeros(self.loss.base.d)
        whole[self.kept] = u
        return whole.reshape(self.objective.outputs, -1)


def scaled_problem(objective: Objective, statistics: Statistics, sites: Sequence[Rows], m: int) -> ScaledProblem:
    """Scale the columns, and penalties to match.

    Parameters
    ----------
    objective : Objective
    statistics : Statistics
    sites : sequence of Rows
        Of the agents here.
    m : int
        Number of agents, here and elsewhere.
    """
    outputs = objective.outputs
    scaled = [scaled_rows(objective, statistics, rows) for rows in sites]
    stacked, splits = stacked_rows(scaled)
    base = objective.family.loss(stacked, splits, objective.classes)
    unit: Array | float = 1.0
    if objective.standardize:
        unit = np.where(statistics.deviation > 0, statistics.deviation, 1.0)
    if objective.public is not None:
        unit = statistics.scale
    ridge, lasso = objective.ridge * (unit / statistics.scale) ** 2, objective.lasso * unit / statistics.scale
    if objective.has_intercept:
        ridge = np.append(ridge, 0.0 if objective.public is None else ridge.min())
        lasso = np.append(lasso, 0.0)
    kept = np.ones((outputs, len(ridge)), dtype=bool)
    if outputs > 1:
        # Without a penalty the coefficients of all classes could move together.
        kept[0, (ridge == 0) & (lasso == 0)] = False
    chosen = np.flatnonzero(kept)
    ridges = np.tile(ridge, outputs)[chosen] / m
    # What every coordinate has of the ridge makes a certificate possible.
    mu = float(ridges.min())
    loss = PenalizedLoss(base, chosen, ridges - mu)
    weights = np.tile(lasso, outputs)[chosen] / m
    domain = Free(penalty=L1(weights)) if np.any(weights > 0) else Free()
    return ScaledProblem(objective, statistics, Problem(loss, domain, mu), loss, scaled, chosen)


def scaled_rows(objective: Objective, statistics: Statistics, rows: Rows) -> Rows:
    """Return rows with scaled features, and a column of ones for the intercept."""
    features, ones = filled(rows.features, statistics.mean), np.ones((rows.n, int(objective.has_intercept)))
    if not isinstance(features, np.ndarray):
        return rows.with_features(sp.csr_array(sp.hstack([features.multiply(1 / statistics.scale), ones])))
    return rows.with_features(np.hstack([(features - statistics.centre) / statistics.scale, ones]))


def stacked_rows(sites: Sequence[Rows]) -> tuple[Rows, list[Array]]:
    """Return the rows of all agents here as one, and the row numbers of each.

    A site without rows gets one that counts for nothing.
    """
    sites = [rows if rows.n else _idle(sites) for rows in sites]
    ends = np.cumsum([rows.n for rows in sites])
    return Rows.joined(sites), np.split(np.arange(ends[-1]), ends[:-1])


def _idle(sites: Sequence[Rows]) -> Rows:
    row = next(rows for rows in sites if rows.n).take(np.array([0]))
    return replace(row, weight=np.zeros(1), event=np.zeros(1))
