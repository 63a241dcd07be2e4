"""How fast this machine trains the paper's MNIST classifier, against two plain loops and against its own matrix rate."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, pairwise, repeat
from typing import Any

import torch
from torch import nn

from gelu_study import activations, initialisations, protocols, training
from gelu_study.bench import Step, elapsed, matrix_rate, peak_memory, random_dataset, resident_peak
from gelu_study.datasets import Dataset
from gelu_study.random_streams import minibatch_order
from gelu_study.runs import RunConfig

ACTIVATIONS = ("gelu_tanh", "relu", "elu")
STACKS = (1, 5, 15, 45)
DROPOUT_STACK = 15
ROUNDS = 3
SECONDS = 3.0  # for each measurement
MODULES: dict[str, Callable[[], nn.Module]] = {
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "elu": nn.ELU,
}


def measure(device: str = "auto", seconds: float = SECONDS) -> dict[str, Any]:
    """Measure everything; `seconds` for each entry. Times are milliseconds a network-step: one minibatch of 128 for one network."""
    where = training.resolve_device(device)
    data = random_dataset("mnist")
    examples = training.stacks.Examples.of(data, 55_000, 5_000, where)
    entries: dict[tuple[str, str], tuple[int, Step]] = {}
    for name in ACTIVATIONS:
        entries[name, "DataLoader loop"] = (1, _dataloader_loop(data, name, where))
        entries[name, "in-memory loop"] = (1, in_memory_loop(_configs(name, 1)[0], examples, where))
        for size in STACKS:
            entries[name, f"stack of {size}"] = (size, _stack(_configs(name, size), examples, where))
        dropout = _configs(name, DROPOUT_STACK, keep_probability=0.5)
        entries[name, f"stack of {DROPOUT_STACK}, dropout"] = (DROPOUT_STACK, _stack(dropout, examples, where))
    times: dict[tuple[str, str], list[float]] = {key: [] for key in entries}
    rates = []
    for _ in range(ROUNDS):
        rates.append(matrix_rate(where))
        for key, (size, step) in entries.items():
            times[key].append(_median_time(step, seconds / ROUNDS, where) / size)
    rate = max(rates)
    products, needed = arithmetic(_configs("relu", 1)[0])
    rows = []
    for (name, loop), values in times.items():
        best = min(values)
        plain, memory = min(times[name, "DataLoader loop"]), min(times[name, "in-memory loop"])
        rows.append(
            {
                "activation": name,
                "loop": loop,
                "milliseconds": best * 1e3,
                "steps_per_second": 1 / best,
                "over_dataloader": plain / best,
                "over_in_memory": memory / best,
                "matrix_fraction": products / best / rate,
                "matrix_fraction_needed": needed / best / rate,
            }
        )
    return {
        "device": where.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "matrix_gflops": rate / 1e9,
        "mflop_three_products": products / 1e6,
        "mflop_needed": needed / 1e6,
        "dropout_over_none": {
            name: min(times[name, f"stack of {DROPOUT_STACK}, dropout"]) / min(times[name, f"stack of {DROPOUT_STACK}"])
            for name in ACTIVATIONS
        },
        "largest_loss_difference": agreement(examples, where),
        "peak_memory_mib_45_networks": peak_memory(__name__, where),
        "rows": rows,
    }


def report(result: dict[str, Any]) -> str:
    """The measurements as text."""
    lines = [
        f"{result['device']}, {result['threads']} threads, PyTorch {result['torch']}, "
        f"matrix rate {result['matrix_gflops']:.0f} GFLOP/s (float32)",
        f"a network-step is {result['mflop_three_products']:.0f} MFLOP at three products a layer, "
        f"{result['mflop_needed']:.0f} without the gradient of the input that nobody needs",
        "",
        f"{'activation':<12}{'loop':<22}{'ms':>8}{'steps/s':>9}{'x Loader':>10}{'x memory':>10}{'% of rate':>11}{'% needed':>10}",
    ]
    for row in result["rows"]:
        lines.append(
            f"{row['activation']:<12}{row['loop']:<22}{row['milliseconds']:>8.2f}{row['steps_per_second']:>9.0f}"
            f"{row['over_dataloader']:>10.1f}{row['over_in_memory']:>10.2f}{100 * row['matrix_fraction']:>11.0f}"
            f"{100 * row['matrix_fraction_needed']:>10.0f}"
        )
    ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in result["dropout_over_none"].items())
    lines += [
        "",
        f"a step with dropout (keep probability 0.5) over one without, {DROPOUT_STACK} networks: {ratios}",
        f"greatest relative difference between the losses of stack and in-memory loop: {result['largest_loss_difference']:.1e}",
        f"peak memory with 45 networks and their data: {result['peak_memory_mib_45_networks']:.0f} MiB",
    ]
    return "\n".join(lines)


def arithmetic(config: RunConfig, inputs: int = 784, classes: int = 10) -> tuple[int, int]:
    """Floating-point operations of the matrix products in a network-step: three products a layer, and those that are needed."""
    widths = (inputs, *config.hidden, classes)
    products = [2 * config.batch_size * a * b for a, b in pairwise(widths)]
    return 3 * sum(products), 3 * sum(products) - products[0]


def in_memory_loop(config: RunConfig, examples: training.stacks.Examples, device: torch.device) -> Callable[[], torch.Tensor]:
    """One network trained as plainly as can be with data in memory: modules, autograd, fused Adam; each call is a step.

    Starts from the run's weights and sees its minibatches, so its losses are those of the engine up to rounding.
    """
    network = plain_network(config, examples.train[0].shape[1], examples.outputs).to(device)
    adam = torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)
    batches = _batches(config, device)
    steps = 0

    def step() -> torch.Tensor:
        nonlocal steps
        steps += 1
        chosen = next(batches)
        loss = nn.functional.cross_entropy(network(examples.train[0][chosen]), examples.train[1][chosen])
        adam.zero_grad()
        loss.backward()
        adam.param_groups[0]["eps"] = training.stacks.ADAM_EPSILON / (1 - training.stacks.ADAM_BETAS[1] ** steps) ** 0.5
        adam.step()
        return loss.detach()

    return step


def plain_network(config: RunConfig, inputs: int, classes: int) -> nn.Sequential:
    """The run's network out of PyTorch's modules, with the run's initial weights."""
    widths = (inputs, *config.hidden, classes)
    shapes = list(pairwise(widths))
    layers: list[nn.Module] = []
    for weight in initialisations.weights("unit-norm", shapes, config.seed):
        linear = nn.Linear(*weight.shape)
        with torch.no_grad():
            linear.weight.copy_(weight.T)
            linear.bias.zero_()
        layers += [linear, MODULES[config.activation]()]
    return nn.Sequential(*layers[:-1])


def agreement(examples: training.stacks.Examples, device: torch.device, steps: int = 30) -> float:
    """Greatest relative difference of the training losses of the plain loop and of a stack with three activations."""
    configs = [_configs(name, 1)[0] for name in ACTIVATIONS]
    trainer = training.stacks.StackTrainer(configs, examples, device)
    trainer.start_epoch(0)
    stacked = torch.stack([trainer.step(step, False)[0].clone() for step in range(steps)], 1)
    loops = [in_memory_loop(config, examples, device) for config in trainer.configs]
    plain = torch.stack([torch.stack([loop() for _ in range(steps)]) for loop in loops])
    return float(((stacked - plain).abs() / plain).max())


def _peak_in_this_process(device: str) -> float:
    """Peak resident memory in MiB with 45 networks that are trained and evaluated."""
    where = torch.device(device)
    examples = training.stacks.Examples.of(random_dataset("mnist"), 55_000, 5_000, where)
    trainer = training.stacks.StackTrainer(_configs("gelu_tanh", 45, keep_probability=0.5), examples, where)
    trainer.start_epoch(0)
    for step in range(3):
        trainer.step(step, step == 0)
    trainer.network.evaluate(*examples.validation)
    return resident_peak()


def _configs(activation: str, count: int, keep_probability: float = 1.0) -> list[RunConfig]:
    activations.get(activation)
    return protocols.plan(
        "mnist-classifier",
        "paper",
        activations=[activation],
        learning_rates=[1e-3],
        keep_probabilities=[keep_probability],
        seeds=range(count),
    )


def _batches(config: RunConfig, device: torch.device) -> Iterator[torch.Tensor]:
    orders = (minibatch_order(config.seed, epoch, config.train_examples) for epoch in range(config.epochs))
    whole = config.steps_per_epoch * config.batch_size
    return chain.from_iterable(order[:whole].view(-1, config.batch_size).to(device) for order in chain(orders))


def _stack(configs: list[RunConfig], examples: training.stacks.Examples, device: torch.device) -> Step:
    trainer = training.stacks.StackTrainer(configs, examples, device)
    trainer.start_epoch(0)
    steps = chain.from_iterable(repeat(range(trainer.steps_per_epoch)))

    def step() -> object:
        number = next(steps)
        return trainer.step(number, number % training.stacks.CLEAN_EVERY == 0)

    return step


def _dataloader_loop(data: Dataset, activation: str, device: torch.device) -> Step:
    """What a tutorial does: a data set of images, a transform for each, a DataLoader, modules, Adam."""
    from PIL import Image
    from torch.utils.data import DataLoader
    from torch.utils.data import Dataset as TorchDataset
    from torchvision.transforms import ToTensor

    class Images(TorchDataset):  # type: ignore[type-arg]
        transform = ToTensor()

        def __len__(self) -> int:
            return 55_000

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return self.transform(Image.fromarray(data.x_train[index])), int(data.y_train[index])

    config = _configs(activation, 1)[0]
    network = nn.Sequential(nn.Flatten(), plain_network(config, 784, 10)).to(device)
    adam = torch.optim.Adam(network.parameters(), lr=config.learning_rate)
    loader = DataLoader(Images(), batch_size=config.batch_size, shuffle=True, drop_last=True)
    batches = chain.from_iterable(repeat(loader))

    def step() -> object:
        x, y = next(batches)
        loss = nn.functional.cross_entropy(network(x.to(device)), y.to(device))
        adam.zero_grad()
        loss.backward()
        adam.step()
        return loss.item()

    return step


def _median_time(step: Step, seconds: float, device: torch.device) -> float:
    for _ in range(3):
        step()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        times.append(elapsed(step, device))
    # The mean of the middle half: every 11th step with dropout is dearer, which a median would not see
    times.sort()
    middle = times[len(times) // 10 : len(times) - len(times) // 10]
    return statistics.fmean(middle)


if __name__ == "__main__":
    print(_peak_in_this_process(sys.argv[1]))
