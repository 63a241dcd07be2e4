"""In-place kernels: value and derivative together, without allocating, for the training engine's stacked steps.

They trade the last digits of the tail for speed: x's own float32 or float64 throughout, within a few units of the last place of 1.
Each takes (x, value, slope), writes f(x) into `value` and f'(x) into `slope`; x is left as it was and shares memory with neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gelu_study.activations.gates import SIGMOID_SCALE, TANH_C1, TANH_C3
from gelu_study.activations.gaussian import INV_SQRT_2PI

Kernel = Callable[[Tensor, Tensor, Tensor], None]

SQRT_HALF = math.sqrt(0.5)


def _gelu(x: Tensor, value: Tensor, slope: Tensor) -> None:
    torch.mul(x, x, out=slope).mul_(-0.5).exp_().mul_(INV_SQRT_2PI).mul_(x)  # x phi(x)
    torch.mul(x, -SQRT_HALF, out=value).erfc_().mul_(0.5)  # Phi(x)
    slope.add_(value)
    value.mul_(x)


def _logistic(c1: float, c3: float) -> Kernel:
    """f(x) = x sigmoid(x p(x)) with p = c1 + c3 x^2, so f' = s + x (c1 + 3 c3 x^2) s (1 - s).

    Eight passes over the data of which one is transcendental: on AVX-512 about a third of the time of PyTorch's own tanh form.
    """

    def kernel(x: Tensor, value: Tensor, slope: Tensor) -> None:
        one = torch.full((), c1, dtype=x.dtype, device=x.device)
        torch.addcmul(one, x, x, value=c3, out=value)
        value.mul_(x).sigmoid_()  # s
        torch.addcmul(one, x, x, value=3 * c3, out=slope)
        if c3:
            # where x^2 overflows, s (1 - s) is 0, and infinity times 0 is no number
            slope.clamp_(max=torch.finfo(x.dtype).max)
        torch.ops.aten.sigmoid_backward.grad_input(slope, value, grad_input=slope)  # slope * s * (1 - s)
        torch.addcmul(value, x, slope, out=slope)
        value.mul_(x)

    return kernel


def _relu(x: Tensor, value: Tensor, slope: Tensor) -> None:
    torch.clamp_min(x, 0, out=value)
    torch.gt(x, 0, out=slope)


def _elu(x: Tensor, value: Tensor, slope: Tensor) -> None:
    # exp(x) - 1 rather than expm1, which is ten times slower: it is wrong by half a unit of 1 at most, less than the rounding of x
    torch.clamp_max(x, 0, out=slope).exp_()
    torch.sub(slope, 1, out=value)
    torch.maximum(x, value, out=value)


def _identity(x: Tensor, value: Tensor, slope: Tensor) -> None:
    value.copy_(x)
    slope.fill_(1)


def by_autograd(function: Callable[[Tensor], Tensor]) -> Kernel:
    """The kernel of any elementwise function, at autograd's pace."""

    def kernel(x: Tensor, value: Tensor, slope: Tensor) -> None:
        with torch.inference_mode(False), torch.enable_grad():
            tracked = x.detach().clone().requires_grad_()
            result = function(tracked)
            (gradient,) = torch.autograd.grad(result, tracked, torch.ones_like(result))
        slope.copy_(gradient)
        value.copy_(result.detach())

    return kernel


KERNELS: dict[str, Kernel] = {
    "gelu": _gelu,
    "gelu_tanh": _logistic(TANH_C1, TANH_C3),
    "gelu_sigmoid": _logistic(SIGMOID_SCALE, 0.0),
    "silu": _logistic(1.0, 0.0),
    "relu": _relu,
    "elu": _elu,
    "identity": _identity,
}
