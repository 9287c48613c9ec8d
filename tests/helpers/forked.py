"""Processes of a server that forks, for tests that start and end them in several threads."""

import os
import threading
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.popen_forkserver import Popen


class _Popen(Popen):
    """One thread at a time asks how the process ended.

    Starting a process asks about all others, in whatever threads they were started. An answer is read once: a second
    thread that waits for it would find none, and take the process for one that ended with 255.
    """

    def __init__(self, process):
        self._lock = threading.Lock()
        super().__init__(process)

    def poll(self, flag=os.WNOHANG):
        if flag != os.WNOHANG and self.returncode is None:
            wait([self.sentinel])
        with self._lock:
            return super().poll()


class Process(ForkServerProcess):
    """As of multiprocessing's context "forkserver"."""

    @staticmethod
    def _Popen(process):
        return _Popen(process)
