"""Trains a sample of the ledger again and says what it saw: the same bits, or agreement within the tolerance.

Two things are promised. On a CPU, the same run comes out *the same to the bit* on the same machine, with the same versions of
PyTorch and NumPy, as many threads, products by the same library and in the same stack, also when it was interrupted. Where one of
these is another, or the device is, it comes out *within the tolerance* stated here, because values are rounded in other ways,
and training amplifies that: the first epoch's training loss still agrees closely, the end as two nearby trajectories do.
Convolutional networks with dropout or noise draw others on another kind of device, and may be further apart there. The
measurement `reproducibility` (`gelu-study measure reproducibility`) holds what was seen of both.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gelu_study import datasets, sweep, training
from gelu_study.errors import LedgerError
from gelu_study.ledger import Ledger
from gelu_study.runs import ENGINE, RunConfig, RunRecord, parts
from gelu_study.training import products

EARLY_TOLERANCE = 0.03
"""Greatest relative difference of the first epoch's mean training loss. The measurement `reproducibility` saw at most 3.5e-3, of a
ReLU network whose epoch has 429 steps; GELU and ELU in stacks of another size agreed to the last digit."""
FINAL_LOSS_TOLERANCE = 0.5
"""Greatest difference of the logarithms of losses, each a mean over the last tenth of the epochs. The measurement saw at most 0.32,
of a ReLU network with next to no loss left after 225 steps on digits, and 0.11 after 50 epochs of MNIST."""
FINAL_ERROR_TOLERANCE = 0.25
"""Greatest difference of errors, likewise, as a share of the error. The measurement saw at most 3.3 points, of networks that were
still learning, and 0.64 after 50 epochs of MNIST; all were within this share or `LEAST_ERROR`."""
LEAST_ERROR = 1.0
"""Percentage points that are allowed of any error: a share of a small one is a few test examples."""

_Way = tuple[int | None, str]

SAME_BITS, WITHIN, DIFFERS = "identical to the bit", "within tolerance", "DIFFERS"


@dataclass(frozen=True)
class Comparison:
    """A run's record against the same run trained again."""

    key: str
    label: str
    identical: bool  #: status, curves and all values, to the last digit
    early: float  #: relative difference of the first epoch's training loss
    final_loss: float  #: greatest difference of the logarithms of losses at the end
    final_error: float  #: difference of errors at the end, percentage points, of that which uses most of what is allowed
    allowed_error: float  #: percentage points, of that error
    within: bool  #: all three are within the tolerance
    obstacles: str  #: why the same bits cannot be expected; empty where they are promised

    @property
    def promised(self) -> bool:
        """Whether the same bits are promised."""
        return not self.obstacles

    @property
    def verdict(self) -> str:
        """`SAME_BITS`, `WITHIN`, or `DIFFERS`: beyond the tolerance, or the same bits were promised and not seen."""
        if self.identical:
            return SAME_BITS
        return WITHIN if self.within and not self.promised else DIFFERS

    def __str__(self) -> str:
        if self.identical:
            why = f"more than promised, {self.obstacles}" if self.obstacles else "as promised, on the same machine in the same way"
            return f"{self.verdict:<20} {self.label}: {why}"
        apart = (
            f"first epoch {self.early:.1e} (allowed {EARLY_TOLERANCE:g}), "
            f"ln of final loss {self.final_loss:.1e} ({FINAL_LOSS_TOLERANCE:g}), "
            f"error {self.final_error:.2f} points ({self.allowed_error:.2g})"
        )
        why = self.obstacles or (
            "the same bits were promised, since machine, versions, threads, products and stack are the record's by name: "
            "the processor is another model of that name, or the code or the record has changed"
        )
        return f"{self.verdict:<20} {self.label}: {apart}; {why}"


def compare(record: RunRecord, again: RunRecord, same_stack: bool = False) -> Comparison:
    """Hold a record against the same run trained again; `same_stack` says that both trained in the company of the same runs.

    Two diverged runs are within the tolerance where they diverged in the same epoch.
    """
    config = record.config
    label = f"{config.key[:12]} {config.experiment}, {config.activation}, learning rate {config.learning_rate:g}, "
    label += f"keep {config.keep_probability:g}, seed {config.seed}"
    why = obstacles(record.environment, again.environment, same_stack)
    identical = _results(record) == _results(again)
    if record.status != again.status or record.status == "diverged":
        same = record.status == again.status and (record.diverged or {}).get("epoch") == (again.diverged or {}).get("epoch")
        return Comparison(config.key, label, identical, 0.0 if same else math.inf, 0.0, 0.0, 0.0, same, why)

    def end(of: RunRecord, name: str) -> float:
        values = of.curves[name]
        return float(np.mean(values[-max(1, len(values) // 10) :]))

    def logarithm(value: float) -> float:
        return math.log(value) if value > 0 else -math.inf

    first, first_again = (of.curves["train_loss_epoch"][0] for of in (record, again))
    early = 0.0 if first == first_again else abs(first / first_again - 1) if first_again else math.inf
    curves = list(config.curve_of.values())
    losses = [[logarithm(end(of, name)) for of in (record, again)] for name in curves if "loss" in name]
    final_loss = max(0.0 if one == other else abs(one - other) for one, other in losses)
    errors = [[end(of, name) for of in (record, again)] for name in curves if "error" in name]
    apart = [(abs(one - other), max(LEAST_ERROR, FINAL_ERROR_TOLERANCE * one)) for one, other in errors]
    final_error, allowed = max(apart, key=lambda pair: pair[0] / pair[1], default=(0.0, LEAST_ERROR))
    within = early <= EARLY_TOLERANCE and final_loss <= FINAL_LOSS_TOLERANCE and final_error <= allowed
    return Comparison(config.key, label, identical, early, final_loss, final_error, allowed, within, why)


def _results(record: RunRecord) -> tuple[Any, ...]:
    return record.status, record.diverged, record.curves, record.final, record.best


def obstacles(recorded: dict[str, Any], again: dict[str, Any], same_stack: bool) -> str:
    """Why the same bits cannot be expected of a run from one environment to the other; nothing where they are promised.

    "recorded with 1 thread in a stack of 15, trained again with 2 threads in a stack of 3": only what differs is named. A run that
    was trained in parts has the conditions of all of them.
    """
    one, other = _conditions(recorded), _conditions(again)
    differing = [name for name in one if one[name] != other[name]]
    if any("unknown" in said["processor"] for said in (one, other)):  # older records have its name alone
        differing = [name for name in differing if name != "processor"]
    if not same_stack and (recorded.get("stack"), again.get("stack")) != (1, 1) and "stack" not in differing:
        other["stack"] += " with other runs"
        differing.append("stack")
    reasons = []
    if differing:
        said = [" ".join(conditions[name] for name in differing) for conditions in (one, other)]
        reasons.append(f"recorded {said[0]}, trained again {said[1]}")
    if again.get("device") != "cpu":
        reasons.append(f"the same bits are promised on a CPU, not on {again.get('device')}")
    if recorded.get("dirty"):
        reasons.append("the record was made by code with local changes")
    return "; ".join(reasons)


def _conditions(environment: dict[str, Any]) -> dict[str, str]:
    """What decides about the bits beside the configuration, in words."""

    def of(name: str, absent: str = "unknown") -> str:
        return " and ".join(dict.fromkeys(str(part.get(name, absent)) for part in parts(environment)))

    return {
        "device": f"on {of('device_name')} ({of('device')}, {of('host')})",
        "processor": f"on a processor {of('processor')}",
        "threads": f"with {of('threads')} thread{'' if of('threads') == '1' else 's'}",
        "products": f"with products by the {of('products', products.DEFAULT)} library",
        "stack": f"in a stack of {of('stack')}",
        "torch": f"under PyTorch {of('torch')}",
        "numpy": f"with NumPy {of('numpy')}",
    }


def summary(rows: Sequence[Comparison]) -> str:
    """How many runs were seen to keep which promise, in a line."""
    counts = [sum(row.verdict == verdict for row in rows) for verdict in (SAME_BITS, WITHIN, DIFFERS)]
    promised = [row for row in rows if row.promised]
    kept = sum(row.identical for row in promised)
    bits = f"of {len(promised)} and seen of {kept} of these" if promised else "of none"
    return (
        f"{len(rows)} run{'s' * (len(rows) != 1)} trained again: {counts[0]} identical to the bit, {counts[1]} within tolerance, "
        f"{counts[2]} beyond what is promised; the same bits were promised {bits}"
    )


def verify(
    ledger: str | os.PathLike[str],
    *,
    sample: int = 3,
    sample_seed: int | None = None,
    experiment: str | None = None,
    device: str = "auto",
    data_root: Path | None = None,
    whole_stacks: bool = False,
) -> list[Comparison]:
    """Train `sample` records of the ledger again, drawn at random, and compare them. Writes nothing.

    A run trains with the record's number of threads, where the machine has as many cores, and with products by the same library,
    where the machine can. With `whole_stacks` the runs that trained
    in one stack with a drawn one do so again, and are compared too, as far as the ledger has all of them: then the same bits are
    promised on the same machine, and it takes as long as the stacks did.

    Raises `LedgerError` when there is no record of this engine, and what `sweep.complete` raises.
    """
    where = training.resolve_device(device)
    records = [record for record in Ledger(ledger).read() if record.config.engine == ENGINE]
    asked = [record for record in records if experiment in (None, record.config.experiment)]
    if not asked:
        raise LedgerError(f"{ledger} holds no record of engine {ENGINE}{f' and {experiment}' if experiment else ''} to verify")
    drawn = random.Random(sample_seed).sample(asked, min(sample, len(asked)))
    return again(drawn, records, where, data_root=data_root, whole_stacks=whole_stacks)


def again(
    drawn: Sequence[RunRecord],
    records: Sequence[RunRecord],
    device: torch.device,
    *,
    data_root: Path | None = None,
    whole_stacks: bool = False,
    stack_size: int = sweep.CPU_STACK,
) -> list[Comparison]:
    """Train the drawn records again and compare; `records` are those among which companions of their stacks are looked for."""
    companions = defaultdict(list)
    for record in records:
        companions[_origin(record)].append(record)
    planned = _planned(drawn, companions, whole_stacks, stack_size)
    by_key = {record.config.key: record for record in records}
    configs = [config for _, stack in planned for config in stack]
    loaded = {name: datasets.load(name, data_root) for name in sorted({config.dataset for config in configs})}
    reporter = sweep.Reporter(len(configs), sum(config.steps_per_epoch * config.epochs for config in configs))
    rows = []
    try:
        for (threads, library), stack in planned:
            keys = {config.key for config in stack}
            data, progress = loaded[stack[0].dataset], sweep.per_network(reporter, stack)
            with _threads(threads):
                for trained in training.train(stack, data, device, progress, library=library):
                    record = by_key[trained.config.key]
                    whole = _complete(together := companions[_origin(record)]) and {r.config.key for r in together} == keys
                    rows.append(compare(record, trained, whole))
            reporter.finish_runs(len(stack))
    finally:
        reporter.close()
    return rows


def _origin(record: RunRecord) -> tuple[Any, ...]:
    """What the records of a stack that trained together have in common, and no others."""
    environment = record.environment
    said = (environment.get(name) for name in ("started", "seconds", "revision", "device_name", "threads", "stack", "company"))
    alone = record.config.key if environment.get("stack") == 1 else ""
    return (*said, training.stacks.stack_shape(record.config), alone)


def companions_of(record: RunRecord, records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records among these of the runs that trained in one stack with that one, itself included."""
    return [other for other in records if _origin(other) == _origin(record)]


def _complete(together: Sequence[RunRecord]) -> bool:
    return len(together) == together[0].environment.get("stack")


def _planned(
    drawn: Sequence[RunRecord], companions: dict[tuple[Any, ...], list[RunRecord]], whole_stacks: bool, stack_size: int
) -> list[tuple[_Way, list[RunConfig]]]:
    """How to train each stack, and its runs."""
    whole: dict[tuple[Any, ...], list[RunConfig]] = {}
    rest = defaultdict(list)
    for record in drawn:
        together = companions[_origin(record)]
        if whole_stacks and _complete(together):
            whole[_origin(record)] = [companion.config for companion in together]
        else:
            rest[_way(record)].append(record.config)
    planned = [(_way(companions[origin][0]), configs) for origin, configs in whole.items()]
    return planned + [(way, stack) for way, configs in rest.items() for stack in sweep.stacks(configs, stack_size)]


def _way(record: RunRecord) -> _Way:
    """The record's number of threads where the machine has as many cores, None: as many as there would be anyway; and the library
    of its products, where it takes them here."""
    threads, library = (record.environment.get(name) for name in ("threads", "products"))
    return (
        threads if type(threads) is int and 1 <= threads <= (os.cpu_count() or 1) else None,
        str(library) if products.available(library) else products.DEFAULT,
    )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
