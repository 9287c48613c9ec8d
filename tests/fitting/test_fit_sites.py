"""`gs.fit`: what it takes for the tables of sites, and what it says if they do not fit each other."""

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import site_tables as data
from site_tables import SITES, assert_same

import gradslide as gs
from gradslide.fitting.sites import default_graph

REGRESSION = gs.Regression(family="linear", label="target", features=["bmi", "age"])


def whole():
    return data.diabetes()[["bmi", "age", "target", "site"]]


def by_site():
    return {label: rows.drop(columns="site") for label, rows in whole().groupby("site")}


def expected():
    return gs.fit(REGRESSION, whole(), sites="site").model


def test_files_frames_and_arrays(tmp_path):
    tables = by_site()
    for label, rows in tables.items():
        rows.to_csv(tmp_path / f"{label}.csv", index=False)
        rows.to_parquet(tmp_path / f"{label}.parquet")
    whole().to_csv(tmp_path / "all.csv", index=False)
    kinds = [
        {label: tmp_path / f"{label}.csv" for label in tables},
        {label: str(tmp_path / f"{label}.parquet") for label in tables},
        {label: polars.from_pandas(rows) for label, rows in tables.items()},
        {label: pyarrow.Table.from_pandas(rows) for label, rows in tables.items()},
        {label: {name: rows[name].to_numpy() for name in rows} for label, rows in tables.items()},
        {label: {name: rows[name].tolist() for name in rows} for label, rows in tables.items()},
        list(tables.values()),
    ]
    model = expected()
    for given in kinds:
        other = gs.fit(REGRESSION, given).model
        assert_same(other.coefficients, model.coefficients, 1e-9)
        assert other.statistics["sites"] == 5
    for given in (
        tmp_path / "all.csv",
        polars.from_pandas(whole()),
        {name: whole()[name].tolist() for name in whole()},
    ):
        assert_same(gs.fit(REGRESSION, given, sites="site").model.coefficients, model.coefficients, 1e-9)
    # Columns of polars are no tables.
    columns = {name: polars.Series(whole()[name].to_numpy()) for name in ("bmi", "age", "target")}
    assert gs.fit(REGRESSION, columns).model.statistics["sites"] == 1


def test_names_of_sites():
    assert list(expected().by_site) == sorted(SITES)
    numbered = whole().assign(site=lambda rows: rows["site"].map({name: 5 * k for k, name in enumerate(SITES)}))
    assert list(gs.fit(REGRESSION, numbered, sites="site").model.by_site) == ["0", "5", "10", "15", "20"]
    tables = list(by_site().values())
    assert list(gs.fit(REGRESSION, tables).model.by_site) == [f"site {k}" for k in range(1, 6)]
    assert list(gs.fit(REGRESSION, tables, sites=list("abcde")).model.by_site) == list("abcde")
    assert list(gs.fit(REGRESSION, whole()).model.by_site) == ["DataFrame"]


def test_networks():
    table = whole()
    for graph in (None, gs.Graph.star(5), gs.network.Local(gs.Graph.star(5))):
        assert_same(gs.fit(REGRESSION, table, graph, sites="site").model.coefficients, expected().coefficients, 1e-9)
    assert len(default_graph(4).edges) == 6
    assert max(default_graph(40).degrees) <= 4
    assert default_graph(1).m == 1


def test_progress_and_callbacks(capsys):
    seen = []
    solution = gs.fit(
        REGRESSION, whole(), sites="site", progress="demo", callback=lambda record, x: seen.append(record)
    )
    assert "demo" in capsys.readouterr().err
    assert len(seen) >= 2
    stopped = gs.fit(REGRESSION, whole(), sites="site", callback=lambda record, x: True)
    assert stopped.status is gs.Status.STOPPED
    assert not stopped.model.is_sound
    assert solution.model.is_sound


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"graph": gs.Graph.ring(4)}, "the network must have an agent for each site; got 4 agents and 5 sites"),
        ({"graph": 5}, "graph must be a gs.Graph or a network; got int 5"),
        ({"sites": "town"}, "'town'"),
        ({"sites": ["a", "b"]}, "sites must be the name of a column of one table; got list"),
        ({"table": [], "sites": None}, "a fit needs a table; got none"),
        ({"table": 3}, "a table must be a path, a DataFrame, .*; got int 3"),
        ({"table": list(by_site().values()), "sites": ["a"] * 5}, "sites must name each of several tables; got"),
        ({"table": list(by_site().values()), "sites": "site"}, "sites must name each of several tables; got 'site'"),
        (
            {"table": whole().assign(site=[None, *whole()["site"][1:]])},
            "in column 'site'; got 1 without",
        ),
    ],
)
def test_what_is_refused(given, message):
    given = {"table": whole(), "sites": "site", **given}
    with pytest.raises(gs.InputError, match=message):
        gs.fit(REGRESSION, given.pop("table"), **given)


def test_a_fit_needs_a_declaration():
    with pytest.raises(gs.InputError, match=r"fit needs a gs\.Regression; got dict; for example"):
        gs.fit({"family": "linear", "label": "target", "features": ["bmi", "age"], "missing": "drop"}, whole())


def test_sites_with_different_tables():
    tables = by_site()
    tables["south"] = tables["south"].rename(columns={"bmi": "BMI"})
    with pytest.raises(gs.InputError, match="'bmi'; did you mean"):
        gs.fit(REGRESSION, tables)
    free = gs.Regression(family="linear", label="target")
    with pytest.raises(gs.InputError, match="got south, where centre is 'there': feature 'BMI' is not"):
        gs.fit(free, tables)
    tables = by_site()
    tables["west"] = tables["west"].head(3)
    with pytest.raises(gs.InputError, match=r"at least 10 rows \(minimum_rows\); got 3 in west"):
        gs.fit(REGRESSION, tables)
    small = gs.Regression(family="linear", label="target", minimum_rows=3)
    assert gs.fit(small, tables).model.statistics["sites"] == 5


def test_test_rows_of_one_table():
    rows, test = whole().iloc[:300], whole().iloc[300:]
    one = gs.fit(REGRESSION, rows, test=test).model
    assert one.evaluation["test"] == pytest.approx(one.evaluate(test))
    many = gs.fit(REGRESSION, rows, sites="site", test=test).model
    assert many.evaluation["test"] == pytest.approx(one.evaluation["test"], rel=1e-9)


def test_one_site_and_two():
    table = whole()
    one = gs.fit(REGRESSION, table).model
    halves = gs.fit(REGRESSION, [table.iloc[:100], table.iloc[100:]]).model
    assert_same(one.coefficients, halves.coefficients, 1e-9)
    assert one.provenance["rounds"] == 0
    assert np.all(pd.Series(one.by_site["DataFrame"]["fit"]) == pd.Series(one.evaluation["fit"]))
