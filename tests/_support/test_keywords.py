"""Arguments that a public call does not take: the error suggests the right keyword."""

import copy
import inspect
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from error_messages import check_message

import gradslide as gs
from gradslide._support.errors import nearest

RING, X, Y = gs.Graph.ring(2), np.eye(4), np.array([1, -1, 1, -1])
LOSS = gs.losses.Logistic(X, Y, agents=2)
UNKNOWN = {
    "Stop": (lambda: gs.Stop(iteration=3), ["Stop", "got iteration=", "did you mean iterations=?"]),
    "Stop, of another library": (lambda: gs.Stop(max_iter=3), ["did you mean iterations=?"]),
    "Relative": (lambda: gs.Relative(1e-3, too=1.0), ["Relative", "did you mean to=?"]),
    "a baseline": (lambda: gs.NIDS(step=0.1), ["NIDS", "got step=", "did you mean step_size=?"]),
    "a case": (lambda: gs.PDS(l=3.0), ["PDS", "did you mean L=?"]),
    "nothing near": (lambda: gs.NIDS(lr=3.0), ["use one of step_size, L, mixing"]),
    "AutoPDS": (lambda: gs.AutoPDS(balnce=1.0), ["did you mean balance=?"]),
    "SPDS": (lambda: gs.SPDS(sample=10), ["did you mean samples=?"]),
    "a loss": (lambda: gs.losses.Logistic(X, Y, agent=2), ["Logistic", "did you mean agents=?"]),
    "Custom": (lambda: gs.losses.Custom(grad=abs, agents=1, dimension=1), ["did you mean gradient=?"]),
    "a domain": (lambda: gs.domains.L2Ball(raduis=1.0), ["L2Ball", "did you mean radius=?"]),
    "a field of a bound domain": (lambda: gs.domains.Free(weights=1.0), ["Free", "weights="]),
    "a penalty": (lambda: gs.L1(wieght=1.0), ["L1", "did you mean weight=?"]),
    "Graph": (lambda: gs.Graph(2, edge=[(0, 1)]), ["Graph", "did you mean edges=?"]),
    "a topology": (lambda: gs.Graph.random(9, maxdegree=3), ["Graph.random", "did you mean max_degree=?"]),
    "a small topology": (lambda: gs.Graph.ring(n=3), ["Graph.ring", "use one of m"]),
    "from_edges": (lambda: gs.Graph.from_edges(2, pair=[(0, 1)]), ["did you mean pairs=?"]),
    "Problem": (lambda: gs.Problem(LOSS, domian=gs.domains.Free()), ["Problem", "did you mean domain=?"]),
    "LinearlyConstrained": (lambda: gs.LinearlyConstrained(LOSS, X, lowr=0.0), ["did you mean lower=?"]),
    "solve": (lambda: gs.solve(gs.Problem(LOSS), RING, stopp=3), ["solve", "did you mean stop=?"]),
    "Local": (lambda: gs.network.Local(RING, devise="cpu"), ["Local", "did you mean device=?"]),
    "a fault": (lambda: gs.network.Lossy(RING, seeds=1), ["Lossy", "did you mean seed=?"]),
    "Clock": (lambda: gs.Clock(latncy=1.0), ["Clock", "did you mean latency=?"]),
    "an oracle": (lambda: gs.oracles.Noise(sgima=1.0), ["Noise", "did you mean sigma=?"]),
    "a compressor": (lambda: gs.compressors.TopK(ks=1), ["TopK", "use one of k"]),
    "a term": (lambda: gs.terms.Quadratic(wieght=1.0), ["Quadratic"]),
}
SURPLUS = {
    "keywords only": (lambda: gs.Stop(100), ["Stop takes keywords only", "got 1", "Stop(objective=...)"]),
    "a loss": (lambda: gs.losses.Logistic(X, Y, 2), ["at most 2 arguments", "got 3", "Logistic(agents=...)"]),
    "a topology": (lambda: gs.Graph.ring(3, 4), ["Graph.ring takes at most 1", "got 2", "leave the others out"]),
    "solve": (
        lambda: gs.solve(gs.Problem(LOSS), RING, None, 100),
        ["solve takes at most 3", "got 4", "solve(stop=...)"],
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_keyword_is_refused_with_the_nearest_one(case):
    check_message(*UNKNOWN[case])


@pytest.mark.parametrize("case", SURPLUS)
def test_too_many_arguments_without_names_are_refused(case):
    check_message(*SURPLUS[case])


@pytest.mark.parametrize("case", [*UNKNOWN, *SURPLUS])
def test_the_error_is_a_type_error_too(case):
    with pytest.raises(TypeError) as caught:
        (UNKNOWN | SURPLUS)[case][0]()
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_users_own_method_and_loss_suggest_keywords_too():
    @dataclass(frozen=True, kw_only=True)
    class Mine(gs.NIDS):
        shrinkage: float = 1.0

    class Plain(gs.losses.Logistic):
        pass

    class Bare(gs.Method):
        def init(self, context): ...
        def step(self, context, state): ...
        def output(self, state): ...

    check_message(lambda: Mine(shrinkge=1.0), ["Mine", "did you mean shrinkage=?"])
    check_message(lambda: Plain(X, Y, agent=2), ["Plain", "did you mean agents=?"])
    check_message(lambda: Bare(step_size=1.0), ["Bare", "leave it out"])
    check_message(lambda: Bare(1.0), ["Bare", "leave the others out"])
    assert Mine(shrinkage=0.5, step_size=0.1).shrinkage == 0.5


def test_what_takes_any_keyword_still_does():
    class Open(gs.losses.Logistic):
        def __init__(self, *data, **options):
            super().__init__(*data, agents=2)
            self.options = options

    assert Open(X, Y, anything=1).options == {"anything": 1}


def test_signatures_copies_and_pickles_are_as_without_the_check():
    assert list(inspect.signature(gs.NIDS).parameters) == ["step_size", "L", "mixing"]
    assert list(inspect.signature(gs.Graph.ring).parameters) == ["m"]
    assert list(inspect.signature(gs.solve).parameters)[:3] == ["problem", "network", "method"]
    assert next(iter(inspect.signature(gs.domains.L2Ball).parameters)) == "radius"
    for made in (gs.Stop(iterations=3), gs.NIDS(step_size=0.1), gs.Relative(1e-3)):
        assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))
    assert pickle.loads(pickle.dumps(RING)) == RING


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("ITERATIONS", ["iterations"], "iterations"),
        ("n_iter", ["gap", "iterations"], "iterations"),
        ("lr", ["L"], None),
        ("l", ["L", "lr"], "L"),
        ("anything", [], None),
    ],
)
def test_the_nearest_name(name, known, expected):
    assert nearest(name, known) == expected
