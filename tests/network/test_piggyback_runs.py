"""Runs of a method that acts on sums which come late."""

from dataclasses import dataclass

import numpy as np
import pytest
from piggyback import CONDITIONS, GRAPH, exchange, integers, loss_of

import gradslide as gs
from gradslide import network
from gradslide.engine.environment import NetworkEnvironment
from gradslide.methods.base import Copied
from gradslide.results.costs import Costs


@dataclass(frozen=True)
class LateState(Copied):
    x: np.ndarray
    heard: tuple
    k: int


@dataclass(frozen=True)
class Late:
    """Mixes, and moves by sums that come late; keeps all that it heard, and when."""

    def prepare(self, context):
        return gs.mixing.metropolis(context.network.graph)

    def init(self, context):
        context.network.start_reduce(context.x0.sum(axis=1), "sum")
        return LateState(context.x0 + np.arange(context.network.m)[:, None], (), 0)

    def step(self, context, state):
        net, x = context.network, state.x
        heard = tuple((state.k, float(total)) for total in net.completed("sum"))
        largest = tuple((state.k, float(value)) for value in net.completed("max"))
        net.start_reduce(np.sin(x).sum(axis=1), "sum")
        net.start_reduce(x.max(axis=1), "max")
        x = context.mix(x, context.prepared) - 0.01 * context.oracle.gradient(x)
        for _, total in heard:
            x = x + 0.01 * np.cos(total)
        return LateState(context.mix(x, context.prepared), state.heard + heard + largest, state.k + 1)

    def output(self, state):
        return state.x

    def parameters(self, state):
        return {"heard": state.heard}


def run(net, iterations, **given):
    problem = gs.Problem(loss_of(GRAPH.m))
    return gs.solve(problem, net, Late(), stop=gs.Stop(iterations=iterations), **given)


def test_a_run_hears_its_sums_after_so_many_exchanges():
    solution = run(GRAPH, 30)
    radius, diameter = GRAPH.radius_center()[1], GRAPH.diameter
    steps = [k for k, _ in solution.parameters["heard"]]
    # The first sum is posted before any exchange, the others at the start of a step of two.
    sums = sorted([radius, *range(radius, 30)])
    maxima = range(-(-diameter // 2), 30)
    assert sorted(steps) == sorted([*sums, *maxima])
    assert solution.costs.rounds == 60
    assert solution.costs.control_rounds == 0
    piggybacked = 31 * 2 * (GRAPH.m - 1) + 30 * diameter * 2 * len(GRAPH.edges)
    assert solution.costs.floats_sent == piggybacked + 60 * 2 * len(GRAPH.edges) * 3


@pytest.mark.parametrize("record_every", [2, 7, 100])
def test_records_do_not_move_what_rides(record_every):
    """Residuals are exchanges, too, but nobody's."""
    often, seldom = run(GRAPH, 30), run(network.Local(GRAPH), 30, record_every=record_every)
    assert often.parameters == seldom.parameters
    np.testing.assert_array_equal(often.x, seldom.x)


@pytest.mark.covering
@pytest.mark.parametrize("name", ["local", *CONDITIONS])
def test_a_run_that_goes_on_later_gives_the_same_bits(name, tmp_path):
    def make():
        return CONDITIONS[name](network.Local(GRAPH)) if name != "local" else network.Local(GRAPH)

    path = tmp_path / "run.npz"
    whole = run(make(), 30)
    for iterations in (1, 8, 15):
        run(make(), iterations, checkpoint=path)
    resumed = run(make(), 30, checkpoint=path)
    np.testing.assert_array_equal(resumed.x, whole.x)
    assert resumed.costs.floats_sent == whole.costs.floats_sent
    assert resumed.costs.rounds == whole.costs.rounds
    assert [tuple(each) for each in resumed.parameters["heard"]] == list(whole.parameters["heard"])


def test_runs_over_one_network_are_alike():
    net = network.Local(GRAPH)
    first, second = run(net, 10), run(net, 10)
    assert first.parameters == second.parameters
    np.testing.assert_array_equal(first.x, second.x)


def test_an_environment_remembers_its_network_and_its_clock():
    problem, clock = gs.Problem(loss_of(GRAPH.m)), gs.Clock(gradient=0.5, latency=0.25)
    first, second = (NetworkEnvironment(problem, network.Local(GRAPH), gs.PDS(), Costs(), clock) for _ in range(2))
    first.network.start_reduce(integers(GRAPH.m), "max")
    exchange(first.network)
    second.resume(first.checkpoint())
    assert second.timeline.checkpoint()[0].tolist() == [0.25] * GRAPH.m
    exchange(second.network, GRAPH.diameter - 1)
    assert len(second.network.completed()) == 1
