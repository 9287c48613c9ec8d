"""The compiled exchanges of the gossip mode give the bits of the plain ones."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from auto_twins import followed

import gradslide as gs
from gradslide.graphs.chebyshev import damped_coefficients
from gradslide.kernels import mixing
from gradslide.kernels.mixing import DotsInput, MixingInput, MixingKernel, MixingOutput, ProxInput, ProxKernel
from gradslide.kernels.sets import sets_of
from gradslide.kernels.startup import startup_of
from gradslide.methods.gossip.inner import Mixer

GRAPHS = {"random": gs.Graph.random(23, 5, seed=2), "ring": gs.Graph.ring(9), "complete": gs.Graph.complete(6)}


def mixer_of(graph, dtype):
    D, least, most = graph.degree_weights
    N = sp.csr_array(sp.diags_array(1 / D) @ graph.laplacian)
    least, most = float(least), float(most)
    return Mixer(D[:, None].astype(dtype), N, least, most, (most / least) ** 0.5)


@pytest.mark.covering
@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 15, 16, 17, 70, 133])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_step_has_the_bits_of_the_plain_one(name, d, dtype, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(mixing, "_NUMBERS_PER_THREAD", 1)
    graph, rng = GRAPHS[name], np.random.default_rng(d)
    mixer, context = mixer_of(graph, dtype), SimpleNamespace(network=gs.network.Local(graph))
    kernel = MixingKernel(mixer.N, mixer.D)
    for K, share in ((1, 0.3), (2, 1.0), (3, 0.2), (8, 0.9)):
        at = MixingInput(*(rng.normal(size=(graph.m, d)).astype(dtype) for _ in MixingInput._fields))
        at = at._replace(s=at.s.astype(np.float64))
        plain = mixer._plain_step(context, at, K, 2.5, share)
        rounds = damped_coefficients(K, least=mixer._from(K), most=mixer.most)
        for expected, found in zip(plain, kernel.run(at, 2.5, share, rounds), strict=True):
            assert expected.dtype == found.dtype
            np.testing.assert_array_equal(found, expected)


def test_arrays_are_overwritten_where_they_may_be():
    graph, rng = GRAPHS["ring"], np.random.default_rng(0)
    mixer = mixer_of(graph, np.float64)
    kernel, rounds = MixingKernel(mixer.N, mixer.D), damped_coefficients(3, least=mixer._from(3), most=mixer.most)
    at = MixingInput(*(rng.normal(size=(graph.m, 21)) for _ in MixingInput._fields))
    expected = kernel.run(at, 2.5, 0.3, rounds)
    out = {"u": at.x, "s": at.s, "w": at.w, "y_bar": at.y_bar, "w_bar": at.w_bar}
    found = kernel.run(at, 2.5, 0.3, rounds, out)
    for name, array in out.items():
        assert getattr(found, name) is array
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 16, 37])
def test_what_is_done_between_the_exchanges_of_others_has_the_bits_of_the_plain_step(d, dtype):
    graph, rng = GRAPHS["random"], np.random.default_rng(d)
    mixer, context = mixer_of(graph, dtype), SimpleNamespace(network=gs.network.Local(graph))
    kernel = MixingKernel(mixer.N, mixer.D, is_local=False)
    for K, share in ((1, 0.3), (2, 1.0), (5, 0.9)):
        at = MixingInput(*(rng.normal(size=(graph.m, d)).astype(dtype) for _ in MixingInput._fields))
        at = at._replace(s=at.s.astype(np.float64))
        plain = mixer._plain_step(context, at, K, 2.5, share)
        rounds, N = damped_coefficients(K, least=mixer._from(K), most=mixer.most), mixer.N.astype(dtype)
        found = kernel.run_between(at, 2.5, share, rounds, {"w": at.w}, lambda q, N=N: N @ q)
        assert found.w is at.w
        for expected, each in zip(plain, found, strict=True):
            np.testing.assert_array_equal(each, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 7, 8, 130, 300, 1001, 5000])
def test_inner_products_have_the_bits_of_the_plain_ones(d, dtype):
    mixer, rng = mixer_of(GRAPHS["ring"], dtype), np.random.default_rng(d)
    at = DotsInput(*((10.0 ** rng.integers(-3, 3) * rng.normal(size=(9, d))).astype(dtype) for _ in DotsInput._fields))
    products, stationarity = mixer.products(at, 0.3, 2.5)
    *found, last, conjugate, reach = MixingKernel(mixer.N, mixer.D).dots(at, 0.3, 2.5)
    for expected, each in zip((*products[:6], stationarity), (*found, conjugate, reach, last), strict=True):
        np.testing.assert_array_equal(each, expected)


SETS = {
    "l1": lambda rng, d: gs.domains.Free(penalty=gs.L1(0.3), center=rng.normal(size=d)),
    "box": lambda rng, d: gs.domains.Box(-rng.random(d), 0.5, penalty=gs.L1(rng.random(d))),
    "nonnegative": lambda rng, d: gs.domains.NonNegative(),
    "l2 ball": lambda rng, d: gs.domains.L2Ball(1.0, origin=rng.normal(size=d)),
    "l1 ball": lambda rng, d: gs.domains.L1Ball(0.7, center=rng.normal(size=d)),
    "l1 ball and penalty": lambda rng, d: gs.domains.L1Ball(2.0, penalty=gs.L1(0.1)),
    "simplex": lambda rng, d: gs.domains.Simplex(2.0),
    "of each agent": lambda rng, d: gs.domains.L2Ball(rng.uniform(0.1, 3.0, 9), origin=rng.normal(size=(9, d))),
}


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 7, 8, 130, 1001])
@pytest.mark.parametrize("name", SETS)
def test_prox_steps_have_the_bits_of_the_plain_ones(name, d, dtype, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(mixing, "_NUMBERS_PER_THREAD", 1)
    rng, mixer = np.random.default_rng(d), mixer_of(GRAPHS["ring"], dtype)
    domain = SETS[name](rng, d).bind(m=9, d=d, dtype=dtype)
    context, kernel = SimpleNamespace(domain=domain), ProxKernel(sets_of(domain), mixer.D)
    at = ProxInput(*(rng.normal(size=(9, d)).astype(dtype) for _ in ProxInput._fields))
    np.testing.assert_array_equal(kernel.stationarity(at, 2.5, 0.3), mixer.stationarity(context, at, 0.3, 2.5))
    found = MixingOutput(*(rng.normal(size=(9, d)).astype(dtype) for _ in MixingOutput._fields))
    expected = mixer.prox_step(context, found, at.x_bar, 1 / 37.3, 1.7)
    kernel.step(found.x_bar, at.x_bar, found.u, 1 / 37.3, 1.7)
    np.testing.assert_array_equal(found.x_bar, expected[0])
    np.testing.assert_array_equal(found.u, expected[1])


@pytest.mark.parametrize(
    "domain", [None, gs.domains.L2Ball(1.0), gs.domains.Box(-0.1, 0.2), gs.domains.Free(penalty=gs.L1(1.0))]
)
@pytest.mark.parametrize("d", [5, 37])
def test_when_a_run_is_compiled_does_not_matter(d, domain, monkeypatch):
    rng, graph = np.random.default_rng(d), GRAPHS["random"]
    features, labels = rng.normal(size=(graph.m * 10, d)), np.where(rng.random(graph.m * 10) < 0.5, 1, -1)
    problem = gs.Problem(gs.losses.Logistic(features, labels, agents=graph.m), domain, mu=0.01)
    found = []
    for is_compiled in (False, True):
        for name in ("mixing-float64", "prox-float64"):
            monkeypatch.setattr(startup_of(name), "is_over", is_compiled)
        states, solution = followed(problem, graph, gs.AutoPDS(), 60)
        # What decides about restarts and K, too: few iterations do not show it.
        decisions = [repr((state.progress, state.smoothness, state.tuning)) for state in states]
        found.append((solution.x.tolist(), solution.dual.tolist(), solution.certificate.lower, decisions))
    assert found[0] == found[1]


def strided(g):
    return np.stack([np.zeros(len(g)), *g.T], axis=1)[:, 1:]


def read_only(g):
    g.flags.writeable = False
    return g


@pytest.mark.parametrize("form", [np.copy, np.asfortranarray, strided, read_only], ids=lambda form: form.__name__)
def test_gradients_of_users_are_not_overwritten(form, monkeypatch):
    monkeypatch.setattr(startup_of("mixing-float64"), "is_over", True)
    graph, rng, seen = GRAPHS["ring"], np.random.default_rng(0), []
    scales, centres = rng.uniform(0.5, 2.0, (graph.m, 20)), rng.normal(size=(graph.m, 20))

    def value_and_gradient(x):
        gradient = form(scales * (x - centres))
        seen.append((gradient.copy(), gradient))
        return np.sum(scales * (x - centres) ** 2, axis=1) / 2, gradient

    loss = gs.losses.Custom(value_and_gradient=value_and_gradient, smoothness=2.0, agents=graph.m, dimension=20)
    problem = gs.Problem(loss, gs.domains.Box(-0.1, 0.1))
    solution = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(iterations=10))
    for before, after in seen:
        np.testing.assert_array_equal(before, after)
    best = np.clip(np.sum(scales * centres, axis=0) / np.sum(scales, axis=0), -0.1, 0.1)
    assert solution.certificate.lower <= np.sum(scales * (best - centres) ** 2) / 2


@pytest.mark.parametrize("domain", [None, gs.domains.L2Ball(1.0)], ids=["free", "ball"])
@pytest.mark.parametrize("agreement", ["late", "exact", "none"])
def test_a_run_that_is_compiled_halfway_has_the_same_bits(agreement, domain, monkeypatch):
    """Plain steps leave no array in two places of which compiled ones overwrite one."""
    rng, graph = np.random.default_rng(3), GRAPHS["random"]
    startups = [startup_of(name) for name in ("mixing-float64", "prox-float64")]
    features, targets = rng.normal(size=(graph.m * 9, 20)), rng.normal(size=graph.m * 9)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=graph.m), domain)
    found = []
    for first in (0, 1, 2, 3, 30, 1000):
        for startup in startups:
            monkeypatch.setattr(startup, "is_over", first == 0)

        def compile_now(record, x, first=first):
            for startup in startups:
                startup.is_over = record.iteration >= first

        method, stop = gs.AutoPDS(agreement=agreement), gs.Stop(iterations=60)
        solution = gs.solve(problem, graph, method, stop=stop, callback=compile_now)
        found.append((solution.x.tolist(), solution.dual.tolist(), solution.costs.rounds))
    assert all(each == found[0] for each in found)
