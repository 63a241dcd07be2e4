"""Statistics of run tables: learning rates chosen on validation, paired comparisons, verdicts on the paper's claims.

Functions of arrays and of the table that `ledger.table` gives. The rule by which a claim is judged is the docstring of
`verdict`; it was written before any run was trained.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import scipy  # its parts are imported as they are used: `stats` takes a second
from numpy.typing import ArrayLike, NDArray

from gelu_study import published, titles
from gelu_study.errors import ConfigurationError

REPRODUCED = "reproduced"
EQUIVALENT = "equivalent"
CONTRADICTED = "contradicted"
UNRESOLVED = "unresolved"
NOT_RUN = "not run"

LINKS = (CONTRADICTED, UNRESOLVED, EQUIVALENT, REPRODUCED)
"""Verdicts from the weakest to the strongest link of a claim."""

MARGIN = 0.05
"""Equivalence margin: losses whose ratio lies between 1 / 1.05 and 1.05 count as the same."""
SIGNIFICANCE = 0.05
"""Level of every test, held over the comparisons of a claim by Holm's method."""
CONFIDENCE = 0.95
BEST_LOSS = "best_validation_loss"
POWER = 0.80
LEAST_SEEDS = 3
"""With fewer common seeds a comparison stays unresolved: two values tell next to nothing about a spread."""


def verdict(
    n: int, p_value: float, p_equivalent: float, shift: float, median_difference: float, *, alpha: float = SIGNIFICANCE
) -> str:
    r"""The verdict on one comparison of a claim that GELU's loss is the lower one. **The rule, fixed before the runs:**

    1. *What is compared.* GELU with one rival at one keep probability, each at the learning rate that validation chose
       for it, by the final training log loss (`train_loss`, dropout off, mean over the last epoch). Validation loss and
       test error at the epoch of best validation loss are reported beside it and not judged.
    2. *Pairs.* Runs of the same seed start from the same draw and see the same minibatches, so they are compared in
       pairs: d = ln(GELU's loss) - ln(rival's loss), below 0 where GELU is better. The scale is that of ratios because
       losses differ by orders of magnitude between settings and a margin must mean the same in all of them. Seeds that
       only one side has are left out and counted.
    3. *A diverged run counts, as the worst:* its loss is infinite. Medians and ranks stay defined. Two diverged runs of
       a seed are a tie; where every run of both sides diverged that shows no equivalence, and the comparison is unresolved.
    4. *Tests.* `p_value`: the two-sided paired t test of mean d = 0. `p_equivalent`: two one-sided paired t tests
       (Schuirmann 1987) of `|mean d| < ln 1.05`, a margin of 5 %. The t test is used because d is a difference of
       logarithms of two like quantities, hence near symmetric, and because the paper's five seeds can decide with it:
       the least p of a signed-rank test with five pairs is 1/16, above every level. The signed-rank test is reported as
       a check, and takes the place of the t test in both where a diverged run leaves the mean undefined. If all d are
       equal, the tests are certain (p = 0 or 1).
    5. *Several comparisons.* Both p values are adjusted by Holm's method over the comparisons of the claim that were
       run, each of the two kinds by itself; level 5 %.
    6. *Verdict of a comparison*, the first that holds:
       **not run**: no seed has both runs.
       **unresolved**: fewer than three common seeds.
       **equivalent**: adjusted `p_equivalent` < 5 %. This comes before the next two: a difference shown to be smaller
       than the margin is none, even where its sign is certain, since with enough seeds every sign becomes certain.
       **reproduced**: adjusted `p_value` < 5 %, GELU better on average (`shift` < 0), and GELU's median loss the lower
       one (`median_difference` < 0), for the claim speaks of medians.
       **contradicted**: the same with the rival better and its median lower.
       **unresolved**: everything else.
    7. *Verdict of the claim*: its weakest link, see `combined`.

    The interval shown beside a verdict is the 95 % bootstrap interval of the median of d; it illustrates and does not
    decide. A learning rate at the edge of its grid is flagged and changes no verdict.

    Args: `n` common seeds; the two adjusted p values; `shift`, whose sign is that of the test's statistic (mean d, or
    the signed-rank sum); `median_difference`, ln of GELU's median loss minus ln of the rival's.
    """
    if n == 0:
        return NOT_RUN
    if n < LEAST_SEEDS:
        return UNRESOLVED
    if p_equivalent < alpha:
        return EQUIVALENT
    if p_value < alpha and shift < 0 and median_difference < 0:
        return REPRODUCED
    if p_value < alpha and shift > 0 and median_difference > 0:
        return CONTRADICTED
    return UNRESOLVED


def combined(verdicts: Iterable[str], *, ties: bool = False) -> str:
    """The verdict on a claim that must hold in every comparison: its weakest link.

    From weak to strong: contradicted, unresolved, equivalent, reproduced. So one contradicted comparison contradicts
    the claim; it is reproduced only if all comparisons are, and equivalent if GELU is beaten nowhere and shown to tie
    somewhere. A comparison that was not run counts as unresolved; if none was run, the claim is not run.

    With `ties` the claim is one of a tie ("ties or outperforms"), which an equivalent comparison fulfils: it is
    reproduced where it would otherwise be equivalent.
    """
    links = list(verdicts)
    if all(link == NOT_RUN for link in links):
        return NOT_RUN
    weakest = min((UNRESOLVED if link == NOT_RUN else link for link in links), key=LINKS.index)
    return REPRODUCED if ties and weakest == EQUIVALENT else weakest


def verdicts_together(comparisons: Sequence[Comparison]) -> list[str]:
    """`verdict` of each comparison of one claim, with the p values adjusted over them by Holm's method."""
    p_values, p_equivalent = (holm([getattr(item, name) for item in comparisons]) for name in ("p_value", "p_equivalent"))
    return [
        verdict(item.n, float(p), float(q), item.shift, item.median_difference)
        for item, p, q in zip(comparisons, p_values, p_equivalent, strict=True)
    ]


def verdict_on_number(measured: float, stated: str) -> str:
    """The verdict on a number that the paper states: reproduced if ours rounds to it at the digits given, else contradicted."""
    decimals = len(stated.partition(".")[2])
    return REPRODUCED if f"{measured:.{decimals}f}" == stated else CONTRADICTED


@dataclass(frozen=True)
class Comparison:
    """Paired losses a and b of the same seeds; d = ln a - ln b, so below 0 where a is better. NaN where a value is not
    defined."""

    n: int  #: common seeds
    left_out: int  #: seeds that only one side has
    diverged_a: int
    diverged_b: int
    median_a: float  #: medians over the common seeds, in the losses' own unit
    median_b: float
    median: float  #: of d
    low: float  #: bootstrap interval of the median of d
    high: float
    mean: float  #: of d
    probability_better: float  #: share of pairs with a < b, ties counting half
    probability_better_all: float  #: the same over all n^2 pairings: 1 - U / n^2 with the Mann-Whitney U of a over b
    test: str  #: "t", "signed-rank" or "none"
    shift: float  #: its sign is that of the test's statistic
    p_value: float
    p_equivalent: float
    p_signed_rank: float  #: a check on p_value
    seeds_needed: float  #: for the observed mean and spread of d
    seeds_needed_margin: float  #: for a mean as small as the margin, with the observed spread

    @property
    def median_difference(self) -> float:
        """ln of a's median less ln of b's: not the same as `median`, which pairs first."""
        return float(_differences(np.array([self.median_a]), np.array([self.median_b]))[0])

    def verdict(self) -> str:
        """`verdict` of this comparison alone, without any adjustment for others."""
        return verdict(self.n, self.p_value, self.p_equivalent, self.shift, self.median_difference)


def compare(a: pd.Series | ArrayLike, b: pd.Series | ArrayLike, margin: float = MARGIN) -> Comparison:
    """Compare losses pair by pair; the rule is in `verdict`.

    `a` and `b` are non-negative losses or errors: series indexed by seed, or arrays in the same order of seeds. A
    diverged run is infinite. Raises `ConfigurationError` for NaN or negative values, a seed given twice, or a margin
    that is not positive.
    """
    if not 0 < margin < math.inf:
        raise ConfigurationError(f"margin is {margin}; it must be positive, 0.05 for 5 %")
    series_a, series_b = _by_seed(a), _by_seed(b)
    common = series_a.index.intersection(series_b.index).sort_values()
    left_out = len(series_a) + len(series_b) - 2 * len(common)
    x, y = series_a[common].to_numpy(), series_b[common].to_numpy()
    d = _differences(x, y)
    n, nan = len(d), math.nan
    median, low, high = median_interval(d)
    test, shift, p_value, p_equivalent, p_signed_rank = _tests(d, math.log1p(margin))
    if n and np.isinf([x, y]).all():  # ties of runs that all diverged show nothing to be equivalent
        p_equivalent = 1.0
    mean = float(np.mean(d)) if n and np.isfinite(d).all() else nan
    spread = float(np.std(d, ddof=1)) if n > 1 and np.isfinite(d).all() else nan
    return Comparison(
        n=n,
        left_out=left_out,
        diverged_a=int(np.isinf(x).sum()),
        diverged_b=int(np.isinf(y).sum()),
        median_a=_median(x),
        median_b=_median(y),
        median=median,
        low=low,
        high=high,
        mean=mean,
        probability_better=float(np.mean((d < 0) + 0.5 * (d == 0))) if n else nan,
        probability_better_all=float(np.mean((x[:, None] < y) + 0.5 * (x[:, None] == y))) if n else nan,
        test=test,
        shift=shift,
        p_value=p_value,
        p_equivalent=p_equivalent,
        p_signed_rank=p_signed_rank,
        seeds_needed=seeds_needed(mean, spread),
        seeds_needed_margin=seeds_needed(math.log1p(margin), spread),
    )


def median_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Median and its bootstrap interval (BCa, `scipy.stats.bootstrap` with a fixed generator), of values that may be
    infinite.

    With one value, or none, the bounds are NaN. Where BCa is not defined (infinite values, or none of the values counts
    when left out) the percentile bootstrap is used. Raises `ConfigurationError` for NaN. Coverage falls short of
    nominal: simulated at 95 % it is 75 % at n = 3, where it is the range of the data, and 93 to 94 % at n = 5 to 20.
    """
    x = np.asarray(values, dtype=np.float64)
    if np.isnan(x).any():
        raise ConfigurationError("a value is NaN; give a diverged run as infinity")
    if x.size < 2:
        return _median(x), math.nan, math.nan
    if (x == x[0]).all():
        return float(x[0]), float(x[0]), float(x[0])
    clipped = np.clip(x, -_HUGE, _HUGE)

    def bounds(method: Literal["BCa", "percentile"]) -> tuple[float, float]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
            interval = scipy.stats.bootstrap(
                (clipped,),
                lambda sample, axis: np.median(sample, axis=axis),
                confidence_level=confidence,
                n_resamples=_RESAMPLES,
                method=method,
                rng=np.random.default_rng(0),
            ).confidence_interval
        return float(interval.low), float(interval.high)

    low, high = bounds("BCa") if np.isfinite(x).all() else (math.nan, math.nan)
    if math.isnan(low) or math.isnan(high):
        low, high = bounds("percentile")
    return _median(x), _unclipped(low), _unclipped(high)


def seeds_needed(mean: float, spread: float, *, power: float = POWER, alpha: float = SIGNIFICANCE) -> float:
    """The least number of pairs with which a two-sided paired t test finds a mean difference with that power.

    From the noncentral t distribution. `spread` is the standard deviation of the differences. Infinite for mean 0, NaN
    where mean or spread is not defined. For a single comparison: Holm's adjustment asks for more. Both being estimates,
    it is a rough number.
    """
    if math.isnan(mean) or math.isnan(spread):
        return math.nan
    if mean == 0:
        return math.inf
    effect = abs(mean) / spread if spread else math.inf
    if effect > 100:  # two pairs reach any power; the noncentral distribution loses its digits
        return 2
    normal = float((scipy.stats.norm.isf(alpha / 2) + scipy.stats.norm.isf(1 - power)) / effect) ** 2
    n = max(2, math.ceil(normal))
    while n < 10_000 and paired_power(n, effect, alpha) < power:  # beyond, normal and t agree to a few seeds in ten thousand
        n += 1
    return n


def paired_power(n: int, effect: float, alpha: float) -> float:
    """Power of the two-sided one-sample t test of n values whose mean is `effect` >= 0 standard deviations."""
    critical = scipy.stats.t.isf(alpha / 2, n - 1)
    centre = effect * math.sqrt(n)
    wrong_side = np.nan_to_num(scipy.stats.nct.cdf(-critical, n - 1, centre))  # SciPy gives NaN far out, where it is nothing
    return float(scipy.stats.nct.sf(critical, n - 1, centre) + wrong_side)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """p values adjusted by Holm's step-down method (Holm 1979); those that are NaN are no tests and stay NaN."""
    p = np.asarray(p_values, dtype=np.float64)
    result = np.full_like(p, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    result[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return result


def choose_learning_rates(table: pd.DataFrame, criterion: str = BEST_LOSS) -> pd.DataFrame:
    """The learning rate of each (activation, keep probability) with the lowest median of the criterion over seeds:
    `best_validation_loss`, or `validation_error`, that at the end of training.

    Only seeds that every learning rate of the table has are used, so the seeds added later at the chosen rate have no
    say; a diverged run counts as infinite. A cell is left out while its grid is incomplete: a learning rate is absent, or
    more than one rate has seeds that others lack (only the chosen one may). Of equal medians the lesser rate is taken,
    so an activation that diverges at every rate is compared at the least, as the worst.

    Columns: activation, keep_probability, learning_rate, median_validation_loss or median_validation_error, n, at_edge (the rate
    is the least or the greatest of several, so that a better one may lie outside). Raises `ConfigurationError` if the table mixes
    scales.
    """
    refuse_mixture(table)
    rates = sorted(table["learning_rate"].unique())
    rows = []
    for (activation, keep), cell in table.groupby(["activation", "keep_probability"], sort=False):
        seeds = {rate: set(cell.loc[cell["learning_rate"] == rate, "seed"]) for rate in rates}
        common = set.intersection(*seeds.values())
        if not common or sum(found != common for found in seeds.values()) > 1:
            continue
        cell = cell[cell["seed"].isin(common)]
        medians = {rate: _median(_losses(cell[cell["learning_rate"] == rate], criterion)) for rate in rates}
        rate = min(rates, key=lambda candidate: medians[candidate])
        rows.append((activation, keep, rate, medians[rate], len(common), len(rates) > 1 and rate in (rates[0], rates[-1])))
    columns = ["activation", "keep_probability", "learning_rate", f"median_{criterion.removeprefix('best_')}", "n", "at_edge"]
    return pd.DataFrame(rows, columns=columns)


def chosen(table: pd.DataFrame, criterion: str = BEST_LOSS) -> dict[tuple[str, float], float]:
    """`choose_learning_rates` as {(activation, keep probability): learning rate}, which `protocols.plan` takes."""
    choices = choose_learning_rates(table, criterion)
    columns = (choices[name] for name in ("activation", "keep_probability", "learning_rate"))
    return {(str(activation), float(keep)): float(rate) for activation, keep, rate in zip(*columns, strict=True)}


def at_choice(table: pd.DataFrame, choice: Mapping[tuple[str, float], float] | None = None) -> pd.DataFrame:
    """The rows trained at the learning rates in `choice` (by default `chosen(table)`), in the table's order."""
    choice = chosen(table) if choice is None else choice
    cells = zip(table["activation"], table["keep_probability"], strict=True)
    wanted = pd.Series([choice.get(cell, math.nan) for cell in cells], index=table.index, dtype=float)
    return table[table["learning_rate"] == wanted]


def summary(table: pd.DataFrame, metrics: Sequence[str], confidence: float = CONFIDENCE) -> pd.DataFrame:
    """Median over seeds and its interval, for each activation, keep probability and learning rate.

    Columns: activation, keep_probability, learning_rate, n, diverged, and for each metric METRIC, METRIC_low,
    METRIC_high. A diverged run counts as infinite.
    """
    refuse_mixture(table)
    rows = []
    for keys, cell in table.groupby(["activation", "keep_probability", "learning_rate"], sort=False):
        row = dict(zip(("activation", "keep_probability", "learning_rate"), keys, strict=True))
        row |= {"n": len(cell), "diverged": int((cell["status"] == "diverged").sum())}
        for metric in metrics:
            values = median_interval(_losses(cell, metric).to_numpy(), confidence)
            row |= dict(zip((metric, f"{metric}_low", f"{metric}_high"), values, strict=True))
        rows.append(row)
    fixed = ["activation", "keep_probability", "learning_rate", "n", "diverged"]
    return pd.DataFrame(rows, columns=[*fixed, *(m + end for m in metrics for end in ("", "_low", "_high"))])


def comparisons(
    table: pd.DataFrame,
    metric: str = "train_loss",
    *,
    choice: Mapping[tuple[str, float], float] | None = None,
    claim: published.Claim = published.CLASSIFIER,
    margin: float = MARGIN,
) -> pd.DataFrame:
    """Every comparison of a claim by any metric of the run table, one row each, without verdicts.

    Columns: comparison, keep_probability, rival, metric, measured, low, high (the ratio claim's subject / rival: exp of
    the median of d and its interval), then the fields of `Comparison` that `verdicts` also shows, with `p_value` and
    `p_equivalent` adjusted by Holm's method over these rows. Without runs, n is 0 and the numbers are NaN.
    """
    refuse_mixture(table)
    table = at_choice(table[table["experiment"] == claim.experiment], choice)
    rows = []
    for keep in claim.keep_probabilities:
        for rival in claim.rivals:
            a, b = (
                _losses(table[(table["activation"] == name) & (table["keep_probability"] == keep)], metric)
                for name in (claim.subject, rival)
            )
            result = compare(a, b, margin)
            rows.append(
                {
                    "comparison": f"{titles.title(claim.subject)} vs {titles.title(rival)}",
                    "keep_probability": keep,
                    "rival": rival,
                    "metric": metric,
                    **dict(zip(("measured", "low", "high"), np.exp((result.median, result.low, result.high)), strict=True)),
                    **{name: getattr(result, name) for name in _SHOWN},
                }
            )
    frame = pd.DataFrame(rows)
    for name in ("p_value", "p_equivalent"):
        frame[name] = holm(frame[name])
    return frame


def verdicts(
    table: pd.DataFrame,
    *,
    choice: Mapping[tuple[str, float], float] | None = None,
    claim: published.Claim = published.CLASSIFIER,
    margin: float = MARGIN,
) -> pd.DataFrame:
    """The verdict on a claim, by the rule of `verdict`: a row for each comparison and a last one for the claim as a
    whole.

    `choice` holds the learning rates at which activations are compared, by default `chosen(table)`; give
    `Study.chosen`, which is empty while the grid is not done (everything is then "not run").

    Columns: claim, comparison ("all together" in the last row), keep_probability, published (the subject's loss / the
    rival's at the last point of figure 2's training curves), measured, low, high (the same ratio here: median over
    seeds, with its interval), n, probability_better, p_equivalent, seeds_needed, verdict, and further fields of
    `Comparison`. p values are adjusted by Holm's method.
    """
    frame = comparisons(table, claim.metric, choice=choice, claim=claim, margin=margin)
    frame.insert(0, "claim", claim.name)
    ratios = [
        published.final_value(claim.subject, keep) / published.final_value(rival, keep)
        for keep, rival in zip(frame["keep_probability"], frame["rival"], strict=True)
    ]
    frame.insert(3, "published", ratios)
    rows = frame.to_dict("records")
    for row in rows:
        row["verdict"] = verdict(*(row[name] for name in ("n", "p_value", "p_equivalent", "shift", "median_difference")))
    overall = {
        "claim": claim.name,
        "comparison": ALL,
        "metric": claim.metric,
        "n": frame["n"].min(),
        "verdict": combined(row["verdict"] for row in rows),
    }
    return pd.DataFrame([*rows, overall], columns=[*frame.columns, "verdict"])


ALL = "all together"
_SHOWN = (
    "n",
    "probability_better",
    "probability_better_all",
    "test",
    "shift",
    "median_difference",
    "p_value",
    "p_equivalent",
    "p_signed_rank",
    "seeds_needed",
    "seeds_needed_margin",
    "left_out",
    "diverged_a",
    "diverged_b",
    "median_a",
    "median_b",
)
_RESAMPLES = 9_999
_HUGE = 1e290  # stands in for infinity where sums and interpolation must stay defined
_SCALE = (
    "dataset",
    "train_examples",
    "network",
    "depth",
    "width",
    "epochs",
    "initialisation",
    "normalisation",
    "optimiser",
    "batch_size",
    "precision",
    "engine",
)


def refuse_mixture(table: pd.DataFrame) -> None:
    """Raise `ConfigurationError` if the table holds runs that no statistic may put together: of several scales or recipes."""
    for column in _SCALE:
        if column in table and table[column].nunique() > 1:
            found = ", ".join(map(str, sorted(table[column].unique())))
            raise ConfigurationError(
                f"the table mixes runs with {column} {found}; results of different scales are never put in one "
                "statistic; select one of them"
            )


def _losses(rows: pd.DataFrame, metric: str) -> pd.Series:
    """The metric by seed; infinite where the run diverged."""
    values = rows[metric].where(rows["status"] != "diverged", math.inf)
    return pd.Series(values.to_numpy(dtype=np.float64), index=pd.Index(rows["seed"], dtype=int), name=metric)


def _by_seed(values: pd.Series | ArrayLike) -> pd.Series:
    series = values if isinstance(values, pd.Series) else pd.Series(np.asarray(values, dtype=np.float64).ravel())
    series = series.astype(np.float64)
    if series.index.has_duplicates:
        raise ConfigurationError(f"seeds given twice: {sorted(set(series.index[series.index.duplicated()]))}")
    if not (series >= 0).all():
        raise ConfigurationError("losses must not be negative, nor NaN; give a diverged run as infinity")
    return series


def _differences(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln x - ln y; 0 where both are infinite, or both 0.

    Equal ratios give equal sizes to the last bit, whatever the side: ranks must see the ties.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.log(np.maximum(x, y) / np.minimum(x, y))
    return np.where(x == y, 0.0, np.where(x < y, -size, size))


def _median(values: NDArray[np.float64] | pd.Series) -> float:
    """Median of values that may be infinite; midway between -inf and inf is 0. NaN of none."""
    x = np.asarray(values, dtype=np.float64)
    return _unclipped(float(np.median(np.clip(x, -_HUGE, _HUGE)))) if x.size else math.nan


def _unclipped(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) > 1e-6 * _HUGE else value


def _tests(d: NDArray[np.float64], bound: float) -> tuple[str, float, float, float, float]:
    """Test used, its shift, p of "no difference", p of "not within +-bound", and the signed-rank p of "no
    difference"."""
    n, nan = len(d), math.nan
    if n < 2:
        return "none", nan, nan, nan, nan
    p_signed_rank = _signed_rank(d, 0, "two-sided")
    if not np.isfinite(d).all():
        p_equivalent = max(_signed_rank(d, -bound, "greater"), _signed_rank(d, bound, "less"))
        ranks = scipy.stats.rankdata(np.abs(d))
        return "signed-rank", float(np.sum(np.sign(d) * ranks)), p_signed_rank, p_equivalent, p_signed_rank
    mean = float(np.mean(d))
    if np.ptp(d) <= 1e-12 * np.max(np.abs(d)):  # no spread but rounding
        return "t", mean, float(mean == 0), float(abs(mean) >= bound), p_signed_rank
    p_value = float(scipy.stats.ttest_1samp(d, 0).pvalue)
    above = float(scipy.stats.ttest_1samp(d, -bound, alternative="greater").pvalue)
    below = float(scipy.stats.ttest_1samp(d, bound, alternative="less").pvalue)
    return "t", mean, p_value, max(above, below), p_signed_rank


def _signed_rank(d: NDArray[np.float64], centre: float, alternative: Literal["two-sided", "less", "greater"]) -> float:
    """Wilcoxon's signed-rank p; a difference of 0 counts half to each side.

    Exact, unless ranks tie among more than 12 pairs (then the normal approximation) or there are more than 50.
    """
    shifted = d - centre
    if (shifted == 0).all():
        return 1.0
    size = np.abs(shifted)
    method: Any = "auto"
    if (size == 0).any() or len(np.unique(size)) < len(size):  # the table of exact p values knows no ties
        method = scipy.stats.PermutationMethod(n_resamples=2 ** len(d)) if len(d) <= 12 else "asymptotic"
    return float(scipy.stats.wilcoxon(shifted, alternative=alternative, zero_method="zsplit", method=method).pvalue)
