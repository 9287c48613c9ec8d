"""Arguments that a public call does not take, or lacks: the error suggests the right keyword."""

import copy
import inspect
import pickle
import re
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

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
    "check_loss": (lambda: gs.check_loss(LOSS, point=3), ["check_loss", "did you mean points=?"]),
    "reference": (lambda: gs.reference.reference(gs.Problem(LOSS), iteration=3), ["did you mean iterations=?"]),
    "load": (lambda: gs.load(pth="run.npz"), ["load", "did you mean path=?"]),
    "a guarantee": (lambda: gs.guarantees.theory_R(v=1.0, z_star=1.0), ["theory_R", "did you mean V=?"]),
    "a mixing matrix": (lambda: gs.mixing.metropolis(grph=RING), ["metropolis", "did you mean graph=?"]),
    "Problem.take": (lambda: gs.Problem(LOSS).take(agent=[1]), ["Problem.take", "did you mean agents=?"]),
    "Solution.plot": (lambda: gs.Solution.plot(None, optimun=1.0), ["Solution.plot", "did you mean optimum=?"]),
    "Solution.plot, nothing near": (lambda: gs.Solution.plot(None, titel="x"), ["use one of optimum"]),
    "Graph.plot": (lambda: RING.plot(titel="x"), ["Graph.plot", "did you mean title=?"]),
}
SURPLUS = {
    "keywords only": (
        lambda: gs.Stop(100),
        ["Stop takes keywords only", "got 1 argument without a name", "name it, for example Stop(objective=...)"],
    ),
    "keywords only, a baseline": (lambda: gs.NIDS(0.1), ["keywords only", "name it, for example NIDS(step_size=...)"]),
    "two of them": (lambda: gs.NIDS(0.1, 2), ["got 2 arguments without names", "name them, for example NIDS("]),
    "a loss": (lambda: gs.losses.Logistic(X, Y, 2), ["at most 2 arguments", "got 3", "Logistic(agents=...)"]),
    "a topology": (lambda: gs.Graph.ring(3, 4), ["Graph.ring takes at most 1", "got 2", "leave the others out"]),
    "solve": (
        lambda: gs.solve(gs.Problem(LOSS), RING, None, 100),
        ["solve takes at most 3", "got 4", "solve(stop=...)"],
    ),
}
MISSING = {
    "nothing given": (gs.Problem, ["Problem needs loss", "got no arguments", "call it as Problem(loss)"]),
    "a dataclass": (gs.domains.L2Ball, ["L2Ball needs radius", "call it as L2Ball(radius)"]),
    "something else given": (lambda: gs.Problem(mu=1.0), ["Problem needs loss", "got float as mu"]),
    "the second one": (lambda: gs.losses.Logistic(X), ["Logistic needs labels", "got ndarray as features"]),
    "keywords": (
        lambda: gs.losses.Custom(gradient=abs),
        ["Custom needs agents and dimension", "call it as Custom(agents=..., dimension=...)"],
    ),
    "a class method": (lambda: gs.Graph.random(5), ["got int as m", "call it as Graph.random(m, max_degree)"]),
    "pairs before the number": (
        lambda: gs.Graph.from_edges([(0, 1), (1, 2)]),
        ["Graph.from_edges needs pairs", "got list as m", "number of agents comes first: Graph.from_edges(m, pairs)"],
    ),
    "edges before the number": (
        lambda: gs.Graph([(0, 1), (1, 2)]),
        ["Graph needs edges", "the number of agents comes first: Graph(m, edges)"],
    ),
    "a function": (gs.solve, ["solve needs problem", "got no arguments"]),
    "a guarantee": (lambda: gs.guarantees.theory_R(V=1.0), ["theory_R needs z_star", "got float as V"]),
    "three": (gs.losses.Torch, ["Torch needs module, loss and loaders"]),
}
MISTAKES = UNKNOWN | {f"{case}, surplus": SURPLUS[case] for case in SURPLUS}
MISTAKES |= {f"{case}, missing": MISSING[case] for case in MISSING}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_keyword_is_refused_with_the_nearest_one(case):
    check_message(*UNKNOWN[case])


@pytest.mark.parametrize("case", SURPLUS)
def test_too_many_arguments_without_names_are_refused(case):
    check_message(*SURPLUS[case])


@pytest.mark.parametrize("case", MISSING)
def test_missing_arguments_are_named(case):
    check_message(*MISSING[case])


def test_missing_arguments_are_named_after_copies():
    """Copies and pickles call `__new__` without arguments, as a call without arguments does."""
    for made in (RING, LOSS, gs.Problem(LOSS), gs.domains.L2Ball(1.0)):
        assert repr(copy.copy(made)) == repr(pickle.loads(pickle.dumps(made))) == repr(made)
        check_message(type(made), [f"{type(made).__name__} needs", "got no arguments"])
    assert gs.Graph(2, [(0, 1)]) == RING
    assert list(inspect.signature(gs.Problem).parameters) == ["loss", "domain", "mu", "coupling"]


def test_a_subclass_may_forget_an_argument_of_its_base():
    """That is no mistake of those who call it: Python's own error points at the line."""

    class Named(gs.Problem):
        pass

    class Forgetful(gs.Problem):
        def __init__(self):
            super().__init__()

    check_message(gs.Problem, ["Problem needs loss"])
    check_message(Named, ["Named needs loss"])
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'loss'"):
        Forgetful()


def public_functions():
    """Those on the reference page."""
    page = (Path(__file__).parents[2] / "docs/reference.md").read_text(encoding="utf-8")
    for path in re.findall(r"^::: gradslide\.(.+)$", page, re.MULTILINE):
        try:
            member = attrgetter(path)(gs)
        except AttributeError:  # needs an extra, or is a module that is not imported
            continue
        if not isinstance(member, type):
            yield pytest.param(member, id=path)


@pytest.mark.parametrize("function", list(public_functions()))
def test_every_public_function_refuses_unknown_keywords(function):
    check_message(lambda: function(no_such_keyword=1), [function.__name__, "got no_such_keyword="])


@pytest.mark.parametrize("case", MISTAKES)
def test_the_error_is_a_type_error_too(case):
    with pytest.raises(TypeError) as caught:
        MISTAKES[case][0]()
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
    check_message(lambda: Bare(1.0), ["Bare takes no arguments", "leave it out"])
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
