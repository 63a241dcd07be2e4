"""A plan minus the ledger: groups what is missing into stacks, trains them, writes each record as its stack ends.

Nothing that was finished is trained twice: a sweep that was interrupted, even killed, goes on from the ledger.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from tqdm import tqdm

from gelu_study import datasets, training
from gelu_study.checkpoints import Checkpoints
from gelu_study.errors import ConfigurationError
from gelu_study.ledger import Ledger
from gelu_study.runs import DENSE, RunConfig, RunRecord

CPU_STACK, GPU_STACK = 15, 60
"""Networks in a stack: more gain little on a CPU and lose more when a sweep is killed."""
_PIXELS = 784
CPU_WEIGHTS = 9_000_000
"""Weights in a stack on a CPU, at most, unless it is a single network: more no longer fit in caches."""


def missing(configs: Iterable[RunConfig], ledger: Ledger) -> list[RunConfig]:
    """The runs that the ledger has no sound record of, in their order."""
    return [config for config in configs if ledger.get(config.key) is None]


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


def _fitting(config: RunConfig, weights: int) -> int:
    """Networks of that kind with so many weights in all; convolutional ones train one by one, and are each a stack of its own."""
    if config.network not in DENSE:
        return 1
    widths = (_PIXELS, *config.hidden, _PIXELS if config.network == "autoencoder" else 0)
    return max(1, weights // sum(a * b for a, b in itertools.pairwise(widths)))


class Reporter:
    """Says how far a sweep is: a bar on a terminal or in a notebook, a plain line now and then elsewhere."""

    def __init__(self, runs: int, steps: int, stream: TextIO | None = None, every_seconds: float = 30) -> None:
        self._runs, self._steps, self._stream = runs, steps, stream or sys.stderr
        self._done_runs = self._done_steps = 0
        self._begin = self._said = time.monotonic()
        self._every = every_seconds
        self._bar = None
        if self._stream.isatty():
            layout = "{l_bar}{bar}| {postfix} [{elapsed} spent, {remaining} left, {rate_fmt}]"
            self._bar = tqdm(total=steps, unit="step", unit_scale=True, bar_format=layout, file=self._stream)
            self._bar.set_postfix_str(f"0/{runs} runs")

    def advance(self, steps: int) -> None:
        """Count network-steps: updates times networks."""
        self._done_steps += steps
        if self._bar is not None:
            self._bar.update(steps)
        elif time.monotonic() - self._said >= self._every:
            self._say()

    def finish_runs(self, count: int) -> None:
        """Count runs whose records are written."""
        self._done_runs += count
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._done_runs}/{self._runs} runs")
        else:
            self._say()

    def skip(self, configs: Sequence[RunConfig]) -> None:
        """Count runs that need no training any more."""
        if configs:
            self.advance(sum(config.steps_per_epoch * config.epochs for config in configs))
            self.finish_runs(len(configs))

    def close(self) -> None:
        """End the bar's line."""
        if self._bar is not None:
            self._bar.close()

    def _say(self) -> None:
        self._said = time.monotonic()
        rate = self._done_steps / max(self._said - self._begin, 1e-9)
        left = (self._steps - self._done_steps) / rate if rate else math.inf
        when = f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
        print(f"{self._done_runs}/{self._runs} runs, {rate:,.0f} steps/s, {when}", file=self._stream, flush=True)


def complete(
    configs: Sequence[RunConfig],
    ledger: Ledger,
    *,
    device: str = "auto",
    stack_size: int | None = None,
    data_root: Path | None = None,
    checkpoints: Checkpoints | None = None,
    deadline: training.Deadline = training.NEVER,
    stream: TextIO | None = None,
) -> list[RunRecord]:
    """Train what the ledger lacks of these runs and return the records of all of them, in their order.

    With `checkpoints`, long trainings go on where they were interrupted; those of finished runs are deleted unless they are kept.
    Training stops before the `deadline`; the records of runs that were not finished are lacking.

    Raises `ConfigurationError` for a device that is not there, `DataError` when data are missing, `LedgerError` when a record
    cannot be written. Records of the stacks that ended before stay in the ledger.
    """
    todo = missing(configs, ledger)
    if todo:
        ledger.prepare()
        where = training.resolve_device(device)
        size = stack_size if stack_size is not None else GPU_STACK if where.type == "cuda" else CPU_STACK
        weights = CPU_WEIGHTS if stack_size is None and where.type == "cpu" else None
        planned = stacks(todo, size, weights=weights, checkpoints=checkpoints)
        loaded = {name: datasets.load(name, data_root) for name in sorted({config.dataset for config in todo})}
        reporter = Reporter(len(todo), sum(config.steps_per_epoch * config.epochs for config in todo), stream)
        try:
            for planned_stack in planned:
                stack = missing(planned_stack, ledger)  # another sweep may have trained some of it since
                reporter.skip([config for config in planned_stack if config not in stack])
                if not stack:
                    continue
                if deadline.before_another(0):
                    break
                data, advance = loaded[stack[0].dataset], per_network(reporter, stack)
                for records in _as_they_end(stack, training.train(stack, data, where, advance, checkpoints, deadline)):
                    for record in records:
                        ledger.write(record)
                    if checkpoints and not checkpoints.keep:
                        checkpoints.remove(record.config for record in records)
                    reporter.finish_runs(len(records))
        finally:
            reporter.close()
    found = [ledger.get(config.key) for config in configs]
    return [record for record in found if record is not None]


def _as_they_end(stack: Sequence[RunConfig], records: Iterable[RunRecord]) -> Iterable[list[RunRecord]]:
    """Records that become ready together: all of a stack, or each alone."""
    return [list(records)] if _together(stack) else ([record] for record in records)


def _together(stack: Sequence[RunConfig]) -> bool:
    return stack[0].network in DENSE


def per_network(reporter: Reporter, stack: Sequence[RunConfig]) -> training.Progress:
    """Counts a stack's steps for each of its networks, where they train together."""
    networks = len(stack) if _together(stack) else 1
    return lambda steps: reporter.advance(steps * networks)
