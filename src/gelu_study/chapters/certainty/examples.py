"""How sure one can be with so many test examples: binomial errors, McNemar's test, and seeds and examples at once.

Errors are shares here, not percent, unless a name says points. Calculation only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from gelu_study import datasets, published, statistics
from gelu_study.chapters.certainty.seeds import least_effect
from gelu_study.errors import LedgerError
from gelu_study.runs import RunRecord

Floats = NDArray[np.float64]
Wrong = NDArray[np.bool_]

CURVE = "test_wrong"
"""The curve that holds the places of the misclassified test examples."""

CLAIMED = {
    "cifar10_convnet": ("CIFAR-10", "cifar10"),
    "cifar100_wrn40-4": ("CIFAR-100", "cifar100"),
    "twitter_pos": ("Twitter", None),
    "timit_frame_classification": ("TIMIT", None),
}
"""Experiments whose test errors the paper states: a short name, and the data set where `datasets` knows its size."""


def standard_error(error: float, examples: float) -> float:
    """Binomial standard error of a share of misclassified examples, as a share."""
    return math.sqrt(error * (1 - error) / examples)


def difference_bounds(one: float, other: float, examples: float) -> tuple[float, float]:
    """The least and the greatest standard error of a difference of two networks' errors on the same examples.

    An example adds 1, 0 or -1 to the difference; its variance is q - (one - other)^2 with q, the share of examples that only
    one of the two gets wrong. That share is least where the better network's mistakes are among the other's, and greatest
    where no example is a mistake of both.
    """
    difference = one - other
    least, greatest = abs(difference), min(one + other, 2 - one - other)
    return tuple(math.sqrt(max(0.0, q - difference**2) / examples) for q in (least, greatest))  # type: ignore[return-value]


def most_disagreement(difference: float, examples: float, alpha: float = statistics.SIGNIFICANCE) -> float:
    """The share of examples that only one of two networks may get wrong for McNemar's test to find that difference.

    From its normal approximation, (b - c)^2 / (b + c) > z^2. A value that no two networks reach is no limit.
    """
    return float(examples * difference**2 / stats.norm.isf(alpha / 2) ** 2)


def examples_needed(one: float, other: float, alpha: float = statistics.SIGNIFICANCE) -> tuple[float, float]:
    """The fewest and the most test examples on which McNemar's test finds the difference of two errors, as above.

    Fewest if the better network's mistakes are among the other's, most if no example is a mistake of both.
    """
    difference = one - other
    each = stats.norm.isf(alpha / 2) ** 2 / difference**2 if difference else math.inf
    return float(abs(difference) * each) if difference else math.inf, float(min(one + other, 2 - one - other) * each)


def published_differences() -> pd.DataFrame:
    """The paper's test errors against its rivals': what the size of the test set and the number of runs allow.

    Columns: name, rival, subject_error, rival_error (percent), difference (points, above 0 where GELU is better), runs;
    examples (NaN where neither the paper nor `datasets` gives it), one (points: binomial standard error of GELU's error),
    least and greatest (points: bounds of the difference's standard error), disagreement (percent of the examples, see
    `most_disagreement`), fewest and most (see `examples_needed`), quiet (points: the standard deviation between seeds, equal
    on both sides, below which so many runs a side find the difference with a power of 80 %).
    """
    rows = []
    for experiment, (name, data) in CLAIMED.items():
        stated = published.claims("result", experiment).set_index("activation")
        runs = int(re.match(r"\d+", str(stated.loc["GELU", "n_runs"]))[0])  # type: ignore[index]
        examples = float(datasets.SHAPES[data]["y_test"][0]) if data else math.nan
        subject = float(stated.loc["GELU", "value"])
        for rival in (activation for activation in stated.index if activation != "GELU"):
            error = float(stated.loc[rival, "value"])
            difference = error - subject
            least, greatest = difference_bounds(subject / 100, error / 100, examples)
            rows.append(
                {
                    "name": name,
                    "rival": rival,
                    "subject_error": subject,
                    "rival_error": error,
                    "difference": difference,
                    "runs": runs,
                    "examples": examples,
                    "one": 100 * standard_error(subject / 100, examples),
                    "least": 100 * least,
                    "greatest": 100 * greatest,
                    "disagreement": 100 * most_disagreement(difference / 100, examples),
                    **dict(zip(("fewest", "most"), examples_needed(subject / 100, error / 100), strict=True)),
                    "quiet": abs(difference) / least_effect(runs, paired=False),
                }
            )
    return pd.DataFrame(rows)


# Which examples each network got wrong


def mistakes(records: Iterable[RunRecord], activation: str, examples: int) -> tuple[list[int], Wrong]:
    """The seeds, in order, and which test examples their networks got wrong, [seeds, examples].

    Finished runs of that activation that hold `CURVE`. Raises `LedgerError` where it does not go with the test error, or a
    seed comes twice.
    """
    found: dict[int, Wrong] = {}
    for record in records:
        if record.config.activation != activation or record.status != "finished" or CURVE not in record.curves:
            continue
        places = np.asarray(record.curves[CURVE], dtype=np.int64)
        wrong = np.zeros(examples, dtype=bool)
        said = f"run {record.config.key[:12]}: {CURVE}"
        if len(places) and not (places.min() >= 0 and places.max() < examples):
            raise LedgerError(f"{said} names an example outside the {examples}")
        wrong[places] = True
        error = record.final.get("test_error", math.nan)
        if wrong.sum() != len(places) or abs(100 * len(places) / examples - error) > 50 / examples:
            raise LedgerError(f"{said} has {len(places)} entries, which does not go with a test error of {error} %")
        if record.config.seed in found:
            raise LedgerError(f"{said}: seed {record.config.seed} comes twice for {activation}")
        found[record.config.seed] = wrong
    seeds = sorted(found)
    return seeds, np.array([found[seed] for seed in seeds]).reshape(len(seeds), examples)


def paired_mistakes(records: Iterable[RunRecord], one: str, other: str, examples: int) -> tuple[list[int], Wrong, Wrong]:
    """The seeds that both activations have, and the mistakes of each, [seeds, examples]."""
    kept = list(records)
    (seeds_one, wrong_one), (seeds_other, wrong_other) = (mistakes(kept, name, examples) for name in (one, other))
    common = sorted(set(seeds_one) & set(seeds_other))
    return (
        common,
        wrong_one[[seeds_one.index(seed) for seed in common]],
        wrong_other[[seeds_other.index(seed) for seed in common]],
    )


@dataclass(frozen=True)
class McNemar:
    """Examples that only one of two networks gets wrong, and the exact p of "either is as likely to be the one"."""

    only_one: int
    only_other: int
    p_value: float


def mcnemar(one: Wrong, other: Wrong) -> McNemar:
    """McNemar's exact test (McNemar 1947) on the same examples, by the two-sided binomial test; [examples] each."""
    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    both = only_one + only_other
    return McNemar(only_one, only_other, float(stats.binomtest(only_one, both).pvalue) if both else 1.0)


# Seeds and examples at once


@dataclass(frozen=True)
class Components:
    """Variance components of a difference of errors over seeds x examples, and the standard errors of its mean.

    All as shares. The model: mean + seed + example + rest, all but the mean random and uncorrelated; components are unbiased
    estimates from the mean squares, and may be below 0.
    """

    seeds: int
    examples: int
    mean: float
    seed: float  # variance between seeds, over all examples that there could be
    example: float  # variance between examples, over all seeds that there could be
    rest: float  # what depends on both
    same_examples: float  # standard error for a statement on these examples and any seed
    same_networks: float  # ... on these networks and any example
    anew: float  # ... on any seed and any example

    @property
    def floor(self) -> float:
        """The standard error that is left with endless seeds and these many examples."""
        return math.sqrt(max(0.0, self.example) / self.examples)

    def interval(self, error: float, *, over_seeds: bool, confidence: float = statistics.CONFIDENCE) -> tuple[float, float]:
        """The interval mean +- quantile x error; Student's t with seeds - 1 degrees of freedom where seeds are drawn."""
        tail = (1 - confidence) / 2
        quantile = float(stats.t.isf(tail, self.seeds - 1) if over_seeds else stats.norm.isf(tail))
        return self.mean - quantile * error, self.mean + quantile * error


def components(differences: NDArray[np.int64] | Floats) -> Components:
    """Two-way analysis of variance without replication of [seeds, examples], at least two of each.

    The mean's variance is the seeds' component / seeds + the examples' / examples + the rest / (seeds x examples); a
    statement on these examples only does without the second, one on these networks only without the first. Components below
    0 count as 0 there.
    """
    d = np.asarray(differences, dtype=np.float64)
    s, n = d.shape
    by_seed, by_example, mean = d.mean(axis=1), d.mean(axis=0), float(d.mean())
    square_seed, square_example = n * float(by_seed.var(ddof=1)), s * float(by_example.var(ddof=1))
    total = float(((d - mean) ** 2).sum())
    rest = max(0.0, total - (s - 1) * square_seed - (n - 1) * square_example) / ((s - 1) * (n - 1))
    seed, example = (square_seed - rest) / n, (square_example - rest) / s
    return Components(
        seeds=s,
        examples=n,
        mean=mean,
        seed=seed,
        example=example,
        rest=rest,
        same_examples=math.sqrt(square_seed / (s * n)),
        same_networks=math.sqrt(square_example / (s * n)),
        anew=math.sqrt(max(0.0, seed) / s + max(0.0, example) / n + rest / (s * n)),
    )


def bootstrap_error(differences: NDArray[np.int64] | Floats, resamples: int = 400) -> float:
    """The standard error of the mean when seeds and examples are both drawn with replacement, with a fixed generator.

    The pigeonhole bootstrap (Owen 2007). It errs on the wide side: the rest's variance counts three times.
    """
    d = np.asarray(differences, dtype=np.float64)
    s, n = d.shape
    rng = np.random.default_rng(0)
    seeds = rng.multinomial(s, np.full(s, 1 / s), size=resamples)
    examples = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
    return float((np.einsum("rn,rn->r", seeds @ d, examples.astype(float)) / (s * n)).std(ddof=1))
