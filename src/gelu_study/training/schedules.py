"""How learning rate and momentum move over a training; steps are counted from 0."""

from __future__ import annotations

import math
from itertools import pairwise

from gelu_study.errors import ConfigurationError

_TRIANGLE = ((0.0, 0.2), (0.23, 1.0), (1.0, 0.07))
"""(share of training, factor), straight lines between: after Jordan 2024, arXiv:2404.00498."""


def learning_rate_factor(schedule: str, step: int, steps: int, steps_per_epoch: int) -> float:
    """What the learning rate of a step is multiplied by, of a training with `steps` in all.

    - `constant`: 1.
    - `half-then-linear`: 1 for the first half of the epochs, then linearly down to 0, an epoch at a time: the paper's for CIFAR-10,
      min(2 - epoch / 100, 1) of 200 epochs.
    - `cosine`: half a period from 1 to 0, step by step (Loshchilov & Hutter 2016, arXiv:1608.03983), the paper's for CIFAR-100.
    - `triangle`: up from 0.2 to 1 within the first 23 %, then down to 0.07.
    """
    if schedule == "constant":
        return 1.0
    if schedule == "half-then-linear":
        return min(2 - step // steps_per_epoch / (steps / steps_per_epoch / 2), 1.0)
    if schedule == "cosine":
        return (1 + math.cos(math.pi * step / steps)) / 2
    if schedule == "triangle":
        share = step / steps
        (begin, low), (end, high) = next(ends for ends in pairwise(_TRIANGLE) if share <= ends[1][0])
        return low + (high - low) * (share - begin) / (end - begin)
    raise ConfigurationError(f"unknown schedule {schedule!r}")


def first_moment_decay(schedule: str, step: int, steps: int, steps_per_epoch: int) -> float:
    """Adam's beta 1 at a step: 0.9, in the second half of `half-then-linear` 0.5, as the paper's code for CIFAR-10 has it."""
    second_half = step // steps_per_epoch >= steps / steps_per_epoch / 2
    return 0.5 if schedule == "half-then-linear" and second_half else 0.9
