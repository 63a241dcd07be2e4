"""Sound records with made-up curves, for pages that show them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gelu_study import protocols, study
from gelu_study.ledger import Ledger
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

Curve = Callable[[str, np.ndarray], np.ndarray]
"""A curve's values from its name and the epochs at which it is logged."""


def finished(config: RunConfig, curve: Curve, noise: Callable[[str, np.ndarray], np.ndarray] | None = None) -> RunRecord:
    """A record with these curves, and with noise_error and noise_loss by half-width. What is measured of several views of an image is
    asked for as a curve's last value is; losses and errors of all training images are those of the last epoch."""
    curves = {
        name: [float(v) for v in curve(name, np.arange(1, each * config.epochs + 1) / each)] for name, each in config.curves.items()
    }
    if config.test_noise and noise:
        curves |= {name: [float(v) for v in noise(name, np.array(config.test_noise))] for name in ("noise_loss", "noise_error")}
        curves["test_wrong"] = [3, 5]

    def at(epoch: int) -> dict[str, float]:
        return {name: curves[source][config.curves[source] * epoch - 1] for name, source in config.curve_of.items()}

    def last(name: str) -> float:
        if name.endswith("_full"):
            return curves.get(name.replace("_full", "_epoch"), curves["train_loss_epoch"])[-1]
        return float(curve(name, np.array([float(config.epochs)]))[0])

    best = {}
    if config.validation_examples:
        each = config.curves["validation_loss"]
        epoch = int(np.argmin(curves["validation_loss"][each - 1 :: each])) + 1
        best = {"epoch": epoch, "step": epoch * config.steps_per_epoch, **at(epoch)}
    ends = {name: last(name) for name in config.finals}
    started = {"device": "cpu", "device_name": "made up", "started": "2026-01-02T03:04:05+00:00", "stack": 1, "seconds": 1.0}
    record = RunRecord(config, "finished", curves=curves, final=at(config.epochs) | ends, best=best, environment=started)
    assert RunRecord.from_json(record.to_json()) == record, "the record is not a sound one"
    return record


def diverged(config: RunConfig, epoch: int = 2) -> RunRecord:
    """A record of a run that diverged at the first step of an epoch; what it had before is all 1."""
    curves = {name: [1.0] * (each * (epoch - 1)) for name, each in config.curves.items()}
    where = {"step": (epoch - 1) * config.steps_per_epoch + 1, "epoch": epoch}
    record = RunRecord(config, "diverged", where, curves, environment={"device": "cpu"})
    assert RunRecord.from_json(record.to_json()) == record, "the record is not a sound one"
    return record


def resealed(text: str) -> str:
    """A record's text that somebody edited, with the checksum of what it says now."""
    before = text[: text.rindex('"sha256"')]
    return f'{before}"sha256": "{hashlib.sha256(before.encode()).hexdigest()}"\n}}\n'


Make = Callable[[RunConfig], RunRecord | None]
"""A run's record, or none."""


def completed(experiment: str, scale: str, make: Make, **options: Any) -> Study:
    """The study of what `make` gives of a plan, and of the runs that follow where that lets validation choose a learning rate."""
    records = [record for config in protocols.plan(experiment, scale, **options) if (record := make(config)) is not None]
    found = study.run(experiment, scale, train=False, ledger=Held(records), **options)
    known = {record.config.key for record in records}
    more = [make(config) for config in found.planned if config.key not in known and found.chosen]
    return study.run(experiment, scale, train=False, ledger=Held([*records, *filter(None, more)]), **options)


class Held(Ledger):
    """A ledger of these records, without a folder."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        super().__init__("no such ledger")
        self._records = {record.config.key: record for record in records}

    def get(self, key: str) -> RunRecord | None:
        return self._records.get(key)
