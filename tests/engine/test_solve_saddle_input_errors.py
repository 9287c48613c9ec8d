"""Bad input of saddle point problems and of what solves them: one InputError each, before anything is computed."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from error_messages import check_message

import gradslide as gs
from gradslide.domains import Box, EntropySimplex, Free, L2Ball, PerAgent

RNG = np.random.default_rng(0)
K, N = 3, 4
A = RNG.normal(size=(K, N))
B = A @ np.ones(N)
LOSS = gs.losses.Quadratic(np.eye(N), RNG.normal(size=N))
FEW = gs.Stop(iterations=2)


@dataclass
class Count:
    """How often the loss was asked for a gradient, and A for a product."""

    gradients: int = 0
    products: int = 0


COUNT = Count()


def counted_gradient(x):
    COUNT.gradients += 1
    return x


def counted(matrix):
    def product(v):
        COUNT.products += 1
        return matrix @ v

    return product


WATCHED = gs.losses.Custom(gradient=counted_gradient, smoothness=1.0, agents=1, dimension=N)
CONSTRAINED = gs.LinearlyConstrained(LOSS, A, B)
BOUNDED = gs.Saddle(LOSS, A, domain=L2Ball(3.0), dual_domain=L2Ball(1.0))
UNKNOWN_H = gs.Saddle(LOSS, A, gs.terms.Prox(lambda v, step: v / (1 + step)), domain=L2Ball(3.0))
NETWORKED = gs.Problem(gs.losses.Quadratic(np.stack([np.eye(2)] * 4), RNG.normal(size=(4, 2))))
RING = gs.Graph.ring(4)


@dataclass(frozen=True)
class Gossip:
    """Each step is one exchange with the neighbours."""

    def init(self, context):
        return context.x0

    def step(self, context, state):
        return context.network.combine(state, np.eye(len(state)))

    def output(self, state):
        return state


@dataclass(frozen=True)
class GossipByLaplacian(Gossip):
    def step(self, context, state):
        return state - context.network.combine(state, context.network.laplacian)


@dataclass(frozen=True)
class GossipByBound(Gossip):
    def init(self, context):
        return context.x0 / context.network.norm_bound()


@dataclass(frozen=True)
class GossipByGraph(Gossip):
    def init(self, context):
        return context.x0 / context.network.graph.laplacian_norm


@dataclass(frozen=True)
class NoEvidence(Gossip):
    def step(self, context, state):
        return state


def solve(problem=CONSTRAINED, **options):
    return gs.solve(problem, **{"stop": FEW, "method": gs.PDS(), **options})


def constrained(b=None, A=A, **options):
    return gs.LinearlyConstrained(LOSS, A, b, **options)


def warm(problem=CONSTRAINED, network=None):
    return gs.solve(problem, network, stop=FEW)


# Each: what is wrong, how it comes about, and words that the message must hold (its rule, and the value).
CASES = {
    # Saddle
    "data instead of a loss": (lambda: gs.Saddle(A, A), ["loss", "ndarray"]),
    "a problem instead of a loss": (lambda: gs.Saddle(gs.Problem(LOSS), A), ["loss", "Problem"]),
    "a set that is none": (lambda: gs.Saddle(LOSS, A, domain=(0, 1)), ["domain", "tuple (0, 1)"]),
    "a dual set that is none": (lambda: gs.Saddle(LOSS, A, dual_domain=(0, 1)), ["dual_domain", "tuple (0, 1)"]),
    "a class for a dual set": (lambda: gs.Saddle(LOSS, A, dual_domain=Free), ["dual_domain", "the class Free"]),
    "a set twice": (
        lambda: gs.Saddle(LOSS, A, L2Ball(1.0), dual_domain=L2Ball(1.0)),
        ["indicator", "both", "dual_domain"],
    ),
    "a dual set of x's dimension": (lambda: gs.Saddle(LOSS, A, dual_domain=Box(np.zeros(N))), ["lo", "(4,)"]),
    "two dual sets": (lambda: gs.Saddle(LOSS, A, dual_domain=PerAgent([Free()] * 2)), ["PerAgent", "2 for 1"]),
    "mu negative": (lambda: gs.Saddle(LOSS, A, mu=-1.0), ["mu must be >= 0", "-1.0"]),
    "mu a word": (lambda: gs.Saddle(LOSS, A, mu="x"), ["mu must be >= 0", "'x'"]),
    "norm negative": (lambda: gs.Saddle(LOSS, A, norm=-1.0), ["norm must be >= 0", "-1.0"]),
    "norm NaN": (lambda: gs.Saddle(LOSS, A, norm=math.nan), ["norm must be >= 0", "nan"]),
    "norm infinite": (lambda: gs.Saddle(LOSS, A, norm=math.inf), ["norm must be >= 0", "inf"]),
    "norm a word": (lambda: gs.Saddle(LOSS, A, norm="x"), ["norm must be >= 0", "'x'"]),
    "unknown scaling": (lambda: gs.Saddle(LOSS, A, scaling="row"), ["scaling", "did you mean 'rows'?"]),
    "A for another loss": (lambda: gs.Saddle(LOSS, A.T), ["column for each of the 4", "(4, 3)"]),
    # LinearlyConstrained
    "b and lower": (lambda: constrained(B, lower=0.0), ["give b, or lower and upper", "b given, lower given"]),
    "b and upper": (lambda: constrained(B, upper=0.0), ["give b, or lower and upper", "upper given"]),
    "neither b nor bounds": (lambda: constrained(), ["give b, or lower and upper", "b not given"]),
    "sense misspelt": (lambda: constrained(B, sense="=<"), ["sense", "'=<'", "<=, ==, >="]),
    "sense of another kind": (lambda: constrained(B, sense=1), ["sense", "1"]),
    "sense with bounds": (lambda: constrained(upper=B, sense="<="), ["sense goes with b", "'<='"]),
    "lower above upper": (lambda: constrained(lower=1.0, upper=0.5), ["lower <= upper", "lower=1.0, upper=0.5"]),
    "one row's lower above upper": (lambda: constrained(lower=[0, 2, 0], upper=1.0), ["lower <= upper", "[0, 2, 0]"]),
    "lower infinite": (lambda: constrained(lower=math.inf), ["lower < inf", "inf"]),
    "b infinite": (lambda: constrained(math.inf), ["inf"]),
    "b NaN": (lambda: constrained([0.0, math.nan, 0.0]), ["NaN", "nan"]),
    "b a word": (lambda: constrained("x"), ["must be a number", "'x'"]),
    "b of another length": (lambda: constrained(np.ones(N)), ["3 rows of A", "(4,)"]),
    "b as a column": (lambda: constrained(B[:, None]), ["3 rows of A", "(3, 1)"]),
    "upper of another length": (lambda: constrained(upper=np.ones(N)), ["upper", "3 rows of A", "(4,)"]),
    "bounds of different lengths": (lambda: constrained(lower=[0, 0], upper=[1, 1, 1]), ["fit", "(2,) and (3,)"]),
    # CondatVu
    "ratio zero": (lambda: gs.CondatVu(ratio=0.0), ["ratio must be > 0", "0.0"]),
    "ratio a word": (lambda: gs.CondatVu(ratio="x"), ["ratio must be > 0", "'x'"]),
    "tau alone": (lambda: gs.CondatVu(tau=1.0), ["tau and sigma", "tau=1.0, sigma=None"]),
    "sigma alone": (lambda: gs.CondatVu(sigma=1.0), ["tau and sigma", "tau=None, sigma=1.0"]),
    "ratio and steps": (lambda: gs.CondatVu(ratio=1.0, tau=1.0, sigma=1.0), ["or ratio", "ratio=1.0"]),
    "tau negative": (lambda: gs.CondatVu(tau=-1.0, sigma=1.0), ["tau must be > 0", "-1.0"]),
    "sigma NaN": (lambda: gs.CondatVu(tau=1.0, sigma=math.nan), ["sigma must be > 0", "nan"]),
    "L negative": (lambda: gs.CondatVu(L=-1.0), ["L must be >= 0", "-1.0"]),
    "CondatVu's norm negative": (lambda: gs.CondatVu(norm=-1.0), ["norm must be >= 0", "-1.0"]),
    "unknown coupling": (lambda: gs.CondatVu(coupling="laplace"), ["coupling", "did you mean 'laplacian'?"]),
    "steps too long": (lambda: solve(method=gs.CondatVu(tau=9.0, sigma=9.0)), ["1/tau - sigma", "lower tau"]),
    "a class for a method": (lambda: solve(method=gs.CondatVu), ["CondatVu", "with brackets"]),
    "PDS's norm negative": (lambda: gs.PDS(norm=-1.0), ["||A|| must be >= 0", "-1.0"]),
    # Stop
    "products zero": (lambda: gs.Stop(operator_products=0), ["operator_products", "0"]),
    "products negative": (lambda: gs.Stop(operator_products=-3), ["operator_products", "-3"]),
    "products no whole number": (lambda: gs.Stop(operator_products=1.5), ["operator_products", "1.5"]),
    "products a word": (lambda: gs.Stop(operator_products="x"), ["operator_products", "'x'"]),
    "gap zero": (lambda: gs.Stop(gap=0.0), ["gap", "0.0"]),
    "gap without a lower bound": (
        lambda: solve(stop=gs.Stop(gap=0.1, iterations=2)),
        ["Stop(gap=...) needs a lower bound", "LinearlyConstrained(Quadratic, Free", "residual"],
    ),
    "gap of an h without a maximum": (
        lambda: solve(UNKNOWN_H, stop=gs.Stop(gap=0.1, iterations=2)),
        ["known maximum over Z", "Prox on Free"],
    ),
    "gap with a method that gathers nothing": (
        lambda: solve(BOUNDED, method=NoEvidence(), stop=gs.Stop(gap=0.1, iterations=2)),
        ["a method like PDS", "Saddle"],
    ),
    "residual where A x may be anything": (
        lambda: solve(BOUNDED, stop=gs.Stop(residual=0.1, iterations=2)),
        ["Stop(residual=...) needs A x = b", "Saddle"],
    ),
    "disagreement without agents": (
        lambda: solve(stop=gs.Stop(disagreement=0.1, iterations=2)),
        ["agents on a network", "LinearlyConstrained"],
    ),
    "objective of a loss without a value": (
        lambda: solve(gs.LinearlyConstrained(WATCHED, A, B), stop=gs.Stop(objective=0.0, iterations=2)),
        ["Stop(objective=...) needs a loss that has a value", "Custom"],
    ),
    # Solve
    "a graph": (lambda: solve(network=RING), ["LinearlyConstrained problem has no network", "Local"]),
    "a network": (lambda: solve(network=gs.network.Local(RING)), ["has no network", "Local"]),
    "a method in the network's place": (
        lambda: gs.solve(CONSTRAINED, gs.PDS()),
        ["has no network", "PDS", "method=gs.PDS()"],
    ),
    "a problem of agents without a network": (
        lambda: gs.solve(NETWORKED),
        ["agents need a graph", "none", "gs.Graph."],
    ),
    "a loss for a problem": (lambda: gs.solve(LOSS), ["problem must be", "Quadratic"]),
    "the class for a problem": (lambda: gs.solve(gs.Saddle), ["problem must be", "the class Saddle"]),
    "x0 outside X": (lambda: solve(BOUNDED, x0=np.full(N, 9.0)), ["x0 must lie in the domain", "outside"]),
    "x0 outside the simplex": (
        lambda: solve(gs.Saddle(LOSS, A, domain=EntropySimplex()), x0=np.full(N, -1.0)),
        ["x0 must lie in the domain", "outside"],
    ),
    "x0 of z's shape": (lambda: solve(x0=np.zeros(K)), ["(4,) or (1, 4)", "(3,)"]),
    "x0 NaN": (lambda: solve(x0=np.full(N, np.nan)), ["x0 must be finite", "NaN"]),
    "multipliers of another length": (
        lambda: solve(warm_start=warm(constrained(B[:2], A[:2]))),
        ["multipliers of shape (3,)", "(2,)"],
    ),
    "a solution of agents": (lambda: solve(warm_start=warm(NETWORKED, RING)), ["(4,) or (1, 4)", "(4, 2)"]),
    "a saddle point for agents": (
        lambda: gs.solve(NETWORKED, RING, stop=FEW, warm_start=warm()),
        ["(2,) or (4, 2)", "(1, 4)"],
    ),
    "x0 and a warm start": (lambda: solve(x0=np.zeros(N), warm_start=warm()), ["x0 or warm_start", "both"]),
    "unknown output": (lambda: solve(output="avrage"), ["output", "did you mean 'average'?"]),
    "samples of a loss without rows": (lambda: solve(method=gs.SPDS(N=5)), ["rows", "Quadratic"]),
    # Methods for networks
    "gossip": (lambda: solve(method=Gossip()), ["needs a network", "saddle point problem", "gs.PDS()"]),
    "gossip by the Laplacian": (lambda: solve(method=GossipByLaplacian()), ["needs a network", "saddle point"]),
    "gossip by a bound": (lambda: solve(method=GossipByBound()), ["needs a network", "saddle point"]),
    "gossip by the graph": (lambda: solve(method=GossipByGraph()), ["needs a network", "saddle point"]),
}


@pytest.mark.parametrize(("mistake", "words"), CASES.values(), ids=CASES)
def test_a_mistake_is_named_with_its_rule_its_value_and_a_remedy(mistake, words):
    check_message(mistake, words)


# What is wrong with a run, on a problem that counts what is computed.
BEFORE_ANYTHING = {
    "a graph": lambda problem: gs.solve(problem, RING),
    "a method in the network's place": lambda problem: gs.solve(problem, gs.PDS()),
    "a class for a method": lambda problem: gs.solve(problem, method=gs.PDS),
    "gap": lambda problem: gs.solve(problem, stop=gs.Stop(gap=0.1)),
    "disagreement": lambda problem: gs.solve(problem, stop=gs.Stop(disagreement=0.1)),
    "objective": lambda problem: gs.solve(problem, stop=gs.Stop(objective=0.1)),
    "a callback that is none": lambda problem: gs.solve(problem, callback=3),
}


@pytest.mark.parametrize("case", BEFORE_ANYTHING)
def test_nothing_is_computed_before_a_mistake_is_named(case):
    problem = gs.LinearlyConstrained(WATCHED, (counted(A), counted(A.T)), B)
    COUNT.gradients = COUNT.products = 0
    with pytest.raises(gs.InputError):
        BEFORE_ANYTHING[case](problem)
    assert Count() == COUNT
    gs.solve(problem, stop=FEW)
    assert COUNT.gradients > 0
    assert COUNT.products > 0


@pytest.mark.parametrize("case", ["x0", "multipliers"])
def test_no_gradient_is_computed_before_a_wrong_start_is_named(case):
    problem = gs.LinearlyConstrained(WATCHED, A, B)
    start = {"x0": np.zeros(K)} if case == "x0" else {"warm_start": warm(constrained(B[:2], A[:2]))}
    COUNT.gradients = 0
    with pytest.raises(gs.InputError):
        gs.solve(problem, **start)
    assert COUNT.gradients == 0


def until_30(record, _):
    return record.iteration >= 30


# Limits and targets that can never be reached, since nobody counts or measures them.
ENDLESS = {
    "rounds without a network": lambda: solve(stop=gs.Stop(rounds=3), callback=until_30),
    "samples of exact gradients": lambda: solve(stop=gs.Stop(samples=3), callback=until_30),
    "products on a network": lambda: gs.solve(NETWORKED, RING, stop=gs.Stop(operator_products=3), callback=until_30),
    "objective of an h without a maximum": lambda: solve(UNKNOWN_H, stop=gs.Stop(objective=0.0), callback=until_30),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_stop_that_can_never_come_is_refused(case):
    check_message(ENDLESS[case], [])


@pytest.mark.parametrize("b", [np.ones(N), [0.0, math.nan, 0.0], "x", math.inf])
def test_a_mistake_in_b_is_called_b(b):
    check_message(lambda: constrained(b), ["b must"])


def test_the_same_calls_without_the_mistake_are_taken():
    for right in (
        {"b": B, "sense": ">="},
        {"lower": -math.inf, "upper": [1, 2, 3]},
        {"lower": 0.0},
        {"b": 0, "norm": 9},
    ):
        solve(constrained(**right))
    solve(method=gs.CondatVu(tau=0.01, sigma=0.01))
    solve(warm_start=warm())
    solve(method=NoEvidence())
    solve(BOUNDED, x0=np.ones(N), stop=gs.Stop(gap=0.1, objective=9.0, operator_products=50))
    solve(stop=gs.Stop(residual=0.1, gradients=3))
    gs.solve(NETWORKED, RING, Gossip(), stop=FEW)
