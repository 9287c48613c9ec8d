"""Randomness enters as a seed or a Generator."""

from typing import TypeAlias

import numpy as np

from gradslide.errors import InputError

Seed: TypeAlias = int | np.random.Generator


def generator(seed: Seed) -> np.random.Generator:
    """The Generator that a seed stands for; a Generator is taken as it is."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise InputError("seed must be a whole number >= 0 or a Generator", repr(seed), "for example seed=0") from None
