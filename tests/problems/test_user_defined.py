"""Losses and domains of a user's own that are not right are refused in words."""

from dataclasses import dataclass

import numpy as np
import pytest

import gradslide as gs


class Distances(gs.losses.Loss):
    """|x - i|^2/2; what is wrong with it is a parameter."""

    def __init__(self, m=4, wrong=""):
        super().__init__(m, 2, np.float64)
        self.wrong = wrong
        self.c = np.arange(m)[:, None] * np.ones(2)

    def value(self, x):
        values = ((x - self.c) ** 2).sum(axis=1) / 2
        return values.sum() if self.wrong == "value" else values[:, None] if self.wrong == "values" else values

    def gradient(self, x):
        return (x - self.c)[0] if self.wrong == "gradient" else x - self.c

    def _smoothness(self, norm):
        return 1.0 if self.wrong == "_smoothness" else np.ones(self.m)

    def _take(self, agents):
        return Distances(len(agents))


@dataclass(frozen=True, eq=False)
class Cube(gs.domains.Euclidean):
    width: float = 1.0

    def _project(self, v):
        return v.clip(-self.width, self.width)

    def _linear_minimum(self, c):
        return -self.width * abs(c).sum(axis=1)


@pytest.mark.parametrize(
    ("wrong", "method", "got"),
    [
        ("value", gs.AutoPDS(), r"value of Distances must give shape \(4,\); got \(\); give one row"),
        ("values", gs.AutoPDS(), r"value of Distances must give shape \(4,\); got \(4, 1\)"),
        ("gradient", gs.AutoPDS(), r"gradient of Distances must give shape \(4, 2\); got \(2,\)"),
        ("gradient", gs.NIDS(), r"gradient of Distances must give shape \(4, 2\); got \(2,\)"),
        ("_smoothness", gs.NIDS(), r"_smoothness of Distances must give shape \(4,\); got \(\)"),
    ],
)
def test_wrong_shapes_are_named(wrong, method, got):
    with pytest.raises(gs.InputError, match=got):
        gs.solve(gs.Problem(Distances(wrong=wrong)), gs.Graph.ring(4), method, stop=gs.Stop(iterations=3))


def test_a_loss_need_not_sample():
    solution = gs.solve(gs.Problem(Distances()), gs.Graph.ring(4))
    np.testing.assert_allclose(solution.mean, [1.5, 1.5], rtol=1e-3)
    with pytest.raises(gs.InputError, match="needs a loss that is a sum over rows"):
        gs.solve(gs.Problem(Distances()), gs.Graph.ring(4), gs.SPDS(samples=10))


def test_agents_with_sets_of_their_own_are_not_taken_for_alike():
    same = gs.domains.PerAgent([Cube(1.0)] * 4)
    assert gs.Problem(Distances(), same).domain.project(np.full((4, 2), 9.0)).max() == 1.0
    rule = "what agents have of their own in Cube must be named in its row_fields; got different width"
    with pytest.raises(gs.InputError, match=rule):
        gs.Problem(Distances(), gs.domains.PerAgent([Cube(1.0), Cube(2.0), Cube(1.0), Cube(1.0)]))
