"""The page for contributors: its picture is of the package there is, and its examples do what they say."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from gelu_study import paths

PAGE = (paths.BOOK / "contributing.md").read_text(encoding="utf-8")
PACKAGE = paths.ROOT / "src" / "gelu_study"
ROOMS = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()} - {"__init__", "__main__"}


class Block(NamedTuple):
    """A fenced block of the page."""

    kind: str
    file: str
    text: str


def blocks(section: str) -> list[Block]:
    fence = r"^```(?:\{code-block\} )?(diff|python|console)\n(?::caption: (\S+)\n)?(.*?)^```$"
    return [Block(kind, file, text) for kind, file, text in re.findall(fence, section, re.MULTILINE | re.DOTALL)]


SECTIONS = {part.partition("\n")[0]: blocks(part) for part in PAGE.split("\n## ")[1:] if blocks(part)}


# ------------------------------------------------------------------------------------------- the picture


PICTURE = re.search(r'<figure class="study-house".*?</figure>', PAGE, re.DOTALL)
assert PICTURE
CAPTION = PICTURE[0].partition("<figcaption>")[2]
STAGES = [re.findall(r"<code>(\w+)</code></(?:a|li)>", line) for line in PICTURE[0].splitlines() if line.startswith("<li>")]
BESIDE = set(re.findall(r"<code>(\w+)</code>", CAPTION)) - {"gelu_study"}


def test_every_room_is_in_the_picture_and_every_room_of_the_picture_exists():
    drawn = [room for stage in STAGES for room in stage]
    assert len(STAGES) == 8 and len(set(drawn)) == len(drawn)
    assert {*drawn, *BESIDE} == ROOMS


KNOWN_BACKWARD = {
    ("sweep", "figures"),  # curves while it trains, with the figures' colours
    ("chapters", "site"),  # a page describes itself to those who link to it
}


def test_a_room_knows_those_above_it_in_the_picture_and_none_below():
    place = {room: number for number, stage in enumerate(STAGES) for room in stage}
    backward = {
        (room, other)
        for path in PACKAGE.rglob("*.py")
        for other in imported(path)
        if place.get(other, 0) > place.get(room := path.relative_to(PACKAGE).parts[0].removesuffix(".py"), len(STAGES))
    }
    assert backward == KNOWN_BACKWARD


def imported(path: Path) -> set[str]:
    """The rooms that a module imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "gelu_study":
            inside = (node.module or "").split(".")[1:]
            found |= {inside[0]} if inside else {alias.name for alias in node.names}
    return found & ROOMS


# ------------------------------------------------------------------------------------------- the examples


class Workshop:
    """A copy of the project, without records, in which the page's examples are carried out in their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("src", "tests", "notebooks", "book", "data/paper"):
            shutil.copytree(paths.ROOT / name, folder / name, ignore=shutil.ignore_patterns("_build", "__pycache__", ".*"))
        shutil.copy(paths.ROOT / "pyproject.toml", folder)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GELU_STUDY")}
        self.environment |= {"PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
        self.rest = list(SECTIONS)

    def carry_out(self, section: str) -> None:
        """Carry out a section, and before it those that it builds on."""
        while section in self.rest:
            for block in SECTIONS[self.rest.pop(0)]:
                {"diff": self.edit, "python": self.program, "console": self.commands}[block.kind](block)

    def edit(self, block: Block) -> None:
        path = self.folder / block.file
        text = path.read_text(encoding="utf-8")
        for hunk in block.text.split("@@\n")[1:]:
            old, new = ("".join(f"{line[1:]}\n" for line in hunk.splitlines() if line[:1] != sign) for sign in "+-")
            assert text.count(old) == 1, f"{block.file} has this {text.count(old)} times:\n{old}"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")

    def program(self, block: Block) -> None:
        self.run([sys.executable, "-c", block.text])

    def commands(self, block: Block) -> None:
        for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block.text, re.MULTILINE):
            first, *rest = shlex.split(command)
            said = self.run([sys.executable, *{"gelu-study": ["-m", "gelu_study"], "python": []}[first], *rest])
            assert expected.partition("…")[0] in said, said

    def run(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop") / "copy")


@pytest.mark.parametrize("section", SECTIONS)
def test_an_example_does_what_the_page_says(workshop: Workshop, section: str) -> None:
    workshop.carry_out(section)


def test_every_way_to_add_something_has_an_example() -> None:
    assert {"activation", "data set", "experiment", "claim"} <= {title.split("To add an ")[-1].split("To add a ")[-1] for title in SECTIONS}
