"""What a report is made of: from a run, a comparison, a reproduction, an agent, and a solution that was saved."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from specs import exit_code, write_spec

import gradslide as gs
from gradslide.experiments.per_agent import Frames, drawn, split_costs
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import parse_spec
from gradslide.report.folder import content_of
from gradslide.report.parts import thinned
from gradslide.report.run import run_document

THEORY = 'name = "pds"\nR = "theory"'
BALL = 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 2.0 }'
TWO = '[[network]]\nname = "ring"\ntopology = "ring"\n[[network]]\nname = "star"\ntopology = "star"'


def run_folder(folder: Path, *, code: int = 0, **changed: str) -> Path:
    """A folder of results of the small spec."""
    spec = write_spec(folder, **{"problem": BALL, "network": TWO, **changed})
    assert exit_code("run", spec, "--out", folder / "out", "--quiet") == code
    return folder / "out"


def only_document(place: Path) -> dict:
    (document,) = content_of(place)["documents"]
    return document


def test_a_run_has_everything(tmp_path):
    folder = run_folder(tmp_path)
    results = json.loads((folder / "results.json").read_text())
    content = content_of(folder)
    assert content["versions"] == results["versions"]
    assert content["state"] == {"live": False, "finished": True}
    document = content["documents"][0]
    assert document["kind"] == "run"
    ring, star = results["runs"]
    assert document["summary"]["columns"][:3] == ["network", "gradients", "rounds"]
    assert document["summary"]["rows"][1][:3] == ["star", star["costs"]["gradients"], star["costs"]["rounds"]]
    curves = document["curves"][0]["curves"]
    assert [curve["name"] for curve in curves] == ["ring", "star"]
    assert curves[0]["columns"]["objective"] == ring["history"]["objective"]
    assert {axis["key"] for axis in document["axes"]["x"]} >= {"gradients", "rounds", "seconds"}
    assert document["axes"]["y"][0]["key"] == "gap"
    assert [each["name"] for each in document["certificates"]] == ["ring", "star"]
    assert document["certificates"][0]["facts"]["value less lower bound"] == pytest.approx(ring["final"]["gap"])
    assert "PDS" in document["settings"][0]["facts"]["method"]
    assert [file["name"] for file in document["files"]] == ["results.json", "networks.json", "history.csv"]


def test_each_network_is_drawn_with_what_was_seen_of_its_agents(tmp_path):
    ring, star = only_document(run_folder(tmp_path))["networks"]
    assert star["degrees"] == [4, 1, 1, 1, 1]
    assert len(star["positions"]) == 5
    assert ring["edges"] == gs.Graph.ring(5).edges.tolist()
    assert ring["frames"]["iterations"] == [1, 2, 3, 4, 5]
    assert ring["note"] == ""


def test_the_last_frame_is_the_answer(tmp_path):
    folder = run_folder(tmp_path)
    solution = gs.load(folder / "ring.solution.npz")
    frames = only_document(folder)["networks"][0]["frames"]
    expected = np.linalg.norm(solution.x - solution.mean, axis=1)
    np.testing.assert_allclose(frames["distances"][-1], expected, rtol=1e-2)
    assert max(frames["distances"][-1]) == pytest.approx(solution.history[-1].disagreement, rel=1e-2)


def test_costs_per_agent_add_up(tmp_path):
    folder = run_folder(tmp_path)
    star = only_document(folder)["agents"][1]["columns"]
    costs = gs.load(folder / "star.solution.npz").costs
    assert sum(star["floats sent"]) == costs.floats_sent
    assert star["floats sent"][0] == 4 * star["floats sent"][1]
    assert star["gradients"] == [costs.gradients] * 5
    assert star["agent"] == [0, 1, 2, 3, 4]


def test_bounds_stand_beside_what_they_bound(tmp_path):
    document = only_document(run_folder(tmp_path, method=THEORY, stop="iterations = 30"))
    axes = {axis["key"]: axis for axis in document["axes"]["y"]}
    assert document["axes"]["y"][0]["key"] == "error"
    for curve in document["curves"][0]["curves"]:
        columns = curve["columns"]
        for name in ("error", "local_error", "residual"):
            bound = columns[axes[name]["bound"]]
            pairs = [(value, most) for value, most in zip(columns[name], bound, strict=True) if most is not None]
            assert len(pairs) == 30
            assert all(value <= most for value, most in pairs)


def test_the_last_bound_is_that_of_the_table(tmp_path):
    folder = run_folder(tmp_path, method=THEORY, stop="iterations = 30")
    for run in json.loads((folder / "results.json").read_text())["runs"]:
        along = run["bounds_along"]
        assert along["objective"][-1] == run["bound"]["objective"]
        assert along["residual"][-1] == run["bound"]["residual"]
        assert along["at_mean"][-1] == pytest.approx(run["bound_at_mean"])


def test_frames_are_thinned_and_keep_the_first_and_the_last():
    network = gs.network.Local(gs.Graph.ring(3))
    frames, rng = Frames(network), np.random.default_rng(0)
    for iteration in range(1, 1001):
        frames.record(iteration, rng.normal(size=(3, 2)))
    frames.record_last(1001, np.zeros((3, 2)))
    seen = frames.to_dict()
    assert len(seen["iterations"]) == len(seen["distances"]) == len(frames.means) <= 122
    assert (seen["iterations"][0], seen["iterations"][-1]) == (1, 1001)
    assert seen["distances"][-1] == [0.0, 0.0, 0.0]
    assert len(set(np.diff(seen["iterations"][1:-1]))) == 1


def test_the_answer_takes_the_place_of_what_was_seen_in_the_same_iteration():
    frames = Frames(gs.network.Local(gs.Graph.ring(3)))
    frames.record(7, np.eye(3))
    frames.record_last(7, np.zeros((3, 3)))
    assert frames.to_dict() == {"iterations": [7], "distances": [[0.0, 0.0, 0.0]]}


def test_a_network_that_is_too_large_is_not_drawn():
    text = 'version = 1\n[data]\nname = "misfire"\nrows = 2001\nagents = 2001\n[problem]\nloss = "logistic"\n'
    text += '[network]\ntopology = "ring"\n[method]\nname = "pds"\n[stop]\niterations = 1'
    (run,) = run_spec(parse_spec(text, name="large", folder=Path())).runs
    assert run.frames is None
    results = {"name": "", "title": "", "problem": "", "optimum": None, "runs": [run.to_dict()]}
    document = run_document(results, [drawn(run.name, run.graph, run.frames, run.by_agent)])
    assert document["networks"][0]["positions"] is None
    assert document["networks"][0]["note"] == "a drawing can show 2,000 agents; this network has 2,001"
    assert document["agents"] == []


def test_floats_are_shared_out_by_links():
    costs = gs.Costs(gradients=3, rounds=2, floats_sent=80)
    assert split_costs(costs, gs.Graph.star(5))["floats_sent"] == [40, 10, 10, 10, 10]


def test_a_run_without_a_certificate_says_why(tmp_path):
    folder = run_folder(tmp_path, problem='loss = "logistic"')
    proof = only_document(folder)["certificates"][0]
    assert proof["holds"] is None
    assert "X is unbounded and mu = 0" in proof["text"]


def test_a_comparison_has_curves_by_block_and_its_tables(tmp_path):
    text = """
version = 1
accuracies = [1e-1, 1e-2]
[[problem]]
name = "rows"
loss = "logistic"
domain = { set = "l2_ball", radius = 2.0 }
data = { name = "misfire", rows = 400, agents = 5 }
[[network]]
name = "ring"
topology = "ring"
[[network]]
name = "star"
topology = "star"
[[clock]]
name = "lan"
[[method]]
name = "auto"
[[method]]
name = "nids"
grid = [3.0]
[limits]
gradients = 100
rounds = 500
[output]
plot = false
"""
    spec = tmp_path / "both.toml"
    spec.write_text(text)
    assert exit_code("compare", spec, "--out", tmp_path / "out", "--quiet", "-j", 1) == 0
    document = only_document(tmp_path / "out")
    assert document["kind"] == "comparison"
    assert [group["name"].split("; ")[1] for group in document["curves"]] == ["ring", "star"]
    names = [curve["name"] for curve in document["curves"][0]["curves"]]
    assert names == ["auto", "nids, default is best"]
    columns = document["curves"][0]["curves"][1]["columns"]
    assert columns["all_rounds"] == [sum(p) for p in zip(columns["rounds"], columns["control_rounds"], strict=True)]
    assert "seconds (lan)" in {axis["key"] for axis in document["axes"]["x"]}
    assert "seconds" in {axis["key"] for axis in document["axes"]["x"]}
    assert document["summary"]["title"].startswith("rows; ring")
    assert [network["name"] for network in document["networks"]] == ["ring", "star"]
    assert document["settings"][0]["facts"]["limit on gradients"] == 100
    assert {"comparison.json", "comparison.csv", "networks.json"} == {file["name"] for file in document["files"]}


@pytest.mark.slow
def test_reproductions_have_their_statements_networks_and_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    assert exit_code("reproduce", "figure1", "--out", tmp_path, "--quiet") == 0
    document = only_document(tmp_path)
    assert document["kind"] == "reproduction"
    assert len(document["summary"]["rows"]) == 9
    assert [network["name"] for network in document["networks"]] == ["G1", "G2", "G3"]
    (image,) = document["images"]
    assert image["source"].startswith("data:image/")
    (tmp_path / "figure1.svg").unlink()
    (tmp_path / "figure1.png").unlink()
    assert only_document(tmp_path)["images"] == []


@pytest.mark.slow
def test_several_reproductions_are_several_documents(tmp_path):
    assert exit_code("reproduce", "figure1", "--out", tmp_path, "--quiet") == 0
    again = json.loads((tmp_path / "figure1.json").read_text())
    again |= {"name": "table1", "statements": [{"text": "it does", "holds": True}]}
    (tmp_path / "table1.json").write_text(json.dumps(again))
    first, second = content_of(tmp_path)["documents"]
    assert (first["name"], second["name"]) == ("table1", "figure1")
    assert first["statements"] == [{"text": "it does", "holds": True}]


def test_a_saved_solution_has_a_report(tmp_path):
    loss = gs.losses.LeastSquares(np.eye(4), np.arange(4.0), agents=2)
    solution = gs.solve(gs.Problem(loss, gs.domains.L2Ball(9.0)), gs.Graph.path(2))
    solution.save(tmp_path / "mine.npz")
    document = only_document(tmp_path / "mine.npz")
    assert document["title"] == f"mine.npz: {solution.status.value}"
    assert document["curves"][0]["curves"][0]["columns"]["gap"] == [record.gap for record in solution.history]
    assert document["networks"] == []


def test_a_solution_of_a_saddle_point_problem_has_a_report(tmp_path):
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.zeros(3)), np.ones((1, 3)), np.ones(1))
    gs.solve(problem, stop=gs.Stop(iterations=5)).save(tmp_path / "mine.npz")
    document = only_document(tmp_path / "mine.npz")
    assert "operator_products" in {axis["key"] for axis in document["axes"]["x"]}
    assert "residual" in {axis["key"] for axis in document["axes"]["y"]}


def test_long_histories_are_thinned():
    short = thinned({"iteration": list(range(10_000)), "gap": list(range(10_000))})
    assert len(short["iteration"]) == 2_000
    assert short["iteration"] == short["gap"]
    assert (short["gap"][0], short["gap"][-1]) == (0, 9_999)
    assert thinned({"gap": [1, 2]}) == {"gap": [1, 2]}


def test_a_page_is_written(tmp_path, capsys):
    pytest.importorskip("plotly")
    folder = run_folder(tmp_path)
    assert exit_code("report", folder) == 0
    assert "report.html" in capsys.readouterr().out
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert exit_code("report", folder, "--out", tmp_path / "elsewhere.html") == 0
    assert (tmp_path / "elsewhere.html").exists()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((), "nowhere, which does not exist; run something first"),
        (("nowhere/a.txt",), "nowhere, which holds no results; run something first"),
        (("nowhere/deep/results.json",), "there are some in "),
        (("nowhere/results.json",), "results.json must be of format 1"),
    ],
)
def test_where_there_are_no_results_one_line_says_so(made, said, tmp_path, capsys):
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    assert exit_code("report", tmp_path / "nowhere") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said in error


@pytest.mark.parametrize("text", ["{", '{"format": 1, "versions": {}, "runs": [{}]}'])
def test_damaged_results_are_told(text, tmp_path, capsys):
    (tmp_path / "results.json").write_text(text)
    assert exit_code("report", tmp_path) == 1
    error = capsys.readouterr().err
    assert "results.json" in error
    assert "make the results anew" in error


def test_a_page_needs_no_extra_but_plot(tmp_path):
    pytest.importorskip("plotly")
    folder = run_folder(tmp_path)
    others = ["cryptography", "mpi4py", "pymetis", "sklearn", "jax", "torch", "cvxpy"]
    code = f"import sys; sys.modules.update(dict.fromkeys({others})); from gradslide.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(folder)], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
