"""The standard normal distribution function and density, to the last digits of the negative tail.

`(1 + erf(u / sqrt 2)) / 2` cancels for negative u and keeps no digit below about -5.5 in float32. `erfc(-u / sqrt 2) / 2` does not
cancel, but rounding its argument alone costs u^2 units in the last place. So results in float32 and the half-precision types are
computed in float64 with a tail function good to 2e-8, and results in float64 with corrections for what the arguments lost.
"""

from __future__ import annotations

import math
import struct

import torch
from torch import Tensor

INV_SQRT_2PI = 1 / math.sqrt(2 * math.pi)
LIMIT = 40.0
"""Beyond +-40 the density and the smaller tail are zero in every dtype."""

_SHIFT = 3.8
_TAIL = (
    0.39903758083319774,
    1.5082115864117591,
    5.633768915771177,
    11.98577179775359,
    114.9930929624222,
    -383.54064898160345,
    2620.247495379069,
    -6391.869554230115,
    5063.31684791021,
)
"""erfcx(a / sqrt 2) / 2 = t p(t) with t = 1 / (a + 3.8): the coefficients of p with least greatest relative error, 1.8e-8 for
0 <= a <= 14.3, where the float32 tail ends. Found by Lawson's iteration on SciPy's `erfcx`; the tests measure the error again."""

_LOW_BITS = -(1 << 27)  # clears the lower half of a float64's significand, so that products of what is left are exact
_LOG2E_HALF = math.log2(math.e) / 2


def _upper_half(value: float) -> float:
    bits = struct.unpack("<q", struct.pack("<d", value))[0] & _LOW_BITS
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


_SQRT_HALF_HIGH = _upper_half(math.sqrt(0.5))
_SQRT_HALF_LOW = 0.7071067811865476 - _SQRT_HALF_HIGH - 4.833646656726457e-17  # sqrt(1/2) less its upper half, to 79 bits


def cdf_and_kernel(u: Tensor, full: bool) -> tuple[Tensor, Tensor]:
    """Phi(u) and exp(-u^2 / 2) of u, float64 of any shape within +-`LIMIT`; NaN gives NaN.

    With `full` both are within 3 units in the last place of float64, wherever normal; without it, within 2e-8, which is
    what rounding to float32 calls for, in a third of the time.
    """
    if full:
        tail, kernel = _precise(u.abs())
    else:
        tail, kernel = torch.empty_like(u), torch.empty_like(u)
        with torch.no_grad():  # derivatives have a way of their own, and `out=` none
            tail_and_kernel(u.clone(), tail, kernel)
    return from_tail(tail, u), kernel


def tail_and_kernel(u: Tensor, tail: Tensor, kernel: Tensor) -> None:
    """Write Phi(-|u|) into `tail` and exp(-u^2 / 2) into `kernel`, both within 2e-8; uses u up. All float64."""
    torch.mul(u, u, out=kernel).mul_(-_LOG2E_HALF).exp2_()
    t = u.abs_().add_(_SHIFT).reciprocal_()
    torch.mul(t, _TAIL[-1], out=tail).add_(_TAIL[-2])
    for coefficient in _TAIL[-3::-1]:
        tail.mul_(t).add_(coefficient)
    tail.mul_(t).mul_(kernel)


def from_tail(tail: Tensor, u: Tensor) -> Tensor:
    """F(u) of a symmetric distribution from its smaller tail F(-|u|)."""
    sign = torch.sign(u)
    return torch.addcmul(torch.mul(sign, 0.5).add_(0.5), sign, tail, value=-1)


def split(a: Tensor) -> tuple[Tensor, Tensor]:
    """float64 a as a sum of its upper 26 bits, whose products are exact, and the rest."""
    high = torch.bitwise_and(a.view(torch.int64), _LOW_BITS).view(a.dtype)
    return high, a - high


def _precise(a: Tensor) -> tuple[Tensor, Tensor]:
    high, low = split(a)
    # exp(-a^2 / 2), and what rounding took from its exponent
    exponent = torch.mul(a, a).mul_(-0.5)
    lost = torch.addcmul(exponent, high, high, value=0.5)
    lost = torch.addcmul(lost, low, high + a, value=0.5)
    kernel = exponent.exp_()
    kernel = torch.addcmul(kernel, kernel, lost, value=-1)
    # erfc(a / sqrt 2) / 2, and what rounding took from its argument, times the derivative
    argument = a * math.sqrt(0.5)
    lost = torch.sub(high * _SQRT_HALF_HIGH, argument).add_(low, alpha=_SQRT_HALF_HIGH).add_(a, alpha=_SQRT_HALF_LOW)
    return torch.addcmul(argument.erfc_().mul_(0.5), lost, kernel, value=-1 / math.sqrt(math.pi)), kernel
