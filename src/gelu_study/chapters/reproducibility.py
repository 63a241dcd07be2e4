"""What is promised about training a run again, and what was seen: the measurement `reproducibility`, and what shows it.

`measure` trains small runs of every kind of network again: in another process, with other threads, in other company, interrupted,
on another device, under another PyTorch. It also trains records of the ledger again, whose trainings are as long as the study's.
Everything else shows such a measurement.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from gelu_study import datasets, measurements, pages, paths, protocols, retraining, titles, training, verification
from gelu_study.errors import DataError
from gelu_study.ledger import Ledger
from gelu_study.measurements import Measurement
from gelu_study.retraining import RetrainingError
from gelu_study.runs import DENSE, RunConfig, RunRecord
from gelu_study.verification import Comparison

NAME = "reproducibility"
SEEDS = (1, 3)  # between them and beside them is room for companions that come before or after
EPOCHS = 25  # of the classifiers, on digits: 225 steps
LONG: dict[str, Any] = {"activations": ("gelu_tanh", "relu", "elu"), "learning_rates": [1e-3], "seeds": [0]}
LONG_STACK = 3
NO_DEVICE = "no other device than the CPU was there to compare with"
NO_VERSION = "no other version of PyTorch was compared"


@dataclass(frozen=True)
class Kind:
    """Runs of one kind of network; dense ones fit in one stack."""

    name: str
    configs: tuple[RunConfig, ...]

    @property
    def dense(self) -> bool:
        """Whether they train together."""
        return self.configs[0].network in DENSE

    @property
    def together(self) -> list[tuple[RunConfig, ...]]:
        """The stacks in which they train unless something else is tried."""
        return [self.configs] if self.dense else [(config,) for config in self.configs]


def kinds() -> list[Kind]:
    """Small runs of every kind of network: the study's shapes on scikit-learn's digits, convolutional networks narrowed."""
    classifier: dict[str, Any] = {"dataset": "digits", "learning_rates": [1e-3], "seeds": SEEDS, "epochs": EPOCHS}
    deep = protocols.grid("mnist-autoencoder", "paper").hidden
    fixed: dict[str, Any] = {"hidden": (128,) * 8, "batch_size": 128, "epochs": EPOCHS}
    soi = protocols.plan("mnist-soi", "smoke", activations=["soi"], seeds=SEEDS, learning_rates=[1e-3, 1e-4, 1e-5])
    autoencoder = protocols.plan("mnist-autoencoder", "smoke", learning_rates=[1e-3], seeds=SEEDS)
    images = {
        "shallow convolutional network": protocols.plan("cifar10-convnet", "smoke", seeds=SEEDS, epochs=4),
        "shallow convolutional network, bfloat16": protocols.plan(
            "cifar10-convnet", "smoke", seeds=SEEDS, epochs=4, precision="bfloat16"
        ),
    }
    return [
        Kind("classifier", tuple(protocols.plan("mnist-classifier", "quick", keep_probabilities=[1.0], **classifier))),
        Kind("classifier, dropout", tuple(protocols.plan("mnist-classifier", "quick", keep_probabilities=[0.5], **classifier))),
        Kind("SOI map, three learning rates", tuple(dataclasses.replace(config, **fixed) for config in soi)),
        Kind("autoencoder", tuple(dataclasses.replace(config, hidden=deep, epochs=4) for config in autoencoder)),
        *(Kind(name, tuple(configs)) for name, configs in images.items()),
    ]


def measure(
    device: torch.device,
    other_python: str | os.PathLike[str] | None = None,
    chosen: Sequence[Kind] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    data_root: Path | None = None,
) -> dict[str, Any]:
    """Train again in every way and compare; about half an hour of two cores.

    Args: `device`, on which to train besides the CPU, if it is another; `other_python`, an interpreter with another version of
    PyTorch, for which the way `torch` stands; `chosen`, the kinds, `kinds()` by default; `ledger`, of the records to train again.

    Returns strict JSON: `kinds`; `rows` with the kind, the way, its detail, the activation and, a value a run, whether bits were
    the same (`identical`) and how far apart it was (`early`, `final_loss`, `final_error`, as in `verification.Comparison`, null for
    infinity); `devices` and `torch`, what was compared with the CPU and this PyTorch; `left_out`, what was not measured and why.
    Raises `RetrainingError` when a process fails.
    """
    left_out: list[str] = []
    devices = []
    if device.type == "cpu":
        left_out.append(NO_DEVICE)
    else:
        devices.append(training.environment_of(device)["device_name"])
    asked = kinds() if chosen is None else list(chosen)
    described = [_described(kind.name, kind.configs) for kind in asked]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:  # the processes do the work
        small = [pool.submit(_rows_of, kind, device, other_python) for kind in asked]
        try:
            long = list(_ledger_ways(Path(ledger or paths.LEDGER), data_root))
        except DataError as error:
            long = []
            left_out.append(f"records of the ledger: {error}")
        rows = [row for future in small for row in future.result()]
    for name, how, drawn, compared in long:
        obstacles = [row.obstacles for row in compared if not row.promised]
        if WAYS[how[0]][1] == BITS and obstacles:
            left_out.append(f"{name}, trained again: {obstacles[0]}")
            continue
        rows += _compared(name, *how, compared, {record.config.key: record.config for record in drawn})
        described.append(_described(name, [record.config for record in drawn]))
    if other_python is None:
        left_out.append(NO_VERSION)
    return {
        "kinds": list({kind["name"]: kind for kind in described}.values()),
        "rows": rows,
        "devices": devices,
        "torch": sorted({row["detail"] for row in rows if row["way"] == "torch"}),
        "left_out": left_out,
    }


def _rows_of(kind: Kind, device: torch.device, other_python: str | os.PathLike[str] | None) -> list[dict[str, Any]]:
    """A kind trained again in every way."""
    _say(kind.name)
    base = retraining.train(kind.together)
    rows = [row for way, detail, again in _ways(kind) for row in _rows(kind.name, way, detail, base, again)]
    if device.type != "cpu" and kind.dense:
        rows += _rows(kind.name, "device", device.type, base, retraining.train(kind.together, device=str(device)))
    if other_python is not None:
        again = retraining.train(kind.together, python=other_python)
        rows += _rows(kind.name, "torch", str(again[0].environment["torch"]), base, again)
    return rows


def _ways(kind: Kind) -> Iterator[tuple[str, str, list[RunRecord]]]:
    """The way, its detail and the records, those of companions among them."""
    configs = kind.configs
    yield "again", "", retraining.train(kind.together)
    yield "resumed", "", retraining.train(kind.together, interrupted_after=configs[0].epochs // 2)
    yield "threads", "2", retraining.train(kind.together, threads=2)
    if not kind.dense:
        yield "company", "", retraining.train([configs[::-1]])
        return
    low, high = SEEDS
    kept = {seed: [config for config in configs if config.seed == seed] for seed in SEEDS}

    def beside(seed: int, other: int) -> list[RunConfig]:
        return [*kept[seed], *(dataclasses.replace(config, seed=other) for config in kept[seed])]

    yield "company", "", retraining.train([beside(low, high + 1), beside(high, low - 1)])
    yield "place", "", retraining.train([beside(low, low - 1), beside(high, high + 1)])
    half = len(configs) // 2
    yield "stack", "1", retraining.train([[config] for config in configs])
    yield "stack", str(half), retraining.train([configs[:half], configs[half:]])
    more = [dataclasses.replace(config, seed=config.seed + high) for config in configs]
    yield "stack", str(2 * len(configs)), retraining.train([[*configs, *more]])


def _ledger_ways(ledger: Path, data_root: Path | None) -> Iterator[tuple[str, tuple[str, str], list[RunRecord], list[Comparison]]]:
    """A stack of short trainings, whole and in smaller stacks, and long trainings in smaller stacks."""
    if not datasets.available("mnist", data_root):
        raise DataError("MNIST is not there")
    records = Ledger(ledger).read()
    cpu = torch.device("cpu")

    def again(drawn: list[RunRecord], **how: Any) -> list[Comparison]:
        return verification.again(drawn, records, cpu, data_root=data_root, **how)

    keys = [config.key for config in protocols.plan("mnist-recipe", "paper")]
    short = next((r for r in records if r.config.key in keys and r.config.normalisation == "none"), None)
    if short is None:
        raise DataError(f"{ledger} has none of mnist-recipe")
    family = verification.companions_of(short, records)
    name = "record of the recipe grid, 10 epochs of MNIST"
    _say(name)
    yield name, ("again", ""), family, again([short], whole_stacks=True)
    yield name, ("stack", str(LONG_STACK)), family, again(family, stack_size=LONG_STACK)
    keys = [config.key for config in protocols.plan("mnist-classifier", "paper", **LONG)]
    long = [r for r in records if r.config.key in keys and r.status == "finished"]
    if not long:
        raise DataError(f"{ledger} has none of mnist-classifier")
    name = "record of the classifier, 50 epochs of MNIST"
    _say(name)
    yield name, ("stack", str(LONG_STACK)), long, again(long, stack_size=LONG_STACK)


def _say(kind: str) -> None:
    print(f"training again: {kind}", file=sys.stderr, flush=True)


def _described(name: str, configs: Sequence[RunConfig]) -> dict[str, Any]:
    first = configs[0]
    return {
        "name": name,
        "dataset": first.dataset,
        "epochs": first.epochs,
        "steps": first.epochs * first.steps_per_epoch,
        "runs": len(configs),
        "dense": first.network in DENSE,
    }


def _rows(kind: str, way: str, detail: str, base: Sequence[RunRecord], again: Sequence[RunRecord]) -> list[dict[str, Any]]:
    made = {record.config.key: record for record in base}
    pairs = [(made[record.config.key], record) for record in again if record.config.key in made]
    if diverged := [record for record in base if record.status == "diverged"]:
        raise RetrainingError(f"a run that diverges shows nothing, and {diverged[0].config.activation} of {kind} does")
    compared = [verification.compare(*pair) for pair in pairs]
    return _compared(kind, way, detail, compared, {record.config.key: record.config for record in base})


def _compared(
    kind: str, way: str, detail: str, compared: Sequence[Comparison], configs: dict[str, RunConfig]
) -> list[dict[str, Any]]:
    """A row for each activation."""
    rows = []
    for name in dict.fromkeys(configs[row.key].activation for row in compared):
        own = [row for row in compared if configs[row.key].activation == name]
        rows.append(
            {
                "kind": kind,
                "way": way,
                "detail": detail,
                "activation": name,
                "identical": [row.identical for row in own],
                "within": [row.within for row in own],
                **{
                    measure: [value if math.isfinite(value) else None for value in (getattr(row, measure) for row in own)]
                    for measure in ("early", "final_loss", "final_error")
                },
            }
        )
    return rows


# What a measurement says

BITS, TOLERANCE = "the same bits", "within the tolerance"
WAYS = {
    "again": ("nothing: the same in another process", BITS),
    "resumed": ("interrupted in the middle and resumed from a checkpoint", BITS),
    "company": ("the other runs in the stack, or before it", TOLERANCE),
    "place": ("the place in the stack", TOLERANCE),
    "stack": ("the size of the stack", TOLERANCE),
    "threads": ("the number of threads", TOLERANCE),
    "torch": ("the version of PyTorch", TOLERANCE),
    "device": ("the device, of fully connected networks", TOLERANCE),
}
"""What changes from one training to the other, and what is promised of it on a CPU."""

MEASURES = {
    "early": ("first epoch’s training loss", f"{verification.EARLY_TOLERANCE:g}"),
    "final_loss": ("ln of a loss at the end", f"{verification.FINAL_LOSS_TOLERANCE:g}"),
    "final_error": (
        "error at the end, points",
        f"{100 * verification.FINAL_ERROR_TOLERANCE:g} % of it, or {verification.LEAST_ERROR:g}",
    ),
}
"""What is compared, and how far apart it may be."""


def shown(taken: Measurement | None = None) -> None:
    """The promises, what was seen of them and what is not promised, from the project's measurement or another."""
    taken = taken or measurements.read(NAME)
    pages.text(promise())
    if taken is None:
        pages.text(f"> **Not measured yet.** `gelu-study measure {NAME}` trains small runs again in every way and compares them.")
        return
    pages.plain_table(table(taken.result))
    pages.text(f"{caption(taken)} {pages.measurement_file(taken)}")
    pages.text(" ".join(seen(taken.result)))
    pages.plain_table(kinds_table(taken.result))
    pages.text("Runs that came out with the same bits, of those trained again, by kind of network. A dash: not tried.")
    pages.text(not_promised(taken.result))


def promise() -> str:
    """Both promises, with the tolerance."""
    return (
        "**The same to the bit**, on a CPU: the same run, trained again on the same machine with the same versions of PyTorch and "
        "NumPy, as many threads, products by the same library and in the same stack, has the same record to the last digit, "
        "whether it was interrupted or not. **Within the tolerance**: trained with other threads, products by another library, in "
        "another stack, under another version or, fully connected networks, on another device, the "
        f"first epoch’s training loss differs by at most {100 * verification.EARLY_TOLERANCE:g} %, the natural logarithm of the "
        f"losses at the end (means over the last tenth of the epochs) by {verification.FINAL_LOSS_TOLERANCE:g}, and the errors by "
        f"{100 * verification.FINAL_ERROR_TOLERANCE:g} % or {_points(verification.LEAST_ERROR)}, whichever is more. "
        "`gelu-study verify` trains a sample of the records again and says of each which of the two it saw, and why no more could "
        "be expected; with `--whole-stacks` it trains the sampled runs’ stacks, of which the bits are promised."
    )


def table(result: dict[str, Any]) -> pd.DataFrame:
    """A row for each thing that changes: promised, with the same bits, how far apart at most, n."""
    rows = []
    for way, (what, promised) in WAYS.items():
        found = [row for row in result["rows"] if row["way"] == way]
        details = ", ".join(sorted({row["detail"] for row in found} - {""}, key=lambda text: (len(text), text)))
        same, n = _counts(found)
        rows.append(
            {
                "what changes": what + (f" ({details})" if details else ""),
                "promised": promised,
                "the same bits": f"{same} of {n}" if n else "not measured",
                **{f"{title}, most": pages.number(_most(found, name), 2) for name, (title, _) in MEASURES.items()},
                "n": n,
            }
        )
    return pd.DataFrame(rows)


def caption(taken: Measurement) -> str:
    """Where, when and with what it was measured, and what the columns are."""
    environment = taken.environment
    longest = max(taken.result["kinds"], key=lambda kind: int(kind["steps"]))
    return (
        f"Measured on {environment['started'][:10]} on {environment['device_name']} ({environment['host']}) under PyTorch "
        f"{environment['torch']} and NumPy {environment['numpy']}, revision `{str(environment['revision'])[:10]}`, with 1 thread "
        f"unless threads change; trainings of up to {longest['steps']:,} steps. *Most*: the greatest difference among the n runs: "
        "relative of the first epoch’s training loss, of the natural logarithms of the losses, in percentage points of the errors."
    )


def seen(result: dict[str, Any]) -> list[str]:
    """What the table comes to, in sentences."""
    sentences = []
    kept, all_of = _counts([row for row in result["rows"] if _promised(row)])
    sentences.append(
        f"The same bits were promised of {all_of} runs and seen of {'all of them' if kept == all_of else f'only {kept} of these'}."
    )
    others: dict[str, tuple[int, int]] = {}
    for way, (what, promised) in WAYS.items():
        counts = _counts([row for row in result["rows"] if row["way"] == way])
        if promised == TOLERANCE and counts[1]:
            others[what] = counts
    more = [what for what, (same, n) in others.items() if same == n]
    fewer = [f"{what} ({same} of {n})" for what, (same, n) in others.items() if same < n]
    if more:
        sentences.append(f"They were also seen of all runs, though not promised, where this changed: {'; '.join(more)}.")
    if fewer:
        sentences.append(f"They were lost by some where this changed: {'; '.join(fewer)}.")
    apart = [row for row in result["rows"] if not all(row["identical"])]
    if apart:
        parts = []
        for name, (title, allowed) in MEASURES.items():
            worst = max(apart, key=lambda row, name=name: _most([row], name))  # type: ignore[misc]
            most = _most([worst], name)
            where = f", {worst['kind']}, {titles.title(worst['activation'])}" if most else ""
            parts.append(f"{title} {pages.number(most, 2)} (allowed {allowed}{where})")
        sentences.append(f"Farthest apart came, of all: {'; '.join(parts)}.")
    beyond = sum(not within for row in result["rows"] for within in row["within"])
    total = sum(len(row["within"]) for row in result["rows"])
    sentences.append(
        f"All {total} runs are within the tolerance." if not beyond else f"**{beyond} of {total} runs are beyond the tolerance.**"
    )
    return sentences


def kinds_table(result: dict[str, Any]) -> pd.DataFrame:
    """A row a kind of network, a column for what changes: with the same bits, of n."""
    rows = []
    for kind in result["kinds"]:
        found = [row for row in result["rows"] if row["kind"] == kind["name"]]
        cells = {}
        for way in WAYS:
            same, n = _counts([row for row in found if row["way"] == way])
            cells[way if way != "again" else "nothing"] = f"{same}/{n}" if n else "–"
        rows.append({"network": kind["name"], "steps": f"{kind['steps']:,}", **cells})
    return pd.DataFrame(rows)


def not_promised(result: dict[str, Any]) -> str:
    """What nobody should rely on."""
    versions = ", ".join(result["torch"])
    lines = [
        "**Not promised:**",
        "",
        "- The same bits on a GPU. There convolutions are chosen by their speed at the start, and sums may come in any order. "
        + (f"Compared was {', '.join(result['devices'])}." if result["devices"] else "No GPU was there for this measurement."),
        "- The tolerance of convolutional networks with dropout or noise on another kind of device, whose generator draws others.",
        "- The same bits in a stack of other runs or another size. Products and activations do not depend on company, but an "
        "optimiser’s vectorised update rounds the last few numbers of a tensor otherwise than the others, and which are last "
        "depends on the stack.",
        "- The tolerance under any version of PyTorch: " + (f"{versions} was compared." if versions else "none was compared."),
        "- That two machines are told apart by older records. They name the processor as the system does, and two models can have "
        "one name: then the bits may differ where `verify` expects them. Newer records hold the model’s numbers too.",
        "- Anything of a run that another engine trained: the number `engine` in its configuration rises with every change that "
        "alters results, and such records are not verified.",
    ]
    lines.append(
        "- Products by another library were switched off in this measurement. [The autoencoder’s page](mnist-autoencoder.html) "
        "compares networks that were trained with both, where there are records of such; a test trains small ones."
    )
    lines += [f"- Not measured: {reason}." for reason in result["left_out"] if reason not in (NO_DEVICE, NO_VERSION)]
    return "\n".join(lines)


def _promised(row: dict[str, Any]) -> bool:
    return WAYS[row["way"]][1] == BITS


def _counts(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Runs with the same bits, and all."""
    return sum(sum(row["identical"]) for row in rows), sum(len(row["identical"]) for row in rows)


def _most(rows: Sequence[dict[str, Any]], measure: str) -> float:
    values = [math.inf if value is None else float(value) for row in rows for value in row[measure]]
    return max(values, default=math.nan)


def _points(value: float) -> str:
    return "a percentage point" if value == 1 else f"{value:g} percentage points"
