"""The commands for fitted regressions: predict, release. Arguments only."""

from pathlib import Path
from typing import Annotated

import typer

from gradslide.cli.shared import OK, Json, Quiet, note


def register(app: typer.Typer) -> None:
    """Add the commands to the program's."""
    app.command()(predict)
    app.command()(release)


def predict(
    model: Annotated[Path, typer.Argument(help="The model.json that a run or an agent wrote.")],
    table: Annotated[Path, typer.Argument(help="The rows: CSV, Parquet or Arrow, with the features' columns.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A CSV file; by default predictions are printed.")
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="The table has labels: print how good predictions are.")
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict for the rows of a table with a fitted regression.

    Writes one line per row: its number and the expected value or count, or the probability of each
    class and the most probable one, or the hazard relative to the baseline.
    """
    import json

    from gradslide._support import storage
    from gradslide.data.tables import read_table
    from gradslide.experiments.files import finite
    from gradslide.experiments.tables import Table as Printed
    from gradslide.experiments.tables import columns
    from gradslide.regression.fitted import load_model

    fitted = load_model(model)
    read = read_table(table)
    if not fitted.is_sound and not quiet:
        note(f"this model did not reach its optimum: {fitted.provenance['message']}")
    if evaluate:
        metrics = fitted.evaluate(read)
        print(
            json.dumps(finite(metrics))
            if json_
            else "\n".join(f"{name}: {value:.6g}" for name, value in metrics.items())
        )
        raise typer.Exit(OK)
    names, rows = fitted.prediction_table(read)
    printed = Printed("predictions", columns(*names), rows)
    if out is not None:
        storage.require_writable(out.parent)
        storage.write_atomically(out, printed.csv().encode())
        if not quiet:
            print(f"written: {out}, {len(rows):,} rows")
    elif json_:
        print(json.dumps([finite(dict(zip(names, row, strict=True))) for row in rows]))
    elif not quiet:
        print(printed.csv(), end="")
    raise typer.Exit(OK)


def release(
    model: Annotated[Path, typer.Argument(help="The model.json that a run or an agent wrote.")],
    out: Annotated[Path, typer.Argument(help="The card of the released model.")],
    epsilon: Annotated[float, typer.Option(help="The promise, for example 1.0.")],
    delta: Annotated[float, typer.Option(help="Well below 1 over the number of rows, for example 1e-6.")],
    ledger: Annotated[Path, typer.Option(help="The file that accounts for all releases of these rows.")],
    budget: Annotated[
        tuple[float, float] | None, typer.Option(help="Epsilon and delta for all of them together.", show_default=False)
    ] = None,
    adjacency: Annotated[
        str, typer.Option(help="What neighbouring data sets differ in: replace or add one row.")
    ] = "replace",
) -> None:
    """Write a model with noise, for others: differentially private.

    The model must have been fitted with for_release = true under [model]. Every release is written
    into the ledger before anybody sees it.
    """
    from typing import cast

    from gradslide._support import storage
    from gradslide.regression.fitted import load_model
    from gradslide.regression.release import Adjacency

    storage.require_writable(out.parent)
    fitted = load_model(model)
    kind = cast(Adjacency, adjacency)
    released = fitted.released(epsilon, delta, adjacency=kind, ledger=ledger, budget=budget)
    released.save(out)
    print(released.summary())
    print(f"written: {out}; accounted for in {ledger}")
