"""The same on a device: what PyTorch's tensors give is what NumPy's arrays give, and nobody waits in between."""

import contextlib
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from device_cases import (
    DEVICES,
    HAS_CUDA,
    SADDLES,
    assert_close,
    counted_waits,
    far_away,
    no_waiting,
    operator_of,
    problem_of,
    torch,
)
from error_messages import check_message
from paper_twins import iterates
from scipy.sparse.linalg import aslinearoperator

import gradslide as gs
from gradslide import domains, network
from gradslide._support.arrays import like, on_device, to_numpy
from gradslide.problems.linear_map import least_squares, linear_map
from gradslide.problems.operator_norm import operator_norm
from gradslide.results.costs import Costs

GRAPH = gs.Graph.random(7, 3, seed=1)
M, D = 7, 4
ROUNDING = {np.float64: 1e-10, np.float32: 3e-4}
OWN, FREE = np.linspace(0.2, 0.5, M), domains.Free()
DOMAINS = {
    "free": domains.Free(center=0.3),
    "box": domains.Box(-0.3, np.array([0.2, np.inf, 0.1, 0.4]), penalty=gs.ElasticNet(0.1, 0.2)),
    "boxes": domains.Box(-OWN[:, None] * np.ones(D), 0.3),
    "nonnegative": domains.NonNegative(penalty=gs.L1(0.1)),
    "l2 ball": domains.L2Ball(OWN, penalty=gs.GroupL1([0.1, 0.3], [[0, 2], [3]])),
    "l1 ball": domains.L1Ball(0.5, origin=0.1),
    "simplex": domains.Simplex(2.0),
    "halfspace": domains.Halfspace(np.arange(1.0, 5.0), -0.2),
    "affine": domains.Affine(np.ones((1, D)), [0.7]),
    "affine sets": domains.Affine(np.random.default_rng(1).normal(size=(M, 2, D)), [0.7, 0.1]),
    "entropy": domains.EntropySimplex(center=np.array([0.1, 0.2, 0.3, 0.4])),
    "group ball": domains.GroupBall([0.2, 0.4], [0, 1, 0, 1]),
    "group l1": domains.Free(penalty=gs.GroupL1(0.2, [[1, 3], [0]])),
    "per agent": domains.PerAgent([domains.Box(-0.3, 0.4), domains.L2Ball(0.3), domains.Simplex()] * 2 + [FREE]),
}
METHODS = {
    "PDS": gs.PDS(),
    "PDS, Laplacian": gs.PDS(coupling="laplacian", L=30.0, R=1.0),
    "AutoPDS": gs.AutoPDS(),
    "AutoPDS, exact": gs.AutoPDS(agreement="exact"),
    "AutoPDS, maxima": gs.AutoPDS(agreement="none"),
    "AutoPDS, own": gs.AutoPDS(inner="own"),
    "AutoPDS, sliding": gs.AutoPDS(inner="sliding", agreement="exact"),
    "Auto": gs.Auto(),
    "Newton": gs.Newton(),
    "LBFGS": gs.LBFGS(),
    "DCS": gs.DCS(ratio=100.0),
    "DGD": gs.DGD(),
    "DualAveraging": gs.DualAveraging(),
    "EXTRA": gs.EXTRA(),
    "NIDS": gs.NIDS(),
    "GradientTracking": gs.GradientTracking(),
    "CondatVu": gs.CondatVu(),
    "DLM": gs.DLM(),
    "ADMM": gs.ADMM(),
    "AcceleratedTracking": gs.AcceleratedTracking(restart=True),
    "OPAPC": gs.OPAPC(),
    "SPDS": gs.SPDS(N=12, seed=3),
    "SDCS": gs.SDCS(ratio=100.0, batch=4),
    "DSGD": gs.DSGD(batch=2),
    "ChocoSGD": gs.ChocoSGD(batch=2),
}
FORMS = {"dense": np.asarray, "sparse": sp.csr_array}
# (k, n): with more rows and fewer, and so many of both that ||A|| takes a power iteration.
SHAPES = [(5, 8), (8, 5), (60, 90), (90, 60)]
RECORDED = ("objective", "local_objective", "residual", "disagreement", "lower", "gap", "rounds", "control_rounds")


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    with far_away(monkeypatch):
        yield request.param


def both(method, device, iterations=12, domain=None, mu=0.1, dtype=np.float64, **options):
    """The solution on the host, and that on the device."""
    problem, stop = problem_of(domain, mu, dtype), options.pop("stop", gs.Stop(iterations=iterations))
    places = (GRAPH, network.Local(GRAPH, device=device))
    return [gs.solve(problem, place, method, stop=stop, **options) for place in places]


def assert_same(here, there, tolerance):
    """Answers and records, to rounding; costs exactly. All of it is NumPy's."""
    assert there.status is here.status
    assert there.costs.gradients == here.costs.gradients
    assert there.outputs.keys() == here.outputs.keys()
    for name, x in here.outputs.items():
        assert type(there.outputs[name]) is np.ndarray
        assert there.outputs[name].dtype == x.dtype
        assert_close(there.outputs[name], x, tolerance)
    for one, other in zip(here.history, there.history, strict=True):
        for name in RECORDED:
            expected, found = getattr(one, name), getattr(other, name)
            assert (found is None) == (expected is None), name
            assert expected is None or found == pytest.approx(expected, rel=tolerance, abs=tolerance), name


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", DOMAINS)
def test_domains_do_the_same(name, dtype, device):
    here = DOMAINS[name].bind(M, D, dtype)
    there, rng = here.to(device), np.random.default_rng(0)
    assert there.device == device
    x, v = (rng.normal(size=(M, D)).astype(dtype) for _ in range(2))
    inside, own_scale = here.project(x), rng.uniform(0.5, 2, size=(M, 1))

    def check(operation, *arguments):
        expected = operation(here, *arguments)
        found = operation(there, *(on_device(argument, device) for argument in arguments))
        assert found.device.type == device
        assert to_numpy(found).dtype == np.asarray(expected).dtype
        assert_close(found, expected, ROUNDING[dtype])

    check(lambda domain, v: domain.prox(v, 2.0), v)
    check(lambda domain, v, scale: domain.prox(v, scale), v, own_scale)
    check(lambda domain, x: domain.project(3 * x), x)
    for method in ("nu", "grad_nu", "r", "distance_bound"):
        check(lambda domain, x: getattr(domain, method)(x), inside)  # noqa: B023
    check(lambda domain, a, x: domain.V(a, x), inside, here.project(v))
    for mu in (0.0, 0.3):
        check(lambda domain, v: domain.linear_minimum(v, mu), v)  # noqa: B023
    check(lambda domain, x: domain.contains(x, 1e-3), inside)
    check(lambda domain: domain.start())
    # Bounds are worked out in double precision, whatever that of the problem.
    check(lambda domain, v: domain.prox(v, 0.7), v.astype(np.float64))
    assert (there.common, there.bounded) == (here.common, here.bounded)


@pytest.mark.parametrize("name", ["boxes", "l2 ball", "group ball", "per agent"])
def test_a_part_of_a_domain_stays_on_its_device(name, device):
    here = DOMAINS[name].bind(M, D, np.float64)
    v = np.random.default_rng(0).normal(size=(3, D))
    taken = here.to(device).take([6, 0, 3])
    assert_close(taken.prox(on_device(v, device), 1.0), here.take([6, 0, 3]).prox(v, 1.0), 1e-12)
    back = here.to(device).to(None)
    assert np.array_equal(back.take([6, 0, 3]).prox(v, 1.0), here.take([6, 0, 3]).prox(v, 1.0))
    # Bound once more, for another problem, it is NumPy's again.
    again = here.to(device).bind(M, D, np.float32)
    assert type(again.start()) is np.ndarray


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_networks_combine_there_and_agree_here(dtype, device):
    net, rng = network.Local(GRAPH), np.random.default_rng(0)
    v = rng.normal(size=(M, D)).astype(dtype)
    moved = on_device(v, device)
    for weights in (GRAPH.laplacian, gs.mixing.metropolis(GRAPH).matrix):
        found = net.combine(moved, weights)
        assert found.device == moved.device
        assert found.dtype == moved.dtype
        assert_close(found, net.combine(v, weights), ROUNDING[dtype])
    kept = len(net._cast)
    net.combine(moved, GRAPH.laplacian)
    assert len(net._cast) == kept
    for reduction, values in (("sum", v), ("max", v), ("or", v > 0.5)):
        there = on_device(values, device)
        for reduce in (net.agree, net.session.observe):
            assert type(reduce(there, reduction)) is np.ndarray
            assert_close(reduce(there, reduction), reduce(values, reduction), ROUNDING[dtype])
        net.start_reduce(there, reduction)
    # What decides is the same to the bit.
    assert np.array_equal(net.agree(moved, "sum"), net.agree(v, "sum"))
    assert np.array_equal(net.survey(moved, lambda graph, values: values.sum(axis=0)), v.sum(axis=0))
    assert net.costs.exchange_floats(moved) == net.costs.exchange_floats(v)
    assert net.costs.reduce_floats(moved, "sum") == net.costs.reduce_floats(v, "sum")


@pytest.mark.parametrize("name", METHODS)
def test_methods_do_the_same(name, device):
    assert_same(*both(METHODS[name], device), 1e-9)


@pytest.mark.parametrize("name", ["PDS", "AutoPDS", "AutoPDS, own", "CondatVu", "ADMM", "Newton", "LBFGS"])
def test_methods_keep_single_precision(name, device):
    here, there = both(METHODS[name], device, iterations=6, dtype=np.float32)
    assert_same(here, there, 1e-3)


@pytest.mark.parametrize("name", DOMAINS)
def test_sets_and_penalties_do_the_same_in_a_run(name, device):
    for method in (gs.PDS(), gs.AutoPDS()):
        assert_same(*both(method, device, iterations=8, domain=DOMAINS[name]), 1e-8)


@pytest.mark.parametrize("name", [name for name in DOMAINS if DOMAINS[name].bind(M, D, np.float64).common])
def test_exact_sums_do_the_same_with_every_common_set(name, device):
    for method in (gs.Newton(), gs.LBFGS()) if name != "entropy" else (gs.Auto(),):
        assert_same(*both(method, device, iterations=6, domain=DOMAINS[name]), 1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", [gs.losses.Logistic, gs.losses.Softmax])
def test_the_default_is_a_second_order_method_there_too(kind, sparse, device):
    rng = np.random.default_rng(2)
    features, labels = rng.normal(size=(60, D)) * (rng.random((60, D)) < 0.5), rng.integers(2, size=60)
    splits = np.split(np.arange(60), np.cumsum([3, 12, 5, 9, 1, 20]))
    problem = gs.Problem(kind(sp.csr_array(features) if sparse else features, labels, splits=splits), mu=1e-3)
    here, there = (gs.solve(problem, place) for place in (GRAPH, network.Local(GRAPH, device=device)))
    assert there.status is gs.Status.CONVERGED
    assert there.parameters == here.parameters
    assert there.parameters["method"] == "Newton"
    assert_same(here, there, 1e-9)


@pytest.mark.parametrize("name", ["Newton", "LBFGS", "Auto"])
def test_a_step_over_exact_sums_reads_the_device_once(name, device, monkeypatch):
    rng = np.random.default_rng(2)
    loss = gs.losses.Logistic(rng.normal(size=(70, D)), rng.choice([-1, 1], 70), agents=M)
    problem = gs.Problem(loss, DOMAINS["box"], 0.1).to(device)

    def reads(iterations):
        stop = gs.Stop(gap=1e-30, iterations=iterations)
        with counted_waits(monkeypatch) as counted:
            solution = gs.solve(problem, GRAPH, METHODS[name], stop=stop, record_every=100)
        assert solution.costs.gradients == iterations
        assert counted.seen["numpy"] == counted.seen["cpu"]
        return counted.seen["cpu"], counted.count - 2 * counted.seen["cpu"]

    # Of what is found out but once.
    reads(1)
    (few, other), (many, same) = reads(3), reads(6)
    assert many - few == 3
    assert same == other


def test_problems_given_on_a_device_run_there(device):
    problem = problem_of(DOMAINS["box"], 0.1)
    there = problem.to(device)
    assert there.device.type == device
    assert there.objective(there.start()).device.type == device
    stop = gs.Stop(iterations=10)
    found = gs.solve(there, GRAPH, gs.PDS(), stop=stop)
    assert_same(gs.solve(problem, GRAPH, gs.PDS(), stop=stop), found, 1e-10)
    part, rows = there.take([2, 5]), problem.take([2, 5])
    assert_close(part.objective(part.start(0.1 * np.ones(D))), rows.objective(rows.start(0.1 * np.ones(D))), 1e-12)


def test_certificates_and_targets_do_the_same(device):
    stop = gs.Stop(gap=gs.Relative(1e-2), disagreement=0.1, iterations=200)
    here, there = both(gs.AutoPDS(), device, stop=stop, domain=DOMAINS["l1 ball"])
    assert here.status is gs.Status.CONVERGED
    assert_same(here, there, 1e-7)
    assert there.certificate.lower == pytest.approx(here.certificate.lower, abs=1e-7)
    assert there.certificate.upper == pytest.approx(here.certificate.upper, abs=1e-7)
    stop = gs.Stop(kkt=gs.Relative(1e-3), iterations=300)
    here, there = both(gs.AutoPDS(), device, stop=stop, domain=DOMAINS["boxes"])
    assert here.status is gs.Status.STATIONARY
    assert there.kkt.stationarity == pytest.approx(here.kkt.stationarity, rel=1e-5)
    assert_close(there.dual, here.dual, 1e-6)


def test_the_host_sees_arrays_of_its_own(device, tmp_path):
    seen = []

    def callback(record, x):
        seen.append((type(x), x.flags.writeable))
        x[:] = np.nan

    _, there = both(gs.PDS(), device, callback=callback)
    assert seen == 24 * [(np.ndarray, True)]
    again = gs.load(there.save(tmp_path / "solution.npz"))
    assert np.array_equal(again.x, there.x)
    for array in (there.dual, there.y, there.mean, *there.outputs.values()):
        assert type(array) is np.ndarray
    assert np.all(np.isfinite(there.x))


def test_runs_start_from_arrays_of_either_kind(device):
    problem, net, stop = problem_of(mu=0.1), network.Local(GRAPH, device=device), gs.Stop(iterations=5)
    x0 = np.random.default_rng(3).normal(size=(M, D))
    expected = gs.solve(problem, GRAPH, gs.PDS(), stop=stop, x0=x0)
    for start in (x0, on_device(x0, device)):
        assert_close(gs.solve(problem, net, gs.PDS(), stop=stop, x0=start).x, expected.x, 1e-10)
    warm = [gs.solve(problem, place, gs.PDS(), stop=stop, warm_start=expected) for place in (GRAPH, net)]
    assert_close(warm[1].x, warm[0].x, 1e-10)
    assert not np.allclose(warm[1].x, expected.x)
    check_message(lambda: gs.solve(problem, net, x0=on_device(np.full(D, np.nan), device)), ["x0", "finite"])


def test_checkpoints_in_single_precision_go_from_the_host_to_a_device(device, tmp_path):
    problem, net = problem_of(dtype=np.float32), network.Local(GRAPH, device=device)
    places = (GRAPH, net, GRAPH)
    for iterations, place in zip((5, 9, 14), places, strict=True):
        options = {"stop": gs.Stop(iterations=iterations), "checkpoint": tmp_path / "run.npz"}
        part = gs.solve(problem, place, gs.AutoPDS(), **options)
    whole = gs.solve(problem, GRAPH, gs.AutoPDS(), stop=gs.Stop(iterations=14))
    assert_close(part.x, whole.x, 1e-3)


@pytest.mark.parametrize("name", ["PDS", "AutoPDS", "ADMM", "DualAveraging", "LBFGS"])
def test_checkpoints_go_back_to_the_device(name, device, tmp_path):
    """AutoPDS keeps a trail of points, which no fresh state has room for."""
    problem, method, net = problem_of(mu=0.1), METHODS[name], network.Local(GRAPH, device=device)
    whole = gs.solve(problem, net, method, stop=gs.Stop(iterations=14))
    for iterations in (5, 14):
        options = {"stop": gs.Stop(iterations=iterations), "checkpoint": tmp_path / "run.npz"}
        part = gs.solve(problem, net, method, **options)
    assert_same(whole, part, 1e-12)
    assert [record.iteration for record in part.history] == list(range(1, 15))
    # On the host it goes on, too.
    options["stop"] = gs.Stop(iterations=16)
    longer = gs.solve(problem, GRAPH, method, stop=gs.Stop(iterations=16))
    assert_close(gs.solve(problem, GRAPH, method, **options).x, longer.x, 1e-9)


class Watched(gs.PDS):
    """Steps that must not wait, but for the first: what is sent to the device once is sent there."""

    def step(self, context, state):
        with no_waiting(self.monkeypatch) if state.k > 0 else contextlib.nullcontext():
            return super().step(context, state)


@pytest.mark.parametrize("name", DOMAINS)
def test_steps_of_primal_dual_sliding_never_wait(name, device, monkeypatch):
    monkeypatch.setattr(Watched, "monkeypatch", monkeypatch, raising=False)
    problem = problem_of(DOMAINS[name], 0.1).to(device)
    options = {"stop": gs.Stop(iterations=5), "record_every": 5}
    for method in (Watched(), Watched(L=30.0, R=1.0, coupling="laplacian")):
        plain = gs.solve(problem, GRAPH, gs.PDS(**vars(method)), **options)
        assert_close(gs.solve(problem, GRAPH, method, **options).x, plain.x, 1e-12)


def test_nothing_waits_between_records(device, monkeypatch):
    problem = problem_of(DOMAINS["box"], 0.1).to(device)

    def waits(iterations, record_every):
        with counted_waits(monkeypatch) as counted:
            gs.solve(problem, GRAPH, gs.PDS(), stop=gs.Stop(iterations=iterations), record_every=record_every)
        return counted.count

    # Of what is found out but once.
    waits(1, 1)
    assert waits(10, 10) == waits(40, 40)
    # The count means something.
    assert waits(40, 10) > waits(40, 40)
    assert waits(40, 1) > waits(40, 10)


def test_a_run_that_diverges_ends_at_a_record_with_the_last_good_output(device):
    method = gs.NIDS(step_size=10.0)
    here, there = both(method, device, iterations=200)
    assert here.status is there.status is gs.Status.DIVERGED
    _, rarely = both(method, device, iterations=200, record_every=50)
    assert rarely.status is gs.Status.DIVERGED
    assert np.all(np.isfinite(rarely.x))
    assert all(record.iteration % 50 == 0 for record in rarely.history)


def test_time_counts_until_the_device_is_done(device, monkeypatch):
    """A record's seconds hold what the device had still to do."""
    waited = []
    monkeypatch.setattr("gradslide.engine.run.wait_for", lambda x: waited.append(type(x)))
    both(gs.PDS(), device, iterations=12, record_every=4)
    assert waited.count(torch.Tensor) >= 3


def test_devices_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    check_message(lambda: network.Local(GRAPH, device="cuda"), ["a device needs PyTorch", "'cuda'", "gradslide[torch]"])


@pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("name", ["cuda:99", "nonsense", 3.5, *([] if HAS_CUDA else ["cuda"])])
def test_devices_that_pytorch_does_not_find_are_refused(name):
    check_message(lambda: network.Local(GRAPH, device=name), ["device must be one that PyTorch finds", repr(name)])


def test_what_has_no_device_is_refused(device):
    problem = problem_of(mu=0.1)
    lossy = network.Lossy(network.Local(GRAPH, device=device), 0.1)
    for given, net in ((problem, lossy), (problem.to(device), network.Lossy(GRAPH, 0.1))):
        check_message(
            lambda given=given, net=net: gs.solve(given, net), ["needs the network gs.network.Local", "Lossy"]
        )
    slow = network.Delayed(network.Local(GRAPH, device=device), 0.0)
    stop = gs.Stop(iterations=3)
    assert_close(gs.solve(problem, slow, stop=stop).x, gs.solve(problem, GRAPH, stop=stop).x, 1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_linear_maps_do_the_same(form, shape, dtype, device):
    A, rng = operator_of(shape, dtype), np.random.default_rng(0)
    (k, n), tolerance = shape, ROUNDING[dtype]
    here = linear_map(FORMS[form](A), n, dtype)
    x, z = rng.normal(size=n).astype(dtype), rng.normal(size=k).astype(dtype)
    costs = Costs()
    for there in (here.to(device), linear_map(FORMS[form](A), n, dtype, device)):
        counted = there.counted(costs)
        for found, expected in (
            (counted.apply(on_device(x, device)), A @ x),
            (counted.apply_adjoint(on_device(z, device)), A.T @ z),
        ):
            assert found.device.type == device
            assert to_numpy(found).dtype == dtype
            assert_close(found, expected, tolerance)
        entries = there.entries()
        assert np.array_equal(entries.toarray() if form == "sparse" else entries, A)
        assert np.array_equal(there.to(None).apply(x), here.apply(x))
        assert there.to(there.device) is there
    assert costs.operator_products == 4
    if dtype == np.float64:
        assert here.to(device).fingerprint() == here.fingerprint()
    for adjoint, target in ((False, A @ x), (True, A.T @ z)):
        found = least_squares(here.to(device), on_device(target, device), adjoint=adjoint)
        # Rounding grows with the iterations.
        assert_close(found, least_squares(here, target, adjoint=adjoint), {np.float64: 1e-6, np.float32: 1e-2}[dtype])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_operator_norms_do_the_same(form, shape, device):
    here = linear_map(FORMS[form](operator_of(shape)), shape[1], np.float64)
    k, n = shape
    weights = np.random.default_rng(0).uniform(1, 3, size=max(shape))
    spaces = {
        "plain": lambda size: domains.Free().bind(1, size, np.float64),
        "weighted": lambda size: domains.Free().bind(1, size, np.float64).weighted(weights[:size]),
        "entropy": lambda size: domains.EntropySimplex().bind(1, size, np.float64),
    }
    for x_space in spaces.values():
        for z_space in spaces.values():
            X, Z = x_space(n), z_space(k)
            expected = operator_norm(here, X, Z)
            assert operator_norm(here.to(device), X.to(device), Z.to(device)) == pytest.approx(expected, rel=1e-12)


def test_entries_of_a_that_are_stored_twice_count_as_their_sum(device):
    A = sp.csr_array(([1.0, 2.0, -1.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    there, simplex = linear_map(A, 2, np.float64, device), domains.EntropySimplex().bind(1, 2, np.float64).to(device)
    assert operator_norm(there, simplex, simplex) == 3.0
    assert_close(there.apply(on_device(np.ones(2), device)), [3.0, -1.0], 1e-15)


def assert_same_iterates(problem, device, method, iterations, tolerance):
    """Every array of every state, relative to its size."""
    stop, names = gs.Stop(iterations=iterations), ("x", "x_hat", "x_bar", "y", "dual", "dual_bar")
    here, there = (iterates(each, None, method, stop=stop) for each in (problem, problem.to(device)))
    assert len(here) == len(there) == iterations
    for one, other in zip(here, there, strict=True):
        for name in names:
            if not hasattr(one, name):
                continue
            expected, found = getattr(one, name), getattr(other, name)
            pairs = zip(expected, found, strict=True) if name.startswith("dual") else [(expected, found)]
            for a, b in pairs:
                assert b.device.type == device
                assert to_numpy(b).dtype == a.dtype
                size = max(1.0, float(np.max(np.abs(a))))
                assert_close(to_numpy(b) / size, a / size, tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SADDLES)
def test_saddle_points_do_the_same_in_every_iteration(name, form, dtype, device):
    assert_same_iterates(SADDLES[name](FORMS[form], dtype), device, gs.PDS(), 12, ROUNDING[dtype])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SADDLES)
def test_answers_to_saddle_points_are_the_same(name, form, device):
    problem = SADDLES[name](FORMS[form])
    for method in (gs.PDS(), gs.CondatVu()):
        stop = gs.Stop(iterations=15)
        here, there = (gs.solve(each, method=method, stop=stop) for each in (problem, problem.to(device)))
        assert_same(here, there, 1e-8)
        assert type(there.dual) is type(there.y) is np.ndarray
        assert_close(there.dual, here.dual, 1e-8)
        assert there.settings == here.settings
        assert (there.certificate is None) == (here.certificate is None)
        if here.certificate is not None:
            assert there.certificate.lower == pytest.approx(here.certificate.lower, rel=1e-8, abs=1e-8)
            assert there.certificate.upper == pytest.approx(here.certificate.upper, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", ["equations in a box", "matrix game, entropy", "squares"])
def test_saddle_points_converge_to_the_same_targets(name, device):
    problem = SADDLES[name](np.asarray)
    here, there = gs.solve(problem), gs.solve(problem.to(device))
    assert there.status is here.status is gs.Status.CONVERGED
    assert there.output == here.output
    assert_same(here, there, 1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_sampled_gradients_of_saddle_points_do_the_same(form, device):
    loss = problem_of(m=2, d=4).loss
    problem = gs.LinearlyConstrained(loss, FORMS[form](operator_of()), 0.1 * np.ones(5), domains.Box(-1.0, 1.0))
    assert_same_iterates(problem, device, gs.SPDS(N=8, seed=3), 8, 1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_problems_without_a_solution_are_found_out_there_too(form, device):
    A = operator_of()
    loss, flat = gs.losses.Quadratic(np.eye(8), np.ones(8)), gs.losses.Linear(np.ones(8))
    cases = {
        gs.Status.INFEASIBLE: gs.LinearlyConstrained(loss, FORMS[form](A), 50.0 * np.ones(5), domains.Box(-1.0, 1.0)),
        gs.Status.UNBOUNDED: gs.LinearlyConstrained(flat, FORMS[form](A), np.zeros(5)),
    }
    for status, problem in cases.items():
        here, there = (gs.solve(each, stop=gs.Stop(iterations=300)) for each in (problem, problem.to(device)))
        assert there.status is here.status is status
        assert len(there.history) == len(here.history)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SADDLES)
def test_steps_of_saddle_points_never_wait(name, form, device, monkeypatch):
    monkeypatch.setattr(Watched, "monkeypatch", monkeypatch, raising=False)
    problem = SADDLES[name](FORMS[form]).to(device)
    options = {"stop": gs.Stop(iterations=5), "record_every": 5}
    plain = gs.solve(problem, method=gs.PDS(), **options)
    assert plain.costs.operator_products > 10
    assert_close(gs.solve(problem, method=Watched(), **options).x, plain.x, 1e-12)


def test_nothing_of_a_saddle_point_waits_between_records(device, monkeypatch):
    problem = SADDLES["intervals"](sp.csr_array).to(device)

    def waits(iterations, record_every):
        with counted_waits(monkeypatch) as counted:
            gs.solve(problem, stop=gs.Stop(iterations=iterations), record_every=record_every)
        return counted.count

    # Of what is found out but once.
    waits(1, 1)
    assert waits(4, 4) == waits(12, 12)
    assert waits(12, 3) > waits(12, 12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_data_of_saddle_points_stays_where_it_is(dtype, device):
    A, Q, c = operator_of(dtype=dtype), np.eye(8, dtype=dtype), np.linspace(-1, 1, 8, dtype=dtype)
    b = 0.3 * A.sum(axis=1)
    there, stop = on_device(A, device), gs.Stop(iterations=8)
    loss = gs.losses.Quadratic(Q, c)
    expected = gs.solve(gs.LinearlyConstrained(loss, A, b), stop=stop)
    given = (
        there,
        there.to_sparse(),
        linear_map(sp.csr_array(A), 8, dtype, device).matrix,
        sp.csr_array(A),
        A,
        A.tolist(),
    )
    for each in given:
        problem = gs.LinearlyConstrained(loss.to(device), each, on_device(b, device))
        assert problem.device.type == device
        assert problem.A.matrix.device.type == device
        assert_close(gs.solve(problem, stop=stop).x, expected.x, ROUNDING[dtype])
    first = gs.LinearlyConstrained(loss.to(device), there, b)
    assert first.A.matrix.data_ptr() == there.data_ptr()
    # The loss decides: with one of NumPy's they come to the host.
    for each in given[:3]:
        problem = gs.LinearlyConstrained(loss, each, b)
        assert problem.A.device is None
        assert_close(gs.solve(problem, stop=stop).x, expected.x, ROUNDING[dtype])
    distances = [each.distances(expected.x, expected.dual) for each in (gs.LinearlyConstrained(loss, A, b), first)]
    assert distances[1] == pytest.approx(distances[0], rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_saddle_points_go_on_from_what_is_saved(form, device, tmp_path):
    problem = SADDLES["equations in a box"](FORMS[form])
    there = problem.to(device)
    whole = gs.solve(there, stop=gs.Stop(iterations=14))
    for iterations in (5, 14):
        options = {"stop": gs.Stop(iterations=iterations), "checkpoint": tmp_path / "run.npz"}
        part = gs.solve(there, **options)
    assert_same(whole, part, 1e-12)
    # On the host it goes on, too.
    options["stop"] = gs.Stop(iterations=16)
    longer = gs.solve(problem, stop=gs.Stop(iterations=16))
    assert_close(gs.solve(problem, **options).x, longer.x, 1e-9)
    saved = gs.load(whole.save(tmp_path / "solution.npz"))
    warm = [gs.solve(each, stop=gs.Stop(iterations=5), warm_start=saved) for each in (problem, there)]
    assert_same(*warm, 1e-9)
    started = [gs.solve(each, stop=gs.Stop(iterations=5), x0=0.1 * np.ones(8)) for each in (problem, there)]
    assert_same(*started, 1e-9)


def test_operators_of_the_host_are_refused_on_a_device(device):
    A, loss = operator_of(), gs.losses.Quadratic(np.eye(8), np.ones(8))
    for given in (aslinearoperator(A), (lambda x: A @ np.asarray(x), lambda z: A.T @ np.asarray(z))):
        problem = gs.LinearlyConstrained(loss, given, 0.1)
        message = ["operator A for a problem on", device, "forward product", "an array or a sparse matrix"]
        check_message(lambda problem=problem: problem.to(device), message)
        check_message(lambda given=given: gs.LinearlyConstrained(loss.to(device), given, 0.1), message)
        # On the host it works as before.
        gs.solve(problem, stop=gs.Stop(iterations=2))
    leaves = (lambda x: on_device(A, device) @ x, lambda z: A.T @ to_numpy(z))
    check_message(lambda: gs.LinearlyConstrained(loss.to(device), leaves, 0.1), ["adjoint product", "operator A"])


def test_operators_that_compute_on_the_device_run_there(device, monkeypatch):
    A, loss = operator_of(), gs.losses.Quadratic(np.eye(8), np.ones(8))
    there, stop = on_device(A, device), gs.Stop(iterations=6)
    functions = (lambda x: (there @ x)[:, None], lambda z: there.T @ z)
    space, simplex = domains.Box(-1.0, 1.0), domains.EntropySimplex()
    for X, Z in ((space, domains.Free()), (simplex, space), (space, simplex), (simplex, simplex)):
        expected = gs.solve(gs.Saddle(loss, A, gs.terms.Linear(0.1), X, Z), stop=stop)
        problem = gs.Saddle(loss.to(device), functions, gs.terms.Linear(0.1), X, Z)
        found = gs.solve(problem, stop=stop)
        assert_close(found.x, expected.x, 1e-9)
    wrong = (functions[0], lambda z: 2 * (there.T @ z))
    check_message(lambda: gs.LinearlyConstrained(loss.to(device), wrong, 0.1), ["must be the adjoint"])
    short = (functions[0], lambda z: (there.T @ z)[1:])
    check_message(lambda: gs.LinearlyConstrained(loss.to(device), short, 0.1), ["must have 8 entries", "7"])


class OwnTerm(gs.terms.Linear):
    """A term of a user's, who did not think of devices."""

    to = gs.terms.Term.to


def test_terms_of_the_host_are_refused_on_a_device(device):
    loss, A = gs.losses.Quadratic(np.eye(8), np.ones(8)), operator_of()
    problem = gs.Saddle(loss, A, OwnTerm(0.1))
    assert len(gs.solve(problem, stop=gs.Stop(iterations=2)).history) == 2
    check_message(lambda: problem.to(device), ["dual term cannot move", "OwnTerm", "to(device)"])
    problem = gs.Saddle(loss, A, gs.terms.Prox(lambda v, step: to_numpy(v)), domains.Box(-1.0, 1.0))
    check_message(lambda: gs.solve(problem.to(device)), ["prox must return an array on the device"])


def test_bad_matrices_on_a_device_are_refused(device):
    loss = gs.losses.Quadratic(np.eye(8), np.ones(8)).to(device)
    good = on_device(operator_of(), device)
    cases = {
        "A must be finite": good / 0,
        "A must be real": good + 1j,
        "one column for each of the 8 unknowns": good[:, 1:],
        "A must be a real matrix": good[0],
    }
    for message, bad in cases.items():
        check_message(lambda bad=bad: gs.LinearlyConstrained(loss, bad, 0.1), [message])


@pytest.mark.slow
def test_arrays_of_jax_run_as_they_are():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    rng, stop = np.random.default_rng(0), gs.Stop(iterations=6)
    features, targets = rng.normal(size=(42, D)), rng.normal(size=42)
    with jax.enable_x64(True):
        for domain in (DOMAINS["box"], DOMAINS["group l1"], DOMAINS["per agent"]):
            losses = (
                gs.losses.LeastSquares(*data, agents=M)
                for data in ((features, targets), (jax.numpy.asarray(features), jax.numpy.asarray(targets)))
            )
            here, there = (gs.solve(gs.Problem(loss, domain, 0.1), GRAPH, gs.PDS(), stop=stop) for loss in losses)
            assert_same(here, there, 1e-10)


def test_numbers_follow_the_arrays(device):
    x = on_device(np.ones((2, 3)), device)
    moved = like(np.arange(3.0), x)
    assert moved.device == x.device
    assert like(moved, x) is moved
    assert type(like(x, np.ones(1))) is np.ndarray


@pytest.mark.slow
def test_saddle_points_of_jax_run_as_they_are():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with jax.enable_x64(True):
        Q, c, A = np.eye(8) + 0.1, np.linspace(-1, 1, 8), operator_of()
        losses = [gs.losses.Quadratic(Q, c), gs.losses.Quadratic(jax.numpy.asarray(Q), jax.numpy.asarray(c))]
        for given in (A, jax.numpy.asarray(A)):
            problems = [
                gs.LinearlyConstrained(loss, each, 0.1, domains.Box(-1.0, 1.0))
                for loss, each in zip(losses, (A, given), strict=True)
            ]
            for method in (gs.PDS(), gs.AutoPDS()):
                here, there = (gs.solve(each, method=method, stop=gs.Stop(iterations=6)) for each in problems)
                assert_same(here, there, 1e-9)
            assert gs.solve(problems[1]).status is gs.Status.CONVERGED
        check_message(
            lambda: gs.LinearlyConstrained(losses[1], sp.csr_array(A), 0.1), ["a sparse A on a device needs PyTorch"]
        )
