"""oneDNN's matrix products: float32, or refused, and never without being asked for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from gelu_study import datasets, protocols, training, verification
from gelu_study.checkpoints import Checkpoints
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.sweep import worker
from gelu_study.training import products

HERE = products.available(products.ONEDNN)  # not on a processor with matrix units for bfloat16, nor on ARM


@pytest.fixture
def configs() -> list[RunConfig]:
    """Small ones; below some size PyTorch keeps products to itself."""
    smoke = protocols.plan("mnist-autoencoder", "smoke", activations=["gelu_tanh", "elu"], learning_rates=[1e-3], seeds=[0])
    return [replace(config, hidden=(200, 100, 30, 100, 200)) for config in smoke]


def trained(configs: list[RunConfig], **how) -> list[RunRecord]:
    return list(training.train(configs, datasets.load("digits"), torch.device("cpu"), **how))


def error_of_products() -> float:
    first, second = torch.randn(2, 300, 300).unbind()
    return float((first @ second - first.double() @ second.double()).abs().max() / first.norm(dim=1).max() / second.norm(dim=0).max())


def test_products_are_float32_or_refused():
    assert products.in_use() == products.DEFAULT
    if not HERE:
        with pytest.raises(ConfigurationError, match=r"rounds their factors|another library"), products.taken_by(products.ONEDNN):
            pass
    else:
        with products.taken_by(products.ONEDNN):
            assert products.in_use() == products.ONEDNN
            assert error_of_products() < 1e-6
    assert products.in_use() == products.DEFAULT


def test_a_library_that_rounds_is_refused_and_the_setting_goes_back(monkeypatch):
    monkeypatch.setattr(products, "_ROUNDED", 0.0)  # any error is too large
    monkeypatch.setattr(products.torch, "equal", lambda one, other: False)  # where nothing changes, too
    with pytest.raises(ConfigurationError, match="rounds their factors"), products.taken_by(products.ONEDNN):
        pass
    assert products.in_use() == products.DEFAULT


def test_a_processor_on_which_nothing_changes_is_refused(monkeypatch):
    monkeypatch.setattr(products.torch, "equal", lambda one, other: True)
    with pytest.raises(ConfigurationError, match="another library"), products.taken_by(products.ONEDNN):
        pass


@pytest.mark.parametrize("word", ["mkl", "oneDNN ", "0"])
def test_another_word_is_refused(configs, monkeypatch, word):
    monkeypatch.setenv(products.VARIABLE, word)
    with pytest.raises(ConfigurationError, match="use default or onednn"):
        trained(configs)
    assert not products.available(word)


def test_training_says_which_library_and_takes_none_that_was_set_beside_it(configs):
    usual = trained(configs)
    setting = torch.backends.mkldnn.matmul
    before = setting.fp32_precision
    try:
        setting.fp32_precision = "bf16"
        again = trained(configs)
        assert setting.fp32_precision == "bf16"
    finally:
        setting.fp32_precision = before
    assert [record.environment["products"] for record in usual + again] == ["default"] * 4
    assert [record.curves for record in usual] == [record.curves for record in again]


@pytest.mark.parametrize("how", ["variable", "argument"])
def test_runs_by_onednn_are_within_the_tolerance_and_resume_to_the_bit(configs, monkeypatch, tmp_path, how):
    if not HERE:
        with pytest.raises(ConfigurationError):
            trained(configs, library="onednn")
        return
    if how == "variable":
        monkeypatch.setenv(products.VARIABLE, "onednn")
    asked = {"library": "onednn"} if how == "argument" else {}
    usual, other = trained(configs, library="default"), trained(configs, **asked)
    for one, two in zip(usual, other, strict=True):
        compared = verification.compare(one, two, same_stack=True)
        assert two.environment["products"] == "onednn"
        assert compared.within and not compared.identical and not compared.promised
        assert "by the onednn library" in compared.obstacles
    kept = Checkpoints(tmp_path, every=0)

    def stop(steps: int) -> None:
        if any(tmp_path.iterdir()):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        trained(configs, checkpoints=kept, progress=stop, **asked)
    resumed = trained(configs, checkpoints=kept, **asked)
    assert [record.curves for record in resumed] == [record.curves for record in other]
    assert all("earlier" in record.environment for record in resumed)


def test_verification_takes_the_records_library(configs):
    library = products.ONEDNN if HERE else products.DEFAULT
    record = trained(configs[:1], library=library)[0]
    row = verification.again([record], [record], torch.device("cpu"))[0]
    assert row.identical
    elsewhere = replace(record, environment={**record.environment, "products": "a library of the future"})
    assert verification._way(elsewhere)[1] == products.DEFAULT


@pytest.mark.parametrize("there", [True, False])
def test_verification_asks_for_the_records_library_where_it_is_to_be_had(configs, monkeypatch, there):
    record = trained(configs[:1])[0]
    recorded = replace(record, environment={**record.environment, "products": "onednn"})
    asked: list[str] = []

    def train(configs, *about, library, **how):
        asked.append(library)
        return iter([recorded])

    monkeypatch.setattr(products, "available", lambda library: there)
    monkeypatch.setattr(verification.training, "train", train)
    verification.again([recorded], [recorded], torch.device("cpu"))
    assert asked == ["onednn" if there else "default"]


def test_a_worker_takes_the_clients_library_or_is_unfit(configs, monkeypatch):
    monkeypatch.setenv(products.VARIABLE, "onednn")
    asked = worker.question()
    monkeypatch.setenv(products.VARIABLE, "default")  # the worker's own counts for nothing
    monkeypatch.setattr(products, "available", lambda library: False)
    assert "products by onednn" in worker.fitness(asked, "cpu", [], None)["unfit"]
    monkeypatch.setattr(products, "available", lambda library: True)
    assert worker.fitness(asked, "cpu", [], None)["device_type"] == "cpu"
    given: list[str] = []
    monkeypatch.setattr(worker, "get_worker", lambda: SimpleNamespace(address="here", get_current_task=lambda: "task"))
    monkeypatch.setattr(worker.training, "train", lambda *arguments, library: given.append(library) or [])
    task = {"question": asked, "device": "cpu", "configs": [config.to_dict() for config in configs]}
    worker.train_stack({**task, "seconds_left": None, "data_root": None, "checkpoints": None})
    assert given == ["onednn"]
