"""The wide residual network on CIFAR-100: the order of the activations by error and by log loss; the rest is in `images`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gelu_study import activations, judging, pages, published
from gelu_study.chapters import images
from gelu_study.chapters.images import InPaper
from gelu_study.study import Study

PAPER = InPaper("cifar100_wrn40-4", 6, "loss")
ORIGINAL = "cifar100_wrn40-4_original"
"""Of `published.claims`: another paper's number, which the authors cite."""


def orders(found: Study) -> None:
    """The order by error and by log loss, the paper's and ours."""
    pages.text("\n".join(order_lines(found)))


def order_lines(found: Study) -> list[str]:
    """The lines of `orders`, and the cited network's error."""
    errors = {name: float(stated) for name, stated in PAPER.stated.items()}
    lines = [f"- In the paper: {_both(errors, PAPER.last('loss'))}"]
    runs = judging.deciding(found)
    if runs:
        ours = [
            {name: float(np.median(images.values(images.runs_of(found, name), measure))) for name in images.names_of(runs)}
            for measure in ("test_error", "test_loss")
        ]
        lines.append(f"- Here, by medians: {_both(*ours)}")
    (cited,) = published.stated(ORIGINAL, "test_error").values()
    lines.append(
        f"- The original network with ReLU, whose blocks are in another order, errs in {cited} % by its own authors' account; "
        "neither the paper nor this study ran it again."
    )
    return lines


def _both(errors: Mapping[str, float], losses: Mapping[str, float]) -> str:
    """Both orders in words, and whether they are the same."""
    ranked = [sorted(values, key=values.__getitem__) for values in (errors, losses)]
    by_error = ", ".join(f"{activations.title(name)} {pages.number(errors[name], 4)} %" for name in ranked[0])
    by_loss = ", ".join(f"{activations.title(name)} {pages.number(losses[name])}" for name in ranked[1])
    same = "the same order" if ranked[0] == ranked[1] else "another order"
    return f"by test error {by_error}; by log loss {by_loss}: {same}."
