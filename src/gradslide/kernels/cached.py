"""Compiled once, and kept on disk where there is a place for it."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def cached(function: Function) -> Function:
    """Compile it without Python's lock. Where nothing may be written anywhere, it is compiled in each process."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        return njit(**options)(function)
