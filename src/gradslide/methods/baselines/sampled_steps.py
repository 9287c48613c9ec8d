"""What methods of stochastic gradient steps share: samples, shrinking steps, and averages."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from gradslide._support.arrays import dot, like, to_numpy
from gradslide._support.errors import InputError, kind_of, require_number
from gradslide._support.types import Array
from gradslide.methods.base import Context, as_floats, average
from gradslide.methods.steps import GradientSteps, smoothness, with_ridge
from gradslide.oracles import Sampling, WithReplacement
from gradslide.oracles.variance import moments

# Samples per agent at x_0 that show how noisy they are.
_PROBE_SAMPLES = 16


class SampledState(Protocol):
    """A state: k iterations done, with so many samples per agent; first and rate of a_k; the sum of the weights in
    x_bar."""

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


class StepSizes(NamedTuple):
    """step_size, given or found; a_k = first/(1 + rate k)^p; the samples per agent that it took to find them."""

    a: float
    first: float
    rate: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class SampledSteps(GradientSteps):
    """The parameters, as `DSGD` explains them."""

    decay: float | None = None
    batch: int = 1
    oracle: Sampling = field(default_factory=WithReplacement)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay is not None:
            require_number("decay", self.decay, "0 keeps the step, 0.5 has a_k = a/sqrt(k + 1)", least=0, most=1)
        as_floats(self, "decay")
        require_number("batch", self.batch, "the samples of an iteration", least=1, whole=True)
        require_number("seed", self.seed, "for example seed=0", least=0, whole=True)
        if not hasattr(self.oracle, "open") or isinstance(self.oracle, type):
            raise InputError("oracle must be one of gs.oracles", kind_of(self.oracle), "gs.oracles.WithReplacement()")

    def steps(self, context: Context) -> StepSizes:
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
        """The step of the next iteration."""
        decay = self.decay
        if decay is None:
            decay = 1.0 if context.problem.mu > 0 else 0.5
        return state.first / math.pow(1 + state.rate * state.k, decay)

    def sampled_gradient(self, context: Context, state: SampledState) -> Array:
        """Of ft_i + mu nu, at x."""
        y = context.oracle.sampled_gradient(state.x, state.samples, self.batch)
        return with_ridge(context, state.x, y)

    def after(self, context: Context, state: SampledState, x: Array, a_k: float) -> dict[str, Any]:
        """What all states have, after the step a_k that led to x. It weighs a_k in the average for mu = 0, else
        1/a_k."""
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

    def output(self, state: SampledState) -> dict[str, Array]:
        return {"average": state.x_bar, "last": state.x}


def _signal(context: Context, batch: int) -> float:
    """|g|^2/(|g|^2 + sigma^2/batch) at x_0, over all agents: 1/L times this is the step that promises most there. It
    takes one sum over all agents."""
    x = context.x0
    mean, variances = moments(lambda j: context.oracle.sampled_gradient(x, j, 1), _PROBE_SAMPLES)
    slope = with_ridge(context, x, like(mean, x))
    each = np.stack([to_numpy(dot(slope, slope)), to_numpy(variances)], axis=1)
    square, variance = map(float, context.network.agree(each, "sum"))
    # The mean of the samples is noisy too; where it is little else, a tenth of its square is taken.
    square = max(square - variance / _PROBE_SAMPLES, 0.1 * square)
    return square / (square + variance / batch) if square > 0 else 1.0
