"""Four hospitals, each a process of its own with its own patients, find the model of all patients in one place."""

import json
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
from gradslide.experiments.agent.audit import verified
from gradslide.experiments.agent.spec import read_agent
from gradslide.network.peers.neighbour import free_addresses
from gradslide.regression import load_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals"
SITES = ("north", "east", "south", "west")
FEATURES = ("texture", "area", "smoothness", "concavity", "symmetry")

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
    assert float(re.search(r"largest relative difference at any site: (\S+)", done.stdout)[1]) < 1e-8
    assert "model cards of all sites are the same: yes" in done.stdout
    assert "north alone, 72 patients: there is no maximum likelihood estimate" in done.stdout
    assert (hospitals / "hospitals.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_each_site_has_the_model_and_its_own_figures(hospitals):
    solutions = [gs.load(hospitals / site / "results" / "solution.npz") for site in SITES]
    assert sorted(agent for solution in solutions for agent in solution.agents) == [0, 1, 2, 3]
    cards = {load_model(hospitals / site / "results" / "model.json").hash for site in SITES}
    assert len(cards) == 1
    for site, solution in zip(SITES, solutions, strict=True):
        assert solution.status is gs.Status.CONVERGED
        assert np.array_equal(solution.x[0], solution.model.coefficients)
        result = json.loads((hospitals / site / "results" / "result.json").read_text())
        assert list(result["model"]["by_site"]) == [site]
        assert "intercept" in (hospitals / site / "results" / "summary.txt").read_text()
        assert [each.event for each in verified(hospitals / site / "results" / "audit.jsonl")] == [
            "started",
            "connected",
            "ended",
        ]


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
    for name in ("run", "diameter", "deadline", "secure_sums", "task"):
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
