"""The book, built once from the repository's records and read in a real browser; and the checks that the build makes itself."""

from __future__ import annotations

import csv
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag

import nbformat
import pytest
from playwright.sync_api import Browser

import browser as reader
from gelu_study import notebooks, paths, site, study
from gelu_study.ledger import Ledger

PAGES = site.expected_pages(paths.BOOK / "_toc.yml")
CLASSIFIER = "mnist-classifier"
WITH_MATHEMATICS = ("index", CLASSIFIER, "verdicts")
VIEWS = [(1280, "light", "dark"), (390, "dark", "light")]
"""Widths of a window, the scheme in which the page is loaded, and the one that the reader then changes to."""


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    """The site, built with no repository's address as a fresh clone would build it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("REPOSITORY", "GITHUB_SERVER_URL", "GITHUB_REPOSITORY"):
            patch.delenv(name, raising=False)
        return site.build(output=tmp_path_factory.mktemp("a book") / "html")


@pytest.fixture(scope="module")
def address(book) -> Iterator[str]:
    with reader.served(book) as found:
        yield found


@pytest.fixture(scope="module")
def chrome(address, chromium) -> Iterator[Browser]:
    with reader.launched(chromium) as found:
        yield found


@pytest.fixture(scope="module")
def recorded() -> study.Study:
    return study.run(CLASSIFIER, "powered", train=False)


@pytest.mark.parametrize(("width", "scheme", "other"), VIEWS, ids=["wide", "phone"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read(chrome, address, recorded, name, width, scheme, other):
    with reader.Visit(chrome, f"{address}{name}.html", width, scheme) as visit:
        page = visit.page
        assert page.locator("main h1").first.inner_text().strip()
        assert len(page.locator("main").inner_text()) > 300

        formulas = page.evaluate(reader.MATHEMATICS)
        assert [formula for formula in formulas if formula["width"] < 3 or formula["error"]] == []
        assert formulas or name not in WITH_MATHEMATICS
        assert page.evaluate(reader.RAW_TEX) == []

        figures = page.evaluate(reader.FIGURES)
        assert [figure for figure in figures if not figure["alt"]] == []
        assert [figure for figure in figures if min(figure["natural"], figure["width"], figure["height"]) < 50] == []
        assert [figure for figure in figures if figure["variance"] < 50] == []
        assert figures or name != CLASSIFIER or not recorded.records

        assert page.evaluate(reader.OVERFLOW) == []
        assert page.evaluate(reader.LOW_CONTRAST) == []
        assert reader.barriers(page) == []
        page.wait_for_function(reader.IS_SCHEME, arg=scheme)
        page.emulate_media(color_scheme=other)
        page.wait_for_function(reader.IS_SCHEME, arg=other)
        assert page.evaluate(reader.LOW_CONTRAST) == []
        assert visit.problems == []


DOCUMENTS = r"https://(arxiv\.org/|doi\.org/|jupyterbook\.org|sphinx|(distributed|jobqueue)\.dask\.org|docs\.rapids\.ai/)"


@pytest.mark.parametrize("name", [*PAGES, "search", "genindex"])
def test_every_link_inside_the_site_leads_somewhere(chrome, address, name):
    with reader.Visit(chrome, f"{address}{name}.html") as visit:
        links = set(visit.page.evaluate(reader.LINKS))
        assert visit.problems == []
    host = address[: -len(reader.PREFIX)]
    inside = {link for link in links if link.startswith(host)}
    assert inside, "the page links to no other page"
    dead = []
    for link in sorted(inside):
        target, anchor = urldefrag(link)
        try:
            with urllib.request.urlopen(target, timeout=10) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            dead.append(f"{link}: {error.code}")
            continue
        if not content or (anchor and f'id="{unquote(anchor)}"' not in content.decode()):
            dead.append(f"{link}: nothing there")
    assert dead == []
    others = {link for link in links - inside if not re.match(DOCUMENTS, link)}
    assert [link for link in others if not link.startswith("javascript:")] == [], "without a repository nothing links to one"


def test_the_pages_work_from_a_disk_too(chrome, book):
    with reader.Visit(chrome, (book / f"{CLASSIFIER}.html").as_uri()) as visit:
        assert [formula for formula in visit.page.evaluate(reader.MATHEMATICS) if formula["width"] < 3] == []
        assert [figure for figure in visit.page.evaluate(reader.FIGURES) if figure["variance"] < 50] == []
        assert visit.problems == []


def test_figures_answer_to_the_pointer(chrome, address, recorded):
    """A curve says which seed it is of, the legend hides an activation, and nothing is loaded before it is asked for."""
    with reader.Visit(chrome, f"{address}{CLASSIFIER}.html") as visit:
        page = visit.page
        assert page.evaluate("typeof Bokeh") == "undefined"
        for name in ("mnist-classifier-each-interval", "mnist-classifier-each-seed"):
            page.locator(f"#{name} > summary").click()
            page.locator(f"#{name}[data-drawn]").wait_for()
        curves = page.locator("#mnist-classifier-each-seed canvas").first
        curves.scroll_into_view_if_needed()
        box, tip = curves.bounding_box(), page.get_by_text(re.compile(r"^(GELU \(tanh\)|ReLU|ELU), seed \d+$"))
        for part in range(30, 90):
            page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + part / 100 * box["height"])
            page.wait_for_timeout(50)
            if tip.count():
                break
        seed = int(tip.first.inner_text().rsplit(" ", 1)[1])
        assert seed in {record.config.seed for record in recorded.records}
        hidden = "Bokeh.documents.flatMap(d => [...d._all_models.values()]).filter(m => m.name === 'runs' && !m.visible).length"
        assert page.evaluate(hidden) == 0
        for part in range(5, 30, 2):  # the legend is above the curves, to the right
            page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + part / 100 * box["height"])
            if page.evaluate(hidden):
                break
        assert page.evaluate(hidden) == 1
        assert visit.problems == []


def test_names_in_docstrings_lead_to_what_they_name(book):
    """`ledger.table` is named in the docstring of `study.Study.table`, and described on the same page."""
    page = (book / "api-records.html").read_text(encoding="utf-8")
    assert 'id="gelu_study.ledger.table"' in page
    assert 'href="#gelu_study.ledger.table"' in page


def test_the_search_finds_a_page(chrome, address):
    with reader.Visit(chrome, f"{address}search.html?q=dropout") as visit:
        visit.page.wait_for_selector("#search-results li a")
        assert visit.problems == []


def test_the_figure_s_records_are_the_runs_that_it_says(book, recorded):
    page = (book / f"{CLASSIFIER}.html").read_text(encoding="utf-8")
    links = dict(re.findall(r'href="(records/[^"]+\.csv)"[^>]*>[^<]*?(\d+) runs', page))
    assert len(links) >= 3
    planned = {config.key for config in recorded.planned}
    for link, count in links.items():
        with (book / link).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == int(count)
        for row in rows:
            assert row["key"] in planned
            held = json.loads((book / "records" / row["record"]).read_text(encoding="utf-8"))
            assert held["key"] == row["key"]
            assert held["config"]["seed"] == int(row["seed"])


def test_the_site_holds_every_record_and_a_table_of_all(book):
    records = Ledger(paths.LEDGER).read()
    with (book / "records" / "all.csv").open(encoding="utf-8", newline="") as file:
        assert {row["key"] for row in csv.DictReader(file)} == {record.config.key for record in records}
    assert len(list((book / "records").glob("*/*.json"))) == len(records)


def test_no_path_of_this_machine_is_on_a_page(book):
    for page in book.rglob("*.html"):
        assert str(paths.ROOT) not in page.read_text(encoding="utf-8")


def _shown(executed: Path) -> str:
    """All that an executed notebook shows as text."""
    cells = nbformat.read(executed, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if output.output_type in ("error",)] == []
    return "\n".join(str(part) for output in outputs for part in output.get("data", {}).values())


def test_without_records_the_chapter_says_so_and_still_runs(tmp_path):
    given = {"train": False, "ledger": str(tmp_path / "none")}
    text = _shown(notebooks.execute(paths.NOTEBOOKS / f"{CLASSIFIER}.ipynb", tmp_path / "out.ipynb", given))
    assert "Not run yet" in text
    assert "0 of" in text or "None of the" in text


def test_the_chapter_trains_what_is_missing_and_nothing_else(tmp_path):
    ledger = tmp_path / "runs"
    given = {"scale": "smoke", "ledger": str(ledger), "seeds": [0, 1], "device": "cpu"}
    source = paths.NOTEBOOKS / f"{CLASSIFIER}.ipynb"
    text = _shown(notebooks.execute(source, tmp_path / "one.ipynb", given))
    assert "Not MNIST" in text
    first = {path: path.read_bytes() for path in ledger.rglob("*.json")}
    assert len(first) == 12
    _shown(notebooks.execute(source, tmp_path / "two.ipynb", given | {"seeds": [0, 1, 2]}))
    second = {path: path.read_bytes() for path in ledger.rglob("*.json")}
    assert len(second) == 18
    assert {path: second[path] for path in first} == first
