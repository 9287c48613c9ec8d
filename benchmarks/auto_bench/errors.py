"""The error of a set of answers, and the costs at which a run reached each accuracy."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import scipy.sparse as sp

import gradslide as gs
from auto_bench.problems import Case, Optimum

ACCURACIES = (1e-2, 1e-3, 1e-4, 1e-6)
BALANCES = (0.1, 1.0, 10.0, 100.0)
# Whether sums over all agents are free or counted as rounds.
COUNTS = ("free", "counted")
# A run ends if it costs this many times the best cost at an accuracy that it has not reached. This is a heuristic:
# with 2, some runs that were best at higher accuracies had almost been ended.
HOPELESS = 5.0
# A run diverged if its error, relative to the error at the start, exceeds this.
DIVERGED = 1e3

# (gradients, rounds, control rounds)
Spent = tuple[int, int, int]
# Costs by count, balance and accuracy.
Bounds = dict[str, list[list[float]]]


def cost(spent: Spent, balance: float, count: str) -> float:
    gradients, rounds, control = spent
    return balance * gradients + rounds + (control if count == "counted" else 0)


def no_bounds() -> Bounds:
    return {count: [[math.inf] * len(ACCURACIES) for _ in BALANCES] for count in COUNTS}


def matters(spent: Spent, hits: list[list[Spent]], bounds: Bounds) -> bool:
    """Whether a run with these costs can still improve on a bound at some accuracy."""
    possible = False
    for i, reached in enumerate(hits):
        ahead = min(
            cost(spent, balance, count) / bounds[count][b][i] for count in COUNTS for b, balance in enumerate(BALANCES)
        )
        if not reached and ahead >= HOPELESS:
            return False
        possible = possible or (ahead < 1 and _improvable(spent, reached))
    return possible


def _improvable(spent: Spent, reached: list[Spent]) -> bool:
    """Whether later answers may need fewer rounds in all, since they may need less mixing."""
    return not reached or spent[1] < min(rounds for _, rounds, _ in reached)


@dataclass(frozen=True)
class FinalMixing:
    """Chebyshev rounds on [l2, hi] of D^-1 Lap, D_i = max(1, deg_i/(2 mean degree)) scaled to mean 1.

    The mean with weights D is invariant. root: ceil(sqrt(hi/l2)).
    """

    matrix: sp.csr_array
    weights: np.ndarray
    least: float
    most: float

    @classmethod
    def of(cls, graph: gs.Graph) -> "FinalMixing":
        D = np.maximum(1.0, graph.degrees / (2 * graph.degrees.mean()))
        D = D / D.mean()
        half = sp.diags_array(D**-0.5)
        spectrum = np.linalg.eigvalsh((half @ graph.laplacian @ half).toarray())
        return cls(sp.csr_array(sp.diags_array(1 / D) @ graph.laplacian), D / D.sum(), spectrum[1], spectrum[-1])

    @property
    def root(self) -> int:
        return math.ceil(math.sqrt(self.most / self.least))

    def rounds(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Yield x after 0, 1, 2, ... rounds."""
        yield x
        middle, half = (self.most + self.least) / 2, (self.most - self.least) / 2
        step = -(self.matrix @ x) / middle
        x = x + step
        yield x
        rho = half / middle
        while half > 0:
            before, rho = rho, 1 / (2 * middle / half - rho)
            step = rho * before * step - (2 * rho / half) * (self.matrix @ x)
            x = x + step
            yield x


@dataclass
class Meter:
    """A callback of `solve` that records the costs at which each accuracy was reached, with K_f more rounds of mixing.

    hits: for each accuracy the first costs, and later ones with fewer rounds. outputs: the answers to measure, by
    default the output of `solve`. most_mixing: the largest K_f. ended: why the run ended.
    """

    case: Case
    best: Optimum
    mixing: FinalMixing
    most_mixing: int
    bounds: Bounds
    outputs: Callable[[], list[np.ndarray]] | None = None
    hits: list[list[Spent]] = field(default_factory=lambda: [[] for _ in ACCURACIES])
    error: float = math.inf
    spent: Spent = (0, 0, 0)
    ended: str = ""

    def __post_init__(self) -> None:
        self._worst = DIVERGED * max(1.0, self._objective_error(np.zeros(self.case.problem.d)))

    def __call__(self, record: gs.Record, x: np.ndarray) -> bool:
        self.spent = (record.gradients, record.rounds, record.control_rounds)
        self.error = min(self._see(answers) for answers in ([x] if self.outputs is None else self.outputs()))
        if not self.error < self._worst:
            self.ended = "diverged"
        elif not any(_improvable(self.spent, reached) for reached in self.hits):
            self.ended = "done"
        elif not matters(self.spent, self.hits, self.bounds):
            self.ended = "bound"
        return bool(self.ended)

    def _see(self, x: np.ndarray) -> float:
        """Record the accuracies that x reaches; return its error without further mixing."""
        means = [x.mean(axis=0)]
        if np.ptp(self.mixing.weights) > 0:
            means.append(self.mixing.weights @ x)
        objective = min(self._objective_error(mean) for mean in means)
        error = max(objective, self._disagreement(x)[0])
        mixed = _Mixed(self, x)
        K = 0
        for accuracy, reached in zip(ACCURACIES, self.hits, strict=True):
            if objective > accuracy:
                break
            fewest = min((rounds for _, rounds, _ in reached), default=math.inf)
            limit = min(self.most_mixing, fewest - 1 - self.spent[1])
            while K <= limit and not mixed.within(K, accuracy):
                K += 1
            if K <= limit:
                gradients, rounds, control = self.spent
                reached.append((gradients, rounds + K, control))
            if K > self.most_mixing:
                break
        return error

    def _objective_error(self, x: np.ndarray) -> float:
        """Return the relative error at the projection of x onto the common domain."""
        with np.errstate(over="ignore", invalid="ignore"):
            return (self.case.total(self.case.project(x)) - self.best.objective) / abs(self.best.objective)

    def _disagreement(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the relative disagreement from the feasible point nearest to the mean, and the mean."""
        mean = x.mean(axis=0)
        distance = float(np.linalg.norm(x - self.case.project(mean)))
        return distance / (math.sqrt(len(x)) * self.best.size), mean


class _Mixed:
    """Errors of answers after K rounds of mixing, computed on demand and cached."""

    def __init__(self, meter: Meter, x: np.ndarray) -> None:
        self._meter = meter
        self._rounds = meter.mixing.rounds(x)
        self._disagreement: list[tuple[float, np.ndarray]] = []
        self._objective: dict[int, float] = {}

    def within(self, K: int, accuracy: float) -> bool:
        missing = K + 1 - len(self._disagreement)
        self._disagreement.extend(self._meter._disagreement(x) for x in islice(self._rounds, max(0, missing)))
        if K >= len(self._disagreement):
            return False
        disagreement, mean = self._disagreement[K]
        if disagreement > accuracy:
            return False
        if K not in self._objective:
            self._objective[K] = self._meter._objective_error(mean)
        return self._objective[K] <= accuracy
