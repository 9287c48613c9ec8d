"""The limited memory BFGS matrix: what is known about curvature from the last steps.

D. C. Liu, J. Nocedal, "On the limited memory BFGS method for large scale optimization", Math. Program.
45 (1989).
"""

import math
from typing import NamedTuple

import numpy as np

from gradslide._support.types import Array
from gradslide.programs.low_rank import LowRank

# A pair (s, y) counts if <s, y> is more than this many roundings of its terms.
_VISIBLE = 16.0
# <s, B s> below this share of its terms is lost in rounding.
_LOST = 1e-15
# A function is straight along a step if <s, y> is not seen and would be at this share of the slope. Then theta falls.
_STRAIGHT, _FLATTER, _LEAST = 1e-3, 1 / 16, 1e-100
# Slopes below this share of the objective at the start do not matter.
_MATTERS = 1e-4


class Memory(NamedTuple):
    """The last steps and how the gradient changed over them.

    Attributes
    ----------
    metric : ndarray, shape (d,)
        The diagonal D of the first approximation, theta D.
    theta : float
        Its factor.
    steps, changes : ndarray, shape (k, d)
        Pairs of s and y, the oldest first.
    """

    metric: Array
    theta: float
    steps: Array
    changes: Array

    @classmethod
    def first(cls, metric: Array, gradient: Array, objective: float) -> "Memory":
        """Return a memory without pairs, with the theta with which the objective would fall by its own size."""
        theta, none = float(np.sum(least_curvature(gradient, objective) / metric)), np.zeros((0, len(metric)))
        return cls(metric, theta or 1.0, none, none)

    def learned(
        self,
        step: Array,
        before: Array,
        after: Array,
        *,
        size: int,
        eps: float,
        objective: float,
        first: float,
        is_accepted: bool,
    ) -> "Memory":
        """Return the memory after a step.

        Parameters
        ----------
        step : ndarray, shape (d,)
            The step s.
        before, after : ndarray, shape (d,)
            The gradients at its ends.
        size : int
            How many pairs are kept.
        eps : float
            The precision of gradients.
        objective, first : float
            The objective before the step, and at the start of the run.
        is_accepted : bool
            Whether the end of the step is the best point now.

        Returns
        -------
        Memory
        """
        if not step.any():
            # B is so steep that steps are lost in rounding, and would be for ever: start over.
            return Memory.first(self.metric, before, objective)
        change = after - before
        product = float(step @ change)
        rounding = eps * float(np.abs(step) @ (np.abs(after) + np.abs(before)))
        if not product > _VISIBLE * rounding:
            slope = abs(float(step @ before))
            is_straight = slope > max(_VISIBLE * rounding / _STRAIGHT, _MATTERS * abs(first))
            return self._replace(theta=max(_FLATTER * self.theta, _LEAST)) if is_straight and is_accepted else self
        theta = math.sqrt(float(np.sum(change**2 / self.metric)) / float(np.sum(self.metric * step**2)))
        steps, changes = np.vstack([self.steps, step]), np.vstack([self.changes, change])
        return Memory(self.metric, theta, steps[-size:], changes[-size:])

    @property
    def steepest(self) -> float:
        """The largest curvature along the steps that are kept; 0 without any."""
        squares = np.sum(self.steps**2, axis=1)
        return float(np.max(np.abs(np.sum(self.steps * self.changes, axis=1)) / squares, initial=0.0))

    @property
    def scales(self) -> Array:
        """The first approximation, theta D."""
        return self.theta * self.metric

    def matrix(self) -> LowRank:
        """Return the BFGS matrix B."""
        first = self.scales
        found = nothing = LowRank(first, np.zeros((len(first), 0)), np.zeros(0))
        for s, y in zip(self.steps, self.changes, strict=True):
            # B+ = B - Bs s'B/(s'Bs) + yy'/(s'y)
            Bs = found @ s
            terms = float(found.diagonal @ s**2 + np.abs(found.weights) @ (found.factors.T @ s) ** 2)
            if not float(s @ Bs) > _LOST * terms:
                # Rounding has made B indefinite: older pairs are forgotten.
                found, Bs = nothing, first * s
            pair = np.column_stack([Bs / np.sqrt(s @ Bs), y / np.sqrt(s @ y)])
            factors, weights = np.hstack([found.factors, pair]), np.append(found.weights, [-1.0, 1.0])
            found = LowRank(found.diagonal, factors, weights)
        return found


def least_curvature(gradient: Array, objective: float) -> Array:
    """Return second derivatives with which no coordinate alone could lower the objective by more than its size."""
    # The square of a gradient may overflow where this does not.
    return np.abs(gradient) * (np.abs(gradient) / (2 * abs(objective)) if objective else 1.0)
