"""A record trained again is told from one that was tampered with."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

import synthetic
from gelu_study import datasets, protocols, training, verification
from gelu_study.errors import DataError
from gelu_study.ledger import Ledger
from gelu_study.runs import RunRecord


@pytest.fixture(scope="module")
def record() -> RunRecord:
    config = protocols.plan("mnist-classifier", "smoke", activations=["gelu_tanh"], learning_rates=[1e-3], keep_probabilities=[1.0], seeds=[0])[0]
    return training.train([config], datasets.load("digits"), torch.device("cpu"))[0]


def changed(record: RunRecord, name: str, factor: float, last: int | None = None) -> RunRecord:
    """The record with a curve multiplied: all of it, or its last values."""
    curves = copy.deepcopy(record.curves)
    start = 0 if last is None else len(curves[name]) - last
    curves[name][start:] = [factor * value for value in curves[name][start:]]
    return replace(record, curves=curves)


def test_the_same_run_is_identical(record):
    again = training.train([record.config], datasets.load("digits"), torch.device("cpu"))[0]
    compared = verification.compare(record, again)
    assert (compared.identical, compared.agrees, compared.early, compared.final_loss) == (True, True, 0, 0)
    assert "identical" in str(compared)


@pytest.mark.parametrize(
    ("name", "factor", "last", "agrees"),
    [
        ("train_loss_epoch", 1.02, None, True),
        ("train_loss_epoch", 1.04, None, False),  # the first epoch is held to 3 %
        ("train_loss_epoch", 1.5, 1, True),  # the end is not
        ("train_loss_epoch", 1.7, 1, False),
        ("validation_loss", 1.09, None, True),
        ("validation_loss", 1.7, None, False),
        ("test_error", 1.2, None, True),
        ("test_error", 1.3, None, False),
    ],
)
def test_tolerances(record, name, factor, last, agrees):
    other = changed(record, name, factor, last)
    compared = verification.compare(other, record)
    assert not compared.identical
    assert compared.agrees == agrees, str(compared)


def test_an_autoencoder_has_no_errors_to_compare():
    config = protocols.plan("mnist-autoencoder", "smoke", activations=["relu"], learning_rates=[1e-3], seeds=[0])[0]
    data = datasets.load("digits")
    record, again = (training.train([config], data, torch.device("cpu"))[0] for _ in range(2))
    compared = verification.compare(record, again)
    assert compared.identical and compared.agrees and compared.final_error == 0
    assert not verification.compare(changed(record, "test_loss", 1.7), record).agrees


def test_divergence_must_happen_in_the_same_epoch(record):
    def diverged(epoch: int) -> RunRecord:
        return replace(record, status="diverged", diverged={"step": 5 * epoch, "epoch": epoch}, curves={}, final={}, best={})

    assert verification.compare(diverged(1), diverged(1)).agrees
    assert not verification.compare(diverged(1), diverged(2)).agrees
    assert not verification.compare(diverged(1), record).agrees
    assert "DIFFERS" in str(verification.compare(record, diverged(1)))


def test_absent_data_are_said_before_anything_is_trained(tmp_path, record, monkeypatch):
    book = Ledger(tmp_path / "ledger")
    book.write(record)
    book.write(synthetic.diverged(protocols.plan("cifar10-fast", "quick", seeds=[0])[0], epoch=1))
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("a run was trained"))
    with pytest.raises(DataError, match="cifar10 is not in"):
        verification.verify(book.folder, sample=2, device="cpu", data_root=tmp_path)
