"""The landing page: every comparison of GELU with a rival in one figure, and the paper's claims with their verdicts."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gelu_study import claims, figures, pages, paths, published, site, statistics
from gelu_study.claims import Row
from gelu_study.judging import GELU, RIVALS, Part
from gelu_study.ledger import Ledger, table

CAPTION = (
    "The paper's claims, and what the runs recorded so far say about each. <i>Measured</i>: of the comparison that is the weakest "
    "for the claim, named below the number, with its 95 % interval; <i>paper</i>: the same from the text, or read off the figures "
    "as plotted. Ratios below 1 speak for the claim. <i>n</i>: pairs of runs, or runs."
)


_SUBJECT = published.NAMES[GELU]
_FARTHEST = 1.6
"""A ratio from which on a mark stands at the figure's edge, as an arrow."""


def coverage(rows: Sequence[Row]) -> None:
    """Say how many of the paper's claims have which verdict, and which of them the answer is about."""
    pages.text(f"The paper makes {len(rows)} claims that can be checked. So far: **{claims.tally(rows, names=False)}.**")
    if rows[0].part.n:
        pages.text(f"The first of them is on the {published.CLASSIFIER.name}:")


def answer_figure(rows: Sequence[Row], ledger: str | os.PathLike[str] | None = None, scale: str = "powered") -> None:
    """The answer at a glance: GELU against each rival, wherever runs or the paper have a number. `rows` are the verdicts from the
    records of `ledger` (default: the project's) at `scale`."""
    compared = lines(rows)
    if not any(row.part.n for row in rows):
        return
    measured = [part for _, parts in compared for part in parts.values() if not math.isnan(part.measured)]
    decided = [part for part in measured if part.verdict != statistics.UNRESOLVED]
    kinds = [part.verdict for part in decided]
    better, equal = kinds.count(statistics.REPRODUCED), kinds.count(statistics.EQUIVALENT)
    claimed = {label.partition("\n")[0] for label, _ in compared}
    keys = {key for row in rows[:-1] if row.claim.name in claimed for key in row.judgement.keys}
    runs = table(record for record in Ledger(ledger or paths.LEDGER).read() if record.config.key in keys)
    said = []
    for label, parts in compared:
        ratios = [f"{pages.number(part.measured)} against {published.NAMES[rival]}" for rival, part in parts.items() if part.n]
        said.append(f"{', '.join(label.splitlines())}: {' and '.join(ratios) or 'the paper alone'}")
    pages.figure(
        forest(compared),
        "answer",
        f"Forest plot of {_SUBJECT}'s loss or error over a rival's, with intervals and the paper's numbers. From the top, "
        f"{'; '.join(said)}.",
        f"<b>Left of 1, {_SUBJECT} is better.</b> A mark is the ratio of {_SUBJECT}'s loss or error to a rival's (median over "
        "pairs of runs with the same seed, 95 % bootstrap interval), filled where the runs decide and open where they do not; "
        f"diamonds are the paper's. Fewer than {statistics.LEAST_SEEDS} pairs decide nothing. Of {len(measured)} comparisons with "
        f"runs {len(decided)} are decided: {better} for {_SUBJECT}, {equal} as equivalent, "
        f"{len(decided) - better - equal} for the rival. {_SUBJECT} is its tanh form, as in the paper's code. Grey: the "
        "margin of 5 % within which two losses count as equivalent. <i>Keep</i>: the keep probability of "
        f"dropout, 1 for none. {len(runs)} runs, whose pairs the table below counts by claim; scale: {scale}; device: "
        f"{', '.join(sorted(set(runs['device'])))}; date: {pages.dates(runs)}.",
        keys,
    )


def lines(rows: Sequence[Row]) -> list[tuple[str, dict[str, Part]]]:
    """The figure's lines: what is compared where, and the comparisons with each rival that has a number there."""
    found: dict[str, dict[str, Part]] = {}
    for row in rows[:-1]:  # the last is all of them once more
        for part, rival in product(row.judgement.parts, RIVALS):
            where = part.of.split(f", {_SUBJECT} / {published.NAMES[rival]}")
            if len(where) == 2 and not (math.isnan(part.measured) and math.isnan(part.published)):
                found.setdefault(f"{row.claim.name}\n{''.join(where)}", {})[rival] = part
    return list(found.items())


@figures.typeset
def forest(lines: Sequence[tuple[str, dict[str, Part]]], margin: float = statistics.MARGIN) -> Figure:
    """A forest plot: a line each of `lines`, on which every rival has its mark. What leaves the axis ends in an arrow."""
    figure, (ax,) = figures.panels(1, height=1.1 + 0.62 * len(lines))
    parts = [part for _, compared in lines for part in compared.values()]
    numbers = np.array([(part.measured, part.low, part.high, part.published) for part in parts], dtype=float)
    usable = numbers[np.isfinite(numbers) & (numbers > 0)]
    left, right = min([0.8, *(usable / 1.15)]), min(max([1.25, *(usable * 1.15)]), _FARTHEST)
    ax.set_xlim(left, right)
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#CCCCCC", alpha=0.8, lw=0)
    ax.axvline(1, color="#555555", lw=1)
    for place, (_, compared) in enumerate(lines):
        for offset, rival in zip((-0.2, 0.2), RIVALS, strict=True):
            if rival not in compared:
                continue
            part, (colour, _, marker) = compared[rival], figures.STYLES[rival]
            y = place + offset
            if math.isfinite(part.published):
                ax.plot(part.published, y, "D", mfc="none", mec=colour, mew=1.2, ms=6, zorder=3)
            if math.isnan(part.measured):
                continue
            if not math.isnan(part.low):
                ax.plot(np.clip((part.low, part.high), left, right), [y] * 2, color=colour, lw=2.2, solid_capstyle="butt")
            beyond = ">" if part.measured > right else marker
            face = "white" if part.verdict == statistics.UNRESOLVED else colour
            gid = f"{rival} {place}"
            ax.plot(min(part.measured, right), y, beyond, mfc=face, mec=colour, mew=1.6, ms=7.5, zorder=4, clip_on=False, gid=gid)
    ax.set_yticks(range(len(lines)), [label for label, _ in lines], fontsize=11.5)
    ax.set_ylim(len(lines) - 0.45, -0.55)
    ax.tick_params(axis="y", length=0)
    for place in range(1, len(lines)):
        ax.axhline(place - 0.5, color="#E5E5E5", lw=0.8, zorder=0)
    figures.log_axis(ax, "x")
    ax.set_xlabel(f"{_SUBJECT}'s loss or error / rival's\n(left of 1: {_SUBJECT} is better)")
    rivals = [
        Line2D([], [], color=colour, marker=marker, lw=2.2, label=f"vs {published.NAMES[rival]}")
        for rival, (colour, _, marker) in ((rival, figures.STYLES[rival]) for rival in RIVALS)
    ]
    grey = "#444444"
    handles = [
        *rivals,
        Line2D([], [], marker="D", ls="", mfc="none", mec=grey, mew=1.2, label="paper"),
        Line2D([], [], marker="o", ls="", mfc="white", mec=grey, mew=1.6, label="open: undecided"),
        Patch(color="#CCCCCC", label=f"within {100 * margin:g} %"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


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
    return f' <span class="study-note">{html.escape(text).replace(" %", "&nbsp;%")}</span>' if text else ""
