"""The fused inner iterations on a GPU: those of NumPy, to rounding. TRITON_INTERPRET=1 runs them without one."""

import os

import numpy as np
import pytest

import gradslide as gs
from gradslide.kernels import device_sliding
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


def problem_of(domain, dtype=np.float64):
    rng = np.random.default_rng(5)
    Q = np.stack([np.diag(rng.uniform(0.1, 2.0, D)) for _ in range(M)]).astype(dtype)
    return gs.Problem(gs.losses.Quadratic(Q, rng.normal(size=(M, D)).astype(dtype)), domain=domain)


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SETS)
def test_runs_are_those_of_numpy(name, dtype, launches):
    graph = gs.Graph.random(M, max_degree=5, seed=2)
    method, stop = gs.PDS(L=2.0, R=3.0), gs.Stop(iterations=6)
    problem = problem_of(SETS[name], dtype)
    host = gs.solve(problem, graph, method, stop=stop)
    device = gs.solve(problem, gs.network.Local(graph, device=DEVICE), method, stop=stop)
    assert launches
    assert device.costs.rounds == host.costs.rounds
    assert device.costs.floats_sent == host.costs.floats_sent
    digits = 1e-12 if dtype == np.float64 else 1e-5
    pairs = [(device.outputs[key], host.outputs[key]) for key in host.outputs]
    for a, b in [*pairs, (device.dual, host.dual), (device.y, host.y)]:
        np.testing.assert_allclose(a, b, rtol=0, atol=digits * (1 + np.max(np.abs(b))))


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
    gs.solve(problem_of(gs.domains.L2Ball(1.0)), there, gs.PDS(L=2.0, R=1.0), stop=stop)
    gs.solve(problem_of(gs.domains.Free()), there, gs.PDS(L=2.0, R=1.0, coupling="laplacian"), stop=stop)
    assert not launches
