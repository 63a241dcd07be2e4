"""The benchmark measures the right things; how fast they are is for the benchmark itself to say."""

from __future__ import annotations

import torch

from gelu_study import bench, training


def test_arithmetic_of_the_papers_network():
    products, needed = bench.arithmetic(bench._configs("relu", 1)[0])
    weights = 784 * 128 + 7 * 128 * 128 + 128 * 10
    assert products == 3 * 2 * 128 * weights == 166_133_760
    assert products - needed == 2 * 128 * 784 * 128


def test_the_stack_computes_what_the_plain_loop_computes():
    device = torch.device("cpu")
    examples = training.stacks.Examples.of(bench._random_dataset(), 55_000, 5_000, device)
    assert bench.agreement(examples, device, steps=5) < 1e-4


def test_report_of_a_short_measurement(monkeypatch):
    monkeypatch.setattr(bench, "STACKS", (1, 2))
    monkeypatch.setattr(bench, "DROPOUT_STACK", 2)
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "peak_memory", lambda device: 1.0)
    result = bench.measure("cpu", seconds=0.01)
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
    assert "matrix rate" in bench.report(result) and "stack of 2, dropout" in bench.report(result)
