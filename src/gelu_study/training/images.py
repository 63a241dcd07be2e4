"""Trains convolutional networks one at a time and returns a record for each.

Every epoch leaves loss and error in training (of the minibatches, dropout and augmentation on, before their update), on validation
and on test data, the latter for evaluation alone. On a GPU data stay there and a step is captured once and replayed; nothing waits
for it before the epoch's end.
"""

from __future__ import annotations

import datetime
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional

from gelu_study.checkpoints import Checkpoint, Checkpoints
from gelu_study.datasets import Dataset
from gelu_study.errors import CheckpointWarning, ConfigurationError
from gelu_study.networks import FastConvNet, convolutional
from gelu_study.random_streams import stream_seed
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.training import records
from gelu_study.training.environment import NEVER, Deadline, Observe, Progress, environment_of, source_revision, unobserved
from gelu_study.training.images_data import Images
from gelu_study.training.optimisers import optimiser
from gelu_study.training.stacks import stack_shape

EVALUATION_BATCH = 500
WHITENING_IMAGES = 5_000
"""Training images whose patches the fast network's first layer is made from."""
_SAY_EVERY = 20
"""Steps between two reports of progress."""


class ImageTrainer:
    """The training state of one run; `step` takes one minibatch.

    Raises `ConfigurationError` for a precision that the device does not have.
    """

    def __init__(self, config: RunConfig, images: Images, device: torch.device) -> None:
        if config.precision == "tf32" and device.type != "cuda":
            raise ConfigurationError(f"precision tf32 is for CUDA devices, and this one is {device.type}; use float32 or bfloat16")
        self.config, self.device, self.images = config, device, images
        self.network = convolutional(
            config.network, config.hidden, images.classes, config.activation, config.keep_probability, config.seed
        )
        if isinstance(self.network, FastConvNet):
            self.network.whiten(next(self.images.part("train", WHITENING_IMAGES))[0].cpu())
        self.network.to(device)
        self._optimiser = optimiser(self.network, config)
        for value in self._optimiser.parameters:
            value.grad = torch.zeros_like(value)
        self.steps = 0
        zeros = [torch.zeros(config.batch_size, dtype=torch.int64, device=device) for _ in range(3)]
        self._minibatch = (*zeros, torch.zeros(config.batch_size, dtype=torch.bool, device=device))
        self._measured = torch.zeros(2, device=device)
        self._losses, self._errors = (torch.zeros(config.steps_per_epoch, device=device) for _ in range(2))
        self._update: Callable[[], object] = self._eager
        if device.type == "cuda":
            self._update = _captured(self._eager, [*self.state().values()])

    def state(self) -> dict[str, Tensor]:
        """What the run goes on from: the network's parameters and buffers and what the optimiser keeps; not copies."""
        return {f"network {name}": value for name, value in self.network.state_dict().items()} | self._optimiser.state()

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether these could be copies of what `state` gives."""
        state = self.state()
        return state.keys() == tensors.keys() and all(value.shape == tensors[name].shape for name, value in state.items())

    @torch.no_grad()
    def resume(self, tensors: dict[str, Tensor], steps: int) -> None:
        """Go on from copies of what `state` gave, after so many steps."""
        for name, value in self.state().items():
            value.copy_(tensors[name])
        self.steps = steps

    def train_epoch(self, epoch: int, progress: Progress) -> tuple[list[float], float]:
        """Train the epoch of that number, counted from 0: the loss of each minibatch, in nats, and the error in percent."""
        drawn = self.images.epoch(self.config, epoch)
        torch.manual_seed(stream_seed(self.config.seed, "dropout and noise", epoch) >> 1)
        self.network.train()
        said = 0
        for place in range(self.config.steps_per_epoch):
            parts = (drawn.chosen, drawn.rows, drawn.columns, drawn.mirrored)
            for held, values in zip(self._minibatch, parts, strict=True):
                held.copy_(values[place])
            self._optimiser.prepare(self.steps)
            self._update()
            self._optimiser.finish_step(self.steps)
            self._losses[place], self._errors[place] = self._measured[0], self._measured[1]
            self.steps += 1
            if (place + 1) % _SAY_EVERY == 0:
                progress(place + 1 - said)
                said = place + 1
        progress(self.config.steps_per_epoch - said)
        if self.steps == self.config.epochs * self.config.steps_per_epoch:
            self._optimiser.finish()
        return self._losses.tolist(), float(self._errors.cpu().mean(dtype=torch.float64)) * 100

    def _eager(self) -> None:
        """One update from the minibatch that is held; leaves its loss and its share of errors."""
        config = self.config
        x = self.images.batch(*self._minibatch)
        labels = self.images.labels["train"].index_select(0, self._minibatch[0])
        if config.input_noise:
            x = x + config.input_noise * torch.randn_like(x)
        with self._precision():
            logits = self.network(x).float()
        loss = functional.cross_entropy(logits, labels, label_smoothing=config.label_smoothing)
        for value in self._optimiser.parameters:
            assert value.grad is not None
            value.grad.zero_()
        loss.backward()
        self._optimiser.step()
        self._measured[0].copy_(loss.detach())
        self._measured[1].copy_((logits.detach().argmax(1) != labels).float().mean())

    @torch.no_grad()
    def evaluate(self, part: str, views: int = 1) -> tuple[float, float]:
        """Mean log loss in nats and error in percent on "train", "validation" or "test", without chance.

        With 6 views, outputs are averaged over an image, weight 1/2, and the image shifted by a pixel down and right, and up and
        left, border mirrored, weight 1/4 each, all three also mirrored (Jordan 2024, arXiv:2404.00498).
        """
        self.network.eval()
        lost, wrong = [], []
        for x, labels in self.images.part(part, EVALUATION_BATCH):
            logits = torch.zeros((), device=self.device)
            for weight, view in _views(x) if views > 1 else [(1.0, x)]:
                with self._precision():
                    logits = logits + weight * self.network(view).float()
            lost.append(functional.cross_entropy(logits, labels, reduction="sum"))
            wrong.append((logits.argmax(1) != labels).sum())
        count = len(self.images.labels[part])
        return sum(torch.stack(lost).tolist()) / count, 100 * sum(torch.stack(wrong).tolist()) / count

    @contextmanager
    def _precision(self) -> Iterator[None]:
        lower = self.config.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if lower else nullcontext():
            yield


def _views(x: Tensor) -> Iterator[tuple[float, Tensor]]:
    padded = functional.pad(x, (1, 1, 1, 1), mode="reflect")
    side = x.shape[-1]
    for weight, begin in ((0.5, 1), (0.25, 0), (0.25, 2)):
        view = padded[:, :, begin : begin + side, begin : begin + side]
        for mirrored in (view, view.flip(3)):
            yield weight / 2, mirrored.contiguous(memory_format=torch.channels_last)


def _captured(step: Callable[[], object], state: Sequence[Tensor]) -> Callable[[], object]:
    """A step as a CUDA graph, captured after three steps that leave no trace in `state`."""
    kept = [value.detach().clone() for value in state]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    with torch.no_grad():
        for value, before in zip(state, kept, strict=True):
            value.copy_(before)
    return graph.replay


def train(
    configs: Sequence[RunConfig],
    dataset: Dataset,
    device: torch.device,
    progress: Progress = lambda steps: None,
    checkpoints: Checkpoints | None = None,
    deadline: Deadline = NEVER,
    observe: Observe = unobserved,
) -> Iterator[RunRecord]:
    """Train the runs one after the other on the device and yield the record of each as it ends, in the order of `configs`.

    With `checkpoints`, a run goes on from its own, and leaves one now and then, and at the end where they are kept. Before an epoch
    that would end after the `deadline` training stops and leaves a checkpoint. What was measured is shown to `observe` at each
    epoch's end.

    Raises `ConfigurationError` when a run does not fit with the data or into the memory.
    """
    first = configs[0]
    if len({stack_shape(config) for config in configs}) != 1:
        raise ConfigurationError("runs trained together must share data, shapes, batch size, number of epochs and precision")
    if dataset.name != first.dataset:
        raise ConfigurationError(f"the runs are on {first.dataset}, and the data are {dataset.name}")
    source_revision()  # now: the checkout may move on meanwhile
    with _within_memory(first, device):
        images = Images(dataset, first, device)
        epoch = 0.0  # seconds that one of the run before took
        for config in configs:
            if deadline.before_another(epoch):
                return
            began = time.perf_counter()
            with settings(config, device):
                record = _train_one(config, images, device, progress, checkpoints, deadline, observe)
            if record is None:
                return
            epoch = (time.perf_counter() - began) / config.epochs
            yield record


def _train_one(
    config: RunConfig,
    images: Images,
    device: torch.device,
    progress: Progress,
    checkpoints: Checkpoints | None,
    deadline: Deadline,
    observe: Observe,
) -> RunRecord | None:
    started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    trainer = ImageTrainer(config, images, device)
    environment = {**environment_of(device), "stack": 1, "started": started.isoformat(timespec="seconds")}
    curves: dict[str, list[float]] = {name: [] for name in config.curves}
    begin_epoch, earlier = 0, []
    if checkpoints and (found := _checkpoint(checkpoints, config, trainer)):
        begin_epoch, earlier, curves = found.epoch, found.parts, found.log["curves"]
        trainer.resume(found.tensors, begin_epoch * config.steps_per_epoch)
        progress(trainer.steps)

    saved = clock
    for epoch in range(begin_epoch, config.epochs):
        began = time.perf_counter()
        losses, error = trainer.train_epoch(epoch, progress)
        measured = {"train_loss_epoch": sum(losses) / len(losses), "train_error_epoch": error}
        for part in ["validation", "test"] if config.validation_examples else ["test"]:
            measured[f"{part}_loss"], measured[f"{part}_error"] = trainer.evaluate(part)
        bad = _first_bad(losses, measured)
        if bad is not None:
            step = epoch * config.steps_per_epoch + bad
            return records.diverged(config, step, curves, _spent(environment, clock, earlier))
        for name, value in measured.items():
            curves[name].append(value)
        observe([config], epoch + 1, {name: [value] for name, value in measured.items()})
        last = epoch + 1 == config.epochs
        due = checkpoints is not None and time.perf_counter() - saved >= checkpoints.every
        out_of_time = not last and deadline.before_another(time.perf_counter() - began)
        if checkpoints and (checkpoints.keep if last else due or out_of_time):
            part_done = {**_spent(environment, clock, []), "epochs": [begin_epoch + 1, epoch + 1]}
            tensors = {name: value.detach().cpu().clone() for name, value in trainer.state().items()}
            checkpoints.write(config, Checkpoint(epoch + 1, tensors, {"curves": curves}, [*earlier, part_done]))
            saved = time.perf_counter()
        if out_of_time:
            return None
    full = trainer.evaluate("train")
    views = trainer.evaluate("test", config.test_views) if config.test_views > 1 else ()
    return records.finished(config, curves, (*full, *views), _spent(environment, clock, earlier))


def _checkpoint(checkpoints: Checkpoints, config: RunConfig, trainer: ImageTrainer) -> Checkpoint | None:
    """The run's checkpoint, if it can go on from it; another is deleted, for it would bar the way to those of this run."""
    for found in checkpoints.read([config]):
        lengths = {name: len(curve) for name, curve in found.log.get("curves", {}).items()}
        if lengths == dict.fromkeys(config.curves, found.epoch) and trainer.fits(found.tensors):
            return found
        message = f"{checkpoints.path(config)} is no usable checkpoint (it does not hold what it should); the run starts over"
        warnings.warn(message, CheckpointWarning, stacklevel=2)
        checkpoints.remove([config])
    return None


def _first_bad(losses: Sequence[float], measured: Mapping[str, float]) -> int | None:
    """The step of the epoch, counted from 1, at which the run first was not finite, if it was; measures come at its end."""
    bad = next((place for place, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
    return len(losses) if bad is None and not all(map(math.isfinite, measured.values())) else bad


def _spent(environment: dict[str, Any], clock: float, earlier: list[dict[str, Any]]) -> dict[str, Any]:
    """The environment with the seconds since `clock`, and before it elsewhere."""
    seconds = time.perf_counter() - clock + sum(before["seconds"] for before in earlier)
    return {**environment, **({"earlier": earlier} if earlier else {}), "seconds": round(seconds, 1)}


@contextmanager
def settings(config: RunConfig, device: torch.device) -> Iterator[None]:
    """PyTorch's global switches and current device as the run wants them, and its global random numbers, restored afterwards."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark
    seeded = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # `torch.manual_seed` seeds them all
    # streams and graphs belong to the current device, whatever device their tensors are on
    with torch.random.fork_rng(seeded), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        matmul.allow_tf32 = convolution.allow_tf32 = config.precision == "tf32"
        convolution.benchmark = True
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32, convolution.benchmark = before


@contextmanager
def _within_memory(config: RunConfig, device: torch.device) -> Iterator[None]:
    """Refuse a batch that memory does not hold, before training or when PyTorch finds it out."""
    free = _free_memory(device)
    needed = memory(config)
    if needed > free:
        raise ConfigurationError(_too_little(config, device, free))
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error):
            raise ConfigurationError(_too_little(config, device, _free_memory(device))) from error
        raise


def _free_memory(device: torch.device) -> int:
    """Bytes that can be allocated on the device."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by PyTorch, from runs that ended
    return torch.cuda.mem_get_info(device)[0] + kept


def _too_little(config: RunConfig, device: torch.device, free: int) -> str:
    fits = config.batch_size
    while fits > 1 and memory(config, fits) > free:
        fits //= 2
    hint = f"a batch of {fits} would fit" if memory(config, fits) <= free else "no batch would fit"
    return (
        f"{config.network} with a batch of {config.batch_size} takes about {memory(config) / 2**30:.1f} GiB, and {device.type} has "
        f"{free / 2**30:.1f} GiB free; {hint}; free some memory, or train on another device"
    )


def memory(config: RunConfig, batch_size: int | None = None) -> int:
    """Bytes that training takes, roughly, with the run's batch size or another: data, weights and what backpropagation keeps."""
    network = convolutional(config.network, config.hidden, 10, config.activation, config.keep_probability, config.seed)
    side = 16 if config.dataset == "digits" else 32
    kept = 0

    def count(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
        nonlocal kept
        kept += output[0].numel()

    for layer in network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(count)
    with torch.no_grad():
        network.eval()(torch.zeros(1, 3, side, side))
    each = 2 if config.precision == "bfloat16" else 4
    pixel = 4 if config.preprocessing == "zca" else 1
    copies = 1 if config.augmentation == "none" else 2  # with a border
    data = pixel * 3 * side**2 * (copies * config.train_examples + config.validation_examples + 10_000)
    weights = 5 * 4 * sum(value.numel() for value in network.parameters())
    return data + weights + each * kept * max(batch_size or config.batch_size, EVALUATION_BATCH // 3)
