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
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import orjson

from gelu_study import titles
from gelu_study.errors import ConfigurationError, LedgerError, NewerRecordError

ENGINE = 1
"""Raised whenever a change of the code alters the results of a run; part of every key."""

SCHEMA = 1
"""Version of the record's file format."""

VIEWS = 6
"""Of a test image: itself and two that are shifted by a pixel, each also mirrored."""

KEEP_STEP = 2.0**-16
"""The nearest that a keep probability comes to 0 and 1: masks are drawn with 32 bits."""
DENSE = ("perceptron", "autoencoder")
"""Fully connected networks, which train in stacks."""

_FOR_DENSE = {
    "initialisation": ("unit-norm", "unit-norm-outgoing", "he", "variance-matched"),
    "optimiser": ("adam-tensorflow", "adam", "sgd", "momentum"),
    "normalisation": ("none", "batch", "layer"),
    "precision": ("float32", "bfloat16"),
    "preprocessing": ("unit",),
    "augmentation": ("none",),
    "schedule": ("constant",),
}
_FOR_IMAGES = {
    "optimiser": ("adam-theano", "nesterov", "nesterov-lookahead"),
    "normalisation": ("batch",),
    "precision": ("float32", "bfloat16", "tf32"),
    "preprocessing": ("zca", "pixel-mean", "channels"),
    "augmentation": ("none", "mirrors-and-crops", "flips-and-shifts"),
    "schedule": ("constant", "half-then-linear", "cosine", "triangle"),
}
CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(DENSE, _FOR_DENSE),
    "shallow-convnet": {"initialisation": ("glorot",), **_FOR_IMAGES},
    "wide-resnet": {"initialisation": ("he",), **_FOR_IMAGES},
    "fast-convnet": {"initialisation": ("identity",), **_FOR_IMAGES},
}
"""The networks, and what is known of each field that names something."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run's result up to rounding. Raises `ConfigurationError` for a value out of range."""

    experiment: str  #: the protocol it belongs to, for instance "mnist-classifier"
    dataset: str
    dataset_sha256: str  #: `datasets.content_hash`: the data's identity, whatever file they came from
    train_examples: int  #: the first of the official training set
    validation_examples: int  #: the last of the official training set; 0 leaves validation out
    network: str  #: "perceptron": a classifier; "autoencoder": reconstructs its input; convolutional: see `networks.convolutional`
    hidden: tuple[int, ...]  #: widths of the hidden layers, or channels of the convolutions
    activation: str  #: with its form: "gelu" (exact), "gelu_tanh", ...; "soi": the stochastic map, `activations.SOIMap`
    initialisation: str  #: see `initialisations.weights` and `networks.convolutional`; biases 0
    optimiser: str  #: see `training.stacks.optimiser` and `training.optimisers`
    learning_rate: float
    keep_probability: float  #: of a hidden unit, inverted scaling; 1 means no dropout
    batch_size: int
    epochs: int  #: each of steps_per_epoch steps
    precision: str  #: of a training step's products; of convolutional networks also what lies between them, and evaluation
    seed: int  #: shared by all activations, so that runs of one seed start from the same draw and see the same minibatches
    engine: int = ENGINE
    normalisation: str = "none"  #: of the pre-activations of hidden layers: over the batch, or over the layer's units
    test_noise: tuple[float, ...] = ()  #: half-widths a of uniform noise on the test inputs, measured after the last epoch
    preprocessing: str = "unit"  #: pixels in [0, 1]; others: see `training.images_data`
    augmentation: str = "none"  #: of training images, see `training.images_data`
    input_noise: float = 0.0  #: standard deviation of normal noise on training inputs
    schedule: str = "constant"  #: of the learning rate over training, see `training.schedules`
    momentum: float = 0.9  #: of the optimisers with Nesterov momentum
    weight_decay: float = 0.0  #: times the weights, added to their gradient: twice the factor of a penalty on squares
    label_smoothing: float = 0.0  #: share of the target that is spread evenly over all classes
    test_views: int = 1  #: views of a test image whose outputs are averaged for the final test error, see `training.images`

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if type(value) is not _EXACT.get(kind):
                value = _coerced(name, kind, value)
                object.__setattr__(self, name, value)
            if "int" in kind and any(type(n) is int and abs(n) > _LARGEST for n in (value if type(value) is tuple else (value,))):
                raise ConfigurationError(f"{name} is {_shown(value)}; whole numbers go to {_LARGEST}")
        titles.title(self.activation)
        if self.network not in CHOICES:
            raise ConfigurationError(f"unknown network {self.network!r}; known are {', '.join(CHOICES)}")
        for name, known in CHOICES[self.network].items():
            if getattr(self, name) not in known:
                raise ConfigurationError(
                    f"unknown {name} {getattr(self, name)!r} for network {self.network}; known are {', '.join(known)}"
                )
        for name, least in (("train_examples", 1), ("validation_examples", 0), ("batch_size", 1), ("epochs", 1), ("engine", 1)):
            if getattr(self, name) < least:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least {least}")
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
        if self.normalisation == "batch" and self.batch_size < 2:
            raise ConfigurationError("batch normalisation needs a batch_size of at least 2: one example has no variance")
        if not 0 <= self.seed < 2**31:
            raise ConfigurationError(f"seed is {self.seed}; it must lie in 0 to 2147483647")
        if not all(0 <= width < math.inf for width in self.test_noise):
            raise ConfigurationError(f"test_noise is {self.test_noise}; half-widths of noise are finite and at least 0")
        if self.test_noise and self.network != "perceptron":
            raise ConfigurationError(f"test_noise is for perceptrons, and the network is {self.network}; leave it empty")
        self._check_images()

    def _check_images(self) -> None:
        """What convolutional networks alone have."""
        for name, below in (("input_noise", math.inf), ("weight_decay", math.inf), ("momentum", 1), ("label_smoothing", 1)):
            if not 0 <= getattr(self, name) < below:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 0 and below {below}")
        if self.test_views not in (1, VIEWS):
            raise ConfigurationError(f"test_views is {self.test_views}; it is 1 or {VIEWS}")
        if self.network in DENSE:
            own = [name for name, default in _OF_IMAGES.items() if getattr(self, name) != default]
            if own:
                raise ConfigurationError(f"{', '.join(own)} is for convolutional networks, and the network is {self.network}")
            return
        if self.activation in titles.STOCHASTIC:
            raise ConfigurationError(f"{self.activation} is for fully connected networks, and the network is {self.network}")
        if not self.optimiser.startswith("nesterov") and self.momentum != 0.9:
            raise ConfigurationError(f"momentum is {self.momentum}, and {self.optimiser} has none of that kind; leave it out")

    @property
    def examples_per_epoch(self) -> int:
        """Training examples in an epoch; with mirrored copies, each counts twice."""
        return self.train_examples * (2 if self.augmentation == "mirrors-and-crops" else 1)

    @property
    def steps_per_epoch(self) -> int:
        """Whole minibatches in an epoch; the rest of the permutation is left out of that epoch."""
        return self.examples_per_epoch // self.batch_size

    @property
    def depth(self) -> int:
        """Number of hidden layers."""
        return len(self.hidden)

    @property
    def width(self) -> int:
        """Width of the first hidden layer."""
        return self.hidden[0]

    @cached_property
    def key(self) -> str:
        """SHA-256 of the canonical configuration, 64 hexadecimal digits."""
        return _digest(self.to_dict())

    @cached_property
    def curves(self) -> dict[str, int]:
        """The curves of a finished record by epochs, with their values an epoch."""
        kinds = MEASURES[self.network]
        validation = [f"validation_{kind}" for kind in kinds] if self.validation_examples else []
        if self.network not in DENSE:
            parts = [f"train_{kind}_epoch" for kind in kinds] + validation + [f"test_{kind}" for kind in kinds]
            return dict.fromkeys(parts, 1)
        return {
            "train_loss": 3,
            "train_loss_smoothed": 3,
            "train_loss_epoch": 1,
            **dict.fromkeys(validation, 3),
            **{f"test_{kind}": 1 for kind in kinds},
        }

    @property
    def measures(self) -> tuple[str, ...]:
        """What a record says of the end of an epoch."""
        return tuple(self.curve_of)

    @cached_property
    def curve_of(self) -> dict[str, str]:
        """The curve that holds each measure of the end of an epoch."""
        epoch = {name.removesuffix("_epoch"): name for name in self.curves if name.endswith("_epoch")}
        return epoch | {name: name for name in self.curves if not name.startswith("train")}

    @property
    def finals(self) -> tuple[str, ...]:
        """What a record says of the end of training besides `measures`."""
        kinds = MEASURES[self.network]
        views = [f"test_{kind}_views" for kind in kinds] if self.test_views > 1 else []
        return (*(f"train_{kind}_full" for kind in kinds), *views)

    @property
    def trajectory(self) -> str:
        """A name for the course of training, 64 hexadecimal digits, whatever its length: where nothing in it depends on the number
        of epochs, a longer run goes on where a shorter one of the same trajectory ended. Schedules and lookahead depend on it."""
        endless = self.schedule == "constant" and self.optimiser != "nesterov-lookahead"
        return _digest({**self.to_dict(), "epochs": 0}) if endless else self.key

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values. Those that came after the first records appear only where they differ from their default, so
        that the keys of older records stay."""
        values = {name: getattr(self, name) for name in _KINDS}
        shown = {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in shown.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunConfig:
        """The inverse of `to_dict`. Raises `ConfigurationError` for an unknown or absent field."""
        if not _NEEDED <= set(values) <= set(_KINDS):
            unknown, absent = sorted(set(values) - set(_KINDS)), sorted(_NEEDED - set(values))
            raise ConfigurationError(f"a configuration with unknown fields {unknown} and absent fields {absent}")
        return cls(**values)


_KINDS = {item.name: str(item.type) for item in dataclasses.fields(RunConfig)}
_LARGEST = 2**63 - 1
_EXACT = {"str": str, "int": int, "float": float}

_OF_IMAGES: dict[str, Any] = {
    "preprocessing": "unit",
    "augmentation": "none",
    "input_noise": 0.0,
    "schedule": "constant",
    "momentum": 0.9,
    "weight_decay": 0.0,
    "label_smoothing": 0.0,
    "test_views": 1,
}
_LATER: dict[str, Any] = {"normalisation": "none", "test_noise": (), **_OF_IMAGES}
"""Fields that came after the first records, and their defaults."""

_NEEDED = frozenset(_KINDS) - frozenset(_LATER)

MEASURES = {network: ("loss",) if network == "autoencoder" else ("loss", "error") for network in CHOICES}
"""What is measured of each network: log loss in nats and error in percent, or the mean squared error of a pixel."""


def canonical_json(value: Any) -> str:
    """Strict JSON with sorted keys and no spaces: one text for one meaning."""
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(config).encode()).hexdigest()


def _coerced(name: str, kind: str, value: Any) -> Any:
    """The value as its field's type, so that 1 and 1.0, a list and a tuple name the same run."""
    if kind == "str" and isinstance(value, str):
        return value
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind == "float" and (isinstance(value, float) or (type(value) is int and abs(value) < 2**53)):
        return value + 0.0  # of minus nought, nought
    if kind.startswith("tuple") and isinstance(value, list | tuple):
        inner = kind[len("tuple[") :].split(",")[0]
        if inner == "int" and set(map(type, value)) == {int}:
            return tuple(value)
        return tuple(_coerced(name, inner, item) for item in value)
    raise ConfigurationError(f"{name} is {_shown(value)}; it must be of type {kind}")


def _shown(value: object) -> str:
    """The value as messages show it."""
    try:
        return repr(value)
    except (ValueError, RecursionError):  # Python writes no whole number of thousands of digits
        return f"a {type(value).__name__} too long to be shown"


def parts(environment: dict[str, Any]) -> list[dict[str, Any]]:
    """A record's environment, part by part: where and with what the last part of a run trained, then those before interruptions."""
    return [environment, *environment.get("earlier", [])]


@dataclass(frozen=True)
class RunRecord:
    """What a finished run leaves: losses in nats (mean squared error for autoencoders), errors in percent.

    `curves` holds lists. Dense networks have three values an epoch for `train_loss` (means over the thirds), `train_loss_smoothed`
    (exponential smoothing with `training.stacks.SMOOTHING` a minibatch, as figures 2 and 3 plot it), `validation_loss` and
    `validation_error`; one an epoch for `train_loss_epoch`, `test_loss` and `test_error`. Convolutional ones have one an epoch for
    everything, also for `train_error_epoch`; their training losses are those that were differentiated, with label smoothing. A run
    without validation lacks those curves, an autoencoder has no errors. With test noise there are also `noise_loss` and
    `noise_error`, a value a width, and `test_wrong`, the places of the clean test examples that the network gets wrong. `final` and
    `best` (the epoch end of least validation loss; empty without validation) hold a value each. A diverged run says at which step
    and epoch in `diverged`; its curves end before, and `final` and `best` are empty.
    """

    config: RunConfig
    status: str  #: "finished" or "diverged"
    diverged: dict[str, int] | None = None
    curves: dict[str, list[float]] = field(default_factory=dict)
    final: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The record's file: strict JSON, a top-level entry a line. The last is the SHA-256 of the exact text before it."""
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
        lines = (f"{json.dumps(name)}: {json.dumps(value, allow_nan=False)},\n" for name, value in entries.items())
        text = "{\n" + "".join(lines)
        return text + _seal(text)

    @classmethod
    def from_json(cls, text: str) -> RunRecord:
        """The record in a file's text.

        With `sha256`, any change of the text is noticed. Older records, without it, are read all the same. Protected in those are
        the configuration, by the key; what `final` and `best` share with curves, which must be the same; and the structure: names,
        lengths, ranges. Not protected is a digit elsewhere in a curve, of a final value that no curve holds, or in the environment.

        Raises `NewerRecordError` for a record of a later version: a higher schema, or a configuration that this version refuses and
        whose key is right all the same. Raises `LedgerError` that says what is wrong with any other text.
        """
        try:
            entries = orjson.loads(text)  # strict, and twice as fast as Python's own
        except ValueError as error:
            raise LedgerError(f"not strict JSON: {error}") from None
        schema = entries.get("schema") if isinstance(entries, dict) else None
        if type(schema) is int and schema > SCHEMA:
            if _is_ours_otherwise(text, schema):
                raise LedgerError(f"it says schema {schema}, and in all else is a sound record of schema {SCHEMA}")
            raise NewerRecordError(f"it has schema {schema}, and this version of the package reads {SCHEMA}")
        if type(schema) is not int or schema != SCHEMA:
            raise LedgerError(f"record schema {schema!r}; this version reads schema {SCHEMA}")
        if set(entries) - {"sha256"} != _ENTRIES:
            raise LedgerError(f"entries {sorted(entries)}; expected {sorted(_ENTRIES)} and, in newer records, sha256")
        config = _config(entries)
        if "sha256" in entries and not text.endswith(_seal(text[:-_SEAL])):
            raise LedgerError("its sha256 is not that of its text, so that something in it changed since it was written")
        record = cls(config=config, **{name: entries[name] for name in _VALUES})
        record._check()
        return record

    def _check(self) -> None:
        if self.status not in ("finished", "diverged"):
            raise LedgerError(f"status {self.status!r}; it is either finished or diverged")
        where = self.diverged
        if not (isinstance(where, dict) if self.status == "diverged" else where is None):
            raise LedgerError(f"status {self.status} does not go with diverged = {where!r}")
        if where is not None and not (set(where) == {"step", "epoch"} and all(type(v) is int for v in where.values())):
            raise LedgerError(f"diverged is {where!r}; expected a step and an epoch")
        for name, table in (("curves", self.curves), ("final", self.final), ("best", self.best)):
            if not isinstance(table, dict):
                raise LedgerError(f"{name} is not an object")
        if not all(isinstance(curve, list) for curve in self.curves.values()):
            raise LedgerError("a curve is not a list")
        values = [*chain.from_iterable(self.curves.values()), *self.final.values(), *self.best.values()]
        if not set(map(type, values)) <= {int, float} or (values and not 0 <= min(values) <= max(values) <= sys.float_info.max):
            raise LedgerError("curves, final or best hold something other than finite numbers of at least 0")
        if self.status == "finished":
            self._check_finished()
        else:
            self._check_diverged()
        if any(curve and max(curve) > 100 for name, curve in self.curves.items() if name.endswith("error")):
            raise LedgerError("an error exceeds 100 percent")
        if not isinstance(self.environment, dict):
            raise LedgerError("the environment is not an object")

    def _check_diverged(self) -> None:
        where = self.diverged or {}
        step, epoch, per_epoch = where["step"], where["epoch"], self.config.steps_per_epoch
        if not 1 <= step <= per_epoch * self.config.epochs or epoch != (step - 1) // per_epoch + 1:
            raise LedgerError(f"step {step} is not in epoch {epoch} of {self.config.epochs}")
        if self.final or self.best:
            raise LedgerError("a diverged run has neither final nor best values")
        lengths = {name: values * (epoch - 1) for name, values in self.config.curves.items()}
        if {name: len(curve) for name, curve in self.curves.items()} != lengths:
            raise LedgerError(f"the curves do not end with epoch {epoch - 1}, the last before it diverged")

    def _check_finished(self) -> None:
        config = self.config
        lengths = {name: per_epoch * config.epochs for name, per_epoch in config.curves.items()}
        if config.test_noise:
            lengths |= {"noise_loss": len(config.test_noise), "noise_error": len(config.test_noise)}
        curves = set(lengths) | ({"test_wrong"} if config.test_noise else set())
        best = {*config.measures, "epoch", "step"} if config.validation_examples else set()
        for name, found, expected in (
            ("curves", set(self.curves), curves),
            ("final", set(self.final), {*config.measures, *config.finals}),
            ("best", set(self.best), best),
        ):
            if found != expected:
                raise LedgerError(f"{name} has {sorted(found)}; expected {sorted(expected)}")
        for name, length in lengths.items():
            if len(self.curves[name]) != length:
                raise LedgerError(f"{name} has {len(self.curves[name])} values for {config.epochs} epochs; expected {length}")
        wrong = self.curves.get("test_wrong", [])
        if not all(type(place) is int for place in wrong) or not all(a < b for a, b in pairwise(wrong)):
            raise LedgerError("test_wrong holds something other than ascending places of test examples")
        ends = [("final", self.final, config.epochs)]
        if best:
            epoch = self.best["epoch"]
            if type(epoch) is not int or not 1 <= epoch <= config.epochs:
                raise LedgerError(f"the best epoch is {epoch!r} of {config.epochs}")
            least = min(self.curves["validation_loss"][config.curves["validation_loss"] - 1 :: config.curves["validation_loss"]])
            if self.best["validation_loss"] != least or self.best["step"] != epoch * config.steps_per_epoch:
                raise LedgerError(f"epoch {epoch} is called the best, and its end is not that of least validation loss")
            ends.append(("best", self.best, epoch))
        for name, values_at, epoch in ends:
            for measure, curve in config.curve_of.items():
                if values_at[measure] != self.curves[curve][config.curves[curve] * epoch - 1]:
                    raise LedgerError(f"{measure} in {name} is not that of its curve at epoch {epoch}")


_VALUES = ("status", "diverged", "curves", "final", "best", "environment")
_ENTRIES = {"schema", "key", "config", *_VALUES}


def _is_ours_otherwise(text: str, schema: int) -> bool:
    """Whether a record of a later schema is one of ours whose schema was changed."""
    ours = text.replace(f'"schema": {schema}', f'"schema": {SCHEMA}')
    try:
        return ours != text and bool(RunRecord.from_json(ours))
    except LedgerError:
        return False


def _config(entries: Mapping[str, Any]) -> RunConfig:
    """The configuration in a record's entries, whose key is held against it."""
    values, key = entries["config"], entries["key"]
    if not isinstance(values, dict):
        raise LedgerError("the configuration is not an object")
    try:
        config = RunConfig.from_dict(values)
    except ConfigurationError as error:
        if key == _digest(values):  # nothing in it changed since it was written
            raise NewerRecordError(f"this version of the package does not know its configuration: {error}", key) from None
        raise LedgerError(f"configuration: {error}") from None
    if key != config.key:
        raise LedgerError(f"its key {key!r} is not that of its configuration, {config.key}")
    return config


def _seal(text: str) -> str:
    """What follows that text in a record's file and ends it."""
    return f'"sha256": "{hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}"\n}}\n'


_SEAL = len(_seal(""))
