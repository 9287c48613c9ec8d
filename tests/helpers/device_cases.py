"""Devices to run on, and what makes a CPU stand in for one that is further away."""

import contextlib
import warnings
from collections import Counter

import numpy as np
import pytest

import gradslide as gs
from gradslide._support.arrays import to_numpy

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError:
    torch = None
    TorchDispatchMode = object

HAS_CUDA = torch is not None and torch.cuda.is_available()
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(torch is None, reason="PyTorch is not installed")),
    pytest.param("cuda", marks=pytest.mark.skipif(not HAS_CUDA, reason="PyTorch finds no GPU")),
]
# What makes the host wait for numbers.
_WAITS = ("_local_scalar_dense", "nonzero", "equal", "masked_select")


def problem_of(domain=None, mu=0.0, dtype=np.float64, m=7, d=4, seed=0):
    rng = np.random.default_rng(seed)
    features, targets = rng.normal(size=(6 * m, d)).astype(dtype), rng.normal(size=6 * m).astype(dtype)
    return gs.Problem(gs.losses.LeastSquares(features, targets, agents=m), domain, mu)


def operator_of(shape=(5, 8), dtype=np.float64, seed=0):
    """Entries of A, about half of them 0."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * (rng.random(shape) < 0.6)).astype(dtype)


def _saddle(m=1, h=None, domain=None, dual_domain=None, linear=False, mu=0.0, **options):
    """A maker of saddle point problems in d = 8/m dimensions, of the form that A is given in and a dtype."""

    def make(form, dtype=np.float64):
        rng, A = np.random.default_rng(1), operator_of(dtype=dtype)
        roots, c = rng.normal(size=(m, 8 // m, 8 // m)), rng.normal(size=(m, 8 // m)).astype(dtype)
        Q = (roots @ roots.swapaxes(1, 2) + np.eye(8 // m)).astype(dtype)
        loss = gs.losses.Linear(c) if linear else gs.losses.Quadratic(Q, c)
        bounds = {name: options[name](A) for name in ("b", "lower", "upper") if name in options}
        rest = {name: value for name, value in options.items() if name not in bounds}
        if bounds:
            return gs.LinearlyConstrained(loss, form(A), domain=domain, mu=mu, **bounds, **rest)
        return gs.Saddle(loss, form(A), h, domain, dual_domain, mu, **rest)

    return make


def _soft(v, step):
    """The prox of |z|^2/2, in the operations that all arrays share."""
    return v / (1 + step)


_BOX, _BALL = gs.domains.Box(-1.0, 1.0), gs.domains.L2Ball(1.5)
_TARGET = np.linspace(-1.0, 1.0, 5)
# A name, and a maker of the problem.
SADDLES = {
    "equations in a box": _saddle(b=lambda A: 0.3 * A.sum(axis=1), domain=_BOX),
    "equations, strongly convex": _saddle(b=lambda A: 0.3 * A.sum(axis=1), mu=0.2),
    "inequalities": _saddle(b=lambda A: 0.1 * np.ones(5), sense="<=", domain=gs.domains.NonNegative()),
    "intervals": _saddle(lower=lambda A: -0.1, upper=lambda A: np.array([0.1, np.inf, 0.2, np.inf, 0.0]), domain=_BOX),
    "scaled": _saddle(b=lambda A: 0.3 * A.sum(axis=1), domain=_BOX, scaling="both"),
    "blocks of x": _saddle(m=4, b=lambda A: 0.1 * A.sum(axis=1), domain=gs.domains.Simplex()),
    "matrix game": _saddle(linear=True, domain=gs.domains.Simplex(), dual_domain=gs.domains.Simplex()),
    "matrix game, entropy": _saddle(
        linear=True, h=gs.terms.Linear(0.1), domain=gs.domains.EntropySimplex(), dual_domain=gs.domains.EntropySimplex()
    ),
    "entropy of x": _saddle(
        m=2, h=gs.terms.Quadratic(0.3, 0.1), domain=gs.domains.EntropySimplex(), dual_domain=gs.domains.L2Ball(2.0)
    ),
    "entropy of z": _saddle(h=gs.terms.Linear(_TARGET), domain=_BALL, dual_domain=gs.domains.EntropySimplex()),
    "absolute values": _saddle(h=gs.terms.Linear(_TARGET), domain=_BALL, dual_domain=_BOX, scaling="rows"),
    "squares": _saddle(h=gs.terms.Quadratic(0.5, _TARGET), domain=_BALL),
    "groups": _saddle(domain=_BOX, dual_domain=gs.domains.GroupBall(0.5, [[0, 1], [2, 3, 4]])),
    "bounded maximum": _saddle(domain=_BOX, dual_domain=gs.domains.Free(penalty=gs.L1(0.2))),
    "own prox": _saddle(h=gs.terms.Prox(_soft, lambda z: (z * z).sum() / 2, lambda v: (v * v).sum() / 2), domain=_BALL),
}


def refused(tensor, *_, **__):
    raise TypeError("a tensor on a device is no array of NumPy's")


@contextlib.contextmanager
def far_away(monkeypatch):
    """Tensors of the CPU are as closed to NumPy as those of a GPU."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__array__", refused)
        yield


class Waits(TorchDispatchMode):
    """Counts how often the host waits for numbers."""

    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.partition(".")[0]
        if name in _WAITS:
            self.seen[name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def count(self):
        return sum(self.seen.values())


@contextlib.contextmanager
def counted_waits(monkeypatch):
    """With the copies to the host, which a CPU does not need."""
    with monkeypatch.context() as patch, Waits() as waits:
        for name in ("cpu", "numpy", "tolist"):
            plain = getattr(torch.Tensor, name)

            def counting(tensor, *args, plain=plain, name=name):
                waits.seen[name] += 1
                return plain(tensor, *args)

            patch.setattr(torch.Tensor, name, counting)
        yield waits


@contextlib.contextmanager
def no_waiting(monkeypatch):
    """Fails where the host waits; on a GPU CUDA itself says so."""
    if HAS_CUDA:
        with warnings.catch_warnings():
            # That this mode is new.
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode("error")
    try:
        with counted_waits(monkeypatch) as waits:
            yield
    finally:
        if HAS_CUDA:
            torch.cuda.set_sync_debug_mode("default")
    assert waits.count == 0, waits.seen


def assert_close(found, expected, tolerance):
    """Arrays of NumPy's, or of a device, and what NumPy gives."""
    found, expected = to_numpy(found), np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
