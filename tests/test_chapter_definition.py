"""The chapter on the definition against mpmath, SciPy, closed forms and the paper."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats

from gelu_study import activations, figures
from gelu_study.chapters import definition
from gelu_study.errors import ConfigurationError


def test_the_soi_map_s_mean_is_x_phi_within_its_standard_error():
    points = np.linspace(-3, 3, 400).tolist()
    table = definition.simulate(points, [2_000], seed=3)
    np.testing.assert_allclose(table["expected"], [p * special.ndtr(p) for p in points], rtol=1e-12)
    inside, count = definition.within(table)
    assert count == 400
    assert stats.binomtest(inside, count, 0.95).pvalue > 1e-4
    # a mean of the wrong function is noticed
    wrong = table.assign(expected=table["x"] * special.expit(table["x"]))
    assert definition.within(wrong)[0] < 0.8 * count


def test_more_draws_go_on_from_fewer_and_the_error_falls_as_their_root():
    table = definition.simulate([-1.0, 2.0], [1_000, 100_000], seed=0)
    again = definition.simulate([-1.0, 2.0], [100_000, 1_000, 1_000], seed=0)
    assert table.equals(again)
    errors = table.pivot(index="x", columns="draws", values="error")
    np.testing.assert_allclose(errors[1_000] / errors[100_000], 10)
    last = table[table["draws"] == 100_000]
    np.testing.assert_allclose(last["gradient"], stats.norm.cdf(last["x"]), atol=5 * 0.5 / math.sqrt(100_000))
    np.testing.assert_allclose(last["gradient"] * last["x"], last["mean"], rtol=1e-12)
    assert not definition.simulate([-1.0, 2.0], [1_000], seed=1)["mean"].equals(table["mean"][:2])


@pytest.mark.parametrize(("points", "draws"), [([], [10]), ([1.0], []), ([1.0], [0])])
def test_a_simulation_of_nothing_is_refused(points, draws):
    with pytest.raises(ConfigurationError, match="at least 1"):
        definition.simulate(points, draws, seed=0)


def test_value_derivative_and_curvature_against_mpmath():
    x = np.array([-9.0, -2.0, -math.sqrt(2), -0.3, 0.0, 1e-3, 1.0, 2.5, 7.0])
    found = definition.curves("gelu", x)
    with mpmath.workdps(40):
        points = [mpmath.mpf(p) for p in x]
        np.testing.assert_allclose(found.value, [float(p * mpmath.ncdf(p)) for p in points], rtol=1e-14)
        np.testing.assert_allclose(found.slope, [float(mpmath.ncdf(p) + p * mpmath.npdf(p)) for p in points], rtol=1e-13)
        np.testing.assert_allclose(found.curvature, [float((2 - p * p) * mpmath.npdf(p)) for p in points], rtol=1e-13, atol=1e-16)


def test_kinks_and_lines_have_the_derivatives_of_either_side():
    assert definition.at("relu", -1.0) == (0, 0, 0)
    assert definition.at("relu", 1.0) == (1, 1, 0)
    np.testing.assert_allclose(definition.at("elu", -2.0), [math.expm1(-2), math.exp(-2), math.exp(-2)])
    assert definition.at("identity", 3.0) == (3, 1, 0)


def test_the_minimum_is_where_mpmath_has_it():
    with mpmath.workdps(30):
        place = mpmath.findroot(lambda p: mpmath.ncdf(p) + p * mpmath.npdf(p), -0.75)
        least = place * mpmath.ncdf(place)
    found = definition.minimum()
    assert found == pytest.approx((float(place), float(least)), abs=1e-13)
    assert found == pytest.approx((-0.751790, -0.169971), abs=5e-6)  # the project's facts, whose sixth decimal of the place is off


def test_other_gates_against_closed_forms():
    w = float(special.lambertw(math.exp(-1)).real)
    assert definition.minimum("silu", -50) == pytest.approx((-1 - w, -w), abs=1e-10)
    assert definition.minimum("lalu", -50) == pytest.approx((-1, -math.exp(-1) / 2), abs=1e-10)
    table = definition.family_table().set_index("F")
    assert list(table.index) == ["Gaussian", "logistic", "Laplace", "Cauchy"]
    assert table.loc["Cauchy", "least value"] == f"{-1 / math.pi:.4f}, approached at −∞"
    assert (
        table.loc["Gaussian", "steepest"]
        == f"{special.ndtr(math.sqrt(2)) + math.sqrt(2) * stats.norm.pdf(math.sqrt(2)):.4f} at 1.414"
    )
    # d/dx x (1 - exp(-x) / 2) = 1 + (x - 1) exp(-x) / 2 is greatest at 2
    assert table.loc["Laplace", "steepest"] == f"{1 + math.exp(-2) / 2:.4f} at 2.000"
    assert table.loc["Cauchy", "steepest"] == "1, approached at ∞"
    assert float(table.loc["logistic", "f(−5)"]) == pytest.approx(-5 * special.expit(-5), rel=5e-3)


def test_a_narrower_gate_is_closer_to_relu_in_proportion():
    table = definition.narrowing([2.0, 0.3, 1e-4])
    np.testing.assert_allclose(table["over_sigma"], 0.16997120747990366, rtol=1e-9)
    np.testing.assert_allclose(table["at"] / table["sigma"], -0.7517915246935645, rtol=1e-4)


def test_an_extreme_is_found_between_the_points_of_the_grid():
    place, value = definition.extreme(lambda x: -((x - 0.123456789) ** 2) + 3, -1, 1)
    assert place == pytest.approx(0.123456789, abs=1e-7)
    assert value == pytest.approx(3, abs=1e-13)


def test_the_comparison_of_relu_elu_and_gelu():
    table = definition.comparison().set_index("")
    assert list(table.columns) == ["ReLU", "ELU", "GELU"]
    mean = table.loc["mean output for standard normal x"].astype(float)
    # E max(0, Z) = 1 / sqrt(2 pi); E Z Phi(Z) = 1 / (2 sqrt pi); E exp(Z) over Z < 0 is sqrt(e) Phi(-1)
    elu = 1 / math.sqrt(2 * math.pi) + math.sqrt(math.e) * special.ndtr(-1) - 0.5
    np.testing.assert_allclose(mean, [1 / math.sqrt(2 * math.pi), elu, 0.5 / math.sqrt(math.pi)], atol=1e-3)
    assert list(table.loc["outputs that are exactly 0"]) == ["50 %", "0 %", "0 %"]
    assert list(table.loc["derivative just left and right of 0"]) == ["0.000, 1.000", "1.000, 1.000", "0.500, 0.500"]
    assert list(table.loc["share of −6 < x < 6 without curvature"]) == ["100 %", "50 %", "0 %"]
    assert table.loc["least value", "GELU"] == "-0.1700 at -0.7518"


def test_every_remark_of_the_paper_is_checked_and_one_holds_only_almost():
    found = {remark.said: remark for remark in definition.remarks(20_000, seed=0)}
    assert len(found) == 15
    assert [said for said, remark in found.items() if not remark.holds] == ["It has curvature at all points."]
    assert f"{-math.sqrt(2):.5f}, {math.sqrt(2):.5f}" in found["It has curvature at all points."].result
    z = np.linspace(0, 4, 400_001)
    gap = np.abs(special.expit(z) - special.ndtr(z))
    said = found["The logistic function and Φ differ by about 0.1 at most."].result
    assert said == f"{gap.max():.4f} at |x| = {z[gap.argmax()]:.3f}"
    assert found["The tanh form approximates it."].result == "4.73e-04 at |x| = 2.699"
    assert "-0.0454, 0.0000, 1.9546" in found["(From a guide) The tanh form maps −2, 0, 2 to −0.045, 0, 1.955."].result


def test_a_remark_that_does_not_hold_is_said_not_to(monkeypatch):
    monkeypatch.setattr(activations, "gelu_tanh", lambda x: x * torch.sigmoid(x))
    shown: list[object] = []
    monkeypatch.setattr(definition.pages, "text", shown.append)
    monkeypatch.setattr(definition.pages, "plain_table", shown.append)
    definition.remarks_table(1_000, seed=0)
    table, text = shown
    assert (table["holds"] != "yes").sum() == 2
    assert "13 of 15 hold" in text
    assert "From a guide" in text


def test_every_activation_can_be_told_from_every_other():
    styles = {name: figures.STYLES[name] for name in activations.names()}
    for part, what in enumerate(("colour", "line", "marker")):
        assert len({str(style[part]) for style in styles.values()}) == len(styles), what


@pytest.mark.parametrize(
    "draw",
    [
        lambda: definition.draw_figure_one(-3, 3),
        lambda: definition.draw_side_by_side(-4, 4),
        lambda: definition.draw_side_by_side(1, 4),
        lambda: definition.draw_towards_relu([1.0, 0.1]),
        lambda: definition.draw_family(-6, 4),
        lambda: definition.draw_simulation(definition.simulate([-1.0, 1.0], [100], 0)),
    ],
    ids=["figure 1", "side by side", "right of 0", "sigma", "family", "simulation"],
)
def test_figures_can_be_drawn_for_the_parameters_of_a_reader(draw):
    figure = draw()
    for ax in figure.axes:
        for line in ax.get_lines():
            y = np.asarray(line.get_ydata(), dtype=float)
            assert np.isfinite(y).any()
        assert ax.get_xlabel() or ax.get_title("left") or ax is not figure.axes[-1]


def test_figure_1_shows_the_paper_s_three_functions():
    (ax,) = definition.draw_figure_one(-3, 3).axes
    lines = {line.get_gid(): line for line in ax.get_lines() if line.get_gid() in definition.TRIO}
    assert set(lines) == {"gelu", "relu", "elu"}
    x = np.asarray(lines["gelu"].get_xdata())
    np.testing.assert_allclose(lines["gelu"].get_ydata(), x * special.ndtr(x), rtol=1e-12)
    np.testing.assert_allclose(lines["relu"].get_ydata(), np.maximum(x, 0))
    np.testing.assert_allclose(lines["elu"].get_ydata(), np.where(x > 0, x, np.expm1(x)), rtol=1e-12)


def test_what_jumps_is_drawn_in_pieces_and_what_does_not_in_one():
    figure = definition.draw_side_by_side(-4, 4)
    broken = {
        (ax.get_title("left").split(",")[0], line.get_gid())
        for ax in figure.axes
        for line in ax.get_lines()
        if np.isnan(np.asarray(line.get_ydata(), dtype=float)).any()
    }
    assert broken == {("Gate", "relu"), ("Derivative", "relu"), ("Curvature", "elu")}


def test_an_axis_from_right_to_left_is_refused():
    with pytest.raises(ConfigurationError, match="from low to high"):
        definition.draw_figure_one(3, -3)
