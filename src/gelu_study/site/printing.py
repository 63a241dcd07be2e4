"""The whole book as a PDF: Sphinx lays it out as one page and Chromium prints that, so that no TeX is needed."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

from gelu_study.errors import StudyError

PDF = "gelu-study.pdf"
"""The PDF's path below the site."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

_FOOT = '<div style="width: 100%; font-size: 8px; text-align: center"><span class="pageNumber"></span></div>'
# Links from chapter to chapter stay inside; other relative ones would lead into the folder that the page was printed from
_LINKS = """site => document.querySelectorAll('a[href]').forEach(link => {
    const to = link.getAttribute('href'), [file, place] = to.split('#');
    if (/^(#|https?:|mailto:)/.test(to)) return;
    const inside = [place, `document-${file.replace(/\\.html$/, '')}`].find(id => id && document.getElementById(id));
    if (inside) link.setAttribute('href', `#${inside}`);
    else if (site) link.setAttribute('href', `${site}/${to}`);
    else link.removeAttribute('href');
})"""


def browser() -> Path | None:
    """The system's own Chromium or Chrome, if it has one on the PATH."""
    return next((Path(found) for name in BROWSERS if (found := shutil.which(name))), None)


def required() -> Path:
    """The browser that prints. Raises `StudyError` where it or Playwright is not there."""
    executable = browser()
    if executable is None:
        raise StudyError(f"a PDF needs {' or '.join(BROWSERS)} on the PATH; install one of them, or build the book without a PDF")
    if find_spec("playwright") is None:
        raise StudyError("a PDF needs the package playwright: pip install playwright; or build the book without a PDF")
    return executable


def print_page(page: Path, target: Path, site: str = "") -> None:
    """Print an HTML file on A4 with an outline of its headings. Links between files lead to `site`, or nowhere without it.

    Raises what `required` does, before anything is written, and `StudyError` where the browser fails.
    """
    executable = required()
    from playwright.sync_api import Error, sync_playwright

    try:
        with (
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path=str(executable), args=["--no-sandbox", "--disable-gpu"]) as chromium,
        ):
            view = chromium.new_page(color_scheme="light")
            view.set_default_timeout(600_000)
            view.goto(page.as_uri(), wait_until="load")
            if view.evaluate("typeof MathJax !== 'undefined'"):
                view.evaluate("MathJax.startup.promise.then(() => null)")
            view.evaluate(_LINKS, site)
            view.pdf(
                path=str(target),
                format="A4",
                scale=0.7,
                margin=dict.fromkeys(("top", "bottom", "left", "right"), "18mm"),  # type: ignore[arg-type]
                print_background=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=_FOOT,
                outline=True,
                tagged=True,
            )
    except Error as error:
        raise StudyError(f"{executable} could not print the book: {error.message.splitlines()[0]}") from error
