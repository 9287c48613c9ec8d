"""The last steps of a method, which are taken once."""

import signal

import numpy as np
import pytest
from certificate_cases import FREE, RING, Mixer, MixState, spent

import gradslide as gs


def test_a_method_may_finish_its_answer(tmp_path):
    problem, path = FREE, tmp_path / "run.npz"
    seen = []
    solution = gs.solve(
        problem,
        RING,
        Mixer(),
        stop=gs.Stop(iterations=5),
        checkpoint=path,
        callback=lambda record, x: seen.append(record.disagreement),
    )
    assert solution.status is gs.Status.ITERATION_LIMIT
    np.testing.assert_allclose(solution.x, np.tile(np.arange(18.0).reshape(6, 3).mean(axis=0), (6, 1)))
    last = solution.history[-1]
    assert [record.iteration for record in solution.history] == [1, 2, 3, 4, 5]
    assert seen[-1] > 0.1
    assert last.disagreement < 1e-12
    assert last.control_rounds == solution.costs.control_rounds == 6
    assert solution.history[-2].control_rounds == 0
    # What goes on later has not been finished.
    again = gs.solve(problem, RING, Mixer(), stop=gs.Stop(iterations=5), checkpoint=path)
    assert spent(again.costs) == spent(solution.costs)
    longer = gs.solve(problem, RING, Mixer(), stop=gs.Stop(iterations=9), checkpoint=path)
    whole = gs.solve(problem, RING, Mixer(), stop=gs.Stop(iterations=9))
    np.testing.assert_array_equal(longer.x, whole.x)
    assert spent(longer.costs) == spent(whole.costs)
    assert [r.disagreement for r in longer.history] == [r.disagreement for r in whole.history]


@pytest.mark.parametrize(
    ("options", "status", "finished"),
    [
        ({"stop": gs.Stop(disagreement=0.5)}, gs.Status.CONVERGED, True),
        ({"stop": gs.Stop(rounds=4)}, gs.Status.ROUND_LIMIT, True),
        ({"stop": gs.Stop(rounds=9), "callback": lambda record, x: record.iteration == 3}, gs.Status.STOPPED, True),
    ],
)
def test_whatever_ends_a_run_it_is_finished_once(options, status, finished):
    solution = gs.solve(FREE, RING, Mixer(), **options)
    assert solution.status is status
    assert (solution.history[-1].disagreement < 1e-12) is finished


def test_what_was_torn_or_diverged_is_not_finished():
    class Explodes(Mixer):
        def step(self, context, state):
            return MixState(1e200 * state.x)

    assert gs.solve(FREE, RING, Explodes(), stop=gs.Stop(iterations=9)).status is gs.Status.DIVERGED

    class Interrupted(Mixer):
        def step(self, context, state):
            raise KeyboardInterrupt

    solution = gs.solve(FREE, RING, Interrupted(), stop=gs.Stop(iterations=9))
    assert solution.status is gs.Status.INTERRUPTED
    assert solution.costs.control_rounds == 0


def test_who_presses_ctrl_c_does_not_wait_for_the_last_steps():
    stop = gs.Stop(iterations=9, kkt=1e-9)
    solution = gs.solve(FREE, RING, Mixer(), stop=stop, callback=lambda record, x: signal.raise_signal(signal.SIGINT))
    assert solution.status is gs.Status.INTERRUPTED
    assert solution.history[-1].iteration == 1
    assert solution.costs.control_rounds == 0


def test_an_interrupt_in_the_last_steps_leaves_what_was_there():
    class Interrupted(Mixer):
        def finish(self, context, state):
            raise KeyboardInterrupt

    solution = gs.solve(FREE, RING, Interrupted(), stop=gs.Stop(iterations=4))
    assert solution.status is gs.Status.INTERRUPTED
    assert np.ptp(solution.x[:, 0]) > 0.1
