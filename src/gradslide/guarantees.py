"""Theorems as functions: what a method promises after a given row of its schedule."""

import math
from dataclasses import dataclass
from itertools import islice

from gradslide.schedules import Row, Schedule, theorem_1


@dataclass(frozen=True)
class Bound:
    """Upper bounds on f(x_bar) - f* (sum of the agents' own f_i(x_bar_i)) and on ||A x_bar||."""

    objective: float
    residual: float


def proposition_1(first: Row, last: Row, *, V: float, z_star: float, z_0: float = 0.0) -> Bound:
    """Proposition 1 for one stage, from its first row and the last one that was run.

    V: V(x_0, x*), summed over the agents, at the start of the stage; z_star: ||z*||; z_0: ||z_0|| at the start
    of the stage (0 in the paper; Q(w_bar, .) <= ... at z = 0 and at z = (||z*|| + 1) A x_bar / ||A x_bar||
    gives the terms for z_0 != 0).
    """
    primal = (first.eta_1 / first.T + first.p) * V
    dual = first.q / (2 * first.T)
    scale = first.beta / last.S
    return Bound(
        objective=scale * (dual * z_0**2 + primal),
        residual=scale * (dual * (z_0 + z_star + 1) ** 2 + primal),
    )


def pds(N: int, *, L: float, R: float, V: float, z_star: float, A_norm: float, mu: float = 0.0) -> Bound:
    """Theorem 1 (`eq:fest_T`, `eq:Axest_T`) after N outer iterations of one stage, with the exact sum of beta."""
    rows = list(islice(theorem_1(L=L, mu=mu, A_norm=A_norm, R=R, growth=9e8).rows(), N))
    return proposition_1(rows[0], rows[-1], V=V, z_star=z_star)


def theory_R(*, V: float, z_star: float) -> float:
    """The R of Theorem 1 (`eq:R`), which balances objective and residual: it grows with ||z*||, and so with
    the graph."""
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
