"""How to turn one handwritten digit into another with the least work: optimal transport between two images.

For those who compare or morph distributions (images, histograms, supplies and demands): move ink p to ink q with the
least sum of mass times squared distance, over plans x >= 0 with row sums p and column sums q. The cost is linear, so
one gradient is enough for PDS (finding R by itself takes another); what counts are products with A, which sums rows and
columns. Three geometries: entropy over the whole plan, where ||A|| is only sqrt 2; Euclid over x >= 0; and Euclid over
one simplex per row, which leaves just the column sums to A.
Every plan is rounded to exact marginals (Altschuler, Weed, Rigollet 2017), so its cost is a true upper bound.

    python examples/comparisons/optimal_transport.py [PICTURE.png]
"""

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.datasets import load_digits

import gradslide as gs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

BEFORE, AFTER = 1, 7
ACCURACY, MOST_PRODUCTS = 0.01, 3_000


def ink(digit):
    """Where the first such digit has ink (row, column), and how much, 1 in all."""
    digits = load_digits()
    image = digits.images[digits.target == digit][0]
    return np.argwhere(image), image[image > 0] / image.sum()


def rounded(plan, p, q):
    """A plan with exactly these marginals: what is too much is taken off, what is missing spread over all."""
    plan = plan * np.minimum(1, p / np.maximum(plan.sum(axis=1), p / 2))[:, None]
    plan = plan * np.minimum(1, q / np.maximum(plan.sum(axis=0), q / 2))
    missing_p, missing_q = p - plan.sum(axis=1), q - plan.sum(axis=0)
    return plan + np.outer(missing_p, missing_q) / max(missing_p.sum(), 1e-300)


def main(picture: Path) -> None:
    (P, p), (Q, q) = ink(BEFORE), ink(AFTER)
    C = ((P[:, None] - Q) ** 2).sum(axis=2).astype(float)
    n, k = C.shape
    columns = sp.kron(np.ones((1, n)), sp.eye_array(k)).tocsr()
    A = sp.vstack([sp.kron(sp.eye_array(n), np.ones((1, k))), columns]).tocsr()
    clock = time.perf_counter()
    best = linprog(C.ravel(), A_eq=A, b_eq=np.append(p, q))
    seconds = time.perf_counter() - clock

    whole, by_row, pq = gs.losses.Linear(C.ravel()), gs.losses.Linear(C), np.append(p, q)
    problems = {
        "entropy": gs.LinearlyConstrained(whole, A, pq, domain=gs.domains.EntropySimplex()),
        "x >= 0": gs.LinearlyConstrained(whole, A, pq, domain=gs.domains.NonNegative()),
        "row simplices": gs.LinearlyConstrained(by_row, columns, q, domain=gs.domains.Simplex(total=p)),
    }

    def solved(problem, method, most=MOST_PRODUCTS):
        """The run, and after each outer iteration its products and how far the rounded plan is above the optimum."""
        errors = []

        def is_near(record, x):
            cost = np.sum(C * rounded(x.reshape(C.shape), p, q))
            errors.append((record.operator_products, cost / best.fun - 1))
            return errors[-1][1] <= ACCURACY

        stop = gs.Stop(operator_products=most)
        run = gs.solve(problem, method=method, stop=stop, output="last", callback=is_near, record_every=100)
        return run, np.array(errors)

    prices, one = best.eqlin.marginals, np.append(np.ones(n), -np.ones(k))
    centred = [prices[:n] - prices[:n].mean(), prices[n:] - prices[n:].mean()]
    # The smallest multipliers: a constant may pass from p to q, and where all mass is 1 each side has its own.
    z_star = {"entropy": np.concatenate(centred), "x >= 0": prices - (prices @ one) / (n + k) * one}
    z_star["row simplices"] = centred[1]

    runs, constants = {}, {}
    for geometry, problem in problems.items():
        size = float(np.linalg.norm(z_star[geometry]))
        V = problem.distances(best.x.reshape(problem.m, problem.d), z_star[geometry]).V
        constants[geometry] = problem.operator_norm() * np.sqrt(V) * (size + 1)
        # Known only where the solution is: what the default has to guess.
        R = gs.guarantees.theory_R(V=V, z_star=size)
        methods = {"PDS": gs.PDS(), "PDS, R of theory": gs.PDS(R=R), "Condat-Vu": gs.CondatVu()}
        for name, method in methods.items():
            runs[name, geometry] = solved(problem, method)
        tuned = runs["Condat-Vu", geometry]
        for ratio in np.logspace(-3, 3, 7):
            # A run that takes more products than the best so far is cut.
            run = solved(problem, gs.CondatVu(ratio=ratio), tuned[0].costs.operator_products)
            tuned = min(tuned, run, key=lambda run: (max(run[1][-1, 1], ACCURACY), run[0].costs.operator_products))
        runs["Condat-Vu, best ratio", geometry] = tuned

    print(f"{f'to {ACCURACY:.0%} above the least cost':38}{'gradients':>10}{'products':>10}{'seconds':>9}{'above':>8}")
    rows = {", ".join(key): (run.costs.to_dict(), errors[-1, 1]) for key, (run, errors) in runs.items()}
    rows["linprog"] = ({"seconds": seconds}, 0.0)
    for label, (costs, above) in rows.items():
        counts = "".join(f"{costs.get(name, ''):>10}" for name in ("gradients", "operator_products"))
        print(f"{label:38}{counts}{costs['seconds']:9.3f}{above:8.2%}{'' if above <= ACCURACY else '  not reached'}")
    reached = {label: costs for label, (costs, above) in rows.items() if above <= ACCURACY}
    for unit in ("gradients", "operator_products", "seconds"):
        counts = {label: reached[label].get(unit, np.inf) for label in reached}
        winners = [label for label in counts if counts[label] == min(counts.values())]
        print(f"fewest {unit.replace('_', ' ')}: {winners[0] if len(winners) == 1 else f'{len(winners)} alike'}")
    ranking = ", ".join(f"{geometry} {constant:.1f}" for geometry, constant in constants.items())
    print(f"the theorem's bound grows with ||A|| sqrt(V) (||z*|| + 1): {ranking}")
    run = runs["PDS, R of theory", "row simplices"][0]
    plan = rounded(run.x, p, q)
    lower = -run.dual @ q + np.min(C + run.dual, axis=1) @ p
    print(
        f"proved by the plan and the prices: {lower:.4f} <= least cost <= {np.sum(C * plan):.4f}; it is {best.fun:.4f}"
    )
    off = np.max(np.abs(-run.dual + run.dual.mean() - centred[1])) / np.ptp(centred[1])
    print(f"prices of the second image are within {off:.1%} of linprog's, measured by their range")
    draw(P, Q, plan, runs).savefig(picture, dpi=150)
    print("written:", picture)


def draw(P, Q, plan, runs):
    figure = plt.figure(figsize=(11.5, 7.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1.15, 1.8])
    i, j = np.nonzero(plan > 1e-6)
    pixels = np.linspace(-0.5, 7.5, 96)
    for axis, time_passed in zip(above.subplots(1, 5), np.linspace(0, 1, 5), strict=True):
        place = (1 - time_passed) * P[i] + time_passed * Q[j]
        down, across = (np.exp(-2 * (pixels - side[:, None]) ** 2) for side in place.T)
        axis.imshow((plan[i, j][:, None] * down).T @ across, cmap="Greys", extent=(-0.5, 7.5, 7.5, -0.5))
        axis.set(xticks=[], yticks=[], title=f"{time_passed:.0%} of the way")
    left, right = below.subplots(1, 2, width_ratios=[2, 3])
    left.scatter(P[:, 1], P[:, 0], s=2500 * plan.sum(axis=1), color=COLOURS[0], alpha=0.6, label=f"a {BEFORE}")
    left.scatter(Q[:, 1], Q[:, 0], s=2500 * plan.sum(axis=0), color=COLOURS[1], alpha=0.6, label=f"a {AFTER}")
    way, width = Q[j] - P[i], plan[i, j] / plan.max()
    left.quiver(
        P[i, 1], P[i, 0], way[:, 1], way[:, 0], alpha=width, angles="xy", scale_units="xy", scale=1, width=0.006
    )
    left.set(aspect="equal", xticks=[], yticks=[], xlim=(-0.7, 7.7), ylim=(7.7, -0.7), title="where the ink goes")
    left.legend(frameon=False, loc="lower left")
    for index, geometry in enumerate(dict.fromkeys(geometry for _, geometry in runs)):
        for name, style in {"PDS": ":", "PDS, R of theory": "-", "Condat-Vu, best ratio": "--"}.items():
            products, error = runs[name, geometry][1].T
            right.loglog(products, error, style, color=COLOURS[index], label=f"{name}, {geometry}")
    right.set(xlabel="products with A and its transpose", ylabel="cost of the rounded plan above the least")
    right.legend(frameon=False, fontsize="small", loc="lower left")
    right.grid(alpha=0.3)
    right.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("optimal_transport.png"))
