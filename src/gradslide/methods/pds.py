"""Primal-dual sliding with exact gradients: Algorithm 1/2 and Theorem 1 of Lan, Ouyang, Zhou, "Graph topology
invariant gradient and sampling complexity for decentralized and stochastic optimization"."""

from dataclasses import dataclass

from gradslide.methods import defaults, sliding
from gradslide.methods.base import Context, as_floats, look, require_coupling
from gradslide.methods.sliding import Sliding, State
from gradslide.theory import schedules


@dataclass(frozen=True, kw_only=True)
class PDS(Sliding):
    """Primal-dual sliding for min sum_i f_i(x), x in X, with the schedule of Theorem 1.

    Assumes ft_i convex and L-smooth. After N outer iterations, N gradients per agent were used, and f(x_bar) -
    f* <= min{2/N^2, lambda^(N - Delta)} 4 L V(x_0, x*) (`eq:fest_T`; within a stage for mu > 0), whatever the
    network.

    L: smoothness of every ft_i (default: the largest of the losses' constants). R: balances ||z*|| against the
    distance to x*; Theorem 1's choice is (||z*|| + 1) / (4 sqrt(V(x_0, x*))) (default: estimated from the
    gradients at x_0). coupling: "incidence" (1 exchange per inner iteration) or "laplacian" (2, as in the
    paper). norm: ||A||, if known. growth: for mu > 0, how much T_k may grow past Delta before a new stage
    starts at the average.
    """

    L: float | None = None
    R: float | None = None
    coupling: str = "incidence"
    norm: float | None = None
    growth: float = 64.0

    def __post_init__(self) -> None:
        # What is left out is found later: 1 stands in for it.
        L, R, A_norm = (1.0 if value is None else value for value in (self.L, self.R, self.norm))
        schedules.theorem_1(L=L, mu=0.0, A_norm=A_norm, R=R, growth=self.growth)
        as_floats(self, "L", "R", "norm", "growth")
        require_coupling(self.coupling)

    def init(self, context: Context) -> State:
        A_norm = context.coupling.norm() if self.norm is None else self.norm
        L = defaults.smoothness(context) if self.L is None else self.L
        y, R = None, self.R
        if R is None:
            y = context.oracle.gradient(context.x0)
            found = defaults.balance(context, y, L=L, A_norm=A_norm, gradient=context.oracle.gradient).R
            R = defaults.sliding_R(context, found, L=L)
        is_linear = L == 0
        L = defaults.first_slides(L, R=R, A_norm=A_norm) if self.L is None else L
        schedule = schedules.theorem_1(L=L, mu=context.problem.mu, A_norm=A_norm, R=R, growth=self.growth)
        return sliding.start(context, schedule, y=y, y_stays=is_linear)

    def step(self, context: Context, state: State) -> State:
        row = state.schedule.row(state.k + 1)
        s = sliding.restart(state) if row.k == 1 and row.stage > 0 else state
        y = s.y if s.y_is_known else None
        return sliding.outer_iteration(context, s, row, lambda x_under: look(context, x_under, y))

    def parameters(self, state: State) -> dict[str, float]:
        """What was given or found: all that `schedules.theorem_1` takes."""
        s = state.schedule
        return {"L": s.L, "R": s.R, "A_norm": s.A_norm, "mu": s.mu, "growth": self.growth}
