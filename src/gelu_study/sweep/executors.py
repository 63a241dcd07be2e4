"""Where stacks are trained: in this process, or wherever another executor takes them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gelu_study import datasets, training
from gelu_study.checkpoints import Checkpoints
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.sweep.grouping import train_together
from gelu_study.sweep.reporter import Reporter


@dataclass(frozen=True)
class Job:
    """What the stacks of a sweep have in common."""

    device: str = "auto"
    data_root: Path | None = None
    checkpoints: Checkpoints | None = None
    deadline: training.Deadline = training.NEVER


@dataclass(frozen=True)
class Capacity:
    """What can train at the same time: so many workers, each with a device of that type ("cpu", "cuda", "mps")."""

    workers: int
    device_type: str


class Executor(Protocol):
    """Trains stacks and hands back their records; it writes nothing but checkpoints."""

    def capacity(self, job: Job, names: Sequence[str], reporter: Reporter) -> Capacity:
        """See that device and data sets are there. Raises `ConfigurationError` or `DataError` where they are not."""
        ...

    def train(self, stacks: Iterable[list[RunConfig]], job: Job, reporter: Reporter) -> Generator[list[RunRecord], None, None]:
        """The records of the stacks, those together that become ready together; a stack is taken from `stacks` when it begins."""
        ...


class Here:
    """This process: one stack after the other."""

    def capacity(self, job: Job, names: Sequence[str], reporter: Reporter) -> Capacity:
        """Loads the data sets: a damaged one is found before anything is trained."""
        self._device = training.resolve_device(job.device)
        self._data = {name: datasets.load(name, job.data_root) for name in names}
        return Capacity(1, self._device.type)

    def train(self, stacks: Iterable[list[RunConfig]], job: Job, reporter: Reporter) -> Generator[list[RunRecord], None, None]:
        """Records of fully connected networks come a stack at a time, those of convolutional ones each alone."""
        for stack in stacks:
            data, progress = self._data[stack[0].dataset], per_network(reporter, stack)
            records = training.train(stack, data, self._device, progress, job.checkpoints, job.deadline, reporter.observe)
            if train_together(stack):
                yield list(records)
            else:
                yield from ([record] for record in records)


def per_network(reporter: Reporter, stack: Sequence[RunConfig]) -> training.Progress:
    """Counts a stack's steps for each of its networks, where they train together."""
    networks = len(stack) if train_together(stack) else 1
    return lambda steps: reporter.advance(steps * networks)
