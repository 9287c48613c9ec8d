"""From a folder of results to the content of a page."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gradslide._support.errors import InputError
from gradslide.experiments.compare.files import COMPARISON
from gradslide.experiments.files import NETWORKS, RESULT, RESULTS, versions
from gradslide.experiments.reproduce.catalogue import NAMES
from gradslide.report.agent import agent_document, solution_document
from gradslide.report.comparison import comparison_document
from gradslide.report.reproduction import reproduction_document
from gradslide.report.run import run_document

_RULE = "a report is made of a folder that `gradslide run`, `compare`, `reproduce` or `agent` has written"

_FILES = (RESULTS, COMPARISON, RESULT, *(f"{name}.json" for name in NAMES))


def content_of(place: Path) -> dict[str, Any]:
    """What a page shows of the results in a folder, or of a solution in a file."""
    if not place.exists():
        raise InputError(_RULE, f"{place}, which does not exist", "run something first, or check the path")
    if place.is_file():
        return content([solution_document(place)], versions())
    found = _documents(place)
    if not found:
        raise InputError(_RULE, f"{place}, which holds no results", _elsewhere(place))
    return content([document for document, _ in found], found[0][1])


def content(
    documents: list[dict[str, Any]], made_with: Mapping[str, str], *, live: bool = False, finished: bool = True
) -> dict[str, Any]:
    """The documents, with what they were made with and when."""
    return {
        "format": 1,
        "made": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "versions": dict(made_with),
        "state": {"live": live, "finished": finished},
        "documents": documents,
    }


def _documents(folder: Path) -> list[tuple[dict[str, Any], Mapping[str, str]]]:
    """Each with the versions that it was made with."""
    return [_document(folder, name) for name in _FILES if (folder / name).exists()]


def _document(folder: Path, name: str) -> tuple[dict[str, Any], Mapping[str, str]]:
    results = _read(folder / name)
    beside = {RESULTS: "history.csv", RESULT: "history.csv", COMPARISON: "comparison.csv"}
    try:
        if name == RESULTS:
            document = run_document(results, _networks(folder))
        elif name == COMPARISON:
            document = comparison_document(results, _networks(folder))
        elif name == RESULT:
            document = agent_document(results)
        else:
            document = reproduction_document(results, folder)
        offered = [name, *([NETWORKS] if document["networks"] and name in (RESULTS, COMPARISON) else [])]
        offered += [beside[name]] if name in beside else []
        files = [_offered(folder / each) for each in offered if (folder / each).exists()]
        return {**document, "files": files}, results["versions"]
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        got = f"{folder / name}, in which something is missing or wrong ({error!r})"
        raise InputError(_RULE, got, "make the results anew with this release") from None


def _networks(folder: Path) -> list[Mapping[str, Any]]:
    return list(_read(folder / NETWORKS)["networks"]) if (folder / NETWORKS).exists() else []


def _read(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(_RULE, f"{path}, which cannot be read ({error})", "make the results anew") from None
    if not isinstance(read, dict) or read.get("format") != 1:
        raise InputError(f"{path} must be of format 1", "another", "make the results anew with this release")
    return read


def _offered(path: Path) -> dict[str, str]:
    """A file to be downloaded as it is."""
    kind = {".json": "application/json", ".csv": "text/csv"}[path.suffix]
    return {"name": path.name, "type": kind, "text": path.read_text(encoding="utf-8")}


def _elsewhere(folder: Path) -> str:
    """Where there are results, if they are one level deeper."""
    deeper = sorted({path.parent for path in folder.glob("*/*.json") if path.name in _FILES})
    if not deeper:
        return "run something first, or check the path"
    return f"there are some in {', '.join(map(str, deeper))}"
