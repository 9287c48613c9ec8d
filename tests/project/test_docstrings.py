"""Examples in docstrings run and give what they say."""

import doctest
import importlib
import pkgutil

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
