"""How fast a run computes and communicates: what is measured, and what a simulated clock says instead."""

import time
from dataclasses import dataclass

import numpy as np
import pytest

import gradslide as gs
from gradslide.methods.base import Copied
from gradslide.network import Counted
from gradslide.network.clock import Timeline
from gradslide.oracles import Oracle
from gradslide.results.costs import Costs, Pace

GRAPH = gs.Graph.ring(6)


def loss_of(m=6, d=3):
    rng = np.random.default_rng(0)
    return gs.losses.Logistic(rng.normal(size=(4 * m, d)), rng.choice([-1.0, 1.0], size=4 * m), agents=m)


def slow_loss(seconds, m=6, d=3):
    """A gradient that takes so long."""

    def gradient(x):
        time.sleep(seconds)
        return x

    return gs.losses.Custom(gradient=gradient, value=lambda x: x.sum(axis=1), smoothness=1.0, agents=m, dimension=d)


def watched(network=GRAPH, loss=None, clock=None):
    """An oracle and a network that count into the same costs."""
    network = gs.network.Local(network) if isinstance(network, gs.Graph) else network
    costs, loss = Costs(), loss_of(network.m) if loss is None else loss
    timeline = None if clock is None else Timeline(clock, network.graph, loss, costs)
    return Oracle(loss, costs, None, timeline), Counted(network, costs, timeline), costs


def work(oracle, network, gradients=3, exchanges=3):
    x = np.ones((network.m, 3))
    for _ in range(gradients):
        oracle.gradient(x)
    for _ in range(exchanges):
        network.combine(x, network.laplacian)


# Arithmetic


def test_the_ratio_is_one_of_averages():
    pace = Pace()
    assert pace.ratio() == 1.0
    for seconds in (1.0, 3.0):
        pace.gradients += 1
        pace.gradient_seconds += seconds
    assert pace.ratio() == 1.0
    for count, seconds in ((1, 0.25), (2, 1.25)):
        pace.exchanges += count
        pace.exchange_seconds += seconds
    assert pace == Pace(gradients=2, gradient_seconds=4.0, exchanges=3, exchange_seconds=1.5)
    assert pace.ratio() == 4.0


@pytest.mark.parametrize(
    "pace", [Pace(2, 0.0, 3, 1.5), Pace(2, 4.0, 3, 0.0), Pace(0, 0.0, 3, 1.5), Pace(2, 4.0), Pace(1, 0.0, 1, 0.0)]
)
def test_what_takes_no_time_says_nothing(pace):
    assert pace.ratio() == 1.0


# Measured


def test_a_slow_network_shows():
    oracle, network, costs = watched(gs.network.Delayed(GRAPH, 0.02))
    work(oracle, network, 2, 4)
    pace = costs.pace
    assert pace.exchange_seconds >= 4 * 0.02
    assert pace.ratio() == (pace.gradient_seconds / 2) / (pace.exchange_seconds / 4)


def test_expensive_gradients_show():
    oracle, network, costs = watched(loss=slow_loss(0.02))
    work(oracle, network, 4, 2)
    pace = costs.pace
    assert pace.gradient_seconds >= 4 * 0.02
    assert pace.ratio() == (pace.gradient_seconds / 4) / (pace.exchange_seconds / 2)


def test_gradients_and_exchanges_are_counted_and_timed():
    oracle, network, costs = watched()
    started = time.perf_counter()
    work(oracle, network, 4, 7)
    passed = time.perf_counter() - started
    pace = costs.pace
    assert oracle.pace is pace
    assert (pace.gradients, pace.exchanges) == (costs.gradients, costs.rounds) == (4, 7)
    assert pace.gradient_seconds > 0
    assert pace.exchange_seconds > 0
    assert pace.gradient_seconds + pace.exchange_seconds <= passed


def test_what_is_neither_is_not():
    oracle, network, costs = watched(gs.network.Local(GRAPH, exact_norm=False))
    x = np.ones((6, 3))
    oracle.value(x)
    network.agree(x, "sum")
    network.start_reduce(x, "sum")
    network.survey(x, lambda graph, values: values[0])
    network.norm_bound()
    network.completed()
    assert costs.control_rounds > 0
    assert costs.pace == Pace()
    oracle.value_and_gradient(x)
    assert (costs.values, costs.gradients, costs.pace.gradients, costs.pace.exchanges) == (2, 1, 1, 0)
    assert costs.pace.gradient_seconds > 0


def test_a_lone_agent_exchanges_nothing():
    oracle, network, costs = watched(gs.Graph.path(1))
    work(oracle, network)
    assert costs.pace.exchanges == costs.pace.exchange_seconds == costs.rounds == 0
    assert costs.pace.gradients == 3
    assert costs.pace.ratio() == 1.0


def test_a_pace_is_no_part_of_what_is_saved():
    oracle, network, costs = watched()
    work(oracle, network)
    assert "pace" not in costs.to_dict()
    again = Costs(**costs.to_dict())
    assert again == costs
    assert again.pace == Pace()
    assert "pace" not in repr(costs)


# Simulated


@pytest.mark.parametrize(("gradient", "latency"), [(0.5, 0.25), (0.125, 4.0), (2.0, 2.0)])
def test_one_clock_is_exact(gradient, latency):
    clock = gs.Clock(gradient=gradient, latency=latency)
    oracle, network, costs = watched(gs.network.Delayed(GRAPH, 0.005), slow_loss(0.001), clock)
    work(oracle, network, 5, 9)
    oracle.value_and_gradient(np.ones((6, 3)))
    assert costs.pace == Pace(6, 6 * gradient, 9, 9 * latency, quickest_gradient=gradient)
    assert costs.pace.ratio() == gradient / latency


def test_the_size_of_messages_counts():
    oracle, network, costs = watched(clock=gs.Clock(gradient=1.0, latency=0.5, bandwidth=24.0))
    work(oracle, network)
    assert costs.pace.exchange_seconds == 3 * 1.5


def test_with_slow_agents_the_parts_add_up_to_the_whole():
    clock = gs.Clock(gradient=np.array([1.0, 8.0, 1.0, 2.0, 4.0, 1.0]), latency=np.array([0.5, 0.25, 1, 2, 0.5, 0.25]))
    oracle, network, costs = watched(clock=clock)
    for _ in range(5):
        work(oracle, network, 1, 3)
    assert costs.pace.gradient_seconds + costs.pace.exchange_seconds == costs.simulated_seconds
    assert costs.pace.gradient_seconds > costs.pace.exchange_seconds > 0


def test_of_several_clocks_none_is_taken():
    clocks = {"slow": gs.Clock(gradient=1e6, latency=1.0), "fast": gs.Clock(gradient=1.0, latency=1e6)}
    oracle, network, costs = watched(clock=clocks)
    work(oracle, network)
    assert 0 < costs.pace.gradient_seconds < 1e5
    assert 0 < costs.pace.exchange_seconds < 1e5


def test_a_clock_that_says_nothing_leaves_the_ratio_at_one():
    oracle, network, costs = watched(clock=gs.Clock(gradient=0.5, latency=0.0))
    work(oracle, network)
    assert costs.pace.ratio() == 1.0


# Runs


@dataclass(frozen=True)
class State(Copied):
    x: np.ndarray
    ratios: tuple


@dataclass(frozen=True)
class Curious:
    """Takes the ratio after every step."""

    def prepare(self, context):
        return gs.mixing.metropolis(context.network.graph)

    def init(self, context):
        return State(context.x0, (context.pace.ratio(),))

    def step(self, context, state):
        x = context.mix(state.x, context.prepared) - 0.01 * context.oracle.gradient(state.x)
        return State(x, (*state.ratios, context.pace.ratio()))

    def output(self, state):
        return state.x

    def parameters(self, state):
        return {"ratios": state.ratios}


def ratios(network=GRAPH, iterations=4, **given):
    solution = gs.solve(gs.Problem(loss_of()), network, Curious(), stop=gs.Stop(iterations=iterations), **given)
    return solution.parameters["ratios"]


def test_methods_see_the_pace_of_their_run():
    assert ratios(clock=gs.Clock(gradient=0.5, latency=0.25)) == (1.0, 2.0, 2.0, 2.0, 2.0)
    slow, fast = (ratios(network, 60) for network in (gs.network.Delayed(GRAPH, 0.01), GRAPH))
    assert slow[0] == fast[0] == 1.0
    assert slow[-1] < fast[-1] / 3


def test_a_run_that_goes_on_measures_afresh(tmp_path):
    path, clock = tmp_path / "run.npz", gs.Clock(gradient=0.5, latency=0.25)
    for iterations in (2, 4):
        stop = gs.Stop(iterations=iterations)
        solution = gs.solve(gs.Problem(loss_of()), GRAPH, Curious(), stop=stop, clock=clock, checkpoint=path)
    assert tuple(solution.parameters["ratios"]) == (1.0, 2.0, 2.0, 2.0, 2.0)
    assert solution.costs.pace == Pace(2, 1.0, 2, 0.5, quickest_gradient=0.5)
