"""What GitHub, pre-commit and a person look for at the top of a repository."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from gelu_study import __version__, paths

HOOKS: list[dict[str, Any]] = [
    hook
    for repository in yaml.safe_load((paths.ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repository["hooks"]
]
FORMS = sorted(path for path in (paths.ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
NOTEBOOK = paths.NOTEBOOKS / "mnist-noise.ipynb"


def hook(name: str, *files: Path) -> subprocess.CompletedProcess[str]:
    """Run a hook on files as pre-commit does."""
    (entry,) = (hook["entry"] for hook in HOOKS if hook["id"] == name)
    first, *rest = shlex.split(entry)
    assert first == "python"
    command = [sys.executable, *rest, *map(str, files)]
    return subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_hooks_are_local_and_pass_on_the_tree():
    assert [(hook["id"], hook["language"]) for hook in HOOKS] == [("ruff", "system"), ("notebooks", "system")]
    sources = [path for folder in ("src", "tests") for path in (paths.ROOT / folder).rglob("*.py")]
    for name, files in (("ruff", sources), ("notebooks", sorted(paths.NOTEBOOKS.glob("*.ipynb")))):
        done = hook(name, *files)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_notebooks_hook_is_asked_about_notebooks_alone():
    (pattern,) = (hook["files"] for hook in HOOKS if hook["id"] == "notebooks")
    assert re.search(pattern, "notebooks/mnist-noise.ipynb")
    assert not re.search(pattern, "book/_build/mnist-noise.ipynb")


def test_ruff_s_hook_refuses_what_ruff_refuses(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("import os\n", encoding="utf-8")
    done = hook("ruff", path)
    assert done.returncode == 1
    assert "F401" in done.stdout


def ran(notebook: nbformat.NotebookNode) -> None:
    cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
    cell.outputs = [nbformat.v4.new_output("stream", text="said")]


def counted(notebook: nbformat.NotebookNode) -> None:
    next(cell for cell in notebook.cells if cell.cell_type == "code").execution_count = 3


def played(notebook: nbformat.NotebookNode) -> None:
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}


def untagged(notebook: nbformat.NotebookNode) -> None:
    for cell in notebook.cells:
        cell.metadata.pop("tags", None)


def parameters(source: str) -> Any:
    def change(notebook: nbformat.NotebookNode) -> None:
        (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
        cell.source += f"\n{source}"

    return change


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (ran, r"holds what running it left behind, in 1 of its \d+ cells of code; take it out with `jupyter nbconvert --clear-output"),
        (counted, "holds what running it left behind"),
        (played, "holds the state of widgets that ran"),
        (parameters('scale = "smoke"  # again'), r"line \d+, sets scale a second time; keep one"),
        (untagged, "has 0 cells tagged `parameters`"),
        (parameters("depth = 3"), "a comment at the end of the line must say what it is"),
        (parameters("surprise = 3  # what nobody described"), "what surprise in .* may be is not said; say it in `ALLOWED`"),
        (parameters("epochs = -1  # fewer than none"), "epochs"),
    ],
    ids=["outputs", "execution count", "widgets", "twice", "no tag", "no comment", "unknown", "not allowed"],
)
def test_the_notebooks_hook_refuses_a_bad_notebook(tmp_path, damage, said):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    damage(notebook)
    path = tmp_path / "bad.ipynb"
    nbformat.write(notebook, path)
    done = hook("notebooks", NOTEBOOK, path)
    assert done.returncode == 1
    assert re.search(said, done.stderr), done.stderr
    assert len(done.stderr.splitlines()) == 1, "the good one is not complained of"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_are_as_github_wants_them(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form.keys() <= {"name", "description", "title", "labels", "body"}
    assert form["name"] and form["description"]
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert all(part["type"] in ("textarea", "input", "dropdown", "checkboxes") and part["attributes"]["label"] for part in asked)
    assert any(part.get("validations", {}).get("required") for part in asked)
    names = [part["id"] for part in asked]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[\w-]+", name) for name in names)
    for part in form["body"]:
        known = {"label", "description", "placeholder", "value", "render", "options", "multiple"}
        assert part["attributes"].keys() <= known
        if part["type"] in ("dropdown", "checkboxes"):
            assert part["attributes"]["options"]


def test_there_are_forms_and_a_pull_request_template():
    assert [path.stem for path in FORMS] == ["crash", "idea", "wrong-number"]
    assert "- [ ]" in (paths.ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text(encoding="utf-8")


def test_the_changelog_is_of_this_version():
    text = (paths.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *released = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in released)
    assert __version__ in (released[0] if released else text.partition("## [Unreleased]")[2])
    kinds = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert kinds and set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_between_files_lead_somewhere(name):
    text = (paths.ROOT / name).read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    assert targets
    assert [target for target in targets if not (paths.ROOT / target).exists()] == []
