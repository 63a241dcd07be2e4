"""Stacks of networks that train together in batched matrix products.

A stack holds N networks of equal shape; everything else may differ from network to network. Forward and backward pass are written
out over buffers that are allocated once, because at width 128 a training step is as much memory traffic as arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import torch
from torch import Tensor

from gelu_study import activations, initialisations
from gelu_study.normalisations import Normalisation
from gelu_study.random_streams import GateStream, MaskStream

EVALUATION_BATCH = 500
"""Examples a pass when a stack is evaluated; bounds the memory and does not change results beyond rounding."""


def runs_of_equal(values: Sequence[object]) -> Iterator[tuple[object, int, int]]:
    """(value, start, stop) of each run of equal neighbours."""
    start = 0
    for value, group in groupby(values):
        stop = start + len(list(group))
        yield value, start, stop
        start = stop


class Stack(ABC):
    """N fully connected networks: linear layers; after each hidden one normalisation, an activation and inverted dropout, where
    there are any; outputs that a subclass reads.

    Args:
        widths: inputs, hidden widths, outputs.
        activation_names: one a network; equal neighbours are evaluated in one call. "soi" is the stochastic map in training and
            its expectation, the exact GELU, in evaluation.
        keep_probabilities: one a network; 1 means no dropout.
        seeds: one a network, for weights, masks and gates.
        batch_size: examples in a training minibatch.
        device: where parameters and buffers live.
        initialisation: a scheme of `initialisations.weights`, with the inputs' second moment.
        normalisation: a kind of `normalisations.Normalisation`, or "none".
        precision: of a training step's matrix products: "float32", or "bfloat16" with their operands and results rounded to it.
            Weights, everything between the products, and evaluation are float32 in both.

    `weights` are [N, in, out] and `biases` [N, 1, out] a layer, float32; `weight_gradients` and `bias_gradients` likewise.
    """

    def __init__(
        self,
        widths: Sequence[int],
        activation_names: Sequence[str],
        keep_probabilities: Sequence[float],
        seeds: Sequence[int],
        batch_size: int,
        device: torch.device,
        *,
        initialisation: str = "unit-norm",
        input_second_moment: float = 1.0,
        normalisation: str = "none",
        precision: str = "float32",
    ) -> None:
        self.size = len(seeds)
        self.device = device
        self._batch_size = batch_size
        self._activation_slices = [(str(name), i, j) for name, i, j in runs_of_equal(activation_names)]
        self._hidden = list(widths[1:-1])
        shapes = list(pairwise(widths))
        # Only the variance-matched scheme asks for the activation; the others share a seed's weights
        kinds = [
            (seed, str(name) if initialisation == "variance-matched" else "")
            for seed, name in zip(seeds, activation_names, strict=True)
        ]
        drawn = {kind: initialisations.weights(initialisation, shapes, *kind, input_second_moment) for kind in set(kinds)}
        self.weights = [torch.stack([drawn[kind][layer] for kind in kinds]).to(device) for layer in range(len(shapes))]
        self.biases = [torch.zeros(self.size, 1, out, device=device) for _, out in shapes]
        self.weight_gradients = [torch.zeros_like(weight) for weight in self.weights]
        self.bias_gradients = [torch.zeros_like(bias) for bias in self.biases]
        self.normalisations = [
            Normalisation(normalisation, self.size, batch_size, width, device) for width in self._hidden if normalisation != "none"
        ]

        chances = batch_size * sum(self._hidden)
        self._masks = [
            (MaskStream(seeds[i:j], float(keep), chances, device), i, j)  # type: ignore[arg-type]
            for keep, i, j in runs_of_equal(keep_probabilities)
            if keep != 1
        ]
        self._gates = {i: GateStream(seeds[i:j], chances, device) for name, i, j in self._activation_slices if name == "soi"}
        self.stochastic = bool(self._masks or self._gates)
        self._scratch = [self._buffer(batch_size, max(self._hidden)) for _ in range(2)]
        self._values = [self._buffer(batch_size, width) for width in self._hidden]
        self._slopes = [self._buffer(batch_size, width) for width in self._hidden]
        self._outputs = self._buffer(batch_size, widths[-1])
        self._rounded_weights = [weight.bfloat16() for weight in self.weights] if precision == "bfloat16" else []
        self._rounded_inputs: list[Tensor] = [torch.empty(0)] * len(shapes)

    def _buffer(self, batch: int, width: int) -> Tensor:
        return torch.empty(self.size, batch, width, device=self.device)

    def parameters(self, start: int, stop: int) -> list[tuple[Tensor, Tensor]]:
        """(parameter, gradient) of the networks start to stop: views, a pair for each weight, bias, scale and shift."""
        pairs = [*zip(self.weights, self.weight_gradients, strict=True), *zip(self.biases, self.bias_gradients, strict=True)]
        pairs += [pair for normalisation in self.normalisations for pair in normalisation.parameters()]
        return [(value[start:stop], gradient[start:stop]) for value, gradient in pairs]

    def running(self) -> list[Tensor]:
        """What a network holds besides its parameters, [N, ...] each: the running statistics of batch normalisation."""
        return [values for normalisation in self.normalisations for values in normalisation.running()]

    def training_step(self, x: Tensor, targets: Tensor, step: int, measure_clean: bool) -> tuple[Tensor, Tensor]:
        """Fill the gradients of one minibatch and return its losses, before any update.

        Args:
            x: inputs, [N, batch, in]. targets: [N, batch] int64 labels, or [N, batch, out]. step: counted from 0 over the whole
            run; chooses masks and gates. measure_clean: also measure the loss without chance.

        Returns: the mean loss that was differentiated and the one with dropout off and the SOI map's expectation in its place,
        each [N]; without `measure_clean` the second is the first.
        """
        for rounded, weight in zip(self._rounded_weights, self.weights, strict=False):
            rounded.copy_(weight)
        clean = None
        if measure_clean and self.stochastic:
            clean, _ = self._loss(self._forward(x, None), targets)
        outputs = self._forward(x, step)
        loss, kept = self._loss(outputs, targets)
        self._backward(x, self._output_gradient(outputs, targets, kept))
        return loss, loss if clean is None else clean

    def outputs(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """The networks' outputs on examples [n, in] or [N, n, in], dropout off: pieces of the examples with [N, piece, out]."""
        examples = x.shape[-2]
        batch = min(EVALUATION_BATCH, examples)
        widest = max(self._hidden)
        pre, value, slope = (self._buffer(batch, widest) for _ in range(3))
        for start in range(0, examples, batch):
            piece = slice(start, min(start + batch, examples))
            chunk = x[..., piece, :]
            count = chunk.shape[-2]
            hidden = chunk.expand(self.size, count, x.shape[-1])
            for layer, width in enumerate(self._hidden):
                z, h, s = (_part(buffer, count, width) for buffer in (pre, value, slope))
                torch.baddbmm(self.biases[layer], hidden, self.weights[layer], out=z)
                if self.normalisations:
                    self.normalisations[layer].evaluate_(z)
                self._activate(z, h, s)
                hidden = h
            yield piece, torch.baddbmm(self.biases[-1], hidden, self.weights[-1])

    def _activate(self, x: Tensor, value: Tensor, slope: Tensor, chance: tuple[int, int] | None = None) -> None:
        """Value and slope; `chance` holds the range of the layer's elements in a step's random numbers, where they count."""
        for name, i, j in self._activation_slices:
            if name == "soi" and chance is not None:
                open_ = slope[i:j]
                probability = torch.mul(x[i:j], -(0.5**0.5), out=value[i:j]).erfc_().mul_(0.5)
                self._gates[i].open(probability.view(j - i, -1), chance[0], out=open_.view(j - i, -1))
                torch.mul(x[i:j], open_, out=value[i:j])
            else:
                activations.value_and_slope_("gelu" if name == "soi" else name, x[i:j], value[i:j], slope[i:j])

    def _forward(self, x: Tensor, step: int | None) -> Tensor:
        """Outputs [N, batch, out]; with a step, chance is on, the slopes carry the masks too and running statistics move on."""
        if step is not None:
            for masks, _, _ in self._masks:
                masks.draw(step)
            for gates in self._gates.values():
                gates.draw(step)
        hidden, offset = x, 0
        for layer, width in enumerate(self._hidden):
            z = _part(self._scratch[0], self._batch_size, width)
            self._affine(layer, hidden, z)
            if self.normalisations:
                self.normalisations[layer].train_(z, update=step is not None)
            hidden, slope = self._values[layer], self._slopes[layer]
            elements = self._batch_size * width
            self._activate(z, hidden, slope, None if step is None else (offset, offset + elements))
            if step is not None:
                for stream, i, j in self._masks:
                    mask = z[i:j]  # the pre-activations have served
                    stream.mask(offset, offset + elements, out=mask.view(j - i, elements))
                    hidden[i:j].mul_(mask)
                    slope[i:j].mul_(mask)
                offset += elements
        return self._affine(len(self._hidden), hidden, self._outputs)

    def _affine(self, layer: int, x: Tensor, out: Tensor) -> Tensor:
        """A layer's x W + b in training, into `out`."""
        if not self._rounded_weights:
            return torch.baddbmm(self.biases[layer], x, self.weights[layer], out=out)
        self._rounded_inputs[layer] = x.bfloat16()
        return torch.add(torch.bmm(self._rounded_inputs[layer], self._rounded_weights[layer]), self.biases[layer], out=out)

    @abstractmethod
    def evaluate(self, x: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """What `runs.MEASURES` has of this kind of network, on examples [n, in] with their targets, dropout off: [N] each."""

    @abstractmethod
    def _loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss [N], and what `_output_gradient` can use of the way there."""

    @abstractmethod
    def _output_gradient(self, outputs: Tensor, targets: Tensor, kept: Tensor) -> Tensor:
        """d loss / d outputs, [N, batch, out]."""

    def _backward(self, x: Tensor, delta: Tensor) -> None:
        for layer in range(len(self._hidden), -1, -1):
            below = self._values[layer - 1] if layer else x
            torch.sum(delta, 1, keepdim=True, out=self.bias_gradients[layer])
            out = _part(self._scratch[layer % 2], self._batch_size, self._hidden[layer - 1]) if layer else None
            if self._rounded_weights:
                rounded = delta.bfloat16()
                self.weight_gradients[layer].copy_(torch.bmm(self._rounded_inputs[layer].mT, rounded))
                if out is not None:
                    out.copy_(torch.bmm(rounded, self._rounded_weights[layer].mT))
            else:
                torch.bmm(below.mT, delta, out=self.weight_gradients[layer])
                if out is not None:
                    torch.bmm(delta, self.weights[layer].mT, out=out)
            if out is not None:
                delta = out.mul_(self._slopes[layer - 1])
                if self.normalisations:
                    self.normalisations[layer - 1].backward_(delta)


class PerceptronStack(Stack):
    """Classifiers: softmax at the end, log loss in nats."""

    def evaluate(self, x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean log loss in nats and error in percent on examples [n, in] with labels [n], dropout off: [N] and [N]."""
        losses = torch.zeros(self.size, device=self.device)
        wrong = torch.zeros(self.size, device=self.device)
        for piece, logits in self.outputs(x):
            labels = targets[piece].expand(self.size, logits.shape[1])
            loss, _ = self._loss(logits, labels)
            losses += loss * logits.shape[1]
            wrong += (logits.argmax(-1) != labels).sum(-1)
        return losses / len(targets), 100 * wrong / len(targets)

    def wrong(self, x: Tensor, labels: Tensor) -> Tensor:
        """Which examples [n, in] each network gets wrong, dropout off: [N, n] bool."""
        return torch.cat([logits.argmax(-1) != labels[piece] for piece, logits in self.outputs(x)], 1)

    def _loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities = torch.log_softmax(outputs, -1)
        return -log_probabilities.gather(-1, targets.unsqueeze(-1)).mean((1, 2)), log_probabilities

    def _output_gradient(self, outputs: Tensor, targets: Tensor, kept: Tensor) -> Tensor:
        # (softmax - one-hot) / batch
        delta = kept.exp_()
        return delta.scatter_add_(-1, targets.unsqueeze(-1), torch.full_like(delta[..., :1], -1)).div_(self._batch_size)


class AutoencoderStack(Stack):
    """Autoencoders: linear outputs, squared error averaged over examples and outputs; the targets are the inputs."""

    def evaluate(self, x: Tensor, targets: Tensor) -> tuple[Tensor]:
        """Mean squared error on examples [n, in] with targets [n, out]: [N]."""
        losses = torch.zeros(self.size, device=self.device)
        for piece, outputs in self.outputs(x):
            losses += self._loss(outputs, targets[piece])[0] * outputs.shape[1]
        return (losses / len(targets),)

    def _loss(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        difference = outputs - targets
        return difference.square().mean((1, 2)), difference

    def _output_gradient(self, outputs: Tensor, targets: Tensor, kept: Tensor) -> Tensor:
        return kept.mul_(2 / (outputs.shape[1] * outputs.shape[2]))


STACKS: dict[str, type[Stack]] = {"perceptron": PerceptronStack, "autoencoder": AutoencoderStack}
"""The stack of each network of `RunConfig`."""


def _part(buffer: Tensor, batch: int, width: int) -> Tensor:
    """The first elements of a contiguous buffer [N, at least batch, at least width] as a contiguous [N, batch, width]."""
    size = buffer.shape[0]
    return buffer.view(-1)[: size * batch * width].view(size, batch, width)
