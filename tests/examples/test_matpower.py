"""MATPOWER cases: what is in service is read right, and split grids have the cost and the prices of whole ones."""

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from example_runs import load
from real_data import DATA
from scipy.optimize import linprog

import gradslide as gs

FOLDER = DATA / "opf"
needs_cases = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no case files in {FOLDER}")
SIZES = (14, 57, 118)

# Two units and a condenser; a line without a rating, one out of service, a transformer that shifts the phase, a series
# capacitor; an isolated bus; buses that are not in order.
SMALL = """\
function mpc = small % mpc.bus = [1 2 3]
mpc.version = '2';
mpc.baseMVA = 50;
mpc.bus = [ % a comment; with a semicolon
    30	1	40	5	2	0	1	1	0	1	1	1.1	0.9;
    10	3	10	0	0	0	1	1	0	1	1	1.1	0.9; 20, 2, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1.1, 0.9
    99	4	70	0	0	0	1	1	0	1	1	1.1	0.9;
];
mpc.gen = [
    10	0	0	0	0	1	100	1	80	5;
    20	0	0	0	0	1	100	1	60	-10;
    20	0	0	0	0	1	100	0	60	0;
    30	0	0	9	-9	1	100	1	0	0;
    99	0	0	0	0	1	100	1	60	0;
];
mpc.branch = [
    10	20	0	0.1	0	25	0	0	0	0	1	-30	30;
    10	30	0	0.2	0	0	0	0	0.5	-3	1	0	0;
    20	30	0	-0.4	0	60	0	0	0	0	1	-360	10;
    20	30	0	0.1	0	60	0	0	0	0	0	-30	30;
    20	99	0	0.1	0	60	0	0	0	0	1	-30	30;
];
mpc.gencost = [
    2	0	0	3	0.02	20	7;
    2	0	0	2	30	4;
    2	0	0	3	1	1	1;
    2	0	0	3	0	0	1;
    2	0	0	3	1	1	1;
];
"""


@pytest.fixture(scope="module")
def matpower():
    return load("matpower")


@pytest.fixture(scope="module")
def cases(matpower):
    return {size: matpower.read_case(FOLDER / f"pglib_opf_case{size}_ieee.m") for size in SIZES}


def joined(areas):
    """The program of some areas and their coupling, as plain arrays."""
    k = areas[0].coupling.shape[0]
    A = [sp.block_diag([area.A for area in areas]), sp.hstack([area.coupling for area in areas])]
    c, low, high = (np.concatenate([getattr(area, name) for area in areas]) for name in ("c", "low", "high"))
    lower, upper = (np.concatenate([*(getattr(a, side) for a in areas), np.zeros(k)]) for side in ("lower", "upper"))
    return sp.block_diag([area.Q for area in areas], format="csr"), c, sp.vstack(A, "csr"), lower, upper, low, high


def by_gradslide(areas):
    Q, c, A, lower, upper, low, high = joined(areas)
    loss, domain = gs.losses.Quadratic(Q, c), gs.domains.Box(low, high)
    problem = gs.LinearlyConstrained(loss, A, lower=lower, upper=upper, domain=domain)
    solution = gs.solve(problem)
    assert solution.status is gs.Status.CONVERGED
    return solution.mean, -solution.dual


def by_clarabel(areas):
    Q, c, A, lower, upper, low, high = joined(areas)
    x = cp.Variable(len(c))
    rows = [A[lower == upper] @ x == lower[lower == upper]]
    for side, sign in ((lower, -1.0), (upper, 1.0)):
        given = (lower != upper) & np.isfinite(side)
        rows.append(sign * (A[given] @ x) <= sign * side[given])
    for side, sign in ((low, -1.0), (high, 1.0)):
        rows.append(sign * x[np.isfinite(side)] <= sign * side[np.isfinite(side)])
    curved = cp.sum_squares(cp.multiply(np.sqrt(Q.diagonal() / 2), x))
    problem = cp.Problem(cp.Minimize(curved + c @ x), rows)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    prices = np.zeros(len(lower))
    prices[lower == upper] = -rows[0].dual_value
    return x.value, prices


def by_highs(areas):
    _, c, A, lower, upper, low, high = joined(areas)
    exact = lower == upper
    A_ub, b_ub = sp.vstack([A[~exact], -A[~exact]]), np.r_[upper[~exact], -lower[~exact]]
    found = linprog(c, A_ub, b_ub, A[exact], lower[exact], np.c_[low, high])
    prices = np.zeros(len(lower))
    prices[exact] = found.eqlin.marginals
    return found.x, prices


def cost_and_prices(case, areas, solve):
    """The cost in $/h, and the price at each bus in $/MWh."""
    x, of_rows = solve(areas)
    Q, c = joined(areas)[:2]
    prices, place = np.full(len(case.names), np.nan), 0
    for area in areas:
        prices[area.buses] = of_rows[place : place + len(area.buses)] / case.base
        place += len(area.lower)
    return x @ (Q @ x) / 2 + c @ x + sum(area.offset for area in areas), prices


# ---- reading


def test_what_is_in_service_is_read(matpower, tmp_path):
    path = tmp_path / "small.m"
    path.write_text(SMALL, encoding="utf-8")
    case = matpower.read_case(path)
    assert (case.base, case.names.tolist(), case.reference) == (50, [10, 20, 30], 0)
    np.testing.assert_allclose(case.demand, [0.2, 0, 0.84], err_msg="the shunt takes 2 MW")
    assert case.at.tolist() == [0, 1]
    np.testing.assert_allclose([case.least, case.most], [[0.1, -0.2], [1.6, 1.2]])
    np.testing.assert_allclose(case.square, [0.02 * 50**2, 0])
    np.testing.assert_allclose(case.linear, [20 * 50, 30 * 50])
    assert case.offset == 7 + 4 + 1
    assert case.ends.tolist() == [[0, 1], [0, 2], [1, 2]]
    np.testing.assert_allclose(case.gain, [10, 10, -2.5])
    np.testing.assert_allclose(case.shift, np.radians([0, -3, 0]))
    np.testing.assert_allclose(case.low, [-0.05, -np.inf, -0.48])
    np.testing.assert_allclose(case.high, [0.05, np.inf, np.radians(10)])


def test_the_small_grid_by_hand(matpower, tmp_path):
    """Kirchhoff's laws, line by line."""
    path = tmp_path / "small.m"
    path.write_text(SMALL, encoding="utf-8")
    case = matpower.read_case(path)
    area = matpower.whole(case)
    rng = np.random.default_rng(0)
    p, angles = rng.normal(size=2), rng.normal(size=3)
    first, second = 10 * (angles[0] - angles[1]), 10 * (angles[0] - angles[2] + np.radians(3))
    third = -2.5 * (angles[1] - angles[2])
    leaving = [first + second, third - first, -second - third]
    missing = np.array([p[0], p[1], 0]) - leaving - [0.2, 0, 0.84]
    values = area.A @ np.concatenate([p, angles])
    np.testing.assert_allclose(values[:3] - area.lower[:3], missing)
    np.testing.assert_allclose(values[:3] - area.upper[:3], missing)
    # Limits of the first and the third line; the third one's power falls as the difference of angles grows.
    np.testing.assert_allclose(values[3:], [first, third])
    np.testing.assert_allclose(area.lower[3:], [-0.5, -2.5 * np.radians(10)])
    np.testing.assert_allclose(area.upper[3:], [0.5, 2.5 * 0.48])
    assert (area.low[2], area.high[2], area.high[3]) == (0, 0, np.inf)
    x = np.concatenate([p, angles])
    expected = 0.02 * (50 * p[0]) ** 2 + 20 * 50 * p[0] + 7 + 30 * 50 * p[1] + 4 + 1
    assert x @ (area.Q @ x) / 2 + area.c @ x + area.offset == pytest.approx(expected)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    2	0	0	2	30	4;", "    1	0	0	2	0 0 60 900;", "polynomials of degree 2"),
        ("3	0.02	20	7", "4	0.02	20	7	8", "polynomials of degree 2"),
        ("    10	3	10", "    10	1	10", "one reference bus; this one has 0"),
        ("mpc.gencost", "mpc.costs", "it lacks gencost"),
        ("mpc.baseMVA", "mpc.base", "it lacks baseMVA"),
        ("mpc.version = '2';", "mpc.dcline = [1 2 1 0];", "direct current lines"),
    ],
)
def test_refused(matpower, tmp_path, old, new, message):
    assert old in SMALL
    path = tmp_path / "small.m"
    path.write_text(SMALL.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        matpower.read_case(path)


@needs_cases
@pytest.mark.parametrize(
    ("size", "units", "lines", "demand"), [(14, 2, 20, 259.0), (57, 4, 80, 1250.8), (118, 19, 186, 4242.0)]
)
def test_the_library_cases_have_the_published_sizes(cases, size, units, lines, demand):
    case = cases[size]
    assert (len(case.names), len(case.at), len(case.ends)) == (size, units, lines)
    assert case.base * case.demand.sum() == pytest.approx(demand)


# ---- areas


@needs_cases
@pytest.mark.parametrize("areas", [1, 2, 4, 7])
@pytest.mark.parametrize("size", SIZES)
def test_areas_are_connected_and_of_similar_sizes(matpower, cases, size, areas):
    labels = matpower.partition(cases[size], areas)
    grid = nx.Graph(cases[size].ends.tolist())
    sizes = np.bincount(labels)
    assert len(sizes) == areas
    assert sizes.max() <= 1.5 * size / areas + 1
    assert all(nx.is_connected(grid.subgraph(np.flatnonzero(labels == area).tolist())) for area in range(areas))


def test_grids_that_cannot_be_split(matpower, tmp_path):
    path = tmp_path / "small.m"
    path.write_text(SMALL, encoding="utf-8")
    case = matpower.read_case(path)
    with pytest.raises(ValueError, match="4 connected areas need"):
        matpower.partition(case, 4)
    with pytest.raises(ValueError, match="connected grid"):
        matpower.partition(case._replace(ends=case.ends[:1]), 2)


@needs_cases
@pytest.mark.parametrize("size", SIZES)
def test_areas_share_everything_but_copies(matpower, cases, size):
    case = cases[size]
    labels = matpower.partition(case, 4)
    areas, whole = matpower.split(case, labels), matpower.whole(case)
    for name, count in (("buses", size), ("units", len(case.at))):
        assert sorted(np.concatenate([getattr(area, name) for area in areas]).tolist()) == list(range(count))
    assert sum(len(area.lower) for area in areas) == len(whole.lower), "each limit belongs to one area"
    # Any angles and powers: rows and costs of the areas are those of the whole grid.
    rng = np.random.default_rng(0)
    p, angles = rng.normal(size=len(case.at)), rng.normal(size=size)
    parts = [np.concatenate([p[area.units], angles[area.buses], angles[area.copied]]) for area in areas]
    assert abs(sum(area.coupling @ x for area, x in zip(areas, parts, strict=True))).max() < 1e-12
    balance = (whole.A @ np.concatenate([p, angles]))[:size] - whole.lower[:size]
    for area, x in zip(areas, parts, strict=True):
        n = len(area.buses)
        np.testing.assert_allclose((area.A @ x)[:n] - area.lower[:n], balance[area.buses], atol=1e-9)
    assert sum(area.c @ x for area, x in zip(areas, parts, strict=True)) == pytest.approx(whole.c @ np.r_[p, angles])
    # A row belongs to a copy in one area and the angle itself in another.
    coupling = sp.hstack([area.coupling for area in areas], format="csr")
    owners = np.repeat(np.arange(4), [len(area.c) for area in areas])
    for row in range(coupling.shape[0]):
        here = slice(*coupling.indptr[row : row + 2])
        assert sorted(coupling.data[here].tolist()) == [-1, 1]
        assert len(set(owners[coupling.indices[here]].tolist())) == 2


@needs_cases
@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_split_grids_have_the_cost_and_the_prices_of_whole_ones(matpower, cases, size, curved):
    case = cases[size]
    if curved:
        # So that many units share the load, and power is shared over full lines.
        case = case._replace(square=case.base**2 * np.linspace(0.01, 0.05, len(case.at)))
    whole = [matpower.whole(case)]
    cost, prices = cost_and_prices(case, whole, by_gradslide)
    forms = [(whole, by_clarabel), *([] if curved else [(whole, by_highs)])]
    for areas in (3, 5):
        split = matpower.split(case, matpower.partition(case, areas))
        forms += [(split, by_gradslide), (split, by_clarabel)]
    for areas, solve in forms:
        other_cost, other_prices = cost_and_prices(case, areas, solve)
        assert other_cost == pytest.approx(cost, rel=1e-6)
        np.testing.assert_allclose(other_prices, prices, rtol=1e-6)
    assert prices.min() > 5
    assert np.ptp(prices) > 2 or size != 118, "lines are full"


@needs_cases
def test_a_price_is_what_a_little_more_load_costs(matpower, cases):
    case = cases[118]._replace(square=cases[118].base ** 2 * np.linspace(0.01, 0.05, 19))
    _, prices = cost_and_prices(case, [matpower.whole(case)], by_gradslide)
    for bus in (0, 60, 117):
        costs = []
        for more in (-0.5, 0.5):
            demand = case.demand.copy()
            demand[bus] += more / case.base
            costs.append(cost_and_prices(case, [matpower.whole(case._replace(demand=demand))], by_gradslide)[0])
        assert costs[1] - costs[0] == pytest.approx(prices[bus], rel=1e-4)
