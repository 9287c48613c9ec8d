"""Theorems as functions: what a method promises after a given row of its schedule."""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradslide._support.errors import require, require_number
from gradslide.theory.schedules import ONE_STAGE, Row, Schedule, theorem_1, theorem_2

# Candidates without progress after which a search gives up.
_PATIENCE = 10
# Share of the first bound below which it is small enough.
_LITTLE = 1e-6


@dataclass(frozen=True)
class Bound:
    """Upper bounds on f(x_bar) - f* (sum of the agents' own f_i(x_bar_i)) and on ||A x_bar||."""

    objective: float
    residual: float


def gap(first: Row, last: Row, *, V: float, U: float) -> float:
    """Bound on Q(w_bar, w) for every w = (x, y, z) with V(x_0, x) <= V and U(z_0, z) <= U, after one stage
    (`eq:Qest_proof`).

    first, last: the stage's first row and the last one that was run.
    """
    return first.beta / last.S * (first.q / first.T * U + (first.eta_1 / first.T + first.p) * V)


def lagrangian(first: Row, last: Row, *, V: float, z: float, z_0: float = 0.0) -> float:
    """Bound on f(x_bar) + <z, A x_bar> - f* for every z of norm `z`, after one stage (Proposition 1).

    first, last: the stage's first row and the last one that was run. V: V(x_0, x*), summed over the agents, at the
    start of the stage. z_0: ||z_0|| at the start of the stage (0 in the paper).
    """
    return gap(first, last, V=V, U=(z + z_0) ** 2 / 2)


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
    return proposition_1(*_first_and_last(N, L=L, R=R, A_norm=A_norm, mu=mu), V=V, z_star=z_star)


def saddle(N: int, *, L: float, R: float, V: float, U: float, A_norm: float, mu: float = 0.0) -> float:
    """Theorem 3: the gap Q(w_bar, w) after N outer iterations of one stage, for every w with V(x_0, x) <= V and
    U(z_0, z) <= U; with the exact sum of beta. For A x = b, `pds` bounds objective and residual."""
    return gap(*_first_and_last(N, L=L, R=R, A_norm=A_norm, mu=mu), V=V, U=U)


def _first_and_last(N: int, *, L: float, R: float, A_norm: float, mu: float) -> tuple[Row, Row]:
    require_number("N", N, "the theorem speaks of the average after at least one outer iteration", least=1, whole=True)
    schedule = theorem_1(L=L, mu=mu, A_norm=A_norm, R=R, growth=ONE_STAGE)
    # Past what double precision can hold of a stage its last row stands for all later ones: its bound is larger.
    return schedule.row(1), schedule.row(int(min(N, schedule.stage_length)))


def proposition_2(rows: Iterable[Row], *, V: float, z_star: float, variance: float) -> Bound:
    """Bounds on the expectations of f(x_bar) - f* and ||A x_bar|| after these rows (`eq:fest_S`, `eq:Axbest_S`).

    V: V(x_0, x*) = |x_0 - x*|^2 / 2, summed over the agents. variance: m sigma^2, of the stacked gradient of one sample
    per agent (the paper's sigma^2 lacks the m).
    """
    rows = list(rows)
    exact = proposition_1(rows[0], rows[-1], V=V, z_star=z_star)
    noise = sampling_error(rows, variance=variance)
    return Bound(exact.objective + noise, exact.residual + noise)


def sampling_error(rows: Sequence[Row], *, variance: float) -> float:
    """What sampling adds to every bound after these rows: sum_k beta_k m sigma^2 / (p_k c_k), over the sum of beta."""
    return math.fsum(row.beta * variance / (row.p * row.c) for row in rows) / rows[-1].S


def spds(
    N: int,
    *,
    L: float,
    R: float,
    c: float,
    sigma: float,
    m: int,
    V: float,
    z_star: float,
    A_norm: float,
    mu: float = 0.0,
) -> Bound:
    """Theorem 2 (`eq:fest_T_S`, `eq:Axest_T_S`), in expectation, with the exact sums of beta and of the noise."""
    schedule = theorem_2(N=N, L=L, mu=mu, A_norm=A_norm, R=R, c=c)
    return proposition_2(map(schedule.row, range(1, N + 1)), V=V, z_star=z_star, variance=m * sigma**2)


def spds_N(eps: float, *, L: float, distance: float, mu: float = 0.0) -> int:
    """Outer iterations after which Theorem 2, with its R and c, promises an eps-solution in expectation.

    mu = 0: ceil(sqrt(13 L D^2 / eps)), D = distance = |x_0 - x*|, stacked. mu > 0: past Delta the first N with
    7 L D^2 / S_N <= eps, S_N the sum of beta; that is at most the theorem's N.
    """
    require_number("eps", eps, "the accuracy that is wanted", above=0)
    require_number("L", L, "every constant larger than the smoothness of the losses will do", above=0)
    require_number("distance", distance, "an estimate of |x_0 - x*|, stacked over the agents", above=0)
    schedule = theorem_2(N=1, L=L, mu=mu, A_norm=0.0, R=1.0, c=0.0)
    # The schedule's L may be larger.
    L = schedule.L
    N = max(1, math.ceil(math.sqrt(13 * L * distance**2 / eps)))
    if schedule.Delta >= N:
        return N
    later = range(int(schedule.Delta) + 1, int(schedule.stage_length) + 1)
    enough = bisect.bisect_left(later, True, key=lambda k: 7 * L * distance**2 <= eps * schedule.row(k).S)
    require(enough < len(later), "eps must be within double precision", eps, "raise eps")
    return later[enough]


def spds_N_for(samples: int, *, L: float, distance: float, sigma: float, mu: float = 0.0) -> int:
    """Outer iterations that make the most of so many samples per agent: where what is left of the way to x* and what
    sampling adds are smallest together, or the way has become a millionth. A guess: agents that agree share their
    noise, so it is taken as sigma^2/m each.
    """
    best, best_N, N, worse = math.inf, 1, 1, 0
    little = _LITTLE * 4 * L * distance**2
    longest = theorem_2(N=1, L=L, mu=mu, A_norm=0.0, R=1.0, c=0.0).stage_length
    while N <= min(samples, longest) and worse < _PATIENCE and best > little:
        schedule = theorem_2(N=N, L=L, mu=mu, A_norm=0.0, R=1.0, c=0.0).with_samples(samples)
        rows = map(schedule.row, range(1, N + 1))
        bound = proposition_2(rows, V=distance**2 / 2, z_star=0.0, variance=sigma**2).objective
        worse = worse + 1 if bound >= best else 0
        best, best_N = min((best, best_N), (bound, N))
        N = max(N + 1, round(1.1 * N))
    return best_N


def spds_c(sigma: float, *, m: int, distance: float) -> float:
    """Theorem 2's scale of the batch sizes, with the variance of all m agents: 2 m sigma^2 / D^2."""
    require_number("sigma", sigma, "see gs.oracles.estimate_sigma", least=0)
    require_number("distance", distance, "an estimate of |x_0 - x*|, stacked over the agents", above=0)
    return 2 * m * sigma**2 / distance**2


def theory_R(*, V: float, z_star: float) -> float:
    """The R of Theorem 1 (`eq:R`), which balances objective and residual: it grows with ||z*||, and so with
    the graph."""
    if V == 0:
        # x_0 is optimal: the theorem asks for no R, and any will do.
        return 1.0
    return (z_star + 1) / (4 * math.sqrt(V))


def saddle_R(*, V: float, U: float) -> float:
    """The R that balances the two terms of Theorem 3 (the paper's holds for A x = b only): sqrt(U/(8 V))."""
    return 1.0 if V == 0 or U == 0 else math.sqrt(U / (8 * V))


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
