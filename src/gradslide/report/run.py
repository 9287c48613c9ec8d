"""The document of a run over one or more networks: from what its files hold, or from as much of it
as there is yet.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradslide.experiments.summary import MESSAGE, summary_table
from gradslide.report.parts import (
    SEEN,
    Columns,
    by_clock,
    document,
    network,
    spent_axes,
    thinned,
    with_all_rounds,
    y_axis,
)
from gradslide.report.regression import model_tables, verdict
from gradslide.results.certificate import KKT, Certificate, residuals_from_dict

Run = Mapping[str, Any]

STILL = "how far the agents were from each other along the way was not recorded"
SHARED_OUT = "floats sent: what all agents sent together was counted; it is shared out by the number of links"
_MEANINGS = {
    "coupling": "coupling: what A is",
    "output": "output: which of the method's points is the answer",
    "version": "gradslide",
    "L": "L: smoothness that steps are made for",
    "K": "K: exchanges after each gradient",
    "R": "R: weight of agreement against distance",
    "mu": "mu: strong convexity",
    "A_norm": "A_norm: ||A||",
    "balance": "balance: rounds that a gradient is worth",
    "restarts": "restarts of the momentum",
    "step_size": "step size",
    "chosen": "chosen: the method that did the work",
    "reason": "reason: why it was chosen",
    "changed": "changed: the choice, in the run",
    "rejected": "rejected: steps that did not lower the objective",
}
_LABELS = {
    "error": "objective error at the mean",
    **SEEN,
    "local_error": "objective error, each agent at its own point",
}
_BOUNDS = {
    "error": ("at_mean_bound", "what the theorem promises"),
    "local_error": ("objective_bound", "what the theorem promises"),
    "residual": ("residual_bound", "what the theorem promises"),
    "objective": ("lower", "certified lower bound on the optimum"),
}


def run_document(
    results: Mapping[str, Any],
    networks: Sequence[Mapping[str, Any]] = (),
    *,
    kind: str = "run",
    why_still: str = STILL,
    tables: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """results: as results.json has them; networks: as networks.json has them. tables: further ones, which
    are shown with the model if there is one."""
    runs: Sequence[Run] = results["runs"]
    # The name of a network only where there are several.
    models = [(run["network"] if len(runs) > 1 else "", run["model"]) for run in runs if run.get("model")]
    shown = [each for name, model in models for each in model_tables(model, name)]
    curves = [{"name": run["network"], "columns": _curve(run, results["optimum"])} for run in runs]
    return document(
        kind,
        results["name"],
        results["title"],
        results["problem"],
        verdict=[each for name, model in models for each in verdict(model, name)],
        models=[*shown, *tables] if shown else [],
        summary=summary_table(results, MESSAGE).to_dict(),
        curves=[{"name": "", "curves": curves}],
        axes=_axes([curve["columns"] for curve in curves]),
        networks=[network(drawn, why_still=why_still) for drawn in networks],
        agents=[_agents(drawn) for drawn in networks if drawn["by_agent"]],
        certificates=[certificate(run) for run in runs],
        settings=[settings(run) for run in runs],
        tables=[] if shown else list(tables),
    )


def _curve(run: Run, optimum: float | None) -> Columns:
    history = with_all_rounds({name: list(column) for name, column in run["history"].items()})
    if optimum is not None:
        for name, of in (("error", "objective"), ("local_error", "local_objective")):
            history[name] = [None if value is None else value - optimum for value in history[of]]
    for name, bounds in (run.get("bounds_along") or {}).items():
        history[f"{name}_bound"] = bounds
    return thinned(by_clock(history))


def _axes(curves: Sequence[Columns]) -> dict[str, Any]:
    def has(name: str) -> bool:
        return any(value is not None for curve in curves for value in curve.get(name, ()))

    y = []
    for name in filter(has, _LABELS):
        bound, label = _BOUNDS.get(name, ("", ""))
        beside = {"bound": bound, "bound_label": label} if has(bound) else {}
        y.append(y_axis(name, _LABELS[name], log=name not in ("objective", "local_error"), **beside))
    return {"x": spent_axes(curves), "y": y}


def _agents(drawn: Mapping[str, Any]) -> dict[str, Any]:
    counts = {name.replace("_", " "): column for name, column in drawn["by_agent"].items()}
    notes = [SHARED_OUT] if drawn.get("is_shared_out") else []
    return {"name": drawn["network"], "columns": {"agent": list(range(drawn["m"])), **counts}, "notes": notes}


def certificate(run: Run) -> dict[str, Any]:
    """What was proved of the answer, or why nothing was."""
    proof, kkt = run["certificate"], run["kkt"]
    facts: dict[str, Any] = {}
    holds: bool | None = None
    text = f"{run.get('certificate_reason') or 'this method gives no certificate'}."
    if proof is not None:
        lower, upper, residual = proof["lower"], proof["upper"], proof["residual"]
        is_saddle = run["costs"]["operator_products"] > 0
        facts |= {"lower bound on the optimum": lower, "value at the answer": upper}
        facts["residual" if is_saddle else "largest distance of an agent from the mean"] = residual
        if lower is not None and upper is not None and math.isfinite(upper - lower):
            facts |= {"value less lower bound": upper - lower, "relative": abs(upper / lower - 1) if lower else None}
            holds, text = _judged(residual if is_saddle else 0.0, Certificate(lower, upper).refutation)
    if kkt is not None:
        residuals = residuals_from_dict(kkt)
        if isinstance(residuals, KKT):
            facts["stationarity (no certificate)"] = residuals.stationarity
            facts["disagreement (no certificate)"] = residuals.disagreement
        else:
            facts |= {f"{name} residual (no certificate)": each for name, each in residuals.to_dict().items()}
    return {"name": run["network"], "facts": facts, "holds": holds, "text": text, "warnings": list(run["warnings"])}


def _judged(residual: float, refutation: str) -> tuple[bool | None, str]:
    """residual: how far the answer is from what is allowed."""
    if residual > 0:
        text = "The lower bound holds. The answer misses its constraints by the residual, so its value may lie below it"
        return None, f"{text} and below the optimum."
    if refutation:
        return False, f"It cannot: {refutation}."
    return True, "The optimum lies between the two values: the answer is no further above it than their difference."


def settings(run: Run) -> dict[str, Any]:
    """What it was run with."""
    found = {"chosen" if name == "method" else name: value for name, value in run["parameters"].items()}
    facts = {**run["settings"], "output": run["output"], **found}
    return {"name": run["network"], "facts": {_MEANINGS.get(name, name): value for name, value in facts.items()}}
