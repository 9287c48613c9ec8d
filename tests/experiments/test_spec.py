"""Specs: everything the library has can be reached from a file, and nothing in a file goes unnoticed."""

import json
import re
import tomllib

import numpy as np
import pytest
from specs import TABLES, exit_code, write_rows, write_spec

import gradslide as gs
from gradslide import domains, losses
from gradslide.domains import penalties
from gradslide.experiments import build
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import main_job, main_job_text, parse_spec, read_spec

NETWORKS = {
    "random": "max_degree = 3\nedges = 5\nseed = 2",
    "ring": "",
    "path": "",
    "star": "",
    "complete": "",
    "grid": "rows = 1\ncols = 5",
    "torus": "rows = 1\ncols = 5",
    "hypercube": "dimension = 2",
    "regular": "degree = 4\nseed = 1",
    "small_world": "neighbours = 2\nrewire = 0.1\nseed = 1",
    "geometric": "radius = 1.5\nseed = 1",
}
DOMAINS = {
    "free": "center = [1, 2, 3, 4]",
    "box": "lo = [-1, -1, -1, -inf]\nhi = 0.5",
    "nonnegative": "",
    "l2_ball": "radius = 0.1\norigin = [1, 0, 0, 0]",
    "l1_ball": "radius = 0.1",
    "group_ball": "radius = [0.1, 0.2]\ngroups = [[0, 1], [2, 3]]",
    "simplex": "total = 2.0",
    "halfspace": "a = [1, 1, 1, 1]\nb = -1.0",
    "affine": "A = [[1, 1, 0, 0], [0, 0, 1, 1]]\nb = [1, 2]",
    "polyhedron": "A = [[1, 1, 0, 0], [0, 0, 1, 1]]\nupper = [1, 2]\nlo = -1.0",
    "entropy_simplex": "center = [0.1, 0.2, 0.3, 0.4]",
}
PENALTIES = {
    "l1": "weight = 0.1",
    "group_l1": "weight = [0.1, 0.2]\ngroups = [[0, 1], [2, 3]]",
    "elastic_net": "l1 = 0.1\nl2 = 0.2",
}


def problem_of(folder, **tables):
    return build.build_problem(read_spec(write_spec(folder, **tables)), None)


def only_run(folder, **tables):
    (run,) = run_spec(read_spec(write_spec(folder, **tables))).runs
    return run


def table(module, base):
    """The public classes of a module."""
    kinds = (getattr(module, name) for name in module.__all__)
    return {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, base) and kind is not base}


# Everything can be reached


def test_no_loss_domain_penalty_or_topology_is_forgotten():
    # Cox's has a table of its own: see [model].
    not_from_rows = {losses.Quadratic, losses.Linear, losses.Custom, losses.Torch, losses.Jax, losses.Cox}
    assert table(losses, losses.Loss) - not_from_rows == set(build.LOSSES.values())
    assert table(domains, domains.Domain) - {domains.PerAgent, domains.Euclidean} == set(build.DOMAINS.values())
    assert {gs.L1, gs.GroupL1, gs.ElasticNet} == set(build.PENALTIES.values())
    assert set(DOMAINS) == set(build.DOMAINS)
    assert set(PENALTIES) == set(build.PENALTIES)
    assert set(NETWORKS) == set(build.TOPOLOGIES)


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ('loss = "logistic"', losses.Logistic),
        ('loss = "logistic"\nreduction = "mean"', losses.Logistic),
        ('loss = "least_squares"', losses.LeastSquares),
        ('loss = "huber"\ndelta = 0.5', losses.Huber),
        ('loss = "smoothed_hinge"\ngamma = 0.5', losses.SmoothedHinge),
        ('loss = "softmax"', losses.Softmax),
        ('loss = "softmax"\nclasses = 3', losses.Softmax),
    ],
)
def test_losses(tmp_path, table, kind):
    run = only_run(tmp_path, problem=table)
    assert kind.__name__ in run.solution.settings["problem"]
    assert np.all(np.isfinite(run.solution.x))
    assert np.any(run.solution.x)


def test_parameters_of_losses_and_mu_arrive(tmp_path):
    features, labels = gs.data.read_svmlight(write_rows(tmp_path))
    x = np.full((5, 4), 0.3)
    built = problem_of(tmp_path, problem='loss = "huber"\ndelta = 0.2\nreduction = "mean"\nmu = 0.7')
    direct = losses.Huber(features.toarray(), labels, delta=0.2, reduction="mean", agents=5)
    np.testing.assert_allclose(built.loss.value(x), direct.value(x))
    assert built.mu == 0.7
    assert problem_of(tmp_path, problem='loss = "softmax"\nclasses = 3').d == 12


def test_poisson_takes_labels_as_counts(tmp_path):
    rows = write_rows(tmp_path)
    rows.write_text(rows.read_text().replace("-1 ", "+3 "))
    features, labels = gs.data.read_svmlight(rows)
    built = problem_of(tmp_path, problem='loss = "poisson"\nexposure = 2.0')
    direct = losses.Poisson(features.toarray(), labels, 2.0, agents=5)
    x = np.full((5, 4), 0.3)
    assert set(labels) == {1.0, 3.0}
    np.testing.assert_allclose(built.loss.value(x), direct.value(x))


@pytest.mark.parametrize("name", DOMAINS)
def test_domains(tmp_path, name):
    run = only_run(tmp_path, problem=f'loss = "logistic"\n[problem.domain]\nset = "{name}"\n{DOMAINS[name]}')
    domain = build.DOMAINS[name](**tomllib.loads(DOMAINS[name])).bind(5, 4, np.float64)
    assert domain.contains(run.solution.x, 1e-9).all()
    assert np.any(run.solution.x != run.solution.x[0, 0]), "the set is not degenerate"


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties(tmp_path, name):
    penalised = f'loss = "logistic"\n[problem.penalty]\nkind = "{name}"\n{PENALTIES[name]}'
    domain = problem_of(tmp_path, problem=penalised).domain
    assert type(domain.penalty) is build.PENALTIES[name]
    direct = build.PENALTIES[name](**tomllib.loads(PENALTIES[name]))
    x = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_allclose(domain.r(x), domains.Free(penalty=direct).bind(5, 4, np.float64).r(x))
    assert np.all(domain.r(x) > 0)


def test_a_penalty_and_a_set_go_together(tmp_path):
    both = 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 2 }\npenalty = { kind = "l1", weight = 0.1 }'
    domain = problem_of(tmp_path, problem=both).domain
    assert isinstance(domain, domains.L2Ball)
    assert isinstance(domain.penalty, penalties.L1)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(tmp_path, name):
    m = 4 if name == "hypercube" else 5
    data = f'file = "rows.svm"\nagents = {m}'
    run = only_run(tmp_path, data=data, network=f'topology = "{name}"\n{NETWORKS[name]}')
    arguments = tomllib.loads(NETWORKS[name])
    if name not in ("grid", "torus", "hypercube"):
        arguments["m"] = m
    assert run.graph == getattr(gs.Graph, name)(**arguments)
    assert run.name == name


@pytest.mark.parametrize("kind", ["contiguous", "shuffled", "sorted", "dirichlet"])
def test_splits(tmp_path, kind):
    data = f'file = "rows.svm"\nagents = 5\nsplit = "{kind}"\nseed = 3\nalpha = 0.3'
    features, labels = gs.data.read_svmlight(write_rows(tmp_path))
    splits = gs.data.split(kind, labels, 5, seed=3, alpha=0.3)
    loss = problem_of(tmp_path, data=data).loss
    x = np.full((5, 4), 0.3)
    np.testing.assert_allclose(loss.value(x), losses.Logistic(features, labels, splits=splits).value(x))


def test_rows_and_dtype(tmp_path):
    loss = problem_of(tmp_path, data='file = "rows.svm"\nagents = 5\nrows = 12\ndtype = "float32"').loss
    assert loss.rows_per_agent.tolist() == [3, 3, 2, 2, 2]
    assert loss.dtype == np.float32
    run = only_run(tmp_path, data='file = "rows.svm"\nagents = 5\ndtype = "float32"')
    assert run.solution.x.dtype == np.float32


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ('name = "pds"\nL = 5\nR = 1.5', {"L": 5.0, "R": 1.5}),
        ('name = "pds"\nL = 5.0\nR = 1.0\nnorm = 3.0', {"A_norm": 3.0}),
        ('name = "pds"\nL = 5.0\nR = 1.0\ncoupling = "laplacian"', {"A_norm": gs.Graph.ring(5).laplacian_norm}),
        ('name = "pds"\nL = 5.0\nR = 1.0\ngrowth = 8.0', {"L": 5.0}),
        ('name = "pds"', {}),
    ],
)
def test_method_options(tmp_path, table, expected):
    solution = only_run(tmp_path, method=table).solution
    assert solution.settings["method"].startswith("PDS(")
    assert {name: solution.parameters[name] for name in expected} == pytest.approx(expected)
    if "growth" in table:
        assert "growth=8.0" in solution.settings["method"]


@pytest.mark.parametrize("stop", [None, "iterations = 3"])
def test_the_default_method_and_stop_are_those_of_solve(tmp_path, stop):
    spec = read_spec(write_spec(tmp_path, method=None, stop=stop, problem='loss = "logistic"\nmu = 0.1'))
    (run,) = run_spec(spec).runs
    limits = {} if stop is None else {"stop": gs.Stop(iterations=3)}
    expected = gs.solve(build.build_problem(spec, None), gs.Graph.ring(5), **limits)
    assert run.solution.settings["method"] == expected.settings["method"]
    assert run.solution.status is expected.status
    np.testing.assert_array_equal(run.solution.x, expected.x)


@pytest.mark.parametrize("coupling", ["incidence", "laplacian"])
@pytest.mark.parametrize("domain", ["free", "l2_ball"])
def test_R_from_theory(tmp_path, coupling, domain):
    set_ = '{ set = "free" }' if domain == "free" else '{ set = "l2_ball", radius = 0.5 }'
    run = only_run(
        tmp_path,
        problem=f'loss = "logistic"\ndomain = {set_}',
        method=f'name = "pds"\nR = "theory"\ncoupling = "{coupling}"',
        stop="iterations = 30",
    )
    problem = problem_of(tmp_path, problem=f'loss = "logistic"\ndomain = {set_}')
    optimum = gs.reference.reference(problem)
    z_star = optimum.multiplier(problem, run.graph, coupling)
    expected = gs.guarantees.theory_R(V=optimum.V(problem, problem.start()), z_star=z_star)
    assert run.solution.parameters["R"] == pytest.approx(expected, rel=1e-6)
    assert run.bound.objective >= run.local_error
    assert run.bound.residual >= run.solution.history[-1].residual
    assert run.bound_at_mean >= run.objective_error


@pytest.mark.parametrize(
    ("table", "stop"),
    [
        ("iterations = 3", gs.Stop(iterations=3)),
        ("gradients = 3", gs.Stop(gradients=3)),
        ("rounds = 3", gs.Stop(rounds=3)),
        ("seconds = 3", gs.Stop(seconds=3.0)),
        ("objective = 20", gs.Stop(objective=20)),
        (
            "objective = -0.5\nresidual = 0.1\ndisagreement = 0.2",
            gs.Stop(objective=-0.5, residual=0.1, disagreement=0.2),
        ),
        ("objective = { relative = 1e-2, to = 20 }", gs.Stop(objective=gs.Relative(1e-2, to=20))),
        ("objective = { relative = 1e-2 }", gs.Stop(objective=gs.Relative(1e-2, to=7.0))),
        ("disagreement = { relative = 1e-2 }", gs.Stop(disagreement=gs.Relative(1e-2))),
        ("residual = { relative = 1e-2, to = 3.0 }", gs.Stop(residual=gs.Relative(1e-2, to=3.0))),
        ("gap = 0.1", gs.Stop(gap=0.1)),
    ],
)
def test_stop_forms(tmp_path, table, stop):
    assert build.build_stop(read_spec(write_spec(tmp_path, stop=table)), lambda: 7.0) == stop


def test_a_relative_objective_is_relative_to_the_reference_optimum(tmp_path):
    results = run_spec(read_spec(write_spec(tmp_path, stop="objective = { relative = 0.1 }\niterations = 500")))
    assert results.fulfilled
    optimum = gs.reference.reference(problem_of(tmp_path)).objective
    assert results.optimum == pytest.approx(optimum, rel=1e-8)
    assert results.runs[0].solution.history[-1].objective <= 1.1 * optimum


def test_several_networks_each_with_its_name(tmp_path):
    ring, star = '[[network]]\ntopology = "ring"\n', '[[network]]\nname = "own"\ntopology = "star"\n'
    runs = run_spec(read_spec(write_spec(tmp_path, network=ring + star + ring))).runs
    assert [run.name for run in runs] == ["ring", "own", "ring (2)"]


def test_one_agent(tmp_path):
    run = only_run(
        tmp_path,
        data='file = "rows.svm"\nagents = 1',
        network='topology = "path"',
        method='name = "pds"\nR = "theory"',
        stop="objective = { relative = 1e-2 }\niterations = 300",
    )
    assert run.solution.status is gs.Status.CONVERGED


def test_the_start_may_be_optimal_already(tmp_path):
    run = only_run(
        tmp_path,
        problem='loss = "logistic"\ndomain = { set = "l2_ball", radius = 0 }',
        method='name = "pds"\nR = "theory"',
        stop="objective = { relative = 1e-2 }\niterations = 5",
    )
    assert run.solution.status is gs.Status.CONVERGED


# Files


def test_paths_are_relative_to_the_spec(tmp_path, monkeypatch):
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "nets").mkdir()
    (folder / "nets" / "tail.edges").write_text("0 1 2.0\n1 2 1.0\n2 0 1.0\n2 3 1.0\n3 4 0.5\n")
    write_rows(folder, "nets/other.svm", rows=10)
    spec = write_spec(folder, data='file = "nets/other.svm"\nagents = 5', network='file = "nets/tail.edges"')
    monkeypatch.chdir(tmp_path)
    (run,) = run_spec(read_spec(spec.relative_to(tmp_path))).runs
    assert run.graph.edges.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3], [3, 4]]
    assert run.graph.weights.tolist() == [2.0, 1.0, 1.0, 1.0, 0.5]


@pytest.mark.parametrize("ending", ["xz", "bz2", "gz"])
def test_compressed_rows(tmp_path, ending):
    import bz2
    import gzip
    import lzma

    compress = {"xz": lzma.compress, "bz2": bz2.compress, "gz": gzip.compress}[ending]
    (tmp_path / f"rows.svm.{ending}").write_bytes(compress(write_rows(tmp_path).read_bytes()))
    plain = only_run(tmp_path).solution
    packed = only_run(tmp_path, data=f'file = "rows.svm.{ending}"\nagents = 5').solution
    np.testing.assert_array_equal(plain.x, packed.x)


# Nothing goes unnoticed


@pytest.mark.parametrize(
    ("tables", "wrong", "nearest"),
    [
        ({"top": 'version = 1\ntitel = "x"'}, "titel", "title"),
        ({"top": "version = 1\nnetworks = []"}, "networks", "network"),
        ({"data": 'file = "rows.svm"\nagents = 5\nspilt = "sorted"'}, "spilt", "split"),
        ({"problem": 'loss = "logistic"\npenality = 1'}, "penality", "penalty"),
        ({"problem": 'loss = "huber"\ndelt = 1'}, "delt", "delta"),
        ({"problem": 'loss = "logistic"\ndomain = { set = "l2_ball", raduis = 1 }'}, "raduis", "radius"),
        ({"problem": 'loss = "logistic"\ndomain = { set = "free", centre = 1 }'}, "centre", "center"),
        ({"problem": 'loss = "logistic"\npenalty = { kind = "l1", wieght = 1 }'}, "wieght", "weight"),
        ({"network": 'topology = "random"\nmax_degre = 3'}, "max_degre", "max_degree"),
        ({"network": 'file = "net.edges"\nnme = "x"'}, "nme", "name"),
        ({"method": 'name = "pds"\ncouplng = "laplacian"'}, "couplng", "coupling"),
        ({"stop": "iteration = 5"}, "iteration", "iterations"),
        ({"stop": "iterations = 5\nobjective = { relative = 1e-3, too = 1 }"}, "too", "to"),
        ({"output": "plots = false"}, "plots", "plot"),
        # names
        ({"problem": 'loss = "logisitc"'}, "logisitc", "logistic"),
        ({"problem": 'loss = "logistic"\ndomain = { set = "simplx" }'}, "simplx", "simplex"),
        ({"problem": 'loss = "logistic"\npenalty = { kind = "elasticnet" }'}, "elasticnet", "elastic_net"),
        ({"problem": 'loss = "logistic"\nreduction = "mena"'}, "mena", "mean"),
        ({"network": 'topology = "smallworld"'}, "smallworld", "small_world"),
        ({"data": 'file = "rows.svm"\nagents = 5\nsplit = "shufled"'}, "shufled", "shuffled"),
        ({"data": 'name = "mushroom"\nagents = 5'}, "mushroom", "mushrooms"),
        ({"method": 'name = "psd"'}, "psd", "pds"),
        ({"method": 'name = "pds"\ncoupling = "laplace"'}, "laplace", "laplacian"),
    ],
)
def test_an_unknown_key_or_name_gets_the_nearest_known_one(tmp_path, tables, wrong, nearest):
    with pytest.raises(gs.InputError) as caught:
        run_spec(read_spec(write_spec(tmp_path, **tables)))
    assert f"got {wrong!r}; did you mean {nearest!r}?" in str(caught.value)


@pytest.mark.parametrize("table", ["data", "problem", "network", "method", "stop", "output"])
def test_a_misspelt_table_gets_the_nearest_known_one(tmp_path, table):
    misspelt = table[:-2] + table[:-3:-1]
    spec = write_spec(tmp_path, **{table: None, misspelt: TABLES[table]})
    with pytest.raises(gs.InputError) as caught:
        read_spec(spec)
    assert f"'{misspelt}'" in str(caught.value)
    assert re.search(rf"'{table}'|\[{table}\]", str(caught.value))


def test_mistakes_are_found_before_anything_is_solved(tmp_path, monkeypatch):
    def solve(*arguments, **named):
        raise AssertionError("solved something first")

    monkeypatch.setattr("gradslide.experiments.run.solve", solve)
    second = '[[network]]\ntopology = "ring"\n[[network]]\ntopology = "random"\n'
    for tables in ({"network": second}, {"method": 'name = "pds"\nR = -1'}, {"stop": "iterations = -1"}):
        with pytest.raises(gs.InputError):
            run_spec(read_spec(write_spec(tmp_path, **tables)))


def test_the_main_job_is_a_spec_that_names_every_choice():
    spec, text = main_job(), main_job_text()
    assert parse_spec(text, "misfire", spec.folder) == spec
    for table in (build.LOSSES, build.DOMAINS, build.PENALTIES, build.TOPOLOGIES):
        assert [name for name in table if name not in text] == []


# Going on after an interruption


def results(folder):
    return json.loads((folder / "results.json").read_text())["runs"][0]


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_a_checkpoint_resumes_to_the_bit(tmp_path, mu):
    problem, keep = f'loss = "logistic"\nmu = {mu}', "plot = false\ncheckpoint = true"
    whole = write_spec(tmp_path, "whole.toml", problem=problem, stop="iterations = 30")
    assert exit_code("run", whole, "-q", "-o", tmp_path / "whole") == 0
    assert not list((tmp_path / "whole").glob("*checkpoint*"))
    for iterations in (11, 30):
        part = write_spec(tmp_path, "part.toml", problem=problem, stop=f"iterations = {iterations}", output=keep)
        assert exit_code("run", part, "-q", "-o", tmp_path / "part") == 0
        assert results(tmp_path / "part")["costs"]["gradients"] == iterations
    assert results(tmp_path / "part")["mean"] == results(tmp_path / "whole")["mean"]
    one, other = (gs.load(tmp_path / folder / "ring.solution.npz") for folder in ("part", "whole"))
    for name, array in one.outputs.items():
        np.testing.assert_array_equal(array, other.outputs[name])


def test_a_finished_run_with_a_checkpoint_is_not_run_again(tmp_path, monkeypatch):
    spec = write_spec(tmp_path, output="plot = false\ncheckpoint = true")
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 0
    before = results(tmp_path / "out")

    def step(*arguments):
        raise AssertionError("stepped again")

    monkeypatch.setattr(gs.PDS, "step", step)
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 0
    assert results(tmp_path / "out") == before


@pytest.mark.parametrize(
    "changed",
    [
        {"data": 'file = "other.svm"\nagents = 5'},
        {"data": 'file = "rows.svm"\nagents = 5\nsplit = "sorted"'},
        {"problem": 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 60 }'},
        {"problem": 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 0.1 }'},
        {"problem": 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 50 }\nmu = 0.1'},
        {
            "problem": 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 50 }\n'
            'penalty = { kind = "l1", weight = 0.01 }'
        },
        {"network": 'topology = "star"'},
        {"method": 'name = "pds"\nL = 6.0\nR = 1.0'},
    ],
    ids=lambda changed: next(iter(changed.values())).replace("\n", ", "),
)
def test_a_checkpoint_of_another_problem_is_refused(tmp_path, capsys, changed):
    write_rows(tmp_path, "other.svm", seed=1)
    tables = {
        "problem": 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 50 }',
        "network": '[[network]]\nname = "net"\ntopology = "ring"',
        "output": "plot = false\ncheckpoint = true",
    }
    assert exit_code("run", write_spec(tmp_path, **tables), "-q", "-o", tmp_path / "out") == 0
    if "network" in changed:
        changed = {"network": f'[[network]]\nname = "net"\n{changed["network"]}'}
    spec = write_spec(tmp_path, **{**tables, **changed, "stop": "iterations = 9"})
    assert exit_code("run", spec, "-q", "-o", tmp_path / "out") == 1
    assert "checkpoint" in capsys.readouterr().err
