"""A page beside a run: what it is told, who may see it, and that the run does not depend on it."""

import json
import re
import subprocess
import sys
import threading
import time
from http.client import BadStatusLine, HTTPConnection
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np
import pytest
from mpi_tasks import needs_mpi
from specs import exit_code, write_spec

import gradslide as gs
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import read_spec
from gradslide.report import server
from gradslide.report.live import LivePage
from gradslide.report.server import Server, parsed_address, served

pytest.importorskip("plotly")

BALL = 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 2.0 }'
LONG = "iterations = 1000000\nseconds = 60"


@pytest.fixture(autouse=True)
def no_page_is_waited_for(monkeypatch):
    monkeypatch.setattr(server, "_OPEN", 0.0)


def record(iteration: int) -> gs.Record:
    return gs.Record(iteration, iteration, 0, 2 * iteration, 0, 0.1 * iteration, objective=1 / iteration)


def begun() -> LivePage:
    live = LivePage("mine", "My run")
    live.started("ring", gs.Graph.ring(5), "a problem", None)
    return live


def fetched(url: str, path: str = "", **headers: str):
    """Status, body and tag."""
    address = urlsplit(url)
    connection = HTTPConnection(address.hostname, address.port, timeout=20)
    connection.request("GET", f"/{path}" + f"?{address.query}" * bool(address.query), headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.getheader("ETag")


def document_of(body: bytes) -> dict:
    return json.loads(body)["documents"][0]


def test_records_arrive():
    live = begun()
    with served(live, "127.0.0.1:0") as url:
        assert document_of(fetched(url, "data.json")[1])["curves"][0]["curves"][0]["columns"]["iteration"] == []
        for k in (1, 2, 3):
            live.recorded(record(k), None)
        content = json.loads(fetched(url, "data.json")[1])
    assert content["state"] == {"live": True, "finished": False}
    document = content["documents"][0]
    assert document["title"] == "My run"
    assert document["curves"][0]["curves"][0]["columns"]["rounds"] == [2, 4, 6]
    assert document["summary"]["rows"][0][:3] == ["ring", 3, 6]
    assert document["networks"][0]["degrees"] == [2] * 5


def test_what_a_page_has_is_not_sent_again():
    live = begun()
    with served(live, "127.0.0.1:0") as url:
        status, body, tag = fetched(url, "data.json")
        assert (status, bool(body)) == (200, True)
        assert fetched(url, "data.json", **{"If-None-Match": tag})[:2] == (304, b"")
        live.recorded(record(1), None)
        assert fetched(url, "data.json", **{"If-None-Match": tag})[0] == 200


def test_the_page_itself_is_served():
    with served(begun(), "127.0.0.1:0") as url:
        status, body, _ = fetched(url)
        assert status == 200
        assert b"<title>My run" in body
        assert b'data-live="true"' in body
        assert fetched(url, "elsewhere")[0] == 404


def test_on_loopback_other_sites_cannot_ask():
    """A page of another site whose name leads here sends that name."""
    with served(begun(), "127.0.0.1:0") as url:
        port = urlsplit(url).port
        assert fetched(url, "data.json", Host=f"evil.example:{port}")[0] == 403
        assert fetched(url, "data.json", Host=f"localhost:{port}")[0] == 200
        assert "token" not in url


def test_elsewhere_only_the_token_opens_it():
    with served(begun(), "0.0.0.0:0") as url:
        token = re.fullmatch(r"http://0\.0\.0\.0:\d+/\?token=(\S{20,})", url)[1]
        assert fetched(url, "data.json")[0] == 200
        assert fetched(url)[0] == 200
        for wrong in (url.replace(token, ""), url.replace(token, token[:-1] + "!"), url.split("?")[0]):
            assert fetched(wrong, "data.json")[0] == 403
            assert fetched(wrong)[0] == 403


def test_two_pages_have_different_tokens():
    with served(begun(), "0.0.0.0:0") as first, served(begun(), "0.0.0.0:0") as second:
        assert urlsplit(first).query != urlsplit(second).query


def test_nothing_is_kept_by_browsers_or_told_to_others():
    with served(begun(), "127.0.0.1:0") as url, urlopen(url, timeout=20) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("8000", ("127.0.0.1", 8000)),
        ("0.0.0.0", ("0.0.0.0", 0)),
        ("my-machine:0", ("my-machine", 0)),
        (":80", ("127.0.0.1", 80)),
    ],
)
def test_addresses(text, expected):
    assert parsed_address(text) == expected


@pytest.mark.parametrize("text", ["127.0.0.1:http", "host:70000", "::1", "", "²", "a\0b:1"])
def test_addresses_that_are_none(text):
    with pytest.raises(gs.InputError, match="the address of a live page must be HOST:PORT"):
        parsed_address(text)


def test_an_address_that_is_taken_is_told(tmp_path, capsys):
    with served(begun(), "127.0.0.1:0") as url:
        spec = write_spec(tmp_path)
        assert exit_code("run", spec, "--live-at", f"127.0.0.1:{urlsplit(url).port}", "--out", tmp_path / "out") == 1
    error = capsys.readouterr().err
    assert "a live page needs a free address of this machine" in error
    assert "Traceback" not in error


def test_an_open_page_is_given_the_end(monkeypatch):
    """It asked a moment ago, and will ask again."""
    monkeypatch.setattr(server, "_OPEN", 60.0)
    live = begun()
    page = Server(live, "127.0.0.1:0")
    _, _, tag = fetched(page.url, "data.json")
    closing = threading.Thread(target=page.close)
    closing.start()
    while not live.is_finished:
        time.sleep(0.01)
    body = fetched(page.url, "data.json", **{"If-None-Match": tag})[1]
    closing.join()
    assert json.loads(body)["state"]["finished"] is True
    with pytest.raises((URLError, ConnectionError)):
        urlopen(page.url, timeout=5)


def test_a_browser_that_goes_away_disturbs_nobody(capfd):
    with served(begun(), "127.0.0.1:0") as url:
        for _ in range(3):
            connection = HTTPConnection("127.0.0.1", urlsplit(url).port)
            connection.request("GET", "/")
            connection.sock.close()
        assert fetched(url, "data.json")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_run_tells_its_records_and_its_end(tmp_path):
    spec = read_spec(write_spec(tmp_path, problem=BALL))
    live = LivePage(spec.name, spec.title)
    results = run_spec(spec, listener=live)
    _, content = live.content()
    document = content["documents"][0]
    assert document["summary"]["rows"][0][-1] == results.runs[0].solution.status.value
    assert document["networks"][0]["frames"]["iterations"] == [1, 2, 3, 4, 5]
    assert document["curves"][0]["curves"][0]["columns"]["iteration"] == [1, 2, 3, 4, 5]
    assert "PDS" in document["settings"][0]["facts"]["method"]


def test_a_page_changes_nothing_of_a_run(tmp_path):
    spec = read_spec(write_spec(tmp_path, problem=BALL))
    plain = run_spec(spec).runs[0].solution
    watched = run_spec(spec, listener=LivePage("", "")).runs[0].solution
    np.testing.assert_array_equal(plain.x, watched.x)
    assert plain.costs.rounds == watched.costs.rounds


def watched_by_a_page(command: list[object], folder, *, iterations: int = 3) -> tuple[dict, str]:
    """Start it, look at its page until it has come so far, then interrupt it: the last content, and what was said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gradslide", *map(str, command)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        said = ""
        while (found := re.search(r"http://\S+", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        document = {"curves": []}
        until = time.monotonic() + 60
        while time.monotonic() < until and _progress(document) < iterations:
            time.sleep(0.05)
            document = document_of(fetched(found[0], "data.json")[1])
        process.send_signal(2)
        process.communicate(timeout=60)
        return document, found[0]
    finally:
        process.kill()
        process.wait()


def _progress(document: dict) -> int:
    seen = [curve["columns"]["iteration"] for group in document["curves"] for curve in group["curves"]]
    return max((columns[-1] for columns in seen if columns), default=0)


def test_the_command_line_serves_a_page(tmp_path):
    spec = write_spec(tmp_path, problem=BALL, stop=LONG, output=f'dir = "{tmp_path}/out"\nplot = false')
    document, url = watched_by_a_page(["run", spec, "--live"], tmp_path)
    assert url.startswith("http://127.0.0.1:")
    assert document["networks"][0]["frames"]["iterations"][0] == 1
    assert (tmp_path / "out" / "results.json").exists()


@pytest.mark.slow
@needs_mpi
def test_a_run_of_several_processes_serves_one_page(tmp_path):
    spec = write_spec(tmp_path, problem=BALL, stop=LONG, output=f'dir = "{tmp_path}/out"\nplot = false')
    document, _ = watched_by_a_page(["run", spec, "-n", "2", "--live"], tmp_path)
    frames = document["networks"][0]["frames"]
    assert len(frames["distances"][0]) == 5


@pytest.mark.slow
def test_peers_on_this_machine_have_a_page(tmp_path):
    pytest.importorskip("cryptography")
    spec = write_spec(
        tmp_path, problem=BALL, method='name = "auto"', stop=LONG, output=f'dir = "{tmp_path}/out"\nplot = false'
    )
    document, _ = watched_by_a_page(["local", spec, "--peers", "--live"], tmp_path)
    assert document["networks"][0]["frames"] is None
    assert document["networks"][0]["degrees"] == [2] * 5


def test_closed_pages_answer_no_more():
    with served(begun(), "127.0.0.1:0") as url:
        pass
    with pytest.raises((HTTPError, URLError, ConnectionError)):
        urlopen(Request(url), timeout=5)


def test_what_is_not_finite_is_left_out():
    live = begun()
    live.recorded(gs.Record(1, 1, 0, 2, 0, 0.1, objective=float("inf"), gap=float("nan")), None)
    with served(live, "127.0.0.1:0") as url:
        columns = document_of(fetched(url, "data.json")[1])["curves"][0]["curves"][0]["columns"]
    assert columns["objective"] == [None]


def test_a_record_that_comes_twice_counts_once():
    """Who watches several processes looks at the same record again and again."""
    live = begun()
    for k in (1, 1, 2, 2, 1):
        live.recorded(record(k), None)
    assert live.content()[1]["documents"][0]["curves"][0]["curves"][0]["columns"]["iteration"] == [1, 2]


def test_records_are_those_of_the_network_that_began_last():
    live = begun()
    live.recorded(record(1), None)
    live.started("star", gs.Graph.star(5), "a problem", None)
    before = live.version
    live.recorded(record(1), None)
    live.recorded(record(2), None)
    assert live.version == before + 2
    ring, star = live.content()[1]["documents"][0]["curves"][0]["curves"]
    assert (ring["columns"]["iteration"], star["columns"]["iteration"]) == ([1], [1, 2])


def test_the_end_of_a_network_is_news_and_takes_the_place_of_what_was_seen(tmp_path):
    spec = read_spec(write_spec(tmp_path, problem=BALL))
    (run,) = run_spec(spec).runs
    live = begun()
    live.recorded(record(1), None)
    before = live.version
    live.ended(run)
    assert live.version == before + 1
    document = live.content()[1]["documents"][0]
    assert document["networks"][0]["frames"] == run.frames
    assert document["agents"][0]["columns"]["gradients"] == [run.solution.costs.gradients] * 5


def test_costs_of_one_agent_are_not_taken_for_those_of_all():
    live = begun()
    live.recorded(gs.Record(1, 1, 0, 2, 0, 0.1, floats_sent=10), None)
    assert live.content()[1]["documents"][0]["agents"] == []


def test_browsers_may_leave_the_usual_port_out():
    with served(begun(), "127.0.0.1:0") as url:
        assert fetched(url, "data.json", Host="127.0.0.1")[0] == 200
        assert fetched(url, "data.json", Host="LocalHost:80")[0] == 200


def test_idle_connections_do_not_use_up_what_the_run_needs(monkeypatch):
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 2)
    with served(begun(), "127.0.0.1:0") as url:
        idle = [HTTPConnection("127.0.0.1", urlsplit(url).port) for _ in range(2)]
        for connection in idle:
            connection.connect()
            time.sleep(0.1)
        with pytest.raises((ConnectionError, BadStatusLine)):
            fetched(url, "data.json")
        for connection in idle:
            connection.close()
        time.sleep(0.2)
        assert fetched(url, "data.json")[0] == 200


def test_half_a_request_does_not_hold_up_the_end():
    with served(begun(), "127.0.0.1:0") as url:
        connection = HTTPConnection("127.0.0.1", urlsplit(url).port)
        connection.connect()
        connection.sock.sendall(b"GET / HT")
    connection.close()


def test_the_token_is_not_logged(caplog):
    caplog.set_level("DEBUG")
    with served(begun(), "0.0.0.0:0") as url:
        fetched(url)
        assert urlsplit(url).query.removeprefix("token=") not in caplog.text


@pytest.mark.slow
def test_an_agent_among_peers_has_a_page(tmp_path):
    pytest.importorskip("cryptography")
    from agent_folders import started, write_agents

    first, second = write_agents(tmp_path, method='name = "auto"', stop=LONG)
    with started("agent", second, "-q"):
        document, _ = watched_by_a_page(["agent", first, "--live"], tmp_path)
    assert document["kind"] == "agent"
    assert document["networks"][0]["degrees"] == [1, 1]
    assert document["agents"] == []
