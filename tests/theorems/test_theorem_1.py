"""Theorem 1 over many random problems: measured errors stay below the bound, and do not when L is declared
too small."""

import numpy as np
import pytest
from problems import Case, alike_case, random_case

import gradslide as gs
from gradslide.theory.reference import multiplier_at

ITERATIONS = 30


def worst_excess(case: Case, L: float, iterations: int = ITERATIONS) -> float:
    """How far the measured errors exceed the bounds at any outer iteration, relative to the bound; <= 0 where
    the theorem holds."""
    excess = [-np.inf]
    tolerance = 1e-7 * (1 + abs(case.reference.objective))
    schedule = gs.schedules.theorem_1(L=L, mu=case.problem.mu, A_norm=case.A_norm, R=case.R)
    first = schedule.row(1)

    def compare(record, x):
        row = schedule.row(record.iteration)
        if row.stage > 0:
            return True
        bound = gs.guarantees.proposition_1(first, row, V=case.V, z_star=case.z_star)
        error = record.local_objective - case.reference.objective
        excess.append((error - bound.objective - tolerance) / bound.objective)
        excess.append((record.residual - bound.residual - tolerance) / bound.residual)
        z_mean = multiplier_at(case.problem, case.graph, case.coupling, x.mean(axis=0))
        at_mean = gs.guarantees.objective_at_mean(first, row, V=case.V, z_mean=z_mean)
        excess.append((record.objective - case.reference.objective - at_mean - tolerance) / at_mean)
        return False

    method = gs.PDS(L=L, R=case.R, coupling=case.coupling)
    gs.solve(case.problem, case.graph, method, stop=gs.Stop(iterations=iterations), x0=case.x0, callback=compare)
    return max(excess)


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(8))
def test_theorem_1_over_240_problems(block):
    for seed in range(30 * block, 30 * block + 30):
        mu = (0.0, 0.0, 0.05, 1.0)[seed // 6 % 4]
        case = random_case(seed, mu)
        assert worst_excess(case, case.L) <= 0, f"seed {seed}: {case.label}"


@pytest.mark.first(3)
@pytest.mark.parametrize("seed", range(10))
def test_the_bounds_break_when_L_is_ten_times_too_small(seed):
    case = alike_case(seed)
    assert worst_excess(case, case.L) <= 0
    assert worst_excess(case, case.L / 10) > 0


def test_later_stages_keep_their_own_bound():
    """For mu > 0 a stage that starts at (x_bar, z_bar) obeys Proposition 1 with V and ||z_0|| measured there."""
    for seed in (1, 2, 6, 7):
        case = random_case(seed, mu=1.0)
        method = gs.PDS(L=case.L, R=case.R, coupling="incidence", growth=4.0)
        z_star = case.reference.multiplier(case.problem, case.graph, "incidence")
        A_norm = case.graph.laplacian_norm**0.5
        schedule = gs.schedules.theorem_1(L=case.L, mu=1.0, A_norm=A_norm, R=case.R, growth=4.0)
        length = schedule.stage_length
        first_stage = gs.solve(case.problem, case.graph, method, stop=gs.Stop(iterations=length), x0=case.x0)
        V = case.reference.V(case.problem, first_stage.x)
        s = first_stage.dual
        z_0 = float(np.sqrt(max(0.0, np.sum(s * (case.graph.laplacian @ s)))))
        both = gs.solve(case.problem, case.graph, method, stop=gs.Stop(iterations=2 * length), x0=case.x0)
        tolerance = 1e-7 * (1 + abs(case.reference.objective))
        for record in both.history[length:]:
            row = schedule.row(record.iteration)
            assert row.stage == 1
            bound = gs.guarantees.proposition_1(schedule.row(1), row, V=V, z_star=z_star, z_0=z_0)
            assert record.local_objective - case.reference.objective <= bound.objective + tolerance
            assert record.residual <= bound.residual + tolerance


def test_L_zero_needs_one_gradient_and_keeps_its_bound():
    rng = np.random.default_rng(3)
    costs = rng.normal(size=(6, 3))
    loss = gs.losses.Quadratic(np.zeros((6, 3, 3)), costs)
    graph = gs.Graph.ring(6)
    for mu in (0.0, 0.3):
        problem = gs.Problem(loss, gs.domains.L2Ball(1.0), mu)
        optimum = gs.reference.reference(problem)
        V = optimum.V(problem, problem.start())
        z_star = optimum.multiplier(problem, graph, "incidence")
        R = gs.guarantees.theory_R(V=V, z_star=z_star)
        solution = gs.solve(problem, graph, gs.PDS(R=R), stop=gs.Stop(iterations=60))
        assert solution.costs.gradients == 1
        L = solution.parameters["L"]
        # For mu > 0 any L is right; one above 0 brings the rate of strong convexity.
        assert (L > 0) == (mu > 0)
        schedule = gs.schedules.theorem_1(L=L, mu=mu, A_norm=graph.laplacian_norm**0.5, R=R)
        assert solution.costs.rounds == sum(schedule.row(n).T for n in range(1, 61))
        for record in solution.history[: int(min(60, schedule.stage_length))]:
            bound = gs.guarantees.proposition_1(schedule.row(1), schedule.row(record.iteration), V=V, z_star=z_star)
            assert record.local_objective - optimum.objective <= bound.objective + 1e-7
            assert record.residual <= bound.residual + 1e-7
