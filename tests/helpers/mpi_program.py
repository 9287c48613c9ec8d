"""Runs under mpiexec, for tests: tasks in, what all agents answered out.

Arguments: a JSON file with a list of tasks, and a folder for what the first process writes.
"""

import json
import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from mpi_tasks import GRAPHS, METHODS, record_every, stop_of, whole_problem

import gradslide as gs
from gradslide.network.mpi import exchange


def perform(task, folder):
    if task.get("old MPI"):
        # As mpi4py does where the library has no persistent neighbourhood collectives.
        exchange.Exchange._at_once = _not_implemented
        exchange.Exchange._to_everybody = lambda self, own, place: exchange._Anew(
            lambda: self._comm.Iallgatherv(own, place)
        )
    graph = GRAPHS[task["graph"]]
    network = gs.network.MPI(graph, exact_norm=task.get("exact_norm", True), timeout=20.0)
    rank = network.session.rank
    assert network._exchange.sends_all == (task["graph"] == "complete" and network.session.size > 2)
    problem = whole_problem(task).take(network.agents)
    solution = gs.solve(
        problem,
        network,
        _method(task, network.agents),
        stop=stop_of(task),
        record_every=record_every(task),
        checkpoint=task.get("checkpoint"),
        checkpoint_seconds=task.get("checkpoint_seconds", 60.0),
        callback=_callback(task, rank, folder),
    )
    cut = network.session.gather(np.full((len(network.agents), 1), float(rank)))
    whole = solution.gathered()
    if rank == 0:
        whole.save(folder / f"{task['name']}.npz")
        np.save(folder / f"{task['name']}.ranks.npy", cut[:, 0])


def _not_implemented(*arguments):
    raise NotImplementedError


def _method(task, agents):
    method = METHODS[task["method"]]
    if "stream" not in task:
        return method
    # Of agent 5 the stream ends early.
    sources = partial(_samples, length=task["stream"], slow=task.get("slow"))
    return replace(method, oracle=gs.oracles.Stream(sources))


def _samples(agent, length, slow=None):
    rng = np.random.default_rng(agent)
    for number in range(length if agent == 5 else 100 * length):
        if agent == slow and number == length:
            time.sleep(3600)
        yield rng.normal(size=(4, 6)), rng.choice([-1, 1], size=4)


def _callback(task, rank, folder):
    """Asks to stop after an iteration, in one process only; or notes that the run is under way."""
    wanted, announced = task.get("callback"), task.get("announce")

    def called(record, x):
        if announced is not None and not (folder / f"pid.{rank}").exists():
            (folder / f".pid.{rank}").write_text(str(os.getpid()))
            os.replace(folder / f".pid.{rank}", folder / f"pid.{rank}")
        return wanted is not None and wanted["rank"] == rank and record.iteration == wanted["iteration"]

    return None if wanted is None and announced is None else called


if __name__ == "__main__":
    for task in json.loads(Path(sys.argv[1]).read_text()):
        perform(task, Path(sys.argv[2]))
