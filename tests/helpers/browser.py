"""A headless Chromium for tests of pages; tests are skipped where there is none."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = ("/usr/bin/chromium", "chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900")
REMEDY = "run `make browser`"


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The driver of one Chromium; downloads go to the folder `browser.downloads`."""
    webdriver = pytest.importorskip("selenium.webdriver", reason=f"selenium is not installed: {REMEDY}")
    chromium, driver = _found(CHROMIUM), _found(("chromedriver",))
    if chromium is None or driver is None:
        pytest.skip(f"{'Chromium' if chromium is None else 'chromedriver'} was not found: {REMEDY}")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in OPTIONS:
        options.add_argument(option)
    # Both paths are given, so that selenium looks for nothing on the network.
    service = webdriver.ChromeService(executable_path=driver)
    with tempfile.TemporaryDirectory() as folder, webdriver.Chrome(options=options, service=service) as started:
        started.downloads = Path(folder)
        behaviour = {"behavior": "allow", "downloadPath": folder}
        started.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
        yield started
