"""Trains a sample of the ledger again and compares.

The same run on the same machine with the same number of threads usually gives the same bits. Elsewhere, and in a stack of another
size, sums are rounded in another order, and training amplifies that, most of all through ReLU's kink: the first epoch's training
loss still agrees closely, the end only as well as two nearby trajectories do. So two tolerances are stated, one for each.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gelu_study import datasets, sweep, training
from gelu_study.errors import LedgerError
from gelu_study.ledger import Ledger
from gelu_study.runs import ENGINE, RunRecord

EARLY_TOLERANCE = 0.03
"""Greatest relative difference of the first epoch's mean training loss. Five times what was seen: of 96 first epochs trained again
in stacks of another size, those of GELU and ELU came out the same to the last digit and those of ReLU differed by up to 6e-3."""
FINAL_LOSS_TOLERANCE = 0.5
"""Greatest difference of the logarithms of training, validation and test loss, each a mean over the last tenth of the epochs; of
seven whole runs trained again, three differed, by up to 0.15."""
FINAL_ERROR_TOLERANCE = 0.25
"""Greatest difference of validation and test error, likewise, as a share of the error; a percentage point is always allowed."""


@dataclass(frozen=True)
class Comparison:
    """A run's record against the same run trained again."""

    label: str
    identical: bool  # all curves and final values, to the last digit
    early: float  # relative
    final_loss: float  # of the logarithms
    final_error: float  # percentage points
    allowed_error: float  # percentage points
    agrees: bool

    def __str__(self) -> str:
        verdict = "identical" if self.identical else "agrees" if self.agrees else "DIFFERS"
        return (
            f"{verdict:<10} {self.label}: first epoch {self.early:.1e} (allowed {EARLY_TOLERANCE:g}), "
            f"ln of final loss {self.final_loss:.1e} ({FINAL_LOSS_TOLERANCE:g}), "
            f"error {self.final_error:.2f} points ({self.allowed_error:.2g})"
        )


def compare(record: RunRecord, again: RunRecord) -> Comparison:
    """Hold a record against the same run trained again. Two diverged runs agree where they diverged in the same epoch."""
    config = record.config
    label = f"{config.key[:12]} {config.experiment}, {config.activation}, learning rate {config.learning_rate:g}, "
    label += f"keep {config.keep_probability:g}, seed {config.seed}"
    identical = (record.status, record.diverged, record.curves, record.final, record.best) == (
        again.status,
        again.diverged,
        again.curves,
        again.final,
        again.best,
    )
    if record.status != again.status or record.status == "diverged":
        same = record.status == again.status and (record.diverged or {}).get("epoch") == (again.diverged or {}).get("epoch")
        return Comparison(label, identical, 0.0 if same else math.inf, 0.0, 0.0, 0.0, same)

    def end(of: RunRecord, name: str) -> float:
        values = of.curves[name]
        return float(np.mean(values[-max(1, len(values) // 10) :]))

    def logarithm(value: float) -> float:
        return math.log(value) if value > 0 else -math.inf

    first, first_again = (of.curves["train_loss_epoch"][0] for of in (record, again))
    early = 0.0 if first == first_again else abs(first / first_again - 1) if first_again else math.inf
    measured = [name for name in config.measures if name != "train_loss"]
    names = ["train_loss_epoch", *(name for name in measured if name.endswith("loss"))]
    losses = [[logarithm(end(of, name)) for of in (record, again)] for name in names]
    final_loss = max(0.0 if one == other else abs(one - other) for one, other in losses)
    errors = [[end(of, name) for of in (record, again)] for name in measured if name.endswith("error")]
    final_error = max((abs(one - other) for one, other in errors), default=0.0)
    allowed = max(1.0, FINAL_ERROR_TOLERANCE * min((one for one, _ in errors), default=0.0))
    agrees = early <= EARLY_TOLERANCE and final_loss <= FINAL_LOSS_TOLERANCE and final_error <= allowed
    return Comparison(label, identical, early, final_loss, final_error, allowed, agrees)


def verify(
    ledger: str | os.PathLike[str],
    *,
    sample: int = 3,
    sample_seed: int | None = None,
    experiment: str | None = None,
    device: str = "auto",
    data_root: Path | None = None,
) -> Sequence[Comparison]:
    """Train `sample` records of the ledger again, drawn at random, and compare them. Writes nothing.

    Raises `LedgerError` when there is no record of this engine, and what `sweep.complete` raises.
    """
    where = training.resolve_device(device)
    records = [
        record
        for record in Ledger(ledger).read()
        if record.config.engine == ENGINE and experiment in (None, record.config.experiment)
    ]
    if not records:
        raise LedgerError(f"{ledger} holds no record of engine {ENGINE}{f' and {experiment}' if experiment else ''} to verify")
    drawn = random.Random(sample_seed).sample(records, min(sample, len(records)))
    by_key = {record.config.key: record for record in drawn}
    planned = sweep.stacks([record.config for record in drawn], sweep.CPU_STACK)
    loaded = {name: datasets.load(name, data_root) for name in sorted({record.config.dataset for record in drawn})}
    reporter = sweep.Reporter(len(drawn), sum(r.config.steps_per_epoch * r.config.epochs for r in drawn))
    rows = []
    try:
        for stack in planned:
            for again in training.train(stack, loaded[stack[0].dataset], where, sweep.per_network(reporter, stack)):
                rows.append(compare(by_key[again.config.key], again))
            reporter.finish_runs(len(stack))
    finally:
        reporter.close()
    return rows
