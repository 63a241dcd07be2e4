"""The feed-forward block and the Transformer block against a plain reference in NumPy and SciPy, and their counts against PyTorch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gelu_study import activations, transformer
from gelu_study.errors import ConfigurationError
from gelu_study.transformer import Block, FeedForward

EVERY = [*activations.names(), *activations.GATES]


def sigmoid(x):
    return special.expit(x)


REFERENCE = {
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * sigmoid(x),
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "identity": lambda x: x,
}
GATE = {
    "glu": sigmoid,
    "reglu": REFERENCE["relu"],
    "geglu": REFERENCE["gelu"],
    "swiglu": REFERENCE["silu"],
    "bilinear": REFERENCE["identity"],
}


def arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in module.state_dict().items()}


def feed_forward(x: np.ndarray, held: dict[str, np.ndarray], activation: str) -> np.ndarray:
    """The formula with its matrices apart."""
    u, zero = held["into.weight"], np.zeros(1)
    b = held.get("into.bias", np.zeros(len(u)))
    if activation in GATE:
        half = len(u) // 2
        hidden = GATE[activation](x @ u[:half].T + b[:half]) * (x @ u[half:].T + b[half:])
    else:
        hidden = REFERENCE[activation](x @ u.T + b)
    return hidden @ held["out_of.weight"].T + held.get("out_of.bias", zero)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [*REFERENCE, *GATE])
def test_the_block_is_the_formula(activation, bias):
    torch.manual_seed(0)
    block = FeedForward(6, 16, activation, bias).double()
    x = 3 * torch.randn(2, 5, 6, dtype=torch.float64)
    np.testing.assert_allclose(block(x).detach().numpy(), feed_forward(x.numpy(), arrays(block), activation), rtol=1e-12, atol=1e-13)


def test_the_activation_takes_its_parameters():
    block = FeedForward(4, 8, "elu", alpha=0.3).double()
    x = torch.randn(7, 4, dtype=torch.float64)
    u = block.into(x).detach().numpy()
    hidden = np.where(u > 0, u, 0.3 * np.expm1(u))
    expected = hidden @ block.out_of.weight.detach().numpy().T + block.out_of.bias.detach().numpy()
    np.testing.assert_allclose(block(x).detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("activation", EVERY)
@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (0, 8)])
def test_shapes_are_kept_and_every_weight_learns(activation, shape):
    torch.manual_seed(1)
    block = FeedForward(8, 24, activation)
    out = block(torch.randn(shape))
    assert out.shape == shape
    if out.numel() > 8:
        out.square().sum().backward()
        for parameter in block.parameters():
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "relu", *activations.GATES])
@pytest.mark.parametrize(("d_model", "hidden"), [(1, 1), (5, 7), (12, 48), (64, 256)])
def test_counts_are_those_of_the_modules(d_model, hidden, activation, bias, equal):
    block = FeedForward(d_model, hidden, activation, bias, equal)
    counts = transformer.feed_forward_counts(d_model, hidden, activation, bias, equal)
    assert counts.parameters == sum(parameter.numel() for parameter in block.parameters())
    with FlopCounterMode(display=False) as counter:
        block(torch.randn(3, d_model))
    assert counter.get_total_flops() == 2 * 3 * counts.multiply_adds
    seen: list[int] = []
    block.out_of.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape[-1]))
    block(torch.randn(3, d_model))
    assert seen == [counts.evaluations]


@pytest.mark.parametrize("d_model", [64, 96, 768])
@pytest.mark.parametrize("hidden", [256, 257, 258, 3072])
def test_a_gated_block_holds_as_much_as_one_without_gate(d_model, hidden):
    plain = transformer.feed_forward_counts(d_model, hidden).parameters
    gated = transformer.feed_forward_counts(d_model, hidden, "geglu").parameters
    # a third of a unit of 3 d_model + 2 parameters for the rounding; gates have a bias more for each of 2/3 hidden, 1/3 less in W1
    assert abs(gated - plain) <= d_model + 1 + hidden / 3
    nearest = min(range(1, hidden + 1), key=lambda width: abs(3 * width - 2 * hidden))
    assert transformer.hidden_width(hidden, "geglu") == nearest
    assert transformer.feed_forward_counts(d_model, hidden, "geglu", bias=False, equal_parameters=False).parameters * 2 == 3 * 2 * d_model * hidden


def test_shazeer_s_widths():
    assert transformer.hidden_width(3072, "geglu") == 2048, "section 3.1 of arXiv:2002.05202"
    assert transformer.hidden_width(3072, "gelu") == 3072


def layer_norm(x: np.ndarray, held: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * held[f"{name}.weight"] + held[f"{name}.bias"]


def attention(x: np.ndarray, held: dict[str, np.ndarray], heads: int, causal: bool) -> np.ndarray:
    """One sequence [tokens, d_model], head by head."""
    tokens, d = x.shape
    size = d // heads
    projected = x @ held["attention.into.weight"].T + held["attention.into.bias"]
    mixed = np.zeros_like(x)
    for head in range(heads):
        q, k, v = (projected[:, part * d + head * size : part * d + (head + 1) * size] for part in range(3))
        scores = q @ k.T / np.sqrt(size)
        if causal:
            scores[np.triu_indices(tokens, 1)] = -np.inf
        mixed[:, head * size : (head + 1) * size] = special.softmax(scores, -1) @ v
    return mixed @ held["attention.out_of.weight"].T + held["attention.out_of.bias"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_the_transformer_block_is_the_formula(activation, causal):
    torch.manual_seed(2)
    block = Block(12, 3, 48, activation, causal=causal).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)  # norms of weight 1 and bias 0 would hide a mistake
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    held = arrays(block)
    for row, found in zip(x.numpy(), block(x).detach().numpy(), strict=True):
        y = row + attention(layer_norm(row, held, "attention_norm"), held, 3, causal)
        inner = {name.removeprefix("feed_forward."): value for name, value in held.items()}
        expected = y + feed_forward(layer_norm(y, held, "feed_forward_norm"), inner, activation)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("d_model", "tokens", "heads"), [(16, 5, 4), (32, 64, 1)])
def test_counts_of_attention_are_those_of_the_module(d_model, tokens, heads):
    counts = transformer.attention_counts(d_model, tokens)
    module = transformer.Attention(d_model, heads)
    assert sum(part.parameters for part in counts.values()) == sum(parameter.numel() for parameter in module.parameters())
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(torch.randn(2, tokens, d_model))
    assert counter.get_total_flops() == 2 * 2 * tokens * sum(part.multiply_adds for part in counts.values())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FeedForward(0, 4), "d_model is 0"),
        (lambda: FeedForward(4, -1), "hidden is -1"),
        (lambda: FeedForward(4, 2.5), "hidden is 2.5"),
        (lambda: FeedForward(True, 4), "d_model is True"),
        (lambda: FeedForward(4, 8, "tanhshrink"), "known are gelu, .*swiglu"),
        (lambda: FeedForward(4, 8, "relu", alpha=1.0), "no parameter 'alpha'"),
        (lambda: FeedForward(4, 8, "swiglu", sigma=1.0), "swiglu has no parameters"),
        (lambda: FeedForward(4, 8)(torch.randn(3, 5)), r"takes \[\.\.\., 4\], not \[3, 5\]"),
        (lambda: FeedForward(4, 8)(torch.tensor(1.0)), r"takes \[\.\.\., 4\]"),
        (lambda: Block(10, 3, 40), "3 heads do not divide"),
        (lambda: Block(10, 0, 40), "heads is 0"),
        (lambda: transformer.attention_counts(8, 0), "sequence_length is 0"),
        (lambda: transformer.feed_forward_counts(8, 0), "hidden is 0"),
    ],
)
def test_what_cannot_be_built_is_refused_in_words(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()


def test_the_choice_of_activation_changes_no_weight():
    torch.manual_seed(3)
    first = FeedForward(8, 32, "gelu")
    second = FeedForward(8, 32, "relu")
    second.load_state_dict(first.state_dict())
    x = torch.randn(4, 8)
    assert not torch.allclose(first(x), second(x))
    with pytest.raises(RuntimeError, match="size mismatch"):
        FeedForward(8, 32, "geglu").load_state_dict(first.state_dict())
