"""Is a built site as it should be? Links, hosts, failed cells, weights, figures, and the numbers of the first page."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pandas as pd

from gelu_study import activations, pages
from gelu_study.claims import Row

HEAVIEST = 2_000_000
"""Bytes that a page may have, with the pictures that it shows."""


def check(site: Path, expected: Sequence[str], address: str = "") -> list[str]:
    """What is wrong with a built site, a line each: absent pages, failed cells, dead links, other hosts, too much weight.

    `address` is the site's own, with which the 404 page's links and what names a page begin.
    """
    wanted = [*(f"{name}.html" for name in expected), *(("404.html", "sitemap.xml") if address else ())]
    problems = [f"{name} is missing" for name in wanted if not (site / name).is_file()]
    found = (path for path in sorted(site.rglob("*.html")) if not {"vendor", "_static"} & set(path.relative_to(site).parts))
    read = {path: _Page(path) for path in found}
    for path, page in read.items():
        name = path.relative_to(site).as_posix()
        if re.search(_FAILURE, page.text):
            problems.append(f"{name} shows a failed cell or a warning")
        if path.stem in expected and not page.heading:
            problems.append(f"{name} has no heading")
        for tag, link in page.loads:
            if urlsplit(link).scheme in ("http", "https") or link.startswith("//"):
                problems.append(f"{name} loads <{tag}> from another host: {link}")
        for link in {link for _, link in page.loads} | page.links:
            problem = _dead(site, path, _inside(link, path, address), read)
            if problem:
                problems.append(f"{name}: {problem}")
        pictures = {path.parent / unquote(urlsplit(link).path) for tag, link in page.loads if tag == "img" and link[:5] != "data:"}
        weight = path.stat().st_size + sum(picture.stat().st_size for picture in pictures if picture.is_file())
        if weight > HEAVIEST:
            problems.append(f"{name} weighs {weight / 1e6:.1f} MB with its pictures; a page may have {HEAVIEST / 1e6:g} MB")
    for sheet in site.rglob("*.css"):
        if re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8", errors="replace")):
            problems.append(f"{sheet.relative_to(site).as_posix()} loads something from another host")
    return problems


def missing_figures(site: Path, executed: Iterable[Path]) -> list[str]:
    """What an executed notebook shows and its page does not: pictures, and whatever else has a name; a line each."""
    problems = []
    for notebook in executed:
        path = site / f"{notebook.stem}.html"
        if not path.is_file():  # a notebook outside the table of contents; `check` names the pages that are absent
            continue
        page = _Page(path)
        there = {link for tag, link in page.loads if tag == "img"}
        pictures = 0
        for output in _outputs(notebook):
            if "text/html" in output:
                shown = _Page("".join(output["text/html"]))
                lost = shown.anchors - page.anchors
                problems += [f"{path.name} lacks {name!r}, which its notebook shows" for name in sorted(lost)]
                lost = {link for tag, link in shown.loads if tag == "img"} - there
                problems += [f"{path.name} lacks a picture that its notebook shows: {link[:60]}" for link in sorted(lost)]
            elif any(kind.startswith("image/") for kind in output):
                pictures += 1
        if pictures > len(there):
            problems.append(f"{path.name} has {len(there)} pictures; its notebook shows {pictures}")
    return problems


def _outputs(notebook: Path) -> Iterable[dict[str, list[str] | str]]:
    """The outputs of a notebook that its page should have."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if not {"remove-cell", "remove-output"} & set(cell["metadata"].get("tags", [])):
            yield from (output.get("data", {}) for output in cell.get("outputs", []))


def wrong_numbers(page: Path, rows: Sequence[Row], comparisons: pd.DataFrame) -> list[str]:
    """Where the first page differs from what the records say, a line each.

    `rows` are the paper's claims with their verdicts, of which the table must have each, with its number; `comparisons` are
    those of the classifier (`statistics.verdicts`), of which the answer must have each ratio with its interval.
    """
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    table = re.search(r'<figure[^>]*\bid="verdicts".*?</figure>', text, re.DOTALL)
    shown = [_words(row) for row in re.findall(r"<tr\b.*?</tr>", table[0], re.DOTALL)[1:]] if table else []
    if len(shown) != len(rows):
        return [f"{page.name} has {len(shown)} rows in its table of verdicts; the records give {len(rows)}"]
    problems = []
    for line, row in zip(shown, rows, strict=True):
        number = "" if math.isnan(row.part.measured) else pages.number(row.part.measured)
        if any(f" {word} " not in f" {line} " for word in (row.name, row.verdict, number) if word):
            said = f"{row.name!r}, {row.verdict}, {number or 'no number'}"
            problems.append(f"{page.name}, table of verdicts: the records say {said}; the row is {line[:100]!r}")
    words = _words(text)
    for comparison in comparisons.iloc[:-1].query("n > 0").itertuples():
        ratio = pages.against(float(comparison.measured), activations.title(str(comparison.rival)))
        low, high = float(comparison.low), float(comparison.high)
        around = "" if math.isnan(low) else f" (95 % interval {pages.span(low, high)};"
        if f" {ratio}{around}" not in words:
            problems.append(f"{page.name} does not say {ratio + around!r}, which the records give")
    return problems


def _words(markup: str) -> str:
    """What a reader sees of some HTML, with single spaces."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).replace("’", "'").split())


_FAILURE = r'class="[^"]*\b(traceback|output error|stderr)\b|Traceback \(most recent call last\)'


class _Page(HTMLParser):
    """What a page, a file or some HTML, loads, where it links to, and what of it has a name."""

    _LOADING = ("script", "img", "iframe", "source", "video", "audio", "embed")

    def __init__(self, page: Path | str) -> None:
        super().__init__()
        self.loads: list[tuple[str, str]] = []
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.heading = False
        self.text = page if isinstance(page, str) else page.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        self.heading |= tag == "h1"
        if tag in self._LOADING and (address := found.get("src")):
            self.loads.append((tag, address))
        elif tag == "link" and (address := found.get("href")):
            kind = found.get("rel", "")
            if kind == "canonical":
                self.links.add(address)
            if any(word in kind for word in ("stylesheet", "icon", "preload", "preconnect", "dns-prefetch")):
                self.loads.append((tag, address))
        elif tag == "a":
            self.links |= {found["href"]} if "href" in found else set()
        elif found.get("property") in ("og:image", "og:url"):
            self.links.add(found.get("content", ""))


def _inside(link: str, page: Path, address: str) -> str:
    """A link into the site by its full address, or from the 404 page by its path, as a relative one; any other as it is."""
    if address and f"{link}/".startswith(f"{address}/"):
        return link[len(address) :].lstrip("/") or "index.html"
    root = f"{urlsplit(address).path}/"
    if address and page.name == "404.html" and link.startswith(root):
        return link[len(root) :] or "index.html"
    return link


def _dead(site: Path, page: Path, address: str, read: Mapping[Path, _Page]) -> str:
    """Why an address inside the site leads nowhere; nothing for a good one, or one outside."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""
    if parts.path.startswith("/"):
        return f"{address} begins at the host's root, so it breaks under a sub-path"
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site.resolve()) and target != page:
        return f"{address} leads out of the site"
    if not target.is_file():
        return f"{address} does not exist"
    anchor = unquote(parts.fragment)
    known = read.get(target) or read.get(site / target.relative_to(site.resolve()) if target != page else page)
    if anchor and known is not None and anchor not in known.anchors:
        return f"{address} names a place that the page does not have"
    return ""


