"""What an exchange waits for: one message of each neighbour, and no other thread."""

import threading
from collections import Counter

import numpy as np
import pytest
from peers_processes import Agents, closed, opened, together

from gradslide.network.peers import io_thread
from gradslide.network.peers.connection import Connection
from gradslide.network.peers.io_thread import IOThread
from gradslide.network.peers.sockets import Sockets
from gradslide.network.peers.wire import HEADER_SIZE, Kind, decode

PAIR = [(0, 1)]
TRIANGLE = [(0, 1), (1, 2), (0, 2)]
ONE = np.float64, (1,)
ROUNDS = 20


@pytest.fixture
def idle_thread(monkeypatch):
    """The thread of the links serves only if the agent asks for it."""
    monkeypatch.setattr(io_thread, "_TAKE_OVER", 3600.0)


def one_round(links, numbers=3):
    """One exchange of all agents."""

    def exchange(each):
        names = list(each._thread.peers)
        form = np.float64, (numbers,)
        return lambda: each.exchange(dict.fromkeys(names, np.zeros(numbers)), dict.fromkeys(names, form))

    return together(*map(exchange, links))


@pytest.mark.parametrize("numbers", [3, 1000])
def test_an_exchange_takes_one_message_in_each_direction(tmp_path, idle_thread, numbers):
    """No request, no acknowledgement: one agent ends a round before the other has read anything of it."""
    zeros, form = np.zeros(numbers), (np.float64, (numbers,))
    with Agents(tmp_path, PAIR) as agents:
        links = opened(agents)
        one_round(links, numbers)
        for round in range(ROUNDS):
            deaf, other = links if round % 2 else links[::-1]
            may_read, serve = threading.Event(), deaf._thread.serve

            def read_later(*seconds, may_read=may_read, serve=serve):
                may_read.wait(30)
                serve(*seconds)

            deaf._thread.serve = read_later
            (to_other,), (to_deaf,) = deaf._thread.peers, other._thread.peers
            exchange = threading.Thread(target=deaf.exchange, args=({to_other: zeros}, {to_other: form}))
            exchange.start()
            other.exchange({to_deaf: zeros}, {to_deaf: form})
            assert not may_read.is_set()
            assert exchange.is_alive()
            may_read.set()
            exchange.join(30)
            assert not exchange.is_alive()
            deaf._thread.serve = serve
        closed(*links)


def test_an_exchange_needs_no_other_thread(tmp_path, monkeypatch, idle_thread):
    served, serve = Counter(), IOThread.serve

    def counted(self, *seconds):
        served[threading.current_thread().name] += 1
        serve(self, *seconds)

    with Agents(tmp_path, TRIANGLE) as agents:
        links = opened(agents)
        monkeypatch.setattr(IOThread, "serve", counted)
        for _ in range(ROUNDS):
            results = one_round(links)
            assert all(isinstance(each, dict) for each in results)
        assert served.total() > 0
        # What opening left unsent may still be sent.
        assert served["gradslide-peers"] < ROUNDS
        closed(*links)


def test_what_an_exchange_leaves_unsent_is_sent_by_the_thread(tmp_path, idle_thread):
    """More than a socket takes at once, while the other side has answered already."""
    many = np.arange(4_000_000.0)
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        one_round([a, b])
        small, large = together(
            lambda: a.exchange({"a1": many}, {"a1": ONE}),
            lambda: b.exchange({"a0": np.ones(1)}, {"a0": (np.float64, many.shape)}),
        )
        assert small["a1"] == 1.0
        np.testing.assert_array_equal(large["a0"], many)
        closed(a, b)


def test_a_checkpoint_is_announced_in_the_record_of_the_next_array(tmp_path, monkeypatch, idle_thread):
    kinds, parts, send, next_part = [], [], Sockets.send, Connection._next_part

    def sent(self, name, *frames):
        if self is a._thread._sockets:
            edge = a._thread.peers["a1"].outgoing
            kinds.append([decode(frame, edge, 2**20).kind for frame in frames])
        return send(self, name, *frames)

    def counted(self):
        part = next_part(self)
        if self in a._thread._sockets._masks:
            parts.append(len(part))
        return part

    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents, checkpoints=True)
        one_round([a, b])
        a.checkpointed(1)
        monkeypatch.setattr(Sockets, "send", sent)
        monkeypatch.setattr(Connection, "_next_part", counted)
        one_round([a, b])
        assert kinds[0][:2] == [Kind.DATA, Kind.ACK]
        assert parts[0] >= 2 * (4 + HEADER_SIZE) + 3 * 8
        assert b._thread.peers["a0"].covered == 1
        closed(a, b)


def exchanged(each, array):
    """What an agent with one neighbour gets for an array; from then on its thread serves, as it does by default."""
    (name,) = each._thread.peers
    (received,) = each.exchange({name: array}, {name: (array.dtype, array.shape)}).values()
    each._thread._is_needed.set()
    return received


class InterruptedTLS:
    """A socket; a call of the agent is interrupted once a part of an array is read or sent, before it is noted."""

    def __init__(self, tls, method, interrupted):
        self._tls, self._method, self._interrupted = tls, method, interrupted
        self._agent = threading.current_thread()

    def __getattr__(self, name):
        found = getattr(self._tls, name)

        def called(*given):
            result = found(*given)
            size = result if isinstance(result, int) else len(result)
            if size > 1000 and not self._interrupted and threading.current_thread() is self._agent:
                self._interrupted.append(name)
                raise KeyboardInterrupt
            return result

        return called if name == self._method else found


@pytest.mark.parametrize("method", ["recv", "send"])
def test_an_interrupt_amid_sending_or_receiving_costs_no_more_than_the_connection(tmp_path, idle_thread, method):
    """The connection is given up without a word, and the round repeated over another."""
    ones = np.ones(10_000)
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        one_round([a, b])
        interrupted, answers = [], []
        with a._thread.turn():
            for connection in a._thread._sockets._masks:
                connection._tls = InterruptedTLS(connection._tls, method, interrupted)
        other = threading.Thread(target=lambda: answers.append(exchanged(b, ones)))
        other.start()
        with pytest.raises(KeyboardInterrupt):
            exchanged(a, ones)
        np.testing.assert_array_equal(exchanged(a, ones), ones)
        other.join(30)
        np.testing.assert_array_equal(answers, [ones])
        for received in together(lambda: exchanged(a, ones), lambda: exchanged(b, ones)):
            np.testing.assert_array_equal(received, ones)
        assert not a._thread.rejections.last("neighbour a1")
        assert not b._thread.rejections.last("neighbour a0")
        closed(a, b)
