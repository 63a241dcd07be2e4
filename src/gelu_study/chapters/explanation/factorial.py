"""A full factorial design: which share of a response each factor explains, with which effects, and between which limits.

Effect coding (a factor's effects sum to 0) and least squares, with the seed as a block. In a balanced design the terms are
orthogonal, so their sums of squares add up and each is a share of the whole (Box, Hunter & Hunter 2005, Statistics for
Experimenters). Functions of tables; what the factors are is the caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from gelu_study.errors import ConfigurationError

Array = NDArray[np.float64]
Term = tuple[str, ...]

SEED: Term = ("seed",)
RESIDUAL: Term = ()
"""Stands for what no term of the model explains."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its t interval; the bounds are NaN where nothing is left to estimate a spread from."""

    middle: float
    low: float
    high: float

    def exp(self) -> Interval:
        """Of a difference of logarithms: the ratio."""
        return Interval(math.exp(self.middle), math.exp(self.low), math.exp(self.high))


@dataclass(frozen=True)
class Fit:
    """A least-squares fit of main effects and interactions up to `order`, with the seed as a block."""

    levels: dict[str, tuple[str, ...]]  # of the factors that vary
    order: int
    n: int  # runs
    seeds: int
    coefficients: Array
    unscaled: Array  # covariance of the coefficients / residual variance
    columns: dict[Term, slice]  # of the coefficients; 0 is the mean
    squares: dict[Term, float]  # sums of squares by term, with `SEED` and `RESIDUAL`
    residual_df: int

    @property
    def residual_variance(self) -> float:
        """Mean square of the residuals; NaN if no degree of freedom is left."""
        return self.squares[RESIDUAL] / self.residual_df if self.residual_df else math.nan

    def shares(self) -> dict[Term, float]:
        """Eta squared: each term's sum of squares / that of all. They sum to 1; NaN if nothing varies."""
        total = sum(self.squares.values())
        return {term: value / total if total > 0 else math.nan for term, value in self.squares.items()}

    def degrees(self, term: Term) -> int:
        """Degrees of freedom of a term."""
        if term == RESIDUAL:
            return self.residual_df
        return int(self.columns[term].stop - self.columns[term].start)

    def mean(self, **at: str) -> Array:
        """The combination of coefficients that is the mean response at these levels, over all levels of the other factors.

        Differences of such combinations are contrasts, which `interval` estimates. Raises `ConfigurationError` for a level that
        the design does not have.
        """
        for factor, level in at.items():
            if level not in self.levels.get(factor, ()):
                raise ConfigurationError(f"{factor} {level!r} is no level of the design: {self.levels}")
        row = np.zeros(len(self.coefficients))
        row[0] = 1
        for term, place in self.columns.items():
            if set(term) <= set(at):
                row[place] = _code(self.levels, term, {factor: [level] for factor, level in at.items()})[0]
        return row

    def interval(self, combination: Array, confidence: float = 0.95) -> Interval:
        """Estimate of a combination of coefficients with the t interval that the residuals give."""
        middle = float(combination @ self.coefficients)
        error = math.sqrt(max(0.0, float(combination @ self.unscaled @ combination)) * self.residual_variance)
        half = stats.t.isf((1 - confidence) / 2, self.residual_df) * error if self.residual_df else math.nan
        return Interval(middle, middle - half, middle + half)

    def effect(self, **at: str) -> Interval:
        """How far the mean at these levels lies from the mean of all."""
        return self.interval(self.mean(**at) - self.mean())


def fit(frame: pd.DataFrame, factors: Sequence[str], response: str, order: int | None = None) -> Fit:
    """Fit the response of a balanced design: each combination of levels once for each seed.

    With several seeds all interactions are in the model and the residual is what differs between seeds beyond a shift that all
    combinations share; with one seed, where nothing repeats, the model ends at `order` 2 (or below the highest) and the rest is the
    residual. Factors with one level are left out. Raises `ConfigurationError` if the design is not balanced or a value not finite.
    """
    levels = {factor: tuple(map(str, pd.unique(frame[factor]))) for factor in factors}
    levels = {factor: values for factor, values in levels.items() if len(values) > 1}
    if not levels:
        raise ConfigurationError("no factor of the design has two levels")
    seeds = tuple(map(str, sorted(pd.unique(frame["seed"]))))
    cells = frame.groupby([*levels, "seed"]).size()
    if len(cells) != math.prod(map(len, levels.values())) * len(seeds) or (cells != 1).any():
        raise ConfigurationError("the design is not balanced: give each combination of levels once for each seed")
    y = frame[response].to_numpy(dtype=np.float64)
    if not np.isfinite(y).all():
        raise ConfigurationError(f"{response} holds a value that is not finite")
    if order is None:
        order = len(levels) if len(seeds) > 1 else max(1, min(2, len(levels) - 1))
    terms: list[Term] = [term for size in range(1, order + 1) for term in combinations(levels, size)]

    coded = dict(levels)
    if len(seeds) > 1:
        coded["seed"] = seeds
        terms.insert(0, SEED)
    at = {factor: [str(level) for level in frame[factor]] for factor in coded}
    parts, columns, start = [np.ones((len(frame), 1))], {}, 1
    for term in terms:
        part = _code(coded, term, at)
        columns[term] = slice(start, start + part.shape[1])
        parts.append(part)
        start += part.shape[1]
    x = np.hstack(parts)
    coefficients: Array = np.linalg.lstsq(x, y, rcond=None)[0].astype(np.float64)
    residual = y - x @ coefficients
    squares = {term: float(np.sum((x[:, place] @ coefficients[place]) ** 2)) for term, place in columns.items()}
    squares.setdefault(SEED, 0.0)
    unscaled: Array = np.linalg.inv(x.T @ x).astype(np.float64)
    df = len(y) - x.shape[1]
    squares[RESIDUAL] = float(residual @ residual) if df else 0.0
    return Fit(levels, order, len(y), len(seeds), coefficients, unscaled, columns, squares, df)


def _code(levels: Mapping[str, Sequence[str]], term: Term, at: Mapping[str, Sequence[str]]) -> Array:
    """The effect-coded columns [n, degrees of freedom] of a term for n rows, of which `at` holds each factor's levels."""
    code = np.ones((len(at[term[0]]), 1))
    for factor in term:
        names, count = list(levels[factor]), len(levels[factor])
        effects = np.vstack([np.eye(count - 1), -np.ones(count - 1)])[[names.index(level) for level in at[factor]]]
        code = (code[:, :, None] * effects[:, None, :]).reshape(len(code), -1)
    return code


@dataclass(frozen=True)
class Split:
    """Shares of the variance: of one factor, of the others among themselves, of what it does only together with them, of chance."""

    subject: float
    others: float
    together: float
    seed: float
    residual: float


def split(fitted: Fit, subject: str) -> Split:
    """The shares of a fit, by whether a term holds the factor `subject`."""
    sums = {"subject": 0.0, "others": 0.0, "together": 0.0, "seed": 0.0, "residual": 0.0}
    for term, share in fitted.shares().items():
        if term == RESIDUAL:
            kind = "residual"
        elif term == SEED:
            kind = "seed"
        elif subject not in term:
            kind = "others"
        else:
            kind = "subject" if len(term) == 1 else "together"
        sums[kind] += share
    return Split(**sums)


def split_by_seed(frame: pd.DataFrame, factors: Sequence[str], response: str, subject: str) -> list[Split]:
    """`split` of each seed's runs alone, all interactions in the model: how far the shares depend on the seeds at hand."""
    varying = [factor for factor in factors if frame[factor].nunique() > 1]
    return [split(fit(runs, varying, response, order=len(varying)), subject) for _, runs in frame.groupby("seed", sort=True)]


def combinations_of(fitted: Fit, factors: Sequence[str]) -> list[dict[str, str]]:
    """Every combination of the levels of some factors, in the design's order; those that do not vary are left out."""
    varying = [factor for factor in factors if factor in fitted.levels]
    return [dict(zip(varying, values, strict=True)) for values in product(*(fitted.levels[factor] for factor in varying))]
