"""Configurations and records: one name for one meaning, strict files."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gelu_study import protocols
from gelu_study.errors import ConfigurationError, LedgerError
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


@pytest.mark.parametrize("name", [item.name for item in dataclasses.fields(RunConfig) if item.name in OTHER])
def test_every_field_changes_the_key(name):
    assert dataclasses.replace(CONFIG, **{name: OTHER[name]}).key != CONFIG.key


def test_no_field_is_left_out_above():
    assert {item.name for item in dataclasses.fields(RunConfig)} == set(OTHER)


def test_later_fields_leave_older_keys_alone():
    """Those at their default are no part of the canonical form: the records before them keep their names."""
    assert not {"normalisation", "test_noise"} & set(CONFIG.to_dict())
    other = dataclasses.replace(CONFIG, normalisation="batch", test_noise=(0, 1))
    assert other.to_dict()["normalisation"] == "batch" and other.to_dict()["test_noise"] == [0.0, 1.0]
    assert RunConfig.from_dict(other.to_dict()) == other
    assert RunConfig.from_dict({**CONFIG.to_dict(), "normalisation": "none", "test_noise": []}) == CONFIG


def test_a_trajectory_is_a_run_of_any_length():
    assert dataclasses.replace(CONFIG, epochs=7).trajectory == CONFIG.trajectory
    for name in set(OTHER) - {"epochs"}:
        assert dataclasses.replace(CONFIG, **{name: OTHER[name]}).trajectory != CONFIG.trajectory


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


def test_unknown_and_absent_fields_are_refused():
    values = CONFIG.to_dict()
    values["depth"] = values.pop("seed")
    with pytest.raises(ConfigurationError, match=r"unknown fields \['depth'\] and absent fields \['seed'\]"):
        RunConfig.from_dict(values)


def record() -> RunRecord:
    return RunRecord(CONFIG, "diverged", {"step": 7, "epoch": 1}, {"train_loss": []}, {}, {}, {"device": "cpu"})


def test_record_round_trip():
    assert RunRecord.from_json(record().to_json()) == record()


def test_record_has_no_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        dataclasses.replace(record(), final={"train_loss": float("nan")}).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(schema=2), "schema 2"), (lambda r: r.update(key="0" * 64), "not that of its configuration"),
        (lambda r: r["config"].update(seed=4), "not that of its configuration"), (lambda r: r.pop("final"), "expected"),
        (lambda r: r.update(status="done"), "status"), (lambda r: r.update(diverged=None), "does not go with"),
        (lambda r: r.update(status="finished", diverged=None), "curves has"), (lambda r: r.update(curves={"train_loss": ["x"]}), "numbers"),
        (lambda r: r.update(config=[]), "not an object"), (lambda r: r.update(curves={"train_loss": 3}), "not a list"),
        (lambda r: r.update(diverged={"step": "x", "epoch": 1}), "a step and an epoch"),
    ],
)  # fmt: skip
def test_damaged_records_are_refused(change, message):
    entries = json.loads(record().to_json())
    change(entries)
    with pytest.raises(LedgerError, match=message):
        RunRecord.from_json(json.dumps(entries))


@given(st.integers(0, 2000), st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_harmless(position, byte):
    """Whatever one byte becomes, the reader gives a record or a `LedgerError`, nothing else."""
    raw = bytearray(record().to_json().encode())
    raw[position % len(raw)] = byte
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return
    with contextlib.suppress(LedgerError):
        assert RunRecord.from_json(text).config == CONFIG
