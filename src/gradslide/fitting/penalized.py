"""The loss of scaled columns with a ridge on each coordinate."""

import numpy as np

from gradslide._support.types import Array
from gradslide.losses import Loss


class PenalizedLoss(Loss):
    """ft_i(u) = base_i(E u) + 1/2 sum_j ridge_j u_j^2, where E puts zeros where coordinates are left out.

    Parameters
    ----------
    base : Loss
    kept : ndarray of int
        The coordinates of `base` that u has; the others are 0.
    ridge : ndarray, shape (d,)
        The part of each agent.
    """

    def __init__(self, base: Loss, kept: Array, ridge: Array) -> None:
        super().__init__(base.m, len(kept), base.dtype)
        self.base, self._kept, self._ridge = base, kept, ridge
        self._is_whole = len(kept) == base.d

    @property
    def has_hessian(self) -> bool:
        return self.base.has_hessian

    @property
    def rows_per_agent(self) -> Array | None:
        return self.base.rows_per_agent

    def embedded(self, u: Array) -> Array:
        """Return E u."""
        if self._is_whole:
            return u
        x = np.zeros((len(u), self.base.d), dtype=u.dtype)
        x[:, self._kept] = u
        return x

    def value(self, x: Array) -> Array:
        return self.base.value(self.embedded(x)) + self._penalty(x)

    def gradient(self, x: Array) -> Array:
        return self._restricted(self.base.gradient(self.embedded(x))) + self._ridge * x

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        values, gradients = self.base.value_and_gradient(self.embedded(x))
        return values + self._penalty(x), self._restricted(gradients) + self._ridge * x

    def hessian(self, x: Array) -> Array:
        return self._with_ridge(self.base.hessian(self.embedded(x)))

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        values, gradients, hessians = self.base.derivatives(self.embedded(x))
        gradients = self._restricted(gradients) + self._ridge * x
        return values + self._penalty(x), gradients, self._with_ridge(hessians)

    def unpenalized(self, x: Array) -> tuple[Array, Array, Array]:
        """Return values, gradients and Hessians of the base, for the coordinates that are kept."""
        values, gradients, hessians = self.base.derivatives(self.embedded(x))
        return values, self._restricted(gradients), self._block(hessians)

    def compute_smoothness(self, norm: int) -> Array:
        return self.base.smoothness(norm) + np.max(self._ridge, initial=0.0)

    def take_agents(self, agents: Array) -> "PenalizedLoss":
        return PenalizedLoss(self.base.take(agents), self._kept, self._ridge)

    def _penalty(self, x: Array) -> Array:
        return 0.5 * x**2 @ self._ridge

    def _restricted(self, gradients: Array) -> Array:
        return gradients if self._is_whole else gradients[:, self._kept]

    def _block(self, hessians: Array) -> Array:
        return hessians if self._is_whole else hessians[:, self._kept[:, None], self._kept]

    def _with_ridge(self, hessians: Array) -> Array:
        # Where there is one Hessian it is the sum over the agents.
        count = self.m if len(hessians) == 1 else 1
        return self._block(hessians) + count * np.diag(self._ridge)
