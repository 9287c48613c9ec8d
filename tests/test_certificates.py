"""Certificates on networks: bounds that hold at every record, decisions that cost what they should, KKT residuals where
there is no certificate."""

import math
import signal
import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest
from problems import GRAPHS

import gradslide as gs
from gradslide import proof
from gradslide.certificate import KKT, Evidence
from gradslide.checks import Checks, has_grown
from gradslide.coupling import Dual
from gradslide.methods.sliding import State
from gradslide.network.local import reduced
from gradslide.proof import Examiner
from gradslide.reference import reference

RING = gs.Graph.ring(6)
ALL_DUE = [k for k in range(5, 500) if has_grown(k, 0.5)]

# Numbers that float32 holds exactly: a problem and its twin in double precision are one and the same.
LOSSES = ("least squares", "huber", "logistic", "hinge", "quadratic", "softmax")
DOMAINS = {
    "box": lambda d: gs.domains.Box(-0.25, 0.25),
    "l2 ball": lambda d: gs.domains.L2Ball(0.5),
    "ball elsewhere": lambda d: gs.domains.L2Ball(0.5, origin=2.0),
    "l1 ball": lambda d: gs.domains.L1Ball(0.5),
    "simplex": lambda d: gs.domains.Simplex(),
    "entropy": lambda d: gs.domains.EntropySimplex(),
    "elastic net": lambda d: gs.domains.Free(penalty=gs.ElasticNet(0.25, 0.5)),
    "net in a ball": lambda d: gs.domains.L2Ball(0.5, penalty=gs.ElasticNet(0.25, 0.125)),
    "l1 in a box": lambda d: gs.domains.Box(-0.5, 0.25, penalty=gs.L1(0.25)),
    "free": lambda d: gs.domains.Free(),
    "nonnegative": lambda d: gs.domains.NonNegative(),
    "halfspace": lambda d: gs.domains.Halfspace(np.eye(d)[0], -0.25),
    "affine": lambda d: gs.domains.Affine(np.eye(d)[:1], np.array([0.75])),
    "centred": lambda d: gs.domains.Free(center=0.5),
    "l1 penalty": lambda d: gs.domains.Free(penalty=gs.L1(0.25)),
}
UNBOUNDED = list(DOMAINS)[9:]


def make_loss(kind: str, rng: np.random.Generator, m: int, dtype=np.float64) -> gs.losses.Loss:
    n, d = 6 * m, 3
    size = rng.choice([0.5, 1.0, 4.0])
    features = (size * rng.normal(size=(n, d))).astype(np.float32).astype(dtype)
    targets = (2 * rng.normal(size=n)).astype(np.float32).astype(dtype)
    labels = rng.choice([-1, 1], size=n)
    if kind == "least squares":
        return gs.losses.LeastSquares(features, targets, agents=m)
    if kind == "huber":
        return gs.losses.Huber(features, 4 * targets, delta=0.25, agents=m)
    if kind == "logistic":
        return gs.losses.Logistic(features, labels, agents=m)
    if kind == "hinge":
        return gs.losses.SmoothedHinge(features, labels, gamma=0.125, agents=m)
    if kind == "softmax":
        return gs.losses.Softmax(features[:, :2], rng.integers(3, size=n), classes=3, agents=m)
    roots = np.round(8 * rng.normal(size=(m, d, d))) / 8
    slopes = rng.normal(size=(m, d)).astype(np.float32)
    return gs.losses.Quadratic((roots @ roots.swapaxes(1, 2)).astype(dtype), slopes.astype(dtype))


@dataclass(frozen=True)
class Case:
    problem: gs.Problem
    graph: gs.Graph
    optimum: float
    label: str


def make_case(seed: int, dtype=np.float64) -> Case:
    """Losses, domains and graphs in turn, so that all are met; mu > 0 where X is unbounded, and now and then."""
    kind = LOSSES[seed % len(LOSSES)]
    label = list(DOMAINS)[(seed // len(LOSSES) + seed) % len(DOMAINS)]
    graph = GRAPHS[seed % 7 % len(GRAPHS)](np.random.default_rng(seed))
    mu = (0.25, 2.0**-6, 2.0)[seed % 3] if label in UNBOUNDED or seed % 4 == 0 else 0.0
    twin, problem = (
        gs.Problem(loss, DOMAINS[label](loss.d), mu)
        for loss in (make_loss(kind, np.random.default_rng(seed), graph.m, each) for each in (np.float64, dtype))
    )
    found = reference(twin, tolerance=1e-10)
    name = f"{kind}, {label}, mu={mu}, {graph!r}, {np.dtype(dtype)}"
    return Case(problem, graph, found.objective, name)


def small_problem(mu: float = 0.0, domain: gs.domains.Domain | None = None, m: int = 6) -> gs.Problem:
    domain = gs.domains.L2Ball(0.5) if domain is None else domain
    return gs.Problem(make_loss("logistic", np.random.default_rng(5), m), domain, mu)


FREE = small_problem(domain=gs.domains.Free(), mu=0.0)
METHOD = gs.PDS(L=8.0, R=1.0, norm=2.0)


def spent(costs: gs.Costs) -> dict:
    return {name: count for name, count in costs.to_dict().items() if name != "seconds"}


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


@pytest.mark.parametrize("block", range(9))
def test_no_lower_bound_exceeds_the_optimum_over_207_problems(block):
    for seed in range(23 * block, 23 * (block + 1)):
        check_bounds(make_case(seed), gs.PDS(), 30)


@pytest.mark.parametrize("block", range(2))
def test_no_lower_bound_of_condat_vu_exceeds_the_optimum(block):
    for seed in range(300 + 30 * block, 330 + 30 * block, 2):
        check_bounds(make_case(seed), gs.CondatVu(), 40)


@pytest.mark.parametrize("block", range(2))
def test_no_lower_bound_in_single_precision_exceeds_the_optimum(block):
    for seed in range(400 + 18 * block, 418 + 18 * block):
        check_bounds(make_case(seed, np.float32), gs.PDS() if seed % 2 else gs.CondatVu(), 60)


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
def test_lost_messages_do_not_break_the_bound_but_would_if_their_sum_were_not_taken_off(monkeypatch):
    """What does not add up to 0 is no multiplier. A sum that is added in place of being taken off is no better."""
    kept = Examiner.examine
    broken = {"as it is": 0, "left in": 0, "added": 0}
    for seed in range(0, 40, 2):
        case = make_case(seed)
        network = gs.network.Lossy(case.graph, 0.3, direction="each", seed=seed)
        for name, sign in (("as it is", None), ("left in", 0.0), ("added", 1.0)):
            monkeypatch.setattr(Examiner, "examine", kept if sign is None else with_sum(kept, sign))
            history = gs.solve(case.problem, network, gs.PDS(), stop=gs.Stop(iterations=40)).history
            broken[name] += any(record.lower > case.optimum for record in history)
    assert broken["as it is"] == 0
    assert broken["left in"] > 0
    assert broken["added"] > 0


def with_sum(examine, sign: float):
    """`examine`, whose evidence is such that the sum of the multipliers is left in (0), or added (1)."""

    def changed(self, x, evidence, **asked):
        before = [each.dual.w.mean(axis=0) for each in evidence]
        original = proof.lower_part
        # lower_part gets w - mean; give it w + sign * mean in place of that.
        pulls = iter([(1 + sign) * mean for mean in before])
        proof.lower_part = lambda problem, each, pull, *rest: original(problem, each, pull + next(pulls), *rest)
        try:
            return examine(self, x, evidence, **asked)
        finally:
            proof.lower_part = original

    return changed


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


# ---- decisions, which are counted


def test_checks_are_due_where_iterations_have_grown_by_a_half():
    assert ALL_DUE[:8] == [6, 8, 12, 18, 26, 39, 58, 87]
    steps = np.divide(ALL_DUE[1:], ALL_DUE[:-1])
    assert np.all((steps > 1.3) & (steps < 1.6))


STOPS = {
    "gap": (gs.Stop(gap=gs.Relative(1e-3), iterations=400), 2, 0, (1, 0, 0)),
    "gap and disagreement": (gs.Stop(gap=0.1, disagreement=gs.Relative(0.1), iterations=400), 2, 1, (1, 0, 0)),
    "kkt": (gs.Stop(kkt=gs.Relative(0.02), iterations=400), 2, 1, (0, 1, 1)),
    "gap and kkt": (gs.Stop(gap=0.1, kkt=gs.Relative(0.05), iterations=400), 2, 1, (1, 1, 1)),
    "gap and objective": (gs.Stop(gap=0.1, objective=100.0, residual=1.0, iterations=400), 2, 0, (1, 0, 0)),
}


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("record_every", [1, 1000])
def test_a_decision_costs_what_it_takes(name, record_every):
    """Two sums of all agents, a maximum where distances count, and a value or a gradient: at every check."""
    stop, sums, maxima, (values, gradients, first) = STOPS[name]
    graph, network = gs.Graph.path(6), gs.network.Local(gs.Graph.path(6))
    problem = small_problem()
    solution = gs.solve(problem, graph, METHOD, stop=stop, record_every=record_every)
    assert solution.status is gs.Status.CONVERGED
    last = solution.history[-1].iteration
    assert last in ALL_DUE
    plain = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=last)).costs
    checks = sum(k <= last for k in ALL_DUE)
    rounds = sums * network.control_rounds("sum") + maxima * network.control_rounds("max")
    assert rounds > 0
    assert solution.costs.control_rounds == plain.control_rounds + checks * rounds
    assert solution.costs.values == plain.values + checks * values
    assert solution.costs.gradients == plain.gradients + checks * gradients + first
    assert solution.costs.rounds == plain.rounds
    assert solution.history[-1].control_rounds == solution.costs.control_rounds
    np.testing.assert_array_equal(solution.x, gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=last)).x)


def test_a_check_takes_its_time_on_the_clock():
    clock = gs.Clock(gradient=1.0, latency=0.5)
    solution = gs.solve(small_problem(), RING, METHOD, stop=gs.Stop(gap=1e-9, iterations=8), clock=clock)
    costs = solution.costs
    expected = costs.gradients + (costs.values - costs.gradients) + 0.5 * (costs.rounds + costs.control_rounds)
    assert solution.costs.simulated_seconds == pytest.approx(expected, rel=1e-6)
    assert costs.values == 8 + len([k for k in ALL_DUE if k <= 8])


@pytest.mark.parametrize("name", STOPS)
def test_targets_hold_where_a_run_converged_and_did_not_at_the_check_before(name):
    stop = STOPS[name][0]
    solution = gs.solve(small_problem(), RING, METHOD, stop=stop)
    last, before = solution.history[-1], solution.history[-2]
    # Where nothing is agreed on, the records of this run say the same as its checks.
    seen = replace(stop, kkt=None)
    if seen.has_targets:
        assert seen.reached(last)
    earlier = max([k for k in ALL_DUE if k < last.iteration], default=None)
    if earlier is not None and stop.kkt is None:
        assert not stop.reached(solution.history[earlier - 1])
    assert before.iteration == last.iteration - 1


def test_what_is_observed_and_what_is_agreed_on_are_the_same_numbers():
    for seed in (1, 3, 5, 8, 14):
        case = make_case(seed)
        network = gs.network.Local(case.graph)
        state = stepped(case, 20)
        evidence = gs.PDS().evidence(state)
        x0 = case.problem.start()
        asked = {"gap": True, "apart": True, "kkt": True, "start": x0}
        free = Examiner(case.problem, network, network.observe, case.problem.loss).examine(state.x, evidence, **asked)
        paid = Examiner(case.problem, network, network.agree, case.problem.loss).examine(state.x, evidence, **asked)
        assert (free.lower, free.upper, free.apart, free.kkt) == (paid.lower, paid.upper, paid.apart, paid.kkt)
        assert free.lower <= case.optimum <= free.upper + 1e-9


def stepped(case: Case, iterations: int) -> State:
    """The state after so many outer iterations."""
    states = []

    class Spy(gs.PDS):
        def step(self, context, state):
            states.append(super().step(context, state))
            return states[-1]

    gs.solve(case.problem, case.graph, Spy(), stop=gs.Stop(iterations=iterations))
    return states[-1]


def test_the_best_bound_of_all_checks_is_kept_and_no_other():
    """A bound that falls later is no reason to forget it; those of iterations without a check are not known."""
    keep = Checks.take
    found, lows = [], []

    class Fading(gs.PDS):
        def evidence(self, state):
            worse = 9.0 if state.k > 30 else 0.0
            return [each._replace(conjugate=each.conjugate + worse) for each in super().evidence(state)]

    def take(self, iteration, x, evidence):
        keep(self, iteration, x, evidence)
        found.append(self.last)
        lows.append(self._examiner.examine(x, evidence, gap=True).lower)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checks, "take", take)
        gs.solve(small_problem(), RING, Fading(L=8.0, R=1.0), stop=gs.Stop(gap=1e-12, iterations=60))
    assert [check.iteration for check in found] == [k for k in ALL_DUE if k < 60] + [60]
    assert [check.lower for check in found] == list(np.maximum.accumulate(lows))
    assert lows[-1] < found[-1].lower


def test_a_run_that_ends_at_its_limit_is_checked_there():
    """60 is no turn of its own, and the gap has been small enough for a while."""
    problem = small_problem()
    gaps = [record.gap for record in gs.solve(problem, RING, METHOD, stop=gs.Stop(iterations=60)).history]
    assert 60 not in ALL_DUE
    before = max(k for k in ALL_DUE if k < 60)
    enough = (gaps[-1] + gaps[before - 1]) / 2
    at_turn = gs.solve(problem, RING, METHOD, stop=gs.Stop(gap=enough, iterations=before))
    assert at_turn.status is gs.Status.ITERATION_LIMIT
    solution = gs.solve(problem, RING, METHOD, stop=gs.Stop(gap=enough, iterations=60))
    assert solution.status is gs.Status.CONVERGED
    assert solution.history[-1].iteration == 60
    assert solution.history[-1].control_rounds == solution.costs.control_rounds


@pytest.mark.parametrize("record_every", [1, 7])
@pytest.mark.parametrize("name", ["gap and disagreement", "gap and kkt", "gap and objective"])
def test_a_run_that_goes_on_from_a_checkpoint_ends_alike(tmp_path, name, record_every):
    stop, problem, path = STOPS[name][0], small_problem(), tmp_path / "run.npz"
    network = gs.network.Lossy(RING, 0.1, seed=3)
    whole = gs.solve(problem, network, METHOD, stop=stop, record_every=record_every)
    for limit in (3, 10, 12):
        part = replace(stop, iterations=limit)
        gs.solve(problem, network, METHOD, stop=part, checkpoint=path, record_every=record_every)
    for _ in range(2):
        solution = gs.solve(problem, network, METHOD, stop=stop, checkpoint=path, record_every=record_every)
        assert solution.status is whole.status is gs.Status.CONVERGED
        np.testing.assert_array_equal(solution.x, whole.x)
        assert spent(solution.costs) == spent(whole.costs)
        assert solution.certificate == whole.certificate
        assert solution.kkt == whole.kkt
        assert [replace(r, seconds=0.0) for r in solution.history] == [replace(r, seconds=0.0) for r in whole.history]


def test_only_some_agents_are_here():
    """Two places, each with its own agents and what they know: together they find what one place with all finds."""
    for seed in (0, 2, 4, 29):
        case = make_case(seed)
        m = case.problem.m
        state = stepped(case, 8)
        x0 = case.problem.start()
        evidence = gs.PDS().evidence(state)
        whole = gs.network.Local(case.graph)
        asked = {"gap": True, "apart": True, "kkt": True}
        expected = Examiner(case.problem, whole, whole.observe, case.problem.loss).examine(
            state.x, evidence, **asked, start=x0
        )
        meeting = Meeting(2)
        found = [None, None]

        def place(
            which, rows, case=case, meeting=meeting, found=found, x0=x0, x=state.x, evidence=evidence, asked=asked
        ):
            here = slice(rows.start, rows.stop)
            problem = case.problem.take(list(rows))
            known = [Evidence(e.y[here], e.conjugate[here], Dual(e.dual.s[here], e.dual.w[here])) for e in evidence]
            network = Part(case.problem.m, rows)
            examiner = Examiner(problem, network, lambda v, how: meeting.reduce(which, v, how), problem.loss)
            found[which] = examiner.examine(x[here], known, **asked, start=x0[here])

        split = m // 2
        threads = [
            threading.Thread(target=place, args=(k, rows)) for k, rows in enumerate((range(split), range(split, m)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        for one in found:
            for name in ("lower", "upper", "apart"):
                assert getattr(one, name) == pytest.approx(getattr(expected, name), rel=1e-12), name
            assert one.kkt.stationarity == pytest.approx(expected.kkt.stationarity, rel=1e-9)
            assert one.kkt.scale == pytest.approx(expected.kkt.scale, rel=1e-12)


@pytest.mark.parametrize("same", [True, False])
def test_domains_elsewhere_may_differ(same):
    """Each place sees one domain; whether it is the same one takes an agreement."""
    meeting, found = Meeting(2), [None, None]
    loss = make_loss("logistic", np.random.default_rng(0), 4)

    def place(which):
        radius = 1.0 if same or which == 0 else 2.0
        problem = gs.Problem(loss.take([2 * which, 2 * which + 1]), gs.domains.L2Ball(radius))
        assert problem.domain.common
        network = Part(4, range(2 * which, 2 * which + 2))
        found[which] = proof.traits(problem, network, lambda v, how: meeting.reduce(which, v, how))

    threads = [threading.Thread(target=place, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found[0] == found[1] == (same, True)


@dataclass(frozen=True)
class Part:
    """A network as a place with some of the agents sees it."""

    m: int
    agents: range


class Meeting:
    """Places that reduce together."""

    def __init__(self, places: int) -> None:
        self._barrier = threading.Barrier(places, timeout=60)
        self._rows = [None] * places

    def reduce(self, which, values, reduction):
        self._rows[which] = np.asarray(values)
        self._barrier.wait()
        result = reduced(np.concatenate(self._rows), reduction)
        self._barrier.wait()
        return result


# ---- the last steps of a method


@dataclass(frozen=True)
class MixState:
    x: np.ndarray
    finished: bool = False

    def copy(self):
        return self


@dataclass(frozen=True)
class Mixer:
    """Gossip, whose last step is to agree on the mean; it must only be taken once."""

    def init(self, context):
        return MixState(np.arange(float(context.x0.size)).reshape(context.x0.shape))

    def step(self, context, state):
        assert not state.finished
        return MixState(context.network.combine(state.x, np.eye(6) - 0.2 * RING.laplacian.toarray()))

    def output(self, state):
        return state.x

    def finish(self, context, state):
        assert not state.finished
        mean = context.network.agree(state.x, "sum") / context.network.m
        return MixState(np.broadcast_to(mean, state.x.shape).copy(), finished=True)


def test_a_method_may_finish_its_answer(tmp_path):
    problem, path = FREE, tmp_path / "run.npz"
    seen = []
    solution = gs.solve(
        problem,
        RING,
        Mixer(),
        stop=gs.Stop(iterations=5),
        checkpoint=path,
        callback=lambda record, x: seen.append(record.disagreement),
    )
    assert solution.status is gs.Status.ITERATION_LIMIT
    np.testing.assert_allclose(solution.x, np.tile(np.arange(18.0).reshape(6, 3).mean(axis=0), (6, 1)))
    last = solution.history[-1]
    assert [record.iteration for record in solution.history] == [1, 2, 3, 4, 5]
    assert seen[-1] > 0.1
    assert last.disagreement < 1e-12
    assert last.control_rounds == solution.costs.control_rounds == 6
    assert solution.history[-2].control_rounds == 0
    # What goes on later has not been finished.
    again = gs.solve(problem, RING, Mixer(), stop=gs.Stop(iterations=5), checkpoint=path)
    assert spent(again.costs) == spent(solution.costs)
    longer = gs.solve(problem, RING, Mixer(), stop=gs.Stop(iterations=9), checkpoint=path)
    whole = gs.solve(problem, RING, Mixer(), stop=gs.Stop(iterations=9))
    np.testing.assert_array_equal(longer.x, whole.x)
    assert spent(longer.costs) == spent(whole.costs)
    assert [r.disagreement for r in longer.history] == [r.disagreement for r in whole.history]


@pytest.mark.parametrize(
    ("options", "status", "finished"),
    [
        ({"stop": gs.Stop(disagreement=0.5)}, gs.Status.CONVERGED, True),
        ({"stop": gs.Stop(rounds=4)}, gs.Status.ROUND_LIMIT, True),
        ({"stop": gs.Stop(rounds=9), "callback": lambda record, x: record.iteration == 3}, gs.Status.STOPPED, True),
    ],
)
def test_whatever_ends_a_run_it_is_finished_once(options, status, finished):
    solution = gs.solve(FREE, RING, Mixer(), **options)
    assert solution.status is status
    assert (solution.history[-1].disagreement < 1e-12) is finished


def test_what_was_torn_or_diverged_is_not_finished():
    class Explodes(Mixer):
        def step(self, context, state):
            return MixState(1e200 * state.x)

    assert gs.solve(FREE, RING, Explodes(), stop=gs.Stop(iterations=9)).status is gs.Status.DIVERGED

    class Interrupted(Mixer):
        def step(self, context, state):
            raise KeyboardInterrupt

    solution = gs.solve(FREE, RING, Interrupted(), stop=gs.Stop(iterations=9))
    assert solution.status is gs.Status.INTERRUPTED
    assert solution.costs.control_rounds == 0


def test_who_presses_ctrl_c_does_not_wait_for_the_last_steps():
    stop = gs.Stop(iterations=9, kkt=1e-9)
    solution = gs.solve(FREE, RING, Mixer(), stop=stop, callback=lambda record, x: signal.raise_signal(signal.SIGINT))
    assert solution.status is gs.Status.INTERRUPTED
    assert solution.history[-1].iteration == 1
    assert solution.costs.control_rounds == 0


def test_an_interrupt_in_the_last_steps_leaves_what_was_there():
    class Interrupted(Mixer):
        def finish(self, context, state):
            raise KeyboardInterrupt

    solution = gs.solve(FREE, RING, Interrupted(), stop=gs.Stop(iterations=4))
    assert solution.status is gs.Status.INTERRUPTED
    assert np.ptp(solution.x[:, 0]) > 0.1


# ---- residuals, which are no certificate


def residuals(problem: gs.Problem, x: np.ndarray, evidence=()) -> KKT:
    network = gs.network.Local(gs.Graph.ring(problem.m) if problem.m > 2 else gs.Graph.path(problem.m))
    examiner = Examiner(problem, network, network.observe, problem.loss)
    return examiner.examine(x, evidence, kkt=True, start=problem.start()).kkt


@pytest.mark.parametrize("domain", DOMAINS)
def test_residuals_vanish_at_the_optimum_and_nowhere_else(domain):
    """Whatever the set, the penalty and the geometry: with the multipliers that fit, and with those of a run."""
    problem = small_problem(0.25, DOMAINS[domain](3))
    at = np.tile(reference(problem, tolerance=1e-12).x, (6, 1))
    there = residuals(problem, at)
    assert there.stationarity < 1e-6
    assert there.consensus < 1e-15
    rng = np.random.default_rng(0)
    nearby = problem.domain.project(at + 0.3 * rng.normal(size=3))
    assert residuals(problem, nearby).stationarity > 1e-2
    apart = problem.domain.project(at + 0.3 * rng.normal(size=(6, 3)))
    assert max(residuals(problem, apart).stationarity, residuals(problem, apart).consensus) > 1e-2
    assert there.scale == residuals(problem, nearby).scale > 1e-2


def test_residuals_follow_the_definition():
    problem = gs.Problem(make_loss("quadratic", np.random.default_rng(0), 6), mu=0.5)
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    g = problem.loss.gradient(x)
    # Without constraints the step of scale 1 is (g + w + mu x) / (1 + mu).
    evidence = [Evidence(g, g[:, 0], Dual(w, w))]
    expected = np.linalg.norm(g + w - w.mean(axis=0) + 0.5 * x) / 1.5
    assert residuals(problem, x, evidence).stationarity == pytest.approx(expected)
    without = np.linalg.norm(g.mean(axis=0) + 0.5 * x) / 1.5
    assert residuals(problem, x).stationarity == pytest.approx(without)
    assert residuals(problem, x).consensus == pytest.approx(np.linalg.norm(x - x.mean(axis=0), axis=1).max())
    start = np.linalg.norm(problem.loss.gradient(np.zeros((6, 3)))) / 1.5
    assert residuals(problem, x).scale == pytest.approx(start)
    # The multipliers that fit best count.
    zero = Evidence(g, g[:, 0], Dual(0 * w, 0 * w))
    assert residuals(problem, x, [zero, *evidence]).stationarity == pytest.approx(
        min(expected, np.linalg.norm(g + 0.5 * x) / 1.5)
    )


@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu(), gs.NIDS(), gs.DLM()], ids=lambda m: type(m).__name__)
def test_a_run_can_stop_at_its_residuals(method):
    stop = gs.Stop(kkt=gs.Relative(1e-3), iterations=4000)
    solution = gs.solve(FREE, RING, method, stop=stop, record_every=50)
    assert solution.status is gs.Status.CONVERGED
    kkt, optimum = solution.kkt, reference(FREE)
    assert kkt.stationarity <= 1e-3 * kkt.scale
    assert kkt.consensus <= 1e-3 * np.linalg.norm(solution.mean)
    assert np.linalg.norm(solution.mean - optimum.x) < 0.05 * np.linalg.norm(optimum.x)
    assert solution.certificate is None
    assert f"{kkt.stationarity:.3g}" in solution.certificate_reason
    assert "no certificate" in solution.certificate_reason
    assert "unbounded" in solution.certificate_reason
    rough = gs.solve(FREE, RING, method, stop=gs.Stop(kkt=5.0, iterations=4000), record_every=50)
    assert rough.history[-1].iteration < solution.history[-1].iteration


def test_agents_at_their_own_optima_are_not_at_a_kkt_point():
    """Stationary each for itself, with multipliers of 0, and far apart."""

    @dataclass(frozen=True)
    class Alone(Mixer):
        def init(self, context):
            return MixState(optima)

        def step(self, context, state):
            return state

        def evidence(self, state):
            zero = np.zeros_like(state.x)
            return (Evidence(zero, zero[:, 0], Dual(zero, zero)),)

        def finish(self, context, state):
            return state

    optima = np.random.default_rng(0).normal(size=(6, 3))
    loss = gs.losses.Quadratic(np.tile(np.eye(3), (6, 1, 1)), -optima)
    stop = gs.Stop(kkt=gs.Relative(1e-2), iterations=40)
    solution = gs.solve(gs.Problem(loss), RING, Alone(), stop=stop)
    assert solution.kkt.stationarity < 1e-12
    assert solution.status is gs.Status.ITERATION_LIMIT


def test_residuals_are_saved_and_loaded(tmp_path):
    solution = gs.solve(FREE, RING, METHOD, stop=gs.Stop(kkt=1.0, iterations=50))
    assert isinstance(solution.kkt, KKT)
    loaded = gs.load(solution.save(tmp_path / "solution.npz"))
    assert loaded.kkt == solution.kkt
    assert loaded.certificate_reason == solution.certificate_reason
    kkt = solution.kkt
    assert solution.to_dict()["kkt"] == {
        "stationarity": kkt.stationarity,
        "consensus": kkt.consensus,
        "scale": kkt.scale,
    }
    certified = gs.solve(small_problem(), RING, METHOD, stop=gs.Stop(iterations=5))
    assert certified.kkt is None
    loaded = gs.load(certified.save(tmp_path / "certified.npz"))
    assert loaded.kkt is None
    assert loaded.certificate == certified.certificate
    assert certified.to_dict()["kkt"] is None
    assert [record.lower for record in loaded.history] == [record.lower for record in certified.history]


def test_a_loss_without_value_has_residuals_but_no_certificate():
    loss = gs.losses.Custom(gradient=lambda x: x - 1.0, smoothness=1.0, agents=6, dimension=2)
    solution = gs.solve(gs.Problem(loss, gs.domains.Box(-9, 9)), RING, stop=gs.Stop(iterations=60))
    assert solution.certificate is None
    assert "value" in solution.certificate_reason
    assert solution.kkt.stationarity < 1e-2 * solution.kkt.scale


# ---- what ends a run that was not told when to end


def test_a_method_that_stops_itself_ends_at_the_certificate_or_the_residuals():
    class Auto(gs.CondatVu):
        stops_itself = True

    problem = small_problem(1.0)
    solution = gs.solve(problem, RING, Auto(), record_every=100)
    assert solution.status is gs.Status.CONVERGED
    assert solution.certificate.gap <= 1e-4 * abs(solution.certificate.upper)
    assert solution.history[-1].disagreement <= 1e-2 * solution.history[-1].mean_norm
    assert solution.kkt is None
    free = gs.solve(FREE, RING, Auto(), record_every=100)
    assert free.status is gs.Status.CONVERGED
    assert free.kkt.stationarity <= 1e-4 * free.kkt.scale
    own = small_problem(domain=gs.domains.Box(-1 - np.arange(18.0).reshape(6, 3), 1.0))
    apart = gs.solve(own, RING, Auto(), record_every=100)
    assert apart.status is gs.Status.CONVERGED
    assert apart.kkt.stationarity <= 1e-4 * apart.kkt.scale
    assert gs.solve(problem, RING, gs.CondatVu(), record_every=1000).history[-1].iteration == 1000

    class Scheduled(Auto):
        def iterations(self, state):
            return 7

    assert gs.solve(problem, RING, Scheduled()).status is gs.Status.COMPLETED


# ---- what is refused


OWN_SETS = gs.domains.Box(-1 - np.arange(18.0).reshape(6, 3), 1.0)
VALUELESS = gs.losses.Custom(gradient=lambda x: x, smoothness=1.0, agents=6, dimension=3)
CONSTRAINED = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), np.ones((1, 3)), np.ones(1), mu=1.0)


@pytest.mark.parametrize(
    ("problem", "method", "stop", "words"),
    [
        (FREE, gs.PDS(), {"gap": 1.0}, ["lower bound", "mu=0", "mu > 0", "kkt"]),
        (gs.Problem(VALUELESS, gs.domains.L2Ball(1.0)), gs.PDS(), {"gap": 1.0}, ["value", "kkt"]),
        (small_problem(domain=OWN_SETS), gs.PDS(), {"gap": 1.0}, ["one domain", "Box", "kkt"]),
        (small_problem(), gs.NIDS(), {"gap": 1.0}, ["exact gradients", "NIDS", "PDS"]),
        (small_problem(), gs.SPDS(N=9, R=1.0, c=1.0), {"gap": 1.0}, ["exact gradients", "SPDS"]),
        (small_problem(), gs.SPDS(N=9, R=1.0, c=1.0), {"kkt": 1.0}, ["exact gradients", "SPDS"]),
        (small_problem(domain=OWN_SETS), gs.NIDS(), {"kkt": 1.0}, ["multipliers", "NIDS"]),
        (CONSTRAINED, gs.PDS(), {"kkt": 1.0}, ["kkt", "network", "LinearlyConstrained"]),
    ],
)
def test_targets_that_nobody_can_judge_are_refused(problem, method, stop, words):
    network = None if isinstance(problem, gs.Saddle) else RING
    with pytest.raises(gs.InputError) as caught:
        gs.solve(problem, network, method, stop=gs.Stop(**stop, iterations=5))
    assert [word for word in words if word not in str(caught.value)] == []
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, "1"])
def test_a_kkt_target_must_be_positive(value):
    with pytest.raises(gs.InputError, match="kkt"):
        gs.Stop(kkt=value)
