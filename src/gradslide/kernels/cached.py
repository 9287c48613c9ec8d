"""Compile a function with numba, with its machine code cached on disk if possible."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def cached(function: Function) -> Function:
    """Compile a function that releases the GIL; cache it if a folder is writable."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        return njit(**options)(function)
