"""JupyterLab in a real browser: the start page, a changed parameter, a wrong one, widgets; and no record is touched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page

from browser import launched
from gelu_study import paths
from gelu_study.ledger import Ledger

TOKEN = "for-this-test-alone"
WAIT = 90_000


@dataclass(frozen=True)
class Lab:
    """A JupyterLab on copies of the notebooks and the book, in the folder; `own` is where records of one's own go."""

    address: str
    folder: Path
    own: Path
    browser: Browser

    def open(self, name: str = "") -> Page:
        """A notebook in a window of its own; without a name, what `make lab` opens."""
        page = self.browser.new_page(viewport={"width": 1400, "height": 4000})  # high enough that no cell waits to be scrolled to
        page.set_default_timeout(WAIT)
        where = f"/lab/tree/notebooks/{name}.ipynb" if name else "/"
        page.goto(f"{self.address}{where}?token={TOKEN}{'&reset' if name else ''}")
        page.locator(".jp-Notebook:visible .jp-Cell").first.wait_for()
        page.get_by_text("(ipykernel) | Idle").wait_for()  # what is run before that, JupyterLab forgets
        return page


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    for source in (paths.NOTEBOOKS, paths.BOOK):
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns(".*", "_build"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    opened = re.findall(r"--LabApp\.default_url=\S+", (paths.ROOT / "Makefile").read_text(encoding="utf-8"))  # by `make lab`
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", f"--IdentityProvider.token={TOKEN}"]
    command += [f"--notebook-dir={folder}", "--ServerApp.port_retries=0", "--allow-root", *opened]
    own = {name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    own |= {"JUPYTER_CONFIG_PATH": str(paths.ROOT / ".jupyter"), "GELU_STUDY_OWN": str(folder / "own"), "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **own})
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/status?token={TOKEN}", timeout=5):
                    break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
        with launched(chromium) as browser:
            yield Lab(f"http://127.0.0.1:{port}", folder, folder / "own", browser)
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(autouse=True)
def project_s_records() -> Iterator[None]:
    """Whatever is done in these tests, the project's records stay what they are, byte for byte, and get no company."""
    before = _bytes_of(paths.LEDGER)
    assert before
    yield
    assert _bytes_of(paths.LEDGER) == before


def _bytes_of(folder: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def parameters_cell(page: Page) -> Locator:
    return page.locator(".jp-Notebook:visible .cm-content", has_text="ledger =").first


def run_all(page: Page) -> None:
    page.locator(".lm-MenuBar-itemLabel", has_text="Run").first.click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


def run_all_with(page: Page, values: dict[str, object]) -> None:
    """Type values into the parameters cell, in place of its text, and run all cells."""
    parameters_cell(page).click()
    page.keyboard.press("Control+A")
    for name, value in values.items():
        page.keyboard.insert_text(f"{name} = {value!r}\n")
    run_all(page)


def screenshot(page: Page, name: str) -> None:
    if shots := os.environ.get("GELU_STUDY_SCREENSHOTS"):
        page.screenshot(path=f"{shots}/{name}.png")


CLASSIFIER: dict[str, object] = {
    "scale": "smoke",
    "activations": ["gelu_tanh", "relu"],
    "seeds": [0],
    "learning_rates": [],
    "keep_probabilities": [],
    "dataset": "",
    "device": "cpu",
    "train": True,
    "ledger": "",
    "repository": "",
}


def test_a_changed_parameter_changes_the_result_and_only_missing_runs_are_trained(lab, tmp_path):
    ledger = tmp_path / "ledger"
    page = lab.open("mnist-classifier")
    run_all_with(page, CLASSIFIER | {"ledger": str(ledger)})
    runs = page.locator(".jp-Notebook .jp-RenderedMarkdown", has_text="Runs:")
    runs.filter(has_text="4 of 4 planned").wait_for()
    before = {path: path.stat().st_mtime_ns for path in ledger.glob("*/*.json")}
    assert len(before) == 4
    run_all_with(page, CLASSIFIER | {"ledger": str(ledger), "seeds": [0, 1]})
    runs.filter(has_text="8 of 8 planned").wait_for()
    assert page.locator(".jp-Notebook [data-mime-type='application/vnd.jupyter.stderr']", has_text="Error").count() == 0
    screenshot(page, "lab")
    page.close()
    after = {path: path.stat().st_mtime_ns for path in ledger.glob("*/*.json")}
    assert len(after) == 8 and all(after[path] == stamp for path, stamp in before.items())
    assert len(Ledger(ledger).read()) == 8


def test_a_run_by_hand_shows_bar_and_curves_and_leaves_its_records_apart(lab):
    page = lab.open("mnist-classifier")
    page.evaluate(
        """() => {
            window.seen = new Set();
            new MutationObserver(() => document.querySelectorAll('.jp-OutputArea img[alt*="Training loss of"]').forEach(
                image => window.seen.add(image.alt))).observe(document.body, {childList: true, subtree: true, attributes: true});
        }"""
    )
    run_all_with(page, CLASSIFIER | {"seeds": list(range(10))})
    page.locator(".jp-Notebook .jp-RenderedMarkdown", has_text="All of the 40 records of this page were trained by hand").wait_for()
    page.locator(".jp-Notebook .widget-hprogress, .jp-Notebook .widget-inline-hbox").first.wait_for()  # tqdm's bar of widgets
    page.locator(".jp-Notebook .widget-html-content", has_text="40/40 runs").wait_for()
    assert any("GELU (tanh), ReLU after" in alt for alt in page.evaluate("[...window.seen]"))
    assert page.locator(".jp-OutputArea img[alt*='Training loss of']").count() == 0  # the page draws the curves now
    page.close()
    assert len(Ledger(lab.own).read()) == 40


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scale": "quik"}, "scale is 'quik'; it must be one of smoke, quick, paper, powered; did you mean 'quick'?"),
        ({"seeds": 3}, "seeds is 3; it must be a list of whole numbers from 0 to 2,147,483,647"),
    ],
)
def test_a_wrong_parameter_is_answered_by_one_line(lab, given, said):
    page = lab.open("mnist-classifier")
    run_all_with(page, CLASSIFIER | given)
    error = page.locator(".jp-Notebook [data-mime-type='application/vnd.jupyter.stderr']")
    error.first.wait_for()
    screenshot(page, f"lab-wrong-{next(iter(given))}")
    assert [text.strip() for text in error.all_inner_texts()] == [said]
    page.close()


def test_records_are_neither_listed_to_be_deleted_nor_saved_over(lab):
    def asked(method: str, path: str, content: dict[str, str] | None = None) -> tuple[int, str]:
        request = urllib.request.Request(f"{lab.address}/api/contents/{path}", method=method, headers={"Authorization": f"token {TOKEN}"})
        request.data = json.dumps(content).encode() if content else None
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    record = lab.folder / "data" / "runs" / "00" / "a.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    changed = {"type": "file", "format": "text", "content": "changed"}
    status, said = asked("PUT", "data/runs/00/a.json", changed)
    assert status == 403 and "never edited" in said and record.read_text() == "{}"
    assert asked("PUT", "data/a.txt", changed)[0] == 201 and (lab.folder / "data" / "a.txt").read_text() == "changed"
    status, said = asked("GET", "data")
    assert [found["name"] for found in json.loads(said)["content"]] == ["a.txt"]
    assert asked("GET", "data/runs/00/a.json")[0] == 200, "links to records still open"


def test_make_lab_opens_the_start_page_which_says_what_is_here_and_whose_links_open_notebooks(lab):
    page = lab.open()
    page.get_by_role("heading", name="Start here").wait_for()
    run_all(page)
    page.locator(".jp-Notebook tr", has_text="mnist-classifier").locator("td", has_text="mnist, ").wait_for()
    page.locator(".jp-Notebook .jp-RenderedMarkdown", has_text=f"Your own records lie in {lab.own}").wait_for()
    assert page.locator(".jp-toast-message, .Toastify__toast").count() == 0  # nobody is asked about news
    screenshot(page, "lab-start")
    page.locator(".jp-Notebook:visible a", has_text="the playground").first.click()
    page.get_by_role("heading", name="The playground").wait_for()
    page.close()


def test_a_link_to_a_page_of_the_book_that_is_no_notebook_opens_it(lab):
    page = lab.open("mnist-classifier")
    page.locator(".jp-Notebook a", has_text="the rule").first.click()
    page.locator(".lm-TabBar-tabLabel", has_text="verdicts.md").wait_for()
    page.close()


def test_the_explorer_s_widgets_redraw(lab):
    page = lab.open("explorer")
    run_all(page)
    drawn = ".jp-Notebook .jp-OutputArea-output img.widget-image"
    page.locator(drawn).wait_for()
    before = page.locator(drawn).get_attribute("src")
    page.locator(".jp-Notebook .widget-slider", has_text="α").locator(".noUi-handle").press("ArrowRight")
    page.wait_for_function("([drawn, before]) => document.querySelector(drawn).src !== before", arg=[drawn, before])
    assert page.locator(".jp-Notebook [data-mime-type='application/vnd.jupyter.stderr']").count() == 0
    screenshot(page, "lab-explorer")
    page.close()


def test_the_playground_trains_after_a_click_and_stops_at_another(lab):
    before = _bytes_of(lab.own)
    page = lab.open("playground")
    run_all(page)
    train = page.locator(".jp-Notebook button", has_text="Train")
    train.wait_for()
    assert page.locator(".jp-Notebook table", has_text="GELU").count() == 0
    train.click()
    drawn = ".jp-Notebook .widget-html-content img[alt^='Training loss and validation error of GELU (tanh), ReLU, ELU']"
    picture = page.locator(drawn)
    page.locator(".jp-Notebook .widget-html-content", has_text="Finished after 20.0 epochs").first.wait_for()
    table = page.locator(".jp-Notebook .widget-html-content tr", has_text="ReLU").first
    table.wait_for()
    assert re.search(r"ReLU\s+[\d.e-]+ \[[\d.e-]+ to [\d.e-]+\]", table.inner_text())
    first = picture.get_attribute("src")
    assert picture.evaluate("image => image.naturalWidth") > 600
    screenshot(page, "lab-playground")

    for label, value in {"hidden layers": 16, "units of each layer": 512, "epochs": 50}.items():  # minutes, were it not stopped
        page.locator(".jp-Notebook .widget-hslider", has_text=label).locator(".widget-readout").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(str(value))
        page.keyboard.press("Enter")
    train.click()
    page.wait_for_function("([drawn, before]) => document.querySelector(drawn).src !== before", arg=[drawn, first])
    page.locator(".jp-Notebook button", has_text="Stop").click()
    page.locator(".jp-Notebook .widget-html-content", has_text="Stopped after").first.wait_for()
    assert train.is_enabled()
    page.close()
    assert _bytes_of(lab.own) == before  # nothing is recorded
