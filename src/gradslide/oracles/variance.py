"""How much sampled gradients scatter."""

import math
from collections.abc import Callable

import numpy as np

from gradslide._support.arrays import to_numpy
from gradslide._support.errors import StreamEnded, StreamError, require_number
from gradslide._support.types import Array
from gradslide.oracles.base import Sampling
from gradslide.oracles.oracle import Oracle
from gradslide.oracles.rows import WithReplacement
from gradslide.problems.problem import Problem, checked_problem
from gradslide.results.costs import Costs


def moments(sample: Callable[[int], Array], samples: int) -> tuple[Array, Array]:
    """Mean (agents, d) and variance E|G_i - mean|^2 (agents,) of single samples number 0, ..., samples - 1."""
    mean: Array = np.zeros(1)
    scatter: Array = np.zeros(1)
    for j in range(samples):
        g = np.asarray(to_numpy(sample(j)), dtype=np.float64)
        off = g - mean
        mean = mean + off / (j + 1)
        scatter = scatter + np.sum(off * (g - mean), axis=1)
    return mean, scatter / (samples - 1)


def estimate_sigma(
    problem: Problem, x: Array | None = None, *, oracle: Sampling | None = None, samples: int = 256, seed: int = 0
) -> float:
    """sigma of one sampled gradient at x, from data: sigma^2 is E|G_i - grad ft_i|^2, averaged over the agents.

    m sigma^2 is then the variance of the stacked gradient, which is all that Theorem 2 uses. It is an estimate at one
    point (the default start unless x is given), where the theorem asks for a bound over X: look at a few points if in
    doubt. oracle: rows with replacement by default; a Stream is used up by as many samples. samples: per agent.
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
