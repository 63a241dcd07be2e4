"""What the pages on CIFAR share: the runs that decide, their curves over the paper's, errors at the end, the choice of the learning
rate, short runs, and what a run costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from bokeh.models.ui import UIElement
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gelu_study import activations, figures, interactive, judging, ledger, pages, published, statistics, study
from gelu_study.chapters import experiment
from gelu_study.ledger import Ledger
from gelu_study.networks import convolutional
from gelu_study.networks.convolutional import multiplications
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.study import Study, recorded

Array = NDArray[np.float64]

_NEAR = 0.01
"""Ratios that are as near to the margin as this are called at it."""
UNITS = {"error": "%", "loss": "nats"}


@dataclass(frozen=True)
class InPaper:
    """What the paper has of an experiment."""

    source: str  # of `published.claims`
    figure: int
    measure: str  # that the figure plots: "error" or "loss"

    @property
    def epochs(self) -> int:
        """Of each of its runs."""
        return published.POINTS[self.figure]

    @property
    def stated(self) -> dict[str, str]:
        """Its median test errors (%), as the text writes them, by our names of activations."""
        errors = published.stated(self.source, "test_error")
        return {name: errors[theirs] for name, theirs in published.NAMES.items()}

    def last(self, measure: str, split: str = "test") -> dict[str, float]:
        """The last value of each curve without the smoothing; empty where the figure plots another measure."""
        if measure != self.measure:
            return {}
        curves = published.unsmoothed(self.figure, "main").query("split == @split").sort_values("index")
        ends = curves.groupby("activation")["raw_value"].last()
        return {name: float(ends[theirs]) for name, theirs in published.NAMES.items()}


def names_of(runs: Sequence[RunRecord]) -> list[str]:
    """The activations of these runs, in the order of figures."""
    present = {run.config.activation for run in runs}
    return [name for name in figures.STYLES if name in present]


def runs_of(found: Study, activation: str) -> list[RunRecord]:
    """The records of an activation that decide (`judging.deciding`), by seed."""
    return sorted((r for r in judging.deciding(found) if r.config.activation == activation), key=lambda r: r.config.seed)


def values(runs: Sequence[RunRecord], measure: str = "test_error") -> pd.Series:
    """A measure at the end of each run, by seed; infinite for a diverged run."""
    return judging.losses(runs, lambda record: record.final[measure])


def short(found: Study, folder: str | None = None) -> Study:
    """The runs of scale quick that there are, whatever the page shows."""
    return study.run(found.experiment, "quick", train=False, ledger=Ledger(folder) if folder else None)


# What there is


def standing(found: Study, quick: Study) -> None:
    """Say in plain words that no run of the full protocol is there, if none is, and what is there instead."""
    lines = standing_lines(found, quick)
    if lines:
        pages.text("\n".join(lines))


def standing_lines(found: Study, quick: Study) -> list[str]:
    """The lines of `standing`; none where a run of the full protocol is there or another scale is shown."""
    if found.scale not in ("paper", "powered") or judging.deciding(found):
        return []
    wanted, less = full(found), quick.planned[0]
    lines = [
        f"> **Not run at full scale.** No training of {wanted.epochs} epochs on all {wanted.train_examples:,} training images has "
        "a record yet, so this page decides nothing."
    ]
    if found.records:
        have = "has" if len(found.records) == 1 else "have"
        wanted_first = _choosing(found.planned)
        lines.append(f"> {len(found.records)} of the {wanted_first} runs that choose the learning rates {have} a record.")
    if quick.records:
        lines.append(
            f"> What has been run is shorter: {_runs(len(quick.records))} of {less.epochs} epochs on {less.train_examples:,} "
            "images, under *Short runs* below."
        )
    else:
        lines.append("> Nothing shorter has a record either.")
    return lines


def _choosing(planned: Sequence[RunConfig]) -> int:
    """How many runs hold validation images out, and so choose."""
    return sum(config.validation_examples > 0 for config in planned)


def full(found: Study) -> RunConfig:
    """A run that decides, whether it has a record or not."""
    return replace(found.planned[0], **judging.grid_of(found).after_choice)


def _runs(n: int) -> str:
    return "1 run" if n == 1 else f"{n} runs"


# The answer to a claim of the lowest error


def answer(found: Study, paper: InPaper) -> None:
    """Whether GELU has the lowest test error, in sentences."""
    pages.text("\n".join(answer_lines(found, paper)))
    pages.records(f"{found.experiment}-answer", [run.config.key for run in judging.deciding(found)])


def answer_lines(found: Study, paper: InPaper) -> list[str]:
    """The answer as Markdown lines: a headline, GELU against each rival, each activation's median beside the paper's, and the seeds
    that an undecided comparison would take."""
    judgement = experiment.judged(found, judging.lowest_error(found.experiment, ratios(paper)))
    epochs = found.planned[0].epochs
    lines = experiment.answer_lines(judgement, "GELU's test error", [f"After {epochs} epochs"])
    for name in names_of(judging.deciding(found)):
        errors = values(runs_of(found, name))
        stated = f"; the paper's is {paper.stated[name]} %" if comparable(found, paper) and name in paper.stated else ""
        lines.append(f"- {activations.title(name)}: median test error {_percent(errors)}, {_runs(len(errors))}{stated}.")
    needed = {
        rival: statistics.compare(values(runs_of(found, judging.GELU)), values(runs_of(found, rival))).seeds_needed
        for rival, part in zip(judging.RIVALS, judgement.parts, strict=True)
        if part.verdict == statistics.UNRESOLVED and part.n and part.n > 1
    }
    if told := [f"{_seeds(n)} against {activations.title(rival)}" for rival, n in needed.items() if not math.isnan(n)]:
        lines += ["", f"Seeds that a power of 80 % would take at the difference and spread seen so far: {experiment.joined(told)}."]
    return lines


def _seeds(needed: float) -> str:
    return "no number" if math.isinf(needed) else "more than 9,999" if needed > 9_999 else f"{needed:.0f}"


def _percent(errors: pd.Series) -> str:
    """A median with its interval in words: "7.95 % (95 % interval 7.90 to 8.01 %)"."""
    middle, low, high = statistics.median_interval(errors)
    if not math.isfinite(middle):
        return "infinite, for most runs diverged"
    around = f" (95 % interval {low:.2f} to {high:.2f} %)" if math.isfinite(low) and math.isfinite(high) else ""
    return f"{middle:.2f} %{around}"


def ratios(paper: InPaper) -> dict[str, float]:
    """The paper's stated error of GELU over each rival's, by what `judging.lowest_error` calls them."""
    gelu = float(paper.stated[judging.GELU])
    return {f"test error, GELU / {published.NAMES[rival]}": gelu / float(paper.stated[rival]) for rival in judging.RIVALS}


def verdict_table(found: Study, paper: InPaper) -> None:
    """GELU against its rivals with the evidence, and what the margin means for differences as small as the paper's."""
    judgement = experiment.judged(found, judging.lowest_error(found.experiment, ratios(paper)))
    caption = "GELU's test error at the end as a multiple of its rival's: below 1, GELU is better."
    if found.planned[0].dataset != "digits":
        caption += " <i>Paper</i>: from the errors that its text states."
    experiment.comparison_table(found, judgement, f"{found.experiment}-verdicts", caption)
    pages.text(margin_sentence(paper))


def margin_sentence(paper: InPaper) -> str:
    """How the paper's own differences compare with the margin within which errors count as the same."""
    margin = 100 * statistics.MARGIN
    stated = {published.NAMES[rival]: ratio for rival, ratio in zip(judging.RIVALS, ratios(paper).values(), strict=True)}
    against_bound = {name: ratio * (1 + statistics.MARGIN) - 1 for name, ratio in stated.items()}
    within = [name for name, distance in against_bound.items() if distance > _NEAR]
    at_it = [name for name, distance in against_bound.items() if abs(distance) <= _NEAR]
    told = experiment.joined([f"{pages.ratio(ratio)} than {name}'s" for name, ratio in stated.items()])
    said = f"In the paper GELU's error is {told}. The rule calls errors within {margin:g} % of one another the same"
    lines = [] if within or at_it else ["The paper's differences are greater."]
    if within:
        lines.append(
            f"So a difference as the paper's to {experiment.joined(within)}, measured precisely enough, is by this rule "
            f"*{statistics.EQUIVALENT}* and not *{statistics.REPRODUCED}*."
        )
    if at_it:
        lines.append(
            f"The paper's difference to {experiment.joined(at_it)} is just that: a few seeds may show one like it as "
            f"*{statistics.REPRODUCED}*, and no number of them as *{statistics.EQUIVALENT}*."
        )
    return f"{said}. {' '.join(lines)}"


# Curves


def comparable(found: Study, paper: InPaper) -> bool:
    """Whether the runs are by the paper's protocol, so that they may stand beside its numbers."""
    return found.scale in ("paper", "powered") and found.planned[0].epochs == paper.epochs


@figures.typeset
def curves(runs: Sequence[RunRecord], measure: str, paper: InPaper | None) -> Figure:
    """Training and test error or loss over the epochs: ours as lines, each run smoothed as the paper's were; the paper's, if it is
    given, dotted."""
    figure, axes = figures.panels(2, height=2.9, sharex=True)
    names = names_of([run for run in runs if run.status == "finished"])
    for ax, split in zip(axes, ("train", "test"), strict=True):
        for name in names:
            figures.band(ax, name, *_ours(runs, name, split, measure, paper), gid=f"{name} {split}")
        if paper:
            curves_ = published.by_epoch(paper.figure).query("split == @split")
            for name, theirs in published.NAMES.items():
                curve = curves_[curves_["activation"] == theirs].sort_values("epoch")
                figures.paper_curve(ax, name, curve["epoch"], curve["value"], gid=f"published {name} {split}")
        ax.set_title(f"{'Training' if split == 'train' else 'Test'} {measure}")
        ax.set_ylabel(UNITS[measure])
        if paper and split == "test" and measure == "error":  # what lies above is early and hides the differences at the end
            low = min(float(np.nanmin(np.asarray(line.get_ydata(), dtype=float))) for line in ax.get_lines())
            ax.set_ylim(0.96 * low, 1.2 * float(curves_["value"].max()))
            ax.grid(True, axis="y")
        else:
            figures.log_axis(ax, "y")
        ax.set_xlim(0, paper.epochs if paper else runs[0].config.epochs)
    axes[-1].set_xlabel("epoch")
    figures.legend(figure, names or list(published.NAMES), [figures.paper_key()] if paper else [])
    return figure


def _ours(
    runs: Sequence[RunRecord], name: str, split: str, measure: str, paper: InPaper | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Epochs [points] and values [runs, points] of an activation, smoothed with the figure's b; infinite after a divergence."""
    these = [run for run in runs if run.config.activation == name]
    epochs = these[0].config.epochs
    b = published.SMOOTHING[paper.figure, "main", split] if paper else 0.0
    curve = f"{split}_{measure}" + ("_epoch" if split == "train" else "")
    found: Array = np.full((len(these), epochs), np.inf)
    for row, run in zip(found, these, strict=True):
        logged = run.curves[curve]
        row[: len(logged)] = published.smooth(logged, b)
    return np.arange(1.0, epochs + 1), found


def median_words(runs: Sequence[RunRecord]) -> str:
    """The activations' median test errors at the end, for those who do not see the figure."""
    by_name = {name: [run for run in runs if run.config.activation == name] for name in names_of(runs)}
    return figures.ascending({name: values(these).median() for name, these in by_name.items()}, " %")


def curves_figure(found: Study, paper: InPaper) -> None:
    """Show the paper's figure, with our curves over it where they are by its protocol; else ours in a figure of their own."""
    runs = judging.deciding(found)
    over = runs if comparable(found, paper) else ()
    b = published.SMOOTHING[paper.figure, "main", "test"]
    sentence = f"The lower, the better: the paper's figure {paper.figure} (dotted)"
    if any(run.status == "finished" for run in over):
        shown = ledger.table(over)
        sentence += f" and our runs (lines), each smoothed with b = {b:g} an epoch as the paper's are."
        caption = figures.caption(shown, found.scale, sentence, bands=True)
    else:
        shown, over = ledger.table([]), ()
        caption = f"{sentence}, smoothed as plotted: medians of three runs. None of ours lies over it."
    alt = f"Training and test {paper.measure} of each activation over the epochs, after figure {paper.figure} of the paper. "
    alt += f"Our median test errors at the end: {median_words(over)}" if over else "None of our runs lies over it"
    pages.figure(curves(over, paper.measure, paper), f"{found.experiment}-curves", alt, caption, shown["key"])
    if over:
        interactive.show(each_seed(over, paper.measure, paper), f"{found.experiment}-each-seed", interactive.EACH_SEED)
    if over or not any(run.status == "finished" for run in runs):
        return
    shown = ledger.table(runs)
    sentence = "Our runs at this scale, the lower the better; not smoothed, and not to be read beside the paper's."
    caption = figures.caption(shown, found.scale, sentence, bands=True)
    alt = f"Training and test {paper.measure} of each activation over the epochs of a short training. "
    alt += f"Median test errors at the end: {median_words(runs)}"
    pages.figure(curves(runs, paper.measure, None), f"{found.experiment}-curves-own", alt, caption, shown["key"])
    interactive.show(each_seed(runs, paper.measure, None), f"{found.experiment}-each-seed", interactive.EACH_SEED)


def each_seed(runs: Sequence[RunRecord], measure: str, paper: InPaper | None) -> UIElement:
    """`curves`, one for each run, without the paper's."""
    panels = []
    for split in ("train", "test"):
        lines = []
        for run in runs:
            epochs, found = _ours([run], run.config.activation, split, measure, paper)
            lines.append((run, epochs, found[0]))
        title = f"{'Training' if split == 'train' else 'Test'} {measure}"
        panels.append(interactive.Panel(title, f"{measure} ({UNITS[measure]})", lines))
    return interactive.curves(panels)


# Tables


def final_table(found: Study, paper: InPaper) -> None:
    """Errors at the end beside the paper's, and log losses where its figure has them; the paper's alone where we have no run."""
    runs, beside = judging.deciding(found), comparable(found, paper)
    names = list(dict.fromkeys([*names_of(runs), *(published.NAMES if beside or not runs else ())]))
    rows = []
    for name in names:
        these = runs_of(found, name)
        row = {"activation": experiment.title(name)}
        row |= cells(these, {"test error, %": "test_error"})
        if beside or not runs:
            row["paper, %"] = paper.stated.get(name, "–")
        if paper.measure == "loss":
            row |= cells(these, {"test loss, nats": "test_loss"})
            if beside or not runs:
                row["paper, nats"] = pages.number(paper.last("loss").get(name, math.nan))
        row |= cells(these, {"training error, %": "train_error"})
        row["n"] = counted(these)
        rows.append(row)
    said = "At the end of training: median over n runs [95 % interval]." if runs else "None of our runs is there."
    stated = " <i>Paper</i>: medians of three runs, the errors as its text states them"
    stated += f", the loss as its figure {paper.figure}'s last point without the smoothing." if paper.measure == "loss" else "."
    caption = f"{said} <i>Training error</i>: of the last epoch's minibatches, with dropout and noise or augmentation on."
    caption += stated if beside or not runs else ""
    pages.table(pd.DataFrame(rows), f"{found.experiment}-final", caption, [run.config.key for run in runs])


def cells(runs: Sequence[RunRecord], measures: Mapping[str, str]) -> dict[str, str]:
    """Cells of a table: medians with intervals of measures by headings, errors of 10 % and more with two decimals too."""
    found = {heading: statistics.median_interval(values(runs, measure)) for heading, measure in measures.items()}
    return {heading: pages.interval(*ends, digits=4 if 10 <= ends[0] <= 100 else 3) for heading, ends in found.items()}


def counted(runs: Sequence[RunRecord]) -> str:
    """How many runs there are, and how many of them diverged: a cell of a table."""
    lost = sum(run.status == "diverged" for run in runs)
    return f"{len(runs)}" + (f" ({lost} diverged)" if lost else "")


def choices(found: Study) -> pd.DataFrame:
    """`statistics.choose_learning_rates` of the runs that the learning rate is chosen by; empty where none is chosen."""
    if not found.chosen:
        return pd.DataFrame({"at_edge": []})
    return statistics.choose_learning_rates(ledger.table(tuned(found)), judging.grid_of(found).criterion)


def tuned(found: Study) -> list[RunRecord]:
    """The records that the learning rate is chosen by: none where the scale has one for all."""
    decide = {run.config.key for run in judging.deciding(found)}
    return [run for run in found.records if run.config.key not in decide] if judging.grid_of(found).chooses else []


def rates_table(found: Study) -> None:
    """What validation says of each learning rate, and which was chosen."""
    if not judging.grid_of(found).chooses:
        rates = sorted({config.learning_rate for config in found.planned}, reverse=True)
        pages.text(f"At this scale nothing is chosen: every run has a learning rate of {_listed(rates)}.")
        return
    runs = tuned(found)
    tried = sorted({config.learning_rate for config in found.planned}, reverse=True)
    if not runs:
        pages.text(f"None of the learning rates {_listed(tried)} has been tried yet.")
        return
    chosen = {(row.activation, row.learning_rate): bool(row.at_edge) for row in choices(found).itertuples()}
    rows = []
    for cell in ((name, rate) for name in names_of(runs) for rate in tried):
        these = [run for run in runs if (run.config.activation, run.config.learning_rate) == cell]
        if not these:
            continue
        edge = ' <span class="verdict verdict-edge">edge</span>' if chosen.get(cell) else ""
        rate = pages.rate(cell[1])
        row = {"activation": experiment.title(cell[0]), "rate": f"<b>{rate}</b>{edge}" if cell in chosen else rate}
        row |= cells(these, {"validation error, %": "validation_error", "validation loss, nats": "validation_loss"})
        rows.append(row | {"n": counted(these)})
    first = runs[0].config
    caption = (
        f"Trained on {first.train_examples:,} images and measured on {first.validation_examples:,} others, at the end: median over "
        "n seeds. Bold: the chosen rate, with the lowest validation error. <i>Edge</i>: it is the least or greatest of its grid, "
        "so that a better one may lie outside."
    )
    pages.table(pd.DataFrame(rows), f"{found.experiment}-rates", caption, [run.config.key for run in runs])
    pages.text(choice_sentence(found))


def choice_sentence(found: Study) -> str:
    """Which learning rate each activation got, and how many lie at the edge."""
    rows = list(choices(found).itertuples())
    if not rows:
        return "No learning rate can be chosen while the grid of learning rates is incomplete."
    got = [f"{activations.title(str(row.activation))} {pages.rate(float(row.learning_rate))}" for row in rows]
    edges = [activations.title(str(row.activation)) for row in rows if row.at_edge]
    where = "None lies at the edge of the grid."
    if edges:
        where = f"At the edge of the grid, so that a better one may lie outside: {experiment.joined(edges)}."
    return f"Validation chose {experiment.joined(got)}. {where}"


def _listed(rates: Sequence[float]) -> str:
    return experiment.joined([pages.rate(rate) for rate in rates])


# Short runs


def short_runs(found: Study, quick: Study, measure: str = "test_error") -> None:
    """What the runs of scale quick ended with, told apart from the full protocol."""
    if found.scale == "quick":
        pages.text("These are the runs that this page shows above.")
        return
    first, planned = quick.planned[0], len(quick.planned)
    about = (
        f"Scale `quick` trains for {first.epochs} epochs on {first.train_examples:,} images and measures on the test images. "
        "Its errors are of another scale than the full protocol's: they are never put together, and no verdict rests on them."
    )
    if not quick.records:
        pages.text(f"{about} None of its {planned} runs has a record yet.")
        return
    pages.text(f"{about} {recorded(len(quick.records), planned)}.")
    rows = []
    for name in names_of(quick.records):
        these = runs_of(quick, name)
        row = {"activation": experiment.title(name), "rate": pages.rate(these[0].config.learning_rate)}
        row |= cells(these, {"test error, %": measure, "training error, %": "train_error"})
        rows.append(row | {"n": counted(these)})
    caption = figures.caption(
        quick.table, "quick", f"After {first.epochs} epochs on {first.train_examples:,} images: median over n runs [95 % interval]."
    )
    pages.table(pd.DataFrame(rows), f"{found.experiment}-short", caption, quick.table["key"])


# Cost


def petaflop(config: RunConfig) -> float:
    """Floating-point operations of a training's convolutions and dense layers, in 10^15: six for each multiplication of an image's
    pass forward, for each comes with an addition, and backpropagation costs twice the pass forward. Evaluation is left out."""
    classes, side = (100 if config.dataset == "cifar100" else 10), (16 if config.dataset == "digits" else 32)
    network = convolutional(config.network, config.hidden, classes, config.activation, config.keep_probability, config.seed)
    seen = config.epochs * config.steps_per_epoch * config.batch_size
    return 6 * multiplications(network, side) * seen / 1e15


def cost(found: Study) -> None:
    """What a run costs: operations, and the time it took where it ran."""
    pages.text("\n".join(cost_lines(found)))


def cost_lines(found: Study) -> list[str]:
    """The lines of `cost`: the operations of a training, then each device with its time a run."""
    runs, config = judging.deciding(found), full(found)
    operations = petaflop(config)
    lines = [
        f"A training of {config.epochs} epochs on {config.train_examples:,} images takes {pages.number(operations)} PFLOP "
        "(10<sup>15</sup> floating-point operations of convolutions and dense layers, forward and back; evaluation not counted)."
    ]
    times = ledger.table([run for run in runs if run.status == "finished"]).dropna(subset=["seconds"])
    for (device, name), cell in times.groupby(["device", "device_name"], dropna=False, sort=True):
        seconds = float(cell["seconds"].median())
        speed = f", {pages.number(operations / seconds * 1e3)} TFLOP a second" if seconds > 0 else ""
        lines.append(f"- On {name} ({device}): {_duration(seconds)} a run{speed} (median of {_runs(len(cell))}, with evaluation).")
    if times.empty:
        lines.append("- No run has been timed yet.")
    return lines


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{pages.number(seconds)} seconds"
    return f"{pages.number(seconds / 60)} minutes" if seconds < 7_200 else f"{pages.number(seconds / 3_600)} hours"
