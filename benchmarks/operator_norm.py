"""Gradients and operator products against ||A||, for min f(x) with A x = b.

    python benchmarks/operator_norm.py [PICTURE.png]

A has singular values from 1 to ||A||. x* has length 1. z* has length 1 and belongs to the smallest
singular value, so it does not depend on ||A||. Counts are until f(x) - f* <= 0.01 and |A x - b| <=
0.01. PDS uses its average, the known L and the theory's R. The default and AutoPDS know nothing.
Condat-Vu uses the better of average and last, with its default ratio and the best of a grid.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import gradslide as gs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

NORMS, EPS, L = (1, 10, 100, 1000), 1e-2, 1.0
UNKNOWNS, CONSTRAINTS = 120, 60
# Likely ones first: a later run ends once it has taken more than the best so far.
RATIOS = (1.0, 0.3, 3.0, 0.1, 10.0, 0.03, 0.01)
MOST_PRODUCTS = 200_000


def instance(A_norm: float) -> tuple[gs.LinearlyConstrained, float]:
    """Return the problem and its optimum, with the same f, x*, z* and singular vectors for every ||A||."""
    rng = np.random.default_rng(0)

    def orthonormal(rows: int, columns: int) -> np.ndarray:
        return np.linalg.qr(rng.normal(size=(rows, columns)))[0]

    left, right = orthonormal(CONSTRAINTS, CONSTRAINTS), orthonormal(UNKNOWNS, CONSTRAINTS)
    basis = orthonormal(UNKNOWNS, UNKNOWNS)
    Q = basis * np.linspace(0, L, UNKNOWNS) @ basis.T
    A = left * np.geomspace(1, A_norm, CONSTRAINTS) @ right.T
    x_star, z_star = orthonormal(UNKNOWNS, 1)[:, 0], left[:, 0]
    loss = gs.losses.Quadratic((Q + Q.T) / 2, -Q @ x_star - A.T @ z_star)
    problem = gs.LinearlyConstrained(loss, A, A @ x_star, norm=A_norm)
    return problem, float(loss.value(x_star[None])[0])


def run(
    problem: gs.LinearlyConstrained,
    optimum: float,
    method: object,
    output: str | None,
    most: int,
    record_every: int = 1,
) -> gs.Solution:
    stop = gs.Stop(objective=optimum + EPS, residual=EPS, operator_products=most)
    return gs.solve(problem, method=method, stop=stop, output=output, record_every=record_every)


def condat_vu(problem: gs.LinearlyConstrained, optimum: float, ratios: tuple[float | None, ...]) -> gs.Costs | None:
    """Return the costs of the run with the fewest gradients, over the ratios and both outputs; None if all fail."""
    best: gs.Costs | None = None
    # Records cost time: with thousands of iterations, record occasionally.
    record_every = max(1, int(problem.operator_norm()) // 20)
    for ratio in ratios:
        for output in ("average", "last"):
            most = MOST_PRODUCTS if best is None else best.operator_products
            solution = run(problem, optimum, gs.CondatVu(ratio=ratio), output, most, record_every)
            if solution.status is gs.Status.CONVERGED:
                best = solution.costs
    return best


def main(picture: Path | None) -> None:
    R = gs.guarantees.theory_R(V=0.5, z_star=1.0)
    names = ("default", "AutoPDS", "PDS", "Condat-Vu", "best of grid")
    found: dict[str, list[gs.Costs | None]] = {name: [] for name in names}
    print(f"{'||A||':>6}" + "".join(f"{name:>24}" for name in names))
    print(f"{'':>6}" + f"{'gradients':>12}{'products':>12}" * len(names))
    for A_norm in NORMS:
        problem, optimum = instance(A_norm)
        ours = run(problem, optimum, gs.PDS(L=L, R=R), "average", 10 * MOST_PRODUCTS)
        without = [run(problem, optimum, method, None, 10 * MOST_PRODUCTS) for method in (None, gs.AutoPDS())]
        for each in (ours, *without):
            assert each.status is gs.Status.CONVERGED, each
        costs = (
            *(each.costs for each in (*without, ours)),
            condat_vu(problem, optimum, (None,)),
            condat_vu(problem, optimum, RATIOS),
        )
        for name, each in zip(names, costs, strict=True):
            found[name].append(each)
        cells = (
            (f"{each.gradients:,}", f"{each.operator_products:,}") if each else ("-", f"> {MOST_PRODUCTS:,}")
            for each in costs
        )
        print(f"{A_norm:>6}" + "".join(f"{gradients:>12}{products:>12}" for gradients, products in cells))
    if picture is not None:
        draw(found).savefig(picture, dpi=150)
        print("written:", picture)


def draw(found: dict[str, list[gs.Costs | None]]) -> object:
    figure, axes = plt.subplots(1, 2, figsize=(10.4, 4.2), layout="constrained")
    for axis, cost in zip(axes, ("gradients", "operator_products"), strict=True):
        for (name, costs), colour, marker in zip(found.items(), COLOURS, "Xdosv", strict=False):
            counts = [np.nan if each is None else getattr(each, cost) for each in costs]
            axis.loglog(NORMS, counts, color=colour, marker=marker, label=name)
        axis.set_xlabel("||A||, smallest singular value 1")
        axis.set_ylabel(cost.replace("_", " "))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
