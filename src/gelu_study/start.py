"""What the start page of JupyterLab shows of this machine: the data sets that are there, and the runs that are recorded."""

from __future__ import annotations

import html

import pandas as pd

from gelu_study import datasets, pages, paths, protocols, study


def standing(scale: str) -> None:
    """Show for each experiment at a scale how many runs are recorded, by whom, and which data set they need."""
    rows = []
    for experiment in protocols.EXPERIMENTS:
        found = study.run(experiment, scale, train=False)
        name = found.planned[0].dataset
        rows.append(
            {
                "experiment": experiment,
                "runs": len(found.planned),
                "the project's": len(found.records) - found.own,
                "your own": found.own,
                "missing": found.missing,
                "data": f"{name}, {'here' if datasets.available(name) else 'not here yet'}",
            }
        )
    pages.plain_table(pd.DataFrame(rows))
    pages.text(f"Scale `{scale}`. Your own records lie in `{html.escape(paths.shown(paths.OWN))}`.")


def data(download: str) -> None:
    """Download a data set if one is named, then show what there is. Raises `DataError` where it cannot be had."""
    if download:
        datasets.fetch(download)
    rows = [{"data set": name, "state": "here" if datasets.available(name) else "not here yet"} for name in datasets.NAMES]
    pages.plain_table(pd.DataFrame(rows))
