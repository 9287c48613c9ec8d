"""Twelve sites learn to predict clicks from their live streams of impressions, none of which is stored or sent.

For those who predict from endless streams of events: advertising, recommendations, fraud, logs. Each impression
(advertisement, page, region, device, hour) is hashed into 512 buckets. SPDS uses each one once, while the sites
exchange vectors. Clicks are simulated from known probabilities, so the best possible prediction is known too.

    python examples/click_prediction.py [PICTURE.png]
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score

import gradslide as gs

SITES, BUCKETS, SAMPLES, HELD_OUT, SIZES = 12, 512, 4_000, 1_000, (400, 300, 60, 8, 24)  # how many of each category
COMMON = np.random.default_rng(0)  # alike at all sites: how much visitors like a category, and its hash
APPEAL = [0.9 * COMMON.normal(size=size) for size in SIZES]
BUCKET = [COMMON.integers(1, BUCKETS, size=size) for size in SIZES]


def impressions(site, count, rng):
    """Features, 1 for a click or -1, and the true probabilities. Popular categories differ from site to site."""
    taste, features, logits = np.random.default_rng([3, site]), np.eye(1, BUCKETS)[[0] * count], np.full(count, -3.5)
    for appeal, bucket in zip(APPEAL, BUCKET, strict=True):
        share = taste.gamma(0.5, size=len(appeal)) / np.arange(1, len(appeal) + 1)
        seen = rng.choice(len(appeal), size=count, p=share / share.sum())
        features[np.arange(count), bucket[seen]] += 1
        logits += appeal[seen]
    return features, np.where(rng.random(count) < expit(logits), 1.0, -1.0), expit(logits)


def stream(site, rng):
    while True:
        yield impressions(site, 50, rng)[:2]


def learn(rows, sites, graph):
    loss = gs.losses.Logistic(*rows, agents=len(sites), reduction="mean")
    live = gs.oracles.Stream([stream(site, np.random.default_rng([1, site])) for site in sites])
    return gs.solve(gs.Problem(loss, gs.domains.L2Ball(10.0)), graph, gs.SPDS(samples=SAMPLES, oracle=live))


def draw(way, losses, predicted, chances):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.0), layout="constrained", width_ratios=(3, 2))
    left.semilogx(way["samples"], np.array(way["objective"]) / SITES, lw=2.5)
    for name in ("mean click rate", "each site alone", "the truth"):
        left.axhline(losses[name], color="black", linestyle="--", lw=1)
        left.text(120, losses[name] + 0.002, name)
    left.set(xlabel="impressions seen at each site", ylabel="log loss", ylim=(0.2, 0.36), title="All together")
    groups, ends = np.array_split(np.argsort(predicted), 15), (0.003, 0.5)
    right.loglog(ends, ends, "k--", *([p[group].mean() for group in groups] for p in (predicted, chances)), "C0o")
    right.set(xlabel="predicted click rate", ylabel="true click rate", title="Fifteen groups by prediction")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


def main(picture: Path) -> None:
    own = [impressions(site, HELD_OUT, np.random.default_rng([2, site])) for site in range(SITES)]
    features, labels, chances = (np.concatenate(part) for part in zip(*own, strict=True))
    solution = learn((features, labels), range(SITES), gs.Graph.random(SITES, max_degree=4, seed=1))
    print(solution)
    alone = [expit(own[i][0] @ learn(own[i][:2], [i], gs.Graph.complete(1)).mean) for i in range(SITES)]
    found = {"mean click rate": np.full(len(labels), np.mean(labels > 0)), "each site alone": np.concatenate(alone)}
    found |= {"all together": expit(features @ solution.mean), "the truth": chances}
    losses = {name: log_loss(labels, p) for name, p in found.items()}
    for name, p in found.items():
        print(f"{name:16} log loss {losses[name]:.4f}, area under the curve {roc_auc_score(labels, p):.3f}")
    draw(solution.history.to_dict(), losses, found["all together"], chances).savefig(picture, dpi=150)
    print("written:", picture)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("click_prediction.png"))
