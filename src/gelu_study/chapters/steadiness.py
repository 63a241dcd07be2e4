"""Whether the autoencoder's errors stay as low as they come: the longest trainings, epoch by epoch."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pandas as pd

from gelu_study import activations, figures, interactive, pages, published, study
from gelu_study.chapters import autoencoder, experiment
from gelu_study.runs import RunRecord
from gelu_study.study import Study

ABOVE = 1.1
"""An error more than so many times its lowest has risen again."""


@dataclass(frozen=True)
class Course:
    """How a run's errors, one an epoch, went on after they were lowest."""

    run: RunRecord
    epoch: int  #: after which the test error was lowest, counted from 1
    lowest: float  #: test error then
    end: float  #: test error after the last epoch
    above: int  #: epochs after which the test error was more than `ABOVE` times its lowest until then
    training: float  #: the last epoch's mean training error over the lowest epoch's

    @property
    def ratio(self) -> float:
        """Test error at the end over its lowest."""
        return self.end / self.lowest


def longest(found: Study, folder: str | os.PathLike[str] | None = None) -> Study:
    """The study, or the runs of its settings with the paper's number of epochs where it has fewer and those have records."""
    if found.scale not in ("paper", "powered") or found.planned[0].epochs >= autoencoder.PAPER_EPOCHS:
        return found
    planned = found.planned
    long = study.run(
        autoencoder.EXPERIMENT,
        found.scale,
        seeds=sorted({config.seed for config in planned}),
        activations=list(dict.fromkeys(config.activation for config in planned)),
        learning_rates=autoencoder.rates(found),
        epochs=autoencoder.PAPER_EPOCHS,
        train=False,
        ledger=folder,
    )
    return long if long.records else found


def course(run: RunRecord) -> Course:
    """What became of the errors of a finished run."""
    test = np.array(run.curves["test_loss"])
    training = np.array(run.curves["train_loss_epoch"])
    until_then = np.minimum.accumulate(test)
    return Course(
        run,
        int(test.argmin()) + 1,
        float(test.min()),
        float(test[-1]),
        int((test > ABOVE * until_then).sum()),
        float(training[-1] / training.min()),
    )


def courses(found: Study) -> list[Course]:
    """Of each run that trained, by learning rate from the greatest, activation in the order of figures, and seed."""
    return [
        course(run)
        for rate in autoencoder.rates(found)
        for name in autoencoder.names_of(found, rate)
        for run in autoencoder.runs_of(found, name, rate)
        if autoencoder.fate(run) == autoencoder.TRAINED
    ]


def show(found: Study, folder: str | os.PathLike[str] | None = None) -> None:
    """The curves of longer trainings than the page's, where there are any; then which runs rose again, in words and a table."""
    long = longest(found, folder)
    known = courses(long)
    if not known:
        pages.text("No run that trained has a record yet.")
        return
    if long is not found:
        _curves(long)
    epochs = long.planned[0].epochs
    pages.text(words(known, epochs))
    rows = []
    for rate in autoencoder.rates(long):
        for name in autoencoder.names_of(long, rate):
            these = [c for c in known if (c.run.config.activation, c.run.config.learning_rate) == (name, rate)]
            if these:
                rows.append(
                    {
                        "rate": pages.rate(rate),
                        "activation": experiment.title(name),
                        "lowest": _range([c.lowest for c in these]),
                        "after epoch": _range([c.epoch for c in these], whole=True),
                        "end / lowest": _range([c.ratio for c in these]),
                        "training, end / lowest": _range([c.training for c in these]),
                        "epochs above": _range([c.above for c in these], whole=True),
                        "n": str(len(these)),
                    }
                )
    caption = (
        f"Test error over {epochs} epochs, least and greatest of n runs: its lowest, the error at the end over that, the same for "
        f"the training error, and the number of epochs more than {round(100 * (ABOVE - 1))} % above the lowest until then."
    )
    pages.table(pd.DataFrame(rows), "mnist-autoencoder-steadiness", caption, [c.run.config.key for c in known])


def words(known: list[Course], epochs: int) -> str:
    """Which runs end above their lowest test error, and whether their training errors do."""
    more = f"more than {round(100 * (ABOVE - 1))} %"
    risen = [c for c in known if c.ratio > ABOVE]
    if not risen:
        return f"Of {pages.counted(known)} of {epochs} epochs none ends {more} above its lowest test error."
    ends, they = ("ends", "it") if len(risen) == 1 else ("end", "they")
    lines = [f"{len(risen)} of {len(known)} runs of {epochs} epochs {ends} {more} above the lowest test error that {they} had:", ""]
    for c in risen:
        config = c.run.config
        too = "has risen too" if c.training > ABOVE else "has not risen so"
        lines.append(
            f"- {activations.title(config.activation)} at {pages.rate(config.learning_rate)}, seed {config.seed}: "
            f"{pages.number(c.end)}, {pages.number(c.ratio)} times its lowest, that of epoch {c.epoch}; its training error {too} "
            f"({pages.number(c.training)} times its lowest)."
        )
    return "\n".join(lines)


def _curves(long: Study) -> None:
    epochs = long.planned[0].epochs
    for rate in autoencoder.rates(long):
        shown = long.table[long.table["learning_rate"] == rate]
        if not len(shown) or (shown["status"] != "finished").all():
            continue
        of = " over the paper's (dotted)" if rate in published.AUTOENCODER else ""
        sentence = f"Learning rate {pages.rate(rate)}, {epochs} epochs{of}: the runs that there are so far."
        name = f"mnist-autoencoder-long-{pages.rate(rate).replace('.', '-')}"
        alt = f"Training and test reconstruction error over {epochs} epochs at a learning rate of {pages.rate(rate)}"
        caption = figures.caption(shown, long.scale, sentence, bands=True)
        pages.figure(autoencoder.curves(long, rate), name, alt, caption, shown["key"])
        interactive.show(autoencoder.each_seed(long, rate), f"{name}-each-seed", interactive.EACH_SEED)


def _range(values: list[float] | list[int], whole: bool = False) -> str:
    low, high = ((str(v) if whole else pages.number(v)) for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
