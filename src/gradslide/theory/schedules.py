"""The parameters of a method, row by row, as a theorem gives them: pure data, no solver.

A schedule is a frozen object; `schedule.row(n)` is the frozen `Row` of outer iteration n. `violations(rows,
...)` lists the conditions of Proposition 1 (`eq:cond_Qest_k` to `eq:cond_Qest_N`) that a run of rows breaks.
"""

import abc
import bisect
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from gradslide._support.errors import require, require_number

# Past this growth of sqrt(beta_k) a stage gains nothing in double precision.
_PRECISION_GROWTH = 1e8
# For `growth`: T_k may grow as far as double precision goes.
ONE_STAGE = 9e8
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class Row:
    """Parameters of outer iteration k of a stage.

    `S` is the sum of beta up to k. `q` and `eta(t)` weigh the dual and the primal prox terms of inner iteration t.
    `c` is the number of samples per agent; 0 where gradients are exact.
    """

    k: int
    stage: int
    tau: float
    lam: float
    beta: float
    S: float
    p: float
    T: int
    q: float
    alpha_1: float
    eta_1: float
    eta_slope: float
    c: int = 0

    @property
    def weight(self) -> float:
        """Share of x_hat_k in the average x_bar_k."""
        return self.beta / self.S

    def eta(self, t: int) -> float:
        return self.eta_1 + self.eta_slope * (t - 1)

    def alpha(self, t: int) -> float:
        return self.alpha_1 if t == 1 else 1.0


class Schedule(abc.ABC):
    """Row n = 1, 2, ... is a pure function of the frozen parameters."""

    L: float
    A_norm: float
    R: float
    mu: float

    @property
    def Delta(self) -> float:
        """The outer iteration past which parameters are geometric, if there is one."""
        return math.inf

    @property
    def stage_length(self) -> float:
        """Rows of a stage; without stages there is no end to it."""
        return math.inf

    @abc.abstractmethod
    def row(self, n: int) -> Row: ...

    def rows(self) -> Iterator[Row]:
        """All rows, for ever."""
        return map(self.row, itertools.count(1))


@dataclass(frozen=True)
class Convex(Schedule):
    """Theorem 1 for mu = 0 (`eq:par_beforeDelta`, `eq:par_allk`): T_k grows linearly, the bound falls like 1/k^2."""

    L: float
    A_norm: float
    R: float
    mu: float = field(default=0.0, init=False)

    def row(self, n: int) -> Row:
        k, T = n, self._T(n)
        p = 2 * self.L / k
        return Row(
            k=k,
            stage=0,
            tau=(k - 1) / 2,
            lam=(k - 1) / k,
            beta=k,
            S=k * (k + 1) / 2,
            p=p,
            T=T,
            q=self.L * T / (2 * k * self.R**2),
            alpha_1=1.0 if k == 1 else (k - 1) / k * T / self._T(k - 1),
            eta_1=p * T,
            eta_slope=p,
        )

    def _T(self, k: int) -> int:
        return max(1, math.ceil(k * self.R * self.A_norm / self.L))


@dataclass(frozen=True)
class StronglyConvex(Schedule):
    """Theorem 1 for mu > 0 (`eq:par_afterDelta`), in stages.

    tau is rounded up to ceil(2 tau)/2, so that every gradient is asked for inside X. T_k grows like
    1/sqrt(lambda^k): once it exceeds `growth` times its value at Delta, a new stage starts at the average
    reached so far, with the theorem's row k = 1.
    """

    L: float
    mu: float
    A_norm: float
    R: float
    growth: float = 64.0

    @cached_property
    def tau(self) -> float:
        return math.ceil(2 * math.sqrt(2 * self.L / self.mu)) / 2

    @cached_property
    def Delta(self) -> int:
        return round(2 * self.tau + 1)

    @cached_property
    def stage_length(self) -> int:
        """Rows before T_k, or the precision of beta_k, would run away."""
        T_most = self.growth * self._T(self.Delta + 1)
        most = self.Delta + 2 + math.ceil(2 * math.log(_PRECISION_GROWTH) / math.log1p(1 / self.tau))
        later = range(self.Delta + 1, most)
        return self.Delta + bisect.bisect_left(later, True, key=lambda k: self._T(k) > T_most)

    def row(self, n: int) -> Row:
        stage, k = divmod(n - 1, self.stage_length)
        k += 1
        early = k <= self.Delta
        tau, lam = (k - 1) / 2 if early else self.tau, (k - 1) / k if early else self.tau / (1 + self.tau)
        beta = k if early else self.Delta * self._growth(k) ** 2
        p = 2 * self.L / k if early else self.L / (1 + self.tau)
        T = self._T(k)
        return Row(
            k=k,
            stage=stage,
            tau=tau,
            lam=lam,
            beta=beta,
            S=k * (k + 1) / 2 if early else (1 + self.tau) * beta,
            p=p,
            T=T,
            q=self.L * T / (2 * beta * self.R**2),
            alpha_1=1.0 if k == 1 else lam * T / self._T(k - 1),
            eta_1=p * T,
            eta_slope=p + self.mu,
        )

    def _growth(self, k: int) -> float:
        """lambda^(-(k - Delta)/2)"""
        return math.pow(1 + 1 / self.tau, (k - self.Delta) / 2)

    def _T(self, k: int) -> int:
        scale = k if k <= self.Delta else 2 * (1 + self.tau) * self._growth(k)
        return max(1, math.ceil(scale * self.R * self.A_norm / self.L))


@dataclass(frozen=True)
class Linear(Schedule):
    """L = mu = 0: one gradient is enough. A primal-dual loop with p = 0, cut into outer iterations of T_k = k steps.

    eta q = ||A||^2 and beta_k = T_k satisfy the conditions of Proposition 1; eta/q = 8 R^2
    balances the two terms of its bound, which falls like 1/sum T_k.
    """

    A_norm: float
    R: float
    mu: float = field(default=0.0, init=False)
    L: float = field(default=0.0, init=False)

    def row(self, n: int) -> Row:
        k = n
        # A network without edges has ||A|| = 0: any positive eta will do.
        eta = math.sqrt(8) * self.R * (self.A_norm or 1.0)
        return Row(
            k=k,
            stage=0,
            tau=0.0,
            lam=(k - 1) / k,
            beta=k,
            S=k * (k + 1) / 2,
            p=0.0,
            T=k,
            q=eta / (8 * self.R**2),
            alpha_1=1.0,
            eta_1=eta,
            eta_slope=0.0,
        )


def theorem_1(*, L: float, mu: float, A_norm: float, R: float, growth: float = 64.0) -> Schedule:
    """The schedule of Theorem 1 that fits L and mu.

    L: smoothness of every ft_i; mu: strong convexity; A_norm: ||A||; R: balance of dual against primal distance;
    growth: how much T_k may grow past Delta before a new stage starts (mu > 0 only).
    """
    require_number("L", L, "give the smoothness constant of the losses", least=0)
    require_number("R", R, "try R=1, or leave it out for an estimate", above=0)
    require_number("mu", mu, "use mu=0 for convex problems", least=0)
    require_number("||A||", A_norm, "check the network", least=0)
    require_number("growth", growth, "leave it out for the default", above=1, most=1e9)
    L, mu, A_norm, R, growth = float(L), float(mu), float(A_norm), float(R), float(growth)
    if mu == 0 and L == 0:
        return Linear(A_norm=A_norm, R=R)
    if mu == 0:
        return Convex(L=L, A_norm=A_norm, R=R)
    # A larger L is a valid one too; below mu/8 it would leave tau as it is and only make T_k larger. The gradients of a
    # linear f are free: T_1 = 1 then.
    least = mu / 8 if L > 0 else max(mu / 8, R * A_norm)
    return StronglyConvex(L=max(L, least), mu=mu, A_norm=A_norm, R=R, growth=growth)


@dataclass(frozen=True)
class Sampled(Schedule):
    """Theorem 2: sampled gradients, N outer iterations fixed ahead (`eq:par_beforeDelta_S` to `eq:par_allk_S`).

    All but the batch sizes c_k is Theorem 1 at 2 L and 2 R: p_k = 4 L/k, then 2 L/(1 + tau), tau = 2 sqrt(L/mu), q_k =
    L T_k/(4 beta_k R^2), and the same T_k. One stage, however large T_k grows: N is the caller's.
    """

    L: float
    mu: float
    A_norm: float
    R: float
    N: int
    c: float

    @cached_property
    def exact(self) -> Schedule:
        """The rows without batch sizes."""
        return theorem_1(L=2 * self.L, mu=self.mu, A_norm=self.A_norm, R=2 * self.R, growth=ONE_STAGE)

    @property
    def Delta(self) -> float:
        return self.exact.Delta

    @property
    def stage_length(self) -> float:
        """The largest N: past it T_k is beyond all measure."""
        return self.exact.stage_length

    @cached_property
    def samples(self) -> int:
        """What all N batches take, per agent."""
        return sum(self.row(n).c for n in range(1, self.N + 1))

    def row(self, n: int) -> Row:
        row = self.exact.row(n)
        return replace(row, c=_batch_size(self._share(row) * self.c))

    def _share(self, row: Row) -> float:
        """c_k / c, before it is rounded up."""
        if row.k <= self.Delta:
            return min(self.N, self.Delta) * row.beta / (row.p * self.L)
        growth = math.pow(1 + 1 / row.tau, (row.k + self.N - 2 * self.Delta) / 2)
        return (1 + row.tau) ** 2 * self.Delta * growth / self.L**2

    def with_samples(self, samples: int) -> "Sampled":
        """The same, with the largest c whose batches take no more than so many samples per agent in all."""
        shares = [self._share(self.exact.row(n)) for n in range(1, self.N + 1)]
        # Rounding up adds less than one sample per batch.
        low, high = max(0, samples - self.N) / math.fsum(shares), samples / math.fsum(shares)
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            if sum(_batch_size(share * middle) for share in shares) <= samples:
                low = middle
            else:
                high = middle
        return replace(self, c=low)


def _batch_size(c_k: float) -> int:
    # A whole number that rounding has lifted a little is that number.
    return max(1, math.ceil(c_k * (1 - 1e-12)))


def theorem_2(*, N: int, L: float, mu: float, A_norm: float, R: float, c: float) -> Sampled:
    """The schedule of Theorem 2.

    N: outer iterations, fixed ahead; L, mu, A_norm, R: as in `theorem_1`; c: scale of the batch sizes.
    """
    require_number("N", N, "give the number of outer iterations", least=1, whole=True)
    require_number("L", L, "every constant larger than the smoothness of the losses will do", above=0)
    require_number("c", c, "Theorem 2's choice is 2 m sigma^2 / |x_0 - x*|^2", least=0)
    theorem_1(L=L, mu=mu, A_norm=A_norm, R=R)
    # As in Theorem 1, whose L is twice this one.
    L = max(float(L), float(mu) / 16)
    schedule = Sampled(L=L, mu=float(mu), A_norm=float(A_norm), R=float(R), N=int(N), c=float(c))
    require(
        schedule.stage_length >= N,
        f"N must be at most {schedule.stage_length} for L = {L:g} and mu = {mu:g}",
        N,
        "lower N; T_k grows past all measure",
    )
    most = schedule._share(schedule.exact.row(N)) * schedule.c
    require(
        most <= _MOST_SAMPLES,
        f"a batch can hold {_MOST_SAMPLES:g} samples",
        f"{most:.3g} in outer iteration {N}",
        "lower N or c",
    )
    return schedule


def violations(rows: Iterable[Row], *, L: float, mu: float, A_norm: float, tolerance: float = 1e-9) -> list[str]:
    """The conditions of Proposition 1 that the rows of one stage break, in words; none for a valid schedule.

    Those of Theorem 2 (`eq:cond_modified_S`) are the same with 2 L in place of L.
    """
    broken: list[str] = []

    def check(label: str, k: int, smaller: float, larger: float) -> None:
        if smaller > larger + tolerance * (abs(smaller) + abs(larger)):
            broken.append(f"k={k}: {label}: {smaller:.6g} > {larger:.6g}")

    def equal(label: str, k: int, one: float, other: float) -> None:
        check(label, k, one, other)
        check(label, k, other, one)

    previous: Row | None = None
    for row in rows:
        k = row.k
        if previous is None:
            equal("tau_1 = 0", k, row.tau, 0.0)
        else:
            last = previous
            eta_last = last.eta(last.T)
            check(
                "beta_k tau_k <= beta_{k-1} (tau_{k-1} + 1)",
                k,
                row.beta * row.tau,
                last.beta * (last.tau + 1),
            )
            equal("beta_{k-1} = beta_k lambda_k", k, last.beta, row.beta * row.lam)
            check("L lambda_k <= p_{k-1} tau_k", k, L * row.lam, last.p * row.tau)
            equal(
                "beta_k T_{k-1} alpha_k^1 = beta_{k-1} T_k",
                k,
                row.beta * last.T * row.alpha_1,
                last.beta * row.T,
            )
            check("alpha_k^1 ||A||^2 <= eta_{k-1}^T q_k^1", k, row.alpha_1 * A_norm**2, eta_last * row.q)
            check(
                "beta_k T_{k-1} q_k <= beta_{k-1} T_k q_{k-1}",
                k,
                row.beta * last.T * row.q,
                last.beta * row.T * last.q,
            )
            check(
                "beta_k T_{k-1} (eta_k^1 + p_k T_k) <= beta_{k-1} T_k (mu + eta_{k-1}^T + p_{k-1})",
                k,
                row.beta * last.T * (row.eta_1 + row.p * row.T),
                last.beta * row.T * (mu + eta_last + last.p),
            )
        if row.T > 1:
            check("||A||^2 <= eta_k^{t-1} q_k", k, A_norm**2, min(row.eta(1), row.eta(row.T - 1)) * row.q)
            check("eta_k^t <= mu + eta_k^{t-1} + p_k", k, row.eta_slope, mu + row.p)
        check("p_N (tau_N + 1) >= L", k, L, row.p * (row.tau + 1))
        check("eta_N^T q_N >= ||A||^2", k, A_norm**2, row.eta(row.T) * row.q)
        previous = row
    return broken
