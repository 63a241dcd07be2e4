"""Installs the study, and what it needs to run a notebook, beside what Binder and Colab have already.

Their own PyTorch and NumPy stay, whatever their version: to replace them takes minutes and gigabytes. Numbers that are
trained there may then differ in their last digits; the records that notebooks show do not. What only the book needs is left out.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {"jupyter-book", "jupyterlab", "sphinxext-opengraph", "sphinx-notfound-page"}


def normal(name: str) -> str:
    """A distribution's name as the registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lacking(dependencies: Iterable[str], there: Iterable[str]) -> list[str]:
    """Those of the dependencies, as pyproject.toml has them, that are neither there nor left out."""
    known = {normal(name) for name in there} | LEFT_OUT
    return [line for line in dependencies if normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) not in known]


def main() -> None:
    """Install what is lacking, then the package as it lies here."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    wanted = lacking(dependencies, (found.metadata["Name"] or "" for found in metadata.distributions()))
    pip = [sys.executable, "-m", "pip", "install", "--quiet"]
    if wanted:
        subprocess.run([*pip, *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(ROOT)], check=True)


if __name__ == "__main__":
    main()
