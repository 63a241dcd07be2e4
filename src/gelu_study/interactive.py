"""Figures to point at, beside the still ones: Bokeh draws them in the reader's browser when they are opened, and not before.

A page carries their data; the library, which is larger than the page, lies once beside the site (`copy_library`) and is loaded by
`book/_static/interactive.js`. Without scripts, on paper and in JupyterLab the still figure stands alone.
"""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import bokeh
import numpy as np
import pandas as pd
from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, FactorRange, HoverTool, LogTickFormatter
from bokeh.models.annotations import BoxAnnotation, Legend, LegendItem
from bokeh.models.ui import UIElement
from bokeh.plotting import figure as canvas
from IPython.display import display

from gelu_study import activations, figures, statistics
from gelu_study.runs import RunRecord

LIBRARY = "bokeh.min.js"
"""What a page loads to draw: about 1.3 MB."""

_DASHES = {"gelu_tanh": "solid", "relu": "dashed", "elu": "dashdot"}
_TOOLS = "pan,box_zoom,reset"


def show(drawn: UIElement, name: str, title: str) -> None:
    """Show a figure that is drawn when a reader opens it; `title` says what pointing at it tells."""
    data = json.dumps(json_item(drawn), separators=(",", ":")).replace("</", "<\\/")
    body = (
        f'<details class="study-interactive" id="{name}" hidden><summary>{html.escape(title)}</summary><div></div>'
        f'<script type="application/json">{data}</script></details>'
    )
    display({"text/html": body, "text/plain": f"In the book: {title}"}, raw=True)


def copy_library(folder: Path) -> None:
    """Copy what `show`'s figures need into a folder of the site."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(Path(bokeh.__file__).parent / "server" / "static" / "js" / LIBRARY, folder)


def learning_curves(
    records: Iterable[RunRecord], choice: figures.Choice | None = None, splits: Sequence[str] = ("train", "validation")
) -> UIElement:
    """The log loss of each run at the end of each epoch, in the panels of `figures.learning_curves`; a name in the legend hides an
    activation. Raises as that does."""
    shown, _ = figures.chosen_records(records, choice)
    keeps = sorted({record.config.keep_probability for record in shown}, reverse=True)
    names = figures.ordered({record.config.activation for record in shown})
    panels: list[canvas] = []
    for keep, split in [(keep, split) for keep in keeps for split in splits]:
        title = f"{figures.SPLITS[split]} loss, {figures.condition(keep)}"
        panel = _panel(title=title, height=300, y_axis_type="log")
        panel.yaxis.formatter = LogTickFormatter(min_exponent=4)
        panel.xaxis.axis_label, panel.yaxis.axis_label = "epoch", "log loss (nats)"
        if panels:
            panel.x_range = panels[0].x_range
        items = []
        for name in names:
            runs = [run for run in shown if (run.config.activation, run.config.keep_probability) == (name, keep)]
            if not runs:
                continue
            epochs, values = figures.curves(runs, split)
            ends = values[:, 2::3]
            lines = [row[np.isfinite(row)].astype(np.float32) for row in ends]
            source = ColumnDataSource(
                {
                    "xs": [epochs[2::3][: len(line)].astype(np.float32) for line in lines],
                    "ys": lines,
                    "activation": [activations.title(name)] * len(runs),
                    "seed": [run.config.seed for run in runs],
                    "rate": [f"{run.config.learning_rate:g}" for run in runs],
                }
            )
            look: dict[str, Any] = {"line_color": figures.STYLES[name][0], "line_dash": _DASHES.get(name, "dotted")}
            drawn: Any = panel.multi_line("xs", "ys", source=source, line_alpha=0.55, name="runs", **look)
            drawn.hover_glyph = drawn.glyph.clone(line_alpha=1, line_width=4)
            items.append(LegendItem(label=activations.title(name), renderers=[drawn]))
        tips = [("", "@activation, seed @seed"), ("epoch", "$x{0.0}"), ("log loss", "$y{0.0000}"), ("learning rate", "@rate")]
        panel.add_tools(HoverTool(tooltips=tips, line_policy="nearest"))
        panel.add_layout(Legend(items=items, orientation="horizontal", click_policy="hide", border_line_alpha=0), "above")
        panels.append(panel)
    return column(*panels, sizing_mode="stretch_width")


def intervals(verdicts: pd.DataFrame, margin: float = statistics.MARGIN) -> UIElement:
    """`figures.intervals` with the numbers of the comparison that is pointed at."""
    rows = verdicts[(verdicts["comparison"] != statistics.ALL) & verdicts["measured"].notna()].reset_index(drop=True)
    conditions = [figures.condition(keep, short=True) for keep in rows["keep_probability"]]
    labels = [f"{activations.title(name)}\n{where}" for name, where in zip(rows["rival"], conditions, strict=True)]
    panel = _panel(y_range=FactorRange(factors=labels[::-1]), height=120 + 60 * len(rows), x_axis_type="log")
    panel.add_layout(BoxAnnotation(left=1 / (1 + margin), right=1 + margin, fill_color="#CCCCCC", fill_alpha=0.6, line_alpha=0))
    panel.vspan(1, line_color="#555555")
    source = ColumnDataSource(
        {
            "label": labels,
            "colour": [figures.STYLES[name][0] for name in rows["rival"]],
            **{name: rows[name] for name in ("measured", "low", "high", "published", "n", "verdict")},
        }
    )
    panel.segment("low", "label", "high", "label", source=source, line_color="colour", line_width=5)
    here = panel.scatter("measured", "label", source=source, size=14, color="colour", marker="circle")
    paper = panel.scatter("published", "label", source=source, size=11, line_color="colour", fill_color="white", marker="diamond")
    tips = [("", "@label"), ("ratio here", "@measured{0.000} [@low{0.000}, @high{0.000}]"), ("paper", "@published{0.000}")]
    panel.add_tools(HoverTool(tooltips=[*tips, ("seeds", "@n"), ("verdict", "@verdict")], renderers=[here, paper]))
    panel.xaxis.axis_label = f"training loss of {rows['comparison'].iloc[0].split(' vs ')[0]} / rival's"
    panel.xaxis.formatter = LogTickFormatter(min_exponent=4)
    return panel


def _panel(**options: Any) -> canvas:
    panel = canvas(sizing_mode="stretch_width", tools=_TOOLS, toolbar_location=None, **options)
    panel.axis.axis_label_text_font_style = "normal"
    return panel
