"""What proves how good an answer is, and what only speaks for it."""

from dataclasses import dataclass

# Bounds leave room for rounding already: this is for what a user's own loss may add.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Certificate:
    """lower <= optimum, and the value `upper` at the answer.

    On a network `lower` leaves room for rounding, and `upper` is the sum of all f_i at the mean of the agents: the
    optimum lies between them. Where the agents have sets of their own the mean need not be feasible, and upper is inf.
    residual: on a network max_i |x_i - mean|, how far the agents are from the point that upper speaks of. Else how far
    A x is from where it must be; where that is not 0, `upper` may lie below the optimum.
    """

    lower: float
    upper: float
    residual: float = 0.0

    @property
    def gap(self) -> float:
        return self.upper - self.lower

    @property
    def refutation(self) -> str:
        """What to say where no optimum can lie between the two, on a network; nothing where one can."""
        if self.lower <= self.upper + _ROUNDING * abs(self.upper):
            return ""
        return (
            f"the lower bound {self.lower:.6g} is above the objective {self.upper:.6g}: the gradient is not that "
            "of the value, or the loss is not convex. Compare it with finite differences (scipy.optimize.check_grad)"
        )


@dataclass(frozen=True)
class KKT:
    """How far the agents are from the conditions of optimality. NOT a certificate: small residuals do not say how far
    the objective is from the optimum.

    stationarity: the length, over all agents, of the step x_i - argmin over X_i of mu nu + r + <grad ft_i(x_i) + w_i,
    .> + V(x_i, .), with multipliers w_i that add up to 0: those of the method that make it shortest, or, where it has
    none, mean gradient - own gradient. consensus: max_i |x_i - mean|. scale: the stationarity at the start, with w = 0.
    """

    stationarity: float
    consensus: float
    scale: float

    def __str__(self) -> str:
        start = f"{self.scale:.3g} at the start"
        return f"stationarity {self.stationarity:.3g} ({start}), consensus {self.consensus:.3g}"
