"""The factorial design, shown: which runs there are, what they end with, and what explains it."""

from __future__ import annotations

import math

import pandas as pd

from gelu_study import pages
from gelu_study.chapters.explanation import drawn
from gelu_study.chapters.explanation.factorial import RESIDUAL, SEED, Split, Term, fit, split, split_by_seed
from gelu_study.chapters.explanation.settings import (
    CHANCE,
    FACTORS,
    RECIPE,
    RESPONSES,
    STUCK,
    Recipes,
    Response,
    outcomes,
    response,
    stuck,
)
from gelu_study.chapters.explanation.words import capital, caption, counted, effect, listed, percent, title


def state(chapter: Recipes) -> str:
    """How many cells of the factorial there are."""
    done, planned = len(chapter.factorial_choices), len(chapter.cells)
    return f"{done} of the {counted(planned, 'cell')} of the design have all their runs"


def not_a_factorial(chapter: Recipes) -> str:
    """Why no share of a variance can be given."""
    if len(chapter.factorial_choices) < len(chapter.cells):
        return f"Shares and effects need the whole design, and {state(chapter)}."
    return "The runs of this scale are not a full factorial design, so there are no shares and effects to give."


def design(chapter: Recipes) -> None:
    """The design and its runs: factors, learning rates, and the runs that diverged or did not learn."""
    cells = chapter.cells
    first = chapter.found.planned[0]
    seeds = len({config.seed for config in chapter.found.planned})
    factors = []
    for factor in FACTORS:
        levels = [title(level) for level in dict.fromkeys(cell[factor] for cell in cells)]
        factors.append(f"{factor} ({listed(levels)})")
    lines = [
        f"**The design.** {capital(listed(factors))}, GELU in its tanh form: {counted(len(cells), 'combination')}, each with "
        f"{counted(seeds, 'seed')}; a network "
        f"of "
        f"{chapter.depth} hidden layers of {chapter.width}, {first.train_examples:,} training images, "
        f"{counted(first.epochs, 'epoch')} of {counted(first.steps_per_epoch, 'step')}. {state(chapter).capitalize()}."
    ]
    choices = chapter.factorial_choices
    if len(choices):
        edge = int(choices["at_edge"].sum())
        lines.append(
            "**Learning rates.** Each combination is shown at the learning rate with the lowest median validation loss of those "
            "that "
            f"its optimiser was given: {_grids(chapter)}. In {edge} of {len(choices)} the chosen one is the least or the greatest "
            f"of "
            "its grid, so that a better one may lie outside."
        )
        lines.append(unlearned(chapter))
    pages.text("\n\n".join(lines))


def _grids(chapter: Recipes) -> str:
    shape = (chapter.depth, chapter.width)
    inside = [config for config in chapter.found.planned if (config.depth, config.width) == shape]
    parts = []
    for optimiser in dict.fromkeys(config.optimiser for config in inside):
        rates = sorted({config.learning_rate for config in inside if config.optimiser == optimiser}, reverse=True)
        parts.append(f"{listed([pages.rate(rate) for rate in rates])} for {title(optimiser)}")
    return "; ".join(parts)


def unlearned(chapter: Recipes) -> str:
    """How many of the shown runs diverged or did not learn, which, and how they are counted."""
    runs = chapter.factorial
    lost, idle = runs[runs["status"] == "diverged"], stuck(runs)
    head = f"**Runs that failed.** Of {counted(len(runs), 'run')} at these rates {len(lost)} diverged and {len(idle)} did not learn"
    rule = f"(a training loss above {100 * STUCK:g} % of ln 10 = {CHANCE:.2f} nats, which is what guessing gives)"
    parts = [f"{head} {rule}."]
    failed = pd.concat([lost, idle])
    if len(failed):
        by_name = failed.groupby("activation", sort=False).size()
        parts.append(f"By activation: {listed([f'{title(str(name))} {count}' for name, count in by_name.items()])}.")
        recipes = failed.groupby(list(RECIPE), sort=False).size()
        shown = [f"{', '.join(map(title, recipe))} ({count})" for recipe, count in recipes.items()]
        parts.append(f"By recipe: {'; '.join(shown)}.")
    parts.append(
        "A run that did not learn counts with its loss. A diverged one has none and counts with the worst of its optimiser's "
        "here, or "
        "with that of guessing if that is worse."
    )
    return " ".join(parts)


def interactions(chapter: Recipes, name: str) -> None:
    """Every run of the complete cells, and their means."""
    of = response(name)
    runs = chapter.factorial
    if runs.empty:
        pages.text(f"There is nothing to draw yet: {state(chapter)}.")
        return
    sentence = (
        f"{of.name.capitalize()} by initialisation (unit-norm, He, variance-matched), normalisation and optimiser: every run at "
        f"its "
        f"chosen learning rate, lines through the {'geometric ' if of.log else ''}means over seeds."
        + (" Dotted: what guessing gives." if of.column != "best_test_error" else "")
        + (" Crosses: diverged runs, at the value they count with." if (runs["status"] == "diverged").any() else "")
    )
    pages.figure(
        drawn.interactions(outcomes(runs, of), of),
        "explanation-interactions",
        f"{of.name.capitalize()} of each activation by initialisation, normalisation and optimiser",
        caption(runs, chapter.found, sentence),
        runs["key"],
    )


def splits(chapter: Recipes, of: Response) -> list[tuple[str, Split, list[Split]]]:
    """Shares of the variance in the whole design and with each optimiser alone: name, shares, and shares by each seed alone."""
    frame = outcomes(chapter.factorial, of)
    parts = [("all recipes", frame)]
    optimisers = list(pd.unique(frame["optimiser"]))
    if len(optimisers) > 1:
        parts += [(f"with {title(str(optimiser))} alone", frame[frame["optimiser"] == optimiser]) for optimiser in optimisers]
    return [
        (words, split(fit(rows, FACTORS, "y"), "activation"), split_by_seed(rows, FACTORS, "y", "activation"))
        for words, rows in parts
    ]


def shares(chapter: Recipes, name: str) -> None:
    """Shares of the variance by activation, recipe and what they do together: by the asked response, then by the others."""
    if not chapter.complete:
        pages.text(not_a_factorial(chapter))
        return
    asked = response(name)
    rows = [_share_row(f"{_of(asked)}, {words}", whole, alone) for words, whole, alone in splits(chapter, asked)]
    for other in RESPONSES.values():
        if other != asked:
            words, whole, alone = splits(chapter, other)[0]
            rows.append(_share_row(f"{_of(other)}, {words}", whole, alone))
    several = chapter.factorial["seed"].nunique() > 1
    text = (
        "Shares of the variance (eta squared). <i>Activation</i>: differences between activations averaged over all recipes. "
        "<i>Recipe</i>: differences between recipes averaged over the activations, interactions within the recipe included. "
        "<i>Together</i>: what an activation does with one recipe and not with another. <i>Chance</i>: "
        + (
            "seeds. In brackets the range of the shares when each seed is taken by itself, where chance adds to the other three."
            if several
            else "what is left; with one seed nothing repeats, so interactions of three and four factors are in it."
        )
    )
    runs = chapter.factorial
    pages.table(pd.DataFrame(rows), "explanation-shares", caption(runs, chapter.found, text), runs["key"])


def _of(of: Response) -> str:
    return f"log {of.name}" if of.log else of.name


def _share_row(words: str, whole: Split, alone: list[Split]) -> dict[str, str]:
    def cell(kind: str) -> str:
        found = [getattr(one, kind) for one in alone]
        around = f' <span class="study-interval">[{percent(min(found))}, {percent(max(found))}]</span>' if len(found) > 1 else ""
        return f'<span class="study-value">{percent(getattr(whole, kind))}{around}</span>'

    return {
        "of the variance of": words,
        "activation": cell("subject"),
        "recipe": cell("others"),
        "together": cell("together"),
        "chance": percent(whole.seed + whole.residual),
    }


def terms(chapter: Recipes, name: str) -> None:
    """Every term of the model with its share, the greatest first."""
    if not chapter.complete:
        return
    of = response(name)
    runs = chapter.factorial
    fitted = fit(outcomes(runs, of), FACTORS, "y")
    shares_of = fitted.shares()
    ordered = sorted(fitted.columns, key=lambda term: -shares_of[term])
    rows = [
        {"share": percent(shares_of[term]), "term": _term(term), "degrees of freedom": str(fitted.degrees(term))}
        for term in [*ordered, RESIDUAL]
    ]
    text = (
        f"The terms of the model of the {_of(of)}: {counted(fitted.order, 'factor')} at most in an interaction, effect coding, "
        f"least "
        "squares. What is left after them is in the last row."
    )
    pages.table(pd.DataFrame(rows), "explanation-terms", caption(runs, chapter.found, text), runs["key"])


def _term(term: Term) -> str:
    if term == RESIDUAL:
        return "what is left"
    return "seed" if term == SEED else " × ".join(term)


def effects(chapter: Recipes, name: str) -> None:
    """The main effects with their intervals, as a figure and a table."""
    if not chapter.complete:
        return
    of = response(name)
    runs = chapter.factorial
    fitted = fit(outcomes(runs, of), FACTORS, "y")
    rows: list[drawn.Row] = []
    breaks, cells = [], []
    for factor, levels in fitted.levels.items():
        breaks.append(len(rows))
        for level in levels:
            found = fitted.effect(**{factor: level})
            name_of = title(level) + " weights" * (factor == "initialisation")
            rows.append((name_of, [(level if factor == "activation" else "", found)]))
            cells.append({"effect": effect(found, of), "of": name_of})
    what = (
        f"{of.name}, as a multiple of the\ngeometric mean of all runs" if of.log else f"{of.name}, points from the mean of all runs"
    )
    spread = "seeds" if fitted.seeds > 1 else "the interactions left out of the model"
    text = (
        f"Main effects: the {of.name} at a level, averaged over all levels of the other factors, "
        f"{'as a multiple of the geometric mean of all' if of.log else 'less the mean of all'}. Intervals: 95 %, from the t "
        f"distribution "
        f"with {fitted.residual_df} degrees of freedom and one variance for all cells, which {spread} give."
    )
    pages.figure(
        drawn.forest(rows, of, what, breaks=breaks[1:]),
        "explanation-effects",
        f"Main effects of activation and recipe on the {of.name}, with 95 % intervals",
        caption(runs, chapter.found, text),
        runs["key"],
    )
    pages.table(pd.DataFrame(cells), "explanation-effects-table", f"The same in numbers: {of.name}, effect [95 %].", runs["key"])


def spans(chapter: Recipes, of: Response, paper: dict[str, str]) -> tuple[float, dict[str, float]]:
    """Ranges of the mean response: over activations in the paper's recipe, and over recipes for each activation; NaN if absent."""
    frame = outcomes(chapter.factorial, of)
    means = frame.groupby(list(FACTORS), sort=False)["y"].mean().reset_index()
    at_paper = means[(means[list(paper)] == pd.Series(paper)).all(axis=1)]["y"]
    within = float(at_paper.max() - at_paper.min()) if len(at_paper) > 1 else math.nan
    over = means.groupby("activation", sort=False)["y"].agg(lambda values: values.max() - values.min())
    return within, {str(name): float(value) for name, value in over.items()}
