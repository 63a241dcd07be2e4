"""What the unchanged runs say of departures that change no training: fewer epochs, and what is called training loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from gelu_study import activations, figures, ledger, pages, published, statistics
from gelu_study.chapters.departures import SUBJECT
from gelu_study.runs import RunRecord
from gelu_study.study import Study

Ratios = dict[tuple[str, str], pd.DataFrame]
"""For each (setting in words, rival), the subject's loss / the rival's: a row a common seed, a column an epoch (from 1)."""


def over_epochs(found: Study, curve: str) -> Ratios:
    """Ratios of a curve with a value an epoch, in every setting in which finished runs of both sides have a seed in common.

    Settings are the keep probabilities at the learning rates that validation chose, or, where nothing chooses, the learning rates.
    """
    result: Ratios = {}
    claim = published.CLASSIFIER
    chooses = bool(found.chosen)
    cells = sorted({(c.keep_probability, c.learning_rate) for c in found.planned}, reverse=True)
    for keep, rate in [(keep, None) for keep in dict.fromkeys(keep for keep, _ in cells)] if chooses else cells:
        for rival in claim.rivals:
            sides = []
            for name in (SUBJECT, rival):
                wanted = (name, keep, rate if rate is not None else found.chosen.get((name, keep)))
                runs = [
                    r
                    for r in _finished(found)
                    if (r.config.activation, r.config.keep_probability, r.config.learning_rate) == wanted
                ]
                sides.append({r.config.seed: np.asarray(r.curves[curve], dtype=float) for r in runs})
            common = sorted(sides[0].keys() & sides[1].keys())
            if not common:
                continue
            ratios = np.stack([sides[0][seed] / sides[1][seed] for seed in common])
            label = f"learning rate {pages.rate(rate)}" if rate is not None else pages.condition(keep)
            result[label, rival] = pd.DataFrame(ratios, index=common, columns=np.arange(1, ratios.shape[1] + 1))
    return result


def _finished(found: Study) -> list[RunRecord]:
    statistics.refuse_mixture(found.table)
    return [record for record in found.records if record.status == "finished"]


def _ratio(ratios: pd.Series) -> tuple[float, float, float]:
    """Median and interval of ratios, from their logarithms."""
    middle, low, high = np.exp(statistics.median_interval(np.log(ratios)))
    return float(middle), float(low), float(high)


def epochs_shown(found: Study, curve: str, epochs: Sequence[int], name: str) -> None:
    """What fewer epochs would have said: a figure over all epochs, a table at some, and sentences.

    `curve` is train_loss_epoch or test_loss; `name` begins the names of figure and table.
    """
    shown = over_epochs(found, curve)
    if not shown:
        planned = len(found.planned)
        pages.text(
            f"> **Not run yet.** {len(found.records)} of {planned} runs of `{found.experiment}` have a record: none to compare."
        )
        return
    runs = statistics.at_choice(found.table, found.chosen) if found.chosen else found.table
    what = "training" if curve.startswith("train") else "test"
    sentence = (
        f"GELU's {what} loss as a multiple of its rival's after each epoch: medians over seeds, bands their quartiles. Below 1 "
        "GELU is better."
    )
    ends = [
        f"{pages.number(_ratio(ratios.iloc[:, -1])[0])} against {activations.title(rival)}, {label}"
        for (label, rival), ratios in shown.items()
    ]
    alt = f"Ratio of GELU's {what} loss to each rival's over the epochs. At the end: {'; '.join(ends)}"
    pages.figure(draw_epochs(shown), name, alt, figures.caption(runs, found.scale, sentence), runs["key"])
    rows = []
    for epoch in epochs:
        row = {"epochs": str(epoch)}
        for (label, rival), ratios in shown.items():
            if epoch in ratios:
                middle, low, high = _ratio(ratios[epoch])
                row[f"{activations.title(rival)}<br>{label.removeprefix('with dropout, ')}"] = pages.interval(
                    float(middle), float(low), float(high)
                )
        if len(row) > 1:
            rows.append(row)
    if rows:
        caption = f"GELU's {what} loss after so many epochs as a multiple of its rival's: median over seeds with its 95 % interval."
        pages.table(pd.DataFrame(rows), f"{name}-table", caption, runs["key"])
    pages.text("\n".join(f"- {line}" for line in epoch_lines(shown, what)))


def epoch_lines(shown: Ratios, what: str) -> list[str]:
    """After how many epochs the median is on the side of 1 on which it ends, for each comparison."""
    lines = []
    for (label, rival), ratios in shown.items():
        middle = np.log(ratios.median())
        end = float(middle.iloc[-1])
        title = activations.title(rival)
        who = f"{label[0].upper()}{label[1:]}, GELU's {what} loss"
        if end == 0:
            lines.append(f"{who} ends as {title}'s.")
            continue
        same = int((np.sign(middle) == np.sign(end)).sum())
        always = "after every epoch" if same == len(middle) else f"after {same} of {len(middle)} epochs, the last among them"
        lines.append(f"{who} is {'lower' if end < 0 else 'higher'} than {title}'s {always}; it ends {pages.ratio(math.exp(end))}.")
    return lines


@figures.typeset
def draw_epochs(shown: Ratios) -> Figure:
    """A panel for each setting; a line for each rival, on a logarithmic axis."""
    labels = list(dict.fromkeys(label for label, _ in shown))
    drawn, axes = figures.panels(len(labels), height=2.6, sharex=True)
    for ax, label in zip(axes, labels, strict=True):
        for (setting, rival), ratios in shown.items():
            if setting != label:
                continue
            colour, line, _ = figures.STYLES[rival]
            low, middle, high = ratios.quantile([0.25, 0.5, 0.75]).to_numpy()
            ax.fill_between(ratios.columns, low, high, color=colour, alpha=0.16, lw=0)
            ax.plot(ratios.columns, middle, color=colour, ls=line, gid=f"{rival} {label}")
        ax.axhline(1, color="#555555", lw=1)
        figures.log_axis(ax, "y")
        ax.set_title(f"{label[0].upper()}{label[1:]}")
        ax.set_ylabel("GELU / rival")
    axes[-1].set_xlabel("epoch")
    figures.legend(drawn, list(dict.fromkeys(rival for _, rival in shown)), [])
    return drawn


MEASURES: dict[str, Callable[[RunRecord], float]] = {
    "mean over the last epoch": lambda record: record.final["train_loss"],
    "all images, after the last step": lambda record: record.final["train_loss_full"],
    "smoothed, as figure 2 ends": lambda record: record.curves["train_loss_smoothed"][-1],
}
"""What "training loss" may mean, of a finished record."""


def measures_table(base: Study) -> None:
    """GELU's training loss / each rival's under each meaning of it."""
    if not base.chosen:
        pages.text("No learning rate is chosen yet, so there is nothing to measure in several ways.")
        return
    claim, rows = published.CLASSIFIER, []
    turned = []
    for keep in claim.keep_probabilities:
        first: dict[str, float] = {}
        for name, measure in MEASURES.items():
            row = {"training loss": f"{name}<br>{pages.condition(keep)}"}
            for rival in claim.rivals:
                compared = statistics.compare(*(_measured(base, side, keep, measure) for side in (claim.subject, rival)))
                middle, low, high = (math.exp(value) for value in (compared.median, compared.low, compared.high))
                row[f"GELU / {activations.title(rival)}"] = pages.interval(middle, low, high)
                if compared.median * first.setdefault(rival, compared.median) < 0:
                    includes = "includes" if compared.low <= 0 <= compared.high else "does not include"
                    where = f"against {activations.title(rival)} {pages.condition(keep)}, by the loss called *{name}*"
                    turned.append(f"{where}, {pages.ratio(middle)}, with an interval that {includes} no difference")
            rows.append(row)
    caption = (
        "GELU's training loss as a multiple of its rival's, by what is called training loss: median over seeds, 95 % interval."
    )
    pages.table(pd.DataFrame(rows), "departures-measures", caption, statistics.at_choice(base.table, base.chosen)["key"])
    usual = next(iter(MEASURES))
    if turned:
        pages.text(f"The verdict goes by the *{usual}*. On the other side of 1 is GELU's loss {'; '.join(turned)}.")
    else:
        pages.text(f"The verdict goes by the *{usual}*. In every comparison the other two are on the same side of 1.")


def _measured(base: Study, activation: str, keep: float, measure: Callable[[RunRecord], float]) -> pd.Series:
    wanted = (activation, keep, base.chosen.get((activation, keep)))
    runs = [r for r in base.records if (r.config.activation, r.config.keep_probability, r.config.learning_rate) == wanted]
    statistics.refuse_mixture(ledger.table(runs))
    values = [measure(record) if record.status == "finished" else math.inf for record in runs]
    return pd.Series(values, index=pd.Index([record.config.seed for record in runs], dtype=int), dtype=float)
