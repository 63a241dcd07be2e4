"""Says how far a sweep is."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tqdm import tqdm

from gelu_study.runs import RunConfig


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
        """Count network-steps: updates times networks; fewer than none for those that were lost."""
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

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

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
        if rate <= 0:
            print(f"{self._done_runs}/{self._runs} runs, no step taken yet", file=self._stream, flush=True)
            return
        left = (self._steps - self._done_steps) / rate
        when = f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
        print(f"{self._done_runs}/{self._runs} runs, {rate:,.0f} steps/s, {when}", file=self._stream, flush=True)
