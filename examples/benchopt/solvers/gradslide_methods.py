"""Methods of gradslide, each with its defaults: nothing is tuned."""
# ruff: noqa: RUF012 (benchopt reads plain assignments)

import sys

from benchopt import BaseSolver

import gradslide as gs


class Solver(BaseSolver):
    """benchopt says when to stop, and measures: gs.solve observes nothing while the clock runs."""

    name = "gradslide"
    sampling_strategy = "callback"
    parameters = {"method": ["PDS", "NIDS", "EXTRA", "GradientTracking", "AcceleratedTracking", "OPAPC", "DLM", "ADMM"]}

    def skip(self, problem, graph):
        try:
            gs.solve(problem, graph, getattr(gs, self.method)(), stop=gs.Stop(iterations=1))
        except gs.InputError as refusal:
            return True, str(refusal)
        return False, None

    def set_objective(self, problem, graph):
        self.problem, self.graph = problem, graph

    def run(self, callback):
        self.result = {"x": self.problem.start(), "gradients": 0, "rounds": 0}
        if not callback():
            return

        def after_iteration(record, x):
            self.result = {"x": x, "gradients": record.gradients, "rounds": record.rounds}
            return not callback()

        status = gs.solve(
            self.problem,
            self.graph,
            getattr(gs, self.method)(),
            stop=gs.Stop(iterations=sys.maxsize),
            record_every=sys.maxsize,
            callback=after_iteration,
        ).status
        if status is gs.Status.INTERRUPTED:
            raise KeyboardInterrupt
        if status is not gs.Status.STOPPED:
            raise RuntimeError(status.value)

    def get_result(self):
        return self.result
