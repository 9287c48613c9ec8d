"""What sites add up at the optimum: the likelihood, its curvature, and how good predictions are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradslide._support.types import Array
from gradslide.fitting.columns import SiteSums
from gradslide.fitting.scaled import ScaledProblem, scaled_rows
from gradslide.problems.model import from_upper, upper
from gradslide.regression.design import Rows
from gradslide.regression.families import Likelihood
from gradslide.regression.inference import Curvature

# Rows whose gradients are held at a time.
_CHUNK = 10_000
# A step of Newton's method that changes no score by more than this is rounding.
_EXACT = 1e-6
# The optimum is at infinity if a step still changes some score by more than the first, and if so many steps further on
# the loss rises at no site, with a slope above the last per unit of weight.
_ENDLESS, _FAR, _RISE = 0.1, 1e3, 1e-6
# Or if there is no curvature left where scores change by this share of what they could: columns are not collinear.
_FLAT = 1e-3

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Optimum:
    """What all sites know there.

    Attributes
    ----------
    likelihood : Likelihood
    curvature : Curvature or None
        None if no standard errors are wanted.
    growth : ndarray or None
        How fast each variable grows on the way to an optimum at infinity; None if it is finite, or
        without curvature.
    is_exact : bool
        Whether one more step of Newton's method changes nothing; False without curvature.
    evaluation, test : mapping of str to float
        How good predictions are for the rows of the fit, and for others; empty without these.
    by_site : sequence of (mapping, mapping)
        Both of each site here.
    """

    likelihood: Likelihood
    curvature: Curvature | None
    growth: Array | None
    is_exact: bool
    evaluation: Metrics
    test: Metrics
    by_site: Sequence[tuple[Metrics, Metrics]]

    @property
    def next_step(self) -> Array | None:
        """A step of Newton's method, if that leads to a finite optimum and changes anything."""
        is_done = self.is_exact or self.growth is not None or self.curvature is None
        return None if is_done or self.curvature is None else self.curvature.newton_step()


def sums_at_optimum(scaled: ScaledProblem, u: Array, tests: Sequence[Rows] | None, sums: SiteSums, m: int) -> Optimum:
    """Evaluate the model at u. It takes one sum, and a second small one if there is curvature.

    Parameters
    ----------
    scaled : ScaledProblem
    u : ndarray, shape (d,)
        The optimum.
    tests : sequence of Rows or None
        Further rows of each agent here.
    sums : SiteSums
    m : int
        Number of agents, here and elsewhere.
    """
    objective, base = scaled.objective, scaled.loss.base
    family, statistics = objective.family, scaled.statistics
    held = [scaled_rows(objective, statistics, rows) for rows in tests or ()]
    fit, test = ([family.of_predictions(scaled.scores(rows, u), rows) for rows in of] for of in (scaled.sites, held))
    x = np.tile(u, (len(fit), 1))
    values, nulls = base.value(scaled.loss.embedded(x)), base.value(np.zeros((len(fit), base.d)))
    losses = [{"value": value, "null": null} for value, null in zip(values, nulls, strict=True)]
    groups = {"loss": losses, "fit": fit} | ({"test": test} if test else {})
    if not objective.no_errors:
        sums.costs.gradients += 2
        sums.costs.hessians += 1
        groups["curvature"] = _curvature_parts(scaled, x)
    total = sums.of_groups(groups)
    value, null = float(total["loss"]["value"]), float(total["loss"]["null"])
    likelihood = family.likelihood(value, null, statistics.sums, len(u), objective.has_intercept)
    curvature, growth, is_exact = None, None, False
    if not objective.no_errors:
        found = total["curvature"]
        curvature = Curvature(
            found["gradient"],
            from_upper(found["hessian"], len(u)),
            n=int(statistics.sums["n"]),
            sites=m,
            scale=likelihood.scale,
            has_scale=family.has_scale,
            meat=from_upper(found["meat"], len(u)) if "meat" in found else None,
        )
        growth, is_exact = _outlook(scaled, u, curvature, sums)
    both = zip(fit, test or [{}] * len(fit), strict=True)
    return Optimum(
        likelihood,
        curvature,
        growth,
        is_exact,
        family.metrics(total["fit"]),
        family.metrics(total.get("test", {})),
        [(family.metrics(own), family.metrics(other)) for own, other in both],
    )


def _outlook(scaled: ScaledProblem, u: Array, curvature: Curvature, sums: SiteSums) -> tuple[Array | None, bool]:
    """How variables grow on the way to infinity, if they do, and whether a step changes nothing."""
    step, flat = curvature.newton_step(), curvature.flat_directions()
    x = np.tile(u + _FAR * step, (len(scaled.sites), 1))
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = scaled.loss.gradient(x) @ step
    parts = []
    for rows, slope in zip(scaled.sites, slopes, strict=True):
        rows = rows.take(np.flatnonzero(rows.weight > 0))
        changes = np.max(np.abs(scaled.scores(rows, step)), axis=1)
        rises = not slope <= _RISE * rows.weight.sum()
        most = np.sqrt((rows.features**2).sum(axis=1))
        moves = [np.max(np.abs(scaled.scores(rows, each)), axis=1) > _FLAT * most for each in flat.T]
        found = {"any": changes > _EXACT, "large": changes > _ENDLESS, "rises": rises, "flat": moves}
        parts.append({name: np.count_nonzero(each) for name, each in found.items()})
    total = sums(parts)
    if total["flat"] > 0:
        return np.linalg.norm(flat, axis=1), False
    return np.abs(step) if total["large"] > 0 and total["rises"] == 0 else None, bool(total["any"] == 0)


def _curvature_parts(scaled: ScaledProblem, x: Array) -> list[dict[str, Array]]:
    """Gradients and Hessians, and what robust errors need besides."""
    _, gradients, hessians = scaled.loss.unpenalized(x)
    if len(hessians) < len(x):
        # One Hessian for several agents is their sum.
        hessians = np.concatenate([hessians, np.zeros((len(x) - 1, *hessians.shape[1:]))])
    parts = [{"gradient": each, "hessian": upper(own[None])[0]} for each, own in zip(gradients, hessians, strict=True)]
    if scaled.objective.covariance == "site":
        meats = [np.outer(gradient, gradient) for gradient in gradients]
    elif scaled.objective.covariance == "rows":
        meats = [_meat(scaled, rows, x[0]) for rows in scaled.sites]
    else:
        return parts
    return [part | {"meat": upper(meat[None])[0]} for part, meat in zip(parts, meats, strict=True)]


def _meat(scaled: ScaledProblem, rows: Rows, u: Array) -> Array:
    """The sum over rows of the outer products of their gradients."""
    found = np.zeros((len(u), len(u)))
    slopes = rows.weight[:, None] * scaled.objective.family.residuals(scaled.scores(rows, u), rows)
    for start in range(0, rows.n, _CHUNK):
        own = slice(start, start + _CHUNK)
        features = rows.features[own]
        if not isinstance(features, np.ndarray):
            features = features.toarray()
        gradients = (slopes[own, :, None] * features[:, None, :]).reshape(len(features), -1)[:, scaled.kept]
        found += gradients.T @ gradients
    return found
