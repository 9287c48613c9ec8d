"""What must add up to zero: links that fail in one direction are noticed, and nothing else is taken for that."""

import json
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from problems import DOMAINS, LOSSES
from problems import GRAPHS as MAKERS
from saddle_problems import constrained_case, saddle_case

import gradslide as gs
from gradslide.engine.observers import InvariantMonitor
from gradslide.network.wrapper import Wrapper
from gradslide.results.costs import Costs

METHODS = {
    "PDS": gs.PDS(),
    "PDS, laplacian": gs.PDS(coupling="laplacian"),
    "CondatVu": gs.CondatVu(),
    "NIDS": gs.NIDS(),
}
ACCUMULATING = {name: method for name, method in METHODS.items() if name != "PDS, laplacian"}
GRAPHS = {
    "ring": gs.Graph.ring(6),
    "star": gs.Graph.star(6),
    "path": gs.Graph.path(6),
    "random": gs.Graph.random(12, 4, seed=1),
}


class Restarting:
    """The session within, which restarts the failures when a run begins."""

    def __init__(self, session, failing):
        self._session, self._failing = session, failing

    def __getattr__(self, name):
        return getattr(self._session, name)

    def begin(self):
        self._session.begin()
        self._failing.restart()


class Failing(Wrapper):
    """Links that are not heard over: an agent takes its own value for a missing one.

    directed: pairs (i, j), where i does not hear j. share: of the exchanges in which that is so. until: the first
    exchange from which on all is well.
    """

    def __init__(self, graph, directed, share=1.0, until=10**9):
        super().__init__(graph)
        self._directed, self._share, self._until = directed, share, until

    @property
    def session(self):
        return Restarting(super().session, self)

    def restart(self):
        self._random, self._exchange = np.random.default_rng(0), 0

    def combine(self, v, weights, encoding=None):
        self._exchange += 1
        fails = self._random.random() < self._share and self._exchange < self._until
        matrix = weights.toarray()
        for i, j in self._directed if fails else ():
            matrix[i, i] += matrix[i, j]
            matrix[i, j] = 0
        # An exchange of the network within: that moves the piggybacked reductions on.
        return super().combine(v, matrix.astype(v.dtype), encoding)


def one_way(graph, **given):
    return Failing(graph, [tuple(graph.edges[0])], **given)


def both_ways(graph, **given):
    u, v = graph.edges[0]
    return Failing(graph, [(u, v), (v, u)], **given)


def problem_of(m, dtype=np.float64, mu=0.0, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(6 * m, 3))
    labels = np.sign(features @ [1.0, -2.0, 0.5] + 2 * rng.normal(size=6 * m))
    # Agents differ: every one has another tenth of it turned around.
    labels[::7] *= -1
    return gs.Problem(gs.losses.Logistic(features.astype(dtype), labels, agents=m), mu=mu)


@cache
def minimiser(m):
    return gs.reference.reference(problem_of(m)).x


def run(problem, network, method, iterations=150, rounds=None, **given):
    """The solution, and the warnings, which must be those that it names."""
    stop = gs.Stop(iterations=iterations, rounds=rounds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = gs.solve(problem, network, method, stop=stop, **given)
    assert [str(warning.message) for warning in caught] == list(solution.warnings)
    assert {warning.category for warning in caught} <= {RuntimeWarning}
    assert {warning.filename for warning in caught} <= {__file__}
    return solution


def check_broken(solution, method):
    (message,) = solution.warnings
    assert repr(solution).endswith("warnings=1)")
    assert message.startswith(f"the invariant of {type(method).__name__} is broken")
    assert "in one direction" in message
    assert "\n" not in message


# Damage


@pytest.mark.covering
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, np.float64) for name in GRAPHS), *((name, np.float32) for name in ("ring", "random"))],
)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_link_that_works_one_way_only_is_noticed_and_does_harm(method, name, dtype):
    graph = GRAPHS[name]
    problem = problem_of(graph.m, dtype)
    broken = run(problem, one_way(graph), method)
    check_broken(broken, method)
    sound = run(problem, graph, method)
    assert sound.warnings == ()
    # Agents agree, or nearly so, on the wrong point.
    optimum = minimiser(graph.m)
    apart = np.linalg.norm(sound.mean - optimum)
    assert np.linalg.norm(broken.mean - optimum) > 3 * apart + 1e-3


@pytest.mark.covering
@pytest.mark.parametrize("mu", [0.0, 0.2])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_a_link_that_sometimes_fails_one_way_is_noticed(method, share, mu):
    graph = GRAPHS["random"]
    check_broken(run(problem_of(graph.m, mu=mu), one_way(graph, share=share), method), method)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_one_of_hundreds_of_links_is_noticed(method):
    graph = gs.Graph.random(300, 5, seed=0)
    check_broken(run(problem_of(300), one_way(graph), method, iterations=60, record_every=10), method)


@pytest.mark.parametrize("method", ACCUMULATING.values(), ids=ACCUMULATING)
def test_damage_stays_where_multipliers_add_up(method):
    graph = GRAPHS["ring"]
    check_broken(run(problem_of(6), one_way(graph, until=5), method, iterations=300), method)


def test_damage_heals_where_multipliers_are_made_anew():
    graph, method = GRAPHS["ring"], METHODS["PDS, laplacian"]
    check_broken(run(problem_of(6), one_way(graph, until=10), method, iterations=8), method)
    assert run(problem_of(6), one_way(graph, until=10), method, iterations=300).warnings == ()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_damage_is_noticed_in_thinned_records(method):
    graph = GRAPHS["star"]
    for record_every in (7, 1000):
        solution = run(problem_of(6), one_way(graph), method, iterations=50, record_every=record_every)
        check_broken(solution, method)


@pytest.mark.parametrize("method", ACCUMULATING.values(), ids=ACCUMULATING)
def test_damage_is_noticed_by_a_run_that_goes_on_over_sound_links(method, tmp_path):
    graph, path = GRAPHS["ring"], tmp_path / "run.npz"
    run(problem_of(6), one_way(graph), method, iterations=30, checkpoint=path)
    check_broken(run(problem_of(6), one_way(graph, share=0.0), method, iterations=60, checkpoint=path), method)


def test_two_links_that_fail_one_way_are_noticed_even_in_opposite_directions():
    graph = GRAPHS["path"]
    for method in METHODS.values():
        check_broken(run(problem_of(6), Failing(graph, [(0, 1), (3, 2)]), method), method)


def test_warnings_survive_files(tmp_path):
    solution = run(problem_of(6), one_way(GRAPHS["ring"]), gs.PDS(), iterations=30)
    assert len(solution.warnings) == 1
    loaded = gs.load(solution.save(tmp_path / "solution.npz"))
    assert loaded.warnings == solution.warnings
    assert json.loads(json.dumps(solution.to_dict()))["warnings"] == list(solution.warnings)
    sound = run(problem_of(6), GRAPHS["ring"], gs.PDS(), iterations=30)
    assert gs.load(sound.save(tmp_path / "solution.npz")).warnings == ()
    assert sound.to_dict()["warnings"] == []


def test_a_method_that_says_nothing_of_an_invariant_is_left_alone():
    class Silent(gs.NIDS):
        def invariant(self, state):
            return None

    assert run(problem_of(6), one_way(GRAPHS["ring"]), Silent(), iterations=30).warnings == ()


# No damage


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("graph", [GRAPHS["ring"], GRAPHS["random"]], ids=repr)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_links_that_fail_both_ways_do_no_harm(method, graph, dtype, share):
    network = both_ways(graph, share=share)
    for iterations in (1, 2, 150):
        assert run(problem_of(graph.m, dtype), network, method, iterations=iterations).warnings == ()


@pytest.mark.covering
@pytest.mark.parametrize("block", range(3))
@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_no_false_alarm_over_random_problems(block, mu):
    for seed in range(12 * block, 12 * block + 12):
        rng = np.random.default_rng(seed)
        graph = MAKERS[seed % 7 % len(MAKERS)](rng)
        loss = LOSSES[seed % len(LOSSES)](rng, graph.m, 4)
        label = list(DOMAINS)[(seed // len(LOSSES) + seed) % len(DOMAINS)]
        problem = gs.Problem(loss, DOMAINS[label](loss.d), mu)
        coupling = ("incidence", "laplacian")[seed // 2 % 2]
        methods = [gs.PDS(coupling=coupling), gs.CondatVu(coupling=coupling)]
        methods += [gs.NIDS()] if problem.domain.euclidean else []
        for method in methods:
            iterations = (1, 50, 120, 500)[seed % 4]
            solution = run(problem, graph, method, iterations=iterations, rounds=600, record_every=7)
            assert solution.warnings == (), f"seed {seed}: {loss!r}, {label}, {graph!r}, {method}"


def quadratic_of(m, dtype, *, center=0.0, condition=1.0, alike=False, seed=0):
    """Agents whose minimisers lie about a center, in one place if they are alike."""
    rng = np.random.default_rng(seed)
    curvature = np.geomspace(1 / condition, 1, 3) * (1 if alike else rng.uniform(0.3, 1, size=(m, 1)))
    target = center + (0 if alike else 1) * rng.normal(size=(m, 3))
    Q = np.zeros((m, 3, 3))
    Q[:, range(3), range(3)] = curvature
    return gs.losses.Quadratic(Q.astype(dtype), (-curvature * target).astype(dtype))


@pytest.mark.parametrize("rounds", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ACCUMULATING.values(), ids=ACCUMULATING)
def test_no_false_alarm_over_many_rounds_in_single_precision(method, rounds):
    graph = gs.Graph.random(8, 3, seed=0)
    problem = gs.Problem(quadratic_of(8, np.float32, center=30.0, condition=10.0))
    solution = run(problem, graph, method, iterations=None, rounds=rounds, record_every=100)
    assert solution.costs.rounds >= rounds
    assert solution.x.dtype == np.float32
    assert solution.warnings == ()


@pytest.mark.covering
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("graph", [GRAPHS["ring"], GRAPHS["random"]], ids=repr)
def test_no_false_alarm_where_all_agents_want_the_same(graph, method, dtype):
    """Multipliers are rounding errors there, whether the start is far or at the optimum, or near 0."""
    for center, start in ((1.0, 0.0), (1.0, 1.0), (100.0, 100.0), (1e-5, 0.0), (0.0, 0.0)):
        for condition in (1.0, 100.0):
            loss = quadratic_of(graph.m, dtype, center=center, condition=condition, alike=True)
            problem = gs.Problem(loss, gs.domains.Free(center=start))
            assert run(problem, graph, method, rounds=250, record_every=10).warnings == ()


def test_no_false_alarm_from_roundings_of_points_far_from_0():
    """Gradients nearly vanish at x_0 and at x, and a step of 1/L blows up what is rounded in between."""
    graph = GRAPHS["ring"]
    loss = quadratic_of(6, np.float32, center=100.0, condition=1000.0, alike=True)
    problem = gs.Problem(loss, gs.domains.Free(center=100.0))
    assert run(problem, graph, gs.NIDS(), iterations=3000, record_every=100).warnings == ()


@pytest.mark.covering
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1e4, 1e12])
def test_units_do_not_matter(method, scale):
    graph = GRAPHS["random"]
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(graph.m, 4, 3))
    loss = gs.losses.Quadratic(scale * roots.swapaxes(1, 2) @ roots, scale * rng.normal(size=(graph.m, 3)))
    assert run(gs.Problem(loss), graph, method, iterations=100).warnings == ()
    check_broken(run(gs.Problem(loss), one_way(graph), method, iterations=100), method)


@pytest.mark.covering
@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu(), gs.PDS(coupling="laplacian")])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_no_false_alarm_after_a_warm_start(method, shift):
    graph, problem = GRAPHS["random"], problem_of(12)
    first = run(problem, graph, method, iterations=100)
    # A part common to all agents says nothing.
    moved = replace(first, dual=first.dual + shift)
    assert run(problem, graph, method, iterations=100, warm_start=moved).warnings == ()
    check_broken(run(problem, one_way(graph), method, iterations=100, warm_start=moved), method)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_false_alarm_after_going_on(method, tmp_path):
    graph, problem = GRAPHS["random"], problem_of(12)
    for iterations in (1, 2, 60, 60, 61):
        solution = run(problem, graph, method, iterations=iterations, checkpoint=tmp_path / "run.npz")
        assert solution.warnings == ()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_false_alarm_for_a_lone_agent(method):
    assert run(problem_of(1), gs.Graph.path(1), method, iterations=100).warnings == ()


def test_multipliers_of_a_saddle_point_problem_add_up_to_what_they_like():
    for seed in range(8):
        for case in (saddle_case(seed), constrained_case(seed)):
            for method in (gs.PDS(), gs.CondatVu()):
                solution = run(case.problem, None, method, iterations=40)
                assert solution.warnings == ()


@pytest.mark.parametrize("step_size", [3.0, 1e3, 1e100])
def test_a_run_that_diverges_has_other_troubles(step_size):
    graph = GRAPHS["ring"]
    problem = gs.Problem(quadratic_of(6, np.float64, center=5.0))
    for method in (gs.NIDS(step_size=step_size), gs.CondatVu(ratio=step_size, L=0.0, norm=1e-3)):
        for record_every in (1, 13):
            solution = run(problem, graph, method, iterations=3000, record_every=record_every)
            assert solution.status is gs.Status.DIVERGED
            assert solution.warnings == ()


def test_a_run_that_diverges_over_bad_links_says_nothing_of_overflows():
    graph = GRAPHS["ring"]
    loss = gs.losses.Quadratic(1e60 * np.ones((6, 1, 1)), np.arange(6.0)[:, None])
    solution = run(gs.Problem(loss), one_way(graph), gs.NIDS(step_size=1.0))
    assert solution.status is gs.Status.DIVERGED


def test_a_loss_of_unknown_smoothness_will_do():
    graph = GRAPHS["ring"]
    targets = np.random.default_rng(0).normal(size=(6, 2))
    loss = gs.losses.Custom(gradient=lambda x: x - targets, agents=6, dimension=2)
    assert run(gs.Problem(loss), graph, gs.NIDS(L=1.0)).warnings == ()
    check_broken(run(gs.Problem(loss), one_way(graph), gs.NIDS(L=1.0)), gs.NIDS())


# The rule itself


@pytest.mark.parametrize(
    ("part", "noticed"), [(1e-8, False), (1e-4, True), (0.5, True), (np.nan, False), (np.inf, False)]
)
def test_a_sum_is_measured_against_its_parts_and_the_gradients(part, noticed):
    loss = gs.losses.Quadratic(np.ones((4, 1, 1)), np.array([[1.0], [-1.0], [1.0], [-1.0]]))
    monitor = InvariantMonitor(gs.Problem(loss), gs.network.Local(gs.Graph.ring(4)), Costs())
    monitor.observe(np.array([[1.0], [-1.0], [1.0], [-1.0 + 8 * part]]))
    message = monitor.warning(*np.zeros((2, 4, 1)), "it")
    assert bool(message) == noticed
    if part == 1e-4:
        # 4 by the rows, 4 by the gradients.
        assert "adds up to 0.0001 of its size" in message


@pytest.mark.parametrize(
    ("spent", "part", "noticed"),
    [
        (Costs(rounds=100, gradients=50), 1e-5, False),
        (Costs(rounds=100, gradients=50), 1e-4, True),
        (Costs(rounds=20_000), 1e-3, False),
        (Costs(gradients=20_000), 1e-3, False),
        (Costs(rounds=20_000), 1e-2, True),
    ],
)
def test_what_counts_as_rounding_grows_with_the_run(spent, part, noticed):
    loss = gs.losses.Quadratic(np.zeros((2, 1, 1), dtype=np.float32), np.zeros((2, 1), dtype=np.float32))
    monitor = InvariantMonitor(gs.Problem(loss), gs.network.Local(gs.Graph.path(2)), spent)
    monitor.observe(np.array([[1.0], [-1.0 + 2 * part]]))
    assert bool(monitor.warning(*np.zeros((2, 2, 1), dtype=np.float32), "it")) == noticed


def test_a_sum_is_measured_against_the_largest_rows_of_the_run():
    loss = gs.losses.Quadratic(np.zeros((2, 1, 1)), np.zeros((2, 1)))
    monitor = InvariantMonitor(gs.Problem(loss), gs.network.Local(gs.Graph.path(2)), Costs())
    for size in (1e6, 1e-3):
        monitor.observe(np.array([[size], [-size + 1e-4]]))
    assert monitor.warning(*np.zeros((2, 2, 1)), "it") == ""
    monitor.observe(np.array([[1.0], [9.0]]))
    assert monitor.warning(*np.zeros((2, 2, 1)), "it") != ""


def test_a_start_far_out_has_larger_roundings():
    """They stay in the multipliers, and are no fault of the links."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(30, 3)).astype(np.float32), rng.normal(size=30).astype(np.float32)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=6))
    for size in (1e3, 1e5):
        for method in (gs.NIDS(), gs.AutoPDS(), gs.AutoPDS(inner="own")):
            options = {"x0": np.full((6, 3), size, dtype=np.float32), "record_every": 100}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                gs.solve(problem, gs.Graph.ring(6), method, stop=gs.Stop(iterations=300), **options)


def test_a_finished_run_that_is_resumed_still_warns(tmp_path):
    method, graph = gs.NIDS(), gs.Graph.ring(6)
    for _ in range(2):
        solution = run(problem_of(6), one_way(graph), method, checkpoint=tmp_path / "run.npz")
        check_broken(solution, method)


def test_rounding_of_a_far_start_with_short_steps_is_no_damage(monkeypatch):
    """What adds up to 0 is rounded relative to |x| and the L of the method, which may be far above the problem's."""
    rng = np.random.default_rng(0)
    signs = np.sign(rng.normal(size=40))
    loss = gs.losses.Logistic(1e-6 * rng.normal(size=(40, 4)), signs, agents=8)
    method = gs.AutoPDS(first_L=1e6 * float(loss.smoothness().max()))
    given = (gs.Problem(loss), gs.Graph.complete(8), method)
    x0 = 1e12 * rng.normal(size=4)
    assert run(*given, iterations=30, x0=x0).warnings == ()
    observe = InvariantMonitor.observe
    monkeypatch.setattr(InvariantMonitor, "observe", lambda self, rows, L: observe(self, rows))
    assert len(run(*given, iterations=30, x0=x0).warnings) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_only_single_precision_is_a_cause_of_its_own(dtype):
    graph = GRAPHS["ring"]
    (message,) = run(problem_of(6, dtype), one_way(graph), gs.PDS()).warnings
    assert ("rounding in single precision added up" in message) == (dtype == np.float32)
