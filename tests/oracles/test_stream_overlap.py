"""Live streams over real sockets, and samples drawn while the network communicates."""

import socket
import socketserver
import threading
from contextlib import ExitStack, contextmanager
from functools import cache

import numpy as np
import pytest
from five_streams import EXCHANGES, GRAPH, PATIENCE, M, N, assert_same_run, batches, before, threads_that_end, traced

import gradslide as gs
from gradslide.network.wrapper import Wrapper
from gradslide.oracles import Stream

# Real sockets


DATA = gs.data.misfire(rows=1000)
TABLE = np.column_stack([DATA.features, DATA.labels]).reshape(M, -1, DATA.features.shape[1] + 1)
PICKS = np.random.default_rng(5).integers(TABLE.shape[1], size=(M, 3000))
PER_ANSWER = 3


def rows_of_answer(i, number):
    return TABLE[i, PICKS[i, number * PER_ANSWER : (number + 1) * PER_ANSWER]]


class Answering(socketserver.BaseRequestHandler):
    """One batch of rows for each byte that comes in, until the server is to hang up."""

    def handle(self):
        number = 0
        while self.request.recv(1) and number != self.server.answers:
            self.request.sendall(rows_of_answer(self.server.agent, number).tobytes())
            number += 1


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, agent, answers):
        super().__init__(("127.0.0.1", 0), Answering)
        self.agent, self.answers = agent, answers


@contextmanager
def connections(answers=None):
    """A connection to a server of its own for every agent; answers: how many an agent's gives before it hangs up."""
    with ExitStack() as stack:
        opened = []
        for i in range(M):
            server = stack.enter_context(Server(i, (answers or {}).get(i)))
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(server.shutdown)
            opened.append(stack.enter_context(socket.create_connection(server.server_address)))
        yield opened


def received(connection, length):
    """So many bytes, or fewer where the other side hung up."""
    body = b""
    while len(body) < length and (part := connection.recv(length - len(body))):
        body += part
    return body


def answers_over(connection, on_end=None):
    width = TABLE.shape[2]
    while True:
        connection.sendall(b"?")
        body = received(connection, 8 * width * PER_ANSWER)
        if not body:
            break
        rows = np.frombuffer(body).reshape(PER_ANSWER, width)
        yield rows[:, :-1], rows[:, -1]
    if on_end is not None:
        raise on_end


def remembered(i):
    for number in range(len(PICKS[i]) // PER_ANSWER):
        rows = rows_of_answer(i, number)
        yield rows[:, :-1], rows[:, -1]


def misfires(oracle, network=GRAPH, **settings):
    problem = gs.Problem(gs.losses.Logistic(DATA.features, DATA.labels, agents=M, reduction="mean"), mu=0.1)
    seen = []
    method = gs.SPDS(N=8, L=1.0, R=0.5, c=0.2, oracle=oracle)
    solution = gs.solve(problem, network, method, callback=lambda record, x: seen.append(x), **settings)
    return solution, np.array(seen)


@cache
def from_memory():
    return misfires(Stream(remembered, overlap=False))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("workers", [1, M])
def test_a_run_on_sockets_is_the_run_from_memory(overlap, workers):
    expected = from_memory()
    assert expected[0].costs.samples > 3 * PER_ANSWER
    with threads_that_end(), connections() as opened:
        streams = [answers_over(connection) for connection in opened]
        oracle = Stream(streams, overlap=overlap, workers=workers, timeout=PATIENCE)
        assert_same_run(expected, misfires(oracle, gs.network.Delayed(GRAPH, 2e-4)))


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("workers", [1, M])
@pytest.mark.parametrize("error", [None, ConnectionError("hung up")])
def test_a_server_that_hangs_up_ends_or_fails_the_stream(overlap, workers, error):
    agent, answers = 2, 5
    with threads_that_end(), connections({agent: answers}) as opened:

        def source(i):
            return answers_over(opened[i], on_end=error)

        oracle = Stream(source, overlap=overlap, workers=workers, timeout=PATIENCE)
        if error is None:
            solution = misfires(oracle)[0]
            status = gs.Status.STREAM_ENDED
            iterations = len(solution.history)
            assert solution.settings["ended_by"] == f"the stream of agent {agent}, in outer iteration {iterations + 1}"
        else:
            with pytest.raises(gs.StreamError, match="ConnectionError: hung up") as caught:
                misfires(oracle)
            solution, status, iterations = caught.value.solution, gs.Status.STREAM_FAILED, caught.value.iteration - 1
            assert caught.value.agent == agent
            assert caught.value.__cause__ is error
    assert solution.status is status
    expected = misfires(Stream(remembered), stop=gs.Stop(iterations=iterations))[0]
    assert 0 < iterations == len(solution.history)
    np.testing.assert_array_equal(solution.x, expected.x)
    wanted = [record.samples for record in from_memory()[0].history]
    assert wanted[iterations - 1] <= answers * PER_ANSWER < wanted[iterations]


# Sampling and communicating at the same time


class Watch:
    """What happened, in order: ("ask", k) when a stream is first asked for samples of outer iteration k, and
    ("exchange", k) for every exchange in it."""

    def __init__(self):
        self.events = []
        self.asked = {k: threading.Event() for k in range(1, N + 1)}

    def stream(self, i):
        first = {before(k): k for k in range(1, N + 1)}
        for number, batch in enumerate(batches(i)):
            if i == 0 and number in first:
                self.events.append(("ask", first[number]))
                self.asked[first[number]].set()
            yield batch

    def last_exchange(self, k):
        return max(place for place, event in enumerate(self.events) if event == ("exchange", k))


class Watched(Wrapper):
    """An exchange is over when it may be: wait(k, t) is called in exchange t of outer iteration k."""

    def __init__(self, watch, wait):
        super().__init__(gs.network.Local(GRAPH))
        self._watch, self._wait = watch, wait
        self._turns = ((k, t) for k in range(1, N + 1) for t in range(1, EXCHANGES[k - 1] + 1))

    def combine(self, v, weights, encoding=None):
        # The last record, past all turns, looks at the residual.
        k, t = next(self._turns, (N + 1, 1))
        self._wait(k, t)
        self._watch.events.append(("exchange", k))
        return super().combine(v, weights, encoding)


def watched(watch, oracle, wait=lambda k, t: None):
    solution, seen = traced(oracle, network=Watched(watch, wait), record_every=N)
    assert solution.costs.rounds == sum(EXCHANGES)
    assert solution.status is gs.Status.COMPLETED
    return solution, seen


@pytest.mark.parametrize("workers", [1, M])
def test_with_overlap_the_next_samples_are_asked_for_while_the_network_communicates(workers):
    watch = Watch()

    def wait(k, t):
        """No exchange of k begins before the stream is asked for the samples of k + 1."""
        if k < N:
            assert watch.asked[k + 1].wait(PATIENCE), f"nobody asked for the samples of {k + 1}"

    run_with_overlap = watched(watch, Stream(watch.stream, workers=workers), wait)
    for k in range(1, N):
        assert watch.events.index(("ask", k + 1)) < watch.events.index(("exchange", k))
        # Not earlier either: the samples of k are used before those of k + 1 are asked for.
        assert k == 1 or watch.last_exchange(k - 1) < watch.events.index(("ask", k + 1))
    assert_same_run(run_with_overlap, traced(Stream(batches, overlap=False)))


def test_without_overlap_the_next_samples_wait_for_the_network():
    watch = Watch()
    watched(watch, Stream(watch.stream, overlap=False))
    for k in range(1, N):
        assert watch.last_exchange(k) < watch.events.index(("ask", k + 1))


def test_the_network_does_not_wait_for_samples_that_are_drawn_ahead():
    """The stream gives the samples of k + 1 only once the last exchange of k is over."""
    over = {k: threading.Event() for k in range(1, N + 1)}

    def source(i):
        first = {before(k): k for k in range(2, N + 1)}
        for number, batch in enumerate(batches(i)):
            if number in first:
                assert over[first[number] - 1].wait(PATIENCE), "the network waited for the stream"
            yield batch

    def wait(k, t):
        if k <= N and t == EXCHANGES[k - 1]:
            over[k].set()

    watched(Watch(), Stream(source), wait)
