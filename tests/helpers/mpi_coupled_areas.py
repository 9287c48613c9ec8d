"""Areas on a ring with constraints between neighbours, or one over all; under mpiexec, AutoPDS solves both.

Arguments: a folder for the results.
"""

import sys
from pathlib import Path

import numpy as np

import gradslide as gs

SIZES = (2, 4, 1, 3, 2, 5)
M = len(SIZES)
GRAPH = gs.Graph.ring(M)
LINKS = GRAPH.edges.tolist()


def agent(i, kind, is_shared=False, scale=1.0, seed=0, dtype=float):
    """Loss, set and block of one agent."""
    rng = np.random.default_rng([seed, i])
    d = SIZES[i]
    if kind == "logistic":
        loss = gs.losses.Logistic(rng.normal(size=(30, d)).astype(dtype), np.sign(rng.normal(size=30)), agents=1)
    else:
        half = rng.normal(size=(d, d))
        loss = gs.losses.Quadratic((half.T @ half + 0.1 * np.eye(d)).astype(dtype), rng.normal(size=d).astype(dtype))
    domain = gs.domains.Box(-1.0, 1.0) if kind == "boxes" else gs.domains.L2Ball(0.5 + 0.1 * i)
    block = scale * rng.normal(size=(2 * M, d))
    # Each link has an equation and an inequality.
    concerns = [is_shared or i in link for link in LINKS * 2]
    return loss, domain, block * np.array(concerns)[:, None]


def bounds(kind, is_shared=False, scale=1.0, seed=0):
    """Lower and upper ends that a point inside fulfils, with little room in some inequalities."""
    rng = np.random.default_rng([seed, 99])
    sums = 0.0
    for i, d in enumerate(SIZES):
        x = 0.3 * rng.uniform(-1, 1, size=d) / np.sqrt(d)
        sums = sums + agent(i, kind, is_shared, scale, seed)[2] @ x
    is_equation = np.arange(2 * M) < M // 2
    return np.where(is_equation, sums, -np.inf), sums + np.where(is_equation, 0.0, 0.05 * scale)


def built(network, kind, is_shared=False, **given):
    """The problem of the agents here."""
    dtype = given.pop("dtype", float)
    lower, upper = bounds(kind, is_shared, **given)
    return gs.Problem.build(
        network, lambda i: agent(i, kind, is_shared, dtype=dtype, **given), lower=lower, upper=upper
    )


def perform(network, kind, is_shared=False, method=None, kkt=1e-6, **options):
    problem = built(network, kind, is_shared)
    options.setdefault("stop", gs.Stop(kkt=kkt, iterations=5000))
    solution = gs.solve(problem, network, method or gs.AutoPDS(), **options)
    return list(network.agents), solution, problem.blocks(solution.x)


CASES = [("logistic", False), ("balls", True)]

if __name__ == "__main__":
    network = gs.network.MPI(GRAPH, timeout=20.0)
    arrays = {}
    for kind, is_shared in CASES:
        agents, solution, blocks = perform(network, kind, is_shared)
        counts = [solution.costs.gradients, solution.costs.rounds, solution.costs.control_rounds]
        name = f"{kind} {is_shared}"
        arrays |= {f"{name} {solution.status.name}": np.array([*counts, *solution.kkt.to_dict().values()])}
        arrays |= {f"{name} dual": solution.dual}
        arrays |= {f"{name} {i}": x for i, x in zip(agents, blocks, strict=True)}
    # Radii are at most 1: blocks of such small entries reach no sum of 100.
    contradictory = gs.Problem.build(network, lambda i: agent(i, "balls"), lower=100.0)
    solution = gs.solve(contradictory, network, gs.AutoPDS(), stop=gs.Stop(iterations=2000))
    arrays[f"none {solution.status.name}"] = np.append(solution.ray, solution.costs.control_rounds)
    np.savez(Path(sys.argv[1]) / f"{network.session.rank}.npz", **arrays)
