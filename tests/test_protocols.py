"""The experiments as lists of runs: how many, which, and whose records they share."""

from __future__ import annotations

from collections import Counter

import pytest

from gelu_study import protocols
from gelu_study.errors import ConfigurationError
from gelu_study.protocols import plan

CHOICE = {(name, keep): 1e-3 for name in ("gelu_tanh", "relu", "elu", "soi", "identity") for keep in (1.0, 0.75, 0.5)}


def keys(configs) -> set[str]:
    return {config.key for config in configs}


@pytest.mark.parametrize(
    ("experiment", "paper", "powered", "shared"),
    [
        ("mnist-classifier", 3 * 3 * 2 * 5, 90 + 3 * 2 * 15, 180),
        ("mnist-noise", 3 * 5, 3 * 20, 0),
        ("mnist-autoencoder", 3 * 4 * 3, 3 * 4 * 3, 0),
        ("mnist-soi", 7 * 3 * 5, 105 + 7 * 15, 2 * (3 * 5 + 15)),
        ("mnist-recipe", 27 * 9 * 3 + 10 * 9 * 3 + 9, 1_008, 0),
        ("mnist-departures", 85, 85, 30),
    ],
)
def test_sizes_and_shared_records(experiment, paper, powered, shared):
    classifier = keys(plan("mnist-classifier", "powered", chosen=CHOICE))
    assert len(plan(experiment, "paper")) == paper
    found = plan(experiment, "powered", chosen=CHOICE)
    assert len(found) == len(keys(found)) == powered
    assert len(keys(found) & classifier) == shared
    assert keys(plan(experiment, "paper")) <= keys(found)


@pytest.mark.parametrize("experiment", protocols.EXPERIMENTS)
def test_scales_never_meet(experiment):
    """No run of one scale is a run of another, but for powered, which is paper with more seeds."""
    found = [keys(plan(experiment, scale)) for scale in ("smoke", "quick", "paper")]
    assert sum(map(len, found)) == len(set.union(*found))
    assert {config.dataset for config in plan(experiment, "smoke")} == {"digits"}


def test_the_autoencoder_is_the_papers():
    (config,) = {
        (c.hidden, c.train_examples, c.validation_examples, c.batch_size, c.epochs, c.network, c.optimiser, c.initialisation)
        for c in plan("mnist-autoencoder", "paper")
    }
    assert config == ((1000, 500, 250, 30, 250, 500, 1000), 60_000, 0, 64, 250, "autoencoder", "adam-tensorflow", "unit-norm")
    assert {c.steps_per_epoch for c in plan("mnist-autoencoder", "paper")} == {937}
    short = plan("mnist-autoencoder", "paper", epochs=50)
    assert {c.epochs for c in short} == {50} and not keys(short) & keys(plan("mnist-autoencoder", "paper"))
    assert {c.trajectory for c in short} == {c.trajectory for c in plan("mnist-autoencoder", "paper")}


def test_noise_differs_from_the_classifier_by_its_measurement_alone():
    classifier = {
        (c.activation, c.seed): c.to_dict()
        for c in plan("mnist-classifier", "paper")
        if c.learning_rate == 1e-3 and c.keep_probability == 1
    }
    for config in plan("mnist-noise", "paper"):
        values = config.to_dict()
        assert values.pop("test_noise") == [k / 4 for k in range(13)]
        assert values | {"experiment": "mnist-classifier"} == classifier[config.activation, config.seed]


def test_the_factorial_is_full_and_the_rest_changes_one_thing():
    runs = plan("mnist-recipe", "paper", seeds=[0])
    cells = Counter((c.activation, c.initialisation, c.optimiser, c.normalisation, c.hidden) for c in runs)
    full = [cell for cell in cells if cell[4] == (128,) * 8 and cell[0] != "gelu"]
    assert len(full) == 81 and set(cells.values()) == {3}
    assert {c.learning_rate for c in runs if c.optimiser == "sgd"} == set(protocols.RATES["sgd"])
    others = [c for c in runs if c.hidden != (128,) * 8]
    assert {(c.optimiser, c.normalisation) for c in others} == {("adam-tensorflow", "none")}
    assert {c.depth for c in others if c.width == 128} == {2, 4, 16} and {c.width for c in others} == {32, 128, 512}


def test_each_departure_changes_one_thing():
    (base,) = plan("mnist-classifier", "paper", activations=["relu"], learning_rates=[1e-3], keep_probabilities=[1], seeds=[0])
    (gelu,) = plan("mnist-classifier", "paper", activations=["gelu_tanh"], learning_rates=[1e-3], keep_probabilities=[1], seeds=[0])
    changed = Counter()
    for config in plan("mnist-departures", "paper", seeds=[0]):
        if config.keep_probability == 1 and config.activation in ("relu", "gelu"):
            of = base if config.activation == "relu" else gelu
            ours, theirs = config.to_dict(), of.to_dict()
            changed[tuple(sorted(name for name in ours if ours[name] != theirs[name] and name != "experiment"))] += 1
    assert changed == {
        (): 1, ("activation",): 1, ("initialisation",): 1, ("optimiser",): 1, ("train_examples", "validation_examples"): 1,
    }  # fmt: skip


def test_what_is_given_selects_from_a_variants_own():
    soi = plan("mnist-soi", "paper", activations=["relu", "soi"], keep_probabilities=[1.0, 0.75], learning_rates=[1e-3], seeds=[7])
    assert [(c.activation, c.keep_probability, c.experiment) for c in soi] == [
        ("soi", 1.0, "mnist-soi"), ("relu", 1.0, "mnist-classifier"), ("relu", 0.75, "mnist-soi"),
    ]  # fmt: skip
    assert {c.activation for c in plan("mnist-noise", "paper", activations=["silu"])} == {"silu"}
    with pytest.raises(ConfigurationError, match="has no such runs"):
        plan("mnist-soi", "paper", activations=["elu"])
    with pytest.raises(ConfigurationError, match=r"known are gelu, .*soi"):
        plan("mnist-soi", "paper", activations=["sio"])
    with pytest.raises(ConfigurationError, match="learning rates is empty"):
        plan("mnist-soi", "paper", learning_rates=[])
    with pytest.raises(ConfigurationError, match="epochs is 0"):
        plan("mnist-soi", "paper", epochs=0)
    with pytest.raises(ConfigurationError, match="no learning rate was chosen for soi"):
        plan("mnist-soi", "powered", chosen={})


PLAIN = {(name, keep): 1.5 for name in ("gelu_tanh", "relu", "elu") for keep in (1.0, 0.5)}


@pytest.mark.parametrize(("experiment", "finals", "powered"), [("cifar10-convnet", 3 * 3, 3 * 10), ("cifar10-fast", 3 * 5, 3 * 100)])
def test_cifar10_chooses_on_held_out_images_and_then_trains_on_all(experiment, finals, powered):
    grid = plan(experiment, "paper")
    assert len(grid) == 9 and {(c.train_examples, c.validation_examples, c.seed) for c in grid} == {(45_000, 5_000, 0)}
    for scale, count in (("paper", finals), ("powered", powered)):
        more = [c for c in plan(experiment, scale, chosen=PLAIN) if c not in grid]
        assert len(more) == count
        assert {(c.train_examples, c.validation_examples, c.learning_rate) for c in more} == {(50_000, 0, 1.5)}


def test_seeds_that_are_given_are_those_of_the_runs_after_the_choice():
    assert {c.seed for c in plan("cifar10-fast", "paper", seeds=[3, 7])} == {0}
    more = plan("cifar10-fast", "paper", seeds=[3, 7], chosen=PLAIN)
    assert {c.seed for c in more if not c.validation_examples} == {3, 7}


def test_a_single_learning_rate_needs_no_choice():
    given = plan("cifar10-fast", "paper", learning_rates=[1.5], activations=["silu"])
    assert {(c.train_examples, c.validation_examples) for c in given} == {(50_000, 0)} and [c.seed for c in given] == list(range(5))
    assert given == plan("cifar10-fast", "paper", activations=["silu"], chosen={("silu", 1.0): 1.5})[3:]
    assert not protocols.grid("cifar10-fast", "paper", None, [1.5]).more
    assert protocols.grid("cifar10-fast", "paper", None, [1.5, 3.0]) == protocols.grid("cifar10-fast", "paper")


def test_the_convolutional_protocols_are_the_papers():
    (shallow,) = {(c.hidden, c.epochs, c.batch_size, c.keep_probability, c.input_noise, c.optimiser, c.schedule) for c in plan("cifar10-convnet", "paper")}
    assert shallow == ((96,) * 3 + (192,) * 6, 200, 100, 0.5, 0.15, "adam-theano", "half-then-linear")
    assert {c.learning_rate for c in plan("cifar10-convnet", "paper")} == {1e-3, 1e-4, 1e-5}
    (wide,) = {(c.hidden.count(64), c.depth, c.epochs, c.batch_size, c.learning_rate, c.keep_probability, c.steps_per_epoch) for c in plan("cifar100-wrn", "paper")}
    assert wide == (12, 37, 50, 128, 0.1, 0.7, 100_000 // 128)
