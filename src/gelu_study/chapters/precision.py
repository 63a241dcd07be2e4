"""Whether autoencoders come to the same errors when they are trained again in another way: in another precision, or elsewhere."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pandas as pd

from gelu_study import judging, pages, paths
from gelu_study.chapters import autoencoder, experiment
from gelu_study.ledger import Ledger, WithOwn
from gelu_study.runs import RunRecord, parts
from gelu_study.study import Study
from gelu_study.training import products

_Pair = tuple[RunRecord, RunRecord]


def agreement(found: Study, folder: str | os.PathLike[str] | None = None) -> None:
    """Runs that differ from those shown by the precision of the matrix products alone: how far the errors are apart, against the
    spread between seeds. Says nothing where the ledger has none."""
    own = found.planned[0].precision
    book = _ledger(folder)
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
    book = _ledger(folder)

    def apart(run: RunRecord) -> RunRecord | None:
        again = book.get(replace(run.config, epochs=other).key)
        return None if again is None or _went_on(run, again) else again

    rows, pairs = compared(found, apart)
    if not rows:
        return
    here, there = (_where([pair[place] for pair in pairs]) for place in (0, 1))
    count = "1 of these networks was" if len(pairs) == 1 else f"{len(pairs)} of these networks were"
    pages.text(
        f"**Trained twice.** {count} also trained from the start for {other} epochs: {there}; the runs above: {here}. "
        f"{_apart(rows)}"
    )
    first = min(own, other)
    ratio = f"run of {other} epochs / run of {own}"
    _table(rows, pairs, ratio, "mnist-autoencoder-repeated", f"Test error after {first} epochs")


def _ledger(folder: str | os.PathLike[str] | None) -> Ledger:
    return Ledger(folder) if folder else WithOwn(paths.OWN, paths.LEDGER)


def _apart(rows: Sequence[dict[str, Any]]) -> str:
    several = [row for row in rows if row["seeds"] > 1]
    if not several:
        return "None of them has a second seed, to tell how far apart seeds are."
    within = sum(row["within"] for row in several)
    return f"In {within} of {len(several)} settings with several seeds every such pair is no further apart than the seeds are."


def _table(rows: Sequence[dict[str, Any]], pairs: Sequence[_Pair], ratio: str, name: str, what: str) -> None:
    shown = [
        {
            "rate": pages.rate(row["rate"]),
            "activation": experiment.title(row["activation"]),
            ratio: f"{pages.number(min(row['ratios']), 4)} to {pages.number(max(row['ratios']), 4)}",
            "seeds, most / least": pages.number(row["spread"], 4) if row["seeds"] > 1 else "–",
            "pairs": str(len(row["ratios"])),
        }
        for row in rows
    ]
    caption = (
        f"{what}: least and greatest ratio of pairs of the same seed, and greatest over least error of the seeds. The error of a "
        "run that had diverged until then is infinite."
    )
    pages.table(pd.DataFrame(shown), name, caption, [record.config.key for pair in pairs for record in pair])


def compared(found: Study, twin: Callable[[RunRecord], RunRecord | None]) -> tuple[list[dict[str, Any]], list[_Pair]]:
    """For each setting in which runs have twins: rate, activation, ratios of the twins' test errors to those of the runs, after as
    many epochs as both have; seeds, the number of runs; spread, greatest over least error of all of these, then; within, whether no
    ratio exceeds the spread. And the pairs. The error of a run that had diverged is infinite; two such are equal."""
    rows, pairs = [], []
    for rate in autoencoder.rates(found):
        for name in autoencoder.names_of(found, rate):
            here = autoencoder.runs_of(found, name, rate)
            twins = [(run, other) for run in here if (other := twin(run))]
            if not twins:
                continue
            epochs = min(twins[0][0].config.epochs, twins[0][1].config.epochs)
            ratios = [_over(_error(other, epochs), _error(run, epochs)) for run, other in twins]
            errors = [_error(run, epochs) for run in here]
            spread = _over(max(errors), min(errors))
            within = all(1 / spread <= ratio <= spread for ratio in ratios)
            rows.append(
                {"rate": rate, "activation": name, "ratios": ratios, "seeds": len(here), "spread": spread, "within": within}
            )
            pairs += twins
    return rows, pairs


def _error(run: RunRecord, epochs: int) -> float:
    logged = run.curves.get("test_loss", [])
    return logged[epochs - 1] if len(logged) >= epochs else math.inf


def _over(one: float, other: float) -> float:
    return 1.0 if one == other else one / other


def _went_on(one: RunRecord, other: RunRecord) -> bool:
    """Whether two runs share a part of their training: one went on where the other ended, or both did from one checkpoint."""
    first, second = ({part.get("started") for part in parts(run.environment)} - {None} for run in (one, other))
    return bool(first & second)


def _where(records: Sequence[RunRecord]) -> str:
    """"On an Abacus with products by oneDNN (2 runs)" of the records, for each such machine."""
    by_machine = groupby(sorted(records, key=_machines), _machines)
    return " and ".join(f"on {name} ({pages.counted(list(those))})" for name, those in by_machine)


def _machines(record: RunRecord) -> str:
    """All that a run was trained on, part by part."""
    said = [
        f"{part.get('device_name', 'an unknown device')}{' with products by oneDNN' * (part.get('products') == products.ONEDNN)}"
        for part in reversed(parts(record.environment))
    ]
    return ", then ".join(dict.fromkeys(said))


def _other(precision: str) -> str:
    return "bfloat16" if precision == "float32" else "float32"
