"""`gs.solve` for coupled agents under mpiexec: every process writes what it found for its agents.

Arguments: a folder for the results.
"""

import sys
from pathlib import Path

import numpy as np

import gradslide as gs

GRAPH = gs.Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 3)])
DIMENSIONS = (2, 4, 1, 3, 2)
B = np.array([1.0, -0.5, 0.3])


def agent(i, kind):
    """Loss, set and block of one agent."""
    rng = np.random.default_rng([7, i])
    d = DIMENSIONS[i]
    if kind == "quadratic":
        half = rng.normal(size=(d, d))
        loss = gs.losses.Quadratic(half.T @ half + np.eye(d), rng.normal(size=d))
    else:
        loss = gs.losses.Logistic(rng.normal(size=(40, d)), np.sign(rng.normal(size=40)), agents=1)
    domain = gs.domains.Simplex(1.0) if i == 3 else gs.domains.Box(-1.0, 1.0)
    return loss, domain, rng.normal(size=(3, d))


def perform(network, kind, **options):
    problem = gs.Problem.build(network, lambda i: agent(i, kind), b=B, sense="<=")
    solution = gs.solve(problem, network, **options)
    return list(network.agents), solution, problem.blocks(solution.x)


if __name__ == "__main__":
    network = gs.network.MPI(GRAPH, timeout=20.0)
    arrays = {}
    for kind in ("quadratic", "logistic"):
        agents, solution, blocks = perform(network, kind)
        numbers = [*solution.kkt.to_dict().values(), solution.costs.gradients, solution.costs.rounds]
        arrays |= {f"{kind} {solution.status.name}": np.array([*numbers, *solution.dual])}
        arrays |= {f"{kind} {i}": x for i, x in zip(agents, blocks, strict=True)}
    np.savez(Path(sys.argv[1]) / f"{network.session.rank}.npz", **arrays)
