"""Time inner loops and outer iterations on a GPU.

The inner loop of primal-dual sliding, relative to copying eight arrays. An iteration moves at least
nine arrays: it reads u, x, w and the fixed part of the prox step, writes u, x and w, and reads and
writes two sums every second time.

Outer iterations of AutoPDS (also in an l2 ball), LBFGS, Newton, Auto, PDS and NIDS on a logistic
regression: "L" is the time to find the smoothness constants, and "share" that of values, gradient
(and Hessian) in an iteration. "Set-up" is what a solve of one iteration takes beside the iteration
if nothing about the problem is known; PDS and NIDS find L in it.

    python benchmarks/gpu.py [--device cuda] [--dtype float32] [--outer]

--outer leaves the inner loops out.
"""

import math
from functools import partial

import numpy as np
from timing import best_of, parser, seconds_of, show

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
# Agents, rows per agent, columns.
OUTER_CASES = [(1000, 200, 1000), (10_000, 50, 200), (100_000, 10, 64)]
OUTER_METHODS = {
    "AutoPDS": gs.AutoPDS(),
    "AutoPDS, ball": gs.AutoPDS(),
    "LBFGS": gs.LBFGS(),
    "Newton": gs.Newton(),
    "Auto": gs.Auto(),
    "PDS": gs.PDS(),
    "NIDS": gs.NIDS(),
}
# Iterations of the two solves whose difference is measured, and the ridge (0 for the others).
_COUNTS = {"AutoPDS": (20, 220), "AutoPDS, ball": (20, 220), "NIDS": (20, 220), "PDS": (5, 25)}
_FEW, _MANY = 2, 6
_MU = {"LBFGS": 1e-3, "Newton": 1e-3, "Auto": 1e-3}
_DOMAINS = {"AutoPDS, ball": gs.domains.L2Ball(1.0)}


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


def outer_solve(graph: gs.Graph, method: gs.Method, iterations: int, problem: gs.Problem) -> gs.Solution:
    return gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), record_every=10**6)


def setup_seconds(make, solve, iteration: float, repeats: int = 3) -> float:
    """Return the seconds of set-up in solves of one iteration, each of a problem that is new."""
    return max(0.0, min(seconds_of(partial(solve, make())) for _ in range(repeats)) - iteration)


def outer_case(torch, m: int, rows: int, d: int, dtype: str, device: str) -> list[list[str]]:
    generator = torch.Generator(device=device).manual_seed(0)
    features = torch.randn(m * rows, d, device=device, dtype=getattr(torch, dtype), generator=generator)
    noise = torch.randn(m * rows, device=device, dtype=features.dtype, generator=generator)
    labels = np.where((features[:, 0] - features[:, 1] + noise > 0).cpu().numpy(), 1, -1)
    graph = graph_of(m, 6)

    def new(domain: gs.domains.Domain | None, mu: float) -> gs.Problem:
        made = gs.Problem(gs.losses.Logistic(features, labels, agents=m, reduction="mean"), domain, mu)
        torch.cuda.synchronize()
        return made

    loss = new(None, 0.0).loss
    x = gs.Problem(loss).start()
    scores = loss.scores(x) if loss.has_scores else None

    def done(call):
        return lambda: call()[0].sum().item()

    evaluations = {
        "AutoPDS": best_of(5, done(lambda: (loss.extrapolation(x, scores, 0.5).gradient,)))
        if scores is not None
        else math.nan,
        "gradient": best_of(5, done(lambda: loss.gradient(x))),
        "LBFGS": best_of(5, done(lambda: loss.value_and_gradient(x))),
        "Newton": best_of(5, done(lambda: loss.derivatives(x)[2])),
    }
    evaluations |= dict.fromkeys(("PDS", "NIDS"), evaluations["gradient"])
    evaluations["AutoPDS, ball"] = evaluations["AutoPDS"]
    smoothness = best_of(3, lambda: loss.compute_smoothness(2))
    found = []
    for name, method in OUTER_METHODS.items():
        (domain, mu), counts = (_DOMAINS.get(name), _MU.get(name, 0.0)), _COUNTS.get(name, (_FEW, _MANY))
        problem, solve = gs.Problem(loss, domain, mu), partial(outer_solve, graph, method)
        first, last = (solve(n, problem) for n in counts)
        chosen = first.parameters.get("method", name)
        few, many = (best_of(3, partial(solve, n, problem)) for n in counts)
        iteration = (many - few) / (last.costs.gradients - first.costs.gradients)
        setup = setup_seconds(partial(new, domain, mu), partial(solve, 1), max(0.0, iteration))
        # Not a number where the longer solve took no longer.
        iteration = iteration if iteration > 0 else math.nan
        share = evaluations[chosen] / iteration
        label = name if chosen == name else f"{name}: {chosen}"
        figures = (smoothness, setup, evaluations["gradient"], evaluations[chosen], iteration)
        found.append([f"{m:,} x {rows:,} x {d:,}", label, *(f"{1e3 * each:,.2f}" for each in figures), f"{share:.2f}"])
    return found


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--device", default="cuda")
    arguments.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    arguments.add_argument("--outer", action="store_true")
    given = arguments.parse_args()
    try:
        import torch
    except ImportError:
        raise SystemExit(
            "benchmarks/gpu.py needs PyTorch: in a checkout of gradslide: pip install '.[torch]'"
        ) from None
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu.py needs a GPU: PyTorch finds none here")
    if not given.outer:
        rows = [case(torch, *sizes, given.dtype, given.device) for sizes in CASES]
        title = f"Inner iterations on {torch.cuda.get_device_name()}, {given.dtype}"
        headings = ["case", "MB per array", "us", f"/ copy of {_ARRAYS}", "whole loop / this", "separate / this"]
        show(title, headings, rows)
    outer = [row for sizes in OUTER_CASES for row in outer_case(torch, *sizes, given.dtype, given.device)]
    headings = [
        "agents x rows x columns",
        "method",
        "L, ms",
        "set-up, ms",
        "gradient, ms",
        "evaluation, ms",
        "iteration, ms",
        "share",
    ]
    show(f"Outer iterations on {torch.cuda.get_device_name()}, {given.dtype}", headings, outer)


if __name__ == "__main__":
    main()
