"""Random connected graphs with an exact maximum degree."""

from itertools import combinations

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.randomness import Seed, generator
from gradslide._support.types import Array

_ATTEMPTS = 50  # fresh draws when an edge count cannot be reached from the current one
_REJECTIONS = 200  # failed random pairs in a row before the admissible ones are listed
_EXCHANGES = 2_000  # failed random exchanges before a draw is given up


def random_pairs(m: int, max_degree: int, seed: Seed, edges: int | None) -> Array:
    """Draw a random spanning tree under the degree cap, plus random edges up to `edges`."""
    require(m >= 2, "a random graph needs at least two agents", f"m = {m}", "use Graph.path(1) for a lone agent")
    require(
        (2 if m > 2 else 1) <= max_degree < m,
        f"max_degree must be between {2 if m > 2 else 1} and m - 1 = {m - 1}",
        max_degree,
        "choose a degree that a connected graph on m agents can have",
    )
    count = default_edges(m, max_degree) if edges is None else edges
    require(
        m - 1 <= count <= m * max_degree // 2,
        f"edges must be between m - 1 = {m - 1} (a tree) and m * max_degree / 2 = {m * max_degree // 2}",
        edges,
        "change edges or max_degree",
    )
    rng = generator(seed)
    for _ in range(_ATTEMPTS):
        draw = _PartialGraph(m, max_degree, rng)
        if draw.fill(count):
            return rng.permutation(m)[np.array(sorted(draw.edges))]
    raise InputError(
        f"{count} edges must be reachable under max_degree = {max_degree}",
        f"{_ATTEMPTS} random draws that got stuck",
        "ask for fewer edges",
    )


def default_edges(m: int, max_degree: int) -> int:
    """As many edges as an Erdos-Renyi graph whose median maximum degree is max_degree has.

    Such a graph is seldom connected when max_degree is small: at least min(1.5 m, three quarters of what the
    cap allows) are taken.
    """
    from scipy.special import betaincinv

    # P(Binomial(m-1, p) <= max_degree)^m = 1/2, solved for p through the incomplete beta function.
    p = 1.0 if max_degree == m - 1 else betaincinv(max_degree + 1, m - 1 - max_degree, -np.expm1(-np.log(2) / m))
    erdos_renyi = round(float(p) * m * (m - 1) / 2)
    cap = m * max_degree // 2
    return min(max(erdos_renyi, int(min(1.5 * m, 0.75 * cap)), m - 1), cap)


class _PartialGraph:
    """A graph under construction: node 0 is the hub that attains the maximum degree."""

    def __init__(self, m: int, max_degree: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.edges: set[tuple[int, int]] = set()
        self.extra: list[tuple[int, int]] = []  # edges outside the spanning tree: these may be exchanged
        self.spare = [max_degree] * m
        self.open = [0]  # nodes with spare capacity ...
        self.place = [-1] * m  # ... and where each stands in that list
        self.place[0] = 0
        for node, chance in enumerate(rng.random(m - 1).tolist(), start=1):
            # The first max_degree nodes go to the hub; then any with spare capacity may be chosen.
            parent = 0 if node <= max_degree else self.open[int(chance * len(self.open))]
            self.place[node] = len(self.open)
            self.open.append(node)
            self._add(parent, node)

    def fill(self, count: int) -> bool:
        """Add random edges until there are `count`; False where that cannot be done."""
        return self._add_random(count) or self._add_listed(count) or self._add_by_exchange(count)

    def _add_random(self, count: int) -> bool:
        rejected = 0
        while len(self.edges) < count and rejected < _REJECTIONS and len(self.open) > 1:
            for a, b in self.rng.random((256, 2)).tolist():
                size = len(self.open)
                if self._admissible(u := self.open[int(a * size)], v := self.open[int(b * size)]):
                    self._add_extra(u, v)
                    rejected = 0
                else:
                    rejected += 1
                if len(self.edges) == count or len(self.open) < 2:
                    break
        return len(self.edges) == count

    def _add_listed(self, count: int) -> bool:
        # Capacities only shrink: one pass over the pairs in random order equals drawing among those left.
        listed = [pair for pair in combinations(sorted(self.open), 2) if pair not in self.edges]
        for k in self.rng.permutation(len(listed)).tolist():
            if len(self.edges) == count:
                break
            u, v = listed[k]
            if self.spare[u] and self.spare[v]:
                self._add_extra(u, v)
        return len(self.edges) == count

    def _add_by_exchange(self, count: int) -> bool:
        """Open nodes are all adjacent by now: replace (a, b) by (a, u) and (b, v), which fills u and v."""
        failed = 0
        while len(self.edges) < count:
            if failed == _EXCHANGES or not self.extra:
                return False
            slots = [node for node in self.open for _ in range(min(self.spare[node], 2))]
            u, v = (slots[k] for k in self.rng.choice(len(slots), 2, replace=False))
            k = int(self.rng.integers(len(self.extra)))
            a, b = self.extra[k]
            if len({a, b, u}) + len({a, b, v}) < 6 or _pair(a, u) in self.edges or _pair(b, v) in self.edges:
                failed += 1
                continue
            failed = 0
            self.extra[k] = self.extra[-1]
            self.extra.pop()
            self.edges.remove(_pair(a, b))
            added = [_pair(a, u), _pair(b, v)]
            self.edges.update(added)
            self.extra += added
            self._use(u)
            self._use(v)
        return True

    def _admissible(self, u: int, v: int) -> bool:
        return u != v and _pair(u, v) not in self.edges

    def _add_extra(self, u: int, v: int) -> None:
        self._add(u, v)
        self.extra.append(_pair(u, v))

    def _add(self, u: int, v: int) -> None:
        self.edges.add(_pair(u, v))
        self._use(u)
        self._use(v)

    def _use(self, node: int) -> None:
        """Use up one place at a node; take a full one out of the open list, in constant time."""
        self.spare[node] -= 1
        if self.spare[node]:
            return
        hole, last = self.place[node], self.open[-1]
        self.open[hole] = last
        self.place[last] = hole
        self.open.pop()
        self.place[node] = -1


def _pair(u: int, v: int) -> tuple[int, int]:
    return (u, v) if u < v else (v, u)
