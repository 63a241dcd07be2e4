"""Training of convolutional networks: optimisers, schedules and whole runs against plain loops, and what a run must not depend on."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import types
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from gelu_study import paths, protocols, training
from gelu_study.checkpoints import Checkpoints
from gelu_study.datasets import Dataset
from gelu_study.errors import CheckpointWarning, ConfigurationError
from gelu_study.ledger import Ledger
from gelu_study.networks import convolutional
from gelu_study.random_streams import stream_seed
from gelu_study.runs import CHOICES, RunConfig, RunRecord
from gelu_study.training import images as engine
from gelu_study.training import optimisers, schedules
from gelu_study.training.environment import Deadline
from gelu_study.training.images import ImageTrainer
from gelu_study.training.images_data import Images

CPU = torch.device("cpu")
CHANNELS = {
    "cifar10-convnet": (4,) * 3 + (6,) * 6,
    "cifar100-wrn": (4, 6, 6, 8, 8),
    "cifar10-fast": (8, 8, 12, 12),
}


def configured(experiment: str, **fields) -> RunConfig:
    """A run of the smoke scale, smaller: six minibatches an epoch, twelve with mirrored copies."""
    first = protocols.plan(experiment, "smoke", activations=["gelu_tanh"], seeds=[0])[0]
    small = {"hidden": CHANNELS[experiment], "train_examples": 192, "validation_examples": 48, "batch_size": 32, "epochs": 3}
    return dataclasses.replace(first, **small | fields)


SHALLOW, WIDE, FAST = (configured(experiment) for experiment in CHANNELS)
EVERY = [SHALLOW, WIDE, FAST]
each = pytest.mark.parametrize("config", EVERY, ids=[config.network for config in EVERY])


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """One thread, so that sums have one order, and a cache of its own."""
    monkeypatch.setattr(paths, "RAW", tmp_path / "raw")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(digits) -> Dataset:
    return dataclasses.replace(digits, x_test=digits.x_test[:80], y_test=digits.y_test[:80])


def train(configs: list[RunConfig], data: Dataset, **options) -> list[RunRecord]:
    return list(training.train(configs, data, CPU, **options))


def result(record: RunRecord) -> tuple:
    return record.config, record.status, record.diverged, record.curves, record.final, record.best


# ------------------------------------------------------------------------------------------------------- schedules


def test_half_then_linear_is_the_papers_formula():
    for epoch in range(200):
        for step in (0, 499):
            found = schedules.learning_rate_factor("half-then-linear", epoch * 500 + step, 100_000, 500)
            assert found == pytest.approx(min(2 - epoch / 100, 1), abs=1e-12)
            beta = schedules.first_moment_decay("half-then-linear", epoch * 500 + step, 100_000, 500)
            assert beta == (0.9 if epoch < 100 else 0.5)
    assert {schedules.first_moment_decay(name, 99_999, 100_000, 500) for name in ("constant", "cosine", "triangle")} == {0.9}


def test_cosine_is_half_a_period():
    steps = 781 * 50
    found = [schedules.learning_rate_factor("cosine", step, steps, 781) for step in range(0, steps + 1, 781)]
    np.testing.assert_allclose(found, 0.5 * (1 + np.cos(np.pi * np.linspace(0, 1, 51))), atol=1e-12)
    assert found[0] == 1 and found[-1] == pytest.approx(0, abs=1e-12) and found[25] == pytest.approx(0.5)


def test_triangle_is_straight_between_its_corners():
    found = [schedules.learning_rate_factor("triangle", step, 480, 48) for step in range(480)]
    np.testing.assert_allclose(found, np.interp(np.arange(480) / 480, [0, 0.23, 1], [0.2, 1, 0.07]), atol=1e-12)
    exactly = [schedules.learning_rate_factor("triangle", step, 100, 10) for step in (0, 23, 100)]
    assert exactly == pytest.approx([0.2, 1, 0.07])


def test_unknown_schedules_are_refused():
    assert schedules.learning_rate_factor("constant", 3, 10, 5) == 1
    with pytest.raises(ConfigurationError, match="unknown schedule 'step'"):
        schedules.learning_rate_factor("step", 3, 10, 5)


@given(
    schedule=st.sampled_from(CHOICES["fast-convnet"]["schedule"]),
    epochs=st.integers(1, 300),
    per_epoch=st.integers(1, 2_000),
    share=st.floats(0, 1, exclude_max=True),
)
def test_factors_lie_between_0_and_1(schedule, epochs, per_epoch, share):
    steps = epochs * per_epoch
    factor = schedules.learning_rate_factor(schedule, int(share * steps), steps, per_epoch)
    assert 0 < factor <= 1
    assert schedules.first_moment_decay(schedule, int(share * steps), steps, per_epoch) in (0.5, 0.9)


# ------------------------------------------------------------------------------------------------------ optimisers


def short(config: RunConfig, epochs: int, **fields) -> RunConfig:
    """An epoch is a step, or two where mirrored copies double it."""
    return dataclasses.replace(config, epochs=epochs, train_examples=32, augmentation="none", **fields)


def gradients(network: nn.Module, steps: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(2)
    return [[rng.normal(size=tuple(v.shape)) for v in network.parameters() if v.requires_grad] for _ in range(steps)]


def moved(network: nn.Module, config: RunConfig, given: list[list[np.ndarray]], finish: bool = True) -> dict[str, np.ndarray]:
    """The state of a network after steps with these gradients."""
    stepping = optimisers.optimiser(network, config)
    trainable = [value for value in network.parameters() if value.requires_grad]
    for value in trainable:
        value.grad = torch.zeros_like(value)
    for step, values in enumerate(given):
        for parameter, gradient in zip(trainable, values, strict=True):
            parameter.grad.copy_(torch.from_numpy(gradient))
        stepping.prepare(step)
        stepping.step()
        stepping.finish_step(step)
    if finish:
        stepping.finish()
    return {name: value.detach().double().numpy() for name, value in network.state_dict().items()}


def trained_by_name(network: nn.Module) -> dict[str, np.ndarray]:
    named = network.named_parameters()
    return {name: value.detach().double().numpy().copy() for name, value in named if value.requires_grad}


def made(config: RunConfig) -> nn.Module:
    return convolutional(config.network, config.hidden, 10, config.activation, config.keep_probability, config.seed)


@pytest.mark.parametrize("scale", [1.0, 1e-4])  # where epsilon under the root is nothing, and where it is all
def test_adam_as_the_papers_theano_code(scale):
    config = short(SHALLOW, 10, learning_rate=0.01)
    network = made(config)
    weights = trained_by_name(network)
    given = [[scale * g for g in step] for step in gradients(network, 10)]
    found = moved(network, config, given)
    first, second = ({name: np.zeros_like(w) for name, w in weights.items()} for _ in range(2))
    for epoch, step in enumerate(given):
        t = epoch + 1
        rate, beta = 0.01 * min(2 - epoch / 5, 1), 0.9 if epoch < 5 else 0.5
        for (name, w), g in zip(weights.items(), step, strict=True):
            first[name] = beta * first[name] + (1 - beta) * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            corrected = first[name] / (1 - beta**t), second[name] / (1 - 0.999**t)
            weights[name] = w - rate * corrected[0] / np.sqrt(corrected[1] + 1e-8)
    for name, w in weights.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_nesterov_as_lasagne_writes_it(momentum):
    config = short(WIDE, 6, learning_rate=0.03, schedule="constant", weight_decay=0.02, momentum=momentum)
    network = made(config)
    with torch.no_grad():
        for value in network.parameters():
            value += 0.3  # so that a decay of any would be seen
    weights = trained_by_name(network)
    given = gradients(network, 6)
    found = moved(network, config, given)
    velocity = {name: np.zeros_like(w) for name, w in weights.items()}
    for step in given:
        for (name, w), g in zip(weights.items(), step, strict=True):
            decayed = g if name.endswith("bias") else g + 0.02 * w  # scales of normalisations too, not shifts and biases
            velocity[name] = momentum * velocity[name] - 0.03 * decayed
            weights[name] = w + momentum * velocity[name] - 0.03 * decayed
    for name, w in weights.items():
        np.testing.assert_allclose(found[name], w, rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("finish", [True, False])
def test_shifts_learn_faster_and_the_network_is_averaged_with_lookahead(finish):
    steps = 12
    config = short(FAST, steps, learning_rate=0.002, weight_decay=0.05)
    network = made(config)
    fixed = {name: value.double().numpy().copy() for name, value in network.state_dict().items()}
    weights = trained_by_name(network)
    statistics = {name: value for name, value in fixed.items() if "running" in name}
    given = gradients(network, steps)
    found = moved(network, config, given, finish)
    velocity = {name: np.zeros_like(w) for name, w in weights.items()}
    average = {name: w.copy() for name, w in (weights | statistics).items()}
    for step, values in enumerate(given):
        rate = 0.002 * np.interp(step / steps, [0, 0.23, 1], [0.2, 1, 0.07])
        for (name, w), g in zip(weights.items(), values, strict=True):
            factor = 64 if w.ndim == 1 and "whitening" not in name else 1
            velocity[name] = 0.85 * velocity[name] + g + 0.05 / factor * w
            weights[name] = w - rate * factor * (g + 0.05 / factor * w + 0.85 * velocity[name])
        if step + 1 in (5, 10):
            kept = 0.95**5 * ((step + 1) / steps) ** 3
            for name in weights:
                average[name] = weights[name] = kept * average[name] + (1 - kept) * weights[name]
    expected = average if finish else weights
    for name in weights:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=2e-6, err_msg=name)
    for name in fixed.keys() - weights.keys():
        np.testing.assert_array_equal(found[name], fixed[name])
    assert not np.allclose(weights["output.weight"], average["output.weight"], atol=1e-4)  # so that the end of training counts


def test_lookahead_averages_batch_statistics_too():
    config = short(FAST, 5)
    network = made(config)
    stepping = optimisers.optimiser(network, config)
    moving = network.state_dict()["features.3.running_mean"]
    moving.fill_(2.0)  # the average began at 0
    stepping.finish_step(3)
    assert (moving == 2).all()
    stepping.finish_step(4)
    torch.testing.assert_close(moving, torch.full_like(moving, 2 * (1 - 0.95**5)))


# ------------------------------------------------------------------------------------------------- a training step


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_epochs_against_a_plain_loop(data, smoothing):
    """Shallow network, noise, dropout, Adam: by PyTorch's own functions and the optimiser's formula."""
    config = dataclasses.replace(SHALLOW, label_smoothing=smoothing, epochs=2)
    images = Images(data, config, CPU)
    trainer, plain = ImageTrainer(config, images, CPU), made(config).train()
    parameters = list(plain.parameters())
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    step = 0
    for epoch in range(2):
        drawn = images.epoch(config, epoch)
        losses, wrong = [], 0
        beta, rate = 0.5 if epoch else 0.9, config.learning_rate  # min(2 - epoch / 1, 1)
        with torch.random.fork_rng():
            found = trainer.train_epoch(epoch, lambda steps: None)
            torch.manual_seed(stream_seed(config.seed, "dropout and noise", epoch) >> 1)
            for place, chosen in enumerate(drawn.chosen):
                x = images.batch(*(values[place] for values in vars(drawn).values()))
                logits = plain(x + 0.15 * torch.randn_like(x))
                labels = torch.from_numpy(data.y_train).long()[chosen]
                target = functional.one_hot(labels, 10) * (1 - smoothing) + smoothing / 10
                loss = -(target * logits.log_softmax(1)).sum(1).mean()
                losses.append(loss.item())
                wrong += (logits.argmax(1) != labels).sum().item()
                step += 1
                with torch.no_grad():
                    for p, g, m, v in zip(parameters, torch.autograd.grad(loss, parameters), first, second, strict=True):
                        m.copy_(beta * m + (1 - beta) * g)
                        v += 0.001 * (g * g - v)
                        p -= rate * (m / (1 - beta**step)) / (v / (1 - 0.999**step) + 1e-8).sqrt()
        np.testing.assert_allclose(found[0], losses, rtol=1e-3)
        assert found[1] == pytest.approx(100 * wrong / config.train_examples, abs=0.6)
    after = trainer.network.state_dict()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(after[name], value, rtol=1e-2, atol=1e-3)


def test_noise_is_in_training_alone(data):
    quiet, loud = ({**vars(SHALLOW), "input_noise": noise, "keep_probability": 1.0} for noise in (0.0, 3.0))
    trainers = [ImageTrainer(config, Images(data, config, CPU), CPU) for config in (RunConfig(**quiet), RunConfig(**loud))]
    assert trainers[0].evaluate("test") == trainers[1].evaluate("test")
    with torch.random.fork_rng():
        losses = [trainer.train_epoch(0, lambda steps: None)[0] for trainer in trainers]
    assert losses[0][0] != losses[1][0]


def test_evaluation_against_a_plain_mean(data, monkeypatch):
    monkeypatch.setattr(engine, "EVALUATION_BATCH", 30)  # the last piece is smaller
    trainer = ImageTrainer(FAST, Images(data, FAST, CPU), CPU)
    x, labels = next(trainer.images.part("test", 80))
    with torch.no_grad():
        logits = trainer.network.eval()(x).double()
    losses = logits.logsumexp(1) - logits[torch.arange(80), labels]
    loss, error = trainer.evaluate("test")
    assert loss == pytest.approx(losses.mean().item(), rel=1e-5)
    assert error == pytest.approx(100 * (logits.argmax(1) != labels).double().mean().item())


def test_six_views_against_a_loop_over_images(data):
    trainer = ImageTrainer(FAST, Images(data, FAST, CPU), CPU)
    network = trainer.network
    with torch.no_grad():
        for value in network.parameters():
            if value.ndim > 1 and value.requires_grad:
                value.add_(0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))
    network.eval()
    total, wrong = 0.0, 0
    x, labels = next(trainer.images.part("test", 80))
    for image, label in zip(x.numpy(), labels.tolist(), strict=True):
        padded = np.pad(image, [(0, 0), (1, 1), (1, 1)], mode="reflect")
        mean = torch.zeros(10)
        for weight, row, column in ((0.5, 1, 1), (0.25, 0, 0), (0.25, 2, 2)):
            view = padded[:, row : row + 16, column : column + 16]
            for seen in (view, view[..., ::-1]):
                with torch.no_grad():
                    mean += weight / 2 * network(torch.from_numpy(seen.copy())[None])[0]
        total -= mean.log_softmax(0)[label].item()
        wrong += int(mean.argmax()) != label
    loss, error = trainer.evaluate("test", 6)
    assert loss == pytest.approx(total / 80, rel=1e-5) and error == pytest.approx(100 * wrong / 80)
    assert loss != trainer.evaluate("test")[0]


# ------------------------------------------------------------------------------------- what a CUDA graph asks for


@each
def test_capturing_a_step_leaves_no_trace(config, data, monkeypatch):
    """With stand-ins for CUDA's streams and graphs: steps before and in the capture are undone, and the epoch is what it was."""
    stream = types.SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "graph", nullcontext)
    images = Images(data, config, CPU)
    fresh, trainer = (ImageTrainer(config, images, CPU) for _ in range(2))
    steps: list[int] = []

    class Graph:
        def replay(self) -> None:
            trainer._eager()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)

    def step() -> None:
        steps.append(1)
        trainer._optimiser.prepare(3)  # rates that move the network, whatever they are at first
        trainer._eager()
        trainer._optimiser.finish_step(4)

    with torch.random.fork_rng():
        trainer._update = engine._captured(step, [*trainer.state().values()])
        assert len(steps) == 4
        for name, value in fresh.state().items():
            assert torch.equal(value, trainer.state()[name]), name
        assert trainer.train_epoch(0, lambda steps: None) == fresh.train_epoch(0, lambda steps: None)


class Named(TorchDispatchMode):
    """Names of the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.names.append(str(function))
        return function(*arguments, **keywords or {})


@each
def test_a_step_waits_for_no_value(config, data):
    """What a graph cannot capture: a value that the program reads, a shape that depends on values, a copy to another device."""
    trainer = ImageTrainer(config, Images(data, config, CPU), CPU)
    with torch.random.fork_rng(), Named() as operations:
        trainer._optimiser.prepare(0)
        trainer._update()
        trainer._optimiser.finish_step(4)
    assert {"aten.convolution.default", "aten.convolution_backward.default"} <= set(operations.names)
    waits = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal.", "is_nonzero")
    assert [name for name in operations.names if any(word in name for word in waits)] == []
    with Named() as operations:
        float(trainer._measured[0])
    assert any("_local_scalar_dense" in name for name in operations.names)  # so that one would be seen


# -------------------------------------------------------------------------------------------------------- records


@pytest.fixture(scope="module")
def records(data, tmp_path_factory) -> dict[str, RunRecord]:
    """Each network's run, trained alone on one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "RAW", tmp_path_factory.mktemp("raw"))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        found = {config.network: train([config], data)[0] for config in EVERY}
        torch.set_num_threads(threads)
    return found


@each
def test_records_are_sound(config, records, data):
    record = records[config.network]
    assert RunRecord.from_json(record.to_json()) == record
    assert record.status == "finished" and record.config == config
    assert all(len(curve) == 3 for curve in record.curves.values())
    assert record.final["train_loss"] == record.curves["train_loss_epoch"][-1]
    assert record.final["test_error"] == record.curves["test_error"][-1]
    assert ("test_error_views" in record.final) == (config is FAST)
    assert record.best["epoch"] == 1 + int(np.argmin(record.curves["validation_loss"]))
    assert record.environment["stack"] == 1 and record.environment["threads"] == 1 and "earlier" not in record.environment
    for part, n in (("validation", 48), ("test", 80)):  # errors are counts
        counts = np.array(record.curves[f"{part}_error"]) * n / 100
        np.testing.assert_allclose(counts, counts.round(), atol=1e-4)


@pytest.mark.parametrize(("config", "rate"), [(SHALLOW, 1e-2), (WIDE, 0.1), (FAST, 0.3)], ids=[c.network for c in EVERY])
def test_networks_learn(config, rate, data):
    """Digits that they have not seen are told apart far better than by guessing."""
    (record,) = train([dataclasses.replace(config, learning_rate=rate, keep_probability=1.0, train_examples=640, epochs=5)], data)
    assert record.final["test_error"] < 60 and record.final["train_loss"] < 0.8 * record.curves["train_loss_epoch"][0]


@each
def test_a_run_without_validation(config, data):
    (record,) = train([dataclasses.replace(config, validation_examples=0, epochs=1)], data)
    assert RunRecord.from_json(record.to_json()) == record and record.best == {}


def test_a_record_depends_neither_on_company_nor_on_the_second_time(records, data):
    others = [
        dataclasses.replace(SHALLOW, seed=1, activation="relu"),
        SHALLOW,
        dataclasses.replace(SHALLOW, learning_rate=1e-2, keep_probability=1.0),
    ]
    found = train(others, data)
    assert [record.config for record in found] == others
    assert result(found[1]) == result(records[SHALLOW.network])
    assert result(train([FAST], data)[0]) == result(records[FAST.network])
    assert len({str(record.curves) for record in found}) == 3


def test_activations_of_a_seed_see_the_same_minibatches(data, monkeypatch):
    seen: list[torch.Tensor] = []
    batch = Images.batch

    def watched(self, *places):
        seen.append(torch.cat([place.long() for place in places]))
        return batch(self, *places)

    monkeypatch.setattr(Images, "batch", watched)
    short_run = dataclasses.replace(FAST, epochs=2)
    train([short_run, dataclasses.replace(short_run, activation="relu"), dataclasses.replace(short_run, seed=1)], data)
    first, second, other = (torch.stack(seen[start : start + 12]) for start in (0, 12, 24))
    assert len(seen) == 36 and torch.equal(first, second) and not torch.equal(first, other)


@each
def test_progress_counts_every_step(config, data):
    counted: list[int] = []
    train([dataclasses.replace(config, epochs=2, train_examples=640)], data, progress=counted.append)
    assert sum(counted) == 2 * (40 if config is WIDE else 20) and len(counted) >= 2


def test_test_data_never_influence_training(records, data):
    spoilt = dataclasses.replace(data, y_test=(data.y_test + 1) % 10, x_test=16 - data.x_test)
    (found,) = train([FAST], spoilt)
    reference = records[FAST.network]
    for name, curve in found.curves.items():
        assert (curve == reference.curves[name]) != name.startswith("test"), name
    assert found.final["train_loss_full"] == reference.final["train_loss_full"]
    assert {name: value for name, value in found.best.items() if not name.startswith("test")} == {
        name: value for name, value in reference.best.items() if not name.startswith("test")
    }


def test_validation_data_never_influence_training(records, data):
    labels = data.y_train.copy()
    labels[-48:] = (labels[-48:] + 1) % 10
    (found,) = train([SHALLOW], dataclasses.replace(data, y_train=labels))
    for name, curve in found.curves.items():
        assert (curve == records[SHALLOW.network].curves[name]) != name.startswith("validation"), name


def test_global_state_of_pytorch_is_restored(data):
    def switches() -> list[bool]:
        backends = torch.backends
        return [backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, backends.cudnn.benchmark]

    seeds, before = torch.get_rng_state(), switches()
    running = training.train([dataclasses.replace(SHALLOW, epochs=1)] * 2, data, CPU)
    next(iter(running))
    assert torch.equal(torch.get_rng_state(), seeds) and switches() == before  # also while the caller has the first
    list(running)
    with pytest.raises(ZeroDivisionError):
        train([SHALLOW], data, progress=lambda steps: 1 // 0)
    assert torch.equal(torch.get_rng_state(), seeds) and switches() == before
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()


@each
def test_bfloat16_is_close_to_float32(config, data):
    runs = [dataclasses.replace(config, precision=precision, epochs=1) for precision in ("float32", "bfloat16")]
    (reference,), (found,) = (train([run], data) for run in runs)
    for name in ("train_loss_epoch", "test_loss"):
        assert found.curves[name][0] == pytest.approx(reference.curves[name][0], rel=0.02), name
        assert found.curves[name][0] != reference.curves[name][0], name


# ----------------------------------------------------------------------------------------------------- divergence


@each
def test_a_run_that_diverges_says_when(config, data, tmp_path):
    wild = dataclasses.replace(config, learning_rate=1e30)
    after, before = train([wild, config], data)
    assert after.status == "diverged" and after.final == {} and after.best == {}
    step, epoch = after.diverged["step"], after.diverged["epoch"]
    assert epoch == (step - 1) // config.steps_per_epoch + 1
    assert {len(curve) for curve in after.curves.values()} == {epoch - 1}
    assert before.status == "finished"
    ledger = Ledger(tmp_path)
    ledger.write(after)
    assert ledger.get(wild.key) == after


def test_curves_end_before_the_epoch_of_divergence(records, data, monkeypatch):
    """Infinite from the third minibatch of the second epoch on."""
    step = optimisers.Nesterov.step
    taken = []

    def exploding(self) -> None:
        taken.append(1)
        if len(taken) == FAST.steps_per_epoch + 2:
            for value in self.parameters:
                value.grad.fill_(math.inf)
        step(self)

    monkeypatch.setattr(optimisers.Nesterov, "step", exploding)
    (found,) = train([FAST], data)
    assert found.diverged == {"step": FAST.steps_per_epoch + 3, "epoch": 2}
    assert found.curves == {name: curve[:1] for name, curve in records[FAST.network].curves.items()}
    assert RunRecord.from_json(found.to_json()) == found


def test_measures_that_are_not_finite_are_of_the_epochs_last_step():
    assert engine._first_bad([1.0, math.nan, math.inf], {"test_loss": math.nan}) == 2
    assert engine._first_bad([1.0, 2.0], {"test_loss": math.inf}) == 2
    assert engine._first_bad([1.0, 2.0], {"test_loss": 3.0}) is None


# ---------------------------------------------------------------------------------------- interrupted and resumed


def passed() -> Deadline:
    """A deadline that lets a run begin and stops it after an epoch."""

    class After(Deadline):
        def before_another(self, seconds: float) -> bool:
            return seconds > 0

    return After(math.inf)


@each
def test_interrupted_and_resumed_equals_uninterrupted(config, records, data, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for epoch in (1, 2):
        assert train([config, config], data, checkpoints=checkpoints, deadline=passed()) == []
        assert checkpoints.epoch(config) == epoch
    counted: list[int] = []
    (found,) = train([config], data, checkpoints=checkpoints, progress=counted.append)
    assert result(found) == result(records[config.network])
    assert counted[0] == 2 * config.steps_per_epoch and sum(counted) == 3 * config.steps_per_epoch
    parts = found.environment["earlier"]
    assert [part["epochs"] for part in parts] == [[1, 1], [2, 2]]
    assert found.environment["seconds"] >= sum(part["seconds"] for part in parts) - 0.1
    assert RunRecord.from_json(found.to_json()) == found
    assert checkpoints.epoch(config) == 2  # nothing is kept of the end unless asked for


def test_a_checkpoint_holds_all_that_training_goes_on_from(data, tmp_path):
    """Parameters, batch statistics, momenta, averages: each tensor of the state, moved from where it began."""
    checkpoints = Checkpoints(tmp_path)
    train([FAST], data, checkpoints=checkpoints, deadline=passed())
    fresh = ImageTrainer(FAST, Images(data, FAST, CPU), CPU)
    (found,) = checkpoints.read([FAST])
    state = fresh.state()
    assert found.tensors.keys() == state.keys() and fresh.fits(found.tensors)
    # scales and the whitening's filters stay, and their averages are nowhere
    still = {name for name, value in state.items() if torch.equal(value, found.tensors[name])}
    assert still == {"network whitening.weight"} | {
        name for name in still if name.startswith("network features") and "weight" in name
    }
    assert any("running_var" in name for name in state) and any("average" in name for name in state)
    fresh.resume(found.tensors, FAST.steps_per_epoch)
    found.tensors["network output.weight"].fill_(7)
    assert fresh.steps == FAST.steps_per_epoch and fresh.network.output.weight.max() < 7  # a copy


def test_a_deadline_that_has_passed_begins_nothing(data):
    counted: list[int] = []
    assert train([SHALLOW], data, deadline=Deadline.after(-1), progress=counted.append) == [] and counted == []
    assert len(train([dataclasses.replace(SHALLOW, epochs=1)], data, deadline=Deadline.after(3600))) == 1


def test_the_last_epoch_ends_the_run_whatever_the_time(data, records, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for _ in range(2):
        assert train([FAST], data, checkpoints=checkpoints, deadline=passed()) == []
    (found,) = train([FAST], data, checkpoints=checkpoints, deadline=passed())
    assert result(found) == result(records[FAST.network])


def test_checkpoints_in_between_and_kept(data, records, tmp_path):
    often = Checkpoints(tmp_path / "often", every=0)
    (found,) = train([FAST], data, checkpoints=often)
    assert often.epoch(FAST) == 2 and result(found) == result(records[FAST.network])
    kept = Checkpoints(tmp_path / "kept", keep=True)
    train([FAST], data, checkpoints=kept)
    assert kept.epoch(FAST) == 3
    (again,) = train([FAST], data, checkpoints=kept)  # nothing is left to train
    assert again.curves == found.curves and again.final == found.final


def spoil(path: Path, how: str) -> None:
    if how == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
        return
    content = torch.load(path, weights_only=True)
    tensors = content["tensors"]
    match how:
        case "another run":
            content["config"] |= {"seed": 5}
        case "another shape":
            tensors["network output.weight"] = tensors["network output.weight"][:, :-1].clone()
        case "a shape that broadcasts":
            tensors["momentum 0"] = tensors["momentum 0"][:1].clone()
        case "missing":
            del tensors["average 3"]
        case "too many":
            tensors["average 999"] = torch.zeros(3)
        case "no curves":
            content["log"] = {}
        case "short curves":
            content["log"]["curves"]["test_loss"].pop()
    torch.save(content, path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "no usable checkpoint"),
        ("another run", "another run"),
        *[
            (how, "does not hold what it should")
            for how in ("another shape", "a shape that broadcasts", "missing", "too many", "no curves", "short curves")
        ],
    ],
)
def test_checkpoints_that_do_not_fit_are_named_and_the_run_starts_over(how, message, data, records, tmp_path):
    checkpoints = Checkpoints(tmp_path)
    train([FAST], data, checkpoints=checkpoints, deadline=passed())
    train([FAST], data, checkpoints=checkpoints, deadline=passed())
    spoil(checkpoints.path(FAST), how)
    with pytest.warns(CheckpointWarning, match=message):
        assert train([FAST], data, checkpoints=checkpoints, deadline=passed()) == []
    assert checkpoints.epoch(FAST) == 1  # the spoilt one, though further on, does not bar the way
    (found,) = train([FAST], data, checkpoints=checkpoints)
    assert result(found) == result(records[FAST.network])


def test_a_longer_training_does_not_go_on_from_a_shorter_ones_schedule(data, records, tmp_path):
    shorter = dataclasses.replace(WIDE, epochs=2)
    checkpoints = Checkpoints(tmp_path, keep=True)
    train([shorter], data, checkpoints=checkpoints)
    (found,) = train([WIDE], data, checkpoints=checkpoints)
    assert result(found) == result(records[WIDE.network])


# ------------------------------------------------------------------------------------------- what does not fit


def test_what_does_not_fit_is_refused(data):
    with pytest.raises(ConfigurationError, match="must share"):
        train([SHALLOW, dataclasses.replace(SHALLOW, epochs=1)], data)
    with pytest.raises(ConfigurationError, match="the data are digits"):
        train([dataclasses.replace(SHALLOW, dataset="cifar10")], data)
    with pytest.raises(ConfigurationError, match="tf32 is for CUDA devices, and this one is cpu"):
        train([dataclasses.replace(SHALLOW, precision="tf32")], data)


def test_too_little_memory_names_a_batch_that_fits(data, monkeypatch):
    config = dataclasses.replace(SHALLOW, batch_size=128, train_examples=1_000)
    monkeypatch.setattr(engine, "EVALUATION_BATCH", 3)  # so that training takes more than evaluation
    assert engine.memory(config, 32) < engine.memory(config, 64) < engine.memory(config)
    room = (engine.memory(config, 32) + engine.memory(config, 64)) // 2
    monkeypatch.setattr(psutil, "virtual_memory", lambda: types.SimpleNamespace(available=room))
    with pytest.raises(ConfigurationError, match=r"a batch of 128 takes about .* cpu has .* free; a batch of 32 would fit"):
        train([config], data)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: types.SimpleNamespace(available=1000))
    with pytest.raises(ConfigurationError, match="no batch would fit"):
        train([config], data)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("[enforce fail] not enough memory")])
def test_memory_that_runs_out_in_training_is_named(data, monkeypatch, error):
    def failing(self, *arguments):
        raise error

    monkeypatch.setattr(ImageTrainer, "train_epoch", failing)
    with pytest.raises(ConfigurationError, match="free some memory"):
        train([SHALLOW], data)
    monkeypatch.setattr(ImageTrainer, "train_epoch", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train([SHALLOW], data)


_PEAK = """
import dataclasses, json, pathlib, sys
import numpy, torch
from gelu_study.datasets import Dataset
from gelu_study.runs import RunConfig
from gelu_study.training.images import ImageTrainer, memory
from gelu_study.training.images_data import Images

torch.set_num_threads(1)
config = RunConfig.from_dict(json.loads(sys.argv[1]))
x = numpy.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), dtype=numpy.uint8)
y = numpy.zeros(10_000, numpy.uint8)
data = Dataset("cifar10", x[: config.train_examples], y[: config.train_examples], x, y)

def peak(config):
    ImageTrainer(config, Images(data, config, torch.device("cpu")), torch.device("cpu")).train_epoch(0, lambda steps: None)
    # of this program alone: getrusage counts what the parent took
    (line,) = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

before = peak(dataclasses.replace(config, batch_size=2, train_examples=4))  # libraries, kernels, and the data, which are shared
print(json.dumps([peak(config) - before, memory(config)]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux tells a program's peak")
def test_memory_is_about_what_training_takes():
    config = dataclasses.replace(
        SHALLOW,
        dataset="cifar10",
        hidden=(24,) * 9,
        batch_size=256,
        train_examples=256,
        validation_examples=0,
        preprocessing="channels",
    )
    command = [sys.executable, "-c", _PEAK, json.dumps(config.to_dict())]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    measured, estimated = json.loads(done.stdout)
    data = 3 * 32**2 * (256 + 10_000)
    assert 1 / 2.5 < (estimated - data) / measured < 2.5
