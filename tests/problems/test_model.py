"""The quadratic model over a set: its minimum against a generic solver, whatever the units of the coordinates."""

import numpy as np
import pytest

import gradslide as gs
from gradslide.problems.model import can_model, minimize_model

M, D = 3, 5
NORMAL = np.random.default_rng(0).normal(size=D)
DOMAINS = {
    "free": gs.domains.Free(),
    "box": gs.domains.Box(-0.3, 0.5),
    "nonnegative": gs.domains.NonNegative(),
    "l1": gs.domains.Free(penalty=gs.L1(0.2)),
    "elastic net": gs.domains.Free(penalty=gs.ElasticNet(0.2, 0.3)),
    "box and l1": gs.domains.Box(-0.4, 0.4, penalty=gs.L1(0.1)),
    "half-space": gs.domains.Halfspace(NORMAL, 0.1),
    "affine": gs.domains.Affine(np.stack([NORMAL, NORMAL[::-1]]), np.zeros(2)),
    "l2 ball": gs.domains.L2Ball(0.4),
    "l1 ball": gs.domains.L1Ball(0.6),
    "simplex": gs.domains.Simplex(),
    "groups": gs.domains.Free(penalty=gs.GroupL1(0.2, [[0, 1], [2, 3, 4]])),
}


def model(seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(8, D))
    return A.T @ A, A.T @ rng.normal(size=8)


def by_prox_gradients(x, g, H, domain, mu, steps=1_500):
    """Plain prox-gradient steps."""
    L = np.linalg.eigvalsh(H)[-1]
    u = x.copy()
    for _ in range(steps):
        slope = g + H @ (u - x)
        theta = (L * domain.grad_nu(u[None].repeat(M, 0)) - slope) / M
        u = domain.prox(theta, mu + L / M)[0]
    return u


@pytest.mark.parametrize("mu", [0.0, 0.2])
@pytest.mark.parametrize("name", DOMAINS)
def test_the_minimum_is_that_of_plain_prox_gradients(name, mu):
    domain = DOMAINS[name].bind(M, D, np.float64)
    assert can_model(domain)
    for seed in range(2):
        H, g = model(seed)
        x = domain.project(np.random.default_rng(seed).normal(size=(1, D)).repeat(M, 0))[0]
        found = minimize_model(x, g, H, domain, mu, M)
        expected = by_prox_gradients(x, g, H, domain, mu)

        def objective(u, x=x, g=g, H=H):
            rows = u[None].repeat(M, 0)
            return g @ (u - x) + (u - x) @ H @ (u - x) / 2 + M * (mu * domain.nu(rows) + domain.r(rows))[0]

        gain = objective(x) - objective(expected)
        assert found.decrease <= gain + 1e-9
        assert gain <= (found.decrease + found.missed) * (1 + 1e-7) + 1e-12
        assert found.missed <= 1e-2 * gain + 1e-12
        np.testing.assert_allclose(objective(x) - objective(found.x), found.decrease, atol=1e-9)
        assert domain.contains(found.x[None].repeat(M, 0), 1e-9).all()


UNITS = 10.0 ** np.array([-6, -3, 0, 3, 6])


@pytest.mark.parametrize(
    ("domain", "scaled"),
    [
        (gs.domains.Free(), gs.domains.Free()),
        (gs.domains.NonNegative(), gs.domains.NonNegative()),
        (gs.domains.Box(-0.3, 0.5), gs.domains.Box(-0.3 / UNITS, 0.5 / UNITS)),
        (gs.domains.Free(penalty=gs.L1(0.2)), gs.domains.Free(penalty=gs.L1(0.2 * UNITS))),
    ],
    ids=["free", "nonnegative", "box", "l1"],
)
def test_units_do_not_matter(domain, scaled):
    """Coordinates in other units, with bounds and weights in theirs: the decrease is the same."""
    H, g = model(7)
    one, other = (each.bind(M, D, np.float64) for each in (domain, scaled))
    x = np.full(D, 0.1)
    found = minimize_model(x, g, H, one, 0.0, M)
    again = minimize_model(x / UNITS, g * UNITS, H * np.outer(UNITS, UNITS), other, 0.0, M)
    assert again.decrease == pytest.approx(found.decrease, rel=1e-6)
    np.testing.assert_allclose(again.x * UNITS, found.x, rtol=1e-4, atol=1e-7)


def test_duplicated_columns_are_harmless_and_a_slope_without_end_is_seen():
    H, g = np.ones((2, 2)), np.array([1.0, 1.0])
    free = gs.domains.Free().bind(1, 2, np.float64)
    assert minimize_model(np.zeros(2), g, H, free, 0.0, 1).decrease == pytest.approx(0.5)
    assert minimize_model(np.zeros(2), np.array([1.0, -1.0]), H, free, 0.0, 1).decrease > 1e6


def test_prox_steps_that_stall_are_not_taken_for_the_minimum():
    """Columns of very different scales in one group: what the steps miss is part of the estimate."""
    rng = np.random.default_rng(2)
    units = 10.0 ** np.array([-4.0, 4.0, 0.0, 3.0, -3.0])
    A = rng.normal(size=(20, D))
    b = A @ rng.normal(size=D)
    H, g = A.T @ A * np.outer(units, units), -units * (A.T @ b)
    domain = gs.domains.Free(penalty=gs.GroupL1(1e-9, [[0, 1], [2, 3, 4]])).bind(M, D, np.float64)
    found = minimize_model(np.zeros(D), g, H, domain, 0.0, M)
    # Without the penalty, which is negligible, the minimum gains b'b/2.
    assert found.decrease + found.missed >= 0.99 * (b @ b) / 2


@pytest.mark.parametrize("kind", ["affine", "halfspace"])
def test_units_do_not_matter_on_planes(kind):
    """Curvatures of 1e-10 beside those of 1e10."""
    rng = np.random.default_rng(0)
    d, units = 6, 10.0 ** np.array([-5, 5, 0, 3, -3, 4])
    root, normals = rng.normal(size=(20, d)), rng.normal(size=(2, d))
    H, g = root.T @ root, rng.normal(size=d)
    # Out of the half-space.
    g = g if kind == "affine" or normals[0] / units @ np.linalg.solve(H, -g) > 0 else -g

    def decrease(H, g, normals):
        domain = gs.domains.Affine(normals, np.zeros(2)) if kind == "affine" else gs.domains.Halfspace(normals[0], 0.0)
        return minimize_model(np.zeros(d), g, H, domain.bind(1, d, np.float64), 0.0, 1).decrease

    expected = decrease(H, g, normals / units)
    assert decrease(H * np.outer(units, units), g * units, normals) == pytest.approx(expected, rel=1e-6)


def test_a_penalty_on_groups_without_curvature():
    """Prox steps are very long, but finite: the minimum at 0 is found."""
    domain = gs.domains.Free(penalty=gs.GroupL1(10.0, groups=[0, 0, 1])).bind(1, 3, np.float64)
    x, g = np.array([0.0, 0.0, -1e-5]), np.array([3.0, 4.0, -9.0])
    found = minimize_model(x, g, np.zeros((3, 3)), domain, 0.0, 1)
    np.testing.assert_array_equal(found.x, 0.0)
    assert found.decrease == pytest.approx(1.9e-4)
    assert found.missed == 0
