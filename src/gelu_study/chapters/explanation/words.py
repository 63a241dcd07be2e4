"""Names and captions that the chapter's parts share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from gelu_study import activations, pages
from gelu_study.chapters.explanation.factorial import Interval
from gelu_study.chapters.explanation.settings import PAPER, RECIPE, Response
from gelu_study.study import Study

LEVELS = {
    "unit-norm": "unit-norm",
    "unit-norm-outgoing": "unit-norm outgoing",
    "he": "He",
    "variance-matched": "variance-matched",
    "adam-tensorflow": "Adam",
    "adam": "Adam (PyTorch's epsilon)",
    "momentum": "SGD with momentum",
    "sgd": "SGD",
    "none": "no normalisation",
    "batch": "batch normalisation",
    "layer": "layer normalisation",
}
"""How tables and sentences write the levels of a recipe."""

_MANY = 3.0  # from here on a ratio is said as a multiple, not in percent
_NAMES = {"gelu_tanh": "GELU", "gelu": "GELU (exact)"}


def title(name: str) -> str:
    """An activation, or a level of another factor. The paper's GELU is the tanh form."""
    return _NAMES.get(name) or LEVELS.get(name) or activations.title(name)


def capital(text: str) -> str:
    """With a capital at its beginning and the rest as it is."""
    return text[:1].upper() + text[1:]


def recipe_in_words(recipe: Mapping[str, str]) -> str:
    """A recipe: "unit-norm, Adam, no normalisation"."""
    return ", ".join(title(recipe[factor]) for factor in RECIPE if factor in recipe)


def change_in_words(recipe: Mapping[str, str]) -> str:
    """What is changed of the paper's recipe: "He weights"; the recipe itself is called so."""
    changed = [factor for factor in RECIPE if recipe[factor] != PAPER[factor]]
    return (
        ", ".join(title(recipe[factor]) + " weights" * (factor == "initialisation") for factor in changed) or "the paper's recipe"
    )


def listed(parts: Sequence[str]) -> str:
    """Parts in a sentence: "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def counted(count: int, what: str) -> str:
    """A number of things: "1 run", "3 runs"."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def percent(share: float) -> str:
    """A share in percent, with a decimal where it is small."""
    if math.isnan(share):
        return "–"
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.1f} %"


def signed(value: float) -> str:
    """A difference in points, with its sign."""
    return "–" if math.isnan(value) else f"{value:+.2f}".replace("-", "−")


def effect(found: Interval, of: Response) -> str:
    """A ratio or a difference with its interval, as HTML. `found` is on the scale of the model."""
    if of.log:
        shown = found.exp()
        return pages.interval(shown.middle, shown.low, shown.high)
    around = "" if math.isnan(found.low) else f' <span class="study-interval">[{signed(found.low)}, {signed(found.high)}]</span>'
    return f'<span class="study-value">{signed(found.middle)}{around}</span>'


def compared(found: Interval, of: Response, other: str) -> str:
    """The same in a sentence, against another's: "12 % lower than ReLU's (95 % interval 31 % to 5.2 % lower)"."""
    if math.isnan(found.middle):
        return f"not comparable with {other}, since runs diverged"
    if of.log:
        ratio = found.exp()
        said = f"{times(ratio.middle)} {other}" if ratio.middle >= _MANY else f"{pages.ratio(ratio.middle)} than {other}"
        said = said.replace("the same than", "the same as")
        around = f"{times(ratio.low)} to {times(ratio.high)}" if ratio.high >= _MANY else pages.span(ratio.low, ratio.high)
    else:
        said = f"{difference(found.middle)} than {other}"
        around = f"{signed(found.low)} to {signed(found.high)}"
    return said + ("" if math.isnan(found.low) else f" (95 % interval {around})")


def gap(value: float, of: Response) -> str:
    """A gap on the scale of the model in words, without saying from what: "12 % lower", "16 times as high"."""
    if not of.log:
        return difference(value)
    return (
        f"{times(math.exp(value))} as high" if value >= math.log(_MANY) and math.isfinite(value) else pages.ratio(math.exp(value))
    )


def difference(value: float) -> str:
    """A difference in points in words."""
    if math.isnan(value):
        return "not comparable"
    size = f"{abs(value):.2f} points" if math.isfinite(value) else "infinitely"
    return f"{size} {'lower' if value < 0 else 'higher'}"


def times(ratio: float) -> str:
    """A ratio as a multiple: "16 times"."""
    return f"{pages.number(ratio, 2)} times"


def factor_in_words(value: float, of: Response) -> str:
    """A range, greatest against least: "a factor of 3.2", or "1.4 points"."""
    return f"a factor of {pages.number(math.exp(value), 2)}" if of.log else f"{value:.2f} points"


def caption(runs: pd.DataFrame, found: Study, sentence: str) -> str:
    """`sentence`, then what made it: how many runs, seeds, images and epochs, at which scale, on what device and when."""
    if runs.empty:
        return f"{sentence} There are no runs yet."
    first = found.planned[0]
    devices = ", ".join(sorted({str(device) for device in runs["device"].dropna()})) or "not recorded"
    lost = int((runs["status"] == "diverged").sum())
    return (
        f"{sentence} {counted(len(runs), 'run')}{f', {lost} of them diverged' if lost else ''}; "
        f"{counted(runs['seed'].nunique(), 'seed')}; {first.train_examples:,} images, {counted(first.epochs, 'epoch')}; "
        f"scale: {found.scale}; device: {devices}; date: {pages.dates(runs)}."
    )
