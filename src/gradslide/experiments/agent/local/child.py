"""The process of one agent on loopback: it runs the agent and reports records to its parent, one
line of JSON each.

Exit codes: 0 results were written, 1 a mistake, 2 a neighbour failed, 3 interrupted, 4 it diverged.
"""

import json
import os
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

from gradslide._support.errors import InputError
from gradslide.experiments.agent.builder import BuilderFailed
from gradslide.experiments.agent.run import running_agent, write_agent
from gradslide.experiments.agent.spec import read_agent
from gradslide.experiments.per_agent import Frames
from gradslide.experiments.run import Listener
from gradslide.network.peers.errors import LinksEnded, PeerError
from gradslide.network.peers.network import Diverged
from gradslide.results.history import Record

DONE, MISTAKE, LEFT_ALONE, INTERRUPTED, DIVERGED = range(5)
_EVERY_SECONDS = 0.2


def main(path: Path) -> int:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        with running_agent(read_agent(path), listener=_RecordPrinter()) as run:
            write_agent(run)
    except (InputError, BuilderFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return MISTAKE
    except Diverged as error:
        print(f"error: {error}", file=sys.stderr)
        return DIVERGED
    except (PeerError, LinksEnded) as error:
        print(f"error: {error}", file=sys.stderr)
        return LEFT_ALONE
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


class _RecordPrinter(Listener):
    """Writes a record as a line of JSON, a few times a second."""

    def __init__(self) -> None:
        self._printed_at = 0.0

    def recorded(self, record: Record, frames: Frames | None) -> None:
        if time.monotonic() - self._printed_at >= _EVERY_SECONDS:
            self._printed_at = time.monotonic()
            print(json.dumps(asdict(record)), flush=True)


def _end_with_parent() -> None:
    """End when the parent ends, whose end of the pipe then closes: its results could not be
    gathered any more.
    """
    # Not through sys.stdin, whose lock this would hold when Python shuts down.
    os.read(0, 1)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
