"""Losses given by functions: per agent or for all agents at once."""

import sys

import numpy as np
import pytest

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.losses import Custom, LeastSquares, stack

M, D = 3, 2
CENTERS = np.arange(6.0).reshape(M, D)
X = np.random.default_rng(0).standard_normal((M, D))


def per_agent(**changes):
    """1/2 |x - c_i|^2 from one function per agent; its sampled gradient has noise of variance 1/batch."""
    arguments = {
        "gradient": [lambda x, c=c: x - c for c in CENTERS],
        "value": [lambda x, c=c: 0.5 * (x - c) @ (x - c) for c in CENTERS],
        "sample_gradient": [lambda x, batch, rng, c=c: x - c + rng.standard_normal(D) / batch**0.5 for c in CENTERS],
        "smoothness": [1, 2, 3],
        "agents": M,
        "dimension": D,
    }
    return Custom(**arguments | changes)


def all_at_once(**changes):
    def sample_gradient(x, batch, streams):
        return x - CENTERS + np.stack([rng.standard_normal(D) for rng in streams]) / batch**0.5

    arguments = {
        "gradient": lambda x: x - CENTERS,
        "value": lambda x: 0.5 * ((x - CENTERS) ** 2).sum(axis=1),
        "sample_gradient": sample_gradient,
        "smoothness": 1.0,
        "agents": M,
        "dimension": D,
    }
    return Custom(**arguments | changes)


def streams(m=M):
    return np.random.default_rng(1).spawn(m)


@pytest.mark.parametrize("make", [per_agent, all_at_once])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_forms_give_the_functions_results(make, dtype):
    loss = make(dtype=dtype)
    tolerance = {"rtol": 1e-5 if dtype == np.float32 else 1e-13}
    value, gradient = loss.value_and_gradient(X)
    np.testing.assert_allclose(value, 0.5 * ((X - CENTERS) ** 2).sum(axis=1), **tolerance)
    np.testing.assert_allclose(gradient, X - CENTERS, **tolerance)
    np.testing.assert_array_equal(loss.value(X), value)
    np.testing.assert_array_equal(loss.gradient(X), gradient)
    assert value.dtype == gradient.dtype == loss.sample_gradient(X, 1, streams()).dtype == dtype


def test_both_forms_sample_alike_from_each_agents_stream():
    expected = X - CENTERS + np.stack([rng.standard_normal(D) for rng in streams()]) / 2
    for loss in (per_agent(), all_at_once()):
        np.testing.assert_allclose(loss.sample_gradient(X, 4, streams()), expected, rtol=1e-13)


def test_smoothness_is_a_number_numbers_or_a_function():
    np.testing.assert_array_equal(per_agent(smoothness=2).smoothness(), [2, 2, 2])
    np.testing.assert_array_equal(per_agent().smoothness(norm=1), [1, 2, 3])
    by_norm = per_agent(smoothness=lambda norm: np.array([1, 2, 3]) * norm)
    np.testing.assert_array_equal(by_norm.smoothness(1), [1, 2, 3])
    np.testing.assert_array_equal(by_norm.smoothness(2), [2, 4, 6])
    np.testing.assert_array_equal(by_norm.take([2, 0]).smoothness(2), [6, 2])


def test_unknown_smoothness_and_sampling_say_what_to_give():
    loss = per_agent(smoothness=None, sample_gradient=None)
    for part in (loss, loss.take([1])):
        with pytest.raises(InputError, match="give smoothness="):
            part.smoothness()
        with pytest.raises(InputError, match="give sample_gradient="):
            part.sample_gradient(X[: part.m], 1, streams(part.m))


def test_take_selects_functions():
    loss, chosen = per_agent(), [2, 0]
    part = loss.take(chosen)
    np.testing.assert_array_equal(part.value(X[chosen]), loss.value(X)[chosen])
    np.testing.assert_array_equal(part.gradient(X[chosen]), loss.gradient(X)[chosen])
    np.testing.assert_array_equal(part.smoothness(), [3, 1])
    picked = [streams()[i] for i in chosen]
    np.testing.assert_array_equal(
        part.sample_gradient(X[chosen], 2, picked), loss.sample_gradient(X, 2, streams())[chosen]
    )


def test_take_needs_one_function_per_agent():
    loss = all_at_once()
    assert loss.take(range(M)) is loss
    with pytest.raises(InputError, match="needs gradient as a list; got one function for all agents"):
        loss.take([0])
    with pytest.raises(InputError, match="needs value as a list"):
        per_agent(value=lambda x: x.sum(axis=1)).take([0])


def test_stack_with_other_losses():
    rows = LeastSquares(np.eye(2), [1.0, 2.0])
    loss = stack([per_agent(), rows])
    x = np.vstack([X, [[1.0, 1.0]]])
    np.testing.assert_array_equal(loss.gradient(x), np.vstack([X - CENTERS, [[0.0, -1.0]]]))
    np.testing.assert_array_equal(loss.take([3]).value(x[3:]), [0.5])


WRONG = [lambda x: x - 1, lambda x: x[:1], lambda x: x]


@pytest.mark.parametrize(
    ("changes", "method", "message"),
    [
        ({"gradient": WRONG}, "gradient", r"gradient must return real numbers of shape \(2,\) for agent 1"),
        ({"value": [np.sum, np.sum, lambda x: x]}, "value", r"value must return .* shape \(\) for agent 2"),
        ({"value": [np.sum, lambda x: None, np.sum]}, "value", "for agent 1; got type object"),
        ({"gradient": lambda x: x[0]}, "gradient", r"shape \(3, 2\) for all agents; got .* shape \(2,\)"),
        ({"value": lambda x: 0.0}, "value", r"shape \(3,\) for all agents"),
    ],
)
def test_results_of_wrong_shape_are_refused(changes, method, message):
    with pytest.raises(InputError, match=message):
        getattr(per_agent(**changes), method)(X)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"gradient": [np.sin]},
            "gradient must be a function, or a list with one function per agent, 3 in all",
        ),
        ({"gradient": [np.sin, np.sin, 0]}, "gradient must be a function, or a list"),
        ({"value": 1.0}, "value must be a function"),
        ({"sample_gradient": [np.sin]}, "sample_gradient must be a function"),
        ({"agents": 0}, "agents must be an integer of at least 1"),
        ({"agents": 2.0}, "agents must be an integer of at least 1"),
        ({"dimension": 0}, "dimension must be an integer of at least 1"),
        ({"dtype": np.int64}, "dtype must be float32 or float64"),
        ({"smoothness": -1}, "smoothness must be a non-negative number, or 3 of them"),
        ({"smoothness": [1, 2]}, "smoothness must be a non-negative number, or 3 of them"),
        ({"smoothness": np.nan}, "smoothness must be finite"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        per_agent(**changes)


def test_x_and_streams_must_fit():
    loss = per_agent()
    with pytest.raises(InputError, match="x must have shape"):
        loss.gradient(X[:2])
    with pytest.raises(InputError, match="one random generator per agent"):
        loss.sample_gradient(X, 1, streams(2))
    with pytest.raises(InputError, match="smoothness must be a non-negative number"):
        per_agent(smoothness=lambda norm: [1.0]).smoothness()


def both_of(target):
    return lambda x: (0.5 * float((x - target) @ (x - target)), x - target)


def test_value_and_gradient_in_one_function_are_enough():
    targets = np.arange(6.0).reshape(3, 2)
    each = Custom(value_and_gradient=[both_of(target) for target in targets], smoothness=1.0, agents=3, dimension=2)
    at_once = Custom(
        value_and_gradient=lambda x: (0.5 * np.sum((x - targets) ** 2, axis=1), x - targets),
        smoothness=1.0,
        agents=3,
        dimension=2,
    )
    x = np.random.default_rng(0).normal(size=(3, 2))
    for loss in (each, at_once):
        assert loss.has_value
        np.testing.assert_allclose(loss.value(x), 0.5 * np.sum((x - targets) ** 2, axis=1))
        np.testing.assert_allclose(loss.gradient(x), x - targets)
        value, gradient = loss.value_and_gradient(x)
        np.testing.assert_array_equal(value, loss.value(x))
        np.testing.assert_array_equal(gradient, loss.gradient(x))
    np.testing.assert_allclose(each.take([2]).gradient(x[2:]), x[2:] - targets[2:])


def test_a_value_of_its_own_is_taken_where_no_gradient_is_wanted():
    calls = []
    loss = Custom(
        value=[lambda x: calls.append("value") or 0.5 * float(x @ x)],
        value_and_gradient=[lambda x: calls.append("both") or (0.5 * float(x @ x), x)],
        smoothness=1.0,
        agents=1,
        dimension=2,
    )
    x = np.ones((1, 2))
    loss.value(x), loss.gradient(x), loss.value_and_gradient(x)
    assert calls == ["value", "both", "both"]


@pytest.mark.parametrize(
    "returned", [1.0, (1.0,), (1.0, 2.0), (np.ones(2), np.ones(2)), (1.0, np.ones(3)), ("a", np.ones(2))]
)
def test_a_value_and_gradient_that_do_not_fit_are_refused(returned):
    loss = Custom(value_and_gradient=[lambda x: returned], smoothness=1.0, agents=1, dimension=2)
    with pytest.raises(InputError, match="value_and_gradient must return"):
        loss.value_and_gradient(np.ones((1, 2)))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_needs_pytorch(device, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    loss = Custom(gradient=lambda x: x, agents=2, dimension=3)
    assert loss.device is None
    with pytest.raises(InputError, match=r"a device needs PyTorch; got .*; install gradslide\[torch\]"):
        loss.to(device)


def test_a_value_and_a_gradient_are_told_apart_in_errors():
    def short(x):
        return 0.5 * float(x @ x), x[:2]

    loss = Custom(value_and_gradient=[short] * 2, agents=2, dimension=3)
    with pytest.raises(
        InputError, match=r"shape \(\) and \(3,\) for agent 0; got type float64 and shape \(\) and \(2,\)"
    ):
        loss.gradient(np.ones((2, 3)))


# ---- Hessians


MATRICES = np.stack([np.diag([1.0, 2.0]), [[2.0, 0.5], [0.5, 1.0]], np.diag([0.0, 3.0])])


def curved(*, at_once=False, dtype=np.float64, **changes):
    """sum_j exp(x_j) + 1/2 x'Q_i x - <c_i, x>."""
    c = CENTERS
    if at_once:
        given = {
            "value": lambda x: (
                np.exp(x).sum(axis=1) + np.einsum("ij,ijk,ik->i", x, MATRICES, x) / 2 - (c * x).sum(axis=1)
            ),
            "gradient": lambda x: np.exp(x) + np.einsum("ijk,ik->ij", MATRICES, x) - c,
            "hessian": lambda x: MATRICES + np.exp(x)[:, :, None] * np.eye(D),
        }
    else:
        pairs = list(zip(MATRICES, c, strict=True))
        given = {
            "value": [lambda x, Q=Q, c=c: np.exp(x).sum() + x @ Q @ x / 2 - c @ x for Q, c in pairs],
            "gradient": [lambda x, Q=Q, c=c: np.exp(x) + Q @ x - c for Q, c in pairs],
            "hessian": [lambda x, Q=Q: Q + np.diag(np.exp(x)) for Q in MATRICES],
        }
    return Custom(**{**given, "agents": M, "dimension": D, "dtype": dtype} | changes)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_hessians_of_both_forms(at_once, dtype):
    loss = curved(at_once=at_once, dtype=dtype)
    assert loss.has_hessian
    x = X.astype(dtype)
    found = loss.hessian(x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, MATRICES + np.exp(x)[:, :, None] * np.eye(D), rtol=1e-6)
    for one, other in zip(loss.derivatives(x), (loss.value(x), loss.gradient(x), found), strict=True):
        np.testing.assert_array_equal(one, other)
    assert "hessian" in gs.check_loss(loss).passed


def test_a_part_of_the_agents_has_their_hessians():
    loss = curved()
    np.testing.assert_array_equal(loss.take([2, 0]).hessian(X[[2, 0]]), loss.hessian(X)[[2, 0]])
    assert not per_agent().take([1]).has_hessian
    with pytest.raises(InputError, match="needs hessian as a list"):
        curved(hessian=lambda x: MATRICES).take([0])
    rows = LeastSquares(np.eye(2), [1.0, 2.0])
    np.testing.assert_array_equal(stack([loss, rows]).hessian(np.vstack([X, X[:1]]))[-1], np.eye(2))


@pytest.mark.parametrize("at_once", [False, True])
def test_newton_finds_where_the_gradients_add_up_to_zero(at_once):
    loss = curved(at_once=at_once)
    stop = gs.Stop(kkt=gs.Relative(1e-10), iterations=50)
    solution = gs.solve(gs.Problem(loss), gs.Graph.ring(M), gs.Newton(), stop=stop)
    assert solution.status is gs.Status.CONVERGED
    np.testing.assert_allclose(loss.gradient(solution.x).sum(axis=0), 0, atol=1e-8)


@pytest.mark.parametrize(
    ("hessian", "message"),
    [
        (
            [lambda x: np.eye(2), lambda x: np.ones(2), lambda x: 0],
            r"hessian must return .*\(2, 2\) for agent 1; got .*\(2,\)",
        ),
        (lambda x: np.eye(2), r"hessian must return real numbers of shape \(3, 2, 2\) for all agents"),
        (
            [lambda x: np.eye(2), lambda x: np.eye(2), lambda x: [[1, 2], [0, 1]]],
            "hessian must be symmetric for agent 2; got 2 in row 0, column 1, 0 in row 1, column 0",
        ),
        ([np.sin], "hessian must be a function, or a list with one function per agent, 3 in all"),
    ],
)
def test_wrong_hessians_are_refused(hessian, message):
    with pytest.raises(InputError, match=message):
        curved(hessian=hessian).hessian(X)


def test_a_hessian_of_rounded_products_is_symmetric_enough():
    noise = 1e-14 * np.random.default_rng(0).normal(size=(M, D, D))
    curved(hessian=lambda x: MATRICES + noise).hessian(X)
    # Where exponentials overflow, that is not the mistake.
    curved(hessian=lambda x: np.full((M, D, D), np.inf)).hessian(X)
    curved(hessian=lambda x: np.full((M, D, D), np.nan)).hessian(X)


def test_a_hessian_that_is_not_that_of_the_gradient_is_refused_before_the_run():
    problem, graph = gs.Problem(curved(hessian=lambda x: 3 * MATRICES + 5 * np.eye(D))), gs.Graph.ring(M)
    with pytest.raises(InputError, match=r"the Hessian of a loss must be the derivative of its gradient; .*agent"):
        gs.solve(problem, graph, gs.Newton())
    assert not gs.check_loss(problem.loss).ok


def test_a_class_with_another_gradient_does_not_inherit_the_hessian():
    class Doubled(Custom):
        def gradient(self, x):
            return 2 * super().gradient(x)

    given = {"gradient": lambda x: x, "hessian": lambda x: np.broadcast_to(np.eye(D), (M, D, D))}
    assert Custom(**given, agents=M, dimension=D).has_hessian
    assert not Doubled(**given, agents=M, dimension=D).has_hessian
