"""Where the activation sits in a Transformer block, the parts' shares, gated units at equal parameters, statistics of the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch
from torch import Tensor, nn

from gelu_study import activations, figures, pages, transformer
from gelu_study.errors import ConfigurationError
from gelu_study.transformer import Block, Counts

GATED_TITLES = {"glu": "GLU", "reglu": "ReGLU", "geglu": "GEGLU", "swiglu": "SwiGLU", "bilinear": "bilinear"}
GATED_STYLES = {"glu": "gelu_sigmoid", "reglu": "relu", "geglu": "gelu", "swiglu": "silu", "bilinear": "identity"}
"""The activation whose colour a gated unit has."""

SATURATED = 0.05
"""A unit is saturated where none of its inputs moves it by more than this times the input's own movement."""

PARTS = {
    "embedding": ("embedding and output", "#FFFFFF"),
    "projections": ("attention: projections", "#CCCCCC"),
    "mixing": ("attention: mixing tokens", "#E8E8E8"),
    "feed_forward": ("feed-forward", "#8F8F8F"),
    "norms": ("norms", "#000000"),
}
"""The parts of a Transformer with their words and shades: greys, since colours are activations."""


class Model(NamedTuple):
    """A published network's feed-forward block: name, unit, d_model, hidden width, whether it has biases, BibTeX key."""

    name: str
    unit: str
    d_model: int
    hidden: int
    bias: bool
    key: str


MODELS = (
    Model("Transformer, base (2017)", "relu", 512, 2048, True, "vaswani2017attention"),
    Model("GPT (2018)", "gelu", 768, 3072, True, "radford2018gpt"),
    Model("BERT, base (2018)", "gelu", 768, 3072, True, "devlin2019bert"),
    Model("T5 with GEGLU (2020)", "geglu", 768, 2048, False, "shazeer2020glu"),
    Model("LLaMA, 7B (2023)", "swiglu", 4096, 11008, False, "touvron2023llama"),
)
"""Sizes as their papers, or for LLaMA's hidden width the released configuration, give them."""


def title(name: str) -> str:
    """How tables and figures write an activation or a gated unit."""
    return GATED_TITLES.get(name) or activations.title(name)


def check(d_model: int, hidden_factor: float, heads: int, sequence_length: int, vocabulary: int, layers: int) -> int:
    """The hidden width for the notebook's parameters. Raises `ConfigurationError` for sizes of which no network can be built."""
    hidden = round(hidden_factor * d_model)
    for name, value in {"d_model": d_model, "heads": heads, "vocabulary": vocabulary, "layers": layers}.items():
        if value < 1:
            raise ConfigurationError(f"{name} is {value}; it must be at least 1")
    if d_model % heads:
        raise ConfigurationError(f"{heads} heads do not divide a d_model of {d_model}")
    transformer.attention_counts(d_model, sequence_length)
    transformer.hidden_width(hidden, "gelu")
    return hidden


def answer(d_model: int, hidden_factor: float, sequence_length: int, vocabulary: int, layers: int) -> None:
    """What changes with the activation, how much surrounds it, and what a gate adds: a line each."""
    pages.text("\n".join(f"- {line}" for line in answer_lines(d_model, hidden_factor, sequence_length, vocabulary, layers)))


def answer_lines(d_model: int, hidden_factor: float, sequence_length: int, vocabulary: int, layers: int) -> list[str]:
    """The lines of `answer`."""
    hidden = round(hidden_factor * d_model)
    counts = network_counts(d_model, hidden, sequence_length, vocabulary, layers)
    blocks = {name: part for name, part in counts.items() if name != "embedding"}
    of_blocks, of_all = (shares(part, "parameters")["feed_forward"] for part in (blocks, counts))
    more = _gate_adds(d_model, hidden)
    return [
        "**GELU for ReLU** changes a function and nothing else: every weight, shape and product stays as it is.",
        f"**Its surroundings**, the feed-forward parts, hold {_percent(of_blocks)} of the blocks' parameters and "
        f"{_percent(of_all)} of the network's at this page's sizes; the activation itself holds none.",
        f"**A gated unit** is another architecture. It has a third matrix, {_percent(more)} more parameters at the same width, so "
        "a fair comparison gives it two thirds of the width.",
    ]


def _gate_adds(d_model: int, hidden: int) -> float:
    """What a gate adds to the parameters of a feed-forward part of the same width, as a share."""
    gated = transformer.feed_forward_counts(d_model, hidden, "geglu", equal_parameters=False).parameters
    return gated / transformer.feed_forward_counts(d_model, hidden).parameters - 1


# Shares


def network_counts(d_model: int, hidden: int, sequence_length: int, vocabulary: int, layers: int) -> dict[str, Counts]:
    """What each part of a Transformer holds, and computes for one token of a sequence.

    `layers` blocks with GELU, a norm at the end, and one matrix [vocabulary, d_model] that embeds tokens and gives the logits.
    """
    attention = transformer.attention_counts(d_model, sequence_length)
    feed_forward = transformer.feed_forward_counts(d_model, hidden)
    return {
        "embedding": Counts(vocabulary * d_model, vocabulary * d_model),
        **{name: _times(part, layers) for name, part in attention.items()},
        "feed_forward": _times(feed_forward, layers),
        "norms": Counts((2 * layers + 1) * 2 * d_model, 0),
    }


def _times(counts: Counts, layers: int) -> Counts:
    return Counts(layers * counts.parameters, layers * counts.multiply_adds, layers * counts.evaluations)


def shares(counts: dict[str, Counts], of: str) -> dict[str, float]:
    """Each part's share of the sum of "parameters" or "multiply_adds"."""
    total = sum(getattr(part, of) for part in counts.values())
    return {name: getattr(part, of) / total for name, part in counts.items()}


def share_sentences(d_model: int, hidden: int, sequence_length: int, vocabulary: int, layers: int) -> list[str]:
    """What the counts say, in sentences."""
    counts = network_counts(d_model, hidden, sequence_length, vocabulary, layers)
    block = {name: part for name, part in counts.items() if name != "embedding"}
    of_block, of_all = (shares(part, "parameters")["feed_forward"] for part in (block, counts))
    work_block, work_all = (shares(part, "multiply_adds")["feed_forward"] for part in (block, counts))
    # attention's 4 d^2 + 2 n d multiply-adds a token reach the feed-forward block's 2 d h here
    equal = hidden - 2 * d_model
    if equal < 1:
        crossing = "attention takes more of the arithmetic than the feed-forward part at any length"
    elif sequence_length < equal:
        crossing = f"attention would take as much of the arithmetic from {equal:,} tokens on"
    else:
        crossing = f"attention takes as much of the arithmetic or more from {equal:,} tokens on"
    evaluations = transformer.feed_forward_counts(d_model, hidden).evaluations
    work = sum(part.multiply_adds for part in block.values()) // layers
    return [
        f"**Parameters.** Of the blocks' parameters {_percent(of_block)} lie in the feed-forward part, of the whole network's "
        f"{_percent(of_all)}: {layers} layers of d_model {d_model:,} and hidden width {hidden:,}, and a vocabulary of "
        f"{vocabulary:,}.",
        f"**Arithmetic.** For a token of a sequence of {sequence_length:,} the feed-forward part is {_percent(work_block)} of "
        "the blocks' "
        f"multiply-adds and {_percent(work_all)} of the network's; {crossing}.",
        f"**The activation itself** holds no parameter. It is evaluated {evaluations:,} times a token and block, once for every "
        f"{round(work / evaluations):,} multiply-adds there. At twice the d_model and the same proportions it would be once for "
        f"every {round(_work(2 * d_model, 2 * hidden, sequence_length) / (2 * evaluations)):,}: the wider the network, the "
        "less its cost "
        "matters.",
    ]


def _work(d_model: int, hidden: int, sequence_length: int) -> int:
    attention = sum(part.multiply_adds for part in transformer.attention_counts(d_model, sequence_length).values())
    return attention + transformer.feed_forward_counts(d_model, hidden).multiply_adds


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def show_shares(d_model: int, hidden_factor: float, sequence_length: int, vocabulary: int, layers: int) -> None:
    """The sentences and the figure of the parts' shares."""
    hidden = round(hidden_factor * d_model)
    pages.text("\n".join(f"- {line}" for line in share_sentences(d_model, hidden, sequence_length, vocabulary, layers)))
    pages.figure(
        draw_shares(d_model, hidden_factor, sequence_length, vocabulary, layers),
        "transformer-shares",
        "Shares of embedding, attention and feed-forward part in a Transformer's parameters over d_model, and in its "
        "arithmetic over the "
        "length of the sequence",
        f"Above: shares of the parameters of {layers} layers with a hidden width of {hidden_factor:g} d_model and a vocabulary of "
        f"{vocabulary:,}. Below: shares of a token's multiply-adds at d_model {d_model:,}. Dashed: this page's setting. Norms "
        f"are too small to see. {pages.COMPUTED}",
        [],
    )


@figures.typeset
def draw_shares(d_model: int, hidden_factor: float, sequence_length: int, vocabulary: int, layers: int) -> Figure:
    """The figure of `show_shares`."""
    figure, (above, below) = figures.panels(2, height=2.7)
    widths = sorted({64 * 2**power for power in range(9)} | {d_model})
    lengths = sorted({64 * 2**power for power in range(12)} | {sequence_length})
    by_width = [network_counts(d, max(1, round(hidden_factor * d)), sequence_length, vocabulary, layers) for d in widths]
    by_length = [network_counts(d_model, round(hidden_factor * d_model), n, vocabulary, layers) for n in lengths]
    _stack(above, widths, [shares(counts, "parameters") for counts in by_width], d_model)
    _stack(below, lengths, [shares(counts, "multiply_adds") for counts in by_length], sequence_length)
    above.set_title("Parameters")
    above.set_xlabel("d_model")
    below.set_title("Multiply-adds of a token")
    below.set_xlabel("tokens in the sequence")
    handles = [
        Patch(facecolor=colour, edgecolor="#444444", lw=0.6, label=words) for words, colour in PARTS.values() if words != "norms"
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _stack(ax: Axes, x: Sequence[int], rows: Sequence[dict[str, float]], chosen: int) -> None:
    names = [name for name in PARTS if any(row[name] > 0 for row in rows)]
    values = [[100 * row[name] for row in rows] for name in reversed(names)]
    colours = [PARTS[name][1] for name in reversed(names)]
    ax.stackplot(x, values, colors=colours, edgecolor="#444444", lw=0.4)
    ax.axvline(chosen, color="#000000", ls=(0, (4, 3)), lw=1.4)
    ax.set_xscale("log", base=2)
    ticks = [value for index, value in enumerate(x) if index % 2 == 0 and value & (value - 1) == 0]
    ax.set_xticks(ticks, [f"{tick:,}" if tick < 10_000 else f"{tick // 1024}k" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlim(x[0], x[-1])
    ax.set_ylim(0, 100)
    ax.set_ylabel("share, %")


# Where the activation sits


def show_place(d_model: int, hidden_factor: float) -> None:
    """The diagram of a block and its feed-forward part, without and with a gate."""
    hidden = round(hidden_factor * d_model)
    gated = transformer.hidden_width(hidden, "geglu")
    pages.figure(
        draw_place(d_model, hidden),
        "transformer-place",
        "A pre-norm Transformer block: attention, then the feed-forward part, whose activation stands between its two "
        "matrices; in a gated "
        "unit two matrices lead in and their products are multiplied",
        "Left: a block with normalisation before each part. Middle: its feed-forward part, with an activation f between two "
        "matrices. "
        f"Right: with a gated unit, whose width, {gated:,} in place of {hidden:,}, gives the three matrices as many parameters "
        "as the two. A drawing; no record is behind it.",
        [],
    )


@figures.typeset
def draw_place(d_model: int, hidden: int) -> Figure:
    """The figure of `show_place`."""
    width = transformer.hidden_width(hidden, "geglu")
    figure, (ax,) = figures.panels(1, height=5.0)
    ax.set_xlim(0, 12)
    ax.set_ylim(0, 10.4)
    ax.axis("off")
    plain, weights, accent = "#F3F3F3", "#DCE9F5", "#FFE3A8"

    def box(x: float, y: float, words: str, colour: str = plain, w: float = 2.9) -> None:
        ax.add_patch(FancyBboxPatch((x - w / 2, y - 0.42), w, 0.84, boxstyle="round,pad=0.04", fc=colour, ec="#444444", lw=1.2))
        ax.text(x, y, words, ha="center", va="center", fontsize=10.5)

    def arrow(x: float, y: float, to_x: float, to_y: float) -> None:
        ax.annotate(
            "", (to_x, to_y), (x, y), arrowprops={"arrowstyle": "-|>", "color": "#444444", "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
        )

    def add(x: float, y: float, sign: str) -> None:
        ax.text(
            x, y, sign, ha="center", va="center", fontsize=13, bbox={"boxstyle": "circle,pad=0.15", "fc": "white", "ec": "#444444"}
        )

    for x, words in ((1.6, "Block"), (5.6, "Feed-forward"), (9.85, "Gated")):
        ax.text(x, 10.1, words, ha="center", va="center", fontweight="bold")
    # the block, upwards
    for y, words, colour in (
        (1.7, "norm", plain),
        (3.1, "attention", weights),
        (5.7, "norm", plain),
        (7.1, "feed-forward", accent),
    ):
        box(1.75, y, words, colour, w=2.5)
    for low, high in ((0.3, 1.25), (2.15, 2.65), (3.55, 4.1), (4.7, 5.25), (6.15, 6.65), (7.55, 8.1), (8.7, 9.5)):
        arrow(1.75, low, 1.75, high)
    for low, high in ((0.7, 4.4), (4.95, 8.4)):
        ax.plot([1.75, 0.15, 0.15], [low, low, high], color="#444444", lw=1.3)
        arrow(0.15, high, 1.4, high)
        add(1.75, high, "+")
    # its feed-forward part
    box(5.6, 2.2, r"$W_1 x + b_1$", weights)
    box(5.6, 4.9, "f, for instance GELU", accent, w=3.6)
    box(5.6, 7.6, r"$W_2 h + b_2$", weights)
    for low, high, size in ((0.3, 1.75, d_model), (2.65, 4.45, hidden), (5.35, 7.15, hidden), (8.05, 9.5, d_model)):
        arrow(5.6, low, 5.6, high)
        ax.text(5.75, (low + high) / 2, f"{size:,}", va="center", fontsize=10)
    # with a gated unit
    box(8.9, 2.2, r"$W x + b$", weights, w=1.75)
    box(10.95, 2.2, r"$V x + c$", weights, w=1.75)
    box(8.9, 4.0, "gate", accent, w=1.75)
    box(9.9, 7.6, r"$W_2 h + b_2$", weights)
    ax.plot([9.9, 9.9], [0.3, 1.0], color="#444444", lw=1.3)
    ax.plot([8.9, 10.95], [1.0, 1.0], color="#444444", lw=1.3)
    ax.text(10.05, 0.6, f"{d_model:,}", va="center", fontsize=10)
    for x in (8.9, 10.95):
        arrow(x, 1.0, x, 1.75)
    arrow(8.9, 2.65, 8.9, 3.55)
    arrow(8.9, 4.45, 9.65, 5.5)
    arrow(10.95, 2.65, 10.15, 5.5)
    add(9.9, 5.75, "×")
    arrow(9.9, 6.1, 9.9, 7.15)
    arrow(9.9, 8.05, 9.9, 9.5)
    ax.text(10.85, 4.2, f"{width:,}", va="center", fontsize=10)
    ax.text(10.05, 6.6, f"{width:,}", va="center", fontsize=10)
    ax.text(10.05, 8.8, f"{d_model:,}", va="center", fontsize=10)
    return figure


# Gated units at equal parameters


def units(d_model: int, hidden: int) -> pd.DataFrame:
    """Counts of a feed-forward block by kind of unit; raises if the units of a kind should differ."""
    kinds = {
        "any activation": (activations.names(), True),
        "any gated unit": (list(activations.GATES), True),
        "any gated unit, same width": (list(activations.GATES), False),
    }
    base = transformer.feed_forward_counts(d_model, hidden)
    rows = []
    for kind, (names, equal) in kinds.items():
        found = {transformer.feed_forward_counts(d_model, hidden, name, True, equal) for name in names}
        if len(found) != 1:
            raise AssertionError(f"the counts of {', '.join(names)} differ: {found}")
        (counts,) = found
        rows.append(
            {
                "unit": f"{kind} ({len(names)})",
                "matrices": 3 if transformer.is_gated(names[0]) else 2,
                "width": f"{transformer.hidden_width(hidden, names[0], equal):,}",
                "parameters": f"{counts.parameters:,}",
                "against GELU": f"{100 * (counts.parameters / base.parameters - 1):+.2f} %",
                "multiply-adds": f"{counts.multiply_adds:,}",
                "evaluations": f"{counts.evaluations:,}",
            }
        )
    return pd.DataFrame(rows)


def show_units(d_model: int, hidden_factor: float) -> None:
    """The table of counts, and what it says."""
    hidden = round(hidden_factor * d_model)
    pages.plain_table(units(d_model, hidden))
    shapes = {
        name: tuple(tuple(weight.shape) for weight in transformer.FeedForward(12, 48, name).state_dict().values())
        for name in [*activations.names(), *activations.GATES]
    }
    same = [name for name in activations.names() if shapes[name] == shapes["gelu"]]
    other = [title(name) for name in activations.GATES if shapes[name] != shapes["gelu"]]
    pages.text(
        f"Of the {len(activations.names())} activations of this study, {len(same)} fit the very same weights: the choice among "
        "them is a "
        f"choice of activation and nothing else. {len(other)} units, {', '.join(other)}, have other matrices: to write one of "
        "them for GELU "
        f"changes the architecture. At the same width they hold {_percent(_gate_adds(d_model, hidden))} more parameters, so a "
        "comparison at equal width would mix what the gate brings with what size brings; two thirds of the width take that apart."
    )


def models() -> pd.DataFrame:
    """Feed-forward blocks of published networks by the counts of this page."""
    rows = []
    for model in MODELS:
        counts = transformer.feed_forward_counts(model.d_model, model.hidden, model.unit, model.bias, equal_parameters=False)
        plain = transformer.feed_forward_counts(model.d_model, 4 * model.d_model, "gelu", model.bias)
        attention = transformer.attention_counts(model.d_model, 1, model.bias)["projections"].parameters
        rows.append(
            {
                "network": model.name,
                "unit": title(model.unit),
                "d_model": f"{model.d_model:,}",
                "hidden": f"{model.hidden:,}",
                "4 d_model, or ⅔ of it": f"{transformer.hidden_width(4 * model.d_model, model.unit):,}",
                "against 4 d_model with GELU": f"{100 * (counts.parameters / plain.parameters - 1):+.2f} %",
                "feed-forward share": _percent(counts.parameters / (counts.parameters + attention)),
            }
        )
    return pd.DataFrame(rows)


def show_models() -> None:
    """The table of published networks."""
    pages.plain_table(models())
    pages.text(
        "*Hidden*: as published. *Against*: parameters of the feed-forward block, compared with one that has no gate and a "
        "width of "
        "4 d_model. *Share*: of the parameters of feed-forward block and attention's four matrices."
    )


# Statistics at initialisation


def statistics(
    names: Sequence[str],
    d_model: int,
    hidden: int,
    heads: int,
    tokens: int,
    seeds: Sequence[int],
    weight_std: float,
) -> pd.DataFrame:
    """What goes on around each activation in a block that has not been trained: a row for each activation and seed.

    Weights are N(0, weight_std^2), or N(0, 1/inputs) where that is 0; biases are 0; `tokens` inputs and the gradient of the output
    are standard normal. With u the pre-activations and h the activations: `std` of u; `zero`, the share of h that is exactly 0;
    `saturated`, the share of units (see `SATURATED`); `forward`, E[h^2] / E[u^2]; `backward`, what a unit passes on of its
    gradient's second moment, over all its inputs; `branch`, second moment of the feed-forward part's output over that of the
    block's input.
    """
    for name in names:
        transformer.is_gated(name)
    if weight_std < 0:
        raise ConfigurationError(f"weight_std is {weight_std}; give a positive number, or 0 for one over the root of the inputs")
    rows = []
    for seed in seeds:
        blocks: dict[bool, Block] = {}
        for name in names:
            gated = transformer.is_gated(name)
            if gated not in blocks:
                blocks[gated] = Block(d_model, heads, hidden, name)
                _initialise(blocks[gated], seed, weight_std)
            # the same weights for all activations, and for all gated units
            blocks[gated].feed_forward.function = Block(1, 1, 2, name).feed_forward.function
            rows.append({"activation": name, "seed": seed, **_observe(blocks[gated], d_model, tokens, seed)})
    return pd.DataFrame(rows)


def _initialise(block: Block, seed: int, weight_std: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    for module in block.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=weight_std or module.in_features**-0.5, generator=generator)
            nn.init.zeros_(module.bias)


def _observe(block: Block, d_model: int, tokens: int, seed: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(seed + 1_000_003)  # other numbers than the weights
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            seen[name] = output

        return hook

    part, handles = block.feed_forward, []
    for name, module in {"u": part.into, "h": part.function, "out": part}.items():
        handles.append(module.register_forward_hook(keep(name)))
    x = torch.randn(tokens, d_model, generator=generator)
    y = block(x)
    for handle in handles:
        handle.remove()
    u, h = seen["u"], seen["h"]
    (slopes,) = torch.autograd.grad(h.sum(), u, retain_graph=True)
    to_u, to_h = torch.autograd.grad(y, (u, h), torch.randn(y.shape, generator=generator))
    inputs = u.shape[-1] // h.shape[-1]  # of a unit: 2 with a gate
    strongest = slopes.abs().unflatten(-1, (inputs, -1)).amax(-2)
    return {
        "std": float(u.detach().std()),
        "zero": float((h == 0).double().mean()),
        "saturated": float((strongest < SATURATED).double().mean()),
        "forward": _moment(h) / _moment(u),
        "backward": inputs * _moment(to_u) / _moment(to_h),
        "branch": _moment(seen["out"]) / _moment(x),
    }


def _moment(x: Tensor) -> float:
    return float(x.detach().double().square().mean())


def show_statistics(found: pd.DataFrame) -> None:
    """The figure, the table and the sentences of the statistics."""
    seeds = found["seed"].nunique()
    pages.text(" ".join(statistics_sentences(found)))
    pages.figure(
        draw_statistics(found),
        "transformer-statistics",
        "Second moments that each activation and gated unit passes on, forward and backward, in an untrained Transformer block",
        f"Second moments passed on by each unit: dots are means over {seeds} seed{'s' if seeds > 1 else ''}, lines reach from "
        "the least to the greatest. Filled: activations; hollow: gated units. 1 is what the identity passes on; left of it the "
        f"signal fades. {pages.COMPUTED}",
        [],
    )
    rows = [
        {
            "unit": title(str(name)).replace(" ", "&nbsp;"),
            "exactly 0": _percent(part["zero"].mean()),
            "saturated": _percent(part["saturated"].mean()),
            "forward": pages.number(part["forward"].mean(), 2),
            "backward": pages.number(part["backward"].mean(), 2),
            "branch": pages.number(part["branch"].mean(), 2),
        }
        for name, part in found.groupby("activation", sort=False)
    ]
    pages.plain_table(pd.DataFrame(rows))
    pages.text(
        "*Exactly 0*: share of hidden units. *Saturated*: share of units that none of their inputs moves by more than "
        f"{SATURATED:g} times "
        "its own movement. *Forward*: second moment of the hidden units over that of their inputs. *Backward*: the same for "
        "gradients, the "
        "other way, over all inputs of a unit. *Branch*: second moment of the feed-forward part's output over that of the "
        "block's input."
    )


def statistics_sentences(found: pd.DataFrame) -> list[str]:
    """What the statistics say, in sentences."""
    means = found.groupby("activation", sort=False)[["std", "zero", "saturated", "forward", "backward"]].mean()
    sparse = means[means["zero"] > 0.01]
    lines = [f"Pre-activations have a standard deviation of {means['std'].mean():.2f} here."]
    if len(sparse):
        words = ", ".join(f"{title(str(name))} ({_percent(row['zero'])})" for name, row in sparse.iterrows())
        lines.append(f"More than one unit in a hundred is exactly zero with {words} and with none of the others.")
    else:
        lines.append("With none of these units is more than one in a hundred exactly zero.")
    plain = means[[name in activations.names() for name in means.index]]
    if len(plain) > 1:
        least, most = plain["forward"].idxmin(), plain["forward"].idxmax()
        lines.append(
            f"Of the activations {title(str(most))} passes most of the signal on ({pages.number(plain['forward'].max(), 2)} of "
            "its second "
            f"moment) and {title(str(least))} least ({pages.number(plain['forward'].min(), 2)}); backward it is "
            f"{title(str(plain['backward'].idxmax()))} ({pages.number(plain['backward'].max(), 2)}) and "
            f"{title(str(plain['backward'].idxmin()))} ({pages.number(plain['backward'].min(), 2)})."
        )
    if {"gelu", "relu"} <= set(means.index):
        over = means.loc["gelu"] / means.loc["relu"]
        lines.append(
            f"GELU passes on {over['forward']:.2f} times what ReLU does forward and {over['backward']:.2f} times backward; "
            f"{_percent(means.loc['gelu', 'saturated'])} of its units are saturated, of ReLU's "
            f"{_percent(means.loc['relu', 'saturated'])}."
        )
    return lines


@figures.typeset
def draw_statistics(found: pd.DataFrame) -> Figure:
    """The figure of `show_statistics`."""
    names = list(dict.fromkeys(found["activation"]))
    figure, axes = figures.panels(2, height=0.75 + 0.27 * len(names), sharex=True)
    for ax, column in zip(axes, ("forward", "backward"), strict=True):
        for place, name in enumerate(names):
            values = found.loc[found["activation"] == name, column]
            colour, _, marker = figures.STYLES[GATED_STYLES.get(name, name)]
            ax.plot([values.min(), values.max()], [place] * 2, color=colour, lw=1.6)
            face = "white" if name in activations.GATES else colour
            ax.plot(values.mean(), place, marker, color=colour, mfc=face, ms=7.5, mew=1.8, gid=f"{name} {column}")
        ax.axvline(1, color="#555555", lw=1)
        ax.set_yticks(range(len(names)), [title(name) for name in names])
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
    for ax in axes:
        figures.log_axis(ax, "x")
    axes[0].set_title("Forward: activations over pre-activations")
    axes[1].set_title("Backward: gradients the other way")
    axes[1].set_xlabel("ratio of second moments")
    return figure
