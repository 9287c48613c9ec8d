"""Losses of functions in JAX: what the built-in losses give on the same data, without changing JAX's settings."""

import sys

import numpy as np
import pytest
from autodiff_cases import (
    K,
    P,
    assert_newton_agrees,
    assert_same_hessians,
    assert_same_samples,
    assert_same_values,
    built_in,
    data,
    identified,
)

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.oracles import Stream

jax = pytest.importorskip("jax", reason="needs JAX: install jax")
jnp = jax.numpy

EQUAL, RAGGED = [6] * 5, [7, 1, 12, 7, 3]
UNEVEN = [1, 2, 1, 40, 2]  # too uneven to be filled up to one number of rows


def logistic(x, batch):
    features, targets = batch
    scores = features @ x
    return jnp.mean(jnp.logaddexp(0, scores) - targets * scores)


def squares(x, batch):
    features, targets = batch
    return ((features @ x - targets) ** 2).sum() / 2


def softmax(x, batch):
    """One number per row."""
    scores = batch["features"] @ x["weights"].T
    rows = jnp.arange(len(scores))
    return jax.nn.logsumexp(scores, axis=1) - scores[rows, batch["labels"]]


FUNCTIONS = {"logistic": logistic, "squares": squares, "softmax": softmax}


def batches(kind, sizes):
    features, targets, splits = data(kind, sizes)
    if kind == "softmax":
        return [{"features": features[rows], "labels": targets[rows]} for rows in splits]
    return [(features[rows], targets[rows]) for rows in splits]


def parameters(kind, dtype=np.float64):
    return {"weights": np.zeros((K, P), dtype)} if kind == "softmax" else np.zeros(P, dtype)


def wrapped(kind="logistic", sizes=RAGGED, function=None, *, dtype=np.float64, **more):
    return gs.losses.Jax(function or FUNCTIONS[kind], batches(kind, sizes), parameters(kind, dtype), **more)


def points(loss, seed=2):
    return np.random.default_rng(seed).normal(size=(loss.m, loss.d)).astype(loss.dtype)


def close(found, expected, tolerance=1e-10):
    assert isinstance(found, np.ndarray)
    assert found.flags.writeable
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.first(3)
@pytest.mark.parametrize(
    ("kind", "sizes", "reduction"),
    [
        ("logistic", UNEVEN, "sum"),
        ("squares", RAGGED, "sum"),
        ("softmax", RAGGED, "mean"),
        ("logistic", EQUAL, "sum"),
        ("logistic", RAGGED, "mean"),
    ],
)
def test_values_and_gradients_are_those_of_the_built_in_loss(kind, sizes, reduction):
    loss, expected = wrapped(kind, sizes, reduction=reduction), built_in(kind, sizes, reduction=reduction)
    assert (loss.m, loss.d, loss.dtype, loss.device) == (expected.m, expected.d, np.float64, None)
    assert loss.rows_per_agent.tolist() == sizes
    assert len(loss._whole) == (3 if sizes is UNEVEN else 1)
    x = points(loss)
    assert_same_values(loss, expected, x, close)


@pytest.mark.first(1)
@pytest.mark.parametrize(("kind", "reduction"), [("logistic", "sum"), ("softmax", "mean")])
def test_samples_are_those_of_the_built_in_loss(kind, reduction):
    loss, expected = wrapped(kind, reduction=reduction), built_in(kind, RAGGED, reduction=reduction)
    x = points(loss)
    assert_same_samples(loss, expected, x, close, batches=(5, 40), drawn=5)


def test_samples_may_come_from_a_stream():
    loss, expected = wrapped(), built_in("logistic", RAGGED)
    features, targets, _ = data("logistic", [6] * 5)
    arrived = [[(features[i : i + 1], targets[i : i + 1]), (features[i : i + 4], targets[i : i + 4])] for i in range(5)]
    ours, theirs = (Stream(arrived).open(one, range(5), 0) for one in (loss, expected))
    x = points(loss)
    close(ours.gradient(x, ours.draw(0, 3)), theirs.gradient(x, theirs.draw(0, 3)))
    for batch in ((features[:2, :3], targets[:2]), [features[:2], targets[:2]], (features[:2],)):
        with pytest.raises(InputError, match="a batch must have the form of the loss's own data"):
            loss.read_samples(0, batch)


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_a_problem_and_a_graph_are_enough_and_give_the_same_answer(kind):
    domain, graph = gs.domains.L2Ball(1.0), gs.Graph.ring(5)
    solution, expected = (gs.solve(gs.Problem(loss, domain), graph) for loss in (wrapped(kind), built_in(kind, RAGGED)))
    assert solution.status is gs.Status.CONVERGED
    # One more before the run, and four at the answer, compare the gradient of a user's function with its value.
    assert solution.costs.gradients == expected.costs.gradients + 5
    assert solution.costs.rounds == expected.costs.rounds
    close(identified(kind, solution.x), identified(kind, expected.x), 1e-8)
    assert solution.objective == pytest.approx(expected.objective, rel=1e-6)


def test_without_smoothness_other_methods_say_what_is_missing():
    problem, graph = gs.Problem(wrapped()), gs.Graph.ring(5)
    with pytest.raises(InputError, match=r"smoothness constant must be known .* Jax without it; use gs\.AutoPDS"):
        gs.solve(problem, graph, gs.PDS())
    L = float(np.max(built_in("logistic", RAGGED).smoothness()))
    stop = gs.Stop(iterations=20)
    given = gs.solve(gs.Problem(wrapped(smoothness=L)), graph, gs.PDS(), stop=stop)
    close(gs.solve(problem, graph, gs.PDS(L=L), stop=stop).x, given.x)


@pytest.mark.slow
def test_spds_is_seeded():
    graph, answers = gs.Graph.ring(5), []
    loss = wrapped()
    for one, seed in ((loss, 1), (loss, 1), (loss, 2), (built_in("logistic", RAGGED), 1)):
        method = gs.SPDS(samples=200, L=5.0, seed=seed)
        answers.append(gs.solve(gs.Problem(one, gs.domains.L2Ball(2.0)), graph, method).x)
    np.testing.assert_array_equal(answers[0], answers[1])
    assert np.abs(answers[0] - answers[2]).max() > 1e-3
    close(answers[0], answers[3])


def test_parameters_are_a_pytree_and_come_back_as_one():
    def affine(parameters, batch):
        features, targets = batch
        return jnp.mean((features @ parameters["w"] + parameters["b"] - targets) ** 2)

    given = {"w": np.arange(1.0, 5.0), "b": 7.0}
    loss = gs.losses.Jax(affine, batches("squares", RAGGED), given)
    assert loss.d == 5
    solution = gs.solve(gs.Problem(loss, mu=0.1), gs.Graph.ring(5), x0=loss.x0, stop=gs.Stop(iterations=3))
    back = loss.parameters_of(loss.x0)
    assert back["b"] == 7.0
    np.testing.assert_array_equal(back["w"], given["w"])
    assert back["w"].dtype == np.float64
    at_mean = loss.parameters_of(solution.mean)
    features, targets, splits = data("squares", RAGGED)
    errors = (features @ at_mean["w"] + at_mean["b"] - targets) ** 2
    close(loss.value(np.tile(solution.mean, (5, 1))), [errors[rows].sum() for rows in splits])
    with pytest.raises(InputError, match=r"x must have shape \(5,\)"):
        loss.parameters_of(np.zeros(4))


def test_doubles_are_double_here_and_nowhere_else():
    before = jnp.zeros(2).dtype
    wrapped().gradient(np.zeros((5, P)))
    assert jnp.zeros(2).dtype == before == np.float32
    single = wrapped(dtype=np.float32)
    x = points(single)
    value, gradient = single.value_and_gradient(x)
    assert (single.dtype, value.dtype, gradient.dtype) == (np.float32,) * 3
    close(gradient, built_in("logistic", RAGGED).gradient(x.astype(float)), 1e-5)
    assert gs.losses.Jax(logistic, batches("logistic", RAGGED), jnp.zeros(P)).dtype == np.float32
    solution = gs.solve(gs.Problem(single), gs.Graph.ring(5), stop=gs.Stop(iterations=5))
    assert solution.x.dtype == np.float32


@pytest.mark.slow
def test_take_restricts_it_to_some_agents():
    loss = wrapped("softmax", smoothness=[1.0, 2.0, 3.0, 4.0, 5.0])
    x = points(loss)
    for agents in ([2], [3, 0], [1, 2, 3]):
        part = loss.take(agents)
        close(part.gradient(x[agents]), loss.gradient(x)[agents])
        assert part.rows_per_agent.tolist() == [RAGGED[i] for i in agents]
        assert part.smoothness().tolist() == [1.0 + i for i in agents]


@pytest.mark.slow
def test_a_function_of_all_rows_at_once_cannot_sample():
    def with_ridge(x, batch):
        return squares(x, batch) + x @ x / 2

    with pytest.raises(InputError, match=r"sum or the mean of the losses of each; got .* reduction=None"):
        wrapped("squares", function=with_ridge)
    loss, expected = wrapped("squares", function=with_ridge, reduction=None), built_in("squares", RAGGED)
    x = points(loss)
    close(loss.gradient(x), expected.gradient(x) + x)
    assert loss.rows_per_agent is None
    with pytest.raises(InputError, match=r'sampling needs a sum over rows; .* use reduction="sum"'):
        loss.sample_gradient(x, 1, np.random.default_rng(0).spawn(5))


def test_what_is_not_convex_is_refused_unless_asked_for():
    def waves(x, batch):
        return jnp.mean(jnp.cos(batch[0] @ x))

    with pytest.raises(InputError, match=r"must be convex in the parameters; got .* check_convexity=False"):
        wrapped(function=waves)
    assert wrapped(function=waves, check_convexity=False).d == P


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"function": 3}, "function must be callable"),
        ({"function": lambda x, batch: x[0] if x[0] > 0 else -x[0]}, "function must be one that JAX can trace"),
        ({"function": lambda x, batch: x[:3]}, r"a number, or one number per row; got shape \(3,\) for 4 rows"),
        ({"data": (np.zeros((3, P)), np.zeros(3))}, "data must be a list with one pytree of arrays per agent"),
        ({"data": []}, "data must be a list"),
        ({"data": [(np.zeros((3, P)), np.zeros(2))]}, "the data of agent 0 must be arrays with one leading entry"),
        ({"data": [(np.zeros((0, P)), np.zeros(0))]}, "one or more"),
        (
            {"data": [(np.zeros((3, P)), np.zeros(3)), (np.zeros((3, 2)), np.zeros(3))]},
            r"one form; got rows of \(float64\[4\], float64\[\]\) for agent 0 and of \(float64\[2\]",
        ),
        (
            {"data": [(np.full((3, P), np.nan), np.zeros(3))]},
            r"part \[0\] of the data of agent 0 must be finite; got 12 NaN",
        ),
        ({"data": [(np.full((3, P), "a"), np.zeros(3))]}, "must hold real numbers"),
        (
            {"data": [(np.zeros((3, P)), np.array(["a", "b", "a"]))]},
            r"part \[1\] of the data of agent 0 must hold real numbers; got .*; encode text .* number classes from 0",
        ),
        ({"data": [np.full((3, P), np.inf)]}, "; got 12 NaN or infinite entries in 3 of 3 rows"),
        ({"data": [(np.zeros((3, P)), {})] * 2 + [np.zeros((3, P))]}, "for agent 0 and of .* for agent 2; give each"),
        (
            {"parameters": np.zeros(P + 1)},
            r"take the parameters .*; got TypeError: .* parameters of shape \(5,\) and rows of \(float64\[4\]",
        ),
        ({"function": lambda x, batch: batch["features"] @ x}, "; got TypeError: tuple indices .*correct the function"),
        (
            {"function": lambda x, batch: ((batch[0] @ x)[:, None] - batch[1]) ** 2},
            r"must not depend on other rows; got .* of shape \(4, 4\); check the shapes: \(n, 1\) and \(n,\)",
        ),
        ({"parameters": {}}, "parameters must be a pytree of arrays of real numbers"),
        ({"parameters": 1j * np.zeros(P)}, "of real numbers"),
        ({"smoothness": [1.0, 2.0]}, "smoothness must be a non-negative number, or 5 of them"),
        ({"reduction": "average"}, "reduction must be one of the known names"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_errors_say_what_to_do(change, message):
    given = {"function": logistic, "data": batches("logistic", EQUAL), "parameters": np.zeros(P), **change}
    with pytest.raises(InputError, match=message):
        gs.losses.Jax(**given)


@pytest.mark.parametrize(("name", "library"), [("Torch", "torch"), ("Jax", "jax")])
def test_without_its_library_it_says_what_to_install(name, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        InputError, match=rf"gs\.losses\.{name} needs .*; got an installation without it; .*pip install"
    ):
        getattr(gs.losses, name)(None, None, None)


def test_it_cannot_move_to_a_device():
    pytest.importorskip("torch", reason="needs PyTorch: install gradslide[torch]")
    with pytest.raises(InputError, match="cannot move to a device"):
        wrapped().to("cpu")


# ---- Hessians


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("kind", "sizes", "reduction"),
    [("softmax", RAGGED, "mean"), ("logistic", UNEVEN, "sum"), ("squares", EQUAL, "sum")],
)
def test_hessians_are_those_of_the_built_in_loss(kind, sizes, reduction, monkeypatch):
    loss, expected = wrapped(kind, sizes, reduction=reduction), built_in(kind, sizes, reduction=reduction)
    assert_same_hessians(loss, expected, points(loss), close, monkeypatch)


def test_hessians_in_single_precision_and_of_functions_that_are_no_sums():
    single, double = wrapped(dtype=np.float32), built_in("logistic", RAGGED)
    x = points(single)
    found = single.hessian(x)
    assert found.dtype == np.float64
    close(found, double.hessian(x), 1e-5)

    def log_sum(x, batch):
        return jax.nn.logsumexp(batch[0] @ x)

    loss = wrapped(function=log_sum, reduction=None)
    assert "hessian" in gs.check_loss(loss).passed


def test_newton_takes_the_steps_of_the_built_in_loss():
    assert_newton_agrees(wrapped("softmax"), built_in("softmax", RAGGED))


def test_poisson_regression_is_the_built_in_one():
    features, _, splits = data("squares", RAGGED)
    counts = np.random.default_rng(5).poisson(2.0, len(features)).astype(float)

    def poisson(x, batch):
        scores = batch[0] @ x
        return jnp.sum(jnp.exp(scores) - batch[1] * scores)

    loss = gs.losses.Jax(poisson, [(features[rows], counts[rows]) for rows in splits], np.zeros(P))
    assert_newton_agrees(loss, gs.losses.Poisson(features, counts, splits=splits))


@jax.custom_vjp
def only_backwards(scores):
    return jnp.logaddexp(0, scores)


only_backwards.defvjp(lambda scores: (only_backwards(scores), scores), lambda scores, g: (g * jax.nn.sigmoid(scores),))


def test_functions_without_second_derivatives_run_without_them():
    def function(x, batch):
        scores = batch[0] @ x
        return jnp.sum(only_backwards(scores) - batch[1] * scores)

    loss, expected = wrapped(function=function), built_in("logistic", RAGGED)
    assert not loss.has_hessian
    with pytest.raises(InputError, match="a Hessian needs a loss over NumPy arrays that has one; got Jax"):
        loss.hessian(points(loss))
    graph, mu = gs.Graph.ring(5), 0.5
    with pytest.raises(InputError, match="Newton needs losses with values and Hessians"):
        gs.solve(gs.Problem(loss, mu=mu), graph, gs.Newton())
    stop = gs.Stop(gap=gs.Relative(1e-10), iterations=100)
    ours, theirs = (gs.solve(gs.Problem(each, mu=mu), graph, stop=stop) for each in (loss, expected))
    assert (ours.parameters["method"], theirs.parameters["method"]) == ("LBFGS", "Newton")
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-4)


def test_a_second_derivative_that_is_not_finite_does_no_harm():
    """That of |x|^3 is NaN at 0, written in this way."""

    def cubes(x, batch):
        return jnp.sum(batch[0]) * 0 + jnp.sum((x**2) ** 1.5)

    loss = wrapped(function=cubes, reduction=None)
    start = np.zeros((loss.m, loss.d))
    assert np.isnan(loss.hessian(start)).any()
    assert np.isfinite(loss.gradient(start)).all()
    solution = gs.solve(gs.Problem(loss), gs.Graph.ring(5), gs.AutoPDS(), stop=gs.Stop(iterations=3))
    assert np.isfinite(solution.x).all()


def test_a_class_with_another_value_does_not_inherit_hessians():
    class Shifted(gs.losses.Jax):
        def value(self, x):
            return super().value(x) + 1.0

    assert not Shifted(logistic, batches("logistic", RAGGED), np.zeros(P)).has_hessian
