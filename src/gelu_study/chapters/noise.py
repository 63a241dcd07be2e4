"""Trained classifiers on noisy test images: error and log loss against the width of the noise, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pandas as pd
from bokeh.models.ui import UIElement
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from numpy.typing import NDArray

from gelu_study import activations, datasets, figures, interactive, judging, pages, statistics
from gelu_study.chapters import experiment, scoring
from gelu_study.errors import ConfigurationError
from gelu_study.judging import Judgement
from gelu_study.runs import RunRecord
from gelu_study.study import Study

Array = NDArray[np.float64]

QUANTITIES = {"noise_error": "test error", "noise_loss": "log loss"}
"""What is measured at each level of noise, percent and nats."""
CLASSES = 10


def levels(found: Study) -> tuple[float, ...]:
    """The half-widths a of the noise."""
    return found.planned[0].test_noise


def runs_of(found: Study, activation: str) -> list[RunRecord]:
    """An activation's records, by seed."""
    return sorted((r for r in found.records if r.config.activation == activation), key=lambda r: r.config.seed)


def values(runs: Sequence[RunRecord], quantity: str) -> Array:
    """A quantity of each run at each level, [runs, levels]; infinite for a diverged run."""
    width = len(runs[0].config.test_noise)
    return np.array([r.curves[quantity] if r.status == "finished" else [math.inf] * width for r in runs], dtype=np.float64)


def mean_over_noise(record: RunRecord, quantity: str) -> float:
    """What is judged: the mean over the levels above 0."""
    measured = zip(record.config.test_noise, record.curves[quantity], strict=True)
    return float(np.mean([value for level, value in measured if level > 0]))


def answer(found: Study) -> None:
    """Whether GELU matches or exceeds its rivals, in sentences."""
    judgement = experiment.judged(found, judging.noise)
    pages.text("\n".join(answer_lines(judgement)))
    pages.records("mnist-noise-answer", judgement.keys)


def answer_lines(judgement: Judgement) -> list[str]:
    """The answer as Markdown lines: a headline, then each quantity."""
    groups = [f"By {words}" for words in QUANTITIES.values()]
    return experiment.answer_lines(judgement, "GELU's mean over the levels of noise", groups)


def _intervals(drawn: Array) -> Array:
    """Median and interval over the first axis, for each level: [3, levels]; NaN where not finite."""
    found = np.array([statistics.median_interval(column) for column in drawn.T]).T
    return np.where(np.isfinite(found), found, np.nan)


@figures.typeset
def curves(found: Study) -> Figure:
    """Accuracy and log loss against the half-width: medians over seeds with their intervals."""
    figure, axes = figures.panels(2, height=2.9, sharex=True)
    names = [name for name in figures.STYLES if runs_of(found, name)]
    guesses = {"noise_error": 100 / CLASSES, "noise_loss": math.log(CLASSES)}
    for ax, (quantity, guess) in zip(axes, guesses.items(), strict=True):
        for name in names:
            middle, low, high = _intervals(values(runs_of(found, name), quantity))
            if quantity == "noise_error":
                middle, low, high = 100 - middle, 100 - high, 100 - low
            colour, line, marker = figures.STYLES[name]
            ax.fill_between(levels(found), low, high, color=colour, alpha=0.2, linewidth=0)
            ax.plot(levels(found), middle, color=colour, linestyle=line, marker=marker, ms=5, gid=f"{name} {quantity}")
        ax.axhline(guess, color="#777777", lw=1.2, ls=(0, (1, 2)))
        ax.grid(True)
    axes[0].set_title("Test accuracy")
    axes[0].set_ylabel("accuracy (%)")
    axes[1].set_title("Test log loss")
    axes[1].set_ylabel("log loss (nats)")
    figures.log_axis(axes[1], "y")
    axes[1].set_xlabel("half-width a of the noise")
    figures.legend(figure, names, [])
    return figure


@figures.typeset
def ratios(found: Study) -> Figure:
    """GELU's error and loss as multiples of each rival's at every level, paired by seed, with the margin as a grey band."""
    figure, axes = figures.panels(2, height=2.7, sharex=True)
    names = [name for name in figures.STYLES if name != judging.GELU and runs_of(found, name)]
    for ax, (quantity, words) in zip(axes, QUANTITIES.items(), strict=True):
        ax.axhspan(1 / (1 + statistics.MARGIN), 1 + statistics.MARGIN, color="#CCCCCC", alpha=0.8, lw=0)
        ax.axhline(1, color="#555555", lw=1)
        for name in names:
            measured, low, high = np.exp(_intervals(differences(found, name, quantity)))
            colour, line, marker = figures.STYLES[name]
            ax.fill_between(levels(found), low, high, color=colour, alpha=0.2, linewidth=0)
            title = f"over {activations.title(name)}'s"
            ax.plot(levels(found), measured, color=colour, ls=line, marker=marker, ms=5, label=title, gid=f"{name} {quantity}")
        ax.set_title(f"GELU's {words}")
        ax.set_ylabel("ratio")
        figures.log_axis(ax, "y")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
    axes[-1].set_xlabel("half-width a of the noise")
    handles, titles = axes[0].get_legend_handles_labels()
    figure.legend(handles, titles, loc="outside upper center", ncols=2, frameon=False, handlelength=2.6)
    return figure


def differences(found: Study, rival: str, quantity: str) -> Array:
    """ln of GELU's value less ln of the rival's, of the seeds that both have: [seeds, levels]."""
    sides = [{r.config.seed: r for r in runs_of(found, name)} for name in (judging.GELU, rival)]
    common = sorted(set(sides[0]) & set(sides[1]))
    if not common:
        return np.empty((0, len(levels(found))))
    first, second = (values([side[seed] for seed in common], quantity) for side in sides)
    with np.errstate(invalid="ignore", divide="ignore"):
        result = np.log(first) - np.log(second)
    return np.where(first == second, 0.0, result)


def curves_figure(found: Study) -> None:
    """Show `curves`."""
    sentence = (
        "Trained classifiers on test images to which noise from −a to a was added. Lines are medians over seeds, bands their 95 % "
        "intervals. Dotted: guessing, with the same probability for every class. The later a curve leaves its level, the better it "
        "stands noise."
    )
    alt = "Accuracy and log loss of each activation against the half-width of the noise"
    if experiment.drawable(found):
        _show(found, curves, "curves", f"{alt}. {median_words(found)}", sentence)
        interactive.show(each_seed(found), "mnist-noise-each-seed", interactive.EACH_SEED)


def each_seed(found: Study) -> UIElement:
    """`curves`, one for each run."""
    widths = np.array(levels(found))
    panels = []
    for quantity, title, unit in (("noise_error", "Test error", "error (%)"), ("noise_loss", "Test log loss", "log loss (nats)")):
        lines = [(run, widths, values([run], quantity)[0]) for run in found.records]
        panels.append(interactive.Panel(title, unit, lines, logarithmic=quantity == "noise_loss"))
    return interactive.curves(panels, "half-width a of the noise")


def median_words(found: Study) -> str:
    """The median error at the widest noise, for those who do not see the figure."""
    at = levels(found)[-1]
    names = [name for name in figures.STYLES if runs_of(found, name)]
    errors = {name: float(np.median(values(runs_of(found, name), "noise_error")[:, -1])) for name in names}
    return f"Median test error at the half-width {at:g}: {figures.ascending(errors, ' %')}"


def ratios_figure(found: Study) -> None:
    """Show `ratios`."""
    sentence = (
        "GELU's test error and log loss as multiples of its rivals', paired by seed: below 1, GELU is better. Medians with their "
        "95 % intervals; grey: within 5 %."
    )
    alt = "Ratio of GELU's test error and log loss to each rival's against the half-width of the noise"
    if experiment.drawable(found):
        _show(found, ratios, "ratios", f"{alt}. {ratio_words(found)}", sentence)


def ratio_words(found: Study) -> str:
    """The median ratios at the widest noise, for those who do not see the figure."""
    said = []
    for name in [name for name in figures.STYLES if name != judging.GELU and runs_of(found, name)]:
        ratios = {words: _intervals(differences(found, name, quantity))[0][-1] for quantity, words in QUANTITIES.items()}
        of = [f"{pages.number(math.exp(ratio))} of {activations.title(name)}'s {words}" for words, ratio in ratios.items()]
        said.append(" and ".join(of))
    return f"At the half-width {levels(found)[-1]:g} GELU's are {', '.join(said)}" if said else "No pair of runs to compare"


def _show(found: Study, draw: Callable[[Study], Figure], name: str, alt: str, sentence: str) -> None:
    caption = figures.caption(found.table, found.scale, sentence)
    pages.figure(draw(found), f"mnist-noise-{name}", alt, caption, found.table["key"])


def levels_table(found: Study, shown: Sequence[float]) -> None:
    """Error and log loss at some levels. Raises `ConfigurationError` for a level that was not measured."""
    known = levels(found)
    if unknown := [level for level in shown if level not in known]:
        raise ConfigurationError(
            f"no noise of half-width {unknown[0]:g} was measured; known are {', '.join(f'{k:g}' for k in known)}"
        )
    if not experiment.drawable(found):
        return
    (examples,) = datasets.SHAPES[found.planned[0].dataset]["y_test"]
    rows = []
    for level in shown:
        for name in figures.STYLES:
            if not (runs := runs_of(found, name)):
                continue
            place = known.index(level)
            error = statistics.median_interval(values(runs, "noise_error")[:, place])
            loss = statistics.median_interval(values(runs, "noise_loss")[:, place])
            rows.append(
                {
                    "a": f"{level:g}",
                    "activation": experiment.title(name),
                    "test error, %": pages.interval(*error),
                    "images": f"± {scoring.binomial_error(error[0], examples):.2f}" if math.isfinite(error[0]) else "–",
                    "log loss, nats": pages.interval(*loss),
                    "n": str(len(runs)),
                }
            )
    pages.table(
        pd.DataFrame(rows),
        "mnist-noise-levels",
        f"Median over n seeds [95 % interval] at some half-widths a. <i>Images</i>: the binomial standard error, in points, of an "
        f"error measured on {examples:,} images.",
        found.table["key"],
    )


def means_table(found: Study) -> None:
    """What is judged, of each activation."""
    if not experiment.drawable(found):
        return
    rows = []
    for name in figures.STYLES:
        if not (runs := runs_of(found, name)):
            continue
        line = {"activation": experiment.title(name), "n": str(len(runs))}
        for quantity, words in QUANTITIES.items():
            unit = "%" if quantity == "noise_error" else "nats"
            means = judging.losses(runs, partial(mean_over_noise, quantity=quantity))
            line[f"{words}, {unit}"] = pages.interval(*statistics.median_interval(means))
        rows.append(line)
    above = [level for level in levels(found) if level > 0]
    caption = (
        f"Mean over the {len(above)} half-widths from {min(above):g} to {max(above):g}: median over n seeds [95 % interval]. "
        "This is what is judged."
    )
    pages.table(pd.DataFrame(rows), "mnist-noise-means", caption, found.table["key"])


def verdict_table(found: Study) -> None:
    """The comparisons of the claim with their evidence."""
    judgement = experiment.judged(found, judging.noise)
    caption = "GELU's mean over the levels of noise as a multiple of its rival's: below 1, GELU is better."
    experiment.comparison_table(found, judgement, "mnist-noise-verdicts", caption)


def sentences(found: Study) -> None:
    """Where confidence turns against the networks, and whether the order is the same at all levels."""
    if experiment.drawable(found):
        pages.text("\n".join(f"- {line}" for line in observed(found)))


def observed(found: Study) -> list[str]:
    """What the medians say of the course over the levels."""
    names = [name for name in figures.STYLES if runs_of(found, name)]
    known = levels(found)
    medians = {
        quantity: np.array([np.median(values(runs_of(found, name), quantity), axis=0) for name in names]) for quantity in QUANTITIES
    }
    guess = math.log(CLASSES)
    worse: dict[float, list[str]] = {}  # than guessing, by the least level where it is
    for name, losses in zip(names, medians["noise_loss"], strict=True):
        above = [level for level, loss in zip(known, losses, strict=True) if loss > guess]
        worse.setdefault(min(above, default=math.inf), []).append(activations.title(name))
    lines = []
    for level, titles in sorted(worse.items()):
        whose = f"The log loss of {experiment.joined(titles)}"
        if math.isinf(level):
            lines.append(f"{whose} stays below that of guessing, {guess:.2f}, at every level.")
        else:
            lines.append(
                f"{whose} first exceeds that of guessing, {guess:.2f}, at a = {level:g}: confidence is then worse than none."
            )
    for quantity, words in QUANTITIES.items():
        first = medians[quantity].argmin(axis=0)
        noisy = [place for place, level in enumerate(known) if level > 0]
        counts = {activations.title(names[n]): int(sum(first[place] == n for place in noisy)) for n in range(len(names))}
        ranked = sorted(counts.items(), key=lambda item: -item[1])
        told = experiment.joined([f"{title} at {count}" for title, count in ranked if count])
        lines.append(f"The lowest median {words} of the {len(noisy)} noisy levels: {told}.")
    return lines
