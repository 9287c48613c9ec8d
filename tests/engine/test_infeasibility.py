"""Problems without a solution are called so; problems with one, however hard, never are."""

import numpy as np
import pytest

import gradslide as gs
from gradslide import domains

NO_SOLUTION = (gs.Status.INFEASIBLE, gs.Status.UNBOUNDED, gs.Status.DIVERGED)
METHODS = {"PDS": gs.PDS(), "CondatVu": gs.CondatVu()}


def domain_of(name, d, size=1.0):
    return {
        "free": domains.Free(),
        "nonnegative": domains.NonNegative(),
        "box": domains.Box(-size, size),
        "l2 ball": domains.L2Ball(size),
        "l1 ball": domains.L1Ball(size),
        "simplex": domains.Simplex(size),
        "entropy": domains.EntropySimplex(),
        "group ball": domains.GroupBall(size, [np.arange(0, d, 2), np.arange(1, d, 2)]),
        "halfspace": domains.Halfspace(np.ones(d), size),
        "affine": domains.Affine(np.ones((1, d)), np.array([size])),
        "l1 penalty": domains.Free(penalty=gs.L1(0.1)),
    }[name]


DOMAINS = (
    "free",
    "nonnegative",
    "box",
    "l2 ball",
    "l1 ball",
    "simplex",
    "entropy",
    "group ball",
    "halfspace",
    "affine",
    "l1 penalty",
)
COMPACT = ("box", "l2 ball", "l1 ball", "simplex", "entropy", "group ball")
SENSES = ("==", "<=", ">=", "interval")


def loss_of(rng, d, kind):
    if kind == "linear":
        return gs.losses.Linear(rng.normal(size=d))
    if kind == "logistic":
        return gs.losses.Logistic(rng.normal(size=(4 * d, d)), rng.choice([-1, 1], size=4 * d), agents=1)
    root = rng.normal(size=(d, d if kind == "quadratic" else 1))
    return gs.losses.Quadratic(root @ root.T, root @ rng.normal(size=root.shape[1]))


def solve_with_an_end(problem, method, stop):
    """A loop without end would end here, as STOPPED."""
    return gs.solve(problem, method=method, stop=stop, callback=lambda record, x: record.iteration >= 3000)


def contradiction(seed, name, sense, kind, mu):
    """<a, x> is asked to have two values."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 7))
    domain = domain_of(name, d)
    x = domain.bind(1, d, np.float64).project(rng.normal(size=(1, d)))[0]
    a, extra, margin = rng.normal(size=d), rng.normal(size=(int(rng.integers(3)), d)), 10.0 ** rng.uniform(-1, 1)
    one, other, rest = a @ x, a @ x + margin, extra @ x
    opposed = np.vstack([a, -a, extra])
    A, given = {
        "==": (np.vstack([a, a, extra]), {"b": np.r_[one, other, rest]}),
        "<=": (opposed, {"b": np.r_[one, -other, rest], "sense": "<="}),
        ">=": (opposed, {"b": np.r_[other, -one, rest], "sense": ">="}),
        "interval": (
            np.vstack([a, a, extra]),
            {"lower": np.r_[other, -np.inf, rest - 1], "upper": np.r_[other + 1, one, rest + 1]},
        ),
    }[sense]
    return gs.LinearlyConstrained(loss_of(rng, d, kind), A, domain=domain, mu=mu, **given)


@pytest.mark.covering
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("sense", SENSES)
@pytest.mark.parametrize("name", DOMAINS)
def test_contradictions_are_called_infeasible(name, sense, method):
    for seed, (kind, mu) in enumerate([("linear", 0.0), ("quadratic", 0.0), ("logistic", 0.1)]):
        problem = contradiction(seed, name, sense, kind, mu)
        for stop in (None, gs.Stop(residual=1e-9)):
            assert solve_with_an_end(problem, method, stop).status is gs.Status.INFEASIBLE, (seed, kind, mu)


@pytest.mark.covering
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("name", COMPACT)
def test_constraints_out_of_reach_of_the_set_are_called_infeasible(name, method):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        domain = domain_of(name, 4)
        a = rng.uniform(0.5, 1, size=4)
        most = -float(domain.bind(1, 4, np.float64).linear_minimum(-a[None])[0])
        out, within = most + rng.uniform(0.1, 1), most - 1e-3
        loss = gs.losses.Quadratic(np.eye(4), rng.normal(size=4))
        for given in ({"b": out}, {"b": out, "sense": ">="}, {"lower": out, "upper": out + 1}):
            problem = gs.LinearlyConstrained(loss, a[None], domain=domain, **given)
            assert solve_with_an_end(problem, method, None).status is gs.Status.INFEASIBLE
        # Just within reach it is not.
        problem = gs.LinearlyConstrained(loss, a[None], within, domain, sense=">=")
        stop = gs.Stop(residual=1e-9, operator_products=3000, iterations=1000)
        assert gs.solve(problem, method=method, stop=stop).status not in NO_SOLUTION


def test_the_nonnegative_orthant_can_be_out_of_reach_too():
    problem = gs.LinearlyConstrained(
        gs.losses.Quadratic(np.eye(3), np.ones(3)), [[1.0, 2.0, 3.0]], -1.0, domains.NonNegative()
    )
    for method in METHODS.values():
        assert solve_with_an_end(problem, method, None).status is gs.Status.INFEASIBLE


def hard(seed):
    """A feasible problem that is bounded below, and a method; of eight ways of being hard, in turn."""
    rng = np.random.default_rng(seed)
    way = seed % 8
    d = int(rng.integers(2, 9))
    k = int(rng.integers(1, d + 1))
    size = 10.0 ** rng.uniform(-2, 4) if way in (0, 3) else 1.0
    name = DOMAINS[int(rng.integers(9))]
    domain = domain_of(name, d, size)
    bound = domain.bind(1, d, np.float64)
    A, x = rng.normal(size=(k, d)), bound.project(size * rng.normal(size=(1, d)))[0]
    if way == 0:  # badly scaled
        A = A * 10.0 ** rng.uniform(-3, 3, size=(k, 1)) * 10.0 ** rng.uniform(-2, 2, size=d)
    elif way == 1:  # nearly parallel rows
        A = rng.normal(size=d) + 10.0 ** rng.uniform(-6, -1) * rng.normal(size=(max(2, k), d))
    elif way == 2:  # a single point is feasible
        A = rng.normal(size=(d, d)) * 10.0 ** rng.uniform(-2, 0, size=d)
    elif way == 3:  # far away
        x = bound.project(1e3 * size * rng.normal(size=(1, d)))[0]
    elif way == 4 and name in COMPACT:  # on the boundary
        x = bound.project(1e6 * rng.normal(size=(1, d)))[0]
    elif way == 5:  # redundant rows
        A = np.vstack([A, A, A.sum(axis=0)])
    v = A @ x
    slack = (rng.random(len(v)) < 0.5) * rng.uniform(0, 1e-3, size=len(v)) * np.abs(v)
    narrow = 1e-6 * np.abs(v)
    given = [
        {"b": v},
        {"b": v + slack, "sense": "<="},
        {"b": v - slack, "sense": ">="},
        {"lower": v - narrow, "upper": np.where(rng.random(len(v)) < 0.3, np.inf, v + narrow)},
    ][0 if way == 2 else int(rng.integers(4))]
    if way == 6:  # equations as pairs of inequalities: a vertex, with multipliers that are not unique
        A, given = np.vstack([A, -A]), {"b": np.r_[v, -v], "sense": "<="}
    kinds = ("linear", "quadratic", "flat", "logistic") if name in COMPACT else ("quadratic",)
    kind, mu = kinds[int(rng.integers(len(kinds)))], float(rng.choice([0, 0, 0.1]))
    problem = gs.LinearlyConstrained(loss_of(rng, d, kind), A, domain=domain, mu=mu, **given)
    # R far too small or too large
    R = 10.0 ** rng.uniform(-5, 5) if way == 7 else [None, None, 1e-3, 1e3][int(rng.integers(4))]
    return problem, R, f"seed {seed}, way {way}: {name} of size {size:.3g}, {kind}, mu={mu}, R={R}, {sorted(given)}"


@pytest.mark.first(1)
@pytest.mark.parametrize("block", range(20))
def test_240_hard_problems_are_not_called_unsolvable(block):
    stop = gs.Stop(operator_products=1500, iterations=300)
    for seed in range(12 * block, 12 * block + 12):
        problem, R, label = hard(seed)
        for method in (gs.PDS(R=R), gs.CondatVu(ratio=R)):
            solution = gs.solve(problem, method=method, stop=stop, record_every=1 + 6 * (seed % 3 == 0))
            assert solution.status not in NO_SOLUTION, f"{label}, {type(method).__name__}"


LONG = gs.Stop(operator_products=18_000, iterations=1000)


@pytest.mark.covering
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("eps", [1e-1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize(
    ("kind", "domain_of_size", "mu"),
    [
        ("square", lambda size: domains.Free(), 0.0),
        ("square", lambda size: domains.NonNegative(), 0.0),
        ("slope", lambda size: domains.Free(), 1.0),
        ("slope", lambda size: domains.Box(0, size), 0.0),
        ("slope", lambda size: domains.L2Ball(size), 0.0),
    ],
)
def test_lines_that_cross_far_away_are_not_called_infeasible(kind, domain_of_size, mu, eps, method):
    """x_1 = 0 and x_1 + eps x_2 = 1: the only point is (0, 1/eps)."""
    loss = gs.losses.Quadratic(np.eye(2), np.zeros(2)) if kind == "square" else gs.losses.Linear([1.0, 1.0])
    problem = gs.LinearlyConstrained(loss, [[1.0, 0.0], [1.0, eps]], [0.0, 1.0], domain_of_size(2 / eps), mu)
    assert gs.solve(problem, method=method, stop=LONG).status not in NO_SOLUTION, problem


@pytest.mark.covering
@pytest.mark.parametrize("method", [*METHODS.values(), gs.PDS(R=1e-3), gs.PDS(R=1e3)])
@pytest.mark.parametrize("eps", [1e-2, 1e-3, 1e-4, 1e-5, 1e-7, 1e-9])
def test_linear_programs_with_a_far_vertex_are_not_called_unbounded(eps, method):
    """max x_1 + x_2 with x_1 + eps x_2 <= 1, x >= 0 is at (0, 1/eps); likewise a row for each."""
    loss = gs.losses.Linear([-1.0, -1.0])
    for A, b, domain in (
        ([[1.0, eps]], [1.0], domains.NonNegative()),
        ([[1.0, 0.0], [0.0, eps]], [1.0, 1.0], domains.Free()),
    ):
        problem = gs.LinearlyConstrained(loss, A, b, domain, sense="<=")
        assert gs.solve(problem, method=method, stop=LONG).status not in NO_SOLUTION


@pytest.mark.covering
@pytest.mark.parametrize("method", [*METHODS.values(), gs.PDS(R=1e-3)])
@pytest.mark.parametrize("eps", [1e-2, 1e-4, 1e-6])
def test_flat_problems_with_a_far_solution_are_not_called_unbounded(eps, method):
    flat = gs.losses.Quadratic(np.diag([1.0, eps]), [0.0, -1.0])
    half_flat = gs.losses.Quadratic(np.diag([1.0, 0.0]), [-1.0, -1.0])
    large = gs.losses.Linear([0.0, -1.0])
    for problem in (
        gs.LinearlyConstrained(flat, [[1.0, 0.0]], [1.0]),
        gs.LinearlyConstrained(half_flat, [[1.0, eps]], [1.0], domains.NonNegative(), sense="<="),
        gs.Saddle(large, [[1.0, 0.0], [0.0, eps]], dual_domain=domains.L2Ball(2 / eps)),
        gs.Saddle(large, np.diag([1.0, eps]), gs.terms.Linear([0.0, 1.0]), dual_domain=domains.Box(0, 2 / eps)),
    ):
        stop = gs.Stop(operator_products=5000, iterations=1000)
        assert gs.solve(problem, method=method, stop=stop).status not in NO_SOLUTION


def unbounded_problems():
    rng = np.random.default_rng(0)
    A, b, c = rng.normal(size=(2, 4)), rng.normal(size=2), 5 * rng.normal(size=4)
    flat = gs.losses.Quadratic(np.diag([1.0, 1.0, 0.0, 0.0]), [1.0, 1.0, -1.0, 1.0])
    falling = gs.losses.Linear([-1.0, -1.0, 1.0, 1.0])
    orthant = domains.NonNegative()
    return {
        "linear, free": gs.LinearlyConstrained(gs.losses.Linear(c), A, b),
        "linear, free, <=": gs.LinearlyConstrained(gs.losses.Linear(c), A, b, sense="<="),
        "linear, orthant": gs.LinearlyConstrained(falling, [[1.0, -1.0, 0.0, 0.0]], [0.0], orthant),
        "linear, orthant, >=": gs.LinearlyConstrained(falling, [[1.0, 1.0, 0.0, 0.0]], [1.0], orthant, sense=">="),
        "quadratic with a null direction": gs.LinearlyConstrained(flat, [[1.0, 1.0, 0.0, 0.0]], [1.0]),
        "a ball of multipliers, too small": gs.Saddle(gs.losses.Linear(c), A, dual_domain=domains.L2Ball(0.1)),
        "a box of them": gs.Saddle(gs.losses.Linear(c), A, gs.terms.Linear(b), dual_domain=domains.Box(-0.1, 0.1)),
        "a simplex of them": gs.Saddle(gs.losses.Linear(c), A, dual_domain=domains.EntropySimplex()),
        "flat, and a small ball": gs.Saddle(flat, A, dual_domain=domains.L2Ball(0.01)),
    }


@pytest.mark.covering
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("name", unbounded_problems())
def test_unbounded_problems_end(name, method):
    solution = gs.solve(
        unbounded_problems()[name], method=method, stop=gs.Stop(iterations=1000, operator_products=20_000)
    )
    limits = (gs.Status.UNBOUNDED, gs.Status.ITERATION_LIMIT, gs.Status.PRODUCT_LIMIT)
    assert solution.status in limits
    assert np.all(np.isfinite(solution.x))


def test_most_of_them_are_called_unbounded_by_PDS():
    called = [
        name
        for name, problem in unbounded_problems().items()
        if gs.solve(problem, stop=gs.Stop(iterations=600, operator_products=20_000)).status is gs.Status.UNBOUNDED
    ]
    assert len(called) >= 5, called


def test_values_that_overflow_end_as_diverged():
    problem = gs.LinearlyConstrained(gs.losses.Quadratic(np.eye(2), np.ones(2)), [[1.0, 1.0]], [1.0])
    solution = gs.solve(problem, method=gs.PDS(L=1e-6, R=1e-3, norm=1e-6), stop=gs.Stop(iterations=1000))
    assert solution.status is gs.Status.DIVERGED
    assert np.all(np.isfinite(solution.x))


def simple_unbounded_problems():
    """Two variables, and a constraint that the ray to infinity never meets, or runs along."""
    orthant, linear = domains.NonNegative(), gs.losses.Linear
    flat = gs.losses.Quadratic(np.diag([1.0, 0.0])[None], np.array([[0.0, -1.0]]))
    return {
        "-x2, x1 - x2 <= 1": gs.LinearlyConstrained(linear([[0.0, -1.0]]), [[1.0, -1.0]], [1.0], orthant, sense="<="),
        "-x1, x2 - x1 <= 2": gs.LinearlyConstrained(linear([[-1.0, 0.0]]), [[-1.0, 1.0]], [2.0], orthant, sense="<="),
        "-x1, x1 = x2": gs.LinearlyConstrained(linear([[-1.0, 0.0]]), [[1.0, -1.0]], [0.0], orthant),
        "-x1 - x2, x1 - x2 = 1": gs.LinearlyConstrained(linear([[-1.0, -1.0]]), [[1.0, -1.0]], [1.0]),
        "x1 - x2, x1 + x2 >= 1": gs.LinearlyConstrained(linear([[1.0, -1.0]]), [[1.0, 1.0]], [1.0], sense=">="),
        "x2 - x1, x1 + x2 >= 1, half bounded": gs.LinearlyConstrained(
            linear([[-1.0, 1.0]]), [[1.0, 1.0]], [1.0], domains.Box([0.0, -1.0], [np.inf, 1.0]), sense=">="
        ),
        "-x1, x2 = 1, in a half-space": gs.LinearlyConstrained(
            linear([[-1.0, 0.0]]), [[0.0, 1.0]], [1.0], domains.Halfspace(np.array([0.0, 1.0]), 5.0)
        ),
        "x1^2/2 - x2, x1 + x2 >= -1": gs.LinearlyConstrained(flat, [[1.0, 1.0]], [-1.0], sense=">="),
    }


@pytest.mark.parametrize("name", simple_unbounded_problems())
def test_simple_unbounded_problems_are_called_so(name):
    solution = gs.solve(simple_unbounded_problems()[name])
    assert solution.status is gs.Status.UNBOUNDED
