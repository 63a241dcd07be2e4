"""The ledger: whole files or none, nothing damaged read, nothing deleted."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
import shutil
import warnings

import pytest

import synthetic
from gelu_study import ledger as ledger_module
from gelu_study import sweep
from gelu_study.errors import DamagedRecordWarning, LedgerError, LedgerWarning
from gelu_study.ledger import COLUMNS, Ledger, Snapshot, WithOwn, table


@pytest.fixture
def records(smoke):
    return [synthetic.diverged(config, epoch=2) for config in smoke]


def test_what_is_written_is_read(tmp_path, records):
    book = Ledger(tmp_path / "runs")
    assert book.read() == []
    for record in records:
        assert book.write(record) == record
        assert (tmp_path / "runs" / record.config.key[:2] / f"{record.config.key}.json").is_file()
    assert book.read() == sorted(records, key=lambda r: r.config.key)
    assert book.get(records[3].config.key) == records[3]
    assert book.get("0" * 64) is None


def test_the_first_record_of_a_run_stays(tmp_path, records):
    book = Ledger(tmp_path)
    book.write(records[0])
    before = book.path(records[0].config.key).read_bytes()
    assert book.write(synthetic.diverged(records[0].config, epoch=1)) == records[0]
    assert book.get(records[0].config.key) == records[0]
    assert book.path(records[0].config.key).read_bytes() == before


def test_older_records_are_read_and_stay_as_they_are(tmp_path, records):
    """Those from before the checksum, as data/runs has them."""
    book = Ledger(tmp_path)
    book.write(records[0])
    path = book.path(records[0].config.key)
    text = path.read_text()
    older = text[: text.rindex(',\n"sha256"')] + "\n}\n"
    path.write_text(older)
    assert book.read() == [records[0]] and book.write(records[0]) == records[0]
    assert path.read_text() == older


DAMAGE = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "changed configuration": lambda text: text.replace('"epochs": 2', '"epochs": 3'),
    "NaN": lambda text: text.replace('"final": {}', '"final": {"train_loss": NaN}'),
    "no schema": lambda text: text.replace('"schema": 1', '"schema": null'),
    "changed curve": lambda text: text.replace("1.0", "1.1", 1),
    "changed environment": lambda text: text.replace('"cpu"', '"gpu"'),
    "changed checksum": lambda text: text[:-5] + ("0" if text[-5] != "0" else "1") + text[-4:],
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
    book.write(records[0])
    other = book.path(records[1].config.key)
    other.parent.mkdir(exist_ok=True)
    os.replace(book.path(records[0].config.key), other)
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


def newer_schema(text: str) -> str:
    return text.replace('"schema": 1', '"schema": 7').replace('"final"', '"end"')


def newer_configuration(text: str) -> str:
    """With a field more, and another key."""
    entries = json.loads(text)
    entries["config"]["sparsity"] = 0.5
    canonical = json.dumps(entries["config"], sort_keys=True, separators=(",", ":"))
    return json.dumps({**entries, "key": hashlib.sha256(canonical.encode()).hexdigest()})


@pytest.mark.parametrize("newer", [newer_schema, newer_configuration])
def test_records_of_a_newer_version_stay_where_they_are(tmp_path, records, newer):
    book = Ledger(tmp_path)
    kept = {}
    for record in records[:3]:
        text = newer(record.to_json())
        path = book.path(json.loads(text)["key"])
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        kept[path] = text
    book.write(records[3])
    with pytest.warns(LedgerWarning) as said:
        assert book.read() == [records[3]]
    assert len(said) == 1 and len(str(said[0].message).splitlines()) == 1
    assert re.search(r"^3 of the records .*, for instance .*update the package", str(said[0].message))
    for path in kept:
        with pytest.raises(LedgerError, match=r"newer version.*Update the package"):
            book.get(path.stem)
    if newer is newer_schema:
        with pytest.raises(LedgerError, match="Update the package"):
            sweep.complete([record.config for record in records[:4]], book, device="cpu")
    assert {path: path.read_text() for path in kept} == kept and not (tmp_path / "damaged").exists()


def test_a_newer_configuration_whose_key_is_wrong_is_damaged(tmp_path, records):
    """Nothing says then that it is as it was written."""
    text = newer_configuration(records[0].to_json())
    key = json.loads(text)["key"]
    book = Ledger(tmp_path)
    for name, content in ((key, text.replace("0.5", "0.6")), ("0" * 64, text)):
        book.path(name).parent.mkdir(exist_ok=True)
        book.path(name).write_text(content)
    with pytest.warns(DamagedRecordWarning) as said:
        assert book.read() == []
    assert ["another run" in str(warning.message) for warning in said] == [True, False]


def test_records_of_another_engine_are_read(tmp_path, records):
    other = synthetic.diverged(dataclasses.replace(records[0].config, engine=99))
    book = Ledger(tmp_path)
    assert book.write(other) == other
    assert book.read() == [other]


def test_a_copy_in_another_folder_is_named_and_not_counted(tmp_path, records):
    book = Ledger(tmp_path)
    book.write(records[0])
    path = book.path(records[0].config.key)
    copy = tmp_path / ("00" if path.parent.name != "00" else "01") / path.name
    copy.parent.mkdir()
    shutil.copy(path, copy)
    with pytest.warns(
        LedgerWarning, match=rf"1 of the files .* for instance {copy}, whose name belongs in the folder {path.parent.name}"
    ) as said:
        assert book.read() == [records[0]]
    assert len(said) == 1 and copy.read_bytes() == path.read_bytes()


def test_a_copy_beside_its_record_is_set_aside(tmp_path, records):
    book = Ledger(tmp_path)
    book.write(records[0])
    path = book.path(records[0].config.key)
    shutil.copy(path, path.with_name(f"{path.stem} (copy).json"))
    with pytest.warns(DamagedRecordWarning, match=r"\(copy\).json is damaged: it holds the record of another run"):
        assert book.read() == [records[0]]


def as_folder(path):
    path.mkdir()
    (path / "inside").write_text("kept")


IN_THE_WAY = {
    "it is a folder": as_folder,
    "it is a link that leads to no file": lambda path: path.symlink_to("nowhere"),
    "it is a link that leads to no file ": lambda path: path.symlink_to(path),
    "not strict JSON": lambda path: path.touch(),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
@pytest.mark.parametrize("how", ["read", "get", "write"])
def test_what_is_no_file_is_set_aside_and_the_run_can_be_written(tmp_path, records, what, how):
    book, key = Ledger(tmp_path), records[0].config.key
    for count in (1, 2):  # the second one finds a namesake
        book.path(key).parent.mkdir(exist_ok=True)
        IN_THE_WAY[what](book.path(key))
        with pytest.warns(DamagedRecordWarning, match=what.strip()):
            assert {"read": book.read, "get": lambda: book.get(key) or [], "write": lambda: [book.write(records[0])]}[how]() in (
                [],
                [records[0]],
            )
        assert book.write(records[0]) == records[0]
        assert len(os.listdir(tmp_path / "damaged")) == count
        book.path(key).unlink()
    if what == "it is a folder":
        assert sorted(path.read_text() for path in (tmp_path / "damaged").rglob("inside")) == ["kept", "kept"]


def test_a_folder_of_records_that_is_none_is_named(tmp_path, records):
    book = Ledger(tmp_path)
    book.write(records[0])
    own = book.path(records[0].config.key).parent.name
    file, loop = [name for name in ("00", "01", "02") if name != own][:2]
    (tmp_path / file).write_text("")
    (tmp_path / loop).symlink_to(loop)
    with pytest.warns(LedgerWarning, match="is no folder") as said:
        assert book.read() == [records[0]]
    assert len(said) == 2
    with pytest.raises(LedgerError, match=f"{file} in it is no folder, and must be moved away"):
        book.prepare()


def test_where_nothing_can_be_set_aside_nothing_is_trained_and_nothing_lost(tmp_path, records):
    """A file has the name of the folder that damaged files are moved to."""
    (tmp_path / "damaged").write_text("a file")
    book, path = Ledger(tmp_path), Ledger(tmp_path).path(records[0].config.key)
    path.parent.mkdir()
    path.write_text("damaged")
    with pytest.warns(DamagedRecordWarning, match=r"could not be moved .*File exists.* and is ignored"):
        assert book.read() == []
    with pytest.raises(LedgerError, match="damaged in it is no folder, and must be moved away"):
        book.prepare()
    with (
        pytest.warns(DamagedRecordWarning),
        pytest.raises(LedgerError, match=f"{path.name}, which is none, is there; move it away"),
    ):
        book.write(records[0])
    assert path.read_text() == "damaged"


def test_a_sound_record_that_appears_while_another_is_set_aside_is_put_back(tmp_path, records, monkeypatch):
    """Another process sets the damaged file aside, and a third one writes the run, after we read and before we move."""
    book, key = Ledger(tmp_path), records[0].config.key
    book.path(key).parent.mkdir()
    book.path(key).write_text("damaged")
    move, written = ledger_module._moved, []

    def late(path, folder):
        if not written:
            move(path, folder)
            written.append(book.write(records[0]))
        return move(path, folder)

    monkeypatch.setattr(ledger_module, "_moved", late)
    assert book.get(key) == records[0]
    assert written == [records[0]] and book.read() == [records[0]]
    assert [path.read_text() for path in (tmp_path / "damaged").iterdir()] == ["damaged"]


def test_a_damaged_file_that_another_process_sets_aside_first_is_missing(tmp_path, records, monkeypatch):
    book, path = Ledger(tmp_path), Ledger(tmp_path).path(records[0].config.key)
    path.parent.mkdir()
    path.write_text("damaged")
    replace = os.replace

    def late(source, target):
        os.unlink(source)
        replace(source, target)

    monkeypatch.setattr(ledger_module.os, "replace", late)
    assert book.get(path.stem) is None
    assert os.listdir(tmp_path / "damaged") == []


def test_what_killed_writers_left_goes_after_a_day_and_is_never_read(tmp_path, records):
    book = Ledger(tmp_path)
    book.write(records[0])
    folder = book.path(records[0].config.key).parent
    ages = {".a.tmp": 100_000, ".b.tmp": 1000, ".c.tmp": -1000, ".d.tmp": -100_000, ".e": 100_000, "f.tmp": 100_000}
    for name, age in ages.items():
        (folder / name).write_text(records[0].to_json())
        written = (folder / name).stat().st_mtime
        os.utime(folder / name, (written - age, written - age))
    assert book.read() == [records[0]]
    book.prepare()
    assert sorted(os.listdir(folder)) == [".b.tmp", ".c.tmp", ".e", f"{records[0].config.key}.json", "f.tmp"]
    assert book.read() == [records[0]]


def test_without_hard_links_records_are_written_all_the_same(tmp_path, records, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(ledger_module.os, "link", unsupported)
    book = Ledger(tmp_path)
    assert book.write(records[0]) == records[0]
    assert book.write(synthetic.diverged(records[0].config, epoch=1)) == records[0]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [f"{records[0].config.key}.json"]


@pytest.mark.parametrize("stage", ["fsync", "link", "chmod"])
def test_a_write_that_fails_leaves_nothing(tmp_path, records, monkeypatch, stage):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ledger_module.os, stage, fail)
    monkeypatch.setattr(ledger_module.os, "replace", fail)  # what is tried where there are no links
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


def test_own_records_are_read_beside_the_project_s_which_are_never_written(tmp_path, records):
    project, both = Ledger(tmp_path / "project"), WithOwn(tmp_path / "own", tmp_path / "project")
    for record in records[:2]:
        project.write(record)
    before = {path: path.read_bytes() for path in project.folder.rglob("*.json")}
    assert both.own(both.read()) == 0 and not both.folder.exists()
    both.prepare()
    for record in records[1:4]:  # the first of them is the project's already
        assert both.write(synthetic.diverged(record.config, epoch=1)).config == record.config
    assert [path.stem for path in sorted(both.folder.rglob("*.json"))] == sorted(r.config.key for r in records[2:4])
    assert {path: path.read_bytes() for path in project.folder.rglob("*") if path.is_file()} == before
    assert [record.config.key for record in both.read()] == sorted(record.config.key for record in records[:4])
    assert both.own(both.read()) == 2
    assert both.get(records[1].config.key) == records[1] and both.get(records[4].config.key) is None


def test_a_run_that_both_have_is_the_project_s(tmp_path, records):
    Ledger(tmp_path / "own").write(synthetic.diverged(records[0].config, epoch=1))
    Ledger(tmp_path / "project").write(records[0])
    both = WithOwn(tmp_path / "own", tmp_path / "project")
    assert both.read() == [records[0]] and both.get(records[0].config.key) == records[0]
    assert both.own(both.read()) == 0


def test_table_has_a_row_a_run(records):
    frame = table(records)
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == len(records)
    assert frame["train_loss"].isna().all() and (frame["diverged_epoch"] == 2).all()
    assert table([]).empty and list(table([]).columns) == list(COLUMNS)


def test_a_folder_that_cannot_be_read_is_no_empty_ledger(tmp_path, monkeypatch, records):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    book = Ledger(tmp_path)
    book.write(records[0])
    monkeypatch.setattr("gelu_study.ledger.os.scandir", refuse)  # root may read any folder
    with pytest.raises(LedgerError, match="cannot be read: Permission denied"):
        Ledger(tmp_path)
    monkeypatch.setattr("gelu_study.ledger.os.listdir", refuse)
    with pytest.raises(LedgerError, match="cannot be read: Permission denied"):
        book.read()
    monkeypatch.undo()
    with pytest.raises(LedgerError, match="cannot be read"):
        Ledger(tmp_path / ("a" * 300))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(LedgerError, match="cannot be read: Too many levels of symbolic links"):
        Ledger(tmp_path / "loop")
    (tmp_path / "nowhere").symlink_to("nothing")
    with pytest.raises(LedgerError, match="is not a folder"):
        Ledger(tmp_path / "nowhere")


def test_a_folder_may_be_named_from_one_s_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Ledger("~/mine").folder == tmp_path / "mine"
    assert Ledger(tmp_path / "~").folder == tmp_path / "~"
