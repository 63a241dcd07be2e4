"""What explains it? The chapter's face: what its notebook calls.

`signal`, `factorial` and `settings` calculate, `drawn` has the figures, `shown_*` show, `opening` has the first words.
"""

from gelu_study.chapters.explanation.opening import answer
from gelu_study.chapters.explanation.settings import EXPERIMENT, recipes
from gelu_study.chapters.explanation.shown_changes import best, forms, gaps, momentum, shapes
from gelu_study.chapters.explanation.shown_factorial import design, effects, interactions, shares, terms
from gelu_study.chapters.explanation.shown_signal import signal_shown
from gelu_study.chapters.explanation.signal import setting

__all__ = [
    "EXPERIMENT",
    "answer",
    "best",
    "design",
    "effects",
    "forms",
    "gaps",
    "interactions",
    "momentum",
    "recipes",
    "setting",
    "shapes",
    "shares",
    "signal_shown",
    "terms",
]
