"""Convex functions written in JAX."""

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.types import Array, DType
from gradslide.losses.autodiff import (
    FEW,
    AgentBlock,
    Differentiated,
    Reduction,
    first_line,
    missing,
    require_convex,
    require_rows_apart,
    require_sum_of_rows,
)
from gradslide.losses.inputs import numeric_array, working_dtype


class Jax(Differentiated):
    """Losses of a JAX function, ft_i(x) = sum over agent i's rows of function(parameters, row).

    x holds the parameters. It takes and returns NumPy arrays. Agents with fewer rows are padded
    with rows of weight 0.

    Parameters
    ----------
    function : callable
        (parameters, batch) -> the mean, the sum or one number per row of a batch, in JAX
        operations; convex and smooth in the parameters.
    data : list of pytrees
        One pytree of arrays per agent, whose leading axis counts rows, all of one structure. A
        batch has this structure.
    parameters : pytree
        Parameters as the function takes them; their values do not matter. x is its arrays,
        flattened one after the other (`jax.flatten_util.ravel_pytree`). Their precision is that of
        the loss: float32, or else float64, for which JAX runs in double precision here and nowhere
        else.
    smoothness : array_like, optional
        Lipschitz constants of the gradient, a number or m numbers. None if unknown; AutoPDS does
        not need them.
    reduction : {"sum", "mean", None}
        Over an agent's rows. None takes the function of all rows at once as it is, and cannot
        sample.
    check_convexity : bool
        Test convexity on a few segments.

    Attributes
    ----------
    x0 : ndarray, shape (d,)
        The given parameters, flattened.
    """

    is_user_supplied = True

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        data: Sequence[Any],
        parameters: Any,
        *,
        smoothness: npt.ArrayLike | None = None,
        reduction: Reduction = "sum",
        check_convexity: bool = True,
    ) -> None:
        try:
            self._jax = importlib.import_module("jax")
        except ImportError:
            missing("Jax", "JAX", "in a checkout of gradslide: pip install '.[jax]'")
        require(callable(function), "function must be callable", kind_of(function), "give (parameters, batch) -> value")
        self._function = function
        leaves = [np.asarray(leaf) for leaf in self._jax.tree.leaves(parameters)]
        numbers = len(leaves) > 0 and all(leaf.dtype.kind in "biuf" for leaf in leaves)
        remedy = "give for example np.zeros(5)"
        require(numbers, "parameters must be a pytree of arrays of real numbers", kind_of(parameters), remedy)
        dtype = working_dtype(np.result_type(*leaves))
        parts, sizes, self._form = _read(self._jax, data, dtype)
        super().__init__(
            parts, sizes, sum(leaf.size for leaf in leaves), dtype, None, smoothness=smoothness, reduction=reduction
        )
        with self._precision():
            flat = importlib.import_module("jax.flatten_util").ravel_pytree
            typed = self._jax.tree.map(lambda leaf: self._jax.numpy.asarray(leaf, dtype=dtype), parameters)
            x0, self._unravel = flat(typed)
        self.x0 = np.array(x0)
        self._per_row = False
        self._try()
        self._both = self._jax.jit(self._jax.vmap(self._jax.value_and_grad(self._value)))
        self._only = self._jax.jit(self._jax.vmap(self._value))
        self._along = self._jax.jit(self._jax.vmap(self._product_rows, in_axes=(0, 0, 0, None)))
        if check_convexity:
            require_convex(self, self.x0)

    def parameters_of(self, x: Array) -> Any:
        """Convert a point to the pytree that the function takes.

        Parameters
        ----------
        x : ndarray, shape (d,)
            For example `solution.mean`.

        Returns
        -------
        pytree
            Arrays are NumPy arrays.
        """
        x = np.asarray(x, dtype=self.dtype)
        require(x.shape == (self.d,), f"x must have shape ({self.d},)", x.shape, "give solution.mean, or one row of x")
        with self._precision():
            return self._jax.tree.map(np.asarray, self._unravel(self._jax.numpy.asarray(x)))

    def read_samples(self, agent: int, batch: Any) -> tuple[Array, ...]:
        self._require_rows()
        parts, form = _leaves(self._jax, batch, self.dtype, "a batch")
        like_ours = form == self._form and all(
            a.shape[1:] == b.shape[1:] for a, b in zip(parts, self._parts, strict=True)
        )
        rule = f"a batch must have the form of the loss's own data, {_described(self._parts, self._form)} per row"
        got = f"{_described(parts, form)} per row"
        require(like_ours, rule, got, "yield the same pytree, with a leading axis of samples")
        return tuple(parts)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.dtype == np.float32:
            return nullcontext()
        # Older releases have it elsewhere.
        if hasattr(self._jax, "enable_x64"):
            return self._jax.enable_x64(True)
        return importlib.import_module("jax.experimental").enable_x64()

    def _widths(self, sizes: Array) -> Array:
        """Each shape is compiled anew, so use few: one, where that at most doubles the rows."""
        if self._reduction is None:
            return sizes
        most = sizes.max() if sizes is self._sizes else _power_of_two(sizes.max())
        return np.full_like(sizes, most) if len(sizes) * most <= 2 * sizes.sum() else _power_of_two(sizes)

    def _placed(self, block: AgentBlock) -> AgentBlock:
        with self._precision():
            asarray = self._jax.numpy.asarray
            return AgentBlock(block.agents, [asarray(part) for part in block.parts], asarray(block.weights))

    def _evaluate(self, block: AgentBlock, x: Array, gradient: bool) -> tuple[Array, Array]:
        with self._precision():
            if gradient:
                values, gradients = self._both(x, block.parts, block.weights)
                return np.array(values), np.array(gradients)
            return np.array(self._only(x, block.parts, block.weights)), x

    def _try_products(self, block: AgentBlock) -> None:
        twice = np.tile(self.x0, (2, 1))
        with self._precision():
            self._jax.eval_shape(self._along, twice, block.parts, block.weights, twice)

    def _products(self, block: AgentBlock, x: Array, directions: Array) -> Array:
        with self._precision():
            return np.array(self._along(x, block.parts, block.weights, directions))

    def _product_rows(self, x: Array, parts: list[Array], weights: Array, directions: Array) -> Array:
        """H v of one agent for each direction v, (c, d): forward derivatives of the gradient."""

        def gradient(x: Array) -> Array:
            return self._jax.grad(self._value)(x, parts, weights)

        return self._jax.vmap(lambda v: self._jax.jvp(gradient, (x,), (v,))[1])(directions)

    def _value(self, x: Array, parts: list[Array], weights: Array) -> Array:
        """Of one agent."""
        if self._reduction is None:
            return self._called(x, parts).sum()
        return weights @ self._row_losses(x, parts)

    def _row_losses(self, x: Array, parts: list[Array]) -> Array:
        """The function of each row alone, (rows,), whatever its reduction."""
        if self._per_row:
            losses = self._called(x, parts)
        else:
            losses = self._jax.vmap(lambda *row: self._called(x, [part[None] for part in row]))(*parts)
        return losses.reshape(len(parts[0]), -1).sum(axis=1)

    def _called(self, x: Array, parts: list[Array]) -> Array:
        return self._jax.numpy.asarray(
            self._function(self._unravel(x), self._jax.tree.unflatten(self._form, parts)), dtype=self.dtype
        )

    def _try(self) -> None:
        """Refuse what is no sum over rows; find out whether it gives one number per row."""
        rows = min(FEW, int(self._sizes[0]))
        # At a start of zeros all rows would look alike.
        x = (self.x0 + np.random.default_rng(0).standard_normal(self.d)).astype(self.dtype)
        with self._precision():
            few = [self._jax.numpy.asarray(part[:rows]) for part in self._parts]
            try:
                shape = self._jax.eval_shape(self._called, x, few).shape
            except self._jax.errors.JAXTypeError as error:
                got, remedy = str(error).partition("\n")[0], "use jax.numpy and jax.lax in it"
                raise InputError("function must be one that JAX can trace", got, remedy) from None
            except (TypeError, ValueError, IndexError) as error:
                raise self._refused(error, few) from error
            if self._reduction is None:
                return
            self._per_row = len(shape) > 0
            if self._per_row:
                rule = "function must give a number, or one number per row"
                require(shape[0] == rows, rule, f"shape {shape} for {rows} rows", "correct that function")
                both = self._jax.jit(lambda x, few: (self._called(x, few), self._called(x, [part[:1] for part in few])))
                require_rows_apart(*(np.asarray(found) for found in both(x, few)))
                return
            both = self._jax.jit(lambda x, few: (self._called(x, few), self._row_losses(x, few)))
            whole, losses = (np.asarray(found) for found in both(x, few))
            require_sum_of_rows(float(whole), losses)

    def _refused(self, error: Exception, few: list[Array]) -> InputError:
        """The error for a function that cannot take the parameters and the data."""
        trees = self._jax.tree.leaves(self._unravel(self.x0))
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in trees)
        rule = "function must take the parameters and a batch of each agent's data"
        got = f"{first_line(error)} for parameters of shape {shapes} and rows of {_described(few, self._form)}"
        return InputError(rule, got, "give parameters of the shape that these rows need, or correct the function")


def _described(parts: Sequence[Array], form: Any) -> str:
    """Type and shape of one row, part by part, as the pytree that it is in."""
    rows = [f"{part.dtype}{list(part.shape[1:])}" for part in parts]
    return str(form.unflatten(rows)).replace("'", "")


def _power_of_two(sizes: Array) -> Array:
    """The next power of two."""
    return 2 ** np.ceil(np.log2(sizes)).astype(np.intp)


def _read(jax: Any, data: Any, dtype: DType) -> tuple[list[Array], Array, Any]:
    """The stacked arrays of all agents, the number of rows of each, (m,), and the pytree structure."""
    listed = isinstance(data, list) and len(data) > 0
    rule = "data must be a list with one pytree of arrays per agent"
    require(listed, rule, kind_of(data), "for example [(features[rows], labels[rows]) for rows in splits]")
    read = [_leaves(jax, own, dtype, f"the data of agent {agent}") for agent, own in enumerate(data)]
    (first, form), rule = read[0], "the data of all agents must have one form"
    for agent, (parts, own) in enumerate(read):
        alike = own == form and all(a.shape[1:] == b.shape[1:] for a, b in zip(parts, first, strict=True))
        got = f"rows of {_described(first, form)} for agent 0 and of {_described(parts, own)} for agent {agent}"
        require(alike, rule, got, "give each the same pytree, with rows of one shape")
    joined = [np.concatenate(part) for part in zip(*(parts for parts, _ in read), strict=True)]
    return joined, np.array([len(parts[0]) for parts, _ in read]), read[0][1]


def _leaves(jax: Any, tree: Any, dtype: DType, what: str) -> tuple[list[Array], Any]:
    """The arrays of one pytree, floating ones in the dtype, and its structure."""
    found, form = jax.tree_util.tree_flatten_with_path(tree)
    remedy = "encode text as numbers, and number classes from 0"
    named = [
        (what if len(found) == 1 else f"part {jax.tree_util.keystr(path)} of {what}", leaf) for path, leaf in found
    ]
    arrays = [numeric_array(name, leaf, remedy=remedy) for name, leaf in named]
    lengths = {array.shape[0] if array.ndim else None for array in arrays}
    counted = len(lengths) == 1 and not lengths & {None, 0}
    shapes = ", ".join(str(array.shape) for array in arrays) or "no array"
    remedy = "give as many labels as rows of features, along the first axis"
    require(counted, f"{what} must be arrays with one leading entry per row, one or more", shapes, remedy)
    return [array.astype(dtype, copy=False) if array.dtype.kind == "f" else array for array in arrays], form
