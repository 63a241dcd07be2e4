"""Gated linear units: half of the features, through an activation, gate the other half (Shazeer 2020, arXiv:2002.05202)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gelu_study.activations import gates, rectifiers
from gelu_study.errors import ConfigurationError

GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "glu": torch.sigmoid,
    "reglu": rectifiers.relu,
    "geglu": gates.gelu,
    "swiglu": gates.silu,
    "bilinear": rectifiers.identity,
}
"""What the gating half goes through."""


def gated(name: str, x: Tensor, dim: int = -1) -> Tensor:
    """gate(a) b with the halves a, b of x along dim: [..., 2 n, ...] gives [..., n, ...].

    Raises `ConfigurationError` for an unknown unit (it lists the known) or an odd number of features.
    """
    gates.floating(x, "a gated unit")
    if not isinstance(name, str) or name not in GATES:
        raise ConfigurationError(f"unknown gated unit {name!r}; known are {', '.join(GATES)}")
    if not -x.dim() <= dim < x.dim() or x.shape[dim] % 2:
        raise ConfigurationError(f"{name} halves dimension {dim}, here of shape {tuple(x.shape)}; its size must be even")
    a, b = x.chunk(2, dim)
    return GATES[name](a) * b
