from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from gelu_study import statistics
from gelu_study.errors import ConfigurationError
from gelu_study.statistics import CONTRADICTED, EQUIVALENT, NOT_RUN, REPRODUCED, UNRESOLVED

pairs = st.integers(3, 8).flatmap(lambda n: st.tuples(*[st.lists(st.floats(1e-4, 1e2), min_size=n, max_size=n)] * 2))


def make_table(loss: dict[tuple[str, float, float], list[float]]) -> pd.DataFrame:
    """Synthetic runs: {(activation, keep probability, learning rate): final training loss of seeds 0, 1, ...}.

    The validation loss is the same; infinity stands for a diverged run.
    """
    rows: list[dict[str, Any]] = []
    for (activation, keep, rate), values in loss.items():
        for seed, value in enumerate(values):
            diverged = math.isinf(value)
            rows.append(
                {
                    "experiment": "mnist-classifier",
                    "dataset": "mnist",
                    "epochs": 50,
                    "activation": activation,
                    "seed": seed,
                    "learning_rate": rate,
                    "keep_probability": keep,
                    "status": "diverged" if diverged else "finished",
                    "train_loss": math.nan if diverged else value,
                    "best_validation_loss": math.nan if diverged else value,
                    "best_test_error": math.nan if diverged else 100 * value,
                }
            )
    return pd.DataFrame(rows)


# ---- medians and intervals


def test_median_interval_agrees_with_a_loop_over_resamples() -> None:
    x = np.random.default_rng(5).lognormal(size=15)
    median, low, high = statistics.median_interval(x)
    assert median == np.median(x)
    rng = np.random.default_rng(77)
    resampled = sorted(np.median(rng.choice(x, len(x))) for _ in range(4000))
    centre = stats.norm.ppf(np.mean([(m < median) + 0.5 * (m == median) for m in resampled]))
    omitted = np.array([np.median(np.delete(x, i)) for i in range(len(x))])
    u = omitted.mean() - omitted
    a = (u**3).sum() / (6 * (u**2).sum() ** 1.5)
    for bound, z in ((low, -1.959964), (high, 1.959964)):  # BCa as in Efron & Tibshirani 1993, chapter 14
        quantile = stats.norm.cdf(centre + (centre + z) / (1 - a * (centre + z)))
        around = np.quantile(resampled, [max(0, quantile - 0.015), min(1, quantile + 0.015)])
        assert around[0] <= bound <= around[1]


def test_median_interval_of_every_resample() -> None:
    """With three values all 27 resamples can be enumerated; the interval must reach the least and the greatest."""
    x = [1.0, 2.0, 4.0]
    medians = [np.median(sample) for sample in itertools.product(x, repeat=3)]
    assert min(medians) == 1
    assert np.mean(np.equal(medians, 1.0)) > 0.025
    assert statistics.median_interval(x) == (2, 1, 4)


def test_median_interval_of_few_equal_and_infinite_values() -> None:
    median, low, high = statistics.median_interval([])
    assert all(map(math.isnan, (median, low, high)))
    median, low, high = statistics.median_interval([3.0])
    assert median == 3
    assert math.isnan(low)
    assert math.isnan(high)
    assert statistics.median_interval([2.0] * 5) == (2, 2, 2)
    assert statistics.median_interval([math.inf] * 3) == (math.inf,) * 3
    assert statistics.median_interval([1, 1, 1, 1, 2]) == (1, 1, 2)  # BCa is not defined: every value left out gives 1
    median, low, high = statistics.median_interval([1, 2, 3, 4, math.inf])
    assert (median, low, high) == (3, 1, math.inf)
    assert statistics.median_interval([-math.inf, math.inf])[0] == 0
    assert statistics.median_interval([1, math.inf])[0] == math.inf
    with pytest.raises(ConfigurationError, match="infinity"):
        statistics.median_interval([1, math.nan])


@pytest.mark.parametrize("n", [5, 20])
def test_coverage(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_RESAMPLES", 999)
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        _, low, high = statistics.median_interval(rng.normal(size=n))
        covered += low <= 0 <= high
    assert 0.86 <= covered / 200 <= 0.98


# ---- comparisons


def test_compare_against_scipy_and_brute_force() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.lognormal(-4, 0.3, 12), rng.lognormal(-3.8, 0.3, 12)
    result = statistics.compare(a, b)
    d = np.log(a / b)
    assert (result.n, result.left_out, result.test) == (12, 0, "t")
    assert result.mean == pytest.approx(d.mean())
    assert result.median == pytest.approx(np.median(d))
    assert result.p_value == pytest.approx(stats.ttest_rel(np.log(a), np.log(b)).pvalue)
    assert result.p_signed_rank == pytest.approx(stats.wilcoxon(d).pvalue)
    assert result.probability_better == np.mean(a < b)
    assert result.probability_better_all == pytest.approx(1 - stats.mannwhitneyu(a, b).statistic / 144)
    assert result.median_difference == pytest.approx(np.log(np.median(a) / np.median(b)))
    assert result.low < result.median < result.high


def test_equivalence_by_hand() -> None:
    d = np.array([0.01, 0.02, -0.01, 0.0])
    result = statistics.compare(np.exp(d), np.ones(4), margin=0.05)
    # mean 0.005, s^2 = (25 + 225 + 225 + 25)e-6 / 3, standard error sqrt(s^2 / 4) = 0.0064550
    # the nearer bound is ln 1.05 = 0.0487902
    t = (0.0487902 - 0.005) / 0.0064550
    # tail of Student's t with 3 degrees of freedom: 1/2 - (arctan(t / sqrt 3) + t sqrt 3 / (t^2 + 3)) / pi
    tail = 0.5 - (math.atan(t / math.sqrt(3)) + t * math.sqrt(3) / (t * t + 3)) / math.pi
    assert result.p_equivalent == pytest.approx(tail, rel=1e-4)
    assert result.verdict() == EQUIVALENT


def test_equivalence_is_the_90_percent_interval_within_the_margin() -> None:
    rng = np.random.default_rng(8)
    outcomes = set()
    for _ in range(60):
        d = rng.normal(0.02, 0.05, 10)
        result = statistics.compare(np.exp(d), np.ones(10))
        low, high = stats.ttest_1samp(d, 0).confidence_interval(0.9)
        inside = -math.log(1.05) < low and high < math.log(1.05)
        assert (result.p_equivalent < 0.05) == inside
        outcomes.add(inside)
    assert outcomes == {True, False}


@settings(deadline=None, max_examples=40)
@given(pairs)
def test_swapping_negates(values: tuple[list[float], list[float]]) -> None:
    one, other = statistics.compare(*values), statistics.compare(*values[::-1])
    for name in ("mean", "median", "median_difference", "shift"):
        assert getattr(one, name) == pytest.approx(-getattr(other, name), abs=1e-9)
    for name in ("probability_better", "probability_better_all"):
        assert getattr(one, name) == pytest.approx(1 - getattr(other, name))
    for name in ("p_value", "p_equivalent", "p_signed_rank"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-6)
    mirror = {REPRODUCED: CONTRADICTED, CONTRADICTED: REPRODUCED}
    assert other.verdict() == mirror.get(one.verdict(), one.verdict())


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(1e-4, 1e2), st.floats(0.5, 2)), min_size=3, max_size=8), st.integers(-20, 20))
def test_only_ratios_count(values: list[tuple[float, float]], exponent: int) -> None:
    a, ratio = map(np.array, zip(*values, strict=True))
    b, scale = a * ratio, 2.0**exponent  # a power of two scales without rounding
    one, other = statistics.compare(a, b), statistics.compare(scale * a, scale * b)
    for name in (
        "mean",
        "median",
        "low",
        "high",
        "median_difference",
        "p_value",
        "p_equivalent",
        "probability_better_all",
    ):
        assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9)
    assert one.median_a * scale == other.median_a


def test_pairs_are_made_by_seed() -> None:
    a = pd.Series([1.0, 2.0, 3.0, 9.0], index=[0, 1, 2, 7])
    b = pd.Series([6.0, 4.0, 2.0, 5.0], index=[2, 1, 0, 4])
    result = statistics.compare(a, b)
    assert (result.n, result.left_out) == (3, 2)
    assert result.mean == pytest.approx(-math.log(2))
    assert result.p_value == 0
    assert result.probability_better == 1
    assert result.probability_better_all == pytest.approx((3 + 2.5 + 2) / 9)
    assert result.verdict() == REPRODUCED


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_seeds(n: int) -> None:
    result = statistics.compare(np.full(n, 1.0), np.full(n, 2.0))
    assert result.n == n
    assert result.verdict() == (NOT_RUN if n == 0 else UNRESOLVED)
    assert math.isnan(result.p_value) == (n < 2)
    assert math.isnan(result.median) == (n == 0)
    assert math.isnan(result.low) == (n < 2)


def test_equal_differences_and_ties() -> None:
    same = statistics.compare([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (same.p_value, same.p_equivalent, same.probability_better, same.verdict()) == (1, 0, 0.5, EQUIVALENT)
    assert same.seeds_needed == math.inf
    assert same.p_signed_rank == 1
    larger = statistics.compare([1.0, 2.0, 3.0], [0.5, 1.0, 1.5])
    assert (larger.p_value, larger.p_equivalent, larger.verdict()) == (0, 1, CONTRADICTED)
    assert larger.seeds_needed == 2
    zero = statistics.compare([0.0, 0.0, 0.1], [0.0, 0.0, 0.1])
    assert zero.verdict() == EQUIVALENT


def test_divergence_counts_as_the_worst() -> None:
    inf = math.inf
    better = np.geomspace(0.01, 0.02, 20)
    result = statistics.compare(better, np.r_[inf, inf, 1.3 * better[2:] * np.linspace(1, 1.2, 18)])
    assert (result.test, result.diverged_a, result.diverged_b) == ("signed-rank", 0, 2)
    assert result.probability_better == 1
    assert math.isnan(result.mean)
    assert math.isnan(result.seeds_needed)
    assert result.verdict() == REPRODUCED
    assert math.isfinite(result.median)
    # one of twenty does not move what is typical; the count stands beside the verdict
    rare = statistics.compare(np.r_[inf, 0.99 * better[1:]], better)
    assert (rare.verdict(), rare.diverged_a, rare.probability_better) == (EQUIVALENT, 1, 0.95)
    both = statistics.compare([inf, inf, inf], [inf, inf, inf])
    assert both.probability_better == 0.5
    assert both.p_value == 1
    assert statistics.compare([inf] * 6, [1.0] * 6).verdict() == CONTRADICTED
    assert statistics.compare([inf] * 6, [1.0] * 6).median == inf
    opposite = statistics.compare([inf, 1, 1], [1, inf, 1])
    assert opposite.median == 0
    assert opposite.verdict() == UNRESOLVED


def test_signed_rank_p_of_diverged_runs_enumerates_the_signs() -> None:
    d = np.array([-0.3, 0.1, -0.2, -0.5, -0.7, math.inf, math.inf])
    ranks = stats.rankdata(np.abs(d))
    observed = ranks[d > 0].sum()
    sums = np.array([np.dot(ranks, signs) for signs in itertools.product([0, 1], repeat=len(d))])
    expected = min(1, 2 * min(np.mean(sums <= observed), np.mean(sums >= observed)))
    result = statistics.compare(np.where(np.isinf(d), math.inf, np.exp(d)), np.ones(7))
    assert result.p_value == pytest.approx(expected)


def test_signed_rank_p_with_ties_and_zeros_enumerates_the_signs() -> None:
    rng = np.random.default_rng(0)
    for n in rng.integers(2, 8, 40):
        d = rng.integers(-3, 4, n).astype(float)
        ranks, moves = stats.rankdata(np.abs(d)), d != 0
        observed = ranks[d > 0].sum()
        signs = itertools.product([0, 1], repeat=int(moves.sum()))
        sums = np.array([np.dot(ranks[moves], sign) for sign in signs])
        less, greater = np.mean(sums <= observed), np.mean(sums >= observed)
        expected = min(1, 2 * min(less, greater))
        assert statistics.compare(2.0**d, np.ones(n)).p_signed_rank == pytest.approx(expected)


def test_compare_refuses_what_it_cannot_read() -> None:
    with pytest.raises(ConfigurationError, match="diverged run as infinity"):
        statistics.compare([1.0, math.nan], [1.0, 1.0])
    with pytest.raises(ConfigurationError, match="negative"):
        statistics.compare([-1.0], [1.0])
    with pytest.raises(ConfigurationError, match="given twice"):
        statistics.compare(pd.Series([1.0, 2.0], index=[3, 3]), [1.0])
    with pytest.raises(ConfigurationError, match="margin"):
        statistics.compare([1.0], [1.0], margin=0)


# ---- power


@pytest.mark.parametrize(("mean", "spread"), [(0.5, 0.5), (0.2, 0.4), (-1.0, 0.5)])
def test_seeds_needed_by_simulation(mean: float, spread: float) -> None:
    n = int(statistics.seeds_needed(mean, spread))
    rng = np.random.default_rng(11)

    def power(size: int) -> float:
        return float(np.mean(stats.ttest_1samp(rng.normal(mean, spread, (20_000, size)), 0, axis=1).pvalue < 0.05))

    assert power(n) > 0.79
    assert power(n - 1) < 0.81


def test_seeds_needed_at_its_ends() -> None:
    assert statistics.seeds_needed(0.5, 0.5) == 10  # Cohen's d = 1 with a paired t test, as tables of power give it
    assert statistics.seeds_needed(0, 1) == math.inf
    assert math.isnan(statistics.seeds_needed(math.nan, 1))
    assert math.isnan(statistics.seeds_needed(1, math.nan))
    assert statistics.seeds_needed(1, 0) == statistics.seeds_needed(1, 1e-9) == 2
    for effect in (100, 50, 20, 10):
        assert 2 <= statistics.seeds_needed(effect, 1) <= 3
    assert statistics.seeds_needed(1e-4, 1) == pytest.approx((2.801585 / 1e-4) ** 2, rel=1e-5)


# ---- several comparisons and verdicts


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(statistics.holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(statistics.holm([0.02, math.nan, 0.9]), [0.04, math.nan, 0.9])
    np.testing.assert_allclose(statistics.holm([0.6, 0.7]), [1, 1])
    assert statistics.holm([]).shape == (0,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_as_its_definition(p: list[float]) -> None:
    rejected = set()
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[index] * (len(p) - rank) >= 0.05:
            break
        rejected.add(index)
    assert {i for i, value in enumerate(statistics.holm(p)) if value < 0.05} == rejected


@pytest.mark.parametrize(
    ("n", "p_value", "p_equivalent", "shift", "median_difference", "expected"),
    [
        (0, math.nan, math.nan, math.nan, math.nan, NOT_RUN),
        (2, 0.0, 0.0, -1.0, -1.0, UNRESOLVED),
        (5, 0.01, 0.5, -1.0, -1.0, REPRODUCED),
        (5, 0.01, 0.5, 1.0, 1.0, CONTRADICTED),
        (5, 0.01, 0.5, -1.0, 1.0, UNRESOLVED),  # better on average, but not the lower median
        (5, 0.01, 0.5, 1.0, -1.0, UNRESOLVED),
        (5, 0.05, 0.5, -1.0, -1.0, UNRESOLVED),  # the level itself is not below the level
        (5, 0.01, 0.01, -1.0, -1.0, EQUIVALENT),  # surely better, and surely by less than the margin
        (5, 0.01, 0.01, 1.0, 1.0, EQUIVALENT),
        (5, 0.5, 0.01, 0.0, 0.0, EQUIVALENT),
        (5, 0.5, 0.5, -1.0, -1.0, UNRESOLVED),
        (5, math.nan, math.nan, math.nan, -1.0, UNRESOLVED),
    ],
)
def test_verdict(n: int, p_value: float, p_equivalent: float, shift: float, median_difference: float, expected: str) -> None:
    assert statistics.verdict(n, p_value, p_equivalent, shift, median_difference) == expected


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([], NOT_RUN),
        ([NOT_RUN, NOT_RUN], NOT_RUN),
        ([REPRODUCED, NOT_RUN], UNRESOLVED),
        ([CONTRADICTED, NOT_RUN], CONTRADICTED),
        ([REPRODUCED, REPRODUCED], REPRODUCED),
        ([REPRODUCED, EQUIVALENT], EQUIVALENT),
        ([REPRODUCED, EQUIVALENT, UNRESOLVED], UNRESOLVED),
        ([REPRODUCED, EQUIVALENT, UNRESOLVED, CONTRADICTED], CONTRADICTED),
    ],
)
def test_the_weakest_link(links: list[str], expected: str) -> None:
    for order in itertools.permutations(links):
        assert statistics.combined(order) == expected


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([], NOT_RUN),
        ([NOT_RUN], NOT_RUN),
        ([EQUIVALENT, NOT_RUN], UNRESOLVED),
        ([CONTRADICTED, NOT_RUN, EQUIVALENT], CONTRADICTED),
        ([EQUIVALENT, EQUIVALENT], REPRODUCED),
        ([REPRODUCED, EQUIVALENT], REPRODUCED),
        ([REPRODUCED, EQUIVALENT, UNRESOLVED], UNRESOLVED),
    ],
)
def test_a_claim_of_a_tie_holds_where_comparisons_are_equivalent(links: list[str], expected: str) -> None:
    for order in itertools.permutations(links):
        assert statistics.combined(order, ties=True) == expected


def test_comparisons_of_one_claim_are_judged_at_holm_s_levels() -> None:
    """Three pairs of known t: alone every comparison is significant, together the least of them is not."""
    d = {"strong": [-0.5, -0.51, -0.49, -0.5], "weak": [-0.5, -0.1, -0.4, -0.3], "none": [0.01, -0.01, 0.005, 0.0]}
    compared = [statistics.compare(np.exp(values), np.ones(4)) for values in d.values()]
    p = [float(stats.ttest_1samp(values, 0).pvalue) for values in d.values()]
    assert p[0] * 3 < 0.05 and p[1] < 0.05 < p[1] * 2
    assert [item.verdict() for item in compared] == [REPRODUCED, REPRODUCED, EQUIVALENT]
    assert statistics.verdicts_together(compared) == [REPRODUCED, UNRESOLVED, EQUIVALENT]
    nothing = statistics.compare([], [])
    assert statistics.verdicts_together([nothing, compared[1]]) == [NOT_RUN, REPRODUCED]
    assert statistics.verdicts_together([]) == []


@pytest.mark.parametrize(
    ("measured", "stated", "expected"),
    [
        (0.1157, "0.1", REPRODUCED),
        (0.1501, "0.1", CONTRADICTED),
        (0.1157, "0.12", REPRODUCED),
        (0.1157, "0.11", CONTRADICTED),
        (7.4, "7", REPRODUCED),
        (math.nan, "0.1", CONTRADICTED),
    ],
)
def test_a_stated_number_is_compared_at_its_own_digits(measured: float, stated: str, expected: str) -> None:
    assert statistics.verdict_on_number(measured, stated) == expected


# ---- tables


def test_learning_rates_are_chosen_by_the_lowest_median_validation_loss() -> None:
    table = make_table(
        {
            ("relu", 1.0, 1e-3): [5.0, 1.0, 1.0],
            ("relu", 1.0, 1e-4): [2.0, 2.0, 0.0],
            ("relu", 1.0, 1e-5): [3.0, 3.0, 3.0],
            ("elu", 1.0, 1e-3): [3.0, 3.0, 3.0],
            ("elu", 1.0, 1e-4): [2.0, 9.0, 2.0],
            ("elu", 1.0, 1e-5): [3.0, 3.0, 3.0],
        }
    )
    choices = statistics.choose_learning_rates(table).set_index("activation")
    assert choices.loc["relu", "learning_rate"] == 1e-3
    assert choices.loc["relu", "at_edge"]
    assert choices.loc["elu", "learning_rate"] == 1e-4
    assert not choices.loc["elu", "at_edge"]
    assert choices.loc["elu", "median_validation_loss"] == 2
    assert choices.loc["elu", "n"] == 3
    assert statistics.chosen(table) == {("relu", 1.0): 1e-3, ("elu", 1.0): 1e-4}
    assert not statistics.choose_learning_rates(table[table["learning_rate"] == 1e-3])["at_edge"].any(), "a grid of one has no edge"
    assert set(statistics.at_choice(table)["best_validation_loss"]) == {5.0, 1.0, 2.0, 9.0}


def test_seeds_of_one_rate_alone_have_no_say_in_the_choice() -> None:
    table = make_table(
        {("relu", 1.0, 1e-3): [1.0] * 3 + [99.0] * 9, ("relu", 1.0, 1e-4): [2.0] * 3, ("relu", 1.0, 1e-5): [3.0] * 3}
    )
    assert statistics.chosen(table) == {("relu", 1.0): 1e-3}
    assert statistics.choose_learning_rates(table)["n"].tolist() == [3]


def test_no_choice_from_an_incomplete_grid() -> None:
    grid = {("relu", 1.0, rate): [1.0] * 3 for rate in (1e-3, 1e-4, 1e-5)}
    assert len(statistics.chosen(make_table({**grid, ("elu", 1.0, 1e-3): [1.0] * 3}))) == 1  # two rates of ELU absent
    grid["relu", 1.0, 1e-5] = [1.0] * 2
    assert statistics.chosen(make_table(grid)) == {}  # a seed of one rate absent
    assert statistics.chosen(make_table(grid).iloc[:0]) == {}


def test_diverged_runs_in_the_choice() -> None:
    inf = math.inf
    table = make_table({("relu", 1.0, 1e-3): [0.1, inf, inf], ("relu", 1.0, 1e-4): [1.0, 1.0, inf]})
    assert statistics.chosen(table) == {("relu", 1.0): 1e-4}
    everywhere = make_table({("relu", 1.0, 1e-3): [inf, inf], ("relu", 1.0, 1e-4): [inf, inf]})
    assert statistics.chosen(everywhere) == {("relu", 1.0): 1e-4}


def test_an_activation_that_diverges_at_every_rate_is_the_worst() -> None:
    loss = {(name, 1.0, rate): [0.1 * rate + 0.01 * s for s in range(8)] for name in ("gelu_tanh", "elu") for rate in (1e-3, 1e-4)}
    loss |= {("relu", 1.0, rate): [math.inf] * 8 for rate in (1e-3, 1e-4)}
    rows = statistics.verdicts(make_table(loss))
    against_relu = rows[(rows["rival"] == "relu") & (rows["keep_probability"] == 1)].iloc[0]
    assert (against_relu["verdict"], against_relu["n"], against_relu["measured"]) == (REPRODUCED, 8, 0)


def test_scales_are_not_mixed() -> None:
    table = make_table({("relu", 1.0, 1e-3): [1.0, 2.0]})
    table.loc[0, "epochs"] = 5
    for function in (
        statistics.choose_learning_rates,
        statistics.verdicts,
        lambda t: statistics.summary(t, ["train_loss"]),
    ):
        with pytest.raises(ConfigurationError, match="mixes runs with epochs 5, 50"):
            function(table)


def powered_table() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    typical = {
        ("gelu_tanh", 1.0): 0.010,
        ("relu", 1.0): 0.010,
        ("elu", 1.0): 0.02,
        ("gelu_tanh", 0.5): 0.05,
        ("relu", 0.5): 0.3,
    }
    loss = {}
    for (activation, keep), level in typical.items():
        for rate, factor, n in ((1e-3, 1, 20), (1e-4, 4, 5), (1e-5, 9, 5)):
            loss[activation, keep, rate] = list(level * factor * rng.lognormal(0, 0.02, n))
    return make_table(loss)


def test_verdicts_of_a_synthetic_study() -> None:
    table = statistics.verdicts(powered_table())
    assert table["comparison"].tolist() == ["GELU (tanh) vs ReLU", "GELU (tanh) vs ELU"] * 2 + [statistics.ALL]
    assert table["verdict"].tolist() == [EQUIVALENT, REPRODUCED, REPRODUCED, NOT_RUN, UNRESOLVED]
    assert table["n"].tolist()[:4] == [20, 20, 20, 0]
    assert table["measured"].iloc[1] == pytest.approx(0.5, rel=0.05)
    assert table["high"].iloc[1] < 0.55
    assert table["published"].iloc[0] == pytest.approx(0.007795 / 0.007797, rel=1e-6)
    assert table["published"].iloc[2] == pytest.approx(0.044528 / 0.345954, rel=1e-6)
    expected = [
        "claim",
        "comparison",
        "keep_probability",
        "published",
        "measured",
        "low",
        "high",
        "n",
        "probability_better",
    ]
    assert {*expected, "p_equivalent", "seeds_needed", "verdict"} <= set(table)
    without = powered_table().query("keep_probability == 1 and learning_rate == 1e-3").set_index("seed")
    gelu, relu = (without.query(f"activation == '{name}'")["train_loss"] for name in ("gelu_tanh", "relu"))
    raw = statistics.compare(gelu, relu)
    assert table["p_equivalent"].iloc[0] == pytest.approx(min(1, 3 * raw.p_equivalent))


def test_verdicts_without_a_choice_are_not_run() -> None:
    for table in (statistics.verdicts(powered_table(), choice={}), statistics.verdicts(powered_table().iloc[:0])):
        assert table["verdict"].tolist() == [NOT_RUN] * 5
        assert table["measured"].isna().all()
        assert table["published"].notna().sum() == 4


def test_comparisons_of_a_secondary_metric_have_no_verdict() -> None:
    table = statistics.comparisons(powered_table(), "best_test_error")
    assert "verdict" not in table
    assert set(table["metric"]) == {"best_test_error"}
    assert table["measured"].iloc[1] == pytest.approx(0.5, rel=0.05)


def test_summary() -> None:
    table = make_table({("relu", 1.0, 1e-3): [1.0, 2.0, math.inf], ("elu", 1.0, 1e-3): [1.0, 3.0, 5.0]})
    rows = statistics.summary(table, ["train_loss", "best_test_error"]).set_index("activation")
    assert rows.loc["relu", ["n", "diverged", "train_loss", "train_loss_high"]].tolist() == [3, 1, 2.0, math.inf]
    assert rows.loc["elu", ["best_test_error", "best_test_error_low"]].tolist() == [300.0, 100.0]


def test_false_positives_stay_below_the_level() -> None:
    """Equal activations, five seeds: a difference may be called in no more than 5 % of studies."""
    rng = np.random.default_rng(21)
    d = rng.normal(0, 0.4, (400, 4, 5))
    called = 0
    for study in d:
        p = statistics.holm([statistics._tests(row, math.log1p(0.05))[2] for row in study])
        called += bool((p < 0.05).any())
    assert called / len(d) < 0.083  # 5 % and three standard errors


def test_two_sides_that_diverged_throughout_are_no_tie():
    lost, sound = [math.inf] * 3, [1.0, 1.1, 0.9]
    all_lost, half = statistics.compare(lost, lost), statistics.compare(sound, lost)
    assert statistics.verdicts_together([all_lost]) == [statistics.UNRESOLVED]
    assert statistics.combined(statistics.verdicts_together([all_lost, all_lost]), ties=True) == statistics.UNRESOLVED
    assert half.diverged_b == 3 and statistics.verdicts_together([half]) == [half.verdict()]


def test_a_learning_rate_can_be_chosen_by_the_last_error():
    """The loss is least where training is short, the error at the end elsewhere."""
    values = {1e-3: (0.5, 9.0), 1e-4: (0.4, 11.0)}
    rows = [
        {"activation": "relu", "keep_probability": 1.0, "learning_rate": rate, "seed": seed, "status": "finished",
         "best_validation_loss": loss, "validation_error": error}
        for rate, (loss, error) in values.items() for seed in range(3)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    assert statistics.chosen(table) == {("relu", 1.0): 1e-4}
    assert statistics.chosen(table, "validation_error") == {("relu", 1.0): 1e-3}
    assert statistics.choose_learning_rates(table, "validation_error")["median_validation_error"].tolist() == [9.0]
