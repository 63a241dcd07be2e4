"""How sure can one be? The chapter's face: what its notebook calls.

`seeds` and `examples` calculate, `shown_seeds` and `shown_examples` show, `summing_up` has the first and the last words.
"""

from gelu_study.chapters.certainty.seeds import studies
from gelu_study.chapters.certainty.shown_examples import NOISE, published_differences, seeds_and_images, two_sources
from gelu_study.chapters.certainty.shown_seeds import needs, power, rankings, spread_tables
from gelu_study.chapters.certainty.summing_up import answer, take_home

__all__ = [
    "NOISE",
    "answer",
    "needs",
    "power",
    "published_differences",
    "rankings",
    "seeds_and_images",
    "spread_tables",
    "studies",
    "take_home",
    "two_sources",
]
