"""Activation functions by name, and the in-place kernels with which the training engine evaluates them.

Every function takes and returns a floating-point tensor of any shape and is differentiable by autograd. `value_and_slope_`
gives value and derivative together without allocating, which is what a stacked training step wants.

The GELU comes in three forms, and they are different functions: `gelu` is x Phi(x), `gelu_tanh` the approximation with which every
experiment of the paper was run, `gelu_sigmoid` the fast one (Hendrycks & Gimpel 2016, sections 2 and 5, arXiv:1606.08415).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gelu_study.errors import ConfigurationError

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
# 0.5 (1 + tanh u) = sigmoid(2 u), so the tanh form is x sigmoid(x (C1 + C3 x^2)) with the paper's constants doubled.
TANH_C1 = 2 * math.sqrt(2 / math.pi)
TANH_C3 = TANH_C1 * 0.044715
SIGMOID_SCALE = 1.702


def gelu(x: Tensor) -> Tensor:
    """x Phi(x) = x erfc(-x / sqrt 2) / 2 (paper, equation in section 2).

    Written with erfc: the usual 1 + erf cancels in the negative tail and has no correct digit in float32 below about -5.5.
    """
    return 0.5 * x * torch.erfc(x * -SQRT_HALF)


def gelu_tanh(x: Tensor) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (paper, section 5), written as x sigmoid(2 ...)."""
    return x * torch.sigmoid(x * (TANH_C1 + TANH_C3 * (x * x)))


def gelu_sigmoid(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x), the fast and least accurate form (paper, section 5; "quick GELU" in CLIP)."""
    return x * torch.sigmoid(SIGMOID_SCALE * x)


def relu(x: Tensor) -> Tensor:
    """max(0, x) (Nair & Hinton 2010); the derivative at 0 is 0."""
    return torch.relu(x)


def elu(x: Tensor) -> Tensor:
    """x where x > 0, else exp(x) - 1: alpha is 1, as everywhere in the paper (Clevert et al. 2016, arXiv:1511.07289)."""
    return torch.nn.functional.elu(x)


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x) (named in the paper, section 5; also "swish")."""
    return torch.nn.functional.silu(x)


def identity(x: Tensor) -> Tensor:
    """x itself: a linear network, the control."""
    return x


Function = Callable[[Tensor], Tensor]
# (x, value, slope): writes f(x) into `value` and f'(x) into `slope`; x is left as it was and shares memory with neither.
Kernel = Callable[[Tensor, Tensor, Tensor], None]


def _gelu_kernel(x: Tensor, value: Tensor, slope: Tensor) -> None:
    torch.mul(x, x, out=slope).mul_(-0.5).exp_().mul_(INV_SQRT_2PI).mul_(x)  # x phi(x)
    torch.mul(x, -SQRT_HALF, out=value).erfc_().mul_(0.5)  # Phi(x)
    slope.add_(value)
    value.mul_(x)


def _sigmoid_kernel(c1: float, c3: float) -> Kernel:
    """f(x) = x sigmoid(x p(x)) with p = c1 + c3 x^2, so f' = s + x (c1 + 3 c3 x^2) s (1 - s).

    Eight passes over the data of which one is transcendental: on AVX-512 about a third of the time of PyTorch's own tanh form.
    """

    def kernel(x: Tensor, value: Tensor, slope: Tensor) -> None:
        one = torch.full((), c1, dtype=x.dtype, device=x.device)
        torch.addcmul(one, x, x, value=c3, out=value)
        value.mul_(x).sigmoid_()  # s
        torch.addcmul(one, x, x, value=3 * c3, out=slope)
        torch.ops.aten.sigmoid_backward.grad_input(slope, value, grad_input=slope)  # slope * s * (1 - s)
        torch.addcmul(value, x, slope, out=slope)
        value.mul_(x)

    return kernel


def _relu_kernel(x: Tensor, value: Tensor, slope: Tensor) -> None:
    torch.clamp_min(x, 0, out=value)
    torch.gt(x, 0, out=slope)


def _elu_kernel(x: Tensor, value: Tensor, slope: Tensor) -> None:
    # exp(x) - 1 rather than expm1, which is ten times slower: it is wrong by half a unit of 1 at most, less than the rounding of x
    torch.clamp_max(x, 0, out=slope).exp_()
    torch.sub(slope, 1, out=value)
    torch.maximum(x, value, out=value)


def _identity_kernel(x: Tensor, value: Tensor, slope: Tensor) -> None:
    value.copy_(x)
    slope.fill_(1)


@dataclass(frozen=True)
class _Entry:
    function: Function
    kernel: Kernel
    title: str


_REGISTRY = {
    "gelu": _Entry(gelu, _gelu_kernel, "GELU"),
    "gelu_tanh": _Entry(gelu_tanh, _sigmoid_kernel(TANH_C1, TANH_C3), "GELU (tanh)"),
    "gelu_sigmoid": _Entry(gelu_sigmoid, _sigmoid_kernel(SIGMOID_SCALE, 0.0), "GELU (sigmoid)"),
    "relu": _Entry(relu, _relu_kernel, "ReLU"),
    "elu": _Entry(elu, _elu_kernel, "ELU"),
    "silu": _Entry(silu, _sigmoid_kernel(1.0, 0.0), "SiLU"),
    "identity": _Entry(identity, _identity_kernel, "identity"),
}


def names() -> list[str]:
    """The registered names, in the order in which tables show them."""
    return list(_REGISTRY)


def _entry(name: str) -> _Entry:
    try:
        return _REGISTRY[name]
    except (KeyError, TypeError):
        raise ConfigurationError(f"unknown activation {name!r}; known are {', '.join(_REGISTRY)}") from None


def get(name: str) -> Function:
    """The function of that name. Raises `ConfigurationError` (a `ValueError`) that lists the known names."""
    return _entry(name).function


def title(name: str) -> str:
    """How tables and figures write the name. Raises as `get` does."""
    return _entry(name).title


def value_and_slope_(name: str, x: Tensor, value: Tensor, slope: Tensor) -> None:
    """Write f(x) into `value` and f'(x) into `slope`, both shaped like x and distinct from it; nothing for autograd is kept."""
    _entry(name).kernel(x, value, slope)
