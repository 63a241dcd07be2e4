"""Activations x F((x - mu) / sigma): the input times a gate that is a distribution function F (paper, sections 2 and 5).

The Gaussian F gives the GELU, the logistic one SiLU, the Laplace and the Cauchy distribution two more; the tanh and sigmoid
forms of GELU replace F by an approximation. Gates are evaluated in float64 and then rounded, whatever the dtype (MPS, which has
no float64, computes in float32). They behave as PyTorch's own functions do: any shape and strides, any floating dtype, any order
of derivative (forward mode to the second), `torch.func`, `torch.compile` (but `dynamic=True`, which makes symbols of constants too,
fails in PyTorch itself when a graph with gradients holds two of them), `torch.export`. Unlike PyTorch's, they have their limits at
-inf, and no NaN for any finite input. In float64 only the exact GELU keeps every digit of its far tail.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gelu_study.activations.gaussian import INV_SQRT_2PI, LIMIT, cdf_and_kernel, from_tail, split, tail_and_kernel
from gelu_study.errors import ConfigurationError

# 0.5 (1 + tanh v) = sigmoid(2 v), so the tanh form is x sigmoid(x (C1 + C3 x^2)) with the paper's constants doubled
TANH_C1 = 2 * math.sqrt(2 / math.pi)
TANH_C3 = TANH_C1 * 0.044715
SIGMOID_SCALE = 1.702

Parts = tuple[Tensor, Tensor]
Block = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], None]
"""(u, gate, density, three float64 buffers): writes G(u) and G'(u), all of one length, the first three float32."""


@dataclass(frozen=True)
class Form:
    """A gate G(u): G with G', written for speed, and G' with G'', of differentiable operations."""

    gate: Callable[[Tensor, bool], Parts]  #: (u, whether to float64's last digit) -> G(u), G'(u)
    curvature: Callable[[Tensor], Parts]  #: u -> G'(u), G''(u)
    limit: float  #: beyond +-limit G is 0 or 1 in every dtype: u is clamped to it
    far: Callable[[Tensor, Tensor, Tensor], Parts] | None = None  #: (u, u G(u), its derivative) -> both, where G underflows
    block: Block | None = None  #: the same as `gate` for float32 on the CPU, without allocating
    least: float = 0.0  #: below it the gate is subnormal in float32, which costs `block` its digits


def _gaussian(u: Tensor, full: bool) -> Parts:
    gate, kernel = cdf_and_kernel(u, full)
    return gate, kernel.mul_(INV_SQRT_2PI)


def _gaussian_far(u: Tensor, value: Tensor, slope: Tensor) -> Parts:
    """u Phi(u) and its derivative below -37, where Phi and phi are subnormal in float64 before these are."""
    u = u.clamp(max=-1)  # the rest is thrown away, but must not divide by 0
    high, low = split(u)
    raised = torch.exp(64 - 0.5 * high * high)  # e^64 exp(-u^2 / 2), which is normal
    raised = torch.addcmul(raised, raised, torch.expm1(-0.5 * low * (high + u)))
    v = u.pow(-2)
    series = 1 - v * (1 - 3 * v * (1 - 5 * v * (1 - 7 * v * (1 - 9 * v * (1 - 11 * v)))))  # Mills: Phi(u) = -phi(u) series / u
    far = u < -37
    lower = 6.398279740081261e-29  # e^-64 / sqrt(2 pi), correctly rounded
    return torch.where(far, raised * -series * lower, value), torch.where(far, raised * (u - series / u) * lower, slope)


def _gaussian_curvature(u: Tensor) -> Parts:
    density = torch.exp(-0.5 * u * u) * INV_SQRT_2PI
    return density, -u * density


def _logistic(c1: float, c3: float) -> Callable[[Tensor, bool], Parts]:
    def gate(u: Tensor, full: bool) -> Parts:
        square = u * u
        inner = torch.mul(square, c3).add_(c1).mul_(u) if c3 else u * c1
        s = torch.sigmoid(inner)
        rest = torch.sigmoid(inner.neg_()) if full else 1 - s  # the difference keeps few digits where s is near 1
        return s, rest.mul_(s).mul_(square.mul_(3 * c3).add_(c1))

    return gate


def _logistic_curvature(c1: float, c3: float) -> Callable[[Tensor], Parts]:
    def curvature(u: Tensor) -> Parts:
        inner, slope = u * (c1 + c3 * u * u), c1 + 3 * c3 * u * u
        s = torch.sigmoid(inner)
        density = s * torch.sigmoid(-inner)
        return density * slope, density * (6 * c3 * u + slope * slope * (1 - 2 * s))

    return curvature


def _laplace(u: Tensor, full: bool) -> Parts:
    density = u.abs().neg_().exp_().mul_(0.5)
    return from_tail(density, u), density


def _laplace_curvature(u: Tensor) -> Parts:
    density = 0.5 * torch.exp(-u.abs())
    return density, -torch.sign(u) * density


def _cauchy(u: Tensor, full: bool) -> Parts:
    gate = torch.atan2(torch.ones_like(u), -u).mul_(1 / math.pi)  # 1/2 + atan(u) / pi would cancel
    return gate, (u * u).add_(1).reciprocal_().mul_(1 / math.pi)


def _cauchy_curvature(u: Tensor) -> Parts:
    density = 1 / (math.pi * (1 + u * u))
    return density, -2 * math.pi * u * density * density


def _gaussian_block(u: Tensor, gate: Tensor, density: Tensor, a: Tensor, b: Tensor, c: Tensor) -> None:
    tail_and_kernel(c.copy_(u), a, b)
    # from here on in float32: gate = (1 + sign) / 2 - sign tail
    torch.sign(u, out=gate)
    density.copy_(a).mul_(gate)
    gate.mul_(0.5).add_(0.5).sub_(density)
    density.copy_(b).mul_(INV_SQRT_2PI)


def _logistic_block(c1: float, c3: float) -> Block:
    def block(u: Tensor, gate: Tensor, density: Tensor, a: Tensor, b: Tensor, c: Tensor) -> None:
        a.copy_(u)
        torch.mul(a, a, out=b)
        torch.mul(b, c3, out=c).add_(c1).mul_(a).sigmoid_()
        b.mul_(3 * c3).add_(c1)
        torch.ops.aten.sigmoid_backward.grad_input(b, c, grad_input=b)  # b * s * (1 - s), in float64: float32 loses 1 - s
        gate.copy_(c)
        density.copy_(b)

    return block


FORMS = {
    "gelu": Form(_gaussian, _gaussian_curvature, LIMIT, far=_gaussian_far, block=_gaussian_block, least=-12.9),
    "gelu_tanh": Form(
        _logistic(TANH_C1, TANH_C3),
        _logistic_curvature(TANH_C1, TANH_C3),
        LIMIT,
        block=_logistic_block(TANH_C1, TANH_C3),
        least=-10.0,
    ),
    "gelu_sigmoid": Form(_logistic(SIGMOID_SCALE, 0), _logistic_curvature(SIGMOID_SCALE, 0), 1e3),
    "silu": Form(_logistic(1, 0), _logistic_curvature(1, 0), 1e3),
    "lalu": Form(_laplace, _laplace_curvature, 1e3),
    "calu": Form(_cauchy, _cauchy_curvature, 1e150),
}


def gelu(x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """x Phi((x - mu) / sigma), the Gaussian error linear unit (paper, section 2).

    Exact: for mu 0 and sigma 1 value and derivative are within 4 units in the last place wherever they are normal numbers,
    in float32 and float64, and correctly rounded in nearly every case in float16 and bfloat16. As sigma tends to 0 it tends to
    ReLU shifted by mu. Raises `TypeError` for a tensor that is not of a floating dtype, `ConfigurationError` for mu beyond
    +-1e100 or sigma outside 1e-100 to 1e100.
    """
    return _apply("gelu", x, mu, sigma)


def gelu_tanh(x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """0.5 x (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))) with u = (x - mu) / sigma (paper, section 5); raises as `gelu` does.

    With this form every experiment of the paper was run. Within 4 units in the last place in float32; in float64 the
    rounding of the inner polynomial costs the far tail digits, some hundred units at -20, and all of them below -21.1.
    """
    return _apply("gelu_tanh", x, mu, sigma)


def gelu_sigmoid(x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """x sigmoid(1.702 u) with u = (x - mu) / sigma, the fast and coarse form of GELU (paper, section 5); raises as `gelu` does."""
    return _apply("gelu_sigmoid", x, mu, sigma)


def silu(x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """x sigmoid((x - mu) / sigma), a logistic gate (named in the paper, section 5; "swish"); raises as `gelu` does."""
    return _apply("silu", x, mu, sigma)


def lalu(x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """x F((x - mu) / sigma) with the standard Laplace distribution function F, for sparse inputs; raises as `gelu` does."""
    return _apply("lalu", x, mu, sigma)


def calu(x: Tensor, mu: float = 0.0, sigma: float = 1.0) -> Tensor:
    """x F((x - mu) / sigma) with the standard Cauchy distribution function F; raises as `gelu` does.

    Its tail is heavy: it tends to -sigma / pi at -inf.
    """
    return _apply("calu", x, mu, sigma)


def floating(x: Tensor, name: str) -> Tensor:
    """x itself if it is a tensor of a floating dtype. Raises `TypeError` otherwise."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} takes a tensor, not {type(x).__name__}; make one with torch.tensor(...)")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name} takes a tensor of a floating dtype, not {x.dtype}; convert it, for instance x.float()")
    return x


def number(value: float, name: str, *, positive: bool = False) -> float:
    """value as a float. Raises `TypeError` if it is no number, `ConfigurationError` if it is out of range: no larger than
    1e100, and with `positive` no smaller than 1e-100.
    """
    if not isinstance(value, int | float | Real) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not (1e-100 <= value <= 1e100 if positive else -1e100 <= value <= 1e100):
        raise ConfigurationError(f"{name} is {value}; it must be a number from {'1e-100' if positive else '-1e100'} to 1e100")
    return value


def value_and_slope(form: str, x: Tensor, mu: float, sigma: float, slope: bool = True) -> Parts:
    """x G(u) and its derivative G(u) + x G'(u) / sigma in x's dtype, u = (x - mu) / sigma; without `slope` an empty second."""
    rule, standard = FORMS[form], mu == 0 and sigma == 1
    plain = type(x) in (Tensor, torch.nn.Parameter) and x.device.type == "cpu" and not torch.compiler.is_compiling()
    if rule.block and standard and plain and x.dtype != torch.float64:
        return _blockwise(form, x, slope)
    return _at_once(form, x, mu, sigma, slope)


def _at_once(form: str, x: Tensor, mu: float, sigma: float, slope: bool) -> Parts:
    rule, standard = FORMS[form], mu == 0 and sigma == 1
    wide = x if x.device.type == "mps" else x.double()
    if standard:
        u = scaled = wide.clamp(-rule.limit, rule.limit)
    else:
        u = ((wide - mu) / sigma).clamp_(-rule.limit, rule.limit)
        scaled = u + mu / sigma  # x / sigma, within the limits
    gate, density = rule.gate(u, x.dtype == torch.float64)
    # beyond the limit the gate does not change any more, and -inf times 0 is no number
    value = wide.clamp(min=mu - rule.limit * sigma).mul_(gate)
    slopes = torch.addcmul(gate, scaled, density) if slope else x.new_empty(0, dtype=value.dtype)
    if rule.far and standard and x.dtype == torch.float64:
        value, far_slopes = rule.far(u, value, slopes if slope else value)
        slopes = far_slopes if slope else slopes
    return value.to(x.dtype), slopes.to(x.dtype)


BLOCK = 1 << 17
"""So many elements at a time are computed on the CPU, in the same few buffers: fresh memory costs more than the arithmetic."""


_kept = threading.local()


def _buffers() -> tuple[Tensor, Tensor]:
    """Scratch of this thread, kept between calls: 5 MB, whose pages the system would otherwise hand out and clear each time."""
    if not hasattr(_kept, "buffers"):
        with torch.inference_mode(False):
            single = torch.empty(4, BLOCK, dtype=torch.float32, device="cpu")
            _kept.buffers = single, torch.empty(3, BLOCK, dtype=torch.float64, device="cpu")
    found: tuple[Tensor, Tensor] = _kept.buffers
    return found


def _blockwise(form: str, x: Tensor, slope: bool) -> Parts:
    block, least = FORMS[form].block, FORMS[form].least
    assert block is not None
    value = torch.empty_like(x)  # dense, in x's own order of dimensions if that is dense
    source = x.detach() if x.stride() == value.stride() else value.copy_(x)
    slopes = torch.empty_like(value) if slope else x.new_empty(0)
    single, double = _buffers()
    size = single.shape[1]
    flat = [tensor.as_strided((tensor.numel(),), (1,)) for tensor in (source, value, slopes)]
    for start in range(0, x.numel(), size):
        part, part_value, part_slope = (tensor[start : start + size] for tensor in flat)
        u, gate, density, own = single[:, : len(part)]
        # a few inputs far out, -inf among them, are computed apart: there the gate is subnormal in float32
        far = None if part.amin() >= least else (part < least).nonzero().squeeze(1)
        mended = None if far is None else _at_once(form, part[far], 0.0, 1.0, slope)
        read = part if x.dtype == torch.float32 else own.copy_(part)
        block(torch.clamp(read, -LIMIT, LIMIT, out=u), gate, density, *double[:, : len(part)])
        if x.dtype == torch.float32:
            torch.mul(read, gate, out=part_value)
            if slope:
                torch.mul(density, u, out=part_slope).add_(gate)
        else:
            part_value.copy_(own.mul_(gate))
            if slope:
                part_slope.copy_(density.mul_(u).add_(gate))
        if mended is not None:
            part_value[far] = mended[0]
            if slope:
                part_slope[far] = mended[1]
    return value, slopes


class _Gate(torch.autograd.Function):
    """x G(u) whose backward pass is one product: forward keeps the derivative beside x."""

    @staticmethod
    def forward(x: Tensor, form: str, mu: float, sigma: float, slope: bool) -> Parts:
        return value_and_slope(form, x, mu, sigma, slope)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, *rest: Any) -> tuple[Parts, tuple[int | None, int | None]]:
        # outside of vmap more may be wanted than the batched tensor knew
        value, slope = _GateBothWays.apply(x, *rest[:-1], rest[-1] or _wants_slope(x))
        return (value, slope), (in_dims[0], in_dims[0] if slope.shape == value.shape else None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Parts) -> None:
        x, ctx.form, ctx.mu, ctx.sigma, _ = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])
        ctx.save_for_forward(x, output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, slope = ctx.saved_tensors
        return _slope(gradients[0], x, slope, ctx.form, ctx.mu, ctx.sigma), None, None, None, None


class _Slope(torch.autograd.Function):
    """A gradient times the derivative, differentiable in both."""

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, x: Tensor, slope: Tensor, form: str, mu: float, sigma: float) -> Tensor:
        return gradient * slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        gradient, x, slope, ctx.form, ctx.mu, ctx.sigma = inputs
        ctx.save_for_backward(gradient, x, slope)
        ctx.save_for_forward(gradient, x, slope)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient, x, slope = ctx.saved_tensors
        first = _slope(gradients[0], x, slope, ctx.form, ctx.mu, ctx.sigma)
        second = gradients[0] * gradient * _second(ctx.form, x, ctx.mu, ctx.sigma)
        return first, second, None, None, None, None


class _GateBothWays(_Gate):
    """With forward-mode derivatives, which `torch.compile` refuses to trace."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> tuple[Tensor | None, ...]:
        x, slope = ctx.saved_tensors
        return _slope(tangents[0], x, slope, ctx.form, ctx.mu, ctx.sigma), None


class _SlopeBothWays(_Slope):
    """With forward-mode derivatives, which `torch.compile` refuses to trace."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        gradient, x, slope = ctx.saved_tensors
        first = _slope(tangents[0], x, slope, ctx.form, ctx.mu, ctx.sigma)
        return first + gradient * tangents[1] * _second(ctx.form, x, ctx.mu, ctx.sigma)  # type: ignore[no-any-return]


def _slope(*arguments: Any) -> Tensor:
    function = _Slope if torch.compiler.is_compiling() else _SlopeBothWays
    return function.apply(*arguments)  # type: ignore[no-any-return]


def _second(form: str, x: Tensor, mu: float, sigma: float) -> Tensor:
    """The second derivative, (2 G'(u) + (x / sigma) G''(u)) / sigma, of differentiable operations."""
    wide = x if x.device.type == "mps" else x.double()
    u = ((wide - mu) / sigma).clamp(-FORMS[form].limit, FORMS[form].limit)
    density, curvature = FORMS[form].curvature(u)
    return ((2 * density + (u + mu / sigma) * curvature) / sigma).to(x.dtype)


def _apply(form: str, x: Tensor, mu: float, sigma: float) -> Tensor:
    floating(x, form)
    mu, sigma = number(mu, "mu"), number(sigma, "sigma", positive=True)
    if torch.compiler.is_compiling():
        if torch.is_grad_enabled() and x.requires_grad:
            return _Gate.apply(x, form, mu, sigma, True)[0]  # type: ignore[no-any-return]
        return value_and_slope(form, x, mu, sigma, slope=False)[0]
    return _GateBothWays.apply(x, form, mu, sigma, _wants_slope(x))[0]  # type: ignore[no-any-return]


def _wants_slope(x: Tensor) -> bool:
    if torch.is_grad_enabled() and x.requires_grad:
        return True
    try:
        return forward_ad.unpack_dual(x).tangent is not None
    except RuntimeError:  # inside vmap, whose rule asks again
        return False
