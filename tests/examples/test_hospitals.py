"""Four hospitals, each a process of its own with its own patients, find the model of all patients in one place."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from agent_folders import all_ended

import gradslide as gs
from gradslide.experiments.agent.spec import read_agent
from gradslide.network.peers.neighbour import free_addresses

EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals"
SITES = ("north", "east", "south", "west")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the example's scripts are for sh")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """A copy with keys, after its run; the ports are free ones."""
    folder = tmp_path_factory.mktemp("example") / "hospitals"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.secret", "*.public", "results", "__pycache__"))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    subprocess.run(["sh", folder / "make_keys.sh"], check=True, capture_output=True, env={**os.environ, "PATH": path})
    files = [folder / site / "AGENT.toml" for site in SITES]
    ports = {str(5701 + i): address.rpartition(":")[2] for i, address in enumerate(free_addresses(3))}
    for file in files:
        file.write_text(re.sub("|".join(ports), lambda port: ports[port[0]], file.read_text()))
    ended = all_ended(files, timeout=100)
    assert [code for code, _, _ in ended] == [0] * 4, ended
    return folder


@pytest.mark.slow
def test_the_sites_agree_with_the_fit_in_one_place(hospitals):
    command = [sys.executable, "-W", "error", hospitals / "compare.py"]
    done = subprocess.run(command, cwd=hospitals, check=True, capture_output=True, text=True, timeout=100)
    rows = dict(re.findall(r"^(\w+ with the others) +\d+ +\d+ +(\S+)$", done.stdout, re.MULTILINE))
    alone = dict(re.findall(r"^(\w+ alone) +\d+ +\d+ +(\S+)$", done.stdout, re.MULTILINE))
    assert set(rows) == {f"{site} with the others" for site in SITES}
    assert all(float(apart) < 1e-4 for apart in rows.values())
    assert all(float(apart) > 0.1 for apart in alone.values()), "no site would have found it alone"
    wrong = set(re.findall(r"^(?:all data in one place|\w+ with the others) +\d+ +(\d+)", done.stdout, re.MULTILINE))
    assert len(wrong) == 1
    assert (hospitals / "hospitals.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_answer_is_certified_and_each_site_has_its_own(hospitals):
    solutions = [gs.load(hospitals / site / "results" / "solution.npz") for site in SITES]
    assert sorted(agent for solution in solutions for agent in solution.agents) == [0, 1, 2, 3]
    for solution in solutions:
        assert solution.status is gs.Status.CONVERGED
        assert solution.x.shape == (1, 11)
        assert 0 <= solution.certificate.gap <= 1e-6 * solution.certificate.upper
        np.testing.assert_allclose(solution.x, solutions[0].x, atol=1e-4)


@pytest.mark.slow
def test_no_site_was_given_what_is_anothers(hospitals):
    for site in SITES:
        there = {path.name for path in (hospitals / site).iterdir()}
        neighbours = {neighbour.name for neighbour in read_agent(hospitals / site / "AGENT.toml").neighbours}
        assert len(neighbours) == 2
        keys = {f"{site}.secret", *(f"{name}.public" for name in {site, *neighbours})}
        assert there == {"AGENT.toml", "patients.csv", "results"} | keys


def test_no_keys_are_shipped():
    tracked = subprocess.run(["git", "ls-files", EXAMPLE], cwd=EXAMPLE, capture_output=True, text=True).stdout
    assert not re.search(r"\.(secret|public)$", tracked, re.MULTILINE)
    assert "*.secret" in (EXAMPLE / ".gitignore").read_text()


def test_all_sites_are_told_the_same():
    """But for who they are and whom they know."""
    told = [read_agent(EXAMPLE / site / "AGENT.toml") for site in SITES]
    for name in ("run", "diameter", "deadline", "builder", "mu", "method", "stop"):
        assert len({repr(getattr(spec, name)) for spec in told}) == 1
    links = {(spec.name, neighbour.name) for spec in told for neighbour in spec.neighbours}
    assert links == {(there, here) for here, there in links}


@pytest.mark.slow
def test_the_patients_are_those_of_the_published_data(tmp_path):
    """The script that made the files makes them again."""
    pytest.importorskip("sklearn")
    shutil.copy(EXAMPLE / "prepare_data.py", tmp_path)
    subprocess.run([sys.executable, tmp_path / "prepare_data.py"], check=True, timeout=60)
    rows = 0
    for site in SITES:
        made = (tmp_path / site / "patients.csv").read_text()
        assert made == (EXAMPLE / site / "patients.csv").read_text()
        rows += made.count("\n") - 1
    assert rows == 569
