"""The site's own checks, what an address adds to a book, and a small book that is published under a sub-path."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import docutils.utils
import nbformat
import pytest
import yaml
from docutils import nodes
from PIL import Image

import browser as reader
from gelu_study import claims, notebooks, paths, site, statistics, study
from gelu_study.errors import NotebookError, StudyError
from gelu_study.site import checks, description, printing, publishing

SITE = f"https://owner.example{reader.PREFIX}".rstrip("/")
GITHUB = "https://github.com/owner/name"

INDEX = '''\
from pathlib import Path
from gelu_study import claims, pages, paths, study
from gelu_study.chapters import landing
paths.BOOK = Path("../book")  # links go to pages of this book alone
pages.answer(study.run("mnist-classifier", "powered", train=False))
landing.verdict_table(claims.verdicts())
'''
CHAPTER = '''\
from gelu_study import pages, study
pages.classifier_intervals(study.run("mnist-classifier", "powered", train=False))
'''
FIRST = "Does a small book hold what a large one does, and is this its first sentence?"


def _notebook(path: Path, heading: str, code: str) -> None:
    content = nbformat.v4.new_notebook(metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}})
    words = f"# {heading}\n\n**The question.** {FIRST} It goes on {{cite}}`hendrycks2016gelu`."
    shown = nbformat.v4.new_code_cell(code, metadata={"tags": ["remove-input"]})
    parameters = nbformat.v4.new_code_cell("unused = 1  # of nothing", metadata={"tags": ["parameters", "remove-cell"]})
    content.cells = [nbformat.v4.new_markdown_cell(words), parameters, shown]
    nbformat.write(content, path)


@pytest.fixture(scope="module")
def small_book(tmp_path_factory) -> dict[str, Path]:
    """Sources of a book of two notebooks and a page of text."""
    root = tmp_path_factory.mktemp("small")
    book = root / "book"
    book.mkdir()
    for name in ("_config.yml", "references.bib"):
        (book / name).write_bytes((paths.BOOK / name).read_bytes())
    (book / "_static").mkdir()
    for file in (paths.BOOK / "_static").iterdir():
        (book / "_static" / file.name).write_bytes(file.read_bytes())
    (book / "_toc.yml").write_text("format: jb-book\nroot: index\nchapters:\n- file: mnist-classifier\n- file: bibliography\n")
    (book / "bibliography.md").write_bytes((paths.BOOK / "bibliography.md").read_bytes())
    folder = root / "notebooks"
    folder.mkdir()
    _notebook(folder / "index.ipynb", "A small book", INDEX)
    _notebook(folder / "mnist-classifier.ipynb", "Its chapter", CHAPTER)
    return {"BOOK": book, "NOTEBOOKS": folder}


@pytest.fixture(scope="module")
def published(small_book, tmp_path_factory) -> Path:
    """The small book, built as the workflow builds the large one."""
    with pytest.MonkeyPatch.context() as patch:
        for name, place in small_book.items():
            patch.setattr(paths, name, place)
        return site.build(tmp_path_factory.mktemp("published") / "html", repository=GITHUB, site=f"{SITE}/")


def _tags(page: Path) -> dict[str, str]:
    """The meta tags of a page by their name or property."""
    found = re.findall(r'<meta (?:name|property)="([^"]+)" content="([^"]*)"', page.read_text(encoding="utf-8"))
    assert len({name for name, _ in found}) == len([name for name, _ in found if name != "viewport"]) + 1, "no tag stands twice"
    return dict(found)


def test_a_page_says_what_a_card_of_it_shows(published):
    tags = _tags(published / "mnist-classifier.html")
    assert tags["og:title"] == "Its chapter"
    assert tags["og:description"] == tags["description"] == FIRST
    assert tags["og:url"] == f"{SITE}/mnist-classifier.html"
    assert tags["og:site_name"] == "Do GELUs train better?"
    assert tags["twitter:card"] == "summary_large_image"
    assert tags["og:image:alt"]
    picture = published / tags["og:image"].removeprefix(f"{SITE}/")
    with Image.open(picture) as image:
        assert image.format == "PNG"
        assert image.size == (int(tags["og:image:width"]), int(tags["og:image:height"])) == (1200, 630)
        assert len(image.convert("RGB").getcolors(maxcolors=100_000) or []) > 50, "not blank"


def test_a_description_is_a_sentence_for_people():
    page = docutils.utils.new_document("page")
    page += nodes.citation("", nodes.paragraph("", "Marc G. Somebody. A title."))
    assert description.first_sentence(page) == ""
    page += nodes.paragraph("", "", nodes.Text("  "), nodes.strong("", "The question."), nodes.Text(" Is it Nair [2010]\nor "))
    page[-1] += [nodes.math("", r"x\,\Phi(x)"), nodes.Text("? It is.")]
    assert description.first_sentence(page) == "Is it Nair or x Φ(x)?"
    page[-1].clear()
    page[-1] += [nodes.raw("", '<a class="x" href="glossary.html#term-seed">', format="html"), nodes.Text("Seeds")]
    page[-1] += [nodes.raw("", "</a>", format="html"), nodes.Text(" vary.")]
    assert description.first_sentence(page) == "Seeds vary."
    page[-1].clear()
    page[-1] += nodes.Text("word " * 100)
    assert description.first_sentence(page) == ("word " * 60).strip() + " …"


def test_the_site_map_names_every_page_and_nothing_else(published):
    found = ElementTree.parse(published / "sitemap.xml").getroot()
    names = [(place.text or "").removeprefix(f"{SITE}/") for place in found.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")]
    assert names == ["index.html", "mnist-classifier.html", "bibliography.html"]
    assert all((published / name).is_file() for name in names)
    page = (published / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<link rel="canonical" href="([^"]+)"', page) == [f"{SITE}/index.html"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")], ids=["wide", "phone"])
def test_an_address_that_leads_nowhere_shows_the_book_at_any_depth(published, chromium, width, scheme):
    with reader.served(published) as address, reader.launched(chromium) as chrome:
        with reader.Visit(chrome, f"{address}no/such/page.html", width, scheme) as visit:
            page = visit.page
            assert page.locator("article h1").last.inner_text().startswith("Page not found")
            page.wait_for_function(reader.IS_SCHEME, arg=scheme)
            assert page.evaluate(reader.OVERFLOW) == []
            assert page.evaluate(reader.LOW_CONTRAST) == []
            expected = [f"404: {address}no/such/page.html", "console: Failed to load resource: the server responded with a status of 404"]
            assert [said for said in visit.problems if not said.startswith(tuple(expected))] == []
            links = {link for link in page.evaluate(reader.LINKS) if link.startswith(address)}
            page.locator("article a", has_text="first page").click()
            page.wait_for_url(f"{address}index.html")
            assert page.locator("h1").first.inner_text().startswith("A small book")
        assert f"{address}mnist-classifier.html" in links, "the table of contents is there"


def test_the_buttons_open_the_notebook_where_the_repository_has_it(published):
    page = (published / "mnist-classifier.html").read_text(encoding="utf-8")
    branch, notebook = publishing.LAUNCH_BRANCH, "notebooks/mnist-classifier.ipynb"
    assert f'href="https://mybinder.org/v2/gh/owner/name/{branch}?urlpath=lab/tree/{notebook}"' in page
    assert f'href="https://colab.research.google.com/github/owner/name/blob/{branch}/{notebook}"' in page
    assert (paths.NOTEBOOKS / "mnist-classifier.ipynb").is_file()
    assert f"launch {branch}" not in page
    assert f"HEAD:refs/heads/{branch}" in (paths.ROOT / ".github" / "workflows" / "book.yml").read_text(encoding="utf-8")


def test_a_site_without_an_address_promises_nothing_that_needs_one():
    configuration: dict[str, Any] = {"title": "x", "sphinx": {"config": {"extensions": ["myst_nb"]}}}
    settings = publishing.configure(configuration, "https://code.example/owner/name")["sphinx"]["config"]
    assert settings["extensions"] == ["myst_nb"]
    assert "launch_buttons" not in settings["html_theme_options"], "Binder and Colab know GitHub"
    assert not {"html_baseurl", "ogp_site_url"} & set(settings)


@pytest.mark.parametrize("address", ["owner.example/name", "ftp://owner.example", "https://", "https://a.example/b?c=d"])
def test_a_site_that_is_no_address_is_refused(tmp_path, address):
    with pytest.raises(site.SiteError, match="give the address where the book will be"):
        site.build(output=tmp_path / "html", site=address)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What the records say of the first page."""
    found = study.run("mnist-classifier", "powered", train=False)
    return {"rows": claims.verdicts(), "comparisons": statistics.verdicts(found.table, choice=found.chosen)}


def test_the_first_page_has_the_numbers_of_the_records(published, recorded):
    assert checks.wrong_numbers(published / "index.html", **recorded) == []


@pytest.mark.parametrize(
    ("pattern", "other", "complaint"),
    [
        (r"<tr>(?:(?!</tr>).)*SiLU.*?</tr>", "", "rows in its table of verdicts; the records give"),
        (r'(verdict-reproduced"[^>]*>)reproduced', r"\1unresolved", "table of verdicts: the records say"),
        (r'(study-value">)\d', r"\g<1>7", "table of verdicts: the records say"),
        (r"(\d+ %) lower than ReLU", r"1\1 lower than ReLU", "which the records give"),
        (r"95 % interval \d+ %", "95 % interval 99 %", "which the records give"),
        (r'id="verdicts"', 'id="verdict"', "0 rows in its table"),
    ],
    ids=["row", "verdict", "number", "ratio", "interval", "table"],
)
def test_a_number_of_the_first_page_that_is_not_the_records_is_named(published, recorded, tmp_path, pattern, other, complaint):
    text = (published / "index.html").read_text(encoding="utf-8")
    start, table = (0, text.index('id="verdicts"'))
    start = start if "lower" in pattern or "interval" in pattern else text.rindex("<figure", 0, table)
    changed = text[:start] + re.sub(pattern, other, text[start:], count=1, flags=re.DOTALL)
    assert changed != text
    (tmp_path / "index.html").write_text(changed, encoding="utf-8")
    problems = checks.wrong_numbers(tmp_path / "index.html", **recorded)
    assert len(problems) == 1
    assert complaint in problems[0]


def test_a_figure_that_its_page_lost_is_named(published, small_book, tmp_path):
    notebook = notebooks.execute(small_book["NOTEBOOKS"] / "mnist-classifier.ipynb", tmp_path / "mnist-classifier.ipynb")
    page = tmp_path / "mnist-classifier.html"
    text = (published / "mnist-classifier.html").read_text(encoding="utf-8")
    page.write_text(text, encoding="utf-8")
    assert checks.missing_figures(tmp_path, [notebook]) == []
    page.write_text(re.sub(r'<img class="dark-light"[^>]*>', "", text), encoding="utf-8")
    (problem,) = checks.missing_figures(tmp_path, [notebook])
    assert problem.startswith("mnist-classifier.html lacks a picture that its notebook shows: data:image/svg+xml")
    page.write_text(text.replace('id="mnist-classifier-intervals"', ""), encoding="utf-8")
    assert checks.missing_figures(tmp_path, [notebook]) == [
        "mnist-classifier.html lacks 'mnist-classifier-intervals', which its notebook shows"
    ]


def test_a_picture_of_another_kind_that_its_page_lost_is_named(tmp_path):
    content = nbformat.v4.new_notebook()
    shown = nbformat.v4.new_output("display_data", {"image/png": "aGVsbG8="})
    content.cells = [nbformat.v4.new_code_cell("plot()", outputs=[shown])]
    nbformat.write(content, tmp_path / "page.ipynb")
    (tmp_path / "page.html").write_text("<h1>no picture</h1>")
    assert checks.missing_figures(tmp_path, [tmp_path / "page.ipynb"]) == ["page.html has 0 pictures; its notebook shows 1"]
    (tmp_path / "page.html").write_text('<img src="_images/1.png">')
    assert checks.missing_figures(tmp_path, [tmp_path / "page.ipynb"]) == []


def test_what_a_card_names_and_the_404_page_links_to_must_be_there(small):
    (small / "sitemap.xml").write_text("<urlset/>")
    sound = f'<h1>Not found</h1><a href="{reader.PREFIX}b.html#there">b</a><meta property="og:image" content="{SITE}/picture.svg">'
    (small / "404.html").write_text(sound)
    assert site.check(small, ["a", "b"], SITE) == []
    (small / "404.html").write_text(sound.replace("b.html", "c.html").replace("picture.svg", "card.png"))
    assert sorted(site.check(small, ["a", "b"], SITE)) == ["404.html: c.html#there does not exist", "404.html: card.png does not exist"]
    (small / "404.html").unlink()
    (small / "sitemap.xml").unlink()
    assert site.check(small, ["a", "b"], SITE) == ["404.html is missing", "sitemap.xml is missing"]


def test_a_page_that_is_too_heavy_with_its_pictures_is_named(small):
    (small / "picture.svg").write_bytes(b"x" * checks.HEAVIEST)
    assert site.check(small, ["a", "b"]) == ["a.html weighs 2.0 MB with its pictures; a page may have 2 MB"]


def test_binder_and_colab_get_what_they_lack_and_keep_what_they_have():
    folder = paths.ROOT / ".binder"
    assert os.access(folder / "postBuild", os.X_OK)
    assert yaml.safe_load((folder / "environment.yml").read_text(encoding="utf-8"))["channels"] == ["conda-forge"]
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lacking = runpy.run_path(str(folder / "install.py"))["lacking"]
    names = [re.split("[<>=]", line)[0] for line in lacking(project["dependencies"], ["Torch", "torchvision", "scikit_learn"])]
    assert not {"torch", "torchvision", "scikit-learn", "jupyter-book"} & set(names)
    assert {"orjson", "nbformat", "distributed", "django-static-mathjax"} <= set(names)
    assert lacking(project["dependencies"], [*names, "torch", "torchvision", "scikit-learn"]) == []


def test_on_colab_the_first_cell_fetches_the_study_and_the_notebook_runs(small_book, tmp_path):
    notebook = tmp_path / "copy.ipynb"
    notebook.write_bytes((small_book["NOTEBOOKS"] / "index.ipynb").read_bytes())
    before = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    source = tmp_path / "source"
    for name in ("notebooks", "src/gelu_study", ".binder"):
        (source / name).mkdir(parents=True)
    (source / "src" / "gelu_study" / "__init__.py").write_text("answer = 42\n")
    (source / "notebooks" / "some.ipynb").write_text("{}")
    (source / ".binder" / "install.py").write_text("open('installed', 'x').close()")  # the real one would change this machine
    (source / "pyproject.toml").write_bytes((paths.ROOT / "pyproject.toml").read_bytes())
    git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q", "-b", "launch"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    runpy.run_path(str(paths.ROOT / ".binder" / "colab.py"))["prepare"](notebook, source.as_uri(), "launch")
    content = nbformat.read(notebook, as_version=4)
    nbformat.validate(content)
    assert [cell["source"] for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"][1:]] == [cell["source"] for cell in before]

    colab = tmp_path / "content"
    (colab / "google" / "colab").mkdir(parents=True)
    (colab / "google" / "colab" / "__init__.py").touch()
    code = content.cells[0].source
    for first, expected in (("import google.colab", "42 notebooks"), ("", f"absent {colab.name}")):
        then = "import os, gelu_study; print(getattr(gelu_study, 'answer', 'absent'), os.path.basename(os.getcwd()))"
        done = subprocess.run(
            [sys.executable, "-c", f"{first}\n{code}\n{code}\n{then}"], cwd=colab, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == expected
    assert (colab / "gelu-study" / "notebooks" / "installed").is_file()


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


PRINTED = """<h1 id="top">One</h1><span id="document-two"></span><h2 id="deep">Two</h2>
<p><a href="two.html">chapter</a> <a href="two.html#deep">part</a> <a href="records/a.json">record</a> <a href="https://b.example/">b</a></p>"""


@pytest.mark.parametrize("address", ["", "https://owner.example/book"])
def test_a_printed_book_leads_nowhere_on_the_machine_that_printed_it(chromium, tmp_path, address):
    page, target = tmp_path / "index.html", tmp_path / "a book.pdf"
    page.write_text(PRINTED, encoding="utf-8")
    printing.print_page(page, target, address)
    printed = target.read_bytes()
    assert printed.startswith(b"%PDF-") and b"/Outlines" in printed and b"file:" not in printed
    uris = set(re.findall(rb"/URI \(([^)]*)\)", printed))
    record = {f"{address}/records/a.json".encode()} if address else set()
    assert uris == {b"https://b.example/"} | record
    assert len(re.findall(rb"/Subtype\s*/Link", printed)) == 2 + len(uris), "links inside stay links"


def test_a_pdf_without_a_browser_is_refused_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StudyError, match=r"needs chromium or .* on the PATH"):
        printing.print_page(tmp_path / "index.html", tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()
    monkeypatch.setattr(site, "_execute", lambda *arguments: pytest.fail("the book is being built"))
    with pytest.raises(StudyError, match=r"needs chromium or .* on the PATH"):
        site.build(tmp_path / "html", pdf=True)


def test_every_page_links_to_the_pdf_where_there_is_one():
    base = {"title": "x", "sphinx": {"config": {}}}
    assert "extra_footer" not in site.configure(base, "").get("html", {})
    assert 'href="gelu-study.pdf"' in site.configure(base, "", pdf=printing.PDF)["html"]["extra_footer"]
    absolute = site.configure(base, "", "https://owner.example/book", pdf=printing.PDF)["html"]["extra_footer"]
    assert 'href="https://owner.example/book/gelu-study.pdf"' in absolute, "the 404 page may be seen at any depth"


def test_the_repository_comes_from_the_setting_then_from_github():
    github = {"GITHUB_SERVER_URL": "https://code.example", "GITHUB_REPOSITORY": "owner/name"}
    assert site.repository_address({}) == ""
    assert site.repository_address(github) == "https://code.example/owner/name"
    assert site.repository_address({**github, "REPOSITORY": "https://other.example/a/b/"}) == "https://other.example/a/b"


def test_buttons_appear_only_with_a_repository():
    settings = {"config": {"html_theme_options": {}}}
    base = {"title": "x", "html": {"use_repository_button": False, "use_issues_button": False}, "sphinx": settings}
    assert site.configure(base, "") == base
    found = site.configure(base, "https://code.example/owner/name")
    assert found["repository"]["url"] == "https://code.example/owner/name"
    assert found["html"]["use_repository_button"] is True
    options = found["sphinx"]["config"]["html_theme_options"]
    assert options["use_repository_button"] and options["use_issues_button"]
    assert options["repository_url"] == "https://code.example/owner/name"
    assert options["repository_provider"] == "github", "the theme refuses a host that it does not know"
    assert base["html"] == {"use_repository_button": False, "use_issues_button": False}
    assert settings == {"config": {"html_theme_options": {}}}


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
