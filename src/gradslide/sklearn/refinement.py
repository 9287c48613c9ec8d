"""Refinement: several runs as one, each of which counts values from where the last one ended.

The value of a loss is rounded to about 1e-16 of itself, so that differences of values say nothing
about points closer than about 1e-8 to the optimum. Further runs therefore minimize the change from
the last answer, with the Bregman divergence of each row's loss, phi(s + t) - phi(s) - phi'(s) t,
where s is the score of the last answer. Nothing cancels there: every row contributes a nonnegative
number, accurate to all its digits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, softmax

from gradslide._support.types import Array, DType
from gradslide.engine.solve import solve
from gradslide.engine.stopping import Relative, Stop
from gradslide.losses.least_squares import LeastSquares
from gradslide.losses.linear_model import LinearModel
from gradslide.losses.logistic import Logistic
from gradslide.losses.softmax import Softmax
from gradslide.methods.gossip.auto_pds import AutoPDS
from gradslide.network import Counted, Network
from gradslide.problems.problem import Problem
from gradslide.results.certificate import KKT, Certificate
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record
from gradslide.results.solution import Solution
from gradslide.results.status import REACHED, Status

# Below this, five terms of the series are more accurate than the difference.
_SMALL = 1e-2
# The tolerance of the first run, for which plain values have enough digits; each further run lowers it by this factor.
_BY_VALUES = 1e-6
_SHARE = 1e-2
# Observing takes as long as a step of a small problem.
_RECORD_EVERY = 10
_SPENT = ("iteration", "gradients", "rounds", "control_rounds", "floats_sent", "seconds")
_ROUNDING = 64 * float(np.finfo(np.float64).eps)
_METHOD = AutoPDS(agreement="exact")


@dataclass(frozen=True)
class SiteRows:
    """features: (n, p). targets: (n,). weight: (n,). splits: the row numbers of each site."""

    features: Any
    targets: Array
    weight: Array
    splits: Sequence[Array]

    def loss(self, classes: int | None) -> LinearModel:
        """Of so many classes, whose numbers the targets are; None: least squares."""
        given: dict[str, Any] = {"splits": self.splits, "sample_weight": self.weight}
        if classes is None:
            return LeastSquares(self.features, self.targets, **given)
        if classes == 2:
            return Logistic(self.features, self.targets, **given)
        return Softmax(self.features, self.targets, classes, **given)

    def bregman(self, classes: int | None, scores: Array) -> LinearModel:
        """The Bregman divergence from the scores, (n, 1) or (n, classes), as a loss of what is
        added to them.
        """
        if classes is None:
            return _BregmanSquares(self, scores)
        return _BregmanLogistic(self, scores) if classes == 2 else _BregmanSoftmax(self, scores)


class _Bregman(LinearModel):
    """The Bregman divergence from fixed scores, which take the place of the targets."""

    bound: ClassVar[float]

    def __init__(self, rows: SiteRows, scores: Array) -> None:
        self.outputs = scores.shape[1]
        super().__init__(
            rows.features, scores, agents=None, splits=rows.splits, sample_weight=rows.weight, reduction="sum"
        )

    def read_targets(self, targets: Any, n: int, dtype: DType) -> Array:
        return np.asarray(targets, dtype=dtype).reshape(n, self.outputs)

    def curvature(self, norm: int) -> float:
        return self.bound


class _BregmanSquares(_Bregman):
    bound = 1.0

    def row_values(self, scores: Array, targets: Array) -> Array:
        return 0.5 * scores**2

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return scores


class _BregmanLogistic(_Bregman):
    """log(p + q e^t) less its tangent q t, with q the probability of the second class at the
    scores, p that of the first: with t' = t - q t and -q t, whose mean is 0, it is log(1 + q h(t')
    + p h(-q t)), h(t) = e^t - 1 - t."""

    bound = 0.25

    def row_values(self, scores: Array, targets: Array) -> Array:
        q, p = expit(targets[:, 0]), expit(-targets[:, 0])
        return np.log1p(q * _exp_remainder(p * scores) + p * _exp_remainder(-q * scores))

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return expit(targets[:, 0] + scores) - expit(targets[:, 0])


class _BregmanSoftmax(_Bregman):
    """The same for more classes: log sum_k p_k e^(t_k) less sum_k p_k t_k."""

    bound = 0.5

    def row_values(self, scores: Array, targets: Array) -> Array:
        p = softmax(targets, axis=1)
        centred = scores - np.sum(p * scores, axis=1, keepdims=True)
        return np.log1p(np.sum(p * _exp_remainder(centred), axis=1))

    def row_slopes(self, scores: Array, targets: Array) -> Array:
        return softmax(targets + scores, axis=1) - softmax(targets, axis=1)


def _exp_remainder(t: Array) -> Array:
    """e^t - 1 - t to all digits, and inf for steps that were far too long."""
    series = t**2 / 2 * (1 + t / 3 * (1 + t / 4 * (1 + t / 5 * (1 + t / 6))))
    with np.errstate(over="ignore"):
        return np.where(np.abs(t) < _SMALL, series, np.expm1(t) - t)


@dataclass(frozen=True)
class Tolerance:
    """When to stop. tol: the norm of the gradient of the sum, in the scaled variables, relative to
    its usual size. max_iter: the most outer iterations."""

    tol: float
    max_iter: int


def solve_refined(
    problem: Problem, shifted: Callable[[Array, Array], Problem], network: Network, tolerance: Tolerance, size: float
) -> Solution:
    """Solve until the KKT residuals are below tol * size.

    shifted: from a point, (d,), and the gradients there, (m, d), to the same problem, up to a
    constant, in the change from that point.
    """

    def run(problem: Problem, tol: float, iterations: int, start: Solution | None = None) -> Solution:
        stop = Stop(kkt=Relative(tol, to=size), iterations=iterations)
        return solve(problem, network, _METHOD, stop=stop, warm_start=start, record_every=_RECORD_EVERY)

    found = run(problem, max(tolerance.tol, _BY_VALUES), tolerance.max_iter)
    tol = _BY_VALUES
    while tolerance.tol < tol and found.status in REACHED:
        left = tolerance.max_iter - found.history[-1].iteration
        if left <= 0:
            return replace(found, status=Status.ITERATION_LIMIT)
        tol = max(tolerance.tol, _SHARE * tol)
        costs = Costs(gradients=1)
        anchor = Counted(network, costs).agree(found.x, "sum") / network.m
        slope = problem.loss.gradient(np.tile(anchor, (problem.m, 1))) + problem.mu * anchor
        more = run(shifted(anchor, slope), tol, left, replace(found, x=found.x - anchor))
        spent = Record.of(0, costs)
        history = History(_after(spent, record) for record in more.history)
        more = replace(more, costs=_total(costs, more.costs), history=history)
        found = _joined(
            problem, found, _shifted_back(anchor, more) if _is_better(more, found) else _kept_answer(found, more)
        )
    return found


def _is_better(more: Solution, found: Solution) -> bool:
    """Whether the later run improved the answer: one that did not converge may have moved away."""
    if not (isinstance(more.kkt, KKT) and isinstance(found.kkt, KKT) and np.all(np.isfinite(more.x))):
        return False
    return more.status in REACHED or more.kkt.stationarity <= found.kkt.stationarity


def _kept_answer(found: Solution, more: Solution) -> Solution:
    """The previous answer, with the costs of both runs."""
    return replace(found, costs=more.costs, history=more.history, status=more.status, warnings=more.warnings)


def _shifted_back(anchor: Array, more: Solution) -> Solution:
    outputs = {name: _added(anchor, each) for name, each in more.outputs.items()}
    x = outputs[more.output]
    return replace(more, x=x, outputs=outputs, mean=np.mean(x, axis=0))


def _added(anchor: Array, x: Array) -> Array:
    """anchor + x, where entries that are 0 up to rounding are exactly 0: the l1 penalty put them
    there.
    """
    added = anchor + x
    return np.where(np.abs(added) <= _ROUNDING * np.abs(anchor), 0.0, added)


def _joined(problem: Problem, first: Solution, second: Solution) -> Solution:
    """The answer of the second run, with the costs of both, and the lower bound of the first."""
    kkt = None
    if isinstance(first.kkt, KKT) and isinstance(second.kkt, KKT):
        kkt = KKT(second.kkt.stationarity, second.kkt.disagreement, first.kkt.scale)
    mean = np.broadcast_to(second.mean, second.x.shape)
    upper = float(np.sum(problem.objective(mean)))
    certificate = first.certificate
    if certificate is not None:
        disagreement = np.linalg.norm(second.x - mean, axis=1).max()
        certificate = Certificate(certificate.lower, upper, float(disagreement))
    records = [_after(first.history[-1], record) for record in second.history]
    if records:
        records[-1] = replace(records[-1], objective=upper)
    return replace(
        second,
        costs=_total(first.costs, second.costs),
        history=History([*first.history, *records]),
        certificate=certificate,
        certificate_reason=first.certificate_reason.replace(str(first.kkt), str(kkt)),
        kkt=kkt,
        warnings=tuple(dict.fromkeys(first.warnings + second.warnings)),
    )


def _total(first: Costs, second: Costs) -> Costs:
    names = [field.name for field in fields(Costs) if field.name != "simulated_seconds"]
    return Costs(**{name: getattr(first, name) + getattr(second, name) for name in names})


def _after(last: Record, record: Record) -> Record:
    """A record of the second run plus the costs of the first; its objectives belong to the shifted
    problem.
    """
    spent = {name: getattr(last, name) + getattr(record, name) for name in _SPENT}
    return replace(record, **spent, objective=None, local_objective=None, lower=None, gap=None)
