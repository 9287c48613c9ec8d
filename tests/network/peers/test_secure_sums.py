"""Sums of which nobody sees the parts: exact, random to who looks on, and never twice under one mask."""

import errno
import os
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from peers_agents import Agent, Town, all_well, logistic, together
from piggyback import GRAPHS

import gradslide as gs
from gradslide._support.errors import InputError
from gradslide.network import Counted
from gradslide.network.peers import secure_sums
from gradslide.network.peers.collectives import Tree
from gradslide.network.peers.errors import PeerError, SettingsDiffer
from gradslide.network.peers.rounds import Purpose, journal_path
from gradslide.network.peers.secure_sums import (
    LIMBS,
    Journal,
    Masks,
    decoded,
    derived_secret,
    encoded,
    reduced,
    require_encodable,
    unmasked,
)
from gradslide.network.peers.topology import cut_off
from gradslide.problems.model import upper
from gradslide.results.costs import Costs

BITS, FRACTION = 40, 140
SMALLEST = Fraction(1, 2**FRACTION)
SOME = {name: GRAPHS[name] for name in ("ring 9", "star", "path 8", "pair", "complete", "random")}
# Each agent has two neighbours or more.
FIVE = gs.Graph.from_edges(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)])
SECURE = {"secure_sums": True}


def exact(limbs):
    """What limbs stand for, without rounding."""
    return [sum(int(limb) * 2 ** (BITS * k) for k, limb in enumerate(column)) * SMALLEST for column in limbs.T]


def cut(value):
    """A number without its bits below the smallest."""
    return (-1 if value < 0 else 1) * (abs(Fraction(float(value))) // SMALLEST) * SMALLEST


def wide(rng, shape):
    """Numbers of very different magnitudes, of both signs."""
    return rng.choice([-1.0, 1.0], size=shape) * 10.0 ** rng.uniform(-30, 30, size=shape)


# Fixed point


def test_numbers_are_encoded_without_rounding():
    values = np.concatenate([wide(np.random.default_rng(0), 2000), [0.0, -0.0, 1.0, -1.0, 2.0**-140, -(2.0**-139)]])
    assert exact(encoded(values)) == [cut(value) for value in values]
    # What is left of a double still fits one.
    np.testing.assert_array_equal(decoded(encoded(values), 1), [float(cut(value)) for value in values])
    large = np.abs(values) > 2.0**-87
    assert large.sum() > 1000
    np.testing.assert_array_equal(decoded(encoded(values), 1)[large], values[large])


def test_what_is_below_the_smallest_is_cut_off():
    values = np.array([2.0**-141, -(2.0**-141), 1e-300, -5e-324, 1.5 * 2.0**-140])
    np.testing.assert_array_equal(decoded(encoded(values), 1), [0.0, 0.0, 0.0, 0.0, 2.0**-140])


def test_the_largest_fit_and_data_that_are_larger_are_refused():
    largest = np.nextafter(2.0**110, 0.0)
    agents = secure_sums.MOST_AGENTS
    total = encoded(np.array([largest, -largest])) * agents
    np.testing.assert_array_equal(decoded(total, agents), [agents * largest, -agents * largest])
    require_encodable(np.array([largest, -largest, np.inf, -np.inf, np.nan]))
    for value in (2.0**110, -(2.0**110), 1e300):
        with pytest.raises(InputError, match=r"numbers in secure sums must be below 1e\+33; got .*; scale the columns"):
            require_encodable(np.array([1.0, value, np.nan]))


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan, 2.0**110, -1e300])
def test_what_does_not_fit_makes_the_sum_infinite(odd):
    """Also if it meets its opposite, or very large numbers."""
    largest = np.nextafter(2.0**110, 0.0)
    for others in ([0.0], [-largest] * 7, [np.inf], [-np.inf], [np.nan]):
        parts = [np.array([odd, 1.0]), *(np.array([other, 2.0]) for other in others)]
        total = decoded(sum(map(encoded, parts)), len(parts))
        assert total.tolist() == [np.inf, 1.0 + 2.0 * len(others)]


def test_reduced_limbs_are_the_same_number_modulo_two_to_280():
    limbs = np.random.default_rng(1).integers(-(2**52), 2**52, size=(LIMBS, 500))
    found = reduced(limbs)
    assert found.min() >= 0
    assert found.max() < 2**BITS
    modulus = 2**280 * SMALLEST
    assert exact(found) == [each % modulus for each in exact(limbs)]


def test_a_sum_is_exact_to_the_last_bit_of_a_double():
    parts = wide(np.random.default_rng(2), (7, 500))
    total = decoded(sum(map(encoded, parts)), 7)
    expected = [sum(map(cut, column)) for column in parts.T]
    errors = [abs(Fraction(float(found)) - wanted) for found, wanted in zip(total, expected, strict=True)]
    assert all(error <= Fraction(np.spacing(abs(found))) for error, found in zip(errors, total, strict=True))


# Masks


def masked_agents(graph, seed=0):
    """The masks of all agents, who have told each other their seeds."""
    names = [f"key {i}" for i in range(graph.m)]
    masks = [Masks(derived_secret(f"secret {seed} {i}", "start"), name) for i, name in enumerate(names)]
    for i, each in enumerate(masks):
        each.share({names[j]: masks[j].seed_for(names[i]) for j in graph.neighbours(i)})
    return masks


@pytest.mark.parametrize("name", SOME)
def test_masks_cancel_to_the_last_bit(name):
    graph = SOME[name]
    masks, rng = masked_agents(graph), np.random.default_rng(3)
    for _ in range(3):
        values = wide(rng, (graph.m, 50))
        values[0, 0], values[-1, 1] = np.inf, np.nan
        sent = [each.masked(own) for each, own in zip(masks, values, strict=True)]
        assert all(each.size == LIMBS * 50 for each in sent)
        # In doubles, as partial sums are added on their way up the tree.
        total = unmasked(np.sum(sent, axis=0), graph.m)
        assert total.tobytes() == decoded(sum(map(encoded, values)), graph.m).tobytes()
        assert np.isposinf(total[:2]).all()
        assert np.isfinite(total[2:]).all()


def test_partial_sums_of_the_most_agents_are_exact_in_doubles():
    limb = 2.0**BITS - 1
    assert limb * secure_sums.MOST_AGENTS < 2.0**53


@pytest.mark.parametrize("wrong", ["counter", "start", "seed"])
def test_masks_that_do_not_cancel_are_found_out(wrong):
    graph = gs.Graph.ring(4)
    masks = masked_agents(graph)
    if wrong == "counter":
        masks[2].counter = 1
    else:
        others = masked_agents(graph, seed=1 if wrong == "start" else 0)
        masks[2] = others[2]
        if wrong == "seed":
            masks[2].share({"key 1": np.zeros(secure_sums.SEED_WORDS)})
    sent = sum(each.masked(np.arange(8.0)) for each in masks)
    with pytest.raises(InputError, match=r"masks .* must cancel; got a random sum: .* under a new name of the run"):
        unmasked(sent, graph.m)


def test_what_is_sent_is_uniform_and_tells_nothing_of_the_values():
    """A sanity check with fixed keys: bytes of limbs by chi-square, and no correlation with what was masked."""
    count = 4000
    masks, values = masked_agents(gs.Graph.ring(3)), np.random.default_rng(4).normal(size=count)
    for own in (np.zeros(count), values):
        limbs = masks[0].masked(own).astype(np.int64).reshape(LIMBS, count)
        for shift in range(0, BITS, 8):
            counts = np.apply_along_axis(np.bincount, 1, (limbs >> shift) & 255, minlength=256)
            chi_square = ((counts - count / 256) ** 2 / (count / 256)).sum(axis=1)
            # 255 degrees of freedom: 5 standard deviations, of 35 statistics.
            assert np.all(np.abs(chi_square - 255) < 5 * np.sqrt(2 * 255))
        correlations = np.corrcoef(np.vstack([values, limbs]))[0, 1:]
        assert np.all(np.abs(correlations) < 5 / np.sqrt(count))
        # Neither do limbs depend on each other.
        assert np.all(np.abs(np.corrcoef(limbs) - np.eye(LIMBS)) < 5 / np.sqrt(count))


def test_masks_of_different_sums_and_links_are_different():
    masks = masked_agents(gs.Graph.complete(4))
    drawn = [secure_sums._pseudorandom(key, counter, 30) for key in masks[0]._keys.values() for counter in range(3)]
    assert len({each.tobytes() for each in drawn}) == 9
    one, other = masks[0].masked(np.ones(5)), masks[0].masked(np.ones(5))
    assert masks[0].counter == 2
    assert np.all(one.reshape(LIMBS, 5) != other.reshape(LIMBS, 5))


def test_both_ends_of_a_link_derive_one_key_and_no_others():
    masks = masked_agents(gs.Graph.complete(3))
    keys = {(each._own, other): key for each in masks for other, key in each._keys.items()}
    assert len(keys) == 6
    assert len(set(keys.values())) == 3
    assert all(keys[own, other] == keys[other, own] for own, other in keys)


def test_another_start_has_other_secrets():
    secrets = {derived_secret(secret, start) for secret in ("one", "other") for start in ("first", "second")}
    assert len(secrets) == 4
    assert derived_secret("one", "first") in secrets


# The journal


def journal(tmp_path, run="trial", start="aa", **given):
    return Journal(tmp_path / "sums.log", run, start, **{"is_resumed": False, **given})


def under(noted, secret=b"s" * 32):
    """Masks with a journal, of an agent with one neighbour."""
    masks = Masks(secret, "a", noted)
    masks.share({"b": np.arange(float(secure_sums.SEED_WORDS))})
    return masks


def test_nothing_else_is_sent_under_the_same_masks(tmp_path):
    masks = under(journal(tmp_path))
    first = masks.masked(np.array([1.0, 2.0]))
    masks.counter = 0
    np.testing.assert_array_equal(masks.masked(np.array([1.0, 2.0])), first)
    masks.counter = 0
    refused = "must send the same numbers under the same masks; got others: its data .* under a new name of the run"
    for other in ([1.0, np.nextafter(2.0, 3.0)], [1.0, 2.0, 3.0], [1.0]):
        with pytest.raises(InputError, match=refused):
            masks.masked(np.array(other))
    assert masks.counter == 0


def test_the_journal_survives_a_restart_and_is_written_before_anything_is_sent(tmp_path):
    first = under(journal(tmp_path)).masked(np.array([1.0]))
    assert (tmp_path / "sums.log").read_text().count("\n") == 2
    again = journal(tmp_path, start="bb")
    assert again.start == "aa", "no checkpoint says that another start has begun"
    np.testing.assert_array_equal(under(again).masked(np.array([1.0])), first)
    assert (tmp_path / "sums.log").read_text().count("\n") == 2, "what is known is not written again"
    with pytest.raises(InputError, match="the same masks"):
        under(journal(tmp_path, start="aa", is_resumed=True)).masked(np.array([1.5]))


def test_another_run_or_another_checkpoint_is_a_new_start(tmp_path):
    under(journal(tmp_path)).masked(np.array([1.0]))
    for other in (journal(tmp_path, run="second", start="bb"), journal(tmp_path, start="cc", is_resumed=True)):
        assert other.start in ("bb", "cc")
        under(other).masked(np.array([1.5]))
    # Each of them is still known.
    for start in ("aa", "bb", "cc"):
        with pytest.raises(InputError, match="the same masks"):
            under(journal(tmp_path, start=start, is_resumed=True)).masked(np.array([2.5]))
    journal(tmp_path).forget()
    assert journal(tmp_path, start="dd").start == "dd"


@pytest.mark.parametrize("kept", range(0, 76, 5))
def test_a_line_that_was_cut_off_does_not_count(tmp_path, kept):
    """A loss of power while it was written: nothing was sent yet."""
    under(journal(tmp_path)).masked(np.array([1.0]))
    whole = (tmp_path / "sums.log").read_text()
    begin = whole.index("\n") + 1
    assert len(whole) - begin < 76
    (tmp_path / "sums.log").write_text(whole[: begin + kept % (len(whole) - begin)])
    noted = journal(tmp_path, start="bb")
    under(noted).masked(np.array([1.5]))
    assert noted.start == "aa"
    with pytest.raises(InputError, match="the same masks"):
        under(journal(tmp_path)).masked(np.array([1.0]))


def test_a_journal_that_cannot_be_written_ends_it_before_anything_is_sent(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"noted on disk before; got .*sums.log: No space left on device; make room"):
        under(journal(tmp_path)).masked(np.array([1.0]))


# Agents among peers


def heard(net):
    """A list that grows with what neighbours send to this agent in sums: (sender, numbers)."""
    found, exchange = [], net._rounds.exchange

    def recorded(position, content, sizes=None):
        received = exchange(position, content, sizes)
        if position.purpose in (Purpose.TOTAL, Purpose.RELAY):
            numbers = {name: number for number, name in net.names.items()}
            found.extend((numbers[name], each.copy()) for name, each in received.items() if each.size)
        return received

    net._rounds.exchange = recorded
    return found


def curious(graph, secure):
    """What the parent of a leaf of the tree receives from it for the first point of Newton; the parent's masks, the
    child's public key; and the child's contribution."""
    tree, problem = Tree(graph), logistic(graph)
    child = next(i for i in range(graph.m) if tree.children(i) == 0)

    def act(i, net):
        net.session.connect()
        found, sums, own_sum = heard(net), [], net._own_sum
        net._own_sum = lambda values: sums.append(own_sum(values)) or sums[-1]
        gs.solve(problem.take([i]), net, gs.Newton(), stop=gs.Stop(iterations=1))
        return SimpleNamespace(heard=found, masks=net._masks, sums=sums, keys=net.public_keys)

    seen = all_well(together(graph, act, lambda i: SECURE if secure else {}))
    parent = seen[tree._parents[child]]
    contribution = seen[child].sums[0]
    # It is what it is said to be: the gradient and the Hessian of the child's own rows.
    d, x = problem.d, np.zeros((graph.m, problem.d))
    np.testing.assert_array_equal(contribution[-d * (d + 3) // 2 :][:d], problem.loss.gradient(x)[child])
    np.testing.assert_array_equal(contribution[-d * (d + 1) // 2 :], upper(problem.loss.hessian(x))[child])
    first = next(numbers for sender, numbers in parent.heard if sender == child)
    numbers, signals = np.split(first, [(LIMBS if secure else 1) * contribution.size])
    assert signals.tolist() == [0.0], "whether to stop or to save travels with it"
    return numbers, parent.masks, seen[child].keys[child], contribution


def without_own_mask(numbers, masks, key):
    """What is left of numbers when their receiver takes off the mask that it shares with the sender."""
    limbs = numbers.astype(np.int64).reshape(LIMBS, -1)
    mask = secure_sums._pseudorandom(masks._keys[key], 0, limbs.shape[1])
    return reduced(limbs - mask if key < masks._own else limbs + mask)


def test_a_curious_parent_sees_gradient_and_hessian_of_a_child_without_secure_sums():
    first, _, _, contribution = curious(gs.Graph.ring(5), secure=False)
    np.testing.assert_array_equal(first, contribution)


def test_a_curious_parent_sees_random_numbers_with_secure_sums():
    """Also without the mask that it knows, as long as the child has another neighbour."""
    first, masks, key, contribution = curious(gs.Graph.ring(5), secure=True)
    limbs = reduced(encoded(contribution))
    assert not contribution.all(), "zeros are in it, of which nothing must be seen either"
    for seen in (first.astype(np.int64).reshape(LIMBS, -1), without_own_mask(first, masks, key)):
        assert np.all(seen != limbs)
        assert np.all((seen - limbs) % 2**BITS != 0)
        # As many of each size as if they were drawn: 154 numbers.
        share = np.sort(seen.ravel()) / 2**BITS
        assert np.abs(share - np.arange(0.5, share.size) / share.size).max() < 1.63 / np.sqrt(share.size)
        with pytest.raises(InputError, match="a random sum"):
            decoded(seen, 1)


def test_secure_sums_hide_nothing_from_an_only_neighbour():
    """So the agent is warned; and the test above would have noticed."""
    first, masks, key, contribution = curious(gs.Graph.path(3), secure=True)
    np.testing.assert_array_equal(decoded(without_own_mask(first, masks, key), 1), contribution)


def test_an_agent_with_one_neighbour_is_warned(caplog):
    with caplog.at_level("WARNING", "gradslide.peers"):
        all_well(together(gs.Graph.path(3), lambda i, net: net.session.connect(), lambda i: SECURE))
    said = [record.message for record in caplog.records if record.name == "gradslide.peers"]
    text = "secure sums hide from agent 1 no more than the sum of the 1 agents that reach the others through it"
    assert said == [text] * 2


def test_who_is_cut_off_without_another():
    ends = gs.Graph.from_edges(5, [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)])
    assert [cut_off(ends, own, through) for own, through in ((0, 2), (3, 2), (4, 3), (0, 1), (2, 3))] == [2, 2, 1, 4, 3]


@pytest.mark.parametrize("graph", [FIVE, gs.Graph.star(4), gs.Graph.path(2)], ids=["five", "star", "pair"])
def test_totals_and_answers_are_those_without_secure_sums(graph):
    values = wide(np.random.default_rng(5), (graph.m, 2, 30))
    values = np.where(np.abs(values) < 1e-20, 0.0, values)

    def act(i, net):
        net.session.connect()
        answer = net.relay(values[i : i + 1], lambda total: np.array([total.sum(), total.max()]), 2)
        return net.total(values[i : i + 1]), answer, net.total(np.array([[1.0 / 3.0]]))

    plain, secure = (all_well(together(graph, act, lambda i, own=own: own)) for own in ({}, SECURE))
    cells = values.transpose(1, 2, 0).tolist()
    exactly = np.array([[float(sum(map(Fraction, cell))) for cell in row] for row in cells])
    for found in secure:
        assert [each.tobytes() for each in found] == [each.tobytes() for each in secure[0]]
    for ours, theirs in zip(secure[0], plain[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-13 * np.abs(values).max())
    np.testing.assert_allclose(secure[0][0], exactly, rtol=1e-15)
    assert secure[0][2] == pytest.approx([graph.m / 3.0], rel=1e-16)


@pytest.mark.first(2)
@pytest.mark.parametrize("method", [gs.LBFGS(), gs.Newton(), gs.Auto()], ids=lambda method: method.name)
def test_methods_over_exact_sums_find_the_same(method):
    """LBFGS also sums control values up: what the error of the objective is estimated from."""
    problem, stop = logistic(FIVE), gs.Stop(kkt=gs.Relative(1e-9), iterations=100)

    def found(options):
        return all_well(together(FIVE, lambda i, net: gs.solve(problem.take([i]), net, method, stop=stop), options))

    plain, secure = found(lambda i: {}), found(lambda i: SECURE)
    assert {solution.status for solution in secure} == {gs.Status.CONVERGED} == {solution.status for solution in plain}
    np.testing.assert_allclose([each.x for each in secure], [each.x for each in plain], rtol=1e-7, atol=1e-9)
    assert len({each.x.tobytes() for each in secure}) == 1


@pytest.mark.parametrize("reduction", ["sum", "max", "or"])
def test_control_values_are_reduced_as_without_secure_sums(reduction):
    values = np.random.default_rng(9).integers(-3, 3, size=(FIVE.m, 2, 2)).astype(np.float32)

    def act(i, net):
        net.session.connect()
        masks = net._masks
        return net.agree(values[i : i + 1], reduction), 0 if masks is None else masks.counter

    plain, secure = (all_well(together(FIVE, act, lambda i, own=own: own)) for own in ({}, SECURE))
    assert all(found.dtype == plain[0][0].dtype and found.shape == (2, 2) for found, _ in secure)
    assert all(np.array_equal(found, plain[0][0]) for found, _ in secure)
    assert {counter for _, counter in secure} == {int(reduction == "sum")}


def test_a_piggybacked_sum_is_refused_and_a_maximum_is_not():
    def act(i, net):
        net.session.connect()
        with pytest.raises(InputError, match="masked sums only; got a piggybacked sum"):
            net.start_reduce(np.ones((1, 2)), "sum")
        net.start_reduce(np.ones((1, 2)), "max")

    all_well(together(gs.Graph.path(2), act, lambda i: SECURE))


def test_a_trial_point_far_away_does_not_end_the_run_and_data_that_are_too_large_do():
    """Exponentials of a Poisson regression grow beyond what can be masked before steps are damped."""
    rng, graph = np.random.default_rng(10), gs.Graph.ring(3)
    features = np.column_stack([np.ones(90), rng.normal(size=90)])
    problem = gs.Problem(gs.losses.Poisson(features, rng.poisson(120.0, size=90), agents=3))
    stop = gs.Stop(kkt=gs.Relative(1e-8), iterations=100)
    expected = gs.solve(problem, graph, gs.Newton(), stop=stop)
    runs = together(graph, lambda i, net: gs.solve(problem.take([i]), net, gs.Newton(), stop=stop), lambda i: SECURE)
    assert expected.parameters["rejected"] > 0
    for solution in all_well(runs):
        np.testing.assert_allclose(solution.x[0], expected.x[0], rtol=1e-6)

    def act(i, net):
        net.session.connect()
        return net.total(np.full((1, 2), 1e40 if i == 1 else 1.0))

    errors = together(graph, act, lambda i: SECURE)
    assert "numbers in secure sums must be below 1e+33; got 1e+40; scale the columns" in str(errors[1])
    assert all("it cannot take part: numbers in secure sums must be below 1e+33" in str(errors[i]) for i in (0, 2))


def test_costs_count_the_limbs():
    """What an agent counts is what it sends."""

    def act(i, net):
        net.session.connect()
        costs, before = Costs(), sum(each.numbers for each in net.traffic.values())
        counted = Counted(net, costs)
        counted.total(np.ones((1, 10)))
        counted.relay(np.ones((1, 3)), lambda total: total[:2], 2)
        return costs.floats_sent, sum(each.numbers for each in net.traffic.values()) - before, costs.rounds

    plain, secure = (all_well(together(FIVE, act, lambda i, own=own: own)) for own in ({}, SECURE))
    assert all(counted == sent for counted, sent, _ in plain + secure)
    links = FIVE.m - 1
    assert sum(counted for counted, _, _ in plain) == links * (10 + 10 + 3 + 2)
    assert sum(counted for counted, _, _ in secure) == links * (LIMBS * 10 + 10 + LIMBS * 3 + 2)
    assert {rounds for _, _, rounds in plain} == {rounds for _, _, rounds in secure}


def test_each_kind_of_message_is_counted():
    def act(i, net):
        gs.solve(logistic(FIVE).take([i]), net, gs.Newton(), stop=gs.Stop(iterations=2))
        return net.traffic

    for traffic in all_well(together(FIVE, act, lambda i: SECURE)):
        assert {"links of the network", "seeds of masks", "sums and answers"} <= traffic.keys()
        assert not {"points", "sums", "control sums"} & traffic.keys()
        assert all(each.bytes == 8 * each.numbers for each in traffic.values())
    assert {each["seeds of masks"].numbers for each in [traffic]} == {secure_sums.SEED_WORDS * FIVE.degrees[-1]}


GOSSIP = {"points": gs.CondatVu(), "late sums": gs.AutoPDS(agreement="late"), "sampled": gs.SPDS(N=3)}


@pytest.mark.parametrize("method", GOSSIP.values(), ids=GOSSIP)
def test_a_method_that_exchanges_points_is_refused(method):
    def act(i, net):
        return gs.solve(logistic(FIVE).take([i]), net, method, stop=gs.Stop(iterations=3))

    errors = together(FIVE, act, lambda i: SECURE)
    rule, remedy = "with secure_sums agents exchange masked sums only", 'over exact sums: name = "newton" or "lbfgs"'
    for error in errors:
        # Who did not get as far hears of it.
        assert rule in str(error)
        assert isinstance(error, PeerError) or (str(error).startswith(rule) and remedy in str(error))
    assert any(isinstance(error, InputError) for error in errors)


def test_agents_that_differ_in_secure_sums_refuse_each_other():
    errors = together(gs.Graph.path(3), lambda i, net: None, lambda i: SECURE if i == 2 else {})
    assert isinstance(errors[1], SettingsDiffer)
    assert isinstance(errors[2], SettingsDiffer)
    assert "secure_sums (not set here, True there)" in str(errors[1])
    assert "secure_sums (True here, not set there)" in str(errors[2])
    assert "secure_sums" in str(errors[0])


# Restarts


def with_checkpoint(folder, secure=True):
    return lambda i: {"checkpoint": folder / f"agent-{i}.npz", "deadline": 5.0, **(SECURE if secure else {})}


def sums_then_solve(folder, graph, values, iterations):
    """A sum, as a fit has one before it, and a run with checkpoints."""

    def act(i, net):
        net.session.connect()
        total = net.total(values[i : i + 1])
        net.session.prepared()
        stop, path = gs.Stop(iterations=iterations), folder / f"agent-{i}.npz"
        given = {"stop": stop, "checkpoint": path, "checkpoint_seconds": 0.0}
        solution = gs.solve(logistic(graph).take([i]), net, gs.Newton(), **given)
        return solution.x[0], total

    return act


class Sums:
    """All contributions of all agents: by their keys and the number of the sum, what was masked and what came out."""

    def __init__(self, monkeypatch):
        self.by_key, masked = {}, Masks.masked

        def noted(masks, values):
            sent = masked(masks, values)
            for key in masks._keys.values():
                self.by_key.setdefault((masks._own, key, masks.counter - 1), []).append(
                    (values.tobytes(), sent.tobytes())
                )
            return sent

        monkeypatch.setattr(Masks, "masked", noted)

    @property
    def are_repeated(self):
        """Whether some were made again."""
        return any(len(each) > 1 for each in self.by_key.values())

    def check(self):
        """Nothing but the same was sent under one mask."""
        assert all(len(set(each)) == 1 for each in self.by_key.values())


def test_a_resumed_run_sends_the_same_under_the_same_masks(tmp_path, monkeypatch):
    graph, values = gs.Graph.ring(4), np.random.default_rng(6).normal(size=(4, 3))
    whole = all_well(together(graph, sums_then_solve(tmp_path, graph, values, 6), with_checkpoint(tmp_path)))
    sums, parts = Sums(monkeypatch), tmp_path / "parts"
    parts.mkdir()
    for iterations in (1, 3, 6):
        found = all_well(together(graph, sums_then_solve(parts, graph, values, iterations), with_checkpoint(parts)))
    for (x, total), (expected, expected_total) in zip(found, whole, strict=True):
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(total, expected_total)
    assert sums.are_repeated
    sums.check()
    # A sum has one number for all runs: none repeats.
    lines = journal_path(parts / "agent-0.npz").read_text().splitlines()
    assert [int(line.split()[1]) for line in lines[1:]] == list(range(len(lines) - 1))


def test_the_journal_of_another_run_is_set_aside_with_its_checkpoint(tmp_path):
    graph, values = gs.Graph.path(2), np.random.default_rng(11).normal(size=(2, 3))
    options = with_checkpoint(tmp_path)
    all_well(together(graph, sums_then_solve(tmp_path, graph, values, 1), options))
    before = journal_path(tmp_path / "agent-0.npz").read_bytes()
    again = sums_then_solve(tmp_path, graph, 2 * values, 1)
    all_well(together(graph, again, lambda i: {**options(i), "run_id": "second"}))
    assert journal_path(tmp_path / "agent-0.1.npz").read_bytes() == before
    starts = {journal_path(tmp_path / name).read_text().split()[0] for name in ("agent-0.npz", "agent-0.1.npz")}
    assert len(starts) == 2


def test_other_data_after_a_restart_end_it_before_anything_is_sent(tmp_path):
    graph, values = gs.Graph.ring(4), np.random.default_rng(7).normal(size=(4, 3))
    all_well(together(graph, sums_then_solve(tmp_path, graph, values, 2), with_checkpoint(tmp_path)))
    noted = journal_path(tmp_path / "agent-2.npz").read_bytes()
    other = values.copy()
    other[2, 0] = np.nextafter(other[2, 0], 1.0)
    nets = {}

    def act(i, net):
        nets[i] = net
        return sums_then_solve(tmp_path, graph, other, 4)(i, net)

    errors = together(graph, act, with_checkpoint(tmp_path))
    assert isinstance(errors[2], InputError)
    assert "must send the same numbers under the same masks; got others: its data or its release" in str(errors[2])
    assert not nets[2].traffic
    assert not nets[2]._rounds.is_open, "it has told its neighbours only that it cannot take part"
    assert journal_path(tmp_path / "agent-2.npz").read_bytes() == noted
    for i in (0, 1, 3):
        assert isinstance(errors[i], PeerError)
        assert "it cannot take part: a restarted agent must send the same numbers" in str(errors[i])
    # As it was, all go on.
    all_well(together(graph, sums_then_solve(tmp_path, graph, values, 4), with_checkpoint(tmp_path)))


def test_a_failure_before_the_first_iteration_lets_all_start_anew(tmp_path):
    """With other data, since their masks are others, too."""
    graph, values = gs.Graph.ring(4), np.random.default_rng(8).normal(size=(4, 3))

    def fail(i, net):
        net.session.connect()
        net.total(values[i : i + 1])
        raise InputError("the sum must be another", "this one", "correct the data")

    errors = together(graph, fail, with_checkpoint(tmp_path))
    assert all(isinstance(error, InputError | PeerError) for error in errors)
    found = all_well(together(graph, sums_then_solve(tmp_path, graph, 2 * values, 1), with_checkpoint(tmp_path)))
    np.testing.assert_allclose(found[0][1], 2 * values.sum(axis=0))


def notes(folder, i):
    """What an agent noted of its contributions, in all of its processes."""
    rows = [line.split() for line in (folder / f"sums-{i}").read_text().splitlines()]
    return [((keys, int(counter)), found) for keys, counter, found in rows]


@pytest.mark.first(1)
@pytest.mark.parametrize("method", [gs.LBFGS(memory=3), gs.Newton()], ids=lambda method: method.name)
@pytest.mark.parametrize("seconds", [1000.0, 0.02], ids=["before the first checkpoint", "after it"])
def test_agents_that_are_killed_lead_to_the_same(method, seconds, tmp_path):
    """One of them is the root of the tree, which alone knows the total."""
    root, iterations = FIVE.radius_center()[0], 25
    problem, stop = logistic(FIVE), gs.Stop(iterations=iterations)
    alone = together(FIVE, lambda i, net: gs.solve(problem.take([i]), net, method, stop=stop), lambda i: SECURE)
    expected = all_well(alone)
    town = Town.on(FIVE)
    told = {"method": method, "stop": stop, "checkpoint_seconds": seconds, "pause": 0.01, "notes_sums": True, **SECURE}
    agents = [Agent(town, tmp_path, i, **told) for i in range(FIVE.m)]
    for agent, iteration in (((root + 2) % FIVE.m, 3), (root, 6), (root, 12)):
        agents[agent].wait_for(iteration)
        agents[agent].kill()
        agents[agent].start()
    found = [agent.found() for agent in agents]
    assert [each["x"] for each in found] == [solution.x[0].tolist() for solution in expected]
    assert [each["rounds"] for each in found] == [solution.costs.rounds for solution in expected]
    repeated = 0
    for i in range(FIVE.m):
        noted = notes(tmp_path, i)
        assert len(set(noted)) == len(dict(noted)), "two arrays under one mask"
        repeated += len(noted) - len(set(noted))
    assert repeated
