"""The paper's shallow network on CIFAR-10: what the page says of the paper's own numbers; the rest is in `images`."""

from __future__ import annotations

import pandas as pd

from gelu_study import activations, pages
from gelu_study.chapters import experiment
from gelu_study.chapters.images import InPaper

PAPER = InPaper("cifar10_convnet", 5, "error")


def paper_table() -> None:
    """The errors that the text states beside the last ones of figure 5, with and without its smoothing."""
    last = PAPER.last("error")
    rows = [
        {"activation": experiment.title(name), "text, %": stated, "figure 5, last epoch, %": f"{last[name]:.2f}"}
        for name, stated in PAPER.stated.items()
    ]
    pages.plain_table(pd.DataFrame(rows))
    pages.text(paper_sentence(PAPER.stated, last))


def paper_sentence(stated: dict[str, str], last: dict[str, float]) -> str:
    """For which activations text and figure agree to the digits given."""
    apart = [name for name in stated if f"{last[name]:.2f}" != stated[name]]
    if not apart:
        return "Text and figure agree."
    told = experiment.joined([f"{activations.title(name)} ({stated[name]} against {last[name]:.2f} %)" for name in apart])
    return (
        f"Text and figure agree but for {told}. The figure's curve is the median of smoothed runs, and which run that is may "
        "change from epoch to epoch, so that undoing the smoothing is not exact there."
    )
