"""Auto mode: what may be fixed, and what it costs."""

import itertools
import math

import numpy as np
import pytest
from auto_twins import AGREEMENTS, BALL, BOXES, GRAPHS, RULES, Net, followed, hard_problem, opened, solved
from baselines import small_problem
from problems import logistic

import gradslide as gs
from gradslide.theory.reference import reference


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(("domain", "inner"), [(None, "shared"), (BALL, "shared"), (BOXES, "own")])
def test_what_is_given_is_kept(domain, inner, agreement):
    problem, graph = small_problem(2, domain, 0.05), gs.Graph.ring(7)
    L = float(np.max(problem.smoothness())) + problem.mu
    rounds = Net(graph).tree
    start = Net(graph).survey
    method = gs.AutoPDS(agreement=agreement, L=L, K=3)
    states, solution = followed(problem, graph, method, 80)
    assert all((state.smoothness.L, state.tuning.K) == (L, 3) for state in states)
    assert states[-1].epoch > 0
    parameters = solution.parameters
    assert (parameters["L"], parameters["K"], parameters["restarts"]) == (L, 3, states[-1].epoch)
    # No probe for L, and nothing done again; only the graph has to be learned.
    assert [r.gradients for r in solution.history] == list(range(1, 81))
    assert [r.rounds for r in solution.history[:-1]] == [3 * k for k in range(1, 80)]
    at_once = rounds if agreement == "exact" else 0
    assert [r.control_rounds for r in solution.history] == [start + at_once * k for k in range(1, 81)]


@pytest.mark.covering
@pytest.mark.parametrize("agreement", AGREEMENTS)
@pytest.mark.parametrize(("domain", "inner"), [(None, "shared"), (BOXES, "own"), (BALL, "sliding")])
def test_restarts_can_be_switched_off(domain, inner, agreement):
    problem, graph = small_problem(2, domain, 0.05), gs.Graph.ring(7)
    for restarts in (True, False):
        method = gs.AutoPDS(agreement=agreement, inner=inner, restarts=restarts)
        states, solution = followed(problem, graph, method, 80, record_every=80)
        assert (states[-1].epoch > 0) == restarts
        assert solution.parameters["restarts"] == states[-1].epoch
        assert restarts or states[-1].iterate.k == 80


def test_a_given_spectrum_is_taken_and_the_graph_not_asked_for():
    problem, graph = small_problem(2, None, 0.05), gs.Graph.path(7)
    values = np.linalg.eigvalsh(graph.laplacian.toarray())
    net = Net(graph)
    method = gs.AutoPDS(agreement="exact")
    given = gs.AutoPDS(agreement="exact", spectrum=(values[1], values[-1]))
    (states, asked), (states_given, told) = (followed(problem, graph, each, 30) for each in (method, given))
    np.testing.assert_allclose(states_given[-1].iterate.x_bar, states[-1].iterate.x_bar, rtol=1e-7)
    assert asked.costs.control_rounds - told.costs.control_rounds == net.survey - net.tree
    # Another spectrum means other numbers of exchanges.
    wide = followed(problem, graph, gs.AutoPDS(spectrum=(values[1] / 16, values[-1])), 3)[0]
    assert wide[0].tuning.K == math.ceil(4 * net.reach / 3)
    # On a star all agents then weigh the same.
    star = gs.Graph.star(9)
    for spectrum, is_even in [((1.0, 9.0), True), (None, False)]:
        context, _ = opened(small_problem(m=9), star, gs.AutoPDS(spectrum=spectrum))
        assert (np.ptp(context.prepared.mixer.D) <= 0.3) == is_even


def test_R_is_kept_where_it_is_given_and_found_where_not():
    problem, graph = small_problem(3, gs.domains.EntropySimplex(), 0.05), gs.Graph.ring(7)
    kept = followed(problem, graph, gs.AutoPDS(R=0.7), 150, record_every=150)[0]
    assert {state.tuning.R for state in kept} == {0.7}
    assert kept[-1].epoch > 0
    found = [state.tuning.R for state in followed(problem, graph, gs.AutoPDS(), 150, record_every=150)[0]]
    assert len(set(found)) > 1
    for before, after in itertools.pairwise(found):
        assert 0.5 * before <= after <= 2 * before


@pytest.mark.first(2)
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_sliding_does_not_spend_ever_more_exchanges_on_a_gradient(agreement):
    """With a ridge they grow geometrically within an epoch, which must end in time."""
    problem = small_problem(5, gs.domains.EntropySimplex(), 0.1)
    states, _ = followed(problem, gs.Graph.random(7, 3, seed=2), gs.AutoPDS(agreement=agreement), 130, record_every=130)
    assert 10 < max(state.sliding.T for state in states) < 1000


def test_sliding_needs_no_graph_and_weighs_all_agents_alike():
    """Its steps know no weights, so its test must not: and where all is given there is nothing to agree on."""
    problem, graph = small_problem(5, gs.domains.EntropySimplex(), 0.1, logistic, 9), gs.Graph.star(9)
    given = gs.AutoPDS(L=5.0, R=0.5)
    assert gs.solve(problem, graph, given, stop=gs.Stop(iterations=3)).costs.control_rounds == 0
    network = gs.network.Local(graph, exact_norm=False)
    assert (
        gs.solve(problem, network, given, stop=gs.Stop(iterations=3)).costs.control_rounds == network.costs.norm_rounds
    )
    states, _ = followed(problem, graph, gs.AutoPDS(agreement="exact"), 30, record_every=30)
    firsts = [state for state in states if state.iterate.k == 1]
    assert firsts
    for state in firsts:
        x_bar, (x_under, y, *_) = state.iterate.x_bar, state.gradient
        d = x_bar - x_under
        gaps = problem.loss.value(x_bar) - problem.loss.value(x_under) - np.sum(y * d, axis=1)
        assert gaps.sum() <= state.iterate.P / 2 * np.sum(np.sum(np.abs(d), axis=1) ** 2) + 1e-12


def expected_floats(graph, solution, d, piggybacked):
    """In the survey three numbers of each agent, and down the tree two eigenvalues, L, and all weights."""
    links, m = 2 * len(graph.edges), graph.m
    return solution.costs.rounds * links * d + links * (links + 3 * m) + (m - 1) * (3 + m) + piggybacked


@pytest.mark.parametrize("name", ["ring", "star", "random"])
def test_all_that_it_costs_is_counted(name):
    graph, net = GRAPHS[name], Net(GRAPHS[name])
    problem = hard_problem(None, logistic, graph.m)
    final = math.ceil(2 * net.reach)
    start = net.survey
    for agreement, piggybacked in (
        ("exact", 0),
        ("late", 39 * 2 * (graph.m - 1) * 9),
        ("none", 40 * net.diameter * 2 * len(graph.edges)),
    ):
        twins = list(RULES[agreement](problem, graph, "free", 40))
        states, solution = followed(problem, graph, gs.AutoPDS(agreement=agreement), 40)
        costs = solution.costs
        attempts = (costs.control_rounds - start) // net.tree if agreement == "exact" else 40
        assert attempts >= 40
        assert costs.control_rounds == start + (attempts * net.tree if agreement == "exact" else 0)
        assert costs.rounds == twins[-1].rounds + final
        assert costs.gradients == twins[-1].gradients
        # With every gradient but the probe's there comes a value, and one at every average. Late, that of the last
        # average is never computed, and twice at the start of an epoch both points are one.
        saved = 1 + sum(state.iterate.k <= 1 for state in states[:-1]) if agreement == "late" else 0
        assert costs.values == costs.gradients - 1 + attempts - saved
        assert costs.floats_sent == expected_floats(graph, solution, 6, piggybacked)
        assert (costs.samples, costs.operator_products) == (0, 0)


def test_more_balance_means_fewer_gradients_and_more_rounds():
    problem, graph = hard_problem(None, logistic, 16), gs.Graph.ring(16)
    optimum = reference(problem).objective
    for agreement in ("exact", "late"):
        methods = [gs.AutoPDS(agreement=agreement, balance=balance) for balance in (0.1, 10.0, 100.0)]
        accuracy = {"tolerance": 1e-5, "disagreement": 1e-3}
        spent = [solved(problem, graph, method, optimum, **accuracy).costs for method in methods]
        assert spent[0].gradients > 1.3 * spent[1].gradients > 1.5 * spent[2].gradients
        assert spent[0].rounds < spent[1].rounds < spent[2].rounds


@pytest.mark.covering
@pytest.mark.parametrize("ratio", [64.0, 0.125])
@pytest.mark.parametrize("agreement", AGREEMENTS)
def test_a_measured_balance_is_that_of_the_clock_and_part_of_a_checkpoint(agreement, ratio, tmp_path):
    problem, graph, net = hard_problem(None, logistic, 12), GRAPHS["ring"], Net(GRAPHS["ring"])
    method = gs.AutoPDS(agreement=agreement, balance="measure")
    # Powers of 2, which add up without rounding.
    clock = gs.Clock(gradient=ratio / 1024, latency=1 / 1024)
    states, whole = followed(problem, graph, method, 20, clock=clock)
    first = next(n for n, state in enumerate(states) if state.tuning.is_measured)
    assert [state.tuning.balance for state in states] == [1.0] * first + [ratio] * (20 - first)
    assert 2 <= first <= 3
    assert whole.parameters["balance"] == ratio
    K = math.ceil(max(net.reach / 3, math.sqrt(0.35 * ratio * net.reach)))
    assert [state.tuning.K for state in states[: first + 1]] == [net.K] * first + [max(net.K, K)]
    assert (K > net.K) == (ratio > 1)
    fixed = gs.solve(problem, graph, gs.AutoPDS(agreement=agreement), stop=gs.Stop(iterations=5), clock=clock)
    spent = [whole.history[k].control_rounds - fixed.history[k].control_rounds for k in (first - 1, first)]
    assert agreement != "none" or spent == [0, net.tree]
    for iterations in (2, 3, 9, 20):
        stop = gs.Stop(iterations=iterations)
        part = gs.solve(problem, graph, method, stop=stop, clock=clock, checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(part.x, whole.x)
    assert part.parameters == whole.parameters
    assert part.costs.simulated_seconds == whole.costs.simulated_seconds
