"""The one loop: it steps a method, stops it, records, shows progress and writes checkpoints."""

import hashlib
import os
import warnings
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from gradslide._support.errors import InputError, StreamError, kind_of, require, require_number
from gradslide._support.interrupts import deferred_interrupt
from gradslide._support.types import Array
from gradslide.engine.checkpoints import Checkpoint
from gradslide.engine.environment import moved
from gradslide.engine.progress import progress_line
from gradslide.engine.run import Callback, Run
from gradslide.engine.stopping import Stop
from gradslide.graphs.graph import Graph
from gradslide.methods.base import Method, adapted
from gradslide.methods.gossip.auto_pds import AutoPDS
from gradslide.methods.pds import PDS
from gradslide.network import Local, Network
from gradslide.network.clock import Clock
from gradslide.problems.problem import Problem, checked_problem
from gradslide.problems.saddle import Saddle
from gradslide.results.solution import Solution
from gradslide.results.status import Status

_MARKS = 1 << 56


def solve(
    problem: Problem | Saddle,
    network: Graph | Network | None = None,
    method: Method | None = None,
    *,
    stop: Stop | None = None,
    x0: Array | None = None,
    warm_start: Solution | None = None,
    output: str | None = None,
    callback: Callback | None = None,
    record_every: int = 1,
    progress: bool | str = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
    resume: bool = True,
    clock: Clock | Mapping[str, Clock] | None = None,
) -> Solution:
    """Solve a problem over a network; or a saddle point or linearly constrained problem, which has none.

    network: a Graph (simulated in this process) or a network. method: `AutoPDS()` by default, `PDS()` without a
    network. stop: targets and limits; by default the outer iterations of a method that fixes them ahead; of one that
    knows when to end, 10,000, or a relative gap (KKT residual where there is none) of 1e-4 and disagreement of 1e-2;
    else 1,000; without a network 10,000 gradients or 100,000 operator products, or a relative gap (and residual) of
    1e-4 where there is one. x0: one point for all agents, or one each; the minimiser of nu by default. warm_start:
    start from the point and the multipliers of an earlier solution. output: which of the method's outputs to return and
    measure; its recommendation by default.
    callback(record, x): called once per outer iteration; returning True stops. record_every: observe metrics every so
    many outer iterations (targets are checked there). progress: a line on stderr, with a label if one is given.
    checkpoint: a file, written about every `checkpoint_seconds` and at the end; if it is there already the run goes on
    from it, unless resume=False. Ctrl-C ends the run after the current outer iteration with what was reached. A stream
    of samples that ends does so too; one that fails raises StreamError, which carries what was reached. clock: a
    simulated clock, or several by name: records then have the time that the run would have taken by it. Where messages
    were lost or changed so that the answer is wrong, a RuntimeWarning says so, and `solution.warnings`.
    """
    method = _default_method(problem) if method is None else adapted(method)
    network = Local(network) if isinstance(network, Graph) else network
    _check(problem, network, method, stop, warm_start, callback, record_every)
    if network is not None:
        network.session.connect()
        _check_sizes(cast(Problem, problem), network)
    problem = moved(problem, network)
    _check_clock(problem, network, clock)
    _check_alike(problem, network, method, stop, output, record_every, checkpoint is None)
    require(x0 is None or warm_start is None, "give x0 or warm_start", "both", "warm_start brings a point of its own")
    require_number("checkpoint_seconds", checkpoint_seconds, "0 writes after every outer iteration", least=0)
    saver = None if checkpoint is None else Checkpoint(Path(checkpoint), network, checkpoint_seconds)
    found = _last_saved(saver, network) if resume else None
    failures: list[StreamError] = []
    is_shared = network is not None and len(network.agents) < network.m
    speaks = network is None or network.session.rank == 0
    with closing(
        Run(problem, network, method, stop, x0, warm_start, output, callback, record_every, clock, found is not None)
    ) as run:
        if saver is not None:
            run_id = run.identity()
            saver.require_storable(run.snapshot())
            if found is not None:
                run.resume(saver.read(found, run.now.state, run_id, problem.device))

        label = progress if isinstance(progress, str) else method.name
        with deferred_interrupt() as interrupt, progress_line(bool(progress) and speaks, label, run.length) as line:
            run.watch(lambda: interrupt.requested)
            status = run.begin()
            while status is None:
                try:
                    status = run.advance(line.show, lambda: saver is not None and saver.is_due)
                    if saver is not None and run.is_to_be_saved:
                        run.saved(_saved(saver, run, run_id, network))
                except KeyboardInterrupt:
                    if is_shared:
                        # The others wait for this process, and would do so for ever.
                        raise
                    status = Status.INTERRUPTED
                except StreamError as error:
                    failures.append(error)
                    status = Status.STREAM_FAILED
            if saver is not None and run.is_whole:
                run.saved(_saved(saver, run, run_id, network))
            try:
                status = run.conclude(status)
            except KeyboardInterrupt:
                if is_shared:
                    raise
                status = Status.INTERRUPTED
        run.observe_last()
        solution = run.solution(status)
    for doubt in solution.warnings:
        warnings.warn(doubt, RuntimeWarning, stacklevel=2)
    if not failures:
        return solution
    failures[0].solution = solution
    # Popped: an error and the frames that name it would keep each other, and the streams, alive.
    raise failures.pop()


def _saved(saver: Checkpoint, run: Run, run_id: dict[str, Any], network: Network | None) -> bool:
    """Write a checkpoint; whether it is on disk, in all places."""
    snapshot = run.snapshot()
    is_written = saver.write(snapshot, run_id)
    if network is not None and network.session.size > 1:
        is_written = network.session.all_reduce_signal(not is_written) == 0
    if is_written:
        saver.forget(snapshot.iteration)
    return is_written


def _last_saved(saver: Checkpoint | None, network: Network | None) -> int | None:
    """The outer iteration that the run goes on from, if there is one on disk: the first process says which."""
    found = None if saver is None else saver.found()
    if network is None or network.session.size == 1:
        return found
    if found is None and network.session.rank == 0 and saver is not None:
        saver.warn_of_missing_parts()
    # Counted from 2, since 0 is no signal and -1 stands for a single file.
    said = network.session.all_reduce_signal(found + 2 if found is not None and network.session.rank == 0 else 0)
    return said - 2 if said else None


def _default_method(problem: object) -> Method:
    return PDS() if isinstance(problem, Saddle) else AutoPDS()


def _check(
    problem: object,
    network: object,
    method: Method,
    stop: object,
    warm_start: object,
    callback: object,
    record_every: object,
) -> None:
    """One clear error for each argument of the wrong kind, before anything is computed."""
    _check_network(problem, network)
    if not isinstance(stop, Stop | None):
        raise InputError("stop must be a gs.Stop", kind_of(stop), "for example gs.Stop(iterations=1000)")
    if not isinstance(warm_start, Solution | None):
        remedy = "read a saved one with gs.load(path), or give a point as x0"
        raise InputError("warm_start must be a Solution", kind_of(warm_start), remedy)
    if callback is not None and not callable(callback):
        raise InputError("callback must be callable", kind_of(callback), "give a function of (record, x)")
    require_number("record_every", record_every, "1 records every outer iteration", least=1, whole=True)
    if stop is not None:
        _check_targets(cast(Problem | Saddle, problem), method, stop)


def _check_alike(problem: Problem | Saddle, network: Network | None, *settings: object) -> None:
    """What all processes of a run must have alike, or they would wait for each other."""
    if network is None or network.session.size == 1:
        return
    told = [problem.domain.norm, problem.mu, problem.d, problem.dtype, problem.loss.has_value, *settings]
    mark = int.from_bytes(hashlib.blake2b(repr(told).encode(), digest_size=7).digest())
    reduce = network.session.all_reduce_signal
    largest, smallest = reduce(mark), _MARKS - reduce(_MARKS - mark)
    rule = "all processes must be given the same method, stop, mu, dimension, precision and kind of loss"
    require(largest == smallest, rule, "others in another process", "run the same program everywhere")


def _check_clock(problem: object, network: object, clock: object) -> None:
    """A clock, or several by name, for a network."""
    if clock is None:
        return
    clocks = list(clock.values()) if isinstance(clock, Mapping) else [clock]
    known = bool(clocks) and all(isinstance(each, Clock) for each in clocks)
    require(known, "clock must be a gs.Clock, or several by name", kind_of(clock), "for example gs.Clock.wan()")
    rule = f"a {type(problem).__name__} problem has no network, and no clock"
    require(not isinstance(problem, Saddle), rule, "a clock", "leave it out")
    here, m = len(cast(Network, network).agents), cast(Network, network).m
    rule = "a simulated clock needs all agents in one process"
    require(here == m, rule, f"{here} of {m}", "leave it out: this network takes its own time")


def _check_network(problem: object, network: object) -> None:
    """A problem of agents has a network, a saddle point problem has none."""
    if isinstance(problem, Saddle):
        rule = f"a {type(problem).__name__} problem has no network"
        require(network is None, rule, kind_of(network), "name what comes next, for example method=gs.PDS()")
        return
    problem = checked_problem(problem)
    if isinstance(network, type) or not hasattr(network, "combine"):
        raise InputError(
            "network must be a Graph or a network", kind_of(network), "gs.Graph.ring(10), or Graph.from_networkx"
        )


def _check_sizes(problem: Problem, network: Network) -> None:
    """As many agents in the problem as live here."""
    agents = len(network.agents)
    require(
        problem.m == agents,
        "problem and network must have the same number of agents",
        f"{problem.m} and {agents}",
        _fitting(problem.m, agents, network.m),
    )


def _fitting(m: int, agents: int, all_agents: int) -> str:
    """How to bring together a problem of m agents and a network on which so many live here."""
    if agents < all_agents:
        return "give those that live here: problem.take(network.agents)"
    if m == 1:
        return f"a loss with agents={agents} shares its rows among them, one with splits=[...] as you say"
    return "change the one or the other"


def _check_targets(problem: Problem | Saddle, method: Method, stop: Stop) -> None:
    """Refuse targets that can never be reached because nobody measures them, and limits that are never spent."""
    never = {"rounds"} if isinstance(problem, Saddle) else {"operator_products"}
    if method.oracle is None:
        never.add("samples")
    what = f"{method.name} on a {type(problem).__name__}"
    rule = f"a Stop needs a target, or a limit that comes: {what} spends no {' and no '.join(sorted(never))}"
    require(not stop.given <= never, rule, ", ".join(sorted(stop.given)), "add for example iterations=1000")
    require(
        problem.loss.has_value or stop.objective is None,
        "Stop(objective=...) needs a loss that has a value",
        "Custom without it",
        "use residual or disagreement, or give value=",
    )
    if isinstance(problem, Saddle):
        rule = "Stop(gap=...) needs a lower bound (X bounded or mu > 0), a known maximum over Z, and a method like PDS"
        known = problem.has_gap and method.proves
        require(stop.gap is None or known, rule, repr(problem), "use objective or residual")
        rule = "Stop(objective=...) needs the maximum over Z of <A x, z> - h(z)"
        require(
            stop.objective is None or problem.maximum_is_known,
            rule,
            repr(problem),
            "give conjugate= to gs.terms.Prox, or use another",
        )
        rule = "Stop(residual=...) needs A x = b, or bounds on A x"
        require(stop.residual is None or problem.duals.is_constrained, rule, repr(problem), "use gap or objective")
        for name in ("disagreement", "kkt"):
            rule = f"Stop({name}=...) needs agents on a network"
            require(getattr(stop, name) is None, rule, type(problem).__name__, "use residual, gap or objective")
        return
    _check_proofs(problem, method, stop)


def _check_proofs(problem: Problem, method: Method, stop: Stop) -> None:
    """What agents on a network need for a certified gap, and for KKT residuals."""
    name, domain = method.name, type(problem.domain).__name__
    is_exact = method.oracle is None
    if stop.gap is not None:
        rule = "Stop(gap=...) needs a lower bound on the optimum: X bounded or mu > 0, and a loss that has a value"
        remedy = "give mu > 0 or a bounded domain, or use kkt"
        require(problem.has_lower_bound, rule, repr(problem), remedy)
        rule = "Stop(gap=...) needs one domain for all agents: the mean of theirs must be feasible"
        require(problem.domain.common, rule, f"{domain} with a set for each agent", "use kkt")
        rule = "Stop(gap=...) needs a method that proves lower bounds from exact gradients"
        require(method.proves and is_exact, rule, name, "use gs.PDS() or gs.CondatVu(), or objective and disagreement")
    if stop.kkt is not None:
        rule = "Stop(kkt=...) needs a method with exact gradients"
        require(is_exact, rule, name, "use objective and disagreement")
        rule = "Stop(kkt=...) needs multipliers where agents have domains of their own"
        require(method.proves or problem.domain.common, rule, name, "use gs.PDS() or gs.CondatVu()")
