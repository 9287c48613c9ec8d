"""Measure sampled gradients: what they cost, and how the error of SPDS depends on N and on the budget of samples.

    python benchmarks/samples.py [--speed]

Speed: drawing rows of all agents at once beside one generator of NumPy after another, with the same
draws, and with the gradient of these rows; 200 rows x 22 columns per agent, one thread, best of
several repeats. --speed measures only this.

Errors, on the built-in data: logistic regression in a ball, 20,000 rows shuffled over 100 agents,
maximum degree 4. Entries are the objective error at the mean of the agents relative to the optimum,
averaged over five seeds.
"""

import numpy as np
from timing import best_mean, one_thread, parser, show

import gradslide as gs
from gradslide._support.randomness import Streams
from gradslide.losses.partition import with_replacement

BUDGETS = (500, 1_000, 10_000, 100_000)
ITERATIONS = (30, 100, 300)
SEEDS = range(5)


def speed_row(m: int, batch: int) -> list[str]:
    """Microseconds per agent of drawing and of drawing with the gradient, one by one and together."""
    rng = np.random.default_rng(0)
    loss = gs.losses.Logistic(rng.normal(size=(200 * m, 22)), rng.choice([-1.0, 1.0], size=200 * m), agents=m)
    streams, sampler = Streams(0, range(m)), gs.oracles.WithReplacement().open(loss, range(m), 0)
    x = np.zeros((m, 22))

    def singly() -> list[np.ndarray]:
        return [with_replacement(streams.at(i, 7), 200, batch).rows for i in range(m)]

    np.testing.assert_array_equal(singly(), sampler.draw(7, batch).rows)
    calls = [
        singly,
        lambda: sampler.draw(7, batch),
        lambda: loss.gradient_of_rows(x, singly()),
        lambda: sampler.gradient(x, sampler.draw(7, batch)),
    ]
    one, all_draws, one_gradient, gradients = (1e6 / m * best_mean(5, call) for call in calls)
    figures = [f"{us:.2f}" for us in (one, all_draws, one_gradient, gradients)]
    return [f"{m:,}", str(batch), *figures, f"{one / all_draws:.1f}", f"{one_gradient / gradients:.1f}"]


def speed() -> None:
    headings = ["agents", "batch", "draw, singly", "draw", "gradient, singly", "gradient", "ratio, draw", "gradient"]
    rows = [speed_row(m, batch) for m in (100, 1_000, 10_000) for batch in (1, 8, 32, 128)]
    show("sampled gradients, microseconds per agent", headings, rows)


def errors() -> None:
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


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--speed", action="store_true")
    chosen = given.parse_args()
    one_thread()
    speed()
    if not chosen.speed:
        errors()


if __name__ == "__main__":
    main()
