"""Measure how the error of SPDS depends on N and on the budget of samples, on the built-in data.

    python benchmarks/samples.py

Logistic regression in a ball, 20,000 rows shuffled over 100 agents, maximum degree 4. Entries are
the objective error at the mean of the agents relative to the optimum, averaged over five seeds.
"""

import numpy as np

import gradslide as gs

BUDGETS = (500, 1_000, 10_000, 100_000)
ITERATIONS = (30, 100, 300)
SEEDS = range(5)


def main() -> None:
    data = gs.data.misfire()
    splits = gs.data.split("shuffled", data.labels, 100, seed=0)
    problem = gs.Problem(gs.losses.Logistic(data.features, data.labels, splits=splits), gs.domains.L2Ball(5.0))
    graph = gs.Graph.random(100, max_degree=4, edges=150, seed=1)
    optimum = gs.reference.reference(problem)
    distance = (2 * optimum.V(problem, problem.start())) ** 0.5

    def error(**parameters: object) -> tuple[float, gs.Solution]:
        """Return the mean error over the seeds, and the last solution."""
        runs = [gs.solve(problem, graph, gs.SPDS(**parameters, seed=seed), record_every=10_000) for seed in SEEDS]
        return float(np.mean([run.history[-1].objective for run in runs])) / optimum.objective - 1, runs[-1]

    print(
        f"{'samples per agent':>18}" + "".join(f"{f'N = {N}':>10}" for N in ITERATIONS) + f"{'SPDS(samples=...)':>22}"
    )
    for samples in BUDGETS:
        fixed = [error(N=N, samples=samples)[0] for N in ITERATIONS]
        found, run = error(samples=samples)
        chosen = f"{found:.4f} (N = {run.parameters['N']})"
        print(f"{samples:>18,}" + "".join(f"{value:>10.4f}" for value in fixed) + f"{chosen:>22}")

    exact = gs.solve(
        problem, graph, gs.PDS(), stop=gs.Stop(objective=gs.Relative(found, to=optimum.objective), iterations=5_000)
    )
    rows = len(data.labels) // problem.m
    print(f"PDS reaches the last error with {exact.costs.gradients} gradients over {rows} rows,")
    print(f"{exact.costs.gradients * rows:,} row gradients per agent.")
    print("Theorem 2's c, for eps = 5 % of the optimum:")
    eps = 0.05 * optimum.objective
    reached, run = error(eps=eps, distance=distance)
    print(f"N = {run.parameters['N']}, {run.costs.samples:,} samples per agent, error {reached:.4f} of the optimum")


if __name__ == "__main__":
    main()
