"""AutoPDS: primal-dual sliding without parameters.

An accelerated outer loop that estimates L and restarts, around an inner loop chosen by the problem.
After G. Lan, Y. Ouyang, Y. Zhou, "Graph topology invariant gradient and sampling complexity for
decentralized and stochastic optimization". Comments (a) to (g) refer to the notes of `AutoPDS`; the
inner loops are in `inner`, the decisions (c) to (g) in `rules`.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, cast

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import dot, doubles, without_columns
from gradslide._support.errors import InputError, require, require_number, unknown_name
from gradslide._support.types import Array
from gradslide.graphs.chebyshev import chebyshev, chebyshev_rounds
from gradslide.methods import defaults
from gradslide.methods.base import Choice, Context, Method, average
from gradslide.methods.compiled import accelerated
from gradslide.methods.gossip.inner import Inner, Mixer, Own, Shared, SlidingLoop, squares
from gradslide.methods.gossip.rules import AGREEMENTS, Rules, restart
from gradslide.methods.gossip.setup import Setup, evaluation_at, set_up
from gradslide.methods.gossip.state import (
    Attempt,
    Averages,
    Gradient,
    Iterate,
    LateSums,
    Progress,
    Sliding,
    Smoothness,
    State,
    StepWeights,
    Tuning,
)
from gradslide.methods.gossip.sums import EPS, EPS_SINGLE, ROUNDING, Known, Sums, Unfinished, rows
from gradslide.methods.pds import inner_loop
from gradslide.methods.sliding import AdaptiveSliding
from gradslide.methods.steps import check_positive, is_common, is_free
from gradslide.network.coupling import Dual, Operator
from gradslide.theory.certificates import DualEvidence

# The inner loops, and the parameters that each of them does not have.
_UNUSED = {"shared": ("R",), "own": (), "sliding": ("K", "spectrum")}
# Where a gradient is worth _EXPENSIVE rounds or more, L starts at this share of what the probe says: only the first
# test pays for it, in rounds.
_EXPENSIVE, _BOLD = 5.0, 0.5
# Late sums are waited for if that takes no more than this share of the cost of an iteration.
_CHEAP = 1 / 3
# Prox sliding with restarts starts with this multiple of theory's R.
_PRACTICE = 2.0
# balance="measure" measures after this many outer iterations.
_MEASURED_AFTER = 3
# At the end answers are mixed with this many times the mixer's reach, or until they are closer by the factor asked for,
# of which weights and norms may hide _RESERVE.
_FINAL, _RESERVE = 2.0, 2.0


@dataclass(frozen=True, kw_only=True)
class AutoPDS(Method[State]):
    """Primal-dual sliding without parameters, for min sum_i f_i(x), x in X, with exact gradients.

    For linear constraints, saddle points and coupled agents it becomes
    `gradslide.methods.sliding.AdaptiveSliding`.

    An accelerated outer loop estimates L from observed curvatures and restarts when the Lagrangian
    stops falling. Each outer iteration takes one gradient per agent, and values at two points where
    the loss has them.

    Parameters
    ----------
    balance : float or "measure"
        How many rounds a gradient is worth; more means fewer gradients and more rounds. "measure"
        measures it in the first outer iterations.
    agreement : {"late", "exact", "none"}
        How agents learn the sums that L, restarts and K follow from. "late": sums are piggybacked
        on the exchanges along a spanning tree and used when they complete; if gradients are so
        expensive that waiting costs less, agents wait. "exact": sums at once, in control rounds.
        "none": flooded maxima instead of sums, and restarts on a schedule.
    inner : {"shared", "own", "sliding"}, optional
        The inner loop. "shared": K Chebyshev exchanges, if all agents have the same Euclidean X and
        penalty (also R^d). "own": K exchanges between two prox steps, if they differ. "sliding":
        the inner iterations of PDS, for other nu. Default: the first of these that fits.
    L : float, optional
        The smoothness constant, fixed. Default: estimated.
    first_L : float, optional
        The first estimate of L. Default: from a second gradient near x_0.
    K : int, optional
        Exchanges per gradient, fixed; of "shared" and "own".
    R : float, optional
        The weight of consensus, fixed; of "own" and "sliding".
    restarts : bool
        False switches restarts off.
    spectrum : tuple of float, optional
        The smallest nonzero eigenvalue of the Laplacian and the largest, or bounds. Default: agents
        first learn the graph, in as many control rounds as its diameter and radius.

    Notes
    -----
    Let N = D^-1 Lap with weights D of the agents, and mix(v, K) a damped Chebyshev polynomial of
    degree K in N. An epoch starts with S = slack = 0, x_bar = x, P = L. For k = 1, 2, ...

    (a) b = (P + sqrt(P^2 + 4 L P S))/(2 L), S' = S + b, p = P/b, x_under = (S x_bar + b x)/S',
        y = gradient at x_under;
    (b) the inner loop; for X = R^d: v = x - (y + w)/(p D), x+ = mix(v, K), w+ = w + p D (v - x+),
        x_bar+ = (S x_bar + b x+)/S';
    (c) the observed curvature, L_r = 2 [f(x_bar+) - f(x_under) - <y, d>]/|d|_D^2 with
        d = x_bar+ - x_under, and the violation S' (L_r - L) |d|_D^2/2;
    (d) if slack + violation > 0, repeat with a larger L, else add the violation to the slack;
    (e) L falls by a tenth, but not below 1.2 L_r;
    (f) restart if Lam_k > Lam_{k-1}, with Lam the Lagrangian f + r + <w, .> at x_bar;
    (g) at a restart x = x_bar, w stays, and K grows if the residual did not halve.

    With late sums there is no (d): L changes when sums complete, and all agents roll back if it was
    too small. Every ft_i must be convex and smooth; "shared" evaluates it outside X too. docs/gossip.md
    states what is guaranteed. Outputs are "average" and "last", and first "best", the better of both,
    for "own" and "sliding".

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 4.0], agents=4)
    >>> problem = gs.Problem(loss, domain=gs.domains.Box(0.0, 5.0))
    >>> solution = gs.solve(problem, gs.Graph.ring(4), gs.AutoPDS())
    >>> solution.status.name, round(float(solution.mean[0]), 3)
    ('CONVERGED', 2.5)
    >>> solution.certificate.gap < 1e-4 * solution.certificate.upper
    True
    """

    stops_itself: ClassVar[bool] = True
    serves_rows: ClassVar[bool] = True
    lasting_outputs: ClassVar[tuple[str, ...]] = ("best", "average", "last")

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
            object.__setattr__(self, "balance", float(self.balance))
        if self.agreement not in AGREEMENTS:
            raise unknown_name("agreement", self.agreement, AGREEMENTS)
        if self.inner is not None and self.inner not in _UNUSED:
            raise unknown_name("inner", self.inner, _UNUSED)
        check_positive(self, "L", "first_L", "R")
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

    def choose(self, context: Context) -> Choice:
        """Return this method, or its form for linear constraints, saddle points and coupled agents."""
        if not context.has_rows:
            return Choice(self)
        given = [name for name in ("first_L", "inner", "K", "spectrum") if getattr(self, name) is not None]
        rule = "with linear constraints, AutoPDS takes balance, L and R"
        require(not given, rule, ", ".join(given), "leave the others out")
        balance = 1.0 if self.balance == "measure" else float(self.balance)
        method = AdaptiveSliding(balance=balance, L=self.L, omega=self.R)
        if isinstance(context.coupling, Operator):
            return Choice(method)
        geometry = method.prepare(context)
        products = "sums over the tree" if geometry.knows_z else "exchanges with neighbours"
        return Choice(method, {"products": products}, geometry)

    def prepare(self, context: Context) -> Setup:
        """Choose the inner loop, unless it is given, and find the first L and the mixer."""
        domain = context.domain
        has_common = domain.euclidean and is_common(context)
        name = self.inner or (("shared" if has_common else "own") if domain.euclidean else "sliding")
        rule = ""
        if name != "sliding" and not domain.euclidean:
            rule = f'inner="{name}" needs a Euclidean domain'
        elif name == "shared" and not has_common:
            rule = 'inner="shared" needs the same X and penalty for all agents'
        if rule:
            raise InputError(rule, repr(context.problem), "leave inner out")
        for parameter in _UNUSED[name]:
            value = getattr(self, parameter)
            require(value is None, f'inner="{name}" has no {parameter}', value, f"leave {parameter} out")
        inner: Inner = Own()
        if name != "own":
            inner = Shared(is_free(context)) if name == "shared" else _sliding_loop(context)
        needs_L, by_maxima = self.L is None and self.first_L is None, self.agreement == "none"
        return set_up(context, inner, self.spectrum, needs_L=needs_L, by_maxima=by_maxima)

    def init(self, context: Context) -> State:
        setup = cast(Setup, context.prepared)
        inner, mixer, (gradient, scores) = setup.inner, setup.mixer, setup.start.take()
        x, L = context.x0, self.L or self.first_L or setup.L
        balance = 1.0 if self.balance == "measure" else float(self.balance)
        K, R = inner.first_K(mixer.reach, balance) if self.K is None else self.K, self.R or 0.0
        if isinstance(inner, SlidingLoop) and self.R is None:
            found = defaults.estimate_R(context, gradient.y, L=L, A_norm=inner.A_norm).R
            R = inner.limited_R(_PRACTICE * math.sqrt(max(1.0, balance)) * found, L)
        elif isinstance(inner, Own):
            R = self.R or 1.0
        tuning = Tuning(K, R, balance, is_measured=self.balance != "measure")
        agreement, rules = self._rules(context, tuning)
        if rules.is_expensive and agreement == "exact":
            L *= _BOLD
        dual, value = context.coupling.start(x, context.s0), gradient.value
        mu = context.problem.mu if inner.has_ridge else 0.0
        value_bar = array_namespace(x).zeros_like(value)
        if context.problem.loss.has_value:
            value_bar = doubles(value + mu * context.domain.nu(x) if mu > 0 else value)
        iterate = Iterate(
            k=0,
            P=L,
            S=0.0,
            b=0.0,
            x=x,
            x_bar=x,
            last=x,
            value_bar=value_bar,
            scores=scores,
            scores_before=None,
            Cx_bar=without_columns(x) if inner.follows_lagrangian else 0 * x,
            dual=dual,
            averages=Averages(gradient.y, gradient.conjugate, Dual(dual.s, 1 * dual.w)),
        )
        return State(
            total=0,
            epoch=0,
            follows_lagrangian=inner.follows_lagrangian,
            iterate=iterate,
            gradient=gradient,
            smoothness=Smoothness(L),
            progress=Progress(),
            late=LateSums(),
            tuning=tuning,
            sliding=Sliding(x),
        )

    def step(self, context: Context, state: State) -> State:
        setup = cast(Setup, context.prepared)
        agreement, rules = self._rules(context, state.tuning)
        s, tries = state, 0
        if agreement == "late" and setup.inner.follows_lagrangian and not s.late.snapshots:
            s = replace(s, late=s.late._replace(snapshots=(s.iterate.without_averages(),)))
        while s.total == state.total:
            attempt = outer_iteration(context, setup, s, agreement)  # (a), (b)
            s = AGREEMENTS[agreement](context, setup, rules, s, attempt, tries)  # (c) to (g)
            tries += 1
        if self.restarts and isinstance(setup.inner, SlidingLoop) and setup.inner.is_overlong(s):
            s = restart(s, setup.inner, rules)
        if not s.tuning.is_measured and s.total >= _MEASURED_AFTER:
            s = self._measure(context, setup, s)
        return s

    def restored(self, state: State, fresh: State) -> State:
        """Make records again of what comes back as plain tuples."""
        snapshots = tuple(map(Iterate.from_tuple, state.late.snapshots))
        unfinished = state.unfinished
        if unfinished is not None:
            generation, k, value_under, sums, is_complete = unfinished
            unfinished = Unfinished(generation, k, value_under, Sums(*sums), is_complete)
        return replace(state, late=state.late._replace(snapshots=snapshots), unfinished=unfinished)

    def output(self, state: State) -> dict[str, Array]:
        """Return the average and the last point, and first the better of both where residuals tell."""
        x_bar, last = state.iterate.x_bar, state.iterate.last
        outputs = {"average": x_bar, "last": last}
        if state.follows_lagrangian:
            return outputs
        return {"best": last if state.progress.last_is_better else x_bar, **outputs}

    def dual(self, state: State) -> dict[str, Array]:
        """Return the multipliers of each output, in node form."""
        s, s_bar = state.iterate.dual.s, state.iterate.averages.dual_bar.s
        if state.follows_lagrangian:
            return {"average": s, "last": s}
        return {"best": s if state.progress.last_is_better else s_bar, "average": s_bar, "last": s}

    def dual_evidence(self, state: State) -> tuple[DualEvidence, DualEvidence]:
        """Return the dual points of the averages of this epoch and of the last outer iteration."""
        iterate, gradient = state.iterate, state.gradient
        return (
            DualEvidence(*iterate.averages[:3], averaged=max(1, iterate.averages.iterations)),
            DualEvidence(gradient.y, gradient.conjugate, iterate.dual, averaged=0, reach=gradient.reach),
        )

    def snapshot_for_check(self, context: Context, state: State) -> State | None:
        """Return the state without what late sums need; None where the method itself waits for sums."""
        if self._rules(context, state.tuning)[0] == "exact":
            return None
        state = replace(state, late=LateSums(), unfinished=None)
        if not state.follows_lagrangian:
            return state
        # The next step may overwrite what is copied.
        y_bar, conjugate_bar, dual_bar, count = state.iterate.averages
        dual = Dual(*(1 * each for each in state.iterate.dual))
        averages = Averages(1 * y_bar, conjugate_bar, Dual(dual.s, 1 * dual_bar.w), count)
        iterate = state.iterate._replace(x=without_columns(state.iterate.x), dual=dual, averages=averages)
        return replace(state, iterate=iterate)

    def invariant(self, state: State) -> Array:
        return state.iterate.dual.w

    def finish(self, context: Context, state: State, factor: float) -> State:
        """Mix the averages until they differ less by the factor, where all agents have the same X."""
        mixer, x_bar = cast(Setup, context.prepared).mixer, state.iterate.x_bar
        # No step follows.
        state = replace(state, late=LateSums(), unfinished=None)
        if mixer.kernel is not None:
            mixer.kernel.release()
        if not state.follows_lagrangian or mixer.most == 0:
            return state
        spectrum = {"least": mixer.least, "most": mixer.most}
        rounds = max(math.ceil(_FINAL * mixer.reach), chebyshev_rounds(_RESERVE * factor, **spectrum))
        rest = chebyshev(partial(context.network.combine, weights=mixer.N), x_bar, rounds, **spectrum)
        return replace(state, iterate=state.iterate._replace(x_bar=context.domain.project(x_bar - rest)))

    def parameters(self, state: State) -> dict[str, float]:
        K, R, balance, _ = state.tuning
        found = {"L": state.smoothness.L, "K": K, "balance": balance, "restarts": state.epoch}
        return found | ({"R": R} if R > 0 else {})

    def _rules(self, context: Context, tuning: Tuning) -> tuple[str, Rules]:
        """Return the agreement and the rules; late sums are waited for where this costs less."""
        rounds = context.network.costs.control_rounds("sum")
        is_cheap = self.agreement == "late" and rounds <= _CHEAP * (tuning.balance + tuning.K)
        rules = Rules(
            finds_L=self.L is None,
            finds_K=self.K is None,
            finds_R=self.R is None,
            restarts=self.restarts,
            is_guess=self.first_L is not None,
            is_expensive=tuning.balance >= _EXPENSIVE and self.L is None and self.first_L is None,
            rounding=ROUNDING,
        )
        return "exact" if is_cheap else self.agreement, rules

    def _measure(self, context: Context, setup: Setup, s: State) -> State:
        """Set the balance to the measured one, averaged over the agents."""
        K, network = s.tuning.K, context.network
        ratios = np.full((len(network.agents), 1), context.pace.ratio())
        balance = float(network.agree(ratios, "sum")[0]) / network.m
        K = K if self.K is not None else max(K, setup.inner.first_K(setup.mixer.reach, balance))
        return replace(s, tuning=s.tuning._replace(K=K, balance=balance, is_measured=True))


def _sliding_loop(context: Context) -> SlidingLoop:
    """Return the inner loop of PDS for this run."""
    return SlidingLoop(context.coupling.norm(), accelerated(inner_loop, context))


def outer_iteration(context: Context, setup: Setup, s: State, agreement: str) -> Attempt:
    """Compute one outer iteration, (a) and (b), and its part of the sums that (c) to (g) need.

    Sums that complete late anyway are left to the next iteration, which starts them before its exchanges: its pass
    over the data may compute f(x_bar) beside the gradient at x_under. Agents whose losses know f(x_bar) at once
    wait, too: all start the same sums.
    """
    is_late, is_final = agreement == "late", agreement != "exact"
    inner, mixer, prev, domain, oracle = setup.inner, setup.mixer, s.iterate, context.domain, context.oracle
    L, P, S, mu = s.smoothness.L, prev.P, prev.S, context.problem.mu
    if not inner.has_ridge:
        P, mu = P + mu * S / 2, 0.0
    b = (P + math.sqrt(P * P + 4 * L * P * S)) / (2 * L)  # (a)
    b = min(b, inner.largest_b(s, P))
    weights = StepWeights(b, S + b, P / b, is_final)
    share = b / weights.S
    nowhere = without_columns(prev.x)
    x_under = nowhere if setup.has_scores and mu == 0 else average(prev.x_bar, prev.x, share)
    evaluation, late, value, value_before, scores = None, s.late, None, prev.value_bar, prev.scores
    if s.gradient.is_current:
        gradient = s.gradient._replace(x_under=x_under, is_current=False)
    elif setup.has_scores:
        theta = share * (S / prev.b - 1) if prev.k > 1 else 0.0
        before = prev.scores_before if theta != 0 else None
        if scores is None:
            scores, value, value_under, y = oracle.extrapolation(prev.x_bar, before, theta)
        else:
            ahead = scores if before is None else scores + theta * (scores - before)
            value_under, y = oracle.value_and_gradient_of_scores(ahead)
        gradient = s.gradient._replace(x_under=x_under, y=y, value=value_under)
    else:
        if value_before is None:
            # A run that is resumed where the loss has no scores.
            value = doubles(oracle.value(prev.x_bar))
        value_under, y, evaluation = evaluation_at(context, x_under)
        gradient = s.gradient._replace(x_under=x_under, y=y, value=value_under)
    if value is not None:
        value_before = value + mu * domain.nu(prev.x_bar) if mu > 0 else value
    assert value_before is not None
    if s.unfinished is not None:
        context.network.start_reduce(mixer.completed(s.unfinished, value_before), "sum")
        late = late._replace(outstanding=(*late.outstanding, (s.unfinished.generation, s.unfinished.k)))
    y = g = gradient.y
    value_under = gradient.value
    if mu > 0:
        value_under = value_under + mu * domain.nu(x_under)
        g = domain.grad_nu(x_under)
    if setup.skips_points:
        x_under, gradient = nowhere, gradient._replace(x_under=nowhere)
    if mu > 0:
        # One array after another.
        g = mu * g
        g += y
    found = inner.run(context, mixer, s, weights, gradient, g)  # (b)
    x_bar, w, is_free = found.x_bar, found.dual.w, isinstance(inner, Shared) and inner.is_free
    is_single = context.problem.dtype == np.float32
    known = Known(
        gradient.value,
        value_before,
        prev.averages.conjugate_bar if prev.k > 0 else None,
        share,
        None if is_free else domain.r(x_bar),
        None if is_free else domain.r(prev.x_bar),
        y if setup.has_scores and is_single else None,
    )
    sums, conjugate, reach, conjugate_bar = mixer.tally(found.products, found.residuals, known)
    gradient = gradient._replace(conjugate=conjugate, reach=reach)
    if setup.has_scores and context.problem.has_lower_bound:
        oracle.extend_reach(gradient.reach)

    value_bar, scores_bar, scale, noise = None, None, 1.0, sums.noise
    if evaluation is not None:
        change, error = oracle.change(evaluation, x_bar)
        value_bar, noise = gradient.value + change, evaluation.rounding() ** 2
        sums = sums._replace(magnitude=sums.magnitude + error / ROUNDING)
    elif setup.has_scores:
        if not is_late:
            scores_bar, value_bar = oracle.scores(x_bar)
    else:
        scale = EPS_SINGLE / EPS if is_single else 1.0
        if context.problem.loss.has_value:
            value_bar = doubles(oracle.value(x_bar))
        else:
            # Gradients estimate the change of the value.
            value_bar = value_before + dot(g, x_bar - prev.x_bar)
        noise = (EPS_SINGLE * abs(value_bar)) ** 2
    if mu > 0 and context.problem.loss.has_value:
        value_bar = None if value_bar is None else value_bar + mu * domain.nu(x_bar)
    if is_single and inner.follows_lagrangian:
        # w sums to 0 over the agents, and its rounding errors do not: they multiply what all x_bar have in common.
        drift = sums.drift
        if drift is None:
            drift = EPS_SINGLE * dot(abs(w) + weights.p * mixer.D * abs(x_bar), abs(x_bar))
        sums = sums._replace(drift=drift, noise=noise)
    unfinished = Unfinished(late.generation, prev.k + 1, value_under, sums)
    if value_bar is not None:
        finished = unfinished.completed(value_bar, scale)
        if not context.problem.loss.has_value:
            finished = _with_secant(context, mixer, finished, x_under, g, s.gradient, mu, scale)
        unfinished = unfinished._replace(sums=finished, is_complete=True)

    count = prev.averages.iterations + 1 if prev.k > 0 else 1
    iterate = Iterate(
        k=prev.k + 1,
        P=prev.P,
        S=weights.S,
        b=b,
        x=found.x,
        x_bar=x_bar,
        last=found.last,
        value_bar=value_bar,
        scores=scores_bar,
        scores_before=scores,
        Cx_bar=found.Cx_bar,
        dual=found.dual,
        averages=Averages(found.y_bar, conjugate_bar, found.dual_bar, count),
    )
    after = replace(
        s,
        total=s.total + 1,
        iterate=iterate,
        gradient=gradient,
        late=late,
        sliding=Sliding(found.x_before, b, found.T),
        unfinished=unfinished if is_late else None,
    )
    started_from = prev._replace(value_bar=value_before, scores=scores)
    return Attempt(after, None if is_late else rows(unfinished.sums), started_from)


def _with_secant(
    context: Context,
    mixer: Mixer,
    sums: Sums[Array],
    x_under: Array,
    g: Array,
    before: Gradient,
    mu: float,
    scale: float,
) -> Sums[Array]:
    """Return the sums with the curvature that two gradients show, for losses without values."""
    d = x_under - before.x_under
    g_before = before.y + (mu * context.domain.grad_nu(before.x_under) if mu > 0 else 0.0)
    return sums._replace(
        bregman=dot(g - g_before, d) / 2,
        d_squared=mixer.D[:, 0] * squares(context, d),
        magnitude=scale * (abs(dot(g, d)) + abs(dot(g_before, d))),
    )
