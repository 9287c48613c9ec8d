"""Theorems as functions: the bounds that hold after a given row of a schedule."""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradslide._support.errors import require, require_number
from gradslide._support.keywords import checked_arguments
from gradslide.theory.schedules import ONE_STAGE, Row, Schedule, theorem_1, theorem_2

# Candidates without progress after which a search ends.
_PATIENCE = 10
# The share of the first bound that is small enough.
_LITTLE = 1e-6


@dataclass(frozen=True)
class Bound:
    """Upper bounds on the error of the average x_bar.

    Attributes
    ----------
    objective : float
        Bound on f(x_bar) - f*, where f(x_bar) is the sum of the agents' own f_i(x_bar_i).
    residual : float
        Bound on ||A x_bar||.
    """

    objective: float
    residual: float


@checked_arguments
def gap(first: Row, last: Row, *, V: float, U: float) -> float:
    """Return a bound on the gap Q(w_bar, w) after one stage (`eq:Qest_proof`).

        Q(w_bar, w) <= beta_1/S [q_1/T_1 U + (eta_1^1/T_1 + p_1) V]

    Parameters
    ----------
    first, last : Row
        The stage's first row, and the last one that was run; S is the sum of beta up to it.
    V, U : float
        The bound holds for every w = (x, y, z) with V(x_0, x) <= V and U(z_0, z) <= U.

    Returns
    -------
    float
        The bound.
    """
    return first.beta / last.S * (first.q / first.T * U + (first.eta_1 / first.T + first.p) * V)


@checked_arguments
def lagrangian(first: Row, last: Row, *, V: float, z: float, z_0: float = 0.0) -> float:
    """Return a bound on f(x_bar) + <z, A x_bar> - f* after one stage (Proposition 1).

    Parameters
    ----------
    first, last : Row
        The stage's first row, and the last one that was run.
    V : float
        V(x_0, x*), summed over the agents, at the start of the stage.
    z : float
        The bound holds for every z of this norm.
    z_0 : float
        ||z_0|| at the start of the stage (0 in the paper).

    Returns
    -------
    float
        The bound.
    """
    return gap(first, last, V=V, U=(z + z_0) ** 2 / 2)


@checked_arguments
def proposition_1(first: Row, last: Row, *, V: float, z_star: float, z_0: float = 0.0) -> Bound:
    """Return the bounds of Proposition 1 after one stage.

    They are those of `lagrangian` at z = 0 and at z = (||z*|| + 1) A x_bar / ||A x_bar||.

    Parameters
    ----------
    first, last : Row
        The stage's first row, and the last one that was run.
    V : float
        V(x_0, x*), summed over the agents, at the start of the stage.
    z_star : float
        ||z*||.
    z_0 : float
        ||z_0|| at the start of the stage (0 in the paper).

    Returns
    -------
    Bound
        Bounds on objective and residual.
    """
    return Bound(
        objective=lagrangian(first, last, V=V, z=0.0, z_0=z_0),
        residual=lagrangian(first, last, V=V, z=z_star + 1, z_0=z_0),
    )


@checked_arguments
def objective_at_mean(first: Row, last: Row, *, V: float, z_mean: float, z_0: float = 0.0) -> float:
    """Return a bound on the sum of all f_i at the mean M of the agents, less f*.

    Parameters
    ----------
    first, last : Row
        The stage's first row, and the last one that was run.
    V : float
        V(x_0, x*), summed over the agents, at the start of the stage.
    z_mean : float
        The smallest norm of a z with A^T z = mean(g) - g_i, where g_i = f_i'(M);
        see `gradslide.theory.reference.multiplier_at`.
    z_0 : float
        ||z_0|| at the start of the stage.

    Returns
    -------
    float
        The bound.

    Notes
    -----
    f is convex, so f(M) <= f(x_bar) + <g, M - x_bar>. With that z, the right-hand side is
    f(x_bar) + <z, A x_bar>.
    """
    return lagrangian(first, last, V=V, z=z_mean, z_0=z_0)


@checked_arguments
def pds(N: int, *, L: float, R: float, V: float, z_star: float, A_norm: float, mu: float = 0.0) -> Bound:
    """Return the bounds of Theorem 1 after N outer iterations of one stage.

    They are `eq:fest_T` and `eq:Axest_T` with the exact sum of beta.

    Parameters
    ----------
    N : int
        The number of outer iterations.
    L, R, A_norm, mu : float
        The parameters of the schedule.
    V : float
        V(x_0, x*), summed over the agents.
    z_star : float
        ||z*||.

    Returns
    -------
    Bound
        Bounds on objective and residual.

    Examples
    --------
    >>> from gradslide import guarantees
    >>> bound = guarantees.pds(100, L=1.0, R=1.0, V=1.0, z_star=0.0, A_norm=2.0)
    >>> f"{bound.objective:.2e}"
    '7.92e-04'
    """
    return proposition_1(*_first_and_last(N, L=L, R=R, A_norm=A_norm, mu=mu), V=V, z_star=z_star)


@checked_arguments
def saddle(N: int, *, L: float, R: float, V: float, U: float, A_norm: float, mu: float = 0.0) -> float:
    """Return Theorem 3's bound on the gap Q(w_bar, w) after N outer iterations of one stage.

    It has the exact sum of beta. For A x = b, `pds` bounds objective and residual.

    Parameters
    ----------
    N : int
        The number of outer iterations.
    L, R, A_norm, mu : float
        The parameters of the schedule.
    V, U : float
        The bound holds for every w with V(x_0, x) <= V and U(z_0, z) <= U.

    Returns
    -------
    float
        The bound.
    """
    return gap(*_first_and_last(N, L=L, R=R, A_norm=A_norm, mu=mu), V=V, U=U)


def _first_and_last(N: int, *, L: float, R: float, A_norm: float, mu: float) -> tuple[Row, Row]:
    require_number("N", N, "the theorem holds after at least one outer iteration", least=1, whole=True)
    schedule = theorem_1(L=L, mu=mu, A_norm=A_norm, R=R, growth=ONE_STAGE)
    # Beyond double precision the last row of a stage stands for all later ones: its bound is larger.
    return schedule.row(1), schedule.row(int(min(N, schedule.stage_length)))


@checked_arguments
def proposition_2(rows: Iterable[Row], *, V: float, z_star: float, variance: float) -> Bound:
    """Return bounds on the expectations of f(x_bar) - f* and ||A x_bar|| with sampled gradients.

    They are `eq:fest_S` and `eq:Axbest_S`.

    Parameters
    ----------
    rows : iterable of Row
        The rows that were run.
    V : float
        V(x_0, x*) = |x_0 - x*|^2 / 2, summed over the agents.
    z_star : float
        ||z*||.
    variance : float
        m sigma^2, of the stacked gradient of one sample per agent (the paper's sigma^2 lacks the
        m).

    Returns
    -------
    Bound
        Bounds in expectation.
    """
    rows = list(rows)
    exact = proposition_1(rows[0], rows[-1], V=V, z_star=z_star)
    noise = sampling_error(rows, variance=variance)
    return Bound(exact.objective + noise, exact.residual + noise)


@checked_arguments
def sampling_error(rows: Sequence[Row], *, variance: float) -> float:
    """Return what sampling adds to bounds: sum_k beta_k m sigma^2/(p_k c_k) over sum_k beta_k.

    Parameters
    ----------
    rows : sequence of Row
        The rows that were run.
    variance : float
        m sigma^2, as for `proposition_2`.

    Returns
    -------
    float
        The additional error.
    """
    return math.fsum(row.beta * variance / (row.p * row.c) for row in rows) / rows[-1].S


@checked_arguments
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
    """Return the bounds of Theorem 2 in expectation.

    They are `eq:fest_T_S` and `eq:Axest_T_S` with the exact sums of beta and of the noise.

    Parameters
    ----------
    N : int
        The number of outer iterations.
    L, R, c, A_norm, mu : float
        The parameters of the schedule.
    sigma : float
        The root of the variance of one sample, averaged over the agents.
    m : int
        The number of agents.
    V : float
        V(x_0, x*) = |x_0 - x*|^2 / 2, summed over the agents.
    z_star : float
        ||z*||.

    Returns
    -------
    Bound
        Bounds in expectation.
    """
    schedule = theorem_2(N=N, L=L, mu=mu, A_norm=A_norm, R=R, c=c)
    return proposition_2(map(schedule.row, range(1, N + 1)), V=V, z_star=z_star, variance=m * sigma**2)


@checked_arguments
def spds_N(eps: float, *, L: float, distance: float, mu: float = 0.0) -> int:
    """Return the outer iterations for an eps-solution in expectation, with Theorem 2's R and c.

    Parameters
    ----------
    eps : float
        The accuracy.
    L, mu : float
        Smoothness and strong convexity.
    distance : float
        D = |x_0 - x*|, stacked over the agents.

    Returns
    -------
    int
        For mu = 0, ceil(sqrt(13 L D^2 / eps)). For mu > 0, after Delta, the first N with
        7 L D^2 / S_N <= eps, where S_N is the sum of beta; that is at most the theorem's N.
    """
    require_number("eps", eps, "give the accuracy", above=0)
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


@checked_arguments
def spds_N_for(samples: int, *, L: float, distance: float, sigma: float, mu: float = 0.0) -> int:
    """Return the outer iterations that make the best use of a number of samples per agent.

    Parameters
    ----------
    samples : int
        The number of samples per agent.
    L, mu : float
        Smoothness and strong convexity.
    distance : float
        |x_0 - x*|, stacked over the agents.
    sigma : float
        The root of the variance of one sample.

    Returns
    -------
    int
        The N with the smallest bound (optimization error plus sampling error), or the first one
        with a bound of a millionth of 4 L D^2.

    Notes
    -----
    It is a heuristic: agents that agree share their noise, so a variance of sigma^2/m each is
    assumed.
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


@checked_arguments
def spds_c(sigma: float, *, m: int, distance: float) -> float:
    """Return Theorem 2's scale of the batch sizes, with the variance of all m agents.

    Parameters
    ----------
    sigma : float
        The root of the variance of one sample, averaged over the agents.
    m : int
        The number of agents.
    distance : float
        D = |x_0 - x*|, stacked over the agents.

    Returns
    -------
    float
        c = 2 m sigma^2 / D^2.
    """
    require_number("sigma", sigma, "see gs.oracles.estimate_sigma", least=0)
    require_number("distance", distance, "an estimate of |x_0 - x*|, stacked over the agents", above=0)
    return 2 * m * sigma**2 / distance**2


@checked_arguments
def theory_R(*, V: float, z_star: float) -> float:
    """Return the R of Theorem 1 (`eq:R`), which balances objective and residual.

    Parameters
    ----------
    V : float
        V(x_0, x*), summed over the agents.
    z_star : float
        ||z*||, which grows with the graph.

    Returns
    -------
    float
        R = (||z*|| + 1)/(4 sqrt(V)), or 1 for V = 0.
    """
    if V == 0:
        # x_0 is optimal: the theorem holds for every R.
        return 1.0
    return (z_star + 1) / (4 * math.sqrt(V))


@checked_arguments
def saddle_R(*, V: float, U: float) -> float:
    """Return the R that balances the two terms of Theorem 3.

    The paper's choice holds for A x = b only.

    Parameters
    ----------
    V, U : float
        V(x_0, x*) and U(z_0, z*).

    Returns
    -------
    float
        R = sqrt(U/(8 V)), or 1 if V or U is 0.
    """
    return 1.0 if V == 0 or U == 0 else math.sqrt(U / (8 * V))


@checked_arguments
def iterations(eps: float, schedule: Schedule, *, V: float, z_star: float) -> int:
    """Return the first N with an eps-solution by Proposition 1; for mu > 0 within one stage.

    Parameters
    ----------
    eps : float
        The accuracy of objective and residual.
    schedule : Schedule
        The schedule.
    V : float
        V(x_0, x*), summed over the agents.
    z_star : float
        ||z*||.

    Returns
    -------
    int
        The number of outer iterations.

    Raises
    ------
    ValueError
        If one stage is too short.
    """
    first = None
    for row in schedule.rows():
        first = first or row
        if row.stage > 0:
            raise ValueError(f"one stage does not reach eps={eps:g}; raise `growth`")
        bound = proposition_1(first, row, V=V, z_star=z_star)
        if max(bound.objective, bound.residual) <= eps:
            return row.k
    raise AssertionError("schedules never end")
