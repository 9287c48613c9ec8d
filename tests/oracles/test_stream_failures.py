"""Live streams that fail, end or block."""

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice

import numpy as np
import pytest
from five_streams import (
    BATCHES,
    ORDER,
    PATIENCE,
    SAMPLES,
    D,
    M,
    N,
    assert_same_run,
    batches,
    before,
    logistic,
    run,
    threads_that_end,
    traced,
)

import gradslide as gs
from gradslide.oracles import Stream

# Streams that fail


def ending(agent, samples, error=None):
    """Sources in which the stream of one agent gives so many samples, and then ends or fails."""

    def source(i):
        if i != agent:
            yield from batches(i)
        yield from islice(batches(i), samples)
        if error is not None:
            raise error

    return source


OVERLAP_AND_WORKERS = pytest.mark.parametrize(("overlap", "workers"), [(False, 1), (True, 1), (False, M), (True, 2)])


@OVERLAP_AND_WORKERS
@pytest.mark.parametrize("k", [1, 6, N])
def test_a_failure_reaches_the_caller_with_all_that_was_reached(overlap, workers, k):
    cause = OSError("sensor unplugged")
    oracle = Stream(ending(3, before(k), cause), overlap=overlap, workers=workers)
    with threads_that_end(), pytest.raises(gs.StreamError) as caught:
        run(oracle)
    error = caught.value
    assert (error.agent, error.iteration) == (3, k)
    assert error.__cause__ is cause
    assert str(error) == f"the stream of agent 3 failed in outer iteration {k}: OSError: sensor unplugged"
    assert_reached(error.solution, gs.Status.STREAM_FAILED, k - 1)


@cache
def undisturbed(iterations):
    return run(Stream(batches), stop=gs.Stop(iterations=iterations))


def assert_reached(solution, status, iterations):
    """The solution is that of an undisturbed run with so many outer iterations."""
    assert solution.status is status
    assert np.all(np.isfinite(solution.x))
    assert len(solution.history) == iterations
    if iterations == 0:
        np.testing.assert_array_equal(solution.x, np.zeros((M, D)))
        assert solution.costs.samples == solution.costs.rounds == 0
        return
    expected = undisturbed(iterations)
    assert set(solution.outputs) == {"average", "hat", "last"}
    for name, x in expected.outputs.items():
        np.testing.assert_array_equal(solution.outputs[name], x)
    np.testing.assert_array_equal(solution.dual, expected.dual)
    assert solution.history[-1].objective == expected.history[-1].objective
    assert (solution.costs.samples, solution.costs.rounds) == (expected.costs.samples, expected.costs.rounds)


@OVERLAP_AND_WORKERS
def test_a_failure_in_the_middle_of_a_batch_is_one_of_its_outer_iteration(overlap, workers):
    oracle = Stream(ending(0, before(6) + 1, KeyError("x")), overlap=overlap, workers=workers)
    with pytest.raises(gs.StreamError) as caught:
        run(oracle)
    assert (caught.value.agent, caught.value.iteration) == (0, 6)
    assert_reached(caught.value.solution, gs.Status.STREAM_FAILED, 5)


@OVERLAP_AND_WORKERS
def test_a_failure_while_parameters_are_found_is_one_of_iteration_0(overlap, workers):
    cause = ValueError("no signal")
    oracle = Stream(ending(1, 20, cause), overlap=overlap, workers=workers)
    with threads_that_end(), pytest.raises(gs.StreamError, match="outer iteration 0: ValueError: no signal") as caught:
        run(oracle, method={"R": None})
    assert (caught.value.agent, caught.value.iteration, caught.value.solution) == (1, 0, None)
    assert caught.value.__cause__ is cause


def test_a_failure_past_the_samples_that_are_used_is_never_heard_of():
    solution = run(Stream(ending(1, before(5), OSError("late"))), stop=gs.Stop(iterations=4))
    assert solution.status is gs.Status.ITERATION_LIMIT


def test_an_iterator_that_breaks_the_protocol_is_a_failure():
    class Broken:
        def __iter__(self):
            return self

        def __next__(self):
            raise RuntimeError("wire torn")

    with pytest.raises(gs.StreamError, match="RuntimeError: wire torn"):
        run(Stream(lambda i: Broken()))


def test_with_workers_a_failure_does_not_wait_for_streams_that_block():
    gate = threading.Event()

    def source(i):
        if i == 0:
            gate.wait(PATIENCE)
        yield from ending(3, before(1), OSError("cut"))(i)

    with threads_that_end():
        try:
            with pytest.raises(gs.StreamError) as caught:
                run(Stream(source, workers=M))
            assert not gate.is_set()
        finally:
            gate.set()
    assert (caught.value.agent, caught.value.iteration) == (3, 1)


@pytest.mark.covering
@pytest.mark.parametrize("k", [1, 6])
@pytest.mark.parametrize("record_every", [1, 4])
@pytest.mark.parametrize("error", [OSError("cut"), None])
def test_after_a_failure_a_fresh_stream_goes_on_from_the_checkpoint(tmp_path, k, record_every, error):
    path = tmp_path / "run.npz"
    settings = {"checkpoint": path, "record_every": record_every}
    if error is None:
        assert run(Stream(ending(2, before(k))), **settings).status is gs.Status.STREAM_ENDED
    else:
        with pytest.raises(gs.StreamError):
            run(Stream(ending(2, before(k), error)), **settings)
    assert path.exists()
    rest = run(Stream(lambda i: batches(i, first=before(k))), **settings)
    whole = run(Stream(batches), record_every=record_every)
    assert rest.status is whole.status is gs.Status.COMPLETED
    np.testing.assert_array_equal(rest.x, whole.x)
    assert [record.iteration for record in rest.history] == [record.iteration for record in whole.history]
    assert rest.history[-1].objective == whole.history[-1].objective
    assert rest.costs.samples == SAMPLES


def test_what_was_reached_can_start_another_run():
    with pytest.raises(gs.StreamError) as caught:
        run(Stream(ending(2, before(N), OSError("cut"))))
    again = run(Stream(batches), warm_start=caught.value.solution)
    assert again.status is gs.Status.COMPLETED
    assert again.history[0].objective < caught.value.solution.history[0].objective


def test_a_failure_names_the_agent_as_in_the_whole_network():
    here = range(2, 4)
    sampler = Stream(ending(3, 4, OSError("cut"))).open(logistic().loss.take(here), here, 0)
    sampler.draw(0, 4)
    with pytest.raises(gs.StreamError) as caught:
        sampler.draw(4, 1)
    assert caught.value.agent == 3


# Streams that end


@OVERLAP_AND_WORKERS
@pytest.mark.parametrize(("k", "surplus"), [(1, 0), (6, 0), (6, 2), (N, BATCHES[-1] - 1)])
def test_a_run_ends_with_its_stream_and_keeps_what_was_reached(overlap, workers, k, surplus):
    oracle = Stream(ending(4, before(k) + surplus), overlap=overlap, workers=workers)
    with threads_that_end():
        solution = run(oracle)
    assert_reached(solution, gs.Status.STREAM_ENDED, k - 1)
    assert solution.settings["ended_by"] == f"the stream of agent 4, in outer iteration {k}"


def test_how_a_stream_ended_is_kept_with_the_solution(tmp_path):
    solution = run(Stream(ending(4, before(3))))
    saved = gs.load(solution.save(tmp_path / "solution.npz"))
    assert saved.status is gs.Status.STREAM_ENDED
    assert saved.settings["ended_by"] == "the stream of agent 4, in outer iteration 3"
    assert "ended_by" not in run(Stream(batches)).settings


@OVERLAP_AND_WORKERS
@pytest.mark.parametrize("samples", [0, 63])
def test_a_stream_that_ends_while_parameters_are_found_is_an_error(overlap, workers, samples):
    oracle = Stream(ending(1, samples), overlap=overlap, workers=workers)
    with threads_that_end(), pytest.raises(gs.StreamError, match="it ended before the first outer iteration") as caught:
        run(oracle, method={"R": None})
    assert (caught.value.agent, caught.value.iteration, caught.value.solution) == (1, 0, None)


def test_a_stream_that_ends_after_parameters_were_found_ends_the_run():
    solution = run(Stream(ending(1, 64)), method={"R": None})
    assert solution.status is gs.Status.STREAM_ENDED
    assert solution.settings["ended_by"] == "the stream of agent 1, in outer iteration 1"


class Counting:
    """A stream of single samples that knows what it was asked for; with an end, or without."""

    def __init__(self, i, samples=None):
        self.asked = 0
        self._batches = islice(batches(i), samples)

    def __iter__(self):
        return self

    def __next__(self):
        self.asked += 1
        return next(self._batches)


@OVERLAP_AND_WORKERS
@pytest.mark.parametrize("samples", [SAMPLES, None])
def test_no_sample_is_asked_for_past_the_last_outer_iteration(overlap, workers, samples):
    streams = [Counting(i, samples) for i in range(M)]
    with threads_that_end():
        solution = run(Stream(streams, overlap=overlap, workers=workers))
    assert solution.status is gs.Status.COMPLETED
    assert [stream.asked for stream in streams] == [SAMPLES] * M
    assert solution.costs.samples == SAMPLES


def test_samples_that_parameters_are_found_from_are_asked_for_once():
    streams = [Counting(i) for i in range(M)]
    solution = run(Stream(streams), method={"R": None})
    assert {stream.asked for stream in streams} == {64 + SAMPLES} == {solution.costs.samples}


def test_sigma_is_estimated_from_as_many_samples_as_were_said():
    streams = [Counting(i) for i in range(M)]
    problem = logistic()
    sigma = gs.oracles.estimate_sigma(problem, oracle=Stream(streams), samples=200)
    assert {stream.asked for stream in streams} == {200}
    x = problem.start()
    each = np.stack([problem.loss.gradient_of_rows(x, ORDER[:, [j]]) for j in range(200)])
    assert sigma == pytest.approx(np.sqrt(np.mean(np.sum(each.var(axis=0, ddof=1), axis=1))))


def test_a_stream_that_ends_while_sigma_is_estimated_is_an_error():
    with pytest.raises(gs.StreamError, match="ended"):
        gs.oracles.estimate_sigma(logistic(), oracle=Stream(ending(1, 5)), samples=6)


def test_no_more_batches_are_asked_for_than_samples_need():
    asked = []

    def source(i):
        for batch in batches(i, sizes=(4,)):
            asked.append(i)
            yield batch

    run(Stream(source))
    assert asked.count(0) == -(-SAMPLES // 4)


def test_a_stream_of_empty_batches_is_given_up_too():
    def source(i):
        while True:
            time.sleep(0.01)
            yield np.zeros((0, D)), np.zeros(0)

    with threads_that_end(), pytest.raises(gs.StreamError, match=r"nothing for 0\.2 seconds"):
        run(Stream(source, timeout=0.2))


def test_a_second_run_waits_for_what_the_first_one_asked_for():
    def slow(i):
        for batch in batches(i):
            time.sleep(0.02)
            yield batch

    live = Stream([slow(i) for i in range(M)])
    first = run(live, callback=lambda record, x: True)
    assert first.status is gs.Status.STOPPED
    assert run(live, method={"N": 2}).status is gs.Status.COMPLETED


def test_a_run_that_goes_on_draws_nothing_to_find_its_parameters_again(tmp_path):
    asked = []

    def source(i):
        for batch in batches(i):
            asked.append(i)
            yield batch

    settings = {"method": {"N": 6, "R": None, "c": None, "samples": 400}, "checkpoint": tmp_path / "run.npz"}
    whole = run(Stream(source), method=settings["method"])
    part = run(Stream(source, overlap=False), stop=gs.Stop(iterations=3), **settings)
    asked.clear()
    on = run(Stream(lambda i: batches(i, first=part.costs.samples)), **settings)
    assert on.parameters == whole.parameters
    assert on.costs.samples == whole.costs.samples
    np.testing.assert_array_equal(on.x, whole.x)
    asked.clear()
    assert run(Stream(source), **settings).status is gs.Status.COMPLETED
    assert not asked


# Streams that block


def blocking(agent, samples, gate, asked=None):
    """Sources in which the stream of one agent gives so many samples, and the next ones once the gate is open."""

    def source(i):
        for number, batch in enumerate(batches(i)):
            if asked is not None:
                asked.append(i)
            if i == agent and number == samples:
                gate.wait(PATIENCE)
            yield batch

    return source


@OVERLAP_AND_WORKERS
@pytest.mark.parametrize(("agent", "k"), [(0, 1), (3, 6)])
def test_a_stream_that_gives_nothing_is_given_up(overlap, workers, agent, k):
    gate = threading.Event()
    oracle = Stream(blocking(agent, before(k) + k // 6, gate), overlap=overlap, workers=workers, timeout=0.2)
    with threads_that_end():
        try:
            with pytest.raises(gs.StreamError, match=r"it gave nothing for 0\.2 seconds") as caught:
                run(oracle)
            assert not gate.is_set()
        finally:
            gate.set()
    assert (caught.value.agent, caught.value.iteration) == (agent, k)
    assert_reached(caught.value.solution, gs.Status.STREAM_FAILED, k - 1)


def test_a_stream_is_given_up_while_parameters_are_found():
    gate = threading.Event()
    with threads_that_end():
        try:
            with pytest.raises(gs.StreamError, match=r"outer iteration 0: it gave nothing for 0\.2 seconds") as caught:
                run(Stream(blocking(2, 10, gate), timeout=0.2), method={"R": None})
            assert not gate.is_set()
        finally:
            gate.set()
    assert (caught.value.agent, caught.value.solution) == (2, None)


def test_the_batches_of_others_do_not_save_a_stream_that_blocks():
    """Agent 0 is slow, but gives; agent 3 gives nothing."""
    gate = threading.Event()

    def source(i):
        for batch in blocking(3, before(6), gate)(i):
            if i == 0:
                time.sleep(0.05)
            yield batch

    with threads_that_end():
        try:
            with pytest.raises(gs.StreamError) as caught:
                run(Stream(source, workers=M, timeout=0.5), stop=gs.Stop(iterations=6))
        finally:
            gate.set()
    assert (caught.value.agent, caught.value.iteration) == (3, 6)


@pytest.mark.first(1)
@pytest.mark.parametrize("workers", [1, M])
def test_a_slow_stream_is_not_given_up_while_it_gives(workers):
    timeout, pause = 1.0, 0.05

    def source(i):
        for batch in batches(i):
            time.sleep(pause if i == 0 else 0.0)
            yield batch

    method = {"N": 1, "c": None, "samples": 25}
    assert 25 * pause > timeout
    solution = run(Stream(source, workers=workers, timeout=timeout), method=method)
    assert solution.status is gs.Status.COMPLETED
    assert solution.costs.samples == 25


@pytest.mark.parametrize(("overlap", "workers"), [(True, 1), (False, M)])
def test_a_time_limit_ends_a_run_that_waits(overlap, workers, tmp_path):
    gate = threading.Event()
    stream = Stream(blocking(3, before(5), gate), overlap=overlap, workers=workers)
    with threads_that_end():
        solution = run(stream, stop=gs.Stop(seconds=0.5), checkpoint=tmp_path / "run.npz")
        gate.set()
    # A busy machine may not have come as far as to the wait.
    assert len(solution.history) <= 4
    assert_reached(solution, gs.Status.TIME_LIMIT, len(solution.history))
    # Nothing was torn: a fresh stream goes on from there.
    on = run(Stream(lambda i: batches(i, first=solution.costs.samples)), checkpoint=tmp_path / "run.npz")
    np.testing.assert_array_equal(on.x, run(Stream(batches)).x)


def test_a_timeout_that_is_never_met_changes_nothing():
    assert_same_run(traced(Stream(batches, timeout=PATIENCE)), traced(Stream(batches)))


def test_after_a_run_nothing_more_is_drawn():
    """The run stops while the samples of the next outer iteration are on their way: the batch that the stream blocks
    on is the last one, of all agents."""
    gate, asked, k = threading.Event(), [], 6
    with threads_that_end():
        try:
            solution = run(Stream(blocking(0, before(k), gate, asked)), stop=gs.Stop(iterations=k - 1))
            assert solution.status is gs.Status.ITERATION_LIMIT
            assert not gate.is_set()
        finally:
            gate.set()
    assert BATCHES[k - 1] >= 3
    assert [asked.count(i) for i in range(M)] == [before(k) + 1] + [before(k)] * (M - 1)


def test_after_a_failure_nothing_more_is_drawn():
    gate, asked, k = threading.Event(), [], 6
    with threads_that_end():
        try:
            with pytest.raises(gs.StreamError):
                run(Stream(blocking(1, before(k), gate, asked), timeout=0.2))
        finally:
            gate.set()
    waited_for = [BATCHES[k - 1], 1, 0, 0, 0]
    assert [asked.count(i) for i in range(M)] == [before(k) + more for more in waited_for]


@pytest.mark.parametrize("wrong", [{"x0": np.full(D, np.nan)}, {"output": "best"}])
def test_a_run_that_is_refused_leaves_no_thread_behind(wrong):
    with threads_that_end(), pytest.raises(gs.InputError):
        run(Stream(batches, workers=M), method={"R": None}, **wrong)


@pytest.mark.parametrize("workers", [1, M])
@pytest.mark.parametrize("fails", [False, True])
def test_streams_are_let_go_of_when_the_run_has_ended(workers, fails):
    """So that their connections close."""
    seen = []

    def short(i):
        yield from islice(batches(i), before(4))
        if fails:
            raise OSError("cut")

    def source(i):
        stream = short(i) if i == 2 else batches(i)
        seen.append(weakref.ref(stream))
        return stream

    gc.disable()
    try:
        # Not pytest.raises, which would hold on to the error.
        with threads_that_end(), suppress(gs.StreamError):
            assert run(Stream(source, workers=workers)).status is gs.Status.STREAM_ENDED
        assert [stream() for stream in seen] == [None] * M
    finally:
        gc.enable()


SCRIPT = r"""
import os, signal, sys, threading, time
import numpy as np
import gradslide as gs

# Where Ctrl-C was ignored by who started this, it must not be ignored here.
signal.signal(signal.SIGINT, signal.default_int_handler)
timeout, overlap, workers = eval(sys.argv[1])

def stream(i):
    yield np.zeros((3, 2))
    # By now the run has nothing to do but to wait.
    time.sleep(0.3)
    os.write(1, b"blocked\n")
    threading.Event().wait()

oracle = gs.oracles.Stream(
    stream, gradient=lambda x, batch: x - 1, timeout=timeout, overlap=overlap, workers=workers
)
problem = gs.Problem(gs.losses.Custom(agents=3, dimension=2, smoothness=1.0))
solution = gs.solve(problem, gs.Graph.ring(3), gs.SPDS(N=9, L=1.0, R=1.0, c=0.0, oracle=oracle))
reached = (solution.status.name, len(solution.history), len(threading.enumerate()) > 1, sorted(solution.outputs))
# In one piece: the streams of other agents may write, too.
os.write(1, (" ".join(map(str, reached)) + "\n").encode())
"""


@contextmanager
def script(timeout, overlap, workers):
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, repr((timeout, overlap, workers))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.first(1)
@pytest.mark.parametrize(("overlap", "workers"), [(True, 1), (False, 3)])
def test_a_stream_that_blocks_does_not_keep_the_program_alive(overlap, workers):
    with script(1.5, overlap, workers) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    assert "blocked" in out
    assert err.rstrip().endswith("failed in outer iteration 4: it gave nothing for 1.5 seconds")


@pytest.mark.first(1)
@pytest.mark.skipif(sys.platform == "win32", reason="signals differ there")
@pytest.mark.parametrize(("overlap", "workers"), [(True, 1), (False, 3)])
def test_ctrl_c_gets_out_of_a_stream_that_blocks(overlap, workers):
    with script(None, overlap, workers) as process:
        assert process.stdout.readline() == "blocked\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    # The state was not torn: it has all its outputs.
    assert [line for line in out.splitlines() if line != "blocked"] == ["INTERRUPTED 3 True ['average', 'hat', 'last']"]
