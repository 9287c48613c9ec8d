"""Auto mode, after Lan, Ouyang, Zhou, "Graph topology invariant gradient and sampling complexity for decentralized and
stochastic optimization": primal-dual sliding with nothing to tune, an accelerated outer loop that finds L and restarts,
around an inner loop chosen by the problem."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import dot
from gradslide._support.errors import require, require_number, unknown_name
from gradslide._support.types import Array
from gradslide.graphs.chebyshev import chebyshev
from gradslide.methods import defaults
from gradslide.methods.base import Context, Look, Method, as_floats
from gradslide.methods.gossip.agreement import AGREEMENTS, require_agreement
from gradslide.methods.gossip.attempt import attempt, smooth_value
from gradslide.methods.gossip.curvature import Rules
from gradslide.methods.gossip.epochs import restarted
from gradslide.methods.gossip.inner import Inner, Own, Shared, Slide
from gradslide.methods.gossip.opening import opened
from gradslide.methods.gossip.plan import Plan
from gradslide.methods.gossip.state import Memory, State
from gradslide.methods.pds import InnerLoop, fastest_inner_loop
from gradslide.methods.steps import check_positive, is_common, is_free
from gradslide.theory.certificates import DualEvidence

# The inner loops, and the parameters that each has no use for.
_UNUSED = {"shared": ("R",), "own": (), "sliding": ("K", "spectrum")}
# Where gradients are dear, L begins below what the probe says: only the first test pays for it, in rounds.
_DEAR, _BOLD = 5.0, 0.5
# Sums at once that take no more than this share of what an iteration costs are worth it.
_CHEAP = 1 / 3
# Prox sliding with restarts begins with a larger R than theory's.
_PRACTICE = 2.0
# Outer iterations after which balance="measure" has seen enough.
_MEASURED_AFTER = 3


class Prepared(NamedTuple):
    """The inner loop, the plan for the network, gradient and conjugate at x_0, and the first L."""

    inner: Inner
    loop: InnerLoop | None
    plan: Plan
    look: Look
    L: float


@dataclass(frozen=True, kw_only=True)
class AutoPDS(Method):
    """For min sum_i f_i(x), x in X, over a network, with exact gradients: nothing has to be given.

    One accelerated outer loop. Each outer iteration takes one gradient per agent, and values at two points where the
    loss has them; L is the curvature that these show, and an iteration that needs a larger one is done again where sums
    are known at once. The average restarts when the Lagrangian stops falling (or where residuals have fallen enough).
    What happens between neighbours depends on the problem: "shared", K Chebyshev exchanges, where all agents have one
    Euclidean X and penalty (R^d too); "own", the same between two prox steps, where they differ; "sliding", the inner
    iterations of PDS with R balanced at restarts, for other nu. Assumes ft_i convex and smooth, where "shared" is also
    asked for points outside X. What is guaranteed under each of these is in docs/auto.md.

    balance: how many rounds a gradient is worth; more means fewer gradients and more rounds. "measure": as measured in
    the first outer iterations, agreed on once. agreement: "late" (sums ride on the vectors along a spanning tree and
    are acted on when they arrive; where gradients are so dear that waiting costs less, they are waited for), "exact"
    (sums at once, in control rounds), "none" (no sums: flooded maxima, and restarts on a schedule). inner: one of those
    above. L: kept instead of found; first_L: only the first guess. K: exchanges per gradient, of "shared" and
    "own"; R: the weight of consensus, of "own" and "sliding"; both are kept. restarts: whether there are any. spectrum:
    the smallest eigenvalue of the Laplacian but 0, and the largest, if they are known; else the agents learn the graph
    first, in as many control rounds as its diameter and radius.
    """

    stops_itself: ClassVar[bool] = True
    proves: ClassVar[bool] = True
    finishes: ClassVar[bool] = True

    balance: float | str = 1.0
    agreement: str = "late"
    inner: str | None = None
    L: float | None = None
    first_L: float | None = None
    K: int | None = None
    R: float | None = None
    restarts: bool = True
    spectrum: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.balance != "measure":
            require_number("balance", self.balance, 'or give "measure"', above=0)
            as_floats(self, "balance")
        require_agreement(self.agreement)
        if self.inner is not None and self.inner not in _UNUSED:
            raise unknown_name("inner", self.inner, _UNUSED)
        check_positive(self, "L", "first_L", "R")
        as_floats(self, "L", "first_L", "R")
        rule = "give L (which is kept) or first_L (which is only the first guess)"
        require(self.L is None or self.first_L is None, rule, "both", "leave one out")
        rule, remedy = "restarts must be True or False", "False switches them off"
        require(isinstance(self.restarts, bool | np.bool_), rule, repr(self.restarts), remedy)
        object.__setattr__(self, "restarts", bool(self.restarts))
        if self.K is not None:
            require_number("K", self.K, "leave it out for the default", least=1, whole=True)
            object.__setattr__(self, "K", int(self.K))
        if self.spectrum is not None:
            rule, remedy = "spectrum must be two eigenvalues of the Laplacian", "its smallest but 0, and its largest"
            require(isinstance(self.spectrum, tuple | list) and len(self.spectrum) == 2, rule, self.spectrum, remedy)
            least, most = self.spectrum
            require_number("spectrum[0]", least, "the smallest eigenvalue of the Laplacian but 0", above=0)
            require_number("spectrum[1]", most, "the largest eigenvalue of the Laplacian", least=least)
            object.__setattr__(self, "spectrum", (float(least), float(most)))

    def prepare(self, context: Context) -> Prepared:
        inner = self._chosen(context)
        needs_L, by_maxima = self.L is None and self.first_L is None, self.agreement == "none"
        loop = fastest_inner_loop(context) if isinstance(inner, Slide) else None
        return Prepared(inner, loop, *opened(context, inner, self.spectrum, needs_L=needs_L, by_maxima=by_maxima))

    def init(self, context: Context) -> State:
        inner, _, plan, (y, conjugate), L = context.prepared
        x, L = context.x0, self.L or self.first_L or L
        balance = 1.0 if self.balance == "measure" else float(self.balance)
        memory = Memory(
            K=inner.exchanges(plan, balance) if self.K is None else self.K,
            balance=balance,
            is_measured=self.balance != "measure",
            follows_lagrangian=inner.follows_lagrangian,
        )
        if isinstance(inner, Slide):
            R = self.R
            if R is None:
                R = _PRACTICE * math.sqrt(max(1.0, balance)) * defaults.balance(context, y, L=L, A_norm=inner.A_norm).R
            memory = replace(memory, R=R, finds_R=self.R is None)
        elif isinstance(inner, Own):
            memory = replace(memory, R=self.R or 1.0, finds_R=self.R is None)
        if self._rules(balance).is_dear and self._agreement(context, memory) == "exact":
            L *= _BOLD
        dual = context.coupling.start(x, context.s0)
        value = dot(x, y) - conjugate
        has_value = context.problem.loss.has_value
        return State(
            k=0,
            epoch=0,
            course=0,
            total=0,
            L=L,
            P=L,
            S=0.0,
            slack=0.0,
            x=x,
            x_bar=x,
            last=x,
            x_under=x,
            y=y,
            y_is_known=True,
            value_bar=smooth_value(context, inner, x, value) if has_value else array_namespace(x).zeros_like(value),
            dual=dual,
            dual_bar=dual,
            y_bar=y,
            conjugate=conjugate,
            conjugate_bar=conjugate,
            gap_bar=0 * x,
            x_before=x,
            memory=memory,
        )

    def step(self, context: Context, state: State) -> State:
        plan, inner = context.prepared.plan, context.prepared.inner
        rules = self._rules(state.memory.balance)
        agreement = AGREEMENTS[self._agreement(context, state.memory)](rules)
        s, attempts = state, 0
        while s.total == state.total:
            s = agreement.judge(context, plan, inner, s, attempt(context, plan, inner, s), attempts)
            attempts += 1
        if self.restarts and inner.is_overlong(s):
            s = restarted(s, inner, rules, s.memory)
        return self._measured(context, plan, inner, s)

    def output(self, state: State) -> dict[str, Array]:
        """The average; or first the better of it and the last point, where residuals tell which that is."""
        outputs = {"average": state.x_bar, "last": state.last}
        if state.memory.follows_lagrangian:
            return outputs
        return {"best": state.last if state.memory.last_is_better else state.x_bar, **outputs}

    def dual(self, state: State) -> dict[str, Array]:
        """The multipliers that go with each output, in node form."""
        s, s_bar = state.dual.s, state.dual_bar.s
        if state.memory.follows_lagrangian:
            return {"average": s, "last": s}
        return {"best": s if state.memory.last_is_better else s_bar, "average": s_bar, "last": s}

    def dual_evidence(self, state: State) -> tuple[DualEvidence, DualEvidence]:
        """Of the averages of this epoch, and of the last outer iteration."""
        return (
            DualEvidence(state.y_bar, state.conjugate_bar, state.dual_bar, averaged=max(1, state.k)),
            DualEvidence(state.y, state.conjugate, state.dual, averaged=0),
        )

    def invariant(self, state: State) -> Array:
        return state.dual.w

    def finish(self, context: Context, state: State, factor: float) -> State:
        """Mix the answers a few rounds more, or as many as are asked for, where all agents have the same X."""
        plan: Plan = context.prepared.plan
        if not state.memory.follows_lagrangian or plan.most == 0:
            return state

        def multiply(v: Array) -> Array:
            return context.network.combine(v, plan.matrix)

        rest = chebyshev(multiply, state.x_bar, plan.final_exchanges(factor), least=plan.least, most=plan.most)
        return replace(state, x_bar=context.domain.project(state.x_bar - rest))

    def parameters(self, state: State) -> dict[str, float]:
        m = state.memory
        found = {"L": state.L, "K": m.K, "balance": m.balance, "restarts": state.epoch}
        return found | ({"R": m.R} if m.R > 0 else {})

    def _chosen(self, context: Context) -> Inner:
        """The inner loop that was asked for, else the best for this domain."""
        domain = context.domain
        has_common = domain.euclidean and is_common(context)
        name = self.inner or (("shared" if has_common else "own") if domain.euclidean else "sliding")
        got, remedy = repr(context.problem), "leave inner out"
        require(domain.euclidean or name == "sliding", f'inner="{name}" needs a Euclidean domain', got, remedy)
        require(
            has_common or name != "shared", 'inner="shared" needs the same X and penalty for all agents', got, remedy
        )
        for parameter in _UNUSED[name]:
            value = getattr(self, parameter)
            require(value is None, f'inner="{name}" has no {parameter}', value, f"leave {parameter} out")
        if name == "sliding":
            return Slide(context.coupling.norm())
        return Own() if name == "own" else Shared(is_free(context))

    def _rules(self, balance: float) -> Rules:
        return Rules(
            finds_L=self.L is None,
            finds_K=self.K is None,
            restarts=self.restarts,
            is_guess=self.first_L is not None,
            is_dear=balance >= _DEAR and self.L is None and self.first_L is None,
        )

    def _agreement(self, context: Context, memory: Memory) -> str:
        """Late sums cost gradients: where these are dear, sums at once cost less."""
        rounds = context.network.costs.control_rounds("sum")
        is_cheap = rounds <= _CHEAP * (memory.balance + memory.K)
        return "exact" if self.agreement == "late" and is_cheap else self.agreement

    def _measured(self, context: Context, plan: Plan, inner: Inner, s: State) -> State:
        """balance="measure": what the clock says so far, on average over the agents, once."""
        m = s.memory
        if m.is_measured or s.total < _MEASURED_AFTER:
            return s
        ratios = np.full((len(context.network.agents), 1), context.pace.ratio())
        balance = float(context.network.agree(ratios, "sum")[0]) / context.network.m
        K = m.K if self.K is not None else max(m.K, inner.exchanges(plan, balance))
        return replace(s, memory=replace(m, balance=balance, is_measured=True, K=K))
