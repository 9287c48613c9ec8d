"""Agents with variables of their own under linear constraints: one process, MPI, peers, and all data in one place."""

import mpi_solve_coupled as case
import numpy as np
import peers_agents
import pytest
from mpi_tasks import arrays_of, needs_mpi
from scipy.linalg import block_diag
from scipy.optimize import minimize

import gradslide as gs
from gradslide.domains import Box, L2Ball, NonNegative


@pytest.fixture(scope="module")
def local():
    """The solutions on a simulated network, by kind of loss."""
    network = gs.network.Local(case.GRAPH)
    return {kind: case.perform(network, kind) for kind in ("quadratic", "logistic")}


def test_it_is_the_solution_of_the_pooled_problem(local):
    _, solution, blocks = local["quadratic"]
    parts = [case.agent(i, "quadratic") for i in range(5)]
    Q = block_diag(*(loss.quadratic_part()[0] for loss, *_ in parts))
    c = np.concatenate([loss.gradient(np.zeros((1, loss.d)))[0] for loss, *_ in parts])
    A = np.hstack([block for *_, block in parts])
    # A simplex is a box and one more row.
    row = np.concatenate([np.full(d, float(i == 3)) for i, d in enumerate(case.DIMENSIONS)])
    low = np.concatenate([np.full(d, 0.0 if i == 3 else -1.0) for i, d in enumerate(case.DIMENSIONS)])
    pooled = gs.LinearlyConstrained(
        gs.losses.Quadratic(Q, c),
        np.vstack([A, row]),
        domain=Box(low, np.where(row > 0, np.inf, 1.0)),
        lower=np.append(np.full(3, -np.inf), 1.0),
        upper=np.append(case.B, 1.0),
    )
    expected = gs.solve(pooled)
    assert solution.status is gs.Status.CONVERGED
    assert solution.objective == pytest.approx(expected.objective, rel=1e-7)
    np.testing.assert_allclose(np.concatenate(blocks), expected.mean, atol=1e-5)
    np.testing.assert_allclose(solution.dual, expected.dual[:3], atol=1e-5)


def test_what_a_solution_tells(local):
    for kind, (_, solution, _) in local.items():
        assert solution.kkt.largest <= 1e-6
        assert solution.certificate.lower <= solution.objective + 1e-9
        assert solution.gap < 1e-4
        assert solution.history[-1].residual < 1e-8
        assert solution.disagreement is None
        assert solution.parameters["method"] == "Newton"
        assert solution.costs.gradients == (2 if kind == "quadratic" else solution.costs.hessians)
        assert solution.costs.rounds > 0
        assert solution.costs.floats_sent > 0


def test_prices_are_the_change_of_the_optimum():
    def optimum(b):
        parts = [case.agent(i, "logistic") for i in range(5)]
        losses, domains, blocks = map(list, zip(*parts, strict=True))
        problem = gs.Problem(losses, domain=domains, coupling=gs.Coupled(blocks, b, sense="<="))
        return gs.solve(problem, case.GRAPH, stop=gs.Stop(kkt=1e-9, iterations=30))

    first = optimum(case.B)
    row = int(np.argmax(first.dual))
    assert first.dual[row] > 1e-2
    step = 1e-3 * np.eye(3)[row]
    change = (optimum(case.B + step).objective - optimum(case.B - step).objective) / 2e-3
    assert -first.dual[row] == pytest.approx(change, rel=1e-3)


@pytest.mark.parametrize("method", [gs.Newton(), gs.LBFGS(memory=3)], ids=str)
def test_methods_agree_and_gradients_do_not_depend_on_the_graph(local, method):
    counts = []
    for graph in (case.GRAPH, gs.Graph.ring(5), gs.Graph.complete(5)):
        _, solution, blocks = case.perform(gs.network.Local(graph), "logistic", method=method)
        assert solution.status is gs.Status.CONVERGED
        np.testing.assert_allclose(np.concatenate(blocks), np.concatenate(local["logistic"][2]), atol=1e-4)
        counts.append(solution.costs.gradients)
    assert max(counts) - min(counts) <= 1


@needs_mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_of_mpi(ranks, local, tmp_path):
    told = arrays_of(ranks, "mpi_solve_coupled.py", tmp_path)
    for kind, (_, solution, blocks) in local.items():
        for numbers in (arrays[f"{kind} CONVERGED"] for arrays in told):
            np.testing.assert_array_equal(numbers, told[0][f"{kind} CONVERGED"])
            np.testing.assert_allclose(numbers[-3:], solution.dual, atol=1e-5)
            assert numbers[3] == solution.costs.gradients
        for i, block in enumerate(blocks):
            (found,) = (arrays[f"{kind} {i}"] for arrays in told if f"{kind} {i}" in arrays)
            np.testing.assert_allclose(found, block, atol=1e-5)


@pytest.mark.parametrize("kind", ["quadratic", "logistic"])
def test_peers(kind, local):
    found = peers_agents.all_well(peers_agents.together(case.GRAPH, lambda i, network: case.perform(network, kind)))
    _, expected, blocks = local[kind]
    for (i,), solution, (x,) in found:
        assert solution.status is gs.Status.CONVERGED
        np.testing.assert_allclose(x, blocks[i], atol=1e-5)
        np.testing.assert_array_equal(solution.dual, found[0][1].dual)
        np.testing.assert_allclose(solution.dual, expected.dual, atol=1e-5)
        assert solution.kkt.largest <= 1e-6
        assert solution.costs.gradients == expected.costs.gradients
        assert solution.costs.rounds == expected.costs.rounds


def test_resumed_runs_have_the_same_bits(tmp_path):
    for method in (gs.Newton(), gs.LBFGS()):
        path = tmp_path / f"{method.name}.npz"
        network = gs.network.Local(case.GRAPH)
        _, whole, _ = case.perform(network, "logistic", method=method, stop=gs.Stop(iterations=6))
        for iterations in (2, 6):
            stop = gs.Stop(iterations=iterations)
            _, part, _ = case.perform(network, "logistic", method=method, stop=stop, checkpoint=path)
        np.testing.assert_array_equal(part.x, whole.x)
        np.testing.assert_array_equal(part.dual, whole.dual)
        assert part.costs.rounds == whole.costs.rounds


def test_a_warm_start_saves_evaluations(local):
    _, cold, _ = local["logistic"]
    _, warm, _ = case.perform(gs.network.Local(case.GRAPH), "logistic", warm_start=cold)
    assert warm.status is gs.Status.CONVERGED
    assert warm.costs.gradients < cold.costs.gradients


def shares(demand, capacity=1.0):
    """Producers with costs x'x share a demand."""
    losses = [gs.losses.Quadratic(np.eye(2) * (i + 1), np.zeros(2)) for i in range(4)]
    return gs.Problem(losses, domain=Box(0.0, capacity), coupling=gs.Coupled([np.ones((1, 2))] * 4, demand))


def test_more_than_all_can_give_is_infeasible():
    solution = gs.solve(shares(9.0), gs.Graph.star(4))
    assert solution.status is gs.Status.INFEASIBLE
    # The constraint, less what the bounds allow.
    assert solution.ray[0] * (8.0 - 9.0) != 0
    assert gs.solve(shares(7.9), gs.Graph.star(4)).status is gs.Status.CONVERGED


def test_an_agent_that_gains_for_ever_is_unbounded():
    losses = [gs.losses.Linear([1.0]), gs.losses.Linear([-2.0])]
    problem = gs.Problem(losses, domain=NonNegative(), coupling=gs.Coupled([[[1.0]], [[-1.0]]], 0.0))
    solution = gs.solve(problem, gs.Graph.path(2))
    assert solution.status is gs.Status.UNBOUNDED
    np.testing.assert_allclose(solution.ray, 1.0, atol=1e-6)


def test_resource_allocation_agrees_with_SLSQP():
    """Logarithmic utilities under two budgets: a smooth loss of one's own without a Hessian."""
    rng = np.random.default_rng(2)
    weights, use = rng.exponential(size=(3, 2)), rng.uniform(0.5, 2.0, size=(3, 2, 2))

    def utility(w):
        return gs.losses.Custom(
            value=lambda x: -(w * np.log(1 + x)).sum(axis=1), gradient=lambda x: -w / (1 + x), agents=1, dimension=2
        )

    problem = gs.Problem(
        [utility(w) for w in weights],
        domain=NonNegative(),
        coupling=gs.Coupled([block.T for block in use], [4.0, 3.0], sense="<="),
    )
    solution = gs.solve(problem, gs.Graph.complete(3))
    A = np.hstack([block.T for block in use])
    expected = minimize(
        lambda x: -(weights.ravel() * np.log(1 + x)).sum(),
        np.full(6, 0.1),
        bounds=[(0, None)] * 6,
        constraints={"type": "ineq", "fun": lambda x: np.array([4.0, 3.0]) - A @ x},
        options={"ftol": 1e-12},
    )
    assert solution.status is gs.Status.CONVERGED
    assert solution.parameters["method"] == "LBFGS"
    assert solution.objective == pytest.approx(expected.fun, abs=1e-6)
    np.testing.assert_allclose(solution.x.ravel(), expected.x, atol=1e-3)


REFUSED = {
    "a method for consensus": (lambda: shares(2.0), {"method": gs.NIDS()}, ["coupled agents need gs.Auto()", "NIDS"]),
    "disagreement": (lambda: shares(2.0), {"stop": gs.Stop(disagreement=1e-3)}, ["disagreement", "coupled"]),
    "a ball": (
        lambda: gs.Problem([gs.losses.Linear([1.0])] * 4, domain=L2Ball(1.0), coupling=gs.Coupled([[[1.0]]] * 4, 1.0)),
        {"method": gs.Newton()},
        ["polyhedral"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused(name):
    make, options, words = REFUSED[name]
    with pytest.raises(gs.InputError) as error:
        gs.solve(make(), gs.Graph.ring(4), **options)
    assert all(word in str(error.value) for word in words)


def test_a_coupled_problem_needs_a_network():
    with pytest.raises(gs.InputError, match="network"):
        gs.solve(shares(2.0))
