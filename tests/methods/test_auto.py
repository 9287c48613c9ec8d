"""Auto: what it chooses, why it says so, and when it changes its mind."""

import time

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs
from gradslide.methods import auto

RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(240, 4))
LABELS = np.sign(FEATURES @ [1.0, -2.0, 0.5, 0.0] + RNG.normal(size=240))
GRAPH = gs.Graph.random(12, 4, seed=1)


def logistic(domain=None, mu=0.0, features=FEATURES):
    return gs.Problem(gs.losses.Logistic(features, LABELS, agents=12), domain, mu)


def wide(d, agents=12):
    """Sparse rows of d columns."""
    features = sp.random(10 * agents, d, 0.02, random_state=1, format="csr")
    labels = np.where(np.arange(10 * agents) % 3, 1, -1)
    return gs.Problem(gs.losses.Logistic(features, labels, agents=agents), mu=0.1)


def quadratic(hessian=True, seconds=0.0):
    """A loss as a user may write it, with curvatures from 1 to 100."""
    scales, targets = np.geomspace(1, 100, 6), np.arange(72.0).reshape(12, 6)

    class Written(gs.losses.Loss):
        def __init__(self):
            super().__init__(12, 6, np.float64)

        def value(self, x):
            return np.sum(scales * (x - targets) ** 2 / 2 + np.cosh((x - targets) / 100), axis=1)

        def gradient(self, x):
            return scales * (x - targets) + np.sinh((x - targets) / 100) / 100

        @property
        def has_hessian(self):
            return hessian

        def hessian(self, x):
            time.sleep(seconds)
            diagonal = scales + np.cosh((x - targets) / 100) / 1e4
            return diagonal[:, :, None] * np.eye(6)

        def compute_smoothness(self, norm):
            return np.full(12, 200.0)

        def take_agents(self, agents):
            return self

    return gs.Problem(Written())


def chosen(problem, network=GRAPH, method=None, **given):
    given.setdefault("stop", gs.Stop(iterations=2))
    return gs.solve(problem, network, method, **given).parameters


def test_newton_is_the_default_for_small_smooth_problems():
    told = chosen(logistic())
    assert told["method"] == "Newton"
    assert told["reason"].startswith("lowest predicted cost in rounds: Newton")
    assert {"LBFGS", "AutoPDS"} <= set(told["reason"].replace(",", " ").split())


def test_it_does_what_the_chosen_method_does_at_the_same_cost():
    by_auto, newton = gs.solve(logistic(), GRAPH), gs.solve(logistic(), GRAPH, gs.Newton())
    np.testing.assert_array_equal(by_auto.x, newton.x)
    for name in ("gradients", "values", "hessians", "rounds", "control_rounds"):
        assert getattr(by_auto.costs, name) == getattr(newton.costs, name)
    assert by_auto.settings["method"] == "Auto(balance=1.0)"


@pytest.mark.parametrize(("d", "name"), [(300, "Newton"), (2000, "LBFGS")])
def test_dimensions_decide(d, name):
    assert chosen(wide(d))["method"] == name


def test_large_diameters_and_dimensions_are_for_gossip():
    told = chosen(wide(1500, agents=200), gs.Graph.ring(200))
    assert told["method"] == "AutoPDS"
    assert told["K"] > 1


def test_losses_without_hessians():
    told = chosen(quadratic(hessian=False))
    assert told["method"] == "LBFGS"
    assert told["reason"].endswith("losses have no Hessians")


def test_losses_without_values():
    loss = gs.losses.Custom(gradient=lambda x: x - np.arange(12.0)[:, None], agents=12, dimension=1, smoothness=1.0)
    assert "values" in chosen(gs.Problem(loss))["reason"]


@pytest.mark.parametrize(
    ("problem", "network", "reason"),
    [
        (logistic(gs.domains.EntropySimplex()), GRAPH, "Euclidean"),
        (logistic(gs.domains.Box(-np.arange(1.0, 13.0)[:, None] * np.ones(4), 2.0)), GRAPH, "different sets"),
        (logistic(), gs.network.Lossy(GRAPH, 0.1), "lost"),
    ],
    ids=["entropy", "private sets", "lossy"],
)
def test_what_only_gossip_can_do(problem, network, reason):
    told = chosen(problem, network)
    assert told["method"] == "AutoPDS"
    assert reason in told["reason"]


def test_expensive_gradients_of_many_columns_are_for_lbfgs():
    problem = wide(300)
    assert chosen(problem, method=gs.Auto(balance=100.0))["method"] == "LBFGS"
    assert chosen(problem, method=gs.Auto(balance=0.1))["method"] == "Newton"


@pytest.mark.parametrize("iterations", [0, 1, 3])
def test_slow_hessians_are_left(iterations, tmp_path):
    """Measured: a Hessian takes 30 ms, a gradient next to nothing; also if the run is interrupted and resumed."""
    problem, path = quadratic(seconds=0.03), tmp_path / "run.npz"
    given = {"method": gs.Auto(balance=1.0), "check_loss": False, "checkpoint": path}
    if iterations:
        gs.solve(problem, GRAPH, **given, stop=gs.Stop(iterations=iterations))
    solution = gs.solve(problem, GRAPH, **given, stop=gs.Stop(kkt=gs.Relative(1e-8), iterations=100))
    assert solution.parameters["method"] == "LBFGS"
    assert "Hessian takes as long as" in solution.parameters["changed"]
    assert solution.costs.hessians < solution.costs.gradients
    np.testing.assert_allclose(solution.mean, np.arange(72.0).reshape(12, 6).mean(axis=0), rtol=1e-3)


def test_quick_hessians_are_not():
    assert "changed" not in chosen(quadratic(), stop=gs.Stop(iterations=4))


def test_kinks_on_a_small_scale_are_left_to_lbfgs():
    loss = gs.losses.Huber(FEATURES, 30 * LABELS + FEATURES[:, 0], delta=0.001, agents=12)
    problem = gs.Problem(loss, mu=1e-6)
    best = gs.reference.reference(problem).objective
    costs = {}
    for method in (gs.Auto(), gs.Newton()):
        stop = gs.Stop(objective=best + 1e-4 * abs(best), iterations=500)
        solution = gs.solve(problem, GRAPH, method, stop=stop)
        costs[method] = solution.costs.gradients
        assert ("changed" in solution.parameters) == (method == gs.Auto())
    assert costs[gs.Auto()] < costs[gs.Newton()]


def test_a_slow_lbfgs_is_left_for_newton(monkeypatch, tmp_path):
    """Raw columns with a common offset: units are harmless, correlations are not. Also after a resumption."""
    monkeypatch.setattr(auto, "_COLUMNS", 1.0)  # so that Hessians are predicted to be expensive
    rng = np.random.default_rng(0)
    features = np.c_[np.ones(240), 100 + rng.normal(size=(240, 40)) * np.geomspace(1e-3, 10, 40)]
    targets = features @ rng.normal(size=41) + 0.1 * rng.normal(size=240)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=12))
    path, method = tmp_path / "run.npz", gs.Auto(balance=0.5)
    gs.solve(problem, GRAPH, method, stop=gs.Stop(iterations=59), checkpoint=path)
    stop = gs.Stop(kkt=gs.Relative(1e-9), iterations=300)
    solution, whole = (gs.solve(problem, GRAPH, method, stop=stop, checkpoint=each) for each in (path, None))
    assert solution.parameters["method"] == "Newton"
    assert solution.parameters["changed"].startswith("from LBFGS after 58")
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(gs.reference.reference(problem).objective, rel=1e-5)
    np.testing.assert_array_equal(solution.x, whole.x)


def test_balance_can_be_measured():
    clock = gs.Clock(gradient=1.0, latency=1e-3)
    told = chosen(quadratic(), method=gs.Auto(balance="measure"), clock=clock, stop=gs.Stop(iterations=4))
    assert told["method"] == "Newton"


def test_saddle_point_problems():
    loss = gs.losses.Quadratic(np.eye(2)[None], np.zeros((1, 2)))
    problem = gs.LinearlyConstrained(loss, np.ones((1, 2)), np.ones(1))
    np.testing.assert_array_equal(gs.solve(problem, method=gs.Auto()).x, gs.solve(problem).x)


def test_bad_balances_are_refused():
    for balance in (0.0, -1.0, "measured"):
        with pytest.raises(gs.InputError, match="balance"):
            gs.Auto(balance=balance)


def test_it_has_no_steps_of_its_own():
    with pytest.raises(gs.InputError, match="Auto chooses a method"):
        gs.Auto().init(None)
