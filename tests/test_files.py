"""Files appear whole or not at all."""

from __future__ import annotations

import os

import pytest

from gelu_study.files import create_atomically, write_atomically


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


def test_a_file_that_is_there_stays(tmp_path):
    path = tmp_path / "new" / "file.txt"
    assert create_atomically(path, "first") and not create_atomically(path, b"second")
    assert path.read_text() == "first" and path.stat().st_mode & 0o777 == 0o644 and path.stat().st_nlink == 1
    link = tmp_path / "new" / "link.txt"
    link.symlink_to("nowhere")
    assert not create_atomically(link, "third")
    assert sorted(file.name for file in path.parent.iterdir()) == ["file.txt", "link.txt"]


@pytest.mark.parametrize("there", [True, False])
def test_where_there_are_no_hard_links_a_file_that_is_there_stays_too(tmp_path, monkeypatch, there):
    def unsupported(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    path = tmp_path / "file.txt"
    if there:
        write_atomically(path, "first")
    assert create_atomically(path, "second") is not there
    assert path.read_text() == ("first" if there else "second") and os.listdir(tmp_path) == ["file.txt"]
