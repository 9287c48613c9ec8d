"""Metrics beside the live page, in the text format of Prometheus."""

import re
import urllib.request

import numpy as np

import gradslide as gs
from gradslide.experiments.run import NetworkRun
from gradslide.report.live import LivePage
from gradslide.report.metrics import metrics_text
from gradslide.report.server import served
from gradslide.results.costs import Costs
from gradslide.results.history import Record

LINE = re.compile(r'gradslide_[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)+\})? (-?[0-9.e+-]+|NaN|[+-]Inf)')


def is_valid(text):
    """Every line is a comment or a value, and every metric has its type."""
    lines = text.splitlines()
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    values = [line for line in lines if not line.startswith("#")]
    return all(LINE.fullmatch(line) for line in values) and {re.split(r"[ {]", line)[0] for line in values} == typed


def test_the_text_of_all_metrics():
    costs = Costs(gradients=3, rounds=40)
    text = metrics_text({'odd "name"\n': Record.of(7, costs)}, {"ring": "CONVERGED"}, is_finished=False)
    assert is_valid(text)
    assert 'gradslide_gradients{network="odd \\"name\\"\\n"} 3.0' in text
    assert 'gradslide_status{network="ring",status="CONVERGED"} 1.0' in text
    assert "gradslide_finished 0.0" in text
    assert not is_valid(text + "gradslide_gradients 3 4\n")


def test_a_run_is_followed_over_http():
    live = LivePage("trial", "Trial")
    loss = gs.losses.Quadratic(np.ones((4, 1, 1)), np.arange(4.0)[:, None])
    graph = gs.Graph.ring(4)

    def asked(url, path):
        with urllib.request.urlopen(url.rstrip("/") + path, timeout=10) as answer:
            return answer.headers["Content-Type"], answer.read().decode()

    with served(live, "127.0.0.1:0") as url:
        assert asked(url, "/health")[1] == "ok\n"
        assert "gradslide_gradients" not in asked(url, "/metrics")[1]
        live.started("ring", graph, "a problem", None)
        solution = gs.solve(gs.Problem(loss), graph, callback=lambda record, x: live.recorded(record, None))
        kind, text = asked(url, "/metrics")
        assert kind.startswith("text/plain; version=0.0.4")
        assert is_valid(text)
        assert f'gradslide_gradients{{network="ring"}} {float(solution.costs.gradients)}' in text
        live.ended(NetworkRun("ring", "ring", graph, solution))
        assert 'status="CONVERGED"' in asked(url, "/metrics")[1]
