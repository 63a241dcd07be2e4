"""The GELU from the SOI map to its expectation, beside ReLU and ELU, and the paper's remarks about it, each checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from scipy import optimize, stats

from gelu_study import activations, figures, pages
from gelu_study.errors import ConfigurationError

Array = NDArray[np.float64]

TRIO = ("gelu", "relu", "elu")
FAMILY = {"gelu": "Gaussian", "silu": "logistic", "lalu": "Laplace", "calu": "Cauchy"}
"""Activations x F(x) and the distribution of F."""

CHUNK = 50_000
"""So many draws are made at a time."""

_GRID = np.linspace(-12, 12, 240_001)
_NORMAL = 1.959963984540054  # 97.5 % of the standard normal distribution lie below it


@dataclass(frozen=True)
class Curves:
    """A function and its first two derivatives at the points x, by autograd in float64."""

    x: Array
    value: Array
    slope: Array
    curvature: Array


def curves(name: str, x: Array, **parameters: float) -> Curves:
    """The activation of that name at x. At a kink the derivatives are autograd's, which takes them from one side."""
    tracked = torch.from_numpy(np.array(x, dtype=np.float64)).requires_grad_()
    value = activations.Activation(name, **parameters)(tracked)
    (slope,) = torch.autograd.grad(value.sum(), tracked, create_graph=True)
    if slope.requires_grad:
        (curvature,) = torch.autograd.grad(slope.sum(), tracked, materialize_grads=True)
    else:
        curvature = torch.zeros_like(tracked)
    return Curves(np.asarray(x), value.detach().numpy(), slope.detach().numpy(), curvature.numpy())


def at(name: str, x: float, **parameters: float) -> tuple[float, float, float]:
    """Value, derivative and second derivative at one point."""
    found = curves(name, np.array([x]), **parameters)
    return float(found.value[0]), float(found.slope[0]), float(found.curvature[0])


def extreme(function: Callable[[Array], Array], low: float, high: float) -> tuple[float, float]:
    """(x, f(x)) at the greatest value of a smooth function on [low, high]: the best point of a grid, refined."""
    x = np.linspace(low, high, 2_001)
    best = int(np.argmax(function(x)))
    ends = x[max(best - 1, 0)], x[min(best + 1, len(x) - 1)]
    found = optimize.minimize_scalar(
        lambda p: -float(function(np.array([p]))[0]), bounds=ends, method="bounded", options={"xatol": 1e-12}
    )
    return float(found.x), float(-found.fun)


def minimum(name: str = "gelu", low: float = -8.0, high: float = 0.0) -> tuple[float, float]:
    """(x, f(x)) where an activation is least on [low, high]: the root of its derivative next to the least value of a grid."""
    x = np.linspace(low, high, 20_001)
    found = curves(name, x)
    best = int(np.argmin(found.value))
    if best in (0, len(x) - 1):
        return float(x[best]), float(found.value[best])
    place = float(optimize.brentq(lambda p: at(name, p)[1], x[best - 1], x[best + 1], xtol=1e-14))
    return place, at(name, place)[0]


def apart(name: str, x: Array) -> Array:
    """How far an activation is from the exact GELU at x."""
    return np.abs(curves(name, x).value - curves("gelu", x).value)


# From the SOI map to its expectation


def simulate(points: Sequence[float], draws: Sequence[int], seed: int) -> pd.DataFrame:
    """Monte Carlo means of the SOI map at each of `points` after each number of `draws`, the later ones continuing the earlier.

    One row for each pair: `x`, `draws`, `mean`, `expected` (x Phi(x), by SciPy), the mean's standard error `error` (from the
    variance x^2 Phi(x) (1 - Phi(x)) of one draw) and `gradient`, the mean of the map's gradients. Raises `ConfigurationError`
    unless there are points, and numbers of draws above 0.
    """
    if not points or not draws or min(draws) < 1:
        raise ConfigurationError(f"give points and numbers of draws of at least 1, not {list(points)} and {list(draws)}")
    soi = activations.SOIMap(torch.Generator().manual_seed(seed))
    x = torch.tensor(list(points), dtype=torch.float64)
    probability = stats.norm.cdf(x.numpy())
    total, passed, done, rows = torch.zeros_like(x), torch.zeros_like(x), 0, []
    for target in sorted(set(draws)):
        while done < target:
            count = min(CHUNK, target - done)
            tracked = x.expand(count, -1).clone().requires_grad_()
            drawn = soi(tracked)
            (gradient,) = torch.autograd.grad(drawn.sum(), tracked)
            total += drawn.detach().sum(0)
            passed += gradient.sum(0)
            done += count
        rows.append(
            pd.DataFrame(
                {
                    "x": x.numpy(),
                    "draws": done,
                    "mean": (total / done).numpy(),
                    "expected": x.numpy() * probability,
                    "error": np.abs(x.numpy()) * np.sqrt(probability * (1 - probability) / done),
                    "gradient": (passed / done).numpy(),
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def within(table: pd.DataFrame) -> tuple[int, int]:
    """How many means lie within their 95 % interval about the expectation, and of how many that have one."""
    rows = table[table["error"] > 0]
    return int(((rows["mean"] - rows["expected"]).abs() <= _NORMAL * rows["error"]).sum()), len(rows)


def simulation(table: pd.DataFrame) -> None:
    """The means over x, and how their error falls with the number of draws."""
    most = int(table["draws"].max())
    last = table[table["draws"] == most]
    off = (last["mean"] - last["expected"]).abs()
    inside, count = within(table)
    pages.figure(
        draw_simulation(table),
        "definition-simulation",
        "Means of the SOI map on the curve of the GELU, and their error falling as one over the root of the number of draws",
        f"Above: means of {int(table['draws'].min()):,} draws with 95 % intervals. "
        f"Below: their root mean square error over {len(last)} inputs, and the standard error that theory gives: "
        f"the means lie on GELU's curve, and nearer to it the more draws there are. {pages.COMPUTED}",
        [],
    )
    pages.text(
        f"After {most:,} draws at each of {len(last)} inputs no mean is further than {pages.number(float(off.max()))} from "
        f"*x* Φ(*x*). Of all {count} means along the way, {inside} lie within 1.96 standard errors of it: "
        f"{100 * inside / count:.0f} %, where 95 % are expected."
    )
    reach, gap = extreme(lambda x: np.abs(x) * stats.norm.pdf(x), 0, 4)
    slopes = (last["gradient"] - stats.norm.cdf(last["x"])).abs().max()
    pages.text(
        "The expectation is the same, the gradient is not. Autograd takes the mask for a constant, so the map's gradient is the "
        f"mask, whose mean is Φ(*x*) (measured here: nowhere more than {pages.number(float(slopes))} off), while the GELU's "
        f"derivative is Φ(*x*) + *x* φ(*x*). What training with the map leaves out, *x* φ(*x*), is up to "
        f"{gap:.3f}, at |*x*| = {reach:.2f}."
    )


@figures.typeset
def draw_simulation(table: pd.DataFrame) -> Figure:
    figure, (above, below) = figures.panels(2, height=2.7)
    first = table[table["draws"] == table["draws"].min()]
    x = np.linspace(table["x"].min(), table["x"].max(), 401)
    colour, line, marker = figures.STYLES["gelu"]
    above.plot(x, curves("gelu", x).value, color=colour, ls=line, label="x Φ(x)")
    above.errorbar(
        first["x"], first["mean"], yerr=_NORMAL * first["error"], fmt=marker, ms=4.5, color="#222222", lw=1.2, label="mean"
    )
    above.set_xlabel("x")
    above.set_ylabel("x m")
    above.legend(frameon=False)
    groups = table.assign(square=(table["mean"] - table["expected"]) ** 2, variance=table["error"] ** 2).groupby("draws")
    means = groups[["square", "variance"]].mean() ** 0.5
    below.plot(means.index, means["variance"], color="#777777", ls=(0, (4, 2)), label="standard error")
    below.plot(means.index, means["square"], "o", color="#222222", label="measured")
    below.set_xlabel("draws")
    below.set_ylabel("error of the mean")
    if len(means) > 1:
        figures.log_axis(below, "x")
        figures.log_axis(below, "y")
    below.legend(frameon=False)
    return figure


# Figure 1, and what it does not show


def figure_one(low: float, high: float) -> None:
    """The paper's figure 1."""
    pages.figure(
        draw_figure_one(low, high),
        "definition-figure-1",
        "GELU, ReLU and ELU: GELU is the only one that falls before it rises",
        "The paper's figure 1, computed: GELU (μ = 0, σ = 1), ReLU and ELU (α = 1). GELU alone falls before it rises. "
        f"{pages.COMPUTED}",
        [],
    )


@figures.typeset
def draw_figure_one(low: float, high: float) -> Figure:
    if not low < high:
        raise ConfigurationError(f"the axis goes from low to high, not from {low:g} to {high:g}")
    figure, (ax,) = figures.panels(1, height=3.6)
    x = np.linspace(low, high, 801)
    for name in TRIO:
        _curve(ax, name, x, curves(name, x).value)
    _zero(ax)
    ax.set_xlabel("x")
    ax.set_ylabel("f(x)")
    figures.legend(figure, TRIO, [])
    return figure


def side_by_side(low: float, high: float) -> None:
    """ReLU, ELU and GELU: gate, derivative and curvature, as a figure and as a table."""
    pages.figure(
        draw_side_by_side(low, high),
        "definition-side-by-side",
        "Gate, derivative and second derivative of GELU, ReLU and ELU: smooth for GELU, with jumps at zero for the others",
        "Gate f(x)/x, derivative and second derivative: where the others jump at 0, drawn in two pieces, GELU is smooth. "
        f"{pages.COMPUTED}",
        [],
    )
    pages.plain_table(comparison())


@figures.typeset
def draw_side_by_side(low: float, high: float) -> Figure:
    figure, axes = figures.panels(3, height=2.4, sharex=True)
    pieces = [piece for piece in (np.linspace(low, -1e-9, 400), np.linspace(1e-9, high, 400)) if low < 0 < high]
    for name in TRIO:
        # a NaN between the pieces breaks the line there, but not where the function goes on smoothly
        parts = [curves(name, piece) for piece in pieces or [np.linspace(low, high, 800)]]
        for ax, shown in zip(
            axes, ([p.value / p.x for p in parts], [p.slope for p in parts], [p.curvature for p in parts]), strict=True
        ):
            jumps = len(shown) > 1 and abs(shown[0][-1] - shown[1][0]) > 1e-3
            gap = np.array([np.nan]) if jumps else np.empty(0)
            x = np.concatenate([parts[0].x, gap, *(p.x for p in parts[1:])])
            _curve(ax, name, x, np.concatenate([shown[0], gap, *shown[1:]]))
    for ax, title in zip(axes, ("Gate, f(x)/x", "Derivative, f′(x)", "Curvature, f″(x)"), strict=True):
        ax.set_title(title)
        _zero(ax)
    axes[-1].set_xlabel("x")
    figures.legend(figure, TRIO, [])
    return figure


def comparison() -> pd.DataFrame:
    """What tells ReLU, ELU and GELU apart, in numbers."""
    side = 1e-7
    columns = {}
    for name in ("relu", "elu", "gelu"):
        found = curves(name, _GRID)
        outputs = curves(name, stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000))
        place, least = minimum(name, float(_GRID[0]))
        falls = bool((found.slope < 0).any())
        inside = found.x[(np.abs(found.x) > side) & (np.abs(found.curvature) < 1e-12) & (np.abs(found.x) < 6)]
        columns[activations.title(name)] = {
            "gate f(x)/x at −1 and 1": f"{abs(at(name, -1)[0]):.3f}, {at(name, 1)[0]:.3f}",
            "f(−1), f(−3)": f"{at(name, -1)[0]:.3f}, {at(name, -3)[0]:.4f}",
            "least value": f"{least:.4f}" + (f" at {place:.4f}" if falls else ", approached at −∞" if least < 0 else ""),
            "derivative just left and right of 0": f"{at(name, -side)[1]:.3f}, {at(name, side)[1]:.3f}",
            "least and greatest derivative": f"{found.slope.min():.3f}, {found.slope.max():.3f}",
            "second derivative just left and right of 0": f"{at(name, -side)[2]:.3f}, {at(name, side)[2]:.3f}",
            "share of −6 < x < 6 without curvature": f"{100 * len(inside) / (np.abs(_GRID) < 6).sum():.0f} %",
            "mean output for standard normal x": f"{outputs.value.mean():.3f}",
            "outputs that are exactly 0": f"{100 * (outputs.value == 0).mean():.0f} %",
        }
    frame = pd.DataFrame(columns)
    frame.insert(0, "", frame.index)
    return frame.reset_index(drop=True)


def derivative(points: Sequence[float]) -> None:
    """The derivative against its formula, its limits, and the minimum."""
    found = curves("gelu", _GRID)
    formula = stats.norm.cdf(_GRID) + _GRID * stats.norm.pdf(_GRID)
    place, least = minimum()
    top, steepest = extreme(partial(_slope, "gelu"), 0, 6)
    bottom, lowest = extreme(lambda x: -curves("gelu", x).slope, -6, 0)
    pages.text(
        f"At {len(_GRID):,} points from {_GRID[0]:g} to {_GRID[-1]:g} autograd's derivative is within "
        f"{pages.number(float(np.abs(found.slope - formula).max()), 2)} of Φ(*x*) + *x* φ(*x*). It vanishes at "
        f"*x* = {place:.6f}, where the function has its minimum, {least:.6f}; it is steepest at *x* = {top:.4f}, where the "
        f"derivative is {steepest:.4f}, and falls fastest at *x* = {bottom:.4f}, with {-lowest:.4f}."
    )
    rows = []
    for x in points:
        value, slope, _ = at("gelu", x)
        rows.append(
            {"x": f"{x:g}", "f(x)": f"{value:.6g}", "max(0, x) − f(x)": f"{-at('gelu', -abs(x))[0]:.3g}", "f′(x)": f"{slope:.6g}"}
        )
    pages.plain_table(pd.DataFrame(rows))


def narrowing(sigmas: Sequence[float]) -> pd.DataFrame:
    """The greatest distance of GELU(x; 0, sigma) from ReLU, where it is, and the distance over sigma, for each sigma."""
    rows = []
    for sigma in sigmas:
        found = {"sigma": sigma}
        found["at"], found["distance"] = extreme(partial(_from_relu, sigma), -4 * sigma, 0)
        rows.append({**found, "over_sigma": found["distance"] / sigma})
    return pd.DataFrame(rows)


def towards_relu(sigmas: Sequence[float]) -> None:
    """How GELU tends to ReLU as sigma tends to 0."""
    table = narrowing(sigmas)
    pages.figure(
        draw_towards_relu(sigmas),
        "definition-sigma",
        "GELU for several sigma, closer to ReLU the smaller sigma is",
        f"GELU with μ = 0 for several σ, and ReLU: the smaller σ, the nearer it comes. {pages.COMPUTED}",
        [],
    )
    pages.plain_table(
        pd.DataFrame(
            {
                "σ": [f"{value:g}" for value in table["sigma"]],
                "greatest distance from ReLU": [pages.number(value, 4) for value in table["distance"]],
                "at |x|": [pages.number(abs(value), 4) for value in table["at"]],
                "distance / σ": [f"{value:.6f}" for value in table["over_sigma"]],
            }
        )
    )
    pages.text(
        f"The distance is {table['over_sigma'].mean():.6f} σ: the curve shrinks in both directions alike, since "
        "*x* Φ(*x*/σ) = σ *u* Φ(*u*) with *u* = *x*/σ, and the factor is the depth of the minimum."
    )


@figures.typeset
def draw_towards_relu(sigmas: Sequence[float]) -> Figure:
    figure, (ax,) = figures.panels(1, height=3.3)
    x = np.linspace(-2, 1, 601)
    shades = np.linspace(0.25, 1, len(sigmas))
    colour = figures.STYLES["gelu"][0]
    dashes = ["-", (0, (9, 2)), (0, (5, 2)), (0, (3, 1)), (0, (2, 2)), (0, (6, 2, 1, 2))]
    handles = []
    for number, (sigma, shade) in enumerate(zip(sorted(sigmas), shades, strict=True)):
        style = {"color": colour, "alpha": 0.35 + 0.65 * shade, "ls": dashes[number % len(dashes)]}
        ax.plot(x, curves("gelu", x, sigma=sigma).value, **style)
        handles.append(Line2D([], [], label=f"σ = {sigma:g}", **style))
    _curve(ax, "relu", x, curves("relu", x).value)
    _zero(ax)
    ax.set_xlabel("x")
    ax.set_ylabel("f(x)")
    figures.legend(figure, ["relu"], handles)
    return figure


# The family x F(x)


def family(low: float, high: float) -> None:
    """Activations x F(x) with four distribution functions."""
    pages.figure(
        draw_family(low, high),
        "definition-family",
        "The activations x F(x) with the Gaussian, logistic, Laplace and Cauchy distribution, and their derivatives",
        "The family x F(x): the heavier the tail of F, the longer a negative input is felt. "
        f"{pages.COMPUTED}",
        [],
    )
    pages.plain_table(family_table())


@figures.typeset
def draw_family(low: float, high: float) -> Figure:
    figure, axes = figures.panels(2, height=2.7, sharex=True)
    x = np.linspace(low, high, 801)
    for name in FAMILY:
        found = curves(name, x)
        _curve(axes[0], name, x, found.value)
        _curve(axes[1], name, x, found.slope)
    for ax, title in zip(axes, ("x F(x)", "Derivative"), strict=True):
        ax.set_title(title)
        _zero(ax)
    axes[-1].set_xlabel("x")
    figures.legend(figure, list(FAMILY), [])
    return figure


def family_table() -> pd.DataFrame:
    """Each gate's least value, how much of a far negative input it lets pass, and its greatest slope."""
    far, rows = 1e9, []
    for name, distribution in FAMILY.items():
        place, least = minimum(name, -50)
        bounded = place > -50
        top, steepest = extreme(partial(_slope, name), 0, 50)
        limit = at(name, -far)[0]
        rows.append(
            {
                "F": distribution,
                "activation": activations.title(name).replace(" ", "&nbsp;"),
                "least value": f"{least:.4f} at {place:.4f}" if bounded else f"{limit:.4f}, approached at −∞",
                "f(−5)": pages.number(at(name, -5)[0]),
                "limit at −∞": pages.number(limit) if limit else "0",
                "steepest": f"{steepest:.4f} at {top:.3f}" if steepest > 1 + 1e-9 else "1, approached at ∞",
            }
        )
    return pd.DataFrame(rows)


# The paper's remarks


@dataclass(frozen=True)
class Remark:
    """What the paper says in passing, how it was checked, what came out, and whether it holds."""

    said: str
    check: str
    result: str
    holds: bool


def remarks(draws: int, seed: int) -> list[Remark]:
    """Every remark of the paper about the activation that a computation can check."""
    found = {name: curves(name, _GRID) for name in TRIO}
    gelu, positive = found["gelu"], _GRID > 0
    phi = stats.norm.cdf(_GRID)
    difference = {name: extreme(partial(apart, name), -8, 8) for name in ("gelu_tanh", "gelu_sigmoid")}
    tanh, sigmoid = difference["gelu_tanh"][1], difference["gelu_sigmoid"][1]

    drawn = simulate([-2.0, -1.0, 0.5, 1.0, 2.0], [draws], seed)
    deviation = float(((drawn["mean"] - drawn["expected"]).abs() / drawn["error"]).max())
    near = narrowing([0.1, 0.01, 0.001])
    turn, least = minimum()
    bend, concave = extreme(lambda x: -curves("gelu", x).curvature, 0, 6)
    slopes = gelu.slope[positive]
    flat = _roots(lambda x: at("gelu", x)[2], _GRID[np.abs(_GRID) < 8])
    others = [found["relu"], found["elu"]]
    logistic, gap = extreme(lambda x: np.abs(stats.logistic.cdf(x) - stats.norm.cdf(x)), 0, 8)
    gate = np.divide(gelu.value, _GRID, out=np.full_like(_GRID, 0.5), where=_GRID != 0)
    example = activations.gelu_tanh(torch.tensor([-2.0, 0.0, 2.0], dtype=torch.float64)).numpy()
    silu = np.abs(curves("silu", _GRID).value - _GRID * stats.logistic.cdf(_GRID)).max()
    return [
        Remark(
            "The GELU is the expectation of the SOI map.",
            f"mean of {draws:,} draws at 5 inputs, in standard errors from x Φ(x)",
            f"at most {deviation:.2f}",
            deviation < 4,
        ),
        Remark(
            "The gate weighs an input by its value; ReLU gates it by its sign.",
            "f(x)/x on a grid, against Φ(x) and against 0 and 1",
            f"rises from {gate[0]:.1g} to {gate[-1]:.3g}, within {np.abs(gate - phi).max():.1g} of Φ(x); ReLU's is 0 or 1",
            bool((np.diff(gate) >= -1e-15).all() and set(np.unique(found["relu"].value[positive] / _GRID[positive])) == {1.0}),
        ),
        Remark(
            "With μ = 0 it becomes ReLU as σ tends to 0.",
            "greatest distance from ReLU at σ = 0.1, 0.01, 0.001",
            ", ".join(pages.number(value, 2) for value in near["distance"]),
            bool((near["distance"] < 0.2 * near["sigma"]).all()),
        ),
        Remark(
            "The tanh form approximates it.",
            "greatest difference",
            f"{tanh:.2e} at |x| = {abs(difference['gelu_tanh'][0]):.3f}",
            tanh < 1e-3,
        ),
        Remark(
            "x σ(1.702 x) is faster and less accurate.",
            "greatest difference (speed: see the chapter on cost)",
            f"{sigmoid:.2e} at |x| = {abs(difference['gelu_sigmoid'][0]):.3f}, {sigmoid / tanh:.0f} times the tanh form's",
            sigmoid > tanh,
        ),
        Remark(
            "It is not convex.",
            "second derivative below 0",
            f"for |x| > {max(flat):.4f}; least, {-concave:.3f}, at |x| = {bend:.3f}",
            concave > 0,
        ),
        Remark(
            "It is not monotonic.",
            "derivative below 0",
            f"for x < {turn:.4f}, where f is {least:.4f}",
            bool((gelu.slope < 0).any() and (gelu.slope > 0).any()),
        ),
        Remark(
            "It is not linear for positive inputs.",
            "range of the derivative for x > 0",
            f"{slopes.min():.3f} to {slopes.max():.3f}",
            bool(np.ptp(slopes) > 1e-3),
        ),
        Remark(
            "It has curvature at all points.",
            "zeros of the second derivative, |x| < 8",
            f"none but {', '.join(f'{x:.5f}' for x in flat)}: at two points it has none, on no interval",
            len(flat) == 0,
        ),
        Remark(
            "ReLU and ELU are convex and monotonic.",
            "least derivative, and whether it ever falls",
            f"{min(other.slope.min() for other in others):.1g}; it never falls",
            all(other.slope.min() >= 0 and (np.diff(other.slope) >= -1e-15).all() for other in others),
        ),
        Remark(
            "ReLU and ELU are linear for positive inputs.",
            "greatest second derivative for x > 0",
            f"{max(np.abs(other.curvature[positive]).max() for other in others):.1g}",
            all(np.abs(other.curvature[positive]).max() == 0 for other in others),
        ),
        Remark(
            "Like ELU it can be negative as well as positive; ReLU cannot.",
            "least values",
            f"GELU {least:.3f}, ELU {found['elu'].value.min():.3f}, ReLU {found['relu'].value.min():.0f}",
            least < 0 and found["elu"].value.min() < 0 and found["relu"].value.min() == 0,
        ),
        Remark(
            "The logistic function and Φ differ by about 0.1 at most.",
            "greatest difference",
            f"{gap:.4f} at |x| = {logistic:.3f}",
            round(gap, 1) == 0.1,
        ),
        Remark(
            "With a logistic F, x F(x) is SiLU.",
            "greatest difference from x times SciPy's logistic distribution function",
            f"{silu:.1g}",
            silu < 1e-12,
        ),
        Remark(
            "(From a guide) The tanh form maps −2, 0, 2 to −0.045, 0, 1.955.",
            "computed",
            ", ".join(f"{value:.4f}" for value in example),
            bool(np.abs(example - [-0.045, 0, 1.955]).max() < 5e-4),
        ),
    ]


def remarks_table(draws: int, seed: int) -> None:
    """The remarks with what came out."""
    found = remarks(draws, seed)
    rows = [
        {"remark": item.said, "check": item.check, "result": item.result, "holds": "yes" if item.holds else "<b>not quite</b>"}
        for item in found
    ]
    pages.plain_table(pd.DataFrame(rows))
    exceptions = [item for item in found if not item.holds]
    if exceptions:
        listed = " ".join(f"*{item.said}* {item.result[0].upper()}{item.result[1:]}." for item in exceptions)
        pages.text(
            f"{len(found) - len(exceptions)} of {len(found)} hold as they stand. The other{'s' * (len(exceptions) > 1)}: {listed}"
        )
    else:
        pages.text(f"All {len(found)} hold.")


def _slope(name: str, x: Array) -> Array:
    return curves(name, x).slope


def _from_relu(sigma: float, x: Array) -> Array:
    return np.abs(curves("gelu", x, sigma=sigma).value - np.maximum(x, 0))


def _roots(function: Callable[[float], float], grid: Array) -> list[float]:
    """Where a function changes its sign between neighbours of a grid."""
    coarse = grid[::200]
    values = np.array([function(float(x)) for x in coarse])
    turns = np.flatnonzero(values[:-1] * values[1:] < 0)
    return [float(optimize.brentq(function, coarse[i], coarse[i + 1], xtol=1e-14)) for i in turns]


def _curve(ax: Axes, name: str, x: Array, y: Array) -> None:
    colour, line, _ = figures.STYLES[name]
    ax.plot(x, y, color=colour, linestyle=line, gid=name)


def _zero(ax: Axes) -> None:
    ax.axhline(0, color="#999999", lw=0.8, zorder=0)
    ax.axvline(0, color="#999999", lw=0.8, zorder=0)
