"""Agents from the command line, as those who run them meet it: keys, files, results, exit codes, mistakes."""

import csv
import json
import re
import signal
import stat
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from agent_folders import all_ended, started, write_agents
from specs import exit_code

import gradslide as gs
from gradslide.network.peers.errors import LinksEnded
from gradslide.network.peers.keys import read_secret


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# Keys


def test_new_keys_are_told_and_the_secret_is_nobody_elses(tmp_path, capsys):
    assert exit_code("keys", "new", "north", "--folder", "site") == 0
    pair = read_secret(tmp_path / "site" / "north.secret")
    said = capsys.readouterr().out
    assert f'public_key = "{pair.public}"' in said
    assert "north.secret" in said
    assert pair.secret not in said
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "site" / "north.secret").stat().st_mode) == 0o600
    assert exit_code("keys", "show", "site/north.secret") == 0
    assert capsys.readouterr().out.strip() == pair.public == (tmp_path / "site" / "north.public").read_text().strip()


def test_keys_are_never_overwritten(tmp_path, capsys):
    assert exit_code("keys", "new", "north") == 0
    before = (tmp_path / "north.secret").read_text()
    assert exit_code("keys", "new", "north") == 1
    assert "a key is never overwritten" in capsys.readouterr().err
    assert (tmp_path / "north.secret").read_text() == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["keys", "new", "../north"], "a key's name must be a plain file name"),
        (["keys", "show", "nobody.secret"], "must hold a secret key"),
        (["agent"], "an agent needs its file; got AGENT.toml, which does not exist"),
        (
            ["local", "SPEC.toml"],
            "local needs --peers, one process for each agent; got none; `gradslide run SPEC.toml`",
        ),
        (["local", "SPEC.toml", "--peers"], "the spec must be a readable TOML file"),
    ],
)
def test_mistakes_are_one_line(command, message, capsys):
    assert exit_code(*command) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


def test_without_the_extra_it_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for command in (["keys", "new", "x"], ["agent"], ["local", "SPEC.toml", "--peers"]):
        assert exit_code(*command) == 1
        assert (
            "need the extra 'peers'; got no cryptography; in a checkout of gradslide: pip install '.[peers]'"
            in capsys.readouterr().err
        )


# The template


def test_init_writes_the_template_and_says_what_comes_next(tmp_path, capsys):
    assert exit_code("agent", "--init") == 0
    said = capsys.readouterr().out
    assert "gradslide keys new NAME" in said
    assert "gradslide agent AGENT.toml" in said
    assert tmp_path.joinpath("AGENT.toml").read_text().startswith("# One agent")
    assert exit_code("agent", "--init") == 1
    assert "--init overwrites nothing; got AGENT.toml, which exists" in capsys.readouterr().err


def test_the_template_can_be_filled_in_as_it_tells(tmp_path, capsys):
    """Its own mistakes come one after the other, each with its remedy."""
    assert exit_code("agent", "--init") == 0
    assert exit_code("agent") == 1
    assert "gradslide keys new NAME" in capsys.readouterr().err
    assert exit_code("keys", "new", "north") == 0
    assert exit_code("agent") == 1
    assert "copy it from the neighbour's NAME.public" in capsys.readouterr().err


# A mistake of the user's own


def test_an_error_in_the_builder_is_shown_with_the_users_lines(tmp_path, capsys):
    (file, _) = write_agents(tmp_path)
    (tmp_path / "a" / "mine.py").write_text("def build():\n    return patients['age']\n")
    assert exit_code("agent", file) == 1
    said = capsys.readouterr().err
    assert 'mine.py", line 2, in build' in said
    assert said.endswith("error: the builder mine.py:build failed: NameError: name 'patients' is not defined\n")
    assert "NameError" in (tmp_path / "a" / "results" / "agent.log").read_text()


def test_a_failure_of_the_links_is_one_line(tmp_path, monkeypatch, capsys):
    (file, _) = write_agents(tmp_path)

    @contextmanager
    def fail(*given, **named):
        raise LinksEnded("the thread of the links has ended (ZeroDivisionError: odd)")
        yield

    monkeypatch.setattr("gradslide.experiments.agent.run.running_agent", fail)
    assert exit_code("agent", file) == 2
    assert capsys.readouterr().err == "error: the thread of the links has ended (ZeroDivisionError: odd)\n"


# Real runs


@pytest.fixture(scope="module")
def two_agents(tmp_path_factory):
    """Two agents, each its own process, and where they live."""
    folder = tmp_path_factory.mktemp("two")
    return folder, all_ended(write_agents(folder, stop="gap = { relative = 1e-6 }\niterations = 2000"))


def test_each_agent_ends_with_its_own_results(two_agents):
    folder, ended = two_agents
    for name, (code, out, err) in zip("ab", ended, strict=True):
        assert code == 0, err
        for words in ("every target was reached", "gradients", "rounds", "control rounds", "floats sent", "gap"):
            assert words in out
        results = folder / name / "results"
        for file in ("solution.npz", "result.json", "history.csv", "agent.log"):
            assert (results / file).exists()
            assert f"{results / file}" in out
        assert (results / "checkpoint.npz").exists()
        solution = gs.load(results / "solution.npz")
        assert solution.x.shape == (1, 2)
        told = json.loads((results / "result.json").read_text())
        assert (told["name"], told["run"], told["agents"], told["status"]) == (name, "trial", 2, "CONVERGED")
        np.testing.assert_allclose(told["x"], solution.x[0])
        with (results / "history.csv").open() as lines:
            assert [int(row["rounds"]) for row in csv.DictReader(lines)] == told["history"]["rounds"]
        log = (results / "agent.log").read_text()
        assert f"agent {name} starts run trial" in log
        assert f"agent {name} ends: every target was reached" in log


def test_together_they_found_the_optimum(two_agents):
    folder, _ = two_agents
    numbers = set()
    for name in "ab":
        solution = gs.load(folder / name / "results" / "solution.npz")
        # The mean of the two linear terms over the common quadratic one.
        np.testing.assert_allclose(np.abs(solution.x), [[0.25, 1.0]], atol=1e-2)
        numbers.update(solution.agents)
    assert numbers == {0, 1}


def test_quiet_and_json(tmp_path):
    files = write_agents(tmp_path)
    with started("agent", files[0], "--quiet") as quiet, started("agent", files[1], "--json", "--out", "there") as told:
        assert quiet.communicate(timeout=60) == ("", "")
        out, _ = told.communicate(timeout=60)
    assert quiet.returncode == told.returncode == 0
    assert json.loads(out) == json.loads((tmp_path / "there" / "result.json").read_text())


def test_a_limit_before_the_targets_is_stopping_short(tmp_path):
    files = write_agents(tmp_path, stop="gap = { relative = 1e-12 }\niterations = 3")
    assert [code for code, _, _ in all_ended(files, "--quiet")] == [2, 2]


@pytest.mark.slow
def test_what_was_done_is_not_done_again_unless_it_is_asked_for(tmp_path):
    files = write_agents(tmp_path)
    first = [gs.load(path) for path in _solutions(files, "--quiet")]
    again = [gs.load(path) for path in _solutions(files, "--quiet")]
    assert [solution.costs.seconds for solution in again] == [solution.costs.seconds for solution in first]

    data = tmp_path / "a" / "mine.py"
    data.write_text(data.read_text().replace("0.0, 1.0]]", "0.0, 3.0]]"))
    ((code, _, err),) = all_ended(files[:1], "--quiet")
    assert code == 1
    assert "checkpoint.npz must belong to this run; got another data" in err
    assert "--fresh" in err
    afresh = [gs.load(path) for path in _solutions(files, "--quiet", "--fresh")]
    assert not np.allclose(afresh[0].x, first[0].x)


def test_another_run_starts_anew_and_the_old_checkpoint_is_set_aside(tmp_path):
    """Also with other data at one site, which the old checkpoint does not fit."""
    files = write_agents(tmp_path)
    first = [gs.load(path) for path in _solutions(files, "--quiet")]
    data = tmp_path / "a" / "mine.py"
    data.write_text(data.read_text().replace("0.0, 1.0]]", "0.0, 3.0]]"))
    for file in files:
        file.write_text(file.read_text().replace('run = "trial"', 'run = "second trial"'))
    second = [gs.load(path) for path in _solutions(files, "--quiet")]
    assert not np.allclose(first[0].x, second[0].x)
    for file in files:
        folder = file.parent / "results"
        assert (folder / "checkpoint.1.npz").exists()
        assert "the checkpoint of run trial is kept as checkpoint.1.npz" in (folder / "agent.log").read_text()
        assert json.loads((folder / "result.json").read_text())["run"] == "second trial"
        assert not (folder / "checkpoint.run").exists(), "the checkpoint itself says of which run it is"


def _solutions(files, *options):
    assert [(code, err) for code, _, err in all_ended(files, *options)] == [(0, "")] * len(files)
    return [file.parent / "results" / "solution.npz" for file in files]


def test_neighbours_with_other_settings_are_told_apart(tmp_path):
    files = write_agents(tmp_path)
    files[1].write_text(files[1].read_text().replace("iterations = 20", "iterations = 21"))
    for code, _, err in all_ended(files, "--quiet"):
        assert code == 2
        assert err.startswith("error: neighbour ")
        assert "settings differ: stop.iterations (2" in err
        assert "Traceback" not in err


def test_a_neighbour_that_never_comes_is_named(tmp_path):
    files = write_agents(tmp_path, deadline=1)
    ((code, _, err),) = all_ended(files[:1], "--quiet")
    assert code == 2
    assert err.startswith("error: neighbour b: no handshake came")
    assert "never heard from" in err
    assert "b: " in (tmp_path / "a" / "results" / "agent.log").read_text()


def test_ctrl_c_at_one_site_ends_all_in_order(tmp_path):
    """With what had been reached; and the same command goes on from there."""
    endless = "iterations = 1000000"
    files = write_agents(tmp_path, stop=endless)
    with started("agent", files[0]) as one, started("agent", files[1]) as other:
        log = tmp_path / "a" / "results" / "agent.log"
        _wait_for(lambda: log.exists() and "knows the network" in log.read_text())
        time.sleep(0.5)
        one.send_signal(signal.SIGINT)
        said = [process.communicate(timeout=30) for process in (one, other)]
        assert [one.returncode, other.returncode] == [2, 2], said
    assert all("interrupted from the keyboard" in out for out, _ in said)
    reached = [gs.load(file.parent / "results" / "solution.npz") for file in files]
    iterations = {solution.history[-1].iteration for solution in reached}
    assert len(iterations) == 1

    (more,) = iterations
    for file in files:
        file.write_text(file.read_text().replace(endless, f"iterations = {more + 10}"))
    assert [code for code, _, _ in all_ended(files, "--quiet")] == [0, 0]
    assert gs.load(files[0].parent / "results" / "solution.npz").history[-1].iteration == more + 10


@pytest.mark.slow
def test_a_killed_agent_is_waited_for_and_goes_on(tmp_path):
    """Its neighbour notices, waits, and both end with what they would have found without the accident."""
    files = write_agents(tmp_path, stop="iterations = 2000")
    for file in files:
        file.write_text(file.read_text() + "[output]\ncheckpoint_seconds = 0.1\n")
    with started("agent", files[0], "--quiet") as one:
        with started("agent", files[1], "--quiet") as other:
            _wait_for((tmp_path / "b" / "results" / "checkpoint.npz").exists)
            other.send_signal(signal.SIGKILL)
        with started("agent", files[1], "--quiet") as again:
            assert again.communicate(timeout=60) == ("", "")
            assert one.communicate(timeout=60) == ("", "")
            assert [one.returncode, again.returncode] == [0, 0]
    whole = gs.solve(*_simulated(), gs.CondatVu(), stop=gs.Stop(iterations=2000))
    for name, row in zip("ab", whole.x, strict=True):
        np.testing.assert_allclose(gs.load(tmp_path / name / "results" / "solution.npz").x[0], row, atol=1e-9)


@pytest.mark.slow
def test_who_waits_in_vain_says_that_the_checkpoint_is_kept(tmp_path):
    files = write_agents(tmp_path, deadline=8, stop="iterations = 10000000")
    for file in files:
        file.write_text(file.read_text() + "[output]\ncheckpoint_seconds = 0.1\n")
    kept = tmp_path / "a" / "results" / "checkpoint.npz"
    with started("agent", files[0]) as one, started("agent", files[1], "--quiet") as other:
        _wait_for(kept.exists)
        other.send_signal(signal.SIGKILL)
        _, err = one.communicate(timeout=60)
    assert one.returncode == 2
    assert "error: neighbour b: " in err
    assert "goes on from there" in err
    assert str(kept) in err.replace("\n", "")
    assert "Traceback" not in err


def _wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _simulated():
    losses = [gs.losses.Quadratic([[2.0, 0.0], [0.0, 1.0]], [float(i), 1.0]) for i in range(2)]
    return gs.Problem(gs.losses.stack(losses), gs.domains.L2Ball(10.0)), gs.Graph.path(2)


# An agent that cannot take part


def _ended_soon(files, *, meet=600):
    """Exit codes and what was said, of agents that would wait for long."""
    for file in files:
        file.write_text(re.sub(r"meet = .*", f"meet = {meet}", file.read_text()))
    return all_ended(files, "--quiet", timeout=40)


def test_neighbours_learn_why_an_agent_cannot_take_part(tmp_path):
    files = write_agents(tmp_path, 3)
    (tmp_path / "a" / "mine.py").write_text("def build():\n    raise ValueError('patient 4711')\n")
    (mistake, _, said), *others = _ended_soon(files)
    assert mistake == 1
    assert "patient 4711" in said
    assert [code for code, _, _ in others] == [2, 2]
    assert "neighbour a: it cannot take part: its builder failed (ValueError)" in others[0][2]
    assert "neighbour b: it cannot take part: neighbour a: it cannot take part: its builder" in others[1][2]
    assert "4711" not in others[0][2] + others[1][2]


@pytest.mark.slow
def test_other_data_at_one_site_end_all_with_the_reason(tmp_path):
    files = write_agents(tmp_path, 3)
    assert [code for code, _, _ in all_ended(files, "--quiet")] == [0, 0, 0]
    builder = tmp_path / "a" / "mine.py"
    builder.write_text(builder.read_text().replace("[0.0, 1.0]), gs", "[0.5, 1.0]), gs"))
    for file in files:
        file.write_text(file.read_text().replace("iterations = 20", "iterations = 30"))
    (mistake, _, said), *others = _ended_soon(files)
    assert (mistake, [code for code, _, _ in others]) == (1, [2, 2])
    assert "must belong to this run" in said
    assert "neighbour a: it cannot take part: its checkpoint does not fit this run" in others[0][2]
    assert "neighbour a: it cannot take part: its checkpoint does not fit this run" in others[1][2]
    # As it was, all go on.
    builder.write_text(builder.read_text().replace("[0.5, 1.0]), gs", "[0.0, 1.0]), gs"))
    assert [code for code, _, _ in _ended_soon(files)] == [0, 0, 0]


@pytest.mark.slow
def test_a_second_process_of_an_agent_is_refused_and_hurts_nobody(tmp_path):
    files = write_agents(tmp_path, stop="iterations = 3000")
    with started("agent", files[0], "--quiet") as one, started("agent", files[1], "--quiet") as other:
        log = tmp_path / "a" / "results" / "agent.log"
        _wait_for(lambda: log.exists() and "knows the network" in log.read_text())
        ((code, _, said),) = all_ended(files[:1], "--quiet")
        assert code == 1
        assert "an agent must run once only; got another process that writes into" in said
        # With other folders, too: the address is taken.
        ((code, _, said),) = all_ended(files[:1], "--quiet", "--out", str(tmp_path / "elsewhere"))
        assert code == 1
        assert "listen must be a free address" in said
        ends = [process.communicate(timeout=60) for process in (one, other)]
        assert [one.returncode, other.returncode] == [0, 0], ends


@pytest.mark.slow
def test_a_second_process_of_an_agent_that_does_not_listen_is_refused_by_its_neighbours(tmp_path):
    files = write_agents(tmp_path, stop="iterations = 20000")
    files[0].write_text(re.sub("listen = .*", "", files[0].read_text()))
    files[1].write_text(re.sub("address = .*", "", files[1].read_text()))
    with started("agent", files[0], "--quiet") as one, started("agent", files[1], "--quiet") as other:
        log = tmp_path / "a" / "results" / "agent.log"
        _wait_for(lambda: log.exists() and "knows the network" in log.read_text())
        ((code, _, said),) = all_ended(files[:1], "--quiet", "--out", str(tmp_path / "elsewhere"))
        assert code == 2
        assert "error: neighbour b: it refuses this process: another process with this agent's key" in said
        assert one.poll() is other.poll() is None, "the run was to go on meanwhile"
        assert "another process with its key" in (tmp_path / "b" / "results" / "agent.log").read_text()
        one.send_signal(signal.SIGINT)
        ends = [process.communicate(timeout=60) for process in (one, other)]
        assert [one.returncode, other.returncode] == [2, 2], ends


def test_a_finished_run_needs_no_neighbour_to_be_shown_again(tmp_path):
    files = write_agents(tmp_path)
    assert [code for code, _, _ in all_ended(files, "--quiet")] == [0, 0]
    before = json.loads((tmp_path / "a" / "results" / "result.json").read_text())
    ((code, out, said),) = all_ended(files[:1], "--json", timeout=30)
    assert code == 0, said
    assert json.loads(out)["x"] == before["x"]


def test_columns_in_another_order_at_one_site_are_refused_by_all(tmp_path):
    files = write_agents(tmp_path, 3)
    for file, names in zip(files, ['["age", "cost"]', '["age", "cost"]', '["cost", "age"]'], strict=True):
        file.write_text(file.read_text().replace("[problem]", f"[problem]\nfeatures = {names}"))
    ends = _ended_soon(files)
    assert [code for code, _, _ in ends] == [2, 2, 2]
    assert "neighbour b: settings differ: order of features (" in ends[2][2]
    assert "neighbour c: settings differ: order of features (" in ends[1][2]
    assert "order of features" in ends[0][2]


@pytest.mark.slow
def test_without_names_of_columns_there_is_a_warning(tmp_path):
    files = write_agents(tmp_path)
    assert [code for code, _, _ in all_ended(files, "--quiet")] == [0, 0]
    (warning,) = json.loads((tmp_path / "a" / "results" / "result.json").read_text())["warnings"]
    assert warning.startswith("no names of features were stated")
    assert "no names of features" in (tmp_path / "a" / "results" / "agent.log").read_text()
