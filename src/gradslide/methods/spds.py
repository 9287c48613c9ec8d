"""Stochastic primal-dual sliding: Algorithm 3/4 and Theorem 2 of

G. Lan, Y. Ouyang, Y. Zhou, "Graph topology invariant gradient and sampling complexity for
decentralized and stochastic optimization".

The outer iterations are `SPDS.step`; the inner loop is that of `gradslide.methods.pds`.
"""

from dataclasses import dataclass, field, replace
from typing import cast

from gradslide._support.errors import require, require_number
from gradslide.methods import defaults
from gradslide.methods.base import Context, as_floats, require_coupling, without_conjugate
from gradslide.methods.compiled import InnerLoop, Workspace
from gradslide.methods.pds import PrimalDualSliding, State
from gradslide.oracles import Sampling, WithReplacement
from gradslide.oracles.base import require_sampling
from gradslide.theory import guarantees, schedules
from gradslide.theory.schedules import Sampled


@dataclass(frozen=True, kw_only=True)
class SPDS(PrimalDualSliding):
    r"""Primal-dual sliding with sampled gradients for min sum_i f_i(x), x in X.

    The schedule is that of Theorem 2. Outer iteration k averages c_k samples per agent; T_k inner
    iterations exchange vectors. One of `N`, `samples` or `eps` says how long to run.

    Parameters
    ----------
    N : int, optional
        The number of outer iterations, fixed in advance.
    R : float, optional
        Balances \|\|z*\|\| against D = |x_0 - x*|, stacked over the m agents. Theorem 2's choice is
        (\|\|z*\|\| + 1)/(4 D). Default: estimated, see Notes.
    c : float, optional
        The scale of the batch sizes. Default: the largest that `samples` allows, else Theorem 2's
        choice 2 m sigma^2/D^2.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    sigma : float, optional
        The root of the variance of one sample, averaged over the agents. Default: estimated.
    eps : float, optional
        The accuracy to reach in expectation; needs `distance`.
    distance : float, optional
        An estimate of D, that is sqrt(m) times the distance of one agent. Default: estimated.
    samples : int, optional
        The number of samples per agent to spend in all.
    coupling : {"incidence", "laplacian"}
        The matrix A: one exchange per inner iteration, or two.
    norm : float, optional
        \|\|A\|\|, if it is known. Default: computed by the agents.
    oracle : Sampling
        How samples are drawn, one of `gradslide.oracles`.
    seed : int
        The seed of the agents' random streams.

    Notes
    -----
    Outer iteration k = 1, 2, ... (Algorithm 3) is

        x_tilde   = x_{k-1} + lambda_k (x_hat_{k-1} - x_{k-2})
        x_under_k = (x_tilde + tau_k x_under_{k-1})/(1 + tau_k)
        v_k       = the mean gradients of c_k samples per agent at x_under_k
        for t = 1, ..., T_k, from x^0 = x_{k-1}:
            u   = x^{t-1} + alpha_k^t (x^{t-1} - x^{t-2})
            z^t = z^{t-1} + A u/q_k
            x^t = argmin over X of <v_k + A^T z^t, x> + mu nu(x) + r(x)
                  + p_k V(x_{k-1}, x) + eta_k^t V(x^{t-1}, x)

    x_k is the last x^t, x_hat_k the average of x^1, ..., x^T_k, and x_bar the average of the
    x_hat_k with weights beta_k. x^{-1} is the inner iterate before x_{k-1}. The parameters are the
    rows of `gradslide.schedules.theorem_2`. Only products with A communicate. On saddle point
    problems the z step is that of `Coupling.ascend`.

    Assumes that every ft_i is convex and L-smooth in the Euclidean norm, and that samples G_i are
    unbiased with E|G_i - grad ft_i|^2 <= sigma^2. After N outer iterations, sum_k c_k samples per
    agent were used, whatever the network, and for mu = 0 (eq:fest_T_S; `guarantees.spds` for mu >
    0)

        E f(x_bar) - f* <= 2/N^2 [4 L D^2 + L m sigma^2/c].

    R, sigma and distance, if they are needed and not given, are estimated from 64 samples per agent
    at x_0 (or a tenth of `samples`; without a network twice that). These samples are counted.

    Outputs are "average" (x_bar, which has this guarantee), "hat" and "last".

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(8), np.arange(8.0), agents=4)
    >>> problem = gs.Problem(loss, domain=gs.domains.Box(0.0, 5.0))
    >>> gs.solve(problem, gs.Graph.ring(4), gs.SPDS(samples=500, seed=1)).costs.samples
    500
    """

    N: int | None = None
    R: float | None = None
    c: float | None = None
    L: float | None = None
    sigma: float | None = None
    eps: float | None = None
    distance: float | None = None
    samples: int | None = None
    coupling: str = "incidence"
    norm: float | None = None
    oracle: Sampling = field(default_factory=WithReplacement)
    seed: int = 0

    def __post_init__(self) -> None:
        given = f"N={self.N}, samples={self.samples}, eps={self.eps}, distance={self.distance}, c={self.c}"
        rule = "SPDS needs N, or samples, or eps and distance"
        require(any(value is not None for value in (self.N, self.samples, self.eps)), rule, given, "for example N=100")
        alone = self.eps is None or (self.N, self.samples) == (None, None)
        require(alone, f"{rule}; eps excludes the others", given, "drop eps, or N and samples")
        require(self.eps is None or self.distance is not None, "eps needs a distance", given, "an estimate will do")
        require(self.samples is None or self.c is None, "c and samples exclude each other", given, "drop one of them")
        # Parameters that are not given are computed later: 1 replaces them in these checks.
        L, R, c, A_norm = (1.0 if value is None else value for value in (self.L, self.R, self.c, self.norm))
        N = 1 if self.N is None else self.N
        require_number("N", N, "give the number of outer iterations", least=1, whole=True)
        schedules.theorem_2(N=1, L=L, mu=0.0, A_norm=A_norm, R=R, c=c)
        eps, sigma, distance = (1 if value is None else value for value in (self.eps, self.sigma, self.distance))
        guarantees.spds_N(eps, L=1.0, distance=distance)
        guarantees.spds_c(sigma, m=1, distance=distance)
        if self.samples is not None:
            require_number("samples", self.samples, "each outer iteration takes at least one", least=N, whole=True)
        require_number("seed", self.seed, "for example seed=0", least=0, whole=True)
        require_sampling(self.oracle)
        as_floats(self, "R", "c", "L", "sigma", "eps", "distance", "norm")
        require_coupling(self.coupling)

    def init(self, context: Context) -> State:
        require(
            context.domain.euclidean,
            "SPDS needs a Euclidean domain (Theorem 2)",
            type(context.domain).__name__,
            "use Simplex in place of EntropySimplex, or PDS",
        )
        A_norm = context.coupling.norm() if self.norm is None else self.norm
        L = defaults.smoothness(context) if self.L is None else self.L
        require_number("L of SPDS", L, "every constant larger than the smoothness of the losses will do", above=0)
        R, sigma, distance, probed = self.R, self.sigma, self.distance, 0
        is_complete = (self.N or self.eps) is not None and (self.samples if self.c is None else self.c) is not None
        if R is None or not (is_complete or (sigma is not None and distance is not None)):
            found = defaults.probe(context, L=L, A_norm=A_norm, distance=distance, budget=self.samples)
            R = found.R if R is None else R
            sigma = found.sigma if sigma is None else sigma
            distance, probed = found.distance, found.samples
        left = None if self.samples is None else self.samples - probed
        schedule = schedules.theorem_2(
            N=self._outer_iterations(L, context.problem.mu, sigma, distance, left),
            L=L,
            mu=context.problem.mu,
            A_norm=A_norm,
            R=R,
            c=self._batch_scale(context.network.m, sigma, distance),
        )
        if left is not None:
            remedy = f"each outer iteration takes one, and R, sigma and distance took {probed}: give those, or more"
            require(left >= schedule.N, f"samples must be at least {schedule.N + probed}", self.samples, remedy)
            schedule = schedule.with_samples(left)
        if self.R is None:
            schedule = replace(schedule, R=max(schedule.R, defaults.mixing_R(context, schedule)))
        return State.start(context, schedule, samples=probed, sigma=sigma)

    def step(self, context: Context, state: State) -> State:
        """Outer iteration k of Algorithm 3; the arrays of `state` are overwritten."""
        s, row = state, state.schedule.row(state.k + 1)
        x_tilde = s.x + row.lam * (s.x_hat - s.x_prev)  # eq:txk_agent
        x_under = (x_tilde + row.tau * s.x_under) / (1 + row.tau)  # eq:xlk_agent
        del x_tilde  # its memory serves the gradient
        v = context.oracle.sampled_gradient(x_under, s.samples, row.c)  # eq:vki
        if row.k < self.iterations(s):
            # The next samples are collected while the inner loop communicates.
            context.oracle.draw_ahead(s.samples + row.c, s.schedule.row(row.k + 1).c)
        s.gradients.add(*without_conjugate(v), row)
        workspace = Workspace(s.dual_bar, row.weight, x=s.x_prev, x_hat=s.x_hat, scratch=s.x_under)
        inner_loop = cast(InnerLoop, context.prepared)  # that of PDS, or compiled code with the same bits
        inner = inner_loop(context, s.x, s.x_before, s.dual, v, row, workspace)
        return s.next(row, x_under, inner)

    def iterations(self, state: State) -> int:
        assert isinstance(state.schedule, Sampled)
        return state.schedule.N

    def parameters(self, state: State) -> dict[str, float]:
        """Return the parameters of `schedules.theorem_2`, and sigma if it is known."""
        s = state.schedule
        assert isinstance(s, Sampled)
        known = {} if state.sigma is None else {"sigma": state.sigma}
        return {"N": s.N, "L": s.L, "R": s.R, "c": s.c, "A_norm": s.A_norm, "mu": s.mu, **known}

    def _outer_iterations(
        self, L: float, mu: float, sigma: float | None, distance: float | None, samples: int | None
    ) -> int:
        if self.N is not None:
            return int(self.N)
        assert distance is not None
        if self.eps is not None:
            return guarantees.spds_N(self.eps, L=L, distance=distance, mu=mu)
        assert samples is not None
        assert sigma is not None
        return guarantees.spds_N_for(samples, L=L, distance=distance, sigma=sigma, mu=mu)

    def _batch_scale(self, m: int, sigma: float | None, distance: float | None) -> float:
        if self.c is not None:
            return self.c
        if self.samples is not None:
            # Computed by `with_samples` once the rest is known.
            return 0.0
        assert sigma is not None
        assert distance is not None
        return guarantees.spds_c(sigma, m=m, distance=distance)
