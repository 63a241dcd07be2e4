"""Rounding errors of an activation and its derivative, in units in the last place (ulp) of what they should have been.

The references share no code with `activations`: for float64, arithmetic of 50 decimal digits from the standard library; for the
smaller types, SciPy's distribution functions in float64, whose own error, 1e-13 of the result at most, they do not see. An error of
half a unit is what rounding alone costs, at worst; 2^p units, with p the bits of the significand, are the loss of every digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from gelu_study.errors import ConfigurationError

Array = NDArray[np.float64]
Function = Callable[[Tensor], Tensor]

FORMS = ("gelu", "gelu_tanh", "gelu_sigmoid", "silu")
"""What has a reference: x G(x) with a Gaussian gate, its two approximations, and the logistic gate."""

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Reference:
    """x G(x), its derivative, and G + |x| G', against which the derivative's error is held.

    The derivative is a difference where x < 0 and crosses zero, so an error relative to itself would be infinite there. The
    parts that float64 does not hold are in its ulp of the value, and of `scale`: as numbers they would underflow in the tail.
    """

    value: Array
    value_rest: Array
    slope: Array
    slope_rest: Array
    scale: Array


@dataclass(frozen=True)
class Errors:
    """Errors in ulp at the inputs x; NaN where the reference is no normal number, infinite for a result that is none."""

    x: Array
    value: Array
    slope: Array


@dataclass(frozen=True)
class Enumeration:
    """All inputs of a 16-bit type that are numbers, infinities among them: shares of correctly rounded results, in [0, 1]."""

    inputs: int
    value: float
    slope: float
    nan_values: int
    """How many finite inputs have NaN for a value."""
    nan_slopes: int
    """How many finite inputs have NaN for a derivative."""


def dtype_of(name: str) -> torch.dtype:
    """The dtype of that name. Raises `ConfigurationError` that lists the known."""
    if name not in DTYPES:
        raise ConfigurationError(f"unknown dtype {name!r}; known are {', '.join(DTYPES)}")
    return DTYPES[name]


def reference(form: str, x: Array, dtype: torch.dtype) -> Reference:
    """Value and derivative of a form at finite or infinite x, good to far less than an ulp of dtype.

    Raises `ConfigurationError` for a form that has none.
    """
    if form not in FORMS:
        raise ConfigurationError(f"no reference for {form!r}; there are {', '.join(FORMS)}")
    return _decimal(form, x) if dtype is torch.float64 else _scipy(form, x)


def evaluate(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and f'(x) by autograd, each like x."""
    tracked = x.detach().clone().requires_grad_()
    value = function(tracked)
    (slope,) = torch.autograd.grad(value, tracked, torch.ones_like(value))
    return value.detach(), slope


def measure(function: Function, form: str, x: Tensor, against: Reference | None = None) -> Errors:
    """The errors of a function at x, of any floating dtype, as an implementation of a form.

    `against` is `reference(form, x, x.dtype)`, for whoever measures several functions at the same points.
    """
    points = _numbers(x)
    true = reference(form, points, x.dtype) if against is None else against
    value, slope = evaluate(function, x)
    return Errors(
        points,
        _errors(value, true.value, true.value_rest, true.value),
        _errors(slope, true.slope, true.slope_rest, true.scale),
    )


def enumerate_all(function: Function, form: str, dtype: torch.dtype) -> Enumeration:
    """Try every input of a 16-bit type. +0 and -0 count as the same result."""
    x = every(dtype)
    points = _numbers(x)
    true = reference(form, points, dtype)
    value, slope = (_numbers(part) for part in evaluate(function, x))
    finite = np.isfinite(points)
    return Enumeration(
        len(points),
        float((value == rounded(true.value, dtype)).mean()),
        float((slope == rounded(true.slope, dtype)).mean()),
        int(np.isnan(value[finite]).sum()),
        int(np.isnan(slope[finite]).sum()),
    )


def worst(errors: Array, x: Array) -> tuple[float, float]:
    """The greatest error and where it is. Raises `ConfigurationError` if none is defined."""
    if np.isnan(errors).all():
        raise ConfigurationError("no result is a normal number: there is no error to measure")
    place = int(np.nanargmax(errors))
    return float(errors[place]), float(x[place])


def every(dtype: torch.dtype) -> Tensor:
    """All numbers of a 16-bit type, ascending, infinities among them and both zeros."""
    if dtype not in (torch.float16, torch.bfloat16):
        raise ConfigurationError(f"only the 16-bit types can be enumerated, not {dtype}")
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    numbers: Tensor = x[~x.isnan()]
    return numbers.sort().values


def tail_end(form: str, dtype: torch.dtype) -> float:
    """The most negative x at which a form is still a normal number of a dtype, by bisection."""
    least = math.log(torch.finfo(dtype).tiny)
    low, high = -1e3, -2.0
    for _ in range(50):
        middle = (low + high) / 2
        gate = special.log_ndtr(middle) if form == "gelu" else special.log_expit(_inner(form, middle))
        if math.log(-middle) + gate >= least:
            high = middle
        else:
            low = middle
    return high


def sample(form: str, dtype: torch.dtype, count: int, seed: int) -> Tensor:
    """About `count` distinct finite inputs, ascending, where errors may be great; every one of a 16-bit type.

    Three quarters are spread evenly from beyond the end of the tail to 8, the others over all magnitudes of both signs and
    around the places where something changes: the end of the tail, 0, the least normal number, the greatest.
    """
    if dtype in (torch.float16, torch.bfloat16):
        numbers = every(dtype)
        finite: Tensor = numbers[numbers.isfinite()]
        return finite
    info, rng = torch.finfo(dtype), np.random.default_rng(seed)
    end = tail_end(form, dtype)
    few = max(count // 32, 4)
    exponents = rng.uniform(math.log2(info.smallest_normal) - 20, math.log2(info.max), 3 * few)
    turns = [end, end, 2 * info.tiny, -2 * info.tiny, -0.75, -1.0, 1.0]
    near = [turn * (1 + rng.uniform(-0.01, 0.01, few // 2)) for turn in turns]
    x = np.concatenate(
        [
            rng.uniform(1.02 * end, 8, max(count - 7 * few, 4)),
            np.exp2(exponents) * rng.choice([-1.0, 1.0], 3 * few),
            *near,
            np.array([0.0, info.tiny, -info.tiny, info.max, -info.max, info.eps * info.tiny]),
        ]
    )
    distinct: Tensor = torch.unique(torch.from_numpy(x).to(dtype))
    return distinct


def unit(values: Array, dtype: torch.dtype) -> Array:
    """The unit in the last place of dtype at each value, as float64; that of the subnormal numbers for smaller ones."""
    info = torch.finfo(dtype)
    least = int(math.log2(info.smallest_normal))
    exponent = np.maximum(np.frexp(values)[1] - 1, least)
    return np.asarray(np.ldexp(info.eps, exponent))


def rounded(values: Array, dtype: torch.dtype) -> Array:
    """Values rounded to the nearest number of dtype, ties to even, as float64.

    In one step: PyTorch goes from float64 to the 16-bit types by way of float32 and rounds twice.
    """
    step = unit(np.where(np.isfinite(values), values, 0.0), dtype)
    nearest = np.rint(values / step) * step
    return np.where(np.abs(nearest) > torch.finfo(dtype).max, np.copysign(np.inf, nearest), nearest)


def _numbers(x: Tensor) -> Array:
    return x.detach().double().numpy()


def _errors(got: Tensor, high: Array, rest: Array, scale: Array) -> Array:
    found = _numbers(got)
    info = torch.finfo(got.dtype)
    with _quiet():
        error = np.abs((found - high) / unit(np.where(np.isfinite(scale), scale, 1.0), got.dtype) - rest)
    error[np.isnan(found)] = np.inf
    normal = (np.abs(scale) >= info.smallest_normal) & (np.abs(scale) <= info.max)
    return np.where(normal, error, np.nan)


@contextmanager
def _quiet() -> Iterator[None]:
    with np.errstate(under="ignore", over="ignore", invalid="ignore"):
        yield


# SciPy in float64, for the smaller types

_TANH = 2 * math.sqrt(2 / math.pi)
_LINEAR = {"gelu_tanh": _TANH, "gelu_sigmoid": 1.702, "silu": 1.0}
_CUBIC = {"gelu_tanh": 0.044715 * _TANH, "gelu_sigmoid": 0.0, "silu": 0.0}
"""A logistic gate is sigmoid(c1 x + c3 x^3): 0.5 (1 + tanh v) = sigmoid(2 v)."""


def _inner(form: str, u: Any) -> Any:
    return _LINEAR[form] * u + _CUBIC[form] * u**3


def _scipy(form: str, x: Array) -> Reference:
    with _quiet():
        u = np.clip(x, -1e3, 1e3)  # the gate does not change any more
        if form == "gelu":
            gate, density = special.ndtr(u), np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)
        else:
            v = _inner(form, u)
            gate = special.expit(v)
            density = gate * special.expit(-v) * (_LINEAR[form] + 3 * _CUBIC[form] * u * u)
        value = np.where(gate == 0, np.copysign(0.0, x), np.where(x == 0, 0.0, x) * gate)
        none = np.zeros_like(x)
        return Reference(value, none, gate + u * density, none, gate + np.abs(u) * density)


# 50 decimal digits, for float64

_DIGITS = Context(prec=50)
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
_STEP = Decimal("0.29")


def _nodes() -> list[tuple[Decimal, Decimal]]:
    with localcontext(_DIGITS):
        squares = [((k + Decimal("0.5")) * _STEP) ** 2 for k in range(38)]
        return [(square, (-square).exp()) for square in squares]


_NODES = _nodes()
"""(t^2, exp(-t^2)) at the midpoints t of `_STEP`."""


def _tail(a: Decimal) -> tuple[Decimal, Decimal]:
    """Phi(-a) and exp(-a^2 / 2) for a >= 0.

    The midpoint rule for the integral of exp(-t^2) / (t^2 + z^2), which is pi exp(z^2) erfc(z) / z, with the residue at the pole iz
    (Chiarella & Reichel 1968): its error, exp(-pi^2 / step^2), is 1e-51.
    """
    square = a * a / 2
    z, kernel = square.sqrt(), (-square).exp()
    result = 2 * z * _STEP / _PI * kernel * sum(weight / (node + square) for node, weight in _NODES)
    if z * _STEP < _PI:
        result += 2 / (1 + (2 * _PI * z / _STEP).exp())
    return result / 2, kernel


def _gate(form: str, x: Decimal) -> tuple[Decimal, Decimal]:
    """G(x) and G'(x)."""
    if form == "gelu":
        tail, kernel = _tail(abs(x))
        return tail if x < 0 else 1 - tail, kernel / (2 * _PI).sqrt()
    c1, c3 = Decimal("1.702") if form == "gelu_sigmoid" else Decimal(1), Decimal(0)
    if form == "gelu_tanh":
        c1 = 2 * (2 / _PI).sqrt()
        c3 = c1 * Decimal("0.044715")
    fall = (-(c1 * x + c3 * x**3)).exp()
    gate = 1 / (1 + fall)
    return gate, gate * gate * fall * (c1 + 3 * c3 * x * x)


def _decimal(form: str, x: Array) -> Reference:
    rows = np.empty((5, len(x)))
    with localcontext(_DIGITS):
        for column, point in enumerate(x.tolist()):
            if abs(point) > 1e3:  # the gate is 0 or 1 to every digit of float64, and its density 0
                rows[:, column] = (point, 0, 1, 0, 1) if point > 0 else 0
                continue
            exact = Decimal(point)
            gate, density = _gate(form, exact)
            value, slope = exact * gate, gate + exact * density
            scale = float(gate + abs(exact) * density)
            rows[::2, column] = float(value), float(slope), scale
            rows[1, column] = (value - Decimal(float(value))) / Decimal(math.ulp(float(value)))
            rows[3, column] = (slope - Decimal(float(slope))) / Decimal(math.ulp(scale))
    return Reference(*rows)
