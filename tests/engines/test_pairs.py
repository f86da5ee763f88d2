"""Contract of pair operands and results: integers from both parts, one rounding to hi + lo, on every engine."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gemmulate.engines import Engine
from gemmulate.engines.residue_system import residue_system

SHAPES = [(1, 1, 1), (13, 64, 33), (7, 130, 17), (2, 66, 97)]


def pairs(rng: np.random.Generator, shape: tuple[int, int], spread: int) -> tuple[Any, Any]:
    high = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    low = high * 2.0**-54 * rng.choice([1.0, -1.0, 2.0**-52, 0.0, 0.7, 2.0**-30], shape)
    high[rng.random(shape) < 0.1] = 0.0
    low[high == 0] = 0.0
    assert (high + low == high).all()
    return high, low


def fractions(x: Any) -> Any:
    return np.vectorize(lambda t: Fraction(float(t)), otypes=[object])(x)


def assert_pair(high: float, low: float, exact: Fraction) -> None:
    """high is the nearest float64, low the rest rounded to nearest, and high = fl(high + low)."""
    assert high == (exact.numerator / exact.denominator)
    rest = exact - Fraction(high)
    assert low == rest.numerator / rest.denominator or high + low == high
    assert high + low == high
    assert abs(Fraction(high) + Fraction(low) - exact) <= abs(exact) * Fraction(1, 2**106)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("bits", [27, 54, 55, 110, 150])
def test_products_of_pairs(engine: Engine, m: int, k: int, n: int, bits: int) -> None:
    if engine.name == "reference" and m * n > 400:
        pytest.skip("a microsecond for each element and modulus")
    rng = np.random.default_rng(bits + m)
    a, b = pairs(rng, (m, k), 3), pairs(rng, (n, k), 3)
    # Extremes: an integer of 2^bits, ties of both parts, digits at ±2^13 and carries through all of them.
    a[0][0, 0], a[1][0, 0] = 1.0, -(2.0**-54)
    b[0][-1, -1], b[1][-1, -1] = -(1.0 - 2.0**-53), -(2.0**-55)
    shifts = [(bits - np.maximum(engine.scan(x[0], None).top, -999)).astype(np.int32) for x in (a, b)]
    kept = []
    for (high, low), shift in zip((a, b), shifts, strict=True):
        scale = np.array([Fraction(2) ** int(s) for s in shift], dtype=object)[:, None]
        exact = (fractions(high) + fractions(low)) * scale
        parts = [np.vectorize(round, otypes=[object])(fractions(x) * scale) for x in (high, low)]
        kept.append(parts[0] + parts[1])
        assert all(abs(v - e) <= Fraction(3, 4) for v, e in zip(kept[-1].flat, exact.flat, strict=True))
        assert all(abs(v) <= 1 << bits for v in kept[-1].flat)
    system = residue_system(k << 2 * bits)
    assert system is not None
    left = engine.pack_pairs(True, *a, shifts[0], None, system, bits)
    right = engine.pack_pairs(False, *b, shifts[1], None, system, bits)
    host = np.full((2, n, 2 * m), 7.0)
    high, low = host[0, :, ::2].T, host[1, :, 1::2].T  # strides of their own
    zeros = engine.multiply_pairs(left, right, system, -shifts[0], -shifts[1], high, low)
    exact = kept[0] @ kept[1].T
    assert zeros == int((exact == 0).sum())
    for i, j in np.ndindex(m, n):
        value = exact[i, j] * Fraction(2) ** -int(shifts[0][i] + shifts[1][j])
        assert_pair(float(high[i, j]), float(low[i, j]), value)
    assert (host[0, :, 1::2] == 7).all()
    assert (host[1, :, ::2] == 7).all()


def test_roundings_at_the_edges(engine: Engine) -> None:
    """Ties of high, low that rounds up to half a place, overflow, subnormal and vanishing results."""
    system = residue_system(1 << 214)
    assert system is not None
    one, top = 2**53, 2**53 - 1
    integers = [
        (one << 53) + (1 << 52),  # a tie: high even
        (one + 1 << 53) + (1 << 52),  # a tie with an odd high below
        (one + 1 << 54) + (1 << 53) - 1,  # low just below half a place
        (one + 1 << 60) + (1 << 59) - 1,  # low rounds to half a place of an odd high
        (one << 60) - (1 << 58) + 1,  # below a power of two
        (top << 54) + (1 << 53) - 1,
        (top << 53) + (1 << 52),
        1,
        0,
    ]
    values = np.array([s * v for v in integers for s in (1, -1)], dtype=object)
    words = np.array([[(int(v) >> 32 * w) & 0xFFFFFFFF for w in range(5)] for v in values], dtype=np.uint32)
    left = engine.pack_words(True, words[:, None, :], system, 120)
    right = engine.pack_integers(False, np.ones((1, 1), dtype=np.int64), system, 1)
    high, low = np.empty((2, len(values), 1))
    for exponent in (0, -1074, -1100, -1130, -1190, 800, 900, 917, 970, 5000, -5000):
        rows = np.full(len(values), exponent, dtype=np.int32)
        engine.multiply_pairs(left, right, system, rows, np.zeros(1, dtype=np.int32), high, low)
        for v, h, low_part in zip(values, high[:, 0].tolist(), low[:, 0].tolist(), strict=True):
            exact = int(v) * Fraction(2) ** exponent
            limit = (2 - Fraction(1, 2**53)) * Fraction(2) ** 1023
            if abs(exact) >= limit:
                assert (h, low_part) == (float("inf") if v > 0 else -float("inf"), 0.0)
                continue
            assert h == exact.numerator / exact.denominator or h + low_part == h
            assert h + low_part == h
            error = abs(Fraction(h) + Fraction(low_part) - exact)
            assert error <= max(abs(exact) * Fraction(1, 2**106), Fraction(1, 2**1075))


def test_long_accumulator(engine: Engine) -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((5, 30)) * 2.0 ** rng.integers(-900, 400, (5, 30))
    b = rng.standard_normal((7, 30)) * 2.0 ** rng.integers(-400, 400, (7, 30))
    a[0, 15:], b[0, 15:] = -a[0, :15], b[0, :15]  # cancels to zero
    a[1, 15:], b[1, 15:] = -a[1, :15], b[1, :15]
    a[1, 3] *= 1 + 2.0**-40
    a[2] = 2.0**-600
    b[2] = -(2.0**-474)
    at = np.array([(i, j) for i, j in np.ndindex(5, 7) if (i + j) % 3 != 1], dtype=np.int64)
    high, low = np.full((2, 5, 7), 9.0)
    engine.exact_dot_pairs(a, b, at, high, low)
    exact = fractions(a) @ fractions(b).T
    for i, j in np.ndindex(5, 7):
        if (i + j) % 3 == 1:
            assert (high[i, j], low[i, j]) == (9, 9)
        elif abs(exact[i, j]) > Fraction(2) ** -900:
            assert_pair(float(high[i, j]), float(low[i, j]), exact[i, j])
        else:
            assert abs(Fraction(high[i, j]) + Fraction(low[i, j]) - exact[i, j]) <= Fraction(1, 2**1075)
    assert (high[0, 0], low[0, 0]) == (0, 0)


def test_roundings_of_every_size(engine: Engine) -> None:
    """Integers of 1 to 230 bits with runs of zeros and ones, near powers of two, halves of places and each other."""
    system = residue_system(1 << 231)
    assert system is not None
    rng = np.random.default_rng(9)
    values: list[int] = []
    for size in range(1, 231, 1 if engine.name != "reference" else 7):
        for _ in range(12):
            v = 1 << (size - 1)
            for _ in range(int(rng.integers(0, 5))):  # few bits set, and borrows through long runs
                v += int(rng.choice([-1, 1])) << int(rng.integers(0, size))
            if rng.random() < 0.3:
                v += int.from_bytes(rng.bytes(32), "little") >> (257 - size) if size > 1 else 0
            values += [v, -v]
    words = np.array([[(v >> 32 * w) & 0xFFFFFFFF for w in range(8)] for v in values], dtype=np.uint32)
    left = engine.pack_words(True, words[:, None, :], system, 231)
    right = engine.pack_integers(False, np.ones((1, 1), dtype=np.int64), system, 1)
    high, low = np.empty((2, len(values), 1))
    for exponent in (0, -700):
        rows = np.full(len(values), exponent, dtype=np.int32)
        zeros = engine.multiply_pairs(left, right, system, rows, np.zeros(1, dtype=np.int32), high, low)
        assert zeros == values.count(0)
        for v, h, low_part in zip(values, high[:, 0].tolist(), low[:, 0].tolist(), strict=True):
            exact = v * Fraction(2) ** exponent
            want = exact.numerator / exact.denominator
            rest = (exact - Fraction(want)).as_integer_ratio()
            want_low = rest[0] / rest[1]
            if want + want_low != want:  # rounded up to half a place of an odd high: the even neighbour and the rest
                want, want_low = want + want_low, -want_low
            assert (h, low_part) == (want, want_low)


@pytest.mark.parametrize("inner", [False, True])
def test_survey(engine: Engine, inner: bool) -> None:
    """Exponents and norms in Python integers and Fractions; rows, columns, strides, subnormals, zeros, NaN and inf."""
    rng = np.random.default_rng(10)
    shape = (70, 131) if engine.name != "reference" else (9, 21)
    high = rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 31, shape)
    high[3] = np.ldexp(rng.integers(1, 9, shape[1]).astype(float), -1074)
    high[4] = 0.0
    high[5, ::2] = 0.0
    high[6, 1], high[7, 0], high[8] = np.nan, -np.inf, np.inf
    low = np.where(np.isfinite(high), high, 0.0) * 2.0**-54 * rng.choice([0.0, 1.0, -0.75], shape)
    e = rng.integers(-40, 41, shape[1]).astype(np.int32) if inner else None
    shifts = [0] * shape[1] if e is None else e.tolist()
    wide = np.zeros((shape[0], 2 * shape[1]))
    wide[:, ::2] = high
    layouts = [(high, low), (np.asfortranarray(high), np.asfortranarray(low)), (wide[:, ::2], np.asfortranarray(low))]
    surveys = [engine.survey_pairs(*layout, e) for layout in layouts]
    for other in surveys[1:]:
        for a, b in zip(surveys[0], other, strict=True):
            assert (a == b).all()
    found = surveys[0]
    for v in range(shape[0]):
        entries = [
            [(Fraction(x) * Fraction(2) ** s) for x, s in zip(part[v].tolist(), shifts, strict=True) if np.isfinite(x)]
            for part in (high, low)
        ]
        assert bool(found.special[v]) == (not np.isfinite(high[v]).all())
        sizes = [abs(x) for x in entries[0] if x]
        if not sizes:
            assert found.sum[v] == found.square[v] == 0
            continue
        top = int(found.top[v])
        assert Fraction(2) ** (top - 1) <= max(sizes) < Fraction(2) ** top
        unit = Fraction(2) ** int(found.lsb[v])
        quotients = [x / unit for part in entries for x in part]
        assert all(q.denominator == 1 for q in quotients)
        assert any(q.numerator % 2 for q in quotients)
        norms = [-(-x * Fraction(2) ** (15 - top) // 1) for x in sizes]
        assert found.sum[v] == sum(norms)
        assert found.square[v] == sum(q * q for q in norms)
