"""The engine: trains runs together and returns a record for each.

The paper's logging is in `stacks` and `images`. A run that diverges becomes a record that says when; its neighbours never notice.
Long trainings leave checkpoints and go on from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

import torch

from gelu_study.checkpoints import Checkpoints
from gelu_study.datasets import Dataset
from gelu_study.runs import DENSE, RunConfig, RunRecord
from gelu_study.training import images, products, stacks
from gelu_study.training.environment import (
    NEVER,
    Deadline,
    Observe,
    Progress,
    environment_of,
    resolve_device,
    source_revision,
    unobserved,
)

__all__ = ["NEVER", "Deadline", "Observe", "Progress", "environment_of", "resolve_device", "source_revision", "train", "unobserved"]


def train(
    configs: Sequence[RunConfig],
    dataset: Dataset,
    device: torch.device,
    progress: Progress = lambda steps: None,
    checkpoints: Checkpoints | None = None,
    deadline: Deadline = NEVER,
    observe: Observe = unobserved,
    library: str | None = None,
) -> Iterable[RunRecord]:
    """Train runs that fit together on the device: their records, in the order of `configs`, each as soon as it is there.

    Fully connected networks train as a stack (`stacks.train`), convolutional ones one after the other (`images.train`), which say
    more, also on the errors raised. Where the deadline comes first, runs that are not finished have no record.

    On a CPU `library`, by default the one that `products.VARIABLE` names, takes the products of fully connected networks.
    """
    if configs[0].network in DENSE:
        with products.taken_by(library or products.asked()) if device.type == "cpu" else nullcontext():
            return stacks.train(configs, dataset, device, progress, checkpoints, deadline, observe)
    return images.train(configs, dataset, device, progress, checkpoints, deadline, observe)
