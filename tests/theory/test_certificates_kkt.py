"""KKT residuals, which are no certificate."""

from dataclasses import dataclass

import numpy as np
import pytest
from certificate_cases import DOMAINS, FREE, METHOD, RING, Mixer, MixState, make_loss, small_problem

import gradslide as gs
from gradslide.network.coupling import Dual
from gradslide.results.certificate import KKT
from gradslide.theory.certificates import CertificateEvaluator, DualEvidence
from gradslide.theory.reference import reference


def residuals(problem: gs.Problem, x: np.ndarray, evidence=()) -> KKT:
    network = gs.network.Local(gs.Graph.ring(problem.m) if problem.m > 2 else gs.Graph.path(problem.m))
    evaluator = CertificateEvaluator(problem, network, problem.loss, is_counted=False)
    return evaluator.evaluate(x, evidence, kkt=True, start=problem.start()).kkt


@pytest.mark.first(4)
@pytest.mark.parametrize("domain", DOMAINS)
def test_residuals_vanish_at_the_optimum_and_nowhere_else(domain):
    """Whatever the set, the penalty and the geometry: with the multipliers that fit, and with those of a run."""
    problem = small_problem(0.25, DOMAINS[domain](3))
    at = np.tile(reference(problem, tolerance=1e-12).x, (6, 1))
    there = residuals(problem, at)
    # About the square root of the gap.
    assert there.stationarity < 3e-6
    assert there.disagreement < 1e-15
    rng = np.random.default_rng(0)
    nearby = problem.domain.project(at + 0.3 * rng.normal(size=3))
    assert residuals(problem, nearby).stationarity > 1e-2
    apart = problem.domain.project(at + 0.3 * rng.normal(size=(6, 3)))
    assert max(residuals(problem, apart).stationarity, residuals(problem, apart).disagreement) > 1e-2
    assert there.scale == residuals(problem, nearby).scale > 1e-2


def test_residuals_follow_the_definition():
    problem = gs.Problem(make_loss("quadratic", np.random.default_rng(0), 6), mu=0.5)
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    g = problem.loss.gradient(x)
    # Without constraints the step of scale 1 is (g + w + mu x) / (1 + mu).
    evidence = [DualEvidence(g, g[:, 0], Dual(w, w))]
    expected = np.linalg.norm(g + w - w.mean(axis=0) + 0.5 * x) / 1.5
    assert residuals(problem, x, evidence).stationarity == pytest.approx(expected)
    without = np.linalg.norm(g.mean(axis=0) + 0.5 * x) / 1.5
    assert residuals(problem, x).stationarity == pytest.approx(without)
    assert residuals(problem, x).disagreement == pytest.approx(np.linalg.norm(x - x.mean(axis=0), axis=1).max())
    start = np.linalg.norm(problem.loss.gradient(np.zeros((6, 3)))) / 1.5
    assert residuals(problem, x).scale == pytest.approx(start)
    # The multipliers that fit best count.
    zero = DualEvidence(g, g[:, 0], Dual(0 * w, 0 * w))
    assert residuals(problem, x, [zero, *evidence]).stationarity == pytest.approx(
        min(expected, np.linalg.norm(g + 0.5 * x) / 1.5)
    )


@pytest.mark.parametrize("method", [gs.PDS(), gs.CondatVu(), gs.NIDS(), gs.DLM()], ids=lambda m: type(m).__name__)
def test_a_run_can_stop_at_its_residuals(method):
    stop = gs.Stop(kkt=gs.Relative(1e-3), iterations=4000)
    solution = gs.solve(FREE, RING, method, stop=stop, record_every=50)
    assert solution.status is gs.Status.CONVERGED
    kkt, optimum = solution.kkt, reference(FREE)
    assert kkt.stationarity <= 1e-3 * kkt.scale
    assert kkt.disagreement <= 1e-3 * np.linalg.norm(solution.mean)
    assert np.linalg.norm(solution.mean - optimum.x) < 0.05 * np.linalg.norm(optimum.x)
    assert solution.certificate is None
    assert f"{kkt.stationarity:.3g}" in solution.certificate_reason
    assert "no certificate" in solution.certificate_reason
    assert "unbounded" in solution.certificate_reason
    rough = gs.solve(FREE, RING, method, stop=gs.Stop(kkt=5.0, iterations=4000), record_every=50)
    assert rough.history[-1].iteration < solution.history[-1].iteration


def test_agents_at_their_own_optima_are_not_at_a_kkt_point():
    """Stationary each for itself, with multipliers of 0, and far apart."""

    @dataclass(frozen=True)
    class Alone(Mixer):
        def init(self, context):
            return MixState(optima)

        def step(self, context, state):
            return state

        def dual_evidence(self, state):
            zero = np.zeros_like(state.x)
            return (DualEvidence(zero, zero[:, 0], Dual(zero, zero)),)

        def finish(self, context, state, factor):
            return state

    optima = np.random.default_rng(0).normal(size=(6, 3))
    loss = gs.losses.Quadratic(np.tile(np.eye(3), (6, 1, 1)), -optima)
    stop = gs.Stop(kkt=gs.Relative(1e-2), iterations=40)
    solution = gs.solve(gs.Problem(loss), RING, Alone(), stop=stop)
    assert solution.kkt.stationarity < 1e-12
    assert solution.status is gs.Status.ITERATION_LIMIT


def test_residuals_are_saved_and_loaded(tmp_path):
    solution = gs.solve(FREE, RING, METHOD, stop=gs.Stop(kkt=1.0, iterations=50))
    assert isinstance(solution.kkt, KKT)
    loaded = gs.load(solution.save(tmp_path / "solution.npz"))
    assert loaded.kkt == solution.kkt
    assert loaded.certificate_reason == solution.certificate_reason
    kkt = solution.kkt
    assert solution.to_dict()["kkt"] == {
        "stationarity": kkt.stationarity,
        "disagreement": kkt.disagreement,
        "scale": kkt.scale,
        "error": kkt.error,
        "objective": kkt.objective,
        "consensus": kkt.disagreement,
    }
    certified = gs.solve(small_problem(), RING, METHOD, stop=gs.Stop(iterations=5))
    assert certified.kkt is None
    loaded = gs.load(certified.save(tmp_path / "certified.npz"))
    assert loaded.kkt is None
    assert loaded.certificate == certified.certificate
    assert certified.to_dict()["kkt"] is None
    assert [record.lower for record in loaded.history] == [record.lower for record in certified.history]


def test_a_loss_without_value_has_residuals_but_no_certificate():
    loss = gs.losses.Custom(gradient=lambda x: x - 1.0, smoothness=1.0, agents=6, dimension=2)
    solution = gs.solve(gs.Problem(loss, gs.domains.Box(-9, 9)), RING, stop=gs.Stop(iterations=60))
    assert solution.certificate is None
    assert "value" in solution.certificate_reason
    assert solution.kkt.stationarity < 1e-2 * solution.kkt.scale


def test_earlier_names_are_read_and_warn():
    saved = {"stationarity": 1.0, "consensus": 2.0, "scale": 3.0}
    kkt = KKT.from_dict(saved)
    assert kkt == KKT(1.0, 2.0, 3.0)
    with pytest.deprecated_call(match="disagreement"):
        assert kkt.consensus == 2.0
