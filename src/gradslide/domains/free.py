"""The whole space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from array_api_compat import array_namespace

from gradslide._support.types import Array
from gradslide.domains.euclidean import Euclidean
from gradslide.domains.penalties import L1, ElasticNet, GroupL1, Penalty


@dataclass(frozen=True, eq=False)
class Free(Euclidean):
    """The whole space, X = R^d.

    Parameters
    ----------
    penalty : L1, GroupL1 or ElasticNet, optional
        The penalty r.
    center : array_like
        Where nu is smallest: a number, (d,) or (m, d).

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.domains.Free(penalty=gs.L1(0.1))
    Free(penalty=L1(weight=0.1), center=0.0)
    """

    separable: ClassVar[bool] = True
    constrained: ClassVar[bool] = False
    penalties: ClassVar[tuple[type[Penalty], ...]] = (L1, GroupL1, ElasticNet)

    def project(self, x: Array) -> Array:
        return array_namespace(x).asarray(x, copy=True)

    def minimize_linear(self, c: Array) -> Array:
        xp = array_namespace(c)
        unbounded = xp.any(self.beyond_penalty(c) != 0, axis=-1)
        return xp.where(unbounded, -np.inf, xp.zeros_like(c[:, 0]))
