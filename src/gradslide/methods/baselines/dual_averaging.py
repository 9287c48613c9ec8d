"""Distributed dual averaging (Duchi, Agarwal, Wainwright 2012)."""

import math
from dataclasses import dataclass

import numpy as np

from gradslide._support.arrays import doubles, like, to_numpy
from gradslide._support.types import Array
from gradslide.graphs.mixing import Mixing
from gradslide.methods import defaults
from gradslide.methods.base import Context, Copied, average
from gradslide.methods.defaults import STEPS_AWAY
from gradslide.methods.steps import GradientSteps, mixing_matrix, require_common_prox


@dataclass(frozen=True)
class State(Copied):
    """x_k and z_k; the average of x_1, ..., x_k; grad nu at x_0, its mean over the agents."""

    k: int
    step_size: float
    anchor: Array
    x: Array
    x_bar: Array
    z: Array


@dataclass(frozen=True, kw_only=True)
class DualAveraging(GradientSteps[State]):
    """Dual averaging for min sum_i f_i(x); X, nu and r must be the same for all agents.

    One gradient and one exchange per iteration k = 1, 2, ...:

        z_k = W z_{k-1} + g(x_{k-1}),  z_0 = 0
        a_k = step_size/sqrt(k)
        x_k = argmin over X of <z_k, x> + k (mu nu(x) + r(x)) + V(x_0, x)/a_k

    g stacks the gradients of ft_i, and V is the Bregman distance of nu.

    Parameters
    ----------
    step_size : float, optional
        The step. Default: D sqrt(1 - s2(W))/(4 G), with the largest |g_i(x_0)| as G, and D from X,
        but no longer than ten steps of length G/L or one of length G/mu.
    L : float, optional
        Smoothness of every ft_i. Default: the largest of the losses' constants.
    mixing : {"metropolis", "laplacian", "best_constant"}
        The mixing matrix W.

    Notes
    -----
    Assumes that every f_i is convex with bounded gradients |g_i| <= G in the dual norm; any nu. The
    error of every agent's average of x_1, ..., x_k, which is recommended, is at most of the order
    of D G log(k)/sqrt(k (1 - s2(W))), where D^2 bounds V(x_0, x*) and s2 is the second largest
    singular value. The last x has no such bound.

    References
    ----------
    Duchi, Agarwal, Wainwright, "Dual averaging for distributed optimization: convergence analysis
    and network scaling", IEEE Trans. Autom. Control 57, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares(np.ones((4, 1)), [1.0, 2.0, 3.0, 6.0], agents=4)
    >>> problem, ring = gs.Problem(loss), gs.Graph.ring(4)
    >>> solution = gs.solve(problem, ring, gs.DualAveraging(), stop=gs.Stop(iterations=100))
    >>> list(solution.outputs), solution.costs.rounds
    (['average', 'last'], 100)
    """

    def init(self, context: Context) -> State:
        require_common_prox(context, self)
        W = mixing_matrix(context)
        step_size = self._default_step(context, W) if self.step_size is None else self.step_size
        x = context.x0
        # V(x_0, .) must be one function for all agents, wherever each of them starts.
        anchor = like(context.network.agree(to_numpy(context.domain.grad_nu(x)), "sum") / context.network.m, x)
        return State(k=0, step_size=step_size, anchor=anchor, x=x, x_bar=x, z=0 * x)

    def _default_step(self, context: Context, W: Mixing) -> float:
        L = defaults.smoothness(context) if self.L is None else self.L
        lengths = _dual_lengths(context, context.oracle.gradient(context.x0))
        widths = to_numpy(doubles(context.domain.distance_bound(context.x0)))
        G, V = map(float, context.network.agree(np.stack([lengths, widths], axis=1), "max"))
        # D/G: from X, and from two guesses of |x_0 - x*| in units of the gradient.
        guesses = ((STEPS_AWAY, L), (1.0, context.problem.mu), (math.sqrt(2 * max(V, 0.0)), G))
        reach = min((factor / size for factor, size in guesses if size > 0), default=math.inf) / math.sqrt(2)
        return (reach if 0 < reach < math.inf else 1.0) * math.sqrt(W.spectral_gap) / 4

    def step(self, context: Context, state: State) -> State:
        s, k = state, state.k + 1
        a = s.step_size / math.sqrt(k)
        z = context.mix(s.z, mixing_matrix(context)) + context.oracle.gradient(s.x)
        x = context.domain.prox((s.anchor / a - z) / k, context.problem.mu + 1 / (k * a))
        return State(k=k, step_size=s.step_size, anchor=s.anchor, x=x, x_bar=average(s.x_bar, x, 1 / k), z=z)

    def output(self, state: State) -> dict[str, Array]:
        return {"average": state.x_bar, "last": state.x}

    def parameters(self, state: State) -> dict[str, float]:
        return {"step_size": state.step_size}


def _dual_lengths(context: Context, gradients: Array) -> Array:
    """Return the agents' |g_i| in the norm dual to nu's, shape (m,)."""
    order = np.inf if context.domain.norm == 1 else 2
    return np.linalg.norm(to_numpy(doubles(gradients)), order, axis=1)
