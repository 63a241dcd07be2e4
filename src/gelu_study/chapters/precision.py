"""Whether autoencoders come to the same errors when they are trained again in another way: in another precision, or elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from gelu_study import judging, pages, paths
from gelu_study.chapters import autoencoder, experiment
from gelu_study.ledger import Ledger
from gelu_study.runs import RunRecord
from gelu_study.study import Study
from gelu_study.training import products

_Pair = tuple[RunRecord, RunRecord]


def agreement(found: Study, folder: str | os.PathLike[str] | None = None) -> None:
    """Runs that differ from those shown by the precision of the matrix products alone: how far the errors are apart, against the
    spread between seeds. Says nothing where the ledger has none."""
    own = found.planned[0].precision
    book = Ledger(folder or paths.LEDGER)
    rows, pairs = compared(found, lambda run: book.get(replace(run.config, precision=_other(own)).key))
    if not rows:
        return
    pages.text(
        f"**Precision.** The runs above took their matrix products in {own}. Of {len(rows)} settings there are also runs in "
        f"{_other(own)}, with the same seeds. {_apart(rows)}"
    )
    _table(rows, pairs, f"{_other(own)} / {own}", "mnist-autoencoder-precision", "Test error at the end")


def repeated(found: Study, folder: str | os.PathLike[str] | None = None) -> None:
    """Runs that differ from those shown by the number of epochs alone, which were trained apart, from their first step: the same
    comparison, at the last epoch of the shorter. Says nothing where the ledger has none."""
    own = found.planned[0].epochs
    other = judging.REDUCED_EPOCHS if own != judging.REDUCED_EPOCHS else autoencoder.PAPER_EPOCHS
    book = Ledger(folder or paths.LEDGER)

    def apart(run: RunRecord) -> RunRecord | None:
        again = book.get(replace(run.config, epochs=other).key)
        return None if again is None or _went_on(run, again) else again

    rows, pairs = compared(found, apart)
    if not rows:
        return
    here, there = (_where([pair[place] for pair in pairs]) for place in (0, 1))
    pages.text(
        f"**Trained twice.** {len(pairs)} of these networks were trained a second time from the start, for {other} epochs: "
        f"{there}; those above {here}. {_apart(rows)}"
    )
    first = min(own, other)
    _table(rows, pairs, f"second / first, epoch {first}", "mnist-autoencoder-repeated", f"Test error after {first} epochs")


def _apart(rows: Sequence[dict[str, Any]]) -> str:
    within = sum(bool(row["within"]) for row in rows)
    return f"In {within} of {len(rows)} settings every such pair is no further apart than the seeds are."


def _table(rows: Sequence[dict[str, Any]], pairs: Sequence[_Pair], ratio: str, name: str, what: str) -> None:
    shown = [
        {
            "rate": pages.rate(row["rate"]),
            "activation": experiment.title(row["activation"]),
            ratio: f"{pages.number(min(row['ratios']), 4)} to {pages.number(max(row['ratios']), 4)}",
            "seeds, most / least": pages.number(row["spread"], 4),
            "pairs": str(len(row["ratios"])),
        }
        for row in rows
    ]
    caption = f"{what}: least and greatest ratio of pairs of the same seed, and greatest over least error of the seeds."
    pages.table(pd.DataFrame(shown), name, caption, [record.config.key for pair in pairs for record in pair])


def compared(found: Study, twin: Callable[[RunRecord], RunRecord | None]) -> tuple[list[dict[str, Any]], list[_Pair]]:
    """For each setting in which finished runs have finished twins: rate, activation, ratios of the twins' test errors to those of
    the runs, after as many epochs as both have; spread (greatest over least error of all seeds of the runs, then), within (no ratio
    exceeds the spread). And the pairs."""
    rows, pairs = [], []
    for rate in autoencoder.rates(found):
        for name in autoencoder.names_of(found, rate):
            here = [r for r in autoencoder.runs_of(found, name, rate) if r.status == "finished"]
            twins = [(r, other) for r in here if (other := twin(r)) and other.status == "finished"]
            if not twins:
                continue
            epochs = min(twins[0][0].config.epochs, twins[0][1].config.epochs)
            errors = [r.curves["test_loss"][epochs - 1] for r in here]
            ratios = [other.curves["test_loss"][epochs - 1] / r.curves["test_loss"][epochs - 1] for r, other in twins]
            spread = max(errors) / min(errors)
            within = all(1 / spread <= ratio <= spread for ratio in ratios)
            rows.append({"rate": rate, "activation": name, "ratios": ratios, "spread": spread, "within": within})
            pairs += twins
    return rows, pairs


def _went_on(one: RunRecord, other: RunRecord) -> bool:
    """Whether the longer of two runs began where the shorter ended."""
    long, short = sorted((one, other), key=lambda r: -r.config.epochs)
    parts = [long.environment, *long.environment.get("earlier", [])]
    return short.environment.get("started") in [part.get("started") for part in parts]


def _where(records: Sequence[RunRecord]) -> str:
    """"On an Abacus with products by oneDNN" of the records."""
    said = {
        (str(r.environment.get("device_name", "an unknown device")), r.environment.get("products") == products.ONEDNN)
        for r in records
    }
    return " and ".join(f"on {name}" + ", with products by oneDNN" * onednn for name, onednn in sorted(said))


def _other(precision: str) -> str:
    return "bfloat16" if precision == "float32" else "float32"
