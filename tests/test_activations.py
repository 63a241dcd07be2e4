"""Activations against 50-digit arithmetic and against autograd."""

from __future__ import annotations

import mpmath
import pytest
import torch

from gelu_study import activations

POINTS = [-30.0, -12.0, -8.0, -5.5, -4.0, -2.0, -0.751790, -0.1, -1e-4, 0.0, 1e-6, 0.3, 1.0, 2.699, 5.0, 12.0, 40.0]


def tanh_form(x: mpmath.mpf) -> mpmath.mpf:
    return x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)))


REFERENCES = {
    "gelu": lambda x: x * mpmath.ncdf(x),
    "gelu_tanh": tanh_form,
    "gelu_sigmoid": lambda x: x / (1 + mpmath.exp(-mpmath.mpf("1.702") * x)),
    "relu": lambda x: max(x, mpmath.mpf(0)),
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "identity": lambda x: x,
}


def test_every_name_has_a_reference():
    assert {"gelu", "gelu_tanh", "gelu_sigmoid", "relu", "elu", "silu", "identity"} <= set(activations.names())
    assert set(activations.names()) == set(REFERENCES)


@pytest.mark.parametrize("name", list(REFERENCES))
def test_values_against_mpmath(name):
    x = torch.tensor(POINTS, dtype=torch.float64)
    with mpmath.workdps(900):  # 1 + tanh cancels hundreds of digits
        expected = torch.tensor([float(REFERENCES[name](mpmath.mpf(point))) for point in POINTS], dtype=torch.float64)
    # far out the exponent itself, some hundreds, carries the rounding of x^3
    torch.testing.assert_close(activations.get(name)(x), expected, rtol=1e-12, atol=1e-300)


def test_exact_gelu_keeps_its_tail_in_float32():
    x = torch.linspace(-12, 0, 500)
    expected = torch.tensor([float(mpmath.mpf(float(v)) * mpmath.ncdf(mpmath.mpf(float(v)))) for v in x], dtype=torch.float64)
    error = (activations.gelu(x).double() - expected).abs() / expected.abs().clamp_min(1e-45)
    assert error.max() < 1e-5
    assert ((torch.nn.functional.gelu(x).double() - expected).abs() / expected.abs().clamp_min(1e-45)).max() > 0.9


@pytest.mark.parametrize("name", list(REFERENCES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernel_against_function_and_autograd(name, dtype):
    x = torch.cat([torch.randn(2000, dtype=dtype) * 3, torch.tensor([-20.0, -1e-3, 1e-3, 20.0], dtype=dtype)])
    value, slope = torch.empty_like(x), torch.empty_like(x)
    before = x.clone()
    activations.value_and_slope_(name, x, value, slope)
    assert torch.equal(x, before)
    tracked = x.clone().requires_grad_()
    function = activations.get(name)(tracked)
    (derivative,) = torch.autograd.grad(function.sum(), tracked)
    atol = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(value, function.detach(), rtol=4e-6 if dtype is torch.float32 else 1e-13, atol=atol)
    torch.testing.assert_close(slope, derivative, rtol=4e-6 if dtype is torch.float32 else 1e-13, atol=2 * atol)


def test_kernels_carry_nan():
    for name in activations.names():
        x = torch.tensor([float("nan"), 1.0])
        value, slope = torch.empty_like(x), torch.empty_like(x)
        activations.value_and_slope_(name, x, value, slope)
        assert value[0].isnan() and value[1].isfinite()


def test_seed_example():
    x = torch.tensor([-2.0, 0.0, 2.0])
    torch.testing.assert_close(activations.gelu_tanh(x), torch.tensor([-0.045, 0.0, 1.955]), atol=5e-4, rtol=0)


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match=f"unknown activation 'swish'.*{', '.join(activations.names())}"):
        activations.get("swish")
    with pytest.raises(ValueError, match="unknown activation"):
        activations.get(["gelu"])  # type: ignore[arg-type]
