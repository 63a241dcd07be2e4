"""What the fuzz tests share: how many examples, and strategies for values, JSON and bytes that nobody meant to give.

By default each property tries a few hundred fixed examples; with the environment variable GELU_STUDY_FUZZ=N it tries N fresh ones.
"""

from __future__ import annotations

import fractions
import os
from collections.abc import Callable
from decimal import Decimal
from typing import TypeVar

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

T = TypeVar("T")

ASKED = int(os.environ.get("GELU_STUDY_FUZZ", "0"))
SECONDS = 20.0
"""After which an example counts as hanging, on however busy a machine."""


def fuzz(few: int, slower: int = 1) -> settings:
    """How a property is tried: `few` examples by default; on request GELU_STUDY_FUZZ of them, or a `slower`-th of that."""
    return settings(
        max_examples=max(1, ASKED // slower) if ASKED else few,
        derandomize=not ASKED,
        database=None,
        deadline=1000 * SECONDS,
        # each example writes the files that it needs
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def outcome(expected: type[Exception], read: Callable[..., T], *arguments: object) -> T | None:
    """What it gives; None where it raises the expected error, which must say something."""
    try:
        return read(*arguments)
    except expected as error:
        said = str(error)
    assert said
    return None


def nested(depth: int) -> list[object]:
    """Lists in one another."""
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def _own_element() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


_HUGE = st.sampled_from([10**400, -(10**400), 2**31, 2**53, 2**63, 2**64])
_SCALARS: st.SearchStrategy[object] = st.one_of(
    st.none(), st.booleans(), st.integers(), _HUGE, st.floats(), st.text(max_size=20), st.binary(max_size=8), st.complex_numbers()
)
_SPECIAL: st.SearchStrategy[object] = st.one_of(
    st.sampled_from(["x" * 100_000, "\ud800", "\0", "1", "nan", -0.0, Decimal("NaN"), Decimal(1), fractions.Fraction(1, 3)]),
    st.sampled_from([1, 10, 60]).map(nested),
    st.builds(_own_element),
    st.builds(lambda: np.float64(0.5)),
    st.builds(lambda: np.int64(3)),
    st.builds(lambda: np.arange(3)),
    st.builds(object),
)
ANYTHING: st.SearchStrategy[object] = st.one_of(
    _SPECIAL,
    st.recursive(
        _SCALARS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(st.text(max_size=5), inner, max_size=3),
        ),
        max_leaves=6,
    ),
)
"""A value of any type: huge, not finite, nested, its own element, of another library."""

UNPRINTABLE = {
    "a number of 5,001 digits": 10**5000,
    "a negative number of 5,001 digits": -(10**5000),
    "lists in one another": nested(100_000),
    "such lists beside a number": [1, nested(100_000), 10**5000],
    "such numbers": (10**5000, 10**5000),
}
"""Values whose `repr` raises: no strategy, because Hypothesis prints its examples."""

JSON: st.SearchStrategy[object] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-3, 3),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)
"""What strict JSON may hold."""

DEEP: st.SearchStrategy[str] = st.builds(
    lambda opening, depth: opening * depth,
    st.sampled_from(["[", '{"a":', '[{"a":', "-", "("]),
    st.sampled_from([200, 990, 5_000, 100_000]),
)
"""Text that is nested too deeply for a parser that calls itself."""


def mangled(contents: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Those contents cut, lengthened, with bits flipped or with a few runs of bytes replaced."""

    @st.composite
    def draw_mangled(draw: st.DrawFn) -> bytes:
        content = bytearray(draw(contents))
        for _ in range(draw(st.integers(0, 4))):
            start = draw(st.integers(0, len(content)))
            if content and draw(st.booleans()):
                content[start % len(content)] ^= 1 << draw(st.integers(0, 7))
            else:
                content[start : start + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
        return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)

    return draw_mangled()
