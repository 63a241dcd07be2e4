"""Other libraries' names against those libraries, where they are installed."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from gelu_study import activations
from gelu_study.activations import libraries
from gelu_study.errors import ConfigurationError

POINTS = np.array([-30.0, -6.0, -3.0, -2.27, -1.0, -0.5, -0.01, 0.0, 0.01, 0.7, 1.965, 2.699, 4.0, 19.0])


def pytorch(name: str) -> Any:
    return torch.nn.Identity() if name == "Identity" else getattr(torch.nn.functional, name)


def jax(name: str) -> Any:
    importlib.import_module("jax").config.update("jax_enable_x64", True)
    return getattr(importlib.import_module("jax.nn"), name)


def tensorflow(name: str) -> Any:
    return getattr(importlib.import_module("tensorflow").nn, name)


def keras(name: str) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    module = importlib.import_module("keras")
    module.config.set_floatx("float64")
    part, name = name.split(".")
    return module.layers.LeakyReLU() if part == "layers" else getattr(getattr(module, part), name)


def huggingface(name: str) -> Any:
    return importlib.import_module("transformers.activations").ACT2FN[name]


def timm(name: str) -> Any:
    create = importlib.import_module("timm.layers")
    return create.get_act_layer(name)() if name == "identity" else create.get_act_fn(name)


FINDERS: dict[str, Callable[[str], Any]] = {
    "pytorch": pytorch,
    "jax": jax,
    "tensorflow": tensorflow,
    "keras": keras,
    "huggingface": huggingface,
    "timm": timm,
}


def called(library: str, name: str) -> np.ndarray:
    """The library's function at `POINTS`, as the name, with its argument, says."""
    plain, _, argument = name.rstrip(")").partition("(")
    function = FINDERS[library](plain)
    if argument:
        key, _, value = argument.partition("=")
        function = partial(function, **{key: {"True": True, "False": False}.get(value, value.strip("'"))})
    torchlike = library in ("pytorch", "huggingface", "timm")
    return np.asarray(function(torch.from_numpy(POINTS) if torchlike else POINTS))


# the other libraries are no dependencies of this project: `pytest -m libraries`, with them installed, runs theirs
OTHERS = [pytest.param(library, marks=pytest.mark.libraries) for library in libraries.TITLES if library != "pytorch"]


@pytest.mark.parametrize("library", ["pytorch", *OTHERS])
def test_every_row_is_the_library_s_own_function(library):
    for entry in [entry for entry in libraries.TABLE if entry.library == library]:
        ours = activations.Activation(entry.activation, **entry.parameters)(torch.from_numpy(POINTS)).numpy()
        np.testing.assert_allclose(called(library, entry.name), ours, rtol=1e-6, atol=1e-8, err_msg=f"{library} {entry.name}")


def test_the_rows_of_gelu_are_those_of_the_libraries_documentation():
    tanh = [
        ("jax", "gelu"),
        ("keras", "ops.gelu"),
        ("huggingface", "gelu_new"),
        ("huggingface", "gelu_fast"),
        ("timm", "gelu_tanh"),
    ]
    exact = [("pytorch", "gelu"), ("tensorflow", "gelu"), ("keras", "activations.gelu"), ("huggingface", "gelu"), ("timm", "gelu")]
    assert {libraries.from_library(*row) for row in tanh} == {"gelu_tanh"}
    assert {libraries.from_library(*row) for row in exact} == {"gelu"}
    assert libraries.from_library("huggingface", "quick_gelu") == "gelu_sigmoid"
    assert libraries.from_library("jax", "gelu(approximate=False)") == "gelu"


def test_the_defaults_of_leaky_relu_differ_between_libraries():
    slopes = {
        (entry.library, entry.name): entry.parameters.get("negative_slope", 0.01)
        for entry in libraries.TABLE
        if entry.activation == "leaky_relu"
    }
    assert slopes["pytorch", "leaky_relu"] == slopes["jax", "leaky_relu"] == 0.01
    assert slopes["tensorflow", "leaky_relu"] == slopes["keras", "activations.leaky_relu"] == 0.2
    assert math.isclose(slopes["keras", "layers.LeakyReLU"], 0.3)


def test_the_table_is_sound():
    assert len({(entry.library, entry.name) for entry in libraries.TABLE}) == len(libraries.TABLE)
    assert {entry.library for entry in libraries.TABLE} == set(libraries.TITLES)
    for entry in libraries.TABLE:
        activations.Activation(entry.activation, **entry.parameters)
    # all but the paper's own suggestions have a name elsewhere
    assert set(activations.names()) - {entry.activation for entry in libraries.TABLE} == {"lalu", "calu"}


@pytest.mark.parametrize(
    ("library", "name", "complaint"),
    [
        ("caffe", "relu", "unknown library 'caffe'; known are pytorch, jax, tensorflow, keras, huggingface, timm"),
        ("huggingface", "gelu_10", "Hugging Face's 'gelu_10'; known are gelu, gelu_python, gelu_new"),
        ("jax", "gelu_new", "known are gelu, gelu\\(approximate=True\\)"),
    ],
)
def test_an_unknown_name_lists_the_known(library, name, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        libraries.from_library(library, name)
