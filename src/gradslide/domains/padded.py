"""Domains of fewer coordinates than others have, seen in the dimension of all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import array_api_compat as compat
import numpy as np
from array_api_compat import array_namespace

from gradslide._support.arrays import is_numpy
from gradslide._support.errors import require
from gradslide._support.types import Array, DType
from gradslide.domains.base import Domain
from gradslide.domains.parameters import Fit


@dataclass(frozen=True, eq=False)
class Padded(Domain):
    """A domain of the first coordinates; the others are 0, and nu does not depend on them.

    Parameters
    ----------
    inner : Domain
        The domain of the first coordinates.
    dimension : int
        How many these are.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> from gradslide.domains.padded import Padded
    >>> X = Padded(gs.domains.Box(0.0, 1.0), 2).bind(m=1, d=3, dtype=float)
    >>> X.project(np.full((1, 3), 5.0)).tolist()
    [[1.0, 1.0, 0.0]]
    """

    inner: Domain
    dimension: int

    row_fields: ClassVar[tuple[str, ...]] = ("inner",)

    def bind(self, m: int, d: int, dtype: DType) -> Domain:
        rule, remedy = "a padded domain must have no more coordinates than x", "check the dimensions"
        require(self.dimension <= d, rule, f"{self.dimension} of {d}", remedy)
        inner = self.inner.bind(m, self.dimension, dtype)
        return self.replaced(m=m, d=d, dtype=np.dtype(dtype), inner=inner)

    def bind_fields(self, fit: Fit) -> dict[str, Any]:
        raise NotImplementedError("Padded binds the domain within")

    def take(self, agents: Sequence[int] | Array) -> Domain:
        inner = self.inner.take(agents)
        return self.replaced(m=inner.m, inner=inner)

    @classmethod
    def stack(cls, singles: Sequence[Self]) -> Self:
        inner = type(singles[0].inner).stack([each.inner for each in singles]).replaced(m=len(singles))
        return singles[0].replaced(inner=inner)

    def kind(self) -> Hashable:
        return type(self), self.dimension, self.inner.kind()

    def replaced(self, **values: Any) -> Self:
        # `PerAgent` says in this way how many agents a domain has.
        if values.keys() == {"m"}:
            values["inner"] = self.inner.replaced(**values)
        return super().replaced(**values)

    @property
    def norm(self) -> int:
        return self.inner.norm

    @property
    def bounded(self) -> bool:
        return self.inner.bounded

    def nu(self, x: Array) -> Array:
        return self.inner.nu(self._cut(x))

    def grad_nu(self, x: Array) -> Array:
        return self._padded(self.inner.grad_nu(self._cut(x)))

    def V(self, a: Array, x: Array) -> Array:
        return self.inner.V(self._cut(a), self._cut(x))

    def r(self, x: Array) -> Array:
        return self.inner.r(self._cut(x))

    def prox(self, theta: Array, scale: Array | float) -> Array:
        return self._padded(self.inner.prox(self._cut(theta), scale))

    def linear_minimum(self, c: Array, mu: float = 0.0) -> Array:
        return self.inner.linear_minimum(self._cut(c), mu)

    def project(self, x: Array) -> Array:
        return self._padded(self.inner.project(self._cut(x)))

    def start(self) -> Array:
        return self._padded(self.inner.start())

    def without_penalty(self) -> Domain:
        return self.replaced(inner=self.inner.without_penalty())

    def distance_bound(self, x0: Array) -> Array:
        return self.inner.distance_bound(self._cut(x0))

    def _cut(self, x: Array) -> Array:
        return x[:, : self.dimension]

    def _padded(self, x: Array) -> Array:
        shape = x.shape[0], self.d - self.dimension
        if is_numpy(x):
            return np.concatenate([x, np.zeros(shape, dtype=x.dtype)], axis=1)
        xp = array_namespace(x)
        return xp.concat([x, xp.zeros(shape, dtype=x.dtype, device=compat.device(x))], axis=1)


def without_padding(domain: Domain) -> Domain:
    """Return the bound domain of one agent in its own dimension.

    Parameters
    ----------
    domain : Domain
        Bound to one agent.

    Returns
    -------
    Domain
    """
    return domain.inner if isinstance(domain, Padded) else domain
