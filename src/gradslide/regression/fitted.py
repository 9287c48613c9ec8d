"""A fitted regression: what it says of its coefficients, predictions, tests and releases."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.data.tables import read_table
from gradslide.regression.card import FORMAT, VERSION, ModelCard
from gradslide.regression.design import counts_of, design_matrix, filled, missing_in, numbers_of, read_test_rows
from gradslide.regression.export import to_sklearn
from gradslide.regression.families import FAMILIES
from gradslide.regression.inference import Covariance, likelihood_ratio
from gradslide.regression.release import (
    Adjacency,
    Ledger,
    calibrated,
    gradient_bound,
    noisy,
    public_scales,
    sensitivity_of,
)
from gradslide.regression.summary import summary_text

# What predictions are.
_EXPECTED = {"linear": "expected value", "poisson": "expected count", "cox": "relative hazard"}


@dataclass(frozen=True, eq=False)
class FittedRegression(ModelCard):
    """A regression with its coefficients, in original units.

    Attributes
    ----------
    regression : Regression
        What was fitted.
    schema : Schema
        The columns.
    names : tuple of str
        Of the coefficients, the intercept first. With three or more classes, each class has its own.
    coefficients : ndarray, shape (k,)
    covariance : Covariance
        Of the coefficients, or why there is none.
    means, deviations : ndarray
        Of the columns of the design matrix, over all sites.
    statistics : mapping of str to float
        Rows, sites, log-likelihood, deviance, AIC and so on.
    evaluation : mapping of str to mapping of str to float
        How good predictions are: under "fit" for the rows of the fit, under "test" for others.
    release : Release or None
        What was promised, if the coefficients have noise for differential privacy.
    by_site : mapping of str to mapping
        The same for each site in this process.
    provenance : mapping
        Run, status, certificate, versions, hash of the schema.
    warnings : tuple of str
        What makes the model doubtful.
    """

    def summary(self) -> str:
        """Return the model as text: how it was fitted, coefficients with errors, how well it predicts.

        Returns
        -------
        str
            Some 30 lines of at most 80 characters.
        """
        return summary_text(self)

    def likelihood_ratio_test(self, smaller: "FittedRegression") -> tuple[float, int, float]:
        """Test this model against one with fewer features, fitted to the same rows.

        Parameters
        ----------
        smaller : FittedRegression

        Returns
        -------
        statistic : float
            Twice the difference of the log-likelihoods.
        degrees : int
            The difference of the numbers of coefficients.
        p : float
            The p-value of chi-squared with these degrees of freedom.
        """
        same = [
            ("family", self.regression.family, smaller.regression.family),
            ("rows", self.statistics["rows"], smaller.statistics["rows"]),
            ("classes", self.schema.classes, smaller.schema.classes),
            ("columns but features", self.regression.roles, smaller.regression.roles),
            ("label at the same rows", *(round(each.statistics["null log-likelihood"], 6) for each in (self, smaller))),
        ]
        for what, own, other in same:
            require(
                own == other, f"models to compare must have the same {what}", f"{own} and {other}", "fit them alike"
            )
        extra = sorted(set(smaller.names) - set(self.names))
        rule, remedy = "the smaller model's coefficients must be among this one's", "compare nested models"
        is_smaller = not extra and len(smaller.names) < len(self.names)
        require(is_smaller, rule, ", ".join(extra) or "all of them", remedy)
        for each in (self, smaller):
            rule, remedy = "a likelihood ratio needs models without penalties", "set ridge and lasso to 0"
            require(not each.regression.is_penalized, rule, "a penalized one", remedy)
        degrees = len(self.names) - len(smaller.names)
        logs = self.statistics["log-likelihood"], smaller.statistics["log-likelihood"]
        statistic, p = likelihood_ratio(*logs, degrees)
        return statistic, degrees, p

    def predict(self, table: Any) -> Array:
        """Predict for the rows of a table.

        Parameters
        ----------
        table : path, DataFrame or dict of arrays
            With the columns of the features, and of the exposure if there is one.

        Returns
        -------
        ndarray
            Expected values or counts, or hazards relative to the baseline, of shape (n,); probabilities
            of classes, of shape (n, classes). NaN in rows with missing entries if the model leaves
            such rows out.

        Raises
        ------
        InputError
            If a column is missing, or an entry is and the model refuses that.
        """
        read, policy, roles = read_table(table), self.regression.missing, self.schema.roles
        used = [*self.schema.features, *([roles["exposure"]] if "exposure" in roles else [])]
        missing = missing_in(used, read)
        remedy = 'complete them, or fit the model with missing="mean" or "drop"'
        is_fine = policy != "refuse" or not missing
        require(is_fine, "no entry of a feature may be missing", f"in {read.source} {counts_of(missing)}", remedy)
        features = design_matrix(self.schema, read)
        if policy == "mean":
            features = filled(features, self.means)
            missing = {each: gone for each, gone in missing.items() if each.levels or each.role == "exposure"}
        exposure = numbers_of(roles["exposure"], read, above=0.0) if "exposure" in roles else np.ones(read.n)
        predicted = FAMILIES[self.regression.family].predicted(self.scores(features), exposure)
        for gone in missing.values():
            predicted[gone] = math.nan
        return predicted if self.schema.classes else predicted[:, 0]

    def scores(self, features: Array) -> Array:
        """Return linear predictors of rows of the design matrix, (n, outputs of the family)."""
        intercepts, slopes = self.blocks()
        return intercepts + features @ slopes.T

    def prediction_table(self, table: Any) -> tuple[list[str], list[list[Any]]]:
        """Return predictions as a table: the number of each row, what `predict` returns, and the most probable class.

        Parameters
        ----------
        table : path, DataFrame or dict of arrays
            As for `predict`.

        Returns
        -------
        names : list of str
            Of the columns.
        rows : list of list
            None where a prediction is missing.
        """
        predicted, classes = self.predict(table), self.schema.classes
        names = ["row", *(f"probability of {name}" for name in classes)]
        names += ["class"] if classes else [_EXPECTED[self.regression.family]]
        rows: list[list[Any]] = []
        for number, values in enumerate(predicted.reshape(len(predicted), -1), 1):
            is_known = not np.isnan(values).any()
            row = [*values.tolist(), *([classes[np.argmax(values)]] if classes else [])]
            rows.append([number, *(row if is_known else [None] * len(row))])
        return names, rows

    def evaluate(self, table: Any) -> dict[str, float]:
        """Return how good predictions are for a table with labels.

        Parameters
        ----------
        table : path, DataFrame or dict of arrays
            With features and label.

        Returns
        -------
        dict of str to float
            As in `evaluation`.
        """
        family = FAMILIES[self.regression.family]
        rows = read_test_rows(self.regression, self.schema, read_table(table))
        return family.metrics(family.of_predictions(self.scores(filled(rows.features, self.means)), rows))

    def released(
        self,
        epsilon: float,
        delta: float,
        *,
        adjacency: Adjacency = "replace",
        ledger: str | os.PathLike[str] | None = None,
        budget: tuple[float, float] | None = None,
    ) -> "FittedRegression":
        """Return the model with noise: see `Solution.release`."""
        own, found = self.regression, self.provenance
        rule, remedy = "a release needs a regression that was declared for it", "fit one with for_release=True"
        require(own.for_release, rule, "one with for_release=False", remedy)
        require(self.release is None, "a model is released once", "one with noise", "release the fitted model again")
        rule, remedy = "a release needs a model at its optimum", "look at the warnings of the fit"
        require(self.is_sound, rule, found["message"], remedy)
        sensitivity, tau = sensitivity_of(gradient_bound(self.schema), own.ridge, adjacency)
        gap = found["gap"]
        rule, remedy = f"a release needs a certified gap of at most {tau:.3g}", "fit again with a larger ridge"
        require(gap is not None and gap <= tau, rule, "none" if gap is None else f"{gap:.3g}", remedy)
        promise = calibrated(epsilon, delta, sensitivity, adjacency)
        if ledger is not None:
            Ledger(ledger).add(promise, str(found["run"]), self.schema.hash, budget)
        else:
            rule, remedy = "a budget needs a ledger", "give ledger=..., a file for all releases of these rows"
            require(budget is None, rule, "none", remedy)
        centre, scale = public_scales(self.schema)
        intercepts, slopes = self.blocks()
        scaled = noisy(np.column_stack([intercepts + slopes @ centre, slopes * scale]), promise.sigma)
        slopes = scaled[:, 1:] / scale
        coefficients = np.column_stack([scaled[:, 0] - slopes @ centre, slopes])
        names = ("run", "status", "message", "schema", "keys", "gradslide")
        return FittedRegression(
            regression=own,
            schema=self.schema,
            names=self.names,
            coefficients=coefficients.ravel(),
            covariance=Covariance(None, problem="the coefficients have noise: a release has no standard errors"),
            means=centre,
            deviations=scale,
            statistics={},
            evaluation={},
            provenance={name: found[name] for name in names} | {"optimality": "", "gap": None},
            release=promise,
        )

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn estimator that predicts the same.

        Returns
        -------
        estimator
            `LinearRegression`, `LogisticRegression` or `PoissonRegressor`, for a DataFrame with the
            columns of the features; in a pipeline that encodes categories if there are any.
        """
        return to_sklearn(self)

    def __repr__(self) -> str:
        status = self.provenance["status"]
        if self.release is not None:
            return f"FittedRegression({self.regression.family}, released with {self.release})"
        n, sites = int(self.statistics["rows"]), int(self.statistics["sites"])
        return f"FittedRegression({self.regression.family}, {n} rows at {sites} sites, {status})"


@checked_arguments
def load_model(path: str | os.PathLike[str]) -> FittedRegression:
    """Read a model card that `FittedRegression.save` or an agent wrote.

    Parameters
    ----------
    path : path-like
        A JSON file.

    Returns
    -------
    FittedRegression

    Raises
    ------
    InputError
        If it is no model card, or of a later version.
    """
    rule, remedy = "a model must be a model card in JSON", "give the model.json that an agent or a run wrote"
    try:
        card = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(rule, f"{path} ({error.strerror})", remedy) from None
    except ValueError:
        raise InputError(rule, f"{path}, which is no JSON", remedy) from None
    is_card = isinstance(card, dict) and card.get("format") == FORMAT
    require(is_card, rule, f"{path}, which is something else", remedy)
    require(card["version"] == VERSION, f"a model card must be of version {VERSION}", card["version"], "fit it anew")
    return FittedRegression.from_dict(card)
