"""`gradslide reproduce`: what it writes, what it says, and how it is interrupted."""

import csv
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from reproductions import BUILT_IN, without_processes
from specs import exit_code

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.experiments.parallel import pool
from gradslide.experiments.reproduce import catalogue, runs
from gradslide.experiments.reproduce.paper import Data, Net, found_data, loss_level, optimum_of, problem_of
from gradslide.experiments.reproduce.report import Report, Statement, write_report
from gradslide.experiments.reproduce.runs import Bench
from gradslide.experiments.reproduce.table1.runs import DCSTask, Goal
from gradslide.experiments.tables import Table, columns


@dataclass(frozen=True)
class _Numbered:
    data: Data
    number: int

    @property
    def label(self):
        return f"number {self.number}"


def test_a_figure_is_written_in_every_form(tmp_path, capsys):
    assert exit_code("reproduce", "figure1", "-o", tmp_path, "--data-dir", tmp_path) == 0
    out, err = capsys.readouterr()
    assert {path.suffix for path in tmp_path.iterdir() if path.is_file()} == {".md", ".json", ".csv", ".png", ".svg"}
    content = json.loads((tmp_path / "figure1.json").read_text())
    assert content["facts"]["obtained with"].startswith("gradslide")
    assert "cores" in content["facts"]["machine"]
    assert content["versions"]["numpy"]
    rows = list(csv.reader((tmp_path / "figure1.csv").read_text().splitlines()))
    assert rows[0] == content["tables"][0]["columns"]
    assert (tmp_path / "figure1.md").read_text().startswith("## ")
    assert "figure1.png" in out
    assert err == "", "it needs no data"


def test_quiet_and_json(tmp_path, capsys):
    assert exit_code("reproduce", "figure1", "-q", "-o", tmp_path, "--data-dir", tmp_path) == 0
    assert capsys.readouterr() == ("", "")
    assert exit_code("reproduce", "figure1", "--json", "-o", tmp_path, "--data-dir", tmp_path) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "figure1"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tabel1"], "did you mean 'table1'"),
        (["figure1", "-j", "0"], "processes must be a whole number >= 1"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_get_one_line(arguments, said, tmp_path, capsys):
    assert exit_code("reproduce", *arguments, "-o", tmp_path) == 1
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_all_is_every_one_in_order():
    assert catalogue.chosen(["all"]) == ["table1", "table2", "figure1", "invariance", "complexity"]
    assert catalogue.chosen(["figure1", "table1", "figure1"]) == ["table1", "figure1"]


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(catalogue, "import_module", interrupted)
    assert exit_code("reproduce", "table1", "-o", tmp_path) == 2
    assert "the same command goes on from here" in capsys.readouterr().err
    assert exit_code("reproduce", "table1", "--fresh", "-o", tmp_path) == 2
    assert "the same command without --fresh goes on" in capsys.readouterr().err


def test_what_was_done_before_an_interrupt_is_kept(tmp_path, monkeypatch):
    without_processes(monkeypatch)
    bench = Bench(folder=tmp_path, data=BUILT_IN, processes=1)
    calls = []

    def perform(task):
        calls.append(task.number)
        if task.number == 2:
            raise KeyboardInterrupt
        return {"number": task.number}

    tasks = [_Numbered(BUILT_IN, number) for number in range(4)]
    with pytest.raises(KeyboardInterrupt):
        bench.outcomes(tasks, perform)
    assert calls == [0, 1, 2]
    calls.clear()
    assert bench.outcomes(tasks[:2], perform) == {task: {"number": task.number} for task in tasks[:2]}
    assert calls == []


def test_a_run_whose_process_dies_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(runs.pool, "performed", lambda tasks, perform, n: ((task, None) for task in tasks))
    with pytest.raises(InputError, match="number 7: its process died"):
        Bench(folder=tmp_path, data=BUILT_IN).outcomes([_Numbered(BUILT_IN, 7)], lambda task: {})


def test_a_run_that_ctrl_c_ended_is_not_kept(monkeypatch):
    """Whatever it had reached by then."""

    class Ended:
        status = gs.Status.INTERRUPTED

    monkeypatch.setattr(pool, "solve", lambda: Ended)
    with pytest.raises(KeyboardInterrupt):
        pool.solved()
    Ended.status = gs.Status.ITERATION_LIMIT
    assert pool.solved() is Ended


def test_kept_runs_are_told_apart_by_all_that_matters(monkeypatch):
    def perform(task):
        return {}

    def named(**changed):
        return runs._name(replace(task, **changed), perform)

    task = DCSTask(BUILT_IN, Net("G1", 3, 12, 1, 10), (), "hat", 6, Path("here"), False)
    other = {
        "data": Data("misfire", "changed", None),
        "net": Net("G1", 3, 12, 2, 10),
        "goals": (Goal(1.0, 1.0, 1.0),),
        "output": "last",
        "rounds": 7,
    }
    names = {named(**{key: value}) for key, value in other.items()} | {named()}
    assert len(names) == len(other) + 1
    assert named(folder=Path("elsewhere"), fresh=True, data=Data("misfire", "", Path("there"))) == named()
    monkeypatch.setattr(runs, "__version__", "another")
    assert named() not in names


def refused(task):
    raise InputError("a rule", task.number, "a remedy")


def test_mistakes_come_back_from_processes_as_they_are(tmp_path):
    bench = Bench(folder=tmp_path, data=BUILT_IN, processes=2)
    with pytest.raises(InputError, match="a rule; got 3; a remedy"):
        bench.outcomes([_Numbered(BUILT_IN, 3)], refused)


@pytest.mark.parametrize("what", ["table1", "figure1"])
def test_a_folder_that_is_none_is_told_before_anything_is_run(what, tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert exit_code("reproduce", what, "-o", tmp_path / "file" / "sub", "--data-dir", tmp_path) == 1
    assert "folder that can be written to" in capsys.readouterr().err


def test_a_damaged_file_is_told_before_anything_is_run(tmp_path, capsys):
    (tmp_path / "ijcnn1.svm").write_text("1 1:0.5\n")
    assert exit_code("reproduce", "table1", "-o", tmp_path / "out", "--data-dir", tmp_path) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_ctrl_c_in_a_process_ends_its_run(monkeypatch):
    monkeypatch.setattr(pool, "_interrupted", True)
    with pytest.raises(KeyboardInterrupt):
        pool.solved()


def test_target_losses_of_other_data_are_as_far_on_the_way():
    problem, best = problem_of(BUILT_IN, 10), optimum_of(BUILT_IN, 10).objective / 10
    start = float(problem.objective(problem.start()).sum()) / 10
    assert best < loss_level(BUILT_IN, 10, 60.0) < loss_level(BUILT_IN, 10, 70.0) < start
    assert loss_level(BUILT_IN, 10, 38.29323064) == pytest.approx(best)
    assert loss_level(BUILT_IN, 10, 138.62943611198907) == pytest.approx(start)
    assert loss_level(Data("ijcnn1", "x", None), 100, 70.0) == 70.0


def test_built_in_data_is_said_to_be_no_comparison(tmp_path):
    said = []
    data = found_data(tmp_path, said.append)
    assert not data.is_papers
    assert "no figure is comparable" in data.label
    assert len(said) == 1
    assert said[0].startswith("ijcnn1 is not in")
    assert "gradslide data get ijcnn1" in said[0]


def test_reports_show_what_holds_and_what_does_not(tmp_path):
    report = Report(
        name="toy",
        title="A toy",
        facts={"seed": 1, "share": 0.25},
        tables=[
            Table("One", columns("name", "count"), [["||a||", 1], ["b", None]], notes=["a note"]),
            Table("Two", columns("name"), [["c"]], name="second"),
        ],
        statements=[Statement("good", True), Statement("bad", False), Statement("unknown", None)],
        found={"infinite": float("inf")},
    )
    assert "- holds: good\n- DOES NOT HOLD: bad\n- not comparable: unknown" in report.markdown
    assert "| name | count |\n| --- | ---: |\n| \\|\\|a\\|\\| | 1 |\n| b | - |" in report.markdown
    written = {path.name for path in write_report(report, tmp_path)}
    assert written == {"toy.md", "toy.json", "toy.One.csv", "toy.second.csv"}
    content = json.loads((tmp_path / "toy.json").read_text())
    assert content["found"] == {"infinite": None}
    assert content["notes"] == ["a note"]
