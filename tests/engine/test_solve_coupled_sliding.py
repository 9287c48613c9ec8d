"""AutoPDS for coupled agents: exchanges with neighbours, sums over the tree, and all data in one place."""

from dataclasses import replace

import mpi_coupled_areas as case
import numpy as np
import peers_agents
import pytest
from mpi_tasks import arrays_of, needs_mpi
from scipy.linalg import block_diag

import gradslide as gs
from gradslide.engine.environment import CoupledEnvironment
from gradslide.methods import geometry, sliding
from gradslide.methods.base import Context
from gradslide.methods.sliding import AdaptiveSliding
from gradslide.network.coupled_rows import agreed_dimension

KINDS = ("boxes", "balls", "logistic")


@pytest.fixture(scope="module")
def local():
    """The solutions on a simulated network."""
    network = gs.network.Local(case.GRAPH)
    return {key: case.perform(network, *key) for key in case.CASES}


@pytest.fixture
def over_sums(monkeypatch):
    """Let all products be sums over the tree."""
    monkeypatch.setattr(geometry, "fitting_rows", lambda problem, network, shared: shared)


def optimum(kind, is_shared=False):
    """Minimum, minimizer and multipliers, from all data in one place and without balls."""
    parts = [case.agent(i, kind, is_shared) for i in range(case.M)]
    lower, upper = case.bounds(kind, is_shared)
    Q = block_diag(*(loss.quadratic_part()[0] for loss, *_ in parts))
    c = np.concatenate([loss.gradient(np.zeros((1, loss.d)))[0] for loss, *_ in parts])
    A = np.hstack([block for *_, block in parts])
    pooled = gs.LinearlyConstrained(
        gs.losses.Quadratic(Q, c), A, domain=gs.domains.Box(-1, 1), lower=lower, upper=upper
    )
    return gs.solve(pooled, method=gs.Newton())


@pytest.mark.parametrize("is_shared", [False, True])
def test_it_is_the_solution_of_the_pooled_problem(is_shared):
    expected = optimum("boxes", is_shared)
    _, solution, blocks = case.perform(gs.network.Local(case.GRAPH), "boxes", is_shared, kkt=1e-7)
    assert solution.status is gs.Status.CONVERGED
    products = "sums over the tree" if is_shared else "exchanges with neighbours"
    assert solution.parameters["products"] == products
    assert solution.objective == pytest.approx(expected.objective, abs=1e-5)
    np.testing.assert_allclose(np.concatenate(blocks), expected.mean, atol=1e-4)
    np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-4)
    assert np.abs(solution.dual).max() > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_exchanges_and_sums_have_one_solution(kind, request):
    network = gs.network.Local(case.GRAPH)
    _, one, _ = case.perform(network, kind, kkt=1e-7)
    request.getfixturevalue("over_sums")
    _, other, _ = case.perform(network, kind, kkt=1e-7)
    names = [each.parameters["products"] for each in (one, other)]
    assert names == ["exchanges with neighbours", "sums over the tree"]
    np.testing.assert_allclose(one.x, other.x, atol=1e-4)
    np.testing.assert_allclose(one.dual, other.dual, atol=1e-4)
    for solution in (one, other):
        assert solution.status is gs.Status.CONVERGED
        # Weak duality, from the multipliers that all agents learn in the end.
        assert solution.certificate.lower <= solution.objective + 1e-9
        assert solution.gap < 1e-4
        assert solution.history[-1].rounds == solution.costs.rounds


def test_balls_agree_with_newton_on_their_polygons():
    """A ball of one dimension is an interval, which Newton takes."""
    rng = np.random.default_rng(3)
    losses = [gs.losses.Quadratic([[w]], [c]) for w, c in zip(rng.uniform(1, 2, 5), rng.normal(size=5), strict=True)]
    flow = gs.Coupled([[[1.0], [0.0]], [[-1.0], [1.0]], [[0.0], [1.0]], [[0.0], [0.0]], [[0.0], [0.0]]], [0.2, -0.1])
    graph = gs.Graph.path(5)
    balls = gs.solve(gs.Problem(losses, gs.domains.L2Ball(0.4), coupling=flow), graph, stop=gs.Stop(kkt=1e-7))
    boxes = gs.solve(gs.Problem(losses, gs.domains.Box(-0.4, 0.4), coupling=flow), graph)
    assert (balls.parameters["method"], boxes.parameters["method"]) == ("AutoPDS", "Newton")
    np.testing.assert_allclose(balls.x, boxes.x, atol=1e-5)
    np.testing.assert_allclose(balls.dual, boxes.dual, atol=1e-5)


def test_auto_takes_it_where_quadratic_programs_do_not_serve():
    _, solution, _ = case.perform(gs.network.Local(case.GRAPH), "balls", method=gs.Auto())
    told = solution.parameters
    assert (told["method"], told["reason"]) == ("AutoPDS", "sets are not polyhedral")
    w = np.array([1.0, 2.0, 3.0])
    losses = [gs.losses.Custom(gradient=lambda x, each=each: each * (x - 1), agents=1, dimension=1) for each in w]
    problem = gs.Problem(losses, coupling=gs.Coupled([[[1.0]]] * 3, 0.0))
    solution = gs.solve(problem, gs.Graph.path(3), stop=gs.Stop(kkt=1e-8, iterations=500))
    assert solution.parameters["reason"] == "losses have no values"
    assert solution.status is gs.Status.CONVERGED
    # w (x - 1) + z = 0 and the sum is 0.
    z = 3 / np.sum(1 / w)
    np.testing.assert_allclose(solution.dual, z, rtol=1e-6)
    np.testing.assert_allclose(solution.x[:, 0], 1 - z / w, atol=1e-6)


def test_linear_losses():
    """A transport of goods along a path: costs are linear, amounts are limited by balls."""
    losses = [gs.losses.Linear([c, 1.0]) for c in (1.0, -2.0, 0.5)]
    blocks = [
        np.array([[1.0, 1.0], [0.0, 0.0]]),
        np.array([[-1.0, 0.0], [0.0, 1.0]]),
        np.array([[0.0, 0.0], [1.0, 1.0]]),
    ]
    problem = gs.Problem(losses, gs.domains.L2Ball(1.0), coupling=gs.Coupled(blocks, 0.3))
    solution = gs.solve(problem, gs.Graph.path(3), stop=gs.Stop(kkt=1e-6, iterations=3000))
    assert solution.status is gs.Status.CONVERGED
    assert solution.parameters["L"] == 0
    assert solution.costs.gradients == 1
    assert solution.gap < 1e-4


class Steps:
    """The method step by step."""

    def __init__(self, kind="balls", is_shared=False, **given):
        self.costs, network = gs.Costs(), gs.network.Local(case.GRAPH)
        problem, self.method = case.built(network, kind, is_shared, **given), AdaptiveSliding()
        problem = problem.padded(agreed_dimension(problem, network))
        there = CoupledEnvironment(problem, network, self.method, self.costs)
        context = Context(problem, there.oracle, there.network, there.coupling, problem.start())
        self.context = replace(context, prepared=self.method.prepare(context))
        self.state = self.method.init(self.context)


@pytest.mark.parametrize(("is_shared", "rounds"), [(False, 1), (True, 2 * case.GRAPH.radius)])
def test_inner_iterations_cost_a_product_each(is_shared, rounds, monkeypatch):
    steps = Steps(is_shared=is_shared)
    tried = []
    once = sliding._outer_iteration

    def counted(geometry, state):
        before = steps.costs.rounds, steps.costs.control_rounds, steps.costs.floats_sent
        new = once(geometry, state)
        tried.append(state.weights.T)
        assert steps.costs.rounds - before[0] == rounds * state.weights.T
        assert steps.costs.control_rounds == before[1]
        return new

    monkeypatch.setattr(sliding, "_outer_iteration", counted)
    for _ in range(30):
        before, first = (steps.costs.rounds, steps.costs.control_rounds, steps.costs.gradients), len(tried)
        steps.state = steps.method.step(steps.context, steps.state)
        attempts = tried[first:]
        assert steps.costs.rounds - before[0] == rounds * sum(attempts)
        # A sum for each slack test; two maxima and a sum for the residuals, if they are looked at; a sum for a restart.
        sums = 2 * case.GRAPH.radius
        tests, look = sums * len(attempts), 2 * case.GRAPH.diameter + sums
        assert steps.costs.control_rounds - before[1] in (tests, tests + look, tests + look + sums)
        assert steps.costs.gradients - before[2] <= len(attempts) + 1
    assert max(tried) > 1


def test_agents_of_a_constraint_have_the_same_bits():
    steps = Steps()
    rows = steps.context.prepared.rows
    for _ in range(25):
        steps.state = steps.method.step(steps.context, steps.state)
    z = steps.state.answer.z
    assert np.abs(z).max() > 0
    for row in range(rows.coupled.k):
        agents = np.flatnonzero(rows.coupled.participants[:, row])
        assert len(set(z[agents, rows._plan.slots[row]].tolist())) == 1


def test_residuals_are_those_of_all_data_in_one_place():
    steps = Steps(kind="boxes")
    for _ in range(20):
        steps.state = steps.method.step(steps.context, steps.state)
    state = steps.method.finish(steps.context, steps.state, 1.0)
    parts = steps.context.problem.parts()
    x = np.concatenate([row[: part.loss.d] for row, part in zip(state.answer.x, parts, strict=True)])
    Q, A = block_diag(*(part.loss.quadratic_part()[0] for part in parts)), np.hstack([p.block.toarray() for p in parts])
    c = np.concatenate([part.loss.gradient(np.zeros((1, part.loss.d)))[0] for part in parts])
    lower, upper = case.bounds("boxes")
    pooled = gs.LinearlyConstrained(
        gs.losses.Quadratic(Q, c), A, domain=gs.domains.Box(-1, 1), lower=lower, upper=upper
    )
    found = geometry.residuals_of(
        pooled,
        pooled.duals,
        [
            geometry.Known(
                x[None],
                state.answer.z,
                (Q @ x + c)[None],
                (A @ x)[None],
                (A.T @ state.answer.z[0])[None],
                float(x @ Q @ x / 2 + c @ x),
            )
        ],
        geometry.Here(),
    )[0].kkt
    for name, value in found.to_dict().items():
        assert value == pytest.approx(state.kkt.to_dict()[name], rel=1e-9), name


def test_gradients_hardly_depend_on_the_scale_of_constraints():
    counts, network = [], gs.network.Local(case.GRAPH)
    for scale in (1e-2, 1.0, 1e2):
        problem = case.built(network, "logistic", scale=scale)
        solution = gs.solve(problem, network, gs.AutoPDS(), stop=gs.Stop(kkt=1e-5, iterations=3000))
        assert solution.status is gs.Status.CONVERGED
        counts.append(solution.costs.gradients)
    assert max(counts) <= 2 * min(counts)


def test_rows_of_different_scale_are_weighted():
    """Without weights of the rows ||A|| would be that of the largest."""
    network, found = gs.network.Local(case.GRAPH), []
    factors = np.logspace(-2, 2, 2 * case.M)
    lower, upper = case.bounds("logistic")
    for each in (np.ones(2 * case.M), factors):
        parts = [case.agent(i, "logistic") for i in range(case.M)]
        coupling = gs.Coupled([each[:, None] * block for *_, block in parts], lower=each * lower, upper=each * upper)
        problem = gs.Problem([loss for loss, *_ in parts], [domain for _, domain, _ in parts], coupling=coupling)
        solution = gs.solve(problem, network, gs.AutoPDS(), stop=gs.Stop(kkt=1e-6, iterations=3000))
        assert solution.status is gs.Status.CONVERGED
        found.append((solution.x, solution.costs.gradients))
    np.testing.assert_allclose(found[0][0], found[1][0], atol=1e-3)
    assert found[1][1] <= 2 * found[0][1]


@needs_mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_of_mpi(ranks, local, tmp_path):
    told = arrays_of(ranks, "mpi_coupled_areas.py", tmp_path)
    for (kind, is_shared), (_, solution, blocks) in local.items():
        name = f"{kind} {is_shared}"
        for key in (f"{name} CONVERGED", f"{name} dual"):
            for arrays in told:
                np.testing.assert_array_equal(arrays[key], told[0][key])
        costs = solution.costs
        np.testing.assert_allclose(
            told[0][f"{name} CONVERGED"][:3], [costs.gradients, costs.rounds, costs.control_rounds], rtol=0.1
        )
        np.testing.assert_allclose(told[0][f"{name} dual"], solution.dual, atol=1e-5)
        for i, block in enumerate(blocks):
            (found,) = (arrays[f"{name} {i}"] for arrays in told if f"{name} {i}" in arrays)
            np.testing.assert_allclose(found, block, atol=1e-5)
    for arrays in told:
        np.testing.assert_array_equal(arrays["none INFEASIBLE"], told[0]["none INFEASIBLE"])


def test_a_target_on_the_gap_is_seen_during_the_run():
    network = gs.network.Local(case.GRAPH)
    _, solution, _ = case.perform(network, "balls", stop=gs.Stop(gap=1e-3, residual=1e-3, iterations=2000))
    assert solution.status is gs.Status.CONVERGED
    _, exact, _ = case.perform(network, "balls", kkt=1e-8)
    for record in solution.history:
        assert record.lower is None or record.lower <= exact.objective + 1e-6


def test_peers_with_unbounded_sets():
    """Distances that are infinite are not sent."""

    def act(i, network):
        loss = gs.losses.Quadratic([[1.0 + i]], [float(i - 1)])
        block = [[[1.0]], [[-1.0]], [[1.0]]][i]
        problem = gs.Problem.build(network, lambda i: (loss, gs.domains.Free(), block), b=0.5)
        return gs.solve(problem, network, gs.AutoPDS(), stop=gs.Stop(kkt=1e-7, iterations=500))

    found = peers_agents.all_well(peers_agents.together(gs.Graph.complete(3), act))
    # The multiplier z of x_0 - x_1 + x_2 = 1/2 with x_i = -(c_i + a_i z)/q_i.
    q, c, a = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.0, 1.0]), np.array([1.0, -1.0, 1.0])
    z = -(0.5 + a @ (c / q)) / np.sum(a * a / q)
    for i, solution in enumerate(found):
        assert solution.status is gs.Status.CONVERGED
        assert solution.x[0, 0] == pytest.approx(-(c[i] + a[i] * z) / q[i], abs=1e-5)
        assert solution.dual[0] == pytest.approx(z, abs=1e-5)


@pytest.mark.parametrize(("kind", "is_shared"), [case.CASES[0], pytest.param(*case.CASES[1], marks=pytest.mark.slow)])
def test_peers(kind, is_shared, local):
    found = peers_agents.all_well(
        peers_agents.together(case.GRAPH, lambda i, network: case.perform(network, kind, is_shared))
    )
    _, expected, blocks = local[kind, is_shared]
    for (i,), solution, (x,) in found:
        assert solution.status is gs.Status.CONVERGED
        np.testing.assert_array_equal(solution.dual, found[0][1].dual)
        np.testing.assert_allclose(x, blocks[i], atol=1e-5)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-5)
        assert solution.kkt == found[0][1].kkt
        assert solution.costs.rounds == found[0][1].costs.rounds


@pytest.mark.parametrize("is_shared", [False, True])
def test_resumed_runs_have_the_same_bits(is_shared, tmp_path):
    path, network = tmp_path / "run.npz", gs.network.Local(case.GRAPH)
    _, whole, _ = case.perform(network, "balls", is_shared, stop=gs.Stop(iterations=40))
    for iterations in (17, 40):
        stop = gs.Stop(iterations=iterations)
        _, part, _ = case.perform(network, "balls", is_shared, stop=stop, checkpoint=path)
    np.testing.assert_array_equal(part.x, whole.x)
    np.testing.assert_array_equal(part.dual, whole.dual)
    assert part.costs.rounds == whole.costs.rounds
    assert part.costs.control_rounds == whole.costs.control_rounds


def test_a_warm_start_saves_gradients(local):
    _, cold, _ = local["logistic", False]
    _, warm, _ = case.perform(gs.network.Local(case.GRAPH), "logistic", warm_start=cold)
    assert warm.status is gs.Status.CONVERGED
    assert warm.costs.gradients < cold.costs.gradients / 2


def test_single_precision():
    network = gs.network.Local(case.GRAPH)
    problem = case.built(network, "balls", dtype=np.float32)
    solution = gs.solve(problem, network, gs.AutoPDS(), stop=gs.Stop(kkt=1e-4, iterations=2000))
    assert solution.status is gs.Status.CONVERGED
    assert solution.x.dtype == solution.dual.dtype == np.float32


# ---- Problems without a solution


FORMS = ["shared", "neighbours", "alone"]
PRODUCTS = {"shared": "sums over the tree"}


def random_rows(rng, form, graph):
    """Blocks of agents with one to three variables: rows of all agents, of neighbours, or of single agents too."""
    dimensions = rng.integers(1, 4, size=graph.m)
    concerns = np.ones((2, graph.m), dtype=bool)
    if form != "shared":
        concerns = np.zeros((len(graph.edges), graph.m), dtype=bool)
        concerns[np.arange(len(graph.edges))[:, None], graph.edges] = True
    if form == "alone":
        concerns = np.vstack([concerns, np.eye(graph.m, dtype=bool)[:2]])
    return [rng.normal(size=(len(concerns), d)) * concerns[:, [i]] for i, d in enumerate(dimensions)]


def balls(seed, form, excess=None, dtype=float):
    """A random problem on balls with equations and inequalities; infeasible by `excess`, if that is given."""
    rng = np.random.default_rng(seed)
    graph = [gs.Graph.ring(4), gs.Graph.path(5), gs.Graph.star(4)][seed % 3]
    blocks, radii = random_rows(rng, form, graph), rng.uniform(0.5, 2.0, size=graph.m)
    direction = rng.normal(size=len(blocks[0]))
    if form == "alone" and excess is not None:
        # The last row, of one agent, is the contradiction.
        direction = np.eye(len(direction))[-1] * rng.choice([-1.0, 1.0])
    parts = zip(blocks, radii, strict=True)
    if excess is None:
        point = sum(A @ (0.9 * r * unit(rng.normal(size=A.shape[1]))) for A, r in parts)
        slack = rng.exponential(size=len(point)) * rng.integers(0, 2, size=len(point))
        lower, upper = point - slack, np.where(rng.random(len(point)) < 0.3, np.inf, point)
    else:
        farthest = sum(A @ (r * unit(A.T @ direction)) for A, r in parts)
        lower = upper = farthest + excess * unit(direction)
        lower = np.where(direction < 0, -np.inf, lower)
        upper = np.where(direction > 0, np.inf, upper)
    losses = []
    for A in blocks:
        half = rng.normal(size=(A.shape[1], A.shape[1]))
        losses.append(gs.losses.Quadratic((half @ half.T).astype(dtype), rng.normal(size=len(half)).astype(dtype)))
    domains = [gs.domains.L2Ball(r) for r in radii]
    return gs.Problem(losses, domains, coupling=gs.Coupled(blocks, lower=lower, upper=upper)), graph, radii


def unit(v):
    size = np.linalg.norm(v)
    return v / size if size > 0 else v


def check_contradiction(problem, radii, ray):
    """No x in the balls has <A x, ray> <= h(ray)."""
    coupling = problem.coupling
    assert ray.shape == (coupling.k,)
    assert np.abs(ray).max() == pytest.approx(1.0)
    ends = np.where(ray > 0, coupling.upper, np.where(ray < 0, coupling.lower, 0.0))
    least = -sum(r * np.linalg.norm(A.T @ ray) for A, r in zip(coupling.blocks, radii, strict=True))
    assert least > ends @ ray


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("excess", [0.1, 3.0])
def test_contradictory_constraints_on_balls(seed, form, excess):
    problem, graph, radii = balls(seed, form, excess)
    solution = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(kkt=1e-6, iterations=1000))
    assert solution.status is gs.Status.INFEASIBLE
    assert solution.parameters["products"] == PRODUCTS.get(form, "exchanges with neighbours")
    check_contradiction(problem, radii, solution.ray)


def test_a_demand_beyond_all_balls_is_infeasible_soon():
    """The sum of all coordinates is at most 1 + sqrt(2) + sqrt(3)."""
    losses = [gs.losses.Quadratic(np.eye(d), -np.ones(d)) for d in (1, 2, 3)]
    coupling = gs.Coupled([np.ones((1, d)) for d in (1, 2, 3)], 7.0)
    solution = gs.solve(gs.Problem(losses, gs.domains.L2Ball(1.0), coupling=coupling), gs.Graph.ring(3))
    assert solution.status is gs.Status.INFEASIBLE
    assert solution.costs.rounds < 50
    np.testing.assert_allclose(solution.ray, -1.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_feasible_constraints_are_not_called_contradictory(form, dtype):
    for seed in range(100, 115):
        problem, graph, _ = balls(seed, form, dtype=dtype)
        kkt = 1e-6 if dtype is np.float64 else 1e-4
        solution = gs.solve(problem, graph, gs.AutoPDS(), stop=gs.Stop(kkt=kkt, iterations=300))
        assert solution.status in (gs.Status.CONVERGED, gs.Status.ITERATION_LIMIT), seed


@pytest.mark.parametrize("sets", ["orthants", "mixed"])
def test_contradictory_constraints_on_unbounded_sets(sets):
    """Agents have sets of their own kind and dimension; x_1 + x_2 + ... = -1 with nonnegative x."""
    dimensions = (1, 2, 3)
    domains = [gs.domains.NonNegative()] * 3
    blocks = [np.ones((1, d)) for d in dimensions]
    if sets == "mixed":
        domains[1], domains[2] = gs.domains.L2Ball(0.2), gs.domains.Simplex()
        blocks[2] = np.zeros((1, 3))
    losses = [gs.losses.Quadratic(np.eye(d), -np.ones(d)) for d in dimensions]
    problem = gs.Problem(losses, domains, coupling=gs.Coupled(blocks, -1.0))
    solution = gs.solve(problem, gs.Graph.path(3), gs.AutoPDS(), stop=gs.Stop(kkt=1e-6, iterations=500))
    assert solution.status is gs.Status.INFEASIBLE
    np.testing.assert_allclose(solution.ray, 1.0)


@pytest.mark.parametrize("row", [[[1.0], [-1.0], [0.0]], [[1.0], [-1.0], [1.0]]])
def test_an_objective_that_falls_for_ever(row):
    """Two agents gain when both grow; the third one has a ball."""
    losses = [gs.losses.Linear([c]) for c in (1.0, -2.0, 0.5)]
    domains = [gs.domains.NonNegative(), gs.domains.NonNegative(), gs.domains.L2Ball(1.0)]
    problem = gs.Problem(losses, domains, coupling=gs.Coupled([[each] for each in row], 0.0))
    solution = gs.solve(problem, gs.Graph.path(3), gs.AutoPDS(), stop=gs.Stop(kkt=1e-6, iterations=500))
    assert solution.status is gs.Status.UNBOUNDED
    np.testing.assert_allclose(solution.ray[:, 0], [0.5**0.5, 0.5**0.5, 0.0], atol=1e-6)


@pytest.mark.parametrize("form", ["shared", "neighbours"])
def test_peers_find_the_same_proof(form):
    problem, graph, radii = balls(0, form, 0.5)

    def act(i, network):
        part = problem.parts()[i]
        bounds = {"lower": problem.coupling.lower, "upper": problem.coupling.upper}
        mine = gs.Problem.build(network, lambda _: (part.loss, gs.domains.L2Ball(radii[i]), part.block), **bounds)
        return gs.solve(mine, network, gs.AutoPDS(), stop=gs.Stop(kkt=1e-6, iterations=1000))

    found = peers_agents.all_well(peers_agents.together(graph, act))
    for solution in found:
        assert solution.status is gs.Status.INFEASIBLE
        np.testing.assert_array_equal(solution.ray, found[0].ray)
        assert solution.costs.rounds == found[0].costs.rounds
    check_contradiction(problem, radii, found[0].ray)


def test_peers_find_the_same_direction():
    def act(i, network):
        loss, sign = gs.losses.Linear([(1.0, -2.0, 0.5)[i]]), (1.0, -1.0, 0.0)[i]
        domain = gs.domains.NonNegative() if i < 2 else gs.domains.L2Ball(1.0)
        problem = gs.Problem.build(network, lambda _: (loss, domain, [[sign]]), b=0.0)
        return gs.solve(problem, network, gs.AutoPDS(), stop=gs.Stop(kkt=1e-6, iterations=500))

    for i, solution in enumerate(peers_agents.all_well(peers_agents.together(gs.Graph.path(3), act))):
        assert solution.status is gs.Status.UNBOUNDED
        assert solution.ray[0, 0] == pytest.approx(0.5**0.5 * (i < 2), abs=1e-6)


def test_parameters_of_gossip_are_refused():
    network = gs.network.Local(case.GRAPH)
    with pytest.raises(gs.InputError, match="with linear constraints, AutoPDS takes balance, L and R; got K"):
        case.perform(network, "balls", method=gs.AutoPDS(K=3))
