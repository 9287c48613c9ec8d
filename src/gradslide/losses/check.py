"""Checks of losses that users write: gradients against values, Hessians against gradients,
convexity, smoothness, shapes.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradslide._support.arrays import doubles, dtype_of, on_device, to_numpy
from gradslide._support.errors import InputError, kind_of, raised_in, require, require_number
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.losses.base import Loss
from gradslide.losses.custom import Custom
from gradslide.losses.inputs import numeric_array

# Rounding errors behind one value.
_ROUNDINGS = 64
# A derivative below this is none: values do not show it where exp has underflowed.
_NOTHING = 1e-100
# The share of a slope that differences may miss it by, and of a bound that rounding may exceed it by.
_TOLERANCE = 1e-3
# The same before a run: values and gradients of users' code may be approximations.
ROUGH = 0.1
# How often a point where a value is infinite is exchanged for one that is 16 times as near to the start.
_RETREATS = 3
# Entries of all Hessians together up to which they are checked, and columns up to which by their eigenvalues.
_MOST_ENTRIES, _MOST_COLUMNS = 2**26, 200


@dataclass(frozen=True)
class LossReport:
    """What `check_loss` found.

    Attributes
    ----------
    findings : tuple of str
        What is wrong, one sentence each; empty if nothing is.
    passed : tuple of str
        The checks that found nothing.
    skipped : tuple of str
        The checks that were not possible, and why.

    Examples
    --------
    >>> import gradslide as gs
    >>> loss = gs.losses.LeastSquares([[1.0], [2.0]], [1.0, 3.0], agents=2)
    >>> gs.check_loss(loss).ok
    True
    """

    findings: tuple[str, ...]
    passed: tuple[str, ...]
    skipped: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __str__(self) -> str:
        lines = [f"WRONG    {each}" for each in self.findings]
        lines += [f"ok       {each}" for each in self.passed]
        lines += [f"skipped  {each}" for each in self.skipped]
        return "\n".join(lines)


@dataclass(frozen=True)
class Derivatives:
    """The derivative of each agent's function along a direction: by differences, and as claimed.

    Attributes
    ----------
    measured, claimed : ndarray, shape (m, k)
        By differences of values (k = 1) or gradients (k = d), and by the gradient or the Hessian.
    error : ndarray, shape (m,)
        How far the measured ones may be off. NaN where the function is, infinite where it is.
    tolerance : float
        The share of the derivative that both may differ by in any case.
    """

    measured: Array
    claimed: Array
    error: Array
    tolerance: float

    @property
    def excess(self) -> Array:
        """How far both differ in terms of what is allowed, shape (m,).

        It is 0 where the function is not finite: nothing can be compared there. It is infinite
        where only the claimed derivative is not.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            allowed = self.tolerance * np.maximum(_lengths(self.measured), _lengths(self.claimed))
            allowed += self.error + _NOTHING
            excess = _lengths(self.measured - self.claimed) / allowed
        return np.where(np.isfinite(self.error), np.where(np.isfinite(excess), excess, np.inf), 0.0)

    @property
    def worst(self) -> int | None:
        """The agent with the largest excess; None if no derivatives differ by more than allowed."""
        excess = self.excess
        worst = int(np.argmax(excess))
        return worst if excess[worst] > 1 else None

    def replaced(self, where: Array, other: "Derivatives") -> "Derivatives":
        """Return these derivatives with those of some agents, where (m,) is true, from others."""
        return replace(
            self,
            measured=np.where(where[:, None], other.measured, self.measured),
            claimed=np.where(where[:, None], other.claimed, self.claimed),
            error=np.where(where, other.error, self.error),
        )


def slopes(
    value: Callable[[Array], Array],
    gradient: Callable[[Array], Array],
    x: Array,
    direction: Array,
    tolerance: float = _TOLERANCE,
) -> Derivatives:
    """Compare gradients with central differences of the value.

    This takes four values and a gradient, six values if they differ. It takes more where a value is
    infinite, as far from the start it may be: by overflow, or as that of a barrier.

    Parameters
    ----------
    value, gradient : callable
        Those of the loss.
    x : ndarray, shape (m, d)
        One point per agent.
    direction : ndarray, shape (m, d)
        One direction per agent. Values are taken at points that are at most a fiftieth of it away;
        nearer and nearer to x - direction/2 where they are infinite.
    tolerance : float
        The share of the slope that they may differ by in any case.

    Returns
    -------
    Derivatives
        Both slopes, and how far those of the values may be off.
    """

    def compared(x: Array, direction: Array) -> Derivatives:
        claimed = np.sum(to_numpy(doubles(gradient(x))) * to_numpy(doubles(direction)), axis=1, keepdims=True)
        return _derivatives(value, claimed, x, direction, tolerance)

    found = compared(x, direction)
    for _ in range(_RETREATS):
        if not np.isinf(found.error).any():
            break
        x, direction = x - 15 / 32 * direction, direction / 16
        found = found.replaced(np.isinf(found.error), compared(x, direction))
    return found


def missed_slopes(
    value: Callable[[Array], Array], gradient: Callable[[Array], Array], x: Array, direction: Array
) -> Array:
    """Return by how much values contradict gradients along a direction, and the curvature there.

    The slope of a convex function between two points lies between those at its ends. So kinks nearby
    contradict nothing. This takes two values and two gradients.

    Parameters
    ----------
    value, gradient : callable
        Those of the loss.
    x, direction : ndarray, shape (m, d)
        One point and one direction per agent.

    Returns
    -------
    ndarray, shape (m, 2)
        How far the slope of the values is from those that the gradients claim, beyond rounding, and
        the second derivative along the direction, by a difference of gradients. Both are 0 where
        values or gradients are not finite.
    """
    eps = float(np.finfo(dtype_of(x)).eps)
    step, along = eps**0.25, to_numpy(doubles(direction))
    ends = [x - step * direction, x + step * direction]
    before, after = (to_numpy(doubles(value(end))) for end in ends)
    with np.errstate(invalid="ignore", over="ignore"):
        claimed = np.sort([np.sum(to_numpy(doubles(gradient(end))) * along, axis=1) for end in ends], axis=0)
        measured = (after - before) / (2 * step)
        rounding = _ROUNDINGS * eps * np.maximum(np.abs(before), np.abs(after)) / step
        missed = np.where(measured > claimed[1] + rounding, measured - claimed[1] - rounding, 0.0)
        missed = np.where(measured < claimed[0] - rounding, measured - claimed[0] + rounding, missed)
        found = np.stack([missed, (claimed[1] - claimed[0]) / (2 * step)], axis=1)
    return np.where(np.isfinite(found).all(axis=1, keepdims=True), found, 0.0)


def rates(
    gradient: Callable[[Array], Array], hessian: Array, x: Array, direction: Array, tolerance: float = _TOLERANCE
) -> Derivatives:
    """Compare Hessians with central differences of the gradient.

    This takes four gradients, six if they differ.

    Parameters
    ----------
    gradient : callable
        That of the loss.
    hessian : ndarray, shape (m, d, d)
        The Hessians at x.
    x, direction : ndarray, shape (m, d)
        One point and one direction per agent. Gradients are taken at points that are at most a
        fiftieth of it away.
    tolerance : float
        The share of the rate that they may differ by in any case.

    Returns
    -------
    Derivatives
        Both rates, and how far those of the gradients may be off.
    """
    claimed = np.einsum("ijk,ik->ij", to_numpy(hessian), to_numpy(doubles(direction)))
    return _derivatives(gradient, claimed, x, direction, tolerance)


def _derivatives(
    function: Callable[[Array], Array], claimed: Array, x: Array, direction: Array, tolerance: float
) -> Derivatives:
    """Compare claimed derivatives, (m, k), with differences of a function, which tell their own
    error: they are taken with two steps.
    """
    eps = float(np.finfo(dtype_of(x)).eps)

    def differences(step: float) -> tuple[Array, Array]:
        ends = [to_numpy(doubles(function(x + sign * step * direction))) for sign in (1, -1)]
        plus, minus = (end.reshape(len(end), -1) for end in ends)
        with np.errstate(invalid="ignore", over="ignore"):
            rounding = _ROUNDINGS * eps * np.maximum(_lengths(plus), _lengths(minus)) / step
            return (plus - minus) / (2 * step), rounding

    def compared(coarse: Array, step: float) -> Derivatives:
        fine, rounding = differences(step)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.where(np.isfinite(rounding), 4 * (rounding + _lengths(coarse - fine)), rounding)
        return Derivatives(fine, claimed, error, tolerance)

    coarse, _ = differences(eps**0.25)
    found = compared(coarse, eps**0.25 / 4)
    if found.worst is None:
        return found
    # A kink nearby would look the same: is it left behind with a smaller step?
    closer = compared(found.measured, eps**0.25 / 32)
    return found.replaced(closer.excess < found.excess, closer)


def _lengths(rows: Array) -> Array:
    """The lengths of the rows; their squares may overflow."""
    return np.hypot.reduce(np.abs(rows), axis=1)


def not_finite(loss: Loss, values: Array, agent: int, agents: Sequence[int]) -> str:
    """Say of which agent the value is NaN or infinite.

    Parameters
    ----------
    loss : Loss
        Its type is named.
    values : ndarray, shape (m,)
        Or other numbers that are NaN or infinite where the values are.
    agent : int
        The row of the agent.
    agents : sequence of int
        The agents of the rows.

    Returns
    -------
    str
    """
    kind = "NaN" if np.isnan(values[agent]) else "infinite"
    return f"agent {agents[agent]} of {type(loss).__name__}: its value is {kind}"


def mismatch(loss: Loss, found: Derivatives, agents: Sequence[int]) -> str:
    """Return which agent's gradient is not that of its value and by how much, or which of the two
    is not finite, or an empty string.
    """
    undefined = np.flatnonzero(~np.isfinite(found.error))
    agent = int(undefined[0]) if undefined.size else found.worst
    if agent is None:
        return ""
    whose = f"agent {agents[agent]} of {type(loss).__name__}"
    if undefined.size:
        return f"{not_finite(loss, found.error, agent, agents)} at a random point"
    if not np.isfinite(found.claimed[agent]).all():
        return f"{whose}: its gradient is not finite at a random point"
    return (
        f"{whose}: along a random direction its value has slope {found.measured[agent, 0]:.6g}, "
        f"its gradient says {found.claimed[agent, 0]:.6g}"
    )


def hessian_mismatch(loss: Loss, found: Derivatives, agents: Sequence[int]) -> str:
    """Return which agent's Hessian is not that of its gradient and by how much, or is not finite,
    or an empty string.
    """
    worst = found.worst
    if worst is None:
        return ""
    whose = f"agent {agents[worst]} of {type(loss).__name__}"
    if not np.isfinite(found.claimed[worst]).all():
        return f"{whose}: its Hessian is not finite at a random point"
    j = int(np.argmax(np.abs(found.measured[worst] - found.claimed[worst])))
    return (
        f"{whose}: along a random direction coordinate {j} of its gradient changes at the rate "
        f"{found.measured[worst, j]:.6g}, its Hessian says {found.claimed[worst, j]:.6g}"
    )


def has_checkable_hessian(loss: Loss) -> bool:
    """Return whether the loss has Hessians that are not too large to be checked."""
    return loss.has_hessian and loss.m * loss.d**2 <= _MOST_ENTRIES


def has_own_hessian(loss: Loss) -> bool:
    """Return whether Hessians are a user's code."""
    if isinstance(loss, Custom):
        return loss.has_hessian
    functions = (getattr(type(loss), name, None) for name in ("hessian", "row_curvatures"))
    return any(not each.__module__.startswith("gradslide.") for each in functions if each is not None)


@checked_arguments
def check_loss(
    loss: Loss, x: Array | None = None, *, points: int = 3, radius: float | None = None, seed: int = 0
) -> LossReport:
    """Check that a loss is what methods take it for.

    Parameters
    ----------
    loss : Loss
        The loss, for example a `Custom` one.
    x : array, optional
        A point for all agents, or one row for each, around which to look; 0 by default. Give one if
        the loss is not defined everywhere.
    points : int
        Number of random points.
    radius : float, optional
        How far from x they are, about; 1 + norm(x) by default.
    seed : int
        Seed of the random points.

    Returns
    -------
    LossReport
        What is wrong, with the agent and the numbers. `print` shows it line by line.

    Notes
    -----
    The checks: values and gradients have the right shape and precision and are finite; they are the
    same when asked for again, and when asked for together; the gradient is the derivative of the
    value, along random directions and the coordinate axes; the value is convex along random
    segments; the gradient changes no faster than the smoothness constants say. Where the loss has
    Hessians (`has_hessian`): they have the right shape and precision, are symmetric and positive
    semidefinite, and are the derivative of the gradient. Random points can miss a defect; a defect
    that is found is one.

    Examples
    --------
    >>> import gradslide as gs
    >>> loss = gs.losses.Custom(
    ...     value=lambda x: (x**2).sum(axis=1), gradient=lambda x: 3 * x, agents=2, dimension=1
    ... )
    >>> report = gs.check_loss(loss)
    >>> report.ok
    False
    >>> print(report.findings[0].split(". ")[1])
    Coordinate 0 of agent 0: 2.08725 by differences, 3.13087 in the gradient
    """
    if not isinstance(loss, Loss):
        raise InputError("loss must be a gradslide loss", kind_of(loss), "use gs.losses.Custom for your own")
    require_number("points", points, "3 finds most mistakes", least=1, whole=True)
    centre = np.zeros((loss.m, loss.d)) if x is None else numeric_array("x", x).astype(np.float64)
    fits = centre.shape in ((loss.d,), (loss.m, loss.d))
    require(fits, f"x must have shape ({loss.d},) or ({loss.m}, {loss.d})", centre.shape, "give one point")
    centre = np.broadcast_to(centre, (loss.m, loss.d))
    if radius is not None:
        require_number("radius", radius, "it is the distance of random points from x", above=0)
    far = 1 + np.linalg.norm(centre, axis=1, keepdims=True) if radius is None else np.full((loss.m, 1), float(radius))
    return _Checker(loss, centre, far, int(points), seed).report()


class _Checker:
    """One report in the making."""

    def __init__(self, loss: Loss, centre: Array, radius: Array, points: int, seed: int) -> None:
        self._loss, rng = loss, np.random.default_rng(seed)
        self._findings: dict[str, str] = {}
        self._skipped: dict[str, str] = {}
        moves = rng.normal(size=(points + 1, loss.m, loss.d))
        moves *= radius * rng.uniform(0.5, 1.5, size=(points + 1, 1, 1)) / np.linalg.norm(moves, axis=2, keepdims=True)
        self._points = [self._placed(centre + move) for move in moves]
        self._directions = [self._placed(self._points_of(rng, radius)) for _ in moves]
        self._eps = float(np.finfo(loss.dtype).eps)

    def _points_of(self, rng: np.random.Generator, radius: Array) -> Array:
        direction = rng.normal(size=(self._loss.m, self._loss.d))
        return radius * direction / np.linalg.norm(direction, axis=1, keepdims=True)

    def _placed(self, rows: Array) -> Array:
        return on_device(np.asarray(rows, dtype=self._loss.dtype), self._loss.device)

    def report(self) -> LossReport:
        checks = {
            "shapes and precision": self._shapes,
            "repeatable": self._repeatable,
            "value_and_gradient": self._together,
            "gradient": self._derivative,
            "convexity": self._convexity,
            "smoothness": self._smoothness,
            "hessian": self._hessian,
        }
        for name, check in checks.items():
            if name != "shapes and precision" and "shapes and precision" in self._findings:
                self._skipped[name] = "values or gradients cannot be used"
            else:
                check(name)
        passed = tuple(name for name in checks if name not in self._findings and name not in self._skipped)
        findings = tuple(f"{name}: {text}" for name, text in self._findings.items())
        return LossReport(findings, passed, tuple(f"{name}: {why}" for name, why in self._skipped.items()))

    def _ask(self, function: str, x: Array) -> Any:
        """What a function of the loss returns; its errors say that it was called here."""
        with raised_in(f"{type(self._loss).__name__}.{function}, called by check_loss at a random point"):
            return getattr(self._loss, function)(x)

    def _value(self, x: Array) -> Array:
        return self._ask("value", x)

    def _gradient(self, x: Array) -> Array:
        return self._ask("gradient", x)

    def _constants(self) -> Array:
        """The smoothness constants."""
        with raised_in(f"{type(self._loss).__name__}.smoothness, called by check_loss"):
            return to_numpy(doubles(self._loss.smoothness(2)))

    def _values(self, x: Array) -> Array:
        return to_numpy(doubles(self._value(x)))

    def _gradients(self, x: Array) -> Array:
        return to_numpy(doubles(self._gradient(x)))

    def _shapes(self, name: str) -> None:
        loss = self._loss
        wanted = {"gradient": (loss.m, loss.d)} | ({"value": (loss.m,)} if loss.has_value else {})
        for function, shape in wanted.items():
            try:
                found = self._ask(function, self._points[0])
            except InputError as error:
                self._findings[name] = str(error)
                return
            # Values may be in double precision where gradients are not.
            types = (loss.dtype, np.dtype(np.float64)) if function == "value" else (loss.dtype,)
            if tuple(found.shape) != shape or dtype_of(found) not in types:
                self._findings[name] = (
                    f"{function} must have shape {shape} and type {loss.dtype}; "
                    f"got {tuple(found.shape)} and {dtype_of(found)}"
                )
                return
            bad = np.flatnonzero(~np.isfinite(to_numpy(found)).reshape(loss.m, -1).all(axis=1))
            if bad.size:
                self._findings[name] = f"{function} of agent {bad[0]} is not finite at a random point; give x inside"
                return

    def _repeatable(self, name: str) -> None:
        loss, x = self._loss, self._points[0]
        for function in ("value", "gradient") if loss.has_value else ("gradient",):
            one, other = (to_numpy(self._ask(function, x)) for _ in range(2))
            away = np.abs(one - other).reshape(loss.m, -1).max(axis=1)
            agent = int(np.argmax(away))
            if away[agent] > _ROUNDINGS * self._eps * np.abs(one).max():
                self._findings[name] = f"{function} of agent {agent} changes by {away[agent]:.3g} when asked for again"

    def _together(self, name: str) -> None:
        loss, x = self._loss, self._points[0]
        if not loss.has_value:
            self._skipped[name] = "the loss has no value"
            return
        for function, found, alone in zip(
            ("value", "gradient"),
            self._ask("value_and_gradient", x),
            (self._value(x), self._gradient(x)),
            strict=True,
        ):
            away = np.abs(to_numpy(doubles(found - alone))).reshape(loss.m, -1).max(axis=1)
            agent = int(np.argmax(away))
            if away[agent] > 1e3 * _ROUNDINGS * self._eps * (1e-300 + np.abs(to_numpy(alone)).max()):
                self._findings[name] = (
                    f"the {function} of agent {agent} differs by {away[agent]:.3g} from what `{function}` gives"
                )

    def _derivative(self, name: str) -> None:
        loss = self._loss
        if not loss.has_value:
            self._skipped[name] = "the loss has no value"
            return
        for x, direction in zip(self._points, self._directions, strict=True):
            found = slopes(self._value, self._gradient, x, direction)
            if text := mismatch(loss, found, range(loss.m)):
                self._findings[name] = text
                break
        else:
            return
        if not (np.isfinite(found.error).all() and np.isfinite(found.claimed).all()):
            return
        # Single coordinates say more about what to mend.
        for j in range(min(loss.d, 20)):
            axis = self._placed(np.broadcast_to(np.eye(loss.d)[j], (loss.m, loss.d)))
            found = slopes(self._value, self._gradient, x, axis)
            worst = found.worst
            if worst is not None:
                self._findings[name] += (
                    f". Coordinate {j} of agent {worst}: {found.measured[worst, 0]:.6g} by differences, "
                    f"{found.claimed[worst, 0]:.6g} in the gradient"
                )
                return

    def _convexity(self, name: str) -> None:
        loss = self._loss
        for a, b in zip(self._points, self._points[1:], strict=False):
            one, other = self._gradients(a), self._gradients(b)
            step = to_numpy(doubles(b - a))
            rise = np.sum((other - one) * step, axis=1)
            size = (np.linalg.norm(one, axis=1) + np.linalg.norm(other, axis=1)) * np.linalg.norm(step, axis=1)
            agent = int(np.argmin(rise / (size + 1e-300)))
            if rise[agent] < -_ROUNDINGS * self._eps * loss.d * size[agent]:
                self._findings[name] = (
                    f"the gradient of agent {agent} is not monotone: <g(b) - g(a), b - a> = {rise[agent]:.3g}"
                )
                return
            if not loss.has_value:
                continue
            ends, middle = [self._values(a), self._values(b)], self._values((a + b) / 2)
            above = middle - (ends[0] + ends[1]) / 2
            size = np.maximum(np.abs(ends[0]), np.abs(ends[1])) + np.abs(middle)
            agent = int(np.argmax(above / (size + 1e-300)))
            if above[agent] > _ROUNDINGS * self._eps * size[agent]:
                self._findings[name] = (
                    f"the value of agent {agent} lies above its chord: {middle[agent]:.6g} in the middle between "
                    f"{ends[0][agent]:.6g} and {ends[1][agent]:.6g}"
                )
                return

    def _smoothness(self, name: str) -> None:
        try:
            constants = self._constants()
        except InputError as error:
            self._skipped[name] = str(error).split(";")[0]
            return
        for a, b in zip(self._points, self._points[1:], strict=False):
            change = np.linalg.norm(self._gradients(b) - self._gradients(a), axis=1)
            ratio = change / np.linalg.norm(to_numpy(doubles(b - a)), axis=1)
            agent = int(np.argmax(ratio - constants * (1 + _TOLERANCE)))
            if ratio[agent] > constants[agent] * (1 + _TOLERANCE) + math.sqrt(self._eps) * ratio[agent]:
                self._findings[name] = (
                    f"the gradient of agent {agent} changes {ratio[agent]:.6g} times as fast as x, "
                    f"its smoothness constant is {constants[agent]:.6g}"
                )
                return

    def _hessian(self, name: str) -> None:
        loss = self._loss
        if not has_checkable_hessian(loss):
            self._skipped[name] = "Hessians are too large" if loss.has_hessian else "the loss has no Hessians"
            return
        for x, direction in zip(self._points, self._directions, strict=True):
            try:
                hessian = self._ask("hessian", x)
            except InputError as error:
                self._findings[name] = str(error)
                return
            if text := self._hessian_form(hessian) or self._hessian_signs(hessian, direction):
                self._findings[name] = text
                return
            if text := hessian_mismatch(loss, rates(self._gradient, hessian, x, direction), range(loss.m)):
                self._findings[name] = text + self._hessian_column(hessian, x)
                return

    def _hessian_form(self, hessian: Array) -> str:
        """What is wrong with shape, precision and symmetry."""
        m, d = self._loss.m, self._loss.d
        shape, dtype = tuple(np.shape(hessian)), getattr(hessian, "dtype", type(hessian))
        if shape != (m, d, d) or dtype != np.float64:
            return f"Hessians must have shape {(m, d, d)} and type float64; got {shape} and {dtype}"
        bad = np.flatnonzero(~np.isfinite(hessian).all(axis=(1, 2)))
        if bad.size:
            return f"the Hessian of agent {bad[0]} is not finite at a random point; give x inside"
        away, size = np.abs(hessian - hessian.swapaxes(1, 2)), np.abs(hessian).max(axis=(1, 2))
        agent = int(np.argmax(away.max(axis=(1, 2)) / (size + 1e-300)))
        j, k = np.unravel_index(np.argmax(away[agent]), (d, d))
        if away[agent, j, k] > _ROUNDINGS * self._eps * size[agent]:
            entries = f"{hessian[agent, j, k]:.6g} in row {j}, column {k}, {hessian[agent, k, j]:.6g} in row {k}"
            return f"the Hessian of agent {agent} is not symmetric: {entries}, column {j}"
        return ""

    def _hessian_signs(self, hessian: Array, direction: Array) -> str:
        """Which agent's Hessian is not positive semidefinite."""
        along = to_numpy(doubles(direction))
        along = along / np.linalg.norm(along, axis=1, keepdims=True)
        if self._loss.d <= _MOST_COLUMNS:
            along = np.linalg.eigh(hessian)[1][:, :, 0]
        curvature = np.einsum("ij,ijk,ik->i", along, hessian, along)
        size = self._loss.d * np.abs(hessian).max(axis=(1, 2))
        # Where all of it is next to nothing, it may be what rounding left of larger terms.
        with suppress(InputError):
            size += self._constants()
        agent = int(np.argmin(curvature / (size + 1e-300)))
        if curvature[agent] >= -_ROUNDINGS * self._eps * size[agent]:
            return ""
        return (
            f"the Hessian of agent {agent} is not positive semidefinite: <v, H v> = {curvature[agent]:.6g} "
            f"along a direction v of length 1"
        )

    def _hessian_column(self, hessian: Array, x: Array) -> str:
        """A single column says more about what to mend."""
        loss = self._loss
        for j in range(min(loss.d, 20)):
            axis = self._placed(np.broadcast_to(np.eye(loss.d)[j], (loss.m, loss.d)))
            found = rates(self._gradient, hessian, x, axis)
            worst = found.worst
            if worst is not None:
                row = int(np.argmax(np.abs(found.measured[worst] - found.claimed[worst])))
                measured, claimed = found.measured[worst, row], found.claimed[worst, row]
                return f". Row {row}, column {j} of agent {worst}: {measured:.6g} by differences, {claimed:.6g} given"
        return ""
