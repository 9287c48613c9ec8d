"""Where a run of auto mode stands."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gradslide._support.types import Array
from gradslide.methods.base import Copied, average
from gradslide.network.coupling import Dual


@dataclass(frozen=True)
class Memory(Copied):
    """What the agents remember of what they agreed on.

    K: exchanges per gradient; R: of prox sliding. has_risen: L rose at some time; rose: in this epoch. Where sums come
    late, falls: how many in a row have let L fall since it last rose; edge: twice the L that was last found too small
    after a calm; onset: the iteration of this epoch that this was found at, if it was lately, or 0. L_seen: the largest
    curvature that was seen in this epoch. lagrangian, steps: the Lagrangian at the last known record of this
    epoch, and its last changes. error: the last known residual; error_before: at the last restart, or the last one that
    counted. failures: restarts in a row that hardly lowered it. posted: (course, k) of the sums on their way.
    returned: to which iteration of this epoch all went back last, and with which L.
    """

    K: int
    follows_lagrangian: bool = True
    R: float = 0.0
    finds_R: bool = False
    balance: float = 1.0
    is_measured: bool = True
    has_risen: bool = False
    rose: bool = False
    falls: int = 0
    edge: float = 0.0
    onset: int = 0
    L_seen: float = 0.0
    lagrangian: float = math.nan
    steps: tuple[float, ...] = ()
    error: float = math.nan
    error_before: float = math.nan
    last_is_better: bool = False
    shares: tuple[float, float] = (0.0, 0.0)
    failures: int = 0
    posted: tuple[tuple[int, int], ...] = ()
    returned: tuple[int, float] = (-1, 0.0)


class Point(NamedTuple):
    """Where iteration k of an epoch led: something to go back to. As in `State`."""

    k: int
    S: float
    x: Array
    x_bar: Array
    last: Array
    value_bar: Array
    y_bar: Array
    conjugate_bar: Array
    gap_bar: Array
    dual: Dual
    dual_bar: Dual


@dataclass(frozen=True)
class State(Copied):
    """k: outer iterations in this epoch; total: in all. course: goes up with every restart, and when all go back.

    L, P, S, slack: as in the rule. y: the last gradient of ft_i, at x_under; value_bar: the smooth part at x_bar, per
    agent. last: the last point in X. gap_bar: how x_bar differs from its mixed self, gap: how `last` does. Of prox
    sliding: x_before, b_before, T_before. trail: the last points of this epoch, as far back as sums come late.
    """

    k: int
    epoch: int
    course: int
    total: int
    L: float
    P: float
    S: float
    slack: float
    x: Array
    x_bar: Array
    last: Array
    x_under: Array
    y: Array
    y_is_known: bool
    value_bar: Array
    dual: Dual
    dual_bar: Dual
    y_bar: Array
    conjugate: Array
    conjugate_bar: Array
    gap_bar: Array
    x_before: Array
    b_before: float = 0.0
    T_before: int = 1
    memory: Memory = field(default_factory=lambda: Memory(K=1))
    trail: tuple[Point, ...] = ()


class Facts(NamedTuple):
    """What is added up over all agents, of one outer iteration: per agent before, one number each after.

    gap: f(x_bar) - f(x_under) - <y, x_bar - x_under>, f the smooth part; square: |x_bar - x_under|^2; size: of what
    gap is the difference of.
    lagrangian: f + r + <w, .> at x_bar; before: the same at the x_bar before. stationarity, consensus: squares of the
    residuals, of the averages; *_last: of the last point.
    """

    gap: Any
    square: Any
    size: Any
    lagrangian: Any
    before: Any
    stationarity: Any
    consensus: Any
    stationarity_last: Any
    consensus_last: Any


class Weights(NamedTuple):
    """b, S' = S + b and p = P/b of an outer iteration."""

    b: float
    S: float
    p: float


class Moved(NamedTuple):
    """Where the exchanges led.

    last: the last point in X. dual_mean: of the inner iterations. gap_bar: x_bar less its mixed self, gap: the same of
    `last`. x_before: the inner iterate before x, T inner iterations were taken.
    """

    x: Array
    x_bar: Array
    last: Array
    dual: Dual
    dual_mean: Dual
    gap_bar: Array
    gap: Array
    x_before: Array
    T: int


class Trial(NamedTuple):
    """An outer iteration that is not accepted yet. facts: (agents here, `Facts`)."""

    weights: Weights
    moved: Moved
    x_under: Array
    y: Array
    conjugate: Array
    value_bar: Array
    facts: Array


def accepted(s: State, trial: Trial) -> State:
    """The state after the trial."""
    moved, (b, S, _) = trial.moved, trial.weights
    share = b / S
    return replace(
        s,
        k=s.k + 1,
        total=s.total + 1,
        S=S,
        x=moved.x,
        x_bar=moved.x_bar,
        last=moved.last,
        x_under=trial.x_under,
        y=trial.y,
        y_is_known=False,
        value_bar=trial.value_bar,
        dual=moved.dual,
        dual_bar=Dual(*(average(bar, new, share) for bar, new in zip(s.dual_bar, moved.dual_mean, strict=True))),
        y_bar=average(s.y_bar, trial.y, share),
        conjugate=trial.conjugate,
        conjugate_bar=trial.conjugate if s.k == 0 else average(s.conjugate_bar, trial.conjugate, share),
        gap_bar=moved.gap_bar,
        x_before=moved.x_before,
        b_before=b,
        T_before=moved.T,
    )


def on_trail(s: State, done: State) -> State:
    """The state after an iteration, with where it came from."""
    # A trail that comes from a checkpoint has lost its names.
    trail = (Point(*point[:-2], Dual(*point[-2]), Dual(*point[-1])) for point in s.trail)
    return replace(done, trail=(*(trail if s.trail else [_point(s)]), _point(done)))


def gone_back(s: State, k: int) -> State:
    """Where iteration k of this epoch led, with what has been learned since. Sums on their way are of an old course."""
    point = next(point for point in s.trail if point.k == k)
    memory = replace(s.memory, lagrangian=math.nan, steps=(), onset=0)
    return replace(s, **point._asdict(), course=s.course + 1, memory=memory, trail=(point,))


def _point(s: State) -> Point:
    return Point(*(getattr(s, name) for name in Point._fields))
