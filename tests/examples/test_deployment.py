"""The plan of a deployment runs as a user would run it, on a small network; its table follows from its parts."""

import re
import subprocess
import sys

import numpy as np
import pytest
from example_runs import EXAMPLES, load

import gradslide as gs

AGENTS = 120
ROW = r"^(?P<accuracy>0\.\d+)\s+(?P<method>\w+)\s+(?P<gradients>\d+)\s+(?P<rounds>\d+)(?P<seconds>(?:\s+\d+\.\d)+)$"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("deployment")
    command = [sys.executable, "-W", "error", str(EXAMPLES / "deployment.py"), "plan.png", str(AGENTS)]
    printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=400).stdout
    assert (folder / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert "written: plan.png" in printed
    return printed


@pytest.fixture(scope="module")
def tables(printed):
    """Today's table and the one without slow agents: (accuracy, method) -> gradients, rounds, seconds by network."""
    rows = [found.groupdict() for found in re.finditer(ROW, printed, flags=re.MULTILINE)]
    assert len(rows) == 12
    read = [
        {
            (float(row["accuracy"]), row["method"]): (
                int(row["gradients"]),
                int(row["rounds"]),
                dict(zip(("LAN", "WAN", "satellite"), map(float, row["seconds"].split()), strict=True)),
            )
            for row in part
        }
        for part in (rows[:6], rows[6:])
    ]
    assert read[0].keys() == read[1].keys()
    assert len(read[0]) == 6
    return read


def test_both_tables_tell_of_the_same_runs(tables):
    today, fast = tables
    for key, (gradients, rounds, seconds) in today.items():
        assert fast[key][:2] == (gradients, rounds)
        assert seconds["LAN"] < seconds["WAN"] < seconds["satellite"]
        assert all(fast[key][2][network] < seconds[network] for network in seconds)


def test_more_accuracy_takes_more(tables):
    for method in ("PDS", "NIDS"):
        spent = [tables[0][accuracy, method][:2] for accuracy in (0.1, 0.03, 0.01)]
        assert spent == sorted(spent)
        assert len(set(spent)) == 3


def test_times_are_those_of_the_gradients_and_rounds(tables):
    """A LAN costs next to nothing; equal agents over equal links take the sum of both. The gradient at x_0 is there
    before PDS asks for the value that its lower bound takes: one more pass over the data."""
    example = load("deployment")
    today, fast = tables
    for key, (gradients, rounds, seconds) in today.items():
        passes = gradients + (key[1] == "PDS")
        assert seconds["LAN"] == pytest.approx(example.SLOW * passes, abs=0.2)
        assert fast[key][2]["LAN"] == pytest.approx(example.FAST * passes, abs=0.2)
        messages = fast[key][2]["satellite"] - example.FAST * passes
        assert 0.3 * rounds - 0.1 < messages < 0.3 * (rounds + 40)


def test_pds_takes_fewer_gradients_and_nids_fewer_rounds(tables):
    pds, nids = (tables[0][0.01, method] for method in ("PDS", "NIDS"))
    assert pds[0] < nids[0]
    assert nids[1] < pds[1]


def test_the_fastest_is_named(tables, printed):
    named = dict(re.findall(r"^fastest to 0.01 over (.*): (\w+)$", printed, flags=re.MULTILINE))
    assert len(named) == 6
    for table, label in zip(tables, ("", ", all fast"), strict=True):
        for network in ("LAN", "WAN", "satellite"):
            seconds = {method: table[0.01, method][2][network] for method in ("PDS", "NIDS")}
            assert seconds[named[network + label]] == min(seconds.values())
    # Gradients decide where agents are slow and links are fast, rounds where it is the other way round.
    assert (named["LAN"], named["satellite"]) == ("PDS", "NIDS")


def test_the_network_is_where_the_engines_are():
    example = load("deployment")
    places, graph, lengths = example.sites(200, np.random.default_rng(1))
    assert graph.m == len(places) == 200
    ends = places[graph.edges]
    assert lengths == pytest.approx(np.hypot(*(ends[:, 0] - ends[:, 1]).T))
    clock = example.clocks(lengths, np.arange(200) == 7)["WAN"]
    assert clock.latency == pytest.approx(0.005 + 0.02 * lengths)
    assert np.flatnonzero(clock.gradient == example.SLOW).tolist() == [7]


def test_an_accuracy_holds_for_the_loss_and_for_every_agent():
    example = load("deployment")
    problem = gs.Problem(gs.losses.LeastSquares(np.ones((4, 1)), np.arange(1.0, 5.0), agents=4))
    best = gs.reference.reference(problem)
    history = gs.solve(problem, gs.Graph.ring(4), gs.NIDS(), stop=gs.Stop(iterations=40)).history
    for accuracy in (0.5, 1e-3):
        record = example.first_within(history, best, accuracy)
        assert record.objective <= (1 + accuracy) * best.objective
        assert record.disagreement <= accuracy * np.linalg.norm(best.x)
        before = history[record.iteration - 2]
        assert before.objective / best.objective - 1 > accuracy or before.disagreement > accuracy * np.linalg.norm(
            best.x
        )
    assert example.first_within(history[:1], best, 1e-9) is None


def test_a_plan_needs_no_matplotlib(monkeypatch, tmp_path, capsys):
    example = load("deployment")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setattr(example, "ACCURACIES", (0.5, 0.3, 0.2))
    example.main(tmp_path / "plan.png", 40)
    assert "no picture: plots need matplotlib" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
