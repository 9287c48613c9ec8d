"""Theorem 3 over many random problems: gap, objective and residual stay below the bounds, and do not when L or ||A|| is
declared too small."""

import numpy as np
import pytest
from saddle_problems import SIDES, ConstrainedCase, SaddleCase, constrained_case, l2_ball, quadratic, saddle_case

import gradslide as gs

ITERATIONS = 25


class Averages(gs.PDS):
    """Measures the gap of the averages, which is what the theorem speaks of."""

    def dual_evidence(self, state):
        return super().dual_evidence(state)[:1]


def mu_of(seed):
    return (0.0, 0.0, 0.1, 1.0)[seed // 8 % 4]


def first_stage(case, method):
    """The records of a run's first stage."""
    solution = gs.solve(case.problem, method=method, stop=gs.Stop(iterations=ITERATIONS))
    given = {name: value for name, value in solution.parameters.items() if name != "growth"}
    schedule = gs.schedules.theorem_1(**given)
    return [record for record in solution.history if schedule.row(record.iteration).stage == 0]


def worst_gap(case: SaddleCase, *, L: float, A_norm: float) -> float:
    """The largest measured gap, as a share of its bound; at most 1 where the theorem holds."""
    known = {"L": L, "R": case.R, "A_norm": A_norm, "mu": case.problem.mu}
    tolerance = 1e-9
    return max(
        (record.gap - tolerance) / gs.guarantees.saddle(record.iteration, V=case.V, U=case.U, **known)
        for record in first_stage(case, Averages(L=L, R=case.R, norm=A_norm))
    )


def worst_errors(case: ConstrainedCase, *, L: float, A_norm: float) -> float:
    """The largest objective error or residual, as a share of its bound."""
    known = {"L": L, "R": case.R, "A_norm": A_norm, "mu": case.problem.mu}
    tolerance = 1e-6 * (1 + abs(case.optimum))
    shares = []
    for record in first_stage(case, gs.PDS(L=L, R=case.R, norm=A_norm)):
        bound = gs.guarantees.pds(record.iteration, V=case.V, z_star=case.z_star, **known)
        # It may be negative: the average is not quite feasible.
        shares.append((record.objective - case.optimum - tolerance) / bound.objective)
        shares.append((record.residual - tolerance) / bound.residual)
    return max(shares)


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(8))
def test_the_gap_keeps_its_bound_over_160_saddle_point_problems(block):
    for seed in range(20 * block, 20 * block + 20):
        case = saddle_case(seed, mu_of(seed))
        share = worst_gap(case, L=case.L, A_norm=case.problem.operator_norm())
        assert share <= 1, f"seed {seed}: {case.label}"


def test_those_problems_are_of_every_kind():
    labels = [saddle_case(seed, mu_of(seed)).label for seed in range(160)]
    for make in SIDES:
        for side in ("X", "Z"):
            assert any(f"{side}: {make.__name__}," in label for label in labels)
    for name in ("Linear(", "Quadratic(", "h: zero", "h: linear", "h: quadratic", "m=1", "m=3", "mu=0.0", "mu=1.0"):
        assert any(name in label for label in labels)


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(6))
def test_objective_and_residual_keep_their_bounds_over_120_constrained_problems(block):
    for seed in range(20 * block, 20 * block + 20):
        case = constrained_case(seed, mu_of(seed))
        share = worst_errors(case, L=case.L, A_norm=case.problem.operator_norm())
        assert share <= 1, f"seed {seed}: {case.label}"


@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_entropy_on_both_sides_keeps_the_bound(mu):
    """A matrix game with a quadratic: ||A|| is the largest entry, L the largest entry of Q."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(5, 5))
        problem = gs.Saddle(
            gs.losses.Quadratic(root @ root.T, rng.normal(size=5)),
            rng.normal(size=(7, 5)),
            domain=gs.domains.EntropySimplex(),
            dual_domain=gs.domains.EntropySimplex(),
            mu=mu,
        )
        case = SaddleCase(problem, f"seed {seed}", lambda: 0.0)
        assert (case.V, case.U) == (pytest.approx(np.log(5)), pytest.approx(np.log(7)))
        assert worst_gap(case, L=case.L, A_norm=problem.operator_norm()) <= 1, case.label


def test_the_paper_s_bound_is_not_smaller():
    """min{2/N^2, lambda^(N - Delta)} [L/(2 R^2) U + 4 L V], of which ours has the exact sum of beta."""
    L, R, V, U, A_norm = 3.0, 0.7, 2.0, 5.0, 4.0
    for N in (1, 2, 10, 100):
        ours = gs.guarantees.saddle(N, L=L, R=R, V=V, U=U, A_norm=A_norm)
        theirs = 2 / N**2 * (L / (2 * R**2) * U + 4 * L * V)
        assert theirs / 2 <= ours <= theirs * (1 + 1e-12)


def test_the_R_of_theorem_3_makes_both_terms_of_the_bound_equal():
    V, U = 2.0, 5.0
    R = gs.guarantees.saddle_R(V=V, U=U)
    one_each = [gs.guarantees.saddle(7, L=3.0, R=R, V=v, U=u, A_norm=4.0) for v, u in ((V, 0.0), (0.0, U))]
    assert one_each[0] == pytest.approx(one_each[1])


def test_the_gap_breaks_its_bound_when_L_or_the_norm_is_ten_times_too_small():
    broken = {"L": 0, "norm": 0}
    for seed in range(8):
        rng = np.random.default_rng(seed)
        smooth = quadratic(rng, 1, 5)
        # A large X, so that a curvature that was not foreseen is felt; a large Z in the other case.
        for name, radii, share in (("L", (30.0, 0.1), 1.0), ("norm", (1.0, 3.0), 0.2)):
            loss = gs.losses.Quadratic(share * smooth.loss._Q, smooth.loss._c)
            problem = gs.Saddle(
                loss,
                rng.normal(size=(4, 5)),
                domain=gs.domains.L2Ball(radii[0]),
                dual_domain=gs.domains.L2Ball(radii[1]),
            )
            case = SaddleCase(problem, name, lambda: 0.0)
            L, A_norm = case.L, problem.operator_norm()
            assert worst_gap(case, L=L, A_norm=A_norm) <= 1
            wrong = {"L": L / 10, "A_norm": A_norm} if name == "L" else {"L": L, "A_norm": A_norm / 10}
            broken[name] += worst_gap(case, **wrong) > 1
    assert min(broken.values()) >= 4, broken


@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(20), marks=pytest.mark.slow)], ids=str)
def test_the_errors_break_their_bounds_when_L_or_the_norm_is_ten_times_too_small(seeds):
    broken = {"L": 0, "norm": 0}
    for seed in seeds:
        case = constrained_case(seed, make_loss=quadratic, make_x=l2_ball, sense="==", m=1)
        L, A_norm = case.L, case.problem.operator_norm()
        assert worst_errors(case, L=L, A_norm=A_norm) <= 1
        broken["L"] += worst_errors(case, L=L / 10, A_norm=A_norm) > 1
        broken["norm"] += worst_errors(case, L=L, A_norm=A_norm / 10) > 1
    assert min(broken.values()) >= 1, broken
