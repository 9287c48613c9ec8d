"""The pages keep their word: code runs, specs build, links lead somewhere, every public name is in the reference."""

import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest
from comparisons import without_processes

import gradslide as gs
from gradslide.experiments.compare.run import run_comparison
from gradslide.experiments.compare.spec import parse_comparison
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import parse_spec

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MARKDOWN = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
MODULES = [name for name in gs.__all__ if isinstance(getattr(gs, name), ModuleType)]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, language: str) -> list[str]:
    """The page's fenced blocks, each below as many empty lines as it stands below in the page, so that errors
    name the right line."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, match.start(1)) + match[1] for match in found]


def with_blocks(language: str) -> pytest.MarkDecorator:
    pages = [page for page in PAGES if blocks(page, language)]
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


@with_blocks("python")
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page.stem}
    for source in blocks(page, "python"):
        exec(compile(source, page, "exec"), namespace)


@with_blocks("toml")
def test_specs_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source in blocks(page, "toml"):
        if "accuracies =" in source:
            parse_comparison(source, name=page.stem, folder=tmp_path)
        elif "version =" in source:
            results = run_spec(parse_spec(source, name=page.stem, folder=tmp_path))
            assert results.fulfilled


@pytest.mark.slow
@with_blocks("toml")
def test_comparisons_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    without_processes(monkeypatch)
    for source in blocks(page, "toml"):
        if "accuracies =" in source:
            assert run_comparison(parse_comparison(source, name=page.stem, folder=tmp_path)).is_complete


def test_blocks_are_found():
    found = {(page.name, language) for page in PAGES for language in ("python", "toml") if blocks(page, language)}
    assert found >= {
        ("README.md", "python"),
        ("tutorial.md", "python"),
        ("faq.md", "python"),
        ("choosing.md", "python"),
        ("guarantees.md", "python"),
        ("methods.md", "python"),
        ("sampling.md", "python"),
        ("concepts.md", "toml"),
        ("cli.md", "toml"),
        ("baselines.md", "python"),
        ("unreliable_networks.md", "python"),
        ("auto.md", "python"),
        ("gossip.md", "python"),
    }


def test_the_guarantees_page_prints_what_it_says(capsys):
    """Names and rounds; the digits of the errors may differ between platforms."""
    page = ROOT / "docs" / "guarantees.md"
    for source in blocks(page, "python"):
        exec(compile(source, page, "exec"), {})
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert printed == [line.split()[:2] for line in blocks(page, "text")[0].strip().splitlines()]


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: page.name)
def test_no_line_is_longer_than_100_characters(page):
    """Apart from what commands print, which pages quote as it is."""
    text = re.sub(r"^```text\n.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert not [line for line in text.splitlines() if len(line) > 100]


@every_page
def test_relative_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("#"):
            assert (page.parent / target.partition("#")[0]).is_file(), target


@every_page
def test_files_that_are_named_exist(page):
    for name in re.findall(r"\b(?:tests|src|benchmarks|examples)/[\w/]+\.\w+", page.read_text(encoding="utf-8")):
        assert (ROOT / name).is_file(), name


def test_readme_has_at_most_1000_words():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1000


def test_every_public_name_is_in_the_reference():
    for name in gs.__all__:
        assert re.search(rf"`gs\.{name}`|^::: gradslide\.{name}$", REFERENCE, re.MULTILINE), name


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_of_a_module_is_in_the_reference(module):
    for name in public_names(getattr(gs, module)):
        assert re.search(rf"^::: gradslide\.{module}\.{name}$", REFERENCE, re.MULTILINE), name


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or the classes and functions that a module defines itself."""
    defined = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    ]
    return getattr(module, "__all__", defined)


def test_every_name_in_the_reference_exists_and_has_a_docstring():
    importlib.import_module("gradslide.sklearn")  # the package does not import it
    paths = re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)
    assert paths
    for path in paths:
        assert pkgutil.resolve_name(path.replace(".", ":", 1)).__doc__, path


def test_the_reference_is_not_repeated():
    paths = re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE)
    assert len(paths) == len(set(paths))
