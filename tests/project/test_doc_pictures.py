"""The pictures of docs/concepts.md: each that is drawn is shown and described, and the page repeats what runs gave."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = " ".join((DOCS / "concepts.md").read_text(encoding="utf-8").split())  # lines are wrapped anywhere


@pytest.fixture(scope="module")
def pictures():
    spec = importlib.util.spec_from_file_location("doc_pictures", DOCS / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_kept_shown_and_described(pictures):
    drawn = {f"concepts_{draw.__name__}.png" for draw in pictures.PICTURES}
    shown = dict(re.findall(r"!\[([^]]*)\]\(img/(concepts_\w+\.png)\)", PAGE))
    assert {path.name for path in (DOCS / "img").glob("concepts_*")} == drawn
    assert set(shown.values()) == drawn
    assert all(len(text.split()) >= 8 for text in shown), "a description for readers who cannot see it"


@pytest.mark.slow
def test_the_page_repeats_what_the_runs_gave(pictures, capsys):
    """To one in twenty: iterations may differ between platforms."""
    for draw in (pictures.bounds, pictures.certificate, pictures.graphs):
        pictures.plt.close(draw())
    printed = capsys.readouterr().out
    patterns = {
        "bounds: Error": (r"([\d.e-]+) <= ([\d.e-]+) after", r"error was ([\d.]+) where at most ([\d.]+) was"),
        "bounds: ||A x||": (
            r"([\d.e-]+) <= ([\d.e-]+) after",
            r"x\\\|\\\| was ([\d.]+) where the bound was ([\d.]+)\.",
        ),
        "certificate": (r"([\d.]+) <= ([\d.]+) <= ([\d.]+) after", None),
        "graphs: PDS": (r"\[(\d+), (\d+), (\d+), (\d+)\]", r"PDS took (\d+), (\d+), (\d+) and (\d+) gradients"),
        "graphs: AutoPDS": (r"\[(\d+), (\d+), (\d+), (\d+)\]", None),
    }
    for line, (there, here) in patterns.items():
        (text,) = (each for each in printed.splitlines() if each.startswith(line))
        found = [float(number) for number in re.search(there, text).groups()]
        if here is not None:
            said = re.search(here, PAGE).groups()
        elif line == "certificate":
            lower, upper = re.search(r"([\d.]+) <= optimum <= ([\d.]+)\. The run", PAGE).groups()
            said = (lower, re.search(r"knew, is ([\d.]+)\. ", PAGE)[1], upper)
        else:
            least, most = map(float, re.search(r"moved a little: (\d+) to (\d+)\.", PAGE).groups())
            found, said = [min(found), max(found)], (least, most)
        assert found == pytest.approx([float(number) for number in said], rel=0.05), line
