"""Where a run takes place: the network or operator, the oracle that counts its use, and the observer beneath them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from gradslide._support.arrays import on_device, to_numpy
from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array, DType, Storable
from gradslide.engine.observers import (
    AgreedObserver,
    CoupledObserver,
    InvariantMonitor,
    NetworkObserver,
    Observer,
    SaddleObserver,
)
from gradslide.engine.stopping import Checks, Relative, SaddleChecks, Stop
from gradslide.losses import Loss
from gradslide.methods.base import AnyMethod
from gradslide.network import Counted, Local
from gradslide.network import coupling as couplings
from gradslide.network.central import Central
from gradslide.network.clock import Clock, Timeline
from gradslide.network.coupled_rows import SharedRows
from gradslide.network.coupling import Coupling, Operator
from gradslide.network.faults.fault import Fault
from gradslide.network.local import OnGraph
from gradslide.network.protocol import Network
from gradslide.network.wrapper import Wrapper
from gradslide.oracles import Oracle
from gradslide.problems.problem import Problem, checked_problem
from gradslide.problems.saddle import Saddle
from gradslide.results.certificate import Certificate, SaddleKKT
from gradslide.results.costs import Costs
from gradslide.results.history import Record
from gradslide.theory.certificates import CertificateEvaluator
from gradslide.theory.optimality import residuals_at, unit_of

_DEFAULT_ITERATIONS = 1000
# The default targets and limit of a method that stops itself.
_TOLERANCE, _DISAGREEMENT, _MOST_ITERATIONS = Relative(1e-4), Relative(1e-2), 10_000
# Lower bounds leave room for rounding: above the objective by this share of it, or by so many rounding errors, they
# contradict it.
_CONTRADICTION, _ROUNDINGS = 1e-6, 1e3
# Columns whose scales differ by more than this are worth a warning.
_UNEVEN = 1e3
# The default limits without a network.
_GRADIENTS, _PRODUCTS = 10_000, 1_000_000


class Environment(ABC):
    """Where a run takes place.

    Attributes
    ----------
    network : Network
        The network; it counts what is asked of it.
    coupling : Coupling
        The linear map that couples the x_i, on that network.
    oracle : Oracle
        Gradients and values, counted.
    observer : Observer
        Looks beneath them, uncounted.
    names : dict
        Entries of `Solution.settings`.
    timeline : Timeline or None
        The simulated clock, if one runs.
    uncounted : Network or None
        The network without counting, if the same exchange always gives the same result.
    invariant : InvariantMonitor or None
        Watches what must sum to zero over the agents.
    compares_outputs : bool
        Whether any output that reaches the targets will do if none was asked for.
    may_lack_solutions : bool
        Whether runs search for signs that the problem is infeasible or unbounded.
    has_rows : bool
        Whether rows of a linear map take the place of consensus: residuals are those of `SaddleKKT`.
    """

    network: Network
    coupling: Coupling
    oracle: Oracle
    observer: Observer
    names: dict[str, str]
    timeline: Timeline | None = None
    uncounted: Network | None = None
    invariant: InvariantMonitor | None = None
    compares_outputs: ClassVar[bool] = False
    may_lack_solutions: ClassVar[bool] = False
    has_rows: ClassVar[bool] = False

    @property
    @abstractmethod
    def starts_feasible(self) -> bool:
        """Whether the start fulfils all constraints, so that no optimum is above the objective there.

        The same in all processes; False where the objective cannot be observed.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Return what a checkpoint must have in common with this environment."""

    def checkpoint(self) -> Storable:
        """Return what a run that is resumed needs of the network and the clock."""
        return None

    def resume(self, saved: Storable) -> None:
        """Continue from what `checkpoint` returned."""
        return

    @abstractmethod
    def default_stop(self, method: AnyMethod, iterations: int | None) -> Stop:
        """Return when a run ends that was not told; iterations: of the method's schedule, if it ends."""

    def completed(self, stop: Stop) -> Stop:
        """Return the targets, and feasibility where an objective says nothing without it."""
        return stop

    def checks(self, stop: Stop, start: Array) -> Checks | SaddleChecks | None:
        """Return how decisions on targets are taken, or None if observations decide; start: x_0."""
        return None

    def is_contradictory(self, record: Record) -> bool:
        """Return whether the bounds in a record leave no room for an optimum, by more than rounding."""
        return False

    @abstractmethod
    def dual_start(self, dual: Array) -> Array:
        """Return the multipliers of an earlier solution in the form that the coupling starts from."""

    @abstractmethod
    def solution_fields(self, x: Array, dual: Array | None, costs: Costs) -> dict[str, Any]:
        """Return the fields of a solution that concern all agents: costs, dual, mean and how to gather."""

    @abstractmethod
    def warnings(
        self, method: AnyMethod, x: Array, start: Array, certificate: Certificate | None, is_verified: bool
    ) -> list[str]:
        """Return what makes the answer doubtful; some may be empty.

        is_verified: whether the objective at the answer was verified, whatever happened on the way.
        """


class NetworkEnvironment(Environment):
    """Agents on a network: A x = 0 if they agree.

    Parameters
    ----------
    problem : Problem
        The problem of the agents here.
    network : Network
        The network, connected.
    method : Method
        Its coupling and its way of sampling are used.
    costs : Costs
        Where everything is counted.
    clock : Clock or mapping of Clock, optional
        A simulated clock, or several by name.
    """

    observer: NetworkObserver | AgreedObserver | CoupledObserver

    def __init__(
        self,
        problem: Problem,
        network: Network,
        method: AnyMethod,
        costs: Costs,
        clock: Clock | Mapping[str, Clock] | None = None,
    ) -> None:
        self._problem, self._network = problem, network
        self._sees_all = network.session.sees_all
        if clock is not None:
            self.timeline = Timeline(clock, network.graph, problem.loss, costs)
        self.network = Counted(network, costs, self.timeline)
        self.network.session.begin()
        self._observed: Network | None = network.session.uncounted() if self._sees_all else None
        self._couple(method, costs)
        name = repr(network if isinstance(network, Wrapper) else network.graph)
        self.names = {"coupling": self.coupling.name, "network": name}
        sampler = None if method.oracle is None else method.oracle.open(problem.loss, network.agents, method.seed)
        shared = {"all_reduce": network.session.all_reduce_signal} if self._sees_all else {}
        self.oracle = Oracle(problem.loss, costs, sampler, self.timeline, **shared)
        self._evaluator = CertificateEvaluator(problem, self.network, self.oracle, is_counted=True)

    def _couple(self, method: AnyMethod, costs: Costs) -> None:
        """Make what couples the agents, and what observes them."""
        self.coupling = couplings.make(method.coupling, self.network)
        observed, network = self._observed, self._network
        if observed is None:
            self.observer = AgreedObserver()
            return
        self.uncounted = None if isinstance(network, Wrapper) else observed
        self.observer = NetworkObserver(self._problem, observed, couplings.make(method.coupling, observed))
        self.invariant = InvariantMonitor(self._problem, observed, costs)

    @property
    def starts_feasible(self) -> bool:
        return isinstance(self.observer, NetworkObserver) and self.observer.is_common

    def fingerprint(self) -> str:
        graph, name = self.network.graph, self.names["network"]
        return graph.fingerprint if name == repr(graph) else f"{graph.fingerprint} {name}"

    def checkpoint(self) -> Storable:
        clock = None if self.timeline is None else self.timeline.checkpoint()
        reach = None if self.oracle.reach is None else to_numpy(self.oracle.reach)
        return {"network": self.network.session.checkpoint(), "clock": clock, "reach": reach}

    def resume(self, saved: Storable) -> None:
        state = cast(Mapping[str, Storable], saved)
        self.network.session.resume(state["network"])
        if self.timeline is not None:
            self.timeline.resume(cast(list[Array], state["clock"]))
        reach = state.get("reach")
        if reach is not None:
            self.oracle.reach = on_device(np.asarray(reach), self._problem.device)

    def default_stop(self, method: AnyMethod, iterations: int | None) -> Stop:
        if iterations is not None or not method.stops_itself:
            return Stop(iterations=iterations or _DEFAULT_ITERATIONS)
        # Agreed on before the first outer iteration: an agent that resumes is alone with it.
        is_provable = self._evaluator.traits.is_provable
        gap, kkt = (_TOLERANCE, None) if is_provable else (None, _TOLERANCE)
        return Stop(gap=gap, kkt=kkt, disagreement=_DISAGREEMENT, iterations=_MOST_ITERATIONS)

    def completed(self, stop: Stop) -> Stop:
        is_vague = stop.objective is not None and stop.residual is None and stop.disagreement is None
        if not is_vague or stop.kkt is not None or self.starts_feasible:
            return stop
        # The mean of agents with sets of their own need not be feasible.
        return replace(stop, disagreement=_DISAGREEMENT)

    def checks(self, stop: Stop, start: Array) -> Checks | SaddleChecks | None:
        if not self._sees_all:
            rule = "targets that look at all agents need all of them in one run"
            is_agreed = stop.objective is None and stop.residual is None
            require(is_agreed, rule, "objective or residual", "use gap or kkt, which the agents agree on")
        needs_all = stop.disagreement is not None and not self._sees_all
        if stop.gap is None and stop.kkt is None and not needs_all:
            return None
        is_provable = stop.gap is None or self._evaluator.traits.is_provable
        rule = "Stop(gap=...) needs one domain for all agents, bounded or with mu > 0, and losses that have a value"
        require(is_provable, rule, "agents elsewhere for which that does not hold", "use kkt")
        # Sums that messages may be lost of are not waited for; those of a lone agent are free.
        may_be_late = self._network.is_reliable and self._network.m > 1
        checks = Checks(stop, self._evaluator, start, not self._sees_all, may_be_late)
        if isinstance(self.observer, AgreedObserver):
            self.observer.checks = checks
        return checks

    def is_contradictory(self, record: Record) -> bool:
        return _contradicts(record, self._problem.dtype)

    def dual_start(self, dual: Array) -> Array:
        shape = (self._problem.m, self._problem.d)
        rule = f"warm_start must have multipliers of shape {shape}"
        require(dual.shape == shape, rule, dual.shape, "give its x as x0")
        return dual

    def solution_fields(self, x: Array, dual: Array | None, costs: Costs) -> dict[str, Any]:
        session, m = self._network.session, self._network.m
        is_partial = self._observed is not None and len(self._network.agents) < m
        if is_partial:
            most = session.observe(np.array([[costs.gradients, costs.values]]), "max").tolist()
            costs = replace(costs, gradients=most[0], values=most[1])
        if dual is not None:
            # In node form; a part common to all agents means nothing.
            common = 0 * dual if self._observed is None else self._observed.session.observe(dual, "sum") / m
            dual = np.asarray(dual - common)
        found: dict[str, Any] = {"costs": costs, "dual": dual}
        if self._observed is not None and is_partial:
            found |= {"mean": self._observed.session.observe(x, "sum") / m, "rows_of_all": session.gather}
        return found

    def warnings(
        self, method: AnyMethod, x: Array, start: Array, certificate: Certificate | None, is_verified: bool
    ) -> list[str]:
        return [
            "" if method.is_unit_free(self._problem.domain) else uneven_columns(self._problem.loss),
            "" if self.invariant is None or is_verified else self.invariant.warning(start, x, method.name),
            "" if certificate is None else certificate.refutation,
        ]


class CoupledEnvironment(NetworkEnvironment):
    """Agents on a network with variables of their own, coupled by linear constraints.

    Parameters
    ----------
    problem, network, method, costs, clock
        As for `NetworkEnvironment`.
    """

    has_rows: ClassVar[bool] = True

    def _couple(self, method: AnyMethod, costs: Costs) -> None:
        self.coupling = SharedRows(self._problem, self.network)
        if self._observed is None:
            self.observer = AgreedObserver()
        else:
            self.observer = CoupledObserver(self._problem, self._observed)

    @property
    def starts_feasible(self) -> bool:
        return False

    def default_stop(self, method: AnyMethod, iterations: int | None) -> Stop:
        return Stop(kkt=_default_kkt(method, self._problem), iterations=_MOST_ITERATIONS)

    def completed(self, stop: Stop) -> Stop:
        return stop

    def checks(self, stop: Stop, start: Array) -> SaddleChecks | None:
        if not self._sees_all:
            is_agreed = stop.objective is None and stop.residual is None and stop.gap is None
            rule = "targets that look at all agents need all of them in one run"
            require(is_agreed, rule, "objective, residual or gap", "use kkt, which the agents agree on")
        return None if stop.kkt is None else SaddleChecks(stop)

    def is_contradictory(self, record: Record) -> bool:
        # At an infeasible point the objective may well lie below the optimum.
        return False

    def dual_start(self, dual: Array) -> Array:
        return _row_of_multipliers(dual, (cast(SharedRows, self.coupling).coupled.k,))

    def solution_fields(self, x: Array, dual: Array | None, costs: Costs) -> dict[str, Any]:
        # The multipliers are the same for all agents.
        return {**super().solution_fields(x, None, costs), "dual": None if dual is None else dual[0]}

    def warnings(
        self, method: AnyMethod, x: Array, start: Array, certificate: Certificate | None, is_verified: bool
    ) -> list[str]:
        return ["" if method.is_unit_free(self._problem.domain) else uneven_columns(self._problem.loss)]


class SaddleEnvironment(Environment):
    """All of x and z in one process, coupled by an operator.

    Parameters
    ----------
    problem : Saddle
        The problem.
    method : Method
        Its way of sampling is used.
    costs : Costs
        Where everything is counted.
    """

    compares_outputs: ClassVar[bool] = True
    may_lack_solutions: ClassVar[bool] = True
    has_rows: ClassVar[bool] = True

    def __init__(self, problem: Saddle, method: AnyMethod, costs: Costs) -> None:
        self._problem = problem
        self.network = Central(problem.m)
        operator = Operator(problem, costs)
        self.coupling = operator
        self.observer = SaddleObserver(problem, operator.A)
        self.names = {"coupling": operator.name}
        self._unit: float | None = None
        sampler = None if method.oracle is None else method.oracle.open(problem.loss, range(problem.m), method.seed)
        self.oracle = Oracle(problem.loss, costs, sampler)

    @property
    def starts_feasible(self) -> bool:
        return not self._problem.duals.is_constrained

    def fingerprint(self) -> str:
        return f"{self._problem.A.fingerprint()} {self._problem.duals.fingerprint()}"

    def default_stop(self, method: AnyMethod, iterations: int | None) -> Stop:
        targets: dict[str, Any] = {}
        if method.stops_itself:
            targets["kkt"] = _default_kkt(method, self._problem)
        elif self._problem.has_gap:
            targets["gap"] = _TOLERANCE
            if self._problem.duals.is_constrained:
                targets["residual"] = _TOLERANCE
        elif method.has_multipliers and method.oracle is None:
            targets["kkt"] = _TOLERANCE.value
        return Stop(**targets, iterations=iterations, gradients=_GRADIENTS, operator_products=_PRODUCTS)

    def checks(self, stop: Stop, start: Array) -> SaddleChecks | None:
        return None if stop.kkt is None else SaddleChecks(stop)

    def residuals(self, x: Array, dual: Array) -> SaddleKKT:
        """Return the residuals of a point, counted.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            The primal point.
        dual : ndarray, shape (1, k)
            The dual point.

        Returns
        -------
        SaddleKKT
        """
        if self._unit is None:
            start = to_numpy(self.oracle.gradient(self._problem.domain.start()))
            self._unit = unit_of(float(np.max(np.abs(start))))
        return residuals_at(self._problem, self.oracle, cast(Operator, self.coupling).A, x, dual, self._unit)

    def completed(self, stop: Stop) -> Stop:
        is_vague = (stop.objective is not None or stop.gap is not None) and stop.residual is None and stop.kkt is None
        return replace(stop, residual=_TOLERANCE) if is_vague and self._problem.duals.is_constrained else stop

    def is_contradictory(self, record: Record) -> bool:
        # At an infeasible point the objective may well lie below the optimum.
        return not self._problem.duals.is_constrained and _contradicts(record, self._problem.dtype)

    def dual_start(self, dual: Array) -> Array:
        return _row_of_multipliers(dual, self._problem.A.shape[:1])

    def solution_fields(self, x: Array, dual: Array | None, costs: Costs) -> dict[str, Any]:
        return {"costs": costs, "dual": None if dual is None else dual[0]}

    def warnings(
        self, method: AnyMethod, x: Array, start: Array, certificate: Certificate | None, is_verified: bool
    ) -> list[str]:
        # At an infeasible point the objective may well lie below a lower bound.
        is_comparable = not self._problem.duals.is_constrained
        refutation = "" if certificate is None or not is_comparable else certificate.refutation
        uneven = "" if method.is_unit_free(self._problem.domain) else uneven_columns(self._problem.loss)
        return [uneven, refutation]


def _default_kkt(method: AnyMethod, problem: Problem | Saddle) -> float:
    """The residual at which a method that stops itself does; data in single precision may allow no smaller one."""
    return max(method.default_accuracy, _TOLERANCE.value) if problem.dtype == np.float32 else method.default_accuracy


def _row_of_multipliers(dual: Array, shape: tuple[int, ...]) -> Array:
    """Multipliers of an earlier solution as a row, checked."""
    rule = f"warm_start must have multipliers of shape {shape}"
    require(dual.shape == shape, rule, dual.shape, "give its x as x0")
    return dual[None]


def _contradicts(record: Record, dtype: DType) -> bool:
    """Return whether the bounds in a record leave no room for an optimum, by more than rounding."""
    if record.gap is None or record.objective is None:
        return False
    rounding = _ROUNDINGS * float(np.finfo(dtype).eps)
    return record.gap < -max(_CONTRADICTION, rounding) * abs(record.objective)


def uneven_columns(loss: Loss) -> str:
    """Return a warning about columns whose scales differ much, or an empty string."""
    squares, rows = loss.column_squares(), loss.rows_per_agent
    if squares is None or rows is None:
        return ""
    scales = np.sqrt(to_numpy(squares.sum(axis=0)) / np.sum(rows))
    if not np.any(scales > 0):
        return ""
    largest = int(np.argmax(scales))
    smallest = int(np.argmin(np.where(scales > 0, scales, np.inf)))
    factor = float(scales[largest] / scales[smallest])
    if not factor > _UNEVEN:
        return ""
    names = loss.feature_names or range(len(scales))
    return (
        f"columns {names[largest]} and {names[smallest]} of the features differ in scale by a factor of "
        f"{factor:.2g} (root mean "
        f"squares {scales[largest]:.3g} and {scales[smallest]:.3g}): gradient methods take very long and may end far "
        "from the optimum. Use gs.Newton(), which does not depend on units, or divide each column by its scale, as the "
        "estimators in gradslide.sklearn do themselves"
    )


def on_device_of(network: Network | None, problem: Problem | Saddle) -> Problem | Saddle:
    """Return the problem on the device that the network asks for, if it does."""
    if isinstance(problem, Saddle) or network is None:
        if problem.device is not None:
            # Every step asks for it: once it is known, none has to wait for the device.
            _ = problem.has_lower_bound
        return problem
    around: list[Wrapper] = []
    inner = network
    while isinstance(inner, Wrapper):
        around.append(inner)
        inner = inner._network
    device = inner.device if isinstance(inner, OnGraph) else None
    problem = problem if device is None else problem.to(device)
    if problem.device is not None:
        is_one = isinstance(inner, OnGraph) and not any(isinstance(each, Fault) for each in around)
        rule = "a problem on a device needs the network gs.network.Local(graph) or MPI(graph), without faults"
        got, remedy = f"{type(network).__name__}, {problem.device}", "give the loss arrays of NumPy's"
        require(is_one, rule, got, remedy)
        is_torch = type(problem.device).__module__.partition(".")[0] in ("builtins", "torch")
        rule = "between processes a problem on a device must have tensors of PyTorch"
        require(is_torch or isinstance(inner, Local), rule, got, remedy)
        # Every step asks for it: once it is known, none has to wait for the device.
        _ = problem.has_lower_bound
    return problem


def check_network(problem: object, network: object) -> None:
    """Refuse a network for a saddle point problem, and a problem of agents without one."""
    if isinstance(problem, Saddle):
        rule = f"a {type(problem).__name__} problem has no network"
        require(
            network is None, rule, kind_of(network), "leave it out; methods go to method=, for example method=gs.PDS()"
        )
        return
    if not isinstance(problem, Problem):
        checked_problem(problem)
    if network is None:
        m = cast(Problem, problem).m
        example = f"for example gs.Graph.{'ring' if m > 2 else 'path'}({m})"
        raise InputError("agents need a graph or a network between them", "none (network=None)", example)
    if isinstance(network, type) or not hasattr(network, "combine"):
        rule, remedy = "network must be a Graph or a network", "for example gs.Graph.ring(10)"
        raise InputError(rule, kind_of(network), remedy)


def check_coupled(problem: Problem, network: Network, method: AnyMethod) -> None:
    """Refuse methods and networks that coupled agents cannot use."""
    rule = "coupled agents need gs.Auto(), gs.AutoPDS(), gs.Newton() or gs.LBFGS()"
    require(method.serves_rows, rule, method.name, "leave the method out")
    require(problem.device is None, "coupled agents need arrays of NumPy's", str(problem.device), "leave device out")
    rule, remedy = "coupled agents need a network without faults", "take them off"
    require(network.is_reliable, rule, repr(network), remedy)


def wrong_number_of_agents(problem: Problem, network: Network) -> InputError:
    """Return the error for a problem with another number of agents than live here."""
    agents = len(network.agents)
    remedy = "change the one or the other"
    if agents < network.m:
        remedy = "give those that live here: problem.take(network.agents)"
    elif problem.m == 1:
        remedy = f"a loss with agents={agents} shares its rows among them, one with splits=[...] as you say"
    rule = "problem and network must have the same number of agents"
    return InputError(rule, f"{problem.m} and {agents}", remedy)


def check_clock(problem: object, network: Network | None, clock: object) -> None:
    """Refuse what is no clock, or several by name, and a clock where the network takes its own time."""
    clocks = list(clock.values()) if isinstance(clock, Mapping) else [clock]
    known = bool(clocks) and all(isinstance(each, Clock) for each in clocks)
    require(known, "clock must be a gs.Clock, or several by name", kind_of(clock), "for example gs.Clock.wan()")
    rule = f"a {type(problem).__name__} problem has no network, and no clock"
    if network is None:
        raise InputError(rule, "a clock", "leave it out")
    here, m = len(network.agents), network.m
    rule = "a simulated clock needs all agents in one process"
    require(here == m, rule, f"{here} of {m}", "leave it out: this network takes its own time")
