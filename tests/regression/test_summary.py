"""The summary: what it shows of each kind of model, and that it fits on a page."""

import re

import numpy as np
import pandas as pd
import pytest
import site_tables as data
from site_tables import fit

CASES = {
    "linear": (data.diabetes, {"family": "linear", "label": "target"}),
    "two classes": (data.affairs, {"family": "logistic", "label": "any"}),
    "several classes": (data.votes, {"family": "logistic", "label": "PID"}),
    "counts": (data.visits, {"family": "poisson", "label": "mdvis"}),
    "times": (data.rossi, {"family": "cox", "time": "week", "event": "arrest"}),
    "penalty": (data.breast_cancer, {"family": "logistic", "label": "target", "ridge": 1.0, "lasso": 2.0}),
    "robust": (data.diabetes, {"family": "linear", "label": "target", "covariance": "site", "confidence": 0.9}),
}
SHOWN = {
    "linear": [" Linear regression$", "Label: +target +log-likelihood: +-2386$", "Rows: +442 +null", "R2: +0.51775$"],
    "two classes": [
        "Classes: +0, 1 ",
        r"LR chi2\(8\): ",
        "Prob > chi2: ",
        "log-odds of '1'",
        r"AUC 0.737\d+ \(\+-0.003\),",
    ],
    "several classes": ["Classes: +0, 1, 2, 3, 4, 5, 6 ", "^1: intercept +-", "^6: income ", r"Reference class: '0'\."],
    "counts": [" Poisson regression$", r"dispersion 6\.", "Warning: counts vary 6.19 times", r'covariance="rows"\.$'],
    "times": ["Label: +week, arrest ", "Weighted events: +114 ", r"concordance 0\.6", r"LR chi2\(7\): "],
    "penalty": ["Penalty: +ridge 1, lasso 2$", "Standard errors: +none$", "^Estimates with a penalty are biased"],
    "robust": ["Standard errors: +clustered by site ", r" \[0.05 +0.95\]$", r" P>\|t\| ", "^Warning: standard errors"],
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_shown(name):
    make, declaration = CASES[name]
    text = fit(make(), **declaration).summary()
    for pattern in SHOWN[name]:
        assert re.search(pattern, text, re.MULTILINE), pattern
    assert max(map(len, text.splitlines())) <= 78


def test_every_coefficient_has_its_numbers():
    model = fit(data.affairs(), family="logistic", label="any")
    for row in model.table():
        line = next(line for line in model.summary().splitlines() if line.startswith(row["name"]))
        shown = [float(each) for each in line.removeprefix(row["name"]).split()]
        np.testing.assert_allclose(shown[0], row["coefficient"], rtol=1e-4)
        np.testing.assert_allclose(shown[1], row["error"], rtol=1e-4)
        np.testing.assert_allclose(shown[2:4], [row["z"], row["p"]], atol=6e-4)
        np.testing.assert_allclose(shown[4:], [row["low"], row["high"]], rtol=1e-4)


def test_long_names_and_extreme_numbers():
    rng = np.random.default_rng(0)
    x, name = rng.normal(size=(300, 3)), "a column with a very long name indeed, in meters per second"
    table = pd.DataFrame({name: x[:, 0] * 1e-12, "large": x[:, 1] * 1e9, "medium": x[:, 2] * 1e-5})
    table["y"] = -5e5 * x[:, 0] - 2.5e5 + rng.normal(size=300)
    lines = fit(data.at_sites(table), family="linear", label="y").summary().splitlines()
    assert max(map(len, lines)) <= 78
    place = lines.index(name)
    assert re.match(r" {18} +-5e\+17 ", lines[place + 1])
    assert lines[place + 2].startswith("large ")
    assert next(line for line in lines if line.startswith("intercept")).split()[1] == "-250000"


def test_reference_levels():
    table = data.diabetes().assign(group=lambda rows: np.where(rows["age"] < 50, "young", "old"))
    model = fit(table, family="linear", label="target", features=["group", "bmi"])
    assert "Reference level of group: old." in model.summary()
    assert re.search(r"^group=young +-?\d", model.summary(), re.MULTILINE)
