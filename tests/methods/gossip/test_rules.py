"""Auto mode, iterate by iterate against its rules."""

import numpy as np
import pytest
from auto_twins import AGREEMENTS, GRAPHS, KINDS, RULES, check_against, exact_rule, followed, hard_problem, late_rule
from problems import least_squares, logistic

import gradslide as gs

CELLS = [("ring", logistic), ("star", logistic), ("random", least_squares), ("weighted", least_squares)]


@pytest.mark.covering(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "make_loss"), CELLS, ids=[name for name, _ in CELLS])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_it_keeps_to_the_rules(agreement, name, make_loss, kind):
    graph = GRAPHS[name]
    problem = hard_problem(KINDS[kind][0], make_loss, graph.m)
    twins = list(RULES[agreement](problem, graph, kind, 60))
    compared = check_against(twins, *followed(problem, graph, gs.AutoPDS(agreement=agreement), 60))
    assert compared >= 30
    assert twins[compared - 1].epoch >= 1


@pytest.mark.covering
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1e-3, 1e-1, 1e3])
def test_a_wrong_first_guess_is_made_good_late_by_the_rules(share, kind):
    """Too small: sums that come late tell of a jump, and all go back to where they were before it."""
    graph = GRAPHS["ring"]
    problem = hard_problem(KINDS[kind][0], logistic, graph.m)
    L = share * (float(np.max(problem.smoothness())) + problem.mu)
    twins = list(late_rule(problem, graph, kind, 60, L))
    states, solution = followed(problem, graph, gs.AutoPDS(agreement="late", first_L=L), 60)
    assert check_against(twins, states, solution) >= 30
    assert share > 1 or any(twin.rolled_back for twin in twins)


@pytest.mark.parametrize(
    ("name", "make_loss", "kind"),
    [("ring", logistic, "free"), ("random", logistic, "lasso"), ("star", least_squares, "ball")],
)
def test_an_L_that_had_become_too_small_late_sends_all_back_without_a_restart(name, make_loss, kind):
    graph = GRAPHS[name]
    problem = hard_problem(KINDS[kind][0], make_loss, graph.m)
    twins = list(late_rule(problem, graph, kind, 60))
    states, solution = followed(problem, graph, gs.AutoPDS(agreement="late"), 60)
    compared = check_against(twins, states, solution)
    back = next(n for n, twin in enumerate(twins) if twin.went_on)
    assert 0 < back < compared - 2
    assert 0 < states[back].iterate.k < states[back - 1].iterate.k
    assert 0 < states[back].iterate.S < states[back - 1].iterate.S


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ring", "star"])
def test_it_keeps_to_the_rules_where_gradients_are_expensive(name, kind):
    graph = GRAPHS[name]
    problem = hard_problem(KINDS[kind][0], logistic, graph.m)
    twins = list(exact_rule(problem, graph, kind, 40, balance=20.0))
    expensive = [
        followed(problem, graph, gs.AutoPDS(agreement=agreement, balance=20.0), 40) for agreement in ("exact", "late")
    ]
    assert check_against(twins, *expensive[0]) >= 15
    # Sums at once cost less than what late ones cost in gradients: they are waited for, on a star for sure.
    if name == "star":
        assert check_against(twins, *expensive[1]) >= 15
