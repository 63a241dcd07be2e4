"""What the parameters of notebooks may be, by name, and the one line that says so when one is something else.

A name means the same in every notebook. `notebooks.validate` holds the values that papermill injects against this table before a
kernel starts, and each notebook's first cell calls `check` for those that a person typed.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gelu_study import datasets, titles
from gelu_study.datasets import downloads
from gelu_study.errors import ConfigurationError

SCALARS = ("bool", "int", "float", "str")


def is_of(kind: str, value: object) -> bool:
    """Whether a value is of a type "int", "list[int]", ...; an int passes for a float, a bool for no number, and no float may be
    infinite or NaN."""
    if kind.startswith("list["):
        return isinstance(value, list | tuple) and all(is_of(kind[5:-1], element) for element in value)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "float":  # an int is compared as it is: as a float it might overflow
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, str)


def shown(value: object) -> str:
    """A value in a message, of which some cannot be printed: they are nested too deeply, or numbers of too many digits."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):
        return "a value too large to print"
    return text if len(text) <= 200 else f"{text[:200]}..."


@dataclass(frozen=True)
class Allowed:
    """What a parameter may be: its type, in words what is allowed, and the test of a value, or of each element of a list."""

    type: str
    words: str
    accepts: Callable[[Any], bool]
    among: tuple[str, ...] = ()
    one_at_least: bool = False  #: of a list

    def complaint(self, name: str, value: object) -> str:
        """What is wrong with a value, in a line; empty for a good one."""
        if not is_of(self.type, value):
            return f"{name} is {shown(value)}; it must be {self.words}"
        elements: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
        if self.one_at_least and not elements:
            return f"{name} is empty; it must be {self.words}, one at least"
        for element in elements:
            if not self.accepts(element):
                near = difflib.get_close_matches(element, self.among, n=1) if isinstance(element, str) else []
                hint = f"; did you mean {near[0]!r}?" if near else ""
                where = f"{name} has {shown(element)} in it" if self.type.startswith("list[") else f"{name} is {shown(value)}"
                return f"{where}; it must be {self.words}{hint}"
        return ""


def _among(*known: str, many: bool = False, empty: bool = False) -> Allowed:
    listed = ", ".join(known)
    words = f"a list of names among {listed}" if many else f"one of {listed}"
    if empty:
        words += ", or empty: the scale's own"
    kind = "list[str]" if many else "str"
    return Allowed(kind, words, lambda name: name in known or (empty and not many and name == ""), known, many and not empty)


def _number(kind: str, low: float = float("-inf"), high: float = float("inf"), above: bool = False) -> Allowed:
    """A number from `low` to `high`, or above `low`."""
    many = kind.startswith("list[")
    word = {"int": "whole number", "float": "number"}[kind.removeprefix("list[").rstrip("]")]
    bounds = f" above {low:g}" if above else f" of at least {low:g}" if low > float("-inf") else ""
    if high < float("inf"):
        bounds = f" above {low:g} and at most {high:g}" if above else f" from {low:g} to {high:,.0f}"
    words = f"a list of {word}s{bounds}" if many else f"a {word}{bounds}"
    return Allowed(kind, words, lambda value: (value > low if above else value >= low) and value <= high)


def _text(words: str, pattern: str) -> Allowed:
    return Allowed("str", words, lambda value: re.fullmatch(pattern, value) is not None)


_SCALES = ("smoke", "quick", "paper", "powered")
_FLAG = Allowed("bool", "True or False", lambda _: True)
_NAMES = (*titles.FUNCTIONS, *titles.STOCHASTIC)
_DTYPES = ("float64", "float32", "bfloat16", "float16")
_WEIGHTS = ("unit-norm", "unit-norm-outgoing", "he", "variance-matched")
_SEED = 2**31 - 1
_KEEP = _number("float", 0, 1, above=True)
_ANY = _number("float")
_COUNT = _number("int", 1)
_STEPS = _number("list[int]", 1)

ALLOWED: dict[str, Allowed] = {
    # of experiments
    "scale": _among(*_SCALES),
    "base_scale": _among(*_SCALES),
    "activations": _among(*_NAMES, many=True, empty=True),
    "learning_rates": _number("list[float]", 0, above=True),
    "keep_probabilities": _number("list[float]", 0, 1, above=True),
    "seeds": _number("list[int]", 0, _SEED),
    "epochs": _number("int", 0, 100_000),
    "dataset": _among(*datasets.NAMES, empty=True),
    "device": _text("auto, cpu, cuda, cuda:N (a number) or mps", r"auto|cpu|cuda(:\d+)?|mps"),
    "train": _FLAG,
    "ledger": _text("the path of a folder, or empty: the project's own records with yours beside them", r"[^\0]*"),
    "repository": _text("the address of a repository, https://..., or empty", r"(https?://\S+)?"),
    # of chapters
    "alpha": _number("float", 0, above=True),
    "autoencoder_epochs": _STEPS,
    "classifier_epochs": _STEPS,
    "compiled": _FLAG,
    "d_model": _COUNT,
    "depth": _number("int", 1, 1_000),
    "differences": _number("list[float]", 0, above=True),
    "download": Allowed("str", f"{', '.join(downloads.NAMES)} or empty", lambda name: name in ("", *downloads.NAMES)),
    "draw_sizes": _STEPS,
    "draws": _number("int", 1, 10_000_000),
    "dropout": _number("float", 0, 1),
    "dtype": _among("float32", "bfloat16"),
    "dtypes": _among(*_DTYPES, many=True),
    "edge_dtype": _among(*_DTYPES),
    "elements": _COUNT,
    "family_high": _ANY,
    "family_low": _ANY,
    "heads": _COUNT,
    "hidden_factor": _number("float", 0, above=True),
    "high": _ANY,
    "initialisation": _among("unit", "glorot", "he", "matched"),
    "initialisations": _among(*_WEIGHTS, many=True),
    "input_second_moment": _number("float", 0, above=True),
    "inputs": _number("list[float]"),
    "layer": _number("int", 1, 30),
    "learning_rate": _number("float", 0, above=True),
    "layers": _COUNT,
    "logarithmic": _FLAG,
    "low": _ANY,
    "measure": _FLAG,
    "most_seeds": _number("int", 3, 100_000),
    "mu": _ANY,
    "negative_slope": _ANY,
    "networks": _number("int", 1, 100_000),
    "offsets": _number("list[float]"),
    "plateau": _number("int", 3),
    "points": _number("int", 1),
    "points_float64": _number("int", 1),
    "reach": _number("float", 0, above=True),
    "resamples": _number("int", 1, 10_000_000),
    "response": _among("train_loss", "best_validation_loss", "best_test_error"),
    "runs_to_pick_from": _COUNT,
    "seconds": _number("float", 0, above=True),
    "seed": _number("int", 0, _SEED),
    "seed_count": _COUNT,
    "sequence_length": _COUNT,
    "shown_activation": _among(*_NAMES),
    "shown_keep_probability": _KEEP,
    "shown_levels": _number("list[float]", 0, 3),
    "shown_seed": _number("int", 0, _SEED),
    "sigma": _number("float", 0, above=True),
    "sigmas": _number("list[float]", 0, above=True),
    "soi_draws": _STEPS,
    "steps": _STEPS,
    "table_points": _number("list[float]"),
    "tokens": _COUNT,
    "units": _among(*_NAMES, "glu", "reglu", "geglu", "swiglu", "bilinear", many=True),
    "vocabulary": _COUNT,
    "weight_std": _number("float", 0),
    "widgets": _FLAG,
    "width": _number("int", 1, 100_000),
    "x": _ANY,
}


def check(values: Mapping[str, object]) -> None:
    """Hold a notebook's variables against what is allowed: those with a parameter's name, in the order of `values`, unless they
    are arrays, modules and the like, which a person may call `x` or `ledger` as well.

    Raises `ConfigurationError` with a line for each that is something else: its name, its value, what is allowed.
    """
    said = [ALLOWED[name].complaint(name, value) for name, value in values.items() if name in ALLOWED and isinstance(value, _PLAIN)]
    wrong = [line for line in said if line]
    if wrong:
        _run_nothing_more()
        raise ConfigurationError("\n".join(wrong))


def _run_nothing_more() -> None:
    """Where a notebook was told to run all cells, those whose requests come a moment after the error are not to run either."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel: Any = getattr(shell, "kernel", None)
    if kernel is not None and hasattr(kernel, "stop_on_error_timeout"):
        kernel.stop_on_error_timeout = max(1.0, kernel.stop_on_error_timeout)  # seconds


_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, set, dict, range, type(None))
