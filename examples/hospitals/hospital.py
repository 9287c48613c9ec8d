"""What every hospital agreed on: which columns, on which scale, and which loss. It reads its own file and no other."""

import csv
from pathlib import Path

import numpy as np

import gradslide as gs

# Centre and width of each column, agreed on beforehand: none is taken from anybody's patients.
SCALES = {
    "radius": (14.0, 3.5),
    "texture": (19.0, 4.3),
    "perimeter": (92.0, 24.0),
    "area": (655.0, 350.0),
    "smoothness": (0.096, 0.014),
    "compactness": (0.10, 0.053),
    "concavity": (0.089, 0.080),
    "concave_points": (0.049, 0.039),
    "symmetry": (0.18, 0.027),
    "fractal_dimension": (0.063, 0.0071),
}


def read_patients(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features on the agreed scale, with a column of ones, and labels: 1 for malignant, -1 for benign."""
    with path.open(newline="", encoding="utf-8") as file:
        patients = list(csv.DictReader(file))
    columns = [
        [(float(patient[name]) - centre) / width for patient in patients] for name, (centre, width) in SCALES.items()
    ]
    features = np.column_stack([*columns, np.ones(len(patients))])
    return features, np.where([patient["malignant"] == "1" for patient in patients], 1.0, -1.0)


def build(folder: Path) -> tuple[gs.losses.Loss, None, list[str]]:
    """The loss of the hospital whose AGENT.toml lies in this folder, no set, and the names of the columns."""
    return gs.losses.Logistic(*read_patients(folder / "patients.csv")), None, [*SCALES, "constant"]
