"""Contract of 16-bit results: the engine's exact integers rounded once to float16 and bfloat16, on every engine."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gemmulate.engines import Engine
from gemmulate.engines.residue_system import residue_system

narrow = pytest.mark.parametrize("dtype", [np.dtype("f2"), np.dtype(ml_dtypes.bfloat16)], ids=lambda d: d.name)


def nearest(value: Fraction, dtype: np.dtype[Any]) -> Any:
    """The nearest number by the definition: neighbours found by bisection over all bit patterns, ties to even."""
    top = int(np.array(np.inf).astype(dtype).view(np.uint16))
    numbers = np.arange(top, dtype=np.uint16).view(dtype).astype(np.float64)
    mag = abs(value)
    below = min(int(np.searchsorted(numbers, float(mag), side="right")), top - 1)
    while below == top or Fraction(numbers[below]) > mag:
        below -= 1
    low = Fraction(numbers[below])
    gap = Fraction(numbers[below + 1]) - low if below + 1 < top else low - Fraction(numbers[below - 1])
    up = mag - low > gap / 2 or (mag - low == gap / 2 and below % 2 == 1)
    bits = below + up
    return np.array([bits | (0x8000 if value < 0 else 0)], dtype=np.uint16).view(dtype)[0]


@narrow
@pytest.mark.parametrize("bits", [53, 90])
def test_midpoints_and_their_neighbours(engine: Engine, dtype: np.dtype[Any], bits: int) -> None:
    """All pairs of neighbouring numbers: the midpoint, and the float64 numbers on both sides of it."""
    step = 61 if engine.name == "reference" else 1
    patterns = np.arange(0, int(np.array(np.inf).astype(dtype).view(np.uint16)) - 1, step, dtype=np.uint16)
    low, high = (p.view(dtype).astype(np.float64) for p in (patterns, patterns + np.uint16(1)))
    middle = (low + high) / 2
    sign = np.where(patterns % 2 == 1, -1.0, 1.0)
    x = np.stack([np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)], axis=1) * sign[:, None]
    even = np.where(patterns % 2 == 0, low, high)
    want = (np.stack([low, even, high], axis=1) * sign[:, None]).astype(dtype)
    system = residue_system(1 << 2 * bits)
    assert system is not None
    one = np.ones((1, 1))
    left = engine.pack_floats(True, one, np.array([bits - 1], dtype=np.int32), None, system, bits, False)
    host = np.zeros((6, patterns.size), dtype=dtype)
    out = host[::2].T  # (count, 3): strides of the transpose
    for c in range(3):
        column = np.ascontiguousarray(x[:, c : c + 1])
        shift = (bits - engine.scan(column, None).top).astype(np.int32)
        right = engine.pack_floats(False, column, shift, None, system, bits, False)
        engine.multiply_floats(left, right, system, np.array([1 - bits], np.int32), -shift, out[:, c : c + 1].T, None)
    assert (out.view(np.uint16) == want.view(np.uint16)).all()


@narrow
@pytest.mark.parametrize("bits", [10, 20, 53])
def test_uncertain_roundings_are_reported(engine: Engine, dtype: np.dtype[Any], bits: int) -> None:
    rng = np.random.default_rng(bits)
    m, k, n = 9, 30, 13
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    a[3], b[:, 4] = np.rint(a[3]), np.rint(b[:, 4])
    sa, sb = (bits - engine.scan(x, None).top for x in (a, b.T))
    system = residue_system(k << 2 * bits)
    assert system is not None
    left = engine.pack_floats(True, a, sa, None, system, bits, True)
    right = engine.pack_floats(False, b.T, sb, None, system, bits, True)
    out = np.empty((m, n), dtype=dtype)
    outcome = engine.multiply_floats(left, right, system, -sa, -sb, out, (bits, bits))
    as_fraction = np.vectorize(lambda t: Fraction(float(t)), otypes=[object])
    exact = as_fraction(a) @ as_fraction(b)
    reported = {(int(i), int(j)) for i, j in outcome.uncertain}
    wrong = {(i, j) for i, j in np.ndindex(m, n) if float(out[i, j]) != float(nearest(exact[i, j], dtype))}
    assert wrong <= reported
    assert (3, 4) not in reported
    assert len(reported) < m * n / 2 if bits == 53 else reported
    engine.exact_dots(a, b.T, outcome.uncertain, out)
    for i, j in np.ndindex(m, n):
        assert float(out[i, j]) == float(nearest(exact[i, j], dtype))


@narrow
def test_long_accumulator_and_zeros(engine: Engine, dtype: np.dtype[Any]) -> None:
    info = ml_dtypes.finfo(dtype)
    top, tiny = float(info.max), float(info.smallest_subnormal)
    a = np.array([[1, -1, tiny], [0, -0.0, 0], [top, top, top], [tiny, 0, 0]], dtype=np.float32)
    b = np.array([[1, -1, top, 0.5], [1, -1, top, 0], [tiny, -1, -top, 0]], dtype=np.float32)
    out = np.full((4, 4), 3, dtype=dtype)
    at = np.array(list(np.ndindex(4, 4)), dtype=np.int64)
    engine.exact_dots(a, b.T, at, out)
    as_fraction = np.vectorize(lambda t: Fraction(float(t)), otypes=[object])
    exact = as_fraction(a) @ as_fraction(b)
    for i, j in np.ndindex(4, 4):
        if i == 1:
            assert out[i, j] == 0
        else:
            assert float(out[i, j]) == float(nearest(exact[i, j], dtype)), (i, j)
    assert np.signbit(np.array([[-0.0, 0.0]], np.float32)).tolist() == [[True, False]]
    signs = np.zeros((2, 2), dtype=dtype)
    engine.fix_negative_zeros(np.array([[0, -0.0], [0, 1]], np.float32), np.array([[-1, 1], [1, 0]], np.float32), signs)
    assert np.signbit(signs.astype(np.float32)).tolist() == [[True, False], [False, False]]
