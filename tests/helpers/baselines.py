"""What holds for any method on a network, as checks that the tests of each share."""

import dataclasses
import math

import numpy as np
import pytest
from error_messages import check_message
from paper_twins import iterates
from problems import logistic

import gradslide as gs
from gradslide.theory.reference import reference


def metropolis(graph):
    """1/(1 + max(deg_i, deg_j)), entry by entry."""
    W = np.zeros((graph.m, graph.m))
    for i, j in graph.edges:
        W[i, j] = W[j, i] = 1 / (1 + max(graph.degrees[i], graph.degrees[j]))
    return W + np.diag(1 - W.sum(axis=1))


def smoothness(problem):
    return float(np.max(problem.smoothness())) + problem.mu


def gradient(problem, x):
    """Of ft_i + mu |x - center|^2/2, Euclidean."""
    return problem.loss.gradient(x) + problem.mu * (x - problem.domain.center)


def small_problem(seed=0, domain=None, mu=0.0, make_loss=logistic, m=7, d=3):
    return gs.Problem(make_loss(np.random.default_rng(seed), m, d), domain, mu)


def last_x(problem, graph, method, iterations, **options):
    return gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), record_every=iterations, **options).x


def own_starts(problem, seed=9):
    """A point of its own for each agent, in X."""
    return problem.domain.project(0.3 * np.random.default_rng(seed).normal(size=(problem.m, problem.d)))


def rate_of(errors):
    """The factor per iteration, from the slope of log(error)."""
    return math.exp(np.polyfit(np.arange(len(errors)), np.log(errors), 1)[0])


def strongly_convex_case(graph, kappa=20.0, d=4, seed=0):
    """Unlike quadratics with eigenvalues from 1 (in one direction for all) to kappa, and the minimiser of their sum."""
    rng = np.random.default_rng(seed)
    Q = np.zeros((graph.m, d, d))
    Q[:, 0, 0] = 1
    bases = np.linalg.qr(rng.normal(size=(graph.m, d - 1, d - 1)))[0]
    Q[:, 1:, 1:] = (bases * np.linspace(1, kappa, d - 1)) @ bases.swapaxes(1, 2)
    c = rng.normal(size=(graph.m, d))
    return gs.Problem(gs.losses.Quadratic(Q, c)), np.linalg.solve(Q.sum(axis=0), -c.sum(axis=0))


def check_optimum(case, method, iterations, tolerance, **options):
    """Every agent ends near the optimum."""
    x = last_x(case.problem, case.graph, method, iterations, **options)
    scale = 1 + np.linalg.norm(case.reference.x)
    assert np.max(np.linalg.norm(x - case.reference.x, axis=1)) <= tolerance * scale, case.label


def check_costs(method, *, gradients, rounds, first_gradients=0, first_rounds=0, control_rounds=0, graph=None):
    """What each iteration costs, and what comes before the first; rounds of 3 floats."""
    graph = gs.Graph.random(7, 3, seed=2) if graph is None else graph
    problem = small_problem(m=graph.m)
    solution = gs.solve(problem, graph, method, stop=gs.Stop(iterations=10))
    assert [r.gradients - first_gradients for r in solution.history] == [gradients * k for k in range(1, 11)]
    assert [r.rounds - first_rounds for r in solution.history] == [rounds * k for k in range(1, 11)]
    costs = solution.costs
    assert (costs.samples, costs.values, costs.operator_products) == (0, 0, 0)
    assert costs.control_rounds == control_rounds
    assert costs.floats_sent == (10 * rounds + first_rounds) * 2 * len(graph.edges) * 3


def arrays_of(state):
    return {f.name: v for f in dataclasses.fields(state) if isinstance(v := getattr(state, f.name), np.ndarray)}


def check_resume(method, tmp_path, domain=None):
    problem, graph = small_problem(1, domain, 0.1), gs.Graph.random(7, 3, seed=2)

    def run(iterations, **options):
        return gs.solve(problem, graph, method, stop=gs.Stop(iterations=iterations), **options)

    whole = run(25)
    for iterations in (1, 9, 25):
        part = run(iterations, checkpoint=tmp_path / "run.npz")
    assert all(np.array_equal(part.outputs[name], x) for name, x in whole.outputs.items())
    spent = [dataclasses.replace(solution.costs, seconds=0.0) for solution in (part, whole)]
    assert spent[0] == spent[1]
    assert part.parameters == whole.parameters


def check_norm_is_paid_for_once(method_class, tmp_path):
    """W = I - Lap/norm takes the norm before the first iteration, so a run that goes on does not pay again."""
    network = gs.network.Local(gs.Graph.ring(7), exact_norm=False)
    method, problem, path = method_class(step_size=0.1, mixing="laplacian"), small_problem(), tmp_path / "norm.npz"
    first = gs.solve(problem, network, method_class(step_size=0.1), stop=gs.Stop(iterations=1)).costs.control_rounds
    for iterations in (1, 5, 9):
        solution = gs.solve(problem, network, method, stop=gs.Stop(iterations=iterations), checkpoint=path)
        assert solution.costs.control_rounds == first + network.costs.norm_rounds


def check_states(method, domain=None):
    """float32 stays float32; a copy of a state is as good as the state itself; parameters hold what is tuned."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(21, 3)).astype(np.float32), rng.normal(size=21).astype(np.float32)
    problem = gs.Problem(gs.losses.LeastSquares(features, targets, agents=7), domain, 0.1)
    seen = []

    class Twice(type(method)):
        def step(self, context, state):
            kept = state.copy()
            new = super().step(context, state)
            again = super().step(context, kept)
            for name, array in arrays_of(new).items():
                np.testing.assert_array_equal(array, getattr(again, name))
                assert array.dtype == np.float32
            assert new.k == state.k + 1
            seen.append(new)
            return new

    solution = gs.solve(problem, gs.Graph.ring(7), Twice(**vars(method)), stop=gs.Stop(iterations=5))
    assert len(seen) == 5
    assert solution.x.dtype == np.float32
    assert type(solution.parameters[method.tuned]) is float
    assert solution.parameters[method.tuned] > 0


def check_lone_agent(method, iterations=300, tolerance=1e-6, domain=None, output=None):
    rng = np.random.default_rng(3)
    problem = gs.Problem(gs.losses.LeastSquares(rng.normal(size=(9, 3)), rng.normal(size=9), agents=1), domain)
    solution = gs.solve(
        problem, gs.Graph.path(1), method, stop=gs.Stop(iterations=iterations), output=output, record_every=100
    )
    assert solution.history[-1].objective == pytest.approx(reference(problem).objective, abs=tolerance)
    assert solution.costs.rounds == solution.costs.control_rounds == 0


def check_invariant(method, domain=None):
    """Rows in units of the gradient, which add up to zero; not because they are zero themselves."""
    problem, graph = small_problem(2, domain, 0.2), gs.Graph.random(7, 3, seed=2)
    for state in iterates(problem, graph, method, gs.Stop(iterations=30)):
        rows = method.invariant(state)
        assert rows.shape == (7, 3)
        assert np.max(np.abs(rows.sum(axis=0))) <= 1e-12 * np.abs(rows).sum() + 1e-13
    x = np.tile(reference(problem).x, (7, 1))
    assert np.linalg.norm(rows) > 0.1 * np.linalg.norm(problem.loss.gradient(x))


def check_refusals(method_class, saddle_words=("network",)):
    saddle = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(3), np.ones(3)), np.eye(3), 0.3)
    check_message(lambda: gs.solve(saddle, method=method_class(), stop=gs.Stop(iterations=1)), saddle_words)
    for name in ("step_size", "L"):
        for value in (0.0, -1.0, math.nan, math.inf, "1", True):
            check_message(lambda given={name: value}: method_class(**given), [name, "> 0", repr(value)])
    check_message(lambda: method_class(mixing="metropolys"), ["mixing", "did you mean 'metropolis'?"])
    with pytest.raises(TypeError):
        method_class(0.1)


def check_needs_euclidean(method):
    problem = small_problem(domain=gs.domains.EntropySimplex())
    check_message(
        lambda: gs.solve(problem, gs.Graph.ring(7), method),
        [f"{type(method).__name__} needs a Euclidean domain", "EntropySimplex", "use Simplex"],
    )


UNLIKE = {
    "sets": gs.domains.Box(-np.linspace(0.2, 0.5, 7)[:, None] * np.ones(3), np.full((7, 3), 0.3)),
    "kinds of set": gs.domains.PerAgent([gs.domains.Box(-0.3, 0.4)] * 6 + [gs.domains.L2Ball(0.3)]),
    "penalties": gs.domains.PerAgent([gs.domains.Free(penalty=gs.L1(0.1 * i)) for i in range(7)]),
}


def check_needs_common_domain(method):
    for domain in UNLIKE.values():
        check_message(
            lambda domain=domain: gs.solve(small_problem(domain=domain), gs.Graph.ring(7), method),
            ["for all agents", "Problem(", "gs.NIDS()"],
        )


def check_unlike_domains(method, iterations=1500):
    """Agents with sets or penalties of their own end at the optimum over the intersection, with the mean penalty."""
    domains = {
        "sets": gs.domains.Box(-0.2, 0.3),
        "penalties": gs.domains.Free(penalty=gs.L1(0.3)),
    }
    for name, common in domains.items():
        x = last_x(small_problem(5, UNLIKE[name], 0.1), gs.Graph.random(7, 3, seed=2), method, iterations)
        optimum = reference(small_problem(5, common, 0.1))
        assert np.max(np.abs(x - optimum.x)) <= 1e-6
        # The test means something: without the sets and penalties the answer is another one.
        assert np.max(np.abs(reference(small_problem(5, None, 0.1)).x - optimum.x)) > 0.05


EUCLIDEAN_SEEDS = [seed for seed in range(36) if (seed // 6 + seed) % 12 != 6]


def stepped_twice(problem, network, method, iterations=4):
    """Pairs of states: after each step, and after the same step from a copy of the state before."""
    pairs = []

    class Twice(type(method)):
        def step(self, context, state):
            kept = state.copy()
            first = super().step(context, state)
            pairs.append((first, super().step(context, kept)))
            return first

    gs.solve(problem, network, Twice(**vars(method)), stop=gs.Stop(iterations=iterations))
    return pairs


def check_warm_start(problem, network, method, iterations):
    """Multipliers of an earlier solution bring the next one far closer than its point alone does."""
    first = gs.solve(problem, network, method, stop=gs.Stop(iterations=iterations))
    warm = gs.solve(problem, network, method, stop=gs.Stop(iterations=1), warm_start=first)
    cold = gs.solve(problem, network, method, stop=gs.Stop(iterations=1), x0=first.x)
    x = reference(problem).x
    assert np.linalg.norm(warm.x - x) < 1e-3 * np.linalg.norm(cold.x - x)
    assert warm.costs.rounds == cold.costs.rounds + 1


def check_gradient_steps(method_class, tmp_path):
    """States, checkpoints and the invariant of a method with a step, with and without a set."""
    check_states(method_class(step_size=np.float64(0.1), L=np.float64(2.0)))
    check_states(method_class(), gs.domains.L2Ball(0.5))
    check_resume(method_class(), tmp_path)
    check_norm_is_paid_for_once(method_class, tmp_path)
    check_invariant(method_class())
    check_invariant(method_class(), gs.domains.L2Ball(0.4))
    check_lone_agent(method_class())
    check_lone_agent(method_class(mixing="laplacian"), domain=gs.domains.L2Ball(0.2))
