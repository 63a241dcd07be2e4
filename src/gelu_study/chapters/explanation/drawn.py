"""The chapter's figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from gelu_study import figures, statistics
from gelu_study.chapters.explanation.factorial import Interval
from gelu_study.chapters.explanation.settings import Response
from gelu_study.chapters.explanation.words import capital, title

AXES = {"second_moment": "second moment", "slope": "mean squared slope"}
_GREY = "#444444"
_SHORT = {"unit-norm": "unit", "he": "He", "variance-matched": "matched", "unit-norm-outgoing": "outgoing"}


@figures.typeset
def signal(theory: pd.DataFrame, drawn: pd.DataFrame, measure: str, mark: int) -> Figure:
    """A measure of `signal.theory` over the layers as lines, `signal.spread` as points with their range: a panel a scheme.

    `mark` is the depth at which a vertical line stands.
    """
    schemes = list(pd.unique(theory["initialisation"]))
    names = [name for name in figures.STYLES if name in set(theory["activation"])]
    figure, axes = figures.panels(len(schemes), height=2.3, sharex=True)
    values = np.concatenate([theory[measure], drawn[f"{measure}_low"], drawn[f"{measure}_high"]])
    for ax, scheme in zip(axes, schemes, strict=True):
        ax.axvline(mark, color="#BBBBBB", lw=1)
        for place, name in enumerate(names):
            colour, line, marker = figures.STYLES[name]
            expected = theory[(theory["initialisation"] == scheme) & (theory["activation"] == name)]
            found = drawn[(drawn["initialisation"] == scheme) & (drawn["activation"] == name)]
            at = found["layer"] + 0.16 * (place - (len(names) - 1) / 2)
            ax.plot(expected["layer"], expected[measure], color=colour, linestyle=line, gid=f"{scheme} {name}")
            ax.vlines(at, found[f"{measure}_low"], found[f"{measure}_high"], color=colour, lw=1.2)
            ax.plot(at, found[measure], marker, color=colour, ms=4.5, mew=0)
        ax.set_title(f"{capital(title(scheme))} weights")
        ax.set_ylabel(AXES[measure])
        ax.set_ylim(values.min() / 2, values.max() * 2)
        figures.log_axis(ax, "y")
    axes[-1].set_xlabel("layer")
    figures.legend(figure, names, [Line2D([], [], marker="o", ls="", ms=4.5, color=_GREY, label="drawn networks")])
    return figure


@figures.typeset
def interactions(outcomes: pd.DataFrame, of: Response) -> Figure:
    """The response of every run of the factorial and its means: a panel an optimiser, initialisations within normalisations.

    `outcomes` is `settings.outcomes`. Filled-in values of diverged runs are crosses.
    """
    optimisers, normalisations, schemes = (
        list(pd.unique(outcomes[name])) for name in ("optimiser", "normalisation", "initialisation")
    )
    names = [name for name in figures.STYLES if name in set(outcomes["activation"])]
    figure, axes = figures.panels(len(optimisers), height=3.0, sharex=True)
    step = len(schemes) + 0.5
    places = {
        (normalisation, scheme): block * step + number
        for block, normalisation in enumerate(normalisations)
        for number, scheme in enumerate(schemes)
    }
    logarithmic = bool((outcomes["value"] > 0).all())
    for ax, optimiser in zip(axes, optimisers, strict=True):
        if of.column != "best_test_error":
            ax.axhline(of.chance, color="#999999", lw=1, linestyle=(0, (1, 2)))
        for offset, name in enumerate(names):
            colour, line, marker = figures.STYLES[name]
            runs = outcomes[(outcomes["optimiser"] == optimiser) & (outcomes["activation"] == name)]
            at = np.array([places[key] for key in zip(runs["normalisation"], runs["initialisation"], strict=True)], dtype=float)
            at += 0.2 * (offset - (len(names) - 1) / 2)
            filled = runs["filled"].to_numpy(dtype=bool)
            ax.plot(at[~filled], runs["value"][~filled], marker, color=colour, alpha=0.45, ms=4.5, mew=0)
            ax.plot(at[filled], runs["value"][filled], "x", color=colour, ms=7, mew=2)
            for normalisation in normalisations:
                means = runs[runs["normalisation"] == normalisation].groupby("initialisation", sort=False)["y"].mean()
                here = [scheme for scheme in schemes if scheme in means.index]
                x = [places[normalisation, scheme] + 0.2 * (offset - (len(names) - 1) / 2) for scheme in here]
                y = means[here].to_numpy()
                ax.plot(
                    x, np.exp(y) if of.log else y, color=colour, linestyle=line, lw=1.8, gid=f"{optimiser} {normalisation} {name}"
                )
        ax.set_title(title(optimiser))
        ax.set_ylabel(of.axis)
        if logarithmic:
            figures.log_axis(ax, "y")
    axes[-1].set_xticks(list(places.values()), [_SHORT.get(scheme, scheme) for _, scheme in places], fontsize=10)
    for block, normalisation in enumerate(normalisations):
        middle = block * step + (len(schemes) - 1) / 2
        words = title(normalisation).replace("normalisation", "norm.")
        axes[-1].text(middle, -0.19, words, transform=axes[-1].get_xaxis_transform(), ha="center", va="top", fontsize=11.5)
    figures.legend(figure, names, [])
    return figure


Row = tuple[str, Sequence[tuple[str, Interval]]]
"""A label, and intervals with the activation (or "") whose style they wear."""


@figures.typeset
def forest(
    rows: Sequence[Row], of: Response, axis: str, *, legend: Mapping[str, str] | None = None, breaks: Sequence[int] = ()
) -> Figure:
    """Intervals on the scale of the model one below the other, shown as ratios or points; what leaves the axis ends at its edge.

    With `legend`, activations have the labels given there. A thin line stands above each row of `breaks`.
    """
    figure, (ax,) = figures.panels(1, height=1.25 + 0.47 * len(rows))
    neutral, shown = (1.0, np.exp) if of.log else (0.0, np.array)
    numbers = np.array([[i.middle, i.low, i.high] for _, several in rows for _, i in several], dtype=float)
    left, right = _limits(numbers, of)
    if of.log:
        margin = statistics.MARGIN
        ax.axvspan(1 / (1 + margin), 1 + margin, color="#CCCCCC", alpha=0.8, lw=0)
    ax.axvline(neutral, color="#555555", lw=1)
    for place, (_, several) in enumerate(rows):
        for number, (name, found) in enumerate(several):
            if math.isnan(found.middle):
                continue
            colour, _, marker = figures.STYLES[name] if name else (_GREY, "-", "o")
            y = place + 0.26 * (number - (len(several) - 1) / 2)
            if not math.isnan(found.low):
                ax.plot(np.clip(shown([found.low, found.high]), left, right), [y] * 2, color=colour, lw=2.2, solid_capstyle="butt")
            ax.plot(np.clip(shown(found.middle), left, right), y, marker, color=colour, ms=7, clip_on=False, zorder=4)
    for place in breaks:
        ax.axhline(place - 0.5, color="#DDDDDD", lw=1)
    ax.set_yticks(range(len(rows)), [label for label, _ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(left, right)
    if of.log:
        _log_axis(ax, "x")
    ax.grid(True, axis="x")
    ax.set_xlabel(axis)
    handles: list[Any] = [
        Line2D([], [], color=figures.STYLES[name][0], marker=figures.STYLES[name][2], lw=2.2, label=label)
        for name, label in (legend or {}).items()
    ]
    if of.log:
        handles.append(Patch(color="#CCCCCC", label=f"within {100 * statistics.MARGIN:g} %"))
    if handles:
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


@figures.typeset
def shapes(frame: pd.DataFrame, of: Response, legend: Mapping[str, str]) -> Figure:
    """GELU against each rival over depth and width, a panel for each of these and each initialisation.

    `frame` has the columns dimension ("depth", "width"), initialisation, level, rival and gap, an `Interval`.
    """
    keys = list(dict.fromkeys(zip(frame["dimension"], frame["initialisation"], strict=True)))
    figure, axes = figures.panels(len(keys), height=2.35)
    middles = np.array([[gap.middle] * 3 for gap in frame["gap"]], dtype=float)
    low, high = _limits(middles, of, 1.3)
    show = np.exp if of.log else np.array
    for ax, (dimension, scheme) in zip(axes, keys, strict=True):
        here = frame[(frame["dimension"] == dimension) & (frame["initialisation"] == scheme)]
        levels = sorted(here["level"].unique())
        _neutral(ax, of)
        for number, rival in enumerate(legend):
            rows = here[here["rival"] == rival].sort_values("level")
            colour, line, marker = figures.STYLES[rival]
            x = np.array([levels.index(level) for level in rows["level"]]) + 0.1 * (number - (len(legend) - 1) / 2)
            bounds = show([[gap.middle, gap.low, gap.high] for gap in rows["gap"]]).reshape(-1, 3)
            ax.vlines(x, np.clip(bounds[:, 1], low, high), np.clip(bounds[:, 2], low, high), color=colour, lw=2.2)
            ax.plot(x, bounds[:, 0], color=colour, linestyle=line, marker=marker, ms=7, gid=f"{dimension} {scheme} {rival}")
        ax.set_title(f"{capital(dimension)}, {title(scheme)} weights")
        ax.set_xticks(range(len(levels)), [str(level) for level in levels])
        ax.set_xlim(-0.4, len(levels) - 0.6)
        ax.set_ylabel("ratio" if of.log else "points")
        ax.set_ylim(low, high)
        if of.log:
            _log_axis(ax, "y")
    handles = [
        Line2D(
            [], [], color=figures.STYLES[name][0], linestyle=figures.STYLES[name][1], marker=figures.STYLES[name][2], label=label
        )
        for name, label in legend.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, handlelength=2.6)
    return figure


def _log_axis(ax: Axes, which: str) -> None:
    """`figures.log_axis`, with more numbers about 1 where the axis is short."""
    figures.log_axis(ax, which)
    low, high = ax.get_xlim() if which == "x" else ax.get_ylim()
    if high / low < 4:
        axis = ax.xaxis if which == "x" else ax.yaxis
        axis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))


def _neutral(ax: Axes, of: Response) -> None:
    if of.log:
        ax.axhspan(1 / (1 + statistics.MARGIN), 1 + statistics.MARGIN, color="#CCCCCC", alpha=0.8, lw=0)
    ax.axhline(1 if of.log else 0, color="#555555", lw=1)


def _limits(numbers: np.ndarray[Any, Any], of: Response, beyond: float = 1.1) -> tuple[float, float]:
    """Limits of an axis that hold every estimate and neutral, and intervals up to three times as far on the model's scale."""
    middles = numbers[:, 0][np.isfinite(numbers[:, 0])]
    reach = max([*np.abs(middles), 0.05 if of.log else 0.2])
    finite = numbers[np.isfinite(numbers)]
    low = max(min([*finite, 0]), -3 * reach)
    high = min(max([*finite, 0]), 3 * reach)
    pad = max(beyond - 1, 0.05) * max(high - low, 0.1 if of.log else 0.2)
    return (math.exp(low - pad), math.exp(high + pad)) if of.log else (low - pad, high + pad)
