"""Turns links that work in JupyterLab into links of the book: to figures by number, to other pages, to terms of the glossary.

A notebook's text refers to a figure of its own page as `[Figure 2](#name)`. The number is the one that the page's outputs give it
now, so that more records, which may bring more figures, leave no text behind. Pages that are no notebooks are `../book/NAME.md`
for JupyterLab, and lie beside the notebooks when the book is built.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gelu_study import pages

FIGURE = re.compile(r"\[(Figure|Table) \d+\]\(#([a-z0-9-]+)\)")
"""A reference to a figure or table of the same page: its kind and its name."""

TERM = re.compile(r"\[([^\]]+)\]\(\.\./book/glossary\.md#(term-[\w-]+)\)")
"""A reference to a term of the glossary: the words, and the place on its page."""


def numbers(notebook: Path) -> dict[str, str]:
    """The numbers, "Figure 2", of what an executed notebook shows, by name."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    sources = [output["metadata"][pages.SOURCE] for output in outputs if pages.SOURCE in output.get("metadata", {})]
    return {source["name"]: source["number"] for source in sources if source["number"]}


def resolve(notebook: Path) -> None:
    """Rewrite the references in the text of an executed notebook; to a figure that is not there, they become plain words."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    shown = numbers(notebook)

    def figure(match: re.Match[str]) -> str:
        kind, name = match.groups()
        found = shown.get(name)
        if found:
            return f'<a class="reference internal" href="#{name}">{found}</a>'
        before = match.string[: match.start()].rstrip(" *")
        article = "A" if not before or before[-1] in ".?!\n" else "a"
        return f"{article} {kind.lower()} that awaits its runs"

    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            text = FIGURE.sub(figure, "".join(cell["source"]))
            text = TERM.sub(r'<a class="reference internal" href="glossary.html#\2">\1</a>', text)
            cell["source"] = text.replace("](../book/", "](").splitlines(keepends=True)
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
