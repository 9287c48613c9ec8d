"""Comparison files: every method and condition can be named, and a mistake is one clear line before anything runs."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from comparisons import TABLES, comparison_text, default_tasks, several, write_comparison
from specs import exit_code, write_rows

import gradslide as gs
from gradslide import methods as all_methods
from gradslide import network
from gradslide.experiments import build, catalogue
from gradslide.experiments.compare import run as running
from gradslide.experiments.compare.spec import (
    Entry,
    example_comparison,
    example_text,
    parse_comparison,
    read_comparison,
)
from gradslide.experiments.compare.work import perform, prepared
from gradslide.experiments.spec import DEFAULT_METHOD
from gradslide.network import compressors

CONDITIONS = {
    "varying": "up = 0.8",
    "sleeping": "asleep = 0.5, length = 2",
    "stragglers": "agents = [0, 2], late = 0.5",
    "bursty": 'lost = 0.5, direction = "each"',
    "lossy": 'lost = 0.5, direction = "both"',
    "compressed": 'compressor = { kind = "top_k", k = 2 }',
    "noisy": "sigma = 0.01",
}
OPTIONS = {
    "spds": "N = 20",
    "choco_sgd": 'compressor = { kind = "quantization", levels = 8 }\nseed = 4',
    "sdcs": 'oracle = "without_replacement"',
}
PROBLEM = TABLES["problem"]


def parsed(**changed):
    return parse_comparison(comparison_text(**changed), "small", Path())


# Everything can be reached


def test_no_method_condition_or_compressor_is_forgotten():
    public = {getattr(all_methods, name) for name in all_methods.__all__} - {all_methods.Context, all_methods.Method}
    assert public == set(catalogue.METHODS.values())
    not_conditions = {
        getattr(network, name)
        for name in ("Network", "CostModel", "Session", "Local", "MPI", "Peers", "Counted", "Delayed")
    }
    assert {getattr(network, name) for name in network.__all__} - not_conditions == set(catalogue.CONDITIONS.values())
    kinds = {getattr(compressors, name) for name in compressors.__all__} - {compressors.Compressor}
    assert kinds == set(catalogue.COMPRESSORS.values())
    assert set(CONDITIONS) == set(catalogue.CONDITIONS)
    assert set(catalogue.OURS) <= set(catalogue.METHODS)


@pytest.mark.parametrize("kind", CONDITIONS)
def test_conditions(tmp_path, kind):
    condition = f'name = "bad"\nkinds = [{{ kind = "{kind}", {CONDITIONS[kind]} }}]'
    (task,) = default_tasks(tmp_path, condition=condition)
    assert type(prepared(task)[0]) is catalogue.CONDITIONS[kind]
    found = perform(task)
    assert (found.kind, found.condition) == ("done", "bad"), found.message
    (fair,) = default_tasks(tmp_path)
    assert found.curve["error"] != perform(fair).curve["error"]


def test_conditions_act_together_links_outside(tmp_path):
    inside = '{ kind = "noisy", sigma = 0.01, seed = 7 }'
    for kinds in (f'[{inside}, {{ kind = "lossy", lost = 0.2 }}]', f'[{{ kind = "lossy", lost = 0.2 }}, {inside}]'):
        (task,) = default_tasks(tmp_path, condition=f'name = "both"\nkinds = {kinds}', top="version = 1\nseeds = [3]")
        expected = network.Lossy(network.Noisy(gs.Graph.ring(5), 0.01, seed=7), 0.2, seed=3)
        assert repr(prepared(task)[0]) == repr(expected)


@pytest.mark.parametrize("name", catalogue.METHODS)
def test_methods(tmp_path, name):
    """At its default and at a multiple of it."""
    limits = "gradients = 50\nsamples = 200\nrounds = 300"
    # Gradients that are bounded, and strong convexity: what one or the other asks for.
    problem = 'data = { file = "rows.svm", agents = 5 }\nloss = "logistic"\nmu = 1.0'
    method = f'name = "{name}"\n{OPTIONS.get(name, "")}'
    (task,) = default_tasks(tmp_path, problem=problem, method=method, limits=limits)
    found = perform(task)
    assert (found.kind, found.method) == ("done", name), found.message
    assert found.error < found.curve["error"][0]
    assert found.costs["rounds"] > 0
    assert found.costs["gradients"] + found.costs["samples"] > 0
    tuned = catalogue.METHODS[name].tuned
    assert (not tuned) == (name in catalogue.OURS)
    if tuned:
        assert tuned in inspect.signature(catalogue.METHODS[name]).parameters
        (again,) = running._on_grid(dataclasses.replace(task, method=with_grid(task.method, 0.5)), found)
        assert perform(again).parameters[tuned] == pytest.approx(0.5 * found.parameters[tuned], rel=1e-12)


def with_grid(method, *grid):
    return dataclasses.replace(method, grid=grid)


def test_parameters_of_methods_arrive(tmp_path):
    choco = f'name = "choco_sgd"\ngamma = 0.25\nbatch = 2\n{OPTIONS["choco_sgd"]}'
    (task,) = default_tasks(tmp_path, method=choco, top="version = 1\nseeds = [1, 2]")
    method = prepared(task)[1]
    assert method == gs.ChocoSGD(compressor=compressors.Quantization(levels=8), gamma=0.25, batch=2, seed=4)
    seeded = default_tasks(tmp_path, method='name = "dsgd"', top="version = 1\nseeds = [5, 6]")
    assert [prepared(each)[1].seed for each in seeded] == [5, 6]


def test_clocks_are_presets_changed_presets_or_numbers(tmp_path):
    clocks = several(
        "clock",
        'name = "lan"',
        'name = "wan"\ngradient = 2.0',
        'name = "wan"\ngradient = 3.0',
        'name = "far"\npreset = "satellite"\nlatency = 1.0',
        'name = "own"\nlatency = [0.1, 0.2, 0.3, 0.4, 0.5]',
    )
    (task,) = default_tasks(tmp_path, clock=clocks)
    made = prepared(task)[2]
    expected = {
        "lan": gs.Clock.lan(),
        "wan": gs.Clock.wan(gradient=2.0),
        "wan (2)": gs.Clock.wan(gradient=3.0),
        "far": gs.Clock.satellite(latency=1.0),
        "own": gs.Clock(latency=[0.1, 0.2, 0.3, 0.4, 0.5]),
    }
    assert {name: clock.fingerprint for name, clock in made.items()} == {
        name: clock.fingerprint for name, clock in expected.items()
    }
    assert list(perform(task).reached[0]["simulated_seconds"]) == list(expected)


# What a file says


def test_what_is_left_out_has_a_default():
    text = comparison_text(top="version = 1", limits=None, output=None)
    found = parse_comparison(text, "mine", Path())
    assert found.title == found.name == "mine"
    assert (found.accuracies, found.disagreement_factor, found.seeds, found.processes) == (
        [1e-2, 1e-3, 1e-4],
        10.0,
        [0],
        None,
    )
    assert found.conditions == [Entry("reliable network", {})]
    assert found.clocks == {}
    assert found.limits == {"gradients": 1000, "rounds": 100_000}
    assert str(found.output.dir).replace("\\", "/") == "gradslide-results/mine"
    assert found.output.plot
    assert found.methods[0].grid == ()


def test_accuracies_are_sorted_and_grids_belong_to_methods():
    table = several(
        "method", 'name = "nids"', 'name = "extra"\ngrid = [4]', 'name = "dgd"\ngrid = false', 'name = "pds"'
    )
    found = parsed(top="version = 1\naccuracies = [0.01, 1, 0.1]\ngrid = [0.5, 2]", method=table)
    assert found.accuracies == [1.0, 0.1, 0.01]
    assert [method.grid for method in found.methods] == [(0.5, 2.0), (4.0,), (), (0.5, 2.0)]


def test_the_default_method_is_that_of_a_spec():
    (method,) = parsed(method=None).methods
    assert (method.name, method.table) == (DEFAULT_METHOD, {"name": DEFAULT_METHOD})


def test_methods_may_be_a_list_of_names():
    top = f'{TABLES["top"]}\nmethod = ["nids", "pds"]\nclock = ["lan"]'
    found = parsed(top=top, method=None)
    assert [(method.name, method.table) for method in found.methods] == [
        ("nids", {"name": "nids"}),
        ("pds", {"name": "pds"}),
    ]
    assert list(found.clocks) == ["lan"]


def test_the_old_name_of_the_disagreement_factor_is_read_with_a_warning():
    text = comparison_text(top="version = 1\napart = 3")
    with pytest.warns(DeprecationWarning, match="disagreement_factor"):
        found = parse_comparison(text, "old", Path())
    assert found.disagreement_factor == 3.0


def test_two_of_a_name_are_told_apart():
    table = several("method", 'name = "nids"', 'name = "nids"\nstep_size = 0.1', 'name = "dgd"\nlabel = "nids"')
    assert [method.name for method in parsed(method=table).methods] == ["nids", "nids (2)", "nids (3)"]
    networks = several("network", 'topology = "ring"', 'topology = "ring"', 'topology = "star"\nname = "hub"')
    assert [entry.name for entry in parsed(network=networks).networks] == ["ring", "ring (2)", "hub"]


def test_only_what_is_random_runs_with_every_seed(tmp_path):
    changed = {
        "top": "version = 1\nseeds = [3, 4]",
        "method": several("method", 'name = "nids"', 'name = "dsgd"', 'name = "dsgd"\nseed = 9\nlabel = "fixed"'),
        "condition": several("condition", 'name = "fair"', 'name = "bad"\nkinds = [{ kind = "noisy", sigma = 0.1 }]'),
    }
    found = [(task.condition.name, task.method.name, task.seed) for task in default_tasks(tmp_path, **changed)]
    fair = [("fair", "nids", 3), ("fair", "dsgd", 3), ("fair", "dsgd", 4), ("fair", "fixed", 3)]
    assert found == fair + [("bad", name, seed) for name in ("nids", "dsgd", "fixed") for seed in (3, 4)]


def test_the_built_in_comparison_is_a_commented_example(capsys):
    assert exit_code("compare", "--spec") == 0
    text = capsys.readouterr().out
    assert text == example_text()
    found = example_comparison()
    assert parse_comparison(text, "compare", found.folder) == found
    assert "#" in text
    assert [method.name for method in found.methods][:3] == ["auto", "pds", "nids"]
    running._check(found, None)
    # Its commented lines are right too.
    keys = ("# disagreement_factor", "# processes", "# optional", "# [[condition]]", "# name", "# kinds")
    lines = [line[2:] if line.startswith(keys) else line for line in text.splitlines()]
    uncommented = parse_comparison("\n".join(lines), "compare", found.folder)
    assert (uncommented.disagreement_factor, uncommented.processes) == (10.0, 2)
    running._check(uncommented, None)
    assert build.conditions_over(gs.Graph.ring(5), uncommented.conditions[0].table["kinds"], seed=0)


# Mistakes


def changed(**tables):
    return tables


MISTAKES = [
    (changed(top="version ="), ["TOML", "line 1"]),
    (changed(top="version = 2"), ["version of the spec must be 1", "got 2"]),
    (changed(top="version = 1\naccuracy = [0.1]"), ["'accuracy'", "did you mean 'accuracies'?"]),
    (changed(top="version = 1\naccuracies = []"), ["accuracies", "got []"]),
    (changed(top="version = 1\naccuracies = 0.1"), ["accuracies", "a list", "0.1"]),
    (changed(top="version = 1\naccuracies = [0.1, -0.1]"), ["accuracies", "> 0", "-0.1"]),
    (changed(top='version = 1\naccuracies = ["0.1"]'), ["accuracies", "'0.1'"]),
    (changed(top="version = 1\naccuracies = [nan]"), ["accuracies", "nan"]),
    (changed(top="version = 1\ndisagreement_factor = 0"), ["disagreement_factor", "> 0", "0.0"]),
    (changed(top="version = 1\ndisagreement_factor = 1\napart = 1"), ["disagreement_factor", "both"]),
    (changed(top="version = 1\ngrid = [2.0, 0]"), ["grid", "> 0", "got 0"]),
    (changed(top="version = 1\nseeds = []"), ["seeds", "at least one"]),
    (changed(top="version = 1\nseeds = [-1]"), ["seed", "-1"]),
    (changed(top="version = 1\nseeds = [0.5]"), ["seed", "0.5"]),
    (changed(top="version = 1\nprocesses = 0"), ["processes", ">= 1", "got 0"]),
    # problems
    (changed(problem=None), ["[problem]"]),
    (changed(top="version = 1\nproblem = []", problem=None), ["[problem]", "got []"]),
    (changed(problem='loss = "logistic"'), ["[problem] needs 'data'"]),
    (changed(problem='data = "misfire"\nloss = "logistic"'), ["data", "a table", "'misfire'"]),
    (changed(problem='data = "misfire"\noptional = true\nloss = "logistic"'), ["data", "a table", "'misfire'"]),
    (changed(problem='data = { file = "rows.svm" }\nloss = "logistic"'), ["'agents'"]),
    (changed(problem='data = { file = "none.svm", agents = 5 }\nloss = "logistic"'), ["none.svm", "No such file"]),
    (changed(problem='data = { file = 3, agents = 5 }\noptional = true\nloss = "logistic"'), ["file", "a string", "3"]),
    (
        changed(problem='data = { name = "a9b", agents = 5 }\noptional = true\nloss = "logistic"'),
        ["did you mean 'a9a'?"],
    ),
    (
        changed(problem='data = { name = "misfire", agents = 5, splt = 1 }\nloss = "logistic"'),
        ["did you mean 'split'?"],
    ),
    (changed(problem='data = { file = "rows.svm", agents = 5 }\nloss = "logit"'), ["did you mean 'logistic'?"]),
    (changed(problem=several("problem", PROBLEM, f"{PROBLEM}\nmuu = 1")), ["'muu'", "did you mean 'mu'?"]),
    (changed(problem=f'{PROBLEM}\noptional = "yes"'), ["optional", "true or false", "'yes'"]),
    (changed(problem=f"{PROBLEM}\ndomain.set = 3"), ["set", "a string", "3"]),
    # networks
    (changed(network=None), ["[network]"]),
    (changed(network='topology = "rng"'), ["'rng'", "did you mean 'ring'?"]),
    (changed(network='topology = "ring"\nlabel = "x"'), ["[network]", "'label'"]),
    (changed(network='topology = "hypercube"\ndimension = 2'), ["same number of agents", "4 and 5"]),
    (changed(network='file = "none.edges"'), ["none.edges"]),
    (changed(network="file = 3\noptional = true"), ["file", "a string", "3"]),
    (changed(network='name = 3\ntopology = "ring"'), ["name", "a string", "3"]),
    # conditions
    (changed(condition='name = "x"\nkind = "lossy"'), ["'kind'", "did you mean 'kinds'?"]),
    (changed(condition='name = "x"\nkinds = "lossy"'), ["kinds", "a list", "'lossy'"]),
    (changed(condition='name = "x"\nkinds = ["lossy"]'), ["[condition] must be a table", "'lossy'"]),
    (changed(condition='name = "x"\nkinds = [{ kind = "losy" }]'), ["'losy'", "did you mean 'lossy'?"]),
    (changed(condition='name = "x"\nkinds = [{ kind = "lossy", lots = 0.1 }]'), ["'lots'", "did you mean 'lost'?"]),
    (changed(condition='name = "x"\nkinds = [{ kind = "lossy", lost = 2 }]'), ["lost", "2"]),
    (changed(condition='name = "x"\nkinds = [{ kind = "noisy" }]'), ["sigma"]),
    (changed(condition='name = "x"\nkinds = [{ kind = "compressed" }]'), ["'compressor'"]),
    (
        changed(condition='name = "x"\nkinds = [{ kind = "compressed", compressor = { kind = "topk", k = 1 } }]'),
        ["top_k"],
    ),
    # clocks
    (changed(clock='name = "wann"'), ["'wann'", "did you mean 'wan'?"]),
    (changed(clock='name = "x"\npreset = "wann"'), ["'wann'", "did you mean 'wan'?"]),
    (changed(clock='kind = "wan"'), ["kind", "'wan'"]),
    (changed(clock='name = "wan"\nlatancy = 1'), ["'latancy'", "did you mean 'latency'?"]),
    (changed(clock='name = "wan"\nlatency = -1'), ["latency", "-1"]),
    (changed(clock='name = "wan"\nlatency = [1, 2]'), ["latency", "each of 5 links", "(2,)"]),
    (changed(clock='name = "wan"\ngradient = "slow"'), ["gradient", "slow"]),
    # methods
    (changed(method="step_size = 0.1"), ["[method] needs 'name'"]),
    (changed(method='name = ["nids"]\nlabel = "x"'), ["name", "a string", "['nids']"]),
    (changed(method="name = 3"), ["name", "a string", "3"]),
    (changed(method='name = "nds"'), ["'nds'", "did you mean"]),
    (changed(method=several("method", 'name = "pds"', 'name = "nids"\nstepsize = 1')), ["did you mean 'step_size'?"]),
    (changed(method='name = "nids"\nstep_size = -1'), ["step_size", "-1"]),
    (changed(method='name = "nids"\ngrid = 2'), ["grid", "a list", "2"]),
    (changed(method='name = "nids"\ngrid = [-2]'), ["grid", "-2"]),
    (changed(method='name = "pds"\ngrid = [2.0]'), ["something to tune", "pds", "[2.0]"]),
    (changed(method='name = "spds"'), ["N, or samples"]),
    (changed(method='name = "pds"\nR = "theory"'), ["theory"]),
    (changed(method='name = "spds"\nN = 5\ndistance = "theory"'), ["theory"]),
    (changed(method='name = "choco_sgd"\ncompressor = { kind = "topk" }'), ["did you mean 'top_k'?"]),
    # limits and output
    (changed(limits=""), ["[limits] must hold a limit"]),
    (changed(limits="gradient = 5"), ["'gradient'", "did you mean 'gradients'?"]),
    (changed(limits="gradients = 0"), ["gradients", "> 0", "0"]),
    (changed(limits="gradients = 1.5"), ["gradients", "1.5"]),
    (changed(limits="samples = 5"), ["nids", "samples", "gradients"]),
    (changed(limits="gradients = 5", method='name = "dsgd"'), ["dsgd", "gradients", "samples"]),
    (changed(output="checkpoint = true"), ["'checkpoint'"]),
    (changed(output="plot = 1"), ["plot", "true or false"]),
]


@pytest.fixture
def nothing_is_computed(monkeypatch):
    def compute(*arguments, **named):
        raise AssertionError("computed something first")

    monkeypatch.setattr(running.work, "reference", compute)
    monkeypatch.setattr(running, "performed", compute)


def one_error_line(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    rule, got, remedy = captured.err.split("; ", 2)
    assert got.startswith("got ")
    assert rule
    assert remedy
    return captured.err


@pytest.mark.parametrize(
    ("tables", "words"),
    MISTAKES,
    ids=lambda value: (
        " ".join(f"{k}: {v}" for k, v in value.items()).replace("\n", ", ") if isinstance(value, dict) else ""
    ),
)
def test_a_mistake_is_one_line_and_1_before_anything_is_computed(tmp_path, capsys, nothing_is_computed, tables, words):
    assert exit_code("compare", write_comparison(tmp_path, **tables), "--out", tmp_path / "out") == 1
    message = one_error_line(capsys)
    assert [word for word in words if word not in message] == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["none.toml"], "none.toml"),
        (["small.toml", "--processes", "0"], "processes"),
        (["small.toml", "-j", "-2"], "-2"),
        (["small.toml", "-j", "many"], "-j"),
        (["small.toml", "--bogus"], "--bogus"),
        (["small.toml", "--out", "rows.svm"], "rows.svm"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_on_the_command_line(tmp_path, monkeypatch, capsys, nothing_is_computed, arguments, word):
    monkeypatch.chdir(tmp_path)
    write_comparison(tmp_path)
    assert exit_code("compare", *arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert word in captured.err
    assert "Traceback" not in captured.err


# Files that may be missing


def available(folder, data_dir=None, **tables):
    """The names of the problems and networks that are left, and the notes."""
    said = []
    comparison = read_comparison(write_comparison(folder, **tables))
    files = running.Files(comparison.folder, data_dir)
    found = running.available(comparison, files, said.append)
    running._check(found, data_dir)
    return [entry.name for entry in found.problems], [entry.name for entry in found.networks], said


def test_optional_problems_and_networks_are_left_out_with_a_note(tmp_path):
    tables = {
        "problem": several(
            "problem",
            f"{PROBLEM}\noptional = true",
            'name = "elsewhere"\noptional = true\ndata = { file = "none.svm", agents = 5 }\nloss = "logistic"',
            'name = "unfetched"\noptional = true\ndata = { name = "a9a", agents = 5 }\nloss = "logistic"',
            'name = "built in"\noptional = true\ndata = { name = "misfire", agents = 5 }\nloss = "logistic"',
        ),
        "network": several(
            "network",
            'topology = "ring"\noptional = true',
            'name = "drawn"\noptional = true\nfile = "net.edges"',
        ),
    }
    problems, networks, said = available(tmp_path, tmp_path / "data", **tables)
    assert (problems, networks) == (["squares", "built in"], ["ring"])
    assert [note.split(":")[0] for note in said] == ["problem elsewhere", "problem unfetched", "network drawn"]
    assert all("left out" in note and str(tmp_path / "data") in note for note in said)
    with pytest.raises(gs.InputError, match=re.escape("net.edges")):
        available(tmp_path, tmp_path / "data", **{**tables, "network": 'file = "net.edges"'})


def test_files_are_found_beside_the_spec_and_in_the_data_directory(tmp_path, monkeypatch):
    drawn = {"network": 'name = "drawn"\noptional = true\nfile = "net.edges"'}
    edges = "0 1\n1 2\n2 3\n3 4\n"
    for place in ("beside", "data", "environment"):
        for folder in (tmp_path / place, tmp_path / place / "specs"):
            folder.mkdir()
        beside = tmp_path / place / "specs"
        (beside if place == "beside" else tmp_path / place).joinpath("net.edges").write_text(edges)
        if place == "environment":
            monkeypatch.setenv("GRADSLIDE_DATA", str(tmp_path / place))
        data_dir = tmp_path / place if place == "data" else None
        assert available(beside, data_dir, **drawn) == (["squares"], ["drawn"], [])
    (task,) = default_tasks(tmp_path / "beside" / "specs", **drawn)
    assert prepared(task)[0].graph.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


@pytest.mark.parametrize("what", ["problem", "network"])
def test_nothing_left_is_a_mistake(tmp_path, capsys, what):
    tables = {
        "problem": 'optional = true\ndata = { file = "none.svm", agents = 5 }\nloss = "logistic"',
        "network": 'optional = true\nfile = "none.edges"',
    }
    spec = write_comparison(tmp_path, **{what: tables[what]})
    assert exit_code("compare", spec, "-q", "--out", tmp_path / "out", "--data-dir", tmp_path) == 1
    assert f"a comparison needs a {what}; got none whose file is here" in one_error_line(capsys)


def test_optional_data_is_taken_from_the_data_directory(tmp_path):
    (tmp_path / "data").mkdir()
    write_rows(tmp_path / "data", "mushrooms.svm")
    problem = 'name = "named"\noptional = true\ndata = { name = "mushrooms", agents = 5 }\nloss = "least_squares"'
    files = running.Files(tmp_path, tmp_path / "data")
    entry = read_comparison(write_comparison(tmp_path, problem=problem)).problems[0]
    assert files.data(entry) == tmp_path / "data" / "mushrooms.svm"
    assert not files.lacks(entry, files.data(entry))
    assert files.lacks(entry, running.Files(tmp_path, tmp_path).data(entry))
