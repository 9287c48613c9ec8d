"""When an epoch ends and where the next one starts."""

import math
from dataclasses import replace

from gradslide.methods.gossip.curvature import MARGIN, Rules
from gradslide.methods.gossip.inner import Inner
from gradslide.methods.gossip.plan import Plan
from gradslide.methods.gossip.state import Facts, Memory, State

# A restart is worth its while if the residual fell by this factor; else K grows by that one.
_PROGRESS, _GROWTH = 0.5, 1.5
# Where residuals decide: how far they fall in an epoch, its least length, and its greatest, also as a share of all.
_FALLEN, _SHORTEST, _LONGEST, _LONGEST_SHARE = 0.3, 5, 60, 0.4
# Less curvature than this share of what there was is none.
_FLAT = 0.01
# By how much R may change at a restart.
_SLACKEN, _TIGHTEN = 0.5, 4.0


def heard(
    memory: Memory, inner: Inner, facts: Facts, L_r: float | None, *, k: int, total: int, patience: int, ahead: int = 0
) -> tuple[Memory, bool]:
    """The memory once the sums of iteration k of this epoch are known, and whether they end it. L_r: the curvature that
    they show, if they do. ahead: iterations that have passed since."""
    memory = replace(memory, L_seen=max(memory.L_seen, L_r or 0.0))
    if not inner.follows_lagrangian:
        return _heard_residuals(memory, facts, k=k, total=total)
    step = facts.lagrangian - memory.lagrangian if k > 1 else 0.0
    steps = (*memory.steps, step)[-3:]
    ends = k >= 2 and facts.lagrangian > facts.before
    if k >= patience:
        ends = ends or step > 0
        if ahead > 0 and len(steps) == 3 and step > steps[0]:
            ends = ends or step + ahead * (step - steps[0]) / 2 > 0
    error = math.sqrt(max(0.0, facts.stationarity))
    return replace(memory, lagrangian=facts.lagrangian, steps=steps, error=error), ends


def _heard_residuals(memory: Memory, facts: Facts, *, k: int, total: int) -> tuple[Memory, bool]:
    mean = facts.stationarity + max(0.0, facts.consensus)
    last = facts.stationarity_last + max(0.0, facts.consensus_last)
    error = math.sqrt(min(mean, last))
    before = error if math.isnan(memory.error_before) else memory.error_before
    shares = (facts.consensus_last, facts.stationarity_last) if last < mean else (facts.consensus, facts.stationarity)
    memory = replace(memory, error=error, error_before=before, last_is_better=last < mean, shares=shares)
    fallen = k >= _SHORTEST and error <= _FALLEN * before
    return memory, fallen or k >= max(_LONGEST, _LONGEST_SHARE * total)


def grown(memory: Memory, plan: Plan, rules: Rules, *, waits: bool) -> Memory:
    """At a restart K grows where the last epoch hardly helped. waits: not at once where L had to rise in it."""
    error, before = memory.error, memory.error_before
    if not memory.follows_lagrangian or math.isnan(before) or error <= _PROGRESS * before:
        return replace(memory, error_before=error, failures=0)
    if waits and memory.rose and memory.failures == 0:
        return replace(memory, failures=1)
    K = min(max(memory.K, plan.most_exchanges), math.ceil(_GROWTH * memory.K)) if rules.finds_K else memory.K
    return replace(memory, K=K, error_before=error, failures=0)


def restarted(s: State, inner: Inner, rules: Rules, memory: Memory) -> State:
    """A new epoch starts at the average; or, where residuals decide, at the better of average and last point."""
    x, dual = s.x_bar, s.dual
    if not inner.follows_lagrangian:
        x, dual = (s.x, s.dual) if memory.last_is_better else (s.x_bar, s.dual_bar)
    R = max(inner.least_R, _balanced(memory, inner)) if memory.finds_R else memory.R
    L = s.L if inner.accelerates or not rules.finds_L else max(s.L, MARGIN * memory.L_seen)
    P = L if inner.accelerates else R * _weight(s, memory, rules)
    memory = replace(memory, R=R, rose=False, onset=0, L_seen=0.0, lagrangian=math.nan, steps=(), returned=(-1, 0.0))
    return replace(
        s,
        k=0,
        epoch=s.epoch + 1,
        course=s.course + 1,
        L=L,
        P=P,
        S=0.0,
        slack=0.0,
        x=x,
        x_bar=x,
        dual=dual,
        x_before=x,
        trail=(),
        b_before=0.0,
        T_before=1,
        memory=memory,
    )


def _weight(s: State, memory: Memory, rules: Rules) -> float:
    """What P is R times, where b does not grow: the curvature; where there is next to none, as before."""
    if not rules.finds_L:
        return s.L
    before = s.P / memory.R
    was_guessed = rules.is_guess and s.epoch == 0
    is_flat = memory.L_seen <= (0.0 if was_guessed else _FLAT * before)
    return before if is_flat else MARGIN * memory.L_seen


def _balanced(memory: Memory, inner: Inner) -> float:
    """R, larger where it is consensus that is missing, smaller where it is stationarity or rounds are dear."""
    consensus, stationarity = memory.shares
    if consensus <= 0 or (stationarity <= 0 and inner.accelerates):
        return memory.R
    worth = max(1.0, memory.balance) if inner.accelerates else 1.0
    ratio = (worth * consensus / stationarity) ** 0.25 if stationarity > 0 else math.inf
    return memory.R * min(max(ratio, _SLACKEN), _TIGHTEN)
