"""Auto: chooses between Newton, LBFGS and gossip by predicted cost, and again when a prediction fails."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NoReturn, cast

import array_api_compat as compat
import numpy as np

from gradslide._support.arrays import is_numpy
from gradslide._support.errors import InputError, require_number
from gradslide._support.types import Array
from gradslide.graphs.graph import Graph
from gradslide.methods.base import AnyMethod, Choice, Context, Method
from gradslide.methods.exact_sums import CommonProblem, ExactSums, State, common_problem, survey_agents
from gradslide.methods.gossip.auto_pds import AutoPDS
from gradslide.methods.gossip.inner import Shared
from gradslide.methods.lbfgs import LBFGS
from gradslide.methods.newton import Newton
from gradslide.methods.sqp import MOST_COLUMNS, lacks_of_coupled
from gradslide.methods.steps import is_common
from gradslide.network.coupled_rows import SharedRows
from gradslide.network.coupling import Operator
from gradslide.problems.polyhedral import polyhedral
from gradslide.problems.saddle import Saddle

# Evaluations that each method is expected to take: about the geometric means to a relative error of 1e-6 on data of
# scikit-learn and random sparse data, and for gossip the gradients on the networks of the paper.
_NEWTON, _LBFGS, _GOSSIP = 7, 27, 150
# Value, gradient and Hessian take as long as d/20 gradients, and no less than one.
_COLUMNS = 20.0
# A method is left for one that is predicted to cost less by this factor than what the first one still needs.
_CLEARLY = 2.0
# The model of Newton's method is poor if this share of its steps was rejected.
_OFTEN = 0.25
_NAMES = ("Newton", "LBFGS", "AutoPDS")


@dataclass(frozen=True, kw_only=True)
class Auto(Method[object]):
    """The default method: Newton, LBFGS or AutoPDS, whichever is predicted to cost least.

    Nothing has to be tuned. `Solution.parameters` says which method was chosen, and why.

    Parameters
    ----------
    balance : float or "measure"
        How many rounds a gradient is worth. "measure" starts with 1 and measures it meanwhile.

    Notes
    -----
    `Newton` and `LBFGS` use exact sums. They need one Euclidean X and penalty for all agents, losses
    with values (and Hessians), and a network on which no message is lost or changed. Elsewhere, and
    for arrays of CuPy or JAX, `AutoPDS` is chosen.

    Where all three can solve the problem, their costs in rounds are predicted as

        Newton    7 (balance max(1, d/20) + 2 rad)      up to d = 1,000
        LBFGS     27 (balance + 2 rad)
        AutoPDS   150 (balance + K)

    with rad the radius of the graph and K the exchanges per gradient. It takes the survey that exact
    sums need anyway. A run goes from Newton to LBFGS once if Hessians, measured, turn out so slow that
    LBFGS costs less than half as much, or if a quarter of the steps were rejected, Newton has cost
    more than LBFGS was predicted to, and `LBFGS` does not depend on units either: so it happens at
    losses with kinks on a small scale. It goes from LBFGS to Newton once if LBFGS takes more than
    twice the evaluations predicted, and has cost more than twice what Newton was predicted to.

    For linear constraints, saddle points and coupled agents the choice is `Newton` where sets and terms
    are polyhedral and losses quadratic or with Hessians up to d = 1,000, `LBFGS` where they have none,
    and `AutoPDS` elsewhere: with operators, other sets and terms, on devices, for losses without values.

    Only Hessians of losses that users wrote are measured: they are computed by themselves. So only
    such runs, and those with ``balance="measure"``, may differ from machine to machine.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0], agents=4)
    >>> solution = gs.solve(gs.Problem(loss, domain=gs.domains.Box(0.0, 5.0)), gs.Graph.ring(4), gs.Auto())
    >>> solution.status.name, solution.parameters["method"], round(float(solution.mean[0]), 6)
    ('CONVERGED', 'Newton', 2.5)
    """

    stops_itself: ClassVar[bool] = True
    proves: ClassVar[bool] = True
    serves_rows: ClassVar[bool] = True

    balance: float | str = 1.0

    def __post_init__(self) -> None:
        if self.balance != "measure":
            require_number("balance", self.balance, 'or give "measure"', above=0)
            object.__setattr__(self, "balance", float(self.balance))

    def choose(self, context: Context) -> Choice:
        """Choose by what the agents can do, and by predicted cost."""
        if isinstance(context.coupling, Operator):
            return self._choose_without_network(context)
        if isinstance(context.coupling, SharedRows):
            return self._choose_for_coupled(context)
        name, reason, prepared = "AutoPDS", _only_gossip(context), None
        if reason:
            return Choice(self._method(name), {"method": name, "reason": reason})
        compute = partial(_predict, d=context.problem.d, balance=self._first_balance)
        abilities = survey_agents(context, compute)
        if abilities.lack_values:
            return Choice(self._method(name), {"method": name, "reason": "exact sums need losses with values"})
        costs = dict(zip(_NAMES, abilities.computed.tolist(), strict=True))
        name = min(costs, key=lambda each: costs[each])
        reason = f"lowest predicted cost in rounds: {_described(costs)}"
        if abilities.lack_hessians:
            reason += "; losses have no Hessians"
        if name != "AutoPDS":
            prepared = common_problem(context, abilities)
        return Choice(self._method(name), {"method": name, "reason": reason}, prepared)

    def _choose_without_network(self, context: Context) -> Choice:
        """Choose a second-order method wherever its subproblems are quadratic programs."""
        problem = cast(Saddle, context.problem)
        reason = _only_first_order(problem)
        if reason:
            method = self._method("AutoPDS").choose(context).method
            return Choice(method, {"method": "AutoPDS", "reason": reason})
        loss = problem.loss
        if loss.quadratic_part() is not None:
            name, reason = "Newton", "the loss is quadratic, sets and terms are polyhedral"
        elif loss.has_hessian and problem.d <= MOST_COLUMNS:
            name, reason = "Newton", "the loss has Hessians, sets and terms are polyhedral"
        else:
            name, reason = "LBFGS", "sets and terms are polyhedral, and Hessians are not known or too large"
        return Choice(self._method(name).choose(context).method, {"method": name, "reason": reason})

    def _choose_for_coupled(self, context: Context) -> Choice:
        """Choose a second-order method wherever all agents have values and polyhedral sets."""
        lacks = lacks_of_coupled(context)
        if lacks.values or lacks.polyhedra:
            reason = "losses have no values" if lacks.values else "sets are not polyhedral"
            chosen = self._method("AutoPDS").choose(context)
            return chosen._replace(told={"method": "AutoPDS", "reason": reason, **chosen.told})
        name, reason = "Newton", "losses have Hessians, sets are polyhedral"
        if lacks.hessians:
            name, reason = "LBFGS", "sets are polyhedral, and Hessians are not known or too large"
        elif not lacks.matrices:
            reason = "losses are quadratic, sets are polyhedral"
        return Choice(self._method(name).choose(context).method, {"method": name, "reason": reason})

    def reconsider(self, context: Context, choice: Choice, state: Any) -> tuple[Choice, Any]:
        """Change between Newton and LBFGS, once, where the prediction failed."""
        old = choice.method
        if not isinstance(old, ExactSums) or "changed" in choice.told:
            return choice, state
        name, reason = self._better(context, old, cast(State[Any], state))
        if not name:
            return choice, state
        new = cast("ExactSums[Any]", self._method(name))
        told = {**choice.told, "method": name, "changed": f"from {old.name} after {state.evaluations}: {reason}"}
        taken = new.take_over(cast(CommonProblem, context.prepared), old, state)
        return choice._replace(method=new, told=told), taken

    def resumed(self, choice: Choice, told: Any) -> Choice:
        if not isinstance(choice.method, ExactSums | AutoPDS):
            return choice
        return choice._replace(method=self._method(str(told["method"])), told=told) if told else choice

    def _better(self, context: Context, old: "ExactSums[Any]", state: State[Any]) -> tuple[str, str]:
        """Return the other method and why, if it should take over; all agents know the same numbers."""
        seen, d = state.assessment, context.problem.d
        assert seen is not None
        rounds, hessian, balance = context.network.costs.sum_rounds, max(1.0, d / _COLUMNS), self._first_balance
        if self.balance == "measure":
            # Where Hessians come with gradients, so do their seconds.
            is_together = isinstance(old, Newton) and seen.hessian_ratio == 0
            balance = seen.gradient_ratio / (hessian if is_together else 1.0)
        if seen.hessian_ratio > 0:
            hessian = 1 + seen.hessian_ratio
        newton, lbfgs = balance * hessian + rounds, balance + rounds
        if isinstance(old, Newton):
            # The first evaluation may have been compiled.
            left = max(0, _NEWTON - state.evaluations) * newton
            if state.evaluations > 1 and left > _CLEARLY * _LBFGS * lbfgs:
                return "LBFGS", f"a Hessian takes as long as {hessian:.3g} gradients"
            is_poor = state.rejected > _OFTEN * state.evaluations
            is_safe = LBFGS().is_unit_free(context.domain)
            if is_poor and is_safe and state.evaluations * newton > _LBFGS * lbfgs:
                return "LBFGS", f"{state.rejected} steps were rejected"
            return "", ""
        is_slow = state.evaluations > 2 * _LBFGS and state.evaluations * lbfgs > _CLEARLY * _NEWTON * newton
        can_change = cast(CommonProblem, context.prepared).has_hessians and d <= MOST_COLUMNS
        return ("Newton", "more than twice as many as predicted") if is_slow and can_change else ("", "")

    @property
    def _first_balance(self) -> float:
        return 1.0 if self.balance == "measure" else float(self.balance)

    def _method(self, name: str) -> AnyMethod:
        made: dict[str, AnyMethod] = {"Newton": Newton(), "LBFGS": LBFGS(), "AutoPDS": AutoPDS(balance=self.balance)}
        return made[name]

    def init(self, context: Context) -> NoReturn:
        raise InputError("Auto chooses a method and has no steps", "a call of init", "use choose(context).method")

    def step(self, context: Context, state: object) -> NoReturn:
        raise InputError("Auto chooses a method and has no steps", "a call of step", "use choose(context).method")

    def output(self, state: object) -> NoReturn:
        raise InputError("Auto chooses a method and has no steps", "a call of output", "use choose(context).method")


def _only_gossip(context: Context) -> str:
    """Return why exact sums are impossible, or an empty string."""
    if not context.network.is_reliable:
        return "messages may be lost or changed, and exact sums need all of them"
    if not context.domain.euclidean:
        return "exact sums need a Euclidean domain"
    if not (is_numpy(context.x0) or compat.is_torch_array(context.x0)):
        return f"arrays are on {context.problem.device}, and exact sums are computed with NumPy's or PyTorch's"
    return "" if is_common(context) else "agents have different sets or penalties"


def _only_first_order(problem: Saddle) -> str:
    """Return why constraints and terms cannot be put into a quadratic program, or an empty string."""
    if problem.device is not None:
        return f"arrays are on {problem.device}, and quadratic programs are solved with NumPy's"
    if not problem.loss.has_value:
        return "the loss has no values"
    if problem.A.matrix is None:
        return "the entries of A are not known"
    return "" if polyhedral(problem) is not None else "sets or terms are not polyhedral"


def _predict(graph: Graph, lacks: Array, *, d: int, balance: float) -> Array:
    """Return the predicted costs of Newton, LBFGS and gossip; infinite where one is impossible."""
    rounds = 2 * graph.radius
    newton = _NEWTON * (balance * max(1.0, d / _COLUMNS) + rounds)
    if lacks[1] or d > MOST_COLUMNS:
        newton = math.inf
    lbfgs = _LBFGS * (balance + rounds)
    gossip = _GOSSIP * (balance + 1)
    if gossip < min(newton, lbfgs):
        # Only now is the spectrum worth its computation.
        _, least, most = graph.degree_weights
        gossip = _GOSSIP * (balance + Shared(is_free=True).first_K(math.sqrt(most / least), balance))
    return np.array([newton, lbfgs, gossip])


def _described(costs: dict[str, float]) -> str:
    """Return the costs by name, the lowest first."""
    shown = sorted((cost, name) for name, cost in costs.items() if math.isfinite(cost))
    return ", ".join(f"{name} {cost:.0f}" for cost, name in shown)
