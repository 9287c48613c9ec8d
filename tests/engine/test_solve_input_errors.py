"""Bad input: each mistake is one InputError that names the rule, the value and the remedy."""

import math
from functools import partial

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from error_messages import check_message
from specs import write_spec

import gradslide as gs
from gradslide.data import split
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import read_spec

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 3))
LABELS = RNG.choice([-1, 1], size=16)
LOSS = gs.losses.Logistic(X, LABELS, agents=4)
PROBLEM = gs.Problem(LOSS, gs.domains.L2Ball(1.0))
RING = gs.Graph.ring(4)
PDS = gs.PDS(L=1.0, R=1.0)
FEW = gs.Stop(iterations=2)


def with_nan(array, value=np.nan):
    array = np.array(array, dtype=float)
    array.flat[1] = value
    return array


def solve(problem=PROBLEM, network=RING, method=PDS, **options):
    return gs.solve(problem, network, method, **{"stop": FEW, **options})


def one_agent_each(i):
    return LOSS.take([0, 1])


class Untold:
    """Callable, but with no signature, as some compiled functions."""

    __signature__ = 3

    def __call__(self, record, x):
        return None


def three_arguments(record, x, more):
    return None


# Each: what is wrong, how it comes about, and words that the message must hold (its rule, and the value).
CASES = {
    # Graphs
    "disconnected graph": (lambda: gs.Graph.from_edges(4, [(0, 1), (2, 3)]), ["connected", "2 components"]),
    "edges before m": (
        lambda: gs.Graph.from_edges([(0, 1)], 2),
        ["m comes first", "swap them: Graph.from_edges(2, pairs)"],
    ),
    "edges before m, to the class": (lambda: gs.Graph(np.array([[0, 1]]), 2), ["m comes first", "swap them"]),
    "no edges but a number": (lambda: gs.Graph.from_edges(2, 3), ["pairs of whole numbers", "int 3"]),
    "m is text": (lambda: gs.Graph.ring("4"), ["whole number", "str '4'", "for example m=10"]),
    "directed networkx graph": (lambda: solve(network=nx.DiGraph([(0, 1)])), ["undirected", "to_undirected"]),
    "penalty as a domain": (
        lambda: gs.Problem(LOSS, gs.L1(0.1)),
        ["domain", "the penalty L1", "gs.domains.Free(penalty=gs.L1(...))"],
    ),
    "kind of penalty as a domain": (lambda: gs.Problem(LOSS, domain=gs.GroupL1), ["Free(penalty=gs.GroupL1(...))"]),
    "penalty as an agent's domain": (lambda: gs.domains.PerAgent([gs.L1(0.1)]), ["domains[0]", "Free(penalty=gs.L1"]),
    "penalty as the domain of a saddle": (
        lambda: gs.LinearlyConstrained(LOSS.take([0]), np.ones((1, LOSS.d)), 0.0, gs.ElasticNet(1.0, 1.0)),
        ["Free(penalty=gs.ElasticNet(...))"],
    ),
    "callback of one argument": (
        lambda: solve(callback=lambda record: None),
        ["callback must take two arguments", "<lambda>(record)", "def callback(record, x)"],
    ),
    "callback of three arguments": (lambda: solve(callback=three_arguments), ["three_arguments(record, x, more)"]),
    "graph without edges": (lambda: gs.Graph.from_edges(3, []), ["connected", "3 components"]),
    "empty graph": (lambda: gs.Graph.from_edges(0, []), ["at least 1", "0"]),
    "empty networkx graph": (lambda: gs.Graph.from_networkx(nx.Graph()), ["at least 1", "0"]),
    "self-loop": (lambda: gs.Graph.from_edges(2, [(0, 1), (1, 1)]), ["own neighbour", "[1, 1]"]),
    "networkx self-loop": (lambda: gs.Graph.from_networkx(nx.Graph([(0, 1), (1, 1)])), ["own neighbour", "[1, 1]"]),
    "directed graph": (
        lambda: gs.Graph.from_networkx(nx.DiGraph([(0, 1)])),
        ["undirected", "directed", "to_undirected"],
    ),
    "both directions": (lambda: gs.Graph.from_edges(2, [(0, 1), (1, 0)]), ["once", "(0, 1)"]),
    "parallel edges": (lambda: gs.Graph.from_networkx(nx.MultiGraph([(0, 1), (0, 1)])), ["once", "(0, 1)"]),
    "agent out of range": (lambda: gs.Graph.from_edges(3, [(0, 5)]), ["0 to 2", "5"]),
    "edges of three": (lambda: gs.Graph.from_edges(3, [(0, 1, 2)]), ["pairs", "(1, 3)"]),
    "edges of floats": (lambda: gs.Graph.from_edges(3, [(0.5, 1.0)]), ["whole numbers", "float64"]),
    "ragged edges": (lambda: gs.Graph.from_edges(3, [(0, 1), (2,)]), ["pairs"]),
    "negative weight": (lambda: gs.Graph.from_edges(2, [(0, 1)], [-2.0]), ["positive", "-2.0"]),
    "NaN as weight": (lambda: gs.Graph.from_edges(2, [(0, 1)], [math.nan]), ["finite", "nan"]),
    "too many weights": (lambda: gs.Graph.from_edges(2, [(0, 1)], [1.0, 2.0]), ["one value per edge", "(2,)"]),
    "m is no whole number": (lambda: gs.Graph.ring(4.5), ["whole number", "4.5"]),
    "degree too high": (lambda: gs.Graph.random(5, 7), ["max_degree", "7"]),
    "odd regular graph": (lambda: gs.Graph.regular(5, 3), ["even", "m = 5, degree = 3"]),
    "radius that does not connect": (lambda: gs.Graph.geometric(9, radius=1e-3), ["connected", "9 components"]),
    "negative seed": (lambda: gs.Graph.random(9, 3, seed=-1), ["seed", "-1"]),
    "no such edge list": (lambda: gs.Graph.load("none.edges"), ["none.edges"]),
    # Data and losses
    "NaN in features": (lambda: gs.losses.Logistic(with_nan(X), LABELS, agents=4), ["features", "1 NaN"]),
    "NaN in sparse features": (
        lambda: gs.losses.Logistic(sp.csr_array(with_nan(X)), LABELS, agents=4),
        ["features", "1 NaN"],
    ),
    "infinity in features": (lambda: gs.losses.Logistic(with_nan(X, np.inf), LABELS, agents=4), ["finite", "1 "]),
    "NaN in labels": (lambda: gs.losses.Logistic(X, with_nan(LABELS), agents=4), ["labels", "1 NaN"]),
    "NaN in targets": (lambda: gs.losses.LeastSquares(X, with_nan(LABELS), agents=4), ["targets", "1 NaN"]),
    "NaN in a quadratic": (lambda: gs.losses.Quadratic(with_nan(np.eye(2)), np.ones(2)), ["Q", "1 NaN"]),
    "NaN in weights": (
        lambda: gs.losses.Logistic(X, LABELS, agents=4, sample_weight=with_nan(np.ones(16))),
        ["sample_weight", "1 NaN"],
    ),
    "labels 1 and 2": (lambda: gs.losses.Logistic(X, LABELS % 3, agents=4), ["{-1, 1} or {0, 1}", "[1, 2]"]),
    "labels -1, 0 and 1": (
        lambda: gs.losses.SmoothedHinge(X, np.resize([-1, 0, 1], 16), agents=4),
        ["{-1, 1} or {0, 1}", "[-1, 0, 1]"],
    ),
    "labels as words": (lambda: gs.losses.Logistic(X, LABELS.astype(str), agents=4), ["real numbers", "<U"]),
    "negative class": (lambda: gs.losses.Softmax(X, LABELS, agents=4), ["0..K-1", "[-1, 1]"]),
    "labels too few": (lambda: gs.losses.Logistic(X, LABELS[:5], agents=4), ["labels", "16", "(5,)"]),
    "features in one dimension": (lambda: gs.losses.Logistic(X[:, 0], LABELS, agents=4), ["2-D", "(16,)"]),
    "ragged features": (lambda: gs.losses.Logistic([[1.0, 2.0], [3.0]], [1, -1], agents=2), ["features"]),
    "Q and c that do not fit": (lambda: gs.losses.Quadratic(np.eye(3), np.ones(2)), ["(3,)", "(2,)"]),
    "Q not convex": (lambda: gs.losses.Quadratic(-np.eye(2), np.ones(2)), ["semidefinite", "-1"]),
    "more agents than rows": (lambda: gs.losses.Logistic(X, LABELS, agents=17), ["row", "17 agents for 16 rows"]),
    "split over more agents than rows": (lambda: split("contiguous", LABELS, 17), ["row", "17 agents and 16 rows"]),
    "no agents": (lambda: gs.losses.Logistic(X, LABELS, agents=0), ["at least 1", "0"]),
    "agent without rows": (
        lambda: gs.losses.Logistic(X, LABELS, splits=[[0, 1], []]),
        ["at least one row", "agent 1"],
    ),
    "row that does not exist": (lambda: gs.losses.Logistic(X, LABELS, splits=[[0], [16]]), ["0..15", "16"]),
    "agents and splits": (lambda: gs.losses.Logistic(X, LABELS, agents=1, splits=[[0]]), ["not both", "both"]),
    "negative sample weight": (
        lambda: gs.losses.Logistic(X, LABELS, agents=4, sample_weight=-np.ones(16)),
        ["sample_weight", "-1"],
    ),
    "negative Huber width": (lambda: gs.losses.Huber(X, LABELS, delta=-2, agents=4), ["delta", "-2"]),
    "unknown reduction": (lambda: gs.losses.Logistic(X, LABELS, agents=4, reduction="avg"), ["reduction", "'avg'"]),
    "unknown split": (lambda: split("contigous", LABELS, 2), ["split", "did you mean 'contiguous'?"]),
    "unknown data set": (lambda: gs.data.get("ijcnn2"), ["data set", "did you mean 'ijcnn1'?"]),
    # Domains and penalties
    "negative radius": (lambda: gs.domains.L2Ball(-1.5), ["radius", "-1.5"]),
    "negative radius of one agent": (lambda: gs.domains.L1Ball(np.array([1.0, -2.5])), ["radius", "-2.5"]),
    "NaN as radius": (lambda: gs.domains.L2Ball(math.nan), ["radius", "nan"]),
    "box upside down": (lambda: gs.domains.Box(1.0, 0.5), ["lo", "lo=1.0, hi=0.5"]),
    "simplex of negative sum": (lambda: gs.domains.Simplex(-1.0), ["total", "-1.0"]),
    "halfspace without direction": (lambda: gs.domains.Halfspace(np.zeros(3), 1.0), ["zero", "0."]),
    "equations that contradict": (
        lambda: gs.Problem(LOSS, gs.domains.Affine([[1, 0, 0], [1, 0, 0]], [0, 1])),
        ["solution", "distance of"],
    ),
    "domain of another dimension": (
        lambda: gs.Problem(LOSS, gs.domains.Box(np.zeros(2), np.ones(2))),
        ["shape", "(2,)"],
    ),
    "domains for too few agents": (
        lambda: gs.Problem(LOSS, gs.domains.PerAgent([gs.domains.Free()] * 3)),
        ["each agent", "3 for 4 agents"],
    ),
    "norms mixed": (
        lambda: gs.domains.PerAgent([gs.domains.Free(), gs.domains.EntropySimplex()]),
        ["one norm", "[1, 2]"],
    ),
    "negative penalty": (lambda: gs.L1(-0.5), ["weight", "-0.5"]),
    "penalty on a simplex": (lambda: gs.domains.Simplex(penalty=gs.L1(1.0)), ["Simplex", "L1(weight=1.0)"]),
    # Problem
    "mu negative": (lambda: gs.Problem(LOSS, mu=-0.5), ["mu", "-0.5"]),
    "mu NaN": (lambda: gs.Problem(LOSS, mu=math.nan), ["mu", "nan"]),
    "data instead of a loss": (lambda: gs.Problem(X), ["loss", "ndarray"]),
    "a set that is none": (lambda: gs.Problem(LOSS, (0.0, 1.0)), ["domain", "tuple"]),
    "a builder of many agents": (
        lambda: gs.Problem.build(gs.network.Local(RING), one_agent_each),
        ["one agent", "2 agents for agent 0"],
    ),
    # Method
    "L negative": (lambda: gs.PDS(L=-1.0), ["L must be >= 0", "-1.0"]),
    "L NaN": (lambda: gs.PDS(L=math.nan), ["L must be >= 0", "nan"]),
    "R zero": (lambda: gs.PDS(R=0.0), ["R must be > 0", "0.0"]),
    "R negative": (lambda: gs.PDS(R=-2.0), ["R must be > 0", "-2.0"]),
    "R infinite": (lambda: gs.PDS(R=math.inf), ["R must be > 0", "inf"]),
    "growth zero": (lambda: gs.PDS(growth=0.0), ["growth", "0.0"]),
    "unknown coupling": (lambda: gs.PDS(coupling="laplace"), ["coupling", "did you mean 'laplacian'?"]),
    "unknown coupling made": (
        lambda: gs.coupling.make("edges", gs.network.Local(RING)),
        ["coupling", "'edges'", "incidence, laplacian"],
    ),
    # Stop
    "Stop without anything": (lambda: gs.Stop(), ["target or a limit", "none"]),
    "limit zero": (lambda: gs.Stop(iterations=0), ["iterations", "0"]),
    "limit negative": (lambda: gs.Stop(rounds=-3), ["rounds", "-3"]),
    "limit that is no whole number": (lambda: gs.Stop(iterations=1.5), ["iterations", "1.5"]),
    "target zero": (lambda: gs.Stop(disagreement=0.0), ["disagreement", "0.0"]),
    "target NaN": (lambda: gs.Stop(objective=math.nan), ["objective", "nan"]),
    "relative target zero": (lambda: gs.Relative(0.0), ["> 0", "0.0"]),
    "relative to nothing": (lambda: gs.Stop(objective=gs.Relative(0.1)), ["relative to", "Relative(value=0.1"]),
    "relative to NaN": (lambda: gs.Stop(objective=gs.Relative(0.1, to=math.nan)), ["nan"]),
    "gap with DGD": (lambda: solve(method=gs.DGD(), stop=gs.Stop(gap=0.1)), ["gap", "DGD"]),
    # Solve
    "x0 outside X": (lambda: solve(x0=np.full(3, 9.0)), ["domain", "outside for agent 0"]),
    "x0 of one agent outside X": (
        lambda: solve(x0=np.outer([0, 0, 9, 0], np.ones(3))),
        ["domain", "outside for agent 2"],
    ),
    "x0 of another shape": (lambda: solve(x0=np.zeros(5)), ["(3,) or (4, 3)", "(5,)"]),
    "x0 NaN": (lambda: solve(x0=np.full(3, np.nan)), ["x0", "NaN"]),
    "problem and network of different m": (lambda: solve(network=gs.Graph.ring(5)), ["same number", "4 and 5"]),
    "a loss for a problem": (lambda: solve(problem=LOSS), ["gs.Problem", "Logistic"]),
    "arguments swapped": (lambda: solve(problem=RING, network=PROBLEM), ["gs.Problem", "Graph"]),
    "no network": (lambda: solve(network=None), ["agents need a graph", "network=None", "gs.Graph."]),
    "a class for a network": (lambda: solve(network=gs.network.Local), ["network", "Local"]),
    "a class for a method": (lambda: solve(method=gs.PDS), ["PDS", "with brackets"]),
    "a name for a method": (lambda: solve(method="pds"), ["method", "str"]),
    "a number for a stop": (lambda: solve(stop=100), ["stop", "100"]),
    "a class for a stop": (lambda: solve(stop=gs.Stop), ["stop", "Stop"]),
    "an array for a warm start": (lambda: solve(warm_start=np.zeros((4, 3))), ["warm_start", "ndarray"]),
    "a callback that is none": (lambda: solve(callback=3), ["callback", "3"]),
    "record_every zero": (lambda: solve(record_every=0), ["record_every", "0"]),
    "unknown output": (lambda: solve(output="averag"), ["output", "did you mean 'average'?"]),
    "a checkpoint that is a folder": (lambda: solve(checkpoint="."), ["checkpoint"]),
}
# Words where numbers belong.
WORDS = {
    "PDS(L)": (lambda: gs.PDS(L="x"), ["L", "x"]),
    "PDS(coupling)": (lambda: gs.PDS(coupling=None), ["coupling", "None"]),
    "Stop(iterations)": (lambda: gs.Stop(iterations="x"), ["iterations", "x"]),
    "Stop(objective)": (lambda: gs.Stop(objective="x"), ["objective", "x"]),
    "Relative": (lambda: gs.Relative("x"), ["x"]),
    "mu": (lambda: gs.Problem(LOSS, mu="x"), ["mu", "x"]),
    "delta": (lambda: gs.losses.Huber(X, LABELS, delta="x", agents=4), ["delta", "x"]),
    "radius": (lambda: gs.domains.L2Ball("x"), ["radius", "x"]),
    "record_every": (lambda: solve(record_every="x"), ["record_every", "x"]),
    "hypercube": (lambda: gs.Graph.hypercube("x"), ["dimension", "x"]),
    "graph of a network": (lambda: gs.network.Local("x"), ["graph", "str"]),
    "networkx graph": (lambda: gs.Graph.from_networkx([(0, 1)]), ["networkx", "list"]),
}


@pytest.mark.parametrize(("mistake", "words"), [*CASES.values(), *WORDS.values()], ids=[*CASES, *WORDS])
def test_a_mistake_is_named_with_its_rule_its_value_and_a_remedy(mistake, words):
    check_message(mistake, words, value=".+")


def test_the_same_calls_without_the_mistake_are_taken():
    gs.Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)], [1.0, 2.0, 0.5])
    gs.losses.Logistic(X, (LABELS + 1) // 2, agents=16)
    gs.Stop(objective=-1.0, disagreement=gs.Relative(0.1), iterations=1)
    assert solve(x0=np.full(3, 0.5), record_every=2, output="hat").output == "hat"
    assert isinstance(gs.InputError("rule", "value", "remedy"), ValueError)


def test_an_unknown_key_in_a_spec(tmp_path):
    with pytest.raises(gs.InputError, match=r".+; got 'iteration'; did you mean 'iterations'\?"):
        run_spec(read_spec(write_spec(tmp_path, stop="iteration = 5")))


@pytest.mark.parametrize(
    "callback",
    [lambda record, x: None, lambda *seen: None, lambda r, x, more=1: None, partial(three_arguments, more=1), Untold()],
)
def test_whatever_takes_a_record_and_a_point_is_a_callback(callback):
    assert solve(callback=callback).status is gs.Status.ITERATION_LIMIT
