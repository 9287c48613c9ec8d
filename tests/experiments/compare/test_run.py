"""Running comparisons: the figures of `solve`, in parallel, with failures and interruptions that cost nothing else."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import lru_cache

import numpy as np
import pytest
from comparisons import (
    MODULE,
    default_tasks,
    kept,
    methods,
    several,
    strict_json,
    with_misbehaving,
    without_processes,
    write_comparison,
)
from specs import exit_code, write_rows

import gradslide as gs
from gradslide.experiments.compare import run as running
from gradslide.experiments.compare.run import performed, run_comparison
from gradslide.experiments.compare.spec import read_comparison
from gradslide.experiments.compare.work import perform

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="signals differ there")


def compare(spec, out, processes=1, **options):
    """The comparison of a file, run in a folder."""
    parsed = read_comparison(spec)
    output = dataclasses.replace(parsed.output, dir=out)
    return run_comparison(dataclasses.replace(parsed, output=output, processes=processes), **options)


def named(found):
    return {outcome.method: outcome for outcome in found.outcomes}


def without_time(outcome):
    """All that must come out alike again, as JSON has it."""
    said = json.loads(json.dumps(dataclasses.asdict(outcome)))
    said["costs"].pop("seconds", None)
    said["curve"].pop("seconds", None)
    return said


# The figures

LOST = 0.3
SEEDS = (0, 1)
GRID = 2.0
METHODS = {"pds": gs.PDS, "nids": gs.NIDS, "dsgd": gs.DSGD}
CLOCKS = {"wan": gs.Clock.wan(), "own": gs.Clock(gradient=1.0, latency=0.5)}


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """Two conditions, three methods (one random), a grid, two clocks, two processes."""
    folder = tmp_path_factory.mktemp("figures")
    lossy = f'name = "lossy"\nkinds = [{{ kind = "lossy", lost = {LOST} }}]'
    spec = write_comparison(
        folder,
        top="version = 1\naccuracies = [1e-2, 1e-1]\ndisagreement_factor = 3.0\n"
        f"grid = [{GRID}]\nseeds = {list(SEEDS)}",
        condition=several("condition", 'name = "fair"', lossy),
        clock=several("clock", 'name = "wan"', 'name = "own"\ngradient = 1.0\nlatency = 0.5'),
        method=several("method", 'name = "pds"\ngrid = false', 'name = "nids"', 'name = "dsgd"\nbatch = 4'),
        limits="gradients = 300\nsamples = 400\nrounds = 2000",
    )
    return folder, compare(spec, folder / "out", processes=2)


@lru_cache
def naive(folder, condition, name, seed, step_size=None):
    """What each accuracy took, with all that is measured computed anew from the points and the rows."""
    features, targets = gs.data.read_svmlight(folder / "rows.svm")
    features, mu, m = features.toarray(), 0.1, 5
    best = np.linalg.solve(features.T @ features + m * mu * np.eye(4), features.T @ targets)

    def objective(x):
        return 0.5 * np.sum((features @ x - targets) ** 2) + m * mu / 2 * x @ x

    reached = {}

    def look(record, x):
        mean = x.mean(axis=0)
        error = (objective(mean) - objective(best)) / objective(best)
        disagreement = max(np.linalg.norm(row - mean) for row in x) / np.linalg.norm(best)
        for accuracy in (1e-1, 1e-2):
            if error <= accuracy and disagreement <= 3 * accuracy:
                reached.setdefault(accuracy, record)
        return len(reached) == 2

    graph = gs.Graph.ring(m)
    network = graph if condition == "fair" else gs.network.Lossy(graph, LOST, seed=seed)
    given = {"seed": seed, "batch": 4} if name == "dsgd" else {}
    if step_size is not None:
        given["step_size"] = step_size
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=m), mu=mu)
    stop = gs.Stop(gradients=300, samples=400, rounds=2000)
    solution = gs.solve(problem, network, METHODS[name](**given), stop=stop, callback=look, clock=CLOCKS)
    costs = ("gradients", "samples", "rounds", "control_rounds", "floats_sent", "simulated_seconds")
    records = [reached.get(accuracy) for accuracy in (1e-1, 1e-2)]
    found = [None if record is None else {cost: getattr(record, cost) for cost in costs} for record in records]
    return found, solution.parameters


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_costs_to_each_accuracy_are_those_of_solve(figures):
    folder, found = figures
    assert not found.interrupted
    assert found.is_complete
    assert found.comparison.accuracies == [1e-1, 1e-2]
    for outcome in found.outcomes:
        assert outcome.kind == "done"
        run = (folder, outcome.condition, outcome.method, outcome.seed)
        expected, parameters = naive(*run)
        if outcome.factor is not None:
            assert outcome.factor == GRID
            expected, _ = naive(*run, step_size=GRID * parameters["step_size"])
            assert outcome.parameters["step_size"] == GRID * parameters["step_size"]
        assert outcome.reached == expected
        assert outcome.rows == 8
    assert any(outcome.reached[-1] for outcome in found.outcomes)


def test_every_run_that_was_asked_for_was_made_once(figures):
    _, found = figures
    made = [(each.condition, each.method, each.seed, each.factor) for each in found.outcomes]
    fair = [("fair", "pds", 0, None)]
    fair += [("fair", "nids", 0, factor) for factor in (None, GRID)]
    fair += [("fair", "dsgd", seed, factor) for seed in SEEDS for factor in (None, GRID)]
    lossy = [("lossy", "pds", seed, None) for seed in SEEDS]
    lossy += [("lossy", name, seed, factor) for name in ("nids", "dsgd") for seed in SEEDS for factor in (None, GRID)]
    key = str
    assert sorted(made, key=key) == sorted(fair + lossy, key=key)


def test_what_is_measured_in_the_end_is_the_last_point_of_the_curve(figures):
    _, found = figures
    target = found.targets["squares"]
    features, targets = gs.data.read_svmlight(figures[0] / "rows.svm")
    best = np.linalg.solve((features.T @ features).toarray() + 0.5 * np.eye(4), features.T @ targets)
    assert target.size == pytest.approx(np.linalg.norm(best), rel=1e-6)
    for outcome in found.outcomes:
        curve = outcome.curve
        assert {len(column) for column in curve.values()} == {len(curve["error"])}
        assert curve["rounds"] == sorted(curve["rounds"])
        assert outcome.costs["rounds"] >= curve["rounds"][-1]
        if outcome.status == "CONVERGED":
            assert outcome.error <= 1e-2
            assert outcome.disagreement <= 3e-2
            assert outcome.reached[-1]["rounds"] == outcome.costs["rounds"]


def test_another_process_comes_to_the_same_bits(figures):
    folder, found = figures
    spec = read_comparison(folder / "small.toml")
    tasks = running.tasks_of(spec, found.targets, None)
    outcomes = {(each.condition, each.method, each.seed, each.factor): each for each in found.outcomes}
    for task in tasks:
        expected = outcomes[task.condition.name, task.method.name, task.seed, None]
        assert without_time(perform(task)) == without_time(expected)


def test_a_second_run_only_reads(figures, monkeypatch):
    folder, found = figures

    def never(*arguments):
        raise AssertionError("did something again")

    monkeypatch.setattr("gradslide.experiments.parallel.pool.ProcessPoolExecutor", never)
    monkeypatch.setattr(running.work, "reference", never)
    again = compare(folder / "small.toml", folder / "out")
    key = str
    assert sorted(map(without_time, again.outcomes), key=key) == sorted(map(without_time, found.outcomes), key=key)
    assert again.targets == found.targets


# Side by side


def test_runs_are_made_at_the_same_time_in_processes_of_their_own(tmp_path, monkeypatch):
    with_misbehaving(tmp_path, monkeypatch)
    one, other = (str(tmp_path / name) for name in ("one", "other"))
    pair = [(one, other), (other, one)]
    waiting = [f"name = 'waiting'\nlabel = '{i}'\nstarted = '{a}'\nuntil = '{b}'" for i, (a, b) in enumerate(pair)]
    spec = write_comparison(tmp_path, method=several("method", *waiting), limits="iterations = 2000")
    found = compare(spec, tmp_path / "out", processes=2)
    assert [outcome.parameters["met"] for outcome in found.outcomes] == [1.0, 1.0]
    processes = {outcome.parameters["process"] for outcome in found.outcomes}
    assert len(processes) == 2
    assert os.getpid() not in processes


# What goes wrong


def test_a_method_that_refuses_or_crashes_is_shown_and_stops_nobody(tmp_path, monkeypatch, capsys):
    with_misbehaving(tmp_path, monkeypatch)
    problem = 'name = "squares"\ndata = { file = "rows.svm", agents = 5 }\nloss = "least_squares"'
    spec = write_comparison(tmp_path, problem=problem, method=methods("crashing", "opapc", "nids"))
    assert exit_code("compare", spec, "--out", tmp_path / "out", "-j", 1) == 2
    outcomes = {
        each["method"]: each for each in strict_json((tmp_path / "out" / "comparison.json").read_text())["outcomes"]
    }
    assert {name: each["kind"] for name, each in outcomes.items()} == {
        "crashing": "failed",
        "opapc": "refused",
        "nids": "done",
    }
    assert outcomes["crashing"]["message"] == "ZeroDivisionError: nothing to divide by"
    assert "mu" in outcomes["opapc"]["message"]
    assert outcomes["nids"]["reached"][-1] is not None
    out = capsys.readouterr().out
    assert "crashing: failed: ZeroDivisionError: nothing to divide by" in out
    assert f"opapc: refused: {outcomes['opapc']['message']}" in out
    assert "Traceback" not in out
    assert set(kept(tmp_path / "out")) == {"nids", "opapc"}, "what failed is tried again"


def test_a_refusal_alone_is_no_failure(tmp_path, monkeypatch):
    without_processes(monkeypatch)
    problem = 'name = "squares"\ndata = { file = "rows.svm", agents = 5 }\nloss = "least_squares"'
    spec = write_comparison(tmp_path, problem=problem, method=methods("opapc"))
    assert exit_code("compare", spec, "-q", "-o", tmp_path / "out") == 0


@pytest.mark.slow
@needs_signals
def test_a_process_that_is_killed_takes_only_its_own_run_along(tmp_path, monkeypatch):
    with_misbehaving(tmp_path, monkeypatch)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    tasks = default_tasks(tmp_path, method=methods("nids", "dying", "extra", "dgd"), limits="iterations = 20")
    outcomes = []
    for _, outcome in performed(tasks, 2):
        # The other process dies meanwhile: what waits must not be lost with it.
        if not outcomes:
            time.sleep(2)
            assert os.environ["OMP_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "1"
        outcomes.append(outcome)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ
    assert len(outcomes) == 4
    assert {outcome.method: outcome.kind for outcome in outcomes} == {
        "nids": "done",
        "dying": "failed",
        "extra": "done",
        "dgd": "done",
    }
    dead = next(outcome for outcome in outcomes if outcome.method == "dying")
    assert dead.message == "the process that ran it died"


@needs_signals
def test_a_run_whose_process_is_killed_once_is_done_again(tmp_path, monkeypatch):
    with_misbehaving(tmp_path, monkeypatch)
    once = f"name = 'dying'\nonce = '{tmp_path / 'once'}'"
    spec = write_comparison(tmp_path, method=several("method", 'name = "nids"', once), limits="iterations = 20")
    found = compare(spec, tmp_path / "out")
    assert found.is_complete
    assert (tmp_path / "once").exists()
    assert {name: each.kind for name, each in named(found).items()} == {"nids": "done", "dying": "done"}
    assert set(kept(tmp_path / "out")) == {"nids", "dying"}


@needs_signals
def test_a_dead_process_is_shown_and_ends_with_2(tmp_path, monkeypatch, capsys):
    with_misbehaving(tmp_path, monkeypatch)
    spec = write_comparison(tmp_path, method=methods("dying"), limits="iterations = 20")
    assert exit_code("compare", spec, "-o", tmp_path / "out", "-j", 1) == 2
    captured = capsys.readouterr()
    assert "dying: failed: the process that ran it died" in captured.out
    assert "Traceback" not in captured.out + captured.err
    assert kept(tmp_path / "out") == {}


# Going on

STEPS = [0.01 * k for k in range(1, 9)]
DAMAGE = [b"", b"{", b"[1]", b"{}", b'{"nonsense": 1}', b"\xff"]


def poison(path):
    said = json.loads(path.read_text())
    said["error"] = 123.0
    path.write_text(json.dumps(said))


@pytest.fixture(scope="module")
def half_done(tmp_path_factory):
    """A comparison of which one outcome is changed, one is missing and the others are damaged, continued; and anew."""
    folder = tmp_path_factory.mktemp("half")
    labels = [f"step {k}" for k in range(len(STEPS))]

    def write(labels):
        bodies = [
            f'name = "nids"\nlabel = "{label}"\nstep_size = {step}' for label, step in zip(labels, STEPS, strict=True)
        ]
        return write_comparison(folder, method=several("method", *bodies))

    with pytest.MonkeyPatch.context() as patch:
        without_processes(patch)
        return thrice(folder, labels, write)


def thrice(folder, labels, write):
    first = compare(write(labels), folder / "out")
    files = kept(folder / "out")
    poison(files["step 0"][0])
    files["step 1"][0].unlink()
    for label, damage in zip(labels[2:], DAMAGE, strict=True):
        files[label][0].write_bytes(damage)
    renamed = [label.replace("step 0", "renamed") for label in labels]
    second = compare(write(renamed), folder / "out")
    third = compare(write(labels), folder / "out", fresh=True)
    return first, second, third


def test_what_is_kept_is_not_done_again_whatever_it_is_called_now(half_done):
    first, second, _ = half_done
    poisoned = named(second)["renamed"]
    assert poisoned.error == 123.0
    assert poisoned.reached == named(first)["step 0"].reached
    assert "step 0" not in named(second)


def test_what_is_damaged_or_missing_is_done_again(half_done):
    first, second, _ = half_done
    for k in range(1, len(STEPS)):
        assert without_time(named(second)[f"step {k}"]) == without_time(named(first)[f"step {k}"])


def test_fresh_does_everything_again(half_done):
    first, _, third = half_done
    for label, outcome in named(first).items():
        assert without_time(named(third)[label]) == without_time(outcome)


def test_other_contents_of_a_file_are_another_comparison(tmp_path, monkeypatch):
    without_processes(monkeypatch)
    write_rows(tmp_path)
    (tmp_path / "net.edges").write_text("0 1\n1 2\n2 3\n3 4\n")
    tables = {"network": 'file = "net.edges"', "limits": "iterations = 3"}
    first = compare(write_comparison(tmp_path, **tables), tmp_path / "out")
    write_rows(tmp_path, seed=1)
    second = compare(write_comparison(tmp_path, **tables), tmp_path / "out")
    assert second.targets["squares"].objective != first.targets["squares"].objective
    assert second.outcomes[0].curve["error"] != first.outcomes[0].curve["error"]
    (tmp_path / "net.edges").write_text("0 1\n1 2\n2 3\n3 4\n4 0\n")
    third = compare(write_comparison(tmp_path, **tables), tmp_path / "out")
    assert third.targets == second.targets
    assert third.outcomes[0].curve["disagreement"] != second.outcomes[0].curve["disagreement"]


# Ctrl-C


def in_a_group(folder, *arguments):
    """The command in a process group of its own, as a terminal starts it."""
    return subprocess.Popen(
        [*MODULE, "compare", *map(str, arguments)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_all(process):
    """Nothing that it started is left behind, whatever happened."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def wait_for(path, process):
    deadline = time.monotonic() + 90
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@needs_signals
def test_ctrl_c_ends_soon_keeps_what_is_done_and_goes_on_later(tmp_path, monkeypatch):
    with_misbehaving(tmp_path, monkeypatch)
    started, until = tmp_path / "started", tmp_path / "until"
    waiting = f"name = 'waiting'\nstarted = '{started}'\nuntil = '{until}'"
    table = several("method", 'name = "nids"', waiting, 'name = "extra"')
    spec = write_comparison(tmp_path, method=table, limits="iterations = 10000", output='dir = "out"\nplot = false')
    process = in_a_group(tmp_path, spec, "--processes", 1)
    try:
        wait_for(started, process)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=90)
    finally:
        end_all(process)
    assert process.returncode == 2, err
    assert "Traceback" not in out + err
    assert "interrupted: the same command goes on from here" in out
    partial = strict_json((tmp_path / "out" / "comparison.json").read_text())
    assert partial["interrupted"] is True
    assert [outcome["method"] for outcome in partial["outcomes"]] == ["nids"]
    assert "interrupted" in (tmp_path / "out" / "report.txt").read_text()

    assert list(kept(tmp_path / "out")) == ["nids"]
    poison(kept(tmp_path / "out")["nids"][0])
    until.touch()
    done = in_a_group(tmp_path, spec, "--processes", 1, "--quiet")
    assert done.communicate(timeout=90) == ("", "")
    assert done.returncode == 0
    whole = strict_json((tmp_path / "out" / "comparison.json").read_text())
    assert whole["interrupted"] is False
    assert {outcome["method"]: outcome["kind"] for outcome in whole["outcomes"]} == dict.fromkeys(
        ("nids", "waiting", "extra"), "done"
    )
    assert whole["outcomes"][0]["error"] == 123.0, "what was done before was not done again"


@pytest.mark.slow
@needs_signals
def test_processes_end_with_the_comparison_that_started_them(tmp_path, monkeypatch):
    with_misbehaving(tmp_path, monkeypatch)
    started = tmp_path / "started"
    waiting = f"name = 'waiting'\nstarted = '{started}'\nuntil = '{tmp_path / 'never'}'"
    spec = write_comparison(tmp_path, method=waiting, limits="iterations = 10000", output='dir = "out"')
    process = in_a_group(tmp_path, spec, "--processes", 1)
    try:
        wait_for(started, process)
        process.send_signal(signal.SIGKILL)
        # Its pipes are closed when all that inherited them are gone.
        process.communicate(timeout=60)
    finally:
        end_all(process)
    assert process.returncode == -signal.SIGKILL


def test_ctrl_c_while_the_optimum_is_found_shows_no_traceback(tmp_path, monkeypatch, capsys):
    def press(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(running.work, "reference", press)
    assert exit_code("compare", write_comparison(tmp_path), "-q", "-o", tmp_path / "out") == 2
    assert "Traceback" not in capsys.readouterr().err
