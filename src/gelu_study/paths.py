"""Where things lie in a checkout of the project."""

from __future__ import annotations

import os
from pathlib import Path

_ABOVE = Path(__file__).resolve().parents[2]
ROOT = _ABOVE if (_ABOVE / "pyproject.toml").is_file() else Path.cwd()
"""The checkout; the current folder when the package is installed without one."""
LEDGER = ROOT / "data" / "runs"
RAW = Path(os.environ.get("GELU_STUDY_DATA") or ROOT / "data" / "raw")
CHECKPOINTS = ROOT / "build" / "checkpoints"
MEASUREMENTS = ROOT / "data" / "measurements"
PAPER = ROOT / "data" / "paper"
NOTEBOOKS = ROOT / "notebooks"
BOOK = ROOT / "book"
