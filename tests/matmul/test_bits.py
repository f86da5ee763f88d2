"""Contract of gm.Bits(n): the product of operands rounded to n bits below their largest magnitude, rounded once.

Oracle: Fractions rounded by Python (ties to even), exact integer products, one rounding.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmulate as gm
from matmul.checks import _assert_bound, assert_bits, assert_normwise
from matmul.inputs import floats
from matmul.oracles import Array, _sign_of_zeros, apply_special_values, binary, exact_product, int_matmul, round_scaled

Matmul = Callable[..., Any]
TYPES = [np.dtype(t) for t in ("f2", ml_dtypes.bfloat16, "f4", "f8")]
BITS = (1, 2, 3, 7, 8, 11, 14, 15, 16, 24, 53, 54, 90, 128)
types = pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)


def rounded_rows(x: Array, n: int) -> tuple[Array, Array]:
    """Integers and one exponent for each row: x to the nearest multiple of 2^(e − n), max|row| in [2^(e−1), 2^e)."""
    wide = np.where(np.isfinite(x.astype("f8")), x.astype("f8"), 0.0)
    integers, exponents = np.zeros(x.shape, dtype=object), np.zeros(len(x), dtype=object)
    for i, row in enumerate(wide):
        largest = max((abs(Fraction(float(v))) for v in row), default=Fraction(0))
        if largest:
            e = largest.numerator.bit_length() - largest.denominator.bit_length() + 1
            exponents[i] = (e if largest < Fraction(2) ** e else e + 1) - n
            assert Fraction(2) ** (exponents[i] + n - 1) <= largest < Fraction(2) ** (exponents[i] + n)
            integers[i] = [round(Fraction(float(v)) / Fraction(2) ** exponents[i]) for v in row]
    return integers, exponents


def oracle(a: Array, b: Array, n: int) -> Array:
    dtype = np.result_type(a, b)
    with np.errstate(invalid="ignore"):
        left, row = rounded_rows(a, n)
        right, column = rounded_rows(b.T, n)
        exact, exponent = int_matmul(left, right.T), row[:, None] + column[None, :]
        value = np.frompyfunc(lambda v, e: round_scaled(v, e, binary(dtype)), 2, 1)(exact, exponent).astype("f8")
        wide_a, wide_b = a.astype("f8"), b.astype("f8")
        value = np.where(_sign_of_zeros(wide_a, wide_b) & (exact == 0), -0.0, value)
        return np.asarray(apply_special_values(value, wide_a, wide_b).astype(dtype))


def assert_promised(c: Array, a: Array, b: Array, n: int) -> None:
    """|C − AB| ≤ (2^(1−n) + 2^(−2n)) k α β + u |A'B'|, with |A'B'| ≤ (1 + 2^-n)² k α β where it counts."""
    exact, u = exact_product(a, b), Fraction(1, 2 ** binary(c.dtype).p)
    left, row = rounded_rows(a, n)
    right, column = rounded_rows(b.T, n)
    product = int_matmul(left, right.T)
    numerators = np.zeros(c.shape, dtype=object)
    exponents = np.zeros(c.shape, dtype=object)
    for i, j in np.ndindex(*c.shape):
        alpha, beta = (max(abs(Fraction(float(v))) for v in x) for x in (a[i], b[:, j]))
        bound = (Fraction(2) ** (1 - n) + Fraction(2) ** (-2 * n)) * exact.k * alpha * beta
        bound += u * abs(int(product[i, j])) * Fraction(2) ** (row[i] + column[j])
        numerators[i, j] = bound.numerator
        exponents[i, j] = 1 - bound.denominator.bit_length()
    _assert_bound(c, exact, numerators, exponents, f"the bound of Bits({n})")


@types
@pytest.mark.parametrize("n", BITS)
def test_the_product_of_the_rounded_operands(mm: Matmul, is_fast: bool, dtype: np.dtype[Any], n: int) -> None:
    fmt, rng = binary(dtype), np.random.default_rng(n)
    for spread in (0, 15, 60):
        high, low = min(spread, fmt.emax), max(-spread, fmt.quantum)
        for m, k, columns in ((1, 1, 1), (14, 70, 34) if is_fast and n in (2, 11, 54) else (3, 20, 5)):
            a, b = floats(rng, (m, k), low, high, dtype, zeros=0.1), floats(rng, (k, columns), low, high, dtype)
            got = mm(a, b, accuracy=gm.Bits(n))
            assert_bits(got, oracle(a, b, n))
            if np.isfinite(got.astype("f8")).all():
                assert_promised(got, a, b, n)


@pytest.mark.parametrize(("dtype", "n"), [(np.float64, 54), (np.float32, 25)])
@pytest.mark.parametrize("largest", [1.0, 1.5, 1.999])
def test_one_bit_more_than_the_type_keeps_the_bound_of_fast(mm: Matmul, dtype: type, n: int, largest: float) -> None:
    """Also where every entry but the largest lies just below a quarter of a power of two and loses half a place."""
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((70, 65), (65, 66)))
    assert_normwise(mm(a, b, accuracy=gm.Bits(n)), a, b)
    x = np.full((66, 90), 0.25 * (1 - 2.0 ** (2 - n)), dtype=dtype)  # half of the last place kept below 2^-2
    x[::2, 1] = -x[::2, 1]
    x[:, 0] = largest
    got = mm(x, x.T, accuracy=gm.Bits(n))
    assert_normwise(got, x, x.T)
    assert (got != mm(x, x.T, accuracy="exact")).any()


@pytest.mark.parametrize("n", [1, 2, 5, 14, 15, 20])
def test_ties_and_carries(mm: Matmul, n: int) -> None:
    """Entries half way between kept values, and ones that round up to a power of two: |a'| = 2^n."""
    top, unit = 1.0, 2.0**-n
    row = [top - unit / 2, unit / 2, -unit / 2, 3 * unit / 2, unit / 2 * (1 + 2.0**-30), 5 * unit / 2, top / 2]
    a = np.array([row, [-v for v in row], [top - unit / 4] * 7])
    assert_bits(mm(a, a.T, accuracy=gm.Bits(n)), oracle(a, a.T, n))
    deep = np.full((2, 3000), np.nextafter(1.0, 0.0))  # every integer and every sum as large as it gets
    assert_bits(mm(deep, deep.T, accuracy=gm.Bits(n)), np.full((2, 2), 3000.0))


@types
def test_special_values_zeros_and_empty_shapes(mm: Matmul, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(61)
    pool = np.array([0.0, -0.0, 2.0**-10, -3.0, np.inf, -np.inf, np.nan], dtype=dtype)
    for n in (1, 8, 40):
        for k in (1, 2, 6):
            a, b = rng.choice(pool, (20, k)), rng.choice(pool, (k, 20))
            assert_bits(mm(a, b, accuracy=gm.Bits(n)), oracle(a, b, n))
        for m, k, columns in ((0, 3, 2), (2, 0, 3), (2, 3, 0)):
            got = mm(np.ones((m, k), dtype), np.ones((k, columns), dtype), accuracy=gm.Bits(n))
            assert_bits(got, np.zeros((m, columns), dtype))


def test_extreme_ranges(mm: Matmul) -> None:
    rng = np.random.default_rng(62)
    for n in (1, 14, 60, 128):
        for low, high in ((-1074, -1000), (-1074, 1023), (900, 1023)):
            a, b = floats(rng, (4, 9), low, high), floats(rng, (9, 3), low, high)
            assert_bits(mm(a, b, accuracy=gm.Bits(n)), oracle(a, b, n))
            c = floats(rng, (9, 3), -high, min(-low, 1023))
            assert_bits(mm(a, c, accuracy=gm.Bits(n)), oracle(a, c, n))


def test_stacks_complex_and_enough_bits(mm: Matmul) -> None:
    rng = np.random.default_rng(63)
    a, b = floats(rng, (3, 4, 5), -2, 2), floats(rng, (5, 6), -2, 2)
    got = mm(a, b, accuracy=gm.Bits(9))
    for index in range(3):
        assert_bits(got[index], oracle(a[index], b, 9))
    assert_bits(mm(a, b, accuracy=gm.Bits(60)), mm(a, b, accuracy="exact"))
    z = a[0] + 1j * floats(rng, (4, 5), -9, 9)
    product = mm(z, b, accuracy=gm.Bits(12))
    left = np.concatenate((z.real, -z.imag), axis=1)
    assert_bits(product.real.copy(), oracle(left, np.concatenate((b, np.zeros_like(b))), 12))
    integers = rng.integers(-(2**40), 2**40, (4, 4))
    assert_bits(mm(integers, integers, accuracy=gm.Bits(1), overflow="wrap"), integers @ integers)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 128), spread=st.sampled_from([0, 3, 20, 300]))
def test_any_number_of_bits(mm: Matmul, seed: int, n: int, spread: int) -> None:
    rng = np.random.default_rng(seed)
    m, k, columns = rng.integers(1, 12, 3)
    a, b = floats(rng, (m, k), -spread, spread, zeros=0.2), floats(rng, (k, columns), -spread, spread)
    got = mm(a, b, accuracy=gm.Bits(n))
    assert_bits(got, oracle(a, b, n))
    assert_promised(got, a, b, n)


def test_the_number_is_checked_and_shown() -> None:
    for bad in (0, 129, -1):
        with pytest.raises(ValueError, match=f"n = {bad} is not in 1 … 128"):
            gm.Bits(bad)
    for bad in (True, 3.0, "8", None):
        with pytest.raises(TypeError, match="n = "):
            gm.Bits(bad)
    assert gm.Bits(np.int64(7)) == gm.Bits(7)
    plan = gm.plan(np.ones((3, 4)) / 3, np.ones((4, 2)) / 3, accuracy=gm.Bits(11))
    assert plan.bits == (11, 11)
    assert plan.products <= 4
    assert '"accuracy": "Bits(11)"' in plan.to_json()
    assert "2^-10" in plan.exactness
    assert (plan.run(np.ones((3, 4)), np.ones((4, 2))) == 4).all()
    with pytest.raises(ValueError, match=r"gm\.Bits\(n\)"):
        gm.matmul(np.ones((2, 2)), np.ones((2, 2)), accuracy=8)  # type: ignore[arg-type]
