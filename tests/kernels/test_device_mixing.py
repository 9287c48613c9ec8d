"""Kernels of the gossip mode on a GPU: the results of NumPy, to rounding. TRITON_INTERPRET=1 runs them without one."""

import contextlib
import os
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide.graphs.chebyshev import damped_coefficients
from gradslide.kernels.mixing import DotsInput, MixingInput, MixingKernel, ProxInput
from gradslide.kernels.sets import sets_of
from gradslide.losses import compiled
from gradslide.methods.gossip.inner import Mixer
from gradslide.methods.gossip.sums import EPS_SINGLE, Known, Products, Sums, Unfinished, rows, tally

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("triton", reason="needs Triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("needs a GPU that PyTorch can use, or TRITON_INTERPRET=1", allow_module_level=True)

from gradslide.kernels import device_mixing, device_sliding, triton_mixing  # noqa: E402
from gradslide.kernels.device_mixing import DeviceMixingKernel, DeviceProxKernel  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"
GRAPH = gs.Graph.random(23, 5, seed=2)
DIGITS = {np.float64: 1e-12, np.float32: 2e-5}


def kernels(dtype):
    D, _, _ = GRAPH.degree_weights
    N, column = sp.csr_array(sp.diags_array(1 / D) @ GRAPH.laplacian), D[:, None].astype(dtype)
    return MixingKernel(N, column), DeviceMixingKernel(N, torch.as_tensor(column, device=DEVICE))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 64, 71])
def test_exchanges_are_those_of_numpy(d, dtype):
    host, device = kernels(dtype)
    rng = np.random.default_rng(d)
    for K, share in ((1, 0.3), (2, 1.0), (5, 0.2)):
        at = MixingInput(*(rng.normal(size=(GRAPH.m, d)).astype(dtype) for _ in MixingInput._fields))
        at = at._replace(s=at.s.astype(np.float64))
        rounds = damped_coefficients(K, least=0.3, most=3.0)
        there = MixingInput(*(torch.tensor(each, device=DEVICE) for each in at))
        found = device.run(there, 2.5, share, rounds, {"w": there.w, "y_bar": there.y_bar})
        assert found.w is there.w
        for name, expected in host.run(at, 2.5, share, rounds)._asdict().items():
            digits, size = DIGITS[dtype], max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(
                getattr(found, name).cpu(), expected, rtol=digits, atol=0.2 * digits * size, err_msg=name
            )


def test_arrays_that_are_not_contiguous_are_not_overwritten():
    host, device = kernels(np.float64)
    rng = np.random.default_rng(6)
    at = MixingInput(*(rng.normal(size=(GRAPH.m, 7)) for _ in MixingInput._fields))
    there = MixingInput(*(torch.tensor(each.T.copy(), device=DEVICE).T for each in at))
    rounds = damped_coefficients(2, least=0.3, most=3.0)
    found = device.run(there, 2.5, 0.3, rounds, {"s": there.s, "w": there.w})
    np.testing.assert_array_equal(there.w.cpu(), at.w)
    for name, expected in host.run(at, 2.5, 0.3, rounds)._asdict().items():
        np.testing.assert_allclose(getattr(found, name).cpu(), expected, rtol=1e-12, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 100, 300])
def test_inner_products_are_those_of_numpy(d, dtype):
    host, device = kernels(dtype)
    rng = np.random.default_rng(d)
    at = DotsInput(*(rng.normal(size=(GRAPH.m, d)).astype(dtype) for _ in DotsInput._fields))
    found = device.dots(DotsInput(*(torch.tensor(each, device=DEVICE) for each in at)), 0.3, 2.5)
    scale = 100 * np.sqrt(d) * DIGITS[dtype]
    D = GRAPH.degree_weights[0][:, None]
    drift = np.sum((np.abs(at.w) + 2.5 * D * np.abs(at.x_bar)) * np.abs(at.x_bar), axis=1)
    expected = [*host.dots(at, 0.3, 2.5), drift, np.sum(at.y**2, axis=1)]
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=DIGITS[dtype], atol=scale)


@pytest.mark.parametrize("is_single", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_follows_from_inner_products_is_that_of_numpy(is_first, is_single):
    rng, m = np.random.default_rng(5), GRAPH.m
    D, y = GRAPH.degree_weights[0], rng.normal(size=(m, 6)).astype(np.float32 if is_single else np.float64)
    products = Products(*rng.uniform(0.1, 1.0, size=(7, m)), np.sum(y.astype(np.float64) ** 2, axis=1))
    residuals = tuple(rng.uniform(size=(4, m)))
    under, before, bar, value, r, r_before = rng.normal(size=(6, m))
    known = Known(under, before, bar, 0.3, r, r_before, y if is_single else None)
    if is_first:
        known = known._replace(conjugate_bar=None, r_bar=None, r_before=None)

    def there(each):
        return torch.as_tensor(each, device=DEVICE) if isinstance(each, np.ndarray) else each

    _, kernel = kernels(y.dtype.type)
    mixer = Mixer(D[:, None], None, 1.0, 1.0, 1.0, kernel)
    found = mixer.tally(Products(*map(there, products)), tuple(map(there, residuals)), Known(*map(there, known)))
    expected = tally(products, residuals, D, known)
    for name, one in found.sums._asdict().items():
        other = getattr(expected.sums, name)
        if name == "drift" and is_single:
            other = EPS_SINGLE * products.drift
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_allclose(one.cpu(), other, rtol=1e-6 if is_single else 1e-14, atol=1e-14, err_msg=name)
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one.cpu(), other, rtol=1e-14, atol=1e-14)

    # One value has overflowed: that is not lost.
    value[3] = np.nan
    sums = expected.sums._replace(drift=products.drift) if is_single else expected.sums
    unfinished = Unfinished(0, 1, under, sums)
    rows_there = mixer.completed(
        unfinished._replace(value_under=there(under), sums=Sums(*map(there, sums))), there(value)
    )
    rows_here = rows(unfinished.completed(value))
    assert np.isnan(rows_here[3, :4]).tolist() == [True, False, True, True]
    np.testing.assert_allclose(rows_there.cpu(), rows_here, rtol=1e-14, atol=1e-14)


RADII = np.random.default_rng(2).uniform(0.1, 3.0, GRAPH.m)
SETS = {
    "l1": lambda rng, d: gs.domains.Free(penalty=gs.L1(0.3), center=rng.normal(size=d)),
    "box": lambda rng, d: gs.domains.Box(-rng.random(d), 0.5, penalty=gs.L1(rng.random(d))),
    "boxes": lambda rng, d: gs.domains.Box(-rng.random((GRAPH.m, d)), 0.5),
    "nonnegative": lambda rng, d: gs.domains.NonNegative(),
    "l2 ball": lambda rng, d: gs.domains.L2Ball(1.0, origin=rng.normal(size=d)),
    "l2 balls": lambda rng, d: gs.domains.L2Ball(RADII, origin=rng.normal(size=(GRAPH.m, d))),
    "l1 ball": lambda rng, d: gs.domains.L1Ball(2.0, center=rng.normal(size=d), penalty=gs.L1(0.1)),
    "simplex": lambda rng, d: gs.domains.Simplex(2.0),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 21, 300])
@pytest.mark.parametrize("name", SETS)
def test_prox_steps_are_those_of_numpy(name, d, dtype):
    rng, (D, *_) = np.random.default_rng(d), GRAPH.degree_weights
    domain, column = SETS[name](rng, d).bind(m=GRAPH.m, d=d, dtype=dtype), D[:, None].astype(dtype)
    context, mixer = SimpleNamespace(domain=domain), Mixer(column, None, 1.0, 1.0, 1.0)
    kernel = DeviceProxKernel(sets_of(domain), torch.as_tensor(column, device=DEVICE), d)
    at = ProxInput(*(rng.normal(size=(GRAPH.m, d)).astype(dtype) for _ in ProxInput._fields))
    there = ProxInput(*(torch.tensor(each, device=DEVICE) for each in at))
    digits = DIGITS[dtype] * np.sqrt(d)
    expected = mixer.stationarity(context, at, 0.3, 2.5)
    np.testing.assert_allclose(kernel.stationarity(there, 2.5, 0.3).cpu(), expected, rtol=10 * digits, atol=10 * digits)
    x_bar, u = mixer.prox_step(context, SimpleNamespace(x_bar=at.x, u=at.w), at.x_bar, 1 / 7.3, 1.7)
    kernel.step(there.x, there.x_bar, there.w, 1 / 7.3, 1.7)
    np.testing.assert_allclose(there.x.cpu(), x_bar, rtol=digits, atol=digits)
    np.testing.assert_allclose(there.w.cpu(), u, rtol=digits, atol=2 * digits)


LOSSES = {
    "logistic": gs.losses.Logistic,
    "least squares": gs.losses.LeastSquares,
    "huber": lambda *given, **more: gs.losses.Huber(*given, delta=0.3, **more),
    "hinge": lambda *given, **more: gs.losses.SmoothedHinge(*given, gamma=0.3, **more),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("is_weighted", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_those_of_numpy(name, is_weighted, dtype):
    rng, m, d = np.random.default_rng(3), 5, 21
    sizes = [3, 40, 1, 17, 33]
    features = rng.normal(size=(sum(sizes), d)).astype(dtype)
    targets = np.where(rng.random(len(features)) < 0.4, -1, 1)
    splits = np.split(np.arange(len(features)), np.cumsum(sizes)[:-1])
    weights = rng.uniform(0.5, 2.0, len(features)) if is_weighted else None
    loss = LOSSES[name](features, targets, splits=splits, sample_weight=weights)
    device = loss.to(DEVICE)
    loss.compiled = device.compiled = True
    x, before = rng.normal(size=(2, m, d)).astype(dtype)
    x_there, digits = torch.as_tensor(x, device=DEVICE), DIGITS[dtype]

    def same(found, expected):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.cpu(), other, rtol=digits, atol=50 * digits)

    same(device.value_and_gradient(x_there), loss.value_and_gradient(x))
    same([device.gradient(x_there), device.value(x_there)], [loss.gradient(x), loss.value(x)])
    scores, scores_there = loss.scores(before), device.scores(torch.as_tensor(before, device=DEVICE))
    assert scores_there.dtype == torch.float64
    same([scores_there], [scores])
    same(device.value_and_gradient_of_scores(scores_there), loss.value_and_gradient_of_scores(scores))
    same(device.extrapolation(x_there, scores_there, 0.7), loss.extrapolation(x, scores, 0.7))
    same(device.extrapolation(x_there, None, 0.0), loss.extrapolation(x, None, 0.0))


DOMAINS = {
    "free": None,
    "ball": gs.domains.L2Ball(1.0),
    "l1 ball": gs.domains.L1Ball(0.8),
    "penalty": gs.domains.Box(-0.5, 0.4, penalty=gs.L1(1.0)),
    "simplex": gs.domains.Simplex(1.0),
}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_runs_are_those_of_numpy(dtype, domain, monkeypatch):
    prox, taken = DeviceProxKernel.step, []
    monkeypatch.setattr(DeviceProxKernel, "step", lambda *given: (taken.append(1), prox(*given)))
    rng, d = np.random.default_rng(1), 9
    features = rng.normal(size=(GRAPH.m * 12, d)).astype(dtype)
    labels = np.where(features[:, 0] + rng.normal(size=len(features)) > 0, 1, -1)
    loss = gs.losses.Logistic(features, labels, agents=GRAPH.m)
    device = loss.to(DEVICE)
    loss.compiled = device.compiled = True
    stop = gs.Stop(iterations=12)
    host = gs.solve(gs.Problem(loss, domain), GRAPH, gs.AutoPDS(), stop=stop)
    there = gs.solve(gs.Problem(device, domain), GRAPH, gs.AutoPDS(), stop=stop)
    assert (len(taken) == 12) == (domain is not None)
    assert there.costs.rounds == host.costs.rounds
    assert there.costs.gradients == host.costs.gradients
    digits = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(there.x, host.x, rtol=digits, atol=digits)
    np.testing.assert_allclose(there.dual, host.dual, rtol=digits, atol=digits * np.abs(host.dual).max())


@pytest.mark.parametrize("scale", [1e18, 1e20, 1e-21])
def test_units_beyond_single_precision_do_not_matter(scale):
    """L is up to 1e40 then, and in double precision there is nothing wrong with that."""
    rng = np.random.default_rng(0)
    features, noise = rng.normal(size=(5 * GRAPH.m, 3)), rng.normal(size=5 * GRAPH.m)
    loss = gs.losses.LeastSquares(scale * features, features @ np.ones(3) + noise, agents=GRAPH.m)
    host, there = (
        gs.solve(gs.Problem(each), GRAPH, gs.AutoPDS(), stop=gs.Stop(iterations=40)) for each in (loss, loss.to(DEVICE))
    )
    assert there.status is host.status
    np.testing.assert_allclose(scale * there.x, scale * host.x, rtol=1e-6, atol=1e-6 * np.abs(scale * host.x).max())


@pytest.mark.parametrize("method", [gs.AutoPDS(), gs.PDS()])
def test_kernels_are_launched_on_the_device_of_their_arrays(method, monkeypatch):
    """Triton takes the current one, which may be another."""
    entered, launched = [], []

    @contextlib.contextmanager
    def on_device_of(x):
        entered.append(x.device)
        yield
        entered.pop()

    for module in (device_mixing, device_sliding, compiled):
        monkeypatch.setattr(module, "on_device_of", on_device_of)
    kind = type(triton_mixing.start)
    launch = kind.__getitem__
    monkeypatch.setattr(
        kind, "__getitem__", lambda kernel, grid: (launched.append(list(entered)), launch(kernel, grid))[1]
    )
    rng = np.random.default_rng(1)
    features, labels = rng.normal(size=(GRAPH.m * 12, 9)), rng.choice([-1, 1], size=GRAPH.m * 12)
    loss = gs.losses.Logistic(features, labels, agents=GRAPH.m).to(DEVICE)
    loss.compiled = True
    gs.solve(gs.Problem(loss, gs.domains.L2Ball(1.0)), GRAPH, method, stop=gs.Stop(iterations=3))
    assert len(launched) > 10
    assert all(len(each) == 1 for each in launched)
