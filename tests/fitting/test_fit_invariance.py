"""A fit depends on the rows of all sites, and on nothing else: network, shares, order, units, spelling of the data."""

import numpy as np
import pandas as pd
import pytest
import site_tables as data
from site_tables import GRAPHS, assert_same, fit

import gradslide as gs

# Of each family, with a table and a declaration.
CASES = {
    "linear": (data.diabetes, {"label": "target"}),
    "two classes": (data.affairs, {"label": "any", "covariance": "rows"}),
    "several classes": (data.votes, {"label": "PID"}),
    "counts": (data.visits, {"label": "mdvis"}),
    "penalty": (data.diabetes, {"label": "target", "lasso": 200.0, "ridge": 10.0, "standardize": True}),
}
FAMILIES = {"two classes": "logistic", "several classes": "logistic", "counts": "poisson", "penalty": "linear"}


def case(name):
    table, declaration = CASES[name]
    return table(), {"family": FAMILIES.get(name, name), **declaration}


def assert_same_models(ours, theirs, tolerance=1e-9):
    assert_same(ours.coefficients, theirs.coefficients, tolerance, zero=tolerance * np.max(np.abs(theirs.coefficients)))
    if theirs.standard_errors is not None:
        assert_same(ours.standard_errors, theirs.standard_errors, tolerance)
    assert_same(ours.statistics["log-likelihood"], theirs.statistics["log-likelihood"], 1e-11)
    assert_same(list(ours.evaluation["fit"].values()), list(theirs.evaluation["fit"].values()), tolerance)


@pytest.mark.parametrize("name", CASES)
def test_networks(name):
    table, declaration = case(name)
    first, *others = (fit(table, graph, **declaration) for graph in GRAPHS)
    for other in others:
        assert_same_models(other, first)


@pytest.mark.parametrize("name", CASES)
def test_shares_and_order_of_the_rows(name):
    table, declaration = case(name)
    whole = gs.fit(gs.Regression(**declaration), table.drop(columns="site")).model
    assert whole.statistics["sites"] == 1
    shuffled = data.at_sites(table.sample(frac=1.0, random_state=1), seed=7)
    many = table.assign(site=np.random.default_rng(2).permutation(len(table)) % 12)
    for other in (shuffled, many):
        model = gs.fit(gs.Regression(**declaration), other, sites="site").model
        assert_same_models(model, whole)


@pytest.mark.parametrize("name", ["linear", "two classes", "counts"])
def test_units_and_origins_of_columns(name):
    """Columns from 1e-4 to 1e6 times as large, and far from 0: predictions and tests stay, coefficients scale."""
    table, declaration = case(name)
    columns = [each for each in table.columns if each not in ("site", declaration["label"])]
    scales = dict(zip(columns, np.resize([1e-4, 1.0, 1e6, 30.0], len(columns)), strict=True))
    origins = dict(zip(columns, np.resize([0.0, 1e6, 1e6, -1e3], len(columns)), strict=True))
    model = fit(table, **declaration)
    moved = fit(table.assign(**{each: table[each] * scales[each] + origins[each] for each in columns}), **declaration)
    factors = np.array(list(scales.values()))
    # Entries have rounding errors of 1e-16 times the origin, or 1e-10.
    assert_same(moved.coefficients[1:] * factors, model.coefficients[1:], 1e-7)
    assert_same(moved.standard_errors[1:] * factors, model.standard_errors[1:], 1e-7)
    shift = model.coefficients[1:] / factors @ np.array(list(origins.values()))
    assert_same(moved.coefficients[0], model.coefficients[0] - shift, 1e-7)
    assert_same(list(moved.evaluation["fit"].values()), list(model.evaluation["fit"].values()), 1e-7)
    assert moved.provenance["status"] == "CONVERGED"


def test_order_of_features_and_other_columns():
    table = data.diabetes()
    model = fit(table, family="linear", label="target", features=["bmi", "age"])
    other = fit(table[["site", "target", "age", "bmi"]], family="linear", label="target", features=["age", "bmi"])
    assert model.names == ("intercept", "bmi", "age")
    assert_same(model.coefficients, other.coefficients[[0, 2, 1]], 1e-9)


def test_weights_count_rows():
    table = data.weighted(data.affairs())
    repeated = table.loc[table.index.repeat(table["w"])]
    ours = fit(table, family="logistic", label="any", weight="w")
    theirs = fit(repeated.drop(columns="w"), family="logistic", label="any")
    assert_same_models(ours, theirs)


def test_rows_of_weight_0_are_left_out():
    table = data.weighted(data.diabetes())
    table["w"] -= 1
    ours = fit(table, family="linear", label="target", weight="w")
    theirs = fit(table[table["w"] > 0], family="linear", label="target", weight="w")
    assert_same_models(ours, theirs)
    assert ours.statistics["rows left out"] == np.sum(table["w"] == 0)
    assert ours.statistics["rows"] == np.sum(table["w"] > 0)
    assert_same(ours.statistics["scale"], theirs.statistics["scale"], 1e-12)


def test_rows_without_a_partner_at_their_site_do_not_matter_to_cox():
    """Sites are strata: a site without events changes nothing."""
    table = data.rossi()
    alone = table[table["site"] == "west"].assign(arrest=0, site="alone")
    model = fit(table, family="cox", time="week", event="arrest")
    other = gs.fit(
        gs.Regression(family="cox", time="week", event="arrest"), pd.concat([table, alone]), sites="site"
    ).model
    assert_same(other.coefficients, model.coefficients, 1e-9)
    assert_same(other.standard_errors, model.standard_errors, 1e-9)
    with_strata = gs.fit(gs.Regression(family="cox", time="week", event="arrest"), table.drop(columns="site")).model
    assert np.max(np.abs(with_strata.coefficients - model.coefficients)) > 1e-3
