"""The one loop: it lets a method step, observes, decides when to stop, and saves."""

import hashlib
import inspect
import os
import time
import warnings
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import cast

from gradslide._support.errors import InputError, kind_of, require, require_number
from gradslide._support.interrupts import deferred_interrupt
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.engine.checkpoints import Checkpoint, latest_iteration
from gradslide.engine.environment import (
    CoupledEnvironment,
    Environment,
    NetworkEnvironment,
    SaddleEnvironment,
    check_clock,
    check_coupled,
    check_network,
    on_device_of,
    wrong_number_of_agents,
)
from gradslide.engine.progress import progress_line
from gradslide.engine.run import EARLY_ENDS, Callback, Run
from gradslide.engine.stopping import Stop
from gradslide.graphs.graph import GraphLike, as_graph
from gradslide.methods.auto import Auto
from gradslide.methods.base import AnyMethod, adapted
from gradslide.network import Local, Network
from gradslide.network.clock import Clock
from gradslide.network.coupled_rows import agreed_dimension
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import Saddle
from gradslide.results.costs import Costs
from gradslide.results.solution import Solution

_DEFAULT = Auto()
_DIGESTS = 1 << 56


@checked_arguments
def solve(
    problem: Problem | Saddle,
    network: GraphLike | Network | None = None,
    method: AnyMethod | None = None,
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
    check_loss: bool = True,
) -> Solution:
    """Solve a problem over a network of agents, or a saddle point problem without one.

    Parameters
    ----------
    problem : Problem or Saddle
        What to solve; `LinearlyConstrained` is a `Saddle`.
    network : Graph, networkx.Graph or Network, optional
        A graph is simulated in this process. A saddle point problem takes none; `problem.to(device)`
        moves it to a GPU.
    method : Method, optional
        `Auto()` by default, which is `PDS()` without a network.
    stop : Stop, optional
        Targets and limits. By default a method that fixes its outer iterations does them all;
        one that stops itself ends at a relative certified gap of 1e-4 (KKT residuals of 1e-4 if no
        gap can be certified) and a relative disagreement of 1e-2, or after 10,000 outer iterations;
        any other does 1,000. Without a network: a relative gap (and residual) of 1e-4 if it can be
        certified, or 10,000 gradients, or 100,000 operator products.
    x0 : array, optional
        One starting point for all agents, or one row for each; by default the minimizer of nu.
    warm_start : Solution, optional
        Start from the point and the multipliers of an earlier solution.
    output : str, optional
        Which of the method's outputs to measure and return; by default the one it recommends.
    callback : callable, optional
        ``callback(record, x)`` is called once per outer iteration; returning True stops the run.
    record_every : int
        Outer iterations between two observations of the metrics, and of targets.
    progress : bool or str
        Show a progress line on stderr, with this label.
    checkpoint : path-like, optional
        A file to write about every `checkpoint_seconds`, and at the end. If it exists, the run
        resumes from it.
    checkpoint_seconds : float
        The least number of seconds between two checkpoints; 0 writes after every outer iteration.
    resume : bool
        Whether to resume from an existing checkpoint.
    clock : Clock or mapping of Clock, optional
        A simulated clock, or several by name: records then tell the time the run would have taken.
    check_loss : bool
        Whether to compare the gradient of a loss that users wrote (`Custom`, `Torch`, `Jax`, own
        classes) with its value before the first outer iteration, and to refuse one that is off by
        more than a tenth; it costs one gradient and four values, which are counted. A Hessian that
        users wrote is compared with the gradient; it costs one Hessian and four gradients. Where
        targets on gap or kkt hold, gradients are compared with values once more at the answer, which
        costs up to four gradients and four values: if they differ by what the targets forbid, the
        run ends as `Status.CONTRADICTORY` (not between peers). See `gradslide.check_loss`.

    Returns
    -------
    Solution
        The answers, how the run ended, what it cost, and what was observed.

    Raises
    ------
    InputError
        If an argument is not valid; the message says which rule was broken and what to do.
    StreamError
        If a stream of samples fails; its `solution` is what had been reached.

    Warns
    -----
    RuntimeWarning
        If messages were lost or changed so that the answer is wrong, or bounds contradict each
        other; `Solution.warnings` says so too.

    Notes
    -----
    Ctrl-C ends the run after the current outer iteration with what was reached; so does a stream of
    samples that ends.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(60, 3))
    >>> targets = features @ [1.0, -2.0, 0.5]
    >>> problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=6), mu=0.1)
    >>> solution = gs.solve(problem, gs.Graph.ring(6), stop=gs.Stop(gap=gs.Relative(1e-4)))
    >>> solution.status
    <Status.CONVERGED: 'every target was reached'>
    >>> bool(solution.certificate.lower <= solution.certificate.upper)
    True
    """
    started = time.perf_counter()
    method = adapted(_DEFAULT if method is None else method)
    graph = as_graph(network)
    network = cast(Network | None, network) if graph is None else Local(graph)
    check_network(problem, network)
    _check_options(stop, x0, warm_start, callback, record_every, checkpoint_seconds)
    if stop is not None:
        stop.check(problem, method)
    if network is not None and isinstance(problem, Problem):
        network.session.connect()
        started = time.perf_counter()
        if problem.m != len(network.agents):
            raise wrong_number_of_agents(problem, network)
        if problem.coupling is not None:
            check_coupled(problem, network, method)
            problem = problem.padded(agreed_dimension(problem, network))
    problem = on_device_of(network, problem)
    if clock is not None:
        check_clock(problem, network, clock)
    if network is not None and network.session.size > 1:
        _check_alike(problem, network, method, stop, output, record_every, checkpoint is None)

    saver, resume_from = None, None
    if checkpoint is not None:
        rows = problem.rows_per_agent if isinstance(problem, Problem) else None
        saver = Checkpoint(Path(checkpoint), network, checkpoint_seconds, rows)
        resume_from = latest_iteration(saver, network) if resume else None
    costs = Costs()
    environment: Environment
    if isinstance(problem, Problem) and problem.coupling is not None:
        environment = CoupledEnvironment(problem, cast(Network, network), method, costs, clock)
    elif isinstance(problem, Saddle) or network is None:
        environment = SaddleEnvironment(cast(Saddle, problem), method, costs)
    else:
        environment = NetworkEnvironment(problem, network, method, costs, clock)
    with closing(environment.oracle):
        run = Run(
            problem,
            method,
            environment,
            costs,
            stop=stop,
            x0=x0,
            warm_start=warm_start,
            output=output,
            callback=callback,
            record_every=record_every,
            checkpoint=saver,
            resume_from=resume_from,
            started=started,
            check_loss=check_loss,
        )
        is_shown = bool(progress) and environment.network.session.rank == 0
        label = progress if isinstance(progress, str) else method.name
        with (
            deferred_interrupt() as interrupt,
            progress_line(label, run.length) if is_shown else nullcontext() as line,
        ):
            run.begin(interrupt, line)
            try:
                while run.status is None:
                    run.step()
                    record = run.observe()
                    run.status = run.decide(record)
                    run.save(if_due=True)
            except EARLY_ENDS as error:
                run.end_early(error)
            except Exception as error:
                run.locate(error)
                raise
            run.save()
            try:
                run.conclude()
            except EARLY_ENDS as error:
                run.end_early(error)
            except Exception as error:
                run.locate(error)
                raise
        solution = run.solution()

    for warning in solution.warnings:
        warnings.warn(warning, RuntimeWarning, stacklevel=3)  # beyond the decorator
    if run.failures:
        run.failures[0].solution = solution
        # Popped: an error and the frames that name it would keep each other, and the streams, alive.
        raise run.failures.pop()
    return solution


def _check_options(
    stop: object, x0: object, warm_start: object, callback: object, record_every: object, checkpoint_seconds: object
) -> None:
    """Refuse options of the wrong kind, before anything is computed."""
    if not isinstance(stop, Stop | None):
        raise InputError("stop must be a gs.Stop", kind_of(stop), "for example gs.Stop(iterations=1000)")
    if not isinstance(warm_start, Solution | None):
        remedy = "read a saved one with gs.load(path), or give a point as x0"
        raise InputError("warm_start must be a Solution", kind_of(warm_start), remedy)
    if callback is not None:
        _check_callback(callback)
    require_number("record_every", record_every, "1 records every outer iteration", least=1, whole=True)
    require(x0 is None or warm_start is None, "give x0 or warm_start", "both", "warm_start brings a point of its own")
    require_number("checkpoint_seconds", checkpoint_seconds, "0 writes after every outer iteration", least=0)


def _check_callback(callback: object) -> None:
    """Refuse what cannot be called as callback(record, x)."""
    if not callable(callback):
        raise InputError("callback must be callable", kind_of(callback), "give a function of (record, x)")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):
        # Some compiled functions do not tell.
        return
    try:
        signature.bind(None, None)
    except TypeError:
        name = getattr(callback, "__name__", type(callback).__name__)
        got = f"{name}({', '.join(signature.parameters)})"
        raise InputError("callback must take two arguments", got, "write def callback(record, x):") from None


def _check_alike(problem: Problem | Saddle, network: Network, *settings: object) -> None:
    """Refuse different problems or options in different processes, which would wait for each other for ever."""
    kind = problem.loss.has_value, problem.device is None
    told = [problem.domain.norm, problem.mu, problem.d, problem.dtype, *kind, *settings]
    digest = int.from_bytes(hashlib.blake2b(repr(told).encode(), digest_size=7).digest())
    all_reduce = network.session.all_reduce_signal
    largest, smallest = all_reduce(digest), _DIGESTS - all_reduce(_DIGESTS - digest)
    rule = "all processes must be given the same method, stop, mu, dimension, precision, kind of loss and device"
    require(largest == smallest, rule, "others in another process", "run the same program everywhere")
