"""Every activation and its derivative in 100-digit arithmetic, from the published formulas, and errors in units of the last place."""

from __future__ import annotations

from typing import NamedTuple

import mpmath
import torch
from mpmath import mpf

GATES = ["gelu", "gelu_tanh", "gelu_sigmoid", "silu", "lalu", "calu"]
KINKS = {
    "relu": [0],
    "leaky_relu": [0],
    "hard_swish": [-3, 3],
    "selu": [0],
}
"""Where an activation has no derivative."""

DIGITS = 100  # 1/2 + atan(u) / pi loses 39 of them at float32's lowest number

_PRECISION = {torch.float64: (53, -1021), torch.float32: (24, -125), torch.bfloat16: (8, -125), torch.float16: (11, -13)}


class Exact(NamedTuple):
    value: mpf
    slope: mpf
    size: mpf
    """What errors of the slope are held against: |G| + |x| G' for a gate, |slope| for the others."""
    gate: mpf
    condition: mpf
    """By how much a relative error of u is magnified in the gate, |u G'(u) / G(u)|."""


def gate(name: str, u: mpf) -> tuple[mpf, mpf]:
    """G(u) and G'(u)."""
    if name == "gelu":
        return mpmath.ncdf(u), mpmath.npdf(u)
    if name == "lalu":
        density = mpmath.exp(-abs(u)) / 2
        return density if u < 0 else 1 - density, density
    if name == "calu":
        return mpf(1) / 2 + mpmath.atan(u) / mpmath.pi, 1 / (mpmath.pi * (1 + u * u))
    if name == "gelu_tanh":  # (1 + tanh v) / 2 is 1 / (1 + exp(-2 v)), which does not cancel
        c = 2 * mpmath.sqrt(2 / mpmath.pi)
        inner, inner_slope = c * (u + mpf("0.044715") * u**3), c * (1 + 3 * mpf("0.044715") * u**2)
    else:
        inner_slope = {"gelu_sigmoid": mpf("1.702"), "silu": mpf(1)}[name]
        inner = inner_slope * u
    e = mpmath.exp(-inner)
    return 1 / (1 + e), e / (1 + e) ** 2 * inner_slope


def _softplus(z: mpf) -> mpf:
    return mpmath.log1p(mpmath.exp(z)) if z < 200 else z


def _other(name: str, x: mpf, parameters: dict[str, float]) -> tuple[mpf, mpf]:
    alpha = mpf(parameters.get("alpha", 1.0))
    if name == "identity":
        return x, mpf(1)
    if name == "relu":
        return max(x, mpf(0)), mpf(x > 0)
    if name == "leaky_relu":
        slope = mpf(1) if x > 0 else mpf(parameters.get("negative_slope", 0.01))
        return x * slope, slope
    if name == "squared_relu":
        return max(x, mpf(0)) ** 2, 2 * max(x, mpf(0))
    if name == "elu":
        return (x, mpf(1)) if x > 0 else (alpha * mpmath.expm1(x), alpha * mpmath.exp(x))
    if name == "celu":
        return (x, mpf(1)) if x > 0 else (alpha * mpmath.expm1(x / alpha), mpmath.exp(x / alpha))
    if name == "selu":  # the constants from the paper's fixed point: mean 0 and variance 1 stay
        scale, a = mpf("1.0507009873554804934193349852946"), mpf("1.6732632423543772848170429916717")
        return (scale * x, scale) if x > 0 else (scale * a * mpmath.expm1(x), scale * a * mpmath.exp(x))
    if name == "softplus":
        beta = mpf(parameters.get("beta", 1.0))
        if beta * x > 20:  # documented
            return x, mpf(1)
        return mpmath.log1p(mpmath.exp(beta * x)) / beta, 1 / (1 + mpmath.exp(-beta * x))
    if name == "mish":
        t = mpmath.tanh(_softplus(x))
        return x * t, t + x * (1 - t * t) / (1 + mpmath.exp(-x))
    if name == "hard_swish":
        if x <= -3 or x >= 3:
            return (mpf(0), mpf(0)) if x < 0 else (x, mpf(1))
        return x * (x + 3) / 6, (2 * x + 3) / 6
    raise AssertionError(f"no reference for {name}")


def exact(name: str, x: float | mpf, **parameters: float) -> Exact:
    """f(x) and f'(x) of the registered name."""
    with mpmath.workdps(DIGITS):
        point = mpf(x)
        if name not in GATES:
            value, slope = _other(name, point, parameters)
            return Exact(value, slope, abs(slope), mpf(1), mpf(0))
        sigma = mpf(parameters.get("sigma", 1.0))
        u = (point - mpf(parameters.get("mu", 0.0))) / sigma
        g, density = gate(name, u)
        wing = point * density / sigma
        return Exact(point * g, g + wing, g + abs(wing), g, abs(u * density / g))


def ulp(size: mpf, dtype: torch.dtype) -> mpf:
    """The unit in the last place of a number of that size."""
    digits, lowest = _PRECISION[dtype]
    exponent = mpmath.frexp(size)[1] if size else lowest
    return mpmath.ldexp(1, max(int(exponent), lowest) - digits)


def normal(size: mpf, dtype: torch.dtype) -> bool:
    return bool(torch.finfo(dtype).smallest_normal <= abs(size) <= torch.finfo(dtype).max)


def error(computed: float, value: mpf, size: mpf, dtype: torch.dtype) -> float:
    """|computed - value| in units of the last place of `size`."""
    with mpmath.workdps(DIGITS):
        return float(abs(mpf(computed) - value) / ulp(size, dtype))
