"""Every kind of network, initialisation, normalisation and optimiser against autograd and PyTorch's own modules."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import synthetic
from gelu_study import activations, initialisations, protocols, training
from gelu_study.checkpoints import Checkpoints
from gelu_study.errors import CheckpointWarning, ConfigurationError, LedgerError
from gelu_study.networks import AutoencoderStack, PerceptronStack
from gelu_study.random_streams import GateStream, generator, minibatch_order
from gelu_study.runs import RunConfig, RunRecord

CPU = torch.device("cpu")
BASE = dataclasses.replace(
    protocols.plan("mnist-classifier", "smoke", activations=["gelu_tanh"], keep_probabilities=[1.0])[0], hidden=(24, 16, 20)
)
AUTOENCODER = protocols.plan("mnist-autoencoder", "smoke", activations=["gelu_tanh"], learning_rates=[1e-3])[0]
VARIANTS = [
    {"initialisation": "he"},
    {"initialisation": "variance-matched", "activation": "elu"},
    {"initialisation": "unit-norm-outgoing", "activation": "relu"},
    {"normalisation": "batch"},
    {"normalisation": "layer", "activation": "relu"},
    {"normalisation": "layer", "optimiser": "momentum", "learning_rate": 0.05},
    {"normalisation": "batch", "optimiser": "sgd", "learning_rate": 0.1, "initialisation": "he"},
    {"optimiser": "adam", "learning_rate": 3e-3},
    {"optimiser": "momentum", "learning_rate": 0.1, "initialisation": "variance-matched"},
    {"activation": "soi"},
    {"validation_examples": 0, "train_examples": 1_437},
]


class Plain(nn.Module):
    """The network of a configuration from PyTorch's modules; its weights are the stack's initial ones."""

    def __init__(self, config: RunConfig, inputs: int, outputs: int, moment: float) -> None:
        super().__init__()
        shapes = list(pairwise((inputs, *config.hidden, outputs)))
        weights = initialisations.weights(config.initialisation, shapes, config.seed, config.activation, moment)
        self.linear = nn.ModuleList(nn.Linear(*shape) for shape in shapes)
        for layer, weight in zip(self.linear, weights, strict=True):
            layer.weight.data = weight.T.clone()
            nn.init.zeros_(layer.bias)
        kinds = {"none": lambda width: nn.Identity(), "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.normal = nn.ModuleList(kinds[config.normalisation](width) for width in config.hidden)
        self.config = config
        self.gates = GateStream([config.seed], config.batch_size * sum(config.hidden), CPU)

    def activate(self, x: torch.Tensor, offset: int) -> torch.Tensor:
        if self.config.activation != "soi":
            return activations.get(self.config.activation)(x)
        if not self.training:
            return functional.gelu(x)
        numbers = self.gates._numbers[0, offset : offset + x.numel()].double() / 2**32 + 0.5
        return x * (numbers.view_as(x) < torch.special.ndtr(x.detach().double()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        offset = 0
        for layer, normal in zip(self.linear, self.normal, strict=False):
            x = self.activate(normal(layer(x)), offset)
            offset += x.numel()
        return self.linear[-1](x)


def plain_run(config: RunConfig, data) -> dict[str, list[float]]:
    x, x_test = (torch.tensor(v.reshape(len(v), -1) / data.scale, dtype=torch.float32) for v in (data.x_train, data.x_test))
    y, y_test = (torch.tensor(v, dtype=torch.int64) for v in (data.y_train, data.y_test))
    reconstructs = config.network == "autoencoder"
    train = x[: config.train_examples]
    network = Plain(config, 64, 64 if reconstructs else 10, float(train.square().mean(dtype=torch.float64)))
    if reconstructs:
        y, y_test = x, x_test
    loss_of = functional.mse_loss if reconstructs else functional.cross_entropy
    optimiser = {
        "adam": lambda p: torch.optim.Adam(p, lr=config.learning_rate),
        "adam-tensorflow": lambda p: torch.optim.Adam(p, lr=config.learning_rate),
        "sgd": lambda p: torch.optim.SGD(p, lr=config.learning_rate),
        "momentum": lambda p: torch.optim.SGD(p, lr=config.learning_rate, momentum=0.9),
    }[config.optimiser](list(network.parameters()))
    curves: dict[str, list[float]] = {"train_loss_epoch": [], "test_loss": []}
    step = 0
    for epoch in range(config.epochs):
        losses = []
        order = minibatch_order(config.seed, epoch, config.train_examples)
        for k in range(config.steps_per_epoch):
            index = order[k * config.batch_size : (k + 1) * config.batch_size]
            if config.optimiser == "adam-tensorflow":
                optimiser.param_groups[0]["eps"] = 1e-8 / math.sqrt(1 - 0.999 ** (step + 1))
            if config.activation == "soi":
                network.eval()
                losses.append(loss_of(network(x[index]), y[index]).item())
                network.gates.draw(step)
            network.train()
            loss = loss_of(network(x[index]), y[index])
            if config.activation != "soi":
                losses.append(loss.item())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
        network.eval()
        with torch.no_grad():
            curves["test_loss"].append(loss_of(network(x_test), y_test).item())
        curves["train_loss_epoch"].append(float(np.mean(losses)))
    return curves


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: " ".join(str(v) for v in changes.values()))
def test_variants_of_the_classifier(changes, digits):
    config = dataclasses.replace(BASE, **changes)
    (record,) = training.train([config], digits, CPU)
    for name, values in plain_run(config, digits).items():
        np.testing.assert_allclose(record.curves[name], values, rtol=2e-3, err_msg=name)
    assert RunRecord.from_json(record.to_json()) == record
    assert bool(record.best) == bool(config.validation_examples) == ("validation_loss" in record.curves)


@pytest.mark.parametrize("name", ["gelu_tanh", "relu", "elu"])
def test_autoencoder(name, digits):
    config = dataclasses.replace(AUTOENCODER, activation=name)
    (record,) = training.train([config], digits, CPU)
    for curve, values in plain_run(config, digits).items():
        np.testing.assert_allclose(record.curves[curve], values, rtol=1e-3)
    assert set(record.final) == {"train_loss", "test_loss", "train_loss_full"} and record.best == {}
    assert RunRecord.from_json(record.to_json()) == record
    assert record.curves["test_loss"][-1] < record.curves["test_loss"][0]


def test_variants_train_in_company(digits):
    """Runs of one stack that differ in activation, learning rate and seed, with batch normalisation and variance matching."""
    base = dataclasses.replace(BASE, normalisation="batch", initialisation="variance-matched")
    configs = [
        dataclasses.replace(base, activation=name, learning_rate=rate, seed=seed)
        for name, rate, seed in (("soi", 1e-3, 0), ("relu", 1e-2, 1), ("elu", 1e-3, 1), ("soi", 1e-3, 2))
    ]
    together = training.train(configs, digits, CPU)
    for config, record in zip(configs, together, strict=True):
        (alone,) = training.train([config], digits, CPU)
        np.testing.assert_allclose(alone.curves["train_loss"], record.curves["train_loss"], rtol=1e-3)
        np.testing.assert_allclose(alone.curves["test_loss"], record.curves["test_loss"], rtol=1e-3)


def test_gates_open_as_often_as_they_should():
    stream = GateStream([3, 4], 40_000, CPU)
    probability = torch.tensor([0.0, 0.02, 0.3, 0.5, 0.9, 1.0]).repeat_interleave(5_000).expand(2, -1).clone()
    out = torch.empty(2, 30_000)
    stream.draw(7)
    stream.open(probability, 10_000, out)
    rates = out.view(2, 6, 5_000).mean(2)
    assert rates[:, 0].eq(0).all() and rates[:, 5].eq(1).all()
    expected = torch.tensor([0.02, 0.3, 0.5, 0.9])
    assert ((rates[:, 1:5] - expected).abs() < 4 * (expected * (1 - expected) / 5_000).sqrt()).all()
    stream.draw(8)
    again = torch.empty(2, 30_000)
    stream.open(torch.full_like(out, 0.5), 10_000, again)
    assert not torch.equal(out, again) and not torch.equal(again[0], again[1])


def test_noise_on_the_test_inputs(digits):
    config = dataclasses.replace(BASE, test_noise=(0.0, 0.5, 3.0))
    same = dataclasses.replace(BASE, test_noise=(3.0, 0.5, 0.0), seed=1)
    records = training.train([config], digits, CPU) + training.train([same], digits, CPU)
    for record in records:
        widths, errors = record.config.test_noise, record.curves["noise_error"]
        clean = widths.index(0.0)
        assert errors[clean] == record.final["test_error"] and record.curves["noise_loss"][clean] == record.final["test_loss"]
        assert len(record.curves["test_wrong"]) == round(record.final["test_error"] / 100 * len(digits.y_test))
        assert errors[widths.index(3.0)] > errors[widths.index(0.5)] >= 0 and record.curves["noise_loss"][widths.index(3.0)] > 1
        assert RunRecord.from_json(record.to_json()) == record
    text = records[0].to_json().replace('"test_noise": [0.0, 0.5, 3.0]', '"test_noise": [0.0, 0.5]')
    text = synthetic.resealed(text.replace(config.key, dataclasses.replace(config, test_noise=(0.0, 0.5)).key))
    with pytest.raises(LedgerError, match="noise_loss has 3 values"):
        RunRecord.from_json(text)
    (without,) = training.train([BASE], digits, CPU)
    assert without.curves["train_loss"] == records[0].curves["train_loss"]  # noise comes after training


def test_noise_is_uniform_and_one_for_all_widths(digits):
    """The noise that the network saw, from its own outputs: a linear network without hidden effects would be needed otherwise."""
    x = torch.tensor(digits.x_test.reshape(len(digits.x_test), -1) / digits.scale, dtype=torch.float32)
    y = torch.tensor(digits.y_test, dtype=torch.int64)
    seen: list[torch.Tensor] = []

    class Watching(PerceptronStack):
        def evaluate(self, x, labels):
            seen.append(x.clone())
            return super().evaluate(x, labels)

    network = Watching((64, 8, 10), ["relu"], [1.0], [0], 16, CPU)
    examples = training.stacks.Examples((x, y), (x, y), (x, y), 10)
    training.stacks._after_training(network, examples, (1.0, 2.0), training.stacks._Log(1, 0.9), 1)
    unit = torch.rand(x.shape, generator=generator(0, "test noise")) * 2 - 1
    torch.testing.assert_close(seen[0] - x, unit)
    torch.testing.assert_close(seen[1] - x, 2 * unit)
    assert unit.min() < -0.99 and unit.max() > 0.99 and abs(unit.mean()) < 0.02


def test_initialisations():
    shapes = [(400, 300), (300, 200)]
    drawn = {
        name: initialisations.weights(name, shapes, 5, "relu", 0.1)
        for name in ("unit-norm", "unit-norm-outgoing", "he", "variance-matched")
    }
    torch.testing.assert_close(drawn["unit-norm-outgoing"][0].norm(dim=1), torch.ones(400))
    torch.testing.assert_close(drawn["unit-norm"][1].norm(dim=0), torch.ones(200))
    assert drawn["he"][0].std() == pytest.approx(math.sqrt(2 / 400), rel=0.01)
    torch.testing.assert_close(drawn["variance-matched"][0], drawn["he"][0] * math.sqrt(1 / 0.2))
    torch.testing.assert_close(drawn["variance-matched"][1], drawn["he"][1])  # ReLU's second moment is a half
    normal = torch.randn(400, 300, generator=generator(5, "weights"))
    torch.testing.assert_close(drawn["he"][0], normal * math.sqrt(2 / 400))
    with pytest.raises(ConfigurationError, match="must be positive"):
        initialisations.weights("variance-matched", shapes, 0, "relu", 0.0)
    with pytest.raises(ConfigurationError, match="unknown initialisation"):
        initialisations.weights("xavier", shapes, 0)


@pytest.mark.parametrize(("name", "function"), [
    ("relu", lambda z: max(z, 0)), ("identity", lambda z: z), ("elu", lambda z: z if z > 0 else mpmath.expm1(z)),
    ("gelu", lambda z: z * mpmath.ncdf(z)), ("soi", lambda z: z * mpmath.sqrt(mpmath.ncdf(z))),
])  # fmt: skip
def test_second_moments(name, function):
    expected = mpmath.quad(lambda z: function(z) ** 2 * mpmath.npdf(z), [-12, -4, 0, 4, 12])
    assert initialisations.second_moment(name) == pytest.approx(float(expected), rel=1e-9)


def test_a_variance_matched_network_keeps_its_signal():
    source = torch.Generator().manual_seed(0)
    x = torch.randn(2_000, 600, generator=source) * 0.4
    for name in ("gelu_tanh", "relu", "elu"):
        hidden = x
        for weight in initialisations.weights("variance-matched", [(600, 600)] * 6, 1, name, float(x.square().mean())):
            pre = hidden @ weight
            hidden = activations.get(name)(pre)
        assert float(pre.square().mean()) == pytest.approx(1, rel=0.15)


def test_autoencoder_gradients_against_autograd(digits):
    x = torch.tensor(digits.x_train[:16].reshape(16, 64) / 16, dtype=torch.float32)
    network = AutoencoderStack((64, 12, 5, 64), ["elu"], [1.0], [0], 16, CPU)
    loss, _ = network.training_step(x[None], x[None], 0, False)
    weights = [w[0].clone().requires_grad_() for w in network.weights]
    hidden = x
    for n, weight in enumerate(weights):
        hidden = hidden @ weight
        hidden = functional.elu(hidden) if n < 2 else hidden
    expected = functional.mse_loss(hidden, x)
    torch.testing.assert_close(loss[0], expected.detach())
    for ours, theirs in zip(network.weight_gradients, torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(ours[0], theirs, rtol=1e-4, atol=1e-7)


def test_bfloat16_rounds_the_products_of_training_alone(digits):
    """A step by hand: operands and results of each product rounded, everything else float32."""
    x = torch.tensor(digits.x_train[:16].reshape(16, 64) / 16, dtype=torch.float32)
    network = AutoencoderStack((64, 12, 64), ["elu"], [1.0], [0], 16, CPU, precision="bfloat16")
    w1, w2 = (weight[0].clone() for weight in network.weights)
    loss, _ = network.training_step(x[None], x[None], 0, False)

    def product(a, b):
        return (a.bfloat16() @ b.bfloat16()).float()

    pre = product(x, w1)
    hidden = functional.elu(pre)
    delta = 2 * (product(hidden, w2) - x) / x.numel()
    torch.testing.assert_close(loss[0], (product(hidden, w2) - x).square().mean())
    torch.testing.assert_close(network.weight_gradients[1][0], product(hidden.T, delta))
    torch.testing.assert_close(network.bias_gradients[1][0, 0], delta.sum(0))
    back = product(delta, w2.T) * torch.where(pre > 0, 1, pre.exp())
    torch.testing.assert_close(network.weight_gradients[0][0], product(x.T, back), rtol=2e-2, atol=1e-6)
    exact = functional.mse_loss(functional.elu(x @ w1) @ w2, x)
    torch.testing.assert_close(network.evaluate(x, x)[0][0], exact)
    assert loss[0] != exact


def test_bfloat16_trains_about_as_float32_does(digits):
    for base in (BASE, AUTOENCODER):
        exact, rounded = (training.train([dataclasses.replace(base, precision=p)], digits, CPU)[0] for p in ("float32", "bfloat16"))
        np.testing.assert_allclose(rounded.curves["train_loss_epoch"], exact.curves["train_loss_epoch"], rtol=0.05)
        assert rounded.curves["train_loss_epoch"] != exact.curves["train_loss_epoch"]


CHECKPOINTED = [
    BASE, dataclasses.replace(BASE, activation="relu", keep_probability=0.5),
    dataclasses.replace(BASE, activation="soi", learning_rate=3e-3),
]  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"normalisation": "batch", "optimiser": "momentum"}, {"optimiser": "sgd"}])
def test_training_goes_on_from_a_checkpoint(changes, digits, tmp_path):
    """Two epochs, then on to five, in another company: as if never interrupted."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=True)
    short = [dataclasses.replace(config, **changes) for config in CHECKPOINTED]
    long = [dataclasses.replace(config, epochs=5) for config in short]
    whole = training.train(long, digits, CPU)
    for config in short:  # each by itself
        training.train([config], digits, CPU, checkpoints=checkpoints)
    assert [checkpoints.epoch(config) for config in long] == [2, 2, 2]
    steps: list[int] = []
    resumed = training.train(long, digits, CPU, steps.append, checkpoints)
    assert sum(steps) == 5 * BASE.steps_per_epoch
    for one, other in zip(whole, resumed, strict=True):
        for name in one.config.curves:
            np.testing.assert_allclose(other.curves[name], one.curves[name], rtol=1e-3, atol=0.6 if "error" in name else 0)
        assert [part["epochs"] for part in other.environment["earlier"]] == [[1, 2]]
        assert other.environment["seconds"] >= other.environment["earlier"][0]["seconds"]
        assert RunRecord.from_json(other.to_json()) == other


def test_a_checkpoint_of_the_same_company_changes_no_bit(digits, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=True)
    long = [dataclasses.replace(config, epochs=4) for config in CHECKPOINTED]
    training.train(CHECKPOINTED, digits, CPU, checkpoints=checkpoints)
    for one, other in zip(
        training.train(long, digits, CPU), training.train(long, digits, CPU, checkpoints=checkpoints), strict=True
    ):
        assert one.curves == other.curves and one.final == other.final and one.best == other.best


def test_checkpoints_that_cannot_be_used_are_named(digits, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=True)
    longer = dataclasses.replace(BASE, epochs=3)
    (fresh,) = training.train([longer], digits, CPU)
    training.train([BASE], digits, CPU, checkpoints=checkpoints)
    path = checkpoints.path(BASE)
    good = path.read_bytes()
    for spoilt in (good[:2000], b"", b"no checkpoint", good[:-200] + bytes(200)):
        path.write_bytes(spoilt)
        with pytest.warns(CheckpointWarning, match="no usable checkpoint"):
            (record,) = training.train([longer], digits, CPU, checkpoints=checkpoints)
        assert record.curves == fresh.curves
    other = dataclasses.replace(BASE, seed=9)
    path.write_bytes(good)
    path.rename(checkpoints.path(other))
    with pytest.warns(CheckpointWarning, match="another run"):
        assert checkpoints.epoch(other) == 0
    checkpoints.remove([other])
    assert checkpoints.epoch(other) == 0 and not checkpoints.path(other).exists()
    training.train([longer], digits, CPU, checkpoints=checkpoints)
    assert checkpoints.epoch(longer) == 3 and checkpoints.epoch(BASE) == 0  # beyond its end: a shorter run starts over


def test_a_folder_that_cannot_be_written_loses_no_training(digits, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(CheckpointWarning, match="no checkpoint could be written"):
        (record,) = training.train([BASE], digits, CPU, checkpoints=Checkpoints(blocked / "below", keep=True))
    assert record.status == "finished"


def test_a_shorter_run_leaves_a_checkpoint_that_is_further_on(digits, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=True)
    longer = dataclasses.replace(BASE, epochs=3)
    training.train([longer], digits, CPU, checkpoints=checkpoints)
    before = checkpoints.path(BASE).read_bytes()
    training.train([BASE], digits, CPU, checkpoints=checkpoints)
    checkpoints.remove([BASE])
    assert checkpoints.path(BASE).read_bytes() == before and checkpoints.epoch(longer) == 3
    checkpoints.remove([longer])
    assert not checkpoints.path(BASE).exists()


def test_a_short_training_writes_no_checkpoint_that_nobody_keeps(digits, tmp_path):
    training.train([BASE], digits, CPU, checkpoints=Checkpoints(tmp_path / "brief"))
    assert not (tmp_path / "brief").exists()
    long = dataclasses.replace(BASE, epochs=3)
    training.train([long], digits, CPU, checkpoints=Checkpoints(tmp_path / "long", every=0))
    assert Checkpoints(tmp_path / "long").epoch(long) == 2  # the last before the end
