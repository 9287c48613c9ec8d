"""How second-order methods judge a step, and damp the model: J. J. More, "The Levenberg-Marquardt algorithm", 1978."""

import math

import numpy as np

from gradslide._support.types import Array

# Rounding changes the objective by about this many eps of its size.
NOISE = 4.0
# A step is accepted if the objective falls by this share of what the model predicts.
_ACCEPT = 1e-4
# Above this share the model is good, and damping falls; below, it is poor, and damping rises.
_GOOD, _POOR = 0.5, 0.1
_FALL, _RISE = 1 / 16, 4.0
# Damping below this is none.
_NO_DAMPING = 1e-6
# The next step after a rejected one is at most this share as long, and less after several in a row.
_SHORTER = 0.25
# With more, steps would be no shorter: they are lost in rounding.
_MOST_DAMPING = 1e100
# Values contradict gradients if they differ by this share of the slope, and of the values, and by this many rounding
# errors.
_ROUGHLY, _SURELY, _SURELY_IN_SINGLE, _ROUNDINGS = 0.1, 1e-6, 1e-3, 10.0
# Second derivatives below zero by this share of the largest are no rounding, nor that of differences of gradients.
_CONCAVE, _CONCAVE_IN_SINGLE = 1e-4, 1e-2
_EPS, _EPS_IN_SINGLE = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
# The first damping of a model that has no minimum.
FLAT = 1.0


def violation_of_convexity(
    low: float, high: float, rise: float, *, values: float, rounding: float, is_single: bool
) -> float:
    """Return by how much a change of the value lies outside its slopes at both ends, between which convexity has it.

    Parameters
    ----------
    low, high : float
        Slopes along the step at its start and its end.
    rise : float
        By how much the value rose.
    values : float
        The size of the values: users may compute in single precision.
    rounding : float
        What rounding may have changed.
    is_single : bool
        Whether data is in single precision.

    Returns
    -------
    float
        0 where it is no more than roughly what rounding explains.
    """
    missed = max(low - rise, rise - high)
    share = _SURELY_IN_SINGLE if is_single else _SURELY
    allowed = _ROUGHLY * max(abs(low), abs(high)) + share * values + _ROUNDINGS * rounding
    return missed if missed > allowed else 0.0


def negative_curvature(hessian: Array, scales: Array, *, is_single: bool) -> float:
    """Return how far the least eigenvalue of a Hessian lies below zero.

    Parameters
    ----------
    hessian : ndarray, shape (d, d)
        Symmetric.
    scales : ndarray, shape (d,)
        The largest second derivatives so far: where a loss is flat, theirs may have cancelled.
    is_single : bool
        Whether data is in single precision.

    Returns
    -------
    float
        0 where it is no more than roughly what rounding explains.
    """
    share, eps = (_CONCAVE_IN_SINGLE, _EPS_IN_SINGLE) if is_single else (_CONCAVE, _EPS)
    allowed = max(share * float(np.max(np.abs(hessian))), math.sqrt(eps) * float(np.max(scales)))
    if allowed == 0:
        return 0.0
    try:
        np.linalg.cholesky(hessian + allowed * np.eye(len(hessian)))
    except np.linalg.LinAlgError:
        return max(0.0, -float(np.linalg.eigvalsh(hessian)[0]))
    return 0.0


def doubt(contradiction: float, concave: float, evaluations: int) -> str:
    """Say what speaks against convexity.

    Parameters
    ----------
    contradiction, concave : float
        What `violation_of_convexity` and `negative_curvature` found.
    evaluations : int
        Evaluations so far.

    Returns
    -------
    str
        Empty if both are 0.
    """
    if concave > 0:
        found = f"the Hessian has the eigenvalue {-concave:.3g} at outer iteration {evaluations}"
        return f"{found}: the loss is not convex, or its Hessian wrong. gs.check_loss(loss) says more"
    if contradiction == 0:
        return ""
    found = f"values and gradients contradict each other by {contradiction:.3g} at outer iteration {evaluations}"
    remedy = "gs.check_loss(loss) says more"
    return f"{found}: the gradient is not that of the value, or the loss is not convex. {remedy}"


def is_good_step(decrease: float, predicted: float, noise: float) -> bool:
    """Return whether a step is accepted.

    Parameters
    ----------
    decrease, predicted : float
        By how much the objective fell, and would have fallen if the model held.
    noise : float
        By how much rounding may change the objective.

    Returns
    -------
    bool
    """
    return decrease >= _ACCEPT * predicted - noise


def after_acceptance(damping: float, decrease: float, predicted: float, noise: float) -> tuple[float, float]:
    """Return the damping of the next model, and the least one if that has no minimum.

    Parameters
    ----------
    damping : float
        Of the last model.
    decrease, predicted, noise : float
        As for `is_good_step`.

    Returns
    -------
    damping, flat : float
    """
    expected = predicted + noise
    share = (decrease + noise) / expected if expected > 0 else 1.0
    damping *= _FALL if share > _GOOD else _RISE if share < _POOR else 1.0
    return 0.0 if damping < _NO_DAMPING else damping, damping or FLAT


def after_rejection(
    damping: float, rejections: int, *, slope: float | None, decrease: float, steepness: float, length: float
) -> float:
    """Return the damping after a rejected step.

    Parameters
    ----------
    damping : float
        Of the last model.
    rejections : int
        How many steps were rejected in a row.
    slope : float or None
        Slope of the objective along the step at the best point; None if values at its end are not finite.
    decrease : float
        By how much the objective fell; negative.
    steepness, length : float
        Norms of gradient and step in the metric by which damping is scaled.

    Returns
    -------
    float
    """
    share = _SHORTER**rejections
    if slope is not None and slope < 0:
        # The minimum of the parabola through both values with the slope at x.
        share = min(share, max(-slope / (2 * max(-decrease - slope, 1e-300)), share**2))
    return min(max(_RISE * damping, steepness / max(share * length, 1e-300)), _MOST_DAMPING)
