"""Neighbours that are slow, stopped, killed or cut off: the result is that of the undisturbed run."""

import os
import signal
import time

import numpy as np
import pytest
from peers_processes import Agents, Proxy, undisturbed

PATH = [(0, 1), (1, 2)]


def assert_undisturbed(agents, rounds):
    for i, x in enumerate(undisturbed(agents.edges, rounds)):
        np.testing.assert_array_equal(agents.result(i), x)


def test_start_order_is_free(tmp_path):
    with Agents(tmp_path, PATH, rounds=30) as agents:
        for i in (2, 0, 1):
            agents.start(i)
            time.sleep(0.5)
        assert agents.finish() == [0, 0, 0]
        assert_undisturbed(agents, 30)


def test_a_stopped_process_is_waited_for(tmp_path):
    with Agents(tmp_path, PATH, rounds=60, pause=0.01) as agents:
        processes = [agents.start(i) for i in range(3)]
        agents.wait_for_round(1, 10)
        os.kill(processes[1].pid, signal.SIGSTOP)
        time.sleep(1.5)
        stuck = agents.round(0)
        assert stuck < 60
        os.kill(processes[1].pid, signal.SIGCONT)
        assert agents.finish() == [0, 0, 0]
        assert_undisturbed(agents, 60)


@pytest.mark.slow
def test_time_in_which_an_agent_was_stopped_itself_does_not_count(tmp_path):
    with Agents(tmp_path, PATH, rounds=60, pause=0.01) as agents:
        pids = [agents.start(i, deadline=2.0 if i == 1 else 20.0).pid for i in range(3)]
        agents.wait_for_round(1, 10)
        os.kill(pids[2], signal.SIGSTOP)
        time.sleep(0.2)  # now agent 1 waits
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(pids[1], signal.SIGCONT)
        time.sleep(0.3)
        os.kill(pids[2], signal.SIGCONT)
        assert agents.finish() == [0, 0, 0]
        assert_undisturbed(agents, 60)


@pytest.mark.first(1)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_agent_goes_on_from_its_checkpoint(tmp_path, victim):
    with Agents(tmp_path, PATH, rounds=80, pause=0.01, checkpoint_every=10) as agents:
        processes = [agents.start(i) for i in range(3)]
        agents.wait_for_round(victim, 25)
        processes[victim].kill()
        processes[victim].join(10)
        # Back from an older round than its neighbours are in.
        with np.load(tmp_path / f"a{victim}.checkpoint") as saved:
            assert 10 <= saved["round"] <= agents.round(victim)
        time.sleep(0.3)
        agents.start(victim)
        assert agents.finish(*(p for p in agents.processes if p is not processes[victim])) == [0, 0, 0]
        assert_undisturbed(agents, 80)
        assert "again" not in agents.log(2 if victim == 1 else 1), "a replay after a restart is no offence"


def test_agents_killed_together_go_on_from_different_checkpoints(tmp_path):
    with Agents(tmp_path, PATH, rounds=80, pause=0.01) as agents:
        every = [7, 10, 13]
        first = [agents.start(i, checkpoint_every=every[i]) for i in range(3)]
        agents.wait_for_round(1, 33)
        for process in first:
            process.kill()
        agents.finish()
        # 28, 30 and 26 are the rounds they go on from.
        second = [agents.start(i, checkpoint_every=every[i]) for i in range(3)]
        assert agents.finish(*second) == [0, 0, 0]
        assert_undisturbed(agents, 80)


@pytest.mark.slow
def test_without_what_was_cached_the_error_says_so(tmp_path):
    with Agents(tmp_path, [(0, 1)], rounds=80, pause=0.01, deadline=2.0) as agents:
        first = [agents.start(0, checkpoint_every=30), agents.start(1, checkpoint_every=10)]
        agents.wait_for_round(1, 25)
        for process in first:
            process.kill()
        agents.finish()
        second = [agents.start(0, checkpoint_every=30), agents.start(1, checkpoint_every=10, restore=False)]
        assert agents.finish(*second) == [3, 3]
        assert agents.error(1)["neighbour"] == "a0"
        assert "goes on from round 0, but what was sent to it is cached from round 20 on" in agents.error(1)["text"]
        assert "goes on from round 0" in agents.error(0)["text"], "the other is told why"


def test_a_restart_without_checkpoints_is_an_error_that_says_why(tmp_path):
    with Agents(tmp_path, [(0, 1)], rounds=500, pause=0.01, deadline=6.0) as agents:
        first, other = agents.start(0), agents.start(1)
        agents.wait_for_round(1, 10)
        first.kill()
        first.join(10)
        agents.start(0)
        assert agents.finish(other) == [3]
        assert agents.error(1)["neighbour"] == "a0"
        assert "writes no checkpoints" in agents.error(1)["text"]


@pytest.mark.parametrize("seconds", [0.2, pytest.param(60, marks=pytest.mark.slow)])
def test_a_cut_connection_is_mended(tmp_path, seconds):
    with Agents(tmp_path, PATH, rounds=120, pause=0.01, deadline=90.0) as agents:
        proxies = {pair: Proxy(agents.addresses[pair[1]]) for pair in [(0, 1), (1, 0), (1, 2), (2, 1)]}
        agents.seen_at = {pair: proxy.address for pair, proxy in proxies.items()}
        for i in range(3):
            agents.start(i)
        for round, cut in ((20, [(0, 1)]), (50, [(1, 0), (0, 1)]), (80, list(proxies))):
            agents.wait_for_round(1, round, 120)
            for pair in cut:
                proxies[pair].cut()
            time.sleep(seconds)
            for pair in cut:
                proxies[pair].mend()
        assert agents.finish(seconds=120) == [0, 0, 0]
        assert_undisturbed(agents, 120)
        for proxy in proxies.values():
            proxy.cut()


@pytest.mark.slow
def test_a_connection_that_is_dead_but_not_closed_is_replaced(tmp_path):
    """As when a firewall forgets it: nothing passes, and nobody is told."""
    with Agents(tmp_path, PATH, rounds=60, pause=0.01, deadline=40.0) as agents:
        agents.silent = {0}
        proxy = Proxy(agents.addresses[1])
        agents.seen_at = {(0, 1): proxy.address}
        for i in range(3):
            agents.start(i)
        agents.wait_for_round(1, 15)
        proxy.swallow()
        assert agents.finish(seconds=60) == [0, 0, 0]
        assert_undisturbed(agents, 60)
        proxy.cut()


def test_agents_that_cannot_be_dialled_dial(tmp_path):
    with Agents(tmp_path, PATH, rounds=40, pause=0.01) as agents:
        agents.silent = {0, 2}
        proxy = Proxy(agents.addresses[1])
        agents.seen_at = {(0, 1): proxy.address}
        for i in range(3):
            agents.start(i)
        agents.wait_for_round(1, 15)
        proxy.cut()
        time.sleep(0.2)
        proxy.mend()
        assert agents.finish() == [0, 0, 0]
        assert_undisturbed(agents, 40)
        proxy.cut()


def test_an_agent_two_hops_away_learns_the_cause_though_its_own_deadline_is_shorter(tmp_path):
    with Agents(tmp_path, PATH, rounds=500, pause=0.01) as agents:
        agents.start(0, deadline=2.0)
        agents.start(1, deadline=3.0)
        links = agents.links(2)
        links.open()
        assert agents.finish() == [3, 3]
        assert agents.error(1)["neighbour"] == "a2"
        assert "a2" in agents.error(0)["text"]
        links.close("test")


@pytest.mark.slow
def test_past_the_deadline_the_error_names_neighbour_and_round(tmp_path):
    with Agents(tmp_path, PATH, rounds=500, pause=0.01, deadline=2.0, checkpoint_every=5) as agents:
        processes = [agents.start(i) for i in range(3)]
        agents.wait_for_round(1, 20)
        processes[2].kill()
        assert agents.finish(processes[0], processes[1]) == [3, 3]
        error = agents.error(1)
        assert error["neighbour"] == "a2"
        assert error["round"] == agents.round(1) >= 20
        assert f"nothing arrived for round {error['round']} within 2 s" in error["text"]
        assert "it goes on from its checkpoint" in error["text"]
        assert os.path.exists(tmp_path / "a1.checkpoint")
        # All go on where they were.
        second = [agents.start(i, rounds=60, deadline=20.0) for i in range(3)]
        assert agents.finish(*second) == [0, 0, 0]
        assert_undisturbed(agents, 60)


def test_who_finishes_first_does_not_hurt_the_others(tmp_path):
    with Agents(tmp_path, PATH, rounds=20) as agents:
        proxy = Proxy(agents.addresses[1])
        agents.seen_at = {(0, 1): proxy.address, (1, 0): "tcp://127.0.0.1:1"}
        # Agent 0 is done while its last message is held up by agent 2, which is slow.
        agents.start(0)
        agents.start(1)
        agents.start(2, pause=0.05)
        agents.wait_for_round(0, 19)
        proxy.cut()
        time.sleep(0.3)
        proxy.mend()
        assert agents.finish() == [0, 0, 0]
        assert_undisturbed(agents, 20)
        proxy.cut()
