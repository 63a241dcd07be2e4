"""What makes the environment: the dependencies, the lock, conda's file, the Makefile, the workflows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gelu_study import __version__

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
NAMED = [Requirement(text) for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]]
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = (
    {"sys_platform": "linux", "platform_machine": "x86_64"},
    {"sys_platform": "darwin", "platform_machine": "arm64"},
)
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def locked(text: str) -> list[Requirement]:
    """The requirements of a lock, without their hashes and the hints of where they come from."""
    lines = (line.removesuffix("\\").strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "--hash"))]


def applies(requirement: Requirement, python: str, platform: dict[str, str]) -> bool:
    environment = {**default_environment(), "python_version": python, "python_full_version": f"{python}.0", **platform}
    return requirement.marker is None or requirement.marker.evaluate(environment)


LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
CONDA_LOCK = (ROOT / "requirements-conda.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform["sys_platform"])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_pins_every_dependency_at_an_allowed_version(python: str, platform: dict[str, str]) -> None:
    here = [requirement for requirement in locked(LOCK) if applies(requirement, python, platform)]
    pins: dict[str, Version] = {}
    for requirement in here:
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", requirement
        name = canonicalize_name(requirement.name)
        assert name not in pins, f"{name} is pinned twice"
        pins[name] = Version(specifier.version)
    build = [Requirement(text) for text in PYPROJECT["build-system"]["requires"]]  # built without isolation
    for requirement in NAMED + build:
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_every_pin_has_a_hash() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    blocks = re.split(r"\n(?=[a-z0-9])", "\n".join(lines).strip())
    assert len(blocks) == len(locked(LOCK)) > 100
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_no_dependency_is_named_twice() -> None:
    names = [canonicalize_name(requirement.name) for requirement in NAMED]
    assert sorted(set(names)) == sorted(names)


def test_conda_installs_what_the_lock_pins_and_this_package() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    (pip,) = (entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip == ["-r requirements-conda.txt", "-e ."]
    assert [str(requirement) for requirement in locked(CONDA_LOCK)] == [
        str(requirement) for requirement in locked(LOCK)
    ]
    (python,) = (entry for entry in environment["dependencies"] if str(entry).startswith("python "))
    conda = Requirement(python).specifier
    for version in PYTHONS:
        assert f"{version}.0" in conda
        assert f"{version}.0" in Requirement(f"python{PROJECT['requires-python']}").specifier
    assert "3.10.9" not in conda


def test_the_version_is_the_same_everywhere() -> None:
    assert __version__ == PROJECT["version"] == citation()["version"]


def citation() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_the_citation_file_has_what_its_format_needs() -> None:
    found = citation()
    assert {"cff-version", "message", "title", "authors", "license", "type", "references"} <= found.keys()
    assert found["license"] == PROJECT["license"] == "MIT"
    assert found["references"][0]["url"].endswith("1606.08415")


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "permissions", "jobs"} <= workflow.keys()
    assert True in workflow, "`on` is YAML's word for true"
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    targets = [command.split()[1] for command in commands if command.startswith("make ")]
    assert targets
    assert set(targets) <= set(phony())
    assert all("@v" in step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step)


def phony() -> list[str]:
    found = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1].split()


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make as a person would, without what an outer make passes on."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C"}
    program = shutil.which("make")
    assert program
    return subprocess.run(
        [program, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The set-up files in a folder whose path has a space in it."""
    folder = tmp_path / "a b"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def stub(copy: Path) -> Path:
    """An environment whose Python only notes how it was called, one line a call, in `calls`."""
    python = copy / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "<%s>" "$@" >> calls\necho >> calls\n', encoding="utf-8")
    python.chmod(0o755)
    return copy


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


@needs_make
def test_help_has_a_line_for_every_target() -> None:
    result = make(ROOT, "help")
    assert result.returncode == 0, result.stderr
    described = dict(re.findall(r"^  (\w+) +(\S.*)$", result.stdout, re.MULTILINE))
    assert set(phony()) - {"environment"} <= described.keys()
    assert make(ROOT).stdout == result.stdout


@needs_make
def test_dry_run_in_a_path_with_a_space(copy: Path) -> None:
    result = make(copy, "-n", "book")
    assert result.returncode == 0, result.stderr
    assert '".venv/bin/python" -m gelu_study book' in result.stdout


@needs_make
def test_the_environment_is_made_once_and_again_when_the_lock_changes(stub: Path) -> None:
    python = f"PYTHON={sys.executable}"
    assert make(stub, "lint", python).returncode == 0
    first = calls(stub)
    assert any("<--require-hashes><-r><requirements.lock>" in line for line in first)
    assert any("<--no-deps>" in line and line.endswith("<-e><.>") for line in first)
    assert first[-3:] == ["<-m><ruff><check><.>", "<-m><mypy>", "<-m><gelu_study><check>"]
    assert make(stub, "lint", python).returncode == 0
    assert calls(stub) == first[-3:]
    with (stub / "requirements.lock").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert make(stub, "lint", python).returncode == 0
    assert calls(stub) == first


@needs_make
def test_an_experiments_data_and_limits_are_passed_on(stub: Path) -> None:
    python = f"PYTHON={sys.executable}"
    assert make(stub, "lint", python).returncode == 0
    calls(stub)
    given = ("EXPERIMENT=cifar10-fast", "SCALE=quick", "TIME_LIMIT=540", "DATA=some folder", python)
    assert make(stub, "reproduce", *given).returncode == 0
    assert calls(stub) == [
        "<-m><gelu_study><data><cifar10><--from><some folder>",
        "<-m><gelu_study><run><cifar10-fast><--scale><quick><--time-limit><540>",
    ]
    assert make(stub, "data", "EXPERIMENT=cifar100-wrn", python).returncode == 0
    assert make(stub, "data", python).returncode == 0
    assert calls(stub) == ["<-m><gelu_study><data><cifar100>", "<-m><gelu_study><data><mnist>"]
    assert make(stub, "bench", "WHAT=cifar", python).returncode == 0
    assert calls(stub) == ["<-m><gelu_study><bench><cifar>"]


@needs_make
def test_an_environment_that_failed_to_install_is_not_taken_for_a_good_one(stub: Path) -> None:
    python = stub / ".venv" / "bin" / "python"
    works = python.read_text(encoding="utf-8")
    python.write_text(works + 'case "$*" in *requirements.lock*) exit 1;; esac\n', encoding="utf-8")
    assert make(stub, "lint", f"PYTHON={sys.executable}").returncode != 0
    assert not any("ruff" in line for line in calls(stub))
    python.write_text(works, encoding="utf-8")
    assert make(stub, "lint", f"PYTHON={sys.executable}").returncode == 0
    assert any("requirements.lock" in line for line in calls(stub))


@needs_make
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["book", "REPOSITORY=https://example.org/a/b"], ["book><--repository><https://example.org/a/b>"]),
        (["book", "SITE=https://example.org/a"], ["book><--site><https://example.org/a>"]),
        (["book", "LEDGER=my runs"], ["book><--ledger><my runs>"]),
        (["data"], ["data><mnist>"]),
        (["data", "DATA=my data"], ["data><mnist><--from><my data>"]),
        (
            ["quick", "DATA=my data", "DEVICE=cpu", "SEEDS=0-1"],
            ["data><mnist><--from><my data>", "quick><--device><cpu><--seeds><0-1>"],
        ),
        (["reproduce"], ["run><mnist-classifier><--scale><paper>"]),
        (["reproduce", "SCALE=smoke", "SEEDS=0-4,9"], ["run><mnist-classifier><--scale><smoke><--seeds><0-4,9>"]),
        (["verify", "DEVICE=cuda", "EXPERIMENT=mnist-soi"], ["verify><--experiment><mnist-soi><--device><cuda>"]),
        (["verify", "WHOLE_STACKS=1"], ["verify><--experiment><mnist-classifier><--whole-stacks>"]),
        (["bench", "DEVICE=cpu"], ["bench><--device><cpu>"]),
        (
            ["measure", "DEVICE=cpu"],
            ["measure><activation-cost><--device><cpu>", "measure><activation-swaps><--device><cpu>"],
        ),
        (["measure", "WHAT=reproducibility"], ["measure><reproducibility>"]),
    ],
)
def test_options_pass_through(stub: Path, arguments: list[str], expected: list[str]) -> None:
    result = make(stub, *arguments, f"PYTHON={sys.executable}")
    assert result.returncode == 0, result.stderr
    assert [line for line in calls(stub) if "gelu_study" in line] == [f"<-m><gelu_study><{text}" for text in expected]


@needs_make
def test_tests_import_the_data_first(stub: Path) -> None:
    assert make(stub, "test", "DATA=my data", f"PYTHON={sys.executable}").returncode == 0
    assert calls(stub)[-2:] == ["<-m><gelu_study><data><mnist><--from><my data>", "<-m><pytest><--numprocesses><2><--dist><loadfile><--no-loadscope-reorder>"]


@needs_make
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "install Python 3.11 or newer"),
        ('case "$1" in --version) echo Python 3.9.1;; *) exit 1;; esac', "Python 3.11 or newer is needed; .*3.9.1"),
        ('case "$2" in *ensurepip*) exit 1;; esac', "lacks the venv module.*python3-venv"),
    ],
)
def test_a_python_that_will_not_do_is_refused(copy: Path, script: str | None, message: str) -> None:
    python = copy / "other python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        python.chmod(0o755)
    result = make(copy, "book", f"PYTHON={python}")
    assert result.returncode != 0
    assert re.search(message, result.stderr), result.stderr
    assert not (copy / ".venv").exists()


@needs_make
def test_clean_keeps_the_environment_and_data(stub: Path) -> None:
    keep = [
        stub / "data" / "raw" / "mnist.npz",
        stub / "data" / "runs" / "ab" / "ab.json",
        stub / "build" / "checkpoints" / "a.pt",
        stub / "src" / "a.py",
        stub / "tests" / "b.py",
    ]
    drop = [
        stub / "book" / "_build" / "html" / "index.html",
        stub / "build" / "x",
        stub / "src" / "__pycache__" / "a.pyc",
    ]
    for path in keep + drop:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    result = make(stub, "clean")
    assert result.returncode == 0, result.stderr
    assert all(path.exists() for path in keep)
    assert not any(path.exists() for path in drop)
    assert (stub / ".venv" / "bin" / "python").exists()


def test_the_makefile_keeps_to_what_make_3_81_knows() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    newer = r"\.ONESHELL|\.RECIPEPREFIX|::=|^\w+ *!=|\$\((file|let|intcmp) "
    splits_paths_at_spaces = r"\$\((abspath|realpath|wildcard|dir|notdir) "
    assert not re.search(f"{newer}|{splits_paths_at_spaces}", text, re.MULTILINE)


def test_no_tracked_file_names_a_package_index() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and name != Path(__file__).relative_to(ROOT).as_posix()]
    words = re.compile(rb"--(extra-)?index-url|--find-links|--trusted-host|/simple/|pypi\.org|pythonhosted|PIP_INDEX")
    assert [name for name in names if (ROOT / name).is_file() and words.search((ROOT / name).read_bytes())] == []
