"""Keeps the answer in README.md, a few lines and a figure, equal to what the records say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from gelu_study import claims, figures, pages, paths, published, statistics, study
from gelu_study.errors import StudyError

BEGIN, END = "<!-- answer: written by `make readme` -->", "<!-- end of the answer -->"
FIGURE = Path("book") / "_static" / "answer.svg"


def answer(found: study.Study) -> str:
    """The answer as Markdown: the headline, a line a keep probability, and what is behind it."""
    verdicts = statistics.verdicts(found.table, choice=found.chosen)
    lines = [re.sub(r"<[^>]*>", "", line) for line in pages.answer_lines(verdicts, published.CLASSIFIER)]
    claim = "*MNIST classifier* (the paper: GELU tends to have the lowest median training loss, with and without dropout): "
    runs = found.table
    if found.chosen:
        behind = f"{len(runs)} of {len(found.planned)} runs of {found.planned[0].epochs} epochs, {runs['seed'].nunique()} seeds"
        paired = "each percentage is the median over pairs of runs with the same seed"
        lines.append(f"- Behind it: {behind}, on {', '.join(sorted(set(runs['device'])))}; {paired}.")
    return claim + "\n".join(lines).rstrip()


def tally(rows: Sequence[claims.Row]) -> str:
    """How many of the paper's claims have which verdict."""
    where = "The book's first page has the table; `gelu-study verdicts` prints it."
    return f"Of the paper's {len(rows)} claims: {claims.tally(rows)}. {where}"


def update(root: Path = paths.ROOT) -> Path:
    """Write answer and figure from the project's ledger and return README's path. Raises `StudyError` when its markers are gone."""
    found = study.run("mnist-classifier", "powered", train=False, ledger=paths.LEDGER)
    path = root / "README.md"
    text = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise StudyError(f"{path} has lost the lines {BEGIN!r} and {END!r}; put them back around the answer")
    block = [BEGIN, "", answer(found)]
    if found.chosen:
        drawn = figures.intervals(statistics.verdicts(found.table, choice=found.chosen))
        with mpl.rc_context({"svg.hashsalt": "answer", "svg.fonttype": "path"}):
            drawn.savefig(root / FIGURE, format="svg", bbox_inches="tight", metadata={"Date": None})
        alt = "Ratio of GELU's final training loss to each rival's, with 95 % intervals and the margin of 5 %"
        block += ["", f"![{alt}]({FIGURE.as_posix()})"]
    block += ["", tally(claims.verdicts())]
    path.write_text(pattern.sub(lambda _: "\n".join([*block, "", END]), text), encoding="utf-8")
    return path
