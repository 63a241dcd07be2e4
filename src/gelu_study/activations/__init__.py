"""Activation functions by name: functions, modules, and the in-place kernels with which the training engine evaluates them.

Every function takes and returns a floating-point tensor of any shape and is differentiable by autograd. The gates x F(x) are our
own (see `gates`); the rivals are PyTorch's, with its behaviour at the edges (Mish and hard swish are NaN at -inf, for instance).
`value_and_slope_` gives value and derivative together without allocating, which is what a stacked training step wants.

The GELU comes in three forms, and they are different functions: `gelu` is x Phi(x), `gelu_tanh` the approximation with which every
experiment of the paper was run, `gelu_sigmoid` the fast one (Hendrycks & Gimpel 2016, sections 2 and 5, arXiv:1606.08415).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gelu_study.activations import gates, kernels, rectifiers
from gelu_study.activations.gated import GATES, gated
from gelu_study.activations.gates import calu, gelu, gelu_sigmoid, gelu_tanh, lalu, silu
from gelu_study.activations.kernels import Kernel
from gelu_study.activations.rectifiers import (
    celu,
    elu,
    hard_swish,
    identity,
    leaky_relu,
    mish,
    relu,
    selu,
    softplus,
    squared_relu,
)
from gelu_study.activations.stochastic import SOIMap
from gelu_study.errors import ConfigurationError
from gelu_study.titles import FUNCTIONS, STOCHASTIC, title

__all__ = [
    "GATES",
    "STOCHASTIC",
    "Activation",
    "SOIMap",
    "calu",
    "celu",
    "elu",
    "gated",
    "gelu",
    "gelu_sigmoid",
    "gelu_tanh",
    "get",
    "hard_swish",
    "identity",
    "lalu",
    "leaky_relu",
    "mish",
    "names",
    "relu",
    "selu",
    "silu",
    "softplus",
    "squared_relu",
    "title",
    "value_and_slope_",
]

Function = Callable[..., Tensor]


_REGISTRY: dict[str, Function] = {name: vars(gates).get(name) or vars(rectifiers)[name] for name in FUNCTIONS}


def names() -> list[str]:
    """The registered names of functions, in the order in which tables show them."""
    return list(_REGISTRY)


def get(name: str) -> Function:
    """The function of that name. Raises `ConfigurationError` (a `ValueError`) that lists the known names."""
    try:
        return _REGISTRY[name]
    except (KeyError, TypeError):
        raise ConfigurationError(f"unknown activation {name!r}; known are {', '.join(_REGISTRY)}") from None


def value_and_slope_(name: str, x: Tensor, value: Tensor, slope: Tensor) -> None:
    """Write f(x) into `value` and f'(x) into `slope`, both shaped like x and distinct from it; nothing for autograd is kept.

    For float32 and float64, at a training step's pace: see `kernels` for what that costs in accuracy.
    """
    with torch.no_grad():
        _kernel(name)(x.detach(), value, slope)


def _kernel(name: str) -> Kernel:
    function = get(name)
    return kernels.KERNELS.get(name) or kernels.by_autograd(function)


class Activation(nn.Module):
    """An activation as a module: `Activation("gelu")`, `Activation("elu", alpha=0.5)`, `Activation("gelu", mu=0, sigma=0.5)`.

    The parameters are fixed numbers, the function's own keyword arguments. Input and output have the same shape. Raises
    `ConfigurationError` for an unknown name, a parameter that the function does not have, or a value that it refuses.
    """

    def __init__(self, name: str, **parameters: float) -> None:
        super().__init__()
        self.function = get(name)
        known = list(inspect.signature(self.function).parameters)[1:]
        for parameter in parameters:
            if parameter not in known:
                raise ConfigurationError(f"{name} has no parameter {parameter!r}; it has {', '.join(known) or 'none'}")
        self.function(torch.zeros(()), **parameters)  # a bad value is refused now rather than in the first batch
        self.name, self.parameters_given = name, parameters

    def forward(self, x: Tensor) -> Tensor:
        """f(x) of every element, shaped like x."""
        return self.function(x, **self.parameters_given)

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses."""
        return ", ".join([repr(self.name), *(f"{name}={value}" for name, value in self.parameters_given.items())])
