"""The processes of all agents on loopback: started, watched, interrupted together, and never left
behind.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from gradslide.experiments.agent.local.child import DONE, LEFT_ALONE
from gradslide.experiments.agent.local.folders import FILE, RESULTS
from gradslide.experiments.agent.run import LOG
from gradslide.results.history import Record

_CHILD = "gradslide.experiments.agent.local.child"
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_TO_END = 5.0
_LAST_LINES = 8


class Process:
    """One agent's. `record`: the last that it told."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.record: Record | None = None
        self.log = folder / RESULTS / LOG
        self.log.parent.mkdir(exist_ok=True)
        # What it says on stderr goes into its log. Ctrl-C reaches it through us alone, and once.
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", _CHILD, str(folder / FILE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with suppress(ValueError, TypeError):
                self.record = Record(**json.loads(line))

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs, negative for a signal."""
        return self._popen.poll()

    @property
    def ended_how(self) -> str:
        code = self.code or 0
        return f"was killed by signal {-code}" if code < 0 else f"failed with exit code {code}"

    def last_lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]

    def interrupt(self) -> None:
        # Elsewhere the console does it.
        if os.name == "posix" and self.code is None:
            self._popen.send_signal(signal.SIGINT)

    def end(self) -> None:
        if self.code is None:
            self._popen.terminate()

    def close(self) -> None:
        """Wait for the end that was asked for, and see to it."""
        try:
            self._popen.wait(_TO_END)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._reader.join()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()


class Processes:
    """Those of all agents; whatever happens, none is left when the block ends."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._all: list[Process] = []

    def __enter__(self) -> Self:
        try:
            for folder in self._folders:
                self._all.append(Process(folder))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        for each in self._all:
            each.end()
        for each in self._all:
            each.close()

    @property
    def are_running(self) -> bool:
        return any(each.code is None for each in self._all)

    @property
    def slowest(self) -> Record | None:
        """Where the run is: no agent is behind that."""
        records = [each.record for each in self._all if each.record is not None]
        return min(records, key=lambda record: record.iteration) if len(records) == len(self._all) else None

    @property
    def failed(self) -> Process | None:
        """The one that failed by itself, or else one that was left alone by its neighbour."""
        bad = [each for each in self._all if each.code not in (None, DONE)]
        return next((each for each in bad if each.code != LEFT_ALONE), bad[0] if bad else None)

    def interrupt(self) -> None:
        for each in self._all:
            each.interrupt()
