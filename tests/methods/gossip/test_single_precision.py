"""Auto mode in single precision takes about as many gradients and rounds as in double precision."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_digits

import gradslide as gs

DIGITS = load_digits()
PIXELS, CLASSES = DIGITS.data / 16, DIGITS.target
DIABETES = load_diabetes()
COLUMNS = DIABETES.data / DIABETES.data.std(axis=0)
TARGETS = (DIABETES.target - DIABETES.target.mean()) / DIABETES.target.std()
# Large scores, and a minimum that is far away and flat.
RNG = np.random.default_rng(4)
ROWS = RNG.normal(size=(2000, 12)) * np.geomspace(1, 0.03, 12)
SIGNS = np.where(ROWS @ (3 / np.geomspace(1, 0.03, 12)) + 0.3 * RNG.logistic(size=2000) > 0, 1.0, -1.0)
# The same numbers in both precisions.
COLUMNS, TARGETS, ROWS = (data.astype(np.float32).astype(np.float64) for data in (COLUMNS, TARGETS, ROWS))
AGENTS = 20
GRAPH = gs.Graph.random(AGENTS, 4, seed=1)


def logistic(dtype):
    return gs.losses.Logistic(ROWS.astype(dtype), SIGNS, agents=AGENTS)


def compiled(dtype):
    loss = logistic(dtype)
    loss.compiled = True
    return loss


def sparse(dtype):
    return gs.losses.Logistic(sp.csr_array((ROWS * (np.abs(ROWS) > 0.01)).astype(dtype)), SIGNS, agents=AGENTS)


def softmax(dtype):
    return gs.losses.Softmax(PIXELS.astype(dtype), CLASSES, agents=AGENTS)


def squares(dtype):
    return gs.losses.LeastSquares(COLUMNS.astype(dtype), TARGETS, agents=AGENTS)


PROBLEMS = {
    "softmax": lambda t: gs.Problem(softmax(t), mu=0.01),
    "softmax in a ball": lambda t: gs.Problem(softmax(t), gs.domains.L2Ball(5.0)),
    "logistic": lambda t: gs.Problem(logistic(t)),
    "ridge": lambda t: gs.Problem(logistic(t), mu=0.001),
    "compiled": lambda t: gs.Problem(compiled(t)),
    "sparse": lambda t: gs.Problem(sparse(t)),
    "ball": lambda t: gs.Problem(logistic(t), gs.domains.L2Ball(10.0)),
    "box": lambda t: gs.Problem(logistic(t), gs.domains.Box(-5.0, 5.0)),
    "lasso": lambda t: gs.Problem(logistic(t), gs.domains.Free(penalty=gs.L1(0.01))),
    "hinge": lambda t: gs.Problem(gs.losses.SmoothedHinge(ROWS.astype(t), SIGNS, agents=AGENTS), mu=0.01),
    "squares": lambda t: gs.Problem(squares(t)),
    "huber": lambda t: gs.Problem(gs.losses.Huber(COLUMNS.astype(t), TARGETS, 0.5, agents=AGENTS)),
}


LONG = ("softmax", "logistic", "compiled", "sparse", "lasso", "hinge")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in PROBLEMS])
def test_counts_are_about_those_of_double_precision(name):
    exact, make = PROBLEMS[name](np.float64), PROBLEMS[name]
    optimum = gs.reference.reference(exact).objective
    for tolerance in (1e-4, 1e-5):
        stop = gs.Stop(objective=gs.Relative(tolerance, to=optimum), disagreement=1e-2, iterations=4000)
        double, single = (gs.solve(make(t), GRAPH, stop=stop) for t in (np.float64, np.float32))
        assert single.status is double.status is gs.Status.CONVERGED
        assert single.x.dtype == np.float32
        for count in ("gradients", "values", "rounds"):
            most = 1.3 * getattr(double.costs, count) + 20
            assert getattr(single.costs, count) <= most, (tolerance, count, single.costs, double.costs)
        # What the run says of its answer is true, but for the rounding of scores.
        x = np.broadcast_to(single.mean.astype(np.float64), (AGENTS, exact.d))
        true = float(np.sum(exact.objective(x)))
        reported = single.history[-1].objective
        assert reported == pytest.approx(true, rel=1e-6)
        assert true - optimum <= 1.01 * tolerance * abs(optimum)
