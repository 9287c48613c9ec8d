"""What single parts of a report say: certificates, axes, networks, curves."""

import pytest

import gradslide as gs
from gradslide.experiments.per_agent import drawn
from gradslide.report.comparison import comparison_document
from gradslide.report.parts import by_clock, network, spent_axes
from gradslide.report.reproduction import reproduction_document
from gradslide.report.run import certificate, run_document
from gradslide.results.history import History


def run(**changed) -> dict:
    """As results.json has one, of five records."""
    records = [gs.Record(k, k, 0, 2 * k, 3, 0.1, objective=9.0 / k, local_objective=8.0 / k) for k in range(1, 6)]
    given = {
        "network": "ring",
        "message": "the limit was reached",
        "output": "average",
        "costs": gs.Costs(gradients=5, rounds=10).to_dict(),
        "final": vars(records[-1]),
        "history": History(records).to_dict(),
        "certificate": None,
        "certificate_reason": "nobody asked",
        "kkt": None,
        "warnings": [],
        "settings": {},
        "parameters": {},
        **dict.fromkeys(("objective_error", "local_error", "bound", "bound_at_mean", "bounds_along")),
    }
    return {**given, **changed}


def results(*runs: dict, optimum: float | None = None) -> dict:
    return {"name": "mine", "title": "Mine", "problem": "a problem", "optimum": optimum, "runs": list(runs)}


def proof(lower, upper, residual=0.25, **costs) -> dict:
    found = {"lower": lower, "upper": upper, "residual": residual}
    return certificate(run(certificate=found, costs=gs.Costs(**costs).to_dict()))


def test_a_certificate_says_what_was_proved():
    said = proof(4.0, 5.0)
    assert said["holds"] is True
    assert said["facts"] == {
        "lower bound on the optimum": 4.0,
        "value at the answer": 5.0,
        "largest distance of an agent from the mean": 0.25,
        "value less lower bound": 1.0,
        "relative": 0.25,
    }
    assert said["text"].startswith("The optimum lies between the two values")


@pytest.mark.parametrize("upper", [None, float("inf")])
def test_without_an_upper_bound_nothing_holds(upper):
    said = proof(4.0, upper)
    assert said["holds"] is None
    assert said["text"] == "nobody asked."


def test_bounds_that_contradict_each_other_do_not_hold():
    said = proof(5.0, 4.0)
    assert said["holds"] is False
    assert "is above the objective" in said["text"]


def test_a_point_that_misses_its_constraints_proves_nothing_from_above():
    said = proof(4.0, 3.5, operator_products=7)
    assert said["holds"] is None
    assert said["facts"]["residual"] == 0.25
    assert "may lie below" in said["text"]
    assert proof(4.0, 5.0, residual=0.0, operator_products=7)["holds"] is True


def test_every_bound_belongs_to_its_own_axis():
    along = {"objective": [3.0] * 5, "residual": [2.0] * 5, "at_mean": [1.0] * 5}
    document = run_document(results(run(bounds_along=along), optimum=1.0))
    axes = {axis["key"]: axis["bound"] for axis in document["axes"]["y"]}
    assert (axes["error"], axes["local_error"]) == ("at_mean_bound", "objective_bound")
    columns = document["curves"][0]["curves"][0]["columns"]
    assert columns["local_error"] == [8.0 / k - 1.0 for k in range(1, 6)]
    assert columns["error"] == [9.0 / k - 1.0 for k in range(1, 6)]
    assert columns["at_mean_bound"] == along["at_mean"]
    assert columns["residual_bound"] == along["residual"]


def test_a_long_run_is_thinned():
    long = History([gs.Record(k, k, 0, k, 0, 0.1, objective=1.0 / k) for k in range(1, 5001)]).to_dict()
    columns = run_document(results(run(history=long)))["curves"][0]["curves"][0]["columns"]
    assert len(columns["iteration"]) == len(columns["objective"]) == 2000
    assert (columns["iteration"][0], columns["iteration"][-1]) == (1, 5000)


def test_of_too_many_links_some_are_drawn_and_that_is_said():
    shown = network(drawn("all", gs.Graph.complete(200), None, {}), why_still="still")
    assert len(shown["edges"]) == 10_000
    assert shown["note"] == "still; 10,000 of 19,900 links are drawn"


def test_one_clock_or_several_are_axes():
    assert by_clock({"simulated_seconds": [1.0, 2.0]}) == {"simulated_seconds": [1.0, 2.0]}
    assert by_clock({"simulated_seconds": [None, None]}) == {}
    two = by_clock({"simulated_seconds": [{"lan": 1.0, "wan": 5.0}, {"lan": 2.0, "wan": 6.0}]})
    assert two == {"seconds (lan)": [1.0, 2.0], "seconds (wan)": [5.0, 6.0]}
    assert [axis["key"] for axis in spent_axes([two])] == ["seconds (lan)", "seconds (wan)"]
    assert [axis["key"] for axis in spent_axes([{"simulated_seconds": [1.0]}])] == ["simulated_seconds"]


def test_each_step_of_a_method_has_its_own_curve():
    block = {"problem": "p", "network": "n", "condition": "c"}
    spent = {"rounds": [1], "control_rounds": [0]}
    outcomes = [
        {**block, "method": "nids", "factor": factor, "curve": {**spent, "error": [error]}}
        for factor, error in ((None, 1.0), (3.0, 0.5))
    ]
    lines = [{"method": "nids", "factor": factor, "label": f"nids {factor}"} for factor in (3.0, None)]
    compared = {
        "name": "",
        "title": "",
        "outcomes": outcomes,
        "blocks": [{**block, "lines": lines}],
        "baselines_better_in_both": [],
        "interrupted": False,
        "accuracies": [],
        "disagreement_factor": 10.0,
        "limits": {},
        "optima": {},
    }
    (group,) = comparison_document(compared)["curves"]
    assert [(curve["name"], curve["columns"]["error"]) for curve in group["curves"]] == [
        ("nids 3.0", [0.5]),
        ("nids None", [1.0]),
    ]


def test_a_comparison_of_the_version_before_its_keys_were_renamed_is_read():
    block = {"problem": "p", "network": "n", "condition": "c"}
    own = {"method": "nids", "factor": None}
    curve = {"rounds": [1], "control_rounds": [0], "error": [1.0], "apart": [0.5]}
    old = {
        "name": "",
        "title": "",
        "outcomes": [{**block, **own, "apart": 0.5, "curve": curve}],
        "blocks": [{**block, "lines": [{**own, "apart": 0.5}]}],
        "rivals_better_in_both": ["somewhere: pds behind nids"],
        "interrupted": False,
        "accuracies": [],
        "apart": 7.0,
        "limits": {},
        "optima": {},
    }
    shown = comparison_document(old)
    assert shown["curves"][0]["curves"][0]["columns"]["disagreement"] == [0.5]
    assert shown["tables"][-1]["rows"] == [["somewhere: pds behind nids"]]
    assert 7.0 in shown["settings"][0]["facts"].values()
    assert "disagreement" in [axis["key"] for axis in shown["axes"]["y"]]


def test_a_drawing_that_is_too_large_is_shown_as_points(tmp_path):
    report = {"name": "t", "title": "T", "facts": {}, "tables": [], "statements": [], "figures": ["t"]}
    (tmp_path / "t.png").write_bytes(b"points")
    (tmp_path / "t.svg").write_text("<svg/>")
    assert reproduction_document(report, tmp_path)["images"][0]["source"].startswith("data:image/svg+xml;base64,")
    (tmp_path / "t.svg").write_text("<svg/>" + " " * 400_001)
    assert reproduction_document(report, tmp_path)["images"][0]["source"].startswith("data:image/png;base64,")
