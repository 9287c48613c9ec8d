"""Small specs over five agents on a made svmlight file, and the command line called in this process."""

from pathlib import Path

import numpy as np

from gradslide.cli.main import main

TABLES = {
    "top": "version = 1",
    "data": 'file = "rows.svm"\nagents = 5',
    "problem": 'loss = "logistic"',
    "network": 'topology = "ring"',
    "method": 'name = "pds"\nL = 5.0\nR = 1.0',
    "stop": "iterations = 5",
    "output": "plot = false",
}


def write_rows(folder: Path, name: str = "rows.svm", rows: int = 40, seed: int = 0) -> Path:
    """Rows of four features with two labels, none of which repeats over the agents."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rows, 4))
    labels = np.where(features[:, 0] + rng.normal(size=rows) > 0, 1, -1)
    lines = [
        " ".join([f"{label:+d}", *(f"{j}:{value:.6f}" for j, value in enumerate(row, start=1))])
        for label, row in zip(labels, features, strict=True)
    ]
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def write_spec(folder: Path, name: str = "small.toml", **changed: str | None) -> Path:
    """The spec above with some tables changed, or left out (None); a text of several [[network]] is taken as it is."""
    tables = {**TABLES, **changed}
    text = f"{tables.pop('top')}\n"
    for table, content in tables.items():
        if content is not None:
            text += f"[{table}]\n{content}\n" if not content.startswith("[[") else f"{content}\n"
    path = folder / name
    path.write_text(text)
    if not (folder / "rows.svm").exists():
        write_rows(folder)
    return path


def exit_code(*arguments: object) -> int:
    """What the command line answers to these arguments."""
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        return 0 if end.code is None else int(end.code)
    raise AssertionError("the command line always exits")
