"""What runs on a worker of a cluster: it is asked whether it is fit, and it trains a stack.

Questions and answers are plain JSON values, so that a worker with another version of the package can still be told so. A worker
loads data from its own verified cache and writes nothing but checkpoints; records go back as the text of their files.
"""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distributed import get_worker

from gelu_study import datasets, training
from gelu_study.checkpoints import Checkpoints
from gelu_study.errors import CheckpointWarning, DataError, StudyError
from gelu_study.runs import ENGINE, RunConfig
from gelu_study.sweep.grouping import train_together
from gelu_study.training import products

PROGRESS = "gelu-study progress"
"""The topic of events {"task": key, "worker": address, "steps": network-steps taken so far}."""
_EVERY_SECONDS = 1.0


class _AbandonedError(StudyError):
    """Nobody waits for the stack any more."""


def identity() -> dict[str, Any]:
    """What must be the same on client and workers, and the revision, which may differ and is in every record."""
    revision, _ = training.source_revision()
    return {"version": version("gelu-study"), "engine": ENGINE, "revision": revision}


def question() -> dict[str, Any]:
    """A client's `identity`, and the library that takes the products of its runs, wherever they train."""
    return {**identity(), "products": products.asked()}


def fitness(asked: dict[str, Any], device: str, names: list[str], data_root: str | None) -> dict[str, Any]:
    """Whether this worker can train for a client with that `question`: {"unfit": why not}, or its device type and revision."""
    own = identity()
    for name, kind in (("version", "version {} of the package"), ("engine", "engine {}")):
        if own[name] != asked[name]:
            return {"unfit": f"it has {kind.format(own[name])}, and this sweep needs {asked[name]}"}
    try:
        where = training.resolve_device(device)
    except StudyError as error:
        return {"unfit": str(error)}
    if where.type == "cpu" and not products.available(asked["products"]):
        return {"unfit": f"products by {asked['products']} in float32 are not to be had on its processor"}
    absent = [name for name in names if not datasets.available(name, data_root)]
    if absent:
        mend = f"run `gelu-study data {' '.join(absent)}` there, or set GELU_STUDY_DATA to a folder that has it"
        return {"unfit": f"it has no data set {', '.join(absent)}; {mend}"}
    return {"device_type": where.type, "revision": own["revision"]}


def train_stack(task: dict[str, Any]) -> dict[str, Any]:
    """Train a stack: {"records": texts of their files, "warnings": texts} or {"unfit": why not}, and the "worker", its address.

    Raises what `training.train` raises.
    """
    seconds = task["seconds_left"]
    deadline = training.NEVER if seconds is None else training.Deadline.after(seconds)
    here = get_worker().address
    found = fitness(task["question"], task["device"], [], None)  # again: it may have come after the others were asked
    if "unfit" in found:
        return {"unfit": found["unfit"], "worker": here}
    configs = [RunConfig.from_dict(values) for values in task["configs"]]
    try:
        data = _load(configs[0].dataset, task["data_root"])
    except DataError as error:
        return {"unfit": str(error), "worker": here}
    checkpoints = Checkpoints(**task["checkpoints"]) if task["checkpoints"] else None
    device = training.resolve_device(task["device"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CheckpointWarning)
        progress = _Progress(len(configs) if train_together(configs) else 1)
        library = task["question"]["products"]
        records = list(training.train(configs, data, device, progress, checkpoints, deadline, library=library))
    said = [str(warning.message) for warning in caught if issubclass(warning.category, CheckpointWarning)]
    return {"records": [record.to_json() for record in records], "warnings": said, "worker": here}


def forget(configs: list[dict[str, Any]], checkpoints: dict[str, Any]) -> None:
    """Delete the checkpoints of runs that are recorded."""
    Checkpoints(**checkpoints).remove(RunConfig.from_dict(values) for values in configs)


@lru_cache(maxsize=2)
def _load(name: str, root: str | None) -> datasets.Dataset:
    return datasets.load(name, Path(root) if root else None)


class _Progress:
    """Tells the client now and then how many network-steps were taken, and ends a training that nobody waits for."""

    def __init__(self, networks: int) -> None:
        self._worker = get_worker()
        self._task = self._worker.get_current_task()
        self._networks, self._steps, self._said = networks, 0, 0.0

    def __call__(self, steps: int) -> None:
        self._steps += steps * self._networks
        if time.monotonic() - self._said < _EVERY_SECONDS:
            return
        self._said = time.monotonic()
        state = self._worker.state.tasks.get(self._task)
        if state is None or state.state != "executing":  # cancelled, or its client is gone
            raise _AbandonedError("the stack was given up")
        self._worker.log_event(PROGRESS, {"task": self._task, "worker": self._worker.address, "steps": self._steps})
