"""A record trained again is told from one that was tampered with, and the same bits are asked for where they are promised."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import synthetic
from gelu_study import cli, datasets, protocols, training, verification
from gelu_study.errors import DataError
from gelu_study.ledger import Ledger
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.verification import DIFFERS, SAME_BITS, WITHIN

HERE = {"device": "cpu", "device_name": "Abacus", "host": "Linux x86_64", "threads": 1, "stack": 15, "torch": "2.9", "numpy": "2.4"}


def trained(configs: list[RunConfig]) -> list[RunRecord]:
    """Records as committed code makes them: whoever changes the code runs these tests too."""
    records = training.train(configs, datasets.load("digits"), torch.device("cpu"))
    return [replace(record, environment={**record.environment, "dirty": False}) for record in records]


def configs(seeds: int) -> list[RunConfig]:
    one = {"learning_rates": [1e-3], "keep_probabilities": [1.0], "seeds": range(seeds)}
    return protocols.plan("mnist-classifier", "smoke", activations=["gelu_tanh"], **one)


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return trained(configs(1))[0]


@pytest.fixture(scope="module")
def stack() -> list[RunRecord]:
    return trained(configs(4))


def kept(folder, records: list[RunRecord]) -> Ledger:
    book = Ledger(folder)
    for record in records:
        book.write(record)
    return book


def changed(record: RunRecord, name: str, factor: float, last: int | None = None) -> RunRecord:
    """The record with a curve multiplied: all of it, or its last values."""
    curves = copy.deepcopy(record.curves)
    start = 0 if last is None else len(curves[name]) - last
    curves[name][start:] = [factor * value for value in curves[name][start:]]
    return replace(record, curves=curves)


def retouched(record: RunRecord) -> RunRecord:
    """The record with a first epoch that is a little better: within the tolerance, and consistent with all else it says."""
    curves = copy.deepcopy(record.curves)
    curves["train_loss_epoch"][0] *= 0.999
    return replace(record, curves=curves)


def test_the_same_run_is_identical_as_promised(record):
    compared = verification.compare(record, trained([record.config])[0])
    assert (compared.identical, compared.within, compared.early, compared.final_loss) == (True, True, 0, 0)
    assert compared.promised and compared.verdict == SAME_BITS and compared.key == record.config.key
    assert str(compared).startswith("identical to the bit ") and "as promised, on the same machine in the same way" in str(compared)


@pytest.mark.parametrize(
    ("name", "factor", "last", "within"),
    [
        ("train_loss_epoch", 1.02, None, True),
        ("train_loss_epoch", 1.04, None, False),  # the first epoch is held to 3 %
        ("train_loss_epoch", 1.5, 1, True),  # the end is not
        ("train_loss_epoch", 1.7, 1, False),
        ("validation_loss", 1.09, None, True),
        ("validation_loss", 1.7, None, False),
        ("test_error", 1.2, None, True),
        ("test_error", 1.35, None, False),
    ],
)
def test_tolerances(record, name, factor, last, within):
    other = changed(record, name, factor, last)
    compared = verification.compare(replace(other, environment={**record.environment, "threads": 97}), record)
    assert not compared.identical and not compared.promised
    assert compared.within == within, str(compared)
    assert compared.verdict == (WITHIN if within else DIFFERS)
    assert str(compared).startswith(compared.verdict) and "\n" not in str(compared)
    assert "recorded with 97 threads, trained again with" in str(compared)


def test_where_the_bits_are_promised_the_tolerance_does_not_excuse(record):
    compared = verification.compare(retouched(record), record)
    assert compared.within and compared.promised and compared.verdict == DIFFERS
    assert "the same bits were promised, since machine, versions, threads, products and stack are the record's" in str(compared)


def test_more_than_promised_is_said(record):
    other = replace(record, environment={**record.environment, "torch": "1.0"})
    compared = verification.compare(other, record)
    assert compared.verdict == SAME_BITS and not compared.promised
    assert f"more than promised, recorded under PyTorch 1.0, trained again under PyTorch {torch.__version__}" in str(compared)


@pytest.mark.parametrize(
    ("recorded", "again", "same_stack", "said"),
    [
        ({}, {}, True, ""),
        ({"stack": 1}, {"stack": 1}, False, ""),
        ({}, {}, False, "recorded in a stack of 15, trained again in a stack of 15 with other runs"),
        (
            {},
            {"threads": 2, "stack": 3},
            False,
            "recorded with 1 thread in a stack of 15, trained again with 2 threads in a stack of 3",
        ),
        ({"torch": "2.8"}, {}, True, "recorded under PyTorch 2.8, trained again under PyTorch 2.9"),
        ({"numpy": "1.0"}, {}, True, "recorded with NumPy 1.0, trained again with NumPy 2.4"),
        (
            {"device_name": "Slide rule"},
            {},
            True,
            "recorded on Slide rule (cpu, Linux x86_64), trained again on Abacus (cpu, Linux x86_64)",
        ),
        (
            {"processor": "Frame A"},
            {"processor": "Frame B"},
            True,
            "recorded on a processor Frame A, trained again on a processor Frame B",
        ),
        ({}, {"processor": "Frame B"}, True, ""),  # an older record, which has its name alone
        ({"device": "cuda"}, {"device": "cuda"}, True, "the same bits are promised on a CPU, not on cuda"),
        ({"dirty": True}, {}, True, "the record was made by code with local changes"),
        (
            {"earlier": [{**HERE, "threads": 4}]},
            {},
            True,
            "recorded with 1 and 4 threads, trained again with 1 thread",
        ),
        ({"earlier": [HERE, HERE]}, {}, True, ""),
        ({"seconds": 3, "started": "then", "revision": "a", "cores": 64}, {}, True, ""),
    ],
)
def test_why_no_more_can_be_expected(recorded: dict[str, Any], again: dict[str, Any], same_stack: bool, said: str):
    assert verification.obstacles(HERE | recorded, HERE | again, same_stack) == said


def test_the_summary_counts(record):
    same = verification.compare(record, record)
    elsewhere = replace(record, environment={**record.environment, "threads": 97})
    near = verification.compare(changed(elsewhere, "train_loss_epoch", 1.01), record)
    far = verification.compare(changed(elsewhere, "train_loss_epoch", 2), record)
    assert verification.summary([same, near, far]) == (
        "3 runs trained again: 1 identical to the bit, 1 within tolerance, 1 beyond what is promised; "
        "the same bits were promised of 1 and seen of 1 of these"
    )
    assert verification.summary([near]).endswith(
        "1 run trained again: 0 identical to the bit, 1 within tolerance, 0 beyond what is promised; the same bits were promised of none"
    )
    assert verification.summary([same, verification.compare(retouched(record), record)]).endswith(
        "promised of 2 and seen of 1 of these"
    )


def test_an_autoencoder_has_no_errors_to_compare():
    config = protocols.plan("mnist-autoencoder", "smoke", activations=["relu"], learning_rates=[1e-3], seeds=[0])[0]
    record, again = (trained([config])[0] for _ in range(2))
    compared = verification.compare(record, again)
    assert compared.identical and compared.within and compared.final_error == 0
    assert not verification.compare(changed(record, "test_loss", 1.7), record).within


def test_a_convolutional_run_has_a_training_error_too():
    config = protocols.plan("cifar10-convnet", "smoke", activations=["relu"], seeds=[0])[0]
    record = synthetic.finished(config, lambda name, epochs: 40 / epochs if "error" in name else 1 / epochs)
    assert verification.compare(record, record).identical
    end = changed(record, "train_error_epoch", 1.1, 1)
    assert verification.compare(record, end).final_error == pytest.approx(2) and verification.compare(record, end).within
    assert not verification.compare(record, changed(record, "train_error_epoch", 1.4, 1)).within
    assert not verification.compare(record, changed(record, "test_error", 1.4, 1)).within


def test_divergence_must_happen_in_the_same_epoch(record):
    def diverged(epoch: int) -> RunRecord:
        return replace(record, status="diverged", diverged={"step": 5 * epoch, "epoch": epoch}, curves={}, final={}, best={})

    assert verification.compare(diverged(1), diverged(1)).within
    assert not verification.compare(diverged(1), diverged(2)).within
    assert not verification.compare(diverged(1), record).within
    assert "DIFFERS" in str(verification.compare(record, diverged(1)))


def test_a_part_of_a_stack_is_within_the_tolerance_and_a_whole_one_has_the_same_bits(stack, tmp_path):
    book = kept(tmp_path, stack)
    (part,) = verification.verify(book.folder, sample=1, device="cpu")
    assert part.verdict in (SAME_BITS, WITHIN) and part.obstacles == "recorded in a stack of 4, trained again in a stack of 1"
    whole = verification.verify(book.folder, sample=1, device="cpu", whole_stacks=True)
    assert {row.key for row in whole} == {record.config.key for record in stack}
    assert all(row.promised and row.identical for row in whole)
    everything = verification.verify(book.folder, sample=4, device="cpu")  # the whole stack by chance
    assert all(row.promised and row.identical for row in everything)


def test_a_stack_that_the_ledger_has_not_all_of_is_trained_in_parts(stack, tmp_path):
    rows = verification.verify(kept(tmp_path, stack[:3]).folder, sample=3, device="cpu", whole_stacks=True)
    assert len(rows) == 3 and all(row.obstacles == "recorded in a stack of 4, trained again in a stack of 3" for row in rows)


def test_the_companions_of_a_run_may_be_of_another_experiment(tmp_path):
    soi = protocols.plan("mnist-soi", "smoke", activations=["soi"], seeds=[0])
    records = trained([*soi, *configs(1)])
    rows = verification.verify(kept(tmp_path, records).folder, sample=1, experiment="mnist-soi", device="cpu", whole_stacks=True)
    assert len(rows) == 2 and all(row.promised and row.identical for row in rows)


def test_stacks_are_told_apart_and_each_trains_once(stack, record, tmp_path):
    """By their company, where two equal workers begin in one second and take equally long."""
    same = {name: stack[0].environment[name] for name in ("started", "seconds")}
    others = [replace(r, environment={**r.environment, **same}) for r in trained(configs(6)[4:])]
    companions = verification.companions_of(stack[0], [*stack, *others])
    assert companions == stack
    rows = verification.verify(kept(tmp_path, [*stack, *others]).folder, sample=6, device="cpu", whole_stacks=True)
    assert len(rows) == 6 and all(row.promised and row.identical for row in rows)


def test_a_run_trains_with_the_threads_of_its_record_where_there_are_cores(record, tmp_path, monkeypatch):
    monkeypatch.setattr(verification.os, "cpu_count", lambda: 3)
    before = torch.get_num_threads()
    three = replace(record, environment={**record.environment, "threads": 3})
    (row,) = verification.verify(kept(tmp_path / "three", [three]).folder, device="cpu")
    assert row.promised and torch.get_num_threads() == before
    many = replace(record, environment={**record.environment, "threads": 4})
    (row,) = verification.verify(kept(tmp_path / "many", [many]).folder, device="cpu")
    assert row.obstacles.startswith("recorded with 4 threads, trained again with ")


def test_a_retouched_record_is_caught_where_the_bits_are_promised(stack, tmp_path, capsys):
    book = kept(tmp_path, [*stack[:3], retouched(stack[3])])
    common = ["verify", "--ledger", str(book.folder), "--device", "cpu"]
    assert cli.main([*common, "--sample", "1", "--whole-stacks"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == ["4", "DIFFERS", *["identical"] * 3]
    assert lines[-1].startswith("4 runs trained again: 3 identical to the bit, 0 within tolerance, 1 beyond what is promised")
    alone = kept(tmp_path / "alone", [retouched(stack[3])])
    assert cli.main([*common[:2], str(alone.folder), *common[3:]]) == 0  # in another stack it is within the tolerance
    assert "within tolerance" in capsys.readouterr().out


def test_absent_data_are_said_before_anything_is_trained(tmp_path, record, monkeypatch):
    book = Ledger(tmp_path / "ledger")
    book.write(record)
    book.write(synthetic.diverged(protocols.plan("cifar10-fast", "quick", seeds=[0])[0], epoch=1))
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("a run was trained"))
    with pytest.raises(DataError, match="cifar10 is not in"):
        verification.verify(book.folder, sample=2, device="cpu", data_root=tmp_path)
