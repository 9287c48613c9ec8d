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
from gradslide.sklearn.loss import AnchoredL1, Recentring, RidgedLoss
from gradslide.sklearn.phis import Rows
from gradslide.sklearn.polished import Enough, solve_polished
from gradslide.sklearn.sites import Sites
from gradslide.sklearn.standardised import Columns, Features


@dataclass(frozen=True)
class Task:
    """min over W (outputs, d) and b of sum over rows of weight phi(W x + b, target) + l1 |W|_1 + l2/2 |W|^2.

    classes: whose numbers the targets are; None: least squares. curvature: about phi's second derivative.
    free_intercept: whether b is a variable; else it is 0, or known from means. size: about how large gradients are
    where the curvature of every variable is 1.
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
class Fit:
    """coef: (outputs, d). intercept: (outputs,), for targets whose mean is 0 where it is not a variable."""

    coef: Array
    intercept: Array
    solution: Solution


def fit(task: Task, columns: Columns, X: Any, targets: Array, weight: Array, sites: Sites, enough: Enough) -> Fit:
    """Every variable is scaled so that the diagonal of the Hessian is about 1: u = scale w."""
    d, m, is_free = X.shape[1], len(sites.rows), task.free_intercept
    scale = _positive(np.sqrt(task.curvature * columns.squares + task.l2))
    intercept_scale = float(_positive(np.sqrt(task.curvature * columns.weight)))
    features = Features.scaled(X, columns.mean, scale, 1 / intercept_scale if is_free else None)
    rows = _with_idle_rows(Rows(features.rows, targets, weight, sites.rows))
    recentring = Recentring(task.outputs, features.shift, is_free)
    ridge, threshold = (_parts(each, task.outputs, is_free) / m for each in (task.l2 / scale**2, task.l1 / scale))
    domain = Free(penalty=L1(threshold)) if task.l1 > 0 else Free()
    # What every variable has of the ridge makes a certificate possible.
    mu = float(ridge.min())

    problem = Problem(RidgedLoss(rows.loss(task.classes), recentring, ridge - mu), domain, mu)

    def polished(anchor: Array, slope: Array) -> Problem:
        scores = rows.features @ recentring.turned(anchor[None]).reshape(task.outputs, -1).T
        moved = Free(penalty=AnchoredL1(threshold, anchor)) if task.l1 > 0 else Free()
        return Problem(RidgedLoss(rows.bend(task.classes, scores), recentring, ridge, slope), moved)

    # Each of m agents has 1/m of the gradient, and all of them together sqrt(m)/m of its length.
    solution = solve_polished(problem, polished, sites.network, enough, (task.size or 1.0) / math.sqrt(m))
    u = np.asarray(solution.mean).reshape(task.outputs, -1)
    coef = u[:, :d] / scale
    own = u[:, d] / intercept_scale if is_free else np.zeros(task.outputs)
    return Fit(coef, own - coef @ columns.mean, solution)


def _positive(scale: Array) -> Array:
    return np.where(scale > 0, scale, 1.0)


def _parts(each: Array, outputs: int, is_free: bool) -> Array:
    """For every variable; the intercept has none."""
    return np.tile(np.append(each, 0.0) if is_free else each, outputs)


def _with_idle_rows(rows: Rows) -> Rows:
    """A site without rows gets one that counts for nothing."""
    idle = [i for i, own in enumerate(rows.splits) if not len(own)]
    if not idle:
        return rows
    n, count, splits = len(rows.targets), len(idle), list(rows.splits)
    for k, i in enumerate(idle):
        splits[i] = np.array([n + k])
    features = [rows.features, *[rows.features[:1]] * count]
    return Rows(
        sp.csr_array(sp.vstack(features)) if sp.issparse(rows.features) else np.vstack(features),
        np.append(rows.targets, np.repeat(rows.targets[:1], count)),
        np.append(rows.weight, np.zeros(count)),
        splits,
    )
