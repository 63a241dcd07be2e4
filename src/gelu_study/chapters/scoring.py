"""One set of runs scored in several ways: what chooses the epoch, the learning rate, the dropout and the seed.

Errors are in percent of the test set. A bootstrap draws seeds, the same for every activation, and makes every choice
again in every draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, stats

from gelu_study import figures, ledger, statistics
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunRecord

Array = NDArray[np.float64]

LOSS, ERROR, TEST, LAST = "validation_loss", "validation_error", "test_error", "last"
CURVES = (LOSS, ERROR, TEST)
"""What a record needs to be scored."""


@dataclass(frozen=True)
class Way:
    """A way of scoring a set of runs."""

    name: str
    epoch: str  # each run's epoch: the end of epoch at which this curve is least, or LAST
    setting: str  # the learning rate (and dropout): least median over seeds of this curve at the epoch
    best_of_seeds: bool = False  # report the best of a few seeds, not the median

    @property
    def honest(self) -> bool:
        """Whether test data choose nothing."""
        return TEST not in (self.epoch, self.setting) and not self.best_of_seeds


HONEST = Way("validation loss", LOSS, LOSS)
BY_ERROR = Way("validation error", ERROR, ERROR)
LAST_EPOCH = Way("last epoch", LAST, LOSS)
TEST_RATE = Way("rate by test", LOSS, TEST)
TEST_EPOCH = Way("epoch by test", TEST, LOSS)
TEST_BOTH = Way("rate, epoch by test", TEST, TEST)
BEST_SEED = Way("best seed", LOSS, LOSS, best_of_seeds=True)
ALL_PEEKS = Way("all of these", TEST, TEST, best_of_seeds=True)
WAYS = (HONEST, BY_ERROR, LAST_EPOCH, TEST_RATE, TEST_EPOCH, TEST_BOTH, BEST_SEED, ALL_PEEKS)
"""The study's own way first, then other honest ones, then those that look at test data."""


def usable(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records that have validation and test errors, and the diverged ones."""
    return [record for record in records if record.status == "diverged" or all(name in record.curves for name in CURVES)]


def per_run(records: Iterable[RunRecord]) -> pd.DataFrame:
    """Test error of each run at the epochs that each curve chooses, and what a learning rate can be chosen by.

    Columns: key, activation, keep_probability, learning_rate, seed; test_at_CURVE (%; at the epoch end where that curve
    is least, the first of several) and epoch_at_CURVE for each of `CURVES`, test_at_last; least_validation_loss (nats),
    least_validation_error (%). A diverged run is infinite. Raises `ConfigurationError` if the records mix scales.
    """
    rows = []
    shown = usable(records)
    statistics.refuse_mixture(ledger.table(shown))
    for record in shown:
        config = record.config
        row: dict[str, str | float] = {
            "key": config.key,
            "activation": config.activation,
            "keep_probability": config.keep_probability,
            "learning_rate": config.learning_rate,
            "seed": config.seed,
        }
        ends = {name: at_epoch_ends(record, name) for name in CURVES} if record.status == "finished" else {}
        for name in CURVES:
            place = int(np.argmin(ends[name])) if ends else 0
            row[f"test_at_{name}"] = float(ends[TEST][place]) if ends else math.inf
            row[f"epoch_at_{name}"] = place + 1 if ends else math.nan
        row[f"test_at_{LAST}"] = float(ends[TEST][-1]) if ends else math.inf
        for name in (LOSS, ERROR):
            row[f"least_{name}"] = float(ends[name].min()) if ends else math.inf
        rows.append(row)
    names = ["key", "activation", "keep_probability", "learning_rate", "seed", f"test_at_{LAST}"]
    names += [f"{kind}_at_{name}" for name in CURVES for kind in ("test", "epoch")] + [f"least_{LOSS}", f"least_{ERROR}"]
    return pd.DataFrame(rows, columns=names)


def at_epoch_ends(record: RunRecord, curve: str) -> Array:
    """A curve's values at the ends of epochs, [epochs]."""
    values = np.asarray(record.curves[curve], dtype=np.float64)
    each = len(values) // record.config.epochs
    return values[each - 1 :: each]


@dataclass(frozen=True)
class Scores:
    """Scores of activations in every way. Arrays begin with the estimate from all seeds; bootstrap draws follow."""

    names: tuple[str, ...]
    ways: tuple[Way, ...]
    errors: dict[Way, Array]  # percent, [activations, 1 + draws]
    choices: dict[Way, tuple[tuple[float, float], ...]]  # (keep probability, learning rate) of each activation
    seeds: tuple[int, ...]
    choosing_seeds: tuple[int, ...]  # those that every setting has: they choose among settings
    keys: tuple[str, ...]  # of the runs at the chosen settings

    def gains(self, way: Way, over: Way = HONEST) -> Array:
        """Points by which the error is lower than in another way, [activations, 1 + draws]."""
        return _less(self.errors[over], self.errors[way])

    def gaps(self, way: Way, subject: int = 0) -> Array:
        """Points by which each activation's error exceeds the subject's, [activations, 1 + draws]."""
        return _less(self.errors[way], self.errors[way][subject])

    def ranking(self, way: Way) -> list[list[str]]:
        """Activations from least to greatest error, those with equal errors together."""
        errors = np.round(self.errors[way][:, 0], 9)  # errors are whole counts: equal ones must compare as equal
        return [[name for name, e in zip(self.names, errors, strict=True) if e == value] for value in np.unique(errors)]

    def reversed(self, way: Way, reference: Way = HONEST) -> Array:
        """For each draw 1 if any two activations stand the other way round than in the same draw of the reference."""
        return _disagree(self.errors[way], self.errors[reference])

    def unstable(self, way: Way = HONEST) -> Array:
        """For each draw 1 if any two activations stand the other way round than in the estimate of the same way."""
        return _disagree(self.errors[way], self.errors[way][:, :1])


def score(
    runs: pd.DataFrame, keep_probability: float | None = None, *, best_of: int = 5, draws: int = 4_999, ways: Sequence[Way] = WAYS
) -> Scores | None:
    """Score runs (`per_run`) at one keep probability, or with the keep probability chosen as the learning rate is.

    Only seeds that every setting of every activation has choose; all seeds of the chosen setting are scored. A draw takes
    as many choosing seeds as there are, with replacement, and as many of the others. An activation that lacks a learning
    rate of the table (at a keep probability that it has) is left out. `best_of` seeds are drawn without replacement, of
    fewer all. None if no activation can be scored. Raises `ConfigurationError` if best_of or draws is below 1.
    """
    if min(best_of, draws) < 1:
        raise ConfigurationError(f"best_of is {best_of} and draws {draws}; both must be at least 1")
    rates = sorted(runs["learning_rate"].unique())
    if keep_probability is not None:
        runs = runs[runs["keep_probability"] == keep_probability]
    cells = {key: cell.set_index("seed") for key, cell in runs.groupby(["activation", "keep_probability", "learning_rate"])}
    options: dict[str, list[tuple[float, float]]] = {}
    for name in (*figures.STYLES, *sorted(set(runs["activation"]) - set(figures.STYLES))):
        keeps = sorted(runs.loc[runs["activation"] == name, "keep_probability"].unique(), reverse=True)
        wanted = [(float(keep), float(rate)) for keep in keeps for rate in rates]
        if wanted and all((name, *option) in cells for option in wanted):
            options[name] = wanted
    common = [set(cells[name, *option].index) for name, wanted in options.items() for option in wanted]
    choosing = sorted(set.intersection(*common)) if common else []
    if not choosing:
        return None
    seeds = choosing + sorted(set().union(*common) - set(choosing))
    places = _resampled(len(choosing), len(seeds), draws)

    errors: dict[Way, Array] = {}
    choices = {}
    used: set[str] = set()
    for way in ways:
        scored, chosen = [], []
        for name, wanted in options.items():
            tables = [cells[name, *option] for option in wanted]
            judged_by = f"test_at_{way.epoch}" if way.setting == TEST else f"least_{way.setting}"
            criteria = np.stack([_medians(_drawn(table, judged_by, seeds, places[:, : len(choosing)])) for table in tables])
            best = criteria.argmin(axis=0)
            result = np.full(len(places), math.nan)
            for place in np.unique(best):
                here = best == place
                values = _drawn(tables[place], f"test_at_{way.epoch}", seeds, places[here])
                result[here] = expected_least(values, best_of) if way.best_of_seeds else _medians(values)
            scored.append(result)
            chosen.append(wanted[best[0]])
            used |= set(tables[best[0]]["key"])
        errors[way], choices[way] = np.stack(scored), tuple(chosen)
    return Scores(tuple(options), tuple(ways), errors, choices, tuple(seeds), tuple(choosing), tuple(sorted(used)))


def interval(values: Array, confidence: float = statistics.CONFIDENCE) -> tuple[float, float, float]:
    """The estimate, values[0], and the percentile interval of the draws after it; equal bounds are infinite or NaN with it."""
    outer = (1 - confidence) / 2
    low, high = np.quantile(values[1:], [outer, 1 - outer], method="closest_observation")
    return float(values[0]), float(low), float(high)


def expected_least(values: ArrayLike, of: int) -> Array:
    """The expectation of the least of `of` values drawn without replacement, along the last axis; NaN is no value.

    Of fewer values it is their least. From the distribution of the least: C(m - i, of - 1) / C(m, of) for the i-th of m.
    """
    x = np.sort(np.atleast_2d(np.asarray(values, dtype=np.float64)), axis=-1)  # NaN come last
    counts = (~np.isnan(x)).sum(axis=-1)
    result = np.full(len(x), math.nan)
    for m in np.unique(counts[counts > 0]):
        taken = min(of, int(m))
        drawable = int(m) - taken + 1  # the least of them is never among the `taken - 1` greatest
        weights = [math.comb(int(m) - i, taken - 1) / math.comb(int(m), taken) for i in range(1, drawable + 1)]
        here = counts == m
        result[here] = x[here, :drawable] @ np.array(weights)
    return result


@cache
def least_of_normals(count: int) -> float:
    """The expectation of the least of `count` independent standard normal variables, below 0, by quadrature."""
    if count < 1:
        raise ConfigurationError(f"count is {count}; it must be at least 1")

    def density(x: float) -> float:
        return x * count * math.exp(stats.norm.logpdf(x) + (count - 1) * stats.norm.logsf(x))

    return float(integrate.quad(density, -12, 12, points=[-4, -2, 0], limit=200)[0])


def binomial_error(error: float, examples: int) -> float:
    """Standard error in points of an error in percent that was measured on so many examples."""
    share = error / 100
    return 100 * math.sqrt(share * (1 - share) / examples)


@dataclass(frozen=True)
class Plateau:
    """The last epochs of a run, less a straight line: points of test error in which picking the lowest one pays."""

    fluctuation: float  # standard deviation between epochs, from successive differences
    by_chance: float  # how far the least of so many independent normal errors would lie below their mean
    on_test: float  # how far the least test error lies below the line
    on_validation: float  # how far validation error lies below its own line at that epoch


def plateau(record: RunRecord, epochs: int) -> Plateau:
    """What choosing the least test error of a run's last `epochs` buys, on the images that chose and on others.

    Validation images had no say in that choice, so what they see of the drop is real, and the rest is luck with the test
    images. Raises `ConfigurationError` for fewer than 3 epochs or more than there are.
    """
    if not 3 <= epochs <= record.config.epochs:
        raise ConfigurationError(f"a plateau of {epochs} epochs; it must have 3 to {record.config.epochs}")
    test, validation = (at_epoch_ends(record, name)[-epochs:] for name in (TEST, ERROR))
    steps = np.arange(epochs)
    below = [np.polyval(np.polyfit(steps, values, 1), steps) - values for values in (test, validation)]
    chosen = int(np.argmax(below[0]))
    fluctuation = float(np.sqrt(np.mean(np.diff(test) ** 2) / 2))
    by_chance = -least_of_normals(epochs) * fluctuation
    return Plateau(fluctuation, by_chance, float(below[0][chosen]), float(below[1][chosen]))


def mean_interval(values: ArrayLike, confidence: float = statistics.CONFIDENCE) -> tuple[float, float, float]:
    """Mean and its t interval; NaN bounds with fewer than two values."""
    x = np.asarray(values, dtype=np.float64)
    if len(x) < 2:
        return float(x.mean()) if len(x) else math.nan, math.nan, math.nan
    if np.ptp(x) == 0:
        return float(x[0]), float(x[0]), float(x[0])
    found = stats.ttest_1samp(x, 0).confidence_interval(confidence)
    return float(x.mean()), float(found.low), float(found.high)


def _resampled(choosing: int, seeds: int, draws: int) -> NDArray[np.intp]:
    """Places of drawn seeds, [1 + draws, seeds]: first every seed once, then draws within each of the two groups."""
    rng = np.random.default_rng(0)
    parts = [
        rng.integers(0, choosing, (draws, choosing)),
        rng.integers(choosing, max(seeds, choosing + 1), (draws, seeds - choosing)),
    ]
    return np.concatenate([np.arange(seeds)[None], np.concatenate(parts, axis=1)])


def _drawn(table: pd.DataFrame, column: str, seeds: Sequence[int], places: NDArray[np.intp]) -> Array:
    """A column's values of the drawn seeds, NaN where there is no run."""
    values = table[column].reindex(list(seeds)).to_numpy(dtype=np.float64)
    return np.asarray(values[places])


def _medians(values: Array) -> Array:
    """Medians along the last axis of values that may be infinite; NaN is no value."""
    x = np.sort(values, axis=-1)
    count = (~np.isnan(x)).sum(axis=-1, keepdims=True)
    middle = np.take_along_axis(x, np.concatenate([(count - 1) // 2, count // 2], axis=-1).clip(0), axis=-1)
    return np.asarray(middle.mean(axis=-1))


def _less(a: Array, b: Array) -> Array:
    """a - b, and 0 where both are infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(a) & (a == b), 0.0, a - b)


def _disagree(a: Array, b: Array) -> Array:
    """For each column 1 if the sign of any difference between two rows is opposite in a and b."""
    signs = [np.sign(np.round(_less(x[:, None], x[None, :]), 9)) for x in (a, b)]
    return np.asarray((signs[0] * signs[1] < 0).any(axis=(0, 1)), dtype=np.float64)
