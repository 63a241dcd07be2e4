"""Says how far a sweep is, and shows a person at a notebook how losses fall meanwhile."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm

from gelu_study.runs import RunConfig

if TYPE_CHECKING:
    from gelu_study.sweep.live import LiveCurves

_LAYOUT = "{l_bar}{bar}| {postfix} [{elapsed} spent, {remaining} left, {rate_fmt}]"

_PACES = 20
"""The latest measurements of a sweep's speed whose median is said: steps that a checkpoint held, or that were lost, spoil one."""


def watched() -> bool:
    """Whether this process is the kernel of a notebook with a person before it, and not one that papermill or the book executes:
    those ask nothing of a keyboard."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return bool(getattr(getattr(shell, "kernel", None), "_allow_stdin", False))


class Reporter:
    """Says how far a sweep is: a bar on a terminal, a bar and curves in a notebook, a plain line now and then elsewhere."""

    def __init__(self, runs: int, steps: int, stream: TextIO | None = None, every_seconds: float = 30) -> None:
        self._runs, self._steps, self._stream = runs, steps, stream or sys.stderr
        self._done_runs = self._done_steps = 0
        self._begin = self._said = time.monotonic()
        self._every = every_seconds
        self._mark: tuple[float, int] | None = None  # a moment and the steps done until then
        self._paces: deque[float] = deque(maxlen=_PACES)
        self._bar: Any = None
        self._curves: LiveCurves | None = None
        if stream is None and watched():
            from gelu_study.sweep.live import LiveCurves

            self._bar, self._curves = _notebook_bar(steps), LiveCurves()
        elif self._stream.isatty():
            self._bar = tqdm(total=steps, unit="step", unit_scale=True, bar_format=_LAYOUT, file=self._stream)
        if self._bar is not None:
            self._bar.set_postfix_str(f"0/{runs} runs")

    def advance(self, steps: int) -> None:
        """Count network-steps: updates times networks; fewer than none for those that were lost."""
        self._done_steps += steps
        if self._bar is not None:
            self._bar.update(steps)
            return
        now = time.monotonic()
        if self._mark is None:  # data are read, and what a checkpoint holds was counted at once
            self._mark, self._said = (now, self._done_steps), now
        elif (seconds := now - self._mark[0]) >= self._every:
            self._paces.append((self._done_steps - self._mark[1]) / seconds)
            self._mark = now, self._done_steps
        if now - self._said >= self._every:
            self._say()

    def observe(self, configs: Sequence[RunConfig], epochs: float, measured: Mapping[str, Sequence[float]]) -> None:
        """Draw the losses of the runs that train now, where a person watches (see `training.Observe`)."""
        if self._curves is not None:
            self._curves.add(configs, epochs, measured)

    def finish_runs(self, count: int) -> None:
        """Count runs whose records are written."""
        self._done_runs += count
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._done_runs}/{self._runs} runs")
        else:
            self._say()

    def say(self, text: str) -> None:
        """A line of its own."""
        if self._bar is not None and self._curves is None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def skip(self, configs: Sequence[RunConfig]) -> None:
        """Count runs that need no training any more."""
        if configs:
            self.advance(sum(config.steps_per_epoch * config.epochs for config in configs))
            self.finish_runs(len(configs))

    def close(self) -> None:
        """End the bar's line; the curves go, since the page draws them all."""
        if self._bar is not None:
            self._bar.close()
        if self._curves is not None:
            self._curves.close()

    def _say(self) -> None:
        self._said = time.monotonic()
        rate = median(self._paces) if self._paces else self._done_steps / max(self._said - self._begin, 1e-9)
        if rate <= 0:
            print(f"{self._done_runs}/{self._runs} runs, no step taken yet", file=self._stream, flush=True)
            return
        left = (self._steps - self._done_steps) / rate
        pace = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        when = f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
        print(f"{self._done_runs}/{self._runs} runs, {pace} steps/s, {when}", file=self._stream, flush=True)


def _notebook_bar(steps: int) -> Any:
    """tqdm's bar of widgets; without ipywidgets, its bar of text."""
    from tqdm.notebook import tqdm as widget

    try:
        return widget(total=steps, unit="step", unit_scale=True, bar_format=_LAYOUT)
    except ImportError:
        return tqdm(total=steps, unit="step", unit_scale=True, bar_format=_LAYOUT, file=sys.stdout)
