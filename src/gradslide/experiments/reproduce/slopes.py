"""How one count grows with another: a straight line through logarithms, with its interval."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradslide._support.types import Array

_FEWEST = 3
_SHARE = 0.95


@dataclass(frozen=True)
class SlopeFit:
    """log y = intercept + slope log x by least squares; low, high: the slope's 95 % interval, from
    Student's t.

    center, spread: mean of log x, and the sum of squares about it; margin: t times the residuals'
    deviation.
    """

    slope: float
    low: float
    high: float
    intercept: float
    points: int
    center: float
    spread: float
    margin: float

    @property
    def text(self) -> str:
        return f"slope {self.slope:z.3f} (95 % interval {self.low:z.3f} to {self.high:z.3f}, {self.points} points)"

    def line(self, x: Array) -> Array:
        return np.exp(self.intercept + self.slope * np.log(x))

    def band(self, x: Array) -> tuple[Array, Array]:
        """Where the line lies with 95 % confidence, at each x."""
        log_x = np.log(x)
        half = self.margin * np.sqrt(1 / self.points + (log_x - self.center) ** 2 / self.spread)
        middle = self.intercept + self.slope * log_x
        return np.exp(middle - half), np.exp(middle + half)


def fitted(x: npt.ArrayLike, y: npt.ArrayLike) -> SlopeFit | None:
    """None where a line says nothing: fewer than three points, or all above one another."""
    from scipy.stats import t

    log_x, log_y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    points = len(log_x)
    if points < _FEWEST or np.ptp(log_x) == 0:
        return None
    center = float(log_x.mean())
    spread = float(np.sum((log_x - center) ** 2))
    slope = float((log_x - center) @ log_y) / spread
    intercept = float(log_y.mean()) - slope * center
    residual = math.sqrt(float(np.sum((log_y - intercept - slope * log_x) ** 2)) / (points - 2))
    margin = float(t.ppf((1 + _SHARE) / 2, points - 2)) * residual
    half = margin / math.sqrt(spread)
    return SlopeFit(slope, slope - half, slope + half, intercept, points, center, spread, margin)
