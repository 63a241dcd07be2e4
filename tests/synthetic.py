"""Sound records with made-up curves, for pages that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from gelu_study.ledger import Ledger
from gelu_study.runs import MEASURES, RunConfig, RunRecord

Curve = Callable[[str, np.ndarray], np.ndarray]
"""A curve's values from its name and the epochs at which it is logged."""


def finished(config: RunConfig, curve: Curve, noise: Callable[[str, np.ndarray], np.ndarray] | None = None) -> RunRecord:
    """A record with these curves, and with noise_error and noise_loss by half-width."""
    curves = {
        name: [float(v) for v in curve(name, np.arange(1, each * config.epochs + 1) / each)] for name, each in config.curves.items()
    }
    if config.test_noise and noise:
        curves |= {name: [float(v) for v in noise(name, np.array(config.test_noise))] for name in ("noise_loss", "noise_error")}
        curves["test_wrong"] = [3, 5]
    sources = {name: "train_loss_epoch" if name == "train_loss" else name for name in config.measures}

    def at(epoch: int) -> dict[str, float]:
        return {name: curves[source][config.curves[source] * epoch - 1] for name, source in sources.items()}

    best = {}
    if config.validation_examples:
        epoch = int(np.argmin(curves["validation_loss"][2::3])) + 1
        best = {"epoch": epoch, "step": epoch * config.steps_per_epoch, **at(epoch)}
    full = {f"train_{kind}_full": curves["train_loss_epoch"][-1] for kind in MEASURES[config.network]}
    started = {"device": "cpu", "device_name": "made up", "started": "2026-01-02T03:04:05+00:00", "stack": 1, "seconds": 1.0}
    record = RunRecord(config, "finished", curves=curves, final=at(config.epochs) | full, best=best, environment=started)
    assert RunRecord.from_json(record.to_json()) == record, "the record is not a sound one"
    return record


def diverged(config: RunConfig, epoch: int = 2) -> RunRecord:
    """A record of a run that diverged at the first step of an epoch; what it had before is all 1."""
    curves = {name: [1.0] * (each * (epoch - 1)) for name, each in config.curves.items()}
    where = {"step": (epoch - 1) * config.steps_per_epoch + 1, "epoch": epoch}
    record = RunRecord(config, "diverged", where, curves, environment={"device": "cpu"})
    assert RunRecord.from_json(record.to_json()) == record, "the record is not a sound one"
    return record


class Held(Ledger):
    """A ledger of these records, without a folder."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        super().__init__("no such ledger")
        self._records = {record.config.key: record for record in records}

    def get(self, key: str) -> RunRecord | None:
        return self._records.get(key)
