"""Matplotlib figures of records and tables, and captions that say what made them.

Each activation has one colour (of Okabe and Ito's palette for the paper's), line style and marker everywhere, so that it is
told apart without colour too. Panels are stacked and type is large: a figure can be read at the width of a phone. No figure
is known to pyplot.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any, ParamSpec, cast

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from gelu_study import activations, ledger, published, statistics, titles
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunRecord

Choice = Mapping[tuple[str, float], float]
P = ParamSpec("P")

STYLES = {name: (look.colour, look.line, look.marker) for name, look in titles.LOOKS.items()}
"""Colour, line style and marker of each activation."""

METRICS = {
    "train_loss": "training loss of the last epoch (nats)",
    "validation_loss": "final validation loss (nats)",
    "validation_error": "final validation error (%)",
    "test_loss": "final test loss (nats)",
    "test_error": "final test error (%)",
    "train_loss_full": "training loss after the last step (nats)",
    "train_error_full": "training error after the last step (%)",
    "test_error_views": "final test error, views of an image averaged (%)",
    "best_train_loss": "training loss in the best epoch (nats)",
    "best_validation_loss": "least validation loss (nats)",
    "best_validation_error": "validation error in the best epoch (%)",
    "best_test_loss": "test loss in the best epoch (nats)",
    "best_test_error": "test error in the best epoch (%)",
}
"""How an axis names a metric of the run table; the best epoch is that of least validation loss."""

SPLITS = {"train": "Training", "validation": "Validation"}
FEW = 7
"""Up to this many seeds a band shows their range, beyond it the quartiles."""

_WIDTH = 6.0  # inches
_TYPE: dict[str, Any] = {
    "font.size": 12,
    "axes.titlesize": 12.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 12,
    "legend.fontsize": 11.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "lines.linewidth": 2.0,
}
_PAPER_LINE: dict[str, Any] = {"linestyle": (0, (1, 1.3)), "linewidth": 1.3}


def typeset(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw with this module's type, whatever the caller's settings."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(cast(Any, _TYPE))
            return draw(*args, **kwargs)

    return drawn


@typeset
def learning_curves(
    records: Iterable[RunRecord], choice: Choice | None = None, *, splits: Sequence[str] = ("train", "validation")
) -> Figure:
    """Log loss over epochs as figure 2 shows it, with the published curves dotted beneath where the data are MNIST.

    One panel for each keep probability and split. Lines are medians over seeds, bands their range or, beyond `FEW`
    seeds, quartiles; a diverged run counts as infinite from where its curve ends. Training loss is smoothed as it was
    logged (0.995 a minibatch), validation loss here, each run by itself before the median, with the b of
    `published.SMOOTHING`. `choice` holds the learning rates to show, by default those that validation chose. Raises
    `ConfigurationError` if the records are of several scales or none is of a chosen rate.
    """
    shown, choice = chosen_records(records, choice)
    keeps = sorted({record.config.keep_probability for record in shown}, reverse=True)
    names = ordered({record.config.activation for record in shown})
    config = shown[0].config
    compared = config.experiment == published.CLASSIFIER.experiment and config.dataset == "mnist"
    cells = [(keep, split) for keep in keeps for split in splits]
    figure, axes = panels(len(cells), height=2.35, sharex=True)
    found_published = False
    for ax, (keep, split) in zip(axes, cells, strict=True):
        for name in names:
            runs = [r for r in shown if (r.config.activation, r.config.keep_probability) == (name, keep)]
            if not runs:
                continue
            band(ax, name, *curves(runs, split), gid=f"{name} {keep:g} {split}")
            if compared and (paper := _published(name, keep, split, config.epochs)) is not None:
                found_published = True
                paper_curve(ax, name, *paper, gid=f"published {name} {keep:g} {split}")
        ax.set_title(f"{SPLITS[split]} loss, {condition(keep)}")
        ax.set_ylabel("log loss (nats)")
        log_axis(ax, "y")
        ax.set_xlim(0, config.epochs)
    axes[-1].set_xlabel("epoch")
    legend(figure, names, [paper_key()] if found_published else [])
    return figure


@typeset
def distributions(table: pd.DataFrame, metric: str = "train_loss", choice: Choice | None = None) -> Figure:
    """A metric of every run at the chosen learning rates, a dot each, with the median over seeds and its interval.

    One panel for each keep probability. A diverged run is a cross at the right end. Diamonds are the last points of the
    paper's figure 2 (only for `train_loss` of MNIST at the paper's epochs). Raises as `learning_curves` does.
    """
    if metric not in METRICS:
        raise ConfigurationError(f"no axis for metric {metric!r}; known are {', '.join(METRICS)}")
    statistics.refuse_mixture(table)
    rows = statistics.at_choice(table, choice)
    if rows.empty:
        raise ConfigurationError("no run was trained at a chosen learning rate; there is nothing to draw")
    keeps = sorted(rows["keep_probability"].unique(), reverse=True)
    names = ordered(rows["activation"])
    compared = metric == "train_loss" and _at_papers_scale(rows)
    figure, axes = panels(len(keeps), height=0.8 + 0.5 * len(names), sharex=True)
    diverged = (rows["status"] == "diverged").to_numpy()
    found_published = False
    for ax, keep in zip(axes, keeps, strict=True):
        for place, name in enumerate(names):
            here = (rows["activation"] == name).to_numpy() & (rows["keep_probability"] == keep).to_numpy()
            values = rows.loc[here & ~diverged, metric].to_numpy(dtype=float)
            colour, _, marker = STYLES[name]
            ax.plot(
                values,
                place + _jitter(len(values)),
                marker,
                color=colour,
                alpha=0.6,
                ms=5.5,
                mew=0,
                gid=f"{name} {keep:g}",
            )
            if lost := int((here & diverged).sum()):
                at_the_end: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "color": colour, "clip_on": False}
                ax.plot(np.full(lost, 1.0), place + _jitter(lost), "x", ms=7, mew=2, **at_the_end)
                ax.text(0.975, place, f"{lost} diverged", va="center", ha="right", **at_the_end)
            median, low, high = statistics.median_interval(np.r_[values, np.full(lost, np.inf)])
            if np.isfinite(median):
                ax.plot([median] * 2, [place - 0.32, place + 0.32], color="black", lw=2.2, zorder=4)
                ends = [end if np.isfinite(end) else edge for end, edge in ((low, median), (high, values.max()))]
                ax.plot(ends, [place] * 2, color="black", lw=1.3, zorder=4)
            if compared and np.isfinite(paper := published.final_value(name, keep)):
                found_published = True
                ax.plot(paper, place - 0.36, "D", mfc="white", mec=colour, mew=1.8, ms=6.5, zorder=5, clip_on=False)
        ax.set_yticks(range(len(names)), [activations.title(name) for name in names])
        ax.set_ylim(len(names) - 0.45, -0.6)
        ax.set_title(condition(keep).capitalize())
        ax.tick_params(axis="y", length=0)
        log_axis(ax, "x")
    axes[-1].set_xlabel(METRICS[metric])
    handles = [
        Line2D([], [], marker="o", ls="", color="#444444", alpha=0.6, label="a run"),
        Line2D([], [], marker="|", ms=14, mew=2.2, lw=1.3, color="black", label="median, 95 % interval"),
    ]
    if found_published:
        handles.append(Line2D([], [], marker="D", ls="", mfc="white", mec="#444444", mew=1.8, label="paper"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
    return figure


@typeset
def intervals(verdicts: pd.DataFrame, margin: float = statistics.MARGIN) -> Figure:
    """A forest plot of `statistics.verdicts`: ratios of losses with their intervals, the margin as a grey band.

    Left of 1, the claim's subject is better. Diamonds are the paper's ratios. A comparison without runs keeps its line,
    empty; what leaves the axis (an infinite ratio) ends in an arrow. The axis is logarithmic.
    """
    rows = verdicts[verdicts["comparison"] != statistics.ALL].reset_index(drop=True)
    figure, (ax,) = panels(1, height=1.7 + 0.72 * len(rows))
    ax.axvspan(1 / (1 + margin), 1 + margin, color="#CCCCCC", alpha=0.8, lw=0)
    ax.axvline(1, color="#555555", lw=1)
    numbers = rows[["measured", "low", "high", "published"]].to_numpy(dtype=float)
    usable = numbers[np.isfinite(numbers) & (numbers > 0)]
    left, right = min([0.8, *(usable / 1.25)]), max([1.25, *(usable * 1.25)])
    ax.set_xlim(left, right)
    for place, row in rows.iterrows():
        colour, _, marker = STYLES[row["rival"]]
        ends = [end if np.isfinite(end) and end > 0 else edge for end, edge in ((row["low"], left), (row["high"], right))]
        if np.isfinite(row["published"]):
            ax.plot(row["published"], place - 0.26, "D", mfc="white", mec=colour, mew=1.8, ms=6.5, zorder=3)
        if not np.isnan(row["measured"]):
            if not np.isnan(row["low"]):
                ax.plot(ends, [place] * 2, color=colour, lw=2.4, solid_capstyle="butt")
            inside = min(max(row["measured"], left), right)
            beyond = ">" if row["measured"] > right else "<" if row["measured"] < left else marker
            ax.plot(
                inside,
                place,
                beyond,
                color=colour,
                ms=8,
                zorder=4,
                clip_on=False,
                gid=f"{row['rival']} {row['keep_probability']:g}",
            )
        where = (0.99, place + 0.42)
        label = ax.annotate(row["verdict"], where, xycoords=("axes fraction", "data"), ha="right", va="center", size=11.5)
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # the margin's band runs behind it
    labels = [f"{_rival(row)}\n{condition(row['keep_probability'], short=True)}" for _, row in rows.iterrows()]
    ax.set_yticks(range(len(rows)), labels)
    ax.set_ylim(len(rows) - 0.35, -0.6)
    ax.tick_params(axis="y", length=0)
    log_axis(ax, "x")
    subject = rows["comparison"].iloc[0].split(" vs ")[0]
    ax.set_xlabel(f"training loss of {subject} / rival's\n(left of 1: {subject} is better)")
    handles = [
        Line2D([], [], marker="o", color="#444444", lw=2.4, label="here"),
        Line2D([], [], marker="D", ls="", mfc="white", mec="#444444", mew=1.8, label="paper"),
        Patch(color="#CCCCCC", label=f"within {100 * margin:g} %"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return figure


def caption(table: pd.DataFrame, scale: str, sentence: str = "", *, bands: bool = False) -> str:
    """`sentence`, then how many runs and seeds, at which scale, on what device and when made what is shown.

    `table` holds the rows shown. With `bands`, the lines and bands of `learning_curves` are explained.
    """
    if table.empty:
        return f"{sentence} There are no runs yet.".strip()
    counts = table.groupby(["activation", "keep_probability", "learning_rate"]).size()
    n = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    parts = [sentence] if sentence else []
    if bands:
        kinds = {"their range" if count <= FEW else "their quartiles" for count in counts}
        single = "Each line is one run." if n == "1" else ""
        parts.append(single or f"Lines are medians over {n} seeds, bands {' or '.join(sorted(kinds))}.")
    devices = ", ".join(sorted({str(device) for device in table["device"].dropna()})) or "not recorded"
    days = sorted({datetime.fromisoformat(str(start)).date() for start in table["started"].dropna()})
    when = "not recorded" if not days else f"{days[0]}" if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    lost = int((table["status"] == "diverged").sum())
    runs = "1 run" if len(table) == 1 else f"{len(table)} runs, {n} for each setting"
    runs += f", {lost} of them diverged" if lost else ""
    parts.append(f"{runs}; scale: {scale}; device: {devices}; date: {when}.")
    return " ".join(parts)


def in_words(table: pd.DataFrame, metric: str) -> str:
    """The medians over seeds of a metric, from least to greatest in each condition, for those who do not see the figure."""
    said = []
    for keep, rows in table.groupby("keep_probability", sort=False):
        medians = rows.assign(value=rows[metric].fillna(np.inf)).groupby("activation")["value"].median()
        said.append(f"{condition(float(str(keep)))}, median {METRICS[metric]}: {ascending(medians.to_dict())}")
    return "; ".join(said)


def ascending(medians: Mapping[Any, float], unit: str = "") -> str:
    """Activations, or networks by their names, from the least value to the greatest: "GELU (tanh) 6.1 %, ReLU diverged"."""
    looks = {name: activations.title(name) if name in STYLES else str(name) for name in medians}
    return ", ".join(
        f"{looks[name]} {f'{medians[name]:.3g}{unit}' if np.isfinite(medians[name]) else 'diverged'}"
        for name in sorted(medians, key=lambda name: float(medians[name]))
    )


def chosen_records(records: Iterable[RunRecord], choice: Choice | None) -> tuple[list[RunRecord], Choice]:
    """The records at the chosen learning rates, of one scale."""
    runs = list(records)
    frame = ledger.table(runs)
    statistics.refuse_mixture(frame)
    choice = statistics.chosen(frame) if choice is None else choice
    shown = [r for r in runs if choice.get((r.config.activation, r.config.keep_probability)) == r.config.learning_rate]
    if not shown:
        raise ConfigurationError("no run was trained at a chosen learning rate; there is nothing to draw")
    return shown, choice


def curves(runs: Sequence[RunRecord], split: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Epochs [points] and smoothed log losses [runs, points], infinite where a diverged run has no more values."""
    config = runs[0].config
    name = {"train": "train_loss_smoothed", "validation": "validation_loss"}[split]
    points = 3 * config.epochs
    values = np.full((len(runs), points), np.inf)
    panel = published.PANELS.get(config.keep_probability, "")
    b = published.SMOOTHING.get((2, panel, split), 0.0) if split == "validation" else 0.0  # training losses are logged smoothed
    for row, run in zip(values, runs, strict=True):
        logged = run.curves.get(name, [])[:points]
        row[: len(logged)] = published.smooth(logged, b)
    return np.arange(1, points + 1) / 3, values


def band(ax: Axes, name: str, epochs: NDArray[np.float64], values: NDArray[np.float64], gid: str) -> None:
    """The median of an activation's runs [runs, points] as a line over the band of `spread`."""
    colour, line, _ = STYLES[name]
    middle, low, high = spread(values)
    ax.fill_between(epochs, low, high, color=colour, alpha=0.16, linewidth=0)
    ax.plot(epochs, middle, color=colour, linestyle=line, zorder=3, gid=gid)


def paper_curve(ax: Axes, name: str, epochs: pd.Series, values: pd.Series, gid: str) -> None:
    """A published curve, dotted, in the activation's colour."""
    ax.plot(epochs, values, color=STYLES[name][0], **_PAPER_LINE, zorder=2.5, gid=gid)


def paper_key() -> Line2D:
    """The legend's entry for `paper_curve`."""
    return Line2D([], [], color="#444444", label="paper", **_PAPER_LINE)


def spread(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Median, lower and upper edge of the band over the runs; NaN, hence not drawn, where infinite."""
    low, high = (0.0, 1.0) if len(values) <= FEW else (0.25, 0.75)
    # quantiles that are values of runs, as interpolation with infinity is not defined
    edges = np.quantile(values, [low, high], axis=0, method="closest_observation")
    ceiling = np.where(np.isfinite(values), values, -np.inf).max(axis=0)
    edges[1] = np.minimum(edges[1], ceiling)  # a band with diverged runs ends at the greatest finite value
    with np.errstate(invalid="ignore"):
        result = np.stack([np.median(values, axis=0), *edges])
    return tuple(np.where(np.isfinite(result), result, np.nan))


def _published(name: str, keep: float, split: str, epochs: int) -> tuple[pd.Series, pd.Series] | None:
    """Epochs and values of a curve of figure 2, as far as our epochs go."""
    if keep not in published.PANELS or name not in published.NAMES:
        return None
    curve = published.curves(2, published.PANELS[keep])
    curve = curve[(curve["split"] == split) & (curve["activation"] == published.NAMES[name]) & (curve["epoch"] <= epochs)]
    return (curve["epoch"], curve["value"]) if len(curve) else None


def _at_papers_scale(rows: pd.DataFrame) -> bool:
    first = rows.iloc[0]
    return (first["experiment"], first["dataset"], first["epochs"]) == (published.CLASSIFIER.experiment, "mnist", 50)


def panels(count: int, *, height: float, sharex: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels one above the other, each of `height` inches."""
    figure = Figure(figsize=(_WIDTH, height * count + 0.55), layout="constrained", facecolor="white")
    axes = figure.subplots(count, 1, sharex=sharex, squeeze=False)
    return figure, list(axes[:, 0])


def legend(figure: Figure, names: Sequence[str], extra: Sequence[Line2D]) -> None:
    """A legend above the panels: the activations in their styles, then `extra`."""
    lines = [Line2D([], [], color=STYLES[name][0], linestyle=STYLES[name][1], label=activations.title(name)) for name in names]
    handles = [*lines, *extra]
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=min(4, len(handles)),
        frameon=False,
        handlelength=2.6,
        columnspacing=1.2,
    )


def log_axis(ax: Axes, which: str) -> None:
    """A logarithmic axis with plain numbers and enough of them."""
    ax.set_xscale("log") if which == "x" else ax.set_yscale("log")
    axis: Axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = ax.get_xlim() if which == "x" else ax.get_ylim()
    decades = np.log10(high / low)
    steps = (1, 2, 3, 4, 5, 6, 8) if decades < 0.7 else (1, 2, 5) if decades < 2.5 else (1,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    ax.grid(True, axis=which)  # type: ignore[arg-type]


def picture(figure: Figure, alt: str) -> str:
    """A figure as an image in HTML, quick to draw, for what is drawn again and again. `alt` says what it shows: JupyterLab drops
    that of an `IPython.display.Image`, and ipywidgets' own image has none."""
    image = io.BytesIO()
    FigureCanvasAgg(figure).print_png(image)
    width, height = figure.get_size_inches() * 96
    source = f"data:image/png;base64,{base64.b64encode(image.getvalue()).decode()}"
    size = f'width="{width:.0f}" height="{height:.0f}" style="max-width: 100%; height: auto"'
    return f'<img {size} alt="{html.escape(alt)}" src="{source}">'


def ordered(names: Iterable[str]) -> list[str]:
    """Without repetition, in the order of `STYLES`."""
    found = set(names)
    return [name for name in STYLES if name in found]


def _jitter(count: int) -> NDArray[np.float64]:
    """Small offsets, the same every time, that keep neighbouring dots apart."""
    golden = (np.sqrt(5) - 1) / 2
    return 0.4 * ((np.arange(count) * golden) % 1 - 0.5) if count > 1 else np.zeros(count)


def condition(keep: float, short: bool = False) -> str:
    """A keep probability in the words of titles and labels."""
    if keep == 1:
        return "no dropout"
    return f"dropout, keep {keep:g}" if short else f"dropout with keep probability {keep:g}"


def _rival(row: pd.Series) -> str:
    return "vs " + str(row["comparison"]).split(" vs ")[1]
