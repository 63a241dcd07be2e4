"""The paper's claims and learning curves, read from `data/paper` (its README says where they come from), and its
smoothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import scipy  # its parts are imported as they are used
from numpy.typing import ArrayLike, NDArray

from gelu_study import paths
from gelu_study.errors import ConfigurationError, DataError

SMOOTHING = {
    (2, "left", "train"): 0.995,
    (2, "right", "train"): 0.995,
    (2, "left", "validation"): 0.7,
    (2, "right", "validation"): 0.5,
    (3, "left", "test"): 0.8,
    (3, "left", "train"): 0.8,
    (3, "right", "train"): 0.8,
    (5, "main", "train"): 0.7,
    (5, "main", "test"): 0.7,
    (6, "main", "train"): 0.7,
    (6, "main", "test"): 0.7,
    (8, "main", "test"): 0.1,
}
"""The b of `smooth` for (figure, panel, split), where it was identified; the training loss of figures 2 and 3 is
smoothed per minibatch."""

POINTS = {5: 200, 6: 50}
"""Points of a curve of figures 5 and 6, one an epoch: as many as epochs."""

PANELS = {1.0: "left", 0.5: "right"}
"""Figure 2's panel for each keep probability."""

AUTOENCODER = {1e-3: (3, "left"), 1e-4: (3, "right"), 1e-5: (8, "main")}
"""The autoencoder's figure and panel for each learning rate."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper that one activation's loss is the lowest."""

    name: str
    statement: str  #: in our words
    where: str
    experiment: str
    metric: str  #: column of the run table, judged by `statistics.verdict`
    subject: str
    rivals: tuple[str, ...]
    keep_probabilities: tuple[float, ...]


CLASSIFIER = Claim(
    name="MNIST classifier",
    statement="GELU tends to have the lowest median training log loss, with and without dropout.",
    where="section 3.1, figure 2",
    experiment="mnist-classifier",
    metric="train_loss",
    subject="gelu_tanh",
    rivals=("relu", "elu"),
    keep_probabilities=(1.0, 0.5),
)

SILU = replace(
    CLASSIFIER,
    name="SiLU",
    statement="SiLU is worse than GELU, though usually better than ReLU and ELU. Judged is the first half, on MNIST.",
    where="section 5",
    rivals=("silu",),
)

NAMES = {"gelu_tanh": "GELU", "relu": "ReLU", "elu": "ELU"}
"""The curves' names of activations; the paper ran the tanh form throughout."""


def smooth(values: ArrayLike, b: float) -> NDArray[np.float64]:
    """Exponential smoothing along the last axis: s(k) = b s(k-1) + (1 - b) y(k), s(0) = y(0), as the paper's curves
    were plotted.

    Raises `ConfigurationError` unless 0 <= b < 1.
    """
    if not 0 <= b < 1:
        raise ConfigurationError(f"b is {b}; it must lie in [0, 1)")
    y = np.asarray(values, dtype=np.float64)
    if y.size == 0:
        return y.copy()
    result, _ = scipy.signal.lfilter([1 - b], [1, -b], y, axis=-1, zi=b * y[..., :1])
    return np.asarray(result, dtype=np.float64)


def curves(figure: int | None = None, panel: str | None = None) -> pd.DataFrame:
    """The curves as plotted (smoothed), all or those of a figure and panel.

    Columns: figure, panel, experiment, metric, split, activation, epoch, value. Raises `ConfigurationError` if there
    are none.
    """
    return _selected("curves", figure, panel)


def by_epoch(figure: int) -> pd.DataFrame:
    """The curves of figure 5 or 6 as plotted, with `epoch` counted from 1 instead of plotted: the figures spread the points evenly
    from 0 to the number of epochs, so that the first one, of epoch 1, stands at 0."""
    table, points = curves(figure, "main"), POINTS[figure]
    return table.assign(epoch=(1 + table["epoch"] * (points - 1) / points).round().astype(int))


def unsmoothed(figure: int | None = None, panel: str | None = None) -> pd.DataFrame:
    """The curves with the smoothing inverted; `on_grid` is 1 where `raw_value` is almost surely one run's logged
    value."""
    return _selected("curves-unsmoothed", figure, panel)


def bands(figure: int | None = None, panel: str | None = None) -> pd.DataFrame:
    """The noisy training curves of figures 3 and 8, a row an epoch: mean, least and greatest of the vertices drawn in it.

    Columns: figure, panel, experiment, metric, split, activation, epoch (its middle), mean, vertex_min, vertex_max, n_vertices.
    Raises `ConfigurationError` if there are none.
    """
    return _selected("curves-bands", figure, panel)


def claims(kind: str | None = None, experiment: str | None = None) -> pd.DataFrame:
    """What the text states, with its place in the paper; `kind` is result, qualitative or setting."""
    table = _read("claims")
    for column, wanted in (("kind", kind), ("experiment", experiment)):
        if wanted is not None:
            if wanted not in set(table[column]):
                raise ConfigurationError(f"no claim of {column} {wanted!r}; known are {', '.join(table[column].unique())}")
            table = table[table[column] == wanted]
    return table.reset_index(drop=True)


def final_value(activation: str, keep_probability: float, split: str = "train") -> float:
    """The last point of a curve of figure 2, in nats; NaN where the figure has no such curve."""
    panel = PANELS.get(keep_probability)
    if panel is None:
        return float("nan")
    return last_point(2, panel, split, activation)


def last_point(figure: int, panel: str, split: str, activation: str, until: float = float("inf")) -> float:
    """The last point of a curve up to an epoch, as plotted, smoothed where the figure's are; NaN where there is none."""
    curve = curves(figure, panel)
    curve = curve[(curve["split"] == split) & (curve["activation"] == NAMES.get(activation)) & (curve["epoch"] <= until)]
    return float(curve.sort_values("epoch")["value"].iloc[-1]) if len(curve) else float("nan")


def stated(experiment: str, metric: str) -> dict[str, str]:
    """The numbers that the text states for an experiment of `claims`, as it writes them, by what they are of: "GELU", "SOI map".

    A note in brackets is left out of the name. Raises `ConfigurationError` if there are none.
    """
    rows = claims("result", experiment)
    rows = rows[rows["metric"] == metric]
    if rows.empty:
        raise ConfigurationError(f"the text states no {metric} of {experiment}")
    names = rows["activation"].fillna("").str.partition(" (")[0]
    return dict(zip(names, rows["value"].astype(str), strict=True))


def _selected(name: str, figure: int | None, panel: str | None) -> pd.DataFrame:
    table = _read(name)
    if figure is not None:
        table = table[table["figure"] == figure]
    if panel is not None:
        table = table[table["panel"] == panel]
    if table.empty:
        raise ConfigurationError(f"{name}.csv has nothing of figure {figure}, panel {panel}")
    return table.reset_index(drop=True)


def _read(name: str) -> pd.DataFrame:
    return _cached(name).copy()


@cache
def _cached(name: str) -> pd.DataFrame:
    path = paths.PAPER / f"{name}.csv"
    try:
        return pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise DataError(f"could not read {path}: {error}. It is part of the repository; check it out again") from error
