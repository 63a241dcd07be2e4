"""What peeking buys: scores against plain loops, the selection effect against simulation and SciPy, and sentences that are right."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from gelu_study import pages, paths, protocols, study
from gelu_study.chapters import luck, peeking, scoring
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

EPOCHS = 50


def made_up(config: RunConfig, level: float, rng: np.random.Generator, *, diverged: bool = False) -> RunRecord:
    """A record with noisy errors (multiples of 0.01 %) about a level; validation loss is least in the middle of training."""
    environment = {"device": "cpu", "started": "2026-01-01T10:00:00+00:00"}
    if diverged:
        return RunRecord(config, "diverged", {"step": 1, "epoch": 1}, {}, {}, {}, environment)
    thirds = np.arange(1, 3 * EPOCHS + 1) / 3
    errors = level * (1 + 3 / thirds)
    curves = {
        "train_loss": (errors / 100).tolist(),
        "train_loss_smoothed": (errors / 100).tolist(),
        "train_loss_epoch": (errors / 100)[2::3].tolist(),
        "validation_loss": (0.05 + 1e-4 * (thirds - 20) ** 2 + rng.uniform(0, 0.01, len(thirds)) + level / 100).tolist(),
        "validation_error": np.round(errors + rng.normal(0, 0.1, len(thirds)), 2).tolist(),
        "test_loss": (errors / 100)[2::3].tolist(),
        "test_error": np.round(errors[2::3] + rng.normal(0, 0.1, EPOCHS), 2).tolist(),
    }
    final = dict.fromkeys([*config.measures, "train_loss_full", "train_error_full"], level)
    best = dict.fromkeys([*config.measures, "epoch", "step"], level)
    return RunRecord(config, "finished", None, curves, final, best, environment)


def synthetic(seeds: int = 5, diverged: tuple[int, ...] = (), level: dict[str, float] | None = None) -> Study:
    """The paper's grid; the greatest learning rate is best, and of ReLU the seeds in `diverged` diverge at it."""
    level = level or {"gelu_tanh": 2.0, "relu": 2.1, "elu": 2.05}
    records = []
    configs = protocols.plan("mnist-classifier", "paper", seeds=range(seeds))
    for config in configs:
        rng = np.random.default_rng(
            [config.seed, len(config.activation), round(1e6 * config.learning_rate), int(2 * config.keep_probability)]
        )
        worse = {1e-3: 1, 1e-4: 1.5, 1e-5: 2}[config.learning_rate] * (1 if config.keep_probability == 1 else 1.4)
        fails = config.activation == "relu" and config.learning_rate == 1e-3 and config.seed in diverged
        records.append(made_up(config, worse * level[config.activation], rng, diverged=fails))
    return Study("mnist-classifier", "paper", tuple(configs), tuple(records), {}, False)


def plain(records: list[RunRecord], activation: str, keep: float, way: scoring.Way) -> float:
    """A way of scoring as a loop, without best of seeds: choose the rate, then the median over its runs."""

    def errors(record: RunRecord) -> tuple[float, float]:
        test, ends = (
            record.curves["test_error"],
            {name: record.curves[name][2::3] for name in ("validation_loss", "validation_error")},
        )
        if way.epoch == "last":
            epoch = len(test) - 1
        else:
            curve = test if way.epoch == "test_error" else ends[way.epoch]
            epoch = curve.index(min(curve))
        judged = test[epoch] if way.setting == "test_error" else min(ends[way.setting])
        return judged, test[epoch]

    by_rate: dict[float, list[tuple[float, float]]] = {}
    for record in records:
        if (record.config.activation, record.config.keep_probability) == (activation, keep):
            by_rate.setdefault(record.config.learning_rate, []).append(errors(record))
    best = min(sorted(by_rate), key=lambda rate: float(np.median([judged for judged, _ in by_rate[rate]])))
    return float(np.median([test for _, test in by_rate[best]]))


@pytest.fixture(scope="module")
def recorded() -> Study:
    return study.run("mnist-classifier", "powered", train=False)


@pytest.mark.parametrize("keep", [1.0, 0.5])
def test_every_way_is_what_a_plain_loop_gives(keep):
    found = synthetic()
    scores = scoring.score(scoring.per_run(found.records), keep, draws=9)
    assert scores is not None
    assert scores.names == ("gelu_tanh", "relu", "elu")
    for way in scoring.WAYS:
        if not way.best_of_seeds:
            for name, errors in zip(scores.names, scores.errors[way], strict=True):
                assert errors[0] == pytest.approx(plain(list(found.records), name, keep, way)), way.name
    assert (scores.gains(scoring.TEST_EPOCH)[:, 0] >= 0).all()  # nothing is lower than the least of each run
    assert [way.name for way in scoring.WAYS if way.honest] == ["validation loss", "validation error", "last epoch"]


def test_test_data_may_choose_another_rate_and_another_dropout():
    """Validation loss prefers one rate and test error another: only the ways that look at it take the other."""
    configs = protocols.plan("mnist-classifier", "paper", activations=["relu"], learning_rates=[1e-3, 1e-4])
    records = []
    for config in configs:
        record = made_up(config, 2.0, np.random.default_rng(config.seed))
        low = config.learning_rate == 1e-4 and config.keep_probability == 0.5
        record.curves["validation_loss"] = [0.1 if config.learning_rate == 1e-3 else 0.2] * 150
        record.curves["test_error"] = [1.5 if low else 2.0] * 50
        records.append(record)
    runs = scoring.per_run(records)
    fixed, free = scoring.score(runs, 0.5, draws=9), scoring.score(runs, draws=9)
    assert fixed is not None
    assert free is not None
    for scores in (fixed, free):
        assert scores.choices[scoring.HONEST][0][1] == 1e-3
        assert scores.choices[scoring.TEST_RATE] == ((0.5, 1e-4),)
        assert scores.gains(scoring.TEST_RATE)[0, 0] == 0.5
        assert scores.gains(scoring.TEST_EPOCH)[0, 0] == 0
    said = "\n".join(
        peeking.answer_lines(peeking.scored(Study("mnist-classifier", "paper", tuple(configs), tuple(records), {}, False), draws=9))
    )
    assert "Choosing the setting on test data changes it for ReLU, which makes it 0.50 points lower." in said
    assert "With the dropout chosen too" in said


def test_only_the_grid_s_seeds_choose_and_all_seeds_are_scored(recorded):
    scores = scoring.score(scoring.per_run(recorded.records), 1.0, draws=99)
    assert scores is not None
    rates = recorded.table.groupby("seed")["learning_rate"].nunique()
    assert scores.choosing_seeds == tuple(rates.index[rates == 3])
    assert len(scores.seeds) == recorded.table["seed"].nunique()
    for name, (keep, rate), error in zip(scores.names, scores.choices[scoring.HONEST], scores.errors[scoring.HONEST], strict=True):
        assert rate == recorded.chosen[name, keep]
        cell = recorded.table.query("activation == @name and keep_probability == @keep and learning_rate == @rate")
        assert error[0] == pytest.approx(cell["best_test_error"].median())
        assert scores.errors[scoring.LAST_EPOCH][scores.names.index(name)][0] == pytest.approx(cell["test_error"].median())


def test_bootstrap_draws_every_resample_in_its_share():
    """With three seeds all 27 resamples of a median can be enumerated."""
    configs = protocols.plan(
        "mnist-classifier", "paper", seeds=range(3), activations=["relu"], keep_probabilities=[1.0], learning_rates=[1e-3]
    )
    records = []
    for config, level in zip(configs, (1.0, 2.0, 4.0), strict=True):
        record = made_up(config, 1.0, np.random.default_rng(0))
        record.curves["test_error"] = [level] * 50
        records.append(record)
    scores = scoring.score(scoring.per_run(records), 1.0, draws=20_000)
    assert scores is not None
    drawn = scores.errors[scoring.HONEST][0, 1:]
    medians = [float(np.median(sample)) for sample in itertools.product((1.0, 2.0, 4.0), repeat=3)]
    for level in (1.0, 2.0, 4.0):
        assert np.mean(drawn == level) == pytest.approx(medians.count(level) / 27, abs=0.015)
    assert scoring.interval(scores.errors[scoring.HONEST][0]) == (2.0, 1.0, 4.0)


def test_draws_are_shared_by_all_activations():
    """Activations that differ by a constant stand in the same order in every draw, however the seeds differ."""
    found = synthetic(level={"gelu_tanh": 2.0, "relu": 2.0, "elu": 2.0})
    for record in found.records:
        shift = {"gelu_tanh": 0.0, "relu": 0.25, "elu": 0.5}[record.config.activation]
        record.curves["test_error"] = [1.0 + record.config.seed + shift + 10 * (record.config.learning_rate < 1e-3)] * 50
    scores = scoring.score(scoring.per_run(found.records), 1.0, draws=500)
    assert scores is not None
    assert np.ptp(scores.errors[scoring.HONEST][0]) > 1
    assert scores.ranking(scoring.HONEST) == [["gelu_tanh"], ["relu"], ["elu"]]
    assert scores.unstable().sum() == 0
    np.testing.assert_allclose(scores.gaps(scoring.HONEST)[1], 0.25)


def test_a_ranking_is_turned_where_two_change_sides_and_not_where_they_tie():
    errors = {
        scoring.HONEST: np.array([[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 1.0]]),
        scoring.TEST_EPOCH: np.array([[1.0, 3.0, 2.0, 1.0], [2.0, 2.0, 2.0, 5.0]]),
    }
    scores = scoring.Scores(("a", "b"), tuple(errors), errors, {}, (0,), (0,), ())
    assert scores.reversed(scoring.TEST_EPOCH).tolist() == [0, 1, 0, 0]
    assert scores.unstable(scoring.TEST_EPOCH).tolist() == [0, 1, 0, 0]
    assert scores.ranking(scoring.TEST_EPOCH) == [["a"], ["b"]]


def test_diverged_runs_are_the_worst_and_the_medians_stay_defined():
    one, most = (scoring.score(scoring.per_run(synthetic(diverged=lost).records), 1.0, draws=99) for lost in ((1,), (0, 1, 2)))
    assert one is not None
    assert most is not None
    assert math.isfinite(one.errors[scoring.HONEST][1, 0])
    assert one.choices[scoring.HONEST][1] == (1.0, 1e-3)
    assert most.choices[scoring.HONEST][1] == (1.0, 1e-4)  # the median at 1e-3 is infinite
    assert not np.isnan(most.errors[scoring.ALL_PEEKS]).any()
    every = scoring.score(scoring.per_run(synthetic(diverged=(0, 1, 2, 3, 4)).records[:]), 1.0, draws=9)
    assert every is not None
    assert math.isfinite(every.errors[scoring.HONEST][1, 0])


def test_the_expected_least_against_every_subset():
    values = np.array([[3.0, 1.0, 7.0, 2.0, 9.0, 4.0], [5.0, math.nan, 1.0, 2.0, math.nan, math.nan]])
    for of in (1, 2, 3):
        subsets = [np.mean([min(chosen) for chosen in itertools.combinations(row[~np.isnan(row)], of)]) for row in values]
        np.testing.assert_allclose(scoring.expected_least(values, of), subsets)
    assert scoring.expected_least(values, 5)[1] == 1.0  # of fewer values their least
    assert scoring.expected_least([[2.0, math.inf, math.inf]], 2)[0] == math.inf
    assert scoring.expected_least([[1.0, 2.0, math.inf]], 2)[0] == pytest.approx((1 + 1 + 2) / 3)


@pytest.mark.parametrize(("count", "expected"), [(1, 0.0), (2, -1 / math.sqrt(math.pi)), (3, -1.5 / math.sqrt(math.pi))])
def test_the_least_of_few_normals_in_closed_form(count, expected):
    assert scoring.least_of_normals(count) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("count", [5, 20, 50])
def test_the_least_of_many_normals_against_simulation(count):
    drawn = np.random.default_rng(count).normal(size=(40_000, count)).min(axis=1)
    assert scoring.least_of_normals(count) == pytest.approx(drawn.mean(), abs=5 * drawn.std() / math.sqrt(len(drawn)))


def test_the_binomial_error_against_scipy():
    assert scoring.binomial_error(2.0, 10_000) == pytest.approx(100 * stats.binom(10_000, 0.02).std() / 10_000)


def test_mean_interval_against_the_t_table():
    x = [1.0, 2.0, 3.0, 6.0]
    half = stats.t.ppf(0.975, 3) * np.std(x, ddof=1) / 2
    assert scoring.mean_interval(x) == pytest.approx((3.0, 3.0 - half, 3.0 + half))
    assert scoring.mean_interval([2.0, 2.0]) == (2.0, 2.0, 2.0)
    assert math.isnan(scoring.mean_interval([1.0])[1])


def plateau_of(test: np.ndarray, validation: np.ndarray, epochs: int) -> scoring.Plateau:
    config = protocols.plan("mnist-classifier", "paper", seeds=[0])[0]
    record = made_up(config, 2.0, np.random.default_rng(0))
    record.curves["test_error"] = test.tolist()
    record.curves["validation_error"] = np.repeat(validation, 3).tolist()
    return scoring.plateau(record, epochs)


def test_a_plateau_of_pure_noise_is_all_luck_and_one_that_both_see_is_none():
    rng = np.random.default_rng(1)
    epochs = 20
    noise = [
        plateau_of(5 + rng.normal(0, 0.1, 50), 7 + rng.normal(0, 0.1, 50), epochs) for _ in range(300)
    ]  # test images alone make the errors go up and down
    shared = []
    for _ in range(300):
        real = rng.normal(0, 0.1, 50)
        shared.append(plateau_of(5 + real, 7 + real, epochs))
    assert np.mean([p.on_validation for p in noise]) == pytest.approx(0, abs=0.02)
    assert np.mean([p.by_chance for p in noise]) == pytest.approx(1.867 * 0.1, rel=0.03)
    assert np.mean([p.on_test for p in noise]) == pytest.approx(1.867 * 0.1, rel=0.1)  # less a little that the line takes
    assert np.mean([p.fluctuation for p in noise]) == pytest.approx(0.1, rel=0.03)
    assert all(p.on_validation == pytest.approx(p.on_test) for p in shared)


def test_a_falling_line_is_no_gain():
    found = plateau_of(10 - 0.1 * np.arange(50), 12 - 0.05 * np.arange(50), 30)
    assert found.on_test == pytest.approx(0, abs=1e-9)
    assert found.on_validation == pytest.approx(0, abs=1e-9)
    with pytest.raises(ConfigurationError, match="plateau"):
        plateau_of(np.ones(50), np.ones(50), 51)


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([0.44, 0.55], "0.44 to 0.55 points lower"),
        ([0.0, 0.2], "up to 0.20 points lower"),
        ([-0.1, -0.4], "0.10 to 0.40 points higher"),
        ([-0.1, 0.3], "something between 0.10 points higher and 0.30 lower"),
        ([-0.1, 0.0], "up to 0.10 points higher"),
        ([0.3], "0.30 points lower"),
        ([0.0, 0.0], "neither lower nor higher"),
        ([math.inf], "not comparable"),
    ],
)
def test_gains_in_words(gains, words):
    assert peeking.lower(np.array(gains)) == words


@pytest.mark.parametrize(("relu", "said"), [(2.0001, "more than"), (9.0, "less than")])
def test_the_headline_compares_what_test_data_buy_with_the_gap(relu, said):
    chapter = peeking.scored(synthetic(level={"gelu_tanh": 2.0, "relu": relu, "elu": 2.0}), draws=99)
    scores = chapter.scores[1.0]
    bought = scores.errors[scoring.BY_ERROR][:, 0] - scores.errors[scoring.TEST_EPOCH][:, 0]
    widest = np.ptp(scores.errors[scoring.HONEST][:, 0])
    assert (bought.min() > widest) if said == "more than" else (bought.max() < widest)
    assert f"buys {said} what separates" in peeking.answer_lines(chapter)[0]


def test_the_page_s_numbers_on_the_records_are_those_of_a_plain_loop(recorded):
    chapter = peeking.scored(recorded, draws=199)
    said = "\n".join(peeking.answer_lines(chapter))
    by_name = [plain(list(recorded.records), name, 1.0, scoring.HONEST) for name in ("gelu_tanh", "relu", "elu")]
    assert "GELU (tanh) {:.2f} %, ReLU {:.2f} %, ELU {:.2f} %".format(*by_name) in said
    gains = [
        plain(list(recorded.records), n, 1.0, scoring.HONEST) - plain(list(recorded.records), n, 1.0, scoring.TEST_EPOCH)
        for n in ("gelu_tanh", "relu", "elu")
    ]
    assert f"makes it {peeking.lower(np.array(gains))}" in said
    assert chapter.fixed() == 1.0
    assert None not in chapter.shown


def shown(monkeypatch) -> dict[str, list]:
    """What is shown, by kind, in place of the page."""
    said: dict[str, list] = {"text": [], "figure": [], "table": []}
    monkeypatch.setattr(pages, "text", said["text"].append)
    monkeypatch.setattr(
        pages, "figure", lambda drawn, name, alt, caption, keys: said["figure"].append((name, drawn, caption, list(keys)))
    )
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: said["table"].append((name, frame, caption, list(keys))))
    return said


def whole_page(found: Study, plateau: int = 20) -> peeking.Scored:
    chapter = peeking.scored(found, draws=49)
    peeking.answer(chapter)
    peeking.errors_figure(chapter)
    peeking.errors_table(chapter)
    peeking.gains_table(chapter)
    peeking.gaps_figure(chapter)
    peeking.ranking_table(chapter)
    luck.run_figure(chapter, "gelu_tanh", 1.0, 0)
    luck.table(chapter, plateau)
    luck.sentences(chapter, plateau)
    return chapter


def test_an_empty_ledger_and_an_incomplete_grid_are_said(monkeypatch, tmp_path):
    said = shown(monkeypatch)
    whole_page(study.run("mnist-classifier", "powered", train=False, ledger=tmp_path))
    assert "nothing can be scored yet" in said["text"][0]
    assert said["figure"] == said["table"] == []
    said["text"].clear()
    full = synthetic()
    part = tuple(r for r in full.records if not (r.config.activation == "elu" and r.config.learning_rate == 1e-5))
    whole_page(Study("mnist-classifier", "paper", full.planned, part, {}, False))
    assert "Left out while the grid of learning rates is incomplete: ELU without dropout, ELU with dropout" in said["text"][0]
    names = [name for name, *_ in said["table"]]
    assert len(names) == len(set(names))


def test_half_of_the_seeds_and_diverged_runs_make_a_page(monkeypatch):
    said = shown(monkeypatch)
    chapter = whole_page(synthetic(seeds=2, diverged=(1,)))
    assert len(said["figure"]) == 3
    assert {key for _, _, _, keys in said["figure"] for key in keys} <= {r.config.key for r in chapter.found.records}
    assert "nan" not in " ".join(map(str, said["text"])).lower().replace("tanh", "")


def test_figures_show_the_scores_and_tables_their_intervals(monkeypatch, recorded):
    said = shown(monkeypatch)
    chapter = whole_page(recorded)
    name, figure, caption, keys = said["figure"][0]
    assert name == "peeking-errors"
    assert "scale: powered" in caption
    assert set(keys) == set(chapter.keys)
    for ax, scores in zip(figure.axes, chapter.shown.values(), strict=True):
        lines = {line.get_gid(): line for line in ax.get_lines()}
        for way in scoring.WAYS:
            for activation, errors in zip(scores.names, scores.errors[way], strict=True):
                assert lines[f"{activation} {way.name}"].get_xdata()[0] == errors[0]
    table = next(frame for name, frame, *_ in said["table"] if name == "peeking-scores-keep-1")
    assert list(table.columns) == ["scored by", "GELU&nbsp;(tanh)", "ReLU", "ELU"]
    assert len(table) == len(scoring.WAYS)
    shown_first = re.sub("<[^>]+>", "", table.iloc[0, 1])
    middle, low, high = scoring.interval(chapter.scores[1.0].errors[scoring.HONEST][0])
    assert shown_first == f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def test_luck_is_named_where_it_is_shown_and_nowhere_else(recorded):
    chapter = peeking.scored(recorded, draws=49)
    found = luck.plateaus(chapter, 20)
    assert len(found) == len(recorded.table.query("learning_rate == 0.001"))
    lines = luck.lines_of(chapter, found, 20)
    lucky = next((line for line in lines if line.startswith("Part of the drop is luck")), "")
    for (keep, name), cell in found.groupby(["keep_probability", "activation"]):
        low = stats.ttest_1samp(cell["luck"], 0).confidence_interval(0.95).low
        title = {"gelu_tanh": "GELU (tanh)", "relu": "ReLU", "elu": "ELU"}[name]
        assert (f"{title} {pages.condition(keep)}" in lucky) == (low > 0)
    assert luck.plateaus(chapter, 50).empty  # a run of 50 epochs is no plateau of 50


def test_the_paper_s_own_numbers_are_read_and_judged():
    rows = {row.activation: row for row in luck.paper_rows()}
    curve = pd.read_csv(paths.PAPER / "curves-unsmoothed.csv").query("figure == 5 and split == 'test' and activation == 'GELU'")
    assert rows["GELU"].last == curve.sort_values("epoch_plotted")["raw_value"].iloc[-1]
    assert rows["GELU"].least == curve[curve["on_grid"] == 1]["raw_value"].min()
    assert (rows["GELU"].text, rows["ReLU"].text, rows["ELU"].text) == (7.89, 8.16, 8.41)
    said = luck.paper_sentence(list(rows.values()))
    assert "do not come from picking an epoch" in said
    picked = [luck.PaperRow("GELU", 7.79, 7.89, 7.79, 193), luck.PaperRow("ReLU", 8.1, 8.16, 8.14, 190)]
    assert "the least of the curve for GELU" in luck.paper_sentence(picked)
    assert "do not come" not in luck.paper_sentence(picked)


def test_other_experiments_appear_with_their_own_runs_only(monkeypatch, tmp_path):
    said = shown(monkeypatch)
    peeking.others("paper", 5, 9, str(tmp_path))
    assert said["text"] == ["No other experiment with validation and test errors has been run yet."]
    said["text"].clear()
    configs = protocols.plan("mnist-soi", "paper")
    theirs = [made_up(c, 2.0, np.random.default_rng(c.seed)) for c in configs]
    borrowed = [record for record in theirs if record.config.experiment != "mnist-soi"]
    for records, experiments in ((borrowed, 0), (theirs, 1)):
        found = Study("mnist-soi", "paper", tuple(configs), tuple(records), {}, False)
        monkeypatch.setattr(peeking.study, "run", lambda *_, found=found, **__: found)
        peeking.others("paper", 5, 9)
        assert said["text"].count("**mnist-soi**") == experiments
    assert [name for name, *_ in said["figure"]] == ["peeking-errors-mnist-soi"]
