"""What messages between neighbours begin with, and how numbers travel that are not finite."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from gradslide._support.types import Array

# Links carry finite numbers only. The largest ones stand for what is not.
_INFINITY = float(np.finfo(np.float64).max)
_NAN = float(np.nextafter(_INFINITY, 0.0))


class Purpose(IntEnum):
    """What an exchange is for."""

    DISCOVERY = 1
    COMBINATION = 2
    MAXIMUM = 3
    SUM = 4
    SURVEY = 5
    NORM = 6


class Place(NamedTuple):
    """Where an agent is in the algorithm: in which outer iteration (0 before the first), what it exchanges for, and how
    many reductions ride along. All agents are in the same place in the same round, or one of them went astray."""

    iteration: int
    purpose: Purpose
    riders: int

    def __str__(self) -> str:
        return f"a {self.purpose.name.lower()} of outer iteration {self.iteration} with {self.riders} riders"


def headed(place: Place, content: Array) -> Array:
    """A message: the place, and what is said there."""
    return np.concatenate([np.array(place, dtype=np.float64), content])


def parted(message: Array) -> tuple[Place | None, Array]:
    """The place, or None where there is no such place, and the content."""
    head = message[: len(Place._fields)].tolist()
    try:
        iteration, purpose, riders = map(int, head)
        place = Place(iteration, Purpose(purpose), riders)
    except ValueError:
        return None, message
    return place if list(place) == head else None, message[len(Place._fields) :]


def finite(values: Array) -> Array:
    """The values as numbers that links carry; those at the very end of their range turn into infinities."""
    return np.nan_to_num(np.where(np.abs(values) >= _NAN, np.copysign(np.inf, values), values), nan=_NAN)


def unlimited(values: Array) -> Array:
    """What `finite` was given."""
    values = np.where(np.abs(values) == _INFINITY, np.copysign(np.inf, values), values)
    return np.where(values == _NAN, np.nan, values)
