"""The answers are computed, and right where the answer is known."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from gelu_study import measurements
from gelu_study.chapters import questions, swaps


@pytest.mark.parametrize(
    ("name", "gap", "at"), [("gelu_tanh", 4.73e-4, 2.699), ("gelu_sigmoid", 2.03e-2, 2.270), ("silu", 0.193, 1.965)]
)
def test_greatest_differences_are_those_measured_beforehand(name, gap, at):
    found, where = questions.greatest_difference(name)
    assert found == pytest.approx(gap, rel=3e-3)
    assert abs(where) == pytest.approx(at, abs=2e-3)


def test_moments_and_minimum_against_closed_forms():
    assert questions.expected("relu", lambda f, z: f) == pytest.approx(1 / math.sqrt(2 * math.pi))
    assert questions.expected("relu", lambda f, z: f * f) == pytest.approx(0.5)
    assert questions.expected("gelu", lambda f, z: f) == pytest.approx(1 / (2 * math.sqrt(math.pi)))  # E[phi(z)], by Stein's lemma
    slopes = questions.statistics_of_gate()
    assert slopes["minimum"] == pytest.approx(-0.169971, abs=1e-6)
    assert slopes["at"] == pytest.approx(-0.751790, abs=1e-5)
    root2 = math.sqrt(2)  # the slope is greatest and least where the second derivative phi(x) (2 - x^2) is 0
    density = math.exp(-1) / math.sqrt(2 * math.pi)
    assert slopes["most"] == pytest.approx(0.5 * math.erfc(-1) + root2 * density, abs=1e-8)
    assert slopes["least"] == pytest.approx(0.5 * math.erfc(1) - root2 * density, abs=1e-8)


def made_up(seed: int, trained: str, evaluated: str, error: float, changed: float, difference: float) -> dict:
    return {
        "seed": seed,
        "trained": trained,
        "evaluated": evaluated,
        "error": error,
        "changed": changed,
        "difference": difference,
        "loss": 1.0,
    }


def test_what_is_said_of_swaps_follows_the_medians():
    names = ["gelu", "gelu_tanh", "gelu_sigmoid", "silu", "relu"]
    rows = [made_up(0, one, other, 2.0, 0.0, 0.0) for one in names for other in names]
    rows = [row for row in rows if row["trained"] != "gelu"]
    rows += [
        made_up(0, "gelu", other, *values)
        for other, values in zip(names, [(2, 0, 0), (2, 0.01, 0.001), (1.5, 1, 0.1), (5, 4, 0.3), (42, 41, 0.9)], strict=True)
    ]
    text = questions.swap_sentences({name: swaps.medians(rows, name) for name in ("error", "changed", "difference")})
    lines = text.splitlines()
    assert len(lines) == 4
    assert "GELU (tanh) moves the logits by 0.1 %" in lines[0] and "neither up nor down" in lines[0]
    assert "down by 0.5 points" in lines[1]
    assert "changes 41 % of the predicted classes; the error goes up by 40 points" in lines[3]


def test_without_a_measurement_the_page_says_how_to_make_it(monkeypatch, capsys):
    monkeypatch.setattr(measurements, "read", lambda name: None)
    shown = []
    monkeypatch.setattr(questions.pages, "text", shown.append)
    questions.swapping()
    assert "Not measured yet" in shown[0] and "gelu-study measure activation-swaps" in shown[0]


def test_medians_are_over_seeds_and_in_order():
    rows = [
        made_up(seed, one, other, error, 0, 0)
        for one in ("relu", "gelu")
        for other in ("relu", "gelu")
        for seed, error in enumerate((1.0, 9.0, 2.0))
    ]
    frame = swaps.medians(rows, "error")
    expected = pd.DataFrame({"relu": [2.0, 2.0], "gelu": [2.0, 2.0]}, index=["relu", "gelu"])
    pd.testing.assert_frame_equal(frame, expected, check_names=False)


def test_the_share_of_small_outputs_against_the_distribution():
    assert questions._small("identity", 0.5) == pytest.approx(math.erf(0.5 / math.sqrt(2)), abs=1e-5)
    assert questions._small("relu", 0.01) == pytest.approx(0.5 * (1 + math.erf(0.01 / math.sqrt(2))), abs=1e-5)
