"""What the start page says of this machine, against the folders themselves."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote, urlsplit

import pandas as pd
import pytest

from gelu_study import datasets, pages, paths, protocols, start, sweep
from gelu_study.errors import DataError
from gelu_study.ledger import Ledger


@pytest.fixture
def tables(monkeypatch) -> list[pd.DataFrame]:
    shown: list[pd.DataFrame] = []
    monkeypatch.setattr(pages, "plain_table", shown.append)
    return shown


def test_records_are_counted_by_whose_they_are(tables, shown, tmp_path, monkeypatch, smoke):
    monkeypatch.setattr(paths, "OWN", tmp_path / "<own>")
    monkeypatch.setattr(paths, "LEDGER", tmp_path / "project")
    start.standing("smoke")
    before = tables[-1].set_index("experiment")
    assert list(before.index) == list(protocols.EXPERIMENTS)
    assert (before["missing"] == before["runs"]).all() and (before[["the project's", "your own"]] == 0).all(axis=None)
    sweep.complete(smoke[:4], Ledger(paths.LEDGER), device="cpu")
    sweep.complete(smoke[2:7], Ledger(paths.OWN), device="cpu")
    start.standing("smoke")
    row = tables[-1].set_index("experiment").loc["mnist-classifier"]
    assert list(row[["runs", "the project's", "your own", "missing"]]) == [12, 4, 3, 5]
    assert row["data"] == "digits, here"
    assert "&lt;own&gt;" in shown[-1]


def test_a_data_set_is_downloaded_where_it_is_named_and_only_there(tables, monkeypatch):
    fetched: list[str] = []
    monkeypatch.setattr(datasets, "fetch", fetched.append)
    monkeypatch.setattr(datasets, "available", lambda name: name in ("digits", *fetched))
    start.data("")
    assert fetched == [] and dict(tables[-1].values) == dict.fromkeys(datasets.NAMES, "not here yet") | {"digits": "here"}
    start.data("mnist")
    assert fetched == ["mnist"] and dict(tables[-1].values)["mnist"] == "here"

    def fails(name: str) -> None:
        raise DataError("no network")

    monkeypatch.setattr(datasets, "fetch", fails)
    with pytest.raises(DataError, match="no network"):
        start.data("cifar10")


def test_every_notebook_has_a_link_on_the_start_page_that_leads_to_it():
    cells = json.loads((paths.NOTEBOOKS / "start.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    linked = {unquote(urlsplit(address).path) for address in re.findall(r"\]\(([^)\s]+)\)", text)}
    assert linked == {path.name for path in paths.NOTEBOOKS.glob("*.ipynb")} - {"start.ipynb"}
