"""Plan a deployment before there is one: 10,000 engines over a continent learn one misfire detector.

Which method, over which links, and does it pay to replace the slow controllers? One run of each method answers for
every network at once: agents wait for their neighbours only, and each clock keeps its own time. Neighbours are
joined by short links (a Delaunay triangulation), and there is a leased line between random places for every five
engines; over a WAN latency grows with distance. Both methods run with their defaults. Prints simulated seconds to a
given accuracy and draws them.

    python examples/deployment.py [PICTURE.png] [AGENTS]
"""

import sys
from pathlib import Path

import numpy as np
from scipy.spatial import Delaunay

import gradslide as gs

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito

METHODS = {"PDS": gs.PDS(), "NIDS": gs.NIDS()}
NETWORKS = ("LAN", "WAN", "satellite")
ACCURACIES = (0.1, 0.03, 0.01)
ROWS, MU = 5, 0.01
FAST, SLOW, SLOW_SHARE = 0.02, 0.4, 0.05
# A continent is 4,000 km wide, and light in a fibre makes 200,000 km a second.
EQUIPMENT_SECONDS, SECONDS_ACROSS = 0.005, 0.02


def sites(agents, rng):
    """Where the engines are, in continents; who is joined to whom; and the lengths of the links."""
    places = rng.random((agents, 2))
    triangles = Delaunay(places).simplices
    leased = rng.integers(agents, size=(agents // 5, 2))
    pairs = np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]], leased])
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    graph = gs.Graph.from_edges(agents, pairs)
    return places, graph, np.linalg.norm(places[graph.edges[:, 0]] - places[graph.edges[:, 1]], axis=1)


def clocks(lengths, is_slow):
    """Every network as it is, and with fast controllers in the place of slow ones."""
    latency = EQUIPMENT_SECONDS + SECONDS_ACROSS * lengths
    today = np.where(is_slow, SLOW, FAST)
    return {
        f"{network}{label}": clock
        for label, gradient in (("", today), (", all fast", FAST))
        for network, clock in {
            "LAN": gs.Clock.lan(gradient=gradient),
            "WAN": gs.Clock.wan(gradient=gradient, latency=latency),
            "satellite": gs.Clock.satellite(gradient=gradient),
        }.items()
    }


def errors(history, best):
    """Of the loss and of the agents' answers, relative, whichever is larger."""
    columns = history.to_dict()
    loss = np.array(columns["objective"]) / best.objective - 1
    return np.maximum(loss, np.array(columns["disagreement"]) / np.linalg.norm(best.x))


def first_within(history, best, accuracy):
    """The first record of that accuracy, if there is one."""
    reached = np.flatnonzero(errors(history, best) <= accuracy)
    return history[int(reached[0])] if reached.size else None


def main(picture: Path, agents: int = 10_000) -> None:
    rng = np.random.default_rng(0)
    places, graph, lengths = sites(agents, rng)
    is_slow = rng.random(agents) < SLOW_SHARE
    data = gs.data.misfire(rows=ROWS * agents)
    loss = gs.losses.Logistic(data.features, data.labels, agents=agents, reduction="mean")
    problem = gs.Problem(loss, mu=MU)
    best = gs.reference.reference(problem)

    goal = min(ACCURACIES)
    stop = gs.Stop(
        objective=(1 + goal) * best.objective, disagreement=goal * float(np.linalg.norm(best.x)), iterations=1000
    )
    runs = {
        name: gs.solve(problem, graph, method, stop=stop, clock=clocks(lengths, is_slow), progress=name).history
        for name, method in METHODS.items()
    }

    print(f"{agents:,} agents, {len(graph.edges):,} links, {is_slow.sum():,} slow agents; simulated seconds")
    for label in ("", ", all fast"):
        names = [f"{network}{label}" for network in NETWORKS]
        print(f"\n{'accuracy':<10}{'method':<8}{'gradients':>10}{'rounds':>8}" + "".join(f"{n:>20}" for n in names))
        for accuracy in ACCURACIES:
            found = {name: first_within(history, best, accuracy) for name, history in runs.items()}
            for name, record in found.items():
                if record is None:
                    print(f"{accuracy:<10g}{name:<8}not reached")
                    continue
                seconds = "".join(f"{record.simulated_seconds[clock]:20.1f}" for clock in names)
                print(f"{accuracy:<10g}{name:<8}{record.gradients:10}{record.rounds:8}{seconds}")
    print()
    for clock in clocks(lengths, is_slow):
        found = {name: first_within(history, best, goal) for name, history in runs.items()}
        seconds = {name: record.simulated_seconds[clock] for name, record in found.items() if record is not None}
        print(f"fastest to {goal:g} over {clock}: {min(seconds, key=seconds.get) if seconds else 'none'}")
    try:
        draw(places, graph, lengths, is_slow, runs, best).savefig(picture, dpi=150)
    except ModuleNotFoundError as missing:
        print("no picture: plots need matplotlib:", missing)
        return
    print("written:", picture)


def draw(places, graph, lengths, is_slow, runs, best):
    import matplotlib.pyplot as plt  # the plan itself needs no matplotlib

    figure, axes = plt.subplots(2, 2, figsize=(11, 8.4), layout="constrained")
    for link in np.argsort(-lengths)[: len(places) // 50]:
        axes[0, 0].plot(*places[graph.edges[link]].T, color="grey", alpha=0.2, linewidth=0.5)
    for slow, name in enumerate(("fast", "slow")):
        axes[0, 0].scatter(*places[is_slow == slow].T, s=3, color=COLOURS[slow], label=name, linewidths=0)
    axes[0, 0].set(title="Engines, and the longest of their links", xticks=[], yticks=[], aspect="equal")
    for axis, network in zip(axes.flat[1:], NETWORKS, strict=True):
        for index, (name, history) in enumerate(runs.items()):
            for label, dash in (("", "-"), (", all fast", ":")):
                seconds = [record.simulated_seconds[f"{network}{label}"] for record in history]
                axis.loglog(
                    seconds, errors(history, best), label=f"{name}{label}", color=COLOURS[index], linestyle=dash
                )
        axis.set(title=network, xlabel="simulated seconds", ylabel="error of loss and answers")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    axes[0, 0].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), markerscale=4)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "deployment.png"), *map(int, sys.argv[2:3]))
