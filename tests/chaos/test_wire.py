"""Every byte between agents may be damaged: nobody dies, and the answer is the same to the bit."""

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import numpy as np
import pytest
from faulty_proxy import FAULTS, TO_CLIENT, TO_SERVER, FaultyProxy
from peers_processes import Agents, undisturbed

PAIR = [(0, 1)]
ROUNDS = 40
# Chunks of a connection: the first are those of its set-up.
CHUNKS = 16


def run_through(folder, faults, silent=()):
    """Two agents that see each other through proxies with faults; how many were injected."""
    folder.mkdir()
    with ExitStack() as stack:
        agents = stack.enter_context(Agents(folder, PAIR, rounds=ROUNDS, deadline=60.0))
        agents.silent = set(silent)
        seen = [(i, j) for i, j in ((0, 1), (1, 0)) if j not in agents.silent]
        proxies = [FaultyProxy(agents.addresses[j], fault, i) for (i, j), fault in zip(seen, faults, strict=False)]
        for proxy, pair in zip(proxies, seen, strict=True):
            stack.enter_context(closing(proxy))
            agents.seen_at[pair] = proxy.address
        agents.start(0)
        agents.start(1)
        assert agents.finish(seconds=90) == [0, 0], [agents.log(i) for i in range(2)]
        for i, x in enumerate(undisturbed(PAIR, ROUNDS)):
            np.testing.assert_array_equal(agents.result(i), x)
        return sum(sum(proxy.injected.values()) for proxy in proxies)


def once(kind, direction, chunk):
    """One fault in the first connection, none in others."""
    return lambda connection, where, number: kind if (connection, where, number) == (0, direction, chunk) else None


def at_random(seed, share):
    """Faults in this share of all chunks, in any connection. Which ones does not depend on who is first."""

    def fault(*chunk):
        noise = random.Random(f"{seed} {chunk}")
        return noise.choice(FAULTS) if noise.random() < share else None

    return fault


def all_of(cases, folder, at_a_time=6):
    """Run cases, most of which wait most of the time, side by side; how many faults were injected."""
    with ThreadPoolExecutor(at_a_time) as pool:
        done = [pool.submit(run_through, folder / str(number), *case) for number, case in enumerate(cases)]
        return sum(each.result() for each in done)


@pytest.mark.chaos
@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("direction", [TO_SERVER, TO_CLIENT])
def test_one_fault_at_every_chunk(tmp_path, kind, direction):
    """The only connection there is: agent 0 does not listen."""
    chunks = range(CHUNKS)
    injected = all_of([([once(kind, direction, chunk)], [0]) for chunk in chunks], tmp_path)
    print(f"{kind}, {'to the server' if direction == TO_SERVER else 'to the client'}: {injected} faults, same answer")
    assert injected >= CHUNKS // 2


@pytest.mark.chaos
@pytest.mark.parametrize("share", [0.02, 0.1])
@pytest.mark.parametrize("silent", [(), (0,)], ids=["both listen", "one listens"])
def test_faults_at_random_in_all_connections(tmp_path, share, silent):
    cases = [([at_random(2 * seed, share), at_random(2 * seed + 1, share)], silent) for seed in range(12)]
    injected = all_of(cases, tmp_path)
    print(f"{share:.0%} of all chunks: {injected} faults, same answer")
    assert injected >= 12


def test_a_few_faults(tmp_path):
    """Without those that take seconds to notice."""
    cases = [([once(kind, direction, 3)], [0]) for kind in ("flip", "duplicate", "cut") for direction in (0, 1)]
    assert all_of(cases, tmp_path) == len(cases)


# The proxy itself


@pytest.fixture
def server():
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(10)
        yield listening


def address_of(server):
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def connected(proxy, server):
    near = socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    far, _ = server.accept()
    far.settimeout(10)
    return near, far


def test_a_closed_proxy_accepts_nobody_and_leaves_nothing(server):
    before = set(threading.enumerate())
    proxy = FaultyProxy(address_of(server), once("flip", TO_SERVER, 99))
    near, far = connected(proxy, server)
    proxy.close()
    with near, far:
        assert (near.recv(1), far.recv(1)) == (b"", b"")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10)
    assert set(threading.enumerate()) <= before
    # Its address is free again.
    proxy.listen()
    proxy.close()


def test_a_proxy_passes_on_the_end_of_one_direction_alone(server):
    with closing(FaultyProxy(address_of(server), once("flip", TO_SERVER, 99))) as proxy:
        near, far = connected(proxy, server)
        with near, far:
            near.sendall(b"question")
            near.shutdown(socket.SHUT_WR)
            asked = b"".join(iter(lambda: far.recv(100), b""))
            far.sendall(b"answer")
            assert (asked, near.recv(100)) == (b"question", b"answer")


@pytest.mark.parametrize("fault", ["flip", "truncate"])
def test_what_a_fault_does_follows_from_the_seed(server, fault):
    seen = []
    for seed in (1, 1, 2):
        with closing(FaultyProxy(address_of(server), once(fault, TO_SERVER, 0), seed)) as proxy:
            near, far = connected(proxy, server)
            with near, far:
                near.sendall(bytes(1000))
                near.shutdown(socket.SHUT_WR)
                seen.append(b"".join(iter(lambda far=far: far.recv(2000), b"")))
            assert proxy.injected[fault] == 1
    assert seen[0] == seen[1] != seen[2]
