"""Auto mode with late sums: when the agents roll back, where to, and what they keep."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from auto_twins import BALL, GRAPHS, followed, hard_problem
from problems import least_squares, logistic

import gradslide as gs
from gradslide.methods.gossip.inner import Shared
from gradslide.methods.gossip.rules import Findings, Rules, late_L, learn, restart
from gradslide.methods.gossip.state import Progress, Smoothness
from gradslide.methods.gossip.sums import Sums
from gradslide.network.wrapper import Wrapper


def first_rollback(states):
    """The first state after a rollback that was not followed by a restart."""
    later = itertools.pairwise(states)
    generations = [before.late.generation < now.late.generation and now.iterate.k > 0 for before, now in later]
    return 1 + generations.index(True)


def test_it_rolls_back_without_restarts_too():
    problem, graph = hard_problem(None, logistic, 12, mu=0.3), GRAPHS["ring"]
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="late", restarts=False), 60)
    back = [n for n in range(1, 60) if states[n].iterate.k <= states[n - 1].iterate.k]
    assert back
    assert all(states[n].iterate.k > 0 for n in back)
    assert states[-1].epoch == 0


def test_there_are_two_snapshots_at_most_and_one_is_old_enough():
    problem, graph = hard_problem(None, logistic, 12), GRAPHS["ring"]
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="late"), 60)
    replaced = 0
    for before, now in itertools.pairwise(states):
        snapshots, unknown = [each.k for each in now.late.snapshots], [now.iterate.k + 1]
        unknown += [k for generation, k in now.late.outstanding if generation == now.late.generation]
        assert len(snapshots) <= 2
        assert not snapshots or snapshots[0] < min(unknown)
        replaced += [each.k for each in before.late.snapshots[1:]] == snapshots[:1] != []
    assert replaced


class InHandfuls(Wrapper):
    """Sums wait for each other, and come four at a time."""

    def __init__(self, network):
        super().__init__(network)
        self._waiting = []

    def completed(self, reduction=None, channel=""):
        self._waiting += super().completed(reduction, channel)
        come, self._waiting = (self._waiting, []) if len(self._waiting) >= 4 else ([], self._waiting)
        return come


def test_of_several_jumps_at_once_the_first_counts():
    problem, graph = hard_problem(None, logistic, 12), GRAPHS["ring"]
    L = 1e-3 * float(np.max(problem.smoothness()))
    states, _ = followed(problem, InHandfuls(gs.network.Local(graph)), gs.AutoPDS(agreement="late", first_L=L), 20)
    back = next(n for n, state in enumerate(states) if state.epoch == 1)

    np.testing.assert_array_equal(states[back].iterate.x_bar, problem.start())


def test_five_sums_that_let_L_fall_make_an_end_of_what_was_before():
    rules, found = Rules(), Smoothness(10.0)
    for n in range(12):
        if n in (5, 11):
            low = found.L
            found = late_L(found, rules, 2 * low, k=n, delay=1)
            # Four falls in between are not enough to speak of another beginning.
            assert (found.failed_at, found.edge) == (n, 2 * low)
            continue
        found = late_L(found, rules, 0.0, k=n, delay=1)
        assert found.failed_at == (5 if 5 < n < 10 else 0)


def test_nothing_is_known_too_small_before_it_has_fallen_five_times():
    rules, found = Rules(), Smoothness(10.0)
    for n in range(4):
        found = late_L(found, rules, 0.0, k=n + 1, delay=1)
    found = late_L(found, rules, 2 * found.L, k=5, delay=1)
    assert (found.failed_at, found.edge, found.falls, found.has_risen) == (0, 0.0, 0, True)


def completed_sums(L_r, lagrangian=1.0, before=2.0):
    """Sums that show this curvature, and a Lagrangian that fell from 2 to 1."""
    return Sums(L_r / 2, 1.0, 1.0, lagrangian, before, 0.25, 0.0, 0.25, 0.0)


def test_a_completed_sum_of_an_older_generation_changes_L_only():
    first = Findings(Smoothness(10.0), Progress(lagrangian=5.0))
    found = learn(first, completed_sums(20.0, 9.0), Shared(True), Rules(), k=None, total=9, delay=1)
    assert found._replace(smoothness=None) == first._replace(smoothness=None)
    assert found.smoothness == first.smoothness._replace(L=24.0, has_risen=True, has_risen_now=True)


def test_completed_sums_tell_of_the_first_jump_and_of_the_end():
    found = Findings(Smoothness(10.0), Progress())
    for k, (lagrangian, ends, unstable_at) in enumerate([(1.0, False, 0), (2.01, True, 0), (9.0, True, 3)], 1):
        found = learn(found, completed_sums(5.0, lagrangian), Shared(True), Rules(), k=k, total=9, delay=1)
        assert (found.ends, found.unstable_at) == (ends, unstable_at)
    assert (found.progress.error, found.progress.lagrangian) == (0.5, 9.0)
    # A later jump does not count, and a curvature that rounding hides leaves L as it is.
    hidden = completed_sums(50.0, 9.0)._replace(magnitude=1e15)
    again = learn(found, hidden, Shared(True), Rules(), k=4, total=9, delay=1)
    assert (again.unstable_at, again.smoothness) == (3, found.smoothness)
    overflowed = learn(found, hidden._replace(magnitude=math.inf), Shared(True), Rules(), k=4, total=9, delay=1)
    assert overflowed.smoothness.L == 4 * found.smoothness.L


@pytest.mark.parametrize("restarts", [True, False])
def test_a_run_resumes_after_a_rollback_to_the_bit(restarts, tmp_path):
    problem, graph = hard_problem(None, logistic, 12, 0.3), GRAPHS["ring"]
    method = gs.AutoPDS(agreement="late", restarts=restarts)
    states, whole = followed(problem, graph, method, 60)
    back = first_rollback(states)
    for iterations in (back, back + 1, back + 2, 60):
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, method, stop=stop, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(part.x, whole.x)
    assert part.parameters == whole.parameters


def test_what_was_too_small_long_ago_is_forgotten():
    problem, graph = hard_problem(BALL, least_squares, 12, 0.3), GRAPHS["ring"]
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="late", restarts=False), 400, record_every=400)
    assert max(state.iterate.k - state.late.snapshots[0].k for state in states if state.late.snapshots) < 60


def test_sums_that_come_late_from_the_middle_of_an_epoch_on():
    """balance="measure" may find that waiting for sums is not worth it."""
    rng = np.random.default_rng(9)
    A, b = rng.normal(size=(18, 4)) * np.geomspace(1, 30, 4), rng.normal(size=18)
    problem = gs.Problem(gs.losses.Logistic(A, np.where(A @ rng.normal(size=4) * 0.1 + b > 0, 1, -1), agents=3))
    L = 0.05 * float(np.max(problem.smoothness()))
    method, clock = gs.AutoPDS(K=5, balance="measure", L=L), gs.Clock(gradient=1e-4, latency=1e-2)
    states, _ = followed(problem, gs.Graph.path(3), method, 40, clock=clock)
    assert any(state.iterate.k > 3 and (state.late.outstanding or state.unfinished) for state in states)


@pytest.mark.parametrize("beyond", [np.nan, np.inf])
def test_values_that_overflow_raise_L_late_too(beyond):
    centres = np.random.default_rng(0).normal(size=(12, 3))

    def value(x):
        far = np.abs(x).max(axis=1) >= 100
        return np.where(far, beyond, np.sum(np.sqrt(1 + (x - centres) ** 2), axis=1))

    loss = gs.losses.Custom(
        value=value, gradient=lambda x: (x - centres) / np.sqrt(1 + (x - centres) ** 2), agents=12, dimension=3
    )
    answers = []
    for agreement in ("exact", "late"):
        method = gs.AutoPDS(agreement=agreement, first_L=1e-3)
        with np.errstate(invalid="ignore"):
            answers.append(followed(gs.Problem(loss), gs.Graph.ring(12), method, 200, record_every=200)[1].x)
    np.testing.assert_allclose(answers[1], answers[0], atol=1e-6)


def test_a_restart_forgets_that_L_was_too_small():
    problem, graph = hard_problem(None, logistic, 12), GRAPHS["ring"]
    state = followed(problem, graph, gs.AutoPDS(), 12)[0][-1]
    state = replace(state, smoothness=state.smoothness._replace(failed_at=7))
    after = restart(state, Shared(True), Rules())
    assert (after.smoothness.failed_at, after.late.snapshots, after.iterate.k) == (0, (), 0)


def test_a_rollback_restores_the_iterate():
    problem, graph = hard_problem(None, logistic, 12, 0.3), GRAPHS["ring"]
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="late"), 60)
    back = first_rollback(states)
    now, before = states[back], states[back - 1]
    there = next(s for s in states if (s.iterate.k, s.late.generation) == (now.iterate.k, before.late.generation))
    assert now.epoch == before.epoch
    for name in ("P", "S", "b", "x", "x_bar", "last", "value_bar", "scores", "scores_before", "Cx_bar", "dual"):
        np.testing.assert_array_equal(getattr(now.iterate, name), getattr(there.iterate, name), err_msg=name)
    # Averages stay: discarded iterations, too, are evidence for a lower bound.
    w_bar = now.iterate.averages.dual_bar.w
    assert not np.array_equal(w_bar, there.iterate.averages.dual_bar.w)
    np.testing.assert_allclose(w_bar.sum(axis=0), 0.0, atol=1e-11 * (1 + np.abs(w_bar).max()))
    assert [point.k for point in now.late.snapshots] == [now.iterate.k]
    assert (math.isnan(now.progress.lagrangian), now.progress.changes, now.smoothness.failed_at) == (True, (), 0)
