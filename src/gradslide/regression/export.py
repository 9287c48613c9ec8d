"""Fitted regressions as scikit-learn estimators."""

from typing import Any

import numpy as np

from gradslide._support.errors import InputError, MissingPackageError
from gradslide.regression.card import ModelCard


def to_sklearn(model: ModelCard) -> Any:
    """Return what `FittedRegression.to_sklearn` returns."""
    try:
        from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
    except ModuleNotFoundError as error:
        remedy = "in a checkout of gradslide: pip install '.[sklearn]'"
        raise MissingPackageError("to_sklearn needs scikit-learn", "none installed", remedy) from error
    own = model.regression
    makers = {"linear": LinearRegression, "logistic": LogisticRegression, "poisson": PoissonRegressor}
    if own.family not in makers:
        rule, remedy = "scikit-learn must have a model of this family", "use predict, or the model card"
        raise InputError(rule, own.family, remedy)
    if own.exposure is not None:
        rule, remedy = "scikit-learn's PoissonRegressor has no exposure", "use predict, which takes it from the table"
        raise InputError(rule, f"exposure {own.exposure!r}", remedy)
    estimator = makers[own.family](fit_intercept=own.has_intercept)
    columns, classes = model.schema.columns, model.schema.classes
    # A fit to nothing sets what predictions need in this release; coefficients take its place.
    estimator.fit(np.zeros((max(len(classes), 2), len(columns))), _labels(classes) if classes else [1.0, 1.0])
    intercepts, slopes = model.blocks()
    estimator.coef_, estimator.intercept_ = (slopes, intercepts) if classes else (slopes[0], float(intercepts[0]))
    if any(each.levels for each in model.schema.features):
        return _with_encoder(model, estimator)
    estimator.feature_names_in_ = np.array(columns, dtype=object)
    return estimator


def _with_encoder(model: ModelCard, estimator: Any) -> Any:
    """A pipeline that turns categories into the columns that the estimator knows."""
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder

    steps, table, most = [], {}, max(len(each.levels) for each in model.schema.features)
    for each in model.schema.features:
        step = "passthrough"
        if each.levels:
            step = OneHotEncoder(categories=[_labels(each.levels)], drop="first", sparse_output=False)
        steps.append((each.name, step, [each.name]))
        table[each.name] = np.resize(_labels(each.levels) or [0.0], most)
    encoder = ColumnTransformer(steps).fit(pd.DataFrame(table))
    return Pipeline([("encode", encoder), ("model", estimator)])


def _labels(levels: tuple[str, ...]) -> list[Any]:
    """Levels as a table has them: whole numbers as numbers."""
    if set(levels) == {"true", "false"}:
        return [level == "true" for level in levels]
    try:
        return [int(level) for level in levels]
    except ValueError:
        return list(levels)
