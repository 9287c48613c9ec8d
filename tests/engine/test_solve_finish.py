"""The last steps of a method, which are taken once."""

import signal
from dataclasses import dataclass, replace

import numpy as np
import pytest
from certificate_cases import FREE, RING, Mixer, MixState, spent

import gradslide as gs
from gradslide.graphs.chebyshev import chebyshev, chebyshev_rounds


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
        ({"stop": gs.Stop(disagreement=0.5)}, gs.Status.FEASIBLE, True),
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
        def finish(self, context, state, factor):
            raise KeyboardInterrupt

    solution = gs.solve(FREE, RING, Interrupted(), stop=gs.Stop(iterations=4))
    assert solution.status is gs.Status.INTERRUPTED
    assert np.ptp(solution.x[:, 0]) > 0.1


GRAPH = gs.Graph.random(12, max_degree=3, edges=14, seed=2)


@pytest.fixture(scope="module")
def apart_problem():
    """Agents whose own optima lie far apart, on a sparse network."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(120, 4)) + np.repeat(rng.normal(size=(12, 4)), 10, axis=0)
    targets = features @ [1.0, -2.0, 0.5, 1.0] + rng.normal(size=120)
    return gs.Problem(gs.losses.LeastSquares(features, targets, agents=12))


def near(problem, share=0.3):
    """An objective between the optimum and the start."""
    best, start = gs.reference.reference(problem).objective, float(problem.objective(problem.start()).sum())
    return best + share * (start - best)


def test_last_steps_are_as_long_as_the_targets_ask(apart_problem):
    stop = gs.Stop(objective=near(apart_problem), residual=1e-6, disagreement=1e-6, iterations=200)
    solution = gs.solve(apart_problem, GRAPH, gs.AutoPDS(), stop=stop)
    last, before = solution.history[-1], solution.history[-2]
    assert solution.status is gs.Status.CONVERGED
    assert stop.reached(last)
    assert not stop.reached(before)
    assert np.max(np.linalg.norm(solution.x - solution.mean, axis=1)) <= 1e-6

    # It is the first iteration whose objective is low enough, for mixing does not move the mean.
    seen = []
    gs.solve(
        apart_problem, GRAPH, gs.AutoPDS(), stop=gs.Stop(iterations=20), callback=lambda record, x: seen.append(record)
    )
    first = next(record for record in seen if record.objective <= stop.objective)
    assert last.iteration == first.iteration
    assert solution.costs.gradients == last.gradients == first.gradients
    assert last.objective == pytest.approx(first.objective, rel=1e-9)
    # What is tried costs nothing, what is done is counted; without targets it is a few rounds.
    ended = gs.solve(apart_problem, GRAPH, gs.AutoPDS(), stop=gs.Stop(iterations=first.iteration))
    assert first.rounds < ended.costs.rounds < solution.costs.rounds == last.rounds
    assert ended.history[-1].disagreement > 1e-3


def test_a_run_that_its_last_steps_ended_is_not_run_again(apart_problem, tmp_path):
    stop = gs.Stop(objective=near(apart_problem), residual=1e-6, iterations=200)
    whole = gs.solve(apart_problem, GRAPH, gs.AutoPDS(), stop=stop, checkpoint=tmp_path / "run.npz")
    again = gs.solve(apart_problem, GRAPH, gs.AutoPDS(), stop=stop, checkpoint=tmp_path / "run.npz")
    assert again.status is whole.status is gs.Status.CONVERGED
    np.testing.assert_array_equal(again.x, whole.x)
    assert spent(again.costs) == spent(whole.costs)


def test_nothing_is_promised_where_messages_are_lost(apart_problem):
    """No try says there what the last steps will do."""
    stop = gs.Stop(objective=near(apart_problem), residual=1e-6, iterations=12)
    with pytest.warns(RuntimeWarning):
        solution = gs.solve(apart_problem, gs.network.Lossy(GRAPH, lost=0.3, direction="each"), stop=stop)
    assert solution.status is gs.Status.ITERATION_LIMIT


def test_agents_with_sets_of_their_own_are_not_mixed(apart_problem):
    box = gs.domains.Box(lo=-np.full((12, 4), 3.0) - np.arange(12)[:, None], hi=np.full((12, 4), 3.0))
    problem = gs.Problem(apart_problem.loss, box)
    stop = gs.Stop(objective=near(apart_problem), residual=1e-6, iterations=12)
    assert gs.solve(problem, GRAPH, stop=stop).status is gs.Status.ITERATION_LIMIT


@pytest.mark.parametrize("target", [{"residual": 1e-310}, {"disagreement": gs.Relative(1e-309)}])
def test_what_no_mixing_can_reach_is_not_tried(apart_problem, target):
    stop = gs.Stop(objective=near(apart_problem), iterations=12, **target)
    assert gs.solve(apart_problem, GRAPH, gs.AutoPDS(), stop=stop).status is gs.Status.ITERATION_LIMIT


def test_what_is_made_once_is_made_where_it_counts():
    """A try must not leave behind what a run has to pay for."""

    @dataclass(frozen=True)
    class Learning(Mixer):
        def prepare(self, context):
            return context.network.norm_bound()

    network = gs.network.Local(RING, exact_norm=False)
    costs = [
        gs.solve(FREE, network, Learning(), stop=stop).costs.control_rounds
        for stop in (gs.Stop(iterations=1), gs.Stop(objective=1e9, disagreement=1e-6, iterations=9))
    ]
    assert costs[0] == costs[1] > 6


def test_how_far_apart_agents_are_from_their_targets():
    record = replace(
        gs.solve(FREE, RING, Mixer(), stop=gs.Stop(iterations=1)).history[-1],
        objective=5.0,
        residual=0.4,
        disagreement=0.3,
        mean_norm=10.0,
    )
    assert gs.Stop(objective=5.0, residual=0.1).contraction_needed(record) == pytest.approx(4)
    assert gs.Stop(objective=5.0, residual=0.1, disagreement=gs.Relative(1e-3)).contraction_needed(
        record
    ) == pytest.approx(30)
    for stop in (
        gs.Stop(objective=4.9, residual=0.1),
        gs.Stop(objective=5.0),
        gs.Stop(residual=0.1),
        gs.Stop(objective=5.0, residual=0.1, gap=1.0),
    ):
        assert stop.contraction_needed(record) is None
    with pytest.deprecated_call(match="contraction_needed"):
        assert gs.Stop(objective=5.0, residual=0.1).apart(record) == pytest.approx(4)


@pytest.mark.parametrize("factor", [1.5, 30.0, 1e8])
@pytest.mark.parametrize("graph", [gs.Graph.ring(9), gs.Graph.star(7), gs.Graph.complete(5), GRAPH], ids=repr)
def test_so_many_exchanges_bring_agents_closer_by_a_factor(graph, factor):
    least, most = graph.algebraic_connectivity, graph.laplacian_norm
    rounds = chebyshev_rounds(factor, least=least, most=most)
    v = np.linalg.eigh(graph.laplacian.toarray())[1][:, 1:] @ np.ones(graph.m - 1)
    size = np.linalg.norm(v)

    def left(K):
        return np.linalg.norm(v - chebyshev(lambda u: graph.laplacian @ u, v, K, least=least, most=most))

    assert left(rounds) <= size / factor * (1 + 1e-6)
    # The end of the spectrum falls by no more than the bound says.
    v = np.linalg.eigh(graph.laplacian.toarray())[1][:, 1]
    assert rounds == 1 or left(rounds - 1) > 1 / factor
    assert chebyshev_rounds(1.0, least=least, most=most) == 0
