"""Losses of different kinds side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from gradslide._support.arrays import as_dtype, doubles
from gradslide._support.errors import require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array, Sparse
from gradslide.losses.base import Evaluation, Loss, Support, checked_sampling
from gradslide.losses.inputs import stack_rows


@checked_arguments
def stack(losses: Sequence[Loss]) -> Loss:
    """Join the agents of several losses into one loss, in order.

    Neighbours of the same class and settings merge into one vectorized loss; others are evaluated
    in turn.

    Parameters
    ----------
    losses : sequence of Loss
        Losses of equal dimension d.

    Returns
    -------
    Loss

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.losses.stack([gs.losses.Linear([1.0]), gs.losses.Linear([2.0])])
    Linear(m=2, d=1, float64)
    """
    require(len(losses) > 0, "stack needs at least one loss", "an empty list", "pass a list of losses")
    dimensions = sorted({loss.d for loss in losses})
    require(
        len(dimensions) == 1,
        "losses put side by side must have the same dimension d",
        dimensions,
        "give all agents the same features (and Softmax the same classes=)",
    )
    places = {str(loss.device or "NumPy") for loss in losses}
    require(
        len(places) == 1,
        "losses put side by side must have their data on one device",
        ", ".join(sorted(places)),
        "move them: loss.to(device)",
    )
    parts: list[Loss] = []
    for key, group in groupby(_flat(losses), key=lambda loss: loss.merge_key()):
        same = list(group)
        parts += same if key is None or len(same) == 1 else [same[0].merged(same[1:])]
    return parts[0] if len(parts) == 1 else Stacked(parts)


class Stacked(Loss):
    """Parts of different kinds, evaluated one after the other; made by `stack`."""

    def __init__(self, parts: Sequence[Loss]) -> None:
        dtype = np.result_type(*(part.dtype for part in parts))
        super().__init__(sum(part.m for part in parts), parts[0].d, dtype, parts[0]._home)
        self.parts = tuple(parts)
        self.has_value = all(part.has_value for part in parts)
        ends = np.cumsum([part.m for part in parts])
        self._starts: Array = ends - [part.m for part in parts]
        self._slices = [slice(start, end) for start, end in zip(self._starts, ends, strict=True)]

    def value(self, x: Array) -> Array:
        x = self._checked(x)
        return _joined_values([part.value(x[own]) for part, own in self._each()])

    def value_in_doubles(self, x: Array) -> Array | None:
        found = [part.value_in_doubles(x[own]) for part, own in self._each()]
        known = [values for values in found if values is not None]
        return stack_rows(known) if len(known) == len(found) else None

    def gradient(self, x: Array) -> Array:
        x = self._checked(x)
        return self._joined([part.gradient(x[own]) for part, own in self._each()])

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        x = self._checked(x)
        values, gradients = zip(*(part.value_and_gradient(x[own]) for part, own in self._each()), strict=True)
        return _joined_values(values), self._joined(gradients)

    @property
    def has_evaluation(self) -> bool:
        return all(part.has_evaluation for part in self.parts)

    def evaluation(self, x: Array) -> Evaluation:
        x = self._checked(x)
        parts = [part.evaluation(x[own]) for part, own in self._each()]
        value, gradient = (stack_rows([getattr(part, name) for part in parts]) for name in ("value", "gradient"))
        return _StackedEvaluation(x, value, gradient, parts, self._slices)

    def column_squares(self) -> Array | None:
        squares = [part.column_squares() for part in self.parts]
        found = [each for each in squares if each is not None]
        same = len({each.shape[1] for each in found}) == 1 and len(found) == len(squares)
        return stack_rows(found) if same else None

    @property
    def has_hessian(self) -> bool:
        return all(part.has_hessian for part in self.parts)

    def hessian(self, x: Array) -> Array:
        x = self._checked(x)
        return stack_rows([part.hessian(x[own]) for part, own in self._each()])

    def quadratic_part(self) -> list[Array | Sparse] | None:
        parts = [part.quadratic_part() for part in self.parts]
        known = [matrices for matrices in parts if matrices is not None]
        return [matrix for matrices in known for matrix in matrices] if len(known) == len(parts) else None

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        x = self._checked(x)
        values, gradients, hessians = zip(*(part.derivatives(x[own]) for part, own in self._each()), strict=True)
        is_summed = sum(map(len, hessians)) < self.m
        found = sum(each.sum(axis=0) for each in hessians)[None] if is_summed else stack_rows(hessians)
        return _joined_values(values), self._joined(gradients), found

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        x = self._checked(x)
        checked_sampling(self.m, batch, streams)
        return self._joined([part.sample_gradient(x[own], batch, streams[own]) for part, own in self._each()])

    @property
    def rows_per_agent(self) -> Array | None:
        sizes = [size for part in self.parts if (size := part.rows_per_agent) is not None]
        return np.concatenate(sizes) if len(sizes) == len(self.parts) else None

    def gradient_of_rows(self, x: Array, rows: Sequence[Array], counts: Sequence[Array] | None = None) -> Array:
        x = self._checked(x)
        return self._joined(
            [
                part.gradient_of_rows(x[own], rows[own], None if counts is None else counts[own])
                for part, own in self._each()
            ]
        )

    def read_samples(self, agent: int, batch: Any) -> Any:
        k = int(np.searchsorted(self._starts, agent, side="right")) - 1
        return self.parts[k].read_samples(agent - int(self._starts[k]), batch)

    def gradient_of_samples(self, x: Array, batches: Sequence[Any]) -> Array:
        x = self._checked(x)
        return self._joined([part.gradient_of_samples(x[own], batches[own]) for part, own in self._each()])

    def compute_smoothness(self, norm: int) -> Array:
        return np.concatenate([part.smoothness(norm) for part in self.parts])

    def smoothness_over(self, support: Support, norm: int = 2) -> Array:
        def of_part(start: int) -> Support:
            return lambda agents, c: support(agents + start, c)

        starts = self._starts.tolist()
        pairs = zip(self.parts, starts, strict=True)
        return np.concatenate([part.smoothness_over(of_part(start), norm) for part, start in pairs])

    def take_agents(self, agents: Array) -> Loss:
        owners: Array = np.searchsorted(self._starts, agents, side="right") - 1
        chosen = []
        for run in np.split(np.arange(len(agents)), np.flatnonzero(np.diff(owners)) + 1):
            k = owners[run[0]]
            chosen.append(self.parts[k].take(agents[run] - self._starts[k]))
        return stack(chosen)

    def _moved(self, home: Array) -> Loss:
        return Stacked([part._moved(home) for part in self.parts])

    def _each(self) -> Iterator[tuple[Loss, slice]]:
        return zip(self.parts, self._slices, strict=True)

    def _joined(self, results: Sequence[Array]) -> Array:
        return stack_rows([as_dtype(result, self.dtype) for result in results])


@dataclass(frozen=True, eq=False)
class _StackedEvaluation(Evaluation):
    parts: Sequence[Evaluation]
    slices: Sequence[slice]

    def rounding(self) -> Array:
        return stack_rows([part.rounding() for part in self.parts])

    def change(self, x: Array) -> tuple[Array, Array]:
        found = [part.change(x[own]) for part, own in zip(self.parts, self.slices, strict=True)]
        changes, errors = zip(*found, strict=True)
        return stack_rows(changes), stack_rows(errors)


def _joined_values(values: Sequence[Array]) -> Array:
    """Values of all parts, in double precision."""
    return stack_rows([doubles(each) for each in values])


def _flat(losses: Sequence[Loss]) -> list[Loss]:
    return [part for loss in losses for part in (loss.parts if isinstance(loss, Stacked) else (loss,))]
