"""The same iterates in one process and in several, to the bit."""

import numpy as np
import pytest
from mpi_tasks import METHODS, alone, needs_mpi, together

pytestmark = needs_mpi


def tasks(*cases):
    return [
        {"name": f"{method} on {graph}, {number}", "method": method, "graph": graph, **more}
        for number, (method, graph, more) in enumerate(cases)
    ]


# 100 outer iterations of each.
MAIN = tasks(
    ("PDS", "random", {}),
    ("SPDS", "random", {}),
    ("AutoPDS", "random", {}),
    ("Newton", "random", {"domain": "free", "stop": {"iterations": 8}}),
    ("LBFGS", "random", {"domain": "free", "stop": {"iterations": 20}}),
    ("Auto", "ring", {"domain": "own boxes"}),
    ("NIDS", "random", {"mu": 0.01}),
    ("DCS", "weighted", {}),
)
OTHERS = tasks(
    ("PDS given", "ring", {}),
    ("PDS", "complete", {"exact_norm": False}),
    ("PDS", "weighted", {"domain": "own boxes"}),
    ("AutoPDS", "ring", {"domain": "own boxes"}),
    ("AutoPDS", "weighted", {"float32": True}),
    ("AutoPDS exact", "complete", {}),
    ("AutoPDS none", "random", {}),
    # The last ones: an old MPI stays one.
    ("PDS", "random", {"old MPI": True}),
    ("PDS", "complete", {"old MPI": True}),
)
# Those that need mu > 0 or have no set get it.
UNCONSTRAINED = {"DLM", "AcceleratedTracking", "OPAPC", "ChocoSGD", "GradientTracking"}
EVERY = [
    {
        "name": method,
        "method": method,
        "graph": "random",
        "domain": "free" if method in UNCONSTRAINED else "ball",
        "mu": 0.1,
        "stop": {"iterations": 20},
    }
    for method in METHODS
]


@pytest.fixture(scope="module")
def expected():
    """Of every main task, in one process."""
    return {task["name"]: alone(task) for task in MAIN}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_main_methods_give_the_same_on_any_number_of_ranks(ranks, expected, tmp_path):
    found = together(MAIN, ranks, tmp_path)
    for name, one in expected.items():
        many, owners = found[name]
        assert len(np.unique(owners)) == ranks, name
        check_same(many, one, name)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "iterations"), [(2, 20), (3, 100)])
def test_every_method_runs_unchanged_under_all_circumstances(ranks, iterations, tmp_path):
    every = [*EVERY, *({**task, "stop": {"iterations": iterations}} for task in OTHERS)]
    found = together(every, ranks, tmp_path, timeout=120)
    for task in every:
        check_same(found[task["name"]][0], alone(task), task["name"])


def check_same(many, one, name):
    """To the bit; records may differ in the last digits, whose sums have no fixed order in one process."""
    assert many.agents == one.agents, name
    assert many.status is one.status, name
    for output, x in one.outputs.items():
        assert np.array_equal(many.outputs[output], x), (name, output)
    for spent in ("values", "samples", "rounds", "control_rounds", "floats_sent"):
        assert getattr(many.costs, spent) == getattr(one.costs, spent), (name, spent)
    # In one process all agents take as many steps inside an iteration of ADMM as the slowest of them needs.
    assert many.costs.gradients == one.costs.gradients or (
        name == "ADMM" and many.costs.gradients < one.costs.gradients
    )
    assert len(many.history) == len(one.history)
    last, other = many.history[-1], one.history[-1]
    for metric in ("objective", "residual", "disagreement", "lower", "gap"):
        seen, known = getattr(last, metric), getattr(other, metric)
        assert seen == (None if known is None else pytest.approx(known, rel=1e-5, abs=1e-9)), (name, metric)
    np.testing.assert_allclose(many.mean, one.mean, rtol=1e-6 if one.x.dtype == np.float32 else 1e-12)
