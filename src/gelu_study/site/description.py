"""A Sphinx extension: what a search engine or a card says of a page is its first sentence, not its first 200 characters."""

from __future__ import annotations

import html
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

LENGTH = 300
"""Characters after which a description is cut, at a word's end."""


def first_sentence(page: nodes.document) -> str:
    """The first sentence of a page, without a bold lead-in, citations and the marks of formulas; empty for a page without any."""
    found = (node for node in page.findall(nodes.paragraph) if node.astext().strip())
    paragraph = next((node for node in found if not isinstance(node.parent, nodes.citation)), None)
    if paragraph is None:
        return ""
    parts = [child for child in paragraph.children if child.astext().strip()]
    if isinstance(parts[0], nodes.strong) and parts[0].astext().endswith((".", ":")):
        parts = parts[1:] or parts
    first = paragraph.index(parts[0])
    words = "".join(child.astext() for child in paragraph.children[first:]).replace(r"\,", " ").replace(r"\Phi", "Φ")
    words = " ".join(re.sub(r"</?a\b[^>]*>", "", words).split())  # a link to the glossary is HTML
    words = re.sub(r"\s*\[[^\]]*\b\d{4}\w?\]", "", words)  # a citation: Nair and Hinton [2010] keeps its names
    sentence = re.split(r"(?<=[.?!])\s", words, maxsplit=1)[0].strip()
    return sentence if len(sentence) <= LENGTH else f"{sentence[:LENGTH].rsplit(' ', 1)[0]} …"


def describe(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Give a page its description, for search engines and for `sphinxext.opengraph`, which runs after this."""
    if doctree is not None and (sentence := first_sentence(doctree)):
        said = html.escape(sentence)
        context["meta"] = {**(context.get("meta") or {}), "og:description": said}
        context["metatags"] += f'<meta name="description" content="{said}" />\n'


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx, before `sphinxext.opengraph` (priority 500)."""
    app.connect("html-page-context", describe, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
