"""The document of a reproduction of a table or figure."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradslide.report.parts import SEEN, document, network, spent_axes, with_all_rounds, y_axis

_STILL = "a reproduction keeps no record of single agents"
_Y = [y_axis(key, SEEN[key], log=key != "objective") for key in ("objective", "disagreement", "residual")]
# Larger drawings are shown as pictures of points.
_MOST_BYTES = 400_000


def reproduction_document(report: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """report: as its JSON has it; folder: where its pictures are."""
    first, *others = report["tables"] or [None]
    groups = [_group(where, runs) for where, runs in report.get("curves", {}).items()]
    shown = [curve["columns"] for group in groups for curve in group["curves"]]
    return document(
        "reproduction",
        report["name"],
        report["title"],
        ", ".join(f"{name}: {value}" for name, value in report["facts"].items() if name in ("data", "agents")),
        summary=first,
        statements=report["statements"],
        tables=others,
        curves=groups,
        axes={"x": spent_axes(shown), "y": _Y if shown else []},
        networks=[network(drawn, why_still=_STILL) for drawn in report.get("networks", [])],
        settings=[{"name": "how it was obtained", "facts": dict(report["facts"])}],
        images=[image for name in report.get("figures", []) if (image := _image(folder, name, report["title"]))],
    )


def _group(where: str, runs: Mapping[str, Any]) -> dict[str, Any]:
    curves = [{"name": name, "columns": with_all_rounds(dict(columns))} for name, columns in runs.items()]
    return {"name": where, "curves": curves}


def _image(folder: Path, name: str, title: str) -> dict[str, str] | None:
    """A picture as text; None where it is not there."""
    drawing, points = folder / f"{name}.svg", folder / f"{name}.png"
    small = drawing.exists() and drawing.stat().st_size <= _MOST_BYTES
    path, kind = (drawing, "svg+xml") if small else (points, "png")
    if not path.exists():
        return None
    source = f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    return {"title": name, "source": source, "text": f"{title}: the picture {name}; its numbers are in the tables"}
