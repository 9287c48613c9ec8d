"""Docstrings write inner products as <z, A x>: keep Markdown from taking them for HTML tags."""

from typing import Any

from markdown import Markdown
from markdown.extensions import Extension


class NoHtml(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.deregister("html")
        md.preprocessors.deregister("html_block")


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(NoHtml())
    return config
