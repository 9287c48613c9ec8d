"""The network as one agent among peers sees it, against the simulation that sees all of them."""

import socket
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from peers_agents import GRAPH, Town, all_well, key_pairs, together
from piggyback import GRAPHS, integers

import gradslide as gs
from gradslide import network
from gradslide._support.errors import InputError
from gradslide.graphs import mixing
from gradslide.network.peers.collectives import AllGather, Flood, SignalFlood, Tree, TreeSum, is_done
from gradslide.network.peers.errors import PeerError, SettingsDiffer
from gradslide.network.peers.rounds import Position, Purpose, Rounds, finite, split_header, unlimited, with_header
from gradslide.network.peers.topology import discover

SMALL = gs.Graph.path(3)
SOME = {name: GRAPHS[name] for name in ("ring 9", "star", "path 8", "pair", "complete", "random", "sparse")}


def passed(graph, collectives, before=lambda step: None):
    """All agents' collectives, carried to the end over links that are simulated; and the numbers that each has sent."""
    floats = np.zeros(graph.m, dtype=int)
    while not is_done(collectives[0]):
        before(collectives[0].step)
        sent = {(i, int(j)): collectives[i].sent(int(j)) for i in range(graph.m) for j in graph.neighbours(i)}
        for (i, j), numbers in sent.items():
            assert collectives[j].size(i) == numbers.size, "both ends must know how much passes"
            floats[i] += numbers.size
        for j in range(graph.m):
            collectives[j].advance({int(i): sent[int(i), j] for i in graph.neighbours(j)})
    return floats


# What takes several exchanges


@pytest.mark.parametrize("name", SOME)
def test_a_sum_goes_up_the_tree_and_down(name):
    graph, values = SOME[name], np.random.default_rng(3).normal(size=(SOME[name].m, 3))
    tree, local = Tree(graph), network.Local(graph)
    ways = [TreeSum(tree, i, values[i]) for i in range(graph.m)]
    floats = passed(graph, ways)
    assert ways[0].step == local.costs.control_rounds("sum")
    assert floats.sum() == local.costs.reduce_floats(values, "sum")
    np.testing.assert_array_equal(floats, [3 * tree.links(i) for i in range(graph.m)])
    assert len({way.values.tobytes() for way in ways}) == 1
    np.testing.assert_allclose(ways[0].values, values.sum(axis=0), rtol=1e-13)


def test_a_node_adds_its_own_first_and_then_its_children_in_their_order():
    graph, values = gs.Graph.star(4), np.array([[1e16], [1.0], [-1e16], [2.0]])
    ways = [TreeSum(Tree(graph), i, values[i]) for i in range(4)]
    passed(graph, ways)
    assert ways[3].values.tolist() == [((1e16 + 1.0) - 1e16) + 2.0] == [2.0]


@pytest.mark.parametrize("name", SOME)
def test_maxima_and_rows_are_flooded(name):
    graph, values = SOME[name], integers(SOME[name].m)
    local = network.Local(graph)
    floods = [Flood(values[i], graph.diameter_bound) for i in range(graph.m)]
    assert passed(graph, floods).sum() == local.costs.reduce_floats(values, "max")
    assert all(np.array_equal(flood.values, values.max(axis=0)) for flood in floods)
    gathers = [AllGather(graph, i, values[i]) for i in range(graph.m)]
    floats = passed(graph, gathers)
    assert all(np.array_equal(gather.rows(), values) for gather in gathers)
    # No row passes over a link more than once in each direction.
    assert np.all(floats <= graph.degrees * values.size)


def test_a_flood_of_zeros_ends_with_the_same_bits():
    floods = [Flood(np.array([zero]), 1) for zero in (0.0, -0.0)]
    passed(gs.Graph.path(2), floods)
    assert [np.signbit(flood.values[0]) for flood in floods] == [False, False]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("seed", range(3))
def test_all_end_with_the_same_signal_even_if_one_forgets_its_own(name, seed):
    """An agent that was started again has another signal than before; some neighbours had heard its old one."""
    graph, rng = SOME[name], np.random.default_rng(seed)
    signals = [SignalFlood(graph.diameter_bound + 1, own=int(rng.integers(3))) for _ in range(graph.m)]
    changed = int(rng.integers(graph.m))
    old, new = 5 + int(rng.integers(5)), 5 + int(rng.integers(5))
    told_before = set(rng.permutation(graph.neighbours(changed))[: rng.integers(graph.degrees[changed] + 1)].tolist())

    class Restarted(SignalFlood):
        def sent(self, receiver):
            return np.array([old if receiver in told_before else new]) if self.step == 0 else super().sent(receiver)

    signals[changed] = Restarted(graph.diameter_bound + 1, own=new)
    passed(graph, signals)
    assert len({signal.result for signal in signals}) == 1
    told_now = set(graph.neighbours(changed).tolist()) - told_before
    assert signals[0].result == max([old] * bool(told_before) + [new] * bool(told_now))


@pytest.mark.parametrize("name", SOME)
def test_the_tree_is_breadth_first_and_its_parents_are_the_smallest(name):
    graph = SOME[name]
    tree = Tree(graph)
    root, radius = graph.radius_center()
    assert (tree.root, tree.height) == (root, radius)
    assert sum(tree.links(i) for i in range(graph.m)) == 2 * (graph.m - 1)
    assert sum(tree.children(i) for i in range(graph.m)) == graph.m - 1


# Messages


def test_a_message_says_where_its_sender_is():
    place = Position(7, Purpose.SUM, 2)
    there, content = split_header(with_header(place, np.array([1.5, 2.5])))
    assert there == place
    assert content.tolist() == [1.5, 2.5]
    assert split_header(np.array([7.0, 99.0, 2.0]))[0] is None
    assert split_header(np.array([7.5, 2.0, 2.0]))[0] is None
    assert split_header(np.array([7.0]))[0] is None


def test_what_is_not_finite_travels_as_finite_numbers():
    values = np.array([1.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -np.finfo(float).max, 5e-324])
    assert np.isfinite(finite(values)).all()
    expected = values.copy()
    expected[6] = -np.inf
    np.testing.assert_array_equal(unlimited(finite(values)), expected)


# Discovery


@pytest.mark.parametrize(
    "graph",
    [GRAPH, gs.Graph.star(5), gs.Graph.path(5), gs.Graph.path(2)],
    ids=["ring with chords", "star", "path", "pair"],
)
def test_agents_find_out_the_graph(graph):
    keys = tuple(pair.public for pair in key_pairs(graph.m))
    for diameter in (graph.diameter, graph.diameter + 2):
        found = together(
            graph,
            lambda i, net: (net.graph, net.m, net.agents, net.public_keys),
            lambda i, diameter=diameter: {"diameter": diameter},
        )
        assert all_well(found) == [(graph, graph.m, (i,), keys) for i in range(graph.m)]


@pytest.mark.parametrize("diameter", [1, 2])
def test_a_bound_that_is_too_small_is_refused_by_all(diameter):
    """The agents in the middle of the path know all of it after two exchanges, and that others do not."""
    results = together(gs.Graph.path(4), lambda i, net: net.graph, lambda i: {"diameter": diameter})
    for result in results:
        # Who finds out first tells the others.
        assert isinstance(result, InputError | PeerError)
        assert f"{diameter} is too small" in str(result)


def test_bounds_that_differ_are_refused():
    for result in together(gs.Graph.path(2), lambda i, net: net.graph, lambda i: {"diameter": 1 + i}):
        assert isinstance(result, SettingsDiffer)
        assert "diameter" in str(result)


def words_of(own, neighbours):
    """In which an agent tells its links."""
    told = []
    with pytest.raises(StopIteration):
        discover(own, neighbours, 1, lambda words: told.append(words) or next(iter(())))
    return told[0]


def test_a_link_that_one_end_does_not_name_is_refused():
    a, b, c = (pair.public for pair in key_pairs(3))
    both = {"c": np.concatenate([words_of(b, [a, c]), words_of(c, [a, b])])}
    assert discover(a, [b, c], 2, lambda words: both).graph.m == 3
    with pytest.raises(InputError) as refused:
        discover(a, [c], 2, lambda words: both)
    assert f"{b[:20]}... names {a[:20]}..., which does not name it" in str(refused.value)


def test_nonsense_instead_of_links_names_who_sent_it():
    a, b = (pair.public for pair in key_pairs(2))
    for words in (np.ones(5), np.full(16, 0.5), np.full(16, -1.0), np.full(16, 2.0**32)):
        with pytest.raises(PeerError, match="neighbour bob: its list of links"):
            discover(a, [b], 1, lambda _, words=words: {"bob": words})


# Exchanges


def test_combinations_are_those_of_the_simulation_to_the_bit():
    rng = np.random.default_rng(0)
    D = sp.diags_array(rng.uniform(1, 2, size=GRAPH.m))
    matrices = [GRAPH.laplacian, mixing.metropolis(GRAPH).matrix, sp.csr_array(D @ GRAPH.laplacian)]
    assert not matrices[-1].has_sorted_indices
    cases = [(rng.normal(size=(GRAPH.m, d)).astype(dtype), W) for d in (1, 3) for dtype in "fd" for W in matrices]

    def act(i, net):
        return [net.combine(v[[i]], W.copy()) for v, W in cases]

    found = all_well(together(GRAPH, act))
    for number, (v, W) in enumerate(cases):
        expected = network.Local(GRAPH).combine(v, W.copy())
        rows = np.vstack([each[number] for each in found])
        assert rows.dtype == expected.dtype
        assert rows.tobytes() == expected.tobytes()


def test_agents_agree():
    values = {
        "sum": integers(GRAPH.m),
        "max": np.random.default_rng(1).normal(size=(GRAPH.m, 2, 2)),
        "or": np.arange(GRAPH.m) == 3,
    }
    single = np.random.default_rng(2).normal(size=(GRAPH.m, 3)).astype(np.float32)
    wild = np.zeros((GRAPH.m, 3))
    wild[1, 0], wild[2, 1], wild[3, 1], wild[4, 2] = np.inf, np.inf, -np.inf, np.nan

    def act(i, net):
        found = {reduction: net.agree(rows[[i]], reduction) for reduction, rows in values.items()}
        return found | {"single": net.agree(single[[i]], "sum"), "wild": net.agree(wild[[i]], "sum")}

    results = all_well(together(GRAPH, act))
    for found in results:
        for reduction, rows in values.items():
            expected = network.Local(GRAPH).agree(rows, reduction)
            np.testing.assert_array_equal(found[reduction], expected)
            assert found[reduction].dtype == expected.dtype
        assert found["single"].dtype == np.float32
        np.testing.assert_allclose(found["single"], single.sum(axis=0), rtol=1e-5)
        assert found["single"].tobytes() == results[0]["single"].tobytes()
        np.testing.assert_array_equal(found["wild"], [np.inf, np.nan, np.nan])


CHANNELS = ("", "check")


def script(rng):
    """What a method does, at random: (posted reductions, of which reduction it asks) before each exchange."""
    kinds = ("sum", "max", "or")
    return [
        (
            [kinds[k] for k in rng.integers(3, size=rng.integers(3))],
            [None, *kinds][rng.integers(4)],
            rng.random() < 0.3,
        )
        for _ in range(25)
    ]


def played(net, rows, agents):
    """What a network gives out, and after which exchange."""
    given = []
    for step, (posts, asked, agrees) in enumerate(script(np.random.default_rng(5))):
        for number, reduction in enumerate(posts):
            values = rows[agents] + 100 * step + number
            net.start_reduce(values % 2 == 0 if reduction == "or" else values, reduction, CHANNELS[(step + number) % 2])
        given += [(step, name, result.tolist()) for name in CHANNELS for result in net.completed(asked, name)]
        if agrees:
            # Control rounds carry nothing that rides.
            net.agree(rows[agents], "max")
        net.session.all_reduce_signal(0)
        net.combine(rows[agents], net.laplacian)
    return given


def test_what_rides_along_arrives_when_it_does_in_the_simulation():
    rows = integers(GRAPH.m)
    expected = played(network.Local(GRAPH), rows, np.arange(GRAPH.m))
    assert len(expected) > 10
    assert all_well(together(GRAPH, lambda i, net: played(net, rows, [i]))) == [expected] * GRAPH.m


def test_a_survey_gives_all_what_the_centre_found():
    values, root = integers(SMALL.m), SMALL.radius_center()[0]

    def act(i, net):
        def work_out(graph, rows):
            assert graph == SMALL
            return np.append(rows.sum(axis=0), [i, np.nan])

        answer = net.survey(values[[i]], work_out)
        return answer, net.survey(np.zeros((1, 0)), lambda graph, rows: np.array(rows.shape))

    for answer, empty in all_well(together(SMALL, act)):
        np.testing.assert_array_equal(answer, [*values.sum(axis=0), root, np.nan])
        assert empty.tolist() == [SMALL.m, 0]


def test_the_norm_is_what_the_centre_found():
    root, radius = SMALL.radius_center()

    def act(i, net):
        # As if machines differed in the last digits.
        net.graph.__dict__["laplacian_norm"] = 3.0 + i
        rounds = net.costs.norm_rounds
        return rounds, net.norm_bound(), net.costs.norm_rounds, net.norm_bound()

    assert all_well(together(SMALL, act)) == [(radius, 3.0 + root, 0, 3.0 + root)] * SMALL.m
    bounds = all_well(
        together(SMALL, lambda i, net: (net.costs.norm_rounds, net.norm_bound()), lambda i: {"exact_norm": False})
    )
    assert bounds == [(0, SMALL.norm_bound)] * SMALL.m


def test_costs_of_all_agents_are_those_of_the_simulation():
    local, v, answer = network.Local(GRAPH), integers(GRAPH.m), np.zeros(5)
    encoding = gs.compressors.TopK(k=1)

    def sizes(net, v):
        return np.array(
            [
                net.costs.exchange_floats(v),
                net.costs.exchange_floats(v, encoding),
                *(net.costs.reduce_floats(v, reduction) for reduction in ("sum", "max", "or")),
                net.costs.survey_floats(v, answer),
            ]
        )

    rounds = [local.costs.survey_rounds, *(local.costs.control_rounds(reduction) for reduction in ("sum", "max", "or"))]

    def act(i, net):
        assert [
            net.costs.survey_rounds,
            *(net.costs.control_rounds(reduction) for reduction in ("sum", "max", "or")),
        ] == rounds
        return sizes(net, v[[i]])

    np.testing.assert_array_equal(sum(all_well(together(GRAPH, act))), sizes(local, v))


# Control signals


def signalled(i, net, signals):
    """What is known before each exchange. signals: (step, agent) -> signal."""
    told = []
    for step in range(16):
        # A run settles twice in an outer iteration.
        told.append(max(net.session.all_reduce_signal(0), net.session.all_reduce_signal(signals.get((step, i), 0))))
        net.combine(np.ones((1, 2)), net.laplacian)
    return told


def test_signals_come_late_but_to_all_at_once_and_are_answered_once():
    late = GRAPH.diameter + 1
    # A checkpoint is asked for until it is written; something more urgent comes in between.
    signals = {(step, 6): 1 for step in range(2, 2 + late + 1)} | {(4, 1): 3, (10, 0): 1}
    expected = [0] * 16
    expected[2 + late], expected[4 + late], expected[10 + late] = 1, 3, 1
    assert all_well(together(GRAPH, lambda i, net: signalled(i, net, signals))) == [expected] * GRAPH.m


# What is refused


def test_nothing_connects_but_connect(monkeypatch):
    """Looking at a network opens no socket, and no thread; its graph is known once it is connected."""
    opened = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: opened.append("thread"))
    monkeypatch.setattr("gradslide.network.peers.links.Sockets", lambda *given, **named: opened.append("sockets"))
    town = Town.on(SMALL)
    monkeypatch.setattr(socket, "socket", lambda *given, **named: opened.append("socket"))
    net = town.peers(0)
    assert repr(net).startswith("Peers(neighbours: agent 1")
    f"{net}"
    assert (net.is_local, net.session.rank, net.session.size, net.session.sees_all) == (False, 0, 1, False)
    for name in ("graph", "m", "agents", "laplacian", "costs", "public_keys"):
        with pytest.raises(InputError, match=r"network\.session\.connect\(\) first"):
            getattr(net, name)
    with pytest.raises(InputError, match=r"network\.session\.connect\(\) first"):
        net.agree(np.ones((1, 1)), "sum")
    net.session.begin()
    net.close()
    assert opened == []


def test_a_network_connects_once():
    def act(i, net):
        before = net.graph
        net.session.connect()
        return net.graph is before

    assert all_well(together(SMALL, act)) == [True] * SMALL.m


def test_nobody_sees_all():
    def act(i, net):
        assert not net.session.sees_all
        assert (net.session.rank, net.session.size) == (0, 1)
        for refused in (
            lambda: net.session.observe(np.ones((1, 1)), "sum"),
            lambda: net.session.gather(np.ones((1, 1))),
            net.session.uncounted,
        ):
            with pytest.raises(InputError, match="sees no data but its own"):
                refused()
        with pytest.raises(InputError, match="reduction"):
            net.agree(np.ones((1, 1)), "mean")
        far = np.ones((net.m, net.m))
        if i != 1:
            with pytest.raises(InputError, match="weights must join neighbours only"):
                net._own_row(sp.csr_array(far), far.dtype)

    all_well(together(SMALL, act))


def test_bad_input():
    for bad in (0, 1.5, "2"):
        with pytest.raises(InputError, match="diameter"):
            Town.on(SMALL).peers(0, diameter=bad)


# What is no message of this place


def test_messages_that_do_not_fit_are_thrown_away_and_agents_elsewhere_are_named():
    links = SimpleNamespace(round=7)
    here = Position(3, Purpose.COMBINATION, 1)
    judge = Rounds(links, None, 1.0)._judge("east", here, 4)
    assert judge(with_header(here, np.ones(4))) == ""
    assert judge(with_header(here, np.ones(5))) == "5 numbers instead of 4"
    assert "which is no message" in judge(np.array([1.5, 2.0]))
    assert "which is no message" in judge(with_header(here, np.ones(4)).astype(np.float32))
    assert "which is no message" in judge(with_header(here, np.ones(4))[None])
    with pytest.raises(PeerError, match="east: it is at another position in the algorithm: at a sum") as caught:
        judge(with_header(Position(3, Purpose.SUM, 1), np.ones(4)))
    assert caught.value.round == 7
