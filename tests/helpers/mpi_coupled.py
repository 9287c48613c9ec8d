"""Coupled programs under mpiexec: every process writes what it found for its agents.

Arguments: a folder for the results.
"""

import sys
from pathlib import Path

import numpy as np
from coupled_programs import infeasible_programs, random_programs, unbounded_programs

import gradslide as gs
from gradslide.methods.coupled_kkt import minimize_coupled
from gradslide.network.coupled_rows import NeighbourRows, SharedRows, agreed_dimension

GRAPH = gs.Graph.from_edges(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 4)])
PROGRAMS = {"solved": random_programs, "infeasible": infeasible_programs, "unbounded": unbounded_programs}


def pairs():
    """A problem with one constraint for each link, and agents of 1 to 3 variables."""
    rng = np.random.default_rng(3)
    sizes = [1, 3, 2, 1, 2, 3]
    blocks = [np.zeros((len(GRAPH.edges), size)) for size in sizes]
    for row, edge in enumerate(GRAPH.edges):
        for i in edge:
            blocks[i][row] = rng.normal(size=sizes[i])
    losses = [gs.losses.Quadratic(np.eye(size), rng.normal(size=size)) for size in sizes]
    return losses, blocks, rng.normal(size=len(GRAPH.edges))


def steps(problem, network, coupling):
    """Dual points after a few steps, which take everything that a coupling does."""
    made = coupling(problem, network)
    x = np.zeros((problem.m, problem.d))
    dual = made.start(x)
    for _ in range(3):
        x = x - 0.1 * (problem.loss.gradient(x) + made.pull(dual))
        dual = made.ascend(dual, x, 10.0)
    z = made.multipliers(dual)
    if coupling is NeighbourRows:
        # All agents that a constraint concerns have the same bits.
        for agent, row in np.argwhere(problem.coupling.participants):
            assert dual.s[agent, made._plan.slots[row]] == z[row]
    return np.concatenate([[made.norm()], z]), x


def perform(network):
    """What one process finds: numbers that are the same everywhere, and x of its agents."""
    agents = list(network.agents)
    found = {}
    for name, make in PROGRAMS.items():
        programs, lower, upper = make(1)
        result = minimize_coupled(network, [programs[i] for i in agents], lower, upper)
        common = [result.residual, result.iterations]
        found[name] = (result.outcome.name, np.concatenate([common, result.z]), result.x)
    losses, blocks, b = pairs()
    problem = gs.Problem.build(network, lambda i: (losses[i], gs.domains.Free(), blocks[i]), b=b)
    problem = problem.padded(agreed_dimension(problem, network))
    for coupling in (SharedRows, NeighbourRows):
        common, x = steps(problem, network, coupling)
        found[coupling.__name__] = ("", common, problem.blocks(x))
    return agents, found


if __name__ == "__main__":
    network = gs.network.MPI(GRAPH, timeout=20.0)
    agents, found = perform(network)
    arrays = {}
    for name, (outcome, common, points) in found.items():
        arrays |= {f"{name}|{outcome}": common}
        arrays |= {f"{name}|x|{i}": x for i, x in zip(agents, points, strict=True)}
    np.savez(Path(sys.argv[1]) / f"{network.session.rank}.npz", **arrays)
