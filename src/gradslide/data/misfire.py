"""A built-in data set: misfires of a simulated engine."""

import numpy as np

from gradslide._support.errors import require
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.data.dataset import Dataset

_CLOCK = 10  # positions of the engine cycle
_WINDOW = 10  # acceleration readings that a row shows
_POSITIVES = 0.1


@checked_arguments
def misfire(rows: int = 20_000, seed: int = 0) -> Dataset:
    """Simulate one drive of an engine, row by row in time.

    The data has the shape of ijcnn1, (rows, 22), with a tenth of the labels positive. Columns 0-9
    are a one-hot clock (position in the engine cycle), 10-11 speed and load, 12-21 the last ten
    readings of the crankshaft's acceleration, the current one last. Label 1 means that the current
    combustion misfired: more likely under load at low speed and in worn cylinders, and visible as a
    noisy dip of the acceleration. Speed and load change slowly, so contiguous blocks of rows
    differ.

    Parameters
    ----------
    rows : int
        Number of rows, at least 100.
    seed : int
        Seed of the simulation.

    Returns
    -------
    Dataset
        Dense float64 features with values about [-1, 1].
    """
    require(rows >= 100, "rows must be at least 100", rows, "a drive needs some length")
    steps = rows + _WINDOW - 1
    draws = np.random.Generator(np.random.PCG64(seed)).random((steps, 9))
    clock = np.arange(steps) % _CLOCK
    speed, load = _drive(draws[:, 0], draws[:, 1:3])

    # Sums of uniform numbers serve as bell-shaped noise: the same bits on every platform.
    wear = np.array([0.0, 0.05, -0.05, 0.2, 0.0, -0.1, 0.1, 0.0, -0.1, 0.05])[clock]
    roughness = wear + 0.3 * load - 0.3 * speed + draws[:, 3] + draws[:, 4] + draws[:, 5]
    fails = np.zeros(steps)
    fails[np.argsort(-roughness, kind="stable")[: round(_POSITIVES * steps)]] = 1.0

    ripple = np.array([0.1, 0.0, -0.1, 0.05, 0.1, -0.05, 0.0, 0.1, -0.1, -0.05])[clock]
    noise = draws[:, 6] + draws[:, 7] + draws[:, 8] - 1.5
    rebound = np.append(0.0, fails[:-1])
    acceleration = ripple + 0.15 * load - 0.1 * speed - 0.4 * fails + 0.2 * rebound + 0.45 * noise

    now = slice(_WINDOW - 1, None)
    features = np.hstack(
        [
            np.eye(_CLOCK)[clock[now]],
            np.column_stack([speed, load])[now],
            np.lib.stride_tricks.sliding_window_view(acceleration, _WINDOW),
        ]
    )
    return Dataset("misfire", features, 2.0 * fails[now] - 1.0, f"built in, seed {seed}")


def _drive(change: Array, goals: Array) -> Array:
    """Speed and load in [-1, 1]: random targets now and then, which the engine follows slowly."""
    states = np.empty((len(change), 2))
    state = goal = 2.0 * goals[0] - 1.0
    for step in range(len(change)):
        if change[step] < 0.003:
            goal = 2.0 * goals[step] - 1.0
        state = state + 0.02 * (goal - state)
        states[step] = state
    return states.T
