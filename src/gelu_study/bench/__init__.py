"""How fast this machine trains, against plain loops and against its own rates: `classifier` on MNIST, `cifar` on CIFAR-10; and what
`sweeps` cost and gain over several workers.

Everything is measured in one run, in rounds that take turns, because absolute times drift: only the ratios mean something. The
images are random numbers of the data sets' shapes, so that no data set is needed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from gelu_study.datasets import SHAPES, Dataset

Step = Callable[[], object]


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def elapsed(step: Step, device: torch.device) -> float:
    """Seconds that a step takes, from an idle device to an idle device."""
    synchronise(device)
    begin = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - begin


def matrix_rate(device: torch.device, dtype: torch.dtype = torch.float32, size: int = 2048, repeats: int = 8) -> float:
    """Operations a second of a large matrix product, the best of some."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device=device, dtype=dtype)
    return 2 * size**3 / min(elapsed(lambda: torch.mm(a, b, out=out), device) for _ in range(repeats))


def random_dataset(name: str) -> Dataset:
    """Random images and labels under the name and in the shapes of a data set with ten classes."""
    source = np.random.default_rng(0)
    shapes = SHAPES[name]
    x_train, x_test = (source.integers(0, 256, shapes[part], dtype=np.uint8) for part in ("x_train", "x_test"))
    y_train, y_test = (source.integers(0, 10, shapes[part], dtype=np.uint8) for part in ("y_train", "y_test"))
    return Dataset(name, x_train, y_train, x_test, y_test)


def peak_memory(module: str, device: torch.device) -> float:
    """Peak memory in MiB of a fresh process that runs `python -m module device`, which prints it."""
    done = subprocess.run([sys.executable, "-m", module, str(device)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def resident_peak() -> float:
    """Peak resident memory in MiB of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux's ru_maxrss begins with the peak of the process that started this one
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # macOS counts bytes, others kibibytes
