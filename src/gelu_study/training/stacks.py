"""Trains a stack of fully connected networks together and returns a record for each.

The paper's logging (section 1 of its protocol): the training loss of each minibatch with dropout off, before the update; validation
loss and error three times an epoch; test loss and error at each epoch's end, for evaluation alone. A run that diverges becomes a
record that says when; its neighbours in the stack never notice. Long trainings leave checkpoints and go on from them.
"""

from __future__ import annotations

import datetime
import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gelu_study import activations
from gelu_study.checkpoints import Checkpoint, Checkpoints
from gelu_study.datasets import Dataset
from gelu_study.errors import ConfigurationError
from gelu_study.networks import STACKS, PerceptronStack, Stack, runs_of_equal
from gelu_study.random_streams import generator, minibatch_order
from gelu_study.runs import MEASURES, RunConfig, RunRecord
from gelu_study.training import products, records
from gelu_study.training.environment import NEVER, Deadline, Observe, Progress, environment_of, source_revision, unobserved

CLEAN_EVERY = 11
"""With dropout, the loss without it is measured on every 11th minibatch (429 = 3 x 11 x 13): a pass on each would cost a third."""
SMOOTHING = {"perceptron": 0.995, "autoencoder": 0.8}
"""Of the training loss in figures 2 and 3, a minibatch."""
LOGS_PER_EPOCH = 3
ADAM_BETAS = (0.9, 0.999)
ADAM_EPSILON = 1e-8
MOMENTUM = 0.9


@dataclass(frozen=True)
class Examples:
    """The three parts of a data set on the device: inputs [n, features] float32 in [0, 1], and targets: labels [n] int64, or the
    inputs themselves."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    outputs: int  #: classes, or features

    @classmethod
    def of(cls, dataset: Dataset, train: int, validation: int, device: torch.device, network: str = "perceptron") -> Examples:
        """The first `train` official training examples train, the last `validation` validate, the official test set tests."""
        if train + validation > len(dataset.x_train):
            raise ConfigurationError(
                f"{train} training and {validation} validation examples asked for, and {dataset.name} has {len(dataset.x_train)}"
            )

        def tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
            pixels = torch.from_numpy(x.reshape(len(x), dataset.x_train[0].size)).to(device, torch.float32).div_(dataset.scale)
            return pixels, pixels if network == "autoencoder" else torch.from_numpy(y).to(device, torch.int64)

        held_out = slice(len(dataset.x_train) - validation, None)
        return cls(
            tensors(dataset.x_train[:train], dataset.y_train[:train]),
            tensors(dataset.x_train[held_out], dataset.y_train[held_out]),
            tensors(dataset.x_test, dataset.y_test),
            dataset.x_train[0].size if network == "autoencoder" else dataset.classes,
        )


_OWN = ("parameter", "running")


def stack_shape(config: RunConfig) -> tuple[Any, ...]:
    """What runs must share to be trained together."""
    return (
        config.dataset_sha256,
        config.train_examples,
        config.validation_examples,
        config.network,
        config.hidden,
        config.initialisation,
        config.normalisation,
        config.optimiser,
        config.batch_size,
        config.epochs,
        config.precision,
        config.test_noise,
        config.preprocessing,
        config.augmentation,
        config.engine,
    )


def optimiser(name: str, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """PyTorch's fused optimiser over parameter groups that hold their learning rates.

    `adam` (Kingma & Ba 2014, arXiv:1412.6980): beta 0.9 and 0.999, epsilon 1e-8 beside the root of the corrected second moment;
    `adam-tensorflow`: beside the root of the uncorrected one, as TensorFlow has it, which `StackTrainer.step` sees to; `sgd`;
    `momentum`: SGD with momentum 0.9, undamped.
    """
    if name in ("adam", "adam-tensorflow"):
        return torch.optim.Adam(groups, betas=ADAM_BETAS, eps=ADAM_EPSILON, fused=True)
    return torch.optim.SGD(groups, momentum=MOMENTUM if name == "momentum" else 0.0, fused=True)


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
        self.network = STACKS[first.network](
            (examples.train[0].shape[1], *first.hidden, examples.outputs),
            [config.activation for config in self.configs],
            [config.keep_probability for config in self.configs],
            [config.seed for config in self.configs],
            self._batch,
            device,
            initialisation=first.initialisation,
            input_second_moment=float(examples.train[0].cpu().square().mean(dtype=torch.float64)),
            normalisation=first.normalisation,
            precision=first.precision,
        )
        groups = []
        for rate, i, j in runs_of_equal([config.learning_rate for config in self.configs]):
            pairs = self.network.parameters(i, j)
            for value, gradient in pairs:
                value.grad = gradient
            groups.append({"params": [value for value, _ in pairs], "lr": rate})
        self._optimiser = optimiser(first.optimiser, groups)
        self._x = torch.empty(len(self.configs) * self._batch, examples.train[0].shape[1], device=device)
        self.steps = 0

    def state(self, index: int) -> dict[str, Tensor]:
        """Everything by which the run of that index goes on: copies on the CPU of its parameters, its running statistics and what
        the optimiser keeps of them."""
        found = {f"running {n}": values[index] for n, values in enumerate(self.network.running())}
        for n, (parameter, place) in enumerate(self._parameters_of(index)):
            found[f"parameter {n}"] = parameter[place]
            for name, value in self._optimiser.state[parameter].items():
                if value is not None:  # SGD without momentum
                    found[f"{name} {n}"] = value if value.ndim == 0 else value[place]
        return {name: value.detach().cpu().clone() for name, value in found.items()}

    def resume(self, states: Sequence[dict[str, Tensor]], steps: int) -> None:
        """Go on from what `state` gave for each run, in the order of `configs`, after so many steps."""
        self.steps = steps
        for index, state in enumerate(states):
            for n, values in enumerate(self.network.running()):
                values[index] = state[f"running {n}"].to(self.device)
            for n, (parameter, place) in enumerate(self._parameters_of(index)):
                parameter[place] = state[f"parameter {n}"].to(self.device)
                for name in [
                    name.removesuffix(f" {n}") for name in state if name.endswith(f" {n}") and name.split()[0] not in _OWN
                ]:
                    value = state[f"{name} {n}"].to(self.device)
                    kept = self._optimiser.state[parameter]
                    if value.ndim == 0:
                        kept[name] = value
                    else:
                        kept.setdefault(name, torch.zeros_like(parameter))[place] = value

    def _parameters_of(self, index: int) -> Iterator[tuple[Tensor, int]]:
        """The optimiser's parameters that hold the run of that index, and its place in them."""
        for group in self._optimiser.param_groups:
            size = len(group["params"][0])
            if index < size:
                return ((parameter, index) for parameter in group["params"])
            index -= size
        raise IndexError("no such run in the stack")

    def start_epoch(self, epoch: int) -> None:
        """Draw the minibatch orders of an epoch, counted from 0: runs of one seed see the same minibatches."""
        examples = len(self.examples.train[0])
        seeds = [config.seed for config in self.configs]
        drawn = {seed: minibatch_order(seed, epoch, examples) for seed in set(seeds)}
        kept = self.steps_per_epoch * self._batch
        orders = torch.stack([drawn[seed][:kept].view(self.steps_per_epoch, self._batch) for seed in seeds], 1)
        self._orders = orders.reshape(self.steps_per_epoch, -1).to(self.device)  # [steps, runs * batch]

    def step(self, step_of_epoch: int, measure_clean: bool) -> tuple[Tensor, Tensor]:
        """One update of every run; returns the losses as `Stack.training_step` does."""
        chosen = self._orders[step_of_epoch]
        shape = (len(self.configs), self._batch)
        inputs, targets = self.examples.train
        torch.index_select(inputs, 0, chosen, out=self._x)
        x = self._x.view(*shape, -1)
        losses = self.network.training_step(x, x if targets is inputs else targets[chosen].view(shape), self.steps, measure_clean)
        self.steps += 1
        if self.configs[0].optimiser == "adam-tensorflow":
            for group in self._optimiser.param_groups:
                # TensorFlow adds epsilon to the root of the uncorrected second moment, PyTorch to that of the corrected one
                group["eps"] = ADAM_EPSILON / (1 - ADAM_BETAS[1] ** self.steps) ** 0.5
        self._optimiser.step()
        return losses


class _Log:
    """Collects the curves of a stack, as float64 arrays with one value a run, and where each run first was not finite."""

    def __init__(self, runs: int, smoothing: float) -> None:
        self.curves: dict[str, list[np.ndarray]] = {}
        self.diverged_at = np.full(runs, -1)
        self._smoothing = smoothing
        self._smoothed: tuple[np.ndarray | None, np.ndarray | None] = (None, None)

    def state(self, index: int) -> dict[str, Any]:
        """What is known of one run, as plain numbers and lists."""
        return {
            "curves": {name: [float(values[index]) for values in rows] for name, rows in self.curves.items()},
            "diverged_at": int(self.diverged_at[index]),
            "smoothed": [float(values[index]) for values in self._smoothed if values is not None],
        }

    def resume(self, states: Sequence[dict[str, Any]]) -> None:
        """Go on from what `state` gave for each run."""
        names = states[0]["curves"]
        self.curves = {name: list(np.array([state["curves"][name] for state in states]).T) for name in names}
        self.diverged_at = np.array([state["diverged_at"] for state in states])
        first, second = np.array([state["smoothed"] for state in states]).T
        self._smoothed = (first, second)

    def add(self, name: str, values: np.ndarray, step: int) -> None:
        """Append values [runs] measured after `step` updates."""
        self.curves.setdefault(name, []).append(values)
        self.mark(values[None], step, step)

    def latest(self) -> dict[str, list[float]]:
        """Of each curve the last value of every run."""
        return {name: rows[-1].tolist() for name, rows in self.curves.items()}

    def mark(self, values: np.ndarray, first: int, last: int) -> None:
        """Note the first step at which a run's value was not finite; values [times, runs] at steps first to last."""
        steps = np.linspace(first, last, len(values)).astype(int)
        bad = ~np.isfinite(values)
        news = bad.any(0) & (self.diverged_at < 0)
        self.diverged_at[news] = steps[bad.argmax(0)[news]]

    def add_minibatches(self, trained: np.ndarray, clean: np.ndarray, chance: np.ndarray, apart: int, step: int) -> None:
        """Append mean and smoothed training loss of a third, without chance.

        `trained` holds the losses that were differentiated, [steps, runs]: what runs without dropout need. `clean` holds the losses
        with dropout off, measured `apart` steps apart: what the others, marked in `chance` [runs], need.
        """
        means, ends = [], []
        for losses, begin, weight in (
            (clean, self._smoothed[0], self._smoothing**apart),
            (trained, self._smoothed[1], self._smoothing),
        ):
            smoothed = losses[0] if begin is None else begin
            for loss in losses[int(begin is None) :]:
                smoothed = weight * smoothed + (1 - weight) * loss
            means.append(losses.mean(0))
            ends.append(smoothed)
        self._smoothed = (ends[0], ends[1])
        self.add("train_loss", np.where(chance, *means), step)
        self.add("train_loss_smoothed", np.where(chance, *ends), step)


def train(
    configs: Sequence[RunConfig],
    dataset: Dataset,
    device: torch.device,
    progress: Progress = lambda steps: None,
    checkpoints: Checkpoints | None = None,
    deadline: Deadline = NEVER,
    observe: Observe = unobserved,
) -> list[RunRecord]:
    """Train the runs together on the device and return their records, in the order of `configs`.

    With `checkpoints`, training goes on from what they hold, the same for every run of the stack (`Checkpoints.epoch`), and leaves
    one of each run now and then, and at the end where they are kept. Before an epoch that would end after the `deadline` it stops,
    leaves checkpoints and returns nothing. What was measured is shown to `observe` three times an epoch. Raises
    `ConfigurationError` when the runs do not fit in one stack or with the data.
    """
    source_revision()  # now: the checkout may move on while the stack trains
    first = configs[0]
    if dataset.name != first.dataset:
        raise ConfigurationError(f"the runs are on {first.dataset}, and the data are {dataset.name}")
    started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    examples = Examples.of(dataset, first.train_examples, first.validation_examples, device, first.network)
    trainer = StackTrainer(configs, examples, device)
    runs, per_epoch = len(configs), trainer.steps_per_epoch
    apart = CLEAN_EVERY if per_epoch >= LOGS_PER_EPOCH * CLEAN_EVERY else 1
    chance = np.array([config.keep_probability < 1 or config.activation in activations.STOCHASTIC for config in trainer.configs])
    marks = [per_epoch * (third + 1) // LOGS_PER_EPOCH for third in range(LOGS_PER_EPOCH)]
    trained = torch.zeros(per_epoch, runs, device=device)
    clean = torch.zeros(-(-per_epoch // apart), runs, device=device)
    log = _Log(runs, SMOOTHING[first.network])
    environment = {
        **environment_of(device),
        **({"products": products.in_use()} if device.type == "cpu" else {}),
        "stack": runs,
        "company": hashlib.sha256("".join(sorted(config.key for config in configs)).encode()).hexdigest()[:12],
        "started": started.isoformat(timespec="seconds"),
    }
    begin_epoch, earlier = 0, []
    if checkpoints and (found := checkpoints.read(trainer.configs)):
        begin_epoch, earlier = found[0].epoch, found[0].parts
        trainer.resume([part.tensors for part in found], begin_epoch * per_epoch)
        log.resume([part.log for part in found])
        progress(begin_epoch * per_epoch)

    def part(epoch: int) -> dict[str, Any]:
        """What is to be known of the training so far if it goes on elsewhere."""
        return {**environment, "seconds": round(time.perf_counter() - clock, 1), "epochs": [begin_epoch + 1, epoch]}

    saved = clock
    with _flushed_subnormals():
        for epoch in range(begin_epoch, first.epochs):
            began = time.perf_counter()
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
                log.add_minibatches(_numpy(trained[begin:mark]), third_clean, chance, apart, done)
                if first.validation_examples:
                    for name, values in zip(MEASURES[first.network], trainer.network.evaluate(*examples.validation), strict=True):
                        log.add(f"validation_{name}", _numpy(values), done)
                observe(trainer.configs, done / per_epoch, log.latest())
                progress(mark - begin)
                begin = mark
            log.add("train_loss_epoch", np.where(chance, _numpy(clean).mean(0), _numpy(trained).mean(0)), done)
            for name, values in zip(MEASURES[first.network], trainer.network.evaluate(*examples.test), strict=True):
                log.add(f"test_{name}", _numpy(values), done)
            if (log.diverged_at >= 0).all():
                break
            last = epoch + 1 == first.epochs
            due = checkpoints is not None and time.perf_counter() - saved >= checkpoints.every
            out_of_time = not last and deadline.before_another(time.perf_counter() - began)
            if checkpoints and (checkpoints.keep if last else due or out_of_time):
                for index, config in enumerate(trainer.configs):
                    state = Checkpoint(epoch + 1, trainer.state(index), log.state(index), [*earlier, part(epoch + 1)])
                    checkpoints.write(config, state)
                saved = time.perf_counter()
            if out_of_time:
                return []
    full = [_numpy(values) for values in trainer.network.evaluate(*examples.train)]
    log.mark(np.stack(full), trainer.steps, trainer.steps)
    further = _after_training(trainer.network, examples, first.test_noise, log, trainer.steps)
    environment["seconds"] = round(time.perf_counter() - clock, 1)
    if earlier:  # the whole training's time, and what happened elsewhere
        environment["earlier"] = earlier
        environment["seconds"] = round(environment["seconds"] + sum(before["seconds"] for before in earlier), 1)
    made = {
        config.key: _record(
            config,
            log,
            index,
            [values[index] for values in full],
            {name: values[index] for name, values in further.items()},
            {**environment, "train_loss_every": apart if chance[index] else 1},
        )
        for index, config in enumerate(trainer.configs)
    }
    return [made[config.key] for config in configs]


def _after_training(
    network: Stack, examples: Examples, noise: Sequence[float], log: _Log, steps: int
) -> dict[str, list[list[float]] | list[list[int]]]:
    """What is measured once, at the end, a list for each run: loss and error on noisy test inputs, the places of wrong answers.

    One draw of Unif[-1, 1] is scaled to every width, the same for all runs: what differs between widths and runs is not the noise.
    """
    if not noise:
        return {}
    assert isinstance(network, PerceptronStack)
    x, labels = examples.test
    unit = torch.rand(x.shape, generator=generator(0, "test noise")).mul_(2).sub_(1).to(x.device)
    found = [network.evaluate(x + width * unit, labels) for width in noise]
    losses, errors = (np.stack([_numpy(pair[kind]) for pair in found]) for kind in (0, 1))
    log.mark(losses, steps, steps)
    wrong = network.wrong(x, labels).cpu()
    return {
        "noise_loss": losses.T.tolist(),
        "noise_error": errors.T.tolist(),
        "test_wrong": [row.nonzero().flatten().tolist() for row in wrong],
    }


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


def _record(
    config: RunConfig, log: _Log, index: int, full: list[float], further: dict[str, Any], environment: dict[str, Any]
) -> RunRecord:
    curves = {name: [float(values[index]) for values in rows] for name, rows in log.curves.items()}
    step = int(log.diverged_at[index])
    if step >= 0:
        return records.diverged(config, step, curves, environment)
    return records.finished(config, curves, full, environment, further)
