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
