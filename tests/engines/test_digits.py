"""Products modulo p by digits, and what residue and direct products do of a modulus, against Python integers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmulate.engines import Engine, get_engine
from gemmulate.engines.digit_system import DigitSystem, digit_system
from gemmulate.engines.residue_system import residue_system

# The least and largest moduli of every kind of digits, and some between.
MODULI = [2, 3, 251, 255, 256, 257, 12289, 16381, 16384, 16385, 32749, 65521, 65535, 65536, 65537, 786433, 2**21]
WIDE = [2, 3, 4095, 4096, 4097, 65537, 2**31 - 1, 2**31, 2**40, 2**40 + 15, 2**62 + 1, 2**63 - 25, 2**63]
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def matrix(rng: np.random.Generator, dtype: str, shape: tuple[int, int], p: int) -> Any:
    """Any values, the dtype's least and largest, and those next to multiples of p and to halves of it."""
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    edges = [v + d for v in (0, p // 2, -(p // 2), p, -p, info.max, info.min, info.max // p * p) for d in (-1, 0, 1)]
    inside = [v for v in edges if info.min <= v <= info.max]
    x[0] = (inside * shape[1])[: shape[1]]
    x[-1, ::2] = 0
    return x


def product(a: Any, bt: Any, p: int) -> Any:
    """Entries reduced as Python ints; their products are summed in int64 where that holds every sum."""
    a, bt = (x.astype(object) % p for x in (a, bt))
    if a.shape[1] * (p - 1) ** 2 < 1 << 63:
        return a.astype(np.int64) @ bt.astype(np.int64).T % p
    return a @ bt.T % p


def systems(engine: Engine, p: int) -> list[DigitSystem]:
    """Every way in which digits hold p; none where the engine has no such products."""
    if engine.digits(p) is None:
        return []
    ways = (8, 1), (7, 2), (8, 2), (7, 3)
    return [DigitSystem(p, bits, digits) for bits, digits in ways if p <= 1 << bits * digits]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", MODULI)
def test_digits_of_any_integers(engine: Engine, p: int, dtype: str) -> None:
    if not systems(engine, p):
        pytest.skip("no products of digits")
    rng = np.random.default_rng(p)
    # Sizes around panels (12, 32), groups of them (96, 128) and blocks of the depth (128).
    for m, k, n in ((1, 1, 1), (13, 129, 33), (98, 130, 131)):
        a, b = matrix(rng, dtype, (m, k), p), matrix(rng, dtype, (n, k), p)
        for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b)), (a[::-1, ::3], b[:, ::3])):
            want = product(x, y, p)
            for system in systems(engine, p):
                out = np.full((m, 2 * n), -1)[:, ::2] if k == 129 else np.full((m, n), -1)
                engine.multiply_digits(
                    engine.pack_digits(True, x, system), engine.pack_digits(False, y, system), system, out
                )
                assert (out == want).all(), system


@pytest.mark.parametrize("p", [2, 256, 16384, 65536, 65521, 2**21])
@pytest.mark.parametrize("k", [32768, 32769, 65794])
def test_sums_of_largest_digits_to_any_depth(engine: Engine, p: int, k: int) -> None:
    if not systems(engine, p):
        pytest.skip("no products of digits")
    a, b = np.full((2, k), p - 1), np.full((3, k), p // 2)
    b[1], b[2] = -(p // 2), p // 2 - p // 256  # the right operand's digits are balanced: all least, or largest
    want = [[k * int(x) * int(y) % p for y in b[:, 0]] for x in a[:, 0]]
    for system in systems(engine, p):
        out = np.empty((2, 3), dtype=np.int64)
        engine.multiply_digits(engine.pack_digits(True, a, system), engine.pack_digits(False, b, system), system, out)
        assert out.tolist() == want


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_modulus_and_entries(data: st.DataObject) -> None:
    engine = get_engine("native", 1)
    p = data.draw(st.integers(2, 2**21))
    entries = st.integers(-(2**63), 2**63 - 1) | st.integers(-p, p) | st.sampled_from([p - 1, 1 - p, p // 2])
    rows = st.lists(entries, min_size=5, max_size=5)
    a, b = (np.array(data.draw(st.lists(rows, min_size=3, max_size=3)), dtype=np.int64) for _ in range(2))
    for system in systems(engine, p):
        out = np.empty((3, 3), dtype=np.int64)
        engine.multiply_digits(engine.pack_digits(True, a, system), engine.pack_digits(False, b, system), system, out)
        assert (out == product(a, b, p)).all()


def test_fewest_products() -> None:
    assert [(p, s.planes, s.products) for p in (256, 257, 2**14, 2**16, 2**21) if (s := digit_system(p))] == [
        (256, 1, 1),
        (257, 3, 3),
        (2**14, 3, 3),
        (2**16, 2, 4),
        (2**21, 6, 6),
    ]
    assert digit_system(2**21 + 1) is None


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("p", WIDE)
def test_residues_of_entries_that_are_reduced_on_the_way(engine: Engine, p: int, dtype: str) -> None:
    rng = np.random.default_rng(p % 999)
    m, k, n = 13, 67, 35
    a, b = matrix(rng, dtype, (m, k), p), matrix(rng, dtype, (n, k), p)
    bits, system = (p // 2).bit_length(), residue_system(k * (p // 2) ** 2)
    assert system is not None
    out = np.empty((m, n), dtype=np.int64)
    left, right = (engine.pack_reduced(side, x, system, bits, p) for side, x in ((True, a), (False, b)))
    engine.multiply_modular(left, right, system, p, out)
    assert (out == product(a, b, p)).all()


@pytest.mark.parametrize("p", WIDE)
@pytest.mark.parametrize("k", [3, 300])
def test_direct_products_modulo(engine: Engine, p: int, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = rng.integers(0, 256, (13, k), dtype=np.uint8), rng.integers(-128, 128, (34, k), dtype=np.int8)
    a[0], b[0], b[1] = 255, -128, 127
    for x, y, za, zb in ((a, b, 0, 0), (a.astype(np.int64) - 300, b.astype(np.int64) + 4000, -300, 4000)):
        out = np.empty((13, 34), dtype=np.int64)
        engine.multiply_direct(engine.pack_direct(True, x, za), engine.pack_direct(False, y, zb), out, p)
        assert (out == product(x, y, p)).all()


@pytest.mark.parametrize("p", [2, 65537, 2**31, 2**63])
def test_direct_products_beyond_the_depth_of_int32(engine: Engine, p: int) -> None:
    k = 65_794
    a, b = np.full((2, k), 255, dtype=np.uint8), np.full((2, k), -128, dtype=np.int8)
    a[1] = b[1] = 3
    out = np.empty((2, 2), dtype=np.int64)
    engine.multiply_direct(engine.pack_direct(True, a, 0), engine.pack_direct(False, b, 0), out, p)
    assert out.tolist() == [[k * x * y % p for y in (-128, 3)] for x in (255, 3)]
