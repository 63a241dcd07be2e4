"""Convolutional classifiers of 32 x 32 images: the paper's two, and one made to train fast.

Each is a plain module; weights are drawn from the run's seed, layer after layer, the same whatever the activation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from gelu_study import activations
from gelu_study.errors import ConfigurationError
from gelu_study.random_streams import generator

CHANNELS = 3
"""Colours of an image."""

_FUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "elu": functional.elu,
    "silu": functional.silu,
}
"""PyTorch's own kernels: a pass forward and one backward, in bfloat16 too, where ours cost several."""


class ActivationLayer(nn.Module):
    """An activation by its registered name, by PyTorch's own kernel where it has one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.function = _FUSED.get(name) or activations.get(name)

    def forward(self, x: Tensor) -> Tensor:
        """f(x) of every element, shaped like x."""
        return self.function(x)

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses."""
        return self.name


def _convolution(
    inputs: int, outputs: int, size: int = 3, *, stride: int = 1, padding: int | None = None, bias: bool = False
) -> nn.Conv2d:
    """A convolution that keeps the side at stride 1, unless another padding is asked for; its weights are drawn later."""
    padding = size // 2 if padding is None else padding
    layer: nn.Conv2d = nn.utils.skip_init(nn.Conv2d, inputs, outputs, size, stride=stride, padding=padding, bias=bias)
    return layer


def _linear(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs, bias=bias)
    return layer


class ShallowConvNet(nn.Module):
    """The paper's nine-layer network for CIFAR-10 (appendix B, table 1) as its code has it.

    Three 3 x 3 convolutions, max pooling, dropout, three more, max pooling, dropout, a 3 x 3 convolution without padding and two
    1 x 1 ones, the average over places, a dense layer. Batch normalisation stands between each convolution and its activation and
    after the dense layer, in the code though not in the table; so only the normalisations have shifts. Weights are uniform with
    variance 2 / (fan in + fan out) (Glorot & Bengio 2010), Lasagne's default.

    Args:
        hidden: channels of the nine convolutions. keep_probability: of a value after each pooling.
    """

    EPSILON = 1e-4  # Lasagne's
    MOMENTUM = 0.1

    def __init__(self, hidden: Sequence[int], classes: int, activation: str, keep_probability: float, seed: int) -> None:
        super().__init__()
        if len(hidden) != 9:
            raise ConfigurationError(f"hidden is {tuple(hidden)}; the shallow network has the channels of nine convolutions")
        layers: list[nn.Module] = []
        for place, (inputs, outputs) in enumerate(pairwise((CHANNELS, *hidden))):
            if place in (3, 6):
                layers += [nn.MaxPool2d(2), nn.Dropout(1 - keep_probability)]
            size = 3 if place < 7 else 1
            layers.append(_convolution(inputs, outputs, size, padding=0 if place == 6 else None))
            layers += [self._normalisation(nn.BatchNorm2d(outputs)), ActivationLayer(activation)]
        self.features = nn.Sequential(*layers)
        self.output = _linear(hidden[-1], classes, bias=False)
        self.output_normalisation = self._normalisation(nn.BatchNorm1d(classes))
        source = generator(seed, "weights")
        for layer in _weighted(self):
            places = layer.weight[0, 0].numel() if layer.weight.ndim == 4 else 1
            bound = math.sqrt(6 / (places * (layer.weight.shape[0] + layer.weight.shape[1])))
            nn.init.uniform_(layer.weight, -bound, bound, generator=source)

    def _normalisation(self, layer: nn.BatchNorm1d | nn.BatchNorm2d) -> nn.Module:
        layer.eps, layer.momentum = self.EPSILON, self.MOMENTUM
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, classes] of images [n, 3, 32, 32]."""
        hidden = self.features(x).mean((2, 3))
        logits: Tensor = self.output_normalisation(self.output(hidden))
        return logits


class _Residual(nn.Module):
    """Convolution, activation, dropout, convolution, activation, batch normalisation, added to the input or its projection."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: str, keep_probability: float) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            _convolution(inputs, outputs, stride=stride, bias=True),
            ActivationLayer(activation),
            nn.Dropout(1 - keep_probability),
            _convolution(outputs, outputs, bias=True),
            ActivationLayer(activation),
            nn.BatchNorm2d(outputs, eps=ShallowConvNet.EPSILON),
        )
        changes = stride != 1 or inputs != outputs
        self.shortcut = _convolution(inputs, outputs, 1, stride=stride, padding=0) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.branch(x) + self.shortcut(x)
        return value


class WideResNet(nn.Module):
    """The paper's wide residual network for CIFAR-100 (section 3.5) as its code has it, after Zagoruyko & Komodakis 2016.

    A convolution, two batch normalisations about an activation, stages of residual blocks, batch normalisation, an activation, the
    average over places, a dense layer. Within a block the order is convolution, activation, dropout, convolution, activation, batch
    normalisation; the first block of a later stage halves the side. Weights are normal with variance 2 / fan in (He et al. 2015),
    1 / fan in for the dense layer, those of projections uniform as Glorot's; biases 0.

    Args:
        hidden: channels of the 3 x 3 convolutions, the first alone, then two a block; a stage begins where they change.
    """

    def __init__(self, hidden: Sequence[int], classes: int, activation: str, keep_probability: float, seed: int) -> None:
        super().__init__()
        pairs = list(zip(hidden[1::2], hidden[2::2], strict=False))
        if len(hidden) < 3 or len(hidden) % 2 == 0 or any(a != b for a, b in pairs):
            raise ConfigurationError(
                f"hidden is {tuple(hidden)}; a wide residual network has one convolution, then blocks of two of equal channels"
            )
        epsilon = ShallowConvNet.EPSILON
        self.stem = nn.Sequential(
            _convolution(CHANNELS, hidden[0]),
            nn.BatchNorm2d(hidden[0], eps=epsilon),
            ActivationLayer(activation),
            nn.BatchNorm2d(hidden[0], eps=epsilon),
        )
        widths = [hidden[0], *(width for width, _ in pairs)]
        strides = [1, *(2 if after != before else 1 for before, after in pairwise(widths[1:]))]
        self.blocks = nn.Sequential(
            *(
                _Residual(before, after, stride, activation, keep_probability)
                for (before, after), stride in zip(pairwise(widths), strides, strict=True)
            )
        )
        self.head = nn.Sequential(nn.BatchNorm2d(widths[-1], eps=epsilon), ActivationLayer(activation))
        self.output = _linear(widths[-1], classes, bias=True)
        projections = {id(block.shortcut) for block in self.blocks if isinstance(block, _Residual)}
        source = generator(seed, "weights")
        for layer in _weighted(self):
            fan_in = layer.weight[0].numel()
            if id(layer) in projections:
                bound = math.sqrt(6 / (fan_in + layer.weight.shape[0]))
                nn.init.uniform_(layer.weight, -bound, bound, generator=source)
            else:
                nn.init.normal_(layer.weight, std=math.sqrt((1 if layer is self.output else 2) / fan_in), generator=source)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, classes] of images [n, 3, 32, 32]."""
        hidden = self.head(self.blocks(self.stem(x)))
        logits: Tensor = self.output(hidden.mean((2, 3)))
        return logits


class FastConvNet(nn.Module):
    """A small network that reaches 94 % on CIFAR-10 in ten epochs, built on the ideas that Jordan 2024 (arXiv:2404.00498) collects.

    A fixed 2 x 2 convolution to the principal directions of image patches and their negatives (`whiten`), with shifts, and an
    activation; then groups of convolution, max pooling, batch normalisation, activation, convolution, batch normalisation,
    activation; the maximum over the last places, a dense layer, a ninth of its outputs. Convolutions begin as the identity on their
    first input channels, the rest uniform as PyTorch's own default; normalisations have shifts but no scales.

    Args:
        hidden: channels of the 3 x 3 convolutions, two a group.
    """

    PATCH = 2
    OUTPUT_SCALE = 1 / 9

    def __init__(self, hidden: Sequence[int], classes: int, activation: str, keep_probability: float, seed: int) -> None:
        super().__init__()
        if not hidden or len(hidden) % 2:
            raise ConfigurationError(f"hidden is {tuple(hidden)}; the fast network has the channels of two convolutions a group")
        if keep_probability != 1:
            raise ConfigurationError(f"keep_probability is {keep_probability}; the fast network has no dropout: leave it at 1")
        first = 2 * CHANNELS * self.PATCH**2
        self.whitening = _convolution(CHANNELS, first, self.PATCH, padding=0, bias=True)
        self.whitening.weight.requires_grad_(False)
        layers: list[nn.Module] = [ActivationLayer(activation)]
        for place, (inputs, outputs) in enumerate(pairwise((first, *hidden))):
            layers.append(_convolution(inputs, outputs))
            if place % 2 == 0:
                layers.append(nn.MaxPool2d(2))
            layers += [_Shifted(outputs), ActivationLayer(activation)]
        self.features = nn.Sequential(*layers)
        self.output = _linear(hidden[-1], classes, bias=False)
        source = generator(seed, "weights")
        for layer in _weighted(self):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            nn.init.uniform_(layer.weight, -bound, bound, generator=source)
            if isinstance(layer, nn.Conv2d) and layer is not self.whitening:
                nn.init.dirac_(layer.weight.data[: layer.in_channels])
        nn.init.zeros_(self.whitening.bias)  # type: ignore[arg-type]

    @torch.no_grad()
    def whiten(self, images: Tensor) -> None:
        """Set the first convolution from images [n, 3, 32, 32], normalised as in training: its outputs have variance 1 and are
        uncorrelated over their patches, up to a floor of 5e-4 under the variances."""
        size = self.PATCH
        patches = images.double().unfold(2, size, 1).unfold(3, size, 1).movedim(1, 3).reshape(-1, CHANNELS * size**2)
        variances, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (directions / (variances + 5e-4).sqrt()).T.flip(0).view(-1, CHANNELS, size, size)
        self.whitening.weight.copy_(torch.cat([filters, -filters]))

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, classes] of images [n, 3, 32, 32]."""
        hidden = self.features(self.whitening(x)).amax((2, 3))
        logits: Tensor = self.output(hidden) * self.OUTPUT_SCALE
        return logits


class _Shifted(nn.BatchNorm2d):
    """Batch normalisation with shifts alone, and running statistics that follow fast."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-12, momentum=0.4)
        self.weight.requires_grad_(False)


def _weighted(network: nn.Module) -> Iterator[nn.Conv2d | nn.Linear]:
    """The layers with weights to draw, in the order in which they were made."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            yield layer


CONVOLUTIONAL: dict[str, type[ShallowConvNet] | type[WideResNet] | type[FastConvNet]] = {
    "shallow-convnet": ShallowConvNet,
    "wide-resnet": WideResNet,
    "fast-convnet": FastConvNet,
}
"""The convolutional networks of `RunConfig`."""


def convolutional(
    network: str, hidden: Sequence[int], classes: int, activation: str, keep_probability: float, seed: int
) -> ShallowConvNet | WideResNet | FastConvNet:
    """A convolutional network on the CPU, channels last. Raises `ConfigurationError` for widths that do not fit."""
    made = CONVOLUTIONAL[network](hidden, classes, activation, keep_probability, seed)
    return made.to(memory_format=torch.channels_last)


def multiplications(network: nn.Module, side: int = 32) -> int:
    """Multiplications of the convolutions and dense layers in one image's pass forward; a training step takes three times as many,
    twice that in floating-point operations."""
    counted = 0

    def count(layer: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal counted
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        counted += layer.weight[0].numel() * output[0].numel()

    hooks = [layer.register_forward_hook(count) for layer in _weighted(network)]
    training = network.training
    device = next(network.parameters()).device
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, CHANNELS, side, side, device=device))
    finally:
        network.train(training)
        for hook in hooks:
            hook.remove()
    return counted
