"""When a run ends: targets and limits, the checks that agents take, and control signals between processes."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, NamedTuple, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.errors import InputError, require, require_number
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, Storable
from gradslide.methods.base import AnyMethod
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import KKT, Certificate, SaddleKKT
from gradslide.results.costs import Costs
from gradslide.results.history import Record
from gradslide.results.status import Status
from gradslide.theory.certificates import CertificateEvaluator, DualEvidence, Evaluation, Request

TARGETS = ("objective", "residual", "disagreement", "gap", "kkt")
LIMITS = ("iterations", "gradients", "samples", "rounds", "operator_products", "seconds")
# No mixing brings agents closer by such a factor.
_BEYOND_REACH = 1e100
# The first check, and the share by which iterations grow between checks: each costs control rounds.
_FIRST_CHECK, _CHECK_GROWTH = 5, 0.5
# The share for late checks, which cost no rounds; not for kkt, where each check costs a gradient.
_LATE_GROWTH = 0.2
# The largest number of late checks under way: each keeps a snapshot.
_UNDER_WAY = 3
# Outer iterations within which a late check must be decided, or half of those before it if that is more. After one that
# was not, the next is started when it has twice as long.
_PATIENCE = 32
# A gap is never small relative to an optimum of 0: this share of the objective at the start will do.
_NEGLIGIBLE = 1e-9
# The same for an estimated error, which has no rounding errors of bounds, and with exact sums; in double and in single
# precision.
_NEGLIGIBLE_ERROR = {np.dtype(np.float64): (1e-12, 1e-20), np.dtype(np.float32): (1e-9, 1e-9)}


class Signal(IntEnum):
    """What a process asks of a run that it shares with others; the largest one wins.

    SAVE: write checkpoints. INTERRUPT: Ctrl-C. GRADIENTS, TIME: limits that processes reach at different times.
    STOP: the callback returned True. DIVERGED: values overflowed.
    """

    NONE = 0
    SAVE = 1
    INTERRUPT = 2
    GRADIENTS = 3
    TIME = 4
    STOP = 5
    DIVERGED = 6


@dataclass(frozen=True)
class Relative(CheckedArguments):
    """A target relative to a scale.

    Parameters
    ----------
    value : float
        The relative accuracy, positive.
    to : float, optional
        The scale. Each target has a default except the objective:

        - objective: required, the optimum or an estimate of it; holds if
          ``objective <= to + value * abs(to)``;
        - disagreement: the norm of the mean;
        - residual: sqrt(m) times the norm of the mean; without a network, the larger of norm(A x)
          and the norm of the nearest allowed value of A x, or norm(A) norm(x) if that is 0;
        - gap: the absolute value of the objective, or 1e-9 times that at the start if the method
          evaluated it there (the optimum may be 0);
        - kkt: the stationarity at the start, the norm of the mean for the disagreement and, if the
          agents can estimate the error of the objective (`KKT.error`), the objective for that error, or
          1e-12 times that at the start (1e-20 with exact sums, 1e-9 in single precision).

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.Stop(objective=gs.Relative(1e-3, to=52.1), disagreement=gs.Relative(1e-2)).has_targets
    True
    """

    value: float
    to: float | None = None

    def __post_init__(self) -> None:
        require_number("a relative target", self.value, "for example Relative(1e-3)", above=0)
        if self.to is not None:
            require_number("what a target is relative to", self.to, "for example Relative(1e-3, to=optimum)")


Target = float | Relative | None


@dataclass(frozen=True, kw_only=True)
class Stop(CheckedArguments):
    """Targets, which must all hold, and limits, of which any one ends the run.

    Each target is a number or a `Relative`.

    Parameters
    ----------
    objective : float or Relative, optional
        Target: a level for the sum of all f_i at the mean of the agents; for a saddle point
        problem, for the maximum over z. It is a level, not an error: for an error give
        ``Relative(1e-3, to=optimum)``.
    residual : float or Relative, optional
        Target: norm(A x), or the distance of A x from the values that the constraints allow.
    disagreement : float or Relative, optional
        Target: max_i norm(x_i - mean).
    gap : float or Relative, optional
        Target: the absolute value of the certified optimality gap.
    kkt : float or Relative, optional
        Target: on a network stationarity and disagreement of `Solution.kkt`, which prove nothing
        about the objective. Otherwise all three residuals of `SaddleKKT`, which are relative already:
        ``1e-6`` and ``Relative(1e-6)`` mean the same.
    iterations : int, optional
        Limit on outer iterations.
    gradients, samples, rounds : int, optional
        Limits per agent.
    operator_products : int, optional
        Limit on products with A and its transpose together.
    seconds : float, optional
        Limit on wall-clock time from the call of `solve`, setup and metrics included; the time
        until neighbours in other processes are connected does not count. A run in one process
        takes fewer records once these have needed a tenth of the limit, and a fifth of the time
        so far.

    Raises
    ------
    InputError
        If nothing is given, a limit is not positive, or a relative objective lacks its scale.

    Notes
    -----
    Targets other than gap and kkt are observed over all agents, which costs nothing. If only
    residual or disagreement is missing and the method has last exchanges (`AutoPDS` mixes its
    answers), the run ends with as many of them as it takes; limits do not cut these short.

    On a network with gap or kkt the agents decide by themselves: whenever the number of outer
    iterations has grown by half, and at the end, they agree on all targets. That costs control
    rounds and one function value (gap) or gradient (kkt; two the first time), which are counted.
    Without a network, kkt costs one gradient and two products for each output of the method as
    often, but nothing with `Auto`, `Newton` and `LBFGS`, which know the residuals.
    With `AutoPDS` the sums are piggybacked on its exchanges instead, and gaps are checked whenever
    the iterations have grown by a fifth. The decision comes some iterations late, and the answer is
    that of the iteration which was checked.

    Targets alone may never be reached: give a limit as well. A run that reaches targets on
    feasibility alone (residual, disagreement) ends as `Status.FEASIBLE`: such a point need not be
    optimal. An objective says little about a point that is not feasible: where there are linear
    constraints, objective or gap without residual also need a relative residual of 1e-4; where
    agents have sets of their own, an objective alone also needs a relative disagreement of 1e-2.
    A run whose only target on optimality is an absolute kkt, or one with ``to=``, ends as
    `Status.STATIONARY`.

    Examples
    --------
    >>> import gradslide as gs
    >>> sorted(gs.Stop(gap=gs.Relative(1e-4), iterations=1000).given)
    ['gap', 'iterations']
    """

    objective: Target = None
    residual: Target = None
    disagreement: Target = None
    gap: Target = None
    kkt: Target = None
    iterations: int | None = None
    gradients: int | None = None
    samples: int | None = None
    rounds: int | None = None
    operator_products: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        is_empty = True
        for name in LIMITS:
            limit = getattr(self, name)
            if limit is not None:
                is_empty = False
                require_number(name, limit, f"or leave {name} out", above=0, whole=name != "seconds")
        for name in TARGETS:
            target = getattr(self, name)
            if target is not None:
                is_empty = False
                if not isinstance(target, Relative):
                    least_above = -math.inf if name == "objective" else 0.0
                    require_number(name, target, "or give a Relative", above=least_above)
        if is_empty:
            raise InputError("a Stop needs a target or a limit", "none", "for example Stop(iterations=1000)")
        if isinstance(self.objective, Relative):
            require(
                self.objective.to is not None,
                "a relative objective needs a value to be relative to",
                self.objective,
                "give Relative(1e-3, to=optimum)",
            )

    @property
    def given(self) -> set[str]:
        """The names of the targets and limits that were given."""
        return {field.name for field in fields(self) if getattr(self, field.name) is not None}

    @property
    def has_targets(self) -> bool:
        """Whether any target was given."""
        return not self.given.isdisjoint(TARGETS)

    def success(self, kkt: KKT | SaddleKKT | None = None) -> Status:
        """Return how a run ends that reaches every target.

        Parameters
        ----------
        kkt : KKT or SaddleKKT, optional
            The residuals that reached their target.

        Returns
        -------
        Status
            `FEASIBLE` if no target concerns the objective, `STATIONARY` if kkt alone does and the
            error of the objective was not estimated (without a network, the complementarity is not
            known); else `CONVERGED`.
        """
        if self.objective is not None or self.gap is not None:
            return Status.CONVERGED
        if self.kkt is None:
            return Status.FEASIBLE
        if isinstance(kkt, SaddleKKT):
            return Status.STATIONARY if kkt.complementarity is None else Status.CONVERGED
        is_known = self.estimates_error and kkt is not None and kkt.error is not None
        return Status.CONVERGED if is_known else Status.STATIONARY

    @property
    def estimates_error(self) -> bool:
        """Whether kkt, relative to the start, is the only target that concerns optimality.

        Where columns differ in scale that says little about the objective, whose error is estimated
        then.
        """
        is_relative = isinstance(self.kkt, Relative) and self.kkt.to is None
        return is_relative and self.gap is None and self.objective is None

    def accuracy(self, objective: float) -> float:
        """Return the error of the objective that the targets on optimality allow.

        Parameters
        ----------
        objective : float
            The objective at the answer.

        Returns
        -------
        float
            Infinite if an absolute kkt is all that was asked for.
        """
        allowed = math.inf
        if isinstance(self.kkt, Relative):
            allowed = self.kkt.value * abs(objective)
        if isinstance(self.gap, Relative):
            return min(allowed, self.gap.value * abs(objective if self.gap.to is None else self.gap.to))
        return allowed if self.gap is None else min(allowed, self.gap)

    def check(self, problem: Problem | Saddle, method: AnyMethod) -> None:
        """Refuse targets that this problem and method cannot measure, and limits that they never spend.

        Parameters
        ----------
        problem : Problem or Saddle
            The problem to be solved.
        method : Method
            The method that solves it.

        Raises
        ------
        InputError
            If a target is never measured, or no given limit is ever reached.
        """
        never = {"rounds"} if isinstance(problem, Saddle) else {"operator_products"}
        if method.oracle is None:
            never.add("samples")
        what = f"{method.name} on a {type(problem).__name__}"
        rule = f"a Stop needs a target, or a limit that comes: {what} spends no {' and no '.join(sorted(never))}"
        require(not self.given <= never, rule, ", ".join(sorted(self.given)), "add for example iterations=1000")
        if self.objective is not None:
            rule = "Stop(objective=...) needs a loss that has a value"
            require(problem.loss.has_value, rule, "Custom without it", "use residual or disagreement, or give value=")
        if isinstance(problem, Saddle):
            self._check_saddle(problem, method)
        elif problem.coupling is not None:
            self._check_coupled(problem)
        else:
            self._check_network(problem, method)

    def _check_saddle(self, problem: Saddle, method: AnyMethod) -> None:
        if self.gap is not None:
            rule = (
                "Stop(gap=...) needs a lower bound (X bounded or mu > 0), a known maximum over Z, and a method like PDS"
            )
            require(problem.has_gap and method.proves, rule, repr(problem), "use objective or residual")
        if self.objective is not None:
            rule, remedy = "Stop(objective=...) needs the maximum over Z of <A x, z> - h(z)", "or use another"
            require(problem.maximum_is_known, rule, repr(problem), f"give conjugate= to gs.terms.Prox, {remedy}")
        if self.residual is not None:
            rule = "Stop(residual=...) needs A x = b, or bounds on A x"
            require(problem.duals.is_constrained, rule, repr(problem), "use gap or objective")
        if self.kkt is not None:
            rule = "Stop(kkt=...) needs a method with multipliers and exact gradients"
            knows = method.oracle is None and (method.has_multipliers or method.stops_itself)
            require(knows, rule, method.name, "use residual or objective, or a method like gs.PDS()")
        if self.disagreement is not None:
            rule = "Stop(disagreement=...) needs agents on a network"
            raise InputError(rule, type(problem).__name__, "use residual, kkt, gap or objective")

    def _check_coupled(self, problem: Problem) -> None:
        if self.gap is not None:
            rule = "Stop(gap=...) needs a lower bound on the optimum: all X_i bounded or mu > 0, and losses with values"
            require(problem.has_lower_bound, rule, repr(problem), "use kkt")
        rule = "Stop(disagreement=...) needs agents that agree: coupled ones have variables of their own"
        require(self.disagreement is None, rule, repr(problem), "use kkt, residual, gap or objective")

    def _check_network(self, problem: Problem, method: AnyMethod) -> None:
        is_exact, is_common = method.oracle is None, problem.domain.common
        if self.gap is not None:
            rule = "Stop(gap=...) needs a lower bound on the optimum: X bounded or mu > 0, and a loss that has a value"
            remedy = "give mu > 0 or a bounded domain, or use kkt"
            require(problem.has_lower_bound, rule, repr(problem), remedy)
            rule = "Stop(gap=...) needs one domain for all agents: the mean of theirs must be feasible"
            require(is_common, rule, f"{type(problem.domain).__name__} with a set for each agent", "use kkt")
            rule = "Stop(gap=...) needs a method that proves lower bounds from exact gradients"
            remedy = "use gs.PDS() or gs.CondatVu(), or objective and disagreement"
            require(method.proves and is_exact, rule, method.name, remedy)
        if self.kkt is not None:
            rule = "Stop(kkt=...) needs a method with exact gradients"
            require(is_exact, rule, method.name, "use objective and disagreement")
            rule = "Stop(kkt=...) needs multipliers where agents have domains of their own"
            require(method.proves or is_common, rule, method.name, "use gs.PDS() or gs.CondatVu()")

    def reached(
        self, record: Record, kkt: KKT | SaddleKKT | None = None, least: float = 0.0, least_for_error: float = 0.0
    ) -> bool:
        """Return whether every target holds.

        Parameters
        ----------
        record : Record
            What was observed or agreed on.
        kkt : KKT or SaddleKKT, optional
            The residuals that a target on them is compared with.
        least : float
            The least scale of a relative gap, used where the objective is smaller.
        least_for_error : float
            The same for an estimated error of the objective.

        Returns
        -------
        bool
            False if there are no targets, or a value is unknown.
        """
        found = self._comparisons(record, kkt, least, least_for_error)
        for _, measured, allowed in found:
            if measured is None or not measured <= allowed:
                return False
        return bool(found)

    def contraction_needed(self, record: Record) -> float | None:
        """Return the factor by which the agents must come closer for all targets to hold.

        Parameters
        ----------
        record : Record
            What was observed.

        Returns
        -------
        float or None
            None if that alone does not suffice, or no objective was asked for.
        """
        if self.objective is None or self.gap is not None or self.kkt is not None:
            return None
        ratios = []
        for name, measured, allowed in self._comparisons(record):
            if name == "objective" and (measured is None or not measured <= allowed):
                return None
            if name != "objective" and allowed and measured is not None:
                ratios.append(measured / allowed)
        worst = max(ratios, default=math.inf)
        return worst if worst < _BEYOND_REACH else None

    def apart(self, record: Record) -> float | None:
        """Return `contraction_needed`; deprecated."""
        warnings.warn("Stop.apart is now Stop.contraction_needed", DeprecationWarning, stacklevel=2)
        return self.contraction_needed(record)

    def _comparisons(
        self, record: Record, kkt: KKT | SaddleKKT | None = None, least: float = 0.0, least_for_error: float = 0.0
    ) -> list[tuple[str, float | None, float]]:
        """The name, measured value and largest allowed value of each target."""
        measurements: list[tuple[str, float | None, float]] = [
            ("objective", record.objective, 0.0),
            ("residual", record.residual, record.residual_scale),
            ("disagreement", record.disagreement, record.mean_norm),
            ("gap", None if record.gap is None else abs(record.gap), max(least, abs(record.objective or 0.0))),
        ]
        if kkt is None:
            measurements.append(("kkt", None, 0.0))
        elif isinstance(kkt, SaddleKKT):
            measurements.append(("kkt", kkt.largest, 1.0))
        else:
            measurements += [("kkt", kkt.stationarity, kkt.scale), ("kkt", kkt.disagreement, record.mean_norm)]
        found: list[tuple[str, float | None, float]] = []
        for name, measured, scale in measurements:
            target: Target = getattr(self, name)
            if isinstance(target, Relative):
                to = scale if target.to is None else target.to
                target = to + target.value * abs(to) if name == "objective" else target.value * to
            if target is not None:
                found.append((name, measured, target))
        if self.estimates_error and isinstance(kkt, KKT) and kkt.error is not None:
            assert isinstance(self.kkt, Relative)
            found.append(("kkt", kkt.error, self.kkt.value * max(least_for_error, abs(kkt.objective or 0.0))))
        return found

    def exhausted(
        self, iteration: int, costs: Costs, signal: Signal = Signal.NONE, schedule_end: int | None = None
    ) -> Status | None:
        """Return the limit that has been reached, if any.

        Parameters
        ----------
        iteration : int
            Outer iterations done.
        costs : Costs
            What was spent.
        signal : Signal
            The most urgent signal of all processes: gradients and time are limits of any of them.
        schedule_end : int, optional
            Outer iterations of the method's schedule.
        """
        for status, limit, spent in (
            (Status.COMPLETED, schedule_end, iteration),
            (Status.ITERATION_LIMIT, self.iterations, iteration),
            (Status.GRADIENT_LIMIT, 1, signal is Signal.GRADIENTS),
            (Status.SAMPLE_LIMIT, self.samples, costs.samples),
            (Status.ROUND_LIMIT, self.rounds, costs.rounds),
            (Status.PRODUCT_LIMIT, self.operator_products, costs.operator_products),
            (Status.TIME_LIMIT, 1, signal is Signal.TIME),
        ):
            if limit is not None and spent >= limit:
                return status
        return None


@dataclass(frozen=True)
class Check:
    """What all agents agreed on after an outer iteration, or knew; lower: the best bound of all checks so far."""

    iteration: int
    mean_norm: float
    lower: float | None
    upper: float | None
    disagreement: float | None
    kkt: KKT | None
    is_known: bool = False

    def agreed(self, record: Record) -> Record:
        """The record of that iteration with what the agents agreed on in place of what was observed."""
        record = replace(record, mean_norm=self.mean_norm, disagreement=self.disagreement)
        if self.lower is None or self.upper is None:
            return record
        return replace(record, objective=self.upper, lower=self.lower, gap=self.upper - self.lower)


@dataclass
class LateCheck:
    """A check whose sums are piggybacked on the exchanges of later iterations.

    Attributes
    ----------
    iteration : int
        The outer iteration that it is about.
    state : object
        The method's snapshot; the answer, if the targets held.
    gradient : Array or None
        The gradients at the answer, for kkt.
    record : Record or None
        What was observed in that iteration.
    mean : Array or None
        The mean of the answers, once it is known.
    names : sequence of str
        What the sums that are under way then are about.
    sums : Array or None
        These, once they are known.
    awaits_distance : bool
        Whether the largest distance from the mean is under way.
    distance : float or None
        That distance, once it is known.
    """

    iteration: int
    state: Any
    gradient: Array | None
    record: Record | None = None
    mean: Array | None = None
    names: Sequence[str] = ()
    sums: Array | None = None
    awaits_distance: bool = False
    distance: float | None = None

    @property
    def channel(self) -> str:
        """The channel of its reductions."""
        return f"check {self.iteration}"

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint holds, but for arrays with one row for each agent."""
        record = None if self.record is None else asdict(self.record)
        names = ("iteration", "mean", "names", "sums", "awaits_distance", "distance")
        return {**{name: getattr(self, name) for name in names}, "record": record}

    @classmethod
    def from_dict(cls, saved: dict[str, Any], state: object, gradient: Array | None) -> "LateCheck":
        """Return the check that `to_dict` saved, with its arrays."""
        record = None if saved["record"] is None else Record(**saved["record"])
        return cls(state=state, gradient=gradient, **{**saved, "record": record})


# A snapshot for a late check, and gradients.
CheckState = tuple[Any, Array | None]
# From a snapshot to the answer and its dual evidence.
Look = Callable[[Any], tuple[Array, Sequence[DualEvidence]]]


@dataclass
class Checks:
    """Decisions that end a run on a network: taken now and then, on what all agents know alike, and counted.

    A check is taken at once, in control rounds, or late: its sums are piggybacked, and the decision
    is about the outer iteration in which it was started.

    Parameters
    ----------
    stop : Stop
        The targets.
    evaluator : CertificateEvaluator
        Computes bounds and residuals, with counted control rounds.
    start : Array
        x_0.
    measures_disagreement : bool
        Compute the disagreement even if it is no target, because nothing else observes it.
    may_be_late : bool
        Whether checks may be late.

    Attributes
    ----------
    last : Check or None
        The last check.
    iteration : int
        Its outer iteration; -1 before the first.
    under_way : list of LateCheck
        Late checks that are not decided yet, the oldest first.
    held : LateCheck or None
        The first one after which all targets held.
    late_from : int
        The first outer iteration in which a late check may be started: later, if one was not decided
        in time.
    estimated : tuple of int and KKT or None
        In which outer iteration the error of the objective was estimated last, and what was found.
    """

    stop: Stop
    evaluator: CertificateEvaluator
    start: Array
    measures_disagreement: bool = False
    may_be_late: bool = False
    last: Check | None = field(default=None, init=False)
    iteration: int = field(default=-1, init=False)
    under_way: list[LateCheck] = field(default_factory=list, init=False)
    held: LateCheck | None = field(default=None, init=False)
    late_from: int = field(default=_FIRST_CHECK, init=False)
    estimated: tuple[int, KKT | None] = field(default=(0, None), init=False)
    _is_overdue: bool = field(default=False, init=False)
    _lower: float = field(default=-math.inf, init=False)

    @property
    def request(self) -> Request:
        """What a check finds out."""
        measures_disagreement = self.stop.disagreement is not None or self.measures_disagreement
        return Request(self.stop.gap is not None, measures_disagreement, self.stop.kkt is not None, in_doubles=True)

    def is_due(self, iteration: int) -> bool:
        """Whether iterations have grown enough since the last check, or a late one was not decided in time."""
        return self._is_overdue or (iteration >= _FIRST_CHECK and has_grown(iteration, _CHECK_GROWTH))

    def take(self, iteration: int, x: Array, evidence: Sequence[DualEvidence], known: Evaluation | None = None) -> None:
        """Let the agents agree on the values of their targets at x, unless they know them already."""
        if known is None:
            found = self.evaluator.evaluate(x, evidence, **asdict(self.request), start=self.start)
        else:
            found, self.evaluator.first = known, known.first
        self._take_in(iteration, found, is_known=known is not None)

    def _take_in(self, iteration: int, found: Evaluation, is_known: bool = False) -> None:
        stop, evaluator, self._is_overdue = self.stop, self.evaluator, False
        kkt = found.kkt if stop.kkt is not None else None
        if kkt is not None and kkt.error is None and stop.estimates_error:
            assert isinstance(stop.kkt, Relative)
            # The error is estimated only where the residuals would end the run, and not in every evaluation: it costs a
            # gradient and a Hessian.
            before, estimate = self.estimated
            if kkt.stationarity <= stop.kkt.value * kkt.scale:
                if estimate is None or not is_known or iteration >= (1 + _LATE_GROWTH) * before:
                    estimate = evaluator.with_error(kkt, found.mean)
                    self.estimated = iteration, estimate
                kkt = replace(kkt, error=estimate.error, objective=estimate.objective)
        if found.lower is not None:
            self._lower = max(self._lower, found.lower)
        self.iteration = iteration
        self.last = Check(
            iteration=iteration,
            mean_norm=float(np.linalg.norm(found.mean)),
            lower=None if found.lower is None else self._lower,
            upper=found.upper,
            disagreement=found.disagreement,
            kkt=kkt,
            is_known=is_known,
        )

    def are_late(self, iteration: int) -> bool:
        """Whether checks are late from this iteration on, if the method allows it."""
        return self.may_be_late and iteration >= self.late_from

    def late_is_due(self, iteration: int) -> bool:
        """Whether a late check is to be started, if the method allows it."""
        growth = _LATE_GROWTH if self.stop.kkt is None else _CHECK_GROWTH
        return self.are_late(iteration) and len(self.under_way) < _UNDER_WAY and has_grown(iteration, growth)

    def begin(self, iteration: int, state: object, look: Look) -> LateCheck:
        """Start a late check of a snapshot."""
        x, evidence = look(state)
        gradient = self.evaluator.slopes(x, self.request)
        vectors = self.evaluator.vectors(x, evidence, gradient, self.request)
        late = LateCheck(iteration, state, gradient)
        self.evaluator.network.start_reduce(array_namespace(x).concat(vectors, axis=1), "sum", late.channel)
        self.under_way.append(late)
        return late

    def advance(self, iteration: int, look: Look) -> list[Check]:
        """Take in sums of late checks that have completed; return the checks that they decided."""
        decided: list[Check] = []
        answer: Check | None = None
        for late in tuple(self.under_way):
            found = self._proceed(late, look)
            if found is None:
                continue
            self.under_way.remove(late)
            self._take_in(late.iteration, found)
            assert self.last is not None
            decided.append(self.last)
            if self.held is None and self._held_at(late):
                self.held, answer = late, self.last
        if answer is not None:
            # The first one that held counts, whatever the others say.
            self.last, self.iteration = answer, answer.iteration
        oldest = self.under_way[0].iteration if self.under_way else iteration
        patience = max(_PATIENCE, oldest // 2)
        if iteration - oldest > patience:
            # The method exchanges too seldom, or not at all: agents check at once, now and for a while.
            self._is_overdue, self.late_from, self.under_way = True, 4 * patience, []
        return decided

    def _proceed(self, late: LateCheck, look: Look) -> Evaluation | None:
        """Take in what has completed of a late check; return what it found, once all of it has."""
        evaluator, network, channel = self.evaluator, self.evaluator.network, late.channel
        if late.mean is None:
            for total in network.completed("sum", channel):
                x, evidence = look(late.state)
                means = evaluator.split_mean(total)
                # The oldest one asks for what must be known of the start; the others come later.
                start = self.start if late is self.under_way[0] else None
                parts = evaluator.parts(x, evidence, late.gradient, self.request, means, start)
                late.mean, late.names = means[0], parts.names
                if parts.columns is None:
                    late.sums = np.zeros(0)
                else:
                    network.start_reduce(parts.columns, "sum", channel)
                if parts.away is not None:
                    late.awaits_distance = True
                    network.start_reduce(parts.away[:, None], "max", channel)
        if late.mean is None:
            return None
        for total in network.completed("sum", channel):
            late.sums = total
        for largest in network.completed("max", channel):
            late.awaits_distance, late.distance = False, float(largest[0])
        if late.sums is None or late.awaits_distance:
            return None
        return evaluator.concluded(self.request, late.mean, late.names, late.sums.tolist(), late.distance)

    def _held_at(self, late: LateCheck) -> bool:
        """Whether all targets held after the late check's iteration, which was the last to be taken in."""
        return self.hold(late.record or Record.of(late.iteration, Costs()))

    def hold(self, record: Record) -> bool:
        """Whether all targets held after the record's iteration."""
        if self.last is None or self.iteration != record.iteration:
            return False
        first, dtype = abs(self.evaluator.first or 0.0), self.evaluator.problem.dtype
        share = _NEGLIGIBLE_ERROR[np.dtype(dtype)][self.last.is_known]
        return self.stop.reached(self.agreed(record), self.last.kkt, _NEGLIGIBLE * first, share * first)

    def agreed(self, record: Record) -> Record:
        """The record with what the agents agreed on in place of what was observed, if they did in its iteration."""
        return record if self.last is None or self.iteration != record.iteration else self.last.agreed(record)

    @property
    def certificate(self) -> Certificate | None:
        """What the last check proved, if it did."""
        last = self.last
        if last is None or last.lower is None or last.upper is None or last.disagreement is None:
            return None
        return Certificate(last.lower, last.upper, last.disagreement)

    def to_dict(self) -> Storable:
        """What a checkpoint keeps of the checks."""
        last = None if self.last is None else asdict(self.last)
        iteration, estimate = self.estimated
        estimated = [iteration, None if estimate is None else estimate.to_dict()]
        known = {"lower": self._lower, "first": self.evaluator.first, "scale": self.evaluator.scale, "last": last}
        late = {"request": asdict(self.request), "late_from": self.late_from, "has_held": self.held is not None}
        return {**known, **late, "estimated": estimated, "late": [each.to_dict() for each in self._late]}

    @property
    def _late(self) -> list[LateCheck]:
        """All late checks that a checkpoint holds."""
        return [*self.under_way, *([] if self.held is None else [self.held])]

    @property
    def states(self) -> list[CheckState]:
        """What a checkpoint holds of late checks for each agent."""
        return [(each.state, each.gradient) for each in self._late]

    def restore(self, saved: Storable, states: Sequence[CheckState] = ()) -> None:
        """Continue from what `to_dict` and `states` returned; late checks of other targets are dropped."""
        state = cast(dict[str, Any], saved)
        self._lower, self.evaluator.scale = state["lower"], state["scale"]
        self.evaluator.first = state.get("first")
        iteration, estimate = state.get("estimated", (0, None))
        self.estimated = iteration, None if estimate is None else KKT.from_dict(estimate)
        last = state["last"]
        if last is not None:
            kkt = None if last["kkt"] is None else KKT.from_dict(last["kkt"])
            last = Check(**{"is_known": False, **last, "kkt": kkt})
            self.iteration = last.iteration
        self.last = last
        if state.get("request") != asdict(self.request) or not self.may_be_late:
            return
        self.late_from = state["late_from"]
        late = [LateCheck.from_dict(each, *arrays) for each, arrays in zip(state["late"], states, strict=True)]
        held = late.pop() if state["has_held"] else None
        self.under_way = late
        # Targets may have changed since.
        self.held = held if held is not None and self._held_at(held) else None


class SaddleCheck(NamedTuple):
    """The residuals of an output of a saddle point problem after an outer iteration."""

    iteration: int
    output: str
    kkt: SaddleKKT


# From an output's name to its residuals.
Residuals = Callable[[str], SaddleKKT]


@dataclass
class SaddleChecks:
    """Decisions on the residuals of a saddle point problem, which has no network.

    Parameters
    ----------
    stop : Stop
        The targets.

    Attributes
    ----------
    last : SaddleCheck or None
        The last check, of the output whose residuals were smallest.
    """

    stop: Stop
    last: SaddleCheck | None = field(default=None, init=False)

    @property
    def iteration(self) -> int:
        """The outer iteration of the last check; -1 before the first."""
        return -1 if self.last is None else self.last.iteration

    def is_due(self, iteration: int) -> bool:
        """Whether iterations have grown enough since the last check."""
        return iteration == 1 or has_grown(iteration, _CHECK_GROWTH)

    def take(self, iteration: int, outputs: Iterable[str], residuals: Residuals) -> None:
        """Compute the residuals of some outputs after an outer iteration."""
        found = [SaddleCheck(iteration, name, residuals(name)) for name in outputs]
        self.last = min(found, key=lambda each: each.kkt.largest)

    def hold(self, record: Record) -> bool:
        """Whether all targets held after the record's iteration."""
        return self.iteration == record.iteration and self.last is not None and self.stop.reached(record, self.last.kkt)

    def to_dict(self) -> Storable:
        """What a checkpoint keeps of the checks."""
        last = self.last
        return None if last is None else [last.iteration, last.output, last.kkt.to_dict()]

    def restore(self, saved: Storable) -> None:
        """Continue from what `to_dict` returned."""
        iteration, output, kkt = cast(Any, saved)
        self.last = SaddleCheck(iteration, output, SaddleKKT(**kkt))


def has_grown(iteration: int, share: float) -> bool:
    """Whether the iterations have just passed a step of a ladder whose steps grow by this share."""
    step = math.log1p(share)
    return math.floor(math.log(iteration) / step) > math.floor(math.log(max(1, iteration - 1)) / step)
