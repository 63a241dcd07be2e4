"""The page on CIFAR-10, and what the pages on CIFAR share: curves and tables against plain recomputation, words against made-up runs."""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path

import nbformat
import numpy as np
import pytest

import synthetic
from gelu_study import judging, notebooks, pages, paths, published, statistics
from gelu_study.chapters import cifar10, images
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study

pytestmark = pytest.mark.usefixtures("few_resamples")

EXPERIMENT = "cifar10-convnet"
PAPER = cifar10.PAPER
ENDS = {"gelu_tanh": 6.0, "relu": 8.0, "elu": 9.0}
BEST = {"gelu_tanh": 1e-4, "relu": 1e-3, "elu": 1e-4}
JITTER = {"gelu_tanh": (0.0, 0.01, -0.01), "relu": (0.01, 0.0, -0.01), "elu": (0.0, 0.0, 0.01)}


def end(config: RunConfig) -> float:
    """Where a made-up run's test error ends; runs that validation judges err ten times as much, so that a mixture would show."""
    worse = 1.0 if config.learning_rate == BEST[config.activation] else 2.0
    on_part = 10.0 if config.validation_examples and config.dataset == "cifar10" and config.epochs == 200 else 1.0
    return min(99.0, ENDS[config.activation] * worse * on_part) * math.exp(JITTER[config.activation][config.seed % 3])


def made_up(config: RunConfig) -> RunRecord:
    """Errors that fall to `end`, with a wave on them; training errors a tenth of that, losses a hundredth."""
    scale = {"train_error_epoch": 0.1, "validation_error": 1.0, "test_error": 1.0}

    def curve(name: str, epochs: np.ndarray) -> np.ndarray:
        course = np.minimum(1 + (config.epochs - epochs) / config.epochs * (1.5 + np.cos(epochs)) / 5, 99 / end(config))
        return end(config) * course * scale.get(name, 0.01)

    return synthetic.finished(config, curve)


@pytest.fixture(scope="module")
def whole() -> Study:
    """The choice and the final runs, at the paper's scale."""
    return synthetic.completed(EXPERIMENT, "paper", made_up)


@pytest.fixture(scope="module")
def quick() -> Study:
    return synthetic.completed(EXPERIMENT, "quick", made_up)


@pytest.fixture(scope="module")
def nothing() -> dict[str, Study]:
    """The study of each scale without records."""
    return {scale: synthetic.completed(EXPERIMENT, scale, lambda config: None) for scale in ("paper", "powered", "quick")}


@pytest.fixture
def drawn(monkeypatch) -> dict[str, tuple]:
    """What the page draws: each figure with its caption and keys, by name."""
    figures_: dict[str, tuple] = {}
    monkeypatch.setattr(
        pages, "figure", lambda figure, name, alt, caption, keys: figures_.update({name: (figure, caption, list(keys))})
    )
    return figures_


def changed(found: Study, **factors: Sequence[float]) -> Study:
    """The study with the last test error of some activations' deciding runs multiplied, by seed."""
    decide = {run.config.key for run in judging.deciding(found)}

    def mend(record: RunRecord) -> RunRecord:
        by_seed = factors.get(record.config.activation)
        if by_seed is None or record.config.key not in decide:
            return record
        value = record.final["test_error"] * by_seed[record.config.seed]
        curves = record.curves | {"test_error": [*record.curves["test_error"][:-1], value]}
        return dataclasses.replace(record, curves=curves, final=record.final | {"test_error": value})

    return dataclasses.replace(found, records=tuple(map(mend, found.records)))


def lost(found: Study, *cells: tuple[str, int]) -> Study:
    """The study with some deciding runs, by activation and seed, diverged."""
    decide = {run.config.key for run in judging.deciding(found)}

    def gone(record: RunRecord) -> RunRecord:
        cell = record.config.activation, record.config.seed
        return synthetic.diverged(record.config) if cell in cells and record.config.key in decide else record

    return dataclasses.replace(found, records=tuple(map(gone, found.records)))


def paper_rows(name: str, figure: str, split: str, activation: str) -> list[dict[str, str]]:
    """Rows of the published curves, read by the csv module."""
    with (paths.PAPER / f"{name}.csv").open(newline="") as file:
        wanted = (figure, split, activation)
        return [row for row in csv.DictReader(file) if (row["figure"], row["split"], row["activation"]) == wanted]


# ---- which runs decide


def test_the_runs_on_all_images_decide_where_a_choice_comes_first(whole, quick, nothing):
    assert len(whole.records) == 18 and whole.missing == 0
    decide = judging.deciding(whole)
    assert {(r.config.train_examples, r.config.validation_examples) for r in decide} == {(50_000, 0)} and len(decide) == 9
    assert {(r.config.activation, r.config.learning_rate) for r in decide} == set(BEST.items())
    assert judging.deciding(quick) == quick.records and len(quick.records) == 9
    assert judging.deciding(nothing["paper"]) == ()
    assert [(c.train_examples, c.validation_examples) for c in map(images.full, (whole, nothing["powered"]))] == [(50_000, 0)] * 2


# ---- curves


@pytest.mark.parametrize("figure", [5, 6])
def test_the_figure_s_points_are_epochs(figure):
    """The unsmoothed curves hold each point's place, counted from 0."""
    found = published.by_epoch(figure)
    for split, activation in (("test", "GELU"), ("train", "ELU")):
        rows = paper_rows("curves-unsmoothed", str(figure), split, activation)
        places = {round(float(row["epoch_plotted"]), 2): int(row["index"]) for row in rows}
        curve = published.curves(figure, "main")
        mine = (found["split"] == split) & (found["activation"] == activation)
        epochs = dict(zip(curve.loc[mine, "epoch"].round(2), found.loc[mine, "epoch"], strict=True))
        both = set(places) & set(epochs)
        assert len(both) > 30 and all(epochs[plotted] == places[plotted] + 1 for plotted in both)
    assert found["epoch"].max() == published.POINTS[figure]


def test_ours_lie_over_the_paper_s_smoothed_alike(whole):
    drawing = images.curves(judging.deciding(whole), "error", PAPER)
    lines = {line.get_gid(): line for ax in drawing.axes for line in ax.get_lines()}
    assert len(lines) == 12
    for split, curve in (("train", "train_error_epoch"), ("test", "test_error")):
        smoothed = []
        for run in images.runs_of(whole, "relu"):
            s, row = run.curves[curve][0], []
            for value in run.curves[curve]:
                s = 0.7 * s + 0.3 * value
                row.append(s)
            smoothed.append(row)
        np.testing.assert_allclose(lines[f"relu {split}"].get_ydata(), np.median(smoothed, axis=0))
        np.testing.assert_array_equal(lines[f"relu {split}"].get_xdata(), np.arange(1, 201))
        rows = [float(row["value"]) for row in paper_rows("curves", "5", split, "ReLU")]
        np.testing.assert_allclose(lines[f"published relu {split}"].get_ydata(), rows)
        assert lines[f"published relu {split}"].get_xdata()[-1] == 200


def test_the_test_errors_at_the_end_are_all_inside_the_axes(whole):
    ax = images.curves(judging.deciding(whole), "error", PAPER).axes[1]
    assert ax.get_title(loc="left") == "Test error"
    low, high = ax.get_ylim()
    assert low < min(float(np.asarray(line.get_ydata())[-1]) for line in ax.get_lines()) and high < 15
    assert high > max(float(row["value"]) for name in published.NAMES.values() for row in paper_rows("curves", "5", "test", name))


def test_runs_of_another_scale_have_a_figure_of_their_own(whole, quick, nothing, drawn):
    images.curves_figure(whole, PAPER)
    _, caption, keys = drawn.pop(f"{EXPERIMENT}-curves")
    assert drawn == {} and len(keys) == 9 and "b = 0.7" in caption and "scale: paper" in caption
    images.curves_figure(quick, PAPER)
    images_ = {
        name: ({line.get_gid() for ax in figure.axes for line in ax.get_lines()}, keys) for name, (figure, _, keys) in drawn.items()
    }
    assert {name: len(keys) for name, (_, keys) in images_.items()} == {f"{EXPERIMENT}-curves": 0, f"{EXPERIMENT}-curves-own": 9}
    assert all(gid.startswith("published") for gid in images_[f"{EXPERIMENT}-curves"][0])
    assert not any(gid.startswith("published") for gid in images_[f"{EXPERIMENT}-curves-own"][0])
    drawn.clear()
    images.curves_figure(nothing["paper"], PAPER)
    images.curves_figure(dataclasses.replace(whole, records=lost(whole, *[(n, s) for n in ENDS for s in range(3)]).records), PAPER)
    assert list(drawn) == [f"{EXPERIMENT}-curves"] and "None of ours lies over it." in drawn[f"{EXPERIMENT}-curves"][1]


def test_a_diverged_run_ends_its_curve_and_counts_as_the_worst(whole):
    drawing = images.curves(judging.deciding(lost(whole, ("elu", 0), ("elu", 1))), "error", PAPER)
    (line,) = [line for ax in drawing.axes for line in ax.get_lines() if line.get_gid() == "elu test"]
    values = np.asarray(line.get_ydata())
    assert np.isfinite(values[0]) and np.isnan(values[1:]).all(), "the median of three of which two diverged in epoch 2"


# ---- words and tables


def test_the_answer_in_words(whole):
    text = "\n".join(images.answer_lines(whole, PAPER))
    assert "**Yes.** GELU's test error is lower in 2 of 2 comparisons." in text and "reproduced" in text
    relu = [run.final["test_error"] for run in images.runs_of(whole, "relu")]
    ratios = np.array([run.final["test_error"] for run in images.runs_of(whole, "gelu_tanh")]) / relu
    assert f"- After 200 epochs: GELU's is {100 * (1 - np.median(ratios)):.0f} % lower than ReLU's (95 % interval" in text
    assert f"- ReLU: median test error {np.median(relu):.2f} % (95 % interval" in text
    assert "), 3 runs; the paper's is 8.16 %." in text
    assert "Seeds that" not in text, "nothing is undecided"


def test_a_changed_record_changes_the_sentences(whole):
    text = "\n".join(images.answer_lines(changed(whole, elu=(0.5, 0.5, 0.5)), PAPER))
    assert "**Not in every comparison.** GELU's test error is lower in 1, higher in 1 of 2 comparisons." in text
    assert "- ELU: median test error 4.50 %" in text
    wide = changed(whole, relu=(0.7, 0.8, 0.9))
    text = "\n".join(images.answer_lines(wide, PAPER))
    assert "**Undecided.** GELU's test error is lower in 1, undecided in 1 of 2 comparisons." in text
    errors = [[run.final["test_error"] for run in images.runs_of(wide, name)] for name in ("gelu_tanh", "relu")]
    d = np.log(errors[0]) - np.log(errors[1])
    needed = statistics.seeds_needed(float(d.mean()), float(d.std(ddof=1)))
    assert text.endswith(f"difference and spread seen so far: {needed:.0f} against ReLU.")


def test_an_activation_that_diverged_has_no_median(whole):
    text = "\n".join(images.answer_lines(lost(whole, ("relu", 0), ("relu", 1)), PAPER))
    assert "- ReLU: median test error infinite, for most runs diverged, 3 runs" in text
    assert "GELU's is infinitely" not in text


def test_tables_hold_the_medians_beside_the_paper(whole, shown):
    images.final_table(lost(whole, ("elu", 2)), PAPER)
    row = next(line for line in shown[0].splitlines() if "ReLU" in line)
    errors = [run.final["test_error"] for run in images.runs_of(whole, "relu")]
    trained = [run.final["train_error"] for run in images.runs_of(whole, "relu")]
    assert f">{np.median(errors):.2f} <" in row and " 8.16 " in row and f">{np.median(trained):.3f} <" in row
    assert "3 (1 diverged)" in next(
        line for line in shown[0].splitlines() if "ELU" in line and "ReLU" not in line and "GELU" not in line
    )
    images.verdict_table(whole, PAPER)
    row = next(line for line in shown[1].splitlines() if "GELU / ReLU" in line)
    assert f" {7.89 / 8.16:.3f} " in row and "reproduced" in row


def test_beside_short_runs_no_number_of_the_paper_stands(quick, shown):
    images.final_table(quick, PAPER)
    assert "8.16" not in shown[0] and "paper" not in shown[0].lower()
    assert "the paper's is" not in "\n".join(images.answer_lines(quick, PAPER))


def test_the_margin_is_compared_with_the_paper_s_own_differences():
    said = images.margin_sentence(PAPER)
    assert "3.3 % lower than ReLU's and 6.2 % lower than ELU's" in said, "1 - 7.89 / 8.16, 1 - 7.89 / 8.41"
    assert "as the paper's to ReLU, measured" in said and "ELU, measured" not in said.replace("ReLU, measured", "")


def test_learning_rates_and_their_edges(whole, shown):
    images.rates_table(whole)
    table, sentence = shown
    assert len(re.findall("<b>", table)) == 3 and table.count(">edge<") == 1
    row = next(line for line in table.splitlines() if "GELU" in line and "<b>0.0001</b>" in line)
    tried = {run.config.learning_rate: run.final for run in images.tuned(whole) if run.config.activation == "gelu_tanh"}
    assert f">{tried[1e-4]['validation_error']:.2f}<" in row and len(tried) == 3
    assert sentence == (
        "Validation chose GELU (tanh) 0.0001, ReLU 0.001 and ELU 0.0001. "
        "At the edge of the grid, so that a better one may lie outside: ReLU."
    )


def test_an_unfinished_grid_chooses_nothing(shown):
    found = synthetic.completed(EXPERIMENT, "paper", lambda config: made_up(config) if config.learning_rate == 1e-3 else None)
    assert len(found.records) == 3 and found.choice_pending
    images.rates_table(found)
    assert "<b>" not in shown[0] and shown[1] == "No learning rate can be chosen while the grid of learning rates is incomplete."
    assert images.answer_lines(found, PAPER)[0].startswith("**No answer yet.**")
    images.standing(found, found)
    assert "3 of the 9 runs that choose the learning rates have a record." in shown[-1]


def test_a_single_rate_is_no_choice(quick, shown):
    images.rates_table(quick)
    assert shown == ["At this scale nothing is chosen: every run has a learning rate of 0.001."]


def test_the_top_says_in_plain_words_what_is_not_there(whole, quick, nothing, shown):
    assert images.standing_lines(whole, quick) == images.standing_lines(quick, quick) == []
    for scale in ("paper", "powered"):
        said = "\n".join(images.standing_lines(nothing[scale], quick))
        assert "**Not run at full scale.** No training of 200 epochs on all 50,000 training images has a record yet" in said
        assert "9 runs of 10 epochs on 5,000 images" in said
    images.standing(nothing["paper"], nothing["quick"])
    assert "Nothing shorter has a record either." in shown[0]


def test_short_runs_are_told_apart(whole, quick, nothing, shown):
    images.short_runs(whole, quick)
    assert "10 epochs on 5,000 images" in shown[0] and "no verdict rests on them" in shown[0] and "9 of 9 runs have a record" in shown[0]
    row = next(line for line in shown[1].splitlines() if "ReLU" in line)
    assert f">{np.median([r.final['test_error'] for r in images.runs_of(quick, 'relu')]):.2f} <" in row
    assert "scale: quick" in shown[1]
    images.short_runs(quick, quick)
    assert shown[2] == "These are the runs that this page shows above."
    images.short_runs(whole, nothing["quick"])
    assert "None of its 9 runs has a record yet." in shown[3]


def test_the_page_says_on_how_many_images_its_runs_were_trained(whole, quick, shown):
    pages.provenance(whole)
    assert "45,000 training and 5,000 validation examples or 50,000 training and no validation examples" in shown[0]
    pages.progress(quick)
    assert "**A reduced run.** 10 epochs on 5,000 images and 3 seeds" in shown[1]


def test_short_runs_are_read_from_the_page_s_ledger(tmp_path, whole):
    assert images.short(whole, str(tmp_path)).records == ()
    assert images.short(whole, str(tmp_path)).scale == "quick"


@pytest.mark.parametrize("experiment", ["cifar10-convnet", "cifar10-fast"])
def test_operations_against_a_count_by_hand(experiment):
    if experiment == "cifar10-convnet":
        layers = [(3, 96, 3, 32), *[(96, 96, 3, 32)] * 2, (96, 192, 3, 16), *[(192, 192, 3, 16)] * 2, (192, 192, 3, 6)]
        layers += [(192, 192, 1, 6)] * 2 + [(192, 10, 1, 1)]
        seen = 200 * 50_000
    else:
        layers = [
            (3, 24, 2, 31),
            (24, 64, 3, 31),
            (64, 64, 3, 15),
            (64, 256, 3, 15),
            (256, 256, 3, 7),
            (256, 256, 3, 7),
            (256, 256, 3, 3),
        ]
        layers += [(256, 10, 1, 1)]
        seen = 10 * 48 * 1024
    forward = sum(inputs * outputs * size**2 * side**2 for inputs, outputs, size, side in layers)
    config = images.full(synthetic.completed(experiment, "paper", lambda config: None))
    assert images.petaflop(config) == pytest.approx(6 * forward * seen / 1e15)


def test_what_a_run_costs(whole, nothing, monkeypatch):
    monkeypatch.setattr(images, "petaflop", lambda config: 24.0)
    assert "200 epochs on 50,000 images takes 24.0 PFLOP" in images.cost_lines(nothing["paper"])[0]
    assert images.cost_lines(nothing["paper"])[1:] == ["- No run has been timed yet."]
    timed = [
        dataclasses.replace(run, environment=run.environment | {"seconds": 300.0 + 60 * run.config.seed, "device_name": "a GPU"})
        for run in whole.records
    ]
    (line,) = images.cost_lines(dataclasses.replace(whole, records=tuple(timed)))[1:]
    assert line == "- On a GPU (cpu): 6.00 minutes a run, 66.7 TFLOP a second (median of 9 runs, with evaluation)."


def test_the_paper_s_own_numbers(shown, monkeypatch):
    rows: list = []
    monkeypatch.setattr(pages, "plain_table", rows.append)
    cifar10.paper_table()
    last = {name: paper_rows("curves-unsmoothed", "5", "test", theirs)[-1] for name, theirs in published.NAMES.items()}
    assert [float(value) for value in rows[0].iloc[:, 2]] == [
        pytest.approx(float(row["raw_value"]), abs=0.005) for row in last.values()
    ]
    assert list(rows[0].iloc[:, 1]) == ["7.89", "8.16", "8.41"]
    assert "agree but for ELU (8.41 against 8.37 %)." in shown[0]
    assert cifar10.paper_sentence({"relu": "8.16"}, {"relu": 8.1601}) == "Text and figure agree."


# ---- pages


NOTEBOOKS = ("cifar10-convnet", "cifar100-wrn", "cifar10-fast")


def outputs(executed: Path) -> str:
    cells = nbformat.read(executed, as_version=4).cells
    return "\n".join(str(part) for c in cells if c.cell_type == "code" for o in c.outputs for part in o.get("data", {}).values())


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_page_trains_on_digits_and_shows_what_came_out(name, tmp_path):
    ledger = tmp_path / "runs"
    given = {
        "scale": "smoke",
        "ledger": str(ledger),
        "device": "cpu",
        "train": True,
        "seeds": [0],
        "activations": ["gelu_tanh", "relu"],
    }
    text = outputs(notebooks.execute(paths.NOTEBOOKS / f"{name}.ipynb", tmp_path / "out.ipynb", given))
    assert len(list(ledger.rglob("*.json"))) == 2
    assert "say nothing about CIFAR-10" in text and "2 of 2 planned" in text and "Not run at full scale" not in text


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_without_records_the_page_says_so_and_still_runs(name, tmp_path):
    given = {"ledger": str(tmp_path / "none"), "train": False}
    declared = notebooks.parameters(paths.NOTEBOOKS / f"{name}.ipynb")
    given = {key: value for key, value in given.items() if value != declared[key].default}
    text = outputs(notebooks.execute(paths.NOTEBOOKS / f"{name}.ipynb", tmp_path / "out.ipynb", given))
    assert "Not run at full scale" in text and "No answer yet" in text and not (tmp_path / "none").exists()
    assert declared["train"].default is False, "a full training takes days"


def test_every_figure_and_table_has_a_name_of_its_own(whole, quick, monkeypatch):
    named: list[str] = []
    monkeypatch.setattr(pages, "text", lambda said: None)
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: named.append(name))
    monkeypatch.setattr(pages, "figure", lambda figure, name, alt, caption, keys: named.append(name))
    monkeypatch.setattr(images, "petaflop", lambda config: 1.0)
    images.curves_figure(whole, PAPER)
    for show in (images.final_table, images.verdict_table):
        show(whole, PAPER)
    images.rates_table(whole)
    images.short_runs(whole, quick)
    assert len(set(named)) == len(named) == 5 and all(name.startswith(f"{EXPERIMENT}-") for name in named)
