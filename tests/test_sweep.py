"""Sweeps: only what is missing, and an interruption that loses and repeats nothing."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

import synthetic
from gelu_study import datasets, paths, protocols, study, sweep, training
from gelu_study.checkpoints import Checkpoints
from gelu_study.errors import ConfigurationError
from gelu_study.ledger import Ledger


def results(records):
    return [(r.config.key, r.status, r.curves, r.final, r.best) for r in records]


@pytest.fixture
def counted(monkeypatch):
    """The keys of every run that is trained, in order."""
    keys: list[str] = []
    train = training.train

    def counting(configs, *arguments):
        records = train(configs, *arguments)
        keys.extend(config.key for config in configs)
        return records

    monkeypatch.setattr(training, "train", counting)
    return keys


def test_only_what_is_missing_is_trained(tmp_path, smoke, counted):
    book = Ledger(tmp_path)
    first = sweep.complete(smoke[:4], book, device="cpu", stream=io.StringIO())
    assert sorted(counted) == sorted(config.key for config in smoke[:4])
    every = sweep.complete(smoke, book, device="cpu", stream=io.StringIO())
    assert sorted(counted) == sorted(config.key for config in smoke)
    assert [record.config for record in every] == smoke
    assert every[:4] == first
    sweep.complete(smoke, book, device="cpu", stream=io.StringIO())
    assert len(counted) == len(smoke)


def test_an_interrupted_sweep_ends_like_an_uninterrupted_one(tmp_path, smoke, counted, monkeypatch):
    whole = sweep.complete(smoke, Ledger(tmp_path / "whole"), device="cpu", stack_size=4, stream=io.StringIO())
    counted.clear()
    counting, calls = training.train, 0

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return counting(*arguments)

    monkeypatch.setattr(training, "train", interrupted)
    book = Ledger(tmp_path / "broken")
    with pytest.raises(KeyboardInterrupt):
        sweep.complete(smoke, book, device="cpu", stack_size=4, stream=io.StringIO())
    assert len(book.read()) == 4
    again = sweep.complete(smoke, book, device="cpu", stack_size=4, stream=io.StringIO())
    assert sorted(counted) == sorted(config.key for config in smoke)  # nothing twice
    assert results(again) == results(whole)


def test_killed_in_the_middle_and_started_again(tmp_path, smoke):
    """`kill -9` of a real process: finished runs stay, the rest follows, no other file is left."""
    command = [
        sys.executable,
        "-m",
        "gelu_study",
        "run",
        "mnist-classifier",
        "--scale",
        "smoke",
        "--seeds",
        "0-19",
        "--device",
        "cpu",
    ]
    command += ["--stack", "6", "--ledger", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True)
    deadline = time.monotonic() + 600
    while len(list(tmp_path.glob("*/*.json"))) < 6 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json")}
    assert 6 <= len(before) < 120
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert f"{120 - len(before)}/{120 - len(before)} runs" in done.stderr
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*.json")}
    assert len(after) == 120 and all(after[path] == stamp for path, stamp in before.items())
    assert len(Ledger(tmp_path).read()) == 120


def test_stacks_hold_everything_once_and_evenly():
    plan = protocols.plan("mnist-classifier", "paper")
    smoke = protocols.plan("mnist-classifier", "smoke")
    groups = sweep.stacks([*plan, *smoke], 16)
    assert sorted(c.key for group in groups for c in group) == sorted(c.key for c in [*plan, *smoke])
    assert all(len({training.stacks.stack_shape(c) for c in group}) == 1 for group in groups)
    assert {len(group) for group in groups} == {15, 12}
    with pytest.raises(ConfigurationError, match="at least one"):
        sweep.stacks(plan, 0)


def test_plain_lines_where_the_output_is_no_terminal(tmp_path, smoke):
    said = io.StringIO()
    sweep.complete(smoke, Ledger(tmp_path), device="cpu", stack_size=6, stream=said)
    lines = said.getvalue().splitlines()
    assert len(lines) == 2 and lines[0].startswith("6/12 runs, ") and lines[1].startswith("12/12 runs, ")
    assert "steps/s" in lines[0] and "left" in lines[0] and "\r" not in said.getvalue()


def test_the_time_that_is_left_is_that_of_steps_taken_here(monkeypatch):
    """Neither a checkpoint's steps, counted at once, nor those that were lost make a sweep look faster or slower than it is."""
    said, now = io.StringIO(), [0.0]
    monkeypatch.setattr("gelu_study.sweep.reporter.time.monotonic", lambda: now[0])
    reporter = sweep.Reporter(3, 30_000, said)

    def train(seconds: int) -> None:  # 10 steps a second
        for _ in range(seconds):
            now[0] += 1
            reporter.advance(10)

    now[0] += 20  # data are read
    reporter.advance(8_000)  # a checkpoint's
    train(100)
    reporter.finish_runs(1)
    reporter.advance(9_000)  # and another's
    train(100)
    reporter.advance(-1_000)  # a worker's that is gone
    train(100)
    reporter.finish_runs(1)
    lines = said.getvalue().splitlines()
    assert len(lines) >= 9 and all(", 10 steps/s, " in line for line in lines)
    assert lines[0].startswith("0/3 runs") and lines[0].endswith("36 min left") and lines[-1].endswith("18 min left")


def test_a_slow_pace_is_not_said_to_be_none(monkeypatch):
    said, now = io.StringIO(), [0.0]
    monkeypatch.setattr("gelu_study.sweep.reporter.time.monotonic", lambda: now[0])
    reporter = sweep.Reporter(1, 3_600, said)
    for _ in range(20):
        now[0] += 4
        reporter.advance(1)
    assert said.getvalue().splitlines()[-1].startswith("0/1 runs, 0.25 steps/s, ")


def test_a_bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    said = Terminal()
    reporter = sweep.Reporter(3, 300, said)
    reporter.advance(150)
    reporter.finish_runs(2)
    reporter.close()
    assert "2/3 runs" in said.getvalue() and "50%" in said.getvalue()


def test_a_missing_device_is_said_before_data_are_read(tmp_path, smoke, monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda *_: pytest.fail("data were read"))
    with pytest.raises(ConfigurationError, match="CUDA"):
        sweep.complete(smoke, Ledger(tmp_path), device="cuda:97")


# --- plans ---


def test_the_papers_plan_is_ninety_runs():
    plan = protocols.plan("mnist-classifier", "paper")
    assert len(plan) == len({config.key for config in plan}) == 3 * 3 * 2 * 5
    first = plan[0]
    assert (first.train_examples, first.validation_examples, first.hidden, first.epochs) == (55_000, 5_000, (128,) * 8, 50)
    assert first.steps_per_epoch == 429
    assert {config.activation for config in plan} == {"gelu_tanh", "relu", "elu"}


def test_powered_adds_ninety_at_the_chosen_rates():
    paper = protocols.plan("mnist-classifier", "paper")
    chosen = {(name, keep): 1e-4 for name in ("gelu_tanh", "relu", "elu") for keep in (1.0, 0.5)}
    powered = protocols.plan("mnist-classifier", "powered", chosen=chosen)
    assert powered[:90] == paper and len(powered) == 180
    assert {(c.learning_rate, c.seed) for c in powered[90:]} == {(1e-4, seed) for seed in range(5, 20)}
    assert protocols.plan("mnist-classifier", "powered") == paper
    with pytest.raises(ConfigurationError, match="no learning rate was chosen for gelu_tanh"):
        protocols.plan("mnist-classifier", "powered", chosen={})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "huge"}, "unknown scale 'huge'; known are smoke, quick, paper, powered"), ({"experiment": "x"}, "known are mnist-classifier"),
        ({"seeds": []}, "seeds is empty"), ({"activations": ["gelu2"]}, "unknown activation"), ({"learning_rates": [0.0]}, "learning_rate is 0"),
        ({"keep_probabilities": [2.0]}, "keep_probability is 2"), ({"dataset": "cifar10"}, "runs on mnist"), ({"seeds": [-1]}, "seed is -1"),
    ],
)  # fmt: skip
def test_bad_plans_are_refused(options, message):
    arguments = {"experiment": "mnist-classifier", "scale": "paper", **options}
    with pytest.raises(ConfigurationError, match=message):
        protocols.plan(arguments.pop("experiment"), arguments.pop("scale"), **arguments)


def test_quick_on_digits_says_so_in_its_configuration():
    assert {c.dataset for c in protocols.plan("mnist-classifier", "quick", dataset="digits")} == {"digits"}
    assert {c.dataset for c in protocols.plan("mnist-classifier", "quick")} == {"mnist"}


def test_large_networks_share_a_stack_with_fewer():
    configs = protocols.plan("mnist-autoencoder", "paper", epochs=50)
    found = sweep.stacks(configs, sweep.CPU_STACK, weights=sweep.CPU_WEIGHTS)
    assert {len(stack) for stack in found} == {3} and {config.epochs for config in configs} == {50}
    for stack in found:  # the activations of a seed and learning rate train together
        assert len({(config.seed, config.learning_rate) for config in stack}) == 1
    assert {len(stack) for stack in sweep.stacks(configs, 15)} == {12}
    assert len(sweep.stacks(configs, sweep.CPU_STACK, weights=1)) == len(configs)


def test_checkpoints_go_when_their_runs_are_done_unless_kept(tmp_path, digits):
    configs = protocols.plan("mnist-autoencoder", "smoke", learning_rates=[1e-3], seeds=[0])
    kept = Checkpoints(tmp_path / "kept", keep=True)
    sweep.complete(configs, Ledger(tmp_path / "ledger"), device="cpu", checkpoints=kept)
    assert [kept.epoch(config) for config in configs] == [2, 2, 2]
    longer = protocols.plan("mnist-autoencoder", "smoke", learning_rates=[1e-3], seeds=[0], epochs=3)
    (first, *_) = sweep.complete(longer, Ledger(tmp_path / "ledger"), device="cpu", checkpoints=Checkpoints(kept.folder))
    assert first.environment["earlier"][0]["epochs"] == [1, 2] and not list(kept.folder.iterdir())
    straight = sweep.complete(longer, Ledger(tmp_path / "straight"), device="cpu")
    assert straight[0].curves == first.curves


def test_a_study_reads_without_training(tmp_path, smoke):
    found = study.run("mnist-classifier", "smoke", train=False, ledger=tmp_path)
    assert found.missing == len(smoke) == len(found.planned) and found.records == () and found.table.empty
    done = study.run("mnist-classifier", "smoke", seeds=[0], device="cpu", ledger=tmp_path)
    assert done.missing == 0 and len(done.table) == len(smoke) // 2
    rows = {row["scale"]: row for row in study.status(tmp_path) if row["experiment"] == "mnist-classifier"}
    assert rows["smoke"]["done"] == len(smoke) // 2 and rows["smoke"]["missing"] == len(smoke) // 2
    assert rows["powered"]["note"]


def test_where_no_ledger_is_given_new_records_are_one_s_own(tmp_path, smoke, counted, monkeypatch):
    monkeypatch.setattr(paths, "OWN", tmp_path / "own")
    monkeypatch.setattr(paths, "LEDGER", tmp_path / "project")
    sweep.complete(smoke[:4], Ledger(paths.LEDGER), device="cpu", stream=io.StringIO())
    counted.clear()
    found = study.run("mnist-classifier", "smoke", device="cpu")
    assert (len(found.records), found.missing, found.own) == (len(smoke), 0, len(smoke) - 4)
    assert sorted(counted) == sorted(config.key for config in smoke[4:])
    assert len(Ledger(paths.OWN).read()) == len(smoke) - 4 and len(Ledger(paths.LEDGER).read()) == 4
    only = study.run("mnist-classifier", "smoke", train=False, ledger=paths.LEDGER)
    assert (len(only.records), only.own) == (4, 0)
    assert {row["done"] for row in study.status() if (row["experiment"], row["scale"]) == ("mnist-classifier", "smoke")} == {4}


def test_what_another_sweep_has_trained_since_is_not_trained_again(tmp_path, smoke, counted, monkeypatch):
    book, counting = Ledger(tmp_path), training.train
    first, second = sweep.stacks(smoke, 6)
    other = sweep.complete(second, Ledger(tmp_path / "other"), device="cpu", stream=io.StringIO())
    counted.clear()

    def while_another_writes(*arguments):
        for record in other:
            book.write(record)
        return counting(*arguments)

    monkeypatch.setattr(training, "train", while_another_writes)
    said = io.StringIO()
    records = sweep.complete(smoke, book, device="cpu", stack_size=6, stream=said)
    assert len(records) == 12 and sorted(counted) == sorted(config.key for config in first)
    assert said.getvalue().splitlines()[-1].startswith("12/12 runs")


def test_status_names_runs_of_another_length(tmp_path):
    sweep.complete(
        protocols.plan("mnist-autoencoder", "smoke", learning_rates=[1e-3], seeds=[0], epochs=1), Ledger(tmp_path), device="cpu"
    )
    notes = {(row["experiment"], row["scale"]): (row["missing"], row["note"]) for row in study.status(tmp_path)}
    assert notes["mnist-autoencoder", "smoke"] == (12, "3 with 1 epochs instead of 2")
    assert [key for key, (_, note) in notes.items() if "instead" in note] == [("mnist-autoencoder", "smoke")]


@pytest.fixture(scope="module")
def pictures():
    return protocols.plan("cifar10-fast", "smoke", activations=["relu"])


def test_convolutional_runs_are_written_as_they_end(tmp_path, pictures, monkeypatch):
    """An interruption between two runs of one call loses neither."""
    train = training.train

    def interrupted(*arguments):
        records = iter(train(*arguments))
        yield next(records)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep.complete(pictures, Ledger(tmp_path), device="cpu", stack_size=2, stream=io.StringIO())
    assert [record.config for record in Ledger(tmp_path).read()] == [pictures[0]]


def test_a_deadline_ends_a_sweep_and_the_next_one_goes_on(tmp_path, pictures):
    whole = sweep.complete(pictures, Ledger(tmp_path / "whole"), device="cpu", stream=io.StringIO())
    book, checkpoints = Ledger(tmp_path / "slots"), Checkpoints(tmp_path / "checkpoints")
    over = training.Deadline(0.0)
    assert sweep.complete(pictures, book, device="cpu", checkpoints=checkpoints, deadline=over, stream=io.StringIO()) == []

    class AfterOneEpoch(training.Deadline):
        def before_another(self, seconds):
            return seconds > 0  # there is time to begin a run, and none for a second epoch

    said = io.StringIO()
    slot = AfterOneEpoch(0.0)
    assert sweep.complete(pictures, book, device="cpu", checkpoints=checkpoints, deadline=slot, stream=said) == []
    begun = [config for config in pictures if checkpoints.epoch(config)]
    assert [checkpoints.epoch(config) for config in begun] == [1] * len(begun) and begun
    last = sweep.complete(pictures, book, device="cpu", checkpoints=checkpoints, stream=io.StringIO())
    assert results(last) == results(whole) and not list((tmp_path / "checkpoints").iterdir())
    assert ["earlier" in record.environment for record in last] == [config in begun for config in pictures]


def test_dense_stacks_heed_a_deadline_too(tmp_path, smoke):
    class AfterOneEpoch(training.Deadline):
        def before_another(self, seconds):
            return seconds > 0

    book, checkpoints = Ledger(tmp_path / "slots"), Checkpoints(tmp_path / "checkpoints")
    runs = smoke[:4]
    assert sweep.complete(runs, book, device="cpu", checkpoints=checkpoints, deadline=AfterOneEpoch(0.0), stream=io.StringIO()) == []
    assert {checkpoints.epoch(config) for config in runs} == {1}
    last = sweep.complete(runs, book, device="cpu", checkpoints=checkpoints, stream=io.StringIO())
    assert results(last) == results(sweep.complete(runs, Ledger(tmp_path / "whole"), device="cpu", stream=io.StringIO()))


def test_stacks_of_convolutional_runs_are_single_on_a_cpu_and_begun_ones_come_first(tmp_path, pictures, monkeypatch):
    assert [len(stack) for stack in sweep.stacks(pictures, 15, weights=sweep.CPU_WEIGHTS)] == [1] * len(pictures)
    assert [len(stack) for stack in sweep.stacks(pictures, 60)] == [len(pictures)]
    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr(checkpoints, "epoch", lambda config: int(config == pictures[-1]))
    assert sweep.stacks(pictures, 15, weights=sweep.CPU_WEIGHTS, checkpoints=checkpoints)[0] == [pictures[-1]]


def test_runs_that_another_sweep_has_recorded_meanwhile_are_compared(tmp_path, smoke, monkeypatch):
    """The earlier record stays, and what is said of the duplicates is what they are."""
    book, real = Ledger(tmp_path), training.train
    identical, rounded, differing = other = sweep.complete(smoke[:3], Ledger(tmp_path / "other"), device="cpu", stream=io.StringIO())
    losses = [loss * (1 + 1e-6) for loss in rounded.curves["test_loss"]]
    curves = {**rounded.curves, "test_loss": losses}
    held = [
        identical,
        replace(rounded, curves=curves, final={**rounded.final, "test_loss": losses[-1]}, best={**rounded.best, "test_loss": losses[rounded.best["epoch"] - 1]}),
        synthetic.diverged(differing.config, epoch=1),
    ]

    def while_another_writes(*arguments):
        for record in held:
            book.write(record)
        return real(*arguments)

    monkeypatch.setattr(training, "train", while_another_writes)
    said = io.StringIO()
    records = sweep.complete([record.config for record in other], book, device="cpu", stream=said)
    assert records == held
    line = next(line for line in said.getvalue().splitlines() if "another sweep" in line)
    assert line.startswith("3 runs") and "1 identical to ours, 1 equal within the tolerance, one that DIFFERS" in line
    assert differing.config.key[:12] in line


def test_a_sweep_clears_away_what_killed_ones_left(tmp_path, smoke):
    left = [tmp_path / name / ".abandoned.tmp" for name in ("runs/00", "checkpoints")]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half a file")
        os.utime(path, (0, 0))
    sweep.complete(smoke[:1], Ledger(tmp_path / "runs"), device="cpu", checkpoints=Checkpoints(tmp_path / "checkpoints"), stream=io.StringIO())
    assert not any(path.exists() for path in left)
