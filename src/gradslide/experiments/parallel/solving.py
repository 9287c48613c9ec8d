"""One run in a process that makes many."""

import warnings
from typing import Any

from gradslide.engine.solve import solve
from gradslide.experiments.parallel import worker
from gradslide.results.solution import Solution
from gradslide.results.status import Status


def solved(*arguments: Any, **options: Any) -> Solution:
    """`solve`, where Ctrl-C ends all runs: KeyboardInterrupt, whatever this one had reached by then."""
    if worker.is_interrupted():
        raise KeyboardInterrupt
    with warnings.catch_warnings():
        # They are in the solution.
        warnings.simplefilter("ignore", RuntimeWarning)
        solution = solve(*arguments, **options)
    if solution.status is Status.INTERRUPTED or worker.is_interrupted():
        raise KeyboardInterrupt
    return solution
