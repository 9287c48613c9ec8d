"""A report page in the browser: opening it, and getting at its sections, controls and plots."""

import time

from report_contents import content

from gradslide.report.page import page


def opened(browser, *documents):
    """Opens the page of the documents from disk, without any complaint of the browser."""
    # Always the same address: Chromium then keeps the compiled Plotly.
    file = browser.downloads / "report.html"
    file.write_text(page(content(*documents)), encoding="utf-8")
    browser.get_log("browser")
    browser.get(file.as_uri())
    browser.shown = documents
    assert browser.get_log("browser") == []


def js(browser, code, *arguments):
    return browser.execute_script(f"return {code}", *arguments)


def section(browser, title):
    return browser.find_element("xpath", f"//section[not(@hidden)][h2[text()='{title}']]")


def titles(browser):
    return [
        heading.text
        for heading in browser.find_elements("css selector", "section:not([hidden]) > h2")
        if heading.is_displayed()
    ]


def control(section, label):
    return section.find_element(
        "xpath", f".//label[not(@hidden)][span[starts-with(text(), '{label}')]]/*[self::select or self::input]"
    )


def choose(browser, section, label, text):
    from selenium.webdriver.support.select import Select

    Select(control(section, label)).select_by_visible_text(text)


def plot(browser, section):
    """What Plotly shows there: its data and its two axes."""
    canvas = section.find_element("css selector", ".plot")
    code = "({data: arguments[0].data, x: arguments[0].layout.xaxis, y: arguments[0].layout.yaxis})"
    return js(browser, code, canvas)


def press(browser, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def wait(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return value
