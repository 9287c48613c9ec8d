"""What a run leaves on disk: JSON, CSV, a plot, and the solutions."""

import io
import json
import math
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from gradslide._support import storage
from gradslide._support.errors import InputError, unknown_name
from gradslide._support.plotting import pyplot
from gradslide._version import __version__
from gradslide.experiments.run import Results
from gradslide.experiments.tables import Table, columns
from gradslide.regression.fitted import FittedRegression
from gradslide.results.plots import plot_histories

# Of a spec, and of one agent.
RESULTS, RESULT = "results.json", "result.json"
NETWORKS = "networks.json"
# Of a fitted regression.
MODEL, SUMMARY = "model.json", "summary.txt"


def write_results(results: Results) -> list[Path]:
    """Write everything into the spec's folder; the paths, most useful first."""
    folder = results.spec.output.dir
    written = [
        storage.write_atomically(folder / RESULTS, to_json(results).encode()),
        storage.write_atomically(folder / "history.csv", _history(results).csv().encode()),
        storage.write_atomically(folder / NETWORKS, as_json(results.networks(), indent=None).encode()),
    ]
    if results.spec.output.plot:
        # Without matplotlib the figures are still in the CSV.
        with suppress(InputError):
            written.insert(0, _plot(results, folder / "curves.png"))
    written += [run.solution.save(folder / f"{run.stem}.solution.npz") for run in results.runs]
    for run in results.runs:
        if (model := run.solution.model) is not None:
            prefix = f"{run.stem}." if len(results.runs) > 1 else ""
            written = [*write_model(model, folder, prefix), *written]
    return written


def write_model(model: FittedRegression, folder: Path, prefix: str = "") -> list[Path]:
    """Write the model card and the summary; the paths."""
    return [
        model.save(folder / f"{prefix}{MODEL}"),
        storage.write_atomically(folder / f"{prefix}{SUMMARY}", f"{model.summary()}\n".encode()),
    ]


def to_json(results: Results) -> str:
    return as_json(results.to_dict())


def as_json(content: dict[str, Any], indent: int | None = 1) -> str:
    """The content, with the versions that it was made with."""
    return json.dumps(finite({"format": 1, "versions": versions(), **content}), indent=indent, allow_nan=False)


def versions() -> dict[str, str]:
    return {
        "gradslide": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def finite(value: Any) -> Any:
    """JSON has no infinity: null stands for it."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _history(results: Results) -> Table:
    """All records of all networks."""
    histories = {run.name: run.solution.history.to_dict() for run in results.runs}
    names = next(iter(histories.values()), {})
    rows = [[name, *row] for name, each in histories.items() for row in zip(*each.values(), strict=True)]
    return Table("history", columns("network", *names), rows)


def _plot(results: Results, path: Path) -> Path:
    histories = {run.name: run.solution.history for run in results.runs}
    against = (*results.work, "rounds")
    figure = plot_histories(histories, against=against, optimum=results.optimum, title=results.spec.title)
    return write_figure(figure, path)


def write_figure(figure: Any, path: Path) -> Path:
    """Save a matplotlib figure in the format that the file name asks for."""
    kind = path.suffix.lstrip(".") or "png"
    formats = figure.canvas.get_supported_filetypes()
    if kind not in formats:
        raise unknown_name("the file type of a plot", kind, formats)
    storage.require_writable(path.parent)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=150)
    pyplot().close(figure)
    return storage.write_atomically(path, buffer.getvalue())
