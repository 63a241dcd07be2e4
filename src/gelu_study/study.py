"""What a notebook asks for: the records of an experiment at a scale, trained first where they are missing and may be."""

from __future__ import annotations

import gc
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pandas as pd

from gelu_study import paths, protocols, statistics
from gelu_study.errors import DataError, StudyError
from gelu_study.ledger import Ledger, Snapshot, WithOwn, table
from gelu_study.runs import RunConfig, RunRecord

if TYPE_CHECKING:
    from gelu_study import sweep, training
    from gelu_study.checkpoints import Checkpoints

T = TypeVar("T")


@dataclass(frozen=True)
class Study:
    """The records of a plan, as far as they exist."""

    experiment: str
    scale: str
    planned: tuple[RunConfig, ...]
    records: tuple[RunRecord, ...]
    chosen: dict[
        tuple[str, float], float
    ]  #: learning rate for each (activation, keep probability); empty while the grid is not done
    choice_pending: bool  #: more runs will follow once the grid is done and a choice can be made
    own: int = 0  #: of the records, those that lie in the folder of one's own

    @property
    def missing(self) -> int:
        """Planned runs without a record."""
        return len(self.planned) - len(self.records)

    @property
    def table(self) -> pd.DataFrame:
        """`ledger.table` of the records."""
        return table(self.records)


def recorded(done: int, planned: int) -> str:
    """"3 of 12 runs have a record"."""
    return f"{done} of {planned} runs {'has' if done == 1 else 'have'} a record"


def run(
    experiment: str,
    scale: str,
    *,
    seeds: Iterable[int] | None = None,
    activations: Iterable[str] | None = None,
    learning_rates: Iterable[float] | None = None,
    keep_probabilities: Iterable[float] | None = None,
    epochs: int | None = None,
    precision: str | None = None,
    dataset: str | None = None,
    train: bool = True,
    device: str = "auto",
    stack_size: int | None = None,
    ledger: str | os.PathLike[str] | Ledger | None = None,
    data_root: Path | None = None,
    checkpoints: Checkpoints | None = None,
    deadline: training.Deadline | None = None,
    executor: sweep.Executor | None = None,
) -> Study:
    """Resolve the plan (see `protocols.plan`; an empty list is the scale's own), train what is missing if `train`, read records.

    Where no `ledger` is given, the project's records are read with one's own beside them (`ledger.WithOwn`), and new ones go to
    one's own. Training stops before the `deadline`. Raises what `protocols.plan` and `sweep.complete` raise, and `StudyError` where
    a person at a notebook interrupts it.
    """
    learning_rates = _given(learning_rates)
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger) if ledger else WithOwn(paths.OWN, paths.LEDGER)

    def plan(chosen: protocols.Choice | None) -> list[RunConfig]:
        return protocols.plan(
            experiment,
            scale,
            seeds=_given(seeds),
            activations=_given(activations),
            learning_rates=learning_rates,
            keep_probabilities=_given(keep_probabilities),
            epochs=epochs or None,
            precision=precision,
            dataset=dataset or None,
            chosen=chosen,
        )

    def records_of(configs: list[RunConfig]) -> list[RunRecord]:
        if train:
            from gelu_study import sweep, training  # here: PyTorch takes seconds to import, and reading needs none of it
            from gelu_study.checkpoints import Checkpoints

            try:
                return sweep.complete(
                    configs,
                    book,
                    device=device,
                    stack_size=stack_size,
                    data_root=data_root,
                    checkpoints=checkpoints or Checkpoints(paths.CHECKPOINTS),
                    deadline=deadline or training.NEVER,
                    executor=executor,
                )
            except DataError as error:
                if scale == "smoke":
                    raise
                raise DataError(f"{error}. Scale smoke needs no download: it trains tiny networks on digits") from error
            except KeyboardInterrupt:
                if not sweep.watched():
                    raise
                state = recorded(len(configs) - len(sweep.missing(configs, book)), len(configs))
                raise StudyError(f"interrupted: {state}; run this cell again to train the rest") from None
        return [record for config in configs if (record := book.get(config.key)) is not None]

    planned = plan(None)
    records = records_of(planned)
    cells = {(config.activation, config.keep_probability) for config in planned}
    chosen: dict[tuple[str, float], float] = {}
    grid = protocols.grid(experiment, scale, dataset or None, learning_rates)
    if grid.chooses and len(records) == len(planned):
        chosen = statistics.chosen(table(records), grid.criterion)
    complete_choice = not grid.chooses or set(chosen) == cells
    if grid.more and complete_choice:
        planned = plan(chosen if grid.chooses else None)
        records = records_of(planned)
    own = book.own(records) if isinstance(book, WithOwn) else 0
    return Study(experiment, scale, tuple(planned), tuple(records), chosen, grid.more and not complete_choice, own)


def _given(values: Iterable[T] | None) -> list[T] | None:
    return list(values or []) or None


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cycles meanwhile: records are part of none, and of thousands of them it takes a sixth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_uncollected()
def status(ledger: str | os.PathLike[str] | None = None) -> list[dict[str, str | int]]:
    """Planned, done, diverged (counted in done) and missing runs, a row for each experiment and scale.

    A last row, `beyond every plan`, counts the records that none of them plans, if there are any.
    """
    rows: list[dict[str, str | int]] = []
    held = Snapshot(ledger or paths.LEDGER)
    lengths: dict[str, set[int]] = defaultdict(set)
    planned: set[str] = set()
    for record in held.read():
        lengths[record.config.trajectory].add(record.config.epochs)
    for experiment in protocols.EXPERIMENTS:
        for scale in protocols.SCALES:
            found = run(experiment, scale, train=False, ledger=held)
            planned |= {config.key for config in found.planned}
            notes = ["more seeds follow once validation can choose a learning rate"] if found.choice_pending else []
            others = Counter(n for config in found.planned for n in lengths[config.trajectory] if n < config.epochs)
            notes += [f"{count} with {n} epochs instead of {found.planned[0].epochs}" for n, count in sorted(others.items())]
            rows.append(
                {
                    "experiment": experiment,
                    "scale": scale,
                    "planned": len(found.planned),
                    "done": len(found.records),
                    "diverged": sum(record.status == "diverged" for record in found.records),
                    "missing": found.missing,
                    "note": "; ".join(notes),
                }
            )
    if beyond := [record for record in held.read() if record.config.key not in planned]:
        counts = {"done": len(beyond), "diverged": sum(record.status == "diverged" for record in beyond)}
        note = "of other seeds, rates or epochs than a scale's own"
        rows.append({"experiment": "beyond every plan", "scale": "", "planned": 0, **counts, "missing": 0, "note": note})
    return rows
