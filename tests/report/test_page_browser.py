"""The report page in a headless Chromium: what it shows, its controls, and that nothing leaves it."""

import csv
import io
import json
from itertools import pairwise

import pytest
from browser import browser
from report_contents import (
    AGENTS,
    FRAMES,
    HOSTILE,
    LINK,
    POINTS,
    SECTIONS,
    bare,
    content,
    curve,
    hostile,
    reproduction,
    run,
)
from report_pages import choose, control, js, opened, plot, press, section, titles, wait

__all__ = ["browser"]

RUN = run()


@pytest.fixture
def opened_run(browser):
    opened(browser, RUN)
    return browser


@pytest.fixture
def any_run(browser):
    """The same, but perhaps with other choices than those it opens with: for tests that these do not matter to."""
    if getattr(browser, "shown", None) != (RUN,):
        opened(browser, RUN)
    return browser


def test_a_run_opens_with_all_its_sections_and_asks_for_nothing(opened_run):
    assert titles(opened_run) == SECTIONS
    assert opened_run.find_element("tag name", "h1").text == RUN["title"]
    assert (
        js(opened_run, "performance.getEntriesByType('resource').filter(({name}) => !name.startsWith('data:'))") == []
    )
    assert not opened_run.find_elements("css selector", "a[href]:not([href^='#'])")
    assert not any(tab.is_displayed() for tab in opened_run.find_elements("css selector", "[role=tab]"))
    refused = "fetch('data.json').then(() => 'fetched', () => 'refused')"
    assert js(opened_run, refused) == "refused"
    opened_run.get_log("browser")


def test_headings_are_in_order_and_controls_and_plots_have_names(any_run):
    levels = js(any_run, "[...document.querySelectorAll('h1,h2,h3,h4')].map((heading) => Number(heading.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for plotted in any_run.find_elements("css selector", ".plot"):
        assert plotted.get_attribute("role") == "img"
        assert len(plotted.get_attribute("aria-label")) > 30
    for given in any_run.find_elements("css selector", "select, input, button"):
        assert not given.is_displayed() or given.accessible_name


def test_tables_align_and_format_numbers(any_run):
    table = section(any_run, "Summary").find_element("tag name", "table")
    assert table.find_element("tag name", "caption").text == RUN["summary"]["title"]
    assert [cell.text for cell in table.find_elements("css selector", "tbody tr:first-child > *")] == [
        "max degree 4", "400", "2,000", "213", "6,130.8", "0.476", "0.000776", "1.9e-5", "converged",
    ]  # fmt: skip
    assert table.find_element("css selector", "tbody td").value_of_css_property("text-align") == "right"
    assert table.find_element("css selector", "tbody th").get_attribute("scope") == "row"
    assert "✗ DOES NOT HOLD" in section(any_run, "Certificate").text
    assert "✓ holds" in section(any_run, "Certificate").text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1234567, "1,234,567"), (0.000123456, "0.0001235"), (-1.5e-12, "-1.5e-12"), (1e300, "1e300"),
     (12345.678, "12,345.7"), (0.5, "0.5"), (None, "\N{EN DASH}"), (True, "✓ yes"), ([1, 2], "[1,2]")],
)  # fmt: skip
def test_numbers_are_readable(browser, value, shown):
    if not hasattr(browser, "shown"):
        opened(browser, bare())
    assert js(browser, "gradslide.format.value(arguments[0])", value) == shown


def test_the_axes_of_the_curves_switch(opened_run):
    shown = section(opened_run, "Convergence")
    before = plot(opened_run, shown)
    columns = RUN["curves"][0]["curves"][0]["columns"]
    assert before["x"]["title"]["text"] == "gradients per agent"
    assert (before["x"]["type"], before["y"]["type"]) == ("linear", "log")
    assert before["data"][0]["x"] == columns["gradients"]
    assert before["data"][0]["y"] == pytest.approx(columns["error"])
    choose(opened_run, shown, "Horizontal", "communication rounds")
    choose(opened_run, shown, "Vertical", "objective at the mean")
    after = plot(opened_run, shown)
    assert after["x"]["title"]["text"] == "communication rounds"
    assert (after["x"]["type"], after["y"]["type"]) == ("linear", "linear")
    assert after["data"][0]["x"] == columns["rounds"]
    assert after["data"][0]["y"] == pytest.approx(columns["objective"])
    for box in shown.find_elements("xpath", ".//label[span='log scale']/input"):
        box.send_keys(" ")
    logs = plot(opened_run, shown)
    assert (logs["x"]["type"], logs["y"]["type"]) == ("log", "log")
    assert opened_run.get_log("browser") == []


def test_curves_differ_by_colour_dash_and_marker_and_have_their_bounds(opened_run):
    shown = section(opened_run, "Convergence")
    data = plot(opened_run, shown)["data"]
    curves, bounds = data[0::2], data[1::2]
    assert len(curves) == len(bounds) == 3
    for look in (("line", "color"), ("line", "dash"), ("marker", "symbol")):
        assert len({trace[look[0]][look[1]] for trace in curves}) == 3
    for trace, bound, given in zip(curves, bounds, RUN["curves"][0]["curves"], strict=True):
        assert bound["line"]["color"] == trace["line"]["color"]
        assert bound["line"]["dash"] == "dot"
        assert bound["y"] == pytest.approx(given["columns"]["bound"])
    assert "what Theorem 1 promises" in shown.text
    shown.find_element("tag name", "summary").send_keys("\n")
    assert wait(lambda: shown.find_elements("css selector", "tbody tr"))
    row = [cell.text for cell in shown.find_elements("css selector", "tbody tr:first-child > *")]
    assert row[:2] + row[3:] == ["max degree 4", "2", "4,000,000"]
    control(shown, "bound").click()
    assert len(plot(opened_run, shown)["data"]) == 3
    choose(opened_run, shown, "Vertical", "disagreement")
    assert "Theorem 1" not in shown.text
    shown.find_element("css selector", ".legend input").click()
    assert [trace["name"] for trace in plot(opened_run, shown)["data"]] == ["max degree 9", "max degree 20"]


def test_hover_shows_readable_values(opened_run):
    from selenium.webdriver import ActionChains

    shown = section(opened_run, "Convergence")
    canvas = shown.find_element("css selector", ".plot")
    js(opened_run, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", canvas)
    place = "(axis, values) => axis._offset + axis.d2p(values[100])"
    both = f"(({{_fullLayout: f, data: [t]}}, at) => [at(f.xaxis, t.x), at(f.yaxis, t.y)])(arguments[0], {place})"
    x, y = js(opened_run, both, canvas)
    size = canvas.size
    ActionChains(opened_run).move_to_element_with_offset(
        canvas, round(x - size["width"] / 2), round(y - size["height"] / 2)
    ).perform()
    text = wait(lambda: js(opened_run, "(arguments[0].querySelector('.hoverlayer') || {}).textContent", canvas))
    assert "max degree" in text
    assert "gradients per agent: 20" in text


@pytest.mark.slow
def test_values_without_a_place_on_a_log_axis_are_left_out(browser):
    odd = curve("odd", 1.0, points=6)
    odd["columns"]["error"] = [10.0, 0.0, -1.0, None, 1e-300, 1e300]
    odd["columns"]["gradients"] = [0, 1, 2, 3, 4, 5]
    opened(browser, bare(curves=[{"name": "", "curves": [odd]}], axes=RUN["axes"]))
    shown = section(browser, "Convergence")
    assert plot(browser, shown)["data"][0]["y"] == [10.0, 1e-300, 1e300]
    assert "2 points that are not positive" in shown.text
    for box in shown.find_elements("xpath", ".//label[span='log scale']/input"):
        box.click()
    assert plot(browser, shown)["data"][0]["y"] == [0.0, -1.0, 1e-300, 1e300]
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_groups_and_curves_that_lack_a_column(browser):
    opened(browser, reproduction())
    shown = section(browser, "Convergence")
    choose(browser, shown, "Vertical", "disagreement")
    assert [trace["name"] for trace in plot(browser, shown)["data"]] == ["PDS"]
    assert "Left out, as there is no disagreement against gradients per agent: NIDS." in shown.text
    choose(browser, shown, "Group", "a9a")
    assert [trace["name"] for trace in plot(browser, shown)["data"]] == ["PDS", "NIDS"]
    assert "Left out" not in shown.text
    assert [line.text for line in section(browser, "What holds").find_elements("tag name", "li")] == [
        "✓ holds PDS takes the same gradients on all networks.",
        "✗ DOES NOT HOLD DCS takes fewer rounds.",
        "\N{EN DASH} not comparable The data set of the paper is not public.",
    ]


def test_the_slider_moves_through_the_iterations_by_keyboard(opened_run):
    from selenium.webdriver.common.keys import Keys

    shown = section(opened_run, "Network")
    network = RUN["networks"][0]
    slider = control(shown, "Outer iteration")
    assert slider.get_attribute("value") == str(FRAMES - 1), "a page opens at the answer"
    slider.send_keys(Keys.HOME)
    before = plot(opened_run, shown)["data"][1]
    slider.send_keys(Keys.END)
    after = plot(opened_run, shown)["data"][1]
    assert slider.get_attribute("value") == str(FRAMES - 1)
    assert slider.get_attribute("aria-valuetext") == f"iteration {POINTS}"
    assert f"max degree 4, at iteration {POINTS}" in shown.text
    assert all(late < early for early, late in zip(before["marker"]["color"], after["marker"]["color"], strict=True))
    assert all(late < early for early, late in zip(before["marker"]["size"], after["marker"]["size"], strict=True))
    assert [before["marker"][end] for end in ("cmin", "cmax")] == [after["marker"][end] for end in ("cmin", "cmax")]
    slider.send_keys(Keys.ARROW_LEFT)
    assert shown.find_element("css selector", ".now").text == str(network["frames"]["iterations"][-2])
    assert f"degree {network['degrees'][3]}" in after["text"][3]


def test_agents_are_coloured_by_degree_or_distance_in_each_network(opened_run):
    shown = section(opened_run, "Network")
    choose(opened_run, shown, "Colour", "degree")
    nodes = plot(opened_run, shown)["data"][1]
    assert nodes["marker"]["color"] == RUN["networks"][0]["degrees"]
    choose(opened_run, shown, "Network", "max degree 20")
    edges, nodes = plot(opened_run, shown)["data"]
    assert nodes["marker"]["color"] == RUN["networks"][2]["degrees"]
    assert len(edges["x"]) == 3 * len(RUN["networks"][2]["edges"])
    assert shown.find_element("tag name", "dd").text == str(AGENTS)
    shown.find_element("tag name", "summary").click()
    assert wait(lambda: len(shown.find_elements("css selector", "tbody tr")) == AGENTS)


def test_play_goes_on_by_itself(opened_run):
    shown = section(opened_run, "Network")
    slider = control(shown, "Outer iteration")
    play = shown.find_element("xpath", ".//button[contains(text(), 'Play')]")
    play.send_keys("\n")
    assert wait(lambda: int(slider.get_attribute("value")) > 1)
    assert "Pause" in play.text
    play.send_keys("\n")
    assert "Play" in play.text


def test_costs_per_agent(opened_run):
    from selenium.webdriver.support.select import Select

    shown = section(opened_run, "Costs per agent")
    costs = RUN["agents"][0]["columns"]
    assert Select(control(shown, "Cost")).first_selected_option.text == "floats sent"
    assert plot(opened_run, shown)["data"][0]["y"] == costs["floats sent"]
    choose(opened_run, shown, "Order", "largest first")
    assert plot(opened_run, shown)["data"][0]["y"] == sorted(costs["floats sent"], reverse=True)
    choose(opened_run, shown, "Order", "how many agents")
    assert plot(opened_run, shown)["data"][0]["type"] == "histogram"
    choose(opened_run, shown, "Cost", "gradients")
    assert "least 400, median 400, most 400; all together 40,000" in shown.text
    shown.find_element("tag name", "summary").click()
    assert wait(lambda: len(shown.find_elements("css selector", "tbody tr")) == AGENTS)


def test_downloads(any_run):
    browser = any_run
    buttons = section(browser, "Downloads").find_elements("tag name", "button")
    assert [button.text.split(" (")[0] for button in buttons] == [
        "↓ misfire-content.json",
        "↓ misfire-curves.csv",
        "↓ results.json",
    ]
    texts = []
    for button in buttons:
        button.send_keys("\n")
        file = browser.downloads / button.text.removeprefix("↓ ").split(" (")[0]
        assert wait(file.exists)
        texts.append(file.read_text(encoding="utf-8"))
    assert json.loads(texts[0]) == content(RUN)
    rows = list(csv.DictReader(io.StringIO(texts[1])))
    assert len(rows) == 3 * POINTS
    assert [float(row["error"]) for row in rows[:POINTS]] == RUN["curves"][0]["curves"][0]["columns"]["error"]
    assert rows[-1]["curve"] == "max degree 20"
    assert texts[2] == RUN["files"][0]["text"]


def test_a_plot_is_saved_as_a_picture(any_run):
    section(any_run, "Convergence").find_element("xpath", ".//button[text()='Save as SVG']").send_keys("\n")
    file = any_run.downloads / "curves.svg"
    assert wait(file.exists)
    assert "max degree 9" in file.read_text(encoding="utf-8")
    assert any_run.get_log("browser") == []


def test_light_and_dark_by_the_system_and_by_the_button(browser):
    def background():
        return js(browser, "getComputedStyle(document.body).backgroundColor")

    def emulate(scheme):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def words():
        code = "document.querySelector('.plot').layout.font.color"
        return js(browser, code)

    emulate("light")
    opened(browser, RUN)
    light = background(), words()
    emulate("dark")
    assert wait(lambda: background() != light[0])
    dark = background(), words()
    assert dark[1] != light[1]
    button = browser.find_element("id", "theme")
    assert button.accessible_name == "Switch to light colours"
    button.send_keys("\n")
    assert (background(), words()) == light
    emulate("light")


@pytest.mark.first(1)
@pytest.mark.parametrize("made", [run, reproduction, hostile])
def test_a_phone_does_not_scroll_sideways(browser, made):
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        opened(browser, made())
        assert js(browser, "document.documentElement.scrollWidth") <= 360
        assert js(browser, "window.innerWidth") == 360
        plots = browser.find_elements("css selector", "section:not([hidden]) .plot")
        assert plots
        assert all(250 < plotted.size["width"] < 360 for plotted in plots)
        for title in browser.find_elements("css selector", ".xtitle"):
            assert title.rect["x"] >= 0
            assert title.rect["x"] + title.rect["width"] <= 360
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_finger_on_a_plot_scrolls_the_page(browser):
    phone = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        opened(browser, RUN)
        js(browser, "document.querySelector('.plot').scrollIntoView({block: 'center'})")
        before = js(browser, "window.scrollY")
        for kind, y in (("touchStart", 370), *(("touchMove", y) for y in range(350, 150, -20))):
            browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": 200, "y": y}]})
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        assert wait(lambda: js(browser, "window.scrollY") > before + 100)
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_names_are_shown_as_text(browser):
    opened(browser, hostile())
    assert js(browser, "window.hacked") is None
    assert browser.title == f"{HOSTILE} · gradslide"
    for place in (
        "h1",
        ".subtitle",
        "table thead th:nth-child(2)",
        "table tbody th",
        ".card h3",
        "dt",
        "dd",
        ".statements span",
    ):
        assert HOSTILE in [found.text for found in browser.find_elements("css selector", place)], place
    assert not browser.find_elements("css selector", "main script, main img, main b")
    assert not js(browser, "[...document.querySelectorAll('a')].some((link) => !link.hash)")
    shown = section(browser, "Convergence")
    assert shown.find_element("css selector", ".xtitle").text == LINK
    assert shown.find_element("css selector", ".legend label").text == LINK
    assert section(browser, "Costs per agent").find_element("css selector", ".ytitle").text[:-1] == LINK[:34]


@pytest.mark.slow
def test_empty_lists_leave_their_sections_out(browser):
    opened(browser, bare())
    assert titles(browser) == ["Settings and versions", "Downloads"]
    assert [
        link.text for link in browser.find_elements("css selector", ".contents li") if link.is_displayed()
    ] == titles(browser)
    opened(browser)
    assert titles(browser) == []


@pytest.mark.slow
def test_networks_without_positions_or_frames(browser):
    network = {**RUN["networks"][0], "positions": None, "note": "too large to be drawn"}
    still = {**RUN["networks"][0], "name": "still", "frames": None}
    zero = {**RUN["networks"][0], "name": "zero", "frames": {"iterations": [0, 1], "distances": [[0.0] * AGENTS] * 2}}
    opened(browser, bare(networks=[network, still, zero]))
    shown = section(browser, "Network")
    assert "too large to be drawn" in shown.text
    assert not shown.find_element("css selector", ".plot").is_displayed()
    choose(browser, shown, "Network", "still")
    assert shown.find_element("css selector", ".plot").is_displayed()
    assert not shown.find_element("css selector", "input[type=range]").is_displayed()
    assert plot(browser, shown)["data"][1]["marker"]["color"] == still["degrees"]
    choose(browser, shown, "Network", "zero")
    choose(browser, shown, "Colour", "distance from the mean")
    assert len(set(plot(browser, shown)["data"][1]["marker"]["color"])) == 1
    assert browser.get_log("browser") == []


def test_documents_are_tabs_for_arrow_keys(browser):
    from selenium.webdriver.common.keys import Keys

    opened(browser, reproduction(), RUN, bare("third"))
    tabs = browser.find_elements("css selector", "[role=tab]")
    assert [tab.text for tab in tabs] == ["table-1", "misfire", "third"]
    tabs[0].send_keys(Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element == tabs[1]
    assert [tab.get_attribute("aria-selected") for tab in tabs] == ["false", "true", "false"]
    assert [heading.text for heading in browser.find_elements("tag name", "h1") if heading.is_displayed()] == [
        RUN["title"]
    ]
    drawn = section(browser, "Network").find_element("css selector", ".plot .main-svg")
    assert drawn.size["width"] > 300
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert browser.switch_to.active_element == tabs[0]
    press(browser, Keys.END)
    assert titles(browser) == ["Settings and versions", "Downloads"]
    assert browser.get_log("browser") == []
