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

    def compute_smoothness(self, norm):
        return 1.0 if self.wrong == "compute_smoothness" else np.ones(self.m)

    def take_agents(self, agents):
        return Distances(len(agents))


@dataclass(frozen=True, eq=False)
class Cube(gs.domains.Euclidean):
    width: float = 1.0

    def project(self, v):
        return v.clip(-self.width, self.width)

    def minimize_linear(self, c):
        return -self.width * abs(c).sum(axis=1)


@pytest.mark.parametrize(
    ("wrong", "method", "got"),
    [
        ("value", gs.AutoPDS(), r"value of Distances must give shape \(4,\); got \(\); give one row"),
        ("values", gs.AutoPDS(), r"value of Distances must give shape \(4,\); got \(4, 1\)"),
        ("gradient", gs.AutoPDS(), r"gradient of Distances must give shape \(4, 2\); got \(2,\)"),
        ("gradient", gs.NIDS(), r"gradient of Distances must give shape \(4, 2\); got \(2,\)"),
        ("compute_smoothness", gs.NIDS(), r"compute_smoothness of Distances must give shape \(4,\); got \(\)"),
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


def under_old_names():
    class OldLoss(Distances):
        def _smoothness(self, norm):
            return 3 * np.ones(self.m)

        def _take(self, agents):
            return OldLoss(len(agents))

    @dataclass(frozen=True, eq=False)
    class OldCube(gs.domains.Euclidean):
        width: float = 1.0
        row_fields = (*gs.domains.Euclidean.row_fields, "width")

        def _bound(self, fit):
            return {**super()._bound(fit), "width": fit.number("width", self.width)}

        def _project(self, v):
            return v.clip(-self.width, self.width)

        def _linear_minimum(self, c):
            return -self.width[:, 0] * abs(c).sum(axis=1)

    return OldLoss, OldCube


def test_hooks_under_their_old_names_still_work_and_warn():
    with pytest.warns(DeprecationWarning, match="override") as caught:
        OldLoss, OldCube = under_old_names()
    told = [str(warning.message) for warning in caught]
    renamed = [
        ("OldLoss._smoothness", "compute_smoothness"),
        ("OldLoss._take", "take_agents"),
        ("OldCube._bound", "bind_fields"),
        ("OldCube._project", "project"),
        ("OldCube._linear_minimum", "minimize_linear"),
    ]
    assert [message.partition(";")[0] for message in told] == [f"{old}: override {new} instead" for old, new in renamed]
    assert {warning.filename for warning in caught} == {__file__}
    problem = gs.Problem(OldLoss(), gs.domains.PerAgent([OldCube(width) for width in (1.0, 2.0, 3.0, 4.0)]))
    np.testing.assert_array_equal(problem.smoothness(), 3.0)
    assert isinstance(problem.take([1, 2]).loss, OldLoss)
    np.testing.assert_array_equal(problem.domain.prox(np.full((4, 2), 9.0), 1.0)[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(problem.domain.linear_minimum(np.ones((4, 2))), [-2, -4, -6, -8])
    assert gs.domains.Box._project is gs.domains.Box.project


def built_in_under_old_names():
    class OldSquares(gs.losses.LeastSquares):
        def _take(self, agents):
            return super()._take(agents)

    class OldBox(gs.domains.Box):
        def _project(self, v):
            return super()._project(v)

    return OldSquares, OldBox


def test_warnings_of_old_hooks_point_at_subclasses_of_built_in_classes():
    with pytest.warns(DeprecationWarning, match=r"the old name works until 0\.3") as caught:
        OldSquares, OldBox = built_in_under_old_names()
    assert [str(warning.message).partition(":")[0] for warning in caught] == ["OldSquares._take", "OldBox._project"]
    assert [warning.filename for warning in caught] == [__file__] * 2
    problem = gs.Problem(OldSquares(np.eye(4), np.ones(4), agents=2), OldBox(-1.0, 1.0))
    assert isinstance(problem.take([1]).loss, OldSquares)
    np.testing.assert_array_equal(problem.domain.project(np.full((2, 4), 9.0)), 1.0)


@pytest.mark.parametrize("name", ["loss", "m", "d", "dtype", "device", "rows_per_agent"])
def test_what_follows_from_the_loss_cannot_be_assigned(name):
    loss = gs.losses.LeastSquares(np.eye(4), np.ones(4), agents=2)
    for problem in (gs.Problem(loss), gs.Saddle(loss, np.ones((1, 8)))):
        before = getattr(problem, name)
        with pytest.raises(AttributeError, match=f"{name} cannot be assigned"):
            setattr(problem, name, before)
        assert getattr(problem, name) is before


def test_a_small_mu_bounds_problems_in_single_precision_too():
    """|c|^2/mu of the probe would overflow in single precision."""
    loss = gs.losses.Linear(np.ones((2, 11), dtype=np.float32))
    assert gs.Problem(loss, mu=1e-14).has_lower_bound
    assert not gs.Problem(loss).has_lower_bound
