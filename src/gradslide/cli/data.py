"""The commands for data sets. Arguments only."""

import json
from typing import Annotated

import typer

from gradslide._support.errors import InputError
from gradslide.cli.shared import DataDir, Json, show

data_app = typer.Typer(no_args_is_help=True, help="Data sets: what there is, where it is, and fetching it.")


@data_app.command("list")
def data_list(data_dir: DataDir = None, json_: Json = False) -> None:
    """The data sets that can be used by name, and which are here."""
    from gradslide.data import catalogue
    from gradslide.experiments.tables import data_table

    entries = catalogue(data_dir)
    if json_:
        print(
            json.dumps(
                [{**vars(entry), "path": str(entry.path) if entry.path else None} for entry in entries],
                indent=1,
            )
        )
    else:
        table = data_table(entries)
        print(table.title)
        show(table.rich())


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="For example ijcnn1.")], data_dir: DataDir = None) -> None:
    """Find a data set, or download it, and print its path."""
    from gradslide.data import get

    print(get(name, data_dir=data_dir))


@data_app.command("path")
def data_path(
    name: Annotated[str | None, typer.Argument(help="A data set; without it, the folder.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Where a data set is, or where data sets are looked for."""
    from gradslide.data import data_directory, find

    if name is None:
        print(data_directory(data_dir))
        return
    found = find(name, data_dir)
    if found is None:
        raise InputError(
            f"{name} must be in {data_directory(data_dir)}",
            "no file",
            f"fetch it with `gradslide data get {name}`",
        )
    print(found)
