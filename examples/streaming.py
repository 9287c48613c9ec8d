"""Ten engines learn one misfire detector from live streams, none of which leaves its engine.

Each engine's sensor takes 5 ms to deliver 8 samples, and each exchange with the neighbours takes 1 ms. SPDS collects
the samples of the next outer iteration while the network communicates. The same run without overlap is the baseline.
Prints a table and draws loss against samples and against wall clock.

    python examples/streaming.py [PICTURE.png]
"""

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import gradslide as gs

ENGINES, BATCH, SAMPLES = 10, 8, 2_000
SENSOR_SECONDS, EXCHANGE_SECONDS = 0.005, 0.001


def sensor(features, labels, seed):
    """A live stream: samples of one engine as they come, for ever."""
    rng = np.random.default_rng(seed)
    while True:
        time.sleep(SENSOR_SECONDS)
        rows = rng.integers(len(labels), size=BATCH)
        yield features[rows], labels[rows]


def main(picture: Path) -> None:
    data = gs.data.misfire()
    drives = gs.data.split("contiguous", data.labels, ENGINES)
    # Every fourth row only measures the loss and tells how smooth it is; the method never sees it.
    held_out = [drive[::4] for drive in drives]
    live = [np.setdiff1d(drive, rows) for drive, rows in zip(drives, held_out, strict=True)]
    loss = gs.losses.Logistic(data.features, data.labels, splits=held_out, reduction="mean")
    problem = gs.Problem(loss, gs.domains.L2Ball(5.0), mu=0.01)
    network = gs.network.Delayed(gs.Graph.random(ENGINES, max_degree=3, seed=1), EXCHANGE_SECONDS)

    solutions = {}
    for name, overlap in {"one after the other": False, "at the same time": True}.items():
        streams = [sensor(data.features[rows], data.labels[rows], seed) for seed, rows in enumerate(live)]
        oracle = gs.oracles.Stream(streams, overlap=overlap, workers=ENGINES)
        solutions[name] = gs.solve(problem, network, gs.SPDS(samples=SAMPLES, oracle=oracle), progress=name)

    print(f"{'sampling and communicating':28}{'samples':>9}{'rounds':>8}{'loss':>9}{'disagreement':>14}{'seconds':>9}")
    for name, solution in solutions.items():
        costs, last = solution.costs, solution.history[-1]
        print(
            f"{name:28}{costs.samples:9,}{costs.rounds:8,}{last.objective / ENGINES:9.4f}{last.disagreement:14.2g}"
            f"{costs.seconds:9.2f}"
        )
    before, after = solutions.values()
    print(f"the same answer to the last bit: {np.array_equal(before.x, after.x)}")
    print(f"overlap is {before.costs.seconds / after.costs.seconds:.2f} times as fast")

    draw({name: solution.history.to_dict() for name, solution in solutions.items()}).savefig(picture, dpi=150)
    print("written:", picture)


def draw(runs):
    figure, axes = plt.subplots(2, 2, figsize=(10.4, 6.4), sharey="row", layout="constrained")
    for row, column in zip(axes, ("objective", "disagreement"), strict=True):
        for axis, cost in zip(row, ("samples", "seconds"), strict=True):
            for dash, (name, way) in zip(("-", "--"), runs.items(), strict=True):
                axis.plot(way[cost], way[column], dash, label=name)
            axis.set(xlabel=cost, yscale="log" if column == "disagreement" else "linear")
            axis.grid(alpha=0.3)
        row[0].set_ylabel(column)
    axes[0, 1].legend(frameon=False)
    figure.suptitle("Ten engines learn from live streams (SPDS)")
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("streaming.png"))
