"""How fast a run computes and communicates."""

from dataclasses import dataclass


@dataclass
class Pace:
    """Gradients and exchanges so far, and the seconds they took, measured around the oracle and the network.

    Seconds are simulated if a single clock runs, else those of this machine. Gradients that came with a value count;
    values alone and control rounds do not.

    Attributes
    ----------
    gradients, exchanges : int
        How many there were.
    gradient_seconds, exchange_seconds : float
        How long they took.
    """

    gradients: int = 0
    gradient_seconds: float = 0.0
    exchanges: int = 0
    exchange_seconds: float = 0.0

    def add_gradient(self, seconds: float) -> None:
        """Add one gradient."""
        self.gradients += 1
        self.gradient_seconds += seconds

    def add_exchanges(self, count: int, seconds: float) -> None:
        """Add exchanges that took so long together."""
        self.exchanges += count
        self.exchange_seconds += seconds

    def ratio(self) -> float:
        """Return the mean seconds of a gradient over those of an exchange; 1.0 as long as either took no time."""
        if self.gradient_seconds <= 0 or self.exchange_seconds <= 0:
            return 1.0
        return (self.gradient_seconds / self.gradients) / (self.exchange_seconds / self.exchanges)
