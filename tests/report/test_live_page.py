"""The page of a run that goes on, in a headless Chromium: it grows in place, and says when its server is gone."""

import copy
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from browser import browser
from report_contents import content, curve, run
from report_pages import choose, control, js, plot, section, wait

from gradslide.report.page import page

__all__ = ["browser"]

RUN = run()


class Served:
    """The page and its data on 127.0.0.1 as a live run serves them: to who knows the token, anew only if changed."""

    def __init__(self, given):
        self.given = given
        self.answers = []
        self.page = page(given, live=True)
        self.server = None
        self.start()

    def start(self):
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path, _, query = self.path.partition("?")
                if path == "/data.json":
                    status = served.answer(self, query)
                    served.answers.append(status)
                else:
                    self.reply(200, "text/html; charset=utf-8", served.page)

            def reply(self, status, kind="text/plain", text="", **headers):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())
                return status

            def log_message(self, *_):
                pass

        port = 0 if self.server is None else self.server.server_address[1]
        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, handler, query):
        text = json.dumps(self.given)
        tag = f'"{hash(text)}"'
        if query != "token=secret":
            return handler.reply(403)
        if handler.headers["If-None-Match"] == tag:
            return handler.reply(304)
        return handler.reply(200, "application/json", text, ETag=tag)

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/?token=secret"


def grown(points, finished=False):
    """A live run after so many outer iterations."""
    made = copy.deepcopy(RUN)
    made["networks"], made["certificates"] = made["networks"][:1], []
    made["curves"][0]["curves"] = [curve("max degree 4", 1.0, points=points)]
    frames = made["networks"][0]["frames"]
    made["networks"][0]["frames"] = {key: values[: points // 5] for key, values in frames.items()}
    made["summary"]["rows"][0][1] = points
    return content(made, live=True, finished=finished)


@pytest.fixture
def live(browser):
    """A page of a run at work, in a browser whose timers run ten times as fast."""
    faster = "{ const slow = window.setTimeout; window.setTimeout = (call, delay) => slow(call, delay / 10); }"
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": faster})
    served = Served(grown(20))
    browser.get_log("browser")
    browser.get(served.address)
    browser.shown = None
    yield served
    browser.get("about:blank")
    del browser.shown
    served.stop()
    browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)
    browser.get_log("browser")


def state(browser):
    return browser.find_element("css selector", ".state").text


def test_a_live_page_grows_in_place_until_the_run_has_finished(browser, live):
    from selenium.webdriver.common.keys import Keys

    assert state(browser).startswith("running: outer iteration 20, updated ")
    assert wait(lambda: live.answers[-2:] == [304, 304]), "the page must ask again, and be told that nothing is new"
    assert live.answers[0] == 200
    shown = section(browser, "Convergence")
    choose(browser, shown, "Horizontal", "communication rounds")
    control(shown, "bound").send_keys(" ")
    drawing = section(browser, "Network")
    slider = control(drawing, "Outer iteration")
    assert slider.get_attribute("value") == "3", "the last frame so far"
    slider.send_keys(Keys.ARROW_LEFT)
    table = section(browser, "Summary").find_element("css selector", ".scroll")
    js(browser, "window.scrollTo(0, 600)")
    before = js(browser, "window.scrollY")

    live.given = grown(50)
    assert wait(lambda: "outer iteration 50" in state(browser))
    trace = plot(browser, shown)
    assert trace["x"]["title"]["text"] == "communication rounds"
    assert [len(given["x"]) for given in trace["data"]] == [50]
    assert (slider.get_attribute("value"), slider.get_attribute("max")) == ("2", "9")
    assert browser.switch_to.active_element == slider
    assert js(browser, "window.scrollY") == before
    assert "50" in table.text

    slider.send_keys(Keys.END)
    live.given = grown(75, finished=True)
    assert wait(lambda: state(browser).startswith("ended, updated "))
    assert browser.find_element("id", "state").get_attribute("role") == "status"
    assert browser.get_log("browser") == []

    asked = len(live.answers)
    live.page = page(live.given, live=True)
    browser.refresh()
    assert state(browser).startswith("ended")
    time.sleep(0.3)
    assert len(live.answers) == asked, "nothing is asked once the run has finished"


@pytest.mark.slow
def test_a_live_page_says_when_its_server_is_gone_and_comes_back(browser, live):
    live.stop()
    assert wait(
        lambda: (
            "out of reach: the run has ended, or this page's server has; what is shown is the last state"
            in state(browser)
        )
    )
    assert plot(browser, section(browser, "Convergence"))["data"][0]["name"] == "max degree 4"
    live.start()
    assert wait(lambda: state(browser).startswith("running: outer iteration 20"))
    assert all("data.json" in entry["message"] for entry in browser.get_log("browser"))
