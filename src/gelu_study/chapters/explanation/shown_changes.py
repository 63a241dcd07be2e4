"""Comparisons of activations, shown: one change of the paper's recipe at a time, depth and width, forms, momentum, best recipes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from gelu_study import pages, statistics
from gelu_study.chapters.explanation import drawn
from gelu_study.chapters.explanation.factorial import Fit, fit
from gelu_study.chapters.explanation.settings import (
    FACTORS,
    PAPER,
    RECIPE,
    SUBJECT,
    Pair,
    Recipes,
    Response,
    best_recipes,
    outcomes,
    pair,
    response,
    rivals,
    single_changes,
)
from gelu_study.chapters.explanation.shown_factorial import not_a_factorial
from gelu_study.chapters.explanation.words import (
    caption,
    change_in_words,
    compared,
    counted,
    effect,
    gap,
    listed,
    recipe_in_words,
    title,
)


def against(chapter: Recipes, rival: str, of: Response, **setting: Any) -> tuple[Pair, pd.DataFrame] | None:
    """GELU against a rival in a setting, with the runs behind it; None if one of them has none."""
    ours, theirs = (chapter.at(activation=name, **setting) for name in (SUBJECT, rival))
    return (pair(ours, theirs, of), pd.concat([ours, theirs])) if len(ours) and len(theirs) else None


def _axis(of: Response) -> str:
    return f"{of.name} of GELU / rival's\n(left of 1: GELU is better)" if of.log else f"{of.name} of GELU less rival's, points"


def gaps(chapter: Recipes, name: str) -> None:
    """GELU against its rivals in the paper's recipe, and with one thing of it changed at a time."""
    of = response(name)
    rows: list[drawn.Row] = []
    cells, behind, usual = [], [], {}
    for recipe in single_changes(chapter):
        found = {rival: result for rival in rivals(chapter) if (result := against(chapter, rival, of, **recipe)) is not None}
        if not found:
            continue
        label = change_in_words(recipe)
        rows.append(
            (label.replace("the paper's recipe", "paper's recipe"), [(rival, one.gap) for rival, (one, _) in found.items()])
        )
        behind += [runs for _, runs in found.values()]
        cell = {"recipe": label}
        for rival, (one, _) in found.items():
            cell[f"against {title(rival)}"] = effect(one.gap, of)
            if recipe == PAPER:
                usual[rival] = one
        cells.append(cell | {"seeds": str(max(one.n for one, _ in found.values()))})
    if not rows:
        pages.text("None of these comparisons has all its runs yet.")
        return
    runs = pd.concat(behind).drop_duplicates("key")
    if usual:
        told = [compared(one.gap, of, f"{title(rival)}'s") for rival, one in usual.items()]
        pages.text(f"In the paper's recipe, on this scale, GELU's {of.name} is {listed(told)}. With one thing changed:")
    text = (
        f"GELU against its rivals by {of.name}, with one thing of the paper's recipe changed at a time; mean and 95 % t interval. "
        f"Left of {1 if of.log else 0} GELU is better."
    )
    pages.figure(
        drawn.forest(rows, of, _axis(of), legend={rival: f"against {title(rival)}" for rival in rivals(chapter)}),
        "explanation-gaps",
        f"GELU's {of.name} against its rivals' in the paper's recipe and with one thing changed",
        caption(runs, chapter.found, text),
        runs["key"],
    )
    kind = "ratio of GELU's to its rival's" if of.log else "GELU's less its rival's, in points"
    pages.table(
        pd.DataFrame(cells).fillna("–"), "explanation-gaps-table", f"The same in numbers: {of.name}, {kind} [95 %].", runs["key"]
    )


def shape_gaps(chapter: Recipes, of: Response) -> tuple[pd.DataFrame, pd.DataFrame]:
    """GELU against its rivals over depth and width, with the paper's optimiser and normalisation; and the runs behind it.

    Columns: dimension, initialisation, level, rival, gap.
    """
    rows, behind = [], []
    fixed = {factor: PAPER[factor] for factor in RECIPE if factor != "initialisation"}
    settings = {setting[1:] for setting in chapter.planned if dict(zip(RECIPE[1:], setting[2:4], strict=True)) == fixed}
    base = {"depth": chapter.depth, "width": chapter.width}
    schemes = list(dict.fromkeys(setting[1] for setting in chapter.planned))
    for dimension in ("depth", "width"):
        for scheme in schemes:
            shapes = {(setting[3], setting[4]) for setting in settings if setting[0] == scheme}
            levels = sorted({shape[dimension == "width"] for shape in shapes if _varies(shape, dimension, base)})
            for level in levels if len(levels) > 1 else ():
                for rival in rivals(chapter):
                    found = against(chapter, rival, of, initialisation=scheme, **fixed, **{**base, dimension: level})
                    if found is not None:
                        rows.append((dimension, scheme, level, rival, found[0].gap))
                        behind.append(found[1])
    frame = pd.DataFrame(rows, columns=["dimension", "initialisation", "level", "rival", "gap"])
    return frame, pd.concat(behind).drop_duplicates("key") if behind else chapter.runs.iloc[:0]


def _varies(shape: tuple[int, int], dimension: str, base: dict[str, int]) -> bool:
    """Whether a shape has the base's value of the other dimension."""
    return shape[1] == base["width"] if dimension == "depth" else shape[0] == base["depth"]


def shapes(chapter: Recipes, name: str) -> None:
    """GELU against its rivals over depth and width."""
    of = response(name)
    frame, runs = shape_gaps(chapter, of)
    if frame.empty:
        pages.text("No comparison over depth or width has all its runs yet, or the scale does not vary them.")
        return
    lines = []
    for (dimension, scheme), cell in frame.groupby(["dimension", "initialisation"], sort=False):
        parts = []
        for rival, found in cell.groupby("rival", sort=False):
            found = found.sort_values("level")
            ends = [found.iloc[0], found.iloc[-1]]
            said = [f"{gap(end['gap'].middle, of)} at {dimension} {end['level']}" for end in ends[: len(found)]]
            parts.append(f"against {title(str(rival))} {' and '.join(said)}")
        lines.append(f"- {str(dimension).capitalize()}, {title(str(scheme))} weights: {'; '.join(parts)}.")
    pages.text(f"GELU's {of.name}, at the least and the greatest level:\n\n" + "\n".join(lines))
    text = (
        f"GELU's {of.name} {'as a multiple of its' if of.log else 'less its'} rival's over depth (at width {chapter.width}) and "
        f"width "
        f"(at depth {chapter.depth}); Adam, no normalisation; mean and 95 % t interval, cut off where it leaves the panel. "
        f"Below {1 if of.log else 0} GELU is better."
    )
    pages.figure(
        drawn.shapes(frame, of, {rival: f"against {title(rival)}" for rival in rivals(chapter)}),
        "explanation-shapes",
        f"GELU's {of.name} against its rivals' over depth and width, with unit-norm and variance-matched weights",
        caption(runs, chapter.found, text),
        runs["key"],
    )


def forms(chapter: Recipes, name: str) -> None:
    """The exact form against the tanh form, by the verdict's own tests."""
    of = response(name)
    exact, tanh = (chapter.at(activation=form, **PAPER) for form in ("gelu", SUBJECT))
    if exact.empty or tanh.empty:
        pages.text("The exact form has not been compared with the tanh form here yet.")
        return
    found = pair(exact, tanh, of)
    end = ""
    if of.log and found.n >= statistics.LEAST_SEEDS:
        verdict = statistics.compare(*(runs.set_index("seed")[of.column].fillna(math.inf) for runs in (exact, tanh))).verdict()
        end = {
            statistics.EQUIVALENT: f" They are the same within {100 * statistics.MARGIN:g} %.",
            statistics.UNRESOLVED: f" So few seeds show neither a difference nor that it is below {100 * statistics.MARGIN:g} %.",
        }.get(verdict, " That is a difference by the rule of the verdicts.")
    said = compared(found.gap, of, "the tanh form's")
    pages.text(f"In the paper's recipe the exact form's {of.name} is {said}, over {counted(found.n, 'seed')}.{end}")


def momentum(chapter: Recipes, name: str) -> None:
    """SGD with momentum against SGD without, for each activation over initialisations and normalisations."""
    of = response(name)
    if not chapter.complete or not {"momentum", "sgd"} <= {cell["optimiser"] for cell in chapter.cells}:
        pages.text(not_a_factorial(chapter) if not chapter.complete else "The runs of this scale do not vary momentum.")
        return
    runs = chapter.factorial
    frame = outcomes(runs, of)
    fitted = fit(frame, FACTORS, "y")
    means = frame.groupby([*FACTORS], sort=False)["y"].mean().unstack("optimiser")
    rows = []
    for activation in fitted.levels["activation"]:
        here = means.loc[activation]
        with_it = fitted.mean(activation=activation, optimiser="momentum")
        cell = {
            "activation": title(activation),
            "with / without" if of.log else "with less without": effect(
                fitted.interval(with_it - fitted.mean(activation=activation, optimiser="sgd")), of
            ),
            "lower with it": f"{int((here['momentum'] < here['sgd']).sum())} of {len(here)}",
        }
        if PAPER["optimiser"] in fitted.levels["optimiser"]:
            adam = fitted.mean(activation=activation, optimiser=PAPER["optimiser"])
            cell["with / Adam's" if of.log else "with less Adam's"] = effect(fitted.interval(with_it - adam), of)
        rows.append(cell)
    pages.text(momentum_sentence(fitted, of))
    text = (
        f"SGD with momentum 0.9: {of.name}, {'geometric ' if of.log else ''}mean over initialisations and normalisations, against "
        f"SGD "
        "without momentum and against Adam [95 % t interval]. <i>Lower with it</i>: in how many of these recipes."
    )
    pages.table(pd.DataFrame(rows), "explanation-momentum", caption(runs, chapter.found, text), runs["key"])


def momentum_sentence(fitted: Fit, of: Response) -> str:
    """What momentum does for GELU, and whether it does more for GELU than for each rival."""

    def gain(activation: str) -> np.ndarray[Any, Any]:
        return fitted.mean(activation=activation, optimiser="momentum") - fitted.mean(activation=activation, optimiser="sgd")

    own = fitted.interval(gain(SUBJECT))
    lines = [f"With momentum GELU's {of.name} is {compared(own, of, 'without')}."]
    for rival in fitted.levels["activation"]:
        if rival == SUBJECT:
            continue
        more = fitted.interval(gain(SUBJECT) - gain(rival))
        if not more.low <= 0 <= more.high and not math.isnan(more.low):
            side = "more" if more.middle < 0 else "less"
            lines.append(f"It gains {side} than {title(rival)}: the two effects differ by {_difference(more.middle, of)}.")
        else:
            lines.append(f"Whether it gains more than {title(rival)} these runs do not show.")
    return " ".join(lines)


def _difference(value: float, of: Response) -> str:
    return f"a factor of {pages.number(math.exp(abs(value)), 3)}" if of.log else f"{abs(value):.2f} points"


def best(chapter: Recipes) -> None:
    """Each activation with the recipe that validation chooses for it, compared on the test images."""
    choices = best_recipes(chapter)
    if choices.empty:
        pages.text("No recipe can be chosen yet.")
        return
    error = response("best_test_error")
    rows, behind = [], []
    for choice in choices.to_dict("records"):
        recipe = {factor: choice[factor] for factor in RECIPE}
        runs, usual = (chapter.at(activation=choice["activation"], **which) for which in (recipe, PAPER))
        behind += [runs, usual]
        rows.append(
            {
                "activation": title(choice["activation"]),
                "recipe": recipe_in_words(recipe),
                "rate": pages.rate(float(choice["learning_rate"])) + ("*" if choice["at_edge"] else ""),
                "validation loss": pages.number(float(choice["median_validation_loss"])),
                "test error, %": _range(runs["best_test_error"]),
                "in the paper's recipe, %": _range(usual["best_test_error"]),
            }
        )
    runs = pd.concat(behind).drop_duplicates("key")
    whole = (
        ""
        if chapter.complete
        else f" Provisional: of the {len(chapter.cells)} cells, {len(chapter.factorial_choices)} are complete."
    )
    text = (
        "Each activation with the recipe and the learning rate of the lowest median validation loss. Test error at the epoch of "
        "least "
        f"validation loss: median over seeds, and their range. *: at the edge of its grid.{whole}"
    )
    pages.table(pd.DataFrame(rows), "explanation-best", caption(runs, chapter.found, text), runs["key"])
    pages.text(best_sentence(chapter, choices, error))


def best_sentence(chapter: Recipes, choices: pd.DataFrame, of: Response) -> str:
    """GELU against its rivals, each with its best recipe."""
    picked = {row["activation"]: chapter.at(**{factor: row[factor] for factor in FACTORS}) for row in choices.to_dict("records")}
    parts = []
    for rival in rivals(chapter):
        if rival in picked and SUBJECT in picked:
            found = pair(picked[SUBJECT], picked[rival], of)
            clear = not math.isnan(found.gap.low) and not found.gap.low <= 0 <= found.gap.high
            doubt = "" if clear else f" ({counted(found.n, 'seed')} cannot tell it from 0)"
            parts.append(compared(found.gap, of, f"{title(rival)}'s") + doubt)
    return f"Each with its best recipe, GELU's {of.name} is {listed(parts)}." if parts else ""


def _range(values: pd.Series) -> str:
    found = values.dropna()
    if found.empty:
        return "–"
    middle, low, high = (f"{value:.2f}" for value in (found.median(), found.min(), found.max()))
    return f'<span class="study-value">{middle} <span class="study-interval">[{low}, {high}]</span></span>'
