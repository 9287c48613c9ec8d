"""What a site computes with: the rows of its table as a matrix, with targets and weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.sparse as sp

from gradslide._support.errors import require
from gradslide._support.types import Array, Sparse
from gradslide.data.tables import Table
from gradslide.regression.declaration import Regression
from gradslide.regression.schema import Schema, Variable

_PER_ROW = ("targets", "weight", "exposure", "event")


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one site.

    Attributes
    ----------
    features : ndarray or scipy.sparse.csr_array, shape (n, p)
        Without an intercept. NaN where an entry is missing that is to be replaced by the mean.
    targets : ndarray, shape (n,)
        Numbers, counts, or numbers of classes; times for Cox.
    weight, exposure : ndarray, shape (n,)
    event : ndarray, shape (n,)
        For Cox, whether the event happened, 0 or 1; ones otherwise.
    left_out, imputed : int
        How many rows of the table were left out, and entries are to be replaced by the mean.
    """

    features: Array | Sparse
    targets: Array
    weight: Array
    exposure: Array
    event: Array
    left_out: int = 0
    imputed: int = 0

    @classmethod
    def plain(cls, features: Array | Sparse, targets: Array, weight: Array) -> Self:
        """Return rows without missing entries, exposures and events."""
        n = len(targets)
        return cls(features, targets, weight, np.ones(n), np.ones(n))

    @classmethod
    def joined(cls, sites: Sequence[Self]) -> Self:
        """Return the rows of several sites."""
        if len(sites) == 1:
            return sites[0]
        features = [rows.features for rows in sites]
        stacked = sp.csr_array(sp.vstack(features)) if any(map(sp.issparse, features)) else np.vstack(features)
        targets, weight, exposure, event = (
            np.concatenate([getattr(rows, name) for rows in sites]) for name in _PER_ROW
        )
        return cls(stacked, targets, weight, exposure, event)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.targets)

    def take(self, rows: Array) -> Self:
        """Return some of the rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ("features", *_PER_ROW)})

    def with_features(self, features: Array | Sparse) -> Self:
        """Return the same rows with other features."""
        return replace(self, features=features)


def read_rows(regression: Regression, schema: Schema, table: Table, *, of: str = "") -> Rows:
    """Return the rows of a site for the fit.

    Parameters
    ----------
    regression : Regression
    schema : Schema
        Of this table.
    table : Table
    of : str
        Whose table, for errors.

    Returns
    -------
    Rows

    Raises
    ------
    InputError
        If entries are missing and the policy refuses that, if values are not possible, or if rows are too few.
    """
    place = of or table.source
    complete = table.take(_complete_rows(regression, schema, table, place))

    def numbers(role: str, *, least: float = -np.inf, above: float = -np.inf) -> Array:
        if role not in schema.roles:
            return np.ones(complete.n)
        return numbers_of(schema.roles[role], complete, least=least, above=above)

    features = design_matrix(schema, complete)
    if schema.classes:
        targets = _level_numbers(schema.roles["label"], complete)
    elif regression.family == "cox":
        targets = numbers("time", least=0.0)
    else:
        targets = numbers("label", least=0.0 if regression.family == "poisson" else -np.inf)
    event = numbers("event")
    others = sorted(set(event.tolist()) - {0.0, 1.0})
    rule, remedy = "event must be 0 or 1", "give 1 where the event happened, 0 where it was censored"
    require(not others, rule, f"{', '.join(f'{each:g}' for each in others[:3])} in {regression.event!r}", remedy)
    rows = Rows(features, targets, numbers("weight", least=0.0), numbers("exposure", above=0.0), event)
    rows = rows.take(np.flatnonzero(rows.weight > 0))
    left_out = table.n - rows.n
    rule = f"a site needs at least {regression.minimum_rows} rows (minimum_rows)"
    text = f"{rows.n} in {place}" + (f" after {left_out} were left out" if left_out else "")
    require(rows.n >= regression.minimum_rows, rule, text, "leave this site out, or agree on a smaller minimum_rows")
    return replace(rows, left_out=left_out, imputed=int(np.count_nonzero(np.isnan(rows.features))))


def read_test_rows(regression: Regression, schema: Schema, table: Table, *, of: str = "") -> Rows:
    """Return rows to evaluate a model with, of which one is enough; otherwise as `read_rows`."""
    return read_rows(replace(regression, minimum_rows=1), schema, table, of=of)


def _complete_rows(regression: Regression, schema: Schema, table: Table, place: str) -> Array:
    """The numbers of the rows without missing entries, but for those that the mean is to replace."""
    missing = missing_in(schema.variables, table)
    if regression.missing == "refuse":
        remedy = 'correct them, or agree on missing="drop" or missing="mean"'
        require(not missing, "no entry may be missing", f"in {place} {counts_of(missing)}", remedy)
    if regression.missing == "mean":
        categories = {each: gone for each, gone in missing.items() if each in schema.features and each.levels}
        rule, remedy = "missing categories have no mean", 'give them a level of their own, or use missing="drop"'
        require(not categories, rule, f"in {place} {counts_of(categories)}", remedy)
        missing = {each: gone for each, gone in missing.items() if each.role != "feature"}
    return np.flatnonzero(~np.any([np.zeros(table.n, dtype=bool), *missing.values()], axis=0))


def missing_in(variables: Iterable[Variable], table: Table) -> dict[Variable, Array]:
    """Return where entries are missing, for those columns that lack any."""
    missing = {each: table.column(each.name).is_missing for each in variables}
    return {each: gone for each, gone in missing.items() if gone.any()}


def counts_of(missing: Mapping[Variable, Array]) -> str:
    """Return how many entries are missing in each column, for messages."""
    return ", ".join(f"{np.count_nonzero(gone)} of {each.name!r}" for each, gone in missing.items())


def design_matrix(schema: Schema, table: Table) -> Array:
    """Return the features as numbers, (n, columns); NaN where one is missing."""
    parts = []
    for each in schema.features:
        if each.kind == "number":
            part = np.clip(numbers_of(each, table), *(each.bounds or (-np.inf, np.inf)))[:, None]
        else:
            part = (_level_numbers(each, table)[:, None] == np.arange(1, len(each.levels))).astype(np.float64)
        part[table.column(each.name).is_missing] = np.nan
        parts.append(part)
    return np.hstack(parts)


def filled(features: Array | Sparse, means: Array) -> Array | Sparse:
    """Return features with the mean of their column in the place of missing entries."""
    if not isinstance(features, np.ndarray) or not np.isnan(features).any():
        return features
    return np.where(np.isnan(features), means, features)


def numbers_of(variable: Variable, table: Table, *, least: float = -np.inf, above: float = -np.inf) -> Array:
    """Return a column of numbers, NaN where they are missing.

    Raises
    ------
    InputError
        If there are others than finite numbers within these bounds.
    """
    what, column = f"{variable.role} {variable.name!r}", table.column(variable.name)
    require(column.kind in ("number", "boolean"), f"{what} must hold numbers", column.kind, "correct the column")
    values = np.array(column.values, dtype=np.float64)
    infinite = np.count_nonzero(np.isinf(values))
    rule, remedy = f"{what} must hold finite numbers", "correct these entries, or leave them empty"
    require(not infinite, rule, f"{infinite} that are infinite", remedy)
    low = np.min(values[~column.is_missing], initial=np.inf)
    bound = f"at least {least:g}" if above == -np.inf else f"above {above:g}"
    require(bool(low >= least and low > above), f"{what} must be {bound}", f"{low:g}", "correct these entries")
    return values


def _level_numbers(variable: Variable, table: Table) -> Array:
    """The number of each row's level; -1 where it is missing."""
    column = table.column(variable.name)
    numbers = {level: number for number, level in enumerate(variable.levels)}
    texts: Sequence[str] = column.texts().tolist()
    found = np.array([numbers.get(text, -1) for text in texts], dtype=np.int64)
    unknown = [texts[row] for row in np.flatnonzero((found < 0) & ~column.is_missing).tolist()]
    some = ", ".join(map(repr, sorted(set(unknown))[:3]))
    rule = f"{variable.role} {variable.name!r} must have one of its levels, {', '.join(variable.levels)}"
    remedy = "correct these entries, or state the levels alike at all sites"
    require(not unknown, rule, f"{some} in {len(unknown)} rows", remedy)
    return found
