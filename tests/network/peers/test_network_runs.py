"""Runs among peers: the same as in the simulation, whatever ends them, and whoever is killed on the way."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import problems
import pytest
from auto_twins import followed, hard_problem
from peers_agents import ENDS, GRAPH, SECONDS, Agent, Town, all_well, logistic, together
from problems import WithoutScores

import gradslide as gs
from gradslide._support import storage
from gradslide._support.errors import InputError
from gradslide.network.peers.errors import PeerError
from gradslide.network.peers.network import Diverged, public_reason
from gradslide.network.peers.rounds import Owner, Rounds

FIVE = gs.Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)])
SMALL = gs.Graph.path(3)
M = GRAPH.m


def own_sets():
    lo = np.random.default_rng(1).uniform(-1.0, -0.1, size=(M, 4))
    return logistic(GRAPH, domain=gs.domains.Box(lo=lo, hi=lo + 1.0))


# Problem, method, outer iterations, and how far sums in another order may lead.
RUNS = {
    "late sums": (logistic(GRAPH), gs.AutoPDS(), 60, 1e-9),
    "Newton": (logistic(GRAPH), gs.Newton(), 5, 1e-9),
    "LBFGS": (logistic(GRAPH), gs.LBFGS(), 12, 1e-7),
    "Auto": (logistic(GRAPH), gs.Auto(), 5, 1e-9),
    "no sums": (logistic(GRAPH), gs.AutoPDS(agreement="none", first_L=1.0), 30, 0.0),
    "single precision": (logistic(GRAPH, dtype=np.float32), gs.AutoPDS(K=2), 20, 1e-4),
    "simplex": (logistic(GRAPH, domain=gs.domains.EntropySimplex()), gs.AutoPDS(), 10, 1e-9),
    "PDS": (logistic(GRAPH), gs.PDS(), 30, 1e-9),
    "SPDS": (logistic(GRAPH), gs.SPDS(N=12, seed=3), 12, 1e-9),
    "NIDS": (own_sets(), gs.NIDS(), 40, 0.0),
    "DCS": (logistic(GRAPH), gs.DCS(), 4, 0.0),
    "sums at once": (logistic(GRAPH), gs.AutoPDS(agreement="exact"), 30, 1e-9),
    "PDS with a norm": (own_sets(), gs.PDS(R=0.5, coupling="laplacian"), 20, 0.0),
    "own sets": (own_sets(), gs.AutoPDS(), 40, 1e-9),
}


def rows(solutions):
    return np.vstack([solution.x for solution in solutions])


def numbers(solution):
    """What a run took, which all agents must have alike."""
    costs, last = solution.costs, solution.history[-1]
    return solution.status, last.iteration, costs.rounds, costs.gradients, costs.samples, costs.values


@pytest.mark.first(6)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_that_of_the_simulation(name):
    problem, method, iterations, rtol = RUNS[name]
    stop = gs.Stop(iterations=iterations)
    expected = gs.solve(problem, GRAPH, method, stop=stop)
    found = all_well(together(GRAPH, lambda i, net: gs.solve(problem.take([i]), net, method, stop=stop)))
    assert [numbers(solution) for solution in found] == [numbers(expected)] * M
    assert sum(solution.costs.floats_sent for solution in found) == expected.costs.floats_sent
    assert rows(found).dtype == expected.x.dtype
    np.testing.assert_allclose(rows(found), expected.x, rtol=rtol, atol=rtol)
    assert [solution.agents for solution in found] == [(i,) for i in range(M)]
    assert {solution.history[-1].objective for solution in found} == {None}


def test_a_gap_ends_all_at_the_same_iteration():
    problem, stop = logistic(GRAPH), gs.Stop(gap=gs.Relative(1e-2), disagreement=gs.Relative(1e-1), iterations=500)
    expected = gs.solve(problem, GRAPH, stop=stop)
    found = all_well(together(GRAPH, lambda i, net: gs.solve(problem.take([i]), net, stop=stop)))
    assert expected.status is gs.Status.CONVERGED
    assert [numbers(solution) for solution in found] == [numbers(expected)] * M
    # Their checks were piggybacked; the rest finds out whether all have the same set.
    bare = all_well(together(GRAPH, lambda i, net: gs.solve(problem.take([i]), net, stop=gs.Stop(iterations=3))))
    apart = gs.network.Local(GRAPH).costs.control_rounds("max")
    assert {solution.costs.control_rounds for solution in found} == {bare[0].costs.control_rounds + apart}
    np.testing.assert_allclose(rows(found), expected.x, rtol=1e-9, atol=1e-9)
    for solution in found:
        assert solution.certificate.gap == found[0].certificate.gap
        assert solution.certificate.gap <= 1e-2 * abs(solution.certificate.upper)
        assert solution.history[-1].gap == solution.certificate.gap


def test_residuals_and_disagreement_end_all_at_the_same_iteration():
    problem = own_sets()

    def act(i, net):
        first = gs.solve(problem.take([i]), net, stop=gs.Stop(kkt=gs.Relative(5e-2), iterations=500))
        # Another run over the same links.
        second = gs.solve(problem.take([i]), net, gs.NIDS(), stop=gs.Stop(disagreement=0.3, iterations=500))
        return first, second

    statuses = (gs.Status.STATIONARY, gs.Status.FEASIBLE)
    for status, solutions in zip(statuses, zip(*all_well(together(GRAPH, act)), strict=True), strict=True):
        assert {numbers(solution) for solution in solutions} == {numbers(solutions[0])}
        assert solutions[0].status is status
        apart = np.linalg.norm(rows(solutions) - rows(solutions).mean(axis=0), axis=1).max()
        assert solutions[0].history[-1].disagreement == pytest.approx(apart)


def test_an_objective_cannot_be_a_target():
    def act(i, net):
        with pytest.raises(InputError, match="targets that look at all agents"):
            gs.solve(logistic(SMALL).take([i]), net, gs.NIDS(), stop=gs.Stop(objective=1.0))

    all_well(together(SMALL, act))


@pytest.mark.parametrize("status", ["TIME_LIMIT", "STOPPED"])
def test_the_signal_of_one_ends_all_at_the_same_iteration(status):
    problem = logistic(FIVE)

    def act(i, net):
        given = {"stop": gs.Stop(iterations=5000)}
        if i == 3 and status == "STOPPED":
            given["callback"] = lambda record, x: record.iteration == 10
        elif i == 3:
            given["stop"] = gs.Stop(iterations=5000, seconds=0.2)
        return gs.solve(problem.take([i]), net, gs.NIDS(), **given)

    found = all_well(together(FIVE, act))
    assert {solution.status.name for solution in found} == {status}
    assert len({numbers(solution) for solution in found}) == 1
    if status == "STOPPED":
        # One exchange per outer iteration takes the signal one hop, and back to its sender.
        assert found[0].history[-1].iteration == 10 + FIVE.diameter + 1


# Checkpoints


def resumed(folder, iterations, method=None, network=True, options=lambda i: {}, **given):
    """Three agents that write checkpoints, or go on from them."""

    def path(i):
        return folder / f"agent-{i}.npz"

    def act(i, net):
        stop = gs.Stop(iterations=iterations)
        chosen = gs.AutoPDS(agreement="late", balance=0.1) if method is None else method
        return gs.solve(logistic(SMALL).take([i]), net, chosen, stop=stop, checkpoint=path(i), **given)

    return together(SMALL, act, lambda i: {"checkpoint": path(i) if network else None, "deadline": 3.0, **options(i)})


def test_a_run_that_all_resume_is_the_same_to_the_bit(tmp_path):
    whole = all_well(resumed(tmp_path / "whole", 30))
    # With sums and signals on their way, and once right at the start.
    for iterations in (1, 11, 12, 30):
        parts = all_well(resumed(tmp_path / "parts", iterations, checkpoint_seconds=0))
    assert rows(parts).tobytes() == rows(whole).tobytes()
    assert [numbers(solution) for solution in parts] == [numbers(solution) for solution in whole]
    assert [solution.costs.floats_sent for solution in parts] == [solution.costs.floats_sent for solution in whole]


def test_a_checkpoint_must_be_gone_on_from_as_it_was_begun(tmp_path):
    all_well(resumed(tmp_path, 3))
    cases = {
        "a run that does not go on from it": {"resume": False},
        "a run that is begun in another way": {"method": gs.PDS()},
        "the network must know where the checkpoint is": {"network": False},
    }
    for text, given in cases.items():
        for error in resumed(tmp_path, 5, **given):
            # Who finds out first tells the others, though not the details.
            told = isinstance(error, PeerError) and "cannot take part: a run must go on from" in str(error)
            assert told or text in str(error)
    assert all_well(resumed(tmp_path, 5))[0].history[-1].iteration == 5


def test_a_network_cannot_go_back_to_its_own_checkpoint(tmp_path):
    def act(i, net):
        stop, given = gs.Stop(iterations=3), {"checkpoint": tmp_path / f"{i}.npz"}
        gs.solve(logistic(SMALL).take([i]), net, gs.NIDS(), stop=stop, **given)
        with pytest.raises(InputError, match="that was there when its network was made"):
            gs.solve(logistic(SMALL).take([i]), net, gs.NIDS(), stop=stop, **given)

    all_well(together(SMALL, act, lambda i: {"checkpoint": tmp_path / f"{i}.npz"}))


def is_anew(solutions, folder, iterations):
    """Whether the runs are those of agents that never had a checkpoint."""
    anew = all_well(resumed(folder, iterations))
    return [numbers(each) for each in solutions] == [numbers(each) for each in anew]


def forget_owner(saved):
    """What a checkpoint holds, as former releases wrote it: it does not say whose it is."""
    if isinstance(saved, dict) and "items" in saved:
        return {"items": [[key, forget_owner(each)] for key, each in saved["items"] if key != "owner"]}
    return saved


def test_a_checkpoint_of_another_run_or_of_nobody_knows_who_is_set_aside(tmp_path):
    first = all_well(resumed(tmp_path, 4))
    kept = (tmp_path / "agent-0.npz").read_bytes()
    net = Town.on(SMALL).peers(0, checkpoint=tmp_path / "agent-0.npz", run_id="second")
    assert (tmp_path / "agent-0.npz").read_bytes() == kept, "nothing is renamed before the network connects"
    net.close()

    second = all_well(resumed(tmp_path, 4, options=lambda i: {"run_id": "second"}))
    assert [each.costs.seconds for each in second] != [each.costs.seconds for each in first], "it was computed anew"
    assert is_anew(second, tmp_path / "new", 4)
    for i in range(SMALL.m):
        assert (tmp_path / f"agent-{i}.1.npz").exists()
        assert (tmp_path / f"agent-{i}.1.end.npz").exists()
    assert (tmp_path / "agent-0.1.npz").read_bytes() == kept

    for i in range(SMALL.m):
        meta, arrays = storage.read(tmp_path / f"agent-{i}.npz", *storage.CHECKPOINT)
        meta["memory"] = forget_owner(meta["memory"])
        meta = {name: each for name, each in meta.items() if name not in ("kind", "version")}
        storage.write(tmp_path / f"agent-{i}.npz", *storage.CHECKPOINT, meta, arrays)
    third = all_well(resumed(tmp_path, 6, options=lambda i: {"run_id": "second"}))
    assert is_anew(third, tmp_path / "new again", 6)
    assert (tmp_path / "agent-0.2.npz").exists()


def test_a_checkpoint_of_other_keys_is_set_aside(tmp_path, caplog):
    all_well(resumed(tmp_path, 3))
    path, here = tmp_path / "agent-0.npz", Owner("test", "one", ("other",))
    with caplog.at_level("INFO", "gradslide.peers"):
        Rounds(SimpleNamespace(open=lambda **given: None), path, 1.0, here).connect()
    assert "the checkpoint of run test with other keys is kept as agent-0.1.npz; run test starts anew" in caplog.text
    assert not path.exists()


def late(i, seconds=2.5):
    """The last agent comes later than others wait for a message."""
    time.sleep(seconds if i == 2 else 0.0)
    return {"deadline": 1.0, "meet": 20.0}


def test_agents_far_from_one_that_comes_late_wait_for_it_too(tmp_path):
    """At the first start, and when all go on from their checkpoints."""
    all_well(resumed(tmp_path, 4, options=late))
    assert all_well(resumed(tmp_path, 8, options=late))[0].history[-1].iteration == 8


@pytest.mark.slow
def test_all_learn_which_agent_never_came():
    town, errors = Town.on(SMALL), {}

    def live(i):
        try:
            with town.peers(i, deadline=1.0, meet=3.0) as net:
                net.session.connect()
        except PeerError as error:
            errors[i] = error

    threads = [threading.Thread(target=live, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert errors[1].neighbour == "agent 2"
    assert "no handshake came" in str(errors[1])
    assert errors[0].neighbour == "agent 1"
    assert "it left in round 0: neighbour agent 2: no handshake came" in str(errors[0])


def test_ctrl_c_before_the_first_outer_iteration_ends_nobody_else():
    """The agent may be started again."""
    town, results = Town.on(SMALL), {}

    def live(i):
        try:
            with town.peers(i) as net:
                net.session.connect()
                results[i] = net.m
        except Exception as error:
            results[i] = error

    others = [threading.Thread(target=live, args=(i,)) for i in (0, 1)]
    others[1].start()
    # Agent 0 is not there yet: agent 1 does not answer.
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt), town.peers(2) as net:
        net.session.connect()
    others[0].start()
    live(2)
    for thread in others:
        thread.join(SECONDS)
    assert results == dict.fromkeys(range(3), 3)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    gs.solve(logistic(SMALL), SMALL, gs.NIDS(), stop=gs.Stop(iterations=3), checkpoint=tmp_path / "local.npz")
    with pytest.raises(InputError, match="must be one of an agent among peers"):
        Town.on(SMALL).peers(0, checkpoint=tmp_path / "local.npz")


# Processes that are killed


class Case:
    """Five agents in processes of their own. dying: which of them do not survive a checkpoint, and of when."""

    def __init__(self, folder, method, stop, dying=(), **told):
        folder.mkdir()
        town, told = Town.on(FIVE), {"method": method, "stop": stop, **told}
        self.agents = [Agent(town, folder, i, dies_at=dict(dying).get(i), **told) for i in range(FIVE.m)]

    def kill(self, kills):
        """kills: (agent, after which outer iteration), one after the other."""
        for agent, iteration in kills:
            self.agents[agent].wait_for(iteration)
            self.agents[agent].kill()
            self.agents[agent].start()

    def found(self):
        return [agent.found() for agent in self.agents]


ITERATIONS = 40


def undisturbed(method):
    stop = gs.Stop(iterations=ITERATIONS)
    solutions = all_well(together(FIVE, lambda i, net: gs.solve(logistic(FIVE).take([i]), net, method, stop=stop)))
    return [
        {
            "rounds": solution.costs.rounds,
            "gradients": solution.costs.gradients,
            "iterations": ITERATIONS,
            "x": solution.x[0].tolist(),
            "status": solution.status.name,
        }
        for solution in solutions
    ]


KILLS = {
    "once": (gs.AutoPDS(), 0.05, [(2, 12)]),
    "before the first checkpoint": (gs.AutoPDS(agreement="none"), 1000.0, [(1, 3)]),
    "several": (gs.AutoPDS(), 0.05, [(2, 5), (0, 14), (2, 15), (4, 30)]),
    "sampled": (gs.SPDS(N=ITERATIONS, seed=1, c=0.01), 0.05, [(3, 17)]),
}


@pytest.mark.first(1)
@pytest.mark.parametrize("name", ["before the first checkpoint", "several", "once", "sampled"])
def test_an_agent_that_is_killed_and_started_again_leads_to_the_same(name, tmp_path):
    method, seconds, kills = KILLS[name]
    stop = gs.Stop(iterations=ITERATIONS)
    case = Case(tmp_path / "run", method, stop, checkpoint_seconds=seconds, pause=0.01)
    case.kill(kills)
    assert case.found() == undisturbed(method)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop",
    [
        gs.Stop(gap=gs.Relative(1e-4), disagreement=gs.Relative(1e-3), iterations=400),
        gs.Stop(kkt=gs.Relative(1e-3), iterations=400),
    ],
    ids=["gap", "kkt"],
)
def test_an_agent_that_is_killed_agrees_on_targets_like_the_others(stop, tmp_path):
    problem = logistic(FIVE)
    expected = all_well(together(FIVE, lambda i, net: gs.solve(problem.take([i]), net, gs.AutoPDS(), stop=stop)))
    case = Case(tmp_path / "run", gs.AutoPDS(), stop, checkpoint_seconds=0.05, pause=0.01)
    case.kill([(2, 12), (3, 15)])
    found = case.found()
    assert [each["x"] for each in found] == [solution.x[0].tolist() for solution in expected]
    assert [each["rounds"] for each in found] == [solution.costs.rounds for solution in expected]


def test_an_agent_serves_what_it_sent_before_its_own_checkpoint(tmp_path):
    """Agent 2 dies before it writes the checkpoint that its neighbours have written; one of these is killed, too."""
    case = Case(tmp_path / "run", gs.AutoPDS(), gs.Stop(iterations=ITERATIONS), dying={2: 12}, checkpoint_seconds=0.0)
    one, other = case.agents[2], case.agents[1]
    one.wait_for_death()
    other.wait_for_checkpoint(12)
    other.kill()
    other.start()
    one.start(dies_at=None)
    assert case.found() == undisturbed(gs.AutoPDS())


@pytest.mark.parametrize("method", [gs.Newton(), gs.LBFGS(memory=3), gs.Auto()], ids=lambda method: method.name)
def test_agents_that_are_killed_amid_exact_sums_lead_to_the_same(method, tmp_path):
    """One of them is the root of the tree, which alone has the model."""
    root = FIVE.radius_center()[0]
    case = Case(tmp_path / "run", method, gs.Stop(iterations=ITERATIONS), checkpoint_seconds=0.02, pause=0.01)
    case.kill([((root + 2) % FIVE.m, 3), (root, 6), (root, 12)])
    assert case.found() == undisturbed(method)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_agents_that_are_killed_at_random_lead_to_the_same(seed, tmp_path):
    rng, method = np.random.default_rng(seed), gs.AutoPDS(agreement=("late", "exact", "none")[seed % 3])
    kills = [(int(rng.integers(FIVE.m)), int(after)) for after in np.sort(rng.integers(1, ITERATIONS - 5, size=4))]
    stop = gs.Stop(iterations=ITERATIONS)
    case = Case(tmp_path / "run", method, stop, checkpoint_seconds=rng.uniform(0.0, 0.1), pause=0.01)
    case.kill(kills)
    assert case.found() == undisturbed(method)


@pytest.mark.first(1)
@pytest.mark.parametrize("dying", [[2], [0, 1, 2, 3, 4]], ids=["one", "all"])
@pytest.mark.parametrize("where", ENDS)
def test_agents_that_are_killed_at_the_very_end_lead_to_the_same(where, dying, tmp_path):
    """Neighbours may have finished, and left: who is started again needs them no more, or they are still there."""
    stop, method = gs.Stop(gap=gs.Relative(1e-3), iterations=ITERATIONS), gs.AutoPDS()
    problem = logistic(FIVE)
    expected = all_well(together(FIVE, lambda i, net: gs.solve(problem.take([i]), net, method, stop=stop)))
    case = Case(tmp_path / "run", method, stop, checkpoint_seconds=0.05)
    for i in dying:
        case.agents[i].kill()
        case.agents[i].start(dies_in_the_end=where)
    for i in dying:
        case.agents[i].wait_for_death()
    for i in dying:
        case.agents[i].start(dies_in_the_end=None)
    found = case.found()
    assert [each["x"] for each in found] == [solution.x[0].tolist() for solution in expected]
    assert [each["rounds"] for each in found] == [solution.costs.rounds for solution in expected]
    assert [each["status"] for each in found] == [solution.status.name for solution in expected]


def test_a_finished_agent_that_is_started_again_serves_a_neighbour_that_has_not_finished(tmp_path):
    """One was killed before it had finished; the others then, too, who waited for it. All are started again."""
    stop, method = gs.Stop(iterations=ITERATIONS), gs.AutoPDS()
    case = Case(tmp_path / "run", method, stop, dying={2: ITERATIONS // 2}, checkpoint_seconds=0.0)
    case.agents[2].wait_for_death()
    for i in (0, 1, 3, 4):
        case.agents[i].kill()
    case.agents[2].start(dies_at=None, dies_in_the_end="before it tells that it has finished")
    for i in (0, 1, 3, 4):
        case.agents[i].start()
    case.agents[2].wait_for_death()
    for i in (0, 1, 3, 4):
        case.agents[i].wait_for_end_of_run()
        case.agents[i].kill()  # it has finished, and waits for agent 2
    for i in (2, 0, 1, 3, 4):
        case.agents[i].start(dies_in_the_end=None)
    assert case.found() == undisturbed(method)


def test_ctrl_c_for_one_ends_all_at_the_same_iteration(tmp_path):
    case = Case(tmp_path / "run", gs.AutoPDS(), gs.Stop(iterations=5000))
    case.agents[1].wait_for(5)
    case.agents[1].interrupt()
    found = case.found()
    assert {each["status"] for each in found} == {"INTERRUPTED"}
    assert len({(each["iterations"], each["rounds"]) for each in found}) == 1
    assert 5 <= found[0]["iterations"] < 5000


# What goes wrong


def test_agents_in_different_places_of_the_algorithm_find_out():
    def act(i, net):
        net.session.all_reduce_signal(0)
        if i == 2:
            net.agree(np.ones((1, 2)), "max")
        net.combine(np.ones((1, 2)), net.laplacian)

    astray = [error for error in together(SMALL, act, lambda i: {"deadline": 2.0}) if isinstance(error, PeerError)]
    named = {error.neighbour: str(error) for error in astray}
    assert "agent 2" in named
    assert "another position in the algorithm: at a maximum of outer iteration 1" in named["agent 2"]
    assert "this agent is at a combination" in named["agent 2"]


def test_agents_in_different_outer_iterations_find_out():
    def act(i, net):
        net.session.all_reduce_signal(0)
        net.combine(np.ones((1, 2)), net.laplacian)
        if i == 1:
            net.session.all_reduce_signal(0)
        net.combine(np.ones((1, 2)), net.laplacian)

    errors = together(gs.Graph.path(2), act, lambda i: {"deadline": 2.0})
    assert any("of outer iteration 2" in str(error) and "outer iteration 1" in str(error) for error in errors)


def test_what_is_not_finite_is_never_sent():
    def act(i, net):
        v = np.ones((1, 2))
        net.combine(v, net.laplacian)
        net.combine(v * (np.nan if i == 0 else 1.0), net.laplacian)

    results = together(gs.Graph.path(2), act, lambda i: {"deadline": 1.5})
    assert isinstance(results[0], Diverged)
    assert isinstance(results[1], PeerError)
    assert results[1].neighbour == "agent 0"
    assert "diverged" in str(results[1])


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("checkpoint run must belong to this run", "its checkpoint does not fit this run"),
        ("/home/ann/run.npz must be a gradslide checkpoint file", "its checkpoint does not fit this run"),
        ("checkpoint.npz must be a gradslide checkpoint file", "its checkpoint does not fit this run"),
        (r"the builder C:\ann\site must return a loss", "its input needs a correction"),
        ("the builder site.py:build must return a loss", "its input needs a correction"),
        ("patients.parquet must be a whole Parquet file", "its input needs a correction"),
        ("feature 'stage' must hold numbers or categories", "its input needs a correction"),
        ('label "ann\'s" must have one of its levels, I, II', "its input needs a correction"),
        ("an agent's rows must be its own", "an agent's rows must be its own"),
        ("OPAPC needs mu > 0", "OPAPC needs mu > 0"),
        (
            "diameter must bound the number of hops; 1.5 is wrong",
            "diameter must bound the number of hops; 1.5 is wrong",
        ),
    ],
)
def test_neighbours_learn_no_paths_and_no_names_of_columns(rule, told):
    assert public_reason(InputError(rule, "/home/ann", "see /home/ann")) == told


def test_no_rule_about_checkpoints_names_the_file(tmp_path):
    all_well(resumed(tmp_path, 3))
    for error in resumed(tmp_path, 5, method=gs.PDS()):
        assert isinstance(error, InputError | PeerError)
        assert str(tmp_path) not in public_reason(error)


def test_neighbours_learn_no_more_of_an_error_than_its_kind():
    def act(i, net):
        net.combine(np.ones((1, 2)), net.laplacian)
        if i == 0:
            raise KeyError("a patient's name")
        net.combine(np.ones((1, 2)), net.laplacian)

    results = together(gs.Graph.path(2), act, lambda i: {"deadline": 1.5})
    assert isinstance(results[1], PeerError)
    assert "KeyError" in str(results[1])
    assert "patient" not in str(results[1])


def test_agents_start_the_same_sums_whether_or_not_their_losses_have_scores():
    """Also after a rollback, which discards sums."""
    problem, graph = hard_problem(None, problems.logistic, 12, mu=0.3), gs.Graph.ring(12)
    method = gs.AutoPDS(restarts=False)
    expected, whole = followed(problem, graph, method, 60)
    assert expected[-1].late.generation > 0

    def act(i, net):
        loss = problem.loss.take([i])
        loss = WithoutScores.of(loss) if i == 3 else loss
        assert loss.has_scores == (i != 3)
        return gs.solve(gs.Problem(loss, mu=problem.mu), net, method, stop=gs.Stop(iterations=60))

    for i, solution in enumerate(all_well(together(graph, act))):
        np.testing.assert_allclose(solution.x, whole.x[i : i + 1], rtol=1e-9, atol=1e-9)


def test_an_agent_that_never_comes_back_ends_the_run_with_its_name():
    def act(i, net):
        for step in range(5):
            if (i, step) == (2, 3):
                raise RuntimeError
            net.combine(np.ones((1, 2)), net.laplacian)

    results = together(SMALL, act, lambda i: {"deadline": 1.5})
    assert isinstance(results[1], PeerError)
    assert results[1].neighbour == "agent 2"
    assert isinstance(results[0], PeerError)
    assert results[0].neighbour == "agent 1"
