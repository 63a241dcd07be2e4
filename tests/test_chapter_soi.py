"""The page on the SOI map: the map against draws of it, choices and words against made-up runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

import synthetic
from gelu_study import activations, judging, pages, protocols, study
from gelu_study.chapters import soi
from gelu_study.networks import PerceptronStack
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

ERRORS = {
    ("soi", 1.0): 2.0,
    ("relu", 1.0): 2.3,
    ("relu", 0.75): 2.02,
    ("relu", 0.5): 2.5,
    ("identity", 1.0): 8.0,
    ("identity", 0.75): 9.0,
    ("identity", 0.5): 20.0,
}
WORSE = {1e-3: 1.2, 1e-4: 1.0, 1e-5: 2.0}


pytestmark = pytest.mark.usefixtures("few_resamples")


def made_up(config: RunConfig) -> RunRecord:
    """Everything falls, and validation loss is proportional to the error of test images; 1e-4 is best."""
    level = ERRORS[config.activation, config.keep_probability] * WORSE[config.learning_rate]
    level *= math.exp(0.001 * ((len(config.activation) * config.seed) % 5 - 2))
    return synthetic.finished(config, lambda name, epochs: level * (1 if name == "test_error" else 0.1) * (1 + 0.1 / epochs))


def found(make: Callable[[RunConfig], RunRecord | None] = made_up) -> Study:
    configs = protocols.plan("mnist-soi", "paper")
    records = [record for config in configs if (record := make(config)) is not None]
    return study.run("mnist-soi", "paper", train=False, ledger=synthetic.Held(records))


def test_moments_of_the_map_against_draws_of_it():
    x = np.array([-1.5, -0.3, 0.0, 0.8, 2.0])
    (mean, deviation), (slope, slope_deviation) = soi.map_moments(x)
    draws = 200_000
    inputs = torch.tensor(x).expand(draws, len(x)).clone().requires_grad_()
    outputs = activations.SOIMap(torch.Generator().manual_seed(1)).train()(inputs)
    outputs.sum().backward()
    assert inputs.grad is not None
    within = 5 / math.sqrt(draws)
    np.testing.assert_allclose(outputs.detach().numpy().mean(0), mean, atol=2 * within)
    np.testing.assert_allclose(outputs.detach().numpy().std(0), deviation, atol=2 * within)
    np.testing.assert_allclose(inputs.grad.numpy().mean(0), slope, atol=within)
    np.testing.assert_allclose(inputs.grad.numpy().std(0), slope_deviation, atol=within)
    gelu = activations.SOIMap().eval()(torch.tensor(x))
    np.testing.assert_allclose(mean, gelu.numpy(), rtol=1e-12)
    lines = soi.the_map().axes[0].get_lines()
    np.testing.assert_allclose(lines[0].get_ydata(), activations.gelu(torch.tensor(lines[0].get_xdata())), atol=1e-12)


def test_a_linear_network_with_dropout_is_linear_in_evaluation():
    """What the page says of its control."""
    network = PerceptronStack((6, 16, 16, 4), ["identity"], [0.5], [0], 8, torch.device("cpu"))
    x, y = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(0))

    def logits(inputs: torch.Tensor) -> torch.Tensor:
        return torch.cat([piece.clone() for _, piece in network.outputs(inputs)], 1)[0]

    torch.testing.assert_close(logits(2 * x - 3 * y), 2 * logits(x) - 3 * logits(y), rtol=1e-4, atol=1e-5)


def test_validation_chooses_rate_and_keep_probability():
    study_ = found()
    table = study_.table
    best = {}
    for (name, keep, rate), cell in table.groupby(["activation", "keep_probability", "learning_rate"]):
        best[name, keep, rate] = np.median(cell["best_validation_loss"])
    candidates = soi.candidates(study_)
    assert [(c.activation, c.keep_probability) for c in candidates] == list(ERRORS)
    for c in candidates:
        own = {key[2]: loss for key, loss in best.items() if key[:2] == (c.activation, c.keep_probability)}
        assert c.learning_rate == min(own, key=own.__getitem__) == 1e-4
        assert not c.at_edge
        assert c.validation_loss == pytest.approx(min(own.values()))
        assert len(c.runs) == 5
    tuned = {c.activation: c for c in soi.tuned(study_)}
    assert {name: c.keep_probability for name, c in tuned.items()} == {"soi": 1.0, "relu": 0.75, "identity": 1.0}
    for name, c in tuned.items():
        assert judging.tuned(study_, name) == (c.keep_probability, c.learning_rate)
    median = np.median([r.best["test_error"] for r in tuned["relu"].runs])
    assert tuned["relu"].errors.median() == median == pytest.approx(2.02 * (1 + 0.1 / 50), rel=5e-3)


def test_the_answer_in_words(shown):
    soi.answer(found())
    (text,) = shown
    assert "*Is it comparable to ReLU with dropout?* **Yes.** The SOI network's test error is the same within 5 %." in text
    assert "It is 1.0 % lower than ReLU's" in text
    assert "*Is it more than a regularised linear model?* **Yes.** The SOI network's test error is lower." in text
    assert "75 % lower than the linear network's" in text
    assert "- SOI map: median test error 2.00 %" in text and "the paper's is 2.00 %" in text
    assert "- ReLU, keep 0.75: median test error 2.02 %" in text and "the paper's is 2.10 %" in text
    assert text.splitlines()[-1].startswith("- Linear, no dropout: median test error 8.0")
    assert "paper" not in text.splitlines()[-1]


def test_a_linear_network_that_is_as_good_contradicts(shown):
    def make(config: RunConfig) -> RunRecord:
        if config.activation != "identity":
            return made_up(config)
        level = 1.0 * WORSE[config.learning_rate] * math.exp(0.001 * (config.seed % 3))
        return synthetic.finished(config, lambda name, epochs: level * (1 if name == "test_error" else 0.1) * (1 + 0.1 / epochs))

    soi.answer(found(make))
    assert "*Is it more than a regularised linear model?* **No.** The SOI network's test error is higher." in shown[0]


def test_tables_and_figures_hold_the_medians(shown):
    study_ = found()
    soi.errors_table(study_)
    lines = shown[0].splitlines()
    row = next(line for line in lines if "<b>ReLU, keep 0.75</b>" in line)
    assert "2.10" in row and ">2.02 <" in row and "0.0001" in row
    assert sum("<b>" in line for line in lines) == 3
    soi.verdict_table(study_)
    assert ">0.990 " in shown[1] and "0.952" in shown[1], "ours, and 2.00 / 2.10"
    assert "all together" not in shown[1], "they are two claims"
    drawn = {line.get_gid(): line for ax in soi.curves(study_).axes for line in ax.get_lines()}
    runs = next(c for c in soi.tuned(study_) if c.activation == "relu").runs
    expected = np.median([r.curves["validation_loss"] for r in runs], axis=0)
    np.testing.assert_allclose(drawn["relu validation_loss"].get_ydata(), expected)
    np.testing.assert_allclose(drawn["relu validation_loss"].get_xdata(), np.arange(1, 151) / 3)
    dots = {line.get_gid(): line for line in soi.errors(study_).axes[0].get_lines()}
    np.testing.assert_allclose(sorted(dots["SOI map"].get_xdata()), sorted(r.best["test_error"] for r in soi.tuned(study_)[0].runs))


def test_diverged_runs_count_as_the_worst():
    study_ = found(lambda config: synthetic.diverged(config) if config.activation == "soi" and config.seed < 3 else made_up(config))
    (candidate,) = [c for c in soi.candidates(study_) if c.activation == "soi"]
    assert np.isinf(candidate.errors).sum() == 3
    soi.errors(study_)
    soi.curves(study_)
    lines = soi.answer_lines(*soi.judgements(study_), soi.tuned(study_), True)
    assert any("SOI map: median test error infinite" in line for line in lines)


def test_an_incomplete_grid_shows_what_can_be_chosen(shown, monkeypatch):
    captions: list[str] = []
    monkeypatch.setattr(pages, "figure", lambda figure, name, alt, caption, keys: captions.append(caption))
    part = found(lambda config: made_up(config) if config.activation != "relu" or config.keep_probability == 0.5 else None)
    assert [(c.activation, c.keep_probability) for c in soi.candidates(part)] == [
        cell for cell in ERRORS if cell[0] != "relu" or cell[1] == 0.5
    ]
    soi.answer(part)
    assert "No answer yet" in shown[0]
    soi.errors_figure(part)
    soi.curves_figure(part)
    assert all("Provisional" in caption for caption in captions) and len(captions) == 2
    little = found(
        lambda config: made_up(config) if config.learning_rate == 1e-3 and config.activation == "soi" and config.seed == 0 else None
    )
    soi.errors_figure(little)


def test_without_records_the_page_says_so(shown, tmp_path):
    empty = study.run("mnist-soi", "paper", train=False, ledger=tmp_path)
    soi.answer(empty)
    for show in (soi.errors_figure, soi.curves_figure, soi.errors_table):
        show(empty)
    assert shown[0].count("No answer yet") == 2
    assert shown[1:] == ["There is nothing to show: no run has finished."] * 3
    soi.verdict_table(empty)
    assert "not run" in shown[-1]


def test_trained_runs_on_digits_can_be_shown(tmp_path, shown, monkeypatch):
    drawn: dict[str, list[str]] = {}
    monkeypatch.setattr(pages, "figure", lambda figure, name, alt, caption, keys: drawn.update({name: list(keys)}))
    study_ = study.run("mnist-soi", "smoke", device="cpu", ledger=tmp_path)
    soi.answer(study_)
    soi.map_figure()
    soi.errors_figure(study_)
    soi.curves_figure(study_)
    soi.errors_table(study_)
    soi.verdict_table(study_)
    assert {name: len(keys) for name, keys in drawn.items()} == {"mnist-soi-map": 0, "mnist-soi-errors": 14, "mnist-soi-curves": 6}
    assert {r.config.experiment for r in study_.records} == {"mnist-soi", "mnist-classifier"}, (
        "ReLU's runs are the classifier's own"
    )
    assert not any("paper" in text for text in shown)
    only = study.run("mnist-soi", "smoke", activations=["soi", "relu"], train=False, ledger=tmp_path)
    soi.answer(only)
    assert "No answer yet" in shown[-1].splitlines()[1]
