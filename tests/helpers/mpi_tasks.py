"""What tests of MPI run in several processes, and in one to compare."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from problems import WithoutScores

import gradslide as gs
from gradslide.losses.stacked import stack

MPIEXEC = Path(sys.prefix) / "bin" / "mpiexec"
PROGRAMS = Path(__file__).parent

needs_mpi = pytest.mark.skipif(
    not MPIEXEC.exists(), reason="needs mpi4py and the mpiexec of its MPI: install gradslide[mpi-local]"
)

GRAPHS = {
    "random": gs.Graph.random(13, max_degree=5, seed=1),
    "ring": gs.Graph.ring(9),
    "complete": gs.Graph.complete(8),
    "weighted": gs.Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)], [0.5, 2.0, 1.5]),
}
METHODS = {
    "PDS": gs.PDS(),
    "PDS given": gs.PDS(L=40.0, R=1.0, coupling="laplacian"),
    "SPDS": gs.SPDS(N=100, seed=3),
    "AutoPDS": gs.AutoPDS(),
    "AutoPDS exact": gs.AutoPDS(agreement="exact"),
    "AutoPDS none": gs.AutoPDS(agreement="none"),
    "Auto": gs.Auto(),
    "Newton": gs.Newton(),
    "LBFGS": gs.LBFGS(),
    "NIDS": gs.NIDS(),
    "DCS": gs.DCS(most=50),
    "SDCS": gs.SDCS(most=50),
    "DGD": gs.DGD(),
    "DGD wild": gs.DGD(step_size=1e6, decay=0.0),
    "DualAveraging": gs.DualAveraging(),
    "EXTRA": gs.EXTRA(),
    "GradientTracking": gs.GradientTracking(),
    "CondatVu": gs.CondatVu(),
    "DLM": gs.DLM(),
    "ADMM": gs.ADMM(),
    "AcceleratedTracking": gs.AcceleratedTracking(),
    "OPAPC": gs.OPAPC(),
    "DSGD": gs.DSGD(),
    "ChocoSGD": gs.ChocoSGD(),
}
DOMAINS = {
    "free": lambda m, d: gs.domains.Free(),
    "ball": lambda m, d: gs.domains.L2Ball(2.0),
    "own boxes": lambda m, d: gs.domains.Box(
        lo=np.full((m, d), -1.0), hi=np.linspace(0.2, 1.0, m)[:, None] + np.zeros(d)
    ),
}


# How many rows of 8 m each agent has. Of some processes each agent has one.
ROWS = {
    "equal": lambda m: {"agents": m},
    "unequal": lambda m: {"splits": np.split(np.arange(8 * m), np.cumsum([1] * (m - 1)))},
}


def whole_problem(task):
    """The problem of all agents."""
    m = GRAPHS[task["graph"]].m
    rng = np.random.default_rng(5)
    features, labels = rng.normal(size=(8 * m, 6)), rng.choice([-1, 1], size=8 * m)
    dtype = np.float32 if task.get("float32") else np.float64
    loss = gs.losses.Logistic(features.astype(dtype), labels, **ROWS[task.get("rows", "equal")](m))
    if task.get("mixed"):
        # Half of the agents have a loss that knows nothing of features.
        loss = stack([loss.take(range(m // 2)), WithoutScores.of(loss.take(range(m // 2, m)))])
    return gs.Problem(loss, DOMAINS[task.get("domain", "ball")](m, 6), task.get("mu", 0.0))


def stop_of(task):
    stop = task.get("stop", {"iterations": 100})
    return gs.Stop(**{name: gs.Relative(v["relative"]) if isinstance(v, dict) else v for name, v in stop.items()})


def record_every(task):
    """Observations take most of the time of processes that share cores."""
    return task.get("record_every", 20)


def alone(task):
    """The solution in one process."""
    network = gs.network.Local(GRAPHS[task["graph"]], exact_norm=task.get("exact_norm", True))
    method = METHODS[task["method"]]
    return gs.solve(whole_problem(task), network, method, stop=stop_of(task), record_every=record_every(task))


def together(tasks, ranks, folder, program="mpi_program.py", timeout=240):
    """The solutions of all tasks, by name, from so many processes; and the process of each agent."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "tasks.json").write_text(json.dumps(tasks))
    done = start(ranks, [program, str(folder / "tasks.json"), str(folder)], capture_output=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""
    return {
        task["name"]: (gs.load(folder / f"{task['name']}.npz"), np.load(folder / f"{task['name']}.ranks.npy"))
        for task in tasks
    }


def start(ranks, arguments, **options):
    """Run a program of this folder under mpiexec."""
    return subprocess.run(command(ranks, arguments), env=environment(), text=True, **options)


def arrays_of(ranks, program, folder):
    """Run a program that saves arrays under its rank in that folder; return them by rank and name."""
    done = start(ranks, [program, str(folder)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    told = []
    for rank in range(ranks):
        with np.load(folder / f"{rank}.npz") as file:
            told.append(dict(file))
    return told


def command(ranks, arguments):
    program, *rest = arguments
    return [str(MPIEXEC), "-n", str(ranks), sys.executable, "-W", "error", str(PROGRAMS / program), *rest]


def environment():
    path = os.pathsep.join([str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
