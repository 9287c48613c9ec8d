"""Slopes of costs against networks: on made-up counts, and on a few small networks."""

import json

import numpy as np
import pytest
from reproductions import without_processes
from scipy import stats

import gradslide as gs
from gradslide.experiments.reproduce import paper
from gradslide.experiments.reproduce.invariance import experiment as invariance
from gradslide.experiments.reproduce.invariance import runs as invariance_runs
from gradslide.experiments.reproduce.invariance.experiment import report_of
from gradslide.experiments.reproduce.invariance.runs import (
    ONE,
    THEORY,
    WORST,
    Accuracy,
    Marks,
    NetworkTask,
    networks,
    perform_network,
)
from gradslide.experiments.reproduce.paper import Data, optimum_of, packaged, problem_of
from gradslide.experiments.reproduce.report import write_report
from gradslide.experiments.reproduce.runs import Bench
from gradslide.experiments.reproduce.slopes import fitted
from gradslide.results.history import Record

ROWS = 400
# A digest of its own: what is known of all rows is not mixed up with it.
DATA = Data("misfire", f"first {ROWS} rows", None)
SPEC = {
    "split": "shuffled",
    "agents": 10,
    "radius": 2.0,
    "iterations": 200,
    "flat": 0.05,
    "steepest": 1.0,
    "accuracies": [{"objective": 1e-2, "disagreement": 0.1}, {"objective": 1e-2, "disagreement": 0.05}],
    "network": [
        {"name": "path", "family": "path", "topology": "path", "m": 10},
        {"name": "grid", "family": "grid", "topology": "grid", "rows": 2, "cols": 5},
        {"name": "random", "family": "random", "topology": "random", "m": 10, "max_degree": 4, "seeds": [1, 2]},
        {"name": "complete", "family": "complete", "topology": "complete", "m": 10},
        {"name": "ring of 5", "family": "ring", "topology": "ring", "m": 5},
        {"name": "ring of 20", "family": "ring", "topology": "ring", "m": 20},
        {"name": "ring of 40", "family": "ring", "topology": "ring", "m": 40},
    ],
}


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch):
    monkeypatch.setattr(paper, "ROWS", ROWS)
    monkeypatch.setattr(invariance_runs, "ROWS", ROWS)


# Slopes


def test_slope_and_interval_are_those_of_a_linear_regression():
    rng = np.random.default_rng(1)
    x = np.exp(rng.uniform(0, 5, 17))
    y = 3 * x**0.7 * np.exp(rng.normal(0, 0.2, 17))
    line, known = fitted(x, y), stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.975, 15) * known.stderr
    assert (line.slope, line.intercept) == pytest.approx((known.slope, known.intercept))
    assert (line.low, line.high) == pytest.approx((known.slope - half, known.slope + half))
    assert line.points == 17


def test_a_power_is_found_exactly():
    line = fitted([1, 2, 4, 8], [5, 10, 20, 40])
    assert (line.slope, line.low, line.high) == pytest.approx((1, 1, 1))
    np.testing.assert_allclose(line.line(np.array([3.0])), [15])


def test_the_interval_holds_the_truth_about_95_times_in_100():
    rng = np.random.default_rng(2)
    x = np.geomspace(1, 1000, 8)
    lines = [fitted(x, x**0.5 * np.exp(rng.normal(0, 0.3, 8))) for _ in range(1000)]
    assert 0.93 < np.mean([line.low <= 0.5 <= line.high for line in lines]) < 0.97
    bands = [line.band(np.array([30.0])) for line in lines]
    assert 0.93 < np.mean([low[0] <= 30**0.5 <= high[0] for low, high in bands]) < 0.97


@pytest.mark.parametrize(("x", "y"), [([], []), ([1, 2], [1, 2]), ([3, 3, 3], [1, 2, 3])])
def test_too_little_gives_no_line(x, y):
    assert fitted(x, y) is None


# The packaged networks


def test_40_networks_from_ring_to_complete_and_from_10_to_10_000_agents():
    spec = packaged("invariance")
    every = networks(spec)
    agents = [network.m for network in every]
    assert (len(every), agents.count(100)) == (40, 28)
    assert len({network.name for network in every}) == 40
    assert (min(agents), max(agents)) == (10, 10_000)
    assert all(20_000 % m == 0 for m in agents)
    graphs = {network.name: network.graph for network in every if network.m == 100}
    assert all(graph.m == 100 for graph in graphs.values())
    conditions = [graph.condition for graph in graphs.values()]
    assert min(conditions) == pytest.approx(1)
    assert max(conditions) > 1000


# One run


def task(name="path", rule=THEORY, R=None, **changed):
    network = next(each for each in networks(SPEC) if each.name == name)
    said = {"iterations": SPEC["iterations"], "accuracies": tuple(Accuracy(**each) for each in SPEC["accuracies"])}
    return NetworkTask(DATA, network, rule, "shuffled", 2.0, **{**said, **changed}, R=R)


def test_costs_are_those_of_a_run_that_stops_there():
    found = perform_network(task())
    problem, optimum = problem_of(DATA, 10, "shuffled", 2.0), optimum_of(DATA, 10, "shuffled", 2.0)
    for wanted, at in zip(SPEC["accuracies"], found["reached"], strict=True):
        stop = gs.Stop(
            objective=gs.Relative(wanted["objective"], to=optimum.objective),
            disagreement=gs.Relative(wanted["disagreement"]),
            iterations=200,
        )
        solution = gs.solve(problem, gs.Graph.path(10), gs.PDS(L=found["L"], R=found["R"]), stop=stop)
        assert solution.status is gs.Status.CONVERGED
        assert (at["gradients"], at["rounds"]) == (solution.costs.gradients, solution.costs.rounds)
        assert at["objective"] <= wanted["objective"]
        assert at["disagreement"] <= wanted["disagreement"]


def test_R_is_the_theorems_and_L_holds_for_every_split():
    found = perform_network(task())
    problem, optimum = problem_of(DATA, 10, "shuffled", 2.0), optimum_of(DATA, 10, "shuffled", 2.0)
    V = optimum.V(problem, problem.start())
    z_star = optimum.multiplier(problem, gs.Graph.path(10), "incidence")
    assert found["R"] == pytest.approx(gs.guarantees.theory_R(V=V, z_star=z_star))
    assert perform_network(task(rule=WORST))["R"] > found["R"]
    assert perform_network(task(rule=ONE, R=0.7))["R"] == 0.7
    assert found["L"] >= np.max(problem.loss.smoothness())
    assert found["L"] == pytest.approx(4 * perform_network(task("ring of 40"))["L"])


def test_what_is_not_reached_is_none():
    found = perform_network(task(iterations=3))
    assert found["reached"] == [None, None]
    assert found["last"]["gradients"] == 3


def test_a_mark_waits_for_both_and_says_what_came_last():
    def record(iteration, objective, disagreement):
        costs = {"gradients": iteration, "samples": 0, "rounds": 2 * iteration, "control_rounds": 0, "seconds": 0.0}
        return Record(iteration=iteration, **costs, objective=objective, disagreement=disagreement, mean_norm=2.0)

    marks = Marks((Accuracy(0.1, 0.5), Accuracy(0.1, 0.05)), optimum=10.0)
    assert not marks(record(1, 12.0, 0.01), None)
    assert not marks(record(2, 11.0, 0.9), None)
    assert marks(record(3, 10.5, 0.1), None)
    assert [(at["gradients"], at["decided_by_disagreement"]) for at in marks.reached] == [(2, False), (3, True)]


# The report


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """All runs are made in this process."""
    without_processes(monkeypatch)
    return Bench(folder=tmp_path, data=DATA)


@pytest.mark.slow
def test_a_small_experiment(bench, tmp_path):
    report = invariance.reproduce(bench, SPEC)
    costs, slopes, other = report.tables
    assert len(costs.rows) == 8
    assert {row[1] for row in costs.rows} == {5, 10, 20, 40}
    assert [row[:3] for row in slopes.rows][:3] == [("gradients", "chi", name) for name in ("m = 10", "other m", "all")]
    assert [row[0] for row in other.rows] == [rule for rule in (THEORY, WORST, ONE) for _ in range(2)]
    assert all(row[3] == "5 of 5" for row in other.rows[:4])
    assert report.statements[0].holds
    assert "shuffled" in report.facts["split"]
    assert "With one R for all" in report.text
    assert len(json.loads(report.to_json())["found"]) == 8 + 2 * 5
    pytest.importorskip("matplotlib")
    assert {"invariance.png", "invariance.svg", "invariance.Costs.csv"} <= {
        path.name for path in write_report(report, tmp_path)
    }


def made_up(gradients=lambda chi: 100, rounds=lambda chi: 100 * chi**0.4):
    """What runs on all networks would have found, by chi."""
    runs = {}
    for rule in (THEORY, WORST, ONE):
        for index, network in enumerate(networks(SPEC)):
            chi = 2.0**index
            costs = {"gradients": gradients(chi), "rounds": rounds(chi), "objective": 1e-3, "disagreement": 0.01}
            at = {**costs, "decided_by_disagreement": False} if costs["gradients"] else None
            found = {"m": network.m, "edges": 9, "chi": chi, "L": 1.0, "R": 1.0, "reached": [at] * 2, "last": costs}
            runs[NetworkTask(DATA, network, rule, "shuffled", 2.0, 200, (), None)] = found
    return report_of("made up", SPEC, runs)


def findings(report):
    """Of the accuracy, of gradients, of rounds."""
    reached, *others = report.statements
    return reached.holds, *(
        {each.holds for each in others if each.text.startswith(count)} for count in ("gradients", "rounds")
    )


def test_statements_hold_for_flat_gradients_and_rounds_that_grow_slowly():
    assert findings(made_up()) == (True, {True}, {True})


def test_statements_fail_where_gradients_grow():
    assert findings(made_up(gradients=lambda chi: 100 * chi**0.2)) == (True, {False}, {True})


def test_statements_fail_where_gradients_fall():
    assert findings(made_up(gradients=lambda chi: 100 * chi**-0.2)) == (True, {False}, {True})


def test_statements_fail_where_rounds_grow_faster_than_the_root():
    report = made_up(rounds=lambda chi: 100 * chi**0.6)
    judged = {each.text.split(":")[0]: each.holds for each in report.statements}
    assert judged["rounds against sqrt(chi), all"] is False
    assert judged["gradients against chi, all"] is True


def test_a_network_that_misses_the_accuracy_is_named_and_not_hidden():
    report = made_up(gradients=lambda chi: None if chi == 1 else 100)
    assert report.statements[0].holds is False
    assert "7 of 8" in report.statements[0].text
    assert "not reached, errors at the limit: path" in report.text
    assert next(row for row in report.tables[0].rows if row[0] == "path")[5:7] == (None, None)


def test_where_nothing_is_reached_nothing_holds():
    report = made_up(gradients=lambda chi: None)
    assert not any(each.holds for each in report.statements)
    assert "too few points" in report.text


def test_the_picture_shows_every_network_and_the_lines():
    pytest.importorskip("matplotlib")
    figure = made_up().figures["invariance"]()
    left, right = figure.axes
    for axis in (left, right):
        shown = sum(len(dots.get_offsets()) for dots in axis.collections if dots.get_label()[:1] != "_")
        assert shown == 8 + 8
    assert "slope 0.000" in left.get_legend().get_texts()[0].get_text()
    assert "slope 0.800" in right.get_legend().get_texts()[0].get_text()
