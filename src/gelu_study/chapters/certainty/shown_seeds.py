"""What the chapter shows of seeds: their spread, the rule's power, the seeds needed, and what a few draws would have said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

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
_LOSSES = {"train_loss": "training loss", "test_loss": "test loss", "test_error": "test error (%)"}


# The spread between seeds


def spread_tables(found: Mapping[str, Study]) -> None:
    """For every experiment with records: the spread of its loss and error between seeds."""
    if not found:
        pages.text("> **Not run yet.** No experiment has a record.")
    for experiment, one in found.items():
        rows = chosen_rows(one) if one.chosen else one.table
        for metric in by_seed.measures(rows):
            spreads = by_seed.spread(rows, metric)
            if spreads.empty:
                pages.text(f"`{experiment}`: no setting has {statistics.LEAST_SEEDS} seeds yet.")
                break
            if spreads["median"].isna().all():
                continue
            caption = f"<code>{experiment}</code>, {_LOSSES[metric]} at the end of training. {SPREAD_CAPTION} "
            pages.table(
                spread_rows(spreads),
                f"how-sure-{experiment}-{metric}",
                figures.caption(rows, one.scale, caption.strip()),
                rows["key"],
            )
        else:
            pages.text(spread_sentence(experiment, rows))


SPREAD_CAPTION = "<i>Spread</i>: the standard deviation between seeds, in percent of the mean."


def varying(spreads: pd.DataFrame) -> list[str]:
    """The settings, but for the activation, that are not the same in all rows."""
    return [name for name in by_seed.settings(spreads) if name != "activation" and spreads[name].nunique(dropna=False) > 1]


def spread_rows(spreads: pd.DataFrame) -> pd.DataFrame:
    """A row for each setting, or for each activation where there are many settings."""
    names = varying(spreads)
    if len(spreads) > MANY:
        rows = []
        for name, cell in spreads.groupby("activation", sort=False):
            known = cell["relative"].dropna()
            rows.append(
                {
                    "activation": activations.title(str(name)),
                    "settings": str(len(cell)),
                    "seeds": count(cell["n"].min()) + (f" to {count(cell['n'].max())}" if cell["n"].nunique() > 1 else ""),
                    "spread: median": percent(float(known.median())) if len(known) else "–",
                    "least": percent(float(known.min())) if len(known) else "–",
                    "greatest": percent(float(known.max())) if len(known) else "–",
                }
            )
        return pd.DataFrame(rows)
    return pd.DataFrame(
        [
            {
                "activation": activations.title(row["activation"]).replace(" ", "&nbsp;"),
                **{name.replace("_probability", "").replace("learning_", ""): setting(row[name]) for name in names},
                "seeds": str(row["n"]),
                "median [95 %]": pages.interval(row["median"], row["low"], row["high"]),
                "spread": percent(row["relative"]),
                "range": f"{pages.number(row['least'])} to {pages.number(row['greatest'])}",
            }
            for _, row in spreads.iterrows()
        ]
    )


def setting(value: Any) -> str:
    """A value of a setting in a table's cell."""
    return pages.rate(float(value)) if isinstance(value, float) else str(value)


def spread_sentence(experiment: str, rows: pd.DataFrame) -> str:
    """The least and the greatest spread of an experiment's loss and error."""
    parts = []
    for metric in by_seed.measures(rows):
        known = by_seed.spread(rows, metric)["relative"].dropna()
        if len(known):
            parts.append(f"the {_LOSSES[metric].split(' (')[0]} by {percent(known.min())} to {percent(known.max())} of its mean")
    return f"In `{experiment}` seeds differ (standard deviation) in {listed(parts)}." if parts else ""


# Power


def power(found: Study, resamples: int, most_seeds: int) -> None:
    """The probability that the rule decides, against the number of seeds; a figure and its numbers."""
    both = found_pairs(found)
    if both is None:
        pages.text(lacking(found))
        return
    shares = by_seed.decided(both, range(statistics.LEAST_SEEDS, most_seeds + 1), resamples)
    rows = chosen_rows(found)
    sentence = (
        f"Probability that the rule decides, by the number of seeds: {resamples:,} studies for each number, drawn from our "
        f"{len(both.subject)} seeds with replacement. Bands: the noncentral t distribution, at a level of "
        f"{100 * statistics.SIGNIFICANCE:g} % (upper edge) and at a {len(both.cells)}th of it (lower edge); Holm's adjustment "
        f"lies between."
    )
    pages.figure(
        power_figure(both, shares),
        "how-sure-power",
        "Probability that the verdict's rule decides against the number of seeds, for each comparison and for the claim as a whole",
        figures.caption(rows, found.scale, sentence),
        rows["key"],
    )
    shown = [n for n in (3, PAPER_SEEDS, 10, 20, 40) if n in shares.index]
    lines = []
    for place, cell in enumerate(both.cells):
        numbers = ", ".join(f"{percent(float(shares.loc[n, place]))} with {n}" for n in shown)
        lines.append(f"- A{versus(cell)[1:]}: {numbers}.")
    numbers = ", ".join(f"{percent(float(shares.loc[n, 'claim']))} with {n}" for n in shown)
    lines.append(f"- The claim as a whole, its weakest link: {numbers} seeds.")
    pages.text("\n".join(lines))


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
                    [statistics.paired_power(int(n), float(d.mean()) / deviation, alpha) for n in sizes]
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
                    "by": name,
                    "GELU vs": title(cell[1]),
                    "keep": f"{cell[0]:g}",
                    "difference": pages.ratio(math.exp(one.mean)),
                    "spread": percent(one.deviation),
                    "seeds [95 %]": f'<span class="study-value">{count(one.seeds)}<span class="study-interval">'
                    f"[{count(one.fewest)}, {count(one.most)}]</span></span>",
                }
            )
            if metric == CLAIM.metric:
                sentences.append(f"{one.correlation:.2f} {versus(cell)}".replace("-", "−", 1))
    if not shown:
        pages.text(lacking(found))
        return
    rows = chosen_rows(found)
    pages.table(
        pd.DataFrame(shown),
        "how-sure-needs",
        "<i>Difference</i>: GELU's loss or error against its rival's, mean over seeds of the difference of logarithms. "
        "<i>Spread</i>: standard deviation of that difference. <i>Seeds</i>: for a power of 80 % in this one comparison, with "
        "the "
        "values at the ends of the 95 % interval of difference / spread; ∞ where the interval holds 0. <i>Keep</i>: the keep "
        "probability, 1 for no dropout.",
        rows["key"],
    )
    if sentences:
        pages.text(
            f"Pairing by seed helps where the losses of a pair go together. Their logarithms correlate by "
            f"{listed(sentences)}; where the "
            "number is below 0, pairs tell less than as many unpaired runs would."
        )


# A few draws


def rankings(found: Study, sizes: Sequence[int]) -> None:
    """Who would have come first in draws of a few of our seeds: a figure and its numbers."""
    frames = {metric: by_seed.losses(found, metric) for metric in MEASURES}
    total = min(len(frame) for frame in frames.values())
    possible = [size for size in dict.fromkeys(sizes) if 1 <= size <= total]
    if not possible or total < statistics.LEAST_SEEDS:
        pages.text(lacking(found) if total < statistics.LEAST_SEEDS else f"There are only {total} seeds to draw from.")
        return
    results = {metric: [by_seed.crowned(frame, size) for size in possible] for metric, frame in frames.items()}
    rows = chosen_rows(found)
    drawn = listed([draws_said(result, total) for result in results[CLAIM.metric]])
    pages.figure(
        rankings_figure(results),
        "how-sure-draws",
        "Which activation has the lowest median in draws of a few seeds, by training loss and by test error, as shares of the "
        "draws",
        figures.caption(rows, found.scale, f"Which activation comes first (lowest median) in {drawn}, without replacement."),
        rows["key"],
    )
    pages.text("\n".join(ranking_lines(results)))


def ranking_lines(results: Mapping[str, Sequence[Crowned]]) -> list[str]:
    """The figure's numbers that answer the question, as Markdown lines."""
    lines = []
    for metric, name in MEASURES.items():
        for result in results[metric]:
            parts = []
            for keep in result.first.index:
                share = float(result.first.loc[keep, CLAIM.subject])
                tied = float(result.first.loc[keep, TIE])
                ties = f" and it ties for first in {percent(tied)}" if tied else ""
                parts.append(f"{percent(1 - share - tied)} {pages.condition(keep)}{ties}")
            lines.append(
                f"- By {name}, {result.size} seeds rank GELU *not* first in {listed(parts)}; first in both, as the paper says "
                f"of "
                f"training loss, in {percent(result.claim)} of the draws ({percent(result.claim_apart)} if every activation "
                f"has its own seeds, as in the paper)."
            )
    loss = results["train_loss"][-1]
    orders = listed([f"{percent(float(share))} {pages.condition(float(keep))}" for keep, share in loss.as_published.items()])
    names = len(CLAIM.rivals) + 1
    lines.append(
        f"- The order of all {names} activations at the end of the paper's figure 2 comes out of {loss.size} seeds in "
        f"{orders}. For "
        f"comparison: if the {names} activations were all the same, GELU would be first in both conditions in "
        f"{percent(names ** -len(CLAIM.keep_probabilities))} of all studies."
    )
    return lines


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
