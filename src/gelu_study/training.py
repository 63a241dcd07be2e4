"""The engine: trains a stack of runs together and returns a record for each.

The paper's logging (section 1 of its protocol): the training loss of each minibatch with dropout off, before the update; validation
loss and error three times an epoch; test loss and error at each epoch's end, for evaluation alone. A run that diverges becomes a
record that says when; its neighbours in the stack never notice.
"""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gelu_study.datasets import Dataset
from gelu_study.errors import ConfigurationError
from gelu_study.networks import PerceptronStack, runs_of_equal
from gelu_study.random_streams import minibatch_order
from gelu_study.runs import RunConfig, RunRecord

CLEAN_EVERY = 11
"""With dropout, the loss without it is measured on every 11th minibatch (429 = 3 x 11 x 13): a pass on each would cost a third."""
SMOOTHING = 0.995
"""Of the training loss in figure 2, a minibatch."""
LOGS_PER_EPOCH = 3
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8

Progress = Callable[[int], None]
"""Called three times an epoch with the number of steps that the stack has taken since the last call."""


def resolve_device(name: str) -> torch.device:
    """The device for "auto" (CUDA, else MPS, else CPU), "cpu", "cuda", "cuda:1", "mps".

    Raises `ConfigurationError` when it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:N or mps") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigurationError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:N or mps")
    if device.type == "cuda" and not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()):
        raise ConfigurationError(
            f"device {name} was asked for, and PyTorch sees {torch.cuda.device_count()} CUDA devices; use cpu or auto"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigurationError("device mps was asked for, and this machine has none; use cpu or auto")
    return device


@dataclass(frozen=True)
class Examples:
    """The three parts of a data set on the device: inputs [n, features] float32 in [0, 1], labels [n] int64."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int

    @classmethod
    def of(cls, dataset: Dataset, train: int, validation: int, device: torch.device) -> Examples:
        """The first `train` official training examples train, the last `validation` validate, the official test set tests."""
        if train + validation > len(dataset.x_train):
            raise ConfigurationError(
                f"{train} training and {validation} validation examples asked for, and {dataset.name} has {len(dataset.x_train)}"
            )

        def tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
            pixels = torch.from_numpy(x.reshape(len(x), -1)).to(device, torch.float32).div_(dataset.scale)
            return pixels, torch.from_numpy(y).to(device, torch.int64)

        return cls(
            tensors(dataset.x_train[:train], dataset.y_train[:train]),
            tensors(dataset.x_train[-validation:], dataset.y_train[-validation:]),
            tensors(dataset.x_test, dataset.y_test),
            dataset.classes,
        )


def stack_shape(config: RunConfig) -> tuple[Any, ...]:
    """What runs must share to train in one stack."""
    return (
        config.dataset_sha256,
        config.train_examples,
        config.validation_examples,
        config.network,
        config.hidden,
        config.initialisation,
        config.optimiser,
        config.batch_size,
        config.epochs,
        config.precision,
        config.engine,
    )


class StackTrainer:
    """The training state of a stack; `step` takes one minibatch of every run.

    Runs are ordered by dropout, learning rate and activation, so that each of these is applied to few contiguous slices; `configs`
    has that order. Raises `ConfigurationError` when the runs do not fit in one stack.
    """

    def __init__(self, configs: Sequence[RunConfig], examples: Examples, device: torch.device) -> None:
        if len({stack_shape(config) for config in configs}) != 1:
            raise ConfigurationError("runs of one stack must share data, shapes, batch size, number of epochs and precision")
        self.configs = sorted(configs, key=lambda c: (c.keep_probability, c.learning_rate, c.activation, c.seed))
        self.examples = examples
        self.device = device
        first = self.configs[0]
        self._batch = first.batch_size
        self.steps_per_epoch = first.steps_per_epoch
        if self.steps_per_epoch < LOGS_PER_EPOCH:
            raise ConfigurationError(
                f"{first.train_examples} training examples make {self.steps_per_epoch} minibatches of {self._batch} an epoch; "
                f"losses are logged {LOGS_PER_EPOCH} times an epoch, so it takes at least as many: lower batch_size"
            )
        if any(config.keep_probability < 1 for config in configs) and any(self._batch * width % 8 for width in first.hidden):
            raise ConfigurationError(
                f"batch_size {self._batch} times a hidden width of {first.hidden} is no multiple of 8, as dropout masks need"
            )
        self.network = PerceptronStack(
            (examples.train[0].shape[1], *first.hidden, examples.classes),
            [config.activation for config in self.configs],
            [config.keep_probability for config in self.configs],
            [config.seed for config in self.configs],
            self._batch,
            device,
        )
        groups = []
        for rate, i, j in runs_of_equal([config.learning_rate for config in self.configs]):
            pairs = self.network.parameters(i, j)
            for value, gradient in pairs:
                value.grad = gradient
            groups.append({"params": [value for value, _ in pairs], "lr": rate})
        self._adam = torch.optim.Adam(groups, betas=ADAM_BETAS, fused=True)
        self._x = torch.empty(len(self.configs) * self._batch, examples.train[0].shape[1], device=device)
        self.steps = 0

    def start_epoch(self, epoch: int) -> None:
        """Draw the minibatch orders of an epoch, counted from 0: runs of one seed see the same minibatches."""
        examples = len(self.examples.train[0])
        seeds = [config.seed for config in self.configs]
        drawn = {seed: minibatch_order(seed, epoch, examples) for seed in set(seeds)}
        kept = self.steps_per_epoch * self._batch
        orders = torch.stack([drawn[seed][:kept].view(self.steps_per_epoch, self._batch) for seed in seeds], 1)
        self._orders = orders.reshape(self.steps_per_epoch, -1).to(self.device)  # [steps, runs * batch]

    def step(self, step_of_epoch: int, measure_clean: bool) -> tuple[Tensor, Tensor]:
        """One update of every run; returns the losses as `PerceptronStack.training_step` does."""
        chosen = self._orders[step_of_epoch]
        shape = (len(self.configs), self._batch)
        torch.index_select(self.examples.train[0], 0, chosen, out=self._x)
        labels = self.examples.train[1][chosen].view(shape)
        losses = self.network.training_step(self._x.view(*shape, -1), labels, self.steps, measure_clean)
        self.steps += 1
        for group in self._adam.param_groups:
            # TensorFlow adds epsilon to the root of the uncorrected second moment, PyTorch to that of the corrected one
            group["eps"] = ADAM_EPSILON / (1 - ADAM_BETAS[1] ** self.steps) ** 0.5
        self._adam.step()
        return losses


class _Log:
    """Collects the curves of a stack, as float64 arrays with one value a run, and where each run first was not finite."""

    def __init__(self, runs: int) -> None:
        self.curves: dict[str, list[np.ndarray]] = {}
        self.diverged_at = np.full(runs, -1)
        self._smoothed: tuple[np.ndarray | None, np.ndarray | None] = (None, None)

    def add(self, name: str, values: np.ndarray, step: int) -> None:
        """Append values [runs] measured after `step` updates."""
        self.curves.setdefault(name, []).append(values)
        self.mark(values[None], step, step)

    def mark(self, values: np.ndarray, first: int, last: int) -> None:
        """Note the first step at which a run's value was not finite; values [times, runs] at steps first to last."""
        steps = np.linspace(first, last, len(values)).astype(int)
        bad = ~np.isfinite(values)
        news = bad.any(0) & (self.diverged_at < 0)
        self.diverged_at[news] = steps[bad.argmax(0)[news]]

    def add_minibatches(self, trained: np.ndarray, clean: np.ndarray, dropout: np.ndarray, apart: int, step: int) -> None:
        """Append mean and smoothed training loss of a third, dropout off.

        `trained` holds the losses that were differentiated, [steps, runs]: what runs without dropout need. `clean` holds the losses
        with dropout off, measured `apart` steps apart: what the others, marked in `dropout` [runs], need.
        """
        means, ends = [], []
        for losses, begin, weight in (
            (clean, self._smoothed[0], SMOOTHING**apart),
            (trained, self._smoothed[1], SMOOTHING),
        ):
            smoothed = losses[0] if begin is None else begin
            for loss in losses[int(begin is None) :]:
                smoothed = weight * smoothed + (1 - weight) * loss
            means.append(losses.mean(0))
            ends.append(smoothed)
        self._smoothed = (ends[0], ends[1])
        self.add("train_loss", np.where(dropout, *means), step)
        self.add("train_loss_smoothed", np.where(dropout, *ends), step)


def train(
    configs: Sequence[RunConfig], dataset: Dataset, device: torch.device, progress: Progress = lambda steps: None
) -> list[RunRecord]:
    """Train the runs together on the device and return their records, in the order of `configs`.

    Raises `ConfigurationError` when the runs do not fit in one stack or with the data set.
    """
    source_revision()  # now: the checkout may move on while the stack trains
    first = configs[0]
    if dataset.name != first.dataset:
        raise ConfigurationError(f"the runs are on {first.dataset}, and the data are {dataset.name}")
    started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    examples = Examples.of(dataset, first.train_examples, first.validation_examples, device)
    trainer = StackTrainer(configs, examples, device)
    runs, per_epoch = len(configs), trainer.steps_per_epoch
    apart = CLEAN_EVERY if per_epoch >= LOGS_PER_EPOCH * CLEAN_EVERY else 1
    dropout = np.array([config.keep_probability < 1 for config in trainer.configs])
    marks = [per_epoch * (third + 1) // LOGS_PER_EPOCH for third in range(LOGS_PER_EPOCH)]
    trained = torch.zeros(per_epoch, runs, device=device)
    clean = torch.zeros(-(-per_epoch // apart), runs, device=device)
    log = _Log(runs)
    with _flushed_subnormals():
        for epoch in range(first.epochs):
            trainer.start_epoch(epoch)
            begin = 0
            for mark in marks:
                for step in range(begin, mark):
                    measure = step % apart == 0
                    trained[step], loss = trainer.step(step, measure)
                    if measure:
                        clean[step // apart] = loss
                done = epoch * per_epoch + mark
                log.mark(_numpy(trained[begin:mark]), done - (mark - begin) + 1, done)
                third_clean = _numpy(clean[-(-begin // apart) : -(-mark // apart)])
                log.add_minibatches(_numpy(trained[begin:mark]), third_clean, dropout, apart, done)
                for name, values in zip(("loss", "error"), trainer.network.evaluate(*examples.validation), strict=True):
                    log.add(f"validation_{name}", _numpy(values), done)
                progress(mark - begin)
                begin = mark
            log.add("train_loss_epoch", np.where(dropout, _numpy(clean).mean(0), _numpy(trained).mean(0)), done)
            for name, values in zip(("loss", "error"), trainer.network.evaluate(*examples.test), strict=True):
                log.add(f"test_{name}", _numpy(values), done)
            if (log.diverged_at >= 0).all():
                break
    full = [_numpy(values) for values in trainer.network.evaluate(*examples.train)]
    log.mark(np.stack(full), trainer.steps, trainer.steps)
    environment = {
        **environment_of(device),
        "stack": runs,
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - clock, 1),
    }
    records = {
        config.key: _record(
            config,
            log,
            index,
            [values[index] for values in full],
            per_epoch,
            {**environment, "train_loss_every": apart if dropout[index] else 1},
        )
        for index, config in enumerate(trainer.configs)
    }
    return [records[config.key] for config in configs]


@contextmanager
def _flushed_subnormals() -> Iterator[None]:
    """Take subnormal numbers as 0: the gradients of nearly perfect networks hold many, and arithmetic on them is slow."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _numpy(values: Tensor) -> np.ndarray:
    return values.cpu().double().numpy()


def _rounded(value: float) -> float:
    """Seven significant digits: what float32 holds."""
    return float(f"{value:.7g}")


def _record(config: RunConfig, log: _Log, index: int, full: list[float], per_epoch: int, environment: dict[str, Any]) -> RunRecord:
    curves = {name: [float(values[index]) for values in rows] for name, rows in log.curves.items()}
    step = int(log.diverged_at[index])
    if step >= 0:
        epoch = (step - 1) // per_epoch
        kept = {name: values[: epoch * (len(values) // len(curves["test_loss"]))] for name, values in curves.items()}
        return RunRecord(
            config,
            "diverged",
            diverged={"step": step, "epoch": epoch + 1},
            curves={name: [_rounded(value) for value in values] for name, values in kept.items()},
            environment=environment,
        )

    def measured(epoch: int) -> dict[str, float]:
        """The five measures at the end of an epoch, counted from 0."""
        third = LOGS_PER_EPOCH * epoch + LOGS_PER_EPOCH - 1
        return {
            "train_loss": curves["train_loss_epoch"][epoch],
            "validation_loss": curves["validation_loss"][third],
            "validation_error": curves["validation_error"][third],
            "test_loss": curves["test_loss"][epoch],
            "test_error": curves["test_error"][epoch],
        }

    best = int(np.argmin(curves["validation_loss"][LOGS_PER_EPOCH - 1 :: LOGS_PER_EPOCH]))
    final = {**measured(config.epochs - 1), "train_loss_full": full[0], "train_error_full": full[1]}
    return RunRecord(
        config,
        "finished",
        curves={name: [_rounded(value) for value in values] for name, values in curves.items()},
        final={name: _rounded(value) for name, value in final.items()},
        best={
            "epoch": best + 1,
            "step": (best + 1) * per_epoch,
            **{name: _rounded(value) for name, value in measured(best).items()},
        },
        environment=environment,
    )


def environment_of(device: torch.device) -> dict[str, Any]:
    """What ran where: device, host, versions and revision of the code, as a record keeps them beside its configuration."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    revision, dirty = source_revision()
    return {
        "device": device.type,
        "device_name": name,
        "host": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "package": version("gelu-study"),
        "revision": revision,
        "dirty": dirty,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


@cache
def source_revision() -> tuple[str | None, bool | None]:
    """The Git revision of this package's source and whether its files differ from it; (None, None) outside a checkout."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return None, None
