"""A temperature field from 8 thermometers and 112 switches, where every sensor has a feasible set of its own.

For those who monitor a place with many cheap sensors: data centres, soil, pipes, air. A switch only knows on which side
of its threshold the local temperature is: a half-space of fields. Sensors reach those within radio range, and there is
no collector. They agree on one field: among those that no switch rules out, the one that fits the thermometers best,
with a small ridge. Hall and sensors are simulated.

    python examples/sensor_field.py [PICTURE.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import KDTree
from scipy.stats.qmc import Halton

import gradslide as gs

SENSORS, THERMOMETERS, RANGE = 120, 8, 0.17  # how far radio reaches, in widths of the hall
USUAL, NOISE, SLACK, RIDGE = 22.0, 0.3, 0.5, 0.01  # °C, °C of thermometers, °C of switches, for each sensor
PIXELS, CENTRES = (np.stack(np.meshgrid(*2 * [np.linspace(0, 1, n)]), -1).reshape(-1, 2) for n in (101, 6))


def bumps(places, centres=CENTRES, width=0.18):
    """A field is USUAL plus a weighted sum of these."""
    return np.exp(-np.sum((places[:, None] - centres) ** 2, axis=2) / (2 * width**2))


def truth(places):
    """Two hot spots and a cold one, which no sum of our bumps meets exactly."""
    return USUAL + bumps(places, np.array([[0.3, 0.65], [0.75, 0.3], [0.8, 0.85]]), 0.16) @ [14.0, 10.0, -5.0]


def field_problem(places, rng):
    """Sensor i knows row i alone; thermometers come first. Switch i: <a_i, x> <= b_i."""
    seen, here, exact = bumps(places), truth(places) - USUAL, np.arange(SENSORS) < THERMOMETERS
    readings, thresholds = here + NOISE * rng.normal(size=SENSORS), rng.uniform(20, 32, size=SENSORS) - USUAL
    loss = gs.losses.LeastSquares(seen, readings, agents=SENSORS, sample_weight=exact.astype(float))
    side = np.where(exact, 0.0, np.where(here > thresholds, -1.0, 1.0))
    a, b = side[:, None] * seen, side * thresholds + SLACK
    sets = [gs.domains.Free() if exact[i] else gs.domains.Halfspace(a[i], b[i]) for i in range(SENSORS)]
    return gs.Problem(loss, gs.domains.PerAgent(sets), mu=RIDGE), side, a, b


def draw(fields, places, side):
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 4.5), layout="constrained")
    kinds = {"switch: warmer than its threshold": (-1, "^"), "switch: colder": (1, "v"), "thermometer": (0, "o")}
    for axis, (title, field) in zip(axes, fields.items(), strict=True):
        shown = axis.contourf(field.reshape(101, 101), levels=range(16, 38), cmap="inferno", extent=(0, 1, 0, 1))
        for label, (value, marker) in kinds.items():
            size, colour = (20, "white") if value else (60, "#56B4E9")
            axis.scatter(*places[side == value].T, size, colour, marker=marker, label=label, lw=0.5, edgecolors="black")
        axis.set(title=title, xticks=[], yticks=[], aspect="equal")
    figure.colorbar(shown, ax=axes, label="temperature, °C", pad=0.01, ticks=range(16, 38, 4))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def main(picture: Path) -> None:
    places, true = Halton(2, seed=0).random(SENSORS), truth(PIXELS)
    with_sets, side, a, b = field_problem(places, np.random.default_rng(1))
    graph = gs.Graph.from_edges(SENSORS, KDTree(places).query_pairs(RANGE, output_type="ndarray"))
    tasks = {"thermometers alone": gs.Problem(with_sets.loss, mu=RIDGE), "with every sensor's set": with_sets}
    fields, solutions = {"truth": true}, {name: gs.solve(task, graph) for name, task in tasks.items()}
    print(f"{'':25}{'error, °C':>10}{'hottest, °C':>13}{'sets missed':>13}{'gradients':>11}{'rounds':>8}")
    for name, solution in solutions.items():
        x, costs, field = solution.mean, solution.costs, USUAL + bumps(PIXELS) @ solution.mean
        error, missed = np.sqrt(np.mean((field - true) ** 2)), np.sum(a @ x > b + 0.01)
        print(f"{name:25}{error:10.2f}{field.max():13.1f}{missed:13}{costs.gradients:11,}{costs.rounds:8,}")
        fields[f"{name}\noff by {error:.2f} °C"] = field
    draw(fields, places, side).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("sensor_field.png"))
