"""Docstrings of the reference follow numpydoc, and examples in docstrings run and give what they say."""

import doctest
import enum
import importlib
import inspect
import pkgutil
import re
from functools import cached_property
from pathlib import Path

import pytest

import gradslide

FINDER = doctest.DocTestFinder(exclude_empty=True)
# Modules of optional libraries cannot be imported everywhere.
OPTIONAL = "gradslide.kernels.triton_"


def modules():
    for found in pkgutil.walk_packages(gradslide.__path__, "gradslide."):
        if not found.name.startswith(OPTIONAL) and not found.name.endswith("__main__"):
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


# ---- members of base classes and protocols

BASES = (
    "Method",
    "Context",
    "network.Network",
    "network.Session",
    "network.CostModel",
    "coupling.Coupling",
    "coupling.NetworkCoupling",
    "compressors.Compressor",
    "domains.Domain",
    "domains.penalties.Penalty",
    "domains.parameters.Parameters",
    "domains.Fit",
    "terms.Term",
    "oracles.Oracle",
    "oracles.Sampler",
    "oracles.Sampling",
    "schedules.Row",
    "schedules.Schedule",
    "losses.Loss",
    "Graph",
)
PROPERTIES = (property, cached_property)


def public_members(base):
    """Each public method and property that a class defines itself: name, function, whether it is a property."""
    for name, member in vars(base).items():
        if name.startswith("_"):
            continue
        if isinstance(member, PROPERTIES):
            yield name, member.fget if isinstance(member, property) else member.func, True
        elif inspect.isfunction(function := getattr(member, "__func__", member)) and function.__name__ == name:
            yield name, function, False  # a lambda is the default of a field


def incomplete(base, name, function, is_property):
    """What the docstring of a member lacks."""
    docstring = inspect.cleandoc(function.__doc__ or "")
    summary = docstring.split("\n\n")[0]
    if len(summary.splitlines()) != 1 or not summary.endswith((".", ":")):
        yield "a summary of one line"
    yield from (f"parameter {each}" for each in parameters(function) if each not in documented(docstring))
    yield from (f"{each}, which is no parameter" for each in documented(docstring) - set(parameters(function)))
    listed = is_property and name in documented(inspect.cleandoc(base.__doc__))
    returns = inspect.signature(function).return_annotation not in (None, "None")
    has_section = bool(section(docstring, "Returns") or section(docstring, "Yields"))
    if returns and not (has_section or listed):
        yield "Returns"
    if has_section and not returns:
        yield "nothing to return, but has Returns"


@pytest.mark.parametrize("path", BASES)
def test_members_of_base_classes_say_what_they_take_and_return(path):
    """A property may be listed under Attributes of its class in place of Returns."""
    base = pkgutil.resolve_name(f"gradslide:{path}")
    members = list(public_members(base))
    assert members
    lacking = {name: found for name, *member in members if (found := list(incomplete(base, name, *member)))}
    assert not lacking


def test_incomplete_docstrings_are_found():
    class Base:
        """A class.

        Attributes
        ----------
        listed : int
            A property.
        """

        def good(self, x: int) -> int:
            """Return x.

            Parameters
            ----------
            x : int
                A number.

            Returns
            -------
            int
                The number.
            """
            return x

        def bad(self, x: int) -> int:
            """Return x."""
            return x

        @property
        def listed(self) -> int:
            """A number."""
            return 1

        @cached_property
        def alone(self) -> int:
            """A number."""
            return 1

    found = {name: list(incomplete(Base, name, *member)) for name, *member in public_members(Base)}
    assert found == {"good": [], "bad": ["parameter x", "Returns"], "listed": [], "alone": ["Returns"]}


METHODS = [name for name in gradslide.methods.__all__ if name not in ("Context", "Method")]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_an_example_that_solves_a_problem(name):
    """`test_examples_of_a_module_run` runs it."""
    lines = section(inspect.cleandoc(getattr(gradslide, name).__doc__), "Examples")
    commands = " ".join(line for line in lines if line.startswith(">>> "))
    assert "gs.solve(" in commands
    assert f"gs.{name}(" in commands
