"""Sites with a table each find the model of all rows in one place, and what does not fit ends all with the reason."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import fields
from io import StringIO
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from specs import exit_code
from table_sites import DATA, FEATURES, NAMES, PLACES, Sites, hospital_tables

import gradslide as gs
from gradslide.experiments.agent.build import build_agent
from gradslide.experiments.agent.spec import read_agent
from gradslide.network.peers.keys import make_key_pair
from gradslide.regression import load_model


def card(sites, name):
    return json.loads(sites.results(name, "model.json"))


def codes(ends):
    return [end.code for end in ends.values()]


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Four sites after their run, and what they printed."""
    sites = Sites(tmp_path_factory.mktemp("hospitals"))
    sites.ends = sites.run(options=())
    assert codes(sites.ends) == [0] * 4, sites.ends
    return sites


@pytest.fixture
def table():
    """All rows in one place."""
    return pd.concat(pd.read_csv(StringIO(text)).assign(site=name) for name, text in hospital_tables().items())


# The model


def test_the_model_is_that_of_all_rows_in_one_place(hospitals, table):
    model = load_model(hospitals / "north" / "results" / "model.json")
    rows = sm.add_constant(table[list(FEATURES)])
    theirs = sm.GLM(table["malignant"], rows, family=sm.families.Binomial()).fit(tol=1e-14)
    assert model.names == ("intercept", *FEATURES)
    np.testing.assert_allclose(model.coefficients, theirs.params, rtol=1e-8)
    np.testing.assert_allclose(model.standard_errors, theirs.bse, rtol=1e-8)
    assert model.statistics["log-likelihood"] == pytest.approx(theirs.llf, rel=1e-10)
    assert model.statistics["rows"] == 569
    assert model.is_sound


def test_all_sites_have_the_same_model_card_and_summary(hospitals):
    for file in ("model.json", "summary.txt"):
        assert len({hospitals.results(name, file) for name in NAMES}) == 1
    assert len({load_model(hospitals / name / "results" / "model.json").hash for name in NAMES}) == 1


def test_one_process_finds_the_same(hospitals, table, tmp_path):
    """By the command line and by gs.fit, from one table or one for each site."""
    for name, text in hospital_tables().items():
        (tmp_path / f"{name}.csv").write_text(text)
    tables = "{ " + ", ".join(f'{name} = "{name}.csv"' for name in NAMES) + " }"
    spec = f'version = 1\n[data]\ntable = {tables}\n{DATA}\n[model]\nfamily = "logistic"\n[output]\nplot = false\n'
    (tmp_path / "pooled.toml").write_text(spec)
    assert exit_code("run", tmp_path / "pooled.toml", "--quiet", "--out", tmp_path / "out") == 0
    regression = gs.Regression(family="logistic", label="malignant", features=FEATURES)
    ours = load_model(hospitals / "west" / "results" / "model.json")
    fitted = gs.fit(regression, table, sites="site").model
    for model in (load_model(tmp_path / "out" / "model.json"), fitted):
        np.testing.assert_allclose(model.coefficients, ours.coefficients, rtol=1e-10)
        np.testing.assert_allclose(model.standard_errors, ours.standard_errors, rtol=1e-10)
        assert model.schema == ours.schema
    for name in NAMES:
        seen = json.loads(hospitals.results(name, "result.json"))["model"]["by_site"]
        assert seen.keys() == {name}, "a site knows how well it predicts its own rows"
        assert seen[name]["fit"] == pytest.approx(fitted.by_site[name]["fit"], rel=1e-9)


def test_a_site_prints_and_writes_what_it_found(hospitals):
    for name in NAMES:
        end, folder = hospitals.ends[name], hospitals / name / "results"
        summary = (folder / "summary.txt").read_text()
        assert summary in end.out
        assert "concavity" in summary
        for file in ("model.json", "summary.txt", "solution.npz", "result.json", "history.csv", "agent.log"):
            assert (folder / file).exists()
            assert file in end.out
        solution = gs.load(folder / "solution.npz")
        assert solution.status is gs.Status.CONVERGED
        assert solution.model.hash == load_model(folder / "model.json").hash
        np.testing.assert_array_equal(solution.x[0], solution.model.coefficients)


def test_the_result_says_what_left_the_site(hospitals):
    results = {name: json.loads(hospitals.results(name, "result.json")) for name in NAMES}
    for name, result in results.items():
        assert set(result["names"].values()) == {name, *result["neighbours"]}
        assert result["names"][str(result["agent"])] == name
        kinds = result["traffic"]
        assert {"links of the network", "sums", "sums and answers"} <= kinds.keys()
        assert not {"points", "seeds of masks"} & kinds.keys()
        assert sum(each["numbers"] for each in kinds.values()) < 5000
    assert sum(result["costs"]["floats_sent"] for result in results.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("family", ["linear", "poisson", "cox"])
def test_other_families_are_those_of_one_process(family, tmp_path):
    """With text, weights, missing entries and test rows."""
    rng, tables, tests = np.random.default_rng(0), {}, {}
    for place, name in enumerate(NAMES):
        for of, n in ((tables, 60 + 10 * place), (tests, 20)):
            age, stage = rng.uniform(20, 90, n).round(1), rng.choice(["I", "II", "III"], n)
            level = 0.02 * age + np.array([0.0, 0.5, 1.0])[(stage == "II") + 2 * (stage == "III")]
            of[name] = pd.DataFrame({"age": age, "stage": stage, "weight": rng.uniform(0.5, 2, n).round(2)})
            of[name].loc[n // 2, "age"] = np.nan
            of[name]["y"] = rng.poisson(np.exp(level - 1))
            of[name]["time"], of[name]["event"] = (
                rng.exponential(np.exp(-level)).round(3) + 0.001,
                rng.integers(0, 2, n),
            )
    roles = 'time = "time"\nevent = "event"' if family == "cox" else 'label = "y"'
    data = f'{roles}\nweight = "weight"\nfeatures = ["age", "stage"]\nmissing = "drop"\ntest = "test.csv"'
    model = f'family = "{family}"\ncovariance = "{"site" if family == "cox" else "rows"}"'
    sites = Sites(tmp_path, {name: each.to_csv(index=False) for name, each in tables.items()}, data=data, model=model)
    for name, each in tests.items():
        each.to_csv(sites / name / "test.csv", index=False)
    ends = sites.run()
    assert codes(ends) == [0] * 4, ends
    assert len({sites.results(name, "model.json") for name in NAMES}) == 1
    task = read_agent(sites / "north" / "AGENT.toml").task
    expected = gs.fit(task.regression, tables, test=tests).model
    found = load_model(sites / "north" / "results" / "model.json")
    np.testing.assert_allclose(found.coefficients, expected.coefficients, rtol=1e-8)
    np.testing.assert_allclose(found.standard_errors, expected.standard_errors, rtol=1e-8)
    assert found.statistics == pytest.approx(expected.statistics, rel=1e-8, nan_ok=True)
    assert found.evaluation["test"] == pytest.approx(expected.evaluation["test"], rel=1e-8, nan_ok=True)
    assert found.statistics["rows left out"] == 4


# Sites that do not fit each other. South is another than the others; north is none of its neighbours.


def reorder(sites):
    sites.change(str(list(FEATURES)), str(list(FEATURES[::-1])), "south")


def reverse_columns(sites):
    sites.change(f"features = {list(FEATURES)}", "", *NAMES)
    file = sites / "south" / "patients.csv"
    pd.read_csv(file).iloc[:, ::-1].to_csv(file, index=False)


def rename_label(sites):
    file = sites / "south" / "patients.csv"
    file.write_text(file.read_text().replace("malignant", "tumour"))
    sites.change("malignant", "tumour", "south")


def another_level(sites):
    file = sites / "south" / "patients.csv"
    file.write_text(file.read_text().replace(",1\n", ",unsure\n", 3))


def remove_table(sites):
    (sites / "south" / "patients.csv").unlink()


def wrong_key(sites):
    """West has another key for south."""
    make_key_pair("other", sites.folder / "other")
    (sites / "west" / "south.public").write_text((sites / "other" / "other.public").read_text())


def same_key_twice(sites):
    (sites / "south" / "west.public").write_text((sites / "south" / "east.public").read_text())


def ridge(sites):
    sites.change('family = "logistic"', 'family = "logistic"\nridge = 1.0', "south")


def few_rows(sites):
    file = sites / "south" / "patients.csv"
    file.write_text("\n".join(file.read_text().splitlines()[:8]) + "\n")


def missing_entries(sites):
    file = sites / "south" / "patients.csv"
    rows = pd.read_csv(file)
    rows.loc[[3, 7], "area"] = np.nan
    rows.to_csv(file, index=False)


def give_test_rows(sites):
    sites.change('table = "patients.csv"', 'table = "patients.csv"\ntest = "patients.csv"', "south")


def dates(sites):
    """A column that nobody else has, and that is no feature."""
    file = sites / "south" / "patients.csv"
    pd.read_csv(file).assign(admitted="2026-01-31").to_csv(file, index=False)
    sites.change("'symmetry'", "'admitted'", "south")


def mask(sites):
    sites.change("deadline", "secure_sums = true\ndeadline", "south")


def give_builder(sites):
    file = sites / "south" / "AGENT.toml"
    (file.parent / "mine.py").write_text(
        "import gradslide as gs\n\ndef build():\n    return gs.losses.Quadratic([[1.0]], [0.0])\n"
    )
    file.write_text(file.read_text().split("[data]")[0] + '[problem]\nbuilder = "mine.py:build"\n')


class Mismatch(NamedTuple):
    """What is done to south, its exit code, what it says, and its neighbours; and what only south may know."""

    change: Callable[[Sites], None]
    code: int
    south: str
    neighbours: str
    secret: str = ""


TOLD = r"neighbour south: it cannot take part: "
KEYS = r"(west: it refuses this agent's key; .*|south: its key is not that of a neighbour); compare the public keys"
MISMATCHES = {
    "order of features": Mismatch(
        *(reorder, 2),
        r"neighbour (east|west): the order of the features: 'symmetry' is number 1 here, 5 there",
        r"neighbour south: the order of the features: 'texture' is number 1 here, 5 there",
    ),
    "label": Mismatch(
        *(rename_label, 2),
        r"neighbour (east|west): label 'tumour' is not a label there; 1 label there is not one here",
        r"neighbour south: label 'malignant' is not a label there; 1 label there is not one here",
        "tumour",
    ),
    "dates": Mismatch(
        *(dates, 1),
        r"feature 'admitted' must hold numbers or categories; got dates, for example '2026-01-31' in row 1",
        TOLD + "its input needs a correction$",
        "admitted",
    ),
    "wrong key": Mismatch(wrong_key, 2, KEYS, KEYS),
    "rows": Mismatch(
        *(few_rows, 1),
        r"a site needs at least 10 rows \(minimum_rows\); got 7 in patients.csv; leave this site out",
        TOLD + r"a site needs at least 10 rows \(minimum_rows\)$",
    ),
    "order of columns": Mismatch(
        *(reverse_columns, 2),
        r"neighbour (east|west): the order of the features: 'fractal_dimension' is number 1 here",
        r"neighbour south: the order of the features: 'row' is number 1 here, 11 there",
    ),
    "levels": Mismatch(
        *(another_level, 2),
        r"neighbour (east|west): levels of 'malignant': 'unsure' is not there; state them alike at all sites",
        r"neighbour south: levels of 'malignant': 1 there is not here; state .*, with classes = \[...\]",
        "unsure",
    ),
    "no file": Mismatch(
        *(remove_table, 1),
        r"a table must be a file that can be read; got .*patients.csv: No such file or directory; check its path",
        TOLD + "a table must be a file that can be read$",
    ),
    "one key for two": Mismatch(
        *(same_key_twice, 1),
        r"neighbours must .*different",
        r"neighbour south: (it cannot take part: neighbours must|it refuses this agent's key)",
    ),
    "ridge": Mismatch(
        *(ridge, 2),
        r"neighbour (east|west): settings differ: ridge \(1.0 here, 0.0 there\)$",
        r"neighbour south: settings differ: ridge \(0.0 here, 1.0 there\)$",
    ),
    "missing entries": Mismatch(
        *(missing_entries, 1),
        r"no entry may be missing; got in patients.csv 2 of 'area'; correct them, or agree",
        TOLD + "no entry may be missing$",
    ),
    "test rows": Mismatch(
        *(give_test_rows, 2),
        r"neighbour (east|west): settings differ: test rows \(given here, none there\)$",
        r"neighbour south: settings differ: test rows \(none here, given there\)$",
    ),
    "secure sums": Mismatch(
        *(mask, 2),
        r"neighbour (east|west): settings differ: secure_sums \(True here, not set there\)$",
        r"neighbour south: settings differ: secure_sums \(not set here, True there\)$",
    ),
    "no table": Mismatch(
        *(give_builder, 2),
        r"neighbour (east|west): settings differ: .*data \(a builder here, a table there\)",
        r"neighbour south: settings differ: .*data \(a table here, a builder there\).*the other site uses no",
    ),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("name", MISMATCHES)
def test_what_does_not_fit_ends_all_with_one_line_each(name, tmp_path):
    """In seconds, though sites would wait for each other for ten minutes."""
    _, code, south, neighbours, secret = case = MISMATCHES[name]
    sites = Sites(tmp_path)
    case.change(sites)
    sites.start("north", "east", "west")
    sites.listening("north", "east", "west")
    sites.start("south")
    ends = sites.ended()
    assert all(end.seconds < 30 for end in ends.values())
    assert [ends[name].code for name in NAMES] == [2, 2, code, 2], ends
    assert re.search(south, ends["south"].error), ends["south"].error
    said = [re.search(neighbours, ends[other].error) for other in ("east", "west")]
    assert any(said), ends
    # One of the two may hear of it from north first.
    around = r"neighbour north: .* (its settings differ from those of south \(|settings differ: )"
    for other, direct in zip(("east", "west"), said, strict=True):
        assert direct or re.search(around, ends[other].error), ends[other].error
    # North hears of it from one of the two; what the columns are is left to them.
    assert re.search(r"neighbour (east|west): ", ends["north"].error)
    assert "its settings differ from those of" in ends["north"].error or "it cannot take part" in ends["north"].error
    for other in ("north", "east", "west"):
        log = sites.results(other, "agent.log").decode()
        assert not secret or secret not in ends[other].out + ends[other].err + log.replace(str(tmp_path), "")
    assert not re.search(r"(?<!\w)'", ends["north"].error), "it quotes no name of a column"
    for other in NAMES:
        assert not (sites / other / "results" / "model.json").exists()
        assert not (sites / other / "results" / "checkpoint.npz").exists()


@pytest.mark.slow
def test_once_it_fits_the_same_commands_find_the_model(hospitals, tmp_path):
    """A failure before the run began leaves nothing behind; with masks, too."""
    sites = Sites(tmp_path, top="secure_sums = true")
    text = (sites / "south" / "AGENT.toml").read_text()
    reorder(sites)
    assert codes(sites.run()) == [2] * 4
    (sites / "south" / "AGENT.toml").write_text(text)
    ends = sites.run()
    assert codes(ends) == [0] * 4, ends
    expected = [row["coefficient"] for row in card(hospitals, "north")["coefficients"]]
    found = [row["coefficient"] for row in card(sites, "north")["coefficients"]]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert len({sites.results(name, "model.json") for name in NAMES}) == 1


def agent_of(sites, name="north"):
    return build_agent(read_agent(sites / name / "AGENT.toml"))


def test_no_name_of_a_column_or_level_is_on_the_wire(tmp_path):
    rows = "age,stage,ill\n" + "".join(
        f"{30 + k},{['early', 'late'][k % 2]},{['no', 'yes'][k % 3 == 0]}\n" for k in range(20)
    )
    sites = Sites(tmp_path, {"a": rows, "b": rows}, [("a", "b")], data='label = "ill"')
    told = json.dumps(agent_of(sites, "a").settings)
    for name in ("age", "stage", "early", "late", "ill", "yes", '\\"no\\"', "patients"):
        assert name not in told
    sites.change('label = "ill"', 'label = "ill"\nunits = { age = "years" }', "b")
    assert "years" in agent_of(sites, "b").settings["columns"], "units are declared to be compared"


CHANGES = {
    "features": 'features = ["texture", "area", "smoothness", "symmetry", "concavity"]',
    "label": 'label = "other"',
    "weight": 'weight = "area2"',
    "categorical": 'categorical = ["grade"]',
    "classes": 'classes = ["1", "0"]',
    "units": 'units = { area = "mm2" }',
    "missing": 'missing = "drop"',
    "minimum_rows": "minimum_rows = 11",
    "bounds": "bounds = { area = [0, 100] }",
    "family": 'family = "linear"',
    "intercept": "intercept = false",
    "ridge": "ridge = 0.5",
    "lasso": "lasso = 0.5",
    "standardize": "standardize = true",
    "penalty_factors": "penalty_factors = { area = 2.0 }",
    "covariance": 'covariance = "rows"',
    "confidence": "confidence = 0.9",
}


MODEL = ("family", "intercept", "ridge", "lasso", "standardize", "penalty_factors", "covariance", "confidence")


def test_neighbours_compare_all_that_a_regression_is_declared_with(tmp_path):
    """But for the name of the file."""
    # Time and event are for Cox's model, exposure for counts; what is for release needs bounds of all columns.
    others = {"time", "event", "exposure", "for_release"}
    assert {field.name for field in fields(gs.Regression)} == CHANGES.keys() | others
    lines = hospital_tables()["north"].splitlines()
    more = [f"{line},{k % 2},{k},{k % 3}" for k, line in enumerate(lines)]
    rows = "\n".join([lines[0] + ",other,area2,grade", *more[1:]]) + "\n"
    features = ["texture", "area", "smoothness", "concavity", "symmetry", "grade"]
    data = f'label = "malignant"\nfeatures = {features}'
    plain = agent_of(Sites(tmp_path / "plain", {"a": rows, "b": rows}, [("a", "b")], data=data), "a").settings
    for name, line in CHANGES.items():
        in_model = name in MODEL
        kept = "\n".join(each for each in data.splitlines() if not each.startswith(f"{name} "))
        given = {"data": kept} if in_model else {"data": f"{kept}\n{line}"}
        if in_model:
            given["model"] = line if name == "family" else f'family = "logistic"\n{line}'
        settings = agent_of(Sites(tmp_path / name, {"a": rows, "b": rows}, [("a", "b")], **given), "a").settings
        assert settings != plain, name
    same = Sites(tmp_path / "same", {"a": rows, "b": rows}, [("a", "b")], data=data, file="rows.tsv.csv")
    assert agent_of(same, "a").settings == plain


# Again


@pytest.mark.slow
def test_a_new_name_of_the_run_starts_anew_and_the_same_returns_what_was_found(tmp_path):
    """The latter without neighbours."""
    tables = {name: text for name, text in hospital_tables().items() if name in ("north", "east")}
    sites = Sites(tmp_path, tables, [("north", "east")])
    assert codes(sites.run()) == [0, 0]
    first = {file: sites.results("north", file) for file in ("model.json", "summary.txt")}
    traffic = json.loads(sites.results("north", "result.json"))["traffic"]
    for file in first:
        (sites / "north" / "results" / file).unlink()
    again = sites.run("north", options=())["north"]
    assert again.code == 0
    assert "Traceback" not in again.err
    assert {file: sites.results("north", file) for file in first} == first
    assert again.seconds < 10
    assert json.loads(sites.results("north", "result.json"))["traffic"] == traffic, "what has left the site before"
    # Another ridge needs another name.
    sites.change('family = "logistic"', 'family = "logistic"\nridge = 1.0')
    sites.change('run = "trial"', 'run = "second"')
    assert codes(sites.run()) == [0, 0]
    assert card(sites, "north")["provenance"]["run"] == "second"
    assert card(sites, "north")["coefficients"] != json.loads(first["model.json"])["coefficients"]
    assert sites.results("north", "model.json") == sites.results("east", "model.json")
    for name in ("north", "east"):
        assert (sites / name / "results" / "checkpoint.1.npz").exists()
        assert (
            "run trial is kept as checkpoint.1.npz; run second starts anew" in sites.results(name, "agent.log").decode()
        )


@pytest.mark.slow
def test_other_data_under_the_name_of_a_finished_run_are_refused(tmp_path):
    tables = {name: text for name, text in hospital_tables().items() if name in ("north", "east")}
    sites = Sites(tmp_path, tables, [("north", "east")])
    assert codes(sites.run()) == [0, 0]
    file = sites / "north" / "patients.csv"
    file.write_text("\n".join(file.read_text().splitlines()[:-3]) + "\n")
    end = sites.run("north")["north"]
    assert end.code == 1
    assert "checkpoint" in end.error


# Where it dies, whether sums are masked, and seconds between checkpoints.
KILLS = [(place, secure, seconds) for secure in (True, False) for seconds in (60, 0) for place in PLACES]
FIRST = [("in the third iteration", True, 60), ("between the first sums", False, 60)]


@pytest.mark.first(1)
@pytest.mark.parametrize(("place", "secure", "seconds"), sorted(KILLS, key=lambda case: case not in FIRST))
def test_a_site_that_is_killed_and_started_again_leads_to_the_same(place, secure, seconds, tmp_path):
    """To the bit, also before its first checkpoint."""
    sites = Sites(tmp_path, top="secure_sums = true" if secure else "")
    for name in NAMES:
        file = sites / name / "AGENT.toml"
        file.write_text(file.read_text() + f"\n[output]\ncheckpoint_seconds = {seconds}\n")
    sites.start("north", "south", "west")
    sites.start("east", dies=place)
    sites.died("east")
    sites.start("east")
    ends = sites.ended()
    assert codes(ends) == [0] * 4, ends
    found = {sites.results(name, "model.json") for name in NAMES}
    sites.forget()
    assert codes(sites.run()) == [0] * 4
    assert {sites.results(name, "model.json") for name in NAMES} == found


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True])
def test_all_sites_are_killed_and_started_again(secure, tmp_path):
    sites = Sites(tmp_path, top="secure_sums = true" if secure else "")
    for name in NAMES:
        file = sites / name / "AGENT.toml"
        file.write_text(file.read_text() + "\n[output]\ncheckpoint_seconds = 0\n")
    assert codes(sites.run()) == [0] * 4
    whole = sites.results("north", "model.json")
    sites.forget()
    sites.start(dies="in the third iteration")
    for name in NAMES:
        sites.died(name)
    ends = sites.run()
    assert codes(ends) == [0] * 4, ends
    assert {sites.results(name, "model.json") for name in NAMES} == {whole}


def test_secure_sums_lead_to_the_same_model(hospitals, tmp_path):
    sites = Sites(tmp_path, top="secure_sums = true")
    ends = sites.run()
    assert codes(ends) == [0] * 4, ends
    assert len({sites.results(name, "model.json") for name in NAMES}) == 1
    ours, plain = (load_model(each / "south" / "results" / "model.json") for each in (sites, hospitals))
    np.testing.assert_allclose(ours.coefficients, plain.coefficients, rtol=1e-9)
    np.testing.assert_allclose(ours.covariance.matrix, plain.covariance.matrix, rtol=1e-8)
    result = json.loads(sites.results("south", "result.json"))
    assert result["secure_sums"] is True
    assert "sums" not in result["traffic"]
    assert result["traffic"]["seeds of masks"] == {"messages": 2, "numbers": 16, "bytes": 128}


@pytest.mark.slow
def test_other_data_after_a_kill_are_refused_under_old_masks(tmp_path):
    """Before anything is sent: with the data that there were, the run goes on."""
    sites = Sites(tmp_path, top="secure_sums = true")
    sites.start("north", "south", "west")
    sites.start("east", dies="in the third iteration")
    sites.died("east")
    file = sites / "east" / "patients.csv"
    rows = file.read_text()
    file.write_text("\n".join(rows.splitlines()[:-1]) + "\n")
    end = sites.run("east")["east"]
    assert end.code == 1
    assert "must send the same numbers under the same masks; got others: its data" in end.error
    file.write_text(rows)
    sites.start("east")
    ends = sites.ended()
    assert codes(ends) == [0] * 4, ends
    assert len({sites.results(name, "model.json") for name in NAMES}) == 1


# A full disk


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts a disk of so many kilobytes, of which some are taken."""
    mounted = []

    def mount(folder, size, taken=0):
        folder.mkdir(parents=True)
        made = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", folder]
        if os.name != "posix" or os.geteuid() or subprocess.run(made, capture_output=True).returncode:
            pytest.skip("only root can mount a small disk")
        mounted.append(folder)
        (folder / "other").write_bytes(bytes(1024 * taken))

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


FULL = {"the log": (8, 8), "the audit log": (8, 4), "the model": (12, 0), "results": (40, 0)}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["the log", "results", "the audit log", "the model"])
def test_a_full_disk_is_told_in_one_line(where, small_disk, tmp_path):
    """The others finish, or hear of it; with room again, the same commands find the model."""
    sites = Sites(tmp_path)
    small_disk(sites / "east" / "results", *FULL[where])
    sites.start("north", "south", "west")
    sites.listening("north", "south", "west")
    sites.start("east", strict=False)
    ends = sites.ended()
    assert ends["east"].code == 2
    assert re.search("No space left on device; free some space, then run the command again", ends["east"].error)
    others = [ends[name] for name in NAMES if name != "east"]
    if where in ("the log", "the audit log"):
        assert all(end.code == 2 and "it cannot take part: No space left on device" in end.error for end in others)
    else:
        assert all((end.code, end.err) == (0, "") for end in others)
    subprocess.run(["mount", "-o", "remount,size=10M", sites / "east" / "results"], check=True)
    ends = sites.run()
    assert codes(ends) == [0] * 4, ends
    assert len({sites.results(name, "model.json") for name in NAMES}) == 1


def test_a_full_disk_ends_secure_sums_before_anything_is_sent(small_disk, tmp_path):
    sites = Sites(tmp_path, top="secure_sums = true")
    small_disk(sites / "east" / "results", 12, 4)
    ends = sites.run()
    assert codes(ends) == [2, 1, 2, 2]
    assert "what secure sums send must be noted on disk before; got " in ends["east"].error
    assert all("what secure sums send must be noted on disk" in end.error for end in ends.values())
