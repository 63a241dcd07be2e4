"""The rivals: PyTorch's own functions, with parameters checked and complex or integer input refused as everywhere here.

Each raises `TypeError` for a tensor that is not of a floating dtype and `ConfigurationError` for a parameter out of range.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from gelu_study.activations.gates import floating, number


def relu(x: Tensor) -> Tensor:
    """max(0, x) (Nair & Hinton 2010); the derivative at 0 is 0."""
    return functional.relu(floating(x, "relu"))


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope x (Maas et al. 2013)."""
    return functional.leaky_relu(floating(x, "leaky_relu"), number(negative_slope, "negative_slope"))


def squared_relu(x: Tensor) -> Tensor:
    """max(0, x)^2 (So et al. 2021, arXiv:2109.08668)."""
    return functional.relu(floating(x, "squared_relu")).square()


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x) - 1) (Clevert et al. 2016, arXiv:1511.07289); alpha is 1 everywhere in the paper."""
    return functional.elu(floating(x, "elu"), number(alpha, "alpha", positive=True))


def selu(x: Tensor) -> Tensor:
    """1.0507 elu(x; 1.6733): a fixed point of mean 0 and variance 1 (Klambauer et al. 2017, arXiv:1706.02515)."""
    return functional.selu(floating(x, "selu"))


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x / alpha) - 1): differentiable for every alpha (Barron 2017, arXiv:1704.07483)."""
    return functional.celu(floating(x, "celu"), number(alpha, "alpha", positive=True))


def softplus(x: Tensor, beta: float = 1.0) -> Tensor:
    """ln(1 + exp(beta x)) / beta (Dugas et al. 2001); beyond beta x = 20 PyTorch returns x itself."""
    return functional.softplus(floating(x, "softplus"), number(beta, "beta", positive=True))


def mish(x: Tensor) -> Tensor:
    """x tanh(softplus(x)) (Misra 2019, arXiv:1908.08681)."""
    return functional.mish(floating(x, "mish"))


def hard_swish(x: Tensor) -> Tensor:
    """x clip(x + 3, 0, 6) / 6, SiLU of straight pieces (Howard et al. 2019, arXiv:1905.02244)."""
    return functional.hardswish(floating(x, "hard_swish"))


def identity(x: Tensor) -> Tensor:
    """x itself, the same tensor: a linear network, the control."""
    return floating(x, "identity")


