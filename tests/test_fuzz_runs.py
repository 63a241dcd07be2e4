"""Configurations and records under fuzzing: one key for one meaning, documented errors alone, and no byte of a ledger lost."""

from __future__ import annotations

import dataclasses
import json
import math
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import synthetic
from fuzzing import ANYTHING, DEEP, JSON, UNPRINTABLE, fuzz, mangled, outcome
from gelu_study import activations, datasets, protocols, runs
from gelu_study.errors import ConfigurationError, LedgerError
from gelu_study.ledger import Ledger, Snapshot, table
from gelu_study.runs import CHOICES, DENSE, RunConfig, RunRecord

FIELDS = {item.name: item for item in dataclasses.fields(RunConfig)}

_SHARES = st.floats(runs.KEEP_STEP, 1 - runs.KEEP_STEP)
_BY_TYPE: dict[str, st.SearchStrategy[object]] = {
    "str": st.text(max_size=12),
    "int": st.integers(1, 2**40),
    "float": st.one_of(st.just(0.0), _SHARES),
    "tuple[int, ...]": st.lists(st.integers(1, 10_000), min_size=1, max_size=20).map(tuple),
    "tuple[float, ...]": st.lists(st.one_of(st.just(0.0), st.floats(0, 1e6)), max_size=4).map(tuple),
}
_BY_NAME: dict[str, st.SearchStrategy[object]] = {
    "dataset": st.sampled_from(datasets.NAMES),
    "network": st.sampled_from(list(CHOICES)),
    "activation": st.sampled_from([*activations.names(), *activations.STOCHASTIC]),
    "learning_rate": st.floats(0, exclude_min=True, allow_infinity=False),
    "keep_probability": st.one_of(st.just(1.0), _SHARES),
    "seed": st.integers(0, 2**31 - 1),
    "validation_examples": st.one_of(st.just(0), st.integers(0, 10_000)),
    "momentum": st.one_of(st.just(0.9), _SHARES),
    "test_views": st.sampled_from([1, runs.VIEWS]),
}


def values(name: str, network: str) -> st.SearchStrategy[object]:
    """Values of a field that may be valid for the network; of a field that is new here, by its type, and its default."""
    if name in CHOICES[network]:
        return st.sampled_from(CHOICES[network][name])
    own = _BY_NAME.get(name, _BY_TYPE[str(FIELDS[name].type)])
    default = FIELDS[name].default
    return own if default is dataclasses.MISSING else st.one_of(st.just(default), own)


@st.composite
def configurations(draw: st.DrawFn, network: str | None = None) -> RunConfig:
    """A valid configuration of any kind of network."""
    kind = network or draw(_BY_NAME["network"])
    drawn = {name: kind if name == "network" else draw(values(name, kind)) for name in FIELDS}
    drawn["batch_size"] = min(drawn["batch_size"], drawn["train_examples"])
    if kind in DENSE:
        drawn |= runs._OF_IMAGES
    elif not drawn["optimiser"].startswith("nesterov"):
        drawn["momentum"] = 0.9
    if kind != "perceptron":
        drawn["test_noise"] = ()
    try:
        return RunConfig(**drawn)
    except ConfigurationError:
        assume(False)
        raise


def like(draw: st.DrawFn, value: object) -> object:
    """The same value as somebody else would write it."""
    if isinstance(value, list | tuple):
        return draw(st.sampled_from([list, tuple]))(like(draw, element) for element in value)
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 2**53
        forms = [value, np.float64(value), *([int(value)] if whole else [])]
        return draw(st.sampled_from(forms))
    return value


@fuzz(100)
@given(configurations())
def test_a_configuration_goes_through_its_dictionary_and_through_text_unchanged(config):
    assert RunConfig.from_dict(config.to_dict()) == config
    text = runs.canonical_json(config.to_dict())
    again = RunConfig.from_dict(json.loads(text))
    assert again == config and again.key == config.key and again.trajectory == config.trajectory
    assert runs.canonical_json(again.to_dict()) == text


@fuzz(100)
@given(st.data(), configurations())
def test_one_meaning_has_one_key_however_it_is_written(data, config):
    given_values = {name: like(data.draw, value) for name, value in dataclasses.asdict(config).items()}
    for name, default in runs._LATER.items():
        if getattr(config, name) in (default, tuple(default) if isinstance(default, list) else default) and data.draw(
            st.booleans()
        ):
            del given_values[name]
    other = RunConfig.from_dict(dict(data.draw(st.permutations(list(given_values.items())))))
    assert other == config and other.key == config.key and other.trajectory == config.trajectory


def test_minus_nought_is_nought():
    noise = SOUND[1].config
    one, other = (dataclasses.replace(noise, test_noise=(nought, 1.0)) for nought in (0.0, -0.0))
    assert one == other and one.key == other.key


@pytest.mark.parametrize("name", FIELDS)
@fuzz(10, slower=10)
@given(data=st.data())
def test_another_value_of_a_field_is_another_run(name, data):
    """For each field that there is; one whose values are not known here, nor by its type, has no example and fails."""
    kinds = {"network": DENSE, "test_noise": ("perceptron",)}
    networks = kinds.get(name) or [kind for kind in CHOICES if len(CHOICES[kind].get(name, "12")) > 1]
    if name in runs._OF_IMAGES:
        networks = [kind for kind in networks if kind not in DENSE]
    config = data.draw(configurations(data.draw(st.sampled_from(networks))))
    value = data.draw(values(name, config.network).filter(lambda value: value != getattr(config, name)))
    if name == "batch_size":
        value = min(value, config.train_examples)
    elif name == "train_examples":
        value = max(value, config.batch_size)
    assume(value != getattr(config, name))
    try:
        other = dataclasses.replace(config, **{name: value})
    except ConfigurationError:
        assume(False)
    assert other.key != config.key
    endless = config.schedule == "constant" and config.optimiser != "nesterov-lookahead"
    assert (other.trajectory == config.trajectory) == (name == "epochs" and endless)


@pytest.mark.parametrize("name", FIELDS)
@fuzz(20, slower=10)
@given(data=st.data())
def test_any_value_of_any_type_is_a_run_or_a_configuration_error(name, data):
    values_given = dataclasses.asdict(data.draw(configurations()))
    value = data.draw(st.one_of(ANYTHING, st.lists(ANYTHING, max_size=3)))
    config = outcome(ConfigurationError, RunConfig.from_dict, {**values_given, name: value})
    if config is not None:
        assert RunConfig.from_dict(json.loads(runs.canonical_json(config.to_dict()))).key == config.key


@pytest.mark.parametrize("value", UNPRINTABLE.values(), ids=UNPRINTABLE)
def test_a_value_that_cannot_be_printed_is_a_configuration_error(value):
    for name in FIELDS:
        with pytest.raises(ConfigurationError, match=name):
            dataclasses.replace(SOUND[0].config, **{name: value})


@fuzz(200)
@given(st.dictionaries(st.one_of(st.sampled_from(list(FIELDS)), st.text(max_size=5)), ANYTHING), st.booleans())
def test_any_dictionary_is_a_run_or_a_configuration_error(given_values, filled):
    base = protocols.plan("mnist-classifier", "smoke")[0].to_dict() if filled else {}
    outcome(ConfigurationError, RunConfig.from_dict, {**base, **given_values})


# ------------------------------------------------------------------------------------------- records


def _sound() -> list[RunRecord]:
    """Records of each kind: finished and diverged, with test noise and without, dense and convolutional."""
    planned = [
        protocols.plan(experiment, "smoke")[0]
        for experiment in ("mnist-classifier", "mnist-noise", "mnist-autoencoder", "cifar10-fast")
    ]
    draw = np.random.default_rng(0)

    def curve(name: str, epochs: np.ndarray) -> np.ndarray:
        return draw.uniform(0.1, 2, len(epochs))

    return [
        *(synthetic.finished(config, curve, curve) for config in planned),
        *(synthetic.diverged(config) for config in planned[::3]),
    ]


SOUND = _sound()
TEXTS = [record.to_json() for record in SOUND]
_PLACES = ("schema", "key", "config", "status", "diverged", "curves", "final", "best", "environment")


def _place(draw: st.DrawFn, value: object) -> tuple[object, ...]:
    """The place of a value in JSON; one near the top is as likely as all those below it."""
    names = sorted(value) if isinstance(value, dict) else [*range(len(value))] if isinstance(value, list) else []
    if not names:
        return ()
    name = draw(st.sampled_from(names))
    return (name, *(_place(draw, value[name]) if draw(st.booleans()) else ()))


_NEAR = st.sampled_from([lambda v: min(v, 10**9) / 1, lambda v: v + 1, lambda v: -v, lambda v: v * 2, str, bool, lambda v: 10**400])


@st.composite
def altered(draw: st.DrawFn) -> str:
    """A sound record's text with values replaced, taken out or added anywhere in it."""
    entries = json.loads(draw(st.sampled_from(TEXTS)))
    if draw(st.booleans()):
        del entries["sha256"]  # as in records from before it
    for _ in range(draw(st.integers(1, 3))):
        *path, last = _place(draw, entries)
        place = entries
        for step in path:
            place = place[step]
        kind = draw(st.sampled_from(["replaced", "removed", "added", "near"]))
        if kind == "removed":
            del place[last]
        elif kind == "added" and isinstance(place, dict):
            place[draw(st.text(max_size=5))] = draw(JSON)
        elif kind == "near" and type(place[last]) in (int, float):
            place[last] = draw(_NEAR)(place[last])
        else:
            place[last] = draw(JSON)
    return json.dumps(entries)


BYTES = st.one_of(
    mangled(st.sampled_from(TEXTS).map(str.encode)),
    altered().map(lambda text: text.encode("utf-8", "surrogatepass")),
    JSON.map(lambda value: json.dumps(value).encode()),
    DEEP.map(str.encode),
    st.binary(max_size=100),
    st.sampled_from(TEXTS).map(str.encode),
    st.tuples(st.sampled_from(TEXTS), st.sampled_from(_PLACES), DEEP).map(
        lambda drawn: drawn[0].replace(f'"{drawn[1]}": ', f'"{drawn[1]}": {drawn[2]}', 1).encode()
    ),
)


@fuzz(500)
@given(BYTES)
def test_any_text_is_a_record_that_is_written_as_it_was_read_or_a_ledger_error(content):
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return
    record = outcome(LedgerError, RunRecord.from_json, text)
    if record is None:
        return
    again = record.to_json()
    assert RunRecord.from_json(again) == record and RunRecord.from_json(again).to_json() == again
    table([record])


def test_infinity_in_an_environment_is_a_ledger_error():
    entries = json.loads(TEXTS[0])
    entries.pop("sha256")  # as in records from before it
    entries["environment"]["seconds"] = math.inf
    with pytest.raises(LedgerError):
        RunRecord.from_json(json.dumps(entries).replace("Infinity", "1e999"))


@pytest.mark.parametrize("nothing", [False, 0, 5])
def test_what_a_finished_run_says_of_divergence_is_null(nothing):
    entries = json.loads(TEXTS[0])
    entries.pop("sha256")
    with pytest.raises(LedgerError):
        RunRecord.from_json(json.dumps(entries | {"diverged": nothing}))


@fuzz(300)
@given(mangled(st.sampled_from(TEXTS).map(str.encode)))
def test_no_change_of_a_sealed_record_goes_unnoticed(content):
    text = content.decode(errors="replace")
    record = outcome(LedgerError, RunRecord.from_json, text)
    assert record is None or text in TEXTS


def contents(folder: Path) -> Counter[bytes]:
    return Counter(path.read_bytes() for path in folder.rglob("*") if path.is_file())


_KEYS = [record.config.key for record in SOUND]
_NAMES = st.one_of(
    st.sampled_from([f"{key[:2]}/{key}.json" for key in _KEYS]),
    st.sampled_from([f"{key[:2]}/{key[:40]}.json" for key in _KEYS]),
    st.sampled_from(
        ["00/x.json", "damaged/old.json", "ff/.tmp", "notes.json", f"damaged/{_KEYS[0]}.json", "00/ .json", "zz/a.json"]
    ),
)


@fuzz(60, slower=4)
@given(st.dictionaries(_NAMES, BYTES, max_size=5), st.booleans())
def test_a_ledger_of_any_files_keeps_every_byte_and_gives_sound_records_alone(files, snapshot):
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        folder = Path(name)
        for file, content in files.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_bytes(content)
        before = contents(folder)
        book = outcome(LedgerError, Snapshot if snapshot else Ledger, folder)
        if book is not None and (found := outcome(LedgerError, book.read)) is not None:
            gotten = [book.get(key) for key in _KEYS]
            assert {record.config.key for record in found} >= {record.config.key for record in gotten if record}
            assert all(RunRecord.from_json(record.to_json()) == record for record in found)
            assert [record.config.key for record in found] == sorted(record.config.key for record in found)
        assert contents(folder) == before
    assert {item.category.__module__ for item in said} <= {"gelu_study.errors"}
