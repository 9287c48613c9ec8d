"""A whole network of processes on this machine: the answers of the simulation, rows that stay, nobody left behind."""

import json
import os
import re
import signal
import stat
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from agent_folders import started
from specs import exit_code, write_spec

import gradslide as gs
from gradslide.experiments.agent.local import folders
from gradslide.experiments.agent.spec import read_agent

ENDLESS = {"method": 'name = "condat_vu"', "stop": "iterations = 10000000"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def processes_of(folder):
    """The processes of agents whose files are in this folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            found |= {Path(os.fsdecode(word)).parent.name: int(entry.name) for word in words if _is_in(word, folder)}
    return found


def _is_in(word, folder):
    return word.endswith(b"AGENT.toml") and word.startswith(os.fsencode(folder))


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def logs(folder):
    return [log.read_text() for log in folder.glob("out/agents/*/agent-*/results/agent.log")]


def all_met(folder, agents):
    return sum("knows the network" in log for log in logs(folder)) == agents


# Answers


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """One spec, by processes and simulated; two networks, so that one comes after the other."""
    folder = tmp_path_factory.mktemp("both")
    networks = '[[network]]\ntopology = "ring"\n[[network]]\ntopology = "star"'
    spec = write_spec(
        folder,
        data='file = "rows.svm"\nagents = 3\nsplit = "sorted"',
        problem='loss = "logistic"\nmu = 0.1\ndomain = { set = "l2_ball", radius = 2.0 }',
        network=networks,
        stop="iterations = 12",
    )
    with started("local", spec, "--peers", "--keep", "--out", folder / "out") as process:
        said = process.communicate(timeout=100)
    assert exit_code("run", spec, "--quiet", "--out", folder / "simulated") == 0
    return folder, process.returncode, said


def test_processes_find_what_the_simulation_finds(both):
    folder, code, said = both
    assert code == 0, said
    for network in ("ring", "star"):
        found, simulated = (gs.load(folder / place / f"{network}.solution.npz") for place in ("out", "simulated"))
        np.testing.assert_allclose(found.x, simulated.x, atol=1e-12)
        np.testing.assert_allclose(found.dual, simulated.dual, atol=1e-9)
        assert found.status is simulated.status
        assert (found.costs.gradients, found.costs.rounds) == (simulated.costs.gradients, simulated.costs.rounds)
        assert found.costs.floats_sent == simulated.costs.floats_sent
        measured, expected = found.history[-1], simulated.history[-1]
        for name in ("objective", "local_objective", "disagreement", "residual", "mean_norm"):
            assert getattr(measured, name) == pytest.approx(getattr(expected, name), rel=1e-9)
        assert all(record.objective is None for record in found.history[:-1]), "no agent saw it along the way"


def test_the_usual_table_is_printed_and_written(both):
    folder, _, (out, err) = both
    for words in (
        "ring",
        "star",
        "gradients",
        "control",
        "objective",
        "disagreement",
        "iteration limit",
        "out/results.json",
    ):
        assert words in out
    assert "ring: 3 processes" in err
    told = json.loads((folder / "out" / "results.json").read_text())
    assert [run["network"] for run in told["runs"]] == ["ring", "star"]
    assert f"{folder / 'out' / 'agents'}" in out


def test_each_agent_was_given_its_own_rows_alone(both):
    folder = both[0]
    given = []
    for agent in range(3):
        own = folder / "out" / "agents" / "ring" / f"agent-{agent}"
        if sys.platform != "win32":
            assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert sorted(path.name for path in own.iterdir()) == [
            *("AGENT.toml", f"agent-{agent}.public", f"agent-{agent}.secret", "results", "rows.npz")
        ]
        given.append(folders.build_from_rows(own)[0].rows_per_agent.tolist())
    assert given == [[14], [13], [13]]


def test_agents_are_numbered_as_the_data_are(both):
    folder = both[0]
    for agent in range(3):
        own = folder / "out" / "agents" / "star" / f"agent-{agent}"
        assert gs.load(own / "results" / "solution.npz").agents[0] == agent
        spec = read_agent(own / "AGENT.toml")
        assert {neighbour.name for neighbour in spec.neighbours} == (
            {"agent-1", "agent-2"} if agent == 0 else {"agent-0"}
        )


def test_kept_folders_are_not_written_into_again(both, capsys):
    folder = both[0]
    assert exit_code("local", folder / "small.toml", "--peers", "--keep", "--out", folder / "out") == 1
    assert "the agents' folders must not be there yet" in capsys.readouterr().err


@pytest.mark.slow
def test_classes_are_counted_over_all_agents(tmp_path):
    """An agent that lacks a class still knows how the others number theirs."""
    with (tmp_path / "three.svm").open("w") as file:
        file.writelines(f"{label} 1:{value} 2:1\n" for label, value in ((3, 0.5), (5, 1.0), (5, 2.0), (9, 3.0)))
    spec = write_spec(
        tmp_path,
        data='file = "three.svm"\nagents = 2',
        problem='loss = "softmax"\nclasses = 3\nmu = 0.1',
        network='topology = "path"',
        stop="iterations = 3",
    )
    with started("local", spec, "--peers", "--json", "--out", "out") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert exit_code("run", spec, "--quiet", "--out", "simulated") == 0
    simulated = json.loads((tmp_path / "simulated" / "results.json").read_text())
    np.testing.assert_allclose(json.loads(out)["runs"][0]["mean"], simulated["runs"][0]["mean"], atol=1e-12)
    assert not (tmp_path / "out" / "agents").exists()


# Mistakes


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data": 'name = "misfire"\nagents = 100'}, "takes 2 to 64 agents; got agents = 100; `gradslide run`"),
        ({"stop": "objective = 1.0"}, "takes no objective: no agent sees all of the others"),
        ({"method": 'name = "pds"\nR = "theory"'}, "R of agents in processes of their own must be a number"),
        ({"network": 'file = "heavy.edges"'}, "peers know their neighbours, but no weights of edges"),
    ],
)
def test_mistakes_are_found_before_anything_starts(tmp_path, capsys, changed, message):
    (tmp_path / "heavy.edges").write_text("0 1 2.0\n1 2 1.0\n2 3 1.0\n3 4 1.0\n")
    assert exit_code("local", write_spec(tmp_path, **changed), "--peers") == 1
    assert message in capsys.readouterr().err


def test_a_mistake_that_only_agents_find_is_told_with_the_log(tmp_path):
    spec = write_spec(
        tmp_path, data='file = "rows.svm"\nagents = 2', method='name = "opapc"', network='topology = "path"'
    )
    with started("local", spec, "--peers", "--quiet") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert re.match("error: agent-[01] failed with exit code 1; the last lines of its log:\n", err)
    assert "error: OPAPC needs mu > 0" in err
    assert "Traceback" not in err


# Ends


needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks at /proc")


@pytest.mark.slow
@needs_proc
def test_ctrl_c_ends_all_with_what_was_reached(tmp_path):
    spec = write_spec(tmp_path, data='file = "rows.svm"\nagents = 3', **ENDLESS)
    with started("local", spec, "--peers", "--keep", "--out", tmp_path / "out") as process:
        wait_for(lambda: all_met(tmp_path, 3))
        time.sleep(0.5)
        assert len(processes_of(tmp_path)) == 3
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 2, err
    assert "interrupted" in out
    assert "Traceback" not in err
    assert not processes_of(tmp_path)
    solution = gs.load(tmp_path / "out" / "ring.solution.npz")
    assert solution.x.shape == (3, 4)
    assert solution.history[-1].objective is not None


@pytest.mark.slow
@needs_proc
def test_a_killed_agent_is_named_and_nobody_is_left(tmp_path):
    spec = write_spec(tmp_path, data='file = "rows.svm"\nagents = 3', **ENDLESS)
    with started("local", spec, "--peers", "--keep", "--out", tmp_path / "out") as process:
        wait_for(lambda: all_met(tmp_path, 3))
        os.kill(processes_of(tmp_path)["agent-1"], signal.SIGKILL)
        _, err = process.communicate(timeout=40)
    assert process.returncode == 2
    assert "error: agent-1 was killed by signal 9; the last lines of its log:" in err
    assert "agent agent-1 starts run" in err
    assert "Traceback" not in err
    assert not processes_of(tmp_path)


@needs_proc
def test_agents_do_not_outlive_who_started_them(tmp_path):
    spec = write_spec(tmp_path, data='file = "rows.svm"\nagents = 3', **ENDLESS)
    with started("local", spec, "--peers", "--keep", "--out", tmp_path / "out") as process:
        wait_for(lambda: len(processes_of(tmp_path)) == 3)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
    wait_for(lambda: not processes_of(tmp_path), seconds=10)
