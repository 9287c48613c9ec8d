"""One linear model over the rows of all sites: standardised, solved by the sites, and turned back."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gradslide._support.types import Array
from gradslide.domains import Free
from gradslide.domains.penalties import L1
from gradslide.problems.problem import Problem
from gradslide.results.solution import Solution
from gradslide.sklearn.refinement import SiteRows, Tolerance, solve_refined
from gradslide.sklearn.scaling import AnchoredL1, ColumnStatistics, Recentring, RidgedLoss, ScaledFeatures
from gradslide.sklearn.sites import Sites


@dataclass(frozen=True)
class PenalizedLoss:
    """min over W (outputs, d) and b of sum over rows of weight phi(W x + b, target) + l1 |W|_1 +
    l2/2 |W|^2.

    classes: whose numbers the targets are; None: least squares. curvature: about phi's second
    derivative. free_intercept: whether b is a variable; else it is 0, or known from means. size:
    about how large gradients are where the curvature of every variable is 1.
    """

    classes: int | None
    curvature: float
    l1: float
    l2: float
    free_intercept: bool
    size: float

    @property
    def outputs(self) -> int:
        return 1 if self.classes in (None, 2) else int(self.classes or 1)


@dataclass(frozen=True)
class LinearFit:
    """coef: (outputs, d). intercept: (outputs,), for targets whose mean is 0 where it is not a
    variable.
    """

    coef: Array
    intercept: Array
    solution: Solution


def fit_linear(
    objective: PenalizedLoss,
    statistics: ColumnStatistics,
    X: Any,
    targets: Array,
    weight: Array,
    sites: Sites,
    tolerance: Tolerance,
) -> LinearFit:
    """Every variable is scaled so that the diagonal of the Hessian is about 1: u = scale w."""
    d, m, is_free = X.shape[1], len(sites.rows), objective.free_intercept
    scale = _positive(np.sqrt(objective.curvature * statistics.squares + objective.l2))
    intercept_scale = float(_positive(np.sqrt(objective.curvature * statistics.weight)))
    features = ScaledFeatures.scaled(X, statistics.mean, scale, 1 / intercept_scale if is_free else None)
    rows = _with_idle_rows(SiteRows(features.rows, targets, weight, sites.rows))
    recentring = Recentring(objective.outputs, features.shift, is_free)
    ridge, threshold = (
        _parts(each, objective.outputs, is_free) / m for each in (objective.l2 / scale**2, objective.l1 / scale)
    )
    domain = Free(penalty=L1(threshold)) if objective.l1 > 0 else Free()
    # What every variable has of the ridge makes a certificate possible.
    mu = float(ridge.min())

    problem = Problem(RidgedLoss(rows.loss(objective.classes), recentring, ridge - mu), domain, mu)

    def shifted(anchor: Array, slope: Array) -> Problem:
        scores = rows.features @ recentring.turned(anchor[None]).reshape(objective.outputs, -1).T
        moved = Free(penalty=AnchoredL1(threshold, anchor)) if objective.l1 > 0 else Free()
        return Problem(RidgedLoss(rows.bregman(objective.classes, scores), recentring, ridge, slope), moved)

    # Each of m agents has 1/m of the gradient, and all of them together sqrt(m)/m of its length.
    solution = solve_refined(problem, shifted, sites.network, tolerance, (objective.size or 1.0) / math.sqrt(m))
    u = np.asarray(solution.mean).reshape(objective.outputs, -1)
    coef = u[:, :d] / scale
    own = u[:, d] / intercept_scale if is_free else np.zeros(objective.outputs)
    return LinearFit(coef, own - coef @ statistics.mean, solution)


def _positive(scale: Array) -> Array:
    return np.where(scale > 0, scale, 1.0)


def _parts(each: Array, outputs: int, is_free: bool) -> Array:
    """For every variable; the intercept has none."""
    return np.tile(np.append(each, 0.0) if is_free else each, outputs)


def _with_idle_rows(rows: SiteRows) -> SiteRows:
    """A site without rows gets one that counts for nothing."""
    idle = [i for i, own in enumerate(rows.splits) if not len(own)]
    if not idle:
        return rows
    n, count, splits = len(rows.targets), len(idle), list(rows.splits)
    for k, i in enumerate(idle):
        splits[i] = np.array([n + k])
    features = [rows.features, *[rows.features[:1]] * count]
    return SiteRows(
        sp.csr_array(sp.vstack(features)) if sp.issparse(rows.features) else np.vstack(features),
        np.append(rows.targets, np.repeat(rows.targets[:1], count)),
        np.append(rows.weight, np.zeros(count)),
        splits,
    )
