"""Auto mode: what is refused."""

import math

import pytest
from auto_twins import BALL, BOXES
from baselines import small_problem
from error_messages import check_message

import gradslide as gs


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"balance": 0.0}, ["balance must be > 0", "measure"]),
        ({"balance": math.nan}, ["balance"]),
        ({"balance": "measured"}, ["balance", "'measured'", '"measure"']),
        ({"agreement": "exactly"}, ["agreement", "did you mean 'exact'?"]),
        ({"inner": "slide"}, ["inner", "did you mean 'sliding'?"]),
        ({"L": 0.0}, ["L must be > 0"]),
        ({"first_L": -1.0}, ["first_L must be > 0"]),
        ({"R": math.inf}, ["R must be > 0"]),
        ({"L": 1.0, "first_L": 1.0}, ["give L", "first_L", "both"]),
        ({"K": 0}, ["K must be a whole number >= 1"]),
        ({"K": 1.5}, ["K must be a whole number"]),
        ({"spectrum": (0.0, 1.0)}, ["spectrum[0] must be > 0", "smallest eigenvalue"]),
        ({"spectrum": (2.0, 1.0)}, ["spectrum[1] must be >= 2", "largest eigenvalue"]),
        ({"restarts": 0}, ["restarts must be True or False", "got 0", "False switches them off"]),
        ({"restarts": "no"}, ["restarts must be True or False", "got 'no'"]),
        ({"restarts": None}, ["restarts must be True or False", "got None"]),
        ({"restarts": [True]}, ["restarts must be True or False", "got [True]"]),
    ],
)
def test_wrong_parameters_are_refused(given, words):
    check_message(lambda: gs.AutoPDS(**given), words)


def test_inner_loops_that_do_not_fit_are_refused():
    graph = gs.Graph.ring(7)
    unlike, entropy = small_problem(domain=BOXES), small_problem(domain=gs.domains.EntropySimplex())
    words = ['inner="shared" needs the same X and penalty for all agents', "leave inner out"]
    check_message(lambda: gs.solve(unlike, graph, gs.AutoPDS(inner="shared")), words)
    for inner in ("shared", "own"):
        words = [f'inner="{inner}" needs a Euclidean domain', "EntropySimplex", "leave inner out"]
        check_message(lambda inner=inner: gs.solve(entropy, graph, gs.AutoPDS(inner=inner)), words)
    with pytest.raises(TypeError):
        gs.AutoPDS(1.0)
    # The remedy is one.
    for problem in (unlike, entropy):
        assert gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=2)).status is gs.Status.ITERATION_LIMIT


ENTROPY = gs.domains.EntropySimplex()


@pytest.mark.parametrize(
    ("domain", "inner", "given", "words"),
    [
        (None, None, {"R": 0.5}, ['inner="shared" has no R', "got 0.5", "leave R out"]),
        (BALL, None, {"R": 0.5, "K": 2}, ['inner="shared" has no R', "leave R out"]),
        (BALL, "shared", {"R": 0.5}, ['inner="shared" has no R', "leave R out"]),
        (ENTROPY, None, {"K": 2}, ['inner="sliding" has no K', "got 2", "leave K out"]),
        (ENTROPY, "sliding", {"K": 2, "R": 0.5}, ['inner="sliding" has no K', "leave K out"]),
        (BALL, "sliding", {"K": 2}, ['inner="sliding" has no K', "leave K out"]),
        (ENTROPY, None, {"spectrum": (1.0, 9.0)}, ['inner="sliding" has no spectrum', "leave spectrum out"]),
    ],
    ids=["free", "ball", "ball forced", "entropy", "entropy forced", "sliding on a ball", "entropy spectrum"],
)
def test_parameters_of_another_inner_loop_are_refused(domain, inner, given, words):
    """None of them would do anything."""
    problem, method = small_problem(domain=domain), gs.AutoPDS(inner=inner, **given)
    check_message(lambda: gs.solve(problem, gs.Graph.ring(7), method), words)


@pytest.mark.parametrize(
    ("domain", "inner", "given"),
    [
        (BALL, "shared", {"K": 2}),
        (BALL, "own", {"K": 2, "R": 1.5}),
        (BOXES, None, {"K": 2, "R": 1.5}),
        (BALL, "sliding", {"R": 1.5}),
        (ENTROPY, None, {"R": 1.5}),
    ],
    ids=["shared", "own", "boxes", "sliding", "entropy"],
)
def test_parameters_of_its_own_inner_loop_are_taken(domain, inner, given):
    method = gs.AutoPDS(inner=inner, **given)
    solution = gs.solve(small_problem(domain=domain), gs.Graph.ring(7), method, stop=gs.Stop(iterations=8))
    assert {name: solution.parameters[name] for name in given} == given
