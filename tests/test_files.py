"""Files appear whole or not at all."""

from __future__ import annotations

import os

import pytest

from gelu_study.files import write_atomically


def test_what_is_written_is_there_and_others_may_read_it(tmp_path):
    path = tmp_path / "new" / "a file.txt"
    write_atomically(path, "x Φ(x)")
    assert path.read_text(encoding="utf-8") == "x Φ(x)"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("stage", ["fsync", "chmod", "replace"])
def test_a_failure_leaves_the_old_file_alone(tmp_path, monkeypatch, stage):
    path = tmp_path / "file.txt"
    write_atomically(path, "old")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, stage, fails)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert [file.name for file in tmp_path.iterdir()] == ["file.txt"]
    assert path.read_text() == "old"
