"""How tables and figures write the names of activations: for rooms that compute none, since importing PyTorch takes seconds."""

from __future__ import annotations

from gelu_study.errors import ConfigurationError

FUNCTIONS = {
    "gelu": "GELU",
    "gelu_tanh": "GELU (tanh)",
    "gelu_sigmoid": "GELU (sigmoid)",
    "relu": "ReLU",
    "elu": "ELU",
    "silu": "SiLU",
    "identity": "identity",
    "lalu": "Laplace gate",
    "calu": "Cauchy gate",
    "leaky_relu": "leaky ReLU",
    "squared_relu": "squared ReLU",
    "selu": "SELU",
    "celu": "CELU",
    "softplus": "softplus",
    "mish": "Mish",
    "hard_swish": "hard swish",
}
"""Of the functions that `activations` registers, in the order in which tables show them."""

STOCHASTIC = {"soi": "SOI map"}
"""What a network can be trained with besides, being no function: `activations.SOIMap`."""

_ALL = FUNCTIONS | STOCHASTIC


def title(name: str) -> str:
    """How tables and figures write the name, a function's or one of `STOCHASTIC`. Raises `ConfigurationError` for any other."""
    try:
        return _ALL[name]
    except (KeyError, TypeError):
        raise ConfigurationError(f"unknown activation {name!r}; known are {', '.join(_ALL)}") from None
