"""One run on its way: what `solve` steps, stops and asks for the solution."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from gradslide._types import Array
from gradslide._version import __version__
from gradslide.certificate import Evidence
from gradslide.checkpoint import Checkpoint, Snapshot
from gradslide.clock import Clock
from gradslide.costs import Costs
from gradslide.errors import StreamEnded, StreamError, WaitEnded, unknown_name
from gradslide.history import History, Record
from gradslide.methods.base import Context, Method
from gradslide.network import Network
from gradslide.oracles import Oracle, Sampling
from gradslide.problem import Problem
from gradslide.saddle.problem import Saddle
from gradslide.saddle.setting import OnOneMachine
from gradslide.setting import Networked, Setting
from gradslide.solution import Solution
from gradslide.status import Status
from gradslide.stop import Stop

_TENTH = math.log(1.1)
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
        self._method, self._given_stop = method, stop
        self._callback, self._record_every = callback, record_every
        costs = Costs()
        setting = _setting(problem, network, method, costs, clock)
        self._setting = setting
        dual = None if warm_start is None else warm_start.dual
        self._context = Context(
            problem=problem,
            oracle=_oracle(problem, setting, method, costs),
            network=setting.network,
            coupling=setting.coupling,
            x0=problem.start(x0 if warm_start is None else warm_start.x),
            s0=None if dual is None else setting.dual_start(np.array(dual, dtype=problem.dtype)),
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
        method = self._method
        clock = time.perf_counter()
        state = method.init(self._context)
        costs.seconds += time.perf_counter() - clock
        self.now = Snapshot(iteration=0, state=state, costs=costs, history=History())
        self._plan()
        self._lower, self._proved = -math.inf, 0
        self._ended_by = ""
        outputs = self._outputs()
        self._output = next(iter(outputs)) if output is None else output
        self._may_switch = output is None and len(outputs) > 1 and self._setting.compares_outputs
        if self._output not in outputs:
            raise unknown_name("output", self._output, outputs)
        self._take_stock()

    def _plan(self) -> None:
        """When the method's schedule ends, if it does, and when the run is to end."""
        method, stop = self._method, self._given_stop
        self._schedule_end: int | None = method.iterations(self.now.state) if hasattr(method, "iterations") else None
        self._stop = self._setting.default_stop(self._schedule_end) if stop is None else stop

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
        return self._stop.exhausted(self.now.iteration, self.now.costs)

    def _take_stock(self) -> None:
        """What stays valid if the next step tears the state."""
        self._good = np.array(self._x())
        self._parameters = self._method.parameters(self.now.state) if hasattr(self._method, "parameters") else {}
        self.is_whole = True

    def resume(self, saver: Checkpoint) -> None:
        found = saver.read(self.now.state)
        if found is None:
            return
        # The oracle and the network count into the same object for the whole run.
        costs = self.now.costs
        costs.__dict__.update(asdict(found.costs))
        found.costs = costs
        self.now = found
        self._setting.recall(found.memory)
        self._recall_lower()
        self._plan()
        self._take_stock()

    def snapshot(self) -> Snapshot:
        """All that a later run needs to go on from here."""
        self.now.memory = self._setting.memory()
        return self.now

    def begin(self) -> Status | None:
        """The status, if there is nothing left to do before the first step."""
        history = self.now.history
        if len(history) and self._stop.reached(history[-1]):
            self._switch_output()
            return Status.CONVERGED
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
        """From now on samples are not waited for once Ctrl-C was pressed or time is up."""
        self._context.oracle.wait_unless(lambda: interrupted() or self._time_is_up())

    def _time_is_up(self) -> bool:
        """Whether the time limit passed, the outer iteration under way included."""
        limit = self._stop.seconds
        return limit is not None and self.now.costs.seconds + time.perf_counter() - self._clock >= limit

    def observe_last(self) -> None:
        """See to it that the last record is of the last iteration."""
        history = self.now.history
        if self.is_whole and self.now.iteration and not (len(history) and history[-1].iteration == self.now.iteration):
            record = self._record(self._x(), observed=True)
            if record is not None:
                history.append(record)

    def advance(self, show: Callable[[Record], None]) -> Status | None:
        """One outer iteration; the status if it was the last."""
        now = self.now
        self.is_whole = False
        clock = self._clock = time.perf_counter()
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                now.state = self._method.step(self._context, now.state)
        except StreamEnded as end:
            # Methods ask for samples before they consume anything of the old state.
            self.is_whole = True
            self._ended_by = f"the stream of agent {end.agent}, in outer iteration {now.iteration + 1}"
            return Status.STREAM_ENDED
        except WaitEnded:
            self.is_whole = True
            return Status.TIME_LIMIT if self._time_is_up() else Status.INTERRUPTED
        except KeyboardInterrupt:
            self.is_whole = self._context.oracle.is_drawing
            raise
        except StreamError as error:
            self.is_whole = True
            error.iteration = now.iteration + 1
            raise
        finally:
            now.costs.seconds += time.perf_counter() - clock
        now.iteration += 1

        x = self._x()
        exhausted = self._exhausted()
        observed = now.iteration % self._record_every == 0 or exhausted is not None
        record = self._record(x, observed)
        if record is None:
            return Status.DIVERGED
        self._take_stock()
        if observed:
            now.history.append(record)
        show(record)
        # A copy: what a callback keeps or changes is its own.
        asked_to_stop = self._callback is not None and self._callback(record, np.array(x))
        if self._stop.reached(record) or (_is_due(now.iteration) and self._switch_output()):
            return Status.CONVERGED
        if observed and self._doubled():
            clock = time.perf_counter()
            verdict = self._setting.observer.verdict(x, self._evidence(), now.history)
            now.costs.seconds += time.perf_counter() - clock
            if verdict is not None:
                return verdict
        return Status.STOPPED if asked_to_stop else exhausted

    def _switch_output(self) -> bool:
        """Whether an output reaches the targets; it is measured from now on. The recommended one comes first."""
        if not (self._may_switch and self._stop.has_targets):
            return False
        for name, x in self._outputs().items():
            record = self._record(x, observed=True)
            if record is not None and self._stop.reached(record):
                self._output = name
                self._good = np.array(x)
                history = self.now.history
                self.now.history = (
                    history[:-1] if len(history) and history[-1].iteration == record.iteration else history
                )
                self.now.history.append(record)
                return True
        return False

    def solution(self, status: Status) -> Solution:
        # A torn or diverged state has no outputs worth showing, but the last good one.
        outputs = (
            {name: np.array(x) for name, x in self._outputs().items()} if self.is_whole else {self._output: self._good}
        )
        context = self._context
        evidence = self._evidence() if self.is_whole else ()
        if self.is_whole:
            self._watch_invariant()
        certificate = self._setting.observer.certificate(outputs[self._output], self._lower)
        return Solution(
            x=outputs[self._output],
            agents=context.network.agents,
            output=self._output,
            outputs=outputs,
            status=status,
            costs=self.now.costs,
            history=self.now.history,
            dual=self._dual() if self.is_whole else None,
            y=np.array(evidence[0].y) if evidence else None,
            certificate=certificate,
            certificate_reason=""
            if certificate
            else self._setting.observer.no_certificate(type(self._method).__name__),
            parameters=self._parameters,
            settings={
                "method": repr(self._method),
                "problem": repr(context.problem),
                **self._setting.names,
                "version": __version__,
                **({"ended_by": self._ended_by} if self._ended_by else {}),
            },
            warnings=self._setting.doubts(outputs[self._output], type(self._method).__name__),
        )

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the run that goes on from it."""
        context, problem = self._context, self._context.problem
        # Data and sets are told apart by what they do to a fixed point, to digits that do not hang on the machine.
        probe = np.random.default_rng(0).normal(size=(problem.m, problem.d)).astype(problem.dtype)
        inside, far = problem.domain.prox(probe, 1.0), problem.domain.prox(1e6 * probe, 1.0)
        starts = [context.x0] if context.s0 is None else [context.x0, context.s0]
        start = np.concatenate([np.ravel(each) for each in starts])
        weights = np.arange(1, start.size + 1) / start.size
        return {
            "method": repr(self._method),
            "network": self._setting.fingerprint,
            "problem": f"{problem!r}, mu={problem.mu!r}",
            "output": self._output,
            "domain": f"{float(np.vdot(probe, inside)):.7e} {float(np.vdot(probe, far)):.7e}",
            "data": f"{self._setting.observer.objective(inside):.7e}" if problem.loss.has_value else "no value",
            "start": f"{float(np.vdot(weights, start)):.7e}",
            "clock": "" if self._setting.timeline is None else repr(self._setting.timeline),
        }

    def _outputs(self) -> Mapping[str, Array]:
        outputs = self._method.output(self.now.state)
        return outputs if isinstance(outputs, Mapping) else {"last": outputs}

    def _x(self) -> Array:
        """The output that is measured and returned."""
        return self._outputs()[self._output]

    def _dual(self) -> Array | None:
        if not hasattr(self._method, "dual"):
            return None
        found = self._method.dual(self.now.state)
        dual = np.asarray(found[self._output] if isinstance(found, Mapping) else found)
        return self._setting.multipliers(dual).astype(self._context.problem.dtype)

    def _evidence(self) -> Sequence[Evidence]:
        return self._method.evidence(self.now.state) if hasattr(self._method, "evidence") else ()

    def _raise_lower(self) -> None:
        """See what this iteration proves, once, however many outputs are looked at."""
        if self._proved < self.now.iteration:
            self._lower = max(self._lower, self._setting.observer.lower_bound(self._evidence()))
            self._proved = self.now.iteration

    def _watch_invariant(self) -> None:
        if hasattr(self._method, "invariant"):
            self._setting.watch(self._method.invariant(self.now.state))

    def _doubled(self) -> bool:
        """Whether the iterations have passed a power of 2 since the record before the last."""
        before = self.now.history[-2].iteration if len(self.now.history) > 1 else 0
        return self.now.iteration >= _FIRST_LOOK and self.now.iteration.bit_length() > before.bit_length()

    def _record(self, x: Array, observed: bool) -> Record | None:
        """The record of this iteration; None where the run has diverged."""
        # Past the root of the largest number not even |x|^2 is finite.
        if not float(np.max(np.abs(x))) < math.sqrt(float(np.finfo(x.dtype).max)):
            return None
        now = self.now
        spent = Record.of(now.iteration, now.costs)
        if not observed:
            return spent
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            self._watch_invariant()
            self._raise_lower()
            metrics = self._setting.observer.metrics(x, self._lower)
        return None if metrics is None else replace(spent, **asdict(metrics))


def _is_due(iteration: int) -> bool:
    """About every tenth part of the way so far."""
    return math.floor(math.log(iteration) / _TENTH) > math.floor(math.log(max(1, iteration - 1)) / _TENTH)


def _setting(
    problem: Problem | Saddle,
    network: Network | None,
    method: Method,
    costs: Costs,
    clock: Clock | Mapping[str, Clock] | None,
) -> Setting:
    if isinstance(problem, Saddle):
        return OnOneMachine(problem, costs)
    assert network is not None
    return Networked(problem, network, getattr(method, "coupling", "incidence"), costs, clock)


def _oracle(problem: Problem | Saddle, setting: Setting, method: Method, costs: Costs) -> Oracle:
    """The oracle, with the way of sampling that the method has, if it has one."""
    sampling: Sampling | None = getattr(method, "oracle", None)
    sampler = None
    if sampling is not None:
        sampler = sampling.open(problem.loss, setting.network.agents, getattr(method, "seed", 0))
    return Oracle(problem.loss, costs, sampler, setting.timeline)
