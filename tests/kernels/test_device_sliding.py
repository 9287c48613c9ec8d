"""The fused inner iterations on a GPU: those of NumPy, to rounding. TRITON_INTERPRET=1 runs them without one."""

import os

import numpy as np
import pytest

import gradslide as gs
from gradslide.kernels import device_sets, device_sliding
from gradslide.kernels.sets import sets_of
from gradslide.kernels.sliding import InnerStart, InnerSteps

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("triton", reason="needs Triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("needs a GPU that PyTorch can use, or TRITON_INTERPRET=1", allow_module_level=True)

DEVICE = "cpu" if INTERPRETED else "cuda"
M, D = 37, 71
OWN = np.linspace(-0.5, 0.0, M)[:, None]
SETS = {
    "free": gs.domains.Free(),
    "box l1": gs.domains.Box(-0.2, 0.3, center=0.1, penalty=gs.L1(0.05)),
    "boxes": gs.domains.Box(lo=OWN),
    "of each agent": gs.domains.PerAgent([gs.domains.NonNegative(), *[gs.domains.Free(center=0.3)] * (M - 1)]),
}
# Most agents are on the boundary, those with the largest radii in the interior.
RADII = np.geomspace(0.05, 200.0, M)
COUPLED = {
    "l2 ball": gs.domains.L2Ball(1.0),
    "l2 ball l1": gs.domains.L2Ball(2.0, center=0.1, penalty=gs.L1(0.05)),
    "l2 balls": gs.domains.L2Ball(RADII, origin=OWN),
    "l1 ball": gs.domains.L1Ball(1.0, origin=0.2),
    "l1 ball l1": gs.domains.L1Ball(1.0, penalty=gs.L1(0.05)),
    "l1 balls": gs.domains.L1Ball(RADII, origin=OWN, center=-0.1),
    "l1 balls of each agent": gs.domains.PerAgent([gs.domains.L1Ball(radius) for radius in RADII]),
    "simplex": gs.domains.Simplex(),
    "simplices": gs.domains.Simplex(total=RADII),
}


def problem_of(domain, dtype=np.float64, d=D):
    rng = np.random.default_rng(5)
    Q = np.stack([np.diag(rng.uniform(0.1, 2.0, d)) for _ in range(M)]).astype(dtype)
    return gs.Problem(gs.losses.Quadratic(Q, rng.normal(size=(M, d)).astype(dtype)), domain=domain)


@pytest.fixture
def launches(monkeypatch):
    seen = []
    launch = device_sliding.DeviceInnerLoopKernel._launch
    monkeypatch.setattr(
        device_sliding.DeviceInnerLoopKernel,
        "_launch",
        lambda self, *given: seen.append(given[0]) or launch(self, *given),
    )
    return seen


def assert_runs_agree(problem, iterations):
    graph, dtype = gs.Graph.random(M, max_degree=5, seed=2), problem.dtype
    method, stop = gs.PDS(L=2.0, R=3.0), gs.Stop(iterations=iterations)
    host = gs.solve(problem, graph, method, stop=stop)
    device = gs.solve(problem, gs.network.Local(graph, device=DEVICE), method, stop=stop)
    assert device.costs.rounds == host.costs.rounds
    assert device.costs.floats_sent == host.costs.floats_sent
    digits = 1e-12 if dtype == np.float64 else 1e-5
    pairs = [(device.outputs[key], host.outputs[key]) for key in host.outputs]
    for a, b in [*pairs, (device.dual, host.dual), (device.y, host.y)]:
        np.testing.assert_allclose(a, b, rtol=0, atol=digits * (1 + np.max(np.abs(b))))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SETS)
def test_runs_are_those_of_numpy(name, dtype, launches):
    assert_runs_agree(problem_of(SETS[name], dtype), 6)
    assert launches


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", COUPLED)
@pytest.mark.parametrize("d", [1, D])
def test_runs_over_sets_that_couple_columns_are_those_of_numpy(d, name, dtype, launches):
    assert_runs_agree(problem_of(COUPLED[name], dtype, d), 4)
    assert launches


@pytest.mark.parametrize("name", ["l2 balls", "l1 ball", "simplex"])
def test_rows_that_are_too_long_take_the_plain_path(name, launches, monkeypatch):
    monkeypatch.setattr(device_sets, "MOST_COLUMNS", D - 1)
    assert_runs_agree(problem_of(COUPLED[name]), 4)
    assert not launches


def projected(domain, v):
    """Return the projections of the rows of v: one inner iteration that starts at 0 and steps along -y = v."""
    m, d = v.shape
    there = InnerStart(*(torch.zeros(m, d, dtype=torch.tensor(v).dtype, device=DEVICE) for _ in range(5)))
    there = there._replace(y=-torch.tensor(v, device=DEVICE))
    sets = sets_of(domain.bind(m, d, v.dtype))
    kernel = device_sliding.DeviceInnerLoopKernel(gs.Graph.ring(m).laplacian, sets, there.x)
    ones = np.ones(1)
    return kernel.run(there, InnerSteps(0.5, 0.5, ones, 0.5 * ones, ones)).x.cpu().numpy()


def on_simplex(v, total):
    """The projection of one row: bisection for the threshold."""
    low, high = v.max() - total, v.max()
    for _ in range(200):
        middle = (low + high) / 2
        is_low = np.maximum(v - middle, 0).sum() > total
        low, high = (middle, high) if is_low else (low, middle)
    return np.maximum(v - high, 0)


def in_l1_ball(v, radius):
    return v if np.abs(v).sum() <= radius else np.sign(v) * on_simplex(np.abs(v), radius)


def in_l2_ball(v, radius):
    return v * min(1.0, radius / max(np.sqrt((v * v).sum()), 1e-300))


PROJECTIONS = {
    "l2 ball": (gs.domains.L2Ball, in_l2_ball),
    "l1 ball": (gs.domains.L1Ball, in_l1_ball),
    "simplex": (gs.domains.Simplex, on_simplex),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 2, 64, 65, 300])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_are_those_of_a_naive_twin(name, d, dtype):
    domain, twin = PROJECTIONS[name]
    rng = np.random.default_rng(d)
    v = rng.normal(size=(12, d)) * 10.0 ** rng.integers(-3, 4, size=(12, 1))
    v[0], v[1], v[2] = 0.0, 1.0, -1e4
    v[3:8] = np.round(v[3:8])
    v[8] *= rng.random(d) < 0.2
    v = v.astype(dtype)
    digits = 1e-12 if dtype == np.float64 else 1e-5
    size = np.abs(v).max(axis=1, initial=1.0)
    radii = [np.ones(12), 10.0 ** rng.integers(-3, 4, size=12)]
    if name != "simplex":
        radii.append(np.zeros(12))
    for radius in radii:
        found = projected(domain(radius), v)
        for row, expected, r, tolerance in zip(found, v.astype(float), radius, digits * size, strict=True):
            np.testing.assert_allclose(row, twin(expected, r), rtol=0, atol=tolerance)


def test_rows_at_the_limit_are_projected():
    d = device_sets.MOST_COLUMNS
    v = np.random.default_rng(4).normal(size=(3, d))
    for domain, twin in PROJECTIONS.values():
        assert device_sets.serves(sets_of(domain(2.0).bind(3, d, v.dtype)), d)
        assert not device_sets.serves(sets_of(domain(2.0).bind(3, d + 1, v.dtype)), d + 1)
        for row, given in zip(projected(domain(2.0), v), v, strict=True):
            np.testing.assert_allclose(row, twin(given, 2.0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", PROJECTIONS)
def test_what_is_no_number_stays_so_in_its_row(name, dtype):
    domain, _ = PROJECTIONS[name]
    v = np.random.default_rng(3).normal(size=(5, 9)).astype(dtype)
    v[2, 4] = np.nan
    found = projected(domain(1.0), v)
    expected = domain(1.0).bind(5, 9, dtype).project(v)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_arrays_need_not_be_contiguous():
    graph = gs.Graph.ring(M)
    rng = np.random.default_rng(8)
    at = InnerStart(*(torch.tensor(rng.normal(size=(M, 9)), device=DEVICE) for _ in range(5)))
    turned = InnerStart(*(each.T.contiguous().T for each in at))
    ones = np.ones(3)
    steps = InnerSteps(0.7, 0.05, ones, ones, 1.7 * ones)
    sets = sets_of(gs.domains.Box(-1.0, 1.0).bind(M, 9, np.float64))
    one, other = (
        device_sliding.DeviceInnerLoopKernel(graph.laplacian, sets, each.x).run(each, steps) for each in (at, turned)
    )
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.cpu(), b.cpu())


def twin(at, steps, domain, laplacian):
    x, x_before, s, w, y = at
    start, total = x, [0.0, 0.0, 0.0]
    for alpha, eta, scale in zip(steps.alphas, steps.etas, steps.scales, strict=True):
        u = x + alpha * (x - x_before)
        s, w = s + steps.ascent * u, w + steps.ascent * (laplacian @ u)
        theta = eta * domain.grad_nu(x) + steps.p * domain.grad_nu(start) - y - w
        x, x_before = domain.prox(theta, scale), x
        total = [sum_ + new for sum_, new in zip(total, (x, s, w), strict=True)]
    return [x, x_before, s, w, *(sum_ / len(steps.etas) for sum_ in total)]


@pytest.mark.parametrize("T", [1, 2, 7, 8, 9, 60])
def test_each_number_of_iterations(T):
    """Recorded ones among them, one after the other with the same kernel."""
    graph = gs.Graph.random(M, max_degree=5, seed=2)
    domain = SETS["box l1"].bind(M, D, np.float64)
    sets = sets_of(domain)
    rng = np.random.default_rng(T)
    at = [rng.normal(size=(M, D)) for _ in range(5)]
    at[3] = graph.laplacian @ at[2]
    there = InnerStart(*(torch.tensor(each, device=DEVICE) for each in at))
    kernel = device_sliding.DeviceInnerLoopKernel(graph.laplacian, sets, there.x)
    for length in (T, T + 1, 3 * T, 2):
        etas = 1.0 + 0.1 * np.arange(length)
        steps = InnerSteps(0.7, 0.05, np.where(np.arange(length) == 0, 0.4, 1.0), etas, etas + 0.7)
        found = kernel.run(there, steps)
        for a, b in zip(found[:7], twin(at, steps, domain, graph.laplacian), strict=True):
            np.testing.assert_allclose(a.cpu().numpy(), b, rtol=0, atol=1e-11 * (1 + np.max(np.abs(b))))


def test_what_is_no_number_stays_so():
    graph = gs.Graph.ring(M)
    sets = sets_of(SETS["box l1"].bind(M, D, np.float64))
    at = [torch.zeros((M, D), dtype=torch.float64, device=DEVICE) for _ in range(5)]
    at[4][3, 5] = float("nan")
    ones = np.ones(3)
    found = device_sliding.DeviceInnerLoopKernel(graph.laplacian, sets, at[0]).run(
        InnerStart(*at), InnerSteps(1.0, 0.5, ones, ones, ones)
    )
    assert bool(torch.isnan(found.x[3, 5]))


def test_other_sets_and_couplings_take_the_plain_path(launches):
    graph = gs.Graph.ring(M)
    there, stop = gs.network.Local(graph, device=DEVICE), gs.Stop(iterations=2)
    mixed = gs.domains.PerAgent([gs.domains.L2Ball(1.0), *[gs.domains.L1Ball(1.0)] * (M - 1)])
    for domain in (mixed, gs.domains.EntropySimplex()):
        gs.solve(problem_of(domain), there, gs.PDS(L=2.0, R=1.0), stop=stop)
    gs.solve(problem_of(gs.domains.Free()), there, gs.PDS(L=2.0, R=1.0, coupling="laplacian"), stop=stop)
    assert not launches
