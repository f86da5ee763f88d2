"""Contract of double-double products: |C − AB| ≤ 2^-104 |A||B| for every element, normalised pairs, the same bits
on every engine, and IEEE's rules for special values. Oracle: exact integer products of the parts (python-flint)."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmulate as gm
from matmul.checks import assert_bits
from matmul.inputs import floats
from matmul.oracles import Array, correctly_rounded, exact_product

Matmul = Callable[..., Any]


def pairs(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int, zeros: float = 0.0) -> gm.DoubleDouble:
    hi = floats(rng, shape, low, high, zeros=zeros)
    gap = rng.choice([0, 0, 1, 30, 53, 200, 2000], shape)
    with np.errstate(under="ignore"):
        return gm.DoubleDouble(hi, np.ldexp(hi * rng.uniform(-1, 1, shape), -53 - gap))


def parts(a: gm.DoubleDouble, b: gm.DoubleDouble) -> tuple[Array, Array]:
    """Float64 matrices of depth 4k whose product is a b; |A||B| bounds it within a factor of 1 + 2^-51."""
    left = np.concatenate((a.hi, a.hi, a.lo, a.lo), axis=1)
    return left, np.concatenate((b.hi, b.lo, b.hi, b.lo), axis=0)


def nearest(n: int, e: int) -> tuple[Fraction, float]:
    exact = n * Fraction(2) ** e
    try:
        return exact, exact.numerator / exact.denominator
    except OverflowError:
        return exact, np.inf if n > 0 else -np.inf


def check(mm: Matmul, a: gm.DoubleDouble, b: gm.DoubleDouble, **options: Any) -> None:
    exact = exact_product(*parts(a, b))
    size = exact_product(np.abs(a.hi), np.abs(b.hi))  # ≤ (1 + 2^-52) |A||B|, and no smaller than (1 − 2^-52) of it
    for accuracy in ("fp64", "exact"):
        c = mm(a, b, accuracy=accuracy, **options)
        assert isinstance(c, gm.DoubleDouble)
        assert c.shape == (a.shape[0], b.shape[1])
        for i in np.ndindex(*c.shape):
            value, high = nearest(exact.value[i], int(exact.exponent[i]))
            h, low = float(c.hi[i]), float(c.lo[i])
            if np.isinf(high) or np.isinf(h):
                assert h == high
                assert low == 0
                continue
            assert h + low == h
            error = abs(Fraction(h) + Fraction(low) - value)
            if accuracy == "exact":
                assert h == high or h + low == h
                limit = abs(value) * Fraction(1, 2**106)
            else:
                magnitude = size.value[i] * Fraction(2) ** int(size.exponent[i]) * (1 - Fraction(1, 2**50))
                limit = magnitude * Fraction(1, 2**104)
            assert error <= max(limit, Fraction(1, 2**1075)), (accuracy, i, h, low, float(value))


@pytest.mark.parametrize("half", [0, 1, 8, 30, 120, 480])
def test_exponent_ranges(mm: Matmul, is_fast: bool, half: int) -> None:
    rng = np.random.default_rng(71)
    for m, k, n in ((1, 1, 1), (4, 7, 5), (13, 150, 34) if is_fast else (3, 40, 6)):
        for zeros in (0.0, 0.5):
            check(mm, pairs(rng, (m, k), -half, half, zeros), pairs(rng, (k, n), -half, half, zeros))


def test_the_bits_are_those_of_every_engine(mm: Matmul) -> None:
    rng = np.random.default_rng(72)
    for half in (0, 20, 300):
        a, b = pairs(rng, (9, 33), -half, half), pairs(rng, (33, 8), -half, half)
        want = gm.matmul(a, b, engine="reference")
        for threads in (1, 2):
            got = mm(a, b, threads=threads)
            assert_bits(got.hi, want.hi)
            assert_bits(got.lo, want.lo)
            again = gm.DoubleDouble(got.hi, got.lo)  # what products return is normalised
            assert_bits(got.hi, again.hi)
            assert_bits(got.lo, again.lo)
            with pytest.raises(ValueError, match="read-only"):
                got.lo[0, 0] = 1


def test_cancellation(mm: Matmul) -> None:
    """x y − x y + tiny: exactly 0, or the tiny rest that no float64 product sees."""
    rng = np.random.default_rng(73)
    for shift in (10, 100, 200, 600):
        a, b = pairs(rng, (4, 20), -2, 2), pairs(rng, (20, 3), -2, 2)
        tiny = np.ldexp(1.0, -shift)
        left = gm.DoubleDouble(
            np.hstack([a.hi, -a.hi, np.full((4, 1), tiny)]), np.hstack([a.lo, -a.lo, np.zeros((4, 1))])
        )
        right = gm.DoubleDouble(np.vstack([b.hi, b.hi, np.ones((1, 3))]), np.vstack([b.lo, b.lo, np.zeros((1, 3))]))
        check(mm, left, right)
        got = mm(left, right, accuracy="exact")
        assert (got.hi == tiny).all()
        assert (got.lo == 0).all()
        zero = mm(left[:, :-1], right[:-1])
        assert_bits(zero.hi, np.zeros((4, 3)))


def test_complementary_supports_and_scaling(mm: Matmul) -> None:
    rng = np.random.default_rng(74)
    a, b = pairs(rng, (6, 30), -3, 3), pairs(rng, (30, 6), -3, 3)
    rows, columns = np.arange(30) < 15, np.arange(30) >= 15
    left = gm.DoubleDouble(a.hi * rows, a.lo * rows)
    right = gm.DoubleDouble(b.hi * columns[:, None], b.lo * columns[:, None])
    assert_bits(mm(left, right).hi, np.zeros((6, 6)))
    d = np.ldexp(1.0, rng.integers(-250, 250, 30))
    check(mm, gm.DoubleDouble(a.hi * d, a.lo * d), gm.DoubleDouble(b.hi / d[:, None], b.lo / d[:, None]))
    base = mm(a, b)
    s, t = np.ldexp(1.0, rng.integers(-300, 300, (6, 1))), np.ldexp(1.0, rng.integers(-300, 300, (1, 6)))
    scaled = mm(gm.DoubleDouble(a.hi * s, a.lo * s), gm.DoubleDouble(b.hi * t, b.lo * t))
    assert_bits(scaled.hi, base.hi * s * t)
    assert_bits(scaled.lo, base.lo * s * t)


def test_mixed_operands(mm: Matmul) -> None:
    rng = np.random.default_rng(75)
    x = pairs(rng, (5, 8), -4, 4)
    for dtype in ("f8", "f4", "f2", ml_dtypes.bfloat16, "i1", "?", "i8", "u8"):
        kind = np.dtype(dtype)
        y = (
            rng.integers(0, 2, (8, 3)).astype(dtype)
            if kind.kind == "b"
            else (rng.integers(0, 100, (8, 3)).astype(dtype))
        )
        if kind.itemsize == 8 and kind.kind in "iu":
            y[0, 0] = np.iinfo(dtype).max
        wide = gm.DoubleDouble.from_values(y.astype("f8") if kind.kind not in "iu" else y)
        check(mm, x, wide)
        check(mm, wide.T, x.T)
        for got, want in ((mm(x, y), mm(x, wide)), (mm(y.T, x.T), mm(wide.T, x.T))):
            assert_bits(got.hi, want.hi)
            assert_bits(got.lo, want.lo)
    f = floats(rng, (8, 3), -3, 3)
    hi_only = mm(gm.DoubleDouble(x.hi), f, accuracy="exact")
    assert_bits(hi_only.hi, correctly_rounded(x.hi, f))
    big = np.array([[2**100], [3]] * 4, dtype=object)
    assert_bits(mm(x, big).lo, mm(x, gm.DoubleDouble.from_values(big)).lo)


def test_special_values_and_zeros(mm: Matmul) -> None:
    rng = np.random.default_rng(76)
    pool = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
    for k in (1, 2, 5, 40):
        hi_a, hi_b = rng.choice(pool, (12, k), p=[0.2, 0.2, 0.25, 0.2, 0.05, 0.05, 0.05]), rng.choice(pool[:4], (k, 9))
        hi_b[0, 0] = np.inf
        lo_a = np.where(np.isfinite(hi_a), hi_a * 2.0**-60, 0)
        for accuracy in ("fp64", "exact"):
            got = mm(gm.DoubleDouble(hi_a, lo_a), gm.DoubleDouble(hi_b), accuracy=accuracy)
            want = correctly_rounded(hi_a, hi_b)
            special = ~np.isfinite(want)
            assert_bits(got.hi[special], want[special])
            assert (got.lo[special] == 0).all()
            zero = (np.abs(np.where(np.isfinite(hi_a), hi_a, 1)) @ np.abs(np.where(np.isfinite(hi_b), hi_b, 1))) == 0
            assert_bits(got.hi[zero & ~special], want[zero & ~special])


def test_overflow_and_subnormal_results(mm: Matmul) -> None:
    top = np.finfo(np.float64).max
    a = gm.DoubleDouble(
        [[top, top, -top], [top, 1.0, 0.0], [2.0**-1000, 0.0, 0.0]], [[2.0**969, 0, 0], [0, 0, 0], [0, 0, 0]]
    )
    b = gm.DoubleDouble([[1.0, 2.0**-70], [1.0, 2.0**-80], [1.0, 2.0**-1]], [[0, 0], [2.0**-54, 0], [0, 2.0**-60]])
    check(mm, a, b)
    rng = np.random.default_rng(77)
    for low in (-1074, -1040, -980):
        check(mm, pairs(rng, (3, 5), low, low + 20, 0.1), pairs(rng, (5, 3), -3, 60))
    check(mm, pairs(rng, (3, 5), 1000, 1022), pairs(rng, (5, 3), -30, 3))


def test_shapes_strides_and_stacks(mm: Matmul) -> None:
    rng = np.random.default_rng(78)
    a, b = pairs(rng, (3, 1, 4, 6), -2, 2), pairs(rng, (2, 6, 5), -2, 2)
    got = mm(a, b)
    assert got.shape == (3, 2, 4, 5)
    for i, j in np.ndindex(3, 2):
        one = mm(a[i, 0], b[j])
        assert_bits(got.hi[i, j], one.hi)
        assert_bits(got.lo[i, j], one.lo)
    x, y = a[0, 0], b[0]
    strided = gm.DoubleDouble(np.asfortranarray(x.hi), x.lo[:, ::1])
    assert_bits(mm(strided, y).lo, mm(x, y).lo)
    assert mm(x[0], y).shape == (5,)
    scalar = mm(x[0], y[:, 0])
    assert scalar.shape == ()
    assert scalar.hi[()] == mm(x, y).hi[0, 0]
    for m, k, n in ((0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0)):
        empty = mm(gm.DoubleDouble(np.ones((m, k))), np.ones((k, n)))
        assert_bits(empty.hi, np.zeros((m, n)))
        assert_bits(empty.lo, np.zeros((m, n)))


def test_planes_of_other_formats_give_the_same_bits(mm: Matmul) -> None:
    rng = np.random.default_rng(80)
    for half in (2, 300):  # residues alone, and with elements from the long accumulator
        a, b = pairs(rng, (3, 7), -half, half), pairs(rng, (7, 2), -2, 2)
        got, want = mm(a, b, formats="fp4_e2m1"), mm(a, b)
        assert_bits(got.hi, want.hi)
        assert_bits(got.lo, want.lo)


def test_the_plan(mm: Matmul, engine: str) -> None:
    rng = np.random.default_rng(79)
    a, b = pairs(rng, (4, 6), -1, 1), floats(rng, (6, 3), -1, 1)
    plan = gm.plan(a, b, engine=engine)
    assert plan.dtypes == ("double-double", "float64", "double-double")
    assert plan.scheme == "residues"
    assert plan.products > 20
    assert "2^-104" in plan.explain()
    assert '"exactness"' in plan.to_json()
    assert_bits(plan.run(a, b).lo, mm(a, b).lo)
    wide = pairs(rng, (4, 40), -500, 500)
    assert gm.plan(wide, wide.T, accuracy="exact", engine=engine).scheme == "long accumulator"
    assert gm.plan(gm.DoubleDouble(np.ones((2, 0))), np.ones((0, 3))).scheme == "empty"


def test_out(mm: Matmul) -> None:
    """Arrays of any layout and byte order receive both parts; what surrounds them and the operands stay as they are."""
    rng = np.random.default_rng(81)
    a, b = pairs(rng, (2, 3, 20), -40, 40), pairs(rng, (20, 5), -40, 40)
    want = mm(a, b)
    host = np.full((2, 2, 5, 8), 7.0)
    views = host[:, :, :, 1:7:2].transpose(0, 1, 3, 2)
    layouts = [
        (np.empty((2, 3, 5)), np.empty((2, 3, 5))),
        (views[0], views[1]),
        (np.empty((2, 3, 5), ">f8"), np.empty((2, 3, 5))),
    ]
    for out in layouts:
        got = mm(a, b, out=out)
        assert got is out
        assert_bits(out[0].astype("f8"), want.hi)
        assert_bits(out[1].astype("f8"), want.lo)
    assert (host[:, :, :, ::2] == 7).all()
    x = rng.standard_normal((4, 4))  # an operand as its own result
    square = gm.matmul(gm.DoubleDouble(np.eye(4)), x.copy())
    low = np.empty((4, 4))
    mm(gm.DoubleDouble(np.eye(4)), x, out=(x, low))
    assert_bits(x, square.hi)
    empty = np.full((2, 3), 9.0), np.full((2, 3), 9.0)
    mm(gm.DoubleDouble(np.ones((2, 0))), np.ones((0, 3)), out=empty)
    assert_bits(empty[0], np.zeros((2, 3)))
    assert_bits(empty[1], np.zeros((2, 3)))
    vector = np.empty(()), np.empty(())
    mm(a[0, 0], b[:, 0], out=vector)
    assert vector[1][()] == want.lo[0, 0, 0]


def test_inner_scaling(mm: Matmul, engine: str) -> None:
    """A D times D^-1 B: powers of two along k cost no bits, and the result is that of A B, bit for bit."""
    rng = np.random.default_rng(82)
    a, b = pairs(rng, (5, 24), -1, 1), pairs(rng, (24, 4), -1, 1)
    a, b = (gm.DoubleDouble(x.hi, np.where(np.abs(x.lo) < 2.0**-200, 0, x.lo)) for x in (a, b))  # no underflow below
    d = np.ldexp(1.0, rng.permutation(np.arange(24) * 40 - 460))
    left, right = gm.DoubleDouble(a.hi * d, a.lo * d), gm.DoubleDouble(b.hi / d[:, None], b.lo / d[:, None])
    plan = gm.plan(left, right, engine=engine)
    assert plan.scheme == "residues"
    assert plan.repaired == 0
    assert "inner scaling" in plan.explain()
    assert "inner scaling" not in gm.plan(a, b, engine=engine).explain()
    check(mm, left, right)
    for accuracy in ("fp64", "exact"):
        got = mm(left, right, accuracy=accuracy)
        want = mm(a, b, accuracy="exact")
        limit = 0 if accuracy == "exact" else 2.0**-100 * (np.abs(a.hi) @ np.abs(b.hi))
        assert (np.abs((got.hi - want.hi) + (got.lo - want.lo)) <= limit).all()
    assert_bits(mm(left, right).lo, gm.matmul(left, right, engine="reference").lo)


def test_few_bits_are_kept_as_they_are(mm: Matmul, engine: str) -> None:
    """Integers, and entries 80 binary orders apart: exact products of as few moduli as the data's bits need."""
    rng = np.random.default_rng(83)
    x = gm.DoubleDouble(rng.integers(-(2**30), 2**30, (6, 9)))
    y = np.where(rng.random((9, 4)) < 0.5, 1.0, 2.0**-80)
    plan = gm.plan(x, y, engine=engine)
    assert plan.scheme == "residues"
    assert plan.products == len(plan.moduli) < 20
    exact = x.to_fractions() @ gm.DoubleDouble(y).to_fractions()
    for accuracy in ("fp64", "exact"):
        got = mm(x, y, accuracy=accuracy)
        for value, high, low in zip(exact.flat, got.hi.flat, got.lo.flat, strict=True):
            assert high == value.numerator / value.denominator
            assert abs(Fraction(float(high)) + Fraction(float(low)) - value) <= abs(value) / 2**106


def test_refusals(mm: Matmul) -> None:
    x, both = gm.DoubleDouble(np.ones((2, 2))), np.ones((2, 2))
    for call, error, words in (
        (lambda: mm(x, x, accuracy="fast"), ValueError, "accuracy = fast"),
        (lambda: mm(x, x, accuracy=gm.Bits(3)), ValueError, r"Bits\(3\)"),
        (lambda: mm(x, x, modulus=7), TypeError, "modulus = 7"),
        (lambda: mm(x, x, out=np.ones((2, 2))), TypeError, r"out is a ndarray.*\(hi, lo\)"),
        (lambda: mm(x, x, out=(np.ones((2, 2)),)), TypeError, r"out is a tuple.*\(hi, lo\)"),
        (lambda: mm(x, x, out=(np.ones((2, 2)), np.ones((2, 2), "f4"))), TypeError, r"out\[1\] has dtype float32"),
        (lambda: mm(x, x, out=(np.ones((2, 3)), np.ones((2, 2)))), ValueError, r"out\[0\] has shape \(2, 3\)"),
        (lambda: mm(x, x, out=(np.ones((2, 2)), x.lo)), ValueError, r"out\[1\] is read-only"),
        (lambda: mm(x, x, out=(both, both.T)), ValueError, "share memory"),
        (lambda: mm(both, both, out=(both, both.copy())), TypeError, "out is a tuple"),
        (lambda: mm(x, np.ones((2, 2), complex)), TypeError, "b has dtype complex128"),
        (lambda: mm(np.array([[2**200 + 2**100 + 1, 1]], dtype=object), x), TypeError, "a holds Python ints"),
        (lambda: mm(x, np.ones((3, 2))), ValueError, r"\(2, 2\).*\(3, 2\)"),
        (lambda: mm(gm.DoubleDouble(1.0), x), ValueError, "a is 0-dimensional"),
        (lambda: mm(x, "text"), TypeError, "b is a str"),
    ):
        with pytest.raises(error, match=words):
            call()


@settings(max_examples=40)
@given(data=st.data())
def test_small_matrices_of_any_floats(mm: Matmul, data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(0, 4)) for _ in range(3))
    number = st.floats(allow_nan=False, allow_infinity=False)
    drawn = []
    for shape in ((m, k), (k, n)):
        size = shape[0] * shape[1]
        hi = np.array(data.draw(st.lists(number, min_size=size, max_size=size)), dtype=float).reshape(shape)
        share = np.array(data.draw(st.lists(st.integers(-1100, -54), min_size=size, max_size=size)), dtype=int)
        with np.errstate(under="ignore"):
            drawn.append(gm.DoubleDouble(hi, np.ldexp(hi * 0.7, share.reshape(shape))))
    check(mm, *drawn)
