"""The Transformer's feed-forward block with any activation or gated unit, a pre-norm block around it, and counts of both.

W2 f(W1 x + b1) + b2 (Vaswani et al. 2017, section 3.3, arXiv:1706.03762) has two matrices; a gated unit has three,
`W2 (gate(W x + b) * (V x + c)) + b2` (Shazeer 2020, arXiv:2002.05202). To compare them at equal parameters the gated block's hidden
width is two thirds of the other's, as there. Counts of arithmetic are multiply-adds: one multiplication with its addition.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

from gelu_study import activations
from gelu_study.errors import ConfigurationError


def is_gated(activation: str) -> bool:
    """Whether the name is that of a gated unit. Raises `ConfigurationError` for a name that is neither that nor an activation."""
    if activation in activations.GATES:
        return True
    if activation not in activations.names():
        known = ", ".join([*activations.names(), *activations.GATES])
        raise ConfigurationError(f"unknown activation or gated unit {activation!r}; known are {known}")
    return False


def hidden_width(hidden: int, activation: str, equal_parameters: bool = True) -> int:
    """Hidden units of a block with that activation, where a block without gate has `hidden`.

    Two thirds for a gated unit, rounded to the nearest, so that three matrices hold what two did; `hidden` itself with
    `equal_parameters` false, or for an activation.
    """
    _size(hidden, "hidden")
    return max(1, (2 * hidden + 1) // 3) if is_gated(activation) and equal_parameters else hidden


@dataclass(frozen=True)
class Counts:
    """What a part of a network holds, and what it computes for one token."""

    parameters: int
    multiply_adds: int  # of its matrix products
    evaluations: int = 0  # of the activation or the gate

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.parameters + other.parameters, self.multiply_adds + other.multiply_adds, self.evaluations + other.evaluations
        )


def feed_forward_counts(
    d_model: int, hidden: int, activation: str = "gelu", bias: bool = True, equal_parameters: bool = True
) -> Counts:
    """The exact counts of `FeedForward` with the same arguments, which raises the same errors."""
    _size(d_model, "d_model")
    width = hidden_width(hidden, activation, equal_parameters)
    into = 2 if is_gated(activation) else 1
    products = (into + 1) * d_model * width
    return Counts(products + bias * (into * width + d_model), products, width)


def attention_counts(d_model: int, sequence_length: int, bias: bool = True) -> dict[str, Counts]:
    """Counts of multi-head self-attention over a sequence, without a mask: its four projections, and the products that mix tokens.

    The number of heads is in neither.
    """
    _size(d_model, "d_model")
    _size(sequence_length, "sequence_length")
    projections = 4 * d_model * d_model
    return {
        "projections": Counts(projections + bias * 4 * d_model, projections),
        "mixing": Counts(0, 2 * sequence_length * d_model),
    }


class FeedForward(nn.Module):
    """W2 f(W1 x + b1) + b2 for an activation f, `W2 (gate(W x + b) * (V x + c)) + b2` for a gated unit.

    [..., d_model] gives [..., d_model]. `activation` is a name of `activations.names()`, of which `parameters` are the keyword
    arguments, or of `activations.GATES`; `hidden` is the width without a gate, see `hidden_width`. Weights are initialised as
    `nn.Linear` does. Raises `ConfigurationError` for an unknown name, a size that is no positive whole number, a parameter that
    the activation does not have, or an input of another last dimension.
    """

    def __init__(
        self,
        d_model: int,
        hidden: int,
        activation: str = "gelu",
        bias: bool = True,
        equal_parameters: bool = True,
        **parameters: float,
    ) -> None:
        super().__init__()
        self.d_model, self.activation = _size(d_model, "d_model"), activation
        self.width = hidden_width(hidden, activation, equal_parameters)
        self.function: nn.Module
        if is_gated(activation):
            if parameters:
                raise ConfigurationError(f"{activation} has no parameters; {', '.join(parameters)} was given")
            # W above V in one matrix: one product instead of two
            self.into, self.function = nn.Linear(d_model, 2 * self.width, bias=bias), GatedUnit(activation)
        else:
            self.into, self.function = nn.Linear(d_model, self.width, bias=bias), activations.Activation(activation, **parameters)
        self.out_of = nn.Linear(self.width, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_model] gives [..., d_model]. Raises `ConfigurationError` for another last dimension."""
        if x.dim() == 0 or x.shape[-1] != self.d_model:
            raise ConfigurationError(f"a block of d_model {self.d_model} takes [..., {self.d_model}], not {list(x.shape)}")
        return self.out_of(self.function(self.into(x)))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses."""
        return f"{self.activation!r}, d_model={self.d_model}, width={self.width}"


class GatedUnit(nn.Module):
    """`activations.gated` as a module: [..., 2 n] gives [..., n]."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        """[..., 2 n] gives [..., n]."""
        return activations.gated(self.name, x)

    def extra_repr(self) -> str:
        """What `repr` shows between the parentheses."""
        return repr(self.name)


class Attention(nn.Module):
    """Multi-head scaled dot-product self-attention (Vaswani et al. 2017, section 3.2) of [..., tokens, d_model].

    With `causal` a token sees itself and those before it. Raises `ConfigurationError` where heads does not divide d_model.
    """

    def __init__(self, d_model: int, heads: int, bias: bool = True, causal: bool = False) -> None:
        super().__init__()
        if _size(d_model, "d_model") % _size(heads, "heads"):
            raise ConfigurationError(f"{heads} heads do not divide a d_model of {d_model}")
        self.heads, self.causal = heads, causal
        self.into = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.out_of = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., tokens, d_model] gives the same shape."""
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in self.into(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out_of(mixed.transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """A Transformer block with normalisation before each part: y = x + attention(norm(x)), then y + feed_forward(norm(y)).

    [..., tokens, d_model] gives the same shape. Arguments and errors are those of `Attention` and `FeedForward`.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        hidden: int,
        activation: str = "gelu",
        bias: bool = True,
        causal: bool = False,
        equal_parameters: bool = True,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(_size(d_model, "d_model"))
        self.attention = Attention(d_model, heads, bias, causal)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, hidden, activation, bias, equal_parameters)

    def forward(self, x: Tensor) -> Tensor:
        """[..., tokens, d_model] gives the same shape."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))  # type: ignore[no-any-return]


def _size(value: int, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} is {value!r}; it must be a whole number of at least 1")
    return value
