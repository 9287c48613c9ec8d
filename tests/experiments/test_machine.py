"""Measurements of this machine, at sizes that say nothing about its speed; and what follows from figures."""

import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gradslide.experiments import machine
from gradslide.experiments.machine import (
    MachineReport,
    Measurement,
    Progress,
    Sizes,
    compilation_meaning,
    gpu_meaning,
    iteration_meaning,
    measure_machine,
    speedup_meaning,
    threads_meaning,
)
from gradslide.kernels.startup import startup_of

TINY = Sizes((6, 8, 5), [(6, 5, 2), (8, 3, 4)], [(6, 5, 2, 4)], [(6, 8, 5, 2, (2, 6))], seconds=0.0)
NAMES = [
    "loading compiled code",
    *["memory read", "gradient"] * 2,
    "gradient on a GPU",
    *["exchange"] * 2,
    "inner iteration of PDS",
]
ITERATIONS = ["iteration of NIDS", "iteration of AutoPDS"]


@pytest.fixture(autouse=True)
def afresh():
    """Compiled code is forced here; other tests decide for themselves."""
    yield
    startup_of.cache_clear()


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


class Listening(Progress):
    def __init__(self):
        self.begun, self.measured = [], []

    def begin(self, text):
        self.begun.append(text)

    def done(self, measurement):
        self.measured.append(measurement)


@pytest.mark.usefixtures("two_cores")
def test_every_figure_is_there_and_is_told_about():
    told = Listening()
    report = measure_machine(TINY, told)
    names = [each.name for each in report.measurements]
    assert names[: len(NAMES)] == NAMES
    # The difference of two solves may be negative on a busy machine.
    assert names[len(NAMES) :] in (ITERATIONS, ITERATIONS[1:])
    assert told.measured == report.measurements
    assert "making data" in told.begun
    for each in report.measurements:
        assert each.meaning if each.value is None else each.value > 0
        assert each.ratio is None or (each.ratio > 0 and each.relation)
    assert [each.threads for each in report.measurements[1:5]] == [1, 1, 2, 2]
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert report.seconds > 0


def test_one_core_is_measured_once(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 1)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    report = measure_machine(TINY)
    assert [each.threads for each in report.measurements if each.name == "gradient"] == [1]
    assert "OMP_NUM_THREADS" not in os.environ


def test_repeats_end_with_the_time():
    bench, calls = machine._Bench(Sizes(seconds=1000.0), Progress(), end=0.0), []
    found = bench._fastest(lambda: calls.append(0), lambda: None)
    # A second call if the first is short; no batch.
    assert len(calls) <= 2
    assert len(found) == 2


def test_of_repeated_calls_the_fastest_counts(monkeypatch):
    series = {"a": iter([5.0, 4.0, 6.0]), "b": iter([9.0, 8.0, 7.0])}
    bench = machine._Bench(Sizes(seconds=1000.0), Progress())

    def seconds(call, count):
        if (found := next(series[call], None)) is None:
            bench.end = 0.0
            raise StopIteration
        return found

    monkeypatch.setattr(machine, "_seconds", seconds)
    clock = iter([0.0] * 5)
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: next(clock, 1e9)))
    assert bench._fastest("a", "b") == [4.0, 7.0]


def test_what_does_not_fit_into_the_time_is_skipped():
    report = measure_machine(replace(TINY, limit=0.0))
    skipped = [each for each in report.measurements if each.meaning.startswith("skipped: out of time")]
    assert [each.name for each in skipped] == [*NAMES[-3:], ITERATIONS[1]]
    assert all(each.value is None for each in skipped)


def test_compilation_takes_none_of_the_time(monkeypatch):
    now = [0.0]

    def compile_for_minutes(bench):
        now[0] += 1000.0
        yield Measurement("loading compiled code", 1000.0, "s")

    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: now[0]))
    monkeypatch.setattr(machine._Bench, "compiled_code", compile_for_minutes)
    monkeypatch.setattr(machine._Bench, "_fastest", lambda bench, *calls: [1.0] * len(calls))
    report = measure_machine(replace(TINY, limit=35.0))
    assert not [each for each in report.measurements if "out of time" in each.meaning]
    assert report.seconds == 1000.0


@pytest.fixture
def bench_of(monkeypatch):
    """Makes a bench whose timed calls take the given seconds while others use a share of the cores."""

    def make(*seconds, others=0.0, threads=2):
        monkeypatch.setattr(machine, "usable_cores", lambda: 2)
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        found = iter(seconds)
        monkeypatch.setattr(machine._Bench, "_fastest", lambda bench, *calls: list(next(found)))
        monkeypatch.setattr(machine._OtherPrograms, "share", lambda programs: others)
        monkeypatch.setattr(machine._Bench, "_gpu", lambda bench, loss, features, speed: speed)
        return machine._Bench(TINY, Progress())

    return make


NOTE = "unreliable: others used 40% of the cores"


@pytest.mark.parametrize(("others", "note"), [(0.05, ""), (0.4, "; " + NOTE)])
def test_figures_of_gradients(others, note, bench_of):
    # TINY has 6 x 8 rows of 5 numbers: 1,920 bytes.
    bench = bench_of((1e-6, 4e-6), (5e-7, 1e-6), others=others)
    size, relation = (6, 8, 5), "of memory read"
    assert list(bench.gradients()) == [
        Measurement("memory read", pytest.approx(1.92), "GB/s", size, 1),
        Measurement("gradient", pytest.approx(0.48), "GB/s", size, 1, 0.25, relation, note.removeprefix("; ")),
        Measurement("memory read", pytest.approx(3.84), "GB/s", size, 2),
        Measurement(
            "gradient",
            pytest.approx(1.92),
            "GB/s",
            size,
            2,
            0.5,
            relation,
            "good: 4.0 times one thread, 50% of the memory's speed" + note,
        ),
        # The GPU is compared with all cores.
        pytest.approx(1.92),
    ]


@pytest.mark.parametrize(("others", "note"), [(0.05, ""), (0.4, NOTE)])
def test_figures_of_exchanges(others, note, bench_of):
    bench = bench_of((3e-6,), (6e-6,), others=others)
    assert list(bench.exchanges()) == [
        Measurement("exchange", pytest.approx(3.0), "us", (6, 5), 1, pytest.approx(100.0), "ns per number", note),
        Measurement("exchange", pytest.approx(6.0), "us", (8, 3), 1, pytest.approx(250.0), "ns per number", note),
    ]


@pytest.mark.parametrize(("others", "note"), [(0.05, ""), (0.4, "; " + NOTE)])
def test_figures_of_inner_loops(others, note, bench_of):
    # Four inner iterations.
    bench = bench_of((8e-6, 4e-5), others=others)
    assert list(bench.inner_loops()) == [
        Measurement(
            "inner iteration of PDS",
            pytest.approx(2.0),
            "us",
            (6, 5),
            2,
            pytest.approx(5.0),
            "times NumPy's speed",
            "good" + note,
        )
    ]


@pytest.mark.parametrize(
    ("threads", "seconds", "ours", "ratio", "meaning"),
    [
        # NIDS, AutoPDS, AutoPDS with one thread; 2 and 6 iterations of each.
        (2, (1, 3, 2, 5, 1, 5), 750, 1.5, "faster than NIDS if that needs over 1.5 times as many iterations"),
        (2, (1, 3, 2, 8, 1, 3), 1500, 3.0, "set OMP_NUM_THREADS=1 at this size: 3.0 times as fast"),
        (2, (1, 3, 2, 3, 1, 5), 250, 0.5, "good: no slower than NIDS"),
        (1, (1, 3, 2, 5), 750, 1.5, "faster than NIDS if that needs over 1.5 times as many iterations"),
    ],
)
@pytest.mark.parametrize(("others", "note"), [(0.05, ""), (0.4, "; " + NOTE)])
def test_figures_of_iterations(threads, seconds, ours, ratio, meaning, others, note, bench_of):
    bench, size = bench_of(seconds, others=others, threads=threads), (6, 8, 5)
    assert list(bench.iterations()) == [
        Measurement("iteration of NIDS", 500.0, "ms", size, threads),
        Measurement("iteration of AutoPDS", ours, "ms", size, threads, ratio, "times NIDS", meaning + note),
    ]


def test_a_time_that_cannot_be_is_no_figure(bench_of):
    (found,) = bench_of((3, 1, 2, 5, 1, 3)).iterations()
    meaning = "unreliable: other programs were busy; run again"
    assert found == Measurement("iteration of AutoPDS", None, "ms", (6, 8, 5), 2, meaning=meaning)


@pytest.mark.parametrize(
    ("own", "usable", "others", "expected"),
    [
        # On 8 cores, two of which others use.
        (8, 8, (10.0, 14.0), 0.25),
        (8, 8, (10.0, 10.0), 0.0),
        # A quota of 4 cores: others may use the other 4.
        (8, 4, (10.0, 18.0), 0.0),
        (8, 4, (10.0, 20.0), 0.25),
        # Unknown: the load before.
        (8, 8, (None, None), 0.5),
    ],
)
def test_other_programs_are_seen(own, usable, others, expected, monkeypatch):
    taken, clock = iter(others), iter([0.0, 2.0])
    monkeypatch.setattr(machine, "own_cores", lambda: list(range(own)))
    monkeypatch.setattr(machine, "usable_cores", lambda: usable)
    monkeypatch.setattr(machine, "_seconds_of_others", lambda: next(taken))
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(machine.os, "getloadavg", lambda: (4.0, 0.0, 0.0), raising=False)
    assert machine._OtherPrograms().share() == pytest.approx(expected)


def test_ticks_are_too_coarse_for_short_measurements(monkeypatch):
    taken, clock = iter([0.0, 0.01]), iter([0.0, 0.01])
    monkeypatch.setattr(machine, "_seconds_of_others", lambda: next(taken))
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert machine._OtherPrograms().share() == 0.0


def test_time_of_others_is_that_of_the_cores_without_this_process(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    # User, nice, system, idle, waiting, interrupts, soft interrupts, steal, guests.
    stat.write_text("cpu 9 9\ncpu0 100 20 30 5000 60 1 2 47 8 8\ncpu1 0 0 0 70 0 0 0 0 0 0\ncpu2 900 0 0 0 0 0 0 0\n")
    monkeypatch.setattr(machine, "own_cores", lambda: [0, 1])
    monkeypatch.setattr(machine.os, "sysconf", lambda name: 100, raising=False)
    monkeypatch.setattr(machine, "time", SimpleNamespace(process_time=lambda: 0.5))
    assert machine._seconds_of_others(stat) == pytest.approx(1.5)
    assert machine._seconds_of_others(tmp_path / "missing") is None


def test_inner_loops_that_are_compared_give_the_same_bits():
    startup_of("tiles-incidence-float64").is_worthwhile(np.inf)
    compiled, plain = machine._inner_loops(8, 5, 4, 7)
    found, expected = compiled(), plain()
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.dual.w, expected.dual.w)
    np.testing.assert_array_equal(found.x_hat, expected.x_hat)


def test_table_and_json_hold_the_same_figures():
    report = MachineReport(
        [
            Measurement("gradient", 12.345, "GB/s", (1000, 200, 300), 2, 0.5, "of memory read", "good"),
            Measurement("gradient on a GPU", None, meaning="no GPU"),
        ],
        seconds=3.0,
        cores=2,
        threads=2,
    )
    table = report.table()
    assert table.cells == [
        ["gradient", "1,000 x 200 x 300", "2", "12.3 GB/s", "0.5 of memory read", "good"],
        ["gradient on a GPU", "", "-", "-", "", "no GPU"],
    ]
    assert "measured in 3 seconds" in table.notes[-1]
    assert report.table(with_meanings=False).cells == [row[:-1] for row in table.cells]
    assert report.meanings == [
        "gradient, 1,000 x 200 x 300, 2 threads: good",
        "gradient on a GPU: no GPU",
    ]
    assert [each.line for each in report.measurements] == [
        "gradient, 1,000 x 200 x 300, 2 threads: 12.3 GB/s (0.5 of memory read)",
        "gradient on a GPU: no GPU",
    ]
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert (document["seconds"], document["cores"], document["threads"]) == (3.0, 2, 2)
    assert document["installation"]["numpy"] == np.__version__
    first, second = document["measurements"]
    assert (first["name"], first["value"], first["unit"], first["size"]) == (
        "gradient",
        12.345,
        "GB/s",
        [1000, 200, 300],
    )
    assert second["value"] is None


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((1.9, 0.6, 2, 2), "good: 1.9 times one thread, 60% of the memory's speed"),
        ((1.9, 0.3, 2, 2), "the processor limits it"),
        ((1.9, 1.4, 2, 2), "good: 1.9 times one thread, as fast as memory"),
        ((1.0, 0.6, 1, 1), "good: 60% of the memory's speed"),
        ((1.9, 0.6, 1, 2), "OMP_NUM_THREADS=1: set it to 2"),
        ((1.1, 0.6, 2, 2), "as fast with one thread: set OMP_NUM_THREADS=1"),
        ((1.1, 0.6, 1, 2), "good: 2 threads are no faster"),
        ((1.9, 0.6, 8, 2), "OMP_NUM_THREADS=8 is more than the cores: set it to 2"),
    ],
)
def test_advice_on_threads_follows_from_figures(figures, words):
    assert words in threads_meaning(*figures)


def test_other_advice_follows_from_figures():
    assert "NUMBA_CACHE_DIR" in compilation_meaning(is_stored=False, is_loaded=False)
    assert "later processes load it" in compilation_meaning(is_stored=True, is_loaded=False)
    assert compilation_meaning(is_stored=True, is_loaded=True).startswith("good")
    assert [speedup_meaning(ratio)[:6] for ratio in (4.0, 1.5, 0.5)] == ["good", "", "slower"]
    assert "needs over 1.5 times as many iterations" in iteration_meaning(1.5, 0.8)
    assert "set OMP_NUM_THREADS=1" in iteration_meaning(1.5, 1.4)
    assert iteration_meaning(1.0, 0.8).startswith("good")
    assert 'device="cuda"' in gpu_meaning(5.0)
    assert "not faster" in gpu_meaning(0.9)


def gradient_on_a_gpu():
    loss, _ = machine._regression(4, 5, 3, 2)
    return machine._Bench(TINY, Progress(), 0.0)._gpu(loss, np.ones((20, 3)), 1.0)


def test_without_pytorch_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    assert gradient_on_a_gpu().meaning == "no GPU: PyTorch is not installed"


def test_without_a_gpu_pytorch_changes_nothing(monkeypatch):
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    assert gradient_on_a_gpu() == Measurement("gradient on a GPU", None, meaning="no GPU")


def test_a_gpu_that_fails_is_a_row_too(monkeypatch):
    def full(*arguments, **named):
        raise RuntimeError("out of memory\ntried to allocate 480 MB")

    fake = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True), zeros=full, float64=None)
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setattr("gradslide.losses.Logistic.to", lambda loss, device: loss)
    assert gradient_on_a_gpu().meaning == "failed: out of memory"


def test_figures_of_a_gpu(monkeypatch):
    def zeros(shape, dtype, device):
        return np.zeros(shape)

    cuda = SimpleNamespace(is_available=lambda: True, synchronize=lambda: None)
    monkeypatch.setattr(machine, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, zeros=zeros, float64=None))
    monkeypatch.setattr("gradslide.losses.Logistic.to", lambda loss, device: loss)
    monkeypatch.setattr(machine._Bench, "_fastest", lambda bench, *calls: [1e-7, 2e-7])
    # 480 bytes; the cores reach 1 GB/s.
    relation, meaning = "of its memory read", '2.4 times the cores: use gs.network.Local(graph, device="cuda")'
    expected = Measurement("gradient on a GPU", pytest.approx(2.4), "GB/s", TINY.gradient, None, 0.5, relation, meaning)
    assert gradient_on_a_gpu() == expected


def test_ctrl_c_ends_all_measurements(monkeypatch):
    def press(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "solved", press)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with pytest.raises(KeyboardInterrupt):
        measure_machine(TINY)
    assert os.environ["OMP_NUM_THREADS"] == "3"
