"""The page on noise: its numbers against NumPy and SciPy, and its words against made-up runs with known answers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import synthetic
from gelu_study import judging, pages, protocols, study
from gelu_study.chapters import noise
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

LEVEL = {"gelu_tanh": 1.0, "relu": 1.3, "elu": 1.01}


pytestmark = pytest.mark.usefixtures("few_resamples")


def made_up(config: RunConfig, level: dict[str, float] = LEVEL) -> RunRecord:
    """Error and loss grow with the noise and are proportional to the activation's level, with the noise of the seed."""
    factor = level[config.activation] * math.exp(0.001 * ((len(config.activation) * config.seed) % 5 - 2))

    def grown(name: str, width: np.ndarray) -> np.ndarray:
        return factor * (2 + 10 * width) if name == "noise_error" else factor * (0.1 + width)

    return synthetic.finished(config, lambda name, epochs: factor * (2 + 1 / epochs), grown)


def found(make: Callable[[RunConfig], RunRecord | None] = made_up, scale: str = "paper") -> Study:
    configs = protocols.plan("mnist-noise", scale)
    records = [record for config in configs if (record := make(config)) is not None]
    return study.run("mnist-noise", scale, train=False, ledger=synthetic.Held(records))


def test_the_mean_over_the_noise_leaves_out_the_clean_images():
    record = found().records[0]
    values = record.curves["noise_error"]
    assert record.config.test_noise[0] == 0
    assert noise.mean_over_noise(record, "noise_error") == pytest.approx(sum(values[1:]) / 12)


def test_what_is_judged_is_the_paired_ratio_of_these_means():
    study_ = found()
    judgement = judging.noise(noise_evidence(study_))
    means = {
        name: [noise.mean_over_noise(r, "noise_loss") for r in noise.runs_of(study_, name)] for name in ("gelu_tanh", "relu", "elu")
    }
    d = np.log(means["gelu_tanh"]) - np.log(means["relu"])
    part = judgement.parts[2]
    assert "log loss" in part.of and "ReLU" in part.of
    assert part.measured == pytest.approx(math.exp(np.median(d)))
    assert np.ptp(d) < 1e-12 and d[0] < 0  # no spread at all, so the test is certain
    assert [p.verdict for p in judgement.parts] == ["reproduced", "equivalent"] * 2
    assert judgement.verdict == "reproduced"


def noise_evidence(study_: Study) -> judging.Evidence:
    return judging.Evidence(synthetic.Held(study_.records), study_.scale)


def test_the_answer_in_words(shown):
    noise.answer(found())
    (text,) = shown
    assert "**Yes.** GELU's mean over the levels of noise is lower in 2, the same within 5 % in 2 of 4 comparisons." in text
    assert "By test error: GELU's is 23 % lower than ReLU's" in text  # 1 / 1.3
    assert "and 1.0 % lower than ELU's" in text
    noise.answer(found(lambda config: made_up(config, {"gelu_tanh": 2.0, "relu": 1.0, "elu": 1.0})))
    assert "**No.**" in shown[-1] and "100 % higher than ReLU's" in shown[-1]
    noise.answer(found(lambda config: made_up(config) if config.activation == "relu" else None))
    assert "**No answer yet.**" in shown[-1]
    assert "- By" not in shown[-1]


def test_curves_and_ratios_are_medians(monkeypatch):
    study_ = found()
    lines = {line.get_gid(): line for ax in noise.curves(study_).axes for line in ax.get_lines()}
    errors = np.array([r.curves["noise_error"] for r in noise.runs_of(study_, "relu")])
    np.testing.assert_allclose(lines["relu noise_error"].get_ydata(), 100 - np.median(errors, axis=0))
    np.testing.assert_array_equal(lines["relu noise_error"].get_xdata(), np.arange(13) / 4)
    lines = {line.get_gid(): line for ax in noise.ratios(study_).axes for line in ax.get_lines()}
    np.testing.assert_allclose(lines["relu noise_loss"].get_ydata(), 1 / 1.3, rtol=5e-3)
    assert "gelu_tanh noise_loss" not in lines


def test_seeds_of_one_side_are_left_out_and_a_diverged_run_is_the_worst():
    def make(config: RunConfig) -> RunRecord | None:
        if (config.activation, config.seed) == ("gelu_tanh", 0):
            return None
        if (config.activation, config.seed) in (("relu", 1), ("relu", 2), ("gelu_tanh", 2)):
            return synthetic.diverged(config)
        return made_up(config)

    d = noise.differences(found(make), "relu", "noise_error")
    assert d.shape == (4, 13)
    assert (d[0] == -math.inf).all()
    assert (d[1] == 0).all(), "both diverged"
    np.testing.assert_allclose(d[2:], math.log(1 / 1.3), atol=5e-3)
    noise.curves(found(make))
    noise.ratios(found(make))


def test_a_level_that_was_not_measured_is_refused(shown):
    with pytest.raises(ConfigurationError, match=r"half-width 0\.3 was measured; known are 0, 0\.25"):
        noise.levels_table(found(), [0.3])
    noise.levels_table(found(), [1.0])
    error = 12.0  # of GELU: 2 + 10 a
    expected = 100 * stats.binom.std(10_000, error / 100) / 10_000
    assert f"± {expected:.2f}" in shown[-1]
    assert "12.0" in shown[-1] and "10,000 images" in shown[-1]


def test_what_is_observed_follows_the_medians():
    lines = noise.observed(found())  # GELU's loss is 0.1 + a, ELU's a hundredth and ReLU's a third greater
    assert lines[0] == "The log loss of ReLU first exceeds that of guessing, 2.30, at a = 1.75: confidence is then worse than none."
    assert lines[1].startswith("The log loss of GELU (tanh) and ELU first exceeds that of guessing, 2.30, at a = 2.25")
    assert lines[-2] == "The lowest median test error of the 12 noisy levels: GELU (tanh) at 12."
    low = noise.observed(found(lambda config: made_up(config, dict.fromkeys(LEVEL, 0.5))))
    assert "stays below that of guessing" in low[0]


def test_without_records_the_page_says_so(shown, tmp_path):
    empty = study.run("mnist-noise", "powered", train=False, ledger=tmp_path)
    noise.answer(empty)
    for show in (noise.curves_figure, noise.ratios_figure, noise.sentences, noise.means_table):
        show(empty)
    noise.levels_table(empty, [0.0])
    assert "No answer yet" in shown[0]
    assert shown[1:] == ["There is nothing to show: no run has finished."] * 5
    noise.verdict_table(empty)
    assert len(re.findall("not run", shown[-1])) >= 5


def test_trained_runs_on_digits_can_be_shown(tmp_path, shown, monkeypatch):
    drawn: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(pages, "figure", lambda figure, name, alt, caption, keys: drawn.append((name, list(keys))))
    study_ = study.run("mnist-noise", "smoke", device="cpu", ledger=tmp_path)
    for record in study_.records:
        assert record.curves["noise_error"][0] == pytest.approx(record.final["test_error"]), "noise of half-width 0 is none"
    noise.answer(study_)
    noise.curves_figure(study_)
    noise.ratios_figure(study_)
    noise.sentences(study_)
    noise.levels_table(study_, [0.0, 3.0])
    noise.means_table(study_)
    noise.verdict_table(study_)
    assert [name for name, _ in drawn] == ["mnist-noise-curves", "mnist-noise-ratios"]
    assert all(len(keys) == 6 for _, keys in drawn)
    assert "unresolved" in shown[0], "two seeds decide nothing"
    assert any("360 images" in text for text in shown)
