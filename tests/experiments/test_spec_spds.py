"""SPDS from a spec: its parameters, ways of sampling, bounds, table and plot."""

import json
import math

import pytest
from specs import exit_code, write_spec

import gradslide as gs
from gradslide.experiments import build
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import read_spec

PLAIN = 'name = "spds"\nN = 12\nR = 1.0\nc = 0.5\nL = 5.0'
BALL = 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 0.5 }'
NETWORKS = "".join(f'[[network]]\ntopology = "{name}"\n' for name in ("ring", "star", "complete"))


def method_of(folder, table):
    theory = build.Theory(R=lambda coupling: math.sqrt(2) * 3.0, distance=lambda: 7.0)
    return build.build_method(read_spec(write_spec(folder, method=table)), theory)


def run_of(folder, method, **tables):
    return run_spec(read_spec(write_spec(folder, **{"method": method, "stop": None, **tables}))).runs[0]


@pytest.mark.parametrize(
    ("line", "oracle"),
    [
        ("", gs.oracles.WithReplacement()),
        ('oracle = "with_replacement"', gs.oracles.WithReplacement()),
        ('oracle = "without_replacement"', gs.oracles.WithoutReplacement()),
        ('oracle = { kind = "without_replacement" }', gs.oracles.WithoutReplacement()),
        ('oracle = { kind = "noise", sigma = 2 }', gs.oracles.Noise(2)),
    ],
)
def test_ways_of_sampling(tmp_path, line, oracle):
    assert method_of(tmp_path, f"{PLAIN}\n{line}") == gs.SPDS(N=12, R=1.0, c=0.5, L=5.0, oracle=oracle)


def test_theory_gives_R_and_the_distance(tmp_path):
    method = method_of(tmp_path, 'name = "spds"\neps = 1\nR = "theory"\ndistance = "theory"\nseed = 4')
    assert method.R == pytest.approx(3.0)
    assert (method.eps, method.distance, method.seed) == (1.0, 7.0, 4)


def test_it_runs_its_outer_iterations_without_a_stop(tmp_path):
    run = run_of(tmp_path, PLAIN)
    assert run.solution.status is gs.Status.COMPLETED
    schedule = gs.schedules.theorem_2(N=12, L=5.0, mu=0.0, A_norm=run.graph.laplacian_norm**0.5, R=1.0, c=0.5)
    assert run.solution.costs.samples == sum(schedule.row(k).c for k in range(1, 13))
    assert run.solution.costs.gradients == 0


def test_a_stop_ends_it_earlier(tmp_path):
    assert run_of(tmp_path, PLAIN, stop="iterations = 5").solution.status is gs.Status.ITERATION_LIMIT
    assert run_of(tmp_path, PLAIN, stop="samples = 3").solution.status is gs.Status.SAMPLE_LIMIT


def test_eps_is_kept_by_the_bounds(tmp_path):
    table = 'name = "spds"\neps = 0.5\nR = "theory"\ndistance = "theory"\noracle = { kind = "noise", sigma = 0.1 }'
    run = run_of(tmp_path, f"{table}\nsigma = 0.1", problem=BALL)
    assert 0.05 < run.bound.objective <= 0.5
    assert 0.05 < run.bound.residual <= 0.5
    # One run is not its mean, but here the noise is small.
    assert run.local_error <= run.bound.objective
    assert run.objective_error <= run.bound_at_mean


def test_a_sigma_that_was_not_given_is_estimated_for_the_bound(tmp_path):
    unknown = run_of(tmp_path, f'{PLAIN}\ndistance = "theory"', problem=BALL)
    silent = run_of(tmp_path, f'{PLAIN}\ndistance = "theory"\nsigma = 0', problem=BALL)
    assert unknown.bound.objective > 1.1 * silent.bound.objective


def test_the_bound_knows_the_noise_that_was_added(tmp_path):
    noisy = f'{PLAIN}\ndistance = "theory"\noracle = {{ kind = "noise", sigma = 30 }}'
    found, told = run_of(tmp_path, noisy, problem=BALL), run_of(tmp_path, f"{noisy}\nsigma = 30", problem=BALL)
    assert found.bound == told.bound
    assert found.bound.objective > 100


def test_samples_that_the_theorem_does_not_cover_get_no_bound(tmp_path):
    run = run_of(tmp_path, f'{PLAIN}\ndistance = "theory"\noracle = "without_replacement"', problem=BALL)
    assert run.bound is None
    assert run.objective_error is not None


def test_pds_takes_no_oracle_and_no_distance(tmp_path, capsys):
    for line in ('oracle = "with_replacement"', 'distance = "theory"'):
        assert exit_code("run", write_spec(tmp_path, method=f'name = "pds"\n{line}'), "-q") == 1
        assert "a key of [method] for pds must be one of the known names" in capsys.readouterr().err


def test_the_table_shows_samples_and_that_they_do_not_move_with_the_network(tmp_path, capsys):
    spec = write_spec(tmp_path, method=PLAIN, network=NETWORKS, stop=None, output="plot = true")
    assert exit_code("run", spec, "-o", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    heading = printed.splitlines()[1]
    assert "samples" in heading
    assert "gradients" not in heading
    assert "the same number of outer iterations on 3 networks; costs differ: samples by 0 %" in printed
    assert printed.count("completed") == 3
    assert (tmp_path / "out" / "curves.png").exists()
    runs = json.loads((tmp_path / "out" / "results.json").read_text())["runs"]
    assert len({run["costs"]["samples"] for run in runs}) == 1
    assert runs[0]["history"]["samples"][-1] == runs[0]["costs"]["samples"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('oracle = "replacement"', ["method.oracle", "with_replacement"]),
        ("oracle = 3", ["method.oracle", "table"]),
        ('oracle = { kind = "noise" }', ["sigma"]),
        ('oracle = { kind = "noise", sigma = -1 }', ["sigma", "-1"]),
        ('distance = "far"', ["distance", "far", "theory"]),
        ("samples = 100", ["c and samples", "drop one"]),
        ("eps = 1", ["N, or samples, or eps"]),
        ("seed = -1", ["seed", "-1"]),
        ("growth = 3", ["growth", "spds"]),
    ],
)
def test_mistakes_get_one_clear_error(tmp_path, capsys, line, words):
    spec = write_spec(tmp_path, method=f"{PLAIN}\n{line}", stop=None)
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for word in words:
        assert word in message


def test_entropy_is_refused(tmp_path, capsys):
    spec = write_spec(tmp_path, method=PLAIN, problem='loss = "logistic"\ndomain = { set = "entropy_simplex" }')
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 1
    assert "SPDS needs a Euclidean domain" in capsys.readouterr().err


def test_a_name_will_do_for_a_method(tmp_path, capsys):
    run = run_of(tmp_path, None, top='version = 1\nmethod = "pds"', stop="iterations = 3")
    assert run.solution.settings["method"].startswith("PDS(")
    spec = write_spec(tmp_path, top='version = 1\nmethod = "spds"', method=None)
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 1
    assert "SPDS needs N, or samples" in capsys.readouterr().err
    assert exit_code("run", write_spec(tmp_path, top="version = 1\nmethod = 3", method=None), "-q") == 1
    assert "method in [top level] must be a table" in capsys.readouterr().err


def test_pds_still_needs_a_stop(tmp_path, capsys):
    assert exit_code("run", write_spec(tmp_path, stop=None), "-q", "-o", tmp_path / "out") == 1
    assert "'stop'" in capsys.readouterr().err
