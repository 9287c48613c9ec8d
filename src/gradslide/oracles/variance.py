"""The variance of sampled gradients."""

import math
from collections.abc import Callable

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.errors import StreamEnded, StreamError, require_number
from gradslide._support.keywords import checked_arguments
from gradslide._support.types import Array
from gradslide.oracles.base import Sampling
from gradslide.oracles.oracle import Oracle
from gradslide.oracles.rows import WithReplacement
from gradslide.problems.problem import Problem, checked_problem
from gradslide.results.costs import Costs


def moments(sample: Callable[[int], Array], samples: int) -> tuple[Array, Array]:
    """Return mean (m, d) and variance E|G_i - mean|^2 (m,) of the single samples 0, ..., samples -
    1.
    """
    mean: Array = np.zeros(1)
    scatter: Array = np.zeros(1)
    for j in range(samples):
        g = np.asarray(to_numpy(sample(j)), dtype=np.float64)
        off = g - mean
        mean = mean + off / (j + 1)
        scatter = scatter + np.sum(off * (g - mean), axis=1)
    return mean, scatter / (samples - 1)


@checked_arguments
def estimate_sigma(
    problem: Problem, x: Array | None = None, *, oracle: Sampling | None = None, samples: int = 256, seed: int = 0
) -> float:
    """Estimate sigma of one sampled gradient: sigma^2 = E|G_i - grad ft_i|^2, averaged over agents.

    m sigma^2 is the variance of the stacked gradient, which is all that Theorem 2 uses. The theorem
    assumes a bound over X, while this is an estimate at one point: compare a few points if in
    doubt.

    Parameters
    ----------
    problem : Problem
        The problem.
    x : array_like, shape (d,) or (m, d), optional
        Where to estimate; by default the start.
    oracle : Sampling, optional
        Rows with replacement by default. A Stream is used up by as many samples.
    samples : int
        Number of samples per agent.
    seed : int
        Seed of the samples.

    Returns
    -------
    float
    """
    require_number("samples", samples, "a variance takes at least two", least=2, whole=True)
    sampling = WithReplacement() if oracle is None else oracle
    at = checked_problem(problem).start(x)
    counted = Oracle(problem.loss, Costs(), sampling.open(problem.loss, range(problem.m), seed))
    try:
        variances = moments(lambda j: counted.sampled_gradient(at, j, 1), samples)[1]
    except StreamEnded as end:
        raise StreamError(end.agent, f"it ended before it gave {samples} samples") from None
    finally:
        counted.close()
    return math.sqrt(float(np.mean(variances)))
