"""The chapter on the Transformer block: its counts against PyTorch's own Transformer, its statistics against integrals."""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest
from scipy import integrate, special
from torch import nn

from gelu_study import notebooks, pages, paths, transformer
from gelu_study.chapters import transformer_block as chapter
from gelu_study.errors import ConfigurationError, NotebookError

NOTEBOOK = paths.NOTEBOOKS / "transformer-block.ipynb"


@pytest.mark.parametrize(("d_model", "hidden", "vocabulary", "layers"), [(16, 64, 100, 1), (24, 50, 7, 3)])
def test_the_network_holds_what_pytorch_s_transformer_holds(d_model, hidden, vocabulary, layers):
    layer = nn.TransformerEncoderLayer(d_model, 4, hidden, norm_first=True)
    network = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False)
    theirs = sum(parameter.numel() for parameter in [*network.parameters(), *nn.Embedding(vocabulary, d_model).parameters()])
    counts = chapter.network_counts(d_model, hidden, 10, vocabulary, layers)
    assert sum(part.parameters for part in counts.values()) == theirs
    own = transformer.Block(d_model, 4, hidden)
    assert layers * sum(parameter.numel() for parameter in own.parameters()) + 2 * d_model + vocabulary * d_model == theirs


def test_shares_are_of_the_whole_and_two_thirds_of_a_wide_block_is_feed_forward():
    counts = chapter.network_counts(4096, 4 * 4096, 512, 30_000, 6)
    for of in ("parameters", "multiply_adds"):
        assert sum(chapter.shares(counts, of).values()) == pytest.approx(1)
    blocks = {name: part for name, part in counts.items() if name != "embedding"}
    assert chapter.shares(blocks, "parameters")["feed_forward"] == pytest.approx(8 / 12, abs=1e-3), "8 d^2 of 12 d^2"


@pytest.mark.parametrize(("d_model", "hidden"), [(512, 2048), (128, 300)])
def test_attention_catches_up_at_the_length_that_the_page_names(d_model, hidden):
    said = chapter.share_sentences(d_model, hidden, 4, 1000, 2)[1]
    length = int(re.search(r"from ([\d,]+) tokens", said)[1].replace(",", ""))
    counts = chapter.network_counts(d_model, hidden, length, 1000, 2)
    assert counts["projections"].multiply_adds + counts["mixing"].multiply_adds == counts["feed_forward"].multiply_adds
    assert "takes as much" in chapter.share_sentences(d_model, hidden, length, 1000, 2)[1]
    assert "at any length" in chapter.share_sentences(d_model, d_model, 4, 1000, 2)[1]


def test_the_sentences_follow_the_sizes():
    small, large = (" ".join(chapter.share_sentences(d, 4 * d, 512, 30_000, 6)) for d in (64, 4096))
    assert "of the whole network's 9 %" in small, "64 * 64 * 8 * 6 of that, 64 * 64 * 4 * 6 and 30,000 * 64"
    assert "of the whole network's 61 %" in large


def test_the_table_of_units_counts_what_modules_hold():
    frame = chapter.units(24, 96)
    assert [int(text.replace(",", "")) for text in frame["parameters"]] == [
        sum(parameter.numel() for parameter in transformer.FeedForward(24, 96, name, equal_parameters=equal).parameters())
        for name, equal in (("relu", True), ("glu", True), ("swiglu", False))
    ]
    assert list(frame["width"]) == ["96", "64", "96"]
    assert abs(float(frame["against GELU"][1].split()[0])) < 1
    assert 45 < float(frame["against GELU"][2].split()[0]) < 52


def test_published_networks_follow_the_rule():
    frame = chapter.models().set_index("network")
    assert frame.loc["T5 with GEGLU (2020)", "4 d_model, or ⅔ of it"] == "2,048"
    llama = next(model for model in chapter.MODELS if model.unit == "swiglu")
    two_thirds = transformer.hidden_width(4 * llama.d_model, llama.unit)
    assert llama.hidden == -(-two_thirds // 256) * 256, "LLaMA's code rounds it up to a multiple of 256"


def moment(f, std):
    """E[f(std z)^2] for standard normal z."""
    density = lambda z: np.exp(-z * z / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    return integrate.quad(lambda z: f(std * z) ** 2 * density(z), -12, 12, points=[0], limit=200)[0]


FUNCTIONS = {
    "gelu": (lambda u: u * special.ndtr(u), lambda u: special.ndtr(u) + u * np.exp(-u * u / 2) / np.sqrt(2 * np.pi)),
    "relu": (lambda u: max(u, 0.0), lambda u: float(u > 0)),
    "elu": (lambda u: u if u > 0 else np.expm1(u), lambda u: 1.0 if u > 0 else np.exp(u)),
    "silu": (
        lambda u: u * special.expit(u),
        lambda u: special.expit(u) * (1 + u * special.expit(-u)),
    ),
}
GATED = {"geglu": "gelu", "reglu": "relu", "swiglu": "silu"}


@pytest.mark.parametrize("weight_std", [0.05, 0.0])
def test_statistics_are_those_of_gaussian_pre_activations(weight_std):
    d_model = 256
    found = chapter.statistics([*FUNCTIONS, *GATED], d_model, 4 * d_model, 4, 96, [3, 4], weight_std)
    means = found.groupby("activation").mean()
    std = np.sqrt(d_model) * (weight_std or d_model**-0.5)
    np.testing.assert_allclose(means["std"], std, rtol=0.02)
    for name, (value, slope) in FUNCTIONS.items():
        assert means.loc[name, "forward"] == pytest.approx(moment(value, std) / std**2, rel=0.03)
        assert means.loc[name, "backward"] == pytest.approx(moment(slope, std), rel=0.03)
    for name, gate in GATED.items():
        value, slope = FUNCTIONS[gate]
        assert means.loc[name, "forward"] == pytest.approx(moment(value, std), rel=0.04)
        assert means.loc[name, "backward"] == pytest.approx(moment(value, std) + std**2 * moment(slope, std), rel=0.04)
    assert means.loc["relu", "zero"] == pytest.approx(0.5, abs=0.01)
    assert means.loc["reglu", "zero"] == pytest.approx(0.5, abs=0.01)
    assert means.loc["gelu", "zero"] == 0
    # |slope| < 0.05 only where GELU's derivative is small: by integration over the standard normal
    z = np.linspace(-8, 8, 400_001)
    small = np.abs([FUNCTIONS["gelu"][1](u) for u in std * z[::50]]) < chapter.SATURATED
    weight = np.exp(-z[::50] ** 2 / 2)
    assert means.loc["gelu", "saturated"] == pytest.approx((small * weight).sum() / weight.sum(), abs=0.01)
    if weight_std == 0:  # as the page says
        assert means.loc["geglu", "forward"] == pytest.approx(means.loc["gelu", "forward"], rel=0.05)


def test_the_same_seed_gives_the_same_statistics_whatever_the_company():
    alone = chapter.statistics(["relu", "geglu"], 32, 128, 4, 16, [1], 0.02)
    company = chapter.statistics(["gelu", "relu", "swiglu", "geglu"], 32, 128, 4, 16, [0, 1], 0.02)
    same = company[(company["seed"] == 1) & company["activation"].isin(["relu", "geglu"])].reset_index(drop=True)
    assert alone.equals(same)


def test_a_unit_that_does_not_exist_is_refused():
    with pytest.raises(ConfigurationError, match="unknown activation or gated unit 'geluglu'"):
        chapter.statistics(["geluglu"], 8, 16, 2, 4, [0], 0.02)
    with pytest.raises(ConfigurationError, match="weight_std"):
        chapter.statistics(["gelu"], 8, 16, 2, 4, [0], -1.0)


def test_figures_show_the_numbers():
    found = chapter.statistics(["gelu", "reglu"], 32, 128, 4, 16, [0, 1], 0.02)
    drawn = chapter.draw_statistics(found)
    dots = {line.get_gid(): line.get_xdata()[0] for ax in drawn.axes for line in ax.get_lines() if " " in str(line.get_gid())}
    means = found.groupby("activation")[["forward", "backward"]].mean()
    assert dots == {f"{name} {column}": means.loc[name, column] for name in means.index for column in means.columns}
    shares = chapter.draw_shares(64, 4.0, 128, 1000, 2)
    assert [ax.get_xlabel() for ax in shares.axes] == ["d_model", "tokens in the sequence"]
    words = [text.get_text() for text in chapter.draw_place(96, 384).axes[0].texts]
    assert words.count("384") == 2 and words.count("256") == 2 and words.count("96") == 4


def outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(str(part) for cell in cells if cell.cell_type == "code" for out in cell.outputs for part in out.data.values())


def test_a_student_s_parameters_change_the_page(tmp_path):
    given = {"d_model": 96, "hidden_factor": 2.0, "heads": 3, "sequence_length": 32, "layers": 2, "units": ["relu", "swiglu"], "seeds": [5]}
    shown = outputs(notebooks.execute(NOTEBOOK, tmp_path / "out.ipynb", given))
    assert "2 layers of d_model 96 and hidden width 192" in shown
    assert "SwiGLU" in shown
    assert f"{transformer.feed_forward_counts(96, 192, 'swiglu').parameters:,}" in shown
    with pytest.raises(NotebookError, match="7 heads do not divide a d_model of 96"):
        notebooks.execute(NOTEBOOK, tmp_path / "bad.ipynb", {"d_model": 96, "heads": 7})


def test_the_sentences_on_statistics_come_from_the_statistics(monkeypatch):
    found = chapter.statistics(["gelu", "relu"], 64, 256, 4, 64, [0], 0.02)
    means = found.set_index("activation")
    said = " ".join(chapter.statistics_sentences(found))
    assert f"GELU passes on {means.loc['gelu', 'forward'] / means.loc['relu', 'forward']:.2f} times what ReLU does forward" in said
    assert f"exactly zero with ReLU ({100 * means.loc['relu', 'zero']:.0f} %) and with none of the others" in said
    shown: list[str] = []
    monkeypatch.setattr(pages, "text", shown.append)
    chapter.show_units(64, 4.0)
    assert "Of the 16 activations of this study, 16 fit the very same weights" in shown[0]
    assert "50 % more parameters" in shown[0]
