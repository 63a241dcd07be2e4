"""What a run is: the configuration that names it, and the record that it leaves.

A run is one training of one network. Its name, the key, is the SHA-256 of its canonical configuration; where and when it was
trained is recorded beside it and is no part of the name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from gelu_study import activations
from gelu_study.errors import ConfigurationError, LedgerError

ENGINE = 1
"""Raised whenever a change of the code alters the results of a run; part of every key."""

SCHEMA = 1
"""Version of the record's file format."""

KEEP_STEP = 2.0**-16
"""The nearest that a keep probability comes to 0 and 1: masks are drawn with 32 bits."""
NETWORKS = ("perceptron",)
INITIALISATIONS = ("unit-norm",)
OPTIMISERS = ("adam-tensorflow",)
PRECISIONS = ("float32",)


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run's result up to rounding. Raises `ConfigurationError` for a value out of range."""

    experiment: str  # the protocol it belongs to, for instance "mnist-classifier"
    dataset: str
    dataset_sha256: str  # `datasets.content_hash`: the data's identity, whatever file they came from
    train_examples: int  # the first of the official training set
    validation_examples: int  # the last of the official training set
    network: str
    hidden: tuple[int, ...]  # widths of the hidden layers
    activation: str  # with its form: "gelu" (exact), "gelu_tanh", ...
    initialisation: str  # "unit-norm": standard normal, each unit's incoming vector scaled to norm 1; biases 0
    optimiser: str  # "adam-tensorflow": beta 0.9 and 0.999, epsilon 1e-8 added to the uncorrected root
    learning_rate: float
    keep_probability: float  # of a hidden unit, inverted scaling; 1 means no dropout
    batch_size: int
    epochs: int  # each of train_examples // batch_size steps
    precision: str
    seed: int  # shared by all activations, so that runs of one seed start from the same draw and see the same minibatches
    engine: int = ENGINE

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            object.__setattr__(self, item.name, _coerced(item.name, str(item.type), getattr(self, item.name)))
        activations.get(self.activation)
        for name, known in (
            ("network", NETWORKS),
            ("initialisation", INITIALISATIONS),
            ("optimiser", OPTIMISERS),
            ("precision", PRECISIONS),
        ):
            if getattr(self, name) not in known:
                raise ConfigurationError(f"unknown {name} {getattr(self, name)!r}; known are {', '.join(known)}")
        for name in ("train_examples", "validation_examples", "batch_size", "epochs", "engine"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigurationError(f"hidden is {self.hidden}; give the width of each hidden layer, each at least 1")
        if self.batch_size > self.train_examples:
            raise ConfigurationError(f"batch_size {self.batch_size} exceeds the {self.train_examples} training examples")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigurationError(f"learning_rate is {self.learning_rate}; it must be positive and finite")
        if not (self.keep_probability == 1 or KEEP_STEP <= self.keep_probability <= 1 - KEEP_STEP):
            raise ConfigurationError(
                f"keep_probability is {self.keep_probability}; it must lie in (0, 1], {KEEP_STEP:g} away from 0 and 1 or at 1"
            )
        if not 0 <= self.seed < 2**31:
            raise ConfigurationError(f"seed is {self.seed}; it must lie in 0 to 2147483647")

    @property
    def steps_per_epoch(self) -> int:
        """Whole minibatches in an epoch; the rest of the permutation is left out of that epoch."""
        return self.train_examples // self.batch_size

    @property
    def key(self) -> str:
        """SHA-256 of the canonical configuration, 64 hexadecimal digits."""
        return hashlib.sha256(canonical_json(self.to_dict()).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**dataclasses.asdict(self), "hidden": list(self.hidden)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """The inverse of `to_dict`. Raises `ConfigurationError` for an unknown or absent field."""
        known = {item.name for item in dataclasses.fields(cls)}
        if set(values) != known:
            unknown, absent = sorted(set(values) - known), sorted(known - set(values))
            raise ConfigurationError(f"a configuration with unknown fields {unknown} and absent fields {absent}")
        return cls(**values)


def canonical_json(value: Any) -> str:
    """Strict JSON with sorted keys and no spaces: one text for one meaning."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _coerced(name: str, kind: str, value: Any) -> Any:
    """The value as its field's type, so that 1 and 1.0, a list and a tuple name the same run."""
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind == "float" and (isinstance(value, float) or (type(value) is int and abs(value) < 2**53)):
        return float(value)
    if kind.startswith("tuple") and isinstance(value, list | tuple):
        return tuple(_coerced(name, "int", width) for width in value)
    raise ConfigurationError(f"{name} is {value!r}; it must be of type {kind}")


@dataclass(frozen=True)
class RunRecord:
    """What a finished run leaves: losses in nats, errors in percent.

    `curves` holds lists, three values an epoch for `train_loss` (means over the thirds), `train_loss_smoothed` (exponential
    smoothing with 0.995 a minibatch, as figure 2 plots it), `validation_loss` and `validation_error`; one an epoch for
    `train_loss_epoch`, `test_loss` and `test_error`. `final` and `best` (the epoch end of least validation loss) hold a value each.
    A diverged run says at which step and epoch in `diverged`; its curves end before, and `final` and `best` are empty.
    """

    config: RunConfig
    status: str  # "finished" or "diverged"
    diverged: dict[str, int] | None = None
    curves: dict[str, list[float]] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The record's file: strict JSON, a top-level entry a line."""
        entries = {
            "schema": SCHEMA,
            "key": self.config.key,
            "config": self.config.to_dict(),
            "status": self.status,
            "diverged": self.diverged,
            "curves": self.curves,
            "final": self.final,
            "best": self.best,
            "environment": self.environment,
        }
        lines = (f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in entries.items())
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """The record in a file's text. Raises `LedgerError` that says what is wrong with it."""
        try:
            entries = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"not strict JSON: {error}") from None
        if not isinstance(entries, dict) or entries.get("schema") != SCHEMA:
            found = entries.get("schema") if isinstance(entries, dict) else None
            raise LedgerError(f"record schema {found!r}; this version reads schema {SCHEMA}")
        expected = {"schema", "key", "config", "status", "diverged", "curves", "final", "best", "environment"}
        if set(entries) != expected:
            raise LedgerError(f"entries {sorted(entries)}; expected {sorted(expected)}")
        if not isinstance(entries["config"], dict):
            raise LedgerError("the configuration is not an object")
        try:
            config = RunConfig.from_dict(entries["config"])
        except ConfigurationError as error:
            raise LedgerError(f"configuration: {error}") from None
        if entries["key"] != config.key:
            raise LedgerError(f"its key {entries['key']!r} is not that of its configuration, {config.key}")
        record = cls(config=config, **{name: entries[name] for name in sorted(expected - {"schema", "key", "config"})})
        record._check()
        return record

    def _check(self) -> None:
        if self.status not in ("finished", "diverged"):
            raise LedgerError(f"status {self.status!r}; it is either finished or diverged")
        where = self.diverged
        if (self.status == "diverged") != isinstance(where, dict):
            raise LedgerError(f"status {self.status} does not go with diverged = {where!r}")
        if where is not None and not (set(where) == {"step", "epoch"} and all(type(v) is int for v in where.values())):
            raise LedgerError(f"diverged is {where!r}; expected a step and an epoch")
        for name, table in (("curves", self.curves), ("final", self.final), ("best", self.best)):
            if not isinstance(table, dict):
                raise LedgerError(f"{name} is not an object")
        if not all(isinstance(curve, list) for curve in self.curves.values()):
            raise LedgerError("a curve is not a list")
        values = [*chain.from_iterable(self.curves.values()), *self.final.values(), *self.best.values()]
        if not all(type(value) in (int, float) and 0 <= value <= sys.float_info.max for value in values):
            raise LedgerError("curves, final or best hold something other than finite numbers of at least 0")
        if self.status == "finished":
            for name, found, expected in (
                ("curves", set(self.curves), set(CURVES)),
                ("final", set(self.final), set(FINAL)),
                ("best", set(self.best), set(BEST)),
            ):
                if found != expected:
                    raise LedgerError(f"{name} has {sorted(found)}; expected {sorted(expected)}")
            for name, per_epoch in CURVES.items():
                if len(self.curves[name]) != per_epoch * self.config.epochs:
                    raise LedgerError(f"{name} has {len(self.curves[name])} values for {self.config.epochs} epochs")
            best = self.best["epoch"]
            if type(best) is not int or not 1 <= best <= self.config.epochs:
                raise LedgerError(f"the best epoch is {best!r} of {self.config.epochs}")
            for name, values_at, epoch in (("final", self.final, self.config.epochs), ("best", self.best, best)):
                for measure in _MEASURED:
                    curve = "train_loss_epoch" if measure == "train_loss" else measure
                    if values_at[measure] != self.curves[curve][CURVES[curve] * epoch - 1]:
                        raise LedgerError(f"{measure} in {name} is not that of its curve at epoch {epoch}")
        if not isinstance(self.environment, dict):
            raise LedgerError("the environment is not an object")


CURVES = {
    "train_loss": 3,
    "train_loss_smoothed": 3,
    "train_loss_epoch": 1,
    "validation_loss": 3,
    "validation_error": 3,
    "test_loss": 1,
    "test_error": 1,
}
"""The curves of a finished record, with their values an epoch."""
_MEASURED = ("train_loss", "validation_loss", "validation_error", "test_loss", "test_error")
FINAL = (*_MEASURED, "train_loss_full", "train_error_full")
BEST = (*_MEASURED, "epoch", "step")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
