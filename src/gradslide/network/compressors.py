"""Compressors: messages smaller than the vectors that they stand for."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gradslide._support.errors import require, require_number
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array

__all__ = ["Compressor", "Quantization", "TopK"]


class Compressor(Protocol):
    """Compresses each agent's row of v, of shape (m, d), on its own."""

    def compress(self, v: Array, random: np.random.Generator) -> Array:
        """Return what a receiver reconstructs from the message.

        Parameters
        ----------
        v : ndarray, shape (m, d)
            One row per agent.
        random : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray, shape (m, d)
            C(v), row by row.
        """
        ...

    def contract(self, v: Array, random: np.random.Generator) -> Array:
        """Return the same, scaled so that E|C(v) - v|^2 <= (1 - quality) |v|^2.

        Parameters
        ----------
        v : ndarray, shape (m, d)
            One row per agent.
        random : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray, shape (m, d)
            The scaled C(v), row by row.
        """
        ...

    def quality(self, d: int) -> float:
        """Return the quality of the compressor for vectors of d numbers.

        Parameters
        ----------
        d : int
            Length of a vector.

        Returns
        -------
        float
            In (0, 1]; 1 loses nothing.
        """
        ...

    def floats(self, v: Array) -> int:
        """Return the size of one agent's message.

        Parameters
        ----------
        v : ndarray, shape (m, d)
            What is compressed.

        Returns
        -------
        int
            Size in numbers of v's precision, rounded up.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TopK(CheckedArguments):
    """Send the k entries that are largest in absolute value, with their positions.

    Parameters
    ----------
    k : int, optional
    share : float, optional
        k as a share of d, rounded up. Give one of the two.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> top = gs.compressors.TopK(k=2)
    >>> top.compress(np.array([[3.0, -5.0, 1.0]]), np.random.default_rng(0))
    array([[ 3., -5.,  0.]])
    """

    k: int | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        given = f"k={self.k}, share={self.share}"
        require((self.k is None) != (self.share is None), "TopK needs k or share", given, "for example TopK(share=0.1)")
        if self.k is not None:
            require_number("k", self.k, "the number of entries to keep", least=1, whole=True)
        if self.share is not None:
            require_number("share", self.share, "0.1 keeps a tenth", above=0, most=1)

    def kept(self, d: int) -> int:
        """How many of d entries are sent."""
        if self.k is not None:
            return min(d, int(self.k))
        assert self.share is not None
        # 0.07 * 100 is 7 and a little.
        return math.ceil(self.share * d - 1e-9 * d)

    def compress(self, v: Array, random: np.random.Generator) -> Array:
        k = self.kept(v.shape[1])
        if k == v.shape[1]:
            return v
        largest = np.argpartition(-np.abs(v), k - 1, axis=1)[:, :k]
        compressed = np.zeros_like(v)
        np.put_along_axis(compressed, largest, np.take_along_axis(v, largest, axis=1), axis=1)
        return compressed

    def contract(self, v: Array, random: np.random.Generator) -> Array:
        return self.compress(v, random)

    def quality(self, d: int) -> float:
        return self.kept(d) / d

    def floats(self, v: Array) -> int:
        width, d = _bits(v), int(v.shape[1])
        positions = math.ceil(math.log2(d)) if self.kept(d) < d else 0
        return min(d, math.ceil(self.kept(d) * (width + positions) / width))


@dataclass(frozen=True, kw_only=True)
class Quantization(CheckedArguments):
    """Round each entry at random, without bias, to a multiple of |v| / levels.

    The message is |v|, and a sign and a whole number for each entry (QSGD, Alistarh et al. 2017).

    Parameters
    ----------
    levels : int
        16 takes 6 bits per entry.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> quantization = gs.compressors.Quantization(levels=16)
    >>> quantization.floats(np.ones((1, 100)))
    11
    """

    levels: int = 16

    def __post_init__(self) -> None:
        require_number("levels", self.levels, "16 takes 6 bits per entry", least=1, whole=True)

    def compress(self, v: Array, random: np.random.Generator) -> Array:
        # Scaled first: squares of very small or large entries leave the range of floats.
        largest = np.max(np.abs(v), axis=1, keepdims=True)
        scaled = np.divide(v, largest, out=np.zeros_like(v), where=largest > 0)
        norms = np.linalg.norm(scaled, axis=1, keepdims=True)
        steps = np.divide(self.levels * np.abs(scaled), norms, out=np.zeros_like(v), where=norms > 0)
        rounded = np.floor(steps + random.random(v.shape, dtype=v.dtype))
        return np.sign(v) * (rounded / self.levels) * norms * largest

    def contract(self, v: Array, random: np.random.Generator) -> Array:
        return self.compress(v, random) * self.quality(v.shape[1])

    def quality(self, d: int) -> float:
        return 1 / (1 + min(d / self.levels**2, math.sqrt(d) / self.levels))

    def floats(self, v: Array) -> int:
        bits = math.ceil(math.log2(2 * self.levels + 1))
        d: int = v.shape[1]
        return min(d, math.ceil((_bits(v) + d * bits) / _bits(v)))


def _bits(v: Array) -> int:
    return 8 * int(v.dtype.itemsize)
