"""The chapter's answer, in sentences computed from the factorial."""

from __future__ import annotations

import math

from gelu_study import pages
from gelu_study.chapters.explanation.factorial import Split, fit, split
from gelu_study.chapters.explanation.settings import (
    FACTORS,
    PAPER,
    RESPONSES,
    SUBJECT,
    Recipes,
    Response,
    best_recipes,
    outcomes,
    response,
    rivals,
    wins,
)
from gelu_study.chapters.explanation.shown_changes import best_sentence
from gelu_study.chapters.explanation.shown_factorial import not_a_factorial, spans
from gelu_study.chapters.explanation.words import compared, counted, factor_in_words, gap, listed, percent, title


def answer(chapter: Recipes, name: str) -> None:
    """How much is the activation and how much the recipe: a headline, then what it rests on."""
    of = response(name)
    runs = chapter.factorial
    if runs.empty:
        pages.text("**No answer yet.** No combination of activation and recipe has all its runs.")
        return
    lines = []
    if chapter.complete:
        fitted = fit(outcomes(runs, of), FACTORS, "y")
        lines += [headline(split(fitted, "activation"), of, len(runs)), ""]
        lines.append(ranges(chapter, of))
        parts = []
        for rival in rivals(chapter):
            if {SUBJECT, rival} <= set(fitted.levels.get("activation", ())):
                mean = fitted.interval(fitted.mean(activation=SUBJECT) - fitted.mean(activation=rival))
                parts.append(compared(mean, of, f"{title(rival)}'s"))
        if parts:
            lines.append(f"- Averaged over all recipes, GELU's {of.name} is {listed(parts)}.")
    else:
        lines += [f"**No full answer yet.** {not_a_factorial(chapter)} What there is:", ""]
    lines += [line for one in RESPONSES.values() if one.column != "best_validation_loss" and (line := leads(chapter, one))]
    if sentence := best_sentence(chapter, best_recipes(chapter), RESPONSES["best_test_error"]):
        lines.append(f"- {sentence}")
    pages.text("\n".join(lines))
    pages.records("explanation-answer", runs["key"])


def headline(shares: Split, of: Response, runs: int) -> str:
    """Who has the greatest share of the variance."""
    chance = shares.seed + shares.residual
    said = {
        "**More the recipe than the activation.**": shares.others,
        "**More the activation than the recipe.**": shares.subject,
        "**Neither by itself: what an activation is worth depends on its recipe.**": shares.together,
        "**Mostly chance.**": chance,
    }
    if any(math.isnan(value) for value in said.values()):
        return "**Nothing varies.** All runs end alike."
    most = max(said, key=lambda words: said[words])
    what = f"the logarithm of the {of.name}" if of.log else f"the {of.name}"
    return (
        f"{most} Of the variance of {what} over {counted(runs, 'run')}, the recipe (initialisation, optimiser, normalisation) "
        f"explains {percent(shares.others)}, the activation {percent(shares.subject)}, what an activation does with one recipe "
        f"and not "
        f"with another {percent(shares.together)}, and chance {percent(chance)}."
    )


def ranges(chapter: Recipes, of: Response) -> str:
    """From the best to the worst: over activations in the paper's recipe, and over recipes for GELU."""
    within, over = spans(chapter, of, PAPER)
    parts = []
    if not math.isnan(within):
        parts.append(f"in the paper's recipe the activations' {of.name} differs by {factor_in_words(within, of)}")
    if SUBJECT in over:
        parts.append(f"GELU's own differs by {factor_in_words(over[SUBJECT], of)} between its best recipe and its worst")
    return f"- From best to worst: {listed(parts)}."


def leads(chapter: Recipes, of: Response) -> str:
    """In how many recipes GELU has the lowest response, and by how much it leads or lags."""
    found = wins(chapter.factorial, of, chapter.activations)
    if found.empty:
        return ""
    count, total = int(found["lowest"].sum()), len(found)
    every, chance = int(found["every_seed"].sum()), total / len(chapter.activations)
    seeds = chapter.factorial["seed"].nunique()
    line = (
        f"- GELU has the lowest {of.name} in {count} of {counted(total, 'recipe')}"
        + (f" (median over seeds; in {every} of them in every seed)" if seeds > 1 else "")
        + f"; by lot it would be about {chance:.1f}."
    )
    ends = [gap(float(value), of) for value in (found["lead"].min(), found["lead"].max())]
    said = ends[0] if ends[0] == ends[1] else f"between {ends[0]} and {ends[1]}"
    return f"{line} Against the best rival of each recipe it is {said}."
