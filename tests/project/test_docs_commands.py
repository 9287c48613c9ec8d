"""Commands on the pages: those that are not run elsewhere are at least ones that there are, with options they take."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from gradslide.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = re.compile(r"^```bash[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What comes before the name of the program, or has nothing to do with it.
LAUNCHERS, OTHERS = ("mpiexec", "srun"), ("cp", "wait", "pip", "git", "make", ".venv/bin/pre-commit")


def commands():
    for page in PAGES:
        for block in BLOCKS.findall(page.read_text(encoding="utf-8")):
            for line in block.splitlines():
                words = [word for word in shlex.split(line, comments=True) if word != "&"]
                if words:
                    yield pytest.param(words, id=f"{page.name}: {' '.join(words)}")


def understood(words: list[str]) -> None:
    """Raises where the command line would complain of a command or an option."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, list(words))


@pytest.mark.parametrize("words", list(commands()))
def test_every_command_is_understood(words):
    if words[0] in LAUNCHERS:
        words = words[words.index("gradslide") :]
    if words[0] == "gradslide":
        understood(words[1:])
    elif words[0] == "python" and not words[1].startswith("-"):
        assert (ROOT / words[1]).is_file()
    else:
        assert words[0] in (*OTHERS, "python")


def test_no_page_installs_what_is_not_published():
    """gradslide is not on PyPI: pages and messages say how to install a checkout."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    texts += (ROOT / "src").rglob("*.py")
    wrong = re.compile(r"pip install[^\n]*\bgradslide\b")
    assert [path.name for path in texts if wrong.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("words", [["fly"], ["run", "--quickly"], ["keys", "lose"]])
def test_what_there_is_not_is_noticed(words):
    with pytest.raises(Exception, match=r"fly|No such option|lose"):
        understood(words)
