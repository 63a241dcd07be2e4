from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gelu_study import published
from gelu_study.errors import ConfigurationError


def test_smoothing_is_the_recurrence() -> None:
    values, b = np.array([3.0, 1.0, 4.0, 1.0, 5.0]), 0.7
    expected = [values[0]]
    for value in values[1:]:
        expected.append(b * expected[-1] + (1 - b) * value)
    np.testing.assert_allclose(published.smooth(values, b), expected, rtol=1e-14)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 0.999))
def test_smoothing_stays_within_the_values_and_acts_on_the_last_axis(values: list[float], b: float) -> None:
    smoothed = published.smooth([values, values[::-1]], b)
    assert smoothed.shape == (2, len(values))
    slack = 1e-9 * max(1, max(map(abs, values)))
    assert min(values) - slack <= smoothed.min() <= smoothed.max() <= max(values) + slack
    np.testing.assert_allclose(smoothed[0], published.smooth(values, b), rtol=1e-12, atol=slack)


def test_smoothing_of_nothing_and_with_a_wrong_b() -> None:
    assert published.smooth([], 0.5).shape == (0,)
    for b in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigurationError, match="must lie in"):
            published.smooth([1.0], b)


@pytest.mark.parametrize("panel", ["left", "right"])
@pytest.mark.parametrize("activation", ["GELU", "ReLU", "ELU"])
def test_smoothing_the_unsmoothed_values_gives_the_plotted_ones(panel: str, activation: str) -> None:
    """Each stretch of consecutive points, started from the plotted value before it, must return to the curve."""
    b = published.SMOOTHING[2, panel, "validation"]
    raw = published.unsmoothed(2, panel)
    raw = raw[(raw["activation"] == activation) & (raw["split"] == "validation")].sort_values("index")
    plotted = published.curves(2, panel)
    plotted = plotted[(plotted["activation"] == activation) & (plotted["split"] == "validation")]
    index = np.rint(plotted["epoch"] / 50 * 149).astype(int)  # 150 values on linspace(0, 50, 150)
    at = dict(zip(index, plotted["value"], strict=True))
    checked = 0
    for _, run in raw.groupby((raw["index"].diff() != 1).cumsum()):
        first = int(run["index"].iloc[0])
        assert first - 1 in at
        smoothed = published.smooth([at[first - 1], *run["raw_value"]], b)[1:]
        expected = [at[i] for i in run["index"]]
        np.testing.assert_allclose(smoothed, expected, atol=2e-6)
        checked += int(run["on_grid"].sum())
    assert checked >= 40


def test_another_smoothing_would_not_fit() -> None:
    raw = published.unsmoothed(2, "left")
    raw = raw[(raw["activation"] == "GELU")]
    one = published.smooth([raw["smoothed_value"].iloc[0], *raw["raw_value"].iloc[1:]], 0.5)
    assert np.abs(one - raw["smoothed_value"]).max() > 1e-3


def test_published_curves_and_last_points() -> None:
    table = published.curves(2)
    assert set(table["panel"]) == {"left", "right"}
    assert set(table["split"]) == {"train", "validation"}
    assert table["epoch"].between(0, 50).all()
    assert (table["value"] > 0).all()
    assert published.final_value("gelu_tanh", 1.0) == pytest.approx(0.0078, abs=5e-5)
    assert published.final_value("relu", 0.5) == pytest.approx(0.346, abs=5e-4)
    assert np.isnan(published.final_value("silu", 1.0))
    assert np.isnan(published.final_value("relu", 0.75))
    for key in published.SMOOTHING:
        figure, panel, split = key
        curve = published.curves(figure, panel)
        assert split in set(curve["split"])
    with pytest.raises(ConfigurationError, match="nothing of figure 2, panel middle"):
        published.curves(2, "middle")


@pytest.mark.parametrize(("figure", "panel"), [(3, "left"), (3, "right"), (8, "main")])
def test_bands_are_around_the_training_curves_and_count_their_points(figure: int, panel: str) -> None:
    table = published.bands(figure, panel)
    assert set(zip(table["figure"], table["panel"], table["split"], strict=True)) == {(figure, panel, "train")}
    assert set(table["activation"]) == set(published.NAMES.values())
    assert (table["vertex_min"] <= table["mean"]).all() and (table["mean"] <= table["vertex_max"]).all()
    assert table["n_vertices"].between(1, 60_000 // 64 + 1).all(), "an epoch has no more points than minibatches"
    assert ((table["epoch"] % 1) == 0.5).all() and table["epoch"].between(0, 250).all()
    for name in table["activation"].unique():
        rows = table[table["activation"] == name]
        curve = published.curves(figure, panel).query("split == 'train' and activation == @name")
        inside = np.interp(rows["epoch"], curve["epoch"], curve["value"])
        assert np.mean((rows["vertex_min"] <= inside + 1e-9) & (inside <= rows["vertex_max"] + 1e-9)) > 0.95
    with pytest.raises(ConfigurationError, match="nothing of figure 2"):
        published.bands(2)


def test_tables_are_copies() -> None:
    table = published.curves(2)
    table["value"] = 0.0
    assert (published.curves(2)["value"] > 0).all()


def test_claims() -> None:
    assert len(published.claims()) == len(published.claims("result")) + len(published.claims("qualitative")) + len(
        published.claims("setting")
    )
    stated = published.claims("qualitative", "mnist_fcn")
    assert len(stated) == 1
    assert "lowest median training log loss" in stated["metric"].iloc[0] + stated["value"].iloc[0]
    with pytest.raises(ConfigurationError, match="known are"):
        published.claims("rumour")


def test_the_last_points_are_those_of_the_figures() -> None:
    assert published.final_value("relu", 0.5) == published.last_point(2, "right", "train", "relu") == 0.345954
    for figure, panel in published.AUTOENCODER.values():
        curve = published.curves(figure, panel).query("split == 'test' and activation == 'GELU'")
        assert published.last_point(figure, panel, "test", "gelu_tanh") == curve.set_index("epoch")["value"][250.0]
    curve = published.curves(3, "left").query("split == 'test' and activation == 'ELU' and epoch <= 50")
    assert published.last_point(3, "left", "test", "elu", until=50) == curve.set_index("epoch")["value"][curve["epoch"].max()]
    assert np.isnan(published.last_point(3, "left", "test", "silu"))
    assert np.isnan(published.last_point(3, "left", "test", "elu", until=0))


def test_stated_numbers_are_as_the_text_writes_them() -> None:
    assert published.stated("cifar10_convnet", "test_error") == {"GELU": "7.89", "ReLU": "8.16", "ELU": "8.41"}
    assert published.stated("twitter_pos_soi", "error") == {"ReLU + dropout": "11.9", "SOI map": "12.5"}
    assert published.stated("math", "max |sigmoid(x) - Phi(x)|") == {"": "0.1"}
    with pytest.raises(ConfigurationError, match="states no log_loss of cifar10_convnet"):
        published.stated("cifar10_convnet", "log_loss")
