"""Which statuses say that a run did what was asked: exit code 0 of the command line."""

import numpy as np
import pytest

import gradslide as gs
from gradslide import Status

REACHED = {Status.CONVERGED, Status.STATIONARY, Status.FEASIBLE}
FAILED = {
    Status.INTERRUPTED,
    Status.STREAM_FAILED,
    Status.INFEASIBLE,
    Status.UNBOUNDED,
    Status.CONTRADICTORY,
    Status.DIVERGED,
}


@pytest.mark.parametrize("status", Status)
def test_what_was_asked_is_done(status):
    assert status.fulfils(has_targets=True) == (status in REACHED)
    assert status.fulfils(has_targets=False) == (status not in FAILED)


def test_a_run_without_targets_that_finds_no_answer_does_not_do_what_was_asked():
    apart = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(1), [0.0]), [[1.0], [1.0]], [0.0, 5.0])
    solution = gs.solve(apart, stop=gs.Stop(iterations=5000))
    assert solution.status is Status.INFEASIBLE
    assert not solution.status.fulfils(has_targets=False)
