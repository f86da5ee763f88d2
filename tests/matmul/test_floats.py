"""Float products: correctly rounded for "exact", IEEE's special values, zeros and subnormals for every accuracy."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matmul.checks import assert_bits, assert_componentwise, assert_normwise
from matmul.inputs import floats
from matmul.oracles import Array, binary, correctly_rounded

Matmul = Callable[..., Any]
REAL = [np.dtype("f4"), np.dtype("f8")]
ACCURACIES = ["fast", "fp64", "exact"]
# "fp32" is the float32 name of "fp64"; on float64 operands it promises nothing that is tested here.
GRADES = [(d, accuracy) for d in REAL for accuracy in ACCURACIES] + [(REAL[0], "fp32")]
grades = pytest.mark.parametrize(("dtype", "accuracy"), GRADES, ids=lambda v: str(v))
ELEMENTS = {d: hnp.from_dtype(d, allow_nan=True, allow_infinity=True, allow_subnormal=True) for d in REAL}


def check(mm: Matmul, a: Array, b: Array, **options: Any) -> None:
    """Every grade against its own contract, from one exact oracle."""
    assert_bits(mm(a, b, accuracy="exact", **options), correctly_rounded(a, b))
    for accuracy in ("fp64", "fp32") if np.result_type(a, b) == "f4" else ("fp64",):
        assert_componentwise(mm(a, b, accuracy=accuracy, **options), a, b)
    assert_normwise(mm(a, b, accuracy="fast", **options), a, b)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_exponent_ranges(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """From one binade to the whole range of the format, with and without zeros."""
    rng = np.random.default_rng(21)
    for half in (0, 1, 8, 20, 60) if dtype == "f4" else (0, 1, 8, 20, 60, 200, 500):
        for m, k, n in ((1, 1, 1), (4, 7, 5), (9, 40, 11)):
            for zeros in (0.0, 0.5):
                a, b = (floats(rng, s, -half, half, dtype, zeros=zeros) for s in ((m, k), (k, n)))
                check(mm, a, b)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_largest_significands(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """Every entry just below a power of two, products of one sign: each sum is as large as its exponents allow."""
    rng = np.random.default_rng(30)
    full = np.nextafter(np.asarray(1, dtype), np.asarray(0, dtype))
    for k in (1, 2, 3, 63, 64, 65, 257, 1025):
        for spread in (0, 1, 5, 30, 60):
            a = np.ldexp(full, -rng.integers(0, spread + 1, (3, k))).astype(dtype)
            b = -np.ldexp(full, -rng.integers(0, spread + 1, (k, 3))).astype(dtype)
            check(mm, a, b)
            a[1] *= np.where(np.arange(k) % 2, 1, -1).astype(dtype)
            check(mm, a, b)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_one_side_wide_the_other_narrow(mm: Matmul, dtype: np.dtype[Any]) -> None:
    fmt, rng = binary(dtype), np.random.default_rng(22)
    wide = floats(rng, (6, 30), fmt.emin, fmt.emax - 10, dtype)
    narrow = floats(rng, (30, 7), 0, 1, dtype)
    check(mm, wide, narrow)
    check(mm, narrow.T, wide.T)


def test_the_default_is_fp64(mm: Matmul) -> None:
    rng = np.random.default_rng(23)
    for dtype in REAL:
        a, b = floats(rng, (20, 30), -5, 5, dtype), floats(rng, (30, 20), -5, 5, dtype)
        assert_bits(mm(a, b), mm(a, b, accuracy="fp64"))


def test_float32_with_float64_is_float64(mm: Matmul) -> None:
    rng = np.random.default_rng(24)
    a, b = floats(rng, (5, 9), -5, 5, "f4"), floats(rng, (9, 4), -5, 5, "f8")
    check(mm, a, b)
    check(mm, b.T, a.T)


@grades
def test_integers_held_in_floats_are_exact(mm: Matmul, accuracy: str, dtype: np.dtype[Any]) -> None:
    """Small whole numbers need no rounding in any grade: fast keeps ≥ 53 bits, and results below 2^24 or 2^53."""
    rng = np.random.default_rng(25)
    top = 2**9 if dtype == "f4" else 2**22
    a, b = (rng.integers(-top, top, s).astype(dtype) for s in ((13, 33), (33, 10)))
    assert_bits(mm(a, b, accuracy=accuracy), (a.astype("i8") @ b.astype("i8")).astype(dtype))


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_halfway_cases_round_to_even(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """1 + ulp/2 and 1 + 3·ulp/2 plus nothing, or plus and minus the smallest number there is."""
    fmt = binary(dtype)
    half_ulp = 2.0**-fmt.p
    tiny = 2.0**fmt.quantum
    rows = [[1.0, w * half_ulp, s * tiny, 2.0**40] for w in (1, 3, -0.5, -1.5) for s in (0, 1, -1)]
    a = np.array(rows, dtype=dtype)
    b = np.array([[1, -1, 1], [1, -1, 1], [1, -1, 2.0**-100], [0, 0, 0]], dtype=dtype)
    check(mm, a, b)
    check(mm, b.T, a.T)
    even, odd = np.array([1.0, 1.0, -1.0], dtype=dtype), np.array([1 + 4 * half_ulp] * 2, dtype=dtype)
    assert_bits(mm(a[:1], b, accuracy="exact")[0, 0], even[0])
    assert_bits(mm(a[3:4], b, accuracy="exact")[0, 0], odd[0])


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_the_smallest_part_decides_a_tie(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """2^s + ulp/2 ± something smaller by any factor that the format has: even in 2^2000 lies the direction."""
    fmt = binary(dtype)
    scales = range(fmt.quantum + fmt.p, fmt.emax, 37)
    rows = []
    for s in scales:
        for smaller in {fmt.quantum, *range(s - fmt.p - 1, fmt.quantum, -(fmt.emax - fmt.quantum) // 15)}:
            rows += [[2.0**s, odd * 2.0 ** (s - fmt.p), sign * 2.0**smaller] for odd in (1, 3) for sign in (1, -1)]
    a, b = np.array(rows, dtype=dtype), np.array([[1, -1]] * 3, dtype=dtype)
    assert len(np.unique(a, axis=0)) == len(a)
    want = correctly_rounded(a, b)
    for left, right, c in ((a, b, want), (b.T, a.T, want.T), (a[:, ::-1], b, want)):
        assert_bits(mm(left, right, accuracy="exact"), c)
    for row in a[:: len(a) // 40]:  # alone, its own range is all there is
        assert_bits(mm(row[None], b, accuracy="exact"), correctly_rounded(row[None], b))


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_overflow_goes_to_infinity_only_when_the_exact_value_does(mm: Matmul, dtype: np.dtype[Any]) -> None:
    """Sums that pass the largest number on their way and come back; results a hair below and on the threshold."""
    fmt = binary(dtype)
    top = np.finfo(dtype).max
    half_gap = 2.0 ** (fmt.emax - fmt.p)  # half an ulp of the largest number
    b = np.ones((4, 1), dtype=dtype)
    rows = [
        ([top, top, -top, -top], 0.0),
        ([top, top, -top, 1], top),
        ([top, half_gap, 0, 0], np.inf),
        ([top, half_gap, -1, 0], top),
        ([-top, -half_gap, 0, 0], -np.inf),
        ([-top, -half_gap, 2.0**fmt.quantum, 0], -top),
        ([top, top, top, top], np.inf),
    ]
    a = np.array([r for r, _ in rows], dtype=dtype)
    want = np.array([[w] for _, w in rows], dtype=dtype)
    assert_bits(correctly_rounded(a, b), want)
    check(mm, a, b)
    square = np.full((3, 3), top)
    assert_bits(mm(square, -square, accuracy="exact"), np.full((3, 3), -np.inf, dtype=dtype))
    huge = np.array([[top, top]], dtype=dtype)
    check(mm, huge, np.array([[top], [-top]], dtype=dtype))


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_subnormal_inputs_and_results_are_exact(mm: Matmul, dtype: np.dtype[Any]) -> None:
    fmt, rng = binary(dtype), np.random.default_rng(26)
    subnormal = floats(rng, (8, 12), fmt.quantum, fmt.emin - 1, dtype, zeros=0.1)
    assert (np.abs(subnormal[subnormal != 0]) < np.finfo(dtype).tiny).all()
    assert (subnormal != 0).any()
    ordinary = floats(rng, (12, 7), -3, 3, dtype)
    check(mm, subnormal, ordinary)
    check(mm, ordinary.T, subnormal.T)
    check(mm, subnormal, np.eye(12, dtype=dtype))
    assert_bits(mm(np.eye(8, dtype=dtype), subnormal, accuracy="exact"), subnormal + 0.0)
    # Results between the normal range and half the smallest subnormal, from normal inputs.
    small = fmt.emin // 2
    for down in range(0, fmt.p + 6, 3):
        a, b = floats(rng, (3, 4), small - down, small - down, dtype), floats(rng, (4, 3), small, small, dtype)
        check(mm, a, b)
    least = np.array([[2.0**fmt.quantum]], dtype=dtype)
    for factor, want in (
        (0.5, 0.0),
        (np.nextafter(np.asarray(0.5, dtype), np.asarray(1, dtype)), least),
        (1.5, 2 * least),
    ):
        for s in (1, -1):
            got = mm(least, np.array([[s * factor]], dtype=dtype), accuracy="exact")
            assert_bits(got, np.asarray(s * np.ones((1, 1)) * want, dtype=dtype))
    full = floats(rng, (4, 4), fmt.quantum, fmt.quantum, dtype)
    assert_bits(mm(full, full, accuracy="exact"), np.zeros((4, 4), dtype) * correctly_rounded(full * 2.0**60, full))


@grades
def test_sign_of_an_exact_zero(mm: Matmul, accuracy: str, dtype: np.dtype[Any]) -> None:
    """+0 unless every product is −0; x − x is +0; no products at all give +0."""
    values = np.array([0.0, -0.0, 1.0, -1.0], dtype=dtype)
    for k in (1, 2, 3):
        left = np.array(list(itertools.product(values, repeat=k)), dtype=dtype)
        want = correctly_rounded(left, left.T)
        assert_bits(mm(left, left.T, accuracy=accuracy), want)
        zero = want == 0
        assert np.signbit(want[zero]).any()
        assert not np.signbit(want[zero]).all()
    assert_bits(mm(np.full((2, 0), -1.0, dtype), np.ones((0, 3), dtype), accuracy=accuracy), np.zeros((2, 3), dtype))
    many = np.zeros((3, 300), dtype=dtype)
    assert_bits(mm(many, -np.ones((300, 2), dtype), accuracy=accuracy), -np.zeros((3, 2), dtype))


@grades
def test_nan_and_infinity_follow_ieee_and_stay_in_their_row_and_column(
    mm: Matmul, accuracy: str, dtype: np.dtype[Any]
) -> None:
    rng = np.random.default_rng(27)
    for k, share in ((1, 0.4), (3, 0.2), (20, 0.05), (150, 0.01)):
        a = rng.integers(-3, 4, (25, k)).astype(dtype)
        b = rng.integers(-3, 4, (k, 25)).astype(dtype)
        for x in (a, b):
            special = rng.random(x.shape) < share
            x[special] = rng.choice(np.array([np.nan, np.inf, -np.inf], dtype=dtype), special.sum(), p=[0.2, 0.4, 0.4])
        assert_bits(mm(a, b, accuracy=accuracy), correctly_rounded(a, b))
    # One NaN and one infinity: everything outside their row and column has the bits it has without them.
    a, b = floats(rng, (12, 30), -4, 4, dtype), floats(rng, (30, 13), -4, 4, dtype)
    clean_a, clean_b = a.copy(), b.copy()
    a[3, 5], b[7, 9] = np.nan, -np.inf
    rest = np.ix_([i for i in range(12) if i != 3], [j for j in range(13) if j != 9])
    dirty = mm(a, b, accuracy=accuracy)
    clean_a[3], clean_b[:, 9] = 0, 0
    if accuracy == "exact":
        assert_bits(dirty[rest], mm(clean_a, clean_b, accuracy=accuracy)[rest])
    a[3], b[:, 9] = 0, 0
    within_grade = assert_normwise if accuracy == "fast" else assert_componentwise
    within_grade(dirty[rest], a[rest[0][:, 0]], b[:, rest[1][0]])
    assert np.isnan(dirty[3]).all()
    assert np.isin(np.sign(dirty[rest[0], 9]), [-1, 1]).all()
    assert np.isinf(dirty[rest[0], 9]).all()


def test_infinity_beside_finite_products_too_large_for_the_format(mm: Matmul) -> None:
    """A product of finite numbers is finite however large, so −inf + 1e308·1e308 is −inf and not NaN."""
    a, b = np.array([[1e308, -np.inf], [1e308, 1.0]]), np.array([[1e308, 1e308], [1.0, np.inf]])
    for accuracy in ACCURACIES:
        got = mm(a, b, accuracy=accuracy)
        assert_bits(got, np.array([[-np.inf, -np.inf], [np.inf, np.inf]]))


@pytest.mark.parametrize("accuracy", ["exact", "fp64"])
def test_every_size_to_20(mm: Matmul, engine: str, accuracy: str) -> None:
    """All m, n and k in 0…20, as views into larger arrays whose other entries must not matter."""
    rng = np.random.default_rng(28)
    a, b = floats(rng, (20, 20), -6, 6), floats(rng, (20, 20), -6, 6)
    # The instruction sets share all but the micro-kernels, and the integers sweep those in full.
    sizes = list(range(21)) if engine == "native" else [0, 1, 2, 3, 5, 8, 13, 16, 17, 20]
    for k in range(21):
        full = correctly_rounded(a[:, :k], b[:k])
        magnitude = np.abs(a[:, :k]) @ np.abs(b[:k])
        slack = 0 if accuracy == "exact" else (k + 1) * 2.0**-53 * magnitude
        for m, n in itertools.product(sizes, repeat=2):
            c = mm(a[:m, :k], b[:k, :n], accuracy=accuracy)
            assert c.dtype == full.dtype
            # Both c (within k·u·|A||B|) and the rounded oracle (within u·|AB|) are near the exact value.
            if accuracy == "exact":
                assert np.array_equal(c, full[:m, :n]), (m, n, k)
            else:
                assert (np.abs(c - full[:m, :n]) <= np.broadcast_to(slack, full.shape)[:m, :n] * (1 + 2.0**-40)).all()


@pytest.mark.parametrize("axis", ["m", "n", "k"])
def test_sizes_around_tile_edges(mm: Matmul, axis: str) -> None:
    rng = np.random.default_rng(29)
    size = 260
    a, b = floats(rng, (size, size), -10, 10), floats(rng, (size, size), -10, 10)
    for other in (1, 33):
        m, n = {"m": (size, other), "n": (other, size), "k": (other, other)}[axis]
        full = None if axis == "k" else correctly_rounded(a[:m, :other], b[:other, :n])
        for edge in sorted({e + d for e in (32, 48, 64, 96, 128, 256) for d in (-1, 0, 1)}):
            m, n, k = {"m": (edge, other, other), "n": (other, edge, other), "k": (other, other, edge)}[axis]
            want = correctly_rounded(a[:m, :k], b[:k, :n]) if full is None else full[:m, :n]
            assert_bits(mm(a[:m, :k], b[:k, :n], accuracy="exact"), want)


@settings(max_examples=60)
@given(data=st.data())
def test_small_matrices_of_any_floats(mm: Matmul, data: st.DataObject) -> None:
    """Any bit patterns at all: NaN, ±inf, ±0, subnormals and the whole exponent range in one matrix."""
    dtype = data.draw(st.sampled_from(REAL))
    m, k, n = (data.draw(st.integers(0, 5)) for _ in range(3))
    a = data.draw(hnp.arrays(dtype, (m, k), elements=ELEMENTS[dtype]))
    b = data.draw(hnp.arrays(dtype, (k, n), elements=ELEMENTS[dtype]))
    want = correctly_rounded(a, b)
    assert_bits(mm(a, b, accuracy="exact"), want)
    finite_a, finite_b = a[np.isfinite(a).all(axis=1)], b[:, np.isfinite(b).all(axis=0)]
    assert_componentwise(mm(finite_a, finite_b), finite_a, finite_b)
    assert_normwise(mm(finite_a, finite_b, accuracy="fast"), finite_a, finite_b)
    special = ~(np.isfinite(a).all(axis=1)[:, None] & np.isfinite(b).all(axis=0)[None, :])
    for accuracy in ("fast", "fp64"):
        assert_bits(mm(a, b, accuracy=accuracy)[special], want[special])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 300), st.integers(1, 40)),
    centre=st.integers(-400, 400),
    spread=st.sampled_from([0, 1, 10, 40, 100, 200]),
    zeros=st.sampled_from([0.0, 0.3, 0.95]),
)
def test_larger_matrices_of_any_range(
    mm: Matmul, engine: str, seed: int, shape: tuple[int, int, int], centre: int, spread: int, zeros: float
) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = shape if engine == "native" else (shape[0] // 4 + 1, shape[1] // 4 + 1, shape[2] // 4 + 1)
    a = floats(rng, (m, k), centre - spread, centre + spread, zeros=zeros)
    b = floats(rng, (k, n), -centre - spread, -centre + spread, zeros=zeros)
    check(mm, a, b)
