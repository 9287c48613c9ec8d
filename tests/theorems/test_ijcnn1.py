"""The 100-agent ijcnn1 problem of the paper, on three networks: real data, found through the data directory."""

import numpy as np
import pytest
from real_data import DATA

import gradslide as gs

OPTIMUM, DISTANCE = 3829.323064, 37.18914

pytestmark = pytest.mark.skipif(gs.data.find("ijcnn1", DATA) is None, reason=f"ijcnn1 is not in {DATA}")


@pytest.fixture(scope="module")
def problem():
    data = gs.data.load("ijcnn1", DATA)
    return gs.Problem(gs.losses.Logistic(data.features[:20_000].toarray(), data.labels[:20_000], agents=100))


def test_reference_optimum(problem):
    optimum = gs.reference.reference(problem)
    assert optimum.objective == pytest.approx(OPTIMUM, rel=1e-8)
    assert np.linalg.norm(optimum.x) == pytest.approx(DISTANCE, rel=1e-4)


@pytest.mark.parametrize("name", ["G1", "G2", "G3"])
def test_defaults_reach_the_reference_optimum(problem, name):
    path = DATA / "networks" / f"{name}.edges"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    reached = []

    def accurate(record, x):
        spread = np.linalg.norm(x - x.mean(axis=0)) / (10 * DISTANCE)
        reached.append((record.objective - OPTIMUM <= 1e-3 * OPTIMUM, spread <= 1e-3))
        return all(reached[-1])

    solution = gs.solve(problem, gs.Graph.load(path), stop=gs.Stop(iterations=600), callback=accurate)
    assert solution.status is gs.Status.STOPPED, reached[-1]
    # 350 with the theorem's schedule and L = max L_i, on each network.
    assert solution.costs.gradients < 400
