"""One rounding of an exact binary rational to an IEEE format, in Python integers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class BinaryFormat(NamedTuple):
    """An IEEE binary format: significand bits (the hidden one included) and the exponent of the least subnormal."""

    digits: int
    least: int

    @property
    def largest(self) -> int:
        """Exponent of the largest numbers: they lie below 2^(largest + 1). emin = 1 − emax = least + digits − 1."""
        return 2 - self.least - self.digits


# By dtype name: bfloat16 is a dtype of ml_dtypes, which need not be installed.
FLOAT_FORMATS = {
    "float64": BinaryFormat(53, -1074),
    "float32": BinaryFormat(24, -149),
    "float16": BinaryFormat(11, -24),
    "bfloat16": BinaryFormat(8, -133),
}


def round_to_float(value: int, exponent: int, dtype: np.dtype[Any]) -> float:
    """value · 2^exponent rounded to nearest even in `dtype`, subnormal results and overflow to ±inf as IEEE 754."""
    form = FLOAT_FORMATS[np.dtype(dtype).name]
    mag = abs(value)
    shift = max(mag.bit_length() - form.digits, form.least - exponent)
    if shift > 0:
        half = 1 << (shift - 1)
        rest = mag & (2 * half - 1)
        mag >>= shift
        mag += rest > half or (rest == half and mag & 1)
        exponent += shift
    overflows = mag and mag.bit_length() + exponent > form.largest + 1
    result = math.inf if overflows else math.ldexp(mag, exponent)
    return -result if value < 0 else result


def round_to_pair(value: int, exponent: int) -> tuple[float, float]:
    """value · 2^exponent as high + low: high rounded to nearest, low the rest rounded to nearest; (±inf, 0) beyond.

    high = fl(high + low), and the pair is within 2^-106 of the value, or 2^-1075 where low is subnormal.
    """
    double = np.dtype(np.float64)
    high = round_to_float(value, exponent, double)
    if high == 0 or math.isinf(high):
        return high, 0.0
    numerator, denominator = high.as_integer_ratio()
    scale = 1 - denominator.bit_length()  # high = numerator 2^scale
    common = min(scale, exponent)
    low = round_to_float((value << (exponent - common)) - (numerator << (scale - common)), common, double) + 0.0
    total = high + low
    if total == high:
        return high, low
    if math.isinf(total):
        return high, math.nextafter(low, 0.0)
    return total, low - (total - high)
