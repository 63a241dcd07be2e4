"""The page on CIFAR-100: the orders by error and by loss, and the figure's losses, against the published tables and made-up runs."""

from __future__ import annotations

import csv
import dataclasses

import numpy as np
import pytest

import synthetic
from gelu_study import judging, paths, published
from gelu_study.chapters import cifar100, images
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

pytestmark = pytest.mark.usefixtures("few_resamples")

PAPER = cifar100.PAPER
ERRORS = {"gelu_tanh": 20.0, "relu": 22.5, "elu": 24.0}
LOSSES = {"gelu_tanh": 0.9, "relu": 1.0, "elu": 0.95}


def made_up(config: RunConfig) -> RunRecord:
    """Errors and losses that fall to what their activation has, in another order each."""

    def curve(name: str, epochs: np.ndarray) -> np.ndarray:
        end = (ERRORS if "error" in name else LOSSES)[config.activation] * (1 + 0.001 * config.seed)
        return end * (1 + (config.epochs - epochs) / config.epochs)

    return synthetic.finished(config, curve)


@pytest.fixture(scope="module")
def whole() -> Study:
    return synthetic.completed("cifar100-wrn", "paper", made_up)


@pytest.fixture(scope="module")
def nothing() -> Study:
    return synthetic.completed("cifar100-wrn", "paper", lambda config: None)


def last_losses() -> dict[str, float]:
    """The figure's last test losses without the smoothing, read by the csv module."""
    with (paths.PAPER / "curves-unsmoothed.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["figure"], row["split"]) == ("6", "test")]
    return {row["activation"]: float(row["raw_value"]) for row in sorted(rows, key=lambda row: int(row["index"]))}


def test_the_paper_orders_two_rivals_differently_by_error_and_by_loss():
    losses = last_losses()
    assert PAPER.last("loss") == {name: losses[theirs] for name, theirs in published.NAMES.items()}
    assert PAPER.last("error") == {}
    said = cifar100.order_lines(synthetic.completed("cifar100-wrn", "paper", lambda config: None))
    assert said[0] == (
        "- In the paper: by test error GELU (tanh) 20.74 %, ReLU 21.77 %, ELU 22.98 %; "
        f"by log loss GELU (tanh) {losses['GELU']:.3f}, ELU {losses['ELU']:.3f}, ReLU {losses['ReLU']:.3f}: another order."
    )
    assert "errs in 22.89 %" in said[-1] and len(said) == 2


def test_our_own_orders_come_from_the_records(whole):
    lines = cifar100.order_lines(whole)
    assert lines[1] == (
        "- Here, by medians: by test error GELU (tanh) 20.02 %, ReLU 22.52 %, ELU 24.02 %; "
        "by log loss GELU (tanh) 0.901, ELU 0.951, ReLU 1.00: another order."
    )
    swapped = [
        dataclasses.replace(run, final=run.final | {"test_loss": 2.0}) if run.config.activation == "elu" else run
        for run in whole.records
    ]
    said = cifar100.order_lines(dataclasses.replace(whole, records=tuple(swapped)))[1]
    assert "ReLU 1.00, ELU 2.00: the same order." in said
    gone = [synthetic.diverged(run.config) if run.config.activation == "gelu_tanh" else run for run in whole.records]
    assert "ELU 24.02 %, GELU (tanh) ∞ %;" in cifar100.order_lines(dataclasses.replace(whole, records=tuple(gone)))[1]


def test_nothing_is_chosen_and_every_run_decides(whole):
    assert judging.deciding(whole) == whole.records and len(whole.records) == 9
    assert images.tuned(whole) == [] and images.choices(whole).empty


def test_the_losses_lie_over_figure_6_smoothed_alike(whole):
    drawing = images.curves(whole.records, "loss", PAPER)
    lines = {line.get_gid(): line for ax in drawing.axes for line in ax.get_lines()}
    for split, curve in (("train", "train_loss_epoch"), ("test", "test_loss")):
        smoothed = []
        for run in images.runs_of(whole, "elu"):
            s, row = run.curves[curve][0], []
            for value in run.curves[curve]:
                s = 0.7 * s + 0.3 * value
                row.append(s)
            smoothed.append(row)
        np.testing.assert_allclose(lines[f"elu {split}"].get_ydata(), np.median(smoothed, axis=0))
        assert lines[f"published elu {split}"].get_xdata()[-1] == 50
    assert lines["published elu test"].get_xdata()[0] == 1, "plotted at 0"
    assert [ax.get_ylabel() for ax in drawing.axes] == ["nats", "nats"]


def test_the_table_has_errors_and_losses_beside_the_paper_s(whole, nothing, shown):
    images.final_table(whole, PAPER)
    row = next(line for line in shown[0].splitlines() if "ReLU" in line)
    assert ">22.52 <" in row and " 21.77 " in row and ">1.00 <" in row and f" {last_losses()['ReLU']:.3f} " in row
    images.final_table(nothing, PAPER)
    row = next(line for line in shown[1].splitlines() if "ELU" in line and "G" not in line and "Re" not in line)
    assert " 22.98 " in row and f" {last_losses()['ELU']:.3f} " in row and row.split()[-1] == "0"
    assert "None of our runs is there." in shown[1]


def test_the_answer_and_its_absence_in_words(whole, nothing, shown):
    images.answer(whole, PAPER)
    assert "**Yes.**" in shown[0] and "- After 50 epochs: GELU's is 11 % lower than ReLU's" in shown[0]
    assert "- ELU: median test error 24.02 %" in shown[0] and "the paper's is 22.98 %." in shown[0]
    images.answer(nothing, PAPER)
    images.standing(nothing, nothing)
    images.verdict_table(nothing, PAPER)
    assert "**No answer yet.**" in shown[1] and "No training of 50 epochs on all 50,000 training images" in shown[2]
    row = next(line for line in shown[3].splitlines() if "GELU / ELU" in line)
    assert "not run" in row and f" {20.74 / 22.98:.3f} " in row
    assert "4.7 % lower than ReLU's and 9.7 % lower than ELU's" in shown[4]


def test_the_papers_difference_to_relu_is_as_wide_as_the_margin():
    said = images.margin_sentence(PAPER)
    assert "4.7 % lower than ReLU's and 9.7 % lower than ELU's" in said, "1 - 20.74 / 21.77, 1 - 20.74 / 22.98"
    assert "to ReLU is just that" in said and "measured precisely enough" not in said and "differences are greater" not in said
