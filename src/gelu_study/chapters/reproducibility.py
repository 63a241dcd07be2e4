"""What is promised about training a run again, and what was seen: the measurement `reproducibility`, and what shows it.

`measure` trains small runs of every kind of network again: in another process, with other threads, in other company, interrupted,
on another device, under another PyTorch. It also trains records of the ledger again, whose trainings are as long as the study's.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gelu_study import datasets, paths, protocols, retraining, training, verification
from gelu_study.errors import DataError
from gelu_study.ledger import Ledger
from gelu_study.runs import DENSE, RunConfig, RunRecord
from gelu_study.verification import Comparison

NAME = "reproducibility"
SEEDS = (1, 3)  # between them and beside them is room for companions that come before or after
EPOCHS = 25  # of the classifiers, on digits: 225 steps
LONG: dict[str, Any] = {"activations": ("gelu_tanh", "relu", "elu"), "learning_rates": [1e-3], "seeds": [0]}
LONG_STACK = 3


@dataclass(frozen=True)
class Kind:
    """Runs of one kind of network; dense ones fit in one stack."""

    name: str
    configs: tuple[RunConfig, ...]

    @property
    def dense(self) -> bool:
        """Whether they train together."""
        return self.configs[0].network in DENSE

    @property
    def together(self) -> list[tuple[RunConfig, ...]]:
        """The stacks in which they train unless something else is tried."""
        return [self.configs] if self.dense else [(config,) for config in self.configs]


def kinds() -> list[Kind]:
    """Small runs of every kind of network: the study's shapes on scikit-learn's digits, convolutional networks narrowed."""
    classifier: dict[str, Any] = {"dataset": "digits", "learning_rates": [1e-3], "seeds": SEEDS, "epochs": EPOCHS}
    deep = protocols.grid("mnist-autoencoder", "paper").hidden
    fixed: dict[str, Any] = {"hidden": (128,) * 8, "batch_size": 128, "epochs": EPOCHS}
    soi = protocols.plan("mnist-soi", "smoke", activations=["soi"], seeds=SEEDS, learning_rates=[1e-3, 1e-4, 1e-5])
    autoencoder = protocols.plan("mnist-autoencoder", "smoke", learning_rates=[1e-3], seeds=SEEDS)
    images = {
        "shallow convolutional network": protocols.plan("cifar10-convnet", "smoke", seeds=SEEDS, epochs=4),
        "fast convolutional network, bfloat16": protocols.plan(
            "cifar10-fast", "smoke", seeds=SEEDS, epochs=4, precision="bfloat16"
        ),
    }
    return [
        Kind("classifier", tuple(protocols.plan("mnist-classifier", "quick", keep_probabilities=[1.0], **classifier))),
        Kind("classifier, dropout", tuple(protocols.plan("mnist-classifier", "quick", keep_probabilities=[0.5], **classifier))),
        Kind("SOI map, three learning rates", tuple(dataclasses.replace(config, **fixed) for config in soi)),
        Kind("autoencoder", tuple(dataclasses.replace(config, hidden=deep, epochs=4) for config in autoencoder)),
        *(Kind(name, tuple(configs)) for name, configs in images.items()),
    ]


def measure(
    device: torch.device,
    other_python: str | os.PathLike[str] | None = None,
    chosen: Sequence[Kind] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    data_root: Path | None = None,
) -> dict[str, Any]:
    """Train again in every way and compare; about half an hour of two cores.

    Args: `device`, on which to train besides the CPU, if it is another; `other_python`, an interpreter with another version of
    PyTorch, for which the way `torch` stands; `chosen`, the kinds, `kinds()` by default; `ledger`, of the records to train again.

    Returns strict JSON: `kinds`; `rows` with the kind, the way, its detail, the activation and, a value a run, whether bits were
    the same (`identical`) and how far apart it was (`early`, `final_loss`, `final_error`, as in `verification.Comparison`, null for
    infinity); `devices` and `torch`, what was compared with the CPU and this PyTorch; `left_out`, what was not measured and why.
    Raises `RetrainingError` when a process fails.
    """
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    devices, versions = [], []
    if device.type == "cpu":
        left_out.append("no other device than the CPU was there to compare with")
    else:
        devices.append(training.environment_of(device)["device_name"])
    for kind in kinds() if chosen is None else chosen:
        _say(kind.name)
        base = retraining.train(kind.together)
        for way, detail, again in _ways(kind):
            rows += _rows(kind.name, way, detail, base, again)
        if device.type != "cpu":
            rows += _rows(kind.name, "device", device.type, base, retraining.train(kind.together, device=str(device)))
        if other_python is not None:
            again = retraining.train(kind.together, python=other_python)
            versions.append(version := str(again[0].environment["torch"]))
            rows += _rows(kind.name, "torch", version, base, again)
    described = [_described(kind.name, kind.configs) for kind in (kinds() if chosen is None else chosen)]
    try:
        for name, how, drawn, compared in _ledger_ways(Path(ledger or paths.LEDGER), data_root):
            rows += _compared(name, *how, compared, {record.config.key: record.config for record in drawn})
            described.append(_described(name, [record.config for record in drawn]))
    except DataError as error:
        left_out.append(f"records of the ledger: {error}")
    if other_python is None:
        left_out.append("no other version of PyTorch was compared")
    unique = list({kind["name"]: kind for kind in described}.values())
    return {"kinds": unique, "rows": rows, "devices": devices, "torch": sorted(set(versions)), "left_out": left_out}


def _ways(kind: Kind) -> Iterator[tuple[str, str, list[RunRecord]]]:
    """The way, its detail and the records, those of companions among them."""
    configs = kind.configs
    yield "again", "", retraining.train(kind.together)
    yield "resumed", "", retraining.train(kind.together, interrupted_after=configs[0].epochs // 2)
    yield "threads", "2", retraining.train(kind.together, threads=2)
    if not kind.dense:
        yield "company", "", retraining.train([configs[::-1]])
        return
    low, high = SEEDS
    kept = {seed: [config for config in configs if config.seed == seed] for seed in SEEDS}

    def beside(seed: int, other: int) -> list[RunConfig]:
        return [*kept[seed], *(dataclasses.replace(config, seed=other) for config in kept[seed])]

    yield "company", "", retraining.train([beside(low, high + 1), beside(high, low - 1)])
    yield "place", "", retraining.train([beside(low, low - 1), beside(high, high + 1)])
    half = len(configs) // 2
    yield "stack", "1", retraining.train([[config] for config in configs])
    yield "stack", str(half), retraining.train([configs[:half], configs[half:]])
    more = [dataclasses.replace(config, seed=config.seed + high) for config in configs]
    yield "stack", str(2 * len(configs)), retraining.train([[*configs, *more]])


def _ledger_ways(ledger: Path, data_root: Path | None) -> Iterator[tuple[str, tuple[str, str], list[RunRecord], list[Comparison]]]:
    """A stack of short trainings, whole and in smaller stacks, and long trainings in smaller stacks."""
    if not datasets.available("mnist", data_root):
        raise DataError("MNIST is not there")
    records = Ledger(ledger).read()
    cpu = torch.device("cpu")

    def again(drawn: list[RunRecord], **how: Any) -> list[Comparison]:
        return verification.again(drawn, records, cpu, data_root=data_root, **how)

    keys = [config.key for config in protocols.plan("mnist-recipe", "paper")]
    short = next((r for r in records if r.config.key in keys and r.config.normalisation == "none"), None)
    if short is None:
        raise DataError(f"{ledger} has none of mnist-recipe")
    family = verification.companions_of(short, records)
    name = "record of the recipe grid, 10 epochs of MNIST"
    _say(name)
    yield name, ("again", ""), family, again([short], whole_stacks=True)
    yield name, ("stack", str(LONG_STACK)), family, again(family, stack_size=LONG_STACK)
    keys = [config.key for config in protocols.plan("mnist-classifier", "paper", **LONG)]
    long = [r for r in records if r.config.key in keys and r.status == "finished"]
    if not long:
        raise DataError(f"{ledger} has none of mnist-classifier")
    name = "record of the classifier, 50 epochs of MNIST"
    _say(name)
    yield name, ("stack", str(LONG_STACK)), long, again(long, stack_size=LONG_STACK)


def _say(kind: str) -> None:
    print(f"training again: {kind}", file=sys.stderr, flush=True)


def _described(name: str, configs: Sequence[RunConfig]) -> dict[str, Any]:
    first = configs[0]
    return {
        "name": name,
        "dataset": first.dataset,
        "epochs": first.epochs,
        "steps": first.epochs * first.steps_per_epoch,
        "runs": len(configs),
        "dense": first.network in DENSE,
    }


def _rows(kind: str, way: str, detail: str, base: Sequence[RunRecord], again: Sequence[RunRecord]) -> list[dict[str, Any]]:
    made = {record.config.key: record for record in base}
    pairs = [(made[record.config.key], record) for record in again if record.config.key in made]
    compared = [verification.compare(*pair) for pair in pairs]
    return _compared(kind, way, detail, compared, {record.config.key: record.config for record in base})


def _compared(
    kind: str, way: str, detail: str, compared: Sequence[Comparison], configs: dict[str, RunConfig]
) -> list[dict[str, Any]]:
    """A row for each activation."""
    rows = []
    for name in dict.fromkeys(configs[row.key].activation for row in compared):
        own = [row for row in compared if configs[row.key].activation == name]
        rows.append(
            {
                "kind": kind,
                "way": way,
                "detail": detail,
                "activation": name,
                "identical": [row.identical for row in own],
                "within": [row.within for row in own],
                **{
                    measure: [value if math.isfinite(value) else None for value in (getattr(row, measure) for row in own)]
                    for measure in ("early", "final_loss", "final_error")
                },
            }
        )
    return rows
