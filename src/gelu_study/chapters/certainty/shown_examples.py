"""What the chapter shows of test examples: their share of the uncertainty, the paper's differences, seeds and images at "
"once."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
                "test error, %": f"{errors.median():.2f}",
                "by the test set": f"{by_set:.2f}",
                "by the seed": f"{errors.std(ddof=1):.2f}",
            }
        )
    pages.table(
        pd.DataFrame(shown),
        "how-sure-two-sources",
        f"Test error at the epoch of best validation loss (median over seeds), and two standard deviations of one network's "
        f"error in "
        f"points: over other test sets of {examples:,} images (binomial), and over seeds on this one. "
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
        "network's mistakes are "
        "all among the other's; thin: if the two share no mistake. Both are about test images alone; what seeds add is "
        "unknown.",
        [],
    )
    rows = [
        {
            "claim": f"{row.name}, vs {row.rival}",
            "points": f"{row.difference:.2f}",
            "test examples": count(float(row.examples)) if not math.isnan(row.examples) else "unknown",
            "standard error": "–" if math.isnan(row.examples) else f"{row.least:.2f} to {row.greatest:.2f}",
            "examples needed": f"{float(f'{row.fewest:.2g}'):,.0f} to {float(f'{row.most:.2g}'):,.0f}",
            "runs": str(row.runs),
            "seeds must spread less than": f"{row.quiet:.2f}",
        }
        for row in differences.itertuples(index=False)
    ]
    pages.table(
        pd.DataFrame(rows),
        "how-sure-published-table",
        "<i>Points</i>: GELU's test error below its rival's. <i>Standard error</i> of that difference, in points, by the test "
        "set alone: "
        "least and greatest. <i>Examples needed</i> for McNemar's test to find it at a level of 5 %, for the same two "
        "extremes. <i>Seeds must "
        "spread less than</i>: the standard deviation between seeds, in points, up to which the paper's number of runs on each "
        "side finds the difference with a power of 80 %.",
        [],
    )
    pages.text("\n".join(f"- {line}" for line in published_lines(differences)))


def published_lines(differences: pd.DataFrame) -> list[str]:
    """Which published differences the test set leaves open, and under which condition on the networks' mistakes."""
    quantile = float(stats.norm.isf(statistics.SIGNIFICANCE / 2))
    lines = []
    for row in differences.itertuples(index=False):
        who = f"{row.name}, GELU against {row.rival}"
        if math.isnan(row.examples):
            lines.append(
                f"{who}: the number of test examples is not stated, so its standard error is unknown. A difference of "
                f"{row.difference:.2f} "
                f"points takes at least {float(f'{row.fewest:.2g}'):,.0f} of them, however much the mistakes overlap."
            )
        elif abs(row.difference) > quantile * row.greatest:
            lines.append(f"{who}: {row.difference:.2f} points are beyond chance among test images, whatever the mistakes.")
        else:
            lines.append(
                f"{who}: {row.difference:.2f} points are beyond chance among test images only if the images that exactly one "
                f"of the two "
                f"networks gets wrong are fewer than {row.disagreement:.1f} % of all; there must be at least "
                f"{abs(row.difference):.2f} % and "
                f"there can be {row.subject_error + row.rival_error:.1f} %."
            )
    return lines


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
    tests = [(rival, tested, one) for rival, (tested, one) in shown.items()]
    keys = [record.config.key for record in found.records if by_example.CURVE in record.curves]
    rows = found.table[found.table["key"].isin(keys)]
    level = statistics.SIGNIFICANCE
    table = [
        {
            "GELU vs": title(rival),
            "seeds": str(len(tested)),
            "only GELU wrong": f"{np.median([t.only_one for t in tested]):.0f}",
            "only the rival wrong": f"{np.median([t.only_other for t in tested]):.0f}",
            "GELU better": str(sum(t.p_value < level and t.only_one < t.only_other for t in tested)),
            "rival better": str(sum(t.p_value < level and t.only_one > t.only_other for t in tested)),
        }
        for rival, tested, _ in tests
    ]
    pages.table(
        pd.DataFrame(table),
        "how-sure-mcnemar",
        "Test images that only one of two networks of the same seed gets wrong (medians over seeds), and in how many seeds "
        "McNemar's exact "
        f"test calls one of the two better at a level of {100 * level:g} %, unadjusted. " + figures.caption(rows, found.scale),
        keys,
    )
    both = {rival: one for rival, _, one in tests if one is not None}
    if not both:
        pages.text("One seed alone does not tell what seeds add; two and more are needed.")
        return
    pages.figure(
        both_figure(both),
        "how-sure-both",
        "Difference of test errors with 95 % intervals for these images, for these networks, and for new networks on new images",
        figures.caption(
            rows, found.scale, "GELU's test error less its rival's, mean over seeds, with 95 % intervals for three statements."
        ),
        keys,
    )
    pages.text("\n".join(f"- {both_line(rival, one)}" for rival, one in both.items()))


def mistaken(records: Sequence[RunRecord], examples: int) -> dict[str, tuple[list[McNemar], Components | None]]:
    """For each rival that shares a seed with GELU: McNemar's tests by seed, and the components where there are two seeds."""
    result = {}
    for rival in CLAIM.rivals:
        seeds, one, other = by_example.paired_mistakes(records, CLAIM.subject, rival, examples)
        if seeds:
            tests = [by_example.mcnemar(*wrong) for wrong in zip(one, other, strict=True)]
            both = by_example.components(one.astype(int) - other.astype(int)) if len(seeds) > 1 else None
            result[rival] = (tests, both)
    return result


STATEMENTS = (
    ("same_examples", True, "these images, new networks"),
    ("same_networks", False, "these networks, new images"),
    ("anew", True, "new networks, new images"),
)
"""Standard errors of `Components`, whether seeds are drawn, and what a statement with it is about."""


def both_line(rival: str, one: Components) -> str:
    """The three intervals of a difference in words, and what more seeds cannot remove."""
    parts = []
    for name, over_seeds, about in STATEMENTS:
        low, high = one.interval(getattr(one, name), over_seeds=over_seeds)
        verdict = "decided" if low > 0 or high < 0 else "open"
        parts.append(f"[{points(100 * low)}, {points(100 * high)}] for {about} ({verdict})")
    return (
        f"GELU's test error less {title(rival)}'s: {points(100 * one.mean)} points over {one.seeds} seeds; 95 % interval "
        f"{listed(parts)}. "
        f"With ever more seeds on these {one.examples:,} images a standard error of {100 * one.floor:.3f} points stays for "
        f"new images."
    )


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
