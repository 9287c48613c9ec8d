"""Time the inner loop of primal-dual sliding on a GPU, relative to copying eight arrays.

An iteration moves at least nine arrays: it reads u, x, w and the fixed part of the prox step,
writes u, x and w, and reads and writes two sums every second time.

    python benchmarks/gpu.py [--device cuda] [--dtype float32]
"""

import numpy as np
from timing import parser, show

import gradslide as gs
from gradslide._support.arrays import sparse_like
from gradslide.kernels.device_sliding import DeviceInnerLoopKernel
from gradslide.kernels.sets import sets_of
from gradslide.kernels.sliding import InnerStart, InnerSteps

# Agents, columns, degree, inner iterations.
CASES = [
    (100, 22, 4, 2000),
    (1000, 100, 6, 200),
    (10_000, 100, 6, 50),
    (1000, 10_000, 6, 10),
    (1000, 10_000, 6, 100),
    (100_000, 512, 6, 50),
    (1_000_000, 64, 6, 50),
]
_ARRAYS = 8


def graph_of(m: int, degree: int) -> gs.Graph:
    """Return a union of degree / 2 cycles through all agents in random order."""
    rng = np.random.default_rng(1)
    orders = [np.arange(m), *(rng.permutation(m) for _ in range(degree // 2 - 1))]
    pairs = np.concatenate([np.stack([order, np.roll(order, 1)], axis=1) for order in orders])
    return gs.Graph.from_edges(m, np.unique(np.sort(pairs, axis=1), axis=0))


def milliseconds(torch, work, repeats: int) -> float:
    """Return the median time of a call, by the device's clock."""
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return float(np.median(times))


def separate(torch, matrix, point: InnerStart, steps: InnerSteps, lo: float, hi: float):
    """Run the same inner loop with separate PyTorch operations."""
    x, x_before, s, w, y = point
    anchor = steps.p * x - y
    x_sum, s_sum, w_sum = torch.zeros_like(x), torch.zeros_like(s), torch.zeros_like(w)
    for alpha, eta, scale in zip(steps.alphas, steps.etas, steps.scales, strict=True):
        u = x + float(alpha) * (x - x_before)
        s = s + steps.ascent * u
        w = w + steps.ascent * (matrix @ u)
        theta = float(eta) * x + anchor - w
        x, x_before = torch.clamp(theta * float(1 / scale), lo, hi), x
        x_sum += x
        s_sum += s
        w_sum += w
    return x, x_before, s, w, x_sum / len(steps.etas)


def case(torch, m: int, d: int, degree: int, T: int, dtype: str, device: str) -> list[str]:
    graph = graph_of(m, degree)
    generator = torch.Generator(device=device).manual_seed(0)
    number = getattr(torch, dtype)
    x, x_before, w, y = (torch.randn(m, d, device=device, dtype=number, generator=generator) for _ in range(4))
    s = torch.randn(m, d, device=device, dtype=torch.float64, generator=generator)
    sets = sets_of(gs.domains.Box(-1.0, 1.0).bind(m, d, np.dtype(dtype)))
    kernel = DeviceInnerLoopKernel(graph.laplacian, sets, x)
    etas = 1.0 + 0.01 * np.arange(T)
    steps = InnerSteps(p=1.0, ascent=0.05, alphas=np.ones(T), etas=etas, scales=etas + 1.0)
    point = InnerStart(x, x_before, s, w, y)

    found = kernel.run(point, steps)
    expected = separate(torch, sparse_like(graph.laplacian, x), point, steps, -1.0, 1.0)
    error = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found[:5], expected, strict=True))
    assert error < (1e-3 if dtype == "float32" else 1e-11), error
    del found, expected

    buffers = kernel._buffers(x, w)
    inner = milliseconds(torch, lambda: kernel._run(T, steps, *buffers), 7) / T
    whole = milliseconds(torch, lambda: kernel.run(point, steps), 5) / T
    plain = milliseconds(torch, lambda: separate(torch, kernel._matrix.to(number), point, steps, -1.0, 1.0), 3) / T
    target = torch.empty_like(x)
    big = x.numel() * x.element_size() > 1 << 28
    copy = milliseconds(torch, lambda: [target.copy_(x) for _ in range(10)], 9 if big else 21) / 10
    limit = copy * _ARRAYS / 2
    return [
        f"{m:,} x {d:,}, T = {T:,}",
        f"{x.numel() * x.element_size() / 1e6:,.1f}",
        f"{1e3 * inner:,.1f}",
        f"{inner / limit:.2f}",
        f"{whole / inner:.2f}",
        f"{plain / inner:.1f}",
    ]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    given = arguments.parse_args()
    try:
        import torch
    except ImportError:
        raise SystemExit(
            "benchmarks/gpu.py needs PyTorch: in a checkout of gradslide: pip install '.[torch]'"
        ) from None
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu.py needs a GPU: PyTorch finds none here")
    rows = [case(torch, *sizes, given.dtype, given.device) for sizes in CASES]
    title = f"Inner iterations on {torch.cuda.get_device_name()}, {given.dtype}"
    headings = ["case", "MB per array", "us", f"/ copy of {_ARRAYS}", "whole loop / this", "separate / this"]
    show(title, headings, rows)


if __name__ == "__main__":
    main()
