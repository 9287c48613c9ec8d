"""The command line in several processes: started by it, by mpiexec, and by the wrong one; and what ends it early."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mpi_tasks import MPIEXEC, needs_mpi

import gradslide as gs
from gradslide.cli.main import _without_n
from gradslide.engine import checkpoints
from gradslide.network.mpi.launch import launch

pytestmark = needs_mpi

SPEC = """
version = 1
[data]
name = "misfire"
agents = 12
rows = 2400
split = "dirichlet"
[problem]
loss = "logistic"
domain = {{ set = "l2_ball", radius = 3.0 }}
[[network]]
name = "ring"
topology = "ring"
[[network]]
name = "grid"
topology = "grid"
rows = 3
cols = 4
[method]
name = "{method}"
[stop]
iterations = {iterations}
{targets}
[output]
dir = "{out}"
plot = false
checkpoint = {checkpoint}
checkpoint_seconds = 0.2
"""


def write_spec(folder, *, out="out", method="auto", iterations=15, targets="", checkpoint="false"):
    path = folder / "spec.toml"
    path.write_text(
        SPEC.format(out=folder / out, method=method, iterations=iterations, targets=targets, checkpoint=checkpoint)
    )
    return path


def gradslide(*arguments):
    return [sys.executable, "-W", "error", "-m", "gradslide", *map(str, arguments)]


def run(command, **environment):
    given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=120)


def answers(folder):
    return {path.name: gs.load(path) for path in sorted(folder.glob("*.solution.npz"))}


def check_same_answers(folder, other):
    found, expected = answers(folder), answers(other)
    assert found.keys() == expected.keys() == {"ring.solution.npz", "grid.solution.npz"}
    for name, one in expected.items():
        assert found[name].agents == range(12)
        # Agents with different numbers of rows share products in another way when others live beside them.
        np.testing.assert_allclose(found[name].x, one.x, rtol=0, atol=1e-12 * np.abs(one.x).max())
        assert found[name].costs.rounds == one.costs.rounds


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    done = run(gradslide("run", write_spec(folder), "-q"))
    assert done.returncode == 0, done.stderr
    return folder / "out"


@pytest.mark.first(1)
@pytest.mark.parametrize("ranks", [2, 3])
def test_n_starts_the_processes_and_shows_one_table(ranks, tmp_path, expected):
    done = run(gradslide("run", write_spec(tmp_path), "-n", ranks))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("written:") == done.stdout.count("control:") == 1
    check_same_answers(tmp_path / "out", expected)
    for line in ("ring", "grid"):
        assert line in done.stdout


@pytest.mark.slow
def test_under_mpiexec_the_same_command_uses_mpi(tmp_path, expected):
    done = run([MPIEXEC, "-n", "2", *gradslide("run", write_spec(tmp_path), "--json")])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["network"] == "ring"
    check_same_answers(tmp_path / "out", expected)


@pytest.mark.slow
def test_theory_and_the_optimum_are_known_to_all_processes(tmp_path):
    targets = "objective = { relative = 1e-3 }\ndisagreement = { relative = 1e-2 }"
    specs = {}
    for name, extra in (("alone", ()), ("shared", ("-n", 2))):
        (tmp_path / name).mkdir()
        spec = write_spec(tmp_path / name, method="pds", iterations=400, targets=targets)
        spec.write_text(spec.read_text().replace('name = "pds"', 'name = "pds"\nR = "theory"'))
        done = run(gradslide("run", spec, "-q", *extra))
        assert done.returncode == 0, done.stderr
        specs[name] = json.loads((tmp_path / name / "out" / "results.json").read_text())
    assert specs["shared"]["optimum"] == specs["alone"]["optimum"]
    for shared, alone in zip(specs["shared"]["runs"], specs["alone"]["runs"], strict=True):
        assert shared["parameters"] == alone["parameters"]
        assert shared["bound"] == pytest.approx(alone["bound"], rel=1e-9)
        assert shared["objective_error"] == pytest.approx(alone["objective_error"], rel=1e-6)


def test_processes_that_do_not_find_each_other_are_an_error():
    """As under a launcher of another MPI: each process is alone, and would do everything."""
    done = run(gradslide("run", "-q"), SLURM_STEP_NUM_TASKS="4")
    assert done.returncode == 1
    assert "4 runs of one process each" in done.stderr
    assert "Traceback" not in done.stderr
    # mpi4py warns here, too, which is no error.
    done = run([sys.executable, "-m", "gradslide", "run", "-q"], OMPI_COMM_WORLD_SIZE="4")
    assert done.returncode == 1
    assert "4 runs of one process each" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_world_must_be_as_large_as_was_asked_for():
    done = run([MPIEXEC, "-n", "2", *gradslide("run", "-q")], GRADSLIDE_PROCESSES="3")
    assert done.returncode != 0
    assert "2 of 3" in done.stderr


def test_an_exit_code_is_not_trusted():
    """Processes that end with 0, but do not say that all is done."""
    assert launch(["--version"], 2) is None


def test_mistakes_are_said_once_and_without_a_traceback(tmp_path):
    spec = write_spec(tmp_path)
    spec.write_text(spec.read_text().replace('"auto"', '"nonsense"'))
    done = run(gradslide("run", spec, "-n", 2))
    assert done.returncode == 1
    assert done.stderr.count("error:") == 1, done.stderr
    assert "nonsense" in done.stderr
    done = run(gradslide("run", write_spec(tmp_path), "-n", 13))
    assert done.returncode == 1
    assert "start fewer processes" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_that_one_process_finds_ends_all(tmp_path):
    """Only the first one needs all data, for the optimum, and does not find them."""
    spec = write_spec(tmp_path, targets="objective = { relative = 1e-3 }")
    spec.write_text(spec.read_text().replace('name = "misfire"', 'file = "missing.svm"'))
    done = run(gradslide("run", spec, "-n", 2))
    assert done.returncode == 1
    assert "missing.svm" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        (["run", "x.toml", "-n", "4"], ["run", "x.toml"]),
        (["run", "-n4", "--json"], ["run", "--json"]),
        (["run", "-n=4", "-q"], ["run", "-q"]),
        (["run", "--fresh", "-o", "out"], ["run", "--fresh", "-o", "out"]),
    ],
)
def test_the_processes_get_the_same_command_without_n(arguments, kept):
    assert _without_n(arguments) == kept


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_program_in_the_docs_runs(ranks, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    (tmp_path / "program.py").write_text(text.split("```py\n")[1].split("```")[0])
    command = [MPIEXEC, "-n", str(ranks), sys.executable, "-W", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "CONVERGED" in done.stdout
    assert "(40, 5)" in done.stdout
    assert len(list(tmp_path.glob(f"run.*-of-{ranks}.npz"))) == ranks


# ---- what ends it early


def started(spec, ranks, *arguments):
    command = gradslide("run", spec, "-n", ranks, *arguments)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ranks_of(process, count, folder):
    """The processes of a run, once it has written a checkpoint of more than the first iteration."""
    deadline = time.monotonic() + 90
    while (checkpoints.newest_iteration(folder / "ring.checkpoint.npz") or 0) <= 1:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    found = [
        pid for pid in descendants(process.pid) if b"-m\0gradslide" in cmdline(pid) and b"mpiexec" not in cmdline(pid)
    ]
    assert len(found) == count
    return found


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid):
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, rest = [], [pid]
    while rest:
        children = parents.get(rest.pop(), [])
        found += children
        rest += children
    return found


def is_gone(pid):
    return b"gradslide" not in cmdline(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_hangs_ends_all_and_the_run_can_be_resumed(how, ranks, tmp_path):
    spec = write_spec(tmp_path, iterations=4000, checkpoint="true")
    process = started(spec, ranks, "-q", "--timeout", 3)
    pids = ranks_of(process, ranks, tmp_path / "out")
    os.kill(pids[1], how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "rank" in errors
    assert "in round" in errors
    assert all(is_gone(pid) for pid in pids)
    # With one iteration to go it is there already: it went on from where it was.
    done = run(gradslide("run", write_spec(tmp_path, iterations=1, checkpoint="true"), "-q", "-n", 2, "--resume"))
    assert done.returncode == 0, done.stderr
    assert answers(tmp_path / "out")["ring.solution.npz"].history[-1].iteration > 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.first(1)
@pytest.mark.parametrize("how", ["terminated", "pressed twice"])
def test_what_else_ends_it_leaves_no_process_behind(how, tmp_path):
    process = started(write_spec(tmp_path, iterations=10**6, checkpoint="true"), 2, "-q", "--timeout", 5)
    ranks = ranks_of(process, 2, tmp_path / "out")
    if how == "terminated":
        process.terminate()
    else:
        # The second one, in one process, is not waited with until the iteration is over.
        for _ in range(2):
            os.kill(ranks[1], signal.SIGINT)
            time.sleep(0.002)
    process.communicate(timeout=60)
    assert process.returncode == 2
    deadline = time.monotonic() + 10
    while not all(is_gone(pid) for pid in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ctrl_c_ends_all_in_order(ranks, tmp_path):
    spec = write_spec(tmp_path, iterations=10**6, checkpoint="true")
    process = started(spec, ranks)
    pids = ranks_of(process, ranks, tmp_path / "out")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 2, errors
    assert "interrupted" in output
    assert all(is_gone(pid) for pid in pids)
    assert answers(tmp_path / "out")["ring.solution.npz"].status is gs.Status.INTERRUPTED
