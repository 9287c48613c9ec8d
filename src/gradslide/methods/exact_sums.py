"""What second-order methods share: agents hold one point, and the root of the tree knows exact sums there.

In one evaluation every agent computes its part at the point of all, partial sums go up the tree, the
root decides and computes the next point, and its answer goes down. Bounds and residuals are known
at the root and travel with the answer.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np

from gradslide._support.arrays import dot, doubles, to_numpy
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.domains.euclidean import Euclidean
from gradslide.graphs.graph import Graph
from gradslide.methods.base import Context
from gradslide.methods.steps import require_common_domain
from gradslide.results.certificate import KKT
from gradslide.theory.certificates import (
    ErrorTerms,
    Evaluation,
    Piece,
    error_terms,
    lower_bound_at,
    stationarity_part,
)

# Numbers in front of the gradient, in sums and in answers.
_HEAD = 2 + len(ErrorTerms._fields)
# Rounding changes the objective by about this many eps of its size.
_NOISE = 4.0


class Totals(NamedTuple):
    """Totals over all agents at one point.

    Attributes
    ----------
    value : float
        Of the ft_i.
    conjugate : float
        Of the <x, y_i> - ft_i(x), with gradients y_i.
    errors : ErrorTerms
        What rounding errors are proportional to.
    gradient : ndarray, shape (d,)
        Of the y_i.
    rest : ndarray
        What a method adds.
    """

    value: float
    conjugate: float
    errors: ErrorTerms
    gradient: Array
    rest: Array

    @classmethod
    def read(cls, numbers: Array, d: int) -> "Totals":
        """Read what `contribution` returned, summed over all agents."""
        value, conjugate, *errors = numbers[:_HEAD].tolist()
        return cls(value, conjugate, ErrorTerms(*errors), numbers[_HEAD : _HEAD + d], numbers[_HEAD + d :])


def contribution(context: Context, x: Array, values: Array, gradients: Array, rest: Array) -> Array:
    """Return what the agents here add to the sums at x: a row of each, or one of all.

    Parameters
    ----------
    context : Context
        The run.
    x : ndarray, shape (agents, d)
        The point, once for each agent.
    values, gradients : ndarray
        Of the ft_i there.
    rest : ndarray, shape (agents, k) or (1, k)
        What a method adds: a row of each agent, or one of all.
    """
    values, gradients, x = doubles(to_numpy(values)), doubles(to_numpy(gradients)), doubles(to_numpy(x))
    conjugates = dot(x, gradients) - values
    errors = error_terms(context.problem, x, gradients, conjugates)
    head = np.concatenate([values[:, None], conjugates[:, None], errors, gradients], axis=1)
    head = head if len(rest) == len(head) else head.sum(axis=0, keepdims=True)
    return np.concatenate([head, rest], axis=1)


@dataclass(frozen=True)
class CommonProblem:
    """What a run prepares once: the problem that all agents have in common.

    Attributes
    ----------
    domain : Euclidean
        X, nu and r of one agent, in double precision.
    mu : float
        Strong convexity.
    m, d : int
        Number of agents, dimension.
    dtype : numpy.dtype
        The precision of the data.
    x0 : ndarray, shape (d,)
        Where the run starts.
    is_provable : bool
        Whether lower bounds are finite.
    """

    domain: Euclidean
    mu: float
    m: int
    d: int
    dtype: np.dtype
    x0: Array
    is_provable: bool

    def objective(self, x: Array, value: float) -> float:
        """Return the sum of all f_i, given that of the ft_i."""
        domain, at = self.domain, x[None]
        ridge = self.mu * float(domain.nu(at)[0]) if self.mu > 0 else 0.0
        return value + self.m * (ridge + float(domain.r(at)[0]))

    def rounded(self, x: Array) -> Array:
        """Return the nearest point of X with the precision of the data."""
        return np.asarray(self.domain.project(x[None])[0].astype(self.dtype), dtype=np.float64)

    @property
    def eps(self) -> float:
        """The precision of the data."""
        return float(np.finfo(self.dtype).eps)

    def noise(self, sums: Totals) -> float:
        """Return by how much rounding may change the objective."""
        return _NOISE * self.eps * abs(sums.value)

    def assess(self, x: Array, sums: Totals) -> "Assessment":
        """Return what the sums at x say about it."""
        objective, lower = self.objective(x, sums.value), -math.inf
        # Values of data in single precision may be rounded to less than they are.
        upper = objective + (self.eps * sums.errors.values if self.dtype == np.float32 else 0.0)
        if self.is_provable:
            given = sums.gradient, sums.conjugate, sums.errors
            lower = lower_bound_at(self.domain, self.mu, self.m, x, *given, self.eps)
        one = Piece(self.domain, self.mu, self.d, self.dtype, None)
        squared = float(stationarity_part(one, x[None], sums.gradient[None] / self.m)[0])
        return Assessment(objective, upper, lower, math.sqrt(self.m * squared), math.nan, math.nan, math.nan)


class Assessment(NamedTuple):
    """What all agents know about the best point so far.

    Attributes
    ----------
    objective : float
        The sum of all f_i.
    upper, lower : float
        Bounds on the optimum; `lower` is -inf if there is none.
    stationarity : float
        Norm of a prox-gradient step, as in `KKT`.
    scale : float
        The stationarity at the start.
    error : float
        Estimated error of the objective; NaN if it is not known.
    first : float
        The objective at the start.
    """

    objective: float
    upper: float
    lower: float
    stationarity: float
    scale: float
    error: float
    first: float

    def evaluation(self, x: Array) -> Evaluation:
        """Return it in the form in which targets are checked."""
        error, objective = (None, None) if math.isnan(self.error) else (self.error, self.objective)
        kkt = KKT(self.stationarity, 0.0, self.scale, error=error, objective=objective)
        return Evaluation(
            mean=x, point=x, lower=self.lower, upper=self.upper, disagreement=0.0, kkt=kkt, first=self.first
        )


def common_problem(context: Context, method: object, needs_hessian: bool) -> CommonProblem:
    """Let the agents find out whether they can use exact sums together, and where they start.

    It takes a survey, in which they also learn the tree.
    """
    require_common_domain(context, method)
    problem, network = context.problem, context.network
    x0 = doubles(to_numpy(context.x0))
    lacks = not problem.loss.has_value or (needs_hessian and not problem.loss.has_hessian)
    # A few digits of each start tell whether all are the same.
    marks = x0 @ np.random.default_rng(0).normal(size=problem.d)
    rows = np.column_stack(
        [np.full(len(x0), float(lacks)), np.full(len(x0), float(not problem.has_lower_bound)), marks]
    )
    lacking, unbounded, differ = network.survey(rows, _compare).tolist()
    name, what = type(method).__name__, "values and Hessians" if needs_hessian else "values"
    rule = f"{name} needs losses with {what}"
    require(not lacking, rule, repr(problem.loss), "use gs.AutoPDS(), or give a Custom loss what it lacks")
    start = network.total(x0) / network.m if differ else x0[0]
    domain = problem.domain.take([0])
    domain = domain if domain.dtype == np.float64 else domain.bind(1, problem.d, np.float64)
    common = CommonProblem(
        cast(Euclidean, domain), problem.mu, network.m, problem.d, problem.dtype, start, not unbounded
    )
    return replace(common, x0=common.rounded(start)) if differ else common


def _compare(graph: Graph, rows: Array) -> Array:
    """Whether any agent lacks something, any has no lower bound, and any starts elsewhere."""
    return np.array([rows[:, 0].max(), rows[:, 1].max(), float(np.any(rows[:, 2] != rows[0, 2]))])
