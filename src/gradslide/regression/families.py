"""Families of regressions: their losses, likelihoods, and how well predictions are."""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import expit, gammaln, softmax, xlogy

from gradslide._support.errors import require
from gradslide._support.types import Array
from gradslide.losses import Cox, LeastSquares, Logistic, Loss, Poisson, Softmax
from gradslide.regression.design import Rows

# Bins of predictions, in which classes are counted; scores beyond the largest share the last one.
BINS, _MOST_SCORE = 400, 10.0
# Pairs of rows of one site are compared up to so many rows.
_MOST_PAIRED = 20_000
_CHUNK = 500
# Probabilities are at least this, and means of counts between these, so that all sums are finite.
_LEAST_PROBABILITY, _MEANS = 1e-100, (1e-12, 1e15)
# Counts that vary so much more than those of a Poisson distribution make errors from the Hessian too small.
_DISPERSED = 1.5

Sums = Mapping[str, Array]


class Likelihood(NamedTuple):
    """What the rows of all sites say about the model.

    Attributes
    ----------
    model, null : float
        Log-likelihood, and that of a model with an intercept at most.
    deviance, null_deviance : float
        Twice what is missing to a model that fits each row; NaN for Cox.
    scale : float
        The variance of residuals; 1 where the family has none.
    """

    model: float
    null: float
    deviance: float
    null_deviance: float
    scale: float


class Family(abc.ABC):
    """A loss as a statistical model.

    Attributes
    ----------
    has_scale : bool
        Whether the variance of residuals is estimated, so that t takes the place of z.
    of_intercept : bool
        Whether an intercept changes the loss.
    title : str
        For tables.
    """

    has_scale: ClassVar[bool] = False
    of_intercept: ClassVar[bool] = True
    title: ClassVar[str]

    def outputs(self, classes: int) -> int:
        """Return the number of linear predictors of a row."""
        return 1

    @abc.abstractmethod
    def loss(self, rows: Rows, splits: Sequence[Array], classes: int) -> Loss:
        """Return the loss of the agents that have these rows."""

    @abc.abstractmethod
    def predicted(self, scores: Array, exposure: Array) -> Array:
        """Return what is expected of rows with these scores, (n, outputs)."""

    def residuals(self, scores: Array, rows: Rows) -> Array:
        """Return the derivatives of each row's loss by its scores, (n, outputs), if rows have a loss of their own."""
        raise NotImplementedError

    @abc.abstractmethod
    def of_targets(self, rows: Rows, classes: int) -> dict[str, Array]:
        """Return what a site adds up about its targets before the fit."""

    def around_mean(self, rows: Rows, sums: Sums) -> dict[str, Array]:
        """Return what a site adds up when it knows the sums of `of_targets`, and of weights."""
        return {}

    def check_targets(self, sums: Sums) -> None:
        """Raise InputError if no model fits targets with these sums of `of_targets`."""
        return

    @abc.abstractmethod
    def likelihood(self, value: float, null_value: float, sums: Sums, fitted: int, has_intercept: bool) -> Likelihood:
        """Return the log-likelihood at the optimum.

        Parameters
        ----------
        value, null_value : float
            The loss of all rows there, and at 0.
        sums : mapping
            What `of_targets` and `around_mean` returned, summed over the sites.
        fitted : int
            Number of coefficients.
        has_intercept : bool
        """

    @abc.abstractmethod
    def of_predictions(self, scores: Array, rows: Rows) -> dict[str, Array]:
        """Return what a site adds up about predictions; under "w", how much they count."""

    def metrics(self, sums: Sums) -> dict[str, float]:
        """Return how good predictions are, from these sums of one site or of all; nothing without rows."""
        found = self._metrics(sums) if sums and sums["w"] > 0 else {}
        return {name: float(value) for name, value in found.items()}

    @abc.abstractmethod
    def _metrics(self, sums: Sums) -> dict[str, Array]: ...

    def doubt(self, metrics: Mapping[str, float]) -> str:
        """Return what metrics of the fit say against standard errors from the Hessian; empty if nothing."""
        return ""


class Linear(Family):
    """Normal errors of one variance."""

    has_scale = True
    title = "Linear regression"

    def loss(self, rows: Rows, splits: Sequence[Array], classes: int) -> Loss:
        return LeastSquares(rows.features, rows.targets, splits=splits, sample_weight=rows.weight)

    def predicted(self, scores: Array, exposure: Array) -> Array:
        return scores

    def residuals(self, scores: Array, rows: Rows) -> Array:
        return scores - rows.targets[:, None]

    def of_targets(self, rows: Rows, classes: int) -> dict[str, Array]:
        w, y = rows.weight, rows.targets
        return {"y": w @ y, "y powers": w @ y**2, "log weights": np.sum(np.log(w[w > 0]))}

    def around_mean(self, rows: Rows, sums: Sums) -> dict[str, Array]:
        return {"y squares": rows.weight @ (rows.targets - sums["y"] / sums["weight"]) ** 2}

    def likelihood(self, value: float, null_value: float, sums: Sums, fitted: int, has_intercept: bool) -> Likelihood:
        n, logs = float(sums["n"]), float(sums["log weights"])
        around = float(sums["y squares" if has_intercept else "y powers"])

        def normal(squares: float) -> float:
            return -n / 2 * (math.log(2 * math.pi * squares / n) + 1) + logs / 2 if squares > 0 else math.nan

        scale = 2 * value / (n - fitted) if n > fitted else math.nan
        return Likelihood(normal(2 * value), normal(around), 2 * value, around, scale)

    def of_predictions(self, scores: Array, rows: Rows) -> dict[str, Array]:
        w, y, gap = rows.weight, rows.targets, scores[:, 0] - rows.targets
        return {"w": np.sum(w), "y": w @ y, "yy": w @ y**2, "squares": w @ gap**2, "absolute": w @ np.abs(gap)}

    def _metrics(self, sums: Sums) -> dict[str, Array]:
        w, squares = sums["w"], sums["squares"]
        spread = sums["yy"] - sums["y"] ** 2 / w
        found = {"RMSE": np.sqrt(squares / w), "mean absolute error": sums["absolute"] / w}
        return found | ({"R2": 1 - squares / spread} if spread > 0 else {})


class LogisticFamily(Family):
    """Probabilities of two or more classes."""

    title = "Logistic regression"

    def outputs(self, classes: int) -> int:
        return 1 if classes == 2 else classes

    def loss(self, rows: Rows, splits: Sequence[Array], classes: int) -> Loss:
        if classes == 2:
            return Logistic(rows.features, 2.0 * rows.targets - 1.0, splits=splits, sample_weight=rows.weight)
        return Softmax(rows.features, rows.targets, classes, splits=splits, sample_weight=rows.weight)

    def predicted(self, scores: Array, exposure: Array) -> Array:
        if scores.shape[1] == 1:
            return np.hstack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def residuals(self, scores: Array, rows: Rows) -> Array:
        probabilities = self.predicted(scores, rows.exposure)
        gaps = probabilities - (rows.targets[:, None] == np.arange(probabilities.shape[1]))
        return gaps[:, 1:] if scores.shape[1] == 1 else gaps

    def of_targets(self, rows: Rows, classes: int) -> dict[str, Array]:
        return {"classes": np.bincount(rows.targets, weights=rows.weight, minlength=classes)}

    def check_targets(self, sums: Sums) -> None:
        empty = int(np.count_nonzero(sums["classes"] == 0))
        require(not empty, "every class must have rows at some site", f"{empty} without", "leave them out of classes")

    def likelihood(self, value: float, null_value: float, sums: Sums, fitted: int, has_intercept: bool) -> Likelihood:
        counts = sums["classes"]
        shares = counts / counts.sum() if has_intercept else np.full(len(counts), 1 / len(counts))
        null = float(np.sum(xlogy(counts, shares)))
        return Likelihood(-value, null, 2 * value, -2 * null, 1.0)

    def of_predictions(self, scores: Array, rows: Rows) -> dict[str, Array]:
        w, probabilities = rows.weight, self.predicted(scores, rows.exposure)
        own = probabilities[np.arange(rows.n), rows.targets]
        hits = probabilities.argmax(axis=1) == rows.targets
        gaps = probabilities - (rows.targets[:, None] == np.arange(probabilities.shape[1]))
        found = {
            "w": np.sum(w),
            "hits": w @ hits,
            "log": -(w @ np.log(np.maximum(own, _LEAST_PROBABILITY))),
            "brier": w @ np.sum(gaps**2, axis=1),
        }
        if scores.shape[1] == 1:
            bins = _bins(scores[:, 0], probabilities[:, 1])
            for name, share in (("positive", rows.targets), ("negative", 1 - rows.targets)):
                found[name] = np.bincount(bins, weights=w * share, minlength=BINS)
            found["probability"] = w @ probabilities[:, 1]
        return found

    def _metrics(self, sums: Sums) -> dict[str, Array]:
        w = sums["w"]
        found = {"accuracy": sums["hits"] / w, "log-loss": sums["log"] / w, "Brier score": sums["brier"] / w}
        if "positive" not in sums:
            return found
        found["Brier score"] /= 2
        positive, negative = sums["positive"], sums["negative"]
        if (pairs := positive.sum() * negative.sum()) > 0:
            below = np.cumsum(negative) - negative
            # Pairs in one bin count half; how far that may be off is known.
            half = positive @ negative / 2
            found |= {"AUC": (positive @ below + half) / pairs, "AUC exact to": half / pairs}
        return found | ({"calibration": sums["probability"] / positive.sum()} if positive.any() else {})


def _bins(scores: Array, probabilities: Array) -> Array:
    """The bin of each row, in the order of the scores; narrow ones also where all probabilities are near 0 or 1."""
    places = (probabilities + (np.clip(scores, -_MOST_SCORE, _MOST_SCORE) / _MOST_SCORE + 1) / 2) / 2
    return np.minimum((places * BINS).astype(np.int64), BINS - 1)


class PoissonFamily(Family):
    """Counts."""

    title = "Poisson regression"

    def loss(self, rows: Rows, splits: Sequence[Array], classes: int) -> Loss:
        return Poisson(rows.features, rows.targets, rows.exposure, splits=splits, sample_weight=rows.weight)

    def predicted(self, scores: Array, exposure: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(scores) * exposure[:, None]

    def residuals(self, scores: Array, rows: Rows) -> Array:
        return self.predicted(scores, rows.exposure) - rows.targets[:, None]

    def of_targets(self, rows: Rows, classes: int) -> dict[str, Array]:
        w, y, e = rows.weight, rows.targets, rows.exposure
        return {
            "y": w @ y,
            "exposure": w @ e,
            "y log exposure": w @ (y * np.log(e)),
            "y log y": w @ xlogy(y, y),
            "log factorials": w @ gammaln(y + 1),
        }

    def check_targets(self, sums: Sums) -> None:
        require(bool(sums["y"] > 0), "some count must be positive", "none at any site", "name another label")

    def likelihood(self, value: float, null_value: float, sums: Sums, fitted: int, has_intercept: bool) -> Likelihood:
        names = ("y", "exposure", "y log exposure", "y log y", "log factorials")
        y, exposure, logs, powers, factorials = (float(sums[name]) for name in names)
        saturated = powers - y - factorials
        rate = y / exposure if has_intercept else 1.0
        null = logs + float(xlogy(y, rate)) - exposure * rate - factorials
        return Likelihood(saturated - value, null, 2 * value, 2 * (saturated - null), 1.0)

    def of_predictions(self, scores: Array, rows: Rows) -> dict[str, Array]:
        w, y, mean = rows.weight, rows.targets, np.clip(self.predicted(scores, rows.exposure)[:, 0], *_MEANS)
        deviance = 2 * (xlogy(y, y) - xlogy(y, mean) - y + mean)
        return {
            "w": np.sum(w),
            "deviance": w @ deviance,
            "pearson": w @ ((y - mean) ** 2 / mean),
            "y": w @ y,
            "mean": w @ mean,
            "absolute": w @ np.abs(y - mean),
        }

    def _metrics(self, sums: Sums) -> dict[str, Array]:
        w, y = sums["w"], sums["y"]
        names = {"mean deviance": "deviance", "mean absolute error": "absolute", "dispersion": "pearson"}
        found = {name: sums[each] / w for name, each in names.items()}
        return found | ({"calibration": sums["mean"] / y} if y > 0 else {})

    def doubt(self, metrics: Mapping[str, float]) -> str:
        factor = metrics["dispersion"]
        text = f"counts vary {factor:.3g} times as much as a Poisson distribution's: standard errors are too small"
        return f'{text}; use covariance="rows"' if factor > _DISPERSED else ""


class CoxFamily(Family):
    """Proportional hazards, with a baseline hazard at each site."""

    of_intercept = False
    title = "Cox regression"

    def loss(self, rows: Rows, splits: Sequence[Array], classes: int) -> Loss:
        return Cox(rows.features, rows.targets, rows.event, splits=splits, sample_weight=rows.weight)

    def predicted(self, scores: Array, exposure: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(scores)

    def of_targets(self, rows: Rows, classes: int) -> dict[str, Array]:
        return {"events": rows.weight @ rows.event}

    def check_targets(self, sums: Sums) -> None:
        require(bool(sums["events"] > 0), "a Cox regression needs events", "none at any site", "correct the events")

    def likelihood(self, value: float, null_value: float, sums: Sums, fitted: int, has_intercept: bool) -> Likelihood:
        return Likelihood(-value, -null_value, math.nan, math.nan, 1.0)

    def of_predictions(self, scores: Array, rows: Rows) -> dict[str, Array]:
        """Count pairs of rows at one site of which one had the event first, by whose hazard is higher."""
        pairs, concordant = np.zeros(()), np.zeros(())
        is_event, time, score = rows.event > 0, rows.targets, scores[:, 0]
        for own in np.array_split(np.flatnonzero(is_event), 1 + rows.n // _CHUNK) if rows.n <= _MOST_PAIRED else ():
            later = (time > time[own, None]) | ((time == time[own, None]) & ~is_event)
            gap = (score[own, None] - score)[later]
            pairs += len(gap)
            concordant += np.count_nonzero(gap > 0) + np.count_nonzero(gap == 0) / 2
        return {"w": pairs, "concordant": concordant}

    def _metrics(self, sums: Sums) -> dict[str, Array]:
        return {"concordance": sums["concordant"] / sums["w"]}


FAMILIES: Mapping[str, Family] = {
    "linear": Linear(),
    "logistic": LogisticFamily(),
    "poisson": PoissonFamily(),
    "cox": CoxFamily(),
}
