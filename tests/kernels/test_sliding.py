"""Compiled inner iterations: the iterates of the plain ones."""

import platform

import numpy as np
import pytest

import gradslide as gs
from gradslide.kernels import cached as cached_module
from gradslide.kernels import sliding
from gradslide.kernels import startup as startup_module
from gradslide.kernels.sets import sets_of
from gradslide.kernels.startup import Startup

M = 7

BOX = {"lo": np.linspace(-0.3, 0.0, M)[:, None], "hi": 0.4}
SEPARABLE = {
    "free": gs.domains.Free(),
    "free l1": gs.domains.Free(penalty=gs.L1(0.05), center=0.2),
    "box": gs.domains.Box(-0.2, 0.3, center=0.1),
    "box of each agent, l1": gs.domains.Box(**BOX, penalty=gs.L1(0.1)),
    "nonnegative": gs.domains.NonNegative(),
}
TIED = {
    "l2 ball": gs.domains.L2Ball(0.7, origin=0.1),
    "l2 balls": gs.domains.L2Ball(np.linspace(0.1, 2.0, M)),
    "l2 ball l1": gs.domains.L2Ball(0.5, penalty=gs.L1(0.1)),
    "l1 ball": gs.domains.L1Ball(0.9, origin=-0.1),
    "l1 ball l1": gs.domains.L1Ball(0.8, penalty=gs.L1(0.02)),
    "simplex": gs.domains.Simplex(1.5),
}
MIXED = {
    "intervals": gs.domains.PerAgent([SEPARABLE["free l1"], *[SEPARABLE["box"]] * (M - 2), gs.domains.NonNegative()]),
    "all kinds": gs.domains.PerAgent(
        [
            TIED["l2 ball"],
            gs.domains.L2Ball(0.2),
            TIED["simplex"],
            TIED["l1 ball"],
            SEPARABLE["free"],
            SEPARABLE["box"],
            TIED["l1 ball l1"],
        ]
    ),
}
DOMAINS = SEPARABLE | TIED | MIXED


@pytest.fixture
def compiled(monkeypatch):
    """Compiled code from the first iteration on, or never."""

    def switch(is_on):
        startup = Startup("none")
        startup.is_worthwhile, startup.mark = lambda seconds: is_on, lambda folder: None
        monkeypatch.setattr(startup_module, "startup_of", lambda name: startup)

    return switch


def solved(domain, d, method, dtype=np.float64, iterations=3, **given):
    graph = gs.Graph.random(M, max_degree=4, seed=2)
    rng = np.random.default_rng(5)
    Q = np.stack([np.diag(rng.uniform(0.1, 2.0, d)) for _ in range(M)]).astype(dtype)
    c = rng.normal(size=(M, d)).astype(dtype)
    problem = gs.Problem(gs.losses.Quadratic(Q, c), domain=domain, **given)
    return gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations))


def numbers(solution):
    return [*solution.outputs.values(), solution.dual, solution.y]


def assert_alike(one, other):
    """To the bit, unless NumPy or scipy were built to fuse operations."""
    digits = 0.0 if platform.machine() in ("x86_64", "AMD64") else 1e-5 if one.x.dtype == np.float32 else 1e-13
    assert one.costs.rounds == other.costs.rounds > 0
    assert one.costs.floats_sent == other.costs.floats_sent
    for a, b in zip(numbers(one), numbers(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=digits * (1 + np.max(np.abs(b))))


def both(compiled, *given, **named):
    compiled(False)
    plain = solved(*given, **named)
    compiled(True)
    return solved(*given, **named), plain


@pytest.mark.covering
@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
@pytest.mark.parametrize("name", DOMAINS)
def test_compiled_is_plain(name, coupling, compiled):
    for d in (3, 37):
        assert_alike(*both(compiled, DOMAINS[name], d, gs.PDS(L=2.0, R=2.0, coupling=coupling)))


@pytest.mark.slow
@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
@pytest.mark.parametrize("name", ["box of each agent, l1", "all kinds"])
def test_in_single_precision(name, coupling, compiled):
    assert_alike(*both(compiled, DOMAINS[name], 19, gs.PDS(L=2.0, R=2.0, coupling=coupling), dtype=np.float32))


@pytest.mark.parametrize("name", ["free", "l2 ball"])
def test_stages_and_other_methods(name, compiled):
    domain = DOMAINS[name]
    stages = gs.PDS(L=2.0, R=0.5, growth=1.5)
    fast, plain = both(compiled, domain, 5, stages, iterations=12, mu=0.3)
    assert fast.parameters["growth"] == 1.5
    assert_alike(fast, plain)
    sampled = gs.SPDS(N=6, L=2.0, R=2.0, sigma=0.1, oracle=gs.oracles.Noise(0.1), seed=3)
    assert_alike(*both(compiled, domain, 5, sampled, iterations=6))
    assert_alike(*both(compiled, domain, 5, gs.AutoPDS(inner="sliding"), iterations=20))


@pytest.mark.parametrize("name", ["box", "l1 ball"])
@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
def test_threads_change_nothing(name, coupling, compiled, monkeypatch):
    method = gs.PDS(L=2.0, R=2.0, coupling=coupling)
    compiled(True)
    one = solved(DOMAINS[name], 37, method)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(sliding, "_WORTH_SYNCHRONIZING", 1)
    assert_alike(solved(DOMAINS[name], 37, method), one)


def test_the_start_stays_what_it_was(compiled):
    """KernelResult go where nobody looks any more."""
    compiled(True)
    x0 = np.full((M, 5), 0.125)
    seen = []
    graph = gs.Graph.ring(M)
    problem = gs.Problem(gs.losses.Quadratic(np.stack([np.eye(5)] * M), np.ones((M, 5))))
    first = gs.solve(problem, graph, gs.PDS(L=1.0, R=1.0), x0=x0, stop=gs.Stop(iterations=4))
    again = gs.solve(
        problem,
        graph,
        gs.PDS(L=1.0, R=1.0),
        x0=x0,
        stop=gs.Stop(iterations=4),
        callback=lambda record, x: seen.append(x) or None,
    )
    assert (x0 == 0.125).all()
    assert_alike(again, first)
    assert np.array_equal(seen[-1], again.x)
    assert not np.array_equal(seen[-2], again.x)


def test_networks_that_disturb_and_other_sets_have_no_compiled_code(compiled, monkeypatch):
    def refuse(*given):
        raise AssertionError("compiled code")

    monkeypatch.setattr(sliding.InnerLoopKernel, "run", refuse)
    compiled(True)
    with pytest.raises(AssertionError, match="compiled code"):
        solved(DOMAINS["free"], 3, gs.PDS(L=2.0, R=2.0))
    others = [
        gs.domains.EntropySimplex(),
        gs.domains.Halfspace(np.ones(3), 0.1),
        gs.domains.Free(penalty=gs.ElasticNet(0.1, 0.1)),
        gs.domains.PerAgent([gs.domains.Free(), *[gs.domains.Halfspace(np.ones(3), 0.1)] * (M - 1)]),
    ]
    for other in others:
        solved(other, 3, gs.PDS(L=2.0, R=2.0))
    graph = gs.Graph.ring(M)
    problem = gs.Problem(gs.losses.Quadratic(np.stack([np.eye(3)] * M), np.ones((M, 3))))
    for network in (gs.network.Delayed(graph, 0.0), gs.network.Lossy(graph, 0.0)):
        gs.solve(problem, network, gs.PDS(L=1.0, R=1.0), stop=gs.Stop(iterations=2))


def test_nobody_waits_for_the_compiler_longer_than_the_work_takes(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    startup = Startup("tiles")
    assert not startup.is_worthwhile(startup_module._COMPILE - 0.1)
    folder = tmp_path / "kernels_1"
    folder.mkdir()
    Startup("other").mark(str(folder))
    assert not startup.is_worthwhile(startup_module._COMPILE - 0.1)
    Startup("tiles").mark(str(folder))
    assert not startup.is_worthwhile(startup_module._LOAD - 0.1)
    clock = iter([0.0, 0.2])
    monkeypatch.setattr(startup_module.time, "perf_counter", lambda: next(clock))
    assert startup.time_plain(lambda: "done") == "done"
    assert startup.is_worthwhile(startup_module._LOAD - 0.1)
    assert startup.is_worthwhile(0.0)


def test_where_nothing_can_be_kept_code_is_compiled_all_the_same(monkeypatch):
    def njit(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr(cached_module, "njit", njit)
    function, options = cached_module.cached(max)
    assert function is max
    assert options["nogil"]
    Startup("tiles").mark(None)


def test_code_for_another_precision_or_coupling_starts_by_itself():
    sets = sets_of(gs.domains.Free().bind(3, 2, np.float64))
    graph = gs.Graph.path(3).laplacian
    kinds = [("incidence", np.float64), ("laplacian", np.float64), ("incidence", np.float32)]
    startups = [sliding.InnerLoopKernel(graph, coupling, sets, 2, dtype)._startup for coupling, dtype in kinds]
    assert len(set(map(id, startups))) == 3
    assert sliding.InnerLoopKernel(graph, "incidence", sets, 2, np.float64)._startup is startups[0]


def test_numbers_that_are_none_stay_so(compiled):
    for name in ("box", "l2 ball", "l1 ball", "simplex"):
        domain = DOMAINS[name].bind(2, 3, np.float64)
        sets = sets_of(domain)
        kernel = sliding.InnerLoopKernel(gs.Graph.path(2).laplacian, "incidence", sets, 3, np.float64)
        at = [np.full((2, 3), 0.1) for _ in range(5)]
        at[4][1, 2] = np.nan
        ones = np.ones(2)
        found = kernel.run(sliding.InnerStart(*at), sliding.InnerSteps(1.0, 0.5, ones, ones, 2 * ones))
        assert np.isnan(found.x).any(), name
