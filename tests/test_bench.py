"""The benchmark of the classifier measures the right things; how fast they are is for the benchmark itself to say."""

from __future__ import annotations

import torch

from gelu_study import training
from gelu_study.bench import classifier, random_dataset


def test_arithmetic_of_the_papers_network():
    products, needed = classifier.arithmetic(classifier._configs("relu", 1)[0])
    weights = 784 * 128 + 7 * 128 * 128 + 128 * 10
    assert products == 3 * 2 * 128 * weights == 166_133_760
    assert products - needed == 2 * 128 * 784 * 128


def test_the_stack_computes_what_the_plain_loop_computes():
    device = torch.device("cpu")
    examples = training.stacks.Examples.of(random_dataset("mnist"), 55_000, 5_000, device)
    assert classifier.agreement(examples, device, steps=5) < 1e-4


def test_report_of_a_short_measurement(monkeypatch):
    monkeypatch.setattr(classifier, "STACKS", (1, 2))
    monkeypatch.setattr(classifier, "DROPOUT_STACK", 2)
    monkeypatch.setattr(classifier, "ROUNDS", 1)
    monkeypatch.setattr(classifier, "peak_memory", lambda module, device: 1.0)
    result = classifier.measure("cpu", seconds=0.01)
    assert {row["loop"] for row in result["rows"]} == {
        "DataLoader loop",
        "in-memory loop",
        "stack of 1",
        "stack of 2",
        "stack of 2, dropout",
    }
    for row in result["rows"]:
        assert row["steps_per_second"] > 0 and row["over_dataloader"] > 0
    plain = next(row for row in result["rows"] if row["loop"] == "in-memory loop")
    assert plain["over_in_memory"] == 1
    assert "matrix rate" in classifier.report(result) and "stack of 2, dropout" in classifier.report(result)
