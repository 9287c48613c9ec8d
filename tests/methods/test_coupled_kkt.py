"""Coupled programs over exact sums: the answers of one place, wherever the agents live."""

import math

import mpi_coupled
import numpy as np
import peers_agents
import pytest
from coupled_programs import in_one_place, infeasible_programs, pooled, random_programs, unbounded_programs
from mpi_tasks import arrays_of, needs_mpi
from scipy.linalg import block_diag

import gradslide as gs
from gradslide.methods import coupled_kkt
from gradslide.methods.coupled_kkt import AgentProgram, SchurKKT, _Sums, agent_programs, minimize_coupled
from gradslide.problems.polyhedral import Polyhedral
from gradslide.programs import direct
from gradslide.programs.direct import DirectKKT
from gradslide.programs.interior_point import Measure, Outcome

GRAPH = gs.Graph.ring(6)


def solved(programs, lower, upper, graph=GRAPH):
    costs = gs.Costs()
    network = gs.network.Counted(gs.network.Local(graph), costs)
    return minimize_coupled(network, programs, lower, upper), costs


@pytest.mark.parametrize("seed", range(10))
def test_the_minimum_is_that_of_one_place(seed):
    program = random_programs(seed)
    (found, _), one = solved(*program), in_one_place(*program)
    assert found.outcome is one.outcome is Outcome.SOLVED
    assert found.residual <= 1e-8
    np.testing.assert_allclose(np.concatenate(found.x), one.x, atol=1e-7)
    k, sizes = len(program[1]), [len(p.X.K) for p in program[0]]
    np.testing.assert_allclose(found.z, one.multipliers[:k], atol=1e-6)
    rows = [own[:size] for own, size in zip(found.own, sizes, strict=True)]
    bounds = [own[size:] for own, size in zip(found.own, sizes, strict=True)]
    np.testing.assert_allclose(np.concatenate(rows + bounds), one.multipliers[k:], atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_linear_programs(seed):
    program = random_programs(seed, curvature=0.0)
    (found, _), one = solved(*program), in_one_place(*program)
    assert found.outcome is one.outcome is Outcome.SOLVED
    q = pooled(*program)[1]
    assert q @ np.concatenate(found.x) == pytest.approx(q @ one.x, abs=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_a_combination_of_constraints_proves_infeasibility(seed):
    programs, lower, upper = infeasible_programs(seed)
    found, _ = solved(programs, lower, upper)
    assert found.outcome is Outcome.INFEASIBLE

    def most(z, low, high):
        return float(np.where(z > 0, high, np.where(z < 0, low, 0.0)) @ z)

    held = most(found.z, lower, upper) + sum(
        most(own, p.X.lower, p.X.upper) for own, p in zip(found.own, programs, strict=True)
    )
    assert held < 0
    for own, p in zip(found.own, programs, strict=True):
        rows, bounds = np.split(own, [len(p.X.K)])
        assert np.abs(p.A.T @ found.z + p.X.K.T @ rows + bounds).max() <= 1e-6 * -held


@pytest.mark.parametrize("seed", range(5))
def test_a_direction_proves_that_there_is_no_minimum(seed):
    programs, lower, upper = unbounded_programs(seed)
    found, _ = solved(programs, lower, upper)
    assert found.outcome is Outcome.UNBOUNDED
    P, q, K, low, high = pooled(programs, lower, upper)
    x = np.concatenate(found.x) / max(np.abs(each).max() for each in found.x)
    v = np.concatenate([K @ x, x])
    assert q @ x < 0
    assert np.abs(P @ x).max() <= 1e-6 * -(q @ x)
    assert v[np.isfinite(low)].min() >= -1e-6
    assert v[np.isfinite(high)].max() <= 1e-6


def test_variables_that_only_the_coupling_holds():
    """Angles of a network of lines are free but for their differences: each block alone is singular."""
    rng = np.random.default_rng(0)
    m, n = 4, 5
    line = np.eye(n) - np.roll(np.eye(n), 1, axis=1)
    programs, k = [], m
    for i in range(m):
        A = np.zeros((k, 2 * n))
        A[i, 0], A[(i + 1) % m, n - 1] = 1.0, -1.0
        if i == 0:
            A[0] = np.eye(2 * n)[0]  # where angles are measured from
        K, demand = np.hstack([10 * line.T @ line, -np.eye(n)]), rng.uniform(size=n)
        free, none = np.full(n, np.inf), np.zeros(2 * n)
        lower, upper = np.concatenate([-demand, -free, np.zeros(n)]), np.concatenate([-demand, free, np.full(n, 3.0)])
        P = np.diag(np.append(np.zeros(n), rng.uniform(0.1, 1.0, n)))
        programs.append(
            AgentProgram(
                P, np.append(np.zeros(n), rng.uniform(1, 5, n)), Polyhedral(2 * n, 0, K, lower, upper, none, none), A
            )
        )
    found, _ = solved(programs, np.zeros(k), np.zeros(k), gs.Graph.ring(m))
    one = in_one_place(programs, np.zeros(k), np.zeros(k))
    assert found.outcome is one.outcome is Outcome.SOLVED
    np.testing.assert_allclose(np.concatenate(found.x), one.x, atol=1e-6)


def test_redundant_and_endless_coupling_rows():
    programs, lower, upper = random_programs(0)
    double = [AgentProgram(p.P, p.q, p.X, np.vstack([p.A, p.A[:2], p.A[:1] + 1, 0 * p.A[:1]])) for p in programs]
    lower, upper = (np.concatenate([each, each[:2], [end], [0.0]]) for each, end in ((lower, -np.inf), (upper, np.inf)))
    found, _ = solved(double, lower, upper)
    assert found.outcome is Outcome.SOLVED
    assert found.z[-2] == 0
    np.testing.assert_allclose(np.concatenate(found.x), in_one_place(*random_programs(0)).x, atol=1e-7)


def test_units_do_not_matter():
    programs, lower, upper = random_programs(2)
    rows = np.where(np.arange(len(lower)) % 2, 1e4, 1e-3)
    scaled = [AgentProgram(p.P, p.q, p.X, rows[:, None] * p.A) for p in programs]
    found, _ = solved(scaled, rows * lower, rows * upper)
    assert found.outcome is Outcome.SOLVED
    np.testing.assert_allclose(np.concatenate(found.x), in_one_place(programs, lower, upper).x, atol=1e-6)


def test_an_iteration_takes_three_sums_and_two_maxima(monkeypatch):
    program = random_programs(1, k=4)
    measured, with_measuring = solved(*program)
    monkeypatch.setattr(coupled_kkt, "_TRUSTED", math.inf)
    found, costs = solved(*program)
    steps, a_sum = found.iterations - 1, 2 * GRAPH.radius
    assert found.outcome is Outcome.SOLVED
    assert steps > 5
    # Before: units, and the start. At the end: the residuals of the last point.
    assert costs.rounds == a_sum * (2 + 2 + 3 * steps + 1)
    assert costs.control_rounds == with_measuring.control_rounds == 2 * GRAPH.diameter * steps
    # Some solutions are measured, so that others can be trusted.
    assert measured.iterations == found.iterations
    assert 1 <= (with_measuring.rounds - costs.rounds) / a_sum <= steps


def test_floats_are_those_of_the_schur_complement_and_a_few_vectors(monkeypatch):
    monkeypatch.setattr(coupled_kkt, "_TRUSTED", math.inf)
    k = 4
    (few, cheap), (many, dear) = (solved(*random_programs(seed, k=k)) for seed in (1, 4))
    assert many.iterations > few.iterations
    # Up: the triangle, how the measured number changes, and a vector and a number for each of three right-hand sides.
    # Down: multipliers, sums of A_i x_i, and a number for each.
    up, down = k * (k + 1) // 2 + k + 3 * (k + 1), 3 * (2 * k + 1)
    residuals = 2 * (k + 6)
    # Maxima that travel with sums; those that are agreed on at once count as control rounds only.
    flooded = 2 * len(GRAPH.edges) * GRAPH.diameter * 13
    per_step = (GRAPH.m - 1) * (up + down + residuals) + flooded
    assert dear.floats_sent - cheap.floats_sent == per_step * (many.iterations - few.iterations)


def kkt_solutions(tolerance, regularization, monkeypatch):
    """Solutions of one KKT system with two right-hand sides, and those of the dense matrix."""
    monkeypatch.setattr(direct, "_REGULARIZATION", regularization)
    rng, k = np.random.default_rng(0), 3
    P = [np.diag(np.append(rng.uniform(0.5, 1.0, n - 1), 0.0)) for n in (3, 4)]
    K = [rng.normal(size=(rows, len(each))) for rows, each in zip((2, 1), P, strict=True)]
    A = [rng.normal(size=(k, len(each))) for each in P]
    system = SchurKKT(_Sums(gs.network.Local(gs.Graph.path(2))), list(map(DirectKKT, P, K)), A)
    weights = np.concatenate([[np.inf, np.inf, 2.0], [np.inf, 3.0, 0.5], rng.uniform(size=7)])
    weights[-1] = weights[-5] = 0.0
    system.factor(weights, np.isinf(weights))
    rights = [(rng.normal(size=7), rng.normal(size=6)) for _ in range(2)]
    slopes = rng.normal(size=7), np.append(np.zeros(k), rng.normal(size=3))
    measure = Measure(lambda j, dx, y, values: j + slopes[0] @ dx + slopes[1] @ y, *slopes)
    found = system.solve(rights, measure, [(tolerance, tolerance)] * 2)
    rows = np.vstack([np.hstack(A), block_diag(*K)])
    inverses = np.where(np.isinf(weights[:6]), 0.0, 1 / weights[:6])
    matrix = np.block([[block_diag(*P) + np.diag(weights[6:]), rows.T], [rows, -np.diag(inverses)]])
    expected = [np.split(np.linalg.solve(matrix, np.concatenate(right)), [7]) for right in rights]
    for j, each in enumerate(found):
        np.testing.assert_allclose(each.values, np.concatenate([rows @ each.dx, each.dx]), atol=1e-10)
        assert each.measured == pytest.approx(j + slopes[0] @ each.dx + slopes[1] @ each.y)
    return max(np.abs(each.dx - dx).max() for each, (dx, _) in zip(found, expected, strict=True))


def test_solutions_are_corrected_until_they_are_accurate(monkeypatch):
    """Blocks that are singular but for the coupling, and a regularization that is large."""
    assert kkt_solutions(1e-10, 1e-8, monkeypatch) <= 1e-9
    assert kkt_solutions(1e-7, 1e-3, monkeypatch) <= 1e-6
    monkeypatch.setattr(coupled_kkt, "_CORRECTIONS", 0)
    assert kkt_solutions(1e-7, 1e-3, monkeypatch) >= 1e-4


def test_quadratic_problems_become_programs():
    rng = np.random.default_rng(0)
    losses = [
        gs.losses.Quadratic(np.diag([1.0, 2.0]), rng.normal(size=2)),
        gs.losses.LeastSquares(np.eye(3), np.ones(3)),
    ]
    domains = [gs.domains.Box(-1.0, 1.0, penalty=gs.L1(0.1)), gs.domains.Simplex(1.0)]
    shared = gs.Coupled([np.ones((1, 2)), np.ones((1, 3))], 0.5, sense="<=")
    problem = gs.Problem(losses, domains, mu=0.2, coupling=shared)
    found, _ = solved(agent_programs(problem), shared.lower, shared.upper, gs.Graph.path(2))
    assert found.outcome is Outcome.SOLVED
    padded = np.vstack([np.append(found.x[0], 0.0), found.x[1]])
    # No direction within the sets that fulfils the constraint descends.
    for _ in range(200):
        other = problem.domain.project(padded + 0.1 * rng.normal(size=padded.shape))
        if sum(x.sum() for x in problem.blocks(other)) <= 0.5:
            assert problem.objective(other).sum() >= problem.objective(padded).sum() - 1e-8
    assert agent_programs(gs.Problem(losses, [gs.domains.L2Ball(1.0)] * 2, coupling=shared)) is None


def test_a_singular_block_is_told_to_all(monkeypatch):
    """One agent that cannot factor its block ends the search for all, instead of leaving them waiting."""
    programs, lower, upper = random_programs(0)
    factor = SchurKKT.factor

    def fails(self, weights, is_equation):
        self._blocks[0].factor = lambda *unused: (_ for _ in ()).throw(RuntimeError("singular"))
        factor(self, weights, is_equation)

    monkeypatch.setattr(SchurKKT, "factor", fails)
    assert solved(programs, lower, upper)[0].outcome is Outcome.INACCURATE


@pytest.fixture(scope="module")
def alone():
    """What the agents find in one process."""
    return mpi_coupled.perform(gs.network.Local(mpi_coupled.GRAPH))[1]


def check_common(found, alone):
    """The same outcomes and points as in one process."""
    for name, (outcome, common, points) in found.items():
        expected, numbers, x = alone[name]
        assert outcome == expected, name
        assert points.keys() <= set(range(len(x)))
        if name in ("solved", "SharedRows", "NeighbourRows"):
            for i, point in points.items():
                np.testing.assert_allclose(point, x[i], atol=1e-7)
            np.testing.assert_allclose(common[2:], numbers[2:], atol=1e-6)


@needs_mpi
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_processes_of_mpi(ranks, alone, tmp_path):
    told = []
    for arrays in arrays_of(ranks, "mpi_coupled.py", tmp_path):
        names = [key.split("|") for key in arrays if key.count("|") == 1]
        told.append({name: (outcome, arrays[f"{name}|{outcome}"]) for name, outcome in names})
        points = {name: {} for name, _ in names}
        for key in [key for key in arrays if key.count("|") == 2]:
            points[key.split("|")[0]][int(key.split("|")[2])] = arrays[key]
        check_common({name: (*each, points[name]) for name, each in told[-1].items()}, alone)
    for other in told[1:]:
        for name, (outcome, common) in other.items():
            assert outcome == told[0][name][0]
            np.testing.assert_array_equal(common, told[0][name][1])


def test_peers(alone):
    def act(i, network):
        return mpi_coupled.perform(network)

    results = peers_agents.all_well(peers_agents.together(mpi_coupled.GRAPH, act))
    for (i,), found in results:
        check_common({name: (*each[:2], {i: each[2][0]}) for name, each in found.items()}, alone)
        for name, each in found.items():
            np.testing.assert_array_equal(each[1], results[0][1][name][1])
