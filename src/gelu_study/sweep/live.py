"""A small figure in a notebook that is drawn anew while networks train: the training loss of those that train now.

Loaded only where a person watches. It looks at what the engine has measured anyway, and draws so seldom that training hardly
slows down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from IPython.display import HTML, display
from matplotlib.figure import Figure

from gelu_study import activations, figures
from gelu_study.runs import RunConfig

EVERY_SECONDS = 1.0
SHARE = 0.05
"""Of the time, what drawing may take: where a drawing takes long, the next one waits."""
_LOSSES = ("train_loss", "train_loss_epoch")


class LiveCurves:
    """The training loss of each run of the stack that trains now, over its epochs."""

    def __init__(self) -> None:
        self._configs: list[RunConfig] = []
        self._epochs: list[float] = []
        self._losses: list[Sequence[float]] = []  # a row a time, a value a run
        self._next = 0.0
        self._handle = display(HTML(""), display_id=True)

    def add(self, configs: Sequence[RunConfig], epochs: float, measured: Mapping[str, Sequence[float]]) -> None:
        """Take what was measured, and draw it where the last drawing is long enough ago. Other runs begin a new figure."""
        if list(configs) != self._configs:
            self._configs, self._epochs, self._losses = list(configs), [], []
        self._epochs.append(epochs)
        self._losses.append(next(measured[name] for name in _LOSSES if name in measured))
        begin = time.monotonic()
        if begin >= self._next and len(self._epochs) > 1:
            self._handle.update(self._drawn())
            end = time.monotonic()
            self._next = end + max(EVERY_SECONDS, (end - begin) / SHARE)

    def close(self) -> None:
        """Take the figure away."""
        self._handle.update(HTML(""))

    def _drawn(self) -> HTML:
        names = ", ".join(dict.fromkeys(activations.title(config.activation) for config in self._configs))
        alt = f"Training loss of {names} after {self._epochs[-1]:.1f} epochs"
        return HTML(figures.picture(curves(self._configs, self._epochs, self._losses), alt))


def curves(configs: Sequence[RunConfig], epochs: Sequence[float], losses: Sequence[Sequence[float]]) -> Figure:
    """The figure: a line a run in the colour and line style of its activation; `losses` has a row a time, a value a run."""
    figure = Figure(figsize=(5.6, 2.6), dpi=96, layout="constrained")
    ax = figure.add_subplot()
    named: set[str] = set()
    for run, config in enumerate(configs):
        colour, line, _ = figures.STYLES[config.activation]
        values = [row[run] if math.isfinite(row[run]) and row[run] > 0 else math.nan for row in losses]
        label = None if config.activation in named else activations.title(config.activation)
        ax.plot(epochs, values, color=colour, linestyle=line, lw=1.2, alpha=0.85, label=label)
        named.add(config.activation)
    figures.log_axis(ax, "y")
    ax.set_xlim(0, configs[0].epochs)
    count = f"the {len(configs)} networks that train" if len(configs) > 1 else "the network that trains"
    ax.set_title(f"Training loss of {count} now: {epochs[-1]:.1f} of {configs[0].epochs} epochs", fontsize=9)
    ax.set_xlabel("epoch", fontsize=9)
    ax.tick_params(labelsize=8)
    ax.legend(fontsize=8, ncols=4)
    return figure
