"""Fixtures for what a machine may lack: a test that needs it is skipped with a reason, or fails where GELU_STUDY_REQUIRE names it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gelu_study import datasets, pages, paths, protocols, statistics
from gelu_study.datasets import Dataset
from gelu_study.runs import RunConfig
from gelu_study.site import printing

FIRST = ("test_cluster.py", "test_book.py", "test_site.py")
"""Files that take minutes: begun last, one of them would keep a single process busy while the other has nothing to do."""


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # so a shell starts what runs in its background, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in FIRST)


def lacking(what: str, reason: str) -> None:
    """Skip the test for want of `what`, or fail where it is required (by `.ci/run`, for instance)."""
    if what in os.environ.get("GELU_STUDY_REQUIRE", "").split(","):
        pytest.fail(f"{what} is required by GELU_STUDY_REQUIRE: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def mnist() -> Dataset:
    if not datasets.available("mnist"):
        lacking("data", "needs MNIST: run `make data`, or `make test DATA=folder`")
    return datasets.load("mnist")


@pytest.fixture(scope="session")
def chromium() -> Path:
    if (found := printing.browser()) is None:
        lacking("chromium", "needs Chromium on the PATH (Debian's package `chromium`)")
    return found


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return datasets.load("digits")


@pytest.fixture
def smoke() -> list[RunConfig]:
    """Runs of the smoke scale: three activations, with and without dropout, two seeds."""
    return protocols.plan("mnist-classifier", "smoke")


@pytest.fixture
def few_resamples(monkeypatch) -> None:
    """Intervals decide nothing."""
    monkeypatch.setattr(statistics, "_RESAMPLES", 199)


@pytest.fixture
def shown(monkeypatch) -> list[str]:
    """What the page shows: texts, and tables as text."""
    said: list[str] = []
    monkeypatch.setattr(pages, "text", said.append)
    monkeypatch.setattr(pages, "table", lambda frame, name, caption, keys: said.append(f"{frame.to_string()}\n{caption}"))
    return said


@pytest.fixture(scope="session", autouse=True)
def nobody_s_own_records(tmp_path_factory) -> Iterator[Path]:
    """Whoever runs the tests may have records of their own: here, and in every kernel that is started, there are none."""
    folder = tmp_path_factory.mktemp("own") / "records"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GELU_STUDY_OWN", str(folder))
        patch.setattr(paths, "OWN", folder)
        yield folder
