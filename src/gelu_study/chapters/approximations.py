"""How far the forms of GELU are from each other, how far their implementations are from them, and what other libraries compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatterMathtext
from numpy.typing import NDArray
from scipy import optimize, special, stats
from torch import Tensor
from torch.nn import functional

from gelu_study import activations, figures, pages
from gelu_study.activations import libraries
from gelu_study.chapters import definition, ulp

Array = NDArray[np.float64]

APPROXIMATIONS = ("gelu_tanh", "gelu_sigmoid", "silu")
REACH = 8.0
"""How far from 0 differences are looked for; further out all of them only shrink."""

NORMAL = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
"""Quantiles of the standard normal distribution, for expectations over it."""


def textbook_erf(x: Tensor) -> Tensor:
    """GELU as it is usually written, in x's own dtype."""
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def textbook_erfc(x: Tensor) -> Tensor:
    """The same with the complementary error function, which does not cancel."""
    return 0.5 * x * torch.erfc(-x / math.sqrt(2))


def textbook_tanh(x: Tensor) -> Tensor:
    """The tanh form as it is usually written, in x's own dtype."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def textbook_sigmoid(x: Tensor) -> Tensor:
    """The sigmoid form as it is usually written, in x's own dtype."""
    return x * torch.sigmoid(1.702 * x)


@dataclass(frozen=True)
class Implementation:
    """A way to compute a form, and how figures draw it."""

    form: str
    label: str
    function: Callable[[Tensor], Tensor]
    colour: str
    line: Any


_HERE, _PYTORCH, _WRITTEN, _OTHER = (
    ("#000000", "-"),  # greys, since colours are activations
    ("#777777", (0, (5, 2))),
    ("#999999", (0, (2, 1))),
    ("#555555", (0, (6, 2, 1, 2))),
)

IMPLEMENTATIONS = (
    Implementation("gelu", "this book's", activations.gelu, *_HERE),
    Implementation("gelu", "PyTorch's", functional.gelu, *_PYTORCH),
    Implementation("gelu", "½x(1 + erf(x/√2))", textbook_erf, *_WRITTEN),
    Implementation("gelu", "½x erfc(−x/√2)", textbook_erfc, *_OTHER),
    Implementation("gelu_tanh", "this book's", activations.gelu_tanh, *_HERE),
    Implementation("gelu_tanh", "PyTorch's", partial(functional.gelu, approximate="tanh"), *_PYTORCH),
    Implementation("gelu_tanh", "½x(1 + tanh(…))", textbook_tanh, *_WRITTEN),
    Implementation("gelu_sigmoid", "this book's", activations.gelu_sigmoid, *_HERE),
    Implementation("gelu_sigmoid", "x·sigmoid(1.702x)", textbook_sigmoid, *_WRITTEN),
    Implementation("silu", "this book's", activations.silu, *_HERE),
    Implementation("silu", "PyTorch's", functional.silu, *_PYTORCH),
)


# The forms against the exact one


def slope_apart(name: str, x: Array) -> Array:
    """How far an activation's derivative is from the exact GELU's at x."""
    return np.abs(definition.curves(name, x).slope - definition.curves("gelu", x).slope)


def differences(names: Iterable[str] = APPROXIMATIONS) -> pd.DataFrame:
    """For each form the greatest difference from exact and the |x| where it is, of value and derivative, in float64.

    x (G(x) - Phi(x)) is even and its derivative odd, so x > 0 is enough. `mean` is the root mean square difference for standard
    normal inputs.
    """
    rows = []
    for name in names:
        place, value = definition.extreme(partial(definition.apart, name), 0, REACH)
        steep, slope = definition.extreme(partial(slope_apart, name), 0, REACH)
        mean = float(np.sqrt((definition.apart(name, NORMAL) ** 2).mean()))
        rows.append({"name": name, "value": value, "at": place, "slope": slope, "slope_at": steep, "mean": mean})
    return pd.DataFrame(rows)


def forms(names: Sequence[str] = APPROXIMATIONS) -> None:
    """The differences between the forms, as a figure, a table and a sentence."""
    pages.figure(
        draw_forms(names),
        "approximations-forms",
        "Difference of each form from the exact GELU over x: far smaller for the tanh form than for the sigmoid form and SiLU",
        "How far each form is from the exact GELU, in value and derivative, in float64: the lower, the nearer. The axis is "
        f"logarithmic. {pages.COMPUTED}",
        [],
    )
    table = differences(names)
    pages.plain_table(
        pd.DataFrame(
            {
                "form": [activations.title(name).replace(" ", "&nbsp;") for name in table["name"]],
                "greatest difference": [f"{pages.number(row.value)} at ±{row.at:.3f}" for row in table.itertuples()],
                "of the derivative": [f"{pages.number(row.slope)} at ±{row.slope_at:.3f}" for row in table.itertuples()],
                "root mean square, x standard normal": [pages.number(value) for value in table["mean"]],
            }
        )
    )
    if "gelu_tanh" in list(names):
        row = table[table["name"] == "gelu_tanh"].iloc[0]
        spacing = {name: float(ulp.unit(np.array([row["at"]]), dtype)[0]) for name, dtype in ulp.DTYPES.items()}
        shares = [
            f"{100 * differ('gelu_tanh', ulp.DTYPES[name]):.3g} % of cases in {name}" for name in ("bfloat16", "float16", "float32")
        ]
        pages.text(
            f"Where the tanh form is furthest from exact, on the side where GELU is large, the spacing of bfloat16 numbers is "
            f"{spacing['bfloat16']:.2g}, "
            f"{spacing['bfloat16'] / row['value']:.0f} times the difference, and that of float16 {spacing['float16']:.2g}. For "
            f"standard normal inputs the two forms, each correctly rounded, give different numbers in {listed(shares)}."
        )


@figures.typeset
def draw_forms(names: Sequence[str] = APPROXIMATIONS) -> Figure:
    figure, axes = figures.panels(2, height=2.8, sharex=True)
    x = np.linspace(-REACH, REACH, 3201)
    for ax, title, of in zip(axes, ("Value", "Derivative"), (definition.apart, slope_apart), strict=True):
        for name in names:
            colour, line, _ = figures.STYLES[name]
            ax.plot(x, np.where((y := of(name, x)) > 1e-8, y, np.nan), color=colour, linestyle=line, gid=name)
        ax.set_title(f"{title}, distance from exact")
        ax.set_ylim(1e-7, 1)
        _powers(ax)
    axes[-1].set_xlabel("x")
    figures.legend(figure, names, [])
    return figure


def differ(name: str, dtype: torch.dtype) -> float:
    """The probability that a form and the exact GELU round to different numbers, for a standard normal input.

    All inputs of a 16-bit type are weighed by the probability of what rounds to them; of a larger one 20,000 quantiles are tried.
    """
    if dtype in (torch.float16, torch.bfloat16):
        x = ulp.every(dtype).double().numpy()
        x = np.unique(x[np.isfinite(x)])
        weight = np.diff(stats.norm.cdf(np.concatenate([[-np.inf], (x[:-1] + x[1:]) / 2, [np.inf]])))
    else:
        x = ulp.rounded(NORMAL, dtype)
        weight = np.full(len(x), 1 / len(x))
    values = [ulp.rounded(ulp.reference(form, x, dtype).value, dtype) for form in (name, "gelu")]
    return float(weight[values[0] != values[1]].sum())


def constants() -> pd.DataFrame:
    """The paper's constants beside those with the least greatest difference from exact."""
    x = np.linspace(0, REACH, 16_001)
    exact = x * special.ndtr(x)

    def worst(gate: Array) -> float:
        return float(np.abs(x * gate - exact).max())

    def tanh(c: float) -> float:
        return worst(special.expit(2 * math.sqrt(2 / math.pi) * (x + c * x**3)))

    def sigmoid(c: float) -> float:
        return worst(special.expit(c * x))

    rows = []
    for name, function, ours, low, high in (("gelu_tanh", tanh, 0.044715, 0.04, 0.05), ("gelu_sigmoid", sigmoid, 1.702, 1.5, 1.9)):
        grid = np.linspace(low, high, 201)
        near = grid[np.argmin([function(c) for c in grid])]
        step = grid[1] - grid[0]
        best = optimize.minimize_scalar(function, bounds=(near - step, near + step), method="bounded", options={"xatol": 1e-9})
        rows.append({"name": name, "constant": ours, "error": function(ours), "best": float(best.x), "least": float(best.fun)})
    return pd.DataFrame(rows)


def constants_table() -> None:
    """Whether the paper's constants are the best ones."""
    table = constants()
    pages.plain_table(
        pd.DataFrame(
            {
                "form": [activations.title(name).replace(" ", "&nbsp;") for name in table["name"]],
                "the paper's constant": [f"{value:g}" for value in table["constant"]],
                "its greatest difference": [pages.number(value) for value in table["error"]],
                "the best constant": [f"{value:.6g}" for value in table["best"]],
                "least greatest difference": [pages.number(value) for value in table["least"]],
            }
        )
    )


# The atlas of rounding errors


@dataclass(frozen=True)
class Atlas:
    """Rounding errors of every implementation, by its place in `IMPLEMENTATIONS` and the dtype's name."""

    errors: Mapping[tuple[int, str], ulp.Errors]
    dtypes: Sequence[str]


def atlas(dtypes: Sequence[str], points: int, points_float64: int, seed: int) -> Atlas:
    """Measure every implementation in each dtype: at `points` inputs in float32, at `points_float64` in float64 (whose reference
    takes long), at every input of a 16-bit type."""
    errors = {}
    for name in dtypes:
        dtype = ulp.dtype_of(name)
        for form in ulp.FORMS:
            x = ulp.sample(form, dtype, points_float64 if dtype is torch.float64 else points, seed)
            true = ulp.reference(form, x.double().numpy(), dtype)
            for number, one in enumerate(IMPLEMENTATIONS):
                if one.form == form:
                    errors[number, name] = ulp.measure(one.function, form, x, true)
    return Atlas(errors, list(dtypes))


def greatest(found: Atlas, quantity: str) -> pd.DataFrame:
    """The greatest error of `quantity`, value or slope: `form`, `label`, and for each dtype (error, x)."""
    rows = []
    for number, one in enumerate(IMPLEMENTATIONS):
        row: dict[str, Any] = {"form": one.form, "label": one.label}
        for name in found.dtypes:
            errors = found.errors[number, name]
            row[name] = ulp.worst(getattr(errors, quantity), errors.x)
        rows.append(row)
    return pd.DataFrame(rows)


def greatest_table(found: Atlas, quantity: str) -> None:
    """The greatest error of every implementation in every dtype."""
    table = greatest(found, quantity)
    shown = pd.DataFrame({"form": _titles(table["form"]), "computed as": [_nowrap(label) for label in table["label"]]})
    for name in found.dtypes:
        lost = 1 / torch.finfo(ulp.dtype_of(name)).eps
        shown[name] = [_error(error, x, lost) for error, x in table[name]]
    pages.plain_table(shown)


def atlas_figure(found: Atlas, form: str, quantity: str) -> None:
    """A map of the rounding error over x, a panel for each dtype."""
    what = {"value": "value", "slope": "derivative"}[quantity]
    title = activations.title(form)
    pages.figure(
        draw_atlas(found, form, quantity),
        f"approximations-{form.replace('_', '-')}-{what}",
        f"Rounding error of {title}'s {what} over x in each number format, in units in the last place",
        f"{title}, error of the {what} in units in the last place, the greatest of each of 240 strips: the lower, the better. "
        f"Dotted: one half, which rounding alone costs, and no digit left. {pages.COMPUTED}",
        [],
    )


@figures.typeset
def draw_atlas(found: Atlas, form: str, quantity: str) -> Figure:
    figure, axes = figures.panels(len(found.dtypes), height=2.1)
    chosen = [(number, one) for number, one in enumerate(IMPLEMENTATIONS) if one.form == form]
    for ax, name in zip(axes, found.dtypes, strict=True):
        dtype = ulp.dtype_of(name)
        ends = np.linspace(1.03 * ulp.tail_end(form, dtype), 5, 241)
        lost = 1 / torch.finfo(dtype).eps
        for number, one in reversed(chosen):  # this book's on top
            errors = found.errors[number, name]
            heights = _strips(errors.x, getattr(errors, quantity), ends)
            ax.plot((ends[:-1] + ends[1:]) / 2, heights, color=one.colour, ls=one.line, lw=1.6, gid=f"{one.label} {name}")
        ax.axhline(0.5, color="#777777", ls=(0, (1, 2)), lw=1.2)
        ax.axhline(lost, color="#777777", ls=(0, (1, 2)), lw=1.2)
        ax.set_ylim(0.05, 8 * lost)
        ax.set_xlim(ends[0], ends[-1])
        _powers(ax)
        ax.set_title(name)
        ax.set_ylabel("ulp")
    axes[-1].set_xlabel("x")
    handles = [Line2D([], [], color=one.colour, ls=one.line, label=one.label) for _, one in chosen]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, handlelength=2.6)
    return figure


def tail(found: Atlas) -> None:
    """Say where the usual formula has lost half and all of its digits, and what the book's own function keeps."""
    lines = []
    for name in found.dtypes:
        info = torch.finfo(ulp.dtype_of(name))
        here, pytorch = (
            found.errors[number, name]
            for number, one in enumerate(IMPLEMENTATIONS)
            if one.form == "gelu" and one.label in ("this book's", "PyTorch's")
        )
        # from the first input, coming from 0, at which half of the digits, or all, are gone
        half = _from(pytorch, 1 / math.sqrt(info.eps))
        gone = _from(pytorch, 0.5 / info.eps)
        if half is None:
            lines.append(f"- **{name}**: PyTorch's keeps half of its digits everywhere.")
            continue
        said = f"half of its digits are gone from *x* = {half:.2f} on"
        said += f", all of them from *x* = {gone:.2f}" if gone is not None else ""
        end = ulp.tail_end("gelu", ulp.dtype_of(name))
        lines.append(
            f"- **{name}**: of PyTorch's exact form {said}, though the result is a normal number down to *x* = {end:.2f}; this "
            f"book's is off by {ulp.worst(here.value, here.x)[0]:.2f} units at most."
        )
    pages.text("\n".join(lines))


def half_precision(dtypes: Sequence[str] = ("float16", "bfloat16")) -> pd.DataFrame:
    """Every input of each 16-bit type, for every implementation of the exact and the tanh form."""
    rows = []
    for name in dtypes:
        for one in IMPLEMENTATIONS:
            if one.form in ("gelu", "gelu_tanh"):
                rows.append(
                    {"dtype": name, "form": one.form, "label": one.label}
                    | vars(ulp.enumerate_all(one.function, one.form, ulp.dtype_of(name)))
                    | {"nan_from": first_nan(one.function, ulp.dtype_of(name))}
                )
    return pd.DataFrame(rows)


def first_nan(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> float:
    """The least |x| of a 16-bit type at which value or derivative is NaN though x is finite; NaN if there is none."""
    x = ulp.every(dtype)
    value, slope = ulp.evaluate(function, x)
    places = x[(value.isnan() | slope.isnan()) & x.isfinite()].double().abs()
    return float(places.min()) if len(places) else math.nan


def half_precision_table(table: pd.DataFrame) -> None:
    """Shares of correctly rounded results, and NaN, over all inputs of the 16-bit types."""
    pages.plain_table(
        pd.DataFrame(
            {
                "dtype": table["dtype"],
                "form": _titles(table["form"]),
                "computed as": [_nowrap(label) for label in table["label"]],
                "values correctly rounded": [_share(value) for value in table["value"]],
                "derivatives": [_share(value) for value in table["slope"]],
                "NaN derivatives": [f"{count:,}" for count in table["nan_slopes"]],
            }
        )
    )
    inputs = {row.dtype: row.inputs for row in table.itertuples()}
    listed = " and ".join(f"{count:,} inputs of {name}" for name, count in inputs.items())
    lines = [f"Counted over all {listed}, infinities among them; NaN over the finite ones."]
    for row in table[table["nan_slopes"] + table["nan_values"] > 0].itertuples():
        values = f", {row.nan_values:,} values too" if row.nan_values else ""
        lines.append(
            f"{row.label} gives NaN for a derivative at {row.nan_slopes:,} finite inputs of {row.dtype}, "
            f"from |*x*| = {row.nan_from:.4g} on{values}."
        )
    pages.text(" ".join(lines))


# The answer


def answer(found: Atlas) -> None:
    """How far the forms are apart, how far results are from either, and what libraries mean: a line each."""
    pages.text("\n".join(f"- {line}" for line in answer_lines(found)))


def answer_lines(found: Atlas) -> list[str]:
    """The lines of `answer`, of the first number format that was measured besides float64, or of that."""
    table = differences(("gelu_tanh", "gelu_sigmoid")).set_index("name")["value"]
    format_ = next((name for name in found.dtypes if name != "float64"), found.dtypes[0])
    errors = {
        one.label: ulp.worst(found.errors[number, format_].value, found.errors[number, format_].x)[0]
        for number, one in enumerate(IMPLEMENTATIONS)
        if one.form == "gelu"
    }
    lost = 1 / torch.finfo(ulp.dtype_of(format_)).eps / 4
    theirs = errors["PyTorch's"]
    told = "loses every digit where x is far below 0" if theirs >= lost else f"is off by up to {pages.number(theirs)} units"
    exact, tanh = _by_default("gelu"), _by_default("gelu_tanh")
    return [
        f"**From each other.** The tanh form is never further than {pages.number(table['gelu_tanh'], 2)} from exact, the sigmoid "
        f"form than {pages.number(table['gelu_sigmoid'], 2)}.",
        f"**What a computer returns.** In {format_} PyTorch's exact form {told}; this book's is off by "
        f"{pages.number(errors[IMPLEMENTATIONS[0].label])} units in the last place at most.",
        f"**What a library means** by GELU and nothing more: the exact form for {listed(exact)}, the tanh form for {listed(tanh)}.",
    ]


def _by_default(activation: str) -> list[str]:
    """The libraries, with their names, that mean a form when none is named."""
    found = (entry for entry in libraries.TABLE if entry.default and entry.activation == activation)
    return [f"{libraries.TITLES[entry.library]} (`{entry.name}`)" for entry in found]


# Other libraries


def defaults() -> None:
    """What each library means by GELU, and what it amounts to to mistake one for the other."""
    rows = [
        {
            "library": libraries.TITLES[entry.library],
            "name there": f"<code>{entry.name}</code>",
            "form": _nowrap(activations.title(entry.activation)),
            "default": "default" if entry.default else "",
        }
        for entry in libraries.TABLE
        if entry.activation in ("gelu", *APPROXIMATIONS[:2])
    ]
    pages.plain_table(pd.DataFrame(rows))
    exact, tanh = _by_default("gelu"), _by_default("gelu_tanh")
    table = differences().set_index("name")
    size = float(np.sqrt((definition.curves("gelu", NORMAL).value ** 2).mean()))
    amounts = [
        f"taken for {activations.title(name)}, it is off by up to {pages.number(table.loc[name, 'value'])} and, for standard "
        f"normal inputs, by {pages.number(100 * table.loc[name, 'mean'] / size, 2)} % of its root mean square"
        for name in ("gelu_tanh", "gelu_sigmoid")
    ]
    pages.text(
        f"Who asks for GELU and says no more gets the exact form of {listed(exact)}, but the tanh form of {listed(tanh)}. "
        "Weights load either way, and nothing complains. What it costs, for each single activation of an exact GELU: "
        f"{'; '.join(amounts)}. "
        "What becomes of such differences in a trained network is another question, and measured among the questions people ask."
    )


def other_names() -> None:
    """Everything else that libraries call by their own names, and where their defaults are not ours."""
    rows = []
    for name in activations.names():
        found = [entry for entry in libraries.TABLE if entry.activation == name]
        if name in ("gelu", "gelu_tanh", "gelu_sigmoid") or not found:
            continue
        by_library: dict[str, list[str]] = {}
        for entry in found:
            extra = "".join(f" ({key.replace('_', ' ')} {value:g})" for key, value in entry.parameters.items())
            by_library.setdefault(entry.library, []).append(f"<code>{entry.name.removeprefix('activations.')}</code>{extra}")
        listed = "; ".join(f"{libraries.TITLES[library]} {', '.join(names)}" for library, names in by_library.items())
        rows.append({"here": name, "elsewhere": listed})
    pages.plain_table(pd.DataFrame(rows))
    differing = [entry for entry in libraries.TABLE if entry.parameters]
    parts = [
        f"{libraries.TITLES[entry.library]}'s `{entry.name}` has "
        + ", ".join(f"a {key.replace('_', ' ')} of {value:g}" for key, value in entry.parameters.items())
        for entry in differing
    ]
    ours = activations.leaky_relu(torch.tensor(-1.0, dtype=torch.float64)).item()
    pages.text(f"A default that is not the same everywhere: {'; '.join(parts)}; PyTorch, JAX and this book have {-ours:g}.")


def edges(dtype: str = "float32") -> pd.DataFrame:
    """Value and derivative of every implementation at the ends and at what is no number."""
    kind = ulp.dtype_of(dtype)
    big = torch.finfo(kind).max
    points = {"−∞": -math.inf, "−max": -big, "−0": -0.0, "max": big, "∞": math.inf, "NaN": math.nan}
    rows = []
    for one in IMPLEMENTATIONS:
        value, slope = ulp.evaluate(one.function, torch.tensor(list(points.values()), dtype=kind))
        cells = {
            name: f"{_plain(float(v), big)}; {_plain(float(s) + 0.0, big)}" for name, v, s in zip(points, value, slope, strict=True)
        }
        rows.append({"form": one.form, "label": one.label, **cells})
    return pd.DataFrame(rows)


def edge_table(dtype: str = "float32") -> None:
    """What each implementation gives at infinities, the greatest number, -0 and NaN."""
    table = edges(dtype)
    shown = pd.DataFrame({"form": _titles(table["form"]), "computed as": [_nowrap(label) for label in table["label"]]})
    for column in table.columns[2:]:
        expected = table[column].iloc[0]  # the right limits, which the tests hold against mathematics
        shown[column] = [_nowrap(cell if cell == expected else f"<b>{cell}</b>") for cell in table[column]]
    pages.plain_table(shown)


def _powers(ax: Axes) -> None:
    """A logarithmic axis over so many decades that powers of ten are plainer than numbers."""
    figures.log_axis(ax, "y")
    ax.yaxis.set_major_formatter(LogFormatterMathtext())


def _strips(x: Array, errors: Array, ends: Array) -> Array:
    """The greatest finite error in each strip between neighbouring ends; NaN where there is none."""
    heights = np.full(len(ends) - 1, -np.inf)
    usable = np.isfinite(errors) & (x >= ends[0]) & (x < ends[-1])
    np.maximum.at(heights, np.searchsorted(ends, x[usable], side="right") - 1, errors[usable])
    return np.where(heights > 0, heights, np.nan)


def _from(errors: ulp.Errors, threshold: float) -> float | None:
    """The greatest x < 0 at which the value's error is above a threshold, or None."""
    above = errors.x[(errors.value > threshold) & (errors.x < 0)]
    return float(above.max()) if len(above) else None


def _error(error: float, x: float, lost: float) -> str:
    """An error in ulp as HTML: with where it is while there are digits left."""
    if math.isinf(error):
        shown = f"<b>NaN or ∞</b> at {x:.3g}"
    elif error >= lost / 4:
        shown = f"<b>all lost</b> at {x:.3g}"
    else:
        shown = f"{pages.number(error, 2 if error < 100 else 3)} at {x:.3g}"
    return _nowrap(shown).replace("at&nbsp;-", "at&nbsp;−")


def _share(value: float) -> str:
    """A share in per cent that says 100 only of all."""
    return "100 %" if value == 1 else f"{min(100 * value, 99.999):.3f} %" if value > 0.999 else f"{100 * value:.1f} %"


def _plain(value: float, big: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if abs(value) == big:
        return "max" if value > 0 else "−max"
    return ("−" if math.copysign(1, value) < 0 else "") + f"{abs(value):.4g}"


def _titles(names: Iterable[str]) -> list[str]:
    return [_nowrap(activations.title(name)) for name in names]


def _nowrap(text: str) -> str:
    return text.replace(" ", "&nbsp;")


def listed(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
