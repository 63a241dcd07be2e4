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
    """How a run's errors, one an epoch, went on after the test error was lowest."""

    run: RunRecord
    epoch: int  #: after which the test error was lowest, counted from 1
    lowest: float  #: test error then
    end: float  #: test error after the last epoch
    highest: float  #: greatest test error since, itself included
    above: int  #: epochs since after which the test error was more than `ABOVE` times its lowest
    training: float  #: the last epoch's mean training error over the lowest epoch's

    @property
    def ratio(self) -> float:
        """Test error at the end over its lowest."""
        return self.end / self.lowest

    @property
    def since(self) -> int:
        """Epochs after the one of the lowest test error."""
        return self.run.config.epochs - self.epoch


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
    return long if courses(long) else found


def course(run: RunRecord) -> Course:
    """What became of the errors of a finished run."""
    test = np.array(run.curves["test_loss"])
    training = np.array(run.curves["train_loss_epoch"])
    lowest = int(test.argmin())
    since = test[lowest:]
    return Course(
        run,
        lowest + 1,
        float(test[lowest]),
        float(test[-1]),
        float(since.max()),
        int((since > ABOVE * test[lowest]).sum()),
        float(training[-1] / training.min()),
    )


def courses(found: Study) -> list[Course]:
    """Of each finished run that learnt anything, by learning rate from the greatest, activation as in the figures, and seed."""
    return [
        course(run)
        for rate in autoencoder.rates(found)
        for name in autoencoder.names_of(found, rate)
        for run in autoencoder.runs_of(found, name, rate)
        if autoencoder.learnt(run)
    ]


def show(found: Study, folder: str | os.PathLike[str] | None = None) -> None:
    """The curves of longer trainings than the page's, where there are any; then which runs rose again, in words and a table."""
    long = longest(found, folder)
    known = courses(long)
    if not known:
        pages.text("No run that learnt anything has a record yet.")
        return
    if long is not found:
        _curves(long)
    epochs = long.planned[0].epochs
    pages.text(words(known, epochs) + _left_out(long, known))
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
                        "highest since / lowest": _range([c.highest / c.lowest for c in these]),
                        "end / lowest": _range([c.ratio for c in these]),
                        "epochs above": _range([c.above for c in these], whole=True),
                        "n": str(len(these)),
                    }
                )
    caption = (
        f"Test error over {epochs} epochs, least and greatest of n runs: lowest, the highest since and that at the end over it, "
        f"and the number of epochs since that were more than {round(100 * (ABOVE - 1))} % above it."
    )
    pages.table(pd.DataFrame(rows), "mnist-autoencoder-steadiness", caption, [c.run.config.key for c in known])


def words(known: list[Course], epochs: int) -> str:
    """Which runs rose above their lowest test error again, how far, and where they and their training errors end."""
    more = f"more than {round(100 * (ABOVE - 1))} %"
    risen = [c for c in known if c.above]
    if not risen:
        return f"Of {pages.counted(known)} of {epochs} epochs none rose {more} above its lowest test error again."
    lines = [f"{len(risen)} of {pages.counted(known)} of {epochs} epochs rose {more} above the lowest test error again:", ""]
    for c in risen:
        config = c.run.config
        run = f"{activations.title(config.activation)} at {pages.rate(config.learning_rate)}, seed {config.seed}"
        highest, ratio, training = (pages.number(value) for value in (c.highest / c.lowest, c.ratio, c.training))
        lines.append(
            f"- {run}: lowest after epoch {c.epoch}, {pages.number(c.lowest)}; so far above it after {c.above} of the {c.since} "
            f"epochs that followed, at most {highest} times; {ratio} times at the end, where the training error is {training} "
            "times its own lowest."
        )
    return "\n".join(lines)


def _left_out(long: Study, known: list[Course]) -> str:
    lost = sum(run.status != "finished" for run in long.records)
    idle = len(long.records) - len(known) - lost
    parts = [f"{lost} that diverged"] * bool(lost) + [f"{idle} that never learnt more than the mean image"] * bool(idle)
    return f"\n\nLeft out: {' and '.join(parts)}." if parts else ""


def _curves(long: Study) -> None:
    epochs = long.planned[0].epochs
    for rate in autoencoder.rates(long):
        shown = long.table[long.table["learning_rate"] == rate]
        if not len(shown) or (shown["status"] != "finished").all():
            continue
        compared = rate in published.AUTOENCODER and any(name in published.NAMES for name in autoencoder.names_of(long, rate))
        of = ", over the paper's (dotted), which are smoothed" if compared and experiment.is_mnist(long) else ""
        so_far = " These are the runs that there are so far." if long.missing else ""
        sentence = f"Learning rate {pages.rate(rate)}, {epochs} epochs, as measured{of}.{so_far}"
        name = f"mnist-autoencoder-long-{pages.rate(rate).replace('.', '-')}"
        alt = f"Training and test reconstruction error over {epochs} epochs at a learning rate of {pages.rate(rate)}. "
        alt += f"Median test errors at the end: {autoencoder.median_words(long, rate)}"
        caption = figures.caption(shown, long.scale, sentence, bands=True)
        pages.figure(autoencoder.curves(long, rate, smoothed=False), name, alt, caption, shown["key"])
        interactive.show(autoencoder.each_seed(long, rate, smoothed=False), f"{name}-each-seed", interactive.EACH_SEED)


def _range(values: list[float] | list[int], whole: bool = False) -> str:
    low, high = ((str(v) if whole else pages.number(v)) for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
