"""All sites in one process: which rows are whose, and what their tables have in common."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradslide._support.errors import InputError, kind_of, require
from gradslide._support.keywords import checked_arguments
from gradslide.data.tables import Table, read_table
from gradslide.engine.run import Callback
from gradslide.fitting.fit import fit_site
from gradslide.graphs.graph import Graph, as_graph
from gradslide.network import Local, Network
from gradslide.regression.declaration import Regression
from gradslide.regression.design import Rows, read_rows, read_test_rows
from gradslide.regression.schema import Schema, levels_of, read_schema
from gradslide.results.solution import Solution

# The default graph is complete up to this number of sites, and has this maximum degree beyond.
_FEW = 4


@checked_arguments
def fit(
    regression: Regression,
    tables: Any,
    graph: Graph | Network | None = None,
    *,
    sites: str | Sequence[str] | None = None,
    test: Any = None,
    progress: bool | str = False,
    callback: Callback | None = None,
) -> Solution:
    """Fit a regression to tables in this process; each site keeps to its rows, as agents elsewhere would.

    Parameters
    ----------
    regression : Regression
        Columns, family and penalties.
    tables : table, or sequence or mapping of tables
        A file (CSV, Parquet, Arrow), a DataFrame or a dict of arrays with the rows of all sites, or
        one of them for each site.
    graph : gs.Graph or network, optional
        One agent for each site; by default complete up to 4 sites, and random beyond.
    sites : str or sequence of str, optional
        The column that names the site of each row of one table, or the names of several tables. By
        default one table is one site.
    test : table, or sequence or mapping of tables, optional
        Further rows, given like `tables`, to evaluate the model with.
    progress : bool or str
        Show a progress line on stderr, with this label.
    callback : callable, optional
        As for `gs.solve`.

    Returns
    -------
    Solution
        Its `model` is the fitted regression; `x` has the coefficients in original units.

    Raises
    ------
    InputError
        If a table does not fit the declaration, or the sites' tables do not fit each other.

    Examples
    --------
    >>> import numpy as np
    >>> import gradslide as gs
    >>> table = {"site": list("aabbcc") * 5, "dose": np.arange(30.0), "events": np.arange(30) // 5}
    >>> solution = gs.fit(gs.Regression(family="poisson", label="events"), table, sites="site")
    >>> solution.model.statistics["rows"], solution.model.names
    (30.0, ('intercept', 'dose'))
    """
    rule, remedy = "fit needs a gs.Regression", 'for example gs.Regression(family="linear", label="pressure")'
    require(isinstance(regression, Regression), rule, kind_of(regression), remedy)
    data = site_data(regression, tables, sites, test)
    network = Local(default_graph(data.m)) if graph is None else local_network(graph)
    return data.fit(network, progress=progress, callback=callback)


@dataclass(frozen=True)
class SiteData:
    """What all sites have, in one process.

    Attributes
    ----------
    regression : Regression
    schema : Schema
        Of all tables.
    rows : mapping of str to Rows
        Of each site by name.
    tests : sequence of Rows or None
        Test rows of each site.
    """

    regression: Regression
    schema: Schema
    rows: Mapping[str, Rows]
    tests: Sequence[Rows] | None

    @property
    def m(self) -> int:
        """Number of sites."""
        return len(self.rows)

    def fit(self, network: Network, **options: Any) -> Solution:
        """Fit the regression with the sites whose agents live in this process.

        Parameters
        ----------
        network : Network
            One agent for each site.
        **options
            As for `fit_site`.

        Returns
        -------
        Solution
        """
        rule = "the network must have an agent for each site"
        require(self.m == network.m, rule, f"{network.m} agents and {self.m} sites", "change one of them")
        labels, rows = list(self.rows), list(self.rows.values())
        here = list(network.agents)
        return fit_site(
            self.regression,
            self.schema,
            [rows[i] for i in here],
            network,
            labels=[labels[i] for i in here],
            tests=None if self.tests is None else [self.tests[i] for i in here],
            **options,
        )


def site_data(regression: Regression, tables: Any, sites: str | Sequence[str] | None, test: Any) -> SiteData:
    """Read the tables of all sites; see `fit`."""
    whole, parts = _split(tables, sites)
    schema = _common_schema(regression, parts) if whole is None else read_schema(regression, whole)
    rows = {label: read_rows(regression, schema, table, of=label) for label, table in parts.items()}
    tests = None if test is None else _test_rows(regression, schema, test, sites, parts)
    return SiteData(regression, schema, rows, tests)


def default_graph(m: int) -> Graph:
    """Complete up to 4 sites; beyond, random with at most 4 neighbours each, always the same for
    one m.
    """
    return Graph.complete(m) if m <= _FEW else Graph.random(m, max_degree=_FEW, seed=0)


def local_network(graph: Any) -> Network:
    """Return the network of a graph, or a network whose agents all live in this process."""
    if (known := as_graph(graph)) is not None:
        return Local(known)
    if isinstance(graph, type) or not hasattr(graph, "combine"):
        raise InputError("graph must be a gs.Graph or a network", kind_of(graph), "for example gs.Graph.ring(4)")
    network: Network = graph
    require(
        len(network.agents) == network.m,
        "the network must be one whose agents all live in this process",
        f"{len(network.agents)} of {network.m}",
        "use `gradslide agent` where sites have processes of their own",
    )
    return network


def _split(tables: Any, sites: str | Sequence[str] | None) -> tuple[Table | None, dict[str, Table]]:
    """The whole table, if there is one, and the table of each site by name."""
    if isinstance(tables, Mapping) and tables and all(map(_is_table, tables.values())):
        return None, {str(name): read_table(each) for name, each in tables.items()}
    if isinstance(tables, list | tuple):
        require(len(tables) > 0, "a fit needs a table", "none", "give one, or one for each site")
        names = [f"site {number}" for number in range(1, len(tables) + 1)] if sites is None else sites
        is_fine = not isinstance(names, str) and len(names) == len(tables) and len(set(names)) == len(tables)
        require(is_fine, "sites must name each of several tables", repr(sites), "give different names, one for each")
        return None, dict(zip(map(str, names), map(read_table, tables), strict=True))
    table = read_table(tables)
    if sites is None:
        return table, {table.source: table}
    if not isinstance(sites, str):
        raise InputError("sites must be the name of a column of one table", kind_of(sites), 'for example "hospital"')
    column = table.column(sites)
    missing = int(column.is_missing.sum())
    require(not missing, f"every row needs an entry in column {sites!r}", f"{missing} without", "complete them")
    rest = Table(table.source, {name: each for name, each in table.columns.items() if name != sites}, table.n)
    texts = column.texts()
    return rest, {label: rest.take(np.flatnonzero(texts == label)) for label in levels_of(column)}


def _is_table(value: Any) -> bool:
    """Whether a value stands for a table, and is no column."""
    is_frame = hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")
    return is_frame or isinstance(value, str | os.PathLike | Mapping | Table)


def _common_schema(regression: Regression, tables: Mapping[str, Table]) -> Schema:
    """The schema that all tables have, or an error that says which one differs and how."""
    (first, table), *others = tables.items()
    schema = read_schema(regression, table)
    for label, other in others:
        differences = read_schema(regression, other).differences(schema.told())
        rule = "the tables of all sites must have the same columns"
        require(not differences, rule, f"{label}, where {first} is 'there': {'; '.join(differences)}", "correct one")
    return schema


def _test_rows(regression: Regression, schema: Schema, test: Any, sites: Any, parts: Mapping[str, Table]) -> list[Rows]:
    """The test rows of each site; none where it has none."""
    tables = _split(test, sites)[1]
    if len(parts) == len(tables) == 1:
        tables = dict(zip(parts, tables.values(), strict=True))
    stray = [label for label in tables if label not in parts]
    require(not stray, "test rows must be of the sites of the fit", ", ".join(stray), f"use {', '.join(parts)}")
    found = {
        label: read_test_rows(regression, schema, table, of=f"test rows of {label}") for label, table in tables.items()
    }
    nothing = next(iter(found.values())).take(np.zeros(0, dtype=np.int64))
    return [found.get(label, nothing) for label in parts]
