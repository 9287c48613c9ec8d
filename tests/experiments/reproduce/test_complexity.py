"""`gradslide reproduce complexity` on ten agents with built-in data, and on outcomes made up."""

import copy
import dataclasses
import itertools
import math

import numpy as np
import pytest
from reproductions import BUILT_IN, bench, without_processes

import gradslide as gs
from gradslide.experiments.reproduce import paper, runs
from gradslide.experiments.reproduce.complexity import experiment as complexity
from gradslide.experiments.reproduce.complexity.fits import Found, growths, obtained, per_decade, power
from gradslide.experiments.reproduce.complexity.problem import ComplexitySpec, Setting, known, spec_of
from gradslide.experiments.reproduce.complexity.runs import KINDS, bounds, sigma_of
from gradslide.experiments.reproduce.complexity.tables import statements
from gradslide.experiments.reproduce.paper import Data, Net
from gradslide.experiments.reproduce.report import write_report
from gradslide.theory import guarantees, schedules


def small_spec(**changed):
    settings = tuple(Setting(agents=10, split="contiguous", radius=3.0, mu=mu) for mu in (0.0, 20.0))
    spec = ComplexitySpec(
        settings=settings,
        nets=(Net("degree 3", 3, 12, 1, 10), Net("degree 6", 6, 24, 1, 10)),
        tolerance=0.1,
        accuracies=(1e-1, 3e-2, 1e-2, 3e-3),
        fit_from=3e-2,
        beyond=1.05,
        iterations=400,
        rounds=4_000,
        sampled_accuracies=((1.0, 0.5, 0.3, 0.2), (1.0, 0.3, 0.1, 0.03)),
        sampled_fit_from=0.5,
        seeds=(0, 1),
        samplers=("rows", "noise"),
    )
    return dataclasses.replace(spec, **changed)


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    """200 for each agent."""
    cached = (paper.problem_of, paper.optimum_of, sigma_of)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(paper, "ROWS", 2_000)
        for function in cached:
            function.cache_clear()
        yield
    for function in cached:
        function.cache_clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("complexity")


@pytest.fixture(scope="module")
def report(folder):
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_processes(monkeypatch)
        return complexity.reproduce(bench(folder), small_spec())


@pytest.fixture(scope="module")
def found(report, folder):
    """What the report was made from, read back from disk."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(runs.pool, "performed", lambda tasks, perform, processes: iter(()))
        spec = small_spec()
        own = bench(folder)
        exact = own.outcomes(complexity.exact_tasks(BUILT_IN, spec), complexity.perform_exact)
        sampled = own.outcomes(complexity.sampled_tasks(BUILT_IN, spec), complexity.perform_sampled)
    assert len(exact) == 4
    assert len(sampled) == 16
    return Found(spec, exact, sampled)


def changed_copy(found):
    return Found(found.spec, copy.deepcopy(found.exact), copy.deepcopy(found.sampled))


def findings(found):
    return {each.text: each.holds for each in statements(found, growths(found))}


def finding(found, *words):
    """Of the one statement that has all these words."""
    (holds,) = [holds for text, holds in findings(found).items() if all(word in text for word in words)]
    return holds


def test_the_packaged_spec_names_radius_and_ridge_for_both_data_sets():
    built_in, papers = spec_of(BUILT_IN), spec_of(Data("ijcnn1", "", None))
    assert built_in.settings[0].radius != papers.settings[0].radius
    for spec in (built_in, papers):
        assert [setting.mu > 0 for setting in spec.settings] == [False, True]
        assert len(spec.nets) >= 2
        assert len(spec.seeds) == 5
        assert list(spec.accuracies) == sorted(spec.accuracies, reverse=True)
        assert spec.accuracies[0] / spec.accuracies[-1] == pytest.approx(1e4)


def test_counts_are_those_of_the_first_outer_iteration_from_which_on_both_errors_are_small(found):
    task, run = next(iter(found.exact.items()))
    it = known(BUILT_IN, task.setting, task.net)
    records = []
    gs.solve(
        it.problem,
        it.graph,
        gs.PDS(L=run["L"], R=run["R"], growth=schedules.ONE_STAGE),
        stop=gs.Stop(iterations=run["iterations"]),
        output="average",
        callback=lambda record, x: records.append((record, np.array(x))) and False,
    )
    A = gs.coupling.make("incidence", gs.network.Local(it.graph))
    told = zip(run["eps"], *(run["counts"][kind] for kind in KINDS), strict=True)
    for (eps, *counts), kind in itertools.product(told, KINDS):
        good = []
        for _, x in records:
            error = float(np.sum(it.problem.objective(x))) - it.optimum.objective
            good.append(max(abs(error) if kind == "two-sided" else error, A.residual(x)) <= eps)
        kept = next((k for k in range(len(good)) if all(good[k:])), None)
        expected = None if kept is None else {name: getattr(records[kept][0], name) for name in ("gradients", "rounds")}
        assert counts[KINDS.index(kind)] == expected


def test_bounds_are_those_of_the_theorem_and_one_less_iteration_is_not_enough(found):
    for task, run in found.exact.items():
        told = {name: run[name] for name in ("L", "R", "A_norm")}
        schedule = schedules.theorem_1(**told, mu=task.setting.mu, growth=schedules.ONE_STAGE)
        own = {"V": run["V"], "z_star": run["z_star"]}
        for eps, one, two in zip(run["eps"], *(run["bounds"][kind] for kind in KINDS), strict=True):
            assert one["gradients"] == guarantees.iterations(eps, schedule, **own)
            for bound in (one, two):
                assert bound["rounds"] == sum(schedule.row(k).T for k in range(1, bound["gradients"] + 1))
            N, z = two["gradients"], 2 * run["z_star"]
            at = [guarantees.lagrangian(schedule.row(1), schedule.row(k), V=run["V"], z=z) for k in (N - 1, N)]
            assert at[0] > eps >= at[1]


def test_where_the_multiplier_is_small_a_two_sided_bound_is_the_one_sided_one():
    schedule = schedules.theorem_1(L=2.0, mu=0.0, A_norm=1.0, R=0.3)
    one, two = (bounds(schedule, [0.1, 0.01], V=1.0, z_star=0.5, kind=kind) for kind in KINDS)
    assert one == two


def test_the_bounds_of_spds_are_those_of_theorem_2(found):
    for task, run in found.sampled.items():
        L, D = run["L"], run["distance"]
        N = guarantees.spds_N(run["eps"], L=L, distance=D, mu=task.setting.mu)
        c = guarantees.spds_c(run["sigma"], m=10, distance=D)
        assert (run["N"], run["c"]) == (N, pytest.approx(c))
        R = (run["z_star"] + 1) / (4 * D)
        A_norm = math.sqrt(task.net.graph.laplacian_norm)
        schedule = schedules.theorem_2(N=N, L=L, mu=task.setting.mu, A_norm=A_norm, R=R, c=c)
        assert run["samples"] == schedule.samples
        assert run["rounds"] == sum(schedule.row(k).T for k in range(1, N + 1))
        bound = guarantees.spds(
            N,
            L=L,
            R=R,
            c=c,
            sigma=run["sigma"],
            m=10,
            V=D**2 / 2,
            z_star=run["z_star"],
            A_norm=A_norm,
            mu=task.setting.mu,
        )
        assert run["objective_bound"] * run["optimum"] == pytest.approx(bound.objective)
        assert run["residual_bound"] * run["optimum"] == pytest.approx(bound.residual)


def test_seeds_and_ways_of_sampling_differ(found):
    errors = [error for run in found.sampled.values() for error in run["objective"]]
    assert len(set(errors)) == len(errors)


def test_networks_stay_in_order_whichever_run_ends_first(found, monkeypatch, tmp_path):
    everything = {**found.exact, **found.sampled}
    monkeypatch.setattr(
        runs.pool, "performed", lambda tasks, *_: ((task, everything[task]) for task in reversed(tasks))
    )
    report = complexity.reproduce(bench(tmp_path), small_spec())
    assert [row[0] for row in report.tables[0].rows] == ["degree 3"] * 8 + ["degree 6"] * 8


def test_tables_have_a_row_for_each_accuracy(report, found):
    pds = report.tables[:2]
    assert [len(table.rows) for table in pds] == [2 * 2 * 4] * 2
    assert [len(table.rows) for table in report.tables[2:4]] == [4, 4]
    run = next(iter(found.exact.values()))
    first = dict(zip(pds[0].headings, pds[0].rows[0], strict=True))
    assert first["gradients"] == run["counts"]["one-sided"][0]["gradients"]
    assert first["at most"] == run["bounds"]["one-sided"][0]["gradients"]
    assert first["rounds at most"] == run["bounds"]["one-sided"][0]["rounds"]


def test_what_is_a_theorem_holds(found):
    assert finding(found, "every count")
    assert finding(found, "within eps")
    assert finding(found, "1352")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gradients", "rounds"])
def test_one_count_above_its_bound_is_noticed(found, kind, name):
    made_up = changed_copy(found)
    run = list(made_up.exact.values())[-1]
    run["counts"][kind][1][name] = run["bounds"][kind][1][name] + 1
    assert finding(made_up, "every count") is False


def test_what_was_not_reached_is_no_finding_unless_the_bound_was_passed(found):
    made_up = changed_copy(found)
    run = next(iter(made_up.exact.values()))
    run["counts"]["two-sided"][-1] = None
    run["iterations"] = run["bounds"]["two-sided"][-1]["gradients"] - 1
    assert finding(made_up, "every count") is None
    run["iterations"] += 1
    assert finding(made_up, "every count") is False


def with_counts(found, gradients, rounds):
    """Counts of PDS made up: functions of setting, network's number and 1/accuracy."""
    made_up = changed_copy(found)
    for task, run in made_up.exact.items():
        index = found.spec.nets.index(task.net)
        for kind in KINDS:
            run["counts"][kind] = [
                {"gradients": gradients(task.setting, index, 1 / a), "rounds": rounds(task.setting, index, 1 / a)}
                for a in task.accuracies
            ]
    return made_up


def as_in_theory(setting, index, x):
    return 100 * x**0.5 if setting.mu == 0 else 5 * math.log10(x)


def rounds_as_in_theory(setting, index, x):
    return (1 + index) * 100 * x ** (1.0 if setting.mu == 0 else 0.5)


def steeper(count):
    return lambda setting, index, x: count(setting, index, x) * x**0.3


@pytest.mark.parametrize("mu", ["mu = 0:", "mu = 20:"])
def test_slopes_of_pds_are_judged(found, mu):
    def judged(made_up):
        """Of gradients and of rounds."""
        return [
            holds for text, holds in findings(made_up).items() if text.startswith(f"PDS, {mu}") and " grow " in text
        ]

    assert judged(with_counts(found, as_in_theory, rounds_as_in_theory)) == [True, True]
    assert judged(with_counts(found, steeper(as_in_theory), rounds_as_in_theory)) == [False, True]
    assert judged(with_counts(found, as_in_theory, steeper(rounds_as_in_theory))) == [True, False]


def test_gradients_that_move_with_the_network_are_noticed(found):
    alike = with_counts(found, as_in_theory, rounds_as_in_theory)
    assert finding(alike, "PDS, mu = 0:", "between the networks")
    moving = with_counts(found, lambda *at: (1 + 0.2 * at[1]) * as_in_theory(*at), rounds_as_in_theory)
    assert finding(moving, "PDS, mu = 0:", "between the networks") is False
    same_rounds = with_counts(found, as_in_theory, lambda setting, index, x: 100 * x)
    assert finding(same_rounds, "PDS, mu = 0:", "between the networks") is False


def with_samples(found, power, gain=1.0):
    """Samples of SPDS made up, and errors that are what was asked for, to some power."""
    made_up = changed_copy(found)
    for task, run in made_up.sampled.items():
        run["samples"] = 100 * task.accuracy ** -power(task.setting)
        run["objective"] = run["residual"] = [0.5 * task.accuracy**gain] * 2
    return made_up


def test_slopes_of_spds_are_judged(found):
    theory = with_samples(found, lambda setting: 2 if setting.mu == 0 else 1)
    steep = with_samples(found, lambda setting: 2.5 if setting.mu == 0 else 1.3)
    # The error falls too slowly for so many samples.
    slow = with_samples(found, lambda setting: 2 if setting.mu == 0 else 1, gain=0.7)
    for mu in ("mu = 0:", "mu = 20:"):
        assert finding(theory, "SPDS", mu, "samples grow")
        assert finding(steep, "SPDS", mu, "samples grow") is False
        assert finding(slow, "SPDS", mu, "samples grow") is False


def test_errors_of_spds_are_judged(found):
    for name in ("objective", "residual"):
        made_up = changed_copy(found)
        task, run = next((t, r) for t, r in made_up.sampled.items() if t.sampler == "noise")
        run[name] = [1.1 * task.accuracy] * 2
        assert finding(made_up, "within eps") is False
        assert finding(made_up, "rows and noise") is False
    made_up = changed_copy(found)
    run = next(run for run in made_up.sampled.values() if run["samples_bound"] is not None)
    run["samples"] = 2 * run["samples_bound"]
    assert finding(made_up, "1352") is False


def test_too_few_accuracies_give_no_slope(found):
    short = Found(dataclasses.replace(found.spec, fit_from=3e-3, sampled_fit_from=0.03), found.exact, found.sampled)
    assert all(growth.line is None for growth in growths(short))
    assert finding(short, "PDS, mu = 0:", "gradients grow") is None


def test_counts_up_to_Delta_are_left_out(found):
    made_up = changed_copy(found)
    for run in made_up.exact.values():
        run["Delta"] = 10**6 if run["Delta"] else None
    lines = {growth.case: growth.line is not None for growth in growths(made_up) if growth.method == "PDS"}
    assert lines == {"mu = 0": True, "mu = 20": False}


def test_fits_find_the_slope_and_an_interval():
    rng = np.random.default_rng(0)
    x = np.logspace(0, 3, 12)
    exact = power(x, 3 * x**0.7)
    assert (exact.slope, exact.low, exact.high) == pytest.approx((0.7, 0.7, 0.7))
    inside = 0
    for _ in range(300):
        line = per_decade(x, 400 + 4 * np.log10(x) + rng.normal(size=12))
        inside += line.low <= 4 <= line.high
    assert 270 <= inside <= 297


def test_the_error_obtained_is_two_sided_and_a_mean_over_seeds():
    assert obtained({"objective": [-0.4, 0.1], "residual": [0.2, 0.3]}) == pytest.approx((0.4 + 0.3) / 2)


def test_the_report_is_written(report, tmp_path):
    written = [path.name for path in write_report(dataclasses.replace(report, figures={}), tmp_path)]
    assert {"complexity.md", "complexity.json"} <= set(written)
    assert len([name for name in written if name.endswith(".csv")]) == 5


def drawn(report, name):
    """The panels' titles, and the labels of their lines."""
    pytest.importorskip("matplotlib")
    import matplotlib.pyplot as plt

    figure = report.figures[name]()
    figure.set_dpi(20)
    figure.canvas.draw()
    plt.close(figure)
    return {axis.get_title(): [line.get_label() for line in axis.lines] for axis in figure.axes}


@pytest.mark.slow
def test_pictures_have_a_line_for_each_network_and_way_of_sampling(report):
    panels = drawn(report, "complexity")
    assert list(panels) == ["gradients, mu = 0", "rounds, mu = 0", "gradients, mu = 20", "rounds, mu = 20"]
    for labels in panels.values():
        assert {"degree 3, two-sided", "degree 6, one-sided"} <= set(labels)
    panels = drawn(report, "complexity-samples")
    assert {"eps asked for", "error obtained, rows", "error obtained, noise"} <= set(panels["mu = 0"])


@pytest.mark.slow
def test_pictures_have_gaps_where_nothing_was_reached(found):
    made_up = changed_copy(found)
    for run in made_up.exact.values():
        run["counts"] = {kind: [None] * 4 for kind in KINDS}
    assert drawn(complexity.report_of(BUILT_IN, made_up), "complexity")
