"""Checks and conversions of the data that users pass to losses."""

from collections.abc import Sequence
from typing import Any

import array_api_compat as compat
import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace

from gradslide._support.arrays import is_numpy, to_numpy
from gradslide._support.errors import InputError, require, require_number
from gradslide._support.types import Array, DType
from gradslide.losses.devices import Features, TorchRows

# Types of columns that may hold numbers that are not stored as such: of pandas and of Polars.
_TEXT = ("object", "str", "string")


def working_dtype(dtype: DType) -> np.dtype[Any]:
    """Return float32 for float32, and float64 for everything else."""
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)


def is_sparse(values: Any) -> bool:
    """Return whether values are a SciPy sparse array or matrix, or CSR rows on a device."""
    return bool(sp.issparse(values)) or isinstance(values, TorchRows)


def numeric_array(
    name: str, values: Any, *, columns: Sequence[str] | None = None, remedy: str = "convert it to float"
) -> Array:
    """Return values as a dense NumPy array of real, finite numbers, in their own type.

    columns: names of the columns, for errors. remedy: what to do with values that are no numbers.
    """
    require(not is_sparse(values), f"{name} must be dense", "a sparse array", "convert it with .toarray()")
    try:
        array = to_numpy(values)
    except ValueError as error:
        raise InputError(f"{name} must be a full array", str(error), "give rows of equal length") from None
    if array.dtype.kind not in "biuf":
        raise _no_numbers(name, array, remedy)
    if not np.isfinite(array).all():
        raise _not_finite(name, array, columns)
    return array


def float_array(name: str, values: Any, *, columns: Sequence[str] | None = None) -> Array:
    """Return values as a C-ordered dense array of finite floats, on its device; copied only if
    needed.
    """
    if is_numpy(values) or is_sparse(values):
        array = numeric_array(name, values, columns=columns)
        return np.asarray(array, dtype=working_dtype(array.dtype), order="C")
    layout = str(getattr(values, "layout", ""))
    remedy = "give a scipy sparse array, and move the loss: loss.to(device)"
    require("sparse" not in layout, f"{name} must be dense on a device", layout, remedy)
    dtype = str(values.dtype).rpartition(".")[2]
    require(
        dtype in ("float32", "float64"),
        f"{name} on a device must be float32 or float64",
        dtype,
        "convert it to one of them",
    )
    xp = array_namespace(values)
    if not bool(xp.all(xp.isfinite(values))):
        raise _not_finite(name, to_numpy(values), columns)
    return values.detach().contiguous() if compat.is_torch_array(values) else values


def feature_rows(features: Any) -> Features:
    """Return features as (n, p), one row per sample: C-ordered dense, or CSR if they are sparse."""
    columns = None
    if _is_frame(features):
        columns = [repr(str(column)) for column in features.columns]
        features = _numbers_of(features, columns)
    if is_sparse(features):
        require(
            features.dtype.kind in "biuf",
            "features must hold real numbers",
            features.dtype,
            "convert them to float",
        )
        rows = sp.csr_array(features).astype(working_dtype(features.dtype), copy=False)
        if not np.isfinite(rows.data).all():
            raise _not_finite("features", rows, columns)
    else:
        rows = float_array("features", features, columns=columns)
    require(
        rows.ndim == 2 and rows.shape[-1] > 0,
        "features must be 2-D with at least one column",
        f"shape {rows.shape}",
        "give one row per sample; reshape(-1, 1) makes a column",
    )
    return rows


def stack_rows(parts: Sequence[Features]) -> Features:
    """Stack rows of features vertically, dense or CSR, on their device."""
    if isinstance(parts[0], TorchRows):
        return TorchRows.stacked(parts)
    if is_sparse(parts[0]):
        return sp.vstack(parts, format="csr")
    return np.concatenate(parts) if is_numpy(parts[0]) else array_namespace(parts[0]).concat(parts)


def per_row(name: str, values: Any, n: int, remedy: str = "convert them to float") -> Array:
    """Return values as n finite numbers, one per row of the features."""
    array = numeric_array(name, values, remedy=remedy)
    if array.shape != (n,):
        rule, remedy = f"{name} must be 1-D with one entry per row of features, {n} in all", "give one for each row"
        if _is_frame(values) and len(values.columns):
            remedy = f"choose a column: {name}[{values.columns[0]!r}]"
        elif array.size == n:
            remedy += f", as a flat array: np.ravel({name})"
        raise InputError(rule, f"shape {array.shape}", remedy)
    return array


def signs(labels: Any, n: int) -> Array:
    """Return two-class labels as -1 and 1."""
    array = per_row("labels", labels, n, "map the two classes to -1 and 1")
    positive = array == 1
    if not ((positive | (array == -1)).all() or (positive | (array == 0)).all()):
        found = np.unique(array)
        shown = found[:5].tolist() + (["..."] if found.size > 5 else [])
        raise InputError("labels must be in {-1, 1} or {0, 1}", shown, "map the two classes to -1 and 1")
    return np.where(positive, 1, -1)


def class_numbers(labels: Any, n: int, classes: int | None) -> tuple[Array, int]:
    """Return labels as integers 0, ..., K-1, and K."""
    array = per_row("labels", labels, n, "number the classes: np.unique(labels, return_inverse=True)[1]")
    numbers = array.astype(np.intp)
    require(
        bool((numbers == array).all() and (numbers >= 0).all()),
        "labels of Softmax must be integers 0..K-1",
        np.unique(array)[:5].tolist(),
        "number the classes from 0",
    )
    largest = int(numbers.max(initial=0))
    K = max(largest + 1, 2) if classes is None else classes
    require(
        isinstance(K, (int, np.integer)) and K >= 2,
        "classes must be an integer of at least 2",
        repr(K),
        "count them",
    )
    require(largest < K, f"labels must be below classes = {K}", largest, "raise classes or renumber the labels")
    return numbers, int(K)


def positive(name: str, value: Any) -> float:
    """Return a finite number above zero as a Python float, so that float32 data stays float32."""
    require_number(name, value, f"choose {name} > 0", above=0)
    return float(value)


def _is_frame(values: Any) -> bool:
    """Whether values are a DataFrame, of pandas or of a library with the same names."""
    return hasattr(values, "columns") and hasattr(values, "dtypes") and hasattr(values, "to_numpy")


def _numbers_of(frame: Any, columns: Sequence[str]) -> Array:
    """The numbers of a DataFrame; refuse columns that hold none. Missing ones are NaN."""
    kinds, array = list(frame.dtypes), np.asarray(frame)
    wrong = [j for j, kind in enumerate(kinds) if not _is_number(kind)]
    if wrong:
        numbers = [j for j in wrong if str(kinds[j]).lower() in _TEXT and _can_be_floats(array[:, j])]
        named = [j for j in wrong if j not in numbers] or numbers
        types = dict.fromkeys(str(kinds[j]) for j in named)
        got = f"{_listed([columns[j] for j in named])} of type {', '.join(types)}"
        convert = "features.astype(float)" if hasattr(frame, "astype") else "a cast to float"
        remedy = "encode them as numbers, for example with pandas.get_dummies, or leave them out"
        if named is numbers:
            got, remedy = f"{got} that can be converted", f"convert them with {convert}"
        elif numbers:
            remedy = f"{remedy}, after {_listed([columns[j] for j in numbers])} became float"
        raise InputError("features must hold real numbers", got, remedy)
    # Columns of different kinds, or of kinds with missing values of their own.
    return array if array.dtype.kind != "O" else frame.to_numpy(dtype=np.float64, na_value=np.nan)


def _is_number(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # Polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "biuf"


def _listed(columns: Sequence[str], most: int = 5) -> str:
    """Columns in words."""
    more = f" and {len(columns) - most} more" if len(columns) > most else ""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(columns[:most])}{more}"


def _no_numbers(name: str, array: Array, remedy: str) -> InputError:
    rule, got = f"{name} must hold real numbers", f"an array of type {array.dtype}"
    if array.ndim == 2 and array.dtype.kind in "OUS":
        wrong = [str(j) for j in range(array.shape[1]) if not _can_be_floats(array[:, j])]
        if wrong:
            return InputError(rule, f"{got} with text in {_listed(wrong)}", "encode them as numbers, or leave them out")
    return InputError(rule, got, remedy)


def _can_be_floats(values: Array) -> bool:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _not_finite(name: str, array: Any, columns: Sequence[str] | None) -> InputError:
    """The error for NaN or infinity, in a dense array or in CSR rows."""
    if is_sparse(array):
        bad = sp.csr_array((~np.isfinite(array.data), array.indices, array.indptr), shape=array.shape)
        rows, where = np.unique(bad.nonzero()[0]), np.unique(bad.nonzero()[1])
        count = int(bad.sum())
    else:
        bad = ~np.isfinite(array)
        count = int(bad.sum())
        if array.ndim != 2:
            got = f"{count} NaN or infinite entries"
            return InputError(f"{name} must be finite", got, "remove or replace them")
        rows, where = np.flatnonzero(bad.any(axis=1)), np.flatnonzero(bad.any(axis=0))
    names = [str(j) if columns is None else columns[j] for j in where.tolist()]
    got = f"{count} NaN or infinite entries in {len(rows)} of {array.shape[0]} rows, {_listed(names)}"
    return InputError(f"{name} must be finite", got, "drop those rows, or fill in what is missing")
