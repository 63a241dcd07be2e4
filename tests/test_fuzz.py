"""Text that people and files give, under fuzzing: options, parameters, parameter cells and checkpoints end in documented errors."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import tempfile
import warnings
from pathlib import Path

import nbformat
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from fuzzing import ANYTHING, DEEP, JSON, UNPRINTABLE, fuzz, mangled, outcome
from gelu_study import cli, datasets, notebooks, protocols, training
from gelu_study.checkpoints import Checkpoint, Checkpoints
from gelu_study.errors import CheckpointWarning, NotebookError
from gelu_study.runs import RunRecord

# ------------------------------------------------------------------------------------------- options

_WRITTEN = st.text(st.sampled_from("0123456789-,. eE+_naif٣²\t\n=[]{}\"'x"), max_size=30)
TEXTS = st.one_of(
    _WRITTEN,
    st.text(max_size=30),
    DEEP,
    st.sampled_from(
        ["9" * 5_000, "1" * 100_000, "0-" * 9_000, "1e999", "-0", "0-100000 " * 900, "5-4", "2147483648", "1e" + "9" * 50]
    ),
)


@fuzz(300)
@given(TEXTS)
def test_any_text_of_an_option_is_a_value_in_range_or_an_argument_error(text):
    def value(read):
        return outcome(argparse.ArgumentTypeError, read, text)

    seeds = value(cli.seeds)
    assert seeds is None or (0 < len(seeds) <= 100_001 and all(type(seed) is int and seed >= 0 for seed in seeds))
    words, numbers = value(cli.words), value(cli.numbers)
    assert words is None or (words and all(word and "," not in word and not word.isspace() for word in words))
    assert numbers is None or len(numbers) == len(words)
    positive, seconds = value(cli.positive), value(cli.seconds)
    assert positive is None or (type(positive) is int and positive >= 1)
    assert seconds is None or 0 < seconds < math.inf


@fuzz(300)
@given(
    st.one_of(TEXTS, JSON.map(json.dumps)),
    st.one_of(st.sampled_from(["seeds", "scale", "_", "ñ"]), st.text(max_size=5).filter(lambda name: "=" not in name)),
)
@example("[" * 100_000, "seeds")
def test_any_text_of_a_notebook_s_parameter_is_a_value_or_an_argument_error(text, name):
    found = outcome(argparse.ArgumentTypeError, cli.parameter, f"{name}={text}")
    if found is None:
        assert not name.isidentifier()
        return
    value = found[1]
    assert found[0] == name
    try:
        expected = json.loads(text)
    except (ValueError, RecursionError):
        expected = text
    assert value == expected or value != value or str(value) == str(expected)  # the latter two of NaN


# ------------------------------------------------------------------------------------------- parameters of notebooks

CELL = """\
words = "paper"  # a text
counts: list[int] = []  # numbers
rates = [1e-3, 1]  # some more
keep: float = 0.5  # one
flag = True  # or not
"""
TYPES = {"words": str, "counts": int, "rates": float, "keep": float, "flag": bool}
"""None is a name that `parameters.ALLOWED` knows: what that allows is tested elsewhere."""


def write(folder: Path, source: str) -> Path:
    path = folder / "a.ipynb"
    cell = nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]})
    content = nbformat.v4.new_notebook(cells=[cell])
    content.cells[0].source = source
    path.write_text(json.dumps(content))
    return path


@fuzz(300)
@given(st.dictionaries(st.one_of(st.sampled_from(list(TYPES)), st.text(max_size=6)), ANYTHING, max_size=3))
@example({"keep": 10**400})
@example({"rates": [0.5, -(10**400)]})
def test_any_value_of_a_parameter_has_its_type_or_is_a_notebook_error(tmp_path, values):
    found = outcome(NotebookError, notebooks.validate, write(tmp_path, CELL), values)
    if found is None:
        return
    assert set(found) == set(values)
    for name, value in found.items():
        assert all(type(element) is TYPES[name] for element in (value if isinstance(value, list) else [value]))
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("value", UNPRINTABLE.values(), ids=UNPRINTABLE)
def test_a_value_that_cannot_be_printed_is_a_notebook_error(tmp_path, name, value):
    with pytest.raises(NotebookError, match=f"parameter {name} .* must be of type"):
        notebooks.validate(write(tmp_path, CELL), {name: value})


def test_a_value_that_is_nested_too_deeply_for_json_ends_in_one_line(capsys):
    for text in ("[" * 100_000, "[" * 900 + "]" * 900, "9" * 5_000, "1e999", '{"a":' * 100_000):
        assert cli.main(["notebook", "mnist-classifier", "-p", f"seeds={text}"]) == 2
        error = capsys.readouterr().err
        assert "parameter seeds of mnist-classifier.ipynb is" in error and error.count("\n") == 1 and len(error) < 1_000


CELLS = st.one_of(
    mangled(st.just(CELL.encode())).map(lambda content: content.decode(errors="replace")),
    st.text(max_size=60),
    st.builds("value = {}  # of some kind".format, st.one_of(TEXTS, ANYTHING.map(ascii), JSON.map(json.dumps))),
    st.builds(
        "value: {} = {}  # of its type".format,
        st.sampled_from(["float", "int", "list[int]", "list[float]", "bool", "str"]),
        JSON.map(repr),
    ),
    DEEP,
)


@fuzz(300)
@given(CELLS)
@example("value: float = [1]  # a list")
@example("value: list[int] = 5  # no list")
@example("value: float = 'a'  # no number")
@example("value: float = " + "9" * 400 + "  # too large")
@example("value = {[]: 1}  # a key that cannot be one")
@example("value = 1\0  # a null")
@example("value = " + "[" * 5_000 + "]" * 5_000 + "  # nested")
@example("value = " + "-" * 50_000 + "1  # signs")
@example("value = " + "(" * 150 + "1" + ")" * 150 + "  # brackets")
def test_any_parameters_cell_is_read_or_a_notebook_error(tmp_path, source):
    path = write(tmp_path, source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        found = outcome(NotebookError, notebooks.parameters, path)
        if found is not None:
            defaults = {name: parameter.default for name, parameter in found.items()}
            assert notebooks.validate(path, defaults).keys() == found.keys()


_NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": CELL, "outputs": [], "execution_count": None, "id": "a"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})  # fmt: skip


@st.composite
def notebook_texts(draw: st.DrawFn) -> str:
    """A notebook with one of its values replaced."""
    content = json.loads(_NOTEBOOK)
    place = draw(st.sampled_from([content, content["cells"][0], content["cells"][0]["metadata"]]))
    place[draw(st.sampled_from(sorted(place)))] = draw(JSON)
    return json.dumps(content)


@fuzz(150, slower=2)
@given(
    st.one_of(
        mangled(st.just(_NOTEBOOK.encode())),
        st.one_of(notebook_texts(), JSON.map(json.dumps), DEEP).map(str.encode),
        st.binary(max_size=40),
    )
)
@pytest.mark.filterwarnings("ignore::nbformat.warnings.MissingIDFieldWarning", "ignore::nbformat.warnings.DuplicateCellId")
def test_any_file_is_a_notebook_with_parameters_or_a_notebook_error(tmp_path, content):
    path = tmp_path / "any.ipynb"
    path.write_bytes(content)
    outcome(NotebookError, notebooks.parameters, path)


# ------------------------------------------------------------------------------------------- checkpoints

CONFIG = dataclasses.replace(protocols.plan("mnist-classifier", "smoke")[0], hidden=(8, 8))
LONGER = dataclasses.replace(CONFIG, epochs=3)


@functools.cache
def sound() -> bytes:
    """A checkpoint as training leaves it."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder, keep=True)
        training.train([CONFIG], datasets.load("digits"), torch.device("cpu"), checkpoints=checkpoints)
        return checkpoints.path(CONFIG).read_bytes()


@functools.cache
def fresh() -> RunRecord:
    """The record of the longer run, trained in one go."""
    return training.train([LONGER], datasets.load("digits"), torch.device("cpu"))[0]


def read(folder: Path, content: bytes) -> Checkpoint | None:
    """What is read of a checkpoint's file; nothing, with one `CheckpointWarning`, where it is of no use."""
    checkpoints = Checkpoints(folder)
    checkpoints.path(LONGER).write_bytes(content)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = checkpoints.read([LONGER])
    assert [item.category for item in said] == [CheckpointWarning] * (not found)
    return found[0] if found else None


@st.composite
def flipped(draw: st.DrawFn) -> bytes:
    """A sound checkpoint with one bit the other way."""
    content = bytearray(sound())
    content[draw(st.integers(0, len(content) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(content)


@fuzz(100, slower=2)
@given(content=st.one_of(flipped(), mangled(st.builds(sound)), st.binary(max_size=60)))
def test_any_bytes_of_a_checkpoint_are_the_sound_one_or_a_warning(tmp_path, content):
    found, whole = read(tmp_path, content), read(tmp_path, sound())
    assert whole is not None
    if found:
        assert (found.epoch, found.log, found.parts, found.tensors.keys()) == (
            whole.epoch,
            whole.log,
            whole.parts,
            whole.tensors.keys(),
        )
        assert all(torch.equal(found.tensors[name], value) for name, value in whole.tensors.items())
