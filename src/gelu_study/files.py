"""Writes files whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8), making its folder; the old content stays until the new one is on the disk.

    Raises `OSError` and leaves nothing half-written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp's files are for their owner alone
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
