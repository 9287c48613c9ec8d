"""A reader who follows the tutorial from top to bottom: files are written, commands run, and what is printed is what
the page says.

Blocks of Python that read what a command has written are marked py: test_docs.py, which runs Python alone, leaves them
to this test."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from mpi_tasks import needs_mpi

from gradslide.network.peers.neighbour import free_addresses

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
# They would install into the environment that runs the tests; that they name what there is, is tested below.
SETTING_UP = ("make ", "pip install ")


def fences(page):
    """Language, file name, content and first line of each block."""
    text = page.read_text(encoding="utf-8")
    return [(*match.groups(), text.count("\n", 0, match.start(3))) for match in FENCE.finditer(text)]


def is_setting_up(commands):
    return commands.startswith(SETTING_UP)


def run_bash(commands):
    """What the commands print; any that fails ends them."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-e", "-c", commands], capture_output=True, text=True, encoding="utf-8", timeout=120, env=variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_printed(said, printed):
    """The page shows all of it, or some lines that follow each other: the same words; numbers may differ a little
    between platforms and releases, and those below 1e-3 are noise."""
    expected, found = said.split(), printed.split()
    starts = [i for i in range(len(found)) if _masked(found[i : i + len(expected)]) == _masked(expected)]
    assert starts, printed
    shown = " ".join(found[starts[0] : starts[0] + len(expected)])
    assert _numbers(shown) == pytest.approx(_numbers(said), rel=0.2, abs=1e-3)


def _masked(words):
    return [NUMBER.sub("#", word) for word in words]


def _numbers(text):
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


@pytest.mark.slow
@needs_mpi
def test_a_reader_gets_to_the_end(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ports = dict(zip(("tcp://127.0.0.1:5711", "tcp://127.0.0.1:5712"), free_addresses(2), strict=True))
    namespace = {"__name__": "tutorial"}
    printed, seen = "", set()
    for language, file, content, line in fences(PAGE):
        seen.add(language)
        if file is not None:
            for written_on_the_page, free in ports.items():
                content = content.replace(written_on_the_page, free)
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).write_text(content, encoding="utf-8")
        elif language in ("python", "py"):
            exec(compile("\n" * line + content, PAGE, "exec"), namespace)
            printed = capsys.readouterr().out
        elif language == "bash" and not is_setting_up(content):
            printed = run_bash(content)
        elif language == "text":
            assert_printed(content, printed)
    assert seen == {"python", "py", "bash", "toml", "text"}, "each is dealt with above"


@pytest.mark.parametrize("name", ["choosing.md", "stability.md"])
def test_commands_of_other_pages_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = [content for language, _, content, _ in fences(ROOT / "docs" / name) if language == "bash"]
    there = [content for content in commands if not is_setting_up(content)]
    assert there
    for content in there:
        run_bash(content)


def test_other_words_and_other_numbers_are_noticed():
    assert_printed("gap=0.0101 after 1,000 rounds", "gap=0.0102 after  1,001 rounds")
    for other in ("gap=0.0301 after 1,000 rounds", "gap=0.0101 after 1,000 gradients", "gap=0.0101"):
        with pytest.raises(AssertionError):
            assert_printed("gap=0.0101 after 1,000 rounds", other)


def test_what_sets_things_up_exists():
    """Targets of make, and extras, of all pages."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"(?:^|`)make ([a-z-]+)(?=$|`)", text, re.MULTILINE):
            assert target in targets, (page.name, target)
            named += 1
        for group in re.findall(r"(?:\.|gradslide)\[([a-z,-]+)\]", text):
            assert set(group.split(",")) <= extras, (page.name, group)
            named += 1
    assert named
