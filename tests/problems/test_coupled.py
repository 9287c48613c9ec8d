"""Coupled problems: agents of different dimensions, their parts, and mistakes that are named."""

import numpy as np
import pytest
import scipy.sparse as sp

import gradslide as gs

RNG = np.random.default_rng(0)
SIZES = (2, 3, 1)
LOSSES = [gs.losses.Quadratic(np.eye(size), RNG.normal(size=size)) for size in SIZES]
BLOCKS = [RNG.normal(size=(4, size)) for size in SIZES]
DOMAINS = [gs.domains.Box(0.0, 1.0), gs.domains.Simplex(1.0), gs.domains.Free()]


def problem(**given):
    return gs.Problem(LOSSES, DOMAINS, coupling=gs.Coupled(BLOCKS, 1.0, sense="<="), **given)


def test_arrays_have_the_columns_of_the_largest_agent():
    whole = problem(mu=0.5)
    assert (whole.m, whole.d, whole.coupling.dimensions) == (3, 3, SIZES)
    x = whole.start()
    assert x.shape == (3, 3)
    assert [len(each) for each in whole.blocks(x)] == list(SIZES)
    y = RNG.normal(size=(3, 3))
    singles = [gs.Problem(loss, domain, 0.5) for loss, domain in zip(LOSSES, DOMAINS, strict=True)]
    projected = whole.domain.project(y)
    values = whole.objective(projected)
    for row, own, one, value in zip(projected, whole.blocks(projected), singles, values, strict=True):
        assert not row[len(own) :].any()
        assert one.objective(own[None]) == pytest.approx(value)
    assert repr(whole) == "Problem(Stacked, PerAgent, m=3, d=3, mu=0.5, coupling: 4 rows)"


def test_parts_are_what_was_given():
    for part, loss, domain, block in zip(problem().parts(), LOSSES, DOMAINS, BLOCKS, strict=True):
        assert part.loss.d == loss.d == part.domain.d
        assert isinstance(part.domain, type(domain))
        np.testing.assert_array_equal(part.block.toarray(), block)
        x = RNG.normal(size=(1, loss.d))
        np.testing.assert_array_equal(part.loss.gradient(x), loss.gradient(x))


def test_equal_dimensions_are_not_padded():
    loss = gs.losses.Linear(np.ones((3, 2)))
    shared = gs.Coupled([np.eye(2)] * 3, lower=[0.0, 1.0], upper=np.inf)
    whole = gs.Problem(loss, gs.domains.Box(0.0, 1.0), coupling=shared)
    assert whole.loss is loss
    assert isinstance(whole.domain, gs.domains.Box)
    assert shared.lower.tolist() == [0.0, 1.0]
    assert shared.upper.tolist() == [np.inf, np.inf]
    assert [part.domain.m for part in whole.parts()] == [1, 1, 1]


def test_one_domain_stands_for_all():
    whole = gs.Problem(LOSSES, gs.domains.NonNegative(), coupling=gs.Coupled(BLOCKS, 0.0))
    assert whole.domain.project(-np.ones((3, 3))).tolist() == np.zeros((3, 3)).tolist()
    assert whole.domain.project(np.ones((3, 3))).sum(axis=1).tolist() == list(SIZES)


def test_some_agents_keep_their_blocks_and_the_dimension_of_all():
    part = problem().take([2, 0])
    assert (part.m, part.d, part.coupling.dimensions) == (2, 3, (1, 2))
    np.testing.assert_array_equal(part.coupling.blocks[0].toarray(), BLOCKS[2])
    assert part.coupling.upper.tolist() == [1.0] * 4
    x = RNG.normal(size=(2, 3))
    np.testing.assert_array_equal(part.loss.gradient(x)[0, :1], LOSSES[2].gradient(x[:1, :1])[0])
    assert [each.domain.d for each in part.parts()] == [1, 2]


def test_each_process_builds_its_agents_in_the_dimension_of_all():
    whole = problem(mu=0.1)

    class Two:
        agents = (2, 0)

    def builder(i):
        return LOSSES[i], DOMAINS[i], sp.csr_array(BLOCKS[i])

    own = gs.Problem.build(Two(), builder, 0.1, b=1.0, sense="<=")
    assert own.d == 2
    own = own.padded(3)
    x = RNG.normal(size=(2, 3))
    expected = whole.take([2, 0])
    np.testing.assert_array_equal(own.loss.gradient(x), expected.loss.gradient(x))
    np.testing.assert_array_equal(own.domain.project(x), expected.domain.project(x))
    np.testing.assert_array_equal(own.objective(x), expected.objective(x))
    assert own.padded(3) is own
    assert own.coupling.lower.tolist() == [-np.inf] * 4
    everyone = gs.Problem.build(gs.Graph.path(3), builder, b=1.0)
    assert everyone.d == 3


def test_rows_of_a_block_that_are_zero_concern_others():
    blocks = [np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0], [2.0]])]
    shared = gs.Coupled(blocks, [1.0, 2.0])
    assert shared.participants.tolist() == [[True, False], [False, True]]
    assert shared.violation(np.array([1.5, 2.0])).tolist() == [0.5, 0.0]
    shared.require_parts(np.array([True, True]))
    gs.Coupled(blocks, [0.0, 2.0]).require_parts(np.array([False, True]))
    with pytest.raises(gs.InputError, match=r"no entry in row 0, which must lie between 1 and 1"):
        shared.require_parts(np.array([False, True]))


@pytest.mark.parametrize(
    ("blocks", "given", "told"),
    [
        ([], {"b": 1.0}, "blocks must be a sequence of matrices"),
        (np.eye(2), {"b": 1.0}, "blocks must be a sequence of matrices"),
        ([np.ones((2, 1)), np.ones((3, 1))], {"b": 1.0}, r"same rows; got 3 rows in blocks\[1\] and 2 in blocks\[0\]"),
        ([np.ones(2)], {"b": 1.0}, r"blocks\[0\] must be a real matrix .* got shape \(2,\)"),
        ([np.ones((2, 0))], {"b": 1.0}, r"blocks\[0\] must be a real matrix"),
        ([np.ones((1, 2)), np.array([["a"]])], {"b": 1.0}, r"blocks\[1\] must be a real matrix"),
        ([np.array([[np.nan]])], {"b": 1.0}, r"blocks\[0\] must be finite"),
        ([np.ones((2, 1))], {}, "give b, or lower and upper"),
        ([np.ones((2, 1))], {"b": [1.0, 2.0, 3.0]}, "one entry for each of the 2 rows"),
        ([np.ones((2, 1))], {"b": 1.0, "sense": "<"}, "sense must be one of the known names"),
        ([np.ones((2, 1))], {"lower": 1.0, "upper": 0.0}, "lower <= upper"),
    ],
)
def test_mistakes_in_the_constraints_are_named(blocks, given, told):
    with pytest.raises(gs.InputError, match=told):
        gs.Coupled(blocks, **given)


def test_mistakes_in_the_problem_are_named():
    shared = gs.Coupled(BLOCKS, 1.0)
    with pytest.raises(gs.InputError, match=r"blocks\[1\] must have a column for each of the 2 variables of agent 1"):
        gs.Problem([LOSSES[0], LOSSES[0], LOSSES[2]], coupling=shared)
    with pytest.raises(gs.InputError, match="a block for each of the 2 agents; got 3 blocks"):
        gs.Problem(LOSSES[:2], coupling=shared)
    with pytest.raises(gs.InputError, match=r"coupling must be a gs\.Coupled; got str"):
        gs.Problem(LOSSES, coupling="equal")
    with pytest.raises(gs.InputError, match=r"must hold the loss of one agent each; got 2 agents in losses\[0\]"):
        gs.Problem([gs.losses.Linear(np.ones((2, 2)))], coupling=shared)
    with pytest.raises(gs.InputError, match="the domains must be one for each agent; got 2 for 3 agents"):
        gs.Problem(LOSSES, DOMAINS[:2], coupling=shared)
    with pytest.raises(gs.InputError, match="a loss, a domain and a block A_i; got 2 of them for agent 0"):
        gs.Problem.build(gs.Graph.path(3), lambda i: (LOSSES[i], DOMAINS[i]), b=1.0)
    with pytest.raises(gs.InputError, match="only coupled problems have parts"):
        gs.Problem(LOSSES[0]).parts()
    assert gs.Problem([LOSSES[0], LOSSES[0]], [DOMAINS[0]] * 2).m == 2
