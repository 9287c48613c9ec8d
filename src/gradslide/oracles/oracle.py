"""The oracle that methods ask, and that counts what they ask for."""

from collections.abc import Callable
from typing import TypeVar

from array_api_compat import array_namespace

from gradslide._support.errors import InputError, StreamEnded, StreamError, WaitEnded
from gradslide._support.types import Array
from gradslide.losses import Loss
from gradslide.losses.base import require_shape
from gradslide.network.clock import Timeline
from gradslide.oracles.base import Sampler
from gradslide.results.costs import Costs
from gradslide.results.pace import Pace

_Result = TypeVar("_Result")


class Oracle:
    """Gradients of ft_i, exact or sampled, every evaluation and every sample counted (and timed, where a clock runs).

    is_drawing: samples are being waited for. is_blank: sampled gradients are zero and draw nothing, for a state that
    only lends its form to one that was saved. first_values: the first values that were asked for with gradients.
    """

    def __init__(
        self,
        loss: Loss,
        costs: Costs,
        sampler: Sampler | None = None,
        timeline: Timeline | None = None,
        settle: Callable[[int], int] = lambda wish: wish,
    ) -> None:
        """settle: as that of a network, where other processes must know that samples did not come."""
        self._loss = loss
        self._settle = settle
        self._costs = costs
        self._sampler = sampler
        self._timeline = timeline
        self.is_drawing = False
        self.is_blank = False
        self.first_values: Array | None = None

    @property
    def pace(self) -> Pace:
        """How fast the run was so far."""
        return self._costs.pace

    def gradient(self, x: Array) -> Array:
        """grad ft_i(x_i) for every agent here, shape (agents, d)."""
        gradient = self._timed(self._loss.gradient, x)
        require_shape(self._loss, "gradient", gradient, x.shape)
        return gradient

    def steps(self, start: Array, anchor: Array, pulls: Array, scales: Array, shares: Array) -> tuple[Array, Array]:
        """The T steps of `Loss.steps`: T gradients."""
        return self._timed(self._loss.steps, start, anchor, pulls, scales, shares, count=len(pulls))

    def value(self, x: Array) -> Array:
        """ft_i(x_i) for every agent here, shape (agents,)."""
        self._costs.values += 1
        if self._timeline is not None:
            self._timeline.gradient()
        values = self._loss.value(x)
        require_shape(self._loss, "value", values, x.shape[:1])
        return values

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        self._costs.values += 1
        values, gradient = self._timed(self._loss.value_and_gradient, x)
        require_shape(self._loss, "value", values, x.shape[:1])
        require_shape(self._loss, "gradient", gradient, x.shape)
        if self.first_values is None:
            self.first_values = values
        return values, gradient

    def sampled_gradient(self, x: Array, start: int, count: int) -> Array:
        """Mean of the gradients of every agent's samples start, ..., start + count - 1; shape (agents, d)."""
        sampler = self._given()
        if self.is_blank:
            return array_namespace(x).zeros_like(x)
        self.is_drawing = True
        samples = together(lambda: sampler.draw(start, count), self._settle)
        self.is_drawing = False
        gradient = sampler.gradient(x, samples)
        self._costs.samples += count
        if self._timeline is not None:
            self._timeline.samples(count)
        return gradient

    def draw_ahead(self, start: int, count: int) -> None:
        """Say which samples come next, so that they can be collected while the network communicates."""
        self._given().prepare(start, count)

    def wait_unless(self, give_up: Callable[[], bool]) -> None:
        """Samples are waited for until they are there or this says to give up."""
        if self._sampler is not None:
            self._sampler.give_up = give_up

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            # It knows the run, which knows this oracle.
            self._sampler.give_up = Sampler.give_up

    def _timed(self, gradients: Callable[..., _Result], *arguments: Array, count: int = 1) -> _Result:
        """Call a function that computes so many gradients; count them and measure the pace."""
        costs = self._costs
        started = costs.now()
        costs.gradients += count
        if self._timeline is not None:
            self._timeline.gradient(count)
        result = gradients(*arguments)
        seconds = costs.now() - started
        for _ in range(count):
            costs.pace.add_gradient(seconds / count)
        return result

    def _given(self) -> Sampler:
        if self._sampler is None:
            raise InputError("a method that samples needs a field `oracle`", "none", "gs.oracles.WithReplacement()")
        return self._sampler


_Samples = TypeVar("_Samples")
Trouble = StreamEnded | WaitEnded | StreamError
# What went wrong, in front of the number of the agent.
_ENDED, _WAITED, _FAILED = (kind << 40 for kind in (1, 2, 3))


def together(draw: Callable[[], _Samples], settle: Callable[[int], int]) -> _Samples:
    """What `draw` gives; or what kept samples from coming, here or in another process."""
    troubles: list[Trouble] = []
    try:
        samples = draw()
    except (StreamEnded, WaitEnded, StreamError) as error:
        troubles.append(error)
    own = _code(troubles)
    worst = settle(own)
    # All raise alike, whatever else happened here: what follows depends on it.
    if troubles and own >> 40 == worst >> 40:
        # Popped: an error and the frames that name it would keep each other, and the streams, alive.
        raise troubles.pop()
    kind, agent = worst >> 40 << 40, worst & ((1 << 40) - 1)
    if kind == _ENDED:
        raise StreamEnded(agent)
    if kind == _WAITED:
        raise WaitEnded
    if kind == _FAILED:
        raise StreamError(agent, "it failed in the process where that agent lives")
    return samples


def _code(troubles: list[Trouble]) -> int:
    for trouble in troubles:
        if isinstance(trouble, WaitEnded):
            return _WAITED
        return (_ENDED if isinstance(trouble, StreamEnded) else _FAILED) + (trouble.agent or 0)
    return 0
