"""Auto mode: where it ends."""

import numpy as np
import pytest
from auto_twins import AGREEMENTS, BALL, BOXES, COMMON_BOX, followed, solved
from baselines import check_unlike_domains, small_problem
from problems import least_squares, logistic, random_case

import gradslide as gs
from gradslide.theory.reference import reference


@pytest.mark.covering
@pytest.mark.parametrize("seed", [3, 4, 5, 9, 10, 16, 18, 21, 22, 25, 26, 28, 33])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_it_finds_the_optimum(agreement, seed):
    """All losses, sets, penalties, centres, ridges, entropy too, on all kinds of graphs."""
    case = random_case(seed, mu=0.1 * (seed % 2))
    solved(case.problem, case.graph, gs.AutoPDS(agreement=agreement), case.reference.objective)


@pytest.mark.first(2)
@pytest.mark.parametrize(("agreement", "iterations"), [("exact", 350), ("late", 350), ("none", 1100)])
def test_agents_with_sets_of_their_own_end_at_the_optimum_over_all_of_them(agreement, iterations):
    check_unlike_domains(gs.AutoPDS(agreement=agreement), iterations)


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize("inner", ["own", "sliding"])
def test_any_inner_loop_may_be_asked_for(inner, agreement):
    problem = small_problem(6, gs.domains.L2Ball(0.5), 0.05)
    method = gs.AutoPDS(agreement=agreement, inner=inner)
    solution = solved(problem, gs.Graph.random(7, 3, seed=2), method, reference(problem).objective)
    assert solution.output == "best"
    assert set(solution.outputs) == {"best", "average", "last"}
    assert solution.parameters["R"] > 0


@pytest.mark.parametrize("agreement", ["exact", "late"])
def test_the_curvature_that_rounding_hides_is_not_taken_for_one(agreement):
    """Sets of their own, far past the accuracy that doubles allow."""
    problem = small_problem(5, BOXES, 0.1)
    method, graph = gs.AutoPDS(agreement=agreement), gs.Graph.random(7, 3, seed=2)
    states, solution = followed(problem, graph, method, 500, record_every=500)
    needed = float(np.max(problem.smoothness())) + problem.mu
    R = max(state.tuning.R for state in states)
    assert max(max(state.smoothness.L, state.iterate.P) for state in states) <= 1.25 * R * needed
    assert np.abs(states[-1].iterate.dual.w.sum(axis=0)).max() < 1e-12
    assert solution.warnings == ()
    # One gradient per iteration and the probe: nothing is done again for what rounding does to a test.
    assert solution.costs.gradients <= 515


def test_a_sum_that_fits_exactly_is_followed_to_the_last_digit():
    """f* = 0: a tolerance relative to f says nothing there."""
    rng = np.random.default_rng(0)
    features, x = rng.normal(size=(24, 3)), rng.normal(size=3)
    problem = gs.Problem(gs.losses.LeastSquares(features, features @ x, agents=8))
    for agreement in ("exact", "late"):
        method = gs.AutoPDS(agreement=agreement)
        solution = gs.solve(problem, gs.Graph.ring(8), method, stop=gs.Stop(iterations=400), record_every=400)
        assert np.abs(solution.x - x).max() < 1e-8
        assert solution.costs.gradients < 500


def ridge_problem(m, condition=1e4):
    """Least squares whose sum has this condition number, nearly."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(10 * m, 12)) * np.geomspace(1, 1e-3, 12), rng.normal(size=10 * m)
    largest = float(np.linalg.eigvalsh(features.T @ features)[-1])
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=m), mu=largest / condition / m)
    values = np.linalg.eigvalsh(features.T @ features + m * problem.mu * np.eye(12))
    assert values[-1] / values[0] > 0.95 * condition
    return problem


@pytest.mark.filterwarnings("ignore:columns .* differ in scale:RuntimeWarning")
@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("agreement", "graph", "iterations"),
    [
        ("exact", gs.Graph.ring(8), 1500),
        ("exact", gs.Graph.star(9), 1500),
        ("late", gs.Graph.star(9), 3000),
    ],
    ids=["exact ring", "exact star", "late star"],
)
def test_a_ridge_problem_of_condition_10000_is_solved(agreement, graph, iterations):
    problem = ridge_problem(graph.m)
    method, optimum = gs.AutoPDS(agreement=agreement), reference(problem).objective
    solved(problem, graph, method, optimum, disagreement=1e-6, iterations=iterations)


@pytest.mark.parametrize("mu", [1e2, 1e5])
def test_a_ridge_far_above_the_losses_is_seen_at_once(mu):
    problem, graph = small_problem(3, None, mu), gs.Graph.ring(7)
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="late"), 60, record_every=60)
    length = np.linalg.norm(reference(problem).x)
    assert all(np.linalg.norm(state.iterate.x_bar, axis=1).max() < 10 * length for state in states)
    assert states[0].smoothness.L >= 0.9 * mu


@pytest.mark.covering
@pytest.mark.parametrize("name", ["complete", "ring", "star"])
@pytest.mark.parametrize("make_loss", [logistic, least_squares], ids=lambda make: make.__name__)
def test_a_wrong_first_guess_costs_few_gradients(make_loss, name):
    """With exchanges enough, so that only L is at stake; to 1e-4 and to 1e-6."""
    graph = {"complete": gs.Graph.complete(8), "ring": gs.Graph.ring(8), "star": gs.Graph.star(9)}[name]
    problem = small_problem(1, None, 0.05, make_loss, graph.m, 4)
    L, optimum = float(np.max(problem.smoothness())) + problem.mu, reference(problem).objective
    for tolerance in (1e-4, 1e-6):

        def gradients(share, tolerance=tolerance):
            method = gs.AutoPDS(agreement="exact", K=6, first_L=share * L)
            stop = gs.Stop(objective=gs.Relative(tolerance, to=optimum), disagreement=gs.Relative(tolerance))
            return gs.solve(problem, graph, method, stop=stop).costs.gradients

        right = gradients(1.0)
        for share in (1e-3, 1e-2, 1e-1, 1e1, 1e2, 1e3):
            assert gradients(share) <= right + 20, (share, tolerance)


@pytest.mark.covering
@pytest.mark.parametrize("share", [1e-3, 1e-1, 1e1, 1e3])
@pytest.mark.parametrize("domain", [None, BALL, BOXES], ids=["free", "ball", "boxes"])
def test_a_wrong_first_guess_is_survived_where_sums_come_late(domain, share):
    problem = small_problem(1, domain, 0.05)
    L = share * (float(np.max(problem.smoothness())) + problem.mu)
    graph = gs.Graph.random(7, 3, seed=2)
    same = small_problem(1, COMMON_BOX if domain is BOXES else domain, 0.05)
    solved(problem, graph, gs.AutoPDS(first_L=L), reference(same).objective, iterations=1500)
