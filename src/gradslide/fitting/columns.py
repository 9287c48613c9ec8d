"""What sites know in common of columns and targets before the fit: sums, means and scales."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import require
from gradslide._support.types import Array, Sparse
from gradslide.fitting.objective import Objective
from gradslide.network import Counted, Network
from gradslide.regression.design import Rows, filled
from gradslide.results.costs import Costs

KeyT = TypeVar("KeyT", bound=Hashable)

_EPS = float(np.finfo(np.float64).eps)
# A column is constant if what is left of its squares, once its mean is subtracted, is the error of that mean, but for
# this share; or rounding of the entries; or of the subtraction, where columns are sparse.
_LEFT, _ENTRIES, _SUBTRACTION = 1e-3, (4 * _EPS) ** 2, 1e-12


class SiteSums:
    """Exact sums over all sites of arrays by name; they are counted in `costs`.

    Parameters
    ----------
    network : Network
    """

    def __init__(self, network: Network) -> None:
        self.costs = Costs()
        self._network = Counted(network, self.costs)

    def __call__(self, parts: Sequence[Mapping[KeyT, Any]]) -> dict[KeyT, Array]:
        """Return the sums.

        Parameters
        ----------
        parts : sequence of mapping
            Of each agent here; all with arrays of the same names and shapes.
        """
        shapes = {name: np.shape(each) for name, each in parts[0].items()}
        rows = [np.concatenate([np.ravel(part[name]) for name in shapes], dtype=np.float64) for part in parts]
        total = self._network.total(np.stack(rows))
        ends = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]
        return {name: each.reshape(shapes[name]) for name, each in zip(shapes, np.split(total, ends), strict=True)}

    def of_groups(self, groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Array]]:
        """Return sums by the names of groups, for the price of one."""
        parts = [
            {(group, name): each for group, part in zip(groups, of_agent, strict=True) for name, each in part.items()}
            for of_agent in zip(*groups.values(), strict=True)
        ]
        total = self(parts)
        return {group: {name: each for (own, name), each in total.items() if own == group} for group in groups}


@dataclass(frozen=True)
class Statistics:
    """What all sites know of the columns and the targets.

    Attributes
    ----------
    sums : mapping of str to ndarray
        Sums over the rows of all sites, by name.
    mean, deviation : ndarray, shape (p,)
        Weighted mean and standard deviation of the columns.
    centre, scale : ndarray, shape (p,)
        What columns are shifted and divided by for the fit.
    """

    sums: Mapping[str, Array]
    mean: Array
    deviation: Array
    centre: Array
    scale: Array


def column_statistics(objective: Objective, sites: Sequence[Rows], sums: SiteSums) -> Statistics:
    """Agree on means and scales of the columns, and on sums of the targets. It takes two sums.

    Parameters
    ----------
    objective : Objective
    sites : sequence of Rows
        Of the agents here.
    sums : SiteSums

    Returns
    -------
    Statistics
        The same at all sites.

    Raises
    ------
    InputError
        At all sites, if a column has no entries or, without penalties, is constant; or if the
        targets are not those of the family.
    """
    first = sums([_first_sums(objective, rows) for rows in sites])
    total, seen = float(first["weight"]), first["seen"]
    require(total > 0, "a fit needs rows of positive weight", "none at any site", "correct the weights")
    missing = _listed(objective, seen <= 0)
    require(not missing, "a column needs entries at some site", f"none of {missing}", "leave it out of features")
    if objective.public is None:
        # What is to be released must not depend on whether a class has rows: the ridge makes up for it.
        objective.family.check_targets(first)
    mean = first["columns"] / seen
    second = sums([_second_sums(objective, rows, mean, first) for rows in sites])
    squares, shift = second["squares"] / total, second["shifts"] / total
    rounding = (_SUBTRACTION if sp.issparse(sites[0].features) else _ENTRIES) * mean**2
    is_constant = (squares - shift**2 <= _LEFT * squares) | (squares <= rounding)
    variance = np.where(is_constant, 0.0, squares - shift**2)
    mean, deviation = mean + shift, np.sqrt(variance)
    needs_centre = objective.has_intercept or not objective.family.of_intercept
    if needs_centre and not objective.is_penalized and objective.covariance != "none":
        rule, remedy = "without a penalty a feature must have different values", "leave it out of features"
        constant = _listed(objective, is_constant)
        require(not constant, rule, f"{constant}, the same in all rows of all sites", remedy)
    # Sparse rows stay as they are: centring would fill them.
    is_centred = needs_centre and not sp.issparse(sites[0].features)
    centre = mean if is_centred else np.zeros_like(mean)
    # Then second derivatives, with those of penalties, are at most about the weight of all rows.
    ridge = objective.ridge * (variance if objective.standardize else 1.0)
    scale = np.sqrt(variance + (0.0 if is_centred else mean**2) + ridge / total)
    if objective.public is not None:
        centre, scale = objective.public
    return Statistics({**first, **second}, mean, deviation, centre, np.where(scale > 0, scale, 1.0))


def _first_sums(objective: Objective, rows: Rows) -> dict[str, Any]:
    weight, features = rows.weight, rows.features
    if not isinstance(features, np.ndarray) or not np.isnan(features).any():
        seen, columns = np.full(features.shape[1], weight.sum()), weight @ features
    else:
        is_there = ~np.isnan(features)
        seen, columns = weight @ is_there, weight @ np.where(is_there, features, 0.0)
    counts = {"n": rows.n, "left out": rows.left_out, "imputed": rows.imputed, "weight": weight.sum()}
    return {**counts, "seen": seen, "columns": columns, **objective.family.of_targets(rows, objective.classes)}


def _second_sums(objective: Objective, rows: Rows, mean: Array, first: Mapping[str, Array]) -> dict[str, Any]:
    """Sums of what is left after the means were subtracted."""
    features, weight = filled(rows.features, mean), rows.weight
    found = dict(zip(("squares", "shifts"), _moments(features, weight, mean), strict=True))
    return found | objective.family.around_mean(rows, first)


def _moments(features: Array | Sparse, weight: Array, mean: Array) -> tuple[Array, Array]:
    """Sums of (a - mean)^2 and of a - mean."""
    if isinstance(features, np.ndarray):
        return weight @ (features - mean) ** 2, weight @ (features - mean)
    columns, total = weight @ features, weight.sum()
    squares = weight @ features.power(2) - 2 * mean * columns + total * mean**2
    return np.maximum(squares, 0.0), columns - total * mean


def _listed(objective: Objective, chosen: Array) -> str:
    """The names of some columns."""
    names = [repr(objective.columns[j]) for j in np.flatnonzero(chosen).tolist()]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
