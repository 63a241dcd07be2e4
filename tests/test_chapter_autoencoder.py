"""The page on the autoencoder: smoothing and published curves against a plain recomputation, words against made-up runs."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest

import synthetic
from gelu_study import datasets, judging, ledger, pages, paths, protocols, study
from gelu_study.chapters import autoencoder, precision
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

ENDS = {"gelu_tanh": 0.005, "relu": 0.008, "elu": 0.00502}
JITTER = {"gelu_tanh": (-1, 0, 1), "relu": (-1, 1, 0), "elu": (0, -1, 1)}
SLOWER = {1e-2: 8.0, 1e-3: 1.0, 1e-4: 1.5, 1e-5: 4.0}


pytestmark = pytest.mark.usefixtures("few_resamples")


def end(config: RunConfig) -> float:
    """Where a made-up run's errors end."""
    jitter = math.exp(0.002 * JITTER[config.activation][config.seed])
    return ENDS[config.activation] * SLOWER[config.learning_rate] * jitter


def made_up(config: RunConfig) -> RunRecord:
    """Errors that fall to `end`."""
    return synthetic.finished(config, lambda name, epochs: end(config) * config.epochs / epochs)


def found(make: Callable[[RunConfig], RunRecord | None] = made_up, epochs: int = 50, **options) -> Study:
    configs = protocols.plan("mnist-autoencoder", "paper", epochs=epochs)
    records = [record for config in configs if (record := make(config)) is not None]
    return study.run("mnist-autoencoder", "paper", epochs=epochs, train=False, ledger=synthetic.Held(records), **options)


def paper_rows(figure: str, panel: str, split: str, activation: str) -> list[tuple[float, float]]:
    """Epochs and values of a published curve, read by the csv module."""
    with (paths.PAPER / "curves.csv").open(newline="") as file:
        return [
            (float(row["epoch"]), float(row["value"]))
            for row in csv.DictReader(file)
            if (row["figure"], row["panel"], row["split"], row["activation"]) == (figure, panel, split, activation)
        ]


def test_the_mean_image_s_error_is_that_of_the_data(digits):
    x = digits.x_train[:1152].reshape(1152, -1) / digits.scale
    assert judging.MEAN_IMAGE_ERROR["digits"] == pytest.approx(((x - x.mean(0)) ** 2).mean(), rel=1e-5)
    assert protocols.plan("mnist-autoencoder", "smoke")[0].train_examples == 1152


def test_the_mean_image_s_error_is_that_of_mnist(mnist):
    x = mnist.x_train.reshape(60_000, -1) / mnist.scale
    assert judging.MEAN_IMAGE_ERROR["mnist"] == pytest.approx(((x - x.mean(0)) ** 2).mean(), rel=1e-5)
    assert datasets.SHAPES["mnist"]["x_train"][0] == protocols.plan("mnist-autoencoder", "paper")[0].train_examples


def test_smoothing_once_an_epoch_fades_as_the_paper_s_six_times():
    levels = np.array([5.0, 1.0, 2.0, 0.5])
    b, s = 0.8, 5.0
    six_times = []
    for value in np.repeat(levels, 6):
        s = b * s + (1 - b) * value
        six_times.append(s)
    c, s = autoencoder.smoothing(1e-3), 5.0
    once = []
    for value in levels:
        s = c * s + (1 - c) * value
        once.append(s)
    np.testing.assert_allclose(once, six_times[5::6])
    assert autoencoder.smoothing(1e-4) == 0, "not identified"
    assert 0 < autoencoder.smoothing(1e-5) < 1e-5
    assert autoencoder.smoothing(1e-2) == 0


def test_ours_lie_over_the_published_curves():
    study_ = found()
    lines = {line.get_gid(): line for ax in autoencoder.curves(study_, 1e-3).axes for line in ax.get_lines()}
    published = np.array([row for row in paper_rows("3", "left", "test", "ReLU") if row[0] <= 50])
    np.testing.assert_allclose(np.transpose(lines["published relu test"].get_data()), published)
    runs = autoencoder.runs_of(study_, "relu", 1e-3)
    smoothed = []
    for run in runs:
        s, row = run.curves["test_loss"][0], []
        for value in run.curves["test_loss"]:
            s = 0.8**6 * s + (1 - 0.8**6) * value
            row.append(s)
        smoothed.append(row)
    np.testing.assert_allclose(lines["relu test"].get_ydata(), np.median(smoothed, axis=0))
    np.testing.assert_array_equal(lines["relu test"].get_xdata(), np.arange(1, 51))
    training = np.median([run.curves["train_loss_epoch"] for run in runs], axis=0)
    np.testing.assert_allclose(lines["relu train"].get_ydata(), training)
    np.testing.assert_allclose(lines["relu train"].get_xdata(), np.arange(50) + 0.5)
    assert "published relu train" in lines
    other = {line.get_gid() for ax in autoencoder.curves(study_, 1e-2).axes for line in ax.get_lines()}
    assert not any(str(gid).startswith("published") for gid in other)


def test_the_paper_s_errors_and_order():
    at_50 = {name: [v for e, v in paper_rows("3", "left", "test", name) if e <= 50][-1] for name in ("GELU", "ReLU", "ELU")}
    assert autoencoder.paper_error("elu", 1e-3, 50) == at_50["ELU"]
    assert math.isnan(autoencoder.paper_error("elu", 1e-2, 50)) and math.isnan(autoencoder.paper_error("silu", 1e-3, 50))
    at_250 = {name: paper_rows("3", "left", "test", name)[-1][1] for name in at_50}
    assert sorted(at_50, key=at_50.get) == sorted(at_250, key=at_250.get)
    said = autoencoder.paper_goes_on(50)
    assert "is that of epoch 250 at a learning rate of 0.001" in said
    assert "0.00001" not in said, "ReLU's curve is above the axes there"


@pytest.mark.parametrize(
    ("times", "fate"),
    [(2.01, autoencoder.DIVERGED), (1.99, autoencoder.STUCK), (0.96, autoencoder.STUCK), (0.94, autoencoder.TRAINED)],
)
def test_what_becomes_of_a_run_is_told_by_its_training_error(times, fate):
    config = protocols.plan("mnist-autoencoder", "paper", epochs=2)[0]
    level = times * 0.0672513
    assert autoencoder.fate(synthetic.finished(config, lambda name, epochs: np.full(len(epochs), level))) == fate
    assert autoencoder.fate(synthetic.diverged(config)) == autoencoder.DIVERGED


def test_the_fates_at_the_greatest_rate_in_words(shown):
    def make(config: RunConfig) -> RunRecord:
        if (config.activation, config.learning_rate) == ("elu", 1e-2) and config.seed < 2:
            return synthetic.diverged(config, epoch=3 + config.seed)
        if (config.activation, config.learning_rate) == ("relu", 1e-2):
            return synthetic.finished(config, lambda name, epochs: np.full(len(epochs), 0.0672))
        return made_up(config)

    autoencoder.fates(found(make))
    (text,) = shown
    assert "**GELU (tanh):** 3 of 3 runs trained (median test error 0.0400)." in text
    assert "**ReLU:** 3 of 3 runs got stuck at the mean image's error (median test error 0.0672)." in text
    assert "**ELU:** 2 of 3 runs diverged, in epochs 3 and 4, and 1 of 3 runs trained (median test error" in text
    autoencoder.divergent_table(found(make))
    assert "unresolved" in shown[1], "ELU diverged in a part of its runs"
    assert "0.125" in shown[2], "GELU: 1 / 8"
    autoencoder.errors_table(found(make))
    assert "3 (2 diverged)" in shown[-1]


def test_the_answer_in_words(shown):
    autoencoder.answer(found())
    (text,) = shown
    assert "is lower in 3, the same within 5 % in 3 of 6 comparisons." in text and "**Yes.**" in text
    assert "- At 0.0001: GELU's is 38 % lower than ReLU's" in text  # 5 / 8
    autoencoder.answer(found(lambda config: made_up(config) if config.learning_rate == 1e-3 else None))
    assert "**Undecided.**" in shown[-1] and "not run in 4" in shown[-1]
    assert "At 0.0001:" not in shown[-1]


def test_tables_hold_the_medians_and_the_paper_at_the_same_epoch(shown):
    study_ = found()
    autoencoder.errors_table(study_)
    paper = [v for e, v in paper_rows("3", "left", "test", "GELU") if e <= 50][-1]
    row = next(line for line in shown[0].splitlines() if " 0.001 " in line and "GELU" in line)
    median = np.median(
        [r.final["test_loss"] for r in study_.records if r.config.activation == "gelu_tanh" and r.config.learning_rate == 1e-3]
    )
    assert f">{median:.5f} <" in row and f" {paper:.5f} " in row
    autoencoder.verdict_table(study_)
    gelu, relu = ([v for e, v in paper_rows("3", "left", "test", name) if e <= 50][-1] for name in ("GELU", "ReLU"))
    row = next(line for line in shown[1].splitlines() if "GELU / ReLU, rate 0.001 " in line)
    assert f" {gelu / relu:.3f} " in row and ">0.625 " in row and "reproduced" in row
    autoencoder.slow_table(study_)
    assert shown[2].count("0.250") == 9, "1 / 4 in three medians, with both ends of their intervals"


def test_the_top_says_how_many_epochs(shown):
    autoencoder.setting(found())
    assert "**50 of 250 epochs.**" in shown[0] and "In the paper's own test curves" in shown[0]
    autoencoder.setting(found(epochs=250))
    assert len(shown) == 1


def test_the_longer_runs_are_shown_once_they_are_as_many():
    both = {epochs: protocols.plan("mnist-autoencoder", "paper", epochs=epochs) for epochs in (50, 250)}

    def held(long: int) -> synthetic.Held:
        return synthetic.Held([made_up(config) for config in [*both[50][:4], *both[250][:long]]])

    assert autoencoder.runs("paper", 0, train=False, ledger=held(3)).planned[0].epochs == 50
    assert autoencoder.runs("paper", 0, train=False, ledger=held(4)).planned[0].epochs == 250
    assert autoencoder.runs("paper", 250, train=False, ledger=held(3)).planned[0].epochs == 250
    assert autoencoder.runs("quick", 0, train=False, ledger=held(3)).planned[0].epochs == 3


def test_precisions_are_compared_pair_by_pair(shown):
    configs = [c for c in protocols.plan("mnist-autoencoder", "paper", epochs=2) if c.learning_rate == 1e-3]

    def twin(config: RunConfig, times: float) -> RunRecord:
        other = dataclasses.replace(config, precision="bfloat16")
        return synthetic.finished(other, lambda name, epochs: times * end(config) * 2 / epochs)

    records = [made_up(config) for config in configs]
    twins = [twin(c, 1.001 if c.activation == "relu" else 1.5) for c in configs if c.activation != "elu" and c.seed == 0]
    book = synthetic.Held([*records, *twins])
    study_ = study.run("mnist-autoencoder", "paper", epochs=2, learning_rates=[1e-3], train=False, ledger=book)
    rows, pairs = precision.compared(study_, lambda run: book.get(dataclasses.replace(run.config, precision="bfloat16").key))
    assert [(row["activation"], row["within"]) for row in rows] == [("gelu_tanh", False), ("relu", True)]
    assert rows[0]["ratios"] == pytest.approx([1.5])
    ends = [end(c) for c in configs if c.activation == "relu"]
    assert rows[1]["spread"] == pytest.approx(max(ends) / min(ends))
    assert [(one.config.precision, two.config.precision) for one, two in pairs] == [("float32", "bfloat16")] * 2
    precision.agreement(study_, "no such folder")
    precision.repeated(study_, "no such folder")
    assert shown == [], "without runs of another precision or length nothing is said"


@pytest.mark.parametrize("epochs", [50, 250])
def test_networks_that_were_trained_twice_are_compared_where_the_shorter_run_ends(shown, tmp_path, monkeypatch, epochs):
    keys: list[str] = []
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, own: (shown.append(frame.to_string()), keys.extend(own)))
    times = {"gelu_tanh": 1.001, "relu": 1.5}

    def elsewhere(config: RunConfig, earlier: list[dict[str, str]]) -> RunRecord:
        made = synthetic.finished(config, lambda name, at: times[config.activation] * 50 * end(config) / at)
        where = {**made.environment, "device_name": "Abacus", "products": "onednn", "started": "2026-02-02", "earlier": earlier}
        return dataclasses.replace(made, environment=where)

    book = ledger.Ledger(tmp_path)
    one_rate = {"learning_rates": [1e-3], "activations": list(times)}
    for config in protocols.plan("mnist-autoencoder", "paper", epochs=50, **one_rate):
        short = synthetic.finished(config, lambda name, at, config=config: 50 * end(config) / at)
        book.write(short)
        if config.seed:  # the run of seed 2 went on where the short one ended
            earlier = [{"started": short.environment["started"]}] if config.seed == 2 else []
            book.write(elsewhere(dataclasses.replace(config, epochs=250), earlier))
    precision.repeated(autoencoder.runs("paper", epochs, train=False, ledger=tmp_path, **one_rate), tmp_path)
    text, table = shown
    assert text.startswith(f"**Trained twice.** 2 of these networks were also trained from the start for {300 - epochs} epochs")
    there, here = "on Abacus with products by oneDNN (2 runs)", "on made up (2 runs)"
    assert (f": {there}; the runs above: {here}." if epochs == 50 else f": {here}; the runs above: {there}.") in text
    if epochs == 50:
        assert "In 1 of 2 settings with several seeds every such pair is no further apart than the seeds are." in text
        assert "1.001 to 1.001" in table and "1.500 to 1.500" in table
    assert len(set(keys)) == 4


def test_a_twin_that_diverged_is_no_agreement_and_one_seed_has_no_spread(shown, monkeypatch):
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: shown.append(frame.to_string()))
    configs = protocols.plan("mnist-autoencoder", "paper", epochs=2, learning_rates=[1e-3], activations=["elu"])

    def compared(seeds: list[int]) -> str:
        records = [made_up(config) for config in configs if config.seed in seeds]
        twins = [synthetic.diverged(dataclasses.replace(config, precision="bfloat16")) for config in configs if config.seed == 0]
        book = synthetic.Held([*records, *twins])
        options = {"epochs": 2, "learning_rates": [1e-3], "activations": ["elu"], "seeds": seeds, "train": False, "ledger": book}
        monkeypatch.setattr(precision, "_ledger", lambda folder: book)
        precision.agreement(study.run("mnist-autoencoder", "paper", **options))
        return shown[-2]

    assert "In 0 of 1 settings with several seeds" in compared([0, 1, 2])
    assert "∞ to ∞" in shown[-1]
    assert "None of them has a second seed" in compared([0])
    assert "–" in shown[-1]


def test_runs_that_went_on_from_one_checkpoint_are_not_called_apart(shown, tmp_path):
    config = protocols.plan("mnist-autoencoder", "paper", epochs=50, learning_rates=[1e-3], seeds=[0], activations=["elu"])[0]
    book = ledger.Ledger(tmp_path)
    for epochs, started in ((50, "2026-02-02"), (250, "2026-03-03")):
        made = synthetic.finished(dataclasses.replace(config, epochs=epochs), lambda name, at: 0.1 / at)
        where = {**made.environment, "started": started, "earlier": [{"started": "2026-01-01"}]}
        book.write(dataclasses.replace(made, environment=where))
    precision.repeated(autoencoder.runs("paper", 50, train=False, ledger=tmp_path, learning_rates=[1e-3], seeds=[0]), tmp_path)
    assert shown == []


def test_without_records_the_page_says_so(shown, tmp_path):
    empty = autoencoder.runs("paper", 0, train=False, ledger=tmp_path)
    autoencoder.answer(empty)
    autoencoder.errors_figure(empty)
    autoencoder.curves_figures(empty)
    autoencoder.errors_table(empty)
    autoencoder.fates(empty)
    assert "No answer yet" in shown[0]
    assert shown[1:3] == ["There is nothing to show: no run has finished."] * 2
    assert "No run" in shown[3] and "No run" in shown[4]
    for table in (autoencoder.verdict_table, autoencoder.slow_table, autoencoder.divergent_table):
        table(empty)
        assert "not run" in shown[-1]


def test_trained_runs_on_digits_can_be_shown(tmp_path, shown, monkeypatch):
    drawn: dict[str, list[str]] = {}
    monkeypatch.setattr(pages, "figure", lambda figure, name, alt, caption, keys: drawn.update({name: list(keys)}))
    study_ = autoencoder.runs("smoke", 0, device="cpu", ledger=tmp_path)
    autoencoder.setting(study_)
    assert shown == [], "the paper's epochs are about MNIST"
    autoencoder.answer(study_)
    autoencoder.errors_figure(study_)
    autoencoder.curves_figures(study_)
    autoencoder.errors_table(study_)
    autoencoder.fates(study_)
    assert {name: len(keys) for name, keys in drawn.items()} == {
        "mnist-autoencoder-errors": 12,
        "mnist-autoencoder-curves-0-001": 6,
        "mnist-autoencoder-curves-0-01": 6,
    }
    assert not any("paper" in text.lower() for text in shown[1:]), "nothing of the paper stands beside digits"
