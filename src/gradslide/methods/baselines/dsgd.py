"""D-SGD (Lian et al. 2017), with projections (Ram, Nedic, Veeravalli 2010)."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.baselines.sampled_steps import SampledSteps
from gradslide.methods.steps import mixing_matrix, proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k and the average so far; the other fields as in `SampledState`."""

    k: int
    a: float
    first: float
    rate: float
    samples: int
    weights: float
    x: Array
    x_bar: Array


@dataclass(frozen=True, kw_only=True)
class DSGD(SampledSteps[State]):
    """Decentralized stochastic gradient descent for min sum_i f_i(x), x in X.

    X and r must be the same for all agents. `batch` samples per agent and one exchange per
    iteration k = 0, 1, ...:

        x_{k+1} = prox_{a_k r}(W x_k - a_k G(x_k))

    G are unbiased estimates of the gradients of ft_i + mu nu, and the prox step includes X.

    Parameters
    ----------
    step_size : float, optional
        The step a in a_k. Default: see Notes.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    mixing : {"metropolis", "laplacian", "best_constant"}
        The mixing matrix W.
    decay : float, optional
        The exponent p in a_k = a/(k + 1)^p, from 0 to 1. Default: a_k = a/sqrt(k + 1) for mu = 0
        and a/(1 + a mu k/2), about 2/(mu k), for mu > 0.
    batch : int
        Samples per agent and iteration.
    oracle : Sampling
        How samples are drawn, one of `gradslide.oracles`.
    seed : int
        The seed of the agents' random streams.

    Notes
    -----
    Assumes that every f_i is convex and L-smooth, nu Euclidean, and bounded variance. With the
    default steps the error of the average falls like log(k)/sqrt(k) for mu = 0 and like 1/k for mu
    > 0, once k is large (the more the agents differ and the slower the network mixes, the later).
    With constant steps the iterates end up near the optimum: the nearer, the smaller the steps are.

    Without step_size, a is 1/(2 L), but no a_k is larger than h/(2 L), where h = |g|^2/(|g|^2 +
    sigma^2/batch) at x_0, from 16 samples per agent, which are counted: single samples may be less
    smooth than f. So a_k = a/sqrt(k + 1/h^2) for mu = 0, and a = h/(2 L) for mu > 0 or a given
    decay.

    The average is recommended. x_{k+1} has weight a_k in it for mu = 0 and 1/a_k for mu > 0.

    References
    ----------
    Lian et al., "Can decentralized algorithms outperform centralized algorithms? A case study for
    decentralized parallel stochastic gradient descent", NeurIPS 2017.

    Ram, Nedic, Veeravalli, "Distributed stochastic subgradient projection algorithms for convex
    optimization", J. Optim. Theory Appl. 147, 2010 (projections).

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.eye(8), np.arange(8.0), agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.DSGD(step_size=0.5), stop=gs.Stop(iterations=100))
    >>> solution.costs.samples, solution.costs.floats_sent
    (100, 6400)
    """

    def init(self, context: Context) -> State:
        require_common_domain(context, self)
        x = context.x0
        a, first, rate, samples = self.steps(context)
        return State(k=0, a=a, first=first, rate=rate, samples=samples, weights=0.0, x=x, x_bar=x)

    def step(self, context: Context, state: State) -> State:
        s, a_k = state, self.a_k(context, state)
        g = self.sampled_gradient(context, s)
        x = proximal(context, context.mix(s.x, mixing_matrix(context)) - a_k * g, a_k)
        return State(**self.after(context, s, x, a_k))

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
