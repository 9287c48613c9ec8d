"""A domain in more dimensions is the domain of its own coordinates, and 0 elsewhere."""

import numpy as np
import pytest

import gradslide as gs
from gradslide.domains.padded import Padded, without_padding

DOMAINS = {
    "Free": gs.domains.Free(penalty=gs.L1(0.3)),
    "Box": gs.domains.Box(-0.5, 1.0),
    "L2Ball": gs.domains.L2Ball(1.0),
    "Simplex": gs.domains.Simplex(1.0),
    "Halfspace": gs.domains.Halfspace(np.array([1.0, -1.0, 2.0]), 0.3),
    "EntropySimplex": gs.domains.EntropySimplex(),
}


@pytest.fixture(params=DOMAINS)
def pair(request):
    domain = DOMAINS[request.param]
    return domain.bind(2, 3, float), Padded(domain, 3).bind(2, 5, float)


def test_everything_is_that_of_its_own_coordinates(pair):
    domain, larger = pair
    rng = np.random.default_rng(0)
    v = rng.normal(size=(2, 5))
    a, b = larger.project(v), larger.project(rng.normal(size=(2, 5)))
    if domain.norm == 1:
        a, b = larger.prox(v, 1.0), larger.prox(-v, 1.0)
    for found, expected in [
        (larger.project(v), domain.project(v[:, :3])),
        (larger.prox(v, 2.0), domain.prox(v[:, :3], 2.0)),
        (larger.prox(v, np.array([[1.0], [2.0]])), domain.prox(v[:, :3], np.array([[1.0], [2.0]]))),
        (larger.start(), domain.start()),
        (larger.grad_nu(a), domain.grad_nu(a[:, :3])),
    ]:
        np.testing.assert_array_equal(found[:, :3], expected)
        assert not found[:, 3:].any()
    for name, arguments in [
        ("nu", (a,)),
        ("r", (a,)),
        ("V", (a, b)),
        ("distance_bound", (a,)),
        ("linear_minimum", (v,)),
    ]:
        own = [each[:, :3] for each in arguments]
        np.testing.assert_array_equal(getattr(larger, name)(*arguments), getattr(domain, name)(*own))
    assert larger.linear_minimum(v, 0.5).tolist() == domain.linear_minimum(v[:, :3], 0.5).tolist()
    assert (larger.bounded, larger.norm, larger.common) == (domain.bounded, domain.norm, domain.common)
    assert larger.contains(a, 1e-9).all()
    assert not larger.contains(a + np.array([0, 0, 0, 0, 1e-3]), 1e-9).any()


def test_domains_of_one_kind_and_size_are_stacked():
    each = gs.domains.PerAgent(
        [Padded(gs.domains.Box(0.0, 1.0), 2), gs.domains.Box(0.0, 3.0), Padded(gs.domains.Box(0.0, 2.0), 2)]
    ).bind(3, 3, float)
    assert sorted(part.m for part, _ in each.parts) == [1, 2]
    x = each.project(np.full((3, 3), 9.0))
    assert x.tolist() == [[1, 1, 0], [3, 3, 3], [2, 2, 0]]
    last = each.take([2])
    assert last.project(np.full((1, 3), 9.0)).tolist() == [[2, 2, 0]]
    assert without_padding(last).project(np.full((1, 2), 9.0)).tolist() == [[2, 2]]
    assert each.take([2, 0]).project(np.full((2, 3), 9.0)).tolist() == [[2, 2, 0], [1, 1, 0]]


def test_more_coordinates_than_x_are_refused():
    with pytest.raises(gs.InputError, match="no more coordinates than x; got 4 of 3"):
        Padded(gs.domains.Free(), 4).bind(1, 3, float)
