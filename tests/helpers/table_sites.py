"""Sites with a table each, that fit a regression together: their folders, and their real processes.

A process is a fork of one that has imported everything, and calls the command line as `gradslide agent` does.
"""

import os
import shutil
import signal
import sys
import time
import warnings
from multiprocessing.forkserver import set_forkserver_preload
from pathlib import Path
from typing import NamedTuple

from forked import Process

from gradslide.cli.main import main
from gradslide.fitting import columns, fit
from gradslide.methods import Newton
from gradslide.network.peers.keys import make_key_pair
from gradslide.network.peers.neighbour import free_addresses, why_not_reached
from gradslide.network.peers.rounds import Rounds

HOSPITALS = Path(__file__).parents[2] / "examples" / "hospitals"
NAMES = ("north", "east", "south", "west")
RING = (("north", "east"), ("east", "south"), ("south", "west"), ("west", "north"))
FEATURES = ("texture", "area", "smoothness", "concavity", "symmetry")
DATA = f'label = "malignant"\nfeatures = {list(FEATURES)}'
MODEL = 'family = "logistic"'

# Imported before the fork.
LATE = ("gradslide.experiments.agent.run", "pydantic.type_adapter", "pyarrow.pandas_compat", "pyarrow.csv")
set_forkserver_preload(["table_sites", "pandas", "scipy.stats", "encodings.idna", *LATE])
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

AGENT = """version = 1
name = "{name}"
run = "trial"
listen = "{address}"
deadline = 20
{top}
neighbour = [{neighbours}]

[data]
table = "{file}"
{data}

[model]
{model}
"""


class End(NamedTuple):
    """How a process ended, and after how many seconds."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def error(self) -> str:
        """The one line that says what went wrong."""
        assert "Traceback" not in self.err, self.err
        (line,) = [line for line in self.err.splitlines() if line.startswith("error: ")]
        return line.removeprefix("error: ")


class Sites:
    """Folders of sites, with keys, tables and AGENT.toml; and their processes, by name."""

    def __init__(self, folder, tables=None, edges=RING, *, top="", data=DATA, model=MODEL, file="patients.csv"):
        """tables: the text of the table of each site, by name; by default those of the hospitals."""
        tables = hospital_tables() if tables is None else tables
        self.folder, self.names, self.processes = Path(folder), list(tables), {}
        self.addresses = dict(zip(self.names, free_addresses(len(self.names)), strict=True))
        for name in self.names:
            make_key_pair(name, self / name)
        for name, table in tables.items():
            around = [b if a == name else a for a, b in edges if name in (a, b)]
            given = [f'{{ name = "{other}", address = "{self.addresses[other]}" }}' for other in around]
            for other in around:
                (self / name / f"{other}.public").write_text((self / other / f"{other}.public").read_text())
            (self / name / file).write_text(table)
            text = {"neighbours": ", ".join(given), "top": top, "data": data, "model": model, "file": file}
            (self / name / "AGENT.toml").write_text(AGENT.format(name=name, address=self.addresses[name], **text))

    def __truediv__(self, name):
        return self.folder / name

    def change(self, old, new, *names):
        """Replace a text in the files of some sites, by default of all."""
        for name in names or self.names:
            file = self / name / "AGENT.toml"
            assert old in file.read_text()
            file.write_text(file.read_text().replace(old, new))

    def start(self, *names, dies=None, options=("--quiet",), strict=True):
        """Start sites, by default all. dies: where they do not survive. strict: whether warnings are errors."""
        for name in names or self.names:
            said = [self / name / f"said-{stream}" for stream in ("out", "err")]
            arguments = ["agent", self / name / "AGENT.toml", *options]
            told = {"arguments": arguments, "said": said, "dies": dies, "strict": strict}
            process = Process(target=_live, args=(told,), daemon=True)
            process.start()
            self.processes[name] = process, said, time.monotonic()

    def listening(self, *names, seconds=60):
        """Wait until sites can be reached, so that they hear of one that fails at once."""
        end = time.monotonic() + seconds
        for name in names:
            while why_not_reached(self.addresses[name], 1.0):
                assert self.processes[name][0].is_alive(), f"{name} has ended"
                assert time.monotonic() < end, f"{name} cannot be reached"
                time.sleep(0.01)

    def died(self, name, seconds=30):
        """Wait until a site was killed."""
        self.processes[name][0].join(seconds)
        assert self.processes[name][0].exitcode == -signal.SIGKILL

    def ended(self, *names, seconds=60):
        """How sites ended, by default all."""
        found, end = {}, time.monotonic() + seconds
        for name in names or self.names:
            process, (out, err), started = self.processes[name]
            process.join(max(0.0, end - time.monotonic()))
            if process.exitcode is None:
                self.stop()
                raise AssertionError(f"{name} hangs; it said {out.read_text()} {err.read_text()}")
            found[name] = End(process.exitcode, out.read_text(), err.read_text(), time.monotonic() - started)
        return found

    def run(self, *names, **given):
        """Start sites, and wait until they have ended."""
        self.start(*names, **given)
        return self.ended(*names)

    def forget(self):
        """Remove all results, checkpoints and logs."""
        for name in self.names:
            shutil.rmtree(self / name / "results")

    def stop(self):
        """End what still runs."""
        for process, *_ in self.processes.values():
            process.kill()
            process.join(10)

    def results(self, name, file):
        return (self / name / "results" / file).read_bytes()


def hospital_tables():
    return {name: (HOSPITALS / name / "patients.csv").read_text() for name in NAMES}


def _live(told):
    """In the process of a site."""
    warnings.simplefilter("error" if told["strict"] else "default")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream, path in zip((sys.stdout, sys.stderr), told["said"], strict=True):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream.fileno())
    if told["dies"] is not None:
        PLACES[told["dies"]]()
    try:
        main([str(argument) for argument in told["arguments"]])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


# Places where a site can die: what is replaced.


def _die(*unused, **also_unused):
    os.kill(os.getpid(), signal.SIGKILL)


def _between_the_first_sums():
    columns._second_sums = _die


def _before_the_first_iteration():
    fit.solve = _die


def _in_the_third_iteration():
    step, count = Newton.step, iter(range(1000))

    def last(*given):
        return _die() if next(count) == 2 else step(*given)

    Newton.step = last


def _after_the_last_iteration():
    fit.sums_at_optimum = _die


def _before_it_has_finished():
    Rounds.finish = _die


PLACES = {
    "between the first sums": _between_the_first_sums,
    "before the first iteration": _before_the_first_iteration,
    "in the third iteration": _in_the_third_iteration,
    "after the last iteration": _after_the_last_iteration,
    "before it has finished": _before_it_has_finished,
}
