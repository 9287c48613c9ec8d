"""How fast a run computes and communicates: measured around its oracle and its network, for methods that ask."""

from dataclasses import dataclass


@dataclass
class Pace:
    """Gradients and exchanges so far, and the seconds that they took: simulated ones where a single clock runs, else
    those of this machine. Gradients that came with a value count, values alone and control rounds do not."""

    gradients: int = 0
    gradient_seconds: float = 0.0
    exchanges: int = 0
    exchange_seconds: float = 0.0

    def add_gradient(self, seconds: float) -> None:
        self.gradients += 1
        self.gradient_seconds += seconds

    def add_exchanges(self, count: int, seconds: float) -> None:
        self.exchanges += count
        self.exchange_seconds += seconds

    def ratio(self) -> float:
        """Seconds of a gradient over those of an exchange, on average; 1.0 as long as either took no time at all."""
        if self.gradient_seconds <= 0 or self.exchange_seconds <= 0:
            return 1.0
        return (self.gradient_seconds / self.gradients) / (self.exchange_seconds / self.exchanges)
