"""JupyterLab in a real browser: change a parameter, run all cells, see the changed result."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from browser import launched
from gelu_study import paths
from gelu_study.ledger import Ledger

TOKEN = "for-this-test-alone"


@pytest.fixture
def lab(tmp_path) -> Iterator[str]:
    """The address of a JupyterLab on copies of the notebooks."""
    shutil.copytree(paths.NOTEBOOKS, tmp_path / "notebooks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", f"--IdentityProvider.token={TOKEN}"]
    command += [f"--notebook-dir={tmp_path / 'notebooks'}", "--ServerApp.port_retries=0", "--allow-root"]
    own = {name: str(tmp_path / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **own, "OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status?token={TOKEN}", timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert server.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/lab/tree/mnist-classifier.ipynb?token={TOKEN}&reset"
    finally:
        server.terminate()
        server.wait(30)


def test_a_changed_parameter_changes_the_result(lab, chromium, tmp_path):
    ledger = tmp_path / "ledger"
    with launched(chromium) as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(lab)
        page.locator(".jp-Notebook .cm-content", has_text="scale =").first.wait_for(timeout=120_000)

        def run_all_with(seeds: str) -> None:
            cell = page.locator(".jp-Notebook .cm-content", has_text="scale =").first
            cell.click()
            page.keyboard.press("Control+A")
            for name, value in {
                "scale": '"smoke"',
                "activations": '["gelu_tanh", "relu"]',
                "seeds": seeds,
                "ledger": f'"{ledger}"',
                "device": '"cpu"',
                "dataset, repository": '"", ""',
                "learning_rates, keep_probabilities": "[], []",
                "train": "True",
            }.items():
                page.keyboard.insert_text(f"{name} = {value}\n")
            page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()

        run_all_with("[0]")
        runs = page.locator(".jp-Notebook .jp-RenderedMarkdown", has_text="Runs:")
        runs.filter(has_text="4 of 4 planned").wait_for(timeout=180_000)
        before = {path: path.stat().st_mtime_ns for path in ledger.glob("*/*.json")}
        assert len(before) == 4
        run_all_with("[0, 1]")
        runs.filter(has_text="8 of 8 planned").wait_for(timeout=180_000)
        assert page.locator(".jp-Notebook [data-mime-type='application/vnd.jupyter.stderr']", has_text="Error").count() == 0
        if shots := os.environ.get("GELU_STUDY_SCREENSHOTS"):
            page.screenshot(path=f"{shots}/lab.png")
    after = {path: path.stat().st_mtime_ns for path in ledger.glob("*/*.json")}
    assert len(after) == 8 and all(after[path] == stamp for path, stamp in before.items())  # only the missing runs were trained
    assert len(Ledger(ledger).read()) == 8
