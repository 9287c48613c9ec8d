"""Late checks: sums that decide on stopping are piggybacked, and the answer is the one that they are about."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from certificate_cases import ALL_DUE, FREE, METHOD, RING, small_problem, spent

import gradslide as gs
from gradslide._support import storage
from gradslide.engine.stopping import Checks, has_grown
from gradslide.methods.base import Copied, Method
from gradslide.network.piggyback import LocalSession
from gradslide.theory.certificates import CertificateEvaluator

PATH = gs.Graph.path(6)
OWN = small_problem(domain=gs.domains.Box(-0.2 - np.arange(18.0).reshape(6, 3) / 20, 0.3))
BALL = small_problem(mu=0.01)
SIMPLEX = small_problem(domain=gs.domains.EntropySimplex(), mu=0.01)
AUTO = gs.AutoPDS()
CASES = {
    "gap": (BALL, gs.Stop(gap=gs.Relative(1e-6), iterations=400)),
    "gap and disagreement": (BALL, gs.Stop(gap=1e-5, disagreement=gs.Relative(1e-3), iterations=400)),
    "gap and objective": (BALL, gs.Stop(gap=1e-5, objective=100.0, residual=1e-2, iterations=400)),
    "gap and kkt": (BALL, gs.Stop(gap=1e-5, kkt=gs.Relative(1e-3), iterations=400)),
    "kkt": (FREE, gs.Stop(kkt=gs.Relative(1e-4), iterations=400)),
    "own sets": (OWN, gs.Stop(kkt=gs.Relative(1e-3), iterations=400)),
    "simplex": (SIMPLEX, gs.Stop(gap=gs.Relative(1e-3), iterations=400)),
}


def late_run(name: str, graph=PATH, method=AUTO, **given) -> tuple[gs.Solution, int]:
    """The solution, and the outer iterations that were done."""
    problem, stop = CASES[name]
    seen = []
    solution = gs.solve(problem, graph, method, stop=stop, callback=lambda record, x: seen.append(record), **given)
    return solution, seen[-1].iteration


def bare_run(name: str, iterations: int, graph=PATH, method=AUTO) -> gs.Solution:
    return gs.solve(CASES[name][0], graph, method, stop=gs.Stop(iterations=iterations))


@contextmanager
def watched_starts() -> Iterator[list[int]]:
    """The iterations in which late checks are started."""
    starts, begin = [], Checks.begin

    def watched(self, iteration, state, look):
        starts.append(iteration)
        return begin(self, iteration, state, look)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checks, "begin", watched)
        yield starts


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("record_every", [1, 1000])
def test_a_certified_run_takes_the_rounds_of_a_bare_one(name, record_every):
    """But for the estimate of the error, which is agreed on at once where residuals hold."""
    solution, done = late_run(name, record_every=record_every)
    assert solution.status in (gs.Status.CONVERGED, gs.Status.STATIONARY)
    bare = bare_run(name, done)
    errors = solution.costs.hessians
    assert (errors > 0) == (name == "kkt")
    sum_rounds = gs.network.Local(PATH).costs.control_rounds("sum")
    assert solution.costs.rounds == bare.costs.rounds
    assert solution.costs.control_rounds == bare.costs.control_rounds + errors * sum_rounds
    assert solution.costs.floats_sent > bare.costs.floats_sent


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_that_of_the_iteration_that_was_checked(name):
    solution, done = late_run(name)
    answered = solution.history[-1].iteration
    assert answered < done
    bare = bare_run(name, answered)
    np.testing.assert_array_equal(solution.x, bare.x)
    np.testing.assert_array_equal(solution.dual, bare.dual)
    assert solution.parameters == bare.parameters
    # All that was spent is counted, and the steps after the answer are in no record.
    assert solution.history[-1].gradients == solution.costs.gradients > bare.costs.gradients
    assert [record.iteration for record in solution.history] == list(range(1, answered + 1))
    assert solution.history[-1].control_rounds == solution.costs.control_rounds


@pytest.mark.parametrize("name", ["gap", "gap and disagreement", "gap and objective", "simplex"])
def test_targets_held_at_the_answer_and_at_no_check_before(name):
    with watched_starts() as starts:
        solution, _ = late_run(name)
    stop, answered = CASES[name][1], solution.history[-1].iteration
    records = list(bare_run(name, answered + 1).history)
    assert stop.reached(records[answered - 1])
    before = [k for k in starts if k < answered]
    assert len(before) > 2
    assert not any(stop.reached(records[k - 1]) for k in before)
    assert all(has_grown(k, 0.2) for k in starts)


@pytest.mark.parametrize("name", CASES)
def test_a_late_check_finds_what_one_at_once_finds(name):
    """To the bit: sums have no order."""
    found = []
    advance = Checks.advance

    def watched(self, iteration, look):
        before = list(self.under_way)
        decided = advance(self, iteration, look)
        for check in decided:
            (late,) = [each for each in before if each.iteration == check.iteration]
            found.append((check, *look(late.state), self.request, self.start))
        return decided

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checks, "advance", watched)
        problem, stop = CASES[name]
        gs.solve(problem, PATH, AUTO, stop=stop)
    assert found
    evaluator = CertificateEvaluator(problem, gs.network.Local(PATH), problem.loss, is_counted=True)
    lower = -np.inf
    for check, x, evidence, request, start in found:
        at_once = evaluator.evaluate(x, evidence, **vars(request), start=start)
        assert (check.upper, check.disagreement) == (at_once.upper, at_once.disagreement)
        if at_once.lower is not None:
            # Evidence without a reach gets the largest of the run, which has grown since.
            lower = max(lower, at_once.lower)
            assert check.lower == pytest.approx(lower, rel=1e-12)
        if at_once.kkt is not None:
            assert replace(check.kkt, error=None, objective=None) == at_once.kkt


def test_a_decision_comes_when_two_sums_have_been_carried():
    """Each takes so many exchanges, and is started and read between two steps of K exchanges."""
    for K, graph in ((1, PATH), (2, RING), (3, gs.Graph.star(6)), (7, PATH)):
        method = gs.AutoPDS(K=K)
        solution, done = late_run("gap", graph, method)
        steps = -(-gs.network.Local(graph).costs.control_rounds("sum") // K)
        assert done - solution.history[-1].iteration == 2 * steps


def test_a_check_costs_one_value_and_its_floats():
    with watched_starts() as starts:
        solution, done = late_run("gap and disagreement")
    bare = bare_run("gap and disagreement", done).costs
    costs, d = gs.network.Local(PATH).costs, BALL.d
    # The point and two dual points; then two lower bounds, an upper one, and once the objective at the start.
    means = costs.reduce_floats(np.zeros((6, 3 * d)), "sum")
    rest = costs.reduce_floats(np.zeros((6, 3)), "sum") + costs.reduce_floats(np.zeros((6, 1)), "max")
    first = costs.reduce_floats(np.zeros((6, 1)), "sum")
    delay = -(-costs.control_rounds("sum") // solution.parameters["K"])
    halfway = sum(k <= done - delay for k in starts)
    assert 0 < halfway <= len(starts)
    assert solution.costs.floats_sent == bare.floats_sent + len(starts) * means + halfway * rest + first
    assert solution.costs.values == bare.values + halfway
    assert solution.costs.gradients == bare.gradients


def test_vectors_that_checks_send_take_their_time_on_the_clock():
    clock = gs.Clock(gradient=0.0, latency=0.0, bandwidth=8.0)
    problem, stop = BALL, gs.Stop(gap=1e-12, iterations=7)
    bare = gs.solve(problem, RING, AUTO, stop=gs.Stop(iterations=7), clock=clock).costs
    with pytest.MonkeyPatch.context() as patch:
        # Without the check at the limit, in control rounds.
        patch.setattr(Checks, "take", lambda *given: None)
        costs = gs.solve(problem, RING, AUTO, stop=stop, clock=clock).costs
    rounds = gs.network.Local(RING).costs.control_rounds("sum")
    begun = [k for k in range(5, 8) if has_grown(k, 0.2)]
    # One number takes a second. Nothing completes before the end.
    assert costs.simulated_seconds - bare.simulated_seconds == len(begun) * rounds * 3 * problem.d > 0
    assert costs.control_rounds == bare.control_rounds


# ---- checkpoints


@pytest.mark.covering
@pytest.mark.parametrize("record_every", [1, 7])
@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_resumed_amid_checks_ends_alike(tmp_path, name, record_every):
    problem, stop = CASES[name]
    path, given = tmp_path / "run.npz", {"record_every": record_every}
    whole = gs.solve(problem, PATH, AUTO, stop=stop, **given)
    amid = 0
    for limit in (3, 7, 9, 12, 14, 20, 27):
        if limit < whole.history[-1].iteration:
            gs.solve(problem, PATH, AUTO, stop=replace(stop, iterations=limit), checkpoint=path, **given)
            amid += len(storage.checkpoint_memory(path)["checks"]["late"]) > 0
    assert amid > 2
    # The second time it is over already.
    for _ in range(2):
        solution = gs.solve(problem, PATH, AUTO, stop=stop, checkpoint=path, **given)
        assert solution.status is whole.status
        np.testing.assert_array_equal(solution.x, whole.x)
        np.testing.assert_array_equal(solution.dual, whole.dual)
        assert spent(solution.costs) == spent(whole.costs)
        assert solution.certificate == whole.certificate
        assert solution.kkt == whole.kkt
        assert [replace(r, seconds=0.0) for r in solution.history] == [replace(r, seconds=0.0) for r in whole.history]


@pytest.mark.parametrize(
    "harder", [gs.Stop(gap=1e-7, iterations=400), gs.Stop(gap=1e-5, kkt=gs.Relative(1e-4), iterations=400)]
)
def test_a_run_that_is_resumed_with_harder_targets_goes_on(tmp_path, harder):
    path = tmp_path / "run.npz"
    problem, easy = BALL, gs.Stop(gap=1e-3, iterations=400)
    first = gs.solve(problem, PATH, AUTO, stop=easy, checkpoint=path)
    second = gs.solve(problem, PATH, AUTO, stop=harder, checkpoint=path)
    assert second.status is gs.Status.CONVERGED
    assert second.history[-1].iteration > first.history[-1].iteration
    whole = gs.solve(problem, PATH, AUTO, stop=gs.Stop(iterations=second.history[-1].iteration))
    np.testing.assert_array_equal(second.x, whole.x)
    assert second.certificate.gap <= harder.gap
    if harder.kkt is None:
        # The checks under way are the same ones.
        straight = gs.solve(problem, PATH, AUTO, stop=harder)
        assert straight.history[-1].iteration == second.history[-1].iteration


def test_checkpoints_of_earlier_versions_are_read():
    local, session = gs.network.Local(PATH), LocalSession(gs.network.Local(PATH))
    session.resume((3, [(5, "sum", np.ones(2))]))
    network = session._network
    network.combine(np.ones((6, 1)), local.laplacian)
    assert network.completed() == []
    network.combine(np.ones((6, 1)), local.laplacian)
    (result,) = network.completed("sum")
    np.testing.assert_array_equal(result, np.ones(2))
    problem = small_problem()
    evaluator = CertificateEvaluator(problem, local, problem.loss, is_counted=True)
    checks = Checks(gs.Stop(gap=1.0), evaluator, problem.start(), may_be_late=True)
    checks.restore({"lower": 1.0, "first": None, "scale": None, "last": None})
    assert checks.may_be_late
    assert checks.under_way == []


# ---- where agents check at once


@dataclass(frozen=True)
class State(Copied):
    x: np.ndarray


@dataclass(frozen=True)
class Silent(Method[State]):
    """Gradient steps of agents that have the same data, and need no exchanges; they take as many as they are told."""

    exchanges: int = 0
    rate: float = 0.05

    def init(self, context):
        return State(context.x0 + 1.0)

    def step(self, context, state):
        for _ in range(self.exchanges):
            context.network.combine(state.x, context.network.laplacian)
        return State(state.x - self.rate * context.oracle.gradient(state.x))

    def output(self, state):
        return state.x

    def snapshot_for_check(self, context, state):
        return state.copy()


SAME = gs.Problem(gs.losses.Quadratic(np.tile(np.eye(3), (6, 1, 1)), np.tile([1.0, 2.0, 3.0], (6, 1))))


def test_sums_that_nothing_carries_are_not_waited_for():
    stop = gs.Stop(kkt=gs.Relative(1e-3), iterations=5000)
    solution = gs.solve(SAME, RING, Silent(rate=0.1), stop=stop)
    assert solution.status is gs.Status.CONVERGED
    assert solution.costs.rounds == 0
    last = solution.history[-1].iteration
    costs = gs.network.Local(RING).costs
    # The first late check is given up after 32 iterations; the next one starts where it has 64.
    first = ALL_DUE[0]
    at_once = [first + 33, *(k for k in ALL_DUE if first + 33 < k < 4 * 32)]
    assert last in at_once[1:]
    rounds = (at_once.index(last) + 1) * (2 * costs.control_rounds("sum") + costs.control_rounds("max"))
    assert solution.costs.control_rounds == rounds + solution.costs.hessians * costs.control_rounds("sum")


def test_after_sums_that_came_too_late_longer_ones_are_waited_for():
    """A check takes 60 iterations here: one that is started after 128 is given 64."""
    graph = gs.Graph.path(61)
    same = gs.Problem(gs.losses.Quadratic(np.tile(np.eye(2), (61, 1, 1)), np.tile([1.0, 2.0], (61, 1))))
    takes, take = [], Checks.take

    def watched(self, iteration, *given):
        takes.append(iteration)
        take(self, iteration, *given)

    with watched_starts() as starts, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checks, "take", watched)
        solution = gs.solve(same, graph, Silent(exchanges=2, rate=0.02), stop=gs.Stop(kkt=0.1, iterations=2000))
    assert solution.status is gs.Status.STATIONARY
    given_up = starts[0] + 33
    assert takes == [given_up, *(k for k in ALL_DUE if given_up < k < 128)]
    assert solution.history[-1].iteration in [k for k in starts if k >= 128]
    assert solution.costs.control_rounds == len(takes) * (2 * 60 + graph.diameter)


def test_a_method_of_users_that_exchanges_is_checked_late():
    stop = gs.Stop(kkt=gs.Relative(1e-3), disagreement=1.0, iterations=5000)
    solution = gs.solve(SAME, RING, Silent(exchanges=2), stop=stop)
    assert solution.status is gs.Status.CONVERGED
    assert solution.costs.hessians > 0
    assert solution.costs.control_rounds == solution.costs.hessians * gs.network.Local(RING).costs.control_rounds("sum")


@pytest.mark.parametrize(
    ("network", "method"),
    [
        (gs.network.Lossy(PATH, 1e-9, seed=1), AUTO),
        (gs.network.Local(PATH), gs.AutoPDS(agreement="exact")),
        (gs.network.Local(PATH), gs.AutoPDS(balance=1000.0)),
        (gs.network.Local(PATH), METHOD),
    ],
    ids=["messages may be lost", "exact", "expensive gradients", "PDS"],
)
def test_elsewhere_agents_check_at_once(network, method):
    stop = gs.Stop(gap=gs.Relative(1e-2), iterations=400)
    problem = small_problem()
    solution = gs.solve(problem, network, method, stop=stop)
    assert solution.status is gs.Status.CONVERGED
    last = solution.history[-1].iteration
    assert last in ALL_DUE
    bare = gs.solve(problem, network, method, stop=gs.Stop(iterations=last))
    np.testing.assert_array_equal(solution.x, bare.x)
    rounds = sum(k <= last for k in ALL_DUE) * 2 * network.costs.control_rounds("sum")
    assert solution.costs.control_rounds == bare.costs.control_rounds + rounds > bare.costs.control_rounds


def test_a_lone_agent_needs_not_wait():
    problem = small_problem(m=1)
    solution = gs.solve(problem, gs.Graph.path(1), AUTO, stop=gs.Stop(gap=gs.Relative(1e-3), iterations=100))
    assert solution.status is gs.Status.CONVERGED
    assert solution.history[-1].iteration in ALL_DUE


def test_a_limit_amid_late_checks_is_checked_at_once():
    """At the limit the targets hold, but no late check has been decided."""
    problem, stop = CASES["gap"]
    answered = late_run("gap")[0].history[-1].iteration
    solution = gs.solve(problem, PATH, AUTO, stop=replace(stop, iterations=answered + 1))
    assert solution.status is gs.Status.CONVERGED
    assert solution.history[-1].iteration == answered + 1
    bare = bare_run("gap", answered + 1)
    rounds = 2 * gs.network.Local(PATH).costs.control_rounds("sum")
    assert solution.costs.control_rounds == bare.costs.control_rounds + rounds
