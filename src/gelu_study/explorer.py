"""The activations to play with: an interactive page in the book, which needs no kernel, and the same as widgets in JupyterLab.

What both offer (activations, controls, initialisations, presets) is declared here and handed to `book/_static/explorer.js`
as JSON. The script has functions and mean-field recursion of its own; `tests/test_explorer.py` holds them against mpmath and
against this module.
"""

from __future__ import annotations

import html
import inspect
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from IPython.display import display
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from numpy.typing import NDArray

from gelu_study import activations, figures, pages
from gelu_study.errors import ConfigurationError

Array = NDArray[np.float64]

NAMES = (
    *("gelu", "gelu_tanh", "gelu_sigmoid", "silu", "relu", "elu", "leaky_relu", "squared_relu", "selu", "softplus", "mish"),
    *("hard_swish", "lalu", "calu", "identity"),
)
"""The activations that can be chosen, in the order in which they are offered."""

LAYERS = 30


@dataclass(frozen=True)
class Control:
    """A number that the reader changes: how it is labelled, what it does, and its range."""

    label: str
    meaning: str
    low: float
    high: float
    step: float


CONTROLS = {
    "mu": Control("μ", "where the gate is one half", -3, 3, 0.05),
    "sigma": Control("σ", "width of the gate", 0.01, 3, 0.01),
    "alpha": Control("α", "depth of ELU", 0.05, 3, 0.05),
    "negative_slope": Control("slope", "of leaky ReLU, left of 0", 0, 1, 0.01),
    "reach": Control("axis", "x from minus this to plus this", 1, 12, 0.5),
    "x": Control("x", "where the values are read", -12, 12, 0.01),
    "layer": Control("layer", "after which the moments are read", 1, LAYERS, 1),
}

PARAMETERS = ("mu", "sigma", "alpha", "negative_slope")
"""The controls that are arguments of activations."""

INITIALISATIONS: dict[str, tuple[str, float | None]] = {
    "unit": ("unit norm, the paper's: gain 1", 1.0),
    "glorot": ("Glorot or LeCun: gain 1, so the same as unit norm", 1.0),
    "he": ("He: gain 2", 2.0),
    "matched": ("variance-matched: gain 1 / E[f(z)²]", None),
}
"""Name, and the gain: fan-in times the variance of a weight, or none for the activation's own."""


@dataclass(frozen=True)
class Settings:
    """What is shown. Raises `ConfigurationError` for a name that is not offered or a number out of its range."""

    activations: Sequence[str] = ("gelu", "relu", "elu")
    mu: float = 0.0
    sigma: float = 1.0
    alpha: float = 1.0
    negative_slope: float = 0.01
    reach: float = 4.0
    x: float = 1.0
    initialisation: str = "unit"
    layer: int = 8
    logarithmic: bool = False  # the axis of the difference

    def __post_init__(self) -> None:
        for name in self.activations:
            if name not in offered():
                raise ConfigurationError(f"the explorer has no activation {name!r}; it has {', '.join(offered())}")
        if self.initialisation not in INITIALISATIONS:
            known = ", ".join(INITIALISATIONS)
            raise ConfigurationError(f"unknown initialisation {self.initialisation!r}; known are {known}")
        for name, control in CONTROLS.items():
            value = getattr(self, name)
            if not control.low <= value <= control.high:
                raise ConfigurationError(f"{name} is {value:g}; it must be between {control.low:g} and {control.high:g}")


def offered() -> list[str]:
    """Those of `NAMES` that the registry has."""
    return [name for name in NAMES if name in activations.names()]


def parameters(name: str) -> list[str]:
    """Which controls an activation listens to."""
    return [key for key in inspect.signature(activations.get(name)).parameters if key in PARAMETERS]


def evaluate(name: str, x: Array, settings: Settings) -> tuple[Array, Array]:
    """f(x) and f'(x) in float64."""
    function = activations.get(name)
    given: Mapping[str, Any] = {key: getattr(settings, key) for key in parameters(name)}
    at = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    value = function(at, **given)
    (slope,) = torch.autograd.grad(value.sum(), at)
    return value.detach().numpy(), slope.numpy()


# The trapezoid rule with 0 among its points: a kink at 0 costs nothing, where Gauss-Hermite quadrature would lose most digits.
_Z = np.arange(-12 * 128, 12 * 128 + 1) / 128
_WEIGHTS = np.exp(-0.5 * _Z**2) / np.sqrt(2 * np.pi) / 128


def second_moment(name: str, variance: float, settings: Settings) -> float:
    """E[f(x)^2] for x ~ N(0, variance)."""
    return float(_WEIGHTS @ evaluate(name, np.sqrt(variance) * _Z, settings)[0] ** 2)


def gain(name: str, settings: Settings) -> float:
    """Fan-in times the variance of a weight: what turns a layer's second moment into the next layer's pre-activation variance."""
    fixed = INITIALISATIONS[settings.initialisation][1]
    return 1 / second_moment(name, 1.0, settings) if fixed is None else fixed


def second_moments(name: str, settings: Settings, layers: int = LAYERS) -> Array:
    """E[f^2] after each of the layers, infinitely wide and just initialised, when layer 1 has pre-activations of variance 1."""
    factor, variance, found = gain(name, settings), 1.0, []
    for _ in range(layers):
        found.append(second_moment(name, variance, settings) if np.isfinite(variance) else np.inf)
        variance = factor * found[-1]
    return np.array(found)


@figures.typeset
def draw(settings: Settings) -> Figure:
    """Function, derivative and difference from the exact GELU over one axis, and the second moments over the layers."""
    figure, axes = figures.panels(4, height=2.2)
    x = np.linspace(-settings.reach, settings.reach, 961)
    exact = evaluate("gelu", x, Settings())[0]
    layers = np.arange(1, LAYERS + 1)
    for name in settings.activations:
        value, slope = evaluate(name, x, settings)
        colour, line, marker = figures.STYLES[name]
        difference = np.abs(value - exact) if settings.logarithmic else value - exact
        for ax, curve in zip(axes, (value, slope, difference), strict=False):
            ax.plot(x, curve, color=colour, linestyle=line, marker=marker, markevery=(60, 120), ms=5.5)
        moments = second_moments(name, settings)
        shown = moments > 0
        axes[3].plot(layers[shown], moments[shown], color=colour, linestyle=line, marker=marker, markevery=3, ms=5.5)
    for ax in axes[:3]:
        ax.set_xlim(-settings.reach, settings.reach)
        ax.axhline(0, color="#555555", lw=0.8, zorder=1)
        ax.axvline(settings.x, color="#555555", lw=0.8, ls=":")
        ax.grid(True)
    axes[2].set_xlabel("x")
    if settings.logarithmic:
        axes[2].set_yscale("log")
    axes[3].set_xlim(1, LAYERS)
    axes[3].axvline(settings.layer, color="#555555", lw=0.8, ls=":")
    axes[3].set_yscale("log")
    axes[3].grid(True)
    axes[3].set_xlabel("layer")
    for ax, words in zip(axes, _titles(settings), strict=True):
        ax.set_title(words)
    figures.legend(figure, list(settings.activations), [])
    return figure


def _titles(settings: Settings) -> tuple[str, ...]:
    difference = "Size of the difference from x Φ(x)" if settings.logarithmic else "Difference from x Φ(x)"
    kind = INITIALISATIONS[settings.initialisation][0].split(":")[0]
    return "Function f(x)", "Derivative f′(x)", difference, f"Second moment after each layer, {kind}"


@dataclass(frozen=True)
class Preset:
    """Settings worth a look, and what one sees there."""

    title: str
    settings: Settings
    seen: str
    plot: str = "value"  # where to look: value, slope, difference or moments


def presets() -> list[Preset]:
    """The presets whose activations the registry has; every number in their sentences is computed."""
    return [make() for needs, make in _PRESETS if set(needs) <= {*offered(), *parameters("gelu")}]


def _text(value: float, digits: int = 3) -> str:
    """A number as prose writes it: −0.170, 5.3 × 10⁻⁵."""
    mantissa, _, exponent = pages.number(value, digits).partition("e")
    power = f" × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if exponent else ""
    return f"{mantissa}{power}".replace("-", "−")


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _far(name: str, settings: Settings) -> tuple[float, float]:
    """The greatest distance from the exact GELU, and where it is."""
    x = np.linspace(-12, 12, 24_001)
    distance = np.abs(evaluate(name, x, settings)[0] - evaluate("gelu", x, Settings())[0])
    place = int(distance.argmax())
    return float(distance[place]), float(x[place])


def _three_rivals() -> Preset:
    settings = Settings(("gelu", "relu", "elu"))
    x = np.linspace(-4, 4, 80_001)
    value, slope = evaluate("gelu", x, settings)
    distance, elu = _far("relu", settings)[0], float(evaluate("elu", np.array([-12.0]), settings)[0][0])
    seen = (
        f"GELU alone turns back: it falls to {_text(value.min())} at x = {_text(x[value.argmin()])} and returns to 0 on the "
        f"left. Its slope does not stay between 0 and 1: it goes from {_text(slope.min())} to {_text(slope.max())}. From ReLU it "
        f"is never further than {_text(distance)}; ELU leaves both for {_text(elu, 1)}."
    )
    return Preset("GELU, ReLU, ELU", settings, seen)


def _three_forms() -> Preset:
    settings = Settings(("gelu_tanh", "gelu_sigmoid", "silu"), logarithmic=True, x=-2.27, reach=6)
    far = {name: _far(name, settings) for name in settings.activations}
    at = np.array([-5.0])
    share = float(evaluate("gelu_tanh", at, settings)[0][0] / evaluate("gelu", at, settings)[0][0])
    words = [f"the {label} {_text(far[name][0])} at |x| = {abs(far[name][1]):.2f}" for name, label in _FORMS.items()]
    seen = (
        f"On the logarithmic axis one sees the sizes: {words[0]}, {words[1]}, and SiLU, which is none of GELU's forms, by "
        f"{_text(far['silu'][0])}. In the tail a small difference may be all there is: at x = −5 the tanh form has "
        f"{100 * share:.0f} % of the exact value."
    )
    return Preset("The forms of GELU", settings, seen)


_FORMS = {"gelu_tanh": "tanh form is off by at most", "gelu_sigmoid": "sigmoid form by"}


def _narrow_gate() -> Preset:
    settings = Settings(("gelu", "relu"), sigma=0.1, reach=2, x=-0.1)
    x = np.linspace(-3, 3, 60_001)
    relu = evaluate("relu", x, settings)[0]
    gaps = [(s, np.abs(evaluate("gelu", x, replace(settings, sigma=s))[0] - relu).max()) for s in (1.0, 0.1, 0.01)]
    listed = ", ".join(f"{_text(gap)} at σ = {s:g}" for s, gap in gaps)
    seen = (
        f"Drag σ towards 0: x Φ(x/σ) tends to ReLU everywhere at once. The greatest distance between the two is {listed}, "
        "in proportion to σ. Then move μ, and the gate opens elsewhere."
    )
    return Preset("σ towards 0 gives ReLU", settings, seen)


def _eight_layers() -> Preset:
    settings = Settings(("gelu", "relu", "elu"))
    after = {name: second_moments(name, settings)[7] for name in settings.activations}
    he = {name: second_moments(name, replace(settings, initialisation="he"))[7] for name in ("relu", "gelu")}
    listed = ", ".join(f"{_text(after[name], 2)} for {activations.title(name)}" for name in settings.activations)
    seen = (
        f"With unit-norm weights, as in the paper, a signal of variance 1 has after the eighth layer a second moment of {listed}: "
        "GELU starts from the faintest signal of the three. He's gain of 2, made for ReLU, holds ReLU's at "
        f"{_text(he['relu'], 2)} and leaves GELU's at {_text(he['gelu'], 2)}; "
        "the variance-matched gain holds each at its own constant."
    )
    return Preset("Eight layers", settings, seen, plot="moments")


def _other_gates() -> Preset:
    settings = Settings(("gelu", "silu", "lalu", "calu"), reach=8, x=-4)
    at = np.array([-4.0])
    values = {name: float(evaluate(name, at, settings)[0][0]) for name in settings.activations}
    words = {name: activations.title(name).replace("Laplace", "the Laplace").replace("Cauchy", "the Cauchy") for name in values}
    listed = ", ".join(f"{_text(values[name])} for {words[name]}" for name in sorted(values, key=lambda name: -values[name]))
    seen = (
        f"The heavier the tail of F, the longer x F(x) stays away from 0: at x = −4 it is {listed}. The last never returns: it "
        f"tends to −1/π = {_text(-1 / np.pi)}."
    )
    return Preset("Other gates", settings, seen)


_PRESETS: tuple[tuple[tuple[str, ...], Callable[[], Preset]], ...] = (
    (("gelu", "relu", "elu"), _three_rivals),
    (("gelu", "gelu_tanh", "gelu_sigmoid", "silu"), _three_forms),
    (("relu", "sigma"), _narrow_gate),
    (("gelu", "relu", "elu"), _eight_layers),
    (("gelu", "silu", "lalu", "calu"), _other_gates),
)


def things_to_try() -> None:
    """Show the presets with what one sees; the script gives each a button."""
    lines = [
        f"<li><b>{html.escape(preset.title)}.</b> {html.escape(preset.seen)} "
        f'<button type="button" class="explorer-button" data-preset="{number}" hidden>Show it</button></li>'
        for number, preset in enumerate(presets())
    ]
    plain = "\n".join(f"{preset.title}. {preset.seen}" for preset in presets())
    display({"text/html": f'<ol class="explorer-try">{"".join(lines)}</ol>', "text/plain": plain}, raw=True)


def show(settings: Settings, *, widgets: bool) -> None:
    """Show the explorer: as widgets, which need this kernel, or as the book's page, whose files lie in `_static`."""
    if widgets:
        display(controls(settings))
        return
    among = ", ".join(activations.title(name) for name in settings.activations)
    caption = (
        f"{among}: function, derivative, difference from the exact GELU, and how the second moment of a signal travels through "
        "layers. Where scripts run, controls take this figure's place. "
        f"{pages.COMPUTED}"
    )
    pages.figure(draw(settings), "explorer-still", f"{'; '.join(_titles(settings))}: {among}", caption, [])
    display({"text/html": page(settings), "text/plain": "The explorer, in the book."}, raw=True)


def page(settings: Settings) -> str:
    """The HTML from which the script makes the explorer."""
    data = json.dumps(described(settings), ensure_ascii=False, allow_nan=False).replace("</", "<\\/")
    return (
        '<link rel="stylesheet" href="_static/explorer.css"><div class="explorer" id="explorer"></div>'
        f'<script type="application/json" id="explorer-data">{data}</script><script src="_static/explorer.js" defer></script>'
    )


def described(settings: Settings) -> dict[str, Any]:
    """All that the script is told."""
    return {
        "activations": {
            name: {
                "title": activations.title(name),
                "parameters": parameters(name),
                "colour": "currentcolor" if figures.STYLES[name][0] == "#000000" else figures.STYLES[name][0],
                "dash": [] if figures.STYLES[name][1] == "-" else list(figures.STYLES[name][1][1]),
                "marker": _outline(figures.STYLES[name][2]),
            }
            for name in offered()
        },
        "controls": {name: asdict(control) for name, control in CONTROLS.items()},
        "parameters": PARAMETERS,
        "initialisations": {name: {"title": title, "gain": factor} for name, (title, factor) in INITIALISATIONS.items()},
        "layers": LAYERS,
        "start": asdict(settings),
        "presets": [{"title": preset.title, "settings": asdict(preset.settings), "plot": preset.plot} for preset in presets()],
    }


def _outline(marker: str) -> str:
    """A matplotlib marker as an SVG path of about one unit."""
    style = MarkerStyle(marker)
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
    parts = []
    for points, code in style.get_path().transformed(style.get_transform()).iter_segments(simplify=False):
        downwards = np.asarray(points).reshape(-1, 2) * [1, -1]
        parts.append(letters[code] + ("" if code == Path.CLOSEPOLY else " ".join(f"{value:.3g}" for value in downwards.ravel())))
    return "".join(parts)


def controls(settings: Settings) -> Any:
    """The explorer as a box of ipywidgets, redrawn by matplotlib at every change."""
    import ipywidgets  # type: ignore[import-untyped]

    wide = {"style": {"description_width": "22em"}, "layout": ipywidgets.Layout(width="42em")}
    titles = [(activations.title(name), name) for name in offered()]
    kinds = [(title, name) for name, (title, _) in INITIALISATIONS.items()]
    found: dict[str, Any] = {
        "activations": ipywidgets.SelectMultiple(
            options=titles, value=tuple(settings.activations), rows=len(titles), description="activations", **wide
        ),
        "initialisation": ipywidgets.Dropdown(options=kinds, value=settings.initialisation, description="initialisation", **wide),
        "logarithmic": ipywidgets.Checkbox(value=settings.logarithmic, description="difference: logarithmic", **wide),
    }
    for name, control in CONTROLS.items():
        slider = ipywidgets.IntSlider if isinstance(getattr(settings, name), int) else ipywidgets.FloatSlider
        found[name] = slider(
            value=getattr(settings, name),
            min=control.low,
            max=control.high,
            step=control.step,
            description=f"{control.label}, {control.meaning}",
            continuous_update=False,  # a drawing takes longer than a step of a drag
            **wide,
        )
    picture = ipywidgets.Image(format="svg+xml", layout=ipywidgets.Layout(width="40em"))
    values = ipywidgets.HTML()

    def redraw(_: object = None) -> None:
        now = Settings(**{name: widget.value for name, widget in found.items()})
        buffer = io.BytesIO()
        with mpl.rc_context({"svg.fonttype": "path"}):
            draw(now).savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
        picture.value = buffer.getvalue()
        values.value = readout(now)

    for widget in found.values():
        widget.observe(redraw, "value")
    redraw()
    return ipywidgets.HBox([ipywidgets.VBox([*found.values(), values]), picture], layout=ipywidgets.Layout(flex_flow="row wrap"))


def readout(settings: Settings) -> str:
    """The values at x, and the second moments after the layer, as an HTML table."""
    at = np.array([settings.x])
    exact = evaluate("gelu", at, Settings())[0][0]
    rows = []
    for name in settings.activations:
        value, slope = (float(part[0]) for part in evaluate(name, at, settings))
        numbers = (value, slope, value - exact, second_moments(name, settings, settings.layer)[-1])
        rows.append(f"<tr><th>{activations.title(name)}</th>{''.join(f'<td>{pages.number(n, 4)}</td>' for n in numbers)}</tr>")
    head = "".join(f"<th>{words}</th>" for words in ("", "f(x)", "f′(x)", "f(x) − x Φ(x)", f"E[f²] after layer {settings.layer}"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
