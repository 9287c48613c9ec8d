"""Regressions over tables at sites, and what a fitted one can do.

`declaration` says which columns, family and penalties a model has, `schema` what sites must have in
common, `design` what a site computes with, `families` losses and likelihoods. `card` is the result as data,
`fitted` what it can do: `inference` has its errors, `summary` shows it as text, `export` turns it into
an estimator of scikit-learn, `release` adds noise for differential privacy. How coefficients are
found over a network belongs to `fitting`.
"""

from gradslide.regression.declaration import Regression
from gradslide.regression.fitted import FittedRegression, load_model

__all__ = ["FittedRegression", "Regression", "load_model"]
