"""Runs in several processes: they end together, whatever ends them, and go on from checkpoints with any number."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from mpi_tasks import GRAPHS, METHODS, alone, command, environment, needs_mpi, start, stop_of, together, whole_problem

import gradslide as gs
from gradslide._support import storage

pytestmark = needs_mpi

AUTO = {"name": "auto", "method": "AutoPDS", "graph": "random", "mu": 0.01, "stop": {"iterations": 60}}


# ---- they end together


ENDINGS = [
    {**AUTO, "name": "gap", "stop": {"gap": {"relative": 1e-4}, "iterations": 500}},
    {**AUTO, "name": "kkt", "domain": "own boxes", "stop": {"kkt": {"relative": 1e-3}, "iterations": 500}},
    {**AUTO, "name": "rounds", "stop": {"rounds": 77}},
    {**AUTO, "name": "gradients", "method": "ADMM", "stop": {"gradients": 200}},
    {**AUTO, "name": "callback", "callback": {"rank": 2, "iteration": 17}},
    {**AUTO, "name": "time", "stop": {"seconds": 0.3}},
    {**AUTO, "name": "wild", "method": "DGD wild", "domain": "free"},
    {**AUTO, "name": "stream", "method": "SPDS", "stream": 500, "stop": {"iterations": 10_000}},
]


@pytest.fixture(scope="module")
def last_steps():
    """A run to a point that its last steps have to reach."""
    optimum = alone({**AUTO, "stop": {"gap": {"relative": 1e-6}, "iterations": 2000}}).history[-1].objective
    stop = {"objective": optimum * 1.01, "disagreement": 1e-3, "iterations": 500}
    return {**AUTO, "name": "last steps", "record_every": 1, "stop": stop}


@pytest.fixture(scope="module")
def found(last_steps, tmp_path_factory):
    """All runs that end in some way, one after the other in the same three processes."""
    return together([last_steps, *ENDINGS], 3, tmp_path_factory.mktemp("endings"))


def test_targets_and_limits_end_all_at_the_same_iteration(last_steps, found):
    for task in (last_steps, *ENDINGS[:4]):
        many, one = found[task["name"]][0], alone(task)
        assert many.status is one.status, task["name"]
        assert len(many.history) > 0
        assert many.history[-1].iteration == one.history[-1].iteration, task["name"]
        assert np.array_equal(many.x, one.x), task["name"]
    assert found["gap"][0].status is gs.Status.CONVERGED
    assert found["kkt"][0].status is gs.Status.STATIONARY
    assert found["last steps"][0].status is gs.Status.CONVERGED
    assert found["gradients"][0].status is gs.Status.GRADIENT_LIMIT


def test_a_callback_in_one_process_and_the_time_limit_end_all(found):
    stopped, _ = found["callback"]
    assert stopped.status is gs.Status.STOPPED
    assert stopped.history[-1].iteration == 17
    assert np.array_equal(stopped.x, alone({**AUTO, "stop": {"iterations": 17}}).x)
    late, _ = found["time"]
    assert late.status is gs.Status.TIME_LIMIT
    assert np.array_equal(late.x, alone({**AUTO, "stop": {"iterations": late.history[-1].iteration}}).x)


@pytest.mark.slow
def test_streams_that_fail_in_different_ways_end_all_alike(tmp_path):
    """One ends where another is still waited for when time is up."""
    task = {**AUTO, "name": "stream", "method": "SPDS", "stream": 500, "slow": 9, "stop": {"seconds": 2.0}}
    many, owners = together([task], 2, tmp_path, timeout=60)["stream"]
    assert owners[5] != owners[9]
    assert many.status is gs.Status.TIME_LIMIT


def test_what_stops_a_run_comes_before_what_limits_it():
    solution = gs.solve(
        whole_problem(AUTO),
        GRAPHS["random"],
        gs.PDS(),
        stop=gs.Stop(gradients=3),
        callback=lambda record, x: record.gradients >= 3,
    )
    assert solution.status is gs.Status.STOPPED


def test_a_run_that_diverges_in_one_place_ends_everywhere(found):
    many, _ = found["wild"]
    assert many.status is gs.Status.DIVERGED


def test_ctrl_c_in_one_process_ends_all_after_the_same_iteration(tmp_path):
    task = {**AUTO, "name": "pressed", "method": "PDS", "stop": {"iterations": 10**6}, "announce": True}
    process = launched([task], 3, tmp_path)
    # The signal goes to one process only.
    os.kill(rank_of(tmp_path, 1, process), signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    many = gs.load(tmp_path / "pressed.npz")
    assert many.status is gs.Status.INTERRUPTED
    iteration = many.history[-1].iteration
    assert iteration < 10**6
    assert np.array_equal(many.x, alone({**task, "stop": {"iterations": iteration}}).x)


def test_a_stream_that_ends_in_one_process_ends_all(found):
    many, _ = found["stream"]
    assert many.status is gs.Status.STREAM_ENDED
    assert many.settings["ended_by"].startswith("the stream of agent 5")


# ---- checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("stages", [[(3, 15), (2, 30)], [(3, 15), (2, 30), (4, 45), (3, 60)]], ids=len)
@pytest.mark.parametrize("method", ["AutoPDS", "PDS", "SPDS", "NIDS", "LBFGS"])
def test_a_run_goes_on_with_another_number_of_processes(method, stages, tmp_path):
    path = tmp_path / "run.npz"
    task = {**AUTO, "method": method, "checkpoint": str(path)}
    expected = alone({**task, "stop": {"iterations": stages[-1][1]}})
    for ranks, iterations in stages:
        ran = together([{**task, "stop": {"iterations": iterations}}], ranks, tmp_path / str(ranks))["auto"][0]
        assert ran.history[-1].iteration == iterations
    assert_same_end(ran, expected)


@pytest.mark.parametrize("kind", [{}, {"rows": "unequal"}, {"mixed": True}], ids=str)
def test_one_process_and_several_go_on_from_each_other(kind, tmp_path):
    path, task = tmp_path / "run.npz", {**AUTO, **kind}
    expected = alone(task)
    problem, graph, method = whole_problem(task), GRAPHS["random"], METHODS["AutoPDS"]
    gs.solve(problem, graph, method, stop=gs.Stop(iterations=20), checkpoint=path, record_every=20)
    half = {**task, "checkpoint": str(path), "stop": {"iterations": 40}}
    assert together([half], 2, tmp_path / "2")["auto"][0].history[-1].iteration == 40
    ended = gs.solve(problem, graph, method, stop=stop_of(task), checkpoint=path, record_every=20)
    assert_same_end(ended, expected)
    assert [other.name for other in sorted(tmp_path.glob("run*"))] == ["run.npz"]


@pytest.mark.parametrize("name", ["gap", "kkt"])
def test_one_process_and_several_go_on_from_each_other_amid_late_checks(name, tmp_path):
    """Their sums, and what is kept for each agent, change hands."""
    path = tmp_path / "run.npz"
    (task,) = (each for each in ENDINGS if each["name"] == name)
    task = {**task, "checkpoint": str(path)}
    problem, graph, method = whole_problem(task), GRAPHS["random"], METHODS["AutoPDS"]
    expected = alone(task)
    assert expected.status in (gs.Status.CONVERGED, gs.Status.STATIONARY)
    assert expected.history[-1].iteration > 13
    stop = {**task["stop"], "iterations": 7}
    gs.solve(problem, graph, method, stop=stop_of({"stop": stop}), checkpoint=path, record_every=20)
    late = storage.checkpoint_memory(path)["checks"]["late"]
    assert len(late) > 0
    half = {**task, "stop": {**stop, "iterations": 13}}
    assert together([half], 2, tmp_path / "2")[name][0].history[-1].iteration == 13
    ended = gs.solve(problem, graph, method, stop=stop_of(task), checkpoint=path, record_every=20)
    assert_same_end(ended, expected)
    assert ended.history[-1].iteration == expected.history[-1].iteration


@pytest.mark.slow
def test_a_killed_run_goes_on_from_the_newest_common_iteration(tmp_path):
    """Killed at some moment, with checkpoints after every iteration."""
    rng = np.random.default_rng(8)
    task = {**AUTO, "checkpoint": str(tmp_path / "run.npz"), "checkpoint_seconds": 0.0, "stop": {"iterations": 400}}
    process = launched([{**task, "announce": True}], 3, tmp_path / "kill")
    victim = rank_of(tmp_path / "kill", int(rng.integers(3)), process)
    time.sleep(float(rng.uniform(0.1, 0.6)))
    os.kill(victim, signal.SIGKILL)
    process.communicate(timeout=60)
    assert not (tmp_path / "kill" / "auto.npz").exists(), "it ended before it was killed"
    ended = together([task], 3, tmp_path / "end")["auto"][0]
    assert_same_end(ended, alone({**AUTO, "stop": {"iterations": 400}}))


def assert_same_end(ran, expected):
    assert ran.status is expected.status
    for name, x in expected.outputs.items():
        assert np.array_equal(ran.outputs[name], x), name
    for spent in ("gradients", "samples", "rounds", "control_rounds", "floats_sent"):
        assert getattr(ran.costs, spent) == getattr(expected.costs, spent), spent


def launched(tasks, ranks, folder):
    """A program on its way."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "tasks.json").write_text(json.dumps(tasks))
    return subprocess.Popen(
        command(ranks, ["mpi_program.py", str(folder / "tasks.json"), str(folder)]),
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def rank_of(folder, rank, process):
    """The number of a process of the run, once it is under way."""
    path = folder / f"pid.{rank}"
    deadline = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(path.read_text())


# ---- refusals


def test_what_cannot_be_done_in_several_processes_is_refused(tmp_path):
    done = start(2, ["mpi_refusals.py", str(tmp_path / "said.json")], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    for name, words in {
        "condition": ["all agents in one process"],
        "clock": ["all agents in one process", "6 of 12"],
        "whole problem": ["12 and 6", "problem.take(network.agents)"],
        "too few agents": ["1 agents, 2 processes", "start fewer"],
        "other graph": ["the same graph"],
        "other method": ["the same method"],
        "other stop": ["the same method, stop"],
        "own sets": ["one domain for all agents", "use kkt"],
    }.items():
        for word in words:
            assert word in said[name], (name, said[name])
