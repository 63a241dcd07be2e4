"""The SOI map: a nonlinearity whose only source is chance (paper, section 4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gelu_study.activations.gates import floating, gelu
from gelu_study.activations.gaussian import LIMIT, cdf_and_kernel


class SOIMap(nn.Module):
    """Stochastic 0-I map: x m with m ~ Bernoulli(Phi(x)), drawn for each element, in training; in evaluation its expectation,
    x Phi(x), the GELU.

    The mask is a constant to autograd, as dropout's is: the gradient is m. `generator` (on the input's device) draws the masks,
    by default PyTorch's own. Input and output have the same shape, of a floating dtype. Raises `TypeError` for any other.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """x or 0 in training, the expectation x Phi(x) in evaluation; shaped like x."""
        if not self.training:
            return gelu(x)
        probability = gate_probability(floating(x, "SOIMap"))
        drawn = torch.rand(x.shape, generator=self.generator, device=x.device, dtype=probability.dtype)
        return torch.where(drawn < probability, x, torch.zeros_like(x))  # a product would make NaN of -inf


def gate_probability(x: Tensor) -> Tensor:
    """Phi(x), the probability that the SOI map lets x pass, in float64 (float32 on MPS); no gradient."""
    wide = x.detach() if x.device.type == "mps" else x.detach().double()
    return cdf_and_kernel(wide.clamp(-LIMIT, LIMIT), False)[0]
