"""Stacks of networks that train together in batched matrix products.

A stack holds N networks of equal shape; everything else may differ from network to network. Forward and backward pass are written
out over buffers that are allocated once, because at width 128 a training step is as much memory traffic as arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import torch
from torch import Tensor

from gelu_study import activations
from gelu_study.random_streams import MaskStream, generator

EVALUATION_BATCH = 500
"""Examples a pass when a stack is evaluated; bounds the memory and does not change results beyond rounding."""


def runs_of_equal(values: Sequence[object]) -> Iterator[tuple[object, int, int]]:
    """(value, start, stop) of each run of equal neighbours."""
    start = 0
    for value, group in groupby(values):
        stop = start + len(list(group))
        yield value, start, stop
        start = stop


class PerceptronStack:
    """N fully connected classifiers: linear layers, an activation and inverted dropout after each hidden one, softmax at the end.

    Args:
        widths: inputs, hidden widths, classes.
        activation_names: one a network; equal neighbours are evaluated in one call.
        keep_probabilities: one a network; 1 means no dropout.
        seeds: one a network, for weights and masks.
        batch_size: examples in a training minibatch.
        device: where parameters and buffers live.

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
    ) -> None:
        self.size = len(seeds)
        self.device = device
        self._batch_size = batch_size
        self._activation_slices = [(str(name), i, j) for name, i, j in runs_of_equal(activation_names)]
        self._hidden = list(widths[1:-1])
        shapes = list(pairwise(widths))
        drawn = {seed: unit_norm_weights(shapes, seed) for seed in set(seeds)}
        self.weights = [torch.stack([drawn[seed][layer] for seed in seeds]).to(device) for layer in range(len(shapes))]
        self.biases = [torch.zeros(self.size, 1, out, device=device) for _, out in shapes]
        self.weight_gradients = [torch.zeros_like(weight) for weight in self.weights]
        self.bias_gradients = [torch.zeros_like(bias) for bias in self.biases]

        mask_elements = batch_size * sum(self._hidden)
        self._masks = [
            (MaskStream(list(seeds[i:j]), float(keep), mask_elements, device), i, j)  # type: ignore[arg-type]
            for keep, i, j in runs_of_equal(keep_probabilities)
            if keep != 1
        ]
        self.has_dropout = bool(self._masks)
        self._scratch = [self._buffer(batch_size, max(self._hidden)) for _ in range(2)]
        self._values = [self._buffer(batch_size, width) for width in self._hidden]
        self._slopes = [self._buffer(batch_size, width) for width in self._hidden]
        self._logits = self._buffer(batch_size, widths[-1])

    def _buffer(self, batch: int, width: int) -> Tensor:
        return torch.empty(self.size, batch, width, device=self.device)

    def parameters(self, start: int, stop: int) -> list[tuple[Tensor, Tensor]]:
        """(parameter, gradient) of the networks start to stop: views, a pair for each weight and bias."""
        values, gradients = [*self.weights, *self.biases], [*self.weight_gradients, *self.bias_gradients]
        return [(value[start:stop], gradient[start:stop]) for value, gradient in zip(values, gradients, strict=True)]

    def training_step(self, x: Tensor, labels: Tensor, step: int, measure_clean: bool) -> tuple[Tensor, Tensor]:
        """Fill the gradients of one minibatch and return its losses, before any update.

        Args:
            x: inputs, [N, batch, in]. labels: [N, batch] int64. step: counted from 0 over the whole run; chooses the masks.
            measure_clean: also measure the loss without dropout.

        Returns: the mean log loss that was differentiated and the one with dropout off, each [N] in nats; without
        `measure_clean` the second is the first.
        """
        clean = None
        if measure_clean and self.has_dropout:
            clean, _ = self._loss(self._forward(x, None), labels)
        loss, log_probabilities = self._loss(self._forward(x, step), labels)
        self._backward(x, labels, log_probabilities)
        return loss, loss if clean is None else clean

    def evaluate(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Mean log loss in nats and error in percent on examples [n, in] with labels [n], dropout off: [N] and [N]."""
        losses = torch.zeros(self.size, device=self.device)
        wrong = torch.zeros(self.size, device=self.device)
        widest = max(self._hidden)
        pre, value, slope = (self._buffer(EVALUATION_BATCH, widest) for _ in range(3))
        for start in range(0, len(x), EVALUATION_BATCH):
            chunk, target = x[start : start + EVALUATION_BATCH], labels[start : start + EVALUATION_BATCH]
            count = len(chunk)
            hidden = chunk.expand(self.size, *chunk.shape)
            for layer, width in enumerate(self._hidden):
                z, h, s = (_part(buffer, count, width) for buffer in (pre, value, slope))
                torch.baddbmm(self.biases[layer], hidden, self.weights[layer], out=z)
                self._activate(z, h, s)
                hidden = h
            logits = torch.baddbmm(self.biases[-1], hidden, self.weights[-1])
            targets = target.expand(self.size, count)
            loss, _ = self._loss(logits, targets)
            losses += loss * count
            wrong += (logits.argmax(-1) != targets).sum(-1)
        return losses / len(x), 100 * wrong / len(x)

    def _activate(self, x: Tensor, value: Tensor, slope: Tensor) -> None:
        for name, i, j in self._activation_slices:
            activations.value_and_slope_(name, x[i:j], value[i:j], slope[i:j])

    def _forward(self, x: Tensor, masks_of_step: int | None) -> Tensor:
        """Logits [N, batch, classes]; with a step, dropout is on and the slopes carry the masks too."""
        if masks_of_step is not None:
            for stream, _, _ in self._masks:
                stream.draw(masks_of_step)
        hidden, offset = x, 0
        for layer, width in enumerate(self._hidden):
            z = _part(self._scratch[0], self._batch_size, width)
            torch.baddbmm(self.biases[layer], hidden, self.weights[layer], out=z)
            hidden, slope = self._values[layer], self._slopes[layer]
            self._activate(z, hidden, slope)
            if masks_of_step is not None:
                elements = self._batch_size * width
                for stream, i, j in self._masks:
                    mask = z[i:j]  # the pre-activations have served
                    stream.mask(offset, offset + elements, out=mask.view(j - i, elements))
                    hidden[i:j].mul_(mask)
                    slope[i:j].mul_(mask)
                offset += elements
        return torch.baddbmm(self.biases[-1], hidden, self.weights[-1], out=self._logits)

    def _loss(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities = torch.log_softmax(logits, -1)
        return -log_probabilities.gather(-1, labels.unsqueeze(-1)).mean((1, 2)), log_probabilities

    def _backward(self, x: Tensor, labels: Tensor, log_probabilities: Tensor) -> None:
        # d loss / d logits = (softmax - one-hot) / batch
        delta = log_probabilities.exp_()
        delta.scatter_add_(-1, labels.unsqueeze(-1), torch.full_like(delta[..., :1], -1)).div_(self._batch_size)
        for layer in range(len(self._hidden), -1, -1):
            below = self._values[layer - 1] if layer else x
            torch.bmm(below.mT, delta, out=self.weight_gradients[layer])
            torch.sum(delta, 1, keepdim=True, out=self.bias_gradients[layer])
            if layer:
                out = _part(self._scratch[layer % 2], self._batch_size, self._hidden[layer - 1])
                delta = torch.bmm(delta, self.weights[layer].mT, out=out).mul_(self._slopes[layer - 1])


def _part(buffer: Tensor, batch: int, width: int) -> Tensor:
    """The first elements of a contiguous buffer [N, at least batch, at least width] as a contiguous [N, batch, width]."""
    size = buffer.shape[0]
    return buffer.view(-1)[: size * batch * width].view(size, batch, width)


def unit_norm_weights(shapes: Sequence[tuple[int, int]], seed: int) -> list[Tensor]:
    """The paper's initialisation: standard normal [in, out] matrices, each unit's incoming vector (a column) scaled to norm 1.

    Drawn on the CPU, layer after layer, from the seed's stream for weights, so that all activations of a seed start alike.
    """
    source = generator(seed, "weights")
    return [torch.nn.functional.normalize(torch.randn(shape, generator=source), dim=0) for shape in shapes]
