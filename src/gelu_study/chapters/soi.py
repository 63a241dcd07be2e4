"""Networks whose only nonlinearity is the stochastic 0-1 map, against ReLU and a linear network with tuned dropout."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from bokeh.models.ui import UIElement
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from scipy import stats

from gelu_study import figures, interactive, judging, pages, published, statistics
from gelu_study.chapters import experiment
from gelu_study.judging import Judgement
from gelu_study.runs import RunRecord
from gelu_study.study import Study

Array = NDArray[np.float64]

NETWORKS = {"soi": "SOI map", "relu": "ReLU", "identity": "linear"}
"""What is compared: the hidden units of a network, and what a reader calls it."""
CURVES = (
    ("train_loss_smoothed", "Training loss, mask and dropout off", "nats"),
    ("validation_loss", "Validation loss", "nats"),
    ("test_error", "Test error", "%"),
)
"""The curves that are drawn, what a reader calls them, and their units."""
STATED = {"soi": "SOI map", "relu": "ReLU + dropout"}
"""The names of `published.stated`."""


@dataclass(frozen=True)
class Candidate:
    """A kind of network at one keep probability, at the learning rate that validation chose for it."""

    activation: str
    keep_probability: float
    learning_rate: float
    at_edge: bool  # of the grid of learning rates
    validation_loss: float  # median over seeds at each run's best epoch, in nats
    runs: tuple[RunRecord, ...]
    tuned: bool  # has the keep probability that validation chose

    @property
    def name(self) -> str:
        """In words: "ReLU, keep 0.5"."""
        dropout = "no dropout" if self.keep_probability == 1 else f"keep {self.keep_probability:g}"
        return NETWORKS[self.activation] if self.activation == "soi" else f"{NETWORKS[self.activation]}, {dropout}"

    @property
    def errors(self) -> pd.Series:
        """Test errors (%) at the epoch of best validation loss, by seed; infinite for a diverged run."""
        return judging.losses(self.runs, lambda record: record.best["test_error"])


def candidates(found: Study) -> list[Candidate]:
    """Every kind of network at every keep probability whose grid of learning rates is complete."""
    choices = statistics.choose_learning_rates(found.table) if found.records else pd.DataFrame()
    if choices.empty:
        return []
    complete = dataclasses.replace(found, chosen=statistics.chosen(found.table))
    best = {name: judging.tuned(complete, name) for name in NETWORKS if name in set(choices["activation"])}
    result = []
    for name in best:
        rows = choices[choices["activation"] == name].sort_values("keep_probability", ascending=False)
        for row in rows.itertuples():
            cell = (float(row.keep_probability), float(row.learning_rate))
            runs = [
                r
                for r in found.records
                if (r.config.activation, r.config.keep_probability, r.config.learning_rate) == (name, *cell)
            ]
            tuned = cell == best[name]
            result.append(Candidate(name, *cell, bool(row.at_edge), float(row.median_validation_loss), tuple(runs), tuned))
    return result


def tuned(found: Study) -> list[Candidate]:
    """Of each kind of network the one with the keep probability that validation chose."""
    return [candidate for candidate in candidates(found) if candidate.tuned]


def judgements(found: Study) -> tuple[Judgement, Judgement]:
    """The verdicts against ReLU (a claim of a tie) and against the linear network."""
    ratio = float(paper_error("soi")) / float(paper_error("relu"))
    return (
        experiment.judged(found, judging.soi_against("relu", ratio, ties=True)),
        experiment.judged(found, judging.soi_against("identity", math.nan, ties=False)),
    )


def paper_error(activation: str) -> str:
    """The paper's error in percent, with the decimals of its text; empty where it states none."""
    stated = published.stated("mnist_fcn_soi", "error")
    return f"{float(stated[STATED[activation]]):.2f}" if activation in STATED else ""


def answer(found: Study) -> None:
    """Both questions answered, and the errors behind it."""
    shown = tuned(found) if found.chosen else []  # before that the choice may still change
    both = judgements(found)
    pages.text("\n".join(answer_lines(*both, shown, experiment.is_mnist(found))))
    keys = [run.config.key for candidate in shown for run in candidate.runs]
    pages.records("mnist-soi-answer", [*keys, *(key for judgement in both for key in judgement.keys)])


def answer_lines(against_relu: Judgement, against_linear: Judgement, shown: list[Candidate], on_mnist: bool) -> list[str]:
    """The answer as Markdown lines: the two claims, then each network's error, beside the paper's if the data are its own."""
    questions = (
        ("Is it comparable to ReLU with dropout?", against_relu, "ReLU"),
        ("Is it more than a regularised linear model?", against_linear, "the linear network"),
    )
    lines, what = [], "The SOI network's test error"
    for question, judgement, rival in questions:
        (part,) = judgement.parts
        told = f" It is {experiment.compared_with(part, rival)}." if part.n else ""
        lines += [f"- *{question}* {experiment.headline(judgement, what)}.{told}"]
    for candidate in shown:
        middle, low, high = statistics.median_interval(candidate.errors)
        around = f" (95 % interval {low:.2f} to {high:.2f})" if math.isfinite(low) and math.isfinite(high) else ""
        paper = f"; the paper's is {paper_error(candidate.activation)} %" if on_mnist and candidate.activation in STATED else ""
        error = f"{middle:.2f} %" if math.isfinite(middle) else "infinite, for most runs diverged"
        lines.append(f"- {candidate.name[0].upper()}{candidate.name[1:]}: median test error {error}{around}{paper}.")
    return lines


@figures.typeset
def the_map(reach: float = 3.0) -> Figure:
    """What the map makes of x, and its gradient: means and standard deviations over the mask, beside GELU and its derivative."""
    figure, axes = figures.panels(2, height=2.5, sharex=True)
    x = np.linspace(-reach, reach, 401)
    moments = map_moments(x)
    colour, line, _ = figures.STYLES["soi"]
    grey = figures.STYLES["gelu"]
    slope = stats.norm.cdf(x) + x * stats.norm.pdf(x)
    for ax, (mean, spread) in zip(axes, moments, strict=True):
        ax.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.16, lw=0)
        ax.plot(x, mean, color=colour, ls=line)
        ax.grid(True)
    axes[1].plot(x, slope, color=grey[0], ls=grey[1])
    axes[0].set_title("Output of the map")
    axes[1].set_title("Gradient")
    axes[1].set_xlabel("x")
    handles = [
        Line2D([], [], color=colour, ls=line, label="SOI map, mean"),
        Patch(color=colour, alpha=0.16, lw=0, label="± one deviation"),
        Line2D([], [], color=grey[0], ls=grey[1], label="GELU's derivative"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, columnspacing=1.2)
    return figure


def map_moments(x: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Mean and standard deviation over the mask m ~ Bernoulli(Phi(x)) of the output x m and of the gradient m."""
    p = stats.norm.cdf(x)
    deviation = np.sqrt(p * stats.norm.sf(x))
    return (x * p, np.abs(x) * deviation), (p, deviation)


def map_figure() -> None:
    """Show `the_map`."""
    pages.figure(
        the_map(),
        "mnist-soi-map",
        "Mean and standard deviation of the SOI map's output and gradient, with GELU's derivative",
        "The mean of the output is GELU itself. The mean of the gradient is Φ(x), which is not GELU's derivative: the term x φ(x), "
        f"by which a change of x changes the odds, is missing. {pages.COMPUTED}",
        [],
    )


@figures.typeset
def errors(found: Study) -> Figure:
    """The test error of every run of every candidate, a dot each, with medians and intervals; the paper's errors as diamonds."""
    shown = candidates(found)
    figure, (ax,) = figures.panels(1, height=1.2 + 0.5 * len(shown))
    compared = experiment.is_mnist(found)
    for place, candidate in enumerate(shown):
        colour = figures.STYLES[candidate.activation][0]
        found_errors = candidate.errors.to_numpy()
        finite = found_errors[np.isfinite(found_errors)]
        ax.plot(finite, np.full(len(finite), place), "o", color=colour, alpha=0.6, ms=7, mew=0, gid=candidate.name)
        median, low, high = statistics.median_interval(found_errors)
        if math.isfinite(median):
            ax.plot([median] * 2, [place - 0.3, place + 0.3], color="black", lw=2.2, zorder=4)
            ends = [end if math.isfinite(end) else median for end in (low, high)]
            ax.plot(ends, [place] * 2, color="black", lw=1.3, zorder=4)
        if lost := len(found_errors) - len(finite):
            ax.annotate(
                f"{lost} diverged", (0.99, place), xycoords=("axes fraction", "data"), ha="right", va="center", color=colour
            )
        if compared and candidate.tuned and candidate.activation in STATED:
            paper = float(paper_error(candidate.activation))
            ax.plot(paper, place - 0.34, "D", mfc="white", mec=colour, mew=1.8, ms=7, zorder=5)
    ax.set_yticks(range(len(shown)), [f"{c.name}{' ←' if c.tuned and c.activation != 'soi' else ''}" for c in shown])
    ax.set_ylim(len(shown) - 0.45, -0.6)
    ax.tick_params(axis="y", length=0)
    figures.log_axis(ax, "x")
    ax.set_xlabel("test error at the best epoch (%)")
    handles = [
        Line2D([], [], marker="o", ls="", color="#444444", alpha=0.6, label="a run"),
        Line2D([], [], marker="|", ms=14, mew=2.2, lw=1.3, color="black", label="median, 95 % interval"),
    ]
    if compared:
        handles.append(Line2D([], [], marker="D", ls="", mfc="white", mec="#444444", mew=1.8, label="paper"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, columnspacing=1.2)
    return figure


@figures.typeset
def curves(found: Study) -> Figure:
    """Training loss, validation loss and test error over the epochs of the tuned networks: medians over seeds and bands."""
    shown = tuned(found)
    epochs = found.planned[0].epochs
    figure, axes = figures.panels(3, height=2.3, sharex=True)
    for ax, (curve, title, unit) in zip(axes, CURVES, strict=True):
        for candidate in shown:
            each = candidate.runs[0].config.curves[curve]
            values: Array = np.full((len(candidate.runs), each * epochs), np.inf)
            for row, run in zip(values, candidate.runs, strict=True):
                logged = run.curves.get(curve, [])
                row[: len(logged)] = logged
            at = np.arange(1, each * epochs + 1) / each
            figures.band(ax, candidate.activation, at, values, gid=f"{candidate.activation} {curve}")
        ax.set_title(title)
        ax.set_ylabel(unit)
        figures.log_axis(ax, "y")
        ax.set_xlim(0, epochs)
    axes[-1].set_xlabel("epoch")
    lines = [
        Line2D([], [], color=figures.STYLES[c.activation][0], linestyle=figures.STYLES[c.activation][1], label=c.name)
        for c in shown
    ]
    figure.legend(handles=lines, loc="outside upper center", ncols=3, frameon=False, handlelength=2.4, columnspacing=1.2)
    return figure


def errors_figure(found: Study) -> None:
    """Show `errors`."""
    if _chosen(found):
        caption = (
            "Every run at the learning rate that validation chose for its network, at its epoch of best validation loss. Arrows: "
            "the keep probability that validation chose. The further left, the better."
        )
        alt = f"Test errors of every network and keep probability. Medians of the chosen ones: {median_words(found)}"
        _show(found, errors(found), "errors", alt, caption, candidates(found))


def median_words(found: Study) -> str:
    """The median test errors of `tuned`, for those who do not see the figure."""
    return figures.ascending({candidate.name: candidate.errors.median() for candidate in tuned(found)}, " %")


def curves_figure(found: Study) -> None:
    """Show `curves`."""
    if _chosen(found):
        alt = "Training loss, validation loss and test error over the epochs of each kind of network. "
        alt += f"Median test errors at the best epoch: {median_words(found)}"
        caption = "Each kind of network, with what validation chose for it: the lower, the better."
        _show(found, curves(found), "curves", alt, caption, tuned(found), bands=True)
        interactive.show(each_seed(found), "mnist-soi-each-seed", interactive.EACH_SEED)


def each_seed(found: Study) -> UIElement:
    """`curves`, one for each run."""
    runs = [run for candidate in tuned(found) for run in candidate.runs]
    panels = []
    for curve, title, unit in CURVES:
        lines = []
        for run in runs:
            each = run.config.curves[curve]
            values = np.array(run.curves.get(curve, []), dtype=np.float64)[each - 1 :: each]  # as it stands after each epoch
            lines.append((run, np.arange(1.0, len(values) + 1), values))
        panels.append(interactive.Panel(title, unit, lines))
    return interactive.curves(panels)


def _show(found: Study, drawn: Figure, name: str, alt: str, sentence: str, shown: list[Candidate], *, bands: bool = False) -> None:
    keys = [run.config.key for candidate in shown for run in candidate.runs]
    table = found.table[found.table["key"].isin(keys)]
    sentence += "" if found.chosen else " Provisional: only the networks whose learning rates are all there."
    pages.figure(drawn, f"mnist-soi-{name}", alt, figures.caption(table, found.scale, sentence, bands=bands), keys)


def _chosen(found: Study) -> bool:
    """Whether any network's learning rate could be chosen and any run finished; says so where not."""
    if not experiment.drawable(found):
        return False
    if not any(run.status == "finished" for candidate in candidates(found) for run in candidate.runs):
        pages.text("No learning rate can be chosen while the grid of learning rates is incomplete.")
        return False
    return True


def errors_table(found: Study) -> None:
    """Every candidate: its learning rate, validation loss and test error."""
    if not _chosen(found):
        return
    rows = []
    for candidate in candidates(found):
        edge = ' <span class="verdict verdict-edge">edge</span>' if candidate.at_edge else ""
        row = {
            "network": f"<b>{candidate.name}</b>" if candidate.tuned else candidate.name,
            "rate": f"{pages.rate(candidate.learning_rate)}{edge}",
            "validation loss": pages.number(candidate.validation_loss),
            "test error, %": pages.interval(*statistics.median_interval(candidate.errors)),
        }
        if experiment.is_mnist(found):
            row["paper"] = (paper_error(candidate.activation) if candidate.tuned else "") or "–"
        row["n"] = str(len(candidate.runs))
        rows.append(row)
    caption = (
        "At the epoch of best validation loss: medians over n seeds [95 % interval]. Learning rate and keep probability are those "
        "of the lowest median validation loss; bold: the chosen keep probability of each kind. <i>Edge</i>: the rate is the least "
        "or greatest of its grid, so that a better one may lie outside."
    )
    keys = [run.config.key for candidate in candidates(found) for run in candidate.runs]
    pages.table(pd.DataFrame(rows), "mnist-soi-networks", caption, keys)


def verdict_table(found: Study) -> None:
    """Both claims with their evidence."""
    caption = "The SOI network's test error as a multiple of its rival's: below 1, the SOI network is better."
    both = judgements(found)
    one = Judgement(
        "", tuple(part for judgement in both for part in judgement.parts), tuple({k: None for j in both for k in j.keys})
    )
    experiment.comparison_table(found, one, "mnist-soi-verdicts", caption)
