"""Puts a first cell into each notebook that makes it run on Colab, which opens a notebook without the repository around it.

The workflow that publishes the book runs this and pushes the result as the branch `launch`, which the book's buttons open;
the notebooks themselves stay as they are. It needs nothing but Python: `python3 .binder/colab.py ADDRESS BRANCH`.
"""

import json
import sys
from pathlib import Path

CELL = '''\
# Only on Colab: fetch the study with its records, and install what Colab lacks. Its own PyTorch is used, on its device.
import os
import subprocess
import sys

if "google.colab" in sys.modules and not os.path.isfile("../pyproject.toml"):
    if not os.path.isdir("gelu-study"):
        subprocess.run(["git", "clone", "--quiet", "--depth=1", "--branch={branch}", "{address}", "gelu-study"], check=True)
    os.chdir("gelu-study/notebooks")
    subprocess.run([sys.executable, "../.binder/install.py"], check=True)
    sys.path.insert(0, os.path.abspath("../src"))  # what is installed now is found by the next start only
'''


def prepare(notebook: Path, address: str, branch: str) -> None:
    """Put the cell before all others of a notebook."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    source = CELL.format(address=address, branch=branch).rstrip().splitlines(keepends=True)
    cell = {"cell_type": "code", "execution_count": None, "id": "colab", "metadata": {"tags": ["remove-cell"]}, "outputs": []}
    content["cells"].insert(0, cell | {"source": source})
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for path in sorted(Path(__file__).resolve().parents[1].glob("notebooks/*.ipynb")):
        prepare(path, *sys.argv[1:])
