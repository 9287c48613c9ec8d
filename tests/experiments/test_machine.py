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
    found = bench._fastest(lambda: calls.append(0) or sum(range(10**5)), lambda: None)
    # A second call if the first is short; no batch.
    assert len(calls) <= 2
    assert found[0] > found[1] >= 0


def test_what_does_not_fit_into_the_time_is_left_out():
    report = measure_machine(replace(TINY, limit=0.0))
    left_out = [each for each in report.measurements if "left out" in each.meaning]
    assert [each.name for each in left_out] == [*NAMES[-3:], ITERATIONS[1]]
    assert all(each.value is None for each in left_out)


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
        ((1.9, 0.6, 0.97, 2, 2), "good: 1.9 times one thread, 60% of the memory's speed"),
        ((1.9, 0.3, 0.97, 2, 2), "the processor limits it"),
        ((1.0, 0.6, 0.97, 1, 1), "good: 60% of the memory's speed"),
        ((1.9, 0.6, 0.97, 1, 2), "OMP_NUM_THREADS=1: set it to 2"),
        ((1.1, 0.6, 0.97, 1, 2), "as fast with one thread"),
        ((1.9, 0.6, 0.97, 8, 2), "OMP_NUM_THREADS=8 is more than the cores: set it to 2"),
        ((1.1, 0.6, 0.6, 2, 2), "other programs use the cores"),
    ],
)
def test_advice_on_threads_follows_from_figures(figures, words):
    assert words in threads_meaning(*figures)


def test_other_advice_follows_from_figures():
    assert "NUMBA_CACHE_DIR" in compilation_meaning(is_stored=False, is_loaded=False)
    assert "later processes load it" in compilation_meaning(is_stored=True, is_loaded=False)
    assert compilation_meaning(is_stored=True, is_loaded=True).startswith("good")
    assert [speedup_meaning(ratio)[:6] for ratio in (4.0, 1.5, 0.5)] == ["good", "", "slower"]
    assert "NIDS takes 1.5 times as many iterations" in iteration_meaning(1.5, 0.8)
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


def test_ctrl_c_ends_all_measurements(monkeypatch):
    def press(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "solved", press)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with pytest.raises(KeyboardInterrupt):
        measure_machine(TINY)
    assert os.environ["OMP_NUM_THREADS"] == "3"
