"""One run in progress: `solve` lets it step, observe, decide and save, then asks for the solution."""

import math
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import copied, dtype_of, is_numpy, to_numpy, wait_for
from gradslide._support.errors import InputError, StreamEnded, StreamError, WaitEnded, raised_in, unknown_name
from gradslide._support.interrupts import Interrupt
from gradslide._support.types import Array
from gradslide._version import __version__
from gradslide.domains import Domain
from gradslide.engine.checkpoints import Checkpoint, Snapshot, run_identity
from gradslide.engine.environment import Environment, SaddleEnvironment
from gradslide.engine.progress import ProgressLine
from gradslide.engine.stopping import Check, Checks, LateCheck, SaddleChecks, Signal, Stop, has_grown
from gradslide.losses import Loss
from gradslide.losses.check import (
    ROUGH,
    has_checkable_hessian,
    has_own_hessian,
    hessian_mismatch,
    mismatch,
    missed_slopes,
    not_finite,
    rates,
    slopes,
)
from gradslide.methods.base import AnyMethod, Context, Method
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import Saddle
from gradslide.problems.terms import Term
from gradslide.results.certificate import KKT, SaddleKKT
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record
from gradslide.results.solution import Solution
from gradslide.results.status import ENDS, LIMITS, REACHED, Status
from gradslide.theory.certificates import DualEvidence, Evaluation

# The share by which iterations grow between two comparisons of all outputs.
_COMPARISON_GROWTH = 0.1
# An objective that ends above that at the start by this many times its size there has diverged.
_DIVERGED = 1e6
# Values this many times as large as at the start are beyond all measure.
_ABSURD = 1e20
# It is on its way back below this share of the largest rise.
_RETURNING = 1e-3
# Random directions in which gradients of user code are compared with values at the answer, and the multiple of the
# target by which the answer must be off to be doubtful.
_DIRECTIONS, _DOUBTFUL = 2, 10.0
# The share of a limited time that observations may take.
_OBSERVING_SHARE = 0.2
# Outer iterations before the first search for signs that there is no solution.
_FIRST_SEARCH = 16
_NO_NEWS = (
    "with exact sums agents never disagree, so that targets on disagreement and residual alone hold at once: give a "
    "target on the objective, too (gap, kkt or objective)"
)
Callback = Callable[[Record, Array], bool | None]

# What ends a run before its targets and limits do, with what was reached.
EARLY_ENDS = (StreamEnded, WaitEnded, StreamError, KeyboardInterrupt)


def _call_in(error: Exception) -> str:
    """The innermost call of a loss, a domain, a term or a method that an error passed."""
    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner, name = frame.f_locals.get("self"), frame.f_code.co_name
        if isinstance(owner, Loss | Domain | Term | Method) and not name.startswith("_"):
            found = f"{type(owner).__name__}.{name}"
    return found


class Run:
    """A run, from the initial state, or from a checkpoint, to the solution.

    Parameters
    ----------
    problem : Problem or Saddle
        The problem, on its device.
    method : Method
        The method.
    environment : Environment
        Where the run takes place.
    costs : Costs
        What the environment counts into.
    stop : Stop or None
        Targets and limits; None for those of the environment.
    x0 : Array or None
        The starting point.
    warm_start : Solution or None
        A solution whose point and multipliers to start from.
    output : str or None
        The output to measure and return; None for the recommended one.
    callback : callable or None
        Called with the record and a copy of x in every outer iteration.
    record_every : int
        Outer iterations between observations.
    checkpoint : Checkpoint or None
        Where snapshots are written.
    resume_from : int or None
        The iteration of the snapshot to resume from.
    started : float
        When the run began, by `time.perf_counter`; a limit on seconds counts from there.
    check_loss : bool
        Whether to check the gradient of a loss that is a user's code.

    Attributes
    ----------
    status : Status or None
        How the run ended; None while it goes on.
    failures : list of StreamError
        The error of the stream of samples that failed, if one did.
    """

    def __init__(
        self,
        problem: Problem | Saddle,
        method: AnyMethod,
        environment: Environment,
        costs: Costs,
        *,
        stop: Stop | None,
        x0: Array | None,
        warm_start: Solution | None,
        output: str | None,
        callback: Callback | None,
        record_every: int,
        checkpoint: Checkpoint | None,
        resume_from: int | None,
        started: float,
        check_loss: bool,
    ) -> None:
        self._given_method, self._environment, self._given_stop = method, environment, stop
        self._callback, self._record_every, self._checkpoint = callback, record_every, checkpoint
        self._interrupt = Interrupt()
        self._line: ProgressLine | None = None
        self._is_shared = len(environment.network.agents) < environment.network.m
        self._signal = Signal.NONE
        self._limit: Status | None = None
        self._finding: Status | None = None
        self._started, self._earlier, self._observing = started, 0.0, 0.0
        self._lower, self._finish_factor, self._ended_by = -math.inf, 1.0, ""
        self._is_complete, self._asked_to_stop = False, False
        self._checks_loss, self._doubt = check_loss and method.oracle is None, ""
        self._attempted = 0
        self._ray: Array | None = None
        self.status: Status | None = None
        self._found_limit: Status | None = None
        self.failures: list[StreamError] = []

        dual = None if warm_start is None else warm_start.dual
        context = Context(
            problem=problem,
            oracle=environment.oracle,
            network=environment.network,
            coupling=environment.coupling,
            x0=problem.start(x0 if warm_start is None else warm_start.x),
            s0=None if dual is None else problem.placed(environment.dual_start(np.array(dual))),
        )
        self._now = Snapshot(iteration=0, state=None, costs=costs)
        # A state that only lends its form to the saved one draws no samples.
        environment.oracle.is_blank = resume_from is not None
        try:
            with self._timed():
                is_checkable = problem.loss.is_user_supplied and problem.loss.has_value
                if self._checks_loss and is_checkable and resume_from is None:
                    _check_derivatives(context)
                self._choice = method.choose(context)
                prepared = self._choice.prepared
                prepared = self._method.prepare(context) if prepared is None else prepared
                context = replace(context, prepared=prepared)
                self._now.state = self._method.init(context)
        except StreamEnded as end:
            raise StreamError(end.agent, "it ended before the first outer iteration") from None
        except Exception as error:
            self.locate(error)
            raise
        environment.oracle.is_blank = False
        x = context.x0
        if is_numpy(x) and (x == x[:1]).all():
            # One row in memory stands for all.
            x = np.broadcast_to(np.array(x[:1]), x.shape)
        self._context = replace(context, x0=x)
        self._plan()
        outputs = self._outputs()
        self._output = next(iter(outputs)) if output is None else output
        self._may_switch = output is None and len(outputs) > 1 and environment.compares_outputs
        if self._output not in outputs:
            raise unknown_name("output", self._output, outputs)
        # Reading numbers on a device takes waiting: that is only done for a record or a callback.
        self._reads_all = callback is not None or is_numpy(outputs[self._output])
        self._keep_output()
        if checkpoint is not None:
            self._identity = run_identity(
                self._context,
                method=repr(method),
                network=environment.fingerprint(),
                output=self._output,
                clock="" if environment.timeline is None else repr(environment.timeline),
            )
            checkpoint.require_storable(self._snapshot())
            if resume_from is not None:
                self._resume(checkpoint.read(resume_from, self._now.state, self._identity, problem.device))

    @property
    def _method(self) -> AnyMethod:
        """The method that does the work."""
        return self._choice.method

    def _plan(self) -> None:
        """Find out when the method's schedule ends, if it does, and when the run ends."""
        fixes_iterations = self._method.fixes_iterations
        self._schedule_end = self._method.iterations(self._now.state) if fixes_iterations else None
        stop = self._given_stop
        if stop is None:
            self._stop = self._environment.default_stop(self._method, self._schedule_end)
        else:
            self._stop = self._environment.completed(stop)
        self._checks = self._environment.checks(self._stop, self._context.x0)

    def _resume(self, found: Snapshot) -> None:
        # The oracle and the network count into the same object for the whole run.
        costs, engine = self._now.costs, found.engine
        assert engine is not None
        costs.__dict__.update(asdict(found.costs))
        told = cast("dict[str, float | str]", engine.get("choice", {}))
        self._choice = self._given_method.resumed(self._choice, told)
        fresh, found.costs = self._now.state, costs
        found.state = self._method.restored(found.state, fresh)
        self._earlier = costs.seconds
        self._now = found
        self._environment.resume(engine["environment"])
        self._restore_lower()
        self._plan()
        if self._checks is not None and engine["checks"] is not None:
            if isinstance(self._checks, SaddleChecks):
                self._checks.restore(engine["checks"])
            else:
                states = [(self._method.restored(state, fresh), gradient) for state, gradient in found.check_states]
                self._checks.restore(engine["checks"], states)
        limit = cast("dict[str, Any] | None", engine.get("limit"))
        if limit is not None and limit["stop"] == self._described_stop():
            # It may be that only another process had reached it.
            self._found_limit = Status[limit["status"]]
        self._keep_output()

    def _restore_lower(self) -> None:
        """Take the best lower bound from the last record."""
        records = self._now.records
        self._lower = records[-1].lower if records and records[-1].lower is not None else -math.inf

    @property
    def length(self) -> int | None:
        """The number of outer iterations, if it is known ahead."""
        if self._stop.has_targets:
            return None
        return min((n for n in (self._stop.iterations, self._schedule_end) if n is not None), default=None)

    def begin(self, interrupt: Interrupt, line: ProgressLine | None) -> None:
        """Get ready for the first step; set the status if a resumed run has already ended.

        Parameters
        ----------
        interrupt : Interrupt
            Whether Ctrl-C was pressed. It ends the run, and so do samples that are waited for then.
        line : ProgressLine or None
            Shows the records.
        """
        self._interrupt, self._line = interrupt, line
        if self._method.oracle is not None:
            self._context.oracle.wait_unless(lambda: interrupt.requested or self._own_limit() is Signal.TIME)
        now, records = self._now, self._now.records
        last = records[-1] if records else None
        if self._checks is not None and self._checks.iteration == now.iteration:
            last = self._record(self._outputs()[self._output], is_observed=self._observes_targets)
        if self._late_answer is not None or (last is not None and self._reached(last)):
            self._switch_output()
            self.status = self._success()
            return
        # A run whose setup took all the time still does one outer iteration.
        self._share(self._own_limit() if now.iteration else Signal.NONE)
        self.status = self._stop.exhausted(now.iteration, now.costs, self._signal, self._schedule_end)
        self.status = self.status or self._found_limit
        if self.status is None and records and records[-1].iteration % self._record_every:
            # This record was only taken because the earlier run ended there.
            records.pop()
            self._restore_lower()

    def end_early(self, error: BaseException) -> None:
        """Let Ctrl-C, or a stream of samples that ended or failed, end the run with what was reached.

        Parameters
        ----------
        error : StreamEnded, WaitEnded, StreamError or KeyboardInterrupt
            What happened. Methods draw samples before they overwrite anything of the old state.
        """
        if isinstance(error, KeyboardInterrupt):
            if self._is_shared:
                # The other processes would wait for this one for ever.
                raise error
            self._is_complete = self._is_complete or self._context.oracle.is_drawing
            self.status = Status.INTERRUPTED
            return
        self._is_complete = True
        if isinstance(error, StreamError):
            error.iteration = self._now.iteration + 1
            self.failures.append(error)
            self.status = Status.STREAM_FAILED
        elif isinstance(error, StreamEnded):
            self._ended_by = f"the stream of agent {error.agent}, in outer iteration {self._now.iteration + 1}"
            self.status = Status.STREAM_ENDED
        else:
            is_late = self._share(max(self._own_limit(), Signal.INTERRUPT)) is Signal.TIME
            self.status = Status.TIME_LIMIT if is_late else Status.INTERRUPTED

    def locate(self, error: Exception) -> None:
        """Note on an error in which call, and in which outer iteration, it was raised.

        Parameters
        ----------
        error : Exception
            What user code raised, in a loss, a domain, a method or the callback. It stays what it
            is. Errors of ours before the first iteration speak for themselves.
        """
        is_located = any("outer iteration" in note for note in getattr(error, "__notes__", ()))
        if is_located or (self._attempted == 0 and isinstance(error, InputError)):
            return
        when = f"outer iteration {self._attempted}" if self._attempted else "before the first outer iteration"
        error.add_note(f"raised in {_call_in(error) or self._given_method.name}, {when}")

    def step(self) -> None:
        """Do one outer iteration of the method."""
        self._attempted = self._now.iteration + 1
        self._is_complete = False
        with self._timed():
            state = self._method.step(self._context, self._now.state)
            self._choice, self._now.state = self._given_method.reconsider(self._context, self._choice, state)
        self._now.iteration += 1

    def observe(self) -> Record | None:
        """Check, record and show the new iterate, and find out whether it is an answer or there is none.

        Returns
        -------
        Record or None
            The record of this iteration; None if values are no longer finite.
        """
        now, x = self._now, self._outputs()[self._output]
        is_due = now.iteration % self._record_every == 0
        if is_due and self._stop.seconds is not None:
            is_due = self._has_time_to_observe()
        has_overflowed = self._has_overflowed(x, is_due)
        if self._share(Signal.DIVERGED if has_overflowed else self._own_limit()) is Signal.DIVERGED:
            return None
        is_checked = False
        known = self._method.known(now.state)
        if known is not None and known.lower is not None:
            self._lower = max(self._lower, known.lower)
        late = None
        if isinstance(self._checks, SaddleChecks):
            with self._timed():
                is_checked = self._check_residuals(self._checks)
        elif self._checks is not None:
            with self._timed():
                is_checked, late = self._check(self._checks, x, known)
            if is_checked:
                self._share(self._own_limit())
        self._limit = self._stop.exhausted(now.iteration, now.costs, self._signal, self._schedule_end)
        is_observed = is_due or self._limit is not None
        is_observed_now = is_observed or (is_checked and self._observes_targets)
        if not has_overflowed and is_observed_now and not is_due:
            has_overflowed = self._has_overflowed(x, is_observed=True)
        record = None if has_overflowed else self._record(x, is_observed_now)
        if record is None:
            return None
        if late is not None:
            late.record = record
        self._is_complete = True
        if is_observed or self._reads_all:
            self._keep_output()
        if is_observed:
            now.records.append(record)
        if self._line is not None:
            self._line.show(record)
        if self._callback is not None:
            with raised_in(f"callback, outer iteration {now.iteration}"):
                # A copy: what a callback keeps or changes is its own.
                self._asked_to_stop = bool(self._callback(record, np.array(to_numpy(x))))
        self._finding = self._outcome(record)
        return record

    def decide(self, record: Record | None) -> Status | None:
        """Return how the run ends with this iteration, or None if it goes on.

        Parameters
        ----------
        record : Record or None
            What `observe` returned.
        """
        if record is None:
            # If processes cannot see each other they end together, once all of them know it.
            sees_all = self._context.network.session.sees_all
            ends = self._signal is Signal.DIVERGED or sees_all or self._limit is not None
            return Status.DIVERGED if ends else None
        if self._finding is not None:
            return self._finding
        signal = Signal.INTERRUPT if self._interrupt.requested else Signal.NONE
        is_due = self._checkpoint is not None and self._checkpoint.is_due
        signal = Signal.STOP if self._asked_to_stop else max(signal, Signal.SAVE if is_due else Signal.NONE)
        told = self._share(signal)
        if told is Signal.STOP:
            return Status.STOPPED
        return self._limit or (Status.INTERRUPTED if told is Signal.INTERRUPT else None)

    def save(self, *, if_due: bool = False) -> None:
        """Write a checkpoint, in all processes at the same time.

        Parameters
        ----------
        if_due : bool
            Only if a process asked for one in this iteration.
        """
        if self._checkpoint is None or not self._is_complete or (if_due and self._signal is not Signal.SAVE):
            return
        self._signal = Signal.NONE
        if self._checkpoint.save(self._snapshot(), self._identity):
            self._context.network.session.checkpointed(is_last=self.status in LIMITS | REACHED)

    def conclude(self) -> None:
        """Take a last check and the method's last exchanges.

        Checkpoints are written before: a run that is resumed has not done it.
        """
        now, finishes = self._now, self._method.finishes
        if not (self._is_complete and now.iteration and self.status in ENDS):
            return
        late = self._late_answer if self.status in REACHED else None
        if late is not None:
            self._return_to(late)
        is_unchecked = late is not None
        if self._checks is not None and self.status in LIMITS and self._checks.iteration != now.iteration:
            is_unchecked = True
            with self._timed():
                if isinstance(self._checks, SaddleChecks):
                    self._check_residuals(self._checks, is_last=True)
                else:
                    self._checks.take(now.iteration, self._outputs()[self._output], self._evidence())
            if now.records and (self._reached(now.records[-1]) or self._switch_output()):
                self.status = self._success()
        if self.status in LIMITS and self._has_diverged(now.records):
            self.status = Status.DIVERGED
            return
        if self._checks is not None and self.status in (Status.CONVERGED, Status.STATIONARY):
            with self._timed():
                self._doubt = self._doubt_at_answer()
            self.status = Status.CONTRADICTORY if self._doubt else self.status
        if finishes:
            self._is_complete = False
            with self._timed():
                now.state = self._method.finish(self._context, now.state, self._finish_factor)
            self._keep_output()
        # What was recorded of this iteration no longer holds.
        if (is_unchecked or finishes) and now.records and now.records[-1].iteration == now.iteration:
            now.records.pop()

    @property
    def _late_answer(self) -> LateCheck | None:
        """The late check that showed that all targets held, if one did."""
        return self._checks.held if isinstance(self._checks, Checks) else None

    def _return_to(self, late: LateCheck) -> None:
        """Return to the iteration that was verified; what was spent since remains spent."""
        now = self._now
        assert isinstance(self._checks, Checks)
        assert self._checks.last is not None
        now.iteration, now.state = late.iteration, late.state
        now.records[:] = [record for record in now.records if record.iteration <= late.iteration]
        if self._checks.last.lower is not None:
            self._lower = max(self._lower, self._checks.last.lower)
        self._keep_output()

    def solution(self) -> Solution:
        """Return what was reached; the last record is of the last iteration."""
        now, context, method, observer = self._now, self._context, self._method, self._environment.observer
        assert self.status is not None
        is_recorded = bool(now.records) and now.records[-1].iteration == now.iteration
        if self._is_complete and now.iteration and not is_recorded:
            record = self._record(self._outputs()[self._output], is_observed=True)
            if record is not None:
                now.records.append(record)
        # An incomplete or diverged state has no outputs worth showing but the last finite one.
        found: Mapping[str, Array] = {self._output: self._finite}
        evidence: Sequence[DualEvidence] = ()
        dual = None
        if self._is_complete:
            found, evidence, dual = self._outputs(), self._evidence(), method.dual(now.state)
            self._observe_invariant()
        if dual is not None:
            dual = to_numpy(dual[self._output] if isinstance(dual, Mapping) else dual)
        hessian = self._hessian() if self._is_complete else None
        outputs, x = {name: _owned(to_numpy(each)) for name, each in found.items()}, found[self._output]
        certificate = observer.certificate(x, self._lower)
        if self.status in (Status.INFEASIBLE, Status.UNBOUNDED):
            certificate = None
        reason = "" if certificate and math.isfinite(certificate.gap) else observer.no_certificate(method.name)
        kkt: KKT | SaddleKKT | None = None
        if self._environment.has_rows:
            kkt = self._residuals_at_answer() if self._is_complete and method.oracle is None else None
        elif (reason or self._stop.kkt is not None) and self._is_complete and method.oracle is None:
            checked = None
            if isinstance(self._checks, Checks) and self._checks.last is not None:
                checked = self._checks.last.kkt
            is_estimated = checked is not None and checked.error is not None and self._checks_are_current
            kkt = observer.kkt(x, evidence, context.x0, estimates_error=not is_estimated)
            if kkt is not None and checked is not None and is_estimated:
                # The last exchanges leave the mean where it was.
                kkt = replace(kkt, error=checked.error, objective=checked.objective)
        fields = self._environment.solution_fields(x, dual, now.costs)
        is_verified = self.status is Status.CONVERGED
        warnings = [
            *self._environment.warnings(method, x, context.x0, certificate, is_verified),
            self._fall() if self.status is Status.DIVERGED else "",
            self._doubt,
            _NO_NEWS if self.status is Status.FEASIBLE and method.has_common_state else "",
        ]
        if fields["dual"] is not None:
            fields["dual"] = fields["dual"].astype(context.problem.dtype)
        return Solution(
            x=outputs[self._output],
            agents=context.network.agents,
            output=self._output,
            outputs=outputs,
            status=self.status,
            history=History(now.records),
            y=np.array(to_numpy(evidence[0].y)) if evidence else None,
            hessian=hessian,
            certificate=certificate,
            certificate_reason=reason + (f". KKT residuals, which are no certificate: {kkt}" if reason and kkt else ""),
            kkt=kkt,
            ray=None if self._ray is None else np.array(to_numpy(self._ray)),
            parameters=self._parameters,
            warnings=tuple(filter(None, warnings)),
            settings={
                "method": repr(self._given_method),
                "problem": context.problem.described(context.network.m),
                **self._environment.names,
                "version": __version__,
                **({"ended_by": self._ended_by} if self._ended_by else {}),
            },
            **{"mean": np.mean(outputs[self._output], axis=0), **fields},
        )

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add to the run's seconds; overflow is noticed afterwards."""
        since = time.perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                yield
        finally:
            self._now.costs.seconds += time.perf_counter() - since

    def _share(self, signal: Signal) -> Signal:
        """Return the most urgent signal of all processes, as far as it is known."""
        self._signal = max(self._signal, Signal(self._context.network.session.all_reduce_signal(signal)))
        return self._signal

    def _own_limit(self) -> Signal:
        """The limit that this process has reached, of those that processes reach at different times."""
        stop, costs = self._stop, self._now.costs
        if stop.seconds is not None and self._elapsed >= stop.seconds:
            return Signal.TIME
        return Signal.NONE if stop.gradients is None or costs.gradients < stop.gradients else Signal.GRADIENTS

    @property
    def _elapsed(self) -> float:
        """Seconds since the run began, and those in the method before it was resumed."""
        return self._earlier + time.perf_counter() - self._started

    def _has_time_to_observe(self) -> bool:
        """Whether observations have taken a small share of a limited time, or of the time so far.

        Processes that observe together must not decide this by their own clocks.
        """
        if self._context.network.session.size > 1:
            return True
        assert self._stop.seconds is not None
        return self._observing <= _OBSERVING_SHARE * max(self._stop.seconds / 2, time.perf_counter() - self._started)

    def _doubt_at_answer(self) -> str:
        """Return why values contradict gradients of user code at the answer, if they do so by what targets forbid.

        Near the start a wrong gradient may look right: a small shift matters only where true gradients cancel.
        """
        context, problem, session = self._context, self._context.problem, self._context.network.session
        if not (
            session.sees_all and self._environment.starts_feasible and problem.loss.has_value and self._now.records
        ):
            return ""
        is_checked = np.full((len(context.x0), 1), self._checks_loss and problem.loss.is_user_supplied)
        if not bool(session.observe(is_checked, "or")[0]):
            return ""
        x = to_numpy(self._outputs()[self._output])
        mean = session.observe(np.asarray(x, dtype=np.float64), "sum") / context.network.m
        objective = self._now.records[-1].objective or 0.0
        stack = array_namespace(context.x0).broadcast_to
        start = problem.domain.project(problem.placed(mean[None]))
        at = stack(start, x.shape)
        for seed in range(_DIRECTIONS):
            move = np.random.default_rng(seed).normal(size=problem.d) * max(1.0, float(np.linalg.norm(mean)))
            direction = stack(problem.domain.project(start + problem.placed(move[None])) - start, x.shape)
            rows = missed_slopes(context.oracle.value, context.oracle.gradient, at, direction)
            missed, curvature = session.observe(rows, "sum").tolist()
            # A random direction shows one in d of what all of them would gain.
            gain = problem.d * missed**2 / (2 * curvature) if curvature > 0 else math.inf if missed else 0.0
            if gain > _DOUBTFUL * self._stop.accuracy(objective):
                return (
                    f"values and gradients of {type(problem.loss).__name__} contradict each other at the answer: along "
                    f"a random direction the objective has slope {missed:.3g} more than its gradient says, so that it "
                    f"may be {gain:.2g} above the optimum. gs.check_loss(loss, x) finds out"
                )
        return ""

    def _has_diverged(self, records: Sequence[Record]) -> bool:
        """Whether the objective ended far above its start, compared with its size there and its best decrease.

        Where constraints may raise it, or it is not known: whether anything has grown beyond all measure.
        """
        if not records:
            return False
        last, names = records[-1], ("objective", "residual", "mean_norm")
        is_comparable = last.objective is not None and self._environment.starts_feasible
        if not (is_comparable or any(abs(getattr(last, name) or 0.0) > _ABSURD for name in names)):
            return False
        at_start = self._environment.observer.metrics(self._context.x0, -math.inf)
        if at_start is None:
            return False
        if not is_comparable or at_start.objective is None:
            sizes = [(getattr(last, name) or 0.0, getattr(at_start, name) or 0.0) for name in names]
            return any(abs(now) > _ABSURD * (1 + abs(start)) for now, start in sizes)
        first = at_start.objective
        seen = [record.objective for record in records if record.objective is not None]
        ridge = self._context.problem.mu * self._context.network.m
        scale = max(abs(first), first - min(seen), ridge)
        if records[0].iteration == 1:
            scale = max(scale, abs(seen[0] - first))
        is_returning = seen[-1] - first < _RETURNING * (max(seen) - first)
        return seen[-1] - first > _DIVERGED * scale and not is_returning

    def _fall(self, record: Record | None = None) -> str:
        """Return a warning that the problem may be unbounded, if the objective fell while values grew."""
        record = record or (self._now.records[-1] if self._now.records else None)
        last, problem = None if record is None else record.objective, self._context.problem
        if problem.domain.bounded or problem.mu > 0 or last is None or not -last > _ABSURD:
            return ""
        at_start = self._environment.observer.metrics(self._context.x0, -math.inf)
        if at_start is None or at_start.objective is None or not -last > _ABSURD * (1 + abs(at_start.objective)):
            return ""
        return f"the objective fell to {last:.3g}: it seems to have no lower bound on the set"

    def _check_residuals(self, checks: SaddleChecks, is_last: bool = False) -> bool:
        """Find the residuals of this iteration, if the method knows them or that is due; return whether."""
        iteration, known = self._now.iteration, self._method.residuals(self._now.state)
        if known is not None:
            checks.take(iteration, [self._output], lambda name: known)
            return True
        if self._method.knows_residuals or not (is_last or checks.is_due(iteration)):
            return False
        outputs, environment = self._outputs(), self._environment
        assert isinstance(environment, SaddleEnvironment)
        duals = {name: self._dual_of(name) for name in (outputs if self._may_switch else [self._output])}

        def residuals(name: str) -> SaddleKKT:
            return environment.residuals(outputs[name], cast(Array, duals[name]))

        checks.take(iteration, [name for name, dual in duals.items() if dual is not None], residuals)
        return True

    def _dual_of(self, output: str) -> Array | None:
        """The multipliers that belong to an output."""
        dual = self._method.dual(self._now.state)
        return dual[output] if isinstance(dual, Mapping) else dual

    def _residuals_at_answer(self) -> SaddleKKT | None:
        """The residuals of the answer; observed if nothing else told them."""
        known, checks = self._method.residuals(self._now.state), self._checks
        if known is not None:
            return known
        last = checks.last if isinstance(checks, SaddleChecks) else None
        if last is not None and (last.iteration, last.output) == (self._now.iteration, self._output):
            return last.kkt
        dual = self._dual_of(self._output)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            x = self._outputs()[self._output]
            return None if dual is None else self._environment.observer.saddle_kkt(x, dual)

    @property
    def _checks_are_current(self) -> bool:
        """Whether the last check was taken in this iteration."""
        return self._checks is not None and self._checks.iteration == self._now.iteration

    @property
    def _observes_targets(self) -> bool:
        """Whether a target can only be observed."""
        stop = self._stop
        is_gap_observed = stop.gap is not None and isinstance(self._checks, SaddleChecks)
        return stop.objective is not None or stop.residual is not None or is_gap_observed

    def _outputs(self) -> Mapping[str, Array]:
        """The outputs by name, the recommended one first."""
        outputs = self._method.output(self._now.state)
        return outputs if isinstance(outputs, Mapping) else {"last": outputs}

    def _check(self, checks: Checks, x: Array, known: Evaluation | None) -> tuple[bool, LateCheck | None]:
        """Let the agents check this iteration, if that is due, at once or late; return whether, and the late check."""
        iteration = self._now.iteration
        if known is None:
            self._agree_on_records(checks.advance(iteration, self._look))
            if checks.late_is_due(iteration) or (checks.are_late(iteration) and checks.is_due(iteration)):
                state = self._method.snapshot_for_check(self._context, self._now.state)
                if state is not None:
                    late = checks.begin(iteration, state, self._look) if checks.late_is_due(iteration) else None
                    return late is not None, late
        if known is None and not checks.is_due(iteration):
            return False, None
        checks.take(iteration, x, self._evidence(), known)
        return True, None

    def _agree_on_records(self, decided: Sequence[Check]) -> None:
        """Complete records of earlier iterations by what agents that see no others agreed on since."""
        if self._context.network.session.sees_all:
            return
        for check in decided:
            for index, record in enumerate(self._now.records):
                if record.iteration == check.iteration:
                    self._now.records[index] = check.agreed(record)

    def _look(self, state: object) -> tuple[Array, Sequence[DualEvidence]]:
        """The answer and the dual evidence of a snapshot."""
        outputs = self._method.output(state)
        return outputs[self._output] if isinstance(outputs, Mapping) else outputs, self._evidence(state)

    def _evidence(self, state: object = None) -> Sequence[DualEvidence]:
        evidence = list(self._method.dual_evidence(self._now.state if state is None else state))
        for index, each in enumerate(evidence):
            averaged = self._now.iteration if each.averaged is None else each.averaged
            reach = self._context.oracle.reach if each.reach is None else each.reach
            evidence[index] = each._replace(averaged=averaged, reach=reach)
        return evidence

    def _hessian(self) -> Array | None:
        """The Hessian of the objective at the answer, ridge included, if the method knows it."""
        found, problem = self._method.hessian(self._now.state), self._context.problem
        if found is None:
            return None
        weights = 1.0 if problem.domain.weights is None else to_numpy(problem.domain.weights)[0]
        ridge = np.broadcast_to(problem.mu * self._context.network.m * weights, len(found))
        return np.asarray(found + np.diag(ridge))

    def _keep_output(self) -> None:
        """Keep what stays valid if the next step is interrupted."""
        x = self._outputs()[self._output]
        self._finite = x if self._output in self._method.lasting_outputs else copied(x)
        self._parameters = {**self._choice.told, **self._method.parameters(self._now.state)}
        self._is_complete = True

    def _snapshot(self) -> Snapshot:
        checks = None if self._checks is None else self._checks.to_dict()
        limit = {"status": self.status.name, "stop": self._described_stop()} if self.status in LIMITS else None
        self._now.check_states = self._checks.states if isinstance(self._checks, Checks) else ()
        self._now.is_common = self._method.has_common_state
        self._now.engine = {
            "environment": self._environment.checkpoint(),
            "checks": checks,
            "limit": limit,
            "choice": dict(self._choice.told),
        }
        return self._now

    def _described_stop(self) -> dict[str, str]:
        return {name: repr(getattr(self._stop, name)) for name in sorted(self._stop.given)}

    def _has_overflowed(self, x: Array, is_observed: bool) -> bool:
        """Whether x is seen to be no longer finite. Waiting for a device counts as the method's time."""
        if not (is_observed or self._reads_all):
            return False
        if not is_numpy(x):
            with self._timed():
                wait_for(x)
        elif math.isfinite(np.vdot(flat := x.reshape(-1), flat)):
            # Takes a third of the time of the maximum.
            return False
        # Beyond the square root of the largest number not even |x|^2 is finite.
        return not float(array_namespace(x).max(abs(x))) < math.sqrt(float(np.finfo(dtype_of(x)).max))

    def _record(self, x: Array, is_observed: bool) -> Record | None:
        """The record of this iteration; None if the run has diverged."""
        record = Record.of(self._now.iteration, self._now.costs)
        if not is_observed:
            return record
        since = time.perf_counter()
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self._observe_invariant()
            evidence = self._evidence() if self._method.oracle is None else ()
            metrics = self._environment.observer.metrics(x, self._lower, evidence)
        self._observing += time.perf_counter() - since
        if metrics is None:
            return None
        self._lower = self._lower if metrics.lower is None else metrics.lower
        record = replace(record, **asdict(metrics))
        is_agreed = not self._context.network.session.sees_all
        return self._checks.agreed(record) if isinstance(self._checks, Checks) and is_agreed else record

    def _observe_invariant(self) -> None:
        """Look at the method's invariant, which lost messages break; rounding is relative to the L of its steps."""
        monitor, method, state = self._environment.invariant, self._method, self._now.state
        if monitor is not None:
            monitor.observe(method.invariant(state), float(method.parameters(state).get("L", 0.0)))

    def _reached(self, record: Record) -> bool:
        """Whether all targets hold: as the agents agreed if they must, else as observed, now or after `finish`."""
        if isinstance(self._checks, SaddleChecks):
            last = self._checks.last
            return last is not None and last.output == self._output and self._checks.hold(record)
        if self._checks is not None:
            return self._checks.held is not None or self._checks.hold(record)
        return self._stop.reached(record) or self._finish_suffices(record)

    def _success(self) -> Status:
        """How the run ends if every target was reached."""
        last = None if self._checks is None else self._checks.last
        return self._stop.success(None if last is None else last.kkt)

    def _outcome(self, record: Record) -> Status | None:
        """Return the status if the iterate is an answer, or a sign that there is none."""
        if record.gap is not None and record.gap < 0 and self._environment.is_contradictory(record):
            return Status.CONTRADICTORY
        is_absurd = record.objective is not None and -record.objective > _ABSURD
        # Some units are very small.
        if is_absurd and not self._reached(record) and self._fall(record):
            return Status.DIVERGED
        if doubt := self._method.contradiction(self._now.state):
            self._doubt = doubt
            return Status.CONTRADICTORY
        if proof := self._method.no_solution(self._now.state):
            self._ray = proof.ray
            return proof.status
        if self._reached(record):
            return self._success()
        if self._method.is_stalled(self._now.state):
            return Status.STALLED
        # Another output may hold the targets, too: they are compared now and then.
        is_due = self._checks_are_current or has_grown(self._now.iteration, _COMPARISON_GROWTH)
        if self._may_switch and is_due and self._switch_output():
            return self._success()
        return self._search_infeasibility(record) if self._environment.may_lack_solutions else None

    def _search_infeasibility(self, record: Record) -> Status | None:
        """Return the status if there is no solution; searched for when iterations have passed a power of 2."""
        records = self._now.records
        if not (record.iteration >= _FIRST_SEARCH and records and records[-1] is record):
            return None
        before = records[-2].iteration if len(records) > 1 else 0
        if record.iteration.bit_length() == before.bit_length():
            return None
        with self._timed():
            x = self._outputs()[self._output]
            return self._environment.observer.infeasibility(x, self._evidence(), records)

    def _finish_suffices(self, record: Record) -> bool:
        """Whether all targets would hold after the method's last exchanges; tried uncounted."""
        network = self._environment.uncounted
        if not self._method.finishes or network is None or (factor := self._stop.contraction_needed(record)) is None:
            return False
        state = self._now.state
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            finished = self._method.finish(replace(self._context, network=network), state, factor)
            outputs = self._method.output(finished)
            x = outputs[self._output] if isinstance(outputs, Mapping) else outputs
            metrics = self._environment.observer.metrics(x, self._lower)
        suffices = metrics is not None and self._stop.reached(replace(record, **asdict(metrics)))
        self._finish_factor = factor if suffices else 1.0
        return suffices

    def _switch_output(self) -> bool:
        """Measure and return an output that reaches the targets, if there is one; the recommended one comes first."""
        if not (self._may_switch and self._stop.has_targets):
            return False
        for name, x in self._outputs().items():
            record, checks = self._record(x, is_observed=True), self._checks
            if record is None:
                continue
            if isinstance(checks, SaddleChecks):
                is_reached = checks.last is not None and checks.last.output == name and checks.hold(record)
            else:
                is_reached = self._stop.reached(record)
            if is_reached:
                self._output, self._finite = name, copied(x)
                records = self._now.records
                if records and records[-1].iteration == self._now.iteration:
                    records.pop()
                records.append(record)
                return True
        return False


def _owned(array: Array) -> Array:
    """An array that can be written to: rows that are all alike may be one in memory."""
    return array if array.flags.writeable else np.array(array)


def _check_derivatives(context: Context) -> None:
    """Compare the gradient of a loss that is a user's code with its value near the start, and its Hessian if it is
    a user's code, too, with the gradient.
    """
    problem, oracle, loss, x0 = context.problem, context.oracle, context.problem.loss, context.x0
    move = np.random.default_rng(0).normal(size=x0.shape) / math.sqrt(problem.d)
    move *= np.maximum(1.0, np.linalg.norm(to_numpy(x0), axis=1, keepdims=True))
    direction = problem.domain.project(x0 + problem.placed(move)) - x0
    # Between two points of X, where the loss is defined.
    middle, agents = x0 + direction / 2, context.network.agents
    remedy = "correct it (gs.check_loss(loss) says more), or use check_loss=False"
    if text := mismatch(loss, slopes(oracle.value, oracle.gradient, middle, direction, ROUGH), agents):
        values = to_numpy(oracle.value(x0))
        if undefined := np.flatnonzero(~np.isfinite(values)).tolist():
            got = not_finite(loss, values, undefined[0], agents)
            remedy = "give x0= where it is finite"
            if context.has_rows:
                remedy += ", or check_loss=False: Newton and LBFGS look for a start"
            raise InputError("the value of a loss must be finite at the start", got, remedy)
        raise InputError("the gradient of a loss must be the derivative of its value", text, remedy)
    if not (has_own_hessian(loss) and has_checkable_hessian(loss)):
        return
    found = rates(oracle.gradient, oracle.hessian(middle), middle, direction, ROUGH)
    if text := hessian_mismatch(loss, found, agents):
        raise InputError("the Hessian of a loss must be the derivative of its gradient", text, remedy)
