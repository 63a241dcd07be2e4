"""The registry, the module, and the in-place kernels of the training engine."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exact import GATES, exact
from gelu_study import activations

NAMES = activations.names()

every_name = pytest.mark.parametrize("name", NAMES)


def test_registry():
    assert NAMES[:4] == ["gelu", "gelu_tanh", "gelu_sigmoid", "relu"]
    for name in NAMES:
        assert activations.get(name).__name__ == name
        assert activations.get(name).__doc__
    titles = [activations.title(name) for name in NAMES]
    assert len(set(titles)) == len(NAMES)
    assert titles[:4] == ["GELU", "GELU (tanh)", "GELU (sigmoid)", "ReLU"]
    activations.names().clear()
    assert activations.names() == NAMES


@pytest.mark.parametrize("bad", ["swish", "GELU", "", None, 3, ["gelu"], {}])
def test_unknown_name_lists_the_known(bad):
    for use in (activations.get, activations.title, activations.Activation):
        with pytest.raises(ValueError, match=f"unknown activation .*{', '.join(NAMES)}"):
            use(bad)


def test_unknown_kernel_lists_the_known():
    with pytest.raises(ValueError, match=f"unknown activation 'swish'.*{', '.join(NAMES)}"):
        activations.value_and_slope_("swish", torch.ones(1), torch.ones(1), torch.ones(1))


def test_module():
    module = activations.Activation("gelu", mu=0, sigma=0.5)
    assert repr(module) == "Activation('gelu', mu=0, sigma=0.5)"
    assert repr(activations.Activation("relu")) == "Activation('relu')"
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    assert torch.equal(module(x), activations.gelu(x, 0, 0.5))
    assert not torch.equal(module(x), activations.gelu(x))
    assert list(module.parameters()) == [] and module.state_dict() == {}
    assert torch.equal(activations.Activation("elu", alpha=0.3)(x), activations.elu(x, 0.3))
    assert str(torch.nn.Sequential(module)).count("sigma=0.5") == 1


def test_module_refuses_parameters_that_the_function_lacks():
    with pytest.raises(ValueError, match="gelu has no parameter 'alpha'; it has mu, sigma"):
        activations.Activation("gelu", alpha=1.0)
    with pytest.raises(ValueError, match="relu has no parameter 'sigma'; it has none"):
        activations.Activation("relu", sigma=1.0)
    with pytest.raises(ValueError, match="gelu has no parameter 'x'"):
        activations.Activation("gelu", x=1.0)


def kernel(name: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, slope = torch.full_like(x, 99), torch.full_like(x, 99)
    activations.value_and_slope_(name, x, value, slope)
    return value, slope


@every_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_kernels_against_functions_and_exact_arithmetic(name, dtype):
    draw = torch.Generator().manual_seed(8)
    special = torch.tensor([-300.0, -20.0, -5.5, -1e-3, 1e-3, 0.0, 2.5, 20.0, 300.0])
    x = torch.cat([torch.randn(2000, generator=draw) * 3, special]).to(dtype)
    before = x.clone()
    value, slope = kernel(name, x)
    assert torch.equal(x, before)
    tracked = x.clone().requires_grad_()
    function = activations.get(name)(tracked)
    (derivative,) = torch.autograd.grad(function, tracked, torch.ones_like(x))
    # within a few units of the last place of 1; the tanh form's slope has the condition x^4
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(value, function.detach(), rtol=8 * unit, atol=4 * unit)
    torch.testing.assert_close(slope, derivative, rtol=24 * unit, atol=12 * unit)
    for i in range(1980, len(x)):
        true = exact(name, float(x[i]))
        if name in ("relu", "leaky_relu", "selu") and x[i] == 0:
            continue
        assert float(value[i]) == pytest.approx(float(true.value), rel=8 * unit, abs=4 * unit)
        assert float(slope[i]) == pytest.approx(float(true.slope), rel=24 * unit, abs=12 * unit)


@every_name
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_kernels_have_no_nan_for_any_finite_input(name, dtype):
    info = torch.finfo(dtype)
    x = 2 ** torch.linspace(math.log2(info.smallest_normal) - 10, math.log2(info.max) - 1e-6, 20_000, dtype=torch.float64)
    x = torch.cat([x, torch.tensor([3e38, info.max, 0.0], dtype=torch.float64)]).to(dtype)
    x = torch.cat([x, -x])
    value, slope = kernel(name, x)
    assert not value.isnan().any()
    assert not slope.isnan().any()
    if name in GATES:
        positive, far = x > 0, x.abs() > 1e4
        end = -1 / math.pi if name == "calu" else 0.0  # at -inf; to the right x + end
        torch.testing.assert_close(value[positive & far], x[positive & far] + end)
        assert (slope[positive & far] - 1).abs().max() < 1e-7
        assert (value[~positive & far] - end).abs().max() <= 1e-7
        assert slope[~positive & far].abs().max() <= 1e-7


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.sampled_from(NAMES), st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_kernels_of_any_float32(name, x):
    (value,), (slope,) = kernel(name, torch.tensor([x]))
    assert not value.isnan()
    assert not slope.isnan()
    if name not in ("squared_relu", "hard_swish", "selu"):
        assert float(value) == pytest.approx(float(exact(name, x).value), rel=2e-6, abs=1e-6)
        assert math.isfinite(slope)


@every_name
def test_kernels_carry_nan(name):
    value, slope = kernel(name, torch.tensor([math.nan, 1.0]))
    assert value[0].isnan() and value[1].isfinite() and slope[1].isfinite()
    if name in GATES:
        assert slope[0].isnan()


@every_name
def test_kernels_in_every_mode_of_autograd(name):
    x = torch.tensor([-1.5, 0.5, 2.0])
    expected = kernel(name, x)
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            made = x.clone()
            for given_x in (x, made):
                value, slope = kernel(name, given_x)
                assert torch.equal(value, expected[0])
                assert torch.equal(slope, expected[1])
    tracked = x.clone().requires_grad_()
    value, slope = torch.empty(3), torch.empty(3)
    activations.value_and_slope_(name, tracked, value, slope)
    assert not value.requires_grad and not slope.requires_grad
    assert torch.equal(value, expected[0]) and torch.equal(slope, expected[1])


@every_name
def test_kernels_write_where_they_are_told(name):
    """Strided views and stacked shapes, as the engine has them; nothing beside them is touched."""
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(9))
    expected = kernel(name, x.contiguous())
    wide_value, wide_slope = torch.full((3, 4, 12), 7.0), torch.full((4, 3, 6), 7.0)
    activations.value_and_slope_(name, x, wide_value[..., ::2], wide_slope.transpose(0, 1))
    torch.testing.assert_close(wide_value[..., ::2], expected[0])
    torch.testing.assert_close(wide_slope.transpose(0, 1), expected[1])
    assert (wide_value[..., 1::2] == 7).all()
    empty = torch.empty(0, 3)
    assert kernel(name, empty)[0].shape == (0, 3)
