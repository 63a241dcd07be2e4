"""What other libraries call our activations, and which form of GELU each means when none is named.

The names were read in the documentation and the code of PyTorch 2.14, JAX 0.10, TensorFlow 2.21, Keras 3.15, Transformers 5.24 and
timm 1.0; where a library is installed, the tests hold each row against it. Only functions that agree with ours are listed: neither
`gelu_10` (clipped) nor `laplace` (a distribution function) of Hugging Face is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gelu_study.errors import ConfigurationError

TITLES = {
    "pytorch": "PyTorch",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "huggingface": "Hugging Face",
    "timm": "timm",
}
"""The libraries. Names are those of `torch.nn.functional` (`Identity`: of `torch.nn`), `jax.nn`, `tf.nn`, `keras`, the keys of
Transformers' `ACT2FN` and of timm's `create_act`."""


@dataclass(frozen=True)
class Entry:
    """A library's name for one of our activations."""

    library: str
    name: str  # as one writes it there, with the argument that chooses the form
    activation: str  # our name
    default: bool = False  # of the forms of GELU: what one gets there who asks for "gelu" and says no more
    parameters: Mapping[str, float] = field(default_factory=dict)  # ours that give that library's defaults, where they differ


def _same(library: str, *names: str, **renamed: str) -> list[Entry]:
    return [Entry(library, theirs, ours) for ours, theirs in [*((name, name) for name in names), *renamed.items()]]


TABLE: tuple[Entry, ...] = (
    Entry("pytorch", "gelu", "gelu", default=True),
    Entry("pytorch", "gelu(approximate='none')", "gelu"),
    Entry("pytorch", "gelu(approximate='tanh')", "gelu_tanh"),
    *_same("pytorch", "relu", "elu", "silu", "leaky_relu", "selu", "celu", "softplus", "mish"),
    *_same("pytorch", hard_swish="hardswish", identity="Identity"),
    Entry("jax", "gelu", "gelu_tanh", default=True),
    Entry("jax", "gelu(approximate=True)", "gelu_tanh"),
    Entry("jax", "gelu(approximate=False)", "gelu"),
    *_same("jax", "relu", "elu", "silu", "identity", "leaky_relu", "selu", "celu", "softplus", "mish", "hard_swish"),
    *_same("jax", silu="swish", hard_swish="hard_silu"),
    Entry("tensorflow", "gelu", "gelu", default=True),
    Entry("tensorflow", "gelu(approximate=False)", "gelu"),
    Entry("tensorflow", "gelu(approximate=True)", "gelu_tanh"),
    *_same("tensorflow", "relu", "elu", "silu", "selu", "softplus"),
    *_same("tensorflow", silu="swish"),
    Entry("tensorflow", "leaky_relu", "leaky_relu", parameters={"negative_slope": 0.2}),
    Entry("keras", "activations.gelu", "gelu", default=True),
    Entry("keras", "activations.gelu(approximate=True)", "gelu_tanh"),
    Entry("keras", "ops.gelu", "gelu_tanh", default=True),
    Entry("keras", "ops.gelu(approximate=False)", "gelu"),
    *[Entry("keras", f"activations.{name}", name) for name in ("relu", "elu", "silu", "selu", "celu", "softplus", "mish")],
    *_same("keras", hard_swish="activations.hard_silu", identity="activations.linear"),
    Entry("keras", "activations.leaky_relu", "leaky_relu", parameters={"negative_slope": 0.2}),
    Entry("keras", "layers.LeakyReLU", "leaky_relu", parameters={"negative_slope": 0.3}),
    Entry("huggingface", "gelu", "gelu", default=True),
    Entry("huggingface", "gelu_python", "gelu"),
    *[Entry("huggingface", f"gelu_{name}", "gelu_tanh") for name in ("new", "fast", "pytorch_tanh", "python_tanh", "accurate")],
    Entry("huggingface", "quick_gelu", "gelu_sigmoid"),
    *_same("huggingface", "relu", "silu", "leaky_relu", "mish"),
    *_same("huggingface", silu="swish", hard_swish="hardswish", squared_relu="relu2", identity="linear"),
    Entry("timm", "gelu", "gelu", default=True),
    Entry("timm", "gelu_tanh", "gelu_tanh"),
    Entry("timm", "quick_gelu", "gelu_sigmoid"),
    *_same("timm", "relu", "elu", "silu", "identity", "leaky_relu", "selu", "celu", "mish", "hard_swish"),
    *_same("timm", silu="swish", hard_swish="hardswish"),
)


def find(library: str, name: str) -> Entry:
    """The row of a library's name. Raises `ConfigurationError` that lists what is known."""
    known = [entry for entry in TABLE if entry.library == library]
    if not known:
        raise ConfigurationError(f"unknown library {library!r}; known are {', '.join(TITLES)}")
    for entry in known:
        if entry.name == name:
            return entry
    raise ConfigurationError(
        f"no activation here is {TITLES[library]}'s {name!r}; known are {', '.join(entry.name for entry in known)}"
    )


def from_library(library: str, name: str) -> str:
    """Our name of the function that a library calls `name`: `from_library("jax", "gelu")` is "gelu_tanh".

    `library` is a key of `TITLES`. Where that library's defaults differ from ours, `find(library, name).parameters` has them.
    Raises `ConfigurationError` that lists what is known.
    """
    return find(library, name).activation
