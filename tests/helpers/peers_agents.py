"""Agents among peers: in threads of one process, or as processes that can be killed."""

import hashlib
import os
import resource
import signal
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.forkserver import set_forkserver_preload
from pathlib import Path

import numpy as np
from forked import Process

import gradslide as gs
from gradslide._support import storage
from gradslide.engine.checkpoints import Checkpoint
from gradslide.network.peers.keys import key_pair
from gradslide.network.peers.neighbour import Neighbour, free_addresses
from gradslide.network.peers.network import Peers, PeersSession
from gradslide.network.peers.rounds import Rounds
from gradslide.network.peers.secure_sums import Masks

M = 8
GRAPH = gs.Graph.from_edges(M, [*((i, (i + 1) % M) for i in range(M)), (0, 4), (1, 6)])
SECONDS = 30.0


def key_pairs(m, seed=0):
    """In the order of their public keys, in which agents are numbered."""
    pairs = [key_pair(np.random.default_rng([seed, i]).bytes(32)) for i in range(m)]
    return sorted(pairs, key=lambda pair: pair.public)


def free_ports(count):
    return [int(address.rpartition(":")[2]) for address in free_addresses(count)]


@dataclass(frozen=True)
class Town:
    """Who lives where."""

    graph: gs.Graph
    ports: list

    @classmethod
    def on(cls, graph):
        return cls(graph, free_ports(graph.m))

    def peers(self, i, **options):
        pairs = key_pairs(self.graph.m)

        def neighbour(j):
            return Neighbour(f"agent {j}", f"tcp://127.0.0.1:{self.ports[j]}", pairs[j].public)

        neighbours = [neighbour(int(j)) for j in self.graph.neighbours(i)]
        listen = f"tcp://127.0.0.1:{self.ports[i]}"
        options = {"run_id": "test", "diameter": self.graph.diameter, "deadline": SECONDS / 2, **options}
        options.setdefault("meet", options["deadline"])
        return Peers(pairs[i], listen, neighbours, **options)


def together(graph, act, options=lambda i: {}):
    """What `act(i, network)` gives for every agent i, all at the same time. An error is given in its place."""
    town, results = Town.on(graph), [None] * graph.m

    def live(i):
        try:
            with town.peers(i, **options(i)) as network:
                network.session.connect()
                results[i] = act(i, network)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=live, args=(i,), daemon=True) for i in range(graph.m)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "an agent hangs"
    return results


def all_well(results):
    """The results, if nobody failed."""
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def logistic(graph, d=4, dtype=float, **given):
    """A problem of all agents, with data of their own."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5 * graph.m, d)) + np.repeat(rng.normal(size=(graph.m, d)), 5, axis=0)
    labels = rng.choice([-1.0, 1.0], size=5 * graph.m)
    loss = gs.losses.Logistic(features.astype(dtype), labels.astype(dtype), agents=graph.m)
    return gs.Problem(loss, **{"domain": gs.domains.L2Ball(2.0), **given})


# Processes


# One process imports everything, and all others are forks of it: they start at once.
set_forkserver_preload(["peers_agents"])
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])


class Agent:
    """A process with one agent, which solves `logistic` and writes what it found to a file."""

    def __init__(self, town, folder, i, **told):
        self._folder, self._told = Path(folder), {"i": i, "town": town, "folder": Path(folder), **told}
        self._i = i
        self.start()

    def start(self, **told):
        """told: what it is told otherwise than before."""
        self._told |= told
        self._process = Process(target=live, args=(self._told,), daemon=True)
        self._process.start()

    def kill(self):
        """As the machine would if it lost power."""
        self._process.kill()
        self._process.join()

    def pause(self, seconds):
        """Stop the process for a while."""
        os.kill(self._process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self._process.pid, signal.SIGCONT)

    @property
    def pid(self):
        return self._process.pid

    @property
    def checkpoint(self):
        return self._folder / f"checkpoint-{self._i}.npz"

    def interrupt(self):
        os.kill(self._process.pid, signal.SIGINT)

    def wait_for(self, iteration):
        """Until it has passed an outer iteration."""
        end = time.monotonic() + SECONDS
        while self._passed() < iteration:
            assert self._process.is_alive(), self._errors()
            assert time.monotonic() < end, "it is too slow"
            time.sleep(0.002)

    def wait_for_death(self):
        self._process.join(SECONDS)
        assert self._process.exitcode == -signal.SIGKILL, self._errors()

    def wait_for_checkpoint(self, iteration):
        """Until one of this outer iteration, or a later one, is on disk."""
        end = time.monotonic() + SECONDS
        while storage.read(self._folder / f"checkpoint-{self._i}.npz", *storage.CHECKPOINT)[0]["iteration"] < iteration:
            assert time.monotonic() < end, "it is too slow"
            time.sleep(0.01)

    def wait_for_end_of_run(self):
        """Until it has all that it needs to finish once more."""
        end = time.monotonic() + SECONDS
        while not (self._folder / f"checkpoint-{self._i}.end.npz").exists():
            assert time.monotonic() < end, "it is too slow"
            time.sleep(0.01)

    def _passed(self):
        path = self._folder / f"iteration-{self._i}"
        return int(path.read_text() or 0) if path.exists() else 0

    def _errors(self):
        path = self._folder / f"error-{self._i}"
        return path.read_text() if path.exists() else "no error"

    def end(self):
        """What it found, or the last line of its error, once it is done."""
        self._process.join(2 * SECONDS)
        assert self._process.exitcode in (0, 1), f"{self._process.exitcode}: {self._errors()}"
        return self.found() if self._process.exitcode == 0 else self._errors().strip().splitlines()[-1]

    def found(self):
        """What it found, once it is done."""
        self._process.join(SECONDS)
        assert self._process.exitcode == 0, f"{self._process.exitcode}: {self._errors()}"
        with np.load(self._folder / f"result-{self._i}.npz") as result:
            return {name: result[name].tolist() for name in result.files}


def live(told):
    """In the process of an agent."""
    try:
        _solve(**told)
    except BaseException:
        (told["folder"] / f"error-{told['i']}").write_text(traceback.format_exc())
        raise


def die(*unused, **also_unused):
    os.kill(os.getpid(), signal.SIGKILL)


# Where an agent can die at the end of its run: what is called there.
ENDS = {
    "after its last checkpoint": (PeersSession, "checkpointed"),
    "before it tells that it has finished": (Rounds, "finish"),
    "after it has finished": (Peers, "__exit__"),
}


def _die_in_the_end(where):
    owner, name = ENDS[where]
    before = getattr(owner, name)

    def call(*given, **named):
        if name == "checkpointed" and not named.get("is_last"):
            return before(*given, **named)
        if name == "__exit__":
            before(*given, **named)
        return die()

    setattr(owner, name, call)


def _note_sums(file):
    """Write down the keys of masks, the number of each sum, and what was contributed under them."""
    masked = Masks.masked

    def noted(self, values):
        keys = hashlib.sha256(b"".join(self._keys[each] for each in sorted(self._keys))).hexdigest()
        with file.open("a") as notes:
            notes.write(f"{keys} {self.counter} {hashlib.sha256(values.tobytes()).hexdigest()}\n")
        return masked(self, values)

    Masks.masked = noted


def _solve(
    i,
    town,
    folder,
    method,
    stop,
    checkpoint_seconds=None,
    pause=0.0,
    dies_at=None,
    dies_in_the_end=None,
    disk=None,
    notes_sums=False,
    **options,
):
    """dies_at: the outer iteration whose checkpoint, or a later one, it does not survive to write. disk: bytes that a
    file can have. notes_sums: whether it writes down what it contributes to secure sums.
    """
    if disk is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (disk, disk))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    write = Checkpoint.write

    def write_or_die(self, snapshot, run):
        if dies_at is not None and snapshot.iteration >= dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return write(self, snapshot, run)

    Checkpoint.write = write_or_die
    if notes_sums:
        _note_sums(folder / f"sums-{i}")
    if dies_in_the_end is not None:
        _die_in_the_end(dies_in_the_end)
    checkpoint = None if checkpoint_seconds is None else folder / f"checkpoint-{i}.npz"

    def tell(record, x):
        (folder / f"iteration-{i}").write_text(str(record.iteration))
        time.sleep(pause)

    with town.peers(i, checkpoint=checkpoint, **options) as network:
        solution = gs.solve(
            logistic(town.graph).take([i]),
            network,
            method,
            stop=stop,
            callback=tell,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds or 0.0,
        )
    costs = solution.costs
    found = {"rounds": costs.rounds, "gradients": costs.gradients, "iterations": solution.history[-1].iteration}
    np.savez(folder / f"result-{i}.npz", x=solution.x[0], status=solution.status.name, **found)
