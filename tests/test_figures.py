from __future__ import annotations

import io
import itertools
import math
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gelu_study import activations, figures, ledger, protocols, published, statistics
from gelu_study.errors import ConfigurationError
from gelu_study.runs import RunConfig, RunRecord

EPOCHS = 50


def record(config: RunConfig, level: float, diverged: int | None = None) -> RunRecord:
    """A synthetic record whose losses fall like 1 / epoch towards `level`, with the noise of its seed."""
    rng = np.random.default_rng([config.seed, round(level * 1e6)])
    kept = config.epochs if diverged is None else diverged
    thirds = level * (1 + 20 / np.arange(1, 3 * kept + 1)) * rng.lognormal(0, 0.05, 3 * kept)
    curves = {name: thirds.tolist() for name in ("train_loss", "train_loss_smoothed")}
    curves |= {"validation_loss": (thirds + 0.1).tolist(), "validation_error": (thirds + 2).tolist()}
    curves |= {name: thirds[2::3].tolist() for name in ("train_loss_epoch", "test_loss", "test_error")}
    environment = {"device": "cpu", "started": f"2026-01-{1 + config.seed:02d}T10:00:00+00:00"}
    if diverged is not None:
        return RunRecord(config, "diverged", {"step": 429 * diverged, "epoch": diverged + 1}, curves, {}, {}, environment)
    return RunRecord(
        config,
        "finished",
        None,
        curves,
        dict.fromkeys((*config.measures, "train_loss_full", "train_error_full"), thirds[-1]),
        dict.fromkeys((*config.measures, "epoch", "step"), thirds[-1]),
        environment,
    )


def study(seeds: int = 5, diverged: tuple[int, ...] = (), **kwargs: Any) -> list[RunRecord]:
    """The paper's grid, synthetic; 1e-3 is best. Of ReLU with dropout the seeds in `diverged` diverge in epoch 11."""
    level = {"gelu_tanh": 0.01, "relu": 0.011, "elu": 0.02}
    records = []
    for config in protocols.plan("mnist-classifier", "paper", seeds=range(seeds), **kwargs):
        worse = {1e-3: 1, 1e-4: 3, 1e-5: 9}[config.learning_rate] * (1 if config.keep_probability == 1 else 5)
        fails = config.activation == "relu" and config.keep_probability == 0.5 and config.seed in diverged
        records.append(record(config, level.get(config.activation, 0.03) * worse, 10 if fails else None))
    return records


def line(figure: Figure, gid: str) -> Line2D:
    (found,) = [item for ax in figure.axes for item in ax.get_lines() if item.get_gid() == gid]
    return found


def drawn(figure: Figure) -> str:
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg")
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def pyplot_is_left_alone() -> Any:
    before, settings = plt.get_fignums(), dict(mpl.rcParams)
    yield
    assert plt.get_fignums() == before
    assert dict(mpl.rcParams) == settings


def test_activations_are_told_apart_without_colour() -> None:
    assert set(figures.STYLES) == {*activations.names(), *activations.STOCHASTIC}
    for place in range(3):
        assert len({str(style[place]) for style in figures.STYLES.values()}) == len(figures.STYLES)


@pytest.mark.parametrize("seeds", [1, 5, 20])
def test_learning_curves_are_medians_of_smoothed_runs(seeds: int) -> None:
    records = study(seeds)
    figure = figures.learning_curves(records)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        f"{split} loss, {condition}"
        for condition in ("no dropout", "dropout with keep probability 0.5")
        for split in ("Training", "Validation")
    ]
    chosen = [r for r in records if r.config.learning_rate == 1e-3 and r.config.activation == "elu"]
    for keep, b in ((1.0, 0.7), (0.5, 0.5)):
        runs = [r for r in chosen if r.config.keep_probability == keep]
        train = line(figure, f"elu {keep:g} train")
        np.testing.assert_allclose(train.get_xdata(), np.arange(1, 151) / 3)
        np.testing.assert_allclose(
            train.get_ydata(), np.median([r.curves["train_loss_smoothed"] for r in runs], axis=0), rtol=1e-12
        )
        smoothed = []
        for r in runs:
            state = r.curves["validation_loss"][0]
            smoothed.append([state := b * state + (1 - b) * value for value in r.curves["validation_loss"]])
        np.testing.assert_allclose(line(figure, f"elu {keep:g} validation").get_ydata(), np.median(smoothed, axis=0))
    assert drawn(figure).count("<path") > 12


def test_bands_are_the_range_of_few_seeds_and_the_quartiles_of_many() -> None:
    for seeds, inner in ((5, slice(0, 5)), (20, slice(5, 15))):
        runs = np.sort(np.random.default_rng(0).lognormal(size=(seeds, 9)), axis=0)
        middle, low, high = figures.spread(runs)
        np.testing.assert_allclose(middle, np.median(runs, axis=0))
        outside = slice(0, 1) if seeds == 5 else slice(3, 6)
        assert (low <= runs[inner][0]).all()
        assert any((low == row).all() for row in runs[outside])
        assert (high >= runs[inner][-2]).all()
    np.testing.assert_array_equal(figures.spread(np.array([[3.0, 1.0], [2.0, 5.0]]))[1:], [[2, 1], [3, 5]])


def test_published_curves_lie_over_ours() -> None:
    figure = figures.learning_curves(study(2))
    paper = line(figure, "published gelu_tanh 0.5 train")
    expected = published.curves(2, "right").query("activation == 'GELU' and split == 'train'")
    np.testing.assert_array_equal(paper.get_ydata(), expected["value"])
    assert paper.get_color() == line(figure, "gelu_tanh 0.5 train").get_color()
    assert paper.get_linewidth() < line(figure, "gelu_tanh 0.5 train").get_linewidth()
    assert ">paper<" in drawn(figure)


def test_no_published_curve_over_other_data() -> None:
    configs = protocols.plan("mnist-classifier", "quick", dataset="digits", seeds=[0, 1])
    records = [record(config, 0.1 * config.learning_rate**-0.1) for config in configs]
    figure = figures.learning_curves(records)
    assert not [item for ax in figure.axes for item in ax.get_lines() if str(item.get_gid()).startswith("published")]
    assert ">paper<" not in drawn(figure)
    assert ">paper<" not in drawn(figures.distributions(ledger.table(records)))


def test_published_curves_end_where_ours_do() -> None:
    records = [record(c, 0.1 + c.learning_rate) for c in protocols.plan("mnist-classifier", "quick", seeds=[0, 1])]
    figure = figures.learning_curves(records, splits=["train"])
    assert len(figure.axes) == 2
    assert max(line(figure, "published gelu_tanh 1 train").get_xdata()) <= 5
    assert figure.axes[0].get_xlim() == (0, 5)


def test_diverged_runs_in_the_curves() -> None:
    with_one = figures.learning_curves(study(5, diverged=(0,)))
    assert np.isfinite(line(with_one, "relu 0.5 train").get_ydata()).all()
    most = figures.learning_curves(study(5, diverged=(0, 1, 2)), {("relu", 0.5): 1e-3, ("elu", 0.5): 1e-3})
    middle = np.asarray(line(most, "relu 0.5 validation").get_ydata())
    assert np.isfinite(middle[:30]).all()
    assert np.isnan(middle[30:]).all()
    drawn(most)


def test_other_activations_and_one_alone() -> None:
    records = study(2, activations=["silu", "gelu"], keep_probabilities=[0.75])
    figure = figures.learning_curves(records)
    assert len(figure.axes) == 2
    text = drawn(figure)
    assert ">SiLU<" in text
    assert ">GELU<" in text
    assert "keep probability 0.75" in text


def test_nothing_chosen_is_said() -> None:
    for draw in (figures.learning_curves, lambda records: figures.distributions(ledger.table(records))):
        with pytest.raises(ConfigurationError, match="nothing to draw"):
            draw([])
    with pytest.raises(ConfigurationError, match="mixes runs with"):
        figures.learning_curves(study(1) + [record(c, 0.1) for c in protocols.plan("mnist-classifier", "quick")])


def test_distributions_show_every_seed() -> None:
    table = ledger.table(study(20, diverged=(3,)))
    figure = figures.distributions(table)
    rows = statistics.at_choice(table).query("keep_probability == 0.5 and status == 'finished'")
    for name in ("gelu_tanh", "relu", "elu"):
        dots = line(figure, f"{name} 0.5")
        np.testing.assert_array_equal(dots.get_xdata(), rows.loc[rows["activation"] == name, "train_loss"])
    text = drawn(figure)
    assert ">1 diverged<" in text
    assert ">GELU (tanh)<" in text
    assert ">paper<" in text
    assert ">paper<" not in drawn(figures.distributions(table, "best_test_error"))
    with pytest.raises(ConfigurationError, match="no axis for metric"):
        figures.distributions(table, "seconds")


def test_distributions_where_all_diverged() -> None:
    table = ledger.table(study(3, diverged=(0, 1, 2)))
    figure = figures.distributions(table, choice={("relu", 0.5): 1e-3, ("elu", 0.5): 1e-3})
    assert ">3 diverged<" in drawn(figure)


def test_dots_keep_their_place() -> None:
    offsets = figures._jitter(20)
    assert np.abs(offsets).max() <= 0.2
    assert np.diff(np.sort(offsets)).min() > 0.005
    np.testing.assert_array_equal(offsets, figures._jitter(20))


def test_intervals() -> None:
    verdicts = statistics.verdicts(ledger.table(study(20)))
    figure = figures.intervals(verdicts)
    point = line(figure, "relu 1")
    assert point.get_xdata()[0] == pytest.approx(verdicts["measured"].iloc[0])
    (left, right), (low, high) = figure.axes[0].get_xlim(), (verdicts["low"].min(), verdicts["high"].max())
    assert left < low < high < right
    text = drawn(figure)
    assert text.count(">reproduced<") == 4
    assert ">vs ReLU<" in text


def test_intervals_without_runs_and_with_infinite_ratios() -> None:
    nothing = statistics.verdicts(ledger.table([]), choice={})
    assert drawn(figures.intervals(nothing)).count(">not run<") == 4
    infinite = nothing.copy()
    infinite.loc[0, ["measured", "low", "high"]] = [0.0, 0.0, 1.1]
    infinite.loc[1, ["measured", "low", "high"]] = [math.inf, 0.9, math.inf]
    figure = figures.intervals(infinite)
    drawn(figure)
    assert line(figure, "relu 1").get_marker() == "<"
    assert line(figure, "elu 1").get_marker() == ">"


@pytest.mark.parametrize("kind", ["curves", "distributions", "intervals"])
def test_text_is_large_enough_and_inside(kind: str) -> None:
    records = study(5)
    table = ledger.table(records)
    figure = {
        "curves": lambda: figures.learning_curves(records),
        "distributions": lambda: figures.distributions(table),
        "intervals": lambda: figures.intervals(statistics.verdicts(table)),
    }[kind]()
    assert figure.get_facecolor() == (1, 1, 1, 1)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ticks = {}  # labels of those within the limits, which alone are drawn
    for ax, n in itertools.product(figure.axes, "xy"):
        axis, (low, high) = getattr(ax, f"{n}axis"), sorted(getattr(ax, f"get_{n}lim")())
        inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        assert len(inside) >= 3
        ticks[axis] = [tick.label1 for tick in inside if tick.label1.get_visible()]
    texts = [t for labels in ticks.values() for t in labels] + [t for ax in figure.axes for t in ax.texts]
    texts += [ax.xaxis.label for ax in figure.axes] + [ax.yaxis.label for ax in figure.axes]
    texts += [ax._left_title for ax in figure.axes] + [t for legend in figure.legends for t in legend.get_texts()]
    shown = [t for t in texts if t.get_text() and t.get_visible()]
    assert len(shown) > 10
    on_a_phone = 350 / (figure.get_figwidth() * 72)  # of a point
    assert min(t.get_fontsize() for t in shown) * on_a_phone >= 9
    renderer = canvas.get_renderer()
    for t in shown:
        box = t.get_window_extent(renderer)
        assert figure.bbox.x0 - 1 <= box.x0
        assert box.x1 <= figure.bbox.x1 + 1, t.get_text()
    for labels in ticks.values():
        boxes = [t.get_window_extent(renderer) for t in labels if t.get_text() and t.get_visible()]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_captions() -> None:
    table = statistics.at_choice(ledger.table(study(5, diverged=(2,))))
    text = figures.caption(table, "paper", "Log loss.", bands=True)
    assert text == (
        "Log loss. Lines are medians over 5 seeds, bands their range. "
        "30 runs, 5 for each setting, 1 of them diverged; scale: paper; device: cpu; date: 2026-01-01 to 2026-01-05."
    )
    many = pd.concat([table, *[table.assign(seed=table["seed"] + 5 * i) for i in (1, 2, 3)]])
    assert "medians over 20 seeds, bands their quartiles" in figures.caption(many, "powered", bands=True)
    assert figures.caption(table.iloc[:1], "paper").endswith("scale: paper; device: cpu; date: 2026-01-01.")
    assert figures.caption(table.iloc[:0], "paper", "Log loss.") == "Log loss. There are no runs yet."
    unknown = table.assign(device=None, started=None)
    assert figures.caption(unknown, "paper").endswith("device: not recorded; date: not recorded.")


def test_a_figure_in_words_orders_the_activations_and_counts_a_diverged_run_as_infinite():
    frame = pd.DataFrame(
        [
            {"activation": name, "keep_probability": keep, "train_loss": loss}
            for keep in (1.0, 0.5)
            for name, losses in {"relu": (0.2, 0.4, 0.3), "gelu_tanh": (0.1, math.nan, 0.12)}.items()
            for loss in losses
        ]
    )
    (first, second) = figures.in_words(frame, "train_loss").split("; ")
    assert first == "no dropout, median training loss of the last epoch (nats): GELU (tanh) 0.12, ReLU 0.3"
    assert second.startswith("dropout with keep probability 0.5, median")
    assert figures.ascending({"relu": math.inf, "a network": 7.5, "gelu_tanh": 6.1234}, " %") == "GELU (tanh) 6.12 %, a network 7.5 %, ReLU diverged"
