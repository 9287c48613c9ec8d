"""Tables that notebooks show for what this library gives back."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from gradslide.costs import traffic, work

if TYPE_CHECKING:
    from gradslide.certificate import Certificate
    from gradslide.solution import Solution

# What `Graph.describe` has, in words.
_FACTS = {
    "m": "agents",
    "edges": "links",
    "degree_min": "least degree",
    "degree_mean": "mean degree",
    "degree_max": "largest degree",
    "diameter_bound": "diameter, at most",
    "lmax": "largest eigenvalue of the Laplacian",
    "l2": "second smallest eigenvalue",
    "condition": "their ratio",
}

_LEFT = ' style="text-align: left"'


def solution_facts(solution: "Solution") -> dict[str, str]:
    """How a run ended, what it cost and what was reached."""
    costs, last = solution.costs, solution.history[-1] if len(solution.history) else None
    spent = [*work([costs]), traffic([costs]), "control_rounds", "floats_sent", "operator_products"]
    facts = {
        "status": f"{solution.status.short}: {solution.status.value}",
        "outer iterations": f"{last.iteration if last else 0:,}",
        **{name.replace("_", " "): f"{count:,}" for name in spent if (count := getattr(costs, name))},
        "seconds": f"{costs.seconds:.3g}",
    }
    if last is not None:
        seen = {
            "objective": last.objective,
            "disagreement": last.disagreement,
            "residual": last.residual if last.disagreement is None else None,
            "gap (certified)": last.gap,
        }
        facts |= {name: f"{value:.6g}" for name, value in seen.items() if value is not None}
    if solution.certificate is not None:
        facts["optimum"] = _between(solution.certificate, exact=not costs.operator_products)
    elif solution.kkt is not None:
        facts["stationarity"] = f"{solution.kkt.stationarity:.3g}"
    return facts | {f"warning {number}": text for number, text in enumerate(solution.warnings, 1)}


def _between(proof: "Certificate", *, exact: bool) -> str:
    """Where the optimum lies. exact: the answer is where it must be, whatever the residual says."""
    if exact or proof.residual == 0:
        return f"between {proof.lower:.6g} and {proof.upper:.6g}"
    return f"at least {proof.lower:.6g}; {proof.upper:.6g} at the answer, which misses its constraints a little"


def in_words(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a graph for people; a bound on what is known is left out."""
    known = facts.get("diameter") is not None
    shown = {name: value for name, value in facts.items() if not (known and name == "diameter_bound")}
    return {_FACTS.get(name, name.replace("_", " ")): value for name, value in shown.items()}


def facts_html(title: str, facts: Mapping[str, Any]) -> str:
    """Names and values."""
    rows = (f"<tr><th{_LEFT}>{_cell(name)}</th><td{_LEFT}>{_cell(value)}</td></tr>" for name, value in facts.items())
    return _table(title, rows)


def rows_html(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table with a line of headings."""
    return _table(title, [_row("th", columns), *(_row("td", row) for row in rows)])


def _row(tag: str, cells: Sequence[Any]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_cell(cell)}</{tag}>" for cell in cells) + "</tr>"


def _table(title: str, rows: Iterable[str]) -> str:
    return f"<table><caption{_LEFT}>{escape(title)}</caption>{''.join(rows)}</table>"


def _cell(value: Any) -> str:
    return escape(f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value))
