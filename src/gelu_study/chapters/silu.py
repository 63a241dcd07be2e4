"""SiLU in the place of GELU: the paper's remark on it (section 5), judged on the MNIST classifier."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from gelu_study import activations, pages, published, statistics, study
from gelu_study.study import Study

NAME = "silu"
MEASURES = {
    "train_loss": "training loss",
    "best_validation_loss": "validation loss",
    "best_test_error": "test error",
}
"""Columns of the run table: the one that is judged, at the end of training, then two at the epoch of best validation loss."""
_BESIDE = {measure: name for measure, name in MEASURES.items() if measure != published.SILU.metric}
_ALSO = replace(published.CLASSIFIER, subject=NAME)
"""The remark's other half: SiLU against ReLU and ELU."""


def runs(scale: str, seeds: Sequence[int] = (), ledger: str | os.PathLike[str] | None = None) -> Study:
    """The recorded runs of SiLU and of all that it is compared with."""
    names = (published.SILU.subject, NAME, *published.CLASSIFIER.rivals)
    return study.run(published.SILU.experiment, scale, activations=names, seeds=seeds, train=False, ledger=ledger)


def answer(found: Study) -> None:
    """Answer in a few sentences whether GELU's training loss is the lower one."""
    if not _recorded(found):
        command = f"gelu-study run {found.experiment} --scale {found.scale} --activations {NAME}"
        pages.text(f"> **Not run yet.** SiLU has no record here. To train it: `{command}`")
        return
    judged = statistics.verdicts(found.table, choice=found.chosen, claim=published.SILU)
    pages.text("\n".join(pages.answer_lines(judged, published.SILU)))
    clear = [
        f"the {name} is {pages.ratio(row['measured'])} {pages.condition(row['keep_probability'])}"
        for measure, name in _BESIDE.items()
        for row in _compared(found, measure, published.SILU)
        if row["high"] < 1 or row["low"] > 1
    ]
    pages.text(
        f"The rule asks for the training loss alone. Of {' and '.join(_BESIDE.values())}, "
        + (f"these differ beyond their interval: {'; '.join(clear)}." if clear else "none differs beyond its interval.")
        + " All of this is one network on one data set; the remark is about all that the paper tried."
    )


def table(found: Study) -> None:
    """Every comparison by each measure, those of SiLU with ReLU and ELU too."""
    if not _recorded(found):
        return
    rows = []
    for claim in (published.SILU, _ALSO):
        columns = [_compared(found, measure, claim) for measure in MEASURES]
        for cells in zip(*columns, strict=True):
            first = cells[0]
            shown = [pages.interval(cell["measured"], cell["low"], cell["high"]) for cell in cells]
            rows.append(
                {
                    "ratio": f"{activations.title(claim.subject)} / {activations.title(first['rival'])}",
                    "keep": f"{first['keep_probability']:g}",
                    **dict(zip(MEASURES.values(), shown, strict=True)),
                    "n": str(int(first["n"])),
                }
            )
    caption = (
        "Below 1, the first of the two is better: median over n pairs of runs with the same seed [95 % bootstrap interval]. "
        "<i>Training loss</i>: at the end, dropout off, as judged. <i>Validation loss</i> and <i>test error</i>: at the epoch of "
        "best validation loss. <i>Keep</i>: the keep probability, 1 for no dropout. Intervals are not adjusted for their number."
    )
    keys = statistics.at_choice(found.table, found.chosen)["key"]
    pages.table(pd.DataFrame(rows), "mnist-classifier-silu", caption, keys)


def _recorded(found: Study) -> bool:
    return any(record.config.activation == NAME for record in found.records)


def _compared(found: Study, measure: str, claim: published.Claim) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = statistics.comparisons(found.table, measure, choice=found.chosen, claim=claim).to_dict("records")
    return rows
