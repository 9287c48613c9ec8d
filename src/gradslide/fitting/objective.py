"""What is minimized over the coefficients of the columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradslide._support.types import Array
from gradslide.regression.declaration import Regression
from gradslide.regression.families import FAMILIES, Family
from gradslide.regression.release import gap_for_release, public_scales
from gradslide.regression.schema import Schema

# Up to so many coefficients there are Hessians.
MOST_HESSIAN = 1_000


@dataclass(frozen=True)
class Objective:
    """The loss of a family and penalties on the coefficients of p columns.

    Attributes
    ----------
    family : Family
    classes : int
        Of a logistic regression; 0 otherwise.
    ridge, lasso : ndarray, shape (p,)
        Weights of the penalties of each column, on the scale of the sum over all rows.
    standardize : bool
        Whether these are penalties of columns of standard deviation 1.
    has_intercept : bool
    covariance : {"model", "rows", "site", "none"}
        How standard errors are found.
    columns : sequence of str
        Names of the columns, for messages.
    public : tuple of ndarray, optional
        What columns are shifted and divided by, if that must not depend on the data. Then the
        penalties are those of columns scaled so, and the ridge is on the intercept, too.
    gap : float, optional
        The certified gap that a release needs.
    """

    family: Family
    classes: int
    ridge: Array
    lasso: Array
    standardize: bool
    has_intercept: bool
    covariance: str
    columns: Sequence[str]
    public: tuple[Array, Array] | None = None
    gap: float | None = None

    @property
    def is_penalized(self) -> bool:
        """Whether any column is penalized."""
        return bool(np.any(self.ridge > 0) or np.any(self.lasso > 0))

    @property
    def outputs(self) -> int:
        """Linear predictors of the loss; with three or more classes one each."""
        return self.family.outputs(self.classes)

    @property
    def reported(self) -> int:
        """Linear predictors that have coefficients: without penalties the first class is the reference."""
        return self.outputs - 1 if self.outputs > 1 and not self.is_penalized else self.outputs

    @property
    def no_errors(self) -> str:
        """Why there are no standard errors, if that is known before the fit."""
        if self.is_penalized:
            return "estimates with a penalty are biased: they have no standard errors"
        if (count := self.reported * (len(self.columns) + self.has_intercept)) > MOST_HESSIAN:
            return f"there are no standard errors of more than {MOST_HESSIAN} coefficients, here {count}"
        return "" if self.covariance != "none" else "no standard errors were asked for"


def objective_of(regression: Regression, schema: Schema) -> Objective:
    """Return what the regression minimizes over the columns of the schema."""
    owners = [each.name for each in schema.features for _ in range(max(1, len(each.levels) - 1))]
    factors = np.array([float(regression.penalty_factors.get(name, 1.0)) for name in owners])
    return Objective(
        family=FAMILIES[regression.family],
        classes=len(schema.classes),
        ridge=regression.ridge * factors,
        lasso=regression.lasso * factors,
        standardize=regression.standardize,
        has_intercept=regression.has_intercept,
        covariance=regression.covariance,
        columns=schema.columns,
        public=public_scales(schema) if regression.for_release else None,
        gap=gap_for_release(schema, regression.ridge) if regression.for_release else None,
    )
