"""The records of the state of `AutoPDS`, and those that an outer iteration passes on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from gradslide._support.arrays import without_columns
from gradslide._support.types import Array
from gradslide.methods.base import Copied
from gradslide.methods.gossip.sums import Products, Unfinished
from gradslide.network.coupling import Dual


class Averages(NamedTuple):
    """Averages over the iterations of this epoch with weights b, for a lower bound on the optimum.

    Attributes
    ----------
    y_bar
        Of the gradients y of ft_i.
    conjugate_bar
        Of ft_i*(y_i), one number per agent.
    dual_bar
        Of the multipliers; `dual_bar.s` is that of the last iteration where the inner loop follows
        the Lagrangian, which does not need the average.
    iterations
        The number of iterations, also those that a rollback discarded.
    """

    y_bar: Array
    conjugate_bar: Array
    dual_bar: Dual
    iterations: int = 0


class Iterate(NamedTuple):
    """The result of outer iteration k of an epoch.

    Attributes
    ----------
    k
        Outer iterations in this epoch.
    P, S, b
        As in rule 4: P of this epoch, S = b_1 + ... + b_k, and b_k.
    x, x_bar
        The iterate, and the average. No step overwrites an average.
    last
        The last point in X.
    value_bar
        The smooth part of f_i at x_bar, one number per agent; None if the next iteration computes it.
    scores, scores_before
        The scores of x_bar, as far as value_bar is known, and of the average before; None if the loss has
        none. x_under is x_bar + theta (x_bar - x_bar_before): so the product that gives the scores of x_bar,
        and the one that gives the gradient at x_under, are all that an outer iteration takes. The scores of
        every x_bar come from a product of their own: rounding errors do not accumulate.
    Cx_bar
        C x_bar with C = I - mix: the difference between x_bar and its mixed copy. Without columns
        where the inner loop follows the Lagrangian.
    dual
        The multipliers; `dual.w` is w of rule 4.
    averages
        For the certificate. A step may overwrite y_bar and dual_bar.w. A rollback does not restore them:
        every weighted average of gradients and multipliers gives a lower bound.
    """

    k: int
    P: float
    S: float
    b: float
    x: Array
    x_bar: Array
    last: Array
    value_bar: Array | None
    scores: Array | None
    scores_before: Array | None
    Cx_bar: Array
    dual: Dual
    averages: Averages

    def without_averages(self) -> "Iterate":
        """Return what a rollback restores."""
        nothing = without_columns(self.x)
        return self._replace(averages=Averages(nothing, nothing, Dual(nothing, nothing)))

    @classmethod
    def from_tuple(cls, saved: Sequence[object]) -> "Iterate":
        """Return the iterate that a checkpoint holds as nested plain tuples."""
        *rest, dual, (y_bar, conjugate_bar, dual_bar, iterations) = cast(Sequence[Any], saved)
        return cls._make((*rest, Dual(*dual), Averages(y_bar, conjugate_bar, Dual(*dual_bar), iterations)))


class Gradient(NamedTuple):
    """The last gradient.

    Attributes
    ----------
    x_under
        Where it was evaluated. Without columns where no later step needs it.
    y
        The gradient of ft_i.
    value
        ft_i(x_under_i); NaN where the loss has no values.
    conjugate
        ft_i*(y_i) = <x_under_i, y_i> - ft_i(x_under_i); NaN where the loss has no values.
    reach
        |x_under_i|.
    is_current
        True if the next outer iteration starts with it and needs no new one.
    """

    x_under: Array
    y: Array
    value: Array
    conjugate: Array
    reach: Array
    is_current: bool = False


class Smoothness(NamedTuple):
    """The estimate L, and what the agents remember of how it was found.

    Attributes
    ----------
    L
        The estimate.
    slack
        Sum of S_k viol_k over this epoch, never positive: rule (d), exact sums only.
    largest
        The largest curvature observed in this epoch.
    has_risen, has_risen_now
        L rose at some time; in this epoch.
    falls
        Late sums in a row that have let L fall since it last rose.
    edge
        Twice the L that was last found too small after a calm period, or 0.
    failed_at
        The iteration of this epoch at which that was found, if it was recently, or 0.
    """

    L: float
    slack: float = 0.0
    largest: float = 0.0
    has_risen: bool = False
    has_risen_now: bool = False
    falls: int = 0
    edge: float = 0.0
    failed_at: int = 0


class Progress(NamedTuple):
    """What the tests for a restart, and the rule for K, remember.

    Attributes
    ----------
    lagrangian
        Lam_j at the last iteration of this epoch whose sums are known.
    changes
        Its last changes g_j = Lam_j - Lam_{j-1}, at most three.
    error
        The last known residual, E.
    error_before
        E at the last restart that counted, E_ref.
    failures
        Restarts in a row that hardly lowered E.
    residuals
        Squares of the residuals of the better point: of the coupling, and of stationarity.
    last_is_better
        True if that point is the last one, False if it is the average.
    """

    lagrangian: float = math.nan
    changes: tuple[float, ...] = ()
    error: float = math.nan
    error_before: float = math.nan
    failures: int = 0
    residuals: tuple[float, float] = (0.0, 0.0)
    last_is_better: bool = False


class LateSums(NamedTuple):
    """Sums that complete some exchanges after they were started, and what allows a rollback.

    Attributes
    ----------
    generation
        Increases with every restart and rollback: sums of an older generation describe discarded
        iterations.
    outstanding
        (generation, k) of the sums that have not completed, the oldest first.
    snapshots
        Two iterates of this epoch at most: one that any rollback may return to, and a later one,
        which replaces it once no rollback goes further back.
    last_rollback
        To which iteration of this epoch the last rollback went, and with which L.
    """

    generation: int = 0
    outstanding: tuple[tuple[int, int], ...] = ()
    snapshots: tuple[Iterate, ...] = ()
    last_rollback: tuple[int, float] = (-1, 0.0)


class Tuning(NamedTuple):
    """How gradients are balanced against exchanges.

    Attributes
    ----------
    K
        Exchanges per gradient.
    R
        The weight of consensus, of "own" and "sliding"; 0 for "shared".
    balance
        How many rounds a gradient is worth.
    is_measured
        False as long as ``balance="measure"`` has not been measured.
    """

    K: int
    R: float = 0.0
    balance: float = 1.0
    is_measured: bool = True


class Sliding(NamedTuple):
    """The previous inner loop of prox sliding: its last iterate but one, weight b and length T."""

    x_before: Array
    b: float = 0.0
    T: int = 1


@dataclass(frozen=True)
class State(Copied):
    """The state of `AutoPDS`.

    Attributes
    ----------
    total
        Outer iterations in all.
    epoch
        Restarts so far.
    follows_lagrangian
        True if restarts follow the Lagrangian, False if they follow residuals.
    iterate, gradient, smoothness, progress, late, tuning, sliding
        See these records.
    unfinished
        The sums of the last iteration, where sums complete late.
    """

    total: int
    epoch: int
    follows_lagrangian: bool
    iterate: Iterate
    gradient: Gradient
    smoothness: Smoothness
    progress: Progress
    late: LateSums
    tuning: Tuning
    sliding: Sliding
    unfinished: Unfinished | None = None


class StepWeights(NamedTuple):
    """The weights of an outer iteration.

    Attributes
    ----------
    b, S, p
        b, S' = S + b and p = P/b of rule (a).
    is_final
        True if the iteration is accepted in any case: then it may overwrite averages.
    """

    b: float
    S: float
    p: float
    is_final: bool = False


class InnerOutput(NamedTuple):
    """The result of an inner loop.

    Attributes
    ----------
    x, x_bar, last, dual, Cx_bar
        As in `Iterate`.
    y_bar, dual_bar
        As in `Averages`.
    x_before
        The inner iterate before x.
    products
        See `Products`.
    residuals
        Squares, per agent: of stationarity and of the coupling, <x, C x>, at the averages; then at the last
        point.
    T
        Inner iterations taken.
    """

    x: Array
    x_bar: Array
    last: Array
    dual: Dual
    y_bar: Array
    dual_bar: Dual
    Cx_bar: Array
    x_before: Array
    products: Products
    residuals: tuple[Array, Array, Array, Array]
    T: int = 1


class Attempt(NamedTuple):
    """An outer iteration that is not accepted yet.

    Attributes
    ----------
    after
        The state once it is accepted.
    sums
        One row per agent here, with the fields of `Sums`; None where the next iteration starts them.
    started_from
        The iterate that it started from, with the value and the scores of x_bar.
    """

    after: State
    sums: Array | None
    started_from: Iterate
