"""The grading tests of Demmel et al. (2024), "How to grade the accuracy of an implementation of the BLAS", and more.

Grade A is |C − AB| ≤ k·u·|A||B| elementwise. Errors are measured in exact arithmetic, on sampled rows where n is large.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from matmul.checks import assert_bits, assert_componentwise, assert_normwise, largest_growth, sample
from matmul.inputs import floats
from matmul.oracles import Array, binary, correctly_rounded

Matmul = Callable[..., Any]
REAL = [np.dtype("f4"), np.dtype("f8")]
real = pytest.mark.parametrize("dtype", REAL, ids=str)
grade_a = pytest.mark.parametrize("accuracy", ["fp64", "exact"])
# D's exponents: products of two scaled entries and n of them added stay inside the format.
SAFE = {REAL[0]: 56, REAL[1]: 500}
ROWS_CHECKED = 12


def sizes(engine: str, largest: int) -> list[int]:
    return [n for n in (16, 50, 128, 256, 512, 1024) if n <= (largest if engine == "native" else 50)]


def checked(c: Array, a: Array, b: Array, seed: int = 0) -> Iterator[tuple[Array, Array, Array]]:
    """A sample of rows, and a sample of columns, of the product."""
    rng = np.random.default_rng(seed)
    rows = sample(a.shape[0], rng, ROWS_CHECKED)
    yield c[rows], a[rows], b
    if len(rows) < a.shape[0]:
        columns = sample(b.shape[1], rng, ROWS_CHECKED)
        yield c[:, columns], a, b[:, columns]


def assert_grade(c: Array, a: Array, b: Array, accuracy: str) -> None:
    for part, left, right in checked(c, a, b):
        if accuracy == "exact":
            assert_bits(part, correctly_rounded(left, right))
        else:
            assert_componentwise(part, left, right)


@grade_a
@real
def test_complementary_sparsity_gives_exact_zeros(mm: Matmul, engine: str, dtype: np.dtype[Any], accuracy: str) -> None:
    """Rows of A and columns of B with disjoint supports, among values of the whole safe range where n is small."""
    rng = np.random.default_rng(31)
    for n in sizes(engine, 1024):
        reach = SAFE[dtype] if n <= 128 else 20
        a, b = floats(rng, (n, n), -reach, reach, dtype), floats(rng, (n, n), -reach, reach, dtype)
        support = rng.random(n) < 0.5
        rows, columns = rng.random(n) < 0.5, rng.random(n) < 0.5
        a[np.ix_(rows, ~support)] = 0
        b[np.ix_(support, columns)] = 0
        c = mm(a, b, accuracy=accuracy)
        assert not c[np.ix_(rows, columns)].any()
        if n <= 128:
            assert_grade(c, a, b, accuracy)


@grade_a
@real
def test_circulant_of_scaled_vectors(mm: Matmul, engine: str, dtype: np.dtype[Any], accuracy: str) -> None:
    """y = x·D against z = D^-1·x over the whole safe exponent range: within 10·k·u of each true value."""
    rng = np.random.default_rng(32)
    for n in sizes(engine, 256):
        x = 1 + rng.random(n)
        d = np.round(np.linspace(-SAFE[dtype], SAFE[dtype], n)).astype(np.int64)
        y, z = np.ldexp(x, d).astype(dtype), np.ldexp(x, -d).astype(dtype)
        shift = (np.arange(n)[None, :] - np.arange(n)[:, None]) % n
        a, b = y[shift], z[shift.T]
        c = mm(a, b, accuracy=accuracy)
        for part, left, right in checked(c, a, b):
            assert_componentwise(part, left, right, relative_to_value=10)
            assert_componentwise(part, left, right)
        if n == 16:
            assert_grade(c, a, b, accuracy)


@grade_a
@real
def test_shuffled_inner_scaling(mm: Matmul, engine: str, dtype: np.dtype[Any], accuracy: str) -> None:
    """A·D against D^-1·B with D shuffled, the last row of A and the last column of B multiplied by max D."""
    rng = np.random.default_rng(33)
    for n in sizes(engine, 256):
        d = rng.permutation(np.round(np.linspace(-SAFE[dtype], SAFE[dtype], n)).astype(np.int64))
        a, b = rng.random((n, n)) + 0.5, rng.random((n, n)) + 0.5
        a, b = np.ldexp(a, d[None, :]), np.ldexp(b, -d[:, None])
        a[-1], b[:, -1] = np.ldexp(a[-1], SAFE[dtype]), np.ldexp(b[:, -1], SAFE[dtype])
        a, b = a.astype(dtype), b.astype(dtype)
        assert np.isfinite(a).all()
        assert np.isfinite(b).all()
        c = mm(a, b, accuracy=accuracy)
        for part, left, right in checked(c, a, b):
            assert_componentwise(part, left, right)
        if n == 16:
            assert_grade(c, a, b, accuracy)


def distribution(name: str, rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    if name == "uniform":
        return rng.random((n, n)), rng.random((n, n))
    if name == "symmetric":
        return rng.uniform(-1, 1, (n, n)), rng.uniform(-1, 1, (n, n))
    if name == "normal":
        return rng.standard_normal((n, n)), rng.standard_normal((n, n))
    if name == "harmonic":
        hilbert = 1.0 / (np.arange(n)[:, None] + np.arange(n)[None, :] + 1)
        return hilbert, hilbert[:, ::-1].copy()
    phi = float(name.removeprefix("lognormal"))
    a, b = ((rng.random((n, n)) - 0.5) * np.exp(phi * rng.standard_normal((n, n))) for _ in range(2))
    return a, b


@grade_a
@real
@pytest.mark.parametrize(
    "name", ["uniform", "symmetric", "normal", "harmonic", "lognormal0.5", "lognormal2", "lognormal4"]
)
def test_growth_is_at_most_linear(mm: Matmul, engine: str, name: str, dtype: np.dtype[Any], accuracy: str) -> None:
    """max |C − AB| / (2u·|A||B|) stays below k/2 and its slope in log-log below 1."""
    largest = 1024 if dtype == "f8" and accuracy == "fp64" and name in ("normal", "lognormal4") else 256
    growth, ns = [], sizes(engine, largest)
    for n in ns:
        rng = np.random.default_rng([34, n])
        a, b = (x.astype(dtype) for x in distribution(name, rng, n))
        c = mm(a, b, accuracy=accuracy)
        assert c.dtype == dtype
        parts = list(checked(c, a, b, n))
        growth.append(max(largest_growth(*part) for part in parts))
        assert growth[-1] <= (n / 2 if accuracy == "fp64" else 0.5)
        if accuracy == "exact":
            assert_bits(parts[0][0], correctly_rounded(*parts[0][1:]))
    if len(ns) > 2:
        # A growth of exactly 0 would have no logarithm; 2^-20 of a unit roundoff is as good as none.
        slope = np.polyfit(np.log2(ns), np.log2(np.maximum(growth, 2.0**-20)), 1)[0]
        assert slope <= 1


@real
@pytest.mark.parametrize("name", ["uniform", "normal", "harmonic", "lognormal0.5", "lognormal4"])
def test_fast_keeps_its_own_contract(mm: Matmul, engine: str, name: str, dtype: np.dtype[Any]) -> None:
    for n in sizes(engine, 512):
        a, b = (x.astype(dtype) for x in distribution(name, np.random.default_rng([35, n]), n))
        c = mm(a, b, accuracy="fast")
        for part in checked(c, a, b, n):
            assert_normwise(*part)


@real
def test_fast_where_the_range_is_wide(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """The normwise bound holds per row and per column, also when those differ by the whole range."""
    rng = np.random.default_rng(36)
    half = SAFE[dtype] // 2
    a, b = floats(rng, (30, 40), -half, half, dtype), floats(rng, (40, 30), -half, half, dtype)
    assert_normwise(mm(a, b, accuracy="fast"), a, b)
    a, b = floats(rng, (30, 40), -2, 2, dtype), floats(rng, (40, 30), -2, 2, dtype)
    a = np.ldexp(a, rng.integers(-half, half, (30, 1)))
    b = np.ldexp(b, rng.integers(-half, half, (1, 30)))
    assert_normwise(mm(a, b, accuracy="fast"), a, b)


@grade_a
@real
def test_a_huge_entry_facing_a_zero_row(mm: Matmul, engine: str, dtype: np.dtype[Any], accuracy: str) -> None:
    for n in sizes(engine, 256):
        rng = np.random.default_rng([37, n])
        a, b = rng.standard_normal((n, n)).astype(dtype), rng.standard_normal((n, n)).astype(dtype)
        a[1, 3], b[3] = 1e30, 0
        a[:, 5], b[5, 2] = 0, -1e30
        assert_grade(mm(a, b, accuracy=accuracy), a, b, accuracy)


@grade_a
@real
def test_a_huge_entry_facing_a_tiny_row(mm: Matmul, engine: str, dtype: np.dtype[Any], accuracy: str) -> None:
    for n in sizes(engine, 128):
        rng = np.random.default_rng([38, n])
        a, b = rng.standard_normal((n, n)).astype(dtype), rng.standard_normal((n, n)).astype(dtype)
        a[1, 3], b[3] = 1e30, b[3] * 1e-35
        a[2, 7], b[7, 4] = 1e36, 1e-36
        assert_grade(mm(a, b, accuracy=accuracy), a, b, accuracy)


@real
def test_cancellation(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """x − x + tiny is tiny when correctly rounded, however far apart they are, wherever they stand."""
    fmt, rng = binary(dtype), np.random.default_rng(39)
    for k in (3, 64, 200):
        for far in (0, fmt.p, 100, SAFE[dtype]):
            big, tiny = floats(rng, (8, 1), far, far, dtype), floats(rng, (8, 1), -far, -far, dtype)
            a = np.zeros((8, k), dtype=dtype)
            for i in range(8):
                one, other, third = rng.choice(k, 3, replace=False)
                a[i, one], a[i, other], a[i, third] = big[i, 0], -big[i, 0], tiny[i, 0]
            ones = np.ones((k, 3), dtype=dtype)
            assert_bits(mm(a, ones, accuracy="exact"), np.repeat(tiny, 3, axis=1))
            assert_bits(mm(ones.T, a.T, accuracy="exact"), np.repeat(tiny, 3, axis=1).T)
            assert_componentwise(mm(a, ones), a, ones)
    for n in (10, 40):
        half = floats(rng, (n, n), -20, 20, dtype)
        a = np.concatenate([half, half * np.asarray(1, dtype), floats(rng, (n, 1), -60, -60, dtype)], axis=1)
        b = np.concatenate([half, -half, floats(rng, (1, n), -40, -40, dtype)], axis=0)
        want = (a[:, -1:].astype("f8") * b[-1:].astype("f8")).astype(dtype)
        assert_bits(mm(a, b, accuracy="exact"), want)
        assert_componentwise(mm(a, b), a, b)


@real
@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact"])
@pytest.mark.parametrize("k", [0, 1, 2**17 + 1])
def test_depths(mm: Matmul, dtype: np.dtype[Any], accuracy: str, k: int) -> None:
    rng = np.random.default_rng(40)
    a, b = floats(rng, (3, k), -4, 4, dtype), floats(rng, (k, 2), -4, 4, dtype)
    c = mm(a, b, accuracy=accuracy)
    if accuracy == "fast":
        assert_normwise(c, a, b)
    elif accuracy == "fp64":
        assert_componentwise(c, a, b)
    else:
        assert_bits(c, correctly_rounded(a, b))
    largest = np.full((2, k), np.nextafter(np.asarray(2, dtype), np.asarray(1, dtype)))
    for right in (largest.T, -largest.T):  # every product is as large as the exponents allow
        c = mm(largest, right, accuracy=accuracy)
        (assert_normwise if accuracy == "fast" else assert_componentwise)(c, largest, right)
        if accuracy == "exact":
            assert_bits(c, correctly_rounded(largest, right))


@real
@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact"])
@pytest.mark.parametrize("name", ["uniform", "normal", "lognormal4"])
def test_scaling_by_powers_of_two_changes_no_bit(mm: Matmul, accuracy: str, dtype: np.dtype[Any], name: str) -> None:
    """arXiv 2606.29129: a scaling that is not invariant overflows the residue window for some powers of two."""
    n, reach = 33, 40 if dtype == "f4" else 400
    a, b = (x.astype(dtype) for x in distribution(name, np.random.default_rng(41), n))
    c = mm(a, b, accuracy=accuracy)
    assert np.isfinite(c).all()
    for s in (1, -1, 2, 3, 7, 8, -9, 30, reach, -reach):
        for t in (0, 1, -s):
            if abs(s + t) <= reach:
                got = mm(np.ldexp(a, s), np.ldexp(b, t), accuracy=accuracy)
                assert_bits(got, np.ldexp(c, s + t))


@real
def test_scaling_of_rows_and_columns(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """D·A and B·E with different powers of two: exact and fast keep their bits, fp64 its bound."""
    rng = np.random.default_rng(42)
    reach = SAFE[dtype] // 2
    a, b = (x.astype(dtype) for x in distribution("normal", rng, 30))
    d, e = rng.integers(-reach, reach, (30, 1)), rng.integers(-reach, reach, (1, 30))
    left, right = np.ldexp(a, d), np.ldexp(b, e)
    for accuracy in ("fast", "exact"):
        assert_bits(mm(left, right, accuracy=accuracy), np.ldexp(mm(a, b, accuracy=accuracy), d + e))
    assert_componentwise(mm(left, right), left, right)
    inner = rng.integers(-reach, reach, 30)
    left, right = np.ldexp(a, inner[None, :]), np.ldexp(b, -inner[:, None])
    assert_bits(mm(left, right, accuracy="exact"), mm(a, b, accuracy="exact"))
    assert_componentwise(mm(left, right), left, right)
