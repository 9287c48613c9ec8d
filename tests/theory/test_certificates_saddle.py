"""Certificates: lower <= optimum <= upper at every record, and what becomes of them."""

import json

import numpy as np
import pytest
from saddle_problems import box, constrained_case, linear, quadratic, saddle_case

import gradslide as gs

# The other solver's own accuracy.
ACCURACY = 1e-8


def mu_of(seed):
    return (0.0, 0.0, 0.1, 1.0)[seed // 8 % 4]


@pytest.mark.first(2)
@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu()], ids=["PDS", "CondatVu"])
@pytest.mark.parametrize("block", range(8))
def test_the_optimum_lies_between_the_bounds_over_200_saddle_point_problems(block, method):
    for seed in range(25 * block, 25 * block + 25):
        case = saddle_case(seed, mu_of(seed))
        optimum = case.optimum()
        tolerance = ACCURACY * (1 + abs(optimum))
        solution = gs.solve(case.problem, method=method, stop=gs.Stop(iterations=40), record_every=4)
        for record in solution.history:
            assert record.objective - record.gap <= optimum + tolerance, f"seed {seed}: {case.label}"
            assert record.objective >= optimum - tolerance, f"seed {seed}: {case.label}"
        certificate = solution.certificate
        assert certificate.gap == pytest.approx(solution.history[-1].gap)
        assert certificate.upper == solution.history[-1].objective


@pytest.mark.first(1)
@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu()], ids=["PDS", "CondatVu"])
@pytest.mark.parametrize("seeds", [range(15), pytest.param(range(15, 60), marks=pytest.mark.slow)], ids=str)
def test_the_lower_bound_holds_over_60_constrained_problems(method, seeds):
    """No upper bound there: a point that is not quite feasible may lie below the optimum."""
    below = 0
    for seed in seeds:
        case = constrained_case(seed, mu_of(seed))
        if not case.problem.has_gap:
            continue
        tolerance = ACCURACY * (1 + abs(case.optimum))
        solution = gs.solve(case.problem, method=method, stop=gs.Stop(iterations=40), record_every=4)
        for record in solution.history:
            assert record.objective - record.gap <= case.optimum + tolerance, f"seed {seed}: {case.label}"
            slack = case.z_star * record.residual
            assert record.objective >= case.optimum - slack - tolerance, f"seed {seed}: {case.label}"
            below += record.objective < case.optimum - 1e-6
        assert solution.certificate.residual == pytest.approx(solution.history[-1].residual)
    assert below > 0


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 32), marks=pytest.mark.slow)], ids=str)
def test_the_gap_closes_on_saddle_points_of_every_kind(seeds):
    """Bounds that are true but loose would not."""
    for seed in seeds:
        case = saddle_case(seed, mu_of(seed))
        solution = gs.solve(case.problem, stop=gs.Stop(operator_products=4000), record_every=1000)
        assert 0 <= solution.certificate.gap + 1e-12 <= 2e-2 * (1 + abs(solution.certificate.upper)), case.label


def test_a_lower_bound_of_something_else_is_noticed():
    """With the multipliers' sign turned the bound is none: weak duality is what the tests above see."""
    case = saddle_case(1)
    optimum = case.optimum()
    problem = case.problem
    term = gs.terms.Linear(problem.duals.term.b[0])
    turned = gs.Saddle(problem.loss, -problem.A.matrix, term, problem.domain, problem.duals.domain)
    values = [gs.solve(p, stop=gs.Stop(iterations=200)).certificate for p in (problem, turned)]
    room = ACCURACY * (1 + abs(optimum))
    assert values[0].lower - room <= optimum <= values[0].upper + room
    assert not values[1].lower - room <= optimum <= values[1].upper + room


def test_later_stages_have_their_own_lower_bound():
    for seed in range(8):
        case = saddle_case(seed, 2.0)
        optimum = case.optimum()
        solution = gs.solve(case.problem, method=gs.PDS(growth=1.5), stop=gs.Stop(iterations=60))
        known = {**solution.parameters}
        schedule = gs.schedules.theorem_1(**known)
        if known["L"] > 0:
            assert schedule.row(60).stage >= 1
        for record in solution.history:
            assert record.objective - record.gap <= optimum + ACCURACY * (1 + abs(optimum)), case.label


def test_there_is_no_gap_where_X_is_unbounded_and_mu_is_0():
    loss = gs.losses.Quadratic(np.eye(3), np.ones(3))
    for domain in (gs.domains.Free(), gs.domains.NonNegative(), gs.domains.Free(penalty=gs.L1(0.1))):
        solution = gs.solve(gs.LinearlyConstrained(loss, np.ones((1, 3)), 1.0, domain), stop=gs.Stop(iterations=5))
        assert solution.certificate is None
        assert "unbounded" in solution.certificate_reason
        assert all(record.gap is None for record in solution.history)
        with pytest.raises(gs.InputError, match="lower bound"):
            gs.solve(gs.LinearlyConstrained(loss, np.ones((1, 3)), 1.0, domain), stop=gs.Stop(gap=1e-3))


def test_there_is_one_where_mu_or_an_elastic_net_bounds_the_objective_below():
    loss = gs.losses.Quadratic(np.eye(3), np.ones(3))
    for domain, mu in ((gs.domains.Free(), 0.1), (gs.domains.NonNegative(penalty=gs.ElasticNet(0.1, 0.2)), 0.0)):
        solution = gs.solve(gs.LinearlyConstrained(loss, np.ones((1, 3)), 1.0, domain, mu))
        assert solution.status is gs.Status.CONVERGED
        assert abs(solution.certificate.gap) <= 1e-4 * (1 + abs(solution.certificate.upper))


def test_there_is_none_for_a_loss_without_values_or_a_term_whose_value_is_not_known():
    no_value = gs.losses.Custom(gradient=lambda x: x, smoothness=1.0, agents=1, dimension=3)
    solution = gs.solve(
        gs.LinearlyConstrained(no_value, np.ones((1, 3)), 1.0, gs.domains.Box(-1, 1)), stop=gs.Stop(iterations=3)
    )
    assert (solution.certificate, solution.history[-1].gap) == (None, None)
    term = gs.terms.Prox(lambda v, step: v / (1 + step))
    loss = gs.losses.Quadratic(np.eye(3), np.ones(3))
    solution = gs.solve(gs.Saddle(loss, np.ones((1, 3)), term, gs.domains.Box(-1, 1)), stop=gs.Stop(iterations=3))
    assert solution.certificate is None
    assert "h" in solution.certificate_reason


def test_SPDS_gives_no_certificate():
    case = constrained_case(2, make_loss=quadratic, make_x=box, sense="==", m=1)
    solution = gs.solve(case.problem, method=gs.SPDS(N=5, R=1.0, c=0.0, oracle=gs.oracles.Noise(0.0)))
    assert solution.certificate is None
    assert solution.certificate_reason


def test_a_gap_as_the_target_ends_the_run_and_is_true():
    for seed in range(10):
        case = saddle_case(seed)
        optimum = case.optimum()
        for target in (1e-1, gs.Relative(1e-2)):
            solution = gs.solve(case.problem, stop=gs.Stop(gap=target, operator_products=20_000))
            assert solution.status is gs.Status.CONVERGED
            wanted = target if isinstance(target, float) else 1e-2 * abs(solution.certificate.upper)
            assert 0 <= solution.certificate.gap <= wanted
            assert solution.history[-1].objective - optimum <= wanted + 1e-9
            assert all(record.gap > wanted for record in solution.history[:-1])


def test_certificates_are_saved_and_loaded(tmp_path):
    case = constrained_case(2, make_loss=linear, make_x=box, sense="<=", m=1)
    solution = gs.solve(case.problem, stop=gs.Stop(iterations=20))
    loaded = gs.load(solution.save(tmp_path / "solution.npz"))
    assert loaded.certificate == solution.certificate
    assert loaded.certificate.gap == solution.certificate.gap
    assert loaded.history[-1] == solution.history[-1]
    np.testing.assert_array_equal(loaded.dual, solution.dual)
    without = gs.solve(
        gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(2), np.ones(2)), np.eye(2), 0.0), stop=gs.Stop(iterations=2)
    )
    loaded = gs.load(without.save(tmp_path / "without.npz"))
    assert (loaded.certificate, loaded.certificate_reason) == (None, without.certificate_reason)


def test_histories_have_columns_for_products_and_gap():
    solution = gs.solve(saddle_case(0).problem, stop=gs.Stop(iterations=6))
    columns = solution.history.to_dict()
    assert len(columns["gap"]) == len(columns["operator_products"]) == 6
    assert columns["operator_products"] == sorted(columns["operator_products"])
    assert columns["operator_products"][-1] == solution.costs.operator_products
    assert columns["gap"][-1] == solution.certificate.gap
    assert gs.History.from_dict(json.loads(json.dumps(columns)))[-1] == solution.history[-1]
