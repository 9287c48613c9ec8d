"""What the four sites found together, beside statsmodels with all patients in one place, and each site alone.

Run it after the sites are done. It prints a table and draws the odds ratios. Only this script looks at all four files:
it is the check, not the method. It needs statsmodels.

    python compare.py [PICTURE.png]
"""

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm

import gradslide as gs
from gradslide.regression import FittedRegression, load_model

HERE = Path(__file__).parent
SITES = ("north", "east", "south", "west")


def fitted_in_one_place(model: FittedRegression, patients: pd.DataFrame) -> sm.Logit:
    """The same regression by statsmodels, which sees everybody."""
    features = sm.add_constant(patients[list(model.schema.columns)])
    return sm.GLM(patients["malignant"], features, family=sm.families.Binomial()).fit(tol=1e-14)


def draw(model: FittedRegression, deviations: np.ndarray, alone: dict[str, FittedRegression], picture: Path) -> None:
    """Changes of the log-odds with their intervals, for one standard deviation of each column."""
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    fits = {"all four together": model, **{f"{site} alone": each for site, each in alone.items()}}
    for k, (name, each) in enumerate(fits.items()):
        places = np.arange(len(deviations)) + 0.14 * (k - 2)
        tests = each.tests
        if tests is None:  # separated: no estimate exists
            continue
        reach = (tests.high - tests.low)[1:] / 2 * deviations
        axes.errorbar(places, each.coefficients[1:] * deviations, reach, fmt="o", capsize=3, label=name)
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.set_xticks(range(len(deviations)), model.schema.columns)
    axes.set_ylabel("log odds ratio per standard deviation")
    axes.set_ylim(-10, 25)
    axes.legend(fontsize="small")
    figure.savefig(picture, dpi=150)


def main(picture: Path) -> None:
    models = {site: load_model(HERE / site / "results" / "model.json") for site in SITES}
    patients = {site: pd.read_csv(HERE / site / "patients.csv") for site in SITES}
    model, everybody = models["north"], pd.concat(patients.values())
    pooled = fitted_in_one_place(model, everybody)
    print(f"{'':12}{'coefficient':>12}{'statsmodels':>13}{'std err':>10}{'statsmodels':>13}")
    rows = zip(model.names, model.coefficients, pooled.params, model.standard_errors, pooled.bse, strict=True)
    for name, value, theirs, error, their_error in rows:
        print(f"{name:12}{value:12.6f}{theirs:13.6f}{error:10.6f}{their_error:13.6f}")
    apart = max(
        np.max(np.abs(np.concatenate([each.coefficients / pooled.params, each.standard_errors / pooled.bse]) - 1))
        for each in models.values()
    )
    print(f"largest relative difference at any site: {apart:.1e}")
    are_same = len({each.hash for each in models.values()}) == 1
    print(f"model cards of all sites are the same: {'yes' if are_same else 'no'}")
    lenient = replace(model.regression, classes=("0", "1"))
    alone = {site: gs.fit(lenient, rows).model for site, rows in patients.items()}
    for site, each in alone.items():
        end = each.warnings[0] if each.warnings else "converged"
        print(f"{site} alone, {len(patients[site])} patients: {end}")
    draw(model, model.deviations, alone, picture)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals.png"))
