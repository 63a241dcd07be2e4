"""Numbers of figures, references to them, terms of the glossary, labels of equations, and lists of records."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from matplotlib.figure import Figure

from gelu_study import pages, paths, protocols, site
from gelu_study.ledger import Ledger
from gelu_study.site import cross_references, records
from synthetic import finished

BOOK = site.expected_pages(paths.BOOK / "_toc.yml")
NOTEBOOKS = [paths.NOTEBOOKS / f"{name}.ipynb" for name in BOOK if (paths.NOTEBOOKS / f"{name}.ipynb").is_file()]


def prose(notebook: Path) -> str:
    """The text of a notebook's Markdown cells."""
    return "\n\n".join(cell.source for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "markdown")


def terms() -> set[str]:
    """The places of the glossary's terms on its page, as Sphinx names them."""
    body = (paths.BOOK / "glossary.md").read_text(encoding="utf-8").split(":sorted:")[1]
    return {"term-" + re.sub("[^A-Za-z0-9]+", "-", line) for line in re.findall(r"^[A-Za-z].*$", body, re.MULTILINE)}


@pytest.fixture
def shown(monkeypatch) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """What is displayed, with its metadata; nothing has a number yet."""
    found: list[tuple[dict[str, str], dict[str, Any]]] = []
    monkeypatch.setattr(pages, "display", lambda data, raw=False, metadata=None: found.append((data, metadata or {})))
    monkeypatch.setattr(pages, "_numbers", {"Figure": {}, "Table": {}})
    return found


def test_figures_and_tables_count_for_themselves_and_keep_their_numbers(shown):
    frame = pd.DataFrame({"a": ["-1.5"]})
    pages.figure(Figure(), "one", "An empty figure.", "First.", [])
    pages.table(frame, "numbers", "Numbers.", [])
    pages.figure(Figure(), "two", "An empty figure.", "Second.", [])
    pages.figure(Figure(), "one", "An empty figure.", "First, drawn again.", [])
    numbers = [re.search(r"<b[^>]*>(.*?)</b>", data["text/html"]) for data, _ in shown]
    assert [match and match[1] for match in numbers] == ["Figure 1.", "Table 1.", "Figure 2.", "Figure 1."]
    assert [metadata[pages.SOURCE]["number"] for _, metadata in shown] == ["Figure 1", "Table 1", "Figure 2", "Figure 1"]
    assert "−1.5" in shown[1][0]["text/html"] and "-1.5" in shown[1][0]["text/plain"]


def test_in_the_book_records_are_behind_one_link_and_in_a_notebook_they_are_listed(shown, monkeypatch):
    key = next(path.stem for path in sorted(paths.LEDGER.glob("*/*.json")))
    monkeypatch.setattr(pages, "IN_BOOK", True)
    pages.records("an-answer", [key, key])
    monkeypatch.setattr(pages, "IN_BOOK", False)
    pages.records("an-answer", [key, "f" * 64])
    pages.records("an-answer", [])
    (book, metadata), (lab, _) = shown
    assert metadata[pages.SOURCE] == {"name": "an-answer", "number": "", "keys": [key]}
    assert '<a class="study-records" href="records/an-answer.html">Records: 1 run</a>' in book["text/html"]
    (link,) = re.findall('href="([^"]*)"', lab["text/html"])
    assert (paths.NOTEBOOKS / link).resolve() == paths.LEDGER / pages.record_path(key)
    assert "<code>ffffffffff</code>" in lab["text/html"] and "<details" in lab["text/html"]


def test_a_long_list_in_a_notebook_says_how_many_it_leaves_out(shown, monkeypatch):
    monkeypatch.setattr(pages, "IN_BOOK", False)
    pages.records("many", [f"{number:064x}" for number in range(pages.MOST_LISTED + 7)])
    assert "and 7 more</details>" in shown[0][0]["text/html"]


def small_ledger(folder: Path, count: int) -> tuple[Ledger, list[str]]:
    """A ledger of so many made-up records, and their keys."""
    ledger = Ledger(folder)
    ledger.prepare()
    configs = protocols.plan("mnist-classifier", "smoke")[:count]
    return ledger, [ledger.write(finished(config, lambda name, epochs: 1 / epochs)).config.key for config in configs]


def executed(folder: Path, text: str, numbers: dict[str, str], keys: list[str] | None = None) -> Path:
    """An executed notebook with this text, which shows things with these numbers."""
    outputs = [
        nbformat.v4.new_output("display_data", {"text/html": ""}, metadata={pages.SOURCE: {"name": name, "number": n, "keys": keys or []}})
        for name, n in numbers.items()
    ]
    cells = [nbformat.v4.new_markdown_cell(f"# A page\n\n{text}"), nbformat.v4.new_code_cell("show()", outputs=outputs)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "page.ipynb")
    return folder / "page.ipynb"


@pytest.mark.parametrize(
    ("source", "built"),
    [
        ("See [Figure 7](#curves).", 'See <a class="reference internal" href="#curves">Figure 2</a>.'),
        ("See [Table 1](#absent).", "See a table that awaits its runs."),
        ("- **So.** [Figure 1](#absent) is.", "- **So.** A figure that awaits its runs is."),
        ("[Figure 1](#absent) is.", "A figure that awaits its runs is."),
        (
            "By [log loss](../book/glossary.md#term-log-loss).",
            'By <a class="reference internal" href="glossary.html#term-log-loss">log loss</a>.',
        ),
        ("[The rule](../book/verdicts.md) and [equation 1](#page-1)", "[The rule](verdicts.md) and [equation 1](#page-1)"),
    ],
)
def test_the_links_of_a_notebook_become_those_of_the_book(tmp_path, source, built):
    path = executed(tmp_path, source, {"curves": "Figure 2"})
    cross_references.resolve(path)
    cells = nbformat.read(path, as_version=4).cells
    assert cells[0].source == f"# A page\n\n{built}"
    assert cells[1].source == "show()"


def test_every_term_that_is_linked_is_in_the_glossary():
    known, used = terms(), set()
    for path in NOTEBOOKS:
        used |= {place for _, place in cross_references.TERM.findall(prose(path))}
        assert "{term}" not in prose(path), f"{path.name}: JupyterLab shows the role as it is written"
    assert used - known == set()
    assert len(used) >= 20 and len(known) >= 45


def test_an_equation_s_label_counts_its_page_s_equations_and_references_name_it():
    for path in NOTEBOOKS:
        text = prose(path)
        labels = re.findall(r"\$\$ \(([^)]+)\)", text)
        assert labels == [f"{path.stem}-{number}" for number in range(1, len(labels) + 1)]
        for number, label in re.findall(r"\[equation (\d+)\]\(#([^)]+)\)", text):
            assert label == f"{path.stem}-{number}" and label in labels
        if path.stem != "index":
            assert text.count("$$") == 2 * len(labels), f"{path.name} has an equation without a number"


def test_links_to_pages_of_the_book_lead_somewhere_from_the_notebooks_folder():
    assert "--notebook-dir=. " in (paths.ROOT / "Makefile").read_text(encoding="utf-8"), "JupyterLab opens nothing above its root"
    for path in [*NOTEBOOKS, paths.NOTEBOOKS / "start.ipynb", paths.NOTEBOOKS / "playground.ipynb"]:
        links = {link.split("#")[0] for link in re.findall(r"\]\(([^)#\s]+\.(?:md|ipynb)[^)]*)\)", prose(path))}
        allowed = {"verdicts.md", "rerun.md"} if path.stem == "index" else set()
        assert [link for link in links - allowed if not (path.parent / link).is_file()] == [], path.name


def test_the_lists_lead_to_the_records(tmp_path):
    ledger, keys = small_ledger(tmp_path / "runs", 3)
    page = executed(tmp_path, "", {"curves": "Figure 1"}, keys[:2])
    records.write(tmp_path / "records", [page], ledger)
    text = (tmp_path / "records" / "curves.html").read_text(encoding="utf-8")
    assert "Records of Figure 1 of “A page”" in text and 'href="../page.html#curves"' in text
    assert sorted(re.findall(r'href="([^"]+\.json)"', text)) == sorted(map(pages.record_path, keys[:2]))
    held = json.loads((tmp_path / "records" / pages.record_path(keys[0])).read_text(encoding="utf-8"))
    assert held["key"] == keys[0]
    assert set(pd.read_csv(tmp_path / "records" / "all.csv")["key"]) == set(keys)
    assert set(pd.read_csv(tmp_path / "records" / "curves.csv")["key"]) == set(keys[:2])


def test_a_list_of_what_the_ledger_lacks_or_of_two_things_is_refused(tmp_path):
    ledger, keys = small_ledger(tmp_path / "runs", 2)
    absent = executed(tmp_path, "", {"curves": "Figure 1"}, ["f" * 64])
    with pytest.raises(records.RecordsError, match="curves is made from a record that the ledger does not have: f"):
        records.write(tmp_path / "one", [absent], ledger)
    (tmp_path / "other").mkdir()
    both = [executed(tmp_path, "", {"curves": "Figure 1"}, keys[:1]), executed(tmp_path / "other", "", {"curves": "Figure 1"}, keys)]
    with pytest.raises(records.RecordsError, match="show different records by one name: curves"):
        records.write(tmp_path / "two", both, ledger)
