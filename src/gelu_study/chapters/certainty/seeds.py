"""How sure one can be with so many seeds: their spread, the power of the verdict's rule, and what a few draws would have said.

Calculation only, on tables of runs.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, stats

from gelu_study import protocols, published, statistics, study
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig
from gelu_study.study import Study

Floats = NDArray[np.float64]

ALL_DRAWS = 20_000
"""Up to this many draws are all enumerated; of more, as many are drawn at random with a fixed generator."""
TIE = "tie"
_SETTING = {item.name for item in dataclasses.fields(RunConfig)} | {"depth", "width"}


def studies(scale: str, ledger: str | os.PathLike[str] | None = None) -> dict[str, Study]:
    """Every experiment that has records of its own at a scale, not only another's that it uses; nothing is trained."""
    found = {name: study.run(name, scale, train=False, ledger=ledger) for name in protocols.EXPERIMENTS}
    return {name: one for name, one in found.items() if any(record.config.experiment == name for record in one.records)}


# The spread between seeds


def settings(table: pd.DataFrame) -> list[str]:
    """The columns of a run table that say how a run was trained, but for its seed."""
    return [name for name in table.columns if name in _SETTING and name != "seed"]


def spread(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """How much a metric differs between the seeds of each setting, for settings of at least `statistics.LEAST_SEEDS` runs.

    Columns: those of `settings`, then n, median, low, high (its 95 % interval), relative (the standard deviation divided by
    the mean; NaN with a diverged run), least and greatest. A diverged run counts as infinite. Rows differing in anything but
    the seed are never put together.
    """
    names = settings(table)
    rows = []
    for keys, cell in table.groupby(names, sort=False, dropna=False):
        if len(cell) < statistics.LEAST_SEEDS:
            continue
        x = cell[metric].where(cell["status"] != "diverged", math.inf).to_numpy(dtype=float)
        median, low, high = statistics.median_interval(x)
        relative = float(np.std(x, ddof=1) / np.mean(x)) if np.isfinite(x).all() and np.mean(x) > 0 else math.nan
        rows.append((*keys, len(x), median, low, high, relative, x.min(), x.max()))
    return pd.DataFrame(rows, columns=[*names, "n", "median", "low", "high", "relative", "least", "greatest"])


def measures(table: pd.DataFrame) -> tuple[str, str]:
    """The loss and the error whose spread is shown: the test loss stands in where the network makes no classification."""
    return "train_loss", "test_error" if table["test_error"].notna().any() else "test_loss"


# Pairs of seeds


def losses(found: Study, metric: str, claim: published.Claim = published.CLASSIFIER) -> pd.DataFrame:
    """A metric at the chosen learning rates: a row a seed, a column for each (keep probability, activation) of the claim.

    Only seeds that have all of them; a diverged run is infinite. Empty, with these columns, while a cell has no run.
    """
    names = (claim.subject, *claim.rivals)
    columns = pd.MultiIndex.from_product([claim.keep_probabilities, names], names=["keep_probability", "activation"])
    statistics.refuse_mixture(found.table)
    rows = statistics.at_choice(found.table, found.chosen).copy()
    rows["value"] = rows[metric].where(rows["status"] != "diverged", math.inf)
    wide = rows.pivot(index="seed", columns=["keep_probability", "activation"], values="value")
    return wide.reindex(columns=columns).dropna().astype(float)


@dataclass(frozen=True)
class Pairs:
    """Losses of the claim's subject and of its rivals by the same seeds, [seeds, comparisons]."""

    cells: tuple[tuple[float, str], ...]  # keep probability and rival of each comparison
    subject: Floats
    rival: Floats

    @property
    def differences(self) -> Floats:
        """d = ln(subject's loss) - ln(rival's), [seeds, comparisons]."""
        return np.asarray(np.log(self.subject) - np.log(self.rival))

    @property
    def usable(self) -> bool:
        """Whether there are enough seeds for a verdict, and all losses have a logarithm."""
        values = np.stack([self.subject, self.rival])
        return len(self.subject) >= statistics.LEAST_SEEDS and bool((np.isfinite(values) & (values > 0)).all())


def pairs(frame: pd.DataFrame, claim: published.Claim = published.CLASSIFIER) -> Pairs:
    """The comparisons of a claim from `losses`, in the order of `statistics.comparisons`."""
    cells = tuple((keep, rival) for keep in claim.keep_probabilities for rival in claim.rivals)
    subject = [frame[(keep, claim.subject)].to_numpy() for keep, _ in cells]
    return Pairs(cells, np.stack(subject, axis=1), np.stack([frame[cell].to_numpy() for cell in cells], axis=1))


# The power of the rule


def verdicts_of(subject: Floats, rival: Floats, *, alpha: float = statistics.SIGNIFICANCE) -> NDArray[np.int64]:
    """`statistics.verdict` with Holm's adjustment for many studies at once, as places in `statistics.LINKS`.

    Args: finite losses above 0 [studies, seeds, comparisons], at least three seeds. Returns [studies, comparisons].
    """
    d = np.log(subject) - np.log(rival)
    n, bound = d.shape[1], math.log1p(statistics.MARGIN)
    mean, error = d.mean(axis=1), d.std(axis=1, ddof=1) / math.sqrt(n)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value = 2 * stats.t.sf(np.abs(mean) / error, n - 1)
        p_equivalent = np.maximum(stats.t.sf((mean + bound) / error, n - 1), stats.t.sf((bound - mean) / error, n - 1))
    flat = np.ptp(d, axis=1) <= 1e-12 * np.abs(d).max(axis=1)  # a resample may hold one seed n times
    p_value = np.where(flat, mean == 0, p_value)
    p_equivalent = np.where(flat, np.abs(mean) >= bound, p_equivalent)
    median_difference = np.log(np.median(subject, axis=1)) - np.log(np.median(rival, axis=1))
    different = _holm(p_value) < alpha
    result = np.full(mean.shape, statistics.LINKS.index(statistics.UNRESOLVED))
    result[different & (mean < 0) & (median_difference < 0)] = statistics.LINKS.index(statistics.REPRODUCED)
    result[different & (mean > 0) & (median_difference > 0)] = statistics.LINKS.index(statistics.CONTRADICTED)
    result[_holm(p_equivalent) < alpha] = statistics.LINKS.index(statistics.EQUIVALENT)
    return result


def _holm(p: Floats) -> Floats:
    """`statistics.holm` along the last axis."""
    order = np.argsort(p, axis=-1, kind="stable")
    raised = np.take_along_axis(p, order, -1) * np.arange(p.shape[-1], 0, -1)
    result = np.empty_like(p)
    np.put_along_axis(result, order, np.minimum(1, np.maximum.accumulate(raised, axis=-1)), -1)
    return result


def sizes(most: int) -> range:
    """Numbers of seeds from the least that has a verdict up to `most`."""
    return range(statistics.LEAST_SEEDS, max(most, statistics.LEAST_SEEDS) + 1)


def decided(found: Pairs, sizes: Iterable[int], resamples: int = 2000) -> pd.DataFrame:
    """The probability that the rule decides (its verdict is not *unresolved*) against the number of seeds.

    Studies of n seeds are made by drawing n of ours with replacement, all comparisons with the same seeds as in a real
    study; the generator is fixed. Drawing from s seeds understates their variance by (s - 1) / s, so their logarithms are
    first spread about their means by the root of s / (s - 1). Index: the number of seeds. Columns: the comparisons' places,
    and `claim`: the verdict on the claim as a whole, its weakest link, is not *unresolved*. Raises `ConfigurationError` for
    less than one study or seed.
    """
    sizes = list(sizes)
    if resamples < 1 or min(sizes, default=1) < 1:
        raise ConfigurationError(f"resamples is {resamples} and the fewest seeds {min(sizes, default=1)}; both must be at least 1")
    rows = {}
    subject, rival = _widened(found.subject), _widened(found.rival)
    for n in sizes:
        drawn = np.random.default_rng(n).integers(len(subject), size=(resamples, n))
        links = verdicts_of(subject[drawn], rival[drawn])
        all_links = np.column_stack([links, links.min(axis=1)])
        rows[n] = (all_links != statistics.LINKS.index(statistics.UNRESOLVED)).mean(axis=0)
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*range(len(found.cells)), "claim"])


def _widened(losses: Floats) -> Floats:
    logs = np.log(losses)
    factor = math.sqrt(len(logs) / (len(logs) - 1))
    return np.asarray(np.exp(logs.mean(axis=0) + factor * (logs - logs.mean(axis=0))))


def first_reaching(shares: pd.Series, power: float = statistics.POWER) -> float:
    """The least number of seeds from which on a share stays at `power` or above; infinite if the last does not reach it."""
    below = shares.index[shares < power]
    if not len(below):
        return float(shares.index[0])
    later = shares.index[shares.index > below[-1]]
    return float(later[0]) if len(later) else math.inf


# How many seeds a difference takes


@dataclass(frozen=True)
class Needed:
    """Seeds for a power of 80 % by the observed differences of one comparison, with what is known of them."""

    n: int
    mean: float  # of d
    deviation: float  # standard deviation of d
    correlation: float  # between the two losses' logarithms, over seeds
    p_correlation: float  # two-sided, of no correlation
    seeds: float
    fewest: float  # at the ends of the effect's 95 % interval
    most: float


def needed(d: Floats, a: Floats, b: Floats, alpha: float = statistics.SIGNIFICANCE) -> Needed:
    """`statistics.seeds_needed` for the differences d = ln a - ln b, with its range over the effect's 95 % interval."""
    mean, deviation = float(np.mean(d)), float(np.std(d, ddof=1))
    effect = math.copysign(math.inf, mean) if deviation == 0 else mean / deviation
    low, high = effect_interval(effect, len(d))
    ends = [statistics.seeds_needed(end, 1, alpha=alpha) for end in (low, high)]
    correlation, p_correlation = math.nan, math.nan
    if np.ptp(a) > 0 and np.ptp(b) > 0 and len(d) > 2:
        correlation, p_correlation = map(float, stats.pearsonr(np.log(a), np.log(b)))
    return Needed(
        n=len(d),
        mean=mean,
        deviation=deviation,
        correlation=correlation,
        p_correlation=p_correlation,
        seeds=statistics.seeds_needed(mean, deviation, alpha=alpha),
        fewest=min(ends),
        most=math.inf if low <= 0 <= high else max(ends),
    )


def effect_interval(effect: float, n: int, confidence: float = statistics.CONFIDENCE) -> tuple[float, float]:
    """The interval of a standardised mean difference (mean / standard deviation) seen in n pairs.

    Both ends put the observed t at a quantile of the noncentral t distribution with n - 1 degrees of freedom.
    """
    if not math.isfinite(effect):
        return effect, effect
    t, tail = abs(effect) * math.sqrt(n), (1 - confidence) / 2
    span = 8 * math.sqrt(1 + t * t / (2 * (n - 1)))  # eight standard errors to each side

    def excess(centre: float, probability: float) -> float:
        below = float(stats.nct.cdf(t, n - 1, centre))  # NaN far out, where it is 0 or 1 to the last digit
        return (float(centre < t) if math.isnan(below) else below) - probability

    def end(probability: float) -> float:
        return float(optimize.brentq(excess, t - span, t + span, args=(probability,))) / math.sqrt(n)

    low, high = end(1 - tail), end(tail)
    return (low, high) if effect >= 0 else (-high, -low)


def least_effect(n: int, *, paired: bool = True, power: float = statistics.POWER, alpha: float = statistics.SIGNIFICANCE) -> float:
    """The least mean difference that n seeds find with that power, in standard deviations.

    Paired: of the differences, by the paired t test. Otherwise n seeds on each side, in standard deviations of one side, by
    the two-sample t test.
    """
    freedom, scale = (n - 1, math.sqrt(n)) if paired else (2 * n - 2, math.sqrt(n / 2))
    critical = stats.t.isf(alpha / 2, freedom)

    def excess(centre: float) -> float:
        wrong_side = np.nan_to_num(stats.nct.cdf(-critical, freedom, centre))  # NaN far out, where it is nothing
        return float(stats.nct.sf(critical, freedom, centre) + wrong_side) - power

    return float(optimize.brentq(excess, 0, 2 * critical + 4)) / scale


def least_difference(deviation: float, n: int) -> float:
    """The least ratio (above 1) of two losses that n pairs find, for a standard deviation of the difference of logarithms."""
    return math.exp(deviation * least_effect(n))


def seeds_for(ratio: float, deviation: float) -> float:
    """Pairs that find with a power of 80 % that one loss is `ratio` times the other."""
    return statistics.seeds_needed(math.log(ratio), deviation)


def thumb(power: float = statistics.POWER, alpha: float = statistics.SIGNIFICANCE) -> tuple[float, float]:
    """Factor and summand of the rule of thumb: pairs = factor x (deviation / mean)^2 + summand (Guenther 1981)."""
    z = float(stats.norm.isf(alpha / 2))
    return (z + float(stats.norm.isf(1 - power))) ** 2, z * z / 2


# What a few of our seeds would have said


def draws(n: int, size: int) -> tuple[NDArray[np.int64], bool]:
    """Sets of `size` of n seeds without replacement, [draws, size], and whether these are all that there are."""
    count = math.comb(n, size)
    if count <= ALL_DRAWS:
        flat = chain.from_iterable(combinations(range(n), size))
        return np.fromiter(flat, dtype=np.int64, count=count * size).reshape(count, size), True
    keys = np.random.default_rng(size).random((ALL_DRAWS, n))
    return np.argsort(keys, axis=1)[:, :size], False


@dataclass(frozen=True)
class Crowned:
    """Which activation has the lowest median, as a share of the draws of `size` seeds."""

    size: int
    exact: bool  # all draws were enumerated
    count: int
    first: pd.DataFrame  # index: keep probability; columns: the activations strictly first, and `TIE` for the lead
    claim: float  # the subject is strictly first at every keep probability
    apart: pd.Series  # the subject strictly first if each activation had its own seeds, by keep probability
    claim_apart: float
    as_published: pd.Series  # the order of all activations is that of figure 2, by keep probability


def crowned(frame: pd.DataFrame, size: int, claim: published.Claim = published.CLASSIFIER) -> Crowned:
    """Rank the medians of every draw of `size` seeds from `losses`. Ties (errors have few values) are no first place."""
    names, keeps = [claim.subject, *claim.rivals], list(claim.keep_probabilities)
    chosen, exact = draws(len(frame), size)
    values = frame[[(keep, name) for keep in keeps for name in names]].to_numpy()
    medians = np.median(values[chosen], axis=1).reshape(len(chosen), len(keeps), len(names))
    least = medians.min(axis=2, keepdims=True)
    at_least = medians == least
    alone = at_least & (at_least.sum(axis=2, keepdims=True) == 1)
    first = pd.DataFrame(alone.mean(axis=0), index=keeps, columns=names)
    first[TIE] = 1 - alone.any(axis=2).mean(axis=0)
    apart = pd.Series([_first_apart(medians[:, place]) for place in range(len(keeps))], index=keeps)
    orders = []
    for place, keep in enumerate(keeps):
        paper = np.argsort([published.final_value(name, keep) for name in names])
        orders.append((np.diff(medians[:, place, paper], axis=1) > 0).all(axis=1).mean())
    return Crowned(
        size=size,
        exact=exact,
        count=len(chosen),
        first=first,
        claim=float(alone[:, :, 0].all(axis=1).mean()),
        apart=apart,
        claim_apart=float(apart.prod()),
        as_published=pd.Series(orders, index=keeps),
    )


def _first_apart(medians: Floats) -> float:
    """The probability that the first column is strictly the lowest if each column is drawn by itself."""
    beaten = np.ones(len(medians))
    for rival in medians[:, 1:].T:
        beaten *= 1 - np.searchsorted(np.sort(rival), medians[:, 0], side="right") / len(rival)
    return float(beaten.mean())
