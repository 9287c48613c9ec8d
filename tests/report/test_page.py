"""The report page as text: self-contained, and whatever is in its content stays data."""

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from importlib import resources

import pytest
from report_contents import HOSTILE, bare, content, hostile, reproduction, run

from gradslide._support.errors import InputError
from gradslide.report.page import page

ASSETS = resources.files("gradslide.report").joinpath("assets")


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the texts of its scripts, styles and title."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.texts = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.texts[-1] += data

    def of(self, tag):
        return [(given, text) for (name, given), text in zip(self.tags, self.texts, strict=True) if name == tag]


def policy(tags):
    (given,) = [given["content"] for given, _ in tags.of("meta") if "http-equiv" in given]
    return dict(rule.split(" ", 1) for rule in given.split("; "))


@pytest.fixture(scope="module")
def plain():
    return Tags(page(content(run())))


def test_the_content_comes_back_as_it_was():
    given = content(hostile(), reproduction())
    text = page(given)
    scripts = Tags(text).of("script")
    assert len(scripts) == 3
    attributes, embedded = scripts[0]
    assert attributes == {"type": "application/json", "id": "content"}
    assert "<" not in embedded
    assert json.loads(embedded) == given


def test_names_cannot_end_the_title():
    tags = Tags(page(content(hostile())))
    ((_, title),) = tags.of("title")
    assert title == f"{HOSTILE} · gradslide"
    assert not tags.of("img")


@pytest.mark.parametrize(
    ("documents", "title"),
    [((), "gradslide"), (("one",), "The run one · gradslide"), (("one", "two"), "one, two · gradslide")],
)
def test_the_title_names_the_documents(documents, title):
    assert Tags(page(content(*map(bare, documents)))).of("title")[0][1] == title


def test_nothing_is_loaded_or_linked_from_outside(plain):
    for name, attributes in plain.tags:
        for attribute in ("src", "href", "action", "srcset"):
            assert attributes.get(attribute, "#").startswith(("#", "data:,")), (name, attributes)
    assert "@import" not in plain.of("style")[0][1]
    assert "url(" not in plain.of("style")[0][1]
    own = "".join(file.read_text(encoding="utf-8") for file in ASSETS.iterdir())
    assert set(re.findall(r"https?://[^'\"\s]+", own)) <= {"http://www.w3.org/2000/svg"}
    assert "innerHTML" not in own


@pytest.mark.parametrize("live", [False, True])
def test_the_policy_allows_the_scripts_of_the_page_and_no_others(live):
    tags = Tags(page(content(bare()), live=live))
    rules = policy(tags)
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["connect-src"] == ("'self'" if live else "'none'")
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for _, text in tags.of("script")[1:]]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in digests]
    assert tags.of("html")[0][0] == {"lang": "en", "data-live": str(live).lower()}


def test_a_number_that_json_lacks_is_refused():
    with pytest.raises(ValueError, match="JSON compliant"):
        page(content(bare(summary={"title": "", "columns": ["x"], "rows": [[float("nan")]], "notes": []})))


def test_every_asset_is_used_and_all_are_small(plain):
    text = "".join(text for _, text in plain.of("script") + plain.of("style"))
    sizes = {file.name: len(file.read_bytes()) for file in ASSETS.iterdir()}
    assert sum(sizes.values()) < 60_000
    for file in ASSETS.iterdir():
        if not file.name.endswith(".html"):
            assert file.read_text(encoding="utf-8") in text, file.name
        assert len(file.read_text(encoding="utf-8").splitlines()) < 200, file.name


def test_a_missing_plotly_is_said_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    remedy = r"report pages need plotly; got none installed; in a checkout of gradslide: pip install '.\[plot\]'"
    with pytest.raises(InputError, match=remedy):
        page(content())
