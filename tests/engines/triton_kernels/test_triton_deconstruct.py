"""deconstruct: the symmetric residues of rint(x 2^(shift + inner)), as Python's fractions round it; the reduction, for
every sum that can occur."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem, symmetric
from gemmulate.engines.triton.deconstruct import deconstruct
from gemmulate.engines.triton.floating import layout_of

FLOATS = (np.float64, np.float32, np.float16)


def tensor(x: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def pattern(x: Any) -> torch.Tensor:
    """Bit patterns with the strides of x; torch has no negative ones."""
    return torch.from_numpy(x.view(f"i{x.itemsize}"))


def exact(x: float, exponent: int) -> Fraction:
    return Fraction(float(x)) * Fraction(2) ** exponent if np.isfinite(x) else Fraction(0)


def hostile(rng: np.random.Generator, dtype: type, shape: tuple[int, int]) -> Any:
    info = np.finfo(dtype)
    spread = min(40, info.maxexp // 3)
    x = (rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape)).astype(dtype)
    # Ties to even and next to them; carries through all digits; signed zeros, subnormals, the largest, NaN and inf.
    x[0, :8] = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, np.nextafter(dtype(0.5), dtype(0)), np.nextafter(dtype(0.5), dtype(1))]
    x[1, :5] = [0.0, -0.0, np.nan, np.inf, -np.inf]
    x[2, :4] = [info.smallest_subnormal, -info.smallest_subnormal, info.smallest_normal, -info.max]
    x[3] = 0
    x[4, :3] = [1 - 2.0**-8, -(1 - 2.0**-10), 2.0**-9]
    return x


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bits", [1, 13, 14, 41, 54, 55, 56, 62, 90, 111, 150, 200])
def test_residues_of_rounded_floats(dtype: type, bits: int) -> None:
    rng = np.random.default_rng(bits)
    system = ResidueSystem(INT8_MODULI[:6])
    x = hostile(rng, dtype, (9, 21))
    inner = rng.integers(-5, 5, 21).astype(np.int32)
    tops = [
        max(
            (np.frexp(float(t))[1] + int(e) for t, e in zip(row, inner, strict=True) if np.isfinite(t) and t), default=0
        )
        for row in x
    ]
    shift = (bits - np.array(tops)).astype(np.int32)
    for left in (True, False):
        planes, lost = deconstruct(
            pattern(x), layout_of(np.dtype(dtype).name), tensor(shift), tensor(inner), system, bits, left, True
        )
        values = [[exact(t, int(shift[v]) + int(inner[k])) for k, t in enumerate(row)] for v, row in enumerate(x)]
        assert max(abs(round(v)) for row in values for v in row) <= 1 << bits
        expected = [
            [[symmetric(round(v) * (inverse if left else 1), m) for v in row] for row in values]
            for m, inverse in zip(system.moduli, system.inverses, strict=True)
        ]
        assert planes.tolist() == expected
        assert lost is not None
        assert lost.tolist() == [sum(v.denominator != 1 for v in row) for row in values]


def test_every_count_of_moduli() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 5))
    shift = np.full(3, 60, dtype=np.int32)
    for count in (*range(1, 31), len(INT8_MODULI)):
        system = ResidueSystem(INT8_MODULI[:count])
        planes, lost = deconstruct(pattern(x), layout_of("float64"), tensor(shift), None, system, 64, False)
        values = [[round(exact(t, 60)) for t in row] for row in x]
        assert planes.tolist() == [[[symmetric(v, m) for v in row] for row in values] for m in system.moduli]
        assert lost is None


@pytest.mark.parametrize("shape", [(1, 1), (0, 4), (4, 0), (17, 129), (33, 3), (3, 517)])
def test_shapes_and_strides(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    system = ResidueSystem(INT8_MODULI[:3])
    base = rng.standard_normal((2 * shape[0], 3 * shape[1]))
    for x in (base[::2, ::3], base.reshape(3 * shape[1], 2 * shape[0]).T[::2, ::3]):
        shift = np.full(x.shape[0], 30, dtype=np.int32)
        planes, _ = deconstruct(pattern(x), layout_of("float64"), tensor(shift), None, system, 33, False)
        expected = [[[symmetric(round(exact(t, 30)), m) for t in row] for row in x] for m in system.moduli]
        assert planes.shape == (3, *shape)
        assert planes.tolist() == expected


def test_the_extremes_of_every_number_of_digits() -> None:
    """±2^bits, where the top digit is largest, and ±(2^bits − 1), where every digit carries."""
    system = ResidueSystem(INT8_MODULI[:4])
    for bits in (*range(1, 54), 55, 69, 83, 97, 111, 125, 139, 153):
        most = 2.0**bits - 2.0 ** (bits - min(bits, 53))
        x, shift = np.array([[2.0**bits, -(2.0**bits), most, -most]]), tensor(np.zeros(1, dtype=np.int32))
        planes, _ = deconstruct(pattern(x), layout_of("float64"), shift, None, system, bits, True)
        for m, inverse, plane in zip(system.moduli, system.inverses, planes.tolist(), strict=True):
            assert plane == [[symmetric(int(t) * inverse, m) for t in x[0]]], bits


@pytest.mark.parametrize("fused", [True, False])
def test_every_reduction(fused: bool) -> None:
    """t − m rint(t fl(1/m)) is the symmetric residue for all |t| ≤ 2^22 + 2^7, all moduli, t fl(1/m) rounded or not."""
    limit = (1 << 22) + (1 << 7)
    t = np.arange(-limit, limit + 1, dtype=np.float32)
    wide = t.astype(np.int64)
    rounder = np.float32(12582912)
    for m in INT8_MODULI:
        inverse = np.float32(1) / np.float32(m)
        if fused:
            # The product exactly, an integer times 2^-scale, and its nearest integer, ties to even.
            fraction, exponent = np.frexp(inverse)
            significand, scale = int(np.ldexp(fraction, 24)), 24 - int(exponent)
            product = wide * significand
            floor = product >> scale
            rest, half = product - (floor << scale), 1 << (scale - 1)
            quotient = (floor + ((rest > half) | ((rest == half) & (floor & 1 == 1)))).astype(np.float32)
        else:
            quotient = (t * inverse + rounder) - rounder
        residue = ((quotient * np.float32(-m) + t) + rounder).view(np.int32).astype(np.int8)
        assert (residue == (wide + m // 2) % m - m // 2).all(), m
