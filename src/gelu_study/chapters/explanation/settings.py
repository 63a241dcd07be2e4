"""The runs of `mnist-recipe`: each setting at the learning rate that validation chose for it, and what they are compared by.

A setting is an activation, a recipe (initialisation, optimiser, normalisation), a depth and a width. It counts once all its planned
runs have a record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from gelu_study import protocols, published, statistics
from gelu_study.chapters.explanation.factorial import Interval
from gelu_study.errors import ConfigurationError
from gelu_study.study import Study

EXPERIMENT = "mnist-recipe"
SUBJECT = published.CLASSIFIER.subject
RECIPE = ("initialisation", "optimiser", "normalisation")
FACTORS = ("activation", *RECIPE)
SETTING = (*FACTORS, "depth", "width")
PAPER = {"initialisation": "unit-norm", "optimiser": "adam-tensorflow", "normalisation": "none"}
"""The paper's recipe."""

CLASSES = 10
CHANCE = math.log(CLASSES)
"""Log loss of a network that gives every class the same probability, in nats."""
STUCK = 0.95
"""A network has not learned if its training loss ends above this share of `CHANCE`."""
_CHOOSING = [*SETTING, "keep_probability", "learning_rate", "seed", "status", "best_validation_loss"]
_SAME = ("dataset", "train_examples", "validation_examples", "epochs", "batch_size", "precision", "engine", "keep_probability")


@dataclass(frozen=True)
class Response:
    """What runs are compared by: a column of the run table, taken as its logarithm or as it is."""

    column: str
    name: str
    axis: str
    log: bool
    chance: float  # of a network that has learned nothing


RESPONSES = {
    "train_loss": Response("train_loss", "final training loss", "training loss (nats)", True, CHANCE),
    "best_validation_loss": Response("best_validation_loss", "least validation loss", "validation loss (nats)", True, CHANCE),
    "best_test_error": Response("best_test_error", "test error", "test error (%)", False, 100 * (1 - 1 / CLASSES)),
}


def response(name: str) -> Response:
    """A response by name. Raises `ConfigurationError` that lists them."""
    if name not in RESPONSES:
        raise ConfigurationError(f"unknown response {name!r}; known are {', '.join(RESPONSES)}")
    return RESPONSES[name]


@dataclass(frozen=True)
class Recipes:
    """The settings of a study that are complete, and their runs at the chosen learning rates."""

    found: Study
    runs: pd.DataFrame  # rows of the run table
    choices: pd.DataFrame  # `SETTING`, learning_rate, median_validation_loss, n, at_edge: a row a complete setting
    planned: tuple[tuple[Any, ...], ...]  # every setting of the plan
    depth: int  # the factorial's
    width: int
    activations: tuple[str, ...]

    def _in_factorial(self, setting: Mapping[str, Any]) -> bool:
        shape = (setting["depth"], setting["width"]) == (self.depth, self.width)
        return bool(shape and setting["activation"] in self.activations)

    def _factorial_rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        inside = [self._in_factorial(row) for row in frame[list(SETTING)].to_dict("records")]
        return frame[np.array(inside, dtype=bool)]

    @property
    def cells(self) -> list[dict[str, Any]]:
        """The planned settings of the factorial."""
        settings = [dict(zip(SETTING, setting, strict=True)) for setting in self.planned]
        return [setting for setting in settings if self._in_factorial(setting)]

    @property
    def factorial_choices(self) -> pd.DataFrame:
        """The choices of the factorial's settings."""
        return self._factorial_rows(self.choices)

    @property
    def factorial(self) -> pd.DataFrame:
        """The factorial's runs."""
        return self._factorial_rows(self.runs)

    @property
    def complete(self) -> bool:
        """Whether every cell of the factorial is there and the plan is a full factorial at all."""
        cells = self.cells
        full = math.prod(len({cell[factor] for cell in cells}) for factor in FACTORS)
        return bool(cells) and len(self.factorial_choices) == len(cells) == full

    def at(self, **setting: Any) -> pd.DataFrame:
        """The runs of the settings with these values; without a depth or a width, those of the factorial's shape."""
        wanted = {"depth": self.depth, "width": self.width, **setting}
        return self.runs[np.logical_and.reduce([self.runs[name] == value for name, value in wanted.items()])]


def recipes(found: Study) -> Recipes:
    """Choose the learning rate of every setting, as `statistics.choose_learning_rates` does, once the setting is complete.

    Raises `ConfigurationError` if the runs differ in anything but a setting, the learning rate and the seed.
    """
    planned = Counter(tuple(getattr(config, name) for name in SETTING) for config in found.planned)
    table = found.table
    for column in _SAME:
        if table[column].nunique() > 1:
            raise ConfigurationError(f"the runs differ in {column}: {', '.join(map(str, sorted(table[column].unique())))}")
    rows = []
    whole = table.groupby(list(SETTING))["key"].transform("size") == [
        planned[key] for key in table[list(SETTING)].itertuples(index=False)
    ]
    for recipe, runs in table.loc[whole, _CHOOSING].groupby([*RECIPE, "depth", "width"], sort=False):
        several = runs["learning_rate"].nunique() > 1
        for choice in statistics.choose_learning_rates(runs).to_dict("records"):
            kept = [choice[name] for name in ("learning_rate", "median_validation_loss", "n")]
            rows.append((choice["activation"], *recipe, *kept, bool(choice["at_edge"]) and several))
    columns = [*SETTING, "learning_rate", "median_validation_loss", "n", "at_edge"]
    choices = pd.DataFrame(rows, columns=columns).astype({"depth": table["depth"].dtype, "width": table["width"].dtype})
    runs = table.merge(choices[[*SETTING, "learning_rate"]], on=[*SETTING, "learning_rate"]) if rows else table.iloc[:0]
    grid = protocols.grid(found.experiment, found.scale)
    return Recipes(found, runs, choices, tuple(planned), len(grid.hidden), grid.hidden[0], grid.activations)


def outcomes(runs: pd.DataFrame, of: Response) -> pd.DataFrame:
    """Runs with their `value` and what is modelled, `y`: its logarithm, or itself.

    A diverged run has no value. It gets the worst that a run of its optimiser ends with here, or that of a network that has learned
    nothing, whichever is worse; `filled` marks it.
    """
    frame = runs[[*SETTING, "seed", "key"]].copy()
    values = runs[of.column].where(runs["status"] != "diverged")
    worst = values.groupby(runs["optimiser"]).transform("max").fillna(of.chance).clip(lower=of.chance)
    frame["filled"] = values.isna()
    frame["value"] = values.fillna(worst)
    frame["y"] = np.log(frame["value"]) if of.log else frame["value"]
    return frame


def stuck(runs: pd.DataFrame) -> pd.DataFrame:
    """Those runs that ended without having learned: finished, at a training loss above `STUCK` of `CHANCE`."""
    return runs[(runs["status"] != "diverged") & (runs["train_loss"] > STUCK * CHANCE)]


def _by_seed(runs: pd.DataFrame, of: Response) -> pd.Series:
    """The response by seed; infinite where the run diverged."""
    values = runs[of.column].where(runs["status"] != "diverged", math.inf)
    return pd.Series(values.to_numpy(dtype=float), index=pd.Index(runs["seed"], dtype=int))


def wins(runs: pd.DataFrame, of: Response, names: Sequence[str], subject: str = SUBJECT) -> pd.DataFrame:
    """How the subject does against its rivals in each recipe that has all of `names`: a row a recipe.

    Columns: `RECIPE`, best_rival (the one of the lowest median over seeds; a diverged run counts as infinite), lead (log ratio, or
    difference, of the subject's median and that rival's; below 0 the subject leads, 0 if both are infinite), lowest (it does lead),
    every_seed (its value is below every rival's in each seed).
    """
    rows = []
    for recipe, here in runs.groupby(list(RECIPE), sort=False):
        values = pd.DataFrame({name: _by_seed(cell, of) for name, cell in here.groupby("activation", sort=False)})
        if subject not in names or not set(names) <= set(values) or len(names) < 2:
            continue
        rivals = values[[name for name in names if name != subject]]
        middle = values[list(names)].apply(np.median)
        best = str(middle[rivals.columns].idxmin())
        lead = _gap(float(middle[subject]), float(middle[best]), of)
        every = bool(rivals.gt(values[subject], axis=0).all(axis=None))
        rows.append((*recipe, best, lead, lead < 0, every))
    return pd.DataFrame(rows, columns=[*RECIPE, "best_rival", "lead", "lowest", "every_seed"])


def _gap(a: float, b: float, of: Response) -> float:
    if a == b:
        return 0.0
    if math.isinf(a) or math.isinf(b) or not of.log:
        return a - b
    return math.log(a / b) if min(a, b) > 0 else math.copysign(math.inf, a - b)


@dataclass(frozen=True)
class Pair:
    """Two settings compared by seed."""

    n: int  # common seeds
    gap: Interval  # mean and t interval of the log ratio, or of the difference; NaN where a run diverged
    diverged: int  # runs of either side

    def shown(self, of: Response) -> Interval:
        """The gap as a ratio, or in points."""
        return self.gap.exp() if of.log else self.gap


def pair(a: pd.DataFrame, b: pd.DataFrame, of: Response) -> Pair:
    """Compare the runs of two settings seed by seed.

    The interval is the t interval of the mean, not the bootstrap's of the median: with three seeds the latter is the range of the
    data and covers three times in four (see `statistics.median_interval`).
    """
    one, other = _by_seed(a, of), _by_seed(b, of)
    common = one.index.intersection(other.index).sort_values()
    x, y = one[common].to_numpy(), other[common].to_numpy()
    n, diverged = len(x), int(np.isinf(x).sum() + np.isinf(y).sum())
    if diverged or not n or (of.log and min(*x, *y) <= 0):
        return Pair(n, Interval(math.nan, math.nan, math.nan), diverged)
    d = np.log(x / y) if of.log else x - y
    mean = float(d.mean())
    half = float(stats.t.isf((1 - statistics.CONFIDENCE) / 2, n - 1) * stats.sem(d)) if n > 1 else math.nan
    return Pair(n, Interval(mean, mean - half, mean + half), 0)


def single_changes(chapter: Recipes) -> list[dict[str, str]]:
    """The paper's recipe and every recipe of the plan that differs from it in one factor."""
    known = [dict(zip(RECIPE, values, strict=True)) for values in dict.fromkeys(tuple(c[f] for f in RECIPE) for c in chapter.cells)]
    changed = [recipe for recipe in known if sum(recipe[factor] != PAPER[factor] for factor in RECIPE) == 1]
    changed.sort(key=lambda recipe: [recipe[factor] == PAPER[factor] for factor in RECIPE])
    return [recipe for recipe in known if recipe == PAPER] + changed


def best_recipes(chapter: Recipes) -> pd.DataFrame:
    """For each activation the recipe of the factorial with the lowest median validation loss: rows of `Recipes.choices`."""
    choices = chapter.factorial_choices
    if choices.empty:
        return choices
    best = choices.sort_values("median_validation_loss", kind="stable").drop_duplicates("activation")
    order = list(chapter.activations)
    return best.sort_values("activation", key=lambda names: names.map(order.index))


def rivals(chapter: Recipes) -> list[str]:
    """The activations that GELU is compared with."""
    return [name for name in chapter.activations if name != SUBJECT]
