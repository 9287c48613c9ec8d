"""The loop: stopping, records, costs, checkpoints, warm starts, interruptions."""

import dataclasses
import math
import os
import signal

import numpy as np
import pytest
from problems import logistic, quadratic

import gradslide as gs


@pytest.fixture
def problem():
    return gs.Problem(logistic(np.random.default_rng(0), 8, 4), gs.domains.L2Ball(0.6))


@pytest.fixture
def graph():
    return gs.Graph.random(8, 4, seed=1)


METHOD = gs.PDS(L=4.0, R=1.0)


def test_targets_must_all_hold_and_limits_end_at_any(problem, graph):
    loose, tight = gs.Stop(objective=1e9, iterations=50), gs.Stop(objective=1e9, disagreement=1e-12, iterations=50)
    assert gs.solve(problem, graph, METHOD, stop=loose).status is gs.Status.CONVERGED
    solution = gs.solve(problem, graph, METHOD, stop=tight)
    assert solution.status is gs.Status.ITERATION_LIMIT
    assert len(solution.history) == 50
    for stop, status in [
        (gs.Stop(gradients=9, iterations=50), gs.Status.GRADIENT_LIMIT),
        (gs.Stop(rounds=9, iterations=50), gs.Status.ROUND_LIMIT),
        (gs.Stop(seconds=1e-9), gs.Status.TIME_LIMIT),
    ]:
        assert gs.solve(problem, graph, METHOD, stop=stop).status is status


def test_relative_targets(problem, graph):
    stop = gs.Stop(disagreement=gs.Relative(1e-2), residual=gs.Relative(1e-1), iterations=500)
    last = gs.solve(problem, graph, METHOD, stop=stop).history[-1]
    assert last.disagreement <= 1e-2 * last.mean_norm
    assert last.residual <= 1e-1 * math.sqrt(graph.m) * last.mean_norm
    optimum = gs.reference.reference(problem).objective
    stop = gs.Stop(objective=gs.Relative(1e-3, to=optimum), disagreement=1e-2, iterations=500)
    solution = gs.solve(problem, graph, METHOD, stop=stop)
    assert solution.status is gs.Status.CONVERGED
    assert solution.history[-1].objective <= optimum * (1 + 1e-3)


def test_records_are_what_they_say(problem, graph):
    seen = []
    solution = gs.solve(
        problem, graph, METHOD, stop=gs.Stop(iterations=6), callback=lambda record, x: seen.append((record, x.copy()))
    )
    assert [record.iteration for record, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert [record for record, _ in seen] == list(solution.history)
    for record, x in seen:
        mean = x.mean(axis=0)
        assert record.objective == pytest.approx(float(problem.objective(np.tile(mean, (8, 1))).sum()))
        assert record.local_objective == pytest.approx(float(problem.objective(x).sum()))
        assert record.disagreement == pytest.approx(np.linalg.norm(x - mean, axis=1).max())
        assert record.residual == pytest.approx(np.linalg.norm(graph.incidence.T @ x))
    np.testing.assert_array_equal(seen[-1][1], solution.x)


def test_callback_stops_and_record_every_thins(problem, graph):
    calls = []
    solution = gs.solve(
        problem,
        graph,
        METHOD,
        stop=gs.Stop(iterations=10),
        record_every=4,
        callback=lambda record, x: calls.append(record) or record.iteration == 7,
    )
    assert solution.status is gs.Status.STOPPED
    assert [record.iteration for record in calls] == list(range(1, 8))
    assert [record.objective is None for record in calls] == [True, True, True, False, True, True, True]
    assert [record.iteration for record in solution.history] == [4, 7]
    thinned = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=10), record_every=4)
    assert [record.iteration for record in thinned.history] == [4, 8, 10]


def test_save_and_load(problem, graph, tmp_path):
    solution = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=5))
    again = gs.load(solution.save(tmp_path / "deep" / "solution.npz"))
    for name, array in solution.outputs.items():
        np.testing.assert_array_equal(again.outputs[name], array)
    np.testing.assert_array_equal(again.dual, solution.dual)
    assert (again.status, again.costs, again.output) == (solution.status, solution.costs, solution.output)
    assert list(again.history) == list(solution.history)
    assert again.parameters == solution.parameters
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["solution.npz"]


def test_load_refuses_what_it_did_not_write(problem, graph, tmp_path):
    (tmp_path / "text.npz").write_text("not a solution")
    gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=2), checkpoint=tmp_path / "run.npz")
    for name, word in [
        ("missing.npz", "no such file"),
        ("text.npz", "cannot be read"),
        ("run.npz", "a checkpoint file"),
    ]:
        with pytest.raises(gs.InputError, match=word):
            gs.load(tmp_path / name)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_a_resumed_run_gives_the_same_iterates_to_the_bit(problem, graph, tmp_path, mu):
    problem = gs.Problem(problem.loss, gs.domains.L2Ball(0.6), mu)
    method = gs.PDS(growth=2.0)
    whole = gs.solve(problem, graph, method, stop=gs.Stop(iterations=60))
    path = tmp_path / "run.npz"
    for iterations in (1, 17, 40, 60):
        part = gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), checkpoint=path)
        assert len(part.history) == iterations
    for name, array in whole.outputs.items():
        np.testing.assert_array_equal(part.outputs[name], array)
    np.testing.assert_array_equal(part.dual, whole.dual)
    assert dataclasses.replace(part.costs, seconds=0) == dataclasses.replace(whole.costs, seconds=0)
    assert [record.objective for record in part.history] == [record.objective for record in whole.history]


def test_a_finished_checkpoint_is_not_run_again(problem, graph, tmp_path):
    stop = gs.Stop(objective=1e9, iterations=50)
    first = gs.solve(problem, graph, METHOD, stop=stop, checkpoint=tmp_path / "run.npz")
    steps = []
    again = gs.solve(
        problem,
        graph,
        METHOD,
        stop=stop,
        checkpoint=tmp_path / "run.npz",
        callback=lambda record, x: steps.append(record),
    )
    assert steps == []
    assert again.status is gs.Status.CONVERGED
    np.testing.assert_array_equal(again.x, first.x)
    afresh = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=2), checkpoint=tmp_path / "run.npz", resume=False)
    assert len(afresh.history) == 2


def test_a_checkpoint_of_another_run_is_refused(problem, graph, tmp_path):
    path = tmp_path / "run.npz"
    stop = gs.Stop(iterations=3)
    gs.solve(problem, graph, METHOD, stop=stop, checkpoint=path)
    other_data = gs.Problem(logistic(np.random.default_rng(5), 8, 4), gs.domains.L2Ball(0.6))
    for arguments, word in [
        ((problem, graph, gs.PDS(L=5.0, R=1.0)), "method"),
        ((problem, gs.Graph.ring(8), METHOD), "network"),
        ((gs.Problem(problem.loss, problem.domain, mu=1.0), graph, METHOD), "problem"),
        ((gs.Problem(problem.loss, gs.domains.L2Ball(0.7)), graph, METHOD), "domain"),
        ((other_data, graph, METHOD), "data"),
    ]:
        with pytest.raises(gs.InputError, match=f"another {word}"):
            gs.solve(*arguments, stop=stop, checkpoint=path)
    with pytest.raises(gs.InputError, match="another start"):
        gs.solve(problem, graph, METHOD, stop=stop, checkpoint=path, x0=np.full(4, 0.1))


def test_warm_start_goes_on_from_point_and_multipliers(problem, graph):
    first = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=200))
    cold = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=3))
    warm = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=3), warm_start=first)
    assert warm.history[-1].objective < cold.history[-1].objective
    forgetful = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=3), x0=first.x)
    assert warm.history[-1].disagreement < forgetful.history[-1].disagreement
    # Turning s into w = Lap s takes one exchange.
    assert warm.costs.rounds == forgetful.costs.rounds + 1


def test_ctrl_c_returns_what_was_reached(problem, graph):
    def press(record, x):
        if record.iteration == 5:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    solution = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=100), callback=press)
    assert solution.status is gs.Status.INTERRUPTED
    assert len(solution.history) in (5, 6)
    assert signal.getsignal(signal.SIGINT) is before
    five = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=len(solution.history)))
    np.testing.assert_array_equal(solution.x, five.x)


def test_an_interrupted_run_can_be_resumed(problem, graph, tmp_path):
    def press(record, x):
        if record.iteration == 5:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    solution = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=20), callback=press, checkpoint=path)
    assert solution.status is gs.Status.INTERRUPTED
    resumed = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=20), checkpoint=path)
    whole = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=20))
    np.testing.assert_array_equal(resumed.x, whole.x)


def test_divergence_returns_the_last_good_output():
    loss = gs.losses.Quadratic(np.full((3, 1, 1), 100.0), np.ones((3, 1)))
    problem, graph = gs.Problem(loss), gs.Graph.ring(3)
    solution = gs.solve(problem, graph, gs.PDS(L=0.01, R=1.0), stop=gs.Stop(iterations=10_000))
    assert solution.status is gs.Status.DIVERGED
    assert np.all(np.isfinite(solution.x))
    assert all(math.isfinite(record.objective) for record in solution.history)


def test_nan_from_a_users_gradient_is_divergence():
    calls = []

    def gradient(x):
        calls.append(1)
        return x if len(calls) < 4 else np.full_like(x, np.nan)

    loss = gs.losses.Custom(
        gradient=gradient, value=lambda x: 0.5 * np.sum(x**2, axis=1), smoothness=1.0, agents=4, dimension=2
    )
    solution = gs.solve(
        gs.Problem(loss), gs.Graph.ring(4), METHOD, x0=np.ones(2), stop=gs.Stop(iterations=20), check_loss=False
    )
    assert solution.status is gs.Status.DIVERGED
    assert len(solution.history) == 3
    assert np.all(np.isfinite(solution.x))


def test_metrics_are_outside_the_clock(graph):
    """A loss whose value takes long and whose gradient does not: the seconds of the run hold no value."""
    import time

    def slow_value(x):
        time.sleep(0.02)
        return 0.5 * np.sum(x**2, axis=1)

    loss = gs.losses.Custom(gradient=lambda x: x, value=slow_value, smoothness=1.0, agents=8, dimension=2)
    started = time.perf_counter()
    solution = gs.solve(gs.Problem(loss), graph, METHOD, stop=gs.Stop(iterations=10), check_loss=False)
    wall = time.perf_counter() - started
    assert wall - solution.costs.seconds >= 10 * 2 * 0.02
    assert solution.costs.values == 0


def test_a_method_of_ones_own(problem, graph):
    @dataclasses.dataclass(frozen=True)
    class ProjectedGradient:
        """Decentralized projected gradient with Metropolis-like mixing by the Laplacian."""

        step_size: float

        def init(self, context):
            return context.x0

        def step(self, context, x):
            mixed = x - context.network.combine(x, context.network.laplacian) / context.network.norm_bound()
            return context.domain.project(mixed - self.step_size * context.oracle.gradient(x))

        def output(self, x):
            return x

    solution = gs.solve(problem, graph, ProjectedGradient(0.01), stop=gs.Stop(iterations=300))
    assert solution.output == "last"
    assert solution.costs.gradients == solution.costs.rounds == 300
    assert solution.dual is None
    optimum = gs.reference.reference(problem).objective
    assert solution.history[-1].objective <= optimum * 1.05


def test_one_agent_is_a_network():
    problem = gs.Problem(quadratic(np.random.default_rng(0), 1, 3), mu=0.1)
    solution = gs.solve(problem, gs.Graph.from_edges(1, []), stop=gs.Stop(iterations=500))
    exact = gs.reference.reference(problem)
    np.testing.assert_allclose(solution.mean, exact.x, atol=1e-6)


def test_history_is_a_table(problem, graph):
    solution = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=4))
    columns = solution.history.to_dict()
    assert columns["gradients"] == [1, 2, 3, 4]
    frame = solution.history.to_pandas()
    assert list(frame["iteration"]) == [1, 2, 3, 4]
    assert gs.History.from_dict(columns)[-1] == solution.history[-1]
    assert "CONVERGED" not in repr(solution)
    assert "ITERATION_LIMIT" in repr(solution)


def test_a_numpy_scalar_does_not_raise_the_precision(graph, tmp_path):
    loss = logistic(np.random.default_rng(0), 8, 4)
    features = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    problem = gs.Problem(gs.losses.Logistic(features, np.tile([-1, 1], 32), agents=8))
    assert loss.dtype == np.float64
    method = gs.PDS(L=problem.smoothness().max(), R=np.float64(1.0))
    solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=3))
    assert solution.x.dtype == np.float32
    assert gs.load(solution.save(tmp_path / "solution.npz")).parameters == solution.parameters


def test_what_a_callback_does_to_x_stays_its_own(problem, graph):
    def spoil(record, x):
        x[:] = 7.0

    spoiled = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=9), callback=spoil)
    np.testing.assert_array_equal(spoiled.x, gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=9)).x)


def test_a_callback_that_stops_cannot_spoil_the_last_record(problem, graph):
    def spoil(record, x):
        x[:] = 7.0
        return record.iteration == 7

    spoiled = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=9), record_every=4, callback=spoil)
    whole = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=7))
    assert spoiled.history[-1].objective == whole.history[-1].objective


def test_an_unusable_checkpoint_is_refused_before_the_run(problem, graph, tmp_path):
    (tmp_path / "file").write_text("no folder")
    steps = []
    with pytest.raises(gs.InputError, match="folder"):
        gs.solve(problem, graph, METHOD, checkpoint=tmp_path / "file" / "run.npz", callback=lambda *_: steps.append(1))

    class Stateful(gs.PDS):
        def init(self, context):
            return {"rng": np.random.default_rng(0)}

        def output(self, state):
            return problem.start()

        def parameters(self, state):
            return {}

    with pytest.raises(gs.InputError, match="state must be made of"):
        gs.solve(problem, graph, Stateful(), checkpoint=tmp_path / "run.npz")
    assert steps == []


def test_a_mean_outside_of_what_a_loss_is_defined_on_is_no_divergence():
    with np.errstate(all="ignore"):
        loss = gs.losses.Custom(
            gradient=[lambda x: -1 / x, lambda x: x],
            value=[lambda x: -float(np.log(x[0])), lambda x: 0.5 * float(x @ x)],
            smoothness=1.0,
            agents=2,
            dimension=1,
        )
        domain = gs.domains.PerAgent([gs.domains.Box(1, 5), gs.domains.Box(-10, 5)])
        solution = gs.solve(
            gs.Problem(loss, domain), gs.Graph.path(2), gs.PDS(R=1.0), x0=[[1.0], [-9.0]], stop=gs.Stop(iterations=300)
        )
    assert solution.status is gs.Status.ITERATION_LIMIT
    assert solution.history[0].objective == math.inf
    np.testing.assert_allclose(solution.outputs["last"], 1.0, atol=1e-2)


def test_a_job_that_ignores_ctrl_c_goes_on(problem, graph):
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        solution = gs.solve(
            problem, graph, METHOD, stop=gs.Stop(iterations=5), callback=lambda *_: os.kill(os.getpid(), signal.SIGINT)
        )
    finally:
        signal.signal(signal.SIGINT, previous)
    assert solution.status is gs.Status.ITERATION_LIMIT


def test_a_solution_has_what_its_last_record_says():
    loss = gs.losses.LeastSquares(np.eye(4), np.arange(1.0, 5.0), agents=2)
    solution = gs.solve(gs.Problem(loss, gs.domains.L2Ball(1.0)), gs.Graph.path(2))
    last = solution.history[-1]
    assert (solution.objective, solution.gap, solution.disagreement) == (last.objective, last.gap, last.disagreement)
    free = gs.solve(gs.Problem(loss), gs.Graph.path(2))
    assert free.gap is None
    assert f"stationarity={free.kkt.stationarity:.3g}" in repr(free)


def test_what_one_can_tab_to_is_public():
    assert set(dir(gs)) == {*gs.__all__, "__version__"}
