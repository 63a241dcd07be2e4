"""The ledger: a folder with one JSON file a run, `KEY[:2]/KEY.json`.

A file appears whole or not at all, and the first record of a run stays. One that does not say what its name promises is never read
as data and never deleted: it is named in a warning and moved to `damaged/`. Records of a newer version of the package are not
damaged, and stay where they are. What notices a changed digit in a record is in `RunRecord.from_json`.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import tempfile
import warnings
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pandas as pd

from gelu_study import files
from gelu_study.errors import DamagedRecordWarning, LedgerError, LedgerWarning, NewerRecordError
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
_DAMAGED = "damaged"

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


class Ledger:
    """The records in a folder, which is made at the first write."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.expanduser(folder))  # a notebook's parameter has met no shell
        try:
            os.scandir(self.folder).close()  # a folder that cannot be read is no empty one
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.lexists(self.folder):
                raise LedgerError(f"the ledger {self.folder} is not a folder; give a folder with --ledger") from error
        except OSError as error:
            raise LedgerError(f"the ledger {self.folder} cannot be read: {error.strerror}; name another with --ledger") from error

    def path(self, key: str) -> Path:
        """Where the record of that key lies, or would lie."""
        return self.folder / key[:2] / f"{key}.json"

    def read(self) -> list[RunRecord]:
        """Every sound record, ordered by key. Those of a newer version of the package stay in place; a warning counts them."""
        records, newer = [], []
        for path in self._files():
            try:
                record = self._load(path)
            except NewerRecordError as error:
                newer.append(f"{path}: {error}")
            else:
                records += [record] if record else []
        if newer:
            _warn(
                f"{len(newer)} of the records in {self.folder} cannot be read by this version of the package, for instance "
                f"{newer[0]}. They are left as they are and not counted; update the package to read them."
            )
        return records

    def get(self, key: str) -> RunRecord | None:
        """The record of that key, or None. Raises `LedgerError` where a newer version of the package has written it."""
        try:
            return self._load(self.path(key))
        except NewerRecordError as error:
            raise LedgerError(
                f"{self.path(key)} is a record of a newer version of the package: {error}. Update the package; the run is there"
            ) from error

    def prepare(self) -> None:
        """Make the folder and see that it can be written, before anything is trained for it. Raises `LedgerError`.

        What writers that were killed left there a day ago or longer is deleted.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            for folder in [*self._folders(), self.folder / _DAMAGED]:
                if os.path.lexists(folder) and not folder.is_dir():
                    raise NotADirectoryError(errno.ENOTDIR, f"{folder.name} in it is no folder, and must be moved away")
                if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, f"no permission for {folder.name} in it")
                files.remove_abandoned(folder)
        except OSError as error:
            raise LedgerError(
                f"the ledger {self.folder} cannot be written: {error.strerror}; name another with --ledger"
            ) from error

    def write(self, record: RunRecord) -> RunRecord:
        """Write the record atomically, and return the one that the ledger now holds: a sound record of the same run stays as it is,
        also where another process writes one at this moment. The first to finish wins.

        A damaged file in its place is set aside. Raises `LedgerError`, as `get` does and when the record cannot be written.
        """
        key = record.config.key
        for _ in range(2):  # where one appears between looking and writing, the second look finds it
            held = self.get(key)
            if held is not None:
                return held
            try:
                if files.create_atomically(self.path(key), record.to_json()):
                    return record
            except OSError as error:
                raise LedgerError(
                    f"could not write the record of run {key[:12]} to {self.path(key).parent}: {error.strerror}. "
                    "Nothing was left half-written; make room or name a writable folder with --ledger, and start again"
                ) from error
        raise LedgerError(f"could not write the record of run {key[:12]}: {self.path(key)}, which is none, is there; move it away")

    def _folders(self) -> list[Path]:
        """Where records lie: the folders named with the first two digits of their keys."""
        names = _listed(self.folder) if self.folder.is_dir() else []
        return [self.folder / name for name in names if re.fullmatch("[0-9a-f]{2}", name)]

    def _files(self) -> list[Path]:
        """The files that may be records, ordered by key. A warning counts those in a folder that is not theirs: a copy of a record
        would count twice."""
        found, strays = [], []
        for folder in self._folders():
            names = [name for name in _listed(folder) if name.endswith(".json") and not name.startswith(".")]
            found += [folder / name for name in names if name.startswith(folder.name)]
            strays += [folder / name for name in names if not name.startswith(folder.name)]
        if strays:
            _warn(
                f"{len(strays)} of the files in {self.folder} cannot be counted, for instance {strays[0]}, whose name belongs in "
                f"the folder {strays[0].name[:2]}. Nothing was moved; move them where they belong, or delete copies."
            )
        return found

    def _load(self, path: Path) -> RunRecord | None:
        """The record in a file, or none where there is none or a damaged one, which is set aside. Raises `NewerRecordError`."""
        try:
            return _parsed(path, path.stem)
        except NewerRecordError:
            raise
        except (LedgerError, UnicodeDecodeError) as error:
            reason = str(error)
        except OSError as error:
            if error.errno == errno.EISDIR:
                reason = "it is a folder"
            elif error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise LedgerError(f"could not read {path}: {error.strerror}") from error
            elif path.is_symlink():
                reason = "it is a link that leads to no file"
            else:
                return None
        return self._set_aside(path, reason)

    def _set_aside(self, path: Path, reason: str) -> RunRecord | None:
        """Move what is damaged to `damaged/` with a warning. Returns the sound record that has come there since, if one has."""
        try:
            place = _moved(path, self.folder / _DAMAGED)
        except FileNotFoundError:
            return None  # another process was faster, and has said so
        except OSError as error:
            done = f"It could not be moved to {self.folder / _DAMAGED} ({error.strerror}) and is ignored"
        else:
            if _put_back(place, path):
                return self._load(path)
            done = f"It was moved to {place}"
        _warn(f"{path} is damaged: {reason}. {done}; the run counts as missing.", DamagedRecordWarning)
        return None


def _warn(message: str, kind: type[LedgerWarning] = LedgerWarning) -> None:
    warnings.warn(message, kind, stacklevel=3)


def _listed(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where there is no folder. What cannot be read is no empty folder."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        if not folder.is_dir():
            _warn(f"{folder} is no folder, where the records go whose keys begin so, and is ignored; move it away.")
            return []
        raise LedgerError(f"the ledger's folder {folder} cannot be read: {error.strerror}") from error


def _parsed(path: Path, key: str) -> RunRecord:
    """The record in a file, which must be that of the key."""
    try:
        record = RunRecord.from_json(path.read_text(encoding="utf-8"))
        found: str | None = record.config.key
    except NewerRecordError as error:
        found = error.key
        if found in (None, key):
            raise
    if found != key:
        raise LedgerError(f"it holds the record of another run, {found}")
    return record


def _moved(path: Path, folder: Path) -> Path:
    """Move a file, link or folder into a folder under its own name, or with a number where that is taken: nothing is replaced."""
    folder.mkdir(exist_ok=True)
    is_folder = path.is_dir() and not path.is_symlink()
    for number in itertools.count():
        place = folder / (f"{path.stem}.{number}{path.suffix}" if number else path.name)
        with suppress(FileExistsError):
            place.mkdir() if is_folder else place.touch(exist_ok=False)  # two processes never take the same name
            break
    try:
        os.replace(path, place)
    except OSError:
        place.rmdir() if is_folder else place.unlink()
        raise
    return place


def _put_back(place: Path, path: Path) -> bool:
    """Put back what was moved if it is no damaged file: another process may have set that aside, and a third one written a sound
    record in its place, between our reading and our moving."""
    try:
        _parsed(place, path.stem)
    except NewerRecordError:
        pass
    except (LedgerError, UnicodeDecodeError, OSError):
        return False
    try:
        files.claim(place, path)
    except OSError as error:
        _warn(f"{place} is a sound record and could not be put back to {path} ({error.strerror}); move it there.")
    return True


class WithOwn(Ledger):
    """Records of one's own beside the project's: both are read, the project's first; only one's own are written."""

    def __init__(self, own: str | os.PathLike[str], project: str | os.PathLike[str]) -> None:
        super().__init__(own)
        self.project = Ledger(project)

    def read(self) -> list[RunRecord]:
        """Every sound record, ordered by key; a run that both folders hold counts once, with the project's record."""
        found = {record.config.key: record for record in [*super().read(), *self.project.read()]}
        return [found[key] for key in sorted(found)]

    def get(self, key: str) -> RunRecord | None:
        """The record of that key, or None. Raises `LedgerError` where a newer version of the package has written it."""
        return self.project.get(key) or super().get(key)

    def own(self, records: Iterable[RunRecord]) -> int:
        """How many of these records are one's own."""
        return sum(not os.path.lexists(self.project.path(record.config.key)) for record in records)


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
