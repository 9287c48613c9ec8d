"""Agents are killed, stopped, robbed of their files: the answer is the same to the bit, or all end with the reason."""

import shutil
import threading
import time

import numpy as np
import pytest
from peers_agents import Agent, Town, all_well, logistic, together

import gradslide as gs

GRAPH = gs.Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)])
ITERATIONS, PAUSE = 40, 0.01
METHOD, STOP = gs.AutoPDS(), gs.Stop(iterations=ITERATIONS)
TIMES = 20


@pytest.fixture(scope="module")
def undisturbed():
    problem = logistic(GRAPH)
    solutions = all_well(together(GRAPH, lambda i, net: gs.solve(problem.take([i]), net, METHOD, stop=STOP)))
    return [each.x[0].tolist() for each in solutions], {each.status.name for each in solutions}


class Run:
    """All agents as processes, with checkpoints."""

    def __init__(self, folder, **told):
        folder.mkdir()
        told = {"method": METHOD, "stop": STOP, "checkpoint_seconds": 0.05, "pause": PAUSE, **told}
        town = Town.on(GRAPH)
        self.agents = [Agent(town, folder, i, **told) for i in range(GRAPH.m)]

    def kill(self, some, seconds):
        """Kill some at once, after a while, and start them again."""
        time.sleep(seconds)
        for i in some:
            self.agents[i].kill()
        for i in some:
            self.agents[i].start()

    def require(self, undisturbed):
        found = [agent.found() for agent in self.agents]
        assert [each["x"] for each in found] == undisturbed[0]
        assert {each["status"] for each in found} == undisturbed[1]

    def ends(self):
        """What each found, or its error."""
        ends = [None] * GRAPH.m

        def wait(i):
            ends[i] = self.agents[i].end()

        threads = [threading.Thread(target=wait, args=(i,)) for i in range(GRAPH.m)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ends


def victims(kind, rng):
    return {"one": [int(rng.integers(GRAPH.m))], "several": [0, 2, 3], "all": list(range(GRAPH.m))}[kind]


# A run takes about a second and a half.
MOMENTS = {"the very start": (0.0, 0.1), "any time": (0.1, 1.5), "the very end": (1.0, 1.6)}


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["one", "several", "all"])
def test_kills_at_random_moments(kind, tmp_path, undisturbed):
    for seed in range(TIMES):
        rng = np.random.default_rng(seed)
        run = Run(tmp_path / str(seed))
        run.kill(victims(kind, rng), rng.uniform(*MOMENTS["any time"]))
        run.require(undisturbed)
    print(f"{kind}: {TIMES} kills at random moments, {TIMES} times the same answer")


@pytest.mark.chaos
@pytest.mark.parametrize("moment", ["the very start", "the very end"])
@pytest.mark.parametrize("kind", ["one", "several", "all"])
def test_kills_at_the_ends(kind, moment, tmp_path, undisturbed):
    for seed in range(TIMES // 4):
        rng = np.random.default_rng([1, seed])
        run = Run(tmp_path / str(seed))
        run.kill(victims(kind, rng), rng.uniform(*MOMENTS[moment]))
        run.require(undisturbed)
    print(f"{kind}: {TIMES // 4} kills at {moment}, {TIMES // 4} times the same answer")


def test_a_kill_and_a_stop(tmp_path, undisturbed):
    run = Run(tmp_path / "run")
    run.kill([2], 0.5)
    run.agents[4].pause(0.3)
    run.require(undisturbed)


@pytest.mark.chaos
def test_stopped_processes(tmp_path, undisturbed):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        run = Run(tmp_path / str(seed))
        time.sleep(rng.uniform(0.2, 1.0))
        # Longer than connections stay open without a sign of life, too.
        run.agents[int(rng.integers(GRAPH.m))].pause([0.5, 2.0, 7.0][seed % 3])
        run.require(undisturbed)
    print("5 processes stopped for up to 7 s, 5 times the same answer")


@pytest.mark.chaos
def test_a_full_disk(tmp_path, undisturbed):
    """Checkpoints cannot be written: the run goes on without them."""
    run = Run(tmp_path / "run", disk=20_000)
    run.require(undisturbed)
    assert not run.agents[0].checkpoint.exists()
    print("disks of all full: same answer, no checkpoints")


def lose(path):
    path.unlink()


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 4
    path.write_bytes(bytes(content))


@pytest.mark.chaos
@pytest.mark.parametrize("harm", [lose, truncate, flip])
def test_a_checkpoint_that_is_damaged(harm, tmp_path, undisturbed):
    """Unless neighbours still have all that was sent, nobody can go on; all end, and some name the cause."""
    run = Run(tmp_path / "run")
    victim = run.agents[2]
    victim.wait_for(ITERATIONS // 2)
    victim.kill()
    harm(victim.checkpoint)
    victim.start()
    started = time.monotonic()
    ends = run.ends()
    if all(isinstance(end, dict) for end in ends):
        assert [end["x"] for end in ends] == undisturbed[0]
        return
    assert all(isinstance(end, str) for end in ends), ends
    assert time.monotonic() - started < 45
    cause = "it goes on from round 0, but what was sent" if harm is lose else "must be a gradslide checkpoint file"
    assert any(cause in end for end in ends), ends
    print(f"checkpoint: {harm.__name__}: all ended, {ends[2]}")


@pytest.mark.chaos
def test_all_checkpoints_lost_is_a_new_run(tmp_path, undisturbed):
    run = Run(tmp_path / "run")
    run.agents[0].wait_for(ITERATIONS // 2)
    for agent in run.agents:
        agent.kill()
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "run").mkdir()
    for agent in run.agents:
        agent.start()
    run.require(undisturbed)
