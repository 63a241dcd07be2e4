"""Where a run is trained and for how long: device, deadline, and what a record says of machine, versions and revision."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig

Progress = Callable[[int], None]
"""Called now and then with the number of steps taken since the last call."""


class Observe(Protocol):
    """Called whenever losses were measured, to look at them. It changes nothing, and may end the training by an exception."""

    def __call__(self, configs: Sequence[RunConfig], epochs: float, measured: Mapping[str, Sequence[float]]) -> None:
        """`epochs` have been trained of these runs, and `measured` holds the latest value of some curves (see `runs.RunRecord`),
        one a run in the order of `configs`."""
        ...


def unobserved(configs: Sequence[RunConfig], epochs: float, measured: Mapping[str, Sequence[float]]) -> None:
    """Looks at nothing."""


@dataclass(frozen=True)
class Deadline:
    """When training is to stop, on the clock of `time.monotonic`."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """So many seconds from now."""
        return cls(time.monotonic() + seconds)

    def before_another(self, seconds: float) -> bool:
        """Whether something that takes so long would end after it."""
        return time.monotonic() + seconds > self.at


NEVER = Deadline(math.inf)


def resolve_device(name: str) -> torch.device:
    """The device for "auto" (CUDA, else MPS, else CPU), "cpu", "cuda", "cuda:1", "mps".

    Raises `ConfigurationError` when it is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigurationError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:N or mps") from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigurationError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:N or mps")
    if device.type == "cuda" and not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()):
        raise ConfigurationError(
            f"device {name} was asked for, and PyTorch sees {torch.cuda.device_count()} CUDA devices; use cpu or auto"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigurationError("device mps was asked for, and this machine has none; use cpu or auto")
    return device


def environment_of(device: torch.device) -> dict[str, Any]:
    """What ran where: device, host, versions and revision of the code, as a record keeps them beside its configuration."""
    cpu = _processor()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu.get("model name", platform.machine())
    model = "/".join(cpu.get(part, "?") for part in ("vendor_id", "cpu family", "model", "stepping"))
    revision, dirty = source_revision()
    return {
        "device": device.type,
        "device_name": name,
        "processor": f"{model}, {torch.backends.cpu.get_cpu_capability()}",
        "host": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "package": version("gelu-study"),
        "revision": revision,
        "dirty": dirty,
    }


def _processor() -> dict[str, str]:
    """What the system tells of its first processor: two models can have one name, so a record keeps the numbers too."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"model name": platform.processor() or platform.machine()}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


@cache
def source_revision() -> tuple[str | None, bool | None]:
    """The Git revision of this package's source and whether its files differ from it; (None, None) outside a checkout."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return None, None
