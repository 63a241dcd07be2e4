"""Which library takes the float32 matrix products of fully connected networks on a CPU: the one of PyTorch's choice, or oneDNN.

On x86 PyTorch chooses MKL, which leaves the 512-bit units of AMD's processors idle; oneDNN takes half as long there. The public way
to oneDNN is a permission to round the factors to bfloat16 (`torch.backends.mkldnn.matmul.fp32_precision`). oneDNN makes use of that
where the processor has matrix units for bfloat16 and nowhere else, so products are tried first: full float32, or none of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gelu_study.errors import ConfigurationError

VARIABLE = "GELU_STUDY_PRODUCTS"
"""The environment variable that names the library."""
DEFAULT, ONEDNN = "default", "onednn"
LIBRARIES = (DEFAULT, ONEDNN)
_ROUNDED = 1e-5
"""Relative to the factors' norms: float32 products of this size err by some 1e-8, those of bfloat16 factors by some 1e-4."""


def asked() -> str:
    """The library that `VARIABLE` names, `DEFAULT` where it names none. Raises `ConfigurationError` for another word."""
    name = os.environ.get(VARIABLE) or DEFAULT
    if name not in LIBRARIES:
        raise ConfigurationError(f"{VARIABLE} is {name!r}; use {' or '.join(LIBRARIES)}")
    return name


def available(library: object) -> bool:
    """Whether that is one of `LIBRARIES` which takes products here in float32."""
    try:
        with taken_by(str(library)):
            return library in LIBRARIES
    except ConfigurationError:
        return False


def in_use() -> str:
    """The library that takes products now."""
    return DEFAULT if _setting().fp32_precision in ("ieee", "none") else ONEDNN


@contextmanager
def taken_by(library: str) -> Iterator[None]:
    """Let that one of `LIBRARIES` take products meanwhile.

    Raises `ConfigurationError` where PyTorch does not hand them to oneDNN, or oneDNN rounds their factors.
    """
    setting = _setting()
    before = setting.fp32_precision
    try:
        setting.fp32_precision = "ieee"
        if library == ONEDNN:
            _use_onednn(setting)
        yield
    finally:
        setting.fp32_precision = before


def _setting() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


def _use_onednn(setting: Any) -> None:
    source = torch.Generator().manual_seed(0)
    first, second = (torch.randn(3, 200, 200, generator=source) for _ in range(2))
    exact = first.double() @ second.double()
    usual = first @ second
    setting.fp32_precision = "bf16"
    product = first @ second
    mend = f"unset {VARIABLE} there"
    if torch.equal(product, usual):
        raise ConfigurationError(
            f"oneDNN was asked for matrix products, and on this processor PyTorch uses another library; {mend}"
        )
    if float((product - exact).abs().max() / (first.norm(dim=-1).max() * second.norm(dim=-2).max())) > _ROUNDED:
        raise ConfigurationError(
            f"oneDNN was asked for matrix products in float32, and on this processor it rounds their factors to bfloat16; {mend}"
        )
