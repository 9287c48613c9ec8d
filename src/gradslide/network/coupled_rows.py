"""Couplings of agents with variables of their own: A x is the sum of the A_i x_i.

`SharedRows` sums over the tree, and all agents know the multipliers. `NeighbourRows` exchanges with
neighbours, where each constraint concerns a few agents that are neighbours of each other; its
multipliers are known to these agents.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, DType, Sparse
from gradslide.domains import Free
from gradslide.graphs.graph import Graph
from gradslide.network.coupling import Dual
from gradslide.network.protocol import Network
from gradslide.problems.coupled import Coupled
from gradslide.problems.model import from_upper
from gradslide.problems.model import upper as upper_part
from gradslide.problems.problem import Problem
from gradslide.problems.saddle import DualSpace
from gradslide.problems.terms import Interval

# With more rows, ||A|| is bounded by sums over rows and columns, since the Gram matrix would be too large to send.
_MOST_GRAM = 500
# What eigenvalues may miss.
_ROUNDING = 1e-10


def agreed_dimension(problem: Problem, network: Network) -> int:
    """Return the largest dimension of all agents, for `Problem.padded`. Costs control rounds.

    Parameters
    ----------
    problem : Problem
        The coupled problem of the agents here.
    network : Network
        All processes must call it.

    Returns
    -------
    int

    Raises
    ------
    InputError
        In all processes, if they have different numbers of rows or different bounds.
    """
    coupled = _coupling_of(problem)
    # Six bytes are a number that a double holds exactly.
    mark = hashlib.sha256(coupled.lower.tobytes() + coupled.upper.tobytes()).digest()[:6]
    marks = [coupled.k, int.from_bytes(mark, "big")]
    numbers = np.array([problem.d, *marks, *(-each for each in marks)], dtype=np.float64)
    largest = network.agree(np.tile(numbers, (len(network.agents), 1)), "max")
    differs = largest[1 : 1 + len(marks)] != -largest[1 + len(marks) :]
    rule = "all agents must have the same number of coupling constraints and the same bounds"
    got = "different numbers of rows" if differs[0] else "different bounds"
    require(not differs.any(), rule, got, "give all agents the same b, lower and upper")
    return int(largest[0])


def fitting_rows(
    problem: Problem, network: Network, shared: "SharedRows | None" = None
) -> "SharedRows | NeighbourRows":
    """Return products by exchanges where all constraints concern neighbours only, else by sums over the tree.

    Costs the control rounds of a survey. All processes get the same form.

    Parameters
    ----------
    problem : Problem
        The coupled problem of the agents here, in the dimension of all.
    network : Network
        All processes must call it.
    shared : SharedRows, optional
        What to return where sums are needed, if it was made already.

    Returns
    -------
    SharedRows or NeighbourRows
    """
    survey = _survey(problem, network)
    if survey.failure[0] < 0:
        return NeighbourRows(problem, network, survey)
    return SharedRows(problem, network) if shared is None else shared


def _coupling_of(problem: Problem) -> Coupled:
    if problem.coupling is None:
        remedy = "give it one: gs.Problem(..., coupling=gs.Coupled(blocks, b))"
        raise InputError("the problem must have a coupling", repr(problem), remedy)
    return problem.coupling


class SharedRows:
    """Constraints that concern all agents: every product with A is a sum over the tree.

    z is stored as it is: s = z as a row (1, k), the same bits for all agents, and w = A^T z. An agent
    sends its part A_i x_i up the tree, where its parent sees the sum over the agents below.

    Parameters
    ----------
    problem : Problem
        The coupled problem of the agents here, in the dimension of all.
    network : Network
        Sums over all agents.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> from gradslide.network.coupled_rows import SharedRows
    >>> shared = gs.Coupled([np.ones((1, 2)), 2 * np.ones((1, 2))], 1.0)
    >>> problem = gs.Problem(gs.losses.Linear(np.ones((2, 2))), coupling=shared)
    >>> coupling = SharedRows(problem, gs.network.Local(gs.Graph.path(2)))
    >>> coupling.product(np.ones((2, 2))).tolist(), round(coupling.norm() ** 2, 6)
    ([[6.0]], 10.0)
    """

    name: ClassVar[str] = "rows"
    exchanges: ClassVar[int] = 0

    def __init__(self, problem: Problem, network: Network) -> None:
        self.coupled, self.network = _coupling_of(problem), network
        self._dtype = problem.dtype
        self.duals = _duals(self.coupled.lower, self.coupled.upper, self._dtype)
        blocks = _in_dimension(self.coupled, problem.d, self._dtype)
        self._forward: Sparse = sp.csr_array(sp.block_diag(blocks, format="csr"))
        self._adjoint: Sparse = sp.csr_array(sp.vstack([block.T for block in blocks], format="csr"))
        self._shape = problem.m, problem.d

    def product(self, x: Array) -> Array:
        """Return A x as a row (1, k): one sum over the tree.

        Parameters
        ----------
        x : ndarray, shape (agents here, d)

        Returns
        -------
        ndarray, shape (1, k)
        """
        parts = (self._forward @ x.reshape(-1)).reshape(len(x), self.coupled.k)
        return self.network.total(parts).astype(self._dtype, copy=False)[None]

    def row_squares(self) -> Array:
        """Return the sums of squares of the rows of A, as a row (1, k): one sum over the tree."""
        return self.network.total(np.stack([block.power(2).sum(axis=1) for block in self.coupled.blocks]))[None]

    def norm(self, weights: Array | None = None) -> float:
        """Return the norm of A, or a bound beyond 500 rows: one sum over the tree.

        Parameters
        ----------
        weights : ndarray, shape (1, k), optional
            The norm of z is the root of the sum of weights z^2. Default: ones.

        Returns
        -------
        float
        """
        k = self.coupled.k
        scales = np.ones(k) if weights is None else 1 / np.sqrt(weights[0])
        blocks = [sp.csr_array(sp.diags_array(scales) @ block) for block in self.coupled.blocks]
        if k > _MOST_GRAM:
            return self._norm_bound(blocks)
        A = sp.csr_array(sp.hstack(blocks, format="csr"))

        def largest(total: Array) -> Array:
            gram = from_upper(total, k)
            return np.append(np.linalg.eigvalsh(gram)[-1], np.diag(gram))

        found = self.network.relay(upper_part((A @ A.T).toarray()[None]), largest, 1 + k)
        self.coupled.require_parts(found[1:] > 0)
        return math.sqrt(max(0.0, float(found[0])) * (1 + _ROUNDING))

    def _norm_bound(self, blocks: Sequence[Sparse]) -> float:
        """The smaller one of the Frobenius norm and the root of the largest row sum times the largest column sum."""
        sizes = [abs(block) for block in blocks]
        columns = np.array([[block.sum(axis=0).max()] for block in sizes])
        self.network.start_reduce(columns, "max")
        rows = np.stack([np.append(block.sum(axis=1), block.power(2).sum()) for block in sizes])
        *row_sums, squares = self.network.total(rows)
        (largest,) = self.network.completed("max")
        self.coupled.require_parts(np.array(row_sums) > 0)
        return math.sqrt(min(float(squares), float(largest[0]) * max(row_sums)))

    def start(self, x: Array, s: Array | None = None) -> Dual:
        """Return z = 0, or a given z, and A^T z."""
        z = self.duals.start() if s is None else s
        return Dual(z, self.pulled(z))

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        """Return argmin_z h(z) - <A u, z> + q U(z_old, z), and A^T of it: one sum over the tree."""
        z = self.duals.ascend(dual.s, self.product(u), q)
        return Dual(z, self.pulled(z))

    def pull(self, dual: Dual) -> Array:
        """Return A^T z."""
        return dual.w

    def multipliers(self, dual: Dual) -> Array:
        """Return z, shape (k,)."""
        return dual.s[0]

    def placed(self, z: Array) -> Array:
        """Return multipliers (1, k) as they are stored."""
        return z

    def counted(self) -> Array:
        """Return 1 for the entries of the stored z that this process counts in sums, 0 for others: each once."""
        return np.full((1, self.coupled.k), float(0 in self.network.agents), dtype=self._dtype)

    def pulled(self, z: Array) -> Array:
        return (self._adjoint @ z[0]).reshape(self._shape)


class NeighbourRows:
    """Constraints each of which concerns one agent, or agents that are all neighbours of each other.

    Every product with A is one exchange. z is stored where it is needed: agents have a row of slots,
    and the multiplier of a constraint is in one slot, the same for all agents that it concerns; their
    values have the same bits. Constraints share a slot where no agent would hear of both. Which
    agents have a part in which constraint is public, and surveyed once.

    An agent sends A_i x_i, in its slots, to all of its neighbours. So neighbours see its part in each
    of its constraints, also in those that do not concern them; nobody else sees anything.

    Parameters
    ----------
    problem : Problem
        The coupled problem of the agents here, in the dimension of all.
    network : Network
        Exchanges with neighbours. Making the coupling costs the control rounds of a survey.
    survey : Survey, optional
        What that survey tells, if it was taken already.

    Attributes
    ----------
    slots : int
        Numbers that an agent sends to each neighbour.

    Raises
    ------
    InputError
        In all processes, if a constraint concerns agents that are not neighbours.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> from gradslide.network.coupled_rows import NeighbourRows
    >>> flow = gs.Coupled([[[1.0], [0.0]], [[-1.0], [1.0]], [[0.0], [-1.0]]], 0.0)
    >>> problem = gs.Problem(gs.losses.Linear(np.ones((3, 1))), coupling=flow)
    >>> coupling = NeighbourRows(problem, gs.network.Local(gs.Graph.path(3)))
    >>> coupling.slots, coupling.product(np.array([[3.0], [1.0], [1.0]])).tolist()
    (2, [[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    """

    name: ClassVar[str] = "neighbour rows"
    exchanges: ClassVar[int] = 1

    def __init__(self, problem: Problem, network: Network, survey: "Survey | None" = None) -> None:
        self.coupled, self.network = _coupling_of(problem), network
        m, d, dtype = problem.m, problem.d, problem.dtype
        concerns = self.coupled.participants
        (row, one, other), plan = _survey(problem, network) if survey is None else survey
        rule = "each constraint must concern agents that are neighbours of each other"
        got = f"row {row}, which concerns agents {one} and {other}, without a link"
        require(row < 0, rule, got, "add links, or use exact sums: SharedRows")
        self.coupled.require_parts(plan.parts > 0)
        self.slots = int(plan.slots.max(initial=0)) + 1
        self._plan, self._concerns = plan, concerns
        # The constraint in each slot of the agents here.
        agents, rows = np.nonzero(concerns)
        places = agents * self.slots + plan.slots[rows]
        self._rows = np.full(m * self.slots, -1)
        self._rows[places] = rows
        is_used = self._rows >= 0
        owned = np.zeros(m * self.slots, dtype=dtype)
        owned[places] = plan.owners[rows] == np.array(network.agents)[agents]
        self._owned = owned.reshape(m, self.slots)
        # In unused slots 0 = 0.
        lower, upper = (np.where(is_used, each[self._rows], 0.0) for each in (self.coupled.lower, self.coupled.upper))
        self.duals = _duals(lower, upper, dtype)
        self._mask = is_used.reshape(m, self.slots)
        everything = sp.csr_array(sp.block_diag(_in_dimension(self.coupled, d, dtype), format="csr"))
        choice = sp.csr_array(
            (np.ones(len(places), dtype=dtype), (places, agents * self.coupled.k + rows)),
            shape=(m * self.slots, m * self.coupled.k),
        )
        self._forward: Sparse = sp.csr_array(choice @ everything)
        self._adjoint: Sparse = sp.csr_array(self._forward.T)
        self._weights: Sparse = sp.csr_array(network.graph.adjacency + sp.eye_array(network.m, format="csr"))
        # Sums have the same order, and so the same bits, wherever they are computed.
        self._weights.data[:] = 1.0
        self._weights.sort_indices()
        self._shape = m, d

    def product(self, x: Array) -> Array:
        """Return A x in the slots of the agents here; 0 in those that they do not use: one exchange.

        Parameters
        ----------
        x : ndarray, shape (agents here, d)

        Returns
        -------
        ndarray, shape (agents here, slots)
        """
        return self._summed((self._forward @ x.reshape(-1)).reshape(len(x), self.slots))

    def _summed(self, parts: Array) -> Array:
        """The sums of the parts of all agents in each slot of the agents here: one exchange."""
        return np.where(self._mask, self.network.combine(parts, self._weights), 0.0).astype(parts.dtype, copy=False)

    def row_squares(self) -> Array:
        """Return the sums of squares of the rows of A, in the slots of the agents here: one exchange."""
        parts: Array = self._forward.power(2).sum(axis=1)
        return self._summed(parts.reshape(self._mask.shape))

    def norm(self, weights: Array | None = None) -> float:
        """Return a bound on the norm of A: one flooded maximum.

        With p_r agents in row r, ||A|| is at most the largest norm of diag(sqrt(p)) A_i.

        Parameters
        ----------
        weights : ndarray, shape (agents here, slots), optional
            The norm of z is the root of the sum of weights z^2. Default: ones.

        Returns
        -------
        float
        """
        sizes = []
        for agent, block in enumerate(self.coupled.blocks):
            factors = self._plan.parts if weights is None else self._plan.parts / weights[agent, self._plan.slots]
            # Rows in which the agent has no part are 0: others may use their slots.
            sizes.append([_norm(sp.csr_array(sp.diags_array(np.sqrt(factors)) @ block))])
        return float(self.network.agree(np.array(sizes), "max")[0]) * (1 + _ROUNDING)

    def start(self, x: Array, s: Array | None = None) -> Dual:
        """Return z = 0, or a given z, and A^T z."""
        z = self.duals.start().reshape(len(x), self.slots) if s is None else s
        return Dual(z, self.pulled(z))

    def ascend(self, dual: Dual, u: Array, q: float) -> Dual:
        """Return argmin_z h(z) - <A u, z> + q U(z_old, z), and A^T of it: one exchange."""
        z = self.duals.ascend(dual.s.reshape(1, -1), self.product(u).reshape(1, -1), q)
        z = z.reshape(dual.s.shape)
        return Dual(z, self.pulled(z))

    def pull(self, dual: Dual) -> Array:
        """Return A^T z."""
        return dual.w

    def multipliers(self, dual: Dual) -> Array:
        """Return z, shape (k,), in all processes: one sum over the tree."""
        own = np.zeros((len(dual.s), self.coupled.k))
        agents, rows = np.nonzero(self._concerns & (self._plan.owners == np.array(self.network.agents)[:, None]))
        own[agents, rows] = dual.s[agents, self._plan.slots[rows]]
        return self.network.total(own)

    def placed(self, z: Array) -> Array:
        """Return multipliers (1, k) as they are stored."""
        return np.where(self._rows >= 0, z[0, self._rows], 0.0).reshape(self._mask.shape).astype(z.dtype, copy=False)

    def counted(self) -> Array:
        """Return 1 for the entries of the stored z that this process counts in sums, 0 for others: each once."""
        return self._owned

    def pulled(self, z: Array) -> Array:
        return (self._adjoint @ z.reshape(-1)).reshape(self._shape)


class _Plan(NamedTuple):
    """Of each constraint: its slot, its first agent, and how many agents it concerns."""

    slots: Array
    owners: Array
    parts: Array


class Survey(NamedTuple):
    """What all agents learn of who has a part in which constraint.

    Attributes
    ----------
    failure : tuple of int
        A constraint and two agents in it that are not neighbours, if there are such, else three times -1.
    plan : _Plan
        Where multipliers are stored, if there are none.
    """

    failure: tuple[int, int, int]
    plan: _Plan


def _survey(problem: Problem, network: Network) -> Survey:
    concerns = _coupling_of(problem).participants
    told = network.survey(concerns.astype(np.float64), _surveyed).astype(int)
    row, one, other = told[:3].tolist()
    return Survey((row, one, other), _Plan(*told[3:].reshape(3, -1)))


def _surveyed(graph: Graph, concerns: Array) -> Array:
    """Assign slots from who has a part in which constraint, (m, k).

    Returns a constraint and two agents in it that are not neighbours, if there are such, else three
    times -1; then the `_Plan`.
    """
    k = concerns.shape[1]
    closed = [set(graph.neighbours(i).tolist()) | {i} for i in range(graph.m)]
    used: list[set[int]] = [set() for _ in range(graph.m)]
    slots, owners, parts = np.zeros(k), np.full(k, -1.0), concerns.sum(axis=0)
    for row in np.argsort(-parts, kind="stable").tolist():
        agents = np.flatnonzero(concerns[:, row]).tolist()
        for i in agents:
            if far := set(agents) - closed[i]:
                return np.concatenate([[row, i, min(far)], slots, owners, parts])
        taken = set().union(*(used[j] for i in agents for j in closed[i]))
        slot = next(s for s in range(len(taken) + 1) if s not in taken)
        slots[row], owners[row] = slot, agents[0] if agents else -1
        for i in agents:
            used[i].add(slot)
    return np.concatenate([[-1, -1, -1], slots, owners, parts])


def _duals(lower: Array, upper: Array, dtype: DType) -> DualSpace:
    return DualSpace(Free().bind(1, len(lower), dtype), Interval(lower, upper))


def _in_dimension(coupled: Coupled, d: int, dtype: DType) -> list[Sparse]:
    """The blocks with further columns of zeros."""
    return [
        sp.csr_array((block.data.astype(dtype), block.indices, block.indptr), shape=(coupled.k, d))
        for block in coupled.blocks
    ]


def _norm(A: Sparse) -> float:
    """The largest singular value."""
    small = A if A.shape[0] <= A.shape[1] else A.T
    gram = (small @ small.T).toarray()
    return math.sqrt(max(0.0, float(np.linalg.eigvalsh(gram)[-1])))
