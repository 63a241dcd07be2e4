"""Writes files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = (".", ".tmp")
"""How the names of files begin and end that are being written; a writer that is killed leaves one."""

_DAY = 86_400  # seconds


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8), making its folder; the old content stays until the new one is on the disk.

    Raises `OSError` and leaves nothing half-written.
    """
    with _written(path.parent, content) as name:
        os.replace(name, path)


def create_atomically(path: Path, content: str | bytes) -> bool:
    """Write a file as `write_atomically` does, unless there is one already, and say whether this was done.

    Of several processes that do so at once one is the first, and the file stays as that one wrote it; see `claim`. Raises `OSError`
    and leaves nothing half-written.
    """
    with _written(path.parent, content) as name:
        return claim(Path(name), path)


def claim(file: Path, path: Path) -> bool:
    """Move a file to a path, unless something is there already, and say whether this was done. Raises `OSError`.

    On a file system without hard links, what appears there at the same moment is replaced.
    """
    try:
        os.link(file, path)
    except OSError:  # of many kinds where there are no hard links
        if os.path.lexists(path):
            return False
        os.replace(file, path)
    file.unlink(missing_ok=True)
    return True


def remove_abandoned(folder: Path) -> None:
    """Delete what writers that were killed left in a folder, once it is a day old: a living one takes seconds.

    Ages are by the clock of the folder's file system. Where that is this machine's, to set it by a day or more while a file is
    being written may delete that, and its writer ends with an error.
    """
    with contextlib.suppress(OSError):  # another process may be removing it
        found = [path for path in folder.iterdir() if path.name.startswith(TEMPORARY[0]) and path.name.endswith(TEMPORARY[1])]
        if found:
            with tempfile.TemporaryFile(dir=folder) as file:
                now = os.fstat(file.fileno()).st_mtime
            for path in found:
                if abs(now - path.stat().st_mtime) > _DAY:
                    path.unlink()


@contextlib.contextmanager
def _written(folder: Path, content: str | bytes) -> Iterator[str]:
    """A temporary file with that content, on the disk, to be given its name; after the block the name is on the disk, too."""
    made = [new for new in (folder, *folder.parents) if not new.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=TEMPORARY[0], suffix=TEMPORARY[1])
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's files are for their owner alone
        yield name
    finally:
        Path(name).unlink(missing_ok=True)
    for changed in (folder, *(new.parent for new in made)):
        _sync(changed)


def _sync(folder: Path) -> None:
    """Put a folder's names on the disk, where the system can: a name that a loss of power undoes would cost what bears it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
