"""The parameters of PDS and SPDS as Theorems 1 and 2 give them: pure data, no solver.

A schedule is a frozen object; `schedule.row(n)` is the frozen `Row` of outer iteration n.
`violations` lists the conditions of Proposition 1 (`eq:cond_Qest_k` to `eq:cond_Qest_N`) that a
sequence of rows violates.
"""

import abc
import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gradslide._support.errors import require, require_number
from gradslide._support.keywords import CheckedArguments, checked_arguments

# Beyond this growth of sqrt(beta_k) a stage gains nothing in double precision.
_PRECISION_GROWTH = 1e8
# A value of `growth`: T_k may grow as far as double precision allows.
ONE_STAGE = 9e8
_MOST_SAMPLES = 1e15


@dataclass(frozen=True, slots=True)
class Row:
    """The parameters of one outer iteration.

    Attributes
    ----------
    k : int
        The outer iteration within its stage, from 1 on.
    stage : int
        The stage, from 0 on. A stage starts at the average that the one before it reached.
    tau, lam : float
        tau_k and lambda_k of the extrapolation: x_tilde = x_{k-1} + lambda_k (x_hat_{k-1} -
        x_{k-2}) and x_under_k = (x_tilde + tau_k x_under_{k-1})/(1 + tau_k).
    beta, S : float
        The weight beta_k of outer iteration k in averages, and the sum of beta_1, ..., beta_k.
    p : float
        p_k, the weight of V(x_{k-1}, x) in the prox steps.
    T : int
        T_k, the number of inner iterations.
    q : float
        q_k, the weight of the dual prox term.
    alpha_1 : float
        alpha_k^1, the extrapolation of the first inner iteration.
    eta_1, eta_slope : float
        eta_k^t = eta_1 + (t - 1) eta_slope, the weight of the primal prox term.
    c : int
        c_k, the number of samples per agent; 0 if gradients are exact.
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
        """The share beta_k / S of x_hat_k in the average x_bar_k.

        Returns
        -------
        float
            In (0, 1].
        """
        return self.beta / self.S

    def eta(self, t: int) -> float:
        """Return eta_k^t, the weight of the primal prox term.

        Parameters
        ----------
        t : int
            The inner iteration, from 1 to T.

        Returns
        -------
        float
            eta_1 + (t - 1) eta_slope.
        """
        return self.eta_1 + self.eta_slope * (t - 1)

    def alpha(self, t: int) -> float:
        """Return alpha_k^t, the extrapolation of inner iteration t.

        Parameters
        ----------
        t : int
            The inner iteration, from 1 to T.

        Returns
        -------
        float
            alpha_1 for t = 1, else 1.
        """
        return self.alpha_1 if t == 1 else 1.0


class Schedule(CheckedArguments, abc.ABC):
    """Base class of schedules: row n = 1, 2, ... is a pure function of frozen parameters.

    Attributes
    ----------
    L : float
        The smoothness constant.
    A_norm : float
        ||A||.
    R : float
        Balances dual against primal distance.
    mu : float
        The strong convexity constant.
    """

    L: float
    A_norm: float
    R: float
    mu: float

    @property
    def Delta(self) -> float:
        """The outer iteration after which parameters are geometric.

        Returns
        -------
        float
            Infinite if there is none.
        """
        return math.inf

    @property
    def stage_length(self) -> float:
        """The number of rows of a stage.

        Returns
        -------
        float
            Infinite without stages.
        """
        return math.inf

    @abc.abstractmethod
    def row(self, n: int) -> Row:
        """Return the parameters of an outer iteration.

        Parameters
        ----------
        n : int
            The outer iteration, from 1 on.

        Returns
        -------
        Row
            Its parameters.
        """

    def rows(self) -> Iterator[Row]:
        """Iterate over all rows, without end.

        Yields
        ------
        Row
            The parameters of outer iteration n = 1, 2, ...
        """
        return map(self.row, itertools.count(1))


@dataclass(frozen=True)
class Convex(Schedule):
    """Theorem 1 for mu = 0 (`eq:par_beforeDelta`, `eq:par_allk`).

        tau_k = (k - 1)/2,  lambda_k = (k - 1)/k,  beta_k = k,  p_k = 2 L/k,
        T_k = ceil(k R ||A||/L),  q_k = L T_k/(2 beta_k R^2),  eta_k^t = p_k (T_k + t - 1)

    T_k grows linearly, and the bound falls like 1/k^2.

    Parameters
    ----------
    L, A_norm, R : float
        As for `theorem_1`; L > 0.
    """

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
    """Theorem 1 for mu > 0 (`eq:par_beforeDelta`, `eq:par_afterDelta`), in stages.

    Up to k = Delta = 2 tau + 1 the parameters are those of `Convex`. After that

        tau_k = tau,  lambda_k = lambda = tau/(1 + tau),  beta_k = Delta lambda^(Delta - k),
        p_k = L/(1 + tau),  T_k = ceil(2 (1 + tau) R ||A|| lambda^((Delta - k)/2)/L),
        q_k = L T_k/(2 beta_k R^2),

    with eta_k^t = p_k T_k + (t - 1)(p_k + mu) throughout.

    Parameters
    ----------
    L, mu, A_norm, R, growth : float
        As for `theorem_1`; mu > 0.

    Notes
    -----
    tau = sqrt(2 L/mu) is rounded up to ceil(2 tau)/2, so that every gradient is taken inside X. T_k
    grows like lambda^(-k/2): once it exceeds `growth` times its value at Delta, a new stage starts
    at the average reached so far, with the theorem's row k = 1.
    """

    L: float
    mu: float
    A_norm: float
    R: float
    growth: float = 64.0

    @cached_property
    def tau(self) -> float:
        """tau_k for k > Delta."""
        return math.ceil(2 * math.sqrt(2 * self.L / self.mu)) / 2

    @cached_property
    def Delta(self) -> int:
        """The outer iteration after which parameters are geometric."""
        return round(2 * self.tau + 1)

    @cached_property
    def stage_length(self) -> int:
        """The number of rows before T_k grows too large, or beta_k exceeds double precision."""
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
        """Return lambda^(-(k - Delta)/2)."""
        return math.pow(1 + 1 / self.tau, (k - self.Delta) / 2)

    def _T(self, k: int) -> int:
        scale = k if k <= self.Delta else 2 * (1 + self.tau) * self._growth(k)
        return max(1, math.ceil(scale * self.R * self.A_norm / self.L))


@dataclass(frozen=True)
class LinearObjective(Schedule):
    """A schedule for L = mu = 0, where one gradient is enough.

        tau_k = 0,  lambda_k = (k - 1)/k,  beta_k = T_k = k,  p_k = 0,
        eta_k^t = sqrt(8) R ||A||,  q_k = eta_k^t/(8 R^2)

    Parameters
    ----------
    A_norm, R : float
        As for `theorem_1`.

    Notes
    -----
    It is a primal-dual loop divided into outer iterations of T_k = k steps. eta q = ||A||^2 and
    beta_k = T_k satisfy the conditions of Proposition 1; eta/q = 8 R^2 balances the two terms of
    its bound, which falls like 1/sum T_k.
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


@checked_arguments
def theorem_1(*, L: float, mu: float, A_norm: float, R: float, growth: float = 64.0) -> Schedule:
    """Return the schedule of Theorem 1 for L and mu.

    Parameters
    ----------
    L : float
        Smoothness of every ft_i.
    mu : float
        Strong convexity constant, mu >= 0.
    A_norm : float
        ||A||.
    R : float
        Balances dual against primal distance; see `gradslide.theory.guarantees.theory_R`.
    growth : float
        For mu > 0: how much T_k may grow after Delta before a new stage starts.

    Returns
    -------
    Schedule
        `Convex` for mu = 0, `StronglyConvex` for mu > 0, `LinearObjective` for L = mu = 0.

    Raises
    ------
    InputError
        If a parameter is out of range.

    Examples
    --------
    >>> from gradslide import schedules
    >>> schedule = schedules.theorem_1(L=4.0, mu=0.0, A_norm=2.0, R=1.0)
    >>> [schedule.row(k).T for k in range(1, 6)]
    [1, 1, 2, 2, 3]
    """
    require_number("L", L, "give the smoothness constant of the losses", least=0)
    require_number("R", R, "try R=1, or leave it out for an estimate", above=0)
    require_number("mu", mu, "use mu=0 for convex problems", least=0)
    require_number("||A||", A_norm, "check the network", least=0)
    require_number("growth", growth, "leave it out for the default", above=1, most=1e9)
    L, mu, A_norm, R, growth = float(L), float(mu), float(A_norm), float(R), float(growth)
    if mu == 0 and L == 0:
        return LinearObjective(A_norm=A_norm, R=R)
    if mu == 0:
        return Convex(L=L, A_norm=A_norm, R=R)
    # A larger L is valid too; below mu/8 it would not change tau and only increase T_k. The gradients of a linear f are
    # free: T_1 = 1 then.
    least = mu / 8 if L > 0 else max(mu / 8, R * A_norm)
    return StronglyConvex(L=max(L, least), mu=mu, A_norm=A_norm, R=R, growth=growth)


@dataclass(frozen=True)
class Sampled(Schedule):
    """Theorem 2: sampled gradients (`eq:par_beforeDelta_S` to `eq:par_allk_S`).

    All but the batch sizes c_k is Theorem 1 at 2 L and 2 R: p_k = 4 L/k, then 2 L/(1 + tau) with
    tau = 2 sqrt(L/mu), q_k = L T_k/(4 beta_k R^2), and the same T_k. The batch sizes are

        c_k = ceil(c min(N, Delta) beta_k/(p_k L))                              for k <= Delta,
        c_k = ceil(c Delta (1 + tau)^2 (1 + 1/tau)^((k + N - 2 Delta)/2)/L^2)   for k > Delta,

    and at least 1. There is one stage, however large T_k grows.

    Parameters
    ----------
    L, mu, A_norm, R, c : float
        As for `theorem_2`.
    N : int
        The number of outer iterations, fixed in advance.
    """

    L: float
    mu: float
    A_norm: float
    R: float
    N: int
    c: float

    @cached_property
    def exact(self) -> Schedule:
        """The schedule without batch sizes."""
        return theorem_1(L=2 * self.L, mu=self.mu, A_norm=self.A_norm, R=2 * self.R, growth=ONE_STAGE)

    @property
    def Delta(self) -> float:
        """The outer iteration after which parameters are geometric."""
        return self.exact.Delta

    @property
    def stage_length(self) -> float:
        """The largest N; T_k would be too large beyond it."""
        return self.exact.stage_length

    @cached_property
    def samples(self) -> int:
        """The number of samples per agent in all N batches."""
        return sum(self.row(n).c for n in range(1, self.N + 1))

    def row(self, n: int) -> Row:
        row = self.exact.row(n)
        return replace(row, c=_batch_size(self._share(row) * self.c))

    def _share(self, row: Row) -> float:
        """Return c_k / c, before rounding up."""
        if row.k <= self.Delta:
            return min(self.N, self.Delta) * row.beta / (row.p * self.L)
        growth = math.pow(1 + 1 / row.tau, (row.k + self.N - 2 * self.Delta) / 2)
        return (1 + row.tau) ** 2 * self.Delta * growth / self.L**2

    def with_samples(self, samples: int) -> "Sampled":
        """Return the schedule with the largest c that fits a budget.

        Parameters
        ----------
        samples : int
            The number of samples per agent for all N batches together.

        Returns
        -------
        Sampled
            The same schedule with another c.
        """
        shares = [self._share(self.exact.row(n)) for n in range(1, self.N + 1)]
        # Rounding up adds less than one sample to a batch.
        low, high = max(0, samples - self.N) / math.fsum(shares), samples / math.fsum(shares)
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            if sum(_batch_size(share * middle) for share in shares) <= samples:
                low = middle
            else:
                high = middle
        return replace(self, c=low)


def _batch_size(c_k: float) -> int:
    # A whole number plus a rounding error counts as that number.
    return max(1, math.ceil(c_k * (1 - 1e-12)))


@checked_arguments
def theorem_2(*, N: int, L: float, mu: float, A_norm: float, R: float, c: float) -> Sampled:
    """Return the schedule of Theorem 2.

    Parameters
    ----------
    N : int
        The number of outer iterations, fixed in advance.
    L, mu, A_norm, R : float
        As for `theorem_1`; L > 0.
    c : float
        The scale of the batch sizes; see `gradslide.theory.guarantees.spds_c`.

    Returns
    -------
    Sampled
        The schedule.

    Raises
    ------
    InputError
        If a parameter is out of range, or N or the batches would be too large.
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
        "lower N; T_k would be too large",
    )
    most = schedule._share(schedule.exact.row(N)) * schedule.c
    require(
        most <= _MOST_SAMPLES,
        f"a batch can hold {_MOST_SAMPLES:g} samples",
        f"{most:.3g} in outer iteration {N}",
        "lower N or c",
    )
    return schedule


@checked_arguments
def violations(rows: Iterable[Row], *, L: float, mu: float, A_norm: float, tolerance: float = 1e-9) -> list[str]:
    """Return the conditions of Proposition 1 that the rows of one stage violate.

    Those of Theorem 2 (`eq:cond_modified_S`) are the same with 2 L in place of L.

    Parameters
    ----------
    rows : iterable of Row
        The rows of one stage, from k = 1 on.
    L, mu, A_norm : float
        The constants of the problem.
    tolerance : float
        Relative rounding errors that are accepted.

    Returns
    -------
    list of str
        The violated conditions with their values; empty for a valid schedule.

    Examples
    --------
    >>> import itertools
    >>> from gradslide import schedules
    >>> rows = itertools.islice(schedules.theorem_1(L=4.0, mu=0.0, A_norm=2.0, R=1.0).rows(), 50)
    >>> schedules.violations(rows, L=4.0, mu=0.0, A_norm=2.0)
    []
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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a class by its old name, with a warning."""
        if name != "Linear":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warnings.warn("schedules.Linear is now schedules.LinearObjective", DeprecationWarning, stacklevel=2)
        return LinearObjective
