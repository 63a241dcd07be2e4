"""The convolutional networks against the paper's table, plain functional passes written from it, and arithmetic by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gelu_study import activations
from gelu_study.errors import ConfigurationError
from gelu_study.networks import CONVOLUTIONAL, FastConvNet, ShallowConvNet, WideResNet, convolutional
from gelu_study.networks.convolutional import _FUSED, ActivationLayer, multiplications

PAPER = (96,) * 3 + (192,) * 6
WRN = (16, *(64,) * 12, *(128,) * 12, *(256,) * 12)
FAST = (64, 64, 256, 256, 256, 256)
SMALL = {
    "shallow-convnet": (5, 6, 7, 8, 9, 10, 11, 12, 13),
    "wide-resnet": (4, 6, 6, 6, 6, 8, 8, 8, 8),
    "fast-convnet": (25, 26, 8, 9),
}

# Appendix B, table 1, with what its code adds: (kind, channels in, channels out, kernel, padding, side of the output)
TABLE = [
    *[("convolution", 3, 96, 3, 1, 32), ("normalisation", 96, 32), ("activation", 32)],
    *[("convolution", 96, 96, 3, 1, 32), ("normalisation", 96, 32), ("activation", 32)] * 2,
    *[("pooling", 2, 16), ("dropout", 0.5, 16)],
    *[("convolution", 96, 192, 3, 1, 16), ("normalisation", 192, 16), ("activation", 16)],
    *[("convolution", 192, 192, 3, 1, 16), ("normalisation", 192, 16), ("activation", 16)] * 2,
    *[("pooling", 2, 8), ("dropout", 0.5, 8)],
    *[("convolution", 192, 192, 3, 0, 6), ("normalisation", 192, 6), ("activation", 6)],
    *[("convolution", 192, 192, 1, 0, 6), ("normalisation", 192, 6), ("activation", 6)] * 2,
    *[("dense", 192, 10), ("normalisation", 10, 1)],
]


def described(layer: nn.Module, output: Tensor) -> tuple:
    side = output.shape[-1] if output.ndim == 4 else 1
    match layer:
        case nn.Conv2d():
            assert layer.stride == (1, 1) and layer.kernel_size[0] == layer.kernel_size[1] and layer.bias is None
            return ("convolution", layer.in_channels, layer.out_channels, layer.kernel_size[0], layer.padding[0], side)
        case nn.BatchNorm2d() | nn.BatchNorm1d():
            return ("normalisation", layer.num_features, side)
        case nn.MaxPool2d():
            return ("pooling", layer.kernel_size, side)
        case nn.Dropout():
            return ("dropout", layer.p, side)
        case nn.Linear():
            return ("dense", layer.in_features, layer.out_features)
    assert isinstance(layer, ActivationLayer) and layer.name == "gelu"
    return ("activation", side)


def small(network: str, activation: str = "gelu", keep: float = 1.0, seed: int = 3) -> nn.Module:
    return convolutional(network, SMALL[network], 10, activation, keep, seed)


def parameters(network: nn.Module) -> int:
    return sum(value.numel() for value in network.parameters())


def randomised(network: nn.Module) -> nn.Module:
    """Every parameter and statistic away from its initial value, so that each of them counts."""
    source = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for value in (*network.parameters(), *network.buffers()):
            if value.is_floating_point():
                value.add_(0.1 * torch.rand(value.shape, generator=source))
    return network


# ---------------------------------------------------------------------------------------------- structure and counts


def test_the_shallow_network_is_the_papers_table():
    network = convolutional("shallow-convnet", PAPER, 10, "gelu", 0.5, 0)
    found: list[tuple] = []
    for layer in network.modules():
        if not list(layer.children()):
            layer.register_forward_hook(lambda layer, _, output: found.append(described(layer, output)))
    with torch.no_grad():
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert found == TABLE


def test_parameters_of_the_shallow_network():
    convolutions = sum(9 * a * b for a, b in pairwise((3, *PAPER[:7]))) + 2 * 192 * 192
    shifts_and_scales = 2 * (sum(PAPER) + 10)
    assert convolutions + 192 * 10 + shifts_and_scales == 1_408_244
    assert parameters(convolutional("shallow-convnet", PAPER, 10, "relu", 0.5, 0)) == 1_408_244


def test_parameters_and_depth_of_the_wide_network():
    network = convolutional("wide-resnet", WRN, 100, "relu", 0.7, 0)
    total = 3 * 16 * 9 + 2 * 2 * 16
    for before, width in pairwise((16, 64, 128, 256)):
        first = (9 * before * width + width) + (9 * width * width + width) + 2 * width + before * width
        later = 2 * (9 * width * width + width) + 2 * width
        total += first + 5 * later
    total += 2 * 256 + 256 * 100 + 100
    assert total == parameters(network) == 8_972_884
    convolutions = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert len(network.blocks) == 3 * 6 and 6 * (len(network.blocks) // 3) + 4 == len(convolutions) == 40
    assert [layer.out_channels for layer in convolutions if layer.stride == (2, 2) and layer.kernel_size == (3, 3)] == [128, 256]


def test_parameters_of_the_fast_network():
    network = convolutional("fast-convnet", FAST, 10, "gelu", 1.0, 0)
    whitening = 24 * 3 * 2 * 2
    convolutions = sum(9 * a * b for a, b in pairwise((24, *FAST)))
    shifts, fixed_scales = 24 + sum(FAST), sum(FAST)
    assert whitening + convolutions + 256 * 10 + shifts + fixed_scales == parameters(network) == 1_972_792
    trained = sum(value.numel() for value in network.parameters() if value.requires_grad)
    assert trained == convolutions + 256 * 10 + shifts  # neither the whitening's weights nor scales


def test_multiplications_by_hand():
    shallow = sum(9 * a * b * side**2 for (a, b), side in zip(pairwise((3, *PAPER[:7])), (32, 32, 32, 16, 16, 16, 6), strict=True))
    shallow += 2 * 192 * 192 * 6**2 + 192 * 10
    assert multiplications(convolutional("shallow-convnet", PAPER, 10, "relu", 0.5, 0)) == shallow
    wide = 9 * (3 * 4 + 4 * 6 + 3 * 6 * 6) * 16**2 + 4 * 6 * 16**2 + 9 * (6 * 8 + 3 * 8 * 8) * 8**2 + 6 * 8 * 8**2 + 8 * 10
    network = small("wide-resnet").eval()
    assert multiplications(network, side=16) == wide
    fast = 12 * 24 * 31**2 + 9 * 24 * 25 * 31**2 + 9 * 25 * 26 * 15**2 + 9 * 26 * 8 * 15**2 + 9 * 8 * 9 * 7**2 + 9 * 10
    assert multiplications(small("fast-convnet")) == fast


def test_counting_multiplications_leaves_no_trace():
    network = small("shallow-convnet", keep=0.5).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    multiplications(network)
    assert network.training and not any(layer._forward_hooks for layer in network.modules())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("network", "hidden", "keep", "message"),
    [
        ("shallow-convnet", (8,) * 8, 0.5, "nine convolutions"),
        ("wide-resnet", (8, 16), 0.7, "blocks of two"),
        ("wide-resnet", (8, 16, 16, 32), 0.7, "blocks of two"),
        ("wide-resnet", (8, 16, 32), 0.7, "blocks of two"),
        ("wide-resnet", (8,), 0.7, "blocks of two"),
        ("fast-convnet", (8, 8, 16), 1.0, "two convolutions a group"),
        ("fast-convnet", (8, 8), 0.5, "no dropout"),
    ],
)
def test_widths_that_do_not_fit_are_refused(network, hidden, keep, message):
    with pytest.raises(ConfigurationError, match=message):
        convolutional(network, hidden, 10, "relu", keep, 0)


# ------------------------------------------------------------------------------------------------- plain passes


def plain_gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


class Weights:
    """A module's tensors, handed out in the order in which a pass written from the table needs them."""

    def __init__(self, network: nn.Module, training: bool, eps: float) -> None:
        self.training, self.eps = training, eps
        state = network.state_dict()
        kinds: dict[type, list[str]] = {nn.Conv2d: [], nn.Linear: [], nn.modules.batchnorm._BatchNorm: []}
        for name, layer in network.named_modules():
            for kind, names in kinds.items():
                if isinstance(layer, kind):
                    names.append(name)
        self._state = state
        self._convolutions, self._dense, self._normalisations = (iter(names) for names in kinds.values())
        self.statistics: list[tuple[str, Tensor, Tensor]] = []  # of the batch: name, mean, unbiased variance

    def convolve(self, x: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
        name = next(self._convolutions)
        return functional.conv2d(x, self._state[f"{name}.weight"], self._state.get(f"{name}.bias"), stride, padding)

    def dense(self, x: Tensor) -> Tensor:
        name = next(self._dense)
        return x @ self._state[f"{name}.weight"].T + self._state.get(f"{name}.bias", 0)

    def normalise(self, x: Tensor) -> Tensor:
        name = next(self._normalisations)
        over = (0, 2, 3)[: x.ndim - 1]
        shape = (1, -1, 1, 1)[: x.ndim]
        mean, variance = self._state[f"{name}.running_mean"], self._state[f"{name}.running_var"]
        if self.training:
            mean, variance = x.mean(over), x.var(over, correction=0)
            self.statistics.append((name, mean, x.var(over)))
        scaled = (x - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()
        return scaled * self._state[f"{name}.weight"].view(shape) + self._state[f"{name}.bias"].view(shape)


def pooled(x: Tensor) -> Tensor:
    n, channels, side, _ = x.shape
    half = side // 2
    return x[:, :, : 2 * half, : 2 * half].reshape(n, channels, half, 2, half, 2).amax((3, 5))


def plain_shallow(w: Weights, x: Tensor, keep: float) -> Tensor:
    for place in range(9):
        if place in (3, 6):
            x = pooled(x).contiguous(memory_format=torch.channels_last)
            x = functional.dropout(x, 1 - keep, w.training)
        x = plain_gelu(w.normalise(w.convolve(x, padding=1 if place < 6 else 0)))
    return w.normalise(w.dense(x.mean((2, 3))))


def plain_wide(w: Weights, x: Tensor, keep: float) -> Tensor:
    """As `SGDR_WRNs_gelu.py` orders its layers; in a state, a block's projection comes after its branch."""
    x = w.normalise(plain_gelu(w.normalise(w.convolve(x))))
    channels = x.shape[1]
    for place, width in enumerate(SMALL["wide-resnet"][1::2]):
        stride = 2 if width != channels and place else 1
        branch = plain_gelu(w.convolve(x, stride)).contiguous(memory_format=torch.channels_last)
        branch = functional.dropout(branch, 1 - keep, w.training)
        branch = w.normalise(plain_gelu(w.convolve(branch)))
        x = branch + (w.convolve(x, stride, 0) if width != channels else x)
        channels = width
    return w.dense(plain_gelu(w.normalise(x)).mean((2, 3)))


def plain_fast(w: Weights, x: Tensor, keep: float) -> Tensor:
    x = plain_gelu(w.convolve(x, padding=0))
    for _ in range(len(SMALL["fast-convnet"]) // 2):
        x = plain_gelu(w.normalise(pooled(w.convolve(x))))
        x = plain_gelu(w.normalise(w.convolve(x)))
    return w.dense(x.amax((2, 3))) / 9


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("name", "plain", "keep", "eps", "momentum"),
    [
        ("shallow-convnet", plain_shallow, 0.5, 1e-4, 0.1),
        ("wide-resnet", plain_wide, 0.7, 1e-4, 0.1),
        ("fast-convnet", plain_fast, 1.0, 1e-12, 0.4),
    ],
)
def test_forward_passes_against_plain_ones(name, plain, keep, eps, momentum, training):
    network = randomised(small(name, keep=keep)).train(training)
    x = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=torch.channels_last)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    weights = Weights(network, training, eps)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        expected = plain(weights, x, keep)
        torch.manual_seed(1)
        found = network(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 1e-3 and next(weights._convolutions, None) is None and next(weights._normalisations, None) is None
    after = network.state_dict()
    assert len(weights.statistics) == (len([key for key in after if key.endswith("running_mean")]) if training else 0)
    for layer, mean, variance in weights.statistics:
        for key, value in ((f"{layer}.running_mean", mean), (f"{layer}.running_var", variance)):
            torch.testing.assert_close(after[key], (1 - momentum) * before[key] + momentum * value, rtol=1e-4, atol=1e-5)


def test_dropout_counts_in_training_alone():
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    for name, keep in (("shallow-convnet", 0.5), ("wide-resnet", 0.7)):
        network, without = small(name, keep=keep), small(name)
        with torch.no_grad():
            assert torch.equal(network.eval()(x), without.eval()(x))
            assert not torch.allclose(network.train()(x), without.train()(x))


def test_activations_are_called_by_name():
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = [small("wide-resnet", name)(x) for name in ("gelu", "gelu_tanh", "relu", "elu", "silu", "gelu_sigmoid")]
    assert all(not torch.equal(a, b) for a, b in pairwise(outputs))
    with pytest.raises(ConfigurationError, match="unknown activation"):
        small("wide-resnet", "gulu")


@pytest.mark.parametrize("name", sorted(_FUSED))
def test_fused_kernels_are_the_registered_functions(name):
    x = torch.linspace(-12, 12, 4801, dtype=torch.float32)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    fused, registered = _FUSED[name](ours), activations.get(name)(theirs)
    torch.testing.assert_close(fused, registered, rtol=2e-6, atol=2e-6)
    fused.sum().backward()
    registered.sum().backward()
    away = x.abs() > 1e-3  # slopes at the kink itself are a convention
    torch.testing.assert_close(ours.grad[away], theirs.grad[away], rtol=1e-5, atol=5e-6)


# -------------------------------------------------------------------------------------------------- initial weights


def weighted(network: nn.Module) -> Iterator[tuple[str, nn.Conv2d | nn.Linear]]:
    yield from ((name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear))


def test_the_shallow_networks_weights_are_glorots():
    network = ShallowConvNet((24,) * 3 + (32,) * 6, 10, "relu", 0.5, 5)
    for name, layer in weighted(network):
        places = math.prod(layer.weight.shape[2:])
        variance = 2 / (places * (layer.weight.shape[0] + layer.weight.shape[1]))
        values, bound = layer.weight.detach().flatten(), math.sqrt(3 * variance)
        assert 0.97 * bound < values.abs().max() <= bound, name
        assert values.var().item() == pytest.approx(variance, rel=6 / math.sqrt(len(values))), name
        assert abs(values.mean().item()) < 5 * math.sqrt(variance / len(values)), name


def test_the_wide_networks_weights_are_hes():
    network = WideResNet((16, *(32,) * 4, *(64,) * 4), 10, "relu", 0.7, 5)
    projections = 0
    for name, layer in weighted(network):
        values, fan_in = layer.weight.detach().flatten(), layer.weight[0].numel()
        variance = 2 / fan_in
        if isinstance(layer, nn.Linear):
            variance = 1 / fan_in
        elif layer.kernel_size == (1, 1):
            projections += 1
            variance = 2 / (fan_in + layer.weight.shape[0])
            assert values.abs().max() <= math.sqrt(3 * variance), name
        else:
            kurtosis = (values / values.std()).pow(4).mean().item()
            assert kurtosis == pytest.approx(3, abs=25 / math.sqrt(len(values))), name  # 1.8 for a uniform one
        assert values.var().item() == pytest.approx(variance, rel=8 / math.sqrt(len(values))), name
        assert layer.bias is None or not layer.bias.any(), name
    assert projections == 2


def test_the_fast_networks_convolutions_begin_as_the_identity():
    network = FastConvNet((32, 16, 40, 40), 10, "gelu", 1.0, 5)
    x = torch.randn(2, 24, 8, 8, generator=torch.Generator().manual_seed(0))
    layers = [layer for _, layer in weighted(network) if isinstance(layer, nn.Conv2d) and layer is not network.whitening]
    for layer in layers:
        x = torch.randn(2, layer.in_channels, 8, 8, generator=torch.Generator().manual_seed(0))
        same = min(layer.in_channels, layer.out_channels)
        torch.testing.assert_close(layer(x)[:, :same], x[:, :same])
        rest = layer.weight[layer.in_channels :].detach()
        bound = 1 / math.sqrt(9 * layer.in_channels)
        assert not rest.numel() or 0.95 * bound < rest.abs().max() <= bound
    assert any(layer.out_channels > layer.in_channels for layer in layers)
    assert network.output.weight.abs().max() <= 1 / math.sqrt(40) and network.output.weight.std() > 0.5 / math.sqrt(3 * 40)
    assert not network.whitening.bias.any() and not network.whitening.weight.requires_grad


@pytest.mark.parametrize("name", sorted(CONVOLUTIONAL))
def test_a_seeds_weights_are_the_same_for_all_activations(name):
    state, other, another = (small(name, activation).state_dict() for activation in ("gelu", "relu", "gelu_sigmoid"))
    reseeded = small(name, "gelu", seed=4).state_dict()
    assert state.keys() == other.keys()
    for key, value in state.items():
        assert torch.equal(value, other[key]) and torch.equal(value, another[key]), key
        if key.endswith("weight") and value.ndim > 1:
            identity = name == "fast-convnet" and value.ndim == 4 and value.shape[0] <= value.shape[1]
            assert torch.equal(value, reseeded[key]) == identity, key
        elif key.endswith("bias"):
            assert not value.any(), key
        elif key.endswith("weight"):
            assert (value == 1).all(), key


def test_drawing_weights_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    for name in CONVOLUTIONAL:
        small(name)
    assert torch.equal(torch.get_rng_state(), before)


# ------------------------------------------------------------------------------------------------------- whitening


def test_whitened_patches_have_unit_covariance_up_to_the_floor():
    rng = np.random.default_rng(0)
    side, n = 8, 40
    images = 0.05 * rng.normal(size=(n, 3, side, side))
    blurred = images + np.roll(images, 1, 2) + np.roll(images, 1, 3) + 0.02  # neighbours are alike, as in pictures
    network = small("fast-convnet")
    network.whiten(torch.tensor(blurred, dtype=torch.float32))
    patches = np.stack(
        [blurred[i, :, r : r + 2, c : c + 2].ravel() for i in range(n) for r in range(side - 1) for c in range(side - 1)]
    )
    eigenvalues = np.linalg.eigvalsh(patches.T @ patches / len(patches))[::-1]
    with torch.no_grad():
        output = network.whitening(torch.tensor(blurred, dtype=torch.float32)).double().movedim(1, 3).reshape(-1, 24).numpy()
    assert eigenvalues[0] > 0.01 > 5e-4 < eigenvalues[-1] < 5e-3  # so that the floor counts
    second = output.T @ output / len(output)
    np.testing.assert_allclose(second[:12, :12], np.diag(eigenvalues / (eigenvalues + 5e-4)), atol=1e-4)
    np.testing.assert_allclose(output[:, 12:], -output[:, :12], atol=1e-6)
