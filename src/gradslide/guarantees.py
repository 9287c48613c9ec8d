"""Theorems as functions: what a method promises after a given row of its schedule."""

import math
from dataclasses import dataclass

from gradslide.errors import require_number
from gradslide.schedules import Row, Schedule, StronglyConvex, theorem_1


@dataclass(frozen=True)
class Bound:
    """Upper bounds on f(x_bar) - f* (sum of the agents' own f_i(x_bar_i)) and on ||A x_bar||."""

    objective: float
    residual: float


def lagrangian(first: Row, last: Row, *, V: float, z: float, z_0: float = 0.0) -> float:
    """Bound on f(x_bar) + <z, A x_bar> - f* for every z of norm `z`, after one stage (Proposition 1).

    first, last: the stage's first row and the last one that was run. V: V(x_0, x*), summed over the agents, at the
    start of the stage. z_0: ||z_0|| at the start of the stage (0 in the paper).
    """
    return first.beta / last.S * (first.q / (2 * first.T) * (z + z_0) ** 2 + (first.eta_1 / first.T + first.p) * V)


def proposition_1(first: Row, last: Row, *, V: float, z_star: float, z_0: float = 0.0) -> Bound:
    """Proposition 1: the Lagrangian's bound at z = 0 and at z = (||z*|| + 1) A x_bar / ||A x_bar||."""
    return Bound(
        objective=lagrangian(first, last, V=V, z=0.0, z_0=z_0),
        residual=lagrangian(first, last, V=V, z=z_star + 1, z_0=z_0),
    )


def objective_at_mean(first: Row, last: Row, *, V: float, z_mean: float, z_0: float = 0.0) -> float:
    """Bound on the sum of all f_i at the mean M of the agents, less f*.

    f is convex, so f(M) <= f(x_bar) + <g, M - x_bar> with g_i = f_i'(M); and if A^T z = mean(g) - g_i, that is
    f(x_bar) + <z, A x_bar>. z_mean: the smallest norm of such a z.
    """
    return lagrangian(first, last, V=V, z=z_mean, z_0=z_0)


def pds(N: int, *, L: float, R: float, V: float, z_star: float, A_norm: float, mu: float = 0.0) -> Bound:
    """Theorem 1 (`eq:fest_T`, `eq:Axest_T`) after N outer iterations of one stage, with the exact sum of beta."""
    require_number("N", N, "the theorem speaks of the average after at least one outer iteration", least=1, whole=True)
    schedule = theorem_1(L=L, mu=mu, A_norm=A_norm, R=R, growth=9e8)
    # Past what double precision can hold of a stage its last row stands for all later ones: its bound is larger.
    longest = schedule.stage_length if isinstance(schedule, StronglyConvex) else N
    return proposition_1(schedule.row(1), schedule.row(min(N, longest)), V=V, z_star=z_star)


def theory_R(*, V: float, z_star: float) -> float:
    """The R of Theorem 1 (`eq:R`), which balances objective and residual: it grows with ||z*||, and so with
    the graph."""
    if V == 0:
        # x_0 is optimal: the theorem asks for no R, and any will do.
        return 1.0
    return (z_star + 1) / (4 * math.sqrt(V))


def iterations(eps: float, schedule: Schedule, *, V: float, z_star: float) -> int:
    """The first N at which the theorem promises an eps-solution; for mu > 0 within one stage."""
    first = None
    for row in schedule.rows():
        first = first or row
        if row.stage > 0:
            raise ValueError(f"one stage does not reach eps={eps:g}; raise `growth`")
        bound = proposition_1(first, row, V=V, z_star=z_star)
        if max(bound.objective, bound.residual) <= eps:
            return row.k
    raise AssertionError("schedules never end")
