"""Figures to point at, beside the still ones: Bokeh draws them in the reader's browser when they are opened, and not before.

A page carries their data; the library, which is larger than the page, lies once beside the site (`copy_library`) and is loaded by
`book/_static/interactive.js`. Without scripts, on paper and in JupyterLab the still figure stands alone.
"""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bokeh
import numpy as np
import pandas as pd
from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, FactorRange, FixedTicker, HoverTool, LogTickFormatter
from bokeh.models.annotations import BoxAnnotation, Legend, LegendItem
from bokeh.models.ui import UIElement
from bokeh.plotting import figure as canvas
from IPython.display import display
from numpy.typing import NDArray

from gelu_study import activations, figures, statistics
from gelu_study.runs import RunRecord

LIBRARY = "bokeh.min.js"
"""What a page loads to draw: about 1.3 MB."""

Array = NDArray[np.float64]

_MARKERS = {"o": "circle", "s": "square", "^": "triangle", "D": "diamond", "P": "plus", "v": "inverted_triangle"}
EACH_SEED = "Point at the curve of each seed, hide an activation, look closer"
"""The title of a figure of `curves`."""

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


@dataclass(frozen=True)
class Panel:
    """Curves of runs over a common axis; a run's are those of its activation's colour and line."""

    title: str
    quantity: str  # of the vertical axis, with its unit
    curves: Sequence[tuple[RunRecord, Array, Array]]  # a run, x [points], y [points]; what is not finite is left out
    logarithmic: bool = True


def curves(panels: Sequence[Panel], axis: str = "epoch") -> UIElement:
    """A curve for each run, in panels one above the other; pointing at one tells its seed and values, a name in the legend hides an
    activation. `axis` names what is common."""
    drawn = [_draw(panel, axis) for panel in panels]
    for panel in drawn[1:]:
        panel.x_range = drawn[0].x_range
    return column(*drawn, sizing_mode="stretch_width")


def _draw(panel: Panel, axis: str) -> canvas:
    shown = _panel(title=panel.title, height=300, y_axis_type="log" if panel.logarithmic else "linear")
    if panel.logarithmic:
        shown.yaxis.formatter = LogTickFormatter(min_exponent=4)
    shown.xaxis.axis_label, shown.yaxis.axis_label = axis, panel.quantity
    items = []
    for name in figures.ordered(run.config.activation for run, _, _ in panel.curves):
        here = [(run, x[np.isfinite(y)], y[np.isfinite(y)]) for run, x, y in panel.curves if run.config.activation == name]
        source = ColumnDataSource(
            {
                "xs": [x.astype(np.float32) for _, x, _ in here],
                "ys": [y.astype(np.float32) for _, _, y in here],
                "activation": [activations.title(name)] * len(here),
                "seed": [run.config.seed for run, _, _ in here],
                "rate": [f"{run.config.learning_rate:g}" for run, _, _ in here],
            }
        )
        look: dict[str, Any] = {"line_color": figures.STYLES[name][0], "line_dash": dashes(name)}
        drawn: Any = shown.multi_line("xs", "ys", source=source, line_alpha=0.55, name="runs", **look)
        drawn.hover_glyph = drawn.glyph.clone(line_alpha=1, line_width=4)
        items.append(LegendItem(label=activations.title(name), renderers=[drawn]))
    tips = [("", "@activation, seed @seed"), (axis, "$x{0.00}"), (panel.quantity, "$y{0.0000}"), ("learning rate", "@rate")]
    shown.add_tools(HoverTool(tooltips=tips, line_policy="nearest"))
    shown.add_layout(Legend(items=items, orientation="horizontal", click_policy="hide", border_line_alpha=0), "above")
    return shown


def dashes(name: str) -> Any:
    """An activation's line style in Bokeh's terms: lengths of dashes and gaps in pixels, for a line of two."""
    style = figures.STYLES[name][1]
    return "solid" if style == "-" else [round(2 * length) for length in style[1]]


def learning_curves(
    records: Iterable[RunRecord], choice: figures.Choice | None = None, splits: Sequence[str] = ("train", "validation")
) -> UIElement:
    """The log loss of each run at the end of each epoch, in the panels of `figures.learning_curves`. Raises as that does."""
    shown, _ = figures.chosen_records(records, choice)
    keeps = sorted({record.config.keep_probability for record in shown}, reverse=True)
    panels = []
    for keep, split in [(keep, split) for keep in keeps for split in splits]:
        lines = []
        for run in (run for run in shown if run.config.keep_probability == keep):
            epochs, values = figures.curves([run], split)
            lines.append((run, epochs[2::3], values[0, 2::3]))
        panels.append(Panel(f"{figures.SPLITS[split]} loss, {figures.condition(keep)}", "log loss (nats)", lines))
    return curves(panels)


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
            "marker": [_MARKERS.get(figures.STYLES[name][2], "circle") for name in rows["rival"]],
            **{name: rows[name] for name in ("measured", "low", "high", "published", "n", "verdict")},
        }
    )
    panel.segment("low", "label", "high", "label", source=source, line_color="colour", line_width=5)
    here = panel.scatter("measured", "label", source=source, size=14, color="colour", marker="marker")
    paper = panel.scatter("published", "label", source=source, size=11, line_color="colour", fill_color="white", marker="diamond")
    tips = [("", "@label"), ("ratio here", "@measured{0.000} [@low{0.000}, @high{0.000}]"), ("paper", "@published{0.000}")]
    panel.add_tools(HoverTool(tooltips=[*tips, ("seeds", "@n"), ("verdict", "@verdict")], renderers=[here, paper]))
    panel.xaxis.axis_label = f"training loss of {rows['comparison'].iloc[0].split(' vs ')[0]} / rival's"
    panel.xaxis.formatter = LogTickFormatter(min_exponent=4)
    panel.xaxis.ticker = FixedTicker(ticks=[step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5)])
    return panel


def _panel(**options: Any) -> canvas:
    panel = canvas(sizing_mode="stretch_width", tools=_TOOLS, toolbar_location=None, **options)
    panel.axis.axis_label_text_font_style = "normal"
    return panel
