"""CHOCO-SGD (Koloskova, Stich, Jaggi 2019)."""

from dataclasses import dataclass, field

from gradslide._support.arrays import like, to_numpy
from gradslide._support.errors import InputError, kind_of, require_number
from gradslide._support.randomness import ForSome
from gradslide._support.types import Array
from gradslide.graphs.mixing import Mixing
from gradslide.methods.base import Context, Copied, as_floats
from gradslide.methods.baselines.sampled_steps import SampledSteps
from gradslide.methods.steps import mixing_matrix, require_unconstrained
from gradslide.network.compressors import Compressor, Quantization


@dataclass(frozen=True)
class State(Copied):
    """x_k; xh, the neighbours' copy of it, and s = W xh; the rest as in `SampledState`."""

    k: int
    a: float
    first: float
    rate: float
    gamma: float
    samples: int
    weights: float
    x: Array
    x_bar: Array
    xh: Array
    s: Array


@dataclass(frozen=True, kw_only=True)
class ChocoSGD(SampledSteps[State]):
    """CHOCO-SGD, with compressed messages, for min sum_i f_i(x) over R^d.

    `batch` samples per agent and one exchange of compressed vectors per iteration:

        x_half  = x_k - a_k G(x_k)
        c       = C(x_half - xh_k)
        xh_{k+1} = xh_k + c
        s_{k+1}  = s_k + W c
        x_{k+1}  = x_half + gamma (s_{k+1} - xh_{k+1})

    xh_0 = 0, G are unbiased estimates of the gradients of ft_i + mu nu, and C is the compressor,
    scaled if its theory needs it.

    Parameters
    ----------
    step_size, L, mixing, decay, batch, oracle : optional
        As for `DSGD`.
    seed : int
        The seed of the agents' random streams and of the compressor.
    compressor : Compressor
        One of `gradslide.compressors`. Default: `Quantization(levels=16)`, about a tenth of the
        size of 64 bit numbers.
    gamma : float, optional
        The consensus step, at most 1. Default: that of their Theorem 2, which is safe and far
        smaller than what works.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, X = R^d, no penalty, and bounded variance. For mu
    > 0 and steps that shrink like 1/(mu k), once k is large the error of the average falls like 1/k
    with the constant of plain stochastic gradients: compression and network enter the terms that
    fall faster. The average is as for `DSGD`.

    References
    ----------
    Koloskova, Stich, Jaggi, "Decentralized stochastic optimization and gossip algorithms with
    compressed communication", ICML 2019.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(8), np.arange(8.0), agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.ChocoSGD(step_size=0.5), stop=gs.Stop(iterations=100))
    >>> solution.costs.samples, solution.costs.floats_sent
    (100, 1600)
    """

    compressor: Compressor = field(default_factory=Quantization)
    gamma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not hasattr(self.compressor, "contract") or isinstance(self.compressor, type):
            rule, remedy = "compressor must be one of gs.compressors", "gs.compressors.TopK(share=0.1)"
            raise InputError(rule, kind_of(self.compressor), remedy)
        if self.gamma is not None:
            require_number("gamma", self.gamma, "leave it out for the default", above=0, most=1)
        as_floats(self, "gamma")

    def init(self, context: Context) -> State:
        W = mixing_matrix(context)
        require_unconstrained(context, self)
        gamma = _theory_gamma(W, self.compressor.quality(context.problem.d)) if self.gamma is None else self.gamma
        x = context.x0
        a, first, rate, samples = self.steps(context)
        return State(
            k=0, a=a, first=first, rate=rate, gamma=gamma, samples=samples, weights=0.0, x=x, x_bar=x, xh=0 * x, s=0 * x
        )

    def step(self, context: Context, state: State) -> State:
        s, a_k = state, self.a_k(context, state)
        x_half = s.x - a_k * self.sampled_gradient(context, s)
        random = ForSome([self.seed, s.k], context.network.agents, context.network.m)
        # Compressors run on the host.
        c = like(self.compressor.contract(to_numpy(x_half - s.xh), random), x_half)
        xh = s.xh + c
        mixed = s.s + context.network.combine(c, mixing_matrix(context).matrix, encoding=self.compressor)
        x = x_half + s.gamma * (mixed - xh)
        return State(**self.after(context, s, x, a_k), gamma=s.gamma, xh=xh, s=mixed)

    def invariant(self, state: State) -> Array:
        return state.gamma * (state.s - state.xh) / state.a

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a, "gamma": state.gamma}


def _theory_gamma(W: Mixing, omega: float) -> float:
    delta, beta = W.spectral_gap, W.links.laplacian_norm
    return delta**2 * omega / (16 * delta + delta**2 + 4 * beta**2 + 2 * delta * beta**2 - 8 * delta * omega)
