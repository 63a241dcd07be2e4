"""The reference: which rooms it lists, and what names in docstrings link to."""

from __future__ import annotations

import importlib
import re

import pytest

from gelu_study import paths, reference
from test_contributing import ROOMS

PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(paths.BOOK.glob("api*.md"))}
LISTED = re.search(r"autosummary::\n\n((?:   \w+\n)+)", PAGES["api.md"])
DESCRIBED = [name for text in PAGES.values() for name in re.findall(r"automodule:: gelu_study\.(\S+)", text)]


def test_every_room_is_listed_and_every_module_that_is_described_exists():
    assert LISTED
    assert LISTED[1].split() == sorted(ROOMS)
    assert len(set(DESCRIBED)) == len(DESCRIBED) > 30
    assert {name.split(".")[0] for name in DESCRIBED} <= ROOMS
    for name in DESCRIBED:
        assert importlib.import_module(f"gelu_study.{name}").__doc__


@pytest.mark.parametrize(
    ("name", "module", "expected"),
    [
        ("table", "gelu_study.ledger", "gelu_study.ledger.table"),
        ("ledger.table", "gelu_study.study", "gelu_study.ledger.table"),
        ("stacks.Stack", "gelu_study.networks.convolutional", "gelu_study.networks.stacks.Stack"),
        ("ConfigurationError", "gelu_study.runs", "gelu_study.errors.ConfigurationError"),
        ("ledger.table", "gelu_study", "gelu_study.ledger.table"),
    ],
)
def test_a_name_in_a_docstring_is_looked_for_where_code_would(name, module, expected):
    assert expected in reference.candidates(name, module)


@pytest.mark.parametrize("code", ["--ledger", "x Phi(x)", "data/runs", "[n, 3]", ""])
def test_what_is_no_name_is_no_link(code):
    assert reference.candidates(code, "gelu_study.runs") == []
