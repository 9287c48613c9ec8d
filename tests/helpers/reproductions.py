"""Small reproductions for tests: built-in data, ten agents, runs in this process."""

import copy

import pytest

from gradslide.experiments.reproduce import runs
from gradslide.experiments.reproduce.paper import Data
from gradslide.experiments.reproduce.runs import Bench

BUILT_IN = Data("misfire", "", None)
NETWORKS = [
    {"name": "G1", "max_degree": 3, "edges": 12},
    {"name": "G2", "max_degree": 5, "edges": 20},
]


def without_processes(monkeypatch):
    """All runs are made in this process."""
    monkeypatch.setattr(runs.pool, "performed", lambda tasks, perform, n: ((task, perform(task)) for task in tasks))


def without_runs(monkeypatch):
    """Whoever wants to make one fails."""

    def refuse(tasks, perform, processes):
        assert not tasks, f"{len(tasks)} runs were not kept: {tasks[0].label}"
        return iter(())

    monkeypatch.setattr(runs.pool, "performed", refuse)


def reproduced(folder, reproduce, spec):
    """The report of a small spec."""
    with pytest.MonkeyPatch.context() as patch:
        without_processes(patch)
        return reproduce(bench(folder), copy.deepcopy(spec))


def bench(folder, **options):
    return Bench(folder=folder, data=BUILT_IN, processes=1, **options)
