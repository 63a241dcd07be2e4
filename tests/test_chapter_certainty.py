"""How sure one can be: seeds and examples, against plain loops, SciPy, closed forms and simulation."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gelu_study import ledger, notebooks, pages, paths, protocols, published, statistics, study
from gelu_study.chapters import certainty
from gelu_study.chapters.certainty import examples, seeds, shown_examples, shown_seeds, summing_up, words
from gelu_study.errors import LedgerError
from gelu_study.runs import RunConfig, RunRecord

CLAIM = published.CLASSIFIER


@pytest.fixture(scope="module")
def found() -> study.Study:
    return study.run("mnist-classifier", "powered", train=False)


@pytest.fixture
def shown(monkeypatch) -> dict[str, Any]:
    """What a page shows: its texts in order, its tables and figures by name."""
    kept: dict[str, Any] = {"texts": [], "tables": {}, "figures": {}, "captions": {}}

    def table(frame: pd.DataFrame, name: str, caption: str, keys: Any) -> None:
        assert name not in kept["tables"]
        kept["tables"][name], kept["captions"][name] = frame, caption

    def figure(drawn: Any, name: str, alt: str, caption: str, keys: Any) -> None:
        assert alt and name not in kept["figures"]
        kept["figures"][name], kept["captions"][name] = drawn, caption

    monkeypatch.setattr(pages, "text", kept["texts"].append)
    monkeypatch.setattr(pages, "table", table)
    monkeypatch.setattr(pages, "figure", figure)
    return kept


def only(found: study.Study, keep: Callable[[RunRecord], bool]) -> study.Study:
    return dataclasses.replace(found, records=tuple(record for record in found.records if keep(record)))


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


# ---- the rule, many studies at once


def test_many_verdicts_at_once_are_the_rule_s_own(monkeypatch):
    monkeypatch.setattr(statistics, "_RESAMPLES", 49)  # of the interval, which no verdict uses
    rng = np.random.default_rng(4)
    seen = set()
    for size in (3, 4, 12):
        for effect, spread in ((0, 0.02), (0, 0.5), (-0.3, 0.2), (0.3, 0.2), (-0.02, 0.002)):
            rival = rng.lognormal(0, 0.3, (5, size, 4))
            subject = rival * np.exp(rng.normal(effect, spread, (5, size, 4)))
            links = seeds.verdicts_of(subject, rival)
            for one, other, found in zip(subject, rival, links, strict=True):
                compared = [statistics.compare(one[:, place], other[:, place]) for place in range(4)]
                p_value, p_equivalent = (
                    statistics.holm([getattr(c, name) for c in compared]) for name in ("p_value", "p_equivalent")
                )
                expected = [
                    statistics.verdict(c.n, p, q, c.shift, c.median_difference)
                    for c, p, q in zip(compared, p_value, p_equivalent, strict=True)
                ]
                assert [statistics.LINKS[link] for link in found] == expected
                assert statistics.LINKS[min(found)] == statistics.combined(expected)
                seen |= set(expected)
    assert seen == set(statistics.LINKS)


def test_a_study_of_one_seed_drawn_n_times_is_judged_as_the_rule_judges_equal_differences():
    rival = np.ones((3, 3, 1))
    subject = rival * np.array([0.5, 1.0, 2.0])[:, None, None]
    links = seeds.verdicts_of(subject, rival)[:, 0]
    assert [statistics.LINKS[link] for link in links] == ["reproduced", "equivalent", "contradicted"]
    assert [statistics.compare(one[:, 0], rival[0, :, 0]).verdict() for one in subject] == [
        "reproduced",
        "equivalent",
        "contradicted",
    ]


def test_the_drawn_studies_have_the_power_of_the_noncentral_t():
    rng = np.random.default_rng(2)
    d = rng.normal(0, 1, 4000)
    d = -0.8 + (d - d.mean()) / d.std()
    both = seeds.Pairs(((1.0, "relu"),), np.exp(d)[:, None], np.ones((4000, 1)))
    shares = seeds.decided(both, [5, 10, 20], 4000)
    for n in (5, 10, 20):
        assert shares.loc[n, 0] == pytest.approx(statistics.paired_power(n, 0.8, 0.05), abs=0.025)
        assert shares.loc[n, "claim"] == shares.loc[n, 0]


def test_several_comparisons_lie_between_the_two_levels_and_the_claim_is_the_weakest():
    rng = np.random.default_rng(9)
    noise = rng.normal(0, 1, (3000, 4))
    noise = (noise - noise.mean(axis=0)) / noise.std(axis=0)
    d = noise * 0.5 + np.array([-0.3, -2, -2, 0.0])
    both = seeds.Pairs(tuple((1.0, str(place)) for place in range(4)), np.exp(d), np.ones_like(d))
    shares = seeds.decided(both, [10], 3000).loc[10]
    low, high = (statistics.paired_power(10, 0.6, alpha) for alpha in (0.05 / 4, 0.05))
    assert low - 0.02 < shares[0] < high + 0.02
    assert shares[1] == shares[2] == 1
    assert shares[3] < 0.06  # no difference, hardly ever decided with this spread
    assert shares["claim"] <= min(shares[:4])


def test_drawing_does_not_understate_the_spread():
    d = np.array([-0.9, -0.1, 0.2, -0.4])
    both = seeds.Pairs(((1.0, "relu"),), np.exp(d)[:, None], np.ones((4, 1)))
    share = seeds.decided(both, [14], 20_000).loc[14, 0]
    effect = abs(d.mean())
    assert share == pytest.approx(statistics.paired_power(14, effect / d.std(ddof=1), 0.05), abs=0.04)
    assert share < statistics.paired_power(14, effect / d.std(), 0.05) - 0.07


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.1, 0.5, 0.9], 5), ([0.8, 0.9, 1], 3), ([0.1, 0.2, 0.3], math.inf), ([0.9, 0.7, 0.85], 5), ([0.9, 0.9, 0.7], math.inf)],
)
def test_the_first_number_of_seeds_from_which_on_the_power_is_reached(values, expected):
    assert seeds.first_reaching(pd.Series(values, index=[3, 4, 5])) == expected


# ---- how many seeds


def test_least_effects_by_simulation_and_a_table_of_power():
    assert seeds.least_effect(10, paired=False) == pytest.approx(1.325, abs=0.001)  # Cohen 1988: d = 1.3 to 1.4 with 10 a side
    rng = np.random.default_rng(6)
    for n in (3, 5, 20):
        x = rng.normal(seeds.least_effect(n), 1, (20_000, n))
        assert np.mean(stats.ttest_1samp(x, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.012)
        y = rng.normal(seeds.least_effect(n, paired=False), 1, (20_000, n))
        assert np.mean(stats.ttest_ind(y, rng.normal(0, 1, (20_000, n)), axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.012)


def test_least_effects_and_seeds_needed_are_inverse():
    for n in (3, 5, 10, 40):
        effect = seeds.least_effect(n)
        assert statistics.seeds_needed(effect * 1.0001, 1) == n
        assert statistics.seeds_needed(effect * 0.9999, 1) == n + 1
        ratio = seeds.least_difference(0.2, n)
        assert seeds.seeds_for(1 + 1.0001 * (ratio - 1), 0.2) == n


@pytest.mark.parametrize(("effect", "needed"), [(5.0, 3), (6.16, 3), (7.8, 3), (13.0, 2)])
def test_seeds_needed_where_scipy_s_far_tail_is_not_a_number(effect, needed):
    """With two pairs |t| > 12.7 is wanted; by simulation that happens in half of the studies at an effect of 6.16."""
    x = np.random.default_rng(0).normal(effect, 1, (20_000, 2))
    power = float(np.mean(stats.ttest_1samp(x, 0, axis=1).pvalue < 0.05))
    assert statistics.paired_power(2, effect, 0.05) == pytest.approx(power, abs=0.01)
    assert statistics.seeds_needed(effect, 1) == needed == (2 if power > 0.8 else 3)


def test_the_rule_of_thumb_is_within_a_seed():
    factor, more = seeds.thumb()
    assert (round(factor), round(more)) == (8, 2)  # (1.960 + 0.842)^2 = 7.85 and 1.960^2 / 2 = 1.92
    for effect in np.geomspace(0.05, 2, 40):
        assert abs(math.ceil(factor / effect**2 + more) - statistics.seeds_needed(effect, 1)) <= 1


def test_effect_intervals_cover_as_they_say():
    rng = np.random.default_rng(12)
    covered = 0
    for _ in range(400):
        x = rng.normal(0.7, 1, 8)
        low, high = seeds.effect_interval(float(x.mean() / x.std(ddof=1)), 8)
        covered += low <= 0.7 <= high
    assert 0.92 <= covered / 400 <= 0.98


@pytest.mark.parametrize("n", [3, 5, 20, 40])
def test_effect_intervals_at_their_ends(n):
    for effect in (0.1, 1.0, 10.0, 80.0):
        low, high = seeds.effect_interval(effect, n)
        assert low < effect < high
        assert seeds.effect_interval(-effect, n) == (-high, -low)
        t = effect * math.sqrt(n)
        significant = 2 * stats.t.sf(t, n - 1) < 0.05
        assert (low > 0) == significant  # an interval without 0 is a test
    assert seeds.effect_interval(math.inf, n) == (math.inf, math.inf)


def test_needed_by_hand():
    d = np.array([-0.5, -0.3, -0.4, -0.6, -0.2, -0.4])
    b = np.array([1.0, 1.2, 0.8, 1.1, 0.9, 1.3])
    one = seeds.needed(d, b * np.exp(d), b)
    assert (one.n, one.mean, one.deviation) == (6, pytest.approx(-0.4), pytest.approx(math.sqrt(0.02)))
    assert one.seeds == statistics.seeds_needed(-0.4, math.sqrt(0.02))
    assert one.fewest <= one.seeds <= one.most < math.inf
    assert one.correlation == pytest.approx(np.corrcoef(np.log(b) + d, np.log(b))[0, 1])
    vague = seeds.needed(np.array([-1.0, 1.1, -0.9, 1.0]), np.arange(1.0, 5), np.arange(2.0, 6))
    assert vague.most == math.inf and vague.fewest < vague.seeds


# ---- draws of a few seeds


def test_all_draws_are_enumerated_or_some_drawn_without_replacement():
    chosen, exact = seeds.draws(7, 3)
    assert exact and {tuple(row) for row in chosen} == set(itertools.combinations(range(7), 3))
    chosen, exact = seeds.draws(30, 10)
    assert not exact and chosen.shape == (seeds.ALL_DRAWS, 10)
    assert all(len(set(row)) == 10 for row in chosen[:200])
    assert np.bincount(chosen.ravel(), minlength=30) / seeds.ALL_DRAWS == pytest.approx(1 / 3, abs=0.02)


def losses(values: dict[tuple[float, str], list[float]]) -> pd.DataFrame:
    frame = pd.DataFrame(values)
    frame.columns = pd.MultiIndex.from_tuples(values, names=["keep_probability", "activation"])
    return frame


def test_who_comes_first_by_a_plain_loop_with_ties_and_a_diverged_run():
    rng = np.random.default_rng(0)
    names = (CLAIM.subject, *CLAIM.rivals)
    values = {(keep, name): list(rng.integers(1, 6, 9).astype(float)) for keep in CLAIM.keep_probabilities for name in names}
    values[(1.0, "relu")][0] = math.inf
    for size in (1, 3, 4):
        result = seeds.crowned(losses(values), size)
        combinations = list(itertools.combinations(range(9), size))
        counts: dict[tuple[float, str], int] = {}
        both = 0
        for draw in combinations:
            winners = []
            for keep in CLAIM.keep_probabilities:
                medians = {name: np.median([values[(keep, name)][seed] for seed in draw]) for name in names}
                least = [name for name in names if medians[name] == min(medians.values())]
                winners.append(least[0] if len(least) == 1 else seeds.TIE)
                counts[(keep, winners[-1])] = counts.get((keep, winners[-1]), 0) + 1
            both += winners == [CLAIM.subject] * 2
        assert result.count == len(combinations) and result.exact
        assert result.claim == pytest.approx(both / len(combinations))
        for keep in CLAIM.keep_probabilities:
            for name in (*names, seeds.TIE):
                assert result.first.loc[keep, name] == pytest.approx(counts.get((keep, name), 0) / len(combinations))


def test_activations_with_seeds_of_their_own_by_the_hypergeometric_distribution():
    rng = np.random.default_rng(3)
    names = (CLAIM.subject, *CLAIM.rivals)
    values = {
        (keep, name): list(rng.lognormal(place / 4, 0.5, 12))
        for keep in CLAIM.keep_probabilities
        for place, name in enumerate(names)
    }
    size, half = 5, 2
    result = seeds.crowned(losses(values), size)
    for keep in CLAIM.keep_probabilities:
        chances = []
        for name in names:  # the median is the j-th least if half of the others come from below it and half from above
            below = [math.comb(j, half) * math.comb(11 - j, half) / math.comb(12, size) for j in range(12)]
            assert sum(below) == pytest.approx(1)
            chances.append(list(zip(sorted(values[(keep, name)]), below, strict=True)))
        expected = sum(p * math.prod(sum(q for y, q in rival if y > x) for rival in chances[1:]) for x, p in chances[0])
        assert result.apart[keep] == pytest.approx(expected)
    assert result.claim_apart == pytest.approx(result.apart.prod())


def test_the_published_order_is_that_of_the_paper_s_last_points():
    names = (CLAIM.subject, *CLAIM.rivals)
    ordered = {keep: sorted(names, key=lambda name: published.final_value(name, keep)) for keep in CLAIM.keep_probabilities}
    values = {(keep, name): [1.0 + ordered[keep].index(name)] * 3 for keep in CLAIM.keep_probabilities for name in names}
    assert list(seeds.crowned(losses(values), 2).as_published) == [1, 1]
    swapped = {(keep, name): [4.0 - ordered[keep].index(name)] * 3 for keep in CLAIM.keep_probabilities for name in names}
    assert list(seeds.crowned(losses(swapped), 2).as_published) == [0, 0]


# ---- the spread between seeds


def test_the_spread_keeps_settings_apart_and_counts_a_diverged_run_as_infinite():
    rows = [
        {"activation": name, "learning_rate": rate, "seed": seed, "status": "finished", "train_loss": value}
        for name, rate, values in (("relu", 0.1, (1.0, 2.0, 3.0)), ("relu", 0.2, (5.0, 5.0, 5.0)), ("elu", 0.1, (1.0, 2.0)))
        for seed, value in enumerate(values)
    ]
    rows += [{**row, "activation": "gelu_tanh", "status": "diverged" if row["seed"] == 2 else "finished"} for row in rows[:3]]
    spreads = seeds.spread(pd.DataFrame(rows), "train_loss").set_index(["activation", "learning_rate"])
    assert list(spreads.index) == [("relu", 0.1), ("relu", 0.2), ("gelu_tanh", 0.1)]  # two seeds tell nothing
    assert spreads.loc[("relu", 0.1), "relative"] == pytest.approx(0.5)
    assert spreads.loc[("relu", 0.2), "relative"] == 0
    assert math.isnan(spreads.loc[("gelu_tanh", 0.1), "relative"])
    assert spreads.loc[("gelu_tanh", 0.1), "greatest"] == math.inf


def test_labels_name_what_differs():
    spreads = pd.DataFrame(
        {
            "activation": ["relu"] * 4,
            "learning_rate": [1e-3, 1e-3, 1e-5, 1e-3],
            "optimiser": ["adam", "adam", "adam", "sgd"],
            "train_examples": [55_000, 60_000, 55_000, 55_000],
            "epochs": [50] * 4,
        }
    )
    assert shown_seeds.labels(spreads) == ["rate 0.001", "rate 0.001, 60,000 train examples", "rate 0.00001", "rate 0.001, sgd"]


def test_many_settings_are_shown_by_activation():
    rows = [
        {"activation": name, "learning_rate": rate, "seed": seed, "status": "finished", "train_loss": 1.0 + seed * rate}
        for name in ("relu", "elu")
        for rate in np.linspace(0.01, 0.1, 8)
        for seed in range(3)
    ]
    table = shown_seeds.spread_rows(seeds.spread(pd.DataFrame(rows), "train_loss"))
    assert list(table["settings"]) == ["8", "8"]
    assert plain(table["greatest"].iloc[0]) == f"{100 * 0.1 / 1.1:.0f} %"  # 1, 1.1, 1.2


# ---- test sets


def test_standard_error_of_the_paper_s_kind_of_error():
    assert 100 * examples.standard_error(0.023, 10_000) == pytest.approx(0.15, abs=0.001)
    rng = np.random.default_rng(1)
    assert examples.standard_error(0.1, 400) == pytest.approx(rng.binomial(400, 0.1, 20_000).std() / 400, rel=0.03)


def test_bounds_of_a_difference_s_error_by_simulation():
    rng = np.random.default_rng(5)
    n, one, other = 2000, 0.08, 0.10
    least, greatest = examples.difference_bounds(one, other, n)
    u = rng.random((3000, n))
    nested = (u < one).mean(axis=1) - (u < other).mean(axis=1)
    apart = (u < one).mean(axis=1) - ((u >= one) & (u < one + other)).mean(axis=1)
    assert least == pytest.approx(nested.std(), rel=0.05)
    assert greatest == pytest.approx(apart.std(), rel=0.05)
    independent = math.sqrt((one * (1 - one) + other * (1 - other)) / n)
    assert least < independent < greatest


@pytest.mark.parametrize(("one", "other"), [(0.0789, 0.0816), (0.2074, 0.2298), (0.02, 0.03)])
def test_how_many_may_disagree_is_where_mcnemar_s_test_turns(one, other):
    n = 10_000
    limit = examples.most_disagreement(other - one, n)
    for share, significant in ((0.8 * limit, True), (1.25 * limit, False)):
        disagree, surplus = share * n, (other - one) * n
        if surplus > disagree:
            continue
        better, worse = round((disagree - surplus) / 2), round((disagree + surplus) / 2)
        assert (stats.binomtest(better, better + worse).pvalue < 0.05) == significant
    fewest, most = examples.examples_needed(one, other)
    assert examples.most_disagreement(other - one, fewest) == pytest.approx(other - one)
    assert examples.most_disagreement(other - one, most) == pytest.approx(one + other)


def test_the_paper_s_differences_are_its_own_and_invent_no_test_set():
    differences = examples.published_differences().set_index(["name", "rival"])
    assert differences.loc[("CIFAR-10", "ReLU"), "difference"] == pytest.approx(0.27)
    assert differences.loc[("CIFAR-100", "ELU"), "difference"] == pytest.approx(2.24)
    assert differences.loc[("Twitter", "ELU"), "difference"] == pytest.approx(0.34)
    assert differences.loc[("TIMIT", "ReLU"), "difference"] == pytest.approx(0.2)
    assert list(differences["runs"]) == [3] * 4 + [5] * 4
    assert differences.loc[("CIFAR-10", "ReLU"), "one"] == pytest.approx(math.sqrt(7.89 * (100 - 7.89) / 10_000))
    known = differences["examples"].notna()
    assert set(differences[known].index.get_level_values("name")) == {"CIFAR-10", "CIFAR-100"}
    assert differences.loc[~known, ["one", "least", "greatest", "disagreement"]].isna().all().all()
    for row in differences.itertuples():
        assert row.difference / row.quiet == pytest.approx(seeds.least_effect(row.runs, paired=False))


# ---- mistakes


def noisy(activation: str, seed: int, wrong: list[int], *, status: str = "finished", error: float | None = None) -> RunRecord:
    """A record of the noise experiment with what is asked of it."""
    config = next(c for c in protocols.plan("mnist-noise", "paper", seeds=[seed]) if c.activation == activation)
    if status == "diverged":
        return RunRecord(config, "diverged", {"step": 3, "epoch": 1})
    error = len(wrong) / 100 if error is None else error
    return RunRecord(config, status, curves={"test_wrong": [float(place) for place in wrong]}, final={"test_error": error})


def test_mistakes_are_read_by_seed_and_checked():
    records = [
        noisy("relu", 4, [1, 5]),
        noisy("relu", 1, [9_999]),
        noisy("elu", 1, [2]),
        noisy("relu", 3, [], status="diverged"),
        dataclasses.replace(noisy("relu", 2, []), curves={}),
    ]
    found, wrong = examples.mistakes(records, "relu", 10_000)
    assert found == [1, 4]
    assert [list(np.flatnonzero(row)) for row in wrong] == [[9_999], [1, 5]]
    assert examples.mistakes(records, "gelu_tanh", 10_000)[1].shape == (0, 10_000)
    common, one, other = examples.paired_mistakes(records, "elu", "relu", 10_000)
    assert common == [1] and list(np.flatnonzero(one)) == [2] and list(np.flatnonzero(other)) == [9_999]
    for bad, said in (
        ([noisy("relu", 0, [10_000])], "outside"),
        ([noisy("relu", 0, [7, 7])], "does not go with"),
        ([noisy("relu", 0, [7], error=0.5)], "does not go with"),
        ([noisy("relu", 0, [7]), noisy("relu", 0, [8])], "twice"),
    ):
        with pytest.raises(LedgerError, match=said):
            examples.mistakes(bad, "relu", 10_000)


def test_mcnemar_by_hand():
    one, other = (np.zeros(50, dtype=bool) for _ in range(2))
    one[:10] = True  # wrong on 0 to 9
    other[8:10], other[20] = True, True  # shares two of these, and one of its own
    found = examples.mcnemar(one, other)
    assert (found.only_one, found.only_other) == (8, 1)
    assert found.p_value == pytest.approx(2 * (1 + 9) / 2**9)  # 0 or 1 of 9, on either side
    assert examples.mcnemar(one, one) == examples.McNemar(0, 0, 1.0)


def test_components_against_other_roads_to_the_same_errors():
    rng = np.random.default_rng(8)
    one, other = rng.random((6, 400)) < 0.1, rng.random((6, 400)) < 0.12
    d = one.astype(int) - other.astype(int)
    found = examples.components(d)
    assert found.mean == pytest.approx(one.mean() - other.mean())
    paired = stats.ttest_rel(one.mean(axis=1), other.mean(axis=1))
    assert found.mean / found.same_examples == pytest.approx(paired.statistic)
    low, high = found.interval(found.same_examples, over_seeds=True)
    assert (low, high) == pytest.approx(tuple(paired.confidence_interval()))
    assert found.same_networks == pytest.approx(stats.sem(d.mean(axis=0)))
    grand, rows, columns = d.mean(), d.mean(axis=1, keepdims=True), d.mean(axis=0, keepdims=True)
    assert found.rest == pytest.approx(((d - rows - columns + grand) ** 2).sum() / (5 * 399))


def test_components_are_unbiased_and_the_errors_are_those_of_new_draws():
    """Draw seeds, images and the rest anew many times: the means' spread is what `anew` estimates."""
    rng = np.random.default_rng(7)
    s, n, a, b, c = 8, 60, 0.3, 0.5, 1.0
    estimates, means = [], []
    for _ in range(1500):
        d = rng.normal(0, a, (s, 1)) + rng.normal(0, b, (1, n)) + rng.normal(0, c, (s, n))
        estimates.append(examples.components(d))
        means.append(d.mean())
    for name, variance in (("seed", a * a), ("example", b * b), ("rest", c * c)):
        assert np.mean([getattr(one, name) for one in estimates]) == pytest.approx(variance, rel=0.06)
    truth = math.sqrt(a * a / s + b * b / n + c * c / (s * n))
    assert np.std(means) == pytest.approx(truth, rel=0.05)
    assert math.sqrt(np.mean([one.anew**2 for one in estimates])) == pytest.approx(truth, rel=0.05)
    covered = [low <= 0 <= high for low, high in (one.interval(one.anew, over_seeds=True) for one in estimates)]
    assert 0.93 <= np.mean(covered) <= 0.98


def test_a_statement_on_these_images_and_one_on_new_images_are_different():
    """Networks that are all alike: seeds add nothing, and the images all there is."""
    one, other = np.zeros((5, 1000), dtype=int), np.zeros((5, 1000), dtype=int)
    other[:, :20] = 1
    found = examples.components(one - other)
    assert found.same_examples == pytest.approx(0) and found.floor > 0
    least, _ = examples.difference_bounds(0.0, 0.02, 999)
    assert found.same_networks == pytest.approx(least) == pytest.approx(found.anew)


def test_the_bootstrap_of_both_has_its_closed_form():
    rng = np.random.default_rng(10)
    d = rng.normal(0, 0.3, (7, 1)) + rng.normal(0, 1, (1, 50)) + rng.normal(0, 2, (7, 50))
    rows, columns = d.mean(axis=1, keepdims=True) - d.mean(), d.mean(axis=0, keepdims=True) - d.mean()
    rest = d - rows - columns - d.mean()
    expected = math.sqrt((rows**2).mean() / 7 + (columns**2).mean() / 50 + (rest**2).mean() / 350)
    assert examples.bootstrap_error(d, 4000) == pytest.approx(expected, rel=0.05)
    assert examples.bootstrap_error(d) == examples.bootstrap_error(d)


# ---- words


@pytest.mark.parametrize(
    ("share", "said"), [(0, "0 %"), (1, "100 %"), (0.001, "under 1 %"), (0.999, "over 99 %"), (0.123, "12 %"), (math.nan, "–")]
)
def test_a_share_says_all_or_nothing_only_where_it_is(share, said):
    assert plain(words.percent(share)) == said


@pytest.mark.parametrize(
    ("at_five", "said"),
    [
        ([1, 1, 1, 1], "decides all of the 4 comparisons of the paper's claim, with a probability of 80 % or more.**"),
        (
            [0.1, 1, 1, 1],
            "decides 3 of the 4 comparisons of the paper's claim, with a probability of 80 % or more; against ReLU without dropout it takes about 6.**",
        ),
        ([0.1, 0.2, 0.1, 0.1], "decides none of the 4"),
        (
            [0.1, -0.2, 1, 1],
            "against ReLU without dropout it takes about 6 and against ELU without dropout it takes more than 6.**",
        ),
    ],
)
def test_the_headline_says_what_the_shares_say(at_five, said):
    cells = tuple((keep, rival) for keep in CLAIM.keep_probabilities for rival in CLAIM.rivals)
    both = seeds.Pairs(cells, np.ones((5, 4)), np.ones((5, 4)))
    later = [0.9 if share >= 0 else 0.3 for share in at_five]
    shares = pd.DataFrame(
        [np.zeros(5), np.zeros(5), [*map(abs, at_five), 0], [*later, 0]], index=[3, 4, 5, 6], columns=[0, 1, 2, 3, "claim"]
    )
    assert said in plain(summing_up.headline(both, shares))


def test_what_the_test_set_says_of_published_differences():
    rows = examples.published_differences()
    said = summing_up.published_sentence(rows)
    assert "states 8 differences in test error; for 4 of them" in said and "nobody can say until they are run" in said
    assert "within what chance" not in said  # no count of none
    lost = rows.assign(least=10.0, greatest=20.0)
    assert "4 are within what chance among test images explains" in summing_up.published_sentence(lost)
    assert sum("within chance among test images, whatever" in line for line in shown_examples.published_lines(lost)) == 4
    lines = shown_examples.published_lines(rows)
    assert len(lines) == 5 and "Twitter and TIMIT" in lines[-1] and "3,800 (Twitter, ReLU)" in lines[-1]
    assert "only if fewer than 1.9 % of them" in lines[0]


# ---- the page, from the repository's records and from less


def show_all(one: study.Study, others: dict[str, study.Study]) -> None:
    pages.progress(one)
    certainty.answer(one, 200, 12)
    certainty.spread_tables(others)
    certainty.power(one, 200, 12)
    certainty.needs(one)
    certainty.rankings(one, [3, 5])
    certainty.two_sources(one)
    certainty.published_differences()
    certainty.seeds_and_images(others.get(certainty.NOISE))
    certainty.take_home(one, [5.0, 20.0])


def test_the_page_s_numbers_are_those_of_the_records(found, shown):
    show_all(found, {"mnist-classifier": found})
    table = statistics.at_choice(found.table, found.chosen)
    without = table[table["keep_probability"] == 1].pivot(index="seed", columns="activation", values="train_loss")
    draws = list(itertools.combinations(range(len(without)), 3))
    medians = [without.iloc[list(draw)].median() for draw in draws[::7]]
    share = np.mean([one["gelu_tanh"] == one.min() for one in medians])
    exact = seeds.crowned(seeds.losses(found, "train_loss"), 3).first.loc[1.0, "gelu_tanh"]
    assert exact == pytest.approx(share, abs=0.08)
    row = shown["tables"]["how-sure-draws-table"].iloc[0]
    assert (row["by"], row["seeds"]) == ("loss", "3")
    assert row["not first, no dropout"] == words.percent(1 - exact)
    need = shown["tables"]["how-sure-needs"].iloc[0]
    verdicts = statistics.verdicts(found.table, choice=found.chosen)
    assert f">{verdicts['seeds_needed'].iloc[0]:.0f} <" in need["seeds [95 %]"]
    ours = shown["tables"]["how-sure-mnist-classifier-train-loss"]
    gelu = without["gelu_tanh"]
    assert plain(ours.iloc[0]["spread"]) == f"{100 * gelu.std() / gelu.mean():.0f} %"
    assert set(shown["figures"]) == {"how-sure-power", "how-sure-draws", "how-sure-published"}
    assert any("Not run yet" in text and "mnist-noise" in text for text in shown["texts"])
    for name in ("how-sure-power", "how-sure-draws", "how-sure-two-sources"):
        assert "scale: powered; device: cpu; date: 2026" in shown["captions"][name]


def test_the_figures_draw_what_was_calculated(found):
    both = words.found_pairs(found)
    shares = seeds.decided(both, range(3, 8), 100)
    drawn = shown_seeds.power_figure(both, shares)
    lines = {line.get_gid(): line for ax in drawn.axes for line in ax.lines if line.get_gid()}
    assert len(lines) == 5
    for place, (keep, rival) in enumerate(both.cells):
        np.testing.assert_array_equal(lines[f"{rival} {keep:g}"].get_ydata(), shares[place])
    results = {metric: [seeds.crowned(seeds.losses(found, metric), 3)] for metric in words.MEASURES}
    for ax in shown_seeds.rankings_figure(results).axes:
        widths: dict[float, float] = {}
        for bar in ax.patches:
            widths[round(bar.get_y(), 3)] = widths.get(round(bar.get_y(), 3), 0) + bar.get_width()
        assert list(widths.values()) == pytest.approx([1, 1, 1])


def test_without_records_the_page_says_so(tmp_path, shown):
    nothing = study.run("mnist-classifier", "powered", train=False, ledger=tmp_path)
    assert certainty.studies("powered", tmp_path) == {}
    show_all(nothing, {})
    said = "\n".join(shown["texts"])
    assert "No answer on seeds yet" in said and "None of the" in said and "No experiment has a record" in said
    assert set(shown["figures"]) == {"how-sure-published"}
    assert "nan" not in said


def test_with_half_of_the_seeds_the_page_goes_by_those(found, shown):
    half = only(found, lambda record: record.config.seed < 4)
    show_all(half, {"mnist-classifier": half})
    said = "\n".join(shown["texts"])
    assert f"{len(half.records)} of {len(found.planned)} runs have a record" in said
    assert "Of all 4 draws of 3 of our 4 seeds" in said
    assert list(shown["tables"]["how-sure-draws-table"]["seeds"]) == ["3", "3"]  # five of four cannot be drawn
    assert "nan" not in said


def test_with_two_seeds_there_is_no_calculation(found, shown):
    few = only(found, lambda record: record.config.seed < 2)
    show_all(few, {"mnist-classifier": few})
    said = "\n".join(shown["texts"])
    assert "Seeds that have all runs of the claim: 2" in said and "no setting has 3 seeds yet" in said
    assert "how-sure-power" not in shown["figures"] and "how-sure-draws" not in shown["figures"]


def test_with_a_diverged_run_ranks_are_shown_and_power_is_not(found, shown):
    def lost(record: RunRecord) -> RunRecord:
        config = record.config
        if (config.activation, config.keep_probability, config.learning_rate, config.seed) != ("relu", 1.0, 1e-3, 7):
            return record
        return RunRecord(config, "diverged", {"step": 9, "epoch": 1}, environment=record.environment)

    one = dataclasses.replace(found, records=tuple(map(lost, found.records)))
    show_all(one, {"mnist-classifier": one})
    assert any("signed-rank" in text for text in shown["texts"])
    assert "how-sure-power" not in shown["figures"] and "how-sure-draws" in shown["figures"]


def test_an_experiment_that_only_uses_another_s_records_is_not_shown_as_run(found, tmp_path):
    book = ledger.Ledger(tmp_path)
    shared = {config.key for config in protocols.plan("mnist-departures", "powered")}
    for record in found.records:
        if record.config.key in shared and record.config.seed == 0:
            book.write(record)
    assert study.run("mnist-departures", "powered", train=False, ledger=tmp_path).records
    assert set(certainty.studies("powered", tmp_path)) == {"mnist-classifier"}


# ---- seeds and images


def mistaken_study(count: int, shift: float) -> study.Study:
    """Synthetic records: hard images are hard for all, and GELU's networks err on fewer by `shift`."""
    rng = np.random.default_rng(1)
    hard = rng.normal(0, 1, 10_000)
    planned: list[RunConfig] = protocols.plan("mnist-noise", "paper", seeds=range(count))
    records = []
    for config in planned:
        level = -2.6 - (shift if config.activation == CLAIM.subject else 0) + rng.normal(0, 0.02)
        wrong = np.flatnonzero(level + hard + rng.normal(0, 0.5, 10_000) > 0)
        records.append(noisy(config.activation, config.seed, list(map(int, wrong))))
    return study.Study("mnist-noise", "paper", tuple(planned), tuple(records), {}, False)


def test_seeds_and_images_of_synthetic_records(shown):
    certainty.seeds_and_images(mistaken_study(4, 0.3))
    table = shown["tables"]["how-sure-mcnemar"]
    assert list(table["GELU vs"]) == ["ReLU", "ELU"] and list(table["seeds"]) == ["4", "4"]
    assert list(table["GELU better"]) == ["4", "4"] and list(table["rival better"]) == ["0", "0"]
    lines = shown["texts"][-1].splitlines()
    assert len(lines) == 4 and all("(without 0)" in line for line in lines[1::2])
    drawn = {line.get_gid() for ax in shown["figures"]["how-sure-both"].axes for line in ax.lines}
    assert {f"{rival} {name}" for rival in CLAIM.rivals for name, _, _ in shown_examples.STATEMENTS} <= drawn
    shares = re.findall(r"([\d.]+) % of the images .* would be ([\d.]+) %", shown["texts"][-1])
    assert all(float(disagree) < float(possible) for disagree, possible in shares) and len(shares) == 2


def test_seeds_and_images_without_a_difference_and_with_few_records(shown):
    certainty.seeds_and_images(mistaken_study(4, 0.0))
    assert "(with 0)" in shown["texts"][-1] and "without 0" not in shown["texts"][-1]
    for name in ("tables", "figures"):
        shown[name].clear()
    one = mistaken_study(1, 0.3)
    certainty.seeds_and_images(one)
    assert any("One seed alone" in text for text in shown["texts"]) and not shown["figures"]
    shown["tables"].clear()
    certainty.seeds_and_images(dataclasses.replace(one, records=one.records[:1]))
    assert "No two networks of one seed" in shown["texts"][-1]


def test_the_notebook_runs_on_an_empty_ledger(tmp_path):
    output = notebooks.execute(
        paths.NOTEBOOKS / "how-sure.ipynb", tmp_path / "page.ipynb", {"ledger": str(tmp_path / "none"), "most_seeds": 5}
    )
    assert "No answer on seeds yet" in output.read_text(encoding="utf-8")
