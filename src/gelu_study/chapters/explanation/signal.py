"""The signal in a network before training: what a scheme of initial weights leaves of it, layer by layer.

In a wide layer every pre-activation z is a normal variable with mean 0, so two recursions say it all (Poole et al. 2016,
arXiv:1606.05340; Schoenholz et al. 2017, arXiv:1611.01232). With g = fan-in x variance of a weight, layer l has

    q = E z^2 = g x second moment of the layer before,   second moment = E f(z)^2,   slope = slope before x g x E f'(z)^2.

`theory` calculates them by quadrature, `measured` finds them in drawn networks of finite width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from gelu_study import activations, initialisations
from gelu_study.errors import ConfigurationError
from gelu_study.random_streams import generator

Array = NDArray[np.float64]

MEASURES = ("second_moment", "slope")
COLUMNS = ("initialisation", "activation", "layer", *MEASURES)
EXAMPLES = 128
"""Random inputs that pass through each drawn network."""

_REACH = 12.0  # standard deviations; beyond lie 4e-33 of the normal distribution
_NODES = 400


@dataclass(frozen=True)
class Setting:
    """What is asked: networks of equal layers, from inputs that are normal with mean 0."""

    activations: tuple[str, ...]
    initialisations: tuple[str, ...]
    depth: int  # layers
    width: int  # units of a layer, and inputs
    networks: int  # drawn for each line
    input_second_moment: float = 1.0

    def __post_init__(self) -> None:
        for name in self.activations:
            activations.get(name)
        for name in self.initialisations:
            initialisations.weights(name, [(1, 1)], 0)
        for name in ("depth", "width", "networks"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 < self.input_second_moment < math.inf:
            raise ConfigurationError(f"input_second_moment is {self.input_second_moment}; it must be positive and finite")
        if not (self.activations and self.initialisations):
            raise ConfigurationError("name at least one activation and one initialisation")


def setting(
    activation_names: Sequence[str],
    schemes: Sequence[str],
    depth: int,
    width: int,
    networks: int,
    input_second_moment: float = 1.0,
) -> Setting:
    """A `Setting` of a notebook's parameters. Raises `ConfigurationError` for an unknown name or a value out of range."""
    names, kinds = tuple(dict.fromkeys(activation_names)), tuple(dict.fromkeys(schemes))
    return Setting(names, kinds, depth, width, networks, input_second_moment)


def _value_and_slope(name: str, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value, slope = torch.empty_like(z), torch.empty_like(z)
    activations.value_and_slope_(name, z, value, slope)
    return value, slope


@cache
def _half_nodes() -> tuple[Array, Array]:
    """Nodes z and weights of the normal density, by Gauss-Legendre on either side of 0, where some activations have a kink."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    z = np.concatenate([(x - 1) * _REACH / 2, (x + 1) * _REACH / 2])
    return z, np.tile(w * _REACH / 2, 2) * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def moments(name: str, q: float) -> tuple[float, float]:
    """E f(z)^2 and E f'(z)^2 for z ~ N(0, q)."""
    z, weight = _half_nodes()
    value, slope = _value_and_slope(name, torch.from_numpy(math.sqrt(q) * z))
    return float(weight @ value.square().numpy()), float(weight @ slope.square().numpy())


def gain(scheme: str, name: str, before: float, first: bool) -> float:
    """Fan-in times the variance of a weight between layers of equal width; `before` is the inputs' second moment.

    Both unit-norm schemes have gain 1 there: each weight is one of `width` parts of a vector of norm 1.
    """
    if scheme == "variance-matched":
        return 1 / (before if first else initialisations.second_moment(name))
    return 2.0 if scheme == "he" else 1.0


def theory(asked: Setting) -> pd.DataFrame:
    """Second moment of the activations and mean squared slope from the inputs, for infinitely wide layers: `COLUMNS`."""
    rows = []
    for scheme in asked.initialisations:
        for name in asked.activations:
            second_moment, slope = asked.input_second_moment, 1.0
            rows.append((scheme, name, 0, second_moment, slope))
            for layer in range(1, asked.depth + 1):
                g = gain(scheme, name, asked.input_second_moment, layer == 1)
                second_moment, squared = moments(name, g * second_moment)
                slope *= g * squared
                rows.append((scheme, name, layer, second_moment, slope))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def measured(asked: Setting) -> pd.DataFrame:
    """The same in drawn networks, `COLUMNS` and the network's number, `seed`.

    The weights are `initialisations.weights` of that seed; each network gets `EXAMPLES` standard normal inputs, scaled, and as many
    random small changes of them, which are carried along by the layers' derivatives: what is left of a change's mean square is the
    mean square of the slopes from the inputs to the layer's activations, per unit and input direction.
    """
    frames = []
    shapes = [(asked.width, asked.width)] * asked.depth
    for seed in range(asked.networks):
        source = generator(seed, "order")
        x, change = torch.randn(2, EXAMPLES, asked.width, generator=source)
        x *= math.sqrt(asked.input_second_moment)
        for scheme in asked.initialisations:
            for name in asked.activations:
                weights = initialisations.weights(scheme, shapes, seed, name, asked.input_second_moment)
                rows = [(scheme, name, 0, float(x.square().mean()), float(change.square().mean()))]
                hidden, carried = x, change
                for layer, weight in enumerate(weights, 1):
                    hidden, slope = _value_and_slope(name, hidden @ weight)
                    carried = slope * (carried @ weight)
                    rows.append((scheme, name, layer, float(hidden.square().mean()), float(carried.square().mean())))
                frames.append(pd.DataFrame(rows, columns=list(COLUMNS)).assign(seed=seed))
    return pd.concat(frames, ignore_index=True)


def spread(found: pd.DataFrame) -> pd.DataFrame:
    """Median and range over networks of `measured`: for each measure M the columns M, M_low and M_high, by the other columns."""
    grouped = found.groupby(["initialisation", "activation", "layer"], sort=False)[list(MEASURES)]
    parts = [grouped.median(), grouped.min().add_suffix("_low"), grouped.max().add_suffix("_high")]
    return pd.concat(parts, axis=1).reset_index()
