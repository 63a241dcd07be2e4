"""The chapter's first and last words: its answer, and what to take home."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from gelu_study import pages, protocols, statistics
from gelu_study.chapters.certainty import examples as by_example
from gelu_study.chapters.certainty import seeds as by_seed
from gelu_study.chapters.certainty.seeds import Pairs
from gelu_study.chapters.certainty.words import (
    CLAIM,
    MEASURES,
    PAPER_SEEDS,
    chosen_rows,
    count,
    draws_said,
    found_pairs,
    images_in,
    lacking,
    listed,
    percent,
    versus,
)
from gelu_study.study import Study

# The answer


def answer(found: Study, resamples: int, most_seeds: int) -> None:
    """The chapter's question, answered from the records and the paper's numbers."""
    both = found_pairs(found)
    if both is None:
        lines = [f"**No answer on seeds yet.** {lacking(found)}", ""]
    else:
        shares = by_seed.decided(both, by_seed.sizes(most_seeds), resamples)
        lines = [headline(both, shares), "", *answer_lines(found, shares)]
    pages.text("\n".join([*lines, published_sentence(by_example.published_differences())]))
    pages.records("how-sure-answer", chosen_rows(found)["key"] if both else [])


def headline(both: Pairs, shares: pd.DataFrame) -> str:
    """How many comparisons the paper's number of seeds decides, and what the others take."""
    n, total = min(PAPER_SEEDS, int(shares.index[-1])), len(both.cells)
    rest = [place for place in range(total) if shares.loc[n, place] < statistics.POWER]
    takes = []
    for place in rest:
        number = by_seed.first_reaching(shares[place])
        takes.append(
            f"{versus(both.cells[place])} it takes "
            f"{f'about {count(number)}' if number < math.inf else f'more than {shares.index[-1]}'}"
        )
    which = "none" if len(rest) == total else f"{total - len(rest)}" if rest else "all"
    return (
        f"**With {n} seeds the verdict's rule decides {which} of the {total} comparisons of the paper's claim, with a "
        f"probability of {percent(statistics.POWER)} or more{f'; {listed(takes)}' if takes else ''}.**"
    )


def answer_lines(found: Study, shares: pd.DataFrame) -> list[str]:
    """The answer's list: what the rule, a few draws and the test set say."""
    at = [n for n in (PAPER_SEEDS, len(protocols.POWERED_SEEDS)) if n in shares.index]
    claim = listed([f"{percent(float(shares.loc[n, 'claim']))} with {n} seeds" for n in at])
    lines = (
        [f"- **The verdict.** A new study like ours would decide the claim as a whole with a probability of {claim}."] if at else []
    )
    frames = {metric: by_seed.losses(found, metric) for metric in MEASURES}
    total = len(frames[CLAIM.metric])
    if total > statistics.LEAST_SEEDS:
        size = PAPER_SEEDS if total > PAPER_SEEDS else statistics.LEAST_SEEDS
        loss, error = (by_seed.crowned(frames[metric], size) for metric in ("train_loss", "best_test_error"))
        where = listed(
            [f"{percent(float(row[CLAIM.subject]))} {pages.condition(float(keep))}" for keep, row in loss.first.iterrows()]
        )
        lines.append(
            f"- **The ranking.** Of {draws_said(loss, total)}, GELU has the lowest median training loss in {where}; in both, "
            f"which is what the paper claims, in {percent(loss.claim)}. It has the lowest median test error in both in "
            f"{percent(error.claim)}."
        )
    rows = chosen_rows(found)
    keep = CLAIM.keep_probabilities[0]
    errors = rows[(rows["activation"] == CLAIM.subject) & (rows["keep_probability"] == keep)]["best_test_error"].dropna()
    examples = images_in(found)
    by_set = 100 * by_example.standard_error(float(errors.median()) / 100, examples)
    lines.append(
        f"- **The test set.** GELU's test error {pages.condition(keep)} is {errors.median():.2f} % (median). That a test set "
        f"has no more than {examples:,} images gives it a standard error of {by_set:.2f} points, however many networks are "
        f"trained. Between seeds its standard deviation is {errors.std(ddof=1):.2f} points."
    )
    return lines


def published_sentence(differences: pd.DataFrame) -> str:
    """What the size of the test set and the number of runs say about the paper's test errors."""
    known = differences.dropna(subset=["examples"])
    quantile = float(stats.norm.isf(statistics.SIGNIFICANCE / 2))
    sure = int((known["difference"].abs() > quantile * known["greatest"]).sum())
    none = int((known["difference"].abs() <= quantile * known["least"]).sum())
    kinds = (
        (sure, "greater than chance among test images explains"),
        (none, "within what chance among test images explains"),
        (len(known) - sure - none, "one or the other, depending on how far the mistakes of the two networks overlap"),
    )
    said = listed([f"{number} {'is' if number == 1 else 'are'} {words}" for number, words in kinds if number])
    quiet = differences["quiet"]
    return (
        f"- **The paper's other claims.** It states {len(differences)} differences in test error; for {len(known)} of them the "
        f"number of test examples is known. Of these, {said}. How far seeds lie apart there nobody can say until they are run: "
        f"the paper's numbers of runs suffice only if the standard deviation between seeds is below {quiet.min():.2f} points "
        f"for the smallest difference and {quiet.max():.2f} for the greatest."
    )


# What to take home

ERRORS = (0.02, 0.08, 0.2)
"""Test errors for which the last lines give the precision."""


def take_home(found: Study, percents: Sequence[float]) -> None:
    """How many seeds a difference takes: a table for the spreads seen here, and sentences."""
    spreads: dict[str, float] = {}
    for metric, name in MEASURES.items():
        if (both := found_pairs(found, metric)) is not None:
            found_spreads = np.std(both.differences, axis=0, ddof=1)
            spreads |= {f"{name}, spread {percent(value)}": float(value) for value in (found_spreads.min(), found_spreads.max())}
    wanted = sorted({float(value) for value in percents if value > 0})
    if spreads and wanted:
        rows = [
            {
                "difference": f"{value:g}&nbsp;%",
                **{name: seeds_said(by_seed.seeds_for(1 + value / 100, spread)) for name, spread in spreads.items()},
            }
            for value in wanted
        ]
        shown = chosen_rows(found)
        pages.table(
            pd.DataFrame(rows),
            "how-sure-take-home",
            "Seeds that find with a power of 80 %, in one comparison at a level of 5 %, that one loss or error is so much "
            "higher than the other; for the least and the greatest spread of the paired differences seen here.",
            shown["key"],
        )
    pages.text("\n".join(f"- {line}" for line in take_home_lines(spreads, images_in(found))))


def seeds_said(value: float) -> str:
    """A number of seeds, at least as many as a verdict takes."""
    return count(max(value, statistics.LEAST_SEEDS))


def take_home_lines(spreads: dict[str, float], examples: int) -> list[str]:
    """What holds for any experiment, and what the spreads seen here make of it."""
    factor, more = by_seed.thumb()
    effects = {n: by_seed.least_effect(n) for n in (3, PAPER_SEEDS, 10, 20)}
    seen = listed([f"{effect:.1f} with {n}" for n, effect in effects.items()])
    lines = [
        f"**How many seeds.** About {factor:.0f} × (spread / difference)² + {more:.0f}, both in percent, the spread being the "
        "standard deviation of the difference between two runs of the same seed. So a first few seeds, which tell the spread, "
        "tell how many the difference takes that you care about.",
        f"**How small a difference.** The least that is found with a power of {percent(statistics.POWER)}, in units of that "
        f"spread: {seen} seeds.",
    ]
    if spreads:
        least, most = min(spreads.values()), max(spreads.values())
        low, high = (by_seed.least_difference(spread, PAPER_SEEDS) - 1 for spread in (least, most))
        lines.append(
            f"**With spreads as here** ({percent(least)} to {percent(most)}), {PAPER_SEEDS} seeds find differences from "
            f"{percent(low)} on at the least spread, and from {percent(high)} on at the greatest. Smaller ones they will "
            "usually miss, and when they do find one, it will look greater than it is."
        )
    quantile = float(stats.norm.isf(statistics.SIGNIFICANCE / 2))
    errors = listed(
        [
            f"±{100 * quantile * by_example.standard_error(share, examples):.2f} points at {share:.0%}".replace("%", " %")
            for share in ERRORS
        ]
    )
    return [
        *lines,
        f"**How many images.** A test set of {examples:,} knows one network's error to {errors} (95 %). Compare two networks "
        "by the images that only one of them gets wrong, not by their two error rates, and for a statement about new images "
        "collect images, not seeds.",
    ]
