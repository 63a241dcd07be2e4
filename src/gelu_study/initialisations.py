"""Initial weights of a network, the same draw of a seed whatever the scheme: schemes differ in scale alone.

An incoming vector is what enters a unit, a column of an [in, out] matrix; an outgoing vector is what leaves an input, a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from scipy import integrate
from torch import Tensor
from torch.nn import functional

from gelu_study import activations
from gelu_study.errors import ConfigurationError
from gelu_study.random_streams import generator


def weights(
    scheme: str, shapes: Sequence[tuple[int, int]], seed: int, activation: str = "identity", input_second_moment: float = 1.0
) -> list[Tensor]:
    """Matrices [in, out] of the layers, float32 on the CPU, from the seed's stream for weights, layer after layer.

    Schemes, all from standard normal numbers g:

    - `unit-norm`: each incoming vector scaled to norm 1, as the paper's code does (sections 3.1 and 3.2).
    - `unit-norm-outgoing`: each outgoing vector scaled to norm 1, the other reading of the paper's "unit-norm rows".
    - `he`: g sqrt(2 / in), made for ReLU (He et al. 2015, doi:10.1109/ICCV.2015.123).
    - `variance-matched`: g / sqrt(in m), where m is the second moment of what enters the layer: `input_second_moment` for the
      first, E f(z)^2 with z ~ N(0, 1) for the others. Then, on average and in wide layers, every pre-activation has second
      moment 1, whatever the activation.

    Raises `ConfigurationError` for an unknown scheme or an input second moment that is not positive.
    """
    source = generator(seed, "weights")
    drawn = [torch.randn(shape, generator=source) for shape in shapes]
    if scheme == "unit-norm":
        return [functional.normalize(weight, dim=0) for weight in drawn]
    if scheme == "unit-norm-outgoing":
        return [functional.normalize(weight, dim=1) for weight in drawn]
    if scheme == "he":
        return [weight * math.sqrt(2 / len(weight)) for weight in drawn]
    if scheme == "variance-matched":
        if not 0 < input_second_moment < math.inf:
            raise ConfigurationError(f"the inputs' second moment is {input_second_moment}; it must be positive and finite")
        moments = [input_second_moment, *[second_moment(activation)] * (len(shapes) - 1)]
        return [weight / math.sqrt(len(weight) * moment) for weight, moment in zip(drawn, moments, strict=True)]
    raise ConfigurationError(f"unknown initialisation {scheme!r}")


@cache
def second_moment(activation: str) -> float:
    """E f(z)^2 for z ~ N(0, 1), by adaptive quadrature; the SOI map's is E z^2 Phi(z), which is 1/2."""
    if activation == "soi":
        return 0.5
    function = activations.get(activation)

    def integrand(z: float) -> float:
        value = function(torch.tensor(z, dtype=torch.float64)).item()
        return float(value**2 * math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))

    halves = [integrate.quad(integrand, *ends, epsabs=1e-12, epsrel=1e-10)[0] for ends in ((-12, 0), (0, 12))]
    return float(sum(halves))
