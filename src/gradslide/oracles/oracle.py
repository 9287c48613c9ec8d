"""The oracle that methods call for gradients, which counts evaluations."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from array_api_compat import array_namespace

from gradslide._support.errors import InputError, StreamEnded, StreamError, WaitEnded
from gradslide._support.types import Array, Sparse
from gradslide.losses import Loss
from gradslide.losses.base import Evaluation, Extrapolation, require_shape
from gradslide.network.clock import Timeline
from gradslide.oracles.base import Sampler
from gradslide.results.costs import Costs, Pace

_Result = TypeVar("_Result")


@dataclass(eq=False)
class Oracle:
    """Gradients of the ft_i, exact or sampled; counts every evaluation and sample.

    Parameters
    ----------
    loss : Loss
        The loss of the agents that this process holds.
    costs : Costs
        Where evaluations are counted.
    sampler : Sampler, optional
        Source of sampled gradients.
    timeline : Timeline, optional
        Simulated clock.
    all_reduce : callable
        int -> int: the largest signal of all processes. Tells them when samples fail in one.

    Attributes
    ----------
    is_drawing : bool
        Whether samples are awaited.
    is_blank : bool
        If True, sampled gradients are zero and draw nothing: for a state that serves as a template
        when a checkpoint is restored.
    first_values : ndarray or None
        The first values that were computed together with gradients.
    reach : ndarray, shape (agents,), or None
        The largest |x_i| passed to `extend_reach`.
    """

    loss: Loss
    costs: Costs
    sampler: Sampler | None = None
    timeline: Timeline | None = None
    all_reduce: Callable[[int], int] = lambda signal: signal
    is_drawing: bool = field(default=False, init=False)
    is_blank: bool = field(default=False, init=False)
    first_values: Array | None = field(default=None, init=False)
    reach: Array | None = field(default=None, init=False)

    @property
    def pace(self) -> Pace:
        """Measured speed of the run so far.

        Returns
        -------
        Pace
            Numbers of gradients and exchanges, and the seconds that they took.
        """
        return self.costs.pace

    def gradient(self, x: Array) -> Array:
        """Return the gradient of ft_i at x_i; counts one gradient.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m, d)
            One gradient per agent.
        """
        gradient = self._timed(self.loss.gradient, x)
        require_shape(self.loss, "gradient", gradient, x.shape)
        return gradient

    def steps(self, start: Array, anchor: Array, pulls: Array, scales: Array, shares: Array) -> tuple[Array, Array]:
        """Perform the T gradient steps of `Loss.steps`; counts T gradients.

        Parameters
        ----------
        start, anchor : ndarray, shape (m, d)
            First point and constant term.
        pulls, scales, shares : ndarray, shape (T,)
            Parameters of each step.

        Returns
        -------
        last, average : ndarray, shape (m, d)
            The last point and the average of all points.
        """
        return self._timed(self.loss.steps, start, anchor, pulls, scales, shares, count=len(pulls))

    def extend_reach(self, sizes: Array) -> None:
        """Remember how far away from 0 a gradient for a lower bound was computed.

        Its rounding errors are relative to that, also once the run has come closer.

        Parameters
        ----------
        sizes : ndarray, shape (m,)
            |x_i| of each agent.
        """
        self.reach = sizes if self.reach is None else array_namespace(sizes).maximum(self.reach, sizes)

    def value(self, x: Array) -> Array:
        """Return ft_i(x_i); counts one value.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m,)
            One value per agent.
        """
        self.costs.values += 1
        if self.timeline is not None:
            self.timeline.gradient()
        values = self.loss.value(x)
        require_shape(self.loss, "value", values, x.shape[:1])
        return values

    def value_in_doubles(self, x: Array) -> Array | None:
        """Return ft_i(x_i) in double precision; counts one value, unless that is not available.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent, in double precision.

        Returns
        -------
        ndarray, shape (m,), or None
            One value per agent; None where the loss cannot (`Loss.value_in_doubles`).
        """
        values = self.loss.value_in_doubles(x)
        if values is not None:
            self.costs.values += 1
            if self.timeline is not None:
                self.timeline.gradient()
        return values

    def value_and_gradient(self, x: Array) -> tuple[Array, Array]:
        """Return values and gradients in one evaluation; counts one of each.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        values : ndarray, shape (m,)
            ft_i(x_i).
        gradients : ndarray, shape (m, d)
            The gradient of ft_i at x_i.
        """
        self.costs.values += 1
        values, gradient = self._timed(self.loss.value_and_gradient, x)
        require_shape(self.loss, "value", values, x.shape[:1])
        require_shape(self.loss, "gradient", gradient, x.shape)
        if self.first_values is None:
            self.first_values = values
        return values, gradient

    def evaluation(self, x: Array) -> Evaluation:
        """Return values and gradients in one evaluation, for `change`; counts one of each.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        Evaluation
            Of a loss that has it: see `Loss.has_evaluation`.
        """
        self.costs.values += 1
        found = self._timed(self.loss.evaluation, x)
        if self.first_values is None:
            self.first_values = found.value
        return found

    def change(self, evaluation: Evaluation, x: Array) -> tuple[Array, Array]:
        """Return how the values change from an evaluation to x; counts one value.

        Parameters
        ----------
        evaluation : Evaluation
            What `evaluation` returned.
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        change, error : ndarray, shape (m,)
            See `Evaluation.change`.
        """
        self.costs.values += 1
        if self.timeline is not None:
            self.timeline.gradient()
        return evaluation.change(x)

    def scores(self, x: Array) -> tuple[Array, Array]:
        """Return the scores of x and the values there; counts one value.

        The time counts as that of gradients: `value_and_gradient_of_scores` does the rest of their work.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        scores, values : ndarray
            Of a loss that has them: see `Loss.has_scores`.
        """
        started = self.costs.now()
        self.costs.values += 1
        scores = self.loss.scores(x)
        values = self.loss.value_of_scores(scores)
        self.costs.pace.gradient_seconds += self.costs.now() - started
        return scores, values

    def value_and_gradient_of_scores(self, scores: Array) -> tuple[Array, Array]:
        """Return values and gradients where the scores are these; counts one of each.

        Parameters
        ----------
        scores : ndarray
            A linear combination of what `scores` and `extrapolation` returned.

        Returns
        -------
        values, gradients : ndarray, shapes (m,) and (m, d)
            One of each per agent.
        """
        self.costs.values += 1
        return self._timed(self.loss.value_and_gradient_of_scores, scores)

    def extrapolation(self, x: Array, before: Array | None, theta: float) -> Extrapolation:
        """Return values at x, and values and gradients ahead; counts a gradient and a value for each point.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        before : ndarray or None
            The scores of other points; None if theta is 0.
        theta : float
            How far to extrapolate.

        Returns
        -------
        Extrapolation
            See `Loss.extrapolation`.
        """
        self.costs.values += 1 if theta == 0 else 2
        found = self._timed(self.loss.extrapolation, x, before, theta)
        if self.first_values is None:
            self.first_values = found.value
        return found

    def hessian(self, x: Array) -> Array:
        """Return the Hessians of all agents; counts one.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        ndarray, shape (m, d, d)
            Hessian of ft_i at x_i.
        """
        started = self.costs.now()
        self.costs.hessians += 1
        if self.timeline is not None:
            self.timeline.gradient()
        hessians = self.loss.hessian(x)
        self.costs.pace.quickest_hessian = min(self.costs.pace.quickest_hessian, self.costs.now() - started)
        require_shape(self.loss, "hessian", hessians, (*x.shape, x.shape[1]))
        return hessians

    def quadratic_part(self) -> list[Array | Sparse] | None:
        """Return the matrices of quadratic losses; counts one Hessian.

        Returns
        -------
        list of ndarray or scipy.sparse.csr_array, shape (d, d), or None
            See `Loss.quadratic_part`.
        """
        found = self.loss.quadratic_part()
        if found is not None:
            self.costs.hessians += 1
        return found

    def derivatives(self, x: Array) -> tuple[Array, Array, Array]:
        """Return values, gradients and Hessians in one evaluation; counts one of each.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.

        Returns
        -------
        values : ndarray, shape (m,)
            ft_i(x_i).
        gradients : ndarray, shape (m, d)
            The gradient of ft_i at x_i.
        hessians : ndarray, shape (m, d, d) or (1, d, d)
            Hessian of ft_i at x_i, or their sum: see `Loss.derivatives`.
        """
        if type(self.loss).derivatives is Loss.derivatives:
            # One after the other, so that it is known how long each takes.
            return *self.value_and_gradient(x), self.hessian(x)
        self.costs.values += 1
        self.costs.hessians += 1
        values, gradients, hessians = self._timed(self.loss.derivatives, x)
        if self.timeline is not None:
            self.timeline.gradient()
        require_shape(self.loss, "gradient", gradients, x.shape)
        require_shape(self.loss, "derivatives", hessians, (len(hessians), x.shape[1], x.shape[1]))
        if self.first_values is None:
            self.first_values = values
        return values, gradients, hessians

    def sampled_gradient(self, x: Array, start: int, count: int) -> Array:
        """Return the mean gradient of some samples of every agent; counts the samples.

        Parameters
        ----------
        x : ndarray, shape (m, d)
            One point per agent.
        start : int
            Number of the first sample.
        count : int
            How many samples per agent.

        Returns
        -------
        ndarray, shape (m, d)
            One estimate of the gradient per agent.

        Raises
        ------
        InputError
            If the method has no field `oracle`, so that there is no sampler.
        StreamError
            If a stream of samples failed.
        """
        sampler = self._given()
        if self.is_blank:
            return array_namespace(x).zeros_like(x)
        self.is_drawing = True
        samples = draw_together(lambda: sampler.draw(start, count), self.all_reduce)
        self.is_drawing = False
        gradient = sampler.gradient(x, samples)
        self.costs.samples += count
        if self.timeline is not None:
            self.timeline.samples(count)
        return gradient

    def draw_ahead(self, start: int, count: int) -> None:
        """Announce the next samples, so that they can be drawn while the network communicates.

        Parameters
        ----------
        start : int
            Number of the first sample.
        count : int
            How many samples per agent.
        """
        self._given().prepare(start, count)

    def wait_unless(self, give_up: Callable[[], bool]) -> None:
        """Set the function that says when to give up waiting for samples.

        Parameters
        ----------
        give_up : callable
            Takes no arguments; True ends the wait.
        """
        if self.sampler is not None:
            self.sampler.give_up = give_up

    def close(self) -> None:
        """Close the sampler."""
        if self.sampler is not None:
            self.sampler.close()
            # It knows the run, which knows this oracle.
            self.sampler.give_up = Sampler.give_up

    def _timed(self, gradients: Callable[..., _Result], *arguments: object, count: int = 1) -> _Result:
        """Call a function that computes so many gradients; count them and measure the pace."""
        costs = self.costs
        started = costs.now()
        costs.gradients += count
        if self.timeline is not None:
            self.timeline.gradient(count)
        result = gradients(*arguments)
        seconds = costs.now() - started
        costs.pace.gradients += count
        for _ in range(count):
            costs.pace.gradient_seconds += seconds / count
        costs.pace.quickest_gradient = min(costs.pace.quickest_gradient, seconds / count)
        return result

    def _given(self) -> Sampler:
        if self.sampler is None:
            raise InputError("a method that samples needs a field `oracle`", "none", "gs.oracles.WithReplacement()")
        return self.sampler


_Samples = TypeVar("_Samples")
Trouble = StreamEnded | WaitEnded | StreamError
# What went wrong, in front of the number of the agent.
_ENDED, _WAITED, _FAILED = (kind << 40 for kind in (1, 2, 3))


def draw_together(draw: Callable[[], _Samples], all_reduce: Callable[[int], int]) -> _Samples:
    """Return the result of `draw`, or raise the same error in all processes where one failed."""
    troubles: list[Trouble] = []
    try:
        samples = draw()
    except (StreamEnded, WaitEnded, StreamError) as error:
        troubles.append(error)
    own = _code(troubles)
    worst = all_reduce(own)
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
