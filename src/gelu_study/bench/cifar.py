"""How fast this machine trains networks on CIFAR-10, against its own rate of convolutions and a plain torchvision loop.

A turn of ours is an epoch of few minibatches, taken by the trainer's own `train_epoch`: images on the device, augmentation,
forward, backward, optimiser. Beside it run the network's convolutions alone, as bare operations, and what a tutorial writes.
"""

from __future__ import annotations

import copy
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from gelu_study import protocols, training
from gelu_study.bench import Step, elapsed, matrix_rate, peak_memory, random_dataset, resident_peak
from gelu_study.datasets import Dataset
from gelu_study.networks.convolutional import multiplications
from gelu_study.runs import RunConfig
from gelu_study.training.images import ImageTrainer
from gelu_study.training.images_data import Images

FAST, PAPER = "cifar10-fast", "cifar10-convnet"
ACTIVATIONS = {FAST: ("gelu_tanh", "gelu", "relu", "elu", "silu"), PAPER: ("gelu_tanh",)}
PLAIN = "gelu_tanh"
"""The activation of the plain loop."""
SECONDS = 18.0  # for each measurement, so that all of them take three minutes
STEPS = {"cpu": 1}
STEPS_ELSEWHERE = 40
"""Minibatches of a turn: a CPU takes seconds for each, and elsewhere starting and waiting would count."""
WORKERS = 8
"""Of the plain loop's DataLoader at most, where another device than the CPU trains; on a CPU they would be in each other's way."""

_TYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}
Entry = tuple[str, str, str]
"""Experiment, activation, and what is done: "training", or one of these."""
_ALONE, _LOADER = "convolutions alone", "DataLoader loop"


def measure(device: str = "auto", seconds: float = SECONDS) -> dict[str, Any]:
    """Measure everything, in turns, for about `seconds` for each entry, at least two turns each, of which the best counts.

    Floating-point operations are those of three products a convolution or dense layer; the few that nobody needs, such as the
    gradient of the images, are counted everywhere and done nowhere.
    """
    where = training.resolve_device(device)
    data = random_dataset("cifar10")
    began = time.perf_counter()
    entries: dict[Entry, Step] = {}
    networks: dict[str, dict[str, Any]] = {}
    for experiment, names in ACTIVATIONS.items():
        images = Images(data, recipe(experiment), where)
        trainers = {name: _trainer(experiment, name, images, where) for name in names}
        entries |= {(experiment, name, "training"): _training(trainer, where) for name, trainer in trainers.items()}
        config, network = trainers[PLAIN].config, trainers[PLAIN].network
        entries[experiment, PLAIN, _ALONE] = _in_settings(config, where, products_alone(network, config, where))
        if experiment == FAST:
            workers = loader_workers(config, where)
            entries[experiment, PLAIN, _LOADER] = plain_loop(data, config, network, workers, where)
        networks[experiment] = {
            "experiment": experiment,
            "network": config.network,
            "precision": config.precision,
            "batch_size": config.batch_size,
            "images_a_turn": config.train_examples,
            "mflop_an_image": 6 * multiplications(network, images.side) / 1e6,
        }
    precisions = {network["precision"] for network in networks.values()}
    times, rates = _in_turns(entries, precisions, began + seconds * len(entries), where)

    best = {entry: min(values) for entry, values in times.items()}
    for experiment, shown in networks.items():
        shown["convolution_images_per_second"] = shown["images_a_turn"] / best[experiment, PLAIN, _ALONE]
        shown["convolution_gflops"] = shown["convolution_images_per_second"] * shown["mflop_an_image"] / 1e3
        shown["matrix_gflops"] = rates[shown["precision"]] / 1e9
    environment = training.environment_of(where)
    return {
        **{name: environment[name] for name in ("device", "device_name", "threads", "torch")},
        "rounds": len(times[FAST, PLAIN, "training"]),
        "networks": list(networks.values()),
        "rows": [_row(entry, networks[entry[0]], took) for entry, took in best.items() if entry[2] != _ALONE],
        "over_dataloader": best[FAST, PLAIN, _LOADER] / best[FAST, PLAIN, "training"],
        "dataloader_workers": workers,
        "peak_memory_mib": peak_memory(__name__, where),
    }


def _row(entry: Entry, network: dict[str, Any], took: float) -> dict[str, Any]:
    """What a turn of so many seconds says; fractions are of the network's convolutions alone, and of a large matrix product."""
    speed = network["images_a_turn"] / took
    gflops = speed * network["mflop_an_image"] / 1e3
    return {
        **dict(zip(("experiment", "activation", "loop"), entry, strict=True)),
        "images_per_second": speed,
        "gflops": gflops,
        "convolution_fraction": gflops / network["convolution_gflops"],
        "matrix_fraction": gflops / network["matrix_gflops"],
    }


def report(result: dict[str, Any]) -> str:
    """The measurements as text."""
    lines = [
        f"{result['device']} ({result['device_name']}), {result['threads']} threads, PyTorch {result['torch']}; the best of "
        f"{result['rounds']} turns each"
    ]
    for network in result["networks"]:
        lines += [
            f"{network['experiment']}: {network['network']}, batch {network['batch_size']}, {network['precision']}, "
            f"{network['images_a_turn']} images a turn, {network['mflop_an_image']:.0f} MFLOP an image",
            f"  convolutions alone {network['convolution_gflops']:.0f} GFLOP/s, {network['convolution_images_per_second']:.0f} "
            f"images/s; a large matrix product {network['matrix_gflops']:.0f} GFLOP/s",
        ]
    lines += [
        "",
        f"{'experiment':<17}{'activation':<12}{'loop':<17}{'images/s':>9}{'GFLOP/s':>9}{'% of conv.':>12}{'% of matrix':>13}",
    ]
    for row in result["rows"]:
        lines.append(
            f"{row['experiment']:<17}{row['activation']:<12}{row['loop']:<17}{row['images_per_second']:>9.0f}{row['gflops']:>9.0f}"
            f"{100 * row['convolution_fraction']:>12.0f}{100 * row['matrix_fraction']:>13.0f}"
        )
    lines += [
        "",
        f"training over the DataLoader loop (torchvision, float32, {result['dataloader_workers']} workers), {PLAIN}: "
        f"{result['over_dataloader']:.1f} times as fast",
        f"peak memory of the process on a CPU, of the device on CUDA, {FAST} with all images: {result['peak_memory_mib']:.0f} MiB",
    ]
    return "\n".join(lines)


def recipe(experiment: str, activation: str = PLAIN) -> RunConfig:
    """The experiment's run at scale paper, pixels standardised by channel: whitening random images would tell nothing."""
    return replace(protocols.plan(experiment, "paper", activations=[activation])[0], preprocessing="channels")


def _trainer(experiment: str, activation: str, images: Images, device: torch.device) -> ImageTrainer:
    """A trainer whose epochs take few minibatches of the images, and never end."""
    whole = recipe(experiment, activation)
    seen = min(STEPS.get(device.type, STEPS_ELSEWHERE) * whole.batch_size, whole.train_examples)
    config = replace(whole, train_examples=seen, validation_examples=0, epochs=1_000_000)
    with training.images.settings(config, device):
        return ImageTrainer(config, images, device)


def _in_settings(config: RunConfig, device: torch.device, step: Step) -> Step:
    def within() -> None:
        with training.images.settings(config, device):
            step()

    return within


def _training(trainer: ImageTrainer, device: torch.device) -> Step:
    epochs = count()
    return _in_settings(trainer.config, device, lambda: trainer.train_epoch(next(epochs), lambda steps: None))


def products_alone(network: nn.Module, config: RunConfig, device: torch.device) -> Step:
    """A turn's convolutions and dense layers as bare operations in the run's precision, channels last: forward, and those gradients
    of weights and inputs that training needs."""
    kind = _TYPES[config.precision]
    calls: list[tuple[Callable[[], Tensor], list[Tensor], Tensor]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        x, gradient = (_random((config.batch_size, *value.shape[1:]), kind, device) for value in (inputs[0], output))
        weight = layer.weight.detach().to(kind, copy=True)
        needed = [weight] if layer.weight.requires_grad else []
        needed += [x] if calls else []  # nobody asks for the gradient of the images
        for value in needed:
            value.requires_grad_()
        if isinstance(layer, nn.Conv2d):
            assert not isinstance(layer.padding, str)
            operation = partial(functional.conv2d, x, weight, stride=layer.stride, padding=layer.padding)
        else:
            operation = partial(functional.linear, x, weight)
        calls.append((operation, needed, gradient))

    weighted = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in weighted]
    multiplications(network)
    for hook in hooks:
        hook.remove()

    def turn() -> None:
        for _ in range(config.steps_per_epoch):
            for operation, needed, gradient in calls:
                output = operation()
                if needed:
                    torch.autograd.grad(output, needed, gradient)

    return turn


def _random(shape: tuple[int, ...], kind: torch.dtype, device: torch.device) -> Tensor:
    values = torch.randn(shape, device=device).to(kind)
    return values.to(memory_format=torch.channels_last) if values.ndim == 4 else values


class PlainImages(TorchDataset[tuple[Tensor, int]]):
    """What torchvision's CIFAR10 gives with the usual transforms, of the first images of a data set in memory."""

    def __init__(self, data: Dataset, examples: int) -> None:
        from torchvision import transforms

        self.pixels, self.labels = data.x_train[:examples], data.y_train[:examples]
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(self.pixels.shape[1], padding=4),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.5,) * 3, (0.25,) * 3),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        return self.transform(Image.fromarray(self.pixels[index])), int(self.labels[index])


def loader_workers(config: RunConfig, device: torch.device) -> int:
    """Processes for the plain loop's DataLoader; fewer where shared memory does not hold the batches that they prepare."""
    if device.type == "cpu":
        return 0
    shared = Path("/dev/shm")
    batch = 4 * 3 * 32**2 * config.batch_size
    room = shutil.disk_usage(shared).free // (3 * batch) if shared.exists() else WORKERS
    return min(WORKERS, os.cpu_count() or 1, room)


def plain_loop(data: Dataset, config: RunConfig, network: nn.Module, workers: int, device: torch.device) -> Step:
    """What a tutorial does, a turn's images a call: torchvision's transforms, a DataLoader, a copy of the network with contiguous
    tensors in float32, SGD; returns the last loss."""
    plain = copy.deepcopy(network).to(memory_format=torch.contiguous_format).train()
    trained = [value for value in plain.parameters() if value.requires_grad]
    sgd = torch.optim.SGD(trained, lr=1e-3, momentum=config.momentum, nesterov=True, weight_decay=config.weight_decay)
    images = PlainImages(data, config.train_examples)
    loader = DataLoader(
        images, config.batch_size, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=workers > 0
    )

    def turn() -> float:
        lost = 0.0
        for x, labels in loader:
            logits = plain(x.to(device))
            loss = functional.cross_entropy(logits, labels.to(device), label_smoothing=config.label_smoothing)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            lost = loss.item()
        return lost

    return turn


def _in_turns(
    entries: dict[Entry, Step], precisions: set[str], until: float, device: torch.device
) -> tuple[dict[Entry, list[float]], dict[str, float]]:
    """Seconds of every turn of each entry, and the matrix rate in each precision.

    Rounds until another one would end too late, but two at least: the first warms up.
    """
    times: dict[Entry, list[float]] = {key: [] for key in entries}
    rates = dict.fromkeys(precisions, 0.0)
    rounds, longest = 0, 0.0
    while rounds < 2 or time.perf_counter() + longest < until:
        began = time.perf_counter()
        for precision in rates:
            size = 2048 if device.type == "cpu" else 8192
            rates[precision] = max(rates[precision], matrix_rate(device, _TYPES[precision], size, repeats=3))
        for key, turn in entries.items():
            times[key].append(elapsed(turn, device))
        rounds, longest = rounds + 1, max(longest, time.perf_counter() - began)
    return times, rates


def _peak_in_this_process(device: str) -> float:
    """Peak memory in MiB of training the fast network for a turn, with all images on the device; on CUDA that of the device."""
    where = torch.device(device)
    images = Images(random_dataset("cifar10"), recipe(FAST), where)
    _training(_trainer(FAST, PLAIN, images, where), where)()
    return torch.cuda.max_memory_allocated(where) / 2**20 if where.type == "cuda" else resident_peak()


if __name__ == "__main__":
    print(_peak_in_this_process(sys.argv[1]))
