"""L, from the curvature that outer iterations show: when one is done again, and how L rises and falls."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradslide._support.types import Array
from gradslide.methods.base import Context
from gradslide.methods.gossip.state import Facts, Memory, State, Trial

# What rounding may do to a difference of sums, in units of eps times their size.
_ROUNDING = 450.0
# Where rounding is more than this share of what is tested, nothing can be read from the test.
_NOISE = 0.05
# L is kept this much above the curvature that was seen, and rises by this factor at least, four at most.
MARGIN, _STEEPEST = 1.2, 4.0
# How fast L falls, where a test that fails costs a gradient.
_FALL = 0.9
# Until it first had to rise: where gradients are dear, and where the first L was only a guess.
_DEAR_FALL, _GUESS_FALL = 0.7, 0.1
# Where sums come late: until it first had to rise, the slower the later they come; after that; and close to where it
# was too small.
_FIRST_STEEPNESS, _STEEPEST_FIRST_FALL = 0.18, 0.93
_LATE_FALL, _EDGE_FALL = 0.98, 0.995
# So many times what was too small is close to it; so many sums that let L fall make an end of what was before.
_EDGE, CALM = 2.0, 5
# Where only maxima are known, which are larger than what the sum needs.
_FLOODED_FALL, _FLOODED_MARGIN = 0.98, 0.8


@dataclass(frozen=True)
class Rules:
    """What may change. finds_L, finds_K: or they are given; restarts: whether there are any; is_guess: the first L is
    the user's; is_dear: gradients cost far more than rounds."""

    finds_L: bool = True
    finds_K: bool = True
    restarts: bool = True
    is_guess: bool = False
    is_dear: bool = False


def curvature(facts: Facts) -> float:
    """The least L with which the test holds."""
    return 2 * facts.gap / facts.square if facts.square > 0 else 0.0


def rounding(context: Context) -> float:
    """What a sum may err by, relative to its size. Losses of up to some 100,000 rows stay within it."""
    return _ROUNDING * float(np.finfo(context.problem.dtype).eps)


def visible(context: Context, facts: Facts, L: float) -> float | None:
    """The curvature; None where rounding hides it."""
    return curvature(facts) if _is_visible(context, facts, L) else None


def _is_visible(context: Context, facts: Facts, L: float) -> Any:
    """Of sums, or of each agent."""
    return rounding(context) * facts.size < _NOISE * L * facts.square


def fallen(rules: Rules, s: State, L_r: float | None) -> float:
    """L after an iteration that passed its test. L_r: the curvature that it showed, if it did."""
    if not rules.finds_L or L_r is None:
        return s.L
    fall, needed = _FALL, MARGIN * L_r
    if not s.memory.has_risen:
        fall = _GUESS_FALL if rules.is_guess else _DEAR_FALL if rules.is_dear else _FALL
    return min(max(fall * s.L, needed), max(s.L, needed))


def raised(s: State, trial: Trial, L_r: float) -> State:
    """The same iteration with a larger L; the first of an epoch needs no new gradient."""
    wanted = MARGIN * L_r if math.isfinite(L_r) else math.inf
    L = max(MARGIN * s.L, min(wanted, _STEEPEST * s.L))
    first = s.k == 0
    memory = replace(s.memory, has_risen=s.memory.has_risen or s.total > 0, rose=True)
    return replace(
        s,
        L=L,
        P=max(L, s.P) if first else s.P,
        y=trial.y if first else s.y,
        conjugate=trial.conjugate if first else s.conjugate,
        y_is_known=first,
        memory=memory,
    )


def heard_late(
    L: float, rules: Rules, memory: Memory, L_r: float, *, k: int | None, ahead: int
) -> tuple[float, Memory]:
    """L, once the curvature of an iteration long past is known. k: which one of this epoch, None where of an older
    one. ahead: iterations that have passed since."""
    if not rules.finds_L:
        return L, memory
    if MARGIN * L_r > L:
        if memory.falls >= CALM:
            memory = replace(memory, edge=_EDGE * L, onset=k or 0)
        return min(MARGIN * L_r, _STEEPEST * L), replace(memory, has_risen=True, rose=True, falls=0)
    if memory.has_risen:
        fall = _LATE_FALL if L > memory.edge else _EDGE_FALL
    else:
        fall = _GUESS_FALL if rules.is_guess else max(_STEEPEST_FIRST_FALL, 1 - _FIRST_STEEPNESS / max(1, ahead))
    falls = memory.falls + 1
    return max(fall * L, MARGIN * L_r), replace(memory, falls=falls, onset=memory.onset if falls < CALM else 0)


def heard_maximum(L: float, rules: Rules, L_r: float) -> float:
    """L, once the largest of the agents' own curvatures is known."""
    if not rules.finds_L or L_r <= 0:
        return L
    return max(_FLOODED_FALL * L, min(_FLOODED_MARGIN * L_r, _STEEPEST * L))


def own_curvatures(context: Context, facts: Array, L: float) -> Array:
    """Of each agent here, 0 where rounding hides it."""
    each = Facts(*facts.T)
    known = _is_visible(context, each, L)
    return np.where(known, 2 * each.gap / np.where(known, each.square, 1.0), 0.0)
