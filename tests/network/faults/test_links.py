"""Links that fail: every exchange against a loop over messages, how often they fail, and what is kept all the same."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from error_messages import check_message

import gradslide as gs
from gradslide.graphs import mixing

network = gs.network
GRAPH = gs.Graph.random(12, 5, seed=3)
LINKS = {
    "lossy": lambda inner, seed=0: network.Lossy(inner, 0.3, seed=seed),
    "lossy each": lambda inner, seed=0: network.Lossy(inner, 0.3, direction="each", seed=seed),
    "bursty": lambda inner, seed=0: network.Bursty(inner, 0.3, length=3, seed=seed),
    "bursty each": lambda inner, seed=0: network.Bursty(
        inner, 0.3, length=3, lost_when_bad=0.6, direction="each", seed=seed
    ),
    "sleeping": lambda inner, seed=0: network.Sleeping(inner, 0.3, length=2, seed=seed),
    "varying": lambda inner, seed=0: network.Varying(inner, up=0.6, length=4, seed=seed),
    "stragglers": lambda inner, seed=0: network.Stragglers(inner, 0.4, late=0.5, seed=seed),
}
IN_TURN = {"in turn": lambda inner, seed=0: network.Varying(inner, graphs=halves(inner))}
BOTH_WAYS = ["lossy", "bursty", "sleeping", "varying", "in turn"]
ONE_WAY = ["lossy each", "bursty each", "stragglers"]
ALL = LINKS | IN_TURN


def halves(inner):
    edges = getattr(inner, "graph", inner).edges
    return [edges[::2], edges[1::2]]


def rows(m, d=3, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=(m, d)).astype(dtype)


def naive(v, weights, edges, arrived):
    """One exchange, message by message: who does not hear a neighbour puts its own value in the place of theirs."""
    inboxes = [{i: v[i]} for i in range(len(v))]
    for (one, other), (there, back) in zip(edges, arrived, strict=True):
        inboxes[other][one] = v[one] if there else v[other]
        inboxes[one][other] = v[other] if back else v[one]
    weights = weights.toarray()
    return np.array([sum(weights[i, j] * value for j, value in inbox.items()) for i, inbox in enumerate(inboxes)])


def some_weights(graph, kind):
    """Weights over the links of a graph, of many shapes."""
    rng = np.random.default_rng(5)
    if kind == "laplacian":
        return graph.laplacian
    if kind == "metropolis":
        return mixing.metropolis(graph).matrix
    if kind == "no diagonal":
        return graph.adjacency
    lopsided = sp.csr_array(sp.eye_array(graph.m) + graph.adjacency)
    lopsided.data = rng.normal(size=lopsided.nnz)
    if kind == "lopsided":
        return lopsided
    if kind == "some entries":
        lopsided.data[rng.random(lopsided.nnz) < 0.4] = 0
        lopsided.eliminate_zeros()
        return lopsided
    assert kind == "unsorted"
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(lopsided.indptr, lopsided.indptr[1:], strict=False)])
    return sp.csr_array((lopsided.data[order], lopsided.indices[order], lopsided.indptr), shape=lopsided.shape)


WEIGHTS = ["laplacian", "metropolis", "no diagonal", "lopsided", "some entries", "unsorted"]


def masks(condition, exchanges):
    """The messages that arrived in each exchange, (exchanges, e, 2)."""
    v = np.zeros((condition.m, 1))
    seen = []
    for _ in range(exchanges):
        condition.combine(v, condition.laplacian)
        seen.append(condition.delivered)
    return np.array(seen)


# What an exchange gives


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("name", ALL)
def test_an_exchange_is_one_of_messages_some_of_which_do_not_arrive(name, kind):
    condition, weights = ALL[name](network.Local(GRAPH)), some_weights(GRAPH, kind)
    assert condition.delivered.all()
    arrived = []
    for exchange in range(8):
        v = rows(GRAPH.m, seed=exchange)
        result = condition.combine(v, weights)
        arrived.append(condition.delivered)
        assert arrived[-1].shape == (len(GRAPH.edges), 2)
        np.testing.assert_allclose(result, naive(v, weights, GRAPH.edges, arrived[-1]), rtol=1e-12, atol=1e-12)
    assert 0.1 < np.mean(arrived) < 0.9
    assert np.any(np.diff(np.array(arrived, dtype=int), axis=0))


@pytest.mark.parametrize("name", ALL)
def test_several_weights_take_turns(name):
    condition = ALL[name](GRAPH)
    kinds = [some_weights(GRAPH, kind) for kind in WEIGHTS]
    for exchange in range(12):
        weights, v = kinds[exchange * 5 % 6], rows(GRAPH.m, seed=exchange)
        result = condition.combine(v, weights)
        np.testing.assert_allclose(result, naive(v, weights, GRAPH.edges, condition.delivered), rtol=1e-12, atol=1e-12)


def test_weights_that_come_and_go_are_not_mixed_up():
    """A matrix may get the address of one that is gone."""
    condition, v = network.Lossy(GRAPH, 0.3), rows(GRAPH.m)
    rng = np.random.default_rng(0)
    for _ in range(200):
        weights = sp.csr_array(sp.eye_array(GRAPH.m) + GRAPH.adjacency)
        weights.data[rng.random(weights.nnz) < 0.5] = 0
        weights.eliminate_zeros()
        result = condition.combine(v, weights)
        np.testing.assert_allclose(result, naive(v, weights, GRAPH.edges, condition.delivered), rtol=1e-12, atol=1e-12)
        del weights


@pytest.mark.parametrize("kind", WEIGHTS)
def test_conditions_around_each_other_all_count(kind):
    inner = network.Varying(GRAPH, up=0.8, length=4)
    middle = network.Sleeping(inner, 0.1, length=2)
    outer = network.Lossy(middle, 0.2, direction="each")
    weights = some_weights(GRAPH, kind)
    for exchange in range(10):
        v = rows(GRAPH.m, seed=exchange)
        result = outer.combine(v, weights)
        arrived = outer.delivered & middle.delivered & inner.delivered
        assert arrived.sum() < min(each.delivered.sum() for each in (outer, middle, inner))
        np.testing.assert_allclose(result, naive(v, weights, GRAPH.edges, arrived), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_sums_are_kept_where_both_directions_fail_together_and_only_there(name):
    condition, v = ALL[name](GRAPH), rows(GRAPH.m)
    drift = 0.0
    for _ in range(10):
        laplace = condition.combine(v, GRAPH.laplacian).sum(axis=0)
        mean = condition.combine(v, mixing.metropolis(GRAPH).matrix).mean(axis=0)
        drift = max(drift, np.abs(laplace).max(), np.abs(mean - v.mean(axis=0)).max())
        assert (condition.delivered[:, 0] == condition.delivered[:, 1]).all() or name in ONE_WAY
    assert (drift < 1e-12) == (name in BOTH_WAYS)
    assert drift < 1e-12 or drift > 0.01


@pytest.mark.parametrize("name", ALL)
def test_what_all_agree_on_stays(name):
    condition = ALL[name](GRAPH)
    same = np.tile([1.5, -2.0], (GRAPH.m, 1))
    for _ in range(5):
        np.testing.assert_allclose(condition.combine(same, GRAPH.laplacian), 0, atol=1e-12)
        np.testing.assert_allclose(condition.combine(same, mixing.metropolis(GRAPH).matrix), same, rtol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda graph: network.Lossy(graph, 0),
        lambda graph: network.Bursty(graph, 0.0),
        lambda graph: network.Sleeping(graph, 0),
        lambda graph: network.Varying(graph, up=1),
        lambda graph: network.Varying(graph, graphs=[graph]),
        lambda graph: network.Stragglers(graph, late=0),
        lambda graph: network.Stragglers(graph, []),
        lambda graph: network.Stragglers(graph, 0),
    ],
)
def test_a_condition_that_never_strikes_changes_no_bit(make):
    condition, plain = make(GRAPH), network.Local(GRAPH)
    for kind in ("laplacian", "metropolis"):
        weights, v = some_weights(GRAPH, kind), rows(GRAPH.m)
        for _ in range(5):
            np.testing.assert_array_equal(condition.combine(v, weights), plain.combine(v, weights))
        assert condition.delivered.all()


@pytest.mark.parametrize("name", ALL)
def test_single_precision_stays_single(name):
    single, double = ALL[name](GRAPH), ALL[name](GRAPH)
    for exchange in range(5):
        v = rows(GRAPH.m, seed=exchange)
        for weights in (GRAPH.laplacian, mixing.metropolis(GRAPH).matrix):
            result = single.combine(v.astype(np.float32), weights)
            assert result.dtype == np.float32
            np.testing.assert_allclose(result, double.combine(v, weights), atol=1e-5)


@pytest.mark.parametrize("name", LINKS)
def test_a_lone_agent_and_two(name):
    alone = LINKS[name](gs.Graph.path(1))
    np.testing.assert_array_equal(alone.combine(np.ones((1, 2)), mixing.metropolis(alone.graph).matrix), 1)
    np.testing.assert_array_equal(alone.combine(np.ones((1, 2)), alone.laplacian), 0)
    assert alone.delivered.shape == (0, 2)
    pair, v = LINKS[name](gs.Graph.path(2)), rows(2)
    results = []
    for _ in range(100):
        results.append(pair.combine(v, pair.laplacian))
        np.testing.assert_allclose(results[-1], naive(v, pair.laplacian, pair.graph.edges, pair.delivered), atol=1e-12)
    assert {np.any(result[0]) for result in results} == {True, False}


# Who fails


def test_the_two_directions_of_a_link():
    for name in ALL:
        seen = masks(ALL[name](GRAPH), 30)
        assert (seen[..., 0] == seen[..., 1]).all() == (name in BOTH_WAYS)


def test_who_sleeps_neither_sends_nor_receives():
    condition = network.Sleeping(gs.Graph.complete(8), 0.3, length=2)
    edges, asleep_at_all = condition.graph.edges, 0
    for arrived in masks(condition, 50):
        awake = {agent for agent in range(8) if arrived[(edges == agent).any(axis=1)].any()}
        for (one, other), (there, back) in zip(edges, arrived, strict=True):
            assert there == back == (one in awake and other in awake)
        asleep_at_all += 8 - len(awake)
    assert asleep_at_all > 50


def test_a_late_agent_is_heard_by_nobody_and_hears_everybody():
    condition = network.Stragglers(gs.Graph.complete(7), [2, 5, 2], late=0.5)
    assert condition.stragglers.tolist() == [2, 5]
    edges, sets = condition.graph.edges, []
    for arrived in masks(condition, 60):
        late = {
            sender
            for pair, heard in zip(edges, arrived, strict=True)
            for sender, ok in zip(pair.tolist(), heard, strict=True)
            if not ok
        }
        for pair, heard in zip(edges, arrived, strict=True):
            assert [agent not in late for agent in pair] == heard.tolist()
        sets.append(frozenset(late))
    assert set(sets) == {frozenset(), frozenset({2}), frozenset({5}), frozenset({2, 5})}


@pytest.mark.parametrize(("share", "m", "number"), [(0.07, 100, 7), (0.1, 12, 2), (0.0, 9, 0), (0.99, 10, 10)])
def test_a_share_of_stragglers_is_chosen_by_the_seed(share, m, number):
    chosen = [tuple(network.Stragglers(gs.Graph.ring(m), share, seed=seed).stragglers) for seed in range(6)]
    assert {len(set(agents)) for agents in chosen} == {number}
    assert len(set(chosen)) > 1 or number in (0, m)
    assert chosen[0] == tuple(network.Stragglers(gs.Graph.ring(m), share, seed=0).stragglers)


@pytest.mark.parametrize("every", [1, 3])
def test_graphs_take_turns(every):
    graph = gs.Graph.ring(6)
    graphs = [[(0, 1), (3, 2)], np.array([[1, 2], [3, 4]]), [], gs.Graph.path(6), [(5, 0)]]
    seen = masks(network.Varying(graph, graphs=graphs, every=every), 12 * every)
    wanted = [{(0, 1), (2, 3)}, {(1, 2), (3, 4)}, set(), {(i, i + 1) for i in range(5)}, {(0, 5)}]
    for exchange, arrived in enumerate(seen):
        assert (arrived[:, 0] == arrived[:, 1]).all()
        there = {tuple(edge) for edge in graph.edges[arrived[:, 0]].tolist()}
        assert there == wanted[exchange // every % 5]


# How often they fail


def check_share(seen, share, correlation=0.0):
    """The share of True in independent chains (steps, chains) is as wanted, within five standard deviations."""
    spread = math.sqrt(share * (1 - share) / seen.size * (1 + correlation) / (1 - correlation))
    assert abs(seen.mean() - share) < 5 * spread
    assert spread < 0.02


def check_chain(on, share, length):
    """Chains (steps, chains): stationary from the first step, and on for `length` steps on average."""
    leave = 1 / length
    enter = leave * share / (1 - share)
    check_share(on, share, 1 - leave - enter)
    assert abs(on[0].mean() - share) < 5 * math.sqrt(share * (1 - share) / on.shape[1])
    for state, chance in ((True, leave), (False, enter)):
        changes = on[1:][on[:-1] == state] != state
        assert abs(changes.mean() - chance) <= 5 * math.sqrt(chance * (1 - chance) / changes.size)
        assert changes.size > 1000


@pytest.mark.parametrize("lost", [0.02, 0.1, 0.6])
@pytest.mark.parametrize("direction", ["both", "each"])
def test_messages_are_lost_at_the_given_rate_independently(direction, lost):
    seen = ~masks(network.Lossy(gs.Graph.ring(1000), lost, direction=direction), 100)
    one, other = seen[..., 0], seen[..., 1]
    check_share(one, lost)
    check_share(other, lost)
    check_share(one & other, lost if direction == "both" else lost**2)
    check_share(one[1:] & one[:-1], lost**2, 0.5)
    check_share(one[:, 1:] & one[:, :-1], lost**2, 0.5)


@pytest.mark.parametrize(
    ("lost", "length", "lost_when_bad"), [(0.1, 5, 1.0), (0.3, 20, 1.0), (0.2, 4, 0.5), (0.4, 1, 1.0)]
)
@pytest.mark.parametrize("direction", ["both", "each"])
def test_bursts_have_their_rate_and_length(direction, lost, length, lost_when_bad):
    condition = network.Bursty(
        gs.Graph.ring(2000), lost, length=length, lost_when_bad=lost_when_bad, direction=direction
    )
    seen = ~masks(condition, 100)
    share = lost / lost_when_bad
    if lost_when_bad == 1:
        for column in (0, 1):
            check_chain(seen[..., column], share, length)
    else:
        # Lost at two steps in a row: bad at both, and lost at both.
        check_share(seen[..., 0], lost, 1 - 1 / length)
        twice = lost_when_bad**2 * share * (1 - 1 / length)
        check_share(seen[1:, :, 0] & seen[:-1, :, 0], twice, 1 - 1 / length)
    check_share(seen[0].all(axis=1), lost if direction == "both" else lost**2)


@pytest.mark.parametrize(("asleep", "length"), [(0.1, 5), (0.3, 2), (0.2, 10)])
def test_agents_sleep_as_much_and_as_long_as_they_should(asleep, length):
    graph = gs.Graph.complete(60)
    arrived = masks(network.Sleeping(graph, asleep, length=length), 600)[..., 0]
    check_chain(arrived @ np.abs(graph.incidence.toarray().T) == 0, asleep, length)


@pytest.mark.parametrize(("up", "length"), [(0.7, 5), (0.9, 2), (0.2, 10), (0.6, 1)])
def test_links_are_up_as_much_and_as_long_as_they_should(up, length):
    seen = masks(network.Varying(gs.Graph.ring(2000), up=up, length=length), 100)
    check_chain(~seen[..., 0], 1 - up, length)


def test_links_are_up_in_seven_of_ten_exchanges_and_away_for_five_by_default():
    check_chain(~masks(network.Varying(gs.Graph.ring(2000)), 100)[..., 0], 0.3, 5)


def test_stragglers_are_late_at_the_given_rate():
    seen = ~masks(network.Stragglers(gs.Graph.ring(1000), 0.5, late=0.3), 200)
    check_share(seen, 0.15, 0.8)
    stragglers = network.Stragglers(gs.Graph.ring(1000), 0.5, late=0.3).stragglers
    late = ~masks(network.Stragglers(gs.Graph.ring(1000), stragglers, late=0.3), 200)
    sends = np.isin(gs.Graph.ring(1000).edges, stragglers)
    check_share(late[:, sends], 0.3, 0.5)
    assert not late[:, ~sends].any()


# Seeds


@pytest.mark.parametrize("name", LINKS)
def test_seeds_fix_what_happens(name):
    first = LINKS[name](GRAPH)
    seen = masks(first, 20)
    np.testing.assert_array_equal(masks(LINKS[name](GRAPH), 20), seen)
    assert (masks(LINKS[name](GRAPH, seed=1), 20) != seen).any()
    assert (masks(first, 20) != seen).any()
    first.session.begin()
    assert first.delivered.all()
    np.testing.assert_array_equal(masks(first, 20), seen)


def test_what_happens_in_an_exchange_does_not_hang_on_those_before():
    """Without chains, an exchange draws what its number says, whatever was asked for in earlier ones."""
    one, other = network.Lossy(GRAPH, 0.3), network.Lossy(GRAPH, 0.3)
    seen = masks(one, 10)
    other.session.resume((7, None, other.session.checkpoint()[2]))
    np.testing.assert_array_equal(masks(other, 3), seen[7:])


def test_two_of_a_kind_and_two_kinds_draw_apart():
    ring = gs.Graph.ring(1000)
    inner = network.Lossy(ring, 0.3)
    outer = network.Lossy(inner, 0.3)
    both = []
    for _ in range(50):
        outer.combine(np.ones((1000, 1)), ring.laplacian)
        both.append(~outer.delivered[:, 0] & ~inner.delivered[:, 0])
    check_share(np.array(both), 0.09)
    # Chains that forget at once: the same law as independent losses.
    bursty = ~masks(network.Bursty(ring, 0.5, length=2), 50)[..., 0]
    lossy = ~masks(network.Lossy(ring, 0.5), 50)[..., 0]
    check_share(bursty & lossy, 0.25)


@pytest.mark.parametrize("name", ALL)
def test_a_condition_goes_on_from_what_it_remembers(name):
    first = network.Lossy(ALL[name](network.Bursty(GRAPH, 0.2)), 0.1)
    v = rows(GRAPH.m)
    start = first.session.checkpoint()
    for _ in range(7):
        first.combine(v, GRAPH.laplacian)
    memory = first.session.checkpoint()
    later = [first.combine(v, GRAPH.laplacian) for _ in range(7)]
    again = network.Lossy(ALL[name](network.Bursty(GRAPH, 0.2)), 0.1)
    again.session.resume(memory)
    np.testing.assert_array_equal([again.combine(v, GRAPH.laplacian) for _ in range(7)], later)
    first.session.resume(memory)
    np.testing.assert_array_equal([first.combine(v, GRAPH.laplacian) for _ in range(7)], later)
    fresh = network.Lossy(ALL[name](network.Bursty(GRAPH, 0.2)), 0.1)
    first.session.resume(start)
    for _ in range(5):
        np.testing.assert_array_equal(first.combine(v, GRAPH.laplacian), fresh.combine(v, GRAPH.laplacian))


# What passes, and what is refused


@pytest.mark.parametrize("name", ALL)
def test_control_messages_sizes_and_observations_pass(name):
    local = network.Local(GRAPH, exact_norm=False)
    condition, v = ALL[name](local), rows(GRAPH.m)
    assert condition.costs.exchange_floats(v) == local.costs.exchange_floats(v) == 2 * len(GRAPH.edges) * 3
    assert condition.norm_bound() == local.norm_bound()
    assert condition.costs.norm_rounds == local.costs.norm_rounds > 0
    for reduction in ("max", "sum"):
        assert condition.costs.control_rounds(reduction) == local.costs.control_rounds(reduction)
        np.testing.assert_array_equal(condition.agree(v, reduction), local.agree(v, reduction))
        np.testing.assert_array_equal(condition.session.observe(v, reduction), local.session.observe(v, reduction))
    assert condition.delivered.all()


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda inner: network.Lossy(inner, np.float64(0.25), seed=np.int64(3)), "lost=0.25, direction='both', seed=3"),
        (
            lambda inner: network.Bursty(inner, 0.1, lost_when_bad=0.5, direction="each"),
            "lost=0.1, length=5.0, lost_when_bad=0.5, direction='each', seed=0",
        ),
        (lambda inner: network.Sleeping(inner, 0.2, length=7), "asleep=0.2, length=7.0, seed=0"),
        (lambda inner: network.Varying(inner, up=0.9), "up=0.9, length=5.0, seed=0"),
        (lambda inner: network.Stragglers(inner), "agents=0.1, late=0.3, seed=0"),
        (lambda inner: network.Stragglers(inner, np.array([4, 1])), "agents=[4, 1], late=0.3, seed=0"),
    ],
)
def test_conditions_show_what_they_are(make, shown):
    condition = make(GRAPH)
    name = type(condition).__name__
    assert repr(condition) == f"{name}({GRAPH!r}, {shown})"
    assert repr(make(network.Sleeping(GRAPH))) == f"{name}({network.Sleeping(GRAPH)!r}, {shown})"


def test_graphs_that_take_turns_are_told_apart():
    edges = GRAPH.edges
    shown = {
        repr(network.Varying(GRAPH, graphs=graphs, every=every))
        for graphs in ([edges[::2], edges[1::2]], [edges[1::2], edges[::2]], [edges], [edges, edges])
        for every in (1, 2)
    }
    assert len(shown) == 8
    assert all("every=" in text and repr(GRAPH) in text for text in shown)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: network.Lossy(5, 0.1), ["Lossy needs a network"]),
        (lambda: network.Lossy(GRAPH, 1), ["lost must be less than 1"]),
        (lambda: network.Lossy(GRAPH, -0.1), ["lost", ">= 0"]),
        (lambda: network.Lossy(GRAPH, "0.1"), ["lost"]),
        (lambda: network.Lossy(GRAPH, math.nan), ["lost"]),
        (lambda: network.Lossy(GRAPH, 0.1, direction="one"), ["direction", "both, each"]),
        (lambda: network.Lossy(GRAPH, 0.1, seed=-1), ["seed must be a whole number >= 0"]),
        (lambda: network.Lossy(GRAPH, 0.1, seed=0.5), ["seed"]),
        (lambda: network.Lossy(GRAPH, 0.1, seed=np.random.default_rng(0)), ["seed"]),
        (lambda: network.Bursty(GRAPH, 0.1, length=0.5), ["length must be >= 1"]),
        (lambda: network.Bursty(GRAPH, 0.1, length="5"), ["length"]),
        (lambda: network.Bursty(GRAPH, 0.1, length=math.inf), ["length"]),
        (lambda: network.Bursty(GRAPH, 0.9, length=5), ["length must be at least 9"]),
        (lambda: network.Bursty(GRAPH, 0.5, lost_when_bad=0.5), ["lost must be less than lost_when_bad"]),
        (lambda: network.Bursty(GRAPH, 0.1, lost_when_bad=0), ["lost_when_bad", "> 0"]),
        (lambda: network.Bursty(GRAPH, 0.1, lost_when_bad=1.1), ["lost_when_bad", "<= 1"]),
        (lambda: network.Bursty(GRAPH, 0.1, direction="neither"), ["direction"]),
        (lambda: network.Sleeping(GRAPH, 1.0), ["asleep must be less than 1"]),
        (lambda: network.Sleeping(GRAPH, 0.1, length=0), ["length"]),
        (lambda: network.Varying(GRAPH, up=0), ["up must be > 0"]),
        (lambda: network.Varying(GRAPH, up=1.5), ["up", "<= 1"]),
        (lambda: network.Varying(GRAPH, up=0.1, length=2), ["length must be at least 9"]),
        (lambda: network.Varying(GRAPH, every=2), ["every needs graphs"]),
        (lambda: network.Varying(GRAPH, up=0.5, graphs=[GRAPH]), ["up and length, or graphs"]),
        (lambda: network.Varying(GRAPH, length=5, graphs=[GRAPH]), ["up and length, or graphs"]),
        (lambda: network.Varying(GRAPH, graphs=[GRAPH], every=0), ["every must be a whole number >= 1"]),
        (lambda: network.Varying(GRAPH, graphs=[GRAPH], every=1.5), ["every"]),
        (lambda: network.Varying(GRAPH, graphs=[]), ["graphs must be a list"]),
        (lambda: network.Varying(GRAPH, graphs=GRAPH), ["graphs must be a list"]),
        (lambda: network.Varying(GRAPH, graphs=[5]), ["Graphs or lists of edges"]),
        (lambda: network.Varying(GRAPH, graphs=[GRAPH, [(0, 99)]]), ["agents must be numbered"]),
        (
            lambda: network.Varying(gs.Graph.ring(5), graphs=[gs.Graph.complete(5)]),
            ["links of the network", "[[0, 2]]"],
        ),
        (lambda: network.Varying(gs.Graph.ring(5), graphs=[gs.Graph.ring(6)]), ["on the 5 agents", "6 agents"]),
        (lambda: network.Varying(gs.Graph.ring(5), graphs=[gs.Graph.path(5)]), ["every link", "[[0, 4]]"]),
        (lambda: network.Stragglers(GRAPH, 1.0), ["agents must be less than 1"]),
        (lambda: network.Stragglers(GRAPH, -0.5), ["agents"]),
        (lambda: network.Stragglers(GRAPH, True), ["agents"]),
        (lambda: network.Stragglers(GRAPH, [0, 12]), ["agents must be numbered 0 to 11", "[12]"]),
        (lambda: network.Stragglers(GRAPH, [-1]), ["agents must be numbered"]),
        (lambda: network.Stragglers(GRAPH, [0.5]), ["a share or a list of agents"]),
        (lambda: network.Stragglers(GRAPH, "all"), ["a share or a list of agents"]),
        (lambda: network.Stragglers(GRAPH, None), ["a share or a list of agents"]),
        (lambda: network.Stragglers(GRAPH, [[0, 1]]), ["a share or a list of agents"]),
        (lambda: network.Stragglers(GRAPH, late=1), ["late must be less than 1"]),
    ],
)
def test_mistakes_are_refused(make, words):
    check_message(make, words)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (GRAPH.laplacian.toarray(), ["CSR matrix over the links"]),
        (GRAPH.laplacian.tocsc(), ["CSR matrix over the links"]),
        (gs.Graph.ring(5).laplacian, ["CSR matrix over the links"]),
        (sp.csr_array(np.ones((12, 12))), ["that are no neighbours"]),
    ],
)
def test_weights_that_do_not_fit_the_graph_are_refused(weights, words):
    check_message(lambda: network.Lossy(GRAPH, 0.1).combine(rows(12), weights), words)


def test_all_agents_must_be_here():
    part = network.Local(GRAPH)
    part.agents = range(3)
    check_message(lambda: network.Lossy(part, 0.1), ["all agents in one process", "3 of 12"])
