"""Measure the costs of Auto and AutoPDS: against tuned baselines, a prototype, and wrong guesses of L.

The error of a set of answers is the larger of the relative objective error at their mean and the
relative disagreement ||X - mean||_F/(sqrt(m) |x*|). Answers of every method may be mixed by further
rounds at the end; these rounds count. Runs are cached under --out, and a second call makes only the
missing ones. A cached call takes minutes, the first one much longer: the grids of the baselines are
thousands of runs.
"""

import argparse
import json
from pathlib import Path

from auto_bench import baselines, pool, problems, tables
from auto_bench.errors import BALANCES
from auto_bench.pool import AUTO, DEFAULT, Results, Task

import gradslide as gs
from gradslide._support import storage

WRONG_L_CELL = ("ijcnn1", "G1")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, nargs="+", choices=list(tables.TABLES), help="tables, by number")
    parser.add_argument("--problems", nargs="+", choices=list(problems.PROBLEMS))
    parser.add_argument("--networks", nargs="+", choices=problems.NETWORKS)
    parser.add_argument("--fresh", action="store_true", help="ignore cached runs")
    parser.add_argument("--cached", action="store_true", help="show cached runs only, run nothing")
    parser.add_argument(
        "--data-dir", type=Path, help="holds the data sets and networks/*.edges; default: GRADSLIDE_DATA"
    )
    parser.add_argument("--out", type=Path, default=Path("build/auto"))
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def present(cells: list[tables.Cell], data_dir: Path | None) -> list[tables.Cell]:
    """Return the cells whose network file exists; print the others."""
    missing = {
        network
        for _, network in cells
        if network in problems.FROM_FILE and not problems.network_file(network, data_dir).is_file()
    }
    for network in sorted(missing):
        path = problems.network_file(network, data_dir)
        print(f"{network}: skipped, {path} is missing; pass its directory as --data-dir")
    return [cell for cell in cells if cell[1] not in missing]


def tasks(wanted: set[int], cells: list[tables.Cell], data_dir: Path | None) -> list[Task]:
    """List the runs. AutoPDS comes first: its costs bound the runs of the baselines."""
    if not hasattr(gs, AUTO):
        print(f"gradslide has no {AUTO}: running the baselines only")
    found = [
        Task(*cell, "auto", AUTO, parameters)
        for cell in cells
        if hasattr(gs, AUTO)
        for parameters in ours(wanted, cell)
    ]
    found += [
        Task(*cell, "fixed", AUTO, {"balance": 1.0, "agreement": "late", "L_factor": c})
        for cell in cells
        if 7 in wanted and cell in shown(7, cells)
        for c in tables.FIXED_L
    ]
    if 8 in wanted:
        ours_first = [Task(*cell, "default", DEFAULT, {"balance": b}) for cell in shown(8, cells) for b in BALANCES]
        found = ours_first + found
    for cell in cells:
        if cell[0] != problems.RIDGE:
            runs = baselines.grid(*cell, data_dir)
            found += [
                Task(*cell, *run)
                for run in runs
                if wanted & {3, 7, 8} or (4 in wanted and run[0] in ("core", "sliding"))
            ]
    return found


def ours(wanted: set[int], cell: tables.Cell) -> list[baselines.Parameters]:
    """Return the parameters of AutoPDS that the tables need."""
    found = [{"balance": 1.0, "agreement": "exact"}] if wanted - {8} else []
    if wanted & {2, 3, 4, 7}:
        found.append({"balance": 1.0, "agreement": "late"})
    if 3 in wanted and cell[0] != problems.RIDGE:
        pairs = [(balance, agreement) for balance in BALANCES for agreement in pool.AGREEMENTS.values()]
        found += [{"balance": b, "agreement": agreement} for b, agreement in pairs if b != 1.0]
    if 6 in wanted and cell == WRONG_L_CELL:
        found += [{"balance": 1.0, "agreement": "exact", "first_L_factor": c} for c in tables.WRONG_L]
    return found


def shown(number: int, cells: list[tables.Cell]) -> list[tables.Cell]:
    """Return the cells of a table."""
    if number == 8:
        return [cell for cell in cells if cell[0] not in (problems.RIDGE, "box per agent")]
    if number == 6:
        return [cell for cell in cells if cell == WRONG_L_CELL]
    if number == 4:
        return [cell for cell in cells if cell[0] in problems.CONSTRAINED]
    if number == 7:
        return [cell for cell in cells if cell[0] != problems.RIDGE and cell[1] in problems.FROM_FILE]
    return [cell for cell in cells if cell[0] != problems.RIDGE or number == 5]


def main() -> None:
    given = arguments()
    wanted = set(given.only or tables.TABLES)
    cells = present(problems.cells(given.problems, given.networks), given.data_dir)
    cells = [cell for cell in cells if any(cell in shown(number, cells) for number in wanted)]
    compared = tuple(name for name, numbers in ((AUTO, {3, 7}), (DEFAULT, {8})) if numbers & wanted) or (AUTO,)
    results = Results(given.out, given.data_dir, given.fresh, compared)
    todo = tasks(wanted, cells, given.data_dir)
    try:
        pool.run(todo, results, given.processes, only_read=given.cached)
    except KeyboardInterrupt:
        print("\ninterrupted: completed runs are cached")
    except gs.InputError as error:
        raise SystemExit(str(error)) from None
    said = {}
    for number in sorted(wanted):
        title, table = tables.TABLES[number]
        print(f"\n{number}. {title}\n")
        parts = table(results, shown(number, cells))
        for lines, _ in parts:
            print("\n".join(lines) + "\n")
        said[title] = [data for _, data in parts]
    storage.write_atomically(given.out / "tables.json", json.dumps(said, indent=1).encode())


if __name__ == "__main__":
    main()
