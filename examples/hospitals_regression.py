"""Ten hospitals fit one logistic regression, with weights whose signs make sense, and no patient leaves a hospital.

For those who model across sites that may not pool their data: hospitals, banks, plants. Each measurement is the size or
unevenness of cell nuclei. Larger values should never indicate a benign mass, and none should decide alone, so weights
lie between 0 and 2. Some hospitals are too small or too biased to find a good model. Together they find the model of
the pooled data. The patients are real (scikit-learn's breast cancer data). The hospitals are not: patients are
assigned by the size of the finding. examples/hospitals runs between real processes.

    python examples/hospitals_regression.py [PICTURE.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

import gradslide as gs

PATIENTS = [27, 70, 15, 40, 10, 54, 18, 32, 12, 22]  # of each hospital; the others are kept for the test
# Centre and width of each measurement: round numbers, agreed on beforehand.
CENTRES = [16, 26, 107, 880, 0.13, 0.25, 0.27, 0.11, 0.29, 0.084]
WIDTHS = [4.8, 6.1, 34, 570, 0.023, 0.16, 0.21, 0.066, 0.062, 0.018]
SENSIBLE = gs.domains.Box(lo=np.r_[np.zeros(10), -5], hi=np.r_[np.full(10, 2.0), 5])  # the last weight is a constant


def patients(data, rng):
    """Features, labels (1 malignant, -1 benign), the rows of each hospital, and those for the test."""
    features = np.column_stack([(data.data[:, 20:] - CENTRES) / WIDTHS, np.ones(len(data.target))])
    known, test = np.split(rng.permutation(len(features)), [sum(PATIENTS)])
    by_size = known[np.argsort(features[known, 0] + 0.5 * rng.normal(size=len(known)))]
    return features, np.where(data.target == 0, 1.0, -1.0), np.split(by_size, np.cumsum(PATIENTS)[:-1]), test


def in_one_place(features, labels, rows, domain=SENSIBLE):
    return gs.reference.reference(gs.Problem(gs.losses.Logistic(features[rows], labels[rows], agents=1), domain)).x


def draw(alone, together, names, weights):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", width_ratios=(2, 3))
    left.plot(PATIENTS, alone, "o", color="#D55E00", label="each hospital alone")
    left.axhline(together, color="#0072B2", label="all together, over the network")
    left.set(xlabel="patients of the hospital", ylabel="wrong, of 269 other patients", ylim=(0, None))
    for shift, colour, (name, x) in zip((0.2, -0.2), ("#0072B2", "0.7"), weights.items(), strict=True):
        right.barh(np.arange(10) - shift, x[:10], 0.4, color=colour, label=name, zorder=2)
    right.set(xlabel="weight of one width of the measurement", yticks=range(10), yticklabels=names)
    right.invert_yaxis()
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    return figure


def main(picture: Path) -> None:
    data = load_breast_cancer()
    features, labels, sites, test = patients(data, np.random.default_rng(0))
    problem = gs.Problem(gs.losses.Logistic(features, labels, splits=sites), SENSIBLE)
    solution = gs.solve(problem, gs.Graph.random(len(sites), max_degree=3, seed=1))
    print(solution)
    everybody, anything = np.concatenate(sites), gs.domains.Box(-5.0, 5.0)
    pooled, free = (in_one_place(features, labels, everybody, domain) for domain in (SENSIBLE, anything))

    def wrong(x):
        return int(np.sum(np.sign(features[test] @ x) != labels[test]))

    alone = [wrong(in_one_place(features, labels, rows)) for rows in sites]
    together, error = wrong(solution.mean), np.linalg.norm(solution.mean - pooled) / np.linalg.norm(pooled)
    print(f"wrong, of {len(test)}: {together} together, {wrong(pooled)} in one place, alone", *sorted(alone))
    print(f"weights from {solution.mean[:10].min():.3f} to {solution.mean[:10].max():.3f}, {error:.0e} from one place")
    print(f"without the signs: {wrong(free)} wrong, weights from {free[:10].min():.1f} to {free[:10].max():.1f}")
    names = [str(name).removeprefix("worst ") for name in data.feature_names[20:]]
    weights = {"all together, between 0 and 2": solution.mean, "all data in one place, any weights": free}
    draw(alone, together, names, weights).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("hospitals_regression.png"))
