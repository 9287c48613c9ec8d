"""Losses whose data is on a device: what NumPy's give on the same data, without waiting for the device."""

import numpy as np
import pytest
import scipy.sparse as sp

from gradslide import Problem
from gradslide._support.errors import InputError
from gradslide.domains import EntropySimplex, L2Ball
from gradslide.losses import (
    Custom,
    Huber,
    LeastSquares,
    Linear,
    Logistic,
    Poisson,
    Quadratic,
    SmoothedHinge,
    Softmax,
    stack,
)
from gradslide.losses import rows as rows_module
from gradslide.oracles import Noise, Stream, WithoutReplacement, WithReplacement

torch = pytest.importorskip("torch", reason="needs PyTorch: install gradslide[torch]")

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch can use")
on_devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=no_gpu)])

P, K = 5, 3
EQUAL = [4] * 6
RAGGED = [1, 4, 1, 3, 1, 2, 1, 3, 2, 6]  # more sizes than are done by dense runs
UNEVEN = [9, 40, 17, 1, 61, 12, 33, 70, 20, 28]  # so many rows that they are done in tiles
KINDS = {
    "logistic": Logistic,
    "squares": LeastSquares,
    "huber": lambda *a, **k: Huber(*a, delta=0.7, **k),
    "hinge": lambda *a, **k: SmoothedHinge(*a, gamma=0.6, **k),
    "softmax": lambda *a, **k: Softmax(*a, classes=K, **k),
    "poisson": Poisson,
}


def data(kind, sizes, dtype=np.float64):
    rng = np.random.default_rng(0)
    n = sum(sizes)
    targets = {"softmax": rng.integers(K, size=n), "logistic": rng.choice([-1, 1], n), "hinge": rng.integers(2, size=n)}
    targets["poisson"] = rng.integers(4, size=n)
    features = (rng.standard_normal((n, P)) * (rng.random((n, P)) < 0.6)).astype(dtype)
    rows = np.split(np.arange(n), np.cumsum(sizes)[:-1])
    return features, targets.get(kind, rng.standard_normal(n)), rows, rng.uniform(0.5, 2.0, n)


def make(kind="logistic", sizes=RAGGED, *, dtype=np.float64, sparse=False, weighted=True, **more):
    features, targets, rows, weights = data(kind, sizes, dtype)
    given = sp.csr_array(features) if sparse else features
    return KINDS[kind](given, targets, splits=rows, sample_weight=weights if weighted else None, **more)


def others():
    """Losses that have no rows."""
    rng = np.random.default_rng(1)
    B = rng.standard_normal((3, P, P))
    Q, c = B @ B.swapaxes(1, 2), rng.standard_normal((3, P))
    return {
        "quadratic": Quadratic(Q, c),
        "linear": Linear(c),
        "custom": Custom(
            gradient=lambda x: 2 * x, value=lambda x: (x * x).sum(axis=1), smoothness=2.0, agents=3, dimension=P
        ),
        "custom list": Custom(
            value_and_gradient=[lambda x: ((x * x).sum(), 2 * x), lambda x: (0.0, 0 * x), lambda x: (x[0], 0 * x + 1)],
            sample_gradient=[lambda x, batch, rng: x * batch * rng.integers(5)] * 3,
            agents=3,
            dimension=P,
            dtype=np.float32,
        ),
        "stacked": stack([Quadratic(Q, c), make(sizes=[2, 3]), Linear(c)]),
    }


def tensor(x, device):
    return torch.tensor(x, device=device)


def points(loss, device, seed=1):
    x = np.random.default_rng(seed).standard_normal((loss.m, loss.d)).astype(loss.dtype)
    return x, tensor(x, device)


def check(found, expected, device, dtype=None):
    """dtype: of the loss; its values are double in any case, and its scores are not."""
    assert isinstance(found, torch.Tensor)
    assert found.device.type == device
    assert str(found.dtype) == f"torch.{expected.dtype}"
    tolerance = 1e-12 if (dtype or expected.dtype) == np.float64 else 2e-5
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.fixture
def no_waiting(monkeypatch):
    """Whatever would wait for the device is an error, from when this is called."""

    def refuse(*_, **__):
        raise AssertionError("this waits for the device")

    def start():
        for name in ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "nonzero", "unique"):
            monkeypatch.setattr(torch.Tensor, name, refuse)

    yield start
    monkeypatch.undo()


@on_devices
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED, UNEVEN])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_on_a_device_give_what_numpy_gives(kind, sizes, sparse, dtype, device):
    for more in ({"weighted": False}, {"reduction": "mean"}):
        loss = make(kind, sizes, dtype=dtype, sparse=sparse, **more)
        there = loss.to(device)
        assert (loss.device, there.device.type) == (None, device)
        assert (there.m, there.d, there.dtype) == (loss.m, loss.d, loss.dtype)
        x, t = points(loss, device)
        value, gradient = there.value_and_gradient(t)
        for found, expected in ((value, loss.value(x)), (gradient, loss.gradient(x))):
            check(found, expected, device, dtype)
        if dtype == np.float32:
            one, other = there.evaluation(t), loss.evaluation(x)
            check(one.gradient, gradient.cpu().numpy(), device)
            check(one.value, other.value, device, dtype)
            check(one.rounding(), other.rounding(), device, dtype)
            check(one.change(t + 0.01)[0], other.change(x + np.float32(0.01))[0], device, dtype)
        assert torch.equal(there.value(t), value)
        assert torch.equal(there.gradient(t), gradient)
        for agents in ([2], [3, 0], [1, 2, 3]):
            check(there.take(agents).gradient(t[agents]), loss.gradient(x)[agents], device)
    for domain in (L2Ball(0.5), EntropySimplex()):
        constants = Problem(loss.to(device), domain).smoothness()
        assert isinstance(constants, np.ndarray)
        anew = make(kind, sizes, dtype=dtype, sparse=sparse, **more)
        np.testing.assert_allclose(constants, Problem(anew, domain).smoothness())


@on_devices
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("sizes", [EQUAL, UNEVEN])
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_on_a_device_are_what_numpy_gives(kind, sizes, sparse, dtype, device, monkeypatch):
    loss = make(kind, sizes, dtype=dtype, sparse=sparse)
    there = loss.to(device)
    x, t = points(loss, device)
    assert there.has_hessian
    # Of float32, scores are rounded.
    check(there.hessian(t), loss.hessian(x), device, dtype)
    check(there.column_squares(), loss.column_squares(), device)
    # In several products, which are summed.
    monkeypatch.setattr(rows_module, "_CHUNK_ENTRIES", 40)
    monkeypatch.setattr(rows_module, "_DEVICE_ENTRIES", 40)
    values, gradients, hessian = there.derivatives(t)
    check(values, loss.value(x), device, dtype)
    check(gradients, loss.gradient(x), device)
    check(hessian, loss.hessian(x).sum(axis=0, keepdims=True), device, dtype)
    check(there.column_squares(), loss.column_squares(), device)
    assert not torch.allclose(hessian, there.derivatives(2 * t)[2]) or kind == "squares"


@on_devices
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("p", [3, 40])
@pytest.mark.parametrize("limits", [{}, {"_DEVICE_ENTRIES": 200}, {"_DEVICE_LIMIT": 2}])
def test_smoothness_on_a_device_is_numpys(limits, p, sparse, device, monkeypatch):
    """In one batch, in several, and by products; with more rows than columns, and fewer."""
    for name, limit in limits.items():
        monkeypatch.setattr(rows_module, name, limit)
    rng = np.random.default_rng(3)
    features = rng.normal(size=(sum(UNEVEN), p)) * (rng.random((sum(UNEVEN), p)) < 0.5)
    features[: UNEVEN[0]] = 0.0
    rows = np.split(np.arange(sum(UNEVEN)), np.cumsum(UNEVEN)[:-1])
    weights = rng.uniform(0.5, 2.0, sum(UNEVEN))
    given = sp.csr_array(features) if sparse else features
    loss = LeastSquares(given, features[:, 0], splits=rows, sample_weight=weights)
    found = loss.to(device).smoothness()
    expected = [np.linalg.norm(np.sqrt(weights[own, None]) * features[own], 2) ** 2 for own in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    assert np.all(found >= (1 - 1e-13) * np.array(expected))
    assert found[0] == 0
    squares = [(weights[own, None] * features[own] ** 2).sum(axis=0).max() for own in rows]
    np.testing.assert_allclose(loss.to(device).smoothness(1), squares, rtol=1e-12)


@on_devices
def test_largest_eigenvalues_by_powers(device):
    rng = np.random.default_rng(4)
    Q = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    spectra = [np.ones(30), 1 - 1e-9 * np.arange(30), 10.0 ** -np.arange(30), 1e150 * np.arange(30.0), np.zeros(30)]
    spectra.append(np.append(np.ones(2), np.zeros(28)))
    matrices = np.stack([(Q * each) @ Q.T for each in spectra])
    found = rows_module.largest_eigenvalues(tensor(matrices, device)).cpu().numpy()
    np.testing.assert_allclose(found, np.max(spectra, axis=1), rtol=1e-12)


@on_devices
def test_entries_that_are_stored_twice_count_as_their_sum(device):
    features = sp.csr_array(([1.0, 2.0, 1.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    there = LeastSquares(features, [0.0, 0.0]).to(device)
    for norm in (1, 2):
        assert there.smoothness(norm) == pytest.approx([9.0])
    check(there.hessian(torch.zeros(1, 2, device=device)), np.diag([1.0, 9.0])[None], device)


@on_devices
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_the_same_as_numpys(kind, sparse, device):
    loss = make(kind, sparse=sparse)
    there = loss.to(device)
    x, t = points(loss, device)
    generators = [np.random.default_rng(3).spawn(loss.m) for _ in range(2)]
    check(there.sample_gradient(t, 2, generators[0]), loss.sample_gradient(x, 2, generators[1]), device)
    rows = [[0, n - 1] for n in RAGGED]
    check(there.gradient_of_rows(t, rows), loss.gradient_of_rows(x, rows), device)
    for sampling in (WithReplacement(), WithoutReplacement(), Noise(0.5)):
        here, far = (sampling.open(one, range(loss.m), 7) for one in (loss, there))
        check(far.gradient(t, far.draw(0, 3)), here.gradient(x, here.draw(0, 3)), device)
    features, targets, *_ = data(kind, [6] * loss.m)
    batches = [(features[6 * i : 6 * i + 6], targets[6 * i : 6 * i + 6]) for i in range(loss.m)]
    arrived = [[(features[:1], targets[:1]), batch] for batch in batches]
    arrived[0] = [(torch.tensor(f), torch.tensor(y)) for f, y in arrived[0]]
    streams = [Stream(arrived).open(one, range(loss.m), 0) for one in (loss, there)]
    for _ in range(2):
        expected = streams[0].gradient(x, streams[0].draw(0, 3))
        check(streams[1].gradient(t, streams[1].draw(0, 3)), expected, device)


@on_devices
def test_gradients_of_ones_own_may_come_from_a_stream(device):
    loss = make()
    x, t = points(loss, device)
    stream = Stream([[np.full((4, P), i)] for i in range(loss.m)], gradient=lambda x, batch: x * float(batch.mean()))
    here, far = (stream.open(one, range(loss.m), 0) for one in (loss, loss.to(device)))
    check(far.gradient(t, far.draw(0, 2)), here.gradient(x, here.draw(0, 2)), device)


@on_devices
@pytest.mark.parametrize("name", others())
def test_other_losses_on_a_device_give_what_numpy_gives(name, device):
    loss = others()[name]
    there = loss.to(device)
    assert there.device.type == device
    x, t = points(loss, device)
    value, gradient = there.value_and_gradient(t)
    check(value, loss.value(x), device)
    check(gradient, loss.gradient(x), device)
    check(there.value(t), loss.value(x), device)
    check(there.gradient(t), loss.gradient(x), device)
    if name != "custom":  # one function for all agents
        check(there.take([1]).gradient(t[1:2]), loss.gradient(x)[1:2], device)
    if loss.has_hessian:
        check(there.hessian(t), loss.hessian(x), device)
    if name.startswith("custom"):  # which need not be moved
        check(loss.gradient(t), loss.gradient(x), device)
    if name == "custom list":
        generators = [np.random.default_rng(3).spawn(3) for _ in range(2)]
        check(there.sample_gradient(t, 2, generators[0]), loss.sample_gradient(x, 2, generators[1]), device)
    else:
        np.testing.assert_allclose(there.smoothness(), others()[name].smoothness())


@on_devices
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_waits_for_the_device(kind, sparse, device, no_waiting):
    losses = [make(kind, sizes, sparse=sparse).to(device) for sizes in (EQUAL, UNEVEN)]
    starts = [points(loss, device)[1] for loss in losses]
    no_waiting()
    with pytest.raises(AssertionError, match="waits for the device"):
        bool(starts[0][0, 0] > 0)
    for loss, t in zip(losses, starts, strict=True):
        loss.value_and_gradient(t)
        loss.gradient_of_rows(t, [[0]] * loss.m)
        loss.derivatives(t)
        loss.column_squares()


@on_devices
def test_extreme_scores_and_what_is_not_finite(device):
    for kind in KINDS:
        loss = make(kind, UNEVEN).to(device)
        t = points(loss, device)[1]
        for scale in (-1e30, 1e30):
            value, gradient = loss.value_and_gradient(scale * t)
            if kind == "poisson":
                assert torch.isinf(value).any()
                assert not torch.isnan(value).any()
            else:
                assert torch.isfinite(value).all()
                assert torch.isfinite(gradient).all()
        t[1] = float("nan")
        value, gradient = loss.value_and_gradient(t)
        assert torch.isnan(value).nonzero().flatten().tolist() == [1]
        assert torch.isnan(gradient).all(dim=1).nonzero().flatten().tolist() == [1]


@on_devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_are_kept_where_they_are(dtype, device):
    features, labels, rows, weights = data("logistic", RAGGED)
    given = torch.tensor(features, dtype=dtype, device=device)
    loss = Logistic(given, torch.tensor(labels), splits=rows, sample_weight=torch.tensor(weights), reduction="mean")
    assert loss._blocks.features.data_ptr() == given.data_ptr()
    assert loss.take([1, 2])._blocks.features.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
    assert loss.to(device)._blocks.features.data_ptr() == given.data_ptr()
    assert not loss.compiled
    assert not loss.has_steps
    numpy = Logistic(features.astype(loss.dtype), labels, splits=rows, sample_weight=weights, reduction="mean")
    x, t = points(numpy, device)
    check(loss.gradient(t), numpy.gradient(x), device)
    check(loss.gradient(x), numpy.gradient(x), device)  # a NumPy array is brought there
    merged = stack([loss.take([i]) for i in range(loss.m)])
    assert isinstance(merged, Logistic)
    check(merged.value(t), numpy.value(x), device, numpy.dtype)


def test_memory_is_shared_with_numpy_unless_it_may_not_be_written_to():
    loss = make(sizes=EQUAL)
    features = loss._blocks.features
    assert loss.to("cpu")._blocks.features.data_ptr() == features.ctypes.data
    features.flags.writeable = False
    assert loss.to("cpu")._blocks.features.data_ptr() != features.ctypes.data


def test_bad_input_on_a_device_is_refused():
    features, labels, rows, _ = data("logistic", RAGGED)
    good = torch.tensor(features)
    cases = {
        "float32 or float64; got float16": good.half(),
        "float32 or float64; got int64": good.long(),
        "features must be finite": good / 0,
        "features must be 2-D": good[0],
        "features must be dense on a device": good.to_sparse(),
    }
    for message, bad in cases.items():
        with pytest.raises(InputError, match=message):
            Logistic(bad, labels, splits=rows)
    loss = Logistic(good, labels, splits=rows)
    with pytest.raises(InputError, match="x must have shape"):
        loss.gradient(torch.zeros(2, 2))
    with pytest.raises(InputError, match="x must be NumPy's"):
        make().gradient(torch.zeros(10, P))
    with pytest.raises(InputError, match="data on one device; got NumPy, cpu"):
        stack([loss, make()])
    with pytest.raises(InputError, match="NumPy, scipy, or dense on a GPU; got Logistic on cpu"):
        make(sparse=True).to("cpu").compiled = True
    for device in ("nowhere", "cuda:99", 0.5):
        with pytest.raises(InputError, match="device must be one that PyTorch finds here"):
            loss.to(device)


@no_gpu
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("sizes", [EQUAL, RAGGED])
def test_a_gpu_gives_the_same_bits_again(sizes, sparse):
    sizes = [500 * size for size in sizes]
    loss = make(sizes=sizes, sparse=sparse, dtype=np.float32).to("cuda")
    t = points(loss, "cuda")[1]
    first = loss.value_and_gradient(t)
    for _ in range(20):
        again = loss.value_and_gradient(t)
        assert torch.equal(first[0], again[0])
        assert torch.equal(first[1], again[1])


def test_jax_arrays_stay_with_jax():
    jax = pytest.importorskip("jax", reason="needs JAX")
    for kind in KINDS:
        features, targets, rows, weights = data(kind, RAGGED, np.float32)
        numpy, there = (
            KINDS[kind](given, targets, splits=rows, sample_weight=weights)
            for given in (features, jax.numpy.asarray(features))
        )
        x = points(numpy, "cpu")[0]
        for found, expected in zip(
            there.value_and_gradient(jax.numpy.asarray(x)), numpy.value_and_gradient(x), strict=True
        ):
            assert isinstance(found, jax.Array)
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-4)
