"""Stochastic decentralized communication sliding (Lan, Lee, Zhou 2020)."""

from dataclasses import dataclass, field

from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.methods.base import Context
from gradslide.methods.baselines.communication_sliding import CommunicationSliding, State, outer_iteration
from gradslide.oracles import Sampling, WithReplacement
from gradslide.oracles.base import require_sampling


@dataclass(frozen=True, kw_only=True)
class SDCS(CommunicationSliding):
    """Stochastic decentralized communication sliding: `DCS` with sampled gradients.

    Two exchanges and T_k = min(growth k, most) batches of samples per outer iteration. The update
    is that of `DCS`, with the mean gradients of `batch` new samples in place of g(u_{t-1}).

    Parameters
    ----------
    ratio, growth, most, norm : float, int, int, float
        As for `DCS`.
    batch : int
        Samples per agent in each inner iteration.
    oracle : Sampling
        How samples are drawn, one of `gradslide.oracles`.
    seed : int
        The seed of the agents' random streams.

    Notes
    -----
    Assumes, in addition to `DCS`, unbiased samples G_i with E|G_i - ft_i'|^2 <= sigma^2. The bounds
    of `DCS` then hold in expectation with M^2 + sigma^2/batch in place of M^2, up to a constant.
    The theorem takes T = m (M^2 + sigma^2) N/(||Lap||^2 D) for N outer iterations and some D > 0:
    T_k = growth k is of the same order, and needs neither M and sigma nor N. Once T_k = `most`, the
    noise no longer averages out.

    References
    ----------
    Lan, Lee, Zhou, "Communication-efficient algorithms for decentralized and stochastic
    optimization", Math. Program. 180, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.SDCS(growth=2), stop=gs.Stop(iterations=10))
    >>> solution.costs.samples, solution.costs.rounds
    (110, 20)
    """

    batch: int = 1
    oracle: Sampling = field(default_factory=WithReplacement)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_number("batch", self.batch, "each inner iteration takes at least one sample", least=1, whole=True)
        require_number("seed", self.seed, "for example seed=0", least=0, whole=True)
        require_sampling(self.oracle)

    def step(self, context: Context, state: State) -> State:
        row, batch = self.row(state, context.problem.mu), int(self.batch)

        def gradient(u: Array, t: int) -> Array:
            return context.oracle.sampled_gradient(u, state.samples + (t - 1) * batch, batch)

        return outer_iteration(context, state, row, gradient, samples=batch)
