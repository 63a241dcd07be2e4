"""What the chapter shows of test examples: their share of the uncertainty, the paper's differences, seeds and images at "
"once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from gelu_study import activations, figures, pages, published, statistics
from gelu_study.chapters.certainty import examples as by_example
from gelu_study.chapters.certainty.examples import Components, McNemar
from gelu_study.chapters.certainty.words import CLAIM, chosen_rows, count, images_in, lacking, listed, title
from gelu_study.runs import RunRecord
from gelu_study.study import Study

NOISE = "mnist-noise"
"""The experiment whose records say which test images each network got wrong."""


# The test set


def two_sources(found: Study) -> None:
    """For each setting: what the test set and what the seeds contribute to the uncertainty of a test error."""
    if not found.chosen:
        pages.text(lacking(found))
        return
    examples, rows = images_in(found), chosen_rows(found)
    shown = []
    for (name, keep), cell in rows.groupby(["activation", "keep_probability"], sort=False):
        errors = cell["best_test_error"].dropna()
        if len(errors) < 2:
            continue
        by_set = 100 * by_example.standard_error(float(errors.median()) / 100, examples)
        shown.append(
            {
                "activation": activations.title(str(name)).replace(" ", "&nbsp;"),
                "keep": f"{keep:g}",
                "error, %": f"{errors.median():.2f}",
                "test set": f"{by_set:.2f}",
                "seed": f"{errors.std(ddof=1):.2f}",
            }
        )
    pages.table(
        pd.DataFrame(shown),
        "how-sure-two-sources",
        "Test error at the epoch of best validation loss (median over seeds), and two standard deviations of one network's "
        f"error in points: over other test sets of {examples:,} images (binomial), and over seeds on this one. "
        + figures.caption(rows, found.scale),
        rows["key"],
    )


def published_differences() -> None:
    """The paper's differences in test error against what their test sets can tell: a figure, a table, sentences."""
    differences = by_example.published_differences()
    pages.figure(
        published_figure(differences),
        "how-sure-published",
        "The paper's differences in test error with the least and the greatest 95 % interval that the size of the test set allows",
        "The paper's differences in test error: how much higher the rival's is. Thick: the 95 % interval if the better "
        "network's mistakes are all among the other's; thin: if the two share no mistake. Both are about test images alone; "
        "what seeds add is unknown. An interval that holds 0 leaves open which is better. From the paper's numbers; no record is "
        "behind it.",
        [],
    )
    rows = [
        {
            "claim": f"{row.name}, vs {row.rival}",
            "points": f"{row.difference:.2f}",
            "spread of seeds, at most": f"{row.quiet:.2f}",
            "runs": str(row.runs),
            "standard error": "–" if math.isnan(row.examples) else f"{row.least:.2f} to {row.greatest:.2f}",
            "test examples": "unknown" if math.isnan(row.examples) else count(float(row.examples)),
            "examples needed": f"{rounded(row.fewest)} to {rounded(row.most)}",
        }
        for row in differences.itertuples(index=False)
    ]
    pages.table(
        pd.DataFrame(rows),
        "how-sure-published-table",
        "<i>Points</i>: GELU's test error below its rival's. <i>Standard error</i> of that difference, in points, by the test "
        "set alone: least and greatest. <i>Examples needed</i> for McNemar's test to find it at a level of 5 %, for the same "
        "two extremes. <i>Spread of seeds, at most</i>: the standard deviation between seeds, in points, up to which the "
        "paper's number of runs on each side finds the difference with a power of 80 %.",
        [],
    )
    pages.text("\n".join(f"- {line}" for line in published_lines(differences)))


def published_lines(differences: pd.DataFrame) -> list[str]:
    """Which published differences the test set leaves open, and under which condition on the networks' mistakes."""
    quantile = float(stats.norm.isf(statistics.SIGNIFICANCE / 2))
    lines = []
    for row in differences.dropna(subset=["examples"]).itertuples(index=False):
        start = f"{row.name}, GELU against {row.rival}: {abs(row.difference):.2f} points are"
        if abs(row.difference) > quantile * row.greatest:
            lines.append(f"{start} beyond chance among test images, whatever the mistakes.")
        elif abs(row.difference) <= quantile * row.least:
            lines.append(f"{start} within chance among test images, whatever the mistakes.")
        else:
            lines.append(
                f"{start} beyond chance among test images only if fewer than {row.disagreement:.1f} % of them are got wrong by "
                f"exactly one of the two networks. Possible are {abs(row.difference):.2f} % to "
                f"{row.subject_error + row.rival_error:.1f} %."
            )
    unknown = differences[differences["examples"].isna()]
    if len(unknown):
        needs = listed(
            [f"{rounded(row.fewest)} ({row.name}, {row.rival})" for row in unknown.itertuples(index=False)],
        )
        lines.append(
            f"{listed(list(dict.fromkeys(unknown['name'])))}: how many examples the test sets have is not stated, so their "
            "standard errors are unknown. Even with mistakes that overlap as far as they can, the differences take at least "
            f"about {needs} examples."
        )
    return lines


def rounded(value: float) -> str:
    """A number of examples with two significant digits."""
    return f"{float(f'{value:.2g}'):,.0f}"


@figures.typeset
def published_figure(differences: pd.DataFrame) -> Figure:
    """The published differences with the narrowest and the widest interval that their test sets allow."""
    figure, (ax,) = figures.panels(1, height=1.1 + 0.5 * len(differences))
    quantile = float(stats.norm.isf(statistics.SIGNIFICANCE / 2))
    ax.axvline(0, color="#555555", lw=1)
    for place, row in enumerate(differences.itertuples(index=False)):
        colour, _, marker = figures.STYLES[{shown: name for name, shown in published.NAMES.items()}[row.rival]]
        for error, width in ((row.greatest, 1.4), (row.least, 5)):
            if not math.isnan(error):
                half = quantile * error
                ax.plot([row.difference - half, row.difference + half], [place] * 2, color=colour, lw=width, solid_capstyle="butt")
        ax.plot(row.difference, place, marker, mfc="white", mec=colour, mew=1.8, ms=8, zorder=4, gid=f"{row.name} {row.rival}")
        if math.isnan(row.examples):
            ax.annotate("test examples unknown", (row.difference, place), (12, 0), textcoords="offset points", va="center", size=11)
    ax.set_yticks(
        range(len(differences)),
        [f"{name}\nvs {rival}" for name, rival in zip(differences["name"], differences["rival"], strict=True)],
    )
    ax.set_ylim(len(differences) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(True, axis="x")
    ax.set_xlabel("rival's test error less GELU's (points)\n(right of 0: GELU is better)")
    handles = [
        Line2D([], [], color="#444444", lw=5, label="mistakes nested"),
        Line2D([], [], color="#444444", lw=1.4, label="no mistake shared"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False)
    return figure


# Seeds and images at once


def seeds_and_images(found: Study | None) -> None:
    """McNemar's test by seed, and the difference of errors over seeds and images: a figure, a table, sentences."""
    if found is None:
        pages.text(
            f"> **Not run yet.** The records of `{NOISE}` will say which test images each network got wrong; there are none. "
            "Until then this page has the binomial part above only."
        )
        return
    pages.progress(found)
    shown = mistaken(found.records, images_in(found))
    if not shown:
        pages.text("No two networks of one seed have a record of their mistakes yet.")
        return
    keys = [record.config.key for record in found.records if by_example.CURVE in record.curves]
    rows = found.table[found.table["key"].isin(keys)]
    level = statistics.SIGNIFICANCE
    table = [
        {
            "GELU vs": title(rival),
            "seeds": str(len(one.tests)),
            "only GELU wrong": f"{np.median([test.only_one for test in one.tests]):.0f}",
            "only the rival wrong": f"{np.median([test.only_other for test in one.tests]):.0f}",
            "GELU better": str(sum(test.p_value < level and test.only_one < test.only_other for test in one.tests)),
            "rival better": str(sum(test.p_value < level and test.only_one > test.only_other for test in one.tests)),
        }
        for rival, one in shown.items()
    ]
    pages.table(
        pd.DataFrame(table),
        "how-sure-mcnemar",
        "Test images that only one of two networks of the same seed gets wrong (medians over seeds), and in how many seeds "
        f"McNemar's exact test calls one of the two the better one at a level of {100 * level:g} %, by itself: if there were "
        "no difference, that "
        f"would be at most one in {1 / level:.0f}. " + figures.caption(rows, found.scale),
        keys,
    )
    both = {rival: one.components for rival, one in shown.items() if one.components is not None}
    if both:
        pages.figure(
            both_figure(both),
            "how-sure-both",
            "Difference of test errors with 95 % intervals for these images, for these networks, and for new networks on new "
            "images",
            figures.caption(
                rows,
                found.scale,
                "GELU's test error less its rival's, mean over seeds, with 95 % intervals for three statements: left of 0 GELU is "
                "better, and an interval that holds 0 leaves it open.",
            ),
            keys,
        )
    else:
        pages.text("One seed alone does not tell what seeds add; two and more are needed.")
    pages.text("\n".join(f"- {line}" for rival, one in shown.items() for line in both_lines(rival, one)))


@dataclass(frozen=True)
class Mistaken:
    """What the mistakes of two activations' networks of the same seeds tell."""

    tests: tuple[McNemar, ...]  # one for each seed
    disagreement: float  # median over seeds of the share of images that exactly one gets wrong
    possible: float  # what that would be if no mistake were shared
    components: Components | None  # None with one seed
    bootstrap: float  # standard error of the mean difference with seeds and images resampled at once


def mistaken(records: Sequence[RunRecord], examples: int) -> dict[str, Mistaken]:
    """For each rival that shares a seed with GELU, what their mistakes tell."""
    result = {}
    for rival in CLAIM.rivals:
        seeds, one, other = by_example.paired_mistakes(records, CLAIM.subject, rival, examples)
        if not seeds:
            continue
        differences = one.astype(int) - other.astype(int)
        result[rival] = Mistaken(
            tests=tuple(by_example.mcnemar(*wrong) for wrong in zip(one, other, strict=True)),
            disagreement=float(np.median((one != other).mean(axis=1))),
            possible=float(np.median(one.mean(axis=1) + other.mean(axis=1))),
            components=by_example.components(differences) if len(seeds) > 1 else None,
            bootstrap=by_example.bootstrap_error(differences) if len(seeds) > 1 else math.nan,
        )
    return result


STATEMENTS = (
    ("same_examples", True, "these images, new networks"),
    ("same_networks", False, "these networks, new images"),
    ("anew", True, "new networks, new images"),
)
"""Standard errors of `Components`, whether seeds are drawn, and what a statement with it is about."""


def both_lines(rival: str, one: Mistaken) -> list[str]:
    """How much the mistakes overlap, and the three intervals of the difference in words."""
    lines = [
        f"GELU and {title(rival)}: exactly one of the two is wrong on {100 * one.disagreement:.2f} % of the images (median "
        f"over seeds); without any shared mistake it would be {100 * one.possible:.2f} %."
    ]
    if (parts := one.components) is not None:
        said = []
        for name, over_seeds, about in STATEMENTS:
            low, high = (100 * end for end in parts.interval(getattr(parts, name), over_seeds=over_seeds))
            said.append(f"{points(low)} to {points(high)} for {about} ({'without 0' if low > 0 or high < 0 else 'with 0'})")
        floor = (
            f"However many seeds are run on these {parts.examples:,}, a standard error of {100 * parts.floor:.3f} points stays "
            "for new images"
            if parts.floor
            else "These runs show no part of the uncertainty that more seeds would leave"
        )
        lines.append(
            f"GELU's test error less {title(rival)}'s: {points(100 * parts.mean)} points, mean of {parts.seeds} seeds; 95 % "
            f"intervals {listed(said)}. {floor}. Standard error for new networks and images: {100 * parts.anew:.3f} points; "
            f"with both resampled at once: {100 * one.bootstrap:.3f}."
        )
    return lines


def points(value: float) -> str:
    """Percentage points with their sign."""
    return f"{value:+.2f}".replace("-", "−")


@figures.typeset
def both_figure(shown: dict[str, Components]) -> Figure:
    """Three intervals for each rival, a panel each."""
    figure, axes = figures.panels(len(shown), height=1.9, sharex=True)
    for ax, (rival, one) in zip(axes, shown.items(), strict=True):
        colour, _, marker = figures.STYLES[rival]
        ax.axvline(0, color="#555555", lw=1)
        for place, (name, over_seeds, _) in enumerate(STATEMENTS):
            ends = [100 * end for end in one.interval(getattr(one, name), over_seeds=over_seeds)]
            ax.plot(ends, [place] * 2, color=colour, lw=2.4, solid_capstyle="butt", gid=f"{rival} {name}")
            ax.plot(100 * one.mean, place, marker, color=colour, ms=8, zorder=4)
        ax.set_yticks(range(len(STATEMENTS)), [about.replace(", ", ",\n") for _, _, about in STATEMENTS])
        ax.set_ylim(len(STATEMENTS) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.grid(True, axis="x")
        ax.set_title(f"GELU vs {title(rival)}")
    axes[-1].set_xlabel("GELU's test error less the rival's (points)\n(left of 0: GELU is better)")
    return figure
