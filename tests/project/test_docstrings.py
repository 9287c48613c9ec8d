"""Docstrings of the reference follow numpydoc, and examples in docstrings run and give what they say."""

import doctest
import enum
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import gradslide

FINDER = doctest.DocTestFinder(exclude_empty=True)
# Modules of optional libraries cannot be imported everywhere.
OPTIONAL = ("gradslide.kernels.triton_step",)


def modules():
    for found in pkgutil.walk_packages(gradslide.__path__, "gradslide."):
        if found.name not in OPTIONAL and not found.name.endswith("__main__"):
            yield found.name


def examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} needs {error.name}")
    return [test for test in FINDER.find(module, name) if test.examples]


@pytest.mark.parametrize("name", [name for name in modules() if name.count(".") > 1])
def test_examples_of_a_module_run(name):
    for test in examples(name):
        said = []
        failed, _ = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
        assert failed == 0, "".join(said)


def test_there_are_examples():
    """Main names of each package show how they are used."""
    for name in ("graphs.graph", "domains.box", "losses.logistic", "problems.problem", "data.splits", "oracles.rows"):
        assert examples(f"gradslide.{name}")


# ---- sections

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
NAMES = re.findall(r"^::: ([\w.]+)$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
HEADINGS = (
    "Parameters",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
    "Notes",
    "References",
    "Examples",
    "See Also",
)


def section(docstring, heading):
    """The lines of a section, without its heading; none if there is no such section."""
    found = re.search(rf"^{heading}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}\n|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return found.group(1).splitlines() if found else []


def documented(docstring):
    """The names under "Parameters", or under "Attributes" of a class that only holds values."""
    lines = section(docstring, "Parameters") + section(docstring, "Attributes")
    entries = [line.split(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip(" *") for entry in entries for name in entry.split(",")}


def parameters(value):
    """The public names in a signature; none where a class has no constructor of its own."""
    if inspect.isclass(value) and (
        inspect.isabstract(value) or getattr(value, "_is_protocol", False) or issubclass(value, enum.Enum)
    ):
        return []
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    return [name for name in signature.parameters if name not in ("self", "cls") and not name.startswith("_")]


def public_methods(value):
    """Methods and functions that a class of the reference defines itself."""
    for name, method in vars(value).items():
        if not name.startswith("_") and inspect.isfunction(getattr(method, "__func__", method)):
            yield f"{value.__name__}.{name}", getattr(value, name)


@pytest.mark.parametrize("path", NAMES)
def test_docstrings_of_the_reference_follow_numpydoc(path):
    importlib.import_module("gradslide.sklearn")  # the package does not import it
    value = pkgutil.resolve_name(path.replace(".", ":", 1))
    docstring = inspect.cleandoc(value.__doc__)
    summary = docstring.split("\n\n")[0]
    assert len(summary.splitlines()) == 1, summary
    assert summary.endswith("."), summary
    assert not (missing := set(parameters(value)) - documented(docstring)), missing
    for heading in re.findall(r"^(\w[\w ]*)\n-{3,}$", docstring, re.MULTILINE):
        assert heading in HEADINGS, heading
    if inspect.isclass(value):
        for name, method in public_methods(value):
            summary = (inspect.getdoc(method) or ".").split("\n\n")[0]
            assert summary.endswith((".", ":")), f"{name}: {summary!r}"
