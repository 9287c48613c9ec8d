"""A portfolio that grows fast, holds no short position, and bets neither on the market nor on technology or risk.

For those who must keep a portfolio's exposures where the benchmark's are: maximise the yearly growth rate of the
monthly rebalanced portfolio (mean log return of real prices) over x >= 0, sum x = 1, with A x = 0, one row per
factor, in standard deviations. The multipliers are the price of each neutrality, checked by solving again with moved
exposures. In sample: this shows a method, not a strategy.

    python examples/comparisons/portfolio.py [PICTURE.png]
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cbook import get_sample_data
from scipy.optimize import minimize

import gradslide as gs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

FACTORS = ("market", "technology", "volatility")
GROWTH_ERROR, EXPOSURE_ERROR, MOVE = 1e-4, 1e-3, 1e-3
GEOMETRIES = {"Euclid": gs.domains.Simplex(), "entropy": gs.domains.EntropySimplex()}


def monthly_returns():
    """Since Google was listed: months, names of the stocks, their gross returns, those of S&P 500 and Nasdaq."""
    with get_sample_data("Stocks.csv") as file:
        table = np.genfromtxt(file, delimiter=",", skip_header=1, names=True, deletechars="", dtype=None)
    # The last row is the last month once more; rows of dividends have no prices.
    table = table[:-1][np.isfinite(table["GOOGL"][:-1])]
    names = [name for name in table.dtype.names[1:] if np.isfinite(table[name]).all()]
    prices = np.column_stack([table[name] for name in names])
    gross = prices[1:] / prices[:-1]
    return table["Date"][1:].astype("datetime64[D]"), names[:-2], gross[:, :-2], gross[:, -2:]


def exposures(stocks, indices):
    """Of each stock: to the market, to technology beyond it, and its own volatility; less the equal-weighted mean."""
    market, nasdaq = (indices - 1).T
    factors = np.column_stack([np.ones(len(market)), market, nasdaq - market])
    loadings = np.linalg.lstsq(factors, stocks - 1, rcond=None)[0]
    rows = np.vstack([loadings[1:], np.std(stocks - 1 - factors @ loadings, axis=0)])
    return (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)


def growth_loss(gross):
    """Minus the growth rate per year. On the simplex only differences between the stocks bend it."""
    deviations = (gross - gross.mean(axis=1, keepdims=True)) / gross.min(axis=1, keepdims=True)
    smoothness = {1: np.mean(np.ptp(deviations, axis=1) ** 2) / 4, 2: np.linalg.norm(deviations, 2) ** 2 / len(gross)}
    return gs.losses.Custom(
        value=lambda x: -12 * np.mean(np.log(x @ gross.T), axis=1),
        gradient=lambda x: -12 * (1 / (x @ gross.T)) @ gross / len(gross),
        smoothness=lambda norm: 12 * smoothness[norm],
        agents=1,
        dimension=gross.shape[1],
    )


def exact(loss, A, b=0.0):
    """The same problem, by SLSQP."""
    return minimize(
        lambda x: loss.value(x[None])[0],
        np.full(loss.d, 1 / loss.d),
        jac=lambda x: loss.gradient(x[None])[0],
        bounds=[(0, 1)] * loss.d,
        constraints={"type": "eq", "fun": lambda x: np.append(A @ x - b, x.sum() - 1)},
        options={"ftol": 1e-14},
    )


def best_of_grid(problem, stop):
    """Condat-Vu with the ratio that takes the fewest products; runs that take more than the best so far are cut."""
    best = gs.solve(problem, method=gs.CondatVu(), stop=stop, output="last")
    for ratio in np.logspace(-3, 3, 13):
        shorter = replace(stop, operator_products=best.costs.operator_products)
        run = gs.solve(problem, method=gs.CondatVu(ratio=ratio), stop=shorter, output="last")
        best = run if run.status is gs.Status.CONVERGED else best
    return best


def main(picture: Path) -> None:
    months, names, stocks, indices = monthly_returns()
    loss, A = growth_loss(stocks), exposures(stocks, indices)
    clock = time.perf_counter()
    best = exact(loss, A)
    seconds = time.perf_counter() - clock
    moves = MOVE * np.eye(len(A))
    prices = np.array([(exact(loss, A, -move).fun - exact(loss, A, move).fun) / (2 * MOVE) for move in moves])

    stop = gs.Stop(objective=best.fun + GROWTH_ERROR, residual=EXPOSURE_ERROR, operator_products=5_000)
    runs = {}
    for geometry, domain in GEOMETRIES.items():
        problem = gs.LinearlyConstrained(loss, A, 0, domain=domain)
        # Known only where the solution is: what the default has to guess.
        V = problem.distances(best.x, prices).V
        R = gs.guarantees.theory_R(V=V, z_star=float(np.linalg.norm(prices)))
        methods = {"PDS": gs.PDS(), "PDS, R of theory": gs.PDS(R=R), "Condat-Vu": gs.CondatVu()}
        for name, method in methods.items():
            runs[name, geometry] = gs.solve(problem, method=method, stop=stop, output="last")
        runs["Condat-Vu, best ratio", geometry] = best_of_grid(problem, stop)

    print(f"{'to the same accuracy':32}{'gradients':>10}{'products':>10}{'seconds':>9}{'growth':>9}{'exposure':>10}")
    rows = {", ".join(key): (run.costs.to_dict(), run.mean) for key, run in runs.items()}
    rows["SLSQP"] = ({"gradients": best.njev, "seconds": seconds}, best.x)
    for label, (costs, x) in rows.items():
        counts = "".join(f"{costs.get(unit, ''):>10}" for unit in ("gradients", "operator_products"))
        growth, exposure = -loss.value(x[None])[0], np.linalg.norm(A @ x)
        print(f"{label:32}{counts}{costs['seconds']:9.4f}{growth:9.2%}{exposure:10.1e}")
    for unit in ("gradients", "operator_products", "seconds"):
        winner = min(rows, key=lambda label: rows[label][0].get(unit, np.inf))
        print(f"fewest {unit.replace('_', ' ')}: {winner}")
    # Multipliers settle later than weights do.
    neutral = gs.solve(gs.LinearlyConstrained(loss, A, 0, domain=GEOMETRIES["Euclid"]), stop=gs.Stop(gradients=20))
    for factor, z, price in zip(FACTORS, neutral.dual, prices, strict=True):
        print(f"one sd of {factor} is worth {z:+.2%} a year by its multiplier, {price:+.2%} by moving the exposure")

    weights = {
        "equal": np.full(loss.d, 1 / loss.d),
        "neutral": neutral.mean,
        "no constraint": exact(loss, A[:0]).x,
    }
    draw(months, names, weights, stocks, indices, runs, best.fun, prices).savefig(picture, dpi=150)
    print("written:", picture)


def draw(months, names, weights, stocks, indices, runs, optimum, prices):
    figure, axes = plt.subplots(2, 2, figsize=(11, 7.6), layout="constrained")
    for index, (label, x) in enumerate(weights.items()):
        axes[0, 0].bar(np.arange(len(names)) + 0.27 * (index - 1), x, 0.25, label=label, color=COLOURS[index])
        axes[0, 1].plot(months, np.cumprod(stocks @ x), label=label, color=COLOURS[index])
    axes[0, 1].plot(months, np.cumprod(indices[:, 0]), label="S&P 500", color="grey", linestyle=":")
    axes[0, 0].set(xticks=range(len(names)), xticklabels=names, ylabel="weight", title="What to hold")
    axes[0, 1].set(yscale="log", ylabel="wealth", title="How it would have grown (in sample)")
    for index, name in enumerate(name for name, geometry in runs if geometry == "Euclid"):
        columns = runs[name, "Euclid"].history.to_dict()
        error = np.abs(np.array(columns["objective"]) - optimum)
        error += np.linalg.norm(prices) * np.array(columns["residual"])
        style = {"color": COLOURS[index], "linestyle": ("-", "--", "-.", ":")[index], "marker": ".", "label": name}
        for axis, cost in zip(axes[1], ("gradients", "operator_products"), strict=True):
            axis.loglog(columns[cost], error, **style)
    axes[1, 0].set(xlabel="gradients: passes over all months", ylabel="error in growth, exposures at their price")
    axes[1, 1].set(xlabel="products with A and its transpose", ylabel="the same error")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("portfolio.png"))
