"""The workflows of GitHub Actions name tests, make targets and extras that exist."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

every_workflow = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)


@every_workflow
def test_workflow_parses_and_cancels_outdated_runs(workflow):
    yaml = pytest.importorskip("yaml")
    content = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert content["concurrency"]["cancel-in-progress"] is True
    assert all("timeout-minutes" in job for job in content["jobs"].values())


@every_workflow
def test_workflow_names_what_exists(workflow):
    text = workflow.read_text(encoding="utf-8")
    for name in re.findall(r"^ +(tests/[\w/.]+)$", text, re.MULTILINE):
        assert (ROOT / name).exists(), name
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"make ([a-z-]+)", text)) <= set(targets)
    for group in re.findall(r"\.\[([a-z,-]+)\]", text):
        assert set(group.split(",")) <= set(METADATA["optional-dependencies"])


def test_supported_versions_of_python_are_tested():
    tested = set(re.findall(r'"(3\.\d+)"', (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")))
    classifiers = {line.rsplit(" ", 1)[1] for line in METADATA["classifiers"] if "Python :: 3." in line}
    assert tested == classifiers


def test_every_file_of_tests_that_needs_a_device_is_run_without_a_gpu():
    """Elsewhere they skip, since PyTorch is not installed."""
    text = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    needing = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*device*.py")]
    assert len(needing) >= 5
    assert [str(path) for path in needing if f" {path.as_posix()}\n" not in text] == []
