"""The documents of an agent among peers, and of a solution that was saved."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradslide.experiments.per_agent import drawn
from gradslide.graphs.graph import Graph
from gradslide.report.run import run_document
from gradslide.results.solution import load

_ALONE = "an agent sees its own answer only, so the distances between agents are not known here"
_NOWHERE = "a saved solution does not hold its network"


def agent_document(result: Mapping[str, Any]) -> dict[str, Any]:
    """result: as result.json has it."""
    name, m = result["name"], result["agents"]
    edges = result.get("edges")
    graph = None if edges is None else Graph.from_edges(m, edges)
    neighbours = ", ".join(result["neighbours"])
    results = as_results(
        result,
        network=name,
        title=f"Agent {name}, run {result['run']}",
        problem=f"number {result['agent']}, {m} in all; neighbours: {neighbours}",
    )
    networks = [] if graph is None else [drawn(name, graph, None, {}) | {"names": result.get("names")}]
    # Earlier releases did not count it.
    traffic, has_table = result.get("traffic"), result.get("model") is not None
    tables = [traffic_table(traffic, has_table, result["secure_sums"])] if traffic else []
    return run_document(results, networks, kind="agent", why_still=_ALONE, tables=tables)


def traffic_table(traffic: Mapping[str, Mapping[str, int]], has_table: bool, is_secure: bool) -> dict[str, Any]:
    """What left the site, by kind. has_table: whether its data are one. is_secure: whether sums were masked."""
    rows = [[kind, each["messages"], each["numbers"], each["bytes"]] for kind, each in traffic.items()]
    notes = ["numbers of 8 bytes, to all neighbours together" + "; no row of the table is ever sent" * has_table]
    masked = "sums are masked: a neighbour sees uniformly random numbers"
    plain = "sums are not masked: a neighbour may see this site's own, see secure_sums"
    return {
        "title": "What left this site",
        "columns": ["kind", "messages", "numbers", "bytes"],
        "rows": rows,
        "notes": [*notes, masked if is_secure else plain],
    }


def solution_document(path: Path) -> dict[str, Any]:
    """Of a file that `Solution.save` wrote."""
    solution = load(path)
    title = f"{path.name}: {solution.status.value}"
    problem = solution.settings.get("problem", "")
    results = as_results(solution.to_dict(), network=path.stem, title=title, problem=problem)
    return run_document(results, why_still=_NOWHERE)


def as_results(solution: Mapping[str, Any], *, network: str, title: str, problem: str) -> dict[str, Any]:
    """One solution, as JSON has it, in the form of a spec's results."""
    run = run_of(solution, network)
    return {"name": network, "title": title, "problem": problem, "optimum": None, "runs": [run]}


def run_of(solution: Mapping[str, Any], network: str) -> dict[str, Any]:
    """The same as one of the runs of a spec, of which no errors and bounds are known."""
    unknown = dict.fromkeys(("objective_error", "local_error", "bound", "bound_at_mean", "bounds_along"))
    return {**unknown, **solution, "network": network}
