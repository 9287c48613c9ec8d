"""From the command line to the browser: real results, the page made of them, and a page beside a run that goes on."""

import json
import threading

import pytest
from browser import browser
from report_contents import SECTIONS
from specs import exit_code, write_spec

import gradslide as gs
from gradslide.experiments.run import run_spec
from gradslide.experiments.spec import read_spec
from gradslide.report.live import LivePage
from gradslide.report.server import served

__all__ = ["browser"]

pytest.importorskip("plotly")

THEORY = 'name = "pds"\nR = "theory"'
BALL = 'loss = "logistic"\ndomain = { set = "l2_ball", radius = 2.0 }'


def opened(browser, address: str) -> list[str]:
    """The headings of the page, which must have nothing to complain of."""
    browser.get_log("browser")
    browser.get(address)
    assert browser.get_log("browser") == []
    script = "return [...document.querySelectorAll('section:not([hidden]) > h2')].map((each) => each.textContent)"
    return browser.execute_script(script)


def plotted(browser, plot: str) -> list[dict]:
    script = "return JSON.stringify(document.querySelector(arguments[0]).data.map(({name, x, y}) => ({name, x, y})))"
    return json.loads(browser.execute_script(script, plot))


def test_the_page_of_a_run_shows_what_the_run_found(browser, tmp_path):
    spec = write_spec(tmp_path, problem=BALL, method=THEORY, stop="iterations = 30")
    assert exit_code("run", spec, "--out", tmp_path / "out", "-q") == 0
    assert exit_code("report", tmp_path / "out") == 0
    headings = opened(browser, (tmp_path / "out" / "report.html").as_uri())
    assert headings == SECTIONS
    (run,) = json.loads((tmp_path / "out" / "results.json").read_text())["runs"]
    optimum = json.loads((tmp_path / "out" / "results.json").read_text())["optimum"]
    measured, bound = plotted(browser, ".js-plotly-plot")
    assert measured["y"] == pytest.approx([value - optimum for value in run["history"]["objective"]])
    assert bound["y"] == pytest.approx(run["bounds_along"]["at_mean"])
    assert all(value <= most for value, most in zip(measured["y"], bound["y"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compare", "reproduce"])
def test_comparisons_and_reproductions_have_pages(browser, tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if command == "reproduce":
        assert exit_code("reproduce", "figure1", "--out", "out", "-q") == 0
    else:
        (tmp_path / "two.toml").write_text(
            'version = 1\naccuracies = [0.1]\n[[problem]]\nname = "rows"\nloss = "logistic"\nmu = 0.1\n'
            'data = { name = "misfire", rows = 400, agents = 5 }\n[[network]]\ntopology = "ring"\n'
            '[[method]]\nname = "auto"\n[[method]]\nname = "nids"\n[limits]\ngradients = 50\n[output]\nplot = false\n'
        )
        assert exit_code("compare", "two.toml", "--out", "out", "-q", "-j", 1) == 0
    assert exit_code("report", "out") == 0
    headings = opened(browser, (tmp_path / "out" / "report.html").as_uri())
    assert {"Summary", "Network", "Settings and versions", "Downloads"} <= set(headings)
    assert ("Convergence" in headings) is (command == "compare")


@pytest.mark.slow
def test_a_page_beside_a_run_grows_with_it(browser, tmp_path):
    spec = read_spec(write_spec(tmp_path, problem=BALL, stop="iterations = 40"))
    goes_on = threading.Event()

    class Slow(LivePage):
        """Waits in the middle until the page was looked at."""

        def __init__(self) -> None:
            super().__init__(spec.name, spec.title)

        def recorded(self, record: gs.Record, frames) -> None:
            super().recorded(record, frames)
            if record.iteration == 20:
                goes_on.wait(60)

    live = Slow()
    run = threading.Thread(target=run_spec, args=(spec,), kwargs={"listener": live})
    with served(live, "127.0.0.1:0") as url:
        run.start()
        while live.version < 21:
            pass
        assert "Convergence" in opened(browser, url)
        assert len(plotted(browser, ".js-plotly-plot")[0]["x"]) == 20
        goes_on.set()
        run.join()
        live.finish()
        browser.execute_async_script(
            "const done = arguments[0]; const look = () => document.querySelector('[role=status]').textContent"
            ".includes('ended') ? done() : setTimeout(look, 50); look();"
        )
        assert len(plotted(browser, ".js-plotly-plot")[0]["x"]) == 40
        assert browser.get_log("browser") == []
