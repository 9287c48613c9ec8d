"""Agents as real processes on loopback, a proxy that can be cut, and an injector, for the tests of the peers' links.

An agent mixes its vector with those of its neighbours for some rounds, writes checkpoints of its own, and leaves its
result, or its error, in a file.
"""

import contextlib
import json
import logging
import os
import socket
import ssl
import sys
import threading
import time
import warnings
from multiprocessing.forkserver import set_forkserver_preload
from pathlib import Path

import numpy as np
from faulty_proxy import Relay
from forked import Process

from gradslide.network.peers import wire
from gradslide.network.peers.errors import PeerError
from gradslide.network.peers.keys import make_key_pair, read_secret
from gradslide.network.peers.links import Links, Neighbour
from gradslide.network.peers.neighbour import free_addresses
from gradslide.network.peers.tls import tls_context
from gradslide.network.peers.wire import Kind, Message

SIZE = 16

# Every agent is a fork of a process that has imported everything: it starts at once.
set_forkserver_preload(["peers_processes"])
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])


def drift(agent, round):
    """What an agent adds of its own in a round."""
    return np.random.default_rng([agent, round]).standard_normal(SIZE)


def mix(x, received, agent, round):
    """The next vector from the own one and those received, in the order of the neighbours' names."""
    return (x + sum(received[name] for name in sorted(received))) / (1 + len(received)) + drift(agent, round)


def undisturbed(edges, rounds):
    """The vectors of all agents after some rounds, without any network."""
    count = 1 + max(max(edge) for edge in edges)
    x = [drift(agent, -1 % 2**32) for agent in range(count)]
    for round in range(rounds):
        around = {i: {f"a{j}": x[j] for e in edges for j in e if i in e and j != i} for i in range(count)}
        x = [mix(x[i], around[i], i, round) for i in range(count)]
    return x


class Agents:
    """Agents on a graph, each with keys, an address and a file for its settings; started as processes at will."""

    def __init__(self, folder, edges, **common):
        self.folder, self.edges, self.common = Path(folder), edges, common
        self.count = 1 + max(max(edge) for edge in edges)
        self.keys = [make_key_pair(f"a{i}", folder) for i in range(self.count)]
        self.addresses = free_addresses(self.count)
        self.seen_at = {}  # (who dials, whom): another address, of a proxy
        self.silent = set()  # agents that do not listen
        self.processes = []

    def neighbours(self, i):
        return [j for edge in self.edges for j in edge if i in edge and j != i]

    def neighbour(self, i, j):
        """How agent i sees its neighbour j."""
        address = None if j in self.silent else self.seen_at.get((i, j), self.addresses[j])
        return Neighbour(f"a{j}", address, self.keys[j].public)

    def links(self, i, **other):
        """The links of agent i, here in the process of the test."""
        options = {"run_id": "test", "settings": {"method": "mix"}, "deadline": 20.0}
        options.update({name: self.common[name] for name in (*options, "size_limit") if name in self.common})
        options.update(other)
        listen = None if i in self.silent else self.addresses[i]
        return Links(self.keys[i], listen, [self.neighbour(i, j) for j in self.neighbours(i)], **options)

    def start(self, i, **other):
        seen = [self.neighbour(i, j) for j in self.neighbours(i)]
        settings = {
            "agent": i,
            "secret": str(self.folder / f"a{i}.secret"),
            "listen": None if i in self.silent else self.addresses[i],
            "neighbours": [[n.name, n.address, n.public_key] for n in seen],
            "files": str(self.folder / f"a{i}"),
            "run_id": "test",
            "settings": {"method": "mix"},
            "deadline": 20.0,
            "rounds": 50,
            "checkpoint_every": 0,
            "pause": 0.0,
            **self.common,
            **other,
        }
        process = Process(target=run_agent, args=(settings,), daemon=True)
        process.start()
        self.processes.append(process)
        return process

    def result(self, i):
        return np.load(self.folder / f"a{i}.result.npy")

    def error(self, i):
        return json.loads((self.folder / f"a{i}.error").read_text())

    def log(self, i):
        return (self.folder / f"a{i}.log").read_text()

    def round(self, i):
        """The round an agent was in when it last said so."""
        try:
            return int((self.folder / f"a{i}.round").read_text() or 0)
        except FileNotFoundError:
            return -1

    def wait_for_round(self, i, round, seconds=20):
        wait_until(lambda: self.round(i) >= round, seconds, f"agent {i} to be in round {round}")

    def finish(self, *processes, seconds=30):
        """Exit codes of processes, by default of all."""
        for process in processes or self.processes:
            process.join(seconds)
        return [process.exitcode for process in processes or self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self.processes:
            process.kill()
            process.join(10)


def together(*functions):
    """What functions give, or the errors they raise, each in a thread of its own."""
    results = [None] * len(functions)

    def run(place, function):
        try:
            results[place] = function()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    return results


def opened(agents, *which, **options):
    links = [agents.links(i, **options) for i in which or range(agents.count)]
    assert together(*(each.open for each in links)) == [None] * len(links)
    return links


def closed(*links):
    assert together(*(each.close for each in links)) == [None] * len(links)


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.01)


class Proxy(Relay):
    """Passes TCP on to an address; can be cut (connections end, new ones are refused) and mended. `seen`: all bytes."""

    def __init__(self, target):
        self.seen = bytearray()
        self._swallowing = set()
        super().__init__(target)

    def mend(self):
        self.listen()

    def cut(self):
        self.close()

    def swallow(self):
        """From now on the connections there are pass nothing on; new ones do."""
        with self._lock:
            self._swallowing.update(self._open)

    def parts_of(self, data, number, direction, chunk):
        with self._lock:
            self.seen += data
            is_passed = number not in self._swallowing
        if is_passed:
            yield data


class Injector:
    """A connection of its own with any key, to say anything to an agent."""

    def __init__(self, keys, address, server_key, context=None):
        port = int(address.rpartition(":")[2])
        context = context or tls_context(keys, [server_key], server=False)
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        try:
            self.socket = context.wrap_socket(plain)
        finally:
            plain.close()  # a wrapped one has let go of it

    def send(self, frame):
        self._read()
        self.socket.sendall(len(frame).to_bytes(4, "little") + frame)

    def _read(self):
        """What is not read would fill the pipe. ConnectionError if the other side has hung up."""
        self.socket.settimeout(0)
        try:
            while self.socket.recv(65536):
                pass
            raise ConnectionResetError("the other side has hung up")
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self.socket.settimeout(10)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class Partner:
    """Agent 1 here, honest, beside an injector with the same key and session; agent 0 is a process, the victim."""

    def __init__(self, agents, rounds, **victim):
        self.agents, self.rounds = agents, rounds
        self.process = agents.start(0, rounds=rounds, **victim)
        self.links = agents.links(1)
        self.links.open()
        self.edge = self.links._thread.peers["a0"].outgoing
        self.session = self.links._thread._session
        self.injector = Injector(agents.keys[1], agents.addresses[0], agents.keys[0].public)

    def frame(self, kind=Kind.DATA, round=0, content=None, edge=None, session=None, **fields):
        content = np.zeros(SIZE) if content is None and kind is Kind.DATA else content
        return wire.encode(Message(kind, session or self.session, round, content=content, **fields), edge or self.edge)

    def run(self, inject):
        """All rounds, with something injected before each."""
        x = drift(1, -1 % 2**32)
        for round in range(self.rounds):
            inject(round)
            x = mix(x, self.links.exchange({"a0": x}, {"a0": (np.float64, (SIZE,))}), 1, round)
        self.links.close()
        self.injector.close()
        assert self.agents.finish() == [0]
        for mine, theirs in zip((self.agents.result(0), x), undisturbed([(0, 1)], self.rounds), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def memory(process):
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _checkpoint(path, round, x, kept):
    arrays = {f"{name}:{each}": array for name, arrays in kept.items() for each, array in arrays.items()}
    with open(f"{path}.new", "wb") as file:
        np.savez(file, round=round, x=x, **arrays)
    Path(f"{path}.new").replace(path)


def _resume(path):
    with np.load(path) as file:
        kept = {}
        for key in file.files:
            if ":" in key:
                name, each = key.rsplit(":", 1)
                kept.setdefault(name, {})[int(each)] = file[key]
        return int(file["round"]), file["x"], kept


def _agent(settings):
    me, files = settings["agent"], settings["files"]
    logging.basicConfig(filename=f"{files}.log", level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    neighbours = [Neighbour(*each) for each in settings["neighbours"]]
    names = [each.name for each in neighbours]
    options = {
        name: settings[name]
        for name in ("run_id", "settings", "deadline", "size_limit", "cache_limit")
        if name in settings
    }
    every, path = settings["checkpoint_every"], Path(f"{files}.checkpoint")
    round, x, kept = 0, drift(me, -1 % 2**32), {}
    if every and path.exists():
        round, x, kept = _resume(path)
    links = Links(read_secret(settings["secret"]), settings["listen"], neighbours, checkpoints=bool(every), **options)
    with links:
        links.open(round, cached=kept if settings.get("restore", True) else None)
        for round in range(links.round, settings["rounds"]):
            Path(f"{files}.round").write_text(str(round))
            received = links.exchange(dict.fromkeys(names, x), dict.fromkeys(names, (np.float64, (SIZE,))))
            x = mix(x, received, me, round)
            time.sleep(settings["pause"])
            if every and (round + 1) % every == 0:
                _checkpoint(path, links.round, x, links.cached())
                links.checkpointed(links.round)
    np.save(f"{files}.result.npy", x)


def run_agent(settings):
    """The whole life of an agent's process."""
    warnings.simplefilter("error")
    try:
        _agent(settings)
    except PeerError as error:
        said = {"kind": type(error).__name__, "neighbour": error.neighbour, "round": error.round, "text": str(error)}
        Path(f"{settings['files']}.error").write_text(json.dumps(said))
        sys.exit(3)
