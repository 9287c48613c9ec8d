"""Pieces of a report that its documents have in common: plain lists, numbers and strings, for JSON."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from gradslide.graphs.display import DRAWABLE, in_words, layout
from gradslide.graphs.graph import Graph
from gradslide.results.plots import AXES, METRICS

_MOST_POINTS = 2_000
_MOST_EDGES = 10_000

Columns = dict[str, list[Any]]

SPENT = {
    "gradients": AXES["gradients"],
    "samples": AXES["samples"],
    "rounds": AXES["rounds"],
    "all_rounds": f"{AXES['rounds']}, control included",
    "operator_products": AXES["operator_products"],
    "seconds": f"{AXES['seconds']} of wall clock",
    "iteration": AXES["iteration"],
    "floats_sent": "floats sent",
}
SEEN = {
    "gap": METRICS["gap"],
    "objective": "objective at the mean",
    "disagreement": METRICS["disagreement"],
    "residual": "residual ||A x||",
}


def document(kind: str, name: str, title: str, subtitle: str, **given: Any) -> dict[str, Any]:
    """What a page shows; sections that are not given are empty."""
    empty = (
        "verdict",
        "models",
        "statements",
        "curves",
        "networks",
        "agents",
        "certificates",
        "settings",
        "tables",
        "images",
        "files",
    )
    return {
        "kind": kind,
        "name": name,
        "title": title,
        "subtitle": subtitle,
        "summary": None,
        "axes": {"x": [], "y": []},
        **{section: [] for section in empty},
        **given,
    }


def thinned(columns: Columns) -> Columns:
    """So many points that a page stays quick, the first and the last among them."""
    return {name: _evenly(column, _MOST_POINTS) for name, column in columns.items()}


def _evenly(items: list[Any], most: int) -> list[Any]:
    """At most so many of them, the first and the last among these."""
    if len(items) <= most:
        return items
    return [items[index] for index in np.linspace(0, len(items) - 1, most).round().astype(int)]


def with_all_rounds(columns: Columns) -> Columns:
    """Control rounds are rounds, too."""
    both = zip(columns["rounds"], columns["control_rounds"], strict=True)
    return columns | {"all_rounds": [sum(pair) for pair in both]}


def by_clock(columns: Columns) -> Columns:
    """Simulated seconds as a column for each clock."""
    simulated = columns.pop("simulated_seconds", None) or []
    names = next((list(each) for each in simulated if isinstance(each, Mapping)), None)
    if names is not None:
        return columns | {clock_key(name): [each[name] for each in simulated] for name in names}
    return columns | {"simulated_seconds": simulated} if any(simulated) else columns


def clock_key(name: str) -> str:
    return f"seconds ({name})"


def spent_axes(curves: Iterable[Columns]) -> list[dict[str, str]]:
    """The costs that some curve shows, as axes."""
    curves = list(curves)
    names = dict.fromkeys(name for columns in curves for name in columns)
    clocks = [name for name in names if name.startswith(clock_key("")[:-1]) or name == "simulated_seconds"]
    shown = [*SPENT, *clocks]
    return [
        {"key": name, "label": SPENT.get(name, name.replace("_", " "))}
        for name in shown
        if any(any(columns.get(name, ())) for columns in curves)
    ]


def y_axis(key: str, label: str, *, log: bool, bound: str | None = None, bound_label: str = "") -> dict[str, Any]:
    return {"key": key, "label": label, "log": log, "bound": bound, "bound_label": bound_label}


def network(drawn: Mapping[str, Any], *, why_still: str) -> dict[str, Any]:
    """A network as `gradslide.experiments.per_agent.drawn` has it, with a place in the plane for
    each agent. why_still: said where nothing was seen along the way."""
    facts = in_words(drawn["facts"])
    shown = {"name": drawn["network"], "facts": facts, "frames": drawn["frames"], "names": drawn.get("names")}
    if drawn["edges"] is None:
        note = f"a drawing can show {DRAWABLE:,} agents; this network has {drawn['m']:,}"
        return {**shown, "positions": None, "edges": [], "degrees": [], "note": note}
    graph = Graph.from_edges(drawn["m"], drawn["edges"])
    notes = [] if drawn["frames"] else [why_still]
    if len(drawn["edges"]) > _MOST_EDGES:
        notes.append(f"{_MOST_EDGES:,} of {len(drawn['edges']):,} links are drawn")
    return {
        **shown,
        "positions": _positions(graph),
        "edges": _evenly(drawn["edges"], _MOST_EDGES),
        "degrees": graph.degrees.tolist(),
        "note": "; ".join(notes),
    }


@lru_cache(maxsize=16)
def _positions(graph: Graph) -> list[list[float]]:
    """Found once: a live page asks again and again."""
    places = layout(graph)[1]
    return [[float(f"{number:.4g}") for number in places[agent]] for agent in range(graph.m)]
