"""Penalties r that a domain adds inside its prox step: l1, group l1 and the elastic net."""

from __future__ import annotations

import abc
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import at_least, doubles, dtype_of, is_numpy, on_device, sparse_like, to_numpy
from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array, Device, Parameter
from gradslide.domains.parameters import Fit, Parameters, check_nonnegative, checked, unset


class Penalty(Parameters, abc.ABC):
    """A penalty r(x) = h(x) + l2/2 |x|_2^2, where h is convex and positively homogeneous."""

    l2: Parameter = 0.0

    @property
    def is_strong(self) -> bool:
        """Whether r is strongly convex.

        Returns
        -------
        bool
            True if l2 is positive for all agents.
        """
        return bool(np.all(to_numpy(self.l2) > 0))

    @abc.abstractmethod
    def bind(self, fit: Fit) -> Self:
        """Return the penalty with parameters as arrays that fit a problem.

        Parameters
        ----------
        fit : Fit
            Brings parameters to shape, as in `Domain.bind_fields`.

        Returns
        -------
        Penalty
            The bound penalty.
        """

    @abc.abstractmethod
    def value(self, x: Array) -> Array:
        """Return r(x_i) of each agent.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m,)
            r(x_i).
        """

    @abc.abstractmethod
    def shrink(self, v: Array, step: Array | float) -> Array:
        """Return argmin over x of step h(x) + 1/2 |x - v|^2.

        Parameters
        ----------
        v : ndarray, shape (m, d)
            One point per agent.
        step : float or ndarray, shape (m, 1)
            Weight of h, nonnegative.

        Returns
        -------
        ndarray, shape (m, d)
            The minimizer of each agent.
        """


def soft_threshold(v: Array, threshold: Array | float) -> Array:
    """Return sign(v) max(|v| - threshold, 0)."""
    xp = array_namespace(v)
    return v - xp.maximum(xp.minimum(v, threshold), -threshold)


def weighted_l1(x: Array, weight: Parameter) -> Array:
    """Return sum_j weight_j |x_j| per agent, in double precision."""
    xp = array_namespace(x)
    return xp.sum(weight * xp.abs(doubles(x)), axis=-1)


@dataclass(frozen=True, eq=False)
class L1(Penalty):
    """The penalty r(x) = sum_j weight_j |x_j|.

    Parameters
    ----------
    weight : array_like
        Nonnegative: a number, (d,), or (m, d) where agents differ.

    Examples
    --------
    >>> import gradslide as gs
    >>> domain = gs.domains.Free(penalty=gs.L1(0.01))
    """

    weight: Parameter

    row_fields: ClassVar[tuple[str, ...]] = ("weight",)

    def __post_init__(self) -> None:
        check_nonnegative("L1's weight", self.weight)

    def bind(self, fit: Fit) -> Self:
        return self.replaced(weight=fit.vector("L1's weight", self.weight))

    def value(self, x: Array) -> Array:
        return weighted_l1(x, self.weight)

    def shrink(self, v: Array, step: Array | float) -> Array:
        return soft_threshold(v, step * self.weight)


@dataclass(frozen=True, eq=False)
class ElasticNet(Penalty):
    """The penalty r(x) = sum_j l1_j |x_j| + l2/2 |x|_2^2.

    Parameters
    ----------
    l1 : array_like
        Nonnegative: a number, (d,) or (m, d).
    l2 : float
        Nonnegative. r is strongly convex if it is positive.
    """

    l1: Parameter
    l2: Parameter

    row_fields: ClassVar[tuple[str, ...]] = ("l1", "l2")

    def __post_init__(self) -> None:
        check_nonnegative("ElasticNet's l1", self.l1)
        check_nonnegative("ElasticNet's l2", self.l2)
        require(np.ndim(self.l2) == 0, "ElasticNet's l2 must be one number", self.l2, "weigh coordinates with l1")

    def kind(self) -> Hashable:
        return type(self), self.is_strong

    def bind(self, fit: Fit) -> Self:
        return self.replaced(l1=fit.vector("ElasticNet's l1", self.l1), l2=fit.number("ElasticNet's l2", self.l2))

    def value(self, x: Array) -> Array:
        xp = array_namespace(x)
        return weighted_l1(x, self.l1) + xp.squeeze(self.l2, axis=-1) / 2 * xp.vecdot(doubles(x), doubles(x))

    def shrink(self, v: Array, step: Array | float) -> Array:
        return soft_threshold(v, step * self.l1)


@dataclass(frozen=True, eq=False)
class GroupL1(Penalty):
    """The penalty r(x) = sum_g weight_g |x_g|_2 over disjoint groups of coordinates.

    Parameters
    ----------
    weight : array_like
        Nonnegative: a number, or one per group (in the order of the list, or of the sorted labels).
    groups : sequence
        A list of index arrays (coordinates in none of them are not penalized), or one integer label
        per coordinate, (d,).
    """

    weight: Parameter
    groups: Any

    _order: Array = field(init=False, repr=False, default_factory=unset)
    _starts: Array = field(init=False, repr=False, default_factory=unset)
    # For libraries without reduceat: sums over each group as a matrix, by precision.
    _sums: dict[str, Array] = field(init=False, repr=False, default_factory=dict)

    row_fields: ClassVar[tuple[str, ...]] = ("weight",)
    other_arrays: ClassVar[tuple[str, ...]] = ("groups", "_order", "_starts")

    def __post_init__(self) -> None:
        check_nonnegative("GroupL1's weight", self.weight)
        require(len(self.groups) > 0, "GroupL1 needs a group", self.groups, "give index arrays or labels")
        members = self._index_arrays() or [_integers(self.groups)]
        require(
            all(len(g) for g in members),
            "GroupL1's groups must not be empty",
            self.groups,
            "remove empty ones",
        )
        count = len(self._index_arrays() or np.unique(members[0]))
        weights = np.shape(self.weight)
        require(
            weights in ((), (count,)),
            f"GroupL1's weight must be a number or one for each of the {count} groups",
            f"shape {weights}",
            "give as many weights as groups",
        )

    def kind(self) -> Hashable:
        return type(self), self.groups.tobytes()

    def bind(self, fit: Fit) -> Self:
        labels, count = self._labels(fit.d)
        weight = np.atleast_2d(checked("GroupL1's weight", self.weight))
        weight = np.broadcast_to(weight, (len(weight), max(weight.shape[1], count)))
        unpenalised = int(labels.max()) + 1 - weight.shape[1]
        weight = np.pad(weight, ((0, 0), (0, unpenalised)))
        order = np.argsort(labels, kind="stable")
        return self.replaced(
            weight=weight.astype(fit.dtype),
            groups=labels,
            _order=order,
            _starts=np.flatnonzero(np.diff(labels[order], prepend=-1)),
        )

    def value(self, x: Array) -> Array:
        return array_namespace(x).sum(self.weight * self.norms(doubles(x)), axis=-1)

    def shrink(self, v: Array, step: Array | float) -> Array:
        norms = self.norms(v)
        kept = at_least(norms - step * self.weight, 0) / array_namespace(v).where(norms > 0, norms, 1)
        return v * kept[:, self.groups]

    def norms(self, x: Array) -> Array:
        """Return |x_g|_2 of every group, shape (m, groups)."""
        if is_numpy(x):
            return np.sqrt(np.add.reduceat((x * x)[:, self._order], self._starts, axis=1))
        return array_namespace(x).sqrt((self._sums[dtype_of(x).name] @ (x * x).T).T)

    def to(self, device: Device) -> Self:
        moved = super().to(device)
        if device is None:
            return moved
        labels = to_numpy(self.groups)
        sums = sp.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))))
        precisions = {name: on_device(np.zeros(0, dtype=name), device) for name in ("float32", "float64")}
        return moved.replaced(_sums={name: sparse_like(sums, other) for name, other in precisions.items()})

    def _index_arrays(self) -> list[Array]:
        """The groups where they are given as lists of coordinates; else nothing."""
        return [] if np.ndim(self.groups[0]) == 0 else [_integers(group) for group in self.groups]

    def _labels(self, d: int) -> tuple[Array, int]:
        """The group number of each coordinate, and the number of groups given."""
        groups = self._index_arrays()
        if not groups:
            labels = _integers(self.groups)
            rule = f"GroupL1's labels must be one per coordinate of {d}"
            require(len(labels) == d, rule, len(labels), "give d labels")
            names, labels = np.unique(labels, return_inverse=True)
            return labels, len(names)
        members = np.concatenate(groups)
        inside = bool(np.all((members >= 0) & (members < d)))
        require(inside, f"GroupL1's indices must lie in 0..{d - 1}", members, "leave out coordinates that x lacks")
        once = len(np.unique(members)) == len(members)
        require(once, "GroupL1's groups must be disjoint", self.groups, "put each coordinate in one group")
        labels = np.full(d, len(groups))
        labels[members] = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
        return labels, len(groups)


def _integers(values: Array) -> Array:
    integers = to_numpy(values)
    flat = integers.ndim == 1 and (integers.size == 0 or np.issubdtype(integers.dtype, np.integer))
    require(flat, "GroupL1's groups must hold integers", values, "give index arrays or one label per coordinate")
    return integers


def not_a_domain(rule: str, value: object) -> InputError:
    """Return the error for something else in the place of a domain; a penalty is part of one."""
    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, Penalty):
        return InputError(rule, f"the penalty {kind.__name__}", f"gs.domains.Free(penalty=gs.{kind.__name__}(...))")
    return InputError(rule, kind_of(value), "for example gs.domains.L2Ball(10.0)")
