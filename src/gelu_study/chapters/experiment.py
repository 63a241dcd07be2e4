"""What the pages of single experiments share: a claim judged on the runs shown, and how its comparisons are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import groupby, product

import numpy as np
import pandas as pd

from gelu_study import activations, judging, pages, statistics
from gelu_study.judging import Judge, Judgement, Part
from gelu_study.study import Study

COLUMNS = (
    "<i>Measured</i>: median over seeds, paired, with its bootstrap interval; n counts the pairs. "
    'Verdicts are by <a href="verdicts.html">the rule</a>.'
)


class _Shown(judging.Evidence):
    """The runs of a page in the place of a ledger's."""

    def __init__(self, found: Study) -> None:
        self.study = cache(lambda *_arguments, **_options: found)


def judged(found: Study, judge: Judge) -> Judgement:
    """A judge's word on the runs of a page, whatever its parameters selected."""
    return judge(_Shown(found))


def comparison_table(found: Study, judgement: Judgement, name: str, caption: str) -> None:
    """The comparisons of a claim with their evidence; the verdict on the claim as a whole, if there is one, in the last row.

    The paper's ratios stand beside runs on its own data only.
    """
    published = found.planned[0].dataset != "digits" and not np.isnan([part.published for part in judgement.parts]).all()
    shown = []
    for part in judgement.parts:
        row = {"compared": part.of, "verdict": pages.badge(part.verdict)}
        if published:
            row["paper"] = pages.number(part.published)
        row["measured [95 %]"] = pages.interval(part.measured, part.low, part.high)
        row["n"] = str(part.n)
        shown.append(row)
    if judgement.verdict and len(shown) > 1:
        shown.append({"compared": "<b>all together</b>", "verdict": pages.badge(judgement.verdict)})
    pages.table(pd.DataFrame(shown).fillna(""), name, f"{caption} {COLUMNS}", judgement.keys)


def headline(judgement: Judgement, what: str) -> str:
    """The answer in a sentence: yes, no or undecided, and of how many comparisons `what` is lower."""
    verdicts = [part.verdict for part in judgement.parts]
    told = f"{what} is {tally(verdicts)} of {len(verdicts)} comparisons."
    if len(verdicts) == 1:
        told = f"{what} is {in_words(verdicts[0])}."
    all_contradicted = set(verdicts) == {statistics.CONTRADICTED}
    begin = {
        statistics.REPRODUCED: "**Yes.**",
        statistics.EQUIVALENT: "**It ties.**",
        statistics.CONTRADICTED: "**No.**" if all_contradicted else "**Not in every comparison.**",
        statistics.UNRESOLVED: "**Undecided.**",
    }
    if judgement.verdict == statistics.NOT_RUN:
        return f"**No answer yet.** The runs that would decide are not there. {pages.on_the_claim(judgement.verdict)}"
    return f"{begin[judgement.verdict]} {told} {pages.on_the_claim(judgement.verdict)}"


_WORDS = {
    statistics.REPRODUCED: "lower",
    statistics.EQUIVALENT: "the same within 5 %",
    statistics.CONTRADICTED: "higher",
    statistics.UNRESOLVED: "undecided",
    statistics.NOT_RUN: "not run",
}


def tally(verdicts: Sequence[str]) -> str:
    """How often each verdict was given, in words: "lower in 3, the same within 5 % in 1, undecided in 2"."""
    return ", ".join(f"{word} in {verdicts.count(link)}" for link, word in _WORDS.items() if link in verdicts)


def in_words(verdict: str) -> str:
    """What the verdict on one comparison says of GELU's loss or error: "lower"."""
    return "not shown to be lower, higher or the same within 5 %" if verdict == statistics.UNRESOLVED else _WORDS[verdict]


def compared_with(part: Part, rival: str) -> str:
    """A comparison in words: "12 % lower than ReLU's (95 % interval 31 % to 5.2 % lower; reproduced)"."""
    if part.n == 1:
        around = "one seed, no interval; "
    else:
        around = "" if math.isnan(part.low) else f"95 % interval {pages.span(part.low, part.high)}; "
    return f"{pages.against(part.measured, rival)} ({around}{part.verdict})"


def answer_lines(judgement: Judgement, what: str, groups: Sequence[str]) -> list[str]:
    """The answer as Markdown lines: `headline`, then for each group GELU against each rival, in the parts' order."""
    lines = [headline(judgement, what), ""]
    cells = zip(product(groups, judging.RIVALS), judgement.parts, strict=True)
    for group, compared in groupby(cells, key=lambda cell: cell[0][0]):
        said = [compared_with(part, activations.title(rival)) for (_, rival), part in compared if part.n]
        if said:
            lines.append(f"- {group}: GELU's is {joined(said)}.")
    return lines


def title(name: str) -> str:
    """An activation's name for a table, on one line."""
    return activations.title(name).replace(" ", "&nbsp;")


def joined(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def is_mnist(found: Study) -> bool:
    """Whether the runs are on MNIST, hence comparable with the paper's."""
    return found.planned[0].dataset == "mnist"


def drawable(found: Study) -> bool:
    """Whether there is a curve to draw; says so where there is none."""
    if any(record.status == "finished" for record in found.records):
        return True
    why = "every run diverged" if found.records else "no run has finished"
    pages.text(f"There is nothing to show: {why}.")
    return False
