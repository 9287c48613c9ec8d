"""First-order information of the agents that live here."""

from gradslide._types import Array
from gradslide.costs import Costs
from gradslide.losses import Loss


class Exact:
    """Exact gradients of ft_i, every evaluation counted."""

    def __init__(self, loss: Loss, costs: Costs) -> None:
        self._loss = loss
        self._costs = costs

    def gradient(self, x: Array) -> Array:
        """grad ft_i(x_i) for every agent here, shape (agents, d)."""
        self._costs.gradients += 1
        return self._loss.gradient(x)

    def value(self, x: Array) -> Array:
        """ft_i(x_i) for every agent here, shape (agents,)."""
        self._costs.values += 1
        return self._loss.value(x)

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        self._costs.values += 1
        self._costs.gradients += 1
        return self._loss.value_and_gradient(x)
