"""How much of what peeking buys is luck with the test images: a run's last epochs, and what noise alone would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gelu_study import activations, datasets, figures, ledger, pages, published
from gelu_study.chapters import scoring
from gelu_study.chapters.peeking import Scored, listed_and, lower, setting, signed, title
from gelu_study.runs import RunRecord


def run_figure(chapter: Scored, activation: str, keep_probability: float, seed: int, name: str = "peeking-run") -> None:
    """Test and validation error of one run over its epochs, with the epochs that each curve chooses."""
    record = _record(chapter, activation, keep_probability, seed)
    if record is None:
        pages.text(f"There is no finished run of {activation} at keep probability {keep_probability:g} with seed {seed}.")
        return
    row = chapter.runs.set_index("key").loc[record.config.key]
    loss, error, test = (int(row[f"epoch_at_{curve}"]) for curve in scoring.CURVES)
    sentence = (
        f"One run: {activations.title(activation)}, {pages.condition(keep_probability)}, learning rate "
        f"{pages.rate(record.config.learning_rate)}, seed {seed}. Validation loss is least after epoch {loss} "
        f"({row['test_at_validation_loss']:.2f} % test error), validation error after epoch {error} "
        f"({row['test_at_validation_error']:.2f} %), test error itself after epoch {test} ({row['test_at_test_error']:.2f} %): the "
        "three markers."
    )
    caption = figures.caption(ledger.table([record]), chapter.found.scale, sentence)
    pages.figure(draw_run(record), name, "Test and validation error of a run, with the chosen epochs", caption, [record.config.key])


@figures.typeset
def draw_run(record: RunRecord) -> Figure:
    """Errors in percent over epochs; a marker at the epoch that each curve chooses."""
    drawn, (ax,) = figures.panels(1, height=3.6)
    epochs = np.arange(1, record.config.epochs + 1)
    colour = figures.STYLES.get(record.config.activation, ("#555555", "-", "o"))[0]
    ends = {curve: scoring.at_epoch_ends(record, curve) for curve in scoring.CURVES}
    ax.plot(epochs, ends[scoring.TEST], color=colour, label="test error")
    ax.plot(epochs, ends[scoring.ERROR], color="#888888", ls="--", lw=1.4, label="validation error")
    for curve, marker in zip(scoring.CURVES, ("s", "D", "v"), strict=True):
        place = int(ends[curve].argmin())
        label = f"least {curve.replace('_', ' ')}"
        ax.plot(
            epochs[place], ends[scoring.TEST][place], marker, ms=10, mfc="white", mec="black", mew=1.8, zorder=4, ls="", label=label
        )
    late = np.concatenate([values[len(values) // 10 :] for values in (ends[scoring.TEST], ends[scoring.ERROR])])
    room = 0.08 * float(np.ptp(late) or 1)
    ax.set_ylim(float(late.min()) - room, float(late.max()) + room)
    ax.set_xlabel("epoch")
    ax.set_ylabel("error (%)")
    ax.grid(True, axis="y")
    handles: list[Line2D] = ax.get_lines()
    drawn.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    return drawn


def _record(chapter: Scored, activation: str, keep: float, seed: int) -> RunRecord | None:
    rate = _rates(chapter, keep).get(activation)
    for record in chapter.found.records:
        config = record.config
        if (config.activation, config.keep_probability, config.learning_rate, config.seed) == (activation, keep, rate, seed):
            return record if record.status == "finished" else None
    return None


def _rates(chapter: Scored, keep: float) -> dict[str, float]:
    """The learning rate that validation loss chose for each activation."""
    scores = chapter.scores.get(keep)
    if scores is None:
        return {}
    return {name: rate for name, (_, rate) in zip(scores.names, scores.choices[scoring.HONEST], strict=True)}


def plateaus(chapter: Scored, epochs: int) -> pd.DataFrame:
    """`scoring.plateau` of each finished run of more than `epochs` epochs at the chosen learning rate.

    Columns: activation, keep_probability, key, the fields of `scoring.Plateau`, and luck = on_test - on_validation.
    """
    rows = []
    for keep in chapter.scores:
        rates = _rates(chapter, keep) if keep is not None else {}
        for name, rate in rates.items():
            for record in chapter.found.records:
                config = record.config
                if (config.activation, config.keep_probability, config.learning_rate, record.status) == (
                    name,
                    keep,
                    rate,
                    "finished",
                ) and config.epochs > epochs:
                    found = scoring.plateau(record, epochs)
                    values = {"activation": name, "keep_probability": keep, "key": config.key, **vars(found)}
                    rows.append(values | {"luck": found.on_test - found.on_validation})
    columns = ["activation", "keep_probability", "key", "fluctuation", "by_chance", "on_test", "on_validation", "luck"]
    return pd.DataFrame(rows, columns=columns)


def table(chapter: Scored, epochs: int, name: str = "peeking-luck") -> None:
    """What choosing among the last epochs buys on test images, how much of it validation images see, and what noise would give."""
    found = plateaus(chapter, epochs)
    if found.empty:
        pages.text(f"No finished run at a chosen learning rate has more than {epochs} epochs, so there is no plateau to look at.")
        return
    rows = []
    for (keep, activation), cell in found.groupby(["keep_probability", "activation"], sort=False):
        row = {"activation": f"{title(activation)}<br>{briefly(keep)}"}
        for heading, column in (
            ("from epoch to epoch", "fluctuation"),
            ("by chance", "by_chance"),
            ("on test", "on_test"),
            ("on validation", "on_validation"),
            ("luck", "luck"),
        ):
            row[heading] = _spread(cell[column], signed if column in ("on_validation", "luck") else _plain)
        rows.append(row)
    caption = (
        f"The last {epochs} epochs of each run, less a straight line; means over runs with 95 % t intervals, in points of error. "
        "<i>From epoch to epoch</i>: standard deviation of test error. <i>By chance</i>: how far the least of "
        f"{epochs} independent normal values with that deviation lies below their mean. <i>On test</i>: how far the least test "
        "error lies below the line. <i>On validation</i>: how far validation error lies below its own line at that epoch, which is "
        "what that epoch is better on images that did not choose it. <i>Luck</i>: the difference."
    )
    pages.table(pd.DataFrame(rows), name, caption, found["key"])


def _spread(values: pd.Series, write: Callable[[float], str]) -> str:
    middle, low, high = scoring.mean_interval(values)
    around = "" if math.isnan(low) else f' <span class="study-interval">[{write(low)}, {write(high)}]</span>'
    return f'<span class="study-value">{write(middle)}{around}</span>'


def _plain(value: float) -> str:
    return f"{value:.2f}"


def briefly(keep: float) -> str:
    """A keep probability in few words."""
    return "no dropout" if keep == 1 else f"keep {keep:g}"


def sentences(chapter: Scored, epochs: int) -> None:
    """What the table of luck says, in sentences, beside the standard error of the test set."""
    found = plateaus(chapter, epochs)
    if found.empty:
        return
    pages.text("\n".join(f"- {line}" for line in lines_of(chapter, found, epochs)).replace(" %", "\u00a0%"))


def lines_of(chapter: Scored, found: pd.DataFrame, epochs: int) -> list[str]:
    """`sentences` as lines of Markdown, from `plateaus`."""
    factors = [-scoring.least_of_normals(count) for count in (epochs, chapter.best_of)]
    lines = [f"The least of {epochs} independent normal values lies {factors[0]:.2f} standard deviations below their mean."]
    for keep, cells in found.groupby("keep_probability", sort=False):
        name = cells["activation"].iloc[0]
        cell = cells[cells["activation"] == name][["fluctuation", "by_chance", "on_test"]].mean()
        lines.append(
            f"{setting(keep)}, {activations.title(name)}'s test error moves by {cell['fluctuation']:.2f} points from epoch to "
            f"epoch. Were all of that noise, the least would lie {cell['by_chance']:.2f} points below the line; it lies "
            f"{cell['on_test']:.2f} below."
        )
    lucky: list[str] = []
    real: list[str] = []
    for (keep, name), cell in found.groupby(["keep_probability", "activation"], sort=False):
        middle, low, _ = scoring.mean_interval(cell["luck"])
        label = f"{activations.title(name)} {pages.condition(keep)} ({signed(middle)} of {signed(cell['on_test'].mean())})"
        (lucky if low > 0 else real).append(label)
    if lucky:
        lines.append(f"Part of the drop is luck with the test images, in points: {', '.join(lucky)}.")
    if real:
        lines.append(f"No luck can be shown in the drop, since validation images see as much of it: {', '.join(real)}.")
    examples = datasets.SHAPES[chapter.found.planned[0].dataset]["y_test"][0]
    for keep, scores in chapter.scores.items():
        honest = float(scores.errors[scoring.HONEST][0, 0])
        if keep is None or not math.isfinite(honest):
            continue
        subject = activations.title(scores.names[0])
        lines.append(
            f"{setting(keep)}, {subject}'s {honest:.2f} % on {examples:,} images has a standard error of "
            f"{scoring.binomial_error(honest, examples):.2f} points: so far may it lie from the error on all images of this "
            "kind."
        )
        runs = chapter.runs[chapter.runs["key"].isin(scores.keys) & (chapter.runs["activation"] == scores.names[0])]
        spread = float(runs["test_at_validation_loss"].std())
        if math.isfinite(spread) and len(runs) > chapter.best_of:
            lines.append(
                f"{setting(keep)}, seeds of {subject} differ with a standard deviation of {spread:.2f} points. Were they normal, "
                f"the best of {chapter.best_of} would lie {factors[1]:.2f} of these, {factors[1] * spread:.2f} points, below their "
                f"mean; it lies {float(scores.gains(scoring.BEST_SEED)[0, 0]):.2f} below their median."
            )
    lines.append(
        "Every epoch is tested on the same images, so much of the standard error of a test set is common to all epochs, and "
        "choosing among them does not feed on it. It says how far from the truth any of these numbers may be, honest ones too."
    )
    return lines


# The paper


@dataclass(frozen=True)
class PaperRow:
    """An activation's CIFAR-10 test error (%), in the text and on figure 5's curve without the smoothing."""

    activation: str
    text: float
    last: float
    least: float
    epoch: float  # of the least, as plotted


def paper() -> None:
    """Whether the paper's own CIFAR-10 numbers are those of the last epoch or of the best: a table and a sentence."""
    rows = paper_rows()
    shown = [
        {
            "activation": row.activation,
            "in the text": f"{row.text:.2f}",
            "last epoch": f"{row.last:.2f}",
            "least on the curve": f"{row.least:.2f}",
            "at epoch": f"{row.epoch:.0f}",
        }
        for row in rows
    ]
    pages.plain_table(pd.DataFrame(shown))
    pages.text(paper_sentence(rows))


def paper_sentence(rows: Sequence[PaperRow]) -> str:
    """What the table says about the paper's choice of the epoch."""
    close = [row.activation for row in rows if abs(row.text - row.last) < 0.005]
    least = [row.activation for row in rows if abs(row.text - row.least) < 0.005]
    gains = np.array([row.text - row.least for row in rows])
    said = (
        f"The text's number is the last epoch's for {listed_and(close)}"
        if close
        else "None of the text's numbers is the last epoch's"
    )
    said += f", and the least of the curve for {listed_and(least) if least else 'none'}."
    if all(abs(row.text - row.last) < abs(row.text - row.least) for row in rows):
        said += (
            " Each lies nearer to the last epoch than to the best, so the paper's CIFAR-10 numbers do not come from picking "
            f"an epoch on test data. Had they, they would be {lower(gains)}."
        )
    return said


def paper_rows() -> list[PaperRow]:
    """The rows of `paper`; the least is taken of points that are surely one run's logged value."""
    curves = published.unsmoothed(5).query("split == 'test'").sort_values("epoch_plotted")
    ends = curves.groupby("activation")["raw_value"].last()
    rows = []
    for claim in published.claims("result", "cifar10_convnet").itertuples():
        curve = curves[(curves["activation"] == claim.activation) & (curves["on_grid"] == 1)]
        least = curve.loc[curve["raw_value"].idxmin()]
        last = float(ends[claim.activation])
        rows.append(
            PaperRow(str(claim.activation), float(claim.value), last, float(least["raw_value"]), float(least["epoch_plotted"]))
        )
    return rows
