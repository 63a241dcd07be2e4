"""Configurations and records: one name for one meaning, strict files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gelu_study import activations, datasets, protocols, titles, training
from gelu_study.errors import ConfigurationError, LedgerError, NewerRecordError
from gelu_study.runs import RunConfig, RunRecord

CONFIG = protocols.plan("mnist-classifier", "paper")[0]


def test_key_is_the_hash_of_sorted_json():
    text = json.dumps(CONFIG.to_dict(), sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == CONFIG.key


def test_key_of_the_papers_first_run_is_pinned():
    """The records in data/runs are found by these keys: a change here orphans them all."""
    assert CONFIG.key == "23fc9fd2dc3565de52257b5e6e50763bc0ace6da0687a8867e56ef64c99a6f70"


def test_equal_meaning_equal_key():
    values = CONFIG.to_dict()
    same = RunConfig.from_dict({**values, "hidden": tuple(values["hidden"]), "keep_probability": 1, "learning_rate": 0.001})
    assert same == CONFIG and same.key == CONFIG.key


OTHER = {
    "experiment": "other", "dataset": "digits", "dataset_sha256": "0" * 64, "train_examples": 1000, "validation_examples": 10,
    "hidden": (128,) * 7, "activation": "gelu", "learning_rate": 2e-3, "keep_probability": 0.5, "batch_size": 64, "epochs": 2,
    "seed": 9, "engine": 99, "network": "autoencoder", "initialisation": "he", "optimiser": "sgd", "normalisation": "layer",
    "test_noise": (0.0, 0.5), "precision": "bfloat16",
}  # fmt: skip

IMAGES = RunConfig(
    "cifar10-convnet", "cifar10", datasets.content_hash("cifar10"), 45_000, 5_000, "shallow-convnet", (96,) * 9, "gelu_tanh", "glorot",
    "nesterov", 1e-3, 0.5, 100, 200, "float32", 0, normalisation="batch", preprocessing="zca",
)  # fmt: skip
OTHER_IMAGES = {
    "preprocessing": "channels", "augmentation": "mirrors-and-crops", "input_noise": 0.15, "schedule": "cosine", "momentum": 0.85,
    "weight_decay": 5e-4, "label_smoothing": 0.2, "test_views": 6,
}  # fmt: skip


CHANGED = [(CONFIG, name, value) for name, value in OTHER.items()] + [(IMAGES, name, value) for name, value in OTHER_IMAGES.items()]


@pytest.mark.parametrize(("config", "name", "value"), CHANGED, ids=[name for _, name, _ in CHANGED])
def test_every_field_changes_the_key(config, name, value):
    other = dataclasses.replace(config, **{name: value})
    assert other.key != config.key
    assert RunConfig.from_dict(json.loads(json.dumps(other.to_dict()))) == other


def test_no_field_is_left_out_above():
    assert {item.name for item in dataclasses.fields(RunConfig)} == set(OTHER) | set(OTHER_IMAGES)


def test_later_fields_leave_older_keys_alone():
    """Those at their default are no part of the canonical form: the records before them keep their names."""
    assert not {"normalisation", "test_noise", *OTHER_IMAGES} & set(CONFIG.to_dict())
    other = dataclasses.replace(CONFIG, normalisation="batch", test_noise=(0, 1))
    assert other.to_dict()["normalisation"] == "batch" and other.to_dict()["test_noise"] == [0.0, 1.0]
    assert RunConfig.from_dict(other.to_dict()) == other
    assert RunConfig.from_dict({**CONFIG.to_dict(), "normalisation": "none", "test_noise": []}) == CONFIG


def test_a_trajectory_is_a_run_of_any_length():
    assert dataclasses.replace(CONFIG, epochs=7).trajectory == CONFIG.trajectory
    assert dataclasses.replace(IMAGES, epochs=7).trajectory == IMAGES.trajectory
    for scheduled in (dataclasses.replace(IMAGES, schedule="cosine"), dataclasses.replace(IMAGES, optimiser="nesterov-lookahead")):
        assert dataclasses.replace(scheduled, epochs=7).trajectory != scheduled.trajectory
    for config, name, value in CHANGED:
        if name != "epochs":
            assert dataclasses.replace(config, **{name: value}).trajectory != config.trajectory


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("activation", "swish", "unknown activation"), ("network", "cnn", "known are perceptron"), ("epochs", 0, "at least 1"),
        ("epochs", True, "must be of type int"), ("epochs", 5.0, "must be of type int"), ("learning_rate", 0, "positive"),
        ("learning_rate", float("nan"), "positive"), ("learning_rate", float("inf"), "positive"), ("learning_rate", "1e-3", "type float"),
        ("keep_probability", 0, r"\(0, 1\]"), ("keep_probability", 1 - 1e-10, "away from 0 and 1"), ("learning_rate", 10**400, "type float"), ("keep_probability", 1.5, r"\(0, 1\]"), ("hidden", (), "each hidden layer"),
        ("hidden", (128, 0), "at least 1"), ("hidden", 128, "type tuple"), ("batch_size", 60_000, "exceeds"), ("seed", -1, "seed"),
        ("precision", "float16", "known are float32"), ("validation_examples", -1, "at least 0"), ("test_noise", (-1.0,), "at least 0"),
        ("test_noise", (float("inf"),), "finite"), ("test_noise", 1.0, "type tuple"), ("normalisation", "group", "known are none, batch"),
        ("initialisation", "xavier", "known are unit-norm"), ("activation", None, "type str"),
    ],
)  # fmt: skip
def test_bad_values_are_refused(name, value, message):
    with pytest.raises(ConfigurationError, match=message):
        dataclasses.replace(CONFIG, **{name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initialisation": "unit-norm"}, "for network shallow-convnet; known are glorot"), ({"optimiser": "adam"}, "known are adam-theano"),
        ({"normalisation": "none"}, "known are batch"), ({"preprocessing": "unit"}, "known are zca"), ({"augmentation": "crops"}, "mirrors-and-crops"),
        ({"schedule": "step"}, "half-then-linear"), ({"precision": "float16"}, "tf32"), ({"activation": "soi"}, "fully connected"),
        ({"momentum": 1.0}, "momentum is 1.0; it must be at least 0 and below 1"), ({"input_noise": -0.1}, "at least 0"),
        ({"weight_decay": float("inf")}, "below inf"), ({"label_smoothing": float("nan")}, "below 1"), ({"test_views": 3}, "1 or 6"),
        ({"optimiser": "adam-theano", "momentum": 0.5}, "leave it out"), ({"test_noise": (1.0,)}, "perceptrons"),
    ],
)  # fmt: skip
def test_bad_values_for_convolutional_networks_are_refused(change, message):
    with pytest.raises(ConfigurationError, match=message):
        dataclasses.replace(IMAGES, **change)


@pytest.mark.parametrize(("name", "value"), OTHER_IMAGES.items())
def test_dense_networks_have_none_of_what_images_have(name, value):
    with pytest.raises(ConfigurationError, match=name):
        dataclasses.replace(CONFIG, **{name: value})


def test_mirrored_copies_double_an_epoch():
    config = dataclasses.replace(IMAGES, augmentation="mirrors-and-crops", batch_size=128)
    assert (config.steps_per_epoch, IMAGES.steps_per_epoch) == (90_000 // 128, 450)


def test_unknown_and_absent_fields_are_refused():
    values = CONFIG.to_dict()
    values["depth"] = values.pop("seed")
    with pytest.raises(ConfigurationError, match=r"unknown fields \['depth'\] and absent fields \['seed'\]"):
        RunConfig.from_dict(values)


def record() -> RunRecord:
    return RunRecord(CONFIG, "diverged", {"step": 7, "epoch": 1}, {name: [] for name in CONFIG.curves}, {}, {}, {"device": "cpu"})


def test_record_round_trip():
    assert RunRecord.from_json(record().to_json()) == record()


def test_record_has_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        dataclasses.replace(record(), final={"train_loss": float("nan")}).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(schema=True), "schema True"), (lambda r: r.update(schema=0), "schema 0"), (lambda r: r.update(key="0" * 64), "not that of its configuration"),
        (lambda r: r["config"].update(seed=4), "not that of its configuration"), (lambda r: r.pop("final"), "expected"),
        (lambda r: r.update(status="done"), "status"), (lambda r: r.update(diverged=None), "does not go with"),
        (lambda r: r.update(status="finished", diverged=None), "final has"), (lambda r: r.update(curves={"train_loss": ["x"]}), "numbers"),
        (lambda r: r.update(config=[]), "not an object"), (lambda r: r.update(curves={"train_loss": 3}), "not a list"),
        (lambda r: r.update(diverged={"step": "x", "epoch": 1}), "a step and an epoch"),
    ],
)  # fmt: skip
def test_damaged_records_are_refused(change, message):
    entries = json.loads(record().to_json())
    del entries["sha256"]  # as in an older record: what else there is must notice
    change(entries)
    with pytest.raises(LedgerError, match=message):
        RunRecord.from_json(json.dumps(entries))


def test_a_record_ends_with_the_hash_of_the_exact_text_before():
    before, _, last = record().to_json().rpartition('"sha256": ')
    assert last == f'"{hashlib.sha256(before.encode()).hexdigest()}"\n}}\n' and before.endswith(",\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"cpu"', '"gpu"'), lambda text: text.replace(", ", ",", 1), lambda text: text + " ",
        lambda text: json.dumps(json.loads(text)), lambda text: text.replace('"cpu"', '"\ud800"'),
        lambda text: text.replace('"sha256": "', '"sha256": "0'),
    ],
)  # fmt: skip
def test_any_change_of_the_text_is_noticed(change):
    with pytest.raises(LedgerError, match=r"sha256 is not that of its text|strict JSON"):
        RunRecord.from_json(change(record().to_json()))


def test_records_of_a_newer_version_are_told_from_damaged_ones():
    text = record().to_json()
    with pytest.raises(NewerRecordError, match="schema 2, and this version of the package reads 1"):
        RunRecord.from_json(text.replace('"schema": 1', '"schema": 2').replace('"final"', '"end"'))
    with pytest.raises(LedgerError, match="it says schema 2, and in all else is a sound record of schema 1"):
        RunRecord.from_json(text.replace('"schema": 1', '"schema": 2'))
    entries = json.loads(text)
    for change in ({"sparsity": 1}, {"activation": "not known yet"}):
        config = {**entries["config"], **change}
        key = hashlib.sha256(json.dumps(config, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        with pytest.raises(NewerRecordError, match="does not know its configuration") as newer:
            RunRecord.from_json(json.dumps({**entries, "config": config, "key": key}))
        assert newer.value.key == key
        with pytest.raises(LedgerError, match=r"^configuration: ") as damaged:
            RunRecord.from_json(json.dumps({**entries, "config": config}))
        assert not isinstance(damaged.value, NewerRecordError)


def test_every_activation_has_a_title():
    assert list(titles.FUNCTIONS) == activations.names()


@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_harmless(position, byte):
    """Whatever one byte becomes, the reader gives a record or a `LedgerError`, nothing else; an older record, without a checksum."""
    text = record().to_json()
    raw = bytearray((text[: text.rindex(',\n"sha256"')] + "\n}\n").encode())
    raw[position % len(raw)] = byte
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return
    with contextlib.suppress(LedgerError):
        assert RunRecord.from_json(text).config == CONFIG


@pytest.fixture(scope="module")
def trained():
    smoke = protocols.plan("mnist-classifier", "smoke", activations=["relu"], keep_probabilities=[1.0], seeds=[0])[0]
    noisy = dataclasses.replace(smoke, test_noise=(0.0, 1.0), epochs=3)
    wild = dataclasses.replace(smoke, learning_rate=1e30)
    data, cpu = datasets.load("digits"), torch.device("cpu")
    return training.train([noisy], data, cpu)[0], training.train([wild], data, cpu)[0]


def test_a_best_epoch_that_is_not_the_best_is_refused(trained):
    """Or else somebody could choose it on test data."""
    record = trained[0]
    other = next(epoch for epoch in (1, 2, 3) if record.curves["validation_loss"][3 * epoch - 1] != record.best["validation_loss"])
    names = {name: "train_loss_epoch" if name == "train_loss" else name for name in record.config.measures}
    best = {name: record.curves[curve][record.config.curves[curve] * other - 1] for name, curve in names.items()}
    steps = record.config.steps_per_epoch
    chosen = dataclasses.replace(record, best={**best, "epoch": other, "step": other * steps})
    with pytest.raises(LedgerError, match="not that of least validation loss"):
        RunRecord.from_json(chosen.to_json())
    with pytest.raises(LedgerError, match="not that of least validation loss"):
        RunRecord.from_json(dataclasses.replace(record, best={**record.best, "step": 1}).to_json())


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("noise_error", [1.0, 100.5], "exceeds 100"), ("test_wrong", [4, 4], "ascending places"), ("test_wrong", [4.0], "ascending"),
        ("noise_loss", [1.0], "noise_loss has 1 values"),
    ],
)  # fmt: skip
def test_impossible_curves_are_refused(trained, name, values, message):
    record = trained[0]
    with pytest.raises(LedgerError, match=message):
        RunRecord.from_json(dataclasses.replace(record, curves={**record.curves, name: values}).to_json())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"diverged": {"step": 0, "epoch": 1}}, "is not in epoch"), ({"diverged": {"step": 1, "epoch": 2}}, "is not in epoch"),
        ({"diverged": {"step": 10**6, "epoch": 10**4}}, "is not in epoch"), ({"final": {"test_error": 1.0}}, "neither final nor best"),
        ({"curves": {"train_loss": [1.0]}}, "do not end with epoch"), ({"curves": {}}, "do not end with epoch"),
    ],
)  # fmt: skip
def test_impossible_diverged_runs_are_refused(trained, changes, message):
    record = trained[1]
    assert RunRecord.from_json(record.to_json()) == record
    with pytest.raises(LedgerError, match=message):
        RunRecord.from_json(dataclasses.replace(record, **changes).to_json())


def test_a_finished_run_cannot_be_called_diverged(trained):
    with pytest.raises(LedgerError, match="neither final nor best"):
        RunRecord.from_json(dataclasses.replace(trained[0], status="diverged", diverged={"step": 1, "epoch": 1}).to_json())
