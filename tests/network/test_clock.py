"""Simulated clocks: closed forms, a naive simulation message by message, and runs that carry them along."""

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from error_messages import check_message

import gradslide as gs
from gradslide.methods.base import Copied
from gradslide.network.clock import Timeline
from gradslide.results.costs import Costs

METHODS = [gs.PDS(), gs.PDS(coupling="laplacian"), gs.CondatVu(), gs.NIDS(), gs.SPDS(N=12, R=1.0, sigma=1.0)]
NAMES = ["PDS", "PDS, laplacian", "CondatVu", "NIDS", "SPDS"]


def problem_of(m, d=3, rows=4, dtype=np.float64, seed=0):
    """Logistic losses; rows: of each agent, or one number for all."""
    rng = np.random.default_rng(seed)
    sizes = np.broadcast_to(rows, m)
    splits = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    labels = rng.choice([-1.0, 1.0], size=sizes.sum())
    return gs.Problem(gs.losses.Logistic(rng.normal(size=(len(labels), d)).astype(dtype), labels, splits=splits))


@dataclass(frozen=True)
class State(Copied):
    x: np.ndarray
    k: int


@dataclass(frozen=True)
class Script:
    """Does in each step what it is told: an action by name, or (name, count)."""

    actions: tuple
    oracle: object = gs.oracles.WithReplacement()
    seed: int = 0

    def init(self, context):
        return State(context.x0, 0)

    def step(self, context, state):
        x, oracle, network = state.x, context.oracle, context.network
        for name, count in self.actions:
            match name:
                case "gradient":
                    oracle.gradient(x)
                case "value":
                    oracle.value(x)
                case "both":
                    oracle.value_and_gradient(x)
                case "samples":
                    oracle.sampled_gradient(x, state.k, count)
                case "exchange":
                    network.combine(x, network.laplacian)
                case "compressed":
                    network.combine(x, network.laplacian, gs.compressors.TopK(k=count))
                case "max" | "sum":
                    network.agree(np.zeros((network.m, count)), name)
                case "norm":
                    network.norm_bound()
        return State(x, state.k + 1)

    def output(self, state):
        return state.x


def seconds_of(script, problem, network, clock, steps=1):
    """The simulated time after each step."""
    actions = tuple(action if isinstance(action, tuple) else (action, 1) for action in script)
    solution = gs.solve(problem, network, Script(actions), stop=gs.Stop(iterations=steps), clock=clock)
    return [record.simulated_seconds for record in solution.history]


def agents_after(clock, graph, exchanges, size=8.0, d=3):
    """The time of each agent after one gradient and so many exchanges."""
    timeline = Timeline(clock, graph, problem_of(graph.m, d).loss, Costs())
    timeline.gradient()
    timeline.exchange(size, exchanges)
    return timeline.checkpoint()[0].tolist()


# Closed forms


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("graph", [gs.Graph.ring(6), gs.Graph.star(6), gs.Graph.random(9, 4, seed=2)], ids=repr)
@pytest.mark.parametrize("method", METHODS[:4], ids=NAMES[:4])
def test_equal_agents_take_their_gradients_and_rounds_one_after_the_other(method, graph, dtype):
    problem = problem_of(graph.m, dtype=dtype)
    clock = gs.Clock(gradient=0.5, latency=0.25, bandwidth=96.0)
    given = {"L": 1.0} if isinstance(method, gs.NIDS) else {"L": 1.0, "norm": 2.0}
    given |= {"R": 1.0} if isinstance(method, gs.PDS) else {}
    given |= {"ratio": 1.0} if isinstance(method, gs.CondatVu) else {}
    solution = gs.solve(problem, graph, replace(method, **given), stop=gs.Stop(iterations=7), clock=clock)
    message = 0.25 + problem.d * problem.dtype.itemsize / 96.0
    assert solution.costs.control_rounds == 0
    assert solution.costs.rounds > 5
    for spent in (*solution.history, solution.costs):
        assert spent.simulated_seconds == pytest.approx(0.5 * spent.gradients + message * spent.rounds, rel=1e-12)


@pytest.mark.parametrize("method", METHODS[:4], ids=NAMES[:4])
def test_rounds_that_agree_on_something_take_as_long_as_others(method):
    graph = gs.Graph.random(8, 3, seed=1)
    network = gs.network.Local(graph, exact_norm=False)
    clock = gs.Clock(gradient=0.5, latency=0.25)
    costs = gs.solve(problem_of(8), network, method, stop=gs.Stop(iterations=3), clock=clock).costs
    assert costs.control_rounds > 0
    expected = 0.5 * costs.gradients + 0.25 * (costs.rounds + costs.control_rounds)
    assert costs.simulated_seconds == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 10])
def test_a_slow_hub_keeps_the_others_waiting(k):
    hub, leaf, latency = 5.0, 1.0, 0.5
    gradient = np.array([hub, leaf, leaf, leaf])
    seconds = seconds_of(
        ("gradient", "exchange"), problem_of(4), gs.Graph.star(4), gs.Clock(gradient=gradient, latency=latency), k
    )
    assert seconds == [(step + 1) * hub + latency for step in range(k)]


def test_a_slow_leaf_keeps_the_hub_waiting():
    gradient = np.array([1.0, 1.0, 5.0])
    clock = gs.Clock(gradient=gradient, latency=0.5)
    assert agents_after(clock, gs.Graph.star(3), 1) == [5.5, 1.5, 5.0]
    assert agents_after(clock, gs.Graph.star(3), 2) == [5.5, 6.0, 6.0]


def test_slowness_spreads_one_hop_per_exchange():
    m = 6
    clock = gs.Clock(gradient=np.array([7.0] + [0.0] * (m - 1)))
    for exchanges in range(m + 2):
        reached = min(exchanges + 1, m)
        assert agents_after(clock, gs.Graph.path(m), exchanges) == [7.0] * reached + [0.0] * (m - reached)


@pytest.mark.parametrize("exchanges", range(5))
def test_slowness_at_one_end_is_felt_at_the_other_once_it_has_come_there(exchanges):
    clock = gs.Clock(gradient=np.array([7.0, 0, 0, 0]), sample=np.array([0, 0, 0, 2.0]))
    script = ("gradient", *["exchange"] * exchanges, ("samples", 1))
    assert seconds_of(script, problem_of(4), gs.Graph.path(4), clock) == [9.0 if exchanges >= 3 else 7.0]


def test_every_link_has_its_own_latency_and_bandwidth():
    graph = gs.Graph.from_edges(3, [(2, 1), (1, 0)])
    still = {"gradient": 0.0}
    assert agents_after(gs.Clock(latency=[1.0, 10.0], **still), graph, 1) == [1, 10, 10]
    assert agents_after(gs.Clock(bandwidth=[8.0, 2.0], **still), graph, 1, size=16.0) == [2, 8, 8]
    assert agents_after(gs.Clock(latency=[1.0, 10.0], bandwidth=[8.0, 2.0], **still), graph, 1, size=16.0) == [
        3,
        18,
        18,
    ]
    assert agents_after(gs.Clock(latency=[1.0, 10.0], **still), graph, 2) == [11, 20, 20]


def test_a_fast_detour_does_not_help_within_an_exchange():
    graph = gs.Graph.complete(3)
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    clock = gs.Clock(gradient=0.0, latency=[9.0, 1.0, 1.0])
    assert agents_after(clock, graph, 1) == [9, 9, 1]


def test_a_value_takes_as_long_as_a_gradient_and_both_as_long_as_one():
    clock = gs.Clock(gradient=np.array([1.0, 4.0, 2.0]))
    for script, passes in {("value",): 1, ("both",): 1, ("gradient",): 1, ("gradient", "value", "both"): 3}.items():
        assert seconds_of(script, problem_of(3), gs.Graph.path(3), clock, steps=2) == [4 * passes, 8 * passes]


def test_control_rounds_flood_or_climb_a_tree():
    graph = gs.Graph.path(7)
    network = gs.network.Local(graph, exact_norm=False)
    assert (graph.diameter, graph.radius_center()[1]) == (6, 3)
    clock, problem = gs.Clock(latency=1.0, bandwidth=32.0), problem_of(7)

    def alone(action):
        return seconds_of((action,), problem, network, clock)[0]

    assert alone("norm") == 7 * (1 + 8 / 32)
    assert alone(("max", 1)) == 6 * (1 + 8 / 32)
    assert alone(("max", 5)) == 6 * (1 + 40 / 32)
    assert alone(("sum", 2)) == 6 * (1 + 16 / 32)
    assert seconds_of(("norm",), problem, gs.network.Local(graph), clock) == [0]


def test_a_sample_takes_a_rows_share_of_a_gradient():
    rows, count = np.array([1, 4, 10]), 5
    script, graph = (("samples", count),), gs.Graph.path(3)
    problem = problem_of(3, rows=rows)
    assert seconds_of(script, problem, graph, gs.Clock(gradient=2.0), steps=2) == [10.0, 20.0]
    gradient = np.array([1.0, 2.0, 30.0])
    assert seconds_of(script, problem, graph, gs.Clock(gradient=gradient)) == [15.0]
    assert seconds_of(script, problem, graph, gs.Clock(gradient=gradient, sample=0.5)) == [2.5]
    assert seconds_of(script, problem, graph, gs.Clock(sample=np.array([1.0, 3.0, 2.0]))) == [15.0]
    assert seconds_of(script, problem, graph, gs.Clock(gradient=gradient, sample=0.0)) == [0.0]


def test_a_sample_of_a_loss_without_rows_takes_a_whole_gradient():
    loss = gs.losses.Custom(
        gradient=lambda x: x, sample_gradient=lambda x, batch, streams: x, smoothness=1.0, agents=3, dimension=2
    )
    clock = gs.Clock(gradient=np.array([1.0, 3.0, 2.0]))
    method = Script((("samples", 4),), gs.oracles.WithReplacement())
    solution = gs.solve(gs.Problem(loss), gs.Graph.path(3), method, stop=gs.Stop(iterations=1), clock=clock)
    assert solution.costs.simulated_seconds == 12.0


def test_spds_takes_its_samples_and_rounds_one_after_the_other():
    method = gs.SPDS(N=6, R=1.0, sigma=1.0)
    clock = gs.Clock(gradient=8.0, latency=0.25)
    solution = gs.solve(problem_of(5, rows=4), gs.Graph.ring(5), method, clock=clock)
    costs = solution.costs
    assert costs.samples > 0
    expected = 2.0 * costs.samples + 8.0 * costs.gradients + 0.25 * (costs.rounds + costs.control_rounds)
    assert costs.simulated_seconds == pytest.approx(expected, rel=1e-12)


def test_compressed_messages_are_faster():
    clock, graph, problem = gs.Clock(latency=1.0, bandwidth=16.0), gs.Graph.ring(4), problem_of(4, d=8)
    assert seconds_of(("exchange",), problem, graph, clock) == [1 + 64 / 16]
    # One entry and its position, rounded up to whole numbers.
    assert seconds_of((("compressed", 1),), problem, graph, clock) == [1 + 16 / 16]
    assert seconds_of((("compressed", 3),), problem, graph, clock) == [1 + 32 / 16]
    single = problem_of(4, d=8, dtype=np.float32)
    assert seconds_of(("exchange",), single, graph, clock) == [1 + 32 / 16]
    assert seconds_of((("compressed", 1),), single, graph, clock) == [1 + 8 / 16]


def test_a_lone_agent_talks_to_nobody():
    clock = gs.Clock.satellite(gradient=np.array([0.5]))
    for method in METHODS[:4]:
        costs = gs.solve(problem_of(1), gs.Graph.path(1), method, stop=gs.Stop(iterations=6), clock=clock).costs
        assert costs.gradients >= 6
        assert costs.simulated_seconds == pytest.approx(0.5 * costs.gradients, rel=1e-12)


# A naive simulation


class Naive:
    """One agent and one message at a time."""

    def __init__(self, graph, latency, bandwidth):
        self.times = [0.0] * graph.m
        self.links = {}
        for (u, v), seconds, rate in zip(graph.edges.tolist(), latency, bandwidth, strict=True):
            self.links[u, v] = self.links[v, u] = (seconds, rate)

    def work(self, seconds):
        self.times = [time + float(more) for time, more in zip(self.times, seconds, strict=True)]

    def exchange(self, size, rounds=1):
        for _ in range(rounds):
            inboxes = {agent: [] for agent in range(len(self.times))}
            for (sender, receiver), (latency, bandwidth) in self.links.items():
                inboxes[receiver].append(self.times[sender] + latency + size / bandwidth)
            self.times = [max([time, *inboxes[agent]]) for agent, time in enumerate(self.times)]


def random_script(rng):
    names = ["gradient", "value", "both", "samples", "exchange", "exchange", "exchange", "compressed", "max", "sum"]
    return tuple((str(name), int(rng.integers(1, 4))) for name in rng.choice([*names, "norm"], size=12))


@pytest.mark.parametrize("seed", range(12))
def test_a_naive_simulation_tells_the_same_time(seed):
    rng = np.random.default_rng(seed)
    m, d = int(rng.integers(2, 14)), int(rng.integers(2, 7))
    graph = gs.Graph.random(m, min(m - 1, 4), seed=seed) if m > 2 else gs.Graph.path(m)
    rows = rng.integers(1, 6, size=m)
    gradient, sample = rng.exponential(size=m), None if seed % 3 == 0 else rng.exponential(size=m)
    latency, bandwidth = rng.exponential(size=len(graph.edges)), 1 / rng.exponential(0.05, size=len(graph.edges))
    script, steps, network = random_script(rng), 4, gs.network.Local(graph, exact_norm=False)
    clock = gs.Clock(gradient=gradient, sample=sample, latency=latency, bandwidth=bandwidth)
    found = seconds_of(script, problem_of(m, d, rows), network, clock, steps)

    naive = Naive(graph, latency, bandwidth)
    for step in range(steps):
        for name, count in script:
            match name:
                case "gradient" | "value" | "both":
                    naive.work(gradient)
                case "samples":
                    naive.work(count * (gradient / rows if sample is None else sample))
                case "exchange":
                    naive.exchange(8 * d)
                case "compressed":
                    kept = min(count, d)
                    position = math.ceil(math.log2(d)) if kept < d else 0
                    naive.exchange(8 * math.ceil(kept * (64 + position) / 64))
                case "max":
                    naive.exchange(8 * count, graph.diameter)
                case "sum":
                    naive.exchange(8 * count, 2 * graph.radius_center()[1])
                case "norm":
                    naive.exchange(8, 1 + graph.diameter)
        assert found[step] == pytest.approx(max(naive.times), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_naive_simulation_agrees_about_every_agent(seed):
    rng = np.random.default_rng(seed)
    graph = gs.Graph.geometric(20, seed=seed)
    gradient, latency = rng.exponential(size=20), rng.exponential(size=len(graph.edges))
    naive = Naive(graph, latency, np.full(len(graph.edges), 10.0))
    naive.work(gradient)
    naive.exchange(24.0, 3)
    clock = gs.Clock(gradient=gradient, latency=latency, bandwidth=10.0)
    assert agents_after(clock, graph, 3, size=24.0) == pytest.approx(naive.times, rel=1e-12)
    assert len(set(naive.times)) > 5


# Runs


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_several_clocks_at_once_tell_what_each_tells_alone(method):
    graph = gs.Graph.random(7, 3, seed=4)
    rng = np.random.default_rng(0)
    clocks = {
        "lan": gs.Clock.lan(),
        "slow agent": gs.Clock.wan(gradient=np.array([1.0, 0, 0, 0, 0, 0, 0])),
        "slow links": gs.Clock(latency=rng.exponential(size=len(graph.edges)), bandwidth=100.0),
    }
    stop = gs.Stop(iterations=8)
    together = gs.solve(problem_of(7), graph, method, stop=stop, clock=clocks)
    assert list(together.costs.simulated_seconds) == list(clocks)
    for name, clock in clocks.items():
        alone = gs.solve(problem_of(7), graph, method, stop=stop, clock=clock)
        assert together.costs.simulated_seconds[name] == alone.costs.simulated_seconds
        assert [record.simulated_seconds[name] for record in together.history] == [
            record.simulated_seconds for record in alone.history
        ]


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_a_clock_changes_nothing_but_the_time(method):
    graph, stop = gs.Graph.ring(5), gs.Stop(iterations=6)
    timed = gs.solve(problem_of(5), graph, method, stop=stop, clock=gs.Clock.wan())
    plain = gs.solve(problem_of(5), graph, method, stop=stop)
    np.testing.assert_array_equal(timed.x, plain.x)
    assert plain.costs.simulated_seconds is None
    assert {record.simulated_seconds for record in plain.history} == {None}
    ours = {"seconds": 0.0, "simulated_seconds": None}
    assert replace(timed.costs, **ours) == replace(plain.costs, **ours)


def test_every_record_has_the_time_and_it_never_goes_back():
    seen = []
    solution = gs.solve(
        problem_of(5),
        gs.Graph.ring(5),
        gs.PDS(),
        stop=gs.Stop(iterations=9),
        record_every=4,
        callback=lambda record, x: seen.append(record.simulated_seconds),
        clock=gs.Clock.wan(),
    )
    assert len(seen) == 9
    assert seen == sorted(seen)
    assert len(set(seen)) == 9
    assert [record.simulated_seconds for record in solution.history] == [seen[3], seen[7], seen[8]]
    assert solution.costs.simulated_seconds == seen[-1]


def test_times_before_the_first_iteration_count():
    """PDS looks for its parameters there."""
    network = gs.network.Local(gs.Graph.ring(5), exact_norm=False)
    spent = []

    class Spy(gs.PDS):
        def step(self, context, state):
            spent.append(replace(context.oracle.costs))
            return super().step(context, state)

    gs.solve(problem_of(5), network, Spy(), stop=gs.Stop(iterations=1), clock=gs.Clock(gradient=1.0, latency=0.25))
    (before,) = spent
    assert before.gradients >= 1
    assert before.control_rounds >= 3
    assert before.rounds == 0
    assert before.simulated_seconds == before.gradients + 0.25 * before.control_rounds


def test_a_clock_runs_over_a_wrapped_network():
    graph, stop, clock = gs.Graph.ring(5), gs.Stop(iterations=3), gs.Clock.wan()
    wrapped = gs.solve(problem_of(5), gs.network.Delayed(graph, 0.0), stop=stop, clock=clock)
    plain = gs.solve(problem_of(5), graph, stop=stop, clock=clock)
    assert wrapped.costs.simulated_seconds == plain.costs.simulated_seconds > 0


@pytest.mark.parametrize(
    ("preset", "latency", "bandwidth"),
    [(gs.Clock.lan, 1e-4, 125e6), (gs.Clock.wan, 0.04, 12.5e6), (gs.Clock.satellite, 0.3, 1.25e6)],
)
def test_presets(preset, latency, bandwidth):
    clock = preset()
    assert (clock.latency, clock.bandwidth, clock.gradient) == (latency, bandwidth, gs.Clock().gradient)
    changed = preset(gradient=2.0, latency=1.0)
    assert (changed.latency, changed.bandwidth, changed.gradient) == (1.0, bandwidth, 2.0)


def test_messages_take_no_time_unless_said():
    assert seconds_of(("gradient", "exchange"), problem_of(4), gs.Graph.ring(4), gs.Clock()) == [1e-3]


def test_what_a_clock_was_given_is_its_own():
    latency = np.ones(4)
    clock = gs.Clock(latency=latency)
    latency[:] = 9.0
    assert seconds_of(("exchange",), problem_of(4), gs.Graph.ring(4), clock) == [1.0]
    with pytest.raises(ValueError, match="read-only"):
        clock.latency[0] = 2.0


def test_a_clock_can_be_used_for_several_networks():
    clock = gs.Clock(gradient=1.0, latency=0.5)
    for m in (3, 8, 3):
        assert seconds_of(("gradient", "exchange"), problem_of(m), gs.Graph.ring(m), clock) == [1.5]


def test_ten_thousand_agents():
    m = 10_000
    graph = gs.Graph.small_world(m, 4, 0.1, seed=0)
    rng = np.random.default_rng(0)
    gradient = np.where(rng.random(m) < 0.01, 0.5, 0.01)
    clocks = {
        "even": gs.Clock(gradient=0.01, latency=0.04),
        "uneven": gs.Clock(gradient=gradient, latency=rng.uniform(0.01, 0.08, size=len(graph.edges))),
    }
    solution = gs.solve(problem_of(m, rows=1), graph, gs.NIDS(L=1.0), stop=gs.Stop(iterations=20), clock=clocks)
    costs = solution.costs
    assert costs.simulated_seconds["even"] == pytest.approx(0.01 * 20 + 0.04 * 19)
    assert 20 * 0.5 <= costs.simulated_seconds["uneven"] <= 20 * 0.5 + 19 * 0.08


# Files


@pytest.mark.covering
@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("several", [False, True])
def test_a_run_that_goes_on_later_tells_the_same_time_to_the_bit(method, several, tmp_path):
    graph, problem = gs.Graph.random(6, 3, seed=3), problem_of(6)
    rng = np.random.default_rng(1)
    uneven = gs.Clock(gradient=rng.exponential(size=6), latency=rng.exponential(size=len(graph.edges)), bandwidth=77.0)
    clock = {"uneven": uneven, "wan": gs.Clock.wan()} if several else uneven
    whole = gs.solve(problem, graph, method, stop=gs.Stop(iterations=11), clock=clock)
    path = tmp_path / "run.npz"
    for iterations in (1, 4, 11):
        stop = gs.Stop(iterations=iterations)
        parts = gs.solve(problem, graph, method, stop=stop, clock=clock, checkpoint=path, checkpoint_seconds=0)
    assert parts.history.to_dict()["simulated_seconds"] == whole.history.to_dict()["simulated_seconds"]
    assert parts.costs.simulated_seconds == whole.costs.simulated_seconds
    np.testing.assert_array_equal(parts.x, whole.x)


FIVE = gs.Graph.ring(5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (gs.Clock.lan(), None),
        (None, gs.Clock.lan()),
        (gs.Clock.lan(), gs.Clock.wan()),
        (gs.Clock.lan(), gs.Clock.lan(gradient=2.0)),
        (gs.Clock.lan(), gs.Clock.lan(sample=2.0)),
        (gs.Clock.lan(), gs.Clock.lan(bandwidth=2.0)),
        (gs.Clock(latency=[1, 2, 3, 4, 5]), gs.Clock(latency=[1, 2, 3, 5, 4])),
        (gs.Clock.lan(), {"lan": gs.Clock.lan()}),
        ({"a": gs.Clock.lan()}, {"b": gs.Clock.lan()}),
        ({"a": gs.Clock.lan(), "b": gs.Clock.wan()}, {"a": gs.Clock.wan(), "b": gs.Clock.lan()}),
        ({"a": gs.Clock.lan(), "b": gs.Clock.wan()}, {"a": gs.Clock.lan()}),
    ],
)
def test_a_run_goes_on_by_the_clocks_that_it_began_with(before, after, tmp_path):
    def go_on(clock, iterations):
        stop = gs.Stop(iterations=iterations)
        return gs.solve(problem_of(5), FIVE, stop=stop, clock=clock, checkpoint=tmp_path / "run.npz")

    go_on(before, 2)
    check_message(lambda: go_on(after, 3), ["checkpoint", "another clock"], value=".+")
    assert len(go_on(before, 3).history) == 3


def test_one_number_and_the_same_one_for_each_are_the_same_clock(tmp_path):
    for iterations, latency in enumerate([2.0, [2.0] * 5, np.full(5, 2)], start=1):
        solution = gs.solve(
            problem_of(5),
            FIVE,
            stop=gs.Stop(iterations=iterations),
            clock=gs.Clock(latency=latency),
            checkpoint=tmp_path / "run.npz",
        )
    assert len(solution.history) == 3


@pytest.mark.parametrize("clock", [gs.Clock.wan(), {"wan": gs.Clock.wan(), "lan": gs.Clock.lan()}, None])
def test_times_survive_files_and_tables(clock, tmp_path):
    solution = gs.solve(problem_of(5), FIVE, stop=gs.Stop(iterations=4), clock=clock)
    loaded = gs.load(solution.save(tmp_path / "solution.npz"))
    assert loaded.costs == solution.costs
    assert list(loaded.history) == list(solution.history)
    written = json.loads(json.dumps(solution.to_dict()))
    assert written["costs"]["simulated_seconds"] == solution.costs.simulated_seconds
    assert written["final"]["simulated_seconds"] == solution.costs.simulated_seconds
    column = solution.history.to_dict()["simulated_seconds"]
    assert column == [record.simulated_seconds for record in solution.history]
    frame = solution.history.to_pandas()
    assert len(frame) == 4
    if not isinstance(clock, dict):
        assert frame["simulated_seconds"].tolist() == column


# Mistakes


@pytest.mark.parametrize("name", ["gradient", "sample", "latency", "bandwidth"])
@pytest.mark.parametrize(
    "value",
    [
        -1.0,
        math.nan,
        -math.inf,
        "0.1",
        "fast",
        [],
        [[1.0, 2.0]],
        [[1.0], [1.0, 2.0]],
        [1.0, -1.0],
        [1.0, math.nan],
        ["1", "2"],
        [1.0, None],
        1j,
        True,
        {"a": 1.0},
        np.full(10_000, -1.0),
        np.full((100, 100), 1.0),
    ],
    ids=repr,
)
def test_times_that_are_none_are_refused(name, value):
    message = check_message(lambda: gs.Clock(**{name: value}), [f"{name} must be"])
    assert len(message) < 200


def test_limits_differ_by_name():
    for name in ("gradient", "sample", "latency"):
        gs.Clock(**{name: 0})
        check_message(lambda name=name: gs.Clock(**{name: math.inf}), ["finite", "inf"])
        if name != "sample":
            check_message(lambda name=name: gs.Clock(**{name: None}), [f"{name} must be"])
    gs.Clock(bandwidth=math.inf)
    check_message(lambda: gs.Clock(bandwidth=0.0), ["> 0"])
    check_message(lambda: gs.Clock(bandwidth=None), ["bandwidth"])
    with pytest.raises(TypeError):
        gs.Clock(1.0)


@pytest.mark.parametrize("count", [1, 4, 6])
@pytest.mark.parametrize(
    ("name", "of"), [("gradient", "agents"), ("sample", "agents"), ("latency", "links"), ("bandwidth", "links")]
)
def test_times_must_fit_the_network(name, of, count):
    graph = gs.Graph.from_edges(5, [*gs.Graph.ring(5).edges.tolist(), (0, 2)]) if of == "links" else FIVE
    wanted = len(graph.edges) if of == "links" else graph.m
    clock = gs.Clock(**{name: np.ones(count + (count == wanted))})
    words = [name, f"each of {wanted} {of}"]
    for clocks in (clock, {"good": gs.Clock(), "bad": clock}):
        check_message(lambda clocks=clocks: gs.solve(problem_of(5), graph, clock=clocks), words)


@pytest.mark.parametrize(
    "clock", [{}, "wan", 0.1, gs.Clock.wan, [gs.Clock.wan()], {"a": 1.0}, {"a": gs.Clock(), "b": "wan"}], ids=repr
)
def test_what_is_no_clock_is_refused(clock):
    check_message(lambda: gs.solve(problem_of(5), FIVE, clock=clock), ["clock must be a gs.Clock", "gs.Clock.wan()"])


def test_names_of_clocks_are_strings():
    check_message(lambda: gs.solve(problem_of(5), FIVE, clock={1: gs.Clock()}), ["names of clocks must be strings"])


def test_a_saddle_point_problem_has_no_clock():
    loss = gs.losses.Quadratic(np.eye(2), np.ones(2))
    for problem in (gs.LinearlyConstrained(loss, np.ones((1, 2)), 1.0), gs.Saddle(loss, np.ones((1, 2)))):
        for clock in (gs.Clock(), {"a": gs.Clock()}):
            check_message(
                lambda problem=problem, clock=clock: gs.solve(problem, clock=clock), ["no network", "leave it out"]
            )
