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
        pages.text(f"**No answer on seeds yet.** {lacking(found)}")
    else:
        shares = by_seed.decided(both, range(statistics.LEAST_SEEDS, most_seeds + 1), resamples)
        pages.text("\n".join([headline(both, shares), "", *answer_lines(found, shares)]))
    pages.text(published_sentence(by_example.published_differences()))


def headline(both: Pairs, shares: pd.DataFrame) -> str:
    """How many comparisons the paper's number of seeds settles, and what the others take."""
    n = min(PAPER_SEEDS, int(shares.index[-1]))
    total = len(both.cells)
    settled = [place for place in range(total) if shares.loc[n, place] >= statistics.POWER]
    rest = [place for place in range(total) if place not in settled]
    numbers = [by_seed.first_reaching(shares[place]) for place in rest]
    takes = listed(
        [
            f"{f'{number:.0f} seeds' if math.isfinite(number) else f'more than {shares.index[-1]} seeds'} "
            f"{versus(both.cells[place])}"
            for place, number in zip(rest, numbers, strict=True)
        ]
    )
    which = "All" if not rest else "None" if not settled else f"{len(settled)}"
    start = (
        f"**{which} of the {total} comparisons of the paper's claim {'is' if len(settled) == 1 else 'are'} settled by {n} seeds."
    )
    return (
        start
        + (f" It takes {takes}.**" if rest else "**")
        + f" Settled: the rule decides with a probability of {percent(statistics.POWER)}."
    )


def answer_lines(found: Study, shares: pd.DataFrame) -> list[str]:
    """The answer's list: what the rule, a few draws and the test set say."""
    at = [n for n in (PAPER_SEEDS, len(protocols.POWERED_SEEDS)) if n in shares.index]
    claim = listed([f"{percent(float(shares.loc[n, 'claim']))} with {n} seeds" for n in at])
    lines = [
        f"- **The verdict.** A new study like ours would come to a decision on the claim as a whole with a probability of {claim}."
    ]
    frames = {metric: by_seed.losses(found, metric) for metric in MEASURES}
    total = len(frames[CLAIM.metric])
    size = min(PAPER_SEEDS, total)
    results = {metric: by_seed.crowned(frame, size) for metric, frame in frames.items()}
    loss = results["train_loss"]
    where = listed([f"{percent(float(loss.first.loc[keep, CLAIM.subject]))} {pages.condition(keep)}" for keep in loss.first.index])
    error = results["best_test_error"]
    lines.append(
        f"- **The ranking.** Of {draws_said(loss, total)}, GELU has the lowest median training loss in {where}, and in both, "
        f"which "
        f"is what the paper claims, in {percent(loss.claim)}. By test error it is first in both in {percent(error.claim)}."
    )
    rows = chosen_rows(found)
    keep = CLAIM.keep_probabilities[0]
    cell = rows[(rows["activation"] == CLAIM.subject) & (rows["keep_probability"] == keep)]["best_test_error"].dropna()
    examples = images_in(found)
    by_set = 100 * by_example.standard_error(float(cell.median()) / 100, examples)
    lines.append(
        f"- **The test set.** GELU's test error {pages.condition(keep)} is {cell.median():.2f} %. A test set of {examples:,} "
        f"images "
        f"gives it a standard error of {by_set:.2f} points, however many networks are trained; between seeds its standard "
        f"deviation "
        f"is {cell.std(ddof=1):.2f} points."
    )
    return lines


def published_sentence(differences: pd.DataFrame) -> str:
    """What the size of the test set says about the paper's test errors."""
    known = differences.dropna(subset=["examples"])
    quantile = float(stats.norm.isf(statistics.SIGNIFICANCE / 2))
    sure = int((known["difference"].abs() > quantile * known["greatest"]).sum())
    hopeless = int((known["difference"].abs() <= quantile * known["least"]).sum())
    return (
        f"The paper states {len(differences)} differences in test error; for {len(known)} of them the number of test examples "
        f"is "
        f"known. {sure} of these {'is' if sure == 1 else 'are'} larger than chance among test images explains, "
        f"whatever the networks' mistakes; {hopeless} {'is' if hopeless == 1 else 'are'} not, whatever they are; "
        f"for the other {len(known) - sure - hopeless} it depends on how much the mistakes of the two networks overlap. How "
        f"much "
        "those results differ between seeds nobody can say until they are run."
    )


# What to take home


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
            "higher than the "
            "other; for the least and the greatest spread of the paired differences seen here.",
            shown["key"],
        )
    pages.text("\n".join(f"- {line}" for line in take_home_lines(spreads, images_in(found))))


def seeds_said(value: float) -> str:
    """A number of seeds, at least as many as a verdict takes."""
    return count(max(value, statistics.LEAST_SEEDS))


def take_home_lines(spreads: dict[str, float], examples: int) -> list[str]:
    """What holds for any experiment, and what the spreads seen here make of it."""
    sizes = (3, PAPER_SEEDS, 10, 20, 50)
    effects = {n: by_seed.least_effect(n) for n in sizes}
    found = listed([f"{effects[n]:.1f} with {n}" for n in sizes])
    lines = [
        "**Any experiment.** The difference that a paired t test finds with a power of 80 %, in standard deviations of the "
        "paired "
        f"differences: {found} seeds. Halving the difference takes about four times the seeds."
    ]
    if spreads:
        least, most = min(spreads.values()), max(spreads.values())
        parts = [
            f"{n} seeds find {100 * (low - 1):.0f} % at the least spread and {100 * (high - 1):.0f} % at the greatest"
            for n, low, high in zip(
                (PAPER_SEEDS, 20),
                by_seed.least_differences(least, (PAPER_SEEDS, 20)),
                by_seed.least_differences(most, (PAPER_SEEDS, 20)),
                strict=True,
            )
        ]
        lines.append(f"**With spreads as here.** {listed(parts)}; a smaller difference they will usually miss.")
    quantile = float(stats.norm.isf(statistics.SIGNIFICANCE / 2))
    shares = (0.02, 0.08, 0.2)
    ends = [100 * quantile * by_example.standard_error(share, examples) for share in shares]
    errors = listed([f"±{end:.2f} points at {100 * share:g} % error" for end, share in zip(ends, shares, strict=True)])
    lines.append(
        f"**Any test set of {examples:,}.** One network's error is known to {errors} (95 %), and no number of seeds helps a "
        f"statement about "
        "new images. Compare two networks on the same images, by McNemar's test, not by their two error rates."
    )
    lines.append(
        "**Then** say how many seeds there were, show all of them, and write down before the runs which difference would have "
        "counted as none."
    )
    return lines
