"""Shared by `DSGD` and `ChocoSGD`: samples, shrinking steps and averages."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from gradslide._support.arrays import dot, like, to_numpy
from gradslide._support.errors import require_number
from gradslide._support.types import Array
from gradslide.methods.base import Context, as_floats, average
from gradslide.methods.steps import GradientSteps, smoothness, with_ridge
from gradslide.oracles import Sampling, WithReplacement
from gradslide.oracles.base import require_sampling
from gradslide.oracles.variance import moments

# Samples per agent at x_0 from which their variance is estimated.
_PROBE_SAMPLES = 16


class SampledState(Protocol):
    """The fields that all states share.

    Attributes
    ----------
    k, samples : int
        Iterations done, and samples per agent drawn.
    a : float
        The step size that was given or computed.
    first, rate : float
        a_k = first/(1 + rate k)^p.
    weights : float
        The sum of the weights in x_bar.
    x, x_bar : Array
        The last iterate and the average.
    """

    @property
    def k(self) -> int: ...
    @property
    def a(self) -> float: ...
    @property
    def first(self) -> float: ...
    @property
    def rate(self) -> float: ...
    @property
    def samples(self) -> int: ...
    @property
    def weights(self) -> float: ...
    @property
    def x(self) -> Array: ...
    @property
    def x_bar(self) -> Array: ...


SampledStateT = TypeVar("SampledStateT", bound=SampledState)


class StepSizes(NamedTuple):
    """The step size a; a_k = first/(1 + rate k)^p; the samples per agent used to compute them."""

    a: float
    first: float
    rate: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class SampledSteps(GradientSteps[SampledStateT]):
    """The parameters that `DSGD` documents."""

    decay: float | None = None
    batch: int = 1
    oracle: Sampling = field(default_factory=WithReplacement)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay is not None:
            require_number("decay", self.decay, "0 is a constant step, 0.5 is a_k = a/sqrt(k + 1)", least=0, most=1)
        as_floats(self, "decay")
        require_number("batch", self.batch, "the samples of an iteration", least=1, whole=True)
        require_number("seed", self.seed, "for example seed=0", least=0, whole=True)
        require_sampling(self.oracle)

    def steps(self, context: Context) -> StepSizes:
        """Return the given steps, or those of the theory."""
        theory, mu = self.decay is None, context.problem.mu
        a, samples = self.step_size, 0
        if a is None:
            signal, longest = _signal(context, self.batch), 1 / (2 * smoothness(context, self.L))
            a, samples = signal * longest, _PROBE_SAMPLES
            if theory and mu == 0:
                # a_k = longest/sqrt(k + 1/signal^2)
                return StepSizes(longest, a, signal**2, samples)
        return StepSizes(a, a, a * mu / 2 if theory and mu > 0 else 1.0, samples)

    def a_k(self, context: Context, state: SampledState) -> float:
        """Return the step of the next iteration."""
        decay = self.decay
        if decay is None:
            decay = 1.0 if context.problem.mu > 0 else 0.5
        return state.first / math.pow(1 + state.rate * state.k, decay)

    def sampled_gradient(self, context: Context, state: SampledState) -> Array:
        """Return estimates of the gradients of ft_i + mu nu at x."""
        y = context.oracle.sampled_gradient(state.x, state.samples, self.batch)
        return with_ridge(context, state.x, y)

    def after(self, context: Context, state: SampledState, x: Array, a_k: float) -> dict[str, Any]:
        """Return the fields that all states share, after the step a_k to x.

        x has weight a_k in the average for mu = 0, else 1/a_k.
        """
        weight = a_k if context.problem.mu == 0 else 1 / a_k
        weights = state.weights + weight
        return {
            "k": state.k + 1,
            "a": state.a,
            "first": state.first,
            "rate": state.rate,
            "samples": state.samples + self.batch,
            "weights": weights,
            "x": x,
            "x_bar": average(state.x_bar, x, weight / weights),
        }

    def output(self, state: SampledStateT) -> dict[str, Array]:
        return {"average": state.x_bar, "last": state.x}


def _signal(context: Context, batch: int) -> float:
    """Return |g|^2/(|g|^2 + sigma^2/batch) at x_0, by one sum over all agents.

    1/L times this number is the step with the largest expected decrease there.
    """
    x = context.x0
    mean, variances = moments(lambda j: context.oracle.sampled_gradient(x, j, 1), _PROBE_SAMPLES)
    slope = with_ridge(context, x, like(mean, x))
    each = np.stack([to_numpy(dot(slope, slope)), to_numpy(variances)], axis=1)
    square, variance = map(float, context.network.agree(each, "sum"))
    # The mean of the samples is noisy too; if it is little more than noise, a tenth of its square is used.
    square = max(square - variance / _PROBE_SAMPLES, 0.1 * square)
    return square / (square + variance / batch) if square > 0 else 1.0
