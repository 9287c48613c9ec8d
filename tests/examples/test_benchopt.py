"""The benchopt benchmark: with benchopt where it is installed, and driven by hand as benchopt would drive it."""

import shutil
import subprocess
import sys
from importlib import metadata
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest
from example_runs import EXAMPLES, load

import gradslide as gs
from gradslide.engine.observers import NetworkObserver

FOLDER = EXAMPLES / "benchopt"
SMALL = {"misfire": {"rows": 400, "seed": 3}, "simulated": {"rows": 120, "columns": 4, "seed": 3}}


class Stub:
    """What the benchmark relies on of benchopt's base classes: parameters become attributes."""

    def __init__(self, **given):
        for name, values in getattr(self, "parameters", {}).items():
            setattr(self, name, given.get(name, values[0]))


def part(path):
    """A file of the benchmark, loaded without benchopt."""
    benchopt, criteria = ModuleType("benchopt"), ModuleType("benchopt.stopping_criterion")
    benchopt.BaseObjective = benchopt.BaseDataset = benchopt.BaseSolver = Stub
    criteria.StoppingCriterion = type("StoppingCriterion", (), {"__init__": lambda self, **given: None})
    with patch.dict(sys.modules, {"benchopt": benchopt, "benchopt.stopping_criterion": criteria}):
        return load(f"benchopt/{path}")


OBJECTIVE, SOLVER = part("objective").Objective, part("solvers/gradslide_methods").Solver
METHODS = SOLVER.parameters["method"]


def objective_on(dataset, **parameters):
    objective = OBJECTIVE(**{"agents": 6, **parameters})
    objective.set_data(**part(f"datasets/{dataset}").Dataset(**SMALL[dataset]).get_data())
    return objective


def drive(objective, method, iterations):
    """The curve and the last result, as benchopt gets them: one look before the first iteration, one after each."""
    solver, curve = SOLVER(method=method), []
    assert solver.skip(**objective.get_objective()) == (False, None)
    solver.set_objective(**objective.get_objective())

    def look():
        curve.append(objective.evaluate_result(**solver.get_result()))
        return len(curve) <= iterations

    solver.run(look)
    return curve, solver.get_result()


def by_hand(features, labels, splits, mu, point):
    """(1/m) sum_i of the mean loss over agent i's rows, and the ridge."""
    losses = [np.mean(np.logaddexp(0, -labels[rows] * (features[rows] @ point))) for rows in splits]
    return np.mean(losses) + mu / 2 * point @ point


@pytest.mark.parametrize("method", METHODS)
def test_a_solver_takes_the_steps_of_its_method(method):
    objective = objective_on("simulated")
    curve, result = drive(objective, method, iterations=7)
    assert len(curve) == 8
    direct = gs.solve(objective.problem, objective.graph, getattr(gs, method)(), stop=gs.Stop(iterations=7))
    np.testing.assert_array_equal(result["x"], direct.x)
    assert (result["gradients"], result["rounds"]) == (direct.costs.gradients, direct.costs.rounds)
    assert curve[-1]["rounds"] == direct.history[-1].rounds
    assert curve[-1]["value"] == pytest.approx(direct.history[-1].objective / 6, rel=1e-12)
    assert curve[-1]["disagreement"] == pytest.approx(direct.history[-1].disagreement, rel=1e-12)


@pytest.mark.parametrize("dataset", SMALL)
@pytest.mark.parametrize("split", ["contiguous", "sorted"])
def test_the_objective_measures_what_it_says(dataset, split):
    objective = objective_on(dataset, split=split, mu=0.2)
    data = part(f"datasets/{dataset}").Dataset(**SMALL[dataset]).get_data()
    splits = gs.data.split(split, data["labels"], 6)
    x = np.random.default_rng(0).normal(size=(6, data["features"].shape[1]))
    measured = objective.evaluate_result(x=x, gradients=3, rounds=5)
    value = by_hand(**data, splits=splits, mu=0.2, point=x.mean(axis=0))
    assert measured["value"] == pytest.approx(value, rel=1e-12)
    apart = max(np.linalg.norm(row - x.mean(axis=0)) for row in x)
    assert measured["disagreement"] == pytest.approx(apart, rel=1e-12)
    assert (measured["gradients"], measured["rounds"]) == (3, 5)
    best = gs.reference.reference(objective.problem).x
    optimum = by_hand(**data, splits=splits, mu=0.2, point=best)
    assert measured["error"] == pytest.approx(value - optimum, rel=1e-9)
    assert set(measured) == set(objective.evaluate_result(**objective.get_one_result()))


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_observed_while_the_clock_runs(method, monkeypatch):
    objective, observed = objective_on("simulated"), []
    solver, counts = SOLVER(method=method), []
    solver.set_objective(**objective.get_objective())
    metrics = NetworkObserver.metrics
    monkeypatch.setattr(NetworkObserver, "metrics", lambda *given: observed.append(1) or metrics(*given))
    solver.run(lambda: counts.append(len(observed)) or len(counts) < 20)
    assert counts == [0] * 20


def test_the_datasets_are_seeded_and_their_blocks_differ():
    made = part("datasets/misfire").Dataset(rows=500, seed=2).get_data()
    np.testing.assert_array_equal(made["features"], gs.data.misfire(500, 2).features)
    np.testing.assert_array_equal(made["labels"], gs.data.misfire(500, 2).labels)
    Simulated = part("datasets/simulated").Dataset
    one, again, other = (Simulated(seed=seed).get_data() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one["features"], again["features"])
    assert not np.array_equal(one["features"], other["features"])
    assert set(one["labels"]) == {-1.0, 1.0}
    assert one["features"][-50:].mean() - one["features"][:50].mean() > 1.5


def test_a_method_that_cannot_solve_the_problem_is_skipped_with_its_reason():
    skip, reason = SOLVER(method="OPAPC").skip(**objective_on("simulated", mu=0.0).get_objective())
    assert skip
    assert reason.startswith("OPAPC needs mu > 0; got 0")


def test_a_run_that_fails_is_not_taken_for_one_that_ended(monkeypatch):
    method = gs.NIDS(step_size=1e6)
    monkeypatch.setattr(gs, "NIDS", lambda: method)
    with pytest.raises(RuntimeError, match="values grew out of all bounds"):
        drive(objective_on("simulated"), "NIDS", iterations=10_000)


def test_an_interrupt_reaches_benchopt():
    solver, looks = SOLVER(method="NIDS"), iter([True, True])
    solver.set_objective(**objective_on("simulated").get_objective())

    def look():
        for more in looks:
            return more
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solver.run(look)


def test_a_run_ends_where_both_targets_are_reached():
    def ends(error, disagreement):
        last = {"objective_error": error, "objective_disagreement": disagreement}
        return OBJECTIVE.stopping_criterion.check_convergence([{}, last])

    assert ends(1e-9, 1e-5) == (True, 1.0)
    assert ends(1e-7, 1e-5) == ends(1e-9, 1e-3) == (False, 0.0)


def installed():
    try:
        return tuple(int(number) for number in metadata.version("benchopt").split(".")[:3]) >= (1, 9, 1)
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not installed(), reason="needs benchopt 1.9.1 or newer, which is not among the test tools")
def test_benchopt_runs_it(tmp_path):
    from pandas import read_parquet

    folder = shutil.copytree(FOLDER, tmp_path / "bench", ignore=shutil.ignore_patterns("__*__", "outputs"))

    def run(result, *options):
        command = [sys.executable, "-m", "benchopt", "run", folder, "-d", "simulated", *options]
        command += ["--no-plot", "--no-html", "--output", tmp_path / result]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        table = read_parquet(tmp_path / result)
        return {method: rows.reset_index() for method, rows in table.groupby("p_solver_method")}

    curves = run("short.parquet", "-n", "5")
    assert set(curves) == set(METHODS)
    objective = OBJECTIVE()
    objective.set_data(**part("datasets/simulated").Dataset().get_data())
    for method, rows in curves.items():
        looks = list(rows["stop_val"])
        assert looks == [0, 1, 2, 3, 4, 6]
        expected, _ = drive(objective, method, iterations=6)
        for name in ("value", "disagreement", "gradients", "rounds"):
            measured = [expected[look][name] for look in looks]
            np.testing.assert_allclose(rows[f"objective_{name}"], measured, rtol=1e-9, atol=1e-12)

    (rows,) = run("whole.parquet", "-s", "gradslide[method=OPAPC]").values()
    met = (rows["objective_error"] <= 1e-8) & (rows["objective_disagreement"] <= 1e-4)
    assert list(met) == [False] * (len(rows) - 1) + [True]
