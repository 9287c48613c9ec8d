"""Time the compiled inner loop of primal-dual sliding.

It is compared with a plain NumPy and SciPy implementation (plain_inner_loop.py), and with copying
the same number of bytes.

    python benchmarks/inner_loop.py [--threads 2]

One thread by default. The copy counts each of the seven results and five inputs once per inner
iteration; an iteration is faster than that where columns stay in the cache.
"""

import os

import numpy as np
from plain_inner_loop import plain_inner_loop
from timing import best_of, copy_bandwidth, one_thread, parser, show

import gradslide as gs
from gradslide.kernels.sets import sets_of
from gradslide.kernels.sliding import Buffers, InnerLoopKernel, InnerStart, InnerSteps

# Agents, columns, degree, inner iterations, inner iterations of the plain script. Times are per iteration.
CASES = [
    (100, 22, 4, 2000, 2000),
    (1000, 100, 6, 200, 200),
    (10_000, 100, 6, 50, 50),
    (1000, 10_000, 6, 10, 10),
    (1000, 10_000, 6, 100, 10),
]
_ARRAYS = 12


def steps_of(T: int) -> InnerSteps:
    etas = 1.0 + 0.01 * np.arange(T)
    return InnerSteps(p=1.0, ascent=0.05, alphas=np.ones(T), etas=etas, scales=etas + 1.0)


def case(m: int, d: int, degree: int, T: int, plain_T: int, repeats: int) -> tuple[float, float, float]:
    """Return seconds per inner iteration, compiled and plain, and the largest difference of the results."""
    graph = gs.Graph.regular(m, degree, seed=1)
    rng = np.random.default_rng(0)
    x, x_before, s, w, y = (rng.normal(size=(m, d)) for _ in range(5))
    sets = sets_of(gs.domains.Box(-1.0, 1.0).bind(m, d, np.float64))
    kernel = InnerLoopKernel(graph.laplacian, "incidence", sets, d, np.float64)

    def compiled(T: int, buffers: Buffers | None = None):
        return kernel.run(InnerStart(x, x_before, s, w, y), steps_of(T), buffers)

    def plain():
        steps = steps_of(plain_T)
        return plain_inner_loop(
            x, x_before, s, w, y, graph.laplacian, steps.p, 1 / steps.ascent, steps.alphas, steps.etas, 0.0, -1.0, 1.0
        )

    found, expected = compiled(plain_T), plain()
    error = max(float(np.max(np.abs(a - b))) for a, b in zip(found[:5], expected[:5], strict=True))
    del expected
    # As in a run, results overwrite arrays that are no longer needed.
    buffers = Buffers((found.s_bar, found.w_bar), 1.0, found.x, found.x_mean, found.x_before)
    seconds = best_of(repeats, lambda: compiled(T, buffers)) / T
    return seconds, best_of(max(2, repeats // 3), plain) / plain_T, error


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--repeats", type=int, default=7)
    given = arguments.parse_args()
    one_thread()
    os.environ["OMP_NUM_THREADS"] = str(given.threads)
    bandwidth = copy_bandwidth()
    rows = []
    for m, d, degree, T, plain_T in CASES:
        seconds, plain, error = case(m, d, degree, T, plain_T, given.repeats)
        assert error < 1e-9, error
        copy = _ARRAYS * 8 * m * d / bandwidth
        rows.append(
            [
                f"{m:,} x {d:,}, degree {degree}, T = {T:,}",
                f"{plain / seconds:.1f}",
                f"{copy / seconds:.2f}",
                f"{1e9 * seconds / (m * d):.2f}",
                f"{1e9 * plain / (m * d):.2f}",
            ]
        )
    title = f"Inner iterations, {given.threads} thread(s); copies move {bandwidth / 1e9:.1f} GB/s"
    headings = ["case", "plain / compiled", f"copy of {_ARRAYS} arrays / compiled", "ns per entry", "plain"]
    show(title, headings, rows)


if __name__ == "__main__":
    main()
