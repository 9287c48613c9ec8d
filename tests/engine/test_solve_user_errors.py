"""Errors in user code: they stay what they are, and say in which call, for which agent and when they were raised."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

import gradslide as gs

M, D = 3, 2
GRAPH = gs.Graph.path(M)


class Mistake(Exception):
    """What user code raises."""


def notes_of(work, kind=Mistake):
    with pytest.raises(kind) as caught:
        work()
    assert type(caught.value) is kind
    return getattr(caught.value, "__notes__", [])


class FailsAt:
    """A function that raises in its n-th call."""

    def __init__(self, n, function):
        self._left, self._function = n, function

    def __call__(self, *arguments):
        self._left -= 1
        if self._left == 0:
            raise Mistake("n-th call")
        return self._function(*arguments)


def custom(wrong="gradient", agent=1, call=3, *, together=False):
    """Half squared distances from the agents' numbers; one function raises in the given call."""
    functions = {"value": lambda x: np.sum(x**2, axis=-1) / 2, "gradient": lambda x: x}
    given = {name: function if together else [function] * M for name, function in functions.items()}
    if together:
        given[wrong] = FailsAt(call, given[wrong])
    else:
        given[wrong][agent] = FailsAt(call, given[wrong][agent])
    return gs.losses.Custom(**given, smoothness=1.0, agents=M, dimension=D)


def solve(loss, method=None, domain=None, **options):
    options = {"stop": gs.Stop(iterations=9), "check_loss": False, **options}
    method = gs.NIDS(step_size=0.1) if method is None else method
    return gs.solve(gs.Problem(loss, domain), GRAPH, method, **options)


def test_a_loss_names_the_call_the_agent_and_the_iteration():
    # NIDS evaluates one gradient in each iteration.
    notes = notes_of(lambda: solve(custom(call=3)))
    assert notes == ["raised in the gradient of agent 1", "raised in Custom.gradient, outer iteration 3"]


def test_a_function_for_all_agents_names_the_call_and_the_iteration():
    assert notes_of(lambda: solve(custom(call=2, together=True))) == ["raised in Custom.gradient, outer iteration 2"]


def test_before_the_first_iteration():
    notes = notes_of(lambda: solve(custom(call=1), gs.GradientTracking(step_size=0.1)))
    assert notes == ["raised in the gradient of agent 1", "raised in Custom.gradient, before the first outer iteration"]


def test_the_value_is_evaluated_to_observe():
    (agent, place) = notes_of(lambda: solve(custom("value", agent=2, call=2)))
    assert agent == "raised in the value of agent 2"
    assert place.startswith("raised in Custom.value, outer iteration")


def test_a_wrong_result_in_a_later_iteration_says_when():
    bad = gs.losses.Custom(gradient=[*[lambda x: x] * 2, FlipsShape(3)], smoothness=1.0, agents=M, dimension=D)
    assert notes_of(lambda: solve(bad), gs.InputError) == ["raised in Custom.gradient, outer iteration 3"]


class FlipsShape:
    def __init__(self, n):
        self._left = n

    def __call__(self, x):
        self._left -= 1
        return x if self._left else x[:1]


def test_a_domain_names_its_call():
    @dataclass(frozen=True, eq=False)
    class Mine(gs.domains.Free):
        def prox(self, theta, scale):
            raise Mistake

    notes = notes_of(lambda: solve(custom(call=99), gs.PDS(L=1.0, R=1.0), Mine()))
    assert notes == ["raised in Mine.prox, outer iteration 1"]


def test_a_method_names_its_call():
    @dataclass(frozen=True, kw_only=True)
    class Mine(gs.NIDS):
        def step(self, context, state):
            raise Mistake

    assert notes_of(lambda: solve(custom(call=99), Mine(step_size=0.1))) == ["raised in Mine.step, outer iteration 1"]


def test_a_callback_names_the_iteration():
    assert notes_of(lambda: solve(custom(call=99), callback=FailsAt(5, lambda record, x: None))) == [
        "raised in callback, outer iteration 5"
    ]


def test_a_callback_that_returns_no_truth_value_is_named_too():
    notes = notes_of(lambda: solve(custom(call=99), callback=lambda record, x: x), ValueError)
    assert notes == ["raised in callback, outer iteration 1"]


def test_a_builder_names_the_agent():
    def build(i):
        if i == 2:
            raise Mistake
        return custom(call=99).take([i])

    assert notes_of(lambda: gs.Problem.build(GRAPH, build)) == ["raised in the builder for agent 2"]


def test_a_term_names_its_call():
    term = gs.terms.Prox(FailsAt(4, lambda v, step: v))
    problem = gs.Saddle(gs.losses.Quadratic(np.eye(D), np.ones(D)), np.eye(D), h=term)
    (note,) = notes_of(lambda: gs.solve(problem, method=gs.PDS(L=1.0, R=1.0), stop=gs.Stop(iterations=9)))
    assert note.startswith("raised in Prox.prox, ")
    assert "outer iteration" in note


def test_our_own_refusals_need_no_note():
    loss = gs.losses.Custom(gradient=[lambda x: x] * M, agents=M, dimension=D)
    assert notes_of(lambda: solve(loss, gs.PDS(R=1.0)), gs.InputError) == []


def test_what_ends_a_run_early_is_no_error():
    def stop(record, x):
        raise KeyboardInterrupt

    solution = solve(custom(call=99), callback=stop)
    assert solution.status is gs.Status.INTERRUPTED
    assert math.isfinite(solution.x.sum())
