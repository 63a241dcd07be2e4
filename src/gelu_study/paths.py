"""Where things lie in a checkout of the project."""

from __future__ import annotations

import os
from pathlib import Path

_ABOVE = Path(__file__).resolve().parents[2]
ROOT = _ABOVE if (_ABOVE / "pyproject.toml").is_file() else Path.cwd()
"""The checkout; the current folder when the package is installed without one."""
LEDGER = ROOT / "data" / "runs"
OWN = Path(os.environ.get("GELU_STUDY_OWN") or ROOT / "data" / "own")
"""Records of one's own, of notebooks that were run by hand: read beside the project's, ignored by Git."""
RAW = Path(os.environ.get("GELU_STUDY_DATA") or ROOT / "data" / "raw")
CHECKPOINTS = ROOT / "build" / "checkpoints"
MEASUREMENTS = ROOT / "data" / "measurements"
PAPER = ROOT / "data" / "paper"
NOTEBOOKS = ROOT / "notebooks"
BOOK = ROOT / "book"


def shown(path: Path) -> str:
    """A path for people: as it is named within the checkout, else as it is."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
