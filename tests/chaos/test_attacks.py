"""A neighbour with a valid key, or somebody without any, attacks: the run goes on, or ends with the cause; memory
stays bounded.
"""

import contextlib
import os
import socket
import time
from types import SimpleNamespace

import numpy as np
import pytest
from peers_agents import Agent, Town
from peers_processes import Agents, Injector, Partner, memory, wait_until

import gradslide as gs
from gradslide.network.peers.handshake import Handshake
from gradslide.network.peers.rounds import Position, Purpose
from gradslide.network.peers.wire import TEXT_LIMIT, Kind

MIB = 2**20


class Grown:
    """How much memory a process takes more than before: the most that was seen."""

    def __init__(self, process):
        self._process, self._before, self.most = process, memory(process), 0

    def look(self):
        with contextlib.suppress(OSError, IndexError):
            self.most = max(self.most, memory(self._process) - self._before)


def attacked(tmp_path, attack, rounds=20, **victim):
    """A run in the middle of which agent 1 attacks agent 0; how much memory that one took."""
    with Agents(tmp_path, [(0, 1)]) as agents:
        partner = Partner(agents, rounds, **victim)
        grown = []

        def inject(round):
            if round == 5:
                grown.append(Grown(partner.process))
                attack(agents, partner, grown[0])
            if grown:
                grown[0].look()

        partner.run(inject)
        return grown[0].most


def injector(agents):
    return Injector(agents.keys[1], agents.addresses[0], agents.keys[0].public)


@pytest.mark.chaos
@pytest.mark.parametrize("differs", [False, True])
def test_long_handshakes(tmp_path, differs):
    settings = {"method": "mix", **({f"s{i}": "x" * 230 for i in range(240)} if differs else {})}
    text = Handshake("test", settings, bytes(8), None).text()
    text += " " * (TEXT_LIMIT - 200 - len(text))

    def attack(agents, partner, grown):
        for number in range(2000):
            partner.injector.send(partner.frame(Kind.HANDSHAKE, 5, text, session=number.to_bytes(8, "little")))
            grown.look()

    grown = attacked(tmp_path, attack, rounds=7)
    print(f"2,000 handshakes of 60 kB: the run goes on, {grown / MIB:.0f} MiB more")
    assert grown < 40 * MIB


@pytest.mark.chaos
def test_huge_messages(tmp_path):
    """The most that is announced without being cut off at once, and more."""
    limit = 2**24

    def attack(agents, partner, grown):
        for _ in range(10):
            sender = injector(agents)
            with contextlib.suppress(OSError):
                sender.send(bytes(limit + 100))
            grown.look()
            with contextlib.suppress(OSError):
                sender.socket.sendall((2**32 - 1).to_bytes(4, "little") + bytes(MIB))
            sender.close()

    grown = attacked(tmp_path, attack, size_limit=limit)
    print(f"10 messages of 16 MiB and 10 of 4 GiB: the run goes on, {grown / MIB:.0f} MiB more")
    assert grown < 10 * limit


@pytest.mark.chaos
def test_floods_of_connections(tmp_path):
    """With a valid key, and without any."""

    def attack(agents, partner, grown):
        port = int(agents.addresses[0].rpartition(":")[2])
        for _ in range(100):
            held.append(injector(agents).socket)
            grown.look()
        held.extend(socket.create_connection(("127.0.0.1", port)) for _ in range(1000))
        time.sleep(1)
        open_files.append(len(os.listdir(f"/proc/{partner.process.pid}/fd")))
        grown.look()

    held, open_files = [], []
    grown = attacked(tmp_path, attack)
    for each in held:
        each.close()
    print(f"1,100 connections: the run goes on, {open_files[0]} files open, {grown / MIB:.0f} MiB more")
    assert open_files[0] < 120
    assert grown < 40 * MIB


@pytest.mark.chaos
def test_silence(tmp_path):
    """It shakes hands, and then says nothing: the error names it, within the deadline."""
    with Agents(tmp_path, [(0, 1), (0, 2)], rounds=30, deadline=3.0) as agents:
        agents.start(0)
        agents.start(2)
        links = agents.links(1)
        links.open()
        started = time.monotonic()
        assert agents.finish() == [3, 3]
        assert time.monotonic() - started < 15
        assert agents.error(0)["neighbour"] == "a1"
        assert "a1" in agents.error(2)["text"]
        links.close("test")
    print("silence: all ended within the deadline, and named it")


@pytest.mark.chaos
@pytest.mark.parametrize("many", [2, 100_000])
def test_false_lists_of_links(tmp_path, many):
    graph, diameter = gs.Graph.path(2), 3
    town = Town.on(graph)
    victim = Agent(town, tmp_path, 0, method=gs.AutoPDS(), stop=gs.Stop(iterations=5), diameter=diameter)
    rng = np.random.default_rng(0)
    with town.peers(1, diameter=diameter) as attacker:
        attacker._rounds.connect()
        grown = Grown(SimpleNamespace(pid=victim.pid))
        with contextlib.suppress(Exception):
            for _ in range(diameter):
                words = rng.integers(0, 2**32, size=16 * many).astype(float)
                attacker._rounds.exchange(Position(0, Purpose.DISCOVERY, 0), {"agent 0": words})
                grown.look()
        end = victim.end()
    print(f"{many} false links: {end[:120]}, {grown.most / MIB:.0f} MiB more")
    assert isinstance(end, str)
    assert ("nothing from" if many == 2 else "its list of links there are more than 100000") in end
    assert grown.most < 150 * MIB


def test_one_attack_of_each_kind(tmp_path):
    def attack(agents, partner, grown):
        partner.injector.send(partner.frame(Kind.HANDSHAKE, 5, "{" + " " * 60_000))
        with contextlib.suppress(OSError):
            partner.injector.socket.sendall((2**32 - 1).to_bytes(4, "little") + bytes(1000))
        port = int(agents.addresses[0].rpartition(":")[2])
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
        wait_until(lambda: "too many connections" in agents.log(0), 5, "the flood to be noticed")
        for each in held:
            each.close()

    assert attacked(tmp_path, attack) < 40 * MIB
