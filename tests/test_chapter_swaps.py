"""Swapping activations in trained networks."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from torch import nn

from gelu_study import protocols
from gelu_study.chapters import swaps


def network() -> tuple[nn.Sequential, list[tuple[torch.Tensor, torch.Tensor]]]:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3)).double()
    layers = [(layer.weight.detach().T, layer.bias.detach()) for layer in plain if isinstance(layer, nn.Linear)]
    return plain, layers


def test_a_swap_against_modules():
    plain, layers = network()
    x, labels = torch.randn(2500, 6, dtype=torch.float64), torch.randint(3, (2500,))
    own, relu = swaps.swap(layers, "gelu", 4, ["gelu", "relu"], x, labels)
    with torch.no_grad():
        expected = plain(x)
        plain[1] = plain[3] = nn.ReLU()
        swapped = plain(x)
    assert (own["trained"], own["evaluated"], own["seed"], own["changed"], own["difference"]) == ("gelu", "gelu", 4, 0, 0)
    assert own["loss"] == pytest.approx(float(nn.functional.cross_entropy(expected, labels)))
    assert relu["loss"] == pytest.approx(float(nn.functional.cross_entropy(swapped, labels)))
    assert relu["error"] == pytest.approx(100 * float((swapped.argmax(1) != labels).double().mean()))
    assert relu["changed"] == pytest.approx(100 * float((swapped.argmax(1) != expected.argmax(1)).double().mean()))
    centred = expected - expected.mean(1, keepdim=True)
    assert relu["difference"] == pytest.approx(float((swapped - expected).norm() / centred.norm()))
    assert relu["changed"] > 0


def test_trained_networks_get_worse_when_the_activation_is_swapped():
    configs = protocols.plan(
        "mnist-classifier",
        "smoke",
        activations=["gelu", "gelu_tanh", "relu"],
        learning_rates=[1e-3],
        keep_probabilities=[1.0],
        seeds=[0, 1],
    )
    rows = swaps.trained_and_swapped(configs, torch.device("cpu"))
    assert len(rows) == 3 * 3 * 2
    difference = swaps.medians(rows, "difference")
    assert list(difference.index) == list(difference.columns) == ["gelu", "gelu_tanh", "relu"]
    assert difference.loc["gelu", "gelu"] == 0
    assert 0 < difference.loc["gelu", "gelu_tanh"] < 0.01 < difference.loc["gelu", "relu"]
    loss = pd.DataFrame(rows).groupby(["trained", "evaluated"])["loss"].median()
    assert loss["gelu", "relu"] > loss["gelu", "gelu"]
