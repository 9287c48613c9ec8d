"""One run in progress: what `solve` steps, observes, stops and saves."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from gradslide._support.arrays import copied, in_one_row, is_numpy, on_host, to_numpy, wait_for
from gradslide._support.errors import StreamEnded, StreamError, WaitEnded, unknown_name
from gradslide._support.types import Array
from gradslide.engine.checkpoints import Snapshot
from gradslide.engine.environment import environment_of, identity, oracle_of, settings
from gradslide.engine.observers import Metrics, is_finite
from gradslide.engine.statement import Statement
from gradslide.engine.stopping import Signal, Stop, has_doubled, has_grown
from gradslide.methods.base import Context, Method
from gradslide.network.clock import Clock
from gradslide.network.protocol import Network
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import Saddle
from gradslide.results.costs import Costs
from gradslide.results.history import History, Record
from gradslide.results.solution import Solution
from gradslide.results.status import ENDS, LIMITS, Status
from gradslide.theory.certificates import DualEvidence


class Stopwatch:
    """Adds to `costs.seconds` while it runs."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """So far, what is under way included."""
        return self._costs.seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    @contextmanager
    def running(self) -> Iterator[None]:
        """What is done in here takes the run's time; what overflows is seen afterwards."""
        self._since = time.perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                yield
        finally:
            self._costs.seconds, self._since = self.seconds, None


class LastSteps:
    """quiet: the network, uncounted, on which they can be tried; None where no two tries are alike."""

    def __init__(self, method: Method, context: Context, quiet: Network | None) -> None:
        self._finish = method.finish if method.finishes else None
        self._context = context
        self._quiet = quiet
        self._apart = 1.0

    @property
    def exist(self) -> bool:
        return self._finish is not None

    def suffice(self, state: Any, record: Record, stop: Stop, measured: Callable[[Any], Metrics | None]) -> bool:
        """Whether all targets would hold if they were taken now, where only the agents' disagreement is in the way;
        they are then going to be as long as that takes. They are tried uncounted: observations decide.

        measured: what is observed at a state.
        """
        finish, quiet = self._finish, self._quiet
        if finish is None or quiet is None or (apart := stop.apart(record)) is None:
            return False
        rehearsal = replace(self._context, network=quiet)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            metrics = measured(finish(rehearsal, state, apart))
        enough = metrics is not None and stop.reached(replace(record, **asdict(metrics)))
        self._apart = apart if enough else 1.0
        return enough

    def taken(self, state: Any) -> Any:
        """The state that they lead to."""
        return state if self._finish is None else self._finish(self._context, state, self._apart)


# Outputs are compared about every tenth part of the way so far.
_TENTH = 0.1
# Outer iterations before the first look for signs that there is no solution.
_FIRST_LOOK = 16
Callback = Callable[[Record, Array], bool | None]


class Run:
    """The snapshot `now`, and the last output that was finite."""

    def __init__(
        self,
        problem: Problem | Saddle,
        network: Network | None,
        method: Method,
        stop: Stop | None,
        x0: Array | None,
        warm_start: Solution | None,
        output: str | None,
        callback: Callback | None,
        record_every: int,
        clock: Clock | Mapping[str, Clock] | None = None,
        resumes: bool = False,
    ) -> None:
        """resumes: a saved state is going to take the place of the first one."""
        self._method, self._says, self._given_stop = method, Statement(method), stop
        self._callback, self._record_every = callback, record_every
        self._interrupted: Callable[[], bool] = lambda: False
        self._told = Signal.NONE
        costs = Costs()
        self._watch = Stopwatch(costs)
        environment = environment_of(problem, network, method, costs, clock)
        self._environment = environment
        dual = None if warm_start is None else warm_start.dual
        self._context = Context(
            problem=problem,
            oracle=oracle_of(problem, environment, method, costs),
            network=environment.network,
            coupling=environment.coupling,
            x0=problem.start(x0 if warm_start is None else warm_start.x),
            s0=None if dual is None else problem.placed(environment.dual_start(on_host(dual))),
        )
        try:
            self._context.oracle.is_blank = resumes
            self._start(costs, output)
            self._context.oracle.is_blank = False
        except StreamEnded as end:
            self.close()
            raise StreamError(end.agent, "it ended before the first outer iteration") from None
        except BaseException:
            self.close()
            raise

    def _start(self, costs: Costs, output: str | None) -> None:
        """The state before the first outer iteration, and what follows from it."""
        with self._watch.running():
            self._context = replace(self._context, prepared=self._method.prepare(self._context))
            state = self._method.init(self._context)
        self._context = replace(self._context, x0=in_one_row(self._context.x0))
        self._last_steps = LastSteps(self._method, self._context, self._environment.quiet)
        self.now = Snapshot(iteration=0, state=state, costs=costs, history=History())
        self._plan()
        self._lower = -math.inf
        self._ended_by = ""
        outputs = self._says.outputs(state)
        self._output = next(iter(outputs)) if output is None else output
        self._may_switch = output is None and len(outputs) > 1 and self._environment.compares_outputs
        if self._output not in outputs:
            raise unknown_name("output", self._output, outputs)
        self._take_stock()

    def _plan(self) -> None:
        """When the method's schedule ends, if it does, and when the run is to end."""
        stop = self._given_stop
        self._schedule_end = self._says.iterations(self.now.state)
        if stop is None:
            stop = self._environment.default_stop(self._schedule_end, self._says.stops_itself)
        self._stop = stop
        self._checks = self._environment.checks(stop, self._context.oracle, self._context.x0)

    def close(self) -> None:
        self._context.oracle.close()

    @property
    def length(self) -> int | None:
        """Outer iterations that the run is going to take, where that is known."""
        if self._stop.has_targets:
            return None
        return min((n for n in (self._stop.iterations, self._schedule_end) if n is not None), default=None)

    def _exhausted(self) -> Status | None:
        if self._schedule_end is not None and self.now.iteration >= self._schedule_end:
            return Status.COMPLETED
        return self._stop.exhausted(self.now.iteration, self.now.costs, self._told)

    def _settle(self, signal: Signal) -> Signal:
        """The most urgent signal of all processes, as far as it is known."""
        self._told = max(self._told, Signal(self._context.network.session.all_reduce_signal(signal)))
        return self._told

    def _take_stock(self) -> None:
        """What stays valid if the next step tears the state."""
        x = self._x()
        self._good = x if self._says.keeps(self._output) else copied(x)
        self._parameters = self._says.parameters(self.now.state)
        self.is_whole = True

    def resume(self, found: Snapshot) -> None:
        """Go on from there."""
        # The oracle and the network count into the same object for the whole run.
        costs = self.now.costs
        costs.__dict__.update(asdict(found.costs))
        found.costs = costs
        self.now = found
        # Version 0.1 wrote "setting".
        self._environment.recall(found.memory.get("environment", found.memory.get("setting")))
        self._recall_lower()
        self._plan()
        if self._checks is not None and found.memory["checks"] is not None:
            self._checks.recall(found.memory["checks"])
        self._take_stock()

    def snapshot(self) -> Snapshot:
        """All that a later run needs to go on from here."""
        checks = None if self._checks is None else self._checks.memory()
        self.now.memory = {"environment": self._environment.memory(), "checks": checks}
        return self.now

    def begin(self) -> Status | None:
        """The status, if there is nothing left to do before the first step."""
        history = self.now.history
        last = history[-1] if len(history) else None
        if self._checks is not None and self._checks.taken(self.now.iteration):
            last = self._record(self._x(), observed=self._stop.observes)
        if last is not None and self._reached(last):
            self._switch_output()
            return Status.CONVERGED
        self._settle(self._own_limit())
        status = self._exhausted()
        if status is None and len(history) and history[-1].iteration % self._record_every:
            # A record that was only taken because an earlier run ended there.
            self.now.history = history[:-1]
            self._recall_lower()
        return status

    def _recall_lower(self) -> None:
        """The best lower bound that was recorded."""
        recorded = [record.lower for record in self.now.history[-1:] if record.lower is not None]
        self._lower = recorded[0] if recorded else -math.inf

    def watch(self, interrupted: Callable[[], bool]) -> None:
        """From now on Ctrl-C ends the run, and samples are not waited for once it was pressed or time is up."""
        self._interrupted = interrupted
        self._context.oracle.wait_unless(lambda: interrupted() or self._own_limit() is Signal.TIME)

    def _own_limit(self) -> Signal:
        return self._stop.own_limit(self.now.costs, self._watch.seconds)

    def observe_last(self) -> None:
        """See to it that the last record is of the last iteration."""
        if self.is_whole and self.now.iteration and not self._is_recorded:
            record = self._record(self._x(), observed=True)
            if record is not None:
                self.now.history.append(record)

    @property
    def _is_recorded(self) -> bool:
        """Whether the last record is of the last iteration."""
        return len(self.now.history) > 0 and self.now.history[-1].iteration == self.now.iteration

    def advance(self, show: Callable[[Record], None], is_due: Callable[[], bool]) -> Status | None:
        """One outer iteration; the status if it was the last. is_due: whether a checkpoint is."""
        now = self.now
        self.is_whole = False
        try:
            with self._watch.running():
                now.state = self._method.step(self._context, now.state)
        except StreamEnded as end:
            # Methods ask for samples before they consume anything of the old state.
            self.is_whole = True
            self._ended_by = f"the stream of agent {end.agent}, in outer iteration {now.iteration + 1}"
            return Status.STREAM_ENDED
        except WaitEnded:
            self.is_whole = True
            told = self._settle(max(self._own_limit(), Signal.INTERRUPT))
            return Status.TIME_LIMIT if told is Signal.TIME else Status.INTERRUPTED
        except KeyboardInterrupt:
            self.is_whole = self._context.oracle.is_drawing
            raise
        except StreamError as error:
            self.is_whole = True
            error.iteration = now.iteration + 1
            raise
        now.iteration += 1

        x, due = self._x(), now.iteration % self._record_every == 0
        if self._settle(Signal.DIVERGED if self._is_lost(x, due) else self._own_limit()) is Signal.DIVERGED:
            return Status.DIVERGED
        checked = self._checks is not None and self._checks.is_due(now.iteration)
        if checked:
            self._check()
            self._settle(self._own_limit())
        exhausted = self._exhausted()
        observed = due or exhausted is not None
        record = self._record(x, observed or (checked and self._stop.observes))
        if record is None:
            return Status.DIVERGED if self._context.network.session.sees_all or exhausted else None
        self.is_whole = True
        if self._looks_at(x, observed):
            self._take_stock()
        if observed:
            now.history.append(record)
        show(record)
        # A copy: what a callback keeps or changes is its own.
        asked_to_stop = self._callback is not None and self._callback(record, on_host(x))
        signal = Signal.STOP if asked_to_stop else Signal.INTERRUPT if self._interrupted() else Signal.NONE
        if self._reached(record) or (has_grown(now.iteration, _TENTH) and self._switch_output()):
            return Status.CONVERGED
        if observed and now.iteration >= _FIRST_LOOK and has_doubled(now.history):
            with self._watch.running():
                verdict = self._environment.observer.verdict(x, self._evidence(), now.history)
            if verdict is not None:
                return verdict
        told = self._settle(max(signal, Signal.SAVE if is_due() else Signal.NONE))
        if told is Signal.STOP:
            return Status.STOPPED
        return exhausted or (Status.INTERRUPTED if told is Signal.INTERRUPT else None)

    @property
    def is_to_be_saved(self) -> bool:
        """Whether a checkpoint is to be written now, here and everywhere."""
        return self.is_whole and self._told is Signal.SAVE

    def saved(self, is_written: bool) -> None:
        """A snapshot was to be written."""
        self._told = Signal.NONE
        if is_written:
            self._environment.network.session.checkpointed()

    def _check(self) -> None:
        """Let the agents find out, with counted control rounds, what their targets are about."""
        assert self._checks is not None
        with self._watch.running():
            self._checks.take(self.now.iteration, self._x(), self._evidence())

    def _reached(self, record: Record) -> bool:
        """Whether all targets hold: by what the agents found out where they must, else by what was observed, of the
        answer as it is or as the last steps would make it."""
        state, stop = self.now.state, self._stop
        if self._checks is not None:
            return self._checks.hold(record)
        return stop.reached(record) or self._last_steps.suffice(state, record, stop, self._measured)

    def _measured(self, state: Any) -> Metrics | None:
        return self._environment.observer.metrics(self._says.outputs(state)[self._output], self._lower)

    def conclude(self, status: Status) -> Status:
        """What is done once at the end: a last check, and the method's own last steps. A run that goes on later has
        not done it: checkpoints are written before."""
        now, last_steps = self.now, self._last_steps
        if not (self.is_whole and now.iteration and status in ENDS):
            return status
        unchecked = self._checks is not None and status in LIMITS and not self._checks.taken(now.iteration)
        if unchecked:
            self._check()
        if unchecked and len(now.history) and self._reached(now.history[-1]):
            status = Status.CONVERGED
        if last_steps.exist:
            self.is_whole = False
            with self._watch.running():
                now.state = last_steps.taken(now.state)
            self._take_stock()
        if (unchecked or last_steps.exist) and self._is_recorded:
            now.history = now.history[:-1]
        return status

    def _switch_output(self) -> bool:
        """Whether an output reaches the targets; it is measured from now on. The recommended one comes first."""
        if not (self._may_switch and self._stop.has_targets):
            return False
        for name, x in self._says.outputs(self.now.state).items():
            record = self._record(x, observed=True)
            if record is not None and self._stop.reached(record):
                self._output, self._good = name, copied(x)
                if self._is_recorded:
                    self.now.history = self.now.history[:-1]
                self.now.history.append(record)
                return True
        return False

    def solution(self, status: Status) -> Solution:
        # A torn or diverged state has no outputs worth showing, but the last good one. Nobody else needs them any more.
        found = self._says.outputs(self.now.state) if self.is_whole else {self._output: self._good}
        outputs, x = {name: to_numpy(output) for name, output in found.items()}, found[self._output]
        context = self._context
        evidence = self._evidence() if self.is_whole else ()
        if self.is_whole:
            self._watch_invariant()
        observer, name = self._environment.observer, self._says.name
        certificate = observer.certificate(x, self._lower)
        reason = "" if certificate and math.isfinite(certificate.gap) else observer.no_certificate(name)
        kkt = None
        if (reason or self._stop.kkt is not None) and self.is_whole and not self._says.is_sampled:
            kkt = observer.kkt(x, evidence, context.x0)
        return Solution(
            x=outputs[self._output],
            agents=context.network.agents,
            output=self._output,
            outputs=outputs,
            status=status,
            costs=self._environment.largest(self.now.costs),
            history=self.now.history,
            dual=self._dual() if self.is_whole else None,
            y=on_host(evidence[0].y) if evidence else None,
            certificate=certificate,
            certificate_reason=reason + (f". KKT residuals, which are no certificate: {kkt}" if reason and kkt else ""),
            kkt=kkt,
            parameters=self._parameters,
            settings=settings(context, self._environment, repr(self._method), self._ended_by),
            warnings=self._environment.doubts(context.x0, x, name, certificate),
            **self._environment.everybody(outputs[self._output]),
        )

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the run that goes on from it."""
        return identity(self._context, self._environment, repr(self._method), self._output)

    def _x(self) -> Array:
        """The output that is measured and returned."""
        return self._says.outputs(self.now.state)[self._output]

    def _dual(self) -> Array | None:
        dual = self._says.dual(self.now.state, self._output)
        return None if dual is None else self._environment.multipliers(dual).astype(self._context.problem.dtype)

    def _evidence(self) -> Sequence[DualEvidence]:
        return self._says.evidence(self.now.state, self.now.iteration)

    def _watch_invariant(self) -> None:
        if (rows := self._says.invariant(self.now.state)) is not None:
            self._environment.watch(rows)

    def _looks_at(self, x: Array, observed: bool) -> bool:
        """Whether numbers in x are looked at. A device would have to be waited for: only for a record or a callback."""
        return observed or self._callback is not None or is_numpy(x)

    def _is_lost(self, x: Array, observed: bool) -> bool:
        """Whether x is seen to be no longer finite. What a device has still to do for it takes the method's time."""
        if not self._looks_at(x, observed):
            return False
        if not is_numpy(x):
            with self._watch.running():
                wait_for(x)
        return not is_finite(x)

    def _record(self, x: Array, observed: bool) -> Record | None:
        """The record of this iteration; None where the run has diverged."""
        if self._is_lost(x, observed):
            return None
        spent = Record.of(self.now.iteration, self.now.costs)
        if not observed:
            return spent
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self._watch_invariant()
            evidence = () if self._says.is_sampled else self._evidence()
            metrics = self._environment.observer.metrics(x, self._lower, evidence)
        if metrics is None:
            return None
        self._lower = self._lower if metrics.lower is None else metrics.lower
        return self._environment.observer.known(replace(spent, **asdict(metrics)))
