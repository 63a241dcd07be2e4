"""Small networks to play with: widgets in JupyterLab, behind which the study's own engine trains and shows its curves as they come.

Training runs in a thread, so that the kernel hears the stop button. Nothing is recorded: what is trained here is gone with the
kernel.
"""

from __future__ import annotations

import html
import io
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from IPython.display import display
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gelu_study import activations, datasets, figures, pages, training
from gelu_study.errors import ConfigurationError, StudyError
from gelu_study.runs import RunConfig

DATA = {"digits": (1_152, 285, 64), "mnist": (12_800, 5_000, 128)}
"""Training and validation examples, and batch size: few, so that curves move while one looks."""

MEASURES = {"train_loss": "training loss", "validation_error": "validation error, %"}
"""What is drawn and compared."""

DRAW_SECONDS = 0.5
"""Between two drawings, at least; they may take a fifth of the time."""


@dataclass(frozen=True)
class Control:
    """A number that a person changes: what it is, and its range."""

    label: str
    low: float
    high: float
    step: float


CONTROLS = {
    "depth": Control("hidden layers", 1, 16, 1),
    "width": Control("units of each layer", 8, 512, 8),
    "learning_rate": Control("learning rate of Adam", 1e-5, 1, 0.25),  # the step is that of the exponent
    "dropout": Control("dropout, share left out", 0, 0.9, 0.05),
    "seed_count": Control("seeds of each activation", 1, 10, 1),
    "epochs": Control("epochs", 1, 50, 1),
}


@dataclass(frozen=True)
class Settings:
    """What is to be trained. Raises `ConfigurationError` for a name that is not offered or a number out of its range."""

    activations: Sequence[str] = ("gelu_tanh", "relu", "elu")
    depth: int = 4
    width: int = 64
    learning_rate: float = 1e-3
    dropout: float = 0.0
    seed_count: int = 3
    dataset: str = "digits"
    epochs: int = 20

    def __post_init__(self) -> None:
        if not self.activations:
            raise ConfigurationError(f"activations is empty; choose one at least, of {', '.join(offered())}")
        for name in self.activations:
            if name not in offered():
                raise ConfigurationError(f"activations has {name!r} in it; the playground has {', '.join(offered())}")
        if self.dataset not in DATA:
            raise ConfigurationError(f"dataset is {self.dataset!r}; the playground has {' and '.join(DATA)}")
        for name, control in CONTROLS.items():
            value = getattr(self, name)
            if not control.low <= value <= control.high:
                raise ConfigurationError(
                    f"{name} is {value:g}; in the playground it must be from {control.low:g} to {control.high:g}"
                )

    @property
    def described(self) -> str:
        """The settings in a line."""
        names = ", ".join(activations.title(name) for name in self.activations)
        return (
            f"{names}; {self.depth} layers of {self.width} units, learning rate {self.learning_rate:.3g}, "
            f"dropout {self.dropout:g}, {self.seed_count} seed{'s' * (self.seed_count > 1)}, {self.epochs} epochs of {self.dataset}"
        )

    @property
    def configs(self) -> list[RunConfig]:
        """A run for each activation and seed; the networks are those of the MNIST classifier but for their size."""
        train, validation, batch = DATA[self.dataset]
        return [
            RunConfig(
                experiment="playground",
                dataset=self.dataset,
                dataset_sha256=datasets.content_hash(self.dataset),
                train_examples=train,
                validation_examples=validation,
                network="perceptron",
                hidden=(self.width,) * self.depth,
                activation=name,
                initialisation="unit-norm",
                optimiser="adam-tensorflow",
                learning_rate=float(self.learning_rate),
                keep_probability=round(1 - self.dropout, 6),
                batch_size=batch,
                epochs=self.epochs,
                precision="float32",
                seed=seed,
            )
            for name in dict.fromkeys(self.activations)
            for seed in range(self.seed_count)
        ]


def offered() -> list[str]:
    """The activations that can be chosen."""
    return [name for name in figures.STYLES if name in activations.names()]


class _Stopped(Exception):
    """The stop button was pressed."""


@dataclass
class Training:
    """A training in a thread of its own: its curves so far, and how it stands. `changed` is called in that thread."""

    settings: Settings
    changed: Callable[[Training], None] = lambda _: None
    state: str = "running"  # then "finished", "stopped", or what went wrong
    epochs: list[float] = field(default_factory=list)
    curves: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    """Of each measure and activation: a row a time, a value a seed."""

    def start(self) -> None:
        """Begin; returns at once."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask it to stop; it does within a third of an epoch."""
        self._stop.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    def values(self, measure: str, name: str) -> NDArray[np.float64]:
        """The curves of an activation, [times, seeds]; NaN where a run has diverged."""
        found = np.array(self.curves.get(measure, {}).get(name, []), dtype=float).reshape(-1, self.settings.seed_count)
        return np.where(np.isfinite(found), found, np.nan)

    def _run(self) -> None:
        try:
            data = datasets.load(self.settings.dataset)
            list(training.train(self.settings.configs, data, torch.device("cpu"), observe=self._observe))
            self.state = "finished"
        except _Stopped:
            self.state = "stopped"
        except StudyError as error:
            self.state = str(error)
        except Exception as error:  # in a thread nobody else would say it
            self.state = f"{type(error).__name__}: {error}"
        self.changed(self)

    def _observe(self, configs: Sequence[RunConfig], epochs: float, measured: Mapping[str, Sequence[float]]) -> None:
        if self._stop.is_set():
            raise _Stopped
        for measure in MEASURES:
            for name in dict.fromkeys(config.activation for config in configs):
                row = [value for config, value in zip(configs, measured[measure], strict=True) if config.activation == name]
                self.curves.setdefault(measure, {}).setdefault(name, []).append(row)
        self.epochs.append(epochs)
        self.changed(self)


def draw(trained: Training) -> Figure:
    """Training loss and validation error over the epochs: each activation's median, and its seeds from least to greatest."""
    figure = Figure(figsize=(8.4, 3.6), dpi=96, layout="constrained")
    for ax, (measure, words) in zip(figure.subplots(1, 2), MEASURES.items(), strict=True):
        for name in dict.fromkeys(trained.settings.activations):
            values = trained.values(measure, name)
            shown = ~np.isnan(values).all(axis=1)
            x, y = np.array(trained.epochs)[: len(values)][shown], values[shown]
            colour, line, _ = figures.STYLES[name]
            ax.fill_between(x, np.nanmin(y, axis=1), np.nanmax(y, axis=1), color=colour, alpha=0.18, lw=0) if len(y) else None
            ax.plot(
                x, np.nanmedian(y, axis=1) if len(y) else x, color=colour, linestyle=line, lw=1.8, label=activations.title(name)
            )
        ax.set_yscale("log")
        ax.set_xlim(0, trained.settings.epochs)
        ax.set_title(words, fontsize=10)
        ax.set_xlabel("epoch", fontsize=9)
        ax.tick_params(labelsize=8, which="both")
        ax.grid(True, which="major", alpha=0.4)
    figure.axes[0].legend(fontsize=8)
    return figure


def comparison(trained: Training) -> str:
    """What the activations ended with, as an HTML table: medians with the least and greatest of the seeds, best first."""
    ends = {
        name: {measure: last[-1] for measure in MEASURES if len(last := trained.values(measure, name))}
        for name in dict.fromkeys(trained.settings.activations)
    }
    ends = {name: found for name, found in ends.items() if len(found) == len(MEASURES)}
    if not ends:
        return ""
    order = sorted(ends, key=lambda name: _median(ends[name]["validation_error"]))
    rows = []
    for name in order:
        cells = "".join(f"<td>{_spread(ends[name][measure])}</td>" for measure in MEASURES)
        rows.append(f"<tr><th>{html.escape(activations.title(name))}</th>{cells}</tr>")
    head = "".join(f"<th>{words}</th>" for words in ("", *MEASURES.values()))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return table + f"<p>{html.escape(_said(ends, order, trained.settings.seed_count))}</p>"


def _said(ends: Mapping[str, Mapping[str, NDArray[np.float64]]], order: Sequence[str], seeds: int) -> str:
    """The comparison in a sentence, which says nothing that the seeds do not."""
    if seeds == 1:
        return "One seed shows no spread: take more before you believe an order."
    best, rest = order[0], order[1:]
    if not rest:
        return "In brackets: the least and the greatest of the seeds."
    errors = {name: ends[name]["validation_error"] for name in order}
    apart = [name for name in rest if np.nanmin(errors[name], initial=math.inf) > np.nanmax(errors[best], initial=-math.inf)]
    title = activations.title(best)
    clear = " and ".join(activations.title(name) for name in apart)
    if not apart:
        return f"{title} has the least median validation error, but its seeds overlap with those of every other activation."
    return f"{title} has the least median validation error; each of its {seeds} seeds is below each of {clear}."


def _median(values: NDArray[np.float64]) -> float:
    return math.inf if np.isnan(values).all() else float(np.nanmedian(values))


def _spread(values: NDArray[np.float64]) -> str:
    if np.isnan(values).all():
        return "diverged"
    diverged = int(np.isnan(values).sum())
    note = f", {diverged} diverged" if diverged else ""
    around = (
        f" [{pages.number(float(np.nanmin(values)), 2)} to {pages.number(float(np.nanmax(values)), 2)}]" if len(values) > 1 else ""
    )
    return f"{pages.number(float(np.nanmedian(values)), 3)}{around}{note}"


def show(settings: Settings) -> None:
    """Show the playground as widgets; where there are none, its settings as a line."""
    shown = Playground(settings).box._repr_mimebundle_()
    display({**shown, "text/plain": f"The playground: {settings.described}"}, raw=True)


class Playground:
    """The widgets: controls, two buttons, curves, comparison, and a line for each training before."""

    def __init__(self, settings: Settings) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self._training: Training | None = None
        self._drawn, self._took = 0.0, 0.0
        wide = {"style": {"description_width": "17em"}, "layout": ipywidgets.Layout(width="34em")}
        options = [(activations.title(name), name) for name in offered()]
        self._controls: dict[str, Any] = {
            "activations": ipywidgets.SelectMultiple(
                options=options, value=tuple(settings.activations), rows=8, description="activations (Ctrl for several)", **wide
            )
        }
        for name, control in CONTROLS.items():
            kind, bounds = ipywidgets.FloatSlider, {"min": control.low, "max": control.high}
            if name == "learning_rate":
                kind, bounds = ipywidgets.FloatLogSlider, {"min": math.log10(control.low), "max": math.log10(control.high)}
            elif isinstance(getattr(settings, name), int) and float(control.step).is_integer():
                kind = ipywidgets.IntSlider
            self._controls[name] = kind(
                value=getattr(settings, name),
                step=control.step,
                description=control.label,
                continuous_update=False,
                **bounds,
                **wide,
            )
        self._controls["dataset"] = ipywidgets.Dropdown(options=list(DATA), value=settings.dataset, description="data set", **wide)
        self._train = ipywidgets.Button(description="Train", button_style="primary", icon="play")
        self._stop = ipywidgets.Button(description="Stop", icon="stop", disabled=True)
        self._bar = ipywidgets.FloatProgress(min=0, max=1, layout=ipywidgets.Layout(width="20em"))
        self._status = ipywidgets.HTML("Set what you like, then press <b>Train</b>. Nothing is recorded.")
        self._picture = ipywidgets.Image(
            format="png", layout=ipywidgets.Layout(width="52em", max_width="100%", visibility="hidden")
        )
        self._result, self._past = ipywidgets.HTML(), ipywidgets.HTML()
        self._train.on_click(self._begin)
        self._stop.on_click(lambda _: self._training.stop() if self._training else None)
        buttons = ipywidgets.HBox([self._train, self._stop, self._bar])
        right = ipywidgets.VBox([self._picture, self._result])
        left = ipywidgets.VBox([*self._controls.values(), buttons, self._status])
        row = ipywidgets.HBox([left, right], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.box = ipywidgets.VBox([row, self._past])

    def _begin(self, _: object) -> None:
        try:
            settings = Settings(**{name: control.value for name, control in self._controls.items()})
        except ConfigurationError as error:
            self._status.value = html.escape(str(error))
            return
        self._train.disabled, self._stop.disabled = True, False
        self._status.value = f"Training: {html.escape(settings.described)}."
        self._drawn = 0.0
        self._training = Training(settings, self._changed)
        self._training.start()

    def _changed(self, trained: Training) -> None:
        ended = trained.state != "running"
        if trained.epochs and (ended or time.monotonic() - self._drawn > max(DRAW_SECONDS, 4 * self._took)):
            begin = time.monotonic()
            image = io.BytesIO()
            FigureCanvasAgg(draw(trained)).print_png(image)
            self._picture.value = image.getvalue()
            self._picture.layout.visibility = "visible"
            self._result.value = comparison(trained)
            self._bar.value = trained.epochs[-1] / trained.settings.epochs
            self._drawn = time.monotonic()
            self._took = self._drawn - begin
        if ended:
            self._end(trained)

    def _end(self, trained: Training) -> None:
        described = html.escape(trained.settings.described)
        if trained.state in ("finished", "stopped"):
            done = f"{trained.state.capitalize()} after {trained.epochs[-1] if trained.epochs else 0:.1f} epochs"
            self._status.value = f"{done}: {described}."
            if trained.epochs:
                self._past.value = (
                    f"<details><summary>{done}: {described}</summary>{comparison(trained)}</details>{self._past.value}"
                )
        else:
            self._status.value = html.escape(trained.state)
        self._train.disabled, self._stop.disabled = False, True
