"""The document of a comparison of methods."""

from collections.abc import Mapping, Sequence
from typing import Any

from gradslide.experiments.compare.files import with_new_names
from gradslide.experiments.tables import Table, columns
from gradslide.report.parts import Columns, by_clock, document, network, spent_axes, with_all_rounds, y_axis

_STILL = "a comparison keeps no record of single agents"
_Y = [
    y_axis("error", "relative error of the objective at the mean", log=True),
    y_axis("disagreement", "relative disagreement", log=True),
]
_BLOCK = ("problem", "network", "condition")


def comparison_document(compared: Mapping[str, Any], networks: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """compared: as comparison.json has it; networks: as networks.json has them."""
    compared = with_new_names(compared)
    groups = [_group(block, compared["outcomes"]) for block in compared["blocks"]]
    shown = [curve["columns"] for group in groups for curve in group["curves"]]
    tables = compared.get("tables", [])
    beaten = compared["baselines_better_in_both"] or [
        "no baseline took less of both gradients and rounds than ours anywhere"
    ]
    behind = Table(
        "Where baselines took less of both than ours", columns("where, and who"), [[line] for line in beaten]
    )
    return document(
        "comparison",
        compared["name"],
        compared["title"],
        f"{len(compared['outcomes'])} runs" + ", interrupted" * compared["interrupted"],
        summary={**tables[0], "notes": [*tables[0]["notes"], compared["legend"]]} if tables else None,
        tables=[*tables[1:], behind.to_dict()],
        curves=groups,
        axes={"x": spent_axes(shown), "y": _Y},
        networks=[network(drawn, why_still=_STILL) for drawn in networks],
        settings=_settings(compared),
    )


def _group(block: Mapping[str, Any], outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    name = "; ".join(block[part] for part in _BLOCK)
    curves = []
    for line in block["lines"]:
        own = {**{part: block[part] for part in _BLOCK}, "method": line["method"], "factor": line["factor"]}
        found = next(outcome for outcome in outcomes if all(outcome[name] == own[name] for name in own))
        if found["curve"].get("error"):
            curves.append({"name": line.get("label", line["method"]), "columns": _columns(found["curve"])})
    return {"name": name, "curves": curves}


def _columns(curve: Mapping[str, list[Any]]) -> Columns:
    return with_all_rounds(by_clock(dict(curve)))


def _settings(compared: Mapping[str, Any]) -> list[dict[str, Any]]:
    rules = {
        "accuracies": ", ".join(f"{accuracy:g}" for accuracy in compared["accuracies"]),
        "largest disagreement / |x*|, in units of the accuracy": compared["disagreement_factor"],
        **{f"limit on {name}": value for name, value in compared["limits"].items()},
        **{f"optimum of {name}": target["objective"] for name, target in compared["optima"].items()},
    }
    return [{"name": "rules", "facts": rules}]
