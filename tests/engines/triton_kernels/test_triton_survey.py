"""survey: exponents, norms, magnitudes and needed bits, each as the reference engine has them, bit for bit."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
import torch

from gemmulate.engines.base import NO_EXPONENT
from gemmulate.engines.reference import ReferenceEngine, needed_bits
from gemmulate.engines.triton import panels, survey
from gemmulate.engines.triton.engine import TritonEngine

REFERENCE, TRITON = ReferenceEngine(), TritonEngine("triton", "cpu")
FLOATS = (np.float64, np.float32, np.float16)


def hostile(rng: np.random.Generator, dtype: Any, shape: tuple[int, int]) -> Any:
    """Wide exponents, few and all significand bits; signed zeros, subnormals, the largest, NaN and inf."""
    info = np.finfo(dtype)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(info.minexp - info.nmant, info.maxexp - 2, shape)
    x = x.astype(dtype)
    x[0] = rng.integers(-3, 4, shape[1])
    x[1, :5] = [0.0, -0.0, np.nan, np.inf, -np.inf]
    x[2] = info.smallest_subnormal * rng.integers(-(2 ** min(info.nmant, 40)), 2 ** min(info.nmant, 40), shape[1])
    x[3] = 0
    x[4] = [(-1) ** j * info.max if j % 3 else info.smallest_subnormal for j in range(shape[1])]
    x[5] = [np.nan if j % 2 else -0.0 for j in range(shape[1])]
    # Powers of two and their neighbours, of all sizes.
    power = np.ldexp(dtype(1), rng.integers(info.minexp - info.nmant, info.maxexp, shape[1])).astype(dtype)
    x[6], x[7] = power, np.nextafter(power, dtype(0))
    return x


def same(x: Any, inner: Any) -> None:
    """Every survey of x, and the types and shapes of the answers."""
    scan, expected = TRITON.scan(x, inner), REFERENCE.scan(x, inner)
    for got, want in zip(scan, expected, strict=True):
        assert (got.dtype, got.tolist()) == (want.dtype, want.tolist())
    norms = TRITON.norms(x, scan.top, inner)
    for got, want in zip(norms, REFERENCE.norms(x, scan.top, inner), strict=True):
        assert (got.dtype, got.tolist()) == (want.dtype, want.tolist())
    for left in (True, False):
        plane: Any = TRITON.pack_magnitudes(left, x, scan.top, inner)
        wanted: Any = REFERENCE.pack_magnitudes(left, x, scan.top, inner)
        assert plane.planes.shape == wanted.planes.shape
        assert plane.planes.is_contiguous()
        assert (plane.planes.numpy() == wanted.planes).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scaled", [False, True])
def test_hostile_floats(dtype: Any, scaled: bool) -> None:
    rng = np.random.default_rng(1)
    x = hostile(rng, dtype, (37, 53))
    inner = rng.integers(-300, 300, 53).astype(np.int32) if scaled else None
    same(x, inner)
    same(np.asfortranarray(x), inner)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_against_fractions(dtype: Any) -> None:
    """The formulas themselves, with no engine between; subnormals beside the largest numbers."""
    rng = np.random.default_rng(2)
    x = hostile(rng, dtype, (12, 19))
    inner = rng.integers(-40, 40, 19).astype(np.int32)
    scan = TRITON.scan(x, inner)
    norms = TRITON.norms(x, scan.top, inner)
    plane: Any = TRITON.pack_magnitudes(True, x, scan.top, inner)
    for v, row in enumerate(x):
        values = [
            abs(Fraction(float(t))) * Fraction(2) ** int(e) if np.isfinite(t) else Fraction(0)
            for t, e in zip(row, inner, strict=True)
        ]
        assert scan.special[v] == (not np.isfinite(row).all())
        if not any(values):
            assert (scan.top[v], scan.lsb[v]) == (NO_EXPONENT, -NO_EXPONENT)
            assert [int(r[v]) for r in norms] == [0, 0, 0]
            continue
        top = int(scan.top[v])
        assert Fraction(2) ** (top - 1) <= max(values) < Fraction(2) ** top
        units = [t / Fraction(2) ** int(scan.lsb[v]) for t in values]
        assert all(u.denominator == 1 for u in units)
        assert any(u.numerator % 2 for u in units)
        q = [ceil(t * Fraction(2) ** (15 - top)) for t in values]
        assert [int(r[v]) for r in norms] == [sum(q), sum(t * t for t in q), max(q)]
        assert plane.planes[0, v].tolist() == [floor(t * Fraction(2) ** (7 - top)) for t in values]


@pytest.mark.parametrize("shape", [(1, 1), (0, 4), (4, 0), (0, 0), (1, 300), (129, 1), (17, 129)])
def test_shapes(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    same(rng.standard_normal(shape), rng.integers(-5, 5, shape[1]).astype(np.int32))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_narrow_formats(name: str) -> None:
    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else name)
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(256, 256)
    for x in (patterns, patterns.T):  # every value there is
        with np.errstate(invalid="ignore"):  # signalling NaN
            wide = x.astype(np.float64)
        for got, want in zip(TRITON.scan(x, None), REFERENCE.scan(wide, None), strict=True):
            assert got.tolist() == want.tolist()


def test_strides() -> None:
    rng = np.random.default_rng(4)
    base = hostile(rng, np.float64, (40, 60))
    for x in (base[::2, ::3], base.T[::3, ::2], base[::-1, ::-1], base[3:, 5:].T, np.broadcast_to(base[0], (5, 60))):
        same(x, rng.integers(-5, 5, x.shape[1]).astype(np.int32))


@pytest.mark.parametrize("programs", [1, 3, 1 << 20])
def test_parts_of_the_depth(programs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One program for a vector's whole depth, or several that merge what they found."""
    monkeypatch.setattr(survey, "PROGRAMS", programs)
    rng = np.random.default_rng(5)
    x = rng.standard_normal((3, 400)) * 2.0 ** rng.integers(-20, 20, (3, 400))
    x[0, 399], x[1, 0], x[2, 200] = 2.0**60, np.inf, 2.0**-200  # extremes at either end and inside
    same(x, None)
    same(np.asfortranarray(x[:, -70:]), None)


def test_the_largest_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every q is 2^14 or 2^15: sums beyond 32 bits."""
    monkeypatch.setattr(
        survey, "block_shape", lambda *strides: (1, 8192)
    )  # the interpreter takes its time for each tile
    x = np.full((1, 1 << 17), np.nextafter(1.0, 0.0))
    x[0, ::2] = 0.5
    norms = TRITON.norms(x, np.zeros(1, dtype=np.int32), None)
    assert [int(r[0]) for r in norms] == [(1 << 31) + (1 << 30), (1 << 46) + (1 << 44), 1 << 15]


def test_parts_are_short_enough_for_int32() -> None:
    for vectors, depth in ((1, 1), (1, 2**31 - 1), (2**31 - 1, 1), (2**20, 2**30), (16, 2048 * 128), (3, 129)):
        for block in (survey.block_shape(1, 2), survey.block_shape(2, 1)):
            launch = survey.spread(vectors, depth, block)
            parts = -(-depth // (block[1] * launch.steps))
            assert launch.programs == -(-vectors // block[0]) * parts
            assert launch.steps << 15 < 1 << 31


def operands(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Any, Any]:
    spread = [2.0 ** rng.integers(-12, 3, (v, k)) * (rng.random((v, k)) < 0.7) for v in (m, n)]
    a, b = (rng.standard_normal(s.shape) * s for s in spread)
    a[:1], b[-1:] = 0, 0
    if m > 2 and k:
        a[1] = 2.0**-9
        a[1, 0] = 1  # magnitudes of which one is left
    return a, b


@pytest.mark.parametrize("shape", [(1, 1, 1), (19, 23, 7), (3, 1030, 40), (0, 3, 2), (3, 0, 2), (3, 4, 0)])
def test_needed_bits(shape: tuple[int, int, int]) -> None:
    found: list[list[Any]] = []
    a, b = operands(np.random.default_rng(6), *shape)
    for engine in (TRITON, REFERENCE):
        tops = [engine.scan(x, None).top for x in (a, b)]
        sums = [engine.norms(x, top, None).sum for x, top in zip((a, b), tops, strict=True)]
        planes = [engine.pack_magnitudes(x is a, x, top, None) for x, top in zip((a, b), tops, strict=True)]
        needs = []
        for budget in (0.0, 2.0**-70, 1e-17, 2.0**-40, 1e-3, 1.0, 3.0e5):
            need = np.full(shape[:2], 77, dtype=np.uint8)
            histogram = engine.assess(*planes, *sums, budget, need)
            assert (histogram.dtype, histogram.shape) == (np.int64, (256,))
            assert histogram.tolist() == np.bincount(need.ravel(), minlength=256).tolist()
            needs.append(need.tolist())
        found.append(needs)
    assert found[0] == found[1]


def test_panels_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums for a few rows at a time, into results on the device and in a part of a matrix."""
    monkeypatch.setattr(panels, "SUMS", 50)
    rng = np.random.default_rng(8)
    m, n = 19, 23
    planes = [rng.integers(0, 128, (v, 12)).astype(np.float64) for v in (m, n)]
    tops = [np.full(v, 7, dtype=np.int32) for v in (m, n)]
    sums = [rng.integers(1, 2**30, v).astype(np.uint64) for v in (m, n)]
    packed = [TRITON.pack_magnitudes(i == 0, x, top, None) for i, (x, top) in enumerate(zip(planes, tops, strict=True))]
    expected = needed_bits(planes[0] @ planes[1].T, *sums, 1e-9)
    for need in (np.zeros((m, 2 * n), dtype=np.uint8)[:, ::2], TRITON.empty((m, n), np.dtype(np.uint8))):
        histogram = TRITON.assess(*packed, *sums, 1e-9, need)
        assert (np.asarray(need) == expected).all()
        assert histogram.tolist() == np.bincount(expected.ravel(), minlength=256).tolist()


@pytest.mark.parametrize("wide", [False, True])
def test_bits_of_any_product(wide: bool) -> None:
    """Products and sums of all sizes, and ratios at and next to powers of two, in strided int32 and int64."""
    rng = np.random.default_rng(7)
    m, n = 33, 1100
    size = 2.0 ** rng.uniform(0, 50 if wide else 30.9, (m, n))
    products = (size * (rng.random((m, n)) < 0.9)).astype(np.int64 if wide else np.int32)
    rows, columns = ((2.0 ** rng.uniform(0, 44, v)).astype(np.uint64) for v in (m, n))
    rows[3], columns[[0, 1099]] = 0, 0
    rows[4], columns[1:40] = 1 << 20, (1 << 20) - 1  # sums of 2^21
    products[4, 1:40] = 1 << np.arange(39) % 31
    # The last factor's 2^-40 is taken off again: ratios that it lifts beyond a power of two or exactly onto one.
    for budget in (2.0**-30, 2.0**-30 * (1 + 2.0**-40), 2.0**-30 * (1 + 2.0**-39), 1e-15):
        histogram = torch.zeros(256, dtype=torch.int64)
        need = survey.assess_bits(
            torch.from_numpy(products.T.copy()).T,
            torch.from_numpy(rows.astype(np.int64)),
            torch.from_numpy(columns.astype(np.int64)),
            budget,
            histogram,
        )
        expected = needed_bits(products.astype(np.float64), rows, columns, budget)
        assert (need.numpy().view(np.uint8) == expected).all()
        assert histogram.tolist() == np.bincount(expected.ravel(), minlength=256).tolist()
    assert len(np.unique(expected)) > 20
