"""Activations as PyTorch functions: layouts, modes of autograd, transforms, compilation, and what they refuse."""

from __future__ import annotations

import concurrent.futures
import copy
import io
import itertools
import math
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from conftest import lacking
from exact import GATES, exact
from gelu_study import activations
from gelu_study.activations import gates

NAMES = activations.names()
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

every_name = pytest.mark.parametrize("name", NAMES)
# PyTorch's own decompositions for forward mode are scripted
forward_mode = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")


def points(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 3) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2.5).to(dtype)


def slope_of(function, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    y = function(x)
    return torch.autograd.grad(y, x, torch.ones_like(y))[0]


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    """Equal up to two units in the last place of 1: vector and scalar code of PyTorch differ in the last digit."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    torch.testing.assert_close(a, b, rtol=2 * torch.finfo(a.dtype).eps, atol=2 * torch.finfo(a.dtype).eps)


def layouts(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    x = points(4, 6, 5, 3, dtype=dtype)
    return {
        "empty": x[:0],
        "empty in the middle": x[:, :0],
        "zero-dimensional": x[0, 0, 0, 0],
        "one element": x[:1, :1, :1, :1],
        "transposed": x.transpose(0, 2),
        "permuted": x.permute(3, 1, 0, 2),
        "strided": x[:, ::2, 1:, ::3],
        "storage offset": x.flatten()[7:],
        "expanded": x[:1].expand(4, 6, 5, 3),
        "expanded from one": x[0, 0, 0, 0].expand(3, 4),
        "channels last": x.contiguous(memory_format=torch.channels_last),
        "channels last, strided": x.contiguous(memory_format=torch.channels_last)[:, :, ::2],
        "overlapping": x.flatten().as_strided((10, 5), (2, 1)),
        "negative bit": torch.complex(x.float(), x.float()).conj().imag.to(dtype) if dtype is not torch.float32 else torch.complex(x, x).conj().imag,
    }


@every_name
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(name, dtype):
    function = activations.get(name)
    for layout, x in layouts(dtype).items():
        before, version = x.clone(), x._version
        y, slope = function(x), slope_of(function, x)
        plain = torch.tensor(x.tolist(), dtype=dtype).reshape(x.shape)
        close(y, function(plain))
        close(slope, slope_of(function, plain))
        assert torch.equal(x, before), layout
        assert x._version == version, layout
        if name != "identity" and x.numel() > 1:
            assert y.stride() == torch.nn.functional.silu(x).stride(), layout
            assert y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr(), layout


@pytest.mark.parametrize("memory_format", [torch.channels_last, torch.channels_last_3d], ids=str)
@every_name
def test_channels_last_stays(name, memory_format):
    x = points(2, 3, 4, 5) if memory_format is torch.channels_last else points(2, 3, 4, 5, 2)
    for dtype in (torch.float32, torch.float64):
        given = x.to(dtype).contiguous(memory_format=memory_format).requires_grad_()
        y = activations.get(name)(given)
        (gradient,) = torch.autograd.grad(y, given, torch.ones_like(y))
        assert y.is_contiguous(memory_format=memory_format)
        assert gradient.is_contiguous(memory_format=memory_format)


@pytest.mark.parametrize("n", [0, 1, 2, 63, gates.BLOCK - 1, gates.BLOCK, gates.BLOCK + 1, 2 * gates.BLOCK, 2 * gates.BLOCK + 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_sizes_around_the_block(name, dtype, n):
    """Each element is computed, once, where it stands, whether far tails are about or not."""
    function = activations.get(name)
    x = torch.arange(n).remainder(1013).sub(500).div(50).to(dtype)
    period = torch.arange(1013).sub(500).div(50).to(dtype)
    close(function(x), function(period).repeat(n // 1013 + 1)[:n])
    close(slope_of(function, x), slope_of(function, period).repeat(n // 1013 + 1)[:n])
    if n > gates.BLOCK:
        x[[0, 5, n - 1]] = torch.tensor([-50.0, math.nan, -math.inf], dtype=dtype)
        y = function(x)
        assert y.isnan().nonzero().flatten().tolist() == [5]
        assert abs(y[0]) < 1e-15
        assert y[-1] == 0
        rest = torch.ones(n, dtype=torch.bool)
        rest[[0, 5, n - 1]] = False
        close(y[rest], function(x[rest]))


@every_name
def test_gradient_modes(name):
    function = activations.get(name)
    plain, tracked = points(5), points(5).requires_grad_()
    assert not function(plain).requires_grad
    assert function(tracked).requires_grad
    assert function(torch.nn.Parameter(plain.clone())).requires_grad
    with torch.no_grad():
        result = function(tracked)
        assert not result.requires_grad or name == "identity"
        close(result.detach(), function(plain))
    with torch.inference_mode():
        result = function(tracked)
        assert result.is_inference() or name == "identity"
        close(result.detach(), function(plain))
        close(function(points(5)), function(plain))
    with torch.no_grad(), torch.enable_grad():
        assert function(tracked).requires_grad


@pytest.mark.parametrize("name", GATES)
def test_the_slope_is_computed_only_where_it_is_wanted(name, monkeypatch):
    wanted = []
    original = gates.value_and_slope
    monkeypatch.setattr(gates, "value_and_slope", lambda form, x, mu, sigma, slope: (wanted.append(slope), original(form, x, mu, sigma, slope))[1])
    function, plain, tracked = activations.get(name), points(3), points(3).requires_grad_()
    function(plain)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            function(tracked)
    assert wanted == [False] * 3
    function(tracked)
    assert wanted[3:] == [True]


@every_name
def test_output_may_be_changed_in_place_and_the_input_not(name):
    x = points(6).requires_grad_()
    middle = x * 1
    y = activations.get(name)(middle)
    if name in GATES:
        y.add_(1)  # nothing of the result is kept
    close(torch.autograd.grad(y.sum(), x)[0], slope_of(activations.get(name), x))
    middle = x * 1
    y = activations.get(name)(middle)
    if name in GATES:
        middle.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@forward_mode
@every_name
def test_gradcheck(name):
    """Reverse and forward mode, each batched too, and their derivatives, against finite differences."""
    function = activations.get(name)
    x = torch.tensor([-3.7, -1.1, -0.4, 0.3, 1.6, 3.4, 4.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, x, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    if name != "identity":
        assert torch.autograd.gradgradcheck(function, x, check_batched_grad=True, check_fwd_over_rev=True)


@pytest.mark.parametrize("parameters", [{"mu": 0.7, "sigma": 0.5}, {"mu": -2, "sigma": 4}], ids=str)
@forward_mode
@pytest.mark.parametrize("name", GATES)
def test_gradcheck_with_parameters(name, parameters):
    x = torch.tensor([-1.7, 0.2, 0.9, 2.4], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: activations.get(name)(x, **parameters), x, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda x: activations.get(name)(x, **parameters), x, check_fwd_over_rev=True)


@forward_mode
@every_name
def test_third_derivatives(name):
    """In every order of reverse and forward mode whose two outermost are not both forward."""
    function, func = activations.get(name), torch.func
    x = torch.tensor([-2.3, -0.4, 0.9, 2.1], dtype=torch.float64)
    first = torch.tensor([float(exact(name, point).slope) for point in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(func.vmap(func.grad(function))(x), first, rtol=1e-13, atol=1e-14)
    third = func.vmap(func.grad(func.grad(func.grad(function))))(x)
    for outer, middle, inner in itertools.product((func.grad, func.jacfwd), repeat=3):
        if outer is func.grad or middle is func.grad:
            torch.testing.assert_close(func.vmap(outer(middle(inner(function))))(x), third, rtol=1e-13, atol=1e-13)


@forward_mode
@every_name
def test_transforms(name):
    function = activations.get(name)
    x = points(4, 3)
    value, slope = function(x), slope_of(function, x)

    def scalar(x: torch.Tensor) -> torch.Tensor:
        return function(x).sin().sum()

    chained = slope * value.cos()
    func = torch.func
    for dim in (0, 1, -1, -2):
        close(func.vmap(function, in_dims=dim, out_dims=dim)(x), value)
    close(func.vmap(func.vmap(function, in_dims=0), in_dims=1, out_dims=1)(x), value)
    close(func.grad(scalar)(x), chained)
    close(func.vmap(func.grad(function))(x.flatten()), slope.flatten())
    close(func.vmap(func.grad(scalar))(x), chained)
    close(func.vmap(func.grad(scalar), in_dims=1, out_dims=1)(x), chained)
    close(func.jvp(function, (x,), (x,))[1], slope * x)
    close(func.vjp(function, x)[1](x)[0], slope * x)
    close(func.jvp(func.vmap(function), (x,), (x,))[1], slope * x)
    close(func.grad(lambda x: func.vmap(function)(x).sin().sum())(x), chained)
    close(func.grad(lambda x: func.vmap(function, in_dims=1)(x).sin().sum())(x), chained)
    close(func.vmap(func.grad(lambda x: func.vmap(function)(x).sin().sum()))(x), chained)
    close(func.vmap(lambda x, t: func.jvp(function, (x,), (t,))[1])(x, x), slope * x)
    close(func.jacrev(function)(x[0]), slope[0].diag())
    close(func.jacfwd(function)(x[0]), slope[0].diag())
    tracked = x.clone().requires_grad_()
    close(torch.autograd.grad(func.vmap(function)(tracked).sum(), tracked)[0], slope)
    with torch.no_grad():  # forward mode does not depend on it
        close(func.jvp(function, (x,), (x,))[1], slope * x)


@forward_mode
@every_name
def test_hessians(name):
    function = activations.get(name)
    x = points(3, 3)

    def scalar(x: torch.Tensor) -> torch.Tensor:
        return function(x).sin().sum()

    func = torch.func
    tracked = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(scalar(tracked), tracked, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), tracked)
    expected = torch.diag_embed(second)
    for hessian in (func.hessian(scalar), func.jacrev(func.jacrev(scalar)), func.jacfwd(func.jacfwd(scalar)), func.jacrev(func.jacfwd(scalar))):
        torch.testing.assert_close(func.vmap(hessian)(x), expected, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(hessian(x[1]), expected[1], rtol=1e-12, atol=1e-13)


@forward_mode
@every_name
def test_forward_mode(name):
    function = activations.get(name)
    x, direction = points(6), points(6, seed=4)
    with forward_ad.dual_level():
        result = function(forward_ad.make_dual(x, direction))
        value, tangent = forward_ad.unpack_dual(result)
        assert forward_ad.unpack_dual(function(x)).tangent is None
        close(value, function(x))
        close(tangent, direction * slope_of(function, x))


@every_name
def test_checkpoint(name):
    function = activations.get(name)
    x = points(6).requires_grad_()
    expected = torch.autograd.grad(function(x).sin().sum(), x)[0]
    assert torch.equal(torch.autograd.grad(checkpoint(function, x, use_reentrant=False).sin().sum(), x)[0], expected)
    checkpoint(function, x, use_reentrant=True).sin().sum().backward()
    assert torch.equal(x.grad, expected)


@every_name
def test_saved_tensors_hooks(name):
    """What is kept may be taken away and brought back: for the first derivative and for the second."""
    function = activations.get(name)
    x = points(6).requires_grad_()
    kept: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> np.ndarray:
        kept.append(tensor.shape)
        return tensor.numpy(force=True).copy()

    with torch.autograd.graph.saved_tensors_hooks(pack, torch.from_numpy):
        y = function(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    close(slope.detach(), slope_of(function, x))
    assert all(shape in ((), x.shape) for shape in kept)
    assert len(kept) <= 2
    if name in GATES:
        (expected,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        close(torch.autograd.grad(slope.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@every_name
def test_meta_and_fake_tensors(name, dtype):
    function = activations.get(name)
    x = torch.empty(5, 3, dtype=dtype, device="meta", requires_grad=True)
    y = function(x)
    assert (y.shape, y.dtype, y.device.type) == (x.shape, dtype, "meta")
    y.sum().backward()
    assert (x.grad.shape, x.grad.dtype) == (x.shape, dtype)
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        for real in (points(5, 3, dtype=dtype), points(5, 3, dtype=dtype).T):
            x = mode.from_tensor(real).requires_grad_()
            y = function(x)
            y.sum().backward()
            assert (y.shape, y.dtype, y.stride()) == (real.shape, dtype, real.stride())
            assert x.grad.dtype == dtype


@every_name
def test_autocast(name):
    """The activation keeps its input's dtype, as PyTorch's do, and takes part in a half-precision network."""
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), activations.Activation(name), torch.nn.Linear(4, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for dtype in DTYPES:
            assert activations.get(name)(points(3, dtype=dtype)).dtype == dtype
        y = network(points(5, 4, dtype=torch.float32))
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert network[0].weight.grad.dtype == torch.float32
    assert network[0].weight.grad.isfinite().all()


@every_name
def test_threads(name):
    function = activations.get(name)
    inputs = [points(2 * gates.BLOCK // 3, dtype=torch.float32, seed=seed) for seed in range(4)]
    expected = [(function(x), slope_of(function, x)) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda x: (function(x), slope_of(function, x)), inputs * 2))
    for (value, slope), (expected_value, expected_slope) in zip(results, expected * 2, strict=True):
        close(value, expected_value)
        close(slope, expected_slope)


@every_name
def test_modules_are_copied_pickled_and_saved(name):
    parameters = {"gelu": {"mu": 0.5, "sigma": 2.0}, "elu": {"alpha": 0.5}}.get(name, {})
    module, x = activations.Activation(name, **parameters), points(5)
    stream = io.BytesIO()
    torch.save(module, stream)
    stream.seek(0)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(stream, weights_only=False)):
        assert torch.equal(other(x), module(x))
        assert repr(other) == repr(module)
    assert torch.equal(module(x), activations.get(name)(x, **parameters))
    assert list(module.parameters()) == []
    assert module.state_dict() == {}


@every_name
def test_export(name):
    network = torch.nn.Sequential(torch.nn.Linear(4, 4), activations.Activation(name))
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(network, (points(3, 4, dtype=torch.float32),), dynamic_shapes=({0: batch},))
    x = points(7, 4, dtype=torch.float32)
    close(program.module()(x).detach(), network(x).detach())


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
def test_every_name_is_captured_whole():
    """Forward and backward without a graph break, for any size; no compiler of C++ takes part."""

    def all_of_them(x: torch.Tensor) -> list[torch.Tensor]:
        return [*(activations.get(name)(x) for name in NAMES), activations.gated("geglu", x)]

    compiled = torch.compile(all_of_them, fullgraph=True, backend="aot_eager")
    for tracked in (True, False):
        for n in (6, 10, 14):
            x = points(n, dtype=torch.float32).requires_grad_(tracked)
            torch._dynamo.mark_dynamic(x, 0)
            results = [compiled(x), all_of_them(x)]
            for name, got, expected in zip([*NAMES, "geglu"], *results, strict=True):
                close(got.detach(), expected.detach())
                assert got.requires_grad == tracked, name
            if tracked:
                sums = [sum((i + 1) * y.sum() for i, y in enumerate(result)) for result in results]
                gradients = [torch.autograd.grad(total, x)[0] for total in sums]
                torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-5)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("tracked", [False, True])
def test_parameters_may_change_under_the_compiler(tracked):
    """The second value of a number makes it symbolic to Dynamo."""
    x = points(6).requires_grad_(tracked)
    compiled = torch.compile(lambda x, sigma: activations.gelu(x, mu=sigma, sigma=sigma), fullgraph=True, backend="aot_eager")
    for sigma in (0.5, 0.75, 1.0, 2.0):
        module = activations.Activation("gelu", sigma=sigma)
        for got, expected in (
            (compiled(x, sigma), activations.gelu(x, sigma, sigma)),
            (torch.compile(module, fullgraph=True, backend="aot_eager")(x), module(x)),
        ):
            close(got.detach(), expected.detach())
            if tracked:
                close(torch.autograd.grad(got.sum(), x)[0], torch.autograd.grad(expected.sum(), x)[0])


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_gates_equal_eager_ones():
    if not (shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")):
        lacking("compiler", "needs a C++ compiler (Debian's package `g++`)")
    cases = [("gelu", torch.float32), ("gelu_tanh", torch.float32), ("gelu", torch.float64), ("silu", torch.bfloat16)]

    def all_gates(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [activations.get(name)(x) for (name, _), x in zip(cases, inputs, strict=True)]

    x = torch.cat([points(500), torch.linspace(-45, 10, 300, dtype=torch.float64)])
    inputs = [x.to(dtype, copy=True).requires_grad_() for _, dtype in cases]
    both = []
    for function in (torch.compile(all_gates, fullgraph=True), all_gates):
        values = function(inputs)
        both.append([(y.detach(), slope.double()) for y, slope in zip(values, torch.autograd.grad(sum(y.sum() for y in values), inputs), strict=True)])
    for (name, dtype), x, (got, got_slope), (expected, slope) in zip(cases, inputs, *both, strict=True):
        gate = (expected / x.detach()).double()
        size = gate + (slope - gate).abs()  # of a slope, which crosses zero: |G| + |x| G'
        unit, smallest = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal
        assert ((got - expected).abs() <= 2 * unit * expected.abs() + smallest).all(), name
        assert ((got_slope - slope).abs() <= 2 * unit * size + smallest).all(), name


REFUSED = [
    (torch.arange(3), "floating dtype, not torch.int64.*float"),
    (torch.tensor([True]), "floating dtype, not torch.bool"),
    (torch.ones(2, dtype=torch.complex64), "floating dtype, not torch.complex64"),
    ([1.0, 2.0], "takes a tensor, not list.*torch.tensor"),
    (3.0, "takes a tensor, not float"),
    (None, "takes a tensor, not NoneType"),
    (np.ones(2), "takes a tensor, not ndarray"),
]


@pytest.mark.parametrize(("value", "message"), REFUSED, ids=[message[-20:] for _, message in REFUSED])
@every_name
def test_refused_input(name, value, message):
    with pytest.raises(TypeError, match=f"{name} takes.*" if message.startswith("takes") else name) as caught:
        activations.get(name)(value)
    caught.match(message)


POSITIVE = [*((name, "sigma") for name in GATES), ("elu", "alpha"), ("celu", "alpha"), ("softplus", "beta")]
ANY = [*((name, "mu") for name in GATES), ("leaky_relu", "negative_slope")]


@pytest.mark.parametrize(("name", "parameter"), [*POSITIVE, *ANY])
def test_refused_parameters(name, parameter):
    x, function = points(3), activations.get(name)
    bad = [math.nan, math.inf, -math.inf, 1e300, 10**400]
    if (name, parameter) in POSITIVE:
        bad += [0, 0.0, -0.0, -1, -1e-9, 1e-320]
    for value in bad:
        with pytest.raises(ValueError, match=f"{parameter} is .*must be .*1e100"):
            function(x, **{parameter: value})
        with pytest.raises(ValueError, match=f"{parameter} is .*must be .*1e100"):
            activations.Activation(name, **{parameter: value})
    for value in (torch.tensor(1.0), torch.ones(3), "1", None, True, 1j, [1.0]):
        with pytest.raises(TypeError, match=f"{parameter} is .*must be a number"):
            function(x, **{parameter: value})
        with pytest.raises(TypeError, match=f"{parameter} is .*must be a number"):
            activations.Activation(name, **{parameter: value})
    for value in (1, np.float64(1), np.float32(1), np.int64(1)):
        assert torch.equal(function(x, **{parameter: value}), function(x, **{parameter: 1.0}))


def test_the_defaults_of_the_process_do_not_matter():
    code = (
        "import torch; torch.set_default_dtype(torch.float64); from gelu_study import activations\n"
        "x = torch.linspace(-20, 20, 7, dtype=torch.float32)\n"
        "torch.testing.assert_close(activations.gelu(x), activations.gelu(x.double()).float(), rtol=1e-6, atol=0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
