"""Common base of losses that another library differentiates."""

import abc
import copy
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.errors import InputError, require, unknown_name
from gradslide._support.types import Array, DType
from gradslide.losses.base import Loss, checked_sampling
from gradslide.losses.devices import rows_at
from gradslide.losses.inputs import numeric_array, stack_rows
from gradslide.losses.partition import as_slice, flattened, numbers_of_rows, with_replacement

Reduction = Literal["sum", "mean"] | None

FEW = 4  # rows on which a function is tried
# Numbers that products of Hessians with directions may take at once, about: one for each row of the data, agent and
# direction, and the products themselves.
_PRODUCT_ENTRIES = 2**24
# Entries of all Hessians together up to which each agent's is returned.
_MOST_HESSIANS = 2**24
# How far from the start the ends of segments lie on which convexity is tried.
_REACH = (0.1, 1.0, 10.0)


class AgentBlock(NamedTuple):
    """Agents with equally many rows: numbers (k,), parts of rows (k, rows, ...), weights (k, rows)."""

    agents: Array
    parts: list[Array]
    weights: Array


class Differentiated(Loss):
    """Losses ft_i(x) = sum over agent i's rows of a convex function given in another library.

    Rows have parts (inputs and targets, say), each an array (n, ...), sorted by agent.
    """

    def __init__(
        self,
        parts: list[Array],
        sizes: Array,
        d: int,
        dtype: DType,
        home: Array | None,
        smoothness: Any,
        reduction: Any,
    ) -> None:
        if reduction not in ("sum", "mean", None):
            raise unknown_name("reduction", reduction, ("sum", "mean", "None"))
        super().__init__(len(sizes), d, dtype, home)
        self._parts, self._sizes = parts, sizes
        self._reduction: Reduction = reduction
        self._given = None if smoothness is None else _constants(smoothness, self.m)

    @abc.abstractmethod
    def _evaluate(self, block: AgentBlock, x: Array, gradient: bool) -> tuple[Array, Array]:
        """Values (k,) and gradients (k, d) of the block's agents; with gradient=False, anything for
        these.
        """

    @cached_property
    def _is_twice_differentiable(self) -> bool:
        """Whether the other library knows second derivatives."""
        try:
            self._try_products(self._pair())
        # Libraries tell in many ways what they cannot do.
        except Exception:
            return False
        return True

    def _pair(self) -> AgentBlock:
        """Two agents that have the first few rows each, to try things on."""
        few = min(FEW, int(self._sizes[0]))
        parts = [rows_at(part, np.tile(np.arange(few), 2)) for part in self._parts]
        return self._blocks(parts, np.full(2, few), np.ones(2 * few))[0]

    @abc.abstractmethod
    def _try_products(self, block: AgentBlock) -> None:
        """Raise any error if `_products` would."""

    @abc.abstractmethod
    def _products(self, block: AgentBlock, x: Array, directions: Array) -> Array:
        """Products of the Hessians of the block's agents with directions, (c, d): NumPy's, (k, c, d)."""

    def _widths(self, sizes: Array) -> Array:
        """How many rows agents are padded to; more than they have where that saves work."""
        return sizes

    def _placed(self, block: AgentBlock) -> AgentBlock:
        """The block on the device where `_evaluate` needs it."""
        return block

    def value(self, x: Array) -> Array:
        return self._over(self._whole, self._checked(x), gradient=False)[0]

    def gradient(self, x: Array) -> Array:
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        values, gradients = self._over(self._whole, self._checked(x), gradient=True)
        return values, gradients

    @property
    def has_hessian(self) -> bool:
        return self._home is None and self._is_twice_differentiable

    def hessian(self, x: Array) -> Array:
        if not self.has_hessian:
            return super().hessian(x)
        x, found = self._checked(x), np.empty((self.m, self.d, self.d))
        for agents, hessians in self._hessians(x):
            found[agents] = hessians
        return found

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        if not self.has_hessian or self.m * self.d**2 <= _MOST_HESSIANS:
            return super().derivatives(x)
        x, total = self._checked(x), np.zeros((1, self.d, self.d))
        for _, hessians in self._hessians(x):
            total += hessians.sum(axis=0)
        return *self.value_and_gradient(x), total

    def _hessians(self, x: Array) -> Iterator[tuple[Array, Array]]:
        """Numbers of some agents, (k,), and their Hessians, (k, d, d), in double precision; all agents in turn."""
        for block in self._whole:
            # A direction takes a number for each row, and one for each entry of the product.
            each = block.weights.shape[1] + self.d
            together = max(1, _PRODUCT_ENTRIES // (each * self.d))
            step = max(1, min(self.d, _PRODUCT_ENTRIES // each))
            for own in np.array_split(np.arange(len(block.agents)), -(-len(block.agents) // together)):
                few = slice(int(own[0]), int(own[-1]) + 1)
                part = AgentBlock(block.agents[few], [part[few] for part in block.parts], block.weights[few])
                at, hessians = rows_at(x, part.agents), np.empty((len(own), self.d, self.d))
                for first in range(0, self.d, step):
                    # The last ones once more, where fewer are left: one shape is compiled once.
                    begin = min(first, self.d - step)
                    directions = np.eye(step, self.d, begin, dtype=self.dtype)
                    hessians[:, begin : begin + step] = self._products(part, at, directions)
                yield part.agents, (hessians + hessians.swapaxes(1, 2)) / 2

    @property
    def rows_per_agent(self) -> Array | None:
        """Number of rows n_i of each agent, shape (m,); None with reduction=None."""
        return None if self._reduction is None else self._sizes

    def sample_gradient(self, x: Array, batch: int, streams: Sequence[np.random.Generator]) -> Array:
        checked_sampling(self.m, batch, streams)
        self._require_rows()
        draws = [with_replacement(rng, n, batch) for rng, n in zip(streams, self._sizes.tolist(), strict=True)]
        return self.gradient_of_rows(x, [draw.rows for draw in draws], [draw.counts for draw in draws])

    def gradient_of_rows(self, x: Array, rows: Sequence[Array], counts: Sequence[Array] | None = None) -> Array:
        x = self._checked(x)
        self._require_rows()
        chosen, sizes = numbers_of_rows(rows, self._starts, self._sizes)
        weights = np.ones(sizes.sum()) if counts is None else flattened(counts)
        totals = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
        parts = [rows_at(part, chosen) for part in self._parts]
        return self._sampled(x, parts, sizes, weights * np.repeat(self._totals / totals, sizes))

    def gradient_of_samples(self, x: Array, batches: Sequence[Any]) -> Array:
        x = self._checked(x)
        sizes = np.array([len(batch[0]) for batch in batches])
        parts = [stack_rows(part) for part in zip(*batches, strict=True)]
        return self._sampled(x, parts, sizes, np.repeat(self._totals / sizes, sizes))

    def _sampled(self, x: Array, parts: list[Array], sizes: Array, weights: Array) -> Array:
        return self._over(self._blocks(parts, sizes, weights), x, gradient=True)[1]

    def _require_rows(self) -> None:
        if self._reduction is None:
            name = type(self).__name__
            raise InputError("sampling needs a sum over rows", f"{name} with reduction=None", 'use reduction="sum"')

    def compute_smoothness(self, norm: int) -> Array:
        if self._given is None:
            raise InputError(
                "the smoothness constant must be known here",
                f"{type(self).__name__} without it",
                "use gs.AutoPDS(), which finds it, or give smoothness= here or L= to the method",
            )
        return self._given.copy()

    def take_agents(self, agents: Array) -> Self:
        rows = as_slice(np.concatenate([np.arange(n) + first for n, first in self._ranges(agents)]))
        other = copy.copy(self)
        other.m, other._sizes, other._constants = len(agents), self._sizes[agents], {}
        other._parts = [rows_at(part, rows) for part in self._parts]
        other._given = None if self._given is None else self._given[agents]
        other.__dict__.pop("_whole", None)
        return other

    def _ranges(self, agents: Array) -> list[tuple[int, int]]:
        return list(zip(self._sizes[agents].tolist(), self._starts[agents].tolist(), strict=True))

    @property
    def _starts(self) -> Array:
        return np.cumsum(self._sizes) - self._sizes

    @property
    def _totals(self) -> Array:
        """The total weight of each agent's rows."""
        return np.ones(self.m) if self._reduction == "mean" else self._sizes.astype(np.float64)

    @cached_property
    def _whole(self) -> list[AgentBlock]:
        """All rows of all agents."""
        return self._blocks(self._parts, self._sizes, np.repeat(self._totals / self._sizes, self._sizes))

    def _blocks(self, parts: list[Array], sizes: Array, weights: Array) -> list[AgentBlock]:
        starts, widths, blocks = np.cumsum(sizes) - sizes, self._widths(sizes), []
        for width in np.unique(widths):
            agents = np.flatnonzero(widths == width)
            own, places = sizes[agents, None], np.arange(width)
            rows = starts[agents, None] + np.minimum(places, own - 1)
            chosen = as_slice(rows.ravel())
            shaped = [rows_at(part, chosen).reshape(*rows.shape, *part.shape[1:]) for part in parts]
            counted = np.where(places < own, weights[rows], 0).astype(self.dtype)
            blocks.append(self._placed(AgentBlock(agents, shaped, counted)))
        return blocks

    def _over(self, blocks: list[AgentBlock], x: Array, *, gradient: bool) -> tuple[Array, Array]:
        """Values and gradients of all agents, each of which is in one block."""
        if len(blocks) == 1:
            return self._evaluate(blocks[0], x, gradient)
        found = [self._evaluate(block, rows_at(x, block.agents), gradient) for block in blocks]
        order = np.argsort(np.concatenate([block.agents for block in blocks]))
        values, gradients = (rows_at(stack_rows(parts), order) for parts in zip(*found, strict=True))
        return values, gradients


def require_sum_of_rows(whole: float, rows: Array) -> None:
    """Refuse a function whose value for several rows is neither the sum nor the mean of its rows'."""
    total, scale = float(np.sum(rows)), float(np.sum(np.abs(rows)))
    slack = float(np.sqrt(np.finfo(rows.dtype).eps)) * scale
    known = abs(whole - total) <= slack or abs(whole - total / len(rows)) <= slack
    if not known and np.isfinite(whole):
        raise InputError(
            "the loss of several rows must be the sum or the mean of the losses of each",
            f"{whole:g} for rows of {', '.join(f'{row:.4g}' for row in rows)}",
            "return a sum, put a regulariser into mu or a penalty, do not broadcast (n, 1) with (n,), "
            "or give reduction=None: no sampling then",
        )


def first_line(error: Exception) -> str:
    """Return what an error of another library says, for a message of ours."""
    text = str(error).strip().partition("\n")[0].replace(";", ",").rstrip(". ")
    return f"{type(error).__name__}: {text}"


def require_rows_apart(rows: Array, first: Array) -> None:
    """Refuse losses of rows, (n, ...), that depend on the other rows; first: that of the first row
    alone.
    """
    among, alone = float(np.sum(rows[0])), float(np.sum(first))
    slack = float(np.sqrt(np.finfo(rows.dtype).eps)) * (float(np.sum(np.abs(rows[0]))) + float(np.sum(np.abs(first))))
    if np.isfinite(among) and abs(among - alone) > slack:
        raise InputError(
            "the loss of a row must not depend on other rows",
            f"{alone:.6g} for the first row alone and {among:.6g} among {len(rows)}, of shape {rows.shape}",
            "check the shapes: (n, 1) and (n,) are broadcast to (n, n)",
        )


def require_convex(loss: Loss, at: Array) -> None:
    """Refuse losses that lie above the chord at the middle of a segment, on a few around a point
    (d,).
    """
    rng = np.random.default_rng(0)
    slack = 10 * float(np.sqrt(np.finfo(loss.dtype).eps))
    for reach in _REACH:
        a, b = (at + reach * rng.standard_normal((2, loss.m, loss.d))).astype(loss.dtype)
        ends = np.stack([to_numpy(loss.value(end)).astype(np.float64) for end in (a, b)])
        middle = to_numpy(loss.value((a + b) / 2)).astype(np.float64)
        above = middle - ends.mean(axis=0)
        if bool(np.any(above > slack * (np.abs(ends).sum(axis=0) + np.abs(middle)))):
            agent = int(np.nanargmax(above))
            raise InputError(
                "the loss must be convex in the parameters",
                f"{middle[agent]:.6g} in the middle between {ends[0, agent]:.6g} and {ends[1, agent]:.6g} "
                f"for agent {agent}",
                "use a model that is linear in them and a convex loss, or check_convexity=False to try all the same",
            )


def missing(name: str, library: str, remedy: str) -> NoReturn:
    """Raise the error for a library that is not installed."""
    raise InputError(f"gs.losses.{name} needs {library}", "an installation without it", remedy) from None


def _constants(smoothness: Any, m: int) -> Array:
    constants = numeric_array("smoothness", smoothness).astype(np.float64)
    fits = constants.shape in ((), (m,)) and not (constants < 0).any()
    rule = f"smoothness must be a non-negative number, or {m} of them"
    require(fits, rule, smoothness, "give a Lipschitz constant of the gradient for each agent, or leave it out")
    return np.broadcast_to(constants, m).copy()
