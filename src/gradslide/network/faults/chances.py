"""Many independent yes or no, drawn fast."""

import numpy as np

from gradslide._support.types import Array


def draws(count: int, random: np.random.Generator) -> Array:
    """Uniform 32-bit whole numbers (count,), two from each number of 64 bits, on every machine the same."""
    raw = np.asarray(random.bit_generator.random_raw((count + 1) // 2))
    return raw.astype("<u8", copy=False).view("<u4")[:count]


def level(probability: float) -> np.uint32:
    """A draw is below this with the given probability, to 2^-32."""
    return np.uint32(min(round(probability * 2**32), 2**32 - 1))
