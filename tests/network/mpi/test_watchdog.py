"""The watchdog of MPI runs: real ranks that fail in every way, and ranks that end in good order."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="needs gradslide[mpi]")

MPIEXEC = Path(sys.prefix) / "bin" / "mpiexec"
PROGRAM = Path(__file__).parents[2] / "helpers" / "watchdog_program.py"
NOBODY = 2**30  # no process has this number
under_mpiexec = pytest.mark.skipif(not MPIEXEC.is_file(), reason="needs gradslide[mpi-local]")


class Run:
    """One start of the program, and what is left of it."""

    def __init__(self, folder, ranks, deed, who, when, timeout):
        arguments = [str(folder), str(timeout), deed, str(who), str(when)]
        command = [MPIEXEC, "-n", str(ranks), sys.executable, "-W", "error", PROGRAM, *arguments]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.seconds = time.monotonic() - began
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        self.pids = [int(path.read_text()) for path in folder.glob("*.pid")]
        self.told = {int(path.stem): path.read_text() for path in folder.glob("*.told")}
        self.finished = {int(path.stem) for path in folder.glob("*.done")}
        assert len(self.pids) == ranks + 1

    @property
    def failures(self):
        return [line for line in self.stderr.splitlines() if line.startswith("error: rank")]

    def left_over(self):
        deadline = time.monotonic() + 5
        while (alive := [pid for pid in self.pids if is_alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        return alive


def is_alive(pid):
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()
    return state != "Z"


@pytest.fixture
def run(tmp_path):
    def start(deed, who=0, when=0, ranks=2, timeout=10.0):
        done = Run(tmp_path, ranks, deed, who, when, timeout)
        assert done.left_over() == []
        return done

    return start


# Rank 0 has the hub.
FAILURES = [
    ("kill", 0, 3, "died in round 41;"),
    ("hang", 0, 2, "gave no sign of life for 2 s in round 41;"),
    ("raise", 0, 2, "raised ZeroDivisionError: nothing to divide by in round 41;"),
    ("refuse", 1, 3, "raised InputError: a radius must be positive; got -1; give its size in round 41;"),
    ("vanish", 1, 3, "died in round 41;"),
    ("exit", 1, 2, "ended before the others in round 40;"),
    ("kill", 2, 3, "died in round 41;"),
    ("hang", 1, 2, "gave no sign of life for 2 s in round 41;"),
    ("exit", 0, 2, "ended before the others in round 40;"),
]


@under_mpiexec
@pytest.mark.first(2)
@pytest.mark.parametrize(("deed", "who", "ranks", "what"), FAILURES, ids=[f"{f[0]}-{f[1]}" for f in FAILURES])
def test_a_failure_is_named_once_and_ends_all(run, deed, who, ranks, what):
    timeout = 2.0 if deed == "hang" else 60.0
    done = run(deed, who, 41, ranks, timeout)
    assert len(done.failures) == 1, done.stderr
    assert done.failures[0].startswith(f"error: rank {who} {what}")
    assert done.finished == set()
    assert done.seconds < 40
    assert ("Traceback" in done.stderr) == (deed == "raise")
    assert ("\nerror: a radius must be positive" in f"\n{done.stderr}") == (deed == "refuse")
    # A launcher that sees a death may kill all others before they hear of it.
    if deed not in ("kill", "vanish"):
        assert done.code != 0
        assert set(range(ranks)) - {who} <= set(done.told)
        assert set(done.told.values()) == set(done.failures)


@pytest.mark.first(1)
@under_mpiexec
@pytest.mark.parametrize(("deed", "timeout"), [("stranger", 10.0), ("suspend", 2.0)])
def test_an_orderly_run_says_nothing_and_its_ranks_may_stop_apart(run, deed, timeout):
    done = run(deed, 0, 60, timeout=timeout)
    assert (done.stdout, done.stderr, done.code, done.finished) == ("", "", 0, {0, 1})


@pytest.mark.slow
@under_mpiexec
def test_ranks_that_all_exit_alike_are_in_good_order_although_none_stopped(run):
    done = run("exit alike", ranks=3)
    assert (done.stdout, done.stderr, done.code, done.finished) == ("", "", 2, {0, 1, 2})


@pytest.mark.slow
@under_mpiexec
def test_a_rank_that_fails_after_its_part_does_not_end_the_others(run):
    done = run("raise after stop", 1)
    assert done.stderr.count("ZeroDivisionError:") == 1
    assert done.failures == []
    assert done.finished == {0}


@pytest.mark.slow
@under_mpiexec
def test_the_death_of_the_last_rank_is_noticed_by_those_that_have_stopped(run):
    done = run("last to die", 0, ranks=3)
    assert len(done.failures) == 1
    assert done.failures[0].startswith("error: rank 0 died in round 60;")
    assert done.finished == {1, 2}


@pytest.mark.slow
@under_mpiexec
def test_no_rank_goes_on_without_its_watchdog(run):
    done = run("lose the watchdog", 0, 41)
    assert set(done.told) == {0, 1}
    assert all(line.startswith("error: rank 0 lost its watchdog in round") for line in done.failures)


class Ranks:
    """A hub of its own, and ranks that are played by this test; only the first is on the host of the hub."""

    def __init__(self, size, timeout=20.0, pid=NOBODY, joined=None):
        from gradslide.network.mpi.rendezvous import _invite

        self.hub, invitation = _invite([("here", pid), *[("elsewhere", 0)] * (size - 1)], timeout, beat=0.05)
        self._invitation = replace(invitation, addresses=["127.0.0.1"])
        Path(invitation.board).unlink()
        self.wires = [self.join(rank) for rank in range(size if joined is None else joined)]

    def join(self, rank, **other):
        from gradslide.network.mpi.rendezvous import _join

        return _join(replace(self._invitation, **other), rank, shared=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for wire in self.wires:
            wire.socket.close()
        self.hub.wait(10)


def say(wire, round=0, calls=0, state="running", why=""):
    wire.send(round=round, calls=calls, state=state, why=why)


def answer(wire):
    """The first message that is more than a heartbeat."""
    wire.socket.settimeout(1)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for message in filter(None, wire.receive()):
            return message
    pytest.fail("no answer from the hub")


def test_a_rank_joins_once_and_with_the_token_alone(capfd):
    with Ranks(2, joined=1) as ranks:
        assert ranks.join(1, token="0000") is None
        assert ranks.join(0) is None
        assert ranks.join(2) is None
        ranks.wires.append(ranks.join(1))
        assert ranks.wires[1] is not None
    capfd.readouterr()


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_the_hub_kills_a_rank_that_hangs_on_its_host(sleeper, capfd):
    with Ranks(2, timeout=0.5, pid=sleeper.pid) as ranks:
        deadline = time.monotonic() + 20
        while sleeper.poll() is None and time.monotonic() < deadline:
            say(ranks.wires[1])
            time.sleep(0.02)
    assert sleeper.poll() == -signal.SIGKILL
    assert capfd.readouterr().err.startswith("error: rank 0 gave no sign of life for 0.5 s in round 0 or later;")


def test_a_process_ends_whatever_happens_on_its_way_and_kills_the_one_that_hangs(sleeper):
    code = f"""
from gradslide.network.mpi.termination import end_process
print("written", end="")
end_process(lambda: 1 / 0, hung={sleeper.pid})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "written")
    assert "ZeroDivisionError" in done.stderr
    assert sleeper.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(("others", "known"), [(2, 7), (12, 11)])
def test_a_round_known_from_heartbeats_alone_is_a_lower_bound(others, known, capfd):
    with Ranks(3) as ranks:
        say(ranks.wires[0], round=others)
        say(ranks.wires[1], round=12)
        say(ranks.wires[2], round=7)
        time.sleep(0.2)
        ranks.wires[2].socket.close()
        failure = answer(ranks.wires[1])["failure"]
    assert (failure["rank"], failure["round"], failure["exact"]) == (2, known, False)
    assert capfd.readouterr().err.startswith(f"error: rank 2 died in round {known} or later;")


def test_what_a_rank_raises_after_a_death_is_its_consequence(capfd):
    with Ranks(3) as ranks:
        os.kill(ranks.hub.pid, signal.SIGSTOP)
        say(ranks.wires[0], state="failed", why="raised Exception: a neighbour is gone")
        ranks.wires[2].socket.close()
        os.kill(ranks.hub.pid, signal.SIGCONT)
        assert answer(ranks.wires[1])["failure"]["rank"] == 2
    capfd.readouterr()


@pytest.mark.parametrize("ahead", [{"round": 4, "calls": 2}, {"round": 3, "calls": 3}])
def test_an_end_without_stop_is_a_failure_where_another_goes_on(ahead, capfd):
    with Ranks(2) as ranks:
        say(ranks.wires[1], round=3, calls=2, state="ended")
        say(ranks.wires[0], round=3, calls=2)
        time.sleep(0.3)
        say(ranks.wires[0], **ahead)
        failure = answer(ranks.wires[0])["failure"]
    assert (failure["rank"], failure["what"]) == (1, "ended before the others")
    assert capfd.readouterr().err.count("\n") == 1


def test_all_are_done_when_the_last_has_stopped(capfd):
    with Ranks(2) as ranks:
        say(ranks.wires[0], round=9, state="stopped")
        say(ranks.wires[1], round=12)
        time.sleep(0.3)
        say(ranks.wires[1], round=12, state="ended")
        assert answer(ranks.wires[0]) == answer(ranks.wires[1]) == {"done": True}
    assert ranks.hub.returncode == 0
    assert capfd.readouterr().err == ""


def test_a_lone_process_is_not_watched():
    code = """
import json, sys, threading
from mpi4py import MPI
from gradslide.network.mpi.watchdog import Watchdog
before = sys.excepthook
watchdog = Watchdog(MPI.COMM_SELF)
watchdog.start()
watchdog.round = 5
print(json.dumps([threading.active_count(), sys.excepthook is before, watchdog.round]))
watchdog.failed(ValueError())
watchdog.stop()
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == [1, True, 5]
    assert (done.returncode, done.stderr) == (0, "")


def test_the_hook_is_installed_and_removed():
    from gradslide.network.mpi.termination import install_excepthook

    before = sys.excepthook
    remove = install_excepthook(lambda error: None)
    assert sys.excepthook is not before
    remove()
    assert sys.excepthook is before
