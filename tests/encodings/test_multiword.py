"""Integers of a few words in NumPy: every operation against Python integers, every rounding against exact rationals."""

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmulate as gm
from gemmulate import encodings, formats
from gemmulate.engines.reference import round_products
from gemmulate.schemes.encoded_engine import EncodedEngine
from gemmulate.schemes.multiword import Remainders, Words, recombine, round_words

DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
EDGES = [0, 1, -1, 2**31, -(2**31), 2**32 - 1, 2**32, -(2**32), 2**63 - 1, -(2**63), 2**64, -(2**64) - 1]


def column(values: list[int]) -> np.ndarray[Any, Any]:
    out = np.empty((len(values), 1), dtype=object)
    out[:, 0] = values
    return out


def integers(seed: int, count: int = 400, bits: int = 200) -> list[int]:
    """Integers of every width, and such whose set bits are few: ties and almost ties of any rounding."""
    rng = np.random.default_rng(seed)
    found = list(EDGES)
    for _ in range(count):
        width = int(rng.integers(1, bits))
        value = int.from_bytes(rng.bytes(32), "little") >> (256 - width)
        places = [int(rng.integers(0, width)) for _ in range(3)]
        sparse = (1 << width) + sum(1 << p for p in places[: int(rng.integers(0, 4))])
        found += [value, -value, sparse, -sparse, sparse + (1 << max(0, width - 53)), sparse | 1]
    return found


def test_words_are_python_integers() -> None:
    values = integers(1)
    words = Words.of_integers(column(values))
    assert words.to_objects()[:, 0].tolist() == values
    for count in (1, 2, 4, 9):
        low = words.doubles(count)[:, 0].tolist()
        for v, digits in zip(values, low, strict=True):
            assert sum(d << 64 * i for i, d in enumerate(digits)) == v % (1 << 64 * count)
    for p in (2, 3, 97, 2**29, 2**30 - 35, 2**31 - 1, 2**61 - 1, 2**63 - 25, 2**63):
        assert words.residues(p)[:, 0].tolist() == [v % p for v in values]
    for v, approximate in zip(values, words.approximate()[:, 0].tolist(), strict=True):
        assert abs(Fraction(approximate) - abs(v)) * 2**40 <= abs(v)
    single = np.array([[-(2**63), 2**63 - 1, -1, 0, 2**32]])
    assert Words.of_integers(single).to_objects().tolist() == single.tolist()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
def test_low_bits_wrap_and_bit_lengths_count_the_sign(dtype: type) -> None:
    for values in ([0], [-1], [1], [255, -256], [2**31], [-(2**31)], [2**63], [-(2**63)], [2**95, -(2**96)], EDGES):
        words = Words.of_integers(column(values))
        out = np.empty((len(values), 1), dtype=dtype)
        bits = words.store_low_bits(out)
        # The least n with −2^(n−1) ≤ v < 2^(n−1).
        assert bits == max(next(n for n in range(1, 200) if -(1 << n - 1) <= v < 1 << n - 1) for v in values)
        size = 8 * np.dtype(dtype).itemsize
        assert [int(x) % (1 << size) for x in out[:, 0]] == [v % (1 << size) for v in values]
    assert Words.of_integers(np.empty((0, 3), dtype=object)).largest_bits() == 0


MODULI = [(2, 3), (13, 17, 89), (8, 169, 2195), encodings.design(bits=53, k=16384, formats="fp4_e2m1").moduli]


@pytest.mark.parametrize("moduli", MODULI, ids=len)
def test_chinese_remainders_at_the_edges_of_the_window(moduli: tuple[int, ...]) -> None:
    whole = prod(moduli)
    half = whole // 2
    low = -half if whole % 2 else 1 - half
    rng = np.random.default_rng(2)
    values = [v for v in (0, 1, -1, half, half - 1, low, low + 1) if low <= v <= half]
    # 2^-60 P from the edge is beyond what float64's quotient can tell from it.
    values += [v for d in (2, 3, 10**6, whole >> 60, whole >> 27) for v in (half - d, low + d) if low <= v <= half]
    values += [int(rng.integers(0, 2**63)) * whole // 2**63 + low for _ in range(200)]
    residues = [np.array([[v % m for v in values]]) for m in moduli]
    assert recombine(residues, moduli).tolist() == [values]


def test_moduli_beyond_float64_are_refused() -> None:
    with pytest.raises(ValueError, match="take smaller ones"):
        Remainders.of((2**16 + 1, 3))


def exponents() -> Iterator[int]:
    yield from (0, -1, -60, -1000, -1074, -1100, -1250, 500, 900, 960, 1000)
    yield from (-149, -160, -140, -25, -24, -30, -133, -137, -220, 100, 104, 3, 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_is_that_of_exact_rationals(dtype: Any) -> None:
    values = integers(3, 120)
    exact = column(values)
    for exponent in exponents():
        got, want = (np.empty(exact.shape, dtype=dtype) for _ in range(2))
        rows = np.full(len(values), exponent + 7, dtype=np.int32)
        zero = np.zeros(len(values), dtype=np.int64), np.zeros(1, dtype=np.int64)
        columns = np.array([-7], dtype=np.int32)
        outcome = round_words(Words.of_integers(exact), rows, columns, got, None, zero)
        with np.errstate(over="ignore"):
            reference = round_products(exact, rows, columns, want, None, zero)
        assert got.tobytes() == want.tobytes()
        assert outcome.zeros == reference.zeros
        if dtype is np.float64:
            for v, x in zip(values, got[:, 0].tolist(), strict=True):
                try:
                    expected = float(Fraction(v) * Fraction(2) ** exponent)
                except OverflowError:
                    expected = float("inf") if v > 0 else float("-inf")
                assert x == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_doubtful_roundings_are_found(dtype: Any) -> None:
    """The same elements as the reference engine's Python integers find, and they are those with two roundings."""
    rng = np.random.default_rng(4)
    m, n = 37, 11
    base = integers(5, 80, 150)
    exact = np.array([base[i] for i in rng.integers(0, len(base), m * n)], dtype=object).reshape(m, n)
    rows, columns = rng.integers(0, 3, m) * rng.integers(0, 2**20, m), rng.integers(0, 2, n) * 5
    for check in ((0, 0), (20, 53), (60, 60), (120, 90)):
        for shift in (-60, -1080, 0):
            exponent = rng.integers(-20, 20, m).astype(np.int32) + np.int32(shift), np.arange(n, dtype=np.int32)
            got, want = (np.empty((m, n), dtype=dtype) for _ in range(2))
            found = round_words(Words.of_integers(exact), *exponent, got, check, (rows, columns))
            with np.errstate(over="ignore"):
                reference = round_products(exact, *exponent, want, check, (rows, columns))
            assert got.tobytes() == want.tobytes()
            assert found.uncertain.tolist() == reference.uncertain.tolist()
            assert found.zeros == reference.zeros


@pytest.mark.parametrize("name", ["fp8_e4m3", "fp6_e3m2", "fp4_e2m1"])
def test_no_product_is_deeper_than_the_accumulator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`matmul` hands the engine pieces that the format's accumulator sums exactly, at every depth and value."""
    seen: list[tuple[int, int]] = []
    plain = EncodedEngine.plane_product

    def spy(self: EncodedEngine, left: Any, right: Any) -> Any:
        out = plain(self, left, right)
        seen.append((left.shape[1], int(np.abs(left.astype(np.int64)).max() * np.abs(right.astype(np.int64)).max())))
        return out

    monkeypatch.setattr(EncodedEngine, "plane_product", spy)
    k = 2**18 + 3
    a = np.full((2, k), -(2**31), dtype=np.int64)
    b = np.full((k, 1), 2**31 - 1, dtype=np.int64)
    assert gm.matmul(a, b, formats=name, overflow="object").tolist() == [[-(2**31) * (2**31 - 1) * k]] * 2
    limit = formats.accumulator(formats.get(name).accumulator).sum_limit()
    assert all(depth * peak <= limit for depth, peak in seen)
    assert len(seen) > gm.plan(a, b, formats=name).products
