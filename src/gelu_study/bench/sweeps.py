"""What spreading a sweep over processes costs and gains on this machine, and what planning a large one costs.

The same stacks are trained in this process, by one local worker and by two, each with one thread, in rounds that take turns. Each
must give the same records to the last digit.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from gelu_study import protocols, sweep, training
from gelu_study.bench import resident_peak
from gelu_study.checkpoints import Checkpoints
from gelu_study.ledger import Ledger
from gelu_study.runs import RunConfig, RunRecord
from gelu_study.sweep.cluster import connect

SECONDS = 20.0  # a sweep in this process, about
ROUNDS = 3
WORKERS = (1, 2)
STACK = 3
PLANS = (10_000, 31_623, 100_000)
"""Runs of the simulated plans."""


def measure(device: str = "auto", seconds: float = SECONDS) -> dict[str, Any]:
    """Measure everything: times in seconds, the best of `ROUNDS`; memory in MiB above what the package itself takes."""
    where = training.resolve_device(device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the workers have
    try:
        spread = _spreading(where.type, seconds)
    finally:
        torch.set_num_threads(threads)
    return {"device": where.type, "cores": os.cpu_count(), **spread, "plans": [planning(runs) for runs in PLANS]}


def _runs(epochs: int) -> list[RunConfig]:
    return protocols.plan("mnist-classifier", "smoke", epochs=epochs)


def _spreading(device: str, seconds: float) -> dict[str, Any]:
    _sweep(_runs(1), device, None)  # warm
    _, second = _sweep(_runs(2), device, None)
    epochs = max(2, round(seconds / second * 2))
    runs = _runs(epochs)
    times: dict[int, list[float]] = {count: [] for count in (0, *WORKERS)}
    starts = {}
    with ExitStack() as held:
        executors: dict[int, sweep.Executor | None] = {0: None}
        for count in WORKERS:
            begin = time.perf_counter()
            executors[count] = held.enter_context(connect(workers=count))
            _sweep(_runs(1)[:count], device, executors[count], stack=1)
            starts[count] = time.perf_counter() - begin
        first: list[RunRecord] = []
        for _ in range(ROUNDS):
            for count, executor in executors.items():
                records, taken = _sweep(runs, device, executor)
                times[count].append(taken)
                first = first or records
                if [(r.curves, r.final) for r in records] != [(r.curves, r.final) for r in first]:
                    raise AssertionError(f"{count} workers gave other records than this process; the times mean nothing")
    here, stacks = min(times[0]), math.ceil(len(runs) / STACK)
    rows = [
        {
            "workers": count,
            "seconds": min(times[count]),
            "speedup": here / min(times[count]),
            "start_seconds": starts.get(count, 0.0),
        }
        for count in times
    ]
    return {
        "runs": len(runs),
        "stacks": stacks,
        "epochs": epochs,
        "rounds": ROUNDS,
        "overhead_seconds_a_stack": (min(times[1]) - here) / stacks,
        "rows": rows,
    }


def _sweep(
    runs: list[RunConfig], device: str, executor: sweep.Executor | None, stack: int = STACK
) -> tuple[list[RunRecord], float]:
    """The records of a sweep into a fresh ledger, and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as silence:
        begin = time.perf_counter()
        records = sweep.complete(
            runs,
            Ledger(Path(folder) / "runs"),
            device=device,
            stack_size=stack,
            checkpoints=Checkpoints(Path(folder) / "checkpoints"),
            executor=executor,
            stream=silence,
        )
        return records, time.perf_counter() - begin


def planning(runs: int) -> dict[str, Any]:
    """What it takes to plan so many runs, find them missing in an empty ledger and group them, in a process of its own."""
    done = subprocess.run([sys.executable, "-m", __name__, str(runs)], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _plan_in_this_process(runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        ledger, checkpoints = Ledger(Path(folder) / "runs"), Checkpoints(Path(folder) / "checkpoints")
        a_seed = len(protocols.plan("mnist-classifier", "paper", seeds=[0]))
        before, begin = resident_peak(), time.perf_counter()
        plan = protocols.plan("mnist-classifier", "paper", seeds=range(math.ceil(runs / a_seed)))[:runs]
        planned = time.perf_counter()
        todo = sweep.missing(plan, ledger)
        found = time.perf_counter()
        stacks = sweep.stacks(todo, sweep.CPU_STACK, weights=sweep.CPU_WEIGHTS, checkpoints=checkpoints)
        end = time.perf_counter()
        return {
            "runs": len(todo),
            "stacks": len(stacks),
            "plan_seconds": planned - begin,
            "missing_seconds": found - planned,
            "group_seconds": end - found,
            "seconds": end - begin,
            "mib": resident_peak() - before,
        }


def growth(plans: list[dict[str, Any]], name: str) -> float:
    """The power of the number of runs with which a measure grows from the smallest plan to the largest; 1 is linear."""
    first, last = plans[0], plans[-1]
    return math.log(last[name] / first[name]) / math.log(last["runs"] / first["runs"])


def report(result: dict[str, Any]) -> str:
    """The measurements as text."""
    lines = [
        f"{result['device']}, {result['cores']} cores; {result['runs']} small runs in {result['stacks']} stacks, "
        f"{result['epochs']} epochs each; the best of {result['rounds']} turns; one thread a process; identical records",
        "",
        "where               seconds  speed-up  once, to start",
    ]
    for row in result["rows"]:
        where = f"{row['workers']} local worker{'s' * (row['workers'] > 1)}" if row["workers"] else "this process"
        start = f"{row['start_seconds']:.1f} s" if row["workers"] else ""
        lines.append(f"{where:<18} {row['seconds']:>8.1f} {row['speedup']:>9.2f} {start:>15}")
    lines += [
        "",
        f"overhead of one worker: {1e3 * result['overhead_seconds_a_stack']:.0f} ms a stack",
        "",
        "planned runs   stacks   plan  missing  group    all     memory",
    ]
    for plan in result["plans"]:
        seconds = (plan[f"{name}seconds"] for name in ("plan_", "missing_", "group_", ""))
        lines.append(
            "{:>12,} {:>8,} {:>4.1f} s {:>6.1f} s {:>4.1f} s {:>4.1f} s {:>6.0f} MiB".format(
                plan["runs"], plan["stacks"], *seconds, plan["mib"]
            )
        )
    powers = [f"{growth(result['plans'], name):.2f}" for name in ("seconds", "mib")]
    lines.append(f"time grows as the number of runs to the power of {powers[0]}, memory {powers[1]}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps(_plan_in_this_process(int(sys.argv[1]))))
