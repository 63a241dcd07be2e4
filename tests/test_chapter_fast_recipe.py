"""The page on the fast recipe: what is compared and said of made-up runs, against a plain recomputation."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest
from scipy import stats

import synthetic
from gelu_study import judging, pages
from gelu_study.chapters import fast_recipe, images
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

pytestmark = pytest.mark.usefixtures("few_resamples")

ENDS = {"gelu_tanh": 5.9, "relu": 6.3, "elu": 6.0}
BEST = {"gelu_tanh": 1.5, "relu": 3.0, "elu": 0.75}
SEEDS = 5
VIEWS = 0.9
"""What several views make of a test error."""


def wave(config: RunConfig) -> float:
    """A factor near 1 that differs between activations and seeds."""
    return 1 + 0.005 * math.sin(7 * config.seed + len(config.activation))


def made_up(config: RunConfig, ends: dict[str, float] = ENDS) -> RunRecord:
    worse = 1.0 if config.learning_rate == BEST[config.activation] else 2.0
    end = ends[config.activation] * worse * wave(config)

    def curve(name: str, epochs: np.ndarray) -> np.ndarray:
        falling = end * (1 + (config.epochs - epochs) / config.epochs)
        return falling if name == "test_error_views" else falling / VIEWS if "error" in name else falling / 10

    return synthetic.finished(config, curve)


@pytest.fixture(scope="module")
def whole() -> Study:
    return synthetic.completed("cifar10-fast", "paper", made_up)


@pytest.fixture(scope="module")
def nothing() -> Study:
    return synthetic.completed("cifar10-fast", "powered", lambda config: None)


def with_ends(**ends: float) -> Study:
    return synthetic.completed("cifar10-fast", "paper", lambda config: made_up(config, ENDS | ends))


def gone(found: Study, *cells: tuple[str, int]) -> Study:
    """The study with some final runs, by activation and seed, diverged."""
    records = [
        synthetic.diverged(r.config) if (r.config.activation, r.config.seed) in cells and not r.config.validation_examples else r
        for r in found.records
    ]
    return dataclasses.replace(found, records=tuple(records))


def results(found: Study, name: str, measure: str = "test_error_views") -> np.ndarray:
    """The final runs' values by seed, read off the records."""
    runs = [r for r in found.records if r.config.activation == name and not r.config.validation_examples]
    return np.array([r.final[measure] for r in sorted(runs, key=lambda r: r.config.seed)])


def test_what_is_compared_is_the_final_runs_with_several_views(whole):
    assert len(judging.deciding(whole)) == 3 * SEEDS and whole.missing == 0
    for rival, (item, _) in fast_recipe.compared(whole).items():
        d = np.log(results(whole, "gelu_tanh")) - np.log(results(whole, rival))
        assert (item.n, item.median) == (SEEDS, pytest.approx(np.median(d)))
        assert item.p_value == pytest.approx(stats.ttest_1samp(d, 0).pvalue)
        middle, low, high = fast_recipe.points(whole, ("gelu_tanh", "test_error_views"), (rival, "test_error_views"))
        assert middle == pytest.approx(np.median(results(whole, "gelu_tanh") - results(whole, rival)))
        assert low <= middle <= high
    assert fast_recipe.rivals(whole) == ["relu", "elu"]


def test_the_answer_is_yes_hardly_or_undecided(whole):
    lines = fast_recipe.answer_lines(whole)
    assert lines[0].startswith("**Yes.**")
    apart = np.median(results(whole, "gelu_tanh") - results(whole, "relu"))
    assert "% lower than ReLU's (95 % interval" in lines[2] and "; lower), a difference of −" in lines[2]
    assert f"a difference of {apart:+.2f} points".replace("-", "−") in lines[2]
    assert "Of 5 pairs, GELU's is the lower one in 100 %" in lines[2]
    near = with_ends(relu=6.05, elu=5.8)
    lines = fast_recipe.answer_lines(near)
    assert lines[0] == "**Hardly.** The test errors are the same within 5 %."
    assert "the same within 5 %, though its sign is certain" in lines[2]
    assert "**Yes.**" in fast_recipe.answer_lines(with_ends(elu=4.0))[0], "GELU's is higher"
    lines = fast_recipe.answer_lines(gone(whole, ("gelu_tanh", 0), ("gelu_tanh", 1), ("gelu_tanh", 2)))
    assert lines[0].startswith("**Undecided.**") and "infinitely higher" in lines[2] and "points" not in lines[2]


def test_without_runs_there_is_no_answer(nothing, shown):
    for show in (
        fast_recipe.answer,
        fast_recipe.errors_figure,
        fast_recipe.reached,
        fast_recipe.differences_table,
        fast_recipe.results_table,
        images.rates_table,
    ):
        show(nothing)
    assert len(shown) == 6 and shown[0].startswith("**No answer yet.**") and shown[1].endswith("no run has finished.")
    assert shown[5] == "None of the learning rates 3, 1.5 and 0.75 has been tried yet."
    images.standing(nothing, nothing)
    assert "No training of 10 epochs on all 50,000 training images" in shown[6]
    alone = synthetic.completed("cifar10-fast", "paper", made_up, activations=["relu", "elu"])
    assert fast_recipe.answer_lines(alone)[0].startswith("**No answer yet.**"), "without GELU there is nothing to compare"
    fast_recipe.differences_table(alone)
    assert "no pair" in shown[-1]


def test_the_table_of_differences_has_the_seeds_that_it_takes(whole, shown):
    fast_recipe.differences_table(whole)
    compared = fast_recipe.compared(whole)
    for rival, title in (("relu", "ReLU"), ("elu", "ELU")):
        row = next(line for line in shown[0].splitlines() if re.search(rf" {title} ", line))
        item, word = compared[rival]
        apart = np.median(results(whole, "gelu_tanh") - results(whole, rival))
        assert f">{math.exp(item.median):.3f} <" in row and f">{apart:+.2f} <".replace("-", "−") in row
        assert row.split()[-2:] == [f"{item.seeds_needed:.0f}", f"{item.seeds_needed_margin:.0f}"]
        assert {"reproduced": "lower", "equivalent": "the same within 5 %"}[word] in row


def test_every_run_is_a_dot_and_the_target_a_line(whole):
    drawing = fast_recipe.errors(whole)
    (ax,) = drawing.axes
    lines = {line.get_gid(): line for line in ax.get_lines() if line.get_gid() in ("target", "relu 1", "elu 1", "gelu_tanh 1")}
    for name in ENDS:
        np.testing.assert_allclose(sorted(lines[f"{name} 1"].get_xdata()), sorted(results(whole, name)))
    assert list(lines["target"].get_xdata()) == pytest.approx([6.0, 6.0])
    assert ax.get_xscale() == "linear" and len(ax.get_xticks()) > 2


def test_the_figure_names_its_runs(whole, monkeypatch, shown):
    drawn: dict[str, tuple] = {}
    monkeypatch.setattr(pages, "figure", lambda figure, name, alt, caption, keys: drawn.update({name: (caption, list(keys))}))
    fast_recipe.errors_figure(whole)
    caption, keys = drawn["cifar10-fast-errors"]
    assert "after 10 epochs, outputs for 6 views averaged" in caption and len(keys) == 15
    fast_recipe.errors_figure(gone(whole, *[(name, seed) for name in ENDS for seed in range(SEEDS)]))
    assert shown == ["There is nothing to show: every run diverged."]


def test_whether_the_target_is_reached(whole):
    lines = fast_recipe.reached_lines(whole)
    for line, name in zip(lines, ENDS, strict=True):
        accuracies = 100 - results(whole, name)
        said = "reached" if accuracies.mean() >= 94 else "not reached"
        assert (
            f":** {said} on average, with a mean accuracy of {accuracies.mean():.2f} %; {(accuracies >= 94).sum()} of 5 runs"
            in line
        )
    assert ":** not reached" in lines[1] and ":** reached" in lines[0]
    some, all_ = fast_recipe.reached_lines(gone(whole, ("gelu_tanh", 3), *[("relu", seed) for seed in range(SEEDS)]))[:2]
    kept = np.delete(100 - results(whole, "gelu_tanh"), 3)
    assert f"mean accuracy of {kept.mean():.2f} % of the runs that did not diverge (1 did); " in some and "of 5 runs" in some
    assert all_ == "- **ReLU:** every run diverged."
    digits = synthetic.completed("cifar10-fast", "smoke", lambda config: synthetic.diverged(config))
    assert "on other data" in fast_recipe.reached_lines(digits)[0]


def test_what_the_views_buy_is_paired(whole, shown):
    fast_recipe.results_table(gone(whole, ("elu", 0)))
    row = next(line for line in shown[0].splitlines() if "ReLU" in line)
    six, one = results(whole, "relu"), results(whole, "relu", "test_error")
    assert f">{np.median(six):.2f} <" in row and f">{np.median(one):.2f} <" in row
    assert f">{np.median(six - one):+.2f} <".replace("-", "−") in row and np.median(six - one) < -0.5
    assert "5 (1 diverged)" in shown[0] and "error, 6 views, %" in shown[0]


def test_each_activation_has_the_rate_that_validation_chose(whole, shown):
    assert {name: rate for (name, _), rate in whole.chosen.items()} == BEST
    images.rates_table(whole)
    assert shown[1] == (
        "Validation chose GELU (tanh) 1.5, ReLU 3 and ELU 0.75. "
        "At the edge of the grid, so that a better one may lie outside: ReLU and ELU."
    )


def test_two_runs_that_diverged_are_a_tie():
    found = synthetic.completed(
        "cifar10-fast", "paper", lambda c: synthetic.diverged(c) if not c.validation_examples else made_up(c)
    )
    assert fast_recipe.points(found, ("gelu_tanh", "test_error_views"), ("relu", "test_error_views"))[0] == 0
    assert fast_recipe.answer_lines(found)[0].startswith("**Undecided.**")
