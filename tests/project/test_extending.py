"""The worked example of docs/extending.md: a loss, a domain and a method of one's own, against what is built in."""

import re
from pathlib import Path

import numpy as np
import pytest

import gradslide as gs

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
RING = gs.Graph.ring(8)


@pytest.fixture(scope="module")
def own():
    """The names that the page defines."""
    namespace = {"__name__": "extending"}
    for source in BLOCKS:
        exec(compile(source, PAGE, "exec"), namespace)
    return {**namespace, "problem": gs.Problem(namespace["Distances"](namespace["c"]), namespace["Cube"]())}


@pytest.fixture(scope="module")
def c(own):
    return own["c"]


def built_in(c):
    m, d = c.shape
    return gs.Problem(gs.losses.Quadratic(np.tile(np.eye(d), (m, 1, 1)), -c), gs.domains.Box(-1.0, 1.0))


def apart(solution, expected):
    return np.abs(solution.x - expected.x).max()


def test_it_is_short():
    *script, alternative = BLOCKS
    assert "Custom" in alternative
    assert [block for block in script if "class " not in block] == []
    assert sum(block.count("\n") for block in script) < 60


def test_the_answer_is_right(own, c):
    """The mean of the c_i, put into the cube."""
    problem, solution = own["problem"], own["solution"]
    np.testing.assert_allclose(solution.x, np.tile(np.clip(c.mean(axis=0), -1, 1), (8, 1)), atol=1e-6)
    outside = own["Distances"](c + np.array([0.0, 4.0, -4.0]))
    there = gs.solve(gs.Problem(outside, own["Cube"]()), RING, own["Diffusion"](), stop=gs.Stop(iterations=200))
    np.testing.assert_allclose(there.mean, [c[:, 0].mean(), 1.0, -1.0], atol=1e-6)
    assert solution.settings["problem"] == "Problem(Distances, Cube, m=8, d=3, mu=0)"
    assert problem.has_lower_bound


@pytest.mark.parametrize("iterations", [1, 2, 7, 40])
def test_the_method_is_nids_iterate_by_iterate(own, c, iterations):
    """Its start takes NIDS's first step."""
    found = gs.solve(own["problem"], RING, own["Diffusion"](), stop=gs.Stop(iterations=iterations))
    expected = gs.solve(built_in(c), RING, gs.NIDS(L=1.0), stop=gs.Stop(iterations=iterations + 1))
    assert apart(found, expected) < 1e-12
    off = gs.solve(built_in(c), RING, gs.NIDS(L=1.0), stop=gs.Stop(iterations=iterations))
    assert apart(found, off) > 1e-9


def test_its_costs_are_counted(own):
    costs = own["solution"].costs
    # One of the gradients compares the gradient of the loss with its value.
    assert (costs.gradients, costs.rounds, costs.samples) == (202, 200, 0)
    assert costs.control_rounds == RING.diameter
    assert costs.floats_sent >= 200 * 3 * 16


@pytest.mark.parametrize("method", [gs.AutoPDS(), gs.PDS(), gs.NIDS(), gs.SPDS(samples=100)], ids=lambda m: repr(m)[:6])
def test_built_in_methods_take_the_loss_and_the_domain(own, c, method):
    stop = None if isinstance(method, gs.SPDS | gs.AutoPDS) else gs.Stop(iterations=100)
    found = gs.solve(own["problem"], RING, method, stop=stop)
    if isinstance(method, gs.SPDS):  # each agent's sample is its exact gradient
        assert np.abs(found.mean - np.clip(c.mean(axis=0), -1, 1)).max() < 0.05
        return
    expected = gs.solve(built_in(c), RING, method, stop=stop)
    assert apart(found, expected) < 1e-3
    if isinstance(method, gs.AutoPDS):
        assert found.status is gs.Status.CONVERGED
        assert found.certificate.gap < 1e-3 * found.certificate.upper


def test_the_loss_by_functions_is_the_same(own):
    stop = gs.Stop(iterations=30)
    x = np.random.default_rng(1).normal(size=(8, 3))
    for one in (own["custom"], own["Distances"](own["c"])):
        np.testing.assert_allclose(one.value(x), built_in(own["c"]).loss.value(x) + (own["c"] ** 2).sum(axis=1) / 2)
    by_functions = gs.Problem(own["custom"], own["Cube"]())
    found = gs.solve(by_functions, RING, own["Diffusion"](), stop=stop)
    assert apart(found, gs.solve(own["problem"], RING, own["Diffusion"](), stop=stop)) == 0


def test_the_parts_of_the_loss_are_those_of_the_whole(own):
    x = np.random.default_rng(1).normal(size=(8, 3))
    loss = own["problem"].loss
    np.testing.assert_array_equal(loss.take([5, 2]).gradient(x[[5, 2]]), loss.gradient(x)[[5, 2]])
    built = gs.Problem.build(RING, lambda i: (loss.take([i]), own["Cube"]()))
    stop = gs.Stop(iterations=20)
    found = gs.solve(built, RING, own["Diffusion"](), stop=stop)
    assert apart(found, gs.solve(own["problem"], RING, own["Diffusion"](), stop=stop)) == 0


@pytest.mark.parametrize(
    "network",
    [
        gs.network.Lossy(RING, lost=0.2, direction="both", seed=1),
        gs.network.Sleeping(RING, asleep=0.2, length=3, seed=1),
        gs.network.Varying(RING, up=0.7, length=3, seed=1),
        gs.network.Delayed(RING, seconds=1e-6),
    ],
    ids=lambda network: type(network).__name__,
)
def test_it_runs_on_unreliable_networks_as_ours_do(own, c, network):
    stop = gs.Stop(iterations=400)
    found = gs.solve(own["problem"], network, own["Diffusion"](), stop=stop)
    np.testing.assert_allclose(found.x, np.tile(np.clip(c.mean(axis=0), -1, 1), (8, 1)), atol=1e-5)
    ours = gs.solve(built_in(c), network, gs.NIDS(L=1.0), stop=gs.Stop(iterations=401))
    assert apart(found, ours) < 1e-9
    assert found.costs.rounds == ours.costs.rounds == 400


def test_it_goes_on_from_a_checkpoint(own, tmp_path):
    def run(iterations):
        stop = gs.Stop(iterations=iterations)
        return gs.solve(own["problem"], RING, own["Diffusion"](), stop=stop, checkpoint=tmp_path / "run.npz")

    run(7)
    whole = gs.solve(own["problem"], RING, own["Diffusion"](), stop=gs.Stop(iterations=20))
    resumed = run(20)
    assert apart(resumed, whole) == 0
    assert resumed.costs.gradients == whole.costs.gradients == 22
