"""Proxies on loopback: one that passes TCP on, and one that damages any chunk of any connection, in both directions."""

import contextlib
import random
import socket
import threading
import time

from gradslide.network.peers.neighbour import free_addresses

FAULTS = ("flip", "duplicate", "swallow", "truncate", "delay", "cut")
TO_SERVER, TO_CLIENT = 0, 1


class Relay:
    """Passes TCP on to an address, until it is closed. The end of one direction leaves the other one open.

    A subclass says what becomes of a chunk. Sockets are closed when nobody uses them any more.
    """

    def __init__(self, target):
        self._target = int(target.rpartition(":")[2])
        self.port = int(free_addresses(1)[0].rpartition(":")[2])
        self.address = f"tcp://127.0.0.1:{self.port}"
        self._lock = threading.Lock()
        self._connections = 0
        self._open = {}  # number of the connection: its sockets and its thread
        self.listen()

    def listen(self):
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._acceptor = threading.Thread(target=self._accept, args=(self._server,), daemon=True)
        self._acceptor.start()

    def close(self):
        """End all connections, and refuse new ones."""
        shut(self._server, socket.SHUT_RDWR)  # wakes who accepts
        self._acceptor.join()
        self._server.close()
        with self._lock:
            left = list(self._open.values())
        for near, far, thread in left:
            for each in (near, far):
                shut(each, socket.SHUT_RDWR)
            thread.join()

    def parts_of(self, data, number, direction, chunk):
        """What to send for a chunk of a connection; an OSError ends the connection."""
        yield data

    def _accept(self, server):
        while True:
            try:
                near, _ = server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                number, self._connections = self._connections, self._connections + 1
                thread = threading.Thread(target=self._serve, args=(near, far, number), daemon=True)
                self._open[number] = near, far, thread
                thread.start()

    def _serve(self, near, far, number):
        ways = [(near, far, number, TO_SERVER), (far, near, number, TO_CLIENT)]
        threads = [threading.Thread(target=self._pass_on, args=way, daemon=True) for way in ways]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with self._lock:
            del self._open[number]
            near.close()
            far.close()

    def _pass_on(self, source, sink, number, direction):
        try:
            chunk = 0
            while data := source.recv(2**16):
                for part in self.parts_of(data, number, direction, chunk):
                    sink.sendall(part)
                chunk += 1
            shut(sink, socket.SHUT_WR)
        except OSError:
            for each in (source, sink):
                shut(each, socket.SHUT_RDWR)


def shut(one, how):
    with contextlib.suppress(OSError):
        one.shutdown(how)


class FaultyProxy(Relay):
    """Passes TCP on to an address, and damages some chunks.

    fault: given the number of the connection, the direction and the number of the chunk in it, the name of a fault or
    None. `injected`: how many of each were. What a fault does to a chunk depends on the seed and these numbers alone.
    """

    def __init__(self, target, fault, seed=0):
        self._fault, self._seed = fault, seed
        self.injected = dict.fromkeys(FAULTS, 0)
        super().__init__(target)

    def parts_of(self, data, number, direction, chunk):
        fault = self._fault(number, direction, chunk)
        if fault is not None:
            with self._lock:
                self.injected[fault] += 1
        noise = random.Random(f"{self._seed} {number} {direction} {chunk}")
        place = noise.randrange(len(data))
        if fault == "flip":
            damaged = bytearray(data)
            damaged[place] ^= 1 << noise.randrange(8)
            data = bytes(damaged)
        elif fault in ("truncate", "cut"):
            data = data[:place]
        elif fault == "delay":
            time.sleep(0.5)
        if fault != "swallow":
            yield data
        if fault == "duplicate":
            yield data
        if fault == "cut":
            raise ConnectionAbortedError
