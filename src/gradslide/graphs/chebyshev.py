"""Accelerated averaging: polynomials in the mixing matrix or the Laplacian."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from gradslide._support.types import Array

Exchange = Callable[[Array], Array]

# What rounding may do to a root that should be a whole number.
_ROUNDING = 1e-9


def fast_mix(mix: Exchange, v: Array, K: int, second: float) -> Array:
    """FastMix: apply v+ = (1 + e) W v - e v_- K times, with K exchanges; the mean is preserved.

    Parameters
    ----------
    mix : callable
        v -> W v, where W has no negative eigenvalue.
    v : ndarray, shape (m, d)
        The values of the agents.
    K : int
        Number of exchanges.
    second : float
        Second largest eigenvalue of W, which determines e.

    Returns
    -------
    ndarray, shape (m, d)

    Notes
    -----
    Liu, Morse, Annu. Rev. Control 35, 2011. The disagreement eventually decreases like
    (1 - sqrt(1 - second))^K; few exchanges may increase it.
    """
    root = math.sqrt(max(0.0, 1 - second**2))
    e = (1 - root) / (1 + root)
    before = v
    for _ in range(K):
        v, before = (1 + e) * mix(v) - e * before, v
    return v


def fast_mix_exchanges(second: float) -> int:
    """Return ceil(sqrt(chi)) with chi = 1/(1 - second), and a tenth more on large networks.

    FastMix then has no eigenvalue below -1/3, beyond which y = x + theta (x - x_-) with theta near
    1 increases the disagreement. ceil(sqrt(chi)) is too small for that from chi = 2,000 on.
    """
    root = math.sqrt(1 / (1 - second))
    return max(1, math.ceil(root - _ROUNDING), math.ceil(1.1 * root - 1))


def chebyshev(multiply: Exchange, v: Array, K: int, *, least: float, most: float) -> Array:
    """Return C v with C = I - T_K(c2 (I - c3 Lap))/T_K(c2), T_K Chebyshev's; K exchanges.

    Parameters
    ----------
    multiply : callable
        v -> Lap v.
    v : ndarray, shape (m, d)
        The values of the agents.
    K : int
        Degree of the polynomial.
    least, most : float
        Smallest nonzero and largest eigenvalue of Lap; c2 = (most + least)/(most - least) and
        c3 = 2/(most + least).

    Returns
    -------
    ndarray, shape (m, d)

    Notes
    -----
    Scaman et al., ICML 2017. C has the kernel of Lap. Its other eigenvalues lie between 11/15 and
    19/15 if K >= sqrt(most/least), and between 2/5 and 8/5 if K is that root rounded down.
    """
    if most == 0:
        return 0 * v
    rounds = _coefficients(K, least=least, most=most)
    moved = -multiply(rounds.first * v)
    u = v + moved
    for a, b in rounds.steps:
        moved *= a
        moved -= b * multiply(u)
        u = u + moved
    return v - u


def chebyshev_exchanges(condition: float) -> int:
    """Return floor(sqrt(chi)) with chi = most/least, at least 1."""
    return max(1, math.floor(math.sqrt(condition) + _ROUNDING))


def chebyshev_rounds(factor: float, *, least: float, most: float) -> int:
    """Return after how many exchanges v - C v, without its mean, is smaller than v by a factor."""
    if factor <= 1 or most == 0:
        return 0
    if most - least <= _ROUNDING * most:
        return 1
    return math.ceil(math.acosh(factor) / math.acosh((most + least) / (most - least)))


def damped_chebyshev(multiply: Exchange, v: Array, K: int, *, least: float, most: float) -> tuple[Array, Array]:
    """Return (r, q) with r = N q and v - r a damped Chebyshev polynomial in N of v; K exchanges.

    r is more accurate than a product with q. The damping keeps the eigenvalues of v -> r between 0 and 1.

    Parameters
    ----------
    multiply : callable
        v -> N v.
    v : ndarray, shape (m, d)
        The values of the agents.
    K : int
        Number of exchanges.
    least, most : float
        Eigenvalues of N between which v - r is to be small; `most` is at least the largest.

    Returns
    -------
    r, q : ndarray, shape (m, d)
    """
    rounds = damped_coefficients(K, least=least, most=most)
    q = rounds.first * v
    step, moved = 1 * q, -multiply(q)
    u = v + moved
    for a, b in rounds.steps:
        product = multiply(u)
        step *= a
        step += b * u
        moved *= a
        moved -= b * product
        # New arrays: a network may still hold the old ones.
        q, u = q + step, u + moved
    r = v - u
    return (r, q) if rounds.damping == 1 else (rounds.damping * r, rounds.damping * q)


class Coefficients(NamedTuple):
    """The polynomial v - N q as rounds of exchanges.

    q = step = first v, moved = -N q, u = v + moved; then for each (a, b) in `steps`:
    step = a step + b u, moved = a moved - b N u, q = q + step, u = u + moved; at last
    r = damping (v - u), q = damping q. u is v - N q without the rounding errors of q, which may be
    far larger than v.
    """

    first: float
    steps: tuple[tuple[float, float], ...]
    damping: float = 1.0


@lru_cache(maxsize=64)
def damped_coefficients(K: int, *, least: float, most: float) -> Coefficients:
    """Return the rounds of `damped_chebyshev`."""
    if K == 1 or most - least <= _ROUNDING * most:
        return Coefficients(1 / most, ())
    damping = 1 / (1 + _inverse_cosh(K * math.acosh((most + least) / (most - least))))
    return _coefficients(K, least=least, most=most)._replace(damping=damping)


def _coefficients(K: int, *, least: float, most: float) -> Coefficients:
    """u = T_K(c2 (I - c3 N)) v/T_K(c2) in K rounds, or in one where all eigenvalues are equal, which is exact then."""
    middle, half = (most + least) / 2, (most - least) / 2
    if K == 1 or most - least <= _ROUNDING * most:
        return Coefficients(1 / middle, ())
    c2, steps = middle / half, []
    # T_k(c2)/T_{k+1}(c2)
    ratio = 1 / c2
    for _ in range(K - 1):
        ratio_before, ratio = ratio, 1 / (2 * c2 - ratio)
        steps.append((ratio * ratio_before, 2 * ratio / half))
    return Coefficients(1 / middle, tuple(steps))


def _inverse_cosh(a: float) -> float:
    """1/cosh(a), a >= 0, which may underflow but not overflow."""
    return 2 * math.exp(-a) / (1 + math.exp(-2 * a))
