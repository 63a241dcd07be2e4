"""The ledger: a folder with one JSON file a run, `KEY[:2]/KEY.json`.

A file appears whole or not at all. One that does not say what its name promises is never read as data and never deleted: it is
named in a warning and moved to `damaged/`.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

from gelu_study import files
from gelu_study.errors import DamagedRecordWarning, LedgerError
from gelu_study.runs import RunConfig, RunRecord

_CONFIG_COLUMNS = ("experiment", "dataset", "activation", "seed", "learning_rate", "keep_probability", "epochs")
_FINAL_COLUMNS = (
    "train_loss",
    "validation_loss",
    "validation_error",
    "test_loss",
    "test_error",
    "train_loss_full",
    "train_error_full",
    "test_error_views",
)
_BEST_COLUMNS = ("epoch", "train_loss", "validation_loss", "validation_error", "test_loss", "test_error")
_MORE_CONFIG = (
    "network",
    "depth",
    "width",
    "train_examples",
    "validation_examples",
    "initialisation",
    "normalisation",
    "optimiser",
    "batch_size",
    "precision",
    "engine",
)
_ENVIRONMENT_COLUMNS = (
    "device",
    "device_name",
    "threads",
    "stack",
    "torch",
    "package",
    "revision",
    "dirty",
    "started",
    "seconds",
)
COLUMNS = (
    "key",
    *_CONFIG_COLUMNS,
    "status",
    "diverged_epoch",
    *_FINAL_COLUMNS,
    *(f"best_{name}" for name in _BEST_COLUMNS),
    *_MORE_CONFIG,
    *_ENVIRONMENT_COLUMNS,
)


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(f"the ledger {folder} cannot be read: {error.strerror}; name another with --ledger") from error


class Ledger:
    """The records in a folder, which is made at the first write."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        with _readable(self.folder):
            if self.folder.exists() and not self.folder.is_dir():
                raise LedgerError(f"the ledger {self.folder} is not a folder; give a folder with --ledger")
            if self.folder.exists():
                os.scandir(self.folder).close()  # globbing would take a folder that cannot be read for an empty one

    def path(self, key: str) -> Path:
        """Where the record of that key lies, or would lie."""
        return self.folder / key[:2] / f"{key}.json"

    def read(self) -> list[RunRecord]:
        """Every sound record, ordered by key."""
        files = sorted(self.folder.glob("[0-9a-f][0-9a-f]/*.json"))
        return [record for file in files if (record := self._load(file)) is not None]

    def get(self, key: str) -> RunRecord | None:
        """The record of that key, or None."""
        with _readable(self.folder):
            there = self.path(key).exists()
        return self._load(self.path(key)) if there else None

    def prepare(self) -> None:
        """Make the folder and see that it can be written, before anything is trained for it. Raises `LedgerError`."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise LedgerError(
                f"the ledger {self.folder} cannot be written: {error.strerror}; name another with --ledger"
            ) from error

    def write(self, record: RunRecord) -> Path:
        """Write the record atomically. A sound record of the same run stays as it is: the first to finish wins."""
        path = self.path(record.config.key)
        if self.get(record.config.key) is not None:
            return path
        try:
            files.write_atomically(path, record.to_json())
        except OSError as error:
            raise LedgerError(
                f"could not write the record of run {record.config.key[:12]} to {path.parent}: {error.strerror}. "
                "Nothing was left half-written; make room or name a writable folder with --ledger, and start again"
            ) from error
        return path

    def _load(self, path: Path) -> RunRecord | None:
        try:
            record = RunRecord.from_json(path.read_text(encoding="utf-8"))
            if path.stem != record.config.key:
                raise LedgerError(f"it holds the record of another run, {record.config.key}")
        except (LedgerError, UnicodeDecodeError) as error:
            self._set_aside(path, str(error))
            return None
        except FileNotFoundError:
            return None  # another process set it aside in the meantime
        except OSError as error:
            raise LedgerError(f"could not read {path}: {error.strerror}") from error
        return record

    def _set_aside(self, path: Path, reason: str) -> None:
        place = self.folder / "damaged" / path.name
        try:
            place.parent.mkdir(exist_ok=True)
            count = 1
            while place.exists():
                place = place.with_name(f"{path.stem}.{count}.json")
                count += 1
            os.replace(path, place)
            done = f"It was moved to {place}"
        except OSError as error:
            done = f"It could not be moved to {place.parent} ({error.strerror}) and is ignored"
        warnings.warn(f"{path} is damaged: {reason}. {done}; the run counts as missing.", DamagedRecordWarning, stacklevel=4)


class Snapshot(Ledger):
    """A ledger as it is when this is made: read once, for many questions about the same records."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        self._records = {record.config.key: record for record in super().read()}

    def read(self) -> list[RunRecord]:
        """Every sound record, ordered by key."""
        return list(self._records.values())

    def get(self, key: str) -> RunRecord | None:
        """The record of that key, or None."""
        return self._records.get(key)


def table(records: Iterable[RunRecord]) -> pd.DataFrame:
    """One row a run with `COLUMNS`; losses in nats, errors in percent, NaN where a diverged run has no value."""
    rows = []
    for record in records:
        config: RunConfig = record.config
        rows.append(
            {
                "key": config.key,
                **{name: getattr(config, name) for name in (*_CONFIG_COLUMNS, *_MORE_CONFIG)},
                "status": record.status,
                "diverged_epoch": record.diverged["epoch"] if record.diverged else None,
                **{name: record.final.get(name) for name in _FINAL_COLUMNS},
                **{f"best_{name}": record.best.get(name) for name in _BEST_COLUMNS},
                **{name: record.environment.get(name) for name in _ENVIRONMENT_COLUMNS},
            }
        )
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    measured = ["diverged_epoch", *_FINAL_COLUMNS, *(f"best_{name}" for name in _BEST_COLUMNS)]
    frame[measured] = frame[measured].astype(float)
    return frame
