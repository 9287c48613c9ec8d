"""Exact gradients plus noise, for studies."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradslide._support.arrays import like
from gradslide._support.errors import require_number
from gradslide._support.keywords import CheckedArguments
from gradslide._support.randomness import Streams
from gradslide._support.types import Array
from gradslide.losses import Loss
from gradslide.oracles.base import Sampler


@dataclass(frozen=True)
class Noise(CheckedArguments):
    """Exact gradients plus normal noise with expected squared norm sigma^2 per sample.

    The mean of c samples has noise of expected squared norm sigma^2/c.

    Parameters
    ----------
    sigma : float
        Nonnegative; 0 gives exact gradients.
    """

    sigma: float

    def __post_init__(self) -> None:
        require_number("sigma", self.sigma, "0 gives exact gradients", least=0)

    def open(self, loss: Loss, agents: Sequence[int], seed: int) -> Sampler:
        """Return a sampler; see `Sampling`."""
        return _Noisy(loss, float(self.sigma), Streams(seed, agents))


class _Noisy(Sampler):
    def __init__(self, loss: Loss, sigma: float, streams: Streams) -> None:
        self._loss, self._sigma, self._streams = loss, sigma, streams

    def draw(self, start: int, count: int) -> Array:
        """The mean of the noise of so many samples."""
        m, d = self._loss.m, self._loss.d
        scale = self._sigma / math.sqrt(d * count)
        noise = np.stack([self._streams.at(i, start).standard_normal(d) for i in range(m)])
        return (scale * noise).astype(self._loss.dtype)

    def gradient(self, x: Array, samples: Array) -> Array:
        gradient = self._loss.gradient(x)
        return gradient + like(samples, gradient)
