"""Parameters of domains and penalties: one row for all agents, or one row per agent."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from gradslide._support.arrays import on_device, to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, Device, DType


def checked(name: str, value: npt.ArrayLike, *, infinite: bool = False) -> Array:
    """Return the value as a float64 array; refuse non-numbers, NaN and (unless allowed) infinity."""
    try:
        numbers = np.asarray(to_numpy(value), dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number or an array of numbers", repr(value), "pass numbers") from None
    require(not np.isnan(numbers).any(), f"{name} must not be NaN", value, "remove the missing values")
    require(infinite or bool(np.isfinite(numbers).all()), f"{name} must be finite", value, "give a finite value")
    return numbers


def check_nonnegative(name: str, value: npt.ArrayLike) -> None:
    """Refuse negative entries."""
    require(bool(np.all(checked(name, value) >= 0)), f"{name} must not be negative", value, "use 0 or more")


def share(rows: Array) -> Array:
    """Keep one row (leading axis 1) where all agents have the same."""
    return rows[:1] if len(rows) > 1 and bool((rows == rows[:1]).all()) else rows


def unset() -> Array:
    """Return the value of an array field before it is bound."""
    return np.empty(0)


@dataclass(frozen=True)
class Fit:
    """Brings parameters to the shapes and the dtype of a problem.

    Parameters
    ----------
    m : int
        Number of agents.
    d : int
        Dimension of x_i.
    dtype : dtype
        Floating type of the problem.
    """

    m: int
    d: int
    dtype: DType

    def vector(self, name: str, value: npt.ArrayLike) -> Array:
        """Return one number per coordinate, of shape (1, d) or (m, d).

        Parameters
        ----------
        name : str
            Name of the parameter, for errors.
        value : array_like
            A number, or an array of shape (d,) or (m, d).

        Returns
        -------
        ndarray
            One row where all agents share it, else one row per agent.
        """
        return self._rows(name, value, self.d, f"a number, ({self.d},) or ({self.m}, {self.d})")

    def number(self, name: str, value: npt.ArrayLike) -> Array:
        """Return one number per agent, of shape (1, 1) or (m, 1).

        Parameters
        ----------
        name : str
            Name of the parameter, for errors.
        value : array_like
            A number, or an array of shape (m,).

        Returns
        -------
        ndarray
            One row where all agents share it, else one row per agent.
        """
        values = to_numpy(value)
        return self._rows(name, values[:, None] if values.ndim == 1 else values, 1, f"a number or ({self.m},)")

    def _rows(self, name: str, value: npt.ArrayLike, width: int, shapes: str) -> Array:
        values = to_numpy(value)
        rows = np.atleast_2d(values)
        fits = rows.ndim == 2 and rows.shape[0] in (1, self.m) and rows.shape[1] in (1, width)
        require(
            fits,
            f"{name} must have the shape {shapes} for {self.m} agents in {self.d} dimensions",
            values.shape,
            "pass one for all agents, or one row per agent",
        )
        return share(np.array(np.broadcast_to(rows, (rows.shape[0], width)), dtype=self.dtype, order="C"))


class Parameters(CheckedArguments):
    """A frozen set of parameters that, once bound, have a leading axis of agents: 1 if shared, else
    m.
    """

    row_fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields with that axis (or which are Parameters themselves, or None)."""
    other_arrays: ClassVar[tuple[str, ...]] = ()
    """Names of further fields that hold arrays (or Parameters, or tuples of either)."""
    rebound_fields: ClassVar[tuple[str, ...]] = ()
    """Names of fields that others stand for, once it is bound."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def common(self) -> bool:
        """Whether all agents have the same parameters.

        Returns
        -------
        bool
            True if every field has one row.
        """
        for name in self.row_fields:
            value = getattr(self, name)
            if value is not None and not (value.common if isinstance(value, Parameters) else len(value) == 1):
                return False
        return True

    def kind(self) -> Hashable:
        """Return what must be equal for two sets of parameters to be stacked into one.

        Returns
        -------
        hashable
            The type by default.
        """
        return (type(self),)

    def replaced(self, **values: Any) -> Self:
        """Return a copy with these fields changed, without checking them again.

        Parameters
        ----------
        **values
            New values of fields, by name.

        Returns
        -------
        Parameters
            An object of the same type.
        """
        new = copy.copy(self)
        for name, value in values.items():
            object.__setattr__(new, name, value)
        return new

    def to(self, device: Device) -> Self:
        """Return the same bound parameters on a device.

        Parameters
        ----------
        device : str or device or None
            For example "cuda"; None for NumPy.

        Returns
        -------
        Parameters
            An object of the same type.
        """

        def moved(value: Any) -> Any:
            if isinstance(value, Parameters):
                return value.to(device)
            if isinstance(value, tuple):
                return tuple(moved(part) for part in value)
            return None if value is None else on_device(value, device)

        return self.replaced(**{name: moved(getattr(self, name)) for name in (*self.row_fields, *self.other_arrays)})

    def rows_of(self, agents: Array) -> Self:
        """Return the parameters of some agents.

        Parameters
        ----------
        agents : ndarray of int
            Which agents, in which order.

        Returns
        -------
        Parameters
            An object of the same type.
        """

        def pick(value: Any) -> Any:
            if isinstance(value, Parameters):
                return value.rows_of(agents)
            return value if value is None or len(value) == 1 else share(value[agents])

        return self.replaced(**{name: pick(getattr(self, name)) for name in self.row_fields})

    @classmethod
    def _require_alike(cls, singles: Sequence[Self]) -> None:
        """Refuse to stack parameters that differ in a field without an axis of agents."""
        for name in cls.__dataclass_fields__.keys() - {*cls.row_fields, *cls.rebound_fields}:
            first, *others = (getattr(single, name) for single in singles)
            if not all(_is_same(first, other) for other in others):
                rule = f"what agents have of their own in {cls.__name__} must be named in its row_fields"
                raise InputError(rule, f"different {name}", f"add {name!r} there, and bring it to shape in bind_fields")

    @classmethod
    def stack(cls, singles: Sequence[Self]) -> Self:
        """Stack the bound parameters of single agents, all of one kind.

        Parameters
        ----------
        singles : sequence of Parameters
            One object per agent, with equal `kind()`.

        Returns
        -------
        Parameters
            One object with a row for each agent; one row where they are all equal.

        Raises
        ------
        InputError
            If they differ in a field that `row_fields` does not name.
        """
        cls._require_alike(singles)

        def join(values: list[Any]) -> Any:
            if isinstance(values[0], Parameters):
                return type(values[0]).stack(values)
            return None if values[0] is None else share(np.concatenate(values))

        return singles[0].replaced(**{name: join([getattr(s, name) for s in singles]) for name in cls.row_fields})


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, Parameters) or isinstance(other, Parameters):
        return one is other or type(one) is type(other)
    return one is other or bool(np.array_equal(to_numpy(one), to_numpy(other)))
