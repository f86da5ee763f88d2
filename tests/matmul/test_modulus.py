"""Contract: matmul(modulus=p) gives the exact residues in [0, p) as int64, for p in 2 … 2^63 and any integers.

Oracle: Python integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemmulate as gm

MODULI = [
    2,
    3,
    7,
    251,
    255,
    256,
    257,
    2**14,
    2**14 + 1,
    65521,
    65536,
    65537,
    2**21,
    2**26 - 5,
    2**31 - 1,
    2**32,
    2**61 - 1,
    2**62,
    2**63 - 25,
    2**63,
]
DTYPES = ["?", "i1", "u1", "i2", "i4", "u4", "i8", "u8", "O"]


def matrix(rng: np.random.Generator, dtype: str, shape: tuple[int, int]) -> Any:
    if dtype == "O":
        values = [int.from_bytes(rng.bytes(40), "little", signed=True) for _ in range(shape[0] * shape[1])]
        return np.array(values, dtype=object).reshape(shape)
    if dtype == "?":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    x[0], x[:, 0], x[1] = info.min, info.max, info.max
    return x


@pytest.mark.parametrize("p", MODULI)
@pytest.mark.parametrize("dtype", DTYPES)
def test_residues(engine: str, p: int, dtype: str) -> None:
    rng = np.random.default_rng(p % 1000)
    a, b = matrix(rng, dtype, (13, 33)), matrix(rng, dtype, (33, 17))
    got = gm.matmul(a, b, modulus=p, engine=engine)
    assert got.dtype == np.int64
    assert (got == a.astype(object) @ b.astype(object) % p).all()


def test_deep(engine: str) -> None:
    p, k = 2**63 - 25, 65_794
    a = np.full((2, k), p // 2)
    a[1] = -(p // 2)
    expected = [[k * (p // 2) ** 2 * s * t % p for t in (1, -1)] for s in (1, -1)]
    assert gm.matmul(a, a.T, modulus=p, engine=engine).tolist() == expected


@pytest.mark.parametrize("p", [251, 16381, 65521, 2**20 + 7, 2**26 - 5, 2**63 - 25])
def test_sizes_beyond_one_tile(engine: str, p: int) -> None:
    """Above 64³, where products leave the path of small ones; exact by float64 parts of 16 bits."""
    rng = np.random.default_rng(p % 1000)
    m, k, n = 131, 140, 150
    a, b = rng.integers(0, p, (m, k)), rng.integers(-p + 1, p, (k, n))
    parts = [(x >> 16 * i & 0xFFFF if i < 3 else x >> 48).astype(float) for x in (a, b) for i in range(4)]
    want = sum(
        (parts[i] @ parts[4 + j]).astype(np.int64).astype(object) << 16 * (i + j) for i in range(4) for j in range(4)
    )
    assert (gm.matmul(a, b, modulus=p, engine=engine) == want % p).all()


@pytest.mark.parametrize("p", [65521, 2**26 - 5, 2**61 - 1])
def test_widths_come_from_the_data(p: int) -> None:
    """Entries next to multiples of p take one product; one wide entry anywhere takes them all."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-9, 9, (70, 80)) % p, rng.integers(-9, 9, (80, 90))
    assert gm.plan(a, b, modulus=p).products == 1
    a[3, 7] = p // 2
    b[79, 1] = p // 3
    assert gm.plan(a, b, modulus=p).products > 1
    assert (gm.matmul(a, b, modulus=p) == a.astype(object) @ b.astype(object) % p).all()


@pytest.mark.parametrize("p", [97, 65521, 2**31 - 1])
def test_a_matrix_by_its_transpose(p: int) -> None:
    """Half of it is computed, and mirrored, from 768 rows on."""
    a = np.random.default_rng(1).integers(0, p, (770, 8))
    # Halves of 16 bits: sums stay below 2^51.
    want = ((a >> 16) @ a.T % p * (1 << 16) + (a & 0xFFFF) @ a.T) % p
    assert (gm.matmul(a, a.T, modulus=p) == want).all()


@pytest.mark.parametrize("p", [251, 65521, 2**31 - 1])
def test_prepared_operands(p: int) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, p, (80, 90)), rng.integers(0, p, (90, 100))
    kept = gm.prepare(b)
    for _ in range(2):
        assert (gm.matmul(a, kept, modulus=p) == a.astype(object) @ b.astype(object) % p).all()
    assert kept.nbytes > b.nbytes


def test_shapes_and_out(engine: str) -> None:
    a, b = np.arange(24).reshape(2, 3, 4), np.arange(4)
    assert (gm.matmul(a, b, modulus=7, engine=engine) == a @ b % 7).all()
    out = np.empty((2, 3), dtype=np.uint8)
    assert gm.matmul(a, b, modulus=7, out=out, engine=engine) is out
    assert (out == a @ b % 7).all()
    assert gm.matmul(np.empty((2, 0), int), np.empty((0, 3), int), modulus=5).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("p", [1, 0, -7, 2**63 + 1])
def test_moduli_out_of_range(p: int) -> None:
    with pytest.raises(ValueError, match=f"modulus = {p} "):
        gm.matmul([[1]], [[1]], modulus=p)


@pytest.mark.parametrize("p", [2.0, "7", True])
def test_moduli_that_are_no_integers(p: Any) -> None:
    with pytest.raises(TypeError, match="modulus"):
        gm.matmul([[1]], [[1]], modulus=p)


def test_floats_are_refused() -> None:
    with pytest.raises(TypeError, match="modulus = 7 needs integer operands"):
        gm.matmul([[1.0]], [[1.0]], modulus=7)
