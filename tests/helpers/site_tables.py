"""Tables of real data whose rows lie at sites of unequal sizes, and networks of these sites."""

import warnings

import numpy as np
import pandas as pd
import statsmodels.api as sm
from lifelines.datasets import load_rossi
from sklearn import datasets

import gradslide as gs

SITES = ("north", "south", "east", "west", "centre")
GRAPHS = {
    "complete": gs.Graph.complete(5),
    "ring": gs.Graph.ring(5),
    "path": gs.Graph.path(5),
    "star": gs.Graph.star(5),
    "random": gs.Graph.random(5, max_degree=3, seed=1),
}


def at_sites(table: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """The table with the site of each row; the largest site has some five times the rows of the smallest."""
    shares = np.arange(1, 6) / 15
    return table.assign(site=np.random.default_rng(seed).choice(SITES, len(table), p=shares))


def diabetes() -> pd.DataFrame:
    """Numbers: 442 rows, columns age, sex, bmi, ..., target; in the units of the doctors."""
    return at_sites(datasets.load_diabetes(as_frame=True, scaled=False).frame)


def breast_cancer() -> pd.DataFrame:
    """Two classes: 569 rows, 30 columns that separate them, target."""
    return at_sites(datasets.load_breast_cancer(as_frame=True).frame)


def wine() -> pd.DataFrame:
    """Three classes: 178 rows, 13 columns that separate them, target."""
    return at_sites(datasets.load_wine(as_frame=True).frame)


def affairs() -> pd.DataFrame:
    """Two classes that overlap: 1600 rows of Fair's survey, any."""
    table = sm.datasets.fair.load_pandas().data.iloc[::4].reset_index(drop=True)
    return at_sites(table.assign(any=(table["affairs"] > 0).astype(int)).drop(columns="affairs"))


def votes() -> pd.DataFrame:
    """Seven classes that overlap: 944 rows of the election of 1996, PID."""
    table = sm.datasets.anes96.load_pandas().data
    return at_sites(table[["logpopul", "selfLR", "age", "educ", "income", "PID"]].astype({"PID": int}))


def visits() -> pd.DataFrame:
    """Counts: 2000 rows of the RAND experiment, mdvis."""
    table = sm.datasets.randhie.load_pandas().data.iloc[::10].reset_index(drop=True)
    return at_sites(table[["mdvis", "lncoins", "idp", "disea", "hlthg"]].astype({"mdvis": int}))


def rossi() -> pd.DataFrame:
    """Times until an event: 432 rows, week and arrest."""
    return at_sites(load_rossi())


def weighted(table: pd.DataFrame, seed: int = 3) -> pd.DataFrame:
    """The table with whole weights from 1 to 3 in the column w."""
    return table.assign(w=np.random.default_rng(seed).integers(1, 4, len(table)))


def fit(table: pd.DataFrame, graph: str = "ring", **declaration):
    """The model of `gs.fit`; features are all columns without a role."""
    return gs.fit(gs.Regression(**declaration), table, GRAPHS[graph], sites="site").model


def features_of(table: pd.DataFrame, *others: str) -> pd.DataFrame:
    """The columns that are neither the site nor one of the others."""
    return table.drop(columns=["site", *others])


def assert_same(ours, theirs, tolerance: float = 1e-6, zero: float = 0.0) -> None:
    """Numbers agree relatively, up to this tolerance."""
    np.testing.assert_allclose(np.ravel(ours), np.ravel(theirs), rtol=tolerance, atol=zero)


def quietly(make, *args, **options):
    """What a function of another library returns, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*args, **options)
