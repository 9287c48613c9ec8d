"""Logistic regression with a ridge, by agents on a network that keep their rows."""
# ruff: noqa: RUF012 (benchopt reads plain assignments)

import numpy as np
from benchopt import BaseObjective
from benchopt.stopping_criterion import StoppingCriterion

import gradslide as gs


class Reached(StoppingCriterion):
    """Close to the optimum and to agreement. benchopt's default, no progress in three looks, ends some runs early."""

    def check_convergence(self, curve):
        reached = curve[-1]["objective_error"] <= 1e-8 and curve[-1]["objective_disagreement"] <= 1e-4
        return reached, float(reached)


class Objective(BaseObjective):
    """min (1/m) sum_i f_i(x), f_i the mean logistic loss over agent i's rows plus mu |x|^2/2. All measuring is here."""

    name = "Consensus logistic regression"
    min_benchopt_version = "1.9.1"
    parameters = {"topology": ["ring"], "agents": [20], "split": ["contiguous"], "mu": [0.01]}
    stopping_criterion = Reached(key_to_monitor="value")

    def set_data(self, features, labels):
        splits = gs.data.split(self.split, labels, self.agents)
        self.problem = gs.Problem(gs.losses.Logistic(features, labels, splits=splits, reduction="mean"), mu=self.mu)
        self.optimum = gs.reference.reference(self.problem).objective / self.agents
        self.graph = getattr(gs.Graph, self.topology)(self.agents)

    def get_objective(self):
        return {"problem": self.problem, "graph": self.graph}

    def evaluate_result(self, x, gradients, rounds):
        """x: (agents, d), the answer of each. gradients and rounds: what each agent has spent on it."""
        mean = np.mean(x, axis=0)
        value = float(np.mean(self.problem.objective(np.broadcast_to(mean, x.shape))))
        return {
            "value": value,
            "error": value - self.optimum,
            "disagreement": float(np.max(np.linalg.norm(x - mean, axis=1))),
            "gradients": gradients,
            "rounds": rounds,
        }

    def get_one_result(self):
        return {"x": self.problem.start(), "gradients": 0, "rounds": 0}
