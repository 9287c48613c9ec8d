"""Names of version 0.1 that still work, with a warning."""

import importlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import gradslide as gs

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()


@pytest.fixture
def problem():
    return gs.Problem(gs.losses.LeastSquares(np.eye(4), np.arange(4.0), agents=4), gs.domains.Box(-1.0, 5.0))


def test_modules_of_the_reference_can_be_imported_by_their_public_path():
    paths = set(re.findall(r"^::: (gradslide\.[a-z_]+)\.\w+", REFERENCE, re.MULTILINE))
    assert {"gradslide.schedules", "gradslide.terms", "gradslide.coupling"} <= paths
    for path in paths:
        assert importlib.import_module(path) is not None
    from gradslide.schedules import theorem_1

    assert theorem_1 is gs.schedules.theorem_1


def test_a_method_may_still_ask_for_things_once(problem):
    made = []

    @dataclass(frozen=True)
    class Descent:
        def init(self, context):
            return context.x0

        def step(self, context, state):
            W = context.mixing("metropolis")
            context.once("mine", lambda: made.append(1) or 1)
            return context.mix(state, W) - 0.1 * context.oracle.gradient(state)

        def output(self, state):
            return state

    with pytest.warns(DeprecationWarning, match="prepare"):
        gs.solve(problem, gs.Graph.ring(4), Descent(), stop=gs.Stop(iterations=3))
    assert made == [1]


def test_a_method_that_overrides_evidence_is_heard(problem):
    called = []
    with pytest.warns(DeprecationWarning, match="dual_evidence"):

        class Own(gs.PDS):
            def evidence(self, state):
                called.append(state.k)
                return ()

    solution = gs.solve(problem, gs.Graph.ring(4), Own(), stop=gs.Stop(iterations=3))
    assert called
    assert solution.certificate is None
    with pytest.warns(DeprecationWarning, match="dual_evidence"):
        assert gs.NIDS().evidence(None) == ()


def test_a_method_may_still_name_what_it_keeps(problem):
    with pytest.warns(DeprecationWarning, match="lasting_outputs"):

        class Own(gs.NIDS):
            keeps = ("last",)

    assert Own.lasting_outputs == ("last",)
    assert gs.PDS.keeps == gs.PDS.lasting_outputs == ("average",)

    class Plain:
        keeps = ("last",)

        def init(self, context):
            return context.x0

        def step(self, context, state):
            return state - 0.1 * context.oracle.gradient(state)

        def output(self, state):
            return state

    with pytest.warns(DeprecationWarning, match="lasting_outputs"):
        gs.solve(problem, gs.Graph.ring(4), Plain(), stop=gs.Stop(iterations=3))


def test_abilities_follow_from_what_a_method_overrides():
    assert gs.PDS.proves
    assert gs.AutoPDS.finishes
    assert gs.SPDS.fixes_iterations
    assert not any((gs.NIDS.proves, gs.NIDS.finishes, gs.NIDS.fixes_iterations))


def test_kkt_residuals_have_both_names_in_json():
    kkt = gs.KKT(1.0, 2.0, 3.0)
    names = {"stationarity": 1.0, "disagreement": 2.0, "scale": 3.0, "consensus": 2.0}
    assert kkt.to_dict() == {**names, "error": None, "objective": None}
    assert gs.KKT.from_dict({"stationarity": 1.0, "consensus": 2.0, "scale": 3.0}) == kkt


def test_a_solution_finds_its_mean(problem):
    s = gs.solve(problem, gs.Graph.ring(4), stop=gs.Stop(iterations=3))
    again = gs.Solution(s.x, s.agents, s.output, s.outputs, s.status, s.costs, s.history)
    np.testing.assert_array_equal(again.mean, s.mean)


def test_couplings_are_told_their_network_by_name():
    network = gs.network.Local(gs.Graph.ring(4))
    assert len({gs.coupling.Incidence(network=network), gs.coupling.Laplacian(network=network)}) == 2
