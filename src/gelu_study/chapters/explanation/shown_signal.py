"""The signal before training, shown: figures, a table and sentences, from theory and drawn networks alone."""

from __future__ import annotations

import math

import pandas as pd

from gelu_study import pages
from gelu_study.chapters.explanation import drawn, signal
from gelu_study.chapters.explanation.signal import Setting
from gelu_study.chapters.explanation.words import capital, counted, listed, title

PAPER_DEPTH = 8
"""Hidden layers of the paper's classifier."""

_DIGITS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power(value: float) -> str:
    """Two significant digits, small and large numbers with a power of ten: 5.3 × 10⁻⁵."""
    if value == 0 or not math.isfinite(value) or 0.01 <= abs(value) < 1000:
        return pages.number(value, 2)
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}&nbsp;×&nbsp;10{str(int(exponent)).translate(_DIGITS)}"


def signal_shown(asked: Setting) -> None:
    """What a scheme of weights leaves of signal and slope, layer by layer, and what that says about a comparison."""
    expected, found = signal.theory(asked), signal.spread(signal.measured(asked))
    at = min(PAPER_DEPTH, asked.depth)
    pages.text(sentences(expected, found, at))
    where = (
        f"Lines: infinitely wide layers. Points: {counted(asked.networks, 'drawn network')} of width {asked.width} with "
        f"{signal.EXAMPLES} standard normal inputs each"
        + (f", scaled to a second moment of {asked.input_second_moment:g}" if asked.input_second_moment != 1 else "")
        + f"; median and range. The vertical line is at layer {at}. {pages.COMPUTED}"
    )
    pages.figure(
        drawn.signal(expected, found, "second_moment", at),
        "explanation-signal",
        "Second moment of the activations over the layers for each scheme of initial weights, theory and drawn networks",
        f"The signal going forward: the mean square of a layer's activations; a line that falls is a signal that fades. {where}",
        [],
    )
    pages.figure(
        drawn.signal(expected, found, "slope", at),
        "explanation-slope",
        "Mean squared slope from the inputs to each layer for each scheme of initial weights, theory and drawn networks",
        "The gradient going back: the mean squared slope from the inputs to a layer, which is the factor by which the mean square "
        "of "
        f"a gradient changes on its way from that layer to the inputs. {where}",
        [],
    )
    table(expected, found, at)


def table(expected: pd.DataFrame, found: pd.DataFrame, at: int) -> None:
    """Signal and slope at a layer: theory, and drawn networks with their range."""
    rows = []
    both = expected.merge(found, on=["initialisation", "activation", "layer"], suffixes=("_expected", ""))
    for row in both[both["layer"] == at].to_dict("records"):
        line = {"weights": title(row["initialisation"]), "activation": title(row["activation"])}
        for measure, name in (("second_moment", "second moment"), ("slope", "squared slope")):
            low, high = power(row[f"{measure}_low"]), power(row[f"{measure}_high"])
            line[f"{name}, theory"] = power(row[f"{measure}_expected"])
            line[f"{name}, drawn"] = (
                f'<span class="study-value">{power(row[measure])} <span class="study-interval">[{low}, {high}]</span></span>'
            )
        rows.append(line)
    caption = f"After {counted(at, 'layer')}: infinitely wide layers, and drawn networks (median [range])."
    pages.table(pd.DataFrame(rows), "explanation-signal-table", caption, [])


def sentences(expected: pd.DataFrame, found: pd.DataFrame, at: int) -> str:
    """What is left after `at` layers for each scheme, how far activations differ in it, and how sure a drawn network is of it."""
    lines = []
    for scheme, cell in expected[expected["layer"] == at].groupby("initialisation", sort=False):
        moments = cell.set_index("activation")["second_moment"]
        parts = [f"{title(str(name))} {power(float(value))}" for name, value in moments.items()]
        line = f"- **{capital(title(str(scheme)))} weights** leave {listed(parts)}"
        if len(moments) > 1:
            apart = float(moments.max() / moments.min())
            line += (
                f": {title(str(moments.idxmax()))} starts with {pages.number(apart, 2) if apart < 100 else f'{apart:,.0f}'} times "
                f"the "
                f"signal of {title(str(moments.idxmin()))}"
                if apart > 1.05
                else ": practically the same"
            )
        lines.append(line + ".")
    ranges = found[found["layer"] == at].assign(factor=lambda cell: cell["second_moment_high"] / cell["second_moment_low"])
    widest = ranges.loc[ranges["factor"].idxmax()]
    chance = (
        f"Theory speaks of infinitely wide layers. In networks of finite width the draw matters too, the more so the deeper: from "
        f"one "
        f"network to the next the second moment differs by up to {pages.number(float(widest['factor']), 2)} times "
        f"({title(str(widest['activation']))}, {title(str(widest['initialisation']))} weights)."
    )
    head = f"After {counted(at, 'layer')}, of an input with second moment {power(float(expected['second_moment'].iloc[0]))}:"
    return f"{head}\n\n" + "\n".join(lines) + f"\n\n{chance}"
