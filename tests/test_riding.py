"""Sums and maxima that ride on exchanges: against agents that pass messages, and along runs."""

from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest

import gradslide as gs
from gradslide import mixing, storage
from gradslide.costs import Costs
from gradslide.methods.base import Copied
from gradslide.network import Counted, delayed
from gradslide.network.central import Central
from gradslide.setting import Networked
from gradslide.timeline import Timeline

network = gs.network
GRAPHS = {
    "ring 9": gs.Graph.ring(9),
    "ring 10": gs.Graph.ring(10),
    "star": gs.Graph.star(8),
    "path 7": gs.Graph.path(7),
    "path 8": gs.Graph.path(8),
    "pair": gs.Graph.path(2),
    "complete": gs.Graph.complete(6),
    "grid": gs.Graph.grid(3, 5),
    "random": gs.Graph.random(25, 4, seed=2),
    "sparse": gs.Graph.random(40, 3, seed=5),
    "alone": gs.Graph.path(1),
}
GRAPH = GRAPHS["random"]
CONDITIONS = {
    "lossy": lambda inner: network.Lossy(inner, 0.5),
    "lossy each": lambda inner: network.Lossy(inner, 0.5, direction="each"),
    "bursty": lambda inner: network.Bursty(inner, 0.3),
    "sleeping": lambda inner: network.Sleeping(inner, 0.3),
    "varying": lambda inner: network.Varying(inner, up=0.6),
    "in turn": lambda inner: network.Varying(inner, graphs=[inner.graph.edges[::2], inner.graph.edges[1::2]]),
    "stragglers": lambda inner: network.Stragglers(inner, 0.4, late=0.9),
    "noisy": lambda inner: network.Noisy(inner, 1.0),
    "compressed": lambda inner: network.Compressed(inner, gs.compressors.TopK(k=1)),
    "delayed": lambda inner: network.Delayed(inner, 0.0),
    "counted": lambda inner: Counted(inner, Costs()),
    "many": lambda inner: network.Lossy(
        network.Noisy(network.Compressed(network.Delayed(inner, 0), gs.compressors.Quantization(levels=4)), 0.1), 0.3
    ),
}


def integers(m, n=2, seed=0):
    """Numbers whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-1000, 1000, size=(m, n)).astype(float)


def exchange(net, times=1):
    for _ in range(times):
        net.combine(np.ones((net.m, 3)), net.laplacian)


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
    local.post(values, "sum")
    agents.post(0, values)
    for step in range(2 * graph.radius_center()[1] + 1):
        if step:
            exchange(local)
            agents.exchange()
        known, given = agents.known(), local.arrived()
        # Not one exchange earlier, nor later.
        assert bool(known) == (step == 2 * graph.radius_center()[1])
        assert len(given) == len(known)
    np.testing.assert_array_equal(given[0], known[0])
    np.testing.assert_array_equal(given[0], values.sum(axis=0))
    assert agents.floats == local.post_size(values, "sum") == 2 * (graph.m - 1) * 2


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(3))
def test_sums_follow_each_other_as_on_a_tree(name, seed):
    graph, rng = GRAPHS[name], np.random.default_rng(seed)
    local, agents = network.Local(graph), TreeSums(graph)
    posted, seen, floats = 0, set(), 0
    for _ in range(60):
        for _ in range(rng.choice([0, 0, 1, 3])):
            values = integers(graph.m, n=rng.integers(1, 4), seed=posted)
            local.post(values, "sum")
            agents.post(posted, values)
            posted, floats = posted + 1, floats + local.post_size(values, "sum")
        if rng.random() < 0.7:
            given, known = local.arrived(), agents.known()
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
    assert local.control_rounds("sum") == exchanges == m - 1


def test_sums_are_in_double_precision_and_maxima_are_what_they_are():
    local = network.Local(gs.Graph.star(4))
    values = np.array([1e8, 1, 1, 1], dtype=np.float32)
    local.post(values, "sum")
    exchange(local, 2)
    (total,) = local.arrived()
    assert total.dtype == np.float64
    assert total.shape == ()
    assert total == 1e8 + 3 != float(values.sum())
    local.post(values, "max")
    exchange(local, 2)
    assert [result.dtype for result in local.arrived()] == [np.float32]


def test_what_was_posted_is_what_it_was_then_and_stays():
    local, values = network.Local(gs.Graph.path(2)), integers(2)
    for reduction in ("sum", "max"):
        local.post(values, reduction)
    expected = values.sum(axis=0), values.max(axis=0)
    values[:] = 0
    exchange(local, 2)
    given = local.arrived()
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
        local.post(values, reduction)
        for step in range(graph.diameter):
            if any(best != largest for best in flood.best):
                latest = max(latest, step + 1)
            assert local.arrived() == []
            exchange(local)
            flood.exchange()
        (result,) = local.arrived()
        np.testing.assert_array_equal(result, largest)
        np.testing.assert_array_equal(flood.best, [largest] * graph.m)
        assert result.dtype == values.dtype
        assert flood.floats == local.post_size(values, reduction)
    # From the worst agent it takes all of that time.
    assert latest == local.control_rounds(reduction) == graph.diameter


# Order


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
            local.post(values, reduction)
            reduce = {"sum": np.sum, "max": np.max, "or": np.any}[reduction]
            ledger.append((now + delays[reduction], reduction, reduce(values, axis=0)))
        asked = rng.choice([None, None, "sum", "max"])
        if rng.random() < 0.6:
            results = local.arrived() if asked is None else local.arrived(str(asked))
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
    local.post(integers(5, seed=1), "sum")
    local.post(integers(5, seed=2), "max")
    exchange(local)
    np.testing.assert_array_equal(local.arrived(), [integers(5, seed=2).max(axis=0)])
    exchange(local)
    np.testing.assert_array_equal(local.arrived(), [integers(5, seed=1).sum(axis=0)])
    assert local.arrived() == []


@pytest.mark.parametrize("make", [lambda: network.Local(gs.Graph.path(1)), lambda: Central(4)])
@pytest.mark.parametrize("reduction", ["sum", "max", "or"])
def test_one_place_knows_at_once(make, reduction):
    place = make()
    values = integers(place.m) > 0
    assert place.arrived() == []
    place.post(values, reduction)
    np.testing.assert_array_equal(place.arrived(), [place.observe(values, reduction)])
    assert place.arrived() == []
    assert place.post_size(values, reduction) == place.control_rounds(reduction) == 0


def test_an_unknown_reduction_is_refused():
    with pytest.raises(gs.InputError, match="reduction"):
        network.Local(GRAPH).post(integers(GRAPH.m), "mean")


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
                    each.post(integers(GRAPH.m, seed=step), reduction)
                assert net.post_size(integers(GRAPH.m), reduction) == local.post_size(integers(GRAPH.m), reduction)
        asked = (None, "sum", "max")[step % 3]
        expected, results = local.arrived(asked), net.arrived(asked)
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
        for _ in range(net.control_rounds("sum") + net.control_rounds("max")):
            exchange(net)
            found.append([result.tobytes() for result in net.arrived()])
        return found

    values = np.random.default_rng(0).normal(size=(4, GRAPH.m, 3))
    first, second = (CONDITIONS[name](network.Local(GRAPH)) for _ in range(2))
    first.post(values[0], "sum")
    exchange(first, 3)
    first.post(values[1], "max")
    first.post(values[2] > 0, "or")
    first.post(values[3], "sum")
    arrays = {}
    meta = storage.flatten(first.memory(), "memory", arrays)
    storage.write(tmp_path / "memory.npz", "memory", 1, {"memory": meta}, arrays)
    meta, arrays = storage.read(tmp_path / "memory.npz", "memory", 1)
    # What the other had in flight is gone.
    second.post(values[0], "max")
    exchange(second, 1)
    second.recall(storage.restore(None, meta["memory"], arrays))
    later = results(first)
    assert sum(map(len, later)) == 4
    assert results(second) == later


def test_a_memory_is_not_changed_by_the_run_that_goes_on():
    local = network.Local(GRAPH)
    local.post(integers(GRAPH.m), "sum")
    memory = local.memory()
    local.post(integers(GRAPH.m), "sum")
    exchange(local, local.control_rounds("sum"))
    assert len(local.arrived()) == 2
    for _ in range(2):
        local.recall(memory)
        exchange(local, local.control_rounds("sum") - 1)
        assert local.arrived() == []
        local.post(integers(GRAPH.m), "max")
        exchange(local)
        assert len(local.arrived()) == 1


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_new_run_starts_with_nothing_on_its_way(name):
    net = CONDITIONS[name](network.Local(GRAPH))
    net.post(integers(GRAPH.m), "sum")
    net.begin()
    exchange(net, net.control_rounds("sum"))
    assert net.arrived() == []


@pytest.mark.parametrize("name", CONDITIONS)
def test_nothing_rides_on_the_exchanges_of_observations(name):
    net = CONDITIONS[name](network.Local(GRAPH))
    net.post(integers(GRAPH.m), "max")
    aside = net.aside()
    exchange(aside, GRAPH.diameter)
    assert aside.arrived() == net.arrived() == []
    aside.post(integers(GRAPH.m), "max")
    exchange(net, GRAPH.diameter)
    assert len(net.arrived()) == 1
    np.testing.assert_array_equal(
        aside.combine(integers(GRAPH.m), GRAPH.laplacian), GRAPH.laplacian @ integers(GRAPH.m)
    )


# Counting


@pytest.mark.parametrize("name", GRAPHS)
def test_riders_cost_floats_and_no_rounds(name):
    graph, costs = GRAPHS[name], Costs()
    timeline = Timeline(gs.Clock(latency=0.5, bandwidth=8.0), graph, loss_of(graph.m), costs)
    net, values = Counted(network.Local(graph), costs, timeline), integers(graph.m, n=3)
    net.post(values, "sum")
    assert costs.floats_sent == 2 * (graph.m - 1) * 3
    net.post(values, "max")
    net.post(values > 0, "or")
    links = 2 * len(graph.edges)
    assert costs.floats_sent == 2 * (graph.m - 1) * 3 + 2 * graph.diameter * links * 3
    assert costs.simulated_seconds == costs.control_rounds == costs.rounds == 0
    exchange(net, 10)
    net.arrived()
    assert costs.rounds == (10 if graph.m > 1 else 0)
    assert costs.control_rounds == 0
    assert costs.floats_sent == 2 * (graph.m - 1) * 3 + (2 * graph.diameter + 10) * links * 3


def loss_of(m, d=3):
    rng = np.random.default_rng(0)
    return gs.losses.Logistic(rng.normal(size=(4 * m, d)), rng.choice([-1.0, 1.0], size=4 * m), agents=m)


# The survey


def flooded_edges(graph):
    """Exchanges until all agents know all edges, and the numbers that were sent until nobody had news."""
    known = [{tuple(edge) for edge in graph.edges.tolist() if i in edge} for i in range(graph.m)]
    news, exchanges, numbers, needed = [set(edges) for edges in known], 0, 0, 0
    while any(news):
        inboxes = [set() for _ in range(graph.m)]
        for i, edges in enumerate(news):
            for j in graph.neighbours(i).tolist():
                inboxes[j] |= edges
                numbers += 2 * len(edges)
        exchanges += 1
        news = [inbox - edges for inbox, edges in zip(inboxes, known, strict=True)]
        if any(news):
            needed = exchanges
        for edges, new in zip(known, news, strict=True):
            edges |= new
    assert all(len(edges) == len(graph.edges) for edges in known)
    return needed, numbers


@pytest.mark.parametrize("name", GRAPHS)
def test_a_survey_is_flooding(name):
    graph, costs = GRAPHS[name], Costs()
    net = Counted(network.Lossy(graph, 0.3), costs)
    exchanges, numbers = flooded_edges(graph)
    rows = integers(graph.m)
    answer = net.survey(rows, lambda found, values: np.append(np.sum(values, axis=0), [found.m, len(found.edges)]))
    np.testing.assert_array_equal(answer, [*rows.sum(axis=0), graph.m, len(graph.edges)])
    radius = graph.radius_center()[1]
    assert costs.control_rounds == net.survey_rounds == graph.diameter + radius
    links = 2 * len(graph.edges)
    assert numbers == links**2
    # The rows are flooded as the edges are, the answer passes once over every link of the tree.
    assert (
        costs.floats_sent == net.survey_size(rows, answer) == numbers + links * rows.size + (graph.m - 1) * len(answer)
    )
    assert exchanges <= graph.diameter
    assert costs.rounds == 0


def test_weights_are_part_of_what_is_learned():
    plain, weighted = (gs.Graph.from_edges(3, [(0, 1), (1, 2)], weights) for weights in (None, [1.0, 2.0]))
    nothing = np.zeros((3, 0))
    sizes = [network.Local(graph).survey_size(nothing, np.zeros(0)) for graph in (plain, weighted)]
    assert sizes == [4 * 4, 4 * 6]


def test_a_survey_takes_its_time_on_a_clock():
    graph, costs = gs.Graph.path(3), Costs()
    timeline = Timeline(gs.Clock(latency=0.5, bandwidth=8.0), graph, loss_of(3), costs)
    Counted(network.Local(graph), costs, timeline).survey(np.zeros((3, 0)), lambda found, values: np.zeros(6))
    # Three rounds; four numbers of eight bytes over each of four links, and six over the two of the tree.
    assert costs.simulated_seconds == pytest.approx(3 * 0.5 + 4 + 3, rel=1e-12)


def test_a_survey_moves_nothing_that_rides():
    net = Counted(network.Local(GRAPH), Costs())
    net.post(integers(GRAPH.m), "max")
    for _ in range(5):
        net.survey(integers(GRAPH.m), lambda graph, values: values[0])
        net.agree(integers(GRAPH.m), "sum")
    assert net.arrived() == []


def test_a_slow_network_takes_longer_for_a_survey_and_not_for_riders(monkeypatch):
    naps = []
    monkeypatch.setattr(delayed.time, "sleep", naps.append)
    slow = network.Delayed(GRAPH, 0.25)
    slow.post(integers(GRAPH.m), "sum")
    slow.arrived()
    assert naps == []
    assert slow.survey(np.ones((GRAPH.m, 1)), lambda graph, values: np.array([graph.m + len(values)])) == 2 * GRAPH.m
    assert sum(naps) == 0.25 * slow.survey_rounds > 0


def test_without_a_network_there_is_nothing_to_survey():
    rows = np.ones((3, 1))
    for ask in (
        lambda: Central(3).survey(rows, lambda graph, values: values),
        lambda: Central(3).survey_rounds,
        lambda: Central(3).survey_size(rows, rows),
    ):
        with pytest.raises(gs.InputError, match="needs a network"):
            ask()


# Runs


@dataclass(frozen=True)
class LateState(Copied):
    x: np.ndarray
    heard: tuple
    k: int


@dataclass(frozen=True)
class Late:
    """Mixes, and moves by sums that come late; keeps all that it heard, and when."""

    def init(self, context):
        context.network.post(context.x0.sum(axis=1), "sum")
        return LateState(context.x0 + np.arange(context.network.m)[:, None], (), 0)

    def step(self, context, state):
        net, x = context.network, state.x
        heard = tuple((state.k, float(total)) for total in net.arrived("sum"))
        largest = tuple((state.k, float(value)) for value in net.arrived("max"))
        net.post(np.sin(x).sum(axis=1), "sum")
        net.post(x.max(axis=1), "max")
        x = context.mix(x, context.mixing("metropolis")) - 0.01 * context.oracle.gradient(x)
        for _, total in heard:
            x = x + 0.01 * np.cos(total)
        return LateState(context.mix(x, context.mixing("metropolis")), state.heard + heard + largest, state.k + 1)

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
    riders = 31 * 2 * (GRAPH.m - 1) + 30 * diameter * 2 * len(GRAPH.edges)
    assert solution.costs.floats_sent == riders + 60 * 2 * len(GRAPH.edges) * 3


@pytest.mark.parametrize("record_every", [2, 7, 100])
def test_records_do_not_move_what_rides(record_every):
    """Residuals are exchanges, too, but nobody's."""
    often, seldom = run(GRAPH, 30), run(network.Local(GRAPH), 30, record_every=record_every)
    assert often.parameters == seldom.parameters
    np.testing.assert_array_equal(often.x, seldom.x)


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


def test_a_setting_remembers_its_network_and_its_clock():
    problem, clock = gs.Problem(loss_of(GRAPH.m)), gs.Clock(gradient=0.5, latency=0.25)
    first, second = (Networked(problem, network.Local(GRAPH), "incidence", Costs(), clock) for _ in range(2))
    first.network.post(integers(GRAPH.m), "max")
    exchange(first.network)
    second.recall(first.memory())
    assert second.timeline.memory()[0].tolist() == [0.25] * GRAPH.m
    exchange(second.network, GRAPH.diameter - 1)
    assert len(second.network.arrived()) == 1
