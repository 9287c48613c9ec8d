"""The benchmarks of speed run, at sizes that say nothing about speed."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gradslide as gs

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """Imports a benchmark by name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_loops_over_agents_have_the_iterates_of_ours(bench):
    whole_solve = bench("whole_solve")
    case, steps = whole_solve.Case(8), 6

    def last(name, method, output):
        plan = whole_solve.Plan(method, steps, output)
        x, seconds = whole_solve.run_loops(name, case, plan, budget=60.0)
        assert len(seconds) == steps
        return x, plan.solve(case).x

    for name, method, output in (("NIDS", gs.NIDS(step_size=1.0), "last"), ("PDS", gs.PDS(L=1.0, R=0.5), "average")):
        np.testing.assert_allclose(*last(name, method, output), rtol=1e-10)
    assert not np.allclose(
        last("NIDS", gs.NIDS(step_size=0.9), "last")[0], last("NIDS", gs.NIDS(step_size=1.0), "last")[1]
    )


def test_a_run_that_was_cut_short_is_extrapolated(bench):
    whole = bench("whole_solve").whole
    rounds = [1, 2, 3, 4, 5]
    seconds = [3.0 + 2.0 * each for each in rounds]
    assert whole(seconds, rounds) == pytest.approx(sum(seconds))
    assert whole(seconds[:3], rounds) == pytest.approx(sum(seconds))
    assert whole([2.0, 2.0], [1] * 5) == pytest.approx(10.0)


def test_whole_solves_are_compared(bench):
    whole_solve = bench("whole_solve")
    case = whole_solve.Case(8)
    methods = {"AutoPDS": gs.AutoPDS(), "PDS": gs.PDS(L=0.5, R=0.1), "NIDS": gs.NIDS(step_size=2.0)}
    plans = {name: whole_solve.plan(case, method) for name, method in methods.items()}
    assert all(case.is_solved(plan.solve(case).x) for plan in plans.values())
    assert not case.is_solved(plans["NIDS"].solve(case, plans["NIDS"].iterations - 1).x)
    rows = whole_solve.compare(case, plans, repeats=1, budget=0.01)
    ours = [row[0].split(",")[0] for row in rows if "decent" not in row[0]]
    assert ours == ["AutoPDS"] * 2 + ["Newton"] + ["PDS"] * 2 + ["NIDS"] * 2
    assert all(float(row[-1]) < 1e-8 for row in rows if row[-1])
    longer = [gs.NIDS(step_size=step) for step in (2.0, 2.8, 100.0)]
    assert whole_solve.best(case, longer).method.step_size == 2.8


@pytest.mark.slow
def test_memory_counts_arrays(bench):
    memory = bench("memory")
    for name in memory.METHODS:
        peak = memory.measure(name, "free", 40, 50, 3)
        # State and answer are several arrays; hundreds would be a mistake of the unit.
        assert 4 < peak["numpy"] < 200


@pytest.fixture
def iterations(bench, monkeypatch):
    """The benchmark of iterations, with one small case."""
    module = bench("iterations")
    monkeypatch.setattr(module, "CASES", {"tiny": (6, 8, 5, 2, None, (2, 6))})
    return module


def test_iterations_are_compared(iterations, monkeypatch, capsys):
    # Set: it does not start anew.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("sys.argv", ["iterations.py", "--repeats", "1"])
    iterations.main()
    assert "tiny" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        # Seconds per iteration. NIDS takes one gradient in each, AutoPDS two.
        ({"AutoPDS": 0.4, "NIDS": 0.1}, ["100", "200", "2.00"]),
        # The longer solve of AutoPDS took less time.
        ({"AutoPDS": -0.4, "NIDS": 0.1}, ["100", "-", "-"]),
    ],
)
def test_times_of_iterations_are_per_gradient(seconds, expected, iterations, monkeypatch):
    now, solves = [0.0], []

    def solve(problem, graph, method, stop, record_every):
        name = type(method).__name__
        solves.append(name)
        # The first ones, which warm up, and setup do not count.
        now[0] += 10.0 + seconds[name] * stop.iterations * (100 if len(solves) <= 2 else 1)
        gradients = {"AutoPDS": 1 + 2 * stop.iterations, "NIDS": stop.iterations}
        return SimpleNamespace(costs=SimpleNamespace(gradients=gradients[name]), parameters={})

    monkeypatch.setattr(gs, "solve", solve)
    monkeypatch.setattr("time.process_time", lambda: now[0])
    *_, theirs, ours, _, ratio = iterations.row("tiny", 1)
    assert [theirs, ours, ratio] == expected


def test_setup_on_a_device_is_that_of_new_problems(bench, monkeypatch):
    gpu, now, made, solved = bench("gpu"), [0.0], iter("abc"), []

    def make():
        now[0] += 100.0
        return next(made)

    def solve(problem):
        now[0] += {"a": 8.0, "b": 6.0, "c": 7.0}[problem]
        solved.append(problem)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    assert gpu.setup_seconds(make, solve, iteration=1.0) == 5.0
    assert solved == ["a", "b", "c"]


def test_growth_finds_slopes(bench):
    growth = bench("growth")
    assert growth.slope([1, 10, 100], [2e-6, 2e-5, 2e-4]) == pytest.approx(1.0)
    sizes = [growth.Size(20, 4, 3), growth.Size(40, 4, 3)]
    for axis in growth.sweeps(100):
        *rows, last = growth.sweep(axis, sizes if axis == "agents" else [*sizes[:1], growth.Size(20, 8, 6)], repeats=1)
        assert len(rows) == 2
        assert last[0] == "slope"
    found = growth.large_run(50, 4, "PDS", iterations=2)
    assert found["gradients"] == 2
    assert set(found) == set(growth.large_run(50, 4, "AutoPDS", iterations=2))


def test_start_times_first_and_later_solves(bench):
    start, timing = bench("start"), bench("timing")
    for name in start.METHODS:
        found = start.first_and_later(name, repeats=1)
        assert found["first"] > 0 < found["later"]
    one = timing.fresh(str(BENCHMARKS / "start.py"), "--one", json.dumps(["NIDS", 1]))
    assert one["gradients"] == 40


def test_tables_show_what_they_are_given(bench, capsys):
    timing = bench("timing")
    timing.show("a title", ["what", "x"], [["one thing", "2.5"]])
    printed = capsys.readouterr().out.split()
    assert {"title", "what", "thing", "2.5"} <= set(printed)
    assert timing.best_mean(2, lambda: None, least=1e-4) > 0
    assert timing.copy_bandwidth(1, megabytes=1) > 0


def test_exact_sums_are_counted_and_timed(bench, capsys):
    exact_sums = bench("exact_sums")
    exact_sums.wall_time(agents=12, repeats=1)
    printed = capsys.readouterr().out
    for name in ("newton-cholesky", "Auto", "Newton", "LBFGS", "NIDS"):
        assert name in printed
    loss = gs.losses.LeastSquares(np.ones((4, 1)), np.arange(4.0), agents=4)
    best = gs.reference.reference(gs.Problem(loss)).objective
    reached, solution = exact_sums.spent(gs.Problem(loss), gs.Graph.ring(4), best)
    assert reached == ["2/12"] * 3
    assert solution.costs.hessians == 2


def test_sampled_gradients_are_timed(bench):
    row = bench("samples").speed_row(5, 8)
    assert row[:2] == ["5", "8"]
    assert all(float(figure) > 0 for figure in row[2:])
