"""Double-double numbers: unevaluated sums of two float64, about 107 significand bits over float64's exponent range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Any, final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class DoubleDouble:
    """An array of numbers hi + lo, two float64 arrays of one shape with hi = fl(hi + lo): |lo| ≤ ulp(hi)/2.

    The constructor takes any pair of float arrays of one shape (lo defaults to zeros), normalises it exactly (fast
    two-sum, Dekker 1971) and keeps read-only copies. Where hi + lo is not finite, hi says which and lo is 0.

    `gm.matmul` of a DoubleDouble with a DoubleDouble, float or integer array gives a DoubleDouble.

    Raises TypeError for parts that are not real floats or integers that float64 holds, ValueError for two shapes.

    Source: Dekker 1971; the pairs are those of Hida, Li, Bailey 2001.

    >>> import gemmulate as gm
    >>> x = gm.DoubleDouble.from_values([["1/3", "0.1"]])
    >>> x.hi
    array([[0.33333333, 0.1       ]])
    >>> x.lo
    array([[ 1.85037171e-17, -5.55111512e-18]])
    >>> gm.DoubleDouble(1.0, 1.0).hi, gm.DoubleDouble(2.0**60, 1.0).lo
    (array(2.), array(1.))
    """

    hi: Float64
    lo: Float64

    def __init__(self, hi: Any, lo: Any = None) -> None:
        high = _as_float64(hi, "hi")
        low = np.zeros_like(high) if lo is None else _as_float64(lo, "lo")
        if high.shape != low.shape:
            raise ValueError(f"hi has shape {high.shape} and lo has shape {low.shape}; both need the same")
        with np.errstate(all="ignore"):
            total = np.where(low == 0, high, high + low)  # −0 stays −0
            swap = np.abs(low) > np.abs(high)
            larger, smaller = np.where(swap, low, high), np.where(swap, high, low)
            rest = smaller - (total - larger)
        rest = np.where(np.isfinite(total), rest, 0.0) + 0.0
        for name, part in (("hi", total), ("lo", np.asarray(rest))):
            part.flags.writeable = False
            object.__setattr__(self, name, part)

    @classmethod
    def of_normalised(cls, hi: Float64, lo: Float64) -> DoubleDouble:
        """The pairs of float64 arrays that are normalised already (hi = fl(hi + lo), lo = 0 where hi is not finite).

        Nothing is checked or copied; both arrays become read-only.
        """
        self = object.__new__(cls)
        for name, part in (("hi", hi), ("lo", lo)):
            part.flags.writeable = False
            object.__setattr__(self, name, part)
        return self

    @classmethod
    def from_values(cls, values: Any) -> DoubleDouble:
        """The nearest pairs of numbers of any kind: hi is the number rounded to nearest, lo the rest rounded.

        `values` is a number, a nested sequence or an object array of Python ints, floats, Fraction, Decimal, strings
        ("0.1", "1e-30", "1/3", "inf", "nan") and mpmath's mpf; or a NumPy array of any real dtype. Exact for every
        number that a pair holds (of integers, all up to 2^106); else within 2^-106, or 2^-1075 below the range.

        Raises TypeError for other kinds of numbers, ValueError for strings that are none.
        """
        array = np.asarray(values)
        if array.dtype.kind == "f" and array.dtype.itemsize > 8:
            return cls.from_longdouble(array)
        if isinstance(values, (np.ndarray, np.generic)) and array.dtype.kind in "biuf":
            if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
                return cls((array >> 32).astype(np.float64) * 2.0**32, (array & 0xFFFFFFFF).astype(np.float64))
            return cls(array)
        flat = np.asarray(values, dtype=object)
        pairs = [_nearest_pair(v) for v in flat.ravel().tolist()]
        high = np.array([p[0] for p in pairs], dtype=np.float64).reshape(flat.shape)
        return cls(high, np.array([p[1] for p in pairs], dtype=np.float64).reshape(flat.shape))

    @classmethod
    def from_longdouble(cls, x: Any) -> DoubleDouble:
        """numpy.longdouble as pairs: exact where it has 64 significand bits (x86), else within 2^-106."""
        wide = np.asarray(x, dtype=np.longdouble)
        with np.errstate(all="ignore"):
            high = wide.astype(np.float64)
            low = np.where(np.isfinite(high), wide - high, 0).astype(np.float64)
        return cls(high, low)

    def to_longdouble(self) -> Array:
        """hi + lo rounded to numpy.longdouble."""
        with np.errstate(over="ignore"):
            return np.asarray(self.hi.astype(np.longdouble) + self.lo.astype(np.longdouble))

    def to_fractions(self) -> Array:
        """hi + lo as an object array of Fractions, exactly; ValueError where one is not finite."""
        if not np.isfinite(self.hi).all():
            raise ValueError("hi holds NaN or infinity, which no Fraction is; replace them first")
        out = np.empty(self.hi.shape, dtype=object)
        for index in np.ndindex(*self.hi.shape):
            out[index] = Fraction(float(self.hi[index])) + Fraction(float(self.lo[index]))
        return out

    def to_decimals(self, digits: int | None = None) -> Array:
        """hi + lo as an object array of Decimals, exactly, or rounded to significant digits (ties to even).

        `str` of a Decimal gives the string; 34 digits tell pairs of 107 bits apart. NaN and infinities are Decimal's.

        Raises ValueError for digits that are not at least 1.

        >>> import gemmulate as gm
        >>> str(gm.DoubleDouble.from_values("0.1").to_decimals(31)[()])
        '0.1000000000000000000000000000000'
        """
        if digits is not None and digits < 1:
            raise ValueError(f"digits = {digits} is not at least 1; None gives all of them")
        out = np.empty(self.hi.shape, dtype=object)
        # hi < 2^1024 and lo a multiple of 2^-1074: 309 digits before the point and 1074 after it.
        exact = Context(prec=1400, Emin=-2000, Emax=2000, rounding=ROUND_HALF_EVEN)
        rounded = exact if digits is None else Context(prec=digits, Emin=-2000, Emax=2000, rounding=ROUND_HALF_EVEN)
        for index in np.ndindex(*self.hi.shape):
            total = exact.add(Decimal(float(self.hi[index])), Decimal(float(self.lo[index])))
            out[index] = rounded.plus(total)
        return out

    def to_mpmath(self) -> Array:
        """hi + lo as an object array of mpmath's mpf, exactly and whatever mpmath's precision; needs mpmath."""
        import mpmath

        out = np.empty(self.hi.shape, dtype=object)
        for index in np.ndindex(*self.hi.shape):
            out[index] = mpmath.fadd(float(self.hi[index]), float(self.lo[index]), exact=True)
        return out

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of both parts."""
        return self.hi.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.hi.ndim

    @property
    def T(self) -> DoubleDouble:
        """The transpose, as numpy.ndarray.T."""
        return DoubleDouble(self.hi.T, self.lo.T)

    def __getitem__(self, index: Any) -> DoubleDouble:
        return DoubleDouble(self.hi[index], self.lo[index])


def _as_float64(x: Any, name: str) -> Float64:
    array = np.asarray(x)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{name} has dtype {array.dtype}; pass float64 parts, or use DoubleDouble.from_values(…)")
    wide = array.astype(np.float64)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        limit = 1 << 53
        if not -limit <= int(array.min()) <= int(array.max()) <= limit:
            raise TypeError(f"{name} holds integers beyond 2^53, which float64 rounds; use DoubleDouble.from_values(…)")
    return wide


def _nearest_pair(value: Any) -> tuple[float, float]:
    """high and low of one number of any kind that `from_values` takes."""
    if isinstance(value, (float, np.floating)) and not isinstance(value, np.longdouble):
        return float(value), 0.0
    exact = _as_fraction(value)
    if isinstance(exact, float):
        return exact, 0.0
    high = _rounded(exact)
    if math.isinf(high):
        return high, 0.0
    return high, _rounded(exact - Fraction(high))


def _rounded(x: Fraction) -> float:
    try:
        return x.numerator / x.denominator  # correctly rounded by CPython
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def _as_fraction(value: Any) -> Fraction | float:
    """The exact number, or a float that is not finite."""
    if isinstance(value, (int, np.integer, Fraction)):
        return Fraction(int(value)) if isinstance(value, np.integer) else Fraction(value)
    if isinstance(value, np.longdouble):
        return Fraction(*value.as_integer_ratio()) if np.isfinite(value) else float(value)
    if isinstance(value, str):
        numerator, slash, denominator = value.partition("/")
        try:
            if slash:
                return Fraction(int(numerator), int(denominator))
            return _bounded(Decimal(value.strip()))
        except (ValueError, ArithmeticError):
            raise ValueError(
                f'values holds the string {value!r:.60}, which is no number; write "0.1" or "1/3"'
            ) from None
    if isinstance(value, Decimal):
        return _bounded(value)
    if type(value).__module__.partition(".")[0] == "mpmath" and type(value).__name__ == "mpf":
        sign, mantissa, exponent, bits = value._mpf_
        if mantissa == 0 or not -1200 < exponent + bits < 1100:
            return float(value)
        size = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
        return -size if sign else size
    raise TypeError(
        f"values holds a {type(value).__name__} ({value!r:.40}); "
        "take Python ints, floats, Fraction, Decimal, strings or mpmath's mpf"
    )


def _bounded(value: Decimal) -> Fraction | float:
    """The exact value, or its float where that is infinite, NaN or zero: no integer of a billion digits is made."""
    return Fraction(value) if value.is_finite() and value and -400 < value.adjusted() < 400 else float(value)
