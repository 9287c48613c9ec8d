"""DCS with compiled inner iterations: equal to the plain ones iterate by iterate, in costs, and where they fail."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from error_messages import check_message
from paper_twins import iterates
from problems import logistic, quadratic
from specs import write_spec

import gradslide as gs
from gradslide.experiments import build
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import read_spec
from gradslide.network.clock import Timeline
from gradslide.oracles import Oracle
from gradslide.results.costs import Costs

NAMES = ("x", "x_prev", "x_hat", "x_bar", "y", "y_bar", "w")
RAGGED = (7, 1, 12, 3, 30, 2)
GRAPHS = [gs.Graph.ring(6), gs.Graph.star(6), gs.Graph.complete(6), gs.Graph.random(6, 3, seed=2)]


def loss_of(rows=RAGGED, p=4, scale=1.0, dtype=np.float64, weighted=False, seed=0, **given):
    """Logistic losses; rows: how many each agent has."""
    rng, n = np.random.default_rng(seed), sum(rows)
    features = (scale * rng.normal(size=(n, p))).astype(dtype)
    labels = rng.choice([-1, 1], size=n)
    weights = rng.uniform(0.1, 2.0, size=n) if weighted else None
    splits = np.split(np.arange(n), np.cumsum(rows)[:-1])
    return gs.losses.Logistic(features, labels, splits=splits, sample_weight=weights, **given)


def steps_of(T, seed=0):
    """Pulls, scales and shares of T steps."""
    rng = np.random.default_rng(seed)
    pulls = rng.uniform(0.0, 50.0, size=T)
    return pulls, pulls + 20.0, rng.uniform(0.1, 0.9, size=T)


def plain_steps(loss, u, anchor, pulls, scales, shares):
    u_hat = u
    for pull, scale, share in zip(pulls, scales, shares, strict=True):
        u = (anchor + pull * u - loss.gradient(u)) / scale
        u_hat = u_hat + share * (u - u_hat)
    return u, u_hat


def check_steps(loss, u, anchor, T=20, rtol=1e-11):
    steps = steps_of(T)
    for got, expected in zip(loss.steps(u, anchor, *steps), plain_steps(loss, u, anchor, *steps), strict=True):
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def check_equal(problem, graph, N=30, tolerance=1e-11, x0=None, growth=2, **given):
    given["growth"] = growth
    stop = gs.Stop(iterations=N)
    plain = iterates(problem, graph, gs.DCS(**given), stop, x0)
    compiled = iterates(problem, graph, gs.DCS(**given, compiled=True), stop, x0)
    assert len(plain) == len(compiled) == N
    for one, other in zip(plain, compiled, strict=True):
        for name in NAMES:
            expected = getattr(one, name)
            atol = tolerance * (np.abs(expected).max() + 1e-3)
            np.testing.assert_allclose(getattr(other, name), expected, rtol=0, atol=atol, err_msg=name)


# ---- the same iterates


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 1.5])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"rows": (8,) * 6},
        {"rows": (1,) * 6},
        {"weighted": True},
        {"reduction": "mean"},
        {"reduction": "mean", "weighted": True},
    ],
    ids=str,
)
def test_rows_and_weights(given, mu):
    check_equal(gs.Problem(loss_of(**given), mu=mu), GRAPHS[3], growth=4)


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 1.5])
@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 22])
def test_numbers_of_features(p, mu):
    check_equal(gs.Problem(loss_of(p=p), mu=mu), GRAPHS[0])


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 1.5])
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_networks_and_parameters(graph, mu):
    check_equal(gs.Problem(loss_of(weighted=True), mu=mu), graph, ratio=0.7, growth=3, most=25)


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 1.5])
@pytest.mark.parametrize("center", [0.0, 0.5, np.linspace(-1, 1, 24).reshape(6, 4)], ids=["0", "0.5", "one each"])
def test_starts_and_centers(center, mu):
    problem = gs.Problem(loss_of(), gs.domains.Free(center=center), mu)
    for x0 in (None, np.random.default_rng(1).normal(size=(6, 4))):
        check_equal(problem, GRAPHS[3], N=10, x0=x0)


def test_agents_with_free_domains_of_their_own():
    domains = [gs.domains.Free(center=i) for i in range(6)]
    check_equal(gs.Problem(loss_of(), gs.domains.PerAgent(domains), 0.5), GRAPHS[3], N=10)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.0, 1.5])
def test_float32_stays_float32(mu):
    problem = gs.Problem(loss_of(p=5, dtype=np.float32), mu=mu)
    check_equal(problem, GRAPHS[3], N=10, tolerance=2e-5)
    for state in iterates(problem, GRAPHS[3], gs.DCS(compiled=True), gs.Stop(iterations=2)):
        assert {getattr(state, name).dtype for name in NAMES} == {np.dtype(np.float32)}


def test_a_lone_agent():
    check_equal(gs.Problem(loss_of(rows=(9,)), mu=0.5), gs.Graph.complete(1), N=10)


def test_the_check_sees_a_small_difference():
    """One entry of the copied rows is off in its eighth digit."""
    loss, x, anchor = loss_of(), np.ones((6, 4)), np.zeros((6, 4))
    check_steps(loss, x, anchor)
    loss._signed[-1] *= 1 + 1e-8
    with pytest.raises(AssertionError):
        check_steps(loss, x, anchor)


def test_part_of_the_agents_and_merged_ones_have_rows_of_their_own():
    loss = loss_of(weighted=True)
    rng = np.random.default_rng(1)
    check_steps(loss, rng.normal(size=(6, 4)), rng.normal(size=(6, 4)))
    for part in (loss.take([4, 1, 2]), loss.take(range(0, 6, 2)), pickle.loads(pickle.dumps(loss))):
        check_steps(part, rng.normal(size=(part.m, 4)), rng.normal(size=(part.m, 4)))
    both = gs.losses.stack([loss, loss_of(seed=1)])
    assert both.has_steps
    check_steps(both, rng.normal(size=(12, 4)), rng.normal(size=(12, 4)))
    check_steps(loss, rng.normal(size=(6, 4)), rng.normal(size=(6, 4)))


def test_what_is_given_is_left_as_it_is():
    loss, x, anchor = loss_of(), np.full((6, 4), 0.3), np.full((6, 4), 0.1)
    x.flags.writeable = anchor.flags.writeable = False
    steps = steps_of(5)
    first = loss.steps(x, np.asfortranarray(anchor), *steps)
    second = loss.steps(np.broadcast_to(0.3, (6, 4)), anchor, *steps)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    check_message(lambda: loss.steps(x[:3], anchor, *steps), ["shape"])
    check_message(lambda: loss.steps(x, anchor[:, :2], *steps), ["shape"])


# ---- numbers at their ends


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e6])
def test_extreme_margins(scale):
    loss, rng = loss_of(scale=scale, p=3), np.random.default_rng(1)
    for size in (1e-9, 1.0, 1e3):
        check_steps(loss, size * rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), T=3)


def test_slopes_are_right_to_the_last_digits():
    """One row a = 1 with y = 1: (0 - gradient)/1 is the slope 1/(1 + exp(u))."""
    margins = np.concatenate([np.linspace(-50, 50, 4001), np.linspace(-690, 690, 4001)])
    m = len(margins)
    loss = gs.losses.Logistic(np.ones((m, 1)), np.ones(m), agents=m)
    one = np.ones(1)
    slopes, _ = loss.steps(margins[:, None], np.zeros((m, 1)), 0 * one, one, one)
    expected = -loss.gradient(margins[:, None])
    np.testing.assert_allclose(slopes, expected, rtol=1e-15)
    far = np.array([[-1e300], [-746.0], [-701.0], [701.0], [746.0], [1e300]])
    loss = gs.losses.Logistic(np.ones((6, 1)), np.ones(6), agents=6)
    slopes, _ = loss.steps(far, np.zeros((6, 1)), 0 * one, one, one)
    np.testing.assert_allclose(slopes[:, 0], [1, 1, 1, 0, 0, 0], rtol=0, atol=1e-300)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_with_its_agent(bad):
    loss, x, anchor = loss_of(p=5), np.full((6, 5), 0.2), np.full((6, 5), 0.1)
    expected = loss.steps(x, anchor, *steps_of(4))
    others = [0, 1, 3, 4, 5]
    for place in ("x", "anchor"):
        given = {"x": x.copy(), "anchor": anchor.copy()}
        given[place][2, 3] = bad
        for got, fine in zip(loss.steps(*given.values(), *steps_of(4)), expected, strict=True):
            assert not np.isfinite(got[2]).all()
            assert np.isnan(got[2]).all() or not np.isnan(bad)
            np.testing.assert_array_equal(got[others], fine[others])


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_a_run_that_diverges_says_so(mu):
    problem = gs.Problem(loss_of(scale=1e10), mu=mu)
    runs = [
        gs.solve(problem, GRAPHS[0], gs.DCS(norm=1e-80, compiled=compiled), stop=gs.Stop(iterations=20))
        for compiled in (False, True)
    ]
    assert [run.status for run in runs] == [gs.Status.DIVERGED] * 2
    assert len(runs[0].history) == len(runs[1].history) < 20


# ---- the same costs


def spent(method, network, problem, clock=None):
    solution = gs.solve(problem, network, method, stop=gs.Stop(iterations=6), clock=clock)
    return [
        (c.gradients, c.samples, c.rounds, c.control_rounds, c.simulated_seconds)
        for c in (*solution.history, solution.costs)
    ], {**solution.costs.to_dict(), "seconds": None}


@pytest.mark.parametrize(
    "clock",
    [
        None,
        gs.Clock(gradient=np.linspace(0.1, 0.7, 6), latency=0.25, bandwidth=96.0),
        {"near": gs.Clock.lan(gradient=1 / 3), "far": gs.Clock.wan(gradient=np.pi)},
    ],
    ids=["no clock", "one clock", "two clocks"],
)
def test_the_same_costs_and_simulated_time_to_the_bit(clock):
    problem = gs.Problem(loss_of(), mu=0.3)
    network = gs.network.Local(GRAPHS[3], exact_norm=False)
    plain, compiled = (
        spent(gs.DCS(growth=4, most=9, compiled=flag), network, problem, clock) for flag in (False, True)
    )
    assert plain == compiled
    assert plain[1]["gradients"] == 4 + 8 + 4 * 9
    assert plain[1]["control_rounds"] > 0
    assert (plain[1]["simulated_seconds"] is None) == (clock is None)


def test_the_pace_of_several_gradients_at_once():
    loss, x = loss_of(), np.zeros((6, 4))
    costs = Costs()
    oracle = Oracle(loss, costs, None, Timeline(gs.Clock(gradient=0.5), GRAPHS[0], loss, costs))
    oracle.gradient(x)
    oracle.steps(x, x, *steps_of(7))
    assert costs.gradients == costs.pace.gradients == 8
    assert costs.pace.gradient_seconds == pytest.approx(costs.simulated_seconds) == 4.0


# ---- how it goes on, and where it does not fit


@pytest.mark.parametrize("mu", [0.0, 0.7])
def test_a_run_goes_on_to_the_bit(tmp_path, mu):
    problem, method = gs.Problem(loss_of(p=5), mu=mu), gs.DCS(compiled=True)
    whole = gs.solve(problem, GRAPHS[3], method, stop=gs.Stop(iterations=7))
    for iterations in (3, 7):
        stop = gs.Stop(iterations=iterations)
        parts = gs.solve(problem, GRAPHS[3], method, stop=stop, checkpoint=tmp_path / "run.npz")
    for name, x in whole.outputs.items():
        np.testing.assert_array_equal(parts.outputs[name], x)
    np.testing.assert_array_equal(parts.dual, whole.dual)
    assert parts.costs.gradients == whole.costs.gradients == sum(10 * k for k in range(1, 8))


def test_several_threads_may_run_it_at_once():
    problem, stop = gs.Problem(loss_of()), gs.Stop(iterations=15)
    alone, found = gs.solve(problem, GRAPHS[0], gs.DCS(compiled=True), stop=stop).x, []

    def run():
        found.append(gs.solve(problem, GRAPHS[0], gs.DCS(compiled=True), stop=stop).x)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    for x in found:
        np.testing.assert_array_equal(x, alone)


DOES_NOT_FIT = {
    "ball": (logistic, gs.domains.L2Ball(1.0), "R^d"),
    "box": (logistic, gs.domains.Box(-1.0, 1.0), "R^d"),
    "entropy": (logistic, gs.domains.EntropySimplex(), "R^d"),
    "penalty": (logistic, gs.domains.Free(penalty=gs.L1(0.1)), "R^d"),
    "one ball": (logistic, gs.domains.PerAgent([gs.domains.Free()] * 5 + [gs.domains.L2Ball(1.0)]), "R^d"),
    "other loss": (quadratic, None, "dense"),
    "sparse": (lambda *_: gs.losses.Logistic(sp.eye_array(6).tocsr(), [1, -1] * 3, agents=6), None, "dense"),
    "mixed": (lambda *given: gs.losses.stack([loss_of((3, 3, 3)), quadratic(given[0], 3, 4)]), None, "dense"),
}


@pytest.mark.parametrize("case", DOES_NOT_FIT)
def test_what_does_not_fit_is_refused_before_the_run(case):
    make_loss, domain, word = DOES_NOT_FIT[case]
    problem = gs.Problem(make_loss(np.random.default_rng(0), 6, 4), domain)
    assert problem.loss.has_steps == (word == "R^d")
    stop = gs.Stop(iterations=1)
    check_message(
        lambda: gs.solve(problem, GRAPHS[0], gs.DCS(compiled=True), stop=stop), ["compiled=True", word, "leave"]
    )
    gs.solve(problem, GRAPHS[0], gs.DCS(), stop=stop)


def test_weighted_coordinates_are_refused():
    problem = gs.Problem(loss_of())
    problem.domain = problem.domain.weighted(np.arange(1.0, 5.0))
    stop = gs.Stop(iterations=1)
    check_message(lambda: gs.solve(problem, GRAPHS[0], gs.DCS(compiled=True), stop=stop), ["R^d"])


@pytest.mark.parametrize("compiled", [1, None, "yes", np.array([True])])
def test_compiled_is_true_or_false(compiled):
    check_message(lambda: gs.DCS(compiled=compiled), ["compiled", "True or False"])
    assert type(gs.DCS(compiled=np.True_).compiled) is bool
    assert gs.DCS().compiled is False


def test_a_spec_may_ask_for_it(tmp_path):
    runs = []
    for flag in ("false", "true"):
        spec = read_spec(write_spec(tmp_path, method=f'name = "dcs"\ncompiled = {flag}'))
        assert build.build_method(spec, None) == gs.DCS(compiled=flag == "true")
        runs += run_spec(spec).runs
    plain, compiled = (run.solution for run in runs)
    np.testing.assert_allclose(compiled.x, plain.x, rtol=1e-10)
    assert not np.array_equal(compiled.x, plain.x)
    spec = read_spec(write_spec(tmp_path, method='name = "dcs"\ncompiled = 1'))
    check_message(lambda: build.build_method(spec, None), ["compiled"])


def test_numba_is_imported_where_it_is_used_only():
    code = """if True:
        import sys, numpy as np, gradslide as gs
        problem = gs.Problem(gs.losses.Logistic(np.eye(4), [1, -1, 1, 1], agents=4))
        for compiled in (False, True):
            print("numba" in sys.modules)
            gs.solve(problem, gs.Graph.ring(4), gs.DCS(compiled=compiled), stop=gs.Stop(iterations=1))
        print("numba" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "False", "True"], done.stderr
