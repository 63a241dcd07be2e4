"""Train with one form, evaluate with another: what swapping the activation does to a trained network.

The networks are the paper's MNIST classifiers (section 3.1) without dropout, at the learning rate of 1e-3 that validation chose for
GELU (tanh), ReLU and ELU; their weights are kept nowhere, so the measurement trains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from gelu_study import activations, datasets, protocols, sweep, training
from gelu_study.runs import RunConfig

NAMES = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu", "relu")
SEEDS = range(3)
LEARNING_RATE = 1e-3
CHUNK = 1000  # test examples a pass, which bounds the memory


def measure(device: torch.device) -> dict[str, Any]:
    """Train every form with every seed on MNIST by the paper's protocol (about ten minutes of two cores) and swap.

    Returns `epochs` and `rows`: `swap`'s, for each pair of forms and each seed. Raises `DataError` without MNIST.
    """
    configs = protocols.plan(
        "mnist-classifier",
        "paper",
        activations=NAMES,
        learning_rates=[LEARNING_RATE],
        keep_probabilities=[1.0],
        seeds=SEEDS,
    )
    return {"epochs": configs[0].epochs, "learning_rate": LEARNING_RATE, "rows": trained_and_swapped(configs, device)}


def trained_and_swapped(configs: Sequence[RunConfig], device: torch.device) -> list[dict[str, Any]]:
    """Train the runs, in stacks, and evaluate each network with every form among theirs; rows as `swap` gives them."""
    first = configs[0]
    data = datasets.load(first.dataset)
    names = list(dict.fromkeys(config.activation for config in configs))
    steps = sum(config.steps_per_epoch * config.epochs for config in configs)
    reporter = sweep.Reporter(len(configs), steps)
    rows: list[dict[str, Any]] = []
    try:
        for stack in sweep.stacks(configs, sweep.CPU_STACK):
            examples = training.stacks.Examples.of(data, first.train_examples, first.validation_examples, device)
            trainer = training.stacks.StackTrainer(stack, examples, device)
            progress = sweep.per_network(reporter, stack)
            for epoch in range(first.epochs):
                trainer.start_epoch(epoch)
                for step in range(trainer.steps_per_epoch):
                    trainer.step(step, False)
                progress(trainer.steps_per_epoch)
            for place, config in enumerate(trainer.configs):
                layers = [
                    (weight[place], bias[place, 0])
                    for weight, bias in zip(trainer.network.weights, trainer.network.biases, strict=True)
                ]
                rows += swap(layers, config.activation, config.seed, names, *examples.test)
            reporter.finish_runs(len(stack))
    finally:
        reporter.close()
    return rows


def swap(
    layers: Sequence[tuple[Tensor, Tensor]], trained: str, seed: int, names: Sequence[str], x: Tensor, labels: Tensor
) -> list[dict[str, Any]]:
    """A trained network evaluated with each activation in `names`: a row each.

    Args: `layers` (weight [in, out], bias [out]) with the activation between them; test inputs x [n, in]; labels [n].
    Row: trained, evaluated, seed, error (percent), loss (nats), changed (percent of the predicted classes that differ from
    those with the activation it was trained with), difference (root mean square of the change of the logits, over that of
    the logits about each example's mean).
    """
    own = logits(layers, trained, x)
    spread = (own - own.mean(-1, keepdim=True)).square().mean().sqrt()
    rows = []
    for name in names:
        found = logits(layers, name, x)
        rows.append(
            {
                "trained": trained,
                "evaluated": name,
                "seed": seed,
                "error": 100 * float((found.argmax(-1) != labels).double().mean()),
                "loss": float(torch.nn.functional.cross_entropy(found, labels)),
                "changed": 100 * float((found.argmax(-1) != own.argmax(-1)).double().mean()),
                "difference": float((found - own).square().mean().sqrt() / spread),
            }
        )
    return rows


def logits(layers: Sequence[tuple[Tensor, Tensor]], name: str, x: Tensor) -> Tensor:
    """The network's outputs [n, classes] with that activation after every layer but the last, in float64."""
    function = activations.get(name)
    results = []
    with torch.no_grad():
        for hidden in x.double().split(CHUNK):
            for weight, bias in layers[:-1]:
                hidden = function(hidden @ weight.double() + bias.double())
            results.append(hidden @ layers[-1][0].double() + layers[-1][1].double())
    return torch.cat(results)


def medians(rows: Sequence[dict[str, Any]], column: str) -> pd.DataFrame:
    """The median over seeds of a column, a row for each trained form and a column for each evaluated one, in order."""
    frame = pd.DataFrame(rows)
    order = list(dict.fromkeys(frame["trained"]))
    table = frame.pivot_table(index="trained", columns="evaluated", values=column, aggfunc="median")
    return table.loc[order, [name for name in order if name in table.columns]]
