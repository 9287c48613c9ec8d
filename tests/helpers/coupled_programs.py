"""Random programs of coupled agents, and the same programs in one place."""

import numpy as np
from scipy.linalg import block_diag

from gradslide.methods.coupled_kkt import AgentProgram
from gradslide.problems.polyhedral import Polyhedral
from gradslide.programs.quadratic_program import minimize_qp


def random_programs(seed, m=6, k=6, curvature=1.0):
    """Programs of different dimensions with rows and bounds of their own, and bounds on the coupling rows.

    Half of the coupling rows are equations, one has two ends, others an upper one. Some variables have no bounds, and
    one is fixed.
    """
    rng = np.random.default_rng(seed)
    programs, at = [], np.zeros(k)
    for i in range(m):
        n, rows = int(rng.integers(2, 8)), int(rng.integers(0, 3))
        half, x, q = rng.normal(size=(n, n)), rng.normal(size=n), rng.normal(size=n)
        P = curvature * (half.T @ half / n + np.eye(n))
        K = rng.normal(size=(rows, n))
        low, high = K @ x - rng.exponential(size=rows), K @ x + rng.exponential(size=rows)
        low[:1] = high[:1] = (K @ x)[:1]
        lo, hi = x - rng.exponential(size=n), x + rng.exponential(size=n)
        if curvature > 0:
            lo[n // 2 :] = -np.inf
        if i == 0:
            lo[0] = hi[0] = x[0]
        A = rng.normal(size=(k, n)) * (rng.random(k) < 0.6)[:, None]
        at += A @ x
        X = Polyhedral(
            n,
            0,
            K,
            np.concatenate([low, lo]),
            np.concatenate([high, hi]),
            rng.normal(size=n),
            np.full(n, curvature / 10),
        )
        programs.append(AgentProgram(P, q, X, A))
    lower, upper = at.copy(), at.copy()
    upper[k // 2 :] += rng.exponential(size=k - k // 2)
    lower[k // 2 : -1] = -np.inf
    lower[-1] -= 1.0
    return programs, lower, upper


def infeasible_programs(seed):
    """A coupling row asks for more than the bounds of the agents allow."""
    programs, lower, upper = random_programs(seed, curvature=0.0)
    reach = sum(np.maximum(p.A[0] * p.X.upper[-len(p.q) :], p.A[0] * p.X.lower[-len(p.q) :]).sum() for p in programs)
    lower[0] = upper[0] = reach + 0.5
    return programs, lower, upper


def unbounded_programs(seed):
    """One agent gains from a variable that nothing holds."""
    programs, lower, upper = random_programs(seed)
    P, q, X, A = programs[2]
    n, rows = len(q), len(X.K)
    keep = np.append(np.ones(n - 1), 0.0)
    ends = [each.copy() for each in (X.lower, X.upper)]
    ends[0][-1], ends[1][-1] = 0.0, np.inf
    slope, diagonal = X.linear * keep - (1 - keep), X.diagonal * keep
    K = X.K * keep if rows else X.K
    ends[0][:rows] = -np.inf
    X = Polyhedral(n, 0, K, *ends, slope, diagonal)
    programs[2] = AgentProgram(P * np.outer(keep, keep), q * keep, X, A * keep)
    return programs, lower, upper


def pooled(programs, lower, upper):
    """P, q, K and ends of the same program in one place."""
    P = block_diag(*(p.P + np.diag(p.X.diagonal) for p in programs))
    q = np.concatenate([p.q + p.X.linear for p in programs])
    K = np.vstack([np.hstack([p.A for p in programs]), block_diag(*(p.X.K for p in programs))])

    def ends(shared, name):
        own = [np.split(getattr(p.X, name), [len(p.X.K)]) for p in programs]
        return np.concatenate([shared, *(rows for rows, _ in own), *(bounds for _, bounds in own)])

    return P, q, K, ends(lower, "lower"), ends(upper, "upper")


def in_one_place(programs, lower, upper):
    return minimize_qp(*pooled(programs, lower, upper))
