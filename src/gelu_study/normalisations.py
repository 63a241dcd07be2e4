"""Normalisation of a stack's pre-activations, written out: forward in place, backward in place, no graph kept."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-5
MOMENTUM = 0.1


class Normalisation:
    """Scale (z - mean) / sqrt(variance + 1e-5) + shift of one layer of N networks, z [N, batch, width].

    `kind` "batch": mean and variance over the minibatch, running ones in evaluation (Ioffe & Szegedy 2015, arXiv:1502.03167);
    "layer": over the units of an example (Ba et al. 2016, arXiv:1607.06450). Epsilon and the running statistics' momentum of 0.1
    are PyTorch's; scale begins at 1 and shift at 0, each [N, 1, width].
    """

    def __init__(self, kind: str, size: int, batch_size: int, width: int, device: torch.device) -> None:
        self._over = {"batch": 1, "layer": 2}[kind]
        self._standard = torch.empty(size, batch_size, width, device=device)
        self._inverse = torch.empty(0)
        self._scale, self._shift = torch.ones(size, 1, width, device=device), torch.zeros(size, 1, width, device=device)
        self._scale_gradient, self._shift_gradient = torch.zeros_like(self._scale), torch.zeros_like(self._shift)
        self._running = (
            [torch.zeros(size, 1, width, device=device), torch.ones(size, 1, width, device=device)] if kind == "batch" else []
        )

    def parameters(self) -> list[tuple[Tensor, Tensor]]:
        """(scale, its gradient) and (shift, its gradient)."""
        return [(self._scale, self._scale_gradient), (self._shift, self._shift_gradient)]

    def running(self) -> list[Tensor]:
        """Running mean and unbiased variance of batch normalisation, [N, 1, width] each."""
        return self._running

    def train_(self, z: Tensor, update: bool) -> None:
        """Normalise a training minibatch in place; with `update` the running statistics move on."""
        variance, mean = torch.var_mean(z, self._over, correction=0, keepdim=True)
        if update and self._running:
            count = z.shape[1]
            self._running[0].lerp_(mean, MOMENTUM)
            self._running[1].lerp_(variance * (count / (count - 1)), MOMENTUM)
        self._inverse = torch.rsqrt(variance + EPSILON)
        torch.mul(z.sub_(mean), self._inverse, out=self._standard)
        torch.addcmul(self._shift, self._standard, self._scale, out=z)

    def evaluate_(self, z: Tensor) -> None:
        """Normalise in place as in evaluation, whatever the number of examples."""
        if self._running:
            mean, variance = self._running
        else:
            variance, mean = torch.var_mean(z, self._over, correction=0, keepdim=True)
        z.sub_(mean).mul_(torch.rsqrt(variance + EPSILON)).mul_(self._scale).add_(self._shift)

    def backward_(self, delta: Tensor) -> None:
        """Turn d loss / d output of the last training minibatch into d loss / d z, in place, and fill the gradients."""
        torch.sum(delta, 1, keepdim=True, out=self._shift_gradient)
        torch.sum(delta * self._standard, 1, keepdim=True, out=self._scale_gradient)
        delta.mul_(self._scale)
        mean = delta.mean(self._over, keepdim=True)
        along = (delta * self._standard).mean(self._over, keepdim=True)
        delta.sub_(mean).sub_(self._standard * along).mul_(self._inverse)
