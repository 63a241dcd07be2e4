"""The records beside the pages: each as it is, a table of all, and a list for every figure, table and answer made from them."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from gelu_study import pages
from gelu_study.errors import StudyError
from gelu_study.ledger import Ledger, table


class RecordsError(StudyError):
    """The pages cite records in a way that cannot be followed."""


@dataclass(frozen=True)
class Cited:
    """What on a page is made from records: its name, its number ("Figure 2"; none for sentences), and the records' keys."""

    page: str
    heading: str
    name: str
    number: str
    keys: frozenset[str]


def cited(executed: Iterable[Path]) -> Iterator[Cited]:
    """What the pages of executed notebooks say that it is made from records, in the order of the pages."""
    for path in executed:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        heading = next(line for cell in cells for line in "".join(cell["source"]).splitlines() if line.startswith("# "))
        for output in (output for cell in cells for output in cell.get("outputs", [])):
            source: dict[str, Any] | None = output.get("metadata", {}).get(pages.SOURCE)
            if source and source["keys"]:
                yield Cited(path.stem, heading[2:], source["name"], source["number"], frozenset(source["keys"]))


def write(folder: Path, executed: Iterable[Path], ledger: Ledger) -> None:
    """Lay the ledger's records in a folder of the site, with `all.csv` and, for everything that is cited, a list to read and one to
    compute with. Raises `RecordsError` where a page cites what the ledger does not have, or two things by one name."""
    records = ledger.read()
    folder.mkdir(parents=True)
    for record in records:
        path = folder / pages.record_path(record.config.key)
        path.parent.mkdir(exist_ok=True)
        path.write_text(record.to_json(), encoding="utf-8")
    rows = table(records)
    rows.insert(1, "record", [pages.record_path(key) for key in rows["key"]])
    rows.to_csv(folder / "all.csv", index=False)
    written: dict[str, Cited] = {}
    for one in cited(executed):
        if absent := one.keys - set(rows["key"]):
            raise RecordsError(f"{one.name} is made from a record that the ledger does not have: {min(absent)}")
        if one.keys != written.setdefault(one.name, one).keys:
            raise RecordsError(f"{one.page} and {written[one.name].page} show different records by one name: {one.name}")
        these = rows[rows["key"].isin(one.keys)]
        these.to_csv(folder / f"{one.name}.csv", index=False)
        (folder / f"{one.name}.html").write_text(_page(one, these), encoding="utf-8")


_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; font: 1rem/1.5 system-ui, sans-serif; color: light-dark(#222, #ddd); background: light-dark(#fff, #121212); }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; line-height: 1.25; }
a { color: light-dark(#0a58a8, #8bc1ff); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: 0.25rem 0.7rem 0.25rem 0; text-align: left; border-bottom: 1px solid #8886; }
"""
"""A list is no page of the book and has no theme; it follows the reader's scheme. (A sheet in `_static` would be every page's.)"""


def _page(one: Cited, runs: pd.DataFrame) -> str:
    """The list as a page of its own, whose entries lead to the records."""
    place = f"../{one.page}.html#{one.name}" if one.number else f"../{one.page}.html"
    what = f"{one.number} of “{html.escape(one.heading)}”" if one.number else f"“{html.escape(one.heading)}”"
    rows = pages.run_table(runs, folder="").to_html(index=False, escape=False, border=0, classes="dataframe", na_rep="–")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Records of {what}</title>
<link rel="icon" href="../_static/favicon.svg">
<style>{_STYLE}</style>
</head>
<body>
<main>
<p><a href="{place}">← Back to {one.number or "the page"}</a></p>
<h1>Records of {what}</h1>
<p>{pages.counted(runs)}, each with a link to its record: a file that holds all that was set and measured. The same
<a href="{one.name}.csv" download>as a table in CSV</a>, with more columns.</p>
<div class="scroll" tabindex="0" role="group" aria-label="Table of {len(runs)} rows, which scrolls">{rows}</div>
</main>
</body>
</html>
"""
