"""Certificates on networks: decisions, which cost what they should; what ends a run, and what is refused."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from certificate_cases import ALL_DUE, FREE, METHOD, RING, Case, make_case, make_loss, small_problem, spent

import gradslide as gs
from gradslide.engine.stopping import Checks
from gradslide.methods.pds import State
from gradslide.network.collectives import reduced
from gradslide.network.coupling import Dual
from gradslide.theory.certificates import CertificateEvaluator, DualEvidence

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


@pytest.mark.covering
@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("record_every", [1, 1000])
def test_a_decision_costs_what_it_takes(name, record_every):
    """Two sums of all agents, a maximum where distances count, and a value or a gradient: at every check.

    For kkt alone, also a value at the start; and a sum, a value, a gradient and a Hessian whenever the residuals hold.
    """
    stop, sums, maxima, (values, gradients, first) = STOPS[name]
    graph, network = gs.Graph.path(6), gs.network.Local(gs.Graph.path(6))
    problem = small_problem()
    solution = gs.solve(problem, graph, METHOD, stop=stop, record_every=record_every)
    assert solution.status is gs.Status.CONVERGED
    last = solution.history[-1].iteration
    assert last in ALL_DUE
    plain = gs.solve(problem, graph, METHOD, stop=gs.Stop(iterations=last)).costs
    checks = sum(k <= last for k in ALL_DUE)
    rounds = sums * network.costs.control_rounds("sum") + maxima * network.costs.control_rounds("max")
    assert rounds > 0
    errors = solution.costs.hessians
    assert (errors > 0) == (name == "kkt")
    rounds_of_errors = errors * network.costs.control_rounds("sum")
    assert solution.costs.control_rounds == plain.control_rounds + checks * rounds + rounds_of_errors
    at_start = 1 if name == "kkt" else 0
    assert solution.costs.values == plain.values + checks * values + errors + at_start
    assert solution.costs.gradients == plain.gradients + checks * gradients + first + errors
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
        evidence = gs.PDS().dual_evidence(state)
        x0 = case.problem.start()
        asked = {"gap": True, "disagreement": True, "kkt": True, "start": x0}
        free = CertificateEvaluator(case.problem, network, case.problem.loss, is_counted=False).evaluate(
            state.x, evidence, **asked
        )
        paid = CertificateEvaluator(case.problem, network, case.problem.loss, is_counted=True).evaluate(
            state.x, evidence, **asked
        )
        # Sums that decide have no order, others are plain: they may differ by rounding.
        for name in ("lower", "upper", "disagreement"):
            assert getattr(free, name) == pytest.approx(getattr(paid, name), rel=1e-14), name
        assert free.kkt.stationarity == pytest.approx(paid.kkt.stationarity, rel=1e-11)
        assert free.kkt.scale == pytest.approx(paid.kkt.scale, rel=1e-14)
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
        def dual_evidence(self, state):
            worse = 9.0 if state.k > 30 else 0.0
            return [each._replace(conjugate=each.conjugate + worse) for each in super().dual_evidence(state)]

    def take(self, iteration, x, evidence, known=None):
        keep(self, iteration, x, evidence, known)
        found.append(self.last)
        lows.append(self.evaluator.evaluate(x, evidence, gap=True).lower)

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


@pytest.mark.covering
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
        evidence = gs.PDS().dual_evidence(state)
        whole = gs.network.Local(case.graph)
        asked = {"gap": True, "disagreement": True, "kkt": True}
        expected = CertificateEvaluator(case.problem, whole, case.problem.loss, is_counted=False).evaluate(
            state.x, evidence, **asked, start=x0
        )
        meeting = Meeting(2)
        found = [None, None]

        def place(
            which, rows, case=case, meeting=meeting, found=found, x0=x0, x=state.x, evidence=evidence, asked=asked
        ):
            here = slice(rows.start, rows.stop)
            problem = case.problem.take(list(rows))
            known = [DualEvidence(e.y[here], e.conjugate[here], Dual(e.dual.s[here], e.dual.w[here])) for e in evidence]
            network = Part(case.problem.m, rows, lambda v, how: meeting.reduce(which, v, how))
            evaluator = CertificateEvaluator(problem, network, problem.loss, is_counted=True)
            found[which] = evaluator.evaluate(x[here], known, **asked, start=x0[here])

        split = m // 2
        threads = [
            threading.Thread(target=place, args=(k, rows)) for k, rows in enumerate((range(split), range(split, m)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        for one in found:
            for name in ("lower", "upper", "disagreement"):
                assert getattr(one, name) == pytest.approx(getattr(expected, name), rel=1e-12), name
            assert one.kkt.stationarity == pytest.approx(expected.kkt.stationarity, rel=1e-9)
            assert one.kkt.scale == pytest.approx(expected.kkt.scale, rel=1e-12)


def test_checks_are_restored_from_what_they_saved():
    problem = small_problem()
    evaluators = [
        CertificateEvaluator(problem, gs.network.Local(RING), problem.loss, is_counted=True) for _ in range(2)
    ]
    first, second = (Checks(gs.Stop(gap=1.0, kkt=1.0), each, problem.start()) for each in evaluators)
    first.take(7, problem.start(), ())
    second.restore(first.to_dict())
    assert second.iteration == 7
    assert second.last == first.last
    assert second.to_dict() == first.to_dict()
    assert second.certificate == first.certificate


@pytest.mark.parametrize("same", [True, False])
def test_domains_elsewhere_may_differ(same):
    """Each place sees one domain; whether it is the same one takes an agreement."""
    meeting, found = Meeting(2), [None, None]
    loss = make_loss("logistic", np.random.default_rng(0), 4)

    def place(which):
        radius = 1.0 if same or which == 0 else 2.0
        problem = gs.Problem(loss.take([2 * which, 2 * which + 1]), gs.domains.L2Ball(radius))
        assert problem.domain.common
        network = Part(4, range(2 * which, 2 * which + 2), lambda v, how: meeting.reduce(which, v, how))
        found[which] = CertificateEvaluator(problem, network, problem.loss, is_counted=True).traits

    threads = [threading.Thread(target=place, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found[0] == found[1] == (same, True, same)


@dataclass(frozen=True)
class Part:
    """A network as a place with some of the agents sees it."""

    m: int
    agents: range
    agree: Callable
    session: ClassVar = SimpleNamespace(sees_all=False)


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
    assert free.kkt.error <= 1e-4 * free.objective
    own = small_problem(domain=gs.domains.Box(-1 - np.arange(18.0).reshape(6, 3), 1.0))
    apart = gs.solve(own, RING, Auto(), record_every=100)
    # With sets of their own the agents cannot estimate the error of the objective.
    assert apart.status is gs.Status.STATIONARY
    assert apart.kkt.error is None
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
        (CONSTRAINED, gs.SPDS(N=9, R=1.0, c=1.0), {"kkt": 1.0}, ["multipliers", "exact gradients", "SPDS"]),
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
