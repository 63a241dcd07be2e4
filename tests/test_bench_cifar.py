"""The benchmark on CIFAR-10's shapes measures the right things; how fast they are is for the benchmark itself to say."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from gelu_study import cli, protocols
from gelu_study.bench import cifar, classifier
from gelu_study.datasets import Dataset
from gelu_study.networks.convolutional import multiplications
from gelu_study.runs import RunConfig
from gelu_study.training.images_data import Images

CPU = torch.device("cpu")
_SMALL = {cifar.FAST: {"hidden": (8, 8, 16, 16)}, cifar.PAPER: {"hidden": (4,) * 9}}
_RECIPE = cifar.recipe


@pytest.fixture
def small(monkeypatch) -> Dataset:
    """Narrow networks in float32, minibatches of 32, 320 images."""

    def recipe(experiment: str, activation: str = cifar.PLAIN) -> RunConfig:
        small = {"batch_size": 32, "train_examples": 320, "validation_examples": 0, "precision": "float32"}
        return replace(_RECIPE(experiment, activation), **small, **_SMALL[experiment])

    source = np.random.default_rng(1)
    pixels, labels = source.integers(0, 256, (330, 32, 32, 3), dtype=np.uint8), source.integers(0, 10, 330, dtype=np.uint8)
    data = Dataset("cifar10", pixels[:320], labels[:320], pixels[320:], labels[320:])
    monkeypatch.setattr(cifar, "recipe", recipe)
    monkeypatch.setattr(cifar, "random_dataset", lambda name: data)
    monkeypatch.setattr(cifar, "peak_memory", lambda module, device: 1234.0)
    return data


@pytest.fixture
def trainer(small):
    return cifar._trainer(cifar.FAST, "gelu_tanh", Images(small, cifar.recipe(cifar.FAST), CPU), CPU)


def test_the_recipes_are_the_studys_own():
    for experiment in (cifar.FAST, cifar.PAPER):
        planned = protocols.plan(experiment, "paper", activations=["gelu_tanh"])[0]
        assert replace(cifar.recipe(experiment), preprocessing=planned.preprocessing) == planned


def test_rows_are_complete_and_fractions_those_of_their_parts(small):
    result = cifar.measure("cpu", seconds=0.01)
    json.dumps(result, allow_nan=False)
    assert result["rounds"] == 2 and result["dataloader_workers"] == 0 and result["peak_memory_mib"] == 1234
    rows = {(row["experiment"], row["activation"], row["loop"]): row for row in result["rows"]}
    expected = {(cifar.FAST, name, "training") for name in ("gelu_tanh", "gelu", "relu", "elu", "silu")}
    assert set(rows) == expected | {(cifar.FAST, "gelu_tanh", "DataLoader loop"), (cifar.PAPER, "gelu_tanh", "training")}
    assert len(rows) == len(result["rows"])
    networks = {network["experiment"]: network for network in result["networks"]}
    for row in result["rows"]:
        network = networks[row["experiment"]]
        assert min(value for value in row.values() if not isinstance(value, str)) > 0
        assert row["gflops"] == pytest.approx(row["images_per_second"] * network["mflop_an_image"] / 1e3)
        assert row["convolution_fraction"] == pytest.approx(row["images_per_second"] / network["convolution_images_per_second"])
        assert row["matrix_fraction"] * network["matrix_gflops"] == pytest.approx(row["gflops"])
    ours, plain = rows[cifar.FAST, "gelu_tanh", "training"], rows[cifar.FAST, "gelu_tanh", "DataLoader loop"]
    assert result["over_dataloader"] == pytest.approx(ours["images_per_second"] / plain["images_per_second"])

    # 24 filters of 2 x 2 on 31 x 31 places, pooled to 15 x 15 and 7 x 7 after the first convolution of each group
    fast = 12 * 24 * 31**2 + 9 * (24 * 8 * 31**2 + 8 * 8 * 15**2 + 8 * 16 * 15**2 + 16 * 16 * 7**2) + 16 * 10
    assert networks[cifar.FAST]["mflop_an_image"] == pytest.approx(6 * fast / 1e6)

    text = cifar.report(result)
    for network in result["networks"]:
        for name in ("experiment", "network", "precision"):
            assert network[name] in text
        assert f"{network['convolution_gflops']:.0f} GFLOP/s" in text and f"{network['matrix_gflops']:.0f} GFLOP/s" in text
    for row in result["rows"]:
        line = next(
            line for line in text.splitlines() if line.split()[:2] == [row["experiment"], row["activation"]] and row["loop"] in line
        )
        assert f"{row['images_per_second']:.0f}" in line and f"{100 * row['convolution_fraction']:.0f}" in line.split()
    assert result["device_name"] in text and f"{result['over_dataloader']:.1f} times" in text and "1234 MiB" in text


def test_operations_are_six_for_each_multiplication(trainer, monkeypatch):
    """The bare operations do forward and both gradients of every layer, but for what training leaves out."""
    done: list[tuple[int, int]] = []
    real = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd,
        "grad",
        lambda output, needed, gradient: done.append((len(needed), output.numel())) or real(output, needed, gradient),
    )
    cifar.products_alone(trainer.network, trainer.config, CPU)()
    layers = [layer for layer in trainer.network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert [many for many, _ in done] == [2] * (len(layers) - 1)  # the whitening is fixed, and images have no gradient
    counted = 0
    for layer, (_, values) in zip(layers[1:], done, strict=True):
        counted += values // 32 * layer.weight[0].numel()
    assert counted == multiplications(trainer.network) - 12 * 24 * 31**2


def test_a_turn_takes_its_minibatches_and_trains(trainer):
    before = {name: value.clone() for name, value in trainer.network.named_parameters() if value.requires_grad}
    turn = cifar._training(trainer, CPU)
    turn()
    turn()
    assert trainer.steps == 2 * trainer.config.steps_per_epoch == 2 * cifar.STEPS["cpu"]
    assert all(not torch.equal(value, before[name]) for name, value in trainer.network.named_parameters() if name in before)


def test_the_plain_loop_trains_the_same_network(small, trainer):
    config = replace(trainer.config, train_examples=32)
    turn = cifar.plain_loop(small, config, trainer.network, 0, CPU)
    kept = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    losses = []
    for _ in range(2):  # the same minibatch twice
        torch.manual_seed(1)
        losses.append(turn())
    assert all(torch.equal(value, kept[name]) for name, value in trainer.network.state_dict().items())  # it has a copy
    torch.manual_seed(1)
    ((x, labels),) = DataLoader(cifar.PlainImages(small, 32), 32, shuffle=True)
    smoothing = config.label_smoothing
    first = nn.functional.cross_entropy(trainer.network.train()(x), labels, label_smoothing=smoothing)
    assert losses[0] == pytest.approx(first.item(), rel=1e-5) and losses[1] < losses[0] - 1e-4


def test_peak_memory_is_not_below_what_is_held(small):
    held = psutil.Process().memory_info().rss / 2**20
    assert held <= cifar._peak_in_this_process("cpu") < held + 2**10


def test_the_plain_images_are_the_data_sets_own(small):
    images = cifar.PlainImages(small, 5)
    x, label = images[3]
    assert len(images) == 5 and label == small.y_train[3] and x.shape == (3, 32, 32) and x.dtype == torch.float32
    levels = ((x * 0.25 + 0.5) * 255).round().to(torch.uint8).permute(1, 2, 0)
    padded = nn.functional.pad(torch.from_numpy(small.x_train[3]), (0, 0, 4, 4, 4, 4))
    windows = [padded[row : row + 32, column : column + 32] for row in range(9) for column in range(9)]
    assert any(torch.equal(levels, view) for window in windows for view in (window, window.flip(1)))


def test_workers_fit_into_shared_memory(monkeypatch):
    config = cifar.recipe(cifar.FAST)
    assert cifar.loader_workers(config, CPU) == 0
    monkeypatch.setattr(cifar.os, "cpu_count", lambda: 16)
    for free, workers in ((2**40, 8), (64 * 2**20, 1), (0, 0)):
        monkeypatch.setattr(cifar.shutil, "disk_usage", lambda path, free=free: type("", (), {"free": free}))
        assert cifar.loader_workers(config, torch.device("cuda")) == workers


@pytest.mark.parametrize(("arguments", "module"), [([], classifier), (["mnist"], classifier), (["cifar"], cifar)])
def test_the_command_line_measures_what_is_asked_for(capsys, monkeypatch, arguments, module):
    monkeypatch.setattr(module, "measure", lambda device, seconds: {"device": device, "seconds": seconds})
    monkeypatch.setattr(module, "report", lambda result: f"report of {result}")
    assert cli.main(["bench", *arguments, "--format", "json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out) == {"device": "cpu", "seconds": module.SECONDS}
    assert cli.main(["bench", *arguments, "--seconds", "2"]) == 0
    assert capsys.readouterr().out == "report of {'device': 'auto', 'seconds': 2.0}\n"


@pytest.mark.parametrize(
    "arguments", [["imagenet"], ["cifar", "--seconds", "0"], ["cifar", "--seconds", "soon"], ["cifar", "--format", "csv"]]
)
def test_malformed_options_are_refused(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", *arguments])
    assert stop.value.code == 2 and "usage: gelu-study bench" in capsys.readouterr().err


def test_an_unknown_device_is_refused(capsys):
    assert cli.main(["bench", "cifar", "--device", "abacus"]) == 2
    assert "unknown device 'abacus'" in capsys.readouterr().err
