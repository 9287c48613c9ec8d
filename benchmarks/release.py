"""How accurate a released model is over epsilon, on real data at four sites.

    python benchmarks/release.py [PICTURE.png]

Logistic regression on scikit-learn's breast cancer data, ten columns with stated bounds; half of the rows are for
testing. For each epsilon (delta = 1e-5): the median and the quartiles of the accuracy on test rows over 200 releases,
with the ridge fixed beforehand. The exact model, and one that always says the larger class, are beside it.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

import gradslide as gs

# Bounds that one would state without the data: zero, and about twice what is usual.
BOUNDS = {
    "radius": (0, 30),
    "texture": (0, 40),
    "smoothness": (0, 0.2),
    "compactness": (0, 0.4),
    "concavity": (0, 0.4),
    "symmetry": (0, 0.4),
}
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
RIDGES = (3.0, 10.0, 30.0)
RELEASES, DELTA = 200, 1e-5


def main(picture: Path | None) -> None:
    """Print the table, and draw it."""
    data = load_breast_cancer()
    names = [str(name).removeprefix("mean ").replace(" ", "_") for name in data.feature_names[:10]]
    table = {name: data.data[:, names.index(name)] for name in BOUNDS} | {"malignant": 1 - data.target}
    order = np.random.default_rng(0).permutation(len(data.target))
    train, test = ({name: each[part] for name, each in table.items()} for part in np.array_split(order, 2))
    train["site"] = np.arange(len(train["malignant"])) % 4
    larger = max(np.mean(test["malignant"]), 1 - np.mean(test["malignant"]))
    print(f"always the larger class: {larger:.3f}")
    curves = {}
    for ridge in RIDGES:
        regression = gs.Regression(
            family="logistic",
            label="malignant",
            features=list(BOUNDS),
            classes=["0", "1"],
            bounds=BOUNDS,
            ridge=ridge,
            for_release=True,
        )
        solution = gs.fit(regression, train, sites="site")
        print(f"ridge {ridge:g}: exact model {solution.model.evaluate(test)['accuracy']:.3f}")
        rows = []
        for epsilon in EPSILONS:
            released = [solution.release(epsilon, DELTA) for _ in range(RELEASES)]
            accuracy = np.quantile([each.evaluate(test)["accuracy"] for each in released], [0.25, 0.5, 0.75])
            rows.append(accuracy)
            low, middle, high = accuracy
            print(f"  epsilon {epsilon:5g}: accuracy {middle:.3f} ({low:.3f} to {high:.3f})")
        curves[ridge] = np.array(rows)
    if picture is not None:
        draw(curves, larger, picture)


def draw(curves: dict[float, np.ndarray], larger: float, picture: Path) -> None:
    """Accuracy over epsilon, one curve for each ridge."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for ridge, rows in curves.items():
        axes.plot(EPSILONS, rows[:, 1], "o-", label=f"ridge {ridge:g}")
        axes.fill_between(EPSILONS, rows[:, 0], rows[:, 2], alpha=0.2)
    axes.axhline(larger, color="0.5", linestyle="--", label="always the larger class")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("epsilon (delta = 1e-5)")
    axes.set_ylabel("accuracy on test rows")
    axes.legend()
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
