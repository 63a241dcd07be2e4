"""Whether the activation matters to a network that reaches 94 % on CIFAR-10 in ten epochs: our own question, not the paper's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gelu_study import activations, figures, judging, ledger, pages, statistics
from gelu_study.chapters import experiment, images
from gelu_study.statistics import Comparison
from gelu_study.study import Study

RESULT, PLAIN = "test_error_views", "test_error"
"""The test error (%) that counts, with the outputs for several views of an image averaged, and that of the image alone."""

TARGET = 94.0
"""The accuracy (%) that the recipe is made to reach."""


def rivals(found: Study) -> list[str]:
    """The activations with runs that GELU is compared with; none without a run of GELU."""
    names = images.names_of(judging.deciding(found))
    return [name for name in names if name != judging.GELU] if judging.GELU in names else []


def compared(found: Study) -> dict[str, tuple[Comparison, str]]:
    """GELU's result against each rival's, pair by pair, with the verdict of the rule that claims are judged by."""
    gelu = images.values(images.runs_of(found, judging.GELU), RESULT)
    against = {rival: statistics.compare(gelu, images.values(images.runs_of(found, rival), RESULT)) for rival in rivals(found)}
    return dict(zip(against, zip(against.values(), statistics.verdicts_together(list(against.values())), strict=True), strict=True))


def points(found: Study, one: tuple[str, str], other: tuple[str, str]) -> tuple[float, float, float]:
    """Median and interval of the difference in points of two (activation, measure), of the seeds that both have. A diverged run's
    error is infinite, two such are a tie."""
    x, y = (images.values(images.runs_of(found, name), measure) for name, measure in (one, other))
    common = x.index.intersection(y.index)
    with np.errstate(invalid="ignore"):
        d = (x[common] - y[common]).to_numpy()
    return statistics.median_interval(np.where(np.isnan(d), 0.0, d))


def answer(found: Study) -> None:
    """Whether the activation matters, in sentences."""
    pages.text("\n".join(answer_lines(found)))
    pages.records("cifar10-fast-answer", [run.config.key for run in judging.deciding(found)])


def answer_lines(found: Study) -> list[str]:
    """The answer as Markdown lines: a headline, then GELU against each rival."""
    verdicts = compared(found)
    if not any(item.n for item, _ in verdicts.values()):
        return ["**No answer yet.** The runs that would decide are not there."]
    words = {word for _, word in verdicts.values()}
    if words & {statistics.REPRODUCED, statistics.CONTRADICTED}:
        lines = ["**Yes.** With everything else held, and each at its own learning rate, the activation changes the test error."]
    elif words == {statistics.EQUIVALENT}:
        lines = [f"**Hardly.** The test errors are the same within {100 * statistics.MARGIN:g} %."]
    else:
        lines = ["**Undecided.** For at least one rival the runs show neither a difference nor that there is none."]
    lines.append("")
    adjusted = statistics.holm([item.p_value for item, _ in verdicts.values()])
    for (rival, (item, word)), p in zip(verdicts.items(), adjusted, strict=True):
        if not item.n:
            continue
        title = activations.title(rival)
        ratio, low, high = (float(np.exp(end)) for end in (item.median, item.low, item.high))
        around = f"95 % interval {pages.span(low, high)}; " if not math.isnan(low) else ""
        sign = ", though its sign is certain" if word == statistics.EQUIVALENT and p < statistics.SIGNIFICANCE else ""
        apart = points(found, (judging.GELU, RESULT), (rival, RESULT))[0]
        lines.append(
            f"- GELU's test error is {pages.against(ratio, title)} ({around}{experiment.in_words(word)}{sign})"
            + (f", a difference of {_signed(apart)} points" if math.isfinite(apart) else "")
            + f". Of {_pairs(item.n)}, GELU's is the lower one in {100 * item.probability_better:.0f} %, ties counting half."
        )
    return lines


def _pairs(n: int) -> str:
    return "1 pair" if n == 1 else f"{n} pairs"


def _signed(value: float) -> str:
    """A difference with its sign: "−0.12"."""
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:+.2f}".replace("-", "−")


@figures.typeset
def errors(found: Study) -> Figure:
    """The result of every run, a dot each, with medians and intervals; a line where the target is, on CIFAR-10."""
    table = ledger.table(judging.deciding(found))
    choice = {(str(row.activation), float(row.keep_probability)): float(row.learning_rate) for row in table.itertuples()}
    drawn = figures.distributions(table, RESULT, choice)
    (ax,) = drawn.axes
    ax.set_title("")
    ax.set_xscale("linear")  # errors of a few points about one value: a logarithmic axis would have a single tick
    ax.grid(True, axis="x")
    if found.planned[0].dataset == "cifar10":
        grey: dict[str, Any] = {"color": "#777777", "lw": 1.4, "ls": (0, (1, 2))}
        ax.axvline(100 - TARGET, **grey, gid="target")
        (legend,) = drawn.legends
        handles = [*legend.legend_handles, Line2D([], [], label=f"{TARGET:g} % accuracy", **grey)]
        legend.remove()
        drawn.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    return drawn


def errors_figure(found: Study) -> None:
    """Show `errors`."""
    runs = judging.deciding(found)
    if not any(run.status == "finished" for run in runs):
        pages.text("There is nothing to show: " + ("every run diverged." if runs else "no run has finished."))
        return
    table = ledger.table(runs)
    first = runs[0].config
    sentence = (
        f"Test error of every run after {first.epochs} epochs, outputs for {first.test_views} views averaged: the further left, "
        "the better."
    )
    caption = figures.caption(table, found.scale, sentence)
    medians = {name: images.values(images.runs_of(found, name), RESULT).median() for name in images.names_of(runs)}
    alt = f"Test error of every run for each activation, with medians and intervals. Medians: {figures.ascending(medians, ' %')}"
    pages.figure(errors(found), "cifar10-fast-errors", alt, caption, table["key"])


def differences_table(found: Study) -> None:
    """GELU against each rival with the evidence, and the seeds that a decision takes."""
    verdicts = compared(found)
    if not any(item.n for item, _ in verdicts.values()):
        pages.text("There is no pair of runs to compare yet.")
        return
    adjusted = statistics.holm([item.p_value for item, _ in verdicts.values()])
    rows = []
    for (rival, (item, word)), p in zip(verdicts.items(), adjusted, strict=True):
        middle, low, high = points(found, (judging.GELU, RESULT), (rival, RESULT))
        ratio, *ends = (float(np.exp(end)) for end in (item.median, item.low, item.high))
        around = "" if math.isnan(low) else f' <span class="study-interval">[{_signed(low)}, {_signed(high)}]</span>'
        rows.append(
            {
                "GELU vs": experiment.title(rival),
                "ratio [95 %]": pages.interval(ratio, ends[0], ends[1]),
                "points [95 %]": f'<span class="study-value">{_signed(middle) if item.n else "–"}{around}</span>',
                "n": str(item.n),
                "p": pages.p_value(float(p)),
                "GELU's error is": experiment.in_words(word),
                "seeds, as seen": pages.count(item.seeds_needed),
                "seeds, margin": pages.count(item.seeds_needed_margin),
            }
        )
    caption = (
        "GELU's test error against its rivals', paired by seed: as a ratio, below 1 where GELU is better, and as a difference in "
        "points. <i>p</i>: of no difference, adjusted for several comparisons. <i>Seeds</i>: pairs that a power of 80 % takes, at "
        f"the difference and spread seen, and for a difference as small as the margin of {100 * statistics.MARGIN:g} %."
    )
    keys = [run.config.key for run in judging.deciding(found)]
    pages.table(pd.DataFrame(rows), "cifar10-fast-differences", caption, keys)


def results_table(found: Study) -> None:
    """Each activation's error with several views and with one, and what the views buy."""
    runs = judging.deciding(found)
    if not runs:
        pages.text("No run has a record yet.")
        return
    views = runs[0].config.test_views
    rows = []
    for name in images.names_of(runs):
        these = images.runs_of(found, name)
        middle, low, high = points(found, (name, RESULT), (name, PLAIN))
        around = "" if math.isnan(low) else f' <span class="study-interval">[{_signed(low)}, {_signed(high)}]</span>'
        rows.append(
            {
                "activation": experiment.title(name),
                **images.cells(these, {f"error, {views} views, %": RESULT, "error, 1 view, %": PLAIN}),
                "difference, points": f'<span class="study-value">{_signed(middle)}{around}</span>',
                "n": images.counted(these),
            }
        )
    caption = f"Test error after {runs[0].config.epochs} epochs: median over n seeds [95 % interval], paired for the difference."
    pages.table(pd.DataFrame(rows), "cifar10-fast-views", caption, [run.config.key for run in runs])


def reached(found: Study) -> None:
    """Whether each activation reaches the target, on average and in how many runs."""
    pages.text("\n".join(reached_lines(found)))


def reached_lines(found: Study) -> list[str]:
    """The lines of `reached`, one for each activation; a diverged run reaches nothing and is left out of the mean."""
    runs = judging.deciding(found)
    if not runs:
        return ["No run has a record yet."]
    if runs[0].config.dataset != "cifar10":
        return [f"An accuracy of {TARGET:g} % is asked for on CIFAR-10, and these runs are on other data."]
    lines = []
    for name in images.names_of(runs):
        accuracies = 100 - images.values(images.runs_of(found, name), RESULT).to_numpy()
        finished = accuracies[np.isfinite(accuracies)]
        lost = len(accuracies) - len(finished)
        there = int((accuracies >= TARGET).sum())
        if not len(finished):
            lines.append(f"- **{activations.title(name)}:** every run diverged.")
            continue
        mean = float(finished.mean())
        said = "reached" if mean >= TARGET else "not reached"
        lines.append(
            f"- **{activations.title(name)}:** {said} on average, with a mean accuracy of {mean:.2f} %"
            + (f" of the runs that did not diverge ({lost} did)" if lost else "")
            + f"; {there} of {len(accuracies)} runs reach it."
        )
    return lines
