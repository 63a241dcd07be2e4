"""Words and numbers that the chapter's pages share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from gelu_study import activations, datasets, pages, protocols, published, statistics
from gelu_study.chapters.certainty import seeds as by_seed
from gelu_study.chapters.certainty.seeds import Crowned, Pairs
from gelu_study.study import Study

CLAIM = published.CLASSIFIER
MEASURES = {"train_loss": "training loss", "best_test_error": "test error"}
"""By what the draws are ranked: the measure of the paper's claim, and what a user gets at the epoch of best validation loss."""
PAPER_SEEDS = len(protocols.PAPER_SEEDS)
_NAMES = {"gelu_tanh": "GELU"}
_PERCENT = "\N{NO-BREAK SPACE}%"


def title(name: str) -> str:
    """The activation as the paper calls it, whose GELU is the tanh form."""
    return _NAMES.get(name, activations.title(name))


def percent(share: float) -> str:
    """A share in percent that says 0 or 100 only where it is."""
    if math.isnan(share):
        return "–"
    if 0 < share < 0.005:
        return f"under 1{_PERCENT}"
    if 0.995 <= share < 1:
        return f"over 99{_PERCENT}"
    return f"{100 * share:.0f}{_PERCENT}"


def count(value: float) -> str:
    """A number of seeds or examples."""
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:,.0f}"


def versus(cell: tuple[float, str]) -> str:
    """A comparison in words: "against ReLU without dropout"."""
    return f"against {title(cell[1])} {pages.condition(cell[0])}"


def listed(parts: Sequence[str]) -> str:
    """Parts in a sentence: "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def found_pairs(found: Study, metric: str = CLAIM.metric) -> Pairs | None:
    """The claim's comparisons, or None where they do not suffice for a calculation."""
    both = by_seed.pairs(by_seed.losses(found, metric))
    return both if both.usable else None


def lacking(found: Study) -> str:
    """Why there is nothing to calculate from."""
    if not found.chosen:
        return "The learning rates are not chosen yet, so there are no pairs of runs to calculate from."
    frame = by_seed.losses(found, CLAIM.metric)
    if len(frame) < statistics.LEAST_SEEDS:
        return f"Seeds that have all runs of the claim: {len(frame)}. At least {statistics.LEAST_SEEDS} are needed here."
    return (
        "A run at a chosen learning rate diverged, or has a loss of 0. The rule then goes by the signed-rank test, whose "
        "power is not calculated here."
    )


def chosen_rows(found: Study) -> pd.DataFrame:
    """The rows at the chosen learning rates."""
    return statistics.at_choice(found.table, found.chosen)


def draws_said(result: Crowned, total: int) -> str:
    """How many draws were looked at."""
    which = f"all {result.count:,} draws" if result.exact else f"{result.count:,} random draws"
    return f"{which} of {result.size} of our {total} seeds"


def images_in(found: Study) -> int:
    """How many test examples the study's data set has."""
    return datasets.SHAPES[found.planned[0].dataset]["y_test"][0]
