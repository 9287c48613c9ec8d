"""Where a run takes place: what couples the x_i, who counts it, who looks at it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.engine.checks import Checks
from gradslide.engine.invariant import Balance
from gradslide.engine.metrics import NetworkObserver, Observer, OwnObserver
from gradslide.engine.stop import Relative, Stop
from gradslide.network import Counted, Network
from gradslide.network import coupling as couplings
from gradslide.network.base import Reduction
from gradslide.network.clock import Clock
from gradslide.network.coupling import Coupling
from gradslide.network.timeline import Timeline
from gradslide.network.wrapper import Wrapper
from gradslide.problems.problem import Problem
from gradslide.results.certificate import Certificate
from gradslide.results.costs import Costs
from gradslide.theory.proof import Examiner, Traits, Values, traits

_DEFAULT_ITERATIONS = 1000
# Of a method that is to know by itself when its answer is good enough.
_TOLERANCE, _APART, _LONGEST = Relative(1e-4), Relative(1e-2), 10_000


class Setting(Protocol):
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


class Networked:
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
        self.network.begin()
        self.coupling = couplings.make(coupling, self.network)
        self.observer: NetworkObserver | OwnObserver = OwnObserver()
        self.quiet: Network | None = None
        self._balance: Balance | None = None
        self._agreed: Traits | None = None
        if network.sees_all:
            observed = network.aside()
            self.quiet = None if isinstance(network, Wrapper) else observed
            self.observer = NetworkObserver(problem, observed, couplings.make(coupling, observed))
            self._balance = Balance(problem, observed, costs)
        self.names = {"coupling": coupling, "network": repr(network if isinstance(network, Wrapper) else network.graph)}

    @property
    def fingerprint(self) -> str:
        graph, name = self.network.graph, self.names["network"]
        return graph.fingerprint if name == repr(graph) else f"{graph.fingerprint} {name}"

    def memory(self) -> Any:
        return {"network": self.network.memory(), "clock": None if self.timeline is None else self.timeline.memory()}

    def recall(self, memory: Any) -> None:
        self.network.recall(memory["network"])
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
        if not self.network.sees_all:
            rule = "targets that look at all agents need all of them in one run"
            require(not stop.observes, rule, "objective or residual", "use gap or kkt, which the agents agree on")
        needs_all = stop.disagreement is not None and not self.network.sees_all
        if stop.gap is None and stop.kkt is None and not needs_all:
            return None
        is_proof = stop.gap is None or all(self._traits())
        rule = "Stop(gap=...) needs one domain for all agents, bounded or with mu > 0, and losses that have a value"
        require(is_proof, rule, "agents elsewhere for which that does not hold", "use kkt")
        examiner = Examiner(self._problem, self.network, self._agree, values, known=self._agreed)
        checks = Checks(stop, examiner, start, finds_apart=not self.network.sees_all)
        if isinstance(self.observer, OwnObserver):
            self.observer.checks = checks
        return checks

    def _agree(self, values: Array, reduction: Reduction) -> Array:
        """Sums that decide are exact, and are worked out on the host."""
        return self.network.agree(to_numpy(values), reduction)

    def largest(self, costs: Costs) -> Costs:
        network = self._network
        if len(network.agents) == network.m or not network.sees_all:
            return costs
        most = network.observe(np.array([[costs.gradients, costs.values]]), "max").tolist()
        return replace(costs, gradients=most[0], values=most[1])

    def everybody(self, x: Array) -> dict[str, Any]:
        network = self._network
        if len(network.agents) == network.m or not network.sees_all:
            return {}
        return {"mean": self.observer.mean(x), "rows_of_all": network.gather}

    def dual_start(self, dual: Array) -> Array:
        shape = (self._problem.m, self._problem.d)
        rule = f"warm_start must have multipliers of shape {shape}"
        require(dual.shape == shape, rule, dual.shape, "give its x as x0")
        return dual

    def multipliers(self, dual: Array) -> Array:
        """In node form; a part common to all agents says nothing and is taken off."""
        return np.asarray(dual - self.observer.mean(dual))
