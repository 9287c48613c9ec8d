"""Sums and maxima that ride on exchanges: against agents that pass messages."""

import sys
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
from piggyback import CONDITIONS, GRAPH, GRAPHS, exchange, integers, loss_of

import gradslide as gs
from gradslide import network
from gradslide._support import storage
from gradslide.graphs import mixing
from gradslide.network import Counted
from gradslide.network.central import Central
from gradslide.network.clock import Timeline
from gradslide.network.piggyback import CopyToHost
from gradslide.results.costs import Costs


def tree(graph):
    """Each agent's parent in a breadth-first tree from the graph's centre; the root has none."""
    root = graph.radius_center()[0]
    parents, queue = {root: None}, deque([root])
    while queue:
        here = queue.popleft()
        for there in graph.neighbours(here).tolist():
            if there not in parents:
                parents[there] = here
                queue.append(there)
    return parents


class TreeAgent:
    """Knows its parent and its children, and of others what they told it."""

    def __init__(self, parent, children):
        self.parent, self.children = parent, children
        self.parts, self.totals, self.sent_up, self.sent_down = {}, {}, set(), set()

    def post(self, number, value):
        self.parts[number] = [value]
        self.settle()

    def outbox(self):
        """(to whom, what, of which post, value), from what it knows before the exchange."""
        for number, parts in self.parts.items():
            complete = len(parts) == 1 + len(self.children)
            if self.parent is not None and complete and number not in self.sent_up:
                self.sent_up.add(number)
                yield self.parent, "part", number, np.sum(parts, axis=0)
        for number, total in self.totals.items():
            if number not in self.sent_down:
                self.sent_down.add(number)
                for child in self.children:
                    yield child, "total", number, total

    def receive(self, what, number, value):
        if what == "part":
            self.parts[number].append(value)
        else:
            self.totals[number] = value

    def settle(self):
        """The root turns what is complete into a total."""
        if self.parent is None:
            for number, parts in self.parts.items():
                if len(parts) == 1 + len(self.children):
                    self.totals.setdefault(number, np.sum(parts, axis=0))


class TreeSums:
    """All agents, and the floats that they sent."""

    def __init__(self, graph):
        parents = tree(graph)
        children = {i: [j for j in parents if parents[j] == i] for i in parents}
        self.agents = [TreeAgent(parents[i], children[i]) for i in range(graph.m)]
        self.floats = 0

    def post(self, number, values):
        for agent, value in zip(self.agents, values, strict=True):
            agent.post(number, value)

    def exchange(self):
        messages = [message for agent in self.agents for message in agent.outbox()]
        for to, what, number, value in messages:
            self.agents[to].receive(what, number, value)
            self.floats += value.size
        for agent in self.agents:
            agent.settle()

    def known(self):
        """What all agents know, and all alike."""
        common = set.intersection(*(set(agent.totals) for agent in self.agents))
        for number in common:
            assert len({agent.totals[number].tobytes() for agent in self.agents}) == 1
        return {number: self.agents[0].totals[number] for number in common}


# Sums


@pytest.mark.parametrize("name", GRAPHS)
def test_a_sum_is_known_when_agents_on_a_tree_all_know_it(name):
    graph = GRAPHS[name]
    local, agents, values = network.Local(graph), TreeSums(graph), integers(graph.m)
    local.start_reduce(values, "sum")
    agents.post(0, values)
    for step in range(2 * graph.radius_center()[1] + 1):
        if step:
            exchange(local)
            agents.exchange()
        known, given = agents.known(), local.completed()
        # Not one exchange earlier, nor later.
        assert bool(known) == (step == 2 * graph.radius_center()[1])
        assert len(given) == len(known)
    np.testing.assert_array_equal(given[0], known[0])
    np.testing.assert_array_equal(given[0], values.sum(axis=0))
    assert agents.floats == local.costs.reduce_floats(values, "sum") == 2 * (graph.m - 1) * 2


@pytest.mark.covering
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_sums_follow_each_other_as_on_a_tree(name, seed):
    graph, rng = GRAPHS[name], np.random.default_rng(seed)
    local, agents = network.Local(graph), TreeSums(graph)
    posted, seen, floats = 0, set(), 0
    for _ in range(60):
        for _ in range(rng.choice([0, 0, 1, 3])):
            values = integers(graph.m, n=rng.integers(1, 4), seed=posted)
            local.start_reduce(values, "sum")
            agents.post(posted, values)
            posted, floats = posted + 1, floats + local.costs.reduce_floats(values, "sum")
        if rng.random() < 0.7:
            given, known = local.completed(), agents.known()
            new = sorted(set(known) - seen)
            seen.update(new)
            assert len(given) == len(new)
            for result, number in zip(given, new, strict=True):
                np.testing.assert_array_equal(result, known[number])
        exchange(local)
        agents.exchange()
    assert len(seen) > (5 if graph.m < 30 else 3)
    for _ in range(2 * graph.m):
        agents.exchange()
    assert agents.floats == floats


@pytest.mark.parametrize("m", [3, 5, 7])
def test_on_a_path_no_protocol_could_be_faster(m):
    """What the last agent knows hangs on the first one's value only after as many exchanges as there are links."""
    local = network.Local(gs.Graph.path(m))
    reach = np.eye(m)[0]
    exchanges = 0
    while not reach[-1]:
        reach = local.graph.adjacency @ reach + reach
        exchanges += 1
    assert local.costs.control_rounds("sum") == exchanges == m - 1


def test_sums_are_in_double_precision_and_maxima_are_what_they_are():
    local = network.Local(gs.Graph.star(4))
    values = np.array([1e8, 1, 1, 1], dtype=np.float32)
    local.start_reduce(values, "sum")
    exchange(local, 2)
    (total,) = local.completed()
    assert total.dtype == np.float64
    assert total.shape == ()
    assert total == 1e8 + 3 != float(values.sum())
    local.start_reduce(values, "max")
    exchange(local, 2)
    assert [result.dtype for result in local.completed()] == [np.float32]


@pytest.mark.parametrize("name", ["local", *CONDITIONS])
def test_channels_do_not_hear_each_other(name):
    net = network.Local(GRAPH) if name == "local" else CONDITIONS[name](network.Local(GRAPH))
    for number, channel in enumerate(("", "check 5", "check 6", "check 5")):
        net.start_reduce(np.full((GRAPH.m, 1), float(number)), "max", channel)
    exchange(net, net.costs.control_rounds("max"))
    heard = {channel: [float(each[0]) for each in net.completed("max", channel)] for channel in ("check 5", "", "none")}
    assert heard == {"check 5": [1.0, 3.0], "": [0.0], "none": []}
    assert net.completed("sum", "check 6") == net.completed() == []
    assert [float(each[0]) for each in net.completed(channel="check 6")] == [2.0]


def test_what_was_posted_is_what_it_was_then_and_stays():
    local, values = network.Local(gs.Graph.path(2)), integers(2)
    for reduction in ("sum", "max"):
        local.start_reduce(values, reduction)
    expected = values.sum(axis=0), values.max(axis=0)
    values[:] = 0
    exchange(local, 2)
    given = local.completed()
    for result, right in zip(given, expected, strict=True):
        np.testing.assert_array_equal(result, right)
        with pytest.raises(ValueError, match="read-only"):
            result += 1


# Maxima


class Flooding:
    """Every agent sends the largest that it knows to all neighbours, in every exchange."""

    def __init__(self, graph, values):
        self.graph, self.best, self.floats = graph, [np.array(value) for value in values], 0

    def exchange(self):
        sent = [best.copy() for best in self.best]
        for one, other in [*self.graph.edges.tolist(), *self.graph.edges[:, ::-1].tolist()]:
            self.best[other] = np.maximum(self.best[other], sent[one])
            self.floats += sent[one].size


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("reduction", ["max", "or"])
def test_a_maximum_is_known_when_flooding_has_reached_everybody(name, reduction):
    graph = GRAPHS[name]
    latest = 0
    for source in range(graph.m):
        local, values = network.Local(graph), np.arange(graph.m)[:, None] == source
        values = values if reduction == "or" else values * 3.5
        flood, largest = Flooding(graph, values), values.max(axis=0)
        local.start_reduce(values, reduction)
        for step in range(graph.diameter):
            if any(best != largest for best in flood.best):
                latest = max(latest, step + 1)
            assert local.completed() == []
            exchange(local)
            flood.exchange()
        (result,) = local.completed()
        np.testing.assert_array_equal(result, largest)
        np.testing.assert_array_equal(flood.best, [largest] * graph.m)
        assert result.dtype == values.dtype
        assert flood.floats == local.costs.reduce_floats(values, reduction)
    # From the worst agent it takes all of that time.
    assert latest == local.costs.control_rounds(reduction) == graph.diameter


# Order


@pytest.mark.covering
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(4))
def test_results_come_once_on_time_and_in_order(name, seed):
    graph, rng = GRAPHS[name], np.random.default_rng(seed)
    local, ledger = network.Local(graph), []
    delays = {"sum": 2 * graph.radius_center()[1], "max": graph.diameter, "or": graph.diameter}
    given = 0
    for now in range(100):
        for _ in range(rng.choice([0, 1, 2])):
            reduction = str(rng.choice(["sum", "max", "or"]))
            values = integers(graph.m, n=rng.integers(1, 4), seed=rng.integers(1000))
            values = values > 0 if reduction == "or" else values
            local.start_reduce(values, reduction)
            reduce = {"sum": np.sum, "max": np.max, "or": np.any}[reduction]
            ledger.append((now + delays[reduction], reduction, reduce(values, axis=0)))
        asked = rng.choice([None, None, "sum", "max"])
        if rng.random() < 0.6:
            results = local.completed() if asked is None else local.completed(str(asked))
            due = [post for post in ledger if post[0] <= now and asked in (None, post[1])]
            ledger = [post for post in ledger if not (post[0] <= now and asked in (None, post[1]))]
            assert len(results) == len(due)
            for result, (_, _, expected) in zip(results, due, strict=True):
                np.testing.assert_array_equal(result, expected)
            given += len(results)
        exchange(local)
    assert given > 30


def test_a_maximum_overtakes_a_sum():
    local = network.Local(gs.Graph.complete(5))
    local.start_reduce(integers(5, seed=1), "sum")
    local.start_reduce(integers(5, seed=2), "max")
    exchange(local)
    np.testing.assert_array_equal(local.completed(), [integers(5, seed=2).max(axis=0)])
    exchange(local)
    np.testing.assert_array_equal(local.completed(), [integers(5, seed=1).sum(axis=0)])
    assert local.completed() == []


@pytest.mark.parametrize("make", [lambda: network.Local(gs.Graph.path(1)), lambda: Central(4)])
@pytest.mark.parametrize("reduction", ["sum", "max", "or"])
def test_one_place_knows_at_once(make, reduction):
    place = make()
    values = integers(place.m) > 0
    assert place.completed() == []
    place.start_reduce(values, reduction)
    np.testing.assert_array_equal(place.completed(), [place.session.observe(values, reduction)])
    assert place.completed() == []
    assert place.costs.reduce_floats(values, reduction) == place.costs.control_rounds(reduction) == 0


def test_an_unknown_reduction_is_refused():
    with pytest.raises(gs.InputError, match="reduction"):
        network.Local(GRAPH).start_reduce(integers(GRAPH.m), "mean")


# Wrappers


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions_do_not_disturb_what_rides_and_an_exchange_is_one(name):
    local, net = network.Local(GRAPH), CONDITIONS[name](network.Local(GRAPH))
    metropolis = mixing.metropolis(GRAPH).matrix
    rng = np.random.default_rng(0)
    seen = 0
    for step in range(40):
        if step % 3 == 0:
            for reduction in ("sum", "max"):
                for each in (local, net):
                    each.start_reduce(integers(GRAPH.m, seed=step), reduction)
                assert net.costs.reduce_floats(integers(GRAPH.m), reduction) == local.costs.reduce_floats(
                    integers(GRAPH.m), reduction
                )
        asked = (None, "sum", "max")[step % 3]
        expected, results = local.completed(asked), net.completed(asked)
        seen += len(expected)
        assert len(results) == len(expected)
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, right)
        v, encoding = rng.normal(size=(GRAPH.m, 3)), gs.compressors.TopK(k=2) if step % 5 == 0 else None
        for each in (local, net):
            each.combine(v, metropolis if step % 2 else GRAPH.laplacian, encoding)
    assert seen > 10


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_rides_goes_on_from_a_memory_to_the_bit(name, tmp_path):
    def results(net):
        found = []
        for _ in range(net.costs.control_rounds("sum") + net.costs.control_rounds("max")):
            exchange(net)
            found.append([result.tobytes() for channel in ("check", "") for result in net.completed(None, channel)])
        return found

    values = np.random.default_rng(0).normal(size=(4, GRAPH.m, 3))
    first, second = (CONDITIONS[name](network.Local(GRAPH)) for _ in range(2))
    first.start_reduce(values[0], "sum")
    exchange(first, 3)
    first.start_reduce(values[1], "max")
    first.start_reduce(values[2] > 0, "or")
    first.start_reduce(values[3], "sum", "check")
    arrays = {}
    meta = storage.flatten(first.session.checkpoint(), "memory", arrays)
    storage.write(tmp_path / "memory.npz", "memory", 1, {"memory": meta}, arrays)
    meta, arrays = storage.read(tmp_path / "memory.npz", "memory", 1)
    # What the other had in flight is gone.
    second.start_reduce(values[0], "max")
    exchange(second, 1)
    second.session.resume(storage.restore(None, meta["memory"], arrays))
    later = results(first)
    assert sum(map(len, later)) == 4
    assert results(second) == later


def test_a_memory_is_not_changed_by_the_run_that_goes_on():
    local = network.Local(GRAPH)
    local.start_reduce(integers(GRAPH.m), "sum")
    memory = local.session.checkpoint()
    local.start_reduce(integers(GRAPH.m), "sum")
    exchange(local, local.costs.control_rounds("sum"))
    assert len(local.completed()) == 2
    for _ in range(2):
        local.session.resume(memory)
        exchange(local, local.costs.control_rounds("sum") - 1)
        assert local.completed() == []
        local.start_reduce(integers(GRAPH.m), "max")
        exchange(local)
        assert len(local.completed()) == 1


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_new_run_starts_with_nothing_on_its_way(name):
    net = CONDITIONS[name](network.Local(GRAPH))
    net.start_reduce(integers(GRAPH.m), "sum")
    net.session.begin()
    exchange(net, net.costs.control_rounds("sum"))
    assert net.completed() == []


@pytest.mark.parametrize("name", CONDITIONS)
def test_nothing_rides_on_the_exchanges_of_observations(name):
    net = CONDITIONS[name](network.Local(GRAPH))
    net.start_reduce(integers(GRAPH.m), "max")
    uncounted = net.session.uncounted()
    exchange(uncounted, GRAPH.diameter)
    assert uncounted.completed() == net.completed() == []
    uncounted.start_reduce(integers(GRAPH.m), "max")
    exchange(net, GRAPH.diameter)
    assert len(net.completed()) == 1
    np.testing.assert_array_equal(
        uncounted.combine(integers(GRAPH.m), GRAPH.laplacian), GRAPH.laplacian @ integers(GRAPH.m)
    )


# Counting


def test_the_vectors_of_checks_take_their_time_on_the_clock():
    costs = Costs()
    timeline = Timeline(gs.Clock(latency=0.5, bandwidth=8.0), GRAPH, loss_of(GRAPH.m), costs)
    net = Counted(network.Local(GRAPH), costs, timeline)
    net.start_reduce(integers(GRAPH.m, n=3), "sum", "check 5")
    assert costs.floats_sent == 2 * (GRAPH.m - 1) * 3
    # One number takes a second in each exchange; the latency is that of the exchanges.
    assert costs.simulated_seconds == 3 * net.costs.control_rounds("sum") > 0
    assert costs.control_rounds == costs.rounds == 0


@pytest.mark.parametrize("name", GRAPHS)
def test_piggybacked_reductions_cost_floats_and_no_rounds(name):
    graph, costs = GRAPHS[name], Costs()
    timeline = Timeline(gs.Clock(latency=0.5, bandwidth=8.0), graph, loss_of(graph.m), costs)
    net, values = Counted(network.Local(graph), costs, timeline), integers(graph.m, n=3)
    net.start_reduce(values, "sum")
    assert costs.floats_sent == 2 * (graph.m - 1) * 3
    net.start_reduce(values, "max")
    net.start_reduce(values > 0, "or")
    links = 2 * len(graph.edges)
    assert costs.floats_sent == 2 * (graph.m - 1) * 3 + 2 * graph.diameter * links * 3
    assert costs.simulated_seconds == costs.control_rounds == costs.rounds == 0
    exchange(net, 10)
    net.completed()
    assert costs.rounds == (10 if graph.m > 1 else 0)
    assert costs.control_rounds == 0
    assert costs.floats_sent == 2 * (graph.m - 1) * 3 + (2 * graph.diameter + 10) * links * 3


@pytest.mark.parametrize("name", ["combine", "batch", "start_reduce", "completed"])
def test_no_exchange_can_leave_out_the_piggybacked_reductions(name):
    """A network implements `_combine`; what counts its exchanges cannot be overridden."""
    with pytest.raises(TypeError, match=f"Quiet overrides {name}; implement _combine"):
        type("Quiet", (network.Local,), {name: lambda *given: None})

    class Doubled(network.Local):
        def _combine(self, v, weights):
            return 2 * super()._combine(v, weights)

    doubled, v = Doubled(GRAPH), integers(GRAPH.m)
    doubled.start_reduce(v, "max")
    for _ in range(GRAPH.diameter):
        assert doubled.completed() == []
        np.testing.assert_array_equal(doubled.combine(v, GRAPH.laplacian), 2 * (GRAPH.laplacian @ v))
    assert len(doubled.completed()) == 1
    doubled.start_reduce(v, "max")
    assert doubled.batch(GRAPH.diameter, v, lambda: "done") == "done"
    assert len(doubled.completed()) == 1


def test_only_networks_in_one_process_do_several_exchanges_at_once():
    for net in (Central(3), network.Lossy(GRAPH, 0.1)):
        assert not net.is_local
    with pytest.raises(NotImplementedError):
        Central(3).batch(2, integers(3), lambda: None)


# ---- sums on a device


def test_a_sum_is_waited_for_on_its_own_device_though_another_one_is_current(monkeypatch):
    """PyTorch as far as it takes part, with devices that this machine need not have."""
    done = []

    class Event:
        def record(self, stream=("stream of", "cuda:0")):
            self.stream = stream

        def synchronize(self):
            done.append(self.stream)

    host = SimpleNamespace(copy_=lambda values, non_blocking: None, numpy=lambda: np.ones(3))
    cuda = SimpleNamespace(Event=Event, current_stream=lambda device=None: ("stream of", device or "cuda:0"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, empty=lambda *given, **how: host))
    copy = CopyToHost(SimpleNamespace(shape=(3,), dtype=None, device="cuda:1"))
    assert copy.wait().tolist() == [1.0, 1.0, 1.0]
    assert done == [("stream of", "cuda:1")]
