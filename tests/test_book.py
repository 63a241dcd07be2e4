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
from gelu_study.errors import NotebookError
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


# What the build checks by itself


@pytest.fixture
def small(tmp_path) -> Path:
    """A sound site of two pages."""
    page = '<html><body><h1 id="top">A</h1><a href="b.html#there">b</a><a href="https://arxiv.org/">x</a>{}</body></html>'
    (tmp_path / "a.html").write_text(page.format('<img src="picture.svg">'))
    (tmp_path / "b.html").write_text('<html><body><h1>B</h1><p id="there"></p><a href="#there">up</a></body></html>')
    (tmp_path / "picture.svg").write_text("<svg/>")
    return tmp_path


def test_a_sound_site_has_no_problems(small):
    assert site.check(small, ["a", "b"]) == []


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ('<a href="c.html">c</a>', "c.html does not exist"),
        ('<a href="b.html#nowhere">b</a>', "a place that the page does not have"),
        ('<a href="/b.html">b</a>', "breaks under a sub-path"),
        ('<a href="../b.html">b</a>', "leads out of the site"),
        ('<img src="absent.png">', "absent.png does not exist"),
        ('<script src="https://cdn.example/x.js"></script>', "from another host"),
        ('<img src="//cdn.example/x.png">', "from another host"),
        ('<link rel="stylesheet" href="http://cdn.example/x.css">', "from another host"),
        ('<div class="output traceback highlight">ValueError</div>', "failed cell"),
        ('<div class="output stderr">UserWarning</div>', "failed cell"),
        ("<pre>Traceback (most recent call last):</pre>", "failed cell"),
    ],
)
def test_a_page_that_is_not_sound_is_named(small, added, complaint):
    page = small / "a.html"
    page.write_text(page.read_text().replace("</body>", f"{added}</body>"))
    problems = site.check(small, ["a", "b"])
    assert len(problems) == 1
    assert problems[0].startswith("a.html")
    assert complaint in problems[0]


def test_a_page_that_is_missing_or_has_no_heading_is_named(small):
    (small / "b.html").write_text('<p id="there">no heading</p>')
    assert site.check(small, ["a", "b", "c"]) == ["c.html is missing", "b.html has no heading"]


def test_the_pages_are_those_of_the_table_of_contents(tmp_path):
    toc = tmp_path / "_toc.yml"
    toc.write_text(
        "format: jb-book\nroot: index\nparts:\n- chapters:\n  - file: one\n    sections:\n    - file: two\n- chapters:\n  - file: three\n"
    )
    assert site.expected_pages(toc) == ["index", "one", "two", "three"]


def test_the_repository_comes_from_the_setting_then_from_github():
    github = {"GITHUB_SERVER_URL": "https://code.example", "GITHUB_REPOSITORY": "owner/name"}
    assert site.repository_address({}) == ""
    assert site.repository_address(github) == "https://code.example/owner/name"
    assert site.repository_address({**github, "REPOSITORY": "https://other.example/a/b/"}) == "https://other.example/a/b"


def test_buttons_appear_only_with_a_repository():
    base = {"title": "x", "html": {"use_repository_button": False, "use_issues_button": False}}
    assert site.configure(base, "") == base
    found = site.configure(base, "https://code.example/owner/name")
    assert found["repository"]["url"] == "https://code.example/owner/name"
    assert found["html"]["use_repository_button"] is True
    options = found["sphinx"]["config"]["html_theme_options"]
    assert options["use_repository_button"] and options["use_issues_button"]
    assert options["repository_url"] == "https://code.example/owner/name"
    assert options["repository_provider"] == "github", "the theme refuses a host that it does not know"
    assert base == {"title": "x", "html": {"use_repository_button": False, "use_issues_button": False}}


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("reading sources\n\x1b[91m/x/verdicts.md:3: WARNING: cross-reference\x1b[39;49;00m\nbuild finished", "verdicts.md:3: WARNING"),
        ("loading\nSphinx error:\nProvider not recognized\nTraceback (most recent call last):\n  File\nRuntimeError:\n====", "Provider not"),
    ],
)
def test_what_jupyter_book_complains_of_is_shown_and_little_else(said, shown):
    lines = site.complaints(said)
    assert shown in "\n".join(lines)
    assert len(lines) <= 3
    assert not any("Traceback" in line or "\x1b" in line for line in lines)


def test_a_repository_that_is_no_address_is_refused(tmp_path):
    with pytest.raises(site.SiteError, match="give its address"):
        site.build(output=tmp_path / "html", repository="owner/name")


def test_a_folder_that_is_no_site_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(site.SiteError, match="will not be replaced"):
        site.build(output=tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_notebook_that_fails_leaves_the_last_site_as_it_was(tmp_path, monkeypatch):
    output = tmp_path / "html"
    output.mkdir()
    (output / "index.html").write_text("the last site")

    def fail(*_arguments, **_options):
        raise NotebookError("cell 3 failed")

    monkeypatch.setattr(notebooks, "execute", fail)
    with pytest.raises(NotebookError, match="cell 3 failed"):
        site.build(output=output)
    assert [path.name for path in tmp_path.iterdir()] == ["html"]
    assert (output / "index.html").read_text() == "the last site"


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
