"""Contract of gm.DoubleDouble: normalised pairs, exact or nearest conversions. Oracle: Fractions and mpmath."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gemmulate as gm

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=5))
def test_the_constructor_normalises_exactly(pairs: list[tuple[float, float]]) -> None:
    x = gm.DoubleDouble([p[0] for p in pairs], [p[1] for p in pairs])
    for (a, b), hi, lo in zip(pairs, x.hi, x.lo, strict=True):
        if math.isinf(a + b):
            assert (hi, lo) == (a + b, 0)
            continue
        assert Fraction(float(hi)) + Fraction(float(lo)) == Fraction(a) + Fraction(b)
        assert hi + lo == hi == a + b


def test_special_parts() -> None:
    x = gm.DoubleDouble([np.nan, np.inf, 1.0, -np.inf, -0.0], [1.0, -np.inf, np.nan, 3.0, -0.0])
    assert np.isnan(x.hi[[0, 1, 2]]).all()
    assert x.hi[3] == -np.inf
    assert np.signbit(x.hi[4])
    assert np.signbit(gm.DoubleDouble(-0.0).hi)
    assert (x.lo == 0).all()
    assert not np.signbit(x.lo).any()
    assert gm.DoubleDouble(np.array([2, 3], dtype=np.float32)).hi.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        x.hi[0] = 1
    host = np.ones(3)
    y = gm.DoubleDouble(host)
    host[0] = 7
    assert y.hi[0] == 1
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        gm.DoubleDouble(np.ones(2), np.ones(3))
    for bad in (np.ones(2, complex), np.ones(2, np.longdouble), ["a"], np.array([2**60 + 1])):
        with pytest.raises(TypeError, match="hi"):
            gm.DoubleDouble(bad)


def test_numbers_of_every_kind() -> None:
    third = Fraction(1, 3)
    values: list[Any] = [third, "1/3", Decimal("0.1"), "0.1", 2**106 - 1, -(2**200), "1e-30", 0.5, np.int64(-(2**63))]
    exact = [third, third, Fraction(1, 10), Fraction(1, 10), Fraction(2**106 - 1), Fraction(-(2**200))]
    exact += [Fraction(1, 10**30), Fraction(1, 2), Fraction(-(2**63))]
    x = gm.DoubleDouble.from_values([values])
    assert x.shape == (1, 9)
    for got, want in zip(x.to_fractions()[0], exact, strict=True):
        assert abs(got - want) <= abs(want) * Fraction(1, 2**106)
        if want.denominator == 1:
            assert got == want
    assert (x.hi[0] == [float(v) for v in exact]).all()
    assert gm.DoubleDouble.from_values("0.25").to_fractions()[()] == Fraction(1, 4)
    assert gm.DoubleDouble.from_values(np.float32([[1.5]])).hi.tolist() == [[1.5]]
    extremes = ["inf", "-Infinity", "nan", "1e999999999", "1e-999999999", Decimal("-1e400"), 10**400, mpmath.mpf("inf")]
    y = gm.DoubleDouble.from_values(extremes)
    assert y.hi[[0, 3, 6, 7]].tolist() == [math.inf] * 4
    assert y.hi[[1, 5]].tolist() == [-math.inf] * 2
    assert math.isnan(y.hi[2])
    assert y.hi[4] == 0
    assert (y.lo == 0).all()
    for bad, error in ((["one"], ValueError), (["1/0"], ValueError), ([1j], TypeError), ([None], TypeError)):
        with pytest.raises(error, match="values holds"):
            gm.DoubleDouble.from_values(bad)


def test_integers_of_64_bits_are_exact() -> None:
    for dtype in (np.int64, np.uint64):
        info = np.iinfo(dtype)
        x = np.array([info.min, info.max, 0, 1, info.max - 1, 2**53 + 1, 2**62 + 2**31], dtype=dtype)
        assert gm.DoubleDouble.from_values(x).to_fractions().tolist() == [Fraction(int(v)) for v in x]


def test_long_double_and_mpmath() -> None:
    rng = np.random.default_rng(1)
    wide = rng.standard_normal(50).astype(np.longdouble) + rng.standard_normal(50).astype(np.longdouble) / 2**40
    x = gm.DoubleDouble.from_longdouble(wide)
    if np.finfo(np.longdouble).nmant <= 63:
        assert (x.to_longdouble() == wide).all()
        assert x.to_fractions().tolist() == [Fraction(*v.as_integer_ratio()) for v in wide]
        assert (gm.DoubleDouble.from_values(wide).lo == x.lo).all()
    special = gm.DoubleDouble.from_longdouble(np.array([np.inf, -np.inf, np.nan, np.finfo(np.longdouble).max]))
    assert np.isinf(special.hi[[0, 1, 3]]).all()
    assert (special.lo == 0).all()
    with mpmath.workprec(300):
        roots = [mpmath.sqrt(v) * mpmath.mpf(10) ** (7 * v - 50) for v in range(2, 20)]
        y = gm.DoubleDouble.from_values(roots)
        for root, got in zip(roots, y.to_mpmath(), strict=True):
            assert abs(got - root) <= root * mpmath.mpf(2) ** -106
    assert gm.DoubleDouble.from_values(y.to_mpmath()).to_fractions().tolist() == y.to_fractions().tolist()
    far = gm.DoubleDouble(1.0, 2.0**-1000)
    assert gm.DoubleDouble.from_values([far.to_mpmath()[()]]).lo[0] == 2.0**-1000
    with pytest.raises(ValueError, match="infinity"):
        special.to_fractions()


@given(FLOATS, st.integers(-1100, -54), st.integers(1, 60))
def test_decimals(high: float, gap: int, digits: int) -> None:
    """Exact, back through strings, and rounded to significant digits: no decimal of as many digits is nearer."""
    x = gm.DoubleDouble(high, math.ldexp(high * 0.9, gap))
    exact = x.to_fractions()[()]
    assert Fraction(x.to_decimals()[()]) == exact
    back = gm.DoubleDouble.from_values(str(x.to_decimals()[()]))
    assert back.to_fractions()[()] == exact
    rounded = x.to_decimals(digits)[()]
    assert len(rounded.as_tuple().digits) <= digits
    if exact:
        place = Fraction(10) ** (rounded.adjusted() - digits + 1)
        assert abs(Fraction(rounded) - exact) <= place / 2


def test_special_decimals() -> None:
    x = gm.DoubleDouble([np.inf, -np.inf, np.nan, 0.0]).to_decimals()
    assert [str(v) for v in x] == ["Infinity", "-Infinity", "NaN", "0"]
    with pytest.raises(ValueError, match="digits = 0"):
        gm.DoubleDouble(1.0).to_decimals(0)
    third = gm.DoubleDouble.from_values("1/3").to_decimals(31)[()]
    assert str(third) == "0." + "3" * 31


def test_views() -> None:
    x = gm.DoubleDouble(np.arange(6.0).reshape(2, 3), np.full((2, 3), 2.0**-60))
    assert x.T.shape == (3, 2)
    assert x[1].hi.tolist() == [3, 4, 5]
    assert x[:, 1:].lo.shape == (2, 2)
    assert x.ndim == 2
