"""The report page: one HTML file with its data, style and scripts in it; nothing is fetched when it
is opened.
"""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

from gradslide._support.errors import InputError

# Each file is a block that adds to the one name `gradslide`; later ones use earlier ones.
_SCRIPTS = (
    "namespace.js",
    "format.js",
    "elements.js",
    "controls.js",
    "theme.js",
    "plot.js",
    "tables.js",
    "curve_style.js",
    "curve_data.js",
    "curves.js",
    "scale.js",
    "network.js",
    "agents.js",
    "downloads.js",
    "document.js",
    "tabs.js",
    "live.js",
    "main.js",
)


def page(content: Mapping[str, Any], *, live: bool = False) -> str:
    """The page that shows `content` (plain JSON; no NaN); with `live` it then polls data.json
    beside it.
    """
    scripts = {"plotly": _plotly(), "script": "\n".join(map(_asset, _SCRIPTS))}
    return Template(_asset("page.html")).substitute(
        scripts,
        title=html.escape(_title(content)),
        live=str(live).lower(),
        policy=_policy(scripts.values(), live),
        style=_asset("page.css"),
        content=json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _asset(name: str) -> str:
    return resources.files("gradslide.report").joinpath("assets", name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise InputError(
            "report pages need plotly", "none installed", "in a checkout of gradslide: pip install '.[plot]'"
        ) from None
    return str(get_plotlyjs())


def _title(content: Mapping[str, Any]) -> str:
    documents = content["documents"]
    names = [documents[0]["title"]] if len(documents) == 1 else [document["name"] for document in documents]
    return " · ".join([", ".join(names), "gradslide"] if names else ["gradslide"])


def _policy(scripts: Any, live: bool) -> str:
    """Nothing from outside; only the page's own two scripts run. Plotly sets styles as it draws."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    rules = {
        "default-src": "'none'",
        "script-src": hashes,
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
