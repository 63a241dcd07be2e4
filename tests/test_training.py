"""The engine against a plain loop for one network, written here, and against itself in other company."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from gelu_study import activations, protocols, training
from gelu_study.errors import ConfigurationError
from gelu_study.initialisations import weights as initial_weights
from gelu_study.networks import PerceptronStack
from gelu_study.random_streams import MaskStream, minibatch_order
from gelu_study.runs import RunConfig, RunRecord

CPU = torch.device("cpu")
CASES = (0, 3, 4, 5, 14, 17, 25, 28, 35)


def shapes(config: RunConfig, inputs: int = 64) -> list[tuple[int, int]]:
    widths = (inputs, *config.hidden, 10)
    return list(itertools.pairwise(widths))


def forward(config, weights, biases, x, masks=None):
    h = x
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = h @ weight + bias
        if layer < len(config.hidden):
            h = activations.get(config.activation)(h)
            if masks is not None:
                h = h * masks[layer]
    return h


def masks_of(config, step):
    """The dropout masks of a step, read from a stream that serves this run alone."""
    width, layers = config.hidden[0], len(config.hidden)
    elements = config.batch_size * width
    stream = MaskStream([config.seed], config.keep_probability, elements * layers, CPU)
    stream.draw(step)
    out = torch.empty(1, elements * layers)
    stream.mask(0, elements * layers, out=out)
    return out.view(layers, config.batch_size, width)


def plain_run(config: RunConfig, data) -> dict[str, np.ndarray]:
    """One network, autograd, and Adam as its authors and TensorFlow write it: epsilon beside the uncorrected root."""
    x = torch.tensor(data.x_train.reshape(len(data.x_train), -1) / data.scale, dtype=torch.float32)
    y = torch.tensor(data.y_train, dtype=torch.int64)
    n = config.train_examples
    weights = [w.requires_grad_() for w in initial_weights("unit-norm", shapes(config), config.seed)]
    biases = [torch.zeros(w.shape[1], requires_grad=True) for w in weights]
    parameters = [*weights, *biases]
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    clean_losses, validation, step = [], [], 0
    for epoch in range(config.epochs):
        order = minibatch_order(config.seed, epoch, n)
        for k in range(n // config.batch_size):
            index = order[k * config.batch_size : (k + 1) * config.batch_size]
            clean_losses.append(functional.cross_entropy(forward(config, weights, biases, x[index]), y[index]).item())
            masks = masks_of(config, step) if config.keep_probability < 1 else None
            loss = functional.cross_entropy(forward(config, weights, biases, x[index], masks), y[index])
            gradients = torch.autograd.grad(loss, parameters)
            step += 1
            rate = config.learning_rate * math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            with torch.no_grad():
                for p, g, m, v in zip(parameters, gradients, first, second, strict=True):
                    m += 0.1 * (g - m)
                    v += 0.001 * (g * g - v)
                    p -= rate * m / (v.sqrt() + 1e-8)
        with torch.no_grad():
            logits = forward(config, weights, biases, x[-config.validation_examples :])
            target = y[-config.validation_examples :]
            validation.append(
                [functional.cross_entropy(logits, target).item(), 100 * (logits.argmax(1) != target).float().mean().item()]
            )
    return {"clean": np.array(clean_losses).reshape(config.epochs, -1), "validation": np.array(validation)}


@pytest.fixture(scope="module")
def mixed() -> list[RunConfig]:
    """A stack that mixes everything it may: activation, learning rate, dropout, seed."""
    return protocols.plan(
        "mnist-classifier",
        "smoke",
        activations=["gelu_tanh", "relu", "elu"],
        learning_rates=[1e-2, 3e-3],
        keep_probabilities=[1.0, 0.5, 0.8],
    )


@pytest.fixture(scope="module")
def records(mixed, digits) -> list[RunRecord]:
    return training.train(mixed, digits, CPU)


def test_records_come_in_the_order_asked_for(mixed, records):
    assert [record.config for record in records] == mixed
    assert {record.status for record in records} == {"finished"}


@pytest.mark.parametrize("index", CASES)
def test_against_the_plain_loop(mixed, records, digits, index):
    config, record = mixed[index], records[index]
    plain = plain_run(config, digits)
    np.testing.assert_allclose(record.curves["train_loss_epoch"], plain["clean"].mean(1), rtol=2e-4)
    np.testing.assert_allclose(record.curves["validation_loss"][2::3], plain["validation"][:, 0], rtol=2e-3)
    np.testing.assert_allclose(record.curves["validation_error"][2::3], plain["validation"][:, 1], atol=0.5)
    smoothed, trace = None, []
    for loss in plain["clean"].ravel():
        smoothed = loss if smoothed is None else 0.995 * smoothed + 0.005 * loss
        trace.append(smoothed)
    np.testing.assert_allclose(record.curves["train_loss_smoothed"], trace[5::6], rtol=2e-4)  # 18 steps an epoch: a third is 6


def test_the_cases_above_cover_every_activation_and_dropout(mixed):
    chosen = [mixed[index] for index in CASES]
    assert {(c.activation, c.keep_probability < 1) for c in chosen} == {
        (a, d) for a in ("gelu_tanh", "relu", "elu") for d in (True, False)
    }


@pytest.mark.parametrize("index", [1, 8, 35])
def test_a_record_does_not_depend_on_company(mixed, records, digits, index):
    (alone,) = training.train([mixed[index]], digits, CPU)
    for name in records[index].config.curves:
        np.testing.assert_allclose(
            alone.curves[name], records[index].curves[name], rtol=1e-3, atol=0.4 if "error" in name else 1e-6
        )
    assert alone.environment["train_loss_every"] == records[index].environment["train_loss_every"]


def test_a_run_that_diverges_says_when_and_spoils_nothing(mixed, records, digits):
    wild = dataclasses.replace(mixed[0], learning_rate=1e30)
    again = training.train([*mixed[:3], wild], digits, CPU)
    assert again[3].status == "diverged" and again[3].final == {} and again[3].best == {}
    assert 1 <= again[3].diverged["step"] <= 36 and again[3].diverged["epoch"] == (again[3].diverged["step"] - 1) // 18 + 1
    assert RunRecord.from_json(again[3].to_json()) == again[3]
    for record, before in zip(again[:3], records[:3], strict=True):
        assert record.status == "finished"
        np.testing.assert_allclose(record.curves["train_loss"], before.curves["train_loss"], rtol=1e-3)


def test_a_stack_of_diverged_runs_ends_early(mixed, digits):
    wild = [dataclasses.replace(config, learning_rate=1e30, epochs=50) for config in mixed[:2]]
    steps: list[int] = []
    training.train(wild, digits, CPU, steps.append)
    assert sum(steps) < 18 * 50


def test_record_contents(records):
    for record in records:
        assert RunRecord.from_json(record.to_json()) == record
        measured = {"train_loss", "validation_loss", "validation_error", "test_loss", "test_error"}
        assert set(record.final) == measured | {"train_loss_full", "train_error_full"}
        assert set(record.best) == measured | {"epoch", "step"}
        ends = record.curves["validation_loss"][2::3]
        assert record.best["epoch"] == int(np.argmin(ends)) + 1 and record.best["validation_loss"] == min(ends)
        assert record.final["test_error"] == record.curves["test_error"][-1]
        assert record.final["train_loss"] == record.curves["train_loss_epoch"][-1]
        environment = record.environment
        assert environment["device"] == "cpu" and environment["stack"] == len(records) and environment["threads"] >= 1
        assert len(environment["revision"] or "0" * 40) == 40
        assert "/" in environment["processor"] and environment["device_name"]


def test_gradients_against_autograd(digits):
    """The written-out backward pass, with dropout on, against autograd through the same masks."""
    config = protocols.plan("mnist-classifier", "smoke", activations=["gelu_tanh"], keep_probabilities=[0.5])[0]
    network = PerceptronStack((64, *config.hidden, 10), ["gelu_tanh"], [0.5], [config.seed], config.batch_size, CPU)
    x = torch.tensor(digits.x_train[: config.batch_size].reshape(config.batch_size, 64) / 16, dtype=torch.float32)
    y = torch.tensor(digits.y_train[: config.batch_size], dtype=torch.int64)
    loss, clean = network.training_step(x[None], y[None], 5, True)
    weights = [w[0].clone().requires_grad_() for w in network.weights]
    biases = [b[0, 0].clone().requires_grad_() for b in network.biases]
    expected = functional.cross_entropy(forward(config, weights, biases, x, masks_of(config, 5)), y)
    torch.testing.assert_close(loss[0], expected.detach())
    torch.testing.assert_close(clean[0], functional.cross_entropy(forward(config, weights, biases, x), y).detach())
    gradients = torch.autograd.grad(expected, [*weights, *biases])
    found = [*(g[0] for g in network.weight_gradients), *(g[0, 0] for g in network.bias_gradients)]
    for ours, theirs in zip(found, gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_initial_weights_have_unit_norm_incoming_vectors():
    weights = initial_weights("unit-norm", [(784, 128), (128, 10)], 3)
    for weight in weights:
        torch.testing.assert_close(weight.norm(dim=0), torch.ones(weight.shape[1]))
    assert not torch.equal(weights[0], initial_weights("unit-norm", [(784, 128)], 4)[0])
    assert torch.equal(weights[0], initial_weights("unit-norm", [(784, 128)], 3)[0])


def test_activations_of_a_seed_start_alike(mixed):
    network = PerceptronStack((64, 32, 10), ["relu", "elu", "relu"], [1, 1, 1], [0, 0, 1], 8, CPU)
    assert torch.equal(network.weights[0][0], network.weights[0][1])
    assert not torch.equal(network.weights[0][0], network.weights[0][2])


def test_parts_of_the_data(mnist):
    parts = training.stacks.Examples.of(mnist, 55_000, 5_000, CPU)
    assert [len(part[0]) for part in (parts.train, parts.validation, parts.test)] == [55_000, 5_000, 10_000]
    assert parts.train[0].shape[1] == 784 and parts.train[0].min() == 0 and parts.train[0].max() == 1
    assert parts.validation[1].tolist() == mnist.y_train[55_000:].tolist()


def test_what_does_not_fit_is_refused(mixed, digits):
    with pytest.raises(ConfigurationError, match="must share"):
        training.train([mixed[0], dataclasses.replace(mixed[0], epochs=3)], digits, CPU)
    with pytest.raises(ConfigurationError, match="the data are digits"):
        training.train(protocols.plan("mnist-classifier", "paper")[:1], digits, CPU)
    with pytest.raises(ConfigurationError, match="digits has 1437"):
        training.train([dataclasses.replace(mixed[0], validation_examples=1000)], digits, CPU)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "unknown device"),
        ("cuda:97", "CUDA devices"),
        ("meta", "unknown device"),
        ("", "unknown device"),
        ("cpu:x", "unknown device"),
    ],
)
def test_devices_that_are_not_there(name, message):
    with pytest.raises(ConfigurationError, match=message):
        training.resolve_device(name)


def test_device_cpu_and_auto():
    assert training.resolve_device("cpu") == CPU
    assert training.resolve_device("auto").type in ("cpu", "cuda", "mps")
