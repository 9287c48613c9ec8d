"""The decisions of `AutoPDS`, (c) to (g): L, restarts and K, with exact sums, late sums or none.

A decision uses only what all agents know alike, to the bit, so that all decide the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.types import Array
from gradslide.methods.base import Context
from gradslide.methods.gossip.inner import Inner, Mixer
from gradslide.methods.gossip.setup import Setup
from gradslide.methods.gossip.state import Attempt, Iterate, Progress, Sliding, Smoothness, State
from gradslide.methods.gossip.sums import Sums

# A curvature is visible unless rounding may be more than this share of it.
_NOISE = 0.05
# L stays this factor above the observed curvature, and rises by at least this factor and at most _STEEPEST.
_MARGIN, _STEEPEST = 1.2, 4.0
# Exact sums: how fast L falls, where a failed test costs a gradient.
_FALL = 0.9
# Until L first had to rise: where gradients are expensive, and where the first L was only a guess.
_EXPENSIVE_FALL, _GUESS_FALL = 0.7, 0.1
# Late sums: how fast L falls until it first had to rise, the slower the later sums complete; after that; and close to
# an L that was too small.
_FIRST_STEEPNESS, _STEEPEST_FIRST_FALL = 0.18, 0.93
_LATE_FALL, _EDGE_FALL = 0.98, 0.995
# Up to _EDGE times an L that was too small is close to it; _CALM falls in a row end the search for a cause.
_EDGE, _CALM = 2.0, 5
# Flooded maxima, which are larger than the curvature of the sum.
_FLOODED_FALL, _FLOODED_MARGIN = 0.98, 0.8
# An outer iteration is accepted as it is after L has risen this often.
_ATTEMPTS = 60

# Outer iterations before a rising Lagrangian ends an epoch: exact sums, late sums.
_PATIENCE, _LATE_PATIENCE = 15, 25
# Late sums: a Lagrangian that jumps by this share of itself ends the epoch, and the next one starts before the jump.
JUMP = 1e-2
# One that rises after L was found too small causes a rollback to a snapshot at least _BACK iterations before, without a
# restart; to the same iteration only once, unless L is _RISEN times as large.
_BACK, _RISEN = 2, 1.05
# No sums: length of the first epoch; each one is twice as long as the one before.
_SCHEDULED = 30
# Residual rule: an epoch ends when residuals have fallen to this share, its least length, and its greatest, also as a
# share of all iterations.
_FALLEN, _SHORTEST, _LONGEST, _LONGEST_SHARE = 0.3, 5, 60, 0.4
# A restart helped if the residual fell by this factor; else K grows by that one, up to _K_MAX of the mixer's reach.
_PROGRESS, _GROWTH, _K_MAX = 0.5, 1.5, 2.0
# A curvature below this share of the one before counts as none.
_FLAT = 0.01
# The factors by which R may change at a restart.
_SLACKEN, _TIGHTEN = 0.5, 4.0


@dataclass(frozen=True)
class Rules:
    """What may change during a run.

    Parameters
    ----------
    finds_L, finds_K, finds_R
        False where they are given.
    restarts
        False if there are none.
    is_guess
        True if the first L is the user's guess.
    is_expensive
        True if gradients cost far more than rounds.
    rounding
        How much rounding may change a difference of sums, relative to the size of its terms.
    """

    finds_L: bool = True
    finds_K: bool = True
    finds_R: bool = True
    restarts: bool = True
    is_guess: bool = False
    is_expensive: bool = False
    rounding: float = 1e-13


# ---- L


def late_L(found: Smoothness, rules: Rules, L_r: float, *, k: int | None, delay: int) -> Smoothness:
    """Update L with the curvature of an earlier iteration: the late rule.

    k: that iteration of this generation, None if it is of an older one. delay: iterations since.
    """
    L, needed = found.L, _MARGIN * L_r
    if not rules.finds_L:
        return found
    if needed > L:
        if found.falls >= _CALM:
            found = found._replace(edge=_EDGE * L, failed_at=k or 0)
        return found._replace(L=min(needed, _STEEPEST * L), has_risen=True, has_risen_now=True, falls=0)
    if found.has_risen:
        fall = _LATE_FALL if L > found.edge else _EDGE_FALL
    else:
        fall = _GUESS_FALL if rules.is_guess else max(_STEEPEST_FIRST_FALL, 1 - _FIRST_STEEPNESS / max(1, delay))
    falls = found.falls + 1
    return found._replace(L=max(fall * L, needed), falls=falls, failed_at=found.failed_at if falls < _CALM else 0)


# ---- Restarts, R and K


def check_restart(
    progress: Progress, inner: Inner, sums: Sums[float], *, k: int, total: int, patience: int, delay: int = 0
) -> tuple[Progress, bool]:
    """Apply rule (f) to the sums of iteration k of this epoch; the second result is True if they end it."""
    if not inner.follows_lagrangian:
        return _check_residuals(progress, sums, k=k, total=total)
    change = sums.lagrangian - progress.lagrangian if k > 1 else 0.0
    if sums.drift is not None and abs(sums.lagrangian_before - progress.lagrangian) <= sums.drift:
        # The change of w may have changed it by rounding only: with the new w at both points it is known better.
        change = sums.lagrangian - sums.lagrangian_before if k > 1 else 0.0
    changes = (*progress.changes, change)[-3:]
    tolerance = visible_change(sums)
    ends = k >= 2 and sums.lagrangian > sums.lagrangian_before + tolerance
    if k >= patience:
        ends = ends or change > tolerance
        if delay > 0 and len(changes) == 3 and change > changes[0]:
            # Look ahead over the delay.
            ends = ends or change + delay * (change - changes[0]) / 2 > (1 + delay / 2) * tolerance
    error = math.sqrt(max(0.0, sums.stationarity))
    return progress._replace(lagrangian=sums.lagrangian, changes=changes, error=error), ends


def visible_change(sums: Sums[float]) -> float:
    """Return the least change of f that is not rounding: 0 in double precision."""
    return math.sqrt(2 * sums.noise) if sums.noise is not None else 0.0


def _check_residuals(progress: Progress, sums: Sums[float], *, k: int, total: int) -> tuple[Progress, bool]:
    mean = sums.stationarity + max(0.0, sums.coupling_residual)
    last = sums.stationarity_last + max(0.0, sums.coupling_residual_last)
    error = math.sqrt(min(mean, last))
    before = error if math.isnan(progress.error_before) else progress.error_before
    residuals = (
        (sums.coupling_residual_last, sums.stationarity_last)
        if last < mean
        else (sums.coupling_residual, sums.stationarity)
    )
    progress = progress._replace(error=error, error_before=before, residuals=residuals, last_is_better=last < mean)
    has_fallen = k >= _SHORTEST and error <= _FALLEN * before
    return progress, has_fallen or k >= max(_LONGEST, _LONGEST_SHARE * total)


def update_K(s: State, mixer: Mixer, rules: Rules, *, waits: bool) -> State:
    """Apply rule (g): K grows if the last epoch hardly helped; waits: not at once if L rose in it."""
    progress, K = s.progress, s.tuning.K
    error, before = progress.error, progress.error_before
    if not s.follows_lagrangian or math.isnan(before) or error <= _PROGRESS * before:
        return replace(s, progress=progress._replace(error_before=error, failures=0))
    if waits and s.smoothness.has_risen_now and progress.failures == 0:
        return replace(s, progress=progress._replace(failures=1))
    if rules.finds_K:
        K = min(max(K, math.ceil(_K_MAX * mixer.reach)), math.ceil(_GROWTH * K))
    progress = progress._replace(error_before=error, failures=0)
    return replace(s, progress=progress, tuning=s.tuning._replace(K=K))


def restart(s: State, inner: Inner, rules: Rules) -> State:
    """Start a new epoch at the average, or where residuals decide at the better point."""
    last, found, R = s.iterate, s.smoothness, s.tuning.R
    x, dual = last.x_bar, last.dual
    if not inner.follows_lagrangian:
        x, dual = (last.x, last.dual) if s.progress.last_is_better else (last.x_bar, last.averages.dual_bar)
        R = max(inner.least_R, _balanced_R(s, inner)) if rules.finds_R else R
    L = found.L if inner.accelerates or not rules.finds_L else max(found.L, _MARGIN * found.largest)
    P = L if inner.accelerates else R * _weight(s, rules)
    return replace(
        s,
        epoch=s.epoch + 1,
        iterate=last._replace(k=0, P=P, S=0.0, b=0.0, x=x, x_bar=x, dual=dual),
        smoothness=found._replace(L=L, slack=0.0, largest=0.0, has_risen_now=False, failed_at=0),
        progress=s.progress._replace(lagrangian=math.nan, changes=()),
        late=s.late._replace(generation=s.late.generation + 1, snapshots=(), last_rollback=(-1, 0.0)),
        tuning=s.tuning._replace(R=R),
        sliding=Sliding(x),
    )


def _weight(s: State, rules: Rules) -> float:
    """Return P/R where b does not grow: the curvature; where there is next to none, as before."""
    if not rules.finds_L:
        return s.smoothness.L
    before = s.iterate.P / s.tuning.R
    was_guessed = rules.is_guess and s.epoch == 0
    is_flat = s.smoothness.largest <= (0.0 if was_guessed else _FLAT * before)
    return before if is_flat else _MARGIN * s.smoothness.largest


def _balanced_R(s: State, inner: Inner) -> float:
    """Return R: larger if the residual of the coupling lags behind, smaller if that of stationarity does."""
    coupling_residual, stationarity = s.progress.residuals
    if coupling_residual <= 0 or (stationarity <= 0 and inner.accelerates):
        return s.tuning.R
    worth = max(1.0, s.tuning.balance) if inner.accelerates else 1.0
    ratio = (worth * coupling_residual / stationarity) ** 0.25 if stationarity > 0 else math.inf
    return s.tuning.R * min(max(ratio, _SLACKEN), _TIGHTEN)


def rollback(s: State, iterate: Iterate) -> State:
    """Return to an iterate of this epoch, but keep what was learned since, and L."""
    return replace(
        s,
        iterate=iterate._replace(averages=s.iterate.averages),
        smoothness=s.smoothness._replace(failed_at=0),
        progress=s.progress._replace(lagrangian=math.nan, changes=()),
        late=s.late._replace(generation=s.late.generation + 1, snapshots=(iterate,)),
        unfinished=None,
    )


# ---- Exact sums


def judge_exact(context: Context, setup: Setup, rules: Rules, s: State, attempt: Attempt, tries: int) -> State:
    """Sum at once, in control rounds; repeat an iteration that fails its test with a larger L."""
    found, L, after = s.smoothness, s.smoothness.L, attempt.after
    sums = Sums[float](*context.network.agree(cast(Array, attempt.sums), "sum").tolist())
    tolerance = rules.rounding * sums.magnitude
    L_r = 2 * sums.bregman / sums.d_squared if sums.d_squared > 0 else 0.0  # (c)
    violation = after.iterate.S * ((L_r - L) * sums.d_squared / 2 - tolerance)
    tests = rules.finds_L and context.problem.loss.has_value and tries < _ATTEMPTS
    if tests and not found.slack + violation <= 0:  # (d)
        needed = _MARGIN * L_r if math.isfinite(L_r) else math.inf
        L = max(_MARGIN * L, min(needed, _STEEPEST * L))
        found = found._replace(L=L, has_risen=found.has_risen or s.total > 0, has_risen_now=True)
        # Late sums that a switch from them left behind were started by this attempt.
        s = replace(s, late=after.late, unfinished=None)
        if s.iterate.k > 0:
            return replace(s, smoothness=found, iterate=attempt.started_from)
        # The first iteration of an epoch needs no new gradient.
        iterate, gradient = (
            attempt.started_from._replace(P=max(L, s.iterate.P)),
            after.gradient._replace(is_current=True),
        )
        return replace(s, smoothness=found, iterate=iterate, gradient=gradient)
    found = found._replace(slack=found.slack + violation if tests else 0.0)
    if tolerance < _NOISE * L * sums.d_squared:  # (e)
        fall, needed = _FALL, _MARGIN * L_r
        if not found.has_risen:
            fall = _GUESS_FALL if rules.is_guess else _EXPENSIVE_FALL if rules.is_expensive else _FALL
        L = min(max(fall * L, needed), max(L, needed)) if rules.finds_L else L
        found = found._replace(L=L, largest=max(found.largest, L_r))
    k, total = after.iterate.k, after.total
    progress, ends = check_restart(s.progress, setup.inner, sums, k=k, total=total, patience=_PATIENCE)  # (f)
    s = replace(after, smoothness=found, progress=progress)
    if not (ends and rules.restarts):
        return s
    return restart(update_K(s, setup.mixer, rules, waits=False), setup.inner, rules)  # (g)


# ---- Late sums


class Findings(NamedTuple):
    """What completed sums have changed so far.

    Attributes
    ----------
    smoothness, progress
        As in the state.
    ends
        True if the epoch has to end.
    unstable_at
        The first iteration of this generation at which the Lagrangian jumped, or rose after L
        was found too small; or 0.
    """

    smoothness: Smoothness
    progress: Progress
    ends: bool = False
    unstable_at: int = 0


def learn(
    found: Findings, sums: Sums[float], inner: Inner, rules: Rules, *, k: int | None, total: int, delay: int
) -> Findings:
    """Return what one completed sum changes.

    k: the iteration of this generation that it describes, None if it is of an older one.
    delay: iterations since.
    """
    smoothness, L_r = found.smoothness, 0.0
    if rules.rounding * sums.magnitude < _NOISE * smoothness.L * sums.d_squared:
        L_r = 2 * sums.bregman / sums.d_squared  # (c)
        smoothness = late_L(smoothness, rules, L_r, k=k, delay=delay)
    elif k is not None and not math.isfinite(sums.magnitude):
        # What overflowed needs a larger L, however much larger.
        smoothness = late_L(smoothness, rules, math.inf, k=k, delay=delay)
    if k is None:
        return found._replace(smoothness=smoothness)
    if smoothness.failed_at and k > smoothness.failed_at + delay + _CALM:
        # Whatever happens from now on has another cause.
        smoothness = smoothness._replace(failed_at=0)
    smoothness = smoothness._replace(largest=max(smoothness.largest, L_r))
    progress, ends = check_restart(found.progress, inner, sums, k=k, total=total, patience=_LATE_PATIENCE, delay=delay)
    unstable_at, harmless = found.unstable_at, JUMP * abs(sums.lagrangian_before)
    if smoothness.failed_at:
        harmless = visible_change(sums)
    if inner.follows_lagrangian and not sums.lagrangian - sums.lagrangian_before <= harmless:
        unstable_at = unstable_at or k
    return Findings(smoothness, progress, found.ends or ends, unstable_at)


def judge_late(context: Context, setup: Setup, rules: Rules, s: State, attempt: Attempt, tries: int) -> State:
    """Accept every iteration; its sums are piggybacked on the exchanges of later ones.

    A fold over the completed sums, then one decision: roll back, restart, or continue.
    """
    network, inner, s = context.network, setup.inner, attempt.after
    late, k = s.late, s.iterate.k
    delay = math.ceil(network.costs.control_rounds("sum") / max(s.tuning.K, s.sliding.T))
    found, outstanding = Findings(s.smoothness, s.progress), late.outstanding
    for row in network.completed("sum"):
        (generation, j), outstanding = outstanding[0], outstanding[1:]
        j_now = j if generation == late.generation else None
        found = learn(found, Sums[float](*row.tolist()), inner, rules, k=j_now, total=s.total, delay=delay)
    snapshots = late.snapshots
    late = late._replace(outstanding=outstanding)
    smoothness, unstable_at, failed_at = found.smoothness, found.unstable_at, found.smoothness.failed_at
    s = replace(s, smoothness=smoothness, progress=found.progress, late=late)

    # The decision: roll back, restart, or continue.
    if unstable_at and failed_at:
        target, L = _last_until(failed_at - _BACK, snapshots), smoothness.L
        target_before, L_before = late.last_rollback
        # With the same L the same would happen again from the same iterate: then a restart has to help.
        if target.k != target_before or _RISEN * L_before < L or not rules.restarts:
            return rollback(replace(s, late=late._replace(last_rollback=(target.k, L))), target)
    if (found.ends or unstable_at) and rules.restarts:
        s = rollback(s, _last_until(unstable_at - 1, snapshots)) if unstable_at else s
        return restart(update_K(s, setup.mixer, rules, waits=True), inner, rules)
    waiting = k
    for generation, j in reversed(outstanding):
        waiting = j if generation == late.generation else waiting
    if inner.follows_lagrangian:
        oldest = min(waiting, failed_at or waiting) - _BACK
        late = late._replace(snapshots=_thinned(snapshots, s.iterate, oldest))
    return replace(s, late=late)


def _last_until(k: int, snapshots: tuple[Iterate, ...]) -> Iterate:
    """Return the last snapshot up to iteration k, or the first one."""
    return next((each for each in reversed(snapshots) if each.k <= k), snapshots[0])


def _thinned(snapshots: tuple[Iterate, ...], last: Iterate, oldest: int) -> tuple[Iterate, ...]:
    """Return a snapshot that all rollbacks may use, and a later one, which replaces it when it may be used.

    oldest: how far back the next rollback may go.
    """
    if len(snapshots) > 1 and snapshots[1].k <= oldest:
        snapshots = snapshots[1:]
    return snapshots if len(snapshots) > 1 else (*snapshots, last.without_averages())


# ---- No sums


def judge_without_sums(context: Context, setup: Setup, rules: Rules, s: State, attempt: Attempt, tries: int) -> State:
    """Use maxima only, which are flooded along with the exchanges; restart on a schedule.

    L serves the agent that needs the largest.
    """
    network, each, L = context.network, Sums[Array](*to_numpy(cast(Array, attempt.sums)).T), s.smoothness.L
    is_visible = rules.rounding * each.magnitude < _NOISE * L * each.d_squared
    own = np.where(is_visible, 2 * each.bregman / np.where(is_visible, each.d_squared, 1.0), 0.0)
    network.start_reduce(own[:, None], "max")
    s, largest = attempt.after, s.smoothness.largest
    for row in network.completed("max"):
        L_r = float(row[0])
        largest = max(largest, L_r)
        if rules.finds_L and L_r > 0:
            L = max(_FLOODED_FALL * L, min(_FLOODED_MARGIN * L_r, _STEEPEST * L))
    s = replace(s, smoothness=s.smoothness._replace(L=L, largest=largest))
    if s.iterate.k < _SCHEDULED * 2**s.epoch or not rules.restarts:
        return s
    return restart(s, setup.inner, rules)


Judge = Callable[[Context, Setup, Rules, State, Attempt, int], State]
AGREEMENTS: dict[str, Judge] = {"late": judge_late, "exact": judge_exact, "none": judge_without_sums}
