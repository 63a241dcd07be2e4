"""The paper's experiments as plain data: a protocol and a scale give a list of runs.

Scales: `smoke` (seconds, on digits; never shown as a result), `quick` (minutes on a laptop), `paper` (the paper's protocol),
`powered` (the paper's protocol with more seeds where validation chose the learning rate).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from gelu_study import activations as activation_registry
from gelu_study import datasets
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig

SCALES = ("smoke", "quick", "paper", "powered")
PAPER_SEEDS = tuple(range(5))
POWERED_SEEDS = tuple(range(20))

Choice = Mapping[tuple[str, float], float]
"""The learning rate that validation chose for each (activation, keep probability)."""


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


_PAPER = Grid("mnist", 55_000, 5_000, (128,) * 8, 50, PAPER_SEEDS)
_DIGITS = ("digits", 1_152, 285)
_GRIDS: dict[str, dict[str, Grid]] = {
    "mnist-classifier": {
        "smoke": Grid(*_DIGITS, (32,) * 8, 2, (0, 1), learning_rates=(1e-3,), batch_size=64),
        "quick": Grid("mnist", 55_000, 5_000, (128,) * 8, 5, (0, 1, 2)),
        "paper": _PAPER,
        "powered": _PAPER,
    }
}
# How a scale changes where its data set is asked to be another one
_ON_DIGITS: dict[str, dict[str, Grid]] = {"mnist-classifier": {"quick": Grid(*_DIGITS, (128,) * 8, 50, (0, 1, 2))}}

EXPERIMENTS = tuple(_GRIDS)


def grid(experiment: str, scale: str, dataset: str | None = None) -> Grid:
    """The grid of an experiment at a scale, on its own data set or, where it can, on another.

    Raises `ConfigurationError` for an unknown experiment or scale, or a data set that the scale does not run on.
    """
    if experiment not in _GRIDS:
        raise ConfigurationError(f"unknown experiment {experiment!r}; known are {', '.join(EXPERIMENTS)}")
    if scale not in SCALES:
        raise ConfigurationError(f"unknown scale {scale!r}; known are {', '.join(SCALES)}")
    own = _GRIDS[experiment][scale]
    if dataset is None or dataset == own.dataset:
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
    dataset: str | None = None,
    chosen: Choice | None = None,
) -> list[RunConfig]:
    """The runs of an experiment at a scale, without repetition; what is not given is the scale's own.

    At scale `powered` the whole grid is run with the paper's seeds, from which validation chooses; with `chosen`, the runs of all
    seeds at the chosen learning rates come after it. Raises `ConfigurationError` for values out of range or an empty list.
    """
    base = grid(experiment, scale, dataset)

    def values(name: str, given: Iterable[object] | None, own: Sequence[object]) -> list[object]:
        result = list(dict.fromkeys(own if given is None else given))
        if not result:
            raise ConfigurationError(f"{name} is empty; leave it out for the scale's own, {', '.join(map(str, own))}")
        return result

    names = values("activations", activations, base.activations)
    for name in names:
        activation_registry.get(str(name))
    rates = values("learning rates", learning_rates, base.learning_rates)
    keeps = values("keep probabilities", keep_probabilities, base.keep_probabilities)
    first_seeds = values("seeds", seeds, base.seeds)
    all_seeds = first_seeds if seeds is not None or scale != "powered" else list(POWERED_SEEDS)

    def run(name: object, keep: object, rate: object, seed: object) -> RunConfig:
        return RunConfig(
            experiment=experiment,
            dataset=base.dataset,
            dataset_sha256=datasets.content_hash(base.dataset),
            train_examples=base.train_examples,
            validation_examples=base.validation_examples,
            network="perceptron",
            hidden=base.hidden,
            activation=name,  # type: ignore[arg-type]
            initialisation="unit-norm",
            optimiser="adam-tensorflow",
            learning_rate=rate,  # type: ignore[arg-type]
            keep_probability=keep,  # type: ignore[arg-type]
            batch_size=base.batch_size,
            epochs=base.epochs,
            precision="float32",
            seed=seed,  # type: ignore[arg-type]
        )

    if scale == "powered":  # the choice is made on the paper's seeds; more seeds serve the comparison
        first_seeds = [seed for seed in first_seeds if seed in PAPER_SEEDS] or first_seeds
    configs = [run(*values) for values in product(names, keeps, rates, first_seeds)]
    if scale == "powered" and chosen is not None:
        for name, keep in product(names, keeps):
            if (name, keep) not in chosen:
                raise ConfigurationError(f"no learning rate was chosen for {name} at keep probability {keep}")
            configs += [run(name, keep, chosen[(str(name), float(keep))], seed) for seed in all_seeds]  # type: ignore[arg-type]
    return list({config.key: config for config in configs}.values())
