"""Small comparisons over five agents on a made svmlight file, outcomes written by hand, and methods that misbehave."""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from specs import write_rows

from gradslide.experiments import catalogue
from gradslide.experiments.compare import run as running
from gradslide.experiments.compare.run import Compared
from gradslide.experiments.compare.spec import parse_comparison, read_comparison
from gradslide.experiments.compare.task import Outcome, Target, tasks_of
from gradslide.experiments.compare.work import optimum, perform
from gradslide.methods.base import Method

TABLES = {
    "top": "version = 1\naccuracies = [1e-1, 1e-2]",
    "problem": 'name = "squares"\ndata = { file = "rows.svm", agents = 5 }\nloss = "least_squares"\nmu = 0.1',
    "network": 'topology = "ring"',
    "condition": None,
    "clock": None,
    "method": 'name = "nids"',
    "limits": "gradients = 300\nsamples = 3000\nrounds = 2000",
    "output": "plot = false",
}


def comparison_text(**changed):
    """The tables above, some of them changed, or left out (None); several of a kind are written with their heads."""
    text = ""
    for name, content in {**TABLES, **changed}.items():
        if content is not None:
            single = f"[{name}]\n" if name in ("limits", "output") else f"[[{name}]]\n"
            text += ("" if name == "top" or content.startswith("[") else single) + content + "\n"
    return text


def write_comparison(folder, name="small.toml", **changed):
    path = folder / name
    path.write_text(comparison_text(**changed))
    if not (folder / "rows.svm").exists():
        write_rows(folder)
    return path


def several(key, *bodies):
    """Several tables of one kind."""
    return "\n".join(f"[[{key}]]\n{body}" for body in bodies)


def methods(*names):
    return several("method", *(f'name = "{name}"' for name in names))


def default_tasks(folder, **changed):
    """What a process would be given."""
    comparison = read_comparison(write_comparison(folder, **changed))
    targets = {problem.name: optimum(problem.table, folder, None) for problem in comparison.problems}
    return tasks_of(comparison, targets, None)


def without_processes(monkeypatch):
    """All runs are made in this process."""
    monkeypatch.setattr(running, "performed", lambda tasks, processes: ((task, perform(task)) for task in tasks))


def kept(folder):
    """The outcomes on disk, by method."""
    found = {}
    for path in sorted((folder / "runs").glob("*.json")):
        if not path.name.startswith("optimum"):
            found.setdefault(json.loads(path.read_text())["method"], []).append(path)
    return found


def strict_json(text):
    """JSON that every parser takes: no NaN, no Infinity."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


# Outcomes by hand


def spent(gradients, rounds, samples=0, floats=0, **seconds):
    return {
        "gradients": gradients,
        "samples": samples,
        "rounds": rounds,
        "control_rounds": 0,
        "floats_sent": floats,
        "simulated_seconds": seconds or None,
    }


def outcome(method, *reached, condition="reliable network", **more):
    return Outcome(
        "squares",
        "ring",
        condition,
        method,
        **{"seed": 0, "error": 1e-3, "disagreement": 1e-4, **more},
        reached=list(reached),
    )


def compared(*outcomes, interrupted=False, **changed):
    """As if these had come out of a comparison of all the methods that are named in them, or of those given."""
    names = list(dict.fromkeys(each.method for each in outcomes))
    text = comparison_text(**{"method": methods(*names), **changed})
    comparison = parse_comparison(text, "small", Path())
    return Compared(comparison, {"squares": Target(1.0, 1.0)}, list(outcomes), None, interrupted)


# Methods that misbehave


class Standing(Method):
    """Stays where it is."""

    def init(self, context):
        return context.x0

    def output(self, state):
        return state

    def parameters(self, state):
        return {"process": float(os.getpid())}


@dataclass(frozen=True, kw_only=True)
class Crashing(Standing):
    def step(self, context, state):
        raise ZeroDivisionError("nothing to divide by")


@dataclass(frozen=True, kw_only=True)
class Dying(Standing):
    """Takes its process along; only once where `once`, a file that says that it did, is given."""

    once: str | None = None

    def step(self, context, state):
        if self.once is None or not Path(self.once).exists():
            if self.once is not None:
                Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return state


@dataclass(frozen=True, kw_only=True)
class Waiting(Standing):
    """Says by a file that it has started, and waits for another, a fiftieth of a second per iteration."""

    started: str
    until: str

    def step(self, context, state):
        Path(self.started).touch()
        if not Path(self.until).exists():
            time.sleep(0.02)
        return state

    def parameters(self, state):
        return {**super().parameters(state), "met": float(Path(self.until).exists())}


MISBEHAVING = {"crashing": Crashing, "dying": Dying, "waiting": Waiting}


def register():
    catalogue.METHODS.update(MISBEHAVING)


def with_misbehaving(folder, monkeypatch):
    """In this process and in all that it starts, specs may name them."""
    for name, method in MISBEHAVING.items():
        monkeypatch.setitem(catalogue.METHODS, name, method)
    plugins = folder / "plugins"
    plugins.mkdir()
    tests = Path(__file__).parent
    (plugins / "sitecustomize.py").write_text(
        f"import sys\nsys.path.append({str(tests)!r})\nimport comparisons\ncomparisons.register()\n"
    )
    places = [str(plugins), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))


MODULE = [sys.executable, "-W", "error", "-m", "gradslide"]
