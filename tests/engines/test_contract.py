"""Contract of an engine: every primitive gives the exact value that Python integers give, on every engine.

Sizes cross every register tile (2×16, 4×8, 6×16, 12×32), packing block (64) and macro tile (96×128); the same tests run
on the sanitized build.
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from gemmulate.engines import Engine
from gemmulate.engines.base import NO_EXPONENT
from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem, residue_system
from gemmulate.engines.rounding import round_to_float

SHAPES = [(1, 1, 1), (2, 3, 5), (13, 64, 33), (12, 65, 32), (7, 130, 17), (97, 5, 129)]


def objects(x: Any) -> Any:
    return np.asarray(x).astype(object)


def wide_floats(rng: np.random.Generator, shape: tuple[int, int], dtype: type, spread: int) -> Any:
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    x[rng.random(shape) < 0.1] = 0.0
    return x.astype(dtype)


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("count", [1, 2, 7, 15, 20, 54])
def test_integer_residues(engine: Engine, m: int, k: int, n: int, count: int) -> None:
    if engine.name == "reference" and m * n > 1000 and count > 20:
        pytest.skip("a microsecond for each element and modulus")
    rng = np.random.default_rng(count)
    system = ResidueSystem(INT8_MODULI[:count])
    bits = min(62, max(0, (system.product // (2 * k) - 1).bit_length() // 2 - 1))
    limit = 1 << bits
    a = rng.integers(-limit, limit, (m, k), endpoint=True)
    b = rng.integers(-limit, limit, (k, n), endpoint=True)
    a.flat[0], b.flat[0] = -limit, limit
    expected = objects(a) @ objects(b)
    left, right = engine.pack_integers(True, a, system, bits), engine.pack_integers(False, b.T, system, bits)
    words = system.product.bit_length() // 64 + 1
    if words > 7:
        words = 7
    out = np.empty((m, n, words), dtype=np.uint64)
    longest = engine.multiply_words(left, right, system, out)
    value = sum(objects(out[:, :, w]) << 64 * w for w in range(words))
    value = np.where(value >> (64 * words - 1), value - (1 << 64 * words), value)
    assert (value == expected).all()
    assert longest == max((v if v >= 0 else ~v).bit_length() + 1 for v in expected.flat)
    low = np.empty((m, n), dtype=np.int64)
    assert engine.multiply_integers(left, right, system, low) == longest
    assert (objects(low.view(np.uint64)) == expected % 2**64).all()


def test_words_of_any_width(engine: Engine) -> None:
    rng = np.random.default_rng(3)
    for bits in (1, 13, 14, 31, 32, 33, 63, 64, 65, 100, 150):
        values = [
            [int.from_bytes(rng.bytes(24), "little") % (2 << bits) - (1 << bits) for _ in range(9)] for _ in range(5)
        ]
        values[0][0], values[1][1] = 1 << bits, -(1 << bits)
        x = np.array(values, dtype=object)
        count = (bits + 2 + 31) // 32
        raw = b"".join(v.to_bytes(4 * count, "little", signed=True) for v in x.flat)
        words = np.frombuffer(raw, dtype=np.uint32).reshape(5, 9, count)
        bound = 9 << 2 * bits
        system = residue_system(bound)
        assert system is not None
        out = np.empty((5, 5, bound.bit_length() // 64 + 1), dtype=np.uint64)
        engine.multiply_words(
            engine.pack_words(True, words, system, bits), engine.pack_words(False, words, system, bits), system, out
        )
        got = [int.from_bytes(e.tobytes(), "little", signed=True) for e in out.reshape(25, -1)]
        assert got == list((x @ x.T).flat)


@pytest.mark.parametrize(
    ("limbs", "k"),
    [
        ((1, 1), 5),
        ((2, 3), 9),
        ((5, 4), 6),
        ((2, 2), 7),
        ((4, 4), 11),
        ((8, 8), 3),
        ((6, 6), 4),
        ((3, 3), 12000),
        ((4, 4), 12000),
    ],
)
def test_products_of_limbs(engine: Engine, limbs: tuple[int, int], k: int) -> None:
    """Coefficients summed over pairs of limbs, folded beyond depth 32,768, shifted by bits that are no whole digits."""
    rng = np.random.default_rng(8)
    for limb_bits in (32, 64, 96) if k < 100 else (96,):
        words = limb_bits // 32
        raw = [
            rng.integers(0, 1 << 32, (count, v, k, words), dtype=np.uint32)
            for count, v in zip(limbs, (5, 4), strict=True)
        ]
        raw[0][:, 0], raw[1][:, 0] = 0xFFFFFFFF, 0x80000000
        raw[0][:, 1, :, :-1], raw[0][:, 1, :, -1] = 0, 0x80000000
        raw[1][:, 1] = raw[1][:, 0]
        values = [[signed(x) for x in side] for side in raw]
        system = residue_system(min(limbs) * k << 2 * (limb_bits - 1))
        assert system is not None
        packed = [
            [engine.pack_words(left, x, system, limb_bits) for x in side]
            for left, side in zip((True, False), raw, strict=True)
        ]
        bits = 2 * (limb_bits - 1) + limb_bits * (sum(limbs) - 2) + k.bit_length() + 4
        out = np.zeros((5, 4, bits // 64 + 1), dtype=np.uint64)
        engine.multiply_limbs(packed[0], packed[1], system, limb_bits, out)
        whole = [sum(x << limb_bits * i for i, x in enumerate(side)) for side in values]
        got = [int.from_bytes(e.tobytes(), "little", signed=True) for e in out.reshape(20, -1)]
        assert got == list((whole[0] @ whole[1].T).flat)


def signed(words: Any) -> Any:
    """Two's complement words (vectors, depth, words) as Python ints."""
    flat = words.reshape(-1, words.shape[-1])
    values = [int.from_bytes(w.tobytes(), "little", signed=True) for w in flat]
    return np.array([*values, None], dtype=object)[:-1].reshape(words.shape[:-1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spread", [0, 5, 40])
def test_scan_and_norms(engine: Engine, dtype: type, spread: int) -> None:
    rng = np.random.default_rng(5)
    x = wide_floats(rng, (70, 33), dtype, spread)
    x[3] = 0
    x[4, 5], x[5, 6] = np.nan, -np.inf
    x[6, 0] = np.finfo(dtype).smallest_subnormal
    inner = rng.integers(-9, 9, 33).astype(np.int32)
    for view, e in ((x, None), (x, inner), (x[:, ::-2], None), (x.T[::-1], None)):
        scan = engine.scan(view, e)
        norms = engine.norms(view, scan.top, e)
        for v, row in enumerate(view):
            terms = [
                abs(Fraction(float(t))) * Fraction(2) ** (int(e[p]) if e is not None else 0)
                for p, t in enumerate(row)
                if math.isfinite(t) and t
            ]
            assert scan.special[v] == (not np.isfinite(row).all())
            if not terms:
                assert scan.top[v] == NO_EXPONENT
                assert norms.sum[v] == 0
                continue
            top, lsb = Fraction(2) ** int(scan.top[v]), Fraction(2) ** int(scan.lsb[v])
            assert top / 2 <= max(terms) < top
            assert all(t % lsb == 0 for t in terms)
            assert any(t % (2 * lsb) for t in terms)
            q = [math.ceil(t * 2**15 / top) for t in terms]
            assert (norms.sum[v], norms.square[v], norms.peak[v]) == (sum(q), sum(t * t for t in q), max(q))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bits", [15, 30, 54, 90, 150])
def test_float_product_is_that_of_the_rounded_operands(engine: Engine, dtype: type, bits: int) -> None:
    rng = np.random.default_rng(bits)
    m, k, n = 14, 70, 35
    a, b = wide_floats(rng, (m, k), dtype, 20), wide_floats(rng, (k, n), dtype, 20)
    inner = rng.integers(-3, 3, k).astype(np.int32)

    def rounded(x: Any, e: Any) -> tuple[Any, Any, int]:
        scan = engine.scan(x, e)
        shift = np.where(scan.top == NO_EXPONENT, 0, bits - scan.top).astype(np.int32)
        exact = [
            [Fraction(float(t)) * Fraction(2) ** (int(shift[v]) + int(e[p])) for p, t in enumerate(row)]
            for v, row in enumerate(x)
        ]
        kept = np.array([[round(t) for t in row] for row in exact], dtype=object)
        count = sum(t.denominator != 1 for row in exact for t in row)
        return shift, kept, count

    shift_a, ints_a, count_a = rounded(a, inner)
    shift_b, ints_b, count_b = rounded(b.T, -inner)
    system = residue_system(k << 2 * bits)
    assert system is not None
    left = engine.pack_floats(True, a, shift_a, inner, system, bits, True)
    right = engine.pack_floats(False, b.T, shift_b, -inner, system, bits, True)
    assert (left.rounded, right.rounded) == (count_a, count_b)
    out = np.empty((m, n), dtype=dtype)
    engine.multiply_floats(left, right, system, -shift_a, -shift_b, out, None)
    exact = ints_a @ ints_b.T
    for i, j in np.ndindex(m, n):
        value = round_to_float(exact[i, j], -int(shift_a[i]) - int(shift_b[j]), np.dtype(dtype))
        assert out[i, j] == value


@pytest.mark.parametrize("bits", [20, 40, 55])
def test_uncertain_roundings_are_reported(engine: Engine, bits: int) -> None:
    """Every element that is not reported equals the correctly rounded one, whatever the operands lost."""
    rng = np.random.default_rng(bits)
    m, k, n = 20, 40, 33
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    a[3], b[:, 4] = np.rint(a[3] * 8), np.rint(b[:, 4] * 8)
    sa, sb = (bits - engine.scan(x, None).top for x in (a, b.T))
    system = residue_system(k << 2 * bits)
    assert system is not None
    left = engine.pack_floats(True, a, sa, None, system, bits, True)
    right = engine.pack_floats(False, b.T, sb, None, system, bits, True)
    out = np.empty((m, n))
    outcome = engine.multiply_floats(left, right, system, -sa, -sb, out, (bits, bits))
    exact = np.vectorize(Fraction, otypes=[object])(a) @ np.vectorize(Fraction, otypes=[object])(b)
    reported = {(int(i), int(j)) for i, j in outcome.uncertain}
    wrong = {(i, j) for i, j in np.ndindex(m, n) if out[i, j] != float(exact[i, j])}
    assert wrong <= reported
    assert (3, 4) not in reported
    if bits == 20:
        assert len(reported) == m * n - 1


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("types", [("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8"), ("int64", "int32")])
def test_direct(engine: Engine, m: int, k: int, n: int, types: tuple[str, str]) -> None:
    rng = np.random.default_rng(m)

    def matrix(dtype: str, shape: tuple[int, int]) -> tuple[Any, int, int]:
        info = np.iinfo(dtype)
        low = info.min if info.bits == 8 else -(2**40) if info.bits == 64 else 2**30
        x = rng.integers(low, low + 255, shape, dtype=dtype, endpoint=True)
        x.flat[0], x.flat[-1] = low, low + 255
        return x, low, low + 128

    a, za, _ = matrix(types[0], (m, k))
    b, _, zb = matrix(types[1], (k, n))
    out = np.empty((m, n), dtype=np.int64)
    longest = engine.multiply_direct(engine.pack_direct(True, a, za), engine.pack_direct(False, b.T, zb), out)
    expected = objects(a) @ objects(b)
    assert longest == max((v if v >= 0 else ~v).bit_length() + 1 for v in expected.flat)
    assert (objects(out) == (expected + 2**63) % 2**64 - 2**63).all()


def test_assessment(engine: Engine) -> None:
    """need is the least t with 2^(t−16) (S_i + S_j + 1) ≤ budget 2^(2t−14) L_ij, or one more for rounding's sake."""
    rng = np.random.default_rng(8)
    m, k, n = 15, 50, 34
    a, b = wide_floats(rng, (m, k), np.float64, 3), wide_floats(rng, (k, n), np.float64, 3)
    a[2], b[:, 3] = 0.0, 0.0
    a[4], b[:, 5] = 0.0, 0.0
    a[4, 1], b[7, 5] = 1.0, 1.0  # disjoint supports
    sa, sb = engine.scan(a, None), engine.scan(b.T, None)
    na, nb = engine.norms(a, sa.top, None), engine.norms(b.T, sb.top, None)
    need = np.empty((m, n), dtype=np.uint8)
    budget = Fraction(3, 2) / 2**53
    hist = engine.assess(
        engine.pack_magnitudes(True, a, sa.top, None),
        engine.pack_magnitudes(False, b.T, sb.top, None),
        na.sum,
        nb.sum,
        float(budget),
        need,
    )
    assert (hist == np.bincount(need.ravel(), minlength=256)).all()

    def magnitudes(x: Any, top: Any) -> Any:
        return np.array(
            [[int(abs(Fraction(float(t))) * Fraction(2) ** (7 - int(top[v]))) for t in row] for v, row in enumerate(x)],
            dtype=object,
        )

    low = magnitudes(a, sa.top) @ magnitudes(b.T, sb.top).T
    for i, j in np.ndindex(m, n):
        if i == 2 or j == 3:
            assert need[i, j] == 0
        elif low[i, j] == 0:
            assert need[i, j] == 255
        else:
            ratio = Fraction(int(na.sum[i]) + int(nb.sum[j]) + 1, 4 * int(low[i, j])) / budget
            least = next(t for t in range(300) if Fraction(2) ** t >= ratio)
            assert least <= need[i, j] <= least + 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exact_dots(engine: Engine, dtype: type) -> None:
    rng = np.random.default_rng(9)
    top = 1000 if dtype == np.float64 else 120
    a = (rng.standard_normal((6, 37)) * 2.0 ** rng.integers(-top, top // 2, (6, 37))).astype(dtype)
    b = (rng.standard_normal((37, 9)) * 2.0 ** rng.integers(-top, top // 2, (37, 9))).astype(dtype)
    a[1, 20:] = -a[1, :17]
    b[20:, 2] = b[:17, 2]
    b[17:20, 2] = 0
    a[2], b[:, 3] = 0.0, -1.0  # all products −0
    a[3], b[:, 4] = np.finfo(dtype).max, np.finfo(dtype).max
    at = np.array(list(np.ndindex(6, 9)), dtype=np.int64)
    out = np.full((6, 9), 7, dtype=dtype)
    engine.exact_dots(a, b.T, at, out)
    for i, j in at:
        exact = sum((Fraction(float(u)) * Fraction(float(v)) for u, v in zip(a[i], b[:, j], strict=True)), Fraction(0))
        value = round_to_float(exact.numerator, -(exact.denominator.bit_length() - 1), np.dtype(dtype))
        assert out[i, j] == value
    assert out[1, 2] == 0
    assert not np.signbit(out[1, 2])
    assert np.signbit(out[2, 3])
    assert np.isinf(out[3, 4])


def test_negative_zeros(engine: Engine) -> None:
    a = np.array([[0.0, -0.0], [0.0, 1.0], [-0.0, -0.0]])
    b = np.array([[-1.0, 1.0, 0.0], [2.0, 0.0, -1.0]])
    out = np.zeros((3, 3))
    engine.fix_negative_zeros(a, b.T, out)
    expected = [
        [
            all(np.signbit(a[i, p]) != np.signbit(b[p, j]) and (a[i, p] == 0 or b[p, j] == 0) for p in range(2))
            for j in range(3)
        ]
        for i in range(3)
    ]
    assert np.signbit(out).tolist() == expected
    assert np.signbit(out).any()


def test_integer_range(engine: Engine) -> None:
    for x, expected in (
        (np.array([[-3, 5], [7, -9]]), (-9, 7)),
        (np.array([[3, 5]], dtype=np.uint64), (0, 5)),
        (np.array([[2**64 - 1]], dtype=np.uint64), (0, 2**64 - 1)),
        (np.array([[-(2**63), -1]]), (-(2**63), 0)),
        (np.tile(np.array([[-1], [4]], dtype=np.int8), (100, 3)), (-1, 4)),
    ):
        assert engine.integer_range(x) == expected


@pytest.mark.parametrize("depth", [65_792, 65_793, 65_794, 131_073])
def test_deep_products_at_their_extremes(engine: Engine, depth: int) -> None:
    a = np.broadcast_to(np.array([[-(2**30)], [2**30 - 1]]), (2, depth))
    system = residue_system(depth << 60)
    assert system is not None
    out = np.empty((2, 2), dtype=np.int64)
    left, right = engine.pack_integers(True, a, system, 30), engine.pack_integers(False, a, system, 30)
    engine.multiply_integers(left, right, system, out)
    x, y = -(2**30), 2**30 - 1
    expected = np.array([[x * x, x * y], [x * y, y * y]], dtype=object) * depth
    assert (objects(out) == (expected + 2**63) % 2**64 - 2**63).all()
    bytes_ = np.broadcast_to(np.array([[255], [0]], dtype=np.uint8), (2, depth))
    engine.multiply_direct(engine.pack_direct(True, bytes_, 0), engine.pack_direct(False, bytes_, 128), out)
    assert (out == np.array([[255 * 255 * depth, 0], [0, 0]])).all()


@pytest.mark.parametrize("depth", [65_535, 65_536, 65_537, 65_538, 65_793, 65_794])
@pytest.mark.parametrize("zero_point", [0, -128])
def test_direct_at_the_depth_of_int32(engine: Engine, depth: int, zero_point: int) -> None:
    """Depths whose results fit int32, though one product does not go as deep; a zero point times sums that cancel."""
    a = np.full((2, depth), zero_point + 255)
    a[1, ::3] = zero_point + 1
    b = np.full((depth, 3), -128) if zero_point == 0 else np.resize([1, -1], (depth, 1)) * np.array([[1, 100, -127]])
    expected = [[sum(map(operator.mul, row, column)) for column in b.T.tolist()] for row in a.tolist()]
    left = engine.pack_direct(True, a.astype(np.int16), zero_point)
    right = engine.pack_direct(False, b.astype(np.int8).T, 0)
    for out in (np.empty((2, 3), dtype=np.int64), np.empty((3, 2), dtype=np.int64).T):
        longest = engine.multiply_direct(left, right, out)
        assert out.tolist() == expected
        assert longest == max((v if v >= 0 else ~v).bit_length() + 1 for row in expected for v in row)


def test_direct_with_the_least_zero_point(engine: Engine) -> None:
    rng = np.random.default_rng(63)
    a = rng.integers(0, 256, (5, 7)) + -(2**63)
    b = rng.integers(-100, 28, (7, 3), dtype=np.int16) - np.int16(3000)
    left, right = engine.pack_direct(True, a, -(2**63)), engine.pack_direct(False, b.T, -3000)
    expected = objects(a) @ objects(b)
    out = np.empty((5, 3), dtype=np.int64)
    longest = engine.multiply_direct(left, right, out)
    assert longest == max((v if v >= 0 else ~v).bit_length() + 1 for v in expected.flat)
    assert (objects(out) == (expected + 2**63) % 2**64 - 2**63).all()
    engine.multiply_direct(left, right, out, 2**61 - 1)
    assert (objects(out) == expected % (2**61 - 1)).all()


def test_a_number_that_scaling_loses_counts_as_rounded(engine: Engine) -> None:
    x = np.array([[2.0**1000, 5e-324, 0.0], [1.0, 0.5, 2.0**-60]])
    system = residue_system(3 << 40)
    assert system is not None
    shift = (20 - engine.scan(x, None).top).astype(np.int32)
    assert engine.pack_floats(True, x, shift, None, system, 20, True).rounded == 2
