"""The comparisons on images and on power grids run as a user would run them, and their data are what they say."""

import re

import numpy as np
import pytest
from example_runs import load, run

import gradslide as gs

COMPARED = ("PDS, best R", "Condat-Vu, best ratio", "PyProximal, best ratio")
# Degrees at buses 2 to 14 in the archive's solved AC power flow, with 40 MW from bus 2 and the rest from bus 1.
AC_ANGLES = [-4.98, -12.72, -10.33, -8.78, -14.22, -13.37, -13.36, -14.94, -15.1, -14.79, -15.07, -15.16, -16.04]


def table(printed):
    """The numbers of each row by its name; infinite where there is a dash."""
    rows = {}
    for line in printed.splitlines():
        found = re.match(r"(\S.*?)((?:  +(?:-|[-\d.,e]+))+)(?:  stopped)?$", line)
        if found and re.match(r"PDS|Condat|PyProximal", line):
            cells = found[2].replace(",", "").split()
            rows[" ".join(found[1].split())] = [np.inf if cell == "-" else float(cell) for cell in cells]
    return rows


@pytest.fixture(scope="module")
def power_flow():
    return load("comparisons/power_flow")


@pytest.fixture(scope="module")
def deblurring():
    return load("comparisons/tv_deblurring")


@pytest.mark.slow
def test_deblurring_takes_fewer_gradients_than_the_best_of_its_rivals(tmp_path):
    printed = run("comparisons/tv_deblurring", tmp_path, "picture.png")
    rows = table(printed)
    assert len(rows) == 7
    ours, condat, theirs = (next(cells for name, cells in rows.items() if start in name) for start in COMPARED)
    for gradients, products in ((0, 1), (3, 4), (6, 7)):
        assert ours[gradients] < min(condat[gradients], theirs[gradients])
        assert ours[products] > theirs[products], "sliding trades gradients for products"
    assert min(cells[-1] for cells in rows.values()) > 21, "PSNR"
    assert float(re.search(r"certified to a relative (\S+)", printed)[1]) <= 5e-5
    assert "fewest products to 1e-04: PyProximal" in printed or "fewest products to 1e-04: Condat-Vu" in printed


@pytest.mark.slow
def test_power_flow_finds_dispatch_and_prices(tmp_path):
    printed = run("comparisons/power_flow", tmp_path, "picture.png")
    rows = table(printed)
    assert len(rows) == 10
    stages = [cells for name, cells in rows.items() if "stages" in name]
    others = [cells for name, cells in rows.items() if "Condat-Vu, best" in name]
    for ours, theirs in zip(stages, others, strict=True):
        assert ours[0] < theirs[0] / 5, "gradients"
        assert ours[1] > theirs[1], "products"
        assert abs(ours[3]) < 2e-4, "cost"
        assert ours[4] <= 0.01, "violation"
        assert ours[5] < 0.05, "price"
    assert "7766.71 $/h" in printed
    assert re.search(r"fewest products .*: Condat-Vu", printed)


def test_the_lens_has_its_adjoint_and_rows_that_sum_to_one(deblurring):
    rng, K = np.random.default_rng(0), deblurring.Lens()
    x, z = rng.normal(size=(2, deblurring.PIXELS))
    assert z @ K.matvec(x) == pytest.approx(x @ K.rmatvec(z), rel=1e-10)
    np.testing.assert_allclose(K.matvec(np.ones(deblurring.PIXELS)), 1, atol=1e-12)
    assert K.products == 3


def test_the_smoothness_of_the_blur_is_a_bound_and_not_a_loose_one(deblurring):
    K = deblurring.Lens()
    v = np.random.default_rng(0).random(deblurring.PIXELS)
    for _ in range(30):
        v = K.rmatvec(K.matvec(v / np.linalg.norm(v)))
    bound = K.rmatvec(np.ones(deblurring.PIXELS)).max()
    assert 0.9 * bound < np.linalg.norm(v) <= bound


def test_the_gradient_is_that_of_the_value(deblurring):
    rng, K = np.random.default_rng(0), deblurring.Lens()
    D = deblurring.pylops.Gradient((deblurring.SIDE, deblurring.SIDE), kind="forward")
    loss = deblurring.saddle(K, D, rng.random(deblurring.PIXELS)).loss
    x, way = rng.random((2, 1, deblurring.PIXELS))
    slope = float(np.vdot(loss.gradient(x), way))
    assert (loss.value(x + 1e-4 * way) - loss.value(x - 1e-4 * way)).item() / 2e-4 == pytest.approx(slope, rel=1e-6)
    value, gradient = loss.value_and_gradient(x)
    np.testing.assert_allclose(value, loss.value(x))
    np.testing.assert_array_equal(gradient, loss.gradient(x))


def test_total_variation_is_the_sum_of_the_lengths_of_slopes(deblurring):
    rng, K, side = np.random.default_rng(0), deblurring.Lens(), deblurring.SIDE
    D = deblurring.pylops.Gradient((side, side), kind="forward")
    problem = deblurring.saddle(K, D, np.zeros(deblurring.PIXELS))
    x = rng.random((side, side))
    down, right = np.zeros((2, side, side))
    down[:-1], right[:, :-1] = np.diff(x, axis=0), np.diff(x, axis=1)
    found = problem.duals.conjugate(problem.product(x.reshape(1, -1)))
    assert found == pytest.approx(deblurring.LAM * np.hypot(down, right).sum())


def test_the_power_grid_has_the_published_totals(power_flow):
    assert power_flow.LOADS.sum() == pytest.approx(259.0)
    assert power_flow.MOST.sum() == pytest.approx(772.4)
    assert len(set(power_flow.LINES)) == 20
    assert power_flow.REACTANCE.sum() == pytest.approx(4.02683)
    transformers = {line for line, tap in zip(power_flow.LINES, power_flow.TAP, strict=True) if tap != 1}
    assert transformers == {(4, 7), (4, 9), (5, 6)}


def test_lines_neither_make_nor_lose_power(power_flow):
    balance = power_flow.Grid(power_flow.LIMITS).A[: power_flow.BUSES]
    of_units, of_angles = np.split(balance.sum(axis=0), [power_flow.UNITS])
    np.testing.assert_allclose(of_units, 1)
    np.testing.assert_allclose(of_angles, 0, atol=1e-12)


def test_angles_are_near_those_of_the_archives_ac_power_flow(power_flow):
    into_angles = power_flow.Grid(power_flow.LIMITS).A[: power_flow.BUSES, power_flow.UNITS :]
    injected = -power_flow.LOADS
    injected[0] += power_flow.LOADS.sum() - 40
    injected[1] += 40
    unit = np.degrees(np.mean(power_flow.REACTANCE * power_flow.TAP))
    angles = unit * np.linalg.lstsq(into_angles, -injected / power_flow.BASE, rcond=None)[0]
    # A direct current model has no losses and no reactive power: about a degree off.
    np.testing.assert_allclose(angles, AC_ANGLES, atol=1.2)


def test_without_limits_the_cost_is_that_of_matpower_and_every_price_alike(power_flow):
    grid = power_flow.Grid({(1, 2): 1e4})
    exact = grid.exact()
    assert power_flow.BASE * exact.cost == pytest.approx(7642.59, abs=0.01)
    assert np.ptp(exact.z[: power_flow.BUSES]) < 1e-4


def test_both_limits_bind_and_prices_differ(power_flow):
    grid = power_flow.Grid(power_flow.LIMITS)
    exact = grid.exact()
    flows = power_flow.BASE * abs(grid.flows @ exact.x)
    for line, most in power_flow.LIMITS.items():
        assert flows[power_flow.LINES.index(line)] == pytest.approx(most, rel=1e-5)
    assert np.ptp(exact.z[: power_flow.BUSES]) > 1
    assert grid.violation(exact.x) < 1e-4
    assert grid.violation(1.01 * exact.x) > 0.1


@pytest.mark.parametrize("bus", [1, 2, 14])
def test_a_price_is_what_a_little_more_load_costs(power_flow, monkeypatch, bus):
    costs = []
    exact = power_flow.Grid(power_flow.LIMITS).exact()
    for more in (-1.0, 1.0):
        loads = power_flow.LOADS.copy()
        loads[bus - 1] += more
        monkeypatch.setattr(power_flow, "LOADS", loads)
        costs.append(power_flow.BASE * power_flow.Grid(power_flow.LIMITS).exact().cost)
        monkeypatch.undo()
    assert (costs[1] - costs[0]) / 2 == pytest.approx(-exact.z[bus - 1], rel=2e-3)


@pytest.mark.parametrize("scaling", [None, "rows"])
def test_the_multipliers_of_a_solution_are_those_of_clarabel(power_flow, scaling):
    grid = power_flow.Grid(power_flow.LIMITS)
    exact, problem = grid.exact(), grid.problem(scaling)
    found = power_flow.run(problem, gs.CondatVu(ratio=30.0), exact.cost)
    assert found.solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(found.z, exact.z, atol=0.05)
    assert abs(found.z + exact.z).max() > 50, "a wrong sign would be seen"
