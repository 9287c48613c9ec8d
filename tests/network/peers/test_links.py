"""Rounds of exchanges: what arrives, what is refused, and what an error says."""

import functools
import logging
import os
import signal
import socket
import threading
import time

import numpy as np
import pytest
from peers_processes import Agents, closed, opened, together, undisturbed, wait_until

from gradslide._support.errors import InputError
from gradslide.network.peers.connection import Connection, ConnectionLost
from gradslide.network.peers.errors import LinksEnded, PeerError, SettingsDiffer
from gradslide.network.peers.io_thread import IOThread
from gradslide.network.peers.links import Links
from gradslide.network.peers.neighbour import Neighbour
from gradslide.network.peers.rejection_log import RejectionLog
from gradslide.network.peers.sockets import Sockets

PAIR = [(0, 1)]
TRIANGLE = [(0, 1), (1, 2), (0, 2)]
ONE = {"a0": (np.float64, (1,)), "a1": (np.float64, (1,))}


def one_round(a, b, x=1.0, y=2.0):
    return together(
        lambda: a.exchange({"a1": np.array([x])}, {"a1": ONE["a1"]}),
        lambda: b.exchange({"a0": np.array([y])}, {"a0": ONE["a0"]}),
    )


def test_every_neighbour_gets_its_own_array(tmp_path):
    """Of different lengths, none at all, in both precisions and in two dimensions."""
    arrays = {
        (0, 1): np.arange(3.0),
        (1, 0): np.zeros(0),
        (1, 2): np.arange(4, dtype=np.float32),
        (2, 1): np.arange(6.0).reshape(2, 3),
        (0, 2): np.array([1e-310, -0.0]),
        (2, 0): np.arange(50_000.0),
    }
    with Agents(tmp_path, TRIANGLE) as agents:
        links = opened(agents)

        def turn(i):
            others = agents.neighbours(i)
            expected = {f"a{j}": (arrays[j, i].dtype, arrays[j, i].shape) for j in others}
            return [links[i].exchange({f"a{j}": arrays[i, j] for j in others}, expected) for _ in range(3)]

        for i, rounds in enumerate(together(*(lambda i=i: turn(i) for i in range(3)))):
            for received in rounds:
                for j in agents.neighbours(i):
                    assert received[f"a{j}"].dtype == arrays[j, i].dtype
                    assert received[f"a{j}"].tobytes() == arrays[j, i].tobytes()
                    received[f"a{j}"] += 1  # it is the caller's own
        assert [each.round for each in links] == [3, 3, 3]
        closed(*links)


def test_an_array_that_is_sent_may_be_changed_at_once(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        x = np.zeros(100_000)

        def run(links, other, x):
            for round in range(5):
                x[:] = round
                received = links.exchange({other: x}, {other: (np.float64, x.shape)})[other]
                x[:] = np.pi
                assert (received == round).all()

        assert together(lambda: run(a, "a1", x), lambda: run(b, "a0", x.copy())) == [None, None]
        closed(a, b)


def test_neighbours_with_other_settings_find_out_and_say_what_differs(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a = agents.links(0, run_id="r1", settings={"method": "PDS", "d": "10", "schedule": "convex"})
        b = agents.links(1, run_id="r2", settings={"method": "SPDS", "d": "10"})
        one, other = together(a.open, b.open)
        for error, name in ((one, "a1"), (other, "a0")):
            assert isinstance(error, SettingsDiffer)
            assert error.neighbour == name
            assert error.differences.keys() == {"run id", "method", "schedule"}
        assert "method (PDS here, SPDS there)" in str(one)
        assert "method (SPDS here, PDS there)" in str(other)
        assert "schedule (convex here, not set there)" in str(one)
        a.close("other settings")
        b.close("other settings")


def test_who_leaves_because_of_other_settings_stays_until_the_neighbour_knows(tmp_path, monkeypatch):
    """Also when the first frames are lost."""
    with Agents(tmp_path, PAIR) as agents:
        a = agents.links(0, settings={"method": "one"})
        b = agents.links(1, settings={"method": "two"}, deadline=10)
        lost, send = [], Sockets.send

        def lossy(self, name, frame):
            if name == "a1" and len(lost) < 5:
                lost.append(frame)
                return True
            return send(self, name, frame)

        monkeypatch.setattr(Sockets, "send", lossy)
        one, other = together(a.open, b.open)
        assert "method (one here, two there)" in str(one)
        assert "method (two here, one there)" in str(other)
        assert len(lost) == 5


def test_other_settings_are_found_between_processes_whoever_comes_first(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        agents.start(0, settings={"method": "one"})
        time.sleep(0.3)
        agents.start(1, settings={"method": "two"})
        assert agents.finish() == [3, 3]
        assert "method (one here, two there)" in agents.error(0)["text"]
        assert "method (two here, one there)" in agents.error(1)["text"]


def test_a_neighbour_that_comes_with_other_settings_in_the_middle_changes_nothing(tmp_path):
    with Agents(tmp_path, PAIR, rounds=40, pause=0.02, checkpoint_every=5) as agents:
        first, other = agents.start(0), agents.start(1)
        agents.wait_for_round(1, 12)
        first.kill()
        first.join(10)
        wrong = agents.start(0, settings={"method": "wrong"})
        assert agents.finish(wrong) == [3]
        assert agents.error(0)["kind"] == "SettingsDiffer"
        right = agents.start(0)
        assert agents.finish(other, right) == [0, 0]
        assert "settings differ: method (mix here, wrong there)" in agents.log(1)


def test_nobody_there_is_an_error_that_says_what_to_check(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a = agents.links(0, deadline=30)
        with pytest.raises(
            PeerError, match=r"neighbour a1: no handshake.* within 0\.5 s \(never heard from\); check"
        ) as e:
            a.open(7, deadline=0.5)
        assert (e.value.neighbour, e.value.round) == ("a1", 7)
        a.close("nobody there")


def test_who_computes_for_long_is_told_from_who_is_gone(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents, deadline=1.5)
        one_round(a, b)
        with pytest.raises(
            PeerError, match=r"nothing arrived for round 1 within 1\.5 s \(it is there, in round 1, and computes"
        ):
            a.exchange({"a1": np.zeros(1)}, {"a1": ONE["a1"]})
        b.close("the disk is full")
        with pytest.raises(PeerError, match=r"round 1 within .*\(it left in round 1: the disk is full\)"):
            a.exchange({"a1": np.zeros(1)}, {"a1": ONE["a1"]})
        a.close("gone")


@pytest.mark.slow
def test_who_waits_itself_is_said_to(tmp_path):
    with Agents(tmp_path, [(0, 1), (1, 2)]) as agents:
        a, b, c = (agents.links(i, deadline=seconds) for i, seconds in enumerate((1.5, 5.0, 1.5)))
        assert together(a.open, b.open, c.open) == [None] * 3
        received = {"a0": ONE["a0"], "a2": ONE["a0"]}
        x = np.zeros(1)

        def first():
            a.exchange({"a1": x}, {"a1": ONE["a1"]})
            return a.exchange({"a1": x}, {"a1": ONE["a1"]})

        one, other = together(first, lambda: (time.sleep(0.4), b.exchange({"a0": x, "a2": x}, received)))
        assert (one.neighbour, one.round) == ("a1", 1)
        assert "it is there, in round 0, and waits itself" in str(one)
        assert (other.neighbour, other.round) == ("a2", 0)
        for each in (a, b, c):
            each.close("test")


def test_a_neighbour_that_computes_is_served_and_heard_meanwhile(tmp_path):
    """Its thread greets, answers and replays while the agent does not look at its links."""
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents, checkpoints=True)
        first = one_round(a, b, x=5.0)
        b.close("killed, as it were")
        again = agents.links(1, checkpoints=True)
        again.open(0)  # a does nothing at all
        assert again.exchange({"a0": np.array([2.0])}, {"a0": ONE["a0"]})["a0"] == first[1]["a0"] == 5.0
        closed(a, again)


def test_ctrl_c_ends_the_wait_and_the_round_can_be_tried_again(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            a.exchange({"a1": np.array([1.0])}, {"a1": ONE["a1"]})
        assert a.round == 0
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


def test_ctrl_c_ends_the_wait_for_the_turn_and_the_thread_goes_on_to_serve(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        held, released = threading.Event(), threading.Event()

        def hold():
            with a._thread.lock:
                held.set()
                released.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait(30)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            a.cached()
        served = a._thread._served
        released.set()
        holder.join(30)
        # Once may be what it had begun before.
        wait_until(lambda: a._thread._served >= served + 3, 10, "the thread to serve")
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


def test_ctrl_c_amid_the_goodbye_ends_the_thread_all_the_same(tmp_path, monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        monkeypatch.setattr(a, "_wait_quietly", interrupted)
        with pytest.raises(KeyboardInterrupt):
            a.close("test")
        assert not a._thread._thread.is_alive()
        b.close("test")


@pytest.mark.parametrize("step", ["_try_later", "unregister", "close"])
def test_ctrl_c_amid_the_loss_of_a_connection_leaves_nothing_of_it(tmp_path, monkeypatch, step):
    """It is the only one: another is needed, and dialled."""
    with Agents(tmp_path, PAIR) as agents:
        agents.silent.add(0)
        a, b = opened(agents)
        sockets = a._thread._sockets

        def interrupted(*given):
            raise KeyboardInterrupt

        with a._thread.turn():
            (connection,) = sockets._masks
            connection.broken = ConnectionLost()
            owner = {"_try_later": sockets, "unregister": sockets._selector, "close": connection}[step]
            with monkeypatch.context() as patch:
                patch.setattr(owner, step, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    a._thread.serve(0.0)
            a._thread.serve(0.0)
            assert connection not in sockets._masks
            assert connection.fileno() == -1
            assert connection not in [key.fileobj for key in sockets._selector.get_map().values()]
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


class TookTooLong(TimeoutError):
    """What a handler raises. The standard library has other uses for its base class."""


def time_is_up(*given):
    raise TookTooLong


@pytest.fixture
def alarm():
    """SIGALRM raises an error, as programs do that bound a time; ring(seconds, handler) sends it."""
    before = signal.signal(signal.SIGALRM, time_is_up)

    def ring(seconds=0.0, handler=time_is_up):
        signal.signal(signal.SIGALRM, handler)
        if seconds:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        else:
            signal.raise_signal(signal.SIGALRM)

    yield ring
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("handler", [time_is_up, functools.partial(time_is_up)], ids=["function", "object"])
def test_an_error_of_a_signal_handler_ends_the_wait_and_the_round_can_be_tried_again(tmp_path, alarm, handler):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        alarm(0.3, handler)
        with pytest.raises(TookTooLong):
            a.exchange({"a1": np.array([1.0])}, {"a1": ONE["a1"]})
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


PLACES = [(IOThread, "_handle"), (IOThread, "_tick"), (Sockets, "_frames"), (Sockets, "_check")]
PLACES += [(Connection, "_receive"), (Connection, "_next_part")]


@pytest.mark.parametrize(("owner", "method"), PLACES)
def test_an_error_of_a_signal_handler_amid_the_work_is_the_callers(tmp_path, monkeypatch, alarm, owner, method):
    """Neither the links nor a connection take it for an error of their own."""
    agent, plain, rung, raised = threading.current_thread(), getattr(owner, method), [], []

    def interrupted(self, *given):
        if threading.current_thread() is agent and not rung:
            rung.append(method)
            alarm()
        return plain(self, *given)

    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        monkeypatch.setattr(owner, method, interrupted)
        other = threading.Timer(0.3, lambda: b.exchange({"a0": np.array([2.0])}, {"a0": ONE["a0"]}))
        other.start()
        while a.round == 0:
            try:
                assert a.exchange({"a1": np.array([1.0])}, {"a1": ONE["a1"]})["a1"] == 2.0
            except TookTooLong as error:
                raised.append(error)
        assert len(raised) == len(rung) == 1
        other.join(30)
        assert not a._thread.rejections.last("neighbour a1")
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


def test_without_checkpoints_two_rounds_are_kept(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        for _ in range(20):
            one_round(a, b)
        assert list(a.cached()["a1"]) == [18, 19]
        assert a.cached_bytes < 300
        with pytest.raises(InputError, match="checkpoints=True"):
            a.checkpointed(3)
        closed(a, b)


def test_with_checkpoints_all_is_kept_until_they_cover_it(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = agents.links(0), agents.links(1, checkpoints=True)
        together(a.open, b.open)
        for round in range(10):
            one_round(a, b, x=float(round))
        assert {each: float(array[0]) for each, array in a.cached()["a1"].items()} == {each: each for each in range(10)}
        assert list(b.cached()["a0"]) == [8, 9], "a writes no checkpoints"
        b.checkpointed(7)
        wait_until(lambda: list(a.cached()["a1"]) == [7, 8, 9], 5, "the acknowledgement")
        with pytest.raises(InputError, match="up to 10"):
            b.checkpointed(11)
        closed(a, b)


def test_the_cache_has_a_limit_and_a_warning(tmp_path, caplog):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents, checkpoints=True, cache_limit=5 * 8)
        with caplog.at_level(logging.WARNING, "gradslide.peers"):
            for _ in range(20):
                one_round(a, b)
        assert list(a.cached()["a1"]) == list(range(15, 20))
        warnings = [r for r in caplog.records if "neighbour a1: more than 40 bytes" in r.getMessage()]
        assert len(warnings) == 1
        b.close("killed, as it were")
        again = agents.links(1, checkpoints=True, deadline=2.0)
        errors = together(lambda: again.open(10), lambda: a.exchange({"a1": np.zeros(1)}, {"a1": ONE["a1"]}))
        assert "the limit of the cache was reached" in str(errors[1])
        a.close(str(errors[1]))
        again.close("test")


def test_close_is_quiet_and_final(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        one_round(a, b)
        closed(a, b)
        a.close()
        with pytest.raises(InputError, match="must be open"):
            a.exchange({"a1": np.zeros(1)}, {"a1": ONE["a1"]})
        agents.links(0).close()
        assert not [thread for thread in threading.enumerate() if thread.name == "gradslide-peers"]


def test_close_warns_when_a_neighbour_lacks_the_last_messages(tmp_path, caplog):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        one_round(a, b)
        # Nothing arrives from the other any more, so that it never says how far it is.
        with a._thread.turn():
            a._thread._sockets.receive = lambda: iter(())
            a._thread.peers["a1"].at = a._thread.peers["a1"].need = 0
        with caplog.at_level(logging.WARNING, "gradslide.peers"):
            a.close(deadline=0.3)
        assert "may lack the last messages: a1" in caplog.text
        b.close("test")


def test_an_error_in_the_thread_reaches_the_agent(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)

        def fail():
            raise ZeroDivisionError

        a._thread._tick = fail
        with pytest.raises(LinksEnded, match=r"thread of the links has ended \(ZeroDivisionError"):
            a.exchange({"a1": np.zeros(1)}, {"a1": ONE["a1"]})
        a.close()
        b.close("test")


def test_nothing_is_sent_once_the_thread_has_ended(tmp_path, monkeypatch):
    """Sockets are closed with the lock held, and not used afterwards."""
    is_guarded, close = [], Sockets.close

    def guarded_close(self):
        taken = []
        other = threading.Thread(target=lambda: taken.append(a._thread.lock.acquire(blocking=False)))
        other.start()
        other.join()
        is_guarded.append(taken == [False])
        close(self)

    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)
        monkeypatch.setattr(Sockets, "close", guarded_close)
        a._thread._tick = lambda: 1 / 0
        wait_until(lambda: not a._thread._thread.is_alive(), 10, "the thread to end")
        assert is_guarded == [True]
        assert not a._thread._sockets.send("a1", b"frame")
        a._thread.send_due = lambda: pytest.fail("something was sent")
        with pytest.raises(LinksEnded):
            a.exchange({"a1": np.zeros(1)}, {"a1": ONE["a1"]})
        a.close()
        b.close("test")


def test_an_error_of_one_connection_ends_that_connection_alone(tmp_path, monkeypatch, caplog):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents)

        def fail(self):
            raise ZeroDivisionError("odd")

        monkeypatch.setattr(Connection, "shake_hands", fail)
        with (
            caplog.at_level(logging.WARNING, "gradslide.peers"),
            socket.create_connection(("127.0.0.1", int(agents.addresses[0].rpartition(":")[2]))) as other,
        ):
            other.sendall(b"x")
            wait_until(lambda: "its connection failed (ZeroDivisionError: odd)" in caplog.text, 10, "the loss")
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


def test_a_second_process_of_an_agent_is_refused_and_told(tmp_path, caplog):
    """Neither a good one nor one that fails takes the place of the first; nor one of another run."""
    with Agents(tmp_path, PAIR) as agents, caplog.at_level(logging.WARNING, "gradslide.peers"):
        agents.silent = {1}
        a, b = opened(agents)
        one_round(a, b)
        with pytest.raises(PeerError, match=r"a0: it refuses this process: another process with this agent's key"):
            agents.links(1).open()
        assert "neighbour a1: rejected: another process with its key" in caplog.text
        agents.links(1).fail("its builder failed")
        with pytest.raises(SettingsDiffer, match="run id"):
            agents.links(1, run_id="other").open()
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


@pytest.mark.slow
def test_a_first_process_that_hangs_is_replaced_and_told(tmp_path):
    with Agents(tmp_path, PAIR, rounds=500, pause=0.02, checkpoint_every=5) as agents:
        agents.silent = {1}
        other, first = agents.start(0), agents.start(1)
        agents.wait_for_round(1, 12)
        os.kill(first.pid, signal.SIGSTOP)
        second = agents.start(1)
        agents.wait_for_round(0, 20)
        os.kill(first.pid, signal.SIGCONT)
        assert agents.finish(first) == [3]
        assert "another process with this agent's key takes part already" in agents.error(1)["text"]
        assert agents.finish(other, second) == [0, 0]
        for i, x in enumerate(undisturbed(PAIR, 500)):
            np.testing.assert_array_equal(agents.result(i), x)


def test_without_a_place_for_temporary_files_there_is_an_input_error(tmp_path, monkeypatch):
    def fail(*unused, **ignored):
        raise FileNotFoundError(2, "No usable temporary directory found")

    with Agents(tmp_path, PAIR) as agents:
        links = agents.links(0)
        monkeypatch.setattr("tempfile.mkstemp", fail)
        with pytest.raises(InputError, match=r"an agent needs a folder for temporary files.*No usable temporary"):
            links.open()


def test_a_taken_address_is_an_input_error(tmp_path):
    with Agents(tmp_path, PAIR) as agents:
        a, _ = opened(agents)
        with pytest.raises(InputError, match="listen must be a free address"):
            agents.links(0).open()
        a.close("test")
        _.close("test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"listen": "127.0.0.1:5555"}, "listen must be tcp://host:port"),
        ({"listen": "tcp://127.0.0.1:0"}, "listen must be tcp://host:port"),
        ({"listen": None, "address": None}, "this agent or its neighbour b must listen"),
        ({"address": "tcp://nowhere"}, "the address of b must be tcp://host:port"),
        ({"public_key": "short"}, "43 characters"),
        ({"own": True}, "no neighbour of its own"),
        ({"twice": True}, "different names"),
        ({"none": True}, "at least one neighbour"),
        ({"deadline": 0}, "deadline must be > 0"),
        ({"deadline": float("nan")}, "deadline must be > 0"),
        ({"settings": {"d": 3}}, "must be texts"),
        ({"size_limit": 0}, "size_limit"),
    ],
)
def test_mistakes_are_said_at_once(tmp_path, change, message):
    with Agents(tmp_path, PAIR) as agents:
        one, other = agents.keys
        key = one.public if "own" in change else change.pop("public_key", other.public)
        neighbour = Neighbour("b", change.pop("address", "tcp://[::1]:5555"), key)
        neighbours = [] if "none" in change else [neighbour] * (2 if "twice" in change else 1)
        listen = change.pop("listen", "tcp://localhost:5556")
        options = {"run_id": "r", "settings": {}, **change}
        for name in ("own", "twice", "none"):
            options.pop(name, None)
        with pytest.raises(InputError, match=message):
            Links(one, listen, neighbours, **options)


@pytest.mark.parametrize(
    ("outgoing", "expected", "message"),
    [
        ({}, ONE["a1"], "outgoing must name every neighbour"),
        ({"a1": np.zeros(1)}, None, "expected must name every neighbour"),
        ({"a1": np.zeros(1, int)}, ONE["a1"], "float32 or float64"),
        ({"a1": np.zeros((1, 1, 1))}, ONE["a1"], "one or two dimensions"),
        ({"a1": np.zeros(100)}, ONE["a1"], "size_limit, 400 bytes"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_the_round(tmp_path, outgoing, expected, message):
    with Agents(tmp_path, PAIR) as agents:
        a, b = opened(agents, size_limit=400)
        with pytest.raises(InputError, match=message):
            a.exchange(outgoing, {} if expected is None else {"a1": expected})
        assert one_round(a, b)[0]["a1"] == 2.0
        closed(a, b)


@pytest.mark.parametrize("gap", [{3: np.zeros(1)}, {1: np.zeros(1), 3: np.zeros(1)}, {5: np.zeros(1)}])
def test_what_was_kept_must_lead_up_to_the_round(tmp_path, gap):
    with Agents(tmp_path, PAIR) as agents, pytest.raises(InputError, match="without a gap"):
        agents.links(0).open(5, cached={"a1": gap})


def test_a_flood_of_rejections_is_logged_in_numbers(caplog):
    rejections = RejectionLog(logging.getLogger("gradslide.peers"))
    with caplog.at_level(logging.WARNING, "gradslide.peers"):
        for count in range(1000):
            rejections.add("neighbour a", f"reason {count}")
        rejections.add("neighbour b", "another")
        rejections.close()
    assert len(caplog.records) == 20 + 1 + 1
    assert "neighbour a: 980 more rejected, at last: reason 999" in caplog.text
