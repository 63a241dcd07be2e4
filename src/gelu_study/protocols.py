"""The paper's experiments as plain data: a protocol and a scale give a list of runs.

Scales: `smoke` (seconds, on digits; never shown as a result), `quick` (minutes on a laptop), `paper` (the paper's protocol, or that
of an experiment of our own), `powered` (with more seeds, where validation chose the learning rate).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from gelu_study import datasets, titles
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig

SCALES = ("smoke", "quick", "paper", "powered")
PAPER_SEEDS = tuple(range(5))
POWERED_SEEDS = tuple(range(20))
NOISE = tuple(step / 4 for step in range(13))
"""Half-widths of the noise on test inputs: 0 to 3, as in figure 3 of the paper's later versions."""

Choice = Mapping[tuple[str, float], float]
"""The learning rate that validation chose for each (activation, keep probability)."""

_VARIED = ("activations", "keep_probabilities", "learning_rates")


@dataclass(frozen=True)
class Grid:
    """What a scale varies, and on what."""

    dataset: str
    train_examples: int
    validation_examples: int
    hidden: tuple[int, ...]
    epochs: int
    seeds: tuple[int, ...]
    activations: tuple[str, ...] = ("gelu_tanh", "relu", "elu")
    learning_rates: tuple[float, ...] = (1e-3, 1e-4, 1e-5)
    keep_probabilities: tuple[float, ...] = (1.0, 0.5)
    batch_size: int = 128
    network: str = "perceptron"
    precision: str = "float32"
    test_noise: tuple[float, ...] = ()
    chooses: bool = True  #: validation chooses a learning rate for each activation and keep probability
    criterion: str = "best_validation_loss"  #: by which it chooses, see `statistics.choose_learning_rates`
    more_seeds: tuple[int, ...] = ()  #: of the runs at the chosen learning rates that follow; none: none follow
    after_choice: Mapping[str, Any] = field(default_factory=dict)  #: fields of `RunConfig` in which those differ
    variants: tuple[Mapping[str, Any], ...] = ({},)
    """The grid is run once for each; a variant holds fields of `RunConfig` that differ, and lists (`activations`,
    `keep_probabilities`, `learning_rates`) that replace the grid's. With another experiment's name, its records are used."""

    @property
    def more(self) -> bool:
        """Whether runs at the chosen learning rates follow."""
        return bool(self.more_seeds)


_DIGITS = ("digits", 1_152, 285)
_MNIST = ("mnist", 55_000, 5_000)
_CLASSIFIER = (128,) * 8
_AUTOENCODER = (1000, 500, 250, 30, 250, 500, 1000)
_PAPER = Grid(*_MNIST, _CLASSIFIER, 50, PAPER_SEEDS)

_SMOKE = Grid(*_DIGITS, (32,) * 8, 2, (0, 1), learning_rates=(1e-3,), batch_size=64)
_QUICK = Grid(*_MNIST, _CLASSIFIER, 5, (0, 1, 2))


def _scales(smoke: Grid, quick: Grid, paper: Grid, more_seeds: tuple[int, ...] = ()) -> dict[str, Grid]:
    return {"smoke": smoke, "quick": quick, "paper": paper, "powered": replace(paper, more_seeds=more_seeds)}


def _autoencoder(**sizes: Any) -> Grid:
    fixed: dict[str, Any] = {"keep_probabilities": (1.0,), "batch_size": 64, "network": "autoencoder", "chooses": False}
    return replace(Grid("mnist", 60_000, 0, _AUTOENCODER, 250, (0, 1, 2)), **fixed, **sizes)


_NOISE: dict[str, Any] = {"keep_probabilities": (1.0,), "learning_rates": (1e-3,), "test_noise": NOISE, "chooses": False}

# ReLU without dropout and at keep probability 1/2 are the classifier's own runs
_SOI: tuple[Mapping[str, Any], ...] = (
    {"activations": ("soi",), "keep_probabilities": (1.0,)},
    {"experiment": "mnist-classifier", "activations": ("relu",), "keep_probabilities": (1.0, 0.5)},
    {"activations": ("relu",), "keep_probabilities": (0.75,)},
    {"activations": ("identity",), "keep_probabilities": (1.0, 0.75, 0.5)},
)

# Three learning rates about the usual one of each optimiser
RATES = {"adam-tensorflow": (3e-3, 1e-3, 3e-4), "momentum": (1e-1, 3e-2, 1e-2), "sgd": (1.0, 3e-1, 1e-1)}
_FACTORIAL: tuple[Mapping[str, Any], ...] = tuple(
    {"initialisation": initialisation, "optimiser": optimiser, "normalisation": normalisation, "learning_rates": RATES[optimiser]}
    for initialisation, optimiser, normalisation in product(
        ("unit-norm", "he", "variance-matched"), RATES, ("none", "batch", "layer")
    )
)
_ONE_AT_A_TIME: tuple[Mapping[str, Any], ...] = (
    *(
        {"initialisation": initialisation, "hidden": hidden, "learning_rates": RATES["adam-tensorflow"]}
        for initialisation in ("unit-norm", "variance-matched")
        for hidden in ((128,) * 2, (128,) * 4, (128,) * 16, (32,) * 8, (512,) * 8)
    ),
    {"activations": ("gelu",), "learning_rates": RATES["adam-tensorflow"]},
)
_RECIPE: dict[str, Any] = {"keep_probabilities": (1.0,), "chooses": False}

# The classifier at the learning rate that validation chose, with one thing changed; the unchanged runs are the classifier's own
_DEPARTURES: tuple[Mapping[str, Any], ...] = (
    {"experiment": "mnist-classifier", "keep_probabilities": (1.0, 0.5)},
    {"activations": ("gelu",), "keep_probabilities": (1.0, 0.5)},
    {"initialisation": "unit-norm-outgoing"},
    {"optimiser": "adam"},
    {"train_examples": 60_000, "validation_examples": 0},
)
_AT_CHOICE: dict[str, Any] = {"keep_probabilities": (1.0,), "learning_rates": (1e-3,), "chooses": False}

_CIFAR10, _CIFAR100 = ("cifar10", 45_000, 5_000), ("cifar100", 50_000, 0)
_ON_ALL: dict[str, Any] = {"train_examples": 50_000, "validation_examples": 0}
_SHALLOW = Grid(
    *_CIFAR10,
    (96,) * 3 + (192,) * 6,
    200,
    (0,),
    keep_probabilities=(0.5,),
    batch_size=100,
    network="shallow-convnet",
    precision="bfloat16",
    criterion="validation_error",
    more_seeds=(0, 1, 2),
    after_choice=_ON_ALL,
    variants=(
        {
            "initialisation": "glorot",
            "optimiser": "adam-theano",
            "normalisation": "batch",
            "preprocessing": "zca",
            "input_noise": 0.15,
            "schedule": "half-then-linear",
        },
    ),
)
_WIDE = Grid(
    *_CIFAR100,
    (16, *(64,) * 12, *(128,) * 12, *(256,) * 12),
    50,
    (0, 1, 2),
    learning_rates=(0.1,),
    keep_probabilities=(0.7,),
    batch_size=128,
    network="wide-resnet",
    precision="bfloat16",
    chooses=False,
    variants=(
        {
            "initialisation": "he",
            "optimiser": "nesterov",
            "normalisation": "batch",
            "preprocessing": "pixel-mean",
            "augmentation": "mirrors-and-crops",
            "schedule": "cosine",
            "weight_decay": 1e-3,  # the code's penalty is 5e-4 times the squares, whose gradient is twice that times the weights
        },
    ),
)
_FAST = Grid(
    *_CIFAR10,
    (64, 64, 256, 256, 256, 256),
    10,
    (0,),
    learning_rates=(3.0, 1.5, 0.75),
    keep_probabilities=(1.0,),
    batch_size=1024,
    network="fast-convnet",
    precision="bfloat16",
    criterion="validation_error",
    more_seeds=PAPER_SEEDS,
    after_choice=_ON_ALL,
    variants=(
        {
            "initialisation": "identity",
            "optimiser": "nesterov-lookahead",
            "normalisation": "batch",
            "preprocessing": "channels",
            "augmentation": "flips-and-shifts",
            "schedule": "triangle",
            "momentum": 0.85,
            "weight_decay": 1.33e-3,
            "label_smoothing": 0.2,
            "test_views": 6,
        },
    ),
)


def _images(paper: Grid, smoke: dict[str, Any], quick: dict[str, Any], powered: dict[str, Any]) -> dict[str, Grid]:
    fixed: dict[str, Any] = {"chooses": False, "more_seeds": (), "after_choice": {}, "learning_rates": paper.learning_rates[:1]}
    digits: dict[str, Any] = dict(zip(("dataset", "train_examples", "validation_examples"), _DIGITS, strict=True))
    small = replace(paper, **fixed | digits | {"epochs": 2, "seeds": (0, 1), "batch_size": 64, "precision": "float32"} | smoke)
    return {"smoke": small, "quick": replace(paper, **fixed | quick), "paper": paper, "powered": replace(paper, **powered)}


_GRIDS: dict[str, dict[str, Grid]] = {
    "mnist-classifier": _scales(_SMOKE, _QUICK, _PAPER, POWERED_SEEDS),
    "mnist-noise": _scales(replace(_SMOKE, **_NOISE), replace(_QUICK, **_NOISE), replace(_PAPER, **_NOISE), POWERED_SEEDS),
    "mnist-autoencoder": _scales(
        _autoencoder(
            dataset="digits", train_examples=1_152, hidden=(32, 16, 32), epochs=2, seeds=(0, 1), learning_rates=(1e-2, 1e-3)
        ),
        _autoencoder(epochs=3, seeds=(0,), learning_rates=(1e-3,)),
        _autoencoder(learning_rates=(1e-2, 1e-3, 1e-4, 1e-5)),
    ),
    "mnist-soi": _scales(
        replace(_SMOKE, variants=_SOI),
        replace(_QUICK, variants=_SOI, learning_rates=(1e-3,)),
        replace(_PAPER, variants=_SOI),
        POWERED_SEEDS,
    ),
    "mnist-recipe": _scales(
        replace(_SMOKE, **_RECIPE, variants=({"normalisation": "batch"}, {"optimiser": "momentum", "initialisation": "he"})),
        replace(_QUICK, **_RECIPE, train_examples=12_800, epochs=5, seeds=(0,), variants=_FACTORIAL),
        replace(_PAPER, **_RECIPE, train_examples=12_800, epochs=10, seeds=(0, 1, 2), variants=(*_FACTORIAL, *_ONE_AT_A_TIME)),
    ),
    "mnist-departures": _scales(
        replace(_SMOKE, **_AT_CHOICE, variants=({}, *_DEPARTURES[1:4])),
        replace(_QUICK, **_AT_CHOICE, variants=_DEPARTURES),
        replace(_PAPER, **_AT_CHOICE, variants=_DEPARTURES),
    ),
    "cifar10-convnet": _images(
        _SHALLOW,
        {"hidden": (8,) * 3 + (16,) * 6},
        {"train_examples": 5_000, "validation_examples": 1_000, "epochs": 10, "seeds": (0, 1, 2)},
        {"more_seeds": tuple(range(10))},
    ),
    "cifar100-wrn": _images(
        _WIDE,
        {"hidden": (8, 16, 16, 32, 32)},
        {"train_examples": 5_000, "hidden": (16, *(64,) * 4, *(128,) * 4, *(256,) * 4), "epochs": 5, "seeds": (0,)},
        {"seeds": tuple(range(10))},
    ),
    "cifar10-fast": _images(
        _FAST,
        {"hidden": (16, 16, 32, 32, 32, 32), "learning_rates": (0.3,)},
        {"train_examples": 50_000, "validation_examples": 0, "learning_rates": (1.5,), "epochs": 3},
        {"more_seeds": tuple(range(100))},
    ),
}
# How a scale changes where its data set is asked to be another one
_ON_DIGITS: dict[str, dict[str, Grid]] = {"mnist-classifier": {"quick": Grid(*_DIGITS, _CLASSIFIER, 50, (0, 1, 2))}}

EXPERIMENTS = tuple(_GRIDS)


def grid(experiment: str, scale: str, dataset: str | None = None, learning_rates: Iterable[float] | None = None) -> Grid:
    """The grid of an experiment at a scale, on its own data set or, where it can, on another.

    Where runs with other fields follow the choice of a learning rate, and a single one is given, there is nothing to choose: the
    grid is then that of those runs. Raises `ConfigurationError` for an unknown experiment or scale, or a data set that the scale
    does not run on.
    """
    if experiment not in _GRIDS:
        raise ConfigurationError(f"unknown experiment {experiment!r}; known are {', '.join(EXPERIMENTS)}")
    if scale not in SCALES:
        raise ConfigurationError(f"unknown scale {scale!r}; known are {', '.join(SCALES)}")
    own = _GRIDS[experiment][scale]
    if dataset is None or dataset == own.dataset:
        if own.after_choice and learning_rates is not None and len(rates := set(learning_rates)) == 1:
            fixed: dict[str, Any] = {"chooses": False, "more_seeds": (), "after_choice": {}}
            return replace(own, seeds=own.more_seeds, learning_rates=tuple(rates), **{**own.after_choice, **fixed})
        return own
    other = _ON_DIGITS.get(experiment, {}).get(scale)
    if other is None or dataset != other.dataset:
        allowed = [own.dataset, *([other.dataset] if other else [])]
        raise ConfigurationError(f"{experiment} at scale {scale} runs on {' or '.join(allowed)}, not on {dataset!r}")
    return other


def plan(
    experiment: str,
    scale: str,
    *,
    seeds: Iterable[int] | None = None,
    activations: Iterable[str] | None = None,
    learning_rates: Iterable[float] | None = None,
    keep_probabilities: Iterable[float] | None = None,
    epochs: int | None = None,
    precision: str | None = None,
    dataset: str | None = None,
    chosen: Choice | None = None,
) -> list[RunConfig]:
    """The runs of an experiment at a scale, without repetition; what is not given is the scale's own.

    Where the experiment's variants have activations, keep probabilities or learning rates of their own, what is given selects from
    those. Where more seeds follow (scale `powered`, and CIFAR-10), the whole grid is run first, from which validation chooses; with
    `chosen`, the runs of all seeds at the chosen learning rates come after it. Raises `ConfigurationError` for values out of range
    or an empty list.
    """
    learning_rates = None if learning_rates is None else list(learning_rates)
    base = grid(experiment, scale, dataset, learning_rates)
    if epochs is not None:
        base = replace(base, epochs=epochs)
    given: dict[str, Iterable[Any] | None] = {
        "activations": activations,
        "keep_probabilities": keep_probabilities,
        "learning_rates": learning_rates,
        "seeds": seeds,
    }
    asked = {name: list(dict.fromkeys(wanted)) for name, wanted in given.items() if wanted is not None}
    for name, wanted in asked.items():
        if not wanted:
            own = ", ".join(map(str, getattr(base, name)))
            raise ConfigurationError(f"{name.replace('_', ' ')} is empty; leave it out for the scale's own, {own}")
    for name in asked.get("activations", []):
        titles.title(name)

    def values(variant: Mapping[str, Any], name: str) -> list[Any]:
        if name not in variant:
            return list(asked.get(name, getattr(base, name)))
        return [value for value in variant[name] if name not in asked or value in asked[name]]

    first_seeds = all_seeds = asked.get("seeds", list(base.seeds))
    if base.more:  # the choice is made on the grid's seeds; more seeds serve the comparison
        own_seeds = [seed for seed in first_seeds if seed in base.seeds]
        first_seeds = list(base.seeds) if base.after_choice else own_seeds or first_seeds
        all_seeds = asked.get("seeds", list(base.more_seeds))

    def run(variant: Mapping[str, Any], name: str, keep: float, rate: float, seed: int) -> RunConfig:
        fields: dict[str, Any] = {
            "experiment": experiment,
            "train_examples": base.train_examples,
            "validation_examples": base.validation_examples,
            "hidden": base.hidden,
            "initialisation": "unit-norm",
            "optimiser": "adam-tensorflow",
        }
        return RunConfig(
            **fields | {field: value for field, value in variant.items() if field not in _VARIED},
            dataset=base.dataset,
            dataset_sha256=datasets.content_hash(base.dataset),
            network=base.network,
            activation=name,
            learning_rate=rate,
            keep_probability=keep,
            batch_size=base.batch_size,
            epochs=base.epochs,
            precision=precision or base.precision,
            seed=seed,
            test_noise=base.test_noise,
        )

    cells = [
        (variant, name, keep, values(variant, "learning_rates"))
        for variant in base.variants
        for name, keep in product(values(variant, "activations"), values(variant, "keep_probabilities"))
    ]
    configs = [run(variant, name, keep, *rest) for variant, name, keep, rates in cells for rest in product(rates, first_seeds)]
    if base.more and (chosen is not None or not base.chooses):
        for variant, name, keep, rates in cells:
            if base.chooses and (name, keep) not in (chosen or {}):
                raise ConfigurationError(f"no learning rate was chosen for {name} at keep probability {keep}")
            kept = [chosen[(str(name), float(keep))]] if base.chooses and chosen is not None else rates
            configs += [run({**variant, **base.after_choice}, name, keep, *rest) for rest in product(kept, all_seeds)]
    if not configs:
        raise ConfigurationError(
            f"{experiment} at scale {scale} has no such runs; leave out activations, rates or keep probabilities"
        )
    return list({config.key: config for config in configs}.values())
