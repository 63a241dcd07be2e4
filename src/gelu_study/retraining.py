"""Trains runs in a process of its own: with so many threads, interrupted on the way, or under another version of PyTorch.

`train` starts such a process, which reads a job from its input and leaves records on its output; it takes the interpreter to start.
The process imports what trains and nothing of what shows, so that little must be installed beside the other PyTorch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gelu_study.errors import StudyError
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.training import products


class RetrainingError(StudyError):
    """The process came to no records."""


@dataclass(frozen=True)
class Job:
    """What a process is to train, and how."""

    stacks: tuple[tuple[dict[str, Any], ...], ...]  # of runs that train together, as `RunConfig.to_dict` gives them
    threads: int = 1
    device: str = "cpu"
    data_root: str | None = None
    checkpoints: str | None = None  # a folder: go on from what is there
    stop_after: int = 0  # epochs after which it is interrupted, when it has left checkpoints; 0: never


def train(
    stacks: Sequence[Sequence[RunConfig]],
    *,
    threads: int = 1,
    device: str = "cpu",
    data_root: Path | None = None,
    interrupted_after: int = 0,
    python: str | os.PathLike[str] | None = None,
) -> list[RunRecord]:
    """Train stacks of runs, one after the other, in a new process: their records in order.

    With `interrupted_after`, a first process is stopped in the epoch after so many of each stack (convolutional runs: of each run
    that is a stack of its own), and a second one goes on from its checkpoints. `python` is the interpreter, this one by default;
    another needs what this package trains with. Raises `RetrainingError` with the process's last words when it fails.
    """
    made = tuple(tuple(config.to_dict() for config in stack) for stack in stacks)
    job = Job(made, threads, device, str(data_root) if data_root else None)
    if not interrupted_after:
        return _records(job, python)
    with tempfile.TemporaryDirectory() as folder:
        first = replace(job, checkpoints=folder, stop_after=interrupted_after)
        if any(record.status == "finished" for record in _records(first, python)):  # one that diverged before is no matter
            raise RetrainingError(f"a run has no more than {interrupted_after} epochs, so it was not interrupted")
        return _records(replace(first, stop_after=0), python)


def _records(job: Job, python: str | os.PathLike[str] | None) -> list[RunRecord]:
    source = str(Path(__file__).parents[1])
    # threads that wait do not spin: that is slow where the cores are busy, and has no part in the results
    own = {"OMP_NUM_THREADS": str(job.threads), "OMP_WAIT_POLICY": "passive", products.VARIABLE: products.DEFAULT}
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [python or sys.executable, "-m", "gelu_study.retraining"],
        input=json.dumps(asdict(job)),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **own},
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RetrainingError(f"training in a process of {python or sys.executable} failed: {last[0]}")
    return [RunRecord.from_json(text) for text in json.loads(done.stdout)]


class _Stop(Exception):
    """The interruption."""


def _train_here(job: Job) -> list[RunRecord]:
    import torch

    from gelu_study import training

    torch.set_num_threads(job.threads)
    device = training.resolve_device(job.device)
    records: list[RunRecord] = []
    for stack in job.stacks:
        with suppress(_Stop):
            records += _train_stack([RunConfig.from_dict(config) for config in stack], job, device)
    return records


def _train_stack(configs: Sequence[RunConfig], job: Job, device: Any) -> list[RunRecord]:
    from gelu_study import datasets, training
    from gelu_study.checkpoints import Checkpoints

    left = job.stop_after * configs[0].steps_per_epoch

    def progress(steps: int) -> None:
        nonlocal left
        left -= steps
        if job.stop_after and left < 0:
            raise _Stop

    kept = Checkpoints(job.checkpoints, every=0) if job.checkpoints else None
    data = datasets.load(configs[0].dataset, Path(job.data_root) if job.data_root else None)
    return list(training.train(configs, data, device, progress, kept))


if __name__ == "__main__":
    print(json.dumps([record.to_json() for record in _train_here(Job(**json.load(sys.stdin)))]))
