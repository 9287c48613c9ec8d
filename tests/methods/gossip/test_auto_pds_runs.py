"""Auto mode: how a run goes on, in any precision, from any start, to its last steps."""

import dataclasses
import math

import numpy as np
import pytest
from auto_twins import AGREEMENTS, BALL, BOXES, COMMON_BOX, GRAPHS, KINDS, Net, followed, hard_problem, solved
from baselines import check_lone_agent, check_warm_start, own_starts, small_problem, stepped_twice
from paper_twins import iterates
from problems import least_squares, logistic

import gradslide as gs
from gradslide.theory.reference import reference


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(
    ("domain", "inner"),
    [(None, "shared"), (BALL, "shared"), (BOXES, "own"), (gs.domains.EntropySimplex(), "sliding"), (None, "sliding")],
)
def test_a_run_goes_on_from_a_checkpoint_to_the_bit(domain, inner, agreement, tmp_path):
    problem, graph = small_problem(1, domain, 0.05), gs.Graph.ring(7)
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    states, whole = followed(problem, graph, method, 45)
    # Sums are on their way where runs end: six exchanges take them everywhere.
    waiting = [states[k - 1].late.outstanding or states[k - 1].unfinished for k in (1, 9, 10, 32)]
    assert agreement != "late" or inner == "sliding" or all(waiting)
    for iterations in (1, 9, 10, 32, 45):
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, method, stop=stop, checkpoint=tmp_path / "run.npz")
    for name, x in whole.outputs.items():
        np.testing.assert_array_equal(part.outputs[name], x)
    np.testing.assert_array_equal(part.dual, whole.dual)
    assert dataclasses.replace(part.costs, seconds=0.0) == dataclasses.replace(whole.costs, seconds=0.0)
    assert part.parameters == whole.parameters
    assert [r.control_rounds for r in part.history] == [r.control_rounds for r in whole.history]


def test_a_rollback_survives_a_checkpoint(tmp_path):
    """The points to go back to are part of it."""
    problem, graph = hard_problem(None, logistic, 12), GRAPHS["ring"]
    L = 1e-3 * float(np.max(problem.smoothness()))
    method = gs.AutoPDS(first_L=L)
    states, whole = followed(problem, graph, method, 20)
    first = next(n for n, state in enumerate(states) if state.epoch == 1)
    assert np.linalg.norm(states[first].iterate.x_bar) < 0.1 * np.linalg.norm(states[first - 1].iterate.x_bar)
    for iterations in (first - 1, first, 20):
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, method, stop=stop, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(part.x, whole.x)


def test_sums_may_be_waited_for_from_a_restart_on():
    """K grew, so that waiting costs little: what the last late iteration left to the next one is still missing."""
    m, rng = 8, np.random.default_rng(34)
    features = rng.normal(size=(6 * m, 4)) * np.logspace(0, 1, 4) + 3 * np.repeat(rng.normal(size=(m, 4)), 6, axis=0)
    problem = gs.Problem(gs.losses.Huber(features, 10 * rng.normal(size=6 * m), agents=m))
    states, solution = followed(problem, gs.Graph.star(m), gs.AutoPDS(balance=3), 100)
    last = max(n for n, state in enumerate(states) if state.iterate.value_bar is None)
    assert states[last].iterate.k == 0
    # The first test failed.
    assert states[last + 1].smoothness.L > states[last].smoothness.L
    # The repetition took the gradient at hand.
    assert solution.costs.gradients < len(states) + 10
    optimum = reference(problem).objective
    assert problem.objective(solution.x).sum() - optimum < 1e-6 * optimum


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_run_in_single_precision_goes_on_where_scores_are_unknown(is_compiled, tmp_path):
    """Compiled losses have scores there, others do not: which they are may depend on the processes."""
    rng, graph = np.random.default_rng(1), gs.Graph.path(20)
    features, targets = rng.normal(size=(200, 5)).astype(np.float32), rng.normal(size=200).astype(np.float32)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=20))
    for iterations in (10, 300):
        problem.loss.compiled = is_compiled == (iterations == 10)
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, gs.AutoPDS(), stop=stop, checkpoint=tmp_path / "run.npz")
    problem.loss.compiled = is_compiled
    whole = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=300))
    np.testing.assert_allclose(part.x, whole.x, rtol=1e-3, atol=1e-3)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(
    ("domain", "inner"), [(None, "shared"), (BALL, "shared"), (BOXES, "own"), (gs.domains.EntropySimplex(), "sliding")]
)
def test_single_precision_stays(domain, inner, agreement):
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(21, 3)).astype(np.float32), rng.normal(size=21).astype(np.float32)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=7), domain, 0.1)
    values = np.linalg.eigvalsh(gs.Graph.star(7).laplacian.toarray())
    own = {"R": np.float64(0.5)} if inner == "sliding" else {"K": np.int64(2)}
    spectrum = {} if inner == "sliding" else {"spectrum": tuple(values[[1, 6]])}
    for given in ({}, {"L": np.float64(9.0), "balance": np.float64(2.0), **own}, spectrum):
        method = gs.AutoPDS(agreement=agreement, **given)
        states, solution = followed(problem, gs.Graph.star(7), method, 25, record_every=25)
        for state in states:
            iterate, gradient, smoothness = state.iterate, state.gradient, state.smoothness
            arrays = [gradient.x_under, gradient.y, iterate.averages.y_bar, state.sliding.x_before]
            arrays += [iterate.x, iterate.x_bar, iterate.last, iterate.Cx_bar]
            arrays += [iterate.dual.w, iterate.averages.dual_bar.w]
            assert [array.dtype for array in arrays] == [np.float32] * 10
            numbers = (smoothness.L, iterate.P, iterate.S, smoothness.slack)
            assert all(type(number) is float for number in numbers)
        assert solution.x.dtype == solution.dual.dtype == np.float32
    double = gs.Problem(gs.losses.LeastSquares(features.astype(float), targets.astype(float), agents=7), domain, 0.1)
    if agreement != "none":
        method = gs.AutoPDS(agreement=agreement)
        last = gs.solve(problem, gs.Graph.star(7), method, stop=gs.Stop(iterations=150), record_every=150).history[-1]
        optimum = reference(double if domain is not BOXES else gs.Problem(double.loss, COMMON_BOX, 0.1))
        assert last.objective == pytest.approx(optimum.objective, rel=1e-4)


@pytest.mark.covering
@pytest.mark.parametrize("inner", ["shared", "own", "sliding"])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_the_first_L_is_found_far_from_0_in_single_precision(agreement, inner):
    """Neighbours of 1e5 differ by 1/128 in float32: a probe of fixed length would not move."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(30, 3)).astype(np.float32), rng.normal(size=30).astype(np.float32)
    problem, graph = gs.Problem(gs.losses.LeastSquares(features, targets, agents=6)), gs.Graph.ring(6)
    x0 = np.full((6, 3), 1e5, dtype=np.float32)
    states, solution = followed(problem, graph, gs.AutoPDS(agreement=agreement, inner=inner), 400, x0=x0)
    needed = float(np.max(problem.smoothness()))
    assert all(needed / 10 < state.smoothness.L < 10 * needed for state in states[:5])
    assert solution.x.dtype == np.float32
    optimum = np.linalg.lstsq(features.astype(float), targets.astype(float), rcond=None)[0]
    # Of the way from x0: less than that is rounding, of multipliers as large as the first gradients too.
    assert np.abs(solution.x - optimum).max() < (1e-5 if agreement == "none" else 5e-7) * 1e5


def test_a_step_from_a_copy_of_a_state_is_the_same_step():
    for domain in (None, BALL, BOXES, gs.domains.EntropySimplex()):
        problem = small_problem(0, domain, 0.1)
        for first, again in stepped_twice(problem, gs.Graph.ring(7), gs.AutoPDS(agreement="exact"), 20):
            np.testing.assert_array_equal(first.iterate.x_bar, again.iterate.x_bar)
            np.testing.assert_array_equal(first.iterate.dual.w, again.iterate.dual.w)
            assert (first.smoothness.L, first.tuning.K, first.total) == (
                again.smoothness.L,
                again.tuning.K,
                again.total,
            )


@pytest.mark.first(2)
@pytest.mark.parametrize(("domain", "inner"), [(None, "shared"), (BALL, "shared"), (None, "own"), (BALL, "sliding")])
def test_multipliers_of_an_earlier_solution_are_worth_having(domain, inner):
    problem, graph = small_problem(3, domain, 0.3), gs.Graph.random(7, 3, seed=2)
    check_warm_start(problem, graph, gs.AutoPDS(agreement="exact", inner=inner), 500)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("domain", [None, BALL, BOXES], ids=["free", "ball", "boxes"])
def test_it_starts_anywhere(domain, agreement):
    problem, graph = small_problem(1, domain, 0.1), gs.Graph.random(7, 3, seed=2)
    same = small_problem(1, COMMON_BOX if domain is BOXES else domain, 0.1)
    optimum = reference(same).objective
    for x0 in (own_starts(problem), problem.domain.project(np.full((7, 3), 2.0))):
        solved(problem, graph, gs.AutoPDS(agreement=agreement), optimum, disagreement=1e-4, x0=x0)
    states, _ = followed(problem, graph, gs.AutoPDS(agreement=agreement, L=1e9), 1, x0=own_starts(problem))
    np.testing.assert_allclose(states[0].gradient.reach, np.linalg.norm(own_starts(problem), axis=1))


@pytest.mark.covering
@pytest.mark.parametrize("inner", [None, "own", "sliding"])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_one_agent_or_two(agreement, inner):
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    check_lone_agent(method)
    check_lone_agent(method, domain=gs.domains.L2Ball(0.2))
    problem = small_problem(4, None, 0.1, least_squares, 2)
    solved(problem, gs.Graph.path(2), method, reference(problem).objective)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("domain", [None, BALL, BOXES, gs.domains.EntropySimplex()])
def test_a_loss_without_values_will_do(domain, agreement):
    """Curvature and Lagrangian then follow from gradients."""
    known = small_problem(5, domain, 0.1, logistic)
    loss = gs.losses.Custom(gradient=known.loss.gradient, agents=7, dimension=3)
    problem, graph = gs.Problem(loss, domain, 0.1), gs.Graph.random(7, 3, seed=2)
    method = gs.AutoPDS(agreement=agreement)
    iterations = 200 if domain is not None and domain.norm == 1 else 600 if agreement == "none" else 300
    states, solution = followed(problem, graph, method, iterations, record_every=iterations)
    optimum = reference(small_problem(5, COMMON_BOX if domain is BOXES else domain, 0.1, logistic))
    assert np.abs(solution.x - optimum.x).max() < 1e-4
    assert solution.costs.values == 0
    assert solution.costs.gradients == iterations + 1
    assert max(state.smoothness.L for state in states) < 5 * (float(np.max(known.smoothness())) + 0.1)


@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_nothing_moves_where_all_gradients_are_zero(agreement):
    for domain in (None, BALL, BOXES):
        problem = gs.Problem(gs.losses.Quadratic(np.tile(np.eye(3), (7, 1, 1)), np.zeros((7, 3))), domain)
        solution = gs.solve(problem, gs.Graph.ring(7), gs.AutoPDS(agreement=agreement), stop=gs.Stop(iterations=60))
        assert np.all(solution.x == 0)
        assert solution.parameters["L"] == 1.0
        # No agent knows of the others that they have nothing to find L from.
        assert solution.costs.gradients == 61


@pytest.mark.first(2)
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_linear_losses_over_a_ball(agreement):
    c = np.random.default_rng(2).normal(size=(7, 3))
    answer = -0.4 * c.sum(axis=0) / np.linalg.norm(c.sum(axis=0))
    for domain in (
        gs.domains.L2Ball(0.4),
        gs.domains.PerAgent([gs.domains.L2Ball(0.4)] * 6 + [gs.domains.L2Ball(0.5)]),
    ):
        problem = gs.Problem(gs.losses.Linear(c), domain)
        method = gs.AutoPDS(agreement=agreement)
        solution = gs.solve(problem, gs.Graph.ring(7), method, stop=gs.Stop(iterations=600), record_every=600)
        assert np.abs(solution.x - answer).max() < 1e-3
        assert math.isfinite(solution.parameters["L"])


def test_outputs_and_multipliers_go_together():
    problem, graph = small_problem(3, BOXES, 0.1), gs.Graph.ring(7)
    method = gs.AutoPDS(agreement="exact")
    for state in iterates(problem, graph, method, gs.Stop(iterations=40)):
        outputs, duals = method.output(state), method.dual(state)
        assert list(outputs) == list(duals) == ["best", "average", "last"]
        better = "last" if state.progress.last_is_better else "average"
        assert outputs["best"] is outputs[better]
        assert duals["best"] is duals[better]
    shared = iterates(small_problem(3), graph, method, gs.Stop(iterations=1))[0]
    assert list(method.output(shared)) == list(method.dual(shared)) == ["average", "last"]


@pytest.mark.parametrize("name", ["ring", "star"])
@pytest.mark.parametrize("kind", ["free", "ball"])
def test_the_answers_are_mixed_at_the_end_and_stay_in_X(kind, name):
    graph, net = GRAPHS[name], Net(GRAPHS[name])
    problem = hard_problem(KINDS[kind][0], logistic, graph.m)
    if kind == "ball":
        # So small that all are at its boundary, which mixing would cross.
        problem = hard_problem(gs.domains.L2Ball(0.3), logistic, graph.m)
    states, solution = followed(problem, graph, gs.AutoPDS(), 6 if kind == "ball" else 20)
    mean = np.sum(net.D * states[-1].iterate.x_bar, axis=0) / net.D.sum()
    if kind == "free":
        np.testing.assert_allclose(np.sum(net.D * solution.x, axis=0) / net.D.sum(), mean, rtol=1e-10)
    disagreement = [np.linalg.norm(x - x.mean(axis=0)) for x in (states[-1].iterate.x_bar, solution.x)]
    assert disagreement[1] < 0.1 * disagreement[0]
    assert kind == "free" or np.linalg.norm(solution.x, axis=1).max() <= 0.3 * (1 + 1e-12)
