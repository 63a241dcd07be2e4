"""The landing page's table of the paper's claims with their verdicts."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import pandas as pd

from gelu_study import claims, pages, paths, published, site, statistics
from gelu_study.claims import Row

CAPTION = (
    "The paper's claims, and what the runs recorded so far say about each. <i>Measured</i>: of the comparison that is the weakest "
    "for the claim, named below the number, with its 95 % interval; <i>paper</i>: the same from the text, or read off the figures "
    "as plotted. Ratios below 1 speak for the claim. <i>n</i>: pairs of runs, or runs."
)


def coverage(rows: Sequence[Row]) -> None:
    """Say how many of the paper's claims have which verdict, and which of them the answer is about."""
    pages.text(f"The paper makes {len(rows)} claims that can be checked. So far: {claims.tally(rows, names=False)}.")
    if rows[0].part.n:
        pages.text(f"The first of them is on the {published.CLASSIFIER.name}:")


def verdict_table(rows: Sequence[Row]) -> None:
    """The paper's claims with their verdicts, those without runs too, and the records behind all of them."""
    known = set(site.expected_pages(paths.BOOK / "_toc.yml"))
    shown = pd.DataFrame([_cells(row, known) for row in rows])
    pages.table(shown, "verdicts", CAPTION, [key for row in rows for key in row.judgement.keys])


def _cells(row: Row, known: set[str]) -> dict[str, str]:
    """A row's cells as HTML; the claim's name is a link where the book has its page."""
    name, part = html.escape(row.name), row.part
    if row.claim.page in known:
        name = f'<a href="{row.claim.page}.html">{name}</a>'
    lacking = f"only {row.judgement.lacking}" if row.judgement.lacking else ""
    measured = pages.interval(part.measured, part.low, part.high) if not math.isnan(part.measured) else "–"
    return {
        "claim": f"<b>{name}</b>{_note(row.claim.statement)}{_note(row.claim.where)}",
        "verdict": pages.badge(row.verdict) + _note(lacking),
        "paper": f"{part.published:g}" if part.n is None else pages.number(part.published),
        "measured [95 %]": measured + _note(part.of if row.verdict != statistics.NOT_RUN else ""),
        "n": "–" if part.n is None else str(part.n),
    }


def _note(text: str) -> str:
    return f'<span class="study-note">{html.escape(text).replace(" %", "&nbsp;%")}</span>' if text else ""
