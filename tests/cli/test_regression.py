"""Regressions on the command line: fitted to tables by run, used by predict; mistakes are one line."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from specs import exit_code

import gradslide as gs
from gradslide.regression import load_model


def made(rows=90, seed=0):
    """Rows of three sites."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"site": np.repeat(["a", "b", "c"], rows // 3), "age": rng.uniform(20, 90, rows).round(1)})
    table["stage"] = rng.choice(["I", "II", "III"], rows)
    level = 0.03 * (table["age"] - 55) + table["stage"].map({"I": -0.5, "II": 0.0, "III": 0.5})
    table["ill"] = np.where(rng.random(rows) < 1 / (1 + np.exp(-level)), "yes", "no")
    table["visits"], table["days"] = rng.poisson(np.exp(0.3 * level) * 3), rng.uniform(1, 9, rows).round(2)
    table["time"], table["event"] = rng.exponential(np.exp(-level)).round(3) + 0.001, rng.integers(0, 2, rows)
    return table


TABLE = made()
REGRESSIONS = {
    "linear": {"label": "visits", "features": ("age", "stage")},
    "logistic": {"label": "ill", "features": ("age", "stage")},
    "three classes": {"family": "logistic", "label": "stage", "features": ("age", "visits")},
    "poisson": {"label": "visits", "exposure": "days", "features": ("age", "stage")},
    "cox": {"time": "time", "event": "event", "features": ("age", "stage")},
}


@pytest.fixture(scope="module")
def models():
    """A fitted model of each kind."""
    given = {name: gs.Regression(**{"family": name, **each}) for name, each in REGRESSIONS.items()}
    return {name: gs.fit(each, TABLE, sites="site").model for name, each in given.items()}


@pytest.fixture
def card(models, tmp_path):
    """A function that writes the card of a model."""
    return lambda name: models[name].save(tmp_path / "model.json")


@pytest.fixture
def rows(tmp_path):
    """Rows to predict for."""
    made(rows=12, seed=1).to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


# predict


HEADS = {
    "linear": ["row", "expected value"],
    "logistic": ["row", "probability of no", "probability of yes", "class"],
    "three classes": ["row", "probability of I", "probability of II", "probability of III", "class"],
    "poisson": ["row", "expected count"],
    "cox": ["row", "relative hazard"],
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_predictions_are_csv_that_reads_back_as_they_were(name, models, card, rows, capsys):
    assert exit_code("predict", card(name), rows) == 0
    out, err = capsys.readouterr()
    assert err == ""
    found = list(csv.DictReader(io.StringIO(out)))
    assert list(found[0]) == HEADS[name]
    assert [row["row"] for row in found] == [str(number) for number in range(1, 13)]
    expected = models[name].predict(rows)
    columns = HEADS[name][1 : 1 + (expected.shape[1] if expected.ndim == 2 else 1)]
    np.testing.assert_array_equal([[float(row[each]) for each in columns] for row in found], expected.reshape(12, -1))
    if "class" in HEADS[name]:
        classes = models[name].schema.classes
        assert [row["class"] for row in found] == [classes[best] for best in expected.argmax(axis=1)]


def test_predictions_go_to_a_file(card, rows, tmp_path, capsys):
    assert exit_code("predict", card("logistic"), rows) == 0
    printed = capsys.readouterr().out
    assert exit_code("predict", card("logistic"), rows, "--out", tmp_path / "new" / "out.csv") == 0
    assert capsys.readouterr().out == f"written: {tmp_path / 'new' / 'out.csv'}, 12 rows\n"
    assert (tmp_path / "new" / "out.csv").read_text() == printed
    assert exit_code("predict", card("logistic"), rows, "--out", tmp_path / "quiet.csv", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "quiet.csv").read_text() == printed


def test_predictions_are_json_too(models, card, rows, capsys):
    assert exit_code("predict", card("poisson"), rows, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["row"] for row in found] == list(range(1, 13))
    np.testing.assert_array_equal([row["expected count"] for row in found], models["poisson"].predict(rows))


@pytest.mark.parametrize("name", REGRESSIONS)
def test_predictions_are_evaluated(name, models, card, rows, capsys):
    assert exit_code("predict", card(name), rows, "--evaluate") == 0
    printed = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    expected = models[name].evaluate(rows)
    assert {key: float(value) for key, value in printed.items()} == pytest.approx(expected, rel=1e-5, nan_ok=True)
    assert exit_code("predict", card(name), rows, "--evaluate", "--json") == 0
    assert json.loads(capsys.readouterr().out) == pytest.approx(expected, nan_ok=True)


def test_features_are_enough_and_further_columns_do_not_matter(card, rows, tmp_path, capsys):
    assert exit_code("predict", card("logistic"), rows) == 0
    printed = capsys.readouterr().out
    pd.read_csv(rows)[["stage", "age"]].to_csv(rows, index=False)
    assert exit_code("predict", card("logistic"), rows) == 0
    assert capsys.readouterr().out == printed


def test_rows_with_missing_entries_have_no_prediction_where_the_model_leaves_them_out(tmp_path, capsys):
    table = TABLE.copy()
    table.loc[3, "age"] = np.nan
    regression = gs.Regression(family="linear", label="visits", features=("age",), missing="drop")
    gs.fit(regression, table, sites="site").model.save(tmp_path / "model.json")
    (tmp_path / "rows.csv").write_text("age\n50\n\n60\n".replace("\n\n", "\nNA\n"))
    assert exit_code("predict", tmp_path / "model.json", tmp_path / "rows.csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "2,"
    assert exit_code("predict", tmp_path / "model.json", tmp_path / "rows.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out)[1] == {"row": 2, "expected value": None}


def change(rows, column, value):
    table = pd.read_csv(rows)
    table.loc[0, column] = value
    table.to_csv(rows, index=False)


MISTAKES = {
    "level": (
        lambda card, rows: change(rows, "stage", "IV"),
        "error: feature 'stage' must have one of its levels, I, II, III; got 'IV' in 1 rows; correct these entries",
    ),
    "column": (
        lambda card, rows: rows.write_text(rows.read_text().replace("age", "Age")),
        "error: a table must have the columns that are asked for; got rows.csv, which has no 'age'; did you mean",
    ),
    "entry": (
        lambda card, rows: change(rows, "age", np.nan),
        "error: no entry of a feature may be missing; got in rows.csv 1 of 'age'; complete them, or fit the model with",
    ),
    "text": (
        lambda card, rows: rows.write_text(rows.read_text().replace("a,", "a,about ", 1)),
        "error: feature 'age' must hold numbers; got text",
    ),
    "no card": (
        lambda card, rows: card.write_text('{"x": [1.0]}'),
        "error: a model must be a model card in JSON; got {card}, which is something else; give the model.json that",
    ),
    "no JSON": (
        lambda card, rows: card.write_text("coefficients: 1"),
        "error: a model must be a model card in JSON; got",
    ),
    "a later card": (
        lambda card, rows: card.write_text(card.read_text().replace('"version": 1', '"version": 2')),
        "error: a model card must be of version 1; got 2; fit it anew",
    ),
    "no model": (lambda card, rows: card.unlink(), "error: a model must be a model card in JSON; got {card} (No such"),
    "no table": (
        lambda card, rows: rows.unlink(),
        "error: a table must be a file that can be read; got {rows}: No",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_of_predict_are_one_line(name, card, rows, capsys):
    spoil, said = MISTAKES[name]
    path = card("logistic")
    spoil(path, rows)
    assert exit_code("predict", path, rows) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(said.format(card=path, rows=rows))
    assert err.count("\n") == 1


def test_a_model_that_is_not_at_its_optimum_predicts_with_a_note(models, rows, tmp_path, capsys):
    found = dict(models["linear"].provenance)
    status = gs.Status.ITERATION_LIMIT
    unsound = replace(models["linear"], provenance={**found, "status": status.name, "message": status.value})
    unsound.save(tmp_path / "model.json")
    assert exit_code("predict", tmp_path / "model.json", rows) == 0
    out, err = capsys.readouterr()
    assert " ".join(err.split()) == "this model did not reach its optimum: the limit on outer iterations was reached"
    assert len(out.splitlines()) == 13
    assert exit_code("predict", tmp_path / "model.json", rows, "--quiet") == 0
    assert capsys.readouterr() == ("", "")


# run


SPEC = """version = 1
title = "Who is ill"
[data]
{data}
label = "ill"
features = ["age", "stage"]
[model]
family = "logistic"
{more}
[output]
plot = false
"""
ONE = 'table = "all.csv"\nsites = "site"'
SEVERAL = 'table = { a = "a.csv", b = "b.csv", c = "c.csv" }'


@pytest.fixture
def spec(tmp_path):
    """A function that writes a spec, with tables beside it."""
    TABLE.to_csv(tmp_path / "all.csv", index=False)
    for site, own in TABLE.groupby("site"):
        own.to_csv(tmp_path / f"{site}.csv", index=False)

    def write(data=ONE, more=""):
        (tmp_path / "spec.toml").write_text(SPEC.format(data=data, more=more))
        return tmp_path / "spec.toml"

    return write


@pytest.mark.parametrize("data", [ONE, SEVERAL], ids=["one table", "a table for each site"])
def test_a_spec_fits_a_regression_to_tables(data, spec, models, tmp_path, capsys):
    """Networks are optional: few sites are all linked."""
    assert exit_code("run", spec(data), "--out", tmp_path / "out") == 0
    out = capsys.readouterr().out
    model = load_model(tmp_path / "out" / "model.json")
    np.testing.assert_allclose(model.coefficients, models["logistic"].coefficients, rtol=1e-10)
    assert model.provenance["run"] == "spec"
    summary = (tmp_path / "out" / "summary.txt").read_text()
    assert out.startswith(f"Who is ill\n{summary}")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    (run,) = results["runs"]
    assert run["network"] == "sites"
    assert (run["graph"]["m"], run["graph"]["edges"]) == (3, 3)
    assert run["model"]["by_site"].keys() == {"a", "b", "c"}
    assert results["problem"] == "Logistic regression over the tables of 3 sites"
    for file in ("model.json", "summary.txt", "results.json", "history.csv", "sites.solution.npz", "networks.json"):
        assert str(tmp_path / "out" / file) in out
    assert gs.load(tmp_path / "out" / "sites.solution.npz").model.hash == model.hash


def test_each_network_finds_the_model(spec, models, tmp_path, capsys):
    networks = '[[network]]\ntopology = "path"\n[[network]]\nname = "all"\ntopology = "complete"'
    assert exit_code("run", spec(more=networks), "--out", tmp_path / "out", "--json") == 0
    results = json.loads(capsys.readouterr().out)
    assert [run["network"] for run in results["runs"]] == ["path", "all"]
    for name in ("path", "all"):
        model = load_model(tmp_path / "out" / f"{name}.model.json")
        np.testing.assert_allclose(model.coefficients, models["logistic"].coefficients, rtol=1e-10)
        assert (tmp_path / "out" / f"{name}.summary.txt").exists()
    assert not (tmp_path / "out" / "model.json").exists()


def test_test_rows_are_evaluated(spec, models, tmp_path):
    made(rows=30, seed=2).to_csv(tmp_path / "later.csv", index=False)
    assert exit_code("run", spec(f'{ONE}\ntest = "later.csv"'), "--out", tmp_path / "out", "-q") == 0
    model = load_model(tmp_path / "out" / "model.json")
    assert model.evaluation["test"] == pytest.approx(models["logistic"].evaluate(tmp_path / "later.csv"))


def test_a_checkpoint_is_gone_on_from(spec, tmp_path):
    path = spec()
    path.write_text(path.read_text() + "checkpoint = true\n")
    assert exit_code("run", path, "--out", tmp_path / "out", "-q") == 0
    first = (tmp_path / "out" / "model.json").read_bytes()
    (tmp_path / "out" / "model.json").unlink()
    assert exit_code("run", path, "--out", tmp_path / "out", "-q") == 0
    assert (tmp_path / "out" / "model.json").read_bytes() == first


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"more": '[method]\nname = "newton"'}, "a regression over tables takes no [method]; got one; leave it out"),
        ({"more": "[stop]\niterations = 5"}, "a regression over tables takes no [stop]; got one; leave it out"),
        ({"more": '[problem]\nloss = "logistic"'}, "a regression over tables takes no [problem]; got one"),
        ({"data": 'table = "none.csv"'}, "a table must be a file that can be read; got {folder}/none.csv: No"),
        ({"data": 'file = "all.csv"'}, "[data] needs 'table'; got none; for example table = \"patients.csv\""),
        ({"data": 'table = "all.csv"\nsites = "hospital"'}, "a table must have the columns that are asked for; got"),
        ({"data": f'{ONE}\nweigth = "days"'}, "a key of [data] must be one of the known names; got 'weigth'; did you"),
        ({"more": "rigde = 1.0"}, "a key of [model] must be one of the known names; got 'rigde'; did you mean 'ridge'"),
        ({"more": 'ridge = "much"'}, "ridge in [model] must be a number; got 'much'; correct the spec"),
        ({"more": "ridge = -1.0"}, "ridge must be >= 0"),
        ({"data": "table = 3"}, "table in [data] must be the name of a file, or a table of one for each site; got 3"),
        ({"data": f'{ONE}\nminimum_rows = 50'}, "a site needs at least 50 rows (minimum_rows); got 30 in a; leave"),
        ({"more": '[network]\ntopology = "hypercube"\ndimension = 3'}, "network and data must have the same number of"),
    ],
)  # fmt: skip
def test_mistakes_of_a_spec_are_one_line(changed, said, spec, tmp_path, capsys):
    assert exit_code("run", spec(**changed), "--out", tmp_path / "out") == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("error: " + said.format(folder=tmp_path)), err


def test_a_site_with_other_columns_is_named(spec, tmp_path, capsys):
    path = spec(SEVERAL)
    own = pd.read_csv(tmp_path / "b.csv")
    own["stage"] = own["stage"].replace("III", "IV")
    own.to_csv(tmp_path / "b.csv", index=False)
    assert exit_code("run", path, "--out", tmp_path / "out") == 1
    err = capsys.readouterr().err
    assert err.startswith(
        "error: the tables of all sites must have the same columns; got b, where a is 'there': levels"
    )
    assert "'IV' is not there" in err


def test_a_model_without_an_optimum_is_told_and_ends_with_2(spec, tmp_path, capsys):
    """Separated classes have no maximum."""
    table = TABLE.assign(ill=np.where(TABLE["age"] > 55, "yes", "no"))
    path = spec()
    table.to_csv(tmp_path / "all.csv", index=False)
    assert exit_code("run", path, "--out", tmp_path / "out") == 2
    out = capsys.readouterr().out
    assert "Status:" in out
    assert load_model(tmp_path / "out" / "model.json").is_sound is False
    assert "Warning:" in (tmp_path / "out" / "summary.txt").read_text()


# local and release


def spec_of(tmp_path, monkeypatch, data="", model=""):
    """A spec of the table of all sites, in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("all.csv", index=False)
    lines = ["version = 1", "[data]", 'table = "all.csv"', 'sites = "site"', 'label = "ill"', data]
    (tmp_path / "spec.toml").write_text("\n".join([*lines, "[model]", 'family = "logistic"', model]))


def test_processes_on_this_machine_take_no_tables(tmp_path, monkeypatch, capsys):
    spec_of(tmp_path, monkeypatch)
    assert exit_code("local", "spec.toml", "--peers") == 1
    assert "local takes a spec without tables; got one with [model]; `gradslide run` fits" in capsys.readouterr().err


def test_releases_keep_the_budget(tmp_path, monkeypatch, capsys):
    stated = 'features = ["age", "stage"]\nclasses = ["no", "yes"]\ncategorical = { stage = ["I", "II", "III"] }\n'
    spec_of(tmp_path, monkeypatch, stated + "bounds = { age = [18, 90] }", "ridge = 5\nfor_release = true")
    assert exit_code("run", "spec.toml", "--out", "results", "--quiet") == 0
    given = ["--epsilon", 4, "--delta", 1e-4, "--ledger", "ledger.jsonl", "--budget", 5, 1e-4]
    assert exit_code("release", "results/model.json", "released.json", *given) == 0
    assert "epsilon 4, delta 0.0001" in capsys.readouterr().out
    assert load_model("released.json").release.epsilon == 4
    assert exit_code("release", "results/model.json", "again.json", *given) == 1
    assert "all releases together must keep epsilon = 5" in capsys.readouterr().err
    assert not (tmp_path / "again.json").exists()
    assert exit_code("predict", "released.json", "all.csv", "--evaluate") == 0
