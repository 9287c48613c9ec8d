"""Time import, the first solve of a process, and later small solves.

    python benchmarks/start.py [--repeats 5] [--profile]

Import: wall-clock time of `python -c 'import gradslide'` beside `import numpy, scipy.sparse` and
plain Python, bytecode cached; the same with the names of a default solve, which are imported when
they are first used; and the time of each package of these by `python -X importtime`. First solve: a
logistic regression over 10 agents on a ring in a new process, without the import, with an empty and
with a filled Numba cache. Best of several repeats, one thread, half a minute. --profile profiles a
solve that is not the first.
"""

import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
from collections import Counter

import numpy as np
from timing import begin, best_of, fresh, parser, seconds_of, show

import gradslide as gs

METHODS = {"AutoPDS": gs.AutoPDS, "PDS": gs.PDS, "NIDS": gs.NIDS}
NAMES = "import gradslide as gs; gs.losses.Logistic, gs.domains.L2Ball, gs.Problem, gs.Graph, gs.Auto, gs.solve"
IMPORTS = {
    "Python alone": "pass",
    "NumPy, scipy.sparse": "import numpy, scipy.sparse",
    "gradslide": "import gradslide",
    "gradslide, names of a default solve": NAMES,
}
# Goal for a solve that is not the first, in seconds.
AIM = 0.1


def solve(name: str) -> gs.Solution:
    """Solve a small problem with default arguments. PDS and NIDS run about as many iterations as AutoPDS needs."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 5))
    labels = np.sign(features @ rng.normal(size=5) + rng.normal(size=500))
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=10), gs.domains.L2Ball(3.0))
    stop = None if name == "AutoPDS" else gs.Stop(iterations=40)
    return gs.solve(problem, gs.Graph.ring(10), METHODS[name](), stop=stop)


def first_and_later(name: str, repeats: int) -> dict[str, float]:
    """Return seconds in this process, including the setup of the problem."""
    first = seconds_of(lambda: solve(name))
    later = best_of(repeats, lambda: solve(name))
    costs = solve(name).costs
    return {"first": first, "later": later, "gradients": costs.gradients, "rounds": costs.rounds}


def import_seconds(code: str, repeats: int) -> float:
    # As where packages are installed: bytecode is cached, whatever this process was told.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return best_of(repeats, lambda: subprocess.run(command, check=True, env=environment))


def import_rows(repeats: int) -> list[list[str]]:
    seconds = {name: import_seconds(code, 1 + repeats) for name, code in IMPORTS.items()}
    bare, base, *_ = seconds.values()
    return [[name, f"{s:.3f}", f"{s - bare:.3f}", f"{(s - bare) / (base - bare):.2f}"] for name, s in seconds.items()]


def package_seconds() -> Counter[str]:
    """Return the seconds in the modules of each package, without their imports; gradslide by subpackage."""
    command = [sys.executable, "-X", "importtime", "-c", NAMES]
    lines = subprocess.run(command, check=True, text=True, stderr=subprocess.PIPE).stderr.splitlines()
    found: Counter[str] = Counter()
    for line in lines[1:]:
        own, _, module = line.removeprefix("import time:").split("|")
        parts = module.strip().split(".")
        found[".".join(parts[: 2 if parts[0] in ("gradslide", "scipy") else 1])] += int(own) / 1e6
    return found


def first_rows(repeats: int) -> list[list[str]]:
    rows = []
    for name in METHODS:
        colds, warms = [], []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                for found in (colds, warms):
                    arguments = ("--one", json.dumps([name, repeats]))
                    found.append(fresh(__file__, *arguments, environment={"NUMBA_CACHE_DIR": folder}))
        later = min(each["later"] for each in warms)
        cold, warm = (min(each["first"] for each in found) for found in (colds, warms))
        counts = [f"{warms[0][what]}" for what in ("gradients", "rounds")]
        rows.append([name, *counts, f"{cold:.3f}", f"{warm:.3f}", f"{later:.4f}", f"{later / AIM:.2f}"])
    return rows


def profile(name: str, lines: int = 25) -> None:
    solve(name)
    profiler = cProfile.Profile()
    profiler.runcall(solve, name)
    print(f"{name}:")
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(lines)


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--repeats", type=int, default=5)
    given.add_argument("--profile", action="store_true")
    chosen = begin(given, first_and_later)
    show("import, seconds", ["", "process", "without Python", "/ NumPy, scipy.sparse"], import_rows(chosen.repeats))
    rows = [[name, f"{1e3 * seconds:.0f}"] for name, seconds in package_seconds().most_common(12)]
    show("packages by their own time", ["", "ms"], rows)
    headings = ["", "gradients", "rounds", "first, no cache", "first, cached", "later", f"/ {AIM:g} s"]
    show("solve of 10 agents, seconds", headings, first_rows(chosen.repeats))
    if chosen.profile:
        for name in METHODS:
            profile(name)


if __name__ == "__main__":
    main()
