"""Sharpen a photograph that a cheap lens has blurred: total variation deblurring, where the blur is expensive.

For those who restore images (microscopes, telescopes, old photographs) with a blur that differs from place to place, so
that no Fourier transform undoes it: min over x in [0, 1]^n of 1/2 |K x - y|^2 + lam TV(x). A gradient costs a blur and
its transpose; TV costs differences of neighbours. PDS takes many of these for each gradient. Prints what it, Condat and
Vu's method and PyProximal's PrimalDual spend on the same accuracy, and draws the photograph and the way there.

    python examples/comparisons/tv_deblurring.py [PICTURE.png]
"""

import sys
import time
import timeit
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pylops
import pyproximal
from matplotlib import cbook
from pyproximal.optimization.cls_primaldual import PrimalDual
from scipy.ndimage import gaussian_filter

import gradslide as gs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

SIDE, NOISE, LAM, WIDTHS = 80, 0.03, 0.005, np.linspace(0.5, 2.5, 10)
PIXELS, LEVELS, GRADIENTS, PRODUCTS = SIDE**2, (1e-2, 1e-3, 1e-4), 300, 2_000
COSTS = {"gradients": "fewest gradients", "operator_products": "fewest products", "seconds": "least time"}
# How long steps of z are beside those of x: each is tried for every method. For PDS, R = ratio/sqrt(8).
RATIOS = (0.1, 0.3, 1.0)


class Lens(pylops.LinearOperator):
    """A Gaussian blur, narrow in the middle and wide in the corners. No entry is negative, and rows sum to 1."""

    def __init__(self):
        super().__init__(dtype=np.float64, shape=(PIXELS, PIXELS))
        across = np.linspace(-1, 1, SIDE)
        layer = np.hypot(across[:, None], across) / np.sqrt(2) * (len(WIDTHS) - 1)
        self.layers = [(width, np.clip(1 - abs(layer - j), 0, 1)) for j, width in enumerate(WIDTHS)]
        self.products = 0

    def _matvec(self, x):
        self.products += 1
        return sum(share * gaussian_filter(x.reshape(SIDE, SIDE), width) for width, share in self.layers).ravel()

    def _rmatvec(self, z):
        self.products += 1
        return sum(gaussian_filter(share * z.reshape(SIDE, SIDE), width) for width, share in self.layers).ravel()


def saddle(K, D, y):
    def value(x):
        return np.sum((K.matvec(x) - y) ** 2) / 2

    def value_and_gradient(x):
        residual = K.matvec(x) - y
        return residual @ residual / 2, K.rmatvec(residual)

    L = K.rmatvec(np.ones(PIXELS)).max()  # ||K||^2 is at most the largest column sum times the largest row sum, 1
    functions = {"value": [value], "value_and_gradient": [value_and_gradient]}
    loss = gs.losses.Custom(**functions, smoothness=L, agents=1, dimension=PIXELS)
    steepness = gs.domains.GroupBall(LAM, np.tile(np.arange(PIXELS), 2))
    return gs.Saddle(loss, D, domain=gs.domains.Box(0, 1), dual_domain=steepness, norm=np.sqrt(8))


def reference(problem, x0):
    """Stages that start where the last one ended, so that certificates do not average over the way from x_0."""
    stage = {"method": gs.PDS(R=0.1), "stop": gs.Stop(iterations=60), "output": "last"}
    best = gs.solve(problem, x0=x0, **stage)
    while best.certificate.gap > LEVELS[-1] / 2 * best.certificate.upper:
        best = gs.solve(problem, warm_start=best, **stage)
    return best


def primal_dual(problem, K, D, y, target, ratio):
    """PyProximal, step by step. Two products with K count as a gradient; looking at x counts and costs nothing."""
    f, norm = pyproximal.Box(0, 1), np.sqrt(8 + problem.smoothness()[0])
    g = pyproximal.VStack([pyproximal.L2(b=y), pyproximal.L21(2, sigma=LAM)], nn=[PIXELS, 2 * PIXELS])
    solver, seconds, products, history = PrimalDual(), 0.0, 0, []
    state = solver.setup(f, g, pylops.VStack([K, D]), np.clip(y, 0, 1), tau=1 / (ratio * norm), mu=ratio / norm)
    while products < 2 * GRADIENTS and not (history and history[-1].objective <= target):
        before, clock = K.products, time.perf_counter()
        state = solver.step(*state)
        seconds, products = seconds + time.perf_counter() - clock, products + K.products - before
        x = state[0][None]
        spent = {"gradients": products // 2, "operator_products": 2 * len(history) + 2, "seconds": seconds}
        value = problem.objective(x).sum() + problem.duals.conjugate(problem.product(x))
        history.append(SimpleNamespace(objective=value, **spent))
    return SimpleNamespace(x=x, history=history)


def costs(solution, optimum, cost):
    """What each level of accuracy took; infinite where it was not reached."""
    reached = (next((r for r in solution.history if r.objective <= optimum * (1 + e)), None) for e in LEVELS)
    return [np.inf if record is None else getattr(record, cost) for record in reached]


def draw(pictures, solutions, optimum):
    figure, axes = plt.subplot_mosaic("aabbcc;dddeee", figsize=(10.5, 8.0), layout="constrained")
    for axis, (title, x) in zip("abc", pictures.items(), strict=True):
        axes[axis].imshow(x.reshape(SIDE, SIDE), cmap="gray", vmin=0, vmax=1)
        axes[axis].set_title(title)
        axes[axis].set_axis_off()
    for axis, cost, label in (("d", "gradients", "gradients (a blur and its transpose)"), ("e", "seconds", "seconds")):
        for colour, (name, solution) in zip(COLOURS, solutions.items(), strict=True):
            errors = [max(record.objective / optimum - 1, LEVELS[-1] / 10) for record in solution.history]
            spent = [getattr(record, cost) for record in solution.history]
            axes[axis].plot(spent, errors, "-" if "PDS" in name else "--", color=colour, label=name)
        axes[axis].set(xscale="log", yscale="log", xlabel=label, ylim=(LEVELS[-1] / 2, 1))
        axes[axis].grid(alpha=0.3)
        axes[axis].spines[["top", "right"]].set_visible(False)
    axes["d"].set_ylabel("relative error of the objective")
    axes["d"].legend(frameon=False, fontsize=8)
    return figure


def main(picture: Path) -> None:
    K, D = Lens(), pylops.Gradient((SIDE, SIDE), kind="forward")
    grey = plt.imread(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).mean(axis=2)[20:420, 56:456]
    photo = grey.reshape(SIDE, len(grey) // SIDE, SIDE, len(grey) // SIDE).mean(axis=(1, 3)).ravel() / 255
    y = K.matvec(photo) + NOISE * np.random.default_rng(0).normal(size=PIXELS)
    problem, x0 = saddle(K, D, y), np.clip(y, 0, 1)[None]
    best = reference(problem, x0)
    optimum, target = best.certificate.upper, best.certificate.upper * (1 + LEVELS[-1])
    U, V = problem.distances(best.x, best.dual, x0)
    R = gs.guarantees.saddle_R(U=U, V=V)

    def ours(method, output="last"):
        stop = gs.Stop(objective=target, gradients=GRADIENTS, operator_products=PRODUCTS)
        return gs.solve(problem, x0=x0, method=method, output=output, stop=stop)

    def best_ratio(run):
        return min(map(run, RATIOS), key=lambda solution: costs(solution, optimum, "gradients")[::-1])

    solutions = {
        "PDS, default, last x": ours(gs.PDS()),
        "PDS, R of the theorem": ours(gs.PDS(R=R), "average"),
        "PDS, R of the theorem, last x": ours(gs.PDS(R=R)),
        "PDS, best R, last x": best_ratio(lambda ratio: ours(gs.PDS(R=ratio / np.sqrt(8)))),
        "Condat-Vu, default, last x": ours(gs.CondatVu()),
        "Condat-Vu, best ratio, last x": best_ratio(lambda ratio: ours(gs.CondatVu(ratio=ratio))),
        "PyProximal, best ratio, last x": best_ratio(lambda ratio: primal_dual(problem, K, D, y, target, ratio)),
    }

    def psnr(x):
        return -10 * np.log10(np.mean((x.ravel() - photo) ** 2))

    pairs = (lambda: K.rmatvec(K.matvec(y)), lambda: D.rmatvec(D.matvec(y)))
    blur, slopes = (100 * min(timeit.repeat(pair, number=10)) for pair in pairs)
    print(f"a blur and its transpose take {blur:.2f} ms, differences and their transpose {slopes:.2f} ms")
    print(f"optimum {optimum:.5f}, certified to a relative {best.certificate.gap / optimum:.1e}")
    print(f"{'relative error':32}" + "".join(f"{level:>22.0e}" for level in LEVELS))
    print(f"{'':32}" + f"{'grads':>7}{'prods':>7}{'sec':>8}" * len(LEVELS) + f"{'PSNR':>7}")
    for name, solution in solutions.items():
        spent = zip(*(costs(solution, optimum, cost) for cost in COSTS), strict=True)
        cells = ((f"{g:7d}{p:7,d}{s:8.2f}" if s < np.inf else f"{'-':>7}{'-':>7}{'-':>8}") for g, p, s in spent)
        print(f"{name:32}" + "".join(cells) + f"{psnr(solution.x):7.2f}")
    for cost, word in COSTS.items():
        winner = min(solutions, key=lambda name: costs(solutions[name], optimum, cost)[-1])
        print(f"{word} to {LEVELS[-1]:.0e}: {winner}")
    shown = {"photograph": photo, f"blurred: {psnr(y):.1f} dB": y, f"restored: {psnr(best.x):.1f} dB": best.x}
    draw(shown, solutions, optimum).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("tv_deblurring.png"))
