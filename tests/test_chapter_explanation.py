"""What explains it, the calculations: the signal against closed forms, mpmath and autograd, the factorial against arithmetic by hand."""

from __future__ import annotations

import math
from itertools import product

import mpmath
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from gelu_study.chapters.explanation import factorial, signal
from gelu_study.errors import ConfigurationError
from gelu_study.initialisations import weights
from gelu_study.random_streams import generator

SCHEMES = ("unit-norm", "unit-norm-outgoing", "he", "variance-matched")


def at_layer(frame: pd.DataFrame, scheme: str, name: str, layer: int) -> pd.Series:
    return frame[(frame["initialisation"] == scheme) & (frame["activation"] == name) & (frame["layer"] == layer)].iloc[0]


def asked(*names: str, schemes=("unit-norm",), depth=8, width=8, networks=1, second_moment=1.0) -> signal.Setting:
    return signal.setting(names, schemes, depth, width, networks, second_moment)


# The signal, in theory


@pytest.mark.parametrize(("name", "left"), [("gelu_tanh", "5.3e-05"), ("gelu", "5.3e-05"), ("relu", "3.9e-03"), ("elu", "8.6e-02")])
def test_unit_norm_weights_leave_after_eight_layers_what_was_measured_beforehand(name, left):
    assert f"{at_layer(signal.theory(asked(name)), 'unit-norm', name, 8)['second_moment']:.1e}" == left


@pytest.mark.parametrize(("scheme", "kept"), [("unit-norm", 0.5), ("unit-norm-outgoing", 0.5), ("he", 1.0)])
def test_relu_keeps_a_known_part_of_signal_and_slope_in_every_layer(scheme, kept):
    found = signal.theory(asked("relu", schemes=(scheme,), depth=16))
    for layer in range(17):
        row = at_layer(found, scheme, "relu", layer)
        assert row["second_moment"] == pytest.approx(kept**layer, rel=1e-10)
        assert row["slope"] == pytest.approx(kept**layer, rel=1e-10)


def test_a_relu_network_scales_with_its_input():
    found = signal.theory(asked("relu", depth=3, second_moment=0.1))
    assert at_layer(found, "unit-norm", "relu", 3)["second_moment"] == pytest.approx(0.1 / 8, rel=1e-10)
    assert at_layer(found, "unit-norm", "relu", 3)["slope"] == pytest.approx(1 / 8, rel=1e-10)


@pytest.mark.parametrize("q", [1e-4, 0.3, 1.0, 9.0])
def test_elu_s_moments_are_those_of_its_closed_form(q):
    root = math.sqrt(q)
    second = q / 2 + math.exp(2 * q) * stats.norm.cdf(-2 * root) - 2 * math.exp(q / 2) * stats.norm.cdf(-root) + 0.5
    slope = 0.5 + math.exp(2 * q) * stats.norm.cdf(-2 * root)
    # the closed form loses digits where q is small: its terms cancel
    assert signal.moments("elu", q) == pytest.approx((second, slope), rel=1e-9 if q > 0.01 else 1e-6)


@pytest.mark.parametrize("q", [1e-3, 0.4, 4.0])
def test_gelu_s_moments_are_those_that_mpmath_integrates(q):
    root = mpmath.sqrt(q)

    def expectation(of):
        inside = lambda z: of(root * z) ** 2 * mpmath.npdf(z)  # noqa: E731
        return float(mpmath.quad(inside, [-12, -4, 0, 4, 12]))

    second = expectation(lambda x: x * mpmath.ncdf(x))
    slope = expectation(lambda x: mpmath.ncdf(x) + x * mpmath.npdf(x))
    assert signal.moments("gelu", q) == pytest.approx((second, slope), rel=1e-10)


@pytest.mark.parametrize("second_moment", [1.0, 0.1])
@pytest.mark.parametrize("name", ["gelu_tanh", "relu", "elu"])
def test_variance_matched_weights_keep_the_signal_in_every_layer(name, second_moment):
    found = signal.theory(asked(name, schemes=("variance-matched",), depth=16, second_moment=second_moment))
    kept = signal.moments(name, 1.0)[0]
    np.testing.assert_allclose(found["second_moment"][1:], kept, rtol=1e-8)


# The signal, in drawn networks


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["gelu_tanh", "relu", "elu"])
def test_wide_drawn_networks_do_what_theory_says(scheme, name):
    setting = asked(name, schemes=(scheme,), depth=3, width=512, networks=3)
    expected = at_layer(signal.theory(setting), scheme, name, 3)
    found = signal.measured(setting)
    mean = found[found["layer"] == 3][["second_moment", "slope"]].mean()
    np.testing.assert_allclose(mean, expected[["second_moment", "slope"]].astype(float), rtol=0.08)


@pytest.mark.parametrize("scheme", ["unit-norm", "he"])
def test_small_changes_are_carried_by_the_jacobian(scheme):
    width, depth = 24, 3
    setting = asked("gelu", schemes=(scheme,), depth=depth, width=width)
    network = torch.nn.Sequential()
    for matrix in weights(scheme, [(width, width)] * depth, 0, "gelu"):
        layer = torch.nn.Linear(width, width, bias=False)
        layer.weight = torch.nn.Parameter(matrix.T.contiguous())
        network.extend([layer, torch.nn.GELU()])
    inputs, changes = torch.randn(2, signal.EXAMPLES, width, generator=generator(0, "order"))
    jacobians = torch.autograd.functional.jacobian(lambda x: network(x).sum(0), inputs)  # [outputs, examples, inputs]
    expected = float(torch.einsum("oei,ei->eo", jacobians, changes).square().mean())
    row = signal.measured(setting).query("layer == 3").iloc[0]
    assert row["slope"] == pytest.approx(expected, rel=1e-4)
    assert row["second_moment"] == pytest.approx(float(network(inputs).detach().square().mean()), rel=1e-4)


def test_drawn_networks_are_summarised_by_median_and_range():
    found = signal.measured(asked("relu", depth=2, networks=5))
    row = at_layer(signal.spread(found), "unit-norm", "relu", 2)
    values = sorted(found[found["layer"] == 2]["slope"])
    assert [row["slope_low"], row["slope"], row["slope_high"]] == [values[0], values[2], values[4]]
    assert values[0] < values[4]


@pytest.mark.parametrize(
    ("names", "changed", "said"),
    [
        (("gelo",), {}, "unknown activation"),
        (("relu",), {"schemes": ("xavier",)}, "unknown initialisation"),
        (("relu",), {"depth": 0}, "depth is 0"),
        (("relu",), {"networks": 0}, "networks is 0"),
        (("relu",), {"second_moment": 0.0}, "input_second_moment is 0"),
        ((), {}, "at least one activation"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(names, changed, said):
    with pytest.raises(ConfigurationError, match=said):
        asked(*names, **changed)


# The factorial


def by_hand() -> pd.DataFrame:
    values = {0: (1, 5, 2, 10), 1: (3, 7, 4, 16)}
    rows = [
        {"a": a, "b": b, "seed": seed, "y": value}
        for seed, cells in values.items()
        for (a, b), value in zip(product(("a1", "a2"), ("b1", "b2")), cells, strict=True)
    ]
    return pd.DataFrame(rows)


def test_a_two_by_two_gives_what_arithmetic_by_hand_gives():
    # cell means 2, 6, 3, 13 about 6: A -2 and 2, B -3.5 and 3.5, AB 1.5; seeds -1.5 and 1.5; squares of all deviations sum to 172
    fitted = factorial.fit(by_hand(), ["a", "b"], "y")
    assert fitted.squares == pytest.approx({("a",): 32, ("b",): 98, ("a", "b"): 18, ("seed",): 18, (): 6})
    assert fitted.residual_df == 3
    assert fitted.shares()[("b",)] == pytest.approx(98 / 172)
    effect = fitted.effect(a="a2")
    half = 3.182446 * math.sqrt(2 / 8)  # residual variance 6 / 3, eight runs
    assert (effect.middle, effect.low, effect.high) == pytest.approx((2, 2 - half, 2 + half), rel=1e-6)
    difference = fitted.interval(fitted.mean(a="a2") - fitted.mean(a="a1"))
    assert (difference.middle, difference.high - difference.middle) == pytest.approx((4, 2 * half), rel=1e-6)
    corner = fitted.interval(fitted.mean(a="a1", b="b2"))
    assert (corner.middle, corner.high - corner.middle) == pytest.approx((6, 3.182446 * math.sqrt(2 / 2)), rel=1e-6)
    assert factorial.split(fitted, "a") == factorial.Split(*(pytest.approx(x / 172) for x in (32, 98, 18, 18, 6)))
    alone = factorial.split_by_seed(by_hand(), ["a", "b"], "y", "a")
    assert alone[0].subject == pytest.approx((2 * 1.5) ** 2 / 49)  # seed 0: A -1.5 and 1.5; its deviations sum to 49
    assert [split.residual for split in alone] == [0, 0]


def test_effects_that_were_put_in_come_out():
    levels = {"activation": "xyz", "initialisation": "pqr", "optimiser": "uv"}
    main = {"x": -1.0, "y": 0.25, "z": 0.75, "p": 0.5, "q": -0.5, "r": 0.0, "u": 2.0, "v": -2.0}
    joint = {("x", "u"): 0.3, ("y", "u"): -0.3, ("x", "v"): -0.3, ("y", "v"): 0.3}
    rows = [
        dict(zip(levels, cell, strict=True))
        | {"seed": seed, "response": 7 + sum(main[level] for level in cell) + joint.get((cell[0], cell[2]), 0) + 0.1 * seed}
        for cell in product(*levels.values())
        for seed in (0, 1, 2)
    ]
    frame = pd.DataFrame(rows).sample(frac=1, random_state=0)
    fitted = factorial.fit(frame, list(levels), "response")
    for factor, names in levels.items():
        for level in names:
            assert fitted.effect(**{factor: level}).middle == pytest.approx(main[level], abs=1e-12)
    assert fitted.interval(fitted.mean()).middle == pytest.approx(7.1)
    n = len(frame)
    expected = {
        ("activation",): (1 + 0.25**2 + 0.75**2) / 3 * n,
        ("initialisation",): 0.5 / 3 * n,
        ("optimiser",): 4 * n,
        ("activation", "optimiser"): 0.09 * 2 / 3 * n,
        ("seed",): 0.01 * 2 / 3 * n,
    }
    assert {term: value for term, value in fitted.squares.items() if value > 1e-9} == pytest.approx(expected)
    assert sum(fitted.shares().values()) == pytest.approx(1)


def test_two_levels_of_one_factor_are_the_paired_t_test():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame([{"a": a, "seed": seed, "y": rng.normal()} for a in "pq" for seed in range(6)])
    fitted = factorial.fit(frame, ["a"], "y")
    found = fitted.interval(fitted.mean(a="p") - fitted.mean(a="q"))
    test = stats.ttest_rel(*(frame[frame["a"] == level]["y"] for level in "pq"))
    limits = test.confidence_interval()
    assert (found.low, found.high) == pytest.approx((limits.low, limits.high))


def test_one_seed_leaves_higher_interactions_to_the_residual():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(list(product("abc", "def", "ghi", "jkl")), columns=list("stuv")).assign(seed=0, y=rng.normal(size=81))
    fitted = factorial.fit(frame, list("stuv"), "y")
    assert (fitted.order, fitted.residual_df, len(fitted.columns)) == (2, 81 - 1 - 4 * 2 - 6 * 4, 10)
    assert sum(fitted.squares.values()) == pytest.approx(80 * frame["y"].var())


def test_a_design_that_is_not_balanced_is_refused():
    whole = by_hand()
    for broken in (whole.iloc[1:], pd.concat([whole, whole.iloc[:1]])):
        with pytest.raises(ConfigurationError, match="not balanced"):
            factorial.fit(broken, ["a", "b"], "y")
    with pytest.raises(ConfigurationError, match="not finite"):
        factorial.fit(whole.assign(y=np.inf), ["a", "b"], "y")
    with pytest.raises(ConfigurationError, match="two levels"):
        factorial.fit(whole[whole["a"] == "a1"], ["a"], "y")
    with pytest.raises(ConfigurationError, match="no level"):
        factorial.fit(whole, ["a", "b"], "y").mean(a="a3")
