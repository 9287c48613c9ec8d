"""What the tables of all sites must have in common: columns, order, kinds, levels, label coding, units."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gradslide._support.errors import InputError, require
from gradslide._support.hashing import digest
from gradslide.data.tables import Column, Table
from gradslide.regression.declaration import Regression

# More levels than this are stated, or the column is an identifier.
_MOST_LEVELS = 50
# Bytes of the hash of a name or a level, and of the whole.
_SHORT, _LONG = 6, 16

Kind = Literal["number", "categorical"]


@dataclass(frozen=True)
class Variable:
    """A column and what it is for.

    Attributes
    ----------
    name, role : str
        The role is "feature", "label", "time", "event", "exposure" or "weight".
    kind : {"number", "categorical"}
    levels : tuple of str
        Of a categorical column; the first is the reference.
    unit : str
        As declared; empty if it is not.
    bounds : tuple of float or None
        Beyond which numbers are clipped.
    """

    name: str
    role: str
    kind: Kind
    levels: tuple[str, ...] = ()
    unit: str = ""
    bounds: tuple[float, float] | None = None

    def fingerprint(self) -> dict[str, Any]:
        """Return what neighbours compare: hashes of the name and of the levels, and the rest."""
        return {
            "name": _hash(self.name),
            "role": self.role,
            "kind": self.kind,
            "levels": [_hash(level) for level in self.levels],
            "unit": self.unit,
            "bounds": None if self.bounds is None else list(self.bounds),
        }


@dataclass(frozen=True)
class Schema:
    """The columns of a regression, in their order, as they are in a table.

    Attributes
    ----------
    variables : tuple of Variable
        Features first, in the order of the coefficients.
    """

    variables: tuple[Variable, ...]

    @property
    def features(self) -> tuple[Variable, ...]:
        """The features."""
        return tuple(each for each in self.variables if each.role == "feature")

    @property
    def roles(self) -> dict[str, Variable]:
        """The columns that are not features, by their role."""
        return {each.role: each for each in self.variables if each.role != "feature"}

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of a categorical label; none of a number."""
        return self.roles["label"].levels if "label" in self.roles else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the design matrix: a level but the first of a categorical feature has its own."""
        names: list[str] = []
        for each in self.features:
            names += [each.name] if each.kind == "number" else [f"{each.name}={level}" for level in each.levels[1:]]
        return tuple(names)

    @property
    def hash(self) -> str:
        """A hash of everything, for audit logs and model cards."""
        return digest(json.dumps(self.to_dict()).encode())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"variables": [asdict(each) | {"levels": list(each.levels)} for each in self.variables]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Schema":
        """Read what `to_dict` returned."""
        pairs = [(each, each["bounds"]) for each in saved["variables"]]
        return cls(
            tuple(
                Variable(
                    **{**each, "levels": tuple(each["levels"]), "bounds": None if own is None else (own[0], own[1])}
                )
                for each, own in pairs
            )
        )

    def told(self) -> str:
        """Return what neighbours are told, as a text: no name of a column or level leaves this site in clear."""
        return json.dumps([each.fingerprint() for each in self.variables], separators=(",", ":"))

    def differences(self, told: str | None) -> list[str]:
        """Say column by column what is not alike.

        Parameters
        ----------
        told : str or None
            What `told` of the other site returned; None if it uses no table.

        Returns
        -------
        list of str
            One sentence each, without names that only the other site has; empty if all is alike.
        """
        if told is None:
            return ["the other site uses no [data] table"]
        there: list[Mapping[str, Any]] = json.loads(told)
        own = [each.fingerprint() for each in self.variables]
        if own == there:
            return []
        found = []
        for role in dict.fromkeys(each["role"] for each in (*own, *there)):
            found += self._differences_of(role, there)
        return found

    def _differences_of(self, role: str, there: list[Mapping[str, Any]]) -> list[str]:
        """Of the columns with one role."""
        ours = {_hash(each.name): each for each in self.variables if each.role == role}
        theirs = {each["name"]: each for each in there if each["role"] == role}
        common = [name for name in ours if name in theirs]
        found = [f"{role} {each.name!r} is not a {role} there" for name, each in ours.items() if name not in theirs]
        if extra := len(theirs.keys() - ours.keys()):
            found.append(f"{extra} {role}{'s' * (extra > 1)} there {'are' if extra > 1 else 'is'} not one here")
        order = [name for name in theirs if name in ours]
        if order != common:
            first = next(here for here, other in zip(common, order, strict=True) if here != other)
            places = common.index(first) + 1, order.index(first) + 1
            found.append(
                f"the order of the {role}s: {ours[first].name!r} is number {places[0]} here, {places[1]} there"
            )
        for name in common:
            found += _compared(ours[name], theirs[name])
        return found


def _variable(saved: Mapping[str, Any]) -> Variable:
    bounds = saved["bounds"]
    pair = None if bounds is None else (bounds[0], bounds[1])
    return Variable(**{**saved, "levels": tuple(saved["levels"]), "bounds": pair})


def _compared(here: Variable, there: Mapping[str, Any]) -> list[str]:
    """What differs between a column here and there."""
    name, own = repr(here.name), here.fingerprint()
    if here.kind != there["kind"]:
        kinds = {"number": "a number", "categorical": "categorical"}
        return [f"{name} is {kinds[here.kind]} here and {kinds[there['kind']]} there"]
    found = []
    if here.unit != there["unit"]:
        found.append(f"{name} is in {here.unit or 'no unit'} here and in {there['unit'] or 'no unit'} there")
    if own["bounds"] != there["bounds"]:
        found.append(f"{name} has bounds {own['bounds'] or 'none'} here and {there['bounds'] or 'none'} there")
    if own["levels"] != there["levels"]:
        here_only = [level for level in here.levels if _hash(level) not in there["levels"]]
        there_only = len(set(there["levels"]) - set(own["levels"]))
        parts = []
        if here_only:
            parts.append(f"{', '.join(map(repr, here_only))} {'are' if len(here_only) > 1 else 'is'} not there")
        if there_only:
            parts.append(f"{there_only} there {'are' if there_only > 1 else 'is'} not here")
        remedy = "classes = [...]" if here.role == "label" else f"categorical = {{ {here.name} = [...] }}"
        what = "; ".join(parts) or "they are the same in another order"
        found.append(f"levels of {name}: {what}; state them alike at all sites, with {remedy}")
    return found


def _hash(text: str) -> str:
    return digest(text.encode(), _SHORT)


def read_schema(regression: Regression, table: Table) -> Schema:
    """Find the columns of a regression in a table.

    Raises
    ------
    InputError
        If a column is missing, or is not of a kind that its role needs.
    """
    features = regression.features
    if features is None:
        taken = set(regression.roles.values())
        features = tuple(name for name in table.columns if name not in taken)
        require(bool(features), "a regression needs a feature", f"none in {table.source}", "add a column")
    for what, named in (("categorical", regression.categorical), ("penalty_factors", regression.penalty_factors)):
        stray = [name for name in named if name not in features]
        require(not stray, f"columns in {what} must be features", ", ".join(map(repr, stray)), "correct the name")
    variables = [_feature(regression, name, table.column(name)) for name in features]
    for role, name in regression.roles.items():
        if name is not None:
            variables.append(_with_role(regression, role, name, table.column(name)))
    numbers = {each.name for each in variables if each.role == "feature" and each.kind == "number"}
    stray = [name for name in regression.bounds if name not in numbers]
    require(not stray, "columns in bounds must be features of numbers", ", ".join(map(repr, stray)), "correct the name")
    known = {each.name for each in variables}
    stray = [name for name in regression.units if name not in known]
    require(not stray, "columns in units must be used", ", ".join(map(repr, stray)), "correct the name")
    schema = Schema(tuple(variables))
    twice = [name for name, number in Counter(("intercept", *schema.columns)).items() if number > 1]
    rule, remedy = "coefficients must have different names", "rename that column"
    require(not twice, rule, f"{', '.join(map(repr, twice))} twice", remedy)
    return schema


def _feature(regression: Regression, name: str, column: Column) -> Variable:
    unit, stated = regression.units.get(name, ""), regression.levels
    if column.kind in ("date", "other"):
        kind = "dates" if column.kind == "date" else "values that are neither numbers nor text"
        rule, remedy = f"feature {name!r} must hold numbers or categories", "give numbers, such as days since a date"
        raise InputError(rule, f"{kind}, for example {_example(column)}", remedy)
    if column.kind == "number" and name not in stated:
        bounds = regression.bounds.get(name)
        rule, remedy = "a regression for release must have bounds of all numbers", f"state bounds of {name}"
        require(not regression.for_release or bounds is not None, rule, f"none of {name!r}", remedy)
        return Variable(name, "feature", "number", unit=unit, bounds=None if bounds is None else (bounds[0], bounds[1]))
    rule, remedy = "a regression for release must have stated levels", f"state categorical = {{ {name} = [...] }}"
    require(not regression.for_release or stated.get(name) is not None, rule, f"none of {name!r}", remedy)
    levels = stated.get(name)
    if levels is None and name not in regression.categorical:
        present = [text for text, gone in zip(column.texts(), column.is_missing, strict=True) if not gone]
        numbers = sum(map(_is_number, present))
        rule, remedy = f"feature {name!r} must hold numbers, or categories", "correct it, or name it in categorical"
        require(2 * numbers <= len(present), rule, f"{_example(column)} among {numbers} numbers", remedy)
    if levels is None:
        levels = levels_of(column)
        rule = f"categorical column {name!r} must have at most {_MOST_LEVELS} levels, unless they are stated"
        remedy = f"correct entries that should be numbers, leave it out, or state categorical = {{ {name} = [...] }}"
        require(len(levels) <= _MOST_LEVELS, rule, f"{len(levels)}, for example {_example(column)}", remedy)
    rule, remedy = f"categorical column {name!r} must have two or more levels", "leave it out of features"
    require(len(levels) > 1, rule, ", ".join(map(repr, levels)) or "none", remedy)
    return Variable(name, "feature", "categorical", tuple(levels), unit)


def _with_role(regression: Regression, role: str, name: str, column: Column) -> Variable:
    unit = regression.units.get(name, "")
    if role == "label" and regression.family == "logistic":
        levels = regression.classes or levels_of(column)
        rule, remedy = f"label {name!r} must have two or more classes", "state them with classes = [...]"
        require(len(levels) > 1, rule, ", ".join(map(repr, levels)) or "none", remedy)
        rule = f"label {name!r} must have at most {_MOST_LEVELS} classes"
        require(len(levels) <= _MOST_LEVELS, rule, str(len(levels)), 'for numbers, use family="linear"')
        return Variable(name, role, "categorical", tuple(levels), unit)
    is_number = column.kind == "number" or (column.kind == "boolean" and role == "event")
    what = "true/false" if column.kind == "boolean" else "dates" if column.kind == "date" else "text"
    remedy = "correct these entries" if column.kind == "text" else "name another column"
    require(is_number, f"{role} {name!r} must hold numbers", f"{what}, for example {_example(column)}", remedy)
    return Variable(name, role, "number", unit=unit)


def levels_of(column: Column) -> tuple[str, ...]:
    """Return the levels in a column, sorted: numbers as numbers."""
    present = ~column.is_missing
    texts = set(column.texts()[present].tolist())
    if column.kind == "number":
        return tuple(sorted(texts, key=float))
    return tuple(sorted(texts))


def _example(column: Column) -> str:
    """An entry, and where it is: of text among numbers the first that is no number."""
    texts = column.texts()
    for row, text in enumerate(texts):
        if not column.is_missing[row] and not _is_number(text):
            return f"{text!r} in row {row + 1}"
    return "no entries" if not len(texts) else f"{texts[0]!r} in row 1"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
