"""Time exchanges between two agents: on loopback, relative to ZeroMQ, and over a link with latency.

    python benchmarks/peers.py

The first table is relative to plain ZeroMQ sockets with CURVE. Both are timed in turn, in the same
two processes, each on a core of its own. Times are the smallest of several batches.

The second table is relative to the time that a message takes from one agent to the other.
"""

import multiprocessing
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import zmq
from zmq.utils import z85

from gradslide.network.peers.keys import key_pair
from gradslide.network.peers.links import Links
from gradslide.network.peers.neighbour import HOST, Neighbour, free_addresses, host_and_port

# Numbers in an array, and exchanges in a batch.
SIZES = {22: 200, 1000: 200, 10_000: 100, 100_000: 20}
BATCHES = 15
# Seconds from one agent to the other, and the array sizes.
DELAY = 0.02
FAR_SIZES = {22: 20, 1000: 20, 10_000: 20}


def seconds_of(call: Callable[[], object], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - started) / repeats


def bare_socket(keys: list[bytes], address: str, which: int) -> zmq.Socket:
    """Return one end of a pair of sockets with CURVE."""
    end = zmq.Context.instance().socket(zmq.PAIR)
    own, other = (z85.encode(keys[i]) for i in (which, 1 - which))
    end.curve_secretkey, end.curve_publickey = own, zmq.curve_public(own)
    end.linger = 1000
    if which == 0:
        end.curve_server = True
        end.bind(address)
    else:
        end.curve_serverkey = zmq.curve_public(other)
        end.connect(address)
    return end


def opened_links(keys: list[bytes], listen: str | None, other: str | None, which: int) -> Links:
    neighbour = Neighbour("other", other, key_pair(keys[1 - which]).public)
    links = Links(key_pair(keys[which]), listen, [neighbour], run_id="bench", settings={})
    links.open()
    return links


def over(links: Links, message: np.ndarray) -> Callable[[], object]:
    """One exchange through the links of `gs.network.Peers`."""
    form = message.dtype, message.shape
    return lambda: links.exchange({"other": message}, {"other": form})


def compared(which: int, told: Connection, keys: list[bytes], addresses: list[str]) -> None:
    """Time both in turn; a bare exchange has no header, no checks, no resending."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[which % len(cores)]})
    end = bare_socket(keys, addresses[2], which)
    links = opened_links(keys, addresses[which], addresses[1 - which], which)
    for size, repeats in SIZES.items():
        message = np.ones(size)

        def bare(message: np.ndarray = message) -> None:
            end.send(message, copy=False)
            np.frombuffer(end.recv(copy=False).buffer)

        calls = bare, over(links, message)
        for call in calls:
            call()
        times = [[seconds_of(call, repeats) for call in calls] for _ in range(BATCHES)]
        told.send(np.min(times, axis=0))
    links.close()
    end.close()


def far(which: int, told: Connection, keys: list[bytes], addresses: list[str]) -> None:
    """Time exchanges with an agent that is reached over a link with latency."""
    links = opened_links(keys, addresses[0] if which == 0 else None, addresses[1] if which == 1 else None, which)
    for size, repeats in FAR_SIZES.items():
        exchange = over(links, np.ones(size))
        # TCP sends more at once when it has sent before.
        seconds_of(exchange, repeats)
        told.send(seconds_of(exchange, repeats))
    links.close()


def measured(side: Callable[..., None], count: int, keys: list[bytes], addresses: list[str]) -> list:
    """Return what the slower of two processes measured."""
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe(duplex=False) for _ in range(2)]
    sides = [spawn.Process(target=side, args=(which, pipe[1], keys, addresses)) for which, pipe in enumerate(pipes)]
    for process in sides:
        process.start()
    times = [[pipe[0].recv() for _ in range(count)] for pipe in pipes]
    for process in sides:
        process.join()
    return [np.maximum(*pair) for pair in zip(*times, strict=True)]


def delay_connections(listen: str, target: str) -> None:
    """Pass TCP on to a target; every byte arrives DELAY seconds later, in both directions."""
    server = socket.create_server(host_and_port(listen))

    def accept() -> None:
        while True:
            near = server.accept()[0]
            ends = near, socket.create_connection(host_and_port(target))
            for source, sink in (ends, ends[::-1]):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
                for job in ((take, source, under_way), (deliver, sink, under_way)):
                    threading.Thread(target=job[0], args=job[1:], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def take(source: socket.socket, under_way: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
    data = b"more"
    while data:
        data = source.recv(2**20)
        under_way.put((time.perf_counter() + DELAY, data))


def deliver(sink: socket.socket, under_way: "queue.SimpleQueue[tuple[float, bytes]]") -> None:
    while True:
        due, data = under_way.get()
        time.sleep(max(due - time.perf_counter(), 0.0))
        if not data:
            sink.shutdown(socket.SHUT_WR)
            return
        sink.sendall(data)


if __name__ == "__main__":
    keys, addresses = [os.urandom(32) for _ in range(2)], free_addresses(5)
    print(f"two agents on {HOST}; microseconds per exchange")
    print(f"{'numbers':>8} {'plain zmq CURVE':>15} {'ours':>8} {'ratio':>6}")
    for size, (before, after) in zip(SIZES, measured(compared, len(SIZES), keys, addresses[:3]), strict=True):
        print(f"{size:>8} {1e6 * before:>15.0f} {1e6 * after:>8.0f} {after / before:>6.2f}")
    delay_connections(addresses[4], addresses[3])
    print(f"\na link with {1e3 * DELAY:g} ms of latency in each direction; milliseconds per exchange")
    print(f"{'numbers':>8} {'ours':>8} {'ratio to one way':>17}")
    for size, seconds in zip(FAR_SIZES, measured(far, len(FAR_SIZES), keys, addresses[3:]), strict=True):
        print(f"{size:>8} {1e3 * seconds:>8.1f} {seconds / DELAY:>17.2f}")
