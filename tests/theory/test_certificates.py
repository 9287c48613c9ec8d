"""Certificates on networks: bounds that hold at every record, and where there is none."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from certificate_cases import FREE, METHOD, RING, Case, make_case, small_problem

import gradslide as gs
from gradslide.theory import certificates as proof
from gradslide.theory.certificates import CertificateEvaluator
from gradslide.theory.reference import reference

# ---- bounds


def check_bounds(case: Case, method, iterations: int) -> list:
    """Every record of a run; f(x*) of the reference is an upper bound of the optimum, and a close one."""
    assert case.problem.has_lower_bound, case.label
    single = case.problem.dtype == np.float32
    # What the reference may be off by, and what single precision makes of a value.
    above = (1e-5 if single else 1e-9) * (1 + abs(case.optimum))
    history = gs.solve(case.problem, case.graph, method, stop=gs.Stop(iterations=iterations)).history
    assert len(history) == iterations
    for record in history:
        assert record.lower <= case.optimum, (case.label, record.iteration)
        assert record.lower + record.gap >= case.optimum - above, (case.label, record.iteration)
    assert history[-1].gap < history[0].gap, case.label
    return history


# Bounds that are made wrong on purpose are noticed.
contradictory = pytest.mark.filterwarnings("ignore:the lower bound:RuntimeWarning")


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(9))
def test_no_lower_bound_exceeds_the_optimum_over_207_problems(block):
    for seed in range(23 * block, 23 * (block + 1)):
        check_bounds(make_case(seed), gs.PDS(), 30)


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(5))
def test_no_lower_bound_of_condat_vu_exceeds_the_optimum(block):
    for seed in range(300 + 12 * block, 312 + 12 * block, 2):
        check_bounds(make_case(seed), gs.CondatVu(), 40)


@pytest.mark.parametrize("block", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_no_lower_bound_in_single_precision_exceeds_the_optimum(block):
    for seed in range(400 + 18 * block, 418 + 18 * block):
        check_bounds(make_case(seed, np.float32), gs.PDS() if seed % 2 else gs.CondatVu(), 60)


@contradictory
def test_rounding_is_accounted_for_because_it_matters(monkeypatch):
    """Without its share single precision proves more than there is."""

    def without_room(problem, evidence, pull, x, mean, m):
        least, _ = proof._minimum(problem.domain, evidence.y + pull, problem.mu, x)
        return least - evidence.conjugate

    monkeypatch.setattr(proof, "lower_part", without_room)
    wrong = 0
    for seed in range(400, 412):
        case = make_case(seed, np.float32)
        history = gs.solve(case.problem, case.graph, gs.PDS(), stop=gs.Stop(iterations=60)).history
        wrong += any(record.lower > case.optimum for record in history)
    assert wrong > 0


def test_bounds_close_in_on_the_optimum():
    for seed in (1, 9, 61):
        case = make_case(seed)
        solution = gs.solve(case.problem, case.graph, gs.CondatVu(), stop=gs.Stop(iterations=1000), record_every=4)
        gaps = [record.gap for record in solution.history]
        assert gaps[-1] < 0.1 * gaps[0]
        assert gaps[-1] < 1e-2 * (1 + abs(case.optimum))
        assert solution.certificate.lower <= case.optimum <= solution.certificate.upper + 1e-9
        assert solution.certificate_reason == ""
        assert solution.kkt is None


@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu()], ids=["PDS", "CondatVu"])
def test_a_lower_bound_can_be_as_good_as_double_precision(method):
    """Agents with one loss in common: the bound is tight as soon as x is."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    loss = gs.losses.Quadratic(np.tile(root @ root.T, (4, 1, 1)), np.tile(rng.normal(size=3), (4, 1)))
    problem = gs.Problem(loss, mu=1.0)
    found = reference(problem, tolerance=1e-13)
    lower = gs.solve(problem, gs.Graph.ring(4), method, stop=gs.Stop(iterations=400)).certificate.lower
    assert 0 <= found.objective - lower < 1e-11 * (1 + abs(found.objective))


@pytest.mark.filterwarnings("ignore:the invariant of PDS is broken")
@contradictory
@pytest.mark.parametrize("seeds", [range(0, 12, 2), pytest.param(range(0, 40, 2), marks=pytest.mark.slow)], ids=str)
def test_lost_messages_do_not_break_the_bound_but_would_if_their_sum_were_not_taken_off(seeds, monkeypatch):
    """What does not add up to 0 is no multiplier. A sum that is added in place of being taken off is no better."""
    kept = CertificateEvaluator.evaluate
    broken = {"as it is": 0, "left in": 0, "added": 0}
    for seed in seeds:
        case = make_case(seed)
        network = gs.network.Lossy(case.graph, 0.3, direction="each", seed=seed)
        for name, sign in (("as it is", None), ("left in", 0.0), ("added", 1.0)):
            monkeypatch.setattr(CertificateEvaluator, "evaluate", kept if sign is None else with_sum(kept, sign))
            history = gs.solve(case.problem, network, gs.PDS(), stop=gs.Stop(iterations=40)).history
            broken[name] += any(record.lower > case.optimum for record in history)
    assert broken["as it is"] == 0
    assert broken["left in"] > 0
    assert broken["added"] > 0


def with_sum(evaluate, sign: float):
    """`evaluate`, whose evidence is such that the sum of the multipliers is left in (0), or added (1)."""

    def changed(self, x, evidence, **asked):
        before = [each.dual.w.mean(axis=0) for each in evidence]
        original = proof.lower_part
        # lower_part gets w - mean; give it w + sign * mean in place of that.
        pulls = iter([(1 + sign) * mean for mean in before])
        proof.lower_part = lambda problem, each, pull, *rest: original(problem, each, pull + next(pulls), *rest)
        try:
            return evaluate(self, x, evidence, **asked)
        finally:
            proof.lower_part = original

    return changed


@contradictory
def test_a_wrong_conjugate_proves_too_much(monkeypatch):
    original = proof.lower_part
    wrong = []
    for factor in (0.9, -1.0):
        monkeypatch.setattr(
            proof,
            "lower_part",
            lambda problem, e, *rest, f=factor: original(problem, e._replace(conjugate=f * e.conjugate), *rest),
        )
        cases = [make_case(seed) for seed in range(12)]
        runs = [gs.solve(case.problem, case.graph, gs.PDS(), stop=gs.Stop(iterations=40)) for case in cases]
        wrong.append(sum(run.certificate.lower > case.optimum for run, case in zip(runs, cases, strict=True)))
    assert min(wrong) > 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("domain", ["affine", "halfspace", "simplex"])
def test_a_small_mu_and_a_steep_slope_cost_no_digits(domain, dtype):
    """The first prox step goes out to |c|/mu, where rounding is large: the minimum over X must not show it."""
    d, rng = 5, np.random.default_rng(0)
    normal = rng.normal(size=d)
    made = {
        "affine": gs.domains.Affine(normal[None], np.array([1.0])),
        "halfspace": gs.domains.Halfspace(normal, -1.0),
        "simplex": gs.domains.Simplex(),
    }[domain].bind(1, d, dtype)
    mu = 2.0**-20
    rows = {"affine": lambda: made.A[0, 0], "halfspace": lambda: made.a[0], "simplex": lambda: np.ones(d)}
    along = np.float64(rows[domain]())
    flat = rng.normal(size=d)
    flat -= along * (flat @ along) / (along @ along)
    c = 1000 * along + mu * flat
    if domain == "halfspace":
        c = -c
    offset = {"affine": lambda: made.b[0, 0], "halfspace": lambda: made.b[0, 0], "simplex": lambda: 1.0}[domain]()
    x = -flat if domain != "halfspace" else flat
    x = x + along * (float(offset) - x @ along) / (along @ along)
    if domain == "simplex":
        x = gs.domains.Simplex().bind(1, d, np.float64).project(x[None])[0]
    exact = mu * x @ x / 2 + c @ x
    least, terms = proof._minimum(made, c[None], mu, np.zeros((1, d)))
    room = np.finfo(dtype).eps * 16 * terms[0]
    assert abs(least[0] - exact) <= room
    plain = made.linear_minimum(c[None].astype(dtype), mu)[0]
    if domain == "affine":
        assert abs(plain - exact) > room


# ---- where there is a bound, and where there is none


@pytest.mark.parametrize(
    ("domain", "mu", "expected"),
    [
        (gs.domains.L2Ball(1.0), 0.0, True),
        (gs.domains.Box(-1, 1), 0.0, True),
        (gs.domains.Box(0, np.inf), 0.0, False),
        (gs.domains.NonNegative(), 0.0, False),
        (gs.domains.NonNegative(), 0.1, True),
        (gs.domains.Free(), 0.0, False),
        (gs.domains.Free(), 0.1, True),
        (gs.domains.Free(penalty=gs.ElasticNet(0.1, 0.1)), 0.0, True),
        (gs.domains.Free(penalty=gs.ElasticNet(0.1, 0.0)), 0.0, False),
        (gs.domains.Free(penalty=gs.L1(0.1)), 0.0, False),
        (gs.domains.Affine(np.ones((1, 3)), np.ones(1)), 0.0, False),
        (gs.domains.Halfspace(np.ones(3), 1.0), 0.0, False),
        (gs.domains.EntropySimplex(), 0.0, True),
        (gs.domains.PerAgent([gs.domains.L2Ball(1.0)] * 5 + [gs.domains.Free()]), 0.0, False),
        (gs.domains.PerAgent([gs.domains.L2Ball(1.0)] * 5 + [gs.domains.Box(-1, 1)]), 0.0, True),
    ],
)
def test_which_problems_have_a_lower_bound(domain, mu, expected):
    assert small_problem(mu, domain).has_lower_bound is expected


def test_one_agent_in_one_dimension_is_no_exception():
    """A slope that points the right way by chance is not enough."""
    loss = gs.losses.Quadratic(np.array([[1.0]]), np.array([1.0]))
    assert not gs.Problem(loss, gs.domains.NonNegative()).has_lower_bound
    assert not gs.Problem(loss, gs.domains.Box(-np.inf, 0.0)).has_lower_bound


def test_values_are_only_taken_where_they_serve_a_bound():
    for problem, values in ((small_problem(), 12), (FREE, 0)):
        assert gs.solve(problem, RING, METHOD, stop=gs.Stop(iterations=12)).costs.values == values
    records = gs.solve(FREE, RING, METHOD, stop=gs.Stop(iterations=12)).history
    assert {(record.lower, record.gap) for record in records} == {(None, None)}


def test_sampled_gradients_prove_nothing():
    solution = gs.solve(small_problem(), RING, gs.SPDS(N=10, R=1.0, c=1.0))
    assert solution.certificate is None
    assert solution.kkt is None
    assert {record.lower for record in solution.history} == {None}
    assert "SPDS" in solution.certificate_reason


def test_a_sampling_method_of_ones_own_proves_nothing_either():
    """Not even where it has numbers in its evidence."""

    @dataclass(frozen=True)
    class Sampled(gs.PDS):
        oracle: object = gs.oracles.WithReplacement()

    solution = gs.solve(small_problem(), RING, Sampled(L=8.0, R=1.0), stop=gs.Stop(iterations=5))
    assert {record.lower for record in solution.history} == {None}
    assert solution.certificate is None


def test_sets_of_their_own_have_a_lower_bound_only():
    """The intersection of boxes is a box, whose optimum a reference finds."""
    rng = np.random.default_rng(1)
    lo, hi = -0.1 - 0.3 * rng.random((6, 3)), 0.1 + 0.3 * rng.random((6, 3))
    own, common = gs.domains.Box(lo, hi), gs.domains.Box(lo.max(axis=0), hi.min(axis=0))
    mixed = gs.domains.PerAgent([*(gs.domains.Box(lo[i], hi[i]) for i in range(5)), gs.domains.L2Ball(9.0)])
    optimum = reference(small_problem(domain=common)).objective
    for domain, close in ((own, 0.02), (mixed, math.inf)):
        solution = gs.solve(small_problem(domain=domain), RING, stop=gs.Stop(iterations=300), record_every=20)
        assert all(record.lower <= optimum for record in solution.history)
        assert {record.gap for record in solution.history} == {None}
        proof = solution.certificate
        assert (proof.upper, proof.gap) == (math.inf, math.inf)
        assert optimum * (1 - close) < proof.lower <= optimum
        assert proof.residual == solution.history[-1].disagreement
        assert "set" in solution.certificate_reason
        assert solution.kkt.stationarity > 0


def test_an_answer_outside_of_the_set_is_projected_before_it_is_an_upper_bound():
    class Outside(gs.PDS):
        def output(self, state):
            return {"average": 9 * super().output(state)["average"]}

    problem = small_problem()
    optimum = reference(problem).objective
    solution = gs.solve(problem, RING, Outside(L=8.0, R=1.0), stop=gs.Stop(iterations=100))
    last = solution.history[-1]
    assert np.linalg.norm(solution.mean) > 1
    point = problem.domain.project(solution.mean[None])[0]
    assert solution.certificate.upper == pytest.approx(problem.objective(np.tile(point, (6, 1))).sum(), rel=1e-12)
    assert last.gap == pytest.approx(solution.certificate.gap, rel=1e-9)
    assert last.objective != pytest.approx(solution.certificate.upper, rel=1e-3)
    assert solution.certificate.upper >= optimum


# ---- rounding


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(4))
def test_no_upper_bound_in_single_precision_is_rounded_to_below_the_optimum(block):
    for seed in range(500 + 15 * block, 515 + 15 * block):
        case = make_case(seed, np.float32)
        solution = gs.solve(case.problem, case.graph, gs.PDS(), stop=gs.Stop(iterations=60), record_every=60)
        # The reference has an error of its own, far below single precision.
        least = case.optimum - 1e-9 * abs(case.optimum)
        assert solution.certificate.upper >= least, case.label


def test_values_of_user_code_in_single_precision_get_room_for_rounding():
    features = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)

    def value(x):
        return np.stack([0.5 * np.sum((features @ row - 1) ** 2) for row in x])

    def gradient(x):
        return np.stack([features.T @ (features @ row - 1) for row in x])

    loss = gs.losses.Custom(value=value, gradient=gradient, smoothness=100.0, agents=2, dimension=3, dtype=np.float32)
    twin = gs.losses.LeastSquares(np.tile(features.astype(float), (2, 1)), np.ones(80), agents=2)
    solution = gs.solve(gs.Problem(loss, mu=1.0), gs.Graph.path(2))
    best = reference(gs.Problem(twin, mu=1.0), tolerance=1e-12).objective
    assert best < solution.certificate.upper < best * (1 + 2e-5) + solution.certificate.gap


def far_problem(seed, m=1):
    """Linear, from a start a million times as far away as the optimum; and the optimum."""
    rng = np.random.default_rng(seed)
    c = (3e-5 * rng.normal(size=(m, 9))).astype(np.float32)
    x0 = (5e3 * rng.normal(size=9)).astype(np.float32)
    mu = 2.0**-12
    return gs.Problem(gs.losses.Linear(c), mu=mu), x0, -float(np.sum(c.astype(float).sum(axis=0) ** 2)) / (2 * m * mu)


@contradictory
@pytest.mark.parametrize("method", [gs.AutoPDS(), gs.PDS(), gs.CondatVu()], ids=["AutoPDS", "PDS", "CondatVu"])
def test_gradients_of_a_far_start_leave_errors_that_the_bound_knows(method):
    for seed in range(8):
        problem, x0, best = far_problem(seed)
        solution = gs.solve(problem, gs.Graph.from_edges(1, []), method, x0=x0, stop=gs.Stop(iterations=40))
        assert max(record.lower for record in solution.history) <= best


def test_a_resumed_run_remembers_how_far_away_gradients_were(tmp_path):
    problem, x0, _ = far_problem(0, m=3)
    ring, path = gs.Graph.ring(3), tmp_path / "run.npz"
    whole = gs.solve(problem, ring, gs.CondatVu(), x0=x0, stop=gs.Stop(iterations=30))
    gs.solve(problem, ring, gs.CondatVu(), x0=x0, stop=gs.Stop(iterations=20), checkpoint=path)
    rest = gs.solve(problem, ring, gs.CondatVu(), x0=x0, stop=gs.Stop(iterations=30), checkpoint=path)
    assert rest.certificate == whole.certificate
    assert [record.lower for record in rest.history] == [record.lower for record in whole.history]
