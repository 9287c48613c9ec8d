"""Power grids from MATPOWER case files, and their DC optimal power flow as arrays: whole, or split into areas.

In the DC model the power on a line from bus f to bus t is (angle_f - angle_t - shift) / (x tap), in units of `base` MW,
and there are no losses. The cheapest dispatch serves the demand at every bus within the limits of units and lines; the
multiplier of a bus's balance is the price there. Case files of many grids: https://github.com/power-grid-lib/pglib-opf
"""

import re
from collections import deque
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

# Columns of the tables of a case file.
BUS, KIND, DEMAND, SHUNT = 0, 1, 2, 4
UNIT_BUS, UNIT_STATUS, UNIT_MOST, UNIT_LEAST = 0, 7, 8, 9
COST_MODEL, COST_TERMS, COST_FIRST = 0, 3, 4
FROM, TO, REACTANCE, RATING, TAP, SHIFT, LINE_STATUS, LEAST_ANGLE, MOST_ANGLE = 0, 1, 3, 5, 8, 9, 10, 11, 12
REFERENCE, ISOLATED, POLYNOMIAL = 3, 4, 2
# Limits on the difference of angles that are none: 0 (in degrees), or at least this.
NO_ANGLE = 360.0


class Case(NamedTuple):
    """A grid: what is in service. Buses are counted from 0, powers are in units of `base`, angles in radians.

    Attributes
    ----------
    base : float
        MW per unit of power.
    names, demand : ndarray, shape (buses,)
        Numbers of the buses in the file, and their demand with what shunts take.
    reference : int
        The bus whose angle is 0.
    at, least, most, square, linear : ndarray, shape (units,)
        Buses of the generating units, their limits, and their costs in $/h: square p^2 + linear p.
    offset : float
        Constant costs of all units in $/h.
    ends : ndarray, shape (lines, 2)
        Buses of the lines.
    gain, shift : ndarray, shape (lines,)
        Power per angle, and the phase shift.
    low, high : ndarray, shape (lines,)
        Limits of the difference of the angles at the ends, by the line's rating and by stability.
    """

    base: float
    names: np.ndarray
    demand: np.ndarray
    reference: int
    at: np.ndarray
    least: np.ndarray
    most: np.ndarray
    square: np.ndarray
    linear: np.ndarray
    offset: float
    ends: np.ndarray
    gain: np.ndarray
    shift: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Area(NamedTuple):
    """The program of some buses: minimize x'Qx/2 + c'x + offset, lower <= A x <= upper and low <= x <= high.

    x holds the powers of the area's units, then the angles at its buses, then copies of those at the far ends of its
    tie lines. The first rows of A are the balances of its buses, the others limits of lines. A tie line's limit belongs
    to the area of its first bus. The areas' programs together, with sum of coupling_i x_i = 0, are the program of the
    whole grid: each row of `coupling` says that a copy is the angle that it copies.

    Attributes
    ----------
    buses, units, copied : ndarray
        Own buses, own units and the buses whose angles are copied.
    Q : sparse array, shape (n, n)
    c, low, high : ndarray, shape (n,)
    offset : float
    A : sparse array, shape (k, n)
    lower, upper : ndarray, shape (k,)
    coupling : sparse array, shape (copies of all areas, n)
    """

    buses: np.ndarray
    units: np.ndarray
    copied: np.ndarray
    Q: sp.csr_array
    c: np.ndarray
    offset: float
    A: sp.csr_array
    lower: np.ndarray
    upper: np.ndarray
    low: np.ndarray
    high: np.ndarray
    coupling: sp.csr_array


def read_case(path: Path | str) -> Case:
    """The grid of a MATPOWER case file (version 2)."""
    text = re.sub(r"%[^\n]*", "", Path(path).read_text(encoding="utf-8"))
    tables = {name: table_of(rows) for name, rows in re.findall(r"mpc\.(\w+)\s*=\s*\[(.*?)\]", text, re.DOTALL)}
    base = re.search(r"mpc\.baseMVA\s*=\s*([\d.eE+-]+)", text)
    missing = [name for name in ("bus", "gen", "branch", "gencost") if not len(tables.get(name, ()))]
    if missing or base is None:
        raise ValueError(f"{path} is no MATPOWER case: it lacks {', '.join(missing) or 'baseMVA'}")
    if len(tables.get("dcline", ())):
        raise ValueError(f"{path} has direct current lines, which this example does not model")
    return case_of(float(base[1]), *(tables[name] for name in ("bus", "gen", "branch", "gencost")))


def table_of(text: str) -> np.ndarray:
    """A table of a case file; rows end with a semicolon or the line, and may have different lengths."""
    rows = [row.replace(",", " ").split() for row in re.split(r"[;\n]", text)]
    width = max(map(len, rows))
    return np.array([[*map(float, row), *[0.0] * (width - len(row))] for row in rows if row])


def case_of(base: float, bus: np.ndarray, gen: np.ndarray, branch: np.ndarray, gencost: np.ndarray) -> Case:
    """The grid of the tables of a case file, without what is out of service."""
    bus = bus[bus[:, KIND] != ISOLATED]
    bus = bus[np.argsort(bus[:, BUS])]
    names = bus[:, BUS].astype(int)
    references = np.flatnonzero(bus[:, KIND] == REFERENCE)
    if len(references) != 1:
        raise ValueError(f"a case needs one reference bus; this one has {len(references)}")
    on = (gen[:, UNIT_STATUS] > 0) & np.isin(gen[:, UNIT_BUS], names)
    costs = np.array([polynomial(row) for row in gencost[: len(gen)]])
    offset = float(costs[on, 2].sum())
    # Condensers make no real power.
    on &= np.any(gen[:, [UNIT_LEAST, UNIT_MOST]] != 0, axis=1)
    live = (branch[:, LINE_STATUS] > 0) & np.isin(branch[:, [FROM, TO]], names).all(axis=1)
    gen, costs, branch = gen[on], costs[on], branch[live]
    tap = np.where(branch[:, TAP] == 0, 1.0, branch[:, TAP])
    gain, shift = 1 / (branch[:, REACTANCE] * tap), np.radians(branch[:, SHIFT])
    most = np.where(branch[:, RATING] > 0, branch[:, RATING] / base / abs(gain), np.inf)
    least, greatest = np.radians(branch[:, [LEAST_ANGLE, MOST_ANGLE]]).T
    least = np.where((least == 0) | (least <= -np.radians(NO_ANGLE)), -np.inf, least)
    greatest = np.where((greatest == 0) | (greatest >= np.radians(NO_ANGLE)), np.inf, greatest)
    return Case(
        base=base,
        names=names,
        demand=(bus[:, DEMAND] + bus[:, SHUNT]) / base,
        reference=int(references[0]),
        at=np.searchsorted(names, gen[:, UNIT_BUS]),
        least=gen[:, UNIT_LEAST] / base,
        most=gen[:, UNIT_MOST] / base,
        square=base**2 * costs[:, 0],
        linear=base * costs[:, 1],
        offset=offset,
        ends=np.searchsorted(names, branch[:, [FROM, TO]]),
        gain=gain,
        shift=shift,
        low=np.maximum(shift - most, least),
        high=np.minimum(shift + most, greatest),
    )


def polynomial(row: np.ndarray) -> np.ndarray:
    """Coefficients of p^2, p and 1 in a row of costs."""
    terms = int(row[COST_TERMS])
    if row[COST_MODEL] != POLYNOMIAL or terms > 3:
        raise ValueError("costs must be polynomials of degree 2 at most")
    return np.concatenate([np.zeros(3 - terms), row[COST_FIRST : COST_FIRST + terms]])


def whole(case: Case) -> Area:
    """The program of the whole grid."""
    return split(case, np.zeros(len(case.names), dtype=int))[0]


def split(case: Case, labels: np.ndarray) -> list[Area]:
    """The programs of all areas; labels[i] is the area of bus i, counted from 0."""
    areas = range(labels.max() + 1)
    # The buses at the far ends of each area's tie lines.
    copied = []
    for area in areas:
        near = labels[case.ends] == area
        copied.append(np.setdiff1d(case.ends[:, ::-1][near], np.flatnonzero(labels == area)))
    return [area_of(case, labels, area, copied) for area in areas]


def area_of(case: Case, labels: np.ndarray, area: int, copied: list[np.ndarray]) -> Area:
    """The program of one area, where all areas copy the angles at these buses."""
    buses, units = np.flatnonzero(labels == area), np.flatnonzero(labels[case.at] == area)
    angles = np.concatenate([buses, copied[area]])
    n = len(units) + len(angles)
    row, column = np.full((2, len(labels)), -1)
    row[buses], column[angles] = np.arange(len(buses)), len(units) + np.arange(len(angles))
    # Lines with an end here: the differences of angles along them, and what leaves the area's buses over them.
    lines = np.flatnonzero((labels[case.ends] == area).any(axis=1))
    ends, gain = case.ends[lines], case.gain[lines]
    along = entries(np.arange(len(lines)), column[ends[:, 0]], 1.0, (len(lines), n))
    along -= entries(np.arange(len(lines)), column[ends[:, 1]], 1.0, (len(lines), n))
    leaving = sp.csr_array((len(buses), len(lines)))
    for side, sign in ((0, 1.0), (1, -1.0)):
        here = np.flatnonzero(labels[ends[:, side]] == area)
        leaving += entries(row[ends[here, side]], here, sign, leaving.shape)
    feeding = entries(row[case.at[units]], np.arange(len(units)), 1.0, (len(buses), n))
    balance = case.demand[buses] - leaving @ (gain * case.shift[lines])
    # Limits of power, up to the constant shift; the gain of a series capacitor is negative.
    low, high = np.sort([gain * case.low[lines], gain * case.high[lines]], axis=0)
    limited = (np.isfinite(low) | np.isfinite(high)) & (labels[ends[:, 0]] == area)
    free = np.where(angles == case.reference, 0.0, np.inf)
    return Area(
        buses=buses,
        units=units,
        copied=copied[area],
        Q=sp.diags_array(np.concatenate([2 * case.square[units], np.zeros(len(angles))]), format="csr"),
        c=np.concatenate([case.linear[units], np.zeros(len(angles))]),
        offset=case.offset if area == 0 else 0.0,
        A=sp.vstack([feeding - leaving @ (sp.diags_array(gain) @ along), gain[limited, None] * along[limited]], "csr"),
        lower=np.concatenate([balance, low[limited]]),
        upper=np.concatenate([balance, high[limited]]),
        low=np.concatenate([case.least[units], -free]),
        high=np.concatenate([case.most[units], free]),
        coupling=coupling_of(labels, area, copied, column, n),
    )


def coupling_of(labels: np.ndarray, area: int, copied: list[np.ndarray], column: np.ndarray, n: int) -> sp.csr_array:
    """The area's block of the rows "copy - angle = 0", one for each copy, those of the first area first."""
    copier = np.repeat(np.arange(len(copied)), [len(each) for each in copied])
    bus = np.concatenate(copied)
    copies, owned = np.flatnonzero(copier == area), np.flatnonzero(labels[bus] == area)
    block = entries(copies, column[bus[copies]], 1.0, (len(bus), n))
    return block - entries(owned, column[bus[owned]], 1.0, block.shape)


def entries(rows: np.ndarray, columns: np.ndarray, value: float, shape: tuple[int, int]) -> sp.csr_array:
    """A sparse matrix of equal entries."""
    return sp.csr_array((np.full(len(rows), value), (rows, columns)), shape=shape)


def partition(case: Case, areas: int) -> np.ndarray:
    """The area of each bus: connected areas of similar sizes.

    Areas grow from buses far from each other; the smallest one that can grow takes the next bus, the nearest to its
    start. Every bus is tried as the first start. The most even partition is taken, and of those the one with the fewest
    tie lines.
    """
    n = len(case.names)
    neighbours = [set() for _ in range(n)]
    for one, other in case.ends.tolist():
        neighbours[one].add(other)
        neighbours[other].add(one)
    steps = np.array([distances(neighbours, bus) for bus in range(n)])
    if not 1 <= areas <= n or np.isinf(steps).any():
        raise ValueError(f"{areas} connected areas need a connected grid of at least as many buses, not of {n}")
    best = None
    for first in range(n):
        starts = [first]
        while len(starts) < areas:
            starts.append(int(steps[starts].min(axis=0).argmax()))
        labels = grown(neighbours, steps, starts)
        ties = np.count_nonzero(labels[case.ends[:, 0]] != labels[case.ends[:, 1]])
        badness = (*np.sort(np.bincount(labels))[::-1].tolist(), ties)
        if best is None or badness < best[0]:
            best = badness, labels
    return best[1]


def distances(neighbours: list[set[int]], start: int) -> np.ndarray:
    """Lines on the shortest way from a bus to all others."""
    steps, queue = np.full(len(neighbours), np.inf), deque([start])
    steps[start] = 0
    while queue:
        bus = queue.popleft()
        for other in sorted(neighbours[bus]):
            if np.isinf(steps[other]):
                steps[other] = steps[bus] + 1
                queue.append(other)
    return steps


def grown(neighbours: list[set[int]], steps: np.ndarray, starts: list[int]) -> np.ndarray:
    """The area of each bus, where areas grow from these starts."""
    labels = np.full(len(neighbours), -1)
    labels[starts] = np.arange(len(starts))
    while (labels < 0).any():
        sizes = np.bincount(labels[labels >= 0])
        for label in np.argsort(sizes, kind="stable").tolist():
            around = {
                other for bus in np.flatnonzero(labels == label) for other in neighbours[bus] if labels[other] < 0
            }
            if around:
                labels[min(around, key=lambda bus: (steps[starts[label], bus], bus))] = label
                break
    return labels
