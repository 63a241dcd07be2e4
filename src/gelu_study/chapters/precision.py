"""Whether autoencoders trained with matrix products of another precision end with the same errors."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pandas as pd

from gelu_study import pages, paths
from gelu_study.chapters import autoencoder, experiment
from gelu_study.ledger import Ledger
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study


def agreement(found: Study, folder: str | os.PathLike[str] | None = None) -> None:
    """Runs that differ from those shown by the precision of the matrix products alone: how far the errors are apart, against the
    spread between seeds. Says nothing where the ledger has none."""
    rows, keys = agreement_rows(found, Ledger(folder or paths.LEDGER))
    if not rows:
        return
    own = found.planned[0].precision
    within = sum(bool(row["within"]) for row in rows)
    pages.text(
        f"**Precision.** The runs above took their matrix products in {own}. Of {len(rows)} settings there are also runs in "
        f"{_other(own)}, with the same seeds. In {within} of them every such pair is no further apart than the seeds in {own} are."
    )
    shown = [
        {
            "rate": pages.rate(row["rate"]),
            "activation": experiment.title(row["activation"]),
            f"{_other(own)} / {own}": f"{pages.number(min(row['ratios']), 4)} to {pages.number(max(row['ratios']), 4)}",
            "seeds, most / least": pages.number(row["spread"], 4),
            "pairs": str(len(row["ratios"])),
        }
        for row in rows
    ]
    caption = (
        "Test error at the end: least and greatest ratio of pairs of the same seed, and greatest over least error of the seeds."
    )
    pages.table(pd.DataFrame(shown), "mnist-autoencoder-precision", caption, keys)


def agreement_rows(found: Study, book: Ledger) -> tuple[list[dict[str, Any]], list[str]]:
    """For each setting with pairs: rate, activation, ratios of the other precision's test error, spread (greatest over least error
    of the seeds in the precision shown), within (no ratio exceeds the spread); and the keys of the records."""
    rows, keys = [], []
    for rate in autoencoder.rates(found):
        for name in autoencoder.names_of(found, rate):
            here = [r for r in autoencoder.runs_of(found, name, rate) if r.status == "finished"]
            twins = {r.config.key: book.get(_twin(r).key) for r in here}
            pairs = [(r, twin) for r in here if (twin := twins[r.config.key]) is not None and twin.status == "finished"]
            if not pairs:
                continue
            errors = [r.final["test_loss"] for r in here]
            ratios = [twin.final["test_loss"] / r.final["test_loss"] for r, twin in pairs]
            spread = max(errors) / min(errors)
            within = all(1 / spread <= ratio <= spread for ratio in ratios)
            rows.append({"rate": rate, "activation": name, "ratios": ratios, "spread": spread, "within": within})
            keys += [r.config.key for pair in pairs for r in pair]
    return rows, keys


def _twin(record: RunRecord) -> RunConfig:
    return dataclasses.replace(record.config, precision=_other(record.config.precision))


def _other(precision: str) -> str:
    return "bfloat16" if precision == "float32" else "float32"
