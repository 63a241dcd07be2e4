"""The ledger: whole files or none, nothing damaged read, nothing deleted."""

from __future__ import annotations

import os
import warnings

import pytest

import synthetic
from gelu_study import ledger as ledger_module
from gelu_study.errors import DamagedRecordWarning, LedgerError
from gelu_study.ledger import COLUMNS, Ledger, Snapshot, table


@pytest.fixture
def records(smoke):
    return [synthetic.diverged(config, epoch=2) for config in smoke]


def test_what_is_written_is_read(tmp_path, records):
    book = Ledger(tmp_path / "runs")
    assert book.read() == []
    for record in records:
        path = book.write(record)
        assert path == tmp_path / "runs" / record.config.key[:2] / f"{record.config.key}.json"
    assert book.read() == sorted(records, key=lambda r: r.config.key)
    assert book.get(records[3].config.key) == records[3]
    assert book.get("0" * 64) is None


def test_the_first_record_of_a_run_stays(tmp_path, records):
    book = Ledger(tmp_path)
    book.write(records[0])
    book.write(synthetic.diverged(records[0].config, epoch=1))
    assert book.get(records[0].config.key) == records[0]


DAMAGE = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "changed configuration": lambda text: text.replace('"epochs": 2', '"epochs": 3'),
    "NaN": lambda text: text.replace('"final": {}', '"final": {"train_loss": NaN}'),
    "future schema": lambda text: text.replace('"schema": 1', '"schema": 7'),
    "another kind of JSON": lambda text: "[]",
    "not text": lambda text: "\udcff",
}


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_damage_is_named_and_set_aside(tmp_path, records, kind):
    book = Ledger(tmp_path)
    for record in records[:2]:
        book.write(record)
    path = book.path(records[0].config.key)
    damaged = DAMAGE[kind](path.read_text()).encode("utf-8", "surrogateescape")
    path.write_bytes(damaged)
    with pytest.warns(DamagedRecordWarning, match=records[0].config.key):
        assert book.read() == [records[1]]
    assert not path.exists()
    assert (tmp_path / "damaged" / path.name).read_bytes() == damaged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert book.read() == [records[1]]
    book.write(records[0])  # the run counts as missing and can be recorded again
    assert book.get(records[0].config.key) == records[0]


def test_a_record_under_another_runs_name_is_damaged(tmp_path, records):
    book = Ledger(tmp_path)
    path = book.write(records[0])
    other = book.path(records[1].config.key)
    other.parent.mkdir(exist_ok=True)
    os.replace(path, other)
    with pytest.warns(DamagedRecordWarning, match="another run"):
        assert book.get(records[1].config.key) is None


def test_damaged_twice_keeps_both(tmp_path, records):
    book = Ledger(tmp_path)
    for text in ("one", "two"):
        path = book.path(records[0].config.key)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        with pytest.warns(DamagedRecordWarning):
            book.read()
    assert sorted(file.read_text() for file in (tmp_path / "damaged").iterdir()) == ["one", "two"]


@pytest.mark.parametrize("stage", ["fsync", "replace", "chmod"])
def test_a_write_that_fails_leaves_nothing(tmp_path, records, monkeypatch, stage):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger_module.os, stage, fail)
    with pytest.raises(LedgerError, match=r"No space left on device.*start again"):
        Ledger(tmp_path).write(records[0])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_is_no_ledger(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(LedgerError, match="not a folder"):
        Ledger(tmp_path / "runs")


def test_a_snapshot_reads_each_file_once(tmp_path, records):
    book = Ledger(tmp_path)
    for record in records[:-1]:
        book.write(record)
    taken = Snapshot(tmp_path)
    book.write(records[-1])
    for record in records[:-1]:
        book.path(record.config.key).unlink()
    assert taken.read() == sorted(records[:-1], key=lambda record: record.config.key)
    assert [taken.get(record.config.key) for record in records] == [*records[:-1], None]


def test_table_has_a_row_a_run(records):
    frame = table(records)
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == len(records)
    assert frame["train_loss"].isna().all() and (frame["diverged_epoch"] == 2).all()
    assert table([]).empty and list(table([]).columns) == list(COLUMNS)


def test_a_folder_that_cannot_be_read_is_no_empty_ledger(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    Ledger(tmp_path)
    monkeypatch.setattr("gelu_study.ledger.os.scandir", refuse)  # root may read any folder
    with pytest.raises(LedgerError, match="cannot be read: Permission denied"):
        Ledger(tmp_path)
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger(tmp_path / ("a" * 300))
