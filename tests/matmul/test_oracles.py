"""The oracles agree with sources that share no code with them: math.fsum, CPython's division, NumPy, IEEE loops."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from matmul.checks import assert_bits, assert_componentwise, assert_normwise, largest_growth
from matmul.inputs import INTEGER_DTYPES, LAYOUTS, floats, integers
from matmul.oracles import binary, correctly_rounded, exact_product, int_matmul, round_scaled, stacked


def test_rounding_to_float64_is_cpythons_division() -> None:
    rng = np.random.default_rng(1)
    for _ in range(4000):
        n = int(rng.integers(1, 2**62)) >> int(rng.integers(0, 61))
        n = n << int(rng.integers(0, 60)) | int(rng.integers(0, 2))
        e = int(rng.integers(-1200, 1000))
        try:
            want = float(n << e) if e >= 0 else n / (1 << -e)
        except OverflowError:
            want = math.inf
        assert round_scaled(n, e, binary("f8")) == want
        assert round_scaled(-n, e, binary("f8")) == -want


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_rounding_gives_the_nearest_neighbour_and_ties_to_even(dtype: str) -> None:
    """By the definition: on both sides of every midpoint between neighbours, subnormals and the largest included."""
    fmt, rng = binary(dtype), np.random.default_rng(2)
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    top = int(np.array(np.finfo(dtype).max).view(unsigned))
    patterns = [0, 1, 2, 3, (1 << (fmt.p - 1)) - 1, 1 << (fmt.p - 1), top - 1]
    patterns += [int(v) for v in rng.integers(0, top, size=500)]
    for pattern in patterns:
        low, high = (Fraction(float(np.array(v, unsigned).view(dtype))) for v in (pattern, pattern + 1))
        middle = (low + high) / 2
        for value, want in (
            (low, low),
            (middle - (high - low) / 1000003 // Fraction(1, 2**1200) * Fraction(1, 2**1200), low),
            (middle, low if pattern % 2 == 0 else high),
            (middle + (high - low) / 1024, high),
        ):
            e = -value.denominator.bit_length() + 1
            assert Fraction(round_scaled(value.numerator, e, fmt)) == want
    largest, half = Fraction(float(np.finfo(dtype).max)), Fraction(2) ** (fmt.emax - fmt.p)
    assert round_scaled(int(largest + half) * 2 - 1, -1, fmt) == largest
    assert round_scaled(int(largest + half), 0, fmt) == math.inf
    assert round_scaled(-int(largest + half), 0, fmt) == -math.inf


def test_integer_products_are_numpys_and_fractions() -> None:
    rng = np.random.default_rng(3)
    for m, n, k in itertools.product((0, 1, 2, 7), repeat=3):
        a, b = rng.integers(-1000, 1000, (m, k)), rng.integers(-1000, 1000, (k, n))
        assert (int_matmul(a, b) == a @ b).all()
    big = [[int(v) << 90 | 12345 for v in row] for row in rng.integers(-9, 9, (3, 4))]
    product = int_matmul(np.array(big, dtype=object), np.array(big, dtype=object).T)
    assert product.tolist() == [[sum(x * y for x, y in zip(r, s, strict=True)) for s in big] for r in big]


def test_rounded_products_are_fsums() -> None:
    """With 26-bit significands each product is exact in float64 and math.fsum rounds their sum once."""
    rng = np.random.default_rng(4)
    for low, high in ((-2, 2), (-60, 60), (-250, 250)):
        a, b = floats(rng, (5, 33), low, high, zeros=0.1), floats(rng, (33, 6), low, high, zeros=0.1)
        a, b = (np.ldexp(np.trunc(np.ldexp(f, 26)), e - 26) for f, e in map(np.frexp, (a, b)))
        want = [[math.fsum(x * y for x, y in zip(row, col, strict=True)) for col in b.T] for row in a]
        assert_bits(correctly_rounded(a, b), np.array(want))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rounded_products_are_fractions(dtype: str) -> None:
    fmt, rng = binary(dtype), np.random.default_rng(5)
    a = floats(rng, (4, 6), fmt.quantum, fmt.emax, dtype, zeros=0.1)
    b = floats(rng, (6, 4), -30, 30, dtype)
    exact = exact_product(a, b)
    c = correctly_rounded(a, b)
    for i, j in np.ndindex(4, 4):
        terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True)]
        scale = Fraction(2) ** int(exact.exponent[i, j])
        assert exact.value[i, j] * scale == sum(terms)
        assert exact.magnitude[i, j] * scale == sum(abs(t) for t in terms)
        total = sum(terms)
        want = round_scaled(total.numerator, 1 - total.denominator.bit_length(), fmt)
        assert c[i, j] == want


def test_special_values_are_those_of_an_ieee_loop() -> None:
    """On small integers, ±0, ±inf and NaN every step of the plain loop is exact, so the loop is the definition."""
    rng = np.random.default_rng(6)
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan])
    for k in (1, 2, 3, 5, 9):
        for weights in ([4, 4, 3, 3, 3, 1, 1, 0.3], [3, 5, 0, 0, 0, 0, 0, 0], [5, 5, 1, 1, 0, 0.2, 0, 0]):
            p = np.array(weights) / sum(weights)
            a, b = rng.choice(values, (30, k), p=p), rng.choice(values, (k, 30), p=p)
            want = np.empty((30, 30))
            with np.errstate(invalid="ignore"):
                for i, j in np.ndindex(30, 30):
                    total = a[i, 0] * b[0, j]
                    for t in range(1, k):
                        total = total + a[i, t] * b[t, j]
                    want[i, j] = total
            assert_bits(correctly_rounded(a, b), want)


def test_a_product_of_finite_numbers_is_finite() -> None:
    a, b = np.array([[1e308, -np.inf]]), np.array([[1e308], [1.0]])
    assert correctly_rounded(a, b)[0, 0] == -np.inf


def test_bounds_notice_an_error_just_beyond_them() -> None:
    rng = np.random.default_rng(7)
    for dtype in ("f4", "f8"):
        a, b = floats(rng, (3, 8), -3, 3, dtype), floats(rng, (8, 3), -3, 3, dtype)
        c, exact, u = correctly_rounded(a, b), exact_product(a, b), 2.0 ** -binary(dtype).p
        assert_componentwise(c, a, b)
        assert_normwise(c, a, b)
        magnitude = np.abs(a.astype("f8")) @ np.abs(b.astype("f8"))
        assert 0 < largest_growth(c, a, b) <= 0.5
        steps = np.ceil(8 * u * magnitude[1, 1] / np.spacing(np.abs(c[1, 1]))) + 1
        wrong = c.copy()
        wrong[1, 1] += steps * np.spacing(np.abs(c[1, 1]))
        with pytest.raises(AssertionError, match=r"C\[1, 1\]"):
            assert_componentwise(wrong, a, b)
        assert largest_growth(wrong, a, b) > 4
        peak = float(np.abs(a[2]).max() * np.abs(b[:, 0]).max())
        wrong = c.copy()
        wrong[2, 0] += np.asarray(16.5 * u * peak, dtype) + 2 * np.spacing(np.abs(wrong[2, 0]))
        with pytest.raises(AssertionError, match=r"C\[2, 0\]"):
            assert_normwise(wrong, a, b)
        wrong = c.copy()
        wrong[0, 2] = np.inf
        with pytest.raises(AssertionError):
            assert_componentwise(wrong, a, b)
        assert exact.k == 8


def test_stacks_and_vectors_are_numpys() -> None:
    rng = np.random.default_rng(8)
    shapes = [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((4, 1, 2, 3), (5, 3, 2)),
        ((3,), (2, 3, 2)),
        ((0, 2, 3), (3, 1)),
    ]
    for left, right in shapes:
        a, b = rng.integers(-5, 5, left), rng.integers(-5, 5, right)
        got = stacked(lambda x, y: int_matmul(x, y).astype(np.int64), a, b)
        assert_bits(got, np.asarray(a @ b))


def test_layouts_keep_the_values() -> None:
    rng = np.random.default_rng(9)
    for dtype in [*INTEGER_DTYPES, np.dtype("f4"), np.dtype("f8"), np.dtype(object)]:
        for shape in ((3, 4), (5,), (2, 3, 4), (0, 3)):
            x = integers(rng, shape, "i1").astype(dtype)
            for name, lay in LAYOUTS.items():
                y = lay(x)
                assert y.shape == x.shape, name
                assert (y == x).all(), name
