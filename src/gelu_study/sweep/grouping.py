"""Groups runs into stacks that train together: how many fit, and in which order they come."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

from gelu_study import training
from gelu_study.checkpoints import Checkpoints
from gelu_study.errors import ConfigurationError
from gelu_study.runs import DENSE, RunConfig

CPU_STACK, GPU_STACK = 15, 60
"""Networks in a stack: more gain little on a CPU and lose more when a sweep is killed."""
_PIXELS = 784
CPU_WEIGHTS = 9_000_000
"""Weights in a stack on a CPU, at most, unless it is a single network: more no longer fit in caches."""


def stacks(
    configs: Sequence[RunConfig], size: int, *, weights: int | None = None, checkpoints: Checkpoints | None = None
) -> list[list[RunConfig]]:
    """Group runs into stacks of at most `size`, as even as can be; runs of like learning rate, dropout and seed stay together.

    `weights` bounds the weights in a stack of several networks. Runs with checkpoints of different epochs do not mix.
    """
    if size < 1:
        raise ConfigurationError(f"stack size {size}; a stack holds at least one network")
    shapes = defaultdict(list)
    for config in configs:
        begin = checkpoints.epoch(config) if checkpoints else 0
        shapes[training.stacks.stack_shape(config), begin].append(config)
    result = []
    for _, group in sorted(shapes.items(), key=lambda item: -item[0][1]):  # what was begun comes first
        group.sort(key=lambda c: (-c.keep_probability, -c.learning_rate, c.seed, c.activation))
        count = math.ceil(len(group) / (min(size, _fitting(group[0], weights)) if weights else size))
        bounds = [len(group) * part // count for part in range(count + 1)]
        result += [group[i:j] for i, j in itertools.pairwise(bounds)]
    return result


def fair_size(runs: int, size: int, workers: int) -> int:
    """Networks in a stack, at most `size`, with which so many runs keep that many workers busy to the end."""
    if workers == 1:
        return size
    rounds = math.ceil(runs / (size * workers))
    return math.ceil(runs / (rounds * workers))


def train_together(stack: Sequence[RunConfig]) -> bool:
    """Whether the runs of a stack train at the same time; convolutional ones follow each other."""
    return stack[0].network in DENSE


def _fitting(config: RunConfig, weights: int) -> int:
    """Networks of that kind with so many weights in all; convolutional ones train one by one, and are each a stack of its own."""
    if config.network not in DENSE:
        return 1
    widths = (_PIXELS, *config.hidden, _PIXELS if config.network == "autoencoder" else 0)
    return max(1, weights // sum(a * b for a, b in itertools.pairwise(widths)))
