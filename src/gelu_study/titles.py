"""How tables and figures show activations: for rooms that compute none, since importing PyTorch takes seconds."""

from __future__ import annotations

from typing import Any, NamedTuple

from gelu_study.errors import ConfigurationError


class Look(NamedTuple):
    """How tables and figures show an activation, the same in the whole book: told apart by line and marker without colour too."""

    title: str
    colour: str  #: of Okabe and Ito's palette for the paper's
    line: Any  #: Matplotlib's: "-", or (offset, lengths of dashes and gaps)
    marker: str  #: Matplotlib's


FUNCTIONS = {
    "gelu": Look("GELU", "#56B4E9", (0, (9, 2)), "D"),
    "gelu_tanh": Look("GELU (tanh)", "#0072B2", "-", "o"),
    "gelu_sigmoid": Look("GELU (sigmoid)", "#CC79A7", (0, (3, 1)), "v"),
    "relu": Look("ReLU", "#D55E00", (0, (5, 2)), "s"),
    "elu": Look("ELU", "#009E73", (0, (6, 2, 1, 2)), "^"),
    "silu": Look("SiLU", "#E69F00", (0, (8, 2, 1, 2, 1, 2)), "P"),
    "identity": Look("identity", "#000000", (0, (2, 2)), "X"),
    "lalu": Look("Laplace gate", "#882255", (0, (4, 1, 1, 1)), "H"),
    "calu": Look("Cauchy gate", "#7B4BB7", (0, (12, 2, 2, 2)), "8"),
    "leaky_relu": Look("leaky ReLU", "#A6761D", (0, (5, 2, 1, 2, 1, 2, 1, 2)), "<"),
    "squared_relu": Look("squared ReLU", "#B2182B", (0, (4, 4)), "*"),
    "selu": Look("SELU", "#44AA99", (0, (10, 2, 1, 2)), ">"),
    "celu": Look("CELU", "#808000", (0, (2, 1, 1, 1)), "1"),
    "softplus": Look("softplus", "#777777", (0, (3, 3, 1, 3)), "p"),
    "mish": Look("Mish", "#332288", (0, (7, 3, 3, 3)), "h"),
    "hard_swish": Look("hard swish", "#661100", (0, (12, 3)), "d"),
}
"""The functions that `activations` registers, in the order in which tables show them: each is a function of that name in
`activations.gates` or `activations.rectifiers`."""

STOCHASTIC = {"soi": Look("SOI map", "#AD1F87", (0, (14, 1)), "2")}
"""What a network can be trained with besides, being no function: `activations.SOIMap`."""

LOOKS = FUNCTIONS | STOCHASTIC


def title(name: str) -> str:
    """How tables and figures write the name, a function's or one of `STOCHASTIC`. Raises `ConfigurationError` for any other."""
    try:
        return LOOKS[name].title
    except (KeyError, TypeError):
        raise ConfigurationError(f"unknown activation {name!r}; known are {', '.join(LOOKS)}") from None
