"""The interface between `solve` and a method: `Method` and `Context`."""

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeAlias, TypeVar, cast

from array_api_compat import array_namespace

from gradslide._support.arrays import BLOCK, doubles, is_numpy, lengths, row_wise
from gradslide._support.deprecation import rename_hooks
from gradslide._support.errors import InputError, kind_of, unknown_name
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.graphs.mixing import MIXINGS, Mixing
from gradslide.network.coupled_rows import SharedRows
from gradslide.network.coupling import COUPLINGS, Coupling, Operator
from gradslide.network.protocol import Network
from gradslide.oracles import Oracle, Sampling
from gradslide.problems.problem import Objective
from gradslide.results.certificate import SaddleKKT
from gradslide.results.costs import Pace
from gradslide.results.status import Status
from gradslide.theory.certificates import DualEvidence, Evaluation

_Made = TypeVar("_Made")
# The state of a method.
StateT = TypeVar("StateT")

# The new names of members of methods, by their old ones.
_RENAMED = {"evidence": "dual_evidence", "keeps": "lasting_outputs"}


@dataclass(frozen=True)
class Context:
    """What a method may use; the oracle and the network count every request.

    Attributes
    ----------
    problem : Objective
        The losses, domain and mu of the agents that live here.
    oracle : Oracle
        Gradients and values.
    network : Network
        Exchanges with neighbours, and reductions over all agents.
    coupling : Coupling
        The linear map A whose kernel is consensus.
    x0 : Array
        The starting point, one row for each agent here.
    s0 : Array or None
        The dual starting point (`coupling.Dual.s`); None for the default.
    prepared : object
        What `Method.prepare` returned.
    """

    problem: Objective
    oracle: Oracle
    network: Network
    coupling: Coupling
    x0: Array
    s0: Array | None = None
    prepared: object = None
    _deprecated_cache: dict[str, object] = field(default_factory=dict, repr=False)

    @property
    def domain(self) -> Domain:
        """The domain of the agents that live here.

        Returns
        -------
        Domain
            X, nu and r; bound to the problem.
        """
        return self.problem.domain

    @property
    def has_rows(self) -> bool:
        """Whether linear constraints or a dual term take the place of consensus.

        Returns
        -------
        bool
            So it is for saddle points, too, and for coupled agents.
        """
        return isinstance(self.coupling, Operator | SharedRows)

    @property
    def pace(self) -> Pace:
        """How fast gradients and exchanges were so far.

        Measured times differ between runs and are not saved: a method stores in its state what it
        derives from them.

        Returns
        -------
        Pace
            Numbers of gradients and exchanges, and the seconds that they took.
        """
        return self.oracle.pace

    def mixing(self, name: str) -> Mixing:
        """Return the mixing matrix of that name; deprecated: make it once in `Method.prepare`.

        Parameters
        ----------
        name : {"metropolis", "laplacian", "best_constant"}
            Which mixing matrix.

        Returns
        -------
        Mixing
            The mixing matrix of the graph.
        """
        warnings.warn("make the mixing matrix in prepare(context)", DeprecationWarning, stacklevel=2)
        key = f"mixing {name}"
        if key not in self._deprecated_cache:
            norm = {"norm": self.network.norm_bound()} if name == "laplacian" else {}
            self._deprecated_cache[key] = MIXINGS[name](self.network.graph, **norm)
        return cast(Mixing, self._deprecated_cache[key])

    def once(self, name: str, make: Callable[[], _Made]) -> _Made:
        """Return what `make` returns, made once in a run; deprecated: make it in `Method.prepare`.

        Parameters
        ----------
        name : str
            Key under which the result is cached.
        make : callable
            Takes no arguments; called the first time only.

        Returns
        -------
        object
            The result of `make`.
        """
        warnings.warn("return it from prepare(context) instead of context.once", DeprecationWarning, stacklevel=2)
        if name not in self._deprecated_cache:
            self._deprecated_cache[name] = make()
        return cast(_Made, self._deprecated_cache[name])

    def mix(self, v: Array, mixing: Mixing) -> Array:
        """Return W v: one exchange.

        Parameters
        ----------
        v : ndarray, shape (agents here, d)
            One row per agent.
        mixing : Mixing
            The mixing matrix W, one of `gradslide.mixing`.

        Returns
        -------
        ndarray, shape (agents here, d)
            Row i is the sum over j of W_ij v_j.
        """
        return self.network.combine(v, mixing.matrix)


class Method(CheckedArguments, ABC, Generic[StateT]):
    """Base class of all methods: a frozen dataclass of parameters with `init`, `step` and `output`.

    A method describes one outer iteration. It never stops, prints, times or measures: `solve` does.
    All other members are optional abilities with a default. For type checkers a method names the type
    of its states: ``class Mine(Method[MyState])``.

    Attributes
    ----------
    coupling : str
        The coupling that the method wants in its context, ``"incidence"`` or ``"laplacian"``.
    oracle : Sampling or None
        How gradients are sampled, one of `gradslide.oracles`; None for exact gradients.
    seed : int
        The seed of the agents' random streams, where gradients are sampled.
    tuned : str
        The parameter that users would tune; empty if there is none.
    stops_itself : bool
        Whether a run without a `Stop` ends where the answer is good enough.
    fixes_iterations : bool
        Whether the schedule fixes the number of outer iterations ahead, see `iterations`.
    proves : bool
        Whether `dual_evidence` or `known` yields lower bounds on the optimum.
    finishes : bool
        Whether the method has last exchanges, see `finish`.
    has_multipliers : bool
        Whether `dual` returns the multipliers z of saddle point problems.
    knows_residuals : bool
        Whether `residuals` tells them, though not in every outer iteration.
    default_accuracy : float
        The target on the residuals of linear constraints and saddle points, if it stops itself.
    serves_rows : bool
        Whether agents may be coupled by linear constraints instead of consensus.
    has_common_state : bool
        Whether the state is the same for all agents. What only one agent has is then in the process
        of the root of the tree, which is the first one.
    lasting_outputs : tuple of str
        Names of outputs whose arrays later steps leave unchanged.
    """

    coupling: str = "incidence"
    oracle: Sampling | None = None
    seed: int = 0
    tuned: ClassVar[str] = ""
    stops_itself: ClassVar[bool] = False
    fixes_iterations: ClassVar[bool] = False
    proves: ClassVar[bool] = False
    finishes: ClassVar[bool] = False
    has_multipliers: ClassVar[bool] = False
    knows_residuals: ClassVar[bool] = False
    default_accuracy: ClassVar[float] = 1e-4
    serves_rows: ClassVar[bool] = False
    has_common_state: ClassVar[bool] = False
    lasting_outputs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        rename_hooks(cls, _RENAMED)
        cls.fixes_iterations = cls.iterations is not Method.iterations
        cls.proves = cls.proves or cls.dual_evidence is not Method.dual_evidence or cls.known is not Method.known
        cls.finishes = cls.finish is not Method.finish
        cls.has_multipliers = cls.has_multipliers or cls.dual is not Method.dual
        cls.knows_residuals = cls.knows_residuals or cls.residuals is not Method.residuals

    @property
    def name(self) -> str:
        """The name in tables and messages.

        Returns
        -------
        str
            The name of the class by default.
        """
        return type(self).__name__

    def is_unit_free(self, domain: Domain) -> bool:
        """Return whether the units of the coordinates change nothing: columns of any scale are harmless.

        Parameters
        ----------
        domain : Domain
            The set and penalty of the problem.

        Returns
        -------
        bool
            False by default.
        """
        return False

    def choose(self, context: Context) -> "Choice":
        """Return the method that does the work: this one, unless it chooses among others.

        Called once before `prepare`, also when a run is resumed.

        Parameters
        ----------
        context : Context
            The run; its `prepared` is still None.

        Returns
        -------
        Choice
            The method, and why.
        """
        return Choice(self)

    def reconsider(self, context: Context, choice: "Choice", state: Any) -> tuple["Choice", Any]:
        """Return another choice after an outer iteration, and the state in its form; the same by default.

        Parameters
        ----------
        context : Context
            The run.
        choice : Choice
            What `choose` or the last `reconsider` returned.
        state : object
            The state of the chosen method.

        Returns
        -------
        choice : Choice
            It must be the same for all agents.
        state : object
            A state of the chosen method.
        """
        return choice, state

    def resumed(self, choice: "Choice", told: Mapping[str, float | str]) -> "Choice":
        """Return the choice of a run that is resumed.

        Parameters
        ----------
        choice : Choice
            What `choose` returned.
        told : mapping of str to float or str
            `Choice.told` when the run was saved.

        Returns
        -------
        Choice
            The same by default.
        """
        return choice

    def prepare(self, context: Context) -> object:
        """Return an object that a run computes once; it is `context.prepared` from then on.

        Called once before `init`, also when a run is resumed.

        Parameters
        ----------
        context : Context
            The run; its `prepared` is still None.

        Returns
        -------
        object
            What all steps need and none changes, such as a mixing matrix; None by default.
        """
        return None

    @abstractmethod
    def init(self, context: Context) -> StateT:
        """Return the state before the first outer iteration.

        Parameters
        ----------
        context : Context
            Problem, oracle, network, coupling and starting point.

        Returns
        -------
        object
            The state, a frozen dataclass.
        """

    @abstractmethod
    def step(self, context: Context, state: StateT) -> StateT:
        """Return the state after one more outer iteration.

        The arrays of the old state may be overwritten, but not before samples were drawn: if a
        stream of samples ends, the old state is the result.

        Parameters
        ----------
        context : Context
            As for `init`.
        state : object
            What `init` or the last `step` returned.

        Returns
        -------
        object
            The new state.
        """

    def restored(self, state: StateT, fresh: StateT) -> StateT:
        """Return the state that a checkpoint gave back, in the form that `step` takes.

        Named tuples come back as such where a fresh state has them, too; others as plain tuples.

        Parameters
        ----------
        state : object
            What the checkpoint holds.
        fresh : object
            What `init` returned in this run.

        Returns
        -------
        object
            The state; unchanged by default.
        """
        return state

    @abstractmethod
    def output(self, state: StateT) -> Array | Mapping[str, Array]:
        """Return the current answer, or several by name, the recommended one first.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        ndarray, shape (agents here, d), or dict of ndarray
            One row per agent.
        """

    def dual(self, state: StateT) -> Array | Mapping[str, Array] | None:
        """Return the multipliers, or those that belong to each output by name.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        ndarray or dict of ndarray or None
            In the form of `coupling.Dual.s`; None if the method has none.
        """
        return None

    def parameters(self, state: StateT) -> dict[str, float]:
        """Return the parameters that the method was given or computed.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        dict of float
            Values by name, which become `Solution.parameters`.
        """
        return {}

    def iterations(self, state: StateT) -> int | None:
        """Return the number of outer iterations after which the schedule ends, if it does.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        int or None
            None if the method may run for any number of iterations.
        """
        return None

    def dual_evidence(self, state: StateT) -> Sequence[DualEvidence]:
        """Return dual points from which lower bounds on the optimum follow.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        sequence of DualEvidence
            The best of their bounds is used; empty by default.
        """
        return ()

    def hessian(self, state: StateT) -> Array | None:
        """Return the Hessian of the sum of the ft_i at the answer, if it was computed.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        ndarray, shape (d, d), or None
            None by default, and where another process has it.
        """
        return None

    def known(self, state: StateT) -> Evaluation | None:
        """Return bounds and residuals at the answer that all agents know already.

        Targets are then checked in every outer iteration, at no cost.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        Evaluation or None
            None if agents must agree on them, as by default.
        """
        return None

    def residuals(self, state: StateT) -> SaddleKKT | None:
        """Return the residuals of a saddle point problem at the answer, if the method knows them.

        Targets on them are then checked in every outer iteration, at no cost.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        SaddleKKT or None
            None if they are to be computed now and then, as by default.
        """
        return None

    def is_stalled(self, state: StateT) -> bool:
        """Return whether further steps would only change rounding errors; this ends the run.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        bool
            False by default.
        """
        return False

    def no_solution(self, state: StateT) -> "NoSolution | None":
        """Return the proof that a saddle point problem has no solution, if the method found one.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        NoSolution or None
            None by default.
        """
        return None

    def contradiction(self, state: StateT) -> str:
        """Return why the loss cannot be what it must be, if that was seen; this ends the run.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        str
            Empty by default. It must be the same for all agents.
        """
        return ""

    def snapshot_for_check(self, context: Context, state: StateT) -> StateT | None:
        """Return a snapshot of the state, kept until the sums that check it have completed.

        These are piggybacked on the exchanges of the next steps, and cost no control rounds. If they
        show that all targets held, the run ends with the snapshot: the steps since are lost.

        Parameters
        ----------
        context : Context
            As for `step`.
        state : object
            The current state.

        Returns
        -------
        object or None
            A state that later steps leave unchanged, with the same outputs, multipliers, evidence
            and parameters; `finish` takes it, `step` need not. None, as by default, if the agents
            check at once, in control rounds.
        """
        return None

    def evidence(self, state: StateT) -> Sequence[DualEvidence]:
        """Return `dual_evidence(state)`; deprecated.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        sequence of DualEvidence
            As `dual_evidence` returns them.
        """
        warnings.warn("Method.evidence is now Method.dual_evidence", DeprecationWarning, stacklevel=2)
        return self.dual_evidence(state)

    def invariant(self, state: StateT) -> Array | None:
        """Return rows that sum to zero over all agents unless messages were lost.

        They are in units of the gradient.

        Parameters
        ----------
        state : object
            The current state.

        Returns
        -------
        ndarray, shape (agents here, d), or None
            None if the method has no such invariant.
        """
        return None

    def finish(self, context: Context, state: StateT, factor: float) -> StateT:
        """Return the state after last exchanges, which reduce the disagreement of the answer.

        Called once when a run ends normally. It may be tried before, so it must leave `state`
        unchanged, and it may only use the network.

        Parameters
        ----------
        context : Context
            As for `step`.
        state : object
            The last state.
        factor : float
            The factor by which the disagreement should fall at least.

        Returns
        -------
        object
            The new state.
        """
        return state


# A method, whatever its state is: only the method itself looks inside.
AnyMethod: TypeAlias = Method[Any]


class Choice(NamedTuple):
    """The method that does the work of a run.

    Attributes
    ----------
    method : Method
        It steps.
    told : mapping of str to float or str
        What was chosen and why, for `Solution.parameters`.
    prepared : object
        What replaces `method.prepare(context)`; None if that is still to be called.
    """

    method: AnyMethod
    told: Mapping[str, float | str] = MappingProxyType({})
    prepared: object = None


class NoSolution(NamedTuple):
    """Why a saddle point problem has no solution.

    Attributes
    ----------
    status : Status
        INFEASIBLE or UNBOUNDED.
    ray : ndarray
        The proof: multipliers z, shape (k,), of a combination of the constraints that no x in X
        fulfils; or a direction of x, shape (m, d), along which the objective falls for ever.
    """

    status: Status
    ray: Array


_ABILITIES = (
    *("coupling", "oracle", "seed", "tuned", "stops_itself", "has_common_state", "lasting_outputs"),
    *("is_unit_free", "prepare", "restored", "dual", "parameters", "iterations"),
    *("dual_evidence", "hessian", "known", "residuals", "is_stalled", "no_solution", "contradiction"),
    *("snapshot_for_check", "invariant", "finish"),
)


class _Adapted(Method[object]):
    """A plain object with `init`, `step` and `output`, and any of the other members of `Method`."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        found = {name: getattr(plain, name) for name in _ABILITIES if hasattr(plain, name)}
        for old, new in _RENAMED.items():
            if hasattr(plain, old) and new not in found:
                warnings.warn(f"{old} of a method is now {new}", DeprecationWarning, stacklevel=5)
                found[new] = getattr(plain, old)
        found |= {
            "proves": not found.keys().isdisjoint({"dual_evidence", "known"}),
            "fixes_iterations": "iterations" in found,
        }
        found |= {
            "finishes": "finish" in found,
            "has_multipliers": "dual" in found,
            "knows_residuals": "residuals" in found,
        }
        for name, ability in found.items():
            setattr(self, name, ability)

    @property
    def name(self) -> str:
        return type(self.plain).__name__

    def __repr__(self) -> str:
        return repr(self.plain)

    def init(self, context: Context) -> object:
        return self.plain.init(context)

    def step(self, context: Context, state: object) -> object:
        return self.plain.step(context, state)

    def output(self, state: object) -> Array | Mapping[str, Array]:
        return cast(Array, self.plain.output(state))


def adapted(method: object) -> AnyMethod:
    """Return the method, or a plain object with `init`, `step` and `output` as one.

    Raises
    ------
    InputError
        If it is neither.
    """
    if isinstance(method, Method):
        return method
    if isinstance(method, type) or not all(hasattr(method, name) for name in ("init", "step", "output")):
        rule = "method must have init, step and output"
        raise InputError(rule, kind_of(method), "for example gs.NIDS() (with brackets)")
    return _Adapted(method)


def require_coupling(name: str) -> None:
    """Raise an error unless a coupling has that name."""
    if name not in COUPLINGS:
        raise unknown_name("coupling", name, COUPLINGS)


def as_floats(method: object, *names: str) -> None:
    """Convert parameters to Python floats: NumPy scalars would turn float32 arrays into float64."""
    for name in names:
        if (value := getattr(method, name)) is not None:
            object.__setattr__(method, name, float(value))


class Copied:
    """A state with `copy`, which a later step leaves unchanged."""

    def copy(self) -> Self:
        """Return a deep copy."""
        return copy.deepcopy(self)


class GradientAndConjugate(NamedTuple):
    """A gradient y, and ft_i*(y_i) = <x_i, y_i> - ft_i(x_i), shape (agents,), or NaN."""

    y: Array
    conjugate: Array


def gradient_and_conjugate(context: Context, x: Array, y: Array | None = None) -> GradientAndConjugate:
    """Return the gradient at x, and its conjugate if a lower bound can be computed.

    Parameters
    ----------
    context : Context
        The run.
    x : Array
        Where the gradient is taken.
    y : Array, optional
        The gradient at x, if it is known already.

    Returns
    -------
    GradientAndConjugate
        y and ft_i*(y_i).
    """
    if not context.problem.has_lower_bound:
        return without_conjugate(context.oracle.gradient(x) if y is None else y)
    context.oracle.extend_reach(lengths(x))
    if y is None:
        value, y = context.oracle.value_and_gradient(x)
    else:
        value = context.oracle.value(x)
    return GradientAndConjugate(y, array_namespace(x).vecdot(doubles(x), doubles(y)) - value)


def without_conjugate(y: Array) -> GradientAndConjugate:
    """Return a gradient, or an estimate of one, with unknown conjugates."""
    return GradientAndConjugate(y, array_namespace(y).full_like(y[:, 0], math.nan))


def average(bar: Array, new: Array, weight: float, out: Array | None = None) -> Array:
    """Return bar + weight (new - bar), the average with a new value; in `out`, if given."""
    if is_numpy(bar) and (out is not None or bar.size > BLOCK):
        return row_wise(lambda bar, new: bar + weight * (new - bar), bar, new, out=out)
    return bar + weight * (new - bar)
