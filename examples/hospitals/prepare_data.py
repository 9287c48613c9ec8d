"""How the four patients.csv files were made: scikit-learn's breast cancer data, shared out by the size of the finding.

Four hospitals see different patients: south screens and sees small findings, north treats large ones. The row numbers
of the original are kept, so that everything can be traced back.

    python prepare_data.py
"""

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

HERE = Path(__file__).parent
# Patients of each hospital, from the smallest finding to the largest.
SITES = {"south": 208, "west": 171, "east": 118, "north": 72}
OVERLAP = 1.5  # in units of the radius: patients do not choose their hospital by size alone


def main() -> None:
    data = load_breast_cancer()
    names = [str(name).removeprefix("mean ").replace(" ", "_") for name in data.feature_names[:10]]
    size = data.data[:, 0] + OVERLAP * np.random.default_rng(7).normal(size=len(data.target))
    shares = np.split(np.argsort(size, kind="stable"), np.cumsum(list(SITES.values()))[:-1])
    for site, rows in zip(SITES, shares, strict=True):
        path = HERE / site / "patients.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["row", *names, "malignant"])
            for row in np.sort(rows):
                # In scikit-learn 0 stands for malignant.
                writer.writerow([row, *(f"{value:g}" for value in data.data[row, :10]), 1 - data.target[row]])


if __name__ == "__main__":
    main()
