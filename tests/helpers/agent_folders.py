"""Folders of agents with quadratic losses on a path, and their real processes."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gradslide.network.peers.keys import make_key_pair
from gradslide.network.peers.neighbour import free_addresses

GRADSLIDE = [sys.executable, "-W", "error", "-m", "gradslide"]

BUILDER = """
import gradslide as gs

def build():
    return gs.losses.Quadratic([[2.0, 0.0], [0.0, 1.0]], [{target}, 1.0]), gs.domains.L2Ball(10.0)
"""

AGENT = """
version = 1
name = "{name}"
secret_key = "{name}.secret"
listen = "{listen}"
run = "trial"
diameter = {diameter}
deadline = {deadline}
meet = {deadline}
{neighbours}
[problem]
builder = "mine.py:build"
[method]
{method}
[stop]
{stop}
"""

NEIGHBOUR = """
[[neighbour]]
name = "{name}"
address = "{address}"
public_key = "{public_key}"
"""


def write_agents(
    folder: Path,
    count: int = 2,
    deadline: float = 30,
    method: str = 'name = "condat_vu"',
    stop: str = "iterations = 20",
) -> list[Path]:
    """The files of so many agents on a path: a, b, c, ..."""
    names = [chr(ord("a") + i) for i in range(count)]
    pairs = [make_key_pair(name, folder / name) for name in names]
    addresses = free_addresses(count)
    files = []
    for i, name in enumerate(names):
        neighbours = "".join(
            NEIGHBOUR.format(name=names[j], address=addresses[j], public_key=pairs[j].public)
            for j in (i - 1, i + 1)
            if 0 <= j < count
        )
        (folder / name / "mine.py").write_text(BUILDER.format(target=float(i)))
        file = folder / name / "AGENT.toml"
        file.write_text(
            AGENT.format(
                name=name,
                listen=addresses[i],
                diameter=count - 1,
                deadline=deadline,
                neighbours=neighbours,
                method=method,
                stop=stop,
            )
        )
        files.append(file)
    return files


@contextmanager
def started(*command: object, **options: object):
    """A gradslide process that is over when the block is."""
    process = subprocess.Popen(
        [*GRADSLIDE, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"},
        **options,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


def all_ended(files: list[Path], *options: str, timeout: float = 60) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of all agents, started together."""
    with ExitStack() as stack:
        processes = [stack.enter_context(started("agent", file, *options)) for file in files]
        said = [process.communicate(timeout=timeout) for process in processes]
        return [(process.returncode, *texts) for process, texts in zip(processes, said, strict=True)]
