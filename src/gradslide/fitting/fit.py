"""The fit: sites agree on scales, solve one problem by exact sums, and add up what errors need."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gradslide._support.hashing import digest
from gradslide._support.types import Array
from gradslide._version import __version__
from gradslide.engine.run import Callback
from gradslide.engine.solve import solve
from gradslide.engine.stopping import Relative, Stop
from gradslide.fitting.columns import SiteSums, Statistics, column_statistics
from gradslide.fitting.objective import MOST_HESSIAN, Objective, objective_of
from gradslide.fitting.optimum import Metrics, Optimum, sums_at_optimum
from gradslide.fitting.scaled import ScaledProblem, scaled_problem
from gradslide.methods import LBFGS, Newton
from gradslide.methods.base import AnyMethod
from gradslide.network import Network
from gradslide.regression.declaration import Regression
from gradslide.regression.design import Rows
from gradslide.regression.fitted import FittedRegression
from gradslide.regression.inference import Covariance, likelihood_ratio, no_maximum
from gradslide.regression.schema import Schema
from gradslide.results.costs import Costs
from gradslide.results.solution import Solution
from gradslide.results.status import LIMITS, REACHED, Status

# The norm of the gradient at the end, relative to that at the start, in scaled columns, and the most steps: with
# Hessians, and without.
_NEWTON, _LBFGS = (1e-10, 200), (1e-8, 5_000)
# Steps after that where the target was reached, but coefficients would still change.
_MOST_MORE = 3


@dataclass(frozen=True)
class RegressionFit:
    """Everything that is known after a fit, at every site.

    Attributes
    ----------
    coefficients : ndarray, shape (reported, p + 1)
        In original units, the intercept first; 0 without one.
    covariance : Covariance
        Of the coefficients, row by row; without the intercept if there is none.
    statistics : Statistics
    optimum : Optimum
    solution : Solution
        The run, with `x` in original units and all costs.
    """

    coefficients: Array
    covariance: Covariance
    statistics: Statistics
    optimum: Optimum
    solution: Solution


def fit_rows(
    objective: Objective,
    sites: Sequence[Rows],
    network: Network,
    *,
    tests: Sequence[Rows] | None = None,
    tolerance: float | None = None,
    iterations: int | None = None,
    callback: Callback | None = None,
    progress: bool | str = False,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 60.0,
    resume: bool = True,
) -> RegressionFit:
    """Fit a model to the rows of all sites, which stay where they are.

    Parameters
    ----------
    objective : Objective
    sites : sequence of Rows
        Of each agent that lives here.
    network : Network
    tests : sequence of Rows, optional
        Rows of each agent here to evaluate the model with; at all sites or none.
    tolerance : float, optional
        The norm of the gradient at the end, relative to that at the start; by default 1e-10, or 1e-8
        of so many coefficients that there are no Hessians.
    iterations : int, optional
        The most steps.
    callback, progress, checkpoint, checkpoint_seconds, resume
        As for `gs.solve`.

    Returns
    -------
    RegressionFit
        The same at all sites, but for `Optimum.by_site`.
    """
    network.session.connect()
    sums = SiteSums(network)
    statistics = column_statistics(objective, sites, sums)
    scaled = scaled_problem(objective, statistics, sites, network.m)
    network.session.prepared()
    is_small = len(scaled.kept) <= MOST_HESSIAN
    method: AnyMethod = Newton() if is_small else LBFGS()
    target, most = _NEWTON if is_small else _LBFGS
    solution = solve(
        scaled.problem,
        network,
        method,
        stop=Stop(kkt=Relative(tolerance or target), gap=objective.gap, iterations=iterations or most),
        callback=callback,
        progress=progress,
        checkpoint=checkpoint,
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
    )
    u = np.asarray(solution.mean, dtype=np.float64)
    optimum = sums_at_optimum(scaled, u, tests, sums, network.m)
    for _ in range(_MOST_MORE):
        if optimum.next_step is not None and solution.status in REACHED:
            u = u + optimum.next_step
            optimum = sums_at_optimum(scaled, u, tests, sums, network.m)
    covariance = _covariance(scaled, optimum)
    coefficients = scaled.original(u)
    x = (coefficients if objective.has_intercept else coefficients[:, 1:]).ravel()
    status = Status.CONVERGED if optimum.is_exact and solution.status in LIMITS else solution.status
    status = Status.UNBOUNDED if covariance.is_separated else status
    warnings = _warnings(objective, optimum, covariance)
    solution = _in_original_units(solution, x, sums.costs, warnings, status)
    return RegressionFit(coefficients, covariance, statistics, optimum, solution)


def _covariance(scaled: ScaledProblem, optimum: Optimum) -> Covariance:
    """The covariance of the coefficients, or why there is none."""
    objective, curvature = scaled.objective, optimum.curvature
    if curvature is None:
        return Covariance(None, problem=objective.no_errors)
    if optimum.growth is not None:
        return no_maximum(optimum.growth, scaled.names)
    return curvature.covariance(objective.covariance, scaled.way_back(), scaled.names)


def _warnings(objective: Objective, optimum: Optimum, covariance: Covariance) -> list[str]:
    """What makes the model doubtful."""
    are_wanted = objective.covariance != "none" and not objective.is_penalized
    found = [covariance.problem] if are_wanted else []
    if covariance.kind == "model":
        found.append(objective.family.doubt(optimum.evaluation))
    return [each for each in found if each]


def _in_original_units(solution: Solution, x: Array, spent: Costs, warnings: Sequence[str], status: Status) -> Solution:
    """The solution with these coefficients at all agents, and with all costs."""
    rows = np.broadcast_to(x, (len(solution.agents), len(x)))
    return replace(
        solution,
        x=rows,
        mean=x,
        outputs={solution.output: rows},
        status=status,
        hessian=None,
        dual=None,
        y=None,
        warnings=(*solution.warnings, *warnings),
        costs=solution.costs.plus(spent),
    )


def fit_site(
    regression: Regression,
    schema: Schema,
    rows: Sequence[Rows],
    network: Network,
    *,
    labels: Sequence[str],
    tests: Sequence[Rows] | None = None,
    run: str = "",
    keys: Sequence[str] = (),
    **options: Any,
) -> Solution:
    """Fit a regression to the rows of the sites that live here.

    Parameters
    ----------
    regression : Regression
    schema : Schema
        The same at all sites.
    rows : sequence of Rows
        Of each site here.
    network : Network
    labels : sequence of str
        Names of the sites here.
    tests : sequence of Rows, optional
        Rows to evaluate the model with.
    run : str
        The name of the run, for the model card.
    keys : sequence of str
        The public keys of all agents, if they have any: the card has a hash of them.
    **options
        As for `fit_rows`.

    Returns
    -------
    Solution
        With `model`.
    """
    fit = fit_rows(objective_of(regression, schema), rows, network, tests=tests, **options)
    return replace(fit.solution, model=_fitted(regression, schema, fit, labels, network.m, run, keys))


def _fitted(
    regression: Regression,
    schema: Schema,
    fit: RegressionFit,
    labels: Sequence[str],
    sites: int,
    run: str,
    keys: Sequence[str],
) -> FittedRegression:
    """Return the model of a fit, in which so many sites took part."""
    columns = ("intercept",) * regression.has_intercept + schema.columns
    shown = fit.coefficients if regression.has_intercept else fit.coefficients[:, 1:]
    classes = schema.classes[len(schema.classes) - len(shown) :] if len(shown) > 1 else ()
    names = tuple(f"{each}: {name}" for each in classes for name in columns) or columns
    solution = fit.solution
    return FittedRegression(
        regression=regression,
        schema=schema,
        names=names,
        coefficients=shown.ravel(),
        covariance=fit.covariance,
        means=fit.statistics.mean,
        deviations=fit.statistics.deviation,
        statistics=_statistics(regression, fit, len(names), len(schema.columns) * len(shown), sites),
        evaluation=_by_rows(fit.optimum.evaluation, fit.optimum.test),
        provenance={
            "run": run,
            "status": solution.status.name,
            "message": fit.covariance.problem if fit.covariance.is_separated else solution.status.value,
            "optimality": str(solution.kkt),
            "objective": solution.objective,
            "gap": None if solution.certificate is None else solution.certificate.gap,
            "method": str(solution.settings.get("method", "")),
            "gradients": solution.costs.gradients,
            "rounds": solution.costs.rounds,
            "schema": schema.hash,
            "keys": digest("".join(keys).encode()) if keys else None,
            "gradslide": __version__,
        },
        warnings=solution.warnings,
        by_site={label: _by_rows(*both) for label, both in zip(labels, fit.optimum.by_site, strict=True)},
    )


def _by_rows(fit: Metrics, test: Metrics) -> dict[str, Metrics]:
    return {"fit": fit} | ({"test": test} if test else {})


def _statistics(regression: Regression, fit: RegressionFit, k: int, slopes: int, sites: int) -> dict[str, float]:
    """What tables show of the fit as a whole. k: coefficients."""
    sums, likelihood = fit.statistics.sums, fit.optimum.likelihood
    n = float(sums["n"])
    found: dict[str, Any] = {
        "rows": n,
        "sites": sites,
        "rows left out": sums["left out"],
        "entries imputed": sums["imputed"],
        "weight": sums["weight"],
        "log-likelihood": likelihood.model,
        "null log-likelihood": likelihood.null,
        "deviance": likelihood.deviance,
        "null deviance": likelihood.null_deviance,
    }
    # Without standard errors the number of coefficients says nothing about how much was fitted.
    is_plain, size = fit.covariance.matrix is not None, float(sums["weight"])
    if regression.family == "cox":
        found["weighted events"] = size = float(sums["events"])
    elif regression.family == "linear":
        size = n
        r2 = 1 - likelihood.deviance / likelihood.null_deviance if likelihood.null_deviance > 0 else math.nan
        found["R2" if regression.has_intercept else "R2 (uncentred)"] = r2
        if is_plain:
            found["scale"] = likelihood.scale
            found["adjusted R2"] = 1 - (1 - r2) * (n - regression.has_intercept) / (n - k) if n > k else math.nan
    else:
        found["pseudo R2"] = 1 - likelihood.model / likelihood.null if likelihood.null else math.nan
    if is_plain:
        statistic, p = likelihood_ratio(likelihood.model, likelihood.null, slopes)
        found |= {"LR": statistic, "LR degrees of freedom": slopes, "LR p": p}
        penalty = k * math.log(max(size, 1.0))
        found |= {"AIC": 2 * k - 2 * likelihood.model, "BIC": penalty - 2 * likelihood.model}
    return {name: float(value) for name, value in found.items()}
