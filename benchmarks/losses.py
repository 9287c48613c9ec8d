"""Time gradients of losses over rows, relative to two products in NumPy and to one pass over the data.

    python benchmarks/losses.py

One BLAS thread, unless OMP_NUM_THREADS is set. The times of a row are measured alternately, best of
several. The star marks the default: NumPy or compiled code.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import copy
import time
from collections.abc import Callable
from itertools import product

import numpy as np
import scipy.sparse as sp

from gradslide.losses import Logistic

ENTRIES = 5_000_000
DENSITY = 0.1
ROUNDS = 10


def best(functions: list[Callable[[], object]]) -> list[float]:
    """Return the best time of each function; they alternate, so that disturbances affect all of them."""
    seconds = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for k, function in enumerate(functions):
            started = time.perf_counter()
            function()
            seconds[k] = min(seconds[k], time.perf_counter() - started)
    return seconds


def make(m: int, p: int, sparse: bool, ragged: bool, dtype: type) -> Logistic:
    """Return a loss with five million stored numbers in all."""
    rng = np.random.default_rng(0)
    n = int(ENTRIES / (p * DENSITY if sparse else p)) // m * m
    rows = np.arange(n).reshape(m, -1)
    if ragged:
        rows = np.split(np.arange(n), np.sort(rng.choice(np.arange(1, n), m - 1, replace=False)))
    if sparse:
        features = sp.random_array((n, p), density=DENSITY, format="csr", dtype=dtype, rng=rng)
    else:
        features = rng.standard_normal((n, p), dtype=dtype)
    return Logistic(features, rng.choice([-1, 1], n), splits=list(rows))


def two_products(loss: Logistic, x: np.ndarray) -> Callable[[], object]:
    """Return a function that computes X x and X^T s only, with NumPy or SciPy."""
    blocks = loss._blocks
    slopes = np.ones((blocks.n, 1), dtype=loss.dtype)
    return lambda: (blocks.operator.apply(x[:, :, None]), blocks.operator.pull(slopes))


def line(m: int, p: int, sparse: bool, ragged: bool, dtype: type) -> str:
    loss = make(m, p, sparse, ragged, dtype)
    chosen = "compiled" if loss.compiled else "plain"
    plain, fast = copy.copy(loss), copy.copy(loss)
    plain.compiled, fast.compiled = False, True
    x = (0.1 * np.random.default_rng(1).standard_normal((m, p))).astype(dtype)
    features = loss._blocks.features
    flat = features.data if sparse else features.reshape(-1)
    stored = flat.nbytes + (features.indices.nbytes if sparse else 0)
    target = np.empty_like(flat)
    functions = [
        lambda: np.copyto(target, flat),
        two_products(plain, x),
        lambda: plain.gradient(x),
        lambda: fast.gradient(x),
        lambda: plain.value_and_gradient(x),
        lambda: fast.value_and_gradient(x),
    ]
    for function in functions:
        function()
    copying, products, *seconds = best(functions)
    # A copy reads and writes.
    one_pass = copying * stored / (2 * flat.nbytes)
    marks = ["*" if chosen == name else " " for name in ("plain", "compiled")] * 2
    cells = [f"{s * 1e3:7.2f}{mark}" for s, mark in zip(seconds, marks, strict=True)]
    own = seconds[1 if chosen == "compiled" else 0]
    kind = f"{'sparse' if sparse else 'dense':7}{'ragged' if ragged else 'equal':7}{np.dtype(dtype).name:8}"
    return f"{m:5} {p:5} {kind} {' '.join(cells)} {products / own:8.2f} {own / one_pass:8.1f}"


def main() -> None:
    threads = os.environ["OMP_NUM_THREADS"]
    print(f"Logistic, {ENTRIES:,} stored numbers, {threads} thread(s); ms, plain and compiled")
    print(f"{'m':>5} {'p':>5} {'features':22} {'gradient':>17} {'with value':>17}  products  passes")
    for dtype, sparse, ragged, m, p in product(
        (np.float64, np.float32), (False, True), (False, True), (100, 1000), (22, 100, 1000)
    ):
        print(line(m, p, sparse, ragged, dtype), flush=True)
    print("products: two products over one gradient; passes: one gradient over one read of the data")


if __name__ == "__main__":
    main()
