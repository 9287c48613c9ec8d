"""A domain of its own for each agent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import to_numpy
from gradslide._support.errors import InputError, require
from gradslide._support.types import Array, DType
from gradslide.domains.base import Domain
from gradslide.domains.parameters import Fit, unset
from gradslide.domains.penalties import not_a_domain


@dataclass(frozen=True, eq=False)
class PerAgent(Domain):
    """A different domain for each agent; all must have the same norm.

    Agents with the same kind of set and penalty are stacked, and each operation is one call per
    kind. Where all are of one kind, `bind` returns that stacked domain itself.

    Parameters
    ----------
    domains : sequence of Domain
        The domain of each agent.

    Examples
    --------
    >>> import gradslide as gs
    >>> X = gs.domains.PerAgent([gs.domains.L2Ball(1.0), gs.domains.NonNegative()])
    >>> X.bind(m=2, d=3, dtype=float).bounded
    False
    """

    domains: Sequence[Domain]

    # Once bound: one stacked domain per kind, the agents of each, and the place of agent i among them all.
    _parts: tuple[Domain, ...] = field(init=False, repr=False, default=())
    _members: tuple[Array, ...] = field(init=False, repr=False, default=())
    _place: Array = field(init=False, repr=False, default_factory=unset)

    other_arrays: ClassVar[tuple[str, ...]] = ("_parts", "_members", "_place")

    def __post_init__(self) -> None:
        require(len(self.domains) > 0, "PerAgent needs a domain", "none", "give one per agent")
        for i, domain in enumerate(self.domains):
            if not isinstance(domain, Domain):
                raise not_a_domain(f"domains[{i}] must be a domain", domain)
        norms = {domain.norm for domain in self.domains}
        require(len(norms) == 1, "all agents must use one norm", sorted(norms), "do not mix entropy and Euclidean")

    def bind(self, m: int, d: int, dtype: DType) -> Domain:
        rule = "PerAgent must hold one domain for each agent"
        require(len(self.domains) == m, rule, f"{len(self.domains)} for {m} agents", "give m domains")
        singles = [_bind_single(i, domain, d, dtype) for i, domain in enumerate(self.domains)]
        agents_by_kind: dict[Hashable, list[int]] = {}
        for i, single in enumerate(singles):
            agents_by_kind.setdefault(single.kind(), []).append(i)
        members = [np.array(agents) for agents in agents_by_kind.values()]
        stacks = [type(singles[agents[0]]).stack([singles[i] for i in agents]) for agents in members]
        return self._joined(stacks, members)

    def _joined(self, parts: Sequence[Domain], members: Sequence[Array]) -> Domain:
        """Join the parts into one domain; return the part itself where there is only one."""
        parts = [part.replaced(m=len(agents)) for part, agents in zip(parts, members, strict=True)]
        if len(parts) == 1:
            return parts[0]
        order = np.concatenate(members)
        return self.replaced(
            m=len(order),
            d=parts[0].d,
            dtype=parts[0].dtype,
            _parts=tuple(parts),
            _members=tuple(members),
            _place=np.argsort(order),
        )

    @property
    def parts(self) -> tuple[tuple[Domain, Array], ...]:
        """The bound domain of each kind, with the numbers of its agents."""
        return tuple(zip(self._parts, self._members, strict=True))

    def take(self, agents: Sequence[int] | Array) -> Domain:
        chosen = np.asarray(agents, dtype=np.intp)
        place = to_numpy(self._place)[chosen]
        parts, members, first = [], [], 0
        for part in self._parts:
            here = np.flatnonzero((place >= first) & (place < first + part.m))
            if len(here):
                parts.append(part.take(place[here] - first))
                members.append(here)
            first += part.m
        taken = self.replaced(domains=tuple(self.domains[i] for i in chosen.tolist()))._joined(parts, members)
        return taken if self.device is None else taken.to(self.device)

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        raise NotImplementedError("PerAgent binds its parts")

    def _each(self, operation: Callable[..., Array], *arguments: Array | float) -> Array:
        """Call operation(part, arguments of its agents) for every part; restore the order of the
        agents.
        """

        def of(agents: Array, argument: Array | float) -> Array | float:
            if getattr(argument, "ndim", 0) == 0:
                return argument
            return array_namespace(argument).take(argument, agents, axis=0)

        results = [
            operation(part, *(of(agents, argument) for argument in arguments))
            for part, agents in zip(self._parts, self._members, strict=True)
        ]
        xp = array_namespace(*results)
        return xp.take(xp.concat(results), self._place, axis=0)

    @property
    def norm(self) -> int:
        return self.domains[0].norm

    @property
    def bounded(self) -> bool:
        return all(part.bounded for part in self._parts)

    @property
    def common(self) -> bool:
        return False

    def nu(self, x: Array) -> Array:
        return self._each(lambda part, x: part.nu(x), x)

    def grad_nu(self, x: Array) -> Array:
        return self._each(lambda part, x: part.grad_nu(x), x)

    def V(self, a: Array, x: Array) -> Array:
        return self._each(lambda part, a, x: part.V(a, x), a, x)

    def r(self, x: Array) -> Array:
        return self._each(lambda part, x: part.r(x), x)

    def prox(self, theta: Array, scale: Array | float) -> Array:
        return self._each(lambda part, theta, scale: part.prox(theta, scale), theta, scale)

    def linear_minimum(self, c: Array, mu: float = 0.0) -> Array:
        return self._each(lambda part, c: part.linear_minimum(c, mu), c)

    def project(self, x: Array) -> Array:
        return self._each(lambda part, x: part.project(x), x)

    def start(self) -> Array:
        return self._each(lambda part: part.start())

    def without_penalty(self) -> Domain:
        return self.replaced(_parts=tuple(part.without_penalty() for part in self._parts))

    def distance_bound(self, x0: Array) -> Array:
        return self._each(lambda part, x0: part.distance_bound(x0), x0)


def _bind_single(i: int, domain: Domain, d: int, dtype: DType) -> Domain:
    try:
        return domain.bind(1, d, dtype)
    except InputError as error:
        raise InputError(f"domains[{i}] must fit one agent", error, "correct that agent's domain") from error
