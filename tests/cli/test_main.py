"""The command line, as a user meets it: output, files, exit codes, mistakes, Ctrl-C."""

import csv
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import numpy as np
import pytest
import typer
from real_data import DATA
from rich.console import Console
from specs import exit_code, write_spec

import gradslide as gs
from gradslide.cli import shared
from gradslide.cli.main import app
from gradslide.experiments import machine
from gradslide.experiments import run as experiment
from gradslide.experiments.build import build_problem
from gradslide.experiments.spec import main_job, parse_spec
from gradslide.kernels.startup import startup_of
from gradslide.theory.reference import reference

MODULE = [sys.executable, "-W", "error", "-m", "gradslide"]
ROOT = Path(__file__).parents[2]
SCRIPT = Path(sysconfig.get_path("scripts")) / "gradslide"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """What goes into the current folder by default goes into a fresh one."""
    monkeypatch.chdir(tmp_path)


def strict_json(text):
    """JSON that every parser takes: no NaN, no Infinity."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def command(*arguments, env=None, cwd=None):
    return subprocess.run(
        [*MODULE, *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
        cwd=cwd,
        timeout=120,
    )


# The main job


@pytest.fixture(scope="module")
def main_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("main")
    return command("run", "--out", "results", cwd=folder), folder


def test_main_job_prints_one_table_and_says_where_its_files_are(main_run):
    done, folder = main_run
    assert done.returncode == 0, done.stderr
    for words in ("network", "gradients", "rounds", "control", "gap: certified", "disagreement", "status"):
        assert words in done.stdout
    assert "bound" not in done.stdout, "nothing was promised"
    lines = [line for line in done.stdout.splitlines() if "max degree" in line]
    rows, choices = lines[:3], lines[3:]
    assert all(line.startswith("auto chose Newton; lowest predicted cost") for line in choices)
    assert [name in row for row, name in zip(rows, ("degree 4 ", "degree 9 ", "degree 20 "), strict=True)] == [True] * 3
    assert all("converged" in row for row in rows)
    *named, page = [line.strip() for line in done.stdout.split("written:\n")[1].splitlines()]
    assert page == "as a page: gradslide report results"
    assert sorted(named) == sorted(str(Path("results") / path.name) for path in (folder / "results").iterdir())
    assert {Path(path).suffix for path in named} == {".json", ".png", ".csv", ".npz"}
    assert (folder / "results" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "gradients" in done.stderr, "progress goes to stderr"
    assert [path.name for path in folder.iterdir()] == ["results"]


def test_main_job_proves_how_good_its_answers_are(main_run):
    results = strict_json((main_run[1] / "results" / "results.json").read_text())
    optimum = reference(build_problem(main_job(), None)).objective
    assert [run["graph"]["degree_max"] for run in results["runs"]] == [4, 9, 20]
    for run in results["runs"]:
        assert run["status"] == "CONVERGED"
        lower, upper = run["certificate"]["lower"], run["certificate"]["upper"]
        assert lower <= optimum <= upper * (1 + 1e-12)
        assert upper - lower <= 1.01e-3 * upper
        assert run["final"]["disagreement"] <= 1e-2 * run["final"]["mean_norm"]
        assert np.linalg.norm(run["mean"]) <= 5 * (1 + 1e-12)


@pytest.mark.slow
def test_pds_needs_the_same_gradients_on_every_network_and_keeps_to_its_bounds(tmp_path):
    done = command("run", str(ROOT / "experiments" / "theory.toml"), "--out", "results", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "bound" in done.stdout
    results = strict_json((tmp_path / "results" / "results.json").read_text())
    runs = results["runs"]
    gradients = [run["costs"]["gradients"] for run in runs]
    assert max(gradients) / min(gradients) < 1.1
    for run in runs:
        assert run["status"] == "CONVERGED"
        assert 0 < run["objective_error"] <= 1e-3 * results["optimum"]
        assert run["bound_at_mean"] >= run["objective_error"]
        assert run["bound"]["objective"] >= run["local_error"]
        assert run["bound"]["residual"] >= run["final"]["residual"]


def test_main_job_leaves_solutions_and_histories_that_fit_its_json(main_run):
    folder = main_run[1] / "results"
    runs = strict_json((folder / "results.json").read_text())["runs"]
    with (folder / "history.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for run in runs:
        solution = gs.load(folder / f"{run['network'].replace(' ', '-')}.solution.npz")
        assert solution.x.shape == (100, 22)
        np.testing.assert_allclose(solution.mean, run["mean"])
        assert solution.history.to_dict() == run["history"]
        mine = [row for row in rows if row["network"] == run["network"]]
        assert [int(row["gradients"]) for row in mine] == run["history"]["gradients"]
        assert float(mine[-1]["objective"]) == run["final"]["objective"]


# Output and exit codes


def test_a_run_prints_its_table(tmp_path, capsys):
    assert exit_code("run", write_spec(tmp_path), "--out", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "ring" in out
    assert "iteration limit" in out
    assert str(tmp_path / "out" / "results.json") in out
    assert "Traceback" not in out


def test_json_is_all_there_is_on_stdout(tmp_path):
    done = command("run", write_spec(tmp_path), "--json", "--out", tmp_path / "out")
    assert done.returncode == 0
    printed = strict_json(done.stdout)
    assert printed == strict_json((tmp_path / "out" / "results.json").read_text())
    assert printed["runs"][0]["costs"]["gradients"] == 5
    assert printed["versions"]["gradslide"] == gs.__version__


def test_quiet_prints_nothing_and_writes_the_files(tmp_path, capsys):
    assert exit_code("run", write_spec(tmp_path), "--quiet", "--out", tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results.json",
        "history.csv",
        "networks.json",
        "ring.solution.npz",
    }


@pytest.mark.parametrize(
    ("stop", "code"),
    [
        ("iterations = 3", 0),
        ("rounds = 3", 0),
        ("objective = 1e9\niterations = 3", 0),
        ("disagreement = 1e-12\niterations = 3", 2),
        ("objective = 1e9\ndisagreement = 1e-12\ngradients = 3", 2),
        ("objective = { relative = 1e-9 }\niterations = 3", 2),
    ],
)
def test_exit_code_says_whether_the_request_was_met(tmp_path, stop, code):
    assert exit_code("run", write_spec(tmp_path, stop=stop), "-q", "-o", tmp_path / "out") == code
    assert (tmp_path / "out" / "results.json").exists(), "what was reached is written in either case"


@pytest.mark.parametrize("stop", ["iterations = 3000", "objective = { relative = 1e-3 }\niterations = 3000"])
def test_a_diverged_run_ends_with_2_and_says_so(tmp_path, stop):
    method, problem = 'name = "pds"\nL = 1e-3\nR = 1e-3', 'loss = "least_squares"'
    spec = write_spec(tmp_path, method=method, problem=problem, stop=stop)
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 2
    run = strict_json((tmp_path / "out" / "results.json").read_text())["runs"][0]
    assert run["status"] == "DIVERGED"
    assert np.all(np.isfinite(run["mean"]))


def test_the_folder_of_the_spec_is_used_unless_out_overrides_it(tmp_path):
    spec = write_spec(tmp_path, output='plot = false\ndir = "from-spec"')
    assert exit_code("run", spec, "-q") == 0
    assert (tmp_path / "from-spec" / "results.json").exists()
    assert exit_code("run", spec, "-q", "--out", "from-option") == 0
    assert (tmp_path / "from-option" / "results.json").exists()
    assert exit_code("run", write_spec(tmp_path, name="mine.toml", output="plot = false"), "-q") == 0
    assert (tmp_path / "gradslide-results" / "mine" / "results.json").exists()


@pytest.mark.parametrize("names", [("a b", "a-b"), ("ring", "ring"), ("x", "x (3)", "x"), ("up/and/down",), ("../up",)])
def test_every_network_leaves_its_own_solution_in_the_folder(tmp_path, names):
    networks = "".join(f'[[network]]\nname = "{name}"\ntopology = "ring"\n' for name in names)
    assert exit_code("run", write_spec(tmp_path, network=networks), "-q", "-o", tmp_path / "deep" / "out") == 0
    runs = strict_json((tmp_path / "deep" / "out" / "results.json").read_text())["runs"]
    assert len({run["network"] for run in runs}) == len(names)
    assert len(list((tmp_path / "deep" / "out").glob("*.solution.npz"))) == len(names)


# Mistakes


def one_error_line(capsys, with_output=False):
    captured = capsys.readouterr()
    assert with_output or captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("\n")
    return captured.err


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"top": "version ="}, ["TOML", "line 1"]),
        ({"top": "version = 2"}, ["version of the spec must be 1", "got 2"]),
        ({"top": ""}, ["'version'"]),
        ({"top": 'version = "1"'}, ["whole number", "'1'"]),
        ({"top": 'version = 1\ntitel = "x"'}, ["'titel'", "did you mean 'title'?"]),
        ({"data": None}, ["'data'"]),
        ({"problem": None}, ["'problem'"]),
        ({"network": None}, ["[network]"]),
        ({"stop": None}, ["'stop'"]),
        ({"data": 'file = "rows.svm"'}, ["'agents'"]),
        ({"data": "agents = 5"}, ["name or a file"]),
        ({"data": 'name = "a9a"\nfile = "rows.svm"\nagents = 5'}, ["name or a file"]),
        ({"data": 'file = "none.svm"\nagents = 5'}, ["none.svm", "No such file"]),
        ({"data": 'file = "."\nagents = 5'}, ["directory"]),
        ({"data": 'name = "ijcnn"\nagents = 5'}, ["'ijcnn'", "did you mean 'ijcnn1'?"]),
        ({"data": 'file = "rows.svm"\nagents = "5"'}, ["agents in [data]", "'5'"]),
        ({"data": 'file = "rows.svm"\nagents = 0'}, ["0 agents"]),
        ({"data": 'file = "rows.svm"\nagents = 41'}, ["41 agents and 40 rows"]),
        ({"data": 'file = "rows.svm"\nagents = 5\nrows = -1'}, ["rows", "-1"]),
        ({"data": 'file = "rows.svm"\nagents = 5\nsplit = "sort"'}, ["'sort'", "did you mean 'sorted'?"]),
        ({"data": 'file = "rows.svm"\nagents = 5\nsplit = "shuffled"\nseed = -1'}, ["seed", "-1"]),
        ({"data": 'file = "rows.svm"\nagents = 5\ndtype = "float16"'}, ["'float16'"]),
        ({"data": 'file = "bad.svm"\nagents = 5'}, ["line 2 of", "'1 1:x'"]),
        ({"data": 'file = "three.svm"\nagents = 3'}, ["{-1, 1}", "[1.0, 2.0, 3.0]"]),
        ({"problem": 'loss = "logit"'}, ["'logit'", "did you mean 'logistic'?"]),
        ({"problem": 'loss = "logistic"\nmu = -1'}, ["mu", "-1"]),
        ({"problem": 'loss = "logistic"\ndomain = "free"'}, ["domain", "table"]),
        ({"problem": 'loss = "logistic"\ndomain = { set = "l2_ball" }'}, ["radius"]),
        ({"problem": 'loss = "logistic"\ndomain = { set = "l2_ball", radius = -3 }'}, ["radius", "-3"]),
        ({"problem": 'loss = "huber"\ndelta = "wide"'}, ["delta", "wide"]),
        ({"problem": 'loss = "logistic"\npenalty = { kind = "l1", weight = -1 }'}, ["weight", "-1"]),
        (
            {"problem": 'loss = "logistic"\ndomain.set = "entropy_simplex"\npenalty = { kind = "l1", weight = 1 }'},
            ["entropy_simplex", "penalty"],
        ),
        ({"network": 'topology = "rng"'}, ["'rng'", "did you mean 'ring'?"]),
        ({"network": 'topology = "random"'}, ["max_degree"]),
        ({"network": 'topology = "random"\nmax_degree = 3\nseed = -1'}, ["seed", "-1"]),
        ({"network": 'topology = "hypercube"\ndimension = 2'}, ["4 and 5"]),
        ({"network": 'file = "apart.edges"'}, ["connected", "2 components"]),
        ({"network": 'file = "none.edges"'}, ["none.edges"]),
        ({"network": 'file = "."'}, ["file"]),
        ({"network": 'file = "binary.edges"'}, ["binary.edges"]),
        ({"method": 'name = "pdss"'}, ["'pdss'", "did you mean 'pds'?"]),
        ({"method": 'name = "pds"\nL = -1'}, ["L must be >= 0", "-1"]),
        ({"method": 'name = "pds"\nL = true'}, ["L", "True"]),
        ({"method": 'name = "pds"\nR = 0'}, ["R must be > 0", "0"]),
        ({"method": 'name = "pds"\nR = "theorie"'}, ["R", "theorie"]),
        ({"method": 'name = "pds"\ngrowth = "x"'}, ["growth", "x"]),
        ({"method": 'name = "pds"\ncoupling = "incident"'}, ["'incident'", "did you mean 'incidence'?"]),
        ({"stop": ""}, ["target or a limit"]),
        ({"stop": "iterations = 1.5"}, ["iterations", "1.5"]),
        ({"stop": "objective = nan\niterations = 3"}, ["objective", "nan"]),
        ({"stop": "gap = 1.0\niterations = 3"}, ["gap", "mu=0"]),
        ({"output": "plot = 1"}, ["plot", "true or false"]),
    ],
    ids=lambda value: (
        " ".join(f"{k}: {v}" for k, v in value.items()).replace("\n", ", ") if isinstance(value, dict) else ""
    ),
)
def test_a_mistake_in_a_spec_is_one_line_and_1(tmp_path, capsys, changed, words):
    (tmp_path / "bad.svm").write_text("1 1:1\n1 1:x\n")
    (tmp_path / "three.svm").write_text("1 1:1\n2 1:2\n3 1:3\n")
    (tmp_path / "apart.edges").write_text("0 1\n2 3\n3 4\n")
    (tmp_path / "binary.edges").write_bytes(b"\xff\xfe\x00")
    assert exit_code("run", write_spec(tmp_path, **changed), "--out", tmp_path / "out") == 1
    message = one_error_line(capsys)
    assert [word for word in words if word not in message] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", "none.toml"], "none.toml"),
        (["run", "."], "directory"),
        (["run", "latin.toml"], "latin.toml"),
        (["run", "small.toml", "-q", "--out", "rows.svm"], "rows.svm"),
        (["run", "small.toml", "-q", "--out", "rows.svm/deeper"], "rows.svm"),
        (["run", "small.toml", "other.toml"], "other.toml"),
        (["run", "--bogus"], "--bogus"),
        (["rum"], "rum"),
        (["graph", "rng"], "did you mean 'ring'?"),
        (["graph", "none.edges"], "none.edges"),
        (["graph", "."], "'.'"),
        (["graph", "ring", "-m", "0"], "got 0"),
        (["graph", "ring", "-m", "x"], "--agents"),
        (["graph", "random", "--set", "max_degree"], "'max_degree'"),
        (["graph", "random", "--set", "max_degree=many"], "'many'"),
        (["graph", "random", "--set", "max_degre=4"], "did you mean 'max_degree'?"),
        (["graph", "net.edges", "--set", "max_degree=4"], "max_degree"),
        (["graph", "ring", "--plot", "net.xyz"], "'xyz'"),
        (["graph", "ring", "--plot", "rows.svm/net.png"], "rows.svm"),
        (["data", "path", "a9b"], "did you mean 'a9a'?"),
        (["data", "path", "a9a", "--data-dir", "."], "gradslide data get a9a"),
        (["data", "get", "a9b"], "did you mean 'a9a'?"),
        (["data", "get"], "name"),
        (["info", "--sepc"], "--sepc"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_on_the_command_line_is_one_line_and_1(tmp_path, capsys, arguments, word):
    write_spec(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"version = 1 # \xff")
    (tmp_path / "net.edges").write_text("0 1\n")
    assert exit_code(*arguments) == 1
    assert word in one_error_line(capsys, with_output="--plot" in arguments)


@pytest.mark.parametrize("arguments", [[], ["data"]])
def test_without_a_command_the_help_is_shown(capsys, arguments):
    assert exit_code(*arguments) in (0, 1)
    captured = capsys.readouterr()
    assert "Usage" in captured.out + captured.err
    assert "list" in captured.out + captured.err if arguments else "graph" in captured.out + captured.err


def test_a_mistake_shows_no_traceback_in_a_process_of_its_own(tmp_path):
    for arguments in (["rum"], ["run", tmp_path / "none.toml"]):
        done = command(*arguments)
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr


# Networks


@pytest.mark.parametrize(
    ("topology", "options", "m", "edges"),
    [
        ("random", ["-m", "30", "-s", "max_degree=5", "-s", "edges=50", "-s", "seed=3"], 30, 50),
        ("ring", ["-m", "7"], 7, 7),
        ("path", ["-m", "7"], 7, 6),
        ("star", ["-m", "7"], 7, 6),
        ("complete", ["-m", "7"], 7, 21),
        ("grid", ["-s", "rows=3", "-s", "cols=4"], 12, 17),
        ("torus", ["-s", "rows=3", "-s", "cols=4"], 12, 24),
        ("hypercube", ["-s", "dimension=4"], 16, 32),
        ("regular", ["-m", "10", "-s", "degree=3"], 10, 15),
        ("small_world", ["-m", "12", "-s", "neighbours=4", "-s", "rewire=0.2"], 12, 24),
        ("geometric", ["-m", "12", "-s", "radius=0.9"], 12, None),
    ],
)
def test_graph_describes_every_topology(capsys, topology, options, m, edges):
    assert exit_code("graph", topology, *options, "--json") == 0
    facts = strict_json(capsys.readouterr().out)
    assert facts["m"] == m
    assert edges is None or facts["edges"] == edges
    assert 0 < facts["l2"] <= facts["lmax"]
    assert facts["degree_min"] <= facts["degree_mean"] <= facts["degree_max"]


def test_graph_prints_a_table_and_takes_100_agents_by_default(capsys):
    assert exit_code("graph", "ring") == 0
    out = capsys.readouterr().out
    for words in ("m=100", "diameter", "largest eigenvalue of the Laplacian", "gap metropolis", "50"):
        assert words in out


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_graph_draws(tmp_path, capsys, ending, start):
    picture = tmp_path / "new" / f"net.{ending}"
    assert exit_code("graph", "star", "-m", 9, "--plot", picture) == 0
    assert picture.read_bytes().startswith(start)
    assert str(picture) in capsys.readouterr().out
    assert exit_code("graph", "ring", "-m", 9, "--plot", picture, "--json") == 0
    assert strict_json(capsys.readouterr().out)["m"] == 9


def test_graph_draws_unless_told_not_to(tmp_path, capsys):
    assert exit_code("graph", "ring", "-m", 9, "--no-draw") == 0
    assert exit_code("graph", "ring", "-m", 9, "--json") == 0
    assert list(tmp_path.iterdir()) == []
    assert exit_code("graph", "ring", "-m", 9) == 0
    (picture,) = tmp_path.glob("**/*.png")
    assert str(picture.relative_to(tmp_path)) in capsys.readouterr().out


def test_graph_reads_an_edge_list(tmp_path, capsys):
    file = tmp_path / "net.edges"
    file.write_text("# a triangle with a tail\n0 1 2.0\n1 2 0.5\n0 2 1.0\n2 3 1.0  # the tail\n")
    assert exit_code("graph", file, "--json") == 0
    facts = strict_json(capsys.readouterr().out)
    assert (facts["m"], facts["edges"], facts["degree_max"], facts["diameter"]) == (4, 4, 3, 2)
    assert facts["lmax"] == pytest.approx(gs.Graph.load(file).laplacian_norm)


def test_a_lone_agent_is_described(capsys):
    assert exit_code("graph", "path", "-m", 1, "--json") == 0
    assert strict_json(capsys.readouterr().out)["l2"] is None


# Information


def test_info_in_words_and_as_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GRADSLIDE_DATA", str(tmp_path))
    assert exit_code("info") == 0
    words = capsys.readouterr().out
    assert exit_code("info", "--json") == 0
    facts = strict_json(capsys.readouterr().out)
    assert facts["gradslide"] == gs.__version__
    assert facts["numpy"] == np.__version__
    assert facts["data directory"] == str(tmp_path)
    assert [name for name in facts if name not in words] == []


def test_info_shows_a_spec_that_can_be_run(capsys):
    assert exit_code("info", "--spec") == 0
    text = capsys.readouterr().out
    assert parse_spec(text, name="misfire", folder=Path()) == main_job()
    assert "#" in text


@pytest.fixture
def tiny_bench(monkeypatch):
    sizes = machine.Sizes((6, 8, 5), [(6, 5, 2)], [(6, 5, 2, 4)], [(6, 8, 5, 2, (2, 6))], seconds=0.0)
    monkeypatch.setattr(machine, "Sizes", lambda: sizes)
    yield
    startup_of.cache_clear()


@pytest.mark.usefixtures("tiny_bench")
def test_bench_in_words_and_as_json(capsys):
    assert exit_code("info", "--bench") == 0
    shown = capsys.readouterr()
    assert "memory read, 6 x 8 x 5, 1 thread: " in shown.err
    for words in ("What this machine does", "gradient", "exchange", "iteration of AutoPDS", "measured in"):
        assert words in shown.out
    assert exit_code("info", "--bench", "--json") == 0
    document = strict_json(capsys.readouterr().out)
    assert document["installation"]["gradslide"] == gs.__version__
    assert {"memory read", "gradient", "exchange"} <= {each["name"] for each in document["measurements"]}


@pytest.mark.parametrize("width", [80, 200])
def test_a_narrow_terminal_breaks_no_word_of_the_advice(width, capsys, monkeypatch):
    meaning = "as fast with one thread: set OMP_NUM_THREADS=1 if other programs need the cores"
    found = machine.Measurement(
        "inner iteration of PDS", 1.5, "us", (1000, 200, 300), 2, 20.3, "times NumPy's speed", meaning
    )
    monkeypatch.setattr(machine, "measure_machine", lambda progress: machine.MachineReport([found], 1.0))
    monkeypatch.setattr(shared, "_output", lambda: Console(width=width))
    assert exit_code("info", "--bench") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    row = next(line for line in lines if line.startswith("inner iteration of PDS "))
    assert (meaning in row) == (width == 200)
    words = " ".join(" ".join(lines).split())
    assert "OMP_NUM_THREADS=1" in words
    if width == 80:
        assert f"inner iteration of PDS, 1,000 x 200 x 300, 2 threads: {meaning}" in words


@pytest.mark.usefixtures("tiny_bench")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_ends_a_bench_with_a_message(capsys, monkeypatch, options):
    def press(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "solved", press)
    assert exit_code("info", "--bench", *options) == 2
    shown = capsys.readouterr()
    assert "interrupted before all measurements were made: no results; run the command again" in " ".join(
        shown.err.split()
    )
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_a_spec_and_a_bench_are_not_asked_for_at_once(capsys):
    assert exit_code("info", "--bench", "--spec") == 1
    assert "give one of them" in capsys.readouterr().err


def test_version(capsys):
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"{gs.__version__}\n"


def commands():
    """Every command and group, with the words that lead to it."""

    def below(command, words):
        yield pytest.param(words, command.params, id=" ".join(words) or "gradslide")
        for name, child in getattr(command, "commands", {}).items():
            yield from below(child, [*words, name])

    return list(below(typer.main.get_command(app), []))


@pytest.mark.parametrize(("words", "parameters"), commands())
def test_help_tells_every_option(capsys, monkeypatch, words, parameters):
    monkeypatch.setenv("COLUMNS", "200")
    assert exit_code(*words, "--help") == 0
    text = capsys.readouterr().out
    for parameter in parameters:
        assert parameter.help
        named = parameter.opts if parameter.param_type_name == "option" else [parameter.name]
        assert [name for name in named if name.lower() not in text.lower()] == []


def test_help_teaches(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    exit_code("--help")
    assert "Exit codes: 0" in capsys.readouterr().out
    exit_code("run", "--help")
    assert "gradslide info --spec" in capsys.readouterr().out
    exit_code("graph", "--help")
    assert "gradslide graph ring -m 50" in capsys.readouterr().out


@pytest.mark.slow
def test_the_installed_script_completes_words():
    assert SCRIPT.exists()

    def completed(words):
        env = {**os.environ, "_GRADSLIDE_COMPLETE": "complete_bash", "COMP_WORDS": words}
        env["COMP_CWORD"] = str(len(words.split(" ")) - 1)
        return subprocess.run([SCRIPT], env=env, capture_output=True, text=True, timeout=60).stdout.split()

    assert {"run", "graph", "info", "data"} <= set(completed("gradslide "))
    assert completed("gradslide gr") == ["graph"]
    assert "--data-dir" in completed("gradslide run --")


def test_completion_script():
    env = {**os.environ, "_GRADSLIDE_COMPLETE": "source_bash"}
    done = subprocess.run([SCRIPT], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "complete -o default -F _gradslide_completion gradslide" in done.stdout


# Data


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """The folder of the environment holds w8a, another one a9a."""
    for folder, file in (("env", "w8a"), ("other", "a9a.svm.xz")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_bytes(b"never read")
    monkeypatch.setenv("GRADSLIDE_DATA", str(tmp_path / "env"))
    return tmp_path / "env", tmp_path / "other"


def test_data_list(two_folders, capsys):
    env, other = two_folders
    for options, here in [([], {"w8a": env / "w8a"}), (["--data-dir", other], {"a9a": other / "a9a.svm.xz"})]:
        assert exit_code("data", "list", "--json", *options) == 0
        entries = strict_json(capsys.readouterr().out)
        assert {entry["name"]: Path(entry["path"]) for entry in entries if entry["path"]} == here
        assert {"ijcnn1", "a9a", "mushrooms", "w8a", "phishing", "covtype.binary"} == {e["name"] for e in entries}
    assert exit_code("data", "list") == 0
    table = capsys.readouterr().out
    assert "49,749" in table
    assert "gradslide data get a9a" in table


def test_data_path_and_get(two_folders, capsys):
    env, other = two_folders
    for arguments, path in [
        (["path"], env),
        (["path", "--data-dir", other], other),
        (["path", "w8a"], env / "w8a"),
        (["get", "w8a"], env / "w8a"),
        (["get", "a9a", "--data-dir", other], other / "a9a.svm.xz"),
    ]:
        assert exit_code("data", *arguments) == 0
        assert capsys.readouterr().out == f"{path}\n"


def test_offline_the_error_says_which_file_goes_where(tmp_path):
    nowhere = dict.fromkeys(("https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    env = {**nowhere, "no_proxy": "", "NO_PROXY": "", "GRADSLIDE_DATA": str(tmp_path)}
    for arguments in (["data", "get", "w8a"], ["run", write_spec(tmp_path, data='name = "w8a"\nagents = 5')]):
        done = command(*arguments, env=env, cwd=tmp_path)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith("error: ")
        assert f"put w8a into {tmp_path}" in last
        assert "Traceback" not in done.stderr


@pytest.mark.skipif(not (DATA / "mushrooms.svm.xz").exists(), reason="mushrooms is not in the data directory")
@pytest.mark.parametrize("by_option", [True, False])
def test_a_named_data_set_is_run_from_the_data_directory(tmp_path, monkeypatch, capsys, by_option):
    monkeypatch.setenv("GRADSLIDE_DATA", str(tmp_path if by_option else DATA))
    spec = write_spec(tmp_path, data='name = "mushrooms"\nagents = 5\nrows = 500')
    options = ["--data-dir", DATA] if by_option else []
    assert exit_code("run", spec, "--json", "--out", tmp_path / "out", *options) == 0
    assert "d=112" in strict_json(capsys.readouterr().out)["problem"]


# Ctrl-C


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ there")
def test_ctrl_c_writes_what_was_reached_and_ends_with_2(tmp_path):
    networks = "".join(f'[[network]]\nname = "{name}"\ntopology = "ring"\n' for name in ("first", "second", "third"))
    spec = write_spec(
        tmp_path,
        network=networks,
        stop="seconds = 1.5",
        output='plot = false\ncheckpoint = true\ndir = "out"',
    )
    process = subprocess.Popen(
        [*MODULE, "run", str(spec)], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        # The checkpoint of the first network is written when it ends; then the second one runs.
        while not (tmp_path / "out" / "first.checkpoint.npz").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 2, err
    assert "Traceback" not in err
    assert "interrupted" in out
    runs = strict_json((tmp_path / "out" / "results.json").read_text())["runs"]
    assert [(run["network"], run["status"]) for run in runs] == [("first", "TIME_LIMIT"), ("second", "INTERRUPTED")]
    solution = gs.load(tmp_path / "out" / "second.solution.npz")
    # Records are fewer where time is short.
    assert solution.history[-1].gradients == runs[1]["costs"]["gradients"] >= len(solution.history) > 0


@pytest.mark.parametrize("stage", ["Optimum", "_measured"])
def test_ctrl_c_outside_of_a_solve_shows_no_traceback(tmp_path, capsys, monkeypatch, stage):
    def press(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, stage, press)
    spec = write_spec(tmp_path, stop="objective = { relative = 0.5 }\niterations = 5")
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 2
    assert "Traceback" not in capsys.readouterr().err
