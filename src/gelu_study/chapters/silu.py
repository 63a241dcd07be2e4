"""SiLU in the place of GELU: the paper's remark on it (section 5), judged on the MNIST classifier."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from gelu_study import activations, pages, published, statistics, study
from gelu_study.ledger import Ledger
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


@dataclass(frozen=True)
class Behind:
    """What the section rests on: two studies, for a learning rate is chosen only where a study's whole grid has records."""

    pair: Study  #: of GELU and SiLU, which the claim is judged on
    others: Study  #: of SiLU and those that the rest of the remark is about


def runs(
    scale: str,
    seeds: Sequence[int] = (),
    ledger: str | os.PathLike[str] | Ledger | None = None,
    **selection: Any,
) -> Behind:
    """The recorded runs of SiLU and of all that it is compared with; `selection` is of `study.run`."""

    def read(*names: str) -> Study:
        experiment = published.SILU.experiment
        return study.run(experiment, scale, activations=names, seeds=seeds, train=False, ledger=ledger, **selection)

    return Behind(read(published.SILU.subject, NAME), read(NAME, *_ALSO.rivals))


def answer(behind: Behind) -> None:
    """Answer in a few sentences whether GELU's training loss is the lower one."""
    found = behind.pair
    there = [record for record in found.records if record.config.activation == NAME]
    if not there:
        pages.text(f"> **Not run yet.** SiLU has no record here. `{_command(found)}` trains it.")
        return
    if found.missing:
        pages.text(
            f"> **Not complete.** Of GELU and SiLU, {study.recorded(len(found.records), len(found.planned))}, so no learning rate "
            f"is chosen. `{_command(found)}` trains the rest."
        )
        return
    judged = statistics.verdicts(found.table, choice=found.chosen, claim=published.SILU)
    pages.text("\n".join(pages.answer_lines(judged, published.SILU)))
    rows = [(name, row) for measure, name in _BESIDE.items() for row in _compared(found, measure, published.SILU)]
    known = [(name, row) for name, row in rows if math.isfinite(row["low"]) and math.isfinite(row["high"])]
    if not known:
        return
    clear = [
        f"GELU's {name} is {pages.against(row['measured'], 'SiLU')} {pages.condition(row['keep_probability'])}"
        for name, row in known
        if row["high"] < 1 or row["low"] > 1
    ]
    pages.text(
        f"The rule asks for the training loss alone. Of {' and '.join(_BESIDE.values())}, "
        + (f"the 95 % interval excludes equality here: {'; '.join(clear)}." if clear else "no 95 % interval excludes equality.")
        + " These intervals are not adjusted for their number. All of this is one network on one data set; the remark is about all "
        "that the paper tried."
    )


def table(behind: Behind) -> None:
    """Every comparison by each measure, those of SiLU with ReLU and ELU too, of which learning rates are chosen."""
    halves = [(found, claim) for found, claim in ((behind.pair, published.SILU), (behind.others, _ALSO)) if found.chosen]
    if not halves:
        return
    rows, keys = [], []
    for found, claim in halves:
        columns = [_compared(found, measure, claim) for measure in MEASURES]
        keys += list(statistics.at_choice(found.table, found.chosen)["key"])
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
    pages.table(pd.DataFrame(rows), "mnist-classifier-silu", caption, list(dict.fromkeys(keys)))


def _command(found: Study) -> str:
    held = {record.config.key for record in found.records}
    lacking = [config for config in found.planned if config.key not in held]
    names = ",".join(dict.fromkeys(config.activation for config in lacking))
    seeds = ",".join(str(seed) for seed in sorted({config.seed for config in lacking}))
    return f"gelu-study run {found.experiment} --scale {found.scale} --activations {names} --seeds {seeds}"


def _compared(found: Study, measure: str, claim: published.Claim) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = statistics.comparisons(found.table, measure, choice=found.chosen, claim=claim).to_dict("records")
    return rows
