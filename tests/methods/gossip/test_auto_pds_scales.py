"""Auto mode where L must be found far away: bounds stay true, and nothing goes round in circles."""

import numpy as np
import pytest

import gradslide as gs

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(120, 3))
LABELS = np.sign(FEATURES @ [1.0, -1.0, 0.5] + 0.3 * RNG.normal(size=120))


@pytest.mark.filterwarnings("ignore:columns .* differ in scale:RuntimeWarning")
@pytest.mark.covering
@pytest.mark.parametrize(
    "graph", [gs.Graph.ring(6), gs.Graph.complete(6), gs.Graph.path(6)], ids=["ring", "all", "path"]
)
@pytest.mark.parametrize("scales", [[1, 1e4, 1], [1e5, 1e5, 1e5], [1, 1e8, 1e-3]], ids=["one", "all", "worst"])
def test_no_lower_bound_is_above_what_was_reached(scales, graph):
    """All go back to the start there, where averages are empty."""
    loss = gs.losses.Logistic(FEATURES * scales, LABELS, agents=6)
    solution = gs.solve(gs.Problem(loss, gs.domains.L2Ball(3.0)), graph, stop=gs.Stop(iterations=60))
    least = min(record.objective for record in solution.history)
    assert all(record.lower <= least for record in solution.history)
    assert all("differ in scale" in warning for warning in solution.warnings)


def test_repeated_rollbacks_end():
    """A lasso on which agents rolled back to the same iteration for ever, each time with the same L."""
    rng = np.random.default_rng(1716)
    n, d = int(rng.integers(6, 40)), int(rng.integers(1, 8))
    rng.integers(2, 4)
    features = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-1, 1, size=d)
    scaled = (features - features.mean(0)) / features.std(0)
    m = int(rng.integers(1, min(6, n)))
    rng.integers(4)
    targets = scaled @ rng.normal(size=d) + rng.normal(size=n)
    weight = 10.0 ** rng.uniform(-2, 0) / features.std(0) / m
    loss = gs.losses.LeastSquares(scaled / np.sqrt(n), (targets - targets.mean()) / np.sqrt(n), agents=m)
    problem = gs.Problem(loss, gs.domains.Free(penalty=gs.L1(weight)))
    solution = gs.solve(problem, gs.Graph.complete(m), stop=gs.Stop(iterations=100))
    assert solution.kkt.stationarity < 1e-8


def test_bounds_that_contradict_each_other_are_said():
    c = RNG.normal(size=(6, 3))
    given = {"value": lambda x: ((x - c) ** 2).sum(axis=1) / 2, "agents": 6, "dimension": 3}
    wrong = gs.losses.Custom(gradient=lambda x: c - x, **given)
    problem, stop = gs.Problem(wrong, gs.domains.L2Ball(3.0)), gs.Stop(iterations=50)
    with pytest.warns(RuntimeWarning, match="is above the objective"):
        solution = gs.solve(problem, gs.Graph.ring(6), gs.AutoPDS(), stop=stop, check_loss=False)
    assert "the gradient is not that of the value, or the loss is not convex" in solution.warnings[0]
    right = gs.losses.Custom(gradient=lambda x: x - c, **given)
    assert gs.solve(gs.Problem(right, gs.domains.L2Ball(3.0)), gs.Graph.ring(6)).warnings == ()


def test_a_certificate_may_be_off_by_rounding():
    assert gs.Certificate(1.0 + 1e-12, 1.0).refutation == ""
    assert gs.Certificate(1.0 + 1e-6, 1.0).refutation != ""
    assert gs.Certificate(-np.inf, 1.0).refutation == ""
