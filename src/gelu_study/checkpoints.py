"""Checkpoints of long trainings: a file a run, `TRAJECTORY.pt`, from which a run goes on, to the end or beyond it.

They are a convenience, never a result: one that cannot be read or belongs to something else is named in a warning and ignored, and
the run starts over.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gelu_study import files
from gelu_study.errors import CheckpointWarning
from gelu_study.runs import RunConfig

VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """The state of one run after an epoch, counted from 1."""

    epoch: int
    tensors: dict[str, Tensor]  #: what training goes on from
    log: dict[str, Any]  #: the curves so far
    parts: list[dict[str, Any]]  #: the environments in which it was trained so far


class Checkpoints:
    """The checkpoints in a folder, which is made at the first write.

    With `keep`, finished runs leave one to be trained on from; `every` is the least number of seconds between two of a run.
    """

    def __init__(self, folder: str | os.PathLike[str], keep: bool = False, every: float = 300) -> None:
        self.folder, self.keep, self.every = Path(folder), keep, every

    @property
    def options(self) -> dict[str, Any]:
        """What makes the same checkpoints in another process, as JSON values."""
        return {"folder": str(self.folder.absolute()), "keep": self.keep, "every": self.every}

    def path(self, config: RunConfig) -> Path:
        """Where the checkpoint of that run's trajectory lies, or would lie."""
        return self.folder / f"{config.trajectory}.pt"

    def write(self, config: RunConfig, checkpoint: Checkpoint) -> None:
        """Write atomically, in place of an earlier one, unless one that is further on is there; a folder that is full or cannot be
        written is named in a warning."""
        if self._reached(config) > checkpoint.epoch:
            return
        buffer = io.BytesIO()
        torch.save({"version": VERSION, "config": config.to_dict(), **asdict(checkpoint)}, buffer)
        try:
            files.write_atomically(self.path(config), buffer.getvalue())
        except OSError as error:
            message = (
                f"no checkpoint could be written to {self.folder}: {error.strerror}; if training is interrupted it starts over"
            )
            warnings.warn(message, CheckpointWarning, stacklevel=2)

    def epoch(self, config: RunConfig) -> int:
        """The epoch after which that run goes on; 0 without a usable checkpoint."""
        found = self._usable(config)
        return found.epoch if found else 0

    def read(self, configs: Sequence[RunConfig]) -> list[Checkpoint]:
        """The checkpoint of each run if all have one of the same epoch, else none."""
        found = [self._usable(config) for config in configs]
        usable = [checkpoint for checkpoint in found if checkpoint is not None]
        same = len(usable) == len(configs) and len({checkpoint.epoch for checkpoint in usable}) == 1
        return usable if same else []

    def remove(self, configs: Iterable[RunConfig]) -> None:
        """Delete the checkpoints of these runs, but for those that are further on than the runs go."""
        for config in configs:
            if self._reached(config) <= config.epochs:
                with contextlib.suppress(OSError):
                    self.path(config).unlink(missing_ok=True)

    def _reached(self, config: RunConfig) -> int:
        with warnings.catch_warnings():  # what is to be replaced or deleted needs no warning
            warnings.simplefilter("ignore", CheckpointWarning)
            found = self._load(config)
        return found.epoch if found else 0

    def _usable(self, config: RunConfig) -> Checkpoint | None:
        found = self._load(config)
        return found if found and found.epoch <= config.epochs else None

    def _load(self, config: RunConfig) -> Checkpoint | None:
        path = self.path(config)
        try:
            if not path.exists():
                return None
            with zipfile.ZipFile(path) as archive:  # PyTorch writes check sums, and reads without a look at them
                if damaged := archive.testzip():
                    raise ValueError(f"{damaged} in it is damaged")
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            if found["version"] != VERSION or RunConfig.from_dict(found["config"]).trajectory != config.trajectory:
                raise ValueError("it belongs to another version or another run")
            checkpoint = Checkpoint(found["epoch"], found["tensors"], found["log"], found["parts"])
            if type(checkpoint.epoch) is not int or checkpoint.epoch < 1 or not checkpoint.tensors:
                raise ValueError("it does not hold what it should")
        except Exception as error:  # damaged bytes raise a dozen kinds
            reason = str(error).splitlines()[0].partition(".")[0] if str(error) else type(error).__name__
            warnings.warn(f"{path} is no usable checkpoint ({reason}); the run starts over", CheckpointWarning, stacklevel=3)
            return None
        return checkpoint
