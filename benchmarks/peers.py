"""Time exchanges between two agents on loopback, relative to plain ZeroMQ sockets with CURVE.

    python benchmarks/peers.py

Times are medians.
"""

import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np
import zmq
from zmq.utils import z85

from gradslide.network.peers.keys import key_pair
from gradslide.network.peers.links import Links
from gradslide.network.peers.neighbour import Neighbour, free_addresses

SIZES = [22, 300, 10_000]
REPEATS, BATCHES = 100, 9


def seconds_of(call: Callable[[], object]) -> float:
    """Return the median over batches of the mean time of a call."""
    times = []
    for _ in range(BATCHES):
        started = time.perf_counter()
        for _ in range(REPEATS):
            call()
        times.append((time.perf_counter() - started) / REPEATS)
    return statistics.median(times)


def bare(keys: list[bytes], addresses: list[str], which: int, told: Connection) -> None:
    """Send, then receive: no header, no checks, no resending."""
    context = zmq.Context()
    socket = context.socket(zmq.PAIR)
    own, other = (z85.encode(keys[i]) for i in (which, 1 - which))
    socket.curve_secretkey, socket.curve_publickey = own, zmq.curve_public(own)
    socket.linger = 1000
    if which == 0:
        socket.curve_server = True
        socket.bind(addresses[0])
    else:
        socket.curve_serverkey = zmq.curve_public(other)
        socket.connect(addresses[0])
    for size in SIZES:
        message = np.ones(size)

        def exchange(message: np.ndarray = message) -> None:
            socket.send(message, copy=False)
            np.frombuffer(socket.recv(copy=False).buffer)

        exchange()
        told.send(seconds_of(exchange))
    socket.close()
    context.term()


def linked(keys: list[bytes], addresses: list[str], which: int, told: Connection) -> None:
    """Exchange through the links of `gs.network.Peers`."""
    other = Neighbour("other", addresses[1 - which], key_pair(keys[1 - which]).public)
    links = Links(key_pair(keys[which]), addresses[which], [other], run_id="bench", settings={})
    links.open()
    for size in SIZES:
        message = np.ones(size)
        shape = (message.dtype, message.shape)

        def exchange(message: np.ndarray = message, shape: tuple = shape) -> None:
            links.exchange({"other": message}, {"other": shape})

        exchange()
        told.send(seconds_of(exchange))
    links.close()


def measured(side: Callable[..., None]) -> list[float]:
    """Return the seconds by size, of the slower of two processes."""
    spawn = multiprocessing.get_context("spawn")
    keys = [os.urandom(32) for _ in range(2)]
    addresses = free_addresses(2)
    pipes = [spawn.Pipe(duplex=False) for _ in range(2)]
    processes = [spawn.Process(target=side, args=(keys, addresses, which, pipe[1])) for which, pipe in enumerate(pipes)]
    for process in processes:
        process.start()
    times = [[pipe[0].recv() for _ in SIZES] for pipe in pipes]
    for process in processes:
        process.join()
    return [max(pair) for pair in zip(*times, strict=True)]


if __name__ == "__main__":
    plain, ours = measured(bare), measured(linked)
    print("two agents on loopback; microseconds per exchange")
    print(f"{'numbers':>8} {'plain zmq CURVE':>15} {'ours':>8} {'ratio':>6}")
    for size, before, after in zip(SIZES, plain, ours, strict=True):
        print(f"{size:>8} {1e6 * before:>15.0f} {1e6 * after:>8.0f} {after / before:>6.2f}")
