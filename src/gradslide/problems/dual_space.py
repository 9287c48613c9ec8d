"""(Z, zeta, h): where z lives, how its steps are measured, and what it pays."""

from functools import cached_property

import numpy as np

from gradslide._support.types import Array
from gradslide.domains import Domain
from gradslide.problems.terms import Term


class DualSpace:
    """A dual domain and a term, both bound to z as one row (1, k)."""

    def __init__(self, domain: Domain, term: Term) -> None:
        self.domain = domain
        self.term = term.bind(domain)

    def start(self) -> Array:
        """The minimiser of zeta over Z."""
        return self.domain.start()

    def ascend(self, z: Array, slope: Array, q: float) -> Array:
        """argmin over Z of h - <slope, .> + q U(z, .) (`eq:zkt_SPP`)."""
        return self.term.prox(self.domain, q * self.domain.grad_nu(z) + slope, q)

    def U(self, a: Array, z: Array) -> float:
        return float(self.domain.V(a, z)[0])

    def U_bound(self, z: Array) -> float:
        """The largest U(z, .) over Z; inf where Z is unbounded."""
        return float(self.domain.distance_bound(z)[0])

    def h(self, z: Array) -> float:
        return self.term.value(z) + float(self.domain.r(z)[0])

    @cached_property
    def is_constrained(self) -> bool:
        """Whether the maximum over z only keeps A x in a set."""
        return self.violation(self.start()) is not None

    def conjugate(self, v: Array) -> float:
        """max over Z of <v, z> - h(z); 0 where that keeps v in a set: `violation` tells how far it is."""
        return 0.0 if self.is_constrained else self.term.conjugate(self.domain, v)

    def violation(self, v: Array) -> Array | None:
        return self.term.violation(self.domain, v)

    def fingerprint(self) -> str:
        probe = np.random.default_rng(1).normal(size=(1, self.domain.d)).astype(self.domain.dtype)
        near, far = (self.term.prox(self.domain, size * probe, 1.0) for size in (1, 1e3))
        return f"{float(np.vdot(probe, near)):.7e} {float(np.vdot(probe, far)):.7e}"

    def __repr__(self) -> str:
        return f"{type(self.term).__name__} on {type(self.domain).__name__}"
