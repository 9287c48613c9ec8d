"""How a run ended."""

from enum import Enum


class Status(Enum):
    """How a run ended; the value says it in words.

    Reaching the targets (`CONVERGED`; `STATIONARY` or `FEASIBLE` if they say less about the
    objective), doing all iterations of a schedule (`COMPLETED`), reaching a limit (``*_LIMIT``),
    being stopped, and failing are different statuses.

    Examples
    --------
    >>> import gradslide as gs
    >>> gs.Status.ITERATION_LIMIT.value
    'the limit on outer iterations was reached'
    """

    CONVERGED = "every target was reached"
    STATIONARY = "the residuals of the optimality conditions fell to their target; the objective's error is not known"
    FEASIBLE = "every target was reached, but none of them says that the answer is optimal"
    COMPLETED = "all outer iterations of the method's schedule were done"
    ITERATION_LIMIT = "the limit on outer iterations was reached"
    GRADIENT_LIMIT = "the limit on gradients was reached"
    SAMPLE_LIMIT = "the limit on samples was reached"
    ROUND_LIMIT = "the limit on communication rounds was reached"
    PRODUCT_LIMIT = "the limit on operator products was reached"
    TIME_LIMIT = "the time limit was reached"
    STALLED = "further steps would only change rounding errors; this is the best point"
    STOPPED = "the callback asked to stop"
    INTERRUPTED = "interrupted from the keyboard; this is what had been reached"
    STREAM_ENDED = "a stream of samples ended; this is what had been reached"
    STREAM_FAILED = "a stream of samples failed; this is what had been reached"
    INFEASIBLE = "the constraints contradict each other: no point fulfils all of them"
    UNBOUNDED = "the objective falls without end along a direction that the constraints allow"
    CONTRADICTORY = "values, gradients or bounds contradict each other: the loss is not convex, or its gradient wrong"
    DIVERGED = "values grew out of all bounds; this is the last output that was finite"

    def fulfils(self, has_targets: bool) -> bool:
        """Return whether a run did what was asked: reached its targets, or its end if it had none.

        The end is a limit, that of a stream, or where the callback asked to stop. A run that found
        no answer, failed or was interrupted did not do it.

        Parameters
        ----------
        has_targets : bool
            Whether the run had targets.
        """
        return self in (REACHED if has_targets else ENDS)

    @property
    def short(self) -> str:
        """The name in lower case, for tables."""
        return self.name.lower().replace("_", " ")


# Every target was reached.
REACHED = {Status.CONVERGED, Status.STATIONARY, Status.FEASIBLE}
# Limits: a run that ends at one may have reached its targets all the same.
LIMITS = {status for status in Status if status.name.endswith("_LIMIT")} | {Status.COMPLETED, Status.STALLED}
# How a run ends by itself, with an answer that is worth finishing.
ENDS = LIMITS | REACHED | {Status.STOPPED, Status.STREAM_ENDED}
