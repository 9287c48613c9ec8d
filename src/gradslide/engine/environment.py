"""Where a run takes place: the network or operator, what counts its use, what observes it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import doubles, to_numpy
from gradslide._support.errors import require
from gradslide._support.randomness import ForSome
from gradslide._support.types import Array
from gradslide._version import __version__
from gradslide.engine.observers import Balance, NetworkObserver, Observer, OwnObserver, SaddleObserver
from gradslide.engine.stopping import Checks, Relative, Stop
from gradslide.methods.base import Context, Method
from gradslide.network import Counted, Local
from gradslide.network import coupling as couplings
from gradslide.network.central import Central
from gradslide.network.clock import Clock, Timeline
from gradslide.network.coupling import Coupling
from gradslide.network.faults.fault import Fault
from gradslide.network.operator import Operator
from gradslide.network.protocol import Network, Reduction
from gradslide.network.wrapper import Wrapper, wrappers
from gradslide.oracles import Oracle
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import Certificate
from gradslide.results.costs import Costs
from gradslide.theory.certificates import CertificateEvaluator, Traits, Values, traits

_DEFAULT_ITERATIONS = 1000
# Of a method that is to know by itself when its answer is good enough.
_TOLERANCE, _APART, _LONGEST = Relative(1e-4), Relative(1e-2), 10_000


class Environment(Protocol):
    """`network` and `coupling` count what is asked of them; `observer` looks beneath them.

    names: for the solution's settings. fingerprint: what a checkpoint must have in common with this.
    """

    @property
    def network(self) -> Network: ...

    @property
    def coupling(self) -> Coupling: ...

    @property
    def observer(self) -> Observer: ...

    @property
    def names(self) -> dict[str, str]: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def timeline(self) -> Timeline | None:
        """The simulated clock, where one runs."""
        ...

    @property
    def quiet(self) -> Network | None:
        """The network, uncounted, where the same exchange always gives the same; else None."""
        ...

    def memory(self) -> Any:
        """What is left of a run outside its method, for one that goes on later."""
        ...

    def recall(self, memory: Any) -> None:
        """Go on from what `memory` gave."""
        ...

    def watch(self, rows: Array) -> None:
        """Look at what a method says must add up to zero."""
        ...

    def doubts(self, start: Array, x: Array, method: str, certificate: Certificate | None) -> tuple[str, ...]:
        """What makes the answer x of a run from start, of which this was proved, doubtful."""
        ...

    @property
    def compares_outputs(self) -> bool:
        """Whether any output that reaches the targets will do, where none was asked for."""
        ...

    def default_stop(self, iterations: int | None, stops_itself: bool = False) -> Stop:
        """When a run ends that was not told when to end. iterations: of the method's schedule, if it ends.
        stops_itself: the method has none, and is to end where its answer is good enough."""
        ...

    def checks(self, stop: Stop, values: Values, start: Array) -> Checks | None:
        """How the agents decide that these targets hold; None where observations do. values: counted. start: x_0."""
        ...

    def largest(self, costs: Costs) -> Costs:
        """The costs, those of the agent that spent most."""
        ...

    def everybody(self, x: Array) -> dict[str, Any]:
        """What a solution says of agents elsewhere, too: the mean of all x, and how to get at their rows."""
        ...

    def dual_start(self, dual: Array) -> Array:
        """Multipliers of an earlier solution, as the coupling starts from them."""
        ...

    def multipliers(self, dual: Array) -> Array:
        """What a method gives as its dual, as a solution shows it."""
        ...


class NetworkEnvironment:
    """Agents on a network: A x = 0 where they agree."""

    compares_outputs: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        network: Network,
        coupling: str,
        costs: Costs,
        clock: Clock | Mapping[str, Clock] | None = None,
    ) -> None:
        self._problem, self._network = problem, network
        self.timeline = None if clock is None else Timeline(clock, network.graph, problem.loss, costs)
        self.network: Network = Counted(network, costs, self.timeline)
        self.network.session.begin()
        self.coupling = couplings.make(coupling, self.network)
        self.observer: NetworkObserver | OwnObserver = OwnObserver()
        self.quiet: Network | None = None
        self._balance: Balance | None = None
        self._agreed: Traits | None = None
        if network.session.sees_all:
            observed = network.session.uncounted()
            self.quiet = None if isinstance(network, Wrapper) else observed
            self.observer = NetworkObserver(problem, observed, couplings.make(coupling, observed))
            self._balance = Balance(problem, observed, costs)
        self.names = {"coupling": coupling, "network": repr(network if isinstance(network, Wrapper) else network.graph)}

    @property
    def fingerprint(self) -> str:
        graph, name = self.network.graph, self.names["network"]
        return graph.fingerprint if name == repr(graph) else f"{graph.fingerprint} {name}"

    def memory(self) -> Any:
        clock = None if self.timeline is None else self.timeline.memory()
        return {"network": self.network.session.checkpoint(), "clock": clock}

    def recall(self, memory: Any) -> None:
        self.network.session.resume(memory["network"])
        if self.timeline is not None:
            self.timeline.recall(memory["clock"])

    def watch(self, rows: Array) -> None:
        if self._balance is not None:
            self._balance.look(rows)

    def doubts(self, start: Array, x: Array, method: str, certificate: Certificate | None) -> tuple[str, ...]:
        broken = "" if self._balance is None else self._balance.broken(start, x, method)
        refuted = "" if certificate is None else certificate.refutation
        return tuple(text for text in (broken, refuted) if text)

    def default_stop(self, iterations: int | None, stops_itself: bool = False) -> Stop:
        if iterations is not None or not stops_itself:
            return Stop(iterations=iterations or _DEFAULT_ITERATIONS)
        proves = all(self._traits())
        gap, kkt = (_TOLERANCE, None) if proves else (None, _TOLERANCE)
        return Stop(gap=gap, kkt=kkt, disagreement=_APART, iterations=_LONGEST)

    def _traits(self) -> Traits:
        # Agreed on once, before the first outer iteration: an agent that goes on from a checkpoint is alone with it.
        if self._agreed is None:
            self._agreed = traits(self._problem, self.network)
        return self._agreed

    def checks(self, stop: Stop, values: Values, start: Array) -> Checks | None:
        if not self.network.session.sees_all:
            rule = "targets that look at all agents need all of them in one run"
            require(not stop.observes, rule, "objective or residual", "use gap or kkt, which the agents agree on")
        needs_all = stop.disagreement is not None and not self.network.session.sees_all
        if stop.gap is None and stop.kkt is None and not needs_all:
            return None
        is_proof = stop.gap is None or all(self._traits())
        rule = "Stop(gap=...) needs one domain for all agents, bounded or with mu > 0, and losses that have a value"
        require(is_proof, rule, "agents elsewhere for which that does not hold", "use kkt")
        evaluator = CertificateEvaluator(self._problem, self.network, self._agree, values, known=self._agreed)
        checks = Checks(stop, evaluator, start, finds_apart=not self.network.session.sees_all)
        if isinstance(self.observer, OwnObserver):
            self.observer.checks = checks
        return checks

    def _agree(self, values: Array, reduction: Reduction) -> Array:
        """Sums that decide are exact, and are worked out on the host."""
        return self.network.agree(to_numpy(values), reduction)

    def largest(self, costs: Costs) -> Costs:
        network = self._network
        if len(network.agents) == network.m or not network.session.sees_all:
            return costs
        most = network.session.observe(np.array([[costs.gradients, costs.values]]), "max").tolist()
        return replace(costs, gradients=most[0], values=most[1])

    def everybody(self, x: Array) -> dict[str, Any]:
        network = self._network
        if len(network.agents) == network.m or not network.session.sees_all:
            return {}
        return {"mean": self.observer.mean(x), "rows_of_all": network.session.gather}

    def dual_start(self, dual: Array) -> Array:
        shape = (self._problem.m, self._problem.d)
        rule = f"warm_start must have multipliers of shape {shape}"
        require(dual.shape == shape, rule, dual.shape, "give its x as x0")
        return dual

    def multipliers(self, dual: Array) -> Array:
        """In node form; a part common to all agents says nothing and is taken off."""
        return np.asarray(dual - self.observer.mean(dual))


_DEFAULT_GRADIENTS, _DEFAULT_PRODUCTS = 10_000, 100_000


class SaddleEnvironment:
    """All of x and z in one place, coupled by an operator."""

    compares_outputs: ClassVar[bool] = True
    timeline: ClassVar[None] = None
    quiet: ClassVar[None] = None

    def __init__(self, problem: Saddle, costs: Costs) -> None:
        self.network: Network = Central(problem.m)
        self.coupling = Operator(problem, costs)
        self.observer = SaddleObserver(problem, self.coupling.A)
        self.names = {"coupling": self.coupling.name}
        self._problem = problem

    @property
    def fingerprint(self) -> str:
        return f"{self._problem.A.fingerprint()} {self._problem.duals.fingerprint()}"

    def memory(self) -> None:
        return None

    def recall(self, memory: Any) -> None:
        return None

    def watch(self, rows: Array) -> None:
        """Multipliers of one machine need not add up to anything."""

    def doubts(self, start: Array, x: Array, method: str, certificate: Certificate | None) -> tuple[str, ...]:
        return ()

    def default_stop(self, iterations: int | None, stops_itself: bool = False) -> Stop:
        gap = _TOLERANCE if self._problem.has_gap else None
        residual = _TOLERANCE if gap is not None and self._problem.duals.is_constrained else None
        limits = {"gradients": _DEFAULT_GRADIENTS, "operator_products": _DEFAULT_PRODUCTS}
        return Stop(gap=gap, residual=residual, iterations=iterations, **limits)

    def checks(self, stop: Stop, values: Values, start: Array) -> None:
        """All is in one place: observations are free."""

    def largest(self, costs: Costs) -> Costs:
        return costs

    def everybody(self, x: Array) -> dict[str, Any]:
        return {}

    def dual_start(self, dual: Array) -> Array:
        shape = self._problem.A.shape[:1]
        rule = f"warm_start must have multipliers of shape {shape}"
        require(dual.shape == shape, rule, dual.shape, "give its x as x0")
        return dual[None]

    def multipliers(self, dual: Array) -> Array:
        return dual[0]


def moved(problem: Problem | Saddle, network: Network | None) -> Problem | Saddle:
    """The problem on the device that the network asks for, if it does."""
    if isinstance(problem, Saddle) or network is None:
        rule = f"a {type(problem).__name__} problem is solved with arrays of NumPy's"
        require(problem.device is None, rule, f"a loss on {problem.device}", "give it the data so")
        return problem
    around = list(wrappers(network))
    inner = around[-1]._network if around else network
    device = getattr(inner, "device", None)
    problem = problem if device is None else problem.to(device)
    if problem.device is not None:
        simulated = isinstance(inner, Local) and not any(isinstance(each, Fault) for each in around)
        rule = "a problem on a device needs the network gs.network.Local(graph), without faults"
        require(simulated, rule, f"{type(network).__name__}, {problem.device}", "give the loss arrays of NumPy's")
        # Every step asks for it: once it is known, none has to wait for the device.
        _ = problem.has_lower_bound
    return problem


def environment_of(
    problem: Problem | Saddle,
    network: Network | None,
    method: Method,
    costs: Costs,
    clock: Clock | Mapping[str, Clock] | None,
) -> Environment:
    if isinstance(problem, Saddle):
        return SaddleEnvironment(problem, costs)
    assert network is not None
    return NetworkEnvironment(problem, network, method.coupling, costs, clock)


def oracle_of(problem: Problem | Saddle, environment: Environment, method: Method, costs: Costs) -> Oracle:
    """The oracle, with the way of sampling that the method has, if it has one."""
    sampling = method.oracle
    sampler = None
    if sampling is not None:
        sampler = sampling.open(problem.loss, environment.network.agents, method.seed)
    network = environment.network
    settle = network.session.all_reduce_signal if network.session.sees_all else lambda signal: signal
    return Oracle(problem.loss, costs, sampler, environment.timeline, settle)


def settings(context: Context, environment: Environment, method: str, ended_by: str) -> dict[str, Any]:
    """What a solution says of how it was made."""
    return {
        "method": method,
        "problem": context.problem.described(context.network.m),
        **environment.names,
        "version": __version__,
        **({"ended_by": ended_by} if ended_by else {}),
    }


def identity(context: Context, environment: Environment, method: str, output: str) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that goes on from it, wherever its agents lived."""
    problem, network = context.problem, environment.network
    # Data and sets are told apart by what they do to fixed points, to digits that do not hang on the machine.
    drawn = ForSome([0], network.agents, network.m).random((problem.m, problem.d))
    probe = problem.placed(4 * drawn - 2)
    xp = array_namespace(probe)
    inside, far = problem.domain.prox(probe, 1.0), problem.domain.prox(1e6 * probe, 1.0)
    rows = {
        "domain": xp.vecdot(probe, inside),
        "far away": xp.vecdot(probe, far),
        "start": xp.vecdot(probe, context.x0),
    }
    if context.s0 is not None:
        # Those of one machine are not the agents'.
        whole = np.full(problem.m, float(np.sum(to_numpy(context.s0))) / problem.m)
        rows["multipliers"] = xp.vecdot(probe, context.s0) if context.s0.shape == probe.shape else whole
    if problem.loss.has_value:
        rows["data"] = problem.objective(inside)
    each = np.stack([to_numpy(doubles(row)) for row in rows.values()], axis=1)
    sums = network.session.observe(each, "sum") if network.session.sees_all else each.sum(axis=0)
    # Devices need not add up in the same order twice.
    digits = 3 if problem.device is not None and problem.dtype == np.float32 else 7
    return {
        "method": method,
        "network": environment.fingerprint,
        "problem": f"{type(problem).__name__}, {type(problem.loss).__name__}, m={network.m}, d={problem.d}, "
        f"mu={problem.mu!r}, {problem.dtype}",
        "output": output,
        "clock": "" if environment.timeline is None else repr(environment.timeline),
        **{name: f"{mark:.{digits}e}" for name, mark in zip(rows, sums.tolist(), strict=True)},
    }
