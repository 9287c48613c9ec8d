"""Condat and Vu's method: iterate by iterate against a naive version, its guarantee, its costs, its step sizes."""

import copy

import numpy as np
import pytest
from problems import logistic
from saddle_problems import SaddleCase, box, constrained_case, free, quadratic, saddle_case

import gradslide as gs
from gradslide.theory.certificates import DualEvidence


def iterates(problem, network, method, iterations):
    """The method's state after each iteration."""
    seen = []

    class Spy(gs.CondatVu):
        def step(self, context, state):
            state = super().step(context, state)
            seen.append(copy.deepcopy(state))
            return state

    gs.solve(problem, network, Spy(**vars(method)), stop=gs.Stop(iterations=iterations))
    return seen


def naive(loss, A, prox_x, prox_z, x, z, tau, sigma, iterations):
    """x+ = prox(x - tau (g + A^T z)), z+ = prox(z + sigma A (2 x+ - x)); x (m, d), z flat; Euclidean."""
    for _ in range(iterations):
        x_new = prox_x(x - tau * (loss.gradient(x) + (A.T @ z).reshape(x.shape)))
        z = prox_z(z + sigma * A @ (2 * x_new - x).reshape(-1))
        x = x_new
        yield x, z


def check_averages(states):
    for k, state in enumerate(states, start=1):
        np.testing.assert_allclose(state.x_bar, np.mean([s.x for s in states[:k]], axis=0), atol=1e-12)
        np.testing.assert_allclose(state.dual_bar.s, np.mean([s.dual.s for s in states[:k]], axis=0), atol=1e-12)


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_a_saddle_point_problem_agrees_with_a_naive_version(mu):
    rng = np.random.default_rng(0)
    smooth, A, b = quadratic(rng, 2, 3), rng.normal(size=(4, 6)), rng.normal(size=4)
    problem = gs.Saddle(smooth.loss, A, gs.terms.Quadratic(0.5, b), gs.domains.Box(-1, 0.5), gs.domains.L2Ball(0.7), mu)
    tau, sigma = 0.02, 0.3

    def prox_x(v):
        return np.clip(v / (1 + tau * mu), -1, 0.5)

    def prox_z(v):
        z = (v - sigma * b) / (1 + sigma * 0.5)
        return z / max(1.0, np.linalg.norm(z) / 0.7)

    states = iterates(problem, None, gs.CondatVu(tau=tau, sigma=sigma), 40)
    views = naive(smooth.loss, A, prox_x, prox_z, problem.start(), np.zeros(4), tau, sigma, 40)
    for state, (x, z) in zip(states, views, strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(state.dual.s[0], z, rtol=1e-10, atol=1e-12)
    check_averages(states)


@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
def test_agents_on_a_network_agree_with_a_naive_version(coupling):
    graph = gs.Graph.random(7, 3, seed=2)
    loss = logistic(np.random.default_rng(1), 7, 3)
    matrix = graph.incidence.toarray().T if coupling == "incidence" else graph.laplacian.toarray()
    A = np.kron(matrix, np.eye(3))
    tau, sigma = 0.05, 0.1
    method = gs.CondatVu(tau=tau, sigma=sigma, coupling=coupling)
    states = iterates(gs.Problem(loss, gs.domains.Box(-0.3, 0.4)), graph, method, 40)
    views = naive(
        loss, A, lambda v: np.clip(v, -0.3, 0.4), lambda z: z, np.zeros((7, 3)), np.zeros(len(A)), tau, sigma, 40
    )
    for state, (x, z) in zip(states, views, strict=True):
        np.testing.assert_allclose(state.x, x, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(state.dual.w, (A.T @ z).reshape(7, 3), rtol=1e-9, atol=1e-12)
    check_averages(states)


def test_constraints_that_make_all_agents_agree_are_the_network():
    graph = gs.Graph.ring(5)
    loss = logistic(np.random.default_rng(2), 5, 3)
    A = np.kron(graph.incidence.toarray().T, np.eye(3))
    method, stop = gs.CondatVu(ratio=0.7, L=2.0, norm=2.0), gs.Stop(iterations=30)
    for domain in (gs.domains.Free(), gs.domains.EntropySimplex()):
        there = gs.solve(gs.Problem(loss, domain), graph, method, stop=stop)
        here = gs.solve(gs.LinearlyConstrained(loss, A, 0.0, domain), method=method, stop=stop)
        np.testing.assert_allclose(here.outputs["last"], there.outputs["last"], rtol=1e-10, atol=1e-12)
        assert there.costs.rounds == 30
        assert here.costs.operator_products == 60


@pytest.mark.covering
@pytest.mark.parametrize("sense", ["==", "<=", "interval"])
@pytest.mark.parametrize("seed", range(4))
def test_it_converges_to_the_exact_solution(sense, seed):
    case = constrained_case(seed, 0.5, make_loss=quadratic, make_x=(box, free)[seed % 2], sense=sense, m=1)
    stop = gs.Stop(iterations=6000)
    solution = gs.solve(case.problem, method=gs.CondatVu(), stop=stop, output="last", record_every=500)
    np.testing.assert_allclose(solution.x, case.x, atol=2e-4, err_msg=case.label)
    assert solution.history[-1].objective == pytest.approx(case.optimum, abs=1e-4)
    assert solution.history[-1].residual < 1e-4
    # Multipliers of active bounds on x and of A x may take turns; their pull on x may not.
    np.testing.assert_allclose(
        case.problem.A.apply_adjoint(solution.dual), case.problem.A.apply_adjoint(case.z), atol=1e-2
    )


@pytest.mark.slow
def test_agents_reach_consensus_at_the_optimum():
    graph, loss = gs.Graph.ring(6), logistic(np.random.default_rng(3), 6, 3)
    problem = gs.Problem(loss, gs.domains.L2Ball(0.5), mu=0.1)
    optimum = gs.reference.reference(problem).objective
    for coupling in ("incidence", "laplacian"):
        stop = gs.Stop(iterations=3000)
        solution = gs.solve(problem, graph, gs.CondatVu(coupling=coupling), stop=stop, output="last")
        assert solution.history[-1].objective == pytest.approx(optimum, abs=1e-6)
        assert solution.history[-1].disagreement < 1e-5


class Averages(gs.CondatVu):
    """Measures the gap of the averages."""

    def dual_evidence(self, state):
        return (DualEvidence(state.y_bar, state.conjugate_bar, state.dual_bar),)


def worst_share(case: SaddleCase, *, L: float, A_norm: float) -> float:
    """The largest gap of the averages, as a share of (V/tau + U/sigma)/k."""
    sigma = 1.3 / A_norm
    tau = 1 / (L + sigma * A_norm**2)
    method = Averages(tau=tau, sigma=sigma, L=L, norm=A_norm)
    solution = gs.solve(case.problem, method=method, stop=gs.Stop(iterations=80), output="average")
    bound = case.V / tau + case.U / sigma
    return max(record.iteration * (record.gap - 1e-9) / bound for record in solution.history)


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(4))
def test_the_gap_of_the_averages_keeps_its_bound_over_100_problems(block):
    for seed in range(25 * block, 25 * block + 25):
        case = saddle_case(seed, (0.0, 0.0, 0.3)[seed // 8 % 3])
        assert worst_share(case, L=case.L, A_norm=case.problem.operator_norm()) <= 1, f"seed {seed}: {case.label}"


def test_the_gap_breaks_its_bound_when_L_or_the_norm_is_ten_times_too_small():
    broken = {"L": 0, "norm": 0}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(4, 5))
        for name, share, radius in (("L", 1.0, 0.01), ("norm", 0.01, 1.0)):
            base = quadratic(rng, 1, 5).loss
            loss = gs.losses.Quadratic(share * base._Q, base._c)
            sets = gs.domains.L2Ball(10.0), gs.domains.L2Ball(radius)
            case = SaddleCase(gs.Saddle(loss, A, None, *sets), name, lambda: 0.0)
            L, A_norm = case.L, case.problem.operator_norm()
            assert worst_share(case, L=L, A_norm=A_norm) <= 1
            wrong = {"L": L / 10, "A_norm": A_norm} if name == "L" else {"L": L, "A_norm": A_norm / 10}
            broken[name] += worst_share(case, **wrong) > 1
    assert min(broken.values()) >= 3, broken


def test_an_iteration_takes_one_gradient_and_two_products():
    case = constrained_case(0, make_loss=quadratic, make_x=box, sense="==", m=1)
    for method, more in ((gs.CondatVu(ratio=1.0, norm=10.0), 0), (gs.CondatVu(), 1)):
        solution = gs.solve(case.problem, method=method, stop=gs.Stop(iterations=20))
        assert solution.costs.gradients == 20 + more
        assert solution.costs.values == 20
        steps = np.diff([record.operator_products for record in solution.history])
        assert set(steps) == {2}
    alone = gs.solve(case.problem, method=gs.CondatVu(ratio=1.0, norm=10.0), stop=gs.Stop(iterations=20)).costs
    assert alone.operator_products == 40


@pytest.mark.parametrize("domain", [gs.domains.Box(-1, 1), gs.domains.EntropySimplex()])
def test_steps_that_are_too_long_are_refused(domain):
    """1/tau - sigma ||A||^2 >= L/2 in Euclidean geometry, L in others."""
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(4 * np.eye(3), np.zeros(3)), np.eye(3), 0.3, domain)
    A_norm, least = 1.0, 2.0 if domain.euclidean else 4.0
    sigma = 0.5
    longest = 1 / (least + sigma * A_norm**2)
    stop = gs.Stop(iterations=2)
    gs.solve(problem, method=gs.CondatVu(tau=longest, sigma=sigma, norm=A_norm), stop=stop)
    for tau, step in ((1.01 * longest, sigma), (longest, 1.05 * sigma)):
        with pytest.raises(gs.InputError, match="must be at least"):
            gs.solve(problem, method=gs.CondatVu(tau=tau, sigma=step, norm=A_norm), stop=stop)


@pytest.mark.parametrize(
    "given",
    [
        {"tau": 0.1},
        {"sigma": 0.1},
        {"tau": 0.1, "sigma": 0.1, "ratio": 1.0},
        {"ratio": 0.0},
        {"tau": -1.0, "sigma": 1.0},
        {"L": -1.0},
        {"norm": -1.0},
        {"coupling": "edges"},
    ],
)
def test_parameters_that_do_not_fit_are_refused(given):
    with pytest.raises(gs.InputError):
        gs.CondatVu(**given)


def test_a_linear_loss_gives_the_method_of_chambolle_and_pock():
    """tau sigma ||A||^2 = 1 is allowed for L = 0."""
    rng = np.random.default_rng(4)
    A, c = rng.normal(size=(3, 5)), rng.normal(size=5)
    A_norm = float(np.linalg.norm(A, 2))
    problem = gs.LinearlyConstrained(gs.losses.Linear(c), A, A @ np.full(5, 0.3), gs.domains.Box(0, 1))
    solution = gs.solve(problem, method=gs.CondatVu(ratio=1.0, norm=A_norm), stop=gs.Stop(iterations=5))
    assert solution.parameters["tau"] * solution.parameters["sigma"] * A_norm**2 == pytest.approx(1)
    assert solution.parameters["L"] == 0
