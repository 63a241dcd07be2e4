"""The MNIST autoencoder: reconstruction errors over the paper's curves, at each learning rate, and the verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from bokeh.models.ui import UIElement
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from gelu_study import activations, figures, interactive, judging, pages, published, statistics, study
from gelu_study.chapters import experiment
from gelu_study.judging import Judgement
from gelu_study.runs import RunRecord
from gelu_study.study import Study

Array = NDArray[np.float64]

EXPERIMENT = "mnist-autoencoder"
PAPER_EPOCHS = 250
PAPER_LOGS = 6
"""Test losses that the figures have of each epoch; ours have one."""
DIVERGENT = 1e-2
DIVERGED, STUCK, TRAINED = "diverged", "stuck", "trained"


def runs(scale: str, epochs: int, **options: Any) -> Study:
    """What `study.run` gives. With `epochs` 0 runs have the scale's own number of epochs, or, as the verdicts have it, fewer at the
    paper's scale while more runs of that length have records."""
    wanted = epochs or None
    if not epochs and scale in ("paper", "powered"):
        done = {e: study.run(EXPERIMENT, scale, epochs=e, **{**options, "train": False}) for e in (None, judging.REDUCED_EPOCHS)}
        wanted = max(done, key=lambda e: len(done[e].records))
    return study.run(EXPERIMENT, scale, epochs=wanted, **options)


def rates(found: Study) -> list[float]:
    """The learning rates, the greatest first."""
    return sorted({config.learning_rate for config in found.planned}, reverse=True)


def runs_of(found: Study, activation: str, rate: float) -> list[RunRecord]:
    """The records of an activation at a learning rate, by seed."""
    runs = [r for r in found.records if (r.config.activation, r.config.learning_rate) == (activation, rate)]
    return sorted(runs, key=lambda record: record.config.seed)


def names_of(found: Study, rate: float | None = None) -> list[str]:
    """The activations with records, at a rate or at any, in the order of figures."""
    present = {r.config.activation for r in found.records if rate in (None, r.config.learning_rate)}
    return [name for name in figures.STYLES if name in present]


def fate(record: RunRecord) -> str:
    """What became of a run: DIVERGED (see `judging.diverged`), STUCK (its training error ends above or within 5 % of that of always
    answering the mean image) or TRAINED."""
    if judging.diverged(record):
        return DIVERGED
    return TRAINED if record.final["train_loss"] <= _enough(record) else STUCK


def learnt(record: RunRecord) -> bool:
    """Whether a finished run's training error was, after any epoch, low enough for TRAINED."""
    return record.status == "finished" and min(record.curves["train_loss_epoch"]) <= _enough(record)


def _enough(record: RunRecord) -> float:
    """The training error from which a run counts as TRAINED."""
    return judging.MEAN_IMAGE_ERROR[record.config.dataset] / (1 + statistics.MARGIN)


def test_errors(runs: Sequence[RunRecord]) -> pd.Series:
    """Reconstruction error on the test images at the end, by seed; infinite for a run that diverged."""
    return judging.losses(runs, lambda record: math.inf if judging.diverged(record) else record.final["test_loss"])


def paper_error(activation: str, rate: float, epoch: float) -> float:
    """The paper's test error at an epoch, as plotted; NaN where there is no such curve."""
    if rate not in published.AUTOENCODER:
        return math.nan
    return published.last_point(*published.AUTOENCODER[rate], "test", activation, until=epoch)


def paper_curve(activation: str, rate: float, split: str, epochs: float) -> pd.DataFrame:
    """The published test curve, or the means of the training band, up to an epoch; empty where there is none."""
    empty = pd.DataFrame({"epoch": [], "value": [], "low": [], "high": []})
    if rate not in published.AUTOENCODER or activation not in published.NAMES:
        return empty
    table = published.bands(*published.AUTOENCODER[rate]) if split == "train" else published.curves(*published.AUTOENCODER[rate])
    table = table.rename(columns={"mean": "value", "vertex_min": "low", "vertex_max": "high"})
    here = (table["split"] == split) & (table["activation"] == published.NAMES[activation]) & (table["epoch"] <= epochs)
    return table[here].sort_values("epoch")


def setting(found: Study) -> None:
    """Say how many of the figures' epochs the runs have, and what the paper's own curves do after that."""
    epochs = found.planned[0].epochs
    if not experiment.is_mnist(found) or epochs == PAPER_EPOCHS:
        return
    lines = [
        f"> **{epochs} of {PAPER_EPOCHS} epochs.** The paper's figures span {PAPER_EPOCHS} epochs, these runs {epochs}. They are "
        f"compared with the paper's curves at the same epoch, and the verdicts below are about {epochs} epochs."
    ]
    if epochs < PAPER_EPOCHS:
        lines.append(f"> {paper_goes_on(epochs)}".rstrip(" >"))
    pages.text("\n".join(lines))


def paper_goes_on(epochs: int) -> str:
    """Whether the order of the paper's own test curves is the same at an epoch as at their end, where all are within the axes."""
    same, other = f"that of epoch {PAPER_EPOCHS}", f"another one than at epoch {PAPER_EPOCHS}"
    said: dict[str, list[str]] = {same: [], other: []}
    for rate in published.AUTOENCODER:
        early, late = ({name: paper_error(name, rate, at) for name in published.NAMES} for at in (epochs, PAPER_EPOCHS))
        if not any(math.isnan(error) for error in early.values()):
            kept = sorted(early, key=early.__getitem__) == sorted(late, key=late.__getitem__)
            said[same if kept else other].append(pages.rate(rate))
    parts = [f"{words} at a learning rate of {experiment.joined(at)}" for words, at in said.items() if at]
    return f"In the paper's own test curves the order at epoch {epochs} is {' and '.join(parts)}." if parts else ""


def answer(found: Study) -> None:
    """Whether GELU ties or outperforms at each learning rate, in sentences."""
    judgement = experiment.judged(found, judging.autoencoder_at_any_rate)
    pages.text("\n".join(answer_lines(judgement)))
    pages.records("mnist-autoencoder-answer", judgement.keys)


def answer_lines(judgement: Judgement) -> list[str]:
    """The answer as Markdown lines: a headline, then each learning rate."""
    groups = [f"At {pages.rate(rate)}" for rate in published.AUTOENCODER]
    return experiment.answer_lines(judgement, "GELU's reconstruction error on test images", groups)


@figures.typeset
def errors_by_rate(found: Study) -> Figure:
    """Test error at the end against the learning rate: a dot a run, a line through the medians, the paper's as diamonds."""
    figure, (ax,) = figures.panels(1, height=3.9)
    names, epochs = names_of(found), found.planned[0].epochs
    compared = False
    for place, name in enumerate(names):
        colour, line, marker = figures.STYLES[name]
        shift = 1.09 ** (place - (len(names) - 1) / 2)  # beside one another, on a logarithmic axis
        present = [rate for rate in rates(found) if runs_of(found, name, rate)]
        medians = [float(test_errors(runs_of(found, name, rate)).median()) for rate in present]
        shown = np.where(np.isfinite(medians), medians, np.nan)
        ax.plot(np.array(present) * shift, shown, color=colour, linestyle=line, zorder=3, gid=f"{name} medians")
        for rate in present:
            errors = test_errors(runs_of(found, name, rate)).to_numpy()
            lost = int(np.isinf(errors).sum())
            ax.plot(
                np.full(len(errors) - lost, rate * shift),
                errors[np.isfinite(errors)],
                marker,
                color=colour,
                alpha=0.65,
                ms=6,
                mew=0,
            )
            if lost:
                at_top: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "color": colour, "clip_on": False}
                ax.plot(rate * shift, 1.02, "x", ms=8, mew=2.2, gid=f"{name} diverged", **at_top)
            paper = paper_error(name, rate, epochs) if experiment.is_mnist(found) else math.nan
            if math.isfinite(paper):
                compared = True
                ax.plot(rate * shift, paper, "D", mfc="white", mec=colour, mew=1.8, ms=7, zorder=4)
    ax.axhline(judging.MEAN_IMAGE_ERROR[found.planned[0].dataset], color="#777777", lw=1.2, ls=(0, (1, 2)))
    ax.set_xscale("log")
    ax.set_xticks(rates(found), [pages.rate(rate) for rate in rates(found)])
    ax.minorticks_off()
    ax.set_xlabel("learning rate")
    ax.set_ylabel("test error (mean square)")
    figures.log_axis(ax, "y")
    extra = [Line2D([], [], color="#777777", lw=1.2, ls=(0, (1, 2)), label="mean image")]
    if compared:
        extra.append(Line2D([], [], marker="D", ls="", mfc="white", mec="#444444", mew=1.8, label="paper"))
    if any(judging.diverged(record) for record in found.records):
        extra.append(Line2D([], [], marker="x", ls="", color="#444444", mew=2.2, ms=8, label="diverged"))
    figures.legend(figure, names, extra)
    return figure


def median_words(found: Study, rate: float) -> str:
    """The activations' median test errors at a learning rate, for those who do not see the figure."""
    return figures.ascending({name: test_errors(runs_of(found, name, rate)).median() for name in names_of(found, rate)})


def errors_figure(found: Study) -> None:
    """Show `errors_by_rate`."""
    if experiment.drawable(found):
        epochs = found.planned[0].epochs
        sentence = (
            f"Reconstruction error on the test images after {epochs} epochs: a dot a run, lines through the medians"
            + (f", hollow diamonds the paper's curves at epoch {epochs}." if experiment.is_mnist(found) else ".")
            + " Dotted: always answering the mean training image. Lower is better."
        )
        caption = figures.caption(found.table, found.scale, sentence)
        alt = "Test reconstruction error of every run against the learning rate, for each activation. Medians at a rate of "
        alt += "; of ".join(f"{pages.rate(rate)}: {median_words(found, rate)}" for rate in rates(found))
        pages.figure(errors_by_rate(found), "mnist-autoencoder-errors", alt, caption, found.table["key"])


@figures.typeset
def curves(found: Study, rate: float, *, smoothed: bool = True) -> Figure:
    """Training and test error over the epochs at a learning rate, over the published curves; the test error as it was measured if
    it is not to be `smoothed` as the paper's is."""
    figure, axes = figures.panels(2, height=2.7, sharex=True)
    names, epochs = names_of(found, rate), found.planned[0].epochs
    compared = False
    for ax, split in zip(axes, ("train", "test"), strict=True):
        for name in names:
            figures.band(ax, name, *_ours(runs_of(found, name, rate), split, smoothed), gid=f"{name} {split}")
            paper = paper_curve(name, rate, split, epochs) if experiment.is_mnist(found) else pd.DataFrame()
            if len(paper):
                compared = True
                figures.paper_curve(ax, name, paper["epoch"], paper["value"], gid=f"published {name} {split}")
                if split == "train":
                    colour = figures.STYLES[name][0]
                    ax.fill_between(paper["epoch"], paper["low"], paper["high"], color=colour, alpha=0.12, lw=0)
        ax.set_title("Training error" if split == "train" else "Test error")
        ax.set_ylabel("mean square")
        figures.log_axis(ax, "y")
        ax.set_xlim(0, epochs)
    axes[-1].set_xlabel("epoch")
    figures.legend(figure, names, [figures.paper_key()] if compared else [])
    return figure


def each_seed(found: Study, rate: float, *, smoothed: bool = True) -> UIElement:
    """`curves` at a learning rate, one for each run, without the paper's."""
    runs = [run for name in names_of(found, rate) for run in runs_of(found, name, rate)]
    panels = []
    for split, title in (("train", "Training error"), ("test", "Test error")):
        lines = []
        for run in runs:
            epochs, values = _ours([run], split, smoothed)
            lines.append((run, epochs, values[0]))
        panels.append(interactive.Panel(title, "mean square", lines))
    return interactive.curves(panels)


def _ours(runs: Sequence[RunRecord], split: str, smoothed: bool) -> tuple[Array, Array]:
    """Epochs [points] and errors [runs, points], on request smoothed as the paper's are; infinite where a diverged run has no more
    values.

    A training error is its epoch's mean and stands in the middle of the epoch, as the published bands' do.
    """
    config = runs[0].config
    curve = {"train": "train_loss_epoch", "test": "test_loss"}[split]
    values: Array = np.full((len(runs), config.epochs), np.inf)
    for row, run in zip(values, runs, strict=True):
        logged = run.curves.get(curve, [])[: config.epochs]
        b = smoothing(config.learning_rate) if smoothed and split == "test" else 0.0
        row[: len(logged)] = published.smooth(logged, b)
    epochs = np.arange(1.0, config.epochs + 1)
    return (epochs - 0.5 if split == "train" else epochs), values


def smoothing(rate: float) -> float:
    """The b of the test error, one value an epoch, by which it lags as much as the paper's, PAPER_LOGS values an epoch."""
    figure, panel = published.AUTOENCODER.get(rate, (0, ""))
    return float(published.SMOOTHING.get((figure, panel, "test"), 0.0) ** PAPER_LOGS)


def curves_figures(found: Study) -> None:
    """Show `curves` of every learning rate, the paper's first."""
    if not experiment.drawable(found):
        return
    left_out = []
    for rate in sorted(rates(found), key=lambda rate: (rate not in published.AUTOENCODER, -rate)):
        shown = found.table[found.table["learning_rate"] == rate]
        if (shown["status"] != "finished").all():
            left_out.append(f"{pages.rate(rate)} ({'every run diverged' if len(shown) else 'no run yet'})")
            continue
        of = (
            f" over the paper's figure {published.AUTOENCODER[rate][0]} ({published.AUTOENCODER[rate][1]}, dotted)"
            if rate in published.AUTOENCODER and experiment.is_mnist(found)
            else ""
        )
        where = of.replace(" (main, dotted)", " (dotted)")
        b = smoothing(rate)
        smoothed = f" The test error is smoothed with b = {pages.number(b, 2)} an epoch." if b > 1e-3 else ""
        sentence = f"Learning rate {pages.rate(rate)}{where}: the lower, the better.{smoothed}"
        caption = figures.caption(shown, found.scale, sentence, bands=True)
        name = f"mnist-autoencoder-curves-{pages.rate(rate).replace('.', '-')}"
        alt = f"Training and test reconstruction error over the epochs at a learning rate of {pages.rate(rate)}. "
        alt += f"Median test errors at the end: {median_words(found, rate)}"
        pages.figure(curves(found, rate), name, alt, caption, shown["key"])
        interactive.show(each_seed(found, rate), f"{name}-each-seed", interactive.EACH_SEED)
    if left_out:
        pages.text(f"There are no curves at a learning rate of {experiment.joined(left_out)}.")


def errors_table(found: Study) -> None:
    """Test and training errors at the end beside the paper's."""
    if not found.records:
        pages.text("No run has a record yet.")
        return
    epochs = found.planned[0].epochs
    rows = []
    for rate in rates(found):
        for name in names_of(found, rate):
            runs = runs_of(found, name, rate)
            errors = test_errors(runs)
            trained = judging.losses(runs, lambda record: math.inf if judging.diverged(record) else record.final["train_loss"])
            lost = int(np.isinf(errors).sum())
            line = {"rate": pages.rate(rate), "activation": experiment.title(name)}
            line["test error"] = pages.interval(*statistics.median_interval(errors))
            if experiment.is_mnist(found):
                line["paper"] = pages.number(paper_error(name, rate, epochs))
            line["training error"] = pages.interval(*statistics.median_interval(trained))
            line["n"] = f"{len(runs)}" + (f" ({lost} diverged)" if lost else "")
            rows.append(line)
    most = max(len(runs_of(found, name, rate)) for rate in rates(found) for name in names_of(found, rate))
    few = " With three seeds or fewer the interval is at most their range." if most <= 3 else ""
    paper = f" <i>Paper</i>: the test curve at epoch {epochs}, as plotted." if experiment.is_mnist(found) else ""
    caption = f"Mean squared error of a pixel after {epochs} epochs: median over n seeds [95 % interval].{few}{paper}"
    pages.table(pd.DataFrame(rows), "mnist-autoencoder-final", caption, found.table["key"])


def verdict_table(found: Study) -> None:
    """GELU against its rivals at the paper's learning rates."""
    caption = "GELU's test error at the end as a multiple of its rival's: below 1, GELU is better."
    judgement = experiment.judged(found, judging.autoencoder_at_any_rate)
    experiment.comparison_table(found, judgement, "mnist-autoencoder-verdicts", f"{caption}{_paper_at(found)}")


def slow_table(found: Study) -> None:
    """Whether the least learning rate leaves higher errors, for each activation."""
    least = pages.rate(min(published.AUTOENCODER))
    caption = (
        f"Test error at a greater learning rate as a multiple of that at {least}: below 1, the greater rate is the better one."
    )
    judgement = experiment.judged(found, judging.autoencoder_errs_more)
    experiment.comparison_table(found, judgement, "mnist-autoencoder-slow", f"{caption}{_paper_at(found)}")


def divergent_table(found: Study) -> None:
    """Whether GELU and ReLU converge poorly at 0.01, and the verdict on ELU."""
    elu = experiment.judged(found, judging.elu_diverges)
    poorly = experiment.judged(found, judging.autoencoder_converges_poorly)
    pages.text(
        f"The paper says that ELU diverged: {pages.badge(elu.verdict)}. And that GELU and ReLU converged poorly: "
        f"{pages.badge(poorly.verdict)}."
    )
    caption = f"Test error at 0.001 as a multiple of that at {pages.rate(DIVERGENT)}: below 1, the greater rate is the worse one."
    experiment.comparison_table(found, poorly, "mnist-autoencoder-divergent", caption)


def _paper_at(found: Study) -> str:
    return f" <i>Paper</i>: from its test curves at epoch {found.planned[0].epochs}." if experiment.is_mnist(found) else ""


def fates(found: Study) -> None:
    """What happened to each activation at a learning rate of 0.01, in sentences, with the verdicts on both parts of the claim."""
    pages.text("\n".join(fate_lines(found)))
    shown = found.table[found.table["learning_rate"] == DIVERGENT] if found.records else pd.DataFrame({"key": []})
    pages.records("mnist-autoencoder-fates", shown["key"])


def fate_lines(found: Study) -> list[str]:
    """What happened at 0.01, a line an activation."""
    lines = []
    for name in names_of(found, DIVERGENT):
        runs = runs_of(found, name, DIVERGENT)
        lines.append(f"- **{activations.title(name)}:** {', and '.join(_told(runs))}.")
    if not lines:
        return [f"No run at a learning rate of {pages.rate(DIVERGENT)} has a record yet."]
    return lines


def _told(runs: Sequence[RunRecord]) -> list[str]:
    """How many of the runs met each fate, and when or where."""
    said = []
    for kind in (DIVERGED, STUCK, TRAINED):
        these = [run for run in runs if fate(run) == kind]
        if not these:
            continue
        count = f"{len(these)} of {len(runs)} runs"
        if kind == DIVERGED:
            when = sorted(run.diverged["epoch"] for run in these if run.diverged)
            high = len(these) - len(when)
            epochs = [str(epoch) for epoch in dict.fromkeys(when)]
            parts = [f"in epoch{'s' * (len(epochs) > 1)} {experiment.joined(epochs)}"] if when else []
            parts += [f"{high} by ending above twice the mean image's error"] if high else []
            said.append(f"{count} diverged, {' and '.join(parts)}")
            continue
        errors = [run.final["test_loss"] for run in these]
        middle = f"median test error {pages.number(float(np.median(errors)))}"
        said.append(f"{count} got stuck at the mean image's error ({middle})" if kind == STUCK else f"{count} trained ({middle})")
    return said
