"""What the four sites found together, beside a fit with all patients in one place, and what each would find alone.

Run it after the sites are done. It prints a table and draws the models. Only this script looks at all four files: it
is the check, not the method.

    python compare.py [PICTURE.png]
"""

import sys
from pathlib import Path

import hospital
import matplotlib.pyplot as plt
import numpy as np

import gradslide as gs

HERE = Path(__file__).parent
SITES = ("north", "east", "south", "west")
RIDGE = 4 * 0.25  # mu of all AGENT.toml together


def fitted_in_one_place(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The model of somebody who has these rows: no network, no messages."""
    return gs.reference.reference(gs.Problem(gs.losses.Logistic(features, labels), mu=RIDGE)).x


def show(name: str, patients: int, wrong: int, distance: float) -> None:
    print(f"{name:24}{patients:>10}{wrong:>10}{distance:>14.1e}")


def draw(alone: dict, pooled: np.ndarray, together: dict, picture: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
    places = np.arange(len(pooled))
    axes.bar(places, pooled, color="0.85", label="all data in one place")
    for site, marker in zip(SITES, "^>v<", strict=True):
        axes.plot(places, alone[site], marker, color="tab:orange", label=f"{site} alone")
    for site, marker in zip(SITES, "^>v<", strict=True):
        axes.plot(places, together[site], marker, color="tab:blue", label=f"{site} with the others")
    axes.set_xticks(places, [*hospital.SCALES, "constant"], rotation=30, ha="right")
    axes.set_ylabel("weight in the model")
    axes.legend(ncols=3, fontsize="small", loc="lower left")
    figure.savefig(picture, dpi=150)


def main(picture: Path) -> None:
    patients = {site: hospital.read_patients(HERE / site / "patients.csv") for site in SITES}
    features, labels = (np.concatenate(part) for part in zip(*patients.values(), strict=True))
    pooled = fitted_in_one_place(features, labels)
    alone = {site: fitted_in_one_place(*rows) for site, rows in patients.items()}
    solutions = {site: gs.load(HERE / site / "results" / "solution.npz") for site in SITES}
    together = {site: solution.x[0] for site, solution in solutions.items()}

    models = {f"{site} alone": (len(patients[site][1]), alone[site]) for site in SITES}
    models["all data in one place"] = (len(labels), pooled)
    models |= {f"{site} with the others": (len(patients[site][1]), together[site]) for site in SITES}
    print(f"{'model':24}{'patients':>10}{'wrong':>10}{'from pooled':>14}")
    for name, (count, x) in models.items():
        wrong = int(np.sum(np.where(features @ x > 0, 1, -1) != labels))
        show(name, count, wrong, float(np.linalg.norm(x - pooled) / np.linalg.norm(pooled)))
    print(f"wrong: of all {len(labels)} patients; from pooled: distance to the fit in one place, relative")
    costs = solutions["north"].costs
    print(f"north sent its neighbours {costs.rounds} vectors of {len(pooled)} numbers, and no patient")
    draw(alone, pooled, together, picture)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "hospitals.png"))
