"""Small networks to play with: widgets in JupyterLab, behind which the study's own engine trains and shows its curves as they come.

Training runs in a thread, so that the kernel hears the stop button. Nothing is recorded: what is trained here is gone with the
kernel.
"""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from IPython.display import display
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gelu_study import activations, datasets, figures, pages, training
from gelu_study.errors import ConfigurationError, StudyError
from gelu_study.runs import RunConfig

DATA = {"digits": (1_152, 285, 64), "mnist": (12_800, 5_000, 128)}
"""Training and validation examples, and batch size: few, so that curves move while one looks."""

MEASURES = {"train_loss": "training loss", "validation_error": "validation error, %"}
"""What is drawn and compared."""

MOST_WEIGHTS = 200_000_000
"""Of all networks of a training: 3.2 GB with gradients and Adam's two moments. A kernel without memory dies wordlessly."""

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
        networks = len(set(self.activations)) * self.seed_count
        pixels = math.prod(datasets.SHAPES[self.dataset]["x_train"][1:])
        weights = networks * self.width * (pixels + (self.depth - 1) * self.width + 10)
        if weights > MOST_WEIGHTS:
            raise ConfigurationError(
                f"{networks} networks of {self.depth} layers of {self.width} units have {weights / 1e6:.0f} million weights; the "
                f"playground trains {MOST_WEIGHTS / 1e6:.0f} million: choose fewer activations or seeds, or smaller networks"
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
    state: str = "running"  # then "finished", "diverged" (every network has), "stopped", or what went wrong
    epochs: list[float] = field(default_factory=list)
    curves: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    """Of each measure and activation: a row a time, a value a seed."""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to stop; it does within a third of an epoch."""
        self._stop.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    def values(self, measure: str, name: str) -> NDArray[np.float64]:
        """The curves of an activation, [times, seeds]; infinity where a run has diverged."""
        found = np.array(self.curves.get(measure, {}).get(name, []), dtype=float).reshape(-1, self.settings.seed_count)
        return np.where(np.isfinite(found), found, np.inf)

    def _run(self) -> None:
        try:
            data = datasets.load(self.settings.dataset)
            list(training.train(self.settings.configs, data, torch.device("cpu"), observe=self._observe))
            self.state = "finished" if self.epochs[-1] == self.settings.epochs else "diverged"
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
    """Training loss and validation error over the epochs: each activation's median, and its seeds as a band."""
    figure = Figure(figsize=(8.4, 3.6), dpi=96, layout="constrained", facecolor="white")
    names = figures.ordered(trained.settings.activations)
    for ax, (measure, words) in zip(figure.subplots(1, 2), MEASURES.items(), strict=True):
        for name in names:
            values = trained.values(measure, name)
            figures.band(ax, name, np.array(trained.epochs)[: len(values)], values.T, f"{measure}-{name}")
        figures.log_axis(ax, "y")
        ax.set_xlim(0, trained.settings.epochs)
        ax.set_title(words, fontsize=10)
        ax.set_xlabel("epoch", fontsize=9)
        ax.tick_params(labelsize=8)
    figures.legend(figure, names, [])
    return figure


def comparison(trained: Training) -> str:
    """What the activations ended with, as an HTML table: medians with the least and greatest of the seeds, best first."""
    if not trained.epochs:
        return ""
    ends = {
        name: {measure: trained.values(measure, name)[-1] for measure in MEASURES}
        for name in figures.ordered(trained.settings.activations)
    }
    order = sorted(ends, key=lambda name: float(np.median(ends[name]["validation_error"])))
    rows = []
    for name in order:
        cells = "".join(f"<td>{_spread(ends[name][measure])}</td>" for measure in MEASURES)
        rows.append(f"<tr><th>{html.escape(activations.title(name))}</th>{cells}</tr>")
    head = "".join(f"<th>{words}</th>" for words in ("", *MEASURES.values()))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return table + f"<p>{html.escape(_said({name: ends[name]['validation_error'] for name in order}))}</p>"


def _said(errors: Mapping[str, NDArray[np.float64]]) -> str:
    """The comparison in a sentence, which says nothing that the seeds do not; `errors` has the best activation first."""
    best, *rest = errors
    if len(errors[best]) == 1:
        return "One seed shows no spread: take more before you believe an order."
    if not rest:
        return "In brackets: the least and the greatest of the seeds."
    title = activations.title(best)
    clear = " and ".join(activations.title(name) for name in rest if errors[name].min() > errors[best].max())
    if not clear:
        return f"{title} has the least median validation error, but its seeds overlap with those of every other activation."
    return f"{title} has the least median validation error; each of its {len(errors[best])} seeds is below each of {clear}."


def _spread(values: NDArray[np.float64]) -> str:
    median = pages.number(float(np.median(values)), 3)
    return median if len(values) == 1 else f"{median} [{pages.number(values.min(), 2)} to {pages.number(values.max(), 2)}]"


_shown: Playground | None = None


def show(settings: Settings) -> None:
    """Show the playground as widgets; where there are none, its settings as a line. One that was shown before stops training."""
    global _shown
    if _shown:
        _shown.stop()
    _shown = Playground(settings)
    shown = _shown.box._repr_mimebundle_()
    display({**shown, "text/plain": f"The playground: {settings.described}"}, raw=True)


class Playground:
    """The widgets: controls, two buttons, curves, comparison, and a line for each training before."""

    def __init__(self, settings: Settings) -> None:
        import ipywidgets  # type: ignore[import-untyped]

        self._training: Training | None = None
        self._begun = self._drawn = self._took = 0.0
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
        self._picture, self._result, self._past = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()
        self._train.on_click(self._begin)
        self._stop.on_click(self.stop)
        buttons = ipywidgets.HBox([self._train, self._stop, self._bar])
        right = ipywidgets.VBox([self._picture, self._result])
        left = ipywidgets.VBox([*self._controls.values(), buttons, self._status])
        row = ipywidgets.HBox([left, right], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.box = ipywidgets.VBox([row, self._past])

    def stop(self, _: object = None) -> None:
        """End the training that runs, if one does."""
        if self._training and self._training.state == "running":
            self._stop.disabled = True
            self._status.value = "Stopping after this third of an epoch."
            self._training.stop()

    def _begin(self, _: object) -> None:
        if self._training and self._training.state == "running":
            return  # a second click that was under way when the button was disabled
        try:
            settings = Settings(**{name: control.value for name, control in self._controls.items()})
        except ConfigurationError as error:
            self._status.value = html.escape(str(error))
            return
        self._train.disabled, self._stop.disabled = True, False
        self._status.value = f"Training: {html.escape(settings.described)}."
        self._bar.value, self._begun, self._drawn = 0, time.monotonic(), 0.0
        self._training = Training(settings, self._changed)
        self._training.start()

    def _changed(self, trained: Training) -> None:
        """Draw anew, now and then; called in the training's thread."""
        ended = trained.state != "running"
        try:
            if trained.epochs and (ended or time.monotonic() - self._drawn > max(DRAW_SECONDS, 4 * self._took)):
                self._draw(trained)
        finally:  # the buttons come back, whatever happens
            if ended:
                self._end(trained)

    def _draw(self, trained: Training) -> None:
        begin = time.monotonic()
        names = ", ".join(activations.title(name) for name in figures.ordered(trained.settings.activations))
        alt = f"Training loss and validation error of {names} over {trained.epochs[-1]:.1f} epochs"
        self._picture.value = figures.picture(draw(trained), alt)
        self._result.value = comparison(trained)
        self._bar.value = share = trained.epochs[-1] / trained.settings.epochs
        if not self._stop.disabled:
            left = (begin - self._begun) * (1 - share) / share
            self._status.value = f"Training, about {left:.0f} s left: {html.escape(trained.settings.described)}."
        self._drawn = time.monotonic()
        self._took = self._drawn - begin

    def _end(self, trained: Training) -> None:
        described = html.escape(trained.settings.described)
        if trained.state in ("finished", "diverged", "stopped"):
            done = f"{trained.state.capitalize()} after {trained.epochs[-1] if trained.epochs else 0:.1f} epochs"
            self._status.value = f"{done}: {described}."
            if trained.epochs:
                self._past.value = (
                    f"<details><summary>{done}: {described}</summary>{comparison(trained)}</details>{self._past.value}"
                )
        else:
            self._status.value = html.escape(trained.state)
        self._train.disabled, self._stop.disabled = False, True
