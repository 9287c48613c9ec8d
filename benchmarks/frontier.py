"""Plot gradients against rounds of `gs.AutoPDS` for balances from 0.1 to 300, and of two baselines.

    python benchmarks/frontier.py [--data-dir DIR] [--picture PICTURE.png]

Problem (ijcnn1), error measure and final mixing are those of `benchmarks/auto.py`. Rounds include
control rounds. The third curve, agreement="exact" with free sums, is a limit that no network
attains. Takes about a minute in one process; --cached draws the results of the last call.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from auto_bench import baselines, problems
from auto_bench.errors import ACCURACIES, FinalMixing, Meter, Spent, no_bounds

import gradslide as gs
from gradslide._support import storage
from gradslide.graphs.chebyshev import fast_mix_exchanges

PROBLEM, NETWORKS = "ijcnn1", ("G1", "G3", "ring")
SHOWN = (1e-2, 1e-4)
BALANCES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
LATE, EXACT, FREE = 'agreement="late"', 'agreement="exact"', '"exact", sums free'
TRACKING, NIDS = "accelerated tracking", "NIDS"
BASELINES = {TRACKING: "AcceleratedTracking", NIDS: "NIDS"}
# Multiples of the default step.
FACTORS = {TRACKING: (4.0, 8.0, 16.0), NIDS: (3.0, 6.0)}
LIMITS = {"gradients": 1_500, "rounds": 20_000}

# By kind and label of the run: (gradients, rounds) to each accuracy, None if not reached.
Points = dict[str, dict[str, list[tuple[int, int] | None]]]


def reached(method: Any, network: str, data_dir: Path | None, out: Path) -> list[Spent | None]:
    """Return the costs at which each accuracy was first reached."""
    case, graph = problems.case(PROBLEM, data_dir), problems.graph(network, data_dir)
    mixing = FinalMixing.of(graph)
    meter = Meter(case, problems.optimum(PROBLEM, data_dir, out), mixing, 4 * mixing.root, no_bounds())
    finest = ACCURACIES.index(min(SHOWN))

    def is_enough(record: gs.Record, x: np.ndarray) -> bool:
        return meter(record, x) or bool(meter.hits[finest])

    gs.solve(case.problem, graph, method, stop=gs.Stop(**LIMITS), callback=is_enough, record_every=10**9)
    hits = [meter.hits[ACCURACIES.index(accuracy)] for accuracy in SHOWN]
    return [each[0] if each else None for each in hits]


def counted(found: list[Spent | None], *, free: bool = False) -> list[tuple[int, int] | None]:
    """Return gradients and rounds; rounds include control rounds unless these are free."""
    return [each and (each[0], each[1] + (0 if free else each[2])) for each in found]


def points(network: str, data_dir: Path | None, out: Path) -> Points:
    found: Points = {LATE: {}, EXACT: {}, FREE: {}, TRACKING: {}, NIDS: {}}
    for balance in BALANCES:
        for kind, agreement in ((LATE, "late"), (EXACT, "exact")):
            spent = reached(gs.AutoPDS(balance=balance, agreement=agreement), network, data_dir, out)
            found[kind][f"{balance:g}"] = counted(spent)
            if kind == EXACT:
                found[FREE][f"{balance:g}"] = counted(spent, free=True)
    W = gs.mixing.metropolis(problems.graph(network, data_dir))
    root = fast_mix_exchanges(W.lazy.second)
    runs = [
        (TRACKING, {"factor": factor, "K": K, "restart": False})
        for K in (1, root, 2 * root)
        for factor in FACTORS[TRACKING]
    ]
    runs += [(NIDS, {"factor": factor}) for factor in FACTORS[NIDS]]
    for name, given in runs:
        method = baselines.make(BASELINES[name], given, PROBLEM, network, data_dir)
        label = f"step x {given['factor']:g}" + (f", K = {given['K']}" if "K" in given else "")
        found[name][label] = counted(reached(method, network, data_dir, out))
    return found


def show(network: str, found: Points) -> None:
    print(f"\n{network}" + f"{'':<30}"[len(network) :] + "".join(f"{f'to {accuracy:g}':>16}" for accuracy in SHOWN))
    for kind, runs in found.items():
        for label, spent in runs.items():
            said = f"{kind}, balance {label}" if kind in (LATE, EXACT, FREE) else f"{kind}, {label}"
            print(f"{said:<40}" + "".join(f"{f'{e[0]:,} / {e[1]:,}' if e else '-':>16}" for e in spent))


def draw(found: dict[str, Points]) -> Any:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    styles = {
        LATE: {"color": "#0072B2", "marker": "o", "linewidth": 1.8, "zorder": 3, "markersize": 5},
        EXACT: {"color": "#D55E00", "marker": "s", "linewidth": 1.2, "markersize": 8, "markerfacecolor": "none"},
        FREE: {"color": "#D55E00", "marker": "", "linewidth": 1.0, "linestyle": ":"},
        TRACKING: {"color": "0.45", "marker": "^", "linestyle": "", "markersize": 6},
        NIDS: {"color": "0.45", "marker": "x", "linestyle": "", "markersize": 6},
    }
    figure, axes = plt.subplots(len(SHOWN), len(found), figsize=(12.6, 7.6), layout="constrained")
    for column, (network, each) in enumerate(found.items()):
        for row, accuracy in enumerate(SHOWN):
            axis = axes[row, column]
            for kind, runs in each.items():
                there = [(label, spent[row]) for label, spent in runs.items() if spent[row] is not None]
                axis.plot([s[0] for _, s in there], [s[1] for _, s in there], **styles[kind])
                if kind == LATE:
                    _name(axis, there)
            axis.set(xscale="log", yscale="log", title=f"{network}, to " + f"{accuracy:.0e}".replace("e-0", "e-"))
            for scale in (axis.xaxis, axis.yaxis):
                scale.set_major_locator(LogLocator(subs=(1, 2, 3, 5), numticks=12))
                scale.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
                scale.set_minor_formatter(NullFormatter())
            axis.margins(x=0.12, y=0.08)
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("gradients per agent")
    for axis in axes[:, 0]:
        axis.set_ylabel("communication rounds")
    handles = [plt.Line2D([], [], label=kind, **style) for kind, style in styles.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(styles), frameon=False)
    figure.suptitle("ijcnn1 over 100 agents: AutoPDS by balance (numbers), and baselines with several steps and K")
    return figure


def _name(axis: Any, there: list[tuple[str, tuple[int, int]]]) -> None:
    """Label each point with its balance, or with the range of balances that led to it."""
    at: dict[tuple[int, int], list[str]] = {}
    for label, spent in there:
        at.setdefault(tuple(spent), []).append(label)
    for spent, labels in at.items():
        said = labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"
        axis.annotate(said, spent, (6, 3), textcoords="offset points", color="#0072B2", fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="holds ijcnn1 and networks/*.edges; default: GRADSLIDE_DATA")
    parser.add_argument("--picture", type=Path, help="path of the picture")
    parser.add_argument("--out", type=Path, default=Path("build/frontier"))
    parser.add_argument("--cached", action="store_true", help="draw the results of the last call")
    given = parser.parse_args()
    path = given.out / "points.json"
    if given.cached:
        found = json.loads(path.read_text(encoding="utf-8"))
    else:
        found = {network: points(network, given.data_dir, given.out) for network in NETWORKS}
        storage.write_atomically(path, json.dumps(found, indent=1).encode())
    for network, each in found.items():
        show(network, each)
    if given.picture is not None:
        draw(found).savefig(given.picture, dpi=150)
        print("written:", given.picture)


if __name__ == "__main__":
    main()
