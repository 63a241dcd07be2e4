"""The command line as a person uses it."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest

import synthetic
from gelu_study import cli, datasets, statistics, training
from gelu_study.errors import DataError
from gelu_study.ledger import Ledger

SMOKE = ["run", "mnist-classifier", "--scale", "smoke", "--device", "cpu"]


def run(capsys, *arguments):
    status = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    assert cli.main([*SMOKE, "--ledger", str(folder)]) == 0
    return folder


def test_records_as_csv(capsys, trained):
    status, out, _ = run(capsys, "records", "--ledger", trained)
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = "key experiment dataset activation seed learning_rate keep_probability epochs status train_loss validation_loss "
    expected += "validation_error test_loss test_error device precision"
    assert status == 0 and len(rows) == 12 and set(expected.split()) <= set(rows[0])
    record = Ledger(trained).get(rows[0]["key"])
    assert float(rows[0]["test_error"]) == record.final["test_error"]
    assert rows[0]["dataset"] == "digits" and rows[0]["device"] == "cpu"


def test_records_as_json_and_filtered(capsys, trained):
    assert len(json.loads(run(capsys, "records", "--ledger", trained, "--format", "json")[1])) == 12
    assert json.loads(run(capsys, "records", "--ledger", trained, "--format", "json", "--experiment", "other")[1]) == []


def test_status(capsys, trained):
    _, out, _ = run(capsys, "status", "--ledger", trained)
    assert re.search(r"mnist-classifier +smoke +12 +12 +0 +0", out) and re.search(r"paper +90 +0 +0 +90", out)
    rows = json.loads(run(capsys, "status", "--ledger", trained, "--format", "json")[1])
    assert {row["scale"]: row["missing"] for row in rows if row["experiment"] == "mnist-classifier"}["smoke"] == 0


def test_status_names_what_no_plan_asks_for_and_what_is_damaged(capsys, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs")
    assert cli.main([*SMOKE, "--seeds", "7", "--ledger", str(tmp_path / "runs")]) == 0
    cut = next((tmp_path / "runs").glob("*/*.json"))
    cut.write_text(cut.read_text()[:-9])
    for _ in range(2):  # also when the warning was seen long ago
        _, out, _ = run(capsys, "status", "--ledger", tmp_path / "runs")
    assert re.search(r"beyond every plan +0 +[56] +0 +0  of other seeds", out)
    assert f"1 damaged in {tmp_path / 'runs' / 'damaged'}: restore them with git, or delete them" in out


def test_verdicts_as_csv_json_and_text(capsys, trained, monkeypatch):
    monkeypatch.setattr(statistics, "_RESAMPLES", 499)
    status, out, err = run(capsys, "verdicts", "--ledger", trained, "--format", "csv")
    assert status == 0 and not err and out.splitlines()[0] == "claim,published,measured,low,high,n,verdict"
    rows = list(csv.DictReader(io.StringIO(out)))
    classifier, sigmoid = rows[0], next(row for row in rows if row["claim"] == "Sigmoid and Gaussian")
    assert len(rows) == 17 and all(len(row) == 7 for row in rows)
    assert classifier["verdict"] == "not run" and classifier["n"] == "0"  # the smoke runs say nothing about the paper
    assert [classifier[name] for name in ("measured", "low", "high")] == [""] * 3 and float(classifier["published"]) < 1
    assert sigmoid["n"] == "" and float(sigmoid["measured"]) == pytest.approx(0.1174, abs=1e-4)
    found = json.loads(run(capsys, "verdicts", "--ledger", trained, "--format", "json")[1])
    assert [row["claim"] for row in found] == [row["claim"] for row in rows]
    assert found[0]["measured"] is None and len(found[0]["comparisons"]) == 4
    text = run(capsys, "verdicts", "--ledger", trained)[1]
    assert len(text.split("\n\n")[0].splitlines()) == 18 and re.search(r"CIFAR-10, shallow network +0.967 +- +0  not run", text)


def test_run_says_what_there_is(capsys, trained):
    status, out, err = run(capsys, *SMOKE, "--ledger", trained)
    assert status == 0 and "12 runs" in out and "runs," not in err  # nothing was left to train


def test_a_time_limit_says_what_is_missing(capsys, tmp_path):
    status, out, _ = run(capsys, *SMOKE, "--ledger", tmp_path, "--time-limit", 1e-6)
    assert status == 0 and "0 runs" in out and "time was up; 12 runs are missing" in out
    for bad in ("0", "-3", "inf", "nan", "soon"):
        with pytest.raises(SystemExit) as stopped:
            run(capsys, *SMOKE, "--time-limit", bad)
        assert stopped.value.code == 2 and "give a number of seconds" in capsys.readouterr().err


def test_verify_agrees_and_differs(capsys, trained, tmp_path):
    before = {path: path.read_bytes() for path in trained.glob("*/*.json")}
    status, out, _ = run(capsys, "verify", "--ledger", trained, "--sample", 3, "--sample-seed", 1, "--device", "cpu")
    assert status == 0 and len(out.splitlines()) == 4 and "DIFFERS" not in out
    assert out.splitlines()[-1].startswith("3 runs trained again: ")
    assert {path: path.read_bytes() for path in trained.glob("*/*.json")} == before
    record = Ledger(trained).read()[0]
    book = Ledger(tmp_path / "forged")
    book.write(record)
    path = book.path(record.config.key)
    first = record.curves["train_loss_epoch"][0]
    path.write_text(synthetic.resealed(path.read_text().replace(f"{first!r}", f"{first * 1.1!r}")))
    status, out, _ = run(capsys, "verify", "--ledger", book.folder, "--device", "cpu")
    assert status == 1 and out.startswith("DIFFERS")


def test_verify_of_nothing(capsys, tmp_path):
    status, _, err = run(capsys, "verify", "--ledger", tmp_path)
    assert status == 2 and "holds no record of engine" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "mnist-classifer"], "unknown experiment 'mnist-classifer'; known are mnist-classifier"),
        ([*SMOKE[:3], "huge"], "unknown scale 'huge'"),
        ([*SMOKE, "--activations", "gelu,swish"], "unknown activation 'swish'; known are"),
        ([*SMOKE, "--learning-rates", "-1"], "learning_rate is -1"),
        ([*SMOKE, "--keep-probabilities", "1.5"], r"keep_probability is 1.5; it must lie in \(0, 1\]"),
        (["run", "mnist-classifier", "--device", "cuda:97"], "CUDA devices; use cpu or auto"),
        (["data", "imagenet"], "unknown data set imagenet; known are mnist"),
        (["data", "digits", "mnist", "--from", "no-such-folder"], "no-such-folder"),
        (["notebook", "no-such-notebook"], "no-such-notebook"),
    ],
)
def test_errors_speak_and_nothing_is_loaded(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.setattr(datasets, "load", lambda *_: pytest.fail("data were loaded"))
    extra = ["--ledger", tmp_path / "runs"] if arguments[0] == "run" else []
    extra += ["--data-root", tmp_path / "raw"] if arguments[0] == "data" else []
    status, _, err = run(capsys, *arguments, *extra)
    assert status == 2 and re.search(message, err) and err.startswith("gelu-study: ") and "Traceback" not in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [[], ["train"], [*SMOKE, "--seeds", "4-0"], [*SMOKE, "--seeds", "a"], [*SMOKE, "--stack", "0"], ["records", "--format", "xml"],
     [*SMOKE, "--learning-rates", "fast"], ["verify", "--sample", "-1"], ["notebook", "x", "-p", "scale"]],
)  # fmt: skip
def test_malformed_options_exit_with_usage(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2 and "usage: gelu-study" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["", "data", "run", "status", "records", "verdicts", "verify", "bench", "measure", "notebook", "book", "readme", "quick"]
)
def test_help_names_units_and_defaults(capsys, command):
    with pytest.raises(SystemExit) as stop:
        cli.main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and ("default" in out or command in ("", "notebook", "readme"))


def test_quick_without_mnist_says_so_in_the_terminal_and_on_its_page(capsys, monkeypatch, tmp_path):
    def unreachable(name, *_):
        raise DataError(f"could not download {name}: there is no network")

    monkeypatch.setattr(datasets, "fetch", unreachable)
    folders = ["--ledger", tmp_path / "runs", "--data-root", tmp_path / "raw", "--output", tmp_path / "page"]
    status, out, err = run(capsys, "quick", "--seeds", "0", "--device", "cpu", *folders)
    assert status == 0 and "there is no network" in err and "trains on `digits`" in err
    assert {record.config.dataset for record in Ledger(tmp_path / "runs").read()} == {"digits"}
    page = Path(out.split(": ")[-1].strip())
    assert page.parent == tmp_path / "page" and "Not MNIST." in page.read_text(encoding="utf-8")


def test_seed_lists():
    assert cli.seeds("0-3,7, 9") == [0, 1, 2, 3, 7, 9] and cli.seeds("0 1") == [0, 1]


def test_interrupted(capsys, monkeypatch, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupt)
    status, _, err = run(capsys, *SMOKE, "--ledger", tmp_path)
    assert status == 130 and "goes on from there" in err


def test_damage_is_said_in_one_line(capsys, trained, tmp_path):
    record = Ledger(trained).read()[0]
    book = Ledger(tmp_path)
    book.write(record)
    book.path(record.config.key).write_text("{")
    status, out, err = run(capsys, "records", "--ledger", tmp_path)
    assert status == 0 and len(out.splitlines()) == 1
    assert len(err.splitlines()) == 1 and err.startswith("gelu-study: warning: ") and "is damaged" in err


def test_verify_sees_a_forged_end(capsys, trained, tmp_path):
    """What a verdict is made from cannot be changed: alone it contradicts its curve, with its curve the run itself."""
    record = next(record for record in Ledger(trained).read() if record.config.activation == "relu")
    book = Ledger(tmp_path)
    book.write(record)
    path = book.path(record.config.key)
    text = path.read_text()
    final = record.final["train_loss"]
    path.write_text(synthetic.resealed(text.replace(f'"train_loss": {final!r}', f'"train_loss": {final / 100!r}')))
    status, _, err = run(capsys, "verify", "--ledger", tmp_path, "--device", "cpu")
    assert status == 2 and "train_loss in final is not that of its curve" in err
    path.write_text(synthetic.resealed(text.replace(f"{final!r}", f"{final / 100!r}")))
    status, out, _ = run(capsys, "verify", "--ledger", tmp_path, "--device", "cpu")
    assert status == 1 and out.startswith("DIFFERS")


def test_a_ledger_that_cannot_be_written_is_named_before_anything_is_trained(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets, "load", lambda *_: pytest.fail("data were loaded"))
    (tmp_path / "file").write_text("")
    status, _, err = run(capsys, *SMOKE, "--ledger", tmp_path / "file" / "runs")
    assert status == 2 and "cannot be written" in err


def test_empty_lists_are_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main([*SMOKE, "--activations", ","])
    assert "the list is empty" in capsys.readouterr().err
