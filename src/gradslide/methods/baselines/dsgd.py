"""D-SGD: Lian et al., "Can decentralized algorithms outperform centralized algorithms? A case study for decentralized
parallel stochastic gradient descent", NeurIPS 2017; with projections Ram, Nedic, Veeravalli, "Distributed stochastic
subgradient projection algorithms for convex optimization", J. Optim. Theory Appl. 147, 2010."""

from dataclasses import dataclass

from gradslide._support.types import Array
from gradslide.methods.base import Context, Copied
from gradslide.methods.baselines.sampled_steps import SampledSteps
from gradslide.methods.steps import proximal, require_common_domain


@dataclass(frozen=True)
class State(Copied):
    """x_k and the average so far. a: step_size. first, rate: of a_k. samples: per agent, so far. weights: the sum of
    those in the average."""

    k: int
    a: float
    first: float
    rate: float
    samples: int
    weights: float
    x: Array
    x_bar: Array


@dataclass(frozen=True, kw_only=True)
class DSGD(SampledSteps):
    """`batch` samples per agent and one exchange per iteration, for min sum_i f_i(x), x in X, the same X and r for all
    agents.

    x+ = prox of W x - a_k G(x), G unbiased estimates of the gradients. Assumes f_i convex and L-smooth, nu Euclidean,
    bounded variance. With the default steps the error of the average falls like log(k)/sqrt(k) for mu = 0 and like
    1/k for mu > 0, once k is large (the more the agents differ and the slower the network mixes, the later). With
    steps that do not shrink it ends up near the optimum: the nearer, the smaller they are.

    step_size: a. decay: p in a_k = a/(k+1)^p, k = 0, 1, ...; by default a/sqrt(k+1) for mu = 0 and a/(1 + a mu k/2),
    about 2/(mu k), for mu > 0. Without step_size a is 1/(2 L), but no a_k is larger than h/(2 L), h = |g|^2/(|g|^2 +
    sigma^2/batch) at x_0, from 16 samples per agent, which are counted: samples that are rougher than f do not bear
    1/L. So a_k = a/sqrt(k + 1/h^2) for mu = 0, and a = h/(2 L) for mu > 0 or a given decay. batch: samples per
    iteration. oracle: how they are drawn, one of `gs.oracles`. seed: of the agents' random streams. L: smoothness of
    every ft_i (default: the largest of the losses' constants). mixing: W, "metropolis", "laplacian" or "best_constant".

    Recommended is the average, in which x_{k+1} weighs a_k for mu = 0 and 1/a_k for mu > 0.
    """

    def init(self, context: Context) -> State:
        require_common_domain(context, self)
        x = context.x0
        a, first, rate, samples = self.steps(context)
        return State(k=0, a=a, first=first, rate=rate, samples=samples, weights=0.0, x=x, x_bar=x)

    def step(self, context: Context, state: State) -> State:
        s, a_k = state, self.a_k(context, state)
        g = self.sampled_gradient(context, s)
        x = proximal(context, context.mix(s.x, context.prepared) - a_k * g, a_k)
        return State(**self.after(context, s, x, a_k))

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.a}
