"""What the chapter shows of seeds: their spread, the rule's power, the seeds needed, and what a few draws would have said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gelu_study import activations, figures, pages, statistics
from gelu_study.chapters.certainty import seeds as by_seed
from gelu_study.chapters.certainty.seeds import TIE, Crowned, Needed, Pairs
from gelu_study.chapters.certainty.words import (
    CLAIM,
    MEASURES,
    PAPER_SEEDS,
    chosen_rows,
    count,
    draws_said,
    found_pairs,
    lacking,
    listed,
    percent,
    title,
    versus,
)
from gelu_study.study import Study

MANY = 12
"""An experiment of more settings is shown with a line for each activation instead of one for each setting."""
_SHORT = {"keep_probability": "keep", "learning_rate": "rate"}
_LOSSES = {"train_loss": "training loss", "test_loss": "test loss", "test_error": "test error (%)"}


# The spread between seeds


def spread_tables(found: Mapping[str, Study]) -> None:
    """For every experiment with records: the spread of its loss and error between seeds."""
    if not found:
        pages.text("> **Not run yet.** No experiment has a record.")
    for experiment, one in found.items():
        rows = chosen_rows(one) if one.chosen else one.table
        rows = rows[rows["experiment"] == experiment]
        for metric in by_seed.measures(rows):
            spreads = by_seed.spread(rows, metric)
            if spreads.empty:
                pages.text(f"`{experiment}`: no setting has {statistics.LEAST_SEEDS} seeds yet.")
                break
            caption = (
                f"<code>{experiment}</code>: {_LOSSES[metric]} at the end of training. <i>Spread</i>: the standard deviation "
                "between seeds, in percent of the mean."
            )
            name = f"how-sure-{experiment}-{metric}".replace("_", "-")
            pages.table(spread_rows(spreads), name, figures.caption(rows, one.scale, caption), rows["key"])
        else:
            pages.text(spread_sentence(experiment, rows))


def spread_rows(spreads: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, or for each activation where there are many settings."""
    if len(spreads) > MANY:
        return pd.DataFrame([_many(str(name), cell) for name, cell in spreads.groupby("activation", sort=False)])
    names = labels(spreads)
    return pd.DataFrame(
        [
            {
                "activation": activations.title(row["activation"]).replace(" ", "&nbsp;"),
                **({"setting": label} if any(names) else {}),
                "spread": percent(row["relative"]),
                "median [95 %]": pages.interval(row["median"], row["low"], row["high"]),
                "range": f"{pages.number(row['least'])} to {pages.number(row['greatest'])}",
                "seeds": str(row["n"]),
            }
            for label, (_, row) in zip(names, spreads.iterrows(), strict=True)
        ]
    )


def _many(name: str, cell: pd.DataFrame) -> dict[str, str]:
    """The spreads of one activation's settings in a line; a setting with a diverged run has none."""
    known = cell["relative"].dropna()
    return {
        "activation": activations.title(name).replace(" ", "&nbsp;"),
        "settings": str(len(cell)),
        "seeds": up_to(cell["n"].min(), cell["n"].max()),
        "spread, median": percent(float(known.median())),
        "least": percent(float(known.min())),
        "greatest": percent(float(known.max())),
    }


def up_to(least: float, most: float) -> str:
    """A range of counts, or the count."""
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def labels(spreads: pd.DataFrame) -> list[str]:
    """What tells each setting from the others, but for the activation.

    Keep probability and learning rate where they vary; anything else where it is not the most common value.
    """
    varying = [name for name in by_seed.settings(spreads) if name != "activation" and spreads[name].nunique() > 1]
    usual = spreads[varying].mode().iloc[0] if varying else {}
    result = []
    for _, row in spreads.iterrows():
        parts = []
        for name in varying:
            value = row[name]
            if name in _SHORT:
                parts.append(f"{_SHORT[name]} {pages.rate(float(value))}")
            elif value != usual[name]:
                parts.append(str(value) if isinstance(value, str) else f"{value:,g} {name.replace('_', ' ')}")
        result.append(", ".join(parts))
    return result


def spread_sentence(experiment: str, rows: pd.DataFrame) -> str:
    """The least and the greatest spread of an experiment's loss and error."""
    parts = []
    for metric in by_seed.measures(rows):
        known = by_seed.spread(rows, metric)["relative"].dropna()
        if len(known):
            parts.append(f"{percent(known.min())} to {percent(known.max())} of the mean for the {_LOSSES[metric].split(' (')[0]}")
    return f"In `{experiment}` the standard deviation between seeds is {listed(parts)}." if parts else ""


# Power


def power(found: Study, resamples: int, most_seeds: int) -> None:
    """The probability that the rule decides, against the number of seeds; a figure and its numbers."""
    both = found_pairs(found)
    if both is None:
        pages.text(lacking(found))
        return
    shares = by_seed.decided(both, by_seed.sizes(most_seeds), resamples)
    rows = chosen_rows(found)
    sentence = (
        f"Probability that the rule decides, by the number of seeds: {resamples:,} studies for each number, drawn from our "
        f"{len(both.subject)} seeds with replacement, their spread made unbiased. Bands: the noncentral t distribution, at a "
        f"level of {100 * statistics.SIGNIFICANCE:g} % (upper edge) and of {100 * statistics.SIGNIFICANCE / len(both.cells):g} "
        "% (lower edge); Holm's adjustment lies between. Where a line crosses the dotted 80 %, so many seeds suffice."
    )
    pages.figure(
        power_figure(both, shares),
        "how-sure-power",
        "Probability that the verdict's rule decides against the number of seeds, for each comparison and for the claim as a whole",
        figures.caption(rows, found.scale, sentence),
        rows["key"],
    )
    shown = [n for n in (3, PAPER_SEEDS, 10, 20, 40) if n in shares.index]
    names = [(title(rival), f"{keep:g}") for keep, rival in both.cells]
    lines = [
        {"GELU vs": rival, "keep": keep, **{f"{n} seeds": percent(float(shares.loc[n, column])) for n in shown}}
        for (rival, keep), column in zip([*names, ("<b>all</b>", "")], shares.columns, strict=True)
    ]
    pages.table(
        pd.DataFrame(lines),
        "how-sure-power-table",
        "Probability that the rule decides, from the same drawn studies. <i>All</i>: the verdict on the claim as a whole, "
        "which goes by its weakest comparison. <i>Keep</i>: the keep probability, 1 for no dropout.",
        rows["key"],
    )


@figures.typeset
def power_figure(both: Pairs, shares: pd.DataFrame) -> Figure:
    """Curves of `by_seed.decided` over bands of the noncentral t distribution, a panel for each keep probability."""
    keeps = list(dict.fromkeys(keep for keep, _ in both.cells))
    figure, axes = figures.panels(len(keeps) + 1, height=2.2, sharex=True)
    sizes = shares.index.to_numpy()
    for ax, keep in zip(axes, keeps, strict=False):
        for place, (held, rival) in enumerate(both.cells):
            if held != keep:
                continue
            d = both.differences[:, place]
            colour, line, _ = figures.STYLES[rival]
            deviation = float(d.std(ddof=1))
            if deviation > 0 and abs(float(d.mean())) / deviation < 100:
                low, high = (
                    [statistics.paired_power(int(n), abs(float(d.mean())) / deviation, alpha) for n in sizes]
                    for alpha in (statistics.SIGNIFICANCE / len(both.cells), statistics.SIGNIFICANCE)
                )
                ax.fill_between(sizes, low, high, color=colour, alpha=0.18, lw=0)
            ax.plot(
                sizes, shares[place], color=colour, linestyle=line, gid=f"{rival} {keep:g}", label=f"vs {title(rival)}", zorder=3
            )
        ax.set_title(f"GELU's training loss, {'no dropout' if keep == 1 else f'dropout, keep {keep:g}'}")
        ax.legend(loc="lower right", frameon=False)
    axes[-1].plot(sizes, shares["claim"], color="black", gid="claim")
    axes[-1].set_title("The claim as a whole")
    for ax in axes:
        ax.axhline(statistics.POWER, color="#777777", lw=1, ls=(0, (1, 2)))
        ax.set_ylim(-0.03, 1.03)
        ax.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", "20 %", "40 %", "60 %", "80 %", "100 %"])
        ax.grid(True)
        ax.set_xlim(sizes[0], sizes[-1])
    axes[-1].set_xlabel("seeds")
    return figure


def needed_rows(both: Pairs) -> list[tuple[tuple[float, str], Needed]]:
    """`by_seed.needed` of every comparison."""
    return [
        (cell, by_seed.needed(both.differences[:, place], both.subject[:, place], both.rival[:, place]))
        for place, cell in enumerate(both.cells)
    ]


def needs(found: Study) -> None:
    """How many seeds the paper's claim needs here, by training loss and by test error."""
    shown, sentences = [], []
    for metric, name in MEASURES.items():
        both = found_pairs(found, metric)
        if both is None:
            continue
        for cell, one in needed_rows(both):
            shown.append(
                {
                    "by": name.split()[-1],
                    "GELU vs": title(cell[1]),
                    "keep": f"{cell[0]:g}",
                    "difference": pages.ratio(math.exp(one.mean)),
                    "spread": percent(one.deviation),
                    "seeds [95 %]": f'<span class="study-value">{count(one.seeds)} <span class="study-interval">'
                    f"{up_to(one.fewest, one.most)}</span></span>",
                }
            )
            if metric == CLAIM.metric:
                chance = "p < 0.001" if one.p_correlation < 0.001 else f"p = {one.p_correlation:.3f}"
                sentences.append(f"{one.correlation:.2f} {versus(cell)} ({chance})".replace("-", "−", 1))
    if not shown:
        pages.text(lacking(found))
        return
    rows = chosen_rows(found)
    pages.table(
        pd.DataFrame(shown),
        "how-sure-needs",
        "<i>By</i>: final training loss, and test error at the epoch of best validation loss. <i>Difference</i>: GELU's loss "
        "or error against its rival's, mean over seeds of the difference of logarithms. <i>Spread</i>: standard deviation of "
        "that difference. <i>Seeds</i>: for a power of 80 % in this one comparison, and below it what the ends of the 95 % "
        "interval of difference / spread would need; ∞ where the interval holds 0. <i>Keep</i>: the keep probability, 1 for "
        "no dropout.",
        rows["key"],
    )
    if sentences:
        pages.text(
            "Pairs of the same seed are worth more than unpaired runs where the two losses go together, and less where they "
            f"part. The correlation of their logarithms is {listed(sentences)}."
        )


# A few draws


def rankings(found: Study, sizes: Sequence[int]) -> None:
    """Who would have come first in draws of a few of our seeds: a figure and its numbers."""
    frames = {metric: by_seed.losses(found, metric) for metric in MEASURES}
    total = min(len(frame) for frame in frames.values())
    possible = [size for size in dict.fromkeys(sizes) if 1 <= size < total]
    if not possible or total < statistics.LEAST_SEEDS:
        pages.text(
            lacking(found) if total < statistics.LEAST_SEEDS else f"There are only {total} seeds to draw from; fewer can be drawn."
        )
        return
    results = {metric: [by_seed.crowned(frame, size) for size in possible] for metric, frame in frames.items()}
    rows = chosen_rows(found)
    drawn = listed([draws_said(result, total) for result in results[CLAIM.metric]])
    pages.figure(
        rankings_figure(results),
        "how-sure-draws",
        "Which activation has the lowest median in draws of a few seeds, by training loss and by test error, as shares of the "
        "draws",
        figures.caption(
            rows,
            found.scale,
            f"Which activation comes first (lowest median) in {drawn}, without replacement: the longer one bar of a row, the less "
            "the choice of seeds matters.",
        ),
        rows["key"],
    )
    pages.table(
        pd.DataFrame(ranking_rows(results)),
        "how-sure-draws-table",
        "Shares of the draws, by training loss and by test error. <i>Not first</i>: another activation has a lower median; "
        "ties count for neither. <i>Own seeds</i>: first in both if each activation and condition is drawn by itself, as in "
        "the paper. Its claim is about training loss.",
        rows["key"],
    )
    pages.text(ranking_sentence(results[CLAIM.metric]))


def ranking_rows(results: Mapping[str, Sequence[Crowned]]) -> list[dict[str, str]]:
    """How often GELU is not first in each condition, and first in all, for each measure and number of seeds."""
    return [
        {
            "by": MEASURES[metric].split()[-1],
            "seeds": str(result.size),
            **{
                f"not first, {'no dropout' if keep == 1 else f'keep {keep:g}'}": percent(
                    max(0.0, 1 - row[[CLAIM.subject, TIE]].sum())
                )
                for keep, row in result.first.iterrows()
            },
            "first in both": percent(result.claim),
            "own seeds": percent(result.claim_apart),
        }
        for metric, sized in results.items()
        for result in sized
    ]


def ranking_sentence(sized: Sequence[Crowned]) -> str:
    """How often the whole order is the paper's, and what chance alone would give."""
    names = len(CLAIM.rivals) + 1
    orders = [
        f"{result.size} seeds give it in "
        + listed([f"{percent(float(share))} {pages.condition(float(keep))}" for keep, share in result.as_published.items()])
        for result in sized
    ]
    return (
        f"The order of all {names} activations at the end of the paper's figure 2: {'; '.join(orders)}. For comparison: of "
        f"{names} activations that are all the same, GELU would come first in both conditions in "
        f"{percent(names ** -len(CLAIM.keep_probabilities))} of all studies."
    )


@figures.typeset
def rankings_figure(results: Mapping[str, Sequence[Crowned]]) -> Figure:
    """Bars of who is first, a panel for each measure: each condition by itself, then GELU first in all of them."""
    first = results[CLAIM.metric][0].first
    bars = len(results[CLAIM.metric]) * (len(first) + 1)
    figure, axes = figures.panels(len(results), height=0.75 + 0.42 * bars, sharex=True)
    colours = {name: figures.STYLES[name][0] for name in first.columns if name != TIE} | {TIE: "#BBBBBB"}
    for ax, (metric, sized) in zip(axes, results.items(), strict=True):
        labels: list[str] = []
        for keep in first.index:
            for result in sized:
                _bar(ax, len(labels), [(float(result.first.loc[keep, name]), colour) for name, colour in colours.items()])
                labels.append(f"{'no dropout' if keep == 1 else f'keep {keep:g}'}, {result.size} seeds")
        for result in sized:
            _bar(ax, len(labels), [(result.claim, colours[CLAIM.subject]), (1 - result.claim, "#EEEEEE")])
            labels.append(f"GELU in both, {result.size} seeds")
        ax.set_yticks(range(bars), labels)
        ax.set_ylim(bars - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(0, 1)
        ax.set_title(f"First by {MEASURES[metric]}")
    axes[-1].set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes[-1].set_xlabel("share of the draws")
    handles = [Patch(color=colour, label="tied" if name == TIE else title(name)) for name, colour in colours.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, handlelength=1.4, columnspacing=1.2)
    return figure


def _bar(ax: Axes, place: int, parts: Sequence[tuple[float, str]]) -> None:
    """A bar of shares, with numbers where there is room for them."""
    left = 0.0
    for share, colour in parts:
        ax.barh(place, share, left=left, height=0.74, color=colour, edgecolor="white", linewidth=0.8)
        if share > 0.1:
            light = colour in ("#BBBBBB", "#EEEEEE")
            ax.text(
                left + share / 2, place, percent(share), ha="center", va="center", size=11, color="#222222" if light else "white"
            )
        left += share
