"""Where the optimum is 0 nothing can be small relative to it: a run ends all the same."""

import numpy as np
import pytest

import gradslide as gs

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(40, 3))
TARGETS = FEATURES @ [1.0, -2.0, 0.5]


@pytest.mark.parametrize("domain", [gs.domains.L2Ball(9.0), gs.domains.Free()])
def test_a_perfect_fit_converges(domain):
    loss = gs.losses.LeastSquares(FEATURES, TARGETS, agents=4)
    solution = gs.solve(gs.Problem(loss, domain), gs.Graph.ring(4))
    assert solution.status is gs.Status.CONVERGED
    assert solution.costs.gradients < 1000
    np.testing.assert_allclose(solution.mean, [1.0, -2.0, 0.5], rtol=1e-2)


def test_a_relative_gap_is_relative_to_the_objective_where_there_is_one():
    stop = gs.Stop(gap=gs.Relative(0.1))
    record = gs.Record(1, 1, 0, 1, 0, 0.0, objective=2.0, gap=0.3)
    assert not stop.reached(record)
    assert not stop.reached(record, least=2.9)
    assert stop.reached(record, least=3.1)


def test_a_checkpoint_remembers_what_a_gap_is_relative_to(tmp_path):
    problem = gs.Problem(gs.losses.LeastSquares(FEATURES, TARGETS, agents=4), gs.domains.L2Ball(9.0))
    graph, method = gs.Graph.ring(4), gs.AutoPDS()
    whole = gs.solve(problem, graph, method)
    path = tmp_path / "run.npz"
    short = gs.solve(problem, graph, method, stop=gs.Stop(gap=gs.Relative(1e-4), iterations=9), checkpoint=path)
    assert short.status is gs.Status.ITERATION_LIMIT
    stop = gs.Stop(gap=gs.Relative(1e-4), disagreement=gs.Relative(1e-2))
    on = gs.solve(problem, graph, method, stop=stop, checkpoint=path)
    assert on.costs.gradients == whole.costs.gradients


def test_an_optimum_that_is_small_beside_the_start_is_not_taken_for_0():
    """The objective falls to 1e-6 of what it was: the gap must be small beside that."""
    noise = 1e-3 * np.random.default_rng(1).normal(size=40)
    problem = gs.Problem(gs.losses.LeastSquares(FEATURES, TARGETS + noise, agents=4), gs.domains.L2Ball(9.0))
    solution = gs.solve(problem, gs.Graph.ring(4))
    assert solution.status is gs.Status.CONVERGED
    last = solution.history[-1]
    assert last.objective < 1e-5 * float(np.sum(TARGETS**2))
    assert last.gap <= 1e-4 * last.objective


def test_constraints_that_ask_for_0_can_be_met():
    A = RNG.normal(size=(2, 3))
    loss = gs.losses.LeastSquares(FEATURES, TARGETS, agents=1)
    solution = gs.solve(gs.LinearlyConstrained(loss, A, np.zeros(2), domain=gs.domains.L2Ball(9.0)))
    assert solution.status is gs.Status.CONVERGED
    assert np.linalg.norm(A @ solution.mean) <= 1e-3 * np.linalg.norm(A) * np.linalg.norm(solution.mean)
