"""What `solve` asks of a method, and what a method is given."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast, runtime_checkable

from array_api_compat import array_namespace

from gradslide._support.arrays import row_wise
from gradslide._support.errors import unknown_name
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.graphs.mixing import MIXINGS, Mixing
from gradslide.network.base import Network
from gradslide.network.coupling import COUPLINGS, Coupling
from gradslide.oracles import Oracle
from gradslide.problems.problem import Objective
from gradslide.results.pace import Pace
from gradslide.theory.proof import Evidence

T = TypeVar("T")


@dataclass(frozen=True)
class Context:
    """All that a method may use. The oracle and the network count what is asked of them.

    x0: where to start, one row per agent here. s0: the dual to start from (`coupling.Dual.s`), or None for its own
    start.
    """

    problem: Objective
    oracle: Oracle
    network: Network
    coupling: Coupling
    x0: Array
    s0: Array | None = None
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def domain(self) -> Domain:
        return self.problem.domain

    @property
    def pace(self) -> Pace:
        """How fast gradients and exchanges were so far. Measured, it is never the same twice, and it is not saved: a
        method keeps in its state what it took from it."""
        return self.oracle.pace

    def mixing(self, name: str) -> Mixing:
        """The mixing matrix of that name; "laplacian" takes a bound on lmax, which agents may have to find."""

        def make() -> Mixing:
            given = {"norm": self.network.norm_bound()} if name == "laplacian" else {}
            return MIXINGS[name](self.network.graph, **given)

        return self.once(f"mixing {name}", make)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once in a run: for what follows from the problem and the network, and may cost."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast(T, self._kept[name])

    def mix(self, v: Array, mixing: Mixing) -> Array:
        """W v: one exchange."""
        return self.network.combine(v, mixing.matrix)


@runtime_checkable
class Method(Protocol):
    """A frozen dataclass of parameters. It never stops, prints, times or measures: `solve` does.

    `step` returns a new state and may consume the arrays of the old one, but not before it has its samples: where a
    stream ends, the old state is what was reached. A method may also have
    - `dual(state)`: multipliers, or those that go with each output by name;
    - `parameters(state)`: numbers that it was given or found;
    - `iterations(state)`: outer iterations after which its schedule ends;
    - `evidence(state)`: from what a lower bound on the optimum follows;
    - `invariant(state)`: rows, in units of the gradient, that add up to zero over all agents as long as links work
      both ways;
    - `finish(context, state, apart)`: the state whose output is returned, called when the run ends in order, with the
      factor by which the agents should come closer at least; it asks the network only, and leaves `state` as it was,
      for it may be tried before;
    - class variables `tuned`: the parameter that users would tune; `stops_itself`: a run without a stop ends where the
      answer is good enough; `keeps`: names of outputs whose arrays later steps leave as they are;
    - a field `coupling` that names the coupling it wants in its context, and fields `oracle` (one of `gs.oracles`) and
      `seed` that say how its gradients are sampled.
    """

    def init(self, context: Context) -> Any: ...

    def step(self, context: Context, state: Any) -> Any: ...

    def output(self, state: Any) -> Array | Mapping[str, Array]:
        """The answer so far; or several by name, the recommended one first."""
        ...


def require_coupling(name: str) -> None:
    """Refuse a coupling that no network has."""
    if name not in COUPLINGS:
        raise unknown_name("coupling", name, COUPLINGS)


def as_floats(method: Any, *names: str) -> None:
    """Given parameters as Python floats: a NumPy scalar would turn float32 arrays into float64 ones."""
    for name in names:
        if (value := getattr(method, name)) is not None:
            object.__setattr__(method, name, float(value))


class Copied:
    """A state that can be kept while the run goes on."""

    def copy(self) -> Self:
        return copy.deepcopy(self)


class Proving:
    """A method whose state keeps what a lower bound follows from, of the last iteration and on average."""

    def evidence(self, state: Any) -> tuple[Evidence, Evidence]:
        """Of the averages, and of the last outer iteration."""
        return (
            Evidence(state.y_bar, state.conjugate_bar, state.dual_bar),
            Evidence(state.y, state.conjugate, state.dual, averaged=0),
        )


class Look(NamedTuple):
    """A gradient y, and ft_i*(y_i) = <x_i, y_i> - ft_i(x_i), (m,); NaN where nobody asked for it."""

    y: Array
    conjugate: Array


def look(context: Context, x: Array, y: Array | None = None) -> Look:
    """The gradient at x, and the conjugate where a lower bound is wanted; y: the gradient, if it is known already."""
    xp = array_namespace(x)
    if not context.problem.has_lower_bound:
        return unvalued(context.oracle.gradient(x) if y is None else y)
    if y is None:
        value, y = context.oracle.value_and_gradient(x)
    else:
        value = context.oracle.value(x)
    return Look(y, xp.vecdot(x, y) - value)


def unvalued(y: Array) -> Look:
    """A gradient, or an estimate of it, that nothing more is asked of."""
    return Look(y, array_namespace(y).full_like(y[:, 0], math.nan))


def average(bar: Array, new: Array, weight: float, out: Array | None = None) -> Array:
    """The average once a new value has been given its weight in it; in `out`, an array of NumPy's, where there is
    one."""
    return row_wise(lambda bar, new: bar + weight * (new - bar), bar, new, out=out)
