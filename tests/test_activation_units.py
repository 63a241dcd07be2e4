"""The SOI map against its distribution, and the gated units against their formulas."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from scipy import stats

from gelu_study import activations
from gelu_study.activations import SOIMap

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def masks(x: torch.Tensor, soi: SOIMap) -> torch.Tensor:
    tracked = x.detach().requires_grad_()
    (mask,) = torch.autograd.grad(soi(tracked).sum(), tracked)
    return mask


def test_masks_are_bernoulli_with_probability_phi():
    """Counts at 13 inputs, two-sided exact tests at 1e-6 each: a false alarm, had the seed not been fixed, once in 77,000."""
    x = torch.tensor([-5.0, -3.0, -2.0, -1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0])
    n = 40_000
    drawn = masks(x.repeat(n, 1), SOIMap(generator(1)))
    assert set(drawn.unique().tolist()) == {0.0, 1.0}
    for point, count in zip(x.tolist(), drawn.sum(0).long().tolist(), strict=True):
        assert stats.binomtest(count, n, stats.norm.cdf(point)).pvalue > 1e-6, point


def test_masks_are_independent():
    """Neighbours along each dimension, and the same place in successive calls, agree as often as chance has it (5 sigma each: one
    false alarm in 580,000)."""
    soi, x = SOIMap(generator(2)), torch.zeros(250, 200)
    first, second = masks(x, soi), masks(x, soi)
    for agreement in (first[1:] == first[:-1], first[:, 1:] == first[:, :-1], first == second):
        assert abs(agreement.double().mean() - 0.5) < 5 * 0.5 / math.sqrt(agreement.numel())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_training_passes_or_zeroes_and_the_gradient_is_the_mask(dtype):
    x = (torch.randn(4, 1000, generator=generator(3)) * 2).to(dtype).requires_grad_()
    y = SOIMap(generator(4))(x)
    (gradient,) = torch.autograd.grad(y, x, torch.full_like(y, 3.0))
    assert (y.dtype, y.shape) == (dtype, x.shape)
    passed = gradient == 3
    assert ((gradient == 0) | passed).all()
    assert torch.equal(y.detach(), torch.where(passed, x, torch.zeros_like(x)).detach())
    assert 0.4 < passed.double().mean() < 0.6


def test_expectation_is_gelu():
    """The mean of 20,000 draws within 5 standard errors at 41 points: one false alarm in 42,000."""
    x, n = torch.linspace(-4, 4, 41, dtype=torch.float64), 20_000
    soi = SOIMap(generator(5))
    mean = soi(x.repeat(n, 1)).mean(0)
    probability = torch.from_numpy(stats.norm.cdf(x.numpy()))
    spread = x.abs() * (probability * (1 - probability) / n).sqrt()
    expected = soi.eval()(x)
    assert ((mean - expected).abs() <= 5 * spread + 1e-15).all()
    assert torch.equal(expected, activations.gelu(x))


def test_generator_decides_the_masks():
    x = torch.randn(1000, generator=generator(6))
    first = SOIMap(generator(7))
    a, b = first(x), first(x)
    assert not torch.equal(a, b)
    again = SOIMap(generator(7))
    assert torch.equal(again(x), a)
    assert torch.equal(again(x), b)
    assert not torch.equal(SOIMap(generator(8))(x), a)
    state = torch.get_rng_state()
    SOIMap(generator(7))(x)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(9)
        a = SOIMap()(x)
        torch.manual_seed(9)
        assert torch.equal(SOIMap()(x), a)


def test_switching_to_evaluation_and_back():
    x = torch.randn(500, generator=generator(10))
    network = torch.nn.Sequential(SOIMap(generator(11)))
    assert network.training
    assert not torch.equal(network(x), activations.gelu(x))
    network.eval()
    assert torch.equal(network(x), activations.gelu(x))
    tracked = x.clone().requires_grad_()
    assert torch.equal(
        torch.autograd.grad(network(tracked).sum(), tracked)[0], torch.autograd.grad(activations.gelu(tracked).sum(), tracked)[0]
    )
    network.train()
    assert not torch.equal(network(x), activations.gelu(x))
    assert list(network.parameters()) == []


@pytest.mark.parametrize("soi", [SOIMap(), SOIMap(generator(1))])
def test_soi_map_is_copied_and_pickled(soi):
    x = torch.randn(200, generator=generator(12))
    for other in (copy.deepcopy(soi), pickle.loads(pickle.dumps(soi))):
        if soi.generator:
            assert torch.equal(other(x), copy.deepcopy(soi)(x))
        assert torch.equal(other.eval()(x), activations.gelu(x))


def test_soi_map_at_the_edges():
    soi = SOIMap(generator(13))
    x = torch.tensor([-math.inf, -1e30, -50.0, 50.0, 1e30, math.inf]).repeat(200, 1)
    expected = torch.tensor([0.0, 0.0, 0.0, 50.0, 1e30, math.inf]).expand(200, 6)
    assert torch.equal(soi(x), expected)
    assert soi(torch.empty(0, 3)).shape == (0, 3)
    assert soi(torch.tensor(1.0)).shape == ()
    assert not soi(torch.ones(3)).requires_grad
    assert soi(torch.ones(2, 3).T).shape == (3, 2)
    assert soi.eval()(torch.tensor([math.nan])).isnan().all()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("bad", [torch.arange(3), torch.tensor([True]), torch.ones(2, dtype=torch.complex64), [1.0]], ids=str)
def test_soi_map_refuses_what_is_no_floating_tensor(bad, training):
    with pytest.raises(TypeError, match="takes a tensor"):
        SOIMap().train(training)(bad)


def sigmoid(a: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-a))


FORMULAS = {
    "glu": lambda a, b: sigmoid(a) * b,
    "reglu": lambda a, b: torch.where(a > 0, a, 0.0) * b,
    "geglu": lambda a, b: a * torch.special.ndtr(a) * b,
    "swiglu": lambda a, b: a * sigmoid(a) * b,
    "bilinear": lambda a, b: a * b,
}


def test_every_gated_unit_has_its_formula():
    assert list(activations.GATES) == list(FORMULAS)


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_gated_units(name, dim):
    """The first half is the gate's, along any dimension; gradients by the product rule of the plain formula."""
    x = torch.randn(4, 6, 2, generator=generator(14), dtype=torch.float64)
    half = x.shape[dim] // 2
    results = []
    for function in (
        lambda x: activations.gated(name, x, dim),
        lambda x: FORMULAS[name](x.narrow(dim, 0, half), x.narrow(dim, half, half)),
    ):
        tracked = x.clone().requires_grad_()
        y = function(tracked)
        results.append((y.detach(), torch.autograd.grad(y.square().sum(), tracked)[0]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-13, atol=1e-14)
    assert results[0][0].shape[dim] == half


@pytest.mark.parametrize("name", FORMULAS)
def test_gated_units_in_every_dtype_and_default_dimension(name):
    x = torch.randn(3, 8, generator=generator(15), dtype=torch.float64)
    for dtype in DTYPES:
        y = activations.gated(name, x.to(dtype))
        assert (y.dtype, y.shape) == (dtype, (3, 4))
        a, b = x.to(dtype).double().chunk(2, -1)
        torch.testing.assert_close(y.double(), FORMULAS[name](a, b), rtol=2 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
    assert activations.gated(name, x[:, :0]).shape == (3, 0)
    assert activations.gated(name, torch.ones(2)).shape == (1,)
    torch.testing.assert_close(torch.func.vmap(lambda row: activations.gated(name, row))(x), activations.gated(name, x))


def test_glu_is_pytorchs_with_its_halves_exchanged():
    a, b = torch.randn(2, 3, 4, generator=generator(16), dtype=torch.float64)
    torch.testing.assert_close(activations.gated("glu", torch.cat([a, b], -1)), torch.nn.functional.glu(torch.cat([b, a], -1)))


def test_gated_units_refuse():
    known = ", ".join(FORMULAS)
    for name in ("gelu", "GLU", "", None, ["glu"]):
        with pytest.raises(ValueError, match=f"unknown gated unit.*{known}"):
            activations.gated(name, torch.ones(4))
    for x, dim in ((torch.ones(2, 3), -1), (torch.ones(3, 2), 0), (torch.tensor(1.0), -1), (torch.ones(2, 4), 2), (torch.ones(2, 4), -3)):
        with pytest.raises(ValueError, match=f"glu .*dimension {dim}.*even"):
            activations.gated("glu", x, dim)
    for bad in (torch.arange(4), torch.ones(4, dtype=torch.complex64), torch.tensor([True, False]), [1.0, 2.0]):
        with pytest.raises(TypeError, match="takes a tensor"):
            activations.gated("glu", bad)
