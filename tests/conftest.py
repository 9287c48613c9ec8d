"""What all tests share: which cases of a parametrized test the fast suite takes, figures, and Ctrl-C."""

import os
import signal
import sys
from collections import defaultdict
from itertools import combinations

import pytest

from gradslide.kernels import startup

# Seconds of work before a process waits for the compiler: only tests of compiled code do, which ask for it.
startup._COMPILE = 60.0

# A shell lets what it starts in the background ignore Ctrl-C; its tests need it there, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """Matplotlib keeps figures until they are closed, and warns when there are many."""
    yield
    if (plt := sys.modules.get("matplotlib.pyplot")) is not None:
        plt.close("all")


def covering(cases: list[frozenset], strength: int) -> set[int]:
    """The numbers of a few cases that hold every combination of `strength` values that any case holds (greedily)."""
    held = [{frozenset(some) for some in combinations(sorted(case), min(strength, len(case)))} for case in cases]
    missing = set().union(*held)
    chosen = set()
    while missing:
        best = max(range(len(cases)), key=lambda number: len(held[number] & missing))
        chosen.add(best)
        missing -= held[best]
    return chosen


def values_of(item: pytest.Item) -> frozenset:
    """What one case of a parametrized test takes from each list of values, those of one decorator together."""
    given = {name: id(value) for name, value in item.callspec.params.items()}
    together = [mark.args[0] for mark in item.iter_markers("parametrize")]
    lists = [names.replace(",", " ").split() if isinstance(names, str) else names for names in together]
    listed = {name for names in lists for name in names}
    lists += [[name] for name in given if name not in listed]
    return frozenset((number, tuple(given[name] for name in names)) for number, names in enumerate(lists))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the cases that `first` and `covering` leave to the whole suite."""
    tests = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            tests[item.nodeid.split("[")[0]].append(item)
    for cases in tests.values():
        for mark in cases[0].iter_markers("first"):
            chosen = range(*mark.args)
        for mark in cases[0].iter_markers("covering"):
            chosen = covering([values_of(item) for item in cases], *mark.args or (1,))
        if cases[0].get_closest_marker("first") or cases[0].get_closest_marker("covering"):
            for number, item in enumerate(cases):
                if number not in chosen:
                    item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: many tests wait for other processes."""
    return 1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
