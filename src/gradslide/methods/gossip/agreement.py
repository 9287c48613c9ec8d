"""How the agents come to know sums over all of them, and what they decide from these: L, restarts and K.

All three keep to one rule: a decision uses only what every agent knows alike, so that all decide the same."""

import math
from dataclasses import dataclass, replace
from typing import Protocol

from gradslide._support.errors import unknown_name
from gradslide.methods.base import Context
from gradslide.methods.gossip.curvature import (
    CALM,
    Rules,
    curvature,
    fallen,
    heard_late,
    heard_maximum,
    own_curvatures,
    raised,
    rounding,
    visible,
)
from gradslide.methods.gossip.epochs import grown, heard, restarted
from gradslide.methods.gossip.inner import Inner
from gradslide.methods.gossip.plan import Plan
from gradslide.methods.gossip.state import Facts, State, Trial, accepted, gone_back, on_trail

# Outer iterations before a rising Lagrangian ends an epoch.
_PATIENCE, _LATE_PATIENCE = 15, 25
# A Lagrangian that jumps by this share of itself ends the epoch: the next one starts before the jump. One that rises
# after L was found too small sends all to so many iterations before that, without a restart.
_JUMP, _BACK = 1e-2, 2
# They do so again, to the same iteration, only with an L that is so many times as large.
_RISEN = 1.05
# Length of the first epoch on a schedule; each one is twice as long as the one before.
_SCHEDULED = 30
# So many times L rises before an iteration is accepted as it is.
_ATTEMPTS = 60


class Agreement(Protocol):
    def judge(self, context: Context, plan: Plan, inner: Inner, s: State, trial: Trial, attempts: int) -> State:
        """The state after the trial; or that before it with a larger L, where it is to be tried again."""
        ...


@dataclass(frozen=True)
class Exact:
    """Sums at once, in control rounds: an iteration that fails its test is done again with a larger L."""

    rules: Rules

    def judge(self, context: Context, plan: Plan, inner: Inner, s: State, trial: Trial, attempts: int) -> State:
        facts = Facts(*context.network.agree(trial.facts, "sum").tolist())
        needed, tolerance = curvature(facts), rounding(context) * facts.size
        excess = trial.weights.S * ((needed - s.L) * facts.square / 2 - tolerance)
        tests = self.rules.finds_L and context.problem.loss.has_value and attempts < _ATTEMPTS
        if tests and not s.slack + excess <= 0:
            return raised(s, trial, needed)
        L_r = visible(context, facts, s.L)
        memory, ends = heard(s.memory, inner, facts, L_r, k=s.k + 1, total=s.total + 1, patience=_PATIENCE)
        L, slack = fallen(self.rules, s, L_r), s.slack + excess if tests else 0.0
        done = replace(accepted(s, trial), slack=slack, L=L, memory=memory)
        if not (ends and self.rules.restarts):
            return done
        return restarted(done, inner, self.rules, grown(memory, plan, self.rules, waits=False))


@dataclass(frozen=True)
class Late:
    """Sums ride on the exchanges along a tree and come late: rules look ahead, and where L had been too small for a
    while, all go back."""

    rules: Rules

    def judge(self, context: Context, plan: Plan, inner: Inner, s: State, trial: Trial, attempts: int) -> State:
        network = context.network
        network.start_reduce(trial.facts, "sum")
        done = accepted(s, trial)
        done = on_trail(s, done) if inner.follows_lagrangian else done
        memory = replace(done.memory, posted=(*done.memory.posted, (done.course, done.k)))
        L, ends, unstable = done.L, False, 0
        ahead = math.ceil(network.costs.control_rounds("sum") / max(memory.K, trial.moved.T))
        for sums in network.completed("sum"):
            facts = Facts(*sums.tolist())
            (course, k), posted = memory.posted[0], memory.posted[1:]
            memory = replace(memory, posted=posted)
            is_current, L_r = course == done.course, visible(context, facts, L)
            if L_r is not None:
                L, memory = heard_late(L, self.rules, memory, L_r, k=k if is_current else None, ahead=ahead)
            elif is_current and not math.isfinite(facts.size):
                # What overflowed needs a larger L, however much larger.
                L, memory = heard_late(L, self.rules, memory, math.inf, k=k, ahead=ahead)
            if not is_current:
                continue
            if memory.onset and k > memory.onset + ahead + CALM:
                # Whatever happens now has other reasons.
                memory = replace(memory, onset=0)
            memory, now_ends = heard(
                memory, inner, facts, L_r, k=k, total=done.total, patience=_LATE_PATIENCE, ahead=ahead
            )
            ends = ends or now_ends
            harmless = 0.0 if memory.onset else _JUMP * abs(facts.before)
            if inner.follows_lagrangian and not facts.lagrangian - facts.before <= harmless:
                unstable = unstable or k
        done = replace(done, L=L, memory=memory)
        if unstable and memory.onset:
            k = max(done.trail[0].k, memory.onset - _BACK)
            before, L_before = memory.returned
            # From the same point with the same L all would come to the same again: then a restart has to help.
            if k != before or _RISEN * L_before < L or not self.rules.restarts:
                return gone_back(replace(done, memory=replace(memory, returned=(k, L))), k)
        if (ends or unstable) and self.rules.restarts:
            done = gone_back(done, unstable - 1) if unstable else done
            return restarted(done, inner, self.rules, grown(memory, plan, self.rules, waits=True))
        waiting = next((k for course, k in memory.posted if course == done.course), done.k + 1)
        oldest = min(waiting, memory.onset or waiting) - _BACK
        return replace(done, trail=tuple(point for point in done.trail if point.k >= oldest))


@dataclass(frozen=True)
class NoSums:
    """Nothing but maxima, which are flooded along with the exchanges: L for the agent that needs the largest, and
    restarts on a schedule."""

    rules: Rules

    def judge(self, context: Context, plan: Plan, inner: Inner, s: State, trial: Trial, attempts: int) -> State:
        network = context.network
        network.start_reduce(own_curvatures(context, trial.facts, s.L)[:, None], "max")
        done = accepted(s, trial)
        memory, L = done.memory, done.L
        for (L_r,) in network.completed("max"):
            memory = replace(memory, L_seen=max(memory.L_seen, float(L_r)))
            L = heard_maximum(L, self.rules, float(L_r))
        done = replace(done, L=L, memory=memory)
        if done.k < _SCHEDULED * 2**done.epoch or not self.rules.restarts:
            return done
        return restarted(done, inner, self.rules, memory)


AGREEMENTS: dict[str, type[Exact] | type[Late] | type[NoSums]] = {"late": Late, "exact": Exact, "none": NoSums}


def require_agreement(name: str) -> None:
    """Refuse an agreement that there is none of."""
    if name not in AGREEMENTS:
        raise unknown_name("agreement", name, AGREEMENTS)
