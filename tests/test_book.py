"""The book, built once from the repository's records and read in a real browser; and the checks that the build makes itself."""

from __future__ import annotations

import csv
import json
import os
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
from gelu_study.chapters import silu
from gelu_study.ledger import Ledger

PAGES = site.expected_pages(paths.BOOK / "_toc.yml")
CLASSIFIER = "mnist-classifier"
WITH_MATHEMATICS = ("index", CLASSIFIER, "verdicts")
VIEWS = [(1280, "light", "dark"), (390, "dark", "light")]
"""Widths of a window, the scheme in which the page is loaded, and the one that the reader then changes to."""


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    """The site, built with no repository's address as a fresh clone would build it, or the one that GELU_STUDY_SITE names: `.ci/run`
    builds it before, with `make book`, from the same sources."""
    if given := os.environ.get("GELU_STUDY_SITE"):
        return Path(given)
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
    links = dict(re.findall(r'href="(records/[^"]+\.html)"[^>]*>[^<]*?(\d+) runs', page))
    assert len(links) >= 8
    assert f"records/{CLASSIFIER}-silu.html" in links
    behind = silu.runs("powered")
    beside = behind.pair.planned + behind.others.planned
    for link, count in links.items():
        planned = {config.key for config in (beside if link == f"records/{CLASSIFIER}-silu.html" else recorded.planned)}
        with (book / link).with_suffix(".csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == int(count)
        listed = re.findall(r'href="(\w\w/\w+\.json)"', (book / link).read_text(encoding="utf-8"))
        assert sorted(listed) == sorted(row["record"] for row in rows), "one click leads to the records"
        for row in rows:
            assert row["key"] in planned
            held = json.loads((book / "records" / row["record"]).read_text(encoding="utf-8"))
            assert held["key"] == row["key"]
            assert held["config"]["seed"] == int(row["seed"])


FIGURES = re.compile(r'<figure class="study-figure" id="([^"]+)">(.*?)</figure>', re.DOTALL)
MADE_BY = ("device: ", "Device: ", "no record is behind it", "None of ours lies over it", "no runs yet")
"""What a caption says of what its figure is made by: runs or a measurement on a device, or neither."""


@pytest.fixture(scope="module")
def captions(book) -> dict[str, dict[str, str]]:
    """The caption of every figure and table by its name, page by page, as words."""
    found = {}
    for name in PAGES:
        figures = FIGURES.findall((book / f"{name}.html").read_text(encoding="utf-8"))
        found[name] = {key: " ".join(re.sub("<[^>]+>", "", body[body.index("<figcaption>") :]).split()) for key, body in figures}
    return found


def test_the_figures_and_tables_of_a_page_are_numbered_in_its_order(captions):
    for name, page in captions.items():
        for kind in ("Figure", "Table"):
            numbers = [int(match[1]) for caption in page.values() if (match := re.match(rf"{kind} (\d+)\. ", caption))]
            assert numbers == list(range(1, len(numbers) + 1)), f"{name}: {kind}"
        assert all(re.match(r"(Figure|Table) \d+\. \S", caption) for caption in page.values()), name


def test_a_reference_to_a_figure_has_its_number_in_the_book_and_in_the_notebook(book, captions):
    references = 0
    for name, page in captions.items():
        text = (book / f"{name}.html").read_text(encoding="utf-8")
        for key, number in re.findall(r'<a class="reference internal" href="#([^"]+)">((?:Figure|Table) \d+)</a>', text):
            assert page[key].startswith(f"{number}. ")
            references += 1
        if (source := paths.NOTEBOOKS / f"{name}.ipynb").is_file():
            for number, key in re.findall(r"\[((?:Figure|Table) \d+)\]\(#([^)]+)\)", source.read_text(encoding="utf-8")):
                said = page.get(key, number)
                assert said.startswith(number), f"{source.name} calls {key} {number!r}; its caption begins {said[:12]!r}: correct the text"
        assert "](#" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL), f"{name} shows a raw reference"
    assert references >= 15


def test_every_figure_says_what_to_see_and_what_made_it(book, captions):
    for name in PAGES:
        for key, body in FIGURES.findall((book / f"{name}.html").read_text(encoding="utf-8")):
            if picture := re.search(r'<img[^>]*alt="([^"]*)"', body):
                caption = captions[name][key]
                assert any(words in caption for words in MADE_BY), f"{key}: {caption}"
                assert len(caption) > 80 and len(picture[1]) > 40, f"{key}: {picture[1]}"


def test_the_equations_are_numbered_through_the_book_and_references_have_their_numbers(book):
    numbers, references = {}, []
    for name in PAGES:
        text = (book / f"{name}.html").read_text(encoding="utf-8")
        for key, number in re.findall(r'id="(equation-[^"]+)">\s*<span class="eqno">\((\d+)\)', text):
            numbers[key] = int(number)
        references += re.findall(r'href="#(equation-[^"]+)">(equation \d+)</a>', text)
    assert sorted(numbers.values()) == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 15 and len(references) >= 5
    assert [(key, said) for key, said in references if said != f"equation {numbers[key]}"] == []


def test_what_is_wider_than_a_phone_shows_that_it_scrolls(chrome, address):
    with reader.Visit(chrome, f"{address}{CLASSIFIER}.html", 390, "light") as visit:
        page = visit.page
        box = page.locator(f"#{CLASSIFIER}-verdicts .study-scroll")
        page.wait_for_function(f"document.querySelector('#{CLASSIFIER}-verdicts .study-scroll').dataset.more === 'right'")
        assert "gradient" in box.evaluate("box => getComputedStyle(box).maskImage")
        box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
        page.wait_for_function(f"document.querySelector('#{CLASSIFIER}-verdicts .study-scroll').dataset.more === 'left'")
        page.set_viewport_size({"width": 1600, "height": 900})
        page.wait_for_function(f"!document.querySelector('#{CLASSIFIER}-learning-rates .study-scroll').dataset.more")
        assert visit.problems == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_list_of_records_can_be_read_and_leads_back(chrome, address, width, scheme):
    with reader.Visit(chrome, f"{address}{CLASSIFIER}.html", width, scheme) as visit:
        page = visit.page
        page.wait_for_load_state("networkidle")  # what a click on a link leaves unfinished counts as failed
        page.locator(f"#{CLASSIFIER}-curves .study-records").click()
        page.wait_for_url(f"**/records/{CLASSIFIER}-curves.html", wait_until="networkidle")
        assert page.locator("h1").inner_text().startswith("Records of Figure 1")
        assert page.evaluate(reader.OVERFLOW) == []
        assert reader.barriers(page) == []
        record = page.locator("table a").first.evaluate("link => link.href")  # a browser asks for an icon of a page that is JSON
        with urllib.request.urlopen(record, timeout=10) as answer:
            assert json.load(answer)["status"] == "finished"
        page.locator("a", has_text="Back to Figure 1").click()
        page.wait_for_url(f"{address}{CLASSIFIER}.html#{CLASSIFIER}-curves")
        assert visit.problems == []


SEEDS = ("mnist-classifier", "mnist-noise", "mnist-autoencoder", "mnist-soi")


@pytest.mark.parametrize("name", SEEDS)
def test_a_page_with_curves_has_those_of_each_seed_to_point_at(chrome, address, name):
    with reader.Visit(chrome, f"{address}{name}.html", 390, "dark") as visit:
        page = visit.page
        figure = page.locator("details.study-interactive[id$='-each-seed']").first
        figure.locator("summary").click()
        page.locator("details.study-interactive[id$='-each-seed'][data-drawn]").first.wait_for()
        assert figure.locator("canvas").count() >= 1
        assert page.evaluate(reader.OVERFLOW) == []
        assert visit.problems == []


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
