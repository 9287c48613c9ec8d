"""Colonel Blotto: how to spread troops over battlefields when the enemy has more of them.

For those who must place scarce resources (guards, bids, advertising) against an opponent who chooses at the same time:
each side places its troops, more troops take a battlefield and its worth, and both look for the mixture of placements
that is best against the worst case. A zero-sum matrix game on two simplices, min over x, max over z of <A x, z>. The
gap that PDS certifies is drawn beside the theorem's bound, 2 max|A_ij| sqrt(log n log k)/T after T steps with entropy.

    python examples/comparisons/matrix_game.py [PICTURE.png]
"""

import itertools
import sys
import time
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linprog

import gradslide as gs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

DEFENDER, ATTACKER, WORTH = 8, 10, np.array([1, 2, 3, 4])
ACCURACY = gs.Stop(gap=0.01, operator_products=20_000)
GEOMETRIES = {"entropy": gs.domains.EntropySimplex(), "Euclid": gs.domains.Simplex()}


def placements(troops):
    """All ways to spread the troops, one a row."""
    ways = itertools.product(range(troops + 1), repeat=len(WORTH))
    return np.array([way for way in ways if sum(way) == troops])


def exact_value(A):
    """The least v for which some mixture x of the defender has A x <= v, by linear programming."""
    k, n = A.shape
    cost, bounds = np.append(np.zeros(n), 1), [(0, None)] * n + [(None, None)]
    one = np.append(np.ones(n), 0)[None]
    return linprog(cost, np.column_stack([A, -np.ones(k)]), np.zeros(k), one, [1], bounds).fun


def best_of_grid(problem):
    """Condat-Vu with the ratio that takes the fewest products; runs that take more than the best so far are cut."""
    best = gs.solve(problem, method=gs.CondatVu(), stop=ACCURACY)
    for ratio in np.logspace(-2, 2, 9):
        shorter = replace(ACCURACY, operator_products=best.costs.operator_products)
        run = gs.solve(problem, method=gs.CondatVu(ratio=ratio), stop=shorter, record_every=10)
        best = run if run.status is gs.Status.CONVERGED else best
    return best


def main(picture: Path) -> None:
    defender, attacker = placements(DEFENDER), placements(ATTACKER)
    # What the attacker wins less what it loses, as a share of all there is.
    A = np.sign(attacker[:, None] - defender) @ WORTH / WORTH.sum()
    k, n = A.shape
    clock = time.perf_counter()
    value = exact_value(A)
    seconds = time.perf_counter() - clock

    runs, bounds, default_is_theory = {}, {}, []
    for geometry, domain in GEOMETRIES.items():
        problem = gs.Saddle(gs.losses.Linear(np.zeros(n)), A, domain=domain, dual_domain=domain)
        V, U = (float(side.distance_bound(side.start())[0]) for side in (problem.domain, problem.duals.domain))
        R = gs.guarantees.saddle_R(V=V, U=U)
        runs["PDS", geometry] = run = gs.solve(problem, method=gs.PDS(), stop=ACCURACY)
        runs["Condat-Vu", geometry] = gs.solve(problem, method=gs.CondatVu(), stop=ACCURACY)
        runs["Condat-Vu, best ratio", geometry] = best_of_grid(problem)
        default_is_theory.append(np.isclose(run.parameters["R"], R))
        theorem = {"L": 0, "R": R, "V": V, "U": U, "A_norm": run.parameters["A_norm"]}
        bounds[geometry] = np.array([gs.guarantees.saddle(record.iteration, **theorem) for record in run.history])

    title = f"to a gap of {ACCURACY.gap:g}"
    print(f"{title:34}{'gradients':>10}{'products':>10}{'seconds':>9}{'wins >=':>9}{'loses <=':>10}")
    rows = {", ".join(key): (run.costs.to_dict(), run.certificate) for key, run in runs.items()}
    rows["linprog"] = ({"seconds": seconds}, gs.Certificate(value, value))
    for label, (costs, proof) in rows.items():
        counts = "".join(f"{costs.get(name, ''):>10}" for name in ("gradients", "operator_products"))
        print(f"{label:34}{counts}{costs['seconds']:9.3f}{proof.lower:9.4f}{proof.upper:10.4f}")
    for unit in ("gradients", "operator_products", "seconds"):
        counts = {label: rows[label][0].get(unit, np.inf) for label in rows}
        winners = [label for label in counts if counts[label] == min(counts.values())]
        print(f"fewest {unit.replace('_', ' ')}: {winners[0] if len(winners) == 1 else f'{len(winners)} alike'}")
    print(f"the default R is the theory's: {all(default_is_theory)}")
    steps = np.array([record.iteration * (record.iteration + 1) / 2 for record in runs["PDS", "entropy"].history])
    formula = 2 * np.abs(A).max() * np.sqrt(np.log(n) * np.log(k)) / steps
    print(f"the theorem's bound is 2 max|A_ij| sqrt(log n log k)/T: {np.allclose(formula, bounds['entropy'])}")
    gaps = {geometry: np.array(runs["PDS", geometry].history.to_dict()["gap"]) for geometry in GEOMETRIES}
    print(f"no gap exceeds it: {all(np.all(gaps[geometry] <= bounds[geometry]) for geometry in GEOMETRIES)}")
    draw(runs, bounds, attacker, defender).savefig(picture, dpi=150)
    print("written:", picture)


def draw(runs, bounds, attacker, defender):
    figure = plt.figure(figsize=(11.5, 5.4), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[1.25, 1])
    axis = figure.add_subplot(grid[:, 0])
    for index, geometry in enumerate(GEOMETRIES):
        for name, style in {"PDS": "-", "Condat-Vu, best ratio": "--"}.items():
            columns = runs[name, geometry].history.to_dict()
            label = f"{name}, {geometry}"
            axis.loglog(columns["operator_products"], columns["gap"], style, color=COLOURS[index], label=label)
        products = [record.operator_products for record in runs["PDS", geometry].history]
        axis.loglog(products, bounds[geometry], ":", color=COLOURS[index], label=f"bound for PDS, {geometry}")
    axis.set(xlabel="products with A and its transpose", ylabel="certified gap, in shares of all there is to win")
    axis.legend(frameon=False, loc="lower left")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    best = runs["PDS", "entropy"]
    for row, (who, places, mixture) in enumerate(
        [("attacker", attacker, best.dual), ("defender", defender, best.mean)]
    ):
        axis = figure.add_subplot(grid[row, 1])
        chances = [np.bincount(field, weights=mixture, minlength=ATTACKER + 1) for field in places.T]
        image = axis.imshow(chances, cmap="Blues", aspect="auto", vmin=0)
        axis.set(yticks=range(len(WORTH)), yticklabels=[f"worth {worth}" for worth in WORTH])
        axis.set(xlabel="troops placed there", title=f"{who}, {places[0].sum()} troops")
        figure.colorbar(image, ax=axis, label="chance")
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("matrix_game.png"))
