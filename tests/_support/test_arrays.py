"""Array helpers."""

import numpy as np
import pytest

from gradslide._support import arrays
from gradslide._support.arrays import RecycledMemory, is_writable_in_c_order, without_columns


def test_memory_in_use_is_not_given_out_again():
    memory = RecycledMemory()
    held = memory.empty((3, 2), np.float64)
    view = memory.empty((3, 2), np.float64).reshape(-1)
    view[:] = held[:] = 1.0
    for _ in range(20):
        new = memory.empty((3, 2), np.float64)
        assert not np.shares_memory(new, held)
        assert not np.shares_memory(new, view)
        new[:] = 2.0
    assert np.all(held == 1.0)
    assert np.all(view == 1.0)


def test_memory_that_nobody_uses_is_given_out_again():
    memory = RecycledMemory()
    many = [memory.empty((4,), np.float32) for _ in range(5)]
    places = {each.ctypes.data for each in many}
    many.clear()
    assert {memory.empty((4,), np.float32).ctypes.data for _ in range(3)} <= places


def test_memory_that_nobody_uses_can_be_released():
    memory = RecycledMemory()
    held = [memory.empty((4,), np.float32) for _ in range(5)][:2]
    found = memory.empty((2, 2), np.float64)
    assert (found.shape, found.dtype) == ((2, 2), np.float64)
    for spare in (2, 1, 0):
        memory.release(spare)
        assert len(memory._arrays) == len(held) + 1 + spare
    assert found is memory._arrays[-1]


@pytest.mark.parametrize("free", [None, 1])
def test_memory_is_not_reused_where_references_cannot_be_counted(free, monkeypatch):
    monkeypatch.setattr(arrays, "_FREE", free)
    memory = RecycledMemory()
    found = [memory.empty((3,), np.float64) for _ in range(5)]
    assert len({each.ctypes.data for each in found}) == 5


def test_arrays_that_may_be_overwritten_as_flat_ones():
    x = np.zeros((3, 4))
    assert is_writable_in_c_order(x)
    assert not is_writable_in_c_order(x.T)
    assert not is_writable_in_c_order(x[:, 1:])
    x.flags.writeable = False
    assert not is_writable_in_c_order(x)


def test_no_columns_hold_no_memory():
    x = np.zeros((3, 4), dtype=np.float32)
    found = without_columns(x)
    assert (found.shape, found.dtype, found.base) == ((3, 0), np.float32, None)
