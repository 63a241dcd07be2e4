"""A plan minus the ledger: groups what is missing into stacks, has them trained, writes each record as its stack ends.

Nothing that was finished is trained twice: a sweep that was interrupted, even killed, goes on from the ledger. Training is left to
an executor, this process or a cluster; records are written here alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TextIO

from gelu_study import files, training
from gelu_study.checkpoints import Checkpoints
from gelu_study.ledger import Ledger
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.sweep.executors import Capacity, Executor, Here, Job, per_network
from gelu_study.sweep.grouping import CPU_STACK, CPU_WEIGHTS, GPU_STACK, fair_size, stacks
from gelu_study.sweep.reporter import Reporter, watched

__all__ = [
    "CPU_STACK",
    "CPU_WEIGHTS",
    "GPU_STACK",
    "Executor",
    "Here",
    "Reporter",
    "complete",
    "missing",
    "per_network",
    "stacks",
    "watched",
]


def missing(configs: Iterable[RunConfig], ledger: Ledger) -> list[RunConfig]:
    """The runs that the ledger has no sound record of, in their order."""
    return [config for config in configs if ledger.get(config.key) is None]


def complete(
    configs: Sequence[RunConfig],
    ledger: Ledger,
    *,
    device: str = "auto",
    stack_size: int | None = None,
    data_root: Path | None = None,
    checkpoints: Checkpoints | None = None,
    deadline: training.Deadline = training.NEVER,
    executor: Executor | None = None,
    stream: TextIO | None = None,
) -> list[RunRecord]:
    """Train what the ledger lacks of these runs and return the records of all of them, in their order.

    With `checkpoints`, long trainings go on where they were interrupted; those of finished runs are deleted unless they are kept.
    Training stops before the `deadline`; the records of runs that were not finished are lacking. The `executor` is this process
    where none is given.

    Raises `ConfigurationError` for a device that is not there, `DataError` when data are missing, `LedgerError` when a record
    cannot be written, and what the executor raises. Records of the stacks that ended before stay in the ledger.
    """
    todo = missing(configs, ledger)
    if todo:
        ledger.prepare()
        if checkpoints:
            files.remove_abandoned(checkpoints.folder)
        where, job = executor or Here(), Job(device, data_root, checkpoints, deadline)
        twice: list[tuple[RunRecord, RunRecord]] = []
        reporter = Reporter(len(todo), sum(config.steps_per_epoch * config.epochs for config in todo), stream)
        try:
            capacity = where.capacity(job, sorted({config.dataset for config in todo}), reporter)
            planned = _planned(todo, capacity, stack_size, checkpoints)
            with closing(where.train(_still_missing(planned, ledger, deadline, reporter), job, reporter)) as trained:
                for records in trained:
                    twice += [(record, held) for record in records if (held := ledger.write(record)) is not record]
                    if checkpoints and not checkpoints.keep:
                        checkpoints.remove(record.config for record in records)
                    reporter.finish_runs(len(records))
        finally:
            if twice:
                reporter.say(_said_of(twice))
            reporter.close()
    found = [ledger.get(config.key) for config in configs]
    return [record for record in found if record is not None]


def _planned(
    todo: Sequence[RunConfig], capacity: Capacity, stack_size: int | None, checkpoints: Checkpoints | None
) -> list[list[RunConfig]]:
    if stack_size is not None:
        return stacks(todo, stack_size, checkpoints=checkpoints)
    size = fair_size(len(todo), GPU_STACK if capacity.device_type == "cuda" else CPU_STACK, capacity.workers)
    return stacks(todo, size, weights=CPU_WEIGHTS if capacity.device_type == "cpu" else None, checkpoints=checkpoints)


def _still_missing(
    planned: Iterable[list[RunConfig]], ledger: Ledger, deadline: training.Deadline, reporter: Reporter
) -> Iterator[list[RunConfig]]:
    """The stacks as they are to begin, without what another sweep has trained since, as long as there is time."""
    for planned_stack in planned:
        stack = missing(planned_stack, ledger)
        reporter.skip([config for config in planned_stack if config not in stack])
        if not stack:
            continue
        if deadline.before_another(0):
            return
        yield stack


def _said_of(twice: Sequence[tuple[RunRecord, RunRecord]]) -> str:
    """What is to be said of runs that another sweep has recorded while this one trained them."""
    from gelu_study import verification  # here: it needs this module

    found = [verification.compare(held, record) for record, held in twice]
    identical, differing = sum(one.identical for one in found), [one for one in found if not one.within]
    near = len(twice) - identical - len(differing)
    text = f"{len(twice)} runs were recorded by another sweep in the meantime, and its records stay: {identical} identical to ours"
    return text + f", {near} equal within the tolerance" + "".join(f", one that DIFFERS ({one.label})" for one in differing)
