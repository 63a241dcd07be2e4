"""Real Dask schedulers and workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import Client

PATIENCE = 120.0
"""Seconds that something may take on a busy machine before a test gives up on it."""


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition, or fail."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not come to pass"
        time.sleep(0.05)


class Machines:
    """A scheduler and its workers, started and killed as a test wants."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[str]] = []
        self.workers: list[subprocess.Popen[str]] = []
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "DASK_LOGGING__DISTRIBUTED": "critical", **environment}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self._port}"
        self.restart_scheduler()

    def restart_scheduler(self) -> None:
        """Start the scheduler, at the same address as before."""
        options = ("--host", "127.0.0.1", "--port", str(self._port), "--no-dashboard")
        self.scheduler = self._start("distributed.cli.dask_scheduler", *options)

    def worker(self, **environment: str) -> subprocess.Popen[str]:
        """Start a worker process of one thread, without a nanny, so that who kills it kills the training."""
        options = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0", "--local-directory", str(self.folder))
        self.workers.append(self._start("distributed.cli.dask_worker", self.address, *options, **environment))
        return self.workers[-1]

    def joined(self, count: int) -> None:
        """Wait until so many workers are there."""
        with Client(self.address, timeout=PATIENCE, set_as_default=False) as client:
            until(lambda: len(client.nthreads()) == count, f"{count} workers")

    def _start(self, module: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", module, *arguments],
            cwd=self.folder, env={**self._environment, **environment}, text=True,
            stdout=subprocess.DEVNULL, stderr=(self.folder / f"{len(self._processes)}.log").open("w"),
        )  # fmt: skip
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Kill what is left."""
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def machines(folder: Path, **environment: str) -> Iterator[Machines]:
    """A scheduler without workers yet."""
    folder.mkdir(parents=True, exist_ok=True)
    started = Machines(folder, **environment)
    try:
        yield started
    finally:
        started.close()


def kill(process: subprocess.Popen[str]) -> None:
    """As by `kill -9`."""
    process.send_signal(signal.SIGKILL)
    process.wait()
