"""The tables [data] and [model] of a spec, or of an agent's file, that fit a regression to tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradslide._support.errors import InputError, require
from gradslide.data.tables import Table, read_table
from gradslide.experiments.section import Section
from gradslide.fitting.sites import SiteData, site_data
from gradslide.regression.declaration import Regression

_DATA: Mapping[str, Any] = {
    "label": str,
    "time": str,
    "event": str,
    "features": list,
    "classes": list,
    "weight": str,
    "exposure": str,
    "units": dict,
    "bounds": dict,
    "missing": str,
    "minimum_rows": int,
}
_MODEL: Mapping[str, Any] = {
    "intercept": bool,
    "ridge": float,
    "lasso": float,
    "standardize": bool,
    "penalty_factors": dict,
    "covariance": str,
    "confidence": float,
    "for_release": bool,
}
# What a spec of a regression has no use for.
_OTHERS = ("problem", "method", "stop")


@dataclass(frozen=True)
class RegressionSpec:
    """regression: columns, family, penalties. table, test: the files, as they are written there, or one
    for each site by name. sites: the column that names the site of each row."""

    regression: Regression
    table: str | dict[str, str]
    test: str | dict[str, str] | None
    sites: str | None

    def data(self, folder: Path) -> SiteData:
        """Read the tables of all sites. folder: where relative paths start."""

        def read(files: str | dict[str, str]) -> Table | dict[str, Table]:
            if isinstance(files, str):
                return read_table(files, folder)
            return {site: read_table(file, folder) for site, file in files.items()}

        test = None if self.test is None else read(self.test)
        return site_data(self.regression, read(self.table), self.sites, test)


def takes_tables(top: Section) -> bool:
    """Whether a spec fits a regression to tables."""
    data = top.peek("data")
    return top.peek("model") is not None or (isinstance(data, Mapping) and "table" in data)


def parse_regression(top: Section, *, is_agent: bool = False) -> RegressionSpec:
    """Read the two tables. is_agent: whether all rows belong to one site."""
    for name in _OTHERS:
        rule, remedy = f"a regression over tables takes no [{name}]", "leave it out: [model] says what is fitted"
        require(top.peek(name) is None, rule, "one", remedy)
    data, model = Section("data", top.take("data", dict)), Section("model", top.take("model", dict))
    table, test = _files(data, "table", is_agent), _files(data, "test", is_agent)
    require(table is not None, "[data] needs 'table'", "none", 'for example table = "patients.csv"')
    sites = None if is_agent else data.optional("sites", str)
    given: dict[str, Any] = {"family": model.take("family", str)}
    for section, kinds in ((data, _DATA), (model, _MODEL)):
        given |= {name: value for name, kind in kinds.items() if (value := section.optional(name, kind)) is not None}
    if (categorical := data.take_any("categorical")) is not None:
        given["categorical"] = categorical
    for section in (data, model):
        section.finish()
    assert table is not None
    return RegressionSpec(Regression(**given), table, test, sites)


def _files(data: Section, key: str, is_agent: bool) -> str | dict[str, str] | None:
    """One file, or one for each site."""
    value = data.take_any(key)
    if value is None or isinstance(value, str):
        return value
    rule = f"{key} in [data] must be the name of a file" + ("" if is_agent else ", or a table of one for each site")
    if is_agent or not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise InputError(rule, repr(value), "correct the spec")
    return dict(value)
