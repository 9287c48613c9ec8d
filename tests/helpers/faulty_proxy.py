"""A proxy that damages what it passes on: any chunk of any connection, in both directions."""

import contextlib
import random
import socket
import threading
import time

from gradslide.network.peers.neighbour import free_addresses

FAULTS = ("flip", "duplicate", "swallow", "truncate", "delay", "cut")
TO_SERVER, TO_CLIENT = 0, 1


class FaultyProxy:
    """Passes TCP on to an address, and damages some chunks.

    fault: given the number of the connection, the direction and the number of the chunk in it, the name of a fault or
    None. `injected`: how many of each were.
    """

    def __init__(self, target, fault, seed=0):
        self._target = int(target.rpartition(":")[2])
        self._fault, self._random = fault, random.Random(seed)
        port = int(free_addresses(1)[0].rpartition(":")[2])
        self.address = f"tcp://127.0.0.1:{port}"
        self.injected = dict.fromkeys(FAULTS, 0)
        self._server = socket.create_server(("127.0.0.1", port))
        self._connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._server.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            number, self._connections = self._connections, self._connections + 1
            for direction, (source, sink) in enumerate(((near, far), (far, near))):
                threading.Thread(target=self._pass_on, args=(source, sink, number, direction), daemon=True).start()

    def _pass_on(self, source, sink, number, direction):
        try:
            chunk = 0
            while data := source.recv(2**16):
                fault = self._fault(number, direction, chunk)
                if fault is not None:
                    self.injected[fault] += 1
                for part in self._damaged(data, fault):
                    sink.sendall(part)
                if fault == "cut":
                    break
                chunk += 1
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()

    def _damaged(self, data, fault):
        place = self._random.randrange(len(data))
        if fault == "flip":
            damaged = bytearray(data)
            damaged[place] ^= 1 << self._random.randrange(8)
            return [bytes(damaged)]
        if fault == "duplicate":
            return [data, data]
        if fault == "swallow":
            return []
        if fault in ("truncate", "cut"):
            return [data[:place]]
        if fault == "delay":
            time.sleep(0.5)
        return [data]
