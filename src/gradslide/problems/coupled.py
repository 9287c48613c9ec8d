"""Linear constraints that couple agents with variables of their own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gradslide._support.arrays import to_numpy
from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.keywords import CheckedArguments
from gradslide._support.types import Array, Sparse, SparseInput
from gradslide.domains import Free
from gradslide.problems.terms import interval

Block = npt.ArrayLike | SparseInput


class Coupled(CheckedArguments):
    """The constraints sum_i A_i x_i = b, <= b or >= b, or lower <= sum_i A_i x_i <= upper.

    Every agent has variables x_i of its own, a loss and a set for them, and its block A_i. Each row
    is one constraint that all agents know: its bounds, and which agents have a part in it. The
    entries of A_i are known to agent i only.

    Parameters
    ----------
    blocks : sequence of array_like or sparse matrix, shape (k, d_i)
        A_i of each agent of the loss. The numbers of columns may differ.
    b : array_like, shape () or (k,), optional
        Right-hand side, the same for all agents.
    sense : {"==", "<=", ">="}, optional
        Relation of the sum and b; equality by default.
    lower, upper : array_like, shape () or (k,), optional
        Instead of b: bounds on the sum. Either may be left out or infinite.

    Attributes
    ----------
    blocks : tuple of scipy.sparse.csr_array
        The A_i, in double precision.
    k : int
        Number of rows.
    dimensions : tuple of int
        The d_i.
    lower, upper : ndarray, shape (k,)
        Bounds on the sum.

    Examples
    --------
    Three agents share 10 units, of which the second one needs two kinds:

    >>> import numpy as np
    >>> import gradslide as gs
    >>> gs.Coupled([np.ones((1, 1)), np.ones((1, 2)), np.ones((1, 1))], 10.0, sense="<=")
    Coupled(1 row, 3 agents with 1 to 2 variables)
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        b: npt.ArrayLike | None = None,
        *,
        sense: str | None = None,
        lower: npt.ArrayLike | None = None,
        upper: npt.ArrayLike | None = None,
    ) -> None:
        is_sequence = isinstance(blocks, Sequence) and not isinstance(blocks, str | bytes)
        rule, remedy = "blocks must be a sequence of matrices, one for each agent", "give A_1, ..., A_m as a list"
        require(is_sequence and len(blocks) > 0, rule, kind_of(blocks), remedy)
        self.blocks: tuple[Sparse, ...] = tuple(_block(i, block) for i, block in enumerate(blocks))
        self.k: int = self.blocks[0].shape[0]
        for i, block in enumerate(self.blocks):
            got = f"{block.shape[0]} rows in blocks[{i}] and {self.k} in blocks[0]"
            remedy = "give rows of zeros where an agent has no part in a constraint"
            require(block.shape[0] == self.k, "all blocks must have the same rows", got, remedy)
        self.dimensions: tuple[int, ...] = tuple(block.shape[1] for block in self.blocks)
        row = Free().bind(1, self.k, np.float64)
        bounds = interval(self.k, b, sense, lower, upper).bind(row)
        self.lower, self.upper = (
            np.array(np.broadcast_to(to_numpy(each), (1, self.k)))[0] for each in (bounds.lower, bounds.upper)
        )

    def __repr__(self) -> str:
        rows = "1 row" if self.k == 1 else f"{self.k} rows"
        least, most = min(self.dimensions), max(self.dimensions)
        variables = f"{most} variable{'s' * (most > 1)}" if least == most else f"{least} to {most} variables"
        return f"Coupled({rows}, {len(self.blocks)} agent{'s' * (len(self.blocks) > 1)} with {variables})"

    def take(self, agents: Sequence[int]) -> "Coupled":
        """Return the constraints with the blocks of some agents.

        Parameters
        ----------
        agents : sequence of int
            Which of the agents here, in which order.

        Returns
        -------
        Coupled
        """
        return Coupled([self.blocks[i] for i in agents], lower=self.lower, upper=self.upper)

    @property
    def participants(self) -> Array:
        """Which agents here have a part in which rows.

        Returns
        -------
        ndarray of bool, shape (agents here, k)
            Where A_i has an entry that is not 0.
        """
        return np.stack([np.diff(block.indptr) > 0 for block in self.blocks])

    def violation(self, v: Array) -> Array:
        """Return v minus the nearest feasible sum.

        Parameters
        ----------
        v : ndarray, shape (k,)
            The sum of the A_i x_i over all agents.

        Returns
        -------
        ndarray, shape (k,)
        """
        return v - np.clip(v, self.lower, self.upper)

    def require_parts(self, has_part: Array) -> None:
        """Refuse rows in which no agent has a part, unless 0 fulfils them.

        Parameters
        ----------
        has_part : ndarray of bool, shape (k,)
            Whether any agent of all has a part in a row.

        Raises
        ------
        InputError
            If some row cannot be fulfilled.
        """
        empty = np.flatnonzero(~has_part & (self.violation(np.zeros(self.k)) != 0))
        if len(empty):
            r = int(empty[0])
            got = f"no entry in row {r}, which must lie between {self.lower[r]:g} and {self.upper[r]:g}"
            raise InputError(
                "an agent must have a part in each coupling constraint", got, "check that row of the blocks"
            )


def _block(i: int, block: Any) -> Sparse:
    """A block as a sparse matrix without stored zeros."""
    rule = f"blocks[{i}] must be a real matrix with a row for each constraint and a column for each variable"
    remedy = "for example a (k, d_i) array"
    if not sp.issparse(block):
        try:
            block = to_numpy(block)
        except ValueError:
            raise InputError(rule, kind_of(block), remedy) from None
    got = f"shape {block.shape} of {block.dtype}"
    require(len(block.shape) == 2 and min(block.shape) > 0 and block.dtype.kind in "biuf", rule, got, remedy)
    matrix = sp.csr_array(block).astype(np.float64)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    is_finite = bool(np.isfinite(matrix.data).all())
    require(is_finite, f"blocks[{i}] must be finite", "NaN or infinity", "check its entries")
    return matrix
