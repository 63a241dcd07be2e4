"""The numbers: values and derivatives of every activation against 100-digit arithmetic, and what is known of the gates."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from exact import DIGITS, GATES, KINKS, error, exact, normal
from gelu_study import activations

HALF = [torch.bfloat16, torch.float16]
DTYPES = [torch.float64, torch.float32, *HALF]
PARAMETERS = [{}, {"mu": 0.5, "sigma": 0.25}, {"mu": -1.0, "sigma": 3.0}]
RIVALS = [
    *((name, {}) for name in activations.names() if name not in GATES),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("elu", {"alpha": 0.5}),
    ("celu", {"alpha": 0.25}),
    ("softplus", {"beta": 3.0}),
]

examples = settings(deadline=None, max_examples=60, derandomize=True)
moderate = st.floats(-60, 60)
scales = st.floats(1e-3, 1e3)


def both(name: str, x: torch.Tensor, **parameters: float) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    value = activations.get(name)(x, **parameters)
    return value.detach(), torch.autograd.grad(value, x, torch.ones_like(value))[0]


def at(name: str, x: float, dtype: torch.dtype = torch.float64, **parameters: float) -> tuple[float, float]:
    value, slope = both(name, torch.tensor(x, dtype=dtype), **parameters)
    return float(value), float(slope)


def sample(dtype: torch.dtype, n: int = 250) -> torch.Tensor:
    """Where the gates live, their negative tails, and all magnitudes down to the subnormal numbers."""
    draw = torch.Generator().manual_seed(20160627)
    tiny = 10 ** (torch.rand(n // 3, generator=draw, dtype=torch.float64) * -45)
    parts = [
        torch.rand(n, generator=draw, dtype=torch.float64) * 46 - 40,
        torch.randn(n, generator=draw, dtype=torch.float64) * 2.5,
        tiny * (torch.randint(0, 2, tiny.shape, generator=draw) * 2 - 1),
        torch.tensor([-1e30, -1e4, -300.0, -0.75179, 0.0, 2.699, 300.0, 1e30], dtype=torch.float64),
    ]
    x = torch.cat(parts).to(dtype)
    return x[x.isfinite()]


def greatest_errors(name: str, x: torch.Tensor, parameters: dict[str, float], conditioned: bool) -> tuple[float, float]:
    """The greatest errors of value and slope in ulp, where these are normal; `conditioned`: per 1 + the gate's condition, where
    the gate is normal too."""
    worst_value = worst_slope = 0.0
    x = torch.cat([x[x < -9], x[x >= -9]])  # in two calls: a far tail may be computed in another way, and its company with it
    value, slope = map(torch.cat, zip(*(both(name, part, **parameters) for part in (x[x < -9], x[x >= -9])), strict=True))
    for point, v, s in zip(x.tolist(), value.tolist(), slope.tolist(), strict=True):
        true = exact(name, point, **parameters)
        if conditioned and not normal(true.gate, x.dtype):
            continue
        allowance = 1 + float(true.condition) if conditioned else 1.0
        if normal(true.value, x.dtype):
            worst_value = max(worst_value, error(v, true.value, true.value, x.dtype) / allowance)
        if normal(true.size, x.dtype):
            worst_slope = max(worst_slope, error(s, true.slope, true.size, x.dtype) / allowance)
    return worst_value, worst_slope


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_gates_are_exact_in_the_short_dtypes(name, dtype, parameters):
    value, slope = greatest_errors(name, sample(dtype), parameters, conditioned=False)
    limit = 0.51 if dtype in HALF else 4 if name in ("gelu", "gelu_tanh") else 1
    assert value < limit
    assert slope < limit


@pytest.mark.parametrize("name", ["gelu", "lalu", "calu", "silu"])
def test_standard_gates_are_exact_in_float64(name):
    value, slope = greatest_errors(name, sample(torch.float64), {}, conditioned=False)
    assert value < 4
    assert slope < 4


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("name", GATES)
def test_gates_in_float64_lose_no_more_than_the_rounding_of_their_argument(name, parameters):
    value, slope = greatest_errors(name, sample(torch.float64), parameters, conditioned=True)
    assert value < 4
    assert slope < 4


@pytest.mark.parametrize(("name", "low", "high", "dtype"), [
    ("gelu", -13.3, -12.9, torch.float32),
    ("gelu_tanh", -10.3, -9.9, torch.float32),
    ("gelu", -37.8, -37.4, torch.float64),
])  # fmt: skip
def test_the_last_normal_numbers_of_the_tail(name, low, high, dtype):
    """There gate and density are already subnormal while their products with x are not."""
    value, slope = greatest_errors(name, torch.linspace(low, high, 400, dtype=dtype), {}, conditioned=False)
    assert value < 4
    assert slope < 4


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_every_magnitude_of_float32(name):
    """Values of 300,000 random bit patterns against the float64 ones, which the other tests hold against exact arithmetic."""
    draw = torch.Generator().manual_seed(5)
    x = torch.randint(-(2**31), 2**31, (300_000,), generator=draw).to(torch.int32).view(torch.float32)
    x = torch.cat([x[x.isfinite()], torch.randn(100_000, generator=draw) * 4])
    x = torch.cat([x[x < -9], x[x >= -9]])  # in two calls: a far tail may be computed in another way, and its company with it
    value, slope = map(torch.cat, zip(*(both(name, part) for part in (x[x < -9], x[x >= -9])), strict=True))
    wide_value, wide_slope = both(name, x.double())
    normal_value = wide_value.abs() >= torch.finfo(torch.float32).smallest_normal
    assert normal_value.sum() > 200_000
    relative = ((value - wide_value) / wide_value)[normal_value].abs().max()
    assert relative < 4 * 2**-24
    # float64 knows the sizes G and |x| G'; of the slope itself the last digits cancel
    size = (wide_value / x.double()).abs().nan_to_num(0.5)
    size = size + (wide_slope - size).abs()
    assert ((slope - wide_slope).abs() <= 4 * 2**-23 * size + 2 * 2**-149).all()


@pytest.mark.parametrize(("name", "parameters"), RIVALS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rivals(name, parameters, dtype):
    x = sample(dtype)
    if name == "hard_swish":
        x = x[(x.abs() < 1e4) & (x.abs() != 3)]
    if name == "squared_relu":
        x = x[x.abs() < torch.finfo(dtype).max ** 0.5]
    if name == "celu" and dtype is torch.float16:
        x = x[x.abs() < 1e3]
    value, slope = both(name, x, **parameters)
    # exp(x) is known to half a unit of the last place of 1; mish's tail is a product of such
    unit = torch.finfo(torch.float32 if dtype in HALF else dtype).eps * 8
    for point, v, s in zip(x.tolist(), value.tolist(), slope.tolist(), strict=True):
        true = exact(name, point, **parameters)
        for computed, expected in ((v, true.value), (s, true.slope)):
            rounding = 0.51 * torch.finfo(dtype).eps * max(abs(float(expected)), torch.finfo(dtype).smallest_normal) if dtype in HALF else 0
            assert abs(computed - float(expected)) <= unit * max(abs(float(expected)), min(abs(point), 1.0)) + rounding + 1e-44, (point, computed, float(expected))


def test_tanh_form_is_the_papers_formula():
    x = torch.tensor([-30.0, -12.0, -5.5, -2.0, -0.1, 0.3, 1.0, 2.699, 12.0], dtype=torch.float64)
    with mpmath.workdps(900):  # 1 + tanh cancels hundreds of digits
        points = [mpmath.mpf(point) for point in x.tolist()]
        root = mpmath.sqrt(2 / mpmath.pi)
        expected = [float(p / 2 * (1 + mpmath.tanh(root * (p + mpmath.mpf("0.044715") * p**3)))) for p in points]
    torch.testing.assert_close(activations.gelu_tanh(x), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-300)


def test_exact_gelu_keeps_the_tail_that_pytorch_loses():
    x = torch.linspace(-12, -4, 300)
    expected = torch.tensor([float(exact("gelu", point).value) for point in x.tolist()], dtype=torch.float64)
    ours, pytorchs = (((f(x) - expected) / expected).abs() for f in (activations.gelu, torch.nn.functional.gelu))
    assert ours.max() < 2**-22
    assert pytorchs.max() == 1
    assert pytorchs[0] == 1


def test_seed_example():
    x = torch.tensor([-2.0, 0.0, 2.0])
    torch.testing.assert_close(activations.gelu_tanh(x), torch.tensor([-0.045, 0.0, 1.955]), atol=5e-4, rtol=0)
    torch.testing.assert_close(activations.gelu(x), torch.tensor([-0.045, 0.0, 1.955]), atol=1e-3, rtol=0)


def test_gates_at_the_ends():
    for name in GATES:
        for dtype in DTYPES:
            highest = torch.finfo(dtype).max
            value, slope = both(name, torch.tensor([math.inf, highest, -math.inf, -highest], dtype=dtype))
            assert value[:2].tolist() == [math.inf, highest]
            torch.testing.assert_close(slope, torch.tensor([1.0, 1, 0, 0], dtype=dtype), rtol=0, atol=1e-150)
            end = -1 / math.pi if name == "calu" else 0.0
            torch.testing.assert_close(value[2:].double(), torch.tensor([end, end], dtype=torch.float64), rtol=torch.finfo(dtype).eps, atol=0)
    value, slope = both("calu", torch.tensor([-math.inf, -1e300], dtype=torch.float64), mu=2.0, sigma=3.0)
    torch.testing.assert_close(value, torch.tensor([-3 / math.pi] * 2, dtype=torch.float64))


@pytest.mark.parametrize("name", activations.names())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_signed_zeros_and_subnormal_numbers(name, dtype):
    zeros, _ = both(name, torch.tensor([0.0, -0.0], dtype=dtype))
    if name == "softplus":
        assert torch.allclose(zeros.double(), torch.full((2,), math.log(2), dtype=torch.float64), rtol=torch.finfo(dtype).eps)
        return
    assert zeros.tolist() == [0, 0]
    if name in GATES:
        assert zeros.signbit().tolist() == [False, True]
    smallest = torch.finfo(dtype).smallest_normal
    x = torch.tensor([smallest / 4, -smallest / 4, smallest / 8], dtype=dtype)
    assert (x != 0).all()
    value, slope = both(name, x)
    # within the spacing of the subnormal numbers, of which float16 has few
    expected = [exact(name, point) for point in x.tolist()]
    spacing = smallest * torch.finfo(dtype).eps
    for v, s, true in zip(value.tolist(), slope.tolist(), expected, strict=True):
        assert abs(v - float(true.value)) <= spacing
        assert abs(s - float(true.slope)) <= torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", activations.names())
def test_no_nan_for_any_finite_input(name, dtype):
    if dtype in HALF:
        x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    else:
        exponents = torch.linspace(math.log2(torch.finfo(dtype).smallest_normal), math.log2(torch.finfo(dtype).max) - 1e-6, 4000, dtype=torch.float64)
        x = (2**exponents).to(dtype)
        x = torch.cat([x, -x, torch.tensor([0.0, -0.0, torch.finfo(dtype).max, torch.finfo(dtype).min], dtype=dtype)])
    x = x[x.isfinite()]
    value, slope = both(name, x)
    assert not value.isnan().any()
    assert not slope.isnan().any()
    if name not in ("squared_relu", "selu", "hard_swish"):  # which leave the range
        assert value.isfinite().all()
        assert slope.isfinite().all()


@pytest.mark.parametrize("name", activations.names())
def test_nan_stays_nan(name):
    for dtype in DTYPES:
        value, _ = both(name, torch.tensor([math.nan, 1.0, math.nan], dtype=dtype))
        assert value.isnan().tolist() == [True, False, True]
    if name in GATES:
        _, slope = both(name, torch.tensor([math.nan, 1.0, math.nan]))
        assert slope.isnan().tolist() == [True, False, True]


def test_minimum_of_gelu():
    low, high = -1.0, -0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at("gelu", middle)[1] < 0 else (low, middle)
    with mpmath.workdps(30):
        expected = mpmath.findroot(lambda p: mpmath.ncdf(p) + p * mpmath.npdf(p), -0.75)
    assert low == pytest.approx(float(expected), abs=1e-15)
    assert low == pytest.approx(-0.751790, abs=2e-6)
    assert at("gelu", low)[0] == pytest.approx(-0.169971, abs=1e-6)


@examples
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_gelu_is_nowhere_below_its_minimum(x):
    assert -0.169972 < at("gelu", x)[0] <= max(x, 0.0)


@examples
@given(moderate)
def test_derivative_of_gelu(x):
    expected = stats.norm.cdf(x) + x * stats.norm.pdf(x)
    assert at("gelu", x)[1] == pytest.approx(expected, rel=1e-13, abs=1e-15)


@examples
@given(moderate, st.floats(1e-100, 10))
def test_gelu_tends_to_relu_as_sigma_tends_to_0(x, sigma):
    # the difference is greatest, 0.169971 sigma, at sigma times the place of GELU's minimum, and at its mirror image
    assert abs(at("gelu", x, sigma=sigma)[0] - max(x, 0.0)) <= 0.169972 * sigma + 1e-14 * abs(x)
    assert max(0.0, -0.75179 * sigma) - at("gelu", -0.75179 * sigma, sigma=sigma)[0] == pytest.approx(0.169971 * sigma, rel=1e-5)


@examples
@given(st.sampled_from(GATES), st.floats(-3, 3), st.floats(1e-3, 5))
def test_a_narrow_gate_is_a_step_at_mu(name, mu, distance):
    sigma = 1e-12 if name == "calu" else 1e-6
    above, below = at(name, mu + distance, mu=mu, sigma=sigma), at(name, mu - distance, mu=mu, sigma=sigma)
    assert above == pytest.approx((mu + distance, 1.0), abs=1e-7)
    assert below == pytest.approx((0.0, 0.0), abs=1e-7)


@examples
@given(st.sampled_from(GATES), moderate, scales)
def test_symmetry(name, x, sigma):
    """G(u) + G(-u) = 1, so f(x) - f(-x) = x and f'(x) + f'(-x) = 1 + ... of an even density: 1 exactly."""
    (value, slope), (mirrored, mirrored_slope) = at(name, x, sigma=sigma), at(name, -x, sigma=sigma)
    assert value - mirrored == pytest.approx(x, rel=1e-14, abs=1e-300)
    assert slope + mirrored_slope == pytest.approx(1, abs=1e-13)


@examples
@given(st.sampled_from(GATES), moderate, scales)
def test_scaling(name, x, sigma):
    """f(x; 0, sigma) = sigma f(x / sigma)."""
    value, slope = at(name, x, sigma=sigma)
    standard, standard_slope = at(name, x / sigma)
    assert value == pytest.approx(sigma * standard, rel=1e-10, abs=1e-200)
    assert slope == pytest.approx(standard_slope, rel=1e-10, abs=1e-13)


@examples
@given(st.sampled_from(GATES), moderate, st.floats(-5, 5), scales)
def test_a_gate_lies_between_0_and_the_input(name, x, mu, sigma):
    value, _ = at(name, x, mu=mu, sigma=sigma)
    assert min(x, 0.0) <= value <= max(x, 0.0)


@examples
@given(st.sampled_from([*activations.names()]), st.floats(0, 50), st.floats(0, 50))
def test_increasing_for_positive_input(name, x, y):
    low, high = sorted((x, y))
    assert at(name, low)[0] <= at(name, high)[0]


@examples
@given(st.sampled_from(["relu", "leaky_relu", "squared_relu", "elu", "selu", "celu", "softplus", "identity"]), moderate, moderate)
def test_increasing_everywhere(name, x, y):
    low, high = sorted((x, y))
    assert at(name, low)[0] <= at(name, high)[0]
    assert at(name, x)[1] >= 0


@examples
@given(st.floats(-37, -0.752), st.floats(-37, -0.752))
def test_gelu_falls_before_its_minimum(x, y):
    low, high = sorted((x, y))
    assert at("gelu", low)[0] >= at("gelu", high)[0]
    assert at("gelu", x)[1] < 0


def differentiated(name: str, x: float, order: int, **parameters: float) -> float:
    """The derivative of that order from central differences, whose error is of the 40th digit."""
    with mpmath.workdps(DIGITS):
        step = mpmath.mpf(10) ** -20
        weights = {1: [(-1, -0.5), (1, 0.5)], 2: [(-1, 1), (0, -2), (1, 1)], 3: [(-2, -0.5), (-1, 1), (1, -1), (2, 0.5)]}[order]
        total = mpmath.fsum(weight * exact(name, mpmath.mpf(x) + i * step, **parameters).value for i, weight in weights)
        return float(total / step**order)


@examples
@given(st.sampled_from(activations.names()), st.floats(-8, 8))
def test_slope_is_the_difference_quotient(name, x):
    assume(all(abs(x - kink) > 1e-15 for kink in KINKS.get(name, [])))
    assert at(name, x)[1] == pytest.approx(differentiated(name, x, 1), rel=1e-12, abs=1e-12)


def test_second_derivative_of_gelu():
    """(2 - x^2) phi(x), and -x (4 - x^2) phi(x) after it."""
    x = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(activations.gelu(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    density = torch.from_numpy(stats.norm.pdf(x.detach().numpy()))
    point = x.detach()
    torch.testing.assert_close(second.detach(), (2 - point**2) * density, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(third, point * (point**2 - 4) * density, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("parameters", PARAMETERS[:2], ids=str)
@pytest.mark.parametrize("name", GATES)
def test_higher_derivatives(name, parameters):
    points = [-4.0, -1.3, -0.2, 0.4, 0.9, 2.5]
    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    derivative = activations.get(name)(x, **parameters)
    for order in (1, 2, 3):
        (derivative,) = torch.autograd.grad(derivative.sum(), x, create_graph=True)
        expected = [differentiated(name, point, order, **parameters) for point in points]
        torch.testing.assert_close(derivative.detach(), torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", GATES)
def test_second_derivative_vanishes_at_the_ends(name):
    x = torch.tensor([-math.inf, -1e300, 1e300, math.inf], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(activations.get(name)(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, torch.zeros_like(second), rtol=0, atol=1e-150)
