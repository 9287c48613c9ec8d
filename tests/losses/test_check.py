"""Losses that users write: what is wrong with them is found and named."""

import re

import numpy as np
import pytest
from error_messages import check_message

import gradslide as gs

TARGETS = np.random.default_rng(3).normal(size=(4, 5))


def squares(x):
    return 0.5 * np.sum((x - TARGETS) ** 2, axis=-1)


def custom(**functions):
    given = {"value": squares, "gradient": lambda x: x - TARGETS, "smoothness": 1.0} | functions
    return gs.losses.Custom(agents=4, dimension=5, **given)


def shifted(x):
    gradient = x - TARGETS
    gradient[2] += 0.5
    return gradient


def noisy(rng=np.random.default_rng(0)):  # noqa: B008
    return lambda x: squares(x) + rng.normal(size=len(x))


MISTAKES = {
    "shifted at one agent": ({"gradient": shifted}, "gradient: agent 2"),
    "three times too large": ({"gradient": lambda x: 3 * (x - TARGETS)}, "gradient: agent"),
    "the wrong sign": ({"gradient": lambda x: TARGETS - x}, "gradient: agent"),
    "not convex": (
        {"value": lambda x: -squares(x), "gradient": lambda x: TARGETS - x},
        "convexity: the gradient of agent",
    ),
    "rougher than it says": ({"smoothness": 0.5}, "smoothness: the gradient of agent"),
    "another value each time": ({"value": noisy()}, "repeatable: value of agent"),
    "not finite": ({"value": lambda x: squares(x) / 0 * 0}, "shapes and precision: value of agent 0 is not finite"),
    "another gradient with the value": (
        {"value_and_gradient": lambda x: (squares(x), 1.1 * (x - TARGETS))},
        "value_and_gradient: the gradient of agent",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    functions, expected = MISTAKES[mistake]
    with np.errstate(all="ignore"):
        report = gs.check_loss(custom(**functions))
    assert not report.ok
    assert any(text.startswith(expected) for text in report.findings), report
    assert str(report).startswith("WRONG    ")


def test_a_coordinate_is_named():
    def gradient(x):
        found = x - TARGETS
        found[1, 3] *= 2
        return found

    (finding,) = [text for text in gs.check_loss(custom(gradient=gradient)).findings if text.startswith("gradient")]
    assert "Coordinate 3 of agent 1" in finding


def losses():
    rng = np.random.default_rng(0)
    rows, classes = rng.normal(size=(40, 5)), rng.integers(3, size=40)
    signs = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    for scale in (1e-3, 1.0, 1e3):
        for dtype in (np.float32, np.float64):
            features = (scale * rows).astype(dtype)
            yield gs.losses.Logistic(features, signs.astype(dtype), agents=4)
            yield gs.losses.LeastSquares(features, signs.astype(dtype), agents=4)
            yield gs.losses.Huber(features, signs.astype(dtype), agents=4)
            yield gs.losses.SmoothedHinge(features, signs.astype(dtype), agents=4)
            yield gs.losses.Softmax(features, classes, agents=4)
            yield gs.losses.Linear((scale * rows[:4]).astype(dtype))
    yield gs.losses.Quadratic(np.eye(5)[None].repeat(4, 0), rows[:4])
    mixed = [gs.losses.Logistic(rows[:20], signs[:20], agents=2), gs.losses.Huber(rows[20:], signs[20:], agents=2)]
    yield gs.losses.stack(mixed)
    yield custom()
    yield custom(value_and_gradient=lambda x: (squares(x), x - TARGETS))


@pytest.mark.parametrize("loss", list(losses()), ids=repr)
def test_no_false_alarm(loss):
    for seed in range(5):
        report = gs.check_loss(loss, seed=seed, points=4)
        assert report.ok, report
        assert ("hessian" in report.passed) == loss.has_hessian


def test_without_a_value_what_can_be_checked_is():
    loss = gs.losses.Custom(gradient=lambda x: TARGETS - x, agents=4, dimension=5)
    report = gs.check_loss(loss)
    assert [text.split(":")[0] for text in report.findings] == ["convexity"]
    assert [text.split(":")[0] for text in report.skipped] == [
        "value_and_gradient",
        "gradient",
        "smoothness",
        "hessian",
    ]


def test_a_point_where_the_loss_is_defined_can_be_given():
    loss = gs.losses.Custom(
        value=lambda x: -np.log(x).sum(axis=1), gradient=lambda x: -1 / x, agents=2, dimension=3, smoothness=1.0
    )
    with np.errstate(invalid="ignore"):
        assert "not finite" in gs.check_loss(loss).findings[0]
    report = gs.check_loss(loss, x=np.full(3, 20.0), radius=5.0)
    assert "gradient" in report.passed
    with pytest.raises(gs.InputError, match="x must have shape"):
        gs.check_loss(loss, x=np.zeros(4))
    with pytest.raises(gs.InputError, match="loss must be"):
        gs.check_loss(np.zeros(4))


@pytest.mark.parametrize("mistake", ["shifted at one agent", "three times too large", "the wrong sign"])
@pytest.mark.parametrize("method", [None, gs.PDS(L=1.0, R=1.0), gs.NIDS()])
def test_solve_refuses_a_gradient_that_is_not_that_of_the_value(mistake, method):
    problem = gs.Problem(custom(**MISTAKES[mistake][0]), gs.domains.L2Ball(10.0))
    with pytest.raises(gs.InputError, match=r"derivative of its value; got agent \d of Custom.*check_loss") as error:
        gs.solve(problem, gs.Graph.ring(4), method)
    if mistake == "shifted at one agent":
        assert "agent 2" in str(error.value)


def spoilt(function, agent, by):
    """The function with NaN or infinity at one agent."""

    def changed(x):
        result = function(x)
        result[agent] = by
        return result

    return changed


NOT_FINITE = {
    "a gradient of NaN": ({"gradient": spoilt(lambda x: x - TARGETS, 1, np.nan)}, "agent 1.*its gradient is not fin"),
    "an infinite gradient": ({"gradient": spoilt(lambda x: x - TARGETS, 3, np.inf)}, "agent 3.*its gradient is not f"),
    "a value of NaN": ({"value": spoilt(squares, 2, np.nan)}, "agent 2 of Custom: its value is NaN"),
    "an infinite value": ({"value": spoilt(squares, 2, np.inf)}, "agent 2 of Custom: its value is infinite"),
}


@pytest.mark.parametrize("mistake", NOT_FINITE)
@pytest.mark.parametrize("domain", [gs.domains.Free(), gs.domains.L2Ball(10.0)])
def test_solve_refuses_values_and_gradients_that_are_not_finite(mistake, domain):
    functions, expected = NOT_FINITE[mistake]
    with pytest.raises(gs.InputError, match=expected):
        gs.solve(gs.Problem(custom(**functions), domain), gs.Graph.ring(4))


def exponentials(factor):
    """Values that overflow a little away from 0."""
    rows = 3000 * np.random.default_rng(1).normal(size=(4, 9, 5))

    def value(x):
        scores = np.einsum("irj,ij->ir", rows, x)
        return np.sum(np.exp(scores) - scores, axis=1)

    def gradient(x):
        return factor * np.einsum("irj,ir->ij", rows, np.exp(np.einsum("irj,ij->ir", rows, x)) - 1)

    return gs.Problem(gs.losses.Custom(value=value, gradient=gradient, agents=4, dimension=5))


def test_values_may_overflow_far_from_the_start():
    """The gradient is compared nearer to it then."""
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.isinf(exponentials(1.0).loss.value(np.full((4, 5), 0.5))).any()
        solution = gs.solve(exponentials(1.0), gs.Graph.ring(4), stop=gs.Stop(kkt=gs.Relative(1e-3), iterations=500))
        assert solution.status is gs.Status.STATIONARY
        with pytest.raises(gs.InputError, match=r"value has slope .*, its gradient says"):
            gs.solve(exponentials(1.5), gs.Graph.ring(4))


def test_slopes_that_values_cannot_show_are_no_mistake():
    """log(1 + exp(-600)) is 0."""
    loss = gs.losses.Custom(
        value=lambda x: np.log(1 + np.exp(x - 600)).sum(axis=1),
        gradient=lambda x: np.exp(x - 600) / (1 + np.exp(x - 600)),
        smoothness=1.0,
        agents=4,
        dimension=2,
    )
    solution = gs.solve(
        gs.Problem(loss, gs.domains.L2Ball(1.0)), gs.Graph.ring(4), gs.PDS(), stop=gs.Stop(iterations=2)
    )
    assert solution.costs.gradients > 0


def test_values_that_are_not_finite_at_any_of_the_points_are_found():
    """At the first one they are."""
    seen = []

    def value(x):
        seen.append(x.copy())
        return spoilt(squares, 1, np.nan)(x) if np.abs(x - seen[0]).max() > 0.1 else squares(x)

    (finding,) = [text for text in gs.check_loss(custom(value=value)).findings if text.startswith("gradient")]
    assert finding == "gradient: agent 1 of Custom: its value is NaN at a random point"


def raising(x):
    raise ZeroDivisionError("mine")


@pytest.mark.parametrize("function", ["value", "gradient", "value_and_gradient"])
def test_errors_in_a_users_code_are_located(function):
    with pytest.raises(ZeroDivisionError) as caught:
        gs.check_loss(custom(**{function: raising}))
    assert caught.value.__notes__ == [f"raised in Custom.{function}, called by check_loss at a random point"]


def test_errors_in_the_code_of_one_agent_name_it():
    def squared(x):
        return x @ x

    with pytest.raises(ZeroDivisionError) as caught:
        gs.check_loss(custom(value=[squared, squared, raising, squared]))
    assert caught.value.__notes__[0] == "raised in the value of agent 2"


@pytest.mark.parametrize("x", ["a", [[1.0], [2.0, 3.0]], np.full(5, np.nan), np.full(5, 1j)])
def test_a_point_must_hold_numbers(x):
    check_message(lambda: gs.check_loss(custom(), x=x), ["x must"])


def test_the_check_is_counted_and_can_be_switched_off():
    problem = gs.Problem(custom())
    stop = gs.Stop(iterations=5)
    with_check, without = (
        gs.solve(problem, gs.Graph.ring(4), gs.NIDS(), stop=stop, check_loss=check) for check in (True, False)
    )
    assert with_check.costs.gradients == without.costs.gradients + 1
    assert with_check.costs.values == without.costs.values + 4
    np.testing.assert_array_equal(with_check.x, without.x)


def test_it_stays_in_the_set():
    """Where a loss of a user's may be defined only."""

    def value(x):
        assert (x >= 0).all()
        return squares(x)

    problem = gs.Problem(custom(value=value), gs.domains.NonNegative())
    gs.solve(problem, gs.Graph.ring(4), gs.NIDS(), x0=np.zeros(5), stop=gs.Stop(iterations=3))


def test_classes_of_users_are_checked_too():
    class Mine(gs.losses.Loss):
        def value(self, x):
            return squares(x)

        def gradient(self, x):
            return 2 * (x - TARGETS)

        def compute_smoothness(self, norm):
            return np.ones(self.m)

        def take_agents(self, agents):
            raise NotImplementedError

    assert Mine(4, 5, np.float64).is_user_supplied
    assert not gs.losses.Linear(TARGETS).is_user_supplied
    with pytest.raises(gs.InputError, match=r"agent \d of Mine"):
        gs.solve(gs.Problem(Mine(4, 5, np.float64)), gs.Graph.ring(4))


# ---- Hessians

FEATURES = np.random.default_rng(7).normal(size=(4, 10, 5))


class Curved(gs.losses.Loss):
    """Least squares of a user's, with Hessians that may be wrong."""

    def __init__(self, change=lambda hessian: hessian):
        super().__init__(4, 5, np.float64)
        self._change = change

    def value(self, x):
        return 0.5 * np.sum(np.einsum("irj,ij->ir", FEATURES, x - TARGETS) ** 2, axis=1)

    def gradient(self, x):
        return np.einsum("irk,irj,ij->ik", FEATURES, FEATURES, x - TARGETS)

    @property
    def has_hessian(self):
        return True

    def hessian(self, x):
        return self._change(np.einsum("irj,irk->ijk", FEATURES, FEATURES))

    def compute_smoothness(self, norm):
        return np.linalg.eigvalsh(np.einsum("irj,irk->ijk", FEATURES, FEATURES))[:, -1]

    def take_agents(self, agents):
        raise NotImplementedError


def changed(agent, j, k, factor=1.5):
    def change(hessian):
        hessian[agent, j, k] *= factor
        return hessian

    return change


def both_changed(hessian):
    return changed(3, 1, 2)(changed(3, 2, 1)(hessian))


WRONG_HESSIANS = {
    "scaled": (lambda hessian: 1.1 * hessian, r"hessian: agent \d of Curved: along a random direction coordinate \d"),
    "not symmetric": (changed(2, 0, 3), r"hessian: the Hessian of agent 2 is not symmetric: .* row \d, column \d"),
    "of one agent": (changed(1, 4, 4, 1.2), r"hessian: agent 1 of Curved.*Row 4, column 4 of agent 1"),
    "of one pair of entries": (both_changed, r"hessian: agent 3 of Curved.*Row 2, column 1 of agent 3"),
    "not semidefinite": (
        lambda hessian: hessian - 100 * np.eye(5),
        r"hessian: the Hessian of agent \d is not positive semidefinite: <v, H v> = -",
    ),
    "single precision": (lambda hessian: hessian.astype(np.float32), "hessian: Hessians must have shape .* float32"),
    "of another shape": (lambda hessian: hessian[0], r"hessian: Hessians must have shape .* got \(5, 5\)"),
    "not finite": (changed(2, 1, 1, np.nan), "hessian: the Hessian of agent 2 is not finite"),
}


@pytest.mark.parametrize("mistake", WRONG_HESSIANS)
def test_wrong_hessians_are_named(mistake):
    change, expected = WRONG_HESSIANS[mistake]
    report = gs.check_loss(Curved(change))
    (finding,) = report.findings
    assert re.match(expected, finding), finding
    assert gs.check_loss(Curved()).ok


def test_large_hessians_are_left_out():
    loss = gs.losses.Linear(np.ones((2, 6000)))
    assert "hessian: Hessians are too large" in gs.check_loss(loss, points=1).skipped


@pytest.mark.parametrize("mistake", ["scaled", "of one agent"])
def test_solve_refuses_a_hessian_of_a_user_that_is_not_that_of_the_gradient(mistake):
    problem = gs.Problem(Curved(lambda hessian: 2 * WRONG_HESSIANS[mistake][0](hessian)))
    with pytest.raises(gs.InputError, match=r"derivative of its gradient; got agent \d of Curved.*check_loss"):
        gs.solve(problem, gs.Graph.ring(4), gs.NIDS(), stop=gs.Stop(iterations=2))


def test_solve_refuses_a_hessian_of_a_user_that_is_not_finite():
    problem = gs.Problem(Curved(WRONG_HESSIANS["not finite"][0]))
    with pytest.raises(gs.InputError, match="got agent 2 of Curved: its Hessian is not finite at a random point"):
        gs.solve(problem, gs.Graph.ring(4), gs.NIDS(), stop=gs.Stop(iterations=2))


def test_the_check_of_a_hessian_is_counted_where_it_is_a_users():
    def counts(loss, check):
        run = gs.solve(gs.Problem(loss), gs.Graph.ring(4), gs.NIDS(), stop=gs.Stop(iterations=3), check_loss=check)
        return np.array([run.costs.gradients, run.costs.values, run.costs.hessians])

    class Renamed(gs.losses.Quadratic):
        """A user's, with the Hessian of the library."""

    library = Renamed(np.eye(5)[None].repeat(4, 0), TARGETS)
    assert (counts(Curved(), True) - counts(Curved(), False)).tolist() == [5, 4, 1]
    assert (counts(library, True) - counts(library, False)).tolist() == [1, 4, 0]
